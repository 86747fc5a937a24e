//! `contend sql` on SQLite, which needs no server.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::common::{contend, contend_with_input, text};
use crate::hostile::{NO_WORKLOADS, refuses_in, wrong_files};

/// A run in a moment.
const SHORT: [&str; 8] = ["--seconds", "0.05", "--clients", "2", "--verify-transactions", "40", "--url", "sqlite:t.db"];

/// Runs the counter's file in this folder.
fn counter(folder: &Path, arguments: &[&str]) -> Output {
    let file = include_str!("../../../../workloads/counter.toml");
    std::fs::write(folder.join("counter.toml"), file).expect("written");
    contend(folder, &[&["sql", "counter.toml"], &SHORT[..], arguments].concat())
}

/// A history that can't be written ends neither the run nor the other files.
#[test]
fn a_history_that_can_not_be_written_hides_no_figures() {
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir_all(folder.path().join("out/history-serializable.jsonl")).expect("a folder");
    let output = counter(folder.path(), &["--out", "out", "--json", "beside.json"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
    assert_eq!(stderr, "error: can't write out/history-serializable.jsonl: it is a folder\n");
    assert!(stdout.contains("serializable") && stdout.contains("nothing in 40 transactions"), "{stdout}");
    for name in ["out/report.html", "out/results.json", "beside.json"] {
        assert!(folder.path().join(name).is_file(), "{name} is not there");
    }
}

/// The table of anomalies has a page and data, too.
#[test]
fn litmus_writes_its_table_as_a_page() {
    let folder = TempDir::new().expect("a folder");
    let run =
        |arguments: &[&str]| contend(folder.path(), &[&["sql", "litmus", "--url", "sqlite:t.db"], arguments].concat());
    let output = run(&["--out", "out", "--json", "beside.json"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.ends_with("report: out/report.html · results: out/results.json\n"), "{stdout}");
    let content = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let page = content("out/report.html");
    for part in [
        "<!doctype html>",
        "The level kept its promise in 13 tests.",
        "P4 lost update",
        "SQLite 3",
        "<pre>contend sql litmus --url sqlite:t.db --isolation all</pre>",
    ] {
        assert!(page.contains(part), "'{part}' is not in: {page}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "the page loads nothing");
    assert_eq!(content("out/results.json"), content("beside.json"));
    let data: serde_json::Value = serde_json::from_str(&content("out/results.json")).expect("JSON");
    assert_eq!(data[0]["rows"].as_array().map(Vec::len), Some(13), "{data}");
    // What is there stays, unless --force says otherwise.
    let again = run(&["--out", "out"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("out/report.html is there already; --force overwrites it"));
    assert!(again.stdout.is_empty());
    assert_eq!(run(&["--out", "out", "--force"]).status.code(), Some(0));
}

/// What has no effect is refused, by its name.
#[test]
fn a_flag_without_an_effect_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let refused = |arguments: &[&str], message: &str| {
        let output = contend(folder.path(), &[&["sql"], arguments].concat());
        assert_eq!(text(&output.stderr), format!("error: {message}\n"), "{arguments:?}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
    };
    let litmus = ["litmus", "--url", "sqlite:t.db"];
    let valid = "to a workload file; valid with litmus: --url, --isolation, --json, --out, --force";
    for (flag, value) in [
        ("--clients", "8"),
        ("--seconds", "5"),
        ("--rate", "2k"),
        ("--verify-transactions", "5000"),
        ("--reconnect", "1s"),
        ("--beside", "silo"),
        ("--set", "bank.accounts=3"),
        ("--seed", "42"),
        ("--history", "h.jsonl"),
    ] {
        refused(&[&litmus[..], &[flag, value]].concat(), &format!("{flag} belongs {valid}"));
    }
    refused(&[&litmus[..], &["--seed", "1", "--threads", "2"]].concat(), &format!("--clients, --seed belong {valid}"));
    let file = include_str!("../../../../workloads/counter.toml");
    std::fs::write(folder.path().join("counter.toml"), file).expect("written");
    let counter = ["counter.toml", "--url", "sqlite:t.db"];
    refused(
        &[&counter[..], &["--reconnect", "1s"]].concat(),
        "--reconnect has no effect on SQLite, which has no connections; valid with postgres:// and mysql://",
    );
    refused(
        &[&counter[..], &["--set", "retry.backoff=fixed"]].concat(),
        "--set retry.backoff has no effect on a database: it is an option of the engine; valid without --beside: \
         counter.counters",
    );
    // With an effect they are taken.
    let beside = ["--beside", "mvto", "--set", "retry.backoff=fixed"];
    let output = contend(folder.path(), &[&["sql", "counter.toml"], &SHORT[..], &beside].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("mvto"), "{}", text(&output.stdout));
}

/// A password is on no command line if the URL comes from stdin, whatever else comes there.
#[test]
fn a_url_is_read_from_stdin() {
    let folder = TempDir::new().expect("a folder");
    let file = include_str!("../../../../workloads/counter.toml");
    std::fs::write(folder.path().join("counter.toml"), file).expect("written");
    let run = |input: &[u8]| {
        let arguments = ["sql", "counter.toml", "--seconds", "0.05", "--clients", "2", "--verify-transactions", "40"];
        contend_with_input(folder.path(), &[&arguments[..], &["--url", "-"]].concat(), input)
    };
    for input in ["sqlite:t.db", "sqlite:t.db\n", "  sqlite:t.db \r\nsqlite:/nowhere/another\n"] {
        let output = run(input.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{input:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("nothing in 40 transactions"), "{input:?}");
    }
    let endless = [b"sqlite:t.db?".as_slice(), &[b'x'; 1 << 20]].concat();
    for (input, part) in [
        (&b""[..], "error: --url: the URL has no scheme; valid: postgres://"),
        (b"\nsqlite:t.db\n", "error: --url: the URL has no scheme; valid: postgres://"),
        (b"\xff\xfe\n", "error: --url -: stream did not contain valid UTF-8"),
        (&endless, "error: --url -: the line has 65536 bytes or more"),
    ] {
        let output = run(input);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len(), stderr.lines().count()), (Some(2), 0, 1), "{stderr}");
        assert!(stderr.starts_with(part), "'{part}' is not in: {stderr}");
    }
}

/// The sum overflows in the database where the recorded run has its own size.
const OVERFLOW: &str = r"
name = 'overflow'
schema = 'create table t (id bigint primary key, a bigint)'
[parameters]
big = 1
[verify]
big = 9000000000000000
[rows]
t = 2
[fill]
't.a' = ':big * 1000'
[[transaction]]
name = 'read'
script = 'select a from t where id = 0;'
[[invariant]]
name = 'the sum'
equal = ['select sum(a) from t', 'select sum(a) from t']
";

/// A database that fails in the middle takes away no figures, and no file.
#[test]
fn a_failure_in_the_middle_hides_nothing_that_was_found() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("overflow.toml"), OVERFLOW).expect("written");
    let arguments = ["--out", "out", "--json", "beside.json", "--beside", "silo"];
    let output = contend(folder.path(), &[&["sql", "overflow.toml"], &SHORT[..], &arguments].concat());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let message = "serializable: the check of the invariants: integer overflow";
    assert_eq!((output.status.code(), stderr), (Some(1), format!("error: {message}\n")), "{stdout}");
    for part in ["nothing in 40 transactions", "PARTIAL: the run failed before its end.\nreport: out/report.html"] {
        assert!(stdout.contains(part), "'{part}' is not in: {stdout}");
    }
    let content = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(content("out/report.html").contains(&format!("Partial: the run failed before its end. {message}")));
    assert!(content("out/history-serializable.jsonl").lines().count() == 40);
    assert_eq!(content("out/results.json"), content("beside.json"));
    let data: serde_json::Value = serde_json::from_str(&content("beside.json")).expect("JSON");
    assert_eq!((&data["sql"]["error"], &data["sql"]["partial"]), (&message.into(), &true.into()));
    assert!(data["sql"]["levels"][0]["measured"]["commits"].as_u64() > Some(0), "{data}");
    // A file that can't be written is named as well.
    std::fs::remove_file(folder.path().join("out/history-serializable.jsonl")).expect("removed");
    std::fs::create_dir(folder.path().join("out/history-serializable.jsonl")).expect("a folder");
    let output =
        contend(folder.path(), &[&["sql", "overflow.toml"], &SHORT[..], &["--out", "out", "--force"]].concat());
    let both = format!("error: {message}; can't write out/history-serializable.jsonl: it is a folder\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), both));
}

#[test]
fn input_that_is_none_is_refused() {
    let folder = wrong_files();
    let refused = |arguments: &[&str], part: &str| refuses_in(folder.path(), &[&["sql"], arguments].concat(), part);
    for (file, part) in NO_WORKLOADS {
        refused(&[file, "--url", "sqlite:t.db"], part);
    }
    for name in ["", "bank.", "litmas"] {
        let part = if name == "bank." { "can't be read" } else { "valid: the path of a workload file, or litmus" };
        refused(&[name, "--url", "sqlite:t.db"], part);
    }
    let file = include_str!("../../../../workloads/counter.toml");
    std::fs::write(folder.path().join("counter.toml"), file).expect("written");
    for (url, part) in [
        ("", "the URL has no scheme; valid: postgres://"),
        ("sqlite:", "the URL has no path"),
        ("sqlite:folder", "sqlite:folder: the path is a folder; valid: sqlite:PATH of a file"),
        ("sqlite:/no/such/folder/t.db", "unable to open database file"),
        ("mysql://localhost:1/d", "mysql://localhost:1/d: Could not connect to address"),
        ("postgres://h:-1/d", "the URL can't be read"),
    ] {
        refused(&["counter.toml", "--url", url], part);
        refused(&["litmus", "--url", url], part);
    }
    for (flag, value, part) in [
        ("--clients", "0", "valid: 1 to 1000"),
        ("--clients", "-1", "it is below 0"),
        ("--seconds", "-1", "valid: above 0, to 86400"),
        ("--seconds", "nan", "valid: above 0, to 86400"),
        ("--verify-transactions", "1e9", "valid: 1 to 1000000"),
        ("--rate", "-5", "'-5' is no rate per second"),
        ("--reconnect", "-1s", "'-1' is no time"),
        ("--isolation", "serialisable", "unknown isolation level 'serialisable'; valid here: serializable"),
        ("--isolation", "all,all,serializable", "'serializable' is given twice"),
        ("--beside", "silo,silo", "silo is given twice"),
        ("--beside", ",", "unknown protocol ''; valid: none, silo"),
        ("--set", "counter.counters=-1", "invalid value '-1' for option 'counter.counters'"),
        ("--set", "counter.none=1", "unknown option 'counter.none'"),
        ("--out", "empty.toml", "can't make the folder empty.toml"),
        ("--history", "folder", "can't write folder: it is a folder"),
        ("--rate", "1e9", "'1e9' is no rate per second; valid here: one rate above 0, to 100M, as in 2k\n"),
        ("--url", "sqlite:t.db", "cannot be used multiple times"),
    ] {
        refused(&["counter.toml", "--url", "sqlite:t.db", flag, value], part);
    }
    let twice =
        ["counter.toml", "--url", "sqlite:t.db", "--isolation", "serializable", "--json", "a", "--history", "a"];
    refused(&twice, "--json and --history would both go to a; valid: another file for one of them");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("the folder").flatten().map(|it| it.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("contend_")), "{left:?}");
}
