//! How far each worker's transaction has come: all that another transaction asks about it, in one
//! word.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..19 | the transaction's number among those of its worker |
//! | 18..5 | the rank of the last step that has taken effect; 0 if none has |
//! | 4 | doomed: a transaction that it depends on has aborted |
//! | 3 | validates: it is validating leaves that it has scanned, and waits for nothing |
//! | 2 | commits: it has passed its commit point |
//! | 1 | decided: its commit is in the log's order, so its successors may commit |
//! | 0 | ended: it has committed or aborted, and is in no list any more |
//!
//! One load answers for one transaction: the number says whether the answer is about the asked one.
//! Other workers change the word only to doom the transaction. So while it runs, its owner changes
//! the word by exchanges, and of a doom and the commit point exactly one succeeds. Its beginning
//! and its end are stores: a doom counts in neither.

use std::sync::atomic::AtomicUsize;

use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

const ENDED: u64 = 1;
const DECIDED: u64 = 1 << 1;
const COMMITS: u64 = 1 << 2;
const VALIDATES: u64 = 1 << 3;
const DOOMED: u64 = 1 << 4;
const RANK_SHIFT: u32 = 5;
/// The largest rank.
pub(crate) const RANK_MAX: u64 = (1 << 14) - 1;
const NUMBER_SHIFT: u32 = 19;

/// A running transaction, as others name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    /// The number of its worker.
    pub(crate) worker: usize,
    /// Its number among the transactions of its worker.
    pub(crate) number: u64,
    /// Its type, or [`Running::NO_KIND`].
    pub(crate) kind: u32,
}

impl Running {
    /// The transaction has no declared type.
    pub(crate) const NO_KIND: u32 = u32::MAX;
}

/// A worker's words, on a line of their own.
#[derive(Debug)]
struct Line<M: Machine> {
    progress: M::U64,
    /// The tables whose gaps the transaction has observed: bit `n` stands for all tables with
    /// number `n` modulo 64.
    scans: M::U64,
    /// The workers whose transactions have passed a tombstone of this transaction: bit `n` stands
    /// for all workers with number `n` modulo 64.
    passers: M::U64,
}

/// The progress of all workers' transactions.
#[derive(Debug)]
pub(crate) struct Progress<M: Machine> {
    lines: Box<[CachePadded<Line<M>>]>,
    /// One more than the largest number of a worker so far. A word of the host: it changes when a
    /// worker is made.
    workers: AtomicUsize,
}

impl<M: Machine> Progress<M> {
    /// Returns the progress of workers with numbers below `workers`, none of which runs a
    /// transaction.
    pub(crate) fn new(workers: usize) -> Self {
        let line =
            |_| CachePadded::new(Line { progress: M::U64::new(ENDED), scans: M::U64::new(0), passers: M::U64::new(0) });
        Progress { lines: (0..workers).map(line).collect(), workers: AtomicUsize::new(0) }
    }

    /// Returns a number that no worker so far has reached.
    pub(crate) fn workers(&self) -> usize {
        // SeqCst: comes behind the fence of an insert's step (`gaps`). A reader whose worker is not
        // counted yet passes its own fence later, and finds the leaf changed.
        self.workers.load(Ordering::SeqCst)
    }

    fn word(&self, worker: usize) -> &M::U64 {
        &self.lines[worker].progress
    }

    /// Counts a worker, and returns the number of its last transaction. A worker that takes the
    /// place of another continues its numbers.
    pub(crate) fn register(&self, worker: usize) -> u64 {
        // SeqCst: pairs with the load in `workers`.
        self.workers.fetch_max(worker + 1, Ordering::SeqCst);
        // Relaxed: the worker that stored the word has ended.
        self.word(worker).load(Ordering::Relaxed) >> NUMBER_SHIFT
    }

    /// Begins a transaction.
    #[inline(always)]
    pub(crate) fn begin(&self, own: Running) {
        let passers = &self.lines[own.worker].passers;
        // Relaxed, both: a bit that comes too late, or is lost, is of a transaction that has passed
        // a tombstone of an earlier transaction, which has ended.
        if passers.load(Ordering::Relaxed) != 0 {
            passers.store(0, Ordering::Relaxed);
        }
        // Release: the end of the worker's last transaction comes before; pairs with the Acquire of
        // `rank_of` and `has_decided`, which take a larger number for the end.
        self.word(own.worker).store(own.number << NUMBER_SHIFT, Ordering::Release);
    }

    /// Whether the caller's transaction has to abort, because one that it depends on has aborted.
    #[inline(always)]
    pub(crate) fn is_doomed(&self, own: Running) -> bool {
        // Relaxed: a doom that this load misses fails the exchange at the commit point.
        self.word(own.worker).load(Ordering::Relaxed) & DOOMED != 0
    }

    /// Dooms a transaction, unless it has passed its commit point or ended.
    pub(crate) fn doom(&self, other: Running) {
        let word = self.word(other.worker);
        // Relaxed: the exchange judges the word that the load has seen.
        let mut now = word.load(Ordering::Relaxed);
        while now >> NUMBER_SHIFT == other.number && now & (COMMITS | ENDED | DOOMED) == 0 {
            // Relaxed, both: the order of the word itself decides between a doom and the commit
            // point. What the doomed transaction has to see passes by the cells that it undoes.
            match word.compare_exchange(now, now | DOOMED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return M::step("doom"),
                Err(changed) => now = changed,
            }
        }
    }

    /// Notes that the caller passes a tombstone of the transaction that a worker runs.
    /// Returns that transaction, or `None` if it has ended or is sure to commit.
    pub(crate) fn note_passer(&self, worker: usize, own: Running) -> Option<Running> {
        // Acquire: pairs with the Release of `announce`, `decide` and `end`.
        let now = self.word(worker).load(Ordering::Acquire);
        if now & (ENDED | DECIDED) != 0 {
            return None;
        }
        let (passers, bit) = (&self.lines[worker].passers, 1 << (own.worker % u64::BITS as usize));
        // Relaxed, both: the fence of the caller's validation orders them (`ic3::passed`).
        if passers.load(Ordering::Relaxed) & bit == 0 {
            passers.fetch_or(bit, Ordering::Relaxed);
        }
        Some(Running { worker, number: now >> NUMBER_SHIFT, kind: Running::NO_KIND })
    }

    /// Dooms the transactions of all workers that have passed a tombstone of the caller's
    /// transaction. The caller has put back what it had shown, and a fence comes behind that.
    pub(crate) fn doom_passers(&self, own: Running) {
        // Relaxed: the fence orders it.
        let mut bits = self.lines[own.worker].passers.load(Ordering::Relaxed);
        while bits != 0 {
            let first = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            for worker in (first..self.workers()).step_by(u64::BITS as usize).filter(|worker| *worker != own.worker) {
                // Relaxed: `doom` judges the number again. A worker may run another transaction by
                // now, which is doomed for nothing.
                let number = self.word(worker).load(Ordering::Relaxed) >> NUMBER_SHIFT;
                self.doom(Running { worker, number, kind: Running::NO_KIND });
            }
        }
    }

    /// Says that the caller's transaction validates leaves from here on.
    pub(crate) fn validates(&self, own: Running) {
        // Relaxed: the fence that follows orders it (`Ic3::validate`).
        self.word(own.worker).fetch_or(VALIDATES, Ordering::Relaxed);
    }

    /// Says that the caller's validation has failed.
    pub(crate) fn has_not_validated(&self, own: Running) {
        // Relaxed: a transaction that waits for the end of the validation takes nothing from it.
        self.word(own.worker).fetch_and(!VALIDATES, Ordering::Relaxed);
    }

    /// Announces that the step of this rank takes effect: the caller has locked all its cells, and
    /// validated them. Returns `false`, and announces nothing, if the transaction is doomed.
    pub(crate) fn announce(&self, own: Running, rank: u64) -> bool {
        let word = self.word(own.worker);
        // Relaxed: only a doom can come between, and the exchange finds it.
        let mut now = word.load(Ordering::Relaxed);
        while now & DOOMED == 0 {
            let next = own.number << NUMBER_SHIFT | rank << RANK_SHIFT;
            // Release: pairs with the Acquire of `rank_of`: a transaction that finds the rank also
            // finds the cells locked, or as this step has left them. Relaxed: a failed exchange
            // only shows the doom.
            match word.compare_exchange(now, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        self.has_not_validated(own);
        false
    }

    /// Passes the commit point of the caller's transaction. Returns `false` if it is doomed.
    pub(crate) fn commit_point(&self, own: Running) -> bool {
        let word = self.word(own.worker);
        // Relaxed, all: as in `doom`.
        let now = word.load(Ordering::Relaxed);
        now & DOOMED == 0 && word.compare_exchange(now, now | COMMITS, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Says that the commit of the caller's transaction has its place in the log, and that its sums
    /// and appends are there. From here on its successors may commit.
    pub(crate) fn decide(&self, own: Running) {
        // Release: pairs with the Acquire of `rank_of` and `has_decided`: a successor's place in
        // the log comes behind.
        self.word(own.worker).fetch_or(DECIDED, Ordering::Release);
    }

    /// Ends the caller's transaction, which is in no list any more. If it aborts, it has doomed its
    /// successors before.
    pub(crate) fn end(&self, own: Running) {
        // Release: the dooms come before; pairs with the Acquire of `has_decided`. So a successor
        // that sees the end also sees its own doom, and fails at its commit point. The store may
        // overwrite a doom, which comes too late.
        self.word(own.worker).store(own.number << NUMBER_SHIFT | ENDED, Ordering::Release);
    }

    /// Whether a transaction has ended, or is sure to commit.
    #[inline(always)]
    pub(crate) fn has_decided(&self, other: Running) -> bool {
        self.rank_of(other).is_none()
    }

    /// Whether a transaction is in no list any more.
    pub(crate) fn has_left(&self, other: Running) -> bool {
        // Acquire: pairs with the Release of `end` and `begin`.
        let now = self.word(other.worker).load(Ordering::Acquire);
        now >> NUMBER_SHIFT != other.number || now & ENDED != 0
    }

    /// Returns how far a transaction has come: the rank of its last step that has taken effect, or
    /// `None` if it has ended or is sure to commit.
    #[inline(always)]
    pub(crate) fn rank_of(&self, other: Running) -> Option<u64> {
        // Acquire: pairs with the Release of `announce`, `decide`, `end` and `begin`.
        let now = self.word(other.worker).load(Ordering::Acquire);
        let runs = now >> NUMBER_SHIFT == other.number && now & (ENDED | DECIDED) == 0;
        runs.then_some(now >> RANK_SHIFT & RANK_MAX)
    }

    /// Notes that the caller's transaction observes gaps of the tables in `scans`.
    pub(crate) fn note_scans(&self, own: Running, scans: u64) {
        // Relaxed: the fence of the validation orders it, as it orders the bit of the leaf.
        self.lines[own.worker].scans.store(scans, Ordering::Relaxed);
    }

    /// Returns the transaction of a worker, if it may have observed gaps of a table in a step of
    /// this rank that has taken effect, or, with `validating`, that is being validated.
    pub(crate) fn gap_reader(&self, worker: usize, table: u32, rank: u64, validating: bool) -> Option<Running> {
        // SeqCst: comes behind the caller's fence, in one order with the fence of the reader's
        // validation.
        let now = self.word(worker).load(Ordering::SeqCst);
        // Relaxed: the reader stored it before its fence.
        let scans = self.lines[worker].scans.load(Ordering::Relaxed);
        let reads = now & VALIDATES != 0 && validating || now >> RANK_SHIFT & RANK_MAX >= rank;
        let runs = now & (ENDED | DECIDED) == 0 && scans & scan_bit(table) != 0;
        (runs && reads).then_some(Running { worker, number: now >> NUMBER_SHIFT, kind: Running::NO_KIND })
    }

    /// Waits while a transaction validates, and returns how far it has come then: as
    /// [`Progress::rank_of`].
    pub(crate) fn outcome(&self, other: Running) -> Option<u64> {
        let mut spin = Spin::<M>::new();
        loop {
            // Acquire: pairs with the Release of `announce`, `decide`, `end` and `begin`.
            let now = self.word(other.worker).load(Ordering::Acquire);
            if now >> NUMBER_SHIFT != other.number || now & VALIDATES == 0 {
                return self.rank_of(other);
            }
            // A validation waits for nothing, so this ends.
            spin.wait();
        }
    }
}

/// Returns the bit of a table in the word of scans.
pub(crate) fn scan_bit(table: u32) -> u64 {
    1 << (table % u64::BITS)
}
