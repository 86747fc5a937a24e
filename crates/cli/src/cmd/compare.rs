//! `contend compare`.

use contend_lab::paired::rounds_to_tell;
use contend_lab::{compare, report};
use contend_model::counted;
use contend_runner::RunConfig;

use super::{Outputs, deliver, interrupted, left_out, show_beside};
use crate::args::CompareArgs;
use crate::files::{RESULT_FILE, RunFolder};
use crate::progress::stop_on_interrupt;
use crate::{Status, UserError, show};

/// The name of the page with the charts.
pub(crate) const REPORT_FILE: &str = "report.html";

/// Returns a note if the rounds can't tell any two entries apart, whatever comes out.
fn too_few_rounds(config: &RunConfig) -> Option<String> {
    let (entries, rounds) = (config.protocols.len(), config.windows);
    let least = rounds_to_tell(entries);
    (entries > 1 && config.arrivals.is_none() && rounds < least).then(|| {
        format!(
            "note: {} can't tell any two of {entries} entries apart, so all will share one group; \
             --windows {least} is the least that can",
            counted(rounds, "round")
        )
    })
}

pub(crate) fn run(args: &CompareArgs) -> Result<Status, UserError> {
    let config = args.config()?;
    left_out(&config)?;
    let plan = config.resolve()?;
    if let Some(note) = too_few_rounds(&plan.config) {
        show::complain(&note);
    }
    let outputs = Outputs::new(&args.measure, None, &plan.config)?;
    let out = RunFolder::new(args.out.as_deref(), args.force, &plan.config.workload, &[REPORT_FILE, RESULT_FILE])?;
    let (page, data) = (out.file(REPORT_FILE)?, out.file(RESULT_FILE)?);
    let stop = stop_on_interrupt()?;
    let result = match compare(&plan, &stop, &outputs.bars(&args.measure)) {
        Ok(result) => result,
        Err(error) => return interrupted(error, &stop),
    };
    let html = report::html(&result, &show::command(&result, "compare"));
    let status = deliver(&result, None, &outputs, &[(&page, html), (&data, result.to_json())])?;
    let written = format!("report: {} · results: {}", page.path().display(), data.path().display());
    out.finish();
    show_beside(outputs.is_stdout(), &format!("{written}\n"))?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_tell_nothing_are_noted_beforehand() {
        let config = |protocols: &[&str], windows| RunConfig {
            protocols: protocols.iter().map(|name| name.to_string()).collect(),
            windows,
            ..RunConfig::default()
        };
        let note = too_few_rounds(&config(&["silo", "mvto", "occ"], 4)).expect("a note");
        assert!(
            note.contains("4 rounds can't tell any two of 3 entries apart") && note.contains("--windows 7"),
            "{note}"
        );
        assert_eq!(too_few_rounds(&config(&["silo", "mvto", "occ"], 7)), None);
        assert_eq!(too_few_rounds(&config(&["silo"], 1)), None, "there is nothing to tell apart");
        let open = RunConfig { arrivals: Some(contend_runner::Arrivals::at(1e3)), ..config(&["silo", "mvto"], 1) };
        assert_eq!(too_few_rounds(&open), None, "throughput is no question there");
    }
}
