//! The names that a user writes: corrections of misspelled names, and the options of a run.

use std::collections::{BTreeMap, HashSet};

use contend_engine::{EngineOptions, OptionSpec, Options};
use contend_protocols::method::RetryOptions;
use contend_protocols::protocol_name;

use crate::durable::LogOptions;
use crate::error::RunError;
use crate::in_flight::ThreadOptions;
use crate::machine::SimulationOptions;
use crate::memory::MemoryOptions;

/// Short names of options, each with the name that results and documents use.
const SHORT_OPTION_NAMES: [(&str, &str); 6] = [
    ("cu", "engine.commit_time_updates"),
    ("ts", "engine.timestamp_splitting"),
    ("align", "engine.alignment"),
    ("protect", "engine.protect_after"),
    ("log", "log.mode"),
    ("interleave", "threads.interleave"),
];

/// Names that options had before, each with today's name.
const FORMER_OPTION_NAMES: [(&str, &str); 1] = [("mvcc.late", "msto.late")];

/// Returns the name of an option that may be written by a short or a former name.
pub fn option_name(written: &str) -> &str {
    let mut other_names = SHORT_OPTION_NAMES.iter().chain(&FORMER_OPTION_NAMES);
    other_names.find(|(other, _)| *other == written).map_or(written, |(_, name)| name)
}

/// Returns the short name of an option, if it has one.
pub fn short_option_name(name: &str) -> Option<&'static str> {
    SHORT_OPTION_NAMES.iter().find(|(_, full)| *full == name).map(|(short, _)| *short)
}

/// Returns the name that an option had before, if it had another.
pub fn former_option_name(name: &str) -> Option<&'static str> {
    FORMER_OPTION_NAMES.iter().find(|(_, full)| *full == name).map(|(former, _)| *former)
}

/// Returns an entry of a comparison, as in `silo+cu`, with the name that its protocol has today.
pub fn entry_name(written: &str) -> String {
    let (protocol, options) = written.split_at(written.find('+').unwrap_or(written.len()));
    format!("{}{options}", protocol_name(protocol))
}

/// Returns the settings, keyed by the full names of their options.
///
/// # Errors
/// An option is set to two values, by two of its names.
pub fn named_settings(settings: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, RunError> {
    let mut named: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for (written, value) in settings {
        let name = option_name(written);
        let other = named.insert(name.into(), (written, value));
        if let Some((first, other)) = other.filter(|(_, other)| other != value) {
            return Err(RunError::BadInput(format!(
                "'{first}' and '{written}' are names of one option, which is set twice, to {other} and to {value}"
            )));
        }
    }
    Ok(named.into_iter().map(|(name, (_, value))| (name, value.to_string())).collect())
}

/// Returns the error of an unknown name: the name that was probably meant, and the valid names.
/// `what` says what is named.
pub fn unknown<'a>(what: &str, name: &str, valid: impl IntoIterator<Item = &'a str>) -> RunError {
    let mut seen = HashSet::new();
    let valid: Vec<&str> = valid.into_iter().filter(|name| seen.insert(*name)).collect();
    let meant = similar(name, &valid).map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
    RunError::BadInput(format!("unknown {what} '{name}'{meant}; valid: {}", valid.join(", ")))
}

/// The Jaro-Winkler similarity, from 0 to 1, above which one name counts as a misspelling of
/// another.
const ALIKE: f64 = 0.85;

/// Returns the name that was probably meant: an option without its prefix, or the most similar
/// name.
fn similar<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    let tail = |option: &'a str| option.rsplit_once('.').map_or(option, |(_, tail)| tail);
    if let Some(option) = valid.iter().copied().find(|option| !name.is_empty() && tail(option) == name) {
        return Some(option);
    }
    let has_prefix = name.contains('.');
    let score = |option: &'a str| strsim::jaro_winkler(if has_prefix { option } else { tail(option) }, name);
    let best = valid.iter().copied().map(|option| (score(option), option)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, option)| option)
}

/// Parses the settings that belong to this group of options. They override the values of the
/// preset.
///
/// # Errors
/// A value is not valid.
pub fn options<O: Options>(preset: &[(&str, &str)], settings: &BTreeMap<String, String>) -> Result<O, RunError> {
    changed(O::default(), preset, settings)
}

/// Changes the options of a group by a preset, and then by the settings that belong to the group.
///
/// # Errors
/// A value is not valid.
pub(crate) fn changed<O: Options>(
    mut options: O,
    preset: &[(&str, &str)],
    settings: &BTreeMap<String, String>,
) -> Result<O, RunError> {
    let names: Vec<&str> = options.values().iter().map(|(name, _)| *name).collect();
    let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in preset.iter().copied().chain(given) {
        if names.contains(&name) {
            options.set(name, value).map_err(|error| RunError::BadInput(error.to_string()))?;
        }
    }
    Ok(options)
}

/// Returns the values of a group of options, as results record them.
pub(crate) fn values<O: Options>(options: &O) -> BTreeMap<String, String> {
    options.values().into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// Returns the options of retries.
pub fn retry_specs() -> Vec<OptionSpec> {
    RetryOptions::specs()
}

/// Returns the options of the engine.
pub fn engine_specs() -> Vec<OptionSpec> {
    EngineOptions::specs()
}

/// Returns the options of a simulated chip.
pub fn simulation_specs() -> Vec<OptionSpec> {
    SimulationOptions::specs()
}

/// Returns the options that an entry of a comparison may set besides those of its protocol: those
/// of retries, the engine, the log, the memory and the threads.
pub fn common_specs() -> Vec<OptionSpec> {
    [RetryOptions::specs(), EngineOptions::specs(), LogOptions::specs(), <(MemoryOptions, ThreadOptions)>::specs()]
        .concat()
}
