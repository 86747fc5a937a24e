//! The explorer finds the deliberate bugs of Silo with a workload file, as with the litmus tests.
//!
//! The file is the shop of `workloads/`, with so few rows that three transactions meet. Which bugs
//! it can show follows from what it does: `\set`, reads, changes of two groups of columns, inserts,
//! deletes, and scans of an index and of the newest orders. 20,000 executions don't show
//! write_wrong_cell, epoch_before_locks and unlink_locked, which litmus tests of their own find.

use std::collections::BTreeMap;

use contend_engine::NamedProtocol;
use contend_proof::explore::{ExploreConfig, explore_protocol};
use contend_protocols::fault::{Chosen, Faulty, id};
use contend_protocols::optimistic::silo::Silo;
use contend_runner::RunConfig;
use contend_sim::Simulated;

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");
/// The most executions in which a bug has to show.
const BUDGET: u64 = 30_000;
/// The executions of Silo as it is.
const SOUND: u64 = 2_000;

const PLAIN: &[(&str, &str)] = &[];
const SPLIT: &[(&str, &str)] = &[("cu", "on"), ("ts", "on")];
const SNAPSHOTS: &[(&str, &str)] = &[("silo.snapshots", "on")];

/// Returns the number of executions until one is wrong; `None` if all are right.
fn first_wrong<P: NamedProtocol<Simulated>>(settings: &[(&str, &str)], executions: u64) -> Option<u64> {
    let few = [("shop.items", "2"), ("shop.customers", "2")];
    let settings: BTreeMap<String, String> =
        settings.iter().chain(&few).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let run = RunConfig { workload: SHOP.into(), settings, ..RunConfig::default() };
    let config = ExploreConfig { executions, transactions: Some(3), ..ExploreConfig::default() };
    let explored = explore_protocol::<P>(&run, &config).expect("valid");
    explored.found.map(|found| found.executions)
}

/// Fails if one of these bugs of Silo does not show.
fn assert_found(faults: &[(&str, &[(&str, &str)])]) {
    let found = faults.iter().map(|&(fault, settings)| {
        let first = Chosen::during(id(fault), || first_wrong::<Faulty<Silo<Chosen>, Chosen>>(settings, BUDGET));
        println!("{fault}: {first:?}");
        (fault, first)
    });
    let missed: Vec<&str> = found.filter(|(_, first)| first.is_none()).map(|(fault, _)| fault).collect();
    assert_eq!(missed, [""; 0]);
}

#[test]
fn bugs_of_silo_show_in_a_shop() {
    assert_found(&[
        ("ignore_locks_in_validation", PLAIN),
        ("skip_validation_of_written", PLAIN),
        ("forget_read_only", PLAIN),
        ("forget_gaps", PLAIN),
        ("show_placeholders", PLAIN),
        ("merge_before_lock", SPLIT),
        ("forget_older_tids", PLAIN),
    ]);
}

#[test]
fn bugs_of_silos_snapshots_show_in_a_shop() {
    assert_found(&[
        ("snapshot_of_running_epoch", SNAPSHOTS),
        ("forget_snapshots_of_tombstones", SNAPSHOTS),
        ("reuse_copies_early", SNAPSHOTS),
    ]);
}

#[test]
fn silo_is_right_in_a_shop() {
    for settings in [PLAIN, SPLIT, SNAPSHOTS] {
        assert_eq!(first_wrong::<Silo>(settings, SOUND), None);
    }
}
