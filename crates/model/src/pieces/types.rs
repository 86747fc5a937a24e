//! Declarations as a program makes them. A column or an update of another table does not compile.

use super::Piece;
use super::declared::{Access, DeclaredPiece, DeclaredTable, Mode, TransactionType, TypeSet};
use crate::group::Groups;
use crate::key::Key;
use crate::projection::Columns;
use crate::row::Row;
use crate::table::{StoreId, Table, TypedTable};
use crate::update::Update;

/// The types of a program's transactions, with their pieces.
#[derive(Debug)]
pub struct Types {
    set: TypeSet,
    /// The store of the tables, if it is known.
    store: Option<StoreId>,
    /// The first mistake.
    wrong: Option<String>,
}

/// A type that is being declared.
#[derive(Debug)]
pub struct TypeBuilder<'t> {
    types: &'t mut Types,
}

/// A piece that is being declared.
#[derive(Debug)]
pub struct PieceBuilder {
    declared: DeclaredPiece,
    store: Option<StoreId>,
    /// Whether it declares an access to a table of another store.
    has_foreign: bool,
}

impl Types {
    /// Returns an empty declaration for a store with these tables, in the order of their numbers.
    pub fn new(tables: Vec<DeclaredTable>) -> Types {
        Types { set: TypeSet { tables, types: Vec::new() }, store: None, wrong: None }
    }

    /// Returns an empty declaration for this store with these tables. It refuses tables of other
    /// stores.
    pub fn of_store(store: StoreId, tables: Vec<DeclaredTable>) -> Types {
        Types { store: Some(store), ..Types::new(tables) }
    }

    /// Begins a type of transactions that may change rows.
    pub fn add(&mut self, name: &str) -> TypeBuilder<'_> {
        self.set.types.push(TransactionType { name: name.into(), read_only: false, pieces: Vec::new() });
        TypeBuilder { types: self }
    }

    /// Begins a type of transactions that only read.
    pub fn add_read_only(&mut self, name: &str) -> TypeBuilder<'_> {
        self.set.types.push(TransactionType { name: name.into(), read_only: true, pieces: Vec::new() });
        TypeBuilder { types: self }
    }

    /// Declares a type of which no transaction will run. It has no pieces, so it takes part in no
    /// order, and a transaction of it is refused at its first access.
    pub fn leave_out(&mut self, name: &str) {
        self.add(name);
    }

    /// Returns the declarations as data.
    ///
    /// # Errors
    /// The pieces of a type are not numbered from 0 in the order of their declaration, or one
    /// accesses a table of another store. One sentence names the first such piece.
    pub fn finish(self) -> Result<TypeSet, String> {
        self.wrong.map_or(Ok(self.set), Err)
    }
}

impl TypeBuilder<'_> {
    /// Declares the type's next piece. `accesses` says what it accesses.
    pub fn piece(self, piece: Piece, accesses: impl FnOnce(PieceBuilder) -> PieceBuilder) -> Self {
        let Types { set, store, wrong } = &mut *self.types;
        let of = set.types.last_mut().expect("a builder has added its type");
        let position = of.pieces.len();
        if piece.number() != position {
            let sentence = format!(
                "{} declares piece {} at position {position}, and its number is {}; valid: numbers from 0 in the order of the program, each once",
                of.name,
                piece.name(),
                piece.number()
            );
            wrong.get_or_insert(sentence);
        }
        let declared = DeclaredPiece::new(piece.name());
        let declared = accesses(PieceBuilder { declared, store: *store, has_foreign: false });
        if declared.has_foreign {
            let of = &of.name;
            let sentence = format!("{of}, piece {}: declares an access to a table of another store", piece.name());
            wrong.get_or_insert(sentence);
        }
        of.pieces.push(declared.declared);
        self
    }
}

impl PieceBuilder {
    /// Declares an access to groups of a table of rows that are known by their words only.
    pub fn access<K: Key>(mut self, mode: Mode, table: &Table<K>, groups: Groups) -> Self {
        self.has_foreign |= self.store.is_some_and(|store| store != table.store());
        self.declared.accesses.push(Access { table: table.number() as usize, groups, mode });
        self
    }

    /// Declares reads of these columns, by key or by scans, hits and misses.
    pub fn read<R: Row, K: Key>(self, table: &TypedTable<R, K>, columns: impl Columns<R>) -> Self {
        self.access(Mode::Read, table, columns.groups())
    }

    /// Declares reads by key of columns that only inserts write. The program promises that the row
    /// is there, and that its inserting transaction has ended or is the reader's own. A piece with
    /// no other reads of the table must not scan it.
    pub fn settled<R: Row, K: Key>(self, table: &TypedTable<R, K>, columns: impl Columns<R>) -> Self {
        self.access(Mode::Settled, table, columns.groups())
    }

    /// Declares that these columns are changed or replaced. They may be read as well.
    pub fn modify<R: Row, K: Key>(self, table: &TypedTable<R, K>, columns: impl Columns<R>) -> Self {
        self.access(Mode::Write, table, columns.groups())
    }

    /// Declares updates like this one: its columns count, and whether it commutes.
    pub fn update<R: Row, K: Key>(self, table: &TypedTable<R, K>, like: impl Update<R>) -> Self {
        let mode = if like.commutes() { Mode::Update } else { Mode::Write };
        self.access(mode, table, like.groups())
    }

    /// Declares inserts.
    pub fn insert<K: Key>(self, table: &Table<K>) -> Self {
        self.access(Mode::Insert, table, Groups::ALL)
    }

    /// Declares deletes.
    pub fn delete<K: Key>(self, table: &Table<K>) -> Self {
        self.access(Mode::Delete, table, Groups::ALL)
    }

    /// Declares that the application may cancel the transaction in this piece.
    pub fn cancels(mut self) -> Self {
        self.declared.cancels = true;
        self
    }
}
