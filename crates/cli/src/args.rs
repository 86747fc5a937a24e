//! The command line: verbs, their flags, and the configurations that the flags ask for.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `scripts` | plain pgbench scripts as a workload |
//! | `setup` | what runs where: workload, machine, options |
//! | `measure` | `run` and `compare` |
//! | `arrivals` | the open loop of these |
//! | `advise` | the tournament of all protocols |
//! | `saturate` | the highest rate of arrivals |
//! | `outputs` | where the page and the data of these two go |
//! | `proof` | `explore`, `determinism`, `crash-test`, `kill-test`, `soak` |
//! | `bench` | the benchmarks of a machine |
//! | `results` | the verbs that read results, logs and lists: `diff`, `report`, `check`, `list`, ... |
//! | `sql` | `sql` |
//! | `sweep` | `sweep` with its parts, and `plot` |
//! | `workload` | workload files: `workload check`, `workload import` |
//! | `values` | the values that flags take |

mod advise;
pub(crate) mod arrivals;
mod bench;
mod measure;
mod outputs;
mod proof;
mod results;
mod saturate;
mod scripts;
mod setup;
#[cfg(feature = "sql")]
mod sql;
mod sweep;
mod values;
mod workload;

use clap::{CommandFactory, Parser, Subcommand};

pub(crate) use advise::AdviseArgs;
pub(crate) use bench::{Bench, BenchArgs, LimitArgs, MicroArgs};
pub(crate) use measure::{CompareArgs, MeasureArgs, RunArgs};
pub(crate) use outputs::OutputArgs;
pub(crate) use proof::{CrashTestArgs, DeterminismArgs, ExploreArgs, KillChildArgs, KillTestArgs, SoakArgs};
pub(crate) use results::{
    AnalyseArgs, AnalysisForm, CheckArgs, CompletionsArgs, DiffArgs, DumpArgs, ListArgs, LogArgs, LogCommand, ManArgs,
    OnOff, RecoverArgs, ReportArgs, What,
};
pub(crate) use saturate::SaturateArgs;
#[cfg(feature = "sql")]
pub(crate) use sql::{LITMUS, SqlArgs};
pub(crate) use sweep::{MergeArgs, PlotArgs, StatusArgs, SweepArgs, SweepCommand};
pub(crate) use workload::{ImportCommand, WorkloadArgs, WorkloadCommand, config_of};

/// Which concurrency-control protocol suits a workload on this machine, and does it keep its
/// promise?
///
/// `contend compare` answers both questions; `contend list` shows what can be chosen.
///
/// Exit status: 0, all is well; 1, a check failed (an anomaly, an invariant), or the run could not
/// go on (the disk of its log failed or is full, its transactions abort for ever); 2, the command
/// was refused (its input is bad, this machine has no room for the run) or a result can't be
/// written; 130, Ctrl-C stopped it.
#[derive(Debug, Parser)]
#[command(name = "contend", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The arguments of `sql` in a build without it.
#[cfg(not(feature = "sql"))]
#[derive(Debug, clap::Args)]
pub(crate) struct NoSqlArgs {
    /// Whatever a build with SQL takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare protocols on a workload: prove each right, measure them in turns, rank them.
    Compare(CompareArgs),
    /// Run one protocol on a workload.
    Run(RunArgs),
    /// Advise: which protocol, with which options, suits a workload on this machine?
    ///
    /// Every protocol that runs the workload and keeps the level is a candidate, also with the
    /// methods that the transactions can use. Rungs of short rounds leave a few, which are proved
    /// right; the final measures these, and the options of the first, until the budget ends. The
    /// advice names the evidence, and says "any of these" where nothing is told apart.
    Advise(AdviseArgs),
    /// Search for the highest rate of arrivals that each protocol keeps up with, within a limit of
    /// response times.
    ///
    /// The search doubles the rate until it fails, and then halves the distance. A rate passes if
    /// each of three windows keeps the limits and leaves nothing undone. The result is a rate that
    /// passes and one that fails, with everything that was tried between.
    Saturate(SaturateArgs),
    /// Compare two results entry by entry: which is faster or slower than before, and by how much,
    /// with intervals.
    ///
    /// The 95 % intervals are computed from the ratios of all windows of the second result to all
    /// windows of the first (Hodges and Lehmann). They need four windows of each result, or three
    /// of one and five of the other. Other differences between the two runs are listed. No interval
    /// shows that the machine itself was slower or faster in the meantime.
    Diff(DiffArgs),
    /// Draw the page of a result file, which `run --json FILE` or a comparison wrote.
    ///
    /// Result files do not hold the tails of latencies, so such a page has no chart of them.
    Report(ReportArgs),
    /// List protocols, workloads, options, indexes and machines.
    List(ListArgs),
    /// Look for an interleaving of a few transactions under which a protocol breaks its promise,
    /// and show it.
    ///
    /// The explorer may switch to another core at every access to shared memory. It explores
    /// sequentially consistent interleavings only, not weaker orderings of memory. METHODOLOGY.md
    /// has the commands of a model checker and a sanitizer for those.
    Explore(ExploreArgs),
    /// Run experiments from files: measure every point that is missing, draw the figures, and judge
    /// each assertion.
    ///
    /// A point is a file, named by the hash of what decides it. So a sweep goes on where it was
    /// stopped, and --shard, --point and `sweep merge` divide it among machines. docs/clusters.md
    /// has recipes.
    ///
    /// The exit status is 1 if an assertion fails that --allow does not name, if an assertion can't
    /// be evaluated, or if a point failed.
    Sweep(SweepArgs),
    /// Draw the figures of a sweep again, and judge its assertions, without running anything.
    ///
    /// The exit status is 1 if an assertion fails that --allow does not name, or if an assertion
    /// can't be evaluated.
    Plot(PlotArgs),
    /// Analyse the transactions of applications: which steps conflict, which must be one, and in
    /// which order do they go?
    ///
    /// A file declares tables and transactions, a step a line. The analysis is IC3's: it
    /// merges steps that could not be ordered, and gives each remaining step a rank. docs/pieces.md
    /// explains the file and the output.
    Analyse(AnalyseArgs),
    /// Check a workload file, or write one from a trace.
    Workload(WorkloadArgs),
    /// Run a workload file on a system that speaks SQL, and judge each isolation level by its own
    /// promise.
    ///
    /// Each level has two runs: one that is measured, and one whose rows have two more columns,
    /// which name the writes that made them. The checker of histories judges the second. All tables
    /// are in a new schema, database or file, contend_RANDOM, which is removed at the end.
    /// docs/sql.md explains the levels and the output.
    ///
    /// The exit status is 1 if a level breaks its promise.
    #[cfg(feature = "sql")]
    Sql(SqlArgs),
    /// Run a workload file on a system that speaks SQL: this build can't, see docs/sql.md.
    #[cfg(not(feature = "sql"))]
    Sql(NoSqlArgs),
    /// Judge a history: is it serializable, and if not, why?
    Check(CheckArgs),
    /// Recover a database from its folder: read its durable transactions, report them, and take a
    /// checkpoint.
    Recover(RecoverArgs),
    /// Look into a log.
    Log(LogArgs),
    /// Crash and recover: is every acknowledged transaction there, and none without the
    /// transactions that it depends on?
    ///
    /// Each test runs a few transactions in an interleaving of its own, with a log on a disk that
    /// fails: it crashes at any point, tears sectors, reorders writes, fails writes and
    /// synchronisations, or is full. Every commit protocol is tested, unless --set log=... names
    /// one.
    CrashTest(CrashTestArgs),
    /// Kill processes that run transactions: is every transaction there that they had acknowledged?
    ///
    /// Each process opens the folder that the last one left. Its threads insert, delete and change
    /// the rows of the same few keys, in real files, until the process is killed (SIGKILL) at a
    /// random moment. Commit-time updates and timestamp splitting differ from process to process,
    /// unless --set cu=... and --set ts=... fix them.
    KillTest(KillTestArgs),
    /// The process that `kill-test` kills.
    #[command(hide = true)]
    KillChild(KillChildArgs),
    /// Run the same input with any number of threads, on the host, on a simulated chip and in many
    /// interleavings: does it always lead to the same final state? For deterministic protocols.
    Determinism(DeterminismArgs),
    /// Run each protocol for a long time while rows come and go: does memory stay flat?
    Soak(SoakArgs),
    /// Measure the limits of this machine.
    Bench(BenchArgs),
    /// Print the script by which a shell completes verbs and flags; in bash, zsh and fish also
    /// protocols, workloads, options and machines.
    ///
    /// bash: `contend completions bash > ~/.local/share/bash-completion/completions/contend`. zsh:
    /// `contend completions zsh > DIR/_contend`, with a DIR of $fpath. fish: `contend completions
    /// fish > ~/.config/fish/completions/contend.fish`.
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them: `contend man run | man -l -`.
    Man(ManArgs),
}

/// Returns the command line. A value may begin with `-`, so that a number below 0 is refused as
/// such, and not as an unknown flag.
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
