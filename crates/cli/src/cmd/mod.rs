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

use contend_lab::config::ALL;
use contend_lab::{LabError, ResultFile, RunConfig, Stop};

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
            return Err(UserError(
                "--json - and --csv - would both go to stdout; valid: a file for one of them".into(),
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

    /// Shows or writes each. What can't be written does not keep the rest from being written: the first failure is answered.
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
        return Err(UserError(MEMORY.into()));
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
fn interrupted<T>(error: LabError, stop: &Stop, good: impl FnOnce(Status) -> T) -> Result<T, UserError> {
    if error == LabError::Stopped && stop.is_for_memory() {
        return Err(UserError(MEMORY.into()));
    }
    if error == LabError::Stopped && stop.is_requested() {
        show::complain("stopped before anything was measured (partial: nothing to show)");
        return Ok(good(Status::Interrupted));
    }
    Err(error.into())
}
