//! [`Declaration`]: the facts about a transaction that it gives before it begins.
//!
//! Some protocols must know beforehand what a transaction will touch: its rows, to lock them in
//! order, or its partitions of the data. A workload that can say so does it for every transaction.
//! If the protocol doesn't ask, the workload's closure is not called and no row is looked up.

use std::ops::RangeInclusive;
use std::ptr::NonNull;

use contend_machine::Machine;
use contend_model::{DeclarationNeeds, Declare, Groups, Key, KeyWords, StoreId, Table};

use crate::catalog;
use crate::layout::TableCore;
use crate::record::{Cell, Cells, Record};
use crate::table::StoredTable;

/// The instructions to copy a row before rows are sorted, and to compare two of them, which a
/// simulated core doesn't see otherwise.
const COPY_INSTRUCTIONS: u32 = 8;
const COMPARE_INSTRUCTIONS: u32 = 6;

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

    /// Returns the row's record; `None` if there was none when the row was declared.
    pub fn record(&self) -> Option<Record<M>> {
        self.record
    }

    /// Returns the number of the row's table, and the row's key, also if there is no such row.
    pub fn table_and_key(&self) -> (u32, &KeyWords) {
        (self.table().id(), &self.key)
    }

    fn record_value(&self) -> u64 {
        self.record.map_or(0, Record::value)
    }
}

/// A range of keys into which the later part of a transaction inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRange {
    /// The number of the table.
    pub table: u32,
    /// The position of the last word that a key of the table has.
    pub last_word: usize,
    /// The first key.
    pub low: KeyWords,
    /// The last key.
    pub high: KeyWords,
}

impl NamedRange {
    pub(crate) fn new<M: Machine, K: Key>(table: &StoredTable<M, K>, low: K, high: K) -> Self {
        let (low, high) = (low.to_words(), high.to_words());
        NamedRange { table: table.id(), last_word: K::WORDS - 1, low, high }
    }

    /// Whether the range has this key of this table.
    pub fn has(&self, table: u32, key: &KeyWords) -> bool {
        self.table == table && (self.low..=self.high).contains(key)
    }

    /// Whether both ranges have a key in common.
    pub fn meets(&self, other: &NamedRange) -> bool {
        self.table == other.table && self.low <= other.high && other.low <= self.high
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
    /// The rows that were named for the later part. They become `rows` when that part begins.
    later: Vec<DeclaredRow<M>>,
    /// The ranges that were named for the inserts of the later part.
    inserts: Vec<NamedRange>,
    /// Whether the later part runs ([`contend_model::Txn::later`]).
    is_later: bool,
    /// Whether accesses are to be looked up in `rows`.
    guides: bool,
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
        let (later, inserts) = (Vec::new(), Vec::new());
        Declaration {
            store,
            needs,
            reads_only: false,
            kind: None,
            rows,
            sorted,
            next: 0,
            partitions,
            later,
            inserts,
            is_later: false,
            guides: false,
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
            self.guides = true;
            self.rows.push(DeclaredRow { key: key.to_words(), record, table: NonNull::from(&**table), writes });
        }
    }

    /// Names a row that the later part of the running transaction will touch.
    pub(crate) fn name_row<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, writes: bool) {
        let record = table.find(key);
        // Also if the row is only read: the border leaves a request in its metadata.
        record.into_iter().flat_map(|record| table.cells(record, Groups::ALL)).for_each(Cell::prefetch_to_write);
        self.later.push(DeclaredRow { key: key.to_words(), record, table: NonNull::from(&**table), writes });
    }

    /// Names a range of keys into which the later part of the running transaction will insert.
    pub(crate) fn name_inserts<K: Key>(&mut self, table: &StoredTable<M, K>, keys: &RangeInclusive<K>) {
        self.inserts.push(NamedRange::new(table, *keys.start(), *keys.end()));
    }

    /// Begins the later part. It may touch only what was named for it, so the rows that were named
    /// are the declared ones from now on.
    pub(crate) fn begin_later(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.later);
        (self.next, self.is_later, self.guides) = (0, true, true);
    }

    /// Takes back [`Declaration::begin_later`]: the transaction has to abort before that part.
    #[cold]
    pub(crate) fn take_back_later(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.later);
        (self.is_later, self.guides) = (false, false);
    }

    /// Whether the later part of the transaction has begun.
    #[inline(always)]
    pub(crate) fn is_later(&self) -> bool {
        self.is_later
    }

    /// Returns the ranges that were named for the inserts of the later part.
    pub fn insert_ranges(&self) -> &[NamedRange] {
        &self.inserts
    }

    /// Returns what the declaration says about a key that is going to be inserted.
    pub(crate) fn find_for_insert<K: Key>(&mut self, table: &StoredTable<M, K>, key: K) -> Declared<M> {
        if !self.is_later {
            return self.find(table, key, true);
        }
        let own = NamedRange::new(table, key, key);
        if self.inserts.iter().any(|range| range.meets(&own)) {
            return Declared::LookUp;
        }
        self.refuse(table, &key.name(), "inserts");
        Declared::Refused
    }

    /// Refuses a step that the later part of a transaction must not take.
    #[cold]
    pub(crate) fn refuse_later(&mut self, step: &str) {
        let violation = || format!("a transaction {step} in its later part, after it was decided that it commits");
        self.violation.get_or_insert_with(violation);
    }

    /// Whether the transaction may touch no other rows than the declared ones, if it has declared
    /// any.
    #[inline(always)]
    fn is_complete(&self) -> bool {
        self.needs == DeclarationNeeds::RowsOrPartitions || self.is_later
    }

    /// Whether rows were declared, so that [`Declaration::find`] may find their records.
    #[inline(always)]
    pub(crate) fn has_rows(&self) -> bool {
        self.guides
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
                self.refuse(table, &key.name(), if writes { "writes" } else { "reads" });
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
            self.refuse(table, &format!("{} to {}", low.name(), high.name()), "reads");
        }
        covers
    }

    #[cold]
    fn refuse<K: Key>(&mut self, table: &StoredTable<M, K>, keys: &str, verb: &str) {
        let how = if self.is_later { "named for its later part" } else { "declared" };
        let violation =
            || format!("a transaction {verb} the key {keys} of the table {}, which it has not {how}", table.name());
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
        let rows = self.rows.len() as u32;
        // Each row takes part in as many comparisons as the number of rows has bits.
        M::work(rows * (COPY_INSTRUCTIONS + COMPARE_INSTRUCTIONS * (u32::BITS - rows.leading_zeros())));
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
        (self.is_later, self.guides) = (false, false);
        self.later.clear();
        self.inserts.clear();
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
