//! The binary `contend`: arguments in, tables, files and exit status out. What is measured, and how, is the lab's.

mod args;
mod cmd;
mod files;
mod progress;
mod show;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// The explorer of interleavings takes back what an execution has done.
#[global_allocator]
static ALLOCATOR: contend_lab::Rewindable<mimalloc::MiMalloc> = contend_lab::Rewindable(mimalloc::MiMalloc);

/// What went wrong, for a person; the exit status is 2.
#[derive(Debug)]
struct UserError(String);

impl<E: std::error::Error> From<E> for UserError {
    fn from(error: E) -> Self {
        UserError(error.to_string())
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// All is well.
    Good,
    /// A check has failed: an anomaly, or an invariant.
    CheckFailed,
    /// It was stopped by Ctrl-C.
    Interrupted,
}

fn main() -> ExitCode {
    // Clap's own errors end with status 2, too.
    let outcome = match Cli::parse().command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Explore(args) => cmd::explore::run(&args),
        Command::Sweep(args) => cmd::sweep::sweep(&args),
        Command::Plot(args) => cmd::sweep::plot(&args),
        Command::Check(args) => cmd::check::run(&args),
        Command::Recover(args) => cmd::log::recover(&args),
        Command::Log(args) => cmd::log::log(&args),
        Command::CrashTest(args) => cmd::crash::run(&args),
        Command::KillTest(args) => cmd::kill::run(&args),
        Command::KillChild(args) => cmd::kill::child(&args),
        Command::Soak(args) => cmd::soak::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
    };
    match outcome {
        Ok(Status::Good) => ExitCode::SUCCESS,
        Ok(Status::CheckFailed) => ExitCode::from(1),
        // The convention of shells: 128 and the signal's number.
        Ok(Status::Interrupted) => ExitCode::from(130),
        Err(UserError(message)) => {
            show::complain(&format!("error: {message}"));
            ExitCode::from(2)
        }
    }
}
