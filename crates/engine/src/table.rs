//! Tables: an index over records of one row length.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use contend_index::{Change, Direction, Index, IndexKind, Insert, Key, KeyWords, Leaf, Lookup, Run, ScanVisitor};
use contend_machine::{Atomic64, Latched, Machine, Ordering, Spin};

use crate::engine::{Alignment, EngineOptions};
use crate::group::{GROUPS_MAX, Groups};
use crate::journal::Stamp;
use crate::record::{Cells, Record};
use crate::row::{Projection, Row, Span};
use crate::sets::UNSURE;
use crate::slab::{Slabs, slot_words};

/// The machine has no more memory for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the machine has no more memory for records")
    }
}

impl std::error::Error for OutOfMemory {}

const WORDS_PER_LINE: usize = 8;
/// What no row holds but one of a version that was given back.
const POISON: u64 = 0xdead_0dd5_dead_0dd5;

/// What a table is to be.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The table's name, in histories and errors.
    pub name: String,
    /// Which index it has.
    pub index: IndexKind,
    /// Bytes of a row. May be 0.
    pub row_bytes: usize,
    /// The words of each group of columns; empty if all columns are of one group. [`TableSpec::of`] fills it in.
    pub groups: Vec<Span>,
    /// How many rows are expected: room is made for them at once.
    pub expected_rows: usize,
    /// Keys whose first words differ above this many low bits never share a leaf of an ordered index; 64 and more: any may. See
    /// [`contend_index::OrderedIndex::apart`].
    pub apart: u32,
}

impl TableSpec {
    /// A table of rows `R`.
    pub fn of<R: Row>(name: &str, index: IndexKind, expected_rows: usize) -> Self {
        TableSpec { groups: group_spans::<R>(), ..Self::of_bytes(name, index, size_of::<R>(), expected_rows) }
    }

    /// A table of rows of bytes, all of one group.
    pub fn of_bytes(name: &str, index: IndexKind, row_bytes: usize, expected_rows: usize) -> Self {
        TableSpec { name: name.into(), index, row_bytes, groups: Vec::new(), expected_rows, apart: u64::BITS }
    }

    /// Bytes that a table of this kind takes with `expected_rows` rows, records and index together, for keys of `K`; an estimate, a
    /// little above the truth. `meta_words` is the protocol's, a cell; `history` and `options` are as in `EngineConfig`.
    pub fn estimated_bytes<K: Key>(&self, meta_words: usize, history: bool, options: &EngineOptions) -> u64 {
        let cells = if options.timestamp_splitting { self.groups.len().max(1) } else { 1 };
        let words = cells * (meta_words + usize::from(history)) + self.row_bytes.div_ceil(8);
        let record = slot_words(words, options.alignment) as u64 * 8;
        // Measured bytes an entry, one word more for each further word of the key.
        let index = match self.index {
            IndexKind::Hash => 44,
            IndexKind::Ordered => 30,
        } + 16 * (K::WORDS as u64 - 1);
        self.expected_rows as u64 * (record + index)
    }
}

/// What a table is made of.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// Its name.
    pub name: String,
    /// Words of a key.
    pub key_words: usize,
    /// Words of a row.
    pub row_words: usize,
    /// The words of each group of columns.
    pub groups: Vec<Span>,
    /// Which index it has.
    pub index: IndexKind,
}

/// The words of each group of `R`'s columns. A group that has no column has no words.
fn group_spans<R: Row>() -> Vec<Span> {
    let groups = R::COLUMNS.iter().map(|column| column.group as usize + 1).max().unwrap_or(1);
    let span = |group: usize| {
        let mut columns = R::COLUMNS.iter().filter(|column| column.group as usize == group);
        let Some(first) = columns.next() else { return Span { first: 0, count: 0 } };
        let last = columns.next_back().unwrap_or(first);
        Span::of_bytes(first.offset, last.offset + last.size)
    };
    (0..groups).map(span).collect()
}

/// What an engine asks of all its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Metadata words of a cell.
    pub(crate) meta_words: usize,
    /// Whether each group of columns is a cell.
    pub(crate) split: bool,
    /// Whether history is recorded.
    pub(crate) history: bool,
    /// Whether writes are counted, for a log; and whether rows are held by it.
    pub(crate) stamps: bool,
    pub(crate) holds: bool,
    /// Where records begin.
    pub(crate) alignment: Alignment,
}

/// The part of a table that does not depend on its key: shape and memory of its records.
pub struct TableCore<M: Machine> {
    engine: u64,
    id: u32,
    name: String,
    /// Metadata words of a cell.
    meta_words: usize,
    /// The numbers of the cells: [`Groups::FIRST`], or one for each group.
    cells: Groups,
    cell_count: usize,
    /// The words of each group.
    groups: Box<[Span]>,
    row_bytes: usize,
    row_words: usize,
    payload_words: usize,
    expected_rows: usize,
    history: bool,
    stamps: bool,
    holds: bool,
    slabs: Slabs<M>,
    /// In debug builds, the largest stamp of a tombstone that has left the index. It is a word of the host, because a check must not change what is
    /// simulated.
    unlinked: std::sync::atomic::AtomicU64,
    /// Who deleted keys that are in the index no more; kept only if the table records history.
    graves: Latched<M, BTreeMap<KeyWords, u64>>,
}

impl<M: Machine> TableCore<M> {
    /// The table's number in its engine, from 0.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The engine that the table belongs to.
    #[inline(always)]
    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Words of a row: its bytes, rounded up.
    #[inline(always)]
    pub fn row_words(&self) -> usize {
        self.row_words
    }

    /// How many rows the table was made for: of two tables, a row of the one made for fewer is wanted by more transactions.
    #[inline(always)]
    pub fn expected_rows(&self) -> usize {
        self.expected_rows
    }

    /// How many cells a record has.
    #[inline(always)]
    pub fn cell_count(&self) -> usize {
        self.cell_count
    }

    /// The numbers of the cells in which these groups are.
    #[inline(always)]
    pub fn cell_numbers(&self, groups: Groups) -> Groups {
        if self.cell_count > 1 {
            groups.common(self.cells)
        } else if groups.is_empty() {
            Groups::NONE
        } else {
            Groups::FIRST
        }
    }

    /// The cells of a record in which these groups are.
    #[inline(always)]
    pub fn cells(&self, record: Record<M>, groups: Groups) -> Cells<M> {
        // SAFETY: the slabs were made for records of these cells.
        unsafe { record.cells(self.cell_numbers(groups), self.meta_words) }
    }

    /// The record that [`Record::value`] has made this of.
    ///
    /// # Safety
    /// It was a record of this table, and is not reused meanwhile: of an old version, see [`Context::retire_version`].
    ///
    /// [`Context::retire_version`]: crate::Context::retire_version
    pub unsafe fn version(&self, value: u64) -> Record<M> {
        // SAFETY: by the caller's promise.
        unsafe { Record::from_value(value) }
    }

    /// The words of these groups, a span for each.
    #[inline(always)]
    pub fn spans(&self, groups: Groups) -> impl Iterator<Item = Span> {
        self.own_groups(groups).into_iter().map(|group| self.groups[group])
    }

    /// Those of these groups that the rows have.
    #[inline(always)]
    pub(crate) fn own_groups(&self, groups: Groups) -> Groups {
        groups.common(Groups::first(self.groups.len()))
    }

    /// Whether these are all groups that the rows have.
    #[inline(always)]
    pub fn is_whole(&self, groups: Groups) -> bool {
        groups.contains(Groups::first(self.groups.len()))
    }

    /// The words of a cell in the row.
    pub(crate) fn cell_words(&self, cell: usize) -> std::ops::Range<usize> {
        if self.cell_count == 1 { 0..self.row_words } else { self.groups[cell].words() }
    }

    /// Where in the payload the signature of a cell's writer is, if the table records history.
    pub(crate) fn signature(&self, cell: usize) -> usize {
        self.row_words + cell
    }

    /// What a history calls the version of a cell that is in this record or old version: who wrote it; 0 if the table records no history.
    pub fn name_of(&self, record: Record<M>, cell: usize) -> u64 {
        if !self.history {
            return 0;
        }
        // Relaxed: ordered as the row is.
        self.payload(record)[self.signature(cell)].load(Ordering::Relaxed)
    }

    /// Whether the writes of each group are counted, in a word behind the row.
    #[inline(always)]
    pub(crate) fn counts_writes(&self) -> bool {
        self.stamps
    }

    /// Where in the payload the stamp of a group is, if its writes are counted.
    pub(crate) fn stamp(&self, group: usize) -> usize {
        self.row_words + if self.history { self.cell_count } else { 0 } + group
    }

    /// How many stamps a record has.
    fn stamp_count(&self) -> usize {
        if self.stamps { self.groups.len() } else { 0 }
    }

    /// The stamps of a record's groups; none, if their writes are not counted.
    pub(crate) fn stamps(&self, record: Record<M>) -> impl Iterator<Item = &M::U64> {
        self.payload(record)[self.stamp(0)..].iter().take(self.stamp_count())
    }

    /// The newest stamp of a record's groups; 0, if writes have no stamps.
    pub(crate) fn newest_stamp(&self, record: Record<M>) -> Stamp {
        // Relaxed: the protocol keeps writers away.
        let stamps = self.stamps(record).map(|word| word.load(Ordering::Relaxed) & !UNSURE);
        Stamp(stamps.max().unwrap_or(0))
    }

    /// Notes that a tombstone is about to leave the index, for [`TableCore::check_first_stamp`].
    pub(crate) fn note_unlinked(&self, record: Record<M>) {
        if cfg!(debug_assertions) {
            // Relaxed: the index's latch comes between this and the next record of the key.
            self.unlinked.fetch_max(self.newest_stamp(record).0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Checks, in debug builds, that the first stamp of a record is larger than those of all tombstones that have left the index, and so larger than
    /// those of the key's last record ([`crate::journal`]).
    #[inline(always)]
    pub(crate) fn check_first_stamp(&self, stamp: Stamp) {
        if cfg!(debug_assertions) && self.stamps {
            // Relaxed: as in `note_unlinked`.
            let unlinked = self.unlinked.load(std::sync::atomic::Ordering::Relaxed);
            assert!(
                stamp.0 > unlinked,
                "a new record has stamp {stamp:?}, and one that has left the index {unlinked:#x}"
            );
        }
    }

    /// Whether rows are held until they are durable.
    #[inline(always)]
    pub(crate) fn holds_rows(&self) -> bool {
        self.holds
    }

    /// Where in the payload the hold of a cell is, if rows are held.
    pub(crate) fn hold(&self, cell: usize) -> usize {
        self.stamp(self.stamp_count()) + cell
    }

    /// The cells of a new record have not been written, and nobody holds them, whatever its memory was before.
    #[inline(always)]
    pub(crate) fn clear_log_words(&self, record: Record<M>) {
        // Relaxed: the index publishes the record.
        self.payload(record)[self.stamp(0)..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Words of a record's payload: the row, and the signatures of its cells' writers if the table records history.
    #[inline(always)]
    pub fn payload_words(&self) -> usize {
        self.payload_words
    }

    /// Whether each cell's version is signed by its writer in a word behind the row. Like the row, the word is read and written
    /// under the protocol's own rules, so that a history says what the protocol really did.
    #[inline(always)]
    pub fn records_history(&self) -> bool {
        self.history
    }

    /// Metadata words of all cells of a record.
    #[inline(always)]
    fn head_words(&self) -> usize {
        self.meta_words * self.cell_count
    }

    /// A record's payload: the row's words and, if history is recorded, the signatures.
    #[inline(always)]
    pub fn payload(&self, record: Record<M>) -> &[M::U64] {
        // SAFETY: the slabs were made for records of this many words.
        unsafe { record.words(self.head_words(), self.payload_words()) }
    }

    /// Fills the row of a version that nobody reads any more, so that whoever does is found: in debug builds.
    pub(crate) fn poison(&self, record: Record<M>) {
        if cfg!(debug_assertions) {
            // Relaxed: nobody looks.
            self.payload(record).iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
        }
    }

    /// Whether this cell's part of the row of a version was filled by the engine after it had been given back: in debug builds, where a protocol
    /// that reads such a version is wrong.
    pub fn is_poisoned(&self, record: Record<M>, cell: usize) -> bool {
        // Relaxed: a copy does not change while it is read.
        self.payload(record)[self.cell_words(cell)].iter().any(|word| word.load(Ordering::Relaxed) == POISON)
    }

    /// Asks for the record's lines that an access of these columns needs.
    #[inline(always)]
    fn prefetch(&self, record: Record<M>, columns: Projection<'_>) {
        let (first, head) = (std::ptr::from_ref(record.word()), self.head_words());
        M::prefetch(first);
        let words = head + self.payload_words;
        if words <= WORDS_PER_LINE {
            return;
        }
        let ask = |span: Span| Self::prefetch_words(first, head + span.words().start..head + span.words().end);
        match columns.words() {
            None if self.is_whole(columns.groups()) => Self::prefetch_words(first, WORDS_PER_LINE..words),
            None => self.spans(columns.groups()).for_each(ask),
            Some(spans) => spans.iter().for_each(|span| ask(*span)),
        }
    }

    #[inline]
    fn prefetch_words(first: *const M::U64, words: std::ops::Range<usize>) {
        let last = words.end - 1;
        words.step_by(WORDS_PER_LINE).chain([last]).for_each(|word| M::prefetch(first.wrapping_add(word)));
    }

    pub(crate) fn slabs(&self) -> &Slabs<M> {
        &self.slabs
    }

    /// Who deleted this key, if it was and is in the index no more; 0 if nobody.
    pub(crate) fn grave(&self, key: &KeyWords) -> u64 {
        self.graves.with(|graves| graves.get(key).copied().unwrap_or(0))
    }

    /// The keys in the range that were deleted and are in the index no more, with their deleters.
    pub(crate) fn graves(&self, low: KeyWords, high: KeyWords) -> Vec<(KeyWords, u64)> {
        if low > high {
            return Vec::new();
        }
        self.graves.with(|graves| graves.range(low..=high).map(|(&key, &deleter)| (key, deleter)).collect())
    }

    /// Bytes of the records' memory, used or not.
    pub fn record_bytes(&self) -> usize {
        self.slabs.bytes()
    }
}

impl<M: Machine> std::fmt::Debug for TableCore<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).field("row_bytes", &self.row_bytes).finish_non_exhaustive()
    }
}

/// A table: rows of bytes under keys of type `K`.
#[derive(Debug)]
pub struct Table<M: Machine, K: Key = u64> {
    core: TableCore<M>,
    index: Index<M, K>,
}

impl<M: Machine, K: Key> Deref for Table<M, K> {
    type Target = TableCore<M>;

    #[inline(always)]
    fn deref(&self) -> &TableCore<M> {
        &self.core
    }
}

/// What [`Table::insert`] did.
pub(crate) enum Placed<M: Machine> {
    /// The record stands under the key now.
    New(Change<M>),
    /// Another stands there already.
    Exists(Lookup<M>),
}

impl<M: Machine, K: Key> Table<M, K> {
    pub(crate) fn new(engine: u64, id: u32, spec: &TableSpec, shape: Shape) -> Self {
        let Shape { meta_words, split, history, stamps, holds, alignment } = shape;
        assert!(meta_words >= 1, "a protocol has at least one metadata word");
        assert!(spec.groups.len() <= GROUPS_MAX, "a row has at most {GROUPS_MAX} groups");
        let row_words = spec.row_bytes.div_ceil(8);
        let groups: Box<[Span]> = match spec.groups.as_slice() {
            [] | [_] => [Span { first: 0, count: row_words as u32 }].into(),
            groups => groups.into(),
        };
        let cell_count = if split { groups.len() } else { 1 };
        let stamp_count = if stamps { groups.len() } else { 0 };
        let payload_words = row_words + cell_count * (usize::from(history) + usize::from(holds)) + stamp_count;
        Table {
            core: TableCore {
                engine,
                id,
                name: spec.name.clone(),
                meta_words,
                cells: Groups::first(cell_count),
                cell_count,
                groups,
                row_bytes: spec.row_bytes,
                row_words,
                payload_words,
                expected_rows: spec.expected_rows,
                history,
                stamps,
                holds,
                slabs: Slabs::new(cell_count * meta_words + payload_words, alignment),
                unlinked: std::sync::atomic::AtomicU64::new(0),
                graves: Latched::new(BTreeMap::new()),
            },
            index: Index::new(spec.index, spec.expected_rows, spec.apart),
        }
    }

    /// The record that a lookup found.
    #[inline(always)]
    pub(crate) fn record(value: u64) -> Record<M> {
        // SAFETY: only `insert` puts values into the index, and it takes them from records of this table.
        unsafe { Record::from_value(value) }
    }

    /// Looks a key up in the index.
    #[inline(always)]
    pub(crate) fn lookup(&self, key: K) -> Lookup<M> {
        self.index.get(key)
    }

    /// The record under a key, absent or not.
    #[inline(always)]
    pub(crate) fn find(&self, key: K) -> Option<Record<M>> {
        self.lookup(key).value.map(Self::record)
    }

    /// Has the host fetch where these keys stand, or would stand, and their records: before something is done with each of them.
    pub fn expect(&self, keys: &[K]) {
        self.find_many(keys, Projection::WHOLE, |_, _| ());
    }

    /// The records under many keys, looked up at once, and what is needed of them asked for. `found` gets each key's position.
    #[inline(always)]
    pub(crate) fn find_many(
        &self,
        keys: &[K],
        columns: Projection<'_>,
        mut found: impl FnMut(usize, Option<Record<M>>),
    ) {
        self.index.get_many(keys, |position, lookup| {
            let record = lookup.value.map(Self::record);
            if let Some(record) = record {
                self.core.prefetch(record, columns);
            }
            found(position, record);
        });
    }

    /// Puts a record under a key, unless one stands there. `run` is of this table's index.
    pub(crate) fn insert(&self, run: &mut Run<'_, M, K>, key: K, record: Record<M>) -> Placed<M> {
        if self.history {
            // One critical section with `remove`, so that the record is signed by whoever deleted the key last.
            return self.graves.with(|graves| {
                let deleter = graves.get(&key.to_words()).copied().unwrap_or(0);
                for signature in &self.payload(record)[self.row_words..][..self.cell_count] {
                    // Relaxed: the record is private until the index publishes it.
                    signature.store(deleter, Ordering::Relaxed);
                }
                Self::placed(run.insert(key, record.value()))
            });
        }
        Self::placed(run.insert(key, record.value()))
    }

    fn placed(insert: Insert<M>) -> Placed<M> {
        match insert {
            Insert::Inserted(change) => Placed::New(change),
            Insert::Exists(lookup) => Placed::Exists(lookup),
        }
    }

    /// For inserts one after the other.
    pub(crate) fn run(&self) -> Run<'_, M, K> {
        self.index.run()
    }

    /// Visits the records in the range; `false` if the index has no order.
    pub(crate) fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<M, K>) -> bool {
        self.index.scan(low, high, direction, visitor)
    }

    /// Which index the table has.
    pub fn index_kind(&self) -> IndexKind {
        self.index.kind()
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Raises the protocol's word of the leaf that covers the key.
    fn raise(&self, key: K, time: u64) {
        let mut spin = Spin::<M>::new();
        loop {
            let lookup = self.lookup(key);
            // Relaxed: ordered by the fence, which `Leaf::word` asks for.
            lookup.leaf.word().fetch_max(time, Ordering::Relaxed);
            M::fence(Ordering::SeqCst);
            if lookup.leaf.version() == lookup.version {
                return;
            }
            spin.wait();
        }
    }

    /// A record's row as it stands, and its signatures if history is recorded: outside any transaction.
    pub(crate) fn peek(&self, record: Record<M>, to: &mut Vec<u64>) {
        to.resize(self.payload_words(), 0);
        M::copy_out(self.payload(record), to);
    }

    /// Visits every record in the order of the keys (ordered index), or fails for a hash index.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(K, Record<M>)) -> bool {
        struct All<F>(F);
        impl<M: Machine, K: Key, F: FnMut(K, Record<M>)> ScanVisitor<M, K> for All<F> {
            fn leaf(&mut self, _: Leaf<M>, _: u64) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }
            fn entry(&mut self, key: K, value: u64) -> ControlFlow<()> {
                (self.0)(key, Table::<M, K>::record(value));
                ControlFlow::Continue(())
            }
        }
        self.index.scan(K::MIN, K::MAX, Direction::Forward, &mut All(&mut visit))
    }
}

/// A table whose key type is not known: what garbage collection and accounting need of it.
pub(crate) trait AnyTable<M: Machine>: Send + Sync {
    fn core(&self) -> &TableCore<M>;
    /// Removes the record from the index if it stands there under this key, after raising its leaf's word to `time`.
    fn remove(&self, key: &KeyWords, record: Record<M>, time: u64) -> bool;
    fn bytes(&self) -> u64;
    fn shape(&self) -> TableShape;
    /// The record under this key, absent or not.
    fn find(&self, key: &KeyWords) -> Option<Record<M>>;
    /// Has the index lead to the record under this key; `false` if there is one already.
    fn insert(&self, key: &KeyWords, record: Record<M>) -> bool;
    /// The key as a history names it.
    fn key_name(&self, key: &KeyWords) -> String;
    /// Visits every record of the index, absent or not. Not while transactions run.
    fn for_each_record(&self, visit: &mut dyn FnMut(Record<M>));
}

impl<M: Machine, K: Key> AnyTable<M> for Table<M, K> {
    fn core(&self) -> &TableCore<M> {
        &self.core
    }

    fn remove(&self, key: &KeyWords, record: Record<M>, time: u64) -> bool {
        if time > 0 {
            self.raise(K::from_words(*key), time);
        }
        if !self.history {
            return self.index.remove(K::from_words(*key), record.value());
        }
        self.graves.with(|graves| {
            // Relaxed: the record is a tombstone that the caller has retired; nobody signs it any more.
            let deleter = self.payload(record)[self.signature(0)].load(Ordering::Relaxed);
            if deleter != 0 {
                graves.insert(*key, deleter);
            }
            self.index.remove(K::from_words(*key), record.value())
        })
    }

    fn bytes(&self) -> u64 {
        (self.index.bytes() + self.slabs.bytes()) as u64
    }

    fn shape(&self) -> TableShape {
        TableShape {
            name: self.name.clone(),
            key_words: K::WORDS,
            row_words: self.row_words,
            groups: self.groups.to_vec(),
            index: self.index_kind(),
        }
    }

    fn find(&self, key: &KeyWords) -> Option<Record<M>> {
        Table::find(self, K::from_words(*key))
    }

    fn insert(&self, key: &KeyWords, record: Record<M>) -> bool {
        matches!(Table::insert(self, &mut self.run(), K::from_words(*key), record), Placed::New(_))
    }

    fn key_name(&self, key: &KeyWords) -> String {
        K::from_words(*key).name()
    }

    fn for_each_record(&self, visit: &mut dyn FnMut(Record<M>)) {
        match &self.index {
            Index::Hash(index) => index.for_each(|value| visit(Table::<M, K>::record(value))),
            Index::Ordered(_) => drop(self.for_each(|_, record| visit(record))),
        }
    }
}

/// A table of rows `R` under keys `K`.
#[derive(Debug)]
pub struct TypedTable<M: Machine, R, K: Key = u64> {
    table: Arc<Table<M, K>>,
    rows: PhantomData<fn() -> R>,
}

impl<M: Machine, R, K: Key> Clone for TypedTable<M, R, K> {
    fn clone(&self) -> Self {
        TypedTable { table: Arc::clone(&self.table), rows: PhantomData }
    }
}

impl<M: Machine, R: Row, K: Key> TypedTable<M, R, K> {
    /// The same table, its rows seen as `R`.
    ///
    /// # Panics
    /// The table's rows are not of `R`'s length.
    pub fn new(table: Arc<Table<M, K>>) -> Self {
        assert_eq!(table.row_bytes(), size_of::<R>(), "table {} does not hold rows of {}", table.name(), R::NAME);
        TypedTable { table, rows: PhantomData }
    }

    /// The table as bytes.
    pub fn untyped(&self) -> &Arc<Table<M, K>> {
        &self.table
    }
}

impl<M: Machine, R, K: Key> Deref for TypedTable<M, R, K> {
    type Target = Table<M, K>;

    #[inline(always)]
    fn deref(&self) -> &Table<M, K> {
        &self.table
    }
}
