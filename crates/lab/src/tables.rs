//! The tables of a result. The terminal and the page show the same ones.

use crate::open_loop;
use crate::paired::show_share;
use crate::result::{KindResult, Measured, ProtocolResult, Ratio, ResultFile, Versions};
use contend_runner::units::{show_bytes, show_latency, show_percent, show_rate};

/// A table: its first columns are text, the others are figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The number of columns of text.
    pub names: usize,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    fn new<'a>(columns: impl IntoIterator<Item = &'a str>, names: usize) -> Sheet {
        Sheet { columns: columns.into_iter().map(String::from).collect(), names, rows: Vec::new() }
    }
}

/// Returns the entries that have figures, in the result's order.
pub(crate) fn measured(result: &ResultFile) -> impl Iterator<Item = (&ProtocolResult, &Measured)> {
    result.protocols.iter().filter_map(|entry| Some((entry, entry.measured.as_ref()?)))
}

/// Returns the table of committed transactions per second.
pub fn throughputs(result: &ResultFile) -> Sheet {
    let columns = [
        "protocol",
        "group",
        "median /s",
        "least /s",
        "most /s",
        "of the first",
        "of none",
        "commits",
        "memory",
        "B/record",
    ];
    let mut sheet = Sheet::new(columns, 1);
    let share = |ratio: &Option<Ratio>| ratio.as_ref().map_or("-".into(), show_share);
    for (entry, measured) in measured(result) {
        let spread = measured.throughput_tps;
        let rates = [spread.median, spread.min, spread.max].map(show_rate);
        let names = [entry.protocol.clone(), measured.group.map_or("-".into(), |group| group.to_string())];
        let others = [
            share(&measured.to_first),
            share(&measured.to_none),
            measured.commits.to_string(),
            show_bytes(measured.memory_bytes),
            format!("{:.0}", measured.memory_bytes_per_record),
        ];
        sheet.rows.push(names.into_iter().chain(rates).chain(others).collect());
    }
    sheet
}

/// Returns a sentence about each entry that was compared with what the machine's memory allows.
pub fn memory_limits(result: &ResultFile) -> Vec<String> {
    let sentence = |entry: &ProtocolResult| Some(entry.measured.as_ref()?.memory_limit?.sentence(&entry.protocol));
    result.protocols.iter().filter_map(sentence).collect()
}

/// Rounds in a row of [`windows`].
const ROUNDS: usize = 10;

/// Returns the table of committed transactions per second in each window, ten rounds a row.
pub fn windows(result: &ResultFile) -> Sheet {
    let mut sheet = Sheet::new(["protocol", "rounds"], 2);
    let longest = measured(result).map(|(_, measured)| measured.windows.len()).max().unwrap_or(0);
    sheet.columns.extend((1..=longest.min(ROUNDS)).map(|number| number.to_string()));
    for (entry, measured) in measured(result) {
        for windows in measured.windows.chunks(ROUNDS) {
            let rounds = match windows {
                [first, .., last] => format!("{} to {}", first.round, last.round),
                [only] => only.round.to_string(),
                [] => continue,
            };
            let mut cells: Vec<String> = windows.iter().map(|window| show_rate(window.throughput_tps)).collect();
            cells.resize(longest.min(ROUNDS), String::new());
            sheet.rows.push([entry.protocol.clone(), rounds].into_iter().chain(cells).collect());
        }
    }
    sheet
}

/// Returns the table of latencies.
pub fn latencies(result: &ResultFile) -> Sheet {
    let mut sheet = Sheet::new(["latency of", "p50", "p90", "p95", "p99", "p99.9", "max"], 1);
    for (entry, measured) in measured(result) {
        let [p50, p90, p95] = [measured.latency_ns_p50, measured.latency_ns_p90, measured.latency_ns_p95];
        let [p99, p999, max] = [measured.latency_ns_p99, measured.latency_ns_p999, measured.latency_ns_max];
        let cells = [p50, p90, p95, p99, p999, max].map(show_latency);
        sheet.rows.push([entry.protocol.clone()].into_iter().chain(cells).collect());
    }
    sheet
}

/// Returns the table of an open loop: what was offered and done, and the response times.
pub fn open_loops(result: &ResultFile) -> Sheet {
    let columns = [
        "open loop of",
        "offered /s",
        "ended /s",
        "skipped",
        "backlog",
        "response p50",
        "p95",
        "p99",
        "p99.9",
        "max",
        "epoch lag",
        "verdict",
    ];
    let mut sheet = Sheet::new(columns, 1);
    for (entry, measured) in measured(result) {
        let cells = open_loop::cells(measured).into_iter().flatten();
        let row: Vec<String> = [entry.protocol.clone()].into_iter().chain(cells).collect();
        if row.len() > 1 {
            sheet.rows.push(row);
        }
    }
    sheet
}

/// Returns the table of aborts by reason, as shares of all tries.
pub fn aborts(result: &ResultFile) -> Sheet {
    let reasons = abort_reasons(result);
    let mut sheet = Sheet::new(["protocol", "all conflicts"].into_iter().chain(reasons.iter().copied()), 1);
    for (entry, measured) in measured(result) {
        let shares = reasons.iter().map(|reason| show_percent(abort_share(measured, reason)));
        let all = show_percent(measured.abort_rate);
        sheet.rows.push([entry.protocol.clone(), all].into_iter().chain(shares).collect());
    }
    sheet
}

/// Returns the reasons of aborts that occurred.
pub(crate) fn abort_reasons(result: &ResultFile) -> Vec<&str> {
    let mut reasons: Vec<&str> =
        measured(result).flat_map(|(_, measured)| measured.aborts_by_reason.keys().map(String::as_str)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons
}

/// Returns the fraction of all tries that was aborted for this reason.
pub(crate) fn abort_share(measured: &Measured, reason: &str) -> f64 {
    let tries = measured.commits as f64 + measured.aborts_by_reason.values().map(|count| *count as f64).sum::<f64>();
    measured.aborts_by_reason.get(reason).copied().unwrap_or(0) as f64 / tries.max(1.0)
}

/// Returns the table by type of transaction, of entries with more than one type.
pub fn kinds(result: &ResultFile) -> Sheet {
    let columns = ["protocol", "type", "commits", "share", "aborts", "gave up", "p50", "p99", "p99.9"];
    let mut sheet = Sheet::new(columns, 2);
    for (entry, measured) in measured(result).filter(|(_, measured)| measured.kinds.len() > 1) {
        for kind in &measured.kinds {
            let names = [entry.protocol.clone(), kind.kind.clone()];
            sheet.rows.push(names.into_iter().chain(kind_cells(measured, kind)).collect());
        }
    }
    sheet
}

fn kind_cells(measured: &Measured, kind: &KindResult) -> [String; 7] {
    let user = kind.aborts_by_reason.get("user").copied().unwrap_or(0);
    [
        kind.commits.to_string(),
        of(kind.commits, measured.commits),
        format!("{:.2} %", kind.abort_rate * 100.0),
        of(user, kind.commits.saturating_add(user)),
        show_latency(kind.latency_ns_p50),
        show_latency(kind.latency_ns_p99),
        show_latency(kind.latency_ns_p999),
    ]
}

fn of(count: u64, all: u64) -> String {
    show_percent(count as f64 / all.max(1) as f64)
}

/// Returns the table of old versions, of protocols that keep some.
pub fn versions(result: &ResultFile) -> Sheet {
    let columns = [
        "protocol",
        "old versions",
        "bytes",
        "made",
        "in used memory",
        "collected",
        "early",
        "records by old versions",
    ];
    let mut sheet = Sheet::new(columns, 1);
    for (entry, measured) in measured(result) {
        let Some(versions) = &measured.versions else { continue };
        sheet.rows.push([entry.protocol.clone()].into_iter().chain(version_cells(versions)).collect());
    }
    sheet
}

fn version_cells(versions: &Versions) -> [String; 7] {
    [
        versions.alive.to_string(),
        show_bytes(versions.alive_bytes),
        versions.made.to_string(),
        of(versions.reused, versions.made),
        of(versions.collected, versions.made),
        of(versions.collected_early, versions.made),
        records_by_versions(&versions.records_by_versions),
    ]
}

/// Formats the records by the number of their old versions, as in "0: 10, 2-3: 5".
fn records_by_versions(records: &[u64]) -> String {
    let class = |class: usize| match class {
        0 | 1 => class.to_string(),
        2..64 => format!("{}-{}", 1u64 << (class - 1), (1u64 << class) - 1),
        _ => "more".into(),
    };
    let classes = records.iter().enumerate().filter(|(_, records)| **records > 0);
    classes.map(|(number, records)| format!("{}: {records}", class(number))).collect::<Vec<_>>().join(", ")
}

/// Returns the table of the log, of protocols that have one.
pub fn logs(result: &ResultFile) -> Sheet {
    let columns = ["protocol", "log bytes of a commit", "durable after p50", "p99", "at the latest", "epoch lag"];
    let mut sheet = Sheet::new(columns, 1);
    for (entry, measured) in measured(result) {
        let Some(log) = &measured.log else { continue };
        let times = [log.durable_ns_p50, log.durable_ns_p99, log.durable_ns_max].map(show_latency);
        let bytes = format!("{:.1}", log.bytes_per_commit);
        let row = [entry.protocol.clone(), bytes].into_iter().chain(times).chain([measured.epoch_lag()]);
        sheet.rows.push(row.collect());
    }
    sheet
}

/// The operations of a breakdown, in order.
const OPERATIONS: [&str; 6] = ["body", "read", "write", "validation", "gc", "backoff"];

/// Returns the breakdown of the time by category and by operation, of entries that have one.
pub fn times(result: &ResultFile) -> Sheet {
    let mut sheet = Sheet::new(["time of"], 1);
    for (entry, measured) in measured(result) {
        let Some(breakdown) = &measured.breakdown else { continue };
        if sheet.rows.is_empty() {
            sheet.columns.extend(breakdown.categories().map(|(name, _)| name.to_string()));
            sheet.columns.extend(OPERATIONS.map(|name| format!("({name})")));
        }
        let categories = breakdown.categories().map(|(_, share)| show_percent(share));
        let by_operation = OPERATIONS.map(|name| show_percent(breakdown.operations.get(name).copied().unwrap_or(0.0)));
        sheet.rows.push([entry.protocol.clone()].into_iter().chain(categories).chain(by_operation).collect());
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_in_classes() {
        assert_eq!(records_by_versions(&[10, 3, 5, 1]), "0: 10, 1: 3, 2-3: 5, 4-7: 1");
        assert!(records_by_versions(&[1; 80]).ends_with("more: 1"));
    }
}
