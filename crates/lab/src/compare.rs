//! The main job: several protocols on one workload, verified, measured in turns, and told apart.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use contend_engine::abort::AbortCounts;
use contend_engine::{AbortReason, Isolation};
use contend_machine::{Activity, Machine, Native, Operation, Phase};

use crate::advice::{finding, recommendation};
use crate::conflicts::ConflictMapResult;
use crate::environment;
use crate::memory_limit;
use crate::open_loop;
use crate::paired::{self, Judged, Look};
use crate::result::{
    Breakdown, Check, Comparison, Environment, KindResult, Latencies, LogResult, Measured, OpenLoop, ProtocolResult,
    ResultFile, SCHEMA_VERSION, SimulationResult, Spread, TableRows, Verification, Versions, Window, WindowArrivals,
};
use contend_dispatch::session;
use contend_judge::Recorded;
use contend_judge::verify_history;
use contend_proof::verify::verify;
use contend_runner::config::WARMUP_AGAIN;
use contend_runner::session::{
    Interval, IntervalResult, KindCount, RunPurpose, SAMPLE_EVERY, Session, Simulation, Tally,
};

use contend_runner::{MeasuredWindow, Observer, ProtocolPlan, RunError, RunPlan, Stop};

/// The protocol that serves as the upper bound.
const UPPER_BOUND: &str = "none";
/// The transactions after which a recorded run ends. A larger history would take too much memory
/// and time.
pub const RECORDED_MAX: u64 = 200_000;

/// The most loaded units of which the rows are counted, which visits every record.
const COUNTED_ROWS: u64 = 250_000;

/// The units of a measurement's progress.
const PROGRESS_UNITS: u64 = 10_000;

/// A result, and the history if one was recorded.
#[derive(Debug)]
pub struct Outcome {
    /// The result.
    pub result: ResultFile,
    /// The history.
    pub recorded: Option<Recorded>,
}

/// One entry of the comparison, from its verification to its result.
pub(crate) struct Entry {
    pub(crate) session: Option<Box<dyn Session>>,
    pub(crate) protocol: String,
    isolation: Isolation,
    pub(crate) workers: usize,
    pub(crate) verification: Option<Verification>,
    load_seconds: f64,
    loaded_bytes: u64,
    /// The rows of each table after loading, if they are few enough to be counted.
    loaded_rows: Vec<(String, u64)>,
    /// The windows so far, and the sum of their tallies. A tally for each window would take too
    /// much memory: there may be thousands.
    pub(crate) windows: Vec<Window>,
    total: Tally,
    /// Bytes written to the log in all windows, if there is a log.
    log_bytes: Option<u64>,
    simulation: Option<Simulation>,
    pub(crate) check: Option<Check>,
}

/// Windows of an entry, with the sums of their figures.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    windows: Vec<Window>,
    total: Tally,
    log_bytes: Option<u64>,
}

impl Measurements {
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

/// Verifies, loads, measures and checks all entries of a plan.
///
/// # Errors
/// The tables do not fit into memory, the run can't go on, or it was stopped before it had a
/// result.
pub fn compare(plan: &RunPlan, stop: &Stop, observer: &dyn Observer) -> Result<ResultFile, RunError> {
    run(plan, RunPurpose::Measure, stop, observer).map(|outcome| outcome.result)
}

/// Does the same for one protocol, with a history of the windows and without a warm-up. The run
/// ends after [`RECORDED_MAX`] transactions.
///
/// # Errors
/// Those of [`compare`]; or there is more than one protocol.
pub fn record(plan: &RunPlan, stop: &Stop, observer: &dyn Observer) -> Result<Outcome, RunError> {
    if plan.protocols.len() > 1 {
        return Err(RunError::BadInput("a history is recorded of one protocol at a time".into()));
    }
    run(plan, RunPurpose::Record, stop, observer)
}

fn run(plan: &RunPlan, purpose: RunPurpose, stop: &Stop, observer: &dyn Observer) -> Result<Outcome, RunError> {
    plan.check_memory(purpose == RunPurpose::Record)?;
    let started_unix_seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let start = Instant::now();
    let Part { environment, options, mut protocols, recorded, ended } = match plan.chip {
        None => run_part(plan, &plan.protocols, purpose, stop, observer)?,
        Some(_) => run_simulated(plan, purpose, stop, observer)?,
    };
    let unknown_limits =
        if plan.config.memory_limit { memory_limit::add(plan, &mut protocols, stop, observer) } else { Vec::new() };
    let comparison = match plan.config.arrivals {
        None => tell_apart(&mut protocols, ended, plan.config.windows),
        Some(_) => {
            open_loop::order(&mut protocols);
            None
        }
    };
    let mut result = ResultFile {
        schema_version: SCHEMA_VERSION,
        partial: stop.is_requested(),
        memory_ran_short: stop.is_for_memory(),
        started_unix_seconds,
        elapsed_seconds: start.elapsed().as_secs_f64(),
        options,
        environment,
        config: plan.config.clone(),
        protocols,
        comparison,
        finding: String::new(),
        recommendation: Vec::new(),
    };
    result.finding = match &plan.config.arrivals {
        None => finding(&result),
        Some(arrivals) => open_loop::finding(&result, arrivals),
    };
    result.recommendation = recommendation(&result);
    result.recommendation.extend(unknown_limits);
    Ok(Outcome { result, recorded })
}

/// The reason why measuring ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    /// The question was answered at this look.
    Told(Look),
    /// The last allowed round was measured.
    Limit,
    /// The user stopped it, or memory ran short.
    Stopped,
}

/// Orders the entries that have figures, and sets the group of each and its ratios to the first and
/// to the upper bound. Returns how they were told apart.
fn tell_apart(protocols: &mut [ProtocolResult], ended: Ended, rounds_most: usize) -> Option<Comparison> {
    // Entries without figures come last.
    protocols.sort_by_key(|result| result.measured.is_none());
    let measured: Vec<&ProtocolResult> = protocols.iter().filter(|result| result.measured.is_some()).collect();
    let windows = measured.iter().filter_map(|result| result.measured.as_ref()).map(|measured| &measured.windows[..]);
    let rates = rates_by_round(&windows.collect::<Vec<_>>());
    let names: Vec<String> = measured.iter().map(|result| result.protocol.clone()).collect();
    let (entries, rounds) = (names.len(), rates.first().map_or(0, Vec::len));
    if rounds == 0 {
        let median = |result: &ProtocolResult| result.measured.as_ref().map(|measured| measured.throughput_tps.median);
        protocols.sort_by(|a, b| median(b).unwrap_or(-1.0).total_cmp(&median(a).unwrap_or(-1.0)));
        return None;
    }
    let look = match ended {
        Ended::Told(look) => look,
        Ended::Limit | Ended::Stopped => *paired::looks(entries, rounds_most).last().expect("there is a last look"),
    };
    let judged = judged(&measured, &rates, look.error);
    for (entry, result) in protocols.iter_mut().filter(|result| result.measured.is_some()).enumerate() {
        if let Some(measured) = &mut result.measured {
            measured.group = judged.groups[entry];
            measured.to_first = judged.to_first[entry];
            measured.to_none = judged.to_bound[entry];
        }
    }
    let place = |name: &String| {
        let entry = names.iter().position(|other| other == name);
        entry.and_then(|entry| judged.order.iter().position(|other| *other == entry)).unwrap_or(usize::MAX)
    };
    protocols.sort_by_key(|result| place(&result.protocol));
    (entries > 1).then(|| Comparison {
        first: judged.first.map(|first| names[first].clone()),
        rounds,
        pairs: paired::pairs(entries),
        confidence: 1.0 - paired::ERROR,
        confidence_each: 1.0 - look.error,
        ended: match ended {
            Ended::Told(_) => "told",
            Ended::Limit => "limit",
            Ended::Stopped => "stopped",
        }
        .into(),
    })
}

fn judged(entries: &[&ProtocolResult], rates: &[Vec<f64>], error: f64) -> Judged {
    let is_ranked: Vec<bool> = entries.iter().map(|entry| entry.isolation != Isolation::None.name()).collect();
    let bound = entries.iter().position(|entry| entry.protocol == UPPER_BOUND);
    paired::judge(rates, &is_ranked, bound, error)
}

/// Returns the rates of each entry in the rounds in which all entries had a window. A window
/// without a commit counts as half a commit, because it is only known to have had less than one.
pub(crate) fn rates_by_round(entries: &[&[Window]]) -> Vec<Vec<f64>> {
    let mut by_round: Vec<BTreeMap<usize, f64>> = Vec::new();
    for windows in entries {
        let rate = |window: &Window| (window.commits as f64).max(0.5) / window.seconds;
        by_round.push(windows.iter().map(|window| (window.round, rate(window))).collect());
    }
    let Some(first) = by_round.first() else { return Vec::new() };
    let common: Vec<usize> =
        first.keys().copied().filter(|round| by_round.iter().all(|rates| rates.contains_key(round))).collect();
    by_round.iter().map(|rates| common.iter().map(|round| rates[round]).collect()).collect()
}

/// The result of a run of some entries.
struct Part {
    environment: Environment,
    options: BTreeMap<String, String>,
    protocols: Vec<ProtocolResult>,
    recorded: Option<Recorded>,
    ended: Ended,
}

/// Verifies, loads, measures and checks these entries, with windows in turns.
fn run_part(
    plan: &RunPlan,
    protocols: &[ProtocolPlan],
    purpose: RunPurpose,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Part, RunError> {
    let config = &plan.config;
    let mut entries = Vec::new();
    for protocol in protocols {
        let verification = if config.verify { verify(plan, protocol, stop, observer)? } else { None };
        if stop.is_requested() {
            return Err(RunError::Stopped);
        }
        entries.push(Entry::new(plan, protocol, purpose, verification)?);
    }
    // A recorded run has no warm-up.
    let warmup = if purpose == RunPurpose::Record { 0.0 } else { config.warmup_seconds };
    for entry in &mut entries {
        entry.load(stop, observer)?;
        if let Some(session) = &mut entry.session {
            session.pace(config.arrivals.as_ref(), warmup);
        }
    }
    if stop.is_requested() {
        return Err(RunError::Stopped);
    }
    let environment = environment::here(plan);
    let ended = measure(plan, &mut entries, purpose, stop, observer)?;
    for entry in &mut entries {
        entry.settle()?;
    }
    let recorded = if purpose == RunPurpose::Record { entries[0].judge_history() } else { None };
    for entry in entries.iter_mut().filter(|entry| !entry.windows.is_empty()) {
        entry.check(observer);
    }
    if entries.iter().all(|entry| entry.windows.is_empty() && !entry.refused()) {
        return Err(RunError::Stopped);
    }
    let options = entries.iter().find_map(|entry| entry.session.as_ref()).map(|session| session.workload_options());
    let protocols = entries.into_iter().map(|entry| entry.finish(plan, purpose == RunPurpose::Record)).collect();
    Ok(Part { environment, options: options.unwrap_or_default(), protocols, recorded, ended })
}

/// Does the same on a simulated chip: one entry after the other, each on a fresh chip. Time is
/// simulated, so no machine gets slower in between, and an entry's figures do not depend on the
/// other entries.
fn run_simulated(plan: &RunPlan, purpose: RunPurpose, stop: &Stop, observer: &dyn Observer) -> Result<Part, RunError> {
    let mut all: Option<Part> = None;
    for protocol in &plan.protocols {
        // The simulation runs on a thread of its own, because the chip's memory belongs to its host
        // thread.
        let part = std::thread::scope(|scope| {
            let one = || run_part(plan, std::slice::from_ref(protocol), purpose, stop, observer);
            scope.spawn(one).join().expect("a simulation does not panic")
        });
        match (part, &mut all) {
            (Ok(part), None) => all = Some(part),
            (Ok(part), Some(all)) => {
                all.protocols.extend(part.protocols);
                all.ended = part.ended;
            }
            (Err(RunError::Stopped), Some(all)) => {
                all.ended = Ended::Stopped;
                break;
            }
            (Err(error), _) => return Err(error),
        }
    }
    all.ok_or(RunError::Stopped)
}

/// Measures rounds with a window of each protocol, in an order that is drawn for each round. Ends
/// when the question is answered, or no more rounds are allowed.
fn measure(
    plan: &RunPlan,
    entries: &mut [Entry],
    purpose: RunPurpose,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Ended, RunError> {
    let config = &plan.config;
    // A warm-up would fill the history before the first window.
    let warmup = if purpose == RunPurpose::Record { 0.0 } else { config.warmup_seconds };
    let window = config.window_seconds;
    // A simulation stands still between its windows, so it needs no further warm-up. A rate that
    // changes is measured all the time.
    let changes = config.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_steady());
    let again = if config.chip.is_some() || changes { 0.0 } else { warmup * WARMUP_AGAIN };
    let runs = entries.iter().filter(|entry| !entry.refused()).count();
    // Simulated entries run one after the other, so there is nothing to tell apart yet.
    // In an open loop throughput is no question.
    let looks = if runs > 1 && config.arrivals.is_none() { paired::looks(runs, config.windows) } else { Vec::new() };
    let windows = config.windows as f64;
    let seconds = runs as f64 * (windows * window + warmup + (windows - 1.0) * again);
    observer.begin("measuring", PROGRESS_UNITS);
    let (passed, shown) = (Cell::new(0.0), Cell::new(0));
    let progress = |more: f64| {
        passed.set(passed.get() + more);
        let units = (passed.get() / seconds * PROGRESS_UNITS as f64) as u64;
        observer.advance(units - shown.replace(units));
    };
    let mut left = (purpose == RunPurpose::Record).then_some(RECORDED_MAX);
    for round in 0..config.windows {
        for turn in paired::turns(entries.len(), round, config.seed) {
            let entry = &mut entries[turn];
            if entry.refused() {
                continue;
            }
            let Some(session) = &mut entry.session else { continue };
            let warmup = if round == 0 { warmup } else { again };
            if warmup > 0.0 {
                span(&mut **session, warmup, &mut left, stop, &progress)?;
            }
            let count = span(&mut **session, window, &mut left, stop, &progress)?;
            // A window that was cut short counts if it was long enough for a meaningful rate.
            if count.seconds >= window / 2.0 || left.is_some() && count.tally.commits() > 0 {
                entry.keep(round + 1, &count);
                entry.report(&count, observer);
            }
            if stop.is_requested() || left == Some(0) {
                observer.end();
                return Ok(Ended::Stopped);
            }
        }
        // After the last round there is nothing left to decide.
        let look = looks.iter().find(|look| look.rounds == round + 1 && look.rounds < config.windows);
        if let Some(look) = look.filter(|look| is_told(entries, config.precision, look.error)) {
            observer.end();
            return Ok(Ended::Told(*look));
        }
    }
    observer.end();
    Ok(Ended::Limit)
}

/// Returns whether the rounds so far answer the question.
fn is_told(entries: &[Entry], precision: Option<f64>, error: f64) -> bool {
    let running: Vec<&Entry> = entries.iter().filter(|entry| !entry.refused()).collect();
    let rates = rates_by_round(&running.iter().map(|entry| &entry.windows[..]).collect::<Vec<_>>());
    let is_ranked: Vec<bool> = running.iter().map(|entry| entry.isolation != Isolation::None).collect();
    let bound = running.iter().position(|entry| entry.protocol == UPPER_BOUND);
    paired::judge(&rates, &is_ranked, bound, error).is_told(precision)
}

/// Runs for `seconds` seconds, or until the history has no room left.
fn span(
    session: &mut dyn Session,
    seconds: f64,
    left: &mut Option<u64>,
    stop: &Stop,
    progress: &dyn Fn(f64),
) -> Result<IntervalResult, RunError> {
    let span = Interval { length: Duration::from_secs_f64(seconds), transactions_max: *left };
    let count = session.run(span, stop, &|part| progress(part * seconds))?;
    if let Some(left) = left {
        *left = left.saturating_sub(count.tally.commits());
    }
    Ok(count)
}

impl Entry {
    /// Returns an entry whose tables are not loaded yet.
    pub(crate) fn new(
        plan: &RunPlan,
        protocol: &ProtocolPlan,
        purpose: RunPurpose,
        verification: Option<Verification>,
    ) -> Result<Self, RunError> {
        let session = session(plan, protocol, purpose)?;
        Ok(Entry {
            protocol: protocol.name.clone(),
            isolation: protocol.info.isolation,
            workers: plan.config.threads * protocol.threads.interleave.workers(purpose),
            session: Some(session),
            verification,
            load_seconds: 0.0,
            loaded_bytes: 0,
            loaded_rows: Vec::new(),
            windows: Vec::new(),
            total: Tally::default(),
            simulation: None,
            log_bytes: None,
            check: None,
        })
    }

    /// Returns whether a check has failed, so that the entry gets no figures.
    pub(crate) fn refused(&self) -> bool {
        self.verification.as_ref().is_some_and(|verification| !verification.passed)
            || self.check.as_ref().is_some_and(|check| !check.passed)
    }

    /// Loads the tables, unless a check has failed.
    pub(crate) fn load(&mut self, stop: &Stop, observer: &dyn Observer) -> Result<(), RunError> {
        if self.refused() || stop.is_requested() {
            return Ok(());
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        observer.begin(&format!("loading {}", self.protocol), session.load_units());
        let start = Instant::now();
        session.load(stop, &|units| observer.advance(units))?;
        self.load_seconds = start.elapsed().as_secs_f64();
        self.loaded_bytes = session.bytes();
        if session.load_units() <= COUNTED_ROWS {
            self.loaded_rows = session.rows();
        }
        observer.end();
        Ok(())
    }

    /// Adds a window.
    pub(crate) fn keep(&mut self, round: usize, count: &IntervalResult) {
        let (commits, aborts) = (count.tally.commits(), count.tally.conflicts());
        let times = count.tally.all().latencies;
        self.windows.push(Window {
            round,
            seconds: count.seconds,
            commits,
            aborts,
            throughput_tps: commits as f64 / count.seconds,
            latency_ns_p50: times.value_at_quantile(0.5),
            latency_ns_p95: times.value_at_quantile(0.95),
            latency_ns_p99: times.value_at_quantile(0.99),
            latency_ns_max: times.max(),
            arrivals: WindowArrivals::of(count, self.workers),
            epoch_lag_ms: count.epoch_lag_seconds * 1e3,
        });
        self.total.add(&count.tally);
        if let Some(bytes) = count.log_bytes {
            *self.log_bytes.get_or_insert(0) += bytes;
        }
        if let Some(window) = &count.simulation {
            let all = self.simulation.get_or_insert_default();
            all.statistics.add(&window.statistics);
            all.host_seconds += window.host_seconds;
            all.trace_hash = window.trace_hash;
        }
    }

    /// Takes all windows, as if none had been measured.
    pub(crate) fn take_windows(&mut self) -> Measurements {
        let (windows, total) = (std::mem::take(&mut self.windows), std::mem::take(&mut self.total));
        Measurements { windows, total, log_bytes: self.log_bytes.take() }
    }

    /// Puts windows that were taken in the place of those that there are.
    pub(crate) fn put_back(&mut self, taken: Measurements) {
        (self.windows, self.total, self.log_bytes) = (taken.windows, taken.total, taken.log_bytes);
    }

    /// Reports the last window.
    fn report(&self, count: &IntervalResult, observer: &dyn Observer) {
        let until: f64 = self.windows.iter().map(|window| window.seconds).sum();
        if let Some(session) = &self.session {
            let (entry, kinds, begin) = (self.protocol.as_str(), session.kinds(), until - count.seconds);
            observer.measured(&MeasuredWindow { entry, kinds, begin: begin.max(0.0), count });
        }
        if let Some(window) = self.windows.last() {
            observer.window(&self.protocol, &open_loop::line(window, until));
        }
    }

    /// Ends the running transactions.
    pub(crate) fn settle(&mut self) -> Result<(), RunError> {
        self.session.as_mut().map_or(Ok(()), |session| session.settle())
    }

    /// Runs the workload's own check.
    pub(crate) fn check(&mut self, observer: &dyn Observer) {
        let Some(session) = &self.session else { return };
        observer.begin(&format!("checking the rows of {}", self.protocol), 1);
        self.check = Some(match session.check() {
            Ok(checked) => Check { passed: true, text: checked.0 },
            Err(violation) if !self.isolation.keeps_invariants() => Check {
                passed: true,
                text: match self.isolation {
                    Isolation::None => format!("the protocol promises nothing: {violation}"),
                    level => format!("{} isolation allows it: {violation}", level.name()),
                },
            },
            Err(violation) => Check { passed: false, text: violation.0 },
        });
        observer.end();
    }

    /// Judges the history of the measured windows.
    fn judge_history(&mut self) -> Option<Recorded> {
        let recorded = self.session.as_mut()?.take_history();
        let mut verification = verify_history(&recorded, self.isolation);
        verification.aborts = self.total.conflicts();
        self.verification = Some(verification);
        Some(recorded)
    }

    fn finish(self, plan: &RunPlan, was_recorded: bool) -> ProtocolResult {
        let measured = if self.refused() { None } else { self.measured(plan, was_recorded) };
        ProtocolResult {
            protocol: self.protocol,
            isolation: self.isolation.name().into(),
            options: self.session.as_ref().map(|session| session.protocol_options()).unwrap_or_default(),
            measured,
            verification: self.verification,
            check: self.check,
        }
    }

    /// Returns the rows of each table, if those that were loaded have been counted.
    fn tables(&self) -> Vec<TableRows> {
        let Some(session) = self.session.as_ref().filter(|_| !self.loaded_rows.is_empty()) else { return Vec::new() };
        let loaded = self.loaded_rows.iter().zip(session.rows());
        let of_table = |((table, loaded), (_, now)): (&(String, u64), (String, u64))| TableRows {
            table: table.clone(),
            rows_loaded: *loaded,
            rows_at_end: now,
        };
        loaded.map(of_table).collect()
    }

    /// Returns the figures of the windows; `None` if there is no window.
    pub(crate) fn measured(&self, plan: &RunPlan, was_recorded: bool) -> Option<Measured> {
        let session = self.session.as_ref()?;
        let windows = &self.windows;
        let throughput_tps = Spread::of(windows.iter().map(|window| window.throughput_tps))?;
        let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
        let total = &self.total;
        let all = total.all();
        let (commits, aborts) = (all.commits, all.aborts.conflicts());
        let arrivals: Vec<WindowArrivals> = windows.iter().filter_map(|window| window.arrivals).collect();
        Some(Measured {
            throughput_tps,
            group: None,
            to_first: None,
            to_none: None,
            commits,
            aborts,
            abort_rate: abort_rate(commits, aborts),
            aborts_by_reason: by_reason(&all.aborts),
            piece_retries: all.piece_retries,
            driver_share: driver_share(plan, seconds, total),
            latency_ns_p50: all.latencies.value_at_quantile(0.5),
            latency_ns_p90: all.latencies.value_at_quantile(0.9),
            latency_ns_p95: all.latencies.value_at_quantile(0.95),
            latency_ns_p99: all.latencies.value_at_quantile(0.99),
            latency_ns_p999: all.latencies.value_at_quantile(0.999),
            latency_ns_max: all.latencies.max(),
            latencies: open_loop::buckets(&all.latencies),
            open_loop: OpenLoop::of(&arrivals, total, self.workers),
            kinds: session
                .kinds()
                .iter()
                .zip(&total.kinds)
                .filter(|(_, count)| !count.is_empty())
                .map(|(kind, count)| kind_result(kind, count))
                .collect(),
            conflict_map: ConflictMapResult::of(&**session, total),
            tables: self.tables(),
            loaded_bytes: self.loaded_bytes,
            memory_bytes: session.bytes(),
            memory_bytes_per_record: self.loaded_bytes as f64 / session.load_units().max(1) as f64,
            versions: versions(&**session),
            log: self.log_bytes.map(|bytes| log_result(bytes, total)),
            load_seconds: self.load_seconds,
            recorded: was_recorded,
            breakdown: breakdown(total, due(plan, seconds)),
            memory_limit: None,
            simulation: self.simulation.map(simulation_result),
            windows: windows.clone(),
        })
    }
}

/// Returns the figures of the log in the windows.
fn log_result(bytes: u64, total: &Tally) -> LogResult {
    let durable = &total.durable;
    LogResult {
        bytes_per_commit: bytes as f64 / total.commits().max(1) as f64,
        durable_ns_p50: durable.value_at_quantile(0.5),
        durable_ns_p99: durable.value_at_quantile(0.99),
        durable_ns_max: durable.max(),
    }
}

fn versions(session: &dyn Session) -> Option<Versions> {
    let counts = session.versions();
    (counts.made > 0).then(|| Versions {
        records_by_versions: session.version_chains(),
        alive: counts.alive(),
        alive_bytes: counts.alive_bytes(),
        made: counts.made,
        reused: counts.reused,
        collected: counts.collected,
        collected_early: counts.collected_early,
    })
}

fn simulation_result(Simulation { statistics, trace_hash, host_seconds }: Simulation) -> SimulationResult {
    SimulationResult {
        statistics,
        trace_hash: format!("{trace_hash:016x}"),
        host_seconds,
        accesses_per_host_second: statistics.accesses as f64 / host_seconds,
    }
}

/// Returns the time that all workers had in `seconds` seconds, in the unit of their times by phase.
fn due(plan: &RunPlan, seconds: f64) -> f64 {
    let threads = plan.config.threads as f64;
    match &plan.chip {
        Some(chip) => threads * seconds * chip.preset.core.hertz,
        None => threads * seconds / SAMPLE_EVERY.as_secs_f64(),
    }
}

/// Returns the fraction of the threads' time in which the workload drew its transactions.
fn driver_share(plan: &RunPlan, seconds: f64, total: &Tally) -> f64 {
    let hertz = plan.chip.as_ref().map_or_else(Native::cycles_per_second, |chip| chip.preset.core.hertz);
    total.drawing as f64 / (plan.config.threads as f64 * seconds * hertz).max(1.0)
}

/// Returns the breakdown of the time, or `None` if no time was recorded.
fn breakdown(total: &Tally, due: f64) -> Option<Breakdown> {
    let all = total.useful.iter().chain(&total.aborted).sum::<u64>() as f64;
    if all == 0.0 {
        return None;
    }
    let share = |time: u64| time as f64 / all;
    let phases = Phase::all;
    let activity = |activity: Activity| {
        share(phases().filter(|phase| phase.activity() == activity).map(|phase| total.useful[phase.number()]).sum())
    };
    let operation = |operation: Operation| {
        let times = phases().filter(|phase| phase.operation() == operation);
        share(times.map(|phase| total.useful[phase.number()] + total.aborted[phase.number()]).sum())
    };
    Some(Breakdown {
        useful: activity(Activity::Useful),
        abort: share(total.aborted.iter().sum()),
        timestamp: activity(Activity::Timestamp),
        index: activity(Activity::Index),
        wait: activity(Activity::Wait),
        manager: activity(Activity::Manager),
        operations: Operation::ALL.iter().map(|&one| (one.name().to_string(), operation(one))).collect(),
        accounted: all / due,
    })
}

/// Returns the fraction of all tries that a conflict aborted.
fn abort_rate(commits: u64, aborts: u64) -> f64 {
    aborts as f64 / (commits + aborts).max(1) as f64
}

/// Returns the counts of the reasons that occurred, by name.
pub(crate) fn by_reason(aborts: &AbortCounts) -> BTreeMap<String, u64> {
    let counted = AbortReason::ALL.into_iter().map(|reason| (reason.name().to_string(), aborts.get(reason)));
    counted.filter(|(_, count)| *count > 0).collect()
}

fn kind_result(kind: &str, count: &KindCount) -> KindResult {
    let (aborts, samples) = (count.aborts.conflicts(), &count.latencies);
    KindResult {
        kind: kind.into(),
        commits: count.commits,
        aborts,
        abort_rate: abort_rate(count.commits, aborts),
        aborts_by_reason: by_reason(&count.aborts),
        piece_retries: count.piece_retries,
        samples: samples.len(),
        latency_ns_p50: samples.value_at_quantile(0.5),
        latency_ns_p90: samples.value_at_quantile(0.9),
        latency_ns_p95: samples.value_at_quantile(0.95),
        latency_ns_p99: samples.value_at_quantile(0.99),
        latency_ns_p999: samples.value_at_quantile(0.999),
        latency_ns_max: samples.max(),
        response: count.responses.as_ref().map(Latencies::of),
    }
}
