//! The trait [`Txn`]: a transaction as a workload sees it.

use std::ops::{ControlFlow, RangeInclusive};

use contend_index::{Direction, Key};
use contend_machine::Machine;

use crate::abort::{Abort, AbortReason};
use crate::group::Groups;
use crate::row::{Columns, Projection, Row, Whole};
use crate::table::{Table, TypedTable};
use crate::update::{RowUpdate, Update};

/// A running transaction. A workload is generic over it, so a transaction's body is compiled once a protocol, with no dynamic call.
///
/// Every method fails with [`Abort`] when the transaction can't commit any more; return the error from the body. Under an optimistic
/// protocol a transaction that is going to abort may see rows of different states: a body must not loop, index or divide by what it read
/// without care.
///
/// The methods that end in `_row` work on a row's words, the others on typed rows.
pub trait Txn {
    /// The machine the transaction runs on.
    type Machine: Machine;

    /// Reads a row; `None` if the key is absent. The words outside `columns` are not defined.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort>;

    /// Reads many rows at once, so that their cache misses overlap. `visit` gets each key's position and its row, in the order
    /// of `keys`.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort>;

    /// Says that these groups of the rows under these keys will be written soon, so that their cache misses overlap. A hint: nothing is
    /// read, locked or observed.
    fn announce_writes<K: Key>(&mut self, table: &Table<Self::Machine, K>, keys: &[K], groups: Groups) {
        let _ = (table, keys, groups);
    }

    /// Reads these groups of a row to change them in place; `None` if the key is absent. The words of other groups are not defined.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort>;

    /// Reads these groups of many rows at once to change them in place, so that their cache misses overlap. `visit` gets each key's
    /// position and its row, in the order of `keys`.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        groups: Groups,
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            visit(position, self.modify_row(table, key, groups)?);
        }
        Ok(())
    }

    /// Reads many rows at once, as [`Txn::read_rows`], and changes each by the operation that `visit` makes of it, if any. The table's
    /// rows are `R`s.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_rows<K: Key, R: Row, U: Update<R>>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            if let Some(update) = visit(position, self.read_row(table, key, columns)?) {
                self.update_row(table, key, RowUpdate::new(&update))?;
            }
        }
        Ok(())
    }

    /// Inserts many rows, to be filled by `visit`, which gets each key's position, and `None` if the key exists. Ascending keys that stand
    /// together are inserted faster.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            visit(position, self.insert_row(table, key)?);
        }
        Ok(())
    }

    /// Changes a row without reading it; `false` if the key is absent. The update is for rows of the table's type.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        update: RowUpdate<'_>,
    ) -> Result<bool, Abort>;

    /// Replaces these groups of a row without reading them; `None` if the key is absent. The words that are returned hold anything:
    /// all of these groups are to be filled.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort>;

    /// Inserts a row, to be filled; `None` if the key exists.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort>;

    /// Deletes a row; `false` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn delete<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<bool, Abort>;

    /// Reads the rows in a range of keys, at most `limit`, in the order of `direction`, until `visit` breaks. Returns how many
    /// were visited.
    ///
    /// # Errors
    /// The transaction has to abort, or the table's index has no order ([`AbortReason::Unsupported`]).
    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort>;

    /// Makes the abort with which a body ends its transaction by its own decision: `return Err(tx.cancel())`.
    fn cancel(&mut self) -> Abort {
        Abort::new(AbortReason::User)
    }

    /// Reads the named columns; `None` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        columns: C,
    ) -> Result<Option<C::Output>, Abort> {
        let row = columns.project(|projection| self.read_row(table, key, projection))?;
        Ok(row.map(|row| columns.extract(row)))
    }

    /// Reads the named columns of many rows at once; see [`Txn::read_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_many<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        keys: &[K],
        columns: C,
        mut visit: impl FnMut(usize, Option<C::Output>),
    ) -> Result<(), Abort> {
        columns.project(|projection| {
            self.read_rows(table, keys, projection, |position, row| {
                visit(position, row.map(|row| columns.extract(row)));
            })
        })
    }

    /// Reads a row and changes it; `None` if the key is absent, else what `change` returned.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify<R: Row, K: Key, T>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Abort> {
        self.modify_columns(table, key, Whole, change)
    }

    /// Reads the named columns of a row and changes them; `None` if the key is absent, else what `change` returned. What other
    /// transactions do to other groups of columns need not concern this one.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn modify_columns<R: Row, K: Key, C: Columns<R>, T>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        columns: C,
        change: impl FnOnce(&mut C::Output) -> T,
    ) -> Result<Option<T>, Abort> {
        Ok(self.modify_row(table, key, columns.groups())?.map(|row| columns.change(row, change)))
    }

    /// Reads the named columns of many rows at once and changes them; see [`Txn::modify_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_many<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        keys: &[K],
        columns: C,
        mut change: impl FnMut(usize, Option<&mut C::Output>),
    ) -> Result<(), Abort> {
        self.modify_rows(table, keys, columns.groups(), |position, row| match row {
            Some(row) => columns.change(row, |values| change(position, Some(values))),
            None => change(position, None),
        })
    }

    /// Reads the named columns of many rows at once, and changes each row by the operation that `visit` makes of them, if any; see
    /// [`Txn::update_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_many<R: Row, K: Key, C: Columns<R>, U: Update<R>>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        keys: &[K],
        columns: C,
        mut visit: impl FnMut(usize, Option<C::Output>) -> Option<U>,
    ) -> Result<(), Abort> {
        columns.project(|projection| {
            self.update_rows(table, keys, projection, |position, row| {
                visit(position, row.map(|row| columns.extract(row)))
            })
        })
    }

    /// Inserts many rows; whether none of the keys existed. See [`Txn::insert_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_many<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        keys: &[K],
        mut row: impl FnMut(usize) -> R,
    ) -> Result<bool, Abort> {
        let mut new = true;
        self.insert_rows(table, keys, |position, words| match words {
            Some(words) => *R::from_words_mut(words) = row(position),
            None => new = false,
        })?;
        Ok(new)
    }

    /// Changes a row without reading it, by an operation that is applied at commit; `false` if the key is absent. Where commit-time
    /// updates are off, the row is read and changed.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn update<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        update: impl Update<R>,
    ) -> Result<bool, Abort> {
        self.update_row(table, key, RowUpdate::new(&update))
    }

    /// Replaces a row without reading it; `false` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        row: R,
    ) -> Result<bool, Abort> {
        Ok(self.write_row(table, key, Groups::ALL)?.map(|words| *R::from_words_mut(words) = row).is_some())
    }

    /// Inserts a row; `false` if the key exists.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        key: K,
        row: R,
    ) -> Result<bool, Abort> {
        Ok(self.insert_row(table, key)?.map(|words| *R::from_words_mut(words) = row).is_some())
    }

    /// Reads the named columns of the rows in a range; see [`Txn::scan_rows`].
    ///
    /// # Errors
    /// The transaction has to abort, or the table's index has no order ([`AbortReason::Unsupported`]).
    fn scan<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<Self::Machine, R, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: C,
        mut visit: impl FnMut(K, C::Output) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        columns.project(|projection| {
            self.scan_rows(table, range, limit, direction, projection, |key, row| visit(key, columns.extract(row)))
        })
    }
}
