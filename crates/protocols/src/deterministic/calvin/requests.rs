//! The requests for locks of a batch.
//!
//! ```text
//! heads, by the lock's hash:  [ batch | first request ] ---> request ---> request
//! request:                    [ lock, exclusive or not | next ]       of the worker that owns its place
//! ```
//!
//! A worker pushes its requests to the lists of their locks. The place of a request says which
//! worker it belongs to, and so which place it has in the batch: the order of a list does not
//! matter. When all of the batch have asked, each worker goes through the lists of its own locks
//! and finds the earlier workers. A head that names an older batch is an empty list, so nothing is
//! ever cleared.
//!
//! **Two sets of lists** are used in turns. A worker asks for the locks of batch `b + 1` while
//! another may still look at the lists of batch `b`. When all have asked for `b + 1`, all have
//! ended `b`, so the lists of `b` are free for `b + 2`. A worker waits for that before it asks.

use std::array;

use contend_engine::KeyWords;
use contend_machine::{Atomic64, Block, Machine, Ordering};
use contend_model::random::mix;

use super::CalvinFaults;

/// The most locks for which a transaction asks one by one. A transaction with more locks
/// everything.
pub(super) const MOST: usize = 64;
/// The lists of a set.
const HEADS: usize = 1 << 14;
/// The lower bits of a head are the place of the first request, and the others the batch: enough
/// for the places of 16,384 workers, and for decades of batches.
const PLACE_BITS: u32 = 22;
const PLACES: u64 = (1 << PLACE_BITS) - 1;

/// What a transaction locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows.
    Rows,
    /// Partitions.
    Partitions,
    /// The whole database.
    Everything,
}

/// A lock, and the mode in which it is asked for: a hash, whose lowest bit is 1 if the mode is
/// exclusive. Two locks with one hash are the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock(u64);

impl Lock {
    /// Returns the lock of a row.
    pub(super) fn of_row(table: u32, key: &KeyWords, exclusive: bool) -> Self {
        let hash = key.iter().fold(u64::from(table) << 1, |hash, word| mix(hash ^ *word).wrapping_add(1));
        Lock(mix(hash) & !1 | u64::from(exclusive))
    }

    /// Returns the exclusive lock of a partition.
    pub(super) fn of_partition(number: usize) -> Self {
        Lock(mix((number as u64) << 1 | 1) | 1)
    }

    fn is_exclusive(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_same(self, other: Lock) -> bool {
        (self.0 ^ other.0) >> 1 == 0
    }
}

/// A place for a request.
#[derive(Debug)]
struct Request<M: Machine> {
    lock: M::U64,
    /// The place of the next request, plus 1; 0: none.
    next: M::U64,
}

/// One of the two sets.
#[derive(Debug)]
struct Set<M: Machine> {
    heads: Block<M, M::U64>,
    /// [`MOST`] for each worker.
    requests: Block<M, Request<M>>,
    /// For each worker, the batch in which it has asked last, and how.
    kinds: Block<M, M::U64>,
    /// For each kind, the last batch in which a transaction of it has asked.
    seen: Block<M, [M::U64; 3]>,
}

/// The requests of all workers.
#[derive(Debug)]
pub(super) struct Requests<M: Machine>([Set<M>; 2]);

impl<M: Machine> Set<M> {
    fn new(workers: usize) -> Self {
        let zero = || M::U64::new(0);
        Set {
            heads: Block::new(if workers == 0 { 0 } else { HEADS }, |_| zero()),
            requests: Block::new(workers * MOST, |_| Request { lock: zero(), next: zero() }),
            kinds: Block::new(workers, |_| zero()),
            seen: Block::new(1, |_| array::from_fn(|_| zero())),
        }
    }

    fn head(&self, lock: Lock) -> &M::U64 {
        &self.heads[(lock.0 >> 1) as usize % HEADS]
    }
}

/// Returns a batch as the upper bits of a head, or of a word of `kinds`. The first one is 1,
/// because 0 is the word of a list that was never used.
fn tag(batch: u64) -> u64 {
    (batch + 1) << PLACE_BITS
}

/// Returns what the word of a worker that asked in this way holds.
fn word_of(batch: u64, kind: Kind) -> u64 {
    tag(batch) | kind as u64
}

impl<M: Machine> Requests<M> {
    pub(super) fn new(workers: usize) -> Self {
        Requests(array::from_fn(|_| Set::new(workers)))
    }

    fn of(&self, batch: u64) -> &Set<M> {
        &self.0[(batch % 2) as usize]
    }

    /// Asks for locks in the name of a worker's transaction of this batch.
    pub(super) fn ask(&self, worker: usize, batch: u64, kind: Kind, locks: &[Lock]) {
        let set = self.of(batch);
        // Relaxed, all stores and loads here: other workers read them when the batch is complete,
        // which orders all of them before (`Rounds::wait`). The exchange publishes a request to
        // those that push to the same list, which only copy its place.
        set.kinds[worker].store(word_of(batch, kind), Ordering::Relaxed);
        let seen = &set.seen[0][kind as usize];
        // Relaxed: as above. The load spares most of the stores to a line that all workers read.
        if seen.load(Ordering::Relaxed) != tag(batch) {
            seen.store(tag(batch), Ordering::Relaxed);
        }
        for (number, &lock) in locks.iter().enumerate() {
            let place = worker * MOST + number;
            let (request, head) = (&set.requests[place], set.head(lock));
            // Relaxed: as above.
            request.lock.store(lock.0, Ordering::Relaxed);
            let mut first = head.load(Ordering::Relaxed);
            loop {
                let is_of_batch = first & !PLACES == tag(batch);
                // Relaxed, all: as above.
                request.next.store(if is_of_batch { first & PLACES } else { 0 }, Ordering::Relaxed);
                let new = tag(batch) | (place as u64 + 1);
                match head.compare_exchange(first, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => first = now,
                }
            }
        }
    }

    /// Adds the earlier workers whose transactions of this batch conflict with one that has asked
    /// in this way. All of the batch have asked.
    pub(super) fn earlier<F: CalvinFaults>(
        &self,
        worker: usize,
        batch: u64,
        kind: Kind,
        locks: &[Lock],
        earlier: &mut Vec<usize>,
    ) {
        let set = self.of(batch);
        for &lock in locks {
            // Relaxed, all: as in `ask`.
            let first = set.head(lock).load(Ordering::Relaxed);
            let mut next = if first & !PLACES == tag(batch) { first & PLACES } else { 0 };
            let mut behind_own = false;
            while next != 0 {
                let place = next as usize - 1;
                let request = &set.requests[place];
                // Relaxed, both: as above.
                let other = Lock(request.lock.load(Ordering::Relaxed));
                next = request.next.load(Ordering::Relaxed);
                let conflicts = other.is_exclusive() || lock.is_exclusive() && !F::pass_readers();
                let asker = place / MOST;
                // The list has the newest request first.
                let is_earlier = if F::grant_by_arrival() { behind_own && asker != worker } else { asker < worker };
                if is_earlier && conflicts && lock.is_same(other) {
                    earlier.push(asker);
                }
                behind_own |= asker == worker;
            }
        }
        if F::ignore_kinds() {
            return;
        }
        let excludes = |other: Kind| other != kind || kind == Kind::Everything;
        let others = [Kind::Rows, Kind::Partitions, Kind::Everything].into_iter().filter(|other| excludes(*other));
        for other in others {
            // Relaxed, both: as in `ask`.
            if set.seen[0][other as usize].load(Ordering::Relaxed) == tag(batch) {
                let asked = |earlier: &usize| set.kinds[*earlier].load(Ordering::Relaxed) == word_of(batch, other);
                earlier.extend((0..worker).filter(asked));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use contend_machine::Native;

    use super::*;
    use crate::fault::Sound;

    fn row(key: u64, exclusive: bool) -> Lock {
        Lock::of_row(1, &[key, 0, 0, 0], exclusive)
    }

    fn earlier(requests: &Requests<Native>, worker: usize, batch: u64, kind: Kind, locks: &[Lock]) -> Vec<usize> {
        let mut found = Vec::new();
        requests.earlier::<Sound>(worker, batch, kind, locks, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn a_transaction_waits_for_earlier_ones_that_conflict() {
        let requests = Requests::<Native>::new(4);
        let locks = [
            vec![row(1, false), row(2, true)],
            vec![row(1, false)],
            vec![row(1, true)],
            vec![row(2, false), row(3, true)],
        ];
        for batch in 0..5 {
            // In any order.
            for worker in [2, 0, 3, 1] {
                requests.ask(worker, batch, Kind::Rows, &locks[worker]);
            }
            let of = |worker: usize| earlier(&requests, worker, batch, Kind::Rows, &locks[worker]);
            assert_eq!([of(0), of(1), of(2), of(3)], [vec![], vec![], vec![0, 1], vec![0]]);
        }
        // An older batch is an empty list.
        requests.ask(3, 5, Kind::Rows, &locks[3]);
        assert_eq!(earlier(&requests, 3, 5, Kind::Rows, &locks[3]), []);
    }

    #[test]
    fn kinds_exclude_each_other() {
        let requests = Requests::<Native>::new(5);
        let partitions = [Lock::of_partition(0)];
        let asked: [(Kind, &[Lock]); 5] = [
            (Kind::Rows, &[row(1, true)]),
            (Kind::Partitions, &partitions),
            (Kind::Rows, &[row(2, true)]),
            (Kind::Everything, &[]),
            (Kind::Partitions, &[Lock::of_partition(1)]),
        ];
        for (worker, (kind, locks)) in asked.into_iter().enumerate() {
            requests.ask(worker, 7, kind, locks);
        }
        let of = |worker: usize| earlier(&requests, worker, 7, asked[worker].0, asked[worker].1);
        assert_eq!([of(0), of(1), of(2), of(3), of(4)], [vec![], vec![0], vec![1], vec![0, 1, 2], vec![0, 2, 3]]);
    }
}
