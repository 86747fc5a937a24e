//! What an author declares about transactions, as data.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

/// How a piece accesses a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The piece reads it. A scan reads what it finds, and a miss reads the absence.
    Read,
    /// The piece reads a row whose inserting transaction has ended, in cells that only inserts
    /// write. It conflicts with nothing.
    Settled,
    /// The piece writes it, or reads and writes it.
    Write,
    /// The piece changes it by an update that commutes with all others of this mode.
    Update,
    /// The piece inserts a row. This concerns all cells of the table.
    Insert,
    /// The piece deletes a row. This concerns all cells of the table.
    Delete,
}

impl Mode {
    /// Returns the mode as a word of a sentence: "reads", "inserts".
    pub fn verb(self) -> &'static str {
        match self {
            Mode::Read => "reads",
            Mode::Settled => "reads settled rows of",
            Mode::Write => "writes",
            Mode::Update => "updates",
            Mode::Insert => "inserts into",
            Mode::Delete => "deletes from",
        }
    }

    /// Whether a piece changes the cell.
    pub fn changes(self) -> bool {
        !matches!(self, Mode::Read | Mode::Settled)
    }
}

/// A set of cells of a table: bit `n` stands for cell `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Cells(pub u64);

impl Cells {
    /// The most cells of a table.
    pub const MAX: usize = 64;

    /// Returns the first `count` cells, at most [`Cells::MAX`].
    pub fn first(count: usize) -> Cells {
        Cells(if count >= Cells::MAX { u64::MAX } else { (1 << count) - 1 })
    }

    /// Returns the set of these cells, each below [`Cells::MAX`].
    pub fn of(cells: impl IntoIterator<Item = usize>) -> Cells {
        Cells(cells.into_iter().fold(0, |all, cell| all | 1 << cell))
    }

    /// Returns the numbers of the cells, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Cells::MAX).filter(move |cell| self.0 & 1 << cell != 0)
    }
}

/// A table, with the number of its cells: the parts of a row that conflict by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The name, for people.
    pub name: String,
    /// 1 to [`Cells::MAX`].
    pub cells: usize,
}

/// An access of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Access {
    /// The table, by its position in [`TypeSet::tables`].
    pub table: usize,
    /// The cells. Inserts and deletes concern all cells, whatever stands here.
    pub cells: Cells,
    /// The mode.
    pub mode: Mode,
}

/// A piece: the unit of atomicity and of retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// The name, which no other piece of its type has.
    pub name: String,
    /// What it may access. A branch that is not taken counts as well.
    pub accesses: Vec<Access>,
    /// Whether the application may cancel the transaction here.
    pub cancels: bool,
}

/// A type of transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionType {
    /// The name, which no other type has.
    pub name: String,
    /// Whether it changes nothing. Such a type may run on a snapshot.
    pub read_only: bool,
    /// Its pieces, in the order of the program.
    pub pieces: Vec<Piece>,
}

/// All that is declared: tables, and the types of transactions that access them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeSet {
    /// The tables.
    pub tables: Vec<Table>,
    /// The types, in the order of their declaration.
    pub types: Vec<TransactionType>,
}

/// A mistake in a declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Two tables, types, or pieces of a type have one name.
    #[error("{what} '{name}' is declared twice")]
    Twice {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A table has no cell, or too many.
    #[error("table '{table}' has {cells} cells; valid: 1 to {}", Cells::MAX)]
    CellCount {
        /// The table.
        table: String,
        /// The number of its cells.
        cells: usize,
    },
    /// An access names a table or a cell that is not there.
    #[error("{of} {} cell {cell} of a table that has none of this number", mode.verb())]
    NoSuchCell {
        /// The type and the piece.
        of: String,
        /// The mode of the access.
        mode: Mode,
        /// The cell.
        cell: usize,
    },
    /// A type without changes changes something.
    #[error("{of} {} '{table}', and its type is declared read-only", mode.verb())]
    ReadOnlyChanges {
        /// The type and the piece.
        of: String,
        /// The mode of the access.
        mode: Mode,
        /// The table.
        table: String,
    },
    /// A settled read is of a cell that others change.
    #[error(
        "{of} reads settled rows of '{table}', cell {cell}, and {by} {} it; valid: cells that only inserts write",
        mode.verb()
    )]
    NotSettled {
        /// The type and the piece that reads.
        of: String,
        /// The table.
        table: String,
        /// The cell.
        cell: usize,
        /// The type and the piece that changes the cell.
        by: String,
        /// How it does so.
        mode: Mode,
    },
}

impl TypeSet {
    /// Adds a table, and returns its position.
    pub fn table(&mut self, name: &str, cells: usize) -> usize {
        self.tables.push(Table { name: name.into(), cells });
        self.tables.len() - 1
    }

    /// Adds a type with these pieces, and returns its position.
    pub fn add(&mut self, name: &str, pieces: impl IntoIterator<Item = Piece>) -> usize {
        self.types.push(TransactionType { name: name.into(), read_only: false, pieces: pieces.into_iter().collect() });
        self.types.len() - 1
    }

    /// Returns a piece in words: its type and its name.
    pub fn name_of(&self, of: usize, piece: usize) -> String {
        let of = &self.types[of];
        format!("{}, piece {}:", of.name, of.pieces[piece].name)
    }

    /// Returns the cells that an access concerns.
    pub fn cells_of(&self, access: &Access) -> Cells {
        match access.mode {
            Mode::Insert | Mode::Delete => Cells::first(self.tables[access.table].cells),
            _ => access.cells,
        }
    }

    /// Checks the declarations.
    ///
    /// # Errors
    /// The first mistake, with the type and the piece.
    pub fn check(&self) -> Result<(), DeclarationError> {
        distinct("table", self.tables.iter().map(|table| &table.name))?;
        distinct("type", self.types.iter().map(|of| &of.name))?;
        for Table { name, cells } in &self.tables {
            if !(1..=Cells::MAX).contains(cells) {
                return Err(DeclarationError::CellCount { table: name.clone(), cells: *cells });
            }
        }
        (0..self.types.len()).try_for_each(|of| self.check_type(of))?;
        self.check_settled()
    }

    /// Checks a type by itself.
    pub(crate) fn check_type(&self, of: usize) -> Result<(), DeclarationError> {
        let declared = &self.types[of];
        distinct("piece", declared.pieces.iter().map(|piece| &piece.name))?;
        for (position, piece) in declared.pieces.iter().enumerate() {
            let named = || self.name_of(of, position);
            piece.accesses.iter().try_for_each(|access| self.check_access(declared, access, &named))?;
        }
        Ok(())
    }

    fn check_access(
        &self,
        of: &TransactionType,
        access: &Access,
        named: &dyn Fn() -> String,
    ) -> Result<(), DeclarationError> {
        let Access { table, cells, mode } = *access;
        let there = self.tables.get(table).map_or(Cells(0), |table| Cells::first(table.cells));
        if let Some(cell) = Cells(cells.0 & !there.0).iter().next() {
            return Err(DeclarationError::NoSuchCell { of: named(), mode, cell });
        }
        let Some(table) = self.tables.get(table) else {
            return Err(DeclarationError::NoSuchCell { of: named(), mode, cell: 0 });
        };
        if of.read_only && mode.changes() {
            return Err(DeclarationError::ReadOnlyChanges { of: named(), mode, table: table.name.clone() });
        }
        Ok(())
    }

    /// Checks that only inserts write the cells of settled reads.
    pub(crate) fn check_settled(&self) -> Result<(), DeclarationError> {
        // The first piece that changes each cell by more than an insert.
        let mut changers: HashMap<(usize, usize), ((usize, usize), Mode)> = HashMap::new();
        for (by, access) in self.accesses().filter(|(_, access)| access.mode.changes() && access.mode != Mode::Insert) {
            for cell in self.cells_of(access).iter() {
                changers.entry((access.table, cell)).or_insert((by, access.mode));
            }
        }
        for (of, access) in self.accesses().filter(|(_, access)| access.mode == Mode::Settled) {
            for cell in access.cells.iter() {
                if let Some(&(by, mode)) = changers.get(&(access.table, cell)) {
                    return Err(DeclarationError::NotSettled {
                        of: self.name_of(of.0, of.1),
                        table: self.tables[access.table].name.clone(),
                        cell,
                        by: self.name_of(by.0, by.1),
                        mode,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns all accesses, each with the positions of its type and piece.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = ((usize, usize), &Access)> {
        self.types.iter().enumerate().flat_map(|(of, declared)| {
            let pieces = declared.pieces.iter().enumerate();
            pieces.flat_map(move |(piece, declared)| declared.accesses.iter().map(move |access| ((of, piece), access)))
        })
    }
}

impl Piece {
    /// Returns a piece that accesses nothing.
    pub fn new(name: &str) -> Piece {
        Piece { name: name.into(), accesses: Vec::new(), cancels: false }
    }

    /// Adds an access.
    pub fn access(mut self, mode: Mode, table: usize, cells: Cells) -> Piece {
        self.accesses.push(Access { table, cells, mode });
        self
    }

    /// Says that the application may cancel the transaction here.
    pub fn cancels(mut self) -> Piece {
        self.cancels = true;
        self
    }
}

fn distinct<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), DeclarationError> {
    let mut seen = HashSet::new();
    match { names }.find(|name| !seen.insert(*name)) {
        Some(name) => Err(DeclarationError::Twice { what, name: name.clone() }),
        None => Ok(()),
    }
}
