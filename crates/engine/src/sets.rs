//! Parts that protocols are made of: the write set, the node set, and a map from addresses to
//! positions.
//!
//! All of them are memory of one worker. The only shared words that they touch are the payloads of
//! records. A protocol holds a cell exclusively while it applies updates to it or installs it, so
//! these accesses are Relaxed, or word by word ([`Machine::copy_in`], [`Machine::copy_out`]). They
//! become visible with the protocol's own release of the cell's lock or version word. Optimistic
//! readers may load words in the middle of an installation, and find out by that word.

mod address_map;
mod logged;
mod node_set;

use std::ops::Range;
use std::ptr::NonNull;

use contend_index::Key;
use contend_machine::{Activity, Atomic64, Machine, Ordering};

pub use self::address_map::AddressMap;
use self::logged::LoggedWrites;
pub(crate) use self::logged::{Logging, UNSURE};
pub use self::node_set::NodeSet;
use crate::commit_sink::Hold;
use crate::group::Groups;
use crate::history::{Version, fingerprint};
use crate::layout::TableCore;
use crate::protocol::SHORT_ROW;
use crate::record::{Cells, Record};
use crate::update::{PendingList, PendingUpdates, RowUpdate};

/// The effect of a write at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Replace the row of a record that exists.
    Update,
    /// Give a row to a record that is absent: a placeholder, or the tombstone of a deleted row.
    Insert,
    /// Make the record absent.
    Delete,
    /// Do nothing: the transaction deleted a row that it had inserted itself, or its write is
    /// omitted ([`WriteSet::skip_invisible`]).
    Nothing,
}

/// One record to be written.
///
/// Each group of an [`WriteKind::Update`] is written in one of two ways, never in both: the image
/// holds its new words, or updates change it at commit ([`Write::merged`]). The other kinds concern
/// the whole record.
#[derive(Debug)]
pub struct Write<M: Machine> {
    /// The record.
    pub record: Record<M>,
    /// The effect on the record.
    pub kind: WriteKind,
    /// Whether this transaction made the record. Then it must have the record collected if the
    /// record stays absent.
    pub fresh: bool,
    /// Whether the commit made the record a tombstone that this worker must have collected. The
    /// protocol sets it.
    pub collect: bool,
    /// Whether the write was installed for good before the end of the transaction, so that an abort
    /// does not take it back ([`Protocol::begin_later`](crate::Protocol::begin_later)). The
    /// protocol sets it.
    pub stays: bool,
    /// The groups whose new words are in the image.
    pub(crate) image: Groups,
    /// `merged`: the groups that updates change at commit. `ordered`: those of them that an update
    /// changes which does not commute. `updates`: the updates themselves.
    merged: Groups,
    ordered: Groups,
    updates: PendingList,
    /// Whether the updates have been applied: then the image holds their groups as well.
    applied: bool,
    /// Whether the write consists only of updates that commute, and that have been applied.
    is_sum: bool,
    /// Whether the entry is out of reach of the transaction's further accesses.
    is_sealed: bool,
    table: NonNull<TableCore<M>>,
    /// The positions in the arena of the key's words, and of the image's words, which follow them.
    key_start: u32,
    image_start: u32,
    image_end: u32,
}

// SAFETY: the table outlives the transaction that the entry belongs to (`WriteSet::push`), and a
// `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for Write<M> {}

impl<M: Machine> Write<M> {
    /// Returns the record's table.
    #[inline(always)]
    pub fn table(&self) -> &TableCore<M> {
        // SAFETY: the engine keeps its tables as long as it lives, a transaction keeps the engine,
        // and `Transaction` admits only tables of its engine.
        unsafe { self.table.as_ref() }
    }

    /// Returns the groups that are written.
    #[inline(always)]
    pub fn groups(&self) -> Groups {
        self.image.union(self.merged)
    }

    /// Returns the groups that updates will change at commit.
    #[inline(always)]
    pub fn merged(&self) -> Groups {
        self.merged
    }

    /// Returns the numbers of the cells that are written.
    #[inline(always)]
    pub fn cell_numbers(&self) -> Groups {
        self.table().cell_numbers(self.groups())
    }

    /// Returns the numbers of the cells that are written only by commit-time updates that commute
    /// ([`crate::Update::commutes`]).
    #[inline(always)]
    pub fn commuting(&self) -> Groups {
        let ordered = self.table().cell_numbers(self.image.union(self.ordered));
        self.table().cell_numbers(self.merged).without(ordered)
    }

    /// Returns the numbers of the cells that are replaced as a whole, whatever they held.
    #[inline(always)]
    pub fn replaced(&self) -> Groups {
        let whole = self.table().cell_count() > 1 || self.table().is_whole(self.image);
        if self.kind == WriteKind::Update && whole { self.table().cell_numbers(self.image) } else { Groups::NONE }
    }

    /// Returns the cells that are written.
    #[inline(always)]
    pub fn cells(&self) -> Cells<M> {
        self.table().cells(self.record, self.groups())
    }

    /// Returns the positions in the arena of the image's words.
    #[inline(always)]
    fn image_words(&self) -> Range<usize> {
        self.image_start as usize..self.image_end as usize
    }

    /// Whether the record has a row, as the transaction sees it.
    #[inline(always)]
    pub(crate) fn has_row(&self) -> bool {
        matches!(self.kind, WriteKind::Update | WriteKind::Insert)
    }

    /// Whether the transaction relies on the record to have a row.
    #[inline(always)]
    pub fn needs_row(&self) -> bool {
        matches!(self.kind, WriteKind::Update | WriteKind::Delete)
    }
}

/// The effect of an installed write on a cell, kept for a recorded history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    /// The position of the write's entry.
    pub(crate) position: usize,
    pub(crate) cell: usize,
    /// The writer of the replaced version (0: it was loaded, or there was none).
    pub(crate) over: Version,
    /// The version that updates were applied to.
    pub(crate) base: Option<Base>,
    /// Whether the write was omitted, and not installed.
    pub(crate) omitted: bool,
}

/// The version that updates were applied to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// Updates in the order of the transactions have read it: its writer and its fingerprint.
    Read(Version, u64),
    /// Updates that commute were applied to it, in any order. It was not read.
    Unread,
}

/// The write set: the records that a transaction will write, with the new rows, buffered until
/// commit.
#[derive(Debug)]
pub struct WriteSet<M: Machine> {
    entries: Vec<Write<M>>,
    positions: AddressMap,
    /// Keys and images, one after the other, up to `used`. The rest was left by earlier
    /// transactions.
    arena: Vec<u64>,
    used: usize,
    pending: PendingUpdates,
    /// The positions of the entries in the order of the records' addresses, once they are sorted.
    order: Vec<u32>,
    /// The transaction's number, which signs its versions in a recorded history.
    pub(crate) txn: u64,
    /// Whether the protocol applies updates that commute in another order than that of their
    /// transactions ([`crate::Protocol::reorders_updates`]).
    pub(crate) reorders_updates: bool,
    /// The installed writes, if history is recorded.
    pub(crate) installed: Vec<Installed>,
    /// The worker's log, if the engine logs.
    pub(crate) log: Option<Logging<M>>,
    logged: LoggedWrites,
}

/// A state of a write set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMark {
    pub(crate) entries: usize,
    used: usize,
    installed: usize,
}

impl<M: Machine> Default for WriteSet<M> {
    fn default() -> Self {
        WriteSet {
            entries: Vec::with_capacity(16),
            positions: AddressMap::default(),
            arena: vec![0; 256],
            used: 0,
            pending: PendingUpdates::default(),
            order: Vec::new(),
            txn: 0,
            reorders_updates: false,
            installed: Vec::new(),
            log: None,
            logged: LoggedWrites::default(),
        }
    }
}

impl<M: Machine> WriteSet<M> {
    /// Returns the position of the record's entry, if the transaction writes the record and the
    /// entry is not sealed.
    #[inline(always)]
    pub fn find(&self, record: Record<M>) -> Option<usize> {
        self.positions.find(record.value()).filter(|&position| !self.entries[position].is_sealed)
    }

    /// Seals the entry at `position`: a further access to its record goes to the record, and a
    /// further write gets an entry of its own. For protocols that install the writes of a piece.
    pub fn seal(&mut self, position: usize) {
        self.entries[position].is_sealed = true;
    }

    /// Returns a mark of the present state, for [`WriteSet::roll_back`].
    pub(crate) fn mark(&self) -> WriteMark {
        WriteMark { entries: self.entries.len(), used: self.used, installed: self.installed.len() }
    }

    /// Drops the entries that were added since `mark`. No entry from before has changed since.
    pub(crate) fn roll_back(&mut self, mark: WriteMark) {
        self.entries.truncate(mark.entries);
        self.positions.truncate(mark.entries);
        self.used = mark.used;
        // The updates of a dropped entry may have been applied, and noted.
        self.installed.truncate(mark.installed);
    }

    /// Moves the updates of the entry at `from` behind those of the entry at `to`. Both are of one
    /// record and consist of updates, and neither has been applied.
    pub fn absorb(&mut self, to: usize, from: usize) {
        let moved = self.entries[from].updates.take();
        self.entries[from].kind = WriteKind::Nothing;
        let (merged, ordered) = (self.entries[from].merged, self.entries[from].ordered);
        (self.entries[from].merged, self.entries[from].ordered) = (Groups::NONE, Groups::NONE);
        let entry = &mut self.entries[to];
        (entry.merged, entry.ordered) = (entry.merged.union(merged), entry.ordered.union(ordered));
        self.pending.append(&mut entry.updates, moved);
    }

    /// Adds an entry for a record that has none, and returns its position. The image holds
    /// anything, and no group is written yet. `table` belongs to the transaction's engine.
    #[inline(always)]
    pub(crate) fn push<K: Key>(&mut self, table: &TableCore<M>, key: K, record: Record<M>, kind: WriteKind) -> usize {
        let key_start = self.used;
        let image_start = key_start + K::WORDS;
        self.used = image_start + table.row_words();
        if self.arena.len() < self.used {
            self.grow();
        }
        // Neither `copy_from_slice` nor a zip, which are calls.
        let words = key.to_words();
        for (word, to) in self.arena[key_start..image_start].iter_mut().enumerate() {
            *to = words[word];
        }
        self.entries.push(Write {
            record,
            kind,
            fresh: false,
            collect: false,
            stays: false,
            image: Groups::NONE,
            merged: Groups::NONE,
            ordered: Groups::NONE,
            updates: None,
            applied: false,
            is_sum: false,
            is_sealed: false,
            table: NonNull::from(table),
            key_start: key_start as u32,
            image_start: image_start as u32,
            image_end: self.used as u32,
        });
        self.positions.push(record.value())
    }

    /// Appends an update of these groups to the entry at `position`. The commit will apply it. The
    /// entry's image holds none of the groups.
    #[inline(always)]
    pub(crate) fn defer(&mut self, position: usize, groups: Groups, update: RowUpdate<'_>) {
        let entry = &mut self.entries[position];
        debug_assert!(!entry.image.meets(groups), "the image holds what the update would change");
        entry.merged = entry.merged.union(groups);
        if !update.commutes() {
            entry.ordered = entry.ordered.union(groups);
        }
        self.pending.push(&mut entry.updates, update);
    }

    /// Overlays the entry's own writes of `groups` on `row`, which holds the record's other groups.
    /// The updates are applied to `row` if they concern any of the groups.
    pub(crate) fn show(&self, position: usize, groups: Groups, row: &mut [u64]) {
        let (entry, image) = (&self.entries[position], self.image(position));
        for span in entry.table().spans(groups.common(entry.image)) {
            row[span.words()].copy_from_slice(&image[span.words()]);
        }
        if entry.merged.meets(groups) {
            debug_assert!(groups.contains(entry.merged), "updates need all of their groups");
            self.pending.apply(entry.updates, row);
        }
    }

    /// Takes the groups of `row` into the image of the entry at `position`. If updates of the entry
    /// concern any of these groups, `groups` must contain all groups of the updates, and they are
    /// applied.
    pub(crate) fn take(&mut self, position: usize, groups: Groups, row: &[u64]) {
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`. The borrow is not tied to the entry, which is changed
        // below.
        let table = unsafe { entry.table.as_ref() };
        let image = &mut self.arena[entry.image_words()];
        if table.is_whole(groups) {
            image.copy_from_slice(&row[..table.row_words()]);
        } else {
            for span in table.spans(groups) {
                image[span.words()].copy_from_slice(&row[span.words()]);
            }
        }
        entry.image = entry.image.union(groups);
        if entry.merged.meets(groups) {
            debug_assert!(groups.contains(entry.merged), "updates need all of their groups");
            self.pending.apply(entry.updates.take(), image);
            (entry.merged, entry.ordered) = (Groups::NONE, Groups::NONE);
        }
    }

    #[cold]
    fn grow(&mut self) {
        // So the positions of entries fit 32 bits.
        let most = u32::MAX as usize;
        assert!(self.used <= most, "a transaction writes less than 32 GiB");
        self.arena.resize(self.used.next_power_of_two().min(most), 0);
    }

    /// Notes that the image of the entry at `position` will hold these groups, which the caller
    /// then fills in. Updates that concern any of the groups concern no others, and are dropped.
    #[inline(always)]
    pub(crate) fn replace(&mut self, position: usize, groups: Groups) {
        let entry = &mut self.entries[position];
        if entry.table().is_whole(groups)
            && let Some(last) = self.arena[entry.image_words()].last_mut()
        {
            // The bytes behind the row in the last word.
            *last = 0;
        }
        entry.image = entry.image.union(groups);
        if entry.merged.meets(groups) {
            debug_assert!(groups.contains(entry.merged), "an update would be lost");
            (entry.merged, entry.ordered) = (Groups::NONE, Groups::NONE);
            entry.updates = None;
        }
    }

    /// Returns the words of the key of the entry at this position.
    #[inline(always)]
    pub fn key(&self, position: usize) -> &[u64] {
        let entry = &self.entries[position];
        &self.arena[entry.key_start as usize..entry.image_start as usize]
    }

    /// Returns the image of the entry at `position`: a row in which only the written groups are
    /// valid. After the commit they are the installed ones.
    #[inline(always)]
    pub fn image(&self, position: usize) -> &[u64] {
        let entry = &self.entries[position];
        &self.arena[entry.image_words()]
    }

    /// Returns the image of the entry at `position`, for the caller to fill.
    #[inline(always)]
    pub fn image_mut(&mut self, position: usize) -> &mut [u64] {
        &mut self.arena[self.entries[position].image_words()]
    }

    /// Applies all commit-time updates, each to its record's row as it stands, with the result in
    /// the image. The caller holds all cells that updates change exclusively, and keeps them until
    /// [`WriteSet::install`] has written the images. An update is code of the application and may
    /// panic. So this comes before every step that an abort could not undo, and a transaction that
    /// panics leaves no trace.
    #[inline(always)]
    pub fn apply_updates(&mut self) {
        if self.has_updates() {
            (0..self.entries.len()).for_each(|position| self.merge(position));
        }
    }

    /// Applies the updates of the entry at `position` only, as [`WriteSet::apply_updates`] does.
    #[inline(always)]
    pub fn merge(&mut self, position: usize) {
        let entry = &mut self.entries[position];
        if entry.merged.is_empty() || entry.applied {
            return;
        }
        entry.is_sum = entry.kind == WriteKind::Update && entry.image.is_empty() && entry.ordered.is_empty();
        let commuting = if self.reorders_updates { entry.commuting() } else { Groups::NONE };
        let merged = entry.merged;
        // SAFETY: as in `Write::table`. The borrow is not tied to the entry, which is changed
        // below.
        let table = unsafe { entry.table.as_ref() };
        let payload = table.payload(entry.record);
        let image = &mut self.arena[entry.image_words()];
        for span in table.spans(merged) {
            // The cells stay held until the image is installed, so no other write comes between
            // this copy and the result. An update of another transaction starts from this one's
            // result.
            M::copy_out(&payload[span.words()], &mut image[span.words()]);
        }
        if table.records_history() {
            // A cell that the image also replaces in part was read, and recorded, before.
            let read = table.cell_numbers(entry.image);
            for cell in table.cell_numbers(merged).without(read) {
                let commutes = commuting.contains(Groups::of(cell as u32));
                let base = if commutes { Base::Unread } else { base(table, payload, cell) };
                self.installed.push(Installed { position, cell, over: 0, base: Some(base), omitted: false });
            }
        }
        self.pending.apply(entry.updates, image);
        entry.applied = true;
    }

    /// Writes the entry's image, or a deletion, into the record's payload. The caller has had all
    /// updates applied ([`WriteSet::apply_updates`]) and holds the cells exclusively. It sets their
    /// metadata afterwards: only that publishes the row.
    #[inline(always)]
    pub fn install(&mut self, position: usize) {
        self.will_commit();
        self.expose(position);
    }

    /// Installs the entry at `position` before it is certain that the transaction commits. Once it
    /// is certain, the protocol must call [`WriteSet::will_commit`].
    #[inline(always)]
    pub fn expose(&mut self, position: usize) {
        let before = (self.entries[position].image_words().len() > SHORT_ROW).then(M::phase);
        if let Some(before) = before {
            M::enter(before.doing(Activity::Useful));
        }
        self.install_row(position);
        before.into_iter().for_each(M::enter);
    }

    #[inline(always)]
    fn install_row(&mut self, position: usize) {
        let entry = &mut self.entries[position];
        debug_assert!(entry.merged.is_empty() || entry.applied, "updates are applied before anything is installed");
        // SAFETY: as in `Write::table`. The borrow is not tied to the entry, which is changed
        // below.
        let table = unsafe { entry.table.as_ref() };
        let payload = table.payload(entry.record);
        if table.records_history() {
            complete(table, entry, payload, &mut self.arena[entry.image_words()]);
            // The signature is exchanged in the same critical section as the row: `over` names the
            // version that this row replaces.
            for cell in table.cell_numbers(entry.groups()) {
                sign(&mut self.installed, position, cell, &payload[table.signature(cell)], self.txn);
            }
        }
        // Before the row is copied: `count_write` needs the row that is replaced.
        if self.log.is_some() {
            self.count_write(position);
        }
        let entry = &self.entries[position];
        // The row of a deleted record stays. A reader that copies it finds the flag *absent* in the
        // protocol's word, or a changed word, and does not use the copy.
        if entry.kind == WriteKind::Delete {
            return;
        }
        let image = &self.arena[entry.image_words()];
        if table.is_whole(entry.groups()) {
            M::copy_in(&payload[..image.len()], image);
        } else {
            for span in table.spans(entry.groups()) {
                M::copy_in(&payload[span.words()], &image[span.words()]);
            }
        }
    }

    /// Drops the entry's write of a whole cell (non-visible write rule). A later transaction has
    /// already overwritten the version whose name is `over` ([`TableCore::name_of`]), and no
    /// transaction has read the state in between.
    pub fn skip_invisible(&mut self, position: usize, cell: usize, over: u64) {
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`. The borrow is not tied to the entry, which is changed
        // below.
        let table = unsafe { entry.table.as_ref() };
        if table.records_history() {
            self.installed.push(Installed { position, cell, over, base: None, omitted: true });
        }
        if table.holds_rows()
            && let Some(log) = &mut self.log
        {
            // The omitted write relies on the write that has replaced it, so it waits for that
            // one's hold. Relaxed: the caller has synchronised with the cell's last writer.
            log.sink.wait_for(Hold(table.payload(entry.record)[table.hold(cell)].load(Ordering::Relaxed)));
        }
        let groups = if table.cell_count() == 1 { Groups::ALL } else { Groups::of(cell as u32) };
        entry.image = entry.image.without(groups);
        if entry.groups().is_empty() {
            entry.kind = WriteKind::Nothing;
        }
    }

    /// Appends the present contents of a cell to `saved`, for a protocol that installs before it is
    /// certain to commit. The entry at `position` writes the cell's record, and the caller holds
    /// the cell.
    pub fn save(&self, position: usize, cell: usize, saved: &mut Vec<u64>) {
        let entry = &self.entries[position];
        let (table, start) = (entry.table(), saved.len());
        let (payload, words) = (table.payload(entry.record), table.cell_words(cell));
        saved.resize(start + words.len(), 0);
        M::copy_out(&payload[words], &mut saved[start..]);
        if table.records_history() {
            // Relaxed: the caller holds the cell; its lock orders the signature as it orders the
            // row.
            saved.push(payload[table.signature(cell)].load(Ordering::Relaxed));
        }
    }

    /// Puts back the contents that [`WriteSet::save`] appended from `saved[0]` on. The caller holds
    /// the cell exclusively.
    pub fn restore(&self, position: usize, cell: usize, saved: &[u64]) {
        let entry = &self.entries[position];
        entry.table().fill_cell(entry.record, cell, saved);
    }

    /// Returns the entries in the order of their first writes.
    #[inline(always)]
    pub fn entries(&self) -> &[Write<M>] {
        &self.entries
    }

    /// Returns the entries, for changes.
    #[inline(always)]
    pub fn entries_mut(&mut self) -> &mut [Write<M>] {
        &mut self.entries
    }

    /// Sorts the entries by the records' addresses, for [`WriteSet::sorted`]. All transactions use
    /// this order, so locks that are taken in it can't deadlock.
    pub fn sort(&mut self) {
        let entries = &self.entries;
        self.order.clear();
        self.order.extend(0..entries.len() as u32);
        // In a cycle of waits one transaction would wait for a record with a smaller address than
        // one that it holds. With one order for all, none does.
        self.order.sort_unstable_by_key(|&position| entries[position as usize].record.value());
    }

    /// Returns the position of the entry with this rank in the order that [`WriteSet::sort`] made.
    #[inline(always)]
    pub fn sorted(&self, rank: usize) -> usize {
        self.order[rank] as usize
    }

    /// Returns the number of records that are written.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is written.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an update waits for the commit.
    #[inline(always)]
    pub fn has_updates(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Forgets all entries, and keeps the memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.positions.clear();
        self.used = 0;
        self.pending.clear();
        self.installed.clear();
        self.logged.clear();
    }
}

/// Returns the version that updates are applied to in a cell: its writer and its fingerprint. The
/// caller holds the cell, or doesn't need a consistent answer.
#[cold]
fn base<M: Machine>(table: &TableCore<M>, payload: &[M::U64], cell: usize) -> Base {
    // Relaxed: the caller holds the cell exclusively; its lock orders these words.
    let words: Vec<u64> = payload[table.cell_words(cell)].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    Base::Read(payload[table.signature(cell)].load(Ordering::Relaxed), fingerprint(&words))
}

/// Makes the image hold the whole of a record's only cell: a recorded history has the fingerprints
/// of whole cells.
#[cold]
fn complete<M: Machine>(table: &TableCore<M>, entry: &Write<M>, payload: &[M::U64], image: &mut [u64]) {
    if entry.kind == WriteKind::Update && table.cell_count() == 1 {
        for span in table.spans(Groups::ALL.without(entry.groups())) {
            M::copy_out(&payload[span.words()], &mut image[span.words()]);
        }
    }
}

/// Signs a cell that is being written.
#[cold]
fn sign<W: Atomic64>(installed: &mut Vec<Installed>, position: usize, cell: usize, signature: &W, txn: Version) {
    // Relaxed: the caller holds the cell exclusively; its lock orders these words.
    let over = signature.load(Ordering::Relaxed);
    signature.store(txn, Ordering::Relaxed);
    match installed.iter_mut().find(|known| (known.position, known.cell) == (position, cell)) {
        Some(known) => known.over = over,
        None => installed.push(Installed { position, cell, over, base: None, omitted: false }),
    }
}
