//! The flags of `workload`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use contend_import::{ImportOptions, ROW_BYTES, TraceSource};
use contend_runner::RunConfig;

use super::scripts::ScriptArgs;
use super::values::{add_settings, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    #[command(subcommand)]
    pub(crate) command: WorkloadCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Read a workload file, and describe its tables and transactions
    Check {
        /// The file, or a pgbench script; docs/workload_file.md is the language's reference
        #[arg(value_name = "FILE.toml|FILE.sql", required_unless_present = "scripts")]
        workload: Option<String>,
        #[command(flatten)]
        scripts: ScriptArgs,
        /// Set a parameter of the file, as NAME.PARAMETER=VALUE; may be repeated
        #[arg(long = "set", value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
    /// Write a workload file from a trace, to stdout
    ///
    /// The file has a transaction for each path through the statements of the trace. A comment
    /// beside each parameter says how it is drawn, and how well that fits. Keys and other values
    /// are ranks: no value of the trace is written. docs/import.md explains the file.
    Import {
        #[command(subcommand)]
        source: ImportCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// A log of PostgreSQL: jsonlog or csvlog, with all statements
    ///
    /// The server has log_destination jsonlog or csvlog, log_statement = all or
    /// log_min_duration_statement = 0, and lc_messages = C.
    PgLog {
        /// The log
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The tables in SQL, such as `pg_dump --schema-only` prints
        #[arg(long, value_name = "FILE.sql")]
        schema: PathBuf,
        #[command(flatten)]
        options: TraceArgs,
    },
    /// A list of accesses in CSV: time,session,txn,op,table,key, and key2 for a scan
    ///
    /// An op is r (read), w (write), u (read and write), i (insert), d (delete) or s (scan from key
    /// to key2).
    Accesses {
        /// The list
        #[arg(value_name = "FILE.csv")]
        file: PathBuf,
        /// The bytes of each row
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = row_bytes)]
        row_bytes: u32,
        #[command(flatten)]
        options: TraceArgs,
    },
    /// The counts of pg_stat_statements in CSV: query,calls,rows
    ///
    /// Each statement is a transaction of its own. The skew of the keys is unknown, so that it is a
    /// parameter of the file.
    PgStatStatements {
        /// The counts
        #[arg(value_name = "FILE.csv")]
        file: PathBuf,
        /// The tables in SQL, such as `pg_dump --schema-only` prints
        #[arg(long, value_name = "FILE.sql")]
        schema: PathBuf,
        /// The skew of the keys, from 0 (uniform), below 1
        #[arg(long, value_name = "SKEW", default_value_t = 0.0, value_parser = skew)]
        theta: f64,
        #[command(flatten)]
        options: TraceArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The name of the workload
    #[arg(long, value_name = "NAME", default_value = "imported", value_parser = name)]
    pub(crate) name: String,
    /// The share of the statements that the file may leave out, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    pub(crate) allow_uncovered: f64,
    /// Write the values of columns outside of keys, and not their ranks
    #[arg(long)]
    pub(crate) values: bool,
    /// The rows of a table, if the trace says too little; may be repeated
    #[arg(long = "rows", value_name = "TABLE=N", value_parser = rows)]
    pub(crate) rows: Vec<(String, u64)>,
}

fn row_bytes(text: &str) -> Result<u32, String> {
    let bytes = whole::<u32>(text).ok().filter(|bytes| ROW_BYTES.contains(bytes));
    bytes.ok_or_else(|| format!("valid: {} to {} bytes", ROW_BYTES.start(), ROW_BYTES.end()))
}

fn skew(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|theta| (0.0..1.0).contains(theta)).ok_or_else(|| "valid: from 0, below 1".into())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "valid: from 0 to 1, as in 0.05".into())
}

fn name(text: &str) -> Result<String, String> {
    let rest = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let is_name = text.len() <= 40 && text.starts_with(|first: char| first.is_ascii_alphabetic());
    let message = || "valid: a letter, then letters, digits, _ and -, 40 in all".to_owned();
    (is_name && text.chars().all(rest)).then(|| text.to_owned()).ok_or_else(message)
}

pub(super) fn rows(text: &str) -> Result<(String, u64), String> {
    const ROWS_MAX: u64 = 1_000_000_000;
    let (table, count) = text.rsplit_once('=').ok_or_else(|| "valid: TABLE=N".to_owned())?;
    let count = whole::<u64>(count)?;
    if !(1..=ROWS_MAX).contains(&count) {
        return Err(format!("valid: 1 to {ROWS_MAX} rows"));
    }
    Ok((table.to_owned(), count))
}

impl TraceArgs {
    /// Returns the options of an import.
    fn options(&self) -> Result<ImportOptions, UserError> {
        let mut rows = BTreeMap::new();
        for (table, count) in &self.rows {
            if rows.insert(table.clone(), *count).is_some() {
                return Err(UserError::refused(format!("--rows gives {table} twice; valid: once for each table")));
            }
        }
        let (name, allow_uncovered) = (self.name.clone(), self.allow_uncovered);
        Ok(ImportOptions { name, allow_uncovered, values: self.values, rows })
    }
}

impl ImportCommand {
    /// Returns the file, its kind, and the options of the import.
    ///
    /// # Errors
    /// A table has two numbers of rows.
    pub(crate) fn parts(&self) -> Result<(&PathBuf, TraceSource, ImportOptions), UserError> {
        Ok(match self {
            ImportCommand::PgLog { file, schema, options } => {
                (file, TraceSource::PgLog { schema: schema.clone() }, options.options()?)
            }
            ImportCommand::Accesses { file, row_bytes, options } => {
                (file, TraceSource::Accesses { row_bytes: *row_bytes }, options.options()?)
            }
            ImportCommand::PgStatStatements { file, schema, theta, options } => {
                let source = TraceSource::PgStatStatements { schema: schema.clone(), theta: *theta };
                (file, source, options.options()?)
            }
        })
    }
}

/// Returns the configuration of a run of a workload file.
///
/// # Errors
/// A setting has no value, or two.
pub(crate) fn config_of(file: &str, scripts: &ScriptArgs, settings: &[String]) -> Result<RunConfig, UserError> {
    let (workload, workload_text) = match scripts.workload(Some(file).filter(|file| !file.is_empty()))? {
        Some((name, text)) => (name, Some(text)),
        None => (file.into(), None),
    };
    let protocols = vec!["silo".into()];
    let mut config = RunConfig { workload, workload_text, protocols, ..RunConfig::default() };
    add_settings(&mut config, settings)?;
    Ok(config)
}
