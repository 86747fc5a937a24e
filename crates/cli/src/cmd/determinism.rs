//! `contend determinism`.

use contend_proof::determinism::{Determined, determinism};
use contend_runner::Observer;

use super::{Place, Tested};
use crate::args::DeterminismArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &DeterminismArgs) -> Result<Status, UserError> {
    let (runs, config) = (args.runs()?, args.config());
    // All bad input is told before the first run.
    runs.iter().try_for_each(|run| config.check(run))?;
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let mut all = Vec::new();
    for run in &runs {
        all.extend(determinism(run, &config, &stop, &bars as &dyn Observer)?);
        if stop.is_requested() {
            break;
        }
    }
    json.deliver(&table(&all), &all)?;
    Ok(Tested::status(all.iter().map(tested), stop.is_requested()))
}

/// Returns the outcome of a protocol on a workload.
pub(super) fn tested(determined: &Determined) -> Tested {
    match &determined.wrong {
        Some(wrong) => Tested::Bad(format!("WRONG: {wrong}")),
        None if determined.commits() == 0 => Tested::Nothing("no transaction committed"),
        None => Tested::Good("the same state everywhere".into()),
    }
}

fn table(all: &[Determined]) -> String {
    let columns = ["protocol", "workload", "places", "runs", "commits", "aborts", "seconds", "state", "verdict"];
    let mut table = show::table(columns).numbers(2..7).spare(&["state", "seconds", "aborts", "commits"]);
    for determined in all {
        let sum = |of: fn(&contend_proof::determinism::Place) -> u64| determined.places.iter().map(of).sum::<u64>();
        table.add_row([
            determined.protocol.clone(),
            determined.workload.clone(),
            determined.places.len().to_string(),
            sum(|place| place.runs).to_string(),
            determined.commits().to_string(),
            sum(|place| place.aborts).to_string(),
            format!("{:.1}", determined.seconds),
            determined.places.first().map(|place| place.state.clone()).unwrap_or_default(),
            tested(determined).words(),
        ]);
    }
    format!("{table}\n")
}
