//! The recording of a transaction's operations for a history. All of it is cold: a run that is
//! measured records nothing.
//!
//! **Why a history shows what the protocol did.** The writer's number (the signature of a cell) is
//! a word of the record's payload. The protocol copies it into the row buffer together with the row
//! ([`Context::copy_row`](crate::Context::copy_row)), and installs it together with the row. So it
//! is under the same locks, fences and validation as the row. A protocol that returns a row too
//! early, too late or torn returns the signature that goes with it. The recording adds no
//! synchronisation of its own to a read or write of a row, which could hide a fault.
//!
//! **Deletions.** A tombstone that has left the index has no signature to copy. Its deleter is then
//! in the table's [`Deletions`](crate::deletions::Deletions), behind a mutex. [`StoredTable`]
//! enters it there and removes the record in one critical section. So a transaction that has found
//! no record, and asks for the deleter afterwards, finds the deletion. A later deletion can't have
//! come in by then: a tombstone leaves the index only when all workers are past the epoch in which
//! it was queued (`crate::garbage`), and this transaction's worker is not.
//!
//! All notes belong to one worker, and are read when it has ended its transactions.

use std::collections::HashSet;

use contend_index::{Key, KeyWords};
use contend_machine::{Atomic64, Machine, Ordering};

use super::Transaction;
use super::access::Access;
use crate::group::Groups;
use crate::history::{Applied, Operation, Part, Version, fingerprint};
use crate::protocol::{Protocol, WriteMode};
use crate::record::Record;
use crate::table::StoredTable;

/// The observations of a scan for the cells of one number.
#[derive(Debug)]
pub(super) struct ScanNotes {
    cell: usize,
    seen: Vec<(KeyWords, Version)>,
    gone: Vec<(KeyWords, Version)>,
    own: Vec<KeyWords>,
}

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    #[inline(always)]
    pub(super) fn is_recording(&self) -> bool {
        self.worker.recording.is_some()
    }

    fn note(&mut self, operation: Operation) {
        if let Some(recording) = &mut self.worker.recording {
            recording.running.push(operation);
        }
    }

    /// Returns the writer of a cell of the row in the row buffer.
    fn signature<K: Key>(&self, table: &StoredTable<M, K>, cell: usize) -> Version {
        self.worker.cx.row_buffer[table.signature(cell)]
    }

    fn note_reads<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, cells: Groups) {
        for cell in cells {
            let value = fingerprint(&self.worker.cx.row_buffer[table.cell_words(cell)]);
            // Value and version come from one copy. So a checker can tell a version that was read
            // torn: its value is not the one that the writer has recorded.
            let version = self.signature(table, cell);
            self.note(Operation::Read { part: Part::of(table, cell), key: key.to_words(), version, value });
        }
    }

    /// Records a read of the row in the row buffer. A read of the transaction's own writes is no
    /// matter of the history.
    #[cold]
    pub(super) fn record_read<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, groups: Groups, access: Access<M>) {
        let cells = table.cell_numbers(groups);
        let deleter = match access {
            Access::Row(_) => return self.note_reads(table, key, cells),
            Access::Own(_) => return,
            Access::Absent => None,
            // After the protocol has observed the gap (the module comment).
            Access::Gap => Some(table.deletions.deleter_of(&key.to_words())),
        };
        for cell in cells {
            let deleted_by = deleter.unwrap_or_else(|| self.signature(table, cell));
            self.note(Operation::Miss { part: Part::of(table, cell), key: key.to_words(), deleted_by });
        }
    }

    /// Records the first write of a record, and the read that belongs to it.
    #[cold]
    pub(super) fn record_write<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        groups: Groups,
        mode: WriteMode,
        access: Access<M>,
    ) {
        match access {
            // The result of an update is known, and recorded, when it is applied.
            Access::Row(_) if mode == WriteMode::CommitTimeUpdate => {}
            // The number of the version that is replaced is not known yet, so `over` is 0.
            // `WriteSet::install` finds it under the lock, and the commit completes the note.
            Access::Row(_) => {
                if mode != WriteMode::Blind {
                    self.note_reads(table, key, table.cell_numbers(groups));
                }
                self.record_written(table, key, groups, mode);
            }
            // A write that learns at once that the record is absent has read the tombstone.
            Access::Absent | Access::Gap => self.record_read(table, key, groups, access),
            Access::Own(_) => {}
        }
    }

    /// Records a write of these groups, or a deletion.
    #[cold]
    pub(super) fn record_written<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        groups: Groups,
        mode: WriteMode,
    ) {
        for cell in table.cell_numbers(groups) {
            let (part, key) = (Part::of(table, cell), key.to_words());
            self.note(if mode == WriteMode::Delete {
                Operation::Delete { part, key, over: 0 }
            } else {
                Operation::Write { part, key, over: 0, insert: false, applied: Applied::InOrder, value: None }
            });
        }
    }

    /// Records the read of groups of a record that the transaction writes, without the cells that
    /// it has written.
    #[cold]
    pub(super) fn record_fetched<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        groups: Groups,
    ) {
        let written = table.cell_numbers(self.worker.cx.writes.entries()[position].image);
        self.note_reads(table, key, table.cell_numbers(groups).without(written));
    }

    /// Records the insert of a new record. It has found the key absent.
    #[cold]
    pub(super) fn record_fresh<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, record: Record<M>) {
        // The insert took the signature from the deletions, in the critical section in which the
        // record entered the index. So between the deletion that it names and this insert the key
        // had no other record. Relaxed: this thread signed the record. Another transaction may have
        // given the placeholder a row since, and signed it. The protocol has observed or locked the
        // placeholder before, so then this transaction does not commit.
        let deleted_by = table.payload(record)[table.signature(0)].load(Ordering::Relaxed);
        self.note(Operation::Miss { part: Part::of(table, 0), key: key.to_words(), deleted_by });
        self.record_insert(table, key);
    }

    /// Records an insert.
    #[cold]
    pub(super) fn record_insert<K: Key>(&mut self, table: &StoredTable<M, K>, key: K) {
        for cell in table.cell_numbers(Groups::ALL) {
            let (part, key) = (Part::of(table, cell), key.to_words());
            self.note(Operation::Write { part, key, over: 0, insert: true, applied: Applied::InOrder, value: None });
        }
    }

    /// Returns empty notes for a scan of these groups; none if history is not recorded.
    #[inline(always)]
    pub(super) fn scan_notes<K: Key>(&self, table: &StoredTable<M, K>, groups: Groups) -> Vec<ScanNotes> {
        if !self.is_recording() {
            return Vec::new();
        }
        let notes = |cell| ScanNotes { cell, seen: Vec::new(), gone: Vec::new(), own: Vec::new() };
        table.cell_numbers(groups).into_iter().map(notes).collect()
    }

    /// Notes a record that a scan came by. The row buffer holds its row, or the cells that had to
    /// be read besides the transaction's own writes.
    #[cold]
    pub(super) fn note_entry<K: Key>(
        &self,
        notes: &mut [ScanNotes],
        table: &StoredTable<M, K>,
        key: K,
        access: Access<M>,
    ) {
        let words = key.to_words();
        for ScanNotes { cell, seen, gone, own } in notes {
            match access {
                Access::Row(_) => seen.push((words, self.signature(table, *cell))),
                Access::Absent => gone.push((words, self.signature(table, *cell))),
                // The record has left the index during the scan. Its deletion is in the map by now,
                // and `record_scan` finds it there.
                Access::Gap => {}
                Access::Own(position) => {
                    let write = &self.worker.cx.writes.entries()[position];
                    if !table.cell_numbers(write.image).into_iter().any(|written| written == *cell) {
                        seen.push((words, self.signature(table, *cell)));
                        continue;
                    }
                    own.push(words);
                    if write.has_row() {
                        // The transaction's own row: it sees its own version, whose number is not
                        // in the record yet.
                        seen.push((words, self.number()));
                    }
                }
            }
        }
    }

    #[cold]
    pub(super) fn record_scan<K: Key>(&mut self, table: &StoredTable<M, K>, low: K, high: K, notes: Vec<ScanNotes>) {
        let (low, high) = (low.to_words(), high.to_words());
        for ScanNotes { cell, seen, mut gone, own } in notes {
            let in_index: HashSet<_> =
                seen.iter().chain(&gone).map(|(key, _)| *key).chain(own.iter().copied()).collect();
            // After the scan, as in `record_read`. A key that the scan has met in the index is left
            // out: its record may have left the index since, and has been noted already.
            gone.extend(table.deletions.in_range(low, high).into_iter().filter(|(key, _)| !in_index.contains(key)));
            self.note(Operation::Scan { part: Part::of(table, cell), low, high, seen, gone, own });
        }
    }
}
