//! The flags that say what runs where: workload, machine, threads, index, options, seed.

use clap::Args;
use contend_runner::RunConfig;

use super::scripts::ScriptArgs;
use super::values::{add_settings, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// A workload or preset, see `contend list workloads`, or the path of a workload file, or of a
    /// pgbench script with --schema [default: ycsb-a]
    workload: Option<String>,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// The machine: native, or a simulated chip, CHIP or CHIP:CORES, see `contend list machines`;
    /// on a chip all times are simulated time [default: native]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Worker threads, 1 to 1000, or as many clients; on a simulated chip each has a core [default:
    /// the cores of the machine]
    #[arg(long, visible_alias = "clients", value_name = "N", value_parser = whole::<usize>)]
    threads: Option<usize>,
    /// Committed transactions of the run that proves a protocol right [default: 20000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    verify_transactions: Option<u64>,
    /// The index: hash (points) or ordered (points and ranges) [default: hash, unless the workload
    /// scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Seed of all random choices [default: 42]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
}

impl SetupArgs {
    /// Returns the number of threads, if it was given.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// Puts the flags into a configuration.
    ///
    /// # Errors
    /// There is no such machine, or a setting is no setting.
    pub(crate) fn apply(&self, config: &mut RunConfig) -> Result<(), UserError> {
        if let Some(workload) = &self.workload {
            config.workload.clone_from(workload);
            // What was recorded belongs to the recorded workload.
            config.index = None;
            config.workload_text = None;
        }
        if let Some((name, text)) = self.scripts.workload(self.workload.as_deref())? {
            (config.workload, config.workload_text, config.index) = (name, Some(text), None);
        }
        if let Some(machine) = &self.machine {
            *config = config.clone().on(machine)?;
        }
        config.threads = self.threads.unwrap_or(config.threads);
        config.verify_transactions = self.verify_transactions.unwrap_or(config.verify_transactions);
        config.index = self.index.clone().or_else(|| config.index.take());
        config.seed = self.seed.unwrap_or(config.seed);
        add_settings(config, &self.settings)
    }
}
