//! What a file contains, in words: `contend workload check`.

use std::fmt::Write as _;

use super::Program;
use super::program::{Access, Change, Step};

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

    fn changes(self) -> bool {
        self.adds || self.writes || self.inserts || self.deletes
    }

    /// Whether two transactions with these uses of one row conflict. Additions commute.
    fn conflicts(self, other: Uses) -> bool {
        let only_adds = |uses: Uses| uses.adds && uses == Uses { adds: true, ..Uses::default() };
        (self.changes() || other.changes()) && !(only_adds(self) && only_adds(other))
    }
}

/// Describes a compiled file.
pub(super) fn describe(program: &Program) -> String {
    let mut text = String::new();
    let mut line = |of: String| writeln!(text, "{of}").expect("a text takes all that is written");
    line("tables".into());
    for ((table, rows), ordered) in program.tables.iter().zip(&program.rows).zip(&program.ordered) {
        let index = if *ordered { "ordered index" } else { "hash index, or ordered by --index" };
        let of = match table.index_of {
            Some(of) => format!("index of {}", program.tables[of].name),
            None => format!("{} columns, {} bytes a row", table.columns.len(), table.words * 8),
        };
        let key = if table.shape.narrow { 8 } else { 32 };
        let groups = table.groups.len();
        let groups = if groups > 1 { format!(", {groups} groups of columns") } else { String::new() };
        line(format!("  {}: {rows} rows, {of}, {key} bytes a key{groups}, {index}", table.name));
    }
    let uses: Vec<Vec<Uses>> = program.kinds.iter().map(|kind| uses_of(program, kind)).collect();
    line("transactions".into());
    let mut before = 0.0;
    for (number, kind) in program.kinds.iter().enumerate() {
        let share = program.weights[number] - before;
        before = program.weights[number];
        let parts = uses[number].iter().zip(&program.tables).filter(|(uses, _)| **uses != Uses::default());
        let parts: Vec<String> = parts.map(|(uses, table)| format!("{} {}", uses.words(), table.name)).collect();
        let known = kind.code.accesses.iter().filter(|access| access.known).count();
        let all = kind.code.accesses.len();
        let keys = match known {
            _ if known == all && kind.foresees => "all keys are known before it begins".into(),
            0 => "no key is known before it begins".into(),
            _ => format!("{known} of {all} statements have keys that are known before it begins"),
        };
        let read_only = if kind.read_only { ", declared read-only" } else { "" };
        line(format!("  {} ({:.1} %){read_only}: {}; {keys}", kind.name, share * 100.0, parts.join("; ")));
    }
    line("declared before a transaction begins".into());
    let rows = if program.declares_rows { "the rows" } else { "no rows" };
    let partitions =
        program.partitions.as_ref().map_or("no partitions".into(), |of| format!("{} partitions", of.count));
    line(format!("  {rows}, {partitions}"));
    line("conflicts: tables where both touch a row, and one changes it in a way that does not commute".into());
    for (first, kind) in program.kinds.iter().enumerate() {
        for (second, other) in program.kinds.iter().enumerate().skip(first) {
            let tables = program.tables.iter().enumerate();
            let of = tables.filter(|(table, _)| {
                let (a, b) = (uses[first][*table], uses[second][*table]);
                a != Uses::default() && b != Uses::default() && a.conflicts(b)
            });
            let of: Vec<&str> = of.map(|(_, table)| table.name.as_str()).collect();
            let of = if of.is_empty() { "none".into() } else { of.join(", ") };
            line(format!("  {} and {}: {of}", kind.name, other.name));
        }
    }
    text
}

fn uses_of(program: &Program, kind: &super::Kind) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); program.tables.len()];
    for step in &kind.code.steps {
        let access = |access: u16| -> &Access { &kind.code.accesses[access as usize] };
        match *step {
            Step::Read { access: of } => uses[access(of).table as usize].reads = true,
            Step::Modify { access: of, .. } => {
                uses[access(of).table as usize].reads = true;
                uses[access(of).table as usize].writes = true;
            }
            Step::Update { access: of } => {
                let adds = access(of).changes.iter().all(|(change, ..)| *change != Change::Set);
                let uses = &mut uses[access(of).table as usize];
                if adds { uses.adds = true } else { uses.writes = true }
            }
            Step::Write { access: of } => uses[access(of).table as usize].writes = true,
            Step::Insert { access: of, .. } => uses[access(of).table as usize].inserts = true,
            Step::Delete { access: of } => uses[access(of).table as usize].deletes = true,
            Step::Scan { access: of } | Step::Each { access: of, .. } => uses[access(of).table as usize].scans = true,
            _ => {}
        }
    }
    uses
}
