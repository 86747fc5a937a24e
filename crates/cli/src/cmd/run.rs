//! `contend run`.

use contend_lab::{Outcome, compare, record};
use contend_runner::{Observer, RunError, RunPlan, Stop};

use super::{Outputs, deliver, interrupted};
use crate::args::RunArgs;
use crate::progress::stop_on_interrupt;
use crate::{Status, UserError, show};

/// Runs the plan, with a history if the flags ask for it.
///
/// # Errors
/// As [`compare`] and [`record`].
pub(crate) fn measured(
    args: &RunArgs,
    plan: &RunPlan,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Outcome, RunError> {
    match &args.history {
        Some(_) => record(plan, stop, observer),
        None => compare(plan, stop, observer).map(|result| Outcome { result, recorded: None }),
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<Status, UserError> {
    let plan = args.config()?.resolve()?;
    let outputs = Outputs::new(&args.measure, args.history.as_deref(), &plan.config)?;
    let stop = stop_on_interrupt()?;
    let bars = outputs.bars(&args.measure);
    let outcome = match measured(args, &plan, &stop, &bars) {
        Ok(outcome) => outcome,
        Err(error) => return interrupted(error, &stop),
    };
    let status = deliver(&outcome.result, &outputs, &[])?;
    if let (Some(path), Some(recorded)) = (&args.history, outcome.recorded) {
        outputs.history.write(|file| recorded.history.write_json_lines(file))?;
        let place = if outputs.history.is_stdout() { "stdout".into() } else { path.display().to_string() };
        let written = format!("history: {place} ({} transactions)", recorded.history.transactions().len());
        match outputs.is_stdout() {
            true => show::complain(&written),
            false => show::print(&format!("{written}\n"))?,
        }
    }
    Ok(status)
}
