//! The plan of a run: a configuration whose names and values are all valid, as typed values.
//!
//! [`RunConfig::resolve`] is the only code that reads what a user wrote. Code that holds a
//! [`RunPlan`] may fail because memory or a disk is full, or because transactions can't go on. It
//! can't fail because of bad input.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use contend_engine::{EngineOptions, Erased, IndexKind, NamedProtocol, OptionSpec, OptionValue, Options, ProtocolInfo};
use contend_log::CommitProtocol;
use contend_machine::{Machine, Native};
use contend_protocols::method::{BackoffPolicy, RetryOptions, why_not};
use contend_protocols::{ProtocolVisitor, all_protocols, behind_pointer, on_host, protocol_name, with_protocol};
use contend_workloads::{
    ChosenWorkload, Declares, Workload, WorkloadFile, WorkloadInfo, WorkloadVisitor, all_workloads, with_workload,
};

use crate::config::{ALL, RunConfig, index_kind, index_name};
use crate::durable::{LogMode, LogOptions};
use crate::error::RunError;
use crate::in_flight::{ThreadOptions, check_think_times};
use crate::machine::ChipConfig;
use crate::memory::MemoryOptions;
use crate::names::{
    changed, common_specs, entry_name, named_settings, option_name, options, simulation_specs, unknown, values,
};

/// A valid run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The configuration, as results record it: with the entries that `all` stands for, with the
    /// chosen index, and with the current names.
    pub config: RunConfig,
    /// The index.
    pub index: IndexKind,
    /// The index that the user asked for, if any.
    pub asked_index: Option<IndexKind>,
    /// The simulated chip; `None` is this machine.
    pub chip: Option<ChipConfig>,
    /// The workload with its options.
    pub workload: WorkloadPlan,
    /// The entries of the comparison.
    pub protocols: Vec<ProtocolPlan>,
}

/// Options of a type that only their owner knows.
type AnyOptions = Arc<dyn Any + Send + Sync>;

/// A protocol with its options: one entry of a comparison.
#[derive(Clone, Debug)]
pub struct ProtocolPlan {
    /// The entry, as the user wrote it.
    pub name: String,
    /// The protocol's name, paper and isolation level.
    pub info: ProtocolInfo,
    /// Whether transactions see uncommitted data of others.
    pub shows_uncommitted: bool,
    /// The reason why the protocol does not go with a log, if it does not.
    pub refuses_log: Option<&'static str>,
    /// The settings that apply to this entry, including its own, by the names of their options.
    pub settings: BTreeMap<String, String>,
    /// The options of the engine.
    pub engine: EngineOptions,
    /// The options of retries.
    pub retry: RetryOptions,
    /// The options of the log.
    pub log: LogOptions,
    /// The options of the run's memory.
    pub memory: MemoryOptions,
    /// The options of the run's threads.
    pub threads: ThreadOptions,
    /// The values of the protocol's own options.
    pub values: BTreeMap<String, String>,
    /// The number of metadata words of each cell.
    pub meta_words: usize,
    /// Whether a log can use the protocol's own commit numbers as write counters.
    pub provides_write_counters: bool,
    options: AnyOptions,
}

/// A workload with its options.
#[derive(Clone, Debug)]
pub struct WorkloadPlan {
    /// The name of the workload or preset, or the path of its file.
    pub name: &'static str,
    /// The workload, in the list or as a file.
    pub chosen: ChosenWorkload,
    /// The values of its options.
    pub values: BTreeMap<String, String>,
    options: AnyOptions,
}

/// Code for the protocol of a plan; see [`ProtocolPlan::visit`].
pub trait PlannedProtocolVisitor<M: Machine> {
    /// The result of the visit.
    type Output;
    /// Runs for this protocol with these options.
    fn visit<P: NamedProtocol<M>>(self, options: &P::Options) -> Self::Output;
}

/// Code for the workload of a plan; see [`WorkloadPlan::visit`].
pub trait PlannedWorkloadVisitor {
    /// The result of the visit.
    type Output;
    /// Runs for this workload with these options.
    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output;
}

/// Reads a workload file. Of one that is too large it reads no more than shows that.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(WorkloadFile::BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// The reason why a plan's names and options are in the registry. `resolve` found them there, and
/// the type of a protocol's or workload's options is the same on each machine; a test visits all.
const FOUND: &str = "a plan names what its registry has";

impl ProtocolPlan {
    /// Calls the visitor with the protocol's type and options.
    pub fn visit<M: Machine, V: PlannedProtocolVisitor<M>>(&self, visitor: V) -> V::Output {
        struct Typed<'a, V>(&'a AnyOptions, V);
        impl<M: Machine, V: PlannedProtocolVisitor<M>> ProtocolVisitor<M> for Typed<'_, V> {
            type Output = V::Output;
            fn visit<P: NamedProtocol<M>>(self) -> V::Output {
                self.1.visit::<P>(self.0.downcast_ref::<P::Options>().expect(FOUND))
            }
        }
        with_protocol::<M, _>(self.info.name, Typed(&self.options, visitor)).expect(FOUND)
    }

    /// Returns the protocol behind a pointer, on the host.
    pub fn erased_on_host(&self) -> Erased<Native> {
        on_host(self.info.name, &*self.options).expect(FOUND)
    }

    /// Returns the protocol behind a pointer, on any machine: compiled for the caller.
    pub fn erased<M: Machine>(&self) -> Erased<M> {
        behind_pointer(self.info.name, &*self.options).expect(FOUND)
    }

    /// Returns the plan of a protocol that may be unregistered, and its options. Such a plan can't
    /// be visited.
    ///
    /// # Errors
    /// A value is not valid, or an option is set twice.
    pub fn with_options<P: NamedProtocol<M>, M: Machine>(
        settings: &BTreeMap<String, String>,
    ) -> Result<(Self, P::Options), RunError> {
        let settings = named_settings(settings)?;
        let own = options::<P::Options>(&[], &settings)?;
        let protocol = P::new(own.clone());
        let planned = ProtocolPlan {
            name: P::INFO.name.into(),
            info: P::INFO,
            shows_uncommitted: P::SHOWS_UNCOMMITTED,
            refuses_log: P::REFUSES_LOG,
            engine: options::<EngineOptions>(&[], &settings)?,
            retry: options::<RetryOptions>(&[], &settings)?,
            log: options::<LogOptions>(&[], &settings)?,
            memory: options::<MemoryOptions>(&[], &settings)?,
            threads: options::<ThreadOptions>(&[], &settings)?,
            values: values(&own),
            meta_words: protocol.meta_words(),
            provides_write_counters: protocol.provides_write_counters(),
            options: Arc::new(own.clone()),
            settings,
        };
        Ok((planned, own))
    }

    /// Returns whether this option was set, for this entry or for all.
    pub fn sets(&self, option: &str) -> bool {
        self.settings.contains_key(option)
    }
}

impl WorkloadPlan {
    /// Calls the visitor with the workload's type and options.
    pub fn visit<V: PlannedWorkloadVisitor>(&self, visitor: V) -> V::Output {
        struct Typed<'a, V>(&'a AnyOptions, V);
        impl<V: PlannedWorkloadVisitor> WorkloadVisitor for Typed<'_, V> {
            type Output = V::Output;
            fn visit<W: Workload>(self, info: WorkloadInfo, _: W::Options) -> V::Output {
                self.1.visit::<W>(info, self.0.downcast_ref::<W::Options>().expect(FOUND))
            }
        }
        self.chosen.visit(Typed(&self.options, visitor))
    }
}

impl RunPlan {
    /// Returns a plan for each entry.
    pub fn each(&self) -> impl Iterator<Item = RunPlan> {
        self.protocols.iter().map(|protocol| RunPlan {
            config: RunConfig { protocols: vec![protocol.name.clone()], ..self.config.clone() },
            protocols: vec![protocol.clone()],
            ..self.clone()
        })
    }

    /// Returns a sentence about the first entry that goes with no log, if there is one.
    pub fn refusal_of_logs(&self) -> Option<String> {
        self.protocols.iter().find_map(|entry| Some(format!("no log goes with {}: {}", entry.name, entry.refuses_log?)))
    }

    /// Returns the same plan with another seed.
    pub fn with_seed(&self, seed: u64) -> RunPlan {
        let mut plan = self.clone();
        plan.config.seed = seed;
        plan.chip.iter_mut().for_each(|chip| chip.options.seed = seed);
        plan
    }
}

/// A protocol of the registry with the options that it takes.
type Listed = (ProtocolInfo, Vec<OptionSpec>);

/// An entry of a comparison whose names are valid, but whose values are not parsed yet.
struct NamedEntry {
    name: String,
    info: ProtocolInfo,
    settings: BTreeMap<String, String>,
    /// The settings of this entry alone.
    own: BTreeMap<String, String>,
}

impl RunConfig {
    /// Turns the configuration into a plan: looks up each name, parses each value once, and chooses
    /// the index.
    ///
    /// # Errors
    /// The first mistake, with the valid choices.
    pub fn resolve(&self) -> Result<RunPlan, RunError> {
        let mut config = RunConfig {
            settings: named_settings(&self.settings)?,
            protocols: self.protocols.iter().map(|entry| entry_name(entry)).collect(),
            ..self.clone()
        };
        config.check_numbers()?;
        let chosen = config.chosen_workload()?;
        if let ChosenWorkload::File(file) = &chosen {
            config.workload_text = Some(file.text().into());
        }
        let protocols = all_protocols::<Native>();
        if config.protocols.is_empty() {
            return Err(RunError::BadInput("no protocol was chosen".into()));
        }
        if config.has_all() {
            let refused = config.refused()?;
            let can = |name: &String| !refused.iter().any(|refusal| refusal.protocol == *name);
            let every = || protocols.iter().map(|(info, _)| info.name.to_string()).filter(can);
            let expanded = |entry| if entry == ALL { every().collect() } else { vec![entry] };
            config.protocols = config.protocols.into_iter().flat_map(expanded).collect();
        }
        let entries = named_entries(&config, &protocols)?;
        if config.precision.is_some() && entries.len() < 2 {
            let entry = config.protocols.join(", ");
            return Err(RunError::BadInput(format!(
                "a precision is that of ratios between protocols, and {entry} is alone; valid: two protocols or more"
            )));
        }
        check_setting_names(&config, &chosen.specs(), &protocols, &entries)?;
        let chip = config.chip_config()?;
        let planned = entries.iter().map(|entry| {
            let planned = planned_protocol(&config, entry, entries.len());
            planned.map_err(|error| match error {
                // The wrong value may be one of the entry's own.
                RunError::BadInput(message) if !entry.own.is_empty() && !message.starts_with(FOLDER) => {
                    RunError::BadInput(format!("'{}': {message}", entry.name))
                }
                error => error,
            })
        });
        let planned: Vec<ProtocolPlan> = planned.collect::<Result<_, _>>()?;
        let refused = config.refused_by_needs()?;
        let is_asked_for = |refusal: &Refusal| planned.iter().any(|entry| entry.info.name == refusal.protocol);
        if let Some(Refusal { why, workloads, .. }) = refused.into_iter().find(is_asked_for) {
            return Err(RunError::BadInput(format!("{why}; workloads that can: {}", workloads.join(", "))));
        }
        let asked_index = config.index.as_deref().map(index_kind).transpose()?;
        let plan = PlanWorkload { chosen: &chosen, config: &config, index: asked_index };
        let (index, workload) = chosen.visit(plan)?;
        config.index = Some(index_name(index).into());
        Ok(RunPlan { config, index, asked_index, chip, workload, protocols: planned })
    }

    /// Returns the workload of this name, or the file of this path. The file is read, unless the
    /// configuration has its text.
    ///
    /// # Errors
    /// There is no such workload and no such file, or the file is not valid.
    pub fn chosen_workload(&self) -> Result<ChosenWorkload, RunError> {
        if let Some(chosen) = ChosenWorkload::registered(&self.workload) {
            return Ok(chosen);
        }
        let path = Path::new(&self.workload);
        let is_path = self.workload.contains(['/', '.']) || path.exists();
        let text = match &self.workload_text {
            Some(text) => text.clone(),
            None if is_path => read_text(path).map_err(|error| {
                RunError::BadInput(format!("the workload file {} can't be read: {error}", self.workload))
            })?,
            None => {
                let names = all_workloads().into_iter().map(|(info, _)| info.name).collect::<Vec<_>>();
                let names = names.into_iter().chain(["or the path of a workload file"]);
                return Err(unknown("workload", &self.workload, names));
            }
        };
        WorkloadFile::read(&self.workload, &text).map(ChosenWorkload::File).map_err(RunError::BadInput)
    }

    /// Returns the protocols that can't run the workload: its transactions can't declare what the
    /// protocol needs, or there is a log and the protocol refuses it.
    ///
    /// # Errors
    /// There is no such workload, or its options are not valid.
    pub fn refused(&self) -> Result<Vec<Refusal>, RunError> {
        let mut refused = self.refused_by_needs()?;
        let mode = named_settings(&self.settings)?.get("log.mode").cloned();
        if let Some(mode) = mode.filter(|mode| *mode != LogMode::Off.show()) {
            for (info, _) in all_protocols::<Native>() {
                let refuses = with_protocol::<Native, _>(info.name, RefusesLog).expect(FOUND);
                let refusal = |why| Refusal {
                    protocol: info.name,
                    why: without_log(info.name, &mode, why),
                    workloads: Vec::new(),
                };
                refused.extend(refuses.map(refusal));
            }
        }
        Ok(refused)
    }

    /// Returns the protocols that need what the transactions of the workload can't declare.
    fn refused_by_needs(&self) -> Result<Vec<Refusal>, RunError> {
        let none = BTreeMap::new();
        let of_this = self.chosen_workload()?.visit(Declared(&named_settings(&self.settings)?))?;
        let refusal = |(info, _): Listed| {
            let others = all_workloads().into_iter().map(|(info, _)| info.name);
            let can = |name: &&str| {
                with_workload(name, Declared(&none)).expect(FOUND).is_ok_and(|declares| declares.meets(info.needs))
            };
            let (protocol, needs, workload) = (info.name, info.needs.describe(), &self.workload);
            let why = format!("{protocol} must know {needs} before it begins, which {workload} can't declare");
            Refusal { protocol, why, workloads: others.filter(can).collect() }
        };
        let protocols = all_protocols::<Native>().into_iter();
        Ok(protocols.filter(|(info, _)| !of_this.meets(info.needs)).map(refusal).collect())
    }
}

/// A protocol that can't run a workload.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The protocol's name.
    pub protocol: &'static str,
    /// A sentence that names what the protocol needs.
    pub why: String,
    /// The workloads that can declare what it needs, with their default options; none if the log is
    /// what it refuses.
    pub workloads: Vec<&'static str>,
}

/// Splits an entry such as `silo+cu=on` into the protocol's name and the entry's own settings, by
/// the full names of their options.
fn split_entry(entry: &str) -> Result<(&str, BTreeMap<String, String>), RunError> {
    let mut parts = entry.split('+');
    let protocol = protocol_name(parts.next().unwrap_or_default());
    let mut own = BTreeMap::new();
    for part in parts {
        let (written, value) = part.split_once('=').unwrap_or((part, "on"));
        let other = own.insert(option_name(written).to_string(), value.to_string());
        if let Some(other) = other.filter(|other| other != value) {
            return Err(RunError::BadInput(format!(
                "'{entry}': option '{written}' is set twice, to {other} and to {value}"
            )));
        }
    }
    Ok((protocol, own))
}

/// Looks up the names of all entries.
///
/// # Errors
/// An entry names an unknown protocol, sets an option that it can't have, or occurs twice.
fn named_entries(config: &RunConfig, protocols: &[Listed]) -> Result<Vec<NamedEntry>, RunError> {
    let mut entries: Vec<NamedEntry> = Vec::new();
    for entry in &config.protocols {
        let (name, own) = split_entry(entry)?;
        let Some((info, specs)) = protocols.iter().find(|(info, _)| info.name == name) else {
            return Err(unknown("protocol", name, protocols.iter().map(|(info, _)| info.name)));
        };
        own.keys().try_for_each(|option| check_own_option(entry, info, specs, option))?;
        if let Some(other) = entries.iter().find(|other| (other.info.name, &other.own) == (info.name, &own)) {
            let message = if other.name == *entry { String::new() } else { format!(" (as '{}')", other.name) };
            return Err(RunError::BadInput(format!("protocol '{entry}' was chosen twice{message}")));
        }
        let mut settings = config.settings.clone();
        settings.extend(own.clone());
        entries.push(NamedEntry { name: entry.clone(), info: *info, settings, own });
    }
    Ok(entries)
}

/// Checks that an entry of this protocol may set the option `name` for itself.
fn check_own_option(entry: &str, info: &ProtocolInfo, specs: &[OptionSpec], name: &str) -> Result<(), RunError> {
    let others = common_specs();
    let mut valid = specs.iter().chain(&others).map(|spec| spec.name);
    if valid.clone().any(|valid| valid == name) {
        return Ok(());
    }
    if all_workloads().iter().any(|(_, specs)| specs.iter().any(|spec| spec.name == name)) {
        return Err(RunError::BadInput(format!(
            "'{entry}': the workload's option '{name}' is the same for all protocols of a run: use --set"
        )));
    }
    Err(match why_not(info.name, name) {
        Some(why) => RunError::BadInput(format!("'{entry}': option '{name}' does not belong to {}; {why}", info.name)),
        None => unknown(&format!("option of {}", info.name), name, valid.by_ref()),
    })
}

/// Checks that each setting belongs to the workload, to a protocol of this run, to the engine, to
/// the log, or to retries.
fn check_setting_names(
    config: &RunConfig,
    workload: &[OptionSpec],
    protocols: &[Listed],
    entries: &[NamedEntry],
) -> Result<(), RunError> {
    let is_chosen = |name: &str| entries.iter().any(|entry| entry.info.name == name);
    let mut others = common_specs();
    if config.chip.is_some() {
        others.extend(simulation_specs());
    }
    let has = |specs: &[OptionSpec], name: &str| specs.iter().any(|spec| spec.name == name);
    for name in config.settings.keys() {
        let owners: Vec<&str> =
            protocols.iter().filter(|(_, specs)| has(specs, name)).map(|(info, _)| info.name).collect();
        if owners.iter().any(|owner| is_chosen(owner)) {
            continue;
        }
        if !owners.is_empty() {
            let (owners, chosen) = (owners.join(", "), config.protocols.join(", "));
            let reasons = entries.iter().filter_map(|entry| why_not(entry.info.name, name));
            let reasons: String = reasons.map(|why| format!("; {why}")).collect();
            return Err(RunError::BadInput(format!(
                "option '{name}' belongs to the protocol {owners}, which does not run here (chosen: {chosen}){reasons}"
            )));
        }
        if has(workload, name) || has(&others, name) {
            continue;
        }
        if has(&simulation_specs(), name) {
            return Err(RunError::BadInput(format!(
                "option '{name}' belongs to simulated chips, and the machine is native; valid with --machine CHIP only"
            )));
        }
        let mut owners: Vec<&str> = all_workloads()
            .into_iter()
            .filter(|(_, specs)| has(specs, name))
            .map(|(info, _)| info.name.split('-').next().unwrap_or(info.name))
            .collect();
        owners.dedup();
        if !owners.is_empty() {
            return Err(RunError::BadInput(format!(
                "option '{name}' belongs to the workload {}, which does not run here (chosen: {})",
                owners.join(", "),
                config.workload
            )));
        }
        let of_protocols = protocols.iter().filter(|(info, _)| is_chosen(info.name)).flat_map(|(_, specs)| specs);
        let valid = workload.iter().chain(of_protocols).chain(&others).map(|spec| spec.name);
        return Err(unknown("option", name, valid));
    }
    Ok(())
}

/// The beginning of an error about the folder of a log. The folder belongs to the run, not to an
/// entry.
const FOLDER: &str = "the folder of a log (--dir)";

/// Parses the options of an entry, and refuses combinations that can't work.
fn planned_protocol(config: &RunConfig, entry: &NamedEntry, entries: usize) -> Result<ProtocolPlan, RunError> {
    struct Plans<'a>(&'a BTreeMap<String, String>);
    impl ProtocolVisitor<Native> for Plans<'_> {
        type Output = Result<ProtocolPlan, RunError>;
        fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
            Ok(ProtocolPlan::with_options::<P, Native>(self.0)?.0)
        }
    }
    let retry = options::<RetryOptions>(&[], &entry.settings)?;
    check_retry(&retry, entry.settings.contains_key("retry.max_us"))?;
    let has_disk = config.chip.is_none();
    let log = options::<LogOptions>(&[], &entry.settings)?;
    log.check(has_disk)?;
    if config.dir.is_some() && (!log.has_files(has_disk) || entries > 1) {
        return Err(RunError::BadInput(format!(
            "{FOLDER} holds the log of one protocol, with --set log=epoch or another mode"
        )));
    }
    let of_memory = MemoryOptions::specs();
    let set = of_memory.iter().find(|spec| !has_disk && entry.settings.contains_key(spec.name));
    if let Some(spec) = set {
        return Err(RunError::BadInput(format!(
            "option '{}' belongs to runs on the host: the memory of a simulated chip has no pages to clear",
            spec.name
        )));
    }
    let planned = with_protocol::<Native, _>(entry.info.name, Plans(&entry.settings)).expect(FOUND)?;
    planned.threads.check(config)?;
    if planned.shows_uncommitted && log.commit().is_some_and(CommitProtocol::holds_rows) {
        return Err(RunError::BadInput(format!(
            "log={} does not go with {}: its transactions see rows of others that are not committed yet, and so not durable",
            log.mode.show(),
            entry.info.name
        )));
    }
    if let Some(why) = planned.refuses_log.filter(|_| log.mode != LogMode::Off) {
        return Err(RunError::BadInput(format!(
            "{}; valid: log=off, or another protocol",
            without_log(entry.info.name, &log.mode.show(), why)
        )));
    }
    Ok(ProtocolPlan { name: entry.name.clone(), ..planned })
}

/// A visitor that returns the reason why a protocol does not go with a log, if it does not.
struct RefusesLog;

impl ProtocolVisitor<Native> for RefusesLog {
    type Output = Option<&'static str>;

    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        P::REFUSES_LOG
    }
}

/// Returns a sentence that says why a protocol does not go with this log.
fn without_log(protocol: &str, mode: &str, why: &str) -> String {
    format!("log={mode} does not go with {protocol}: {why}")
}

/// Checks that the first bound of a backoff is not above the largest, where both apply. `is_set`
/// says whether the user set the largest.
fn check_retry(retry: &RetryOptions, is_set: bool) -> Result<(), RunError> {
    let RetryOptions { backoff, min_us, max_us } = *retry;
    let is_used = is_set || matches!(backoff, BackoffPolicy::Exponential | BackoffPolicy::Adaptive);
    if is_used && max_us < min_us {
        return Err(RunError::BadInput(format!(
            "retry.max_us is {max_us} and retry.min_us is {min_us}; valid: retry.max_us from retry.min_us on"
        )));
    }
    Ok(())
}

/// A visitor that returns what a workload can declare with these settings.
struct Declared<'a>(&'a BTreeMap<String, String>);

impl WorkloadVisitor for Declared<'_> {
    type Output = Result<Declares, RunError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, defaults: W::Options) -> Self::Output {
        Ok(W::declares(&changed(defaults, info.preset, self.0)?))
    }
}

/// A visitor that parses the options of a workload, and chooses the index.
struct PlanWorkload<'a> {
    chosen: &'a ChosenWorkload,
    config: &'a RunConfig,
    index: Option<IndexKind>,
}

impl WorkloadVisitor for PlanWorkload<'_> {
    type Output = Result<(IndexKind, WorkloadPlan), RunError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, defaults: W::Options) -> Self::Output {
        let options = changed(defaults, info.preset, &self.config.settings)?;
        let index = match self.index {
            Some(index) => index,
            None if W::validate(&options, IndexKind::Hash).is_ok() => IndexKind::Hash,
            None => IndexKind::Ordered,
        };
        W::validate(&options, index).map_err(RunError::BadInput)?;
        check_think_times::<W>(info.name, &options, self.config)?;
        Ok((
            index,
            WorkloadPlan {
                name: info.name,
                chosen: self.chosen.clone(),
                values: values(&options),
                options: Arc::new(options),
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut RunConfig)) -> Result<RunPlan, String> {
        let mut config = RunConfig::default();
        change(&mut config);
        config.resolve().map_err(|error| error.to_string())
    }

    fn set(config: &mut RunConfig, name: &str, value: &str) {
        config.settings.insert(name.into(), value.into());
    }

    #[test]
    fn the_default_is_valid_and_settles_the_index() {
        assert_eq!(with(|_| {}).expect("valid").index, IndexKind::Hash);
        let scans = with(|config| config.workload = "ycsb-e".into()).expect("valid");
        assert_eq!(scans.index, IndexKind::Ordered, "what needs an order gets one");
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
        let on = |workload: &str| with(|config| config.workload = workload.into()).expect("valid").config.protocols;
        let (rows, no_rows) = (on("tpcc"), on("wikipedia"));
        assert!(rows.contains(&"2pl-ordered".into()) && rows.contains(&"hstore".into()));
        assert!(!no_rows.contains(&"2pl-ordered".into()) && no_rows.contains(&"hstore".into()));
        assert_eq!(rows.len(), no_rows.len() + 1);
        let choose = |entries: &[&str]| {
            with(|config| config.protocols = entries.iter().map(|entry| entry.to_string()).collect())
                .map(|plan| plan.config.protocols)
        };
        let more = choose(&["silo+cu", "all"]).expect("all, and a variant of one");
        assert_eq!((more.len(), &*more[0]), (choose(&["all"]).expect("all").len() + 1, "silo+cu"));
        // With a log, those that refuse logs are left out.
        let logged = with(|config| {
            config.protocols = vec!["all".into()];
            set(config, "log", "epoch");
        });
        let logged = logged.expect("valid").config.protocols;
        assert!(!logged.contains(&"chopping".into()) && logged.len() + 1 == choose(&["all"]).expect("all").len());
        assert!(choose(&["all", "silo"]).expect_err("silo is one of all").contains("'silo' was chosen twice"));
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
            (
                |c| set(c, "bank.accounts", "5"),
                &["bank.accounts", "belongs to the workload bank, which", "(chosen: ycsb-a)"],
            ),
            (|c| set(c, "chip.lookahead", "5"), &["chip.lookahead", "simulated chips", "--machine"]),
            (|c| set(c, "interleave", "0"), &["threads.interleave", "'0'", "1 to 32, or auto"]),
            (|c| set(c, "interleave", "33"), &["threads.interleave", "'33'", "1 to 32, or auto"]),
            (|c| set(c, "interleave", "many"), &["threads.interleave", "'many'", "1 to 32, or auto"]),
            (
                |c| {
                    c.threads = 1000;
                    set(c, "interleave", "32");
                },
                &["interleave=32 makes 32 workers on each of 1000 threads", "at most 496 threads"],
            ),
            (
                |c| {
                    c.breakdown = true;
                    set(c, "interleave", "8");
                },
                &["breakdown", "interleave=8", "valid: interleave=1"],
            ),
            (
                |c| {
                    *c = c.clone().on("abyss:4").expect("a machine");
                    set(c, "interleave", "auto");
                },
                &["interleave=auto", "valid on a chip: 1 to 32"],
            ),
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
            (
                |c| c.protocols = vec!["silo".into(), "silo+wait".into()],
                &["option of silo", "wait", "silo.wait", "engine.commit_time_updates"],
            ),
            (|c| c.protocols = vec!["2pl-nowait+silo.wait=wait".into()], &["silo.wait", "2pl-nowait", "never waits"]),
            (|c| c.protocols = vec!["silo+silo.wait=perhaps".into()], &["silo.wait", "perhaps", "nowait"]),
            (|c| c.protocols = vec!["silo+ycsb.theta=0.5".into()], &["ycsb.theta", "--set"]),
            (|c| c.protocols = vec!["silo+cu".into(), "silo+cu=on".into()], &["silo+cu=on", "twice", "silo+cu"]),
            (
                |c| {
                    c.workload = "wikipedia".into();
                    c.protocols = vec!["silo".into(), "2pl-ordered".into()];
                },
                &["2pl-ordered", "some of the rows", "wikipedia", "bank", "tpcc"],
            ),
            (|c| set(c, "ycsb.partitions", "2M"), &["ycsb.partitions", "from 1"]),
            (|c| set(c, "ycsb.multi_partition", "0.5"), &["ycsb.partitions is 1"]),
            (
                |c| {
                    c.protocols = vec!["chopping".into()];
                    set(c, "log", "epoch");
                },
                &["log=epoch does not go with chopping", "a crash between two parts", "valid: log=off"],
            ),
            (
                |c| c.protocols = vec!["chopping+chopping.over=occ".into()],
                &["occ", "silo, 2pl-waitdie, 2pl-woundwait, 2pl-ordered"],
            ),
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
    fn short_and_former_names_are_those_of_today() {
        let short = with(|config| {
            config.protocols = vec!["mvcc+ts".into(), "to".into()];
            set(config, "cu", "on");
        });
        let short = short.expect("valid");
        assert_eq!(short.config.protocols, ["msto+ts", "timestamp-ordering"]);
        assert_eq!(short.config.settings["engine.commit_time_updates"], "on");
        assert!(short.protocols.iter().all(|entry| entry.engine.commit_time_updates));
        assert!(short.protocols[0].engine.timestamp_splitting && !short.protocols[1].engine.timestamp_splitting);
        let twice = with(|config| {
            set(config, "cu", "on");
            set(config, "engine.commit_time_updates", "off");
        });
        assert!(twice.expect_err("two values").contains("set twice"));
    }
}
