//! The layout of a table's records, and their memory: all of a table that does not depend on its
//! key.

use std::collections::BTreeMap;

use contend_machine::{Atomic64, Machine, Ordering, SpinMutex};
use contend_model::{GROUPS_MAX, Groups, IndexKind, KeyWords, Projection, Span, TableSpec};

use crate::commit_sink::WriteCounter;
use crate::config::{Alignment, EngineOptions};
use crate::record::{Cells, Record};
use crate::sets::UNSURE;
use crate::slab::{Slabs, slot_words};

const WORDS_PER_LINE: usize = 8;
/// What no row holds but one of a version that was given back.
const POISON: u64 = 0xdead_0dd5_dead_0dd5;

/// Returns the bytes that a table takes with its expected number of rows, records and index
/// together; an estimate, a little above the truth. `meta_words` is the protocol's, for each cell;
/// `history` and `options` are as in [`EngineConfig`](crate::EngineConfig).
pub fn estimated_bytes(spec: &TableSpec, meta_words: usize, history: bool, options: &EngineOptions) -> u64 {
    let cells = if options.timestamp_splitting { spec.groups.len().max(1) } else { 1 };
    let words = cells * (meta_words + usize::from(history)) + spec.row_bytes.div_ceil(8);
    let record = slot_words(words, options.alignment) as u64 * 8;
    // Measured bytes an entry, one word more for each further word of the key.
    let index = match spec.index {
        IndexKind::Hash => 44,
        IndexKind::Ordered => 30,
    } + 16 * (spec.key_words as u64 - 1);
    spec.expected_rows as u64 * (record + index)
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
    pub(crate) counters: bool,
    pub(crate) holds: bool,
    /// Where records begin.
    pub(crate) alignment: Alignment,
}

/// The part of a table that does not depend on its key: shape and memory of its records.
pub struct TableCore<M: Machine> {
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
    counters: bool,
    holds: bool,
    slabs: Slabs<M>,
    /// In debug builds, the largest write counter of a tombstone that has left the index. It is a
    /// word of the host, because a check must not change what is simulated.
    unlinked: std::sync::atomic::AtomicU64,
    /// Writers of the deletions of keys that have left the index; kept only if the table records
    /// history.
    pub(crate) deletions: SpinMutex<M, BTreeMap<KeyWords, u64>>,
}

impl<M: Machine> TableCore<M> {
    pub(crate) fn new(id: u32, spec: &TableSpec, shape: Shape) -> Self {
        let Shape { meta_words, split, history, counters, holds, alignment } = shape;
        assert!(meta_words >= 1, "a protocol has at least one metadata word");
        assert!(spec.groups.len() <= GROUPS_MAX, "a row has at most {GROUPS_MAX} groups");
        let row_words = spec.row_bytes.div_ceil(8);
        let groups: Box<[Span]> = match spec.groups.as_slice() {
            [] | [_] => [Span { first: 0, count: row_words as u32 }].into(),
            groups => groups.into(),
        };
        let cell_count = if split { groups.len() } else { 1 };
        let counter_count = if counters { groups.len() } else { 0 };
        let payload_words = row_words + cell_count * (usize::from(history) + usize::from(holds)) + counter_count;
        TableCore {
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
            counters,
            holds,
            slabs: Slabs::new(cell_count * meta_words + payload_words, alignment),
            unlinked: std::sync::atomic::AtomicU64::new(0),
            deletions: SpinMutex::new(BTreeMap::new()),
        }
    }

    /// The table's number in its engine, from 0.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.id
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

    /// How many rows the table was made for: of two tables, a row of the one made for fewer is
    /// wanted by more transactions.
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
    /// It was a record of this table, and is not reused meanwhile: of an old version, see
    /// [`Context::retire_version`].
    ///
    /// [`Context::retire_version`]: crate::Context::retire_version
    pub unsafe fn version(&self, value: u64) -> Record<M> {
        // SAFETY: by the caller's promise.
        unsafe { Record::from_value(value) }
    }

    /// The words of each group.
    pub(crate) fn groups(&self) -> &[Span] {
        &self.groups
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

    /// What a history calls the version of a cell that is in this record or old version: who wrote
    /// it; 0 if the table records no history.
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
        self.counters
    }

    /// Where in the payload the write counter of a group is, if its writes are counted.
    pub(crate) fn counter(&self, group: usize) -> usize {
        self.row_words + if self.history { self.cell_count } else { 0 } + group
    }

    /// How many counters a record has.
    fn counter_count(&self) -> usize {
        if self.counters { self.groups.len() } else { 0 }
    }

    /// The write counters of a record's groups; none, if their writes are not counted.
    pub(crate) fn counters(&self, record: Record<M>) -> impl Iterator<Item = &M::U64> {
        self.payload(record)[self.counter(0)..].iter().take(self.counter_count())
    }

    /// The newest write counter of a record's groups; 0, if writes have no write counters.
    pub(crate) fn newest_counter(&self, record: Record<M>) -> WriteCounter {
        // Relaxed: the protocol keeps writers away.
        let counters = self.counters(record).map(|word| word.load(Ordering::Relaxed) & !UNSURE);
        WriteCounter(counters.max().unwrap_or(0))
    }

    /// Notes that a tombstone is about to leave the index, for [`TableCore::check_first_counter`].
    pub(crate) fn note_unlinked(&self, record: Record<M>) {
        if cfg!(debug_assertions) {
            // Relaxed: the index's latch comes between this and the next record of the key.
            self.unlinked.fetch_max(self.newest_counter(record).0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Checks, in debug builds, that the first write counter of a record is larger than those of
    /// all tombstones that have left the index, and so larger than those of the key's last record
    /// ([`crate::commit_sink`]).
    #[inline(always)]
    pub(crate) fn check_first_counter(&self, counter: WriteCounter) {
        if cfg!(debug_assertions) && self.counters {
            // Relaxed: as in `note_unlinked`.
            let unlinked = self.unlinked.load(std::sync::atomic::Ordering::Relaxed);
            assert!(
                counter.0 > unlinked,
                "a new record has counter {counter:?}, and one that has left the index {unlinked:#x}"
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
        self.counter(self.counter_count()) + cell
    }

    /// The cells of a new record have not been written, and nobody holds them, whatever its memory
    /// was before.
    #[inline(always)]
    pub(crate) fn clear_log_words(&self, record: Record<M>) {
        // Relaxed: the index publishes the record.
        self.payload(record)[self.counter(0)..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Words of a record's payload: the row, and the signatures of its cells' writers if the table
    /// records history.
    #[inline(always)]
    pub fn payload_words(&self) -> usize {
        self.payload_words
    }

    /// Whether each cell's version is signed by its writer in a word behind the row. Like the row,
    /// the word is read and written under the protocol's own rules, so that a history says what the
    /// protocol really did.
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

    /// Fills the row of a version that nobody reads any more, so that whoever does is found: in
    /// debug builds.
    pub(crate) fn poison(&self, record: Record<M>) {
        if cfg!(debug_assertions) {
            // Relaxed: nobody looks.
            self.payload(record).iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
        }
    }

    /// Whether this cell's part of the row of a version was filled by the engine after it had been
    /// given back: in debug builds, where a protocol that reads such a version is wrong.
    pub fn is_poisoned(&self, record: Record<M>, cell: usize) -> bool {
        // Relaxed: a copy does not change while it is read.
        self.payload(record)[self.cell_words(cell)].iter().any(|word| word.load(Ordering::Relaxed) == POISON)
    }

    /// Asks for the record's lines that an access of these columns needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: Record<M>, columns: Projection<'_>) {
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

    /// Returns the transaction that deleted this key, if the key was deleted and has left the
    /// index; 0 if there is none.
    pub(crate) fn deleter_of(&self, key: &KeyWords) -> u64 {
        self.deletions.with(|deletions| deletions.get(key).copied().unwrap_or(0))
    }

    /// Returns the keys in the range that were deleted and have left the index, each with the
    /// transaction that deleted it.
    pub(crate) fn deletions_in(&self, low: KeyWords, high: KeyWords) -> Vec<(KeyWords, u64)> {
        if low > high {
            return Vec::new();
        }
        self.deletions.with(|deletions| deletions.range(low..=high).map(|(&key, &deleter)| (key, deleter)).collect())
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
