//! Histories without an anomaly: the checker must find none, and the replay must agree.

use crate::support::*;
use contend_history::{Applied, Class, Divergence, History, Report, check, replay, replay_to};

#[track_caller]
fn assert_clean(history: &History) -> Report {
    let report = check(history);
    assert!(report.anomalies.is_empty(), "{report}");
    assert!(report.is_exact(), "{report}");
    replay(history, report.serial_order().unwrap()).unwrap();
    report
}

#[test]
fn nothing() {
    let report = assert_clean(&History::new());
    assert_eq!(report.serial_order(), Some(&[][..]));
    assert_eq!(report.to_string().lines().next(), Some("serializable: 0 transactions, 0 operations, 0 cycles"));
}

#[test]
fn a_transaction_without_operations() {
    assert_clean(&numbered([vec![]]));
}

#[test]
fn reads_order_transactions_against_the_file() {
    let history = numbered([vec![read("x", 2)], vec![write("x", 0)], vec![read("x", 0)]]);
    assert_eq!(assert_clean(&history).serial_order(), Some(&[2, 1, 0][..]));
}

#[test]
fn delete_and_reinsert() {
    assert_clean(&numbered([
        vec![read("x", 0)],
        vec![delete("x", 0)],
        vec![miss_after("x", 2), scan_gone("a", "z", &[], &[("x", 2)])],
        vec![insert_after("x", 2)],
        vec![read("x", 4), delete("x", 4), insert_after("x", 5)],
        vec![read("x", 5)],
    ]));
}

#[test]
fn misses_before_and_after() {
    assert_clean(&numbered([
        vec![miss_after("x", 0)],
        vec![miss_after("x", 0), insert_after("x", 0), read("x", 2)],
        vec![delete("x", 2), miss("x")],
        vec![miss_after("x", 3)],
    ]));
}

#[test]
fn the_only_order_left_is_taken() {
    // Loaded, deleted by T1, inserted by T2, deleted by T3, inserted by T4: the links to T1 and T3
    // follow.
    let history = numbered([
        vec![delete("x", 0)],
        vec![insert("x")],
        vec![delete("x", 2)],
        vec![insert("x")],
        vec![read("x", 4)],
    ]);
    assert_eq!(assert_clean(&history).dependencies.ww, 3);
    // T1's miss can only be T2's delete of the loaded row, so it comes before T3's insert.
    let history = numbered([vec![miss("x"), write("y", 0)], vec![delete("x", 0)], vec![insert("x"), read("y", 0)]]);
    assert_eq!(check(&history).anomalies[0].class, Class::G2, "{}", check(&history));
}

#[test]
fn what_is_inserted_and_deleted_at_once_leaves_nothing() {
    // T2's row is never there for another; T3 and T4 may name either deleter.
    let within = || vec![insert_after("x", 1), read("x", 2), delete("x", 2), miss("x")];
    assert_clean(&numbered([vec![delete("x", 0)], within(), vec![miss_after("x", 1)], vec![insert_after("x", 1)]]));
    assert_clean(&numbered([vec![delete("x", 0)], within(), vec![miss_after("x", 2)], vec![insert_after("x", 2)]]));
    let never = vec![insert_after("x", 0), delete("x", 1)];
    assert_clean(&numbered([never.clone(), vec![miss_after("x", 0), insert_after("x", 0)]]));
    assert_clean(&numbered([never, vec![miss_after("x", 1), insert_after("x", 1)]]));
    // Deletes of what was not there.
    let blind = || Act::Write {
        key: "x".into(),
        over: contend_history::State::NeverExisted,
        delete: true,
        applied: Applied::InOrder,
        value: None,
    };
    assert_clean(&numbered([vec![blind()], vec![blind()], vec![insert_after("x", 0)]]));
}

#[test]
fn a_write_over_a_deleted_version_is_an_insert() {
    assert_clean(&numbered([vec![delete("x", 0)], vec![write("x", 1)], vec![read("x", 2)]]));
}

#[test]
fn many_writes_of_one_key() {
    assert_clean(&numbered([
        vec![write_value("x", 0, 1), write_value("x", 0, 2), read_value("x", 1, 2), write_value("x", 1, 3)],
        vec![read_value("x", 1, 3), write("x", 1)],
    ]));
}

#[test]
fn scans_that_stop_at_their_limit() {
    let insert_all = |keys: [&str; 5]| keys.map(|key| insert_after(key, 0)).to_vec();
    // T2 scans upwards from 10 and stops at its second row, T3 downwards from 50 at its second;
    // what lies beyond, and is written by T4 and T5, they have not read.
    let history = numbered([
        insert_all(["10", "20", "30", "40", "50"]),
        vec![scan("10", "20", &[("10", 1), ("20", 1)]), read("99", 4), read("98", 5)],
        vec![scan("40", "50", &[("50", 1), ("40", 1)]), read("99", 4), read("98", 5)],
        vec![delete("30", 1), write("99", 0)],
        vec![insert_after("25", 0), write("98", 0)],
    ]);
    assert_clean(&history);
}

#[test]
fn bounds_are_included_and_compare_as_numbers() {
    let rows = || [("9", 1), ("10", 1), ("100", 1)];
    let writer = || vec![insert("9"), insert("10"), insert("100")];
    assert_clean(&numbered([writer(), vec![scan("9", "100", &rows())]]));
    assert_clean(&numbered([writer(), vec![scan("10", "99", &rows()[1..2])]]));
    assert_clean(&numbered([writer(), vec![scan("11", "99", &[])]]));
    assert_clean(&numbered([writer(), vec![scan("99", "11", &[])]]));
    // Bytewise, 9 comes after 100.
    assert_clean(&numbered([writer(), vec![scan("10", "a", &rows())]]));
    assert_clean(&numbered([writer(), vec![scan("100", "8x", &rows()[2..])]]));
}

#[test]
fn scans_without_bounds() {
    let everything = |low: Option<&str>, high: Option<&str>, seen: &[(&str, u64)]| Act::Scan {
        low: low.map(str::to_owned),
        high: high.map(str::to_owned),
        seen: seen.iter().map(|&(key, version)| (key.to_owned(), version)).collect(),
        gone: vec![],
    };
    let rows = [("1", 1), ("2", 0), ("3", 1)];
    assert_clean(&numbered([
        vec![insert("1"), insert("3")],
        vec![
            everything(None, None, &rows),
            everything(Some("2"), None, &rows[1..]),
            everything(None, Some("2"), &rows[..2]),
        ],
    ]));
}

#[test]
fn ambiguous_misses_raise_no_alarm() {
    // x is there from T1 to T2 and from T3 to T4; T5's miss may be before, between or behind.
    let base =
        || vec![vec![insert_after("x", 0)], vec![delete("x", 1)], vec![insert_after("x", 2)], vec![delete("x", 3)]];
    for other in [vec![write("y", 0)], vec![scan("a", "z", &[])]] {
        let mut transactions = base();
        transactions.push([vec![miss("x")], other].concat());
        // Reads of y place T5 before T1, behind T4, and (from T2 or T3 on) between.
        for (reader, version) in [(0, 5), (3, 0), (1, 0), (2, 5)] {
            let mut transactions = transactions.clone();
            if matches!(transactions[4][1], Act::Write { .. }) {
                transactions[reader].push(read("y", version));
            }
            let report = check(&history(&(1..).zip(transactions).collect::<Vec<_>>()));
            assert!(report.anomalies.is_empty(), "T{} read y {version}: {report}", reader + 1);
            assert!(!report.is_exact());
        }
    }
}

#[test]
fn what_holds_in_every_order_is_used() {
    // x is inserted and deleted twice, in an order that is not known, and then inserted by T5 to
    // stay. Whenever T6 missed it, that was before T5.
    let with = |t5: Act, t6: Act| {
        let t5 = vec![insert("x"), t5];
        let t6 = vec![miss("x"), t6];
        numbered([vec![insert("x")], vec![delete("x", 1)], vec![insert("x")], vec![delete("x", 3)], t5, t6])
    };
    let report = check(&with(read("y", 6), write("y", 0)));
    assert!(report.anomalies.is_empty(), "{report}");
    assert_eq!((report.ambiguous_items, report.ambiguous_reads), (1, 1));
    assert_worst(&with(read("y", 0), write("y", 0)), Class::G2, "phantom");
    assert_worst(&with(write("y", 0), read("y", 5)), Class::GSingle, "read skew");
}

fn divergence(history: &History, final_state: &[(&str, &str, u64)]) -> Option<Divergence> {
    let report = check(history);
    replay_to(history, report.serial_order().unwrap(), final_state.iter().copied()).err()
}

#[test]
fn the_final_state_is_compared() {
    let history = numbered([vec![write("x", 0), insert("y")], vec![delete("z", 0), read("u", 0)]]);
    let right = [("t", "x", 1), ("t", "y", 1), ("t", "u", 0)];
    assert_eq!(divergence(&history, &right), None);
    // Rows that the history never met were loaded, or should not be there.
    assert_eq!(divergence(&history, &[&right[..], &[("t", "other", 0), ("s", "x", 0)]].concat()), None);
    let found = |final_state: &[(&str, &str, u64)]| divergence(&history, final_state).unwrap().to_string();
    assert_eq!(found(&right[..2]), "final state, t/u: expected version 0, found no row");
    assert_eq!(
        found(&[("t", "x", 0), ("t", "y", 1), ("t", "u", 0)]),
        "final state, t/x: expected version 1, found version 0"
    );
    let with_z = [&right[..], &[("t", "z", 0)]].concat();
    assert_eq!(found(&with_z), "final state, t/z: expected no row (deleted by T2), found version 0");
    let with_ghost = [&right[..], &[("t", "ghost", 7)]].concat();
    assert_eq!(found(&with_ghost), "final state, t/ghost: expected no row (never existed), found version 7");
}

#[test]
fn the_replay_finds_wrong_values_and_orders() {
    let history = numbered([vec![write_value("x", 0, 5)], vec![read_value("x", 1, 5)]]);
    replay(&history, &[0, 1]).unwrap();
    let wrong = replay(&history, &[1, 0]).unwrap_err();
    assert_eq!(wrong.to_string(), "T2, operation 1, t/x: expected version 0, found version 1");
    let history = numbered([vec![read_value("x", 0, 5)], vec![read_value("x", 0, 6)]]);
    let wrong = replay(&history, &[0, 1]).unwrap_err();
    assert_eq!(wrong.to_string(), "T2, operation 1, t/x: expected value 5 of version 0, found value 6");
    let history = numbered([vec![insert("x")], vec![scan("a", "z", &[])]]);
    let wrong = replay(&history, &[0, 1]).unwrap_err();
    assert_eq!(wrong.to_string(), "T2, operation 1, t/x: expected version 1, found no row");
}

#[test]
fn updates_that_commute_have_no_order() {
    // T2 saw y before T1 wrote it, and added to x after T1 did.
    let late = [vec![add("x", 0), write("y", 0)], vec![read("y", 0), add("x", 1)], vec![read("x", 2)]];
    assert_eq!(assert_clean(&numbered(late)).serial_order(), Some(&[1, 0, 2][..]));
    // A transaction that overwrites their sum has seen them all.
    let over =
        [vec![add("x", 0), write("y", 0)], vec![read("y", 0), add("x", 1)], vec![write("x", 2)], vec![read("x", 3)]];
    assert_eq!(assert_clean(&numbered(over)).serial_order(), Some(&[1, 0, 2, 3][..]));
}
