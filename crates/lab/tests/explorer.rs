//! The explorer on real protocols: those that are right stay right, those that are broken are found, and what was found replays.

use contend_engine::Protocol;
use contend_lab::explore::{ExploreConfig, Explored, StrategyChoice, explore, explore_protocol};
use contend_lab::{RunConfig, Stop};
use contend_protocols::no_wait::NoWait;
use contend_protocols::{locking, silo};
use contend_sim::Simulated;
use contend_workloads::litmus;

const STRATEGIES: [StrategyChoice; 3] = [StrategyChoice::Random, StrategyChoice::Pct(3), StrategyChoice::Exhaustive(2)];

fn on(workload: &str, settings: &[(&str, &str)]) -> RunConfig {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    RunConfig { workload: workload.into(), settings, ..RunConfig::default() }
}

#[test]
fn no_registered_protocol_breaks_its_promise() {
    for info in litmus::INFOS {
        for strategy in STRATEGIES {
            let config = ExploreConfig { executions: 1000, strategy: strategy.clone(), ..ExploreConfig::default() };
            for settings in [&[][..], &[("cu", "on"), ("ts", "on")]] {
                for explored in explore(&on(info.name, settings), &config, &Stop::default()).expect("valid") {
                    assert!(!explored.violated, "{strategy} {explored:#?}");
                    assert_eq!(explored.livelocks, 0, "{strategy} {explored:#?}");
                }
            }
        }
    }
}

#[test]
fn other_workloads_are_explored_as_well() {
    for workload in ["ycsb-f", "bank", "smallbank", "tatp"] {
        let config = ExploreConfig { executions: 30, ..ExploreConfig::default() };
        for explored in explore(&on(workload, &[]), &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.commits > 0, "{explored:#?}");
        }
    }
}

#[test]
fn no_control_is_found_on_every_test_of_conflicts() {
    // `litmus-abort` is right also without control: writes are buffered, so there is nothing to take back.
    for info in litmus::INFOS.iter().filter(|info| info.name != "litmus-abort") {
        let run = RunConfig { protocols: vec!["none".into()], ..on(info.name, &[]) };
        let explored = explore(&run, &ExploreConfig::default(), &Stop::default()).expect("valid");
        assert!(explored[0].found.is_some(), "{explored:?}");
    }
}

/// The executions that each strategy needs to find this broken protocol, within a budget; what was found must replay.
#[track_caller]
fn found<P: Protocol<Simulated>>(fault: &str, workload: &str, settings: &[(&str, &str)]) {
    const BUDGET: u64 = 20_000;
    let run = on(workload, settings);
    for strategy in [StrategyChoice::Random, StrategyChoice::Pct(3)] {
        let config = ExploreConfig { executions: BUDGET, strategy: strategy.clone(), ..ExploreConfig::default() };
        let explored: Explored = explore_protocol::<P>(&run, &config).expect("valid");
        let found = explored.found.unwrap_or_else(|| panic!("{fault} on {workload}: not found by {strategy}"));
        assert!(explored.violated);
        println!("{fault} on {workload}: {strategy} {} executions, {} switches", found.executions, found.switches);
        let replay = ExploreConfig {
            seed: found.seed,
            cores: Some(explored.cores),
            replay: Some(found.schedule.parse().expect("a schedule")),
            ..config
        };
        let again =
            explore_protocol::<P>(&run, &replay).expect("valid").found.expect("the same schedule does the same");
        assert_eq!(again.verdict, found.verdict);
        assert_eq!(again.steps, found.steps);
    }
}

macro_rules! silo_with {
    ($fault:ident, $workload:literal, $settings:expr) => {{
        struct Broken;
        impl silo::Faults for Broken {
            const $fault: bool = true;
        }
        found::<silo::Silo<Broken>>(concat!("silo ", stringify!($fault)), $workload, $settings);
    }};
}

macro_rules! locking_with {
    ($fault:ident, $workload:literal, $settings:expr) => {{
        struct Broken;
        impl locking::Faults for Broken {
            const $fault: bool = true;
        }
        found::<NoWait<Broken>>(concat!("2pl-nowait ", stringify!($fault)), $workload, $settings);
    }};
}

const SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on")];

#[test]
fn every_broken_silo_is_found() {
    silo_with!(IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew", &[]);
    silo_with!(SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update", &[]);
    silo_with!(FORGET_READ_ONLY, "litmus-write-skew", &[]);
    silo_with!(FORGET_GAPS, "litmus-absent", &[]);
    silo_with!(FORGET_GAPS, "litmus-scans", &[]);
    silo_with!(SHOW_PLACEHOLDERS, "litmus-abort", &[]);
    silo_with!(WRITE_WRONG_CELL, "litmus-groups", SPLIT);
    silo_with!(MERGE_BEFORE_LOCK, "litmus-groups", SPLIT);
    silo_with!(FORGET_OLDER_TIDS, "litmus-random", &[]);
}

#[test]
fn every_broken_locking_is_found() {
    locking_with!(RELEASE_SHARED_EARLY, "litmus-write-skew", &[]);
    locking_with!(IGNORE_READERS, "litmus-write-skew", &[]);
    locking_with!(FORGET_GAPS, "litmus-absent", &[]);
    locking_with!(LOCK_WRONG_CELL, "litmus-groups", SPLIT);
    locking_with!(MERGE_BEFORE_LOCK, "litmus-groups", SPLIT);
    locking_with!(KEEP_ABORTED_INSERTS, "litmus-abort", &[]);
}
