//! Reads and writes of rows that the transaction has written before.
//!
//! The image of a write holds some groups of the row, and updates wait for others. All other groups
//! must be read from the record. A transaction that touches each record once calls nothing in this
//! module.

use contend_index::Key;
use contend_machine::Machine;

use super::Transaction;
use super::access::{Call, Read, Write};
use crate::abort::{Abort, AbortReason};
use crate::group::Groups;
use crate::protocol::{Protocol, RecordState, WriteMode};
use crate::sets::WriteKind;
use crate::table::StoredTable;
use contend_model::Projection;

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    /// Reads these groups of a row that the transaction writes; `None` if it has deleted the row.
    #[inline(never)]
    pub(super) fn read_own<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        groups: Groups,
    ) -> Result<Option<&[u64]>, Abort> {
        self.fetch_missing(table, key, position, groups)?;
        Ok(self.own_row(table, position, groups))
    }

    /// Reads the part of `groups` that the write at `position` lacks into the row buffer, and
    /// completes it by the write's own groups.
    pub(super) fn fetch_missing<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        groups: Groups,
    ) -> Result<(), Abort> {
        let write = &self.worker.cx.writes.entries()[position];
        let groups = table.own_groups(groups);
        if !write.has_row() || write.image.contains(groups) {
            return Ok(());
        }
        // Updates that concern these groups may concern other groups, too.
        let needed = if write.merged().meets(groups) { groups.union(write.merged()) } else { groups };
        let missing = needed.without(write.image);
        self.fetch(table, key, position, Read(Projection::of_groups(missing)), missing)?;
        let cx = &mut self.worker.cx;
        cx.writes.show(position, needed, &mut cx.row_buffer);
        Ok(())
    }

    /// Returns the words that hold these groups of a row that the transaction writes: its image, or
    /// the row buffer. To be called after [`Transaction::fetch_missing`]. `None` if the transaction
    /// has deleted the row.
    pub(super) fn own_row<K: Key>(&self, table: &StoredTable<M, K>, position: usize, groups: Groups) -> Option<&[u64]> {
        let cx = &self.worker.cx;
        let write = &cx.writes.entries()[position];
        match write.has_row() {
            false => None,
            true if write.image.contains(table.own_groups(groups)) => Some(cx.writes.image(position)),
            true => Some(&cx.row_buffer[..table.row_words()]),
        }
    }

    /// Writes a record once more, and returns its position again. `None` if the transaction has
    /// deleted the row.
    #[inline(never)]
    pub(super) fn write_own<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<Option<usize>, Abort> {
        if !self.worker.cx.writes.entries()[position].has_row() {
            return Ok(None);
        }
        self.rewrite(position)?;
        let write = &self.worker.cx.writes.entries()[position];
        let (image, merged) = (write.image, write.merged());
        let groups = table.own_groups(groups);
        let needed = if merged.meets(groups) { groups.union(merged) } else { groups };
        match mode {
            WriteMode::Insert => return Ok(None),
            // Updates of groups that the image lacks wait for the commit.
            WriteMode::CommitTimeUpdate if !image.meets(groups) => {
                let more = groups.without(merged);
                if !more.is_empty() {
                    self.ask(table, key, position, Write(more, mode))?;
                }
                return Ok(Some(position));
            }
            // Updates that concern other groups, too, can't be dropped. They are applied first, as
            // below.
            WriteMode::Blind if groups.contains(needed) => {
                let more = groups.without(image);
                if !more.is_empty() {
                    self.ask(table, key, position, Write(more, mode))?;
                }
                self.worker.cx.writes.replace(position, groups);
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete | WriteMode::CommitTimeUpdate | WriteMode::Blind => {
                let missing = needed.without(image);
                if !missing.is_empty() {
                    let mode = if mode == WriteMode::Delete { WriteMode::Delete } else { WriteMode::ReadModifyWrite };
                    self.fetch(table, key, position, Write(missing, mode), missing)?;
                    let cx = &mut self.worker.cx;
                    cx.writes.take(position, missing, &cx.row_buffer);
                }
            }
        }
        if mode == WriteMode::Delete {
            let write = &mut self.worker.cx.writes.entries_mut()[position];
            write.kind = if write.kind == WriteKind::Insert { WriteKind::Nothing } else { WriteKind::Delete };
        }
        if self.is_recording() {
            self.record_written(table, key, needed, mode);
        }
        Ok(Some(position))
    }

    /// Inserts a key that the transaction has written before. Returns `false` if the key has a row,
    /// so that nothing is inserted.
    pub(super) fn insert_own<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
    ) -> Result<bool, Abort> {
        let kind = match self.worker.cx.writes.entries()[position].kind {
            WriteKind::Delete => WriteKind::Update,
            WriteKind::Nothing => WriteKind::Insert,
            WriteKind::Update | WriteKind::Insert => return Ok(false),
        };
        self.rewrite(position)?;
        let writes = &mut self.worker.cx.writes;
        writes.entries_mut()[position].kind = kind;
        writes.image_mut(position).fill(0);
        if self.is_recording() {
            self.record_insert(table, key);
        }
        Ok(true)
    }

    /// Lets the protocol read the groups that the image lacks.
    fn fetch<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        call: impl Call,
        missing: Groups,
    ) -> Result<(), Abort> {
        self.ask(table, key, position, call)?;
        if self.is_recording() {
            self.record_fetched(table, key, position, missing);
        }
        Ok(())
    }

    /// Tells the protocol that the entry at `position` will change once more.
    fn rewrite(&mut self, position: usize) -> Result<(), Abort> {
        let worker = &mut *self.worker;
        let may = worker.engine.protocol().rewrite(&mut worker.cx, &mut worker.local, position);
        if self.is_later() && may.is_err() {
            return Err(self.refuse_later("changes a row again that it has shown"));
        }
        may.map_err(|abort| self.doom(abort))
    }

    /// Calls the protocol for a record that had a row when the transaction first wrote it.
    fn ask<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        position: usize,
        call: impl Call,
    ) -> Result<(), Abort> {
        self.rewrite(position)?;
        let record = self.worker.cx.writes.entries()[position].record;
        match self.call(table, key, record, call)? {
            RecordState::Row => Ok(()),
            // The row has disappeared since: the commit would fail.
            RecordState::Absent | RecordState::Unlinked => {
                let abort = Abort::new(AbortReason::RecordGone);
                Err(self.fail_at(table, key, Some(record), call.groups(), abort))
            }
        }
    }
}
