//! What is to be run, and what is wrong with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contend_engine::{EngineOptions, IndexKind, Info, OptionSpec, OptionValue, Options, Protocol};
use contend_log::CommitProtocol;
use contend_machine::{Native, available_cores};
use contend_protocols::method::{Method, RetryOptions, why_not};
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};
use contend_sim::{ChipOptions, Preset};
use contend_workloads::{Declares, Workload, WorkloadInfo, WorkloadVisitor, all_workloads, with_workload};
use serde::{Deserialize, Serialize};

use crate::durable::LogOptions;
use crate::machine::{ChipConfig, MachineChoice, NATIVE, SimulationOptions};
use crate::memory::available_bytes;
use crate::units::show_bytes;

/// Why a run can't be, or can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabError {
    /// What was asked for can't be had. The message names it and what can.
    #[error("{0}")]
    BadInput(String),
    /// The run was asked to stop before it had anything to show.
    #[error("stopped before anything was measured")]
    Stopped,
}

/// A run, complete: the same configuration on the same machine runs the same again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// A workload or preset.
    pub workload: String,
    /// Protocols, in any order; each may be followed by options of this entry only, as in `silo+cu=on+ts=on`. A name alone, as in
    /// `silo+cu`, is an option that is on.
    pub protocols: Vec<String>,
    /// `hash` or `ordered`; none: hash, unless the workload needs an order.
    pub index: Option<String>,
    /// The machine: `native`, or a chip that is simulated, whose parameters are in `chip`.
    pub machine: String,
    /// The simulated chip.
    pub chip: Option<Preset>,
    /// Worker threads; on a simulated chip, one on each of so many cores.
    pub threads: usize,
    /// Length of a measuring window, in seconds.
    pub window_seconds: f64,
    /// The most measuring windows of each protocol: a comparison ends earlier if all is told that was asked.
    pub windows: usize,
    /// To what each ratio is to be known, up or down, as a fraction (0.03: to 3 %). None: a comparison asks which protocols are slower than
    /// the first.
    // Left out where there is none, so that points that were measured before there was a precision stay those of their experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// What a protocol runs unmeasured before its first window, in seconds; [`WARMUP_AGAIN`] of it before each further one.
    pub warmup_seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether each protocol is proved right first.
    pub verify: bool,
    /// Committed transactions after which that ends; on a slow machine it ends earlier.
    pub verify_transactions: u64,
    /// Whether it is said where the time went. Always so on a simulated chip.
    pub breakdown: bool,
    /// The folder of the log, if there is one, of a single protocol; none: one that is removed when the run is over.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Options that differ from the defaults: what `--set` sets.
    pub settings: BTreeMap<String, String>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            workload: "ycsb-a".into(),
            protocols: vec![ALL.into()],
            index: None,
            machine: NATIVE.into(),
            chip: None,
            threads: available_cores().len(),
            window_seconds: 0.1,
            windows: WINDOWS,
            precision: None,
            warmup_seconds: 0.5,
            seed: 42,
            verify: true,
            verify_transactions: 20_000,
            breakdown: false,
            dir: None,
            settings: BTreeMap::new(),
        }
    }
}

/// Instead of protocols: all that can run the workload.
pub const ALL: &str = "all";
/// The most threads of a run on the host.
pub const THREADS_MAX: usize = 1000;
/// Windows of each protocol, at most: with 18 protocols 40 rounds take 95 seconds.
pub const WINDOWS: usize = 40;
/// The same where a precision is asked for.
pub const WINDOWS_PRECISE: usize = 400;
/// The same on a simulated chip.
const SIMULATED_WINDOWS: usize = 20;
/// What is warmed up before each window but the first, as a part of the first warm-up. The tables were in use a round ago: it is the caches
/// that another protocol has filled since.
pub const WARMUP_AGAIN: f64 = 0.04;
/// Length of a window on a simulated chip: some transactions of each of a thousand cores.
const SIMULATED_SECONDS: f64 = 0.0001;
/// Length of a warm-up there: contended throughput falls for that long (METHODOLOGY.md).
const SIMULATED_WARMUP_SECONDS: f64 = 0.0005;
/// The most seconds of a window.
pub const SECONDS_MAX: f64 = 86_400.0;
/// The finest precision that can be asked for.
pub const PRECISION_MIN: f64 = 0.001;
/// The coarsest.
pub const PRECISION_MAX: f64 = 0.5;
/// The most windows.
pub const WINDOWS_MAX: usize = 10_000;

/// An index by its name.
///
/// # Errors
/// There is none of this name; the message lists the names.
pub fn index_kind(name: &str) -> Result<IndexKind, LabError> {
    match name {
        "hash" => Ok(IndexKind::Hash),
        "ordered" => Ok(IndexKind::Ordered),
        _ => Err(unknown("index", name, ["hash", "ordered"])),
    }
}

/// An index's name.
pub fn index_name(index: IndexKind) -> &'static str {
    match index {
        IndexKind::Hash => "hash",
        IndexKind::Ordered => "ordered",
    }
}

fn unknown<'a>(what: &str, name: &str, valid: impl IntoIterator<Item = &'a str>) -> LabError {
    let valid: Vec<&str> = valid.into_iter().collect();
    let meant = similar(name, &valid).map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
    LabError::BadInput(format!("unknown {what} '{name}'{meant}; valid: {}", valid.join(", ")))
}

/// How alike two names are of which one may be a slip of the other, 0 to 1.
const ALIKE: f64 = 0.85;

/// What was probably meant by a name: an option without its prefix, or the most similar name.
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

/// Sets those of the settings that this group of options has, after the preset's.
pub(crate) fn options<O: Options>(preset: &[(&str, &str)], settings: &BTreeMap<String, String>) -> Result<O, LabError> {
    let mut options = O::default();
    let names: Vec<&str> = O::specs().iter().map(|spec| spec.name).collect();
    let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in preset.iter().copied().chain(given) {
        if names.contains(&name) {
            options.set(name, value).map_err(|error| LabError::BadInput(error.to_string()))?;
        }
    }
    Ok(options)
}

/// The values of a group of options, as results record them.
pub(crate) fn values<O: Options>(options: &O) -> BTreeMap<String, String> {
    options.values().into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// The options of trying again.
pub fn retry_specs() -> Vec<OptionSpec> {
    RetryOptions::specs()
}

/// The options of the engine.
pub fn engine_specs() -> Vec<OptionSpec> {
    EngineOptions::specs()
}

/// The options of the log.
pub fn log_specs() -> Vec<OptionSpec> {
    LogOptions::specs()
}

/// The options of a simulated chip.
pub fn simulation_specs() -> Vec<OptionSpec> {
    SimulationOptions::specs()
}

/// The options that an entry of a comparison may have besides its protocol's.
fn common_specs() -> Vec<OptionSpec> {
    [retry_specs(), engine_specs(), log_specs()].concat()
}

/// One entry of a comparison: a protocol with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entrant {
    /// The entry, as it was written.
    pub(crate) name: String,
    /// The protocol's name.
    pub(crate) protocol: String,
    /// All settings that are in force for it.
    pub(crate) settings: BTreeMap<String, String>,
    /// Those that are its own.
    own: BTreeMap<String, String>,
}

impl Entrant {
    fn parse(entry: &str, common: &BTreeMap<String, String>) -> Result<Entrant, LabError> {
        let mut parts = entry.split('+');
        let protocol = parts.next().unwrap_or_default().to_string();
        let mut own = BTreeMap::new();
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, "on"));
            if own.insert(name.to_string(), value.to_string()).is_some() {
                return Err(LabError::BadInput(format!("'{entry}': option '{name}' is set twice")));
            }
        }
        let mut settings = common.clone();
        settings.extend(own.clone());
        Ok(Entrant { name: entry.into(), protocol, settings, own })
    }
}

impl RunConfig {
    /// The same on another machine, with as many threads as were asked for of it, else as it has, and with windows that suit it.
    ///
    /// # Errors
    /// There is no such machine, or it has fewer cores.
    pub fn on(mut self, machine: &str) -> Result<RunConfig, LabError> {
        let MachineChoice { chip, cores } = MachineChoice::parse(machine)?;
        self.machine = machine.into();
        match &chip {
            Some(chip) => {
                self.threads = cores.unwrap_or_else(|| chip.threads_max());
                (self.window_seconds, self.warmup_seconds) = (SIMULATED_SECONDS, SIMULATED_WARMUP_SECONDS);
                self.windows = SIMULATED_WINDOWS;
            }
            None => {
                let native = RunConfig::default();
                self.threads = native.threads;
                (self.window_seconds, self.warmup_seconds) = (native.window_seconds, native.warmup_seconds);
                self.windows = native.windows;
            }
        }
        self.chip = chip;
        Ok(self)
    }

    /// The chip with its options, if there is one.
    pub(crate) fn chip_config(&self) -> Option<ChipConfig> {
        let preset = self.chip.clone()?;
        let SimulationOptions { lookahead, warm } = options(&[], &self.settings).unwrap_or_default();
        Some(ChipConfig { preset, options: ChipOptions { lookahead, warm, seed: self.seed } })
    }

    /// The entries of the comparison.
    ///
    /// # Errors
    /// An entry names a protocol that is not there, sets an option that it can't have, or is there twice.
    pub(crate) fn entrants(&self) -> Result<Vec<Entrant>, LabError> {
        let protocols = all_protocols::<Native>();
        let workloads = all_workloads::<Native>();
        let mut entrants: Vec<Entrant> = Vec::new();
        for entry in &self.protocols {
            let entrant = Entrant::parse(entry, &self.settings)?;
            let Some((info, specs)) = protocols.iter().find(|(info, _)| info.name == entrant.protocol) else {
                return Err(unknown("protocol", &entrant.protocol, protocols.iter().map(|(info, _)| info.name)));
            };
            let others = common_specs();
            for name in entrant.own.keys() {
                if specs.iter().chain(&others).any(|spec| spec.name == name) {
                    continue;
                }
                if workloads.iter().any(|(_, specs)| specs.iter().any(|spec| spec.name == name)) {
                    return Err(LabError::BadInput(format!(
                        "'{entry}': the workload's option '{name}' is the same for all protocols of a run: use --set"
                    )));
                }
                if let Some(why) = why_not(info.name, name) {
                    return Err(LabError::BadInput(format!(
                        "'{entry}': option '{name}' is not of {}; {why}",
                        info.name
                    )));
                }
                let valid = specs.iter().chain(&others).map(|spec| spec.name);
                return Err(unknown(&format!("option of {}", info.name), name, valid));
            }
            let same = |other: &&Entrant| (&other.protocol, &other.own) == (&entrant.protocol, &entrant.own);
            if let Some(other) = entrants.iter().find(same) {
                let message = if other.name == *entry { String::new() } else { format!(" (as '{}')", other.name) };
                return Err(LabError::BadInput(format!("protocol '{entry}' was chosen twice{message}")));
            }
            entrants.push(entrant);
        }
        Ok(entrants)
    }

    /// Checks everything that can be checked before memory is taken, and settles the index.
    ///
    /// # Errors
    /// The first thing that is wrong, with what would be right.
    pub fn validated(&self) -> Result<RunConfig, LabError> {
        let mut config = self.clone();
        self.check_numbers()?;
        let workloads = all_workloads::<Native>();
        let Some((_, workload_specs)) = workloads.iter().find(|(info, _)| info.name == self.workload) else {
            return Err(unknown("workload", &self.workload, workloads.iter().map(|(info, _)| info.name)));
        };
        let protocols = all_protocols::<Native>();
        if self.protocols.is_empty() {
            return Err(LabError::BadInput("no protocol was chosen".into()));
        }
        if config.protocols == [ALL] {
            let refused = self.refused()?;
            let names = protocols.iter().map(|(info, _)| info.name.to_string());
            config.protocols = names.filter(|name| !refused.iter().any(|(refused, _)| refused == name)).collect();
        }
        let entrants = config.entrants()?;
        if self.precision.is_some() && entrants.len() < 2 {
            let entry = config.protocols.join(", ");
            return Err(LabError::BadInput(format!(
                "a precision is of ratios between protocols, and {entry} is alone; valid: two protocols or more"
            )));
        }
        config.check_setting_names(workload_specs, &protocols, &entrants)?;
        if self.chip.is_some() {
            options::<SimulationOptions>(&[], &self.settings)?;
        }
        for entrant in &entrants {
            // The value may be the entry's own.
            let of_entry = |error| match error {
                LabError::BadInput(message) if !entrant.own.is_empty() => {
                    LabError::BadInput(format!("'{}': {message}", entrant.name))
                }
                error => error,
            };
            let retry = options::<RetryOptions>(&[], &entrant.settings).map_err(of_entry)?;
            check_retry(&retry, entrant.settings.contains_key("retry.max_us")).map_err(of_entry)?;
            options::<EngineOptions>(&[], &entrant.settings).map_err(of_entry)?;
            let log = options::<LogOptions>(&[], &entrant.settings).map_err(of_entry)?;
            log.check(self.chip.is_none()).map_err(of_entry)?;
            if self.dir.is_some() && (!log.has_files(self.chip.is_none()) || entrants.len() > 1) {
                let why =
                    "the folder of a log (--dir) is that of one protocol that has one, with --set log=epoch or another";
                return Err(LabError::BadInput(why.into()));
            }
            let check = CheckProtocol(&entrant.settings);
            with_protocol::<Native, _>(&entrant.protocol, check).expect("a registered name").map_err(of_entry)?;
        }
        if let Some((_, why)) =
            self.refused()?.into_iter().find(|(name, _)| entrants.iter().any(|entrant| entrant.protocol == *name))
        {
            return Err(LabError::BadInput(why));
        }
        let index = self.index.as_deref().map(index_kind).transpose()?;
        let check = CheckWorkload { settings: &self.settings, index };
        let index = with_workload::<Native, _>(&self.workload, check).expect("a listed name")?;
        config.index = Some(index_name(index).into());
        Ok(config)
    }

    /// The protocols that can't run the workload, because it can't say what they need to know of a transaction, each with a sentence that
    /// says so.
    ///
    /// # Errors
    /// There is no such workload, or its options are wrong.
    pub fn refused(&self) -> Result<Vec<(&'static str, String)>, LabError> {
        let declares = |workload: &str, settings: &BTreeMap<String, String>| {
            let listed = || all_workloads::<Native>().into_iter().map(|(info, _)| info.name);
            with_workload::<Native, _>(workload, WhatItDeclares(settings))
                .unwrap_or_else(|| Err(unknown("workload", workload, listed())))
        };
        let of_this = declares(&self.workload, &self.settings)?;
        let refusal = |(info, _): (Info, _)| {
            let others = all_workloads::<Native>().into_iter().map(|(info, _)| info.name);
            let can = |name: &&str| declares(name, &BTreeMap::new()).is_ok_and(|declares| declares.meets(info.needs));
            let can: Vec<&str> = others.filter(can).collect();
            let sentence = format!(
                "{} has to know {} before it begins, which {} can't say with these options; workloads that can: {}",
                info.name,
                info.needs.describe(),
                self.workload,
                can.join(", ")
            );
            (info.name, sentence)
        };
        let protocols = all_protocols::<Native>().into_iter();
        Ok(protocols.filter(|(info, _)| !of_this.meets(info.needs)).map(refusal).collect())
    }

    /// Checks threads, windows and seconds.
    ///
    /// # Errors
    /// The first that is out of range, with the range.
    pub fn check_numbers(&self) -> Result<(), LabError> {
        let in_range = |what: &str, value: usize, max: usize| {
            let message = || format!("{what} is {value}; valid: 1 to {max}");
            if (1..=max).contains(&value) { Ok(()) } else { Err(LabError::BadInput(message())) }
        };
        match &self.chip {
            None => in_range("threads", self.threads, THREADS_MAX)?,
            Some(chip) => in_range(&format!("threads on {}", chip.name), self.threads, chip.threads_max())?,
        }
        in_range("windows", self.windows, WINDOWS_MAX)?;
        if let Some(precision) = self.precision
            && !(PRECISION_MIN..=PRECISION_MAX).contains(&precision)
        {
            let [given, least, most] = [precision, PRECISION_MIN, PRECISION_MAX].map(|part| (part * 1e6).round() / 1e4);
            return Err(LabError::BadInput(format!("precision is {given} %; valid: {least} % to {most} %")));
        }
        if self.precision.is_some() && self.chip.is_some() {
            return Err(LabError::BadInput(
                "a precision is of turns on this machine (native): a simulation is exact, and has as many windows as --windows says".into(),
            ));
        }
        if self.verify_transactions == 0 {
            return Err(LabError::BadInput("transactions to verify are 0; valid: 1 or more".into()));
        }
        let least = if self.chip.is_some() { 1e-6 } else { 1e-3 };
        if !(least..=SECONDS_MAX).contains(&self.window_seconds) {
            let seconds = self.window_seconds;
            return Err(LabError::BadInput(format!("seconds is {seconds}; valid: {least} to {SECONDS_MAX}")));
        }
        if !(0.0..=SECONDS_MAX).contains(&self.warmup_seconds) {
            let seconds = self.warmup_seconds;
            return Err(LabError::BadInput(format!("warmup is {seconds}; valid: 0 to {SECONDS_MAX}")));
        }
        Ok(())
    }

    /// Each setting must belong to the workload, to a protocol of this run, or to trying again.
    fn check_setting_names(
        &self,
        workload: &[OptionSpec],
        protocols: &[(Info, Vec<OptionSpec>)],
        entrants: &[Entrant],
    ) -> Result<(), LabError> {
        let is_chosen = |name: &str| entrants.iter().any(|entrant| entrant.protocol == name);
        let mut others = common_specs();
        if self.chip.is_some() {
            others.extend(simulation_specs());
        }
        let has = |specs: &[OptionSpec], name: &str| specs.iter().any(|spec| spec.name == name);
        for name in self.settings.keys() {
            let owners: Vec<&str> =
                protocols.iter().filter(|(_, specs)| has(specs, name)).map(|(info, _)| info.name).collect();
            match &owners[..] {
                owners if owners.iter().any(|owner| is_chosen(owner)) => {}
                [_, ..] => {
                    let (owners, chosen) = (owners.join(", "), self.protocols.join(", "));
                    let reasons = entrants.iter().filter_map(|entrant| why_not(&entrant.protocol, name));
                    let reasons: String = reasons.map(|why| format!("; {why}")).collect();
                    return Err(LabError::BadInput(format!(
                        "option '{name}' is of the protocol {owners}, which does not run here (chosen: {chosen}){reasons}"
                    )));
                }
                [] if has(workload, name) || has(&others, name) => {}
                [] if has(&simulation_specs(), name) => {
                    return Err(LabError::BadInput(format!(
                        "option '{name}' is of simulated chips, and the machine is native; valid with --machine CHIP only"
                    )));
                }
                [] => {
                    let mut owners: Vec<&str> = all_workloads::<Native>()
                        .into_iter()
                        .filter(|(_, specs)| has(specs, name))
                        .map(|(info, _)| info.name.split('-').next().unwrap_or(info.name))
                        .collect();
                    owners.dedup();
                    if !owners.is_empty() {
                        return Err(LabError::BadInput(format!(
                            "option '{name}' is of the workload {}, which does not run here (chosen: {})",
                            owners.join(", "),
                            self.workload
                        )));
                    }
                    let of_protocols =
                        protocols.iter().filter(|(info, _)| is_chosen(info.name)).flat_map(|(_, specs)| specs);
                    let valid = workload.iter().chain(of_protocols).chain(&others).map(|spec| spec.name);
                    return Err(unknown("option", name, valid));
                }
            }
        }
        Ok(())
    }

    /// The index of a validated configuration.
    pub(crate) fn index_kind(&self) -> IndexKind {
        self.index.as_deref().and_then(|name| index_kind(name).ok()).unwrap_or(IndexKind::Hash)
    }

    /// Bytes that loading will take, by protocol; an estimate.
    pub(crate) fn estimated_bytes(&self) -> Vec<(String, u64)> {
        let estimate = |entrant: Entrant| {
            let bytes = with_workload::<Native, _>(&self.workload, Estimate { config: self, entrant: &entrant });
            (entrant.name, bytes.expect("a listed name"))
        };
        self.entrants().unwrap_or_default().into_iter().map(estimate).collect()
    }

    /// Refuses a run that this machine's memory does not hold.
    pub(crate) fn check_memory(&self) -> Result<(), LabError> {
        let estimates = self.estimated_bytes();
        let needed = estimates.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        match available_bytes() {
            Some(available) if needed > available / 20 * 19 => {
                let each: Vec<String> =
                    estimates.iter().map(|(name, bytes)| format!("{name} {}", show_bytes(*bytes))).collect();
                Err(LabError::BadInput(format!(
                    "loading needs about {} of memory ({}), and {} are available; fewer or shorter records, or fewer \
                     protocols at a time, need less",
                    show_bytes(needed),
                    each.join(", "),
                    show_bytes(available)
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The first bound has to be below the largest, where both are in force. `is_set` says whether somebody has asked for the largest.
fn check_retry(retry: &RetryOptions, is_set: bool) -> Result<(), LabError> {
    let RetryOptions { backoff, min_us, max_us } = *retry;
    let is_used = is_set || matches!(backoff, Method::Exponential | Method::Adaptive);
    if is_used && max_us < min_us {
        return Err(LabError::BadInput(format!(
            "retry.max_us is {max_us} and retry.min_us is {min_us}; valid: retry.max_us from retry.min_us on"
        )));
    }
    Ok(())
}

struct CheckProtocol<'a>(&'a BTreeMap<String, String>);

impl ProtocolVisitor<Native> for CheckProtocol<'_> {
    type Output = Result<(), LabError>;

    fn visit<P: Protocol<Native>>(self) -> Self::Output {
        options::<P::Options>(&[], self.0)?;
        let log = options::<LogOptions>(&[], self.0)?;
        if P::SHOWS_UNCOMMITTED && log.commit().is_some_and(CommitProtocol::holds_rows) {
            let (name, mode) = (P::INFO.name, log.mode.show());
            return Err(LabError::BadInput(format!(
                "log={mode} does not go with {name}: there transactions see what others have not committed yet, and so have not made durable"
            )));
        }
        Ok(())
    }
}

struct WhatItDeclares<'a>(&'a BTreeMap<String, String>);

impl WorkloadVisitor<Native> for WhatItDeclares<'_> {
    type Output = Result<Declares, LabError>;

    fn visit<W: Workload<Native>>(self, info: WorkloadInfo) -> Self::Output {
        Ok(W::declares(&options::<W::Options>(info.preset, self.0)?))
    }
}

struct CheckWorkload<'a> {
    settings: &'a BTreeMap<String, String>,
    index: Option<IndexKind>,
}

impl WorkloadVisitor<Native> for CheckWorkload<'_> {
    type Output = Result<IndexKind, LabError>;

    fn visit<W: Workload<Native>>(self, info: WorkloadInfo) -> Self::Output {
        let options = options::<W::Options>(info.preset, self.settings)?;
        let index = match self.index {
            Some(index) => index,
            None if W::validate(&options, IndexKind::Hash).is_ok() => IndexKind::Hash,
            None => IndexKind::Ordered,
        };
        W::validate(&options, index).map(|()| index).map_err(LabError::BadInput)
    }
}

struct Estimate<'a> {
    config: &'a RunConfig,
    entrant: &'a Entrant,
}

impl WorkloadVisitor<Native> for Estimate<'_> {
    type Output = u64;

    fn visit<W: Workload<Native>>(self, info: WorkloadInfo) -> u64 {
        struct MetaWords;
        impl ProtocolVisitor<Native> for MetaWords {
            type Output = usize;
            fn visit<P: Protocol<Native>>(self) -> usize {
                P::new(P::Options::default()).meta_words()
            }
        }
        let settings = &self.entrant.settings;
        let engine = options::<EngineOptions>(&[], settings).unwrap_or_default();
        let options = options::<W::Options>(info.preset, settings).unwrap_or_default();
        let words = with_protocol::<Native, _>(&self.entrant.protocol, MetaWords).unwrap_or(1);
        let tables = W::tables(&options, self.config.index_kind());
        tables.iter().fold(0, |sum, table| sum.saturating_add(table.estimated_bytes::<u64>(words, false, &engine)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut RunConfig)) -> Result<RunConfig, String> {
        let mut config = RunConfig::default();
        change(&mut config);
        config.validated().map_err(|error| error.to_string())
    }

    fn set(config: &mut RunConfig, name: &str, value: &str) {
        config.settings.insert(name.into(), value.into());
    }

    #[test]
    fn the_default_is_valid_and_settles_the_index() {
        assert_eq!(with(|_| {}).expect("valid").index.as_deref(), Some("hash"));
        let scans = with(|config| config.workload = "ycsb-e".into()).expect("valid");
        assert_eq!(scans.index.as_deref(), Some("ordered"), "what needs an order gets one");
    }

    #[test]
    fn a_fixed_wait_has_no_largest_bound() {
        let fixed = |config: &mut RunConfig| {
            set(config, "retry.backoff", "fixed");
            set(config, "retry.min_us", "2k");
        };
        with(fixed).expect("2 ms, whatever the bound is that exponential backoff would have");
    }

    #[test]
    fn all_are_those_that_can() {
        let on = |workload: &str| with(|config| config.workload = workload.into()).expect("valid").protocols;
        let (rows, no_rows) = (on("bank"), on("tpcc"));
        assert!(rows.contains(&"2pl-ordered".into()) && rows.contains(&"hstore".into()));
        assert!(!no_rows.contains(&"2pl-ordered".into()) && no_rows.contains(&"hstore".into()));
        assert_eq!(rows.len(), no_rows.len() + 1);
    }

    #[test]
    fn every_error_names_the_thing_and_the_valid_choices() {
        type Change = fn(&mut RunConfig);
        let cases: &[(Change, &[&str])] = &[
            (|c| c.workload = "ycsb-z".into(), &["ycsb-z", "ycsb-a", "bank"]),
            (|c| c.protocols = vec!["silo".into(), "sillo".into()], &["sillo", "silo", "2pl-nowait", "none"]),
            (|c| c.protocols = vec!["silo".into(), "silo".into()], &["silo", "twice"]),
            (|c| c.protocols.clear(), &["no protocol"]),
            (|c| c.threads = 0, &["threads is 0", "1 to 1000"]),
            (|c| c.windows = 0, &["windows is 0"]),
            (|c| c.window_seconds = f64::NAN, &["seconds is NaN", "0.001"]),
            (|c| c.warmup_seconds = -1.0, &["warmup is -1"]),
            (|c| c.precision = Some(0.7), &["precision is 70 %", "0.1 % to 50 %"]),
            (|c| c.precision = Some(f64::NAN), &["precision is NaN %"]),
            (
                |c| {
                    c.precision = Some(0.03);
                    c.protocols = vec!["silo".into()];
                },
                &["precision", "silo is alone", "two protocols"],
            ),
            (|c| c.index = Some("btree".into()), &["btree", "hash, ordered"]),
            (|c| set(c, "ycsb.thta", "0.5"), &["ycsb.thta", "ycsb.theta", "silo.wait", "retry.backoff"]),
            (|c| set(c, "ycsb.theta", "1"), &["ycsb.theta", "'1'", "below 1"]),
            (|c| set(c, "ycsb.records", "0"), &["ycsb.records", "'0'", "from 1"]),
            (|c| set(c, "silo.wait", "maybe"), &["silo.wait", "maybe", "wait, spin, nowait"]),
            (|c| set(c, "bank.accounts", "5"), &["bank.accounts", "of the workload bank, which", "(chosen: ycsb-a)"]),
            (|c| set(c, "chip.lookahead", "5"), &["chip.lookahead", "simulated chips", "--machine"]),
            (|c| set(c, "theta", "0.5"), &["unknown option 'theta'; did you mean 'ycsb.theta'?"]),
            (|c| set(c, "thta", "0.5"), &["unknown option 'thta'; did you mean 'ycsb.theta'?"]),
            (|c| set(c, "wait", "nowait"), &["did you mean 'silo.wait'?"]),
            (|c| set(c, "", "5"), &["unknown option ''; valid: "]),
            (|c| set(c, "xyzzy", "5"), &["unknown option 'xyzzy'; valid: "]),
            (|c| c.protocols = vec!["sillo".into()], &["unknown protocol 'sillo'; did you mean 'silo'?"]),
            (
                |c| {
                    set(c, "retry.min_us", "100");
                    set(c, "retry.max_us", "10");
                },
                &["retry.max_us is 10 and retry.min_us is 100", "from retry.min_us on"],
            ),
            (
                |c| c.protocols = vec!["silo+retry.backoff=exponential+retry.min_us=2k".into()],
                &["'silo+retry.backoff=exponential+retry.min_us=2k'", "retry.max_us is 1000 and retry.min_us is 2000"],
            ),
            (|c| c.protocols = vec!["silo".into(), "silo+wait".into()], &["option of silo", "wait", "silo.wait", "cu"]),
            (|c| c.protocols = vec!["2pl-nowait+silo.wait=wait".into()], &["silo.wait", "2pl-nowait", "never waits"]),
            (|c| c.protocols = vec!["silo+silo.wait=perhaps".into()], &["silo.wait", "perhaps", "nowait"]),
            (|c| c.protocols = vec!["silo+ycsb.theta=0.5".into()], &["ycsb.theta", "--set"]),
            (|c| c.protocols = vec!["silo+cu".into(), "silo+cu=on".into()], &["silo+cu=on", "twice", "silo+cu"]),
            (
                |c| {
                    c.workload = "tpcc".into();
                    c.protocols = vec!["silo".into(), "2pl-ordered".into()];
                },
                &["2pl-ordered", "the rows", "tpcc", "bank"],
            ),
            (|c| set(c, "ycsb.partitions", "2M"), &["ycsb.partitions", "from 1"]),
            (|c| set(c, "ycsb.multi_partition", "0.5"), &["ycsb.partitions is 1"]),
            (
                |c| {
                    c.protocols = vec!["none".into()];
                    set(c, "silo.wait", "wait");
                },
                &["silo.wait", "silo", "none"],
            ),
            (
                |c| {
                    c.workload = "ycsb-e".into();
                    c.index = Some("hash".into());
                },
                &["ycsb.scan", "--index ordered"],
            ),
        ];
        for (number, (change, expected)) in cases.iter().enumerate() {
            let error = with(change).expect_err("bad input");
            for part in *expected {
                assert!(error.contains(part), "case {number}: '{part}' is not in: {error}");
            }
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_the_estimate() {
        let config = with(|config| set(config, "ycsb.records", "10G")).expect("valid as such");
        let error = config.check_memory().expect_err("ten billion records").to_string();
        assert!(error.contains("GiB") && error.contains("silo") && error.contains("available"), "{error}");
        with(|config| set(config, "ycsb.records", "1k"))
            .expect("valid")
            .check_memory()
            .expect("a thousand records fit");
    }
}
