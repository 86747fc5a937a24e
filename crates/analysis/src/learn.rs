//! Declarations that are learned from transactions as they run.
//!
//! [`Noted`] wraps a running transaction and notes each access in a [`Trace`]. [`Learned`] collects
//! the traces of many transactions, by types. It proposes declarations for them, and says which
//! declarations were never used. A branch that no sample has taken is missing in a proposal, so a
//! proposal is a beginning, and the check of each access finds the rest.
//!
//! The pieces are those that a body runs by [`Txn::piece`](contend_model::Txn::piece). If it runs
//! none, they are guessed: each table is a piece, and tables that the body goes back and forth
//! between are one, as in a loop.

mod rust;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};

use contend_model::pieces::{Access, DeclaredPiece, DeclaredTable, Mode, Piece, TransactionType, TypeSet};
use contend_model::{Abort, Direction, Groups, Key, PieceEnd, Projection, RawTxn, RowUpdate, Table};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// What a transaction has done, step by step.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: Vec<Event>,
    piece: Option<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    piece: Option<Piece>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Begins,
    Accesses(Access),
    Cancels,
}

impl Trace {
    fn note(&mut self, what: What) {
        self.events.push(Event { piece: self.piece, what });
    }

    fn access<K: Key>(&mut self, table: &Table<K>, mode: Mode, groups: Groups) {
        self.note(What::Accesses(Access { table: table.number() as usize, groups, mode }));
    }
}

/// A transaction of any store whose accesses are noted.
#[derive(Debug)]
pub struct Noted<'t, T> {
    inner: &'t mut T,
    trace: &'t mut Trace,
}

impl<'t, T: RawTxn> Noted<'t, T> {
    /// Wraps a transaction that has just begun. The trace begins anew.
    pub fn new(inner: &'t mut T, trace: &'t mut Trace) -> Self {
        trace.events.clear();
        trace.piece = None;
        Noted { inner, trace }
    }
}

impl<T: RawTxn> RawTxn for Noted<'_, T> {
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        self.trace.access(table, Mode::Read, columns.groups());
        self.inner.read_row(table, key, columns)
    }

    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.trace.access(table, Mode::Write, groups);
        self.inner.modify_row(table, key, groups)
    }

    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.trace.access(table, Mode::Write, groups);
        self.inner.write_row(table, key, groups)
    }

    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
        let mode = if update.commutes() { Mode::Update } else { Mode::Write };
        self.trace.access(table, mode, update.groups());
        self.inner.update_row(table, key, update)
    }

    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        self.trace.access(table, Mode::Insert, Groups::ALL);
        self.inner.insert_row(table, key)
    }

    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        self.trace.access(table, Mode::Delete, Groups::ALL);
        self.inner.delete_row(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.trace.access(table, Mode::Read, columns.groups());
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }

    /// A sample need not take its time.
    fn idle(&mut self, _: u64) {}

    fn begin_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        self.trace.piece = Some(piece);
        self.trace.note(What::Begins);
        self.inner.begin_piece(piece)
    }

    fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        self.trace.piece = None;
        self.inner.end_piece(piece, failed)
    }

    fn defers(&self) -> bool {
        self.inner.defers()
    }

    fn later_row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        self.inner.later_row(table, key, writes);
    }

    fn later_inserts<K: Key>(&mut self, table: &Table<K>, keys: RangeInclusive<K>) {
        self.inner.later_inserts(table, keys);
    }

    fn begin_later(&mut self) -> Result<(), Abort> {
        self.inner.begin_later()
    }

    fn note_cancel(&mut self) -> Abort {
        // A body may cancel behind a piece, and that counts as a cancel in it.
        let last = self.trace.events.iter().rev().find_map(|event| event.piece);
        let piece = self.trace.piece.or(last);
        self.trace.events.push(Event { piece, what: What::Cancels });
        self.inner.note_cancel()
    }
}

/// What was done to a table.
#[derive(Clone, Copy, Debug)]
struct Touched {
    read: Groups,
    written: Groups,
    updated: Groups,
    inserted: bool,
    deleted: bool,
}

impl Touched {
    const NOTHING: Touched =
        Touched { read: Groups::NONE, written: Groups::NONE, updated: Groups::NONE, inserted: false, deleted: false };

    fn add(&mut self, mode: Mode, groups: Groups) {
        match mode {
            Mode::Read | Mode::Settled => self.read = self.read.union(groups),
            Mode::Write => self.written = self.written.union(groups),
            Mode::Update => self.updated = self.updated.union(groups),
            Mode::Insert => self.inserted = true,
            Mode::Delete => self.deleted = true,
        }
    }

    fn union(&mut self, other: &Touched) {
        self.read = self.read.union(other.read);
        self.written = self.written.union(other.written);
        self.updated = self.updated.union(other.updated);
        self.inserted |= other.inserted;
        self.deleted |= other.deleted;
    }

    /// Returns the fewest accesses that allow all of this.
    fn accesses(&self, table: usize) -> impl Iterator<Item = Access> {
        // A delete reads the row. A piece that may write a group may also read and update it.
        let read = if self.deleted { Groups::NONE } else { self.read.without(self.written) };
        let by_groups =
            [(Mode::Read, read), (Mode::Write, self.written), (Mode::Update, self.updated.without(self.written))];
        let by_groups = by_groups.into_iter().filter(|(_, groups)| !groups.is_empty());
        let rows = [(Mode::Insert, self.inserted), (Mode::Delete, self.deleted)];
        let rows = rows.into_iter().filter(|(_, is_done)| *is_done).map(|(mode, _)| (mode, Groups::ALL));
        by_groups.chain(rows).map(move |(mode, groups)| Access { table, groups, mode })
    }

    /// Returns the groups for which an access of this mode was declared in vain.
    fn unused(&self, mode: Mode, groups: Groups) -> Groups {
        let used = match mode {
            Mode::Read | Mode::Settled => self.read,
            Mode::Write => self.written.union(self.updated),
            Mode::Update => self.updated,
            Mode::Insert if self.inserted => Groups::ALL,
            Mode::Delete if self.deleted => Groups::ALL,
            Mode::Insert | Mode::Delete => Groups::NONE,
        };
        // Inserts and deletes are used as a whole or not at all.
        groups.without(used)
    }
}

/// What was seen of a piece, or of a table outside of any piece.
#[derive(Clone, Debug)]
struct SeenPiece {
    name: &'static str,
    touched: BTreeMap<usize, Touched>,
    cancels: bool,
}

/// What was seen of a type.
#[derive(Clone, Debug, Default)]
struct SeenType {
    runs: u64,
    /// The pieces that the bodies have run, by their numbers.
    pieces: BTreeMap<usize, SeenPiece>,
    /// What was done outside of any piece, by tables in the order of their first access.
    outside: Vec<(usize, Touched)>,
    /// Positions in `outside` whose tables were accessed one behind the other.
    followed: Vec<(usize, usize)>,
    /// The position in `outside` of the last table before a cancel.
    canceled: Vec<Option<usize>>,
}

impl SeenType {
    fn add(&mut self, trace: &Trace, tables: &[DeclaredTable]) {
        self.runs += 1;
        let mut before = None;
        for Event { piece, what } in &trace.events {
            let own = match what {
                What::Accesses(access) => Groups::first(tables.get(access.table).map_or(1, |table| table.groups)),
                What::Begins | What::Cancels => Groups::NONE,
            };
            if let Some(piece) = piece {
                let new = || SeenPiece { name: piece.name(), touched: BTreeMap::new(), cancels: false };
                let seen = self.pieces.entry(piece.number()).or_insert_with(new);
                match what {
                    What::Begins => {}
                    What::Cancels => seen.cancels = true,
                    What::Accesses(Access { table, groups, mode }) => {
                        seen.touched.entry(*table).or_insert(Touched::NOTHING).add(*mode, groups.common(own));
                    }
                }
                continue;
            }
            match what {
                What::Begins => {}
                What::Cancels => self.canceled.push(before),
                What::Accesses(Access { table, groups, mode }) => {
                    let position = self.outside.iter().position(|(other, _)| other == table).unwrap_or_else(|| {
                        self.outside.push((*table, Touched::NOTHING));
                        self.outside.len() - 1
                    });
                    self.outside[position].1.add(*mode, groups.common(own));
                    if let Some(before) = before.filter(|before| *before != position)
                        && !self.followed.contains(&(before, position))
                    {
                        self.followed.push((before, position));
                    }
                    before = Some(position);
                }
            }
        }
    }

    /// Returns the pieces as they were run, or as they are guessed.
    fn proposed(&self, tables: &[DeclaredTable]) -> Vec<DeclaredPiece> {
        if self.pieces.is_empty() {
            return self.guessed(tables);
        }
        let last = self.pieces.keys().next_back().map_or(0, |last| last + 1);
        let piece = |number: usize| match self.pieces.get(&number) {
            Some(seen) => DeclaredPiece {
                name: seen.name.into(),
                accesses: seen.touched.iter().flat_map(|(table, touched)| touched.accesses(*table)).collect(),
                cancels: seen.cancels,
            },
            // A branch that no sample has taken.
            None => DeclaredPiece::new(&format!("not_seen_{number}")),
        };
        (0..last).map(piece).collect()
    }

    /// Returns a piece for each table, or for tables that are accessed in turns.
    fn guessed(&self, tables: &[DeclaredTable]) -> Vec<DeclaredPiece> {
        let mut graph = DiGraph::<(), ()>::new();
        self.outside.iter().for_each(|_| _ = graph.add_node(()));
        for (from, to) in &self.followed {
            graph.add_edge(NodeIndex::new(*from), NodeIndex::new(*to), ());
        }
        // The last component comes first.
        let components = kosaraju_scc(&graph).into_iter().rev().map(|component| {
            let mut positions: Vec<usize> = component.into_iter().map(NodeIndex::index).collect();
            positions.sort_unstable();
            positions
        });
        let piece = |positions: Vec<usize>| {
            let name = |position: &usize| {
                let number = self.outside[*position].0;
                tables.get(number).map_or_else(|| format!("table_{number}"), |table| table.name.clone())
            };
            let accesses = positions.iter().flat_map(|position| {
                let (table, touched) = &self.outside[*position];
                touched.accesses(*table)
            });
            DeclaredPiece {
                name: positions.iter().map(name).collect::<Vec<_>>().join("_"),
                accesses: accesses.collect(),
                cancels: self.canceled.iter().any(|canceled| canceled.is_some_and(|at| positions.contains(&at))),
            }
        };
        components.map(piece).collect()
    }
}

/// What was learned of the types of an application.
#[derive(Clone, Debug)]
pub struct Learned {
    tables: Vec<DeclaredTable>,
    names: Vec<String>,
    types: Vec<SeenType>,
}

impl Learned {
    /// Returns what is known before the first sample: the tables, and the names of the types.
    pub fn new(tables: Vec<DeclaredTable>, names: impl IntoIterator<Item = String>) -> Learned {
        let names: Vec<String> = names.into_iter().collect();
        Learned { tables, types: vec![SeenType::default(); names.len()], names }
    }

    /// Adds a transaction that has committed or cancelled itself, of the type at this position.
    ///
    /// # Panics
    /// There is no such type.
    pub fn add(&mut self, of: usize, trace: &Trace) {
        self.types[of].add(trace, &self.tables);
    }

    /// Returns the number of transactions of the type at this position.
    pub fn runs(&self, of: usize) -> u64 {
        self.types[of].runs
    }

    /// Returns declarations that allow all that was seen. A type that never ran has no pieces.
    pub fn proposed(&self) -> TypeSet {
        let of_type = |(name, seen): (&String, &SeenType)| {
            let pieces = seen.proposed(&self.tables);
            let changes = |piece: &DeclaredPiece| piece.accesses.iter().any(|access| access.mode.changes());
            TransactionType { name: name.clone(), read_only: !pieces.iter().any(changes), pieces }
        };
        let types = self.names.iter().zip(&self.types).map(of_type).collect();
        TypeSet { tables: self.tables.clone(), types }
    }

    /// Compares the samples with these declarations of the same types, and says in a sentence each
    /// what was never used, and what is not declared.
    pub fn compare(&self, declared: &TypeSet) -> Vec<String> {
        let mut lines = Vec::new();
        let ran = declared.types.iter().zip(&self.types).enumerate().filter(|(_, (_, seen))| seen.runs > 0);
        for (of, (declared_type, seen)) in ran {
            for (number, piece) in declared_type.pieces.iter().enumerate() {
                self.unused(declared, &declared.name_of(of, number), piece, seen.pieces.get(&number), &mut lines);
            }
            for (number, seen) in &seen.pieces {
                let Some(piece) = declared_type.pieces.get(*number) else {
                    lines.push(format!("not declared: {} runs piece {}", declared_type.name, seen.name));
                    continue;
                };
                self.undeclared(declared, &declared.name_of(of, *number), piece, seen, &mut lines);
            }
            for (table, _) in &seen.outside {
                let table = &declared.tables[*table].name;
                lines.push(format!("not declared: {} accesses {table} outside of any piece", declared_type.name));
            }
        }
        lines
    }

    /// Says what of a piece was declared and never used.
    fn unused(
        &self,
        declared: &TypeSet,
        place: &str,
        piece: &DeclaredPiece,
        seen: Option<&SeenPiece>,
        lines: &mut Vec<String>,
    ) {
        let Some(seen) = seen else {
            return lines.push(format!("never used: {place}: it never ran"));
        };
        for access in &piece.accesses {
            let touched = seen.touched.get(&access.table).unwrap_or(&Touched::NOTHING);
            let unused = touched.unused(access.mode, declared.groups_of(access));
            // What another access of the piece needs is no loss.
            let is_implied = access.mode == Mode::Read
                && piece.accesses.iter().any(|other| {
                    let allows_reads = matches!(other.mode, Mode::Write | Mode::Delete);
                    other.table == access.table && allows_reads && declared.groups_of(other).contains(unused)
                });
            if !unused.is_empty() && !is_implied {
                let table = &declared.tables[access.table];
                let what = match access.mode {
                    Mode::Insert | Mode::Delete => table.name.clone(),
                    _ => table.describe(unused),
                };
                lines.push(format!("never used: {place}: {} {what}", access.mode.verb()));
            }
        }
        if piece.cancels && !seen.cancels {
            lines.push(format!("never used: {place}: cancels"));
        }
    }

    /// Says what a piece did that is not declared.
    fn undeclared(
        &self,
        declared: &TypeSet,
        place: &str,
        piece: &DeclaredPiece,
        seen: &SeenPiece,
        lines: &mut Vec<String>,
    ) {
        for (table, touched) in &seen.touched {
            let mut allowed = Touched::NOTHING;
            for access in piece.accesses.iter().filter(|access| access.table == *table) {
                let groups = declared.groups_of(access);
                allowed.add(access.mode, groups);
                if matches!(access.mode, Mode::Write | Mode::Delete) {
                    allowed.read = allowed.read.union(groups);
                }
                if access.mode == Mode::Write {
                    allowed.updated = allowed.updated.union(groups);
                }
            }
            let mut beyond = Touched::NOTHING;
            beyond.union(touched);
            beyond.read = beyond.read.without(allowed.read);
            beyond.written = beyond.written.without(allowed.written);
            beyond.updated = beyond.updated.without(allowed.updated);
            beyond.inserted &= !allowed.inserted;
            beyond.deleted &= !allowed.deleted;
            for access in beyond.accesses(*table) {
                let table = declared.tables[*table].describe(access.groups);
                lines.push(format!("not declared: {place}: {} {table}", access.mode.verb()));
            }
        }
        if seen.cancels && !piece.cancels {
            lines.push(format!("not declared: {place}: cancels"));
        }
    }
}
