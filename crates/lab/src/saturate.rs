//! The highest rate of arrivals that a protocol keeps up with, within a limit of response times.
//!
//! The search begins at a tenth of the closed loop's throughput, doubles the rate until it fails,
//! and then halves the distance, on a logarithmic scale, until the precision is reached. So the
//! result is two rates, one that passes and one that fails, with all probes between. On the host
//! the protocols take turns, a probe each, so that the machine's drift is common to them.

use std::time::{Duration, SystemTime};

use contend_runner::arrivals::{ArrivalProcess, RATE_MAX};
use contend_runner::session::{Interval, RunPurpose};
use contend_runner::units::{show_ns, show_percent, show_rate};
use contend_runner::{Arrivals, Observer, ProtocolPlan, RunConfig, RunError, RunPlan, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::Entry;
use crate::environment;
use crate::open_loop::WindowArrivals;
use crate::paired;
use crate::result::{Check, Environment, Verification};
use crate::schema::Version;
use contend_engine::Isolation;
use contend_proof::verify::verify;

/// The windows of a probe. Each of them must pass.
const WINDOWS: usize = 3;
/// The transactions of the closed loop behind its throughput, and the most windows for them.
const CLOSED: u64 = 1000;
const CLOSED_WINDOWS: usize = 100;
/// The first rate, as a part of the closed loop's throughput, and the lowest one. If that fails,
/// the limit is not a question of the rate.
const FIRST: f64 = 0.1;
const LEAST: f64 = 1e-2;
/// The longest window on the host, in seconds.
const LONGEST: f64 = 600.0;
/// The part of the first warm-up that comes before each probe on the host.
const WARMUP_AGAIN: f64 = 0.2;

/// The version of the file.
pub const SATURATION_SCHEMA: Version = Version { major: 1, minor: 0 };

/// What a rate has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// The largest 99th percentile of the response times, in nanoseconds, if there is a limit.
    pub p99_ns: Option<u64>,
    /// The largest 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// The distance of the two rates of the result, as a fraction of the lower one.
    pub precision: f64,
    /// The transactions that are offered in each window of a probe.
    pub transactions: u64,
    /// The gaps between arrivals.
    pub process: ArrivalProcess,
}

/// The outcome of a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The rate of arrivals per second.
    pub rate: f64,
    /// Whether every window passed.
    pub passed: bool,
    /// The reason why a window failed; empty if none did.
    pub why: String,
    /// The windows, up to the first that failed.
    pub windows: Vec<WindowArrivals>,
}

/// The result of one protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// The protocol, with the options of its entry.
    pub protocol: String,
    /// The isolation level that it promises.
    pub isolation: String,
    /// Committed transactions per second in a closed loop.
    pub closed_tps: f64,
    /// The highest rate that passed; `None` if none did.
    pub passes: Option<f64>,
    /// The lowest rate that failed; `None` if none did.
    pub fails: Option<f64>,
    /// All probes, in their order.
    pub probes: Vec<Probe>,
    /// The verdict of the verification pass, if there was one.
    pub verification: Option<Verification>,
    /// The workload's own check after the probes.
    pub check: Option<Check>,
}

/// The results of all protocols, as a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SaturationFile {
    /// [`SATURATION_SCHEMA`].
    pub schema_version: Version,
    /// Whether the search was stopped before its end.
    pub partial: bool,
    /// The start, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The configuration.
    pub config: RunConfig,
    /// The machine and the build.
    pub environment: Environment,
    /// What a rate has to keep.
    pub goal: Goal,
    /// The protocols, the one with the highest rate first.
    pub protocols: Vec<Saturation>,
    /// The conclusion, in a sentence or two.
    pub finding: String,
}

impl Goal {
    /// Describes the goal in a few words.
    pub fn in_words(&self) -> String {
        let limit = |name: &str, limit: Option<u64>| limit.map(|ns| format!("{name} of at most {}", show_ns(ns)));
        let limits: Vec<String> =
            [limit("p99", self.p99_ns), limit("p99.9", self.p999_ns)].into_iter().flatten().collect();
        if limits.is_empty() { "no growing backlog".into() } else { limits.join(" and ") }
    }

    /// Returns why a window fails; `None` if it passes.
    fn fault(&self, window: &WindowArrivals) -> Option<String> {
        let above = |name: &str, limit: Option<u64>, ns: u64| {
            limit.filter(|limit| ns > *limit).map(|_| format!("{name} is {}", show_ns(ns)))
        };
        if window.saturated {
            let undone = window.offered.saturating_sub(window.ended) as f64 / window.offered.max(1) as f64;
            return Some(format!("{} are left undone", show_percent(undone)));
        }
        above("p99", self.p99_ns, window.response.p99_ns)
            .or_else(|| above("p99.9", self.p999_ns, window.response.p999_ns))
    }
}

impl Saturation {
    /// Returns whether a check failed that the protocol must pass.
    pub fn failed(&self) -> bool {
        self.verification.as_ref().is_some_and(|it| !it.passed) || self.check.as_ref().is_some_and(|it| !it.passed)
    }

    /// Returns the next rate; `None` at the end of the search.
    fn next_rate(&self, precision: f64) -> Option<f64> {
        let rate = match (self.passes, self.fails) {
            (None, None) => self.closed_tps * FIRST,
            (Some(passes), None) => passes * 2.0,
            (None, Some(fails)) => fails / 2.0,
            (Some(passes), Some(fails)) if fails / passes - 1.0 > precision => (passes * fails).sqrt(),
            (Some(_), Some(_)) => return None,
        };
        // Four digits are enough for any precision, and can be read.
        let unit = 10f64.powf(rate.log10().floor() - 3.0);
        let rate = (rate / unit).round() * unit;
        let is_new = self.passes.is_none_or(|passes| rate > passes) && self.fails.is_none_or(|fails| rate < fails);
        (is_new && rate <= RATE_MAX && rate >= self.closed_tps * LEAST).then_some(rate)
    }

    fn note(&mut self, probe: Probe) {
        match probe.passed {
            true => self.passes = Some(self.passes.map_or(probe.rate, |rate| rate.max(probe.rate))),
            false => self.fails = Some(self.fails.map_or(probe.rate, |rate| rate.min(probe.rate))),
        }
        self.probes.push(probe);
    }

    /// Returns the response times of the highest rate that passed: the largest of its windows at
    /// the 99th percentile.
    pub fn p99_there(&self) -> Option<u64> {
        let passed = self.probes.iter().filter(|probe| probe.passed && Some(probe.rate) == self.passes);
        passed.flat_map(|probe| &probe.windows).map(|window| window.response.p99_ns).max()
    }
}

/// An entry whose rate is searched.
struct Searched {
    entry: Entry,
    found: Saturation,
    is_done: bool,
}

/// The parts of a search that all entries share.
struct Search<'a> {
    plan: &'a RunPlan,
    goal: &'a Goal,
    stop: &'a Stop,
    observer: &'a dyn Observer,
}

/// Searches the highest rate of each entry of a plan.
///
/// # Errors
/// The tables do not fit into memory, the run can't go on, or it was stopped before it had a
/// result.
pub fn saturate(plan: &RunPlan, goal: &Goal, stop: &Stop, observer: &dyn Observer) -> Result<SaturationFile, RunError> {
    plan.check_memory(false)?;
    let started_unix_seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let search = Search { plan, goal, stop, observer };
    let environment = environment::here(plan);
    let mut protocols = match plan.chip {
        None => search.all(&plan.protocols)?,
        Some(_) => search.each_on_a_chip()?,
    };
    protocols.sort_by(|a, b| {
        let rate = |found: &Saturation| if found.failed() { -1.0 } else { found.passes.unwrap_or(0.0) };
        rate(b).total_cmp(&rate(a))
    });
    let finding = finding(&protocols, goal);
    Ok(SaturationFile {
        schema_version: SATURATION_SCHEMA,
        partial: stop.is_requested(),
        started_unix_seconds,
        config: plan.config.clone(),
        environment,
        goal: *goal,
        protocols,
        finding,
    })
}

impl Search<'_> {
    /// Searches one entry after the other, each on a fresh chip and a thread of its own.
    fn each_on_a_chip(&self) -> Result<Vec<Saturation>, RunError> {
        let mut all = Vec::new();
        for protocol in &self.plan.protocols {
            // Only what a search needs passes to the other thread.
            let found = std::thread::scope(|scope| {
                let one = || self.all(std::slice::from_ref(protocol));
                scope.spawn(one).join().expect("a simulation does not panic")
            });
            match found {
                Err(RunError::Stopped) if !all.is_empty() => break,
                found => all.extend(found?),
            }
        }
        Ok(all)
    }

    /// Searches these entries in turns.
    fn all(&self, protocols: &[ProtocolPlan]) -> Result<Vec<Saturation>, RunError> {
        let mut entries = Vec::new();
        for protocol in protocols {
            entries.push(self.begun(protocol)?);
        }
        for searched in &mut entries {
            self.closed(searched)?;
        }
        for round in 0.. {
            if self.stop.is_requested() || entries.iter().all(|searched| searched.is_done) {
                break;
            }
            for turn in paired::turns(entries.len(), round, self.plan.config.seed) {
                if !self.stop.is_requested() {
                    self.step(&mut entries[turn])?;
                }
            }
        }
        let is_empty = |searched: &Searched| searched.found.probes.is_empty() && !searched.entry.refused();
        if self.stop.is_requested() && entries.iter().all(is_empty) {
            return Err(RunError::Stopped);
        }
        entries.into_iter().map(|searched| self.ended(searched)).collect()
    }

    /// Verifies and loads an entry.
    fn begun(&self, protocol: &ProtocolPlan) -> Result<Searched, RunError> {
        let Search { plan, stop, observer, .. } = *self;
        let verification = if plan.config.verify { verify(plan, protocol, stop, observer)? } else { None };
        if stop.is_requested() {
            return Err(RunError::Stopped);
        }
        let mut entry = Entry::new(plan, protocol, RunPurpose::Measure, verification)?;
        entry.load(stop, observer)?;
        let found = Saturation {
            protocol: protocol.name.clone(),
            isolation: protocol.info.isolation.name().into(),
            closed_tps: 0.0,
            passes: None,
            fails: None,
            probes: Vec::new(),
            verification: entry.verification.clone(),
            check: None,
        };
        Ok(Searched { is_done: entry.refused(), entry, found })
    }

    /// Measures the closed loop.
    fn closed(&self, searched: &mut Searched) -> Result<(), RunError> {
        let config = &self.plan.config;
        let Some(session) = searched.entry.session.as_mut().filter(|_| !searched.is_done) else { return Ok(()) };
        self.observer.begin(&format!("{} in a closed loop", searched.found.protocol), 1);
        session.pace(None, 0.0);
        let mut run = |seconds: f64| {
            let interval = Interval { length: Duration::from_secs_f64(seconds), transactions_max: None };
            session.run(interval, self.stop, &|_| ())
        };
        if config.warmup_seconds > 0.0 {
            run(config.warmup_seconds)?;
        }
        let (mut commits, mut seconds) = (0, 0.0);
        for window in 0..CLOSED_WINDOWS {
            let count = run(config.window_seconds)?;
            (commits, seconds) = (commits + count.tally.all().ended(), seconds + count.seconds);
            if self.stop.is_requested() || window + 1 >= WINDOWS && commits >= CLOSED {
                break;
            }
        }
        self.observer.end();
        searched.found.closed_tps = commits as f64 / seconds;
        // A protocol that ends nothing keeps up with no rate.
        searched.is_done = commits == 0;
        let longest = self.goal.transactions as f64 / (searched.found.closed_tps * FIRST);
        if self.plan.chip.is_none() && !searched.is_done && longest > LONGEST {
            return Err(RunError::BadInput(format!(
                "{} ends {} transactions a second, so a window of {} at a tenth of that takes {longest:.0} s; fewer \
                 --transactions take less",
                searched.found.protocol,
                show_rate(searched.found.closed_tps),
                self.goal.transactions
            )));
        }
        Ok(())
    }

    /// Tries the next rate of an entry.
    fn step(&self, searched: &mut Searched) -> Result<(), RunError> {
        if searched.is_done {
            return Ok(());
        }
        let Some(rate) = searched.found.next_rate(self.goal.precision) else {
            searched.is_done = true;
            return Ok(());
        };
        if let Some(probe) = self.probe(&mut searched.entry, rate)? {
            let outcome = if probe.passed { "passes" } else { "fails" };
            let p99 = probe.windows.iter().map(|window| window.response.p99_ns).max().unwrap_or(0);
            let why = if probe.why.is_empty() { String::new() } else { format!(": {}", probe.why) };
            let line = format!("{:>10}/s {outcome:<6}  p99 {}{why}", show_rate(rate), show_ns(p99));
            self.observer.window(&searched.found.protocol, &line);
            searched.found.note(probe);
        }
        Ok(())
    }

    /// Offers transactions at this rate. `None` if the search was stopped meanwhile.
    fn probe(&self, entry: &mut Entry, rate: f64) -> Result<Option<Probe>, RunError> {
        let Search { plan, goal, stop, observer } = *self;
        let config = &plan.config;
        let workers = entry.workers;
        let Some(session) = entry.session.as_mut() else { return Ok(None) };
        let warmup = if config.chip.is_some() { config.warmup_seconds } else { config.warmup_seconds * WARMUP_AGAIN };
        let length = (goal.transactions as f64 / rate).max(config.window_seconds);
        observer.begin(&format!("{} at {}/s", entry.protocol, show_rate(rate)), 1 + WINDOWS as u64);
        session.pace(Some(&Arrivals { process: goal.process, ..Arrivals::at(rate) }), warmup);
        let mut run = |seconds: f64| {
            let interval = Interval { length: Duration::from_secs_f64(seconds), transactions_max: None };
            let count = session.run(interval, stop, &|_| ());
            observer.advance(1);
            count
        };
        if warmup > 0.0 {
            run(warmup)?;
        }
        let mut probe = Probe { rate, passed: true, why: String::new(), windows: Vec::new() };
        for _ in 0..WINDOWS {
            let count = run(length)?;
            if stop.is_requested() {
                observer.end();
                return Ok(None);
            }
            let window = WindowArrivals::of(&count, workers).expect("there is a schedule");
            probe.windows.push(window);
            if let Some(why) = goal.fault(&window) {
                (probe.passed, probe.why) = (false, why);
                break;
            }
        }
        observer.end();
        Ok(Some(probe))
    }

    /// Ends an entry's transactions, and checks its rows.
    fn ended(&self, mut searched: Searched) -> Result<Saturation, RunError> {
        if !searched.entry.refused() {
            if let Some(session) = searched.entry.session.as_mut() {
                session.pace(None, 0.0);
            }
            searched.entry.settle()?;
            searched.entry.check(self.observer);
        }
        Ok(Saturation { check: searched.entry.check.clone(), ..searched.found })
    }
}

/// Returns the conclusion.
fn finding(protocols: &[Saturation], goal: &Goal) -> String {
    let mut text = String::new();
    let failed: Vec<&str> = protocols.iter().filter(|it| it.failed()).map(|it| it.protocol.as_str()).collect();
    if !failed.is_empty() {
        text += &format!("Wrong: {}. ", failed.join(", "));
    }
    let is_ranked = |it: &&Saturation| !it.failed() && (it.isolation != Isolation::None.name() || protocols.len() == 1);
    let ranked: Vec<&Saturation> = protocols.iter().filter(is_ranked).collect();
    let goal = goal.in_words();
    match ranked.first().map(|first| (first, first.passes)) {
        None => text += "No protocol that promises anything was searched.",
        Some((_, None)) if ranked.iter().all(|it| it.probes.is_empty()) => {
            text += "Nothing was searched: no transaction ended in the closed loop.";
        }
        Some((_, None)) => {
            let least = ranked.iter().filter_map(|it| it.fails).fold(f64::INFINITY, f64::min);
            let at =
                if least.is_finite() { format!(", not even at {} a second", show_rate(least)) } else { String::new() };
            text += &format!("Nothing keeps {goal}{at}.");
        }
        Some((first, Some(passes))) => {
            text += &format!(
                "{} keeps {goal} at {} transactions a second, {} of its closed loop",
                first.protocol,
                show_rate(passes),
                show_percent(passes / first.closed_tps)
            );
            text += &first.fails.map_or(".".into(), |fails| format!(", and fails at {}.", show_rate(fails)));
            let same: Vec<&str> = ranked[1..]
                .iter()
                .filter(|other| other.passes.is_some() && other.fails.is_none_or(|fails| fails > passes))
                .map(|other| other.protocol.as_str())
                .collect();
            if !same.is_empty() {
                text += &format!(" Not told apart from it: {}.", same.join(", "));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(closed_tps: f64) -> Saturation {
        Saturation {
            protocol: "silo".into(),
            isolation: "serializable".into(),
            closed_tps,
            passes: None,
            fails: None,
            probes: Vec::new(),
            verification: None,
            check: None,
        }
    }

    /// Searches a system that keeps up to this rate. Returns the rates that were tried.
    fn search(found: &mut Saturation, capacity: f64, precision: f64) -> Vec<f64> {
        while let Some(rate) = found.next_rate(precision) {
            assert!(found.probes.len() < 100, "the search has an end: {found:?}");
            let passed = rate <= capacity;
            found.note(Probe { rate, passed, why: String::new(), windows: Vec::new() });
        }
        found.probes.iter().map(|probe| probe.rate).collect()
    }

    #[test]
    fn the_search_ends_at_two_rates_of_the_precision() {
        for (capacity, precision) in
            [(123_456.0, 0.05), (99e3, 0.01), (1.0e6, 0.5), (12.5, 0.05), (11e3, 0.05), (950e3, 0.02)]
        {
            let mut found = found(1e6);
            let tried = search(&mut found, capacity, precision);
            let (passes, fails) = (found.passes, found.fails.expect("a rate that fails"));
            assert!(tried.len() < 30, "{tried:?}");
            match passes {
                Some(passes) => {
                    assert!(passes <= capacity && fails > capacity && fails / passes - 1.0 <= precision * 1.001);
                }
                None => assert!(capacity < fails && fails < 2.1e6 * LEAST, "{capacity}: {fails}"),
            }
        }
    }

    #[test]
    fn a_search_without_a_limit_ends_at_the_highest_rate() {
        let mut found = found(50e6);
        let tried = search(&mut found, f64::INFINITY, 0.05);
        assert!(found.fails.is_none() && found.passes.is_some_and(|rate| rate > RATE_MAX / 2.0), "{tried:?}");
    }

    #[test]
    fn a_window_fails_by_its_percentiles_or_its_backlog() {
        let goal = Goal {
            p99_ns: Some(1000),
            p999_ns: Some(5000),
            precision: 0.05,
            transactions: 10,
            process: ArrivalProcess::Poisson,
        };
        let response = crate::open_loop::Latencies { p99_ns: 1000, p999_ns: 5000, ..Default::default() };
        let good = WindowArrivals {
            offered: 100,
            ended: 100,
            skipped: 0,
            backlog: 0,
            seconds: 1.0,
            saturated: false,
            response,
        };
        assert_eq!(goal.fault(&good), None);
        let with = |p99_ns, p999_ns, saturated| {
            let response = crate::open_loop::Latencies { p99_ns, p999_ns, ..response };
            goal.fault(&WindowArrivals { response, saturated, ended: 50, ..good })
        };
        assert_eq!(with(1001, 0, false).as_deref(), Some("p99 is 1.0 µs"));
        assert_eq!(with(9, 6000, false).as_deref(), Some("p99.9 is 6.0 µs"));
        assert_eq!(with(9, 9, true).as_deref(), Some("50.0 % are left undone"));
    }
}
