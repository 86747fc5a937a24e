//! `contend workload import`: from a trace to a workload that is checked and run.

use std::fmt::Write as _;

use tempfile::TempDir;

use crate::common::{contend, refuses, text};

const SCHEMA: &str = "create table account (id int primary key, owner text, balance bigint);\
                      create table entry (id bigserial primary key, account int, amount bigint, at timestamp);";

/// Writes a log in which two sessions move money, each in statements of its own.
fn log() -> String {
    let mut log = String::new();
    let mut line = |session: usize, transaction: usize, sql: &str| {
        writeln!(
            log,
            "{{\"timestamp\":\"2026-03-01 10:00:{:02}.000 UTC\",\"session_id\":\"s{session}\",\"vxid\":\"{session}/{transaction}\",\
             \"error_severity\":\"LOG\",\"message\":\"statement: {sql}\"}}",
            transaction % 60
        )
        .expect("a text");
    };
    for number in 1..400 {
        let (first, second) = (number * 7 % 100, number * 31 % 100);
        line(1, number, "BEGIN");
        line(2, number, &format!("select balance, owner from account where id = {second}"));
        line(1, number, &format!("update account set balance = balance - 5 where id = {first}"));
        line(1, number, &format!("insert into entry (account, amount, at) values ({first}, -5, now())"));
        line(1, number, "COMMIT");
    }
    log
}

#[test]
fn an_imported_file_is_checked_and_run() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("log.json", &log());
    write("schema.sql", SCHEMA);
    let output = contend(folder.path(), &["workload", "import", "pg-log", "log.json", "--schema", "schema.sql"]);
    let note = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{note}");
    assert!(note.contains("note: 798 transactions in 2 types; the file covers 100.0 % of 1197 statements"), "{note}");
    write("mine.toml", &text(&output.stdout));
    for arguments in [
        &["workload", "check", "mine.toml"][..],
        &[
            "run",
            "mine.toml",
            "--protocol",
            "silo",
            "--seconds",
            "0.02",
            "--warmup",
            "0.02",
            "--windows",
            "1",
            "--verify",
        ],
        &["explore", "--workload", "mine.toml", "--protocol", "silo", "--schedules", "20"],
    ] {
        let output = contend(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    let schema = format!("{}", folder.path().join("schema.sql").display());
    let log = format!("{}", folder.path().join("log.json").display());
    let import = ["workload", "import", "pg-log"];
    refuses(&[&import[..], &["none.json", "--schema", &schema]].concat(), &["none.json: "]);
    refuses(&[&import[..], &[&log]].concat(), &["--schema"]);
    refuses(&[&import[..], &[&schema, "--schema", &schema]].concat(), &["schema.sql, line 1: no entry of a csvlog"]);
    refuses(
        &[&import[..], &[&log, "--schema", &schema, "--rows", "nope=5"]].concat(),
        &["'nope'; valid: account, entry"],
    );
    refuses(&[&import[..], &[&log, "--schema", &schema, "--rows", "account"]].concat(), &["valid: TABLE=N"]);
    refuses(&[&import[..], &[&log, "--schema", &schema, "--allow-uncovered", "2"]].concat(), &["valid: from 0 to 1"]);
    refuses(&["workload", "import", "accesses", &log], &["log.json, line 1", "valid: 6 or 7, time,session,txn"]);
    refuses(&["workload", "import", "accesses", &log, "--row-bytes", "1"], &["valid: 8 to 4096 bytes"]);
    refuses(
        &["workload", "import", "pg-stat-statements", &log, "--schema", &schema],
        &["log.json, line 1", "query, calls"],
    );
}
