//! `contend advise`.

use contend_lab::advise::{Advice, advise};
use contend_lab::paired::{ORDER, show_ratio};
use contend_lab::report;
use contend_runner::RunConfig;
use contend_runner::units::{show_ns, show_percent, show_rate};

use super::{Pages, interrupted};
use crate::args::AdviseArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &AdviseArgs) -> Result<Status, UserError> {
    let (config, question) = args.question()?;
    let pages = Pages::new(&args.outputs, &config.workload, "advice")?;
    let stop = stop_on_interrupt()?;
    let advice = match advise(&config, &question, &stop, &Bars::default()) {
        Ok(advice) => advice,
        Err(error) => return interrupted(error, &stop),
    };
    let again = again(&advice);
    pages.deliver(&text(&advice, &again), &report::advice_html(&advice, &again), &advice)?;
    Ok(match advice.partial {
        true => Status::Interrupted,
        false => Status::Good,
    })
}

/// Returns the advice for the terminal.
pub(crate) fn text(advice: &Advice, again: &str) -> String {
    let columns = ["entry", "median /s", "of the fastest", "aborts", "p99", "told apart"];
    let mut table = show::table(columns).numbers(1..5).spare(&["p99", "aborts"]);
    for it in &advice.finalists {
        table.add_row([
            it.entry.clone(),
            show_rate(it.measured.throughput_tps.median),
            it.to_first.as_ref().map_or("-".into(), show_ratio),
            show_percent(it.measured.abort_rate),
            show_ns(it.measured.latency_ns_p99),
            match &it.to_first {
                None => "the fastest",
                Some(_) if it.is_best => "no",
                Some(_) => "yes",
            }
            .to_string(),
        ]);
    }
    let mut text = format!("{}\n{table}\n", advice.basis());
    if advice.finalists.len() > 1 {
        text += &format!("the fastest comes first, and the others are sorted by {ORDER}\n");
    }
    for it in advice.candidates.iter().filter(|it| it.left == "proof" || it.left == "final" && !it.why.is_empty()) {
        text += &format!("{}: REFUSED: {}\n", it.entry, it.why);
    }
    if advice.partial {
        text += "PARTIAL: the tournament was stopped before its end.\n";
    }
    text += &format!("{}\n", advice.advice);
    for reason in &advice.reasons {
        text += &format!("- {reason}\n");
    }
    format!("{text}again: {again}\n")
}

/// Returns the command that compares the finalists again.
pub(crate) fn again(advice: &Advice) -> String {
    let entries = advice.finalists.iter().filter(|it| !it.is_option || it.is_best).map(|it| it.entry.clone());
    let config = RunConfig { protocols: entries.collect(), ..advice.config.clone() };
    let mut command = show::command_of(&config, "compare");
    if !config.verify {
        command += " --no-verify";
    } else if config.verify_transactions != RunConfig::default().verify_transactions {
        command += &format!(" --verify-transactions {}", config.verify_transactions);
    }
    command
}
