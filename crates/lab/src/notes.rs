//! Sentences that a reader of the figures needs: what they are compared with, what was not as it
//! seems, and what the workload's own check said.

use std::collections::BTreeMap;

use contend_machine::Native;
use contend_model::counted;
use contend_protocols::deterministic_protocols;
use contend_runner::units::{show_percent, show_rate};
use contend_workloads::Checked;

use crate::drift::Trend;
use crate::open_loop;
use crate::result::{Measured, ProtocolResult, ResultFile, TableRows};
use crate::tables::{measured, memory_limits};

/// The part of its tries that a type of transactions gives up from which it is said.
const GIVES_UP: f64 = 0.5;
/// The growth of a table from which it is named, as a part of its rows.
const GROWTH: f64 = 0.1;
/// The most entries, or tables, that a sentence names.
const NAMED_MAX: usize = 4;

/// An entry with its figures.
pub(crate) type Entry<'a> = (&'a str, &'a Measured);

/// Returns the sentences about a result.
pub fn notes(result: &ResultFile) -> Vec<String> {
    let mut notes = memory_limits(result);
    notes.extend(latencies_of_batches(result));
    notes.extend(open_loop::notes(result));
    let entries: Vec<Entry<'_>> = measured(result).map(|(entry, figures)| (&*entry.protocol, figures)).collect();
    // In an open loop throughput is what was offered.
    if result.config.arrivals.is_none() {
        notes.extend(trends(&entries).iter().map(|line| format!("note: {line}")));
    }
    notes.extend(given_up(&entries).iter().map(|line| format!("note: {line}")));
    let texts = result.protocols.iter().filter_map(|entry| Some((&*entry.protocol, &*entry.check.as_ref()?.text)));
    notes.extend(warnings(texts));
    notes
}

/// Returns what the checks of these entries, which have passed, found in order. Entries with one
/// text share a line.
pub fn checked(result: &ResultFile) -> Vec<String> {
    let passed = result.protocols.iter().filter(|entry| !entry.failed());
    checks(passed.filter_map(|entry| Some((&*entry.protocol, &*entry.check.as_ref()?.text))))
}

/// Returns the same of entries and their texts.
pub(crate) fn checks<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut entries_of: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut count = 0;
    for (entry, text) in texts {
        count += 1;
        let text = text.split(Checked::WARNING).next().unwrap_or_default();
        match entries_of.iter_mut().find(|(other, _)| *other == text) {
            Some((_, entries)) => entries.push(entry),
            None => entries_of.push((text, vec![entry])),
        }
    }
    let of = |entries: &[&str]| if entries.len() == count { String::new() } else { format!(" ({})", named(entries)) };
    match entries_of.len() {
        0..=NAMED_MAX => {
            entries_of.iter().map(|(text, entries)| format!("checked after the run{}: {text}", of(entries))).collect()
        }
        // Texts that count what an entry did differ from entry to entry.
        _ => vec![format!("checked after the run: nothing is wrong in the rows of any of the {count} entries")],
    }
}

/// Names the first of many.
fn named(names: &[&str]) -> String {
    match names.len() {
        0..=NAMED_MAX => names.join(", "),
        many => format!("{} and {} more", names[..NAMED_MAX].join(", "), many - NAMED_MAX),
    }
}

/// Returns the warnings of the workload's checks. Entries with one warning share a sentence.
pub(crate) fn warnings<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut entries_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (entry, text) in texts {
        if let Some((_, warning)) = text.split_once(Checked::WARNING) {
            entries_of.entry(warning).or_default().push(entry);
        }
    }
    entries_of.into_iter().map(|(warning, entries)| format!("warning ({}): {warning}", entries.join(", "))).collect()
}

/// Says which entries become slower or faster from window to window, and which tables grow
/// meanwhile.
pub(crate) fn trends(entries: &[Entry<'_>]) -> Vec<String> {
    let trend = |(name, measured): &Entry<'_>| {
        let rates: Vec<f64> = measured.windows.iter().map(|window| window.throughput_tps).collect();
        Some((name.to_string(), Trend::of(&rates)?, measured.tables.clone()))
    };
    let all: Vec<(String, Trend, Vec<TableRows>)> = entries.iter().filter_map(trend).collect();
    let sentence = |falls: bool| {
        let mut these: Vec<_> = all.iter().filter(|(_, trend, _)| trend.falls() == falls).collect();
        these.sort_by(|a, b| b.1.factor().total_cmp(&a.1.factor()));
        let shown: Vec<String> = these
            .iter()
            .map(|(name, trend, _)| format!("{name} {} to {} /s", show_rate(trend.first), show_rate(trend.last)))
            .collect();
        let shown = named(&shown.iter().map(String::as_str).collect::<Vec<_>>());
        let (_, _, tables) = these.first()?;
        Some(match (falls, growth(tables)) {
            (true, Some(growth)) => format!(
                "throughput falls from window to window (first third to last third: {shown}), and tables grow \
                 meanwhile: {growth}. So a figure depends on how long the run was: compare windows of one length, and \
                 few of them (--windows), or let a transaction delete as many rows as others insert"
            ),
            (true, None) => format!(
                "throughput falls from window to window (first third to last third: {shown}), and no table is known \
                 to grow: the rows that transactions leave behind, or other programs and heat, make later windows \
                 slower. So a figure depends on how long the run was"
            ),
            (false, _) => format!(
                "throughput rises from window to window (first third to last third: {shown}): the first windows are \
                 no fair part of the figures; a longer warm-up (--warmup) leaves them out"
            ),
        })
    };
    [true, false].into_iter().filter_map(sentence).collect()
}

/// Names the tables that have grown, those that have grown most first.
fn growth(tables: &[TableRows]) -> Option<String> {
    let factor = |of: &TableRows| of.rows_at_end as f64 / (of.rows_loaded as f64).max(1.0);
    let mut grown: Vec<&TableRows> = tables.iter().filter(|of| factor(of) >= 1.0 + GROWTH).collect();
    grown.sort_by(|a, b| factor(b).total_cmp(&factor(a)));
    let shown: Vec<String> = grown
        .iter()
        .map(|of| format!("{} from {} to {}", of.table, of.rows_loaded, counted(of.rows_at_end, "row")))
        .collect();
    (!shown.is_empty()).then(|| named(&shown.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Says which types of transactions cancel themselves in most of their tries.
pub(crate) fn given_up(entries: &[Entry<'_>]) -> Vec<String> {
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for kind in entries.iter().flat_map(|(_, measured)| &measured.kinds) {
        let user = kind.aborts_by_reason.get("user").copied().unwrap_or(0);
        let ends = kind.commits.saturating_add(user).max(1) as f64;
        shares.entry(&kind.kind).or_default().push(user as f64 / ends);
    }
    let sentence = |(kind, shares): (&str, Vec<f64>)| {
        let least = shares.iter().copied().fold(1.0, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        let [low, high] = [least, most].map(show_percent);
        let range = if low == high { high } else { format!("{low} to {high}") };
        (most >= GIVES_UP).then(|| {
            format!(
                "{kind} gives up in {range} of its tries, by its own rollback or by an insert of a key that exists. \
                 These are no commits, so {kind} has less of the run than its weight says. Load more of the rows that \
                 it needs, draw keys that are there, or give the transactions that make such rows more weight"
            )
        })
    };
    shares.into_iter().filter_map(sentence).collect()
}

/// Returns a sentence about the entries whose transactions end with their batch.
fn latencies_of_batches(result: &ResultFile) -> Option<String> {
    let deterministic = deterministic_protocols::<Native>();
    let has_batches = |entry: &&ProtocolResult| {
        let name = entry.protocol.split('+').next().unwrap_or_default();
        deterministic.iter().any(|(other, _)| *other == name)
    };
    let described = |entry: &ProtocolResult| {
        let in_flight = entry.options.get("threads.interleave").and_then(|number| number.parse::<usize>().ok());
        let size = in_flight.map(|number| format!(" ({})", counted(number * result.config.threads, "transaction")));
        format!("{}{}", entry.protocol, size.unwrap_or_default())
    };
    let entries: Vec<String> = result.protocols.iter().filter(has_batches).map(described).collect();
    (!entries.is_empty()).then(|| {
        format!(
            "a transaction ends when its batch lets it, so these latencies are those of batches: {}",
            entries.join(", ")
        )
    })
}
