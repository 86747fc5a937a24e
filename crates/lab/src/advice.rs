//! A result in plain words: the finding, the recommendation, and what was not tested.

use contend_engine::{Isolation, OptionSpec};
use contend_machine::Native;
use contend_model::counted;
use contend_protocols::all_protocols;
use contend_protocols::method::METHODS;

use crate::paired::{self, Ratio, show_ratio, show_share};
use crate::result::{Measured, ProtocolResult, ResultFile};
use contend_runner::names::{engine_specs, retry_specs};
use contend_runner::units::{show_ns, show_rate};

/// The largest number of names in a list.
const NAMES_MAX: usize = 5;
/// The share of aborted tries from which suggestions are about conflicts.
const CONTENDED: f64 = 0.05;

/// An entry with figures that promises an isolation level.
type Ranked<'a> = (&'a ProtocolResult, &'a Measured);

/// Returns the ranked entries, the first of the comparison at the head.
fn ranked(result: &ResultFile) -> Vec<Ranked<'_>> {
    let promises = |entry: &&ProtocolResult| entry.isolation != Isolation::None.name();
    let with_figures = |entry| Some((entry, ProtocolResult::measured(entry)?));
    let mut ranked: Vec<Ranked<'_>> = result.protocols.iter().filter(promises).filter_map(with_figures).collect();
    let first = result.comparison.as_ref().and_then(|comparison| comparison.first.as_ref());
    // The sort is stable, so the others keep their order.
    ranked.sort_by_key(|(entry, _)| Some(&entry.protocol) != first);
    ranked
}

impl ProtocolResult {
    fn measured(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }
}

/// Returns the finding, in a sentence or two.
pub(crate) fn finding(result: &ResultFile) -> String {
    let failed: Vec<&str> =
        result.protocols.iter().filter(|entry| entry.failed()).map(|entry| entry.protocol.as_str()).collect();
    let mut text = if failed.is_empty() { String::new() } else { format!("Wrong: {}. ", failed.join(", ")) };
    let ranked = ranked(result);
    let Some((first, measured)) = ranked.first() else {
        return text + "No protocol that promises anything has a figure.";
    };
    let best = &first.protocol;
    let group = group(&ranked);
    let next = ranked.get(1).and_then(|(entry, measured)| Some((&entry.protocol, measured.to_first?)));
    match next {
        None => text += &format!("{best} commits {} a second", show_rate(measured.throughput_tps.median)),
        Some((_, Ratio { low: None, .. })) => text += &too_few(result),
        Some((next, ratio)) if group.len() < 2 => {
            text += &format!("{best} is the fastest: {} {next}, the next", show_inverse(&ratio));
        }
        Some((next, ratio)) => {
            let names = names(&group, "and");
            let next = group.get(1).map_or(next, |(entry, _)| &entry.protocol);
            let ratio = group.get(1).and_then(|(_, measured)| measured.to_first).unwrap_or(ratio);
            text += &format!("{names} are not told apart: {best} has {} {next}", show_inverse(&ratio));
        }
    }
    if !result.config.verify {
        text += " (not verified: no verification pass was asked for)";
    }
    if let Some(ratio) = &measured.to_none {
        text +=
            &format!("; {best} reaches {} of what this engine does without any concurrency control", show_share(ratio));
    }
    text + "."
}

/// Returns the first entry, and all that are not told apart from it.
fn group<'a>(ranked: &[Ranked<'a>]) -> Vec<Ranked<'a>> {
    ranked.iter().copied().filter(|(_, measured)| measured.group == Some(1)).collect()
}

fn too_few(result: &ResultFile) -> String {
    let Some(comparison) = &result.comparison else { return String::new() };
    let needed = paired::rounds_min(1.0 - comparison.confidence_each);
    let pairs = if comparison.pairs == 1 {
        "one pair of entries needs".into()
    } else {
        format!("{} pairs of entries need", comparison.pairs)
    };
    let tell = if comparison.rounds == 1 { "tells" } else { "tell" };
    let rounds = counted(comparison.rounds, "round");
    format!("{rounds} {tell} nothing: {pairs} {needed} or more (--windows)")
}

/// Formats names as in "a, b and c"; of a long list the first ones and the number of the others.
fn names(entries: &[Ranked<'_>], and: &str) -> String {
    let mut names: Vec<String> = entries.iter().map(|(entry, _)| entry.protocol.clone()).collect();
    if names.len() > NAMES_MAX {
        let more = names.len() - NAMES_MAX + 1;
        names.truncate(NAMES_MAX - 1);
        names.push(format!("{more} more"));
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {and} {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Formats the inverse of a ratio.
fn show_inverse(ratio: &Ratio) -> String {
    show_ratio(&ratio.inverse())
}

/// Returns recommendations: which protocol to take, which are as good, what each costs, what to try
/// next, and what was not tested.
pub(crate) fn recommendation(result: &ResultFile) -> Vec<String> {
    let ranked = ranked(result);
    let group = group(&ranked);
    let (Some(comparison), Some((first, measured))) = (&result.comparison, group.first()) else { return Vec::new() };
    if ranked.len() > 1 && ranked[1].1.to_first.is_some_and(|ratio| ratio.low.is_none()) {
        return vec![too_few(result) + "."];
    }
    let mut lines = vec![what_to_take(result, &ranked, &group)];
    if first.isolation != Isolation::Serializable.name() {
        let strict = ranked.iter().find(|(entry, _)| entry.isolation == Isolation::Serializable.name());
        let strict = strict.map(|(entry, measured)| {
            let ratio = measured.to_first.map(|ratio| format!(" ({} {})", show_ratio(&ratio), first.protocol));
            format!("; of the serializable ones take {}{}", entry.protocol, ratio.unwrap_or_default())
        });
        lines.push(format!(
            "{} promises {} and no more: it lets anomalies through that a serializable protocol does not{}.",
            first.protocol,
            first.isolation,
            strict.unwrap_or_default()
        ));
    }
    lines.extend(group.iter().take(NAMES_MAX).map(|(entry, measured)| cost(entry, measured)));
    lines.extend(to_try(result, first, measured));
    lines.push(not_tested(result));
    if result.config.chip.is_none() && comparison.ended == "limit" && group.len() > 1 {
        lines.push(format!(
            "To tell more of them apart: --precision 1%, or --windows {}, with fewer protocols (--protocols {}).",
            comparison.rounds * 4,
            group.iter().map(|(entry, _)| entry.protocol.as_str()).collect::<Vec<_>>().join(",")
        ));
    }
    lines
}

fn what_to_take(result: &ResultFile, ranked: &[Ranked<'_>], group: &[Ranked<'_>]) -> String {
    let config = &result.config;
    let machine = match &config.chip {
        Some(chip) => format!("{} of {}", counted(config.threads, "simulated core"), chip.name),
        None => format!("{} on this machine", counted(config.threads, "thread")),
    };
    let on = format!("on {} with {machine}", config.workload);
    match (group, ranked.len()) {
        ([(only, _)], 1) => format!("Nothing else was compared with {} {on}.", only.protocol),
        ([(only, _)], _) => {
            format!("Take {} {on}: it is the fastest, and told apart from all others.", only.protocol)
        }
        _ => {
            let others: Vec<Ranked<'_>> = group[1..].to_vec();
            format!(
                "Take {} {on}. As good, as far as these rounds tell: {}. Choose among these by what else they cost.",
                group[0].0.protocol,
                names(&others, "and")
            )
        }
    }
}

fn cost(entry: &ProtocolResult, measured: &Measured) -> String {
    let of_none = measured.to_none.map(|ratio| format!("{} of none, ", show_share(&ratio)));
    // Without a timed transaction there is no latency.
    let latency = match measured.latency_ns_max {
        0 => String::new(),
        _ => format!("99 of 100 transactions within {}, ", show_ns(measured.latency_ns_p99)),
    };
    // Less than half a per cent is nothing to think of.
    let drawing = match measured.driver_share * 100.0 {
        percent if percent < 0.5 => String::new(),
        percent => format!(" Drawing the transactions takes {percent:.0} % of the threads' time."),
    };
    format!(
        "{} costs: {}{:.1} % of the tries aborted, {latency}{} a record.{drawing}",
        entry.protocol,
        of_none.unwrap_or_default(),
        measured.abort_rate * 100.0,
        counted(measured.memory_bytes_per_record.round(), "byte")
    )
}

/// Methods about conflicts, and others, by their names in `docs/methods.md`.
const ABOUT_CONFLICTS: [&str; 6] =
    ["backoff", "wait policy", "read-phase extension", "commit-time updates", "timestamp splitting", "early abort"];
const ABOUT_THE_REST: [&str; 5] =
    ["timestamp source", "collection", "version overwriting", "invisible reads", "record alignment"];
/// The largest number of suggested options.
const SETTINGS_MAX: usize = 4;

/// Returns a command that tries the options that may help.
fn to_try(result: &ResultFile, first: &ProtocolResult, measured: &Measured) -> Option<String> {
    let name = first.protocol.split('+').next().unwrap_or_default();
    let (_, own) = all_protocols::<Native>().into_iter().find(|(info, _)| info.name == name)?;
    let specs: Vec<OptionSpec> = [own, retry_specs(), engine_specs()].concat();
    let is_contended = measured.abort_rate >= CONTENDED;
    let methods: &[&str] = if is_contended { &ABOUT_CONFLICTS } else { &ABOUT_THE_REST };
    let mut settings: Vec<String> = Vec::new();
    for method in methods {
        let Some(method) = METHODS.iter().find(|info| info.name == *method) else { continue };
        for spec in specs.iter().filter(|spec| method.options.contains(&spec.name)) {
            // The suggestion is a choice other than the default. An option that was set already is
            // left out.
            let is_default = first.options.get(spec.name).is_none_or(|value| value == &spec.default);
            if let Some(other) = spec.other_choices().last().filter(|_| is_default) {
                settings.push(format!("{}={other}", spec.name));
            }
        }
    }
    settings.truncate(SETTINGS_MAX);
    if settings.is_empty() {
        return None;
    }
    let entries: Vec<String> = settings.iter().map(|setting| format!("{}+{setting}", first.protocol)).collect();
    let (is, why) = if is_contended { ("much", "conflicts") } else { ("little", "other costs") };
    Some(format!(
        "To try next: {:.1} % of the tries of {} abort, which is {is}, so options about {why} (docs/methods.md): contend compare {} \
         --protocols {},{}",
        measured.abort_rate * 100.0,
        first.protocol,
        result.config.workload,
        first.protocol,
        entries.join(",")
    ))
}

/// Options that determine how often transactions conflict.
const CONTENTION: [&str; 18] = [
    "bank.accounts",
    "bank.theta",
    "litmus.keys",
    "pieces.records",
    "pieces.scope",
    "rubis.item_theta",
    "rubis.items",
    "smallbank.customers",
    "smallbank.hot",
    "smallbank.hot_customers",
    "tatp.subscribers",
    "tpcc.warehouses",
    "tpce.customers",
    "tpce.securities",
    "wikipedia.pages",
    "wikipedia.theta",
    "ycsb.records",
    "ycsb.theta",
];

fn not_tested(result: &ResultFile) -> String {
    let config = &result.config;
    let of_workload = result.options.iter().filter(|(name, _)| CONTENTION.contains(&name.as_str()));
    let contention: Vec<String> = of_workload.map(|(name, value)| format!("{name} other than {value}")).collect();
    let contention =
        if contention.is_empty() { String::new() } else { format!("; other contention ({})", contention.join(", ")) };
    let cores = match &config.chip {
        None => format!(
            "other numbers of threads than {} and of cores than {} (--threads; --machine simulates a larger machine)",
            config.threads, result.environment.cores
        ),
        Some(_) => format!("other numbers of cores than {}, other seeds, and a real machine", config.threads),
    };
    let is_logged = result.protocols.iter().any(|entry| entry.options.get("log.mode").is_some_and(|log| log != "off"));
    let log = if is_logged { "" } else { "; durability (--set log=epoch)" };
    format!("Not tested: {cores}{contention}{log}. There the order may differ.")
}
