//! [`Worker`]: runs transactions, one after the other. Between them it advances the epoch, protects
//! a transaction that starves, and collects garbage.

use std::ptr::NonNull;
use std::sync::Arc;

use contend_machine::{Activity, Machine, Operation, Phase, Spin, set_lock_backoff};
use contend_model::{Abort, AbortCounts, AbortReason, Core, Groups, Isolation, OutOfMemory, StoreId, key_of};

use crate::cell_copy::Copies;
use crate::conflicts::{ConflictNote, MemoryMap, Noted};
use crate::declaration::Declaration;
use crate::engine::Engine;
use crate::epoch::Epochs;
use crate::fault::Fault;
use crate::garbage::{Garbage, RetiredRecord, pop_older, trim_queue};
use crate::history::{Committed, Recording};
use crate::layout::TableCore;
use crate::pieces::{RunningPieces, StepMark};
use crate::protocol::{Context, Located, Protocol, RecordOrigin, SHORT_ROW, Tombstone, UnlinkOutcome, VersionCounts};
use crate::record::Record;
use crate::sets::{Logging, NodeSet, WriteKind, WriteSet};
use crate::slab::Arenas;
use crate::table::AnyTable;
use crate::transaction::Transaction;

impl<P: Protocol<M>, M: Machine> Engine<P, M> {
    /// Returns a new worker. `None` if `workers_max` workers exist.
    pub fn worker(self: &Arc<Self>) -> Option<Worker<P, M>> {
        let slot = self.epochs.register()?;
        let mut writes = WriteSet::default();
        writes.reorders_updates = self.protocol.reorders_updates();
        writes.log = self.sinks.as_ref().map(|sinks| {
            let sink = sinks.of_worker(slot);
            let (words_max, epochs) = (sink.words_max(), NonNull::from(&self.epochs));
            Logging { sink, words_max, adds: self.logs_additions(), epochs }
        });
        Some(Worker {
            cx: Context {
                worker: slot,
                writes,
                nodes: NodeSet::new(self.config.fault),
                row_buffer: vec![0; SHORT_ROW],
                declaration: Declaration::new(self.protocol.info().needs, self.catalog.store()),
                began_in: 0,
                epoch: &self.epochs,
                arenas: Arenas::default(),
                copies: Copies::new(Arc::clone(&self.copy_blocks)),
                garbage: Garbage::default(),
                versions: VersionCounts::default(),
                conflict: ConflictNote::default(),
            },
            asks: self.protocol.wants_declarations(),
            local: self.protocol.new_worker_state(slot),
            seen_epoch: Epochs::<M>::NOT_SEEN,
            next_txn: self.used_numbers.lock().get(&slot).copied().unwrap_or(0),
            since_maintenance: 0,
            passed_absent: 0,
            collected_in: 0,
            committed_in: 0,
            recording: self.config.history.then(Box::default),
            pieces: RunningPieces::default(),
            is_running: false,
            commits: 0,
            aborts: AbortCounts::default(),
            conflicted_at: None,
            memory: MemoryMap::default(),
            protect_after: self.config.options.protect_after,
            is_protected: false,
            conflicts: 0,
            commits_before: 0,
            store: self.catalog.store(),
            engine: Arc::clone(self),
        })
    }
}

/// A worker runs transactions, one at a time. It belongs to one thread at a time.
///
/// It writes its own state with every transaction, and the workers of an engine often stand side by
/// side. So no two share a cache line, or a pair of lines, which processors fetch together.
#[repr(align(128))]
pub struct Worker<P: Protocol<M>, M: Machine> {
    pub(crate) cx: Context<M>,
    pub(crate) local: P::WorkerState,
    /// Whether the protocol uses declarations.
    asks: bool,
    pub(crate) seen_epoch: u64,
    next_txn: u64,
    since_maintenance: u32,
    /// The records without a row that its scans have passed since.
    pub(crate) passed_absent: usize,
    /// The epoch of the last collection.
    collected_in: u64,
    pub(crate) committed_in: u64,
    /// Boxed: each access asks whether there is one, which is then one comparison.
    pub(crate) recording: Option<Box<Recording>>,
    pub(crate) pieces: RunningPieces,
    /// Whether a transaction has begun and not ended.
    pub(crate) is_running: bool,
    commits: u64,
    aborts: AbortCounts,
    /// What was noted of the place of the last abort, if it was a conflict.
    pub(crate) conflicted_at: Option<Noted>,
    /// Where the memory of the tables is, for these places.
    pub(crate) memory: MemoryMap,
    /// The number of conflicts in a row after which a transaction is protected; 0: never.
    protect_after: u32,
    /// Whether this worker keeps the gate closed ([`Epochs::close`]).
    is_protected: bool,
    /// The number of conflicts in a row, and the value of `commits` at the first of them. Comparing
    /// the two values spares a store at each commit.
    conflicts: u32,
    commits_before: u64,
    /// The engine's identity.
    pub(crate) store: StoreId,
    pub(crate) engine: Arc<Engine<P, M>>,
}

impl<P: Protocol<M>, M: Machine> std::fmt::Debug for Worker<P, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("number", &self.cx.worker)
            .field("commits", &self.commits)
            .finish_non_exhaustive()
    }
}

/// The records without a row that a worker's scans pass in [`MAINTENANCE_EVERY`] transactions, from
/// which on an epoch ends early. Most are tombstones, which leave their index two epochs later.
const MANY_PASSED: usize = 64;

/// The number of transactions after which a worker looks at the clock and at its garbage.
const MAINTENANCE_EVERY: u32 = 32;
/// The tombstones that one maintenance looks at, besides two for each tombstone queued since the
/// last. So a transaction waits no longer for it than the worker's own deletes deserve. The
/// maintenance reuses as many old versions, and a sixteenth of all that wait: however many there
/// are, they become fewer.
const COLLECT_AT_ONCE: usize = 256;
/// The longest time, in seconds, that a protected transaction waits for running transactions. A
/// worker may pause without going offline, and can't be waited for.
const PATIENCE: f64 = 0.1;

impl<P: Protocol<M>, M: Machine> Worker<P, M> {
    /// Returns the worker's number, from 0, unique among the workers that live.
    pub fn number(&self) -> usize {
        self.cx.worker
    }

    /// Returns the epoch in which the last transaction committed, if the engine logs. All
    /// transactions that it depends on committed in this epoch or before.
    pub fn committed_in(&self) -> u64 {
        self.committed_in
    }

    /// Returns a ticket for the last transaction, with which [`Worker::is_durable`] answers.
    pub fn ticket(&self) -> u64 {
        self.cx.writes.log.as_ref().map_or(0, |log| log.sink.ticket())
    }

    /// Whether this worker's transaction with this ticket is durable. Always `true` if the engine
    /// doesn't log.
    pub fn is_durable(&mut self, ticket: u64) -> bool {
        self.cx.writes.log.as_mut().is_none_or(|log| log.sink.is_durable(ticket))
    }

    /// Returns the number of transactions committed so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the counts of aborts so far, by reason.
    pub fn aborts(&self) -> &AbortCounts {
        &self.aborts
    }

    /// Returns the counts of old versions that this worker made and collected.
    pub fn versions(&self) -> &VersionCounts {
        &self.cx.versions
    }

    /// Returns the number of deleted records that wait at this worker: to leave their index, or for
    /// the reuse of their memory.
    pub fn tombstones(&self) -> usize {
        self.cx.garbage.tombstones.len() + self.cx.garbage.unlinked.len()
    }

    /// Returns the number of pieces that met a conflict and ran again. `None` if the protocol does
    /// not treat pieces by themselves.
    #[inline(always)]
    pub fn piece_retries(&self) -> Option<u64> {
        self.engine.protocol.uses_pieces().then_some(self.pieces.retries)
    }

    /// Returns the first violation of a declaration since the last call, in a sentence that names
    /// the type, the piece, the table and the columns, or the table and the key
    /// ([`AbortReason::Undeclared`](crate::AbortReason::Undeclared)).
    pub fn take_undeclared(&mut self) -> Option<String> {
        self.pieces.checker.take_violation().or_else(|| self.cx.declaration.take_violation())
    }

    /// Takes the transactions recorded so far. Empty if the engine records no history.
    pub fn take_history(&mut self) -> Vec<Committed> {
        self.recording.as_mut().map(|recording| std::mem::take(&mut recording.committed)).unwrap_or_default()
    }

    /// Begins a transaction. If it is dropped without [`Transaction::commit`], it aborts. If it is
    /// forgotten (`std::mem::forget`), it aborts when the worker begins the next transaction, goes
    /// offline or ends. Until then others may wait for it.
    #[inline]
    pub fn begin(&mut self) -> Transaction<'_, P, M> {
        self.begin_declared(|_| ())
    }

    /// Begins a transaction. If the protocol uses declarations, `declare` says what the transaction
    /// will touch.
    #[inline]
    pub fn begin_declared(&mut self, declare: impl FnOnce(&mut Declaration<M>)) -> Transaction<'_, P, M> {
        M::step("begin");
        self.end_forgotten();
        self.since_maintenance += 1;
        if self.since_maintenance >= MAINTENANCE_EVERY {
            self.maintain();
        }
        if !self.engine.epochs.is_as_seen(self.seen_epoch) {
            self.enter();
        }
        self.number_next();
        self.cx.began_in = self.seen_epoch;
        if self.asks {
            self.cx.declaration.clear();
            declare(&mut self.cx.declaration);
        }
        if self.engine.protocol.uses_pieces() {
            let of = self.cx.declaration.kind_of();
            // Such a transaction sees a snapshot, and so needs no type.
            if of.is_none() && self.cx.declaration.is_read_only() && self.engine.protocol().reads_snapshots() {
                self.pieces.begin_unchecked();
            } else {
                self.pieces.begin(&self.engine.types_in_force, of);
            }
        }
        let begun = self.engine.protocol.begin(&mut self.cx, &mut self.local);
        Transaction::new(self, begun.err().map(|abort| abort.reason))
    }

    /// Begins a transaction that runs alone: it waits for all running transactions that can commit,
    /// and no other begins before this one has committed or is given up. So it may be of none of
    /// the declared types ([`Engine::declare`]), and what it does is not checked.
    ///
    /// A worker that pauses without going offline is waited for.
    pub fn begin_alone(&mut self) -> Transaction<'_, P, M> {
        M::step("begin alone");
        self.choose_waits();
        self.end_forgotten();
        self.since_maintenance += 1;
        if self.since_maintenance >= MAINTENANCE_EVERY {
            self.maintain();
        }
        self.leave_epochs();
        if !self.is_protected {
            self.engine.epochs.close();
            self.is_protected = true;
        }
        self.engine.epochs.wait_until_idle();
        self.seen_epoch = self.engine.epochs.refresh(self.cx.worker, self.seen_epoch);
        self.number_next();
        self.cx.began_in = self.seen_epoch;
        // The next transaction has another declaration.
        self.asks = true;
        self.cx.declaration.clear();
        self.pieces.begin_unchecked();
        let begun = self.engine.protocol.begin(&mut self.cx, &mut self.local);
        Transaction::new(self, begun.err().map(|abort| abort.reason))
    }

    /// Gives the next transaction its number.
    #[inline(always)]
    fn number_next(&mut self) {
        self.next_txn += 1;
        self.cx.writes.txn = self.next_txn * self.engine.config.workers_max as u64 + self.cx.worker as u64;
    }

    /// Begins a transaction that declares that it only reads. With a protocol that has snapshots it
    /// sees a state some epochs old, and never aborts. Then it needs no type, also where types are
    /// declared ([`Engine::declare`]).
    pub fn begin_read_only(&mut self) -> Transaction<'_, P, M> {
        self.begin_declared(Declaration::read_only)
    }

    /// Begins a transaction that must not write and sees a snapshot. The snapshot contains all
    /// commits of this worker, and the commits of other workers up to some epochs ago. The
    /// transaction never aborts. No other transaction waits for it, or aborts because of it.
    /// However long it takes, it holds back only the reuse of memory, and no epoch. `None` if the
    /// protocol has no snapshots with its present options ([`Protocol::reads_snapshots`]).
    ///
    /// The call waits for transactions that ran beside the worker's last commit, and are still
    /// running.
    pub fn begin_snapshot(&mut self) -> Option<Transaction<'_, P, M>> {
        self.begin_snapshot_of(None)
    }

    /// Begins a snapshot as [`Worker::begin_snapshot`] does, for a transaction of a declared type.
    pub fn begin_snapshot_of(&mut self, kind: Option<usize>) -> Option<Transaction<'_, P, M>> {
        if !self.engine.protocol.reads_snapshots() {
            return None;
        }
        M::step("begin");
        self.choose_waits();
        self.end_forgotten();
        // A snapshot needs no protection, and other transactions must not wait for it.
        self.end_protection();
        self.since_maintenance += 1;
        if self.since_maintenance >= MAINTENANCE_EVERY {
            self.maintain();
        }
        // A snapshot is two epochs old. That would be long where no other worker advances the
        // epoch.
        if self.engine.epochs.maybe_advance(M::now()) {
            self.engine.epochs.try_advance();
        }
        self.number_next();
        // The next transaction has another declaration: this one must be cleared then, even if the
        // protocol doesn't use declarations.
        self.asks = true;
        let mut spin = Spin::<M>::new();
        let begun = loop {
            self.cx.began_in = self.engine.epochs.enter_reading(self.cx.worker);
            self.seen_epoch = Epochs::<M>::NOT_SEEN;
            self.cx.declaration.clear();
            self.cx.declaration.read_only();
            match kind {
                Some(kind) if self.engine.protocol.uses_pieces() => {
                    self.cx.declaration.kind(kind);
                    self.pieces.begin(&self.engine.types_in_force, Some(kind));
                }
                _ => self.pieces.begin_unchecked(),
            }
            let begun = self.engine.protocol.begin(&mut self.cx, &mut self.local);
            if begun.is_err() || self.engine.protocol.sees_own_commits(&mut self.cx, &mut self.local) {
                break begun;
            }
            self.engine.protocol.abort(&mut self.cx, &mut self.local, AbortReason::User);
            self.go_offline();
            self.engine.epochs.try_advance();
            spin.wait();
        };
        Some(Transaction::new(self, begun.err().map(|abort| abort.reason)))
    }

    /// Runs a transaction once, and commits it if `body` returns `Ok`.
    ///
    /// # Errors
    /// The transaction has aborted, for this reason.
    #[inline]
    pub fn run<T>(&mut self, body: impl FnOnce(&mut Transaction<'_, P, M>) -> Result<T, Abort>) -> Result<T, Abort> {
        self.run_declared(|_| (), body)
    }

    /// Runs a transaction once, as [`Worker::run`] does. If the protocol uses declarations,
    /// `declare` says what the transaction will touch.
    ///
    /// # Errors
    /// The transaction has aborted, for this reason.
    #[inline]
    pub fn run_declared<T>(
        &mut self,
        declare: impl FnOnce(&mut Declaration<M>),
        body: impl FnOnce(&mut Transaction<'_, P, M>) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let mut transaction = self.begin_declared(declare);
        match body(&mut transaction) {
            Ok(value) => transaction.commit().map(|()| value),
            Err(abort) => {
                transaction.abort(abort.reason);
                Err(abort)
            }
        }
    }

    /// Takes the worker offline. To be called before the worker pauses: an idle worker that is
    /// online holds back the epoch, and with it the reuse of memory. If its transaction is
    /// protected, all other workers wait. The next transaction brings it online again.
    pub fn go_offline(&mut self) {
        self.end_forgotten();
        self.leave_epochs();
        self.end_protection();
    }

    /// Whether the worker's transaction is protected. It is after `EngineOptions::protect_after`
    /// aborts in a row. Then no other transaction begins until this one has committed or is given
    /// up (an abort that is no conflict, or a dropped [`Transaction`]), or the worker goes offline.
    pub fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// Whether the next transaction must be protected.
    fn is_starving(&self) -> bool {
        self.protect_after > 0 && self.conflicts >= self.protect_after && self.commits == self.commits_before
    }

    /// Says how the thread waits for locks: see `EngineOptions::lock_backoff`.
    ///
    /// An ordinary begin doesn't say it, which would cost a fortieth of a short commit. So a thread
    /// that runs transactions of two engines by turns waits as one of the two does: the one whose
    /// worker has entered an epoch last.
    fn choose_waits(&self) {
        set_lock_backoff(self.engine.config.options.lock_backoff);
    }

    /// Begins in a new epoch, waits at the gate, or closes it. Called when the epoch has changed,
    /// the gate is closed, or the worker was offline.
    #[cold]
    fn enter(&mut self) {
        self.choose_waits();
        if !self.is_protected && self.is_starving() {
            M::step("close the gate");
            // While this worker waits for the gate, others must not wait for this worker.
            self.leave_epochs();
            self.engine.epochs.close();
            self.is_protected = true;
        }
        if self.is_protected {
            self.leave_epochs();
            self.wait_for_others();
            self.seen_epoch = self.engine.epochs.refresh(self.cx.worker, self.seen_epoch);
            return;
        }
        loop {
            if let Some(epoch) = self.engine.epochs.enter_if_open(self.cx.worker) {
                self.seen_epoch = epoch;
                return;
            }
            if self.engine.config.fault == Some(Fault::PassClosedGate) {
                self.seen_epoch = self.engine.epochs.refresh(self.cx.worker, self.seen_epoch);
                return;
            }
            self.leave_epochs();
            M::step("wait at the gate");
            let mut spin = Spin::<M>::new();
            while self.engine.epochs.is_closed() {
                spin.wait();
            }
        }
    }

    /// Waits until no other worker runs a transaction that can commit, for at most [`PATIENCE`]. A
    /// worker that was seen offline begins none, as the gate is closed.
    fn wait_for_others(&self) {
        if self.engine.config.fault == Some(Fault::PassClosedGate) {
            return;
        }
        M::step("wait for others");
        let epochs = &self.engine.epochs;
        let (mut spin, began) = (Spin::<M>::new(), M::now());
        let patience = (M::cycles_per_second() * PATIENCE) as u64;
        for slot in 0..epochs.slots_taken() {
            while epochs.may_commit(slot) && M::now().wrapping_sub(began) < patience {
                spin.wait();
            }
        }
    }

    /// Opens the gate for others, if the worker's transaction was protected.
    #[inline(always)]
    pub(crate) fn end_protection(&mut self) {
        if self.is_protected {
            self.open_gate();
        }
    }

    #[cold]
    fn open_gate(&mut self) {
        M::step("open the gate");
        self.is_protected = false;
        if self.engine.config.fault != Some(Fault::KeepGateClosed) {
            self.engine.epochs.open();
        }
    }

    /// Goes offline in the log, the protocol and the epochs, so that no other worker waits for this
    /// one.
    fn leave_epochs(&mut self) {
        if let Some(log) = &mut self.cx.writes.log {
            log.sink.go_offline();
        }
        self.engine.protocol.go_offline(&mut self.cx, &mut self.local);
        self.engine.epochs.offline(self.cx.worker);
        self.seen_epoch = Epochs::<M>::NOT_SEEN;
    }

    #[cold]
    fn maintain(&mut self) {
        self.since_maintenance = 0;
        M::enter(Phase::of(Operation::Collection, Activity::Manager));
        // A log flushes at the end of an epoch.
        let ends_early = self.passed_absent >= MANY_PASSED && self.cx.writes.log.is_none();
        self.passed_absent = 0;
        if ends_early {
            self.engine.epochs.maybe_advance_early(M::now());
        } else {
            self.engine.epochs.maybe_advance(M::now());
        }
        let epoch = self.engine.epochs.current();
        // Once in each epoch also without garbage of its own: ended workers may have left some.
        if !self.cx.garbage.is_empty() || self.collected_in != epoch {
            self.collect();
        }
        M::enter(Phase::BODY);
    }

    /// Takes old tombstones out of the indexes, and reuses the memory of records that were taken
    /// out before, and of old versions. Where many wait, it does a part of that.
    ///
    /// It does nothing while another worker's transaction is protected, because a record that
    /// leaves its index may be a conflict to that transaction.
    #[cold]
    pub fn collect(&mut self) {
        if self.engine.epochs.is_closed() && !self.is_protected {
            return;
        }
        let epoch = self.engine.epochs.current();
        // Once in an epoch: the lock is a store that all workers see.
        let is_new = std::mem::replace(&mut self.collected_in, epoch) != epoch;
        let left = if is_new { std::mem::take(&mut *self.engine.left_garbage.lock()) } else { Vec::new() };
        for left in left {
            self.cx.garbage.tombstones.extend(left.tombstones);
            self.cx.garbage.unlinked.extend(left.unlinked);
            self.cx.garbage.versions.extend(left.versions);
            self.cx.garbage.copies.extend(left.copies);
        }
        let at_once = COLLECT_AT_ONCE + 2 * std::mem::take(&mut self.cx.garbage.queued);
        // Finding the oldest epoch reads a line of each worker, which is not worth it for nothing.
        if !self.cx.garbage.may_be_due(epoch) {
            return;
        }
        let oldest = self.engine.epochs.oldest();
        // Once a tombstone has left its index, a reader that misses the key no longer waits until
        // the deletion is durable. So the deletion must be durable first (`unlink`). Most are this
        // worker's own, and going offline flushes them.
        if let Some(log) = self.cx.writes.log.as_mut().filter(|_| !self.cx.garbage.tombstones.is_empty())
            && self.engine.sinks.as_ref().is_some_and(|sinks| sinks.holds_rows())
        {
            log.sink.go_offline();
        }
        if !self.cx.garbage.tombstones.is_empty() || !self.cx.garbage.unlinked.is_empty() {
            self.collect_records(at_once, oldest);
        }
        for _ in 0..COLLECT_AT_ONCE + self.cx.garbage.versions.len() / 16 {
            let Some(retired) = pop_older(&mut self.cx.garbage.versions, oldest) else { break };
            self.cx.reuse_version(retired.version);
        }
        while let Some(block) = pop_older(&mut self.cx.garbage.copies, oldest) {
            self.cx.reuse_copies(block);
        }
        trim_queue(&mut self.cx.garbage.tombstones);
        trim_queue(&mut self.cx.garbage.unlinked);
        trim_queue(&mut self.cx.garbage.versions);
        trim_queue(&mut self.cx.garbage.copies);
    }

    /// Takes old tombstones out of the indexes, `at_once` at most, and reuses the records that were
    /// taken out before.
    fn collect_records(&mut self, at_once: usize, oldest: u64) {
        let engine = Arc::clone(&self.engine);
        let tables = engine.catalog.read();
        for _ in 0..at_once {
            let Some(retired) = pop_older(&mut self.cx.garbage.tombstones, oldest) else { break };
            self.unlink(&*tables[retired.table as usize], retired, oldest);
        }
        while let Some(retired) = pop_older(&mut self.cx.garbage.unlinked, oldest) {
            self.release_of(&*tables[retired.table as usize], retired.record);
        }
    }

    fn unlink(&mut self, table: &dyn AnyTable<M>, mut retired: RetiredRecord<M>, oldest: u64) {
        let at = Located { table: table.core(), record: retired.record };
        let tombstone = Tombstone { at, oldest, fault: self.engine.config.fault };
        let is_held = at.table.holds_rows() && !self.cx.writes.is_released(at.table, at.record);
        let outcome = if is_held { UnlinkOutcome::Busy } else { self.engine.protocol.unlink(tombstone) };
        match outcome {
            UnlinkOutcome::Alive => {}
            UnlinkOutcome::Busy => {
                // To the back of the queue, whose other entries are older: the queue stays in the
                // order of its epochs.
                retired.epoch = self.engine.epochs.current();
                self.cx.garbage.tombstones.push_back(retired);
            }
            UnlinkOutcome::Marked { time } => {
                // A protocol without isolation does not keep writers of the tombstone away.
                if self.engine.protocol.info().isolation != Isolation::None {
                    debug_assert!(tombstone.counter_epoch_is_over(), "the key's next record gets smaller counters");
                    table.core().note_unlinked(retired.record);
                }
                let removed = table.remove(&retired.key, retired.record, time);
                debug_assert!(removed, "a marked tombstone stands under its key");
                if self.engine.config.fault == Some(Fault::ReuseEarly) {
                    return self.release_of(table, retired.record);
                }
                retired.epoch = self.engine.epochs.current();
                self.cx.garbage.unlinked.push_back(retired);
            }
        }
    }

    fn release_of(&mut self, table: &dyn AnyTable<M>, record: crate::Record<M>) {
        table.core().note_reuse();
        let slabs = table.core().slabs();
        let arena = self.cx.arenas.of(table.core().id(), slabs);
        arena.release(record);
        slabs.share(arena);
    }

    /// Returns a new record with the protocol's initial metadata. No other worker knows it.
    pub(crate) fn allocate(&mut self, table: &TableCore<M>, initial: RecordOrigin) -> Result<Record<M>, OutOfMemory> {
        let record = table.slabs().allocate(self.cx.arenas.of(table.id(), table.slabs())).ok_or(OutOfMemory)?;
        self.engine.protocol.init(table.cells(record, Groups::ALL), initial);
        table.clear_log_words(record);
        Ok(record)
    }

    /// Takes back a record that no other worker has seen.
    pub(crate) fn release(&mut self, table: &TableCore<M>, record: Record<M>) {
        self.cx.arenas.of(table.id(), table.slabs()).release(record);
    }

    /// Aborts the last transaction if it has neither ended nor been dropped.
    #[inline(always)]
    fn end_forgotten(&mut self) {
        if self.is_running {
            self.abort_forgotten();
        }
    }

    #[cold]
    fn abort_forgotten(&mut self) {
        M::step("abort");
        self.engine.protocol.abort(&mut self.cx, &mut self.local, AbortReason::User);
        self.finish_abort(AbortReason::User);
        self.end_protection();
    }

    pub(crate) fn finish_commit(&mut self) {
        self.is_running = false;
        self.commits += 1;
        self.queue_garbage(true);
        if self.cx.writes.log.is_some() || self.recording.is_some() {
            self.note_commit();
        }
        self.clear();
        self.end_protection();
    }

    /// Tells the log and the history of a commit. Apart, so that transactions without either don't
    /// carry its code.
    #[inline(never)]
    fn note_commit(&mut self) {
        if let Some(mut log) = self.cx.writes.log.take() {
            let writes = &mut self.cx.writes;
            self.committed_in = writes.sure_in().unwrap_or_else(|| self.engine.epochs.current());
            log.sink.committed(self.committed_in, writes);
            writes.log = Some(log);
        }
        if let Some(recording) = &mut self.recording {
            recording.commit(self.cx.worker, &self.cx.writes);
        }
    }

    pub(crate) fn finish_abort(&mut self, reason: AbortReason) {
        self.is_running = false;
        self.aborts.add(reason);
        self.conflicted_at = self.cx.take_conflict(reason).filter(|_| reason.is_conflict());
        self.queue_garbage(false);
        let defers = self.engine.protocol.defers();
        if let Some(mut log) = self.cx.writes.log.take() {
            let writes = &mut self.cx.writes;
            // What stays is durable like a commit: others have seen it. The log also waits for a
            // transaction of which nothing stays, if it was told that this one would commit.
            match writes.sure_in().filter(|_| defers) {
                Some(epoch) => log.sink.committed(epoch, writes),
                None => log.sink.aborted(reason),
            }
            writes.log = Some(log);
        }
        if let Some(recording) = &mut self.recording {
            recording.forget_running();
        }
        self.clear();
        // A transaction that runs alone is protected without any conflict.
        if self.protect_after > 0 || self.is_protected {
            self.count_conflict(reason.is_conflict());
        }
    }

    /// Counts an abort by a conflict, or ends protection if the transaction was given up.
    fn count_conflict(&mut self, is_conflict: bool) {
        if !is_conflict || self.commits != self.commits_before {
            (self.conflicts, self.commits_before) = (0, self.commits);
        }
        if !is_conflict {
            return self.end_protection();
        }
        self.conflicts = self.conflicts.saturating_add(1);
        if self.is_starving() {
            // The next try must enter, and closes the gate there.
            self.seen_epoch = Epochs::<M>::NOT_SEEN;
        }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.cx.writes.clear();
        self.cx.nodes.clear();
    }

    /// Forgets the writes of the running transaction, which its protocol has committed for good.
    /// The transaction goes on, and does not count as committed yet.
    #[inline(never)]
    pub(crate) fn settle_piece(&mut self) {
        debug_assert!(self.cx.writes.log.is_none(), "a protocol that settles pieces refuses logs");
        self.pieces.has_settled |= !self.cx.writes.is_empty();
        self.pieces.mark = None;
        self.queue_garbage(true);
        if let Some(recording) = &mut self.recording {
            recording.settle(&self.cx.writes);
        }
        self.clear();
    }

    /// Drops what the transaction has written since the step that `mark` is of began. Placeholders
    /// that it has made stay in their indexes until they are collected.
    #[cold]
    pub(crate) fn roll_back(&mut self, mark: StepMark) {
        if self.engine.config.fault != Some(Fault::KeepRetriedWrites) {
            for position in mark.writes.entries..self.cx.writes.len() {
                if self.cx.writes.entries()[position].fresh {
                    self.queue(position);
                }
            }
            self.cx.writes.roll_back(mark.writes);
        }
        if let Some(recording) = &mut self.recording {
            recording.running.truncate(mark.operations);
        }
    }

    /// Queues the tombstones that this transaction has made: deleted rows, and placeholders that
    /// got no row.
    #[inline(always)]
    fn queue_garbage(&mut self, committed: bool) {
        if !committed && self.engine.config.fault == Some(Fault::ForgetAborted) {
            return;
        }
        for position in 0..self.cx.writes.len() {
            let write = &self.cx.writes.entries()[position];
            let stays = committed || write.stays;
            let made_tombstone =
                if write.fresh { !stays || write.kind == WriteKind::Nothing } else { stays && write.collect };
            if made_tombstone {
                self.queue(position);
            }
        }
    }

    #[cold]
    fn queue(&mut self, position: usize) {
        let write = &self.cx.writes.entries()[position];
        let retired = RetiredRecord {
            record: write.record,
            table: write.table().id(),
            key: key_of(self.cx.writes.key(position)),
            epoch: self.engine.epochs.current(),
        };
        self.cx.garbage.tombstones.push_back(retired);
        self.cx.garbage.queued += 1;
    }
}

impl<P: Protocol<M>, M: Machine> Drop for Worker<P, M> {
    fn drop(&mut self) {
        self.go_offline();
        let tables = self.engine.catalog.read();
        for (table, arena) in self.cx.arenas.take_all() {
            tables[table].core().slabs().park(arena);
        }
        self.cx.copies.leave();
        if !self.cx.garbage.is_empty() {
            self.engine.left_garbage.lock().push(std::mem::take(&mut self.cx.garbage));
        }
        self.engine.used_numbers.lock().insert(self.cx.worker, self.next_txn);
        self.engine.epochs.unregister(self.cx.worker);
    }
}

impl<P: Protocol<M>, M: Machine> Core for Worker<P, M> {
    #[inline(always)]
    fn work(&mut self, instructions: u32) {
        M::work(instructions);
    }
}
