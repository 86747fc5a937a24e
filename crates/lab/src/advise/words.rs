//! The advice in sentences.

use contend_model::counted;
use contend_runner::units::{show_bytes, show_ns, show_percent, show_rate};

use super::candidates::Features;
use super::{Advice, Candidate, Finalist, MeasuredSplit};
use crate::notes;
use crate::paired::show_ratio;
use crate::saturate::Saturation;

/// The most tables of which the uses are told.
const TABLES_TOLD: usize = 4;
/// A candidate that was above this part of the fastest when it left is named.
const NEAR_MISS: f64 = 0.95;

/// Puts the entry to use, the advice and its reasons into an advice. `checks` has what the check of
/// each entry's rows said.
pub(super) fn conclude(advice: &mut Advice, features: &Features, checks: &[(String, String)]) {
    let place = format!("{} with {} on this machine", advice.config.workload, counted(advice.config.threads, "thread"));
    let by_rate = by_rate(advice);
    if let (Some(p99), Some((chosen, passes, equals))) = (advice.question.p99_ns, &by_rate) {
        advice.entry = Some(chosen.clone());
        let p99 = show_ns(p99);
        advice.advice = match equals.is_empty() {
            true => format!(
                "Use {chosen} for {place}: it keeps a p99 of at most {p99} at {} transactions a second, more than the \
                 other finalists.",
                show_rate(*passes)
            ),
            false => format!(
                "Use any of these for {place}: {chosen}, {}. Their highest rates with a p99 of at most {p99} are not told \
                 apart, and {chosen} is the simplest.",
                equals.join(", ")
            ),
        };
    } else if let Some(chosen) = simplest(&advice.finalists).cloned() {
        let equals: Vec<&str> =
            advice.finalists.iter().filter(|it| it.is_best && it.entry != chosen.entry).map(|it| &*it.entry).collect();
        advice.advice = match equals.is_empty() {
            true => format!(
                "Use {} for {place}: it is the fastest of {}, and told apart from all that came so far.",
                chosen.entry,
                counted(advice.candidates.len(), "candidate")
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
    advice.reasons = reasons(advice, features);
    advice.reasons.extend(notes_on_figures(advice, checks));
}

/// Returns what a reader of the figures needs to know.
fn notes_on_figures(advice: &Advice, checks: &[(String, String)]) -> Vec<String> {
    let entries: Vec<notes::Entry<'_>> = advice.finalists.iter().map(|it| (&*it.entry, &it.measured)).collect();
    let texts = || checks.iter().map(|(entry, text)| (&**entry, &**text));
    let all = [notes::trends(&entries), notes::given_up(&entries), notes::warnings(texts()), notes::checks(texts())];
    all.concat().iter().map(|line| sentence(line)).collect()
}

/// Makes a line a sentence: with a capital letter, and a full stop.
fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Returns the simplest of the entries with the highest rate, a rate that it keeps, and the others
/// whose rates are not told apart from the highest. Entries are told apart if the one fails at a
/// rate that the other keeps.
fn by_rate(advice: &Advice) -> Option<(String, f64, Vec<String>)> {
    let kept: Vec<_> = advice.rates.iter().filter(|found| found.passes.is_some() && !found.failed()).collect();
    let highest = kept.iter().filter_map(|found| found.passes).fold(0.0, f64::max);
    let mut best: Vec<_> = kept.into_iter().filter(|found| found.fails.is_none_or(|fails| fails > highest)).collect();
    let memory = |name: &str| {
        let of = advice.finalists.iter().find(|it| it.entry == name);
        of.map(|it| (it.measured.versions.is_some(), it.measured.memory_bytes))
    };
    best.sort_by_key(|found| (found.protocol.matches('+').count(), memory(&found.protocol)));
    let (first, others) = best.split_first()?;
    let others = others.iter().map(|found| found.protocol.clone()).collect();
    Some((first.protocol.clone(), first.passes.unwrap_or(highest), others))
}

/// Returns the best entry that is the simplest: with the fewest options, then with the fewest
/// aborts in steps of 5 %, then without old versions, then with the least memory.
fn simplest(finalists: &[Finalist]) -> Option<&Finalist> {
    finalists.iter().filter(|it| it.is_best).min_by_key(|it| {
        let measured = &it.measured;
        let aborts = (measured.abort_rate / 0.05) as u64;
        (it.entry.matches('+').count(), aborts, measured.versions.is_some(), measured.memory_bytes)
    })
}

/// Names the candidates that left before the final and were about as fast as the best of then.
fn near_misses(advice: &Advice) -> Option<String> {
    let is_near = |it: &&Candidate| it.left != "final" && it.of_best.is_some_and(|ratio| ratio >= NEAR_MISS);
    let names: Vec<&str> = advice.candidates.iter().filter(is_near).map(|it| it.entry.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!("Left before the final, after few rounds and nearly as fast as the fastest then: {}.", names.join(", "))
    })
}

fn reasons(advice: &Advice, features: &Features) -> Vec<String> {
    let mut lines = rates(advice);
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
    lines.extend(options(&advice.finalists, advice.rounds));
    let updates: Vec<String> = (features.uses.iter())
        .filter(|of| of.how == "updates")
        .map(|of| format!("{} updates {}", of.kind, of.what))
        .take(TABLES_TOLD)
        .collect();
    if !updates.is_empty() {
        lines.push(format!(
            "Commit-time updates (cu) apply: {}. Such a change only adds or sets, without reading the row. With cu=on it is made at the \
             commit, and two additions to one row do not conflict.",
            updates.join("; ")
        ));
    }
    if features.has_groups {
        lines.push(
            "Timestamp splitting (ts) applies: tables have groups of columns with versions of their own. With ts=on a \
                 reader of one group does not conflict with a writer of another."
                .into(),
        );
    }
    lines.extend(splits(&advice.splits, advice.rounds));
    lines.extend(features.pieces.iter().cloned());
    lines.extend(near_misses(advice));
    lines.extend(leaders(advice));
    lines
}

/// Returns what each way to group columns is worth.
fn splits(all: &[MeasuredSplit], rounds: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut same = Vec::new();
    for it in all {
        let (tables, base) = (it.tables.join("; "), &it.base);
        match &it.to_base {
            Some(ratio) if ratio.told_apart && ratio.ratio > 1.0 => lines.push(format!(
                "Group the columns as {tables}, and set ts=on: {} the throughput of {base} without it. In the file: \
                 [groups] {}.",
                show_ratio(ratio),
                it.lines.join(", ")
            )),
            Some(ratio) if ratio.told_apart => lines.push(format!(
                "Columns grouped as {tables}, with ts=on, cost: {} the throughput of {base} without it.",
                show_ratio(ratio)
            )),
            _ => same.push(tables),
        }
    }
    if !same.is_empty() {
        lines.push(format!(
            "Other groups of columns ([groups] in the file) with ts=on were measured too. They make no difference that {rounds} rounds \
             show: {}.",
            same.join(", or ")
        ));
    }
    lines
}

/// Returns the highest rate of each finalist, if a limit of response times was asked for.
fn rates(advice: &Advice) -> Vec<String> {
    if advice.question.p99_ns.is_none() {
        return Vec::new();
    }
    let rate = |rate: Option<f64>| rate.map_or("no rate".into(), |rate| format!("{} a second", show_rate(rate)));
    let line = |found: &Saturation| {
        format!("{} keeps the limit at {}, and fails at {}.", found.protocol, rate(found.passes), rate(found.fails))
    };
    let mut lines: Vec<String> = advice.rates.iter().map(line).collect();
    if !advice.rates.iter().any(|found| found.passes.is_some()) {
        lines.push("No finalist keeps the limit of response times, so the advice is by throughput.".into());
    }
    lines
}

/// Returns what each option that was tried is worth.
fn options(finalists: &[Finalist], rounds: usize) -> Vec<String> {
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
        lines.push(format!(
            "These options were tried, each by itself, and make no difference that {rounds} rounds show: {}. Leave them out.",
            same.join(", ")
        ));
    }
    lines
}

/// Returns which entry leads on how many simulated cores.
fn leaders(advice: &Advice) -> Vec<String> {
    let mut lines = Vec::new();
    for cores in &advice.question.cores {
        let here = || advice.on_cores.iter().filter(|it| it.cores == *cores);
        let Some(best) = here().max_by(|a, b| a.throughput_tps.total_cmp(&b.throughput_tps)) else {
            lines.push(format!("On {} nothing committed in the simulated time.", counted(*cores, "simulated core")));
            continue;
        };
        let others: Vec<String> = here()
            .filter(|it| it.entry != best.entry)
            .map(|it| format!("{} has {:.2} of it", it.entry, it.throughput_tps / best.throughput_tps))
            .collect();
        let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
        // Windows that overlap tell nothing.
        let leads = here().all(|it| it.entry == best.entry || it.max < best.min);
        let verb = if leads { "leads with" } else { "is not told apart from all others, with" };
        lines.push(format!(
            "On {} with {} {} {verb} {} a second{others}.",
            advice.question.chip,
            counted(*cores, "simulated core"),
            best.entry,
            show_rate(best.throughput_tps)
        ));
    }
    lines
}
