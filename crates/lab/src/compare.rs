//! The main job: several protocols on one workload, proved right, measured in turns, ranked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use contend_engine::abort::AbortCounts;
use contend_engine::{AbortReason, Isolation};
use hdrhistogram::Histogram;

use crate::bed::{Bed, Count, KindCount, Purpose, Span, bed};
use crate::config::{Entrant, LabError, RunConfig};
use crate::environment;
use crate::recording::Recorded;
use crate::result::{
    Check, KindResult, Measured, ProtocolResult, ResultFile, SCHEMA_VERSION, Spread, Verification, Window,
};
use crate::verify::{verify, verify_history};
use crate::watch::{Observer, Stop};

/// The protocol that is the upper bound.
const UPPER_BOUND: &str = "none";
/// A history of more transactions than this is more than memory and patience hold: a recorded run ends there.
pub const RECORDED_MAX: u64 = 200_000;

/// A result, and the history if one was recorded.
#[derive(Debug)]
pub struct Outcome {
    /// The result.
    pub result: ResultFile,
    /// The history.
    pub recorded: Option<Recorded>,
}

/// One protocol on its way.
struct Entry {
    bed: Option<Box<dyn Bed>>,
    protocol: String,
    isolation: Isolation,
    verification: Option<Verification>,
    load_seconds: f64,
    loaded_bytes: u64,
    windows: Vec<(usize, Count)>,
    check: Option<Check>,
}

/// Verifies, loads, measures and checks all protocols of the configuration.
///
/// # Errors
/// Bad input; or the run was stopped before there was anything to show.
pub fn compare(config: &RunConfig, stop: &Stop, observer: &dyn Observer) -> Result<ResultFile, LabError> {
    run(config, Purpose::Measure, stop, observer).map(|outcome| outcome.result)
}

/// As [`compare`], of one protocol, with a history of the windows, and without warm-up. The run ends after [`RECORDED_MAX`]
/// transactions.
///
/// # Errors
/// As [`compare`]; or there is more than one protocol.
pub fn record(config: &RunConfig, stop: &Stop, observer: &dyn Observer) -> Result<Outcome, LabError> {
    if config.protocols.len() > 1 {
        return Err(LabError::BadInput("a history is recorded of one protocol at a time".into()));
    }
    run(config, Purpose::Record, stop, observer)
}

fn run(config: &RunConfig, purpose: Purpose, stop: &Stop, observer: &dyn Observer) -> Result<Outcome, LabError> {
    let config = config.validated()?;
    config.check_memory()?;
    let started_unix_seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let start = Instant::now();
    let mut entries = Vec::new();
    for entrant in &config.entrants()? {
        let verification = if config.verify { verify(&config, entrant, stop, observer)? } else { None };
        if stop.is_requested() {
            return Err(LabError::Stopped);
        }
        entries.push(Entry::new(&config, entrant, purpose, verification)?);
    }
    for entry in &mut entries {
        entry.load(stop, observer)?;
    }
    if stop.is_requested() {
        return Err(LabError::Stopped);
    }
    let environment = environment::here();
    measure(&config, &mut entries, purpose, stop, observer)?;
    let mut recorded = None;
    if purpose == Purpose::Record {
        recorded = entries[0].judge_history();
    }
    for entry in &mut entries {
        entry.check(observer);
    }
    if entries.iter().all(|entry| entry.windows.is_empty() && !entry.refused()) {
        return Err(LabError::Stopped);
    }
    let options = entries.iter().find_map(|entry| entry.bed.as_ref()).map(|bed| bed.workload_options());
    let mut protocols: Vec<ProtocolResult> =
        entries.into_iter().map(|entry| entry.finish(purpose == Purpose::Record)).collect();
    let upper_bound = protocols.iter().find(|result| result.protocol == UPPER_BOUND).and_then(median);
    for result in &mut protocols {
        if let (Some(measured), Some(upper_bound)) = (&mut result.measured, upper_bound) {
            measured.share_of_none = Some(measured.throughput_tps.median / upper_bound);
        }
    }
    protocols.sort_by(|a, b| median(b).unwrap_or(-1.0).total_cmp(&median(a).unwrap_or(-1.0)));
    let mut result = ResultFile {
        schema_version: SCHEMA_VERSION,
        partial: stop.is_requested(),
        memory_ran_short: stop.is_for_memory(),
        started_unix_seconds,
        elapsed_seconds: start.elapsed().as_secs_f64(),
        options: options.unwrap_or_default(),
        environment,
        config,
        protocols,
        finding: String::new(),
    };
    result.finding = finding(&result);
    Ok(Outcome { result, recorded })
}

fn median(result: &ProtocolResult) -> Option<f64> {
    result.measured.as_ref().map(|measured| measured.throughput_tps.median)
}

/// Rounds of windows, a protocol each, in an order that rotates from round to round.
fn measure(
    config: &RunConfig,
    entries: &mut [Entry],
    purpose: Purpose,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<(), LabError> {
    // A warm-up would fill the history before the first window.
    let warmup = if purpose == Purpose::Record { 0.0 } else { config.warmup_seconds };
    let window = config.window_seconds;
    let runs = entries.iter().filter(|entry| !entry.refused()).count() as f64;
    let windows = config.windows as f64;
    let seconds = runs * (windows * window + warmup + (windows - 1.0) * warmup / 10.0);
    observer.begin("measuring", (seconds * 1e3) as u64);
    let mut left = (purpose == Purpose::Record).then_some(RECORDED_MAX);
    for round in 0..config.windows {
        for turn in 0..entries.len() {
            let entry = &mut entries[(round + turn) % entries.len()];
            if entry.refused() {
                continue;
            }
            let Some(bed) = &mut entry.bed else { continue };
            let warmup = if round == 0 { warmup } else { warmup / 10.0 };
            span(&mut **bed, warmup, &mut left, stop, observer)?;
            if round == 0 {
                bed.reset_latencies();
            }
            let count = span(&mut **bed, window, &mut left, stop, observer)?;
            // A window that was cut short counts if it was long enough to mean something.
            if count.seconds >= window / 2.0 || left.is_some() && count.commits > 0 {
                entry.windows.push((round + 1, count));
            }
            if stop.is_requested() || left == Some(0) {
                observer.end();
                return Ok(());
            }
        }
    }
    observer.end();
    Ok(())
}

/// Runs for so many seconds, or until there is no room left in the history.
fn span(
    bed: &mut dyn Bed,
    seconds: f64,
    left: &mut Option<u64>,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Count, LabError> {
    let span = Span { length: Duration::from_secs_f64(seconds), transactions_max: *left };
    let count = bed.run(span, stop, &|milliseconds| observer.advance(milliseconds))?;
    *left = left.map(|left| left.saturating_sub(count.commits));
    Ok(count)
}

impl Entry {
    fn new(
        config: &RunConfig,
        entrant: &Entrant,
        purpose: Purpose,
        verification: Option<Verification>,
    ) -> Result<Self, LabError> {
        let bed = bed(config, entrant, purpose)?;
        Ok(Entry {
            protocol: entrant.name.clone(),
            isolation: bed.info().isolation,
            bed: Some(bed),
            verification,
            load_seconds: 0.0,
            loaded_bytes: 0,
            windows: Vec::new(),
            check: None,
        })
    }

    /// Whether a check has failed: there will be no figures.
    fn refused(&self) -> bool {
        self.verification.as_ref().is_some_and(|verification| !verification.passed)
            || self.check.as_ref().is_some_and(|check| !check.passed)
    }

    fn load(&mut self, stop: &Stop, observer: &dyn Observer) -> Result<(), LabError> {
        if self.refused() || stop.is_requested() {
            return Ok(());
        }
        let Some(bed) = &mut self.bed else { return Ok(()) };
        observer.begin(&format!("loading {}", self.protocol), bed.load_units());
        let start = Instant::now();
        bed.load(stop, &|units| observer.advance(units))?;
        self.load_seconds = start.elapsed().as_secs_f64();
        self.loaded_bytes = bed.bytes();
        observer.end();
        Ok(())
    }

    fn check(&mut self, observer: &dyn Observer) {
        if self.windows.is_empty() {
            return;
        }
        let Some(bed) = &self.bed else { return };
        observer.begin(&format!("checking the rows of {}", self.protocol), 1);
        self.check = Some(match bed.check() {
            Ok(checked) => Check { passed: true, text: checked.0 },
            Err(violation) if self.isolation == Isolation::None => {
                Check { passed: true, text: format!("nothing is promised, and so it is: {violation}") }
            }
            Err(violation) => Check { passed: false, text: violation.0 },
        });
        observer.end();
    }

    /// Judges the history of the windows themselves.
    fn judge_history(&mut self) -> Option<Recorded> {
        let recorded = self.bed.as_mut()?.take_history();
        let mut verification = verify_history(&recorded, self.isolation);
        verification.aborts = self.windows.iter().map(|(_, count)| count.aborts.conflicts()).sum();
        self.verification = Some(verification);
        Some(recorded)
    }

    fn finish(self, was_recorded: bool) -> ProtocolResult {
        let measured = if self.refused() { None } else { self.measured(was_recorded) };
        ProtocolResult {
            protocol: self.protocol,
            isolation: self.isolation.name().into(),
            options: self.bed.as_ref().map(|bed| bed.protocol_options()).unwrap_or_default(),
            measured,
            verification: self.verification,
            check: self.check,
        }
    }

    fn measured(&self, was_recorded: bool) -> Option<Measured> {
        let bed = self.bed.as_ref()?;
        let tps = |count: &Count| count.commits as f64 / count.seconds;
        let throughput_tps = Spread::of(self.windows.iter().map(|(_, count)| tps(count)))?;
        let mut total = Count::default();
        self.windows.iter().for_each(|(_, count)| total.add(&count.kinds));
        let (commits, aborts) = (total.commits, total.aborts.conflicts());
        let latencies = bed.latencies();
        let mut all = latencies[0].1.clone();
        for (_, histogram) in &latencies[1..] {
            all.add(histogram).expect("histograms of equal bounds");
        }
        Some(Measured {
            throughput_tps,
            share_of_none: None,
            commits,
            aborts,
            abort_rate: abort_rate(commits, aborts),
            aborts_by_reason: by_reason(&total.aborts),
            latency_ns_p50: all.value_at_quantile(0.5),
            latency_ns_p99: all.value_at_quantile(0.99),
            latency_ns_p999: all.value_at_quantile(0.999),
            latency_ns_max: all.max(),
            kinds: latencies
                .iter()
                .zip(&total.kinds)
                .filter(|(_, count)| **count != KindCount::default())
                .map(|((kind, samples), count)| kind_result(kind, samples, count))
                .collect(),
            loaded_bytes: self.loaded_bytes,
            memory_bytes: bed.bytes(),
            memory_bytes_per_record: self.loaded_bytes as f64 / bed.load_units().max(1) as f64,
            load_seconds: self.load_seconds,
            recorded: was_recorded,
            windows: self
                .windows
                .iter()
                .map(|(round, count)| Window {
                    round: *round,
                    seconds: count.seconds,
                    commits: count.commits,
                    aborts: count.aborts.conflicts(),
                    throughput_tps: tps(count),
                })
                .collect(),
        })
    }
}

/// Of all tries, the fraction that a conflict aborted.
fn abort_rate(commits: u64, aborts: u64) -> f64 {
    aborts as f64 / (commits + aborts).max(1) as f64
}

/// The reasons that there were, by name.
fn by_reason(aborts: &AbortCounts) -> BTreeMap<String, u64> {
    let counted = AbortReason::ALL.into_iter().map(|reason| (reason.name().to_string(), aborts.get(reason)));
    counted.filter(|(_, count)| *count > 0).collect()
}

fn kind_result(kind: &str, samples: &Histogram<u64>, count: &KindCount) -> KindResult {
    let aborts = count.aborts.conflicts();
    KindResult {
        kind: kind.into(),
        commits: count.commits,
        aborts,
        abort_rate: abort_rate(count.commits, aborts),
        aborts_by_reason: by_reason(&count.aborts),
        samples: samples.len(),
        latency_ns_p50: samples.value_at_quantile(0.5),
        latency_ns_p99: samples.value_at_quantile(0.99),
        latency_ns_p999: samples.value_at_quantile(0.999),
        latency_ns_max: samples.max(),
    }
}

/// What to make of a result: honest about ranges that overlap and checks that failed.
fn finding(result: &ResultFile) -> String {
    let failed: Vec<&str> =
        result.protocols.iter().filter(|entry| entry.failed()).map(|entry| entry.protocol.as_str()).collect();
    let mut text = if failed.is_empty() { String::new() } else { format!("Wrong: {}. ", failed.join(", ")) };
    let mut ranked = result.protocols.iter().filter_map(|entry| {
        let promises = entry.isolation != Isolation::None.name();
        entry.measured.as_ref().filter(|_| promises).map(|measured| (entry.protocol.as_str(), measured))
    });
    let Some((best, measured)) = ranked.next() else {
        return text + "No protocol that promises anything has a figure.";
    };
    let unverified = if result.config.verify { "" } else { " (not verified: no verification pass was asked for)" };
    match ranked.next() {
        None => {
            text += &format!("{best} commits {} a second{unverified}", show_rate(measured.throughput_tps.median));
        }
        Some((second, other)) => {
            let ratio = measured.throughput_tps.median / other.throughput_tps.median;
            if measured.throughput_tps.overlaps(&other.throughput_tps) {
                text += &format!(
                    "{best} and {second} are not told apart: {best} has {ratio:.2} x the median of {second}, but their ranges \
                     overlap{unverified}"
                );
            } else {
                text += &format!("{best} is the fastest: {ratio:.2} x {second}{unverified}");
            }
        }
    }
    if let Some(share) = measured.share_of_none {
        text += &format!(
            "; {best} reaches {:.0} % of what this engine does without any concurrency control",
            share * 100.0
        );
    }
    text + "."
}

/// A rate, in millions or thousands.
pub fn show_rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.1}"),
    }
}
