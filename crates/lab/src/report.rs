//! A result as a page that opens anywhere: one HTML file, with charts as SVG, no scripts, and
//! nothing loaded from the network.
//!
//! | module | what it does |
//! | --- | --- |
//! | `page` | the frame: styles, tables, figures with their tables |
//! | `picture` | charts of rows, and of lines over two axes |
//! | `charts` | the charts of a result |
//! | `advice` | the page of an advice |
//! | `saturation` | the page of a search for the highest rate |
//! | `sql`, `litmus` | the pages of the levels of a database (in a build with the feature `sql`) |
//! | `conflicts` | where aborts came from |

mod advice;
mod charts;
mod conflicts;
mod cycle;
#[cfg(feature = "sql")]
mod litmus;
mod page;
mod picture;
mod saturation;
#[cfg(feature = "sql")]
mod sql;

use std::fmt::Write;

use crate::paired::show_share;
use crate::result::{ProtocolResult, ResultFile};
use crate::tables::{self, Sheet, measured};
pub use advice::html as advice_html;
pub(crate) use charts::{table_of_times, times_of};
use contend_model::counted;
use contend_runner::units::{show_bytes, show_latency, show_percent, show_rate};
pub use cycle::svg_file as cycle_svg;
#[cfg(feature = "sql")]
pub use litmus::html as sql_litmus_html;
pub(crate) use page::{Column, Table, document, escape, figure, prose};
pub(crate) use picture::{Axis, Line, Lines, Scale, shortened};
pub use saturation::html as saturation_html;
#[cfg(feature = "sql")]
pub use sql::{arrivals as sql_arrivals, html as sql_html};

/// Returns the whole page. `command` repeats the run.
pub fn html(result: &ResultFile, command: &str) -> String {
    let parts = [
        header(result),
        ranking(result),
        recommendation(result),
        notes(result),
        section(
            "Open loop",
            "Transactions arrived at a rate, whether or not they were served. A response time runs from the moment when a transaction was due until \
             its end (with a log, until its commit is durable), so it includes the wait of a late start. Response times of an entry that did not keep up grow with the length of the run: \
             they are lower bounds (≥).",
            &tables::open_loops(result),
        ),
        charts::responses(result),
        charts::throughput(result),
        charts::windows(result),
        charts::latency(result),
        charts::quantiles(result),
        charts::aborts(result),
        conflicts::maps(result),
        charts::times(result),
        section(
            "Types of transactions",
            "What each type of transaction did under each protocol.",
            &tables::kinds(result),
        ),
        section(
            "Old versions",
            "Newer versions have replaced the old ones. The first two columns count the old versions that exist at the end. The others count all that \
             were made, and give the shares of these that stand in reused memory, that were collected, and that were collected early: while a \
             transaction ran that had begun before they were replaced.",
            &tables::versions(result),
        ),
        section(
            "Log",
            "The bytes that a commit adds to the log, and the time from the beginning of a transaction until it is durable.",
            &tables::logs(result),
        ),
        proof(result),
        setting(result, command),
    ];
    document(&format!("{} — contend", result.config.workload), &parts.concat())
}

/// Returns a table under a heading, or nothing if the table is empty.
fn section(title: &str, caption: &str, sheet: &Sheet) -> String {
    if sheet.rows.is_empty() {
        return String::new();
    }
    let table = charts::table(title, sheet).html();
    format!("<section><h2>{}</h2><p class=\"soft\">{}</p>{table}</section>\n", escape(title), prose(caption))
}

fn header(result: &ResultFile) -> String {
    let config = &result.config;
    let mut text = format!("<h1>contend · {}</h1>\n", escape(&config.workload));
    let _ = writeln!(text, "<p class=\"finding\">{}</p>", prose(&result.finding));
    if result.partial {
        text += "<p class=\"partial bad\">Partial: the run was stopped before its end.</p>\n";
    }
    let where_it_ran = match &config.chip {
        Some(chip) => {
            format!("Simulated on {}, {}; all times are simulated time;", chip.name, counted(config.threads, "core"))
        }
        None => format!(
            "{} on {} ({}),",
            counted(config.threads, "thread"),
            counted(result.environment.cores, "core"),
            result.environment.cpu_model
        ),
    };
    let setting = format!("{where_it_ran} {}, {}.", result.index_in_words(), windows(result));
    format!("{text}<p class=\"soft\">{}</p>\n", prose(&setting))
}

/// Describes the number of measured windows, which may be fewer than allowed, and their length.
fn windows(result: &ResultFile) -> String {
    let rounds = result.comparison.as_ref().map_or(result.config.windows, |comparison| comparison.rounds);
    format!("{} of {} s", counted(rounds, "window"), result.config.window_seconds)
}

/// Returns the table of the most important figures of each entry. Columns that a small screen
/// leaves out are also in the tables below the charts.
fn ranking(result: &ResultFile) -> String {
    let spare = |name| Column::figures(name).spare();
    let columns = [
        Column::text("protocol"),
        Column::text("verified"),
        Column::figures("group"),
        Column::figures("median /s"),
        spare("of the first"),
        spare("of none"),
        spare("aborts"),
        spare("p50"),
        spare("p99"),
        spare("memory"),
        spare("B/record"),
    ];
    let count = columns.len();
    let mut table = Table::new("Ranking", columns);
    let first = result.comparison.as_ref().and_then(|comparison| comparison.first.as_ref());
    for entry in &result.protocols {
        let (style, verdict) = verdict(entry);
        let mut cells = vec![(String::new(), entry.protocol.clone()), (style.into(), verdict)];
        match &entry.measured {
            Some(measured) => {
                let to_first = match measured.to_first {
                    Some(ratio) => show_share(&ratio),
                    None if first == Some(&entry.protocol) => "100 %".into(),
                    None => "–".into(),
                };
                let figures = [
                    measured.group.map_or("–".into(), |group| group.to_string()),
                    show_rate(measured.throughput_tps.median),
                    to_first,
                    measured.to_none.map_or("–".into(), |ratio| show_share(&ratio)),
                    show_percent(measured.abort_rate),
                    show_latency(measured.latency_ns_p50),
                    show_latency(measured.latency_ns_p99),
                    show_bytes(measured.memory_bytes),
                    format!("{:.0}", measured.memory_bytes_per_record),
                ];
                cells.extend(figures.map(|figure| (String::new(), figure)));
            }
            None => cells.extend((2..count).map(|_| (String::new(), "–".into()))),
        }
        table.styled_row(cells);
    }
    table.html()
}

/// Returns the sentences that a reader of the figures needs.
fn notes(result: &ResultFile) -> String {
    let lines: String = crate::notes::notes(result).iter().map(|line| format!("<li>{}</li>", prose(line))).collect();
    if lines.is_empty() { lines } else { format!("<ul>{lines}</ul>\n") }
}

/// Returns how the entries were told apart, and the recommendations.
fn recommendation(result: &ResultFile) -> String {
    let Some(comparison) = &result.comparison else { return String::new() };
    let (basis, order) = (comparison.basis(), crate::paired::ORDER);
    let basis = prose(&format!("A group is not told apart from its first: {basis}. The table is sorted by {order}."));
    let lines = result.recommendation.iter().map(|line| format!("<li>{}</li>", prose(line)));
    format!("<p class=\"soft\">{basis}</p><ul>{}</ul>\n", lines.collect::<String>())
}

/// Returns a class of style, and the verdict in a few words with a sign of its own.
fn verdict(entry: &ProtocolResult) -> (&'static str, String) {
    match &entry.verification {
        _ if entry.failed() => ("bad", "✗ failed".into()),
        Some(_) if entry.isolation == "none" => ("soft", "○ promises nothing".into()),
        Some(_) if entry.isolation == "serializable" => ("good", "✓ serializable".into()),
        Some(_) => ("", format!("◐ {} only", entry.isolation)),
        None => ("soft", "– not verified".into()),
    }
}

fn proof(result: &ResultFile) -> String {
    let mut text = String::from(
        "<section><h2>Proof</h2><p class=\"soft\">A smaller run on the same options, whose history is checked for cycles of dependencies and \
         replayed serially; and the workload's own check after the measured run.</p><dl>\n",
    );
    for entry in &result.protocols {
        let class = if entry.failed() { " class=\"bad\"" } else { "" };
        let _ = write!(text, "<dt>{}</dt><dd{class}>", escape(&entry.protocol));
        match &entry.verification {
            Some(it) => text += &prose(&format!("{}, {} meanwhile", it.verdict, counted(it.aborts, "abort"))),
            None => text += "no verification pass was asked for",
        }
        if let Some(check) = &entry.check {
            let _ = write!(text, "<br><span class=\"soft\">{}</span>", prose(&check.text));
        }
        if let Some((it, explanation)) = entry.verification.as_ref().and_then(|it| Some((it, it.explanation.as_ref()?)))
        {
            let _ = write!(text, "{}<pre>{}</pre>", cycle::svg(&it.cycle), escape(explanation));
        }
        text += "</dd>\n";
    }
    text + "</dl></section>\n"
}

fn setting(result: &ResultFile, command: &str) -> String {
    let (config, environment) = (&result.config, &result.environment);
    let options = |options: &std::collections::BTreeMap<String, String>| {
        options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let mut items: Vec<(&str, String)> =
        result.options.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    items.extend(result.protocols.iter().map(|entry| (entry.protocol.as_str(), options(&entry.options))));
    items.extend([
        ("threads", config.threads.to_string()),
        ("index", config.index.clone().unwrap_or_else(|| "hash".into())),
        ("seed", config.seed.to_string()),
        ("windows", windows(result)),
        ("warm-up", format!("{} s", config.warmup_seconds)),
    ]);
    let commit = environment.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default();
    let simulations = measured(result).filter_map(|(entry, measured)| Some((entry, measured.simulation.as_ref()?)));
    let traces: Vec<String> = simulations.map(|(entry, it)| format!("{} {}", entry.protocol, it.trace_hash)).collect();
    let huge_pages = [environment.huge_pages_granted_bytes, environment.huge_pages_advised_bytes].map(show_bytes);
    let mut environment_items = vec![
        ("contend", format!("{}{commit}", environment.version)),
        ("machine", format!("{}, {}", environment.machine, environment.architecture)),
        ("processor", format!("{}, {}", environment.cpu_model, counted(environment.cores, "core"))),
        ("memory", show_bytes(environment.memory_bytes)),
        ("kernel", environment.kernel.clone()),
        ("clock", format!("{:.3} GHz", environment.clock_hz / 1e9)),
        ("huge pages", format!("{} granted, {} asked for", huge_pages[0], huge_pages[1])),
    ];
    if !traces.is_empty() {
        environment_items.push(("traces", traces.join(", ")));
    }
    format!(
        "<section><h2>The same again</h2><pre>{}</pre></section>\n<section><h2>Configuration</h2>{}</section>\n\
         <section><h2>Environment</h2>{}</section>\n",
        escape(command),
        definitions(&items),
        definitions(&environment_items)
    )
}

/// Says that a run ended before its end, and why, if it failed.
#[cfg(feature = "sql")]
fn partial(is_partial: bool, error: Option<&str>) -> String {
    let text = match (is_partial, error) {
        (false, None) => return String::new(),
        (true, None) => "Partial: the run was stopped before its end.".to_owned(),
        (true, Some(error)) => format!("Partial: the run failed before its end. {error}"),
        (false, Some(error)) => format!("The run failed. {error}"),
    };
    format!("<p class=\"partial bad\">{}</p>\n", prose(&text))
}

fn definitions(items: &[(&str, String)]) -> String {
    let items = items.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), prose(value)));
    format!("<dl>{}</dl>\n", items.collect::<String>())
}
