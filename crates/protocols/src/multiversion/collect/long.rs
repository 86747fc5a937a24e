//! The long transactions: those that have run for more than an interval.
//!
//! One scan at a time publishes their list ([`LongTransactions::publish`]), and each worker copies
//! it when it sweeps ([`KnownLong::update`]). The list is a seqlock: its `edition` is odd while the
//! list is written, and grows by 2 with each list.
//!
//! - A worker that reads an even edition with Acquire finds the values of that list or a later one,
//!   since the scan stored them before it released the edition.
//! - If one of the values is of a later list, the worker's Acquire fence synchronises with the
//!   scan's Release fence, which follows the odd edition. So the worker's second load finds another
//!   edition, and the worker keeps what it knew.
//! - A scan that finds an odd edition, or loses the exchange, publishes nothing: another scan does.
//!
//! A scan waits for nobody, and neither does a worker that finds an odd edition. If a scan loses
//! its core in the middle, the workers go on with the list that they know.
//!
//! Each worker reads the list once in an interval, and a scan writes it once. So lines that move
//! cost little, and the words are not padded.
//!
//! A list that is out of date costs a transaction an abort, and never a wrong read ([`super`]).

use contend_machine::{Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use super::NO_TIMESTAMP;
use super::watermarks::WorkerSlot;

/// The number of misses in a row after which a worker's transaction may be protected.
const PATIENCE: u64 = 3;

/// The published list of long transactions. A scan writes it, once in an interval. It is a seqlock,
/// with `edition` as its version. Only the scan that has made the edition odd stores the other
/// words.
#[derive(Debug)]
pub(super) struct LongTransactions<M: Machine> {
    /// Odd while the rest is being written.
    edition: M::U64,
    /// The begin watermark before the last.
    previous_begin: M::U64,
    /// No transaction outside of the list is older.
    short_watermark: M::U64,
    /// The number of the protected worker, counted from 1; 0 if there is none.
    protected_worker: M::U64,
    /// The timestamp of its transaction, if it is a long one; or [`NO_TIMESTAMP`].
    protected_ts: M::U64,
    count: M::U64,
    /// The first `count` are valid.
    timestamps: Box<[M::U64]>,
}

impl<M: Machine> LongTransactions<M> {
    pub(super) fn new(workers: usize) -> Self {
        let word = |value| M::U64::new(value);
        LongTransactions {
            edition: word(0),
            previous_begin: word(0),
            short_watermark: word(0),
            protected_worker: word(0),
            protected_ts: word(NO_TIMESTAMP),
            count: word(0),
            timestamps: (0..workers).map(|_| word(0)).collect(),
        }
    }

    /// Distinguishes the transactions that began before the begin watermark before the last, and
    /// publishes them. Does nothing if another worker is publishing. `begin` is the begin watermark
    /// that the scan has loaded.
    pub(super) fn publish(&self, slots: &[CachePadded<WorkerSlot<M>>], begin: u64, snapshots: bool) {
        // Relaxed, all but the edition: the values are guesses, and the edition tells a reader
        // whether they belong together.
        let edition = self.edition.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the last publication, so that its values are read
        // here. The exchange succeeds for one scan only: the edition never returns to a number.
        if edition % 2 == 1
            || self.edition.compare_exchange(edition, edition + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Release: the odd edition comes before the values; pairs with the Acquire fence of
        // `KnownLong::update`. Without it a worker could read a value of this list, and find the
        // edition of the last list before and after.
        M::fence(Ordering::Release);
        // Relaxed, these and those of the slots: guesses, as said above.
        let previous_begin = self.previous_begin.load(Ordering::Relaxed);
        let protected = self.protected_worker.load(Ordering::Relaxed);
        let (mut short_watermark, mut count, mut protected_ts, mut most) = (begin, 0, NO_TIMESTAMP, (PATIENCE - 1, 0));
        let mut is_protected_still = false;
        for (slot, number) in slots.iter().zip(1..) {
            // Relaxed: a guess.
            let misses = slot.misses.load(Ordering::Relaxed);
            is_protected_still |= number == protected && misses > 0;
            if misses > most.0 {
                most = (misses, number);
            }
            // Relaxed, here and below: guesses.
            let began = slot.begin_watermark.load(Ordering::Relaxed);
            if began >= previous_begin {
                let snapshot_ts = if snapshots { slot.snapshot_ts.load(Ordering::Relaxed) } else { began };
                short_watermark = short_watermark.min(began).min(snapshot_ts);
                continue;
            }
            // Relaxed, both: as above; the edition publishes the timestamp. A worker that has begun
            // its next transaction since has a younger one there; then a version too many is
            // retained.
            let ts = slot.ts.load(Ordering::Relaxed);
            self.timestamps[count].store(ts, Ordering::Relaxed);
            count += 1;
            if number == protected {
                protected_ts = ts;
            }
        }
        if !is_protected_still {
            // Relaxed: as below.
            self.protected_worker.store(most.1, Ordering::Relaxed);
            protected_ts = NO_TIMESTAMP;
        }
        // Relaxed, all: the edition publishes them.
        self.protected_ts.store(protected_ts, Ordering::Relaxed);
        self.count.store(count as u64, Ordering::Relaxed);
        self.short_watermark.store(short_watermark, Ordering::Relaxed);
        self.previous_begin.store(begin, Ordering::Relaxed);
        // Release: the values come before; pairs with the Acquire of `KnownLong::update`.
        self.edition.store(edition + 2, Ordering::Release);
    }
}

/// A worker's knowledge of the long transactions.
#[derive(Debug)]
pub(super) struct KnownLong {
    /// The edition that it has read last.
    edition: u64,
    pub(super) short_watermark: u64,
    /// The short watermark of the edition before, or the reclaim watermark if that is later. By now
    /// every worker has retained the needed versions among those that were replaced by then.
    pub(super) settled_watermark: u64,
    /// The timestamps of the long transactions, in order.
    timestamps: Vec<u64>,
    /// Those that the edition before did not have.
    pub(super) newly_long: Vec<u64>,
    protected_ts: u64,
    /// The largest number of versions of a record that are retained for the transactions that are
    /// not protected.
    max: usize,
}

/// Returns whether one of these timestamps, which are in order, is at or after `begin` and before
/// `end`.
#[inline(always)]
pub(super) fn lies_between(timestamps: &[u64], begin: u64, end: u64) -> bool {
    let first = timestamps.partition_point(|ts| *ts < begin);
    timestamps.get(first).is_some_and(|ts| *ts < end)
}

impl KnownLong {
    pub(super) fn new(max: usize) -> Self {
        KnownLong {
            edition: 0,
            short_watermark: 0,
            settled_watermark: 0,
            timestamps: Vec::new(),
            newly_long: Vec::new(),
            protected_ts: NO_TIMESTAMP,
            max,
        }
    }

    /// Reads the published list. Returns `false`, and knows nothing new, if it is being written.
    pub(super) fn update<M: Machine>(&mut self, long: &LongTransactions<M>, reclaim_watermark: u64) -> bool {
        // Acquire: pairs with the Release at the end of `publish`; the values are at least as new
        // as the edition.
        let edition = long.edition.load(Ordering::Acquire);
        // Relaxed, these: the second load of the edition tells whether they belong together.
        let short_watermark = long.short_watermark.load(Ordering::Relaxed);
        let protected_ts = long.protected_ts.load(Ordering::Relaxed);
        let count = (long.count.load(Ordering::Relaxed) as usize).min(long.timestamps.len());
        self.newly_long.clear();
        // Relaxed: as above.
        self.newly_long.extend(long.timestamps[..count].iter().map(|ts| ts.load(Ordering::Relaxed)));
        // Acquire: the values come before the second load; pairs with the Release fence of
        // `publish`. An Acquire on the second load would not do: it orders what follows, and the
        // values could still be loaded after it.
        M::fence(Ordering::Acquire);
        if edition % 2 == 1 || long.edition.load(Ordering::Relaxed) != edition {
            return false;
        }
        if edition != std::mem::replace(&mut self.edition, edition) {
            (self.settled_watermark, self.short_watermark, self.protected_ts) =
                (self.short_watermark, short_watermark, protected_ts);
            std::mem::swap(&mut self.timestamps, &mut self.newly_long);
            self.timestamps.sort_unstable();
            // From here on these are the timestamps of the edition before.
            self.newly_long.sort_unstable();
            let (timestamps, former) = (&self.timestamps, std::mem::take(&mut self.newly_long));
            self.newly_long.extend(timestamps.iter().filter(|ts| former.binary_search(ts).is_err()));
        } else {
            self.newly_long.clear();
        }
        self.settled_watermark = self.settled_watermark.max(reclaim_watermark);
        self.short_watermark = self.short_watermark.max(reclaim_watermark);
        true
    }

    /// Returns whether there are long transactions.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        !self.timestamps.is_empty()
    }

    /// Returns whether a long transaction sees the version that was the newest from `begin` to
    /// `end`.
    #[inline(always)]
    fn needs(&self, begin: u64, end: u64) -> bool {
        lies_between(&self.timestamps, begin, end)
    }

    fn protects(&self, begin: u64, end: u64) -> bool {
        (begin..end).contains(&self.protected_ts)
    }

    /// Returns whether the version that was the newest from `begin` to `end` is retained, if it is
    /// the only one of its cell.
    #[inline(always)]
    pub(super) fn retains(&self, begin: u64, end: u64) -> bool {
        self.max > 0 && self.needs(begin, end) || self.protects(begin, end)
    }

    /// Returns whether a long transaction may need a version of a cell that is older than `begin`.
    /// As a rule there is none, and the lines of older versions are far away.
    #[inline(always)]
    pub(super) fn may_need_older_than(&self, begin: u64) -> bool {
        self.timestamps.first().is_some_and(|oldest| *oldest < begin)
    }

    /// Returns a function that says which versions of one cell are retained. It is called with the
    /// begin and the end of each, from younger to older.
    pub(super) fn retention(&self) -> impl FnMut(u64, u64) -> bool {
        let mut retained = 0;
        move |begin, end| {
            if self.protects(begin, end) {
                return true;
            }
            let keep = end > self.short_watermark || retained < self.max && self.needs(begin, end);
            retained += usize::from(keep);
            keep
        }
    }
}
