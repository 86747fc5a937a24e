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

use contend_engine::{AbortReason, Cell, Info, options};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::locking::list::Ticket;
use crate::locking::queue::{Policy, Queues};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{KeptStamp, TimestampOptions, Timestamps};

options! {
    /// Options of wait-die.
    pub struct WaitDieOptions {
        /// Let a request that is younger than all that wait go by them, if the holders leave room for it, as in DBx1000. Off: it dies.
        "waitdie.overtake" overtake: bool = true, in ();
    }
}

/// The protocol.
pub type WaitDie<M, F = Sound> = TwoPhase<Queues<M, OldWait<M, F>>>;

/// Its policy.
#[derive(Debug)]
pub struct OldWait<M: Machine, F> {
    options: WaitDieOptions,
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
    type Options = (WaitDieOptions, TimestampOptions);
    type Faults = F;
    type Local = OldWaitLocal<M>;

    fn new((options, timestamps): Self::Options) -> Self {
        OldWait { options, timestamps: Timestamps::new(timestamps, 0), faults: PhantomData }
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

    #[inline(always)]
    fn may_overtake(&self) -> bool {
        self.options.overtake
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use contend_engine::{
        Abort, AbortReason, Engine, EngineConfig, Groups, IndexKind, Projection, Protocol, TableSpec, Txn,
    };
    use contend_machine::Native;

    use super::{WaitDie, WaitDieOptions};

    /// Reads of a record that another reads, by one that is younger than a third that waits to write it; whether one of them died.
    fn a_young_reader_dies(overtake: bool, reads: usize) -> bool {
        let protocol = WaitDie::<Native>::new((WaitDieOptions { overtake }, Default::default()));
        let engine = Engine::new(protocol, EngineConfig::default());
        let rows = engine.create_table::<u64>(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        assert!(loader.insert(&rows, 1, |row| row[0] = 0).expect("memory"));
        drop(loader);
        let [mut reader, mut writer, mut young] = [(); 3].map(|()| engine.worker().expect("a free slot"));
        let (begun, held) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                writer.run(|tx| {
                    begun.store(true, Ordering::Release);
                    while !held.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    tx.modify_row(&rows, 1, Groups::ALL).map(|row| assert!(row.is_some()))
                })
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let mut first = reader.begin();
            assert!(first.read_row(&rows, 1, Projection::WHOLE).expect("nobody else is there").is_some());
            held.store(true, Ordering::Release);
            let died = (0..reads).any(|_| {
                std::thread::yield_now();
                let read = young.run(|tx| tx.read_row(&rows, 1, Projection::WHOLE).map(|_| ()));
                read.is_err_and(|abort| abort.reason == AbortReason::ReadLocked)
            });
            first.commit().expect("it holds its lock");
            written.join().expect("no panic").expect("the oldest does not die");
            died
        })
    }

    #[test]
    fn who_is_younger_goes_by_an_older_one_that_waits_only_if_it_may() {
        assert!(!a_young_reader_dies(true, 1_000));
        // At once when the older one waits.
        assert!(a_young_reader_dies(false, 10_000_000));
    }

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
