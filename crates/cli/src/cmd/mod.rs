//! One file a verb.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod crash;
pub(crate) mod explore;
pub(crate) mod kill;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod run;
pub(crate) mod soak;
pub(crate) mod sweep;

use std::path::Path;

use contend_lab::config::ALL;
use contend_lab::{LabError, ResultFile, RunConfig, Stop};

use crate::files::Target;
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

/// Shows a result, writes it where it was asked for, and says how the command ended.
fn deliver(result: &ResultFile, json: &Json, files: &[(&Target, String)]) -> Result<Status, UserError> {
    let table = show::result(result);
    // What can't be written must not keep the rest from being written.
    let mut failure = match json {
        Json::Stdout => {
            show::complain(table.trim_end());
            show::print(&result.to_json()).err()
        }
        _ => show::print(&table).err(),
    };
    if let Json::File(target) = json {
        failure = target.write_text(&result.to_json()).err().or(failure);
    }
    for (target, text) in files {
        failure = target.write_text(text).err().or(failure);
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
