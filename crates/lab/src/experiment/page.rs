//! The page of an experiment, and the page of many.

use super::{Curves, Experiment, Judgement, Published, Verdict};
use crate::compare::show_rate;
use crate::report::{breakdown_bars, document, escape};
use crate::result::Breakdown;

/// The page. `figure` is the figure as SVG, and `published` what the source has measured itself.
pub fn page(
    experiment: &Experiment,
    curves: &Curves,
    judgements: &[Judgement],
    figure: &str,
    published: Option<&str>,
) -> String {
    let mut body = format!(
        "<h1>{}</h1><p class=\"finding\">{}</p><p>{}</p><p class=\"soft\">{}</p>",
        escape(&experiment.id),
        escape(&experiment.title),
        escape(&experiment.question),
        escape(&experiment.source)
    );
    if !experiment.notes.is_empty() {
        body += &format!("<p>{}</p>", escape(experiment.notes.trim()));
    }
    body += &format!("<figure>{figure}</figure>");
    if let (Some(figure), Some(Published { by, .. })) = (published, &experiment.published) {
        body += &format!("<figure>{figure}<figcaption class=\"soft\">{}</figcaption></figure>", escape(by));
    }
    body += &breakdowns(experiment, curves);
    body += "<h2>What must come out</h2>";
    body += &verdicts(judgements);
    body += "<h2>Points</h2>";
    body += &points(curves);
    document(&experiment.title, &body)
}

/// Where the time went, at the x that the file names.
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
    format!(
        "<h2>Where the time went, at {} {at}</h2><figure>{}</figure>",
        escape(&experiment.plot.x),
        breakdown_bars(&rows)
    )
}

fn verdicts(judgements: &[Judgement]) -> String {
    if judgements.is_empty() {
        return "<p>Nothing is asserted.</p>".into();
    }
    let mut text = String::from(
        "<div class=\"scroll\"><table><tr><th class=\"l\">id</th><th class=\"l\">verdict</th><th class=\"l\">the source says</th>\
         <th class=\"l\">numbers</th></tr>",
    );
    for judgement in judgements {
        let class = match judgement.verdict {
            Verdict::Holds => "good",
            Verdict::Fails | Verdict::Unclear => "bad",
            Verdict::NotTold | Verdict::Waits => "soft",
        };
        text += &format!(
            "<tr><td class=\"l\">{}</td><td class=\"l {class}\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(&judgement.id),
            judgement.verdict.name(),
            escape(&judgement.paper),
            escape(&judgement.numbers)
        );
    }
    text + "</table></div>"
}

fn points(curves: &Curves) -> String {
    let mut text = String::from(
        "<div class=\"scroll\"><table><tr><th class=\"l\">series</th><th>x</th><th>median /s</th><th>min..max /s</th>\
         <th>aborts</th></tr>",
    );
    for point in curves.values().flatten() {
        text += &format!(
            "<tr><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}..{}</td><td>{:.1} %</td></tr>",
            escape(&point.series),
            point.x,
            show_rate(point.throughput.median),
            show_rate(point.throughput.min),
            show_rate(point.throughput.max),
            point.abort_rate * 100.0
        );
    }
    text + "</table></div>"
}

/// All verdicts as a table in Markdown, for a document.
pub fn verdict_table(experiments: &[(Experiment, Vec<Judgement>)]) -> String {
    let all = || experiments.iter().flat_map(|(_, judgements)| judgements);
    let count = |verdict: Verdict| all().filter(|one| one.verdict == verdict).count();
    let (holds, fails, waits) = (count(Verdict::Holds), count(Verdict::Fails), count(Verdict::Waits));
    let not_told = count(Verdict::NotTold);
    let judged = holds + fails + not_told + count(Verdict::Unclear);
    let mut text = format!(
        "Of {judged} assertions {holds} hold ({:.0} %), and {not_told} are not told; {waits} more wait for protocols that are not there yet.\n",
        100.0 * holds as f64 / judged.max(1) as f64
    );
    for (experiment, judgements) in experiments {
        text += &format!(
            "\n## {}: {}\n\n{}\n\n{}\n",
            experiment.id,
            experiment.title,
            experiment.source,
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

/// The page of many experiments: a line each, with how many assertions hold.
pub fn index(experiments: &[(Experiment, Vec<Judgement>)]) -> String {
    let mut body = String::from(
        "<h1>contend sweep</h1><p class=\"finding\">Experiments</p><div class=\"scroll\"><table><tr><th class=\"l\">experiment</th>\
         <th class=\"l\">question</th><th>hold</th><th>fail</th><th>not told</th><th>wait</th></tr>",
    );
    for (experiment, judgements) in experiments {
        let count = |verdicts: &[Verdict]| judgements.iter().filter(|one| verdicts.contains(&one.verdict)).count();
        body += &format!(
            "<tr><td class=\"l\"><a href=\"{0}/index.html\">{0}</a></td><td class=\"l\">{1}</td><td>{2}</td><td>{3}</td><td>{4}</td><td>{5}</td></tr>",
            escape(&experiment.id),
            escape(&experiment.question),
            count(&[Verdict::Holds]),
            count(&[Verdict::Fails, Verdict::Unclear]),
            count(&[Verdict::NotTold]),
            count(&[Verdict::Waits])
        );
    }
    document("contend sweep", &(body + "</table></div>"))
}
