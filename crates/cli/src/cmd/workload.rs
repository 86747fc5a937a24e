//! `contend workload`.

use std::any::Any;

use contend_runner::plan::PlannedWorkloadVisitor;
use contend_workloads::file::FileOptions;
use contend_workloads::{Workload, WorkloadFile, WorkloadInfo};

use crate::args::WorkloadArgs;
use crate::{Status, UserError, show};

pub(crate) fn run(args: &WorkloadArgs) -> Result<Status, UserError> {
    let plan = args.command.config()?.resolve()?;
    show::print(&plan.workload.visit(Describe)?)?;
    Ok(Status::Good)
}

/// Describes a workload file.
struct Describe;

impl PlannedWorkloadVisitor for Describe {
    type Output = Result<String, UserError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let Some(options) = (options as &dyn Any).downcast_ref::<FileOptions>() else {
            return Err(UserError::refused(format!(
                "{} is a workload of the list; valid: the path of a workload file",
                info.name
            )));
        };
        WorkloadFile::describe(options).map_err(UserError::refused)
    }
}
