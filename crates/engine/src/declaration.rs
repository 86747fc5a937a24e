//! [`Declaration`]: the facts about a transaction that it gives before it begins.
//!
//! Some protocols must know beforehand what a transaction will touch: its rows, to lock them in
//! order, or its partitions of the data. A workload that can say so does it for every transaction.
//! If the protocol doesn't ask, the workload's closure is not called and no row is looked up.

use std::ptr::NonNull;

use contend_machine::Machine;
use contend_model::{DeclarationNeeds, Declare, Groups, Key, KeyWords, StoreId, Table};

use crate::catalog;
use crate::layout::TableCore;
use crate::record::{Cells, Record};
use crate::table::StoredTable;

/// A row that a transaction has declared.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredRow<M: Machine> {
    key: KeyWords,
    record: Record<M>,
    table: NonNull<TableCore<M>>,
    /// Whether the transaction may write the row.
    pub writes: bool,
}

// SAFETY: the engine keeps its tables as long as it lives, and a `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for DeclaredRow<M> {}

impl<M: Machine> DeclaredRow<M> {
    /// Returns all cells of the row's record.
    pub fn cells(&self) -> Cells<M> {
        // SAFETY: the engine keeps its tables, and the worker whose context holds this row keeps
        // the engine.
        unsafe { self.table.as_ref() }.cells(self.record, Groups::ALL)
    }
}

/// The declaration of a transaction: the rows and partitions that it will touch, and whether it
/// only reads.
#[derive(Debug)]
pub struct Declaration<M: Machine> {
    store: StoreId,
    needs: DeclarationNeeds,
    reads_only: bool,
    kind: Option<usize>,
    rows: Vec<DeclaredRow<M>>,
    /// The rows in the order of their addresses.
    sorted: Vec<DeclaredRow<M>>,
    /// The position in `rows` of the row that will probably be touched next.
    next: usize,
    partitions: Vec<usize>,
}

impl<M: Machine> Declaration<M> {
    pub(crate) fn new(needs: DeclarationNeeds, store: StoreId) -> Self {
        let (rows, sorted, partitions) = (Vec::new(), Vec::new(), Vec::new());
        Declaration { store, needs, reads_only: false, kind: None, rows, sorted, next: 0, partitions }
    }

    /// Returns what the protocol asks for. A workload may leave out everything else.
    #[inline(always)]
    pub fn needs(&self) -> DeclarationNeeds {
        self.needs
    }

    /// Declares the transaction's type, by its position among the declared ones.
    pub fn kind(&mut self, kind: usize) {
        self.kind = Some(kind);
    }

    /// Returns the transaction's type.
    #[inline(always)]
    pub fn kind_of(&self) -> Option<usize> {
        self.kind
    }

    /// Declares that the transaction only reads. A protocol with snapshots serves it from one, and
    /// aborts it if it writes after all
    /// ([`AbortReason::Unsupported`](crate::AbortReason::Unsupported)).
    pub fn read_only(&mut self) {
        self.reads_only = true;
    }

    /// Whether the transaction declared that it only reads.
    #[inline(always)]
    pub fn is_read_only(&self) -> bool {
        self.reads_only
    }

    /// Declares that the transaction will touch this row, and that it may write it if `writes` is
    /// set. A key without a record is ignored.
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        if self.needs != DeclarationNeeds::Rows {
            return;
        }
        // SAFETY: the worker that has the declaration keeps the engine.
        let table: &StoredTable<M, K> =
            unsafe { catalog::stored(self.store, table) }.unwrap_or_else(|| catalog::refuse(table));
        if let Some(record) = table.find(key) {
            self.rows.push(DeclaredRow { key: key.to_words(), record, table: NonNull::from(&**table), writes });
        }
    }

    /// Whether rows were declared, so that [`Declaration::find`] may find their records.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns the record that stood under the key when its row was declared, so that no second
    /// lookup is needed. The record may be unlinked by now, but not reused, since the transaction's
    /// epoch has not ended. `None` if the row was not declared, or did not exist.
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

    /// Declares that the transaction will touch the partition of this number, below
    /// [`EngineConfig::partitions`](crate::EngineConfig::partitions).
    pub fn partition(&mut self, number: usize) {
        if self.needs == DeclarationNeeds::Partitions && !self.partitions.contains(&number) {
            self.partitions.push(number);
        }
    }

    /// Returns the declared rows in the order of their declaration.
    pub fn rows(&self) -> &[DeclaredRow<M>] {
        &self.rows
    }

    /// Returns the declared rows in the order of their addresses, each once.
    pub fn sorted_rows(&mut self) -> &[DeclaredRow<M>] {
        self.sorted.clone_from(&self.rows);
        // A row that is declared twice counts as written if one of the two may write it: written
        // rows come first, and the first of equal rows stays.
        self.sorted.sort_unstable_by_key(|row| (row.record.value(), !row.writes));
        self.sorted.dedup_by_key(|row| row.record.value());
        &self.sorted
    }

    /// Returns the declared partitions, each once. Empty if none was declared.
    pub fn partitions(&self) -> &[usize] {
        &self.partitions
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.reads_only = false;
        self.kind = None;
        self.rows.clear();
        self.next = 0;
        self.partitions.clear();
    }
}

impl<M: Machine> Declare for Declaration<M> {
    fn needs(&self) -> DeclarationNeeds {
        self.needs
    }

    fn kind(&mut self, kind: usize) {
        Declaration::kind(self, kind);
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
