//! `contend bench`.

use std::collections::BTreeMap;
use std::time::Duration;

use contend_lab::compare;
use contend_lab::microbench::{Microbench, MicrobenchPlan, microbench};
use contend_lab::result::ProtocolResult;
use contend_lab::tables::memory_limits;
use contend_machine::available_cores;
use contend_model::counted;
use contend_runner::config::THREADS_MAX;
use contend_runner::host_chip::host_preset;
use contend_runner::machine_limits::{Limits, limits};
use contend_runner::units::show_rate;
use contend_runner::{Observer, RunConfig};

use super::interrupted;
use crate::args::{Bench, BenchArgs, LimitArgs, MicroArgs};
use crate::files::Target;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

pub(crate) fn run(args: &BenchArgs) -> Result<Status, UserError> {
    match &args.bench {
        Bench::Limit(args) => limit(args),
        Bench::Timestamps(args) => {
            let sources = ["mutex", "atomic", "batched", "clock", "hardware"];
            let series = sources.map(|source| (source.to_string(), Some(("timestamp.source", source))));
            threads_by_series(args, Microbench::Timestamps, 4, &series)
        }
        Bench::Transfers(args) => threads_by_series(args, Microbench::Transfers, 2, &[("transfers".into(), None)]),
        Bench::Increments(args) => threads_by_series(args, Microbench::Increments, 2, &[("increments".into(), None)]),
    }
}

/// Measures a microbenchmark by 1, `factor`, `factor`², ... threads, and shows a row for each
/// number of threads and a column for each series. A series may set an option.
fn threads_by_series(
    args: &MicroArgs,
    bench: Microbench,
    factor: usize,
    series: &[(String, Option<(&str, &str)>)],
) -> Result<Status, UserError> {
    let config = args.config()?;
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * factor))
        .take_while(|count| *count < config.threads)
        .collect();
    counts.push(config.threads);
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    bars.begin("measuring", (counts.len() * series.len()) as u64);
    let names = series.iter().map(|(name, _)| format!("{name} /s"));
    let columns: Vec<String> = std::iter::once("threads".to_string()).chain(names).collect();
    let mut table = show::table(columns.iter().map(String::as_str));
    let mut rows = Vec::new();
    for threads in counts {
        let mut row = serde_json::Map::from_iter([("threads".to_string(), threads.into())]);
        let mut cells = vec![threads.to_string()];
        for (name, setting) in series {
            let mut config = RunConfig { threads, ..config.clone() };
            if let Some((option, value)) = setting {
                config.settings.insert((*option).into(), (*value).into());
            }
            let result = match microbench(&MicrobenchPlan::resolve(&config, bench)?, &stop) {
                Ok(result) => result,
                Err(error) => return interrupted(error, &stop),
            };
            cells.push(show_rate(result.per_second.median));
            row.insert(name.clone(), serde_json::to_value(&result).expect("plain data"));
            bars.advance(1);
        }
        table.add_row(cells);
        rows.push(serde_json::Value::Object(row));
    }
    bars.end();
    if args.json {
        show::print(&format!("{}\n", serde_json::to_string_pretty(&rows).expect("plain data")))?;
    } else {
        let simulated = if config.chip.is_some() { " (simulated: all times are simulated time)" } else { "" };
        show::print(&format!("{} on {}{simulated}\n{table}\n", bench.name(), config.machine))?;
    }
    Ok(Status::Good)
}

fn limit(args: &LimitArgs) -> Result<Status, UserError> {
    let threads = args.threads.unwrap_or_else(|| available_cores().len());
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(UserError::refused(format!("threads is {threads}; valid: 1 to {THREADS_MAX}")));
    }
    if !(1..=1000).contains(&args.rounds) {
        return Err(UserError::refused(format!("rounds is {}; valid: 1 to 1000", args.rounds)));
    }
    if !(0.001..=3600.0).contains(&args.seconds) {
        return Err(UserError::refused(format!("seconds is {}; valid: 0.001 to 3600", args.seconds)));
    }
    let plan = args.config(threads)?.map(|config| config.resolve()).transpose()?;
    if let Some(path) = &args.chip {
        let target = Target::new(path)?;
        target.write_text(&host_preset()?.to_toml())?;
        show::print(&format!("chip: {}\n", target.path().display()))?;
    }
    let stop = stop_on_interrupt()?;
    let window = Duration::from_secs_f64(args.seconds);
    let limits = match limits(threads, args.rounds, window, &stop, &Bars::default()) {
        Ok(limits) => limits,
        Err(error) => return interrupted(error, &stop),
    };
    if !args.json {
        show::print(&text(&limits, threads))?;
    }
    let of_workload = match plan.map(|plan| compare(&plan, &stop, &Bars::default())).transpose() {
        Ok(result) => result,
        Err(error) => return interrupted(error, &stop),
    };
    let entries = of_workload.iter().flat_map(|result| &result.protocols);
    if args.json {
        let mut json = serde_json::to_value(&limits).expect("plain data");
        let of = |entry: &ProtocolResult| Some((entry.protocol.clone(), entry.measured.as_ref()?.memory_limit?));
        let of_entries: BTreeMap<_, _> = entries.filter_map(of).collect();
        if !of_entries.is_empty() {
            json["memory_limits"] = serde_json::to_value(of_entries).expect("plain data");
        }
        show::print(&format!("{}\n", serde_json::to_string_pretty(&json).expect("plain data")))?;
    } else {
        if let Some(result) = &of_workload {
            // The other recommendations are those of a comparison.
            let unknown = result.recommendation.iter().filter(|line| line.starts_with("the memory's limit")).cloned();
            for line in memory_limits(result).into_iter().chain(unknown) {
                show::print(&format!("{line}\n"))?;
            }
        }
    }
    let failed: Vec<&str> = of_workload
        .iter()
        .flat_map(|result| &result.protocols)
        .filter(|entry| entry.failed())
        .map(|entry| entry.protocol.as_str())
        .collect();
    if failed.is_empty() {
        return Ok(Status::Good);
    }
    show::complain(&format!("the workload's check failed: {}", failed.join(", ")));
    Ok(Status::CheckFailed)
}

fn text(limits: &Limits, threads: usize) -> String {
    let mut table = show::table(["operation", "median /s", "min..max /s"]);
    let mut row = |operation: String, spread: contend_runner::stats::Spread| {
        table.add_row([
            operation,
            show_rate(spread.median),
            format!("{}..{}", show_rate(spread.min), show_rate(spread.max)),
        ]);
    };
    row(
        format!("random line reads of a thread, each depending on the last ({:.0} ns)", limits.dependent_read_ns),
        limits.dependent_reads_per_second,
    );
    row("random line reads of a thread, prefetched 32 at a time".into(), limits.prefetched_reads_per_second);
    for entry in &limits.increments_per_second {
        let threads = counted(entry.threads, "thread");
        row(format!("increments of one line by {threads}, all together"), entry.increments_per_second);
    }
    format!("{}, reads from {} MiB\n{table}\n", counted(threads, "thread"), limits.arena_bytes >> 20)
}
