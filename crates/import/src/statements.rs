//! `pg_stat_statements` in CSV, with the columns `query`, `calls` and `rows`.
//!
//! It counts statements, and knows neither transactions nor keys. So each statement is a
//! transaction of its own, and the skew of the keys is a parameter.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use crate::ImportError;
use crate::calls::calls_of;
use crate::error::cut;
use crate::guard::Guard;
use crate::trace::{Step, Trace};
use crate::translate::Meaning;

const COLUMNS: &str = "a first line with the columns query, calls and rows (rows may be left out), as in \\copy (select \
                       query, calls, rows from pg_stat_statements) to 'FILE.csv' csv header";

/// Reads statements. Returns the rows of each call, by template.
///
/// # Errors
/// The file can't be read, or a line is no statement.
pub(crate) fn read(path: &Path, trace: &mut Trace) -> Result<HashMap<usize, f64>, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::of_file(path, error))?;
    let guard = Guard::new(file);
    let since = guard.since();
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(guard);
    let header =
        reader.byte_headers().map_err(|error| ImportError::at(path, 1, format!("{error}; valid: {COLUMNS}")))?;
    let names: Vec<String> = header
        .iter()
        .map(|name| String::from_utf8_lossy(name).trim().trim_start_matches('\u{feff}').to_lowercase())
        .collect();
    let column = |name: &str| names.iter().position(|other| other == name);
    let (Some(query), Some(calls)) = (column("query"), column("calls")) else {
        let why = if names.is_empty() {
            "the file is empty".into()
        } else {
            format!("the columns are {}", cut(&names.join(", ")))
        };
        return Err(ImportError::at(path, 1, format!("{why}; valid: {COLUMNS}")));
    };
    let rows = column("rows");
    let mut totals: HashMap<usize, (f64, f64)> = HashMap::new();
    let mut record = csv::ByteRecord::new();
    loop {
        since.set(0);
        let is_there = reader.read_byte_record(&mut record);
        let line = record.position().map_or(1, csv::Position::line);
        match is_there {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(ImportError::at(path, line, format!("{error}; valid: {COLUMNS}"))),
        }
        let field = |at: usize| String::from_utf8_lossy(record.get(at).unwrap_or_default()).trim().to_owned();
        let number = |at: usize| field(at).parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
        let Some(count) = number(calls).filter(|count| *count <= 1e12) else {
            let why = format!("calls is '{}'; valid: a number from 0 to 1e12", cut(&field(calls)));
            return Err(ImportError::at(path, line, why));
        };
        let returned = match rows {
            Some(rows) => number(rows).ok_or_else(|| {
                ImportError::at(path, line, format!("rows is '{}'; valid: a number from 0", cut(&field(rows))))
            })?,
            None => 0.0,
        };
        let sql = field(query);
        if count < 1.0 || sql.is_empty() {
            continue;
        }
        statement(trace, line, &sql, count as u64, returned, &mut totals);
    }
    if trace.counts.transactions == 0 && trace.counts.ignored == 0 {
        return Err(ImportError::of_file(path, format!("there is no statement; valid: {COLUMNS}")));
    }
    let known = totals.into_iter().filter(|_| rows.is_some());
    Ok(known.map(|(template, (rows, calls))| (template, rows / calls)).collect())
}

fn statement(trace: &mut Trace, line: u64, sql: &str, count: u64, rows: f64, totals: &mut HashMap<usize, (f64, f64)>) {
    let statements = match calls_of(sql, &[]) {
        Ok(statements) => statements,
        Err(why) => {
            let template = trace.unreadable(&why, line);
            trace.add(vec![Step { template, values: Vec::new(), is_logged: true }], false, count);
            return;
        }
    };
    for call in statements.into_iter().filter_map(|calls| calls.into_iter().next()) {
        let template = trace.template(&call.template, call.values.len(), line);
        match trace.templates[template].meaning {
            Meaning::Statement(_) | Meaning::Refused(_) => {
                let values = trace.values(template, &call.values);
                let total = totals.entry(template).or_default();
                *total = (total.0 + rows, total.1 + count as f64);
                trace.add(vec![Step { template, values, is_logged: true }], false, count);
            }
            _ => trace.counts.ignored += count,
        }
    }
}
