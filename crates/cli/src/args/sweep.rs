//! The flags of `sweep` and `plot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use contend_lab::experiment::Shard;

use super::values::whole;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SweepArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SweepCommand>,
    /// Experiments, see the folder experiments/
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The folder for points and pages, with a folder for each experiment; points that are there
    /// are not measured again
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    pub(crate) out: PathBuf,
    /// Seeds of every simulated point, 1 to 100; the folder's points are kept, and missing seeds
    /// are added [default: the number in the experiment, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<usize>,
    /// Simulated points that run at once [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) jobs: Option<usize>,
    /// A file of assertions that are known to fail, an id a line: they don't make the exit status 1
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
    /// Measure one of N equal parts only, and draw nothing: the points are dealt to the parts in
    /// turns, the most expensive first
    #[arg(long, value_name = "I/N", conflicts_with_all = ["allow", "point"])]
    pub(crate) shard: Option<Shard>,
    /// Measure this point only, and draw nothing: a hash of --list
    #[arg(long, value_name = "HASH", conflicts_with_all = ["allow", "list"])]
    pub(crate) point: Option<String>,
    /// Only list the points that are missing, the most expensive first: hash, estimated seconds,
    /// simulated or native, place
    #[arg(long, conflicts_with = "allow")]
    pub(crate) list: bool,
    /// Of the listed points, print the hashes only
    #[arg(long, requires = "list")]
    pub(crate) hash: bool,
    /// Measure points again that failed
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// Leave the host's name and the command out of the points' files
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Let points of this machine count that another machine measured; the figure says so
    #[arg(long)]
    pub(crate) mixed: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SweepCommand {
    /// Put the points of several folders into one.
    ///
    /// Nothing is written if a simulated point has other accesses in two folders: then two versions
    /// of the simulator measured it. A native point that several folders have is that of the first.
    Merge(MergeArgs),
    /// Say what is in a folder: points that are there, missing and failed, by experiment.
    ///
    /// The exit status is 1 if a point failed.
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Folders of sweeps (their --out)
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// The folder that will have all points; what it has already is kept
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The folder of a sweep (its --out)
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Seeds of every simulated point, if the sweep had the flag
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// The folder of a sweep (its --out)
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
    /// A file of assertions that are known to fail, an id a line: they don't make the exit status 1
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
    /// Draw native points of several machines as one curve; the figure says so
    #[arg(long)]
    pub(crate) mixed: bool,
}
