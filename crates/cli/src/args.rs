//! The arguments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use contend_engine::OptionValue;
use contend_proof::crash::CrashConfig;
use contend_proof::explore::ExploreConfig;
use contend_proof::kill::{KillConfig, Scale};
use contend_runner::RunConfig;
use contend_runner::config::{ALL, PRECISION_MAX, PRECISION_MIN, WINDOWS_PRECISE, index_kind};

use crate::UserError;
use crate::files::read_result;

/// Which concurrency-control protocol suits a workload on this machine, and is the answer right?
///
/// `contend compare` answers it; `contend list` says what can be chosen.
///
/// Exit status: 0 all is well; 1 a check failed (an anomaly, an invariant), or the run could not go
/// on (its disk failed, or its transactions abort for ever); 2 bad input, or a machine that has no
/// room for the run; 130 stopped by Ctrl-C.
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
    /// Compare two results, entry by entry: what is faster or slower than it was, and by how much,
    /// with intervals.
    ///
    /// The intervals are of 95 %, from the ratios of all windows of the second result to all of the
    /// first (Hodges and Lehmann), and need four windows of each, or three of five. What else was
    /// different of the two runs is listed; that the machine was slower or faster meanwhile is in
    /// no interval.
    Diff(DiffArgs),
    /// Draw the page of a result file: of one that `run --json FILE` wrote, or of a comparison
    /// again.
    ///
    /// Tails of latency are not in result files, and so not on such a page.
    Report(ReportArgs),
    /// List protocols, workloads, options and indexes.
    List(ListArgs),
    /// Look for an interleaving of a few transactions under which a protocol breaks its promise,
    /// and show it.
    ///
    /// At every access to shared memory another core may go on. What is explored are the
    /// sequentially consistent interleavings; weaker orderings of memory are not (METHODOLOGY.md
    /// has the commands of a model checker and a sanitizer for those).
    Explore(ExploreArgs),
    /// Run experiments from files: every point that is not there yet; then the figures, and a
    /// verdict on each assertion.
    ///
    /// The exit status is 1 if an assertion fails that --allow does not name, or can't be
    /// evaluated.
    Sweep(SweepArgs),
    /// Draw the figures of a sweep again, and judge its assertions, without running anything.
    ///
    /// The exit status is 1 if an assertion fails that --allow does not name, or can't be
    /// evaluated.
    Plot(PlotArgs),
    /// Judge a history: is it serializable, and if not, why?
    Check(CheckArgs),
    /// Recover a database from its folder: read what is durable, say what there is, and take a
    /// checkpoint of it.
    Recover(RecoverArgs),
    /// Look into a log.
    Log(LogArgs),
    /// Crash, recover, and look whether all is there that was acknowledged, and nothing without
    /// what it depends on.
    ///
    /// Each test is a few transactions in an interleaving of its own, with a log on a disk that
    /// fails: crashes at any point, torn sectors, writes in another order, failed writes and
    /// synchronisations, a full disk. With every commit protocol, unless --set log=... names one.
    CrashTest(CrashTestArgs),
    /// Kill processes that run transactions, and look whether all is there that they had
    /// acknowledged.
    ///
    /// Each process opens the directory that the last one left, and its threads insert, delete and
    /// change the rows of the same few keys, with real files, until it is killed (SIGKILL) at a
    /// random moment. Commit-time updates and timestamp splitting differ from process to process,
    /// unless --set cu=..., ts=... say otherwise.
    KillTest(KillTestArgs),
    /// The process that `kill-test` kills.
    #[command(hide = true)]
    KillChild(KillChildArgs),
    /// Run each protocol for long while rows come and go, and look whether memory stays as it is.
    Soak(SoakArgs),
    /// Measure what this machine can do at best.
    Bench(BenchArgs),
    /// Print what makes a shell complete verbs and flags; in bash, zsh and fish also protocols,
    /// workloads, options and machines.
    ///
    /// bash: `contend completions bash > ~/.local/share/bash-completion/completions/contend`. zsh:
    /// `contend completions zsh > DIR/_contend`, with a DIR of $fpath. fish: `contend completions
    /// fish > ~/.config/fish/completions/contend.fish`.
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them: `contend man run | man -l -`.
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The first result: a file, or the folder of a run
    pub(crate) first: PathBuf,
    /// The second result, which is faster or slower than the first
    pub(crate) second: PathBuf,
    /// Exit with status 1 if an entry is told to be slower, and by more than this; or if there is
    /// an entry of which that can't be told
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
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

/// A part, written as a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let valid = number.filter(|number| (0.0..100.0).contains(number));
    valid.map(|number| number / 100.0).ok_or_else(|| "valid: a percentage from 0% on, below 100%, as in 5%".into())
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
pub(crate) struct MeasureArgs {
    /// A workload or preset, see `contend list workloads` [default: ycsb-a]
    pub(crate) workload: Option<String>,
    /// The machine: native, or a chip that is simulated, CHIP or CHIP:CORES, see `contend list
    /// machines`; all times are then the chip's own [default: native]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Worker threads, 1 to 1000 [default: the cores of the machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    threads: Option<usize>,
    /// Length of a measuring window, in seconds [default: 0.1; simulated: 0.0001]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Committed transactions by which a protocol is proved right [default: 20000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    verify_transactions: Option<u64>,
    /// The most measuring windows of each protocol; a comparison ends earlier if all is told that
    /// was asked [default: 40; with --precision 400; simulated: 20]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    windows: Option<usize>,
    /// Unmeasured time before a protocol's first window, in seconds; a twenty-fifth of it before
    /// each further one [default: 0.5; simulated: 0.0005, once]
    #[arg(long, value_name = "S")]
    warmup: Option<f64>,
    /// The index: hash (points) or ordered (points and ranges) [default: hash, unless the workload
    /// scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Say where the time went: by sampling what the threads do; on a simulated chip exactly, and
    /// always
    #[arg(long)]
    breakdown: bool,
    /// Seed of all random choices [default: 42]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Run the configuration of a result file again; other flags override it
    #[arg(long, value_name = "RESULT.json")]
    from: Option<PathBuf>,
    /// Write the result to this file as JSON, or to stdout (-), the table then going to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the figures to this file as comma-separated values, an entry a line, or to stdout (-),
    /// the table then going to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the distribution of each entry's latencies to this folder, as ENTRY.hgrm: text that
    /// HdrHistogram's tools plot
    #[arg(long, value_name = "DIR")]
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
    /// Go on until each ratio to the first protocol and to none is known so well, up or down, as in
    /// 3%; without it, until all are told apart from the first
    #[arg(long, value_name = "P%", value_parser = parse_precision, allow_hyphen_values = true)]
    precision: Option<f64>,
    /// The folder that report.html and results.json go to [default: a new one,
    /// contend-results/TIME-WORKLOAD, to which contend-results/latest leads]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite what is in the folder of --out
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
    /// Record who read and wrote what, judge it, and write it to this file as JSON lines; the run
    /// ends after 200,000 transactions
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExploreArgs {
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in
    /// silo,silo+cu+ts
    #[arg(long, visible_alias = "protocols", value_name = "P", value_delimiter = ',', default_value = "all")]
    protocol: Vec<String>,
    /// Workloads, separated by commas, or `litmus`: all those made for this; see `contend list
    /// workloads`
    #[arg(long, visible_alias = "workloads", value_name = "W", value_delimiter = ',', default_value = "litmus")]
    workload: Vec<String>,
    /// The most executions of each protocol on each workload [default: 10000; with --budget no
    /// limit]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    schedules: Option<u64>,
    /// The time of all together, shared evenly: seconds, or with a unit as in 60s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) budget: Option<Duration>,
    /// How the next core is chosen: random, pct:DEPTH, or exhaustive:PREEMPTIONS
    #[arg(long, value_name = "S", default_value = "random")]
    strategy: String,
    /// Transactions of each core [default: as many as the litmus test is made for, or 2]
    #[arg(long, value_name = "T", value_parser = whole::<u64>)]
    transactions: Option<u64>,
    /// Cores, 1 to 64 [default: as many as the litmus test is made for, or 3]
    #[arg(long, value_name = "C", value_parser = whole::<usize>)]
    cores: Option<usize>,
    /// Seed of the choices and of the workload; each execution has the next one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// Follow this schedule, once: which core makes how many steps, as in 0x5,1x3,0
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["schedules", "budget", "strategy"])]
    replay: Option<String>,
    /// Show an interleaving of each protocol on each workload step by step, also where nothing is
    /// wrong. Without it one is shown that is wrong, and, of a single protocol on a single
    /// workload, one with an anomaly that its promise allows
    #[arg(long)]
    pub(crate) show: bool,
    /// The index: hash or ordered [default: hash, unless the workload scans]
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Write the results to this file as JSON, or to stdout (-), the table then going to stderr
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
    #[arg(long, visible_alias = "workloads", value_name = "W", value_delimiter = ',', default_value = "ycsb-a,tatp")]
    workload: Vec<String>,
    /// Tests of each protocol on each workload with each commit protocol
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<u64>)]
    seeds: u64,
    /// The first seed: of the interleaving, the workload, and what the disk does; each test has the
    /// next one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// How often the machine crashes in a test, and goes on with what it finds, 1 to 100
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
    /// Write the results to this file as JSON, or to stdout (-), the table then going to stderr
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
    /// Processes that are killed, of each protocol with each durability
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u64>)]
    kills: u64,
    /// Let all protocols and durabilities take turns in one directory
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
    /// Seed of the transactions, and of when processes are killed; what the threads make of it is
    /// not drawn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    /// The index: hash or ordered
    #[arg(long, value_name = "INDEX", default_value = "ordered")]
    index: String,
    /// Set an option, see `contend list options`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// The folder that the databases go to; one that is broken stays there [default: a temporary
    /// one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write the results to this file as JSON, or to stdout (-), the table then going to stderr
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
    /// A workload or preset, see `contend list workloads`; the default has 1000 keys, unless --set
    /// litmus.keys=... says otherwise
    #[arg(long, value_name = "W", default_value = "litmus-births")]
    workload: String,
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
    /// Write the results to this file as JSON, or to stdout (-), the table then going to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Experiments, see the folder experiments/
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The folder that points and pages go to, a folder each; what is there already is not run
    /// again
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    pub(crate) out: PathBuf,
    /// Seeds from each of which every simulated point is run, 1 to 100: those of a folder's points
    /// are kept, and the missing ones added [default: as many as the experiment says, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<usize>,
    /// Simulated points that are run at once [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) jobs: Option<usize>,
    /// Ids of assertions that are known to fail, one a line: they don't make the exit status 1
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// The folder of a sweep (its --out)
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
    /// Ids of assertions that are known to fail, one a line: they don't make the exit status 1
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
}

/// A whole number, as options take it.
fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = u64::parse(text, &(0..=u64::MAX)).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| match text.strip_prefix('-').map(str::parse::<f64>) {
        Some(Ok(_)) => "it is below 0; valid: a whole number, such as 8, 10k or 1e6".into(),
        _ => "it is no whole number, or too large a one; valid: digits, such as 8, 10k or 1e6".into(),
    })
}

/// A percentage, as a fraction.
fn parse_precision(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let (least, most) = (PRECISION_MIN * 100.0, PRECISION_MAX * 100.0);
    let in_range = |percent: &f64| (least..=most).contains(percent);
    number
        .filter(in_range)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("a precision is a percentage, as in 3%; valid: {least}% to {most}%"))
}

/// Seconds, or a number with a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit '{unit}'; valid: ms, s, m, h")),
    };
    match digits.parse::<f64>() {
        Ok(number) if (0.0..=1e9).contains(&(number * unit)) => Ok(Duration::from_secs_f64(number * unit)),
        _ => Err(format!("'{digits}' is no time; valid: a number from 0, as in 60s or 10m")),
    }
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
    Protocols,
    Workloads,
    Options,
    Indexes,
    Machines,
}

/// What `contend check --help` says of the formats. docs/history.md says it at length.
const HISTORY_HELP: &str = r#"A line of a history (--format contend) is a committed transaction, with the versions that it saw:

  {"txn":7,"worker":0,"ops":[{"op":"read","table":"t","key":"x","version":3},
                             {"op":"write","table":"t","key":"x","version":7,"over":3},
                             {"op":"scan","table":"t","low":"a","high":"k","seen":[["b",3]]}]}

  (on one line). A version is the number of the transaction that wrote it: 0 was loaded, null is no row. `over` is the version
  that a write replaced, null of an insert; `"delete":true` is a delete. A scan's bounds are part of it; null is no bound.

An operation of a history of Elle is a map:

  {:type :ok, :process 0, :f :txn, :value [[:append x 1] [:r y [1 2]]]}      elle-append
  {"type":"ok","process":0,"f":"txn","value":[["w","x",1],["r","y",2]]}      elle-register

  Its versions are inferred from the values: each value is written once. An anomaly that is found is one; none found is no proof, since the
  order of appends that nobody read, and of most writes of registers, is unknown.

Exit status: 0, the level is kept; 1, it is not; 2, the file can't be read as a history. All fields, and what can be concluded:
docs/history.md."#;

#[derive(Debug, Args)]
#[command(after_long_help = HISTORY_HELP)]
pub(crate) struct CheckArgs {
    /// A history; - is stdin
    pub(crate) history: PathBuf,
    /// What it is: contend (JSON lines, one committed transaction a line), elle-append or
    /// elle-register (list-append and rw-register histories of Jepsen and elle-cli, as EDN or JSON)
    #[arg(long, value_name = "FORMAT", default_value = "contend")]
    pub(crate) format: String,
    /// The level to judge by: none, read-uncommitted, read-committed, snapshot, serializable
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
    /// Only look whether all is there that was acknowledged; change nothing
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
    /// Print what a log has: tables, files, and every write that counts
    Dump(DumpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The folder of the database
    pub(crate) dir: PathBuf,
    /// At most so many writes [default: all]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Random cache-line reads a second and thread, and atomic increments of one line by 1 to N
    /// threads
    Limit(LimitArgs),
    /// Timestamps a second from each source, by 1, 4, 16, ... threads that do nothing else
    Timestamps(MicroArgs),
    /// Atomic additions a second to one counter, by 1, 2, 4, ... threads that do nothing else
    Increments(MicroArgs),
    /// How often a line changes hands, a second: between two threads, between each of two pairs,
    /// ...
    Transfers(MicroArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MicroArgs {
    /// The machine: native, or a chip that is simulated, see `contend list machines`
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
    /// The configuration, for the most threads.
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
    /// Threads, 1 to 1000 [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) threads: Option<usize>,
    /// Rounds; figures are their median, least and greatest
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

/// The command line. A value may begin with `-`, so that one that is below 0 is called that, and
/// not a flag.
pub(crate) fn command() -> clap::Command {
    fn numbers(command: clap::Command) -> clap::Command {
        let takes = |argument: clap::Arg| match argument.get_action().takes_values() {
            true => argument.allow_negative_numbers(true),
            false => argument,
        };
        command.mut_args(takes).mut_subcommands(numbers)
    }
    numbers(Cli::command())
}

impl MeasureArgs {
    /// The configuration that the flags ask for, protocols apart.
    fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = match &self.from {
            None => RunConfig::default(),
            Some(path) => {
                read_result(path).map_err(|error| UserError::input(format!("--from {}", error.message)))?.config
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
        config.verify_transactions = self.verify_transactions.unwrap_or(config.verify_transactions);
        config.warmup_seconds = self.warmup.unwrap_or(config.warmup_seconds);
        config.index = self.index.clone().or(config.index);
        config.seed = self.seed.unwrap_or(config.seed);
        add_settings(&mut config, &self.settings)?;
        Ok(config)
    }
}

/// Puts what `--set` sets into a configuration.
fn add_settings(config: &mut RunConfig, settings: &[String]) -> Result<(), UserError> {
    let mut said: BTreeMap<&str, &str> = BTreeMap::new();
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(UserError::input(format!("--set takes NAME=VALUE, not '{setting}'")));
        };
        let (name, value) = (name.trim(), value.trim());
        if let Some(other) = said.insert(name, value).filter(|other| *other != value) {
            return Err(UserError::input(format!(
                "--set {name} is there twice, with {other} and with {value}; valid: once"
            )));
        }
        config.settings.insert(name.into(), value.into());
    }
    Ok(())
}

/// The names in a list.
fn protocols(list: &[String]) -> Vec<String> {
    list.iter().map(|name| name.trim().to_string()).collect()
}

impl ExploreArgs {
    /// Each workload's configuration, protocols included.
    pub(crate) fn runs(&self) -> Result<Vec<RunConfig>, UserError> {
        let workloads: Vec<String> = match &self.workload[..] {
            [litmus] if litmus == "litmus" => {
                contend_workloads::litmus::INFOS.iter().map(|info| info.name.to_string()).collect()
            }
            chosen => protocols(chosen),
        };
        runs_of(workloads, &self.protocol, self.index.as_deref(), &self.settings)
    }

    /// How to explore.
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
            replay: replay.map_err(|error| UserError::input(format!("--replay: {error}")))?,
            ..ExploreConfig::default()
        })
    }
}

/// A configuration for each workload.
fn runs_of(
    workloads: Vec<String>,
    list: &[String],
    index: Option<&str>,
    settings: &[String],
) -> Result<Vec<RunConfig>, UserError> {
    let of = |workload: String| {
        let index = index.map(str::to_owned);
        let mut config = RunConfig { workload, protocols: protocols(list), index, ..RunConfig::default() };
        add_settings(&mut config, settings)?;
        Ok(config)
    };
    workloads.into_iter().map(of).collect()
}

impl CrashTestArgs {
    /// Each workload's configuration, protocols included.
    pub(crate) fn runs(&self) -> Result<Vec<RunConfig>, UserError> {
        runs_of(protocols(&self.workload), &self.protocol, self.index.as_deref(), &self.settings)
    }

    /// How to test.
    pub(crate) fn config(&self) -> CrashConfig {
        let CrashTestArgs { seeds, seed, crashes, transactions, cores, .. } = *self;
        CrashConfig { seeds, seed, crashes, transactions, cores, ..CrashConfig::default() }
    }
}

impl KillTestArgs {
    /// Protocols and settings.
    pub(crate) fn run(&self) -> Result<RunConfig, UserError> {
        // The workload is the test's own; this one every protocol can run.
        let mut runs = runs_of(vec!["litmus-births".into()], &self.protocol, None, &self.settings)?;
        Ok(runs.remove(0))
    }

    /// How to test, in this folder.
    pub(crate) fn config(&self, directory: &Path) -> Result<KillConfig, UserError> {
        let KillTestArgs { kills, mixed, keys, threads, life_ms, seed, .. } = *self;
        let ordered = index_kind(&self.index)? == index_kind("ordered")?;
        let (durabilities, directory) = (self.durability.clone(), directory.to_owned());
        let scale = Scale { keys, threads, seed, ordered };
        Ok(KillConfig { kills, durabilities, mixed, scale, life_ms, directory })
    }
}

impl SoakArgs {
    /// The configuration that the flags ask for.
    pub(crate) fn run(&self) -> Result<RunConfig, UserError> {
        let mut runs = runs_of(vec![self.workload.clone()], &self.protocol, self.index.as_deref(), &self.settings)?;
        let mut run = runs.remove(0);
        run.threads = self.threads;
        if self.workload.starts_with("litmus") {
            run.settings.entry("litmus.keys".into()).or_insert_with(|| "1000".into());
        }
        Ok(run)
    }
}

impl CompareArgs {
    /// The configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        if !self.protocols.is_empty() {
            config.protocols = protocols(&self.protocols);
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
    /// The configuration that the flags ask for.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = self.measure.config()?;
        match &self.protocol {
            Some(protocol) if protocol.contains(',') || protocol.trim() == ALL => {
                return Err(UserError::input(format!(
                    "run takes one protocol, not '{protocol}'; contend compare takes several"
                )));
            }
            Some(protocol) => config.protocols = vec![protocol.clone()],
            None if self.measure.from.is_none() => config.protocols = vec!["silo".into()],
            None if config.protocols.len() == 1 => {}
            None => {
                let protocols = config.protocols.join(", ");
                return Err(UserError::input(format!(
                    "the result file compares {protocols}: choose one by --protocol"
                )));
            }
        }
        // There is nothing to be told apart.
        config.precision = None;
        config.dir = self.dir.clone().or(config.dir);
        config.verify = self.verify || self.measure.from.is_some() && config.verify;
        Ok(config)
    }
}
