//! The advice in sentences.

use contend_runner::units::{show_bytes, show_ns, show_percent, show_rate};

use super::candidates::Features;
use super::{Advice, Finalist};
use crate::paired::show_ratio;

/// The most tables of which the uses are told.
const TABLES_TOLD: usize = 4;

/// Puts the entry to use, the advice and its reasons into an advice.
pub(super) fn conclude(advice: &mut Advice, features: &Features) {
    let place = format!("{} with {} threads on this machine", advice.config.workload, advice.config.threads);
    let by_rate = advice.rates.iter().find(|found| found.passes.is_some() && !found.failed()).cloned();
    if let (Some(p99), Some(found)) = (advice.question.p99_ns, &by_rate) {
        advice.entry = Some(found.protocol.clone());
        advice.advice = format!(
            "Use {} for {place}: it keeps a p99 of at most {} at {} transactions a second.",
            found.protocol,
            show_ns(p99),
            show_rate(found.passes.unwrap_or(0.0))
        );
    } else if let Some(chosen) = simplest(&advice.finalists).cloned() {
        let equals: Vec<&str> =
            advice.finalists.iter().filter(|it| it.is_best && it.entry != chosen.entry).map(|it| &*it.entry).collect();
        advice.advice = match equals.is_empty() {
            true => format!(
                "Use {} for {place}: it is the fastest of {} candidates, and told apart from all that came so far.",
                chosen.entry,
                advice.candidates.len()
            ),
            false => format!(
                "Use any of these for {place}: {}, {}. They are not told apart, and {} is the simplest.",
                chosen.entry,
                equals.join(", "),
                chosen.entry
            ),
        };
        advice.entry = Some(chosen.entry);
    } else {
        advice.advice = "No candidate has figures.".into();
    }
    advice.reasons = reasons(advice, features, by_rate.is_some());
}

/// Returns the best entry that is the simplest: with the fewest options, then without old versions,
/// then with the least memory.
fn simplest(finalists: &[Finalist]) -> Option<&Finalist> {
    finalists
        .iter()
        .filter(|it| it.is_best)
        .min_by_key(|it| (it.entry.matches('+').count(), it.measured.versions.is_some(), it.measured.memory_bytes))
}

fn reasons(advice: &Advice, features: &Features, is_by_rate: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if advice.question.p99_ns.is_some() && !is_by_rate {
        lines.push("No finalist keeps the limit of response times at any rate that was tried.".to_string());
    }
    if let Some(chosen) = advice.finalists.iter().find(|it| Some(&it.entry) == advice.entry.as_ref()) {
        let measured = &chosen.measured;
        lines.push(format!(
            "{} commits {} transactions a second; {} of its tries abort, 99 of 100 transactions take at most {}, and its \
             tables take {}.",
            chosen.entry,
            show_rate(measured.throughput_tps.median),
            show_percent(measured.abort_rate),
            show_ns(measured.latency_ns_p99),
            show_bytes(measured.memory_bytes)
        ));
    }
    lines.extend(options(&advice.finalists));
    let updates: Vec<String> = (features.uses.iter())
        .filter(|of| of.how == "updates")
        .map(|of| format!("{} updates {}", of.kind, of.what))
        .take(TABLES_TOLD)
        .collect();
    if !updates.is_empty() {
        lines.push(format!("Commit-time updates (cu) apply: {}.", updates.join("; ")));
    }
    if features.has_groups {
        lines
            .push("Timestamp splitting (ts) applies: tables have groups of columns with versions of their own.".into());
    }
    lines.extend(leaders(advice));
    lines
}

/// Returns what each option that was tried is worth.
fn options(finalists: &[Finalist]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut same = Vec::new();
    for it in finalists.iter().filter(|it| it.is_option) {
        match &it.to_base {
            Some(ratio) if ratio.told_apart => {
                lines.push(format!("{}: {} the entry without this change.", it.entry, show_ratio(ratio)))
            }
            _ => same.push(it.entry.as_str()),
        }
    }
    if !same.is_empty() {
        lines.push(format!("No difference that these rounds can tell: {}.", same.join(", ")));
    }
    lines
}

/// Returns which entry leads on how many simulated cores.
fn leaders(advice: &Advice) -> Vec<String> {
    let mut lines = Vec::new();
    for cores in &advice.question.cores {
        let here = || advice.on_cores.iter().filter(|it| it.cores == *cores);
        let Some(best) = here().max_by(|a, b| a.throughput_tps.total_cmp(&b.throughput_tps)) else { continue };
        let others: Vec<String> = here()
            .filter(|it| it.entry != best.entry)
            .map(|it| format!("{} has {:.2} of it", it.entry, it.throughput_tps / best.throughput_tps))
            .collect();
        let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
        lines.push(format!(
            "On {} with {cores} simulated cores {} leads with {} a second{others}.",
            advice.question.chip,
            best.entry,
            show_rate(best.throughput_tps)
        ));
    }
    lines
}
