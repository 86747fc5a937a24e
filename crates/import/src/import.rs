//! From a trace to the text of a workload file.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use contend_model::counted;
use contend_workloads::WorkloadFile;

use crate::error::cut;
use crate::fit::{FitOptions, Fits, fits_of};
use crate::schema::{BYTES_MAX, Schema};
use crate::trace::Trace;
use crate::translate::Meaning;
use crate::types::{TransactionType, types_of};
use crate::write::{Frame, Script, file_of, scripts_of};
use crate::{ImportError, accesses, pg_log, statements};

/// The most types of a workload file.
const TYPES_MAX: usize = 64;
/// The statements that a message lists.
const LISTED: usize = 10;

/// Where a trace comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TraceSource {
    /// A log of PostgreSQL (`jsonlog` or `csvlog`), with the schema of its tables.
    PgLog {
        /// The file with the tables in SQL.
        schema: PathBuf,
    },
    /// A list of accesses in CSV.
    Accesses {
        /// The bytes of each row.
        row_bytes: u32,
    },
    /// The counts of `pg_stat_statements` in CSV, with the schema of its tables.
    PgStatStatements {
        /// The file with the tables in SQL.
        schema: PathBuf,
        /// The skew of the keys, which the counts do not tell.
        theta: f64,
    },
}

/// What the user chooses.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name of the workload.
    pub name: String,
    /// The share of the statements that the file may leave out, from 0 to 1.
    pub allow_uncovered: f64,
    /// Whether the file may have values of columns outside of keys. Otherwise it has ranks only.
    pub values: bool,
    /// The rows of tables, by name.
    pub rows: BTreeMap<String, u64>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions { name: "imported".into(), allow_uncovered: 0.01, values: false, rows: BTreeMap::new() }
    }
}

/// A workload file that was written from a trace.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of the file.
    pub text: String,
    /// What was imported, in lines for a person.
    pub summary: Vec<String>,
}

/// Writes a workload file from the trace in the file `path`.
///
/// # Errors
/// A file can't be read or is not of its kind, or more statements can't be taken than the options
/// allow.
pub fn import(path: &Path, source: &TraceSource, options: &ImportOptions) -> Result<Imported, ImportError> {
    let schema = match source {
        TraceSource::PgLog { schema } | TraceSource::PgStatStatements { schema, .. } => schema_of(schema)?,
        TraceSource::Accesses { .. } => Schema::default(),
    };
    let mut trace = Trace::new(schema);
    let (mut widths, mut theta) = (Default::default(), None);
    match source {
        TraceSource::PgLog { .. } => pg_log::read(path, &mut trace)?,
        TraceSource::Accesses { row_bytes } => accesses::read(path, *row_bytes, &mut trace)?,
        TraceSource::PgStatStatements { theta: skew, .. } => {
            widths = statements::read(path, &mut trace)?;
            theta = Some(*skew);
        }
    }
    let mut rows = BTreeMap::new();
    for (name, &count) in &options.rows {
        let Some(table) = trace.schema.table(name) else {
            let why = format!("--rows names an unknown table '{}'; valid: {}", cut(name), trace.schema.names());
            return Err(ImportError::of_file(path, why));
        };
        rows.insert(table, count);
    }
    let mut types = types_of(&mut trace);
    let kept = types.split_off(types.len().min(TYPES_MAX));
    let mut report = Report { beyond: kept.iter().map(|of| of.logged).sum(), ..Report::default() };
    let fit = FitOptions { values: options.values, rows, widths };
    let (text, types) = written(&trace, types, &fit, options, source, theta, &mut report)
        .map_err(|why| ImportError::of_file(path, why))?;
    report.covered = types.iter().map(|of| of.logged).sum();
    let listed = report.listed(&trace);
    let uncovered = report.uncovered(&trace);
    let is_none = types.is_empty() || report.covered == 0;
    if is_none || uncovered > options.allow_uncovered {
        let head = if is_none {
            "no transaction can be taken".to_owned()
        } else {
            format!(
                "{} of the statements can't be taken, and --allow-uncovered permits {}",
                percent(uncovered),
                percent(options.allow_uncovered)
            )
        };
        let lines: Vec<String> = listed.iter().map(|line| format!("\n  {line}")).collect();
        return Err(ImportError::of_file(path, format!("{head}{}", lines.concat())));
    }
    let summary = vec![format!(
        "{} in {}; the file covers {} of {}",
        counted(trace.counts.transactions, "transaction"),
        counted(types.len(), "type"),
        percent(1.0 - uncovered),
        counted(trace.counts.statements, "statement")
    )];
    Ok(Imported { text, summary })
}

fn schema_of(path: &Path) -> Result<Schema, ImportError> {
    let of_file = |error: std::io::Error| ImportError::of_file(path, error);
    // A device or a pipe has no length, and may never end.
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(of_file)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(ImportError::of_file(
            path,
            format!("the schema has more than {BYTES_MAX} bytes; valid: up to that"),
        ));
    }
    let mut schema = Schema::read(path, &String::from_utf8_lossy(&bytes))?;
    schema.finish();
    Ok(schema)
}

/// Writes the file, without the types that its compiler refuses.
fn written(
    trace: &Trace,
    mut types: Vec<TransactionType>,
    fit: &FitOptions,
    options: &ImportOptions,
    source: &TraceSource,
    theta: Option<f64>,
    report: &mut Report,
) -> Result<(String, Vec<TransactionType>), String> {
    loop {
        if types.is_empty() {
            return Ok((String::new(), types));
        }
        let mut fits = fits_of(trace, &types, fit);
        let scripts = scripts_of(trace, &types, &fits);
        report.covered = types.iter().map(|of| of.logged).sum();
        let frame = Frame {
            name: options.name.clone(),
            summary: format!("imported from {}", name_of(source)),
            header: header(trace, &fits, source, report, options),
            theta,
        };
        let text = file_of(trace, &mut fits, &frame, &scripts);
        let Err(whole) = WorkloadFile::read("the file", &text) else { return Ok((text, types)) };
        let is_good = |script: &Script| {
            let mut fits = Fits { of: Vec::new(), rounds: Vec::new(), ..fits.clone() };
            let frame = Frame { header: Vec::new(), ..frame.clone() };
            WorkloadFile::read("x", &file_of(trace, &mut fits, &frame, std::slice::from_ref(script)))
        };
        let before = types.len();
        let mut good = Vec::new();
        for (of, script) in types.into_iter().zip(&scripts) {
            match is_good(script) {
                Ok(_) => good.push(of),
                Err(why) => report.refused.push((of.logged, why.trim_start_matches("x: ").to_owned())),
            }
        }
        if good.len() == before {
            return Err(format!("the workload file would not be valid: {whole}"));
        }
        types = good;
    }
}

/// What the file leaves out.
#[derive(Clone, Debug, Default)]
struct Report {
    /// Statements in the file.
    covered: u64,
    /// Statements of types beyond the most frequent ones.
    beyond: u64,
    /// Statements of types that the compiler refuses, with its message.
    refused: Vec<(u64, String)>,
}

impl Report {
    fn uncovered(&self, trace: &Trace) -> f64 {
        match trace.counts.statements {
            0 => 0.0,
            all => 1.0 - self.covered as f64 / all as f64,
        }
    }

    /// Returns the statements that can't be taken, each with its share and the reason.
    fn listed(&self, trace: &Trace) -> Vec<String> {
        let all = trace.counts.statements.max(1) as f64;
        let mut refused: Vec<(u64, String)> = Vec::new();
        for template in &trace.templates {
            if let (Meaning::Refused(why), 1..) = (&template.meaning, template.statements) {
                refused.push((template.statements, format!("line {}: {}: {why}", template.line, cut(&template.text))));
            }
        }
        for (count, why) in &self.refused {
            refused.push((*count, format!("a type of transactions: {why}")));
        }
        if self.beyond > 0 {
            refused.push((self.beyond, format!("transactions beyond the {TYPES_MAX} most frequent types")));
        }
        refused.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let more = refused.len().saturating_sub(LISTED);
        let shown = refused.iter().take(LISTED);
        let mut lines: Vec<String> =
            shown.map(|(count, why)| format!("{}: {why}", percent(*count as f64 / all))).collect();
        if more > 0 {
            lines.push(format!("and {}", counted(more, "other")));
        }
        lines
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn name_of(source: &TraceSource) -> &'static str {
    match source {
        TraceSource::PgLog { .. } => "a log of PostgreSQL",
        TraceSource::Accesses { .. } => "a list of accesses",
        TraceSource::PgStatStatements { .. } => "pg_stat_statements",
    }
}

/// Returns the lines above the file.
fn header(trace: &Trace, fits: &Fits, source: &TraceSource, report: &Report, options: &ImportOptions) -> Vec<String> {
    let counts = &trace.counts;
    let mut lines = vec![
        format!("Imported from {} by contend workload import.", name_of(source)),
        format!(
            "{} with {}; the file covers {} of the statements.",
            counted(counts.transactions, "transaction"),
            counted(counts.statements, "statement"),
            percent(1.0 - report.uncovered(trace))
        ),
    ];
    lines.push(if options.values {
        "Keys are ranks: 0 is the first key of the loaded rows. Other numbers are those of the trace.".into()
    } else {
        "Keys and other numbers are ranks: no value of the trace is here.".into()
    });
    if matches!(source, TraceSource::PgStatStatements { .. }) {
        lines.push("The source has no transactions and no keys: each statement is a transaction, and the".into());
        lines.push("skew of the keys is unknown. Set the parameter theta before you trust a figure.".into());
    } else {
        lines.push("KS is the Kolmogorov-Smirnov distance between the trace and draws of the fit, over keys".into());
        lines.push("in the order of their frequency.".into());
    }
    for (count, what, rest) in [
        (counts.sessions, "session", ""),
        (counts.without_begin, "transaction", " left out: the beginning is not in the trace"),
        (counts.without_end, "transaction", " left out: the end is not in the trace"),
        (counts.failed, "transaction", " left out: ended with an error"),
        (counts.undone, "statement", " left out: undone by a return to a savepoint"),
        (counts.ignored, "statement", " without a table of the schema"),
    ] {
        if count > 0 {
            lines.push(format!("{}{rest}", counted(count, what)));
        }
    }
    lines.extend(arrivals(trace));
    lines.extend(thinks(trace));
    let listed = report.listed(trace);
    if !listed.is_empty() {
        lines.push("Not taken:".into());
        lines.extend(listed.iter().map(|line| format!("  {line}")));
    }
    lines.extend(fits.notes.iter().cloned());
    lines.extend(trace.schema.notes.iter().cloned());
    lines
}

/// Describes how many transactions began in each second.
fn arrivals(trace: &Trace) -> Option<String> {
    let (first, last) = (trace.arrivals.keys().min()?, trace.arrivals.keys().max()?);
    let seconds = (last - first) as f64 + 1.0;
    let sum: u64 = trace.arrivals.values().sum();
    let most = trace.arrivals.values().max()?;
    let least = if trace.arrivals.len() as f64 == seconds { *trace.arrivals.values().min()? } else { 0 };
    Some(format!(
        "Transactions that began in a second: mean {:.1}, least {least}, most {most}, over {}.",
        sum as f64 / seconds,
        counted(seconds, "second")
    ))
}

/// Describes the times between two transactions of a session.
fn thinks(trace: &Trace) -> Option<String> {
    let mut sorted = trace.thinks.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| sorted.get(((sorted.len() - 1) as f64 * part) as usize).map(|seconds| seconds * 1e3);
    if sorted.is_empty() {
        return None;
    }
    let mean = sorted.iter().sum::<f64>() * 1e3 / sorted.len() as f64;
    Some(format!(
        "Time between two transactions of a session: mean {mean:.3} ms, median {:.3} ms, 90 % below {:.3} ms. The key think of a transaction would let clients wait.",
        at(0.5)?,
        at(0.9)?
    ))
}
