//! `contend report`.

use std::path::Path;

use contend_lab::report;

use crate::args::ReportArgs;
use crate::cmd::compare::REPORT_FILE;
use crate::files::{Target, read_result, result_path};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &ReportArgs) -> Result<Status, UserError> {
    let result = read_result(&args.result)?;
    let path = args.out.clone().unwrap_or_else(|| result_path(&args.result).with_file_name(REPORT_FILE));
    let verb = if result.protocols.len() == 1 { "run" } else { "compare" };
    let page = report::html(&result, &show::command(&result, verb));
    if path == Path::new("-") {
        show::print(&page)?;
        return Ok(Status::Good);
    }
    // Even --force does not overwrite the result with its page.
    let real = |path: &Path| path.canonicalize().ok();
    if real(&path).is_some() && real(&path) == real(&result_path(&args.result)) {
        return Err(UserError::refused(format!("{} is the result itself; --out names another file", path.display())));
    }
    if path.is_file() && !args.force {
        let path = path.display();
        return Err(UserError::refused(format!(
            "{path} is there already; --force overwrites it, and another --out keeps it"
        )));
    }
    Target::new(&path)?.write_text(&page)?;
    show::print(&format!("report: {}\n", path.display()))?;
    Ok(Status::Good)
}
