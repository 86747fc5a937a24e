//! One file a verb.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod crash;
pub(crate) mod diff;
pub(crate) mod explore;
pub(crate) mod kill;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod soak;
pub(crate) mod sweep;

use std::path::{Path, PathBuf};

use contend_lab::ResultFile;
use contend_runner::config::ALL;
use contend_runner::{RunConfig, RunError, Stop};
use serde::Serialize;

use crate::args::MeasureArgs;
use crate::files::{Target, folder};
use crate::{Status, UserError, show};

/// Where a result goes as JSON.
enum Json {
    Nowhere,
    Stdout,
    File(Target),
}

impl Json {
    fn new(path: Option<&Path>) -> Result<Self, UserError> {
        match path {
            None => Ok(Json::Nowhere),
            Some(path) if path == Path::new("-") => Ok(Json::Stdout),
            Some(path) => Target::new(path).map(Json::File),
        }
    }

    /// Shows the text, and writes all of these as JSON to where it goes; the text then makes way on
    /// stdout.
    fn deliver<T: Serialize>(&self, text: &str, all: &[T]) -> Result<(), UserError> {
        let as_json = serde_json::to_string_pretty(all).expect("plain data") + "\n";
        match self {
            Json::Nowhere => show::print(text),
            Json::Stdout => {
                show::complain(text.trim_end());
                show::print(&as_json)
            }
            Json::File(target) => {
                show::print(text)?;
                target.write_text(&as_json)
            }
        }
    }
}

/// What came of a test, in words.
#[derive(Debug, PartialEq, Eq)]
enum Tested {
    Good(String),
    /// Nothing was tested, so what was not found says nothing.
    Nothing(&'static str),
    Bad(String),
}

impl Tested {
    /// For a column of verdicts.
    fn words(&self) -> String {
        match self {
            Tested::Good(words) | Tested::Bad(words) => words.clone(),
            Tested::Nothing(why) => format!("NOTHING TESTED: {why}"),
        }
    }

    /// How a command ends whose tests came to this. Tests that were stopped before anything
    /// happened are no failure.
    fn status(all: impl IntoIterator<Item = Tested>, is_stopped: bool) -> Status {
        let all: Vec<Tested> = all.into_iter().collect();
        let is_bad = |tested: &Tested| matches!(tested, Tested::Bad(_));
        let is_nothing = |tested: &Tested| matches!(tested, Tested::Nothing(_));
        match () {
            () if all.iter().any(is_bad) => Status::CheckFailed,
            () if is_stopped => Status::Interrupted,
            () if all.is_empty() || all.iter().any(is_nothing) => Status::CheckFailed,
            () => Status::Good,
        }
    }
}

/// Says which protocols `all` leaves out, and why.
fn left_out(config: &RunConfig) -> Result<(), UserError> {
    if config.protocols == [ALL] {
        config.refused()?.iter().for_each(|(_, why)| show::complain(&format!("left out: {why}")));
    }
    Ok(())
}

/// Where a result goes.
struct Outputs {
    json: Json,
    csv: Json,
    hdr: Option<PathBuf>,
}

impl Outputs {
    /// What the flags ask for: tried, so that what can't be written is said before anything runs.
    fn new(args: &MeasureArgs, config: &RunConfig) -> Result<Self, UserError> {
        let outputs = Outputs {
            json: Json::new(args.json.as_deref())?,
            csv: Json::new(args.csv.as_deref())?,
            hdr: args.hdr.clone(),
        };
        if matches!((&outputs.json, &outputs.csv), (Json::Stdout, Json::Stdout)) {
            return Err(UserError::input(
                "--json - and --csv - would both go to stdout; valid: a file for one of them",
            ));
        }
        if let Some(directory) = &outputs.hdr {
            let was_there = directory.exists();
            folder(directory)?;
            let tried = config.protocols.iter().try_for_each(|protocol| hdr_file(directory, protocol).map(drop));
            if !was_there {
                // It is made again when there is something to be put into it.
                let _ = std::fs::remove_dir(directory);
            }
            tried?;
        }
        Ok(outputs)
    }

    /// Whether stdout is for a machine.
    fn is_stdout(&self) -> bool {
        matches!(self.json, Json::Stdout) || matches!(self.csv, Json::Stdout)
    }

    /// Shows or writes each. What can't be written does not keep the rest from being written: the
    /// first failure is answered.
    fn write(&self, result: &ResultFile) -> Option<UserError> {
        let table = show::result(result);
        let mut failure = None;
        if self.is_stdout() {
            show::complain(table.trim_end());
        } else {
            failure = show::print(&table).err();
        }
        for (place, text) in [(&self.json, Ok(result.to_json())), (&self.csv, result.to_csv())] {
            let written = match (place, text) {
                (Json::Nowhere, _) => Ok(()),
                (_, Err(error)) => Err(error.into()),
                (Json::Stdout, Ok(text)) => show::print(&text),
                (Json::File(target), Ok(text)) => target.write_text(&text),
            };
            failure = failure.or(written.err());
        }
        if let Some(directory) = &self.hdr {
            for entry in &result.protocols {
                let Some(measured) = &entry.measured else { continue };
                let file = folder(directory).and_then(|directory| hdr_file(directory, &entry.protocol));
                failure = failure.or(file.and_then(|file| file.write_text(&measured.latency_distribution())).err());
            }
        }
        failure
    }
}

/// The file of an entry's latencies.
fn hdr_file(directory: &Path, protocol: &str) -> Result<Target, UserError> {
    Target::new(&directory.join(format!("{}.hgrm", protocol.replace('/', "_"))))
}

/// Shows a result, writes it where it was asked for, and says how the command ended.
fn deliver(result: &ResultFile, outputs: &Outputs, files: &[(&Target, String)]) -> Result<Status, UserError> {
    let mut failure = outputs.write(result);
    for (target, text) in files {
        failure = failure.or(target.write_text(text).err());
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if result.memory_ran_short {
        return Err(UserError::input(MEMORY));
    }
    Ok(match result {
        result if result.failed() => Status::CheckFailed,
        result if result.partial => Status::Interrupted,
        _ => Status::Good,
    })
}

const MEMORY: &str = "the run was ended because memory was nearly used up; what was measured until then is kept. This workload's \
                      tables grow while it runs: shorter or fewer windows, or fewer protocols at a time, need less";

/// What a run's failure means here.
fn interrupted<T>(error: RunError, stop: &Stop, good: impl FnOnce(Status) -> T) -> Result<T, UserError> {
    let is_stopped = matches!(error, RunError::Stopped);
    if is_stopped && stop.is_for_memory() {
        return Err(UserError::input(MEMORY));
    }
    if is_stopped && stop.is_requested() {
        show::complain("stopped before anything was measured (partial: nothing to show)");
        return Ok(good(Status::Interrupted));
    }
    Err(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_tested_is_not_good() {
        let good: fn() -> Tested = || Tested::Good("fine".into());
        let status = |all: &[fn() -> Tested], is_stopped| Tested::status(all.iter().map(|one| one()), is_stopped);
        let nothing: fn() -> Tested = || Tested::Nothing("it was not run");
        assert_eq!(status(&[good], false), Status::Good);
        assert_eq!(status(&[], false), Status::CheckFailed, "not even a test");
        assert_eq!(status(&[good, nothing], false), Status::CheckFailed);
        assert_eq!(status(&[good, nothing], true), Status::Interrupted);
        assert_eq!(status(&[good, || Tested::Bad("lost".into())], true), Status::CheckFailed);
        assert_eq!(nothing().words(), "NOTHING TESTED: it was not run");
    }

    #[test]
    fn tests_without_a_transaction_have_tested_nothing() {
        let is_nothing = |tested: Tested| matches!(tested, Tested::Nothing(_));
        let crashed = contend_proof::crash::Crashed { tests: 3, commits: 5, ..Default::default() };
        assert_eq!(crash::tested(&crashed), Tested::Good("nothing is lost".into()));
        let all_cut = contend_proof::crash::Crashed { cut: 3, ..crashed.clone() };
        let no_commit = contend_proof::crash::Crashed { commits: 0, ..crashed };
        assert!(is_nothing(crash::tested(&all_cut)) && is_nothing(crash::tested(&no_commit)));
        let killed = contend_proof::kill::Killed { kills: 9, acknowledged: 1, ..Default::default() };
        assert_eq!(kill::tested(&killed), Tested::Good("nothing is lost".into()));
        assert!(is_nothing(kill::tested(&contend_proof::kill::Killed { acknowledged: 0, ..killed })));
        let soaked = contend_proof::soak::Soaked { commits: 1, ..Default::default() };
        assert_eq!(soak::tested(&soaked), Tested::Good("memory is flat".into()));
        assert!(is_nothing(soak::tested(&contend_proof::soak::Soaked::default())));
    }
}
