//! What the checker finds, in a form that a person can follow and a program can read.

use std::fmt;

use contend_model::Isolation;
use serde::{Serialize, Serializer};

/// A class of anomaly, the most severe first: a level that forbids one class forbids every class
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A transaction's own operations contradict one another: it did not see its own write, or one
    /// scan returned a key twice. No level allows it: Adya's histories exclude it by definition.
    Internal,
    /// Dirty write: a cycle of write-dependencies, or versions of one item that no order can hold.
    G0,
    /// Aborted read: what was read is no state that a committed transaction left.
    G1a,
    /// Intermediate read: what was read is not the last write of the transaction that wrote it.
    G1b,
    /// Circular information flow: a cycle of write- and read-dependencies.
    G1c,
    /// Observed transaction vanishes: a transaction saw a write of another one, and a later read of
    /// it saw a state from before a write of that other one. Peter Bailis and others, "Highly
    /// available transactions: virtues and limitations", VLDB 2014.
    Otv,
    /// A cycle with exactly one anti-dependency: lost update, read skew.
    GSingle,
    /// A cycle with several anti-dependencies, no two in a row: a long fork, the mark of a snapshot
    /// that never was.
    GNonadjacent,
    /// A cycle with anti-dependencies on rows, some two of them in a row: write skew.
    G2Item,
    /// The same with an anti-dependency on the absence of a row: a phantom.
    G2,
}

impl Class {
    /// Every class, the most severe first.
    pub const ALL: [Self; 10] = [
        Self::Internal,
        Self::G0,
        Self::G1a,
        Self::G1b,
        Self::G1c,
        Self::Otv,
        Self::GSingle,
        Self::GNonadjacent,
        Self::G2Item,
        Self::G2,
    ];

    /// Returns whether a history of this level must not have an anomaly of the class.
    #[must_use]
    pub fn is_forbidden_by(self, level: Isolation) -> bool {
        let weakest = match self {
            Self::Internal | Self::G0 => Isolation::ReadUncommitted,
            Self::G1a | Self::G1b | Self::G1c => Isolation::ReadCommitted,
            Self::Otv => Isolation::MonotonicAtomicView,
            Self::GSingle | Self::GNonadjacent => Isolation::Snapshot,
            Self::G2Item | Self::G2 => Isolation::Serializable,
        };
        level >= weakest
    }

    fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::Otv => "OTV",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
            Self::G2 => "G2",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Why one transaction comes after another.
///
/// The predicate kinds come from reads that found no row: the version read is one of the key's
/// absence, which belongs to the predicate (a range, or `key = k`), not to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DependencyKind {
    /// It overwrote what the other wrote.
    WriteWrite,
    /// It read what the other wrote.
    WriteRead,
    /// It found no row because the other had deleted it.
    PredicateWriteRead,
    /// It overwrote what the other read.
    ReadWrite,
    /// It inserted a row where the other had found none.
    PredicateReadWrite,
}

impl DependencyKind {
    fn name(self) -> &'static str {
        match self {
            Self::WriteWrite => "ww",
            Self::WriteRead => "wr",
            Self::PredicateWriteRead => "predicate wr",
            Self::ReadWrite => "rw",
            Self::PredicateReadWrite => "predicate rw",
        }
    }

    pub(crate) fn is_anti(self) -> bool {
        matches!(self, Self::ReadWrite | Self::PredicateReadWrite)
    }
}

impl fmt::Display for DependencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for DependencyKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One line of an anomaly's evidence: an operation, and in a cycle why the next transaction comes
/// after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The transaction.
    pub txn: u64,
    /// Which of its operations, from 0.
    pub op: usize,
    /// What the operation is: read, insert, update, delete or scan.
    pub operation: &'static str,
    /// The table.
    pub table: String,
    /// The key.
    pub key: String,
    /// The version that the operation read or wrote; none: no row.
    pub version: Option<u64>,
    /// In a cycle, the dependency of the next transaction on this one.
    pub dependency: Option<DependencyKind>,
    /// Why.
    pub reason: String,
}

/// One anomaly with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// Its class.
    pub class: Class,
    /// What it is commonly called.
    pub name: &'static str,
    /// A cycle, each transaction depending on the one before, the first on the last; or operations
    /// that have no explanation.
    pub steps: Vec<Step>,
}

/// The most characters of a line of a drawing: a longer one is broken.
const LINE_MAX: usize = 100;

impl Anomaly {
    /// The cycle in a line: which transaction has to come after which, and by what.
    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut length = 0;
        for (number, step) in self.steps.iter().enumerate() {
            let next = self.steps[(number + 1) % self.steps.len()].txn;
            let kind = step.dependency.map_or("", DependencyKind::name);
            let arrow = format!(" --[{kind} {}/{}]--> T{next}", step.table, step.key);
            let arrow_length = arrow.chars().count();
            if number == 0 || length + arrow_length > LINE_MAX {
                let begin = format!("  T{}", step.txn);
                write!(f, "\n{begin}")?;
                length = begin.len();
            }
            f.write_str(&arrow)?;
            length += arrow_length;
        }
        Ok(())
    }
}

const HEADINGS: [&str; 6] = ["transaction", "operation", "key", "version", "edge", "why"];

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cycle = self.steps.iter().all(|step| step.dependency.is_some());
        write!(f, "{}: {}", self.class, self.name)?;
        if is_cycle {
            write!(
                f,
                ", a cycle of {} transactions (each comes after the one above, the first after the last)",
                self.steps.len()
            )?;
            self.draw(f)?;
        }
        let rows: Vec<[String; 6]> = self.steps.iter().map(row).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([HEADINGS[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
        for cells in std::iter::once(HEADINGS.map(str::to_owned)).chain(rows) {
            let mut line = String::from(" ");
            for (cell, width) in cells.iter().zip(&widths) {
                line.push_str(&format!(" {cell:<width$} "));
            }
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn row(step: &Step) -> [String; 6] {
    [
        format!("T{}", step.txn),
        step.operation.to_owned(),
        format!("{}/{}", step.table, step.key),
        step.version.map_or_else(|| "none".to_owned(), |version| version.to_string()),
        step.dependency.map_or_else(String::new, |kind| kind.to_string()),
        step.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stronger_level_forbids_more() {
        for pair in Isolation::ALL.windows(2) {
            for class in Class::ALL {
                assert!(!class.is_forbidden_by(pair[0]) || class.is_forbidden_by(pair[1]));
            }
        }
        assert!(Class::ALL.iter().all(|class| class.is_forbidden_by(Isolation::Serializable)));
        assert!(!Class::ALL.iter().any(|class| class.is_forbidden_by(Isolation::None)));
    }
}
