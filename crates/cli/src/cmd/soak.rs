//! `contend soak`.

use contend_proof::soak::{Soaked, soak};
use contend_runner::units::show_bytes;

use super::{Place, Tested, left_out};
use crate::args::SoakArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &SoakArgs) -> Result<Status, UserError> {
    let run = args.run()?;
    left_out(&run)?;
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let all = soak(&run.resolve()?, args.seconds, &stop, &Bars::default())?;
    json.deliver(&table(&all), &all)?;
    Ok(Tested::status(all.iter().map(tested), stop.is_requested()))
}

/// Returns the outcome of a protocol.
pub(super) fn tested(soaked: &Soaked) -> Tested {
    match &soaked.grew {
        Some(grew) => Tested::Bad(grew.clone()),
        None if soaked.commits == 0 => Tested::Nothing("no transaction committed"),
        None => Tested::Good("memory is flat".into()),
    }
}

fn table(all: &[Soaked]) -> String {
    let mut table = show::table([
        "protocol",
        "seconds",
        "commits",
        "memory: quarters of the run",
        "tables: quarters of the run",
        "old versions",
        "tombstones",
        "verdict",
    ])
    .spare(&["tombstones", "old versions", "tables: quarters of the run", "seconds"]);
    let quarters = |bytes: &[u64; 4]| bytes.map(show_bytes).join(", ");
    for soaked in all {
        table.add_row([
            soaked.protocol.clone(),
            format!("{:.1}", soaked.seconds),
            soaked.commits.to_string(),
            quarters(&soaked.resident),
            quarters(&soaked.tables),
            soaked.old_versions.to_string(),
            soaked.tombstones.to_string(),
            tested(soaked).words(),
        ]);
    }
    format!("{table}\n")
}
