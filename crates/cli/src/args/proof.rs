//! The flags of the verbs that prove: `explore`, `determinism`, `crash-test`, `kill-test` and
//! `soak`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use contend_proof::crash::CrashConfig;
use contend_proof::determinism::DeterminismConfig;
use contend_proof::explore::ExploreConfig;
use contend_proof::kill::{KillConfig, Scale};
use contend_runner::RunConfig;
use contend_runner::config::index_kind;
use contend_runner::units::parse_time;

use super::scripts::ScriptArgs;
use super::values::{add_settings, chosen_twice, names, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct ExploreArgs {
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in
    /// silo,silo+cu+ts
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// Workloads, separated by commas; `litmus` stands for all litmus tests; see `contend list
    /// workloads`
    #[arg(long, visible_alias = "workloads", value_name = "W", value_delimiter = ',', default_value = "litmus")]
    workload: Vec<String>,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// The most executions of each protocol on each workload [default: 10000; with --budget no
    /// limit]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    schedules: Option<u64>,
    /// The time for all explorations together, which share it evenly: seconds, or with a unit as in
    /// 60s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) budget: Option<Duration>,
    /// How the next core is chosen: random, pct:DEPTH, or exhaustive:PREEMPTIONS
    #[arg(long, value_name = "S", default_value = "random")]
    strategy: String,
    /// Transactions of each core [default: what the litmus test is made for, or 2]
    #[arg(long, value_name = "T", value_parser = whole::<u64>)]
    transactions: Option<u64>,
    /// Cores, 1 to 64 [default: what the litmus test is made for, or 3]
    #[arg(long, value_name = "C", value_parser = whole::<usize>)]
    cores: Option<usize>,
    /// Seed of the choices and of the workload; each execution has the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// Follow this schedule, once: a list of cores and their numbers of steps, as in 0x5,1x3,0
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["schedules", "budget", "strategy"])]
    replay: Option<String>,
    /// Show an interleaving of each protocol on each workload step by step, even if nothing is
    /// wrong. Without the flag, wrong interleavings are shown; if a single protocol runs on a
    /// single workload, also one with an anomaly that the protocol's promise allows
    #[arg(long)]
    pub(crate) show: bool,
    /// Show each step of a long interleaving. Without the flag, those are shown that are at the
    /// rows of the anomaly (without one: at rows which several cores use and one changes), and
    /// those at switches between cores
    #[arg(long)]
    pub(crate) all_steps: bool,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Write the results to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DeterminismArgs {
    /// Protocols, separated by commas, or `all` for the deterministic ones; each may have options
    /// of its own, as in aria,aria+aria.reordering=off
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// Workloads, separated by commas, see `contend list workloads`
    #[arg(
        long,
        visible_alias = "workloads",
        value_name = "W",
        value_delimiter = ',',
        default_value = "bank,smallbank,ycsb-a,tatp,tpcc,litmus-random"
    )]
    workload: Vec<String>,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// Clients, 1 to 32; each brings a transaction to each batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<usize>)]
    clients: usize,
    /// Transactions of each client
    #[arg(long, value_name = "T", default_value_t = 200, value_parser = whole::<u64>)]
    transactions: u64,
    /// Runs with each number of threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u64>)]
    repeats: u64,
    /// Interleavings of a shorter input, for each of two strategies
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<u64>)]
    schedules: u64,
    /// Seed of the input
    #[arg(long, value_name = "N", default_value_t = 42, value_parser = whole::<u64>)]
    seed: u64,
    /// The simulated chip, see `contend list machines`
    #[arg(long, value_name = "CHIP", default_value = "abyss")]
    machine: String,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Write the results to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CrashTestArgs {
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in
    /// silo,silo+log=elr
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// Workloads, separated by commas, see `contend list workloads`
    #[arg(
        long,
        visible_alias = "workloads",
        value_name = "W",
        value_delimiter = ',',
        default_value = "ycsb-a,tatp,litmus-births"
    )]
    workload: Vec<String>,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// Tests of each protocol on each workload with each commit protocol
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<u64>)]
    seeds: u64,
    /// The first seed, of the interleaving, the workload and the disk's failures; each test has the
    /// next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// Crashes in a test, 1 to 100; after each the test goes on with the recovered database
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u64>)]
    crashes: u64,
    /// Transactions of each core between two crashes
    #[arg(long, value_name = "T", default_value_t = 8, value_parser = whole::<u64>)]
    transactions: u64,
    /// Cores, 1 to 16, besides one that flushes epochs and takes checkpoints
    #[arg(long, value_name = "C", default_value_t = 3, value_parser = whole::<usize>)]
    cores: usize,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Write the results to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct KillTestArgs {
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in
    /// silo,silo+cu=on
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// When transactions are durable, separated by commas: epoch, early, conservative
    #[arg(long, value_name = "D", value_delimiter = ',', default_value = "epoch,early,conservative")]
    durability: Vec<String>,
    /// Processes that are killed, for each protocol with each durability
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u64>)]
    kills: u64,
    /// Let all protocols and durabilities take turns in one folder
    #[arg(long)]
    pub(crate) mixed: bool,
    /// Keys of the rows that come and go, 2 to 1000000
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = whole::<u64>)]
    keys: u64,
    /// Threads of a process, 1 to 256
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u64>)]
    threads: u64,
    /// The longest life of a process after its first acknowledgement, in milliseconds, 1 to 60000
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = whole::<u64>)]
    life_ms: u64,
    /// Seed of the transactions and of the times at which processes are killed; the interleaving of
    /// the threads does not follow from it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// The index: hash or ordered
    #[arg(long, value_name = "INDEX", default_value = "ordered")]
    index: String,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// The folder for the databases; a broken database stays there [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write the results to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct KillChildArgs {
    /// A life, as JSON
    pub(crate) life: String,
}

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in
    /// msto,msto+cu=on
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// A workload or preset, see `contend list workloads`; a litmus test has 1000 keys here, unless
    /// --set litmus.keys=... sets another number
    #[arg(long, value_name = "W", default_value = "litmus-births")]
    workload: String,
    #[command(flatten)]
    scripts: ScriptArgs,
    /// How long each protocol runs, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub(crate) seconds: f64,
    /// Worker threads, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<usize>)]
    threads: usize,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Write the results to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Returns a configuration for each workload. The scripts of -f are one workload, in the place of
/// the others.
///
/// # Errors
/// A workload is chosen twice, or a setting or a script is not valid.
fn runs_of(
    workloads: Vec<String>,
    scripts: Option<&ScriptArgs>,
    protocols: &[String],
    index: Option<&str>,
    settings: &[String],
) -> Result<Vec<RunConfig>, UserError> {
    if let Some(twice) = chosen_twice(&workloads) {
        return Err(UserError::refused(format!("workload '{twice}' was chosen twice")));
    }
    let of = |(workload, workload_text): (String, Option<String>)| {
        let index = index.map(str::to_owned);
        let protocols = names(protocols);
        let mut config = RunConfig { workload, workload_text, protocols, index, ..RunConfig::default() };
        add_settings(&mut config, settings)?;
        Ok(config)
    };
    let all = match scripts {
        Some(scripts) => scripts.workloads(workloads)?,
        None => workloads.into_iter().map(|workload| (workload, None)).collect(),
    };
    all.into_iter().map(of).collect()
}

impl ExploreArgs {
    /// Returns each workload's configuration, with the protocols.
    pub(crate) fn runs(&self) -> Result<Vec<RunConfig>, UserError> {
        let all = || contend_workloads::litmus::INFOS.iter().chain(contend_workloads::chains::INFOS);
        let litmus_tests = || all().map(|info| info.name.to_string()).collect();
        let expanded = |name: String| if name == "litmus" { litmus_tests() } else { vec![name] };
        let workloads = names(&self.workload).into_iter().flat_map(expanded).collect();
        runs_of(workloads, Some(&self.scripts), &self.protocol, self.index.as_deref(), &self.settings)
    }

    /// Returns how to explore.
    pub(crate) fn config(&self) -> Result<ExploreConfig, UserError> {
        let unlimited = if self.budget.is_some() { u64::MAX } else { ExploreConfig::default().executions };
        let replay = self.replay.as_deref().map(str::parse).transpose();
        Ok(ExploreConfig {
            executions: self.schedules.unwrap_or(unlimited),
            budget: self.budget,
            strategy: self.strategy.parse()?,
            transactions: self.transactions,
            cores: self.cores,
            seed: self.seed,
            replay: replay.map_err(|error| UserError::refused(format!("--replay: {error}")))?,
            ..ExploreConfig::default()
        })
    }
}

impl DeterminismArgs {
    /// Returns each workload's configuration, with the protocols.
    pub(crate) fn runs(&self) -> Result<Vec<RunConfig>, UserError> {
        let mut runs =
            runs_of(names(&self.workload), Some(&self.scripts), &self.protocol, self.index.as_deref(), &self.settings)?;
        runs.iter_mut().for_each(|run| run.seed = self.seed);
        Ok(runs)
    }

    /// Returns how to prove.
    pub(crate) fn config(&self) -> DeterminismConfig {
        let DeterminismArgs { clients, transactions, repeats, schedules, .. } = *self;
        DeterminismConfig { clients, transactions, repeats, executions: schedules, chip: self.machine.clone() }
    }
}

impl CrashTestArgs {
    /// Returns each workload's configuration, with the protocols.
    pub(crate) fn runs(&self) -> Result<Vec<RunConfig>, UserError> {
        runs_of(names(&self.workload), Some(&self.scripts), &self.protocol, self.index.as_deref(), &self.settings)
    }

    /// Returns how to test.
    pub(crate) fn config(&self) -> CrashConfig {
        let CrashTestArgs { seeds, seed, crashes, transactions, cores, .. } = *self;
        CrashConfig { seeds, seed, crashes, transactions, cores, ..CrashConfig::default() }
    }
}

impl KillTestArgs {
    /// Returns the configuration that has the protocols and settings.
    pub(crate) fn run(&self) -> Result<RunConfig, UserError> {
        // The test has tables of its own. This workload is one that every protocol can run.
        let mut runs = runs_of(vec!["litmus-births".into()], None, &self.protocol, None, &self.settings)?;
        Ok(runs.remove(0))
    }

    /// Returns how to test, in this folder.
    pub(crate) fn config(&self, directory: &Path) -> Result<KillConfig, UserError> {
        let KillTestArgs { kills, mixed, keys, threads, life_ms, seed, .. } = *self;
        let ordered = index_kind(&self.index)? == index_kind("ordered")?;
        let (durabilities, directory) = (names(&self.durability), directory.to_owned());
        if let Some(twice) = chosen_twice(&durabilities) {
            return Err(UserError::refused(format!("durability '{twice}' was chosen twice")));
        }
        let scale = Scale { keys, threads, seed, ordered };
        Ok(KillConfig { kills, durabilities, mixed, scale, life_ms, directory })
    }
}

impl SoakArgs {
    /// Returns the configuration that the flags ask for.
    pub(crate) fn run(&self) -> Result<RunConfig, UserError> {
        let workloads = vec![self.workload.clone()];
        let mut runs = runs_of(workloads, Some(&self.scripts), &self.protocol, self.index.as_deref(), &self.settings)?;
        let mut run = runs.remove(0);
        run.threads = self.threads;
        if contend_workloads::litmus::INFOS.iter().any(|info| info.name == self.workload) {
            run.settings.entry("litmus.keys".into()).or_insert_with(|| "1000".into());
        }
        Ok(run)
    }
}
