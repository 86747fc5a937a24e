//! `contend analyse WORKLOAD --learn N`: runs sample transactions, and proposes declarations.

use std::path::{Path, PathBuf};

use contend_lab::samples::{Samples, sample};
use contend_model::counted;

use super::analyse::workload_of;
use crate::UserError;
use crate::args::{AnalyseArgs, AnalysisForm};

/// The most samples of each type.
const SAMPLES_MAX: u64 = 100_000;

/// Returns what `samples` transactions of each type of each application teach, in words.
///
/// # Errors
/// The number is out of range, an application is no workload, or the form is no text.
pub(super) fn learn(args: &AnalyseArgs, samples: u64) -> Result<String, UserError> {
    if !(1..=SAMPLES_MAX).contains(&samples) {
        return Err(UserError::refused(format!(
            "--learn {samples} is no number of transactions; valid: 1 to {SAMPLES_MAX}"
        )));
    }
    if args.format != AnalysisForm::Text {
        return Err(UserError::refused("--learn answers in text only; valid: --format text"));
    }
    let learned = |(path, text): (PathBuf, _)| of_application(args, &path, text, samples);
    Ok(args.applications()?.into_iter().map(learned).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn of_application(args: &AnalyseArgs, path: &Path, script: Option<String>, samples: u64) -> Result<String, UserError> {
    let Some(name) = workload_of(path, script.is_some()) else {
        return Err(UserError::refused(format!(
            "{}: --learn runs transactions, and this file has none to run; valid: a workload file, or a workload of `contend list workloads`",
            path.display()
        )));
    };
    let Samples { learned, kinds, declared } = sample(&args.config(name, script)?.resolve()?, samples)?;
    let mut text = String::new();
    for (kind, (of, _)) in kinds.iter().enumerate() {
        text += &format!("// {name}: {of} ran {}\n", counted(learned.runs(kind), "time"));
    }
    match declared {
        None => text += "// nothing is declared\n",
        Some(declared) => {
            let differences = learned.compare(&declared);
            let agree = differences.is_empty().then(|| "all that is declared was used, and nothing else".into());
            for line in differences.into_iter().chain(agree) {
                text += &format!("// {line}\n");
            }
        }
    }
    Ok(text + "\n" + learned.to_rust().as_str())
}
