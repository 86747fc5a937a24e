//! Looks for an interleaving under which a protocol breaks its promise, and shows it.
//!
//! An execution is a few transactions of a workload on a small database, with one worker per core.
//! A strategy chooses the order of their steps. The history of the execution is judged like any
//! other. A wrong execution is replayed with fewer and fewer switches between cores, as long as it
//! stays wrong.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `exploration` | the loop over executions, their counts, and the shrinking of a wrong one |
//! | `execution` | one execution: what it runs on, what the cores run, the judgement |
//! | `steps` | the steps of an execution in words |

mod execution;
mod exploration;
mod steps;

use std::str::FromStr;
use std::time::Duration;

use contend_engine::fault::Fault;
use contend_engine::{Erased, NamedProtocol};
use contend_model::counted;
use contend_protocols::fault::Chosen;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::{ProtocolPlan, RunConfig, RunError, RunPlan, Stop};
use contend_sim::Simulated;
use contend_sim::explorer::Schedule;
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use exploration::Exploration;

/// How the next core is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// At random.
    Random,
    /// By random priorities, which change at one step less than this number.
    Pct(usize),
    /// In every way that has at most this number of preemptions.
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
    /// A wrong one.
    Wrong,
    /// If none is wrong, the first with an anomaly that the promise allows.
    Allowed,
    /// If there is no such anomaly either, the first of all.
    Any,
}

/// How to explore.
#[derive(Clone, Debug)]
pub struct ExploreConfig {
    /// The most executions, at least 1.
    pub executions: u64,
    /// The most time.
    pub budget: Option<Duration>,
    /// How the next core is chosen.
    pub strategy: StrategyChoice,
    /// Transactions of each core, 1 to [`TRANSACTIONS_MAX`]; by default the number that the litmus
    /// test is made for, or two.
    pub transactions: Option<u64>,
    /// Cores, 1 to [`CORES_MAX`]; by default the number that the litmus test is made for, or three.
    pub cores: Option<usize>,
    /// Seed of the strategy and of the workload; each execution has the next seed.
    pub seed: u64,
    /// Replay this schedule, once, instead of following the strategy.
    pub replay: Option<Schedule>,
    /// Which executions are shown step by step.
    pub show: Show,
    /// All executions have the input of [`ExploreConfig::seed`], and must end in the same state. No
    /// core pauses between its transactions.
    pub same_input: bool,
    /// Build everything anew for each execution, and judge each by the checker. This is slow. It
    /// is for tests of what the explorer takes back and of the quick proof.
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
            same_input: false,
            anew: false,
            fault: None,
        }
    }
}

/// The most cores.
pub const CORES_MAX: usize = 64;
/// The most transactions of a core.
pub const TRANSACTIONS_MAX: u64 = 1000;

/// An interleaving, told step by step.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// What is wrong, or which anomaly it has, in one line.
    pub verdict: String,
    /// The explanation of the anomaly.
    pub explanation: Option<String>,
    /// If the anomaly is a cycle, its rows as the steps name them: `TABLE[KEY]`.
    pub rows: Vec<String>,
    /// Executions until it was found, this one included.
    pub executions: u64,
    /// Switches between cores when it was found.
    pub switches_found: usize,
    /// Switches after shrinking: no switch could be left out.
    pub switches: usize,
    /// The seed of its workload.
    pub seed: u64,
    /// Its schedule, which replays it.
    pub schedule: String,
    /// Its steps.
    pub steps: Vec<ShownStep>,
}

/// A step in words, or several successive steps with the same words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownStep {
    /// The number of the first of these steps, from 1.
    pub number: u64,
    /// The core. The number after the last core's stands for the core on which epochs pass.
    pub core: usize,
    /// The step.
    pub text: String,
}

/// The result of exploring one protocol on one workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explored {
    /// The protocol with its options, as it was written.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// The isolation level that the protocol promises.
    pub isolation: String,
    /// Cores.
    pub cores: usize,
    /// Transactions of each core.
    pub transactions: u64,
    /// Executions.
    pub executions: u64,
    /// Executions whose steps had an order that no earlier one had; counted up to 2^22.
    pub distinct: u64,
    /// Executions that were cut off, since their transactions waited for each other for ever.
    pub livelocks: u64,
    /// Steps of all executions.
    pub steps: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Tries that a conflict aborted.
    pub aborts: u64,
    /// The most tries of a transaction.
    pub tries: u32,
    /// Whether an exhaustive strategy has tried all its interleavings. `None`: the strategy draws
    /// them, and has no end.
    pub exhausted: Option<bool>,
    /// The time that it took, in seconds.
    pub seconds: f64,
    /// The final state of all executions, as a hash, if all have had the same input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<u64>,
    /// Whether the finding breaks a promise.
    pub violated: bool,
    /// Executions with an anomaly that the promise allows.
    pub permitted: u64,
    /// The first of these anomalies, in words.
    pub permits: Option<String>,
    /// The first wrong execution.
    pub found: Option<Found>,
    /// If no execution is wrong: the one that [`ExploreConfig::show`] asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<Found>,
}

impl ExploreConfig {
    /// Checks that the numbers are in their ranges.
    ///
    /// # Errors
    /// The first number that is out of its range; the message names the range.
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
                refuse("the schedule is empty; valid: cores and their numbers of steps, as in 0x5,1x3,0".into())
            }
            _ => Ok(()),
        }
    }
}

impl Explored {
    /// Whether nothing was tested: no execution, or none in which a transaction committed. Then
    /// the absence of findings proves nothing.
    pub fn is_vacuous(&self) -> bool {
        self.commits == 0 && self.found.is_none()
    }

    /// Returns the result in one line.
    pub fn verdict(&self) -> String {
        match &self.found {
            Some(found) if self.violated => format!("WRONG: {}", found.verdict),
            Some(found) => found.verdict.clone(),
            None if self.is_vacuous() => match self.executions {
                0 => "NOTHING TESTED: the time was over before the first execution".into(),
                _ => "NOTHING TESTED: no transaction committed".into(),
            },
            None => {
                let extent = match self.exhausted {
                    Some(true) => "in all interleavings of the strategy",
                    Some(false) => "found, but the strategy has more interleavings",
                    None => "found",
                };
                let permitted = match &self.permits {
                    Some(first) => {
                        format!(
                            "; {} had an anomaly that it allows, the first {first}",
                            counted(self.permitted, "execution")
                        )
                    }
                    None => String::new(),
                };
                format!("{}: nothing wrong {extent}{permitted}", self.isolation)
            }
        }
    }
}

/// Explores each entry of a plan on its workload. The plan's machine, threads and windows are not
/// used.
///
/// # Errors
/// A number of `config` is out of its range, the schedule to replay does not suit the workload, the
/// explorer has no memory, or transactions abort for a reason that does not go away.
pub fn explore(plan: &RunPlan, config: &ExploreConfig, stop: &Stop) -> Result<Vec<Explored>, RunError> {
    config.check()?;
    plan.refuse_in_flight("an exploration")?;
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

/// Explores a protocol that need not be registered, such as one with a deliberate bug.
///
/// # Errors
/// As [`explore`]; or `run` is not valid.
pub fn explore_protocol<P: NamedProtocol<Simulated>>(
    run: &RunConfig,
    config: &ExploreConfig,
) -> Result<Explored, RunError> {
    config.check()?;
    let plan = run.resolve()?;
    plan.refuse_in_flight("an exploration")?;
    let (protocol, options) = ProtocolPlan::with_options::<P, Simulated>(&plan.config.settings)?;
    let make = OfWorkload { plan: &plan, protocol: &protocol, config, stop: &Stop::default() };
    on_own_thread(make, || Box::new(move || Erased::new(P::new(options.clone()))))
}

/// Explores on a thread of its own, since the explorer's machine keeps its memory per host thread.
/// The thread has the fault that this one has chosen.
fn on_own_thread(make: OfWorkload<'_>, factory: impl FnOnce() -> Factory + Send) -> Result<Explored, RunError> {
    let fault = Chosen::id();
    let explore = move || make.plan.workload.visit(OnWorkload { make, protocol: factory() });
    std::thread::scope(|scope| {
        let explored = scope.spawn(move || Chosen::during(fault, explore));
        explored.join().expect("an exploration does not panic")
    })
}

/// Makes the protocol of an execution. The protocol is behind a pointer, so that the exploration is
/// compiled once for all protocols.
pub(crate) type Factory = Box<dyn Fn() -> Erased<Simulated>>;

/// Returns the factory of a planned protocol.
pub(crate) fn factory_of(protocol: &ProtocolPlan) -> Factory {
    let protocol = protocol.clone();
    Box::new(move || protocol.erased())
}

/// What an exploration is made from, once its workload is known.
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
