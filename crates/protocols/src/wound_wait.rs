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
//! **Wounds**: [`crate::locking::wound`]. A transaction looks whether it is wounded before each lock, while it waits, and when it commits: who
//! has passed its commit point can't be wounded any more, and is waited for.
//!
//! **Waits** end: each is of a younger transaction for an older one, or for one that is wounded and about to end, or for one that has
//! passed its commit point and waits for nothing. Nobody starves: who was wounded keeps its timestamp, and is the oldest some day.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, Info};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::locking::list::Ticket;
use crate::locking::queue::{Policy, Queues};
use crate::locking::wound::Wounds;
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{KeptStamp, TimestampOptions, Timestamps};

/// The protocol.
pub type WoundWait<M, F = Sound> = TwoPhase<Queues<M, OldWound<M, F>>>;

/// Its policy.
#[derive(Debug)]
pub struct OldWound<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    wounds: Wounds<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct OldWoundLocal<M: Machine> {
    worker: usize,
    number: u64,
    stamp: KeptStamp<M>,
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
        OldWound { timestamps: Timestamps::new(options, 0), wounds: Wounds::new(0), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
        self.wounds = Wounds::new(workers);
    }

    fn local(&self, worker: usize) -> OldWoundLocal<M> {
        OldWoundLocal {
            worker,
            number: self.wounds.last_number(worker),
            stamp: KeptStamp::new(self.timestamps.of_worker(worker)),
        }
    }

    #[inline(always)]
    fn begin(&self, local: &mut OldWoundLocal<M>) -> Ticket {
        local.number += 1;
        self.wounds.begin(local.worker, local.number);
        Ticket { worker: local.worker, stamp: local.stamp.begin(), number: local.number }
    }

    #[inline(always)]
    fn goes_before(&self, new: Ticket, old: Ticket) -> bool {
        new.stamp < old.stamp
    }

    fn may_wait(
        &self,
        _: &mut OldWoundLocal<M>,
        own: Ticket,
        _: Cell<M>,
        in_the_way: impl Iterator<Item = Ticket>,
    ) -> bool {
        in_the_way.filter(|other| own.stamp < other.stamp).for_each(|other| self.wounds.wound(other));
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
        self.wounds.check::<F>(own)
    }

    fn commit_point(&self, _: &OldWoundLocal<M>, own: Ticket) -> Result<(), AbortReason> {
        self.wounds.commit_point::<F>(own)
    }

    #[inline(always)]
    fn end(&self, local: &mut OldWoundLocal<M>, for_good: bool) {
        local.stamp.end(for_good);
    }
}
