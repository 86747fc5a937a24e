//! History files: what is read, what is refused and how, and that what is written is read back.

use crate::support::*;
use contend_history::{History, Op, State, Value};

const EXAMPLE: &str = concat!(
    r#"{"txn":7,"worker":0,"ops":[{"op":"read","table":"usertable","key":"42","version":3},"#,
    r#"{"op":"write","table":"usertable","key":"42","version":7,"over":3},"#,
    r#"{"op":"scan","table":"t","low":"10","high":"20","seen":[["11",3]]}]}"#,
    "\n"
);

fn parse(text: &str) -> Result<History, String> {
    History::read_json_lines(text.as_bytes()).map_err(|error| error.to_string())
}

fn written(history: &History) -> String {
    let mut bytes = Vec::new();
    history.write_json_lines(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
fn assert_refused(text: &str, parts: &[&str]) {
    let message = parse(text).expect_err("the file is wrong");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// One line with this operation.
fn line(op: &str) -> String {
    format!(r#"{{"txn":5,"worker":1,"ops":[{op}]}}"#)
}

#[test]
fn the_documented_example_is_read_and_written() {
    let history = parse(EXAMPLE).unwrap();
    assert_eq!(history.transactions().len(), 1);
    assert_eq!(history.transactions()[0].ops.len(), 3);
    assert_eq!(written(&history), EXAMPLE);
}

#[test]
fn an_empty_file_is_a_history() {
    assert_eq!(parse("").unwrap().transactions().len(), 0);
    assert_eq!(parse("\n  \n").unwrap().transactions().len(), 0);
}

#[test]
fn everything_written_is_read_back() {
    let history = numbered([
        vec![read("a", 0), read_value("b", 2, 9), miss("c"), miss_after("c", 0), miss_after("c", 2)],
        vec![write("b", 0), write_value("b", 2, 8), insert("d"), insert_after("e", 0), insert_after("f", 1)],
        vec![delete("b", 2), scan("a", "z", &[]), scan_gone("\"quoted\"\n", "zürich", &[("é", 0)], &[("b", 3)])],
        vec![Act::Scan { low: None, high: None, seen: vec![], gone: vec![] }],
    ]);
    let text = written(&history);
    let again = parse(&text).unwrap();
    assert_eq!(again.transactions().len(), 4);
    assert_eq!(written(&again), text);
    assert_eq!(format!("{:?}", again.transactions()), format!("{:?}", history.transactions()));
}

#[test]
fn field_order_and_unknown_fields_do_not_matter() {
    let history = parse(
        r#"{"comment":{"a":[1]},"ops":[{"key":"k","from":1.5,"version":null,"table":"t","op":"read","deleted_by":0}],"txn":1}"#,
    )
    .unwrap();
    let Op::Read { seen, .. } = &history.transactions()[0].ops[0] else { panic!("a read") };
    assert_eq!(*seen, State::NeverExisted);
}

#[test]
fn a_last_line_without_a_newline_and_windows_line_ends_are_read() {
    assert_eq!(parse(EXAMPLE.trim_end()).unwrap().transactions().len(), 1);
    assert_eq!(parse(&EXAMPLE.replace('\n', "\r\n")).unwrap().transactions().len(), 1);
}

#[test]
fn values_are_json_scalars() {
    for (text, value) in [
        ("true", Value::Bool(true)),
        ("18446744073709551615", Value::Unsigned(u64::MAX)),
        ("-3", Value::Negative(-3)),
        ("1.5", Value::Float(1.5)),
        (r#""a\tb""#, Value::Text(std::sync::Arc::new("a\tb".to_owned()))),
    ] {
        let text = line(&format!(r#"{{"op":"read","table":"t","key":"k","version":1,"value":{text}}}"#));
        let history = parse(&text).unwrap();
        let Op::Read { value: Some(read), .. } = &history.transactions()[0].ops[0] else { panic!("a value") };
        assert_eq!(*read, value);
        assert_eq!(written(&history), text + "\n");
    }
    let list = line(r#"{"op":"read","table":"t","key":"k","version":1,"value":[1]}"#);
    assert_refused(&list, &["line 1", "a boolean, a number or a string"]);
}

/// A file cut at any byte is either a shorter history or an error on the line of the cut.
#[test]
fn a_truncated_file_is_refused_at_its_last_line() {
    let text = [EXAMPLE, &EXAMPLE.replace("7,", "8,")].concat();
    for cut in 0..text.len() {
        let last_line = text[..cut].lines().count().max(1);
        match parse(&text[..cut]) {
            Ok(history) => assert!(cut % EXAMPLE.len() == 0 || cut % EXAMPLE.len() == EXAMPLE.len() - 1, "{history:?}"),
            Err(message) => {
                assert!(message.starts_with(&format!("line {last_line}: the line ends at column")), "{message}");
                assert!(message.contains("truncated"), "{message}");
            }
        }
    }
}

#[test]
fn malformed_lines_are_refused_with_their_number() {
    let on_line_3 = |op: &str| format!("{EXAMPLE}\n{}\n", line(op));
    for (op, parts) in [
        (r#"{"op":"upsert","table":"t","key":"k"}"#, &["unknown operation `upsert`", "read, write or scan"][..]),
        (r#"{"op":"read","table":"t","key":"k"}"#, &["operation 1 of transaction 5", "a read needs `version`"]),
        (r#"{"op":"read","table":"t","version":1}"#, &["a read needs `key`"]),
        (r#"{"op":"read","key":"k","version":1}"#, &["missing field `table`"]),
        (r#"{"op":"read","table":"t","key":5,"version":1}"#, &["expected a", "string"]),
        (r#"{"op":"read","table":"t","key":"k","version":-1}"#, &["expected u64"]),
        (r#"{"op":"read","table":"t","key":"k","version":1,"deleted_by":1}"#, &["`deleted_by`", "there was one"]),
        (r#"{"op":"write","table":"t","key":"k","version":5}"#, &["a write needs `over`"]),
        (
            r#"{"op":"write","table":"t","key":"k","version":6,"over":1}"#,
            &["`version` is the transaction that writes, 5"],
        ),
        (r#"{"op":"write","table":"t","key":"k","over":1,"after":1}"#, &["`after`"]),
        (r#"{"op":"scan","table":"t","high":"1","seen":[]}"#, &["a scan needs `low`"]),
        (r#"{"op":"scan","table":"t","low":"1","seen":[]}"#, &["a scan needs `high`"]),
        (r#"{"op":"scan","table":"t","low":"1","high":"2"}"#, &["a scan needs `seen`"]),
        (r#"{"op":"scan","table":"t","low":"1","high":"2","seen":[["1"]]}"#, &["invalid length 1"]),
    ] {
        assert_refused(&on_line_3(op), &[&["line 3: "], parts].concat());
    }
    assert_refused("[]\n", &["line 1", "expected a transaction such as"]);
    assert_refused("{\"ops\":[]}", &["missing field `txn`"]);
    assert_refused("{\"txn\":1}", &["missing field `ops`"]);
    assert_refused("{\"txn\":1,\"ops\":[]} x", &["trailing characters", "column 20"]);
    let mut bytes = EXAMPLE.as_bytes().to_vec();
    bytes[EXAMPLE.find("42").unwrap()] = 0xff;
    assert!(History::read_json_lines(&bytes[..]).unwrap_err().message.contains("unicode"));
}

#[test]
fn numbers_of_transactions_are_positive_and_unique() {
    assert_refused(&EXAMPLE.replace("7,", "0,"), &["line 1", "positive"]);
    assert_refused(&[EXAMPLE, EXAMPLE].concat(), &["line 2", "transaction 7 is there already"]);
}
