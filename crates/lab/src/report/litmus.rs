//! The page of the table of anomalies: what became of each anomaly at each level of a database.

use contend_model::counted;
use contend_sql::litmus::{LitmusResult, Outcome};
use contend_sql::system::Level;

use super::definitions;
use super::page::{Column, Table, document, escape, prose};

/// What the words of a cell mean.
const WORDS: [(&str, &str); 4] = [
    ("SHOWN", "the history has the anomaly of the test, or a worse one; its class follows"),
    ("prevented", "it does not; a class behind “but” is that of a lesser anomaly"),
    ("waits", "a step waited until another transaction had ended"),
    ("other words", "the database's reasons to abort a transaction"),
];

/// Returns the page. `command` repeats the run.
pub fn html(result: &LitmusResult, command: &str) -> String {
    let mut body = format!("<h1>contend sql · litmus</h1>\n<p class=\"finding\">{}</p>\n", prose(&finding(result)));
    body += &super::partial(result.partial, result.error.as_deref());
    let LitmusResult { server, database, .. } = result;
    body += &format!("<p class=\"soft\">{}</p>\n", prose(&format!("{server} ({database}).")));
    let broken = result.broken();
    if !broken.is_empty() {
        let lines: String = broken.iter().map(|line| format!("<li>{}</li>", prose(line))).collect();
        body += &format!("<ul class=\"bad\">{lines}</ul>\n");
    }
    body += &table(result).html();
    let words = WORDS.map(|(word, meaning)| (word, meaning.to_owned()));
    body += &format!(
        "<section><h2>The words</h2><p class=\"soft\">{}</p>{}</section>\n",
        prose(
            "A test has two or three transactions, which take their steps in one given order. The verdict comes from the history of the \
             committed ones. A level is judged by its own promise: an anomaly that it allows is shown, and is no failure."
        ),
        definitions(&words)
    );
    body += &format!("<section><h2>The same again</h2><pre>{}</pre></section>\n", escape(command));
    document(&format!("anomalies on {server} — contend sql"), &body)
}

/// The conclusion: which levels broke their promises.
fn finding(result: &LitmusResult) -> String {
    let breaks = |(number, level): &(usize, &Level)| {
        result.rows.iter().any(|row| row.outcomes.get(*number).is_some_and(|outcome| outcome.breaks(level)))
    };
    let broken: Vec<&str> = result.levels.iter().enumerate().filter(breaks).map(|(_, level)| level.name).collect();
    let tests = counted(result.rows.len(), "test");
    match (result.levels.len(), broken.len()) {
        (0, _) => "No level was run.".into(),
        (1, 0) => format!("The level kept its promise in {tests}."),
        (levels, 0) => format!("Each of the {levels} levels kept its promise in {tests}."),
        (_, 1) => format!("{} broke its promise.", broken[0]),
        _ => format!("{} broke their promises.", broken.join(", ")),
    }
}

/// The anomalies by level. The first row has the promises.
fn table(result: &LitmusResult) -> Table {
    let levels = result.levels.iter().map(|level| Column::text(level.name));
    let mut table = Table::new("Anomalies", [Column::text("anomaly")].into_iter().chain(levels));
    let promises = result.levels.iter().map(|level| level.promise.to_string());
    table.row(["promise".to_owned()].into_iter().chain(promises));
    for row in &result.rows {
        let cells = result.levels.iter().zip(&row.outcomes).map(|(level, outcome)| cell(level, outcome));
        table.styled_row([(String::new(), row.name.to_owned())].into_iter().chain(cells));
    }
    table
}

/// A class of style, and what became of the anomaly, with a sign of its own where it breaks the
/// promise.
fn cell(level: &Level, outcome: &Outcome) -> (String, String) {
    let words = outcome.words();
    match () {
        () if outcome.breaks(level) => ("bad".into(), format!("✗ {words}")),
        () if outcome.shown => (String::new(), words),
        () => ("good".into(), words),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use contend_history::{Class, Isolation};
    use contend_sql::litmus::LitmusRow;

    use super::*;

    #[test]
    fn an_anomaly_that_the_promise_forbids_stands_out_from_one_that_it_allows() {
        let outcome = |class| Outcome { class, shown: class.is_some(), waits: false, aborts: BTreeSet::new() };
        let levels = [("read-committed", Isolation::ReadCommitted), ("serializable", Isolation::Serializable)];
        let mut result = LitmusResult {
            database: "sqlite:<t>".into(),
            server: "SQLite".into(),
            levels: levels.map(|(name, promise)| Level { name, promise }).to_vec(),
            rows: vec![LitmusRow {
                name: "P4 lost update",
                outcomes: vec![outcome(Some(Class::GSingle)), outcome(Some(Class::GSingle))],
            }],
            partial: false,
            error: None,
        };
        let page = html(&result, "contend sql litmus");
        for part in [
            "serializable broke its promise.",
            "<td class=\"l\">SHOWN: G-single</td><td class=\"l bad\">✗ SHOWN: G-single</td>",
            "sqlite:&lt;t&gt;",
            "serializable promises serializable, and shows G-single",
            "<pre>contend sql litmus</pre>",
        ] {
            assert!(page.contains(part), "'{part}' is not in: {page}");
        }
        result.rows[0].outcomes[1] = outcome(None);
        let page = html(&result, "contend sql litmus");
        assert!(page.contains("Each of the 2 levels kept its promise in 1 test.") && !page.contains("✗"), "{page}");
        assert!(page.contains("<td class=\"l good\">prevented</td>"), "{page}");
    }
}
