//! The traits [`RawTxn`] and [`Txn`]: a running transaction, as a store implements it and as a
//! workload uses it.

use std::ops::{ControlFlow, RangeInclusive};
use std::time::Duration;

use crate::abort::{Abort, AbortReason};
use crate::group::Groups;
use crate::key::Key;
use crate::pieces::Piece;
use crate::projection::{Columns, Projection, Whole};
use crate::row::Row;
use crate::table::{Table, TypedTable};
use crate::update::{IntoRowUpdate, RowUpdate, Update, UpdateOf};

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the low end up.
    Forward,
    /// From the high end down.
    Backward,
}

/// A running transaction on rows of words: the operations that a store implements.
///
/// Seven methods are required. The others have default implementations in terms of these: a store
/// overrides those that it can do faster, and a transaction that wraps another one ([`Before`])
/// needs none of them.
///
/// Every method fails with [`Abort`] when the transaction can't commit any more. The body returns
/// the error.
pub trait RawTxn {
    /// Reads a row; `None` if the key is absent. The words outside `columns` are not defined.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort>;

    /// Reads these groups of a row to change them in place; `None` if the key is absent. The words
    /// of other groups are not defined.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort>;

    /// Replaces these groups of a row without reading them; `None` if the key is absent. The
    /// returned words hold arbitrary values: the caller must fill all of these groups.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort>;

    /// Changes a row without reading it; `false` if the key is absent. The update is for rows of
    /// the table's type.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort>;

    /// Inserts a row, which the caller must fill; `None` if the key exists.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort>;

    /// Deletes a row; `false` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort>;

    /// Reads the rows in a range of keys, at most `limit`, in the order of `direction`, until
    /// `visit` breaks. Returns how many were visited.
    ///
    /// # Errors
    /// The transaction has to abort, or the table's index has no order
    /// ([`AbortReason::Unsupported`]).
    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort>;

    /// Reads many rows at once, so that their cache misses overlap. `visit` gets each key's
    /// position and its row, in the order of `keys`.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            visit(position, self.read_row(table, key, columns)?);
        }
        Ok(())
    }

    /// Reads these groups of many rows at once to change them in place, so that their cache misses
    /// overlap. `visit` gets each key's position and its row, in the order of `keys`.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        groups: Groups,
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            visit(position, self.modify_row(table, key, groups)?);
        }
        Ok(())
    }

    /// Reads many rows at once, as [`RawTxn::read_rows`] does. Changes each row by the update that
    /// `visit` returns for it, if it returns one.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            if let Some(update) = visit(position, self.read_row(table, key, columns)?) {
                self.update_row(table, key, update.as_row_update())?;
            }
        }
        Ok(())
    }

    /// Changes many rows without reading them, each by the update beside its key, as
    /// [`RawTxn::update_row`] does, so that their cache misses overlap. `changed` gets each key's
    /// position, and whether there is a row.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn change_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        updates: &[U],
        mut changed: impl FnMut(usize, bool),
    ) -> Result<(), Abort> {
        for (position, (&key, update)) in keys.iter().zip(updates).enumerate() {
            changed(position, self.update_row(table, key, update.as_row_update())?);
        }
        Ok(())
    }

    /// Reads these columns of many rows, and replaces these groups of others, in the order of
    /// `keys`; `writes` tells which are replaced. Their cache misses overlap. `visit` gets each
    /// key's position and its row.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_or_write_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        (keys, writes): (&[K], &[bool]),
        columns: Projection<'_>,
        groups: Groups,
        mut visit: impl FnMut(usize, ReadOrWritten<'_>),
    ) -> Result<(), Abort> {
        for (position, (&key, &writes)) in keys.iter().zip(writes).enumerate() {
            if writes {
                visit(position, ReadOrWritten::Written(self.write_row(table, key, groups)?));
            } else {
                visit(position, ReadOrWritten::Read(self.read_row(table, key, columns)?));
            }
        }
        Ok(())
    }

    /// Inserts many rows. `visit` gets each key's position and the words to fill, or `None` if the
    /// key exists. Ascending keys that stand together are inserted faster.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        for (position, &key) in keys.iter().enumerate() {
            visit(position, self.insert_row(table, key)?);
        }
        Ok(())
    }

    /// Announces that these columns of the rows under these keys will be read or, if `writes` is
    /// set, written soon, so that their cache misses overlap. A hint: nothing is read, locked or
    /// observed. To announce a write of what is only read takes the rows from other cores in vain.
    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K], columns: Projection<'_>, writes: bool) {
        let _ = (table, keys, columns, writes);
    }

    /// Leaves the transaction open for this many microseconds. Its core is free for other work in
    /// this time.
    fn idle(&mut self, microseconds: u64) {
        std::thread::sleep(Duration::from_micros(microseconds));
    }

    /// Whether [`Txn::piece`] does more than to call its body. A body that takes effort to divide
    /// into pieces may ask.
    #[inline(always)]
    fn uses_pieces(&self) -> bool {
        true
    }

    /// Begins a piece; see [`Txn::piece`].
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn begin_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        let _ = piece;
        Ok(())
    }

    /// Ends a piece, whose body has failed if `failed` says so. Returns what comes next.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        let _ = piece;
        failed.map_or(Ok(PieceEnd::Done), Err)
    }

    /// Whether the rest of the transaction may take effect later; see [`Txn::later`]. Where the
    /// order of steps that serves this best is not the one for other protocols, a body may ask.
    #[inline(always)]
    fn defers(&self) -> bool {
        false
    }

    /// Names a row that the later part of the transaction will touch; see [`Txn::later`]. `writes`
    /// tells whether it may write the row. Most stores ignore this.
    #[inline(always)]
    fn later_row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        let _ = (table, key, writes);
    }

    /// Names a range of keys into which the later part of the transaction will insert; see
    /// [`Txn::later`]. Most stores ignore this.
    #[inline(always)]
    fn later_inserts<K: Key>(&mut self, table: &Table<K>, keys: RangeInclusive<K>) {
        let _ = (table, keys);
    }

    /// Ends the part of the transaction that comes now; see [`Txn::later`].
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn begin_later(&mut self) -> Result<(), Abort> {
        Ok(())
    }

    /// Notes that the body cancels the transaction, and returns the abort; see [`Txn::cancel`].
    #[inline(always)]
    fn note_cancel(&mut self) -> Abort {
        Abort::new(AbortReason::User)
    }
}

/// A row of [`RawTxn::read_or_write_rows`]; `None` if the key is absent.
#[derive(Debug)]
pub enum ReadOrWritten<'a> {
    /// The row was read; see [`RawTxn::read_row`].
    Read(Option<&'a [u64]>),
    /// The row is replaced; see [`RawTxn::write_row`].
    Written(Option<&'a mut [u64]>),
}

/// What comes behind the end of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceEnd {
    /// The transaction goes on.
    Done,
    /// The piece has left no trace, and its body runs again.
    Again,
}

/// A running transaction on typed rows. A workload is generic over it, so a transaction's body is
/// compiled once for each store and protocol, with no dynamic call.
///
/// Every [`RawTxn`] is a `Txn`. Every method fails with [`Abort`] when the transaction can't commit
/// any more. The body returns the error. Under an optimistic protocol a transaction that is going
/// to abort may see rows of different states. So a body must not loop, index or divide by values
/// that it read without care.
pub trait Txn: RawTxn {
    /// Deletes a row; `false` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn delete<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        self.delete_row(table, key)
    }

    /// Returns the abort with which a body ends its transaction by its own decision: `return
    /// Err(tx.cancel())`.
    ///
    /// A canceled transaction is not validated, and no caller runs it again. Under an optimistic
    /// protocol its reads may be of different states. So a body must not cancel because of a
    /// finding that no state allows (a row that should be there is missing). It notes the finding
    /// in its client, goes on to the commit, and judges it once the transaction has committed.
    ///
    /// There is one exception. A transaction may have seen writes of another one, which has aborted
    /// since. Then the reason is [`AbortReason::Cascaded`], and the transaction is tried again.
    fn cancel(&mut self) -> Abort {
        self.note_cancel()
    }

    /// Runs a piece of the transaction: a part that a protocol may let take effect by itself, and
    /// may run again without the rest ([`crate::pieces`]). For most protocols it is `body` and
    /// nothing else.
    ///
    /// The body may run more than once. What it fills outside of the tables it clears first. It
    /// accesses only what its type has declared for the piece.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn piece<T>(&mut self, piece: Piece, mut body: impl FnMut(&mut Self) -> Result<T, Abort>) -> Result<T, Abort> {
        loop {
            self.begin_piece(piece)?;
            let result = body(self);
            let failed = match &result {
                Ok(_) => None,
                Err(abort) => Some(*abort),
            };
            match self.end_piece(piece, failed)? {
                PieceEnd::Done => return result,
                PieceEnd::Again => {}
            }
        }
    }

    /// Runs the rest of the transaction, which may take effect later than what came before. A body
    /// calls this at most once, as its last step. For most protocols it is `rest` and nothing else.
    ///
    /// A protocol that evaluates lazily decides here that the transaction commits. It may show what
    /// was written so far, and let the next transaction go on. So the rest must not cancel. It
    /// touches no other rows than those that were named before
    /// ([`later_row`](RawTxn::later_row), [`later_inserts`](RawTxn::later_inserts)). It deletes
    /// nothing, and inserts only keys that have no row. Rows that are known from the start are best
    /// named before the first access: then they are looked up beside other transactions.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn later<T>(&mut self, rest: impl FnOnce(&mut Self) -> Result<T, Abort>) -> Result<T, Abort> {
        self.begin_later()?;
        rest(self)
    }

    /// Reads the named columns; `None` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<R, K>,
        key: K,
        columns: C,
    ) -> Result<Option<C::Output>, Abort> {
        let row = columns.project(|projection| self.read_row(table, key, projection))?;
        Ok(row.map(|row| columns.extract(row)))
    }

    /// Reads the named columns of many rows at once; see [`RawTxn::read_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read_many<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<R, K>,
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

    /// Reads a row and changes it. Returns the result of `change`, or `None` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify<R: Row, K: Key, T>(
        &mut self,
        table: &TypedTable<R, K>,
        key: K,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Abort> {
        self.modify_columns(table, key, Whole, change)
    }

    /// Reads the named columns of a row and changes them. Returns the result of `change`, or `None`
    /// if the key is absent. Writes of other transactions to other groups of columns are no
    /// conflict.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn modify_columns<R: Row, K: Key, C: Columns<R>, T>(
        &mut self,
        table: &TypedTable<R, K>,
        key: K,
        columns: C,
        change: impl FnOnce(&mut C::Output) -> T,
    ) -> Result<Option<T>, Abort> {
        Ok(self.modify_row(table, key, columns.groups())?.map(|row| columns.change(row, change)))
    }

    /// Reads the named columns of many rows at once and changes them; see [`RawTxn::modify_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn modify_many<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<R, K>,
        keys: &[K],
        columns: C,
        mut change: impl FnMut(usize, Option<&mut C::Output>),
    ) -> Result<(), Abort> {
        self.modify_rows(table, keys, columns.groups(), |position, row| match row {
            Some(row) => columns.change(row, |values| change(position, Some(values))),
            None => change(position, None),
        })
    }

    /// Reads the named columns of many rows at once. Changes each row by the update that `visit`
    /// returns for it, if it returns one; see [`RawTxn::update_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn update_many<R: Row, K: Key, C: Columns<R>, U: Update<R>>(
        &mut self,
        table: &TypedTable<R, K>,
        keys: &[K],
        columns: C,
        mut visit: impl FnMut(usize, Option<C::Output>) -> Option<U>,
    ) -> Result<(), Abort> {
        columns.project(|projection| {
            self.update_rows(table, keys, projection, |position, row| {
                visit(position, row.map(|row| columns.extract(row))).map(UpdateOf::<R, U>::new)
            })
        })
    }

    /// Inserts many rows. Returns whether none of the keys existed. See [`RawTxn::insert_rows`].
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert_many<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<R, K>,
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

    /// Changes a row without reading it, by an operation that is applied at commit. Returns `false`
    /// if the key is absent. Without commit-time updates the row is read and changed.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn update<R: Row, K: Key>(
        &mut self,
        table: &TypedTable<R, K>,
        key: K,
        update: impl Update<R>,
    ) -> Result<bool, Abort> {
        self.update_row(table, key, RowUpdate::new(&update))
    }

    /// Replaces a row without reading it; `false` if the key is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write<R: Row, K: Key>(&mut self, table: &TypedTable<R, K>, key: K, row: R) -> Result<bool, Abort> {
        Ok(self.write_row(table, key, Groups::ALL)?.map(|words| *R::from_words_mut(words) = row).is_some())
    }

    /// Inserts a row; `false` if the key exists.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn insert<R: Row, K: Key>(&mut self, table: &TypedTable<R, K>, key: K, row: R) -> Result<bool, Abort> {
        Ok(self.insert_row(table, key)?.map(|words| *R::from_words_mut(words) = row).is_some())
    }

    /// Reads the named columns of the rows in a range; see [`RawTxn::scan_rows`].
    ///
    /// # Errors
    /// The transaction has to abort, or the table's index has no order
    /// ([`AbortReason::Unsupported`]).
    fn scan<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &TypedTable<R, K>,
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

impl<T: RawTxn> Txn for T {}

/// A transaction that calls a function before each operation of another transaction. Tests use it
/// to run other transactions in between.
#[derive(Debug)]
pub struct Before<'t, T, F> {
    inner: &'t mut T,
    call: F,
}

impl<'t, T: RawTxn, F: FnMut()> Before<'t, T, F> {
    /// Wraps `inner`. `call` is called before each of its operations, but for announcements.
    pub fn new(inner: &'t mut T, call: F) -> Self {
        Before { inner, call }
    }

    #[inline(always)]
    fn next(&mut self) -> &mut T {
        (self.call)();
        self.inner
    }
}

impl<T: RawTxn, F: FnMut()> RawTxn for Before<'_, T, F> {
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        self.next().read_row(table, key, columns)
    }

    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.next().modify_row(table, key, groups)
    }

    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.next().write_row(table, key, groups)
    }

    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
        self.next().update_row(table, key, update)
    }

    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        self.next().insert_row(table, key)
    }

    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        self.next().delete_row(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.next().scan_rows(table, range, limit, direction, columns, visit)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.next().read_rows(table, keys, columns, visit)
    }

    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        groups: Groups,
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.next().modify_rows(table, keys, groups, visit)
    }

    fn update_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        self.next().update_rows(table, keys, columns, visit)
    }

    fn change_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        updates: &[U],
        changed: impl FnMut(usize, bool),
    ) -> Result<(), Abort> {
        self.next().change_rows(table, keys, updates, changed)
    }

    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.next().insert_rows(table, keys, visit)
    }

    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K], columns: Projection<'_>, writes: bool) {
        self.inner.announce(table, keys, columns, writes);
    }

    fn idle(&mut self, microseconds: u64) {
        self.inner.idle(microseconds);
    }

    fn uses_pieces(&self) -> bool {
        self.inner.uses_pieces()
    }

    fn begin_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        self.inner.begin_piece(piece)
    }

    fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        self.inner.end_piece(piece, failed)
    }

    fn defers(&self) -> bool {
        self.inner.defers()
    }

    fn later_row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        self.inner.later_row(table, key, writes);
    }

    fn later_inserts<K: Key>(&mut self, table: &Table<K>, keys: RangeInclusive<K>) {
        self.inner.later_inserts(table, keys);
    }

    fn begin_later(&mut self) -> Result<(), Abort> {
        self.inner.begin_later()
    }

    fn note_cancel(&mut self) -> Abort {
        self.inner.note_cancel()
    }
}
