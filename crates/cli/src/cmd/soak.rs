//! `contend soak`.

use contend_lab::soak::{Soaked, soak};
use contend_lab::units::show_bytes;

use super::{Json, left_out};
use crate::args::SoakArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &SoakArgs) -> Result<Status, UserError> {
    let run = args.run()?;
    left_out(&run)?;
    let json = Json::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let all = soak(&run, args.seconds, &stop, &Bars::default())?;
    let text = table(&all);
    let as_json = serde_json::to_string_pretty(&all).expect("plain data") + "\n";
    match json {
        Json::Nowhere => show::print(&text)?,
        Json::Stdout => {
            show::complain(text.trim_end());
            show::print(&as_json)?;
        }
        Json::File(target) => {
            show::print(&text)?;
            target.write_text(&as_json)?;
        }
    }
    Ok(match () {
        () if all.iter().any(|soaked| soaked.grew.is_some()) => Status::CheckFailed,
        () if stop.is_requested() => Status::Interrupted,
        () if all.iter().any(|soaked| soaked.commits == 0) => Status::CheckFailed,
        () => Status::Good,
    })
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
            match &soaked.grew {
                Some(grew) => grew.clone(),
                None if soaked.commits == 0 => "NOTHING TESTED: no transaction committed".into(),
                None => "memory is flat".into(),
            },
        ]);
    }
    format!("{table}\n")
}
