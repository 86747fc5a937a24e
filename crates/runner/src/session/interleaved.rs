//! Transactions that interleave also where cores are few.

use std::ops::{ControlFlow, RangeInclusive};

use contend_engine::{Abort, Direction, Groups, Key, Projection, Row, RowUpdate, Table, Txn, Update};
use contend_machine::random::{GOLDEN_GAMMA, Xorshift64};

/// Returns the random generator of a worker for [`Interleaved`], a different one for each worker.
pub(crate) fn pauses_of(worker: usize) -> Xorshift64 {
    Xorshift64::new((worker as u64 + 1).wrapping_mul(GOLDEN_GAMMA))
}

/// A transaction that yields its core between some of its operations.
///
/// Other transactions then run in the middle of it, even on a machine with few cores.
pub(crate) struct Interleaved<'t, T> {
    inner: &'t mut T,
    random: &'t mut Xorshift64,
}

impl<'t, T> Interleaved<'t, T> {
    pub(crate) fn new(inner: &'t mut T, random: &'t mut Xorshift64) -> Self {
        Interleaved { inner, random }
    }

    fn pause(&mut self) {
        if self.random.draw().is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
}

impl<T: Txn> Txn for Interleaved<'_, T> {
    type Machine = T::Machine;

    fn read_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        self.pause();
        self.inner.read_row(table, key, columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.read_rows(table, keys, columns, visit)
    }

    fn announce_writes<K: Key>(&mut self, table: &Table<Self::Machine, K>, keys: &[K], groups: Groups) {
        self.inner.announce_writes(table, keys, groups);
    }

    fn modify_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.modify_row(table, key, groups)
    }

    fn update_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        update: RowUpdate<'_>,
    ) -> Result<bool, Abort> {
        self.pause();
        self.inner.update_row(table, key, update)
    }

    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        groups: Groups,
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.modify_rows(table, keys, groups, visit)
    }

    fn update_rows<K: Key, R: Row, U: Update<R>>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.update_rows(table, keys, columns, visit)
    }

    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.insert_rows(table, keys, visit)
    }

    fn write_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.write_row(table, key, groups)
    }

    fn insert_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.insert_row(table, key)
    }

    fn delete<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<bool, Abort> {
        self.pause();
        self.inner.delete(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.pause();
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }
}
