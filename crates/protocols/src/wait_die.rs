//! Two-phase locking in which the old wait for the young, and the young die.
//!
//! **Idea.** Each transaction has a timestamp, which it keeps when it is tried again. Who meets a conflict waits if it is older than all those
//! that are in its way, and aborts ("dies") if not.
//!
//! **Paper.** D. J. Rosenkrantz, R. E. Stearns, P. M. Lewis: "System level concurrency control for distributed database systems", ACM TODS
//! 1978; measured in X. Yu et al.: "Staring into the abyss", VLDB 2014.
//!
//! **Locks** with queues: [`crate::locking::queue`]. The youngest stands first. A new request that is younger than all that wait goes by them
//! if the holders leave room for it.
//!
//! **Waits** end: each is of an older transaction for a younger one, so there is no cycle. That stays so when locks change hands: the first to
//! be granted one is the youngest of those that wait, and who goes by is younger still. Nobody starves by being too young: who has died has
//! its timestamp still, and is the oldest some day.
//!
//! **Departures from the paper.** A transaction that holds a record shared and asks for it exclusively stands before all others, which
//! wait for its share in any case.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, Info};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::locking::list::Ticket;
use crate::locking::queue::{Policy, Queues};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{KeptStamp, TimestampOptions, Timestamps};

/// The protocol.
pub type WaitDie<M, F = Sound> = TwoPhase<Queues<M, OldWait<M, F>>>;

/// Its policy.
#[derive(Debug)]
pub struct OldWait<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct OldWaitLocal<M: Machine> {
    worker: usize,
    stamp: KeptStamp<M>,
}

impl<M: Machine, F: Faults> Policy<M> for OldWait<M, F> {
    const INFO: Info = info(
        "2pl-waitdie",
        "two-phase locking: the older of two waits, the younger aborts",
        "Rosenkrantz, Stearns, Lewis: System level concurrency control for distributed database systems, TODS 1978",
    );
    type Options = TimestampOptions;
    type Faults = F;
    type Local = OldWaitLocal<M>;

    fn new(options: TimestampOptions) -> Self {
        OldWait { timestamps: Timestamps::new(options, 0), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn local(&self, worker: usize) -> OldWaitLocal<M> {
        OldWaitLocal { worker, stamp: KeptStamp::new(self.timestamps.of_worker(worker)) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut OldWaitLocal<M>) -> Ticket {
        Ticket { worker: local.worker, stamp: local.stamp.begin(), number: 0 }
    }

    #[inline(always)]
    fn goes_before(&self, new: Ticket, old: Ticket) -> bool {
        new.stamp > old.stamp
    }

    fn may_wait(
        &self,
        _: &mut OldWaitLocal<M>,
        own: Ticket,
        _: Cell<M>,
        mut in_the_way: impl Iterator<Item = Ticket>,
    ) -> bool {
        in_the_way.all(|other| own.stamp < other.stamp)
    }

    fn keep_waiting(
        &self,
        _: &mut OldWaitLocal<M>,
        _: Ticket,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(Ticket)),
    ) -> Result<(), AbortReason> {
        Ok(())
    }

    #[inline(always)]
    fn end(&self, local: &mut OldWaitLocal<M>, for_good: bool) {
        local.stamp.end(for_good);
    }
}

#[cfg(test)]
mod tests {
    use contend_engine::{Abort, AbortReason, Engine, EngineConfig, Groups, IndexKind, Protocol, TableSpec, Txn};
    use contend_machine::Native;

    use super::WaitDie;

    #[test]
    fn a_transaction_that_cancels_itself_leaves_its_age_to_nobody() {
        let protocol = WaitDie::<Native>::new(Default::default());
        let engine = Engine::new(protocol, EngineConfig::default());
        let rows = engine.create_table::<u64>(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        assert!(loader.insert(&rows, 1, |row| row[0] = 0).expect("memory"));
        drop(loader);
        let [mut early, mut late] = [(); 2].map(|()| engine.worker().expect("a free slot"));
        assert!(early.run(|_| Err::<(), _>(Abort::new(AbortReason::User))).is_err());
        let mut holder = late.begin();
        assert!(holder.modify_row(&rows, 1, Groups::ALL).expect("nobody else is there").is_some());
        // Were it as old as the one before it, it would wait, and here for ever.
        let younger = early.run(|tx| tx.modify_row(&rows, 1, Groups::ALL).map(|_| ()));
        assert_eq!(younger.expect_err("it dies").reason, AbortReason::WriteLocked);
        holder.commit().expect("it holds its lock");
    }
}
