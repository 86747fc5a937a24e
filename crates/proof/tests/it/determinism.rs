//! Deterministic protocols end in the same state wherever the same input runs, and what proves it
//! tells protocols that do not.

use contend_machine::Native;
use contend_proof::determinism::{Determined, DeterminismConfig, determinism};
use contend_proof::explore::{ExploreConfig, Explored, StrategyChoice, explore};
use contend_protocols::deterministic_protocols;
use contend_runner::{RunConfig, Silent, Stop};

fn run(protocols: &[&str], workload: &str, settings: &[(&str, &str)]) -> RunConfig {
    RunConfig {
        protocols: protocols.iter().map(|name| name.to_string()).collect(),
        workload: workload.into(),
        settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..RunConfig::default()
    }
}

fn prove(run: &RunConfig, clients: usize, transactions: u64) -> Vec<Determined> {
    let config =
        DeterminismConfig { clients, transactions, repeats: 1, executions: 15, ..DeterminismConfig::default() };
    determinism(run, &config, &Stop::default(), &Silent).expect("valid")
}

#[track_caller]
fn assert_deterministic(proved: &[Determined], places: usize) {
    assert!(!proved.is_empty());
    for Determined { protocol, workload, wrong, places: been, .. } in proved {
        assert_eq!(*wrong, None, "{protocol} on {workload}: {been:#?}");
        assert_eq!(been.len(), places, "{protocol} on {workload}: {been:#?}");
        assert!(been.iter().all(|place| place.commits == place.runs * place.clients as u64 * place.transactions));
    }
}

#[test]
fn the_same_input_ends_in_the_same_state() {
    let protocols = deterministic_protocols::<Native>().len();
    assert!(protocols >= 2);
    let workloads = [
        "bank",
        "smallbank",
        "tatp",
        "tpcc",
        "rubis",
        "wikipedia",
        "ycsb-a",
        "ycsb-e",
        "litmus-random",
        "litmus-births",
        "litmus-scans",
        "litmus-rebirth-index",
    ];
    for workload in workloads {
        let proved = prove(&run(&["all"], workload, &[]), 4, 40);
        assert_eq!(proved.len(), protocols, "{workload}");
        // Three numbers of threads and as many of cores, two of each for three clients, two
        // strategies.
        assert_deterministic(&proved, 6 + 4 + 2);
    }
}

/// TPC-E's transactions can't declare their rows or partitions, so only Aria runs them.
#[test]
fn rows_that_nobody_declares_end_in_the_same_state() {
    let proved = prove(&run(&["aria"], "tpce", &[]), 4, 40);
    assert_deterministic(&proved, 6 + 4 + 2);
}

/// Each option of the protocols, an index that scans, and numbers of clients that are not powers of
/// two.
#[test]
fn the_same_input_ends_in_the_same_state_with_any_options() {
    let entries = ["aria+aria.reordering=off", "calvin"];
    let scans = RunConfig { seed: 7, index: Some("ordered".into()), ..run(&entries, "litmus-random", &[]) };
    let proved = prove(&scans, 6, 60);
    assert_eq!(proved.len(), 2);
    assert_deterministic(&proved, 8 + 4 + 2);
    assert_deterministic(&prove(&run(&["all"], "ycsb-a", &[("cu", "on"), ("ts", "on")]), 5, 60), 4 + 4 + 2);
    assert_deterministic(&prove(&run(&["all"], "bank", &[]), 1, 60), 2 + 2 + 2);
}

fn explored(protocol: &str) -> Explored {
    let config = ExploreConfig {
        executions: 200,
        strategy: StrategyChoice::Random,
        cores: Some(3),
        transactions: Some(4),
        same_input: true,
        ..ExploreConfig::default()
    };
    let plan = run(&[protocol], "litmus-overwrites", &[]).resolve().expect("valid");
    explore(&plan, &config, &Stop::default()).expect("valid").remove(0)
}

#[test]
fn what_is_not_deterministic_is_told() {
    for protocol in ["silo", "2pl-nowait", "tictoc", "msto"] {
        let found = explored(protocol).found.expect("the states differ");
        assert!(found.verdict.contains("the final state is"), "{protocol}: {}", found.verdict);
    }
    for protocol in ["aria+rounds.patience_us=0", "calvin+rounds.patience_us=0"] {
        let explored = explored(protocol);
        assert!(explored.found.is_none() && explored.state.is_some(), "{protocol}: {:?}", explored.found);
    }
}

/// A batch that goes on without a worker that is slow depends on more than the input.
#[test]
fn impatient_batches_are_not_deterministic() {
    let found = explored("calvin+rounds.patience_us=1").found.expect("the states differ");
    assert!(found.verdict.contains("the final state is"), "{}", found.verdict);
}

#[test]
fn what_can_t_be_proved_is_refused() {
    let refused = |run: RunConfig, config: DeterminismConfig| {
        determinism(&run, &config, &Stop::default(), &Silent).expect_err("refused").to_string()
    };
    let aria = || run(&["aria"], "bank", &[]);
    for (config, expected) in [
        (DeterminismConfig { clients: 0, ..Default::default() }, "clients is 0; valid: 1 to 32"),
        (DeterminismConfig { clients: 33, ..Default::default() }, "clients is 33; valid: 1 to 32"),
        (DeterminismConfig { transactions: 0, ..Default::default() }, "transactions is 0"),
        (DeterminismConfig { repeats: 0, ..Default::default() }, "repeats is 0"),
        (DeterminismConfig { executions: 0, ..Default::default() }, "schedules is 0"),
        (DeterminismConfig { chip: "toaster".into(), ..Default::default() }, "toaster"),
        (DeterminismConfig { chip: "native".into(), ..Default::default() }, "'native' is not a simulated chip"),
        (DeterminismConfig { transactions: 100_001, ..Default::default() }, "valid: 1 to 100000"),
    ] {
        let message = refused(aria(), config);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    for (option, value, why) in [
        ("rounds.patience_us", "3", "is chosen by the proof itself"),
        ("threads.interleave", "3", "is chosen by the proof itself"),
        ("protect", "3", "'engine.protect_after' goes against it"),
        ("log", "epoch", "'log.mode' goes against it"),
    ] {
        let message = refused(run(&["aria"], "bank", &[(option, value)]), DeterminismConfig::default());
        assert!(message.contains(why), "{option}: {message}");
    }
    let message = refused(run(&["aria+protect=3"], "bank", &[]), DeterminismConfig::default());
    assert!(message.contains("'engine.protect_after' goes against it"), "{message}");
    let message = refused(run(&["silo"], "bank", &[]), DeterminismConfig::default());
    assert!(message.contains("silo is not deterministic; valid: aria, calvin"), "{message}");
}
