//! Access to single records: finds the record under a key, and calls the protocol for it.

use contend_index::{AscendingInserts, Change, Key, Lookup};
use contend_machine::{Activity, Machine, Operation, Phase, Spin};

use super::Transaction;
use crate::abort::{Abort, AbortReason};
use crate::declaration::{Declared, NamedRange};
use crate::group::Groups;
use crate::protocol::{Context, Located, Protocol, RecordOrigin, RecordState, WriteMode};
use crate::record::Record;
use crate::sets::WriteKind;
use crate::table::{Placed, StoredTable};
use crate::update::RowUpdate;
use crate::worker::Worker;
use contend_model::Projection;

/// The instructions of a read in memory of the worker's own (the read set, and the copy), which a
/// simulated core doesn't see otherwise.
const READ_INSTRUCTIONS: u32 = 20;
/// The instructions of a write in memory of the worker's own, until the row is installed: the write
/// set, the image, and a mispredicted branch. Where reads and writes are mixed, that branch is
/// mispredicted half of the time.
const WRITE_INSTRUCTIONS: u32 = 200;

/// The operation that a protocol performs on a record. A type for each: an enum would be written to
/// memory, and asked what it is.
pub(super) trait Call: Copy {
    /// The operation on a record that is found by its key, instead of by a scan.
    type ByKey: Call;
    /// The phase that the protocol's time is counted for.
    const PHASE: Phase;

    fn groups(self) -> Groups;

    fn by_key(self) -> Self::ByKey;

    fn perform<P: Protocol<M>, M: Machine>(
        self,
        protocol: &P,
        cx: &mut Context<M>,
        local: &mut P::WorkerState,
        at: Located<'_, M>,
    ) -> Result<RecordState, Abort>;
}

#[derive(Clone, Copy)]
pub(super) struct Read<'c>(pub(super) Projection<'c>);

/// A read of a record that a scan has come by.
#[derive(Clone, Copy)]
pub(super) struct ReadEntry<'c>(pub(super) Projection<'c>);

#[derive(Clone, Copy)]
pub(super) struct Write(pub(super) Groups, pub(super) WriteMode);

impl Call for Read<'_> {
    type ByKey = Self;
    const PHASE: Phase = Phase::of(Operation::Read, Activity::Manager);

    #[inline(always)]
    fn groups(self) -> Groups {
        self.0.groups()
    }

    #[inline(always)]
    fn by_key(self) -> Self {
        self
    }

    #[inline(always)]
    fn perform<P: Protocol<M>, M: Machine>(
        self,
        protocol: &P,
        cx: &mut Context<M>,
        local: &mut P::WorkerState,
        at: Located<'_, M>,
    ) -> Result<RecordState, Abort> {
        protocol.read(cx, local, at, self.0)
    }
}

impl<'c> Call for ReadEntry<'c> {
    type ByKey = Read<'c>;
    const PHASE: Phase = Read::PHASE;

    #[inline(always)]
    fn groups(self) -> Groups {
        self.0.groups()
    }

    #[inline(always)]
    fn by_key(self) -> Read<'c> {
        Read(self.0)
    }

    #[inline(always)]
    fn perform<P: Protocol<M>, M: Machine>(
        self,
        protocol: &P,
        cx: &mut Context<M>,
        local: &mut P::WorkerState,
        at: Located<'_, M>,
    ) -> Result<RecordState, Abort> {
        protocol.read_entry(cx, local, at, self.0)
    }
}

impl Call for Write {
    type ByKey = Self;
    const PHASE: Phase = Phase::of(Operation::Write, Activity::Manager);

    #[inline(always)]
    fn groups(self) -> Groups {
        self.0
    }

    #[inline(always)]
    fn by_key(self) -> Self {
        self
    }

    #[inline(always)]
    fn perform<P: Protocol<M>, M: Machine>(
        self,
        protocol: &P,
        cx: &mut Context<M>,
        local: &mut P::WorkerState,
        at: Located<'_, M>,
    ) -> Result<RecordState, Abort> {
        protocol.write(cx, local, at, self.0, self.1)
    }
}

/// The result of an access to a key.
#[derive(Clone, Copy)]
pub(super) enum Access<M: Machine> {
    /// A record with a row. The protocol has done its operation.
    Row(Record<M>),
    /// An absent record. The protocol has observed it.
    Absent,
    /// No record. The protocol has observed the gap.
    Gap,
    /// A record that the transaction has written itself. Its entry is at this position of the write
    /// set. The protocol was not called.
    Own(usize),
}

/// The result of an insert that found a record under its key.
enum Revived {
    /// The record is absent, and gets the row at this position of the write set.
    Image(usize),
    /// The record has a row.
    Exists,
    /// The record has left the index.
    Unlinked,
}

impl<P: Protocol<M>, M: Machine> Transaction<'_, P, M> {
    /// Calls the protocol for this record. A failure dooms the transaction.
    #[inline(always)]
    pub(super) fn call<K: Key, C: Call>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        record: Record<M>,
        call: C,
    ) -> Result<RecordState, Abort> {
        let worker = &mut *self.worker;
        let (protocol, at) = (worker.engine.protocol(), Located { table, record });
        let (cx, local) = (&mut worker.cx, &mut worker.local);
        M::enter(C::PHASE);
        let found = call
            .perform(protocol, cx, local, at)
            .map_err(|abort| self.fail_at(table, key, Some(record), call.groups(), abort))?;
        if table.holds_rows() && !self.may_pass(table, record, call.groups()) {
            let abort = Abort::new(AbortReason::NotDurable);
            return Err(self.fail_at(table, key, Some(record), call.groups(), abort));
        }
        Ok(found)
    }

    /// Whether the log lets the transaction go on after it has used these groups of a record. Their
    /// last write may not be durable yet.
    fn may_pass<K: Key>(&mut self, table: &StoredTable<M, K>, record: Record<M>, groups: Groups) -> bool {
        let Worker { cx, engine, .. } = &mut *self.worker;
        if cx.declaration.is_read_only() && engine.protocol().reads_snapshots() {
            // A transaction that reads a snapshot must not abort. It may wait, because it holds
            // nothing that other transactions could wait for.
            cx.writes.wait_for_holds(table, record, groups);
            return true;
        }
        cx.writes.may_pass(table, record, groups)
    }

    /// Calls the protocol for the record that a lookup found under the key. If the record was
    /// unlinked meanwhile, looks the key up again and calls the protocol for the record that stands
    /// there then.
    #[inline(always)]
    pub(super) fn access<K: Key, C: Call>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        found: Option<Record<M>>,
        call: C,
    ) -> Result<Access<M>, Abort> {
        if let Some(record) = found {
            if let Some(position) = self.worker.cx.writes.find(record) {
                return Ok(Access::Own(position));
            }
            match self.call(table, key, record, call)? {
                RecordState::Row => return Ok(Access::Row(record)),
                RecordState::Absent => return Ok(Access::Absent),
                RecordState::Unlinked => {}
            }
        }
        self.access_again(table, key, found, call.by_key())
    }

    /// Accesses a key after a lookup that found no record, or found one that was `unlinked`.
    #[cold]
    #[inline(never)]
    fn access_again<K: Key, C: Call>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        mut unlinked: Option<Record<M>>,
        call: C,
    ) -> Result<Access<M>, Abort> {
        loop {
            let Some(record) = self.look_again(table, key, unlinked)? else { return Ok(Access::Gap) };
            if let Some(position) = self.worker.cx.writes.find(record) {
                return Ok(Access::Own(position));
            }
            match self.call(table, key, record, call)? {
                RecordState::Row => return Ok(Access::Row(record)),
                RecordState::Absent => return Ok(Access::Absent),
                RecordState::Unlinked => unlinked = Some(record),
            }
        }
    }

    /// Returns the record under a key after a lookup that found none, or found `unlinked`. `None`
    /// if there is none; then the protocol has observed the gap.
    ///
    /// A miss probes the index a second time. So a hit, which is the rule, need not keep the leaf
    /// and its version in registers.
    fn look_again<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        unlinked: Option<Record<M>>,
    ) -> Result<Option<Record<M>>, Abort> {
        M::enter(M::phase().doing(Activity::Index));
        M::step("look up");
        let mut spin = Spin::<M>::new();
        loop {
            let lookup = table.lookup(key);
            match lookup.value.map(StoredTable::<M, K>::record) {
                // The record was marked, and is not yet removed from the index: wait for the
                // collector.
                Some(record) if unlinked == Some(record) => spin.wait(),
                Some(record) => return Ok(Some(record)),
                None => {
                    let worker = &mut *self.worker;
                    let observed = worker.engine.protocol().observe_leaf(
                        &mut worker.cx,
                        &mut worker.local,
                        table.id(),
                        lookup.leaf,
                        lookup.version,
                    );
                    return observed.map(|()| None).map_err(|abort| self.fail_at(table, key, None, Groups::ALL, abort));
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn read_located<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        found: Option<Record<M>>,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        M::work(READ_INSTRUCTIONS);
        let mut access = self.access(table, key, found, Read(columns))?;
        while self.has_come_since(table, key, access)? {
            access = self.access_again(table, key, None, Read(columns))?;
        }
        M::enter(Phase::BODY);
        if self.is_recording() {
            self.record_read(table, key, columns.groups(), access);
        }
        match access {
            Access::Row(_) => Ok(Some(&self.worker.cx.row_buffer[..table.row_words()])),
            Access::Own(position) => self.read_own(table, key, position, columns.groups()),
            Access::Absent | Access::Gap => self.missed(table, key).map(|()| None),
        }
    }

    /// Waits for earlier transactions that still insert into a range of keys. Returns whether its
    /// rows may have changed since the last look. Most protocols have no such inserts.
    #[inline(always)]
    pub(super) fn await_inserts<K: Key>(&mut self, table: &StoredTable<M, K>, low: K, high: K) -> Result<bool, Abort> {
        let worker = &mut *self.worker;
        if !worker.engine.protocol().defers() {
            return Ok(false);
        }
        let range = NamedRange::new(table, low, high);
        let waited = worker.engine.protocol().await_inserts(&mut worker.cx, &mut worker.local, range);
        waited.map_err(|abort| self.fail(table.id(), abort))
    }

    /// Whether an access found no row under the key, and an earlier transaction may have inserted
    /// it since.
    #[inline(always)]
    fn has_come_since<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, access: Access<M>) -> Result<bool, Abort> {
        if matches!(access, Access::Absent | Access::Gap) { self.await_inserts(table, key, key) } else { Ok(false) }
    }

    /// Tells the protocol, if it wants to know, that a read or write has found no row under a key.
    #[inline(always)]
    fn missed<K: Key>(&mut self, table: &StoredTable<M, K>, key: K) -> Result<(), Abort> {
        if self.worker.engine.protocol().observes_ranges() { self.observe_range(table, key, key) } else { Ok(()) }
    }

    /// Tells the protocol which keys the transaction has read, whether they had a row or not.
    #[cold]
    pub(super) fn observe_range<K: Key>(&mut self, table: &StoredTable<M, K>, low: K, high: K) -> Result<(), Abort> {
        let (worker, low, high) = (&mut *self.worker, low.to_words(), high.to_words());
        let (low, high) = (&low[..K::WORDS], &high[..K::WORDS]);
        let observed = worker.engine.protocol().observe_range(&mut worker.cx, &mut worker.local, table.id(), low, high);
        observed.map_err(|abort| self.doom(abort))
    }

    /// Announces a write to the protocol, and returns the position of its image. `None` if the key
    /// is absent.
    #[inline(always)]
    pub(super) fn write_located<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        found: Option<Record<M>>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<Option<usize>, Abort> {
        M::work(WRITE_INSTRUCTIONS);
        let mut access = self.access(table, key, found, Write(groups, mode))?;
        while self.has_come_since(table, key, access)? {
            access = self.access_again(table, key, None, Write(groups, mode))?;
        }
        M::enter(Phase::BODY);
        if self.is_recording() {
            self.record_write(table, key, groups, mode, access);
        }
        match access {
            Access::Row(record) => {
                let cx = &mut self.worker.cx;
                let kind = if mode == WriteMode::Delete { WriteKind::Delete } else { WriteKind::Update };
                let position = cx.writes.push(table, key, record, kind);
                match mode {
                    WriteMode::ReadModifyWrite | WriteMode::Delete => cx.writes.take(position, groups, &cx.row_buffer),
                    WriteMode::Blind => cx.writes.replace(position, groups),
                    // The image stays empty.
                    WriteMode::CommitTimeUpdate | WriteMode::Insert => {}
                }
                Ok(Some(position))
            }
            Access::Own(position) => self.write_own(table, key, position, groups, mode),
            Access::Absent | Access::Gap => self.missed(table, key).map(|()| None),
        }
    }

    /// Applies an update, now or at commit. Returns `false` if the key is absent.
    #[inline(always)]
    pub(super) fn update_located<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        found: Option<Record<M>>,
        update: RowUpdate<'_>,
    ) -> Result<bool, Abort> {
        let deferred = self.worker.engine.config().options.commit_time_updates;
        let mode = if deferred { WriteMode::CommitTimeUpdate } else { WriteMode::ReadModifyWrite };
        let groups = table.own_groups(update.groups());
        let Some(position) = self.write_located(table, key, found, groups, mode)? else { return Ok(false) };
        let writes = &mut self.worker.cx.writes;
        if writes.entries()[position].image.contains(groups) {
            update.apply_to(writes.image_mut(position));
        } else {
            writes.defer(position, groups, update);
        }
        Ok(true)
    }

    /// Inserts a key, and returns the position of its image, which the caller fills. `None` if the
    /// key exists. `run` belongs to the table.
    pub(super) fn insert_located<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        run: &mut AscendingInserts<'_, M, K>,
        key: K,
    ) -> Result<Option<usize>, Abort> {
        if self.worker.cx.declaration.has_rows()
            && let Declared::Refused = self.worker.cx.declaration.find_for_insert(table, key)
        {
            return Err(self.undeclared());
        }
        self.await_inserts(table, key, key)?;
        let record = match self.worker.allocate(table, RecordOrigin::Inserting) {
            Ok(record) => record,
            Err(crate::OutOfMemory) => return Err(self.doom(Abort::new(AbortReason::OutOfMemory))),
        };
        let mut spin = Spin::<M>::new();
        loop {
            M::enter(Phase::of(Operation::Write, Activity::Index));
            M::step("insert");
            match table.insert(run, key, record) {
                Placed::New(change) => {
                    M::enter(Phase::of(Operation::Write, Activity::Manager));
                    let inserted = self.inserted(table, key, record, &change);
                    M::enter(Phase::BODY);
                    return inserted.map(Some);
                }
                Placed::Exists(lookup) => {
                    let outcome = self.revive(table, key, lookup);
                    M::enter(Phase::BODY);
                    if !matches!(outcome, Ok(Revived::Unlinked)) {
                        self.worker.release(table, record);
                    }
                    match outcome? {
                        Revived::Image(position) => return Ok(Some(position)),
                        Revived::Exists if self.is_later() => {
                            let (key, table) = (key.name(), table.name());
                            let step = format!("inserts the key {key} of the table {table}, which has a row already,");
                            return Err(self.refuse_later(&step));
                        }
                        Revived::Exists => return Ok(None),
                        Revived::Unlinked => spin.wait(),
                    }
                }
            }
        }
    }

    fn inserted<K: Key>(
        &mut self,
        table: &StoredTable<M, K>,
        key: K,
        record: Record<M>,
        change: &Change<M>,
    ) -> Result<usize, Abort> {
        let worker = &mut *self.worker;
        let position = worker.cx.writes.push(table, key, record, WriteKind::Insert);
        worker.cx.writes.replace(position, Groups::ALL);
        worker.cx.writes.entries_mut()[position].fresh = true;
        let inserted = worker.engine.protocol().placeholder_inserted(
            &mut worker.cx,
            &mut worker.local,
            Located { table, record },
            change,
        );
        inserted.map_err(|abort| self.fail_at(table, key, Some(record), Groups::ALL, abort))?;
        if self.is_recording() {
            self.record_fresh(table, key, record);
        }
        Ok(position)
    }

    /// Handles an insert that has met a record under its key: a row, or an absent record, which can
    /// get a row.
    fn revive<K: Key>(&mut self, table: &StoredTable<M, K>, key: K, lookup: Lookup<M>) -> Result<Revived, Abort> {
        let record = StoredTable::<M, K>::record(lookup.value.expect("an existing entry has a value"));
        if let Some(position) = self.worker.cx.writes.find(record) {
            let inserted = self.insert_own(table, key, position)?;
            return Ok(if inserted { Revived::Image(position) } else { Revived::Exists });
        }
        let access = match self.call(table, key, record, Read(Projection::EXISTENCE))? {
            RecordState::Row => Access::Row(record),
            RecordState::Absent => Access::Absent,
            RecordState::Unlinked => return Ok(Revived::Unlinked),
        };
        if self.is_recording() {
            self.record_read(table, key, Projection::EXISTENCE.groups(), access);
        }
        if let Access::Row(_) = access {
            return Ok(Revived::Exists);
        }
        match self.call(table, key, record, Write(Groups::ALL, WriteMode::Insert))? {
            RecordState::Absent => {
                let worker = &mut *self.worker;
                worker.engine.protocol().absent_found(&mut worker.local, table.id(), lookup.leaf, lookup.version);
                let writes = &mut worker.cx.writes;
                let position = writes.push(table, key, record, WriteKind::Insert);
                writes.replace(position, Groups::ALL);
                if self.is_recording() {
                    self.record_insert(table, key);
                }
                Ok(Revived::Image(position))
            }
            RecordState::Unlinked => Ok(Revived::Unlinked),
            // The record has got a row since it was read as absent. That read can't be valid any
            // more, so the transaction must abort.
            RecordState::Row => {
                let abort = Abort::new(AbortReason::ReadValidation);
                Err(self.fail_at(table, key, Some(record), Groups::ALL, abort))
            }
        }
    }
}
