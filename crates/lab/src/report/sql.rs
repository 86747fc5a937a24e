//! The page of a workload file on a database that speaks SQL: its isolation levels beside each
//! other, what each promised, and what was seen.

use std::collections::BTreeSet;

use contend_history::{Anomaly, Isolation};
use contend_judge::edges;
use contend_model::counted;
use contend_sql::SqlResult;
use contend_sql::result::{KindResult, LevelResult, OpenLoop, Verified};

use super::charts::{self, promise_of, quantile_row, stacked};
use super::page::{Column, Table, document, escape, figure, prose};
use super::picture::{Axis, Mark, Row, Scale, rows};
use super::{cycle, definitions};
use crate::result::ResultFile;
use contend_runner::units::{show_latency, show_ns, show_percent, show_rate};

/// Returns the page. `beside` has the engine's runs of the same file; `command` repeats the run.
pub fn html(result: &SqlResult, beside: Option<&ResultFile>, command: &str) -> String {
    let body = [
        header(result),
        levels(result).html(),
        notes(result),
        throughput(result),
        latency(result),
        aborts(result),
        section(
            "Promises",
            "What each level promises, and what the recorded run showed. The checker builds the graph of dependencies from the versions that \
             the database returned. A level is judged by its own promise: an anomaly that it allows is shown, and is no failure.",
            &promises(result),
        ),
        anomalies(result),
        invariants(result),
        losses(result),
        beside.map(engine).unwrap_or_default(),
        setting(result, command),
    ];
    document(&format!("{} — contend sql", result.workload), &body.concat())
}

fn section(title: &str, caption: &str, table: &Table) -> String {
    format!("<section><h2>{title}</h2><p class=\"soft\">{}</p>{}</section>\n", prose(caption), table.html())
}

fn header(result: &SqlResult) -> String {
    let mut text = format!("<h1>contend sql · {}</h1>\n", escape(&result.workload));
    text += &format!("<p class=\"finding\">{}</p>\n", prose(&finding(result)));
    text += &super::partial(result.partial, result.error.as_deref());
    let SqlResult { server, database, clients, .. } = result;
    let setting = format!("{server} ({database}), {}, round trip {}.", counted(*clients, "client"), round_trip(result));
    format!("{text}<p class=\"soft\">{}</p>\n", prose(&setting))
}

fn round_trip(result: &SqlResult) -> String {
    show_latency(nanoseconds(result.round_trip_us))
}

fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1e3) as u64
}

/// The conclusion: which levels broke their promises, and which was the fastest.
fn finding(result: &SqlResult) -> String {
    let name = |of: &LevelResult| of.level.name.to_owned();
    let broken: Vec<String> = result.levels.iter().filter(|of| of.failed()).map(name).collect();
    let judged: Vec<String> = result.levels.iter().filter(|of| of.verified.is_some()).map(name).collect();
    let verdict = match broken.len() {
        0 if result.levels.is_empty() => return "No level was run.".into(),
        0 if judged.is_empty() => "No level was judged.".into(),
        0 if judged.len() < result.levels.len() => format!("Judged: {}, without a broken promise.", judged.join(", ")),
        0 if judged.len() == 1 => "The level kept its promise.".into(),
        0 => format!("Each of the {} levels kept its promise.", judged.len()),
        1 => format!("{} broke its promise.", broken[0]),
        _ => format!("{} broke their promises.", broken.join(", ")),
    };
    let rate = |of: &&LevelResult| of.measured.throughput_tps;
    let fastest = result.levels.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let fastest = fastest.map(|of| format!(" The most transactions a second: {}, {}.", name(of), show_rate(rate(&of))));
    format!("{verdict}{}", fastest.unwrap_or_default())
}

/// The table of the most important figures of each level.
fn levels(result: &SqlResult) -> Table {
    let columns = [
        Column::text("level"),
        Column::text("promise"),
        Column::figures("/s"),
        Column::figures("aborts").spare(),
        Column::figures("p99").spare(),
        Column::text("found"),
    ];
    let mut table = Table::new("Levels", columns);
    for of in &result.levels {
        let (style, verdict) = verdict(of);
        let slowest = of.measured.kinds.iter().map(|kind| kind.p99_us).fold(0.0, f64::max);
        table.styled_row([
            (String::new(), of.level.name.to_owned()),
            (style.into(), verdict),
            (String::new(), show_rate(of.measured.throughput_tps)),
            (String::new(), show_percent(of.measured.abort_rate)),
            (String::new(), show_latency(nanoseconds(slowest))),
            (String::new(), of.found()),
        ]);
    }
    table
}

/// A class of style, and the verdict in a few words with a sign of its own.
fn verdict(of: &LevelResult) -> (&'static str, String) {
    let promise = of.level.promise;
    match &of.verified {
        _ if of.failed() => ("bad", format!("✗ broke {promise}")),
        Some(_) => ("good", format!("✓ kept {promise}")),
        None => ("", format!("{promise}, not judged")),
    }
}

/// Says what arrived in an open loop, and whether the database kept up.
pub fn arrivals(open: &OpenLoop) -> String {
    let OpenLoop { rate_tps, offered, not_begun, saturated } = open;
    let outcome = if *saturated { ": saturated, so latencies are lower bounds" } else { "" };
    let rate = show_rate(*rate_tps);
    format!("{rate}/s arrived, {not_begun} of {offered} were not begun at the end{outcome}")
}

/// The sentences that a reader of the figures needs.
fn notes(result: &SqlResult) -> String {
    let open = result.levels.iter().filter_map(|of| Some((of.level.name, of.measured.open_loop.as_ref()?)));
    let lines = open.map(|(name, open)| format!("<li>{}</li>", prose(&format!("{name}: {}", arrivals(open)))));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("<ul>{lines}</ul>\n") }
}

/// The style of the marks of a level: that of its promise.
fn style(of: &LevelResult) -> usize {
    promise_of(of.level.promise.name())
}

fn throughput(result: &SqlResult) -> String {
    let rates = result.levels.iter().map(|of| of.measured.throughput_tps);
    let Some(scale) = Scale::of(rates, false) else { return String::new() };
    let mut table =
        Table::new("Throughput", [Column::text("level"), Column::figures("/s"), Column::figures("commits")]);
    let mut bars = Vec::new();
    for of in &result.levels {
        let rate = of.measured.throughput_tps;
        table.row([of.level.name.into(), show_rate(rate), of.measured.counts.commits.to_string()]);
        let title = format!("{}: {} a second", of.level.name, show_rate(rate));
        bars.push(Row {
            name: of.level.name.into(),
            note: show_rate(rate),
            short: show_rate(rate),
            marks: vec![Mark::Bar { from: 0.0, to: rate, part: style(of), title }],
        });
    }
    let axis = Axis::new("committed transactions a second", scale, show_rate);
    let legend = charts::promises(result.levels.iter().map(style));
    figure(
        "Throughput",
        "Committed transactions a second of each level's measured run.",
        &format!("{legend}{}", rows("Throughput of each level", &axis, &bars)),
        &table,
    )
}

/// Each level with each type of transactions that has committed.
fn kinds(result: &SqlResult) -> impl Iterator<Item = (&LevelResult, &KindResult)> {
    let kinds = result.levels.iter().flat_map(|of| of.measured.kinds.iter().map(move |kind| (of, kind)));
    kinds.filter(|(_, kind)| kind.commits > 0)
}

fn latency(result: &SqlResult) -> String {
    let quantiles = |kind: &KindResult| [kind.p50_us, kind.p99_us, kind.p999_us].map(nanoseconds);
    let all = kinds(result).flat_map(|(_, kind)| quantiles(kind)).map(|ns| ns as f64);
    let Some(scale) = Scale::of(all, true) else { return String::new() };
    let figures = ["p50", "p99", "p99.9", "commits"].map(Column::figures);
    let columns = ["level", "transaction"].map(Column::text).into_iter().chain(figures);
    let mut table = Table::new("Latency", columns);
    let mut entries = Vec::new();
    for (of, kind) in kinds(result) {
        let quantiles = quantiles(kind);
        let [p50, p99, p999] = quantiles.map(show_latency);
        let name = format!("{} · {}", of.level.name, kind.kind);
        entries.push(quantile_row(name, quantiles, style(of)));
        table.row([of.level.name.into(), kind.kind.clone(), p50, p99, p999, kind.commits.to_string()]);
    }
    let (axis, from) = match result.levels.iter().any(|of| of.measured.open_loop.is_some()) {
        true => ("time from when it was due, logarithmic", "From the moment when a transaction was due"),
        false => ("time from the first try to the commit, logarithmic", "From the first try"),
    };
    let axis = Axis::new(axis, scale, |ns| show_ns(ns as u64));
    figure(
        "Latency",
        &format!(
            "{from} to the commit, for each level and type of transactions: a circle is the median (p50), a diamond stands where 99 of 100 are \
             done (p99), and a square where 999 of 1000 are (p99.9)."
        ),
        &rows("Latency of each level", &axis, &entries),
        &table,
    )
}

fn aborts(result: &SqlResult) -> String {
    let reasons = result.levels.iter().flat_map(|of| of.measured.counts.aborts_by_reason.keys().map(String::as_str));
    let reasons: Vec<&str> = reasons.collect::<BTreeSet<_>>().into_iter().collect();
    let share = |of: &LevelResult, reason: &str| {
        let count = of.measured.counts.aborts_by_reason.get(reason).copied().unwrap_or_default();
        count as f64 / of.measured.counts.tries().max(1) as f64
    };
    let shares = |of: &LevelResult| reasons.iter().map(|reason| share(of, reason)).collect::<Vec<_>>();
    let bars: Vec<_> = result.levels.iter().map(|of| (of.level.name.to_owned(), shares(of))).collect();
    let columns = [Column::text("level")].into_iter().chain(reasons.iter().map(|reason| Column::figures(reason)));
    let mut table = Table::new("Aborts", columns);
    for (name, shares) in &bars {
        table.row([name.clone()].into_iter().chain(shares.iter().map(|share| show_percent(*share))));
    }
    let chart = match reasons.len() {
        0 if result.levels.is_empty() => return String::new(),
        0 => "<p>No transaction was aborted.</p>".into(),
        _ => stacked("Aborted tries of each level by reason", "share of all tries", &bars, &reasons, true),
    };
    figure("Aborts", "Tries that the database aborted, by the reason that it gave.", &chart, &table)
}

fn promises(result: &SqlResult) -> Table {
    let texts = ["level", "judged as", "worst anomaly"].map(Column::text);
    let figures = ["anomalies", "transactions", "operations"].map(Column::figures);
    let columns = texts.into_iter().chain(figures).chain(["order of versions", "serial replay"].map(Column::text));
    let mut table = Table::new("Promises", columns);
    for of in &result.levels {
        let Some(verified) = &of.verified else { continue };
        table.row([
            of.level.name.into(),
            of.level.promise.to_string(),
            verified.worst.as_ref().map_or("none".into(), |worst| format!("{} ({})", worst.class, worst.name)),
            verified.anomalies.to_string(),
            verified.counts.commits.to_string(),
            verified.operations.to_string(),
            if verified.exact { "known" } else { "known in part" }.into(),
            match &verified.serial_replay_differs {
                Some(differs) => format!("differs: {differs}"),
                None if of.level.promise == Isolation::Serializable && verified.exact && verified.worst.is_none() => {
                    "the same".into()
                }
                None => "–".into(),
            },
        ]);
    }
    table
}

/// The evidence of each level's anomalies.
fn anomalies(result: &SqlResult) -> String {
    let mut text = String::new();
    for of in &result.levels {
        let Some((verified, worst)) = of.verified.as_ref().and_then(|it| Some((it, it.worst.as_ref()?))) else {
            continue;
        };
        let promise = of.level.promise;
        let judged = |anomaly: &Anomaly| match anomaly.class.is_forbidden_by(promise) {
            true => format!("{} ({}): {promise} forbids it", anomaly.class, anomaly.name),
            false => format!("{} ({}): {promise} allows it", anomaly.class, anomaly.name),
        };
        let class = if verified.kept { "" } else { " class=\"bad\"" };
        text += &format!("<dt>{}</dt><dd{class}>{}{}", of.level.name, prose(&judged(worst)), evidence(worst));
        let further = &verified.further;
        if !further.is_empty() {
            let all = further.iter().map(|it| format!("<p>{}</p>{}", prose(&judged(it)), evidence(it)));
            text += &format!("<details><summary>{} more</summary>{}</details>", further.len(), all.collect::<String>());
        }
        text += "</dd>\n";
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<section><h2>Anomalies</h2><p class=\"soft\">{}</p><dl>\n{text}</dl></section>\n",
        prose(
            "The worst anomaly of each level with the transactions in it, and at most nine others. In a cycle each transaction has to come after \
             the one before it, and the first after the last."
        )
    )
}

fn evidence(anomaly: &Anomaly) -> String {
    format!("{}<pre>{}</pre>", cycle::svg(&edges(anomaly)), escape(&anomaly.to_string()))
}

fn invariants(result: &SqlResult) -> String {
    let mut table = Table::new("Broken invariants", ["level", "run", "invariant"].map(Column::text));
    for of in &result.levels {
        for (run, sentence) in of.failed_invariants() {
            let style = if of.level.promise == Isolation::Serializable { "bad" } else { "" };
            let cells = [of.level.name.to_owned(), run.to_owned(), sentence.to_owned()];
            table.styled_row(cells.map(|cell| (style.to_owned(), cell)));
        }
    }
    let caption = "The invariants of the file are checked after the measured run and after the recorded one. A level that promises less than \
                   serializability may break them.";
    match table.is_empty() {
        true if result.levels.is_empty() || result.partial => String::new(),
        true => {
            format!("<section><h2>Invariants</h2><p class=\"soft\">{}</p><p>All held.</p></section>\n", prose(caption))
        }
        false => section("Invariants", caption, &table),
    }
}

/// What was acknowledged and is not there, and what has no answer.
fn losses(result: &SqlResult) -> String {
    let figures = ["lost writes", "commits without an answer"].map(Column::figures);
    let columns = [Column::text("level")].into_iter().chain(figures).chain([Column::text("for example")]);
    let mut table = Table::new("Losses", columns);
    for of in &result.levels {
        let Some(Verified { losses, counts, .. }) = &of.verified else { continue };
        let unknown = counts.unknown + of.measured.counts.unknown;
        let style = if losses.count > 0 { "bad" } else { "" };
        let examples = if losses.examples.is_empty() { "–".into() } else { losses.examples.join("; ") };
        let cells = [of.level.name.to_owned(), losses.count.to_string(), unknown.to_string(), examples];
        table.styled_row(cells.map(|cell| (style.to_owned(), cell)));
    }
    if table.is_empty() {
        return String::new();
    }
    section(
        "What was lost",
        "Writes that the database acknowledged in the recorded run and does not have at its end, or has although they were rolled back. A commit \
         without an answer is one whose connection was lost, so nobody knows how it ended.",
        &table,
    )
}

/// What protocols of the engine do with the same transactions.
fn engine(beside: &ResultFile) -> String {
    let texts = ["protocol", "verified"].map(Column::text);
    let columns = texts.into_iter().chain(["/s", "aborts", "p99"].map(Column::figures));
    let mut table = Table::new("Beside", columns);
    for entry in &beside.protocols {
        let (style, verdict) = super::verdict(entry);
        let figures = match &entry.measured {
            Some(measured) => [
                show_rate(measured.throughput_tps.median),
                show_percent(measured.abort_rate),
                show_latency(measured.latency_ns_p99),
            ],
            None => ["–"; 3].map(String::from),
        };
        let figures = figures.map(|figure| (String::new(), figure));
        table.styled_row([(String::new(), entry.protocol.clone()), (style.into(), verdict)].into_iter().chain(figures));
    }
    section(
        "Beside",
        "What protocols of the engine do with the same transactions, as many clients, and the measured round trip before each statement. They keep \
         the data in memory, and have no SQL, no network and no disk, so this is no ranking with the levels above.",
        &table,
    )
}

fn setting(result: &SqlResult, command: &str) -> String {
    let items = [
        ("server", result.server.clone()),
        ("database", result.database.clone()),
        ("clients", result.clients.to_string()),
        ("round trip", round_trip(result)),
        ("seed", result.seed.to_string()),
    ];
    format!(
        "<section><h2>The same again</h2><pre>{}</pre></section>\n<section><h2>Configuration</h2>{}</section>\n",
        escape(command),
        definitions(&items)
    )
}
