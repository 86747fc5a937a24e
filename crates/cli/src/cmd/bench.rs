//! `contend bench`.

use std::time::Duration;

use contend_lab::compare::show_rate;
use contend_lab::config::THREADS_MAX;
use contend_lab::limit::{Limits, limits};
use contend_machine::available_cores;

use super::interrupted;
use crate::args::{Bench, BenchArgs, LimitArgs};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &BenchArgs) -> Result<Status, UserError> {
    match &args.bench {
        Bench::Limit(args) => limit(args),
    }
}

fn limit(args: &LimitArgs) -> Result<Status, UserError> {
    let threads = args.threads.unwrap_or_else(|| available_cores().len());
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(UserError(format!("threads is {threads}; valid: 1 to {THREADS_MAX}")));
    }
    if !(1..=1000).contains(&args.rounds) {
        return Err(UserError(format!("rounds is {}; valid: 1 to 1000", args.rounds)));
    }
    if !(0.001..=3600.0).contains(&args.seconds) {
        return Err(UserError(format!("seconds is {}; valid: 0.001 to 3600", args.seconds)));
    }
    let stop = stop_on_interrupt()?;
    let window = Duration::from_secs_f64(args.seconds);
    match limits(threads, args.rounds, window, &stop, &Bars::default()) {
        Ok(limits) if args.json => {
            let json = serde_json::to_string_pretty(&limits).expect("plain data");
            show::print(&format!("{json}\n"))?;
            Ok(Status::Good)
        }
        Ok(limits) => {
            show::print(&text(&limits, threads))?;
            Ok(Status::Good)
        }
        Err(error) => interrupted(error, &stop, |status| status),
    }
}

fn text(limits: &Limits, threads: usize) -> String {
    let mut table = show::table(["what", "median /s", "min..max /s"]);
    let mut row = |what: String, spread: contend_lab::result::Spread| {
        table.add_row([
            what,
            show_rate(spread.median),
            format!("{}..{}", show_rate(spread.min), show_rate(spread.max)),
        ]);
    };
    row(
        format!("random line reads a thread, each depends on the last ({:.0} ns)", limits.dependent_read_ns),
        limits.dependent_reads_per_second,
    );
    row("random line reads a thread, prefetched 32 at a time".into(), limits.prefetched_reads_per_second);
    for entry in &limits.increments_per_second {
        let who = if entry.threads == 1 { "1 thread".into() } else { format!("{} threads", entry.threads) };
        row(format!("increments of one line by {who}, all together"), entry.increments_per_second);
    }
    format!("{threads} threads, reads from {} MiB\n{table}\n", limits.arena_bytes >> 20)
}
