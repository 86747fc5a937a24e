//! What the cores of a life run: transactions on most of them, flushes and checkpoints on one, and
//! advances of the epoch on another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use contend_engine::{AbortReason, Engine, Erased};
use contend_log::Log;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_machine::Machine;
use contend_sim::Simulated;
use contend_workloads::Workload;

use contend_model::random::SplitMix64;

use super::habits::Habits;
use crate::retried::{ErasedWorker, run_retried};

pub(super) type ErasedEngine = Engine<Erased<Simulated>, Simulated>;

/// The most turns that a flush waits for a worker to enter the new epoch.
const WAITS_MAX: u32 = 8;
/// One of this many flushes is followed by a checkpoint.
const CHECKPOINT_EVERY: u64 = 3;

/// After one of this many flushes, a moment is kept.
const MOMENT_EVERY: u64 = 2;
/// The most moments of a life.
const MOMENTS_MAX: usize = 16;

/// A transaction that has committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// Its number in the history.
    pub(super) txn: u64,
    /// From [`contend_engine::Worker::ticket`].
    ticket: u64,
    /// From [`contend_engine::Worker::committed_in`].
    epoch: u64,
}

impl Ticket {
    /// Whether the log says that the transaction is durable, by its ticket or by its epoch: an
    /// application may ask in either way.
    pub(super) fn is_durable(&self, worker: &mut ErasedWorker, log: &Log) -> bool {
        worker.is_durable(self.ticket) || log.durable() >= self.epoch
    }
}

/// A worker that has run its transactions.
pub(super) struct Finished {
    pub(super) worker: ErasedWorker,
    /// Its transactions that were not acknowledged before its end.
    pub(super) waiting: Vec<Ticket>,
}

/// A copy of the disk after a crash at a moment between two flushes.
pub(super) struct Moment {
    pub(super) disk: FaultyDisk,
    /// The transactions that were acknowledged before.
    pub(super) acknowledged: BTreeSet<u64>,
}

/// What the cores of a life share, besides the engine.
#[derive(Default)]
pub(super) struct Shared {
    /// Workers that have run their transactions.
    pub(super) finished: RefCell<Vec<Finished>>,
    /// Transactions that were acknowledged while their workers ran.
    pub(super) acknowledged: RefCell<BTreeSet<u64>>,
    pub(super) moments: RefCell<Vec<Moment>>,
    /// The reason of an abort that does not go away.
    pub(super) stuck: Cell<Option<AbortReason>>,
    /// Checkpoints that were taken.
    pub(super) checkpoints: Cell<u64>,
    /// Cores that still have transactions to run.
    pub(super) running: Cell<usize>,
}

impl Shared {
    /// Lets the other cores go on for this many turns. Returns whether one of them still has
    /// transactions to run.
    fn go_on(&self, turns: u64) -> bool {
        for _ in 0..turns {
            if self.running.get() == 0 {
                break;
            }
            Simulated::pause();
        }
        self.running.get() > 0
    }
}

/// A core that runs transactions.
pub(super) struct Transactions<W: Workload> {
    pub(super) count: u64,
    pub(super) habits: Habits,
    pub(super) random: SplitMix64,
    pub(super) log: std::sync::Arc<Log>,
    pub(super) workload: std::sync::Arc<W>,
    pub(super) worker: ErasedWorker,
    pub(super) client: W::Client,
}

impl<W: Workload> Transactions<W> {
    pub(super) fn run(mut self, shared: &Rc<Shared>) {
        let mut waiting = Vec::new();
        let mut input = W::Input::default();
        for _ in 0..self.count {
            self.workload.next(&mut self.worker, &mut self.client, &mut input);
            let worker = &mut self.worker;
            match run_retried(worker, &*self.workload, &mut self.client, &input, |_| ()) {
                Ok(txn) => {
                    let ticket = |txn| Ticket { txn, ticket: worker.ticket(), epoch: worker.committed_in() };
                    waiting.extend(txn.map(ticket));
                }
                Err(reason) => {
                    shared.stuck.set(Some(reason));
                    break;
                }
            }
            // The log is asked while others commit and flush. Asked only at the end, it would give
            // the right answer also if it had acknowledged a transaction too early.
            waiting.retain(|ticket: &Ticket| {
                let is_durable = ticket.is_durable(&mut self.worker, &self.log);
                shared.acknowledged.borrow_mut().extend(is_durable.then_some(ticket.txn));
                !is_durable
            });
            if self.habits.rests {
                self.worker.go_offline();
            }
            if self.random.one_in(self.habits.collects_one_in) {
                Simulated::step("collect");
                self.worker.collect();
            }
        }
        self.worker.go_offline();
        shared.finished.borrow_mut().push(Finished { worker: self.worker, waiting });
        shared.running.set(shared.running.get() - 1);
    }
}

/// Flushes settled epochs, as the thread of a real log does, and takes checkpoints.
pub(super) fn flush(
    engine: &ErasedEngine,
    log: &Log,
    disk: &FaultyDisk,
    habits: &Habits,
    random: &mut SplitMix64,
    shared: &Shared,
) {
    while shared.go_on(habits.flush_pauses) {
        Simulated::step("flush the epoch");
        let mut waits = 0;
        let settled = log.settle_while(engine.epochs(), || {
            waits += 1;
            Simulated::pause();
            waits < WAITS_MAX
        });
        if settled.epoch > log.durable() {
            let takes_checkpoint = random.one_in(CHECKPOINT_EVERY);
            // Half of the checkpoints begin new files first. The others leave the files that are
            // not full.
            if takes_checkpoint && random.one_in(2) {
                log.begin_files();
            }
            if log.flush(settled.epoch).is_err() {
                return;
            }
            let mut moments = shared.moments.borrow_mut();
            if moments.len() < MOMENTS_MAX && random.one_in(MOMENT_EVERY) {
                let disk = disk.after_crash(Plan { seed: random.draw(), ..Plan::default() });
                moments.push(Moment { disk, acknowledged: shared.acknowledged.borrow().clone() });
            }
            drop(moments);
            Simulated::step("take a checkpoint");
            if takes_checkpoint {
                // If the disk is full, the test goes on without a checkpoint.
                shared.checkpoints.set(shared.checkpoints.get() + u64::from(log.checkpoint_by_hand().is_ok()));
            }
        }
    }
}

/// Advances the epoch after every `pauses` turns of the other cores, so that epochs pass in the
/// middle of transactions.
pub(super) fn advance(engine: &ErasedEngine, pauses: u64, shared: &Shared) {
    while shared.go_on(pauses) {
        Simulated::step("advance the epoch");
        engine.epochs().try_advance();
    }
}
