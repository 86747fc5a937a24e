//! Writes `docs/methods.md`: which optimisation method goes with which protocol, and its effect.
//!
//! `cargo run --release -p contend-lab --example methods > docs/methods.md`
//!
//! The effects are those on a simulated chip of 64 cores, which are the same on every host.

use std::sync::Mutex;

use contend_engine::{EngineOptions, Isolation, OptionSpec, Options, ProtocolInfo};
use contend_lab::compare;
use contend_lab::experiment::wrapped;
use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_protocols::method::{METHODS, MethodInfo, Otherwise, RetryOptions};
use contend_runner::{RunConfig, Silent, Stop};

/// The effect of protection, measured on a host by the bench that the text names. It is printed
/// after the method's table.
const PROTECTION: &str = include_str!("protection.md");

/// Workloads with little and with much contention.
type Pair = [(&'static str, &'static [(&'static str, &'static str)]); 2];

const YCSB: Pair = [
    ("ycsb", &[("ycsb.batch", "off"), ("ycsb.records", "100k"), ("ycsb.rmw", "on"), ("ycsb.theta", "0")]),
    ("ycsb", &[("ycsb.batch", "off"), ("ycsb.records", "100k"), ("ycsb.rmw", "on"), ("ycsb.theta", "0.9")]),
];
/// Workloads of rows with several groups of columns, and with updates that read nothing.
const TPCC: Pair = [
    ("tpcc-np", &[("tpcc.warehouses", "64"), ("tpcc.items", "1000"), ("tpcc.customers", "30")]),
    ("tpcc-np", &[("tpcc.warehouses", "4"), ("tpcc.items", "1000"), ("tpcc.customers", "30")]),
];
/// The values that are tried of options with a number.
const NUMBERS: &[(&str, &str)] = &[
    ("mocc.hot", "0"),
    ("dldetect.timeout_us", "100"),
    ("dldetect.timeout_us", "0"),
    ("engine.protect_after", "10"),
    ("versions.interval_us", "0"),
    ("versions.interval_us", "10"),
];

fn workloads(method: &MethodInfo) -> &'static Pair {
    if method.options.iter().any(|option| ["engine.commit_time_updates", "engine.timestamp_splitting"].contains(option))
    {
        &TPCC
    } else {
        &YCSB
    }
}

/// Returns the commits per second of simulated time, or `None` if the protocol can't run the
/// workload.
fn throughput(protocol: &str, workload: (&str, &[(&str, &str)]), setting: Option<(&str, &str)>) -> Option<f64> {
    let mut config = RunConfig::default().on("abyss:64").expect("a chip of the list");
    config.workload = workload.0.into();
    config.protocols = vec![protocol.into()];
    (config.windows, config.window_seconds, config.warmup_seconds, config.verify) = (1, 0.0004, 0.0002, false);
    let settings = workload.1.iter().chain(setting.as_ref());
    config.settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let result = compare(&config.resolve().ok()?, &Stop::default(), &Silent).expect("it runs");
    let measured = result.protocols[0].measured.as_ref().expect("it was measured");
    Some(measured.throughput_tps.median)
}

/// Returns the settings of a method that differ from this protocol's defaults.
fn settings(method: &MethodInfo, specs: &[OptionSpec]) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    for spec in specs.iter().filter(|spec| method.options.contains(&spec.name)) {
        let numbers = NUMBERS.iter().filter(|(name, _)| *name == spec.name).map(|(_, value)| value.to_string());
        settings.extend(numbers.map(|value| (spec.name, value)));
        let is_choice = !spec.range.contains("number");
        let others = spec.range.split(", ").filter(|value| is_choice && **value != *spec.default);
        settings.extend(others.map(|value| (spec.name, value.to_string())));
    }
    settings
}

/// An effect to measure.
struct Effect {
    method: usize,
    protocol: &'static str,
    setting: (&'static str, String),
    ratios: [Option<f64>; 2],
}

fn main() {
    let common: Vec<OptionSpec> = [RetryOptions::specs(), EngineOptions::specs()].concat();
    let promises = |(info, _): &(ProtocolInfo, Vec<OptionSpec>)| info.isolation != Isolation::None;
    let protocols: Vec<(ProtocolInfo, Vec<OptionSpec>)> =
        all_protocols::<Native>().into_iter().filter(promises).collect();
    let mut effects = Vec::new();
    for (number, method) in METHODS.iter().enumerate() {
        for (info, specs) in &protocols {
            let specs: Vec<OptionSpec> = specs.iter().chain(&common).cloned().collect();
            let all = settings(method, &specs).into_iter();
            effects.extend(all.map(|setting| Effect {
                method: number,
                protocol: info.name,
                setting,
                ratios: [None, None],
            }));
        }
    }
    measure(&mut effects);
    print(&protocols, &common, &effects);
}

/// Measures all effects, with as many threads as there are cores.
fn measure(effects: &mut [Effect]) {
    let work = Mutex::new(effects.iter_mut());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = work.lock().expect("no panic").next();
                    let Some(effect) = next else { break };
                    let setting = (effect.setting.0, effect.setting.1.as_str());
                    let workloads = workloads(&METHODS[effect.method]);
                    effect.ratios = workloads.map(|workload| {
                        let before = throughput(effect.protocol, workload, None)?;
                        Some(throughput(effect.protocol, workload, Some(setting))? / before)
                    });
                    eprintln!("{} {}={}", effect.protocol, effect.setting.0, effect.setting.1);
                }
            });
        }
    });
}

fn print(protocols: &[(ProtocolInfo, Vec<OptionSpec>)], common: &[OptionSpec], effects: &[Effect]) {
    println!("# Methods and protocols\n");
    println!(
        "This page says which optimisation methods go with which protocols, and what each method brings. It\n\
         is our version of table 1 of T. Tanabe et al., \"An analysis of concurrency control protocols for\n\
         in-memory databases with CCBench\", VLDB 2020. It is written by `cargo run --release -p contend-lab\n\
         --example methods > docs/methods.md`.\n"
    );
    println!("+ chosen by an option; o part of the protocol; - does not apply, with the reason below.\n");
    let names: Vec<&str> = protocols.iter().map(|(info, _)| info.name).collect();
    println!("| method | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(names.len()));
    for method in METHODS {
        let cell = |(info, specs): &(ProtocolInfo, Vec<OptionSpec>)| {
            let takes = specs.iter().chain(common).any(|spec| method.options.contains(&spec.name));
            match method.otherwise(info.name) {
                _ if takes => "+",
                Some(Otherwise::BuiltIn(_)) => "o",
                _ => "-",
            }
        };
        println!("| {} | {} |", method.name, protocols.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    println!("\n## Each method\n");
    println!(
        "An effect is the throughput with the setting, divided by that with the defaults. It is measured on\n\
         `abyss:64`, in 0.4 ms after a warm-up of 0.2 ms. The workload is YCSB on 100,000 records, with 10\n\
         operations one by one, half reads and half read-modify-writes. Low contention is theta 0, and high\n\
         contention theta 0.9. For commit-time updates and timestamp splitting it is TPC-C's New-Order and\n\
         Payment, on 64 warehouses (low) and on 4 (high). A protocol that commits little in such a window\n\
         has rough ratios, as `datm` with high contention."
    );
    for (number, method) in METHODS.iter().enumerate() {
        println!("\n### {}\n\n{}", capital(method.name), wrapped(&format!("{}.", capital(method.meaning)), ""));
        let mut of_method = effects.iter().filter(|effect| effect.method == number).peekable();
        if of_method.peek().is_some() {
            println!("\n| protocol | setting | low | high |\n| --- | --- | --- | --- |");
        }
        let show = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        for Effect { protocol, setting: (name, value), ratios, .. } in of_method {
            println!("| `{protocol}` | `{name}={value}` | {} | {} |", show(ratios[0]), show(ratios[1]));
        }
        let mut reasons = Vec::new();
        for (info, specs) in protocols {
            let takes = specs.iter().chain(common).any(|spec| method.options.contains(&spec.name));
            match method.otherwise(info.name) {
                Some(Otherwise::No(why) | Otherwise::BuiltIn(why)) if !takes => {
                    reasons.push(wrapped(&format!("- `{}`: {why}.", info.name), "  "));
                }
                _ => {}
            }
        }
        if method.options.contains(&"engine.protect_after") {
            println!("\n{}", PROTECTION.trim_end());
        }
        if !reasons.is_empty() {
            println!("\nThe others:\n\n{}", reasons.join("\n"));
        }
    }
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}
