//! Texts for people: what goes to stdout and stderr, and the tables of a result.

use std::io::{ErrorKind, Write};

use contend_judge::Verification;
use contend_lab::notes;
use contend_lab::paired::{self, Ratio, show_share};
use contend_lab::tables::{self, Sheet};
use contend_lab::{ProtocolResult, ResultFile};
use contend_model::counted;
use contend_runner::RunConfig;
use contend_runner::units::{show_bytes, show_latency, show_ns, show_percent, show_rate};

use crate::UserError;
use crate::args::arrivals::flags;
use crate::table::Table;

/// Prints to stdout. It is no error if the reader of a pipe has closed it: `head` does so.
///
/// # Errors
/// Stdout can't be written.
pub(crate) fn print(text: &str) -> Result<(), UserError> {
    print_by(|stdout| stdout.write_all(text.as_bytes()))
}

/// Prints the text that `fill` writes, as [`print()`] does.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_by(fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), UserError> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match fill(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(UserError::refused(format!("can't write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line to stderr. A failure is ignored: no place is left to report it.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints an error to stderr without asking for memory.
pub(crate) fn complain_of(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "error: {error}");
}

/// The most characters of an argument that a message repeats.
pub(crate) const LONG: usize = 200;

/// Returns the message with each very long argument of this process cut, and each very long word. A
/// character that would command the terminal is replaced.
pub(crate) fn shortened(message: &str) -> String {
    let cut = |text: &str| {
        let begin: String = text.chars().take(LONG / 2).collect();
        format!("{begin}... ({} characters)", text.chars().count())
    };
    let mut message = message.to_owned();
    for argument in std::env::args_os().filter(|argument| argument.len() > LONG) {
        // The message may name only the value behind a flag or an option's name, without the blanks
        // around it.
        let argument = argument.to_string_lossy();
        let value = argument.split_once('=').map(|(_, value)| value);
        for part in [Some(&*argument), Some(argument.trim()), value, value.map(str::trim)].into_iter().flatten() {
            if part.chars().count() > LONG {
                message = message.replace(part, &cut(part));
            }
        }
    }
    let words = message.split_inclusive(char::is_whitespace).map(|word| match word.chars().count() > 2 * LONG {
        true => format!("{}{}", cut(word.trim_end()), &word[word.trim_end().len()..]),
        false => word.to_owned(),
    });
    let is_command = |letter: char| letter.is_control() && letter != '\n';
    words.collect::<String>().replace(is_command, "\u{fffd}")
}

/// Returns an empty table with these columns.
pub(crate) fn table<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
    Table::new(columns)
}

/// Returns the part of a command that says what runs where: workload, machine, protocols, options.
pub(crate) fn command_of(config: &RunConfig, verb: &str) -> String {
    let mut command = format!("contend {verb} {}", config.workload);
    if config.chip.is_some() {
        command += &format!(" --machine {}", config.machine);
    }
    let flag = if verb == "run" { "--protocol" } else { "--protocols" };
    command += &format!(" {flag} {}", config.protocols.join(","));
    command += &format!(" --index {}", config.index.as_deref().unwrap_or("hash"));
    command += &format!(" --threads {} --seed {}", config.threads, config.seed);
    for (name, value) in &config.settings {
        command += &format!(" --set {name}={value}");
    }
    command
}

/// Returns the command that runs the same configuration again.
pub(crate) fn command(result: &ResultFile, verb: &str) -> String {
    let config = &result.config;
    let mut command = command_of(config, verb);
    command += &format!(" --seconds {} --windows {}", config.window_seconds, config.windows);
    command += &format!(" --warmup {}", config.warmup_seconds);
    command += &flags(config);
    if let Some(precision) = config.precision {
        command += &format!(" --precision {}%", (precision * 1e6).round() / 1e4);
    }
    match (verb, config.verify) {
        ("run", true) => command += " --verify",
        ("compare", false) => command += " --no-verify",
        _ => {}
    }
    if config.verify && config.verify_transactions != RunConfig::default().verify_transactions {
        command += &format!(" --verify-transactions {}", config.verify_transactions);
    }
    if config.memory_limit {
        command += " --limit";
    }
    if config.breakdown {
        command += " --breakdown";
    }
    command
}

/// Returns the text of a whole result: where it ran, the ranks, and what they mean.
pub(crate) fn result(result: &ResultFile) -> String {
    let (config, environment) = (&result.config, &result.environment);
    let index = result.index_in_words();
    let rounds = result.comparison.as_ref().map_or(config.windows, |comparison| comparison.rounds);
    let mut text = match &config.chip {
        Some(chip) => format!(
            "{} · SIMULATED on {}, {} at {:.1} GHz: all times are simulated time · {index} · {} of {}\n",
            config.workload,
            chip.name,
            counted(config.threads, "core"),
            chip.core.hertz / 1e9,
            counted(config.windows, "window"),
            show_ns((config.window_seconds * 1e9) as u64),
        ),
        None => format!(
            "{} · {} on {} ({}) · {index} · {} of {} s, in turns\n",
            config.workload,
            counted(config.threads, "thread"),
            counted(environment.cores, "core"),
            environment.cpu_model,
            counted(rounds, "window"),
            config.window_seconds
        ),
    };
    if config.chip.is_none() {
        text += &huge_pages(environment.huge_pages_granted_bytes, environment.huge_pages_advised_bytes);
    }
    if config.chip.is_none() && config.threads > environment.cores {
        text += &format!(
            "note: {} threads share {} (oversubscribed): they wait for each other\n",
            config.threads,
            counted(environment.cores, "core")
        );
    }
    if let Some(arrivals) = &config.arrivals {
        text += &format!("open loop: {}\n", arrivals.in_words());
    }
    text += &ranking(result);
    text += &sheet(&tables::open_loops(result), |table| table.spare(&["p95", "p99.9", "epoch lag", "backlog", "max"]));
    text += &sheet(&tables::latencies(result), |table| table.spare(&["p95", "p90", "p99.9"]));
    text += &sheet(&tables::kinds(result), |table| table.spare_behind(3));
    for of_protocols in [tables::versions(result), tables::logs(result), tables::times(result)] {
        text += &sheet(&of_protocols, |table| table.spare_behind(2));
    }
    text += &simulations(result);
    for entry in &result.protocols {
        text += &details(entry, result.protocols.len() == 1);
    }
    if result.partial {
        text += "PARTIAL: the run was stopped before its end; the figures are of the windows measured until then.\n";
    }
    for line in notes::notes(result).iter().chain(&notes::checked(result)) {
        text += &format!("{line}\n");
    }
    text += &told_apart(result);
    text += &format!("{}\n", result.finding);
    for line in &result.recommendation {
        text += &format!("- {line}\n");
    }
    text
}

/// Returns the table of the entries in their order.
fn ranking(result: &ResultFile) -> String {
    // In an open loop there are two kinds of latencies.
    let [p50, p99] = if result.config.arrivals.is_some() { ["service p50", "service p99"] } else { ["p50", "p99"] };
    let columns =
        ["group", "protocol", "median /s", "of the first", "of none", "aborts", p50, p99, "memory", "verified"];
    let spare = ["memory", p50, "of none", "aborts", p99, "of the first", "verified"];
    let mut table = table(columns).numbers([2, 3, 4, 6, 7, 8]).solid([0, 5]).spare(&spare);
    for entry in &result.protocols {
        table.add_row(row(result, entry));
    }
    format!("{table}\n")
}

/// Returns the sentence that says how the entries were told apart.
fn told_apart(result: &ResultFile) -> String {
    let Some(comparison) = &result.comparison else { return String::new() };
    let ended = match comparison.ended.as_str() {
        "told" => "every ratio that was asked for is known",
        "limit" => "no more rounds were allowed (--windows)",
        _ => "it was stopped",
    };
    let basis = comparison.basis();
    format!("{basis}; a group is not told apart from its first; {ended}\nsorted by {}\n", paired::ORDER)
}

/// Returns the text of a table of the result, which is empty if the table has no rows. `fit`
/// chooses the columns that a narrow terminal leaves out.
fn sheet(sheet: &Sheet, fit: impl FnOnce(Table) -> Table) -> String {
    if sheet.rows.is_empty() {
        return String::new();
    }
    let columns = sheet.columns.iter().map(String::as_str);
    let mut table = fit(table(columns).numbers(sheet.names..sheet.columns.len()));
    let mut before = "";
    for row in &sheet.rows {
        let mut cells = row.clone();
        // A name is shown in the first of its rows only.
        if sheet.names > 1 && row[0] == before {
            cells[0].clear();
        }
        before = &row[0];
        table.add_row(cells);
    }
    format!("{table}\n")
}

/// Returns a line for each simulation: its accesses, its speed and its misses.
fn simulations(result: &ResultFile) -> String {
    let mut text = String::new();
    for entry in &result.protocols {
        let Some(simulation) = entry.measured.as_ref().and_then(|measured| measured.simulation.as_ref()) else {
            continue;
        };
        let statistics = &simulation.statistics;
        let of_accesses = |count: u64| show_percent(count as f64 / statistics.accesses.max(1) as f64);
        text += &format!(
            "{}: {} accesses simulated in {:.2} s, {} a second; {} miss ({} last level, {} memory, {} another core); \
             trace {}\n",
            entry.protocol,
            show_rate(statistics.accesses as f64),
            simulation.host_seconds,
            show_rate(simulation.accesses_per_host_second),
            of_accesses(statistics.misses),
            of_accesses(statistics.from_last_level),
            of_accesses(statistics.from_memory),
            of_accesses(statistics.from_owner),
            simulation.trace_hash,
        );
    }
    text
}

fn huge_pages(granted: u64, advised: u64) -> String {
    match (granted, advised) {
        (_, 0) => "huge pages: not requested, the tables are too small\n".into(),
        (0, _) => "huge pages: requested, and not granted by this system\n".into(),
        (granted, advised) => {
            format!("huge pages: granted for {} of {} MiB\n", granted >> 20, advised.max(granted) >> 20)
        }
    }
}

fn row(result: &ResultFile, entry: &ProtocolResult) -> Vec<String> {
    let group = entry.measured.as_ref().and_then(|measured| measured.group);
    let mut cells = vec![group.map_or("-".into(), |group| group.to_string()), entry.protocol.clone()];
    let first = result.comparison.as_ref().and_then(|comparison| comparison.first.as_ref());
    let share = |ratio: &Option<Ratio>, is_it: bool| match ratio {
        Some(ratio) => show_share(ratio),
        None if is_it => "100 %".into(),
        None => "-".into(),
    };
    match &entry.measured {
        Some(measured) => {
            let spread = measured.throughput_tps;
            let tries = measured.commits + measured.aborts_by_reason.values().sum::<u64>();
            let mut aborts = if tries == 0 { "-".into() } else { show_percent(measured.abort_rate) };
            let tries = tries.max(1) as f64;
            for (reason, count) in &measured.aborts_by_reason {
                aborts += &format!("\n{reason} {}", show_percent(*count as f64 / tries));
            }
            if let Some(retries) = measured.piece_retries {
                let of_commits = retries as f64 / measured.commits.max(1) as f64;
                aborts += &format!("\npiece retries {of_commits:.2} a commit");
            }
            cells.extend([
                show_rate(spread.median),
                share(&measured.to_first, first == Some(&entry.protocol)),
                share(&measured.to_none, entry.protocol == "none"),
                aborts,
                show_latency(measured.latency_ns_p50),
                show_latency(measured.latency_ns_p99),
                format!("{}\n{:.0} B/record", show_bytes(measured.memory_bytes), measured.memory_bytes_per_record),
            ]);
        }
        None => cells.extend(std::iter::repeat_n("-".to_string(), 7)),
    }
    cells.push(match &entry.verification {
        _ if entry.failed() => "FAILED".into(),
        Some(verification) => verification.verdict.clone(),
        None => "not verified".into(),
    });
    cells
}

/// Returns the explanation of a failed check. If the protocol ran alone, also that of an anomaly
/// that its promise allows, and where its aborts came from.
fn details(entry: &ProtocolResult, is_alone: bool) -> String {
    let mut text = String::new();
    let is_told = |verification: &&Verification| !verification.passed || is_alone && verification.anomaly.is_some();
    if let Some(verification) = entry.verification.as_ref().filter(is_told) {
        let what = match &verification.anomaly {
            Some(anomaly) if verification.passed => format!("found {anomaly}, which its promise allows"),
            _ => verification.verdict.clone(),
        };
        text += &format!("{}: {what}\n", entry.protocol);
        if let Some(explanation) = &verification.explanation {
            text += &format!("{explanation}\n");
        }
    }
    if let Some(map) = entry.measured.as_ref().and_then(|measured| measured.conflict_map.as_ref().filter(|_| is_alone))
    {
        map.lines().iter().for_each(|line| text += &format!("{line}\n"));
    }
    if let Some(check) = entry.check.as_ref().filter(|check| !check.passed) {
        text += &format!("{}: the workload's check failed: {}\n", entry.protocol, check.text);
    }
    text
}
