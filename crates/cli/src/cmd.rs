//! The verbs, one file each, and what they share: where results go, and how a command ends.

pub(crate) mod advise;
pub(crate) mod analyse;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod crash;
pub(crate) mod determinism;
pub(crate) mod diff;
pub(crate) mod explore;
pub(crate) mod kill;
mod learn;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod saturate;
pub(crate) mod shell;
pub(crate) mod soak;
#[cfg(feature = "sql")]
pub(crate) mod sql;
pub(crate) mod sweep;
pub(crate) mod workload;

use std::io::Write;
use std::path::{Path, PathBuf};

use contend_history::History;
use contend_lab::ResultFile;
use contend_lab::interval_log::IntervalLog;
use contend_runner::{RunConfig, RunError, Stop};
use contend_workloads::ChosenWorkload;
use serde::Serialize;

use crate::args::{MeasureArgs, OutputArgs};
use crate::files::{RunFolder, Target, folder};
use crate::progress::{Bars, Lines};
use crate::{Status, UserError, show};

/// Where a text for machines goes.
enum Place {
    Nowhere,
    Stdout,
    File(Target),
}

impl Place {
    /// Returns the place that a flag names: no place without the flag, stdout for `-`.
    ///
    /// # Errors
    /// The file can't be written.
    fn new(path: Option<&Path>) -> Result<Self, UserError> {
        match path {
            None => Ok(Place::Nowhere),
            Some(path) if path == Path::new("-") => Ok(Place::Stdout),
            Some(path) => Target::new(path).map(Place::File),
        }
    }

    fn is_stdout(&self) -> bool {
        matches!(self, Place::Stdout)
    }

    /// Writes the text that `fill` makes, if there is a place for it.
    ///
    /// # Errors
    /// It can't be written.
    fn write(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), UserError> {
        match self {
            Place::Nowhere => Ok(()),
            Place::Stdout => show::print_by(fill),
            Place::File(target) => target.write(fill),
        }
    }

    /// Shows the text, and writes `all` as JSON. If the JSON goes to stdout, the text goes to
    /// stderr. If the text can't be shown, the JSON is written all the same.
    ///
    /// # Errors
    /// The JSON or the text can't be written.
    fn deliver<T: Serialize>(&self, text: &str, all: &[T]) -> Result<(), UserError> {
        let as_json = serde_json::to_string_pretty(all).expect("plain data") + "\n";
        let shown = show_beside(self.is_stdout(), text);
        shown.and(self.write(|file| file.write_all(as_json.as_bytes())))
    }
}

/// Shows a text for people: on stderr if stdout is for machines.
///
/// # Errors
/// Stdout can't be written.
fn show_beside(is_stdout_taken: bool, text: &str) -> Result<(), UserError> {
    if is_stdout_taken {
        show::complain(text.trim_end());
        return Ok(());
    }
    show::print(text)
}

/// Where a verb puts its page and its data.
struct Pages {
    json: Place,
    out: RunFolder,
    page: Target,
    data: Target,
}

impl Pages {
    /// Returns the places that the flags name, for the files `NAME.html` and `NAME.json`.
    ///
    /// # Errors
    /// A place can't be written. Each is tried, so that the command fails before anything runs.
    fn new(args: &OutputArgs, workload: &str, name: &str) -> Result<Self, UserError> {
        let json = Place::new(args.json.as_deref())?;
        let files = [format!("{name}.html"), format!("{name}.json")];
        let out = RunFolder::new(args.out.as_deref(), args.force, workload, &[&files[0], &files[1]])?;
        let (page, data) = (out.file(&files[0])?, out.file(&files[1])?);
        Ok(Pages { json, out, page, data })
    }

    /// Whether stdout is for the JSON, so that texts for people go to stderr.
    fn is_stdout(&self) -> bool {
        self.json.is_stdout()
    }

    /// Shows the text, and writes the page and the data. A failure does not keep the other forms
    /// from being written.
    ///
    /// # Errors
    /// The first failure.
    fn deliver<T: Serialize>(&self, text: &str, html: &str, all: &T) -> Result<(), UserError> {
        let as_json = serde_json::to_string_pretty(all).expect("plain data") + "\n";
        let (page, data) = (self.page.path().display(), self.data.path().display());
        let text = format!("{text}report: {page} · results: {data}\n");
        let written = [
            show_beside(self.is_stdout(), &text),
            self.page.write_text(html),
            self.data.write_text(&as_json),
            self.json.write(|file| file.write_all(as_json.as_bytes())),
        ];
        written.into_iter().collect::<Result<(), _>>()?;
        self.out.finish();
        Ok(())
    }
}

/// Refuses a name that is neither a workload's nor a file's. The verbs that take only files would
/// otherwise list workloads that they refuse.
///
/// # Errors
/// There is no such file. `valid` says what the verb takes.
fn check_there_is_a_file(workload: &str, valid: &str) -> Result<(), UserError> {
    let may_be_path = workload.contains(['/', '.']) || Path::new(workload).exists();
    if may_be_path || ChosenWorkload::registered(workload).is_some() {
        return Ok(());
    }
    Err(UserError::refused(format!("there is no workload file '{workload}'; valid: {valid}")))
}

/// The outcome of a test, in words.
#[derive(Debug, PartialEq, Eq)]
enum Tested {
    Good(String),
    /// Nothing was tested, so the absence of findings proves nothing.
    Nothing(&'static str),
    Bad(String),
}

impl Tested {
    /// Returns the words for a column of verdicts.
    fn words(&self) -> String {
        match self {
            Tested::Good(words) | Tested::Bad(words) => words.clone(),
            Tested::Nothing(why) => format!("NOTHING TESTED: {why}"),
        }
    }

    /// Returns how a command with these outcomes ends. If Ctrl-C stopped it, tests without a
    /// transaction are no failure.
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

/// Prints which protocols `all` leaves out, and why, to stderr.
///
/// # Errors
/// The workload or its options are not valid.
pub(crate) fn left_out(config: &RunConfig) -> Result<(), UserError> {
    if config.has_all() {
        config.refused()?.iter().for_each(|refusal| show::complain(&format!("left out: {}", refusal.why)));
    }
    Ok(())
}

/// Where a result goes, in each of its forms.
struct Outputs {
    json: Place,
    csv: Place,
    history: Place,
    /// The folder of the distributions of latencies.
    hdr: Option<PathBuf>,
    /// The interval log and its file.
    log: Option<(IntervalLog, Target)>,
}

/// The extension by which --hdr names an interval log and no folder.
const INTERVAL_LOG: &str = "hlog";

impl Outputs {
    /// Returns the places that the flags name.
    ///
    /// # Errors
    /// A place can't be written. Each is tried, so that the command fails before anything runs.
    fn new(args: &MeasureArgs, history: Option<&Path>, config: &RunConfig) -> Result<Self, UserError> {
        let is_log = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == INTERVAL_LOG);
        let log = args.hdr.as_ref().filter(is_log).map(|path| Target::new(path)).transpose()?;
        let outputs = Outputs {
            json: Place::new(args.json.as_deref())?,
            csv: Place::new(args.csv.as_deref())?,
            history: Place::new(history)?,
            hdr: args.hdr.clone().filter(|path| !is_log(&path)),
            log: log.map(|file| (IntervalLog::default(), file)),
        };
        let on_stdout: Vec<&str> =
            outputs.places().filter(|(_, place)| place.is_stdout()).map(|(flag, _)| flag).collect();
        if let [first, second, ..] = on_stdout[..] {
            return Err(UserError::refused(format!(
                "{first} - and {second} - would both go to stdout; valid: a file for one of them"
            )));
        }
        if let Some(directory) = &outputs.hdr {
            let was_there = directory.exists();
            folder(directory)?;
            let tried = config.protocols.iter().try_for_each(|protocol| hdr_file(directory, protocol).map(drop));
            if !was_there {
                // The folder is made again once there are files for it.
                let _ = std::fs::remove_dir(directory);
            }
            tried?;
        }
        Ok(outputs)
    }

    /// Returns the places of texts for machines, each with its flag.
    fn places(&self) -> impl Iterator<Item = (&'static str, &Place)> {
        [("--json", &self.json), ("--csv", &self.csv), ("--history", &self.history)].into_iter()
    }

    /// Whether stdout is for machines, so that texts for people go to stderr.
    fn is_stdout(&self) -> bool {
        self.places().any(|(_, place)| place.is_stdout())
    }

    /// Returns the observer of the run, which prints a line for each window if that was asked for.
    fn bars(&self, args: &MeasureArgs) -> Bars<'_> {
        let lines = match (&args.open_loop.every, self.is_stdout()) {
            (None, _) => Lines::None,
            (Some(_), false) => Lines::Stdout,
            (Some(_), true) => Lines::Stderr,
        };
        Bars::with_lines(lines, self.log.as_ref().map(|(log, _)| log))
    }

    /// Shows the result and writes each of its forms. A failure does not keep the other forms from
    /// being written. Returns the first failure.
    fn write(&self, result: &ResultFile) -> Option<UserError> {
        let mut failure = show_beside(self.is_stdout(), &show::result(result)).err();
        for (place, text) in [(&self.json, Ok(result.to_json())), (&self.csv, result.to_csv())] {
            let written = match (place, text) {
                (Place::Nowhere, _) => Ok(()),
                (_, Err(error)) => Err(error.into()),
                (place, Ok(text)) => place.write(|file| file.write_all(text.as_bytes())),
            };
            failure = failure.or(written.err());
        }
        if let Some((log, file)) = &self.log {
            failure = failure.or(file.write(|file| log.write(result, file)).err());
        }
        if let Some(directory) = &self.hdr {
            let mut write = |name: &str, text: &str| {
                let file = folder(directory).and_then(|directory| hdr_file(directory, name));
                failure = failure.take().or(file.and_then(|file| file.write_text(text)).err());
            };
            for entry in &result.protocols {
                let Some(measured) = &entry.measured else { continue };
                write(&entry.protocol, &measured.latency_distribution());
                if let Some(responses) = measured.response_distribution() {
                    write(&format!("{}.response", entry.protocol), &responses);
                }
            }
        }
        failure
    }
}

/// Returns the file of an entry's latencies.
///
/// # Errors
/// As [`Target::new`].
fn hdr_file(directory: &Path, protocol: &str) -> Result<Target, UserError> {
    Target::new(&directory.join(format!("{}.hgrm", protocol.replace('/', "_"))))
}

/// Shows a result, writes it and its history to `outputs` and `files`, and returns how the command
/// ends. A failure does not keep the other forms from being written.
///
/// # Errors
/// A file can't be written, or the run was ended because memory ran short.
fn deliver(
    result: &ResultFile,
    history: Option<&History>,
    outputs: &Outputs,
    files: &[(&Target, String)],
) -> Result<Status, UserError> {
    let mut failure = outputs.write(result);
    for (target, text) in files {
        failure = failure.or(target.write_text(text).err());
    }
    if let Some(history) = history {
        failure = failure.or(outputs.history.write(|file| history.write_json_lines(file)).err());
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if result.memory_ran_short {
        return Err(UserError::refused(MEMORY));
    }
    Ok(match result {
        result if result.failed() => Status::CheckFailed,
        result if result.partial => Status::Interrupted,
        _ => Status::Good,
    })
}

/// The message of a run that ended because memory ran short.
pub(crate) const MEMORY: &str = "the run was ended because memory was nearly used up; what was measured until then is kept. This workload's \
                      tables grow while it runs: shorter or fewer windows, or fewer protocols at a time, need less";

/// Returns how a command ends that Ctrl-C stopped before it had a result.
///
/// # Errors
/// The run failed for another reason.
fn interrupted(error: RunError, stop: &Stop) -> Result<Status, UserError> {
    unless_stopped::<()>(Err(error), stop)?;
    show::complain("stopped before anything was measured (partial: nothing to show)");
    Ok(Status::Interrupted)
}

/// Returns the outcome of a run, or `None` if a request stopped it before it had one.
///
/// # Errors
/// The run failed for another reason.
pub(crate) fn unless_stopped<T>(outcome: Result<T, RunError>, stop: &Stop) -> Result<Option<T>, UserError> {
    match outcome {
        Ok(outcome) => Ok(Some(outcome)),
        Err(RunError::Stopped) if stop.is_for_memory() => Err(UserError::refused(MEMORY)),
        Err(RunError::Stopped) if stop.is_requested() => Ok(None),
        Err(error) => Err(error.into()),
    }
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
        let crashed = contend_proof::crash::Crashed { tests: 3, commits: 5, acknowledged: 1, ..Default::default() };
        assert_eq!(crash::tested(&crashed), Tested::Good("nothing is lost".into()));
        let all_cut = contend_proof::crash::Crashed { cut: 3, ..crashed.clone() };
        let none_acknowledged = contend_proof::crash::Crashed { acknowledged: 0, ..crashed };
        assert!(is_nothing(crash::tested(&all_cut)) && is_nothing(crash::tested(&none_acknowledged)));
        let killed = contend_proof::kill::Killed { kills: 9, acknowledged: 1, ..Default::default() };
        assert_eq!(kill::tested(&killed), Tested::Good("nothing is lost".into()));
        assert!(is_nothing(kill::tested(&contend_proof::kill::Killed { acknowledged: 0, ..killed })));
        let soaked = contend_proof::soak::Soaked { commits: 1, ..Default::default() };
        assert_eq!(soak::tested(&soaked), Tested::Good("memory is flat".into()));
        assert!(is_nothing(soak::tested(&contend_proof::soak::Soaked::default())));
    }
}
