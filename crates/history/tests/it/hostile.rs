//! Files from strangers: whatever a file holds, it is read and checked in time and memory that are
//! proportional to its length, or refused in a sentence. Sizes here are such that anything
//! quadratic would not come to an end.

use std::fmt::Write as _;

use contend_history::elle::{Inferred, Workload};
use contend_history::{History, Report, TooComplex, check_bounded, replay};

fn parse(text: &str) -> Result<History, String> {
    History::read_json_lines(text.as_bytes()).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let message = parse(text).expect_err("it is no history");
    assert!(message.contains(part) && message.len() < 500, "`{part}` is not in: {message}");
}

#[track_caller]
fn checked(text: &str) -> Result<Report, TooComplex> {
    let history = parse(text).expect("a history");
    let report = check_bounded(&history);
    if let Ok(report) = &report
        && let Some(order) = report.serial_order()
        && report.is_exact()
    {
        let _ = replay(&history, order);
    }
    report
}

#[track_caller]
fn too_complex(text: &str) {
    let error = checked(text).expect_err("it takes too long");
    assert!(error.to_string().contains("more than"), "{error}");
}

/// Writes a transaction a line, from number 1; `ops` are their operations.
fn lines<S: AsRef<str>>(ops: impl IntoIterator<Item = S>) -> String {
    let mut text = String::new();
    for (ops, txn) in ops.into_iter().zip(1..) {
        writeln!(text, r#"{{"txn":{txn},"worker":0,"ops":[{}]}}"#, ops.as_ref()).expect("a string takes all");
    }
    text
}

fn read(key: impl std::fmt::Display, version: &str) -> String {
    format!(r#"{{"op":"read","table":"t","key":"{key}","version":{version}}}"#)
}

fn write(key: impl std::fmt::Display, over: &str, more: &str) -> String {
    format!(r#"{{"op":"write","table":"t","key":"{key}","over":{over}{more}}}"#)
}

#[test]
fn deep_nesting_is_refused() {
    let deep = "[".repeat(1_000_000);
    refused(&deep, "line 1");
    refused(&format!(r#"{{"txn":1,"ops":{deep}"#), "line 1");
    refused(&format!(r#"{{"txn":1,"what":{deep}"#), "line 1");
    refused(&"{\"a\":".repeat(1_000_000), "line 1");
    refused(&lines([format!(r#"{{"op":"read","table":"t","key":"k","version":1,"value":{deep}}}"#)]), "line 1");
}

#[test]
fn numbers_that_are_none_of_64_bits_are_refused() {
    for number in ["18446744073709551616", "-1", "1e30", "1e999", "0.5", "\"1\"", "null", "0"] {
        refused(&format!(r#"{{"txn":{number},"worker":0,"ops":[]}}"#), "line 1");
    }
    for number in ["18446744073709551616", "-1", "1e30", "true"] {
        refused(&lines([read("k", number)]), "line 1");
        refused(&lines([write("k", number, "")]), "line 1");
    }
    let largest = u64::MAX.to_string();
    let text = format!(r#"{{"txn":{largest},"worker":{largest},"ops":[{}]}}"#, write("k", "0", ""));
    assert!(checked(&text).expect("it is small").anomalies.is_empty());
    assert!(!checked(&lines([read("k", &largest)])).expect("it is small").anomalies.is_empty());
}

#[test]
fn what_a_message_quotes_is_short() {
    let long = "x".repeat(5_000_000);
    refused(&long, "line 1");
    refused(&lines([format!(r#"{{"op":"{long}","table":"t"}}"#)]), "unknown operation `xxx");
    refused(&lines([format!(r#"{{"op":"read","table":"t","key":"k","version":"{long}"}}"#)]), "line 1");
    refused(&format!("{}\n{{", "\n".repeat(1_000_000)), "line 1000002");
    for op in [
        "{:type :LONG :process 1}",
        "{:type :ok :process 1 :value [[:LONG x 1]]}",
        "{:type :ok :process 1 :value [[LONG]]}",
    ] {
        let message = Inferred::read(&op.replace("LONG", &long), Workload::ListAppend).expect_err("it is no history");
        assert!(message.len() < 500, "{message}");
    }
}

#[test]
fn many_tables_and_keys() {
    const MANY: usize = 300_000;
    let text = lines((0..MANY).map(|i| format!(r#"{{"op":"read","table":"t{i}","key":"k{i}","version":0}}"#)));
    let history = parse(&text).expect("a history");
    assert_eq!((history.table_count(), history.item_count()), (MANY, MANY));
    assert!(history.find_item("t299999", "k299999").is_some() && history.find_item("t1", "k2").is_none());
    assert!(checked(&text).expect("nothing depends on anything").anomalies.is_empty());
}

#[test]
fn scans_of_all_keys_are_refused() {
    const MANY: usize = 20_000;
    let scan = r#"{"op":"scan","table":"t","low":null,"high":null,"seen":[]}"#.to_owned();
    let inserts = (0..MANY).map(|i| write(i, "null", r#","after":0"#));
    too_complex(&lines(inserts.chain((0..MANY).map(|_| scan.clone()))));
    // As many scans of a few keys are not.
    let inserts = (0..MANY).map(|i| write(i, "null", r#","after":0"#));
    let few = (0..MANY).map(|i| format!(r#"{{"op":"scan","table":"t","low":"{i}","high":"{}","seen":[]}}"#, i + 8));
    checked(&lines(inserts.chain(few))).expect("it is linear");
}

#[test]
fn readers_of_many_writes_that_commute_are_refused() {
    const MANY: u64 = 20_000;
    let adds = (0..MANY).map(|before| write("k", &before.to_string(), r#","commutes":true"#));
    too_complex(&lines(adds.chain((0..MANY).map(|_| read("k", &MANY.to_string())))));
}

#[test]
fn chains_are_walked_once() {
    const MANY: u64 = 200_000;
    // Each deletes what the next one has: the first in the file comes last.
    let deletes =
        (1..=MANY).map(|txn| write("k", "null", &format!(r#","after":{},"delete":true"#, (txn + 1) % (MANY + 1))));
    checked(&lines(deletes)).expect("it is linear");
    // A circle of them, and one that leads into a circle.
    let circle = (1..=MANY).map(|txn| write("k", "null", &format!(r#","after":{},"delete":true"#, txn % MANY + 1)));
    assert!(!checked(&lines(circle)).expect("it is linear").anomalies.is_empty());
    let tail = (1..=MANY).map(|txn| {
        write("k", "null", &format!(r#","after":{},"delete":true"#, if txn == MANY { MANY - 1 } else { txn + 1 }))
    });
    assert!(!checked(&lines(tail)).expect("it is linear").anomalies.is_empty());
    // Updates of a key that was absent twice, by transactions that also missed it: each looks for
    // when that was.
    let first = [
        write("k", "null", r#","after":0"#),
        write("k", "1", r#","delete":true"#),
        write("k", "null", r#","after":2"#),
    ];
    let rest = (4..MANY).map(|txn| format!("{},{}", read("k", "null"), write("k", &(txn - 1).to_string(), "")));
    too_complex(&lines(first.into_iter().chain(rest)));
}

#[test]
fn a_transaction_of_very_many_operations() {
    const MANY: usize = 200_000;
    let own = r#"{"op":"read","table":"t","key":"k","version":1,"value":7}"#.to_string();
    let ops: Vec<String> =
        std::iter::once(write("k", "0", r#","value":7"#)).chain((1..MANY).map(|_| own.clone())).collect();
    assert!(checked(&lines([ops.join(",")])).expect("it is linear").anomalies.is_empty());
    // Two write all keys over the same versions; neither has read any of them.
    let ops: Vec<String> = (0..MANY).map(|i| write(i, "0", "")).collect();
    let ops = ops.join(",");
    too_complex(&lines([ops.clone(), ops]));
    // A key that is inserted and deleted again by all, and another that reads of each.
    let gone = |txn: usize| format!(r#"{{"op":"read","table":"t","key":"k","version":null,"deleted_by":{txn}}}"#);
    let both = format!("{},{}", write("k", "null", r#","after":0"#), write("k", "null", r#","delete":true"#));
    let reads: Vec<String> = (1..MANY / 2).map(gone).collect();
    checked(&lines((1..MANY / 2).map(|_| both.clone()).chain([reads.join(",")]))).expect("it is linear");
}

fn inferred(text: &str, workload: Workload) -> Result<Report, String> {
    let inferred = Inferred::read(text, workload)?;
    inferred.check_bounded().map_err(|error| error.to_string())
}

#[test]
fn hostile_edn_is_refused() {
    const MANY: usize = 1_000_000;
    for (text, part) in [
        ("#_".repeat(MANY), "the file ends"),
        ("#_[".repeat(MANY), "within one another"),
        ("#a ".repeat(MANY), "within one another"),
        ("[".repeat(MANY), "within one another"),
        ("[#_".repeat(MANY), "within one another"),
        // Each map would double the escapes of the one within it.
        (format!("{}\"\\\"\" 1{}", "{".repeat(60), "} 1".repeat(60)), "no collection"),
        (format!("{}{{:a", "\n".repeat(MANY)), "line 1000001"),
        ("{\"a\":".repeat(MANY), "not JSON"),
        ("(".repeat(10) + &"\n[]".repeat(MANY), "the file ends before the ')'"),
        ("\n\"x\"".repeat(MANY), "an operation is a map"),
    ] {
        let error = inferred(&text, Workload::ListAppend).expect_err("it is no history");
        assert!(error.contains(part) && error.len() < 500, "`{part}` is not in: {error}");
    }
}

#[test]
fn large_histories_of_elle_are_linear() {
    const MANY: usize = 200_000;
    // A transaction of very many registers.
    let ops: String = (0..MANY).map(|i| format!("[:r k{i} nil][:w k{i} {i}]")).collect();
    let report = inferred(&format!("{{:type :ok :process 0 :value [{ops}]}}"), Workload::Register);
    assert!(report.expect("it is linear").anomalies.is_empty());
    // A list of one element, very many times, under a long key.
    let (key, ones) = ("k".repeat(MANY), "1 ".repeat(MANY));
    let text = format!(
        "{{:type :ok :process 0 :value [[:append {key} 1]]}}\n{{:type :ok :process 1 :value [[:r {key} [{ones}]]]}}"
    );
    let report = inferred(&text, Workload::ListAppend).expect("it is linear");
    assert_eq!(report.anomalies_met, MANY - 1, "each element too many");
    // A line each.
    let text: String = (0..MANY).map(|i| format!("{{:type :ok :process {i} :value [[:append x {i}]]}}\n")).collect();
    assert!(inferred(&text, Workload::ListAppend).expect("it is linear").anomalies.is_empty());
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused() {
    let json = lines([
        format!("{},{}", read("a", "0"), write("a", "0", r#","value":"x""#)),
        format!("{},{}", write("b", "null", r#","after":0"#), write("c", "1", r#","commutes":true"#)),
        r#"{"op":"scan","table":"t","low":"a","high":null,"seen":[["a",1]],"gone":[["b",0]]}"#.to_owned(),
    ]);
    let edn = "{:type :invoke, :process 0, :value [[:append x 1] [:r x nil]]}\n#j{:type :ok, :process 0, :value [[:append x 1] [:r x [1]]]}\n";
    for at in 0..json.len().max(edn.len()) {
        for byte in [b'"', b'{', b'}', b'[', b']', b',', b'0', b'9', b'-', b'\\', b'\n', b'#', 0, 0xff] {
            for text in [json.as_str(), edn] {
                let mut bytes = text.as_bytes().to_vec();
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = byte;
                }
                if let Ok(history) = History::read_json_lines(&bytes[..]) {
                    let _ = check_bounded(&history).expect("it is small");
                }
                if let Ok(text) = std::str::from_utf8(&bytes) {
                    let _ = inferred(text, Workload::ListAppend);
                    let _ = inferred(text, Workload::Register);
                }
            }
        }
    }
}
