//! Logs that tests write, and what tests read in the imported file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use contend_import::{ImportError, ImportOptions, Imported, TraceSource, import};
use contend_workloads::WorkloadFile;
use contend_workloads::zipf::Zipf;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use tempfile::TempDir;

/// Files of one test.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files { folder: TempDir::new().expect("a folder") }
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// Imports a log.
pub(crate) fn import_log(log: &str, schema: &str, options: &ImportOptions) -> Result<Imported, ImportError> {
    let files = Files::new();
    let log = files.write("trace.log", log);
    let schema = files.write("schema.sql", schema);
    checked(&log, &TraceSource::PgLog { schema }, options)
}

/// Imports a trace, and has the compiler read the result.
pub(crate) fn checked(path: &Path, source: &TraceSource, options: &ImportOptions) -> Result<Imported, ImportError> {
    let imported = import(path, source, options)?;
    if let Err(error) = WorkloadFile::read("imported.toml", &imported.text) {
        panic!("{error}\n{}", imported.text);
    }
    Ok(imported)
}

/// Returns the error of an import that is refused.
pub(crate) fn refused(result: Result<Imported, ImportError>) -> String {
    match result {
        Ok(imported) => panic!("taken:\n{}", imported.text),
        Err(error) => error.to_string(),
    }
}

/// Returns the weights of the transactions of a file, by name.
pub(crate) fn weights(text: &str) -> Vec<(String, f64)> {
    let value = |line: &str| line.split_once(" = ").map(|(_, value)| value.trim_matches('"').to_owned());
    let names = text.lines().skip_while(|line| *line != "[[transaction]]").filter(|line| line.starts_with("name = "));
    let weights = text.lines().filter(|line| line.starts_with("weight = "));
    names.zip(weights).map(|(name, weight)| (value(name).unwrap(), value(weight).unwrap().parse().unwrap())).collect()
}

/// Returns the numbers that stand before a comma and a parenthesis, behind `zipf(:NAME`.
pub(crate) fn skews(text: &str, name: &str) -> Vec<f64> {
    let begin = format!("zipf(:{name}, ");
    text.split(&begin).skip(1).filter_map(|rest| rest.split(')').next()?.parse().ok()).collect()
}

/// The forms of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Csv,
}

/// An entry of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogEntry {
    pub(crate) milliseconds: u64,
    pub(crate) session: usize,
    pub(crate) transaction: u64,
    pub(crate) severity: &'static str,
    pub(crate) message: String,
    pub(crate) detail: String,
}

impl LogEntry {
    pub(crate) fn statement(session: usize, transaction: u64, sql: &str) -> LogEntry {
        LogEntry { session, transaction, severity: "LOG", message: format!("statement: {sql}"), ..LogEntry::default() }
    }
}

/// Writes a log.
pub(crate) fn log_of(form: Form, entries: &[LogEntry]) -> String {
    let mut log = String::new();
    for entry in entries {
        let seconds = entry.milliseconds / 1000;
        let time = format!(
            "2026-03-01 {:02}:{:02}:{:02}.{:03} CET",
            10 + seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            entry.milliseconds % 1000
        );
        let LogEntry { session, transaction, severity, .. } = entry;
        match form {
            Form::Json => {
                let value = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                let detail = match entry.detail.as_str() {
                    "" => String::new(),
                    detail => format!("\"detail\":\"{}\",", value(detail)),
                };
                writeln!(
                    log,
                    "{{\"timestamp\":\"{time}\",\"user\":\"u\",\"dbname\":\"d\",\"pid\":{},\"session_id\":\"s{session}\",\
                     \"line_num\":1,\"vxid\":\"{session}/{transaction}\",\"txid\":0,\"error_severity\":\"{severity}\",\
                     \"message\":\"{}\",{detail}\"backend_type\":\"client backend\",\"query_id\":0}}",
                    1000 + session,
                    value(&entry.message)
                )
            }
            Form::Csv => {
                let value = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
                writeln!(
                    log,
                    "{time},\"u\",\"d\",{},\"127.0.0.1:5\",s{session},1,\"SELECT\",{time},{session}/{transaction},0,{severity},00000,\
                     {},{},,,,,,,,\"psql\",\"client backend\",,0",
                    1000 + session,
                    value(&entry.message),
                    value(&entry.detail)
                )
            }
        }
        .expect("a text");
    }
    log
}

/// The schema of pgbench.
pub(crate) const TPCB: &str = "
create table pgbench_branches (bid int primary key, bbalance int, filler char(88));
create table pgbench_tellers  (tid int primary key, bid int, tbalance int, filler char(84));
create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));
create table pgbench_history  (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
";

/// The accounts of a log of pgbench.
pub(crate) const ACCOUNTS: u64 = 100_000;

/// How pgbench sends its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `log_statement = all`, constants in the text.
    Simple,
    /// `log_min_duration_statement = 0`, parameters in the detail.
    Extended,
}

/// Writes the log of pgbench's three scripts, half, three tenths and a fifth of the transactions,
/// by eight sessions that take turns. Accounts have the skew `theta`.
pub(crate) fn pgbench(protocol: Protocol, transactions: usize, theta: f64, seed: u64) -> Vec<LogEntry> {
    let mut random = SmallRng::seed_from_u64(seed);
    let zipf = Zipf::new(ACCOUNTS, theta);
    let mut queues: Vec<Vec<LogEntry>> = vec![Vec::new(); 8];
    for number in 0..transactions {
        let session = number % queues.len();
        // Any step without a common factor scatters the ranks.
        let aid = 1 + zipf.draw(random.next_u64()) * 7_919 % ACCOUNTS;
        let (tid, delta) = (random.random_range(1..=10), random.random_range(-5000..=5000));
        let update = |table: &str, column: &str, key: &str, value: &dyn std::fmt::Display| {
            (
                format!("UPDATE pgbench_{table} SET {column} = {column} + {{}} WHERE {key} = {{}};"),
                vec![delta.to_string(), value.to_string()],
            )
        };
        let select = ("SELECT abalance FROM pgbench_accounts WHERE aid = {};".to_owned(), vec![aid.to_string()]);
        let insert = (
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({}, {}, {}, {}, CURRENT_TIMESTAMP);"
                .to_owned(),
            vec![tid.to_string(), "1".into(), aid.to_string(), delta.to_string()],
        );
        let border = |text: &str| (text.to_owned(), Vec::new());
        let statements = match random.random_range(0..10) {
            0..5 => vec![
                border("BEGIN;"),
                update("accounts", "abalance", "aid", &aid),
                select,
                update("tellers", "tbalance", "tid", &tid),
                update("branches", "bbalance", "bid", &1),
                insert,
                border("END;"),
            ],
            5..8 => vec![border("BEGIN;"), update("accounts", "abalance", "aid", &aid), select, insert, border("END;")],
            _ => vec![select],
        };
        let ends = statements.len() - 1;
        for (at, (text, values)) in statements.into_iter().enumerate() {
            let is_last = at == ends;
            let id = number as u64 + 1;
            let mut parts = text.split("{}");
            let mut sql = parts.next().unwrap_or_default().to_owned();
            let mut detail = String::new();
            for (number, (value, rest)) in values.iter().zip(parts).enumerate() {
                match protocol {
                    Protocol::Simple => sql += &format!("{value}{rest}"),
                    Protocol::Extended => {
                        sql += &format!("${}{rest}", number + 1);
                        detail +=
                            &format!("{}${} = '{value}'", if number == 0 { "parameters: " } else { ", " }, number + 1);
                    }
                }
            }
            let message = match protocol {
                Protocol::Simple => format!("statement: {sql}"),
                Protocol::Extended => format!("duration: 0.050 ms  execute <unnamed>: {sql}"),
            };
            // After the end of a transaction an entry has no id.
            let transaction = if protocol == Protocol::Extended && is_last && ends > 0 { 0 } else { id };
            queues[session].push(LogEntry {
                session,
                transaction,
                severity: "LOG",
                message,
                detail,
                ..LogEntry::default()
            });
        }
    }
    let mut queues: Vec<_> = queues.into_iter().map(|queue| queue.into_iter().peekable()).collect();
    let mut log = Vec::new();
    let mut milliseconds = 0;
    while queues.iter_mut().any(|queue| queue.peek().is_some()) {
        let at = random.random_range(0..queues.len());
        milliseconds += u64::from(random.random_bool(0.3));
        if let Some(entry) = queues[at].next() {
            log.push(LogEntry { milliseconds, ..entry });
        }
    }
    log
}
