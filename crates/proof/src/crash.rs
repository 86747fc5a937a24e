//! Crashes: what was acknowledged is there afterwards, and what is there has all that it depends
//! on.
//!
//! A test is a few transactions of a workload on a small database, one worker a core, in an order
//! of steps that is drawn by a seed, with a log on a disk that fails by the same seed
//! ([`contend_log::faulty`]), and of which checkpoints are taken. Epochs pass in the middle of
//! transactions, and workers collect tombstones between them. Index, commit-time updates and
//! timestamp splitting are drawn, unless they are given. Then the log is opened as after a crash:
//! once by a recovery that crashes itself, and twice by others; and what is found is compared with
//! the history that the engine recorded. With what is there it goes on: an engine with the
//! recovered rows, more transactions, and the next crash.
//!
//! **What has to hold.** There has to be a set of transactions that explains all rows (`explain`),
//! and the workload's check has to pass. In the end the history of all transactions that are there,
//! of before and after the crashes, is checked as any other.

mod cores;
mod explain;
mod habits;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::history::Committed;
use contend_engine::{Engine, EngineConfig, IndexKind, Isolation};
use contend_log::fault::Fault;
use contend_log::faulty::{self, FaultyDisk, Plan};
use contend_log::{CommitProtocol, Log, LogConfig, LogError, LogSinks};
use contend_sim::Simulated;
use contend_sim::explorer::{Explorer, Random, Strategy};
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use crate::explore::{Factory, factory_of};
use contend_judge::verify_history;
use contend_model::random::SplitMix64;
use contend_runner::durable::{LogMode, schema_of};
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::{ProtocolPlan, RunConfig, RunError, RunPlan, Stop};

use cores::{ErasedEngine, Finished, Moment, Shared, Transactions};
use explain::{Cells, Past, found_rows};
use habits::Habits;

/// What is to be tested.
#[derive(Clone, Debug)]
pub struct CrashConfig {
    /// Tests of each protocol.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// How often the machine crashes in a test, and goes on with what it finds.
    pub crashes: u64,
    /// Transactions of each core between two crashes.
    pub transactions: u64,
    /// Cores, besides the one that flushes epochs.
    pub cores: usize,
    /// A deliberate bug of the log, for tests of these tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
    /// The same of the engine.
    #[doc(hidden)]
    pub engine_fault: Option<contend_engine::fault::Fault>,
}

impl Default for CrashConfig {
    fn default() -> Self {
        CrashConfig { seeds: 100, seed: 1, crashes: 2, transactions: 8, cores: 3, fault: None, engine_fault: None }
    }
}

/// What came of a protocol with a commit protocol.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Crashed {
    /// The protocol, as it was written.
    pub protocol: String,
    /// The commit protocol.
    pub log: String,
    /// Tests.
    pub tests: u64,
    /// How often the disk failed, or the machine crashed, while transactions ran.
    pub failures: u64,
    /// Checkpoints that were taken while transactions ran.
    pub checkpoints: u64,
    /// Moments between two flushes of which it was looked what a crash would have left.
    pub moments: u64,
    /// Tests that were cut off because they made too many steps.
    pub cut: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Of these, were acknowledged before the end.
    pub acknowledged: u64,
    /// Others that were there after the crash.
    pub others: u64,
    /// Histories of all that was there, from the first crash to the last, that were checked.
    pub checked: u64,
    /// The first that was wrong: its seed, and what is.
    pub wrong: Option<(u64, String)>,
}

impl Crashed {
    /// Whether nothing was tested: every test was cut off, or no transaction committed. That
    /// nothing is lost then says nothing.
    pub fn is_vacuous(&self) -> bool {
        self.wrong.is_none() && (self.tests == self.cut || self.commits == 0)
    }
}

/// An execution of more steps is cut off.
const STEPS_MAX: u64 = 400_000;
/// The most cores.
pub const CORES_MAX: usize = 16;
/// The most transactions of a core between two crashes.
pub const TRANSACTIONS_MAX: u64 = 10_000;
/// The most crashes of a test.
pub const CRASHES_MAX: u64 = 100;
/// A test of this many transactions of each core meets its crash within the operations of
/// [`Plan::random`]; a longer one has more.
const SHORT: u64 = 8;

/// The names of the commit protocols.
pub const LOGS: [&str; 5] = ["epoch", "clr", "clr-group", "elr", "elr-group"];

/// Tests that can be run: entries of a plan, each with the commit protocols that it names, or else
/// with each that goes with it.
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
    /// Turns a configuration into tests. Workload, protocols, index and settings of `run` have a
    /// meaning here.
    ///
    /// # Errors
    /// A number is out of range, `run` is not valid, or there is nothing to test.
    pub fn resolve(&self, run: &RunConfig) -> Result<CrashPlan, RunError> {
        let in_range = |what: &str, value: u64, most: u64| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(RunError::BadInput(format!("{what} is {value}; valid: 1 to {most}"))),
        };
        let plan = run.resolve()?;
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
            return Err(RunError::BadInput(format!(
                "there is nothing to test: {} promises nothing, or not with this log",
                run.protocols.join(", ")
            )));
        }
        Ok(CrashPlan { plan, config: self.clone(), combinations })
    }
}

/// Returns the protocol with the commit protocol that it names, or else with each that goes with
/// it.
fn with_commit_protocols(protocol: &ProtocolPlan) -> Result<Vec<Combination>, RunError> {
    let named = protocol.sets("log.mode").then_some(protocol.log.mode);
    if named == Some(LogMode::Off) {
        return Err(RunError::BadInput(format!(
            "'{}' has log=off, and without a log a crash loses all; valid: {}, or none of them named: then each is tested",
            protocol.name,
            LOGS.join(", ")
        )));
    }
    let mut all = Vec::new();
    for mode in LogMode::ALL.into_iter().filter(|mode| named.is_none_or(|named| named == *mode)) {
        let mut protocol = protocol.clone();
        protocol.log.mode = mode;
        if !protocol.sets("log.group") {
            // Groups that are full now and then.
            protocol.log.group = 3;
        }
        protocol.log.check(true)?;
        let Some(commit) = protocol.log.commit() else { continue };
        // A protocol without isolation promises nothing.
        if protocol.info.isolation != Isolation::None && !(protocol.shows_uncommitted && commit.holds_rows()) {
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

    /// Runs all tests. `progress` is called after each.
    ///
    /// # Errors
    /// A test can't go on, or the explorer has no room.
    pub fn run(&self, stop: &Stop, progress: &(dyn Fn() + Sync)) -> Result<Vec<Crashed>, RunError> {
        let mut all = Vec::new();
        for combination in &self.combinations {
            if stop.is_requested() {
                break;
            }
            let tests = Tests { combination, config: &self.config, index: self.plan.asked_index, stop, progress };
            // A thread of its own: the memory of the machine is the host thread's.
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
/// As these two.
pub fn crash_test(
    run: &RunConfig,
    config: &CrashConfig,
    stop: &Stop,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<Crashed>, RunError> {
    config.resolve(run)?.run(stop, progress)
}

#[derive(Clone, Copy)]
struct Tests<'a> {
    combination: &'a Combination,
    config: &'a CrashConfig,
    /// The index that was asked for.
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

struct Test<'a, W: Workload> {
    tests: Tests<'a>,
    factory: Factory,
    explorer: Explorer,
    workload_options: W::Options,
}

impl<W: Workload> Test<'_, W> {
    /// One test; what is wrong, if anything is.
    fn crash(&mut self, seed: u64, crashed: &mut Crashed) -> Result<Result<(), String>, RunError> {
        let habits =
            Habits::draw::<W>(seed, self.tests.index, &self.tests.combination.protocol, &self.workload_options);
        let (mut disk, mut past) = (FaultyDisk::new(Plan::default()), Past::default());
        for crash in 0..self.tests.config.crashes {
            // Far apart, so that no test does what another does in its second part.
            let seed = seed.wrapping_add(crash << 32);
            match self.live(&disk, crash, seed, &habits, &mut past, crashed)? {
                Ok(Some(after)) => disk = after,
                // Of what was cut off nothing is known.
                Ok(None) => return Ok(Ok(())),
                Err(wrong) if crash == 0 => return Ok(Err(wrong)),
                Err(wrong) => return Ok(Err(format!("after {crash} crashes: {wrong}"))),
            }
        }
        Ok(Ok(()))
    }

    fn open(&self, disk: &FaultyDisk) -> Result<(Arc<Log>, contend_log::Recovered), LogError> {
        // Short files, and buffers that overflow.
        let config = LogConfig {
            workers: self.tests.config.cores + 2,
            segment_bytes: 4 << 10,
            buffer_bytes: 1 << 10,
            threads: 1,
            commit: self.tests.combination.commit,
            checks_order: true,
            fault: self.tests.config.fault,
            ..LogConfig::default()
        };
        Log::open(Arc::new(disk.clone()), config)
    }

    /// Goes on with what a disk has, up to the next crash; what the disk has then, or what is
    /// wrong.
    fn live(
        &mut self,
        disk: &FaultyDisk,
        number: u64,
        seed: u64,
        habits: &Habits,
        past: &mut Past,
        crashed: &mut Crashed,
    ) -> Result<Result<Option<FaultyDisk>, String>, RunError> {
        let CrashConfig { cores, crashes, transactions, .. } = *self.tests.config;
        let mut random = SplitMix64::new(seed);
        let habits = habits.of_life(&mut random);
        let (log, recovered) = match self.open(disk) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(format!("it can't be opened to go on: {error}"))),
        };
        let engine_config = EngineConfig {
            workers_max: cores + 2,
            epoch_ms: u64::MAX,
            history: true,
            partitions: W::declares(&self.workload_options).partitions.unwrap_or(1),
            options: habits.engine.clone(),
            fault: self.tests.config.engine_fault,
        };
        let sinks = LogSinks::new(&log) as Arc<dyn CommitSinks<Simulated>>;
        let engine: Arc<ErasedEngine> = Engine::with_commit_sinks((self.factory)(), engine_config, Some(sinks));
        engine.epochs().begin_at(log.first_epoch());
        let workload = Arc::new(W::create(&self.workload_options, habits.index, &engine));
        for (number, shape) in (0..).zip(engine.shapes()) {
            log.bind(number, &schema_of(shape))?;
        }
        if number == 0 {
            let mut loader = engine.loader().expect("room for it");
            let loaded = workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()));
            loaded.map_err(|error| RunError::OutOfMemory(format!("loading: {error}")))?;
            drop(loader);
            engine.epochs().try_advance();
            log.flush(engine.epochs().oldest() - 1)?;
            match self.open(&disk.after_crash(Plan::default())) {
                Ok((_, recovered)) => past.rows = found_rows(&engine, &recovered),
                Err(error) => return Ok(Err(format!("it can't be opened after loading: {error}"))),
            }
        } else {
            let mut loader = engine.reloader().expect("room for it");
            for table in &recovered.tables {
                for (key, row) in table.rows() {
                    // The numbers are the same: the tables are bound in their order.
                    let inserted = loader.insert_words(table.number, &key, row);
                    inserted.map_err(|error| RunError::OutOfMemory(format!("loading: {error}")))?;
                }
            }
            drop(loader);
            if self.isolation().keeps_invariants()
                && let Err(violation) = workload.check(&engine, &[])
            {
                return Ok(Err(format!("the workload's check failed: {violation}")));
            }
        }
        // What is loaded is there; now things go wrong.
        let mut plan = Plan::random(seed);
        let stretch = transactions.div_ceil(SHORT).max(1);
        for at in [&mut plan.crash_at, &mut plan.write_fails_at, &mut plan.sync_fails_at].into_iter().flatten() {
            *at = *at * stretch + random.below(stretch);
        }
        // What it has already leaves no less room.
        disk.fail(Plan { capacity: (plan.capacity - faulty::ROOM).saturating_add(disk.bytes()), ..plan });
        let shared = Rc::new(Shared::default());
        shared.running.set(cores);
        let mut bodies: Vec<Box<dyn FnOnce()>> = Vec::new();
        for core in 0..cores {
            let core = Transactions {
                count: transactions,
                habits: habits.clone(),
                random: SplitMix64::new(random.draw()),
                log: Arc::clone(&log),
                worker: engine.worker().expect("room for it"),
                // Nobody who was there before the crash: what is unique to them is not to come
                // again.
                client: workload.client(core + number as usize * cores, cores * crashes as usize, seed),
                workload: Arc::clone(&workload),
            };
            let shared = Rc::clone(&shared);
            bodies.push(Box::new(move || core.run(&shared)));
        }
        {
            let (log, engine, shared) = (Arc::clone(&log), Arc::clone(&engine), Rc::clone(&shared));
            let (disk, habits, mut random) = (disk.clone(), habits.clone(), SplitMix64::new(random.draw()));
            bodies.push(Box::new(move || cores::flush(&engine, &log, &disk, &habits, &mut random, &shared)));
        }
        if let Some(pauses) = habits.epoch_pauses {
            let (engine, shared) = (Arc::clone(&engine), Rc::clone(&shared));
            bodies.push(Box::new(move || cores::advance(&engine, pauses, &shared)));
        }
        let mut strategy = Random::new(seed);
        strategy.begin(bodies.len());
        let execution = self.explorer.execute(bodies, &mut strategy, false);
        if let Some(reason) = shared.stuck.get() {
            let protocol = self.tests.combination.protocol.name.clone();
            return Err(RunError::Stuck { protocol, reason });
        }
        if execution.cut {
            crashed.cut += 1;
            return Ok(Ok(None));
        }
        crashed.failures += u64::from(log.check().is_err());
        crashed.checkpoints += shared.checkpoints.get();
        let (mut committed, mut acknowledged): (Vec<Committed>, _) = (Vec::new(), shared.acknowledged.take());
        for Finished { mut worker, waiting } in shared.finished.take() {
            let durable = waiting.iter().filter(|ticket| ticket.is_durable(&mut worker, &log));
            acknowledged.extend(durable.map(|ticket| ticket.txn));
            committed.extend(worker.take_history());
            // What it does at its end comes too late.
            disk.fail(Plan { crash_at: Some(0), ..Plan::default() });
        }
        crashed.commits += committed.len() as u64;
        crashed.acknowledged += acknowledged.len() as u64;
        for Moment { disk, acknowledged } in shared.moments.take() {
            crashed.moments += 1;
            let outcome = match self.open(&disk) {
                Ok((_, recovered)) => past.explains(&committed, &acknowledged, &found_rows(&engine, &recovered)),
                Err(error) => Err(format!("it can't be opened: {error}")),
            };
            if let Err(wrong) = outcome {
                return Ok(Err(format!("after a crash between two flushes: {wrong}")));
            }
        }
        let after = disk.after_crash(Plan::default());
        let found = match self.recover(&after, &engine, seed) {
            Ok(found) => found,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let there = match past.explain(committed, &acknowledged, found) {
            Ok(there) => there,
            Err(wrong) => return Ok(Err(wrong)),
        };
        crashed.others += (there - acknowledged.len()) as u64;
        if number + 1 == crashes
            && let Some(recorded) = past.recorded(&engine)
        {
            crashed.checked += 1;
            let verification = verify_history(&recorded, self.isolation());
            if !verification.passed {
                let explanation = verification.explanation.unwrap_or_default();
                return Ok(Err(format!("what is there is {}: {explanation}", verification.verdict)));
            }
        }
        Ok(Ok(Some(after)))
    }

    fn isolation(&self) -> Isolation {
        self.tests.combination.protocol.info.isolation
    }

    /// What is found on a disk after a crash: by a recovery that crashes, by one that does not, and
    /// by another after that.
    fn recover(&self, disk: &FaultyDisk, engine: &ErasedEngine, seed: u64) -> Result<Cells, String> {
        let open = |disk: &FaultyDisk, which: &str| match self.open(disk) {
            Ok((_, recovered)) => Ok(found_rows(engine, &recovered)),
            Err(error) => Err(format!("it can't be opened {which}: {error}")),
        };
        let torn = disk.after_crash(Plan { capacity: u64::MAX, ..Plan::random(!seed) });
        // It may get to its end.
        let _ = self.open(&torn);
        let after_torn = open(&torn.after_crash(Plan::default()), "after a recovery that crashed")?;
        let found = open(disk, "after the crash")?;
        let again = open(&disk.after_crash(Plan::default()), "a second time")?;
        match () {
            () if again != found => Err("a second recovery finds something else".into()),
            () if after_torn != found => Err("a recovery after one that crashed finds something else".into()),
            () => Ok(found),
        }
    }
}
