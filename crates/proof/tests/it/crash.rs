//! Crashes in the middle of interleaved transactions.

use contend_proof::crash::{CrashConfig, Crashed, crash_test};
use contend_runner::{RunConfig, Stop};

fn crash(protocol: &str, workload: &str, settings: &[(&str, &str)], config: &CrashConfig) -> Vec<Crashed> {
    let run = RunConfig {
        protocols: vec![protocol.to_owned()],
        workload: workload.to_owned(),
        settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..RunConfig::default()
    };
    crash_test(&run, config, &Stop::default(), &|| ()).expect("valid input")
}

/// A short timeout for DATM, which lets transactions that depend on each other wait until then. A
/// test is cut off after some milliseconds of the explorer's clock.
const IMPATIENT: (&str, &str) = ("datm.timeout_ns", "5000");

/// Under every protocol, with every commit protocol that it supports.
#[test]
fn nothing_is_lost() {
    for workload in ["ycsb-a", "tatp", "rubis", "wikipedia-stov2"] {
        let all = crash("all", workload, &[IMPATIENT], &CrashConfig { seeds: 8, seed: 5, ..CrashConfig::default() });
        assert!(all.len() > 80, "{}", all.len());
        for crashed in &all {
            assert_eq!(crashed.wrong, None, "{} on {workload} with log={}", crashed.protocol, crashed.log);
            assert!(crashed.cut == 0 && crashed.commits > 0, "{crashed:?}");
        }
        let sum = |of: fn(&Crashed) -> u64| all.iter().map(of).sum::<u64>();
        let (failures, tests) = (sum(|crashed| crashed.failures), sum(|crashed| crashed.tests));
        let acknowledged = sum(|crashed| crashed.acknowledged);
        let (checkpoints, checked) = (sum(|crashed| crashed.checkpoints), sum(|crashed| crashed.checked));
        println!(
            "{workload}: {tests} tests, {failures} failures, {acknowledged} acknowledged, {checkpoints} checkpoints, {checked} histories"
        );
        assert!(failures * 8 > tests && acknowledged > 2 * tests, "{failures} of {tests}, {acknowledged}");
        // Bids commute under some options of protocols, and then the order of versions is not
        // known.
        let known = if workload == "rubis" { tests * 9 / 10 } else { tests };
        assert!(checkpoints > tests && checked >= known, "{checkpoints} checkpoints, {checked} histories of {tests}");
    }
}

/// A transaction of lazy evaluation shows rows before its later part has run, and dies between.
#[test]
fn nothing_is_lost_behind_the_border() {
    for workload in ["bank", "tpcc", "litmus-later", "litmus-later-inserts"] {
        let all = crash("lazy", workload, &[], &CrashConfig { seeds: 32, seed: 7, ..CrashConfig::default() });
        assert!(!all.is_empty(), "{workload}: nothing was tested");
        for crashed in all {
            assert_eq!(crashed.wrong, None, "{workload} with log={}", crashed.log);
            // Few tests of TPC-C take longer than the explorer lets them.
            assert!(crashed.cut * 8 < crashed.tests && crashed.failures > 0 && crashed.commits > 0, "{crashed:?}");
        }
    }
}

/// Their transactions are long, so that few tests suffice.
#[test]
fn nothing_is_lost_of_large_workloads() {
    for workload in ["wikipedia", "tpce-hot"] {
        for crashed in
            crash("all", workload, &[IMPATIENT], &CrashConfig { seeds: 2, seed: 5, ..CrashConfig::default() })
        {
            assert_eq!(crashed.wrong, None, "{} on {workload} with log={}", crashed.protocol, crashed.log);
            assert!(crashed.cut == 0 && crashed.commits > 0, "{crashed:?}");
        }
    }
}

#[test]
fn a_protocol_without_a_log_says_why() {
    let run = RunConfig { protocols: vec!["chopping".into()], ..RunConfig::default() };
    let error = CrashConfig::default().resolve(&run).expect_err("there is nothing to test").to_string();
    assert!(error.contains("no log goes with chopping: a crash between two parts"), "{error}");
}

/// With options that change which writes are logged or omitted.
#[test]
fn nothing_is_lost_with_options() {
    let options: [(&str, &[(&str, &str)]); 9] = [
        ("silo", &[("log", "clr"), ("log.lsn", "on")]),
        ("mvcc", &[("versions.nwr", "on")]),
        ("cicada", &[("versions.nwr", "on"), ("ts", "on"), ("log.group", "1000")]),
        ("mocc", &[("ts", "on")]),
        ("silo", &[("cu", "on"), ("ts", "on")]),
        ("mvcc", &[("cu", "on"), ("log", "elr-group")]),
        ("bamboo", &[("cu", "on")]),
        ("datm", &[("cu", "on"), IMPATIENT]),
        ("ic3", &[("cu", "on"), ("ic3.whole", "off")]),
    ];
    for (protocol, settings) in options {
        for workload in ["ycsb-a", "litmus-overwrites", "litmus-updates"] {
            let config = CrashConfig { seeds: 24, seed: 5, ..CrashConfig::default() };
            for crashed in crash(protocol, workload, settings, &config) {
                assert_eq!(crashed.wrong, None, "{protocol} {settings:?} on {workload} with log={}", crashed.log);
                assert!(crashed.cut == 0 && crashed.commits > 0, "{crashed:?}");
            }
        }
    }
}

/// Rows of few keys come and go while epochs pass and tombstones are collected, under every
/// protocol with every commit protocol.
#[test]
fn rows_come_and_go() {
    let config = CrashConfig { seeds: 24, seed: 5, transactions: 24, ..CrashConfig::default() };
    let all = crash("all", "litmus-births", &[IMPATIENT], &config);
    assert!(all.len() > 80, "{}", all.len());
    for crashed in &all {
        assert_eq!(crashed.wrong, None, "{} with log={}", crashed.protocol, crashed.log);
        assert!(crashed.cut == 0 && crashed.commits > 0, "{crashed:?}");
    }
}
