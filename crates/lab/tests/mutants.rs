//! Every protocol with a deliberate bug is found wrong by the explorer, or to stand still, and what was found replays.
//!
//! `docs/mutants.md` is the table of them all; the test compares it. `UPDATE_DOCS=1 cargo test -p contend-lab --test mutants` writes it.

use std::sync::Mutex;

use contend_engine::Protocol;
use contend_lab::RunConfig;
use contend_lab::explore::{ExploreConfig, StrategyChoice, explore_protocol};
use contend_protocols::bamboo::Bamboo;
use contend_protocols::cicada::Cicada;
use contend_protocols::deadlock_detection::DeadlockDetection;
use contend_protocols::ermia::Ermia;
use contend_protocols::fault::{FAULTS, Faults};
use contend_protocols::hekaton::Hekaton;
use contend_protocols::hstore::HStore;
use contend_protocols::mocc::Mocc;
use contend_protocols::mvcc::Mvcc;
use contend_protocols::mvto::Mvto;
use contend_protocols::no_wait::NoWait;
use contend_protocols::occ::Occ;
use contend_protocols::ordered::Ordered;
use contend_protocols::silo::Silo;
use contend_protocols::snapshot_isolation::SnapshotIsolation;
use contend_protocols::tictoc::TicToc;
use contend_protocols::timestamp_ordering::TimestampOrdering;
use contend_protocols::wait_die::WaitDie;
use contend_protocols::wound_wait::WoundWait;
use contend_sim::Simulated;

#[global_allocator]
static ALLOCATOR: contend_lab::Rewindable<std::alloc::System> = contend_lab::Rewindable(std::alloc::System);

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mutants.md");

/// A broken protocol, and how it is shown to be.
struct Mutant {
    protocol: &'static str,
    fault: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// What came of it: a cell of the table for each strategy.
    show: fn(&Mutant) -> [String; 2],
}

impl Mutant {
    fn run(&self) -> RunConfig {
        let settings = self.settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        RunConfig { workload: self.workload.into(), settings, ..RunConfig::default() }
    }

    fn row(&self) -> String {
        let (_, meaning) = FAULTS.iter().find(|(name, _)| *name == self.fault).expect("a fault of the list");
        let settings: String = self.settings.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let [random, pct] = (self.show)(self);
        let (protocol, fault, workload) = (self.protocol, self.fault, self.workload);
        format!("| `{protocol}` | `{fault}` |{meaning} | `{workload}`{settings} | {random} | {pct} |")
    }
}

const STRATEGIES: [StrategyChoice; 2] = [StrategyChoice::Random, StrategyChoice::Pct(3)];

/// The executions that each strategy needs to find it, within a budget; what was found must replay.
fn found<P: Protocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    STRATEGIES.map(|strategy| found_by::<P>(mutant, &strategy))
}

fn found_by<P: Protocol<Simulated>>(mutant: &Mutant, strategy: &StrategyChoice) -> String {
    const BUDGET: u64 = 100_000;
    let run = mutant.run();
    let config = ExploreConfig { executions: BUDGET, strategy: strategy.clone(), ..ExploreConfig::default() };
    let explored = explore_protocol::<P>(&run, &config).expect("valid");
    let Mutant { protocol, fault, workload, .. } = mutant;
    let found = explored.found.unwrap_or_else(|| panic!("{protocol} {fault} on {workload}: not by {strategy}"));
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
    found.executions.to_string()
}

/// The executions that random choices need to find it: it needs more switches between cores than three changes of priority make.
fn found_at_random<P: Protocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    [found_by::<P>(mutant, &StrategyChoice::Random), "not tried".into()]
}

/// In some executions its transactions wait for each other for ever, which are cut.
fn stands_still<P: Protocol<Simulated>>(mutant: &Mutant) -> [String; 2] {
    let config = ExploreConfig { executions: 2000, ..ExploreConfig::default() };
    let explored = explore_protocol::<P>(&mutant.run(), &config).expect("valid");
    let Mutant { protocol, fault, workload, .. } = mutant;
    assert!(explored.livelocks > 0, "{protocol} {fault} on {workload}: never stands still");
    [format!("stands still in {} of {}", explored.livelocks, explored.executions), "not tried".into()]
}

macro_rules! mutants {
    ($($protocol:ty { $($show:ident $fault:ident, $workload:literal $(, $settings:expr)?;)* })*) => {
        fn mutants() -> Vec<Mutant> {
            let mut all = Vec::new();
            $($({
                struct Broken;
                impl Faults for Broken {
                    const $fault: bool = true;
                }
                const SETTINGS: &[&[(&str, &str)]] = &[$($settings,)? &[]];
                all.push(Mutant {
                    protocol: <$protocol as Protocol<Simulated>>::INFO.name,
                    fault: stringify!($fault),
                    workload: $workload,
                    settings: SETTINGS[0],
                    show: $show::<$protocol>,
                });
            })*)*
            all
        }
    };
}

const SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on")];
/// Waits are not ended by their limit.
const PATIENT: &[(&str, &str)] = &[("dldetect.timeout_us", "10000000")];
const NWR: &[(&str, &str)] = &[("cu", "on"), ("versions.nwr", "on")];

mutants! {
    Silo<Broken> {
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update";
        found FORGET_READ_ONLY, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        found FORGET_GAPS, "litmus-scans";
        found SHOW_PLACEHOLDERS, "litmus-abort";
        found WRITE_WRONG_CELL, "litmus-groups", SPLIT;
        found MERGE_BEFORE_LOCK, "litmus-groups", SPLIT;
        found FORGET_OLDER_TIDS, "litmus-random";
    }
    Occ<Simulated, Broken> {
        found STAMP_BEFORE_LOCKS, "litmus-lost-update";
        found SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update";
        found LOCK_ONLY_WRITTEN, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    TicToc<Broken> {
        found FORGET_EXTENSION, "litmus-write-skew";
        found OVERWRITE_READ_INTERVALS, "litmus-write-skew";
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found FORGET_TIMES_OF_LEAVES, "litmus-random";
    }
    Mocc<Broken> {
        found TRUST_LOCKS, "litmus-write-skew";
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_OUT_OF_ORDER, "litmus-write-skew";
    }
    TimestampOrdering<Simulated, Broken> {
        found FORGET_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-lost-update";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    Mvto<Simulated, Broken> {
        found FORGET_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-lost-update";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    Cicada<Simulated, Broken> {
        // The consistency check that CCBench found missing.
        found TRUST_COMMITTED, "litmus-lost-update";
        found FORGET_READS, "litmus-write-skew";
        found OVERTAKE_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        found_at_random TRUST_OLDER, "litmus-overwrites", NWR;
        found OMIT_ANY, "litmus-overwrites", NWR;
    }
    Mvcc<Simulated, Broken> {
        found FORGET_READS, "litmus-updates", SPLIT;
        found OVERTAKE_READS, "litmus-updates", SPLIT;
        found TRUST_OLDER, "litmus-updates", SPLIT;
        found REORDER_ANY, "litmus-updates", SPLIT;
        found TRUST_COMMITTED, "litmus-lost-update";
        found FORGET_GAPS, "litmus-absent";
        found OMIT_ANY, "litmus-overwrites", NWR;
    }
    SnapshotIsolation<Simulated, Broken> {
        found FORGET_FIRST_UPDATER, "litmus-lost-update";
        found IGNORE_PREWRITES, "litmus-random";
    }
    Ermia<Simulated, Broken> {
        found FORGET_READS, "litmus-write-skew";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_SUCCESSORS, "litmus-write-skew";
        found FORGET_CREATORS, "litmus-read-only";
        found FORGET_GAPS, "litmus-absent";
        found IGNORE_PREWRITES, "litmus-random";
    }
    Hekaton<Simulated, Broken> {
        found FORGET_READ_ONLY, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    NoWait<Broken> {
        found RELEASE_SHARED_EARLY, "litmus-write-skew";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        found WRITE_WRONG_CELL, "litmus-groups", SPLIT;
        found MERGE_BEFORE_LOCK, "litmus-groups", SPLIT;
        found KEEP_ABORTED_INSERTS, "litmus-abort";
    }
    WaitDie<Simulated, Broken> {
        found RELEASE_SHARED_EARLY, "litmus-write-skew";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_ANYWAY, "litmus-write-skew";
    }
    WoundWait<Simulated, Broken> {
        found RELEASE_SHARED_EARLY, "litmus-write-skew";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still IGNORE_WOUNDS, "litmus-write-skew";
    }
    Bamboo<Simulated, Broken> {
        found FORGET_PREDECESSORS, "litmus-lost-update";
        found FORGET_DEPENDENTS, "litmus-random";
        found FORGET_GAPS, "litmus-absent";
        found IGNORE_READERS, "litmus-write-skew";
    }
    DeadlockDetection<Simulated, Broken> {
        found RELEASE_SHARED_EARLY, "litmus-write-skew";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_ANYWAY, "litmus-write-skew", PATIENT;
    }
    Ordered<Broken> {
        found RELEASE_SHARED_EARLY, "litmus-long-fork";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still LOCK_AS_DECLARED, "litmus-random";
    }
    HStore<Simulated, Broken> {
        found LOCK_ONLY_FIRST_PARTITION, "litmus-write-skew";
        found RELEASE_BEFORE_INSTALL, "litmus-lost-update";
        stands_still WAIT_ANYWAY, "litmus-random";
    }
}

/// The table, in the order of the list, by as many threads as there are cores.
fn table() -> String {
    let mutants = mutants();
    let (next, rows) = (Mutex::new(0..mutants.len()), Mutex::new(vec![String::new(); mutants.len()]));
    let take = || next.lock().expect("no panic").next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(number) = take() {
                    let row = mutants[number].row();
                    rows.lock().expect("no panic")[number] = row;
                }
            });
        }
    });
    rows.into_inner().expect("no panic").join("\n")
}

#[test]
fn every_mutant_is_found() {
    let page = format!(
        "# Mutants\n\n\
         Each protocol is also there with deliberate bugs, which only tests turn on (`crates/protocols/src/fault.rs`). The explorer\n\
         has to find each: the numbers are the executions until it had an interleaving whose history breaks the protocol's promise, by\n\
         two strategies (random choices of the next core; random priorities with 3 changes), at most 20000. A mutant whose transactions\n\
         wait for each other for ever is found by executions that are cut off. The conformance suite has its own list of what it must\n\
         catch (`crates/protocols/tests/conformance/mutants.rs`).\n\n\
         Written by `UPDATE_DOCS=1 cargo test -p contend-lab --test mutants`; the test fails if anything here is not so.\n\n\
         | protocol | bug | what it is | workload | random | pct:3 |\n\
         | --- | --- | --- | --- | --- | --- |\n\
         {}\n",
        table()
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    for (ours, theirs) in page.lines().zip(written.lines()) {
        assert_eq!(ours, theirs, "docs/mutants.md; write it anew by UPDATE_DOCS=1");
    }
    assert_eq!(page.lines().count(), written.lines().count(), "docs/mutants.md; write it anew by UPDATE_DOCS=1");
}
