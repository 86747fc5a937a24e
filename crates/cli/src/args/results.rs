//! The flags of the verbs that read results, experiments, histories and logs, and that list what
//! there is to choose.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use contend_runner::RunConfig;

use super::scripts::ScriptArgs;
use super::values::{add_settings, slowdown, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The first result: a file, or the folder of a run
    pub(crate) first: PathBuf,
    /// The second result, which is faster or slower than the first
    pub(crate) second: PathBuf,
    /// Exit with status 1 if an entry is told to be slower by more than this, or can't be compared:
    /// it has too few windows, no figures, or is only in the first result
    #[arg(long, value_name = "PERCENT", value_parser = slowdown)]
    pub(crate) fail_if_slower: Option<f64>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The result: a file, or the folder of a run
    pub(crate) result: PathBuf,
    /// The page, or - for stdout [default: report.html beside the result]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the page
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The verb [default: the page of contend itself]
    pub(crate) verb: Option<String>,
    /// Write the pages of contend and of all verbs to this folder
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AnalyseArgs {
    /// Applications: TOML files that declare tables and transactions, workload files, pgbench
    /// scripts, or workloads that declare their pieces
    #[arg(required_unless_present = "scripts", value_name = "FILE.toml|FILE.sql|WORKLOAD")]
    workload: Vec<PathBuf>,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// Set an option of a workload, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Whether each group of columns conflicts by itself; off: a row is one cell
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) ts: OnOff,
    /// Whether updates that commute are applied at the commit; off: each is a write
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) cu: OnOff,
    /// Whether read-only transactions run on snapshots; off: they conflict like all others
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) snapshots: OnOff,
    /// The form of the result
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) format: AnalysisForm,
    /// Instead of an analysis: run N transactions of each type of a workload on a small population,
    /// propose declarations in Rust, and say what is declared and was never used
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) learn: Option<u64>,
}

impl AnalyseArgs {
    /// Returns the applications: names or files, those that are scripts with the text of a workload
    /// file.
    ///
    /// # Errors
    /// A script can't be read, or has no schema.
    pub(crate) fn applications(&self) -> Result<Vec<(PathBuf, Option<String>)>, UserError> {
        let names = self.workload.iter().map(|path| path.to_str().map(String::from));
        // Only a name of Unicode is that of a script.
        match names.collect::<Option<Vec<String>>>() {
            Some(names) => {
                let all = self.scripts.workloads(names)?;
                Ok(all.into_iter().map(|(name, text)| (name.into(), text)).collect())
            }
            None => Ok(self.workload.iter().map(|path| (path.clone(), None)).collect()),
        }
    }

    /// Returns the configuration of a workload of this name, with its text if it is of scripts.
    ///
    /// # Errors
    /// A setting has no value, or two.
    pub(crate) fn config(&self, workload: &str, text: Option<String>) -> Result<RunConfig, UserError> {
        let mut config = RunConfig { workload: workload.into(), workload_text: text, ..RunConfig::default() };
        add_settings(&mut config, &self.settings)?;
        Ok(config)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// Yes
    On,
    /// No
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnalysisForm {
    /// Words, for people
    Text,
    /// Everything, for programs
    Json,
    /// The counts of each application, an application a line
    Csv,
    /// Graphs, for Graphviz: `| dot -Tsvg`
    Dot,
    /// A picture of one application
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What to list [default: all of it]
    pub(crate) what: Option<What>,
    /// Only the options that this protocol takes
    #[arg(long, value_name = "P")]
    pub(crate) protocol: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Protocols, with their former names
    Protocols,
    /// Workloads and presets
    Workloads,
    /// Options, with their short and former names
    Options,
    /// Indexes
    Indexes,
    /// Machines and simulated chips
    Machines,
}

/// The part of `contend check --help` about the formats. docs/history.md has all of it.
const HISTORY_HELP: &str = r#"A line of a history (--format contend) is a committed transaction, with the versions that it saw:

  {"txn":7,"worker":0,"ops":[{"op":"read","table":"t","key":"x","version":3},
                             {"op":"write","table":"t","key":"x","version":7,"over":3},
                             {"op":"scan","table":"t","low":"a","high":"k","seen":[["b",3]]}]}

  (on one line). A version is the number of the transaction that wrote it; 0 is a loaded row, null is
  no row. `over` is the version that a write replaced, null for an insert; `"delete":true` is a
  delete. The bounds of a scan are inclusive; null is no bound.

An operation of a history of Elle is a map:

  {:type :ok, :process 0, :f :txn, :value [[:append x 1] [:r y [1 2]]]}      elle-append
  {"type":"ok","process":0,"f":"txn","value":[["w","x",1],["r","y",2]]}      elle-register

  Its versions are inferred from the values: each value is written once. An anomaly that is found is
  real. Finding none is no proof: the order of appends that no transaction read is unknown, and so is
  the order of most writes of registers.

Exit status: 0, the level is kept; 1, it is not; 2, the file can't be read as a history.
docs/history.md explains all fields and the conclusions that they allow."#;

#[derive(Debug, Args)]
#[command(after_long_help = HISTORY_HELP)]
pub(crate) struct CheckArgs {
    /// A history; - is stdin
    pub(crate) history: PathBuf,
    /// Its format: contend (JSON lines, one committed transaction a line), elle-append or
    /// elle-register (list-append and rw-register histories of Jepsen and elle-cli, as EDN or JSON)
    #[arg(long, value_name = "FORMAT", default_value = "contend")]
    pub(crate) format: String,
    /// The level to judge by: none, read-uncommitted, read-committed, monotonic-atomic-view,
    /// snapshot, serializable
    #[arg(long, value_name = "LEVEL", default_value = "serializable")]
    pub(crate) isolation: String,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The folder of the database
    pub(crate) dir: PathBuf,
    /// Only check that the durable transactions can be read; change nothing
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) log: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the contents of a log: tables, files, and every write that counts
    Dump(DumpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The folder of the database
    pub(crate) dir: PathBuf,
    /// The most writes that are printed [default: all]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) limit: Option<u64>,
}
