//! The page of an experiment, and the index page of many.

use super::plot::{drawn, published, show, title};
use super::{Curves, Experiment, Judgement, Published, Verdict};
use crate::report::{Column, Table, document, escape, figure, prose, table_of_times, times_of};
use crate::result::Breakdown;
use contend_runner::units::{show_latency, show_percent, show_rate};

/// Returns the page of an experiment.
pub fn page(experiment: &Experiment, curves: &Curves, judgements: &[Judgement]) -> String {
    let paragraph = |class: &str, text: &str| match text.trim() {
        "" => String::new(),
        text => format!("<p class=\"{class}\">{}</p>\n", prose(text)),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&experiment.id));
    for (class, text) in [
        ("finding", &experiment.title),
        ("", &experiment.question),
        ("soft", &experiment.source),
        ("", &experiment.notes),
    ] {
        body += &paragraph(class, text);
    }
    if let Some(drawn) = drawn(experiment, curves) {
        let caption = "Markers show the median of what was measured at a point, and bars the range from the least to the greatest.";
        body += &figure("What came out", caption, &drawn.on_page, &points(curves));
    }
    if let (Some(drawn), Some(of_source)) = (published(experiment, curves), &experiment.published) {
        body += &figure("As published", &of_source.by, &drawn.on_page, &published_points(experiment, of_source));
    }
    body += &breakdowns(experiment, curves);
    body += "<section><h2>What must come out</h2>";
    body += &verdicts(judgements);
    document(&experiment.title, &format!("{body}</section>\n"))
}

/// Returns the breakdowns of the time at the x that the file names.
fn breakdowns(experiment: &Experiment, curves: &Curves) -> String {
    let Some(at) = &experiment.plot.breakdown else { return String::new() };
    let rows: Vec<(String, &Breakdown)> = curves
        .iter()
        .filter_map(|(name, points)| {
            let point = points.iter().find(|point| point.x == *at)?;
            Some((name.clone(), point.breakdown.as_ref()?))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let caption = format!("The workers' time at {} {at}.", experiment.plot.x);
    figure("Where the time went", &caption, &times_of(&rows), &table_of_times(&rows))
}

fn verdicts(judgements: &[Judgement]) -> String {
    if judgements.is_empty() {
        return "<p>Nothing is asserted.</p>".into();
    }
    let mut table = Table::new("Assertions", ["id", "verdict", "the source says", "numbers"].map(Column::text));
    for judgement in judgements {
        let (style, sign) = match judgement.verdict {
            Verdict::Holds => ("good", '✓'),
            Verdict::Fails | Verdict::Unclear => ("bad", '✗'),
            Verdict::NotTold | Verdict::Waits => ("soft", '–'),
        };
        table.styled_row([
            (String::new(), judgement.id.clone()),
            (style.into(), format!("{sign} {}", judgement.verdict.name())),
            (String::new(), judgement.paper.clone()),
            (String::new(), judgement.numbers.clone()),
        ]);
    }
    table.html()
}

fn points(curves: &Curves) -> Table {
    let figures = ["x", "median /s", "least /s", "most /s", "aborts", "p50", "p99"].map(Column::figures);
    let mut table = Table::new("Points", [Column::text("series")].into_iter().chain(figures));
    for point in curves.values().flatten() {
        let spread = point.throughput;
        table.row([
            point.series.clone(),
            point.x.to_string(),
            show_rate(spread.median),
            show_rate(spread.min),
            show_rate(spread.max),
            show_percent(point.abort_rate),
            show_latency(point.latency_ns_p50),
            show_latency(point.latency_ns_p99),
        ]);
    }
    table
}

fn published_points(experiment: &Experiment, published: &Published) -> Table {
    let figures = [&experiment.plot.x, title(experiment)].map(Column::figures);
    let mut table = Table::new("Published points", [Column::text("series")].into_iter().chain(figures));
    for (name, points) in &published.curves {
        points.iter().for_each(|(x, y)| table.row([name.clone(), x.to_string(), show(experiment.plot.y, *y)]));
    }
    table
}

/// Returns all verdicts as a table in Markdown, for a document.
pub fn verdict_table(experiments: &[(Experiment, Vec<Judgement>)]) -> String {
    let all = || experiments.iter().flat_map(|(_, judgements)| judgements);
    let count = |verdict: Verdict| all().filter(|one| one.verdict == verdict).count();
    let (holds, fails, waits) = (count(Verdict::Holds), count(Verdict::Fails), count(Verdict::Waits));
    let not_told = count(Verdict::NotTold);
    let judged = holds + fails + not_told + count(Verdict::Unclear);
    let summary = format!(
        "Assertions that hold: {holds} of {judged} ({:.0} %); not told: {not_told}; waiting for protocols that are not there yet: {waits}.",
        100.0 * holds as f64 / judged.max(1) as f64
    );
    let mut text = wrapped(&summary, "") + "\n";
    for (experiment, judgements) in experiments {
        text += &format!(
            "\n## {}: {}\n\n{}\n\n{}\n",
            experiment.id,
            experiment.title,
            wrapped(&experiment.source, ""),
            experiment.notes.trim()
        );
        text += "\n| id | verdict | the source says | ours |\n| --- | --- | --- | --- |\n";
        for Judgement { id, verdict, paper, numbers, why, .. } in judgements {
            let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
            let is_news = why.is_empty() || *verdict == Verdict::Holds;
            let why = if is_news { String::new() } else { format!(" **Why:** {why}") };
            text += &format!("| {id} | {} | `{}` | {}{} |\n", verdict.name(), cell(paper), cell(numbers), cell(&why));
        }
    }
    text
}

/// Breaks a paragraph of a document into lines of at most 100 columns. Each line but the first
/// begins with `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    const COLUMNS: usize = 100;
    let (mut all, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            all = all + "\n" + indent + word;
            column = indent.len() + length;
        } else {
            let space = if column > 0 { " " } else { "" };
            all = all + space + word;
            column += space.len() + length;
        }
    }
    all
}

/// Returns the index page: a line for each experiment, with the numbers of assertions by verdict.
pub fn index(experiments: &[(Experiment, Vec<Judgement>)]) -> String {
    let mut body = String::from("<h1>contend sweep</h1><p class=\"finding\">Experiments</p><ul>");
    for (Experiment { id, .. }, _) in experiments {
        body += &format!("<li><a href=\"{0}/index.html\">{0}</a></li>", escape(id));
    }
    let names = [Column::text("experiment"), Column::text("question").spare()];
    let figures = ["hold", "fail", "not told", "wait"].map(Column::figures);
    let mut table = Table::new("Assertions", names.into_iter().chain(figures));
    for (experiment, judgements) in experiments {
        let count =
            |verdicts: &[Verdict]| judgements.iter().filter(|one| verdicts.contains(&one.verdict)).count().to_string();
        table.row([
            experiment.id.clone(),
            experiment.question.clone(),
            count(&[Verdict::Holds]),
            count(&[Verdict::Fails, Verdict::Unclear]),
            count(&[Verdict::NotTold]),
            count(&[Verdict::Waits]),
        ]);
    }
    document("contend sweep", &format!("{body}</ul>\n{}", table.html()))
}
