//! The table of anomalies by isolation level: transactions of two or three sessions, step by step.
//!
//! The tests are those of Martin Kleppmann's Hermitage, and one of a key that is deleted and
//! inserted again. Each runs in one order of steps, on fresh tables. The verdict comes from the
//! history, not from the values that a test expects.

mod steps;

use std::collections::BTreeSet;

use contend_history::Class;
use contend_workloads::WorkloadFile;
use contend_workloads::file::view::View;
use serde::Serialize;

use crate::record::{Fault, RecordingTexts, history};
use crate::result::Counts;
use crate::run::{Made, SqlError, Watcher, judge, prepare};
use crate::system::Level;
use crate::target::Target;
use crate::text::Purpose;

/// The workload file with the transactions of the tests.
const FILE: &str = include_str!("../../../workloads/litmus.toml");

/// A test of an anomaly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Litmus {
    /// The anomaly, by its class and its usual name.
    pub(crate) name: &'static str,
    /// Its class.
    pub(crate) class: Class,
    /// The transactions, by their names in the file.
    pub(crate) transactions: &'static [&'static str],
    /// The transaction of each step, counted from 1: a statement, and at last the commit. Steps
    /// that are left over follow.
    pub(crate) order: &'static [usize],
}

/// Returns a test.
const fn test(
    name: &'static str,
    class: Class,
    transactions: &'static [&'static str],
    order: &'static [usize],
) -> Litmus {
    Litmus { name, class, transactions, order }
}

pub(crate) const TESTS: [Litmus; 13] = [
    test("G0 dirty write", Class::G0, &["write-both", "write-both"], &[1, 2, 1, 1, 2, 2]),
    test("G1a aborted read", Class::G1a, &["write-and-take-back", "read-first"], &[1, 2, 1, 2]),
    test("G1b intermediate read", Class::G1b, &["write-twice", "read-first"], &[1, 2, 1, 1, 2]),
    test("G1b write of a row that comes again", Class::G1b, &["delete-and-insert", "write-first"], &[1, 2, 1, 1, 2]),
    test(
        "G1c circular information flow",
        Class::G1c,
        &["write-first-read-second", "write-second-read-first"],
        &[1, 2, 1, 2, 1, 2],
    ),
    test(
        "OTV observed transaction vanishes",
        Class::Otv,
        &["write-both", "write-both", "read-both-thrice"],
        &[1, 1, 2, 1, 3, 3, 2, 3, 3, 2, 3, 3, 3],
    ),
    test("PMP phantom read", Class::GSingle, &["list-twice", "insert"], &[1, 2, 2, 1, 1]),
    test("P4 lost update", Class::GSingle, &["add-one", "add-one"], &[1, 2, 1, 2, 1, 2]),
    test("G-single read skew", Class::GSingle, &["read-both", "write-both"], &[1, 2, 2, 2, 1, 1]),
    test(
        "G-single write after a read of the past",
        Class::GSingle,
        &["read-first-write-second", "write-both"],
        &[1, 2, 2, 2, 1, 1],
    ),
    test(
        "G2-item write skew",
        Class::G2Item,
        &["read-both-write-first", "read-both-write-second"],
        &[1, 1, 2, 2, 1, 2, 1, 2],
    ),
    test(
        "G2 write skew by phantoms",
        Class::G2,
        &["list-and-insert-third", "list-and-insert-fourth"],
        &[1, 2, 1, 2, 1, 2],
    ),
    test(
        "G2-item read-only transaction",
        Class::G2Item,
        &["read-both-write-first", "write-second", "read-both"],
        &[1, 1, 2, 2, 3, 3, 3, 1, 1],
    ),
];

/// What became of an anomaly at a level.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The class of the worst anomaly that the committed transactions show; none if they show none.
    pub class: Option<Class>,
    /// Whether it is the anomaly of the test, or a worse one.
    pub shown: bool,
    /// Whether a step waited until another transaction had ended.
    pub waits: bool,
    /// Why the database aborted transactions.
    pub aborts: BTreeSet<String>,
}

impl Outcome {
    /// Whether the level shows what its promise forbids.
    pub fn breaks(&self, level: &Level) -> bool {
        self.class.is_some_and(|class| class.is_forbidden_by(level.promise))
    }

    /// Says what became of the anomaly.
    pub fn words(&self) -> String {
        let mut words = match (self.shown, self.class) {
            (true, Some(class)) => format!("SHOWN: {class}"),
            (_, Some(class)) => format!("prevented, but {class}"),
            (_, None) => "prevented".into(),
        };
        words += if self.waits { ", waits" } else { "" };
        self.aborts.iter().for_each(|reason| words += &format!(", {reason}"));
        words
    }
}

/// An anomaly at each level.
#[derive(Clone, Debug, Serialize)]
pub struct LitmusRow {
    /// The anomaly.
    pub name: &'static str,
    /// What became of it, in the order of the levels.
    pub outcomes: Vec<Outcome>,
}

/// The table of anomalies.
#[derive(Clone, Debug, Serialize)]
pub struct LitmusResult {
    /// The database, without a password.
    pub database: String,
    /// The server's name and version.
    pub server: String,
    /// The levels.
    pub levels: Vec<Level>,
    /// The anomalies.
    pub rows: Vec<LitmusRow>,
    /// Whether the run ended before its end: it was stopped, or it failed.
    pub partial: bool,
    /// Why the run failed when it had a whole level: the level, the test, and the database's words.
    pub error: Option<String>,
}

impl LitmusResult {
    /// Returns a sentence about each anomaly that a level shows although its promise forbids it.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for row in &self.rows {
            for (level, outcome) in self.levels.iter().zip(&row.outcomes) {
                if let Some(class) = outcome.class.filter(|_| outcome.breaks(level)) {
                    broken.push(format!("{} promises {}, and shows {class} ({})", level.name, level.promise, row.name));
                }
            }
        }
        broken
    }
}

/// Runs each test at each level. If the database fails when a level is whole, the result has the
/// whole levels and the error. The tables are removed in any case.
///
/// # Errors
/// The database can't be reached, refuses, or fails before a level is whole.
pub fn run(target: &Target, levels: &[String], watcher: &dyn Watcher) -> Result<LitmusResult, SqlError> {
    let made = Made::new(target)?;
    let outcome = match made.server.product.chosen(levels) {
        Ok(chosen) => table(target, chosen, watcher, &made, Fault::None),
        Err(error) => Err(SqlError::Refused(format!("{}: {error}", made.server.version))),
    };
    made.remove(outcome, |result| &mut result.error)
}

pub(crate) fn table(
    target: &Target,
    levels: Vec<Level>,
    watcher: &dyn Watcher,
    made: &Made,
    fault: Fault,
) -> Result<LitmusResult, SqlError> {
    let file = WorkloadFile::read("litmus.toml", FILE).map_err(SqlError::Failed)?;
    let view = file.options().and_then(|options| View::new(&options)).map_err(SqlError::Failed)?;
    let mut result = LitmusResult {
        database: target.to_string(),
        server: made.server.version.clone(),
        levels,
        rows: TESTS.iter().map(|test| LitmusRow { name: test.name, outcomes: Vec::new() }).collect(),
        partial: false,
        error: None,
    };
    'levels: for level in &result.levels {
        watcher.begin(level.name);
        for (row, test) in result.rows.iter_mut().zip(&TESTS) {
            if watcher.is_stopped() {
                break;
            }
            match outcome(made, *level, &view, test, watcher, fault) {
                Ok(outcome) => row.outcomes.push(outcome),
                Err(error) => {
                    result.error = Some(format!("{}, {}: {error}", level.name, test.name));
                    break 'levels;
                }
            }
        }
    }
    result.partial = result.rows.iter().any(|row| row.outcomes.len() < result.levels.len());
    // What was not run has no outcome.
    let whole = result.rows.iter().map(|row| row.outcomes.len()).min().unwrap_or(0);
    result.levels.truncate(whole);
    result.rows.iter_mut().for_each(|row| row.outcomes.truncate(whole));
    match result.error {
        Some(error) if whole == 0 => Err(SqlError::Failed(error)),
        _ => Ok(result),
    }
}

/// Runs one test at one level.
fn outcome(
    made: &Made,
    level: Level,
    view: &View,
    test: &Litmus,
    watcher: &dyn Watcher,
    fault: Fault,
) -> Result<Outcome, String> {
    prepare(&made.place, &made.server, view, Purpose::Record, watcher)?;
    let texts = RecordingTexts::new(made.server.product, view);
    let stepped = steps::run(made, level, view, &texts, test, fault)?;
    let history = history(view.relations(), &stepped.committed).map_err(|error| error.to_string())?;
    let verified = judge(&history, level.promise, Counts::default())?;
    let class = verified.worst.as_ref().map(|worst| worst.class);
    let shown = class.is_some_and(|class| class <= test.class);
    Ok(Outcome { class, shown, waits: stepped.waits, aborts: stepped.aborts })
}
