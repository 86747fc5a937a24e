//! Histories of Elle: what is inferred from the values that clients saw, what is found, and what is
//! refused.

use std::collections::BTreeMap;

use contend_history::elle::{Inferred, Workload};
use contend_history::{Class, Isolation};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use Workload::{ListAppend, Register};

/// A history of committed transactions, one process each.
fn committed(values: &[&str]) -> String {
    let line = |(process, value): (usize, &&str)| {
        format!("{{:index {process}, :type :ok, :f :txn, :process {process}, :value {value}}}\n")
    };
    values.iter().enumerate().map(line).collect()
}

#[track_caller]
fn worst(workload: Workload, text: &str) -> Option<Class> {
    let report = Inferred::read(text, workload).expect("a history").check();
    report.anomalies.first().map(|anomaly| anomaly.class)
}

#[track_caller]
fn assert_finds(workload: Workload, values: &[&str], class: Option<Class>) {
    assert_eq!(worst(workload, &committed(values)), class, "{values:?}");
}

#[test]
fn anomalies_of_lists_are_found() {
    assert_finds(ListAppend, &["[[:append x 1]]", "[[:r x [1]] [:append x 2]]", "[[:r x [1 2]]]"], None);
    let skew = ["[[:r x []] [:append y 1]]", "[[:r y []] [:append x 1]]", "[[:r x [1]] [:r y [1]]]"];
    assert_finds(ListAppend, &skew, Some(Class::G2Item));
    let lost = ["[[:r x []] [:append x 1]]", "[[:r x []] [:append x 2]]", "[[:r x [1 2]]]"];
    assert_finds(ListAppend, &lost, Some(Class::GSingle));
    let skewed_read = ["[[:append x 1] [:append y 1]]", "[[:r x []] [:r y [1]]]", "[[:r x [1]]]"];
    assert_finds(ListAppend, &skewed_read, Some(Class::GSingle));
    let circular = ["[[:append x 1] [:r y [1]]]", "[[:append y 1] [:r x [1]]]"];
    assert_finds(ListAppend, &circular, Some(Class::G1c));
    let dirty = ["[[:append x 1] [:append y 1]]", "[[:append x 2] [:append y 2]]", "[[:r x [1 2]] [:r y [2 1]]]"];
    assert_finds(ListAppend, &dirty, Some(Class::G0));
    let between = ["[[:append x 1] [:append x 3]]", "[[:append x 2]]", "[[:r x [1 2 3]]]"];
    assert_finds(ListAppend, &between, Some(Class::G0));
    let half = ["[[:append x 1] [:append x 2]]", "[[:r x [1]]]", "[[:r x [1 2]]]"];
    assert_finds(ListAppend, &half, Some(Class::G1b));
    assert_finds(ListAppend, &["[[:r x [9]]]"], Some(Class::G1a));
    assert_finds(ListAppend, &["[[:append x 1] [:r x []]]"], Some(Class::Internal));
    assert_finds(ListAppend, &["[[:append x 1]]", "[[:append x 2]]", "[[:r x [1]]]", "[[:r x [2]]]"], Some(Class::G0));
    assert_finds(ListAppend, &["[[:append x 1]]", "[[:r x [1 1]]]"], Some(Class::G0));
}

#[test]
fn anomalies_of_registers_are_found() {
    assert_finds(Register, &["[[:w x 1]]", "[[:r x 1] [:w x 2]]", "[[:r x 2]]", "[[:r x nil]]"], None);
    assert_finds(Register, &["[[:r x nil] [:w y 1]]", "[[:r y nil] [:w x 1]]"], Some(Class::G2Item));
    assert_finds(Register, &["[[:w x 1]]", "[[:r x 1] [:w x 2]]", "[[:r x 1] [:w x 3]]"], Some(Class::GSingle));
    assert_finds(Register, &["[[:r x nil] [:w x 2]]", "[[:r x nil] [:w x 3]]"], Some(Class::GSingle));
    assert_finds(Register, &["[[:w x 1] [:w y 1]]", "[[:r x nil] [:r y 1]]"], Some(Class::GSingle));
    assert_finds(Register, &["[[:w x 1]]", "[[:w x 2]]", "[[:r x 1] [:r x 2]]"], Some(Class::GSingle));
    assert_finds(Register, &["[[:w x 1] [:r y 1]]", "[[:w y 1] [:r x 1]]"], Some(Class::G1c));
    assert_finds(Register, &["[[:w x 1] [:w x 2]]", "[[:r x 1]]"], Some(Class::G1b));
    assert_finds(Register, &["[[:r x 9]]"], Some(Class::G1a));
    assert_finds(Register, &["[[:w x 1] [:r x nil]]"], Some(Class::Internal));
    assert_finds(Register, &["[[:w x 1] [:w x 2] [:r x 1]]"], Some(Class::Internal));
    assert_finds(Register, &["[[:r x 1] [:w x 1]]"], Some(Class::Internal));
    // Which of two blind writes came first nobody can tell, and so neither whether this is a long
    // fork.
    let blind = ["[[:w x 1]]", "[[:w x 2]]", "[[:r x 1]]", "[[:r x 2]]"];
    assert_finds(Register, &blind, None);
}

#[test]
fn a_value_of_an_aborted_transaction_is_an_aborted_read_and_one_of_unknown_end_is_a_commit() {
    for (workload, write, read) in
        [(ListAppend, "[[:append x 1]]", "[[:r x [1]]]"), (Register, "[[:w x 1]]", "[[:r x 1]]")]
    {
        for (end, class) in [(":fail", Some(Class::G1a)), (":info", None), (":invoke", None)] {
            let text = format!(
                "{{:type {end}, :process 0, :f :txn, :value {write}}}\n{{:type :ok, :process 1, :f :txn, :value {read}}}"
            );
            assert_eq!(worst(workload, &text), class, "{text}");
        }
    }
    // What was appended by one that aborted may stand in the middle.
    let text = "{:type :fail, :process 0, :value [[:append x 1]]} {:type :ok, :process 1, :value [[:append x 2]]}
                {:type :ok, :process 2, :value [[:r x [1 2]]]}";
    assert_eq!(worst(ListAppend, text), Some(Class::G1a));
}

#[test]
fn json_and_edn_say_the_same() {
    let edn =
        "[#jepsen.history.Op{:index 0, :time 12, :type :invoke, :process 0, :f :txn, :value [[:r 1 nil] [:append 2 1]]}
                {:type :ok :process 0 :f :txn :value [[:r 1 []] [:append 2 1]]}
                {:type :info :process :nemesis :f :kill :value nil}
                {:type :ok :process 1 :f :txn :value [[:r 2 []] [:append 1 1]]}
                {:type :ok :process 1 :f :txn :value [[:r 2 [1]] [:r 1 [1]]]}]";
    let json = r#"[{"type":"invoke","process":0,"f":"txn","value":[["r",1,null],["append",2,1]]},
                   {"type":"ok","process":0,"f":"txn","value":[["r",1,[]],["append",2,1]]},
                   {"type":"info","process":"nemesis","f":"kill","value":null},
                   {"type":"ok","process":1,"f":"txn","value":[["r",2,[]],["append",1,1]]},
                   {"type":"ok","process":1,"f":"txn","value":[["r",2,[1]],["r",1,[1]]]}]"#;
    let lines = json.trim_matches(['[', ']']).replace("},", "}");
    for text in [edn, json, &lines] {
        let inferred = Inferred::read(text, ListAppend).expect(text);
        let report = inferred.check();
        assert_eq!(inferred.history().transactions().len(), 3);
        let anomaly = report.violates(Isolation::Serializable).expect("write skew");
        assert_eq!((anomaly.class, anomaly.steps[0].txn, anomaly.steps[1].txn), (Class::G2Item, 2, 4), "{text}");
    }
}

#[test]
fn none_found_is_not_called_serializable() {
    let inferred = Inferred::read(&committed(&["[[:append x 1]]", "[[:append x 2]]", "[[:r x [1]]]"]), ListAppend);
    let inferred = inferred.expect("a history");
    assert!(inferred.check().to_string().starts_with("nothing found: 3 transactions"));
    let notes = inferred.notes().join("\n");
    for part in ["3 committed", "1 append is in no such list", "No proof".to_lowercase().as_str()] {
        assert!(notes.contains(part), "'{part}' is not in: {notes}");
    }
}

#[test]
fn what_is_no_history_of_elle_is_refused_with_its_place() {
    for (text, parts) in [
        ("", &["no transaction", ":append"][..]),
        ("[]", &["no transaction"]),
        ("{:type :ok, :process 0", &["not EDN", "line 1", "'}'"]),
        ("[{\"type\":\"ok\",", &["not JSON"]),
        ("{\"txn\":7,\"worker\":0,\"ops\":[]}", &["operation 1", "`type`"]),
        ("\n{:type :okay, :process 0, :value []}", &["line 2", "'okay'", "invoke, ok, fail, info"]),
        ("{:type :ok, :value []}", &["`process`"]),
        ("{:type :ok, :process 0, :value 7}", &["`value` is a list"]),
        ("{:type :ok, :process 0, :value [[:w x 1]]}", &["'w'", "elle-register", "append, r"]),
        ("{:type :ok, :process 0, :value [[:cas x 1]]}", &["'cas'", "append, r"]),
        ("{:type :ok, :process 0, :value [[:append x nil]]}", &["not nil"]),
        ("{:type :ok, :process 0, :value [[:r x 1]]}", &["a list, not 1"]),
        ("{:type :ok, :process 0, :value [[:append x 1] [:append x 1]]}", &["append x 1 is there twice"]),
        ("7", &["an operation is a map"]),
    ] {
        let error = Inferred::read(text, ListAppend).expect_err(text);
        for part in parts {
            assert!(error.contains(part), "{text}: '{part}' is not in: {error}");
        }
    }
}

/// A history of transactions that ran one after the other, some of which aborted, or ended in a way
/// that nobody knows.
fn serial_run(workload: Workload, seed: u64) -> String {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut state: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let (mut text, mut next) = (String::new(), 0);
    for process in 0..60 {
        let (mut after, mut ops) = (state.clone(), String::new());
        let end = ["ok", "ok", "ok", "ok", "fail", "info"][random.random_range(0..6)];
        for _ in 0..random.random_range(1..5) {
            let key = random.random_range(0..4);
            let values = after.entry(key).or_default();
            if random.random_bool(0.5) {
                next += 1;
                values.push(next);
                ops += &format!("[{} {key} {next}]", if workload == ListAppend { ":append" } else { ":w" });
            } else if end != "ok" {
                ops += &format!("[:r {key} nil]");
            } else if workload == ListAppend {
                ops += &format!("[:r {key} {values:?}]");
            } else {
                let last = values.last().map_or("nil".to_owned(), u32::to_string);
                ops += &format!("[:r {key} {last}]");
            }
        }
        if end == "ok" || end == "info" && random.random_bool(0.5) {
            state = after;
        }
        text += &format!("{{:type :{end}, :process {process}, :f :txn, :value [{ops}]}}\n");
    }
    text
}

#[test]
fn in_what_ran_serially_nothing_is_found() {
    for workload in [ListAppend, Register] {
        let (mut read, mut overwritten) = (0, 0);
        for seed in 0..300 {
            let text = serial_run(workload, seed);
            let report = Inferred::read(&text, workload).expect("a history").check();
            assert!(report.anomalies.is_empty(), "{workload:?}, seed {seed}: {report}\n{text}");
            (read, overwritten) = (read + report.dependencies.wr, overwritten + report.dependencies.rw);
        }
        assert!(read > 0 && overwritten > 0, "{workload:?}: without dependencies there is nothing to be found");
    }
}
