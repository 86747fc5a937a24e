//! `contend crash-test`.

use contend_model::counted;
use contend_proof::crash::{CrashPlan, Crashed};
use contend_runner::names::option_name;
use contend_runner::{Observer, RunConfig};

use super::{Place, Tested, left_out};
use crate::args::CrashTestArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &CrashTestArgs) -> Result<Status, UserError> {
    let (runs, config) = (args.runs()?, args.config());
    // All plans are made before the first test, so that bad input is told at once.
    let mut plans = Vec::new();
    for run in &runs {
        left_out(run)?;
        plans.push((run, config.resolve(run)?));
    }
    let count = plans.iter().map(|(_, plan)| plan.tests()).sum();
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let observer: &(dyn Observer + Sync) = &bars;
    observer.begin("crashing", count);
    let mut all = Vec::new();
    for (run, plan) in &plans {
        let crashed = plan.run(&stop, &|| observer.advance(1))?;
        all.extend(crashed.into_iter().map(|crashed| (*run, crashed)));
        if stop.is_requested() {
            break;
        }
    }
    observer.end();
    if !stop.is_requested() {
        complain_of_untested(&plans, &all);
    }
    let text = format!("{}{}", findings(args, &all), table(&all));
    json.deliver(&text, &all.iter().map(|(_, crashed)| crashed).collect::<Vec<_>>())?;
    Ok(Tested::status(all.iter().map(|(_, crashed)| tested(crashed)), stop.is_requested()))
}

/// Prints which of the protocols that were named could not be tested, to stderr.
fn complain_of_untested(plans: &[(&RunConfig, CrashPlan)], all: &[(&RunConfig, Crashed)]) {
    let is_tested = |name: &String| all.iter().any(|(_, crashed)| crashed.protocol == *name);
    for (_, plan) in plans.iter().filter(|(run, _)| !run.has_all()) {
        for name in plan.plan().config.protocols.iter().filter(|name| !is_tested(name)) {
            show::complain(&format!("left out: {name} promises no isolation, or does not support this log"));
        }
    }
}

/// Returns what is wrong, with the command that replays each finding.
fn findings(args: &CrashTestArgs, all: &[(&RunConfig, Crashed)]) -> String {
    let mut text = String::new();
    for (run, crashed) in all {
        if let Some((seed, wrong)) = &crashed.wrong {
            text += &format!("{} on {} with log={}: {wrong}\n", crashed.protocol, run.workload, crashed.log);
            text += &format!("the same again: {}\n\n", again(args, run, crashed, *seed));
        }
    }
    text
}

fn table(all: &[(&RunConfig, Crashed)]) -> String {
    let mut table = show::table([
        "protocol",
        "workload",
        "log",
        "tests",
        "failures",
        "checkpoints",
        "moments",
        "commits",
        "acknowledged",
        "others there",
        "histories checked",
        "verdict",
    ])
    .numbers(3..11)
    .spare(&[
        "checkpoints",
        "moments",
        "others there",
        "histories checked",
        "failures",
        "acknowledged",
        "commits",
    ]);
    for (run, crashed) in all {
        table.add_row([
            crashed.protocol.clone(),
            run.workload.clone(),
            crashed.log.clone(),
            crashed.tests.to_string(),
            crashed.failures.to_string(),
            crashed.checkpoints.to_string(),
            crashed.moments.to_string(),
            crashed.commits.to_string(),
            crashed.acknowledged.to_string(),
            crashed.others.to_string(),
            crashed.checked.to_string(),
            tested(crashed).words(),
        ]);
    }
    format!("{table}\n")
}

/// Returns the outcome of a protocol with a commit protocol.
pub(super) fn tested(crashed: &Crashed) -> Tested {
    match (&crashed.wrong, crashed.cut) {
        (Some((seed, _)), _) => Tested::Bad(format!("WRONG, seed {seed}")),
        _ if crashed.tests == crashed.cut => Tested::Nothing("every test was cut off"),
        _ if crashed.is_vacuous() => {
            Tested::Nothing("no transaction was acknowledged before a crash; more --seeds or --transactions are needed")
        }
        (None, 0) => Tested::Good("nothing is lost".into()),
        (None, 1) => Tested::Good("nothing is lost; 1 test was cut off".into()),
        (None, cut) => Tested::Good(format!("nothing is lost; {} cut off", counted(cut, "test"))),
    }
}

/// Returns the command that runs the test of this seed again.
fn again(args: &CrashTestArgs, run: &RunConfig, crashed: &Crashed, seed: u64) -> String {
    let config = args.config();
    let mut command = format!(
        "contend crash-test --protocol {} --workload {} --cores {} --crashes {} --transactions {} --seed {seed} --seeds 1 --set log={}",
        crashed.protocol, run.workload, config.cores, config.crashes, config.transactions, crashed.log
    );
    if let Some(index) = &run.index {
        command += &format!(" --index {index}");
    }
    for (name, value) in run.settings.iter().filter(|(name, _)| option_name(name) != "log.mode") {
        command += &format!(" --set {name}={value}");
    }
    command
}
