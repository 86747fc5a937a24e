//! The tables of an engine by their numbers, and each worker's own list of them.

use std::ptr::NonNull;
use std::sync::Arc;

use contend_machine::Machine;
use contend_model::{Key, StoreId, Table, TableSpec};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::layout::Shape;
use crate::table::{AnyTable, StoredTable};

/// The tables of an engine. No table is ever removed.
pub(crate) struct Catalog<M: Machine> {
    store: StoreId,
    tables: RwLock<Vec<Arc<dyn AnyTable<M>>>>,
}

impl<M: Machine> Catalog<M> {
    pub(crate) fn new() -> Self {
        Catalog { store: StoreId::unique(), tables: RwLock::new(Vec::new()) }
    }

    /// Creates a table, and returns its handle.
    pub(crate) fn create<K: Key>(&self, spec: &TableSpec, shape: Shape) -> Table<K> {
        let mut tables = self.tables.write();
        let number = u32::try_from(tables.len()).expect("fewer than 2^32 tables");
        tables.push(Arc::new(StoredTable::<M, K>::new(number, spec, shape)));
        // SAFETY: the number is this catalog's, and the table was just made with keys `K`; it is
        // never removed.
        unsafe { Table::new(self.store, number, spec.row_bytes) }
    }

    /// Returns all tables.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<dyn AnyTable<M>>>> {
        self.tables.read()
    }

    pub(crate) fn owns<K: Key>(&self, table: &Table<K>) -> bool {
        table.store() == self.store
    }

    /// Returns the table of a handle.
    ///
    /// # Panics
    /// The table is of another engine.
    pub(crate) fn get<K: Key>(&self, table: &Table<K>) -> &StoredTable<M, K> {
        assert!(self.owns(table), "table {} is of another engine", table.number());
        let stored = address_of(&self.tables.read()[table.number() as usize]);
        // SAFETY: the handle's number and key type are those of a table of this catalog
        // (`Table::new`), which is never removed.
        unsafe { stored.cast().as_ref() }
    }
}

fn address_of<M: Machine>(table: &Arc<dyn AnyTable<M>>) -> NonNull<()> {
    NonNull::from(&**table).cast()
}

/// A worker's list of the tables: it finds one by its number without a lock, in memory that no
/// other worker writes.
pub(crate) struct TableList<M: Machine> {
    store: StoreId,
    /// The addresses of the tables that the worker has seen so far, each a `StoredTable` of its own
    /// key type.
    known: Vec<NonNull<()>>,
    catalog: Arc<Catalog<M>>,
}

// SAFETY: the addresses are of tables that the catalog keeps, and `AnyTable`s are `Send` and
// `Sync`.
unsafe impl<M: Machine> Send for TableList<M> {}

impl<M: Machine> std::fmt::Debug for TableList<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableList").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<M: Machine> TableList<M> {
    pub(crate) fn new(catalog: &Arc<Catalog<M>>) -> Self {
        let mut list = TableList { store: catalog.store, known: Vec::new(), catalog: Arc::clone(catalog) };
        list.refresh();
        list
    }

    /// Whether this engine created the table.
    #[inline(always)]
    pub(crate) fn owns<K: Key>(&self, table: &Table<K>) -> bool {
        table.store() == self.store
    }

    /// Returns the table of a handle. The caller has checked that this engine owns it
    /// ([`TableList::owns`]).
    ///
    /// # Safety
    /// The caller doesn't use the result after the engine has been dropped.
    #[inline(always)]
    pub(crate) unsafe fn get<'t, K: Key>(&mut self, table: &Table<K>) -> &'t StoredTable<M, K> {
        debug_assert!(self.owns(table));
        let number = table.number() as usize;
        if number >= self.known.len() {
            self.refresh();
        }
        // SAFETY: the handle's number and key type are those of a table of this catalog
        // (`Table::new`), which is kept as long as the engine.
        unsafe { self.known[number].cast().as_ref() }
    }

    #[cold]
    fn refresh(&mut self) {
        let tables = self.catalog.read();
        self.known.extend(tables[self.known.len()..].iter().map(address_of));
    }
}
