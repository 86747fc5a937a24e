//! The charts of a result. Each comes with its figures as a table.

use std::collections::BTreeSet;

use super::page::{Column, Table, escape, figure};
use super::picture::{Axis, Line, Lines, Mark, Row, Scale, legend_of_parts, rows};
use crate::result::{Breakdown, Bucket, Measured, ProtocolResult, ResultFile};
use crate::tables::{self, Sheet, abort_reasons, abort_share, measured};
use contend_runner::units::{show_digits, show_latency, show_ns, show_percent, show_rate};

/// Returns a sheet as a table of the page.
pub(super) fn table(caption: &str, sheet: &Sheet) -> Table {
    let columns = sheet.columns.iter().enumerate().map(|(number, name)| match number < sheet.names {
        true => Column::text(name),
        false => Column::figures(name),
    });
    let mut table = Table::new(caption, columns);
    sheet.rows.iter().for_each(|row| table.row(row.iter().cloned()));
    table
}

/// The textures of bars, by the isolation level that a protocol promises.
const PROMISES: [(usize, &str); 3] = [(0, "serializable"), (1, "a weaker level"), (6, "promises nothing")];

/// Returns the texture of an entry.
pub(super) fn promise(entry: &ProtocolResult) -> usize {
    promise_of(&entry.isolation)
}

/// Returns the texture of a promised isolation level.
pub(super) fn promise_of(isolation: &str) -> usize {
    match isolation {
        "none" => PROMISES[2].0,
        "serializable" => PROMISES[0].0,
        _ => PROMISES[1].0,
    }
}

/// Returns the legend of the textures of promises, as far as they occur.
pub(super) fn promises(parts: impl Iterator<Item = usize>) -> String {
    let parts: BTreeSet<usize> = parts.collect();
    legend_of_parts(PROMISES.iter().filter(|(part, _)| parts.contains(part)).copied())
}

/// Returns the chart of throughput: the median of each entry, and the range of its windows.
pub(super) fn throughput(result: &ResultFile) -> String {
    let Some(scale) = Scale::of(measured(result).map(|(_, measured)| measured.throughput_tps.max), false) else {
        return String::new();
    };
    let entries = measured(result).map(|(entry, measured)| {
        let spread = measured.throughput_tps;
        let range = format!("{} to {}", show_rate(spread.min), show_rate(spread.max));
        let title = format!("{}: {} a second, {range}", entry.protocol, show_rate(spread.median));
        Row {
            name: entry.protocol.clone(),
            note: format!("{} ({range})", show_rate(spread.median)),
            short: show_rate(spread.median),
            marks: vec![
                Mark::Bar { from: 0.0, to: spread.median, part: promise(entry), title },
                Mark::Range { low: spread.min, high: spread.max },
            ],
        }
    });
    let axis = Axis::new("committed transactions a second", scale, show_rate);
    let chart = rows("Throughput of each protocol with its range", &axis, &entries.collect::<Vec<_>>());
    figure(
        "Throughput",
        "Committed transactions a second: bars show the median of all windows, and lines the range from the least to the greatest.",
        &format!("{}{chart}", promises(measured(result).map(|(entry, _)| promise(entry)))),
        &table("Throughput", &tables::throughputs(result)),
    )
}

/// Returns the entry with which others are compared: the comparison's first, or the first with
/// figures.
fn reference(result: &ResultFile) -> Option<(&ProtocolResult, &Measured)> {
    let first = result.comparison.as_ref().and_then(|comparison| comparison.first.as_ref());
    measured(result).find(|(entry, _)| Some(&entry.protocol) == first).or_else(|| measured(result).next())
}

/// Small charts, one for each entry, with the same scales. The grey line is that of the reference.
struct Panels<'a> {
    /// A description of the charts for readers that can't see them.
    what: &'a str,
    axes: &'a dyn Fn() -> (Axis<'static>, Axis<'static>),
    points: &'a dyn Fn(&Measured) -> Vec<(f64, f64)>,
    has_markers: bool,
    show: &'a dyn Fn(f64, f64) -> String,
}

impl Panels<'_> {
    fn line<'a>(&self, entry: &'a ProtocolResult, measured: &Measured, number: Option<usize>) -> Line<'a> {
        Line {
            name: &entry.protocol,
            number,
            points: (self.points)(measured),
            ranges: Vec::new(),
            has_markers: self.has_markers,
        }
    }

    fn html(&self, result: &ResultFile) -> String {
        let Some((first, best)) = reference(result) else { return String::new() };
        let panels = measured(result).map(|(entry, measured)| {
            let mut lines = vec![self.line(entry, measured, Some(promise(entry)))];
            if entry.protocol != first.protocol {
                lines.insert(0, self.line(first, best, None));
            }
            let label = format!("{} of {}", self.what, entry.protocol);
            let (x, y) = (self.axes)();
            let chart = Lines { label: &label, x, y, height: 110.0, lines, is_joined: true, show: self.show }.panel();
            format!("<div><p><b>{}</b></p>{chart}</div>", escape(&entry.protocol))
        });
        format!("<div class=\"panels\">{}</div>", panels.collect::<String>())
    }
}

/// Returns the charts of throughput by window.
pub(super) fn windows(result: &ResultFile) -> String {
    let all = || measured(result).flat_map(|(_, measured)| &measured.windows);
    let rounds: BTreeSet<usize> = all().map(|window| window.round).collect();
    let Some(scale) = Scale::of(all().map(|window| window.throughput_tps), false) else { return String::new() };
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else { return String::new() };
    if first == last {
        return String::new();
    }
    let axes = || {
        let x = Axis {
            title: "round",
            scale: Scale::Linear(*first as f64, *last as f64),
            ticks: rounds.iter().map(|round| (*round as f64, round.to_string())).collect(),
        };
        (x, Axis::new("transactions a second", scale, show_rate))
    };
    let points = |measured: &Measured| {
        measured.windows.iter().map(|window| (window.round as f64, window.throughput_tps)).collect::<Vec<_>>()
    };
    let show = |round, rate| format!("{} a second in round {round}", show_rate(rate));
    let first = reference(result).map_or("", |(entry, _)| &entry.protocol);
    figure(
        "Windows",
        &format!(
            "Throughput of each protocol's windows. In each round each protocol has one window, so what slows the machine for a while slows \
             all. All charts have one scale; the grey line is {first}."
        ),
        &Panels { what: "Throughput of each window", axes: &axes, points: &points, has_markers: true, show: &show }
            .html(result),
        &table("Committed transactions a second by round", &tables::windows(result)),
    )
}

/// Returns the chart of latency at three quantiles.
pub(super) fn latency(result: &ResultFile) -> String {
    let values = |measured: &Measured| [measured.latency_ns_p50, measured.latency_ns_p99, measured.latency_ns_p999];
    let all = measured(result).flat_map(|(_, measured)| values(measured)).map(|ns| ns as f64);
    let Some(scale) = Scale::of(all, true) else { return String::new() };
    let entries = measured(result)
        .map(|(entry, measured)| quantile_row(entry.protocol.clone(), values(measured), promise(entry)));
    let axis = Axis::new("time from the first try to the commit, logarithmic", scale, |ns| show_ns(ns as u64));
    let chart = rows("Latency of each protocol", &axis, &entries.collect::<Vec<_>>());
    figure(
        "Latency",
        "From the first try to the commit: a circle is the median (p50), a diamond stands where 99 of 100 transactions are done (p99), and a \
         square where 999 of 1000 are (p99.9). One transaction in 16 is timed.",
        &chart,
        &table("Latency", &tables::latencies(result)),
    )
}

/// Returns a row of a chart with the quantiles p50, p99 and p99.9 in nanoseconds, in this texture.
pub(super) fn quantile_row(name: String, [p50, p99, p999]: [u64; 3], part: usize) -> Row {
    let dot = |shape, quantile: &str, ns: u64| Mark::Dot {
        at: ns as f64,
        shape,
        part,
        title: format!("{name}: {quantile} {}", show_latency(ns)),
    };
    let [of_p50, of_p99, of_p999] = [p50, p99, p999].map(show_latency);
    let marks = match p50 {
        0 => Vec::new(),
        _ => vec![
            Mark::Line { from: p50 as f64, to: p999 as f64, part },
            dot(0, "p50", p50),
            dot(3, "p99", p99),
            dot(1, "p99.9", p999),
        ],
    };
    let note = format!("p50 {of_p50} · p99 {of_p99} · p99.9 {of_p999}");
    Row { note, short: format!("p99 {of_p99}"), marks, name }
}

/// Returns the charts of latency over all quantiles.
pub(super) fn quantiles(result: &ResultFile) -> String {
    tails(
        result,
        &Tails {
            title: "Tails of latency",
            what: "Tail of latency",
            axis: "time to the commit",
            times: &|measured| &measured.latencies,
            table: &tables::latencies,
        },
    )
}

/// Returns the charts of the response times of an open loop over all quantiles.
pub(super) fn responses(result: &ResultFile) -> String {
    tails(
        result,
        &Tails {
            title: "Tails of response times",
            what: "Tail of response times",
            axis: "time from when it was due",
            times: &|measured| measured.open_loop.as_ref().map_or(&[], |open| &open.responses),
            table: &tables::open_loops,
        },
    )
}

/// Charts of times over all quantiles.
struct Tails<'a> {
    title: &'a str,
    what: &'a str,
    axis: &'static str,
    times: &'a dyn Fn(&Measured) -> &[Bucket],
    table: &'a dyn Fn(&ResultFile) -> Sheet,
}

/// Returns the points of a curve of times over all quantiles. The x-axis is the fraction of
/// transactions that take longer, so the tail is at the right.
fn curve(times: &[Bucket]) -> Vec<(f64, f64)> {
    let total: u64 = times.iter().map(|bucket| bucket.count).sum();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0;
    for Bucket { ns, count } in times {
        below += count;
        // No transaction takes longer than the slowest.
        let behind = (total - below) as f64 / total as f64;
        let place = LEAST_BEHIND / behind;
        let is_far = points.last().is_none_or(|(before, _)| place > before * 1.25);
        if (MOST_BEHIND..=LEAST_BEHIND).contains(&behind) && is_far {
            points.push((place, *ns as f64));
        }
    }
    points
}

/// The curves of [`curve`] go from half of the transactions to one in a million.
const LEAST_BEHIND: f64 = 0.5;
const MOST_BEHIND: f64 = 1e-6;

fn tails(result: &ResultFile, tails: &Tails<'_>) -> String {
    let points = |measured: &Measured| curve((tails.times)(measured));
    let drawn = || measured(result).flat_map(|(_, measured)| points(measured));
    let Some(scale) = Scale::of(drawn().map(|(_, ns)| ns), true) else { return String::new() };
    let furthest = drawn().map(|(place, _)| place).fold(10.0, f64::max);
    let names = [("p50", 0.5), ("p90", 0.1), ("p99", 0.01), ("p99.9", 0.001), ("p99.99", 1e-4), ("p99.999", 1e-5)];
    let ticks = || names.iter().map(|(name, behind)| (LEAST_BEHIND / behind, name.to_string()));
    let axes = || {
        let ticks = ticks().filter(|(place, _)| *place <= furthest).collect();
        let x = Axis { title: "quantile", scale: Scale::Logarithmic(1.0, furthest), ticks };
        (x, Axis::new(tails.axis, scale, |ns| show_ns(ns as u64)))
    };
    let show =
        |place, ns| format!("{:.4} % are done within {}", (1.0 - LEAST_BEHIND / place) * 100.0, show_ns(ns as u64));
    let first = reference(result).map_or("", |(entry, _)| &entry.protocol);
    figure(
        tails.title,
        &format!(
            "How long the slowest transactions take: the further to the right, the fewer take longer. All charts have one scale; the grey line is \
             {first}."
        ),
        &Panels { what: tails.what, axes: &axes, points: &points, has_markers: false, show: &show }.html(result),
        &table(tails.title, &(tails.table)(result)),
    )
}

/// Returns bars of parts of a whole, with a legend. If `has_sums`, the bars have different lengths,
/// and each shows its sum.
pub(super) fn stacked(label: &str, title: &str, bars: &[(String, Vec<f64>)], parts: &[&str], has_sums: bool) -> String {
    let longest = match has_sums {
        true => bars.iter().map(|(_, shares)| shares.iter().sum::<f64>()).fold(0.0, f64::max),
        false => 1.0,
    };
    let entries = bars.iter().map(|(name, shares)| {
        let mut from = 0.0;
        let mut marks = Vec::new();
        for (part, (share, what)) in shares.iter().zip(parts).enumerate().filter(|(_, (share, _))| **share > 0.0) {
            let title = format!("{name}: {what} {} %", show_digits(share * 100.0));
            marks.push(Mark::Bar { from, to: from + share, part, title });
            from += share;
        }
        let sum = if has_sums { format!("{} %", show_digits(from * 100.0)) } else { String::new() };
        Row { name: name.clone(), note: sum.clone(), short: sum, marks }
    });
    let percent = |share: f64| format!("{} %", show_digits(share * 100.0));
    let axis = Axis::new(title, Scale::Linear(0.0, longest), percent);
    let legend = legend_of_parts(parts.iter().copied().enumerate());
    format!("{legend}{}", rows(label, &axis, &entries.collect::<Vec<_>>()))
}

/// Returns the chart of aborted tries by reason.
pub(super) fn aborts(result: &ResultFile) -> String {
    let reasons = abort_reasons(result);
    let bars = measured(result).map(|(entry, measured)| {
        (entry.protocol.clone(), reasons.iter().map(|reason| abort_share(measured, reason)).collect::<Vec<_>>())
    });
    let bars: Vec<_> = bars.collect();
    let chart = match bars.iter().any(|(_, shares)| shares.iter().sum::<f64>() > 0.0) {
        true => stacked("Aborted tries of each protocol by reason", "share of all tries", &bars, &reasons, true),
        false if bars.is_empty() => String::new(),
        false => "<p>No transaction aborted.</p>".into(),
    };
    figure(
        "Aborts",
        "Aborted tries by reason, as a share of all tries. Transactions that cancelled themselves (user) are included here, but not in the ranking: they met \
         no conflict.",
        &chart,
        &table("Aborts", &tables::aborts(result)),
    )
}

/// Returns the chart of a breakdown: the six categories of each named entry.
pub(crate) fn times_of(bars: &[(String, &Breakdown)]) -> String {
    let parts: Vec<&str> = Breakdown::default().categories().iter().map(|(name, _)| *name).collect();
    let shares = |breakdown: &Breakdown| breakdown.categories().iter().map(|(_, share)| *share).collect::<Vec<_>>();
    let bars: Vec<_> = bars.iter().map(|(name, breakdown)| (name.clone(), shares(breakdown))).collect();
    stacked("Where the time went", "share of the workers' time", &bars, &parts, false)
}

/// Returns the figures of [`times_of`] as a table.
pub(crate) fn table_of_times(bars: &[(String, &Breakdown)]) -> Table {
    let names = Breakdown::default().categories().map(|(name, _)| name);
    let columns = [Column::text("time of")].into_iter().chain(names.iter().map(|name| Column::figures(name)));
    let mut table = Table::new("Where the time went", columns);
    for (name, breakdown) in bars {
        let shares = breakdown.categories().map(|(_, share)| show_percent(share));
        table.row([name.clone()].into_iter().chain(shares));
    }
    table
}

/// Returns the chart of the breakdown, of entries that have one.
pub(super) fn times(result: &ResultFile) -> String {
    let bars: Vec<(String, &Breakdown)> = measured(result)
        .filter_map(|(entry, measured)| Some((entry.protocol.clone(), measured.breakdown.as_ref()?)))
        .collect();
    let chart = if bars.is_empty() { String::new() } else { times_of(&bars) };
    figure(
        "Time",
        "Where the workers' time went; aborted tries, and what came between them, are one part.",
        &chart,
        &table("Where the time went", &tables::times(result)),
    )
}
