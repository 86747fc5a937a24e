//! The protocols and options that are tried: from the registry, and from the table of methods.

use contend_engine::{Isolation, OptionSpec};
use contend_machine::Native;
use contend_model::pieces::Mode;
use contend_protocols::all_protocols;
use contend_protocols::method::METHODS;
use contend_runner::config::ALL;
use contend_runner::names::{engine_specs, retry_specs};
use contend_runner::{RunConfig, RunError, RunPlan};

use super::{Use, pieces, plan_of};
use crate::samples::sample;

/// The transactions of each type that are run to see what it accesses.
const SAMPLES: u64 = 100;
/// The most options of a candidate that are tried.
const OPTIONS_MAX: usize = 8;
/// Methods whose options are tried, by their names in `docs/methods.md`. Commit-time updates and
/// timestamp splitting come besides.
const METHODS_TRIED: [&str; 9] = [
    "backoff",
    "wait policy",
    "read-phase extension",
    "early abort",
    "timestamp source",
    "collection",
    "version overwriting",
    "invisible reads",
    "record alignment",
];

/// What the transactions of a workload do that an option could use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// Whether they make updates that commute.
    pub(super) has_updates: bool,
    /// Whether a table has groups of columns that can have a version each.
    pub(super) has_groups: bool,
    /// What each type does.
    pub(super) uses: Vec<Use>,
    /// What IC3's analysis says of the pieces of the types, in sentences.
    pub(super) pieces: Vec<String>,
}

impl Features {
    /// Runs samples of a workload's transactions.
    ///
    /// # Errors
    /// Those of [`sample`]; or the configuration is not valid.
    pub(super) fn of(config: &RunConfig) -> Result<Features, RunError> {
        let samples = sample(&plan_of(config, "none")?, SAMPLES)?;
        let types = samples.learned.proposed();
        let mut features = Features::default();
        for ((of, _), access) in types.accesses() {
            features.has_updates |= access.mode == Mode::Update;
            features.has_groups |= types.tables[access.table].groups > 1;
            let what = match access.mode {
                Mode::Insert | Mode::Delete => types.tables[access.table].name.clone(),
                _ => types.tables[access.table].describe(access.groups),
            };
            let seen = Use { kind: types.types[of].name.clone(), how: access.mode.verb().into(), what };
            if !features.uses.contains(&seen) {
                features.uses.push(seen);
            }
        }
        if let Some(declared) = &samples.declared {
            features.pieces = pieces::sentences(declared, features.has_groups, features.has_updates);
        }
        Ok(features)
    }

    /// Returns the options of methods that the workload can use, behind an entry: `+cu+ts`.
    fn methods(&self) -> String {
        let names = [(self.has_updates, "+cu"), (self.has_groups, "+ts")];
        names.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| *name).collect()
    }
}

/// Returns the candidates: every protocol that runs the workload and promises at least this level,
/// plain and with the methods that the workload can use.
///
/// # Errors
/// There is none, or the configuration is not valid.
pub(super) fn of(config: &RunConfig, level: Isolation, features: &Features) -> Result<Vec<String>, RunError> {
    let all = RunConfig { protocols: vec![ALL.into()], ..config.clone() };
    let methods = features.methods();
    // A protocol that takes no log is refused here, if one is asked for.
    let is_valid = |entry: &String| plan_of(config, entry).is_ok();
    let refused = all.refused()?;
    let promises = all_protocols::<Native>().into_iter().filter(|(info, _)| info.isolation >= level);
    let mut names = Vec::new();
    for (info, _) in promises.filter(|(info, _)| !refused.iter().any(|refusal| refusal.protocol == info.name)) {
        let with = Some(format!("{}{methods}", info.name)).filter(|_| !methods.is_empty());
        names.extend([Some(info.name.to_string()), with].into_iter().flatten().filter(is_valid));
    }
    match names.is_empty() {
        false => Ok(names),
        true => Err(RunError::BadInput(format!(
            "no protocol that promises {} runs {} with these options{}",
            level.name(),
            config.workload,
            refused.first().map_or(String::new(), |refusal| format!("; for example, {}", refusal.why))
        ))),
    }
}

/// Returns the entries that differ from this one in one option: without one of its methods, or with
/// another choice of an option of the protocol or of retries.
pub(super) fn options_of(plan: &RunPlan, entry: &str) -> Vec<String> {
    let mut parts = entry.split('+');
    let name = parts.next().unwrap_or_default();
    let own: Vec<&str> = parts.collect();
    let without = |left_out: &str| {
        let kept: String =
            own.iter().filter(|option| **option != left_out).map(|option| format!("+{option}")).collect();
        format!("{name}{kept}")
    };
    let mut entries: Vec<String> = own.iter().map(|option| without(option)).collect();
    if own.len() > 1 {
        entries.push(name.to_string());
    }
    let protocols = all_protocols::<Native>();
    let of_protocol = protocols.into_iter().find(|(info, _)| info.name == name).map(|(_, specs)| specs);
    let specs: Vec<OptionSpec> = [of_protocol.unwrap_or_default(), retry_specs(), engine_specs()].concat();
    for method in METHODS_TRIED {
        let Some(method) = METHODS.iter().find(|info| info.name == method) else { continue };
        for spec in specs.iter().filter(|spec| method.options.contains(&spec.name)) {
            if plan.protocols.iter().any(|planned| planned.sets(spec.name)) {
                continue;
            }
            entries.extend(spec.other_choices().last().map(|value| format!("{entry}+{}={value}", spec.name)));
        }
    }
    entries.push(format!("{entry}+interleave=4"));
    let is_valid = |entry: &String| plan_of(&plan.config, entry).is_ok();
    entries.into_iter().filter(is_valid).take(OPTIONS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(workload: &str) -> RunConfig {
        RunConfig { workload: workload.into(), threads: 2, ..RunConfig::default() }
    }

    #[test]
    fn candidates_are_those_that_run_the_workload_and_keep_the_level() {
        let bank = Features::of(&config("bank")).expect("samples");
        let strict = of(&config("bank"), Isolation::Serializable, &bank).expect("candidates");
        let weak = of(&config("bank"), Isolation::Snapshot, &bank).expect("candidates");
        assert!(strict.contains(&"silo".to_string()) && !strict.contains(&"si".to_string()), "{strict:?}");
        assert!(weak.contains(&"si".to_string()) && weak.len() > strict.len(), "{weak:?}");
        assert!(!weak.iter().any(|name| name.starts_with("none")), "{weak:?}");
        // Methods are tried where a workload can use them.
        let reads = Features::of(&config("ycsb-c")).expect("samples");
        assert!(!reads.has_updates && !reads.has_groups, "{reads:?}");
        let plain = of(&config("ycsb-c"), Isolation::Serializable, &reads).expect("candidates");
        assert!(plain.iter().all(|name| !name.contains('+')), "{plain:?}");
        let tpcc = Features::of(&config("tpcc")).expect("samples");
        assert!(tpcc.has_updates && tpcc.has_groups, "{:?}", tpcc.uses);
        assert!(
            of(&config("tpcc"), Isolation::Serializable, &tpcc).expect("candidates").contains(&"silo+cu+ts".into())
        );
    }

    #[test]
    fn a_log_leaves_out_the_protocols_that_take_none() {
        let mut durable = config("bank");
        durable.settings.insert("log".into(), "epoch".into());
        let features = Features::default();
        let with = of(&durable, Isolation::Serializable, &features).expect("candidates");
        let without = of(&config("bank"), Isolation::Serializable, &features).expect("candidates");
        assert!(with.len() < without.len() && with.contains(&"silo".to_string()), "{with:?}");
    }

    #[test]
    fn options_are_tried_one_at_a_time() {
        let plan = plan_of(&config("tpcc"), "silo+cu+ts").expect("a plan");
        let options = options_of(&plan, "silo+cu+ts");
        for entry in ["silo+ts", "silo+cu", "silo"] {
            assert!(options.contains(&entry.to_string()), "{entry}: {options:?}");
        }
        assert!(options.iter().any(|entry| entry.starts_with("silo+cu+ts+retry.backoff=")), "{options:?}");
        assert!(options.len() <= OPTIONS_MAX && options.iter().all(|entry| plan_of(&plan.config, entry).is_ok()));
        let alone = options_of(&plan_of(&config("ycsb-c"), "silo").expect("a plan"), "silo");
        assert!(alone.iter().all(|entry| entry.starts_with("silo+")), "{alone:?}");
    }
}
