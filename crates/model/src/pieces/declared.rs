//! Declarations as plain data.

use serde::Serialize;

use crate::group::Groups;

/// How a piece accesses groups of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The piece reads them. A scan reads what it finds, and a miss reads the absence.
    Read,
    /// The piece reads a row under a key, whose inserting transaction has ended, in columns that
    /// only inserts write. It conflicts with nothing.
    Settled,
    /// The piece writes them, or reads and writes them.
    Write,
    /// The piece changes them by an update that commutes with all others of this mode.
    Update,
    /// The piece inserts a row. This concerns all columns of the table.
    Insert,
    /// The piece deletes a row. This concerns all columns of the table.
    Delete,
}

impl Mode {
    /// Returns the mode as a word of a sentence: "reads", "inserts into".
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

    /// Whether a piece changes the groups.
    pub fn changes(self) -> bool {
        !matches!(self, Mode::Read | Mode::Settled)
    }
}

/// A table, with its groups of columns: the parts of a row that conflict by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeclaredTable {
    /// The name, for people.
    pub name: String,
    /// The number of groups, from 1 to [`GROUPS_MAX`](crate::GROUPS_MAX).
    pub groups: usize,
    /// The names of each group's columns, for people. Empty if they are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Vec<String>>,
    /// The name of the rows' type. Empty if the rows are known by their words only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub row: String,
}

impl DeclaredTable {
    /// Returns a table whose columns have no names.
    pub fn new(name: &str, groups: usize) -> Self {
        DeclaredTable { name: name.into(), groups, columns: Vec::new(), row: String::new() }
    }

    /// Returns the names of the columns of these groups, "quantity, ytd". Without names it returns
    /// the numbers of the groups.
    pub fn columns_of(&self, groups: Groups) -> String {
        let of_table = groups.into_iter().take_while(|group| *group < self.groups);
        let columns = of_table.clone().flat_map(|group| self.columns.get(group).into_iter().flatten());
        let names: Vec<String> = columns.cloned().collect();
        if !names.is_empty() {
            return names.join(", ");
        }
        of_table.map(|group| group.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the table's name with the columns of these groups: "stock (quantity, ytd)". Without
    /// names it is "stock/1", or only the table if these are all of its groups.
    pub fn describe(&self, groups: Groups) -> String {
        let of_table = groups.into_iter().take_while(|group| *group < self.groups);
        if of_table.clone().count() == self.groups {
            return self.name.clone();
        }
        let columns: Vec<&str> = of_table
            .clone()
            .flat_map(|group| self.columns.get(group).into_iter().flatten())
            .map(String::as_str)
            .collect();
        if columns.is_empty() {
            let numbers: Vec<String> = of_table.map(|group| group.to_string()).collect();
            return format!("{}/{}", self.name, numbers.join(","));
        }
        format!("{} ({})", self.name, columns.join(", "))
    }
}

/// An access of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The table, by its position in [`TypeSet::tables`].
    pub table: usize,
    /// The groups. Inserts and deletes concern all groups, whatever stands here.
    pub groups: Groups,
    /// The mode.
    pub mode: Mode,
}

/// A piece: the unit of atomicity and of retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeclaredPiece {
    /// The name, which no other piece of its type has.
    pub name: String,
    /// What it may access. A branch that is not taken counts as well.
    pub accesses: Vec<Access>,
    /// Whether the application may cancel the transaction here.
    pub cancels: bool,
}

impl DeclaredPiece {
    /// Returns a piece that accesses nothing.
    pub fn new(name: &str) -> DeclaredPiece {
        DeclaredPiece { name: name.into(), accesses: Vec::new(), cancels: false }
    }

    /// Adds an access.
    pub fn access(mut self, mode: Mode, table: usize, groups: Groups) -> DeclaredPiece {
        self.accesses.push(Access { table, groups, mode });
        self
    }

    /// Says that the application may cancel the transaction here.
    pub fn cancels(mut self) -> DeclaredPiece {
        self.cancels = true;
        self
    }
}

/// A type of transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionType {
    /// The name, which no other type has.
    pub name: String,
    /// Whether it changes nothing. Such a type may run on a snapshot.
    pub read_only: bool,
    /// Its pieces, in the order of the program. Without any, no transaction of the type may run.
    pub pieces: Vec<DeclaredPiece>,
}

/// All that is declared: tables, and the types of transactions that access them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeSet {
    /// The tables.
    pub tables: Vec<DeclaredTable>,
    /// The types, in the order of their declaration.
    pub types: Vec<TransactionType>,
}

impl TypeSet {
    /// Adds a table, and returns its position.
    pub fn table(&mut self, name: &str, groups: usize) -> usize {
        self.tables.push(DeclaredTable::new(name, groups));
        self.tables.len() - 1
    }

    /// Adds a type with these pieces, and returns its position.
    pub fn add(&mut self, name: &str, pieces: impl IntoIterator<Item = DeclaredPiece>) -> usize {
        self.types.push(TransactionType { name: name.into(), read_only: false, pieces: pieces.into_iter().collect() });
        self.types.len() - 1
    }

    /// Returns the types of which transactions may run: those with pieces.
    pub fn in_use(&self) -> impl Iterator<Item = &TransactionType> {
        self.types.iter().filter(|of| !of.pieces.is_empty())
    }

    /// Returns a piece in words: its type and its name.
    pub fn name_of(&self, of: usize, piece: usize) -> String {
        let of = &self.types[of];
        format!("{}, piece {}", of.name, of.pieces[piece].name)
    }

    /// Returns the groups that an access concerns.
    pub fn groups_of(&self, access: &Access) -> Groups {
        match access.mode {
            Mode::Insert | Mode::Delete => Groups::first(self.tables[access.table].groups),
            _ => access.groups.common(Groups::first(self.tables[access.table].groups)),
        }
    }

    /// Returns for each table whether its rows change by nothing but inserts.
    pub fn only_inserts(&self) -> Vec<bool> {
        let mut only_inserts = vec![true; self.tables.len()];
        for (_, access) in self.accesses().filter(|(_, access)| access.mode.changes()) {
            only_inserts[access.table] &= access.mode == Mode::Insert;
        }
        only_inserts
    }

    /// Returns all accesses, each with the positions of its type and piece.
    pub fn accesses(&self) -> impl Iterator<Item = ((usize, usize), &Access)> {
        self.types.iter().enumerate().flat_map(|(of, declared)| {
            let pieces = declared.pieces.iter().enumerate();
            pieces.flat_map(move |(piece, declared)| declared.accesses.iter().map(move |access| ((of, piece), access)))
        })
    }
}
