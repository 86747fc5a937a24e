//! The binary `contend`: arguments in, tables, files and exit status out. What is measured, and
//! how, is the lab's.

mod args;
mod cmd;
mod files;
mod progress;
mod show;
mod table;

use std::process::ExitCode;

use clap::FromArgMatches;
use contend_runner::RunError;

use args::{Cli, Command};

/// The explorer of interleavings takes back what an execution has done.
#[global_allocator]
static ALLOCATOR: contend_proof::Rewindable<mimalloc::MiMalloc> = contend_proof::Rewindable(mimalloc::MiMalloc);

/// Why a command failed, for a person, and the exit status that says so.
#[derive(Debug)]
struct UserError {
    message: String,
    status: u8,
}

/// The exit status of a run that could not go on.
const COULD_NOT_GO_ON: u8 = 1;
/// The exit status of bad input, and of a machine that has no room for a run to begin.
const REFUSED: u8 = 2;

impl UserError {
    /// Input that is not valid, or a file that can't be read or written.
    fn input(message: impl Into<String>) -> Self {
        UserError { message: message.into(), status: REFUSED }
    }
}

impl<E: std::error::Error + 'static> From<E> for UserError {
    fn from(error: E) -> Self {
        let run = (&error as &dyn std::error::Error).downcast_ref::<RunError>();
        UserError { message: error.to_string(), status: run.map_or(REFUSED, status_of) }
    }
}

/// Returns the exit status that an error of a run leads to. All other errors are input that can't
/// be used.
fn status_of(error: &RunError) -> u8 {
    match error {
        RunError::BadInput(_)
        | RunError::OutOfMemory(_)
        | RunError::Io(_)
        | RunError::LogNotOpened(_)
        | RunError::LoadNotDurable { .. } => REFUSED,
        RunError::LogFailed(_) | RunError::Stuck { .. } | RunError::CheckFailed(_) | RunError::Stopped => {
            COULD_NOT_GO_ON
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// All is well.
    Good,
    /// A check failed: an anomaly, or an invariant.
    CheckFailed,
    /// It was stopped by Ctrl-C.
    Interrupted,
}

fn main() -> ExitCode {
    // With a handler, a write beyond the limit of a file's size is an error that names the file;
    // without, it ends the process.
    let unused = std::sync::Arc::default();
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unused) {
        show::complain(&format!("note: a limit of file sizes will end this process: {error}"));
    }
    let parsed = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let command = match parsed {
        Ok(Cli { command }) => command,
        Err(error) => return refuse_arguments(&error),
    };
    let outcome = match command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Diff(args) => cmd::diff::run(&args),
        Command::Report(args) => cmd::report::run(&args),
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
        Command::Completions(args) => cmd::shell::completions(&args),
        Command::Man(args) => cmd::shell::man(&args),
    };
    match outcome {
        Ok(Status::Good) => ExitCode::SUCCESS,
        Ok(Status::CheckFailed) => ExitCode::from(1),
        // The convention of shells: 128 and the signal's number.
        Ok(Status::Interrupted) => ExitCode::from(130),
        Err(UserError { message, status }) => {
            show::complain(&show::shortened(&format!("error: {message}")));
            ExitCode::from(status)
        }
    }
}

/// Says what is wrong with the arguments, or shows the help that they ask for.
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let shown = error.print();
        return if shown.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let rendered = error.render();
    let is_long = std::env::args_os().any(|argument| argument.len() > show::LONG);
    // Only what is shortened loses its colours.
    if is_long {
        show::complain(show::shortened(&rendered.to_string()).trim_end());
    } else {
        // There is nobody to tell if that fails.
        let _ = error.print();
    }
    ExitCode::from(2)
}
