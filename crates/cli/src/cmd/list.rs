//! `contend list`.

use contend_engine::OptionSpec;
use contend_machine::Native;
use contend_protocols::{PROTOCOL_ALIASES, all_protocols, protocol_name};
use contend_runner::machine::machines;
use contend_runner::names::{common_specs, former_option_name, short_option_name, simulation_specs, unknown};
use contend_workloads::all_workloads;
use serde_json::{Value, json};

use crate::args::{ListArgs, What};
use crate::{Status, UserError, show};

/// The indexes, each with what it is.
const INDEXES: [(&str, &str); 2] = [
    ("hash", "points: linear hashing in buckets of a cache line"),
    ("ordered", "points and ranges: a B+-tree with optimistic lock coupling"),
];

pub(crate) fn run(args: &ListArgs) -> Result<Status, UserError> {
    if args.json {
        show::print(&format!("{:#}\n", lists(args)?))?;
        return Ok(Status::Good);
    }
    let protocol = args.protocol.as_deref().map(protocol_name);
    for what in chosen(args)? {
        show::print(&as_text(what, protocol))?;
    }
    Ok(Status::Good)
}

/// Returns the lists that the flags ask for, by name.
///
/// # Errors
/// The protocol is unknown, or goes with another list than that of options.
pub(crate) fn lists(args: &ListArgs) -> Result<Value, UserError> {
    let protocol = args.protocol.as_deref().map(protocol_name);
    let list = |what: What| (name(what).to_string(), as_json(what, protocol));
    Ok(Value::Object(chosen(args)?.into_iter().map(list).collect()))
}

/// Returns which lists the flags ask for.
fn chosen(args: &ListArgs) -> Result<Vec<What>, UserError> {
    let all = [What::Protocols, What::Workloads, What::Options, What::Indexes, What::Machines];
    let protocol = args.protocol.as_deref().map(protocol_name);
    Ok(match (args.what, protocol) {
        (None, None) => all.to_vec(),
        (None | Some(What::Options), Some(protocol)) => {
            let names: Vec<&str> = all_protocols::<Native>().iter().map(|(info, _)| info.name).collect();
            if !names.contains(&protocol) {
                return Err(unknown("protocol", protocol, names).into());
            }
            vec![What::Options]
        }
        (Some(_), Some(_)) => {
            return Err(UserError::refused("--protocol goes with options only: contend list options"));
        }
        (Some(what), None) => vec![what],
    })
}

fn name(what: What) -> &'static str {
    match what {
        What::Protocols => "protocols",
        What::Workloads => "workloads",
        What::Options => "options",
        What::Indexes => "indexes",
        What::Machines => "machines",
    }
}

/// Returns every option once, with its owners: protocols, workloads, or `any` run. With a protocol,
/// only the options that it takes.
fn all_options(protocol: Option<&str>) -> Vec<(String, OptionSpec)> {
    let mut options: Vec<(String, OptionSpec)> = Vec::new();
    let mut add = |owner: &str, specs: Vec<OptionSpec>| {
        for spec in specs {
            // Protocols that share an option are listed together, unless their defaults differ.
            match options.iter_mut().find(|(_, known)| *known == spec) {
                Some((owners, _)) if owners.split(", ").any(|other| other == owner) => {}
                Some((owners, _)) => *owners += &format!(", {owner}"),
                None => options.push((owner.to_string(), spec)),
            }
        }
    };
    for (info, specs) in all_workloads() {
        // The owner of a preset's options is its workload.
        add(info.name.split('-').next().unwrap_or(info.name), specs);
    }
    for (info, specs) in all_protocols::<Native>() {
        add(info.name, specs);
    }
    add("any", common_specs());
    add("simulated chips", simulation_specs());
    match protocol {
        None => options,
        Some(protocol) => {
            let takes = |owners: &str| owners == "any" || owners.split(", ").any(|owner| owner == protocol);
            options.into_iter().filter(|(owners, _)| takes(owners)).collect()
        }
    }
}

/// Returns the names that a protocol had before.
fn former_protocol_names(name: &str) -> Vec<&'static str> {
    PROTOCOL_ALIASES.iter().filter(|(_, today)| *today == name).map(|(former, _)| *former).collect()
}

/// Returns a name for a person, with other names that are accepted in its place.
fn with_other_names(name: &str, short: Option<&str>, former: &[&str]) -> String {
    let short = short.map(|short| format!("short: {short}"));
    let former = (!former.is_empty()).then(|| format!("formerly {}", former.join(", ")));
    let others: Vec<String> = short.into_iter().chain(former).collect();
    if others.is_empty() { name.into() } else { format!("{name} ({})", others.join("; ")) }
}

fn preset_text(preset: &[(&str, &str)]) -> String {
    preset.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn as_text(what: What, protocol: Option<&str>) -> String {
    let table = match what {
        What::Protocols => {
            let mut table = show::table(["protocol", "isolation", "meaning", "paper"]).spare(&["paper", "isolation"]);
            for (info, _) in all_protocols::<Native>() {
                let name = with_other_names(info.name, None, &former_protocol_names(info.name));
                table.add_row([&name, info.isolation.name(), info.summary, info.paper]);
            }
            table
        }
        What::Workloads => {
            let mut table = show::table(["workload", "meaning", "sets", "source"]).spare(&["source", "sets"]);
            for (info, _) in all_workloads() {
                table.add_row([info.name, info.summary, &preset_text(info.preset), info.source]);
            }
            table
        }
        What::Options => {
            let mut table =
                show::table(["option", "default", "valid", "meaning", "of"]).spare(&["of", "valid", "default"]);
            for (owner, spec) in all_options(protocol) {
                let former: Vec<&str> = former_option_name(spec.name).into_iter().collect();
                let name = with_other_names(spec.name, short_option_name(spec.name), &former);
                table.add_row([&name, &spec.default, &spec.range, spec.doc, &owner]);
            }
            table
        }
        What::Machines => {
            let mut table = show::table(["machine", "threads", "meaning", "source"]).spare(&["source", "threads"]);
            for machine in machines() {
                table.add_row([machine.name, machine.threads.to_string(), machine.summary, machine.source]);
            }
            table
        }
        What::Indexes => {
            let mut table = show::table(["index", "meaning"]);
            for (name, meaning) in INDEXES {
                table.add_row([name, meaning]);
            }
            table
        }
    };
    format!("{table}\n")
}

fn as_json(what: What, protocol: Option<&str>) -> Value {
    let option = |spec: &OptionSpec| {
        json!({"name": spec.name, "short": short_option_name(spec.name), "former": former_option_name(spec.name),
               "default": spec.default, "valid": spec.range, "meaning": spec.doc})
    };
    let options = |specs: &[OptionSpec]| -> Vec<Value> { specs.iter().map(option).collect() };
    let list: Vec<Value> = match what {
        What::Protocols => all_protocols::<Native>()
            .into_iter()
            .map(|(info, specs)| {
                json!({"name": info.name, "former": former_protocol_names(info.name),
                       "isolation": info.isolation.name(), "meaning": info.summary, "paper": info.paper,
                       "options": options(&specs)})
            })
            .collect(),
        What::Workloads => all_workloads()
            .into_iter()
            .map(|(info, specs)| {
                let preset: serde_json::Map<String, Value> =
                    info.preset.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
                json!({"name": info.name, "meaning": info.summary, "source": info.source, "sets": preset,
                       "options": options(&specs)})
            })
            .collect(),
        What::Options => all_options(protocol)
            .into_iter()
            .map(|(owner, spec)| {
                let mut listed = option(&spec);
                listed["of"] = owner.into();
                listed
            })
            .collect(),
        What::Machines => machines()
            .into_iter()
            .map(|machine| {
                json!({"name": machine.name, "threads": machine.threads, "meaning": machine.summary, "source": machine.source})
            })
            .collect(),
        What::Indexes => INDEXES.iter().map(|(name, meaning)| json!({"name": name, "meaning": meaning})).collect(),
    };
    Value::Array(list)
}
