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
    /// The record under the key; `None` if there was none when the row was declared.
    record: Option<Record<M>>,
    table: NonNull<TableCore<M>>,
    /// Whether the transaction may write the row.
    pub writes: bool,
}

// SAFETY: the engine keeps its tables as long as it lives, and a `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for DeclaredRow<M> {}

impl<M: Machine> DeclaredRow<M> {
    fn table(&self) -> &TableCore<M> {
        // SAFETY: the engine keeps its tables, and the worker whose context holds this row keeps
        // the engine.
        unsafe { self.table.as_ref() }
    }

    /// Returns all cells of the row's record; `None` if there was none when the row was declared.
    pub fn cells(&self) -> Option<Cells<M>> {
        self.record.map(|record| self.table().cells(record, Groups::ALL))
    }

    /// Returns the number of the row's table, and the row's key, also if there is no such row.
    pub fn table_and_key(&self) -> (u32, &KeyWords) {
        (self.table().id(), &self.key)
    }

    fn record_value(&self) -> u64 {
        self.record.map_or(0, Record::value)
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
    /// The declared keys inside of a range, while it is judged.
    inside: Vec<KeyWords>,
    /// The first access to a row that a complete declaration lacks, in a sentence.
    violation: Option<String>,
}

/// What a declaration says about a key.
pub(crate) enum Declared<M: Machine> {
    /// The record stood under the key when its row was declared. It may be unlinked by now, but not
    /// reused, since the transaction's epoch has not ended.
    At(Record<M>),
    /// The key must be looked up.
    LookUp,
    /// The transaction must not touch the key.
    Refused,
}

impl<M: Machine> Declaration<M> {
    pub(crate) fn new(needs: DeclarationNeeds, store: StoreId) -> Self {
        let (rows, sorted, partitions) = (Vec::new(), Vec::new(), Vec::new());
        let (inside, violation) = (Vec::new(), None);
        Declaration {
            store,
            needs,
            reads_only: false,
            kind: None,
            rows,
            sorted,
            next: 0,
            partitions,
            inside,
            violation,
        }
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
    /// set. A key without a record is ignored, unless the declaration is to be complete
    /// ([`DeclarationNeeds::RowsOrPartitions`]).
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        if !matches!(self.needs, DeclarationNeeds::Rows | DeclarationNeeds::RowsOrPartitions) {
            return;
        }
        // SAFETY: the worker that has the declaration keeps the engine.
        let table: &StoredTable<M, K> =
            unsafe { catalog::stored(self.store, table) }.unwrap_or_else(|| catalog::refuse(table));
        let record = table.find(key);
        if record.is_some() || self.is_complete() {
            self.rows.push(DeclaredRow { key: key.to_words(), record, table: NonNull::from(&**table), writes });
        }
    }

    /// Whether the transaction may touch no other rows than the declared ones, if it has declared
    /// any.
    #[inline(always)]
    fn is_complete(&self) -> bool {
        self.needs == DeclarationNeeds::RowsOrPartitions
    }

    /// Whether rows were declared, so that [`Declaration::find`] may find their records.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns what the declared rows say about a key that is going to be read, or written. Where
    /// they have its record, no second lookup is needed.
    pub(crate) fn find<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, writes: bool) -> Declared<M> {
        let (words, core, complete) = (key.to_words(), NonNull::from(&**table), self.is_complete());
        let count = self.rows.len();
        // Most transactions touch rows in the order in which they declare them.
        let position = (self.next..count).chain(0..self.next).find(|&position| {
            let row = &self.rows[position];
            row.key == words && row.table == core && (row.writes || !writes || !complete)
        });
        match position {
            Some(position) => {
                self.next = (position + 1) % count;
                self.rows[position].record.map_or(Declared::LookUp, Declared::At)
            }
            None if complete => {
                self.refuse(table, &key.name(), writes);
                Declared::Refused
            }
            None => Declared::LookUp,
        }
    }

    /// Whether a scan from `low` to `high`, both included, passes declared keys only: all keys of
    /// the range, whether they have a row or not, if the declaration is complete.
    pub(crate) fn covers<K: Key>(&mut self, table: &StoredTable<M, K>, low: K, high: K) -> bool {
        if !self.is_complete() {
            return true;
        }
        let (low_words, high_words, core) = (low.to_words(), high.to_words(), NonNull::from(&**table));
        let last = K::WORDS - 1;
        // The distance of keys that differ in their last word only. No declaration has more keys
        // than fit there.
        let keys = (low_words[..last] == high_words[..last]).then(|| high_words[last] - low_words[last]);
        let is_inside = |row: &&DeclaredRow<M>| row.table == core && (low_words..=high_words).contains(&row.key);
        self.inside.clear();
        self.inside.extend(self.rows.iter().filter(is_inside).map(|row| row.key));
        self.inside.sort_unstable();
        self.inside.dedup();
        let covers = keys.is_some_and(|keys| self.inside.len() as u64 > keys);
        if !covers {
            self.refuse(table, &format!("{} to {}", low.name(), high.name()), false);
        }
        covers
    }

    #[cold]
    fn refuse<K: Key>(&mut self, table: &StoredTable<M, K>, keys: &str, writes: bool) {
        let verb = if writes { "writes" } else { "reads" };
        let violation =
            || format!("a transaction {verb} the key {keys} of the table {}, which it has not declared", table.name());
        self.violation.get_or_insert_with(violation);
    }

    /// Returns the first access to a row that a complete declaration lacked since the last call.
    pub(crate) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// Declares that the transaction will touch the partition of this number, below
    /// [`EngineConfig::partitions`](crate::EngineConfig::partitions).
    pub fn partition(&mut self, number: usize) {
        let wanted = matches!(self.needs, DeclarationNeeds::Partitions | DeclarationNeeds::RowsOrPartitions);
        if wanted && !self.partitions.contains(&number) {
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
        self.sorted.sort_unstable_by_key(|row| (row.record_value(), !row.writes));
        self.sorted.dedup_by_key(|row| row.record_value());
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
