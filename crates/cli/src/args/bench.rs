//! The flags of `contend bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use contend_runner::RunConfig;

use super::values::{add_settings, names, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Random reads of cache lines per second and thread, and atomic increments of one line by 1 to
    /// N threads; with a workload, how near protocols come to that
    Limit(LimitArgs),
    /// Timestamps per second from each source, by 1, 4, 16, ... threads that do nothing else
    Timestamps(MicroArgs),
    /// Atomic additions per second to one counter, by 1, 2, 4, ... threads that do nothing else
    Increments(MicroArgs),
    /// Transfers of a cache line per second: between two threads, between the threads of each of
    /// two pairs, ...
    Transfers(MicroArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MicroArgs {
    /// The machine: native, or a simulated chip, see `contend list machines`
    #[arg(long, value_name = "MACHINE", default_value = "native")]
    machine: String,
    /// The most threads [default: those of the machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    threads: Option<usize>,
    /// Length of a window, in seconds [default: 0.3; simulated: 0.0002]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Windows
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>)]
    windows: usize,
    /// Set an option; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl MicroArgs {
    /// Returns the configuration of the run with the most threads.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = RunConfig::default().on(&self.machine)?;
        if config.chip.is_none() {
            (config.window_seconds, config.warmup_seconds) = (0.3, 0.1);
        }
        config.threads = self.threads.unwrap_or(config.threads);
        config.window_seconds = self.seconds.unwrap_or(config.window_seconds);
        config.windows = self.windows;
        add_settings(&mut config, &self.settings)?;
        config.check_numbers()?;
        Ok(config)
    }
}

#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// A workload or preset: also say how near protocols come to the limit of the memory
    pub(crate) workload: Option<String>,
    /// The protocols, separated by commas; each may set options, as in silo+interleave=8
    #[arg(
        long,
        visible_alias = "protocol",
        value_name = "A,B,...",
        value_delimiter = ',',
        default_value = "silo",
        requires = "workload"
    )]
    pub(crate) protocols: Vec<String>,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX", requires = "workload")]
    pub(crate) index: Option<String>,
    /// Set an option of the workload or of all protocols; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "workload")]
    pub(crate) settings: Vec<String>,
    /// Threads, 1 to 1000 [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) threads: Option<usize>,
    /// Rounds; each figure is shown as their median, minimum and maximum
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<usize>)]
    pub(crate) rounds: usize,
    /// Length of one measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub(crate) seconds: f64,
    /// Write a chip like this machine to this file, for --machine FILE.toml
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) chip: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl LimitArgs {
    /// Returns the configuration of the workload that is compared with the limit, if one is.
    pub(crate) fn config(&self, threads: usize) -> Result<Option<RunConfig>, UserError> {
        let Some(workload) = &self.workload else { return Ok(None) };
        let mut config = RunConfig {
            workload: workload.clone(),
            protocols: names(&self.protocols),
            index: self.index.clone(),
            threads,
            windows: self.rounds,
            window_seconds: self.seconds,
            verify: false,
            memory_limit: true,
            ..RunConfig::default()
        };
        add_settings(&mut config, &self.settings)?;
        Ok(Some(config))
    }
}
