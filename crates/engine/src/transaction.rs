//! [`Transaction`]: the frame around a protocol. It locates records, calls the protocol for each,
//! answers reads of the transaction's own writes, and keeps the history.
//!
//! | module | contents |
//! | --- | --- |
//! | `access` | finds the record under a key, and calls the protocol for it |
//! | `own` | reads and writes of rows that the transaction has written before |
//! | `scan` | scans of ranges |
//! | `record` | the recording of a history |

mod access;
mod own;
mod record;
mod scan;

use std::ops::{ControlFlow, RangeInclusive};

use contend_machine::{Activity, Cycles, Machine, Operation, Phase};
use contend_model::pieces::{Piece, Use};
use contend_model::{
    Abort, AbortReason, Direction, Groups, IntoRowUpdate, Key, PieceEnd, Projection, RawTxn, ReadOrWritten, RowUpdate,
    Table,
};

use crate::catalog;
use crate::declaration::Declared;
use crate::pieces::{PieceBegin, PieceOutcome, RunningPieces, StepMark};
use crate::protocol::{Protocol, WriteMode};
use crate::record::Record;
use crate::table::StoredTable;
use crate::worker::Worker;

/// A running transaction. [`Transaction::commit`] ends it; if it is dropped before, it aborts.
#[derive(Debug)]
pub struct Transaction<'w, P: Protocol<M>, M: Machine> {
    worker: &'w mut Worker<P, M>,
    /// The reason of the first failure. Every further operation fails with it.
    doomed: Option<AbortReason>,
    finished: bool,
}

impl<'w, P: Protocol<M>, M: Machine> Transaction<'w, P, M> {
    #[inline(always)]
    pub(crate) fn new(worker: &'w mut Worker<P, M>, doomed: Option<AbortReason>) -> Self {
        worker.is_running = true;
        Transaction { worker, doomed, finished: false }
    }

    /// Returns the transaction's number. A recorded history names the transaction by it.
    pub fn number(&self) -> u64 {
        self.worker.cx.writes.txn
    }

    /// Returns the reason why the transaction can't commit any more, if there is one.
    pub fn doomed(&self) -> Option<AbortReason> {
        self.doomed
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// The transaction had to abort, and has left no trace.
    #[inline]
    pub fn commit(mut self) -> Result<(), Abort> {
        M::enter(Phase::of(Operation::Validation, Activity::Manager));
        M::step("commit");
        let outcome = match self.doomed {
            Some(reason) => Err(Abort::new(reason)),
            None if !self.worker.cx.writes.fits_log() => Err(Abort::new(AbortReason::TooLarge)),
            None => self.worker.engine.protocol().commit(&mut self.worker.cx, &mut self.worker.local),
        };
        match outcome {
            Ok(()) => {
                self.finished = true;
                self.worker.finish_commit();
                M::enter(Phase::BODY);
                Ok(())
            }
            Err(abort) => {
                self.end(abort.reason);
                Err(abort)
            }
        }
    }

    /// Aborts the transaction, for `reason`, or for the reason that has doomed it before.
    pub fn abort(mut self, reason: AbortReason) {
        self.end(self.doomed.unwrap_or(reason));
    }

    #[cold]
    fn end(&mut self, reason: AbortReason) {
        self.finished = true;
        M::enter(Phase::of(Operation::Validation, Activity::Manager));
        M::step("abort");
        self.worker.engine.protocol().abort(&mut self.worker.cx, &mut self.worker.local, reason);
        self.worker.finish_abort(reason);
        M::enter(Phase::BODY);
    }

    /// Returns the table of a handle, unless the transaction is doomed or the table belongs to
    /// another engine.
    #[inline(always)]
    fn admit<K: Key>(&mut self, table: &Table<K>) -> Result<&'w StoredTable<M, K>, Abort> {
        // SAFETY: the worker, which is borrowed for `'w`, keeps the engine.
        match unsafe { catalog::stored(self.worker.store, table) } {
            Some(table) if self.doomed.is_none() => Ok(table),
            _ => Err(self.refuse()),
        }
    }

    /// Checks this against the declaration of the running piece, if the protocol treats pieces by
    /// themselves.
    #[inline(always)]
    fn allow<K: Key>(&mut self, table: &StoredTable<M, K>, what: Use) -> Result<(), Abort> {
        if !self.worker.engine.protocol().uses_pieces() {
            return Ok(());
        }
        if self.worker.pieces.checker.allows(table.id(), what) { Ok(()) } else { Err(self.undeclared()) }
    }

    /// Notes the failure of an access to a table, which dooms the transaction.
    #[cold]
    fn fail(&mut self, table: u32, abort: Abort) -> Abort {
        // The checker notes the first violation only. So one that it has found itself stays.
        if abort.reason == AbortReason::Undeclared {
            self.worker.pieces.checker.refuse_settled(table);
        }
        self.doom(abort)
    }

    /// Notes the failure of an access to the row under a key, which dooms the transaction. `record`
    /// is the one that stands there, if there is one.
    #[cold]
    #[inline(never)]
    fn fail_at<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        record: Option<Record<M>>,
        groups: Groups,
        abort: Abort,
    ) -> Abort {
        self.worker.cx.note_access(table, key.to_words(), record, groups, abort.reason);
        self.fail(table.id(), abort)
    }

    #[cold]
    fn undeclared(&mut self) -> Abort {
        self.doom(Abort::new(AbortReason::Undeclared))
    }

    #[inline(never)]
    fn open_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        if let Some(reason) = self.doomed {
            return Err(Abort::new(reason));
        }
        if !self.worker.pieces.checker.may_begin(piece) {
            return Err(self.undeclared());
        }
        let worker = &mut *self.worker;
        M::step("begin piece");
        match worker.engine.protocol().begin_piece(&mut worker.cx, &mut worker.local, piece) {
            Ok(begin) => {
                let operations = worker.recording.as_ref().map_or(0, |recording| recording.running.len());
                let mark = StepMark { writes: worker.cx.writes.mark(), operations };
                worker.pieces.mark = (begin == PieceBegin::Step).then_some(mark);
                Ok(())
            }
            Err(abort) => Err(self.doom(abort)),
        }
    }

    #[inline(never)]
    fn close_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        self.worker.pieces.checker.close();
        let abort = match failed.or(self.doomed.map(Abort::new)) {
            Some(abort) => abort,
            None => {
                let worker = &mut *self.worker;
                M::enter(Phase::of(Operation::Validation, Activity::Manager));
                M::step("end piece");
                let ended = worker.engine.protocol().end_piece(&mut worker.cx, &mut worker.local, piece);
                M::enter(Phase::BODY);
                match ended {
                    Ok(PieceOutcome::Open) => return Ok(PieceEnd::Done),
                    Ok(PieceOutcome::Settled) => {
                        worker.settle_piece();
                        return Ok(PieceEnd::Done);
                    }
                    Err(abort) => self.doom(abort),
                }
            }
        };
        let worker = &mut *self.worker;
        if abort.reason.is_conflict()
            && let Some(mark) = worker.pieces.mark.take()
        {
            M::step("retry piece");
            if worker.engine.protocol().undo_piece(&mut worker.cx, &mut worker.local, abort.reason) {
                worker.roll_back(mark);
                worker.cx.forget_conflict();
                worker.pieces.checker.begin_again();
                worker.pieces.retries += 1;
                self.doomed = None;
                return Ok(PieceEnd::Again);
            }
        }
        Err(self.doom(abort))
    }

    /// Whether the later part of the transaction runs. Most protocols have no such part.
    #[inline(always)]
    fn is_later(&self) -> bool {
        self.defers() && self.worker.cx.declaration.is_later()
    }

    /// Refuses a step that the later part must not take.
    #[cold]
    fn refuse_later(&mut self, step: &str) -> Abort {
        self.worker.cx.declaration.refuse_later(step);
        self.undeclared()
    }

    #[inline(never)]
    fn name_row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        let Ok(table) = self.admit(table) else { return };
        if self.is_later() {
            // The next access finds the transaction doomed.
            _ = self.refuse_later("names a row");
        } else {
            M::enter(if writes { WRITE_INDEX } else { READ_INDEX });
            M::step("name a row");
            self.worker.cx.declaration.name_row(table, key, writes);
            M::enter(Phase::BODY);
        }
    }

    /// Ends the part of the transaction that comes now.
    #[inline(never)]
    fn pass_border(&mut self) -> Result<(), Abort> {
        if let Some(reason) = self.doomed {
            return Err(Abort::new(reason));
        }
        if self.worker.cx.declaration.is_later() {
            return Err(self.refuse_later("begins another later part"));
        }
        let worker = &mut *self.worker;
        if !worker.cx.writes.fits_log() {
            return Err(self.doom(Abort::new(AbortReason::TooLarge)));
        }
        M::enter(Phase::of(Operation::Validation, Activity::Manager));
        M::step("border");
        worker.cx.declaration.begin_later();
        let begun = worker.engine.protocol().begin_later(&mut worker.cx, &mut worker.local);
        M::enter(Phase::BODY);
        begun.map_err(|abort| {
            self.worker.cx.declaration.take_back_later();
            self.doom(abort)
        })
    }

    #[cold]
    fn refuse(&self) -> Abort {
        Abort::new(self.doomed.unwrap_or(AbortReason::Unsupported))
    }

    #[cold]
    fn doom(&mut self, abort: Abort) -> Abort {
        self.doomed = Some(abort.reason);
        abort
    }
}

const READ_INDEX: Phase = Phase::of(Operation::Read, Activity::Index);
const WRITE_INDEX: Phase = Phase::of(Operation::Write, Activity::Index);

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    /// Returns the record under a key.
    #[inline(always)]
    fn find<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        phase: Phase,
        columns: Projection<'_>,
    ) -> Result<Option<Record<M>>, Abort> {
        M::enter(phase);
        if self.worker.cx.declaration.has_rows() {
            return self.find_declared(table, key, phase, columns);
        }
        Ok(Self::look_up(table, key, columns))
    }

    /// Returns the record under a key, where the transaction has declared rows. Few protocols ask
    /// for them, so the path of the others is the straight one.
    #[cold]
    #[inline(never)]
    fn find_declared<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        phase: Phase,
        columns: Projection<'_>,
    ) -> Result<Option<Record<M>>, Abort> {
        match self.worker.cx.declaration.find(table, key, phase == WRITE_INDEX) {
            Declared::At(record) => Ok(Some(record)),
            Declared::LookUp => Ok(Self::look_up(table, key, columns)),
            Declared::Refused => Err(self.undeclared()),
        }
    }

    #[inline(always)]
    fn look_up<K: Key>(table: &StoredTable<M, K>, key: K, columns: Projection<'_>) -> Option<Record<M>> {
        M::step("look up");
        let found = table.find(key);
        table.await_record(found, columns);
        found
    }

    /// Looks up the records under at most [`BATCH`] keys at once, and prefetches their lines. Calls
    /// `expect` with each record found. The phase may differ by the key's position.
    #[inline(always)]
    fn find_batch<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        keys: &[K],
        phase: impl Fn(usize) -> Phase,
        columns: Projection<'_>,
        expect: impl Fn(Record<M>),
    ) -> Result<[Option<Record<M>>; BATCH], Abort> {
        let mut found = [None; BATCH];
        if self.worker.cx.declaration.has_rows() {
            for (position, (found, &key)) in found.iter_mut().zip(keys).enumerate() {
                *found = self.find(table, key, phase(position), columns)?;
            }
            return Ok(found);
        }
        M::enter(phase(0));
        M::step("look up");
        table.find_many(keys, columns, |position, record| {
            found[position] = record;
            record.into_iter().for_each(&expect);
        });
        if M::overlaps() && table.is_far() {
            M::await_prefetched();
        }
        Ok(found)
    }
}

impl<P: Protocol<M>, M: Machine> Drop for Transaction<'_, P, M> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.end(self.doomed.unwrap_or(AbortReason::User));
            // A panic may have ended the transaction; then it is not tried again.
            self.worker.end_protection();
        }
    }
}

/// The number of keys of one batched lookup: enough to keep the processor's line fill buffers busy.
const BATCH: usize = 32;

impl<P: Protocol<M>, M: Machine> RawTxn for Transaction<'_, P, M> {
    #[inline(always)]
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Read(columns.groups()))?;
        let found = self.find(table, key, READ_INDEX, columns)?;
        self.read_located(table, key, found, columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Read(columns.groups()))?;
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let found = self.find_batch(table, keys, |_| READ_INDEX, columns, |_| ())?;
            for (position, &key) in keys.iter().enumerate() {
                let row = self.read_located(table, key, found[position], columns)?;
                visit(batch * BATCH + position, row);
            }
        }
        Ok(())
    }

    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K], columns: Projection<'_>, writes: bool) {
        if let Ok(table) = self.admit(table) {
            M::enter(if writes { WRITE_INDEX } else { READ_INDEX });
            table.find_many(keys, columns, |_, record| {
                if let Some(record) = record.filter(|_| writes) {
                    record.prefetch_to_write();
                }
            });
            M::enter(Phase::BODY);
        }
    }

    #[inline(always)]
    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Write(groups))?;
        let found = self.find(table, key, WRITE_INDEX, Projection::of_groups(groups))?;
        let position = self.write_located(table, key, found, groups, WriteMode::ReadModifyWrite)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        groups: Groups,
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Write(groups))?;
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let found = self.find_batch(
                table,
                keys,
                |_| WRITE_INDEX,
                Projection::of_groups(groups),
                Record::prefetch_to_write,
            )?;
            for (position, &key) in keys.iter().enumerate() {
                let write = self.write_located(table, key, found[position], groups, WriteMode::ReadModifyWrite)?;
                visit(batch * BATCH + position, write.map(|write| self.worker.cx.writes.image_mut(write)));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::of_update(update))?;
        let found = self.find(table, key, WRITE_INDEX, Projection::of_groups(update.groups()))?;
        self.update_located(table, key, found, update)
    }

    fn update_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Read(columns.groups()))?;
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let found = self.find_batch(table, keys, |_| WRITE_INDEX, columns, Record::prefetch_to_write)?;
            for (position, &key) in keys.iter().enumerate() {
                let row = self.read_located(table, key, found[position], columns)?;
                let Some(update) = visit(batch * BATCH + position, row) else { continue };
                let update = update.as_row_update();
                self.allow(table, Use::of_update(update))?;
                self.update_located(table, key, found[position], update)?;
            }
        }
        Ok(())
    }

    fn change_rows<K: Key, U: IntoRowUpdate>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        updates: &[U],
        mut changed: impl FnMut(usize, bool),
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        let Some(first) = updates.first() else { return Ok(()) };
        let columns = Projection::of_groups(first.as_row_update().groups());
        for (batch, (keys, updates)) in keys.chunks(BATCH).zip(updates.chunks(BATCH)).enumerate() {
            let found = self.find_batch(table, keys, |_| WRITE_INDEX, columns, Record::prefetch_to_write)?;
            for (position, (&key, update)) in keys.iter().zip(updates).enumerate() {
                let update = update.as_row_update();
                self.allow(table, Use::of_update(update))?;
                changed(batch * BATCH + position, self.update_located(table, key, found[position], update)?);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Write(groups))?;
        let found = self.find(table, key, WRITE_INDEX, Projection::of_groups(groups))?;
        let position = self.write_located(table, key, found, groups, WriteMode::Blind)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    fn read_or_write_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        (keys, writes): (&[K], &[bool]),
        columns: Projection<'_>,
        groups: Groups,
        mut visit: impl FnMut(usize, ReadOrWritten<'_>),
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        for (batch, (keys, writes)) in keys.chunks(BATCH).zip(writes.chunks(BATCH)).enumerate() {
            let phase = |position: usize| if writes[position] { WRITE_INDEX } else { READ_INDEX };
            let found = self.find_batch(table, keys, phase, columns, |_| ())?;
            for (position, &key) in keys.iter().enumerate() {
                let found = found[position];
                let row = if writes[position] {
                    self.allow(table, Use::Write(groups))?;
                    let position = self.write_located(table, key, found, groups, WriteMode::Blind)?;
                    ReadOrWritten::Written(position.map(|position| self.worker.cx.writes.image_mut(position)))
                } else {
                    self.allow(table, Use::Read(columns.groups()))?;
                    ReadOrWritten::Read(self.read_located(table, key, found, columns)?)
                };
                visit(batch * BATCH + position, row);
            }
        }
        Ok(())
    }

    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Insert)?;
        let position = self.insert_located(table, &mut table.run(), key)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Insert)?;
        let mut run = table.run();
        for (position, &key) in keys.iter().enumerate() {
            let write = self.insert_located(table, &mut run, key)?;
            visit(position, write.map(|write| self.worker.cx.writes.image_mut(write)));
        }
        Ok(())
    }

    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Delete)?;
        if self.is_later() {
            let step = format!("deletes the key {} of the table {}", key.name(), table.name());
            return Err(self.refuse_later(&step));
        }
        self.await_inserts(table, key, key)?;
        let found = self.find(table, key, WRITE_INDEX, Projection::WHOLE)?;
        Ok(self.write_located(table, key, found, Groups::ALL, WriteMode::Delete)?.is_some())
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        let table = self.admit(table)?;
        self.allow(table, Use::Read(columns.groups()))?;
        self.scan_table(table, range, limit, direction, columns, visit)
    }

    fn idle(&mut self, microseconds: u64) {
        M::idle((microseconds as f64 * M::cycles_per_second() / 1e6) as Cycles);
    }

    #[inline(always)]
    fn uses_pieces(&self) -> bool {
        self.worker.engine.protocol().uses_pieces()
    }

    #[inline(always)]
    fn begin_piece(&mut self, piece: Piece) -> Result<(), Abort> {
        if self.worker.engine.protocol().uses_pieces() { self.open_piece(piece) } else { Ok(()) }
    }

    #[inline(always)]
    fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
        if self.worker.engine.protocol().uses_pieces() {
            self.close_piece(piece, failed)
        } else {
            failed.map_or(Ok(PieceEnd::Done), Err)
        }
    }

    #[inline(always)]
    fn defers(&self) -> bool {
        self.worker.engine.protocol().defers()
    }

    #[inline(always)]
    fn later_row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        if self.defers() {
            self.name_row(table, key, writes);
        }
    }

    #[inline(always)]
    fn later_inserts<K: Key>(&mut self, table: &Table<K>, keys: RangeInclusive<K>) {
        if self.defers()
            && let Ok(table) = self.admit(table)
        {
            if self.is_later() {
                // The next access finds the transaction doomed.
                _ = self.refuse_later("names keys that it inserts");
            } else {
                self.worker.cx.declaration.name_inserts(table, &keys);
            }
        }
    }

    #[inline(always)]
    fn begin_later(&mut self) -> Result<(), Abort> {
        if self.defers() { self.pass_border() } else { Ok(()) }
    }

    fn note_cancel(&mut self) -> Abort {
        if self.is_later() {
            return self.refuse_later("cancels");
        }
        let worker = &mut *self.worker;
        if worker.engine.protocol().uses_pieces() {
            if worker.engine.protocol().is_doomed(&mut worker.cx, &mut worker.local) {
                return self.doom(Abort::new(AbortReason::Cascaded));
            }
            let RunningPieces { checker, has_settled, .. } = &mut worker.pieces;
            let may_cancel = if *has_settled { checker.refuse_late_cancel() } else { checker.may_cancel() };
            if !may_cancel {
                return self.undeclared();
            }
        }
        Abort::new(AbortReason::User)
    }
}
