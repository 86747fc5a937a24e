//! Crashes: what was acknowledged is there afterwards, and what is there has all that it depends on.
//!
//! A test is a few transactions of a workload on a small database, one worker a core, in an order of steps that is drawn by a seed, with a log on
//! a disk that fails by the same seed ([`contend_log::faulty`]). Then the log is opened as after a crash, twice, and what is found is compared with
//! the history that the engine recorded.
//!
//! **What has to hold.** There has to be a set of transactions that explains all rows: it has every transaction that was acknowledged, and every one
//! whose writes another of the set has seen, and each row is as the last of the set left it that wrote it, in the order of its versions. The least
//! such set is looked for: first what was acknowledged; then, as long as a row differs, the next that could have left it as it is; and always what
//! these have seen. If a row differs and nothing could have left it so, it was lost, or is there without what it depends on.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use contend_engine::history::{Applied, Committed, Operation, Part, fingerprint};
use contend_engine::journal::Journals;
use contend_engine::{
    AbortReason, Engine, EngineConfig, EngineOptions, Erased, IndexKind, Isolation, KeyWords, Protocol, Worker,
};
use contend_log::fault::Fault;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{CommitProtocol, Log, LogConfig, LogError, LogJournals, Recovered};
use contend_machine::Machine;
use contend_protocols::{ProtocolVisitor, with_protocol};
use contend_sim::Simulated;
use contend_sim::explorer::{Explorer, Random, Strategy};
use contend_workloads::{Workload, WorkloadInfo, WorkloadVisitor, with_workload};
use serde::Serialize;

use crate::config::{LabError, RunConfig, options};
use crate::durable::{LogOptions, schema_of};
use crate::explore::{Factory, MakeFactory};
use crate::watch::Stop;

/// What is to be tested.
#[derive(Clone, Debug)]
pub struct CrashConfig {
    /// Tests of each protocol.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// Transactions of each core.
    pub transactions: u64,
    /// Cores, besides the one that flushes epochs.
    pub cores: usize,
    /// A deliberate bug of the log, for tests of these tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for CrashConfig {
    fn default() -> Self {
        CrashConfig { seeds: 100, seed: 1, transactions: 8, cores: 3, fault: None }
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
    /// Of these, the disk failed, or the machine crashed, while transactions ran.
    pub failures: u64,
    /// Tests that were cut off because they made too many steps.
    pub cut: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Of these, were acknowledged before the end.
    pub acknowledged: u64,
    /// Others that were there after the crash.
    pub others: u64,
    /// The first that was wrong: its seed, and what is.
    pub wrong: Option<(u64, String)>,
}

/// An execution of more steps is cut off.
const STEPS_MAX: u64 = 400_000;
/// A core whose transaction aborts more often gives it up.
const TRIES_MAX: u32 = 64;
/// The most cores.
pub const CORES_MAX: usize = 16;

/// The names of the commit protocols.
pub const LOGS: [&str; 5] = ["epoch", "clr", "clr-group", "elr", "elr-group"];

/// A protocol with a commit protocol.
struct Combination {
    protocol: String,
    name: String,
    log: &'static str,
    commit: CommitProtocol,
    settings: BTreeMap<String, String>,
}

/// Each protocol of the configuration with the commit protocol that it names, or else with each that goes with it.
fn combinations(run: &RunConfig, config: &CrashConfig) -> Result<Vec<Combination>, LabError> {
    if !(1..=CORES_MAX).contains(&config.cores) {
        return Err(LabError::BadInput(format!("cores is {}; valid: 1 to {CORES_MAX}", config.cores)));
    }
    let mut all = Vec::new();
    for entrant in run.entrants()? {
        let named = entrant.settings.get("log").filter(|log| *log != "off");
        for log in LOGS.into_iter().filter(|log| named.is_none_or(|named| named == log)) {
            let mut settings = entrant.settings.clone();
            settings.insert("log".into(), log.into());
            // Groups that are full now and then.
            settings.entry("log.group".into()).or_insert_with(|| "3".into());
            let options = options::<LogOptions>(&[], &settings)?;
            options.check(true)?;
            let Some(commit) = options.commit() else { continue };
            let info = with_protocol::<Simulated, _>(&entrant.protocol, Promises).expect("it is validated");
            // What has no isolation promises nothing.
            if info.0 != Isolation::None && !(info.1 && commit.holds_rows()) {
                let (protocol, name) = (entrant.protocol.clone(), entrant.name.clone());
                all.push(Combination { protocol, name, log, commit, settings });
            }
        }
    }
    Ok(all)
}

/// How many tests there are of a configuration.
///
/// # Errors
/// Bad input.
pub fn tests(run: &RunConfig, config: &CrashConfig) -> Result<u64, LabError> {
    Ok(config.seeds.saturating_mul(combinations(&run.validated()?, config)?.len() as u64))
}

/// Tests each protocol of the configuration on its workload with the commit protocol that it names, or else with each. What is taken of it: workload,
/// protocols, index, settings. `progress` is told of each test.
///
/// # Errors
/// Bad input.
pub fn crash_test(
    run: &RunConfig,
    config: &CrashConfig,
    stop: &Stop,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<Crashed>, LabError> {
    let run = run.validated()?;
    let mut all = Vec::new();
    for Combination { protocol, name, log, commit, settings } in combinations(&run, config)? {
        if stop.is_requested() {
            break;
        }
        // A thread of its own: the memory of the machine is the host thread's.
        let crashed = std::thread::scope(|scope| {
            let (run, protocol, name, settings) = (&run, &protocol, &name, &settings);
            let one = move || {
                let factory = with_protocol::<Simulated, _>(protocol, MakeFactory(settings));
                let factory = factory.expect("the configuration is validated")?;
                let tests = Tests { run, name, log, settings, protocol: commit, config, stop, progress };
                with_workload::<Simulated, _>(&run.workload, OnWorkload { tests, factory }).transpose()
            };
            scope.spawn(one).join().expect("a test does not panic")
        })?;
        all.extend(crashed);
    }
    Ok(all)
}

/// What a protocol promises, and whether it shows what has not committed.
struct Promises;

impl ProtocolVisitor<Simulated> for Promises {
    type Output = (Isolation, bool);

    fn visit<P: Protocol<Simulated>>(self) -> Self::Output {
        (P::INFO.isolation, P::SHOWS_UNCOMMITTED)
    }
}

#[derive(Clone, Copy)]
struct Tests<'a> {
    run: &'a RunConfig,
    name: &'a str,
    log: &'a str,
    settings: &'a BTreeMap<String, String>,
    protocol: CommitProtocol,
    config: &'a CrashConfig,
    stop: &'a Stop,
    progress: &'a (dyn Fn() + Sync),
}

struct OnWorkload<'a> {
    tests: Tests<'a>,
    factory: Factory,
}

impl WorkloadVisitor<Simulated> for OnWorkload<'_> {
    type Output = Result<Crashed, LabError>;

    fn visit<W: Workload<Simulated>>(self, info: WorkloadInfo) -> Self::Output {
        let OnWorkload { tests, factory } = self;
        let Tests { name, log, config, stop, .. } = tests;
        let explorer = Explorer::new(config.cores + 1, STEPS_MAX);
        let mut test = Test::<W> {
            tests,
            factory,
            explorer: explorer.map_err(|error| LabError::BadInput(error.to_string()))?,
            engine_options: options::<EngineOptions>(&[], tests.settings)?,
            workload_options: W::for_verification(&options::<W::Options>(info.preset, tests.settings)?),
            index: tests.run.index_kind(),
        };
        let mut crashed = Crashed { protocol: name.into(), log: log.into(), ..Crashed::default() };
        for seed in (config.seed..).take(usize::try_from(config.seeds).unwrap_or(usize::MAX)) {
            if stop.is_requested() {
                break;
            }
            let outcome = test.crash(seed, &mut crashed)?;
            crashed.tests += 1;
            (tests.progress)();
            if let Err(wrong) = outcome {
                crashed.wrong = Some((seed, wrong));
                break;
            }
        }
        Ok(crashed)
    }
}

type ErasedWorker = Worker<Erased<Simulated>, Simulated>;

/// What the workers of a test leave behind.
#[derive(Default)]
struct Left {
    /// With the numbers and tickets of their transactions.
    workers: Vec<(ErasedWorker, Vec<(u64, u64)>)>,
    /// An abort that will not go away.
    stuck: Option<AbortReason>,
}

struct Test<'a, W: Workload<Simulated>> {
    tests: Tests<'a>,
    factory: Factory,
    explorer: Explorer,
    engine_options: EngineOptions,
    workload_options: W::Options,
    index: IndexKind,
}

/// What a transaction did to a row, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Whose version it replaced; 0: nobody's.
    over: u64,
    /// The fingerprint of what it left; none: it has deleted it.
    value: Option<u64>,
}

type Cells = BTreeMap<(Part, KeyWords), Option<u64>>;

impl<W: Workload<Simulated>> Test<'_, W> {
    /// One test; what is wrong, if anything is.
    fn crash(&mut self, seed: u64, crashed: &mut Crashed) -> Result<Result<(), String>, LabError> {
        let CrashConfig { cores, transactions, fault, .. } = *self.tests.config;
        let disk = FaultyDisk::new(Plan::default());
        // Short files, and buffers that overflow.
        let log_config = LogConfig {
            workers: cores + 2,
            segment_bytes: 4 << 10,
            buffer_bytes: 1 << 10,
            threads: 1,
            commit: self.tests.protocol,
            fault,
            ..LogConfig::default()
        };
        let open = |disk: &FaultyDisk| Log::open(Arc::new(disk.clone()), log_config.clone());
        let (log, _) = open(&disk)?;
        let engine_config = EngineConfig {
            workers_max: cores + 2,
            epoch_ms: u64::MAX,
            history: true,
            partitions: W::declares(&self.workload_options).partitions.unwrap_or(1),
            options: self.engine_options.clone(),
        };
        let journals = LogJournals::new(&log) as Arc<dyn Journals<Simulated>>;
        let engine = Engine::with_journals((self.factory)(), engine_config, Some(journals));
        engine.epochs().begin_at(log.first_epoch());
        let workload = Arc::new(W::create(&self.workload_options, self.index, &engine));
        for (number, shape) in (0..).zip(engine.shapes()) {
            log.bind(number, &schema_of(shape))?;
        }
        let mut loader = engine.loader().expect("room for it");
        let loaded = workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()));
        loaded.map_err(|error| LabError::BadInput(format!("loading: {error}")))?;
        drop(loader);
        engine.epochs().try_advance();
        log.flush(engine.epochs().oldest() - 1)?;
        let first = match open(&disk.after_crash(Plan::default())) {
            Ok((_, recovered)) => found_rows(&engine, &recovered),
            Err(error) => return Ok(Err(format!("it can't be opened after loading: {error}"))),
        };
        // What is loaded is there; now things go wrong.
        disk.fail(Plan::random(seed));
        let left = Rc::new(RefCell::new(Left::default()));
        let ended = Rc::new(Cell::new(0));
        let mut bodies: Vec<Box<dyn FnOnce()>> = Vec::new();
        for core in 0..cores {
            let worker = engine.worker().expect("room for it");
            let client = workload.client(core, cores, seed);
            let (workload, left, ended) = (Arc::clone(&workload), Rc::clone(&left), Rc::clone(&ended));
            bodies.push(Box::new(move || {
                run_core::<W>(transactions, &workload, worker, client, &left);
                ended.set(ended.get() + 1);
            }));
        }
        {
            let (log, engine, ended) = (Arc::clone(&log), Arc::clone(&engine), Rc::clone(&ended));
            bodies.push(Box::new(move || {
                while ended.get() < cores {
                    Simulated::step("flush the epoch");
                    engine.epochs().try_advance();
                    let settled = engine.epochs().oldest() - 1;
                    if settled > log.durable() && log.flush(settled).is_err() {
                        return;
                    }
                    Simulated::pause();
                }
            }));
        }
        let mut strategy = Random::new(seed);
        strategy.begin(cores + 1);
        let execution = self.explorer.execute(bodies, &mut strategy, false);
        let Left { workers, stuck } = left.take();
        if let Some(reason) = stuck {
            let name = self.tests.name;
            return Err(LabError::BadInput(format!("{name} could not go on: transactions abort by {reason}")));
        }
        if execution.cut {
            crashed.cut += 1;
            return Ok(Ok(()));
        }
        crashed.failures += u64::from(log.check().is_err());
        let (mut committed, mut acknowledged) = (Vec::new(), BTreeSet::new());
        for (mut worker, tickets) in workers {
            let durable = tickets.into_iter().filter(|(_, ticket)| worker.is_durable(*ticket)).map(|(txn, _)| txn);
            acknowledged.extend(durable.collect::<Vec<_>>());
            committed.extend(worker.take_history());
            // What it does at its end comes too late.
            disk.fail(Plan { crash_at: Some(0), ..Plan::default() });
        }
        crashed.commits += committed.len() as u64;
        crashed.acknowledged += acknowledged.len() as u64;
        let after = disk.after_crash(Plan::default());
        let recovered = match open(&after) {
            Ok((_, recovered)) => recovered,
            Err(error) => return Ok(Err(format!("it can't be opened after the crash: {error}"))),
        };
        match open(&after.after_crash(Plan::default())) {
            Ok((_, again)) if found_rows(&engine, &again) == found_rows(&engine, &recovered) => {}
            Ok(_) => return Ok(Err("a second recovery finds something else".into())),
            Err(error) => return Ok(Err(format!("it can't be opened a second time: {error}"))),
        }
        let found = found_rows(&engine, &recovered);
        Ok(explain(&committed, &acknowledged, &first, &found).map(|there| {
            crashed.others += (there - acknowledged.len()) as u64;
        }))
    }
}

fn run_core<W: Workload<Simulated>>(
    transactions: u64,
    workload: &W,
    mut worker: ErasedWorker,
    mut client: W::Client,
    left: &RefCell<Left>,
) {
    let (mut input, mut tickets) = (W::Input::default(), Vec::new());
    for _ in 0..transactions {
        workload.next(&mut client, &mut input);
        for _ in 0..TRIES_MAX {
            let mut number = 0;
            let declare = |declaration: &mut _| workload.declare(&input, declaration);
            let outcome = worker.run_declared(declare, |tx| {
                number = tx.number();
                workload.execute(tx, &mut client, &input)
            });
            match outcome {
                Ok(()) => {
                    workload.committed(&mut client, &input);
                    tickets.push((number, worker.ticket()));
                    break;
                }
                Err(abort) if abort.reason == AbortReason::User => break,
                Err(abort) if !abort.reason.is_conflict() => {
                    left.borrow_mut().stuck = Some(abort.reason);
                    return;
                }
                Err(_) => {
                    Simulated::step("try again");
                    Simulated::pause();
                }
            }
        }
    }
    worker.go_offline();
    left.borrow_mut().workers.push((worker, tickets));
}

/// All rows that were recovered, in the parts that the engine knows of.
fn found_rows(engine: &Engine<Erased<Simulated>, Simulated>, recovered: &Recovered) -> Cells {
    let parts: Vec<Part> = engine.parts().into_iter().map(|(part, _)| part).collect();
    let mut cells = Cells::new();
    for table in &recovered.tables {
        let own: Vec<&Part> = parts.iter().filter(|part| part.table == table.number).collect();
        for part in &own {
            let (start, end) = match own.len() {
                1 => (0, table.schema.row_words),
                _ => table.schema.groups[part.cell as usize],
            };
            let of_part = |(key, row): (&KeyWords, &[u64])| ((**part, *key), Some(fingerprint(&row[start..end])));
            cells.extend(table.rows().map(of_part));
        }
    }
    cells
}

/// How many transactions explain what was found.
fn explain(
    committed: &[Committed],
    acknowledged: &BTreeSet<u64>,
    first: &Cells,
    found: &Cells,
) -> Result<usize, String> {
    let by_number: HashMap<u64, &Committed> = committed.iter().map(|commit| (commit.txn, commit)).collect();
    let mut links: BTreeMap<(Part, KeyWords), HashMap<u64, Link>> = BTreeMap::new();
    for commit in committed {
        for operation in &commit.operations {
            let (part, key, over, value) = match *operation {
                // It has left nothing.
                Operation::Write { applied: Applied::Omitted, .. } => continue,
                Operation::Write { part, key, over, value, .. } => (part, key, over, value),
                Operation::Delete { part, key, over } => (part, key, over, None),
                _ => continue,
            };
            // The last of a transaction's writes of a row has its value.
            links.entry((part, key)).or_default().insert(commit.txn, Link { over, value });
        }
    }
    // The versions of each row, in their order.
    let chains: BTreeMap<_, Vec<(u64, Option<u64>)>> = links
        .iter()
        .map(|(place, links)| {
            let next: HashMap<u64, u64> = links.iter().map(|(txn, link)| (link.over, *txn)).collect();
            let mut at = 0;
            let chain = std::iter::from_fn(|| {
                at = *next.get(&at)?;
                Some((at, links[&at].value))
            });
            (*place, chain.take(links.len()).collect())
        })
        .collect();
    let mut there = BTreeSet::new();
    let add = |there: &mut BTreeSet<u64>, txn: u64| {
        let mut open = vec![txn];
        while let Some(txn) = open.pop() {
            let Some(commit) = by_number.get(&txn) else { continue };
            if there.insert(txn) {
                open.extend(commit.operations.iter().flat_map(seen));
                // What was left out counts on what replaced the version before it.
                open.extend(commit.operations.iter().filter_map(|operation| match *operation {
                    Operation::Write { applied: Applied::Omitted, part, key, over, .. } => {
                        let link = links.get(&(part, key))?.iter().find(|(_, link)| link.over == over)?;
                        Some(*link.0)
                    }
                    _ => None,
                }));
            }
        }
    };
    acknowledged.iter().for_each(|txn| add(&mut there, *txn));
    loop {
        let mut missing = None;
        for place in first.keys().chain(chains.keys()).chain(found.keys()) {
            let chain = chains.get(place).map_or(&[][..], Vec::as_slice);
            let last = chain.iter().rposition(|(txn, _)| there.contains(txn));
            let expected = match last {
                Some(last) => chain[last].1,
                None => first.get(place).copied().flatten(),
            };
            let value = found.get(place).copied().flatten();
            if value == expected {
                continue;
            }
            let from = last.map_or(0, |last| last + 1);
            match chain[from..].iter().find(|(_, left)| *left == value) {
                Some((txn, _)) => missing = Some(*txn),
                None => {
                    let (part, key) = place;
                    let who = last.map_or("loading".to_owned(), |last| format!("transaction {}", chain[last].0));
                    let what = if value.is_none() { "is not there" } else { "is another" };
                    return Err(format!(
                        "row {key:x?} of table {} {what}: {who} left it, which was acknowledged, or is seen by what is there; \
                         acknowledged were {acknowledged:?}, there are {there:?}",
                        part.table
                    ));
                }
            }
        }
        match missing {
            Some(txn) => add(&mut there, txn),
            None => return Ok(there.len()),
        }
    }
}

/// Whose versions an operation has seen.
fn seen(operation: &Operation) -> Vec<u64> {
    match operation {
        Operation::Read { version, .. } => vec![*version],
        Operation::Miss { deleted_by, .. } => vec![*deleted_by],
        Operation::Scan { seen, gone, .. } => seen.iter().chain(gone).map(|(_, version)| *version).collect(),
        Operation::Write { .. } | Operation::Delete { .. } => Vec::new(),
    }
}

impl From<LogError> for LabError {
    fn from(error: LogError) -> Self {
        LabError::BadInput(error.to_string())
    }
}
