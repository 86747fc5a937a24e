//! One history for each class of anomaly, and for each anomaly that has a name.

use crate::support::*;
use contend_history::{Class, Isolation, check, check_up_to, replay};

/// The levels that forbid what the history has.
fn violated(history: &contend_history::History) -> Vec<String> {
    let report = check(history);
    Isolation::ALL
        .into_iter()
        .filter(|&level| report.violates(level).is_some())
        .map(|level| level.to_string())
        .collect()
}

#[test]
fn g0_dirty_write() {
    // T1 and T2 write x and y in opposite orders.
    let history = numbered([vec![write("x", 0), write("y", 2)], vec![write("x", 1), write("y", 0)]]);
    let report = assert_worst(&history, Class::G0, "dirty write");
    assert_eq!(report.anomalies[0].steps.len(), 2);
    assert_eq!(report.serial_order(), None);
    assert_eq!(
        violated(&history),
        ["read-uncommitted", "read-committed", "monotonic-atomic-view", "snapshot", "serializable"]
    );
}

#[test]
fn g0_versions_that_overwrite_each_other() {
    assert_worst(&numbered([vec![write("x", 2)], vec![write("x", 1)]]), Class::G0, "dirty write");
}

#[test]
fn g0_two_blind_writes_over_one_version() {
    assert_worst(&numbered([vec![write("x", 0)], vec![write("x", 0)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![insert_after("x", 0)], vec![insert_after("x", 0)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![insert("x")], vec![insert("x")]]), Class::G0, "dirty write");
}

#[test]
fn g0_write_over_what_nobody_left() {
    assert_worst(&numbered([vec![write("x", 9)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![write("x", 1)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![insert_after("x", 9)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![insert_after("x", 0)], vec![read("x", 0)]]), Class::G0, "dirty write");
    assert_worst(&numbered([vec![insert("x")], vec![read("x", 0)]]), Class::G0, "insert over a row");
}

#[test]
fn g1a_aborted_read() {
    for history in [
        numbered([vec![read("x", 9)]]),
        numbered([vec![write("y", 0)], vec![read("x", 1)]]),
        numbered([vec![delete("x", 0)], vec![read("x", 1)]]),
        numbered([vec![miss_after("x", 9)]]),
        numbered([vec![read("x", 0)], vec![miss("x")]]),
        numbered([vec![read("x", 0)], vec![miss_after("x", 0)]]),
        numbered([vec![read("x", 0)], vec![scan("a", "z", &[])]]),
        numbered([vec![scan("a", "z", &[("x", 9)])]]),
        numbered([vec![miss("x"), delete("x", 0)]]),
    ] {
        assert_worst(&history, Class::G1a, "aborted read");
        assert_eq!(violated(&history), ["read-committed", "monotonic-atomic-view", "snapshot", "serializable"]);
    }
}

#[test]
fn g1a_value_that_nobody_wrote() {
    let history = numbered([vec![write_value("x", 0, 5)], vec![read_value("x", 1, 6)]]);
    assert_worst(&history, Class::G1a, "read of a value that was never written");
}

#[test]
fn g1b_intermediate_read() {
    let twice = || vec![write_value("x", 0, 5), write_value("x", 1, 6)];
    assert_worst(&numbered([twice(), vec![read_value("x", 1, 5)]]), Class::G1b, "intermediate read");
    assert!(check(&numbered([twice(), vec![read_value("x", 1, 6)]])).anomalies.is_empty());
    // The row that T1 deleted again, and the absence that T1 filled again.
    let inserted_and_deleted = vec![insert("x"), delete("x", 1)];
    assert_worst(&numbered([inserted_and_deleted, vec![read("x", 1)]]), Class::G1b, "intermediate read");
    let deleted_and_inserted = vec![delete("x", 0), insert_after("x", 1)];
    assert_worst(&numbered([deleted_and_inserted, vec![miss_after("x", 1)]]), Class::G1b, "intermediate read");
}

#[test]
fn g1b_a_miss_between_a_delete_and_an_insert() {
    let again = || vec![delete("x", 0), insert_after("x", 1)];
    // Nobody says whose delete the reader has seen.
    let report = assert_worst(&numbered([again(), vec![miss("x")]]), Class::G1b, "intermediate read");
    assert!(report.anomalies[0].steps[0].reason.contains("T1 had deleted the key"), "{:?}", report.anomalies);
    assert_worst(&numbered([again(), vec![scan("a", "z", &[])]]), Class::G1b, "intermediate read");
    let twice =
        [again(), vec![delete("x", 1), insert_after("x", 2)], vec![miss("x"), write("y", 0)], vec![read("y", 3)]];
    assert_eq!(assert_worst(&numbered(twice), Class::G1b, "intermediate read").cyclic_components, 0);
    // The reader's own delete comes after its read.
    assert_worst(&numbered([vec![miss("x"), delete("x", 0), insert_after("x", 1)]]), Class::G1a, "aborted read");
    // A row that is gone at the end explains the miss.
    let gone = numbered([again(), vec![delete("x", 1)], vec![miss("x")]]);
    assert!(check(&gone).anomalies.is_empty(), "{:?}", check(&gone).anomalies);
}

#[test]
fn g1c_circular_information_flow() {
    let history = numbered([vec![write("x", 0), read("y", 2)], vec![write("y", 0), read("x", 1)]]);
    let report = assert_worst(&history, Class::G1c, "circular information flow");
    assert_eq!(report.cyclic_components, 1);
    // T2 found the row deleted by T1, and T1 read what T2 wrote.
    let history = numbered([vec![delete("x", 0), read("y", 2)], vec![write("y", 0), miss_after("x", 1)]]);
    assert_worst(&history, Class::G1c, "circular information flow");
}

#[test]
fn otv_observed_transaction_vanishes() {
    let vanished = "observed transaction vanishes";
    let both = || vec![write("x", 0), write("y", 0)];
    let history = numbered([both(), vec![read("x", 1), read("y", 0)]]);
    let report = assert_worst(&history, Class::Otv, vanished);
    assert_eq!(violated(&history), ["monotonic-atomic-view", "snapshot", "serializable"]);
    let kinds: Vec<_> = report.anomalies[0].steps.iter().map(|step| step.dependency.unwrap().to_string()).collect();
    assert_eq!(kinds, ["wr", "rw"]);
    // The version that was missed is not the next one, and the way back is by the key alone.
    let history = numbered([
        vec![write("y", 0)],
        vec![write("y", 1)],
        vec![write("x", 0), write("y", 2)],
        vec![read("x", 3), read("z", 0), read("y", 0)],
    ]);
    let report = assert_worst(&history, Class::Otv, vanished);
    let txns: Vec<u64> = report.anomalies[0].steps.iter().map(|step| step.txn).collect();
    assert_eq!(txns, [3, 4, 1, 2]);
    // What was observed is a delete, or a row of a scan; what vanishes is a delete, an insert, a
    // row of a scan, the row that was observed, an update that commutes, one of two writes over one
    // state.
    for history in [
        numbered([vec![delete("x", 0), write("y", 0)], vec![miss_after("x", 1), read("y", 0)]]),
        numbered([both(), vec![scan("w", "x", &[("x", 1)]), read("y", 0)]]),
        numbered([vec![write("x", 0), delete("y", 0)], vec![read("x", 1), read("y", 0)]]),
        numbered([vec![write("x", 0), insert("y")], vec![read("x", 1), miss("y")]]),
        numbered([vec![write("x", 0), insert("y")], vec![read("x", 1), scan("y", "z", &[])]]),
        numbered([both(), vec![read("x", 1), scan("y", "z", &[("y", 0)])]]),
        numbered([vec![write("x", 0)], vec![read("x", 1), read("x", 0)]]),
        numbered([vec![add("y", 0)], vec![add("y", 1), write("x", 0)], vec![read("x", 2), read("y", 0)]]),
        numbered([both(), vec![read("y", 0), write("y", 0)], vec![read("x", 1), read("y", 0)]]),
    ] {
        assert_worst(&history, Class::Otv, vanished);
    }
}

#[test]
fn what_looks_like_a_vanishing_and_is_none() {
    let both = || vec![write("x", 0), write("y", 0)];
    for history in [
        // The read that missed the write came first, or at the same time.
        numbered([both(), vec![read("y", 0), read("x", 1)]]),
        numbered([both(), vec![scan("a", "z", &[("x", 1), ("y", 0)])]]),
        // Hermitage's test, as read committed is expected to go.
        numbered([
            both(),
            vec![write("x", 1), write("y", 1)],
            vec![read("x", 1), read("y", 1), read("y", 2), read("x", 2)],
        ]),
        // T3 has seen T2, which had seen T1, but not T1 itself.
        numbered([both(), vec![read("x", 1), write("z", 0)], vec![read("z", 2), read("y", 0)]]),
        // The absence may be the one before T1's insert, or the one after T2's delete.
        numbered([
            vec![insert_after("x", 0)],
            vec![delete("x", 1)],
            vec![insert_after("x", 2)],
            vec![read("x", 3), miss("x")],
            vec![delete("x", 3)],
        ]),
    ] {
        assert_worst(&history, Class::GSingle, "read skew");
    }
    // A later version than the observed one's, and the reader's own.
    let later = numbered([both(), vec![write("y", 1)], vec![read("x", 1), read("y", 2)]]);
    assert!(check(&later).anomalies.is_empty());
    let own = numbered([both(), vec![read("x", 1), write("y", 1), read("y", 2)]]);
    assert!(check(&own).anomalies.is_empty());
    // A worse anomaly of the same transactions is told instead.
    let worse =
        numbered([vec![write("x", 0), write("y", 0), read("z", 2)], vec![read("x", 1), read("y", 0), write("z", 0)]]);
    assert_worst(&worse, Class::G1c, "circular information flow");
}

#[test]
fn g_single_read_skew() {
    let history = numbered([vec![write("x", 0), write("y", 0)], vec![read("x", 0), read("y", 1)]]);
    assert_worst(&history, Class::GSingle, "read skew");
    assert_eq!(violated(&history), ["snapshot", "serializable"]);
}

#[test]
fn g_single_lost_update() {
    let update = || vec![read("x", 0), write("x", 0)];
    let history = numbered([update(), update()]);
    let report = assert_worst(&history, Class::GSingle, "lost update");
    assert_eq!(report.anomalies.len(), 1, "told once: {report}");
    assert_eq!(violated(&history), ["snapshot", "serializable"]);
    // With a version order: T2 read version 0, T1 wrote over it, T2 wrote over T1's.
    assert_worst(&numbered([vec![write("x", 0)], vec![read("x", 0), write("x", 1)]]), Class::GSingle, "lost update");
    // Only one of them read; both inserted; both saw the row in a scan.
    assert_worst(&numbered([vec![write("x", 0)], update()]), Class::GSingle, "lost update");
    let insertion = || vec![miss("x"), insert("x")];
    assert_worst(&numbered([insertion(), insertion()]), Class::GSingle, "lost update");
    let scanned = || vec![scan("a", "z", &[("x", 0)]), write("x", 0)];
    assert_worst(&numbered([scanned(), scanned()]), Class::GSingle, "lost update");
}

#[test]
fn g_nonadjacent_long_fork() {
    let history = numbered([
        vec![write("x", 0)],
        vec![write("y", 0)],
        vec![read("x", 1), read("y", 0)],
        vec![read("x", 0), read("y", 2)],
    ]);
    let report = assert_worst(&history, Class::GNonadjacent, "long fork");
    assert_eq!(report.anomalies[0].steps.len(), 4);
    assert_eq!(violated(&history), ["snapshot", "serializable"]);
}

#[test]
fn g2_item_write_skew() {
    let both = || [read("x", 0), read("y", 0)];
    let history = numbered([[&both()[..], &[write("x", 0)]].concat(), [&both()[..], &[write("y", 0)]].concat()]);
    assert_worst(&history, Class::G2Item, "write skew");
    assert_eq!(violated(&history), ["serializable"]);
    // Rows that a scan returned are read as items.
    let scan = || scan("a", "z", &[("x", 0), ("y", 0)]);
    assert_worst(&numbered([vec![scan(), write("x", 0)], vec![scan(), write("y", 0)]]), Class::G2Item, "write skew");
}

/// Alan Fekete, Elizabeth O'Neil, Patrick O'Neil, "A Read-Only Transaction Anomaly Under Snapshot
/// Isolation", SIGMOD Record 2004: T2 deposits into y, T1 withdraws from x as if it had not, T3
/// sees the deposit only.
#[test]
fn g2_item_read_only_anomaly() {
    let history = numbered([
        vec![read("x", 0), read("y", 0), write("x", 0)],
        vec![read("y", 0), write("y", 0)],
        vec![read("x", 0), read("y", 2)],
    ]);
    let report = assert_worst(&history, Class::G2Item, "write skew");
    assert_eq!(report.anomalies[0].steps.len(), 3);
    assert_eq!(violated(&history), ["serializable"]);
    // Without the reader there is no anomaly.
    let history = numbered([vec![read("x", 0), read("y", 0), write("x", 0)], vec![read("y", 0), write("y", 0)]]);
    assert!(check(&history).anomalies.is_empty());
}

#[test]
fn g2_phantom_in_a_scan() {
    let history = numbered([vec![scan("a", "m", &[]), insert("x")], vec![scan("n", "z", &[]), insert("b")]]);
    assert_worst(&history, Class::G2, "phantom");
    assert_eq!(violated(&history), ["serializable"]);
    // The key had been there before, and the scan knows which transaction deleted it.
    let history = numbered([
        vec![delete("b", 0)],
        vec![scan_gone("a", "m", &[], &[("b", 1)]), write("x", 0)],
        vec![read("x", 0), insert_after("b", 1)],
    ]);
    assert_worst(&history, Class::G2, "phantom");
}

#[test]
fn g2_phantom_in_a_missed_read() {
    assert_worst(&numbered([vec![miss("x"), insert("y")], vec![miss("y"), insert("x")]]), Class::G2, "phantom");
    // One of the two anti-dependencies is on a row.
    let history = numbered([vec![miss_after("x", 0), write("y", 0)], vec![read("y", 0), insert_after("x", 0)]]);
    assert_worst(&history, Class::G2, "phantom");
}

#[test]
fn a_phantom_that_is_a_read_skew() {
    // T2 saw one of the two rows that T1 inserted.
    let history = numbered([vec![insert("a"), insert("b")], vec![scan("a", "z", &[("b", 1)])]]);
    assert_worst(&history, Class::GSingle, "read skew");
}

/// Which absence the scan saw is not said, but none of them goes with the row.
#[test]
fn a_row_that_is_there_and_is_not() {
    let deleted_twice = |acts: Vec<Act>| {
        numbered([
            vec![insert_after("x", 0)],
            vec![delete("x", 1)],
            vec![insert_after("x", 2)],
            acts,
            vec![delete("x", 3)],
        ])
    };
    assert_worst(&deleted_twice(vec![read("x", 3), scan("a", "z", &[])]), Class::GSingle, "read skew");
    assert_worst(&deleted_twice(vec![read("x", 1), scan("a", "z", &[])]), Class::GSingle, "read skew");
    let history = numbered([
        vec![insert_after("x", 0)],
        vec![delete("x", 1)],
        vec![insert_after("x", 2)],
        vec![scan("a", "z", &[]), write("x", 3)],
    ]);
    assert_worst(&history, Class::GSingle, "lost update");
}

#[test]
fn internal_contradictions() {
    for (name, acts) in [
        ("a transaction did not see its own write", vec![write("x", 0), read("x", 0)]),
        ("a transaction did not see its own write", vec![insert("x"), miss("x")]),
        ("a transaction did not see its own write", vec![write_value("x", 0, 5), read_value("x", 1, 4)]),
        ("a transaction did not see its own write", vec![delete("x", 0), read("x", 0)]),
        ("a transaction did not see its own write", vec![insert("x"), scan("a", "z", &[])]),
        ("a transaction read what it had yet to write", vec![read("x", 1), write("x", 0)]),
        ("a scan returned one key twice", vec![scan("a", "z", &[("x", 0), ("x", 0)])]),
        ("a scan returned one key twice", vec![scan_gone("a", "z", &[("x", 0)], &[("x", 0)])]),
        ("a scan returned a key out of its range", vec![scan("a", "c", &[("x", 0)])]),
    ] {
        let history = numbered([acts]);
        assert_worst(&history, Class::Internal, name);
        assert_eq!(violated(&history).len(), 5);
        assert!(replay(&history, &[0]).is_err());
    }
}

#[test]
fn the_shortest_cycle_is_shown() {
    // A cycle of four, T1 to T4, and one of two among them.
    let history = numbered([
        vec![read("a", 4), write("b", 0), read("e", 3)],
        vec![read("b", 1), write("c", 0)],
        vec![read("c", 2), write("d", 0), write("e", 0), read("b", 1)],
        vec![read("d", 3), write("a", 0)],
    ]);
    let report = assert_worst(&history, Class::G1c, "circular information flow");
    let txns: Vec<u64> = report.anomalies[0].steps.iter().map(|step| step.txn).collect();
    assert_eq!(txns, [1, 3]);
}

#[test]
fn the_worst_anomalies_are_kept() {
    // Many write skews, then one circular flow.
    let mut transactions = Vec::new();
    for pair in 0..20_u64 {
        let (x, y) = (format!("x{pair}"), format!("y{pair}"));
        transactions.push((2 * pair + 1, vec![read(&x, 0), write(&y, 0)]));
        transactions.push((2 * pair + 2, vec![read(&y, 0), write(&x, 0)]));
    }
    transactions.push((100, vec![write("p", 0), read("q", 101)]));
    transactions.push((101, vec![write("q", 0), read("p", 100)]));
    let report = check_up_to(&history(&transactions), 3);
    assert_eq!((report.cyclic_components, report.anomalies_met, report.anomalies.len()), (21, 21, 3));
    assert_eq!(report.anomalies[0].class, Class::G1c);
    assert_eq!(report.violates(Isolation::Snapshot), Some(&report.anomalies[0]));
    assert_eq!(check_up_to(&history(&transactions), 0).anomalies.len(), 1);
}

#[test]
fn a_person_can_follow_the_cycle() {
    let history = numbered([vec![read("x", 0), write("y", 0)], vec![read("y", 0), write("x", 0)]]);
    let expected = "\
G2-item: write skew, a cycle of 2 transactions (each comes after the one above, the first after the last)
  T1 --[rw t/x]--> T2 --[rw t/y]--> T1
  transaction  operation  key  version  edge  why
  T1           read       t/x  0        rw    T1 read version 0; T2 overwrote it
  T2           read       t/y  0        rw    T2 read version 0; T1 overwrote it";
    assert_eq!(check(&history).anomalies[0].to_string(), expected);
}

#[test]
fn a_program_can_read_the_cycle() {
    let history = numbered([vec![miss("x"), insert("y")], vec![miss("y"), insert("x")]]);
    let report = serde_json::to_value(check(&history)).unwrap();
    let anomaly = &report["anomalies"][0];
    assert_eq!((&anomaly["class"], &anomaly["name"]), (&"G2".into(), &"phantom".into()));
    let step = &anomaly["steps"][0];
    assert_eq!((&step["txn"], &step["op"], &step["key"]), (&1.into(), &0.into(), &"x".into()));
    assert_eq!((&step["dependency"], &step["operation"]), (&"predicate rw".into(), &"read".into()));
    assert!(step["version"].is_null());
}

#[test]
fn updates_that_commute_are_ordered_by_who_reads_between_them() {
    let add_late = || vec![read("y", 0), add("x", 1)];
    let history = [vec![add("x", 0), write("y", 0)], add_late(), vec![read("x", 1)]];
    assert_worst(&numbered(history), Class::GSingle, "read skew");
    // And by a write between them, that commutes with none.
    let history = [vec![add("x", 0), write("y", 0)], vec![read("y", 0), add("x", 3)], vec![write("x", 1)]];
    assert!(!check(&numbered(history)).anomalies.is_empty());
    // A transaction that also writes the row anew commutes with nobody.
    let history = [vec![add("x", 0), write("y", 0)], vec![read("y", 0), write("x", 1), add("x", 2)]];
    assert!(!check(&numbered(history)).anomalies.is_empty());
}

#[test]
fn what_was_omitted_is_between_two_versions_and_in_nobodys_sight() {
    let clean = |transactions: [Vec<Act>; 3]| assert_eq!(check(&numbered(transactions)).anomalies, []);
    // In whatever order they were omitted, and with others of the same place.
    clean([vec![omitted("x", 0)], vec![read("x", 0), omitted("x", 0)], vec![write("x", 0)]]);
    clean([vec![write("x", 0)], vec![omitted("x", 0), write("y", 0)], vec![read("y", 2), read("x", 1)]]);
    // It comes after those who have read what it would have replaced, and before the next version.
    let history = [vec![omitted("x", 0), write("y", 0)], vec![read("y", 1), read("x", 0)], vec![write("x", 0)]];
    assert_worst(&numbered(history), Class::Otv, "observed transaction vanishes");
    let history = [vec![omitted("x", 0), write("y", 0)], vec![read("x", 0), read("y", 1)], vec![write("x", 0)]];
    assert_worst(&numbered(history), Class::GSingle, "read skew");
    let history = [vec![omitted("x", 0), read("y", 2)], vec![write("x", 0), write("y", 0)]];
    assert_worst(&numbered(history), Class::G1c, "circular information flow");
    // A transaction that reads it has read what was never there.
    let history = [vec![omitted("x", 0)], vec![write("x", 0)], vec![read("x", 1)]];
    assert_worst(&numbered(history), Class::G1a, "aborted read");
    // The next version needs not know what was there: it is not read before it is overwritten, and
    // no update.
    assert!(!check(&numbered([vec![omitted("x", 0)], vec![read("x", 0), write("x", 0)]])).anomalies.is_empty());
    assert_worst(&numbered([vec![omitted("x", 0)], vec![add("x", 0)]]), Class::G0, "lost write");
    assert_worst(&numbered([vec![omitted("x", 0)], vec![read("x", 0)]]), Class::G0, "lost write");
}

#[test]
fn updates_that_commute_in_a_circle_are_broken() {
    assert!(!check(&numbered([vec![add("x", 2)], vec![add("x", 1)]])).anomalies.is_empty());
    assert!(!check(&numbered([vec![add("x", 0)], vec![add("x", 0)]])).anomalies.is_empty());
    assert!(!check(&numbered([vec![add("x", 7)]])).anomalies.is_empty());
}
