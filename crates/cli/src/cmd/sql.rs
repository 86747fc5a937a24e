//! `contend sql`.

use std::any::Any;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use contend_history::History;
use contend_lab::{ResultFile, compare, report};
use contend_model::{Options, counted};
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::units::{show_latency, show_percent, show_rate};
use contend_runner::{Observer, Stop};
use contend_sql::run::{SqlError, Watcher, run as run_levels};
use contend_sql::{SqlResult, litmus};
use contend_workloads::file::view::View;
use contend_workloads::file::{FileOptions, FileWorkload};
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use super::{Place, check_there_is_a_file, show_beside, unless_stopped};
use crate::args::{LITMUS, SqlArgs};
use crate::files::{RESULT_FILE, RunFolder, Target};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// The page in the folder of --out.
const PAGE: &str = "report.html";

/// What a run of `contend sql` writes.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    sql: SqlResult,
    /// The engine's runs of the same file.
    beside: Option<ResultFile>,
    /// Whether the run was stopped before its end.
    #[serde(skip)]
    is_stopped: bool,
    /// Why the run failed when it had figures.
    #[serde(skip)]
    failure: Option<UserError>,
}

impl Compared {
    /// Returns how the run ended.
    pub(crate) fn status(&self) -> Status {
        match () {
            () if self.sql.failed() || self.beside.as_ref().is_some_and(ResultFile::failed) => Status::CheckFailed,
            () if self.failure.is_some() => Status::CheckFailed,
            () if self.sql.partial || self.is_stopped => Status::Interrupted,
            () => Status::Good,
        }
    }

    /// Whether something was not run.
    pub(crate) fn is_partial(&self) -> bool {
        self.sql.partial || self.is_stopped || self.failure.is_some()
    }

    /// Returns the page of the result.
    pub(crate) fn page(&self, args: &SqlArgs) -> String {
        report::sql_html(&self.sql, self.beside.as_ref(), &args.command(&self.sql))
    }

    /// Returns the tables of the result.
    fn text(&self) -> String {
        text(&self.sql, self.beside.as_ref())
    }

    /// Returns the tables of the result, and the error that ended the run.
    pub(crate) fn text_with_error(&self) -> String {
        let mut text = self.text();
        self.sql.error.iter().for_each(|error| text += &format!("error: {error}\n"));
        text
    }
}

/// Keeps the history of a level. A failure does not end the run.
type Keep<'a> = &'a (dyn Fn(&str, &History) + Sync);

/// Runs a workload file at each level, and beside it on the engine. `keep` gets each history. A
/// failure after the first figures is part of the outcome.
///
/// # Errors
/// The arguments are refused, or the database fails before there are figures.
pub(crate) fn measured(
    args: &SqlArgs,
    stop: &Stop,
    observer: &dyn Observer,
    keep: Keep<'_>,
) -> Result<Compared, UserError> {
    let config = args.config()?;
    args.check_beside()?;
    check_there_is_a_file(&args.file, &format!("the path of a workload file, or {LITMUS}"))?;
    let plan = args.workload()?.resolve()?;
    let [measured, verified] = plan.workload.visit(Views(args))?;
    // A protocol that is not there is refused before the database is touched.
    args.beside(0.0)?.map(|config| config.resolve()).transpose()?;
    let watching = Watching { stop, observer, keep };
    let outcome = run_levels(&config, &args.file, &measured, &verified, &watching);
    observer.end();
    let mut sql = outcome.map_err(error_of)?;
    let mut failure = sql.error.clone().map(UserError::failed);
    let mut beside = None;
    if failure.is_none() && !stop.is_requested() {
        match run_beside(args, sql.round_trip_us, stop, observer) {
            Ok(result) => beside = result,
            Err(UserError { message, status }) => {
                let message = format!("--beside: {message}");
                sql.error = Some(message.clone());
                failure = Some(UserError { message, status });
            }
        }
    }
    Ok(Compared { sql, beside, is_stopped: stop.is_requested(), failure })
}

/// Runs the file on the engine, if that is asked for.
fn run_beside(
    args: &SqlArgs,
    round_trip_us: f64,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Option<ResultFile>, UserError> {
    let Some(config) = args.beside(round_trip_us)? else { return Ok(None) };
    unless_stopped(compare(&config.resolve()?, stop, observer), stop)
}

/// Returns how a command ends that has written its results as far as it could: with the error of
/// the run, followed by that of a file.
fn ended(failure: Option<UserError>, of_file: Option<UserError>, status: Status) -> Result<Status, UserError> {
    match (failure, of_file) {
        (Some(first), Some(second)) => {
            Err(UserError { message: format!("{}; {}", first.message, second.message), status: first.status })
        }
        (first, second) => first.or(second).map_or(Ok(status), Err),
    }
}

pub(crate) fn run(args: &SqlArgs) -> Result<Status, UserError> {
    if args.file == LITMUS {
        return run_litmus(args);
    }
    let json = Place::new(args.json.as_deref())?;
    let history = Place::new(args.history.as_deref())?;
    if let (Some(one), false) = (&args.json, json.is_stdout())
        && args.history.as_ref() == Some(one)
    {
        let one = one.display();
        return Err(UserError::refused(format!(
            "--json and --history would both go to {one}; valid: another file for one of them"
        )));
    }
    if json.is_stdout() && history.is_stdout() {
        return Err(UserError::refused(
            "--json - and --history - would both go to stdout; valid: a file for one of them",
        ));
    }
    let out = Out::new(args)?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    // A history that can't be written must not end the run: the figures are shown all the same.
    let lost = Mutex::new(None);
    let keep = |level: &str, found: &History| {
        let fill = |file: &mut dyn Write| found.write_json_lines(file);
        let whole = history.write(fill);
        let of_level =
            || out.as_ref().map_or(Ok(()), |out| out.folder.file(&format!("history-{level}.jsonl"))?.write(fill));
        let error = whole.err().or(of_level().err());
        let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
        *lost = lost.take().or(error);
    };
    let mut compared = measured(args, &stop, &bars, &keep)?;
    let as_json = serde_json::to_string_pretty(&compared).expect("plain data") + "\n";
    let mut text = compared.text();
    text += &out.as_ref().map(Out::line).unwrap_or_default();
    let shown = show_beside(json.is_stdout() || history.is_stdout(), &text);
    let mut failure = lost.into_inner().unwrap_or_else(PoisonError::into_inner).or(shown.err());
    failure = failure.or(json.write(|file| file.write_all(as_json.as_bytes())).err());
    if let Some(out) = &out {
        failure = failure.or(out.write(&compared.page(args), &as_json).err());
    }
    let status = compared.status();
    ended(compared.failure.take(), failure, status)
}

/// The folder of --out, with its page and its data.
struct Out {
    folder: RunFolder,
    page: Target,
    data: Target,
}

impl Out {
    /// Returns the folder, if one is asked for.
    ///
    /// # Errors
    /// It can't be made, or has such files already, or they can't be written.
    fn new(args: &SqlArgs) -> Result<Option<Out>, UserError> {
        let Some(path) = &args.out else { return Ok(None) };
        let folder = RunFolder::new(Some(path), args.force, &args.file, &[PAGE, RESULT_FILE])?;
        let (page, data) = (folder.file(PAGE)?, folder.file(RESULT_FILE)?);
        Ok(Some(Out { folder, page, data }))
    }

    /// Says where the files are.
    fn line(&self) -> String {
        format!("report: {} · results: {}\n", self.page.path().display(), self.data.path().display())
    }

    /// Writes the files. A failure of one does not keep the other from being written.
    ///
    /// # Errors
    /// The first failure.
    fn write(&self, page: &str, data: &str) -> Result<(), UserError> {
        let written = self.page.write_text(page);
        written.and(self.data.write_text(data))
    }
}

/// Runs the table of anomalies.
fn run_litmus(args: &SqlArgs) -> Result<Status, UserError> {
    let (target, levels) = args.litmus()?;
    let json = Place::new(args.json.as_deref())?;
    let out = Out::new(args)?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let watching = Watching { stop: &stop, observer: &bars, keep: &|_, _| () };
    let outcome = litmus::run(&target, &levels, &watching);
    bars.end();
    let result = outcome.map_err(error_of)?;
    let levels = result.levels.iter().map(|level| level.name);
    let mut table = show::table(std::iter::once("anomaly").chain(levels));
    for row in &result.rows {
        let cells = row.outcomes.iter().map(|outcome| outcome.words());
        table.add_row(std::iter::once(row.name.to_owned()).chain(cells));
    }
    let broken: String = result.broken().iter().map(|line| format!("BROKEN: {line}\n")).collect();
    let mut text = format!("anomalies on {} ({})\n{table}\n{broken}", result.server, result.database);
    text += partial(result.partial, result.error.as_ref());
    text += &out.as_ref().map(Out::line).unwrap_or_default();
    let all = std::slice::from_ref(&result);
    let mut failure = json.deliver(&text, all).err();
    if let Some(out) = &out {
        let as_json = serde_json::to_string_pretty(all).expect("plain data") + "\n";
        let page = report::sql_litmus_html(&result, &args.litmus_command(&result));
        failure = failure.or(out.write(&page, &as_json).err());
    }
    let status = match () {
        () if !result.broken().is_empty() => Status::CheckFailed,
        () if result.partial => Status::Interrupted,
        () => Status::Good,
    };
    ended(result.error.map(UserError::failed), failure, status)
}

/// Says that a result is not whole.
fn partial(is_partial: bool, error: Option<&String>) -> &'static str {
    match (is_partial, error) {
        (false, _) => "",
        (true, None) => "PARTIAL: the run was stopped before its end.\n",
        (true, Some(_)) => "PARTIAL: the run failed before its end.\n",
    }
}

fn error_of(error: SqlError) -> UserError {
    match error {
        SqlError::Refused(message) => UserError::refused(message),
        SqlError::Failed(message) => UserError::failed(message),
    }
}

/// Reads a workload file as statements: of the user's size, and of the size for proofs.
struct Views<'a>(&'a SqlArgs);

impl PlannedWorkloadVisitor for Views<'_> {
    type Output = Result<[View; 2], UserError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let Some(options) = (options as &dyn Any).downcast_ref::<FileOptions>() else {
            return Err(UserError::refused(format!(
                "{} is a workload of the list, which has no SQL; valid: the path of a workload file, or {LITMUS}",
                info.name
            )));
        };
        let parameters: Vec<&str> = options.values().iter().map(|(name, _)| *name).collect();
        self.0.check_settings(&parameters)?;
        let verified = FileWorkload::for_verification(options);
        let views = View::new(options).and_then(|measured| Ok([measured, View::new(&verified)?]));
        views.map_err(UserError::refused)
    }
}

/// Shows what goes on, and keeps histories.
struct Watching<'a> {
    stop: &'a Stop,
    observer: &'a dyn Observer,
    keep: Keep<'a>,
}

impl Watcher for Watching<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    fn begin(&self, what: &str) {
        self.observer.end();
        self.observer.begin(what, 1);
    }

    fn history(&self, level: &str, history: &History) {
        (self.keep)(level, history);
    }
}

/// Returns the tables of a result.
fn text(result: &SqlResult, beside: Option<&ResultFile>) -> String {
    let SqlResult { workload, server, clients, round_trip_us, .. } = result;
    let mut text = format!(
        "{workload} on {server} ({}), {}, round trip {}\n",
        result.database,
        counted(*clients, "client"),
        show_latency((round_trip_us * 1e3) as u64)
    );
    let mut table = show::table(["level", "/s", "aborts", "p99", "judged by", "found"]).numbers([1, 3]);
    for of in &result.levels {
        let measured = &of.measured;
        let mut aborts = show_percent(measured.abort_rate);
        let tries = measured.counts.tries().max(1) as f64;
        for (reason, count) in &measured.counts.aborts_by_reason {
            aborts += &format!("\n{reason} {}", show_percent(*count as f64 / tries));
        }
        let p99 = measured
            .kinds
            .iter()
            .filter(|kind| kind.commits > 0)
            .map(|kind| format!("{} {}", kind.kind, show_latency((kind.p99_us * 1e3) as u64)));
        table.add_row([
            of.level.name.to_owned(),
            show_rate(measured.throughput_tps),
            aborts,
            p99.collect::<Vec<_>>().join("\n"),
            of.level.promise.name().to_owned(),
            of.found(),
        ]);
    }
    text += &format!("{table}\n");
    for of in &result.levels {
        if let Some(open) = &of.measured.open_loop {
            text += &format!("{}: {}\n", of.level.name, report::sql_arrivals(open));
        }
        if let Some(verified) = &of.verified {
            if let Some(worst) = verified.worst.as_ref().filter(|_| !verified.kept) {
                text += &format!("{}: {worst}\n", of.level.name);
            }
            verified.losses.examples.iter().for_each(|sentence| text += &format!("{}: {sentence}\n", of.level.name));
        }
        for (run, sentence) in of.failed_invariants() {
            text += &format!("{}, {run} run: {sentence}\n", of.level.name);
        }
    }
    text += partial(result.partial, result.error.as_ref());
    let Some(beside) = beside else { return text };
    text += "what protocols do with the same transactions, clients and round trips, in memory, no SQL, no disk:\n";
    let mut table = show::table(["protocol", "/s", "aborts", "p99", "verified"]).numbers([1, 3]);
    for entry in &beside.protocols {
        let Some(measured) = &entry.measured else { continue };
        table.add_row([
            entry.protocol.clone(),
            show_rate(measured.throughput_tps.median),
            show_percent(measured.abort_rate),
            show_latency(measured.latency_ns_p99),
            match &entry.verification {
                _ if entry.failed() => "FAILED".into(),
                Some(verification) => verification.verdict.clone(),
                None => "not verified".into(),
            },
        ]);
    }
    text += &format!("{table}\n");
    text
}
