//! Two-phase locking in which the young wait for the old, and the old wound the young.
//!
//! **Idea.** Each transaction has a timestamp, which it keeps when it is tried again. Who meets a conflict with younger ones tells them to
//! abort ("wounds" them), and waits until they have; for older ones it just waits.
//!
//! **Paper.** D. J. Rosenkrantz, R. E. Stearns, P. M. Lewis: "System level concurrency control for distributed database systems", ACM TODS
//! 1978.
//!
//! **Locks** with queues: [`crate::locking::queue`]. The oldest stands first. A new request that is older than all that wait goes by them if
//! the holders leave room for it.
//!
//! **Wounds.** A worker has one word: the number of its transaction, and whether that runs, is wounded, or commits. Wounding and passing the
//! commit point are exchanges of that word, so that one of both fails: who commits can't be wounded any more, and is waited for. A
//! transaction looks at its word before each lock, while it waits, and when it commits.
//!
//! **Waits** end: each is of a younger transaction for an older one, or for one that is wounded and about to end, or for one that has
//! passed its commit point and waits for nothing. Nobody starves: who was wounded keeps its timestamp, and is the oldest some day.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{AbortReason, Info};
use contend_machine::{Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use crate::fault::{Faults, Sound};
use crate::locking::queue::{Policy, Queues, Ticket};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{KeptStamp, TimestampOptions, Timestamps};

/// The protocol.
pub type WoundWait<M, F = Sound> = TwoPhase<Queues<M, OldWound<M, F>>>;

/// In a worker's word, below the transaction's number.
const RUNS: u64 = 0;
const WOUNDED: u64 = 1;
const COMMITS: u64 = 2;
const NUMBER_SHIFT: u32 = 2;

/// Its policy.
#[derive(Debug)]
pub struct OldWound<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    /// By worker.
    states: Box<[CachePadded<M::U64>]>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct OldWoundLocal<M: Machine> {
    worker: usize,
    number: u64,
    stamp: KeptStamp<M>,
}

impl<M: Machine, F: Faults> OldWound<M, F> {
    fn wound(&self, other: Ticket) {
        let runs = other.number << NUMBER_SHIFT | RUNS;
        // Relaxed: only the word itself counts; what the wounded held passes on by its locks.
        let exchanged =
            self.states[other.worker].compare_exchange(runs, runs | WOUNDED, Ordering::Relaxed, Ordering::Relaxed);
        if exchanged.is_ok() {
            M::step("wound");
        }
    }
}

impl<M: Machine, F: Faults> Policy<M> for OldWound<M, F> {
    const INFO: Info = info(
        "2pl-woundwait",
        "two-phase locking: the younger of two waits, or is made to abort by the older",
        "Rosenkrantz, Stearns, Lewis: System level concurrency control for distributed database systems, TODS 1978",
    );
    type Options = TimestampOptions;
    type Faults = F;
    type Local = OldWoundLocal<M>;

    fn new(options: TimestampOptions) -> Self {
        OldWound { timestamps: Timestamps::new(options, 0), states: Box::new([]), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
        self.states = (0..workers).map(|_| CachePadded::new(M::U64::new(0))).collect();
    }

    fn local(&self, worker: usize) -> OldWoundLocal<M> {
        // On from where a worker of this number has stopped: a number is of one transaction only. Relaxed: it has ended.
        let number = self.states[worker].load(Ordering::Relaxed) >> NUMBER_SHIFT;
        OldWoundLocal { worker, number, stamp: KeptStamp::new(self.timestamps.of_worker(worker)) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut OldWoundLocal<M>) -> Ticket {
        local.number += 1;
        // Relaxed: nobody knows of the transaction before it is in a list, under a latch.
        self.states[local.worker].store(local.number << NUMBER_SHIFT | RUNS, Ordering::Relaxed);
        Ticket { worker: local.worker, stamp: local.stamp.begin(), number: local.number }
    }

    #[inline(always)]
    fn goes_before(&self, new: Ticket, old: Ticket) -> bool {
        new.stamp < old.stamp
    }

    fn may_wait(&self, _: &mut OldWoundLocal<M>, own: Ticket, in_the_way: impl Iterator<Item = Ticket>) -> bool {
        in_the_way.filter(|other| own.stamp < other.stamp).for_each(|other| self.wound(other));
        true
    }

    fn keep_waiting(
        &self,
        local: &mut OldWoundLocal<M>,
        own: Ticket,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(Ticket)),
    ) -> Result<(), AbortReason> {
        self.check(local, own)
    }

    #[inline(always)]
    fn check(&self, _: &OldWoundLocal<M>, own: Ticket) -> Result<(), AbortReason> {
        // Relaxed: as in `wound`.
        let wounded = self.states[own.worker].load(Ordering::Relaxed) & WOUNDED != 0;
        if wounded && !F::IGNORE_WOUNDS { Err(AbortReason::Wounded) } else { Ok(()) }
    }

    fn commit_point(&self, _: &OldWoundLocal<M>, own: Ticket) -> Result<(), AbortReason> {
        let runs = own.number << NUMBER_SHIFT | RUNS;
        // Relaxed: as in `wound`.
        let state = &self.states[own.worker];
        match state.compare_exchange(runs, runs | COMMITS, Ordering::Relaxed, Ordering::Relaxed) {
            Err(_) if !F::IGNORE_WOUNDS => Err(AbortReason::Wounded),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn end(&self, local: &mut OldWoundLocal<M>, committed: bool) {
        local.stamp.end(committed);
    }
}
