//! Scans of ranges.

use std::ops::{ControlFlow, RangeInclusive};

use contend_index::{Direction, Key, Leaf, ScanVisitor};
use contend_machine::{Activity, Machine, Operation, Phase};

use super::Transaction;
use super::access::{Access, ReadEntry};
use super::record::ScanNotes;
use crate::abort::{Abort, AbortReason};
use crate::protocol::Protocol;
use crate::table::StoredTable;
use contend_model::Projection;

const INDEX: Phase = Phase::of(Operation::Read, Activity::Index);

/// The state of a running scan.
struct Scan<'t, 'w, 'c, P: Protocol<M>, M: Machine, K: Key, V> {
    transaction: &'t mut Transaction<'w, P, M>,
    table: &'t StoredTable<M, K>,
    columns: Projection<'c>,
    limit: usize,
    visit: V,
    visited: usize,
    /// The key at which the scan was stopped by its limit or by the visitor.
    last: Option<K>,
    failed: Option<Abort>,
    notes: Vec<ScanNotes>,
}

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    pub(super) fn scan_table<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        let (low, high) = range.into_inner();
        if limit == 0 || low > high {
            return Ok(0);
        }
        self.await_inserts(table, low, high)?;
        M::enter(INDEX);
        M::step("scan");
        let notes = self.scan_notes(table, columns.groups());
        let mut scan =
            Scan { transaction: self, table, columns, limit, visit, visited: 0, last: None, failed: None, notes };
        if !table.scan(low, high, direction, &mut scan) {
            return Err(self.doom(Abort::new(AbortReason::Unsupported)));
        }
        let Scan { visited, failed, last, notes, .. } = scan;
        M::enter(Phase::BODY);
        if let Some(abort) = failed {
            return Err(self.fail(table.id(), abort));
        }
        // A scan that was stopped has read up to the last key that it returned.
        let (low, high) = match (last, direction) {
            (None, _) => (low, high),
            (Some(last), Direction::Forward) => (low, last),
            (Some(last), Direction::Backward) => (last, high),
        };
        if self.worker.engine.protocol().observes_ranges() {
            self.observe_range(table, low, high)?;
        }
        if self.worker.cx.declaration.has_rows() && !self.worker.cx.declaration.covers(table, low, high) {
            return Err(self.undeclared());
        }
        if self.is_recording() {
            self.record_scan(table, low, high, notes);
        }
        Ok(visited)
    }
}

impl<P, M, K, V> Scan<'_, '_, '_, P, M, K, V>
where
    P: Protocol<M>,
    M: Machine,
    K: Key,
    V: FnMut(K, &[u64]) -> ControlFlow<()>,
{
    #[inline(always)]
    fn try_entry(&mut self, key: K, value: u64) -> Result<ControlFlow<()>, Abort> {
        let (table, transaction) = (self.table, &mut *self.transaction);
        // A complete declaration must have the key before its row is read: another transaction may
        // be writing it. The keys without a row are looked at when the scan has ended.
        if transaction.worker.cx.declaration.has_rows() && !transaction.worker.cx.declaration.covers(table, key, key) {
            return Err(transaction.undeclared());
        }
        let record = StoredTable::<M, K>::record(value);
        table.await_record(Some(record), self.columns);
        let access = transaction.access(table, key, Some(record), ReadEntry(self.columns))?;
        // The groups that an own write lacks are in the row buffer before notes are taken.
        if let Access::Own(position) = access {
            transaction.fetch_missing(table, key, position, self.columns.groups())?;
        }
        if transaction.is_recording() {
            transaction.note_entry(&mut self.notes, table, key, access);
        }
        let row = match access {
            Access::Row(_) => Some(&transaction.worker.cx.row_buffer[..table.row_words()]),
            Access::Own(position) => transaction.own_row(table, position, self.columns.groups()),
            Access::Absent | Access::Gap => None,
        };
        let Some(row) = row else {
            transaction.worker.passed_absent += 1;
            return Ok(ControlFlow::Continue(()));
        };
        self.visited += 1;
        M::enter(Phase::BODY);
        let flow = (self.visit)(key, row);
        M::enter(INDEX);
        M::step("scan");
        if flow.is_break() || self.visited == self.limit {
            self.last = Some(key);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<P, M, K, V> ScanVisitor<M, K> for Scan<'_, '_, '_, P, M, K, V>
where
    P: Protocol<M>,
    M: Machine,
    K: Key,
    V: FnMut(K, &[u64]) -> ControlFlow<()>,
{
    fn leaf(&mut self, leaf: Leaf<M>, version: u64) -> ControlFlow<()> {
        let worker = &mut *self.transaction.worker;
        match worker.engine.protocol().observe_leaf(&mut worker.cx, &mut worker.local, self.table.id(), leaf, version) {
            Ok(()) => ControlFlow::Continue(()),
            Err(abort) => {
                worker.cx.note_gap(self.table, abort.reason);
                self.failed = Some(abort);
                ControlFlow::Break(())
            }
        }
    }

    #[inline(always)]
    fn entry(&mut self, key: K, value: u64) -> ControlFlow<()> {
        self.try_entry(key, value).unwrap_or_else(|abort| {
            self.failed = Some(abort);
            ControlFlow::Break(())
        })
    }
}
