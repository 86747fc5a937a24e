//! Looks for an interleaving under which a protocol breaks its promise, and shows it.
//!
//! An execution is a few transactions of a workload on a small database, one worker a core, in an
//! order of steps that a strategy chooses. Its history is judged like any other. One that is wrong
//! is replayed with fewer and fewer switches between cores, as long as it stays wrong.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contend_engine::epoch::Epochs;
use contend_engine::fault::Fault;
use contend_engine::history::Part;
use contend_engine::{
    AbortReason, Engine, EngineConfig, EngineOptions, Erased, Isolation, KeyWords, NamedProtocol, Protocol,
    ProtocolInfo, Worker,
};
use contend_machine::Machine;
use contend_sim::Simulated;
use contend_sim::checkpoint::{Checkpoint, Region};
use contend_sim::explorer::{
    Execution, Exhaustive, Explorer, Pct, Random, Replay, Schedule, Step, StepKind, Strategy, shrink,
};
use contend_workloads::litmus::{self, Extent};
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use contend_judge::QuickProof;
use contend_judge::recorded_with_keys;
use contend_judge::verify_history;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::{ProtocolPlan, RunConfig, RunError, RunPlan, Stop};

/// How cores are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// At random.
    Random,
    /// By random priorities that change so many times less one.
    Pct(usize),
    /// In every way with at most so many preemptions.
    Exhaustive(usize),
}

impl FromStr for StrategyChoice {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        let number = |text: &str, least: usize| text.parse().ok().filter(|number| *number >= least);
        let parsed = match text.split_once(':') {
            None if text == "random" => Some(StrategyChoice::Random),
            Some(("pct", depth)) => number(depth, 1).map(StrategyChoice::Pct),
            Some(("exhaustive", bound)) => number(bound, 0).map(StrategyChoice::Exhaustive),
            _ => None,
        };
        parsed.ok_or_else(|| {
            RunError::BadInput(format!(
                "unknown strategy '{text}'; valid: random, pct:DEPTH (from 1), exhaustive:PREEMPTIONS (from 0)"
            ))
        })
    }
}

impl std::fmt::Display for StrategyChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StrategyChoice::Random => f.write_str("random"),
            StrategyChoice::Pct(depth) => write!(f, "pct:{depth}"),
            StrategyChoice::Exhaustive(bound) => write!(f, "exhaustive:{bound}"),
        }
    }
}

/// Which executions are shown step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// One that is wrong.
    Wrong,
    /// One with an anomaly that the promise allows as well.
    Allowed,
    /// If there is neither, the first.
    Any,
}

/// What is to be explored.
#[derive(Clone, Debug)]
pub struct ExploreConfig {
    /// The most executions.
    pub executions: u64,
    /// The most time.
    pub budget: Option<Duration>,
    /// How cores are chosen.
    pub strategy: StrategyChoice,
    /// Transactions of each core; none: as many as the litmus test is made for, or two.
    pub transactions: Option<u64>,
    /// Cores; none: as many as the litmus test is made for, or three.
    pub cores: Option<usize>,
    /// Seed of the strategy and of the workload; each execution has the next one.
    pub seed: u64,
    /// Follow this schedule, once, instead.
    pub replay: Option<Schedule>,
    /// What is shown step by step, besides what is wrong.
    pub show: Show,
    /// Build everything anew for each execution, and judge each by the checker: slow, for tests of
    /// what is otherwise taken back and proved quickly.
    #[doc(hidden)]
    pub anew: bool,
    /// A deliberate bug of the engine, for tests of the proof.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for ExploreConfig {
    fn default() -> Self {
        ExploreConfig {
            executions: 10_000,
            budget: None,
            strategy: StrategyChoice::Random,
            transactions: None,
            cores: None,
            seed: 1,
            replay: None,
            show: Show::Wrong,
            anew: false,
            fault: None,
        }
    }
}

/// The most cores.
pub const CORES_MAX: usize = 64;
/// The most transactions of a core.
pub const TRANSACTIONS_MAX: u64 = 1000;
/// An execution of more steps is cut off: transactions that wait for one another for ever.
const STEPS_MAX: u64 = 100_000;
/// A core whose transaction aborts more often gives it up.
const TRIES_MAX: u32 = 64;
/// No more executions after so many that were cut off: of such a protocol enough is known, and what
/// it runs on, if built anew, is not freed.
const LIVELOCKS_MAX: u64 = 100;

/// Different schedules are counted up to this number: more would not fit into memory in a night.
const SEEN_MAX: usize = 1 << 22;

/// Executions that shrinking may take.
const SHRINKS_MAX: u64 = 5_000;

/// An interleaving that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// What is wrong, in one line.
    pub verdict: String,
    /// The anomaly, told step by step.
    pub explanation: Option<String>,
    /// Executions until it was found, this one included.
    pub executions: u64,
    /// Switches between cores when it was found.
    pub switches_found: usize,
    /// Switches that are left: with one less it did not happen again.
    pub switches: usize,
    /// The seed of the workload in it.
    pub seed: u64,
    /// Which core made which step.
    pub schedule: String,
    /// The steps: a row for each, of step number, core and what it did.
    pub steps: Vec<ShownStep>,
}

/// A step, or several of one kind in a row, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownStep {
    /// Its number, from 1.
    pub number: u64,
    /// Who; the core after the last is nobody's: there the epochs pass.
    pub core: usize,
    /// What.
    pub text: String,
}

/// What came of exploring one protocol on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Explored {
    /// The protocol, as it was written.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// What it promises.
    pub isolation: String,
    /// Cores.
    pub cores: usize,
    /// Transactions of each core.
    pub transactions: u64,
    /// Executions.
    pub executions: u64,
    /// Of those, the ones that made their steps in an order that no other had; counted up to 2^22.
    pub distinct: u64,
    /// Executions that were cut off.
    pub livelocks: u64,
    /// Steps of all executions.
    pub steps: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Tries that were aborted by a conflict.
    pub aborts: u64,
    /// The most tries that a transaction took.
    pub tries: u32,
    /// Whether everything was tried that the strategy can try.
    pub exhausted: bool,
    /// How long it took.
    pub seconds: f64,
    /// Whether what is wrong breaks a promise.
    pub violated: bool,
    /// Executions with an anomaly that the promise allows.
    pub permitted: u64,
    /// The first of these, in words.
    pub permits: Option<String>,
    /// The first that was wrong.
    pub found: Option<Found>,
    /// If none was: what was asked to be shown, the first with an anomaly that the promise allows,
    /// or the first of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<Found>,
}

impl ExploreConfig {
    /// Checks that there is something to do.
    ///
    /// # Errors
    /// The first number that is out of range, with the range.
    pub fn check(&self) -> Result<(), RunError> {
        let refuse = |message: String| Err(RunError::BadInput(message));
        match self {
            Self { executions: 0, .. } => refuse("schedules is 0; valid: 1 or more".into()),
            Self { budget: Some(Duration::ZERO), .. } => {
                refuse("budget is 0; valid: more than 0, as in 60s or 10m".into())
            }
            Self { transactions: Some(transactions), .. } if !(1..=TRANSACTIONS_MAX).contains(transactions) => {
                refuse(format!("transactions is {transactions}; valid: 1 to {TRANSACTIONS_MAX}"))
            }
            Self { cores: Some(cores), .. } if !(1..=CORES_MAX).contains(cores) => {
                refuse(format!("cores is {cores}; valid: 1 to {CORES_MAX}"))
            }
            Self { replay: Some(schedule), .. } if schedule.segments().is_empty() => {
                refuse("the schedule is empty; valid: which core makes how many steps, as in 0x5,1x3,0".into())
            }
            _ => Ok(()),
        }
    }
}

impl Explored {
    /// Whether nothing was tested: no execution, or none in which a transaction committed. That
    /// nothing wrong was found then says nothing.
    pub fn is_vacuous(&self) -> bool {
        self.commits == 0 && self.found.is_none()
    }

    /// The result in one line.
    pub fn verdict(&self) -> String {
        match &self.found {
            Some(found) if self.violated => format!("WRONG: {}", found.verdict),
            Some(found) => found.verdict.clone(),
            None if self.is_vacuous() => match self.executions {
                0 => "NOTHING TESTED: the time was over before the first execution".into(),
                _ => "NOTHING TESTED: no transaction committed".into(),
            },
            None => {
                let what = if self.exhausted { "in all interleavings of the strategy" } else { "found" };
                let permitted = match &self.permits {
                    Some(first) => format!("; {} executions had what it allows, the first {first}", self.permitted),
                    None => String::new(),
                };
                format!("{}: nothing wrong {what}{permitted}", self.isolation)
            }
        }
    }
}

/// Explores each entry of a plan on its workload. The plan's machine, threads and windows have no
/// meaning here.
///
/// # Errors
/// A number of `config` is out of range, the schedule to replay does not suit the workload, or
/// transactions can't go on.
pub fn explore(plan: &RunPlan, config: &ExploreConfig, stop: &Stop) -> Result<Vec<Explored>, RunError> {
    config.check()?;
    let mut all = Vec::new();
    for protocol in &plan.protocols {
        let make = OfWorkload { plan, protocol, config, stop };
        all.push(on_own_thread(make, || factory_of(protocol))?);
        if stop.is_requested() {
            break;
        }
    }
    Ok(all)
}

/// Explores a protocol that need not be registered, a broken one say.
///
/// # Errors
/// As [`explore`]; or `run` is not valid.
pub fn explore_protocol<P: NamedProtocol<Simulated>>(
    run: &RunConfig,
    config: &ExploreConfig,
) -> Result<Explored, RunError> {
    config.check()?;
    let plan = run.resolve()?;
    let (protocol, options) = ProtocolPlan::with_options::<P, Simulated>(&plan.config.settings)?;
    let make = OfWorkload { plan: &plan, protocol: &protocol, config, stop: &Stop::default() };
    on_own_thread(make, || Box::new(move || Erased::new(P::new(options.clone()))))
}

/// Explores on a thread of its own: the memory of the explorer's machine is its host thread's.
fn on_own_thread(make: OfWorkload<'_>, factory: impl FnOnce() -> Factory + Send) -> Result<Explored, RunError> {
    std::thread::scope(|scope| {
        let explored = scope.spawn(move || {
            let protocol = factory();
            make.plan.workload.visit(OnWorkload { make, protocol })
        });
        explored.join().expect("an exploration does not panic")
    })
}

/// Makes a protocol for each execution. It is behind a pointer, so that the exploration is compiled
/// once for all protocols.
pub(crate) type Factory = Box<dyn Fn() -> Erased<Simulated>>;

/// Returns the factory of a planned protocol.
pub(crate) fn factory_of(protocol: &ProtocolPlan) -> Factory {
    let protocol = protocol.clone();
    Box::new(move || protocol.erased())
}

#[derive(Clone, Copy)]
struct OfWorkload<'a> {
    plan: &'a RunPlan,
    protocol: &'a ProtocolPlan,
    config: &'a ExploreConfig,
    stop: &'a Stop,
}

struct OnWorkload<'a> {
    make: OfWorkload<'a>,
    protocol: Factory,
}

impl PlannedWorkloadVisitor for OnWorkload<'_> {
    type Output = Result<Explored, RunError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        Exploration::<W>::new(self.make, info, options, self.protocol)?.run(self.make.config, self.make.stop)
    }
}

/// What is the same for all executions.
struct Exploration<W: Workload> {
    name: String,
    workload_name: String,
    info: ProtocolInfo,
    protocol: Factory,
    engine_options: EngineOptions,
    workload_options: W::Options,
    index: contend_engine::IndexKind,
    cores: usize,
    transactions: u64,
    explorer: Explorer,
    proof: QuickProof,
    /// Whether every execution is judged by the checker.
    checks_all: bool,
    fault: Option<Fault>,
    kept: Option<Kept<W>>,
}

type ErasedWorker = Worker<Erased<Simulated>, Simulated>;

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
    /// An abort that will not go away.
    stuck: Cell<Option<AbortReason>>,
}

/// A core's.
struct Seat<W: Workload> {
    worker: ErasedWorker,
    client: W::Client,
    input: W::Input,
}

/// A setup that is taken back to how it was built after each execution. Its parts go in this order.
struct Kept<W: Workload> {
    setup: Rc<Setup<W>>,
    checkpoint: Checkpoint,
    region: Region,
}

/// What is to be said of an execution, in one line, and the explanation.
type Told = (String, Option<String>);

/// An execution, judged.
struct Judged {
    execution: Execution,
    commits: u64,
    aborts: u64,
    tries: u32,
    /// What is wrong.
    wrong: Option<Told>,
    /// An anomaly that the promise allows.
    permitted: Option<Told>,
    /// Records by address: first word, words, name.
    places: Vec<(usize, usize, String)>,
}

impl<W: Workload> Exploration<W> {
    fn new(
        make: OfWorkload<'_>,
        info: WorkloadInfo,
        workload_options: &W::Options,
        factory: Factory,
    ) -> Result<Self, RunError> {
        let OfWorkload { plan, protocol, config, .. } = make;
        let extent = litmus::extent(info.name).unwrap_or(Extent { workers: 3, transactions: 2 });
        let cores = config.cores.unwrap_or(extent.workers);
        let strange =
            |schedule: &Schedule| schedule.segments().iter().map(|(core, _)| *core).find(|core| *core > cores);
        if let Some(core) = config.replay.as_ref().and_then(strange) {
            return Err(RunError::BadInput(format!(
                "the schedule has a core {core}; {} runs on {cores} cores: valid are 0 to {}, and {cores}, where epochs pass",
                info.name,
                cores - 1
            )));
        }
        // One more, where the epochs pass.
        let explorer = Explorer::new(cores + 1, STEPS_MAX).map_err(|error| RunError::OutOfMemory(error.to_string()))?;
        Ok(Exploration {
            name: protocol.name.clone(),
            workload_name: info.name.into(),
            info: protocol.info,
            protocol: factory,
            engine_options: protocol.engine.clone(),
            workload_options: W::for_verification(workload_options),
            index: plan.index,
            cores,
            transactions: config.transactions.unwrap_or(extent.transactions),
            explorer,
            proof: QuickProof::default(),
            checks_all: config.anew,
            fault: config.fault,
            kept: None,
        })
    }

    fn run(mut self, config: &ExploreConfig, stop: &Stop) -> Result<Explored, RunError> {
        let started = Instant::now();
        let mut explored = Explored {
            protocol: self.name.clone(),
            workload: self.workload_name.clone(),
            isolation: self.info.isolation.name().into(),
            cores: self.cores,
            transactions: self.transactions,
            executions: 0,
            distinct: 0,
            livelocks: 0,
            steps: 0,
            commits: 0,
            aborts: 0,
            tries: 0,
            exhausted: false,
            seconds: 0.0,
            violated: false,
            permitted: 0,
            permits: None,
            found: None,
            shown: None,
        };
        let mut strategy: Box<dyn Strategy> = match (&config.replay, &config.strategy) {
            (Some(schedule), _) => Box::new(Replay::new(schedule.clone())),
            (None, StrategyChoice::Random) => Box::new(Random::new(config.seed)),
            (None, StrategyChoice::Pct(depth)) => Box::new(Pct::new(*depth, config.seed)),
            (None, StrategyChoice::Exhaustive(bound)) => Box::new(Exhaustive::new(*bound)),
        };
        let executions = if config.replay.is_some() { 1 } else { config.executions };
        // All ways of one input are tried before the next.
        let one_input = matches!(config.strategy, StrategyChoice::Exhaustive(_)) || config.replay.is_some();
        let room = usize::try_from(executions).unwrap_or(usize::MAX).min(SEEN_MAX);
        let mut seen =
            HashSet::<u64, BuildHasherDefault<Mixed>>::with_capacity_and_hasher(room, BuildHasherDefault::default());
        let mut to_show = None;
        if !config.anew {
            self.keep();
        }
        while explored.executions < executions && !stop.is_requested() {
            if config.budget.is_some_and(|budget| started.elapsed() >= budget) {
                break;
            }
            let seed = if one_input { config.seed } else { config.seed.wrapping_add(explored.executions) };
            let judged = self.execute(&mut *strategy, seed, config.replay.is_some())?;
            explored.executions += 1;
            if seen.len() < SEEN_MAX {
                seen.insert(judged.execution.schedule.fingerprint());
            }
            explored.livelocks += u64::from(judged.execution.cut);
            explored.steps += judged.execution.steps;
            explored.commits += judged.commits;
            explored.aborts += judged.aborts;
            explored.tries = explored.tries.max(judged.tries);
            explored.permitted += u64::from(judged.permitted.is_some());
            let is_first = judged.permitted.is_some() && explored.permits.is_none();
            if is_first {
                explored.permits = judged.permitted.as_ref().map(|(anomaly, _)| anomaly.clone());
            }
            if judged.wrong.is_some() {
                explored.violated = self.info.isolation != Isolation::None;
                let found = judged.execution.schedule;
                explored.found = Some(self.shrink(&found, seed, explored.executions, |judged| judged.wrong)?);
                break;
            }
            let wanted = match config.show {
                Show::Wrong => false,
                Show::Allowed => is_first,
                Show::Any => is_first || explored.executions == 1,
            };
            if wanted && !judged.execution.cut {
                to_show = Some((judged.execution.schedule, seed, explored.executions));
            }
            if explored.livelocks == LIVELOCKS_MAX {
                break;
            }
            if strategy.is_exhausted() {
                explored.exhausted = true;
                break;
            }
        }
        if let (Some((schedule, seed, number)), None) = (to_show, &explored.found) {
            let isolation = self.info.isolation.name();
            explored.shown = Some(if explored.permits.is_some() {
                let allowed = |judged: Judged| {
                    let (anomaly, explanation) = judged.permitted?;
                    Some((format!("{anomaly}, which {isolation} allows"), explanation))
                };
                self.shrink(&schedule, seed, number, allowed)?
            } else {
                self.tell(&schedule, &schedule, seed, number, |_| Some(("nothing wrong".into(), None)))?
            });
        }
        explored.distinct = seen.len() as u64;
        explored.seconds = started.elapsed().as_secs_f64();
        Ok(explored)
    }

    /// Spares as many switches as can be, and tells what happens then. `anomaly` says what has to
    /// be there still.
    fn shrink(
        &mut self,
        found: &Schedule,
        seed: u64,
        executions: u64,
        anomaly: impl Fn(Judged) -> Option<Told>,
    ) -> Result<Found, RunError> {
        let mut tries = 0;
        let short = shrink(found.clone(), |schedule| {
            tries += 1;
            if tries > SHRINKS_MAX {
                return None;
            }
            let judged = self.execute(&mut Replay::new(schedule.clone()), seed, false).ok()?;
            let schedule = judged.execution.schedule.clone();
            anomaly(judged).map(|_| schedule)
        });
        self.tell(found, &short, seed, executions, anomaly)
    }

    /// Tells what happens under a schedule that was found, in a shorter one.
    fn tell(
        &mut self,
        found: &Schedule,
        short: &Schedule,
        seed: u64,
        executions: u64,
        anomaly: impl Fn(Judged) -> Option<Told>,
    ) -> Result<Found, RunError> {
        let judged = self.execute(&mut Replay::new(short.clone()), seed, true)?;
        let (switches, schedule) = (judged.execution.schedule.switches(), judged.execution.schedule.to_string());
        let steps = show_steps(&judged.execution.trace, &judged.places);
        let (verdict, explanation) = anomaly(judged).expect("the same schedule does the same");
        Ok(Found {
            verdict,
            explanation,
            executions,
            switches_found: found.switches(),
            switches,
            seed,
            schedule,
            steps,
        })
    }

    /// Builds what executions run on, once, if it can be taken back to how it was built.
    fn keep(&mut self) {
        let Some(region) = Region::new() else { return };
        // What is wrong is told by who builds anew.
        let Some(setup) = region.run(|| self.build().ok().map(Rc::new)) else { return };
        self.explorer.takes_back();
        self.kept = Some(Kept { setup, checkpoint: region.checkpoint(), region });
    }

    fn build(&self) -> Result<Setup<W>, RunError> {
        let config = EngineConfig {
            // One for the loader.
            workers_max: self.cores + 1,
            // They pass as the schedule says.
            epoch_ms: u64::MAX,
            history: true,
            partitions: W::declares(&self.workload_options).partitions.unwrap_or(1),
            options: self.engine_options.clone(),
            fault: self.fault,
        };
        let engine = Engine::new((self.protocol)(), config);
        let workload = W::create(&self.workload_options, self.index, &engine);
        let mut loader = engine.loader().expect("room for it");
        workload
            .load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()))
            .map_err(|error| RunError::OutOfMemory(format!("loading: {error}")))?;
        drop(loader);
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

    fn execute(
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
        // SAFETY: the bodies have ended, or are forgotten; what was judged has no part in it, and
        // nobody has borrowed of the setup.
        unsafe { kept.checkpoint.restore(&mut self.explorer) };
        self.kept = Some(kept);
        judged
    }

    /// What the cores do, and, last, what passes the epochs.
    fn bodies(&self, setup: &Rc<Setup<W>>, seed: u64) -> Vec<Box<dyn FnOnce()>> {
        let cores = (0..self.cores).map(|core| {
            setup.seats[core].borrow_mut().client = setup.workload.client(core, self.cores, seed);
            let (setup, transactions) = (Rc::clone(setup), self.transactions);
            Box::new(move || {
                run_core(core, transactions, &setup);
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
        // Bodies that were cut off have their seats still.
        let ended = setup.seats.iter().filter_map(|seat| seat.try_borrow_mut().ok());
        let committed: Vec<_> = ended.flat_map(|mut seat| seat.worker.take_history()).collect();
        let (commits, aborts, tries) = (committed.len() as u64, setup.aborts.get(), setup.tries.get());
        let (mut wrong, mut permitted, mut places) = (None, None, Vec::new());
        // Of an execution that was cut off nothing is known but that it was.
        let is_proved = !execution.cut && !self.checks_all && !traced && self.proof.succeeds(&setup.engine, &committed);
        let mut invariant = is_proved;
        if !is_proved {
            let (recorded, keys) = recorded_with_keys(&setup.engine, committed);
            if !execution.cut {
                let verification = verify_history(&recorded, self.info.isolation);
                let promises = self.info.isolation != Isolation::None;
                if !verification.passed || !promises && verification.anomaly.is_some() {
                    wrong = Some((verification.verdict, verification.explanation));
                } else if let Some(anomaly) = verification.anomaly {
                    permitted = Some((anomaly, verification.explanation));
                } else {
                    invariant = true;
                }
            }
            if traced {
                places = self::places(&setup.engine, &keys);
            }
        }
        if invariant {
            let seats: Vec<_> = setup.seats.iter().map(RefCell::borrow).collect();
            let clients: Vec<&W::Client> = seats.iter().map(|seat| &seat.client).collect();
            if let Err(violation) = setup.workload.check(&setup.engine, &clients) {
                wrong = Some((format!("the workload's check failed: {violation}"), None));
            }
        }
        Ok(Judged { execution, commits, aborts, tries, wrong, permitted, places })
    }
}

/// Of what is a hash already.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What a core does in an execution.
fn run_core<W: Workload>(core: usize, transactions: u64, setup: &Setup<W>) {
    let workload = &setup.workload;
    let Seat { worker, client, input } = &mut *setup.seats[core].borrow_mut();
    for transaction in 0..transactions {
        workload.next(worker, client, input);
        for tries in 1..=TRIES_MAX {
            setup.tries.set(setup.tries.get().max(tries));
            let declare = |declaration: &mut _| workload.declare(input, declaration);
            match worker.run_declared(declare, |tx| workload.execute(tx, client, input)) {
                Ok(()) => {
                    workload.committed(client, input);
                    break;
                }
                Err(abort) if abort.reason == AbortReason::User => break,
                Err(abort) if !abort.reason.is_conflict() => {
                    setup.stuck.set(Some(abort.reason));
                    return;
                }
                Err(_) => {
                    setup.aborts.set(setup.aborts.get() + 1);
                    Simulated::step("try again");
                    Simulated::pause();
                }
            }
        }
        // Who rests holds back no epoch: so some are seen from one transaction to the next, and
        // some miss any number of them.
        if (core as u64 + transaction).is_multiple_of(2) {
            Simulated::step("rest");
            worker.go_offline();
            Simulated::pause();
        }
        Simulated::step("collect");
        worker.collect();
    }
    worker.go_offline();
}

/// In the background: lets epochs pass, one at a time, as long as others run.
pub(crate) fn pass_epochs(epochs: &Epochs<Simulated>, others: &Cell<usize>) {
    while others.get() > 0 {
        Simulated::step("epoch passes");
        epochs.try_advance();
        Simulated::pause();
    }
}

/// Where the records of these keys are.
fn places<P: Protocol<Simulated>>(
    engine: &Engine<P, Simulated>,
    keys: &[(Part, KeyWords)],
) -> Vec<(usize, usize, String)> {
    let names: BTreeMap<Part, String> = engine.parts().into_iter().collect();
    let mut places: Vec<_> = keys
        .iter()
        .filter_map(|(part, key)| {
            let (address, words) = engine.place(*part, key)?;
            let table = names[part].split('/').next().unwrap_or_default();
            Some((address, words, format!("{table}[{}]", engine.key_name(part.table, key))))
        })
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Steps in words, those in a row that say the same in one.
fn show_steps(trace: &[Step], places: &[(usize, usize, String)]) -> Vec<ShownStep> {
    let mut shown: Vec<(ShownStep, u64)> = Vec::new();
    for (number, step) in (1..).zip(trace) {
        let text = show_step(step, places);
        match shown.last_mut() {
            Some((last, times)) if last.core == step.core && last.text == text => *times += 1,
            _ => shown.push((ShownStep { number, core: step.core, text }, 1)),
        }
    }
    shown
        .into_iter()
        .map(|(step, times)| match times {
            1 => step,
            _ => ShownStep { text: format!("{} ({times} x)", step.text), ..step },
        })
        .collect()
}

fn show_step(step: &Step, places: &[(usize, usize, String)]) -> String {
    let kind = match step.kind {
        StepKind::Load => "load",
        StepKind::Store => "store",
        StepKind::Update => "atomic",
        StepKind::Pause => return format!("{}: wait", step.name),
    };
    let word = size_of::<<Simulated as Machine>::U64>();
    let record = places.iter().find(|(first, words, _)| (*first..first + words * word).contains(&step.address));
    match record {
        Some((first, _, name)) => {
            let position = (step.address - first) / word;
            let what = if position == 0 { "metadata".into() } else { format!("word {position}") };
            format!("{}: {kind} {name} {what}", step.name)
        }
        None => format!("{}: {kind}", step.name),
    }
}
