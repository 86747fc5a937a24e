//! One execution: engine, workload and workers are built or taken back, the cores run their
//! transactions as a strategy chooses, and the history is judged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use contend_engine::epoch::Epochs;
use contend_engine::history::Committed;
use contend_engine::{AbortReason, Engine, EngineConfig, Erased, Isolation};
use contend_judge::{CycleEdge, recorded_with_keys, verify_history};
use contend_machine::Machine;
use contend_runner::RunError;
use contend_runner::session::declare_types;
use contend_sim::Simulated;
use contend_sim::checkpoint::{Checkpoint, Region};
use contend_sim::explorer::{Execution, Strategy};
use contend_workloads::Workload;

use super::exploration::Exploration;
use super::steps::{self, RecordPlace};
use crate::retried::{ErasedWorker, run_retried};

/// What an execution runs on.
struct Setup<W: Workload> {
    engine: Arc<Engine<Erased<Simulated>, Simulated>>,
    workload: W,
    seats: Vec<RefCell<Seat<W>>>,
    /// Cores that have not ended.
    running: Cell<usize>,
    aborts: Cell<u64>,
    /// The most tries of a transaction.
    tries: Cell<u32>,
    /// The reason of an abort that does not go away.
    stuck: Cell<Option<AbortReason>>,
}

/// The worker, client and input of a core.
struct Seat<W: Workload> {
    worker: ErasedWorker,
    client: W::Client,
    input: W::Input,
}

/// A setup that is taken back to how it was built after each execution. The fields are dropped in
/// this order: the setup lies in the region.
pub(super) struct Kept<W: Workload> {
    setup: Rc<Setup<W>>,
    checkpoint: Checkpoint,
    region: Region,
}

/// A finding.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// It, in one line.
    pub(super) verdict: String,
    pub(super) explanation: Option<String>,
    /// The rows of a cycle, as steps name them: `TABLE[KEY]`.
    pub(super) rows: Vec<String>,
}

impl Told {
    /// Returns a finding that its line explains.
    pub(super) fn new(verdict: String) -> Told {
        Told { verdict, explanation: None, rows: Vec::new() }
    }

    fn of(verdict: String, explanation: Option<String>, cycle: &[CycleEdge]) -> Told {
        // The table may be followed by the columns that the dependency is about.
        let row = |edge: &CycleEdge| {
            let (table, rest) = edge.key.split_once('/')?;
            Some(format!("{table}[{}]", rest.rsplit('/').next()?))
        };
        let rows: BTreeSet<String> = cycle.iter().filter_map(row).collect();
        Told { verdict, explanation, rows: rows.into_iter().collect() }
    }
}

/// An execution, judged.
pub(super) struct Judged {
    pub(super) execution: Execution,
    pub(super) commits: u64,
    pub(super) aborts: u64,
    /// The most tries of a transaction.
    pub(super) tries: u32,
    /// What is wrong.
    pub(super) wrong: Option<Told>,
    /// An anomaly that the promise allows.
    pub(super) permitted: Option<Told>,
    /// The records in its history, if it was traced.
    pub(super) places: Vec<RecordPlace>,
}

/// The verdict on a history.
#[derive(Default)]
struct Verdict {
    wrong: Option<Told>,
    permitted: Option<Told>,
    /// Whether the workload's check must hold: the history is known, and has no anomaly.
    keeps_invariants: bool,
    places: Vec<RecordPlace>,
}

impl<W: Workload> Exploration<W> {
    /// Builds what executions run on once, if it can be taken back to how it was built.
    pub(super) fn keep(&mut self) {
        let Some(region) = Region::new() else { return };
        // If the setup can't be built, the first execution builds it anew, and returns the error.
        let Some(setup) = region.run(|| self.build().ok().map(Rc::new)) else { return };
        self.explorer.takes_back();
        self.kept = Some(Kept { setup, checkpoint: region.checkpoint(), region });
    }

    fn build(&self) -> Result<Setup<W>, RunError> {
        let config = EngineConfig {
            // One worker more, for the loader.
            workers_max: self.cores + 1,
            // Epochs pass when the schedule says so, never by the clock.
            epoch_ms: u64::MAX,
            history: true,
            partitions: W::declares(&self.workload_options).partitions.unwrap_or(1),
            options: self.engine_options.clone(),
            fault: self.fault,
        };
        let engine = Engine::new((self.protocol)(), config);
        let workload = W::create(&self.workload_options, self.index, &engine);
        declare_types(&engine, &workload)?;
        let mut loader = engine.loader().expect("room for it");
        workload
            .load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()))
            .map_err(|error| RunError::OutOfMemory(format!("loading: {error}")))?;
        drop(loader);
        workload.check_loaded(&engine).map_err(RunError::BadInput)?;
        let seats = (0..self.cores).map(|core| {
            let worker = engine.worker().expect("room for it");
            let client = workload.client(core, self.cores, 0);
            RefCell::new(Seat { worker, client, input: W::Input::default() })
        });
        let seats = seats.collect();
        let running = Cell::new(self.cores);
        let (aborts, tries) = (Cell::new(0), Cell::new(0));
        Ok(Setup { engine, workload, seats, running, aborts, tries, stuck: Cell::new(None) })
    }

    /// Runs an execution of the workload of this seed, and judges it. With `traced`, its steps are
    /// kept, and the history is judged by the checker.
    ///
    /// # Errors
    /// The setup can't be built, or a transaction aborts for a reason that does not go away.
    pub(super) fn execute(
        &mut self,
        strategy: &mut (dyn Strategy + 'static),
        seed: u64,
        traced: bool,
    ) -> Result<Judged, RunError> {
        let Some(kept) = self.kept.take() else {
            let setup = Rc::new(self.build()?);
            let bodies = self.bodies(&setup, seed);
            return self.execute_on(&setup, bodies, strategy, traced);
        };
        let bodies = kept.region.run(|| self.bodies(&kept.setup, seed));
        let judged = self.execute_on(&kept.setup, bodies, strategy, traced);
        // SAFETY: the region is of this thread and still there, as `kept` owns it. The bodies,
        // which were allocated after the checkpoint, have ended or are forgotten. `judged` holds no
        // part of the region, and nothing borrows from the setup any more.
        unsafe { kept.checkpoint.restore(&mut self.explorer) };
        self.kept = Some(kept);
        judged
    }

    /// Returns what each core runs; the last body lets the epochs pass.
    fn bodies(&self, setup: &Rc<Setup<W>>, seed: u64) -> Vec<Box<dyn FnOnce()>> {
        let cores = (0..self.cores).map(|core| {
            setup.seats[core].borrow_mut().client = setup.workload.client(core, self.cores, seed);
            let (setup, transactions, same_input) = (Rc::clone(setup), self.transactions, self.same_input);
            Box::new(move || {
                run_core(core, transactions, same_input, &setup);
                setup.running.set(setup.running.get() - 1);
            }) as Box<dyn FnOnce()>
        });
        let passing = Rc::clone(setup);
        let epochs = Box::new(move || pass_epochs(passing.engine.epochs(), &passing.running)) as Box<dyn FnOnce()>;
        cores.chain([epochs]).collect()
    }

    fn execute_on(
        &mut self,
        setup: &Setup<W>,
        mut bodies: Vec<Box<dyn FnOnce()>>,
        strategy: &mut (dyn Strategy + 'static),
        traced: bool,
    ) -> Result<Judged, RunError> {
        let epochs = bodies.pop();
        strategy.begin(self.cores);
        let execution = self.explorer.execute_beside(bodies, epochs, strategy, traced);
        if let Some(reason) = setup.stuck.get() {
            return Err(RunError::Stuck { protocol: self.info.name.into(), reason });
        }
        // A body that was cut off still borrows its seat.
        let ended = setup.seats.iter().filter_map(|seat| seat.try_borrow_mut().ok());
        let committed: Vec<_> = ended.flat_map(|mut seat| seat.worker.take_history()).collect();
        let (commits, aborts, tries) = (committed.len() as u64, setup.aborts.get(), setup.tries.get());
        let mut verdict = self.judge(setup, committed, execution.cut, traced);
        if verdict.keeps_invariants {
            let seats: Vec<_> = setup.seats.iter().map(RefCell::borrow).collect();
            let clients: Vec<&W::Client> = seats.iter().map(|seat| &seat.client).collect();
            if let Err(violation) = setup.workload.check(&setup.engine, &clients) {
                verdict.wrong = Some(Told::new(format!("the workload's check failed: {violation}")));
            }
        }
        if self.same_input && !execution.cut && verdict.wrong.is_none() {
            verdict.wrong = self.compare_state(setup.engine.state_hash());
        }
        let Verdict { wrong, permitted, places, .. } = verdict;
        Ok(Judged { execution, commits, aborts, tries, wrong, permitted, places })
    }

    /// Compares the final state of an execution with those of all before, which had the same input.
    fn compare_state(&mut self, state: u64) -> Option<Told> {
        let first = *self.state.get_or_insert(state);
        (state != first).then(|| {
            Told::new(format!(
                "the final state is {state:016x}, and was {first:016x} after an execution of the same input"
            ))
        })
    }

    /// Judges what the workers recorded: by the quick proof, and if that fails by the checker. The
    /// history of an execution that was cut off is not complete, and is not judged.
    fn judge(&mut self, setup: &Setup<W>, committed: Vec<Committed>, is_cut: bool, traced: bool) -> Verdict {
        if !is_cut && !self.checks_all && !traced && self.proof.succeeds(&setup.engine, &committed) {
            return Verdict { keeps_invariants: true, ..Verdict::default() };
        }
        let mut verdict = Verdict::default();
        let (recorded, keys) = recorded_with_keys(&setup.engine, committed);
        if !is_cut {
            let verification = verify_history(&recorded, self.info.isolation);
            let promises = self.info.isolation != Isolation::None;
            if !verification.passed || !promises && verification.anomaly.is_some() {
                verdict.wrong = Some(Told::of(verification.verdict, verification.explanation, &verification.cycle));
            } else if let Some(anomaly) = verification.anomaly {
                verdict.permitted = Some(Told::of(anomaly, verification.explanation, &verification.cycle));
            } else {
                verdict.keeps_invariants = true;
            }
        }
        if traced {
            verdict.places = steps::places(&setup.engine, &keys);
        }
        verdict
    }
}

/// Runs the transactions of a core. With `same_input` it does as a run's client does: it goes on
/// until this number has committed, and never rests.
fn run_core<W: Workload>(core: usize, transactions: u64, same_input: bool, setup: &Setup<W>) {
    let workload = &setup.workload;
    let Seat { worker, client, input } = &mut *setup.seats[core].borrow_mut();
    let mut ended = 0;
    while ended < transactions {
        workload.next(worker, client, input);
        let begin = |number| {
            setup.tries.set(setup.tries.get().max(number));
            // Each try but the first follows a conflict.
            setup.aborts.set(setup.aborts.get() + u64::from(number > 1));
        };
        let committed = match run_retried(worker, workload, client, input, begin) {
            Ok(committed) => committed.is_some(),
            Err(reason) => {
                setup.stuck.set(Some(reason));
                return;
            }
        };
        // A worker that is offline holds back no epoch. So a worker sees some epochs from one
        // transaction to the next, and misses any number of others.
        if !same_input && (core as u64 + ended).is_multiple_of(2) {
            Simulated::step("rest");
            worker.go_offline();
            Simulated::pause();
        }
        Simulated::step("collect");
        worker.collect();
        ended += u64::from(committed || !same_input);
    }
    worker.go_offline();
}

/// Lets epochs pass, one at a time, as long as other cores run.
fn pass_epochs(epochs: &Epochs<Simulated>, others: &Cell<usize>) {
    while others.get() > 0 {
        Simulated::step("epoch passes");
        epochs.try_advance();
        Simulated::pause();
    }
}
