//! Every protocol with a deliberate bug is found wrong by the explorer, or to stand still, and what
//! was found replays; and every deliberate bug of the engine and of the log is found.
//!
//! `docs/mutants.md` is the table of them all; the test compares it. `UPDATE_DOCS=1 cargo test -p
//! contend-proof --test it mutants` writes it, with all that both strategies find. Without that,
//! the strategy that found a mutant sooner has to find it again in the same execution.

use std::sync::Mutex;

use contend_engine::NamedProtocol;
use contend_engine::fault::Fault as EngineFault;
use contend_log::fault::Fault as LogFault;
use contend_proof::crash::{CrashConfig, crash_test};
use contend_proof::explore::{ExploreConfig, StrategyChoice, explore_protocol};
use contend_protocols::accessors;
use contend_protocols::datm::{self, Datm};
use contend_protocols::deterministic::aria::{self, Aria};
use contend_protocols::deterministic::calvin::{self, Calvin};
use contend_protocols::fault::{Chosen, Faulty, Meaning, OPERATION_FAULTS, id};
use contend_protocols::hstore::{self, HStore};
use contend_protocols::lazy::{self, Lazy};
use contend_protocols::locking::bamboo::{self, Bamboo};
use contend_protocols::locking::deadlock_detection::DeadlockDetection;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::locking::ordered::{self, Ordered};
use contend_protocols::locking::wait_die::WaitDie;
use contend_protocols::locking::wound_wait::WoundWait;
use contend_protocols::locking::{self, queue, wound};

use contend_protocols::multiversion;
use contend_protocols::multiversion::cicada::Cicada;
use contend_protocols::multiversion::ermia::{self, Ermia};
use contend_protocols::multiversion::hekaton::{self, Hekaton};
use contend_protocols::multiversion::msto::{self, Msto};
use contend_protocols::multiversion::mvto::{self, Mvto};
use contend_protocols::multiversion::snapshot_isolation::{self, SnapshotIsolation};
use contend_protocols::optimistic;
use contend_protocols::optimistic::mocc::{self, Mocc};
use contend_protocols::optimistic::nested_occ::{self, NestedOcc};
use contend_protocols::optimistic::occ::{self, Occ};
use contend_protocols::optimistic::silo::{self, Silo};
use contend_protocols::optimistic::tictoc::{self, TicToc};
use contend_protocols::pieces::chopping::{self, Chopping};
use contend_protocols::pieces::ic3::{self, Ic3};
use contend_protocols::timestamp_ordering::{self, TimestampOrdering};
use contend_runner::{RunConfig, Stop};
use contend_sim::Simulated;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mutants.md");

/// A broken protocol, and how it is shown to be.
#[derive(Clone)]
struct Mutant {
    protocol: &'static str,
    fault: &'static str,
    meaning: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// If the bug is the engine's.
    engine: Option<EngineFault>,
    /// What came of it: a cell of the table for each strategy.
    show: fn(&Mutant) -> [String; 2],
    /// What the page says of it, unless that is to be written anew.
    written: Option<[String; 2]>,
}

impl Mutant {
    fn run(&self) -> RunConfig {
        RunConfig { workload: self.workload.into(), settings: owned(&self.all_settings()), ..RunConfig::default() }
    }

    /// Returns the settings. IC3's pieces take effect when they end, unless the fault is of
    /// transactions that commit as a whole.
    fn all_settings(&self) -> Vec<(&'static str, &'static str)> {
        let by_steps = self.protocol == "ic3" && !self.fault.starts_with("whole");
        self.settings.iter().copied().chain(by_steps.then_some(("ic3.whole", "off"))).collect()
    }

    fn config(&self, executions: u64) -> ExploreConfig {
        ExploreConfig { executions, fault: self.engine, ..ExploreConfig::default() }
    }

    fn row(&self) -> String {
        let settings: String = self.all_settings().iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let (protocol, fault, meaning, workload) = (self.protocol, self.fault, self.meaning, self.workload);
        let cells = format!("| `{protocol}` | `{fault}` | {meaning} | `{workload}`{settings} |");
        let mutant = Mutant { written: written(&cells), ..self.clone() };
        let [random, pct] = Chosen::during(id(fault), || (self.show)(&mutant));
        format!("{cells} {random} | {pct} |")
    }

    /// Returns the strategy that has found it sooner, as the page says, and the number of the
    /// execution.
    fn found_sooner(&self) -> Option<(usize, u64)> {
        let numbers = self.written.iter().flatten().enumerate();
        numbers.filter_map(|(place, cell)| Some((place, cell.parse().ok()?))).min_by_key(|(_, number)| *number)
    }
}

/// Returns the page's two cells behind these, unless the page is to be written anew.
fn written(cells: &str) -> Option<[String; 2]> {
    if writes_page() {
        return None;
    }
    let page = std::fs::read_to_string(PAGE).ok()?;
    let rest = page.lines().find_map(|line| line.strip_prefix(cells))?;
    let found: Vec<_> = rest.split('|').map(|cell| cell.trim().to_owned()).collect();
    let [random, pct, _] = <[String; 3]>::try_from(found).ok()?;
    Some([random, pct])
}

fn writes_page() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

fn owned(settings: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn meaning_of(fault: &str, lists: &[&[Meaning]]) -> &'static str {
    let mut meanings = lists.iter().flat_map(|list| list.iter());
    meanings.find(|(name, _)| *name == fault).unwrap_or_else(|| panic!("{fault} is in no list")).1.trim()
}

const STRATEGIES: [StrategyChoice; 2] = [StrategyChoice::Random, StrategyChoice::Pct(3)];

/// The executions that each strategy needs to find it, within a budget; what was found must replay.
/// One of them has to find it. Only if both fail do they go on. If the page knows an execution in
/// which it is found, none is tried after that.
fn found<P: NamedProtocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    if let (Some((place, number)), Some(cells)) = (mutant.found_sooner(), &mutant.written)
        && let Some(found) = found_by::<P>(mutant, &STRATEGIES[place], number)
    {
        let mut cells = cells.clone();
        cells[place] = found;
        return cells;
    }
    for budget in [BUDGET, BUDGET_MAX] {
        let found = STRATEGIES.map(|strategy| found_by::<P>(mutant, &strategy, budget));
        if found.iter().any(Option::is_some) {
            return found.map(|executions| executions.unwrap_or_else(|| format!("not in {budget}")));
        }
    }
    [MISSED; 2].map(String::from)
}

/// The executions of each strategy.
const BUDGET: u64 = 20_000;

/// The executions of each strategy if neither has found the mutant.
const BUDGET_MAX: u64 = 200_000;

/// A cell of the table that must not be there.
const MISSED: &str = "NOT FOUND";

fn found_by<P: NamedProtocol<Simulated>>(mutant: &Mutant, strategy: &StrategyChoice, budget: u64) -> Option<String> {
    let run = mutant.run();
    let config = ExploreConfig { strategy: strategy.clone(), ..mutant.config(budget) };
    let explored = explore_protocol::<P>(&run, &config).expect("valid");
    let found = explored.found?;
    assert!(explored.violated);
    let replay = ExploreConfig {
        seed: found.seed,
        cores: Some(explored.cores),
        replay: Some(found.schedule.parse().expect("a schedule")),
        ..config
    };
    let again = explore_protocol::<P>(&run, &replay).expect("valid").found.expect("the same schedule does the same");
    assert_eq!(again.verdict, found.verdict);
    assert_eq!(again.steps, found.steps);
    Some(found.executions.to_string())
}

/// It does no harm, which comments in its protocol argue: executions find nothing.
fn equivalent<P: NamedProtocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    const EXECUTIONS: u64 = 5_000;
    STRATEGIES.map(|strategy| {
        let config = ExploreConfig { strategy, ..mutant.config(EXECUTIONS) };
        let explored = explore_protocol::<P>(&mutant.run(), &config).expect("valid");
        let Mutant { protocol, fault, .. } = mutant;
        assert!(explored.found.is_none(), "{protocol} {fault} does harm: {:?}", explored.found);
        format!("no harm in {}", explored.executions)
    })
}

/// In some executions its transactions wait for each other for ever, which are cut.
fn stands_still<P: NamedProtocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    let config = mutant.config(2000);
    let explored = explore_protocol::<P>(&mutant.run(), &config).expect("valid");
    if explored.livelocks == 0 {
        return [MISSED; 2].map(String::from);
    }
    [format!("stands still in {} of {}", explored.livelocks, explored.executions), "not tried".into()]
}

/// Its executions are serializable, but the same input leads to several final states.
fn not_repeatable<P: NamedProtocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    STRATEGIES.map(|strategy| {
        let config = ExploreConfig { strategy, ..mutant.config(20_000) };
        let explored = explore_protocol::<P>(&mutant.run(), &config).expect("valid");
        assert!(explored.found.is_none(), "{} {}: {:?}", mutant.protocol, mutant.fault, explored.found);
        let repeated = explore_protocol::<P>(&mutant.run(), &ExploreConfig { same_input: true, ..config });
        match repeated.expect("valid").found {
            Some(found) => format!("another state in {}", found.executions),
            None => MISSED.into(),
        }
    })
}

macro_rules! mutants {
    ($($protocol:ty $(, faults $($faults:path),+)? {
        $($show:ident $fault:ident, $workload:literal $(, $settings:ident)? $(=> $_test:ident $_by:ident $($_scenario:literal)*)?;)*
    })*) => {
        fn mutants() -> Vec<Mutant> {
            let mut all = Vec::new();
            $({
                let lists: &[&[Meaning]] = &[$($($faults,)+)? OPERATION_FAULTS];
                $({
                    const SETTINGS: &[&[(&str, &str)]] = &[$($settings,)? &[]];
                    all.push(Mutant {
                        protocol: <$protocol as NamedProtocol<Simulated>>::INFO.name,
                        fault: stringify!($fault),
                        meaning: meaning_of(stringify!($fault), lists),
                        workload: $workload,
                        settings: SETTINGS[0],
                        engine: None,
                        show: $show::<Faulty<$protocol, Chosen>>,
                        written: None,
                    });
                })*
            })*
            all
        }
    };
}

/// The machine of the list.
type Machine = Simulated;
/// The faults of the list: each protocol is compiled once for all of its own.
type Broken = Chosen;

const SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on")];
/// Waits are not ended by their limit.
const PATIENT: &[(&str, &str)] = &[("dldetect.timeout_us", "10000000")];
const SNAPSHOTS: &[(&str, &str)] = &[("silo.snapshots", "on")];
/// IC3 keeps snapshots, whether its plan needs them or not.
const KEPT: &[(&str, &str)] = &[("ic3.snapshots", "on")];
const KEPT_SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on"), ("ic3.snapshots", "on")];
/// A type misses a key in one piece, and inserts it in the next.
const FILLED_GAP: &[(&str, &str)] = &[("chains.plan", "11")];
/// Chains of pieces in which all rows are hot.
const PIECES: &[(&str, &str)] =
    &[("pieces.pieces", "3"), ("pieces.records", "2"), ("pieces.scope", "2"), ("pieces.updates", "1")];
/// The same, with transactions that roll back behind a piece.
const CANCELS: &[(&str, &str)] = &[
    ("pieces.pieces", "3"),
    ("pieces.records", "2"),
    ("pieces.scope", "2"),
    ("pieces.updates", "1"),
    ("pieces.cancel", "0.4"),
];
/// Reads of sums are not on snapshots.
const READ_SUMS: &[(&str, &str)] = &[("cu", "on"), ("ts", "on"), ("ic3.snapshots", "off")];
/// Cycles of waits end soon.
const SOON: &[(&str, &str)] = &[("datm.timeout_ns", "5000")];
/// The batches depend on nothing but the input.
const PATIENT_ROUNDS: &[(&str, &str)] = &[("rounds.patience_us", "0")];
const OVER_WAIT_DIE: &[(&str, &str)] = &[("chopping.over", "2pl-waitdie")];
const OVER_WOUND_WAIT: &[(&str, &str)] = &[("chopping.over", "2pl-woundwait")];
const OVER_ORDERED: &[(&str, &str)] = &[("chopping.over", "2pl-ordered")];
const NWR: &[(&str, &str)] = &[("cu", "on"), ("versions.nwr", "on")];

include!("../../../protocols/tests/conformance/mutants/list.rs");

/// A protocol with a deliberate bug of the engine.
fn with_engine<P: NamedProtocol<Simulated>>(engine: EngineFault, workload: &'static str) -> Mutant {
    let fault: &'static str = format!("{engine:?}").leak();
    let show = found::<P>;
    let meaning = engine.meaning();
    Mutant {
        protocol: P::INFO.name,
        fault,
        meaning,
        workload,
        settings: &[],
        engine: Some(engine),
        show,
        written: None,
    }
}

fn engine_mutants() -> Vec<Mutant> {
    use EngineFault::{ForgetSplits, KeepRetriedWrites, ReuseEarly};
    vec![
        with_engine::<Silo>(ReuseEarly, "litmus-moves"),
        with_engine::<NoWait>(ReuseEarly, "litmus-moves"),
        with_engine::<Silo>(ForgetSplits, "litmus-split"),
        with_engine::<NoWait>(ForgetSplits, "litmus-split"),
        // A history takes a second change of the kept row for a blind write. The sums of the rows
        // tell.
        Mutant { settings: PIECES, ..with_engine::<NestedOcc>(KeepRetriedWrites, "pieces") },
        Mutant { settings: PIECES, ..with_engine::<Ic3<Machine>>(KeepRetriedWrites, "pieces") },
    ]
}

/// A deliberate bug of the log, and what finds it.
#[derive(Debug)]
struct Lossy {
    fault: LogFault,
    protocol: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

impl Lossy {
    fn new(fault: LogFault, workload: &'static str, settings: &'static [(&'static str, &'static str)]) -> Lossy {
        Lossy { fault, protocol: "silo", workload, settings }
    }

    fn row(&self) -> String {
        let run = RunConfig {
            protocols: vec![self.protocol.to_owned()],
            workload: self.workload.to_owned(),
            settings: owned(self.settings),
            ..RunConfig::default()
        };
        let config = CrashConfig {
            seeds: if self.fault == LogFault::UnlinkHeld { 5000 } else { 2000 },
            transactions: if self.workload == "litmus-births" { 24 } else { 8 },
            fault: Some(self.fault),
            ..CrashConfig::default()
        };
        let [crashed] = &crash_test(&run, &config, &Stop::default(), &|| ()).expect("valid")[..] else {
            unreachable!("one protocol with one commit protocol")
        };
        let (fault, meaning) = (self.fault, self.fault.meaning());
        let settings: String = self.settings.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let (protocol, workload) = (self.protocol, self.workload);
        let found = match (&crashed.wrong, self.fault) {
            (None, LogFault::ForgetLastTombstones) => format!("no harm in {}", crashed.tests),
            (Some(_), LogFault::ForgetLastTombstones) => panic!("{self:?} does harm: {crashed:?}"),
            (Some(_), _) => crashed.tests.to_string(),
            (None, _) => MISSED.into(),
        };
        format!("| `{protocol}` | `{fault:?}` | {meaning} | `{workload}`{settings} | {found} |")
    }
}

fn lossy() -> Vec<Lossy> {
    use LogFault::{
        AcknowledgeBeforeFlush, AcknowledgeOwn, EndEpochEarly, FlushOutOfOrder, ForgetAdditions, ForgetLastTombstones,
        ForgetSums, ForgetTombstones, IgnoreGaps, IgnoreHolds, ReplayInFileOrder, SettleRunning, SkipSync,
        SlotsBeforeCounter, UnlinkHeld,
    };
    const EPOCH: &[(&str, &str)] = &[("log", "epoch")];
    const ADDS: &[(&str, &str)] = &[("log", "epoch"), ("cu", "on")];
    const EARLY_GROUPS: &[(&str, &str)] = &[("log", "elr-group")];
    const LATE: &[(&str, &str)] = &[("log", "clr")];
    // Reads and writes of a transaction take turns.
    const LATE_IN_TURNS: &[(&str, &str)] = &[("log", "clr"), ("ycsb.batch", "off")];
    const LATE_GROUPS: &[(&str, &str)] = &[("log", "clr-group")];
    vec![
        Lossy::new(ForgetAdditions, "litmus-updates", ADDS),
        Lossy::new(ForgetSums, "litmus-updates", ADDS),
        Lossy::new(AcknowledgeBeforeFlush, "ycsb-a", EPOCH),
        Lossy::new(SkipSync, "ycsb-a", EPOCH),
        Lossy::new(EndEpochEarly, "ycsb-a", EPOCH),
        Lossy::new(SettleRunning, "ycsb-a", EPOCH),
        Lossy::new(FlushOutOfOrder, "ycsb-a", EPOCH),
        Lossy::new(ReplayInFileOrder, "ycsb-a", EPOCH),
        Lossy::new(ForgetTombstones, "litmus-births", EPOCH),
        Lossy { protocol: "bamboo", ..Lossy::new(ForgetLastTombstones, "litmus-births", EPOCH) },
        Lossy::new(SlotsBeforeCounter, "litmus-births", EARLY_GROUPS),
        Lossy::new(AcknowledgeOwn, "ycsb-a", EARLY_GROUPS),
        Lossy::new(IgnoreGaps, "ycsb-a", EARLY_GROUPS),
        Lossy::new(IgnoreHolds, "ycsb-a", LATE_GROUPS),
        Lossy::new(IgnoreHolds, "ycsb-a", LATE_IN_TURNS),
        Lossy { protocol: "occ", ..Lossy::new(UnlinkHeld, "litmus-births", LATE) },
    ]
}

/// The rows of a table, in the order of the list, by as many threads as there are cores.
fn rows<T: Sync>(all: &[T], row: impl Fn(&T) -> String + Sync) -> String {
    let (next, rows) = (Mutex::new(0..all.len()), Mutex::new(vec![String::new(); all.len()]));
    let take = || next.lock().expect("no panic").next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(number) = take() {
                    let row = row(&all[number]);
                    println!("{row}");
                    rows.lock().expect("no panic")[number] = row;
                }
            });
        }
    });
    rows.into_inner().expect("no panic").join("\n")
}

#[test]
fn every_mutant_is_found() {
    let of_protocols = rows(&mutants(), Mutant::row);
    let of_engine = rows(&engine_mutants(), Mutant::row);
    let of_log = rows(&lossy(), Lossy::row);
    let page = format!(
        "# Mutants\n\n\
         A mutant is a protocol, the engine or the log with one deliberate bug, which only tests turn on.\n\
         This page says how each mutant is found. It is written by `UPDATE_DOCS=1 cargo test -p\n\
         contend-proof --test it mutants`, and the test fails if the page is not what the tests find.\n\
         Without `UPDATE_DOCS` only the strategy that needed fewer executions runs again.\n\n\
         ## Of protocols\n\n\
         Each protocol declares its faults at the end of its file. Faults of whole operations stand in\n\
         `crates/protocols/src/fault/faulty.rs`. The numbers are the executions that the explorer needed\n\
         until an interleaving broke the protocol's promise. There are two strategies.\n\
         `random` chooses the next core at random. `pct:3` gives the cores random priorities, and changes\n\
         them twice at random steps. One of the two has to find the mutant in {BUDGET} executions. If\n\
         neither does, both go on, up to {BUDGET_MAX}. If transactions of a mutant wait for each other for\n\
         ever, it is found by executions that are cut off.\n\n\
         A fault may leave a deterministic protocol serializable, and only not deterministic. It is found\n\
         by executions of one input that end in another state.\n\n\
         A few faults do no harm, and comments at their places in the code say why. The list of mutants is\n\
         `crates/protocols/tests/conformance/mutants/list.rs`. The conformance suite has to find some of\n\
         them, too.\n\n\
         | protocol | bug | what it is | workload | random | pct:3 |\n\
         | --- | --- | --- | --- | --- | --- |\n\
         {of_protocols}\n\n\
         ## Of the engine\n\n\
         The frame around the protocols has faults as well (`crates/engine/src/fault.rs`). The explorer\n\
         finds them in the same way.\n\n\
         | protocol | bug | what it is | workload | random | pct:3 |\n\
         | --- | --- | --- | --- | --- | --- |\n\
         {of_engine}\n\n\
         ## Of durability\n\n\
         `contend crash-test` finds faults of the log (`crates/log/src/fault.rs`). The numbers are the\n\
         tests until acknowledged data was lost, or data was there without what it depends on. Crashes\n\
         between single transactions find the other faults of the log:\n\
         `crates/log/tests/it/crash/mutants.rs`.\n\n\
         | protocol | bug | what it is | workload | tests |\n\
         | --- | --- | --- | --- | --- |\n\
         {of_log}\n\n\
         ## By other tests\n\n\
         | bug of the engine | what it is | found by |\n\
         | --- | --- | --- |\n\
         | `ForgetAborted` | {} It loses memory, and does no other harm. | `basics::all_that_is_dead_is_collected` of the conformance suite |\n\
         | `UnlinkYoung` | {} It can break the order of writes in a log. | `crates/log/tests/it/crash/mutants.rs`, and a debug assertion where a record gets its first write counter |\n\
         | `PassClosedGate` | {} | the tests of protection in `crates/proof/tests/it/explorer.rs` |\n\
         | `KeepGateClosed` | {} | the same |\n\n\
         | bug of `ic3` | what it is | found by |\n\
         | --- | --- | --- |\n\
         | `larger_word_of_leaves` | {} | `the_heir_of_a_leaf_has_its_readers` in `crates/protocols/tests/pieces.rs` |\n",
        EngineFault::ForgetAborted.meaning(),
        EngineFault::UnlinkYoung.meaning(),
        EngineFault::PassClosedGate.meaning(),
        EngineFault::KeepGateClosed.meaning(),
        meaning_of(stringify!(larger_word_of_leaves), &[ic3::FAULTS]),
    );
    let missed: Vec<_> = page.lines().filter(|line| line.contains(MISSED)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    if writes_page() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    for (ours, theirs) in page.lines().zip(written.lines()) {
        assert_eq!(ours, theirs, "docs/mutants.md; write it anew by UPDATE_DOCS=1");
    }
    assert_eq!(page.lines().count(), written.lines().count(), "docs/mutants.md; write it anew by UPDATE_DOCS=1");
}
