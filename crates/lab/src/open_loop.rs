//! The figures of an open loop: what was offered, what was done, and the response times.

use contend_runner::Arrivals;
use contend_runner::session::{ArrivalCount, IntervalResult, Tally};
use contend_runner::units::{show_latency, show_ns, show_percent, show_rate};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Bucket, Measured, ProtocolResult, ResultFile};
use contend_engine::Isolation;

/// The part of what was offered that may be left undone while a system still keeps up.
const UNDONE: f64 = 0.01;
/// The fewest transactions behind a 99th percentile.
const FEW: u64 = 1000;

/// The figures of an entry in an open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoop {
    /// Transactions whose start was due in the windows.
    pub offered: u64,
    /// Transactions that ended in the windows: by a commit, or because they cancelled themselves.
    pub ended: u64,
    /// Transactions that were not started, because they would have been too late.
    pub skipped: u64,
    /// Transactions that were due and not started at the end of the last window.
    pub backlog: u64,
    /// The rate at which transactions were offered.
    pub offered_tps: f64,
    /// The rate at which transactions ended.
    pub ended_tps: f64,
    /// Whether the entry did not keep up: of the offered transactions more than 1 %, and more than
    /// one for each worker, did not end in the windows. Then the response times are lower bounds,
    /// since they depend on the length of the run.
    pub saturated: bool,
    /// The number of windows of which that is true by themselves.
    pub saturated_windows: usize,
    /// The times from the moment when a transaction was due until its end: with a log, until its
    /// commit was durable.
    pub response: Latencies,
    /// The mean time from the first try to the end, in nanoseconds.
    pub service_ns_mean: f64,
    /// Every response time, by bucket; not in the file.
    #[serde(skip)]
    pub responses: Vec<Bucket>,
}

/// Times of transactions, in nanoseconds. All of them are 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The largest.
    pub max_ns: u64,
}

impl Latencies {
    /// Returns the figures of these times.
    pub fn of(times: &Histogram<u64>) -> Latencies {
        let at = |quantile| times.value_at_quantile(quantile);
        Latencies {
            mean_ns: times.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: times.max(),
        }
    }
}

/// The starts and the response times of a window in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowArrivals {
    /// Transactions whose start was due.
    pub offered: u64,
    /// Transactions that ended.
    pub ended: u64,
    /// Transactions that were not started, because they would have been too late.
    pub skipped: u64,
    /// Transactions that were due and not started at the end.
    pub backlog: u64,
    /// The time until the last worker had ended its transaction.
    pub seconds: f64,
    /// Whether the window by itself is saturated, as in [`OpenLoop::saturated`].
    pub saturated: bool,
    /// The response times.
    pub response: Latencies,
}

/// Returns whether more is left undone than in a system that keeps up.
fn is_saturated(offered: u64, ended: u64, workers: usize) -> bool {
    // Each worker may have one transaction under way.
    offered.saturating_sub(ended) as f64 > UNDONE * offered as f64 + workers as f64
}

impl WindowArrivals {
    /// Returns the figures of a window, if it had a rate of arrivals.
    pub(crate) fn of(window: &IntervalResult, workers: usize) -> Option<WindowArrivals> {
        let ArrivalCount { offered, skipped, backlog, seconds } = window.arrivals?;
        let all = window.tally.all();
        let ended = all.ended();
        let response = all.responses.as_ref().map(Latencies::of).unwrap_or_default();
        Some(WindowArrivals {
            offered,
            ended,
            skipped,
            backlog,
            seconds,
            saturated: is_saturated(offered, ended, workers),
            response,
        })
    }
}

impl OpenLoop {
    /// Returns the figures of all windows, if they had a rate of arrivals.
    pub(crate) fn of(windows: &[WindowArrivals], total: &Tally, workers: usize) -> Option<OpenLoop> {
        let last = windows.last()?;
        let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
        let sum = |figure: fn(&WindowArrivals) -> u64| windows.iter().map(figure).sum::<u64>();
        let (offered, ended) = (sum(|window| window.offered), sum(|window| window.ended));
        let all = total.all();
        let responses = all.responses.as_ref();
        Some(OpenLoop {
            offered,
            ended,
            skipped: sum(|window| window.skipped),
            backlog: last.backlog,
            offered_tps: offered as f64 / seconds,
            ended_tps: ended as f64 / seconds,
            saturated: is_saturated(offered, ended, workers),
            saturated_windows: windows.iter().filter(|window| window.saturated).count(),
            response: responses.map(Latencies::of).unwrap_or_default(),
            service_ns_mean: all.latencies.mean(),
            responses: responses.map(buckets).unwrap_or_default(),
        })
    }

    /// Formats a response time; one of a saturated entry is a lower bound.
    pub fn show(&self, nanoseconds: u64) -> String {
        match (nanoseconds, self.saturated) {
            (0, _) => "-".into(),
            (_, true) => format!("≥ {}", show_ns(nanoseconds)),
            (_, false) => show_ns(nanoseconds),
        }
    }

    /// Whether the entry has served what was offered.
    pub fn keeps_up(&self) -> bool {
        !self.saturated && self.ended > 0
    }

    /// Says whether the entry keeps up.
    pub fn verdict(&self) -> &'static str {
        match self {
            _ if self.saturated => "SATURATED",
            _ if self.offered == 0 => "nothing arrived",
            _ if self.ended == 0 => "nothing ended",
            _ => "keeps up",
        }
    }
}

/// Returns all recorded times by bucket.
pub(crate) fn buckets(times: &Histogram<u64>) -> Vec<Bucket> {
    times.iter_recorded().map(|value| Bucket { ns: value.value_iterated_to(), count: value.count_at_value() }).collect()
}

/// Orders the entries of an open loop: those that keep up by the 99th percentile of their response
/// times, then the others by the rate that they reach, then those without figures.
pub(crate) fn order(protocols: &mut [ProtocolResult]) {
    let key = |entry: &ProtocolResult| match open(entry) {
        None => (2, 0.0),
        Some(open) if !open.keeps_up() => (1, -open.ended_tps),
        Some(open) => (0, open.response.p99_ns as f64),
    };
    protocols.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("figures are numbers"));
}

fn open(entry: &ProtocolResult) -> Option<&OpenLoop> {
    entry.measured.as_ref()?.open_loop.as_ref()
}

/// Returns the finding of an open loop, in a few sentences.
pub(crate) fn finding(result: &ResultFile, arrivals: &Arrivals) -> String {
    let failed: Vec<&str> =
        result.protocols.iter().filter(|entry| entry.failed()).map(|entry| entry.protocol.as_str()).collect();
    let mut text = if failed.is_empty() { String::new() } else { format!("Wrong: {}. ", failed.join(", ")) };
    let ranked: Vec<(&str, &OpenLoop)> = result
        .protocols
        .iter()
        .filter(|entry| entry.isolation != Isolation::None.name() || result.protocols.len() == 1)
        .filter_map(|entry| Some((entry.protocol.as_str(), open(entry)?)))
        .collect();
    let rate = arrivals.in_words();
    let kept: Vec<_> = ranked.iter().filter(|(_, open)| open.keeps_up()).collect();
    match kept.first() {
        None if ranked.is_empty() => text += "No protocol that promises anything has a figure.",
        None if ranked.iter().all(|(_, open)| open.offered == 0) => {
            text += &format!("With {rate} nothing arrived in these windows; longer ones have arrivals (--seconds).");
        }
        None => text += &format!("Nothing keeps up with {rate}."),
        Some((name, open)) => {
            let skipped = match open.skipped {
                0 => String::new(),
                skipped => format!(" ({skipped} skipped)"),
            };
            text += &format!(
                "{name} keeps up with {rate}{skipped}: 99 % of its responses take at most {}; a transaction by \
                 itself takes {} on average.",
                show_ns(open.response.p99_ns),
                show_ns(open.service_ns_mean as u64)
            );
        }
    }
    if let [(_, first), (name, next), ..] = kept[..] {
        let times = next.response.p99_ns as f64 / first.response.p99_ns.max(1) as f64;
        text += &format!(" The next is {name} with {} ({times:.2} times).", show_ns(next.response.p99_ns));
    }
    let saturated: Vec<String> = ranked
        .iter()
        .filter(|(_, open)| open.saturated)
        .map(|(name, open)| format!("{name} ({} a second)", show_rate(open.ended_tps)))
        .collect();
    if !saturated.is_empty() {
        text += &format!(" Not keeping up: {}; their response times are lower bounds.", saturated.join(", "));
    }
    text
}

/// Returns what a reader of the figures has to know about them.
pub(crate) fn notes(result: &ResultFile) -> Vec<String> {
    let few = |entry: &&ProtocolResult| open(entry).is_some_and(|open| open.ended < FEW);
    let few: Vec<&str> = result.protocols.iter().filter(few).map(|entry| entry.protocol.as_str()).collect();
    let mut notes = Vec::new();
    if !few.is_empty() {
        notes.push(format!(
            "fewer than {FEW} transactions are no basis for a 99th percentile: {}; longer windows have more (--seconds)",
            few.join(", ")
        ));
    }
    if result
        .protocols
        .iter()
        .any(|entry| entry.measured.as_ref().is_some_and(|it| it.log.is_some() && it.open_loop.is_some()))
    {
        notes
            .push("with a log a response ends once its commit is durable, and the service once it is in memory".into());
    }
    if result.config.arrivals.is_some()
        && result.config.chip.is_none()
        && result.config.threads > result.environment.cores
    {
        notes.push(
            "with more threads than cores a response also waits until the system gives its thread a core".to_string(),
        );
    }
    notes
}

/// Returns the cells of an entry: what was offered and done, and the response times.
pub(crate) fn cells(measured: &Measured) -> Option<[String; 11]> {
    let open = measured.open_loop.as_ref()?;
    let Latencies { p50_ns, p95_ns, p99_ns, p999_ns, max_ns, .. } = open.response;
    let [p50, p95, p99, p999, max] = [p50_ns, p95_ns, p99_ns, p999_ns, max_ns].map(|ns| open.show(ns));
    let skipped = show_percent(open.skipped as f64 / open.offered.max(1) as f64);
    let rates = [open.offered_tps, open.ended_tps].map(show_rate);
    let [offered, ended] = rates;
    let (lag, verdict) = (measured.epoch_lag(), open.verdict().into());
    Some([offered, ended, skipped, open.backlog.to_string(), p50, p95, p99, p999, max, lag, verdict])
}

/// Returns the line of a window in a series: what happened in it.
pub(crate) fn line(window: &crate::result::Window, since: f64) -> String {
    let latency = |ns: u64| show_latency(ns);
    let mut text = format!(
        "{:>10} {:>10}/s  aborts {:>6}",
        format!("{since:.6}").trim_end_matches('0').trim_end_matches('.').to_string() + " s",
        show_rate(window.throughput_tps),
        show_percent(window.aborts as f64 / (window.commits + window.aborts).max(1) as f64),
    );
    match &window.arrivals {
        None => {
            let [p50, p95, p99, max] =
                [window.latency_ns_p50, window.latency_ns_p95, window.latency_ns_p99, window.latency_ns_max]
                    .map(latency);
            text += &format!("  latency p50 {p50} p95 {p95} p99 {p99} max {max}");
        }
        Some(open) => {
            let Latencies { p50_ns, p95_ns, p99_ns, max_ns, .. } = open.response;
            let [p50, p95, p99, max] = [p50_ns, p95_ns, p99_ns, max_ns].map(latency);
            text += &format!(
                "  offered {}/s  skipped {}  backlog {}  response p50 {p50} p95 {p95} p99 {p99} max {max}",
                show_rate(open.offered as f64 / open.seconds),
                open.skipped,
                open.backlog,
            );
            if open.saturated {
                text += "  SATURATED";
            }
        }
    }
    if window.epoch_lag_ms > 0.0 {
        text += &format!("  epoch lag {}", latency((window.epoch_lag_ms * 1e6) as u64));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_keeps_up_if_it_leaves_no_more_undone_than_is_under_way() {
        assert!(!is_saturated(0, 0, 2) && !is_saturated(10, 8, 2) && !is_saturated(1000, 988, 2));
        assert!(is_saturated(10, 7, 2) && is_saturated(1000, 987, 2));
        assert!(!is_saturated(5, 9, 2), "those of a backlog ended as well");
    }

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut times = Histogram::new_with_bounds(1, 1_000_000, 3).expect("valid");
        (1..=1000u64).for_each(|time| times.record(time).expect("in range"));
        let figures = Latencies::of(&times);
        assert_eq!((figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.max_ns), (500, 990, 999, 1000));
        assert!((figures.mean_ns - 500.5).abs() < 0.5);
        let empty = Histogram::new_with_bounds(1, 1_000_000, 3).expect("valid");
        assert_eq!(Latencies::of(&empty), Latencies::default());
        assert_eq!(buckets(&times).iter().map(|bucket| bucket.count).sum::<u64>(), 1000);
    }
}
