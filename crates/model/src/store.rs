//! Tables outside transactions: how a workload creates them, fills them before a run, and inspects
//! them after it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::abort::OutOfMemory;
use crate::key::Key;
use crate::pieces::DeclaredTable;
use crate::row::Row;
use crate::spec::TableSpec;
use crate::table::{StoreId, Table, TypedTable};

/// A store in which tables can be created.
pub trait Tables {
    /// Creates a table with keys `K`, of rows that are known by their words only.
    fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K>;

    /// Creates a table of rows `R` under keys `K`.
    ///
    /// # Panics
    /// The specification has rows of another length than `R`'s.
    fn create_typed<R: Row, K: Key>(&self, spec: &TableSpec) -> TypedTable<R, K> {
        TypedTable::new(self.create_table(spec))
    }

    /// Returns whether transactions on this store are asked what they declare. Others need not find
    /// it out.
    fn wants_declarations(&self) -> bool {
        false
    }

    /// Returns whether the store may run a piece of a transaction again without the rest.
    fn uses_pieces(&self) -> bool {
        false
    }
}

/// A store without rows. It only notes which tables are created, for an analysis of transactions
/// that are declared and not run.
#[derive(Debug)]
pub struct TablesOnly {
    store: StoreId,
    tables: RefCell<Vec<DeclaredTable>>,
}

impl TablesOnly {
    /// Returns a store without tables.
    pub fn new() -> Self {
        TablesOnly { store: StoreId::unique(), tables: RefCell::new(Vec::new()) }
    }

    /// Returns the tables, in the order of their creation.
    pub fn into_tables(self) -> Vec<DeclaredTable> {
        self.tables.into_inner()
    }
}

impl Default for TablesOnly {
    fn default() -> Self {
        TablesOnly::new()
    }
}

impl Tables for TablesOnly {
    fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        let mut tables = self.tables.borrow_mut();
        let number = u32::try_from(tables.len()).expect("fewer than 2^32 tables");
        tables.push(spec.declared());
        // SAFETY: the number is this store's own, and the store has no transactions, loaders or
        // views that could follow the place.
        unsafe { Table::new(self.store, number, 0, spec.row_bytes) }
    }
}

/// A loader: it fills tables before any transaction runs. Several loaders may work at once, each on
/// its own thread.
pub trait Load {
    /// Adds a row, which `fill` writes into words that are zero before. Returns `false` if the key
    /// was there before.
    ///
    /// # Errors
    /// The store has no more memory.
    ///
    /// # Panics
    /// The table belongs to another store.
    fn insert<K: Key>(&mut self, table: &Table<K>, key: K, fill: impl FnOnce(&mut [u64])) -> Result<bool, OutOfMemory>;

    /// Announces that rows will be inserted under these keys soon, so that their cache misses
    /// overlap. A hint.
    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K]) {
        let _ = (table, keys);
    }

    /// Adds a typed row. Returns `false` if the key was there before.
    ///
    /// # Errors
    /// The store has no more memory.
    fn insert_typed<R: Row, K: Key>(&mut self, table: &TypedTable<R, K>, key: K, row: R) -> Result<bool, OutOfMemory> {
        self.insert(table, key, |words| *R::from_words_mut(words) = row)
    }
}

/// A view of the committed rows while no transaction runs: for checks after a run.
pub trait Inspect {
    /// Returns the name of a table, for messages.
    ///
    /// # Panics
    /// The table belongs to another store.
    fn table_name<K: Key>(&self, table: &Table<K>) -> String;

    /// Copies the row under `key` to `row`; words of the store's own may follow it. Returns `None`
    /// if the key is absent.
    ///
    /// # Panics
    /// The table belongs to another store.
    fn peek<K: Key>(&self, table: &Table<K>, key: K, row: &mut Vec<u64>) -> Option<()>;

    /// Visits every row of a table in the order of the keys. Returns `false`, and visits none, if
    /// the table's index has no order.
    ///
    /// # Panics
    /// The table belongs to another store.
    fn peek_all<K: Key>(&self, table: &Table<K>, visit: impl FnMut(K, &[u64])) -> bool;

    /// Announces that the rows under these keys will be read soon, so that their cache misses
    /// overlap. A hint.
    fn announce<K: Key>(&self, table: &Table<K>, keys: &[K]) {
        let _ = (table, keys);
    }
}

impl<S: Tables> Tables for Arc<S> {
    fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        S::create_table(self, spec)
    }

    fn wants_declarations(&self) -> bool {
        S::wants_declarations(self)
    }

    fn uses_pieces(&self) -> bool {
        S::uses_pieces(self)
    }
}

impl<S: Inspect> Inspect for Arc<S> {
    fn table_name<K: Key>(&self, table: &Table<K>) -> String {
        S::table_name(self, table)
    }

    fn peek<K: Key>(&self, table: &Table<K>, key: K, row: &mut Vec<u64>) -> Option<()> {
        S::peek(self, table, key, row)
    }

    fn peek_all<K: Key>(&self, table: &Table<K>, visit: impl FnMut(K, &[u64])) -> bool {
        S::peek_all(self, table, visit)
    }

    fn announce<K: Key>(&self, table: &Table<K>, keys: &[K]) {
        S::announce(self, table, keys);
    }
}

/// The core on which a client draws its transactions.
pub trait Core {
    /// Charges the core with `instructions` that touch no shared memory. A core that is not
    /// simulated pays them by itself.
    fn work(&mut self, instructions: u32);
}

/// A core that is not simulated.
impl Core for () {
    #[inline(always)]
    fn work(&mut self, _: u32) {}
}
