//! The difference between two results, entry by entry: how much faster or slower the second is,
//! with an interval.
//!
//! The windows of the two runs form no pairs, because no window of one run was measured beside a
//! window of the other. So the interval is that of Hodges and Lehmann, from the ratios of every
//! window of the second run to every window of the first. The median of these ratios is the
//! estimate. The distribution of the rank-sum statistic of Mann and Whitney tells how many ratios
//! are cut off at either end, whatever the distribution of the windows. Source: Hollander, Wolfe,
//! Chicken, "Nonparametric Statistical Methods", 3rd edition, sections 4.1 to 4.3.
//!
//! The interval does not cover other changes between the two runs: a machine that is slower today
//! makes every entry slower.

use serde::Serialize;

use crate::result::{Measured, ProtocolResult, ResultFile};
use contend_runner::units::show_given;
use contend_runner::{Arrivals, RunConfig, RunError};

/// The probability with which an interval covers the true ratio, at least.
pub const CONFIDENCE: f64 = 0.95;

/// The ratio of the second run's throughput to the first's, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ThroughputRatio {
    /// The estimate: 1 is no difference, 0.9 means that the second is a tenth slower.
    pub estimate: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl ThroughputRatio {
    /// Returns the ratio of two runs by the throughputs of their windows. Returns `None` if there
    /// are too few windows for an interval of [`CONFIDENCE`], or if one has no commits.
    pub fn of(first: &[f64], second: &[f64]) -> Option<ThroughputRatio> {
        let cut = cut_off(first.len(), second.len())?;
        if first.iter().chain(second).any(|throughput| *throughput <= 0.0 || !throughput.is_finite()) {
            return None;
        }
        let mut ratios: Vec<f64> = second.iter().flat_map(|b| first.iter().map(move |a| b / a)).collect();
        ratios.sort_by(f64::total_cmp);
        let (middle, last) = (ratios.len() / 2, ratios.len() - 1);
        // The geometric mean of the middle two treats a ratio and its inverse alike.
        let estimate =
            if ratios.len().is_multiple_of(2) { (ratios[middle - 1] * ratios[middle]).sqrt() } else { ratios[middle] };
        Some(ThroughputRatio { estimate, low: ratios[cut], high: ratios[last - cut] })
    }

    /// Returns whether the two are told apart: whether the interval is on one side of 1.
    pub fn is_told(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The largest number of windows for which the distribution is computed exactly. Beyond, it is
/// close to normal.
const COUNTED_MAX: usize = 40;

/// Returns the number of ratios that are cut off at either end of the interval, of `m` windows with
/// `n`. Returns `None` if no interval covers enough.
fn cut_off(m: usize, n: usize) -> Option<usize> {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    if m == 0 || n == 0 {
        return None;
    }
    if m.max(n) > COUNTED_MAX {
        let (m, n) = (m as f64, n as f64);
        let deviation = (m * n * (m + n + 1.0) / 12.0).sqrt();
        let cut = (m * n / 2.0 - 1.96 * deviation - 0.5).floor();
        return (cut >= 0.0).then_some(cut as usize);
    }
    // ways[j][u]: orders of i first and j second windows in which u pairs are in the wrong order.
    let mut ways: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for i in 1..=m {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=n {
            // The last window in the order is a second's, behind i first ones, or a first's.
            let mut sum = vec![0.0; i * j + 1];
            for (u, count) in next[j - 1].iter().enumerate() {
                sum[u + i] += count;
            }
            for (u, count) in ways[j].iter().enumerate() {
                sum[u] += count;
            }
            next.push(sum);
        }
        ways = next;
    }
    let counts = &ways[n];
    let all: f64 = counts.iter().sum();
    let mut below = 0.0;
    let enough = counts.iter().take_while(|count| {
        below += **count / all;
        below <= tail
    });
    enough.count().checked_sub(1)
}

/// The change of an entry from the first result to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is faster.
    Faster,
    /// It is slower.
    Slower,
    /// The two are not told apart.
    NotTold,
    /// There are too few windows for an interval.
    TooFewWindows,
    /// It has no figures in one or both results: a check failed.
    NoFigures,
    /// Only the first result has it.
    OnlyInFirst,
    /// Only the second result has it.
    OnlyInSecond,
}

impl Change {
    /// Returns the change in words.
    pub fn name(self) -> &'static str {
        match self {
            Change::Faster => "faster",
            Change::Slower => "SLOWER",
            Change::NotTold => "not told apart",
            Change::TooFewWindows => "too few windows to tell",
            Change::NoFigures => "no figures",
            Change::OnlyInFirst => "only in the first",
            Change::OnlyInSecond => "only in the second",
        }
    }
}

/// An entry of two results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryDiff {
    /// The protocol, with the options that were set for this entry only.
    pub protocol: String,
    /// The median throughput in the first result, in transactions a second.
    pub first_tps: Option<f64>,
    /// The median throughput in the second result.
    pub second_tps: Option<f64>,
    /// The ratio of the second throughput to the first.
    pub ratio: Option<ThroughputRatio>,
    /// The 99th percentile of latency in the second, as a multiple of that in the first.
    pub p99_ratio: Option<f64>,
    /// The change.
    pub change: Change,
}

impl EntryDiff {
    /// Returns whether a gate that allows a loss of `allowed` (0.05 is 5 %) must stop the entry. It
    /// must if the entry is told to be slower by more than that, or if this can't be told. An entry
    /// that only the second result has is no loss.
    pub fn is_worse_than(&self, allowed: f64) -> bool {
        match self.change {
            Change::Slower => self.ratio.is_some_and(|ratio| ratio.estimate < 1.0 - allowed),
            Change::TooFewWindows | Change::NoFigures | Change::OnlyInFirst => true,
            Change::Faster | Change::NotTold | Change::OnlyInSecond => false,
        }
    }
}

/// Two results, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Differences between the runs besides the figures, a sentence each.
    pub differences: Vec<String>,
    /// The entries, in the order of the first result; then those that only the second has.
    pub entries: Vec<EntryDiff>,
}

/// Compares two results.
///
/// # Errors
/// They are of different workloads, or have no entry in common.
pub fn diff(first: &ResultFile, second: &ResultFile) -> Result<Diff, RunError> {
    if first.config.workload != second.config.workload {
        return Err(RunError::BadInput(format!(
            "the first result is of {} and the second of {}; valid: two of one workload",
            first.config.workload, second.config.workload
        )));
    }
    if first.config.arrivals != second.config.arrivals {
        return Err(RunError::BadInput(format!(
            "the first result has {} and the second {}: at a rate, throughput is what was offered; valid: two results \
             with the same arrivals",
            arrivals(&first.config),
            arrivals(&second.config)
        )));
    }
    let find = |result: &'_ ResultFile, name: &str| -> Option<ProtocolResult> {
        result.protocols.iter().find(|entry| entry.protocol == name).cloned()
    };
    let mut entries = Vec::new();
    for entry in &first.protocols {
        entries.push(entry_diff(&entry.protocol, Some(entry), find(second, &entry.protocol).as_ref()));
    }
    if entries.iter().all(|entry| entry.change == Change::OnlyInFirst) {
        let names = |result: &ResultFile| {
            let names: Vec<&str> = result.protocols.iter().map(|entry| entry.protocol.as_str()).collect();
            if names.is_empty() { "none".into() } else { names.join(", ") }
        };
        return Err(RunError::BadInput(format!(
            "the results have no entry in common: the first has {}, the second {}",
            names(first),
            names(second)
        )));
    }
    for entry in &second.protocols {
        if find(first, &entry.protocol).is_none() {
            entries.push(entry_diff(&entry.protocol, None, Some(entry)));
        }
    }
    Ok(Diff { differences: differences(first, second), entries })
}

fn entry_diff(protocol: &str, first: Option<&ProtocolResult>, second: Option<&ProtocolResult>) -> EntryDiff {
    let measured =
        |entry: Option<&'_ ProtocolResult>| -> Option<Measured> { entry.and_then(|entry| entry.measured.clone()) };
    let (a, b) = (measured(first), measured(second));
    let median = |measured: &Option<Measured>| measured.as_ref().map(|measured| measured.throughput_tps.median);
    let windows = |measured: &Measured| measured.windows.iter().map(|window| window.throughput_tps).collect::<Vec<_>>();
    let (mut ratio, mut p99_ratio) = (None, None);
    if let (Some(a), Some(b)) = (&a, &b) {
        ratio = ThroughputRatio::of(&windows(a), &windows(b));
        // At a rate the response times count.
        let p99 = |it: &Measured| it.open_loop.as_ref().map_or(it.latency_ns_p99, |open| open.response.p99_ns);
        p99_ratio = (p99(a) > 0 && p99(b) > 0).then(|| p99(b) as f64 / p99(a) as f64);
    }
    let change = match (first, second) {
        (Some(_), None) => Change::OnlyInFirst,
        (None, _) => Change::OnlyInSecond,
        _ if a.is_none() || b.is_none() => Change::NoFigures,
        _ => match ratio {
            None => Change::TooFewWindows,
            Some(ratio) if ratio.low > 1.0 => Change::Faster,
            Some(ratio) if ratio.high < 1.0 => Change::Slower,
            Some(_) => Change::NotTold,
        },
    };
    EntryDiff { protocol: protocol.into(), first_tps: median(&a), second_tps: median(&b), ratio, p99_ratio, change }
}

/// Describes how transactions arrived.
fn arrivals(config: &RunConfig) -> String {
    config.arrivals.as_ref().map_or("a closed loop".into(), Arrivals::in_words)
}

/// Returns the differences between the two runs besides their figures.
fn differences(first: &ResultFile, second: &ResultFile) -> Vec<String> {
    let (a, b) = (&first.config, &second.config);
    let (of_a, of_b) = (&first.environment, &second.environment);
    let index = |index: &Option<String>| index.clone().unwrap_or_else(|| "hash".into());
    let commit = |commit: &Option<String>| commit.clone().unwrap_or_else(|| "an unknown commit".into());
    let pairs = [
        ("machine", a.machine.clone(), b.machine.clone()),
        ("processor", of_a.cpu_model.clone(), of_b.cpu_model.clone()),
        ("cores", of_a.cores.to_string(), of_b.cores.to_string()),
        ("kernel", of_a.kernel.clone(), of_b.kernel.clone()),
        ("version", of_a.version.clone(), of_b.version.clone()),
        ("commit", commit(&of_a.commit), commit(&of_b.commit)),
        ("threads", a.threads.to_string(), b.threads.to_string()),
        ("index", index(&a.index), index(&b.index)),
        ("seed", a.seed.to_string(), b.seed.to_string()),
        ("seconds of a window", show_given(a.window_seconds), show_given(b.window_seconds)),
        ("seconds of warm-up", show_given(a.warmup_seconds), show_given(b.warmup_seconds)),
    ];
    let named = pairs.into_iter().filter(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a}, then {b}"));
    let mut all: Vec<String> = named.collect();
    if a.chip != b.chip {
        all.push("the simulated chip's parameters differ".into());
    }
    let names = first.options.keys().chain(second.options.keys().filter(|name| !first.options.contains_key(*name)));
    for name in names {
        let value = |options: &std::collections::BTreeMap<String, String>| {
            options.get(name).cloned().unwrap_or_else(|| "not there".into())
        };
        if value(&first.options) != value(&second.options) {
            all.push(format!("{name}: {}, then {}", value(&first.options), value(&second.options)));
        }
    }
    for entry in &first.protocols {
        let Some(other) = second.protocols.iter().find(|other| other.protocol == entry.protocol) else { continue };
        for (name, value) in &entry.options {
            if let Some(then) = other.options.get(name).filter(|then| *then != value) {
                all.push(format!("{name} of {}: {value}, then {then}", entry.protocol));
            }
        }
    }
    for (which, result) in [("first", first), ("second", second)] {
        if result.partial {
            all.push(format!("the {which} result is partial: its run was stopped before its end"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_model::random::SplitMix64;

    #[test]
    fn so_many_are_cut_off_as_the_tables_say() {
        // Critical values of U for 5 % on two sides, from published tables.
        for (m, n, critical) in [(4, 4, 0), (5, 5, 2), (5, 10, 8), (10, 10, 23), (20, 20, 127), (3, 5, 0), (8, 3, 2)] {
            assert_eq!(cut_off(m, n), Some(critical), "{m}, {n}");
            assert_eq!(cut_off(n, m), Some(critical), "{n}, {m}");
        }
        for (m, n) in [(0, 5), (1, 5), (2, 5), (3, 3), (1, 38), (2, 7)] {
            assert_eq!(cut_off(m, n), None, "{m}, {n}");
        }
        // The exact count and its approximation agree where they meet.
        let (counted, normal) = (cut_off(40, 40).expect("many"), cut_off(41, 40).expect("many"));
        assert!((counted as i64 - normal as i64).abs() < 40, "{counted} {normal}");
        assert!(cut_off(1, 50).is_none());
    }

    #[test]
    fn the_estimate_is_the_ratio_and_turns_with_its_sides() {
        let first = [100.0, 101.0, 99.0, 100.5, 99.5];
        let second: Vec<f64> = first.iter().map(|value| value * 0.8).collect();
        let ratio = ThroughputRatio::of(&first, &second).expect("five of each");
        assert!((ratio.estimate - 0.8).abs() < 0.01 && ratio.is_told() && ratio.high < 1.0, "{ratio:?}");
        let back = ThroughputRatio::of(&second, &first).expect("five of each");
        assert!((back.estimate * ratio.estimate - 1.0).abs() < 1e-9, "{back:?}");
        assert!((back.low * ratio.high - 1.0).abs() < 1e-9);
        assert!(!ThroughputRatio::of(&first, &first).expect("five of each").is_told());
        assert_eq!(ThroughputRatio::of(&first, &[0.0; 5]), None, "nothing committed");
    }

    /// 500 comparisons of equal runs, and 500 of runs that differ by 10 %. The windows deviate by
    /// some 3 %.
    #[test]
    fn what_is_no_difference_is_hardly_ever_told() {
        let mut random = SplitMix64::new(7);
        let mut window = |level: f64| {
            let uniform: f64 = (0..12).map(|_| random.below(1 << 20) as f64 / (1 << 20) as f64).sum();
            level * (1.0 + 0.03 * (uniform - 6.0))
        };
        let mut told = |level: f64| {
            let run =
                |window: &mut dyn FnMut(f64) -> f64, level: f64| (0..5).map(|_| window(level)).collect::<Vec<_>>();
            let one = |_: &usize| {
                let (first, second) = (run(&mut window, 1.0), run(&mut window, level));
                ThroughputRatio::of(&first, &second).expect("five of each").is_told()
            };
            (0..500).filter(one).count()
        };
        let (same, slower) = (told(1.0), told(0.9));
        assert!(same <= 25 && slower >= 450, "{same} and {slower} of 500");
    }
}
