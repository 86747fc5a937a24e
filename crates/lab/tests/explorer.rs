//! The explorer on real protocols: those that are right stay right, those that are broken are found, and what was found replays.

use contend_engine::Protocol;
use contend_lab::explore::{ExploreConfig, Explored, StrategyChoice, explore, explore_protocol};
use contend_lab::{RunConfig, Stop};
use contend_protocols::deadlock_detection::DeadlockDetection;
use contend_protocols::no_wait::NoWait;
use contend_protocols::wait_die::WaitDie;
use contend_protocols::wound_wait::WoundWait;
use contend_protocols::{locking, mocc, occ, silo, tictoc};
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

macro_rules! broken {
    ($test:ident: $faults:ident, $protocol:ty; $($fault:ident, $workload:literal, $settings:expr;)*) => {
        #[test]
        fn $test() {
            $({
                struct Broken;
                impl $faults::Faults for Broken {
                    const $fault: bool = true;
                }
                let name = <$protocol as Protocol<Simulated>>::INFO.name;
                found::<$protocol>(&format!("{name} {}", stringify!($fault)), $workload, $settings);
            })*
        }
    };
}

/// Transactions that wait for each other for ever are cut, and counted.
#[track_caller]
fn stands_still<P: Protocol<Simulated>>(fault: &str, workload: &str) {
    let config = ExploreConfig { executions: 2000, ..ExploreConfig::default() };
    let explored = explore_protocol::<P>(&on(workload, &[]), &config).expect("valid");
    println!("{fault} on {workload}: {} of {} stand still", explored.livelocks, explored.executions);
    assert!(explored.livelocks > 0, "{fault} on {workload}: never stands still");
}

const SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on")];

broken! {
    every_broken_silo_is_found: silo, silo::Silo<Broken>;
    IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew", &[];
    SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update", &[];
    FORGET_READ_ONLY, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
    FORGET_GAPS, "litmus-scans", &[];
    SHOW_PLACEHOLDERS, "litmus-abort", &[];
    WRITE_WRONG_CELL, "litmus-groups", SPLIT;
    MERGE_BEFORE_LOCK, "litmus-groups", SPLIT;
    FORGET_OLDER_TIDS, "litmus-random", &[];
}

broken! {
    every_broken_locking_is_found: locking, NoWait<Broken>;
    RELEASE_SHARED_EARLY, "litmus-write-skew", &[];
    IGNORE_READERS, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
    LOCK_WRONG_CELL, "litmus-groups", SPLIT;
    MERGE_BEFORE_LOCK, "litmus-groups", SPLIT;
    KEEP_ABORTED_INSERTS, "litmus-abort", &[];
}

broken! {
    every_broken_wait_die_is_found: locking, WaitDie<Simulated, Broken>;
    RELEASE_SHARED_EARLY, "litmus-write-skew", &[];
    IGNORE_READERS, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
}

broken! {
    every_broken_wound_wait_is_found: locking, WoundWait<Simulated, Broken>;
    RELEASE_SHARED_EARLY, "litmus-write-skew", &[];
    IGNORE_READERS, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
}

broken! {
    every_broken_deadlock_detection_is_found: locking, DeadlockDetection<Simulated, Broken>;
    RELEASE_SHARED_EARLY, "litmus-write-skew", &[];
    IGNORE_READERS, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
}

#[test]
fn every_broken_order_of_waits_stands_still() {
    struct Anyway;
    impl locking::Faults for Anyway {
        const WAIT_ANYWAY: bool = true;
    }
    struct Unhurt;
    impl locking::Faults for Unhurt {
        const IGNORE_WOUNDS: bool = true;
    }
    struct Disorderly;
    impl mocc::Faults for Disorderly {
        const WAIT_OUT_OF_ORDER: bool = true;
    }
    stands_still::<mocc::Mocc<Disorderly>>("mocc WAIT_OUT_OF_ORDER", "litmus-write-skew");
    stands_still::<WaitDie<Simulated, Anyway>>("2pl-waitdie WAIT_ANYWAY", "litmus-write-skew");
    stands_still::<DeadlockDetection<Simulated, Anyway>>("2pl-dldetect WAIT_ANYWAY", "litmus-write-skew");
    stands_still::<WoundWait<Simulated, Unhurt>>("2pl-woundwait IGNORE_WOUNDS", "litmus-write-skew");
}

broken! {
    every_broken_occ_is_found: occ, occ::Occ<Simulated, Broken>;
    STAMP_BEFORE_LOCKS, "litmus-lost-update", &[];
    SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update", &[];
    LOCK_ONLY_WRITTEN, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
}

broken! {
    every_broken_mocc_is_found: mocc, mocc::Mocc<Broken>;
    TRUST_LOCKS, "litmus-write-skew", &[];
    IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew", &[];
    FORGET_GAPS, "litmus-absent", &[];
}

#[test]
fn locks_of_mocc_that_are_always_taken_break_nothing() {
    for info in litmus::INFOS {
        let config = ExploreConfig { executions: 1000, ..ExploreConfig::default() };
        let run = RunConfig { protocols: vec!["mocc".into()], ..on(info.name, &[("mocc.hot", "0")]) };
        for explored in explore(&run, &config, &Stop::default()).expect("valid") {
            assert!(!explored.violated && explored.livelocks == 0, "{explored:#?}");
        }
    }
}

broken! {
    every_broken_tictoc_is_found: tictoc, tictoc::TicToc<Broken>;
    FORGET_EXTENSION, "litmus-write-skew", &[];
    OVERWRITE_READ_INTERVALS, "litmus-write-skew", &[];
    IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew", &[];
    FORGET_TIMES_OF_LEAVES, "litmus-random", &[];
}
