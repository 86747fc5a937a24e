//! The ranges of keys into which later parts will insert.
//!
//! ```text
//! ring:    . . [ ticket | table | low key, high key, word by word ] [ ... ] [ ... ] . .
//!              ^ first                                                              ^ end
//! counts:  [ 0 | 2 | 1 | 0 | ... ]    the ranges in the ring, by the remainder of the table
//! ```
//!
//! Only the transaction that has the turn reads or changes the ring. It adds a range at its border.
//! It drops ranges at the front whose transactions have ended, whenever it comes by. If the ring is
//! full it waits for the end of the transaction at the front, which is an earlier one.

use contend_engine::KeyWords;
use contend_engine::declaration::NamedRange;
use contend_machine::{Atomic64, Block, Machine, Ordering};

use super::requests::Requests;
use super::sequence::{Known, Sequence, Ticket};

/// The most ranges of a transaction. One with more keeps the turn.
pub(super) const MOST: usize = 4;
/// The number of counts.
const COUNTS: usize = 64;
/// The words of an entry: ticket, table, and two keys.
const WORDS: usize = 2 + 2 * 4;

/// An entry in two lines of its own. Of short keys the first line holds all.
#[derive(Debug)]
#[repr(align(128))]
struct Entry<M: Machine>([M::U64; WORDS]);

/// The ranges that are pending.
#[derive(Debug)]
pub(super) struct PendingInserts<M: Machine> {
    /// The position of the first entry, and that behind the last one. Both only grow.
    ends: Block<M, [M::U64; 2]>,
    counts: Block<M, M::U64>,
    ring: Block<M, Entry<M>>,
}

/// Returns the key whose words stand in every second place from `first` on.
fn key_at(word: impl Fn(usize) -> u64, first: usize, last_word: usize) -> KeyWords {
    std::array::from_fn(|at| if at <= last_word { word(first + 2 * at) } else { 0 })
}

impl<M: Machine> PendingInserts<M> {
    /// Returns no ranges, with room for those of as many workers.
    pub(super) fn new(workers: usize) -> Self {
        let entry = || Entry(std::array::from_fn(|_| M::U64::new(0)));
        PendingInserts {
            ends: Block::new(1, |_| [M::U64::new(0), M::U64::new(0)]),
            counts: Block::new(COUNTS, |_| M::U64::new(0)),
            ring: Block::new(workers * MOST, |_| entry()),
        }
    }

    /// Changes the count of a table by one.
    fn count(&self, table: u32, change: fn(u64, u64) -> u64) {
        let count = &self.counts[table as usize % COUNTS];
        // Relaxed, both: as in `pending`.
        count.store(change(count.load(Ordering::Relaxed), 1), Ordering::Relaxed);
    }

    fn entry(&self, position: u64) -> &[M::U64; WORDS] {
        &self.ring[(position % self.ring.len() as u64) as usize].0
    }

    /// Returns the position of the first range whose transaction has not ended, and that behind the
    /// last one.
    fn pending(&self, sequence: &Sequence<M>, known: &mut Known) -> (u64, u64) {
        // Relaxed, all loads and stores of this file: they are made in the turn, which orders them.
        let [first, end] = &self.ends[0];
        let (mut position, end) = (first.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        let before = position;
        while position < end && sequence.has_ended(known, self.entry(position)[0].load(Ordering::Relaxed)) {
            // Relaxed: as above.
            let table = self.entry(position)[1].load(Ordering::Relaxed);
            self.count(table as u32, u64::wrapping_sub);
            position += 1;
        }
        if position != before {
            // Relaxed: as above.
            first.store(position, Ordering::Relaxed);
        }
        (position, end)
    }

    /// Calls `meet` with the ticket of each range that has a key in common with `range`, and of
    /// whose transaction it is not known yet that it has ended. It may have ended since the worker
    /// last looked for a key there.
    fn for_each(
        &self,
        sequence: &Sequence<M>,
        known: &mut Known,
        range: &NamedRange,
        mut meet: impl FnMut(&mut Known, Ticket),
    ) {
        // Relaxed: as in `pending`.
        if self.counts[range.table as usize % COUNTS].load(Ordering::Relaxed) == 0 {
            return;
        }
        let [first, end] = &self.ends[0];
        // Relaxed, both: as in `pending`.
        for position in first.load(Ordering::Relaxed)..end.load(Ordering::Relaxed) {
            let entry = self.entry(position);
            // Relaxed: as in `pending`.
            let word = |at: usize| entry[at].load(Ordering::Relaxed);
            let is_met = || {
                let (low, high) = (key_at(word, 2, range.last_word), key_at(word, 3, range.last_word));
                low <= range.high && range.low <= high
            };
            if word(1) == u64::from(range.table) && !known.has_ended(word(0)) && is_met() {
                meet(known, word(0));
            }
        }
        self.pending(sequence, known);
    }

    /// Waits until no pending range has a key in common with this one. Returns whether one had, and
    /// may have got its rows since the worker last looked.
    pub(super) fn wait(&self, sequence: &Sequence<M>, known: &mut Known, range: &NamedRange) -> bool {
        let mut waited = false;
        self.for_each(sequence, known, range, |known, earlier| {
            sequence.await_end(known, earlier);
            waited = true;
        });
        waited
    }

    /// Adds a range of the transaction with this ticket. Its later part comes after those that
    /// insert into the same range.
    pub(super) fn add(
        &self,
        sequence: &Sequence<M>,
        known: &mut Known,
        ticket: Ticket,
        range: &NamedRange,
        requests: &mut Requests<M>,
    ) {
        self.for_each(sequence, known, range, |_, earlier| {
            if earlier != ticket {
                requests.await_later(earlier);
            }
        });
        let (mut first, end) = self.pending(sequence, known);
        while end - first >= self.ring.len() as u64 {
            // Relaxed: as in `pending`.
            sequence.await_end(known, self.entry(first)[0].load(Ordering::Relaxed));
            first = self.pending(sequence, known).0;
        }
        let keys = range.low.into_iter().zip(range.high).flat_map(|(low, high)| [low, high]);
        let words = [ticket, u64::from(range.table)].into_iter().chain(keys);
        for (at, word) in self.entry(end).iter().zip(words).take(2 * (2 + range.last_word)) {
            // Relaxed: as in `pending`.
            at.store(word, Ordering::Relaxed);
        }
        self.count(range.table, u64::wrapping_add);
        // Relaxed: as in `pending`.
        self.ends[0][1].store(end + 1, Ordering::Relaxed);
    }
}
