//! `contend run`.

use contend_lab::{Outcome, compare, record};
use contend_model::counted;
use contend_runner::{Observer, RunError, RunPlan, Stop};

use super::{Outputs, deliver, interrupted, show_beside};
use crate::args::RunArgs;
use crate::progress::stop_on_interrupt;
use crate::{Status, UserError};

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
    let history = outcome.recorded.map(|recorded| recorded.history);
    let status = deliver(&outcome.result, history.as_ref(), &outputs, &[])?;
    if let (Some(path), Some(history)) = (&args.history, history) {
        let place = if outputs.history.is_stdout() { "stdout".into() } else { path.display().to_string() };
        let written = format!("history: {place} ({})\n", counted(history.transactions().len(), "transaction"));
        show_beside(outputs.is_stdout(), &written)?;
    }
    Ok(status)
}
