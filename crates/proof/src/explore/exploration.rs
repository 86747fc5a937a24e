//! The exploration of one protocol on one workload: execution after execution, until one is wrong
//! or a limit is reached. The wrong one is then replayed with fewer and fewer switches.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use contend_engine::{EngineOptions, IndexKind, Isolation, ProtocolInfo};
use contend_judge::QuickProof;
use contend_runner::{RunError, Stop};
use contend_sim::explorer::{Exhaustive, Explorer, Pct, Random, Replay, Schedule, Strategy, shrink};
use contend_workloads::litmus::{self, Extent};
use contend_workloads::{Workload, WorkloadInfo};

use super::execution::{Judged, Kept, Told};
use super::steps::show_steps;
use super::{ExploreConfig, Explored, Factory, Found, OfWorkload, Show, StrategyChoice};

/// The most steps of an execution. A longer one is cut off: its transactions wait for each other
/// for ever.
const STEPS_MAX: u64 = 100_000;
/// The same, where all executions have the same input: more transactions run in one.
const STEPS_MAX_OF_INPUT: u64 = 3_000_000;
/// The most executions that are cut off; after that the exploration ends. They prove enough about
/// the protocol, and the memory of an execution that is cut off is freed only if it is taken back.
const LIVELOCKS_MAX: u64 = 100;
/// The most schedules that are told apart: more would not fit into memory in a night.
const SEEN_MAX: usize = 1 << 22;
/// The most executions that shrinking may take.
const SHRINKS_MAX: u64 = 5_000;
/// The size of an execution on a workload that is no litmus test.
const EXTENT: Extent = Extent { workers: 3, transactions: 2 };

/// What all executions of an exploration share.
pub(super) struct Exploration<W: Workload> {
    name: String,
    workload_name: String,
    pub(super) info: ProtocolInfo,
    pub(super) protocol: Factory,
    pub(super) engine_options: EngineOptions,
    pub(super) workload_options: W::Options,
    pub(super) index: IndexKind,
    pub(super) cores: usize,
    pub(super) transactions: u64,
    pub(super) explorer: Explorer,
    pub(super) proof: QuickProof,
    /// Whether every execution is judged by the checker, and none by the quick proof.
    pub(super) checks_all: bool,
    pub(super) fault: Option<contend_engine::fault::Fault>,
    /// Whether all executions have the same input, and the state in which they must end, once it
    /// is known.
    pub(super) same_input: bool,
    pub(super) state: Option<u64>,
    /// What the executions run on, if it is taken back after each.
    pub(super) kept: Option<Kept<W>>,
}

/// An execution that may be shown in the end.
struct Candidate {
    schedule: Schedule,
    seed: u64,
    /// Its number, from 1.
    number: u64,
}

impl<W: Workload> Exploration<W> {
    pub(super) fn new(
        make: OfWorkload<'_>,
        info: WorkloadInfo,
        workload_options: &W::Options,
        factory: Factory,
    ) -> Result<Self, RunError> {
        let OfWorkload { plan, protocol, config, .. } = make;
        let extent = litmus::extent(info.name).unwrap_or(EXTENT);
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
        // One core more, on which epochs pass.
        let steps_max = if config.same_input { STEPS_MAX_OF_INPUT } else { STEPS_MAX };
        let explorer = Explorer::new(cores + 1, steps_max).map_err(|error| RunError::OutOfMemory(error.to_string()))?;
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
            same_input: config.same_input,
            state: None,
            kept: None,
        })
    }

    /// Runs executions until one is wrong, a limit of `config` is reached, or `stop` is requested.
    pub(super) fn run(mut self, config: &ExploreConfig, stop: &Stop) -> Result<Explored, RunError> {
        let started = Instant::now();
        let mut explored = self.unexplored();
        let mut strategy = strategy_of(config);
        let executions = if config.replay.is_some() { 1 } else { config.executions };
        // An exhaustive strategy tries all interleavings of one input.
        let is_exhaustive = matches!(config.strategy, StrategyChoice::Exhaustive(_)) && config.replay.is_none();
        let one_input = is_exhaustive || config.replay.is_some() || config.same_input;
        explored.exhausted = is_exhaustive.then_some(false);
        let room = usize::try_from(executions).unwrap_or(usize::MAX).min(SEEN_MAX);
        let mut seen = Fingerprints::with_capacity_and_hasher(room, BuildHasherDefault::default());
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
            let is_first_permitted = judged.permitted.is_some() && explored.permits.is_none();
            explored.count(&judged);
            if seen.len() < SEEN_MAX {
                seen.insert(judged.execution.schedule.fingerprint());
            }
            let (schedule, number) = (judged.execution.schedule, explored.executions);
            if judged.wrong.is_some() {
                explored.violated = self.info.isolation != Isolation::None;
                explored.found = Some(self.shrink(&Candidate { schedule, seed, number }, |judged| judged.wrong)?);
                break;
            }
            let is_wanted = match config.show {
                Show::Wrong => false,
                Show::Allowed => is_first_permitted,
                Show::Any => is_first_permitted || number == 1,
            };
            if is_wanted && !judged.execution.cut {
                to_show = Some(Candidate { schedule, seed, number });
            }
            if explored.livelocks == LIVELOCKS_MAX {
                break;
            }
            if strategy.is_exhausted() {
                explored.exhausted = Some(true);
                break;
            }
        }
        if let (Some(candidate), None) = (to_show, &explored.found) {
            explored.shown = Some(self.show(&candidate, explored.permits.is_some())?);
        }
        explored.state = self.state;
        explored.distinct = seen.len() as u64;
        explored.seconds = started.elapsed().as_secs_f64();
        Ok(explored)
    }

    /// Returns the result of no execution.
    fn unexplored(&self) -> Explored {
        Explored {
            protocol: self.name.clone(),
            workload: self.workload_name.clone(),
            isolation: self.info.isolation.name().into(),
            cores: self.cores,
            transactions: self.transactions,
            ..Explored::default()
        }
    }

    /// Tells an execution that is not wrong. One with an anomaly is shrunk first.
    fn show(&mut self, candidate: &Candidate, has_anomaly: bool) -> Result<Found, RunError> {
        if !has_anomaly {
            return self.tell(candidate, &candidate.schedule, |_| Some(Told::new("nothing wrong".into())));
        }
        let isolation = self.info.isolation.name();
        self.shrink(candidate, |judged: Judged| {
            let told = judged.permitted?;
            Some(Told { verdict: format!("{}, which {isolation} allows", told.verdict), ..told })
        })
    }

    /// Replays an execution with fewer and fewer switches, as long as `anomaly` still finds what to
    /// report, and reports the last such execution.
    fn shrink(&mut self, candidate: &Candidate, anomaly: impl Fn(Judged) -> Option<Told>) -> Result<Found, RunError> {
        let mut tries = 0;
        let short = shrink(candidate.schedule.clone(), |schedule| {
            tries += 1;
            if tries > SHRINKS_MAX {
                return None;
            }
            let judged = self.execute(&mut Replay::new(schedule.clone()), candidate.seed, false).ok()?;
            let schedule = judged.execution.schedule.clone();
            anomaly(judged).map(|_| schedule)
        });
        self.tell(candidate, &short, anomaly)
    }

    /// Replays `short`, the candidate's schedule after shrinking, and tells its steps.
    fn tell(
        &mut self,
        candidate: &Candidate,
        short: &Schedule,
        anomaly: impl Fn(Judged) -> Option<Told>,
    ) -> Result<Found, RunError> {
        let judged = self.execute(&mut Replay::new(short.clone()), candidate.seed, true)?;
        let (switches, schedule) = (judged.execution.schedule.switches(), judged.execution.schedule.to_string());
        let steps = show_steps(&judged.execution.trace, &judged.places);
        let Told { verdict, explanation, rows } = anomaly(judged).expect("the same schedule does the same");
        Ok(Found {
            verdict,
            explanation,
            rows,
            executions: candidate.number,
            switches_found: candidate.schedule.switches(),
            switches,
            seed: candidate.seed,
            schedule,
            steps,
        })
    }
}

impl Explored {
    /// Adds an execution to the counts.
    fn count(&mut self, judged: &Judged) {
        self.executions += 1;
        self.livelocks += u64::from(judged.execution.cut);
        self.steps += judged.execution.steps;
        self.commits += judged.commits;
        self.aborts += judged.aborts;
        self.tries = self.tries.max(judged.tries);
        if let Some(told) = &judged.permitted {
            self.permitted += 1;
            self.permits.get_or_insert_with(|| told.verdict.clone());
        }
    }
}

/// Returns the strategy of a configuration, or the replay of its schedule.
fn strategy_of(config: &ExploreConfig) -> Box<dyn Strategy> {
    match (&config.replay, &config.strategy) {
        (Some(schedule), _) => Box::new(Replay::new(schedule.clone())),
        (None, StrategyChoice::Random) => Box::new(Random::new(config.seed)),
        (None, StrategyChoice::Pct(depth)) => Box::new(Pct::new(*depth, config.seed)),
        (None, StrategyChoice::Exhaustive(bound)) => Box::new(Exhaustive::new(*bound)),
    }
}

/// Fingerprints of the schedules that were executed.
type Fingerprints = HashSet<u64, BuildHasherDefault<Identity>>;

/// Hashes a number to itself: a fingerprint is a hash already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
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
