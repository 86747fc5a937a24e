//! What a file contains, in words: `contend workload check`.

use std::fmt::Write as _;

use contend_model::{Groups, counted};

use super::Program;
use super::loaded::loaded_rows;
use super::program::{Access, Change, Step};
use super::schema::{ColumnAt, Table};
use crate::workload::DeclaredRows;

/// What a transaction does with a table.
#[derive(Clone, Copy, Default, PartialEq)]
struct Uses {
    reads: bool,
    scans: bool,
    adds: bool,
    writes: bool,
    inserts: bool,
    deletes: bool,
}

impl Uses {
    fn words(self) -> String {
        let all = [
            (self.reads, "reads"),
            (self.scans, "scans"),
            (self.adds, "adds"),
            (self.writes, "writes"),
            (self.inserts, "inserts"),
            (self.deletes, "deletes"),
        ];
        all.iter().filter(|(does, _)| *does).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }

    fn and(self, other: Uses) -> Uses {
        Uses {
            reads: self.reads || other.reads,
            scans: self.scans || other.scans,
            adds: self.adds || other.adds,
            writes: self.writes || other.writes,
            inserts: self.inserts || other.inserts,
            deletes: self.deletes || other.deletes,
        }
    }

    fn changes(self) -> bool {
        self.adds || self.writes || self.inserts || self.deletes
    }

    /// Whether two transactions with these uses of one row conflict. Additions commute.
    fn conflicts(self, other: Uses) -> bool {
        let only_adds = |uses: Uses| uses.adds && uses == Uses { adds: true, ..Uses::default() };
        let both = self != Uses::default() && other != Uses::default();
        both && (self.changes() || other.changes()) && !(only_adds(self) && only_adds(other))
    }
}

/// What a transaction does with each group of columns of a table.
type ByGroup = Vec<Uses>;

/// Returns what a transaction does with a table, whatever the columns.
fn of_table(groups: &ByGroup) -> Uses {
    groups.iter().fold(Uses::default(), |all, uses| all.and(*uses))
}

/// Describes a compiled file.
pub(super) fn describe(program: &Program) -> String {
    let mut text = String::new();
    let mut line = |of: String| writeln!(text, "{of}").expect("a text takes all that is written");
    line("tables".into());
    let tables = program.tables.iter().zip(&program.rows).zip(&program.ordered);
    for (number, ((table, rows), ordered)) in tables.enumerate() {
        let index = if *ordered { "ordered index" } else { "hash index, or ordered by --index" };
        let of = match table.index_of {
            Some(of) => format!("index of {}", program.tables[of].name),
            None => format!("{}, {} a row", counted(table.columns.len(), "column"), counted(table.words * 8, "byte")),
        };
        let key = if table.shape.narrow { 8 } else { 32 };
        let groups = table.groups.len();
        let groups = if groups > 1 { format!(", {groups} groups of columns") } else { String::new() };
        let rows = match table.index_of.map_or_else(|| loaded_rows(program, number), |_| Some(*rows)) {
            Some(loaded) if loaded < *rows => format!(
                "{} of the {rows} in [rows] (the others have a key that exists already, or that does not fit)",
                counted(loaded, "row")
            ),
            Some(_) => counted(*rows, "row"),
            None => format!("{}, if all keys of [fill] differ", counted(*rows, "row")),
        };
        line(format!("  {}: {rows}, {of}, {key} bytes a key{groups}, {index}", table.name));
    }
    let uses: Vec<Vec<ByGroup>> = program.kinds.iter().map(|kind| uses_of(program, kind)).collect();
    line("transactions".into());
    let mut before = 0.0;
    for (number, kind) in program.kinds.iter().enumerate() {
        let share = program.weights[number] - before;
        before = program.weights[number];
        let parts = uses[number].iter().map(of_table).zip(&program.tables).filter(|(uses, _)| *uses != Uses::default());
        let parts: Vec<String> = parts.map(|(uses, table)| format!("{} {}", uses.words(), table.name)).collect();
        // A change of a range is one statement: its scan and the change of each row.
        let statements = || kind.code.accesses.iter().filter(|access| !access.is_endless);
        let (known, all) = (statements().filter(|access| access.known).count(), statements().count());
        let keys = match known {
            _ if known == all && kind.foresees => "all keys are known before it begins".into(),
            0 => "no key is known before it begins".into(),
            _ => format!("{known} of {} with keys that are known before it begins", counted(all, "statement")),
        };
        let read_only = if kind.read_only { ", declared read-only" } else { "" };
        line(format!("  {} ({:.1} %){read_only}: {}; {keys}", kind.name, share * 100.0, parts.join("; ")));
    }
    line("declared before a transaction begins".into());
    let rows = match program.declared_rows {
        DeclaredRows::All => "the rows",
        DeclaredRows::Known => "the rows that are known",
        DeclaredRows::None => "no rows",
    };
    let partitions = program.partitions.as_ref().map_or("no partitions".into(), |of| counted(of.count, "partition"));
    line(format!("  {rows}, {partitions}"));
    conflicts(program, &uses, &mut line);
    text
}

/// Describes which types of transactions conflict, and where. Groups of columns have versions of
/// their own under `ts=on`.
fn conflicts(program: &Program, uses: &[Vec<ByGroup>], line: &mut dyn FnMut(String)) {
    line("conflicts: tables where both touch a row, and one changes it in a way that does not commute".into());
    let mut has_split = false;
    for (first, kind) in program.kinds.iter().enumerate() {
        for (second, other) in program.kinds.iter().enumerate().skip(first) {
            let mut of = Vec::new();
            for (table, (a, b)) in program.tables.iter().zip(uses[first].iter().zip(&uses[second])) {
                let is_split = !a.iter().zip(b).any(|(a, b)| a.conflicts(*b));
                if of_table(a).conflicts(of_table(b)) {
                    has_split |= is_split;
                    of.push(format!("{}{}", table.name, if is_split { "*" } else { "" }));
                }
            }
            let of = if of.is_empty() { "none".into() } else { of.join(", ") };
            line(format!("  {} and {}: {of}", kind.name, other.name));
        }
    }
    if has_split {
        line("  * they touch different groups of columns there ([groups]), so they do not conflict under ts=on".into());
    }
}

/// Returns the groups of columns that an access depends on, or changes.
fn groups_of(access: &Access, table: &Table) -> Groups {
    let index = table.indexes.iter().find(|index| Some(index.table as u16) == access.by_index);
    let columns = index.into_iter().flat_map(|index| &index.columns);
    columns.fold(access.groups, |groups, column| match table.columns[*column].at {
        ColumnAt::Row { group, .. } => groups.union(Groups::of(group)),
        ColumnAt::Key(_) => groups,
    })
}

fn uses_of(program: &Program, kind: &super::Kind) -> Vec<ByGroup> {
    let mut uses: Vec<ByGroup> =
        program.tables.iter().map(|table| vec![Uses::default(); table.groups.len().max(1)]).collect();
    for step in &kind.code.steps {
        let none = Uses::default();
        let (of, these) = match *step {
            Step::Read { access } => (access, Uses { reads: true, ..none }),
            Step::Modify { access, .. } => (access, Uses { reads: true, writes: true, ..none }),
            Step::Update { access } => {
                let changes = &kind.code.accesses[access as usize].changes;
                let adds = changes.iter().all(|(change, ..)| *change != Change::Set);
                (access, Uses { adds, writes: !adds, ..none })
            }
            Step::Write { access } => (access, Uses { writes: true, ..none }),
            Step::Insert { access, .. } => (access, Uses { inserts: true, ..none }),
            Step::Delete { access } => (access, Uses { deletes: true, ..none }),
            Step::Scan { access } | Step::Each { access, .. } => (access, Uses { scans: true, ..none }),
            _ => continue,
        };
        let access = &kind.code.accesses[of as usize];
        let table = access.table as usize;
        let groups = groups_of(access, &program.tables[table]);
        for (group, uses) in uses[table].iter_mut().enumerate() {
            if groups.contains(Groups::of(group as u32)) {
                *uses = uses.and(these);
            }
        }
    }
    uses
}
