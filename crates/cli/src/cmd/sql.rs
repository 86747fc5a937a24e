//! `contend sql`.

use std::any::Any;

use contend_history::History;
use contend_lab::{ResultFile, compare};
use contend_runner::Stop;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::units::{show_latency, show_percent, show_rate};
use contend_sql::result::OpenLoop;
use contend_sql::run::{SqlConfig, SqlError, Watcher, run as run_levels};
use contend_sql::{SqlResult, litmus};
use contend_workloads::file::view::View;
use contend_workloads::file::{FileOptions, FileWorkload};
use contend_workloads::{Workload, WorkloadInfo};
use serde::Serialize;

use super::{Place, interrupted};
use crate::args::{LITMUS, SqlArgs};
use crate::files::{RunFolder, Target};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// The file of the result in the folder of --out.
const DATA: &str = "sql.json";

/// What a run of `contend sql` writes.
#[derive(Serialize)]
struct Written<'a> {
    sql: &'a SqlResult,
    /// The engine's runs of the same file.
    beside: Option<&'a ResultFile>,
}

pub(crate) fn run(args: &SqlArgs) -> Result<Status, UserError> {
    let config = args.config()?;
    if args.file == LITMUS {
        return run_litmus(args, &config);
    }
    let plan = args.workload()?.resolve()?;
    let [measured, verified] = plan.workload.visit(Views)?;
    // A protocol that is not there is refused before the database is touched.
    args.beside(0.0)?.map(|config| config.resolve()).transpose()?;
    let json = Place::new(args.json.as_deref())?;
    let history = Place::new(args.history.as_deref())?;
    if json.is_stdout() && history.is_stdout() {
        return Err(UserError::refused(
            "--json - and --history - would both go to stdout; valid: a file for one of them",
        ));
    }
    let out = args.out.as_deref().map(|path| RunFolder::new(Some(path), args.force, &args.file, &[DATA]));
    let out = out.transpose()?;
    let data = out.as_ref().map(|out| out.file(DATA)).transpose()?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let watching = Watching { stop: &stop, bars: &bars, out: out.as_ref(), history: &history };
    let outcome = run_levels(&config, &args.file, &measured, &verified, &watching);
    watching.end();
    let result = outcome.map_err(error_of)?;
    let beside = match args.beside(result.round_trip_us)? {
        Some(config) if !stop.is_requested() => match compare(&config.resolve()?, &stop, &bars) {
            Ok(beside) => Some(beside),
            Err(error) => return interrupted(error, &stop),
        },
        _ => None,
    };
    let written = Written { sql: &result, beside: beside.as_ref() };
    let as_json = serde_json::to_string_pretty(&written).expect("plain data") + "\n";
    let text = text(&result, beside.as_ref());
    if json.is_stdout() || history.is_stdout() {
        show::complain(text.trim_end());
    } else {
        show::print(&text)?;
    }
    json.write(|file| file.write_all(as_json.as_bytes()))?;
    data.as_ref().map_or(Ok(()), |data: &Target| data.write_text(&as_json))?;
    if let Some(out) = &out {
        out.finish();
    }
    let beside_failed = beside.as_ref().is_some_and(ResultFile::failed);
    Ok(match () {
        () if result.failed() || beside_failed => Status::CheckFailed,
        () if result.partial || stop.is_requested() => Status::Interrupted,
        () => Status::Good,
    })
}

/// Runs the table of anomalies.
fn run_litmus(args: &SqlArgs, config: &SqlConfig) -> Result<Status, UserError> {
    if let Some(flag) = args.flag_of_files() {
        return Err(UserError::refused(format!(
            "{flag} belongs to a workload file; valid with {LITMUS}: --isolation, --json"
        )));
    }
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let watching = Watching { stop: &stop, bars: &bars, out: None, history: &Place::Nowhere };
    let outcome = litmus::run(&config.target, &config.levels, &watching);
    watching.end();
    let result = outcome.map_err(error_of)?;
    let levels = result.levels.iter().map(|level| level.name);
    let mut table = show::table(std::iter::once("anomaly").chain(levels));
    for row in &result.rows {
        let cells = row.outcomes.iter().map(|outcome| outcome.words());
        table.add_row(std::iter::once(row.name.to_owned()).chain(cells));
    }
    let broken: String = result.broken().iter().map(|line| format!("BROKEN: {line}\n")).collect();
    let text = format!("anomalies on {} ({})\n{table}\n{broken}", result.server, result.database);
    json.deliver(&text, std::slice::from_ref(&result))?;
    Ok(match () {
        () if !result.broken().is_empty() => Status::CheckFailed,
        () if result.partial => Status::Interrupted,
        () => Status::Good,
    })
}

fn error_of(error: SqlError) -> UserError {
    match error {
        SqlError::Refused(message) => UserError::refused(message),
        SqlError::Failed(message) => UserError::failed(message),
    }
}

/// Reads a workload file as statements: of the user's size, and of the size for proofs.
struct Views;

impl PlannedWorkloadVisitor for Views {
    type Output = Result<[View; 2], UserError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let Some(options) = (options as &dyn Any).downcast_ref::<FileOptions>() else {
            return Err(UserError::refused(format!(
                "{} is a workload of the list, which has no SQL; valid: the path of a workload file, or {LITMUS}",
                info.name
            )));
        };
        let verified = FileWorkload::for_verification(options);
        let views = View::new(options).and_then(|measured| Ok([measured, View::new(&verified)?]));
        views.map_err(UserError::refused)
    }
}

/// Shows what goes on, and keeps histories.
struct Watching<'a> {
    stop: &'a Stop,
    bars: &'a Bars<'a>,
    out: Option<&'a RunFolder>,
    history: &'a Place,
}

impl Watching<'_> {
    fn end(&self) {
        contend_runner::Observer::end(self.bars);
    }
}

impl Watcher for Watching<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    fn begin(&self, what: &str) {
        self.end();
        contend_runner::Observer::begin(self.bars, what, 1);
    }

    fn history(&self, level: &str, history: &History) -> Result<(), String> {
        let words = |error: UserError| error.message;
        self.history.write(|file| history.write_json_lines(file)).map_err(words)?;
        let Some(out) = self.out else { return Ok(()) };
        let file = out.file(&format!("history-{level}.jsonl")).map_err(words)?;
        file.write(|file| history.write_json_lines(file)).map_err(words)
    }
}

/// Returns the tables of a result.
fn text(result: &SqlResult, beside: Option<&ResultFile>) -> String {
    let SqlResult { workload, server, clients, round_trip_us, .. } = result;
    let mut text = format!(
        "{workload} on {server} ({}), {clients} clients, round trip {}\n",
        result.database,
        show_latency((round_trip_us * 1e3) as u64)
    );
    let mut table = show::table(["level", "/s", "aborts", "p99", "judged by", "found"]).numbers([1, 3]);
    for of in &result.levels {
        let measured = &of.measured;
        let mut aborts = show_percent(measured.abort_rate);
        let tries = (measured.counts.commits + measured.counts.cancelled + measured.counts.aborts()).max(1) as f64;
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
        if let Some(OpenLoop { rate_tps, offered, not_begun, saturated }) = &of.measured.open_loop {
            let rate = show_rate(*rate_tps);
            text += &format!("{}: {rate}/s arrived, {not_begun} of {offered} were not begun at the end", of.level.name);
            text += if *saturated { ": saturated, so latencies are lower bounds\n" } else { "\n" };
        }
        if let Some(worst) = of.verified.worst.as_ref().filter(|_| !of.verified.kept) {
            text += &format!("{}: {worst}\n", of.level.name);
        }
        of.verified.losses.examples.iter().for_each(|sentence| text += &format!("{}: {sentence}\n", of.level.name));
        for (run, failed) in
            [("measured", &of.measured.failed_invariants), ("recorded", &of.verified.failed_invariants)]
        {
            failed.iter().for_each(|sentence| text += &format!("{}, {run} run: {sentence}\n", of.level.name));
        }
    }
    if result.partial {
        text += "PARTIAL: the run was stopped before its end.\n";
    }
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
