//! Workload files: `contend workload check`, and wherever a workload is named.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");
const SMALL: [&str; 6] = ["--set", "shop.items=1k", "--set", "shop.customers=1k", "--windows", "1"];

/// Runs a command that succeeds. Returns what it printed.
fn good(folder: &TempDir, arguments: &[&str]) -> String {
    let output = contend(folder.path(), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_file_is_described() {
    let folder = TempDir::new().expect("a folder");
    let shown = good(&folder, &["workload", "check", SHOP, "--set", "shop.items=7"]);
    assert!(shown.contains("item: 7 rows") && shown.contains("buy and buy: item, orders"), "{shown}");
}

#[test]
fn a_result_repeats_without_the_file() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("mine.toml");
    std::fs::copy(SHOP, &file).expect("a copy");
    let times = ["--seconds", "0.02", "--warmup", "0.02", "--protocols", "silo,mvto", "--verify-transactions", "1000"];
    let first = [&["compare", "mine.toml", "--out", "first"][..], &SMALL, &times].concat();
    good(&folder, &first);
    std::fs::remove_file(&file).expect("there");
    good(&folder, &["compare", "--from", "first/results.json", "--out", "again"]);
    let again = std::fs::read_to_string(folder.path().join("again/results.json")).expect("results");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["config"]["workload"], "mine.toml");
    assert!(again["protocols"][1]["check"]["text"].as_str().is_some_and(|text| text.contains("3 invariants")));
}

#[test]
fn a_comparison_of_a_file_has_a_folder_of_its_name() {
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir(folder.path().join("sub")).expect("a folder");
    std::fs::copy(SHOP, folder.path().join("sub/mine.toml")).expect("a copy");
    let compare = ["compare", "sub/mine.toml", "--protocols", "silo", "--no-verify", "--seconds", "0.01"];
    let shown = good(&folder, &[&compare[..], &SMALL].concat());
    assert!(shown.contains("-mine/report.html"), "{shown}");
    assert!(folder.path().join("contend-results/latest/results.json").exists());
}

#[test]
fn files_run_on_chips_in_explorations_and_in_crash_tests() {
    let folder = TempDir::new().expect("a folder");
    let on_chip = [&["run", SHOP, "--protocol", "silo", "--machine", "abyss:4", "--verify"][..], &SMALL].concat();
    good(&folder, &on_chip);
    good(&folder, &["explore", "--workload", SHOP, "--protocol", "silo,2pl-waitdie", "--schedules", "50"]);
    let crash = ["crash-test", "--workload", SHOP, "--protocol", "silo", "--seeds", "5"];
    assert!(good(&folder, &crash).contains("nothing is lost"));
}

#[test]
fn mistakes_are_named() {
    refuses(&["workload", "check", "none.toml"], &["none.toml can't be read"]);
    refuses(&["workload", "check", "ycsb-a"], &["ycsb-a is a workload of the list"]);
    refuses(&["run", SHOP, "--set", "shop.itms=3"], &["did you mean 'shop.items'?"]);
    refuses(&["run", SHOP, "--set", "shop.theta=1.5"], &["transaction 'buy', line 5", "the skew of zipf is 1.5"]);
    refuses(&["run", SHOP, "--protocol", "2pl-ordered"], &["the rows", "can't declare"]);
    refuses(&["compare", "shopp"], &["unknown workload 'shopp'", "the path of a workload file"]);
    refuses(&["workload", "check", env!("CARGO_MANIFEST_DIR")], &["can't be read"]);
}
