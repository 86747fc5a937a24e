//! `contend report`.

use contend_lab::report;

use crate::args::{ReportArgs, read_result, result_path};
use crate::cmd::compare::REPORT_FILE;
use crate::files::Target;
use crate::{Status, UserError, show};

pub(crate) fn run(args: &ReportArgs) -> Result<Status, UserError> {
    let result = read_result(&args.result)?;
    let path = args.out.clone().unwrap_or_else(|| result_path(&args.result).with_file_name(REPORT_FILE));
    if path.exists() && !args.force {
        let path = path.display();
        return Err(UserError(format!("{path} is there already; --force overwrites it, and another --out keeps it")));
    }
    let verb = if result.protocols.len() == 1 { "run" } else { "compare" };
    let target = Target::new(&path)?;
    target.write_text(&report::html(&result, &show::command(&result, verb)))?;
    show::print(&format!("report: {}\n", path.display()))?;
    Ok(Status::Good)
}
