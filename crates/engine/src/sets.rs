//! Parts that protocols are made of: the write set, the node set, and a map from records to positions.

use std::ptr::NonNull;

use contend_index::{Change, Key, KeyWords, Leaf};
use contend_machine::{Activity, Atomic64, Machine, Ordering};
use rustc_hash::FxHashMap;

use crate::abort::{Abort, AbortReason};
use crate::epoch::Epochs;
use crate::group::Groups;
use crate::history::{Version, fingerprint};
use crate::journal::{Addition, Hold, Journal, Logged, STAMP_SHIFT, Stamp};
use crate::record::{Cells, Record};
use crate::table::TableCore;
use crate::update::{Pending, PendingList, RowUpdate};

/// Up to this many entries a set is searched from end to end; above, by hashing.
const LINEAR_MAX: usize = 16;

/// From addresses, of records or of cells, to positions in a list of the owner's. One bit an address in a 64-bit Bloom filter
/// answers most lookups of an address that is not there, without a look at the list.
#[derive(Debug)]
pub struct AddressMap {
    filter: u64,
    addresses: Vec<u64>,
    hashed: FxHashMap<u64, u32>,
}

impl Default for AddressMap {
    fn default() -> Self {
        AddressMap { filter: 0, addresses: Vec::with_capacity(LINEAR_MAX), hashed: FxHashMap::default() }
    }
}

impl AddressMap {
    #[inline(always)]
    fn bit(address: u64) -> u64 {
        // The top 6 bits of a multiplicative hash (Knuth, TAOCP volume 3, section 6.4).
        1 << (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
    }

    /// The address's position, if it is there.
    #[inline(always)]
    pub fn find(&self, address: u64) -> Option<usize> {
        if self.filter & Self::bit(address) == 0 { None } else { self.search(address) }
    }

    #[inline(never)]
    fn search(&self, address: u64) -> Option<usize> {
        if self.addresses.len() <= LINEAR_MAX {
            self.addresses.iter().position(|&other| other == address)
        } else {
            self.hashed.get(&address).map(|&position| position as usize)
        }
    }

    /// Appends an address that is not there yet; returns its position.
    #[inline(always)]
    pub fn push(&mut self, address: u64) -> usize {
        let position = self.addresses.len();
        self.filter |= Self::bit(address);
        self.addresses.push(address);
        if position >= LINEAR_MAX {
            self.push_hashed(position);
        }
        position
    }

    #[cold]
    fn push_hashed(&mut self, position: usize) {
        let first = if position == LINEAR_MAX { 0 } else { position };
        for position in first..=position {
            self.hashed.insert(self.addresses[position], position as u32);
        }
    }

    /// Forgets all addresses; keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.addresses.len() > LINEAR_MAX {
            self.hashed.clear();
        }
        self.filter = 0;
        self.addresses.clear();
    }
}

/// What a write will do at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Replace the row of a record that exists.
    Update,
    /// Give a row to a record that is absent: a placeholder, or the tombstone of a deleted row.
    Insert,
    /// Make the record absent.
    Delete,
    /// Nothing: the transaction deleted the row that it had inserted itself, or what it writes is omitted ([`WriteSet::omit`]).
    Nothing,
}

/// One record to be written.
///
/// Of an [`WriteKind::Update`], the groups in its image are replaced by what the image holds, and those in
/// [`Write::merged`] are changed by updates at commit; no group is in both. All else concerns the whole record.
#[derive(Debug)]
pub struct Write<M: Machine> {
    /// The record.
    pub record: Record<M>,
    /// What happens to it.
    pub kind: WriteKind,
    /// This transaction made the record: it is the one that has to have it collected if it stays absent.
    pub fresh: bool,
    /// The commit made the record a tombstone that nobody else will have collected. Set by the protocol.
    pub collect: bool,
    /// The groups of which the image holds the new words.
    pub(crate) image: Groups,
    /// The groups that updates change at commit; those of them that an update changes that does not commute; and the updates.
    merged: Groups,
    ordered: Groups,
    updates: PendingList,
    /// Nothing was written but by updates at commit, which commute and have been applied.
    is_sum: bool,
    table: NonNull<TableCore<M>>,
    /// Where the key's words and then the image's words begin in the arena.
    start: usize,
    key_words: u32,
}

// SAFETY: the table outlives the transaction that the entry belongs to (`WriteSet::push`), and a `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for Write<M> {}

impl<M: Machine> Write<M> {
    /// The record's table.
    #[inline(always)]
    pub fn table(&self) -> &TableCore<M> {
        // SAFETY: the engine keeps its tables as long as it lives, a transaction keeps the engine, and `Transaction` admits only
        // tables of its engine.
        unsafe { self.table.as_ref() }
    }

    /// Words of the key.
    pub fn key_words(&self) -> usize {
        self.key_words as usize
    }

    /// The groups that are written.
    #[inline(always)]
    pub fn groups(&self) -> Groups {
        self.image.union(self.merged)
    }

    /// The groups that updates will change at commit.
    #[inline(always)]
    pub fn merged(&self) -> Groups {
        self.merged
    }

    /// The numbers of the cells that are written.
    #[inline(always)]
    pub fn cell_numbers(&self) -> Groups {
        self.table().cell_numbers(self.groups())
    }

    /// The numbers of the cells of which nothing is written but by updates at commit that commute ([`crate::Update::commutes`]).
    #[inline(always)]
    pub fn commuting(&self) -> Groups {
        let ordered = self.table().cell_numbers(self.image.union(self.ordered));
        self.table().cell_numbers(self.merged).without(ordered)
    }

    /// The numbers of the cells of which all is replaced, whatever was there.
    #[inline(always)]
    pub fn replaced(&self) -> Groups {
        let whole = self.table().cell_count() > 1 || self.table().is_whole(self.image);
        if self.kind == WriteKind::Update && whole { self.table().cell_numbers(self.image) } else { Groups::NONE }
    }

    /// The cells that are written.
    #[inline(always)]
    pub fn cells(&self) -> Cells<M> {
        self.table().cells(self.record, self.groups())
    }

    /// Whether the record has a row, as the transaction sees it.
    #[inline(always)]
    pub(crate) fn has_row(&self) -> bool {
        matches!(self.kind, WriteKind::Update | WriteKind::Insert)
    }

    /// Whether the transaction takes it that the record has a row.
    #[inline(always)]
    pub fn needs_row(&self) -> bool {
        matches!(self.kind, WriteKind::Update | WriteKind::Delete)
    }
}

/// What became of a cell when a write was installed; kept for a recorded history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    /// The write's position.
    pub(crate) position: usize,
    pub(crate) cell: usize,
    /// Who wrote the version that was replaced (0: loaded, or none).
    pub(crate) over: Version,
    /// What updates were applied to.
    pub(crate) base: Option<Base>,
    /// It was not installed.
    pub(crate) omitted: bool,
}

/// What updates were applied to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// Updates that were applied in the order of the transactions have read it: who wrote it, and its fingerprint.
    Read(Version, u64),
    /// Updates that commute are applied in any order.
    Unread,
}

/// The records that a transaction will write, with the new rows, buffered until commit.
#[derive(Debug)]
pub struct WriteSet<M: Machine> {
    entries: Vec<Write<M>>,
    positions: AddressMap,
    /// Keys and images, one after the other, up to `used`; behind it what earlier transactions left.
    arena: Vec<u64>,
    used: usize,
    pending: Pending,
    /// The entries' positions by the records' addresses, once they are sorted.
    order: Vec<u32>,
    /// The transaction, as its versions are signed in a recorded history.
    pub(crate) txn: u64,
    /// Whether the protocol applies updates that commute in another order than that of the transactions ([`crate::Control::reorders_updates`]).
    pub(crate) reorders_updates: bool,
    /// What was installed, if history is recorded.
    pub(crate) installed: Vec<Installed>,
    /// If the engine logs.
    pub(crate) log: Option<Logging<M>>,
    /// If the engine logs: whether it is sure that the transaction commits, and since then the epoch, and what is left on cells; and what was
    /// installed.
    is_sure: bool,
    pub(crate) installed_in: u64,
    /// Its stamp, if the protocol has one.
    own_stamp: Option<Stamp>,
    hold: Hold,
    logged: Vec<Logged>,
    additions: Vec<Addition>,
}

/// In a row's stamp: who has written it was not sure to commit. It may have taken back what it wrote, but not the stamp, which nothing is added to then.
pub(crate) const UNSURE: u64 = 1 << 63;

/// What a worker has besides if its engine logs.
#[derive(Debug)]
pub(crate) struct Logging<M: Machine> {
    pub(crate) journal: Box<dyn Journal<M>>,
    /// Whether updates that commute are logged by what they add.
    pub(crate) adds: bool,
    /// The engine's.
    pub(crate) epochs: NonNull<Epochs<M>>,
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`; the journal is `Send`.
unsafe impl<M: Machine> Send for Logging<M> {}

impl<M: Machine> Logging<M> {
    /// The global epoch.
    fn epoch(&self) -> u64 {
        // SAFETY: the worker that owns this keeps the engine, and so the epochs.
        unsafe { self.epochs.as_ref() }.current()
    }
}

impl<M: Machine> Default for WriteSet<M> {
    fn default() -> Self {
        WriteSet {
            entries: Vec::with_capacity(16),
            positions: AddressMap::default(),
            arena: vec![0; 256],
            used: 0,
            pending: Pending::default(),
            order: Vec::new(),
            txn: 0,
            reorders_updates: false,
            installed: Vec::new(),
            log: None,
            is_sure: false,
            installed_in: 0,
            own_stamp: None,
            hold: Hold::NONE,
            logged: Vec::new(),
            additions: Vec::new(),
        }
    }
}

impl<M: Machine> WriteSet<M> {
    /// The position of the record's entry, if the transaction writes it.
    #[inline(always)]
    pub fn find(&self, record: Record<M>) -> Option<usize> {
        self.positions.find(record.value())
    }

    /// Adds a record that is not there yet, of which nothing is written yet, with an image of anything; returns its position. `table`
    /// is a table of the transaction's engine.
    #[inline]
    pub(crate) fn push<K: Key>(&mut self, table: &TableCore<M>, key: K, record: Record<M>, kind: WriteKind) -> usize {
        let start = self.used;
        self.used = start + K::WORDS + table.row_words();
        if self.arena.len() < self.used {
            self.grow();
        }
        self.arena[start..start + K::WORDS].copy_from_slice(&key.to_words()[..K::WORDS]);
        self.entries.push(Write {
            record,
            kind,
            fresh: false,
            collect: false,
            image: Groups::NONE,
            merged: Groups::NONE,
            ordered: Groups::NONE,
            updates: None,
            is_sum: false,
            table: NonNull::from(table),
            start,
            key_words: K::WORDS as u32,
        });
        self.positions.push(record.value())
    }

    /// Appends an update of these groups, to be applied at commit, to the entry at this position, whose image holds none of them.
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

    /// Puts what the entry at this position holds of these groups into a row that has the others; and applies the updates, if they
    /// concern any of the groups.
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

    /// Takes the groups of `row` into the image of the entry at this position. If updates of the entry concern any of them, they
    /// must all be among them, and are applied.
    pub(crate) fn take(&mut self, position: usize, groups: Groups, row: &[u64]) {
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, which is changed below.
        let table = unsafe { entry.table.as_ref() };
        let start = entry.start + entry.key_words as usize;
        let image = &mut self.arena[start..start + table.row_words()];
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
        self.arena.resize(self.used.next_power_of_two(), 0);
    }

    /// Says that the image of the entry at this position is to hold these groups, which the caller fills in. Updates that concern any of
    /// them concern no others, and are void.
    #[inline(always)]
    pub(crate) fn replace(&mut self, position: usize, groups: Groups) {
        let whole = self.entries[position].table().is_whole(groups);
        if whole && let Some(last) = self.image_mut(position).last_mut() {
            // What the row does not fill of it.
            *last = 0;
        }
        let entry = &mut self.entries[position];
        entry.image = entry.image.union(groups);
        if entry.merged.meets(groups) {
            debug_assert!(groups.contains(entry.merged), "an update would be lost");
            (entry.merged, entry.ordered) = (Groups::NONE, Groups::NONE);
            entry.updates = None;
        }
    }

    /// The key of the entry at this position.
    #[inline]
    pub fn key(&self, position: usize) -> KeyWords {
        let entry = &self.entries[position];
        let words = &self.arena[entry.start..entry.start + entry.key_words as usize];
        // A loop of one to four steps, and no call.
        std::array::from_fn(|word| words.get(word).copied().unwrap_or(0))
    }

    /// The image of the entry at this position: a row of which the written groups count. After the commit they are as installed.
    #[inline(always)]
    pub fn image(&self, position: usize) -> &[u64] {
        let entry = &self.entries[position];
        let start = entry.start + entry.key_words as usize;
        &self.arena[start..start + entry.table().row_words()]
    }

    /// The image of the entry at this position, to be filled.
    #[inline(always)]
    pub fn image_mut(&mut self, position: usize) -> &mut [u64] {
        let entry = &self.entries[position];
        let start = entry.start + entry.key_words as usize;
        let end = start + entry.table().row_words();
        &mut self.arena[start..end]
    }

    /// Applies the updates of the entry at this position to the record's row as it stands, in the image. The caller holds the cells
    /// exclusively, and has [`WriteSet::install`] follow before it gives them back; `install` calls this itself.
    #[inline(always)]
    pub fn merge(&mut self, position: usize) {
        let entry = &mut self.entries[position];
        if entry.merged.is_empty() {
            return;
        }
        entry.is_sum = entry.kind == WriteKind::Update && entry.image.is_empty() && entry.ordered.is_empty();
        let commuting = if self.reorders_updates { entry.commuting() } else { Groups::NONE };
        let merged = std::mem::replace(&mut entry.merged, Groups::NONE);
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, which is changed below.
        let table = unsafe { entry.table.as_ref() };
        let payload = table.payload(entry.record);
        let start = entry.start + entry.key_words as usize;
        let image = &mut self.arena[start..start + table.row_words()];
        for span in table.spans(merged) {
            M::copy_out(&payload[span.words()], &mut image[span.words()]);
        }
        if table.records_history() {
            // A cell of which the transaction also replaces something was read before.
            let read = table.cell_numbers(entry.image);
            for cell in table.cell_numbers(merged).without(read) {
                let commutes = commuting.contains(Groups::of(cell as u32));
                let base = if commutes { Base::Unread } else { base(table, payload, cell) };
                self.installed.push(Installed { position, cell, over: 0, base: Some(base), omitted: false });
            }
        }
        self.pending.apply(entry.updates, image);
        entry.image = entry.image.union(merged);
    }

    /// Writes the entry's image, or a deletion, into the record's payload, after its updates were applied. The caller holds the
    /// cells exclusively, and sets their metadata afterwards.
    #[inline(always)]
    pub fn install(&mut self, position: usize) {
        self.will_commit();
        self.expose(position);
    }

    /// The transaction will commit: all that it depends on has come to this before. The first [`WriteSet::install`] says so as well.
    #[inline(always)]
    pub fn will_commit(&mut self) {
        if !self.is_sure
            && let Some(log) = &mut self.log
        {
            self.is_sure = true;
            self.hold = log.journal.committing();
            self.installed_in = self.own_stamp.map_or_else(|| log.epoch(), |stamp| stamp.0 >> STAMP_SHIFT);
        }
    }

    /// Of a protocol that stamps its commits itself, before the first install: this stamp is larger than those of all writes so far of the cells that are
    /// written, and has its epoch above it ([`STAMP_SHIFT`]), in which all commit, or later, who see what is installed.
    #[inline(always)]
    pub fn set_stamp(&mut self, stamp: Stamp) {
        self.own_stamp = Some(stamp);
    }

    /// The same as [`WriteSet::install`], before it is sure that the transaction commits. Once it is, [`WriteSet::will_commit`] has to be called.
    #[inline(always)]
    pub fn expose(&mut self, position: usize) {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Useful));
        self.install_row(position);
        M::enter(phase);
    }

    #[inline(always)]
    fn install_row(&mut self, position: usize) {
        self.merge(position);
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, which is changed below.
        let table = unsafe { entry.table.as_ref() };
        let payload = table.payload(entry.record);
        if table.records_history() {
            let start = entry.start + entry.key_words as usize;
            complete(table, entry, payload, &mut self.arena[start..start + table.row_words()]);
            for cell in table.cell_numbers(entry.image) {
                sign(&mut self.installed, position, cell, &payload[table.signature(cell)], self.txn);
            }
        }
        if self.log.is_some() {
            self.stamp(position);
        }
        let entry = &self.entries[position];
        if entry.kind == WriteKind::Delete {
            return;
        }
        let start = entry.start + entry.key_words as usize;
        let image = &self.arena[start..start + table.row_words()];
        if table.is_whole(entry.image) {
            M::copy_in(&payload[..image.len()], image);
        } else {
            for span in table.spans(entry.image) {
                M::copy_in(&payload[span.words()], &image[span.words()]);
            }
        }
    }

    /// What the entry at this position writes of a cell, all of it, is not to be installed: another write, of a transaction that comes later, has
    /// replaced the version of this name ([`TableCore::name_of`]) before anybody saw what came after it.
    pub fn omit(&mut self, position: usize, cell: usize, over: u64) {
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, which is changed below.
        let table = unsafe { entry.table.as_ref() };
        if table.records_history() {
            self.installed.push(Installed { position, cell, over, base: None, omitted: true });
        }
        if table.holds_rows()
            && let Some(log) = &mut self.log
        {
            // It counts on what has replaced it.
            // Relaxed: as in `stamp`.
            log.journal.wait_for(Hold(table.payload(entry.record)[table.hold(cell)].load(Ordering::Relaxed)));
        }
        let groups = if table.cell_count() == 1 { Groups::ALL } else { Groups::of(cell as u32) };
        entry.image = entry.image.without(groups);
        if entry.groups().is_empty() {
            entry.kind = WriteKind::Nothing;
        }
    }

    /// Counts a write of a row, and holds it, if rows are held.
    #[inline]
    fn stamp(&mut self, position: usize) {
        let Some(log) = &mut self.log else { return };
        let entry = &self.entries[position];
        let table = entry.table();
        let groups = if entry.kind == WriteKind::Update { entry.image } else { Groups::ALL };
        let payload = table.payload(entry.record);
        let mut additions = None;
        let stamp = if table.counts_writes() {
            let epoch = if self.is_sure { self.installed_in } else { log.epoch() };
            let is_new = entry.fresh && entry.kind == WriteKind::Insert;
            let words = || table.own_groups(groups).into_iter().map(|group| &payload[table.stamp(group)]);
            // Relaxed, here and below: the cells are held exclusively.
            let stamps = || words().map(|word| word.load(Ordering::Relaxed));
            let last = stamps().map(|stamp| stamp & !UNSURE).max().filter(|_| !is_new).unwrap_or(0);
            // What was there when the log was opened has no stamp: it is not known which one it had.
            let is_logged = last > 0 && stamps().all(|stamp| stamp == last);
            if log.adds && self.is_sure && entry.is_sum && is_logged {
                let first = self.additions.len();
                let start = entry.start + entry.key_words as usize;
                let image = &self.arena[start..start + table.row_words()];
                for word in table.spans(groups).flat_map(|span| span.words()) {
                    let by = image[word].wrapping_sub(payload[word].load(Ordering::Relaxed));
                    if by != 0 {
                        self.additions.push(Addition { word: word as u32, by });
                    }
                }
                additions = Some((first, self.additions.len()));
                Stamp(last)
            } else {
                let stamp = (last + 1).max(epoch << STAMP_SHIFT);
                let unsure = if self.is_sure { 0 } else { UNSURE };
                words().for_each(|word| word.store(stamp | unsure, Ordering::Relaxed));
                Stamp(stamp)
            }
        } else {
            self.own_stamp.expect("the protocol has said which")
        };
        if table.holds_rows() {
            for cell in table.cell_numbers(groups) {
                let word = &payload[table.hold(cell)];
                // Who locks a row before it asks has been told; but an optimistic one may have written blindly.
                log.journal.wait_for(Hold(word.load(Ordering::Relaxed)));
                word.store(self.hold.0, Ordering::Relaxed);
            }
        }
        // Most protocols install in order, and each entry once.
        let is_next = self.logged.last().is_none_or(|last| last.position < position);
        let known = if is_next { None } else { self.logged.iter_mut().find(|logged| logged.position == position) };
        match known {
            Some(logged) => (logged.stamp, logged.additions) = (stamp, additions),
            None => self.logged.push(Logged { position, stamp, additions }),
        }
    }

    /// Whether the worker's log lets it go on where these groups of a record were written last. The protocol has said that it may.
    #[inline(always)]
    pub(crate) fn may_pass(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) -> bool {
        let Some(Logging { journal, .. }) = &mut self.log else { return true };
        let payload = table.payload(record);
        // Relaxed: stored before what the protocol let see.
        table.cell_numbers(groups).into_iter().all(|cell| {
            let hold = Hold(payload[table.hold(cell)].load(Ordering::Relaxed));
            hold == Hold::NONE || journal.may_pass(hold)
        })
    }

    /// What a write has added to the row, if that is how it is logged.
    pub fn additions(&self, logged: &Logged) -> Option<&[Addition]> {
        logged.additions.map(|(first, end)| &self.additions[first..end])
    }

    /// What was installed, if the engine logs.
    pub fn logged(&self) -> &[Logged] {
        &self.logged
    }

    /// Appends what a cell of this number, of the record that the entry at this position writes, holds now: for a protocol that installs
    /// before it is sure to commit. The caller holds the cell.
    pub fn save(&self, position: usize, cell: usize, saved: &mut Vec<u64>) {
        let entry = &self.entries[position];
        let (table, start) = (entry.table(), saved.len());
        let (payload, words) = (table.payload(entry.record), table.cell_words(cell));
        saved.resize(start + words.len(), 0);
        M::copy_out(&payload[words], &mut saved[start..]);
        if table.records_history() {
            // Relaxed: the cell is held.
            saved.push(payload[table.signature(cell)].load(Ordering::Relaxed));
        }
    }

    /// Puts back what [`WriteSet::save`] has appended from `saved[0]` on. The caller holds the cell exclusively.
    pub fn restore(&self, position: usize, cell: usize, saved: &[u64]) {
        let entry = &self.entries[position];
        let table = entry.table();
        let (payload, words) = (table.payload(entry.record), table.cell_words(cell));
        M::copy_in(&payload[words.clone()], &saved[..words.len()]);
        if table.records_history() {
            // Relaxed: the cell is held.
            payload[table.signature(cell)].store(saved[words.len()], Ordering::Relaxed);
        }
    }

    /// The entries, in the order of the first write.
    #[inline(always)]
    pub fn entries(&self) -> &[Write<M>] {
        &self.entries
    }

    /// The entries, to be changed.
    #[inline(always)]
    pub fn entries_mut(&mut self) -> &mut [Write<M>] {
        &mut self.entries
    }

    /// Orders the entries by the records' addresses, for [`WriteSet::sorted`]: one order for all transactions, so that locks taken in
    /// it can't deadlock.
    pub fn sort(&mut self) {
        let entries = &self.entries;
        self.order.clear();
        self.order.extend(0..entries.len() as u32);
        self.order.sort_unstable_by_key(|&position| entries[position as usize].record.value());
    }

    /// The position of the entry with this rank in the order that [`WriteSet::sort`] made.
    #[inline(always)]
    pub fn sorted(&self, rank: usize) -> usize {
        self.order[rank] as usize
    }

    /// How many records are written.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is written.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries; keeps the memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.positions.clear();
        self.used = 0;
        self.pending.clear();
        self.installed.clear();
        self.logged.clear();
        self.additions.clear();
        self.is_sure = false;
        self.own_stamp = None;
    }
}

/// What updates are applied to in a cell: who wrote it, and its fingerprint. The caller holds the cell, or does not care.
#[cold]
fn base<M: Machine>(table: &TableCore<M>, payload: &[M::U64], cell: usize) -> Base {
    // Relaxed: the cell is held exclusively.
    let words: Vec<u64> = payload[table.cell_words(cell)].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    Base::Read(payload[table.signature(cell)].load(Ordering::Relaxed), fingerprint(&words))
}

/// Makes the image hold the whole of a record's only cell: a recorded history has the fingerprints of whole cells.
#[cold]
fn complete<M: Machine>(table: &TableCore<M>, entry: &Write<M>, payload: &[M::U64], image: &mut [u64]) {
    if entry.kind == WriteKind::Update && table.cell_count() == 1 {
        for span in table.spans(Groups::ALL.without(entry.image)) {
            M::copy_out(&payload[span.words()], &mut image[span.words()]);
        }
    }
}

/// Signs a cell that is being written.
#[cold]
fn sign<W: Atomic64>(installed: &mut Vec<Installed>, position: usize, cell: usize, signature: &W, txn: Version) {
    // Relaxed: the cell is held exclusively.
    let over = signature.load(Ordering::Relaxed);
    signature.store(txn, Ordering::Relaxed);
    match installed.iter_mut().find(|known| (known.position, known.cell) == (position, cell)) {
        Some(known) => known.over = over,
        None => installed.push(Installed { position, cell, over, base: None, omitted: false }),
    }
}

/// The leaves that a transaction's scans and misses observed (Silo, section 4.6).
#[derive(Debug)]
pub struct NodeSet<M: Machine> {
    leaves: Vec<(Leaf<M>, u64)>,
}

impl<M: Machine> Default for NodeSet<M> {
    fn default() -> Self {
        NodeSet { leaves: Vec::with_capacity(16) }
    }
}

impl<M: Machine> NodeSet<M> {
    /// Adds a leaf with the version that was observed. A leaf observed at two versions fails validation.
    #[inline(always)]
    pub fn add(&mut self, leaf: Leaf<M>, version: u64) {
        self.leaves.push((leaf, version));
    }

    /// Carries the transaction's own insert over into what it observed before.
    ///
    /// # Errors
    /// Somebody else changed the leaf between.
    pub fn follow(&mut self, change: &Change<M>) -> Result<(), Abort> {
        let mut observed = false;
        for (leaf, version) in &mut self.leaves {
            if *leaf == change.leaf {
                if *version != change.before {
                    return Err(Abort::new(AbortReason::Phantom));
                }
                *version = change.after;
                observed = true;
            }
        }
        if let (true, Some((leaf, version))) = (observed, change.split) {
            self.leaves.push((leaf, version));
        }
        Ok(())
    }

    /// Checks that no observed leaf has changed its set of keys.
    ///
    /// # Errors
    /// One has.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Abort> {
        if self.leaves.iter().all(|&(leaf, version)| leaf.version() == version) {
            Ok(())
        } else {
            Err(Abort::new(AbortReason::Phantom))
        }
    }

    /// The leaves that were observed, some more than once, each with its version.
    pub fn observed(&self) -> impl Iterator<Item = (Leaf<M>, u64)> + '_ {
        self.leaves.iter().copied()
    }

    /// The leaves that were observed, some more than once.
    pub fn leaves(&self) -> impl Iterator<Item = Leaf<M>> + '_ {
        self.leaves.iter().map(|&(leaf, _)| leaf)
    }

    /// Whether no leaf was observed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Forgets all leaves; keeps the memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
    }
}
