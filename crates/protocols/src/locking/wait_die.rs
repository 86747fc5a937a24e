//! Two-phase locking by wait-die: older transactions wait for younger ones, and younger ones die.
//!
//! **Idea.** Each transaction has a timestamp, which it retains when it is tried again. A
//! transaction that meets a conflict waits if it is older than all transactions that block it. Else
//! it aborts ("dies").
//!
//! **Paper.** D. J. Rosenkrantz, R. E. Stearns, P. M. Lewis: "System level concurrency control for
//! distributed database systems", ACM TODS 1978; measured in X. Yu et al.: "Staring into the
//! abyss", VLDB 2014.
//!
//! **Locks** with queues: [`crate::locking::queue`]. The youngest waiter stands first. A new
//! request that is younger than all waiters overtakes them, if it is compatible with the holders
//! and its transaction is tried for the first time.
//!
//! **Waits** end. Each is of an older transaction for a younger one, so there is no cycle. That
//! stays so when a lock changes hands: the first waiter to be granted it is the youngest, and a
//! request that overtakes the waiters is younger still. No transaction starves by being too young:
//! one that has died retains its timestamp, and so becomes the oldest.
//!
//! **A transaction that is tried again overtakes nobody.** An older writer waits as long as younger
//! readers overtake it, one after the other. If these fail each other's validation of gaps, it can
//! wait for ever: two that scan a leaf and insert into it share its row again and again. DBx1000
//! lets them. Here each overtakes once, and then dies until the writer has had its turn. A stream
//! of readers that commit can still delay a writer; `waitdie.overtake=off` prevents that too.
//!
//! **No cycle, in detail.** A request is asked about its blockers once, when it enters the queue
//! (`may_wait`): the holders that conflict with it, and all waiters before it. It waits only if it
//! is older than each. Later changes keep this true for all that stay in the queue:
//!
//! - The first waiter becomes a holder. All behind it are older than it.
//! - A request overtakes. It does so only past waiters that are older than itself (`goes_before`).
//! - A holder of a shared lock asks for the exclusive one. A shared request that did not conflict
//!   with it so far stands behind an exclusive one, which is older than this holder, and the shared
//!   request is older still.
//!
//! **Departures from the paper.** Overtaking is DBx1000's; its limit to the first try is ours. A
//! transaction that upgrades a shared lock stands before all other waiters, which wait for its
//! shared lock in any case.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, ProtocolInfo, options};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::locking::list::LockOwner;
use crate::locking::queue::{QueueFaults, QueuedLocks, WaitPolicy};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::{Outcome, RetainedTimestamp, TimestampOptions, Timestamps};

options! {
    /// Options of wait-die.
    pub struct WaitDieOptions {
        /// Let a request that is younger than all waiters overtake them if it is compatible with
        /// the holders, as in DBx1000. Off, and when its transaction is tried again: it dies.
        "waitdie.overtake" overtake: bool = true, in ();
        flatten timestamps: TimestampOptions;
    }
}

/// The protocol.
pub type WaitDie<M, F = Sound> = TwoPhase<QueuedLocks<M, WaitDiePolicy<M, F>>>;

/// The wait policy.
#[derive(Debug)]
pub struct WaitDiePolicy<M: Machine, F> {
    overtake: bool,
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct WaitDieWorker<M: Machine> {
    worker: usize,
    timestamp: RetainedTimestamp<M>,
}

impl<M: Machine, F: QueueFaults> WaitPolicy<M> for WaitDiePolicy<M, F> {
    const INFO: ProtocolInfo = info(
        "2pl-waitdie",
        "two-phase locking: the older of two waits, the younger aborts",
        "Rosenkrantz, Stearns, Lewis: System level concurrency control for distributed database systems, TODS 1978",
    );
    type Options = WaitDieOptions;
    type Faults = F;
    type WorkerState = WaitDieWorker<M>;

    fn new(options: WaitDieOptions) -> Self {
        let timestamps = Timestamps::new(options.timestamps.clone(), 0);
        WaitDiePolicy { overtake: options.overtake, timestamps, faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn new_worker_state(&self, worker: usize) -> WaitDieWorker<M> {
        WaitDieWorker { worker, timestamp: RetainedTimestamp::new(self.timestamps.of_worker(worker)) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut WaitDieWorker<M>) -> LockOwner {
        // Timestamps are unique, so "older" is a strict order and two transactions never wait for
        // each other. Their source needs no order of real time: an age that is wrong costs
        // fairness, and no cycle.
        LockOwner { worker: local.worker, timestamp: local.timestamp.begin(), transaction: 0 }
    }

    #[inline(always)]
    fn goes_before(&self, new: LockOwner, waiter: LockOwner) -> bool {
        // The youngest first: after a grant the others in the queue are older than the new holder.
        // With the oldest first they would be younger, and would wait for an older transaction,
        // which this policy forbids.
        new.timestamp > waiter.timestamp
    }

    #[inline(always)]
    fn may_overtake(&self, local: &WaitDieWorker<M>) -> bool {
        self.overtake && !local.timestamp.is_tried_again()
    }

    fn may_wait(
        &self,
        _: &mut WaitDieWorker<M>,
        own: LockOwner,
        _: Cell<M>,
        mut blockers: impl Iterator<Item = LockOwner>,
    ) -> bool {
        // The cell is latched, so the lists are those of one moment, and a blocker that is gone by
        // the next moment only makes the wait shorter.
        blockers.all(|other| own.timestamp < other.timestamp)
    }

    fn keep_waiting(
        &self,
        _: &mut WaitDieWorker<M>,
        _: LockOwner,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(LockOwner)),
    ) -> Result<(), AbortReason> {
        // Nothing to look for: the waits have no cycle, so the youngest transaction of all waits
        // for none, and each wait ends when those before it have ended.
        Ok(())
    }

    #[inline(always)]
    fn end(&self, local: &mut WaitDieWorker<M>, outcome: Outcome) {
        // An abort by conflict keeps the timestamp. With a new one at each try a long transaction
        // could be the youngest each time, and die for ever.
        local.timestamp.end(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use contend_engine::{
        Abort, AbortReason, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, TableSpec,
    };
    use contend_machine::Native;

    use super::{WaitDie, WaitDieOptions};

    /// A young transaction reads, `reads` times, a record that another reads and an older one waits
    /// to write. Returns whether the young one died there. `tried_again`: each time it has died
    /// before, of another record.
    fn a_young_reader_dies(overtake: bool, tried_again: bool, reads: usize) -> bool {
        let protocol = WaitDie::<Native>::new(WaitDieOptions { overtake, ..Default::default() });
        let engine = Engine::new(protocol, EngineConfig::default());
        let rows = engine.create_table::<u64>(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in [1, 2] {
            assert!(loader.insert(&rows, key, |row| row[0] = 0).expect("memory"));
        }
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
            assert!(first.modify_row(&rows, 2, Groups::ALL).expect("nobody else is there").is_some());
            held.store(true, Ordering::Release);
            let mut dies_of = |key| {
                let read = young.run(|tx| tx.read_row(&rows, key, Projection::WHOLE).map(|_| ()));
                read.is_err_and(|abort| abort.reason == AbortReason::ReadLocked)
            };
            let died = (0..reads).any(|_| {
                std::thread::yield_now();
                assert!(!tried_again || dies_of(2), "an older one holds it");
                dies_of(1)
            });
            first.commit().expect("it holds its lock");
            written.join().expect("no panic").expect("the oldest does not die");
            died
        })
    }

    #[test]
    fn a_younger_reader_overtakes_an_older_waiter_at_its_first_try_if_the_option_is_on() {
        assert!(!a_young_reader_dies(true, false, 1_000));
        // It dies as soon as the older one waits.
        assert!(a_young_reader_dies(false, false, 10_000_000));
        assert!(a_young_reader_dies(true, true, 10_000_000));
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
        // If it had retained the cancelled transaction's timestamp, it would be the older one, and
        // wait here for ever.
        let younger = early.run(|tx| tx.modify_row(&rows, 1, Groups::ALL).map(|_| ()));
        assert_eq!(younger.expect_err("it dies").reason, AbortReason::WriteLocked);
        holder.commit().expect("it holds its lock");
    }
}
