//! `contend saturate`.

use contend_lab::report;
use contend_lab::saturate::{SaturationFile, saturate};
use contend_runner::RunConfig;
use contend_runner::units::{show_ns, show_percent, show_rate};

use super::{Pages, interrupted, left_out};
use crate::args::SaturateArgs;
use crate::progress::{Bars, Lines, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &SaturateArgs) -> Result<Status, UserError> {
    let (config, goal) = (args.config()?, args.goal()?);
    left_out(&config)?;
    let plan = config.resolve()?;
    let pages = Pages::new(&args.outputs, &plan.config.workload, "saturation")?;
    let stop = stop_on_interrupt()?;
    // A probe takes seconds, so each has a line.
    let lines = if pages.is_stdout() { Lines::Stderr } else { Lines::Stdout };
    let file = match saturate(&plan, &goal, &stop, &Bars::with_lines(lines, None)) {
        Ok(file) => file,
        Err(error) => return interrupted(error, &stop),
    };
    pages.deliver(&text(&file), &report::saturation_html(&file, &command(&file)), &file)?;
    Ok(match file {
        file if file.protocols.iter().any(|found| found.failed()) => Status::CheckFailed,
        file if file.partial => Status::Interrupted,
        _ => Status::Good,
    })
}

/// Returns the table of the result, and the finding.
pub(crate) fn text(file: &SaturationFile) -> String {
    let columns =
        ["protocol", "passes /s", "fails /s", "of the closed loop", "closed loop /s", "p99 there", "rates", "verified"];
    let mut table = show::table(columns).numbers(1..7).spare(&["rates", "closed loop /s", "verified"]);
    let rate = |rate: Option<f64>| rate.map_or("-".to_string(), show_rate);
    for found in &file.protocols {
        let verdict = match (&found.verification, &found.check) {
            (Some(verification), _) if !verification.passed => verification.verdict.clone(),
            (_, Some(check)) if !check.passed => check.text.clone(),
            (Some(verification), _) => verification.verdict.clone(),
            (None, _) => "not verified".into(),
        };
        table.add_row([
            found.protocol.clone(),
            rate(found.passes),
            rate(found.fails),
            found.passes.map_or("-".into(), |passes| show_percent(passes / found.closed_tps)),
            show_rate(found.closed_tps),
            found.p99_there().map_or("-".into(), show_ns),
            found.probes.len().to_string(),
            if found.failed() { format!("FAILED: {verdict}") } else { verdict },
        ]);
    }
    let partial = if file.partial { "PARTIAL: the search was stopped before its end.\n" } else { "" };
    format!("{table}\n{partial}{}\n", file.finding)
}

/// Returns the command that repeats a search.
pub(crate) fn command(file: &SaturationFile) -> String {
    let SaturationFile { config, goal, .. } = file;
    let mut command = show::command_of(config, "saturate");
    for (flag, limit) in [("--p99", goal.p99_ns), ("--p999", goal.p999_ns)] {
        command += &limit.map(|ns| format!(" {flag} {}us", ns as f64 / 1e3)).unwrap_or_default();
    }
    command += &format!(" --precision {}%", (goal.precision * 1e6).round() / 1e4);
    command += &format!(" --transactions {} --arrivals {}", goal.transactions, goal.process.name());
    if config.verify && config.verify_transactions != RunConfig::default().verify_transactions {
        command += &format!(" --verify-transactions {}", config.verify_transactions);
    }
    if !config.verify {
        command += " --no-verify";
    }
    command
}
