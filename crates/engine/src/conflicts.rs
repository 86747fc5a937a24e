//! The conflict map: where the aborts of a run come from, by table, group of columns, type of
//! transaction and key.
//!
//! Every abort has a reason. This module adds its place. A committed transaction pays nothing for
//! it: places are noted where an abort arises, and are looked up when it has ended the transaction.
//!
//! | where the abort arises | the place is noted by |
//! | --- | --- |
//! | in an access to a record | the frame, which knows the table, the key and the record |
//! | in a commit, or at another record than the accessed one | the protocol, by [`Context::conflict_at`] |
//! | at a leaf of an index | the node set, or the protocol by [`Context::conflict_in`] |
//! | elsewhere | nobody: such an abort has no place |
//!
//! **No place is guessed.** A wound, a deadlock, a cascade and an epoch without numbers belong to a
//! transaction, not to a record. A note counts only for the transaction and the reason that it was
//! made for. So a conflict that a protocol got over is not taken for a later one.
//!
//! **Keys.** A record does not hold its key. The frame has the key at hand; a protocol that
//! validates has the record only. So the map counts by key where it can, and by record otherwise.
//! After the run [`Engine::name_conflicts`](crate::Engine::name_conflicts) finds the keys of
//! records in the indexes. If the table has used a record's memory twice, a record may have stood
//! under two keys: then its key is unknown, and counted as such.

mod map;
mod memory;
mod space_saving;

use std::cell;

use contend_index::Leaf;
use contend_machine::Machine;
use contend_model::{Abort, AbortReason, Groups, KeyWords, key_of};

pub use self::map::{ConflictMap, ConflictPlaceCount, HotKey, NamedConflicts, TableKeys};
pub(crate) use self::memory::MemoryMap;
pub use self::space_saving::{Counter, SpaceSaving};
use crate::layout::TableCore;
use crate::protocol::{Context, Protocol};
use crate::record::{Cell, Record};
use crate::worker::Worker;

/// The row at which a conflict arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictRow {
    /// The row under this key.
    Key(KeyWords),
    /// The row in the record at this address. Its key is not at hand.
    Record(u64),
    /// A gap between rows.
    Gap,
}

/// The place at which a conflict arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictPlace {
    /// The table's number.
    pub table: u32,
    /// The group of columns. `None` if the table's groups have no versions of their own, or if it
    /// is not known which group it was.
    pub group: Option<u32>,
    /// The row.
    pub row: ConflictRow,
}

/// What was noted of the place of an abort.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noted {
    Place(ConflictPlace),
    /// The address of a cell.
    Cell(u64),
    /// The address of a leaf.
    Leaf(u64),
}

/// The note of the last conflict: its transaction, its reason and its place. It is written through
/// a shared reference, because a protocol validates with one. It belongs to one worker.
#[derive(Debug, Default)]
pub(crate) struct ConflictNote(cell::Cell<Option<(u64, AbortReason, Noted)>>);

impl ConflictNote {
    /// Returns the note that was made for an abort of this transaction for this reason.
    fn of(&self, txn: u64, reason: AbortReason) -> Option<Noted> {
        self.0.get().filter(|note| (note.0, note.1) == (txn, reason)).map(|note| note.2)
    }
}

/// Whether an abort for this reason that arises in an access is a conflict at the accessed record.
/// The others concern a transaction, or are counted at a place only if the protocol names it.
fn is_at_its_access(reason: AbortReason) -> bool {
    use AbortReason::{NotDurable, Phantom, ReadLocked, ReadValidation, RecordGone, VersionCollected, WriteLocked};
    let of_records = [ReadLocked, WriteLocked, ReadValidation, Phantom, RecordGone, VersionCollected, NotDurable];
    of_records.contains(&reason)
}

/// Whether an abort for this reason concerns a transaction, wherever it is noticed.
fn is_of_transaction(reason: AbortReason) -> bool {
    use AbortReason::{Cascaded, Deadlock, EpochExhausted, Wounded};
    matches!(reason, Wounded | Deadlock | Cascaded | EpochExhausted)
}

impl<M: Machine> Context<M> {
    /// Notes that this abort arises at a cell of a record, and returns the abort. A protocol calls
    /// it where it can't be the accessed record, or where it is one cell of several.
    #[cold]
    #[inline(never)]
    pub fn conflict_at(&self, cell: Cell<M>, abort: Abort) -> Abort {
        self.note(abort, Noted::Cell(cell.address()))
    }

    /// Notes that this abort arises at these groups of the entry at `position` of the write set.
    /// Returns the abort.
    #[cold]
    #[inline(never)]
    pub fn conflict_at_write(&self, position: usize, groups: Groups, abort: Abort) -> Abort {
        let (write, key) = (&self.writes.entries()[position], key_of(self.writes.key(position)));
        let (table, group) = (write.table().id(), write.table().only_group(groups));
        self.note(abort, Noted::Place(ConflictPlace { table, group, row: ConflictRow::Key(key) }))
    }

    /// Notes that this abort arises at a leaf of an index, and returns the abort.
    #[cold]
    #[inline(never)]
    pub fn conflict_in(&self, leaf: Leaf<M>, abort: Abort) -> Abort {
        self.note(abort, Noted::Leaf(leaf.address() as u64))
    }

    /// Forgets the noted place. A protocol calls it where it gets over a conflict.
    #[cold]
    pub fn forget_conflict(&self) {
        self.conflict.0.set(None);
        self.nodes.take_failed();
    }

    fn note(&self, abort: Abort, noted: Noted) -> Abort {
        if !is_of_transaction(abort.reason) {
            self.conflict.0.set(Some((self.writes.txn, abort.reason, noted)));
        }
        abort
    }

    /// Notes that this abort arose in an access to the row under a key, unless the protocol has
    /// named another place. `record` is the one that stood there, if there was one.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_access(
        &self,
        table: &TableCore<M>,
        key: KeyWords,
        record: Option<Record<M>>,
        groups: Groups,
        reason: AbortReason,
    ) {
        let txn = self.writes.txn;
        let group = match self.conflict.of(txn, reason) {
            None if is_at_its_access(reason) => table.only_group(groups),
            // The protocol has named a cell of the accessed record. It does not know the key.
            Some(Noted::Cell(address)) => match record.and_then(|record| table.cell_at(record.value(), address)) {
                Some(cell) => table.group_of(cell),
                None => return,
            },
            None | Some(_) => return,
        };
        // A phantom is about the gap around the key, which the transaction has seen, and not about
        // the key.
        let (group, row) = match reason {
            AbortReason::Phantom => (None, ConflictRow::Gap),
            _ => (group, ConflictRow::Key(key)),
        };
        let place = ConflictPlace { table: table.id(), group, row };
        self.conflict.0.set(Some((txn, reason, Noted::Place(place))));
    }

    /// Notes that this abort arose at a gap of a table, unless the protocol has named another
    /// place.
    #[cold]
    pub(crate) fn note_gap(&self, table: &TableCore<M>, reason: AbortReason) {
        let txn = self.writes.txn;
        if is_at_its_access(reason) && self.conflict.of(txn, reason).is_none() {
            let place = ConflictPlace { table: table.id(), group: None, row: ConflictRow::Gap };
            self.conflict.0.set(Some((txn, reason, Noted::Place(place))));
        }
    }

    /// Returns what was noted of the place of the running transaction's abort, and forgets it.
    #[cold]
    pub(crate) fn take_conflict(&self, reason: AbortReason) -> Option<Noted> {
        let noted = self.conflict.of(self.writes.txn, reason);
        let leaf = self.nodes.take_failed();
        self.conflict.0.set(None);
        let leaf = || leaf.filter(|_| reason == AbortReason::Phantom);
        match noted {
            Some(Noted::Cell(address)) => Some(self.written_at(address).map_or(Noted::Cell(address), Noted::Place)),
            Some(noted) => Some(noted),
            None => leaf().map(|leaf| Noted::Leaf(leaf.address() as u64)),
        }
    }

    /// Returns the place of the cell at an address, if the transaction writes its record.
    fn written_at(&self, address: u64) -> Option<ConflictPlace> {
        let mut entries = self.writes.entries().iter().enumerate();
        entries.find_map(|(position, write)| {
            let cell = write.table().cell_at(write.record.value(), address)?;
            let row = ConflictRow::Key(key_of(self.writes.key(position)));
            Some(ConflictPlace { table: write.table().id(), group: write.table().group_of(cell), row })
        })
    }
}

impl<M: Machine> TableCore<M> {
    /// Returns the bytes of a cell's metadata.
    fn cell_bytes(&self) -> u64 {
        (self.cell_meta_words() * size_of::<M::U64>()) as u64
    }

    /// Returns the group that a cell stands for. `None` if a record has only one cell.
    fn group_of(&self, cell: usize) -> Option<u32> {
        (self.cell_count() > 1).then_some(cell as u32)
    }

    /// Returns the group of the only cell that contains these groups.
    fn only_group(&self, groups: Groups) -> Option<u32> {
        let mut cells = self.cell_numbers(groups).into_iter();
        match (cells.next(), cells.next()) {
            (Some(cell), None) => self.group_of(cell),
            _ => None,
        }
    }

    /// Returns the number of the cell at an address, if it is one of the record at `record`.
    fn cell_at(&self, record: u64, address: u64) -> Option<usize> {
        // The test comes before the division, which takes longer: most addresses fail it.
        let offset =
            address.checked_sub(record).filter(|offset| *offset < self.cell_bytes() * self.cell_count() as u64)?;
        Some((offset / self.cell_bytes()) as usize)
    }
}

impl<P: Protocol<M>, M: Machine> Worker<P, M> {
    /// Returns the place of the conflict that has aborted the worker's last transaction. `None` if
    /// the place is not known, or the transaction has not aborted for a conflict. To be called
    /// before the worker begins another transaction.
    #[cold]
    pub fn conflict_place(&mut self) -> Option<ConflictPlace> {
        let address = match self.conflicted_at.take()? {
            Noted::Place(place) => return Some(place),
            Noted::Cell(address) | Noted::Leaf(address) => address,
        };
        self.memory.place_of(address, &self.engine.catalog)
    }
}
