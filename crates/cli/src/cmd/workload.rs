//! `contend workload`.

use std::any::Any;

use contend_runner::plan::PlannedWorkloadVisitor;
use contend_workloads::file::FileOptions;
use contend_workloads::{Workload, WorkloadFile, WorkloadInfo};

use super::check_there_is_a_file;
use crate::args::{ImportCommand, WorkloadArgs, WorkloadCommand, config_of};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &WorkloadArgs) -> Result<Status, UserError> {
    match &args.command {
        WorkloadCommand::Check { workload, scripts, settings } => {
            if let Some(file) = workload {
                check_there_is_a_file(file, "the path of a workload file")?;
            }
            let plan = config_of(workload.as_deref().unwrap_or_default(), scripts, settings)?.resolve()?;
            show::print(&plan.workload.visit(Describe)?)?;
        }
        WorkloadCommand::Import { source } => import(source)?,
    }
    Ok(Status::Good)
}

fn import(source: &ImportCommand) -> Result<(), UserError> {
    let (file, source, options) = source.parts()?;
    let imported = contend_import::import(file, &source, &options)?;
    show::print(&imported.text)?;
    imported.summary.iter().for_each(|line| show::complain(&format!("note: {line}")));
    Ok(())
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
