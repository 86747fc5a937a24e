//! A result as a page that opens anywhere: one HTML file, charts as SVG inside, no scripts, nothing from the network.

use std::fmt::Write;

use crate::advice::show_share;
use crate::compare::show_rate;
pub use crate::memory::show_bytes;
use crate::paired::Ratio;
use crate::result::{Breakdown, KindResult, Measured, ProtocolResult, ResultFile, Versions};

/// The whole page. `command` runs the same again.
pub fn html(result: &ResultFile, command: &str) -> String {
    let mut page = String::new();
    page += &header(result);
    page += &ranking(result);
    page += &recommendation(result);
    page += &figure(
        "Throughput",
        "Committed transactions a second: median, and the range over all windows.",
        &throughput(result),
    );
    page += &figure(
        "Windows",
        "Each protocol's windows in the order they were measured, in turns with the others'.",
        &windows(result),
    );
    page += &figure(
        "Latency",
        "From the first try to the commit: median, 99 % and 99.9 %, on a logarithmic scale. One transaction in 16 is timed.",
        &latency(result),
    );
    page += &figure("Aborts", "Aborted tries, as a share of all tries, by reason.", &aborts(result));
    page += &where_the_time_went(result);
    page += &figure("Types of transactions", "Of each protocol, where it has more than one type.", &kinds(result));
    page += &figure(
        "Old versions",
        "Those that are there at the end; and of those that were made, how many stand in memory that had been used before, have been collected, and \
         have been while a transaction ran that had begun before they were replaced.",
        &old_versions(result),
    );
    page += &proof(result);
    page += &setting(result, command);
    document(&format!("{} — contend", result.config.workload), &page)
}

/// A whole page around this.
pub(crate) fn document(title: &str, body: &str) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    page += &format!("<title>{}</title>\n<style>{STYLE}</style></head>\n<body><main>\n", escape(title));
    page + body + "</main></body></html>\n"
}

const STYLE: &str = "
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--paper:#fbfbf9;--card:#fff;--good:#1f7a4d;--bad:#b3261e;
--c0:#2f5d8a;--c1:#c2702c;--c2:#4f8a5b;--c3:#8a4f7d;--c4:#a08a2c;--c5:#4b8b95;--c6:#9b4a4a;--c7:#6a6f9b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#333c48;--paper:#14181e;--card:#1b2129;--good:#5cc08e;
--bad:#f2837b;--c0:#7fb0e0;--c1:#e6a265;--c2:#86c294;--c3:#c990bd;--c4:#d6c067;--c5:#82c2cc;--c6:#d98a8a;--c7:#a6abdb}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:3rem 1.5rem 5rem}h1{font-size:1.15rem;font-weight:600;color:var(--soft);margin:0}
h2{font-size:1.05rem;margin:3rem 0 .2rem}.finding{font-size:1.75rem;line-height:1.3;margin:.4rem 0 1rem;font-weight:600}
.soft{color:var(--soft)}p{margin:.2rem 0 .8rem}.partial{border-left:4px solid var(--bad);padding:.3rem .8rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93rem}
th{font-weight:600;color:var(--soft);text-align:right;border-bottom:1px solid var(--line);padding:.4rem .5rem}
td{text-align:right;border-bottom:1px solid var(--line);padding:.45rem .5rem}th.l,td.l{text-align:left}
.scroll{overflow-x:auto}.good{color:var(--good)}.bad{color:var(--bad)}figure{margin:.4rem 0}
svg{width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:6px}
svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .t{fill:var(--soft);font-size:11px}
svg .g{stroke:var(--line);stroke-width:1}svg .w{stroke:var(--ink);stroke-width:1.5;fill:none}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.8rem;overflow-x:auto;font-size:.85rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.93rem}dt{color:var(--soft)}dd{margin:0}
";

pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

/// The protocols that have figures, with their colours' numbers.
fn measured(result: &ResultFile) -> Vec<(usize, &ProtocolResult, &Measured)> {
    let with_figures = result.protocols.iter().filter_map(|entry| Some((entry, entry.measured.as_ref()?)));
    with_figures.enumerate().map(|(number, (entry, measured))| (number, entry, measured)).collect()
}

fn colour(number: usize) -> String {
    format!("var(--c{})", number % 8)
}

fn header(result: &ResultFile) -> String {
    let config = &result.config;
    let mut text = format!("<h1>contend · {}</h1>\n", escape(&config.workload));
    let _ = writeln!(text, "<p class=\"finding\">{}</p>", escape(&result.finding));
    if result.partial {
        text += "<p class=\"partial bad\">Partial: the run was stopped before its end.</p>\n";
    }
    let where_it_ran = match &config.chip {
        Some(chip) => {
            format!("Simulated on {}, {} cores; all times are simulated time;", escape(&chip.name), config.threads)
        }
        None => format!(
            "{} threads on {} cores ({}),",
            config.threads,
            result.environment.cores,
            escape(&result.environment.cpu_model)
        ),
    };
    let _ = writeln!(
        text,
        "<p class=\"soft\">{} {} index, {} windows of {} s.</p>",
        where_it_ran,
        escape(config.index.as_deref().unwrap_or("hash")),
        config.windows,
        config.window_seconds
    );
    text
}

fn ranking(result: &ResultFile) -> String {
    let mut text = String::from("<div class=\"scroll\"><table><thead><tr><th>group</th><th class=\"l\">protocol</th>");
    for column in ["median /s", "min", "max", "of the first", "of none", "aborts", "p50", "p99", "memory", "B/record"] {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "<th class=\"l\">verified</th></tr></thead><tbody>\n";
    for entry in &result.protocols {
        let group = entry.measured.as_ref().and_then(|measured| measured.group);
        let group = group.map_or("–".into(), |group| group.to_string());
        let _ = write!(text, "<tr><td>{group}</td><td class=\"l\"><b>{}</b></td>", escape(&entry.protocol));
        match &entry.measured {
            Some(measured) => {
                let spread = measured.throughput_tps;
                let share = |ratio: &Option<Ratio>| ratio.as_ref().map_or("–".into(), show_share);
                let cells = [
                    show_rate(spread.median),
                    show_rate(spread.min),
                    show_rate(spread.max),
                    share(&measured.to_first),
                    share(&measured.to_none),
                    format!("{:.1} %", measured.abort_rate * 100.0),
                    show_latency(measured.latency_ns_p50),
                    show_latency(measured.latency_ns_p99),
                    show_bytes(measured.memory_bytes),
                    format!("{:.0}", measured.memory_bytes_per_record),
                ];
                cells.iter().for_each(|cell| {
                    let _ = write!(text, "<td>{cell}</td>");
                });
            }
            None => {
                text += "<td colspan=\"10\" class=\"l bad\">no figures: a check failed, or it was stopped before</td>"
            }
        }
        let (class, verdict) = verdict(entry);
        let _ = writeln!(text, "<td class=\"l {class}\">{}</td></tr>", escape(&verdict));
    }
    text + "</tbody></table></div>\n"
}

/// How entries were told apart, and what to make of it.
fn recommendation(result: &ResultFile) -> String {
    let Some(comparison) = &result.comparison else { return String::new() };
    let mut text =
        format!("<p class=\"soft\">A group is not told apart from its first: {}.</p><ul>", escape(&comparison.basis()));
    for line in &result.recommendation {
        let _ = write!(text, "<li>{}</li>", escape(line));
    }
    text + "</ul>\n"
}

/// A class of style, and the verdict in a few words.
fn verdict(entry: &ProtocolResult) -> (&'static str, String) {
    match &entry.verification {
        _ if entry.failed() => ("bad", "failed".into()),
        Some(_) if entry.isolation == "none" => ("soft", "promises nothing".into()),
        Some(_) => ("good", entry.isolation.clone()),
        None => ("soft", "not verified".into()),
    }
}

/// Nanoseconds, in a unit that suits.
pub fn show_ns(nanoseconds: u64) -> String {
    match nanoseconds as f64 {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// A latency; `-` where nothing was timed, as what takes no time at all is there nowhere.
pub fn show_latency(nanoseconds: u64) -> String {
    if nanoseconds == 0 { "-".into() } else { show_ns(nanoseconds) }
}

fn figure(title: &str, caption: &str, chart: &str) -> String {
    if chart.is_empty() {
        return String::new();
    }
    format!("<h2>{title}</h2><p class=\"soft\">{caption}</p><figure>{chart}</figure>\n")
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 38.0;
const TOP: f64 = 16.0;

fn svg(height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>{body}</svg>",
        escape(label)
    )
}

/// Values at which an axis up to `max` has its lines: four to eight, round.
fn ticks(max: f64) -> Vec<f64> {
    if max <= 0.0 {
        return vec![0.0];
    }
    let power = 10f64.powf((max / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| max / step <= 7.0);
    let step = step.unwrap_or(10.0 * power);
    (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick <= max * 1.0001).collect()
}

fn vertical_grid(max: f64, bottom: f64, show: impl Fn(f64) -> String) -> String {
    let mut body = String::new();
    for tick in ticks(max) {
        let x = LEFT + tick / max * (WIDTH - LEFT - RIGHT);
        let _ = write!(body, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>");
        let _ = write!(
            body,
            "<text class=\"t\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            show(tick)
        );
    }
    body
}

fn row_label(body: &mut String, y: f64, name: &str) {
    let _ =
        write!(body, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 10.0, y + 5.0, escape(name));
}

fn throughput(result: &ResultFile) -> String {
    let rows = measured(result);
    let max = rows.iter().map(|(.., measured)| measured.throughput_tps.max).fold(0.0, f64::max);
    if max <= 0.0 {
        return String::new();
    }
    let bottom = TOP + ROW * rows.len() as f64;
    let scale = (WIDTH - LEFT - RIGHT) / max;
    let mut body = vertical_grid(max, bottom, show_rate);
    for (number, entry, measured) in &rows {
        let (y, spread) = (TOP + ROW * (*number as f64 + 0.5), measured.throughput_tps);
        row_label(&mut body, y, &entry.protocol);
        let (low, high) = (LEFT + spread.min * scale, LEFT + spread.max * scale);
        let _ = write!(
            body,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"20\" rx=\"2\" fill=\"{}\"><title>{}: {} /s</title></rect>\
             <path class=\"w\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {:.1}v10M{high:.1} {:.1}v10\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y - 10.0,
            spread.median * scale,
            colour(*number),
            escape(&entry.protocol),
            show_rate(spread.median),
            y - 5.0,
            y - 5.0,
            high + 8.0,
            y + 5.0,
            show_rate(spread.median)
        );
    }
    svg(bottom + 26.0, "throughput of each protocol with its range", &body)
}

fn windows(result: &ResultFile) -> String {
    let rows = measured(result);
    let all = rows.iter().flat_map(|(.., measured)| &measured.windows);
    let (mut max, mut rounds) = (0f64, 0);
    for window in all {
        max = max.max(window.throughput_tps);
        rounds = rounds.max(window.round);
    }
    if max <= 0.0 || rounds < 2 {
        return String::new();
    }
    let (height, bottom) = (260.0, 230.0);
    let x = |round: usize| LEFT + (round - 1) as f64 / (rounds - 1) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |tps: f64| bottom - tps / max * (bottom - TOP);
    let mut body = String::new();
    for tick in ticks(max) {
        let _ = write!(
            body,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
             <text class=\"t\" x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - RIGHT,
            y(tick),
            LEFT - 8.0,
            y(tick) + 4.0,
            show_rate(tick)
        );
    }
    for (number, entry, measured) in &rows {
        let points: Vec<String> = measured
            .windows
            .iter()
            .map(|window| format!("{:.1},{:.1}", x(window.round), y(window.throughput_tps)))
            .collect();
        let colour = colour(*number);
        let _ = write!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"><title>{}</title></polyline>",
            points.join(" "),
            escape(&entry.protocol)
        );
        for point in &points {
            let (cx, cy) = point.split_once(',').unwrap_or(("0", "0"));
            let _ = write!(body, "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3\" fill=\"{colour}\"/>");
        }
        if let Some(last) = measured.windows.last() {
            let _ = write!(
                body,
                "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
                x(last.round) + 8.0,
                y(last.throughput_tps) + 4.0,
                escape(&entry.protocol)
            );
        }
    }
    svg(height, "throughput of each window", &body)
}

fn latency(result: &ResultFile) -> String {
    let rows = measured(result);
    let values = |measured: &Measured| [measured.latency_ns_p50, measured.latency_ns_p99, measured.latency_ns_p999];
    let all: Vec<f64> = rows.iter().flat_map(|(.., measured)| values(measured)).map(|ns| ns.max(1) as f64).collect();
    let (Some(min), Some(max)) = (all.iter().copied().reduce(f64::min), all.iter().copied().reduce(f64::max)) else {
        return String::new();
    };
    let (low, high) = (min.log10().floor(), max.log10().ceil().max(min.log10().floor() + 1.0));
    let x = |ns: f64| LEFT + (ns.max(1.0).log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut body = String::new();
    for power in low as i32..=high as i32 {
        let tick = 10f64.powi(power);
        let _ = write!(
            body,
            "<line class=\"g\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>\
             <text class=\"t\" x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"middle\">{2}</text>",
            x(tick),
            bottom + 16.0,
            show_ns(tick as u64)
        );
    }
    for (number, entry, measured) in &rows {
        let y = TOP + ROW * (*number as f64 + 0.5);
        row_label(&mut body, y, &entry.protocol);
        let [p50, p99, p999] = values(measured).map(|ns| x(ns as f64));
        let colour = colour(*number);
        let _ = write!(
            body,
            "<line x1=\"{p50:.1}\" x2=\"{p999:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>"
        );
        for (at, name, ns, radius) in [
            (p50, "p50", measured.latency_ns_p50, 7.0),
            (p99, "p99", measured.latency_ns_p99, 5.0),
            (p999, "p99.9", measured.latency_ns_p999, 3.5),
        ] {
            let _ = write!(
                body,
                "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>{name}: {}</title></circle>",
                show_ns(ns)
            );
        }
        let _ = write!(
            body,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            p999 + 10.0,
            y + 5.0,
            show_ns(measured.latency_ns_p99)
        );
    }
    svg(bottom + 26.0, "latency of each protocol", &body)
}

fn aborts(result: &ResultFile) -> String {
    let rows = measured(result);
    let tries =
        |measured: &Measured| (measured.commits + measured.aborts_by_reason.values().sum::<u64>()).max(1) as f64;
    let share = |measured: &Measured| measured.aborts_by_reason.values().sum::<u64>() as f64 / tries(measured);
    let max = rows.iter().map(|(.., measured)| share(measured)).fold(0.0, f64::max);
    if max <= 0.0 {
        return "<p>No transaction aborted.</p>".into();
    }
    let mut reasons: Vec<&str> =
        rows.iter().flat_map(|(.., measured)| measured.aborts_by_reason.keys().map(String::as_str)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let rows: Vec<(String, Vec<f64>)> = rows
        .iter()
        .map(|(_, entry, measured)| {
            let of =
                |reason: &&str| measured.aborts_by_reason.get(*reason).copied().unwrap_or(0) as f64 / tries(measured);
            (entry.protocol.clone(), reasons.iter().map(of).collect())
        })
        .collect();
    stacked("aborts of each protocol by reason", &rows, &reasons, max, true)
}

/// Bars of parts of a whole, side by side; with `sums`, each bar's sum behind it.
fn stacked(label: &str, rows: &[(String, Vec<f64>)], parts: &[&str], max: f64, sums: bool) -> String {
    let bottom = TOP + ROW * rows.len() as f64;
    let mut body = vertical_grid(max, bottom, |tick| format!("{:.3} %", tick * 100.0));
    for (number, (name, shares)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        row_label(&mut body, y, name);
        let mut x = LEFT;
        for (kind, (part, share)) in parts.iter().zip(shares).enumerate() {
            let width = share / max * (WIDTH - LEFT - RIGHT);
            let _ = write!(
                body,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"20\" fill=\"{}\"><title>{part}: {:.2} %</title></rect>",
                y - 10.0,
                colour(kind),
                share * 100.0
            );
            x += width;
        }
        if sums {
            let sum: f64 = shares.iter().sum();
            let _ = write!(body, "<text x=\"{:.1}\" y=\"{:.1}\">{:.2} %</text>", x + 8.0, y + 5.0, sum * 100.0);
        }
    }
    let mut x = LEFT;
    for (kind, part) in parts.iter().enumerate() {
        let y = bottom + 34.0;
        let _ = write!(
            body,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\">{part}</text>",
            y - 10.0,
            colour(kind),
            x + 18.0,
            y
        );
        x += 40.0 + 8.0 * part.len() as f64;
    }
    svg(bottom + 46.0, label, &body)
}

/// Where the time went, by name: the six categories of each.
pub(crate) fn breakdown_bars(rows: &[(String, &Breakdown)]) -> String {
    let parts: Vec<&str> = Breakdown::default().categories().iter().map(|(name, _)| *name).collect();
    let rows: Vec<(String, Vec<f64>)> = rows
        .iter()
        .map(|(name, breakdown)| (name.clone(), breakdown.categories().iter().map(|(_, share)| *share).collect()))
        .collect();
    stacked("where the time went", &rows, &parts, 1.0, false)
}

fn where_the_time_went(result: &ResultFile) -> String {
    let rows: Vec<(String, &Breakdown)> = measured(result)
        .into_iter()
        .filter_map(|(_, entry, measured)| Some((entry.protocol.clone(), measured.breakdown.as_ref()?)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    figure(
        "Time",
        "Where the workers' time went; aborted tries, and what came between them, are one part.",
        &breakdown_bars(&rows),
    )
}

/// The columns of a table of types, and a type's cells.
pub const KIND_COLUMNS: [&str; 7] = ["commits", "share", "aborts", "gave up", "p50", "p99", "p99.9"];

/// The cells of a type of transaction, by [`KIND_COLUMNS`].
pub fn kind_cells(measured: &Measured, kind: &KindResult) -> [String; 7] {
    let of = |count: u64, all: u64| format!("{:.1} %", count as f64 / all.max(1) as f64 * 100.0);
    let user = kind.aborts_by_reason.get("user").copied().unwrap_or(0);
    [
        kind.commits.to_string(),
        of(kind.commits, measured.commits),
        format!("{:.2} %", kind.abort_rate * 100.0),
        of(user, kind.commits + user),
        show_latency(kind.latency_ns_p50),
        show_latency(kind.latency_ns_p99),
        show_latency(kind.latency_ns_p999),
    ]
}

/// The columns of a table of old versions, and the cells.
pub const VERSION_COLUMNS: [&str; 7] =
    ["old versions", "bytes", "made", "in used memory", "collected", "early", "records by old versions"];

/// The cells of a protocol's old versions, by [`VERSION_COLUMNS`].
pub fn version_cells(versions: &Versions) -> [String; 7] {
    let of = |count: u64, all: u64| format!("{:.1} %", count as f64 / all.max(1) as f64 * 100.0);
    [
        versions.alive.to_string(),
        show_bytes(versions.alive_bytes),
        versions.made.to_string(),
        of(versions.reused, versions.made),
        of(versions.collected, versions.made),
        of(versions.collected_early, versions.made),
        records_by_versions(&versions.records_by_versions),
    ]
}

/// "0: 10, 2-3: 5": records by how many old versions they have.
fn records_by_versions(records: &[u64]) -> String {
    let class = |class: usize| match (1u64 << class >> 1, (1u64 << class) - 1) {
        (0 | 1, last) => last.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    let classes = records.iter().enumerate().filter(|(_, records)| **records > 0);
    classes.map(|(number, records)| format!("{}: {records}", class(number))).collect::<Vec<_>>().join(", ")
}

fn old_versions(result: &ResultFile) -> String {
    let mut text = String::from("<div class=\"scroll\"><table><thead><tr><th class=\"l\">protocol</th>");
    for column in VERSION_COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "</tr></thead><tbody>\n";
    let mut rows = 0;
    for (_, entry, measured) in measured(result) {
        let Some(versions) = &measured.versions else { continue };
        let _ = write!(text, "<tr><td class=\"l\"><b>{}</b></td>", escape(&entry.protocol));
        for cell in version_cells(versions) {
            let _ = write!(text, "<td>{cell}</td>");
        }
        text += "</tr>\n";
        rows += 1;
    }
    if rows == 0 { String::new() } else { text + "</tbody></table></div>\n" }
}

fn kinds(result: &ResultFile) -> String {
    let mut text =
        String::from("<div class=\"scroll\"><table><thead><tr><th class=\"l\">protocol</th><th class=\"l\">type</th>");
    for column in KIND_COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "<th class=\"l\">aborts by reason</th></tr></thead><tbody>\n";
    let mut rows = 0;
    for (_, entry, measured) in measured(result).iter().filter(|(.., measured)| measured.kinds.len() > 1) {
        for (number, kind) in measured.kinds.iter().enumerate() {
            let name = if number == 0 { escape(&entry.protocol) } else { String::new() };
            let _ = write!(text, "<tr><td class=\"l\"><b>{name}</b></td><td class=\"l\">{}</td>", escape(&kind.kind));
            for cell in kind_cells(measured, kind) {
                let _ = write!(text, "<td>{cell}</td>");
            }
            let reasons: Vec<String> =
                kind.aborts_by_reason.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
            let _ = writeln!(text, "<td class=\"l soft\">{}</td></tr>", reasons.join(", "));
            rows += 1;
        }
    }
    if rows == 0 { String::new() } else { text + "</tbody></table></div>\n" }
}

fn proof(result: &ResultFile) -> String {
    let mut text = String::from(
        "<h2>Proof</h2><p class=\"soft\">A smaller run on the same options, whose history is checked for cycles of dependencies and replayed \
         serially; and the workload's own check after the measured run.</p><dl>\n",
    );
    for entry in &result.protocols {
        let class = if entry.failed() { "bad" } else { "" };
        let _ = write!(text, "<dt>{}</dt><dd class=\"{class}\">", escape(&entry.protocol));
        match &entry.verification {
            Some(verification) => {
                let _ = write!(text, "{}, {} aborts meanwhile", escape(&verification.verdict), verification.aborts);
            }
            None => text += "no verification pass was asked for",
        }
        if let Some(check) = &entry.check {
            let _ = write!(text, "<br><span class=\"soft\">{}</span>", escape(&check.text));
        }
        if let Some(explanation) =
            entry.verification.as_ref().and_then(|verification| verification.explanation.as_ref())
        {
            let drawn = entry.verification.as_ref().map_or_else(String::new, |it| crate::cycle::svg(&it.cycle));
            let _ = write!(text, "{drawn}<pre>{}</pre>", escape(explanation));
        }
        text += "</dd>\n";
    }
    text + "</dl>\n"
}

fn setting(result: &ResultFile, command: &str) -> String {
    let environment = &result.environment;
    let mut text = format!("<h2>The same again</h2><pre>{}</pre>\n<h2>Configuration</h2><dl>\n", escape(command));
    let mut item = |name: &str, value: &str| {
        let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    for (name, value) in &result.options {
        item(name, value);
    }
    for entry in &result.protocols {
        let options: Vec<String> = entry.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        item(&entry.protocol, &options.join(" "));
    }
    item("threads", &result.config.threads.to_string());
    item("index", result.config.index.as_deref().unwrap_or("hash"));
    item("seed", &result.config.seed.to_string());
    item("windows", &format!("{} of {} s", result.config.windows, result.config.window_seconds));
    item("warm-up", &format!("{} s", result.config.warmup_seconds));
    text += "</dl>\n<h2>Environment</h2><dl>\n";
    let mut item = |name: &str, value: &str| {
        let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    let commit = environment.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default();
    item("contend", &format!("{}{commit}", environment.version));
    item("machine", &format!("{}, {}", environment.machine, environment.architecture));
    item("processor", &format!("{}, {} cores", environment.cpu_model, environment.cores));
    item("memory", &show_bytes(environment.memory_bytes));
    item("kernel", &environment.kernel);
    item("clock", &format!("{:.3} GHz", environment.clock_hz / 1e9));
    item(
        "huge pages",
        &format!(
            "{} granted, {} asked for",
            show_bytes(environment.huge_pages_granted_bytes),
            show_bytes(environment.huge_pages_advised_bytes)
        ),
    );
    text + "</dl>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_break_out_of_the_page() {
        assert_eq!(escape("<b a='1'>&\"</b>"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;");
    }

    #[test]
    fn axes_have_a_few_round_lines() {
        for max in [0.003, 0.9, 1.0, 7.3, 12.0, 2_345_678.0] {
            let ticks = ticks(max);
            assert!((4..=8).contains(&ticks.len()), "{max}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= max * 1.001));
        }
    }

    #[test]
    fn units_suit() {
        assert_eq!([999, 1500, 2_000_000, 3_000_000_000].map(show_ns), ["999 ns", "1.5 µs", "2.0 ms", "3.00 s"]);
    }
}
