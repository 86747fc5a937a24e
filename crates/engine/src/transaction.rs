//! [`Transaction`]: the frame around a protocol. It locates records, calls the protocol for each, and keeps the history.

use std::ops::{ControlFlow, RangeInclusive};

use contend_index::{Direction, Key, KeyWords, Leaf, Lookup, ScanVisitor};
use contend_machine::{Atomic64, Machine, Spin};

use crate::abort::{Abort, AbortReason};
use crate::engine::Worker;
use crate::history::{Operation, Version, fingerprint};
use crate::protocol::{Access, At, Initial, Mode, Protocol};
use crate::record::Record;
use crate::row::Projection;
use crate::table::{Placed, Table};
use crate::txn::Txn;

/// A running transaction. It ends by [`Transaction::commit`]; dropped before, it aborts.
#[derive(Debug)]
pub struct Transaction<'w, P: Protocol<M>, M: Machine> {
    worker: &'w mut Worker<P, M>,
    /// Set by the first failure: what every further operation answers.
    doomed: Option<AbortReason>,
    finished: bool,
}

/// What a protocol is asked to do with a record. A constant wherever it is made, so that no branch is left.
#[derive(Clone, Copy)]
enum Call<'c> {
    Read(Projection<'c>),
    Write(Mode),
}

impl<'w, P: Protocol<M>, M: Machine> Transaction<'w, P, M> {
    #[inline(always)]
    pub(crate) fn new(worker: &'w mut Worker<P, M>) -> Self {
        Transaction { worker, doomed: None, finished: false }
    }

    /// The transaction's number, by which a recorded history names it.
    pub fn number(&self) -> u64 {
        self.worker.cx.writes.txn
    }

    /// Why the transaction can't commit any more, if it can't.
    pub fn doomed(&self) -> Option<AbortReason> {
        self.doomed
    }

    /// Commits.
    ///
    /// # Errors
    /// The transaction had to abort, and has left no trace.
    #[inline]
    pub fn commit(mut self) -> Result<(), Abort> {
        let outcome = match self.doomed {
            Some(reason) => Err(Abort::new(reason)),
            None => self.worker.engine.protocol().commit(&mut self.worker.cx),
        };
        match outcome {
            Ok(()) => {
                self.finished = true;
                self.worker.finish_commit();
                Ok(())
            }
            Err(abort) => {
                self.end(abort.reason);
                Err(abort)
            }
        }
    }

    /// Aborts, for this reason, or for the one that has doomed the transaction before.
    pub fn abort(mut self, reason: AbortReason) {
        self.end(self.doomed.unwrap_or(reason));
    }

    #[cold]
    fn end(&mut self, reason: AbortReason) {
        self.finished = true;
        self.worker.engine.protocol().abort(&mut self.worker.cx);
        self.worker.finish_abort(reason);
    }

    /// Whether the transaction may go on, and with this table.
    #[inline(always)]
    fn admit<K: Key>(&self, table: &Table<M, K>) -> Result<(), Abort> {
        if self.doomed.is_none() && table.engine() == self.worker.engine.id() { Ok(()) } else { self.refuse() }
    }

    #[cold]
    fn refuse(&self) -> Result<(), Abort> {
        Err(Abort::new(self.doomed.unwrap_or(AbortReason::Unsupported)))
    }

    #[cold]
    fn doom(&mut self, abort: Abort) -> Abort {
        self.doomed = Some(abort.reason);
        abort
    }

    /// While history is recorded, the whole payload is read: its last word says who wrote it.
    #[inline(always)]
    fn projection<'a>(&self, columns: Projection<'a>) -> Projection<'a> {
        if self.worker.recording.is_some() { Projection::WHOLE } else { columns }
    }

    /// Calls the protocol for the record that a lookup found under the key, and again for the one that stands there later if the
    /// record was unlinked meanwhile. `None` is a miss.
    #[inline(always)]
    fn access<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        mut found: Option<Record<M>>,
        call: Call<'_>,
    ) -> Result<Option<Access>, Abort> {
        loop {
            if let Some(record) = found {
                let worker = &mut *self.worker;
                let (protocol, cx, at) = (worker.engine.protocol(), &mut worker.cx, At { table, key, record });
                let access = match call {
                    Call::Read(columns) => protocol.read(cx, at, columns),
                    Call::Write(mode) => protocol.write(cx, at, mode),
                };
                match access {
                    Ok(Access::Unlinked) => {}
                    Ok(access) => return Ok(Some(access)),
                    Err(abort) => return Err(self.doom(abort)),
                }
            }
            found = self.look_again(table, key, found)?;
            if found.is_none() {
                return Ok(None);
            }
        }
    }

    /// The record under a key after a lookup that found none, or found `unlinked`; `None`, with the gap observed, if there is none.
    ///
    /// A miss probes a second time, so that a hit, which is the rule, need not keep the leaf and its version at hand.
    #[cold]
    #[inline(never)]
    fn look_again<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        unlinked: Option<Record<M>>,
    ) -> Result<Option<Record<M>>, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            let lookup = table.lookup(key);
            match lookup.value.map(Table::<M, K>::record) {
                // Between the mark and the removal from the index a lookup still finds the record: a wait for the collector.
                Some(record) if unlinked == Some(record) => spin.wait(),
                Some(record) => return Ok(Some(record)),
                None => {
                    let worker = &mut *self.worker;
                    let observed = worker.engine.protocol().gap(&mut worker.cx, lookup.leaf, lookup.version);
                    return observed.map(|()| None).map_err(|abort| self.doom(abort));
                }
            }
        }
    }

    #[inline(always)]
    fn read_located<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        found: Option<Record<M>>,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        let columns = self.projection(columns);
        let found = self.access(table, key, found, Call::Read(columns))?;
        if self.worker.recording.is_some() {
            self.record_read(table, key, found);
        }
        Ok(match found {
            Some(Access::Row) => Some(&self.worker.cx.scratch[..table.row_words()]),
            Some(Access::Own(position)) => Some(self.worker.cx.writes.image(position)),
            _ => None,
        })
    }

    /// Announces a write; the position of its image, or `None` if the key is absent.
    #[inline(always)]
    fn write_located<K: Key>(&mut self, table: &Table<M, K>, key: K, mode: Mode) -> Result<Option<usize>, Abort> {
        self.admit(table)?;
        let found = table.find(key);
        // A record found to be unlinked is not one that this transaction writes, so the first one found tells.
        let recording = self.worker.recording.is_some();
        let known = if recording { found.and_then(|record| self.worker.cx.writes.find(record)) } else { None };
        let access = self.access(table, key, found, Call::Write(mode))?;
        if recording {
            self.record_write_access(table, key, mode, known, access);
        }
        match access {
            Some(Access::Own(position)) => Ok(Some(position)),
            _ => Ok(None),
        }
    }

    fn insert_located<K: Key>(&mut self, table: &Table<M, K>, key: K) -> Result<Option<usize>, Abort> {
        self.admit(table)?;
        let record = match self.worker.allocate(table, Initial::Inserting) {
            Ok(record) => record,
            Err(crate::OutOfMemory) => return Err(self.doom(Abort::new(AbortReason::OutOfMemory))),
        };
        let mut spin = Spin::<M>::new();
        loop {
            match table.insert(key, record) {
                Placed::New(change) => return self.inserted(table, key, record, &change).map(Some),
                Placed::Exists(lookup) => {
                    let outcome = self.revive(table, key, lookup);
                    if !matches!(outcome, Ok(Revived::Unlinked)) {
                        self.worker.release(table, record);
                    }
                    match outcome? {
                        Revived::Image(position) => return Ok(Some(position)),
                        Revived::Exists => return Ok(None),
                        Revived::Unlinked => spin.wait(),
                    }
                }
            }
        }
    }

    fn inserted<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        record: Record<M>,
        change: &contend_index::Change<M>,
    ) -> Result<usize, Abort> {
        let worker = &mut *self.worker;
        let result = worker.engine.protocol().inserted(&mut worker.cx, At { table, key, record }, change);
        let position = worker.cx.writes.find(record).expect("the protocol adds the placeholder to the write set");
        worker.cx.writes.entries_mut()[position].fresh = true;
        match result {
            Ok(position) => {
                if self.worker.recording.is_some() {
                    // The insert has found the key absent; the placeholder was signed by whoever deleted the key last.
                    let deleted_by = table.payload(record)[table.row_words()].load(contend_machine::Ordering::Relaxed);
                    self.note(Operation::Miss { table: table.id(), key: key.to_words(), deleted_by });
                    self.record_insert(table, key);
                }
                Ok(position)
            }
            Err(abort) => Err(self.doom(abort)),
        }
    }

    /// An insert has met a record under its key: a row, or something absent that can get one.
    fn revive<K: Key>(&mut self, table: &Table<M, K>, key: K, lookup: Lookup<M>) -> Result<Revived, Abort> {
        let record = Table::<M, K>::record(lookup.value.expect("an existing entry has a value"));
        let at = At { table, key, record };
        let worker = &mut *self.worker;
        let columns = if worker.recording.is_some() { Projection::WHOLE } else { Projection::spans(&[]) };
        let read = worker.engine.protocol().read(&mut worker.cx, at, columns);
        let read = read.map_err(|abort| self.doom(abort))?;
        if read == Access::Unlinked {
            return Ok(Revived::Unlinked);
        }
        if self.worker.recording.is_some() {
            self.record_read(table, key, Some(read));
        }
        if matches!(read, Access::Row | Access::Own(_)) {
            return Ok(Revived::Exists);
        }
        let worker = &mut *self.worker;
        let written = worker.engine.protocol().write(&mut worker.cx, at, Mode::Insert);
        match written.map_err(|abort| self.doom(abort))? {
            Access::Own(position) => {
                if self.worker.recording.is_some() {
                    self.record_insert(table, key);
                }
                self.worker.cx.writes.image_mut(position).fill(0);
                Ok(Revived::Image(position))
            }
            Access::Unlinked => Ok(Revived::Unlinked),
            // The record has got a row since it was read: the read is void, and so is the transaction.
            Access::Row | Access::Absent | Access::OwnDeleted => {
                Err(self.doom(Abort::new(AbortReason::ReadValidation)))
            }
        }
    }

    #[cold]
    fn note(&mut self, operation: Operation) {
        if let Some(recording) = &mut self.worker.recording {
            recording.running.push(operation);
        }
    }

    /// Records a read by what is in the scratch row. Reads of own writes are internal to the transaction.
    #[cold]
    fn record_read<K: Key>(&mut self, table: &Table<M, K>, key: K, access: Option<Access>) {
        let (id, words) = (table.id(), key.to_words());
        let signature = self.worker.cx.scratch.get(table.row_words()).copied().unwrap_or(0);
        match access {
            Some(Access::Row) => {
                let value = fingerprint(&self.worker.cx.scratch[..table.row_words()]);
                self.note(Operation::Read { table: id, key: words, version: signature, value });
            }
            Some(Access::Absent) => self.note(Operation::Miss { table: id, key: words, deleted_by: signature }),
            None => self.note(Operation::Miss { table: id, key: words, deleted_by: table.grave(&words) }),
            Some(Access::Own(_) | Access::OwnDeleted | Access::Unlinked) => {}
        }
    }

    /// Records a write, and what it has read: the row of a first modification, and every miss.
    #[cold]
    fn record_write_access<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        mode: Mode,
        known: Option<usize>,
        access: Option<Access>,
    ) {
        match access {
            Some(Access::Own(_)) => {
                // A first modification or deletion has left the row it read in the scratch row.
                if known.is_none() && matches!(mode, Mode::Modify | Mode::Delete) {
                    self.record_read(table, key, Some(Access::Row));
                }
                let (table, key) = (table.id(), key.to_words());
                self.note(if mode == Mode::Delete {
                    Operation::Delete { table, key, over: 0 }
                } else {
                    Operation::Write { table, key, over: 0, insert: false, value: None }
                });
            }
            // A blind write that is told at once of an absent record has read the tombstone.
            None | Some(Access::Absent) => self.record_read(table, key, access),
            Some(_) => {}
        }
    }

    /// Records an insert.
    #[cold]
    fn record_insert<K: Key>(&mut self, table: &Table<M, K>, key: K) {
        self.note(Operation::Write { table: table.id(), key: key.to_words(), over: 0, insert: true, value: None });
    }
}

/// What an insert found under its key.
enum Revived {
    /// Something absent, which is to get this image.
    Image(usize),
    /// A row.
    Exists,
    /// A record that is out of the index.
    Unlinked,
}

impl<P: Protocol<M>, M: Machine> Drop for Transaction<'_, P, M> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.end(self.doomed.unwrap_or(AbortReason::User));
        }
    }
}

/// Keys of one batched lookup: enough to keep the processor's line fill buffers busy.
const BATCH: usize = 32;

impl<P: Protocol<M>, M: Machine> Txn for Transaction<'_, P, M> {
    type Machine = M;

    #[inline(always)]
    fn read_row<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        self.admit(table)?;
        self.read_located(table, key, table.find(key), columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<M, K>,
        keys: &[K],
        columns: Projection<'_>,
        mut visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.admit(table)?;
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let mut found: [Option<Record<M>>; BATCH] = [None; BATCH];
            table.find_many(keys, |position, record| found[position] = record);
            for (position, &key) in keys.iter().enumerate() {
                let row = self.read_located(table, key, found[position], columns)?;
                visit(batch * BATCH + position, row);
            }
        }
        Ok(())
    }

    fn announce_writes<K: Key>(&mut self, table: &Table<M, K>, keys: &[K]) {
        if self.admit(table).is_ok() {
            table.find_many(keys, |_, record| {
                if let Some(record) = record {
                    record.prefetch_to_write();
                }
            });
        }
    }

    #[inline(always)]
    fn modify_row<K: Key>(&mut self, table: &Table<M, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        let position = self.write_located(table, key, Mode::Modify)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    #[inline(always)]
    fn write_row<K: Key>(&mut self, table: &Table<M, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        let position = self.write_located(table, key, Mode::Blind)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    fn insert_row<K: Key>(&mut self, table: &Table<M, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        let position = self.insert_located(table, key)?;
        Ok(position.map(|position| self.worker.cx.writes.image_mut(position)))
    }

    fn delete<K: Key>(&mut self, table: &Table<M, K>, key: K) -> Result<bool, Abort> {
        Ok(self.write_located(table, key, Mode::Delete)?.is_some())
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<M, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.admit(table)?;
        let (low, high) = range.into_inner();
        let mut scan = Scan {
            transaction: self,
            table,
            columns,
            limit,
            visit,
            visited: 0,
            last: None,
            failed: None,
            seen: Vec::new(),
            gone: Vec::new(),
            own: Vec::new(),
        };
        if limit == 0 || low > high {
            return Ok(0);
        }
        if !table.scan(low, high, direction, &mut scan) {
            return Err(self.doom(Abort::new(AbortReason::Unsupported)));
        }
        let Scan { visited, failed, last, seen, gone, own, .. } = scan;
        if let Some(abort) = failed {
            return Err(self.doom(abort));
        }
        if self.worker.recording.is_some() {
            // A scan that was stopped has read up to the last key that it returned.
            let (low, high) = match (last, direction) {
                (None, _) => (low, high),
                (Some(last), Direction::Forward) => (low, last),
                (Some(last), Direction::Backward) => (last, high),
            };
            self.record_scan(table, low, high, seen, gone, own);
        }
        Ok(visited)
    }
}

type Signed = (KeyWords, Version);

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    #[cold]
    fn record_scan<K: Key>(
        &mut self,
        table: &Table<M, K>,
        low: K,
        high: K,
        seen: Vec<Signed>,
        mut gone: Vec<Signed>,
        own: Vec<KeyWords>,
    ) {
        let (low, high) = (low.to_words(), high.to_words());
        let in_index: std::collections::HashSet<_> =
            seen.iter().chain(&gone).map(|(key, _)| *key).chain(own.iter().copied()).collect();
        gone.extend(table.graves(low, high).into_iter().filter(|(key, _)| !in_index.contains(key)));
        self.note(Operation::Scan { table: table.id(), low, high, seen, gone, own });
    }
}

/// A scan under way.
struct Scan<'t, 'w, 'c, P: Protocol<M>, M: Machine, K: Key, V> {
    transaction: &'t mut Transaction<'w, P, M>,
    table: &'t Table<M, K>,
    columns: Projection<'c>,
    limit: usize,
    visit: V,
    visited: usize,
    /// The key at which the scan was stopped by its limit or by the visitor.
    last: Option<K>,
    failed: Option<Abort>,
    seen: Vec<Signed>,
    gone: Vec<Signed>,
    /// Keys that the transaction itself writes.
    own: Vec<KeyWords>,
}

impl<P, M, K, V> Scan<'_, '_, '_, P, M, K, V>
where
    P: Protocol<M>,
    M: Machine,
    K: Key,
    V: FnMut(K, &[u64]) -> ControlFlow<()>,
{
    fn try_entry(&mut self, key: K, value: u64) -> Result<ControlFlow<()>, Abort> {
        let table = self.table;
        let columns = self.transaction.projection(self.columns);
        let record = Table::<M, K>::record(value);
        let access = self.transaction.access(table, key, Some(record), Call::Read(columns))?;
        if self.transaction.worker.recording.is_some() {
            self.record_entry(key, access);
        }
        let cx = &self.transaction.worker.cx;
        let row = match access {
            Some(Access::Row) => &cx.scratch[..table.row_words()],
            Some(Access::Own(position)) => cx.writes.image(position),
            _ => return Ok(ControlFlow::Continue(())),
        };
        self.visited += 1;
        let flow = (self.visit)(key, row);
        if flow.is_break() || self.visited == self.limit {
            self.last = Some(key);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    #[cold]
    fn record_entry(&mut self, key: K, access: Option<Access>) {
        let words = key.to_words();
        let signature = self.transaction.worker.cx.scratch.get(self.table.row_words()).copied().unwrap_or(0);
        match access {
            Some(Access::Row) => self.seen.push((words, signature)),
            Some(Access::Absent) => self.gone.push((words, signature)),
            Some(Access::Own(_)) => {
                self.own.push(words);
                self.seen.push((words, self.transaction.number()));
            }
            Some(Access::OwnDeleted | Access::Unlinked) => self.own.push(words),
            None => {}
        }
    }
}

impl<P, M, K, V> ScanVisitor<M, K> for Scan<'_, '_, '_, P, M, K, V>
where
    P: Protocol<M>,
    M: Machine,
    K: Key,
    V: FnMut(K, &[u64]) -> ControlFlow<()>,
{
    fn leaf(&mut self, leaf: Leaf<M>, version: u64) -> ControlFlow<()> {
        let worker = &mut *self.transaction.worker;
        match worker.engine.protocol().gap(&mut worker.cx, leaf, version) {
            Ok(()) => ControlFlow::Continue(()),
            Err(abort) => {
                self.failed = Some(abort);
                ControlFlow::Break(())
            }
        }
    }

    fn entry(&mut self, key: K, value: u64) -> ControlFlow<()> {
        self.try_entry(key, value).unwrap_or_else(|abort| {
            self.failed = Some(abort);
            ControlFlow::Break(())
        })
    }
}
