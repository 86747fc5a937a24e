//! `contend compare`.

use contend_lab::{compare, report};

use super::{Outputs, deliver, interrupted, left_out};
use crate::args::CompareArgs;
use crate::files::{RESULT_FILE, RunFolder};
use crate::progress::stop_on_interrupt;
use crate::{Status, UserError, show};

/// The name of the page with the charts.
pub(crate) const REPORT_FILE: &str = "report.html";

pub(crate) fn run(args: &CompareArgs) -> Result<Status, UserError> {
    let config = args.config()?;
    left_out(&config)?;
    let plan = config.resolve()?;
    let outputs = Outputs::new(&args.measure, None, &plan.config)?;
    let out = RunFolder::new(args.out.as_deref(), args.force, &plan.config.workload, &[REPORT_FILE, RESULT_FILE])?;
    let (page, data) = (out.file(REPORT_FILE)?, out.file(RESULT_FILE)?);
    let stop = stop_on_interrupt()?;
    let result = match compare(&plan, &stop, &outputs.bars(&args.measure)) {
        Ok(result) => result,
        Err(error) => return interrupted(error, &stop),
    };
    let html = report::html(&result, &show::command(&result, "compare"));
    let status = deliver(&result, &outputs, &[(&page, html), (&data, result.to_json())])?;
    let written = format!("report: {} · results: {}", page.path().display(), data.path().display());
    out.finish();
    match outputs.is_stdout() {
        true => show::complain(&written),
        false => show::print(&format!("{written}\n"))?,
    }
    Ok(status)
}
