//! The check of each access against the declarations.

use super::declared::{Mode, TypeSet};
use crate::group::Groups;
use crate::update::RowUpdate;

/// The accesses to one table that a piece has declared, as sets of groups. They also have all
/// groups that the table lacks: an access to the whole row names these as well.
#[derive(Clone, Copy, Debug)]
struct Permissions {
    /// Groups that may be read.
    read: Groups,
    /// Groups that may be replaced or changed.
    write: Groups,
    /// Groups that may be changed by updates that commute.
    update: Groups,
    inserts: bool,
    deletes: bool,
}

/// What a transaction is about to do to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Read groups.
    Read(Groups),
    /// Replace or change groups.
    Write(Groups),
    /// Change groups by an update that commutes.
    Update(Groups),
    /// Insert a row.
    Insert,
    /// Delete a row.
    Delete,
}

/// What a transaction did that its declaration does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It accessed a table, by its number.
    Access(u32, Use),
    /// It accessed a table, by its number, outside any piece.
    Outside(u32),
    /// It read a table, by its number, and has declared settled reads only. The row was not there,
    /// or the read was a scan.
    Unsettled(u32),
    /// It began a piece, by its number, that its type has not, or has begun before.
    OutOfOrder(usize),
    /// It began this piece inside another one, which is not the same step.
    Nested(usize),
    /// It canceled where no piece says so.
    Cancel,
    /// It canceled behind a part that had committed by itself.
    LateCancel,
    /// It declared no type of those that are declared.
    NoType,
}

/// A violated declaration, for [`TypeSet::explain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undeclared {
    /// The position of the transaction's type; `None` if it has none.
    pub of: Option<usize>,
    /// The number of the running piece, or else of the last one.
    pub piece: Option<usize>,
    /// What the transaction did.
    pub attempt: Attempt,
}

impl Use {
    /// Returns what an update does.
    #[inline(always)]
    pub fn of_update(update: RowUpdate<'_>) -> Use {
        let groups = update.groups();
        if update.commutes() { Use::Update(groups) } else { Use::Write(groups) }
    }

    /// Returns the same with only these groups: those that the table has.
    pub(super) fn within(self, groups: Groups) -> Use {
        match self {
            Use::Read(of) => Use::Read(of.common(groups)),
            Use::Write(of) => Use::Write(of.common(groups)),
            Use::Update(of) => Use::Update(of.common(groups)),
            Use::Insert | Use::Delete => self,
        }
    }
}

impl Permissions {
    /// Nothing is allowed to the groups of a table that has this number of them.
    fn nothing(groups: usize) -> Permissions {
        let others = Groups::ALL.without(Groups::first(groups));
        Permissions { read: others, write: others, update: others, inserts: false, deletes: false }
    }

    /// Whether the declaration allows this.
    #[inline(always)]
    fn allow(&self, what: Use) -> bool {
        match what {
            Use::Read(groups) => self.read.contains(groups),
            Use::Write(groups) => self.write.contains(groups),
            Use::Update(groups) => self.update.contains(groups),
            Use::Insert => self.inserts,
            Use::Delete => self.deletes,
        }
    }

    fn add(&mut self, mode: Mode, groups: Groups) {
        match mode {
            Mode::Read | Mode::Settled => self.read = self.read.union(groups),
            // A piece that has the whole conflict with a group may do with it what it likes.
            Mode::Write => {
                self.read = self.read.union(groups);
                self.write = self.write.union(groups);
                self.update = self.update.union(groups);
            }
            Mode::Update => self.update = self.update.union(groups),
            Mode::Insert => self.inserts = true,
            // A delete reads the row.
            Mode::Delete => {
                self.deletes = true;
                self.read = self.read.union(groups);
            }
        }
    }
}

/// The permissions of all pieces.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    tables: usize,
    types: Vec<DeclaredType>,
    /// Those of each piece of each type, table by table.
    permissions: Vec<Permissions>,
}

#[derive(Clone, Debug)]
struct DeclaredType {
    cancels: Vec<bool>,
    /// The position of its first piece's permissions.
    first: usize,
}

/// The permissions of a piece, by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permitted(usize);

impl Permitted {
    /// Nothing is permitted.
    pub(super) const NOTHING: Permitted = Permitted(usize::MAX >> 1);
}

impl Declared {
    /// Returns the permissions that follow from these declarations.
    pub(super) fn new(types: &TypeSet) -> Self {
        let nothing: Vec<Permissions> = types.tables.iter().map(|table| Permissions::nothing(table.groups)).collect();
        let mut declared = Declared { tables: nothing.len(), types: Vec::new(), permissions: Vec::new() };
        for of in &types.types {
            let cancels = of.pieces.iter().map(|piece| piece.cancels).collect();
            declared.types.push(DeclaredType { cancels, first: declared.permissions.len() });
            for piece in &of.pieces {
                let first = declared.permissions.len();
                declared.permissions.extend_from_slice(&nothing);
                for access in &piece.accesses {
                    declared.permissions[first + access.table].add(access.mode, types.groups_of(access));
                }
            }
        }
        declared
    }

    /// Returns the number of types.
    pub(super) fn type_count(&self) -> usize {
        self.types.len()
    }

    /// Returns the number of pieces of a type.
    #[inline(always)]
    pub(super) fn piece_count(&self, of: usize) -> usize {
        self.types[of].cancels.len()
    }

    /// Whether the application may cancel in this piece.
    pub(super) fn cancels(&self, of: usize, piece: usize) -> bool {
        self.types[of].cancels[piece]
    }

    /// Returns where the permissions of a piece are.
    pub(super) fn of(&self, of: usize, piece: usize) -> Permitted {
        Permitted(self.types[of].first + piece * self.tables)
    }

    /// Whether these permissions allow this for a table. Nothing is allowed in a table that was
    /// created after the declaration.
    #[inline(always)]
    pub(super) fn allow(&self, permitted: Permitted, table: u32, what: Use) -> bool {
        let table = table as usize;
        table < self.tables && self.permissions.get(permitted.0 + table).is_some_and(|of| of.allow(what))
    }
}

impl TypeSet {
    /// Says in a sentence what was not declared, and how to declare it.
    pub fn explain(&self, undeclared: Undeclared) -> String {
        let Undeclared { of, piece, attempt } = undeclared;
        let Some(of) = of else {
            let types: Vec<&str> = self.types.iter().map(|of| of.name.as_str()).collect();
            return format!("a transaction has no type, though types are declared; valid: {}", types.join(", "));
        };
        let declared = &self.types[of];
        let place = match piece {
            Some(piece) => self.name_of(of, piece),
            None => declared.name.clone(),
        };
        if declared.pieces.is_empty() {
            return format!("{place}: runs, and is declared without pieces, as a type that never runs");
        }
        let pieces = || declared.pieces.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>().join(", ");
        let table = |number: u32| self.tables.get(number as usize);
        match attempt {
            Attempt::Access(number, what) => {
                let Some(table) = table(number) else {
                    return format!("{place}: accesses table {number}, which was created after the declaration");
                };
                let (what, declare) = match what {
                    Use::Read(groups) => (format!("reads {}", table.describe(groups)), "read"),
                    Use::Write(groups) => (format!("writes {}", table.describe(groups)), "modify"),
                    Use::Update(groups) => (format!("updates {}", table.describe(groups)), "update"),
                    Use::Insert => (format!("inserts into {}", table.name), "insert"),
                    Use::Delete => (format!("deletes from {}", table.name), "delete"),
                };
                format!(
                    "{place}: {what}, which is not declared; declare it by .{declare}(..) in the piece, or move the access into a piece that has it"
                )
            }
            Attempt::Outside(number) => {
                let table = table(number).map_or_else(|| number.to_string(), |table| table.name.clone());
                format!("{place}: accesses {table} outside of any piece; valid pieces: {}", pieces())
            }
            Attempt::Unsettled(number) => {
                let table = table(number).map_or_else(|| number.to_string(), |table| table.name.clone());
                format!(
                    "{place}: reads settled rows of {table}, and has missed a row or scanned; valid: rows whose inserting transactions have ended, by their keys; declare other reads by .read(..)"
                )
            }
            Attempt::OutOfOrder(number) => match declared.pieces.get(number) {
                Some(next) => format!(
                    "{place}: begins piece {}, which is not behind it; valid: {}, in this order, each once",
                    next.name,
                    pieces()
                ),
                None => format!("{place}: begins piece number {number}, which it has not; valid: {}", pieces()),
            },
            Attempt::Nested(number) => {
                let name = declared.pieces.get(number).map_or_else(|| number.to_string(), |piece| piece.name.clone());
                format!("{place}: begins piece {name} inside another one; valid: one piece after the other")
            }
            Attempt::Cancel => {
                format!("{place}: cancels, which is not declared; declare it by .cancels() in the piece")
            }
            Attempt::LateCancel => {
                format!("{place}: cancels behind a part that has committed; valid: inside of the piece that cancels")
            }
            Attempt::NoType => format!("{place}: has no type"),
        }
    }
}
