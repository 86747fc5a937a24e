//! The command line: it turns arguments into plans, and results into tables, files and an exit
//! status. The crates `lab` and `proof` measure and prove.
//!
//! [`main`] is the binary `contend`. [`call()`] runs a verb for another program, which gets an
//! answer in place of texts and files. So the package for Python has the same names and the same
//! errors.

mod args;
mod call;
mod cmd;
mod exhausted;
mod files;
mod progress;
mod show;
mod table;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::FromArgMatches;
use contend_runner::RunError;

use args::{Cli, Command};
pub use call::{Answer, Called, Flag, Refused, call, flags, judge, load, play};
pub use contend_history::History;
pub use contend_lab::result::Bucket;
pub use contend_proof::Rewindable;
pub use contend_runner::{Observer, Stop};
pub use exhausted::{EndsWhenExhausted, NO_MORE_THREADS, NO_THREAD};

/// Why a command failed, for a person, and the exit status that says so.
#[derive(Debug)]
struct UserError {
    message: String,
    status: u8,
}

/// The exit status of a command whose check failed, or that could not be finished.
const FAILED: u8 = 1;
/// The exit status of a command that was refused: its input is bad, or the machine has no room for
/// the run or for its results. Status 1 would say that a check failed.
const REFUSED: u8 = 2;
/// The exit status after Ctrl-C: by the convention of shells, 128 and the signal's number.
const INTERRUPTED: u8 = 130;
/// What a build without the feature `sql` says of the verb.
#[cfg(not(feature = "sql"))]
const WITHOUT_SQL: &str =
    "this contend was built without SQL; valid: cargo build -p contend-cli --release --features sql";

impl UserError {
    /// Returns the error of a command that is refused: its input is not valid, a file can't be read
    /// or written, or the machine has no room.
    fn refused(message: impl Into<String>) -> Self {
        UserError { message: message.into(), status: REFUSED }
    }

    /// Returns the error of a command that could not be finished, and whose input is not to blame.
    #[cfg(feature = "sql")]
    fn failed(message: impl Into<String>) -> Self {
        UserError { message: message.into(), status: FAILED }
    }
}

impl<E: std::error::Error + 'static> From<E> for UserError {
    fn from(error: E) -> Self {
        let run = (&error as &dyn std::error::Error).downcast_ref::<RunError>();
        UserError { message: error.to_string(), status: run.map_or(REFUSED, status_of) }
    }
}

/// Returns the exit status of an error of a run. All other errors are of input that can't be used.
/// README.md documents the statuses.
fn status_of(error: &RunError) -> u8 {
    match error {
        // Bad input, or a machine that has no memory or disk for the run.
        RunError::BadInput(_)
        | RunError::OutOfMemory(_)
        | RunError::Io(_)
        | RunError::LogNotOpened(_)
        | RunError::LoadNotDurable { .. } => REFUSED,
        // The run began, and failed or could not go on.
        RunError::LogFailed(_)
        | RunError::IoFailed(_)
        | RunError::Stuck { .. }
        | RunError::CheckFailed(_)
        | RunError::Undeclared(_)
        | RunError::Stopped => FAILED,
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// All is well.
    Good,
    /// A check failed: an anomaly, or an invariant.
    CheckFailed,
    /// Ctrl-C stopped it.
    Interrupted,
}

/// Runs the command that the arguments of this process ask for, and returns its exit status.
pub fn main() -> ExitCode {
    // With a handler for the signal, a write beyond the limit of file sizes is an error that names
    // the file. Without one, the signal ends the process.
    let unused = std::sync::Arc::default();
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unused) {
        show::complain(&format!("note: a limit of file sizes will end this process: {error}"));
    }
    exhausted::refuse_instead_of_panicking_for_threads();
    let parsed = args::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let command = match parsed {
        Ok(Cli { command }) => command,
        Err(error) => return refuse_arguments(&error),
    };
    let outcome = match command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Advise(args) => cmd::advise::run(&args),
        Command::Saturate(args) => cmd::saturate::run(&args),
        Command::Diff(args) => cmd::diff::run(&args),
        Command::Report(args) => cmd::report::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Explore(args) => cmd::explore::run(&args),
        Command::Sweep(args) => cmd::sweep::sweep(&args),
        Command::Plot(args) => cmd::sweep::plot(&args),
        Command::Analyse(args) => cmd::analyse::run(&args),
        Command::Workload(args) => cmd::workload::run(&args),
        #[cfg(feature = "sql")]
        Command::Sql(args) => cmd::sql::run(&args),
        #[cfg(not(feature = "sql"))]
        Command::Sql(_) => Err(UserError::refused(WITHOUT_SQL)),
        Command::Check(args) => cmd::check::run(&args),
        Command::Recover(args) => cmd::log::recover(&args),
        Command::Log(args) => cmd::log::log(&args),
        Command::CrashTest(args) => cmd::crash::run(&args),
        Command::KillTest(args) => cmd::kill::run(&args),
        Command::KillChild(args) => cmd::kill::child(&args),
        Command::Determinism(args) => cmd::determinism::run(&args),
        Command::Soak(args) => cmd::soak::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Completions(args) => cmd::shell::completions(&args),
        Command::Man(args) => cmd::shell::man(&args),
    };
    match outcome {
        Ok(Status::Good) => ExitCode::SUCCESS,
        Ok(Status::CheckFailed) => ExitCode::from(FAILED),
        Ok(Status::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(UserError { message, status }) => {
            show::complain(&show::shortened(&format!("error: {message}")));
            ExitCode::from(status)
        }
    }
}

/// Prints what is wrong with the arguments, or the help that they ask for, and returns the exit
/// status.
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let shown = error.print();
        return match shown {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                show::complain(&format!("error: can't write to stdout: {error}"));
                ExitCode::from(REFUSED)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let rendered = error.render();
    let is_long = std::env::args_os().any(|argument| argument.len() > show::LONG);
    // A message that is shortened loses its colours.
    if is_long {
        show::complain(show::shortened(&rendered.to_string()).trim_end());
    } else {
        // If stderr can't be written, no place is left to say so.
        let _ = error.print();
    }
    ExitCode::from(REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::AbortReason;

    #[test]
    fn a_run_that_could_not_go_on_is_no_bad_input() {
        let text = String::new;
        let stuck = RunError::Stuck { protocol: text(), reason: AbortReason::WriteLocked };
        for failed in [RunError::IoFailed(text()), RunError::CheckFailed(text()), RunError::Stopped, stuck] {
            assert_eq!(UserError::from(failed).status, FAILED);
        }
        for refused in [RunError::BadInput(text()), RunError::OutOfMemory(text()), RunError::Io(text())] {
            assert_eq!(UserError::from(refused).status, REFUSED);
        }
        let full = contend_log::LogError::Io {
            doing: "write",
            place: text(),
            source: std::sync::Arc::new(std::io::ErrorKind::StorageFull.into()),
        };
        assert_eq!(UserError::from(RunError::LogFailed(full.clone())).status, FAILED);
        assert_eq!(UserError::from(RunError::LogNotOpened(full)).status, REFUSED);
        assert_eq!(UserError::from(std::fmt::Error).status, REFUSED, "other errors are of input");
    }
}
