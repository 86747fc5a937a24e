//! Input that is no trace: one message that names the file, the line and what is valid.

use contend_import::{ImportOptions, TraceSource};

use crate::common::{Files, Form, LogEntry, TPCB, checked, import_log, log_of, refused};

fn says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no '{part}' in: {error}");
    }
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let statement = log_of(Form::Csv, &[LogEntry::statement(1, 1, "select 1")]);
    let quiet = LogEntry { message: "checkpoint starting: time".into(), ..LogEntry::statement(1, 1, "") };
    for (log, parts) in [
        ("", &["trace.log: the file is empty; valid: log_destination jsonlog or csvlog"][..]),
        ("\n \n", &["the file is empty"]),
        ("{\"a\": 1}\n", &["trace.log, line 1", "no error_severity", "log_statement = all"]),
        ("{\"a\": \n{}\n", &["line 1", "no entry of a jsonlog"]),
        ("2026-03-01 10:00:00 CET [5] LOG:  statement: select 1\n", &["line 1", "no entry of a csvlog (1 column, "]),
        ("a,b,c\n1,2,3\n", &["line 1", "3 columns, 23 to 26"]),
        (&format!("{statement}1,2\n{statement}"), &["line 2", "2 columns"]),
        (&log_of(Form::Json, &[quiet]), &["there is no statement in 1 entry", "lc_messages = C"]),
        (&format!("{{\"message\":\"{}\"}}", "x".repeat(17 << 20)), &["line 1", "more than 16777216 bytes"]),
        (&format!("\"{}", "x".repeat(17 << 20)), &["line 1", "more than 16777216 bytes"]),
        (&statement, &["no transaction can be taken"]),
    ] {
        says(&refused(import_log(log, TPCB, &ImportOptions::default())), parts);
    }
}

#[test]
fn statements_that_cannot_be_taken_are_listed() {
    let log: Vec<LogEntry> =
        ["select abalance from pgbench_accounts where aid = 5", "select x from nowhere where a = 7"]
            .iter()
            .enumerate()
            .map(|(at, sql)| LogEntry::statement(1, at as u64 + 1, sql))
            .collect();
    let error = refused(import_log(&log_of(Form::Json, &log), TPCB, &ImportOptions::default()));
    says(
        &error,
        &[
            "trace.log: 50.0 % of the statements can't be taken, and --allow-uncovered permits 1.0 %",
            "50.0 %: line 2: select x from nowhere where a = $1: unknown table 'nowhere'",
            "valid: pgbench_branches, pgbench_tellers",
        ],
    );
}

#[test]
fn a_list_that_is_none_is_refused() {
    let files = Files::new();
    for (text, parts) in [
        ("", &["a.csv: there is no access; valid: lines of time,session,txn"][..]),
        ("time,session,txn,op,table,key\n", &["there is no access"]),
        ("0,a,1,r,t\n", &["a.csv, line 1: 5 columns; valid: 6 or 7"]),
        ("0,a,1,r,t,5\n0,a,1,r,t,5,6,7\n", &["line 2: 8 columns"]),
        ("0,a,1,x,t,5\n", &["line 1: the op is 'x'; valid: r (read)"]),
        ("0,a,1,s,t,5\n", &["line 1: a scan (s) has no key2"]),
        ("0,a,1,r,,5\n", &["the table or the key is empty"]),
        ("noon,a,1,r,t,5\n", &["the time is 'noon'; valid: seconds"]),
    ] {
        let source = TraceSource::Accesses { row_bytes: 100 };
        says(&refused(checked(&files.write("a.csv", text), &source, &ImportOptions::default())), parts);
    }
}

#[test]
fn counts_and_schemas_that_are_none_are_refused() {
    let files = Files::new();
    let schema = files.write("s.sql", TPCB);
    let source = TraceSource::PgStatStatements { schema: schema.clone(), theta: 0.0 };
    for (text, parts) in [
        ("", &["c.csv, line 1", "valid: a first line with the columns query, calls and rows"][..]),
        ("a,b\n1,2\n", &["line 1: the columns are a, b"]),
        ("query,calls,rows\n", &["there is no statement"]),
        ("query,calls,rows\nselect 1,many,0\n", &["line 2: calls is 'many'; valid: a number"]),
        ("query,calls,rows\nselect 1,5,-1\n", &["line 2: rows is '-1'"]),
        ("query,calls\nselect 1,5\n", &["no transaction can be taken"]),
    ] {
        says(&refused(checked(&files.write("c.csv", text), &source, &ImportOptions::default())), parts);
    }
    let log = files.write("l.json", log_of(Form::Json, &[LogEntry::statement(1, 1, "select 1")]));
    for (text, parts) in [
        ("create table t (a point)", &["t.sql, line 1: table t: column a has the type point; valid: bigint"][..]),
        ("", &["t.sql: it creates no table"]),
        ("create table t (a int", &["line 1: create table can't be read"]),
    ] {
        let source = TraceSource::PgLog { schema: files.write("t.sql", text) };
        says(&refused(checked(&log, &source, &ImportOptions::default())), parts);
    }
    let missing = schema.with_file_name("none.sql");
    says(&refused(checked(&log, &TraceSource::PgLog { schema: missing }, &ImportOptions::default())), &["none.sql: "]);
    let rows = ImportOptions { rows: [("nope".to_owned(), 5)].into(), ..ImportOptions::default() };
    let error = refused(checked(&log, &TraceSource::PgLog { schema }, &rows));
    says(&error, &["--rows names an unknown table 'nope'; valid: pgbench_branches"]);
}
