//! [`Declaration`]: what a transaction says of itself before it begins.
//!
//! Some protocols must know beforehand what a transaction will touch: which rows, to lock them in
//! order, or which partitions of the data. A workload that can say so does, for every transaction;
//! the others' protocols do not ask, and then nothing is looked up.

use std::ptr::NonNull;

use contend_machine::Machine;
use contend_model::{DeclarationNeeds, Declare, Groups, Key, KeyWords, Table};

use crate::catalog::TableList;
use crate::layout::TableCore;
use crate::record::{Cells, Record};
use crate::table::StoredTable;

/// A row that a transaction will touch.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredRow<M: Machine> {
    key: KeyWords,
    record: Record<M>,
    table: NonNull<TableCore<M>>,
    /// Whether it may write it.
    pub writes: bool,
}

// SAFETY: the engine keeps its tables as long as it lives, and a `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for DeclaredRow<M> {}

impl<M: Machine> DeclaredRow<M> {
    /// All cells of its record.
    pub fn cells(&self) -> Cells<M> {
        // SAFETY: the engine keeps its tables, and the worker in whose context this is keeps the
        // engine.
        unsafe { self.table.as_ref() }.cells(self.record, Groups::ALL)
    }
}

/// What a transaction will touch.
#[derive(Debug)]
pub struct Declaration<M: Machine> {
    tables: TableList<M>,
    needs: DeclarationNeeds,
    reads_only: bool,
    rows: Vec<DeclaredRow<M>>,
    /// The rows in the order of their addresses.
    sorted: Vec<DeclaredRow<M>>,
    /// Where the row stands that will probably be touched next.
    next: usize,
    partitions: Vec<usize>,
}

impl<M: Machine> Declaration<M> {
    pub(crate) fn new(needs: DeclarationNeeds, tables: TableList<M>) -> Self {
        let (rows, sorted, partitions) = (Vec::new(), Vec::new(), Vec::new());
        Declaration { tables, needs, reads_only: false, rows, sorted, next: 0, partitions }
    }

    /// What is asked for: the rest need not be said.
    #[inline(always)]
    pub fn needs(&self) -> DeclarationNeeds {
        self.needs
    }

    /// The transaction will only read. A protocol that has snapshots serves it from one, and then
    /// aborts it if it writes after all
    /// ([`AbortReason::Unsupported`](crate::AbortReason::Unsupported)).
    pub fn read_only(&mut self) {
        self.reads_only = true;
    }

    /// Whether it said so.
    #[inline(always)]
    pub fn is_read_only(&self) -> bool {
        self.reads_only
    }

    /// The transaction will touch this row, if it is there, and perhaps write it.
    ///
    /// # Panics
    /// The table is of another engine.
    pub fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        if self.needs != DeclarationNeeds::Rows {
            return;
        }
        assert!(self.tables.owns(table), "table {} is of another engine", table.number());
        // SAFETY: the worker that has the declaration keeps the engine.
        let table = unsafe { self.tables.get(table) };
        if let Some(record) = table.find(key) {
            self.rows.push(DeclaredRow { key: key.to_words(), record, table: NonNull::from(&**table), writes });
        }
    }

    /// Whether rows were declared, of which [`Declaration::find`] knows the records.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The record that stood under a key when its row was declared: to touch it no second lookup is
    /// needed. By now it may be unlinked, but not reused, since the transaction's epoch has not
    /// ended. `None` if it was not declared, or not there.
    pub(crate) fn find<K: Key>(&mut self, table: &StoredTable<M, K>, key: K) -> Option<Record<M>> {
        let (key, table) = (key.to_words(), NonNull::from(&**table));
        let count = self.rows.len();
        // Most transactions touch rows in the order in which they declare them.
        let position = (self.next..count).chain(0..self.next).find(|&position| {
            let row = &self.rows[position];
            row.key == key && row.table == table
        })?;
        self.next = (position + 1) % count;
        Some(self.rows[position].record)
    }

    /// The transaction will touch data of this partition, of which the engine was told the number
    /// ([`EngineConfig::partitions`](crate::EngineConfig::partitions)).
    pub fn partition(&mut self, number: usize) {
        if self.needs == DeclarationNeeds::Partitions && !self.partitions.contains(&number) {
            self.partitions.push(number);
        }
    }

    /// The rows, as they were declared.
    pub fn rows(&self) -> &[DeclaredRow<M>] {
        &self.rows
    }

    /// The rows in the order of their addresses, each once.
    pub fn sorted_rows(&mut self) -> &[DeclaredRow<M>] {
        self.sorted.clone_from(&self.rows);
        // What is written first, so that it is what stays of a row that is declared twice.
        self.sorted.sort_unstable_by_key(|row| (row.record.value(), !row.writes));
        self.sorted.dedup_by_key(|row| row.record.value());
        &self.sorted
    }

    /// The partitions, each once. Empty if nothing was said.
    pub fn partitions(&self) -> &[usize] {
        &self.partitions
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.reads_only = false;
        self.rows.clear();
        self.next = 0;
        self.partitions.clear();
    }
}

impl<M: Machine> Declare for Declaration<M> {
    fn needs(&self) -> DeclarationNeeds {
        self.needs
    }

    fn read_only(&mut self) {
        Declaration::read_only(self);
    }

    fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        Declaration::row(self, table, key, writes);
    }

    fn partition(&mut self, number: usize) {
        Declaration::partition(self, number);
    }
}
