//! The check of a running transaction against the declaration of its type.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use super::Piece;
use super::declared::TypeSet;
use super::permissions::{Attempt, Declared, Permitted, Undeclared, Use};
use crate::abort::{Abort, AbortReason};
use crate::group::{GROUPS_MAX, Groups};
use crate::key::Key;
use crate::projection::Projection;
use crate::table::Table;
use crate::txn::{Direction, PieceEnd, RawTxn};
use crate::update::{IntoRowUpdate, RowUpdate};

/// Declarations, ready for checks.
#[derive(Debug)]
pub struct CheckedTypes {
    types: TypeSet,
    permissions: Declared,
}

impl CheckedTypes {
    /// Prepares these declarations.
    pub fn new(types: TypeSet) -> Arc<Self> {
        let permissions = Declared::new(&types);
        Arc::new(CheckedTypes { types, permissions })
    }

    /// Returns the declarations.
    pub fn types(&self) -> &TypeSet {
        &self.types
    }
}

/// The pieces of a running transaction, and what its type allows. Without declarations everything
/// is allowed.
#[derive(Debug)]
pub struct PieceChecker {
    declared: Option<Arc<CheckedTypes>>,
    of: Option<usize>,
    /// The number of the last piece that has begun.
    last: Option<usize>,
    /// What the open piece may do; nothing where none is open.
    permitted: Permitted,
    /// Whether the running transaction may do anything.
    is_free: bool,
    /// The first violation.
    undeclared: Option<Undeclared>,
}

impl Default for PieceChecker {
    fn default() -> Self {
        PieceChecker {
            declared: None,
            of: None,
            last: None,
            permitted: Permitted::NOTHING,
            is_free: false,
            undeclared: None,
        }
    }
}

impl PieceChecker {
    /// Checks the next transactions by these declarations, or not at all.
    pub fn declare(&mut self, declared: Option<Arc<CheckedTypes>>) {
        self.declared = declared;
    }

    /// Begins a transaction of this type.
    #[inline(always)]
    pub fn begin(&mut self, of: Option<usize>) {
        let is_declared = |of: &usize| self.declared.as_ref().is_none_or(|all| *of < all.permissions.type_count());
        (self.of, self.last, self.is_free) = (of.filter(is_declared), None, false);
        self.close();
    }

    /// Begins a transaction that needs no declaration: it sees a snapshot, or runs alone.
    pub fn begin_free(&mut self) {
        self.begin(None);
        self.is_free = true;
    }

    /// Whether the running piece may do this to a row of a table.
    #[inline(always)]
    pub fn allows(&mut self, table: u32, what: Use) -> bool {
        let Some(declared) = &self.declared else { return true };
        declared.permissions.allow(self.permitted, table, what) || self.refuse_access(table, what)
    }

    #[cold]
    fn refuse_access(&mut self, table: u32, what: Use) -> bool {
        if self.is_free {
            return true;
        }
        self.refuse(match self.of {
            None => Attempt::NoType,
            Some(_) if self.is_open() => Attempt::Access(table, self.within(table, what)),
            Some(_) => Attempt::Outside(table),
        })
    }

    /// Returns the same with only the groups that the table has.
    fn within(&self, table: u32, what: Use) -> Use {
        let of_table = self.declared.as_ref().and_then(|declared| declared.types.tables.get(table as usize));
        what.within(Groups::first(of_table.map_or(GROUPS_MAX, |table| table.groups)))
    }

    /// Notes that a settled read of this table has broken its promise: the row is not there, or it
    /// was a scan.
    #[cold]
    pub fn refuse_settled(&mut self, table: u32) {
        self.refuse(Attempt::Unsettled(table));
    }

    fn refuse(&mut self, attempt: Attempt) -> bool {
        let piece = self.last;
        self.undeclared.get_or_insert(Undeclared { of: self.of, piece, attempt });
        false
    }

    /// Whether this piece may begin: its number is larger than that of all before, and no other is
    /// open. If so, it begins.
    pub fn may_begin(&mut self, piece: Piece) -> bool {
        let Some(declared) = &self.declared else { return true };
        let number = piece.number();
        let Some(of) = self.of else { return self.is_free || self.refuse(Attempt::NoType) };
        if self.is_open() {
            return self.refuse(Attempt::Nested(number));
        }
        if number >= declared.permissions.piece_count(of) || self.last.is_some_and(|last| number <= last) {
            return self.refuse(Attempt::OutOfOrder(number));
        }
        (self.last, self.permitted) = (Some(number), declared.permissions.of(of, number));
        true
    }

    /// Ends the open piece: no access is allowed until the next begins.
    #[inline(always)]
    pub fn close(&mut self) {
        self.permitted = Permitted::NOTHING;
    }

    fn is_open(&self) -> bool {
        self.permitted != Permitted::NOTHING
    }

    /// Takes back the last piece: it will begin again.
    pub fn begin_again(&mut self) {
        self.last = self.last.and_then(|last| last.checked_sub(1));
    }

    /// Whether the application may cancel here.
    pub fn may_cancel(&mut self) -> bool {
        let Some(declared) = &self.declared else { return true };
        match (self.of, self.last) {
            (Some(of), Some(piece)) if declared.permissions.cancels(of, piece) => true,
            _ => self.is_free || self.refuse(Attempt::Cancel),
        }
    }

    /// Refuses that the application cancels where a part of its transaction has committed. Returns
    /// `false`.
    pub fn refuse_late_cancel(&mut self) -> bool {
        self.refuse(Attempt::LateCancel)
    }

    /// Returns the first violation since the last call, in words.
    pub fn take_violation(&mut self) -> Option<String> {
        let undeclared = self.undeclared.take()?;
        Some(self.declared.as_ref()?.types.explain(undeclared))
    }
}

/// A transaction that is checked against the declaration of its type, on any store. Tests run all
/// transactions through it, so that a wrong declaration is found under every protocol.
#[derive(Debug)]
pub struct Checked<'t, T> {
    inner: &'t mut T,
    checker: &'t mut PieceChecker,
}

impl<'t, T: RawTxn> Checked<'t, T> {
    /// Wraps `inner`, a transaction that has just begun and is of this type. Where transactions
    /// have later parts ([`RawTxn::defers`]), they may take their steps in another order.
    pub fn new(inner: &'t mut T, checker: &'t mut PieceChecker, of: usize) -> Self {
        if inner.defers() {
            checker.begin_free()
        } else {
            checker.begin(Some(of))
        }
        Checked { inner, checker }
    }

    fn allow<K: Key>(&mut self, table: &Table<K>, what: Use) -> Result<(), Abort> {
        if self.checker.allows(table.number(), what) { Ok(()) } else { Err(Abort::new(AbortReason::Undeclared)) }
    }
}

impl<T: RawTxn> RawTxn for Checked<'_, T> {
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        self.allow(table, Use::Read(columns.groups()))?;
        self.inner.read_row(table, key, columns)
    }

    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.allow(table, Use::Write(groups))?;
        self.inner.modify_row(table, key, groups)
    }

    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        self.allow(table, Use::Write(groups))?;
        self.inner.write_row(table, key, groups)
    }

    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
        self.allow(table, Use::of_update(update))?;
        self.inner.update_row(table, key, update)
    }

    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        self.allow(table, Use::Insert)?;
        self.inner.insert_row(table, key)
    }

    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        self.allow(table, Use::Delete)?;
        self.inner.delete_row(table, key)
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
        self.allow(table, Use::Read(columns.groups()))?;
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.allow(table, Use::Read(columns.groups()))?;
        self.inner.read_rows(table, keys, columns, visit)
    }

    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        groups: Groups,
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.allow(table, Use::Write(groups))?;
        self.inner.modify_rows(table, keys, groups, visit)
    }

    fn update_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        self.allow(table, Use::Read(columns.groups()))?;
        // The updates are known only once they are drawn: a wrong one is refused behind the call.
        let mut uses = Vec::new();
        self.inner.update_rows(table, keys, columns, |position, row| {
            let update = visit(position, row)?;
            uses.push(Use::of_update(update.as_row_update()));
            Some(update)
        })?;
        uses.into_iter().try_for_each(|what| self.allow(table, what))
    }

    fn change_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        updates: &[U],
        changed: impl FnMut(usize, bool),
    ) -> Result<(), Abort> {
        updates.iter().try_for_each(|update| self.allow(table, Use::of_update(update.as_row_update())))?;
        self.inner.change_rows(table, keys, updates, changed)
    }

    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.allow(table, Use::Insert)?;
        self.inner.insert_rows(table, keys, visit)
    }

    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K], columns: Projection<'_>, writes: bool) {
        self.inner.announce(table, keys, columns, writes);
    }

    fn idle(&mut self, microseconds: u64) {
        self.inner.idle(microseconds);
    }

    fn begin_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        if !self.checker.may_begin(piece) {
            return Err(Abort::new(AbortReason::Undeclared));
        }
        self.inner.begin_piece(piece)
    }

    fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        self.checker.close();
        let end = self.inner.end_piece(piece, failed)?;
        if end == PieceEnd::Again {
            self.checker.begin_again();
        }
        Ok(end)
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
        if self.checker.may_cancel() { self.inner.note_cancel() } else { Abort::new(AbortReason::Undeclared) }
    }
}
