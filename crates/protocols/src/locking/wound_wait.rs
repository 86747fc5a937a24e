//! Two-phase locking by wound-wait: younger transactions wait for older ones, and older ones wound
//! younger ones.
//!
//! **Idea.** Each transaction has a timestamp, which it retains when it is tried again. A
//! transaction that meets a conflict makes the younger transactions that block it abort ("wounds"
//! them), and waits until they have released their locks. For the older ones it just waits.
//!
//! **Paper.** D. J. Rosenkrantz, R. E. Stearns, P. M. Lewis: "System level concurrency control for
//! distributed database systems", ACM TODS 1978.
//!
//! **Locks** with queues: [`crate::locking::queue`]. The oldest waiter stands first. A new request
//! that is older than all waiters overtakes them, if it is compatible with the holders.
//!
//! **Wounds**: [`crate::locking::wound`]. A transaction checks whether it is wounded before each
//! request, while it waits, and at its commit point. One that has passed its commit point can't be
//! wounded any more, and the others wait for it.
//!
//! **Waits** end. A younger transaction waits for an older one. Besides, a transaction waits for a
//! wounded one, which is about to abort, or for one that has passed its commit point, and waits for
//! nothing. No transaction starves: a wounded one retains its timestamp, and so becomes the oldest.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, ProtocolInfo};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::locking::list::LockOwner;
use crate::locking::queue::{QueueFaults, QueuedLocks, WaitPolicy};
use crate::locking::wound::{TransactionStates, WoundFaults};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{Outcome, RetainedTimestamp, TimestampOptions, Timestamps};

/// The protocol.
pub type WoundWait<M, F = Sound> = TwoPhase<QueuedLocks<M, WoundWaitPolicy<M, F>>>;

/// The wait policy.
#[derive(Debug)]
pub struct WoundWaitPolicy<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    states: TransactionStates<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct WoundWaitWorker<M: Machine> {
    worker: usize,
    transaction: u64,
    timestamp: RetainedTimestamp<M>,
}

impl<M: Machine, F: QueueFaults + WoundFaults> WaitPolicy<M> for WoundWaitPolicy<M, F> {
    const INFO: ProtocolInfo = info(
        "2pl-woundwait",
        "two-phase locking: the younger of two waits, or is made to abort by the older",
        "Rosenkrantz, Stearns, Lewis: System level concurrency control for distributed database systems, TODS 1978",
    );
    type Options = TimestampOptions;
    type Faults = F;
    type WorkerState = WoundWaitWorker<M>;

    fn new(options: TimestampOptions) -> Self {
        WoundWaitPolicy {
            timestamps: Timestamps::new(options, 0),
            states: TransactionStates::new(0),
            faults: PhantomData,
        }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
        self.states = TransactionStates::new(workers);
    }

    fn new_worker_state(&self, worker: usize) -> WoundWaitWorker<M> {
        WoundWaitWorker {
            worker,
            transaction: self.states.last_number(worker),
            timestamp: RetainedTimestamp::new(self.timestamps.of_worker(worker)),
        }
    }

    #[inline(always)]
    fn begin(&self, local: &mut WoundWaitWorker<M>) -> LockOwner {
        local.transaction += 1;
        self.states.begin(local.worker, local.transaction);
        LockOwner { worker: local.worker, timestamp: local.timestamp.begin(), transaction: local.transaction }
    }

    #[inline(always)]
    fn goes_before(&self, new: LockOwner, waiter: LockOwner) -> bool {
        new.timestamp < waiter.timestamp
    }

    fn may_wait(
        &self,
        _: &mut WoundWaitWorker<M>,
        own: LockOwner,
        _: Cell<M>,
        blockers: impl Iterator<Item = LockOwner>,
    ) -> bool {
        blockers.filter(|other| own.timestamp < other.timestamp).for_each(|other| self.states.wound(other));
        true
    }

    fn keep_waiting(
        &self,
        local: &mut WoundWaitWorker<M>,
        own: LockOwner,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(LockOwner)),
    ) -> Result<(), AbortReason> {
        self.check(local, own)
    }

    #[inline(always)]
    fn check(&self, _: &WoundWaitWorker<M>, own: LockOwner) -> Result<(), AbortReason> {
        self.states.check::<F>(own)
    }

    fn commit_point(&self, _: &WoundWaitWorker<M>, own: LockOwner) -> Result<(), AbortReason> {
        self.states.commit_point::<F>(own)
    }

    #[inline(always)]
    fn end(&self, local: &mut WoundWaitWorker<M>, outcome: Outcome) {
        local.timestamp.end(outcome);
    }
}
