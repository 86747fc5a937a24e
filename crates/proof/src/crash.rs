//! Crash tests: after a crash every acknowledged transaction is there, and every transaction that
//! is there has all those that it depends on.
//!
//! A test runs a few transactions of a workload on a small database, with one worker per core. A
//! seed draws the order of their steps. The database has a log on a disk that fails by the same
//! seed ([`contend_log::faulty`]), and checkpoints are taken of it. Epochs pass in the middle of
//! transactions, and workers collect tombstones between them. Index, commit-time updates and
//! timestamp splitting are drawn, unless they are given.
//!
//! Then the machine crashes, and the log is opened: by a recovery that crashes itself, and twice by
//! others. The rows that they find are compared with the history that the engine recorded. The test
//! goes on with the recovered rows: more transactions, and the next crash.
//!
//! **What has to hold.** A set of transactions explains all rows (`explain`), and the workload's
//! check passes. After the last crash, the history of all transactions that are there, from before
//! and after the crashes, is checked like any other.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `life` | a test: lives of a database, each ended by a crash |
//! | `cores` | what each core of a life runs |
//! | `explain` | which transactions are there after a crash |
//! | `habits` | what differs from test to test |

mod cores;
mod explain;
mod habits;
mod life;

use contend_engine::{IndexKind, Isolation};
use contend_log::CommitProtocol;
use contend_log::fault::Fault;
use contend_sim::explorer::Explorer;
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use crate::explore::factory_of;
use contend_runner::durable::LogMode;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::{ProtocolPlan, RunConfig, RunError, RunPlan, Stop};

use life::Test;

/// How to test.
#[derive(Clone, Debug)]
pub struct CrashConfig {
    /// Tests of each protocol with each commit protocol, at least 1.
    pub seeds: u64,
    /// The first seed; each test has the next seed.
    pub seed: u64,
    /// Crashes in a test, 1 to [`CRASHES_MAX`]. After each the test goes on with the recovered
    /// database.
    pub crashes: u64,
    /// Transactions of each core between two crashes, 1 to [`TRANSACTIONS_MAX`].
    pub transactions: u64,
    /// Cores that run transactions, 1 to [`CORES_MAX`].
    pub cores: usize,
    /// A deliberate bug of the log, for tests of these tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for CrashConfig {
    fn default() -> Self {
        CrashConfig { seeds: 100, seed: 1, crashes: 2, transactions: 8, cores: 3, fault: None }
    }
}

/// The result of testing a protocol with a commit protocol.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Crashed {
    /// The protocol with its options, as it was written.
    pub protocol: String,
    /// The commit protocol, a name of [`LOGS`].
    pub log: String,
    /// Tests.
    pub tests: u64,
    /// Failures of the disk or crashes of the machine while transactions ran.
    pub failures: u64,
    /// Checkpoints that were taken while transactions ran.
    pub checkpoints: u64,
    /// Moments between two flushes at which a copy of the disk crashed and was recovered.
    pub moments: u64,
    /// Tests that were cut off because they had too many steps.
    pub cut: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions among these that were acknowledged before the crash.
    pub acknowledged: u64,
    /// Other transactions that were there after the crash.
    pub others: u64,
    /// Histories that were checked, each of all transactions that were there after a test's last
    /// crash.
    pub checked: u64,
    /// The seed of the first wrong test, and what is wrong.
    pub wrong: Option<(u64, String)>,
}

impl Crashed {
    /// Whether nothing was tested: every test was cut off, or no transaction was acknowledged
    /// before a crash. Then the absence of findings proves nothing.
    pub fn is_vacuous(&self) -> bool {
        self.wrong.is_none() && (self.tests == self.cut || self.acknowledged == 0)
    }
}

/// The most steps between two crashes; a longer test is cut off.
const STEPS_MAX: u64 = 400_000;
/// The most cores.
pub const CORES_MAX: usize = 16;
/// The most transactions of a core between two crashes.
pub const TRANSACTIONS_MAX: u64 = 10_000;
/// The most crashes of a test.
pub const CRASHES_MAX: u64 = 100;
/// The names of the commit protocols.
pub const LOGS: [&str; 5] = ["epoch", "clr", "clr-group", "elr", "elr-group"];

/// Tests that can be run: entries of a plan, each with the commit protocol that it names, or else
/// with every one that it supports.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    plan: RunPlan,
    config: CrashConfig,
    combinations: Vec<Combination>,
}

/// A protocol with a commit protocol.
#[derive(Clone, Debug)]
struct Combination {
    protocol: ProtocolPlan,
    log: &'static str,
    commit: CommitProtocol,
}

impl CrashConfig {
    /// Turns a configuration into tests. Of `run`, the workload, protocols, index and settings are
    /// used.
    ///
    /// # Errors
    /// A number is out of its range, `run` is not valid, or there is nothing to test.
    pub fn resolve(&self, run: &RunConfig) -> Result<CrashPlan, RunError> {
        let in_range = |what: &str, value: u64, most: u64| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(RunError::BadInput(format!("{what} is {value}; valid: 1 to {most}"))),
        };
        let plan = run.resolve()?;
        plan.refuse_in_flight("a crash test")?;
        in_range("cores", self.cores as u64, CORES_MAX as u64)?;
        in_range("crashes", self.crashes, CRASHES_MAX)?;
        if self.seeds == 0 {
            return Err(RunError::BadInput("seeds is 0; valid: 1 or more".into()));
        }
        in_range("transactions", self.transactions, TRANSACTIONS_MAX)?;
        let mut combinations = Vec::new();
        for protocol in &plan.protocols {
            combinations.extend(with_commit_protocols(protocol)?);
        }
        if combinations.is_empty() {
            let protocols = run.protocols.join(", ");
            let or_else = || format!("{protocols} promises no isolation, or does not support this log");
            let why = plan.refusal_of_logs().unwrap_or_else(or_else);
            return Err(RunError::BadInput(format!("there is nothing to test: {why}")));
        }
        Ok(CrashPlan { plan, config: self.clone(), combinations })
    }
}

/// Returns the protocol with the commit protocol that it names, or else with every one that it
/// supports.
fn with_commit_protocols(protocol: &ProtocolPlan) -> Result<Vec<Combination>, RunError> {
    let named = protocol.sets("log.mode").then_some(protocol.log.mode);
    if named == Some(LogMode::Off) {
        return Err(RunError::BadInput(format!(
            "'{}' has log=off, and without a log a crash loses everything; valid: {}, or no log=...: then each is tested",
            protocol.name,
            LOGS.join(", ")
        )));
    }
    let mut all = Vec::new();
    for mode in LogMode::ALL.into_iter().filter(|mode| named.is_none_or(|named| named == *mode)) {
        let mut protocol = protocol.clone();
        protocol.log.mode = mode;
        if !protocol.sets("log.group") {
            // Groups are so small that some fill up.
            protocol.log.group = 3;
        }
        protocol.log.check(true)?;
        let Some(commit) = protocol.log.commit() else { continue };
        // A protocol without isolation has no promise that a test could break.
        let is_refused = protocol.refuses_log.is_some() || protocol.shows_uncommitted && commit.holds_rows();
        if protocol.info.isolation != Isolation::None && !is_refused {
            all.push(Combination { protocol, log: mode.name(), commit });
        }
    }
    Ok(all)
}

impl CrashPlan {
    /// Returns the number of tests.
    pub fn tests(&self) -> u64 {
        self.config.seeds.saturating_mul(self.combinations.len() as u64)
    }

    /// Returns the plan of the protocols that are tested.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Runs all tests, and calls `progress` after each.
    ///
    /// # Errors
    /// A test can't go on, or the explorer has no memory.
    pub fn run(&self, stop: &Stop, progress: &(dyn Fn() + Sync)) -> Result<Vec<Crashed>, RunError> {
        let mut all = Vec::new();
        for combination in &self.combinations {
            if stop.is_requested() {
                break;
            }
            let tests = Tests { combination, config: &self.config, index: self.plan.asked_index, stop, progress };
            // A thread of its own, since the explorer's machine keeps its memory per host thread.
            let crashed = std::thread::scope(|scope| {
                let one = move || self.plan.workload.visit(tests);
                scope.spawn(one).join().expect("a test does not panic")
            })?;
            all.push(crashed);
        }
        Ok(all)
    }
}

/// Runs the tests of a configuration: [`CrashConfig::resolve`] and [`CrashPlan::run`].
///
/// # Errors
/// As those of the two.
pub fn crash_test(
    run: &RunConfig,
    config: &CrashConfig,
    stop: &Stop,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<Crashed>, RunError> {
    config.resolve(run)?.run(stop, progress)
}

/// The tests of a combination, once its workload is known.
#[derive(Clone, Copy)]
struct Tests<'a> {
    combination: &'a Combination,
    config: &'a CrashConfig,
    /// The index, if the configuration names one.
    index: Option<IndexKind>,
    stop: &'a Stop,
    progress: &'a (dyn Fn() + Sync),
}

impl PlannedWorkloadVisitor for Tests<'_> {
    type Output = Result<Crashed, RunError>;

    fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> Self::Output {
        let Tests { combination, config, stop, progress, .. } = self;
        let explorer = Explorer::new(config.cores + 2, STEPS_MAX);
        let mut test = Test::<W> {
            tests: self,
            factory: factory_of(&combination.protocol),
            explorer: explorer.map_err(|error| RunError::OutOfMemory(error.to_string()))?,
            workload_options: W::for_verification(options),
        };
        let mut crashed =
            Crashed { protocol: combination.protocol.name.clone(), log: combination.log.into(), ..Crashed::default() };
        for seed in (config.seed..).take(usize::try_from(config.seeds).unwrap_or(usize::MAX)) {
            if stop.is_requested() {
                break;
            }
            let outcome = test.crash(seed, &mut crashed)?;
            crashed.tests += 1;
            progress();
            if let Err(wrong) = outcome {
                crashed.wrong = Some((seed, wrong));
                break;
            }
        }
        Ok(crashed)
    }
}
