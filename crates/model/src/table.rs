//! Handles by which transactions name tables.
//!
//! A handle says which store made it, where that store has the table, and the type of its keys. It
//! keeps nothing alive and reads nothing. A store compares its identity with the handle's, so that
//! it refuses handles of other stores, and then goes to the table without looking anything up.
//!
//! A handle is a value that no thread changes, so it needs no synchronisation of its own. The way
//! on which another thread gets it (a spawn, a channel, a lock) orders the making of the table
//! before its use there. And nothing read from the table's memory decides whether the handle fits:
//! the store's number is in the handle.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::Key;
use crate::row::Row;

/// The number of a store: no other store of the process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// Returns a number that was never returned before.
    pub fn unique() -> StoreId {
        // An atomic, not a lock. A thread that waits for a lock may allocate memory that all
        // threads share, and an explorer of schedules takes back all memory that its thread
        // allocates here.
        static STORES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: pairs only with itself. All additions are in one order, so each returns another
        // number; a load and a store instead could return one number twice. No thread reads other
        // data because of a number. It would take 2^64 stores until a number comes again.
        StoreId(STORES.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A table of a store: rows of bytes under keys of type `K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table<K: Key = u64> {
    store: StoreId,
    place: usize,
    number: u32,
    row_bytes: u32,
    keys: PhantomData<fn() -> K>,
}

impl<K: Key> Table<K> {
    /// Returns the handle of table `number` of a store, which finds it by `place`: an address, or
    /// whatever the store likes. Stores call this.
    ///
    /// # Safety
    /// The store was given `store` by [`StoreId::unique`]. Its table at `place` has keys of type
    /// `K` and rows of `row_bytes` bytes, and lives as long as the store.
    pub unsafe fn new(store: StoreId, number: u32, place: usize, row_bytes: usize) -> Self {
        let row_bytes = u32::try_from(row_bytes).expect("a row has fewer than 2^32 bytes");
        Table { store, place, number, row_bytes, keys: PhantomData }
    }

    /// Returns where the store has the table. The store must have compared [`Table::store`] with
    /// its own number before it follows the place: the place of another store's table leads to
    /// another type, or to freed memory.
    #[inline(always)]
    pub fn place(&self) -> usize {
        self.place
    }

    /// Returns the store that the table belongs to.
    #[inline(always)]
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the table's number in its store, from 0.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes as usize
    }

    /// Returns the number of words of a row: its bytes, rounded up.
    pub fn row_words(&self) -> usize {
        self.row_bytes().div_ceil(8)
    }
}

/// A table of rows `R` under keys `K`.
pub struct TypedTable<R, K: Key = u64> {
    table: Table<K>,
    rows: PhantomData<fn() -> R>,
}

impl<R, K: Key> Clone for TypedTable<R, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, K: Key> Copy for TypedTable<R, K> {}

impl<R, K: Key> std::fmt::Debug for TypedTable<R, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table.fmt(f)
    }
}

impl<R: Row, K: Key> TypedTable<R, K> {
    /// Returns the same table with rows of type `R`.
    ///
    /// # Panics
    /// The table's rows are not of `R`'s length.
    pub fn new(table: Table<K>) -> Self {
        // Checked once, here, where a program makes its handles, and not with every row.
        assert_eq!(table.row_bytes(), size_of::<R>(), "table {} does not hold rows of {}", table.number(), R::NAME);
        TypedTable { table, rows: PhantomData }
    }
}

impl<R, K: Key> Deref for TypedTable<R, K> {
    type Target = Table<K>;

    #[inline(always)]
    fn deref(&self) -> &Table<K> {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_numbers_of_their_own() {
        assert_ne!(StoreId::unique(), StoreId::unique());
    }

    #[test]
    #[should_panic(expected = "does not hold rows of Pair")]
    fn rows_of_another_length_are_refused() {
        #[derive(Clone, Copy, contend_derive::Row)]
        #[repr(C)]
        struct Pair {
            first: u64,
            second: u64,
        }
        // SAFETY: the handle is never used; there is no such store.
        let table = unsafe { Table::<u64>::new(StoreId::unique(), 0, 0, 8) };
        TypedTable::<Pair>::new(table);
    }
}
