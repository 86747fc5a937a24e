//! The page of a search for the highest rate of arrivals.

use super::page::{Column, Table, document, escape, figure, prose};
use super::picture::{Axis, Line, Lines, Scale};
use crate::saturate::{Probe, Saturation, SaturationFile};
use contend_model::counted;
use contend_runner::units::{show_ns, show_percent, show_rate};

/// Returns the page. `command` repeats the search.
pub fn html(file: &SaturationFile, command: &str) -> String {
    let config = &file.config;
    let mut body = format!("<h1>contend saturate · {}</h1>\n", escape(&config.workload));
    body += &format!("<p class=\"finding\">{}</p>", prose(&file.finding));
    if file.partial {
        body += "<p class=\"partial bad\">Partial: the search was stopped before its end.</p>\n";
    }
    let machine = match &config.chip {
        Some(chip) => {
            format!("Simulated on {}, {}; all times are simulated time", chip.name, counted(config.threads, "core"))
        }
        None => format!("{} on {}", counted(config.threads, "thread"), counted(file.environment.cores, "core")),
    };
    let precision = show_percent(file.goal.precision);
    body += &format!(
        "<p class=\"soft\">{}</p>\n",
        prose(&format!(
            "{machine}. A rate passes if each of three windows of {} keeps {}; the two rates are at most {precision} apart.",
            counted(file.goal.transactions, "transaction"),
            file.goal.in_words()
        ))
    );
    body += &ranking(file).html();
    body += &figure(
        "Response times by rate",
        "The 99th percentile of response times at each rate that was tried: the largest of its windows. A rate that \
         failed is left out if transactions were left undone, since its response times grow without end.",
        &curves(file),
        &probes(file),
    );
    body += &format!("<section><h2>The same again</h2><pre>{}</pre></section>\n", escape(command));
    document(&format!("{} — contend saturate", config.workload), &body)
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("–".into(), show_rate)
}

fn ranking(file: &SaturationFile) -> Table {
    let names = ["protocol", "verified"].map(Column::text);
    let figures = ["passes /s", "fails /s", "of the closed loop", "closed loop /s", "p99 there"].map(Column::figures);
    let mut table = Table::new("Highest rates", names.into_iter().chain(figures));
    for found in &file.protocols {
        let (style, verdict) = match &found.verification {
            _ if found.failed() => ("bad", "✗ failed".to_string()),
            Some(_) => ("good", format!("✓ {}", found.isolation)),
            None => ("soft", "– not verified".to_string()),
        };
        let cells = [rate(found.passes), rate(found.fails), share(found), show_rate(found.closed_tps), p99(found)];
        let cells = cells.map(|cell| (String::new(), cell));
        table.styled_row([(String::new(), found.protocol.clone()), (style.into(), verdict)].into_iter().chain(cells));
    }
    table
}

/// Returns the rate that passed, as a share of the closed loop's throughput.
fn share(found: &Saturation) -> String {
    found.passes.map_or("–".into(), |passes| show_percent(passes / found.closed_tps))
}

fn p99(found: &Saturation) -> String {
    found.p99_there().map_or("–".into(), show_ns)
}

fn largest(probe: &Probe) -> u64 {
    probe.windows.iter().map(|window| window.response.p99_ns).max().unwrap_or(0)
}

/// Returns the curves of the 99th percentile over the rate.
fn curves(file: &SaturationFile) -> String {
    let points = |found: &Saturation| {
        let kept = found.probes.iter().filter(|probe| !probe.windows.iter().any(|window| window.saturated));
        let mut points: Vec<(f64, f64)> = kept.map(|probe| (probe.rate, largest(probe) as f64)).collect();
        points.retain(|(_, ns)| *ns > 0.0);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let all: Vec<(f64, f64)> = file.protocols.iter().flat_map(points).collect();
    let (Some(x), Some(y)) =
        (Scale::of(all.iter().map(|point| point.0), true), Scale::of(all.iter().map(|point| point.1), true))
    else {
        return String::new();
    };
    let lines = file.protocols.iter().enumerate().map(|(number, found)| Line {
        name: &found.protocol,
        number: Some(number),
        points: points(found),
        ranges: Vec::new(),
        has_markers: true,
    });
    let lines = Lines {
        label: "The 99th percentile of response times by rate",
        x: Axis::new("transactions offered a second, logarithmic", x, show_rate),
        y: Axis::new("99 % of the responses take at most", y, |ns| show_ns(ns as u64)),
        height: 300.0,
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
        is_joined: true,
        show: &|rate, ns| format!("{} at {}/s", show_ns(ns as u64), show_rate(rate)),
    };
    format!("{}{}", lines.legend(), lines.svg())
}

fn probes(file: &SaturationFile) -> Table {
    let figures = ["rate /s", "p50", "p99", "p99.9"].map(Column::figures);
    let columns = [Column::text("protocol")].into_iter().chain(figures).chain([Column::text("outcome")]);
    let mut table = Table::new("Rates that were tried", columns);
    for (found, probe) in file.protocols.iter().flat_map(|found| found.probes.iter().map(move |probe| (found, probe))) {
        let most = |time: fn(&crate::result::Latencies) -> u64| {
            show_ns(probe.windows.iter().map(|window| time(&window.response)).max().unwrap_or(0))
        };
        let outcome = if probe.passed { "passes".to_string() } else { format!("fails: {}", probe.why) };
        table.row([
            found.protocol.clone(),
            show_rate(probe.rate),
            most(|times| times.p50_ns),
            most(|times| times.p99_ns),
            most(|times| times.p999_ns),
            outcome,
        ]);
    }
    table
}
