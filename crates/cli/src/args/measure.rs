//! The flags of `run` and `compare`.

use std::path::PathBuf;

use clap::Args;
use contend_runner::RunConfig;
use contend_runner::config::{ALL, WINDOWS_PRECISE};

use super::arrivals::ArrivalArgs;
use super::setup::SetupArgs;
use super::values::{names, precision, whole};
use crate::UserError;
use crate::files::read_result;

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    setup: SetupArgs,
    /// Length of a measuring window, in seconds [default: 0.1; simulated: 0.0001]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// The most measuring windows of each protocol; a comparison ends earlier once every entry is
    /// told apart from the first, or as precise as --precision asks [default: 40; with --precision
    /// 400; simulated: 20]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    windows: Option<usize>,
    /// Unmeasured time before a protocol's first window, in seconds; a twenty-fifth of it before
    /// each further one [default: 0.5; simulated: 0.0005, once]
    #[arg(long, value_name = "S")]
    warmup: Option<f64>,
    #[command(flatten)]
    pub(crate) open_loop: ArrivalArgs,
    /// Show where the time went: sampled from the threads; on a simulated chip it is exact, and
    /// always shown
    #[arg(long)]
    breakdown: bool,
    /// Also say how near each entry comes to what this machine's memory allows for the lines that
    /// its transactions touch; loads the tables of each once more, to count the lines
    #[arg(long)]
    limit: bool,
    /// Run the configuration of a result file again; other flags override it
    #[arg(long, value_name = "RESULT.json")]
    from: Option<PathBuf>,
    /// Write the result to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the figures to this file as comma-separated values, an entry a line, or to stdout (-);
    /// the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the distribution of each entry's latencies to this folder, as ENTRY.hgrm: text that
    /// HdrHistogram's tools plot. Or write the latencies of each window and type of transaction to
    /// this file, NAME.hlog: an interval log, with the tags ENTRY/TYPE and ENTRY/TYPE/response
    #[arg(long, value_name = "DIR|FILE.hlog")]
    pub(crate) hdr: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Protocols, separated by commas, or `all`; each may set options for itself only, as in
    /// silo,silo+cu=on+ts=on or, short, silo,silo+cu+ts [default: all]
    #[arg(long, visible_alias = "protocol", value_name = "A,B,...", value_delimiter = ',')]
    protocols: Vec<String>,
    /// Measure at once, without proving the protocols right first
    #[arg(long)]
    no_verify: bool,
    /// Measure until the ratio of each entry to the first one and to none is known to this
    /// precision, as in 3%; without the flag, until every entry is told apart from the first
    #[arg(long, value_name = "P%", value_parser = precision, allow_hyphen_values = true)]
    precision: Option<f64>,
    /// The folder for report.html and results.json [default: a new folder
    /// contend-results/TIME-WORKLOAD; the link contend-results/latest leads to it]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the files in the folder of --out
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// The protocol, see `contend list protocols`; it may have options of its own, as in silo+cu+ts
    /// [default: silo]
    #[arg(long, visible_alias = "protocols", value_name = "P")]
    protocol: Option<String>,
    /// Prove the protocol right on this workload first
    #[arg(long)]
    verify: bool,
    /// The folder of the log, with --set log=epoch [default: one that is removed after the run]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Record what each transaction reads and writes, judge the history, and write it as JSON lines
    /// to this file or to stdout (-); the run ends after 200,000 transactions
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

impl MeasureArgs {
    /// Returns the configuration that the flags ask for, without the protocols.
    fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = match &self.from {
            None => RunConfig::default(),
            Some(path) => {
                read_result(path).map_err(|error| UserError::refused(format!("--from {}", error.message)))?.config
            }
        };
        self.setup.apply(&mut config)?;
        config.breakdown |= self.breakdown;
        config.memory_limit |= self.limit;
        config.window_seconds = self.seconds.unwrap_or(config.window_seconds);
        config.windows = self.windows.unwrap_or(config.windows);
        config.warmup_seconds = self.warmup.unwrap_or(config.warmup_seconds);
        self.open_loop.apply(&mut config, self.windows, self.seconds.is_some())?;
        Ok(config)
    }
}

impl CompareArgs {
    /// Returns the configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        if !self.protocols.is_empty() {
            config.protocols = names(&self.protocols);
        }
        config.verify &= !self.no_verify;
        if let Some(precision) = self.precision {
            config.precision = Some(precision);
            config.windows = self.measure.windows.unwrap_or(WINDOWS_PRECISE);
        }
        Ok(config)
    }
}

impl RunArgs {
    /// Returns the configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        match &self.protocol {
            Some(protocol) if protocol.contains(',') || protocol.trim() == ALL => {
                return Err(UserError::refused(format!(
                    "run takes one protocol, not '{protocol}'; contend compare takes several"
                )));
            }
            Some(protocol) => config.protocols = vec![protocol.clone()],
            None if self.measure.from.is_none() => config.protocols = vec!["silo".into()],
            None if config.protocols.len() == 1 => {}
            None => {
                let protocols = config.protocols.join(", ");
                return Err(UserError::refused(format!(
                    "the result file compares {protocols}: choose one by --protocol"
                )));
            }
        }
        // A single entry has no ratio to be precise about.
        config.precision = None;
        config.dir = self.dir.clone().or(config.dir);
        config.verify = self.verify || self.measure.from.is_some() && config.verify;
        Ok(config)
    }
}
