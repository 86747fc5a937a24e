//! Logs of PostgreSQL: `jsonlog` and `csvlog`.
//!
//! Statements stand in messages: `statement: SQL` and `execute NAME: SQL` with `log_statement =
//! all`, behind `duration: N ms` with `log_min_duration_statement = 0`. Parameters of the extended
//! protocol stand in the detail of the entry.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use contend_model::counted;
use serde::Deserialize;

use crate::ImportError;
use crate::calls::{Literal, calls_of};
use crate::error::cut;
use crate::guard::{Guard, LINE_MAX};
use crate::session::{Logged, Sessions};
use crate::trace::{Trace, seconds_of};

/// What a log has to hold, for messages.
const NEEDED: &str = "log_destination jsonlog or csvlog, with log_statement = all or log_min_duration_statement = 0, \
                      and lc_messages = C";
/// The columns of a csvlog: 23 up to version 12, 26 from version 14 on.
const COLUMNS: std::ops::RangeInclusive<usize> = 23..=30;
const SEVERITIES: [&str; 12] =
    ["DEBUG", "DEBUG1", "DEBUG2", "DEBUG3", "DEBUG4", "DEBUG5", "INFO", "NOTICE", "WARNING", "LOG", "ERROR", "FATAL"];

/// An entry of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    timestamp: String,
    pid: Option<i64>,
    session_id: String,
    vxid: String,
    error_severity: String,
    message: String,
    detail: String,
}

/// Reads a log.
///
/// # Errors
/// The file can't be read, or is no log with statements.
pub(crate) fn read(path: &Path, trace: &mut Trace) -> Result<(), ImportError> {
    let file = File::open(path).map_err(|error| ImportError::of_file(path, error))?;
    let mut input = BufReader::with_capacity(1 << 16, file);
    let begin = input.fill_buf().map_err(|error| ImportError::of_file(path, error))?;
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
    let Some(first) = begin.iter().find(|byte| !byte.is_ascii_whitespace()).copied() else {
        return Err(ImportError::of_file(path, format!("the file is empty; valid: {NEEDED}")));
    };
    let mut reader = LogReader { path, trace, sessions: Sessions::default(), entries: 0, statements: 0 };
    if first == b'{' {
        reader.json(input)?
    } else {
        reader.csv(input)?
    }
    let LogReader { entries, statements, mut sessions, trace, .. } = reader;
    sessions.finish(trace);
    if statements == 0 {
        return Err(ImportError::of_file(
            path,
            format!("there is no statement in {}; valid: {NEEDED}", counted(entries, "entry")),
        ));
    }
    Ok(())
}

struct LogReader<'a> {
    path: &'a Path,
    trace: &'a mut Trace,
    sessions: Sessions,
    entries: u64,
    statements: u64,
}

impl LogReader<'_> {
    fn json(&mut self, mut input: impl BufRead) -> Result<(), ImportError> {
        let mut line = Vec::new();
        let mut bad: Option<ImportError> = None;
        for number in 1.. {
            line.clear();
            let read = input.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut line);
            let read = read.map_err(|error| ImportError::of_file(self.path, error))?;
            if read == 0 {
                break;
            }
            if read as u64 > LINE_MAX {
                let why = format!("the line has more than {LINE_MAX} bytes; valid: {NEEDED}");
                return Err(ImportError::at(self.path, number, why));
            }
            // Only the last line may be cut.
            if let Some(bad) = bad {
                return Err(bad);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim().trim_start_matches('\u{feff}');
            if text.is_empty() {
                continue;
            }
            match serde_json::from_str::<Entry>(text) {
                Ok(entry) if !entry.error_severity.is_empty() => self.entry(number, &entry),
                Ok(_) => {
                    let why = format!("the line has no error_severity, so it is no entry of a log; valid: {NEEDED}");
                    return Err(ImportError::at(self.path, number, why));
                }
                Err(error) => {
                    let why = format!("no entry of a jsonlog ({}): {error}; valid: {NEEDED}", cut(text));
                    bad = Some(ImportError::at(self.path, number, why));
                }
            }
        }
        match bad {
            Some(bad) if self.entries == 0 => Err(bad),
            _ => Ok(()),
        }
    }

    fn csv(&mut self, input: impl Read) -> Result<(), ImportError> {
        let guard = Guard::new(input);
        let since = guard.since();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(guard);
        let mut record = csv::ByteRecord::new();
        let mut bad: Option<ImportError> = None;
        loop {
            since.set(0);
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return if self.entries == 0 { bad.map_or(Ok(()), Err) } else { Ok(()) },
                Err(error) => {
                    let line = record.position().map_or(1, csv::Position::line);
                    return Err(ImportError::at(self.path, line, format!("{error}; valid: {NEEDED}")));
                }
            }
            // Only the last record may be cut.
            if let Some(bad) = bad {
                return Err(bad);
            }
            let line = record.position().map_or(1, csv::Position::line);
            let field = |at: usize| String::from_utf8_lossy(record.get(at).unwrap_or_default()).into_owned();
            let severity = field(11);
            let is_entry = COLUMNS.contains(&record.len())
                && (SEVERITIES.contains(&severity.as_str()) || severity == "PANIC" || severity == "STATEMENT");
            if !is_entry {
                let why = format!(
                    "no entry of a csvlog ({}, 23 to 26 are expected; it begins with '{}'); valid: {NEEDED}",
                    counted(record.len(), "column"),
                    cut(&field(0))
                );
                bad = Some(ImportError::at(self.path, line, why));
                continue;
            }
            let entry = Entry {
                timestamp: field(0),
                pid: field(3).parse().ok(),
                session_id: field(5),
                vxid: field(9),
                error_severity: severity,
                message: field(13),
                detail: field(14),
            };
            self.entry(line, &entry);
        }
    }

    fn entry(&mut self, line: u64, entry: &Entry) {
        self.entries += 1;
        let pid = entry.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let session = if entry.session_id.is_empty() { pid.as_str() } else { entry.session_id.as_str() };
        match entry.error_severity.as_str() {
            "ERROR" => return self.sessions.failed(self.trace, session, &entry.vxid),
            "FATAL" | "PANIC" => return self.sessions.ended(self.trace, session),
            "LOG" => {}
            _ => return,
        }
        if entry.message.starts_with("disconnection:") {
            return self.sessions.ended(self.trace, session);
        }
        let Some((duration, sql)) = logged(&entry.message) else { return };
        self.statements += 1;
        let end = seconds_of(&entry.timestamp);
        let mut parameters = parameters_of(&entry.detail);
        let mut sql = sql;
        if let Some((body, values)) = prepared(sql, &entry.detail) {
            (sql, parameters) = (body, values);
        }
        self.sessions.statement(
            self.trace,
            &Logged {
                line,
                begin: end.map(|end| end - duration),
                end,
                session,
                transaction: &entry.vxid,
                sql,
                parameters: &parameters,
            },
        );
    }
}

/// Returns the statement of a message, and the seconds that it took.
fn logged(message: &str) -> Option<(f64, &str)> {
    let (duration, rest) = match message.strip_prefix("duration: ") {
        Some(rest) => {
            let (number, rest) = rest.split_once(" ms")?;
            (number.trim().parse::<f64>().ok()? / 1e3, rest.trim_start())
        }
        None => (0.0, message),
    };
    if let Some(sql) = rest.strip_prefix("statement: ") {
        return Some((duration, sql));
    }
    // The fetches of a portal repeat the statement that was executed.
    let rest = rest.strip_prefix("execute ").filter(|rest| !rest.starts_with("fetch from "))?;
    let (_, sql) = rest.split_once(": ")?;
    Some((duration, sql))
}

/// Returns the statement that `execute NAME(VALUES)` runs, and the values. The detail of the entry
/// has the statement.
fn prepared<'a>(sql: &str, detail: &'a str) -> Option<(&'a str, Vec<Literal>)> {
    let is_execute = sql.trim_start().get(..8).is_some_and(|word| word.eq_ignore_ascii_case("execute "));
    let prepare = detail.strip_prefix("prepare: ").filter(|_| is_execute)?;
    let at = prepare.to_ascii_lowercase().find(" as ")?;
    let call = calls_of(sql, &[]).ok()?.into_iter().next()?.into_iter().next()?;
    Some((&prepare[at + 4..], call.values))
}

/// Returns the values of a detail: `parameters: $1 = '5', $2 = NULL`.
fn parameters_of(detail: &str) -> Vec<Literal> {
    let Some(mut rest) = detail.strip_prefix("parameters: ").or_else(|| detail.strip_prefix("Parameters: ")) else {
        return Vec::new();
    };
    let mut values = Vec::new();
    while let Some((_, behind)) = rest.split_once(" = ") {
        if let Some(text) = behind.strip_prefix('\'') {
            let mut value = String::new();
            let mut letters = text.char_indices().peekable();
            let mut end = text.len();
            while let Some((at, letter)) = letters.next() {
                if letter == '\'' && letters.next_if(|(_, next)| *next == '\'').is_none() {
                    end = at + 1;
                    break;
                }
                value.push(letter);
            }
            values.push(Literal::Given(value));
            rest = &text[end..];
        } else {
            values.push(Literal::Null);
            rest = behind.split_once(", ").map_or("", |(_, rest)| rest);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_statements() {
        for (message, expected) in [
            ("statement: select 1", Some((0.0, "select 1"))),
            ("duration: 2.500 ms  statement: select 1", Some((0.0025, "select 1"))),
            ("execute <unnamed>: select a: b", Some((0.0, "select a: b"))),
            ("duration: 1 ms  execute S_1/C_2: select $1", Some((0.001, "select $1"))),
            ("duration: 1 ms  bind S_1: select $1", None),
            ("duration: 1 ms  parse S_1: select $1", None),
            ("duration: 1 ms", None),
            ("execute fetch from S_1/C_2: select $1", None),
            ("checkpoint starting: time", None),
        ] {
            assert_eq!(logged(message), expected, "{message}");
        }
    }

    #[test]
    fn prepared_statements_stand_in_details() {
        let detail = "prepare: PREPARE p(int) AS select a from t where id = $1";
        let (sql, values) = prepared("EXECUTE p(7);", detail).expect("prepared");
        assert_eq!((sql, values), ("select a from t where id = $1", vec![Literal::Given("7".into())]));
        assert_eq!(prepared("select 1", detail), None);
    }

    #[test]
    fn details_hold_parameters() {
        let given = |text: &str| Literal::Given(text.into());
        assert_eq!(
            parameters_of("Parameters: $1 = '-5', $2 = NULL, $3 = 'it''s, $4 = ''x''', $4 = ''"),
            [given("-5"), Literal::Null, given("it's, $4 = 'x'"), given("")]
        );
        assert_eq!(parameters_of("prepare: x"), []);
        assert_eq!(parameters_of("parameters: $1 = 'cut"), [given("cut")]);
    }
}
