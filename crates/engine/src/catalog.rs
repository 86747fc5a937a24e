//! The tables of an engine, and how a handle leads to one.

use std::ptr;
use std::sync::Arc;

use contend_machine::Machine;
use contend_model::{Key, StoreId, Table, TableSpec};
use crossbeam_utils::CachePadded;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::layout::Shape;
use crate::table::{AnyTable, StoredTable};

/// The tables of an engine. No table is ever removed.
pub(crate) struct Catalog<M: Machine> {
    store: StoreId,
    /// In lines of its own: a worker that takes tombstones out of an index locks it, and all others
    /// read what stands beside it.
    tables: CachePadded<RwLock<Vec<Arc<dyn AnyTable<M>>>>>,
}

impl<M: Machine> Catalog<M> {
    pub(crate) fn new() -> Self {
        Catalog { store: StoreId::unique(), tables: CachePadded::new(RwLock::new(Vec::new())) }
    }

    /// Creates a table, and returns its handle.
    pub(crate) fn create<K: Key>(&self, spec: &TableSpec, shape: Shape) -> Table<K> {
        let mut tables = self.tables.write();
        let number = u32::try_from(tables.len()).expect("fewer than 2^32 tables");
        let table = Arc::new(StoredTable::<M, K>::new(number, spec, shape));
        let place = ptr::from_ref(&*table).expose_provenance();
        tables.push(table);
        // SAFETY: the table at this place was just made with keys `K`; the catalog never removes
        // it.
        unsafe { Table::new(self.store, number, place, spec.row_bytes) }
    }

    /// Returns the identity of the engine, which its tables' handles have.
    pub(crate) fn store(&self) -> StoreId {
        self.store
    }

    /// Returns all tables.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<dyn AnyTable<M>>>> {
        self.tables.read()
    }

    /// Returns the table of a handle.
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub(crate) fn get<K: Key>(&self, table: &Table<K>) -> &StoredTable<M, K> {
        // SAFETY: this is the catalog of the store, and it is borrowed.
        unsafe { stored(self.store, table) }.unwrap_or_else(|| refuse(table))
    }
}

/// Returns the table of a handle, or `None` if another engine made the handle. It reads nothing but
/// the handle, so that a transaction pays two comparisons for it.
///
/// # Safety
/// `store` is the identity of an engine on `M` that lives as long as `'t`.
#[inline(always)]
pub(crate) unsafe fn stored<'t, M: Machine, K: Key>(store: StoreId, table: &Table<K>) -> Option<&'t StoredTable<M, K>> {
    if table.store() != store {
        return None;
    }
    // SAFETY: the engine has a `StoredTable<M, K>` at this place (`Catalog::create` and
    // `Table::new`), which it keeps as long as itself.
    Some(unsafe { &*ptr::with_exposed_provenance(table.place()) })
}

/// Panics: a caller has confused the tables of two engines.
#[cold]
pub(crate) fn refuse<K: Key>(table: &Table<K>) -> ! {
    panic!("table {} belongs to another engine", table.number())
}
