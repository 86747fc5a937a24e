//! `contend diff`.

use contend_lab::diff::{Diff, EntryDiff, diff};
use contend_runner::units::{show_percent, show_rate};

use crate::args::DiffArgs;
use crate::files::{read_result, result_path};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &DiffArgs) -> Result<Status, UserError> {
    let (first, second) = (read_result(&args.first)?, read_result(&args.second)?);
    // The link `latest` may lead to the other result.
    let is_one = match (result_path(&args.first).canonicalize(), result_path(&args.second).canonicalize()) {
        (Ok(first), Ok(second)) => first == second,
        _ => false,
    };
    if is_one {
        let (first, second) = (args.first.display(), args.second.display());
        return Err(UserError::refused(format!("{first} and {second} are the same result; valid: two results")));
    }
    let diff = diff(&first, &second)?;
    if args.json {
        show::print(&format!("{}\n", serde_json::to_string_pretty(&diff).expect("plain data")))?;
    } else {
        show::print(&text(args, &diff))?;
    }
    let Some(allowed) = args.fail_if_slower else { return Ok(Status::Good) };
    let worse: Vec<&EntryDiff> = diff.entries.iter().filter(|entry| entry.is_worse_than(allowed)).collect();
    for entry in &worse {
        let by = match entry.ratio {
            Some(ratio) => {
                let slower = show_percent(1.0 - ratio.estimate);
                format!("{slower} slower, and {} is allowed", show_percent(allowed))
            }
            None => entry.change.name().into(),
        };
        show::complain(&format!("{}: {by}", entry.protocol));
    }
    Ok(if worse.is_empty() { Status::Good } else { Status::CheckFailed })
}

fn text(args: &DiffArgs, diff: &Diff) -> String {
    let mut text = format!("from {} to {}\n", args.first.display(), args.second.display());
    let mut table = show::table(["protocol", "median /s", "then", "change", "95 % interval", "p99", "verdict"])
        .numbers(1..6)
        .spare(&["p99", "median /s", "then"]);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for entry in &diff.entries {
        table.add_row([
            entry.protocol.clone(),
            or_dash(entry.first_tps.map(show_rate)),
            or_dash(entry.second_tps.map(show_rate)),
            or_dash(entry.ratio.map(|ratio| percent(ratio.estimate))),
            or_dash(entry.ratio.map(|ratio| format!("{}..{}", percent(ratio.low), percent(ratio.high)))),
            or_dash(entry.p99_ratio.map(percent)),
            entry.change.name().into(),
        ]);
    }
    text += &format!("{table}\n");
    for difference in &diff.differences {
        text += &format!("also different: {difference}\n");
    }
    text
}
