//! The arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use contend_lab::{ResultFile, RunConfig};

use crate::UserError;

/// Which concurrency-control protocol suits a workload on this machine, and is the answer right?
///
/// `contend compare` answers it; `contend list` says what can be chosen.
///
/// Exit status: 0 all is well, 1 a check failed (an anomaly, an invariant), 2 bad input, 130 stopped by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "contend", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare protocols on a workload: prove each right, measure them in turns, rank them.
    Compare(CompareArgs),
    /// Run one protocol on a workload.
    Run(RunArgs),
    /// List protocols, workloads, options and indexes.
    List(ListArgs),
    /// Judge a history: is it serializable, and if not, why?
    Check(CheckArgs),
    /// Measure what this machine can do at best.
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// A workload or preset, see `contend list workloads` [default: ycsb-a]
    pub(crate) workload: Option<String>,
    /// The machine: native, or a chip that is simulated, CHIP or CHIP:CORES, see `contend list machines`; all times are then the
    /// chip's own [default: native]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Worker threads, 1 to 1000 [default: the cores of the machine]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Length of a measuring window, in seconds [default: 1; simulated: 0.0002]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Measuring windows of each protocol; figures are their median, least and greatest [default: 5]
    #[arg(long, value_name = "N")]
    windows: Option<usize>,
    /// Unmeasured time before a protocol's first window, in seconds; a tenth of it before each further one [default: 0.5;
    /// simulated: 0.0002, once]
    #[arg(long, value_name = "S")]
    warmup: Option<f64>,
    /// The index: hash (points) or ordered (points and ranges) [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Say where the time went: by sampling what the threads do; on a simulated chip exactly, and always
    #[arg(long)]
    breakdown: bool,
    /// Seed of all random choices [default: 42]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run the configuration of a result file again; other flags override it
    #[arg(long, value_name = "RESULT.json")]
    from: Option<PathBuf>,
    /// Write the result to this file as JSON, or to stdout (-), the table then going to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Protocols, separated by commas, or `all`; each may set options for itself only, as in silo,silo+cu=on+ts=on or, short,
    /// silo,silo+cu+ts [default: all]
    #[arg(long, value_name = "A,B,...", value_delimiter = ',')]
    protocols: Vec<String>,
    /// Measure at once, without proving the protocols right first
    #[arg(long)]
    no_verify: bool,
    /// The folder that report.html and results.json go to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// The protocol, see `contend list protocols` [default: silo]
    #[arg(long, value_name = "P")]
    protocol: Option<String>,
    /// Prove the protocol right on this workload first
    #[arg(long)]
    verify: bool,
    /// Record who read and wrote what, judge it, and write it to this file as JSON lines; the run ends after 200,000 transactions
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What to list [default: all of it]
    pub(crate) what: Option<What>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    Protocols,
    Workloads,
    Options,
    Indexes,
    Machines,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A history: JSON lines, one committed transaction a line; - is stdin
    pub(crate) history: PathBuf,
    /// The level to judge by: none, read-uncommitted, read-committed, snapshot, serializable
    #[arg(long, value_name = "LEVEL", default_value = "serializable")]
    pub(crate) isolation: String,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Random cache-line reads a second and thread, and atomic increments of one line by 1 to N threads
    Limit(LimitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Threads, 1 to 1000 [default: the cores of this machine]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Rounds; figures are their median, least and greatest
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Length of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub(crate) seconds: f64,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl MeasureArgs {
    /// The configuration that the flags ask for, protocols apart.
    fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = match &self.from {
            None => RunConfig::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| UserError(format!("--from {}: {error}", path.display())))?;
                let file = ResultFile::from_json(&text)
                    .map_err(|error| UserError(format!("--from {}: {error}", path.display())))?;
                file.config
            }
        };
        if let Some(workload) = &self.workload {
            config.workload.clone_from(workload);
            // A recorded index was settled for the recorded workload.
            config.index = None;
        }
        if let Some(machine) = &self.machine {
            config = config.on(machine)?;
        }
        config.threads = self.threads.unwrap_or(config.threads);
        config.breakdown |= self.breakdown;
        config.window_seconds = self.seconds.unwrap_or(config.window_seconds);
        config.windows = self.windows.unwrap_or(config.windows);
        config.warmup_seconds = self.warmup.unwrap_or(config.warmup_seconds);
        config.index = self.index.clone().or(config.index);
        config.seed = self.seed.unwrap_or(config.seed);
        for setting in &self.settings {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(UserError(format!("--set takes NAME=VALUE, not '{setting}'")));
            };
            config.settings.insert(name.trim().into(), value.trim().into());
        }
        Ok(config)
    }
}

impl CompareArgs {
    /// The configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        if !self.protocols.is_empty() {
            config.protocols = match &self.protocols[..] {
                [all] if all == "all" => RunConfig::default().protocols,
                chosen => chosen.iter().map(|name| name.trim().to_string()).collect(),
            };
        }
        config.verify &= !self.no_verify;
        Ok(config)
    }
}

impl RunArgs {
    /// The configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        match &self.protocol {
            Some(protocol) => config.protocols = vec![protocol.clone()],
            None if self.measure.from.is_none() => config.protocols = vec!["silo".into()],
            None if config.protocols.len() == 1 => {}
            None => {
                let protocols = config.protocols.join(", ");
                return Err(UserError(format!("the result file compares {protocols}: choose one by --protocol")));
            }
        }
        config.verify = self.verify || self.measure.from.is_some() && config.verify;
        Ok(config)
    }
}
