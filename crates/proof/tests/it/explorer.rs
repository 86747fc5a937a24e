//! The explorer finds nothing wrong with correct protocols.

use contend_engine::fault::Fault;
use contend_proof::explore::{ExploreConfig, Explored, StrategyChoice, explore};
use contend_runner::{RunConfig, Stop};
use contend_workloads::{chains, litmus};

const STRATEGIES: [StrategyChoice; 3] = [StrategyChoice::Random, StrategyChoice::Pct(3), StrategyChoice::Exhaustive(2)];

fn on(workload: &str, settings: &[(&str, &str)]) -> RunConfig {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    RunConfig { workload: workload.into(), settings, ..RunConfig::default() }
}

/// A short timeout for DATM, which lets transactions that depend on each other wait until then. An
/// execution is cut after some milliseconds of the explorer's clock.
const IMPATIENT: (&str, &str) = ("datm.timeout_ns", "5000");

/// All protocols on a workload.
fn all_on(workload: &str, settings: &[(&str, &str)]) -> RunConfig {
    on(workload, &[settings, &[IMPATIENT]].concat())
}

#[test]
fn no_registered_protocol_breaks_its_promise() {
    for info in litmus::INFOS {
        for strategy in STRATEGIES {
            let config = ExploreConfig { executions: 120, strategy: strategy.clone(), ..ExploreConfig::default() };
            for settings in [&[][..], &[("cu", "on"), ("ts", "on")]] {
                let run = all_on(info.name, settings).resolve().expect("valid");
                for explored in explore(&run, &config, &Stop::default()).expect("valid") {
                    assert!(!explored.violated, "{strategy} {explored:#?}");
                    assert_eq!(explored.livelocks, 0, "{strategy} {explored:#?}");
                }
            }
        }
    }
}

/// An older writer waits while younger readers overtake it. Those that fail do so only once.
#[test]
fn wait_die_lets_nobody_overtake_for_ever() {
    for overtake in ["on", "off"] {
        let settings = [("cu", "on"), ("ts", "on"), ("waitdie.overtake", overtake)];
        let run = RunConfig { protocols: vec!["2pl-waitdie".into()], ..on("litmus-split", &settings) };
        let config = ExploreConfig { executions: 5000, ..ExploreConfig::default() };
        for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.livelocks == 0, "{explored:#?}");
        }
    }
}

/// Declared pieces change nothing for protocols that do not treat them by themselves.
#[test]
fn pieces_break_no_promise() {
    for info in chains::INFOS {
        let config = ExploreConfig { executions: 200, ..ExploreConfig::default() };
        let run = all_on(info.name, &[("cu", "on"), ("ts", "on")]).resolve().expect("valid");
        for explored in explore(&run, &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated, "{explored:#?}");
            assert_eq!(explored.livelocks, 0, "{explored:#?}");
        }
    }
}

#[test]
fn ic3_orders_all_pieces() {
    let nothing_wrong = |workload: &str, settings: &[(&str, &str)], executions| {
        for strategy in [StrategyChoice::Random, StrategyChoice::Pct(3)] {
            let config = ExploreConfig { executions, strategy: strategy.clone(), ..ExploreConfig::default() };
            let run = RunConfig { protocols: vec!["ic3".into()], ..on(workload, settings) };
            for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
                assert!(!explored.violated, "{strategy} {settings:?} {explored:#?}");
                assert_eq!(explored.livelocks, 0, "{strategy} {settings:?} {explored:#?}");
            }
        }
    };
    const SPLIT: [(&str, &str); 2] = [("cu", "on"), ("ts", "on")];
    /// Otherwise a transaction runs as a whole, and by steps only behind an abort.
    const BY_STEPS: (&str, &str) = ("ic3.whole", "off");
    for info in chains::INFOS {
        let split = |more: &[(&str, &str)], executions| {
            nothing_wrong(info.name, &[&SPLIT[..], more].concat(), executions);
        };
        split(&[], 1000);
        split(&[BY_STEPS], 1500);
        nothing_wrong(info.name, &[], 300);
        nothing_wrong(info.name, &[BY_STEPS], 500);
        split(&[("ic3.snapshots", "on")], 300);
        split(&[BY_STEPS, ("ic3.snapshots", "on")], 500);
        split(&[BY_STEPS, ("ic3.snapshots", "off")], 500);
        split(&[BY_STEPS, ("ic3.constraint", "early")], 500);
        split(&[BY_STEPS, ("ic3.rendezvous", "off"), ("ic3.append", "off")], 500);
    }
    for plan in 1..60 {
        let plan = [SPLIT[0], SPLIT[1], ("chains.plan", &*plan.to_string())];
        nothing_wrong("litmus-pieces-plan", &plan, 100);
        nothing_wrong("litmus-pieces-plan", &[&plan[..], &[BY_STEPS]].concat(), 150);
    }
}

/// A transaction misses a key and puts a placeholder under it. Before it looks at that again,
/// another gives it a row and deletes it. This schedule has once led to a lost update.
#[test]
fn a_placeholder_that_others_have_used_is_refused() {
    let run = RunConfig { protocols: vec!["tictoc".into()], ..on("litmus-births", &[]) };
    let config = ExploreConfig {
        seed: 52244,
        cores: Some(3),
        transactions: Some(2),
        replay: Some("2x59,1x91,0x98,2x75".parse().expect("a schedule")),
        ..ExploreConfig::default()
    };
    let explored = explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid");
    let [explored] = &explored[..] else { panic!("one protocol on one workload") };
    assert!(!explored.violated, "{explored:#?}");
    assert!(explored.aborts > 0, "the transaction is tried again: {explored:#?}");
}

/// Explores all shapes of pieces, and drawn ones, under a protocol that treats pieces by
/// themselves.
fn nothing_wrong_with_pieces(protocol: &str, choices: &[&[(&str, &str)]]) {
    let nothing_wrong = |workload: &str, settings: &[(&str, &str)], executions| {
        for strategy in [StrategyChoice::Random, StrategyChoice::Pct(3)] {
            let config = ExploreConfig { executions, strategy: strategy.clone(), ..ExploreConfig::default() };
            let run = RunConfig { protocols: vec![protocol.into()], ..on(workload, settings) };
            for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
                assert!(!explored.violated, "{strategy} {settings:?} {explored:#?}");
                assert_eq!(explored.livelocks, 0, "{strategy} {settings:?} {explored:#?}");
            }
        }
    };
    const SPLIT: [(&str, &str); 2] = [("cu", "on"), ("ts", "on")];
    for choice in choices {
        for info in chains::INFOS {
            nothing_wrong(info.name, &[&SPLIT[..], choice].concat(), 1000);
            nothing_wrong(info.name, choice, 300);
        }
        for plan in 1..40 {
            let plan = [("chains.plan", &*plan.to_string())];
            nothing_wrong("litmus-pieces-plan", &[&SPLIT[..], &plan, choice].concat(), 100);
        }
    }
}

#[test]
fn nested_occ_keeps_what_its_pieces_have_read() {
    nothing_wrong_with_pieces("nested-occ", &[&[], &[("nested-occ.wait", "wait")]]);
}

#[test]
fn chopped_transactions_are_serializable() {
    const OVER: [&[(&str, &str)]; 4] = [
        &[],
        &[("chopping.over", "2pl-waitdie")],
        &[("chopping.over", "2pl-woundwait")],
        &[("chopping.over", "2pl-ordered")],
    ];
    nothing_wrong_with_pieces("chopping", &OVER);
}

#[test]
fn datm_commits_no_cycle() {
    const SPLIT: [(&str, &str); 2] = [("cu", "on"), ("ts", "on")];
    for info in litmus::INFOS.iter().chain(chains::INFOS) {
        for (settings, index) in [(&[][..], None), (&SPLIT, None), (&SPLIT, Some("ordered"))] {
            let settings = [settings, &[IMPATIENT]].concat();
            let run =
                RunConfig { protocols: vec!["datm".into()], index: index.map(Into::into), ..on(info.name, &settings) };
            for strategy in [StrategyChoice::Random, StrategyChoice::Pct(3)] {
                let config = ExploreConfig { executions: 200, strategy: strategy.clone(), ..ExploreConfig::default() };
                for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
                    assert!(!explored.violated, "{strategy} {settings:?} {explored:#?}");
                    assert_eq!(explored.livelocks, 0, "{strategy} {settings:?} {explored:#?}");
                }
            }
        }
    }
}

#[test]
fn other_workloads_are_explored_as_well() {
    for (workload, transactions) in [
        ("ycsb-f", None),
        ("bank", None),
        ("smallbank", None),
        ("tatp", None),
        // Two purchases sell an item out.
        ("rubis-stov2", Some(4)),
        ("wikipedia", None),
        // A change of a page is four transactions.
        ("wikipedia-stov2", Some(8)),
        // A feed may send an order to the market only after it was placed.
        ("tpce-hot", Some(6)),
        ("pieces", None),
    ] {
        let config = ExploreConfig { executions: 30, transactions, ..ExploreConfig::default() };
        let run = all_on(workload, &[]).resolve().expect("valid");
        for explored in explore(&run, &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.commits > 0, "{explored:#?}");
        }
    }
}

#[test]
fn no_control_is_found_on_every_test_of_conflicts() {
    // `litmus-abort` is correct also without concurrency control: writes are buffered, so an abort
    // has nothing to undo.
    for info in litmus::INFOS.iter().filter(|info| info.name != "litmus-abort") {
        let run = RunConfig { protocols: vec!["none".into()], ..on(info.name, &[]) };
        let explored =
            explore(&run.resolve().expect("valid"), &ExploreConfig::default(), &Stop::default()).expect("valid");
        assert!(explored[0].found.is_some(), "{explored:?}");
    }
}

#[test]
fn locks_of_mocc_that_are_always_taken_break_nothing() {
    for info in litmus::INFOS {
        let config = ExploreConfig { executions: 1000, ..ExploreConfig::default() };
        let run = RunConfig { protocols: vec!["mocc".into()], ..on(info.name, &[("mocc.hot", "0")]) };
        for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.livelocks == 0, "{explored:#?}");
        }
    }
}

#[test]
fn a_transaction_with_a_single_lock_is_in_no_deadlock() {
    let settings = [
        ("ycsb.records", "1"),
        ("ycsb.ops", "1"),
        ("ycsb.read", "0"),
        ("dldetect.timeout_us", "10000000"),
        ("dldetect.every", "1"),
    ];
    for strategy in STRATEGIES {
        let config = ExploreConfig { executions: 1000, transactions: Some(3), strategy, ..ExploreConfig::default() };
        let run = RunConfig { protocols: vec!["2pl-dldetect".into()], ..on("ycsb-a", &settings) };
        for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
            assert_eq!((explored.aborts, explored.livelocks), (0, 0), "{explored:#?}");
        }
    }
}

/// The most tries of a transaction that is protected after one conflict, if no row is deleted: the
/// try that conflicts, and the try that runs alone.
const TRIES: u32 = 2;

/// A transaction that has met a conflict runs alone, and so commits, under every protocol and in
/// every interleaving. Each other worker may disturb it once more, if it is collecting tombstones
/// when the gate closes. A difference between two of Cicada's clocks may cost one more try.
#[test]
fn a_protected_transaction_commits() {
    for info in litmus::INFOS {
        for strategy in STRATEGIES {
            let config = ExploreConfig { executions: 150, strategy: strategy.clone(), ..ExploreConfig::default() };
            for settings in [&[("protect", "1")][..], &[("protect", "1"), ("cu", "on"), ("ts", "on")]] {
                let run = all_on(info.name, settings).resolve().expect("valid");
                for explored in explore(&run, &config, &Stop::default()).expect("valid") {
                    assert!(!explored.violated && explored.livelocks == 0, "{strategy} {explored:#?}");
                    assert!(explored.tries < TRIES + explored.cores as u32, "{strategy} {explored:#?}");
                }
            }
        }
    }
}

/// Explores three cores that write one row, with a gate that may have a deliberate bug.
fn through_a_gate(fault: Option<Fault>) -> Explored {
    let run = RunConfig { protocols: vec!["silo".into()], ..on("litmus-lost-update", &[("protect", "1")]) };
    let config = ExploreConfig { executions: 1000, cores: Some(3), fault, ..ExploreConfig::default() };
    explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid").remove(0)
}

#[test]
fn a_transaction_that_begins_at_a_closed_gate_is_found() {
    let explored = through_a_gate(None);
    assert_eq!((explored.tries, explored.livelocks), (TRIES, 0), "{explored:#?}");
    let explored = through_a_gate(Some(Fault::PassClosedGate));
    assert!(!explored.violated && explored.livelocks == 0, "progress is all that the gate is for: {explored:#?}");
    assert!(explored.tries > TRIES, "{explored:#?}");
}

#[test]
fn a_gate_that_stays_closed_is_found() {
    let explored = through_a_gate(Some(Fault::KeepGateClosed));
    assert!(explored.livelocks > 0, "{explored:#?}");
}

/// No transaction tears a snapshot, and rows are unlinked and their memory reused under an index of
/// either kind.
#[test]
fn epochs_that_pass_in_the_middle_break_nothing() {
    let rows = |config: RunConfig, index: &str| RunConfig { index: Some(index.into()), ..config };
    let protocol = |config: RunConfig, name: &str| RunConfig { protocols: vec![name.into()], ..config };
    let config = ExploreConfig { executions: 1000, ..ExploreConfig::default() };
    let mut runs: Vec<RunConfig> = litmus::INFOS
        .iter()
        .flat_map(|info| [[].as_slice(), &[("ts", "on")]].map(|more| (info, more)))
        .map(|(info, more)| protocol(on(info.name, &[&[("silo.snapshots", "on")], more].concat()), "silo"))
        .collect();
    runs.extend(["litmus-rebirth", "litmus-absent"].map(|name| rows(on(name, &[]), "ordered")));
    for run in runs {
        for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.livelocks == 0, "{explored:#?}");
        }
    }
}

/// An engine that is taken back to how it was built makes the same steps as a new one, and the
/// quick proof overlooks no anomaly.
#[test]
fn executions_that_are_taken_back_are_those_that_are_built_anew() {
    for info in litmus::INFOS {
        let config = ExploreConfig { executions: 40, ..ExploreConfig::default() };
        let anew = ExploreConfig { anew: true, ..config.clone() };
        for settings in [&[][..], &[("cu", "on"), ("ts", "on")]] {
            let run = all_on(info.name, settings);
            let [one, other] = [&config, &anew]
                .map(|config| explore(&run.resolve().expect("valid"), config, &Stop::default()).expect("valid"));
            for (one, other) in one.into_iter().zip(other) {
                let told = |explored: &Explored| {
                    let Explored { executions, distinct, livelocks, steps, commits, aborts, permitted, .. } = *explored;
                    let found = explored.found.as_ref().map(|found| (found.schedule.clone(), found.steps.clone()));
                    ([executions, distinct, livelocks, steps, commits, aborts, permitted], found)
                };
                assert_eq!(told(&one), told(&other), "{} on {}", one.protocol, one.workload);
            }
        }
    }
}
