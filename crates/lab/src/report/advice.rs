//! The page of an advice.

use super::page::{Column, Table, document, escape, figure, prose};
use super::picture::{Axis, Line, Lines, Mark, Row, Scale, rows};
use crate::advise::{Advice, Finalist};
use crate::paired::show_ratio;
use contend_model::counted;
use contend_runner::units::{show_bytes, show_digits, show_ns, show_percent, show_rate};

/// Returns the page. `again` repeats the comparison of the finalists.
pub fn html(advice: &Advice, again: &str) -> String {
    let mut body = format!("<h1>contend advise · {}</h1>\n", escape(&advice.config.workload));
    body += &format!("<p class=\"finding\">{}</p>", prose(&advice.advice));
    if advice.partial {
        body += "<p class=\"partial bad\">Partial: the tournament was stopped before its end.</p>\n";
    }
    body += &format!("<p class=\"soft\">{}</p>\n", prose(&advice.basis()));
    let reasons: String = advice.reasons.iter().map(|reason| format!("<li>{}</li>", prose(reason))).collect();
    body += &format!("<ul>{reasons}</ul>\n");
    body += &ratios(advice);
    if !advice.rates.is_empty() {
        let figures = ["passes /s", "fails /s"].map(Column::figures);
        let mut table = Table::new("Highest rates", [Column::text("protocol")].into_iter().chain(figures));
        for found in &advice.rates {
            let rate = |rate: Option<f64>| rate.map_or("–".into(), show_rate);
            table.row([found.protocol.clone(), rate(found.passes), rate(found.fails)]);
        }
        body += &format!("<section><h2>Highest rates</h2>{}</section>", table.html());
    }
    body += &cores(advice);
    body += &section("Accesses", "What sample transactions of each type did to each table.", &uses(advice));
    body += &section(
        "Candidates",
        "Where each candidate left: by its proof, after the first rung (0), after the second (1), or in the final.",
        &candidates(advice),
    );
    body += &format!("<section><h2>The final again</h2><pre>{}</pre></section>\n", escape(again));
    document(&format!("{} — contend advise", advice.config.workload), &body)
}

fn section(title: &str, caption: &str, table: &Table) -> String {
    format!("<section><h2>{title}</h2><p class=\"soft\">{}</p>{}</section>\n", prose(caption), table.html())
}

/// Returns the ratios of the finalists to the fastest, with their intervals.
fn ratios(advice: &Advice) -> String {
    let one = |it: &Finalist| {
        it.to_first.map_or((1.0, 1.0, 1.0), |to| (to.ratio, to.low.unwrap_or(to.ratio), to.high.unwrap_or(to.ratio)))
    };
    let Some(scale) = Scale::of(advice.finalists.iter().map(|it| one(it).2), false) else { return String::new() };
    let entries = advice.finalists.iter().map(|it| {
        let (ratio, low, high) = one(it);
        let note = it.to_first.as_ref().map_or("the fastest".to_string(), show_ratio);
        Row {
            name: it.entry.clone(),
            short: show_digits(ratio),
            marks: vec![
                Mark::Range { low, high },
                Mark::Dot {
                    at: ratio,
                    shape: 0,
                    part: usize::from(!it.is_best),
                    title: format!("{}: {note}", it.entry),
                },
            ],
            note,
        }
    });
    let axis = Axis::new("throughput, as a part of the fastest", scale, show_digits);
    let chart = rows("Ratio of each finalist to the fastest", &axis, &entries.collect::<Vec<_>>());
    figure(
        "The final",
        "Throughput as a part of the fastest, with the interval that the rounds allow. Entries whose interval holds 1 are not told apart from it.",
        &chart,
        &finalists(advice),
    )
}

fn finalists(advice: &Advice) -> Table {
    let figures = ["median /s", "of the fastest", "aborts", "p99", "memory"].map(Column::figures);
    let mut table = Table::new("The final", [Column::text("entry")].into_iter().chain(figures));
    for it in &advice.finalists {
        table.row([
            it.entry.clone(),
            show_rate(it.measured.throughput_tps.median),
            it.to_first.as_ref().map_or("–".into(), show_ratio),
            show_percent(it.measured.abort_rate),
            show_ns(it.measured.latency_ns_p99),
            show_bytes(it.measured.memory_bytes),
        ]);
    }
    table
}

/// Returns the chart of throughput over simulated cores.
fn cores(advice: &Advice) -> String {
    let points = |entry: &str| -> Vec<(f64, f64)> {
        let of_entry = advice.on_cores.iter().filter(|it| it.entry == entry);
        of_entry.map(|it| (it.cores as f64, it.throughput_tps)).collect()
    };
    let mut names: Vec<&str> = advice.on_cores.iter().map(|it| it.entry.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let Some(y) = Scale::of(advice.on_cores.iter().map(|it| it.throughput_tps), true) else { return String::new() };
    let most = advice.question.cores.iter().copied().max().unwrap_or(1) as f64;
    let least = advice.question.cores.iter().copied().min().unwrap_or(1) as f64;
    let ticks = advice.question.cores.iter().map(|cores| (*cores as f64, cores.to_string())).collect();
    let lines = names.iter().enumerate().map(|(number, name)| Line {
        name,
        number: Some(number),
        points: points(name),
        ranges: Vec::new(),
        has_markers: true,
    });
    let lines = Lines {
        label: "Throughput by simulated cores",
        x: Axis { title: "simulated cores", scale: Scale::Logarithmic(least, most.max(least * 1.01)), ticks },
        y: Axis::new("committed transactions a second", y, show_rate),
        height: 260.0,
        lines: lines.collect(),
        is_joined: true,
        show: &|cores, rate| format!("{} a second on {}", show_rate(rate), counted(cores, "core")),
    };
    let mut table =
        Table::new("On simulated cores", [Column::text("entry"), Column::figures("cores"), Column::figures("/s")]);
    for it in &advice.on_cores {
        table.row([it.entry.clone(), it.cores.to_string(), show_rate(it.throughput_tps)]);
    }
    figure(
        "More cores",
        &format!("The fastest entries on {}, simulated.", advice.question.chip),
        &format!("{}{}", lines.legend(), lines.svg()),
        &table,
    )
}

/// Returns the accesses as a matrix: a row for each table or group of columns, a column for each
/// type.
fn uses(advice: &Advice) -> Table {
    let mut kinds: Vec<&str> = Vec::new();
    let mut whats: Vec<&str> = Vec::new();
    for it in &advice.uses {
        if !kinds.contains(&it.kind.as_str()) {
            kinds.push(&it.kind);
        }
        if !whats.contains(&it.what.as_str()) {
            whats.push(&it.what);
        }
    }
    let columns = [Column::text("table")].into_iter().chain(kinds.iter().map(|kind| Column::text(kind)));
    let mut table = Table::new("Accesses", columns);
    for what in &whats {
        let cell = |kind: &&str| {
            let of = advice.uses.iter().filter(|it| it.kind == **kind && it.what == **what);
            of.map(|it| it.how.as_str()).collect::<Vec<_>>().join(", ")
        };
        table.row([what.to_string()].into_iter().chain(kinds.iter().map(cell)));
    }
    table
}

fn candidates(advice: &Advice) -> Table {
    let mut table = Table::new("Candidates", ["candidate", "left", "reason"].map(Column::text));
    for it in &advice.candidates {
        table.row([it.entry.clone(), it.left.clone(), it.why.clone()]);
    }
    table
}
