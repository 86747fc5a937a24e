//! The explorer finds the deliberate bugs of Silo with a workload file, as with the litmus tests.
//!
//! A binary of its own: it needs none of the other tests' broken protocols, which take minutes to
//! build.
//!
//! The file is the shop of `workloads/`, with so few rows that three transactions meet. Which bugs
//! it can show follows from what it does: `\set`, reads, changes of two groups of columns, inserts,
//! deletes, and scans of an index and of the newest orders. 20,000 executions don't show
//! WRITE_WRONG_CELL, EPOCH_BEFORE_LOCKS and UNLINK_LOCKED, which litmus tests of their own find.

use std::collections::BTreeMap;

use contend_engine::NamedProtocol;
use contend_proof::explore::{ExploreConfig, explore_protocol};
use contend_protocols::fault::{Faulty, Only, id};
use contend_protocols::optimistic::silo::Silo;
use contend_runner::RunConfig;
use contend_sim::Simulated;

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");
/// The most executions in which a bug has to show.
const BUDGET: u64 = 10_000;
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

macro_rules! found {
    ($($fault:ident, $settings:expr;)*) => {
        [$((stringify!($fault), {
            type Broken = Only<{ id(stringify!($fault)) }>;
            first_wrong::<Faulty<Silo<Broken>, Broken>>($settings, BUDGET)
        })),*]
    };
}

/// Fails if a bug has not shown.
fn assert_found(found: &[(&str, Option<u64>)]) {
    found.iter().for_each(|(fault, executions)| println!("{fault}: {executions:?}"));
    let missed: Vec<&str> = found.iter().filter(|(_, found)| found.is_none()).map(|(fault, _)| *fault).collect();
    assert_eq!(missed, [""; 0], "{found:?}");
}

#[test]
fn bugs_of_silo_show_in_a_shop() {
    assert_found(&found! {
        IGNORE_LOCKS_IN_VALIDATION, PLAIN;
        SKIP_VALIDATION_OF_WRITTEN, PLAIN;
        FORGET_READ_ONLY, PLAIN;
        FORGET_GAPS, PLAIN;
        SHOW_PLACEHOLDERS, PLAIN;
        MERGE_BEFORE_LOCK, SPLIT;
        FORGET_OLDER_TIDS, PLAIN;
    });
}

#[test]
fn bugs_of_silos_snapshots_show_in_a_shop() {
    assert_found(&found! {
        SNAPSHOT_OF_RUNNING_EPOCH, SNAPSHOTS;
        FORGET_SNAPSHOTS_OF_TOMBSTONES, SNAPSHOTS;
        REUSE_COPIES_EARLY, SNAPSHOTS;
    });
}

#[test]
fn silo_is_right_in_a_shop() {
    for settings in [PLAIN, SPLIT, SNAPSHOTS] {
        assert_eq!(first_wrong::<Silo>(settings, SOUND), None);
    }
}
