//! The part of a table that does not depend on its key type: the layout of its records, and their
//! memory.
//!
//! **Where a word stands.** Metadata first, then the row, then signatures, write counters and
//! holds. A reader needs the metadata and the first columns, which mostly share a line. The words
//! of a history or a log come last, so that a run without them has the same lines for the same
//! columns.
//!
//! **Orderings.** All accesses to a payload are Relaxed, here and in [`crate::sets`]. A record is
//! private until the index publishes it (Release of the insert, Acquire of the lookup). From then
//! on the protocol orders its payload by the metadata: by a lock that a writer holds, or by a
//! version that an optimistic reader checks. The words behind the row are stored in the same
//! critical sections as the row, so they need nothing of their own.
//!
//! Only four fields of [`TableCore`] change once the table is in use: `slabs`, behind mutexes;
//! `unlinked`, in debug builds; `reused`, once; `deletions`, behind mutexes and with a history
//! only. A worker loads all others without synchronisation.

use contend_index::LeafWords;
use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::pieces::DeclaredTable;
use contend_model::{GROUPS_MAX, Groups, IndexKind, Projection, Span, TableSpec};

use crate::cell_copy::CellCopy;
use crate::commit_sink::WriteCounter;
use crate::config::{Alignment, EngineOptions};
use crate::deletions::Deletions;
use crate::record::{Cells, Record};
use crate::sets::UNSURE;
use crate::slab::{Slabs, slot_words};

const WORDS_PER_LINE: usize = 8;
/// The word that fills the row of a version whose memory was given back. No other row holds it.
pub(crate) const POISON: u64 = 0xdead_0dd5_dead_0dd5;

/// Returns an estimate, a little too large, of the bytes of a table with its expected number of
/// rows, records and index together. `meta_words` is the protocol's number of words for each cell;
/// `history` and `options` are as in [`EngineConfig`](crate::EngineConfig).
pub fn estimated_bytes(spec: &TableSpec, meta_words: usize, history: bool, options: &EngineOptions) -> u64 {
    let cells = if options.timestamp_splitting { spec.groups.len().max(1) } else { 1 };
    let words = cells * (meta_words + usize::from(history)) + spec.row_bytes.div_ceil(8);
    let record = slot_words(words, options.alignment, spec.expected_rows) as u64 * 8;
    // Measured bytes of an index entry, and two words more for each further word of the key.
    let index = match spec.index {
        IndexKind::Hash => 44,
        IndexKind::Ordered => 30,
    } + 16 * (spec.key_words as u64 - 1);
    spec.expected_rows as u64 * (record + index)
}

/// In debug builds, fills words that no transaction may read any more.
pub(crate) fn poison<U: Atomic64>(words: &[U]) {
    if cfg!(debug_assertions) {
        // A protocol that is wrong may read here at the same time, and get a mixture. One poisoned
        // word in it is enough for `is_poisoned`. Relaxed: no transaction may read the words any
        // more; their memory is given back after this, by this worker.
        words.iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
    }
}

/// What an engine demands of the layout of all its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Metadata words of a cell.
    pub(crate) meta_words: usize,
    /// Whether each group of columns is a cell.
    pub(crate) split: bool,
    /// Whether history is recorded.
    pub(crate) history: bool,
    /// Whether a log needs write counters in the rows, and whether it holds rows.
    pub(crate) counters: bool,
    pub(crate) holds: bool,
    /// Where records begin.
    pub(crate) alignment: Alignment,
    /// What the protocol's words of leaves are.
    pub(crate) leaf_words: LeafWords,
    /// The most workers.
    pub(crate) workers: usize,
}

/// The part of a table that does not depend on its key type: the shape and the memory of its
/// records.
pub struct TableCore<M: Machine> {
    id: u32,
    declared: DeclaredTable,
    /// Metadata words of a cell.
    meta_words: usize,
    /// The numbers of the cells: [`Groups::FIRST`], or one for each group.
    cells: Groups,
    cell_count: usize,
    /// The words of each group.
    groups: Box<[Span]>,
    all_groups: Groups,
    row_bytes: usize,
    row_words: usize,
    /// Metadata words of all cells.
    head_words: usize,
    payload_words: usize,
    expected_rows: usize,
    history: bool,
    counters: bool,
    holds: bool,
    slabs: Slabs<M>,
    /// In debug builds, the largest write counter of a tombstone that has left the index. It is a
    /// word of the host, because a check must not change the simulated accesses.
    unlinked: std::sync::atomic::AtomicU64,
    /// Whether the memory of a record that was in the index is used again. A word of the host, too.
    reused: std::sync::atomic::AtomicBool,
    /// Writers of the deletions of keys that have left the index; kept only if the table records
    /// history.
    pub(crate) deletions: Deletions<M>,
}

impl<M: Machine> TableCore<M> {
    pub(crate) fn new(id: u32, spec: &TableSpec, shape: Shape) -> Self {
        let Shape { meta_words, split, history, counters, holds, alignment, leaf_words: _, workers } = shape;
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
            declared: spec.declared(),
            meta_words,
            cells: Groups::first(cell_count),
            cell_count,
            all_groups: Groups::first(groups.len()),
            groups,
            row_bytes: spec.row_bytes,
            row_words,
            head_words: cell_count * meta_words,
            payload_words,
            expected_rows: spec.expected_rows,
            history,
            counters,
            holds,
            slabs: Slabs::new(slot_words(cell_count * meta_words + payload_words, alignment, spec.expected_rows)),
            unlinked: std::sync::atomic::AtomicU64::new(0),
            reused: std::sync::atomic::AtomicBool::new(false),
            deletions: Deletions::new(workers),
        }
    }

    /// Returns the table's number in its engine, from 0.
    #[inline(always)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        &self.declared.name
    }

    /// Returns the table as declarations of pieces know it.
    pub(crate) fn declared(&self) -> &DeclaredTable {
        &self.declared
    }

    /// Returns the bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the number of words of a row: its bytes, rounded up.
    #[inline(always)]
    pub fn row_words(&self) -> usize {
        self.row_words
    }

    /// Returns the number of rows that the table was made for. A row of a table with few rows is
    /// more likely to be wanted by several transactions than a row of a large table.
    #[inline(always)]
    pub fn expected_rows(&self) -> usize {
        self.expected_rows
    }

    /// Returns the number of cells of a record.
    #[inline(always)]
    pub fn cell_count(&self) -> usize {
        self.cell_count
    }

    /// Returns the numbers of the cells that contain these groups.
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

    /// Returns the cells of a record that contain these groups.
    #[inline(always)]
    pub fn cells(&self, record: Record<M>, groups: Groups) -> Cells<M> {
        // SAFETY: the slabs were made for records with these cells.
        unsafe { record.cells(self.cell_numbers(groups), self.meta_words) }
    }

    /// Returns the record that `value` came from, by [`Record::value`].
    ///
    /// # Safety
    /// It was a record of this table, and its memory is not reused during the use of the handle.
    /// For an old version see [`Context::retire_version`].
    ///
    /// [`Context::retire_version`]: crate::Context::retire_version
    pub unsafe fn version(&self, value: u64) -> Record<M> {
        // SAFETY: by the caller's promise.
        unsafe { Record::from_value(value) }
    }

    /// Returns the copy of a cell at this address ([`CellCopy::address`]).
    ///
    /// # Safety
    /// It was a copy of this cell of a record of this table, and its memory is not reused during
    /// the use of the handle. See [`Context::new_copy`].
    ///
    /// [`Context::new_copy`]: crate::Context::new_copy
    pub unsafe fn cell_copy(&self, cell: usize, address: u64) -> CellCopy<M> {
        // SAFETY: by the caller's promise.
        CellCopy::new(unsafe { Record::from_value(address) }, self.copied_words(cell))
    }

    /// Returns the number of words of a copy of a cell's contents.
    pub(crate) fn copied_words(&self, cell: usize) -> usize {
        self.cell_words(cell).len() + usize::from(self.history)
    }

    /// Returns the words of each group.
    pub(crate) fn groups(&self) -> &[Span] {
        &self.groups
    }

    /// Returns one span of words for each of these groups.
    #[inline(always)]
    pub fn spans(&self, groups: Groups) -> impl Iterator<Item = Span> {
        self.own_groups(groups).into_iter().map(|group| self.groups[group])
    }

    /// Returns the part of `groups` that the rows have.
    #[inline(always)]
    pub(crate) fn own_groups(&self, groups: Groups) -> Groups {
        groups.common(Groups::first(self.groups.len()))
    }

    /// Whether `groups` contains all groups of the rows.
    #[inline(always)]
    pub fn is_whole(&self, groups: Groups) -> bool {
        groups.contains(self.all_groups)
    }

    /// Returns the range of the row's words that a cell covers.
    pub(crate) fn cell_words(&self, cell: usize) -> std::ops::Range<usize> {
        if self.cell_count == 1 { 0..self.row_words } else { self.groups[cell].words() }
    }

    /// Returns the position in the payload of the signature of a cell's writer, if the table
    /// records history.
    pub(crate) fn signature(&self, cell: usize) -> usize {
        self.row_words + cell
    }

    /// Copies contents that were saved, the signature included, into a cell of a record. The caller
    /// has the cell exclusively.
    pub(crate) fn fill_cell(&self, record: Record<M>, cell: usize, saved: &[u64]) {
        let (payload, words) = (self.payload(record), self.cell_words(cell));
        M::copy_in(&payload[words.clone()], &saved[..words.len()]);
        if self.records_history() {
            // Relaxed: the caller's lock, or the copy's publication, orders the signature as it
            // orders the row.
            payload[self.signature(cell)].store(saved[words.len()], Ordering::Relaxed);
        }
    }

    /// Returns the name that a history gives to the version of a cell in this record or old
    /// version: its writer's number. 0 if the table records no history.
    pub fn name_of(&self, record: Record<M>, cell: usize) -> u64 {
        if !self.history {
            return 0;
        }
        // Relaxed: the protocol orders the signature as it orders the words of the row. A protocol
        // asks for the name where it may read the row, so it has synchronised with the version's
        // writer.
        self.payload(record)[self.signature(cell)].load(Ordering::Relaxed)
    }

    /// Whether the writes of each group are counted, in a word behind the row.
    #[inline(always)]
    pub(crate) fn counts_writes(&self) -> bool {
        self.counters
    }

    /// Returns the position in the payload of a group's write counter, if writes are counted.
    pub(crate) fn counter(&self, group: usize) -> usize {
        self.row_words + if self.history { self.cell_count } else { 0 } + group
    }

    /// Returns the number of write counters of a record.
    fn counter_count(&self) -> usize {
        if self.counters { self.groups.len() } else { 0 }
    }

    /// Returns the write counters of a record's groups; none if writes are not counted.
    pub(crate) fn counters(&self, record: Record<M>) -> impl Iterator<Item = &M::U64> {
        self.payload(record)[self.counter(0)..].iter().take(self.counter_count())
    }

    /// Returns the largest write counter of a record's groups; 0 if writes are not counted.
    pub(crate) fn newest_counter(&self, record: Record<M>) -> WriteCounter {
        // Relaxed: the protocol keeps writers away, and has synchronised with the last one.
        let counters = self.counters(record).map(|word| word.load(Ordering::Relaxed) & !UNSURE);
        WriteCounter(counters.max().unwrap_or(0))
    }

    /// Notes that a tombstone is about to leave the index, for [`TableCore::check_first_counter`].
    pub(crate) fn note_unlinked(&self, record: Record<M>) {
        if cfg!(debug_assertions) {
            // Relaxed: the index's latch comes between this and the next record of the key. The
            // removal takes the latch after this, and a transaction's insert takes it before
            // `check_first_counter`. A tombstone of another key may be seen there or not. The check
            // holds for both, because the epoch of that tombstone was over as well.
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

    /// Notes that the memory of a record which has left the index is about to be used again.
    #[inline(always)]
    pub(crate) fn note_reuse(&self) {
        // Relaxed, both: the flag is read when no transaction runs any more. The load spares a
        // store to a line that all workers read.
        if !self.reused.load(std::sync::atomic::Ordering::Relaxed) {
            self.reused.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Whether a record may have stood under two keys, one after the other. To be called when no
    /// transaction runs.
    pub(crate) fn has_reused(&self) -> bool {
        // Relaxed: the caller has ended all transactions, which orders their stores before this.
        self.reused.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the number of metadata words of a cell.
    pub(crate) fn cell_meta_words(&self) -> usize {
        self.meta_words
    }

    /// Whether rows are held until they are durable.
    #[inline(always)]
    pub(crate) fn holds_rows(&self) -> bool {
        self.holds
    }

    /// Returns the position in the payload of a cell's hold, if rows are held.
    pub(crate) fn hold(&self, cell: usize) -> usize {
        self.counter(self.counter_count()) + cell
    }

    /// Sets the counters and holds of a new record to 0, whatever its memory was before: its cells
    /// have not been written, and no transaction holds them.
    #[inline(always)]
    pub(crate) fn clear_log_words(&self, record: Record<M>) {
        // Relaxed: the record is private until the index publishes it (Release).
        self.payload(record)[self.counter(0)..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns the number of words of a record's payload: the row, then the signatures of its
    /// cells' writers if the table records history, then the log's words.
    #[inline(always)]
    pub fn payload_words(&self) -> usize {
        self.payload_words
    }

    /// Whether each cell's version is signed by its writer in a word behind the row. The protocol's
    /// own rules order the reads and writes of this word, as they order those of the row. So a
    /// history shows what the protocol really did.
    #[inline(always)]
    pub fn records_history(&self) -> bool {
        self.history
    }

    /// The number of metadata words of all cells of a record.
    #[inline(always)]
    fn head_words(&self) -> usize {
        self.head_words
    }

    /// Returns a record's payload: the row's words and, if history is recorded, the signatures.
    #[inline(always)]
    pub fn payload(&self, record: Record<M>) -> &[M::U64] {
        // SAFETY: the slabs were made for records of this many words.
        unsafe { record.words(self.head_words(), self.payload_words()) }
    }

    /// In debug builds, fills the row of a version that no transaction may read any more
    /// ([`poison`]). A protocol that reads it nevertheless is found by [`TableCore::is_poisoned`].
    pub(crate) fn poison(&self, record: Record<M>) {
        poison(self.payload(record));
    }

    /// Whether the engine has filled this cell's part of a version after the version was given
    /// back. It does so in debug builds only. A protocol that reads such a version is wrong.
    pub fn is_poisoned(&self, record: Record<M>, cell: usize) -> bool {
        // Relaxed: the words of a copy don't change while a transaction may read it.
        self.payload(record)[self.cell_words(cell)].iter().any(|word| word.load(Ordering::Relaxed) == POISON)
    }

    /// Prefetches the lines of the record that an access to these columns needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: Record<M>, columns: Projection<'_>) {
        let (first, head) = (std::ptr::from_ref(record.word()), self.head_words());
        M::prefetch(first);
        let words = head + self.payload_words;
        if words <= WORDS_PER_LINE {
            return;
        }
        if head > WORDS_PER_LINE / 2 && !self.slabs.begin_lines() {
            // The record may begin at a half line.
            Self::prefetch_words(first, WORDS_PER_LINE / 2..head);
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

    /// Returns the bytes of the memory for records, used or not.
    pub fn record_bytes(&self) -> usize {
        self.slabs.bytes()
    }
}

impl<M: Machine> std::fmt::Debug for TableCore<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.declared.name)
            .field("row_bytes", &self.row_bytes)
            .finish_non_exhaustive()
    }
}
