//! [`Engine`]: tables, epochs and one protocol; [`Worker`]: what runs transactions; [`Loader`]: what fills tables before.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use contend_index::{Key, KeyWords, key_of};
use contend_machine::{Activity, Atomic64, Machine, Operation, Ordering, Phase, Spin};
use parking_lot::{Mutex, RwLock};

use crate::abort::{Abort, AbortCounts, AbortReason};
use crate::declaration::Declaration;
use crate::epoch::Epochs;
use crate::fault::Fault;
use crate::garbage::{Corpse, Garbage, trim_queue};
use crate::group::Groups;
use crate::history::{Committed, Part, Recording, Version};
use crate::journal::{Journals, STAMP_SHIFT, Stamp};
use crate::protocol::{At, Context, Control, Initial, Tombstone, Unlink, VersionCounts};
use crate::record::Record;
use crate::sets::{Logging, NodeSet, UNSURE, WriteKind, WriteSet};
use crate::slab::Arenas;
use crate::table::{AnyTable, OutOfMemory, Placed, Shape, Table, TableCore, TableShape, TableSpec};
use crate::transaction::Transaction;

/// Where records begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// As many in a line as fit.
    #[default]
    Packed,
    /// Each in lines of its own.
    Line,
}

crate::option_choices!(Alignment { Packed => "packed", Line => "line" });

crate::options! {
    /// What an engine does for every protocol.
    pub struct EngineOptions {
        /// Commit-time updates: an update that is not read is not validated, but applied at commit to what is there.
        "cu" commit_time_updates: bool = false, in ();
        /// Timestamp splitting: each group of columns has a version of its own, instead of the row.
        "ts" timestamp_splitting: bool = false, in ();
        /// Where records begin: as many in a cache line as fit, or each in lines of its own.
        "align" alignment: Alignment = Alignment::Packed, in ();
        /// Protection: after so many conflicts in a row a worker's transaction runs alone; 0: never. No other transaction begins until it has committed.
        "protect" protect_after: u32 = 0, in 0..=1_000_000;
    }
}

/// What an engine is to be like.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// The most workers and loaders at one time: 1 to [`EngineConfig::WORKERS_MAX`].
    pub workers_max: usize,
    /// The shortest time between two epochs, in milliseconds. Silo's paper and CCBench use 40.
    pub epoch_ms: u64,
    /// Whether what transactions do is recorded: each version is signed by its writer, which costs a word a record and time.
    pub history: bool,
    /// Into how many partitions transactions divide the data, for protocols that lock partitions.
    pub partitions: usize,
    /// What can be chosen for a run.
    pub options: EngineOptions,
    /// A deliberate bug, for tests of the proof.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl EngineConfig {
    /// No engine has more workers: a lock has 14 bits for how many hold it.
    pub const WORKERS_MAX: usize = (1 << 14) - 1;
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            workers_max: 1024,
            epoch_ms: 40,
            history: false,
            partitions: 1,
            options: EngineOptions::default(),
            fault: None,
        }
    }
}

/// Tables under one protocol. Shared by all workers.
pub struct Engine<P: Control<M>, M: Machine> {
    id: u64,
    protocol: P,
    config: EngineConfig,
    pub(crate) epochs: Epochs<M>,
    journals: Option<Arc<dyn Journals<M>>>,
    tables: RwLock<Vec<Arc<dyn AnyTable<M>>>>,
    /// Garbage of workers that have ended, for the next that looks.
    orphans: Mutex<Vec<Garbage<M>>>,
    /// By worker number: transactions of the workers that had it before, so that no number of a transaction is used twice.
    used_numbers: Mutex<HashMap<usize, u64>>,
}

impl<P: Control<M>, M: Machine> std::fmt::Debug for Engine<P, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("protocol", &self.protocol.info().name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<P: Control<M>, M: Machine> Engine<P, M> {
    /// An engine without tables.
    pub fn new(protocol: P, config: EngineConfig) -> Arc<Self> {
        Self::with_journals(protocol, config, None)
    }

    /// An engine without tables that tells a log of each commit.
    pub fn with_journals(mut protocol: P, config: EngineConfig, journals: Option<Arc<dyn Journals<M>>>) -> Arc<Self> {
        protocol.prepare(config.workers_max, config.partitions.max(1));
        // An atomic, not a lock. A thread that waits for a lock of `parking_lot` may allocate memory that all threads share, and an
        // explorer takes back all memory that its thread allocates here.
        static ENGINES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number that no other engine has.
        let id = ENGINES.fetch_add(1, Ordering::Relaxed) + 1;
        let interval = M::cycles_per_second() * config.epoch_ms as f64 / 1e3;
        Arc::new(Engine {
            id,
            protocol,
            epochs: Epochs::new(config.workers_max, interval as u64),
            config,
            journals,
            tables: RwLock::new(Vec::new()),
            orphans: Mutex::new(Vec::new()),
            used_numbers: Mutex::new(HashMap::new()),
        })
    }

    /// The protocol.
    #[inline(always)]
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// How the engine was configured.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The epochs: for tests that drive them by hand.
    pub fn epochs(&self) -> &Epochs<M> {
        &self.epochs
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether this engine created the table.
    pub fn owns<K: Key>(&self, table: &Table<M, K>) -> bool {
        table.engine() == self.id
    }

    /// Whether updates that commute are logged by what they add.
    fn logs_additions(&self) -> bool {
        self.config.options.commit_time_updates
    }

    /// Creates a table.
    pub fn create_table<K: Key>(&self, spec: &TableSpec) -> Arc<Table<M, K>> {
        let mut tables = self.tables.write();
        let id = u32::try_from(tables.len()).expect("fewer than 2^32 tables");
        let shape = Shape {
            meta_words: self.protocol.meta_words(),
            split: self.config.options.timestamp_splitting,
            history: self.config.history,
            // What is added to a row leaves it the stamp that it has.
            stamps: self.journals.is_some() && (self.logs_additions() || !self.protocol.stamps_commits()),
            holds: self.journals.as_ref().is_some_and(|journals| journals.holds_rows()),
            alignment: self.config.options.alignment,
        };
        let table = Arc::new(Table::new(self.id, id, spec, shape));
        tables.push(table.clone());
        table
    }

    /// The tables' names, by their numbers.
    pub fn table_names(&self) -> Vec<String> {
        self.tables.read().iter().map(|table| table.core().name().to_string()).collect()
    }

    /// What the tables are made of, by their numbers.
    pub fn shapes(&self) -> Vec<TableShape> {
        self.tables.read().iter().map(|table| table.shape()).collect()
    }

    /// What has versions of its own, with names: the tables, or each of their groups of columns.
    pub fn parts(&self) -> Vec<(Part, String)> {
        let tables = self.tables.read();
        let parts_of = |table: &Arc<dyn AnyTable<M>>| {
            let core = table.core();
            let name = |cell| match core.cell_count() {
                1 => core.name().to_string(),
                _ => format!("{}/{cell}", core.name()),
            };
            (0..core.cell_count()).map(|cell| (Part::of(core, cell), name(cell))).collect::<Vec<_>>()
        };
        tables.iter().flat_map(parts_of).collect()
    }

    /// A key as a history names it. `table` is a table's number.
    ///
    /// # Panics
    /// There is no such table.
    pub fn key_name(&self, table: u32, key: &KeyWords) -> String {
        self.tables.read()[table as usize].key_name(key)
    }

    /// Who wrote a part of the row under a key as it stands, outside any transaction; 0 if it was loaded, `None` if there is no
    /// row, or if the engine records no history.
    ///
    /// # Panics
    /// There is no such part.
    pub fn last_writer(&self, part: Part, key: &KeyWords) -> Option<Version> {
        let tables = self.tables.read();
        let (table, core) = (&tables[part.table as usize], tables[part.table as usize].core());
        let record = table.find(key).filter(|&record| core.records_history() && !self.protocol.is_absent(record))?;
        // Relaxed: no transaction runs.
        Some(core.payload(record)[core.signature(part.cell as usize)].load(Ordering::Relaxed))
    }

    /// Where the record under a key is, outside any transaction: its first word's address, and its words. `None` if there is none.
    ///
    /// # Panics
    /// There is no such part.
    pub fn place(&self, part: Part, key: &KeyWords) -> Option<(usize, usize)> {
        let tables = self.tables.read();
        let table = &tables[part.table as usize];
        let record = table.find(key)?;
        let payload = table.core().payload(record);
        let first = std::ptr::from_ref(record.word()) as usize;
        Some((
            first,
            (std::ptr::from_ref(payload) as *const M::U64 as usize - first) / size_of::<M::U64>() + payload.len(),
        ))
    }

    /// Bytes of all tables: records' memory and indexes.
    pub fn bytes(&self) -> u64 {
        self.tables.read().iter().map(|table| table.bytes()).sum()
    }

    /// Of how many records so many older versions are kept, outside any transaction: of none, of 1, of 2 and 3, of 4 to 7, and so on.
    pub fn version_chains(&self) -> Vec<u64> {
        let mut records = Vec::new();
        for table in self.tables.read().iter() {
            table.for_each_record(&mut |record| {
                let class = (u64::BITS - self.protocol.older_versions(record).leading_zeros()) as usize;
                records.resize(records.len().max(class + 1), 0);
                records[class] += 1;
            });
        }
        records
    }

    /// A loader: fills tables before transactions run. `None` if `workers_max` workers are there.
    pub fn loader(self: &Arc<Self>) -> Option<Loader<P, M>> {
        self.worker().map(Loader)
    }

    /// A loader for what the log has already. `None` as of [`Engine::loader`].
    pub fn reloader(self: &Arc<Self>) -> Option<Loader<P, M>> {
        let mut loader = self.loader()?;
        loader.0.cx.writes.log = None;
        Some(loader)
    }

    /// A worker. `None` if `workers_max` workers are there.
    pub fn worker(self: &Arc<Self>) -> Option<Worker<P, M>> {
        let slot = self.epochs.register()?;
        let mut writes = WriteSet::default();
        writes.reorders_updates = self.protocol.reorders_updates();
        writes.log = self.journals.as_ref().map(|journals| {
            let journal = journals.of_worker(slot);
            let (words_max, epochs) = (journal.words_max(), NonNull::from(&self.epochs));
            Logging { journal, words_max, adds: self.logs_additions(), epochs }
        });
        Some(Worker {
            cx: Context {
                worker: slot,
                writes,
                nodes: NodeSet::new(self.config.fault),
                scratch: vec![0; 16],
                declaration: Declaration::new(self.protocol.info().needs),
                began_in: 0,
                epoch: &self.epochs,
                arenas: Arenas::default(),
                replaced: Vec::new(),
                versions: VersionCounts::default(),
            },
            asks: self.protocol.wants_declarations(),
            local: self.protocol.local(slot),
            seen_epoch: Epochs::<M>::NOT_SEEN,
            next_txn: self.used_numbers.lock().get(&slot).copied().unwrap_or(0),
            since_maintenance: 0,
            collected_in: 0,
            garbage: Garbage::default(),
            committed_in: 0,
            recording: self.config.history.then(Recording::default),
            commits: 0,
            aborts: AbortCounts::default(),
            protect_after: self.config.options.protect_after,
            is_protected: false,
            conflicts: 0,
            commits_before: 0,
            engine: Arc::clone(self),
        })
    }

    /// The row under a key, outside any transaction: for checks after a run. `None` if the key is absent. The words are the row's and,
    /// if history is recorded, its writers' numbers.
    ///
    /// # Panics
    /// The table is of another engine.
    pub fn peek<K: Key>(&self, table: &Table<M, K>, key: K, row: &mut Vec<u64>) -> Option<()> {
        assert!(self.owns(table), "table {} is of another engine", table.name());
        let record = Table::<M, K>::record(table.lookup(key).value?);
        if self.protocol.is_absent(record) {
            return None;
        }
        table.peek(record, row);
        Some(())
    }

    /// Visits every row of a table with an ordered index, outside any transaction; `false` if the index has no order. The words
    /// are as in [`Engine::peek`].
    ///
    /// # Panics
    /// The table is of another engine.
    pub fn peek_all<K: Key>(&self, table: &Table<M, K>, mut visit: impl FnMut(K, &[u64])) -> bool {
        assert!(self.owns(table), "table {} is of another engine", table.name());
        let mut row = Vec::new();
        table.for_each(|key, record| {
            if !self.protocol.is_absent(record) {
                table.peek(record, &mut row);
                visit(key, &row);
            }
        })
    }
}

/// Runs transactions, one at a time. A worker belongs to one thread at a time.
pub struct Worker<P: Control<M>, M: Machine> {
    pub(crate) cx: Context<M>,
    pub(crate) local: P::Local,
    /// Whether the protocol wants to be told what a transaction will do.
    asks: bool,
    seen_epoch: u64,
    next_txn: u64,
    since_maintenance: u32,
    /// The epoch of the last collection.
    collected_in: u64,
    garbage: Garbage<M>,
    committed_in: u64,
    pub(crate) recording: Option<Recording>,
    commits: u64,
    aborts: AbortCounts,
    /// After so many conflicts in a row a transaction is protected; 0: never.
    protect_after: u32,
    /// Whether this worker keeps the gate closed ([`Epochs::close`]).
    is_protected: bool,
    /// Conflicts in a row, and the value of `commits` at the first of them. So a commit need not write here.
    conflicts: u32,
    commits_before: u64,
    pub(crate) engine: Arc<Engine<P, M>>,
}

impl<P: Control<M>, M: Machine> std::fmt::Debug for Worker<P, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("number", &self.cx.worker)
            .field("commits", &self.commits)
            .finish_non_exhaustive()
    }
}

/// A worker looks at the clock and at its garbage once in so many transactions.
const MAINTENANCE_EVERY: u32 = 32;
/// Tombstones looked at in one maintenance, besides two for each that was made since the last: a transaction waits no longer
/// for it than the worker's own deletes deserve.
const COLLECT_AT_ONCE: usize = 256;
/// A protected transaction waits at most so long, in seconds, for the transactions that run. Their workers may pause and not have said so, and such a
/// worker can't be waited for.
const PATIENCE: f64 = 0.1;

impl<P: Control<M>, M: Machine> Worker<P, M> {
    /// The worker's number, from 0, unique among the workers that live.
    pub fn number(&self) -> usize {
        self.cx.worker
    }

    /// The epoch in which the last transaction committed, if the engine logs. All that it depends on committed in this epoch or before.
    pub fn committed_in(&self) -> u64 {
        self.committed_in
    }

    /// What says whether the last transaction is durable, to [`Worker::is_durable`].
    pub fn ticket(&self) -> u64 {
        self.cx.writes.log.as_ref().map_or(0, |log| log.journal.ticket())
    }

    /// Whether the transaction of this worker is durable that had this ticket. An engine that does not log never waits for that.
    pub fn is_durable(&mut self, ticket: u64) -> bool {
        self.cx.writes.log.as_mut().is_none_or(|log| log.journal.is_durable(ticket))
    }

    /// Transactions committed so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Aborts so far.
    pub fn aborts(&self) -> &AbortCounts {
        &self.aborts
    }

    /// What has become of old versions by this worker.
    pub fn versions(&self) -> &VersionCounts {
        &self.cx.versions
    }

    /// Deleted records that wait at this worker until they leave their index, or until their memory is free to be used again.
    pub fn tombstones(&self) -> usize {
        self.garbage.tombstones.len() + self.garbage.unlinked.len()
    }

    /// What was recorded so far, handed over. Empty if the engine records no history.
    pub fn take_history(&mut self) -> Vec<Committed> {
        self.recording.as_mut().map(|recording| std::mem::take(&mut recording.committed)).unwrap_or_default()
    }

    /// Begins a transaction. Dropped without [`Transaction::commit`], it aborts.
    #[inline]
    pub fn begin(&mut self) -> Transaction<'_, P, M> {
        self.begin_declared(|_| ())
    }

    /// Begins a transaction that says what it will touch, if the protocol asks for it.
    #[inline]
    pub fn begin_declared(&mut self, declare: impl FnOnce(&mut Declaration<M>)) -> Transaction<'_, P, M> {
        M::step("begin");
        self.since_maintenance += 1;
        if self.since_maintenance >= MAINTENANCE_EVERY {
            self.maintain();
        }
        if !self.engine.epochs.is_as_seen(self.seen_epoch) {
            self.enter();
        }
        self.next_txn += 1;
        self.cx.writes.txn = self.next_txn * self.engine.config.workers_max as u64 + self.cx.worker as u64;
        self.cx.began_in = self.seen_epoch;
        if self.asks {
            self.cx.declaration.clear();
            declare(&mut self.cx.declaration);
        }
        let begun = self.engine.protocol.begin(&mut self.cx, &mut self.local);
        Transaction::new(self, begun.err().map(|abort| abort.reason))
    }

    /// Begins a transaction that will only read: with some protocols, of a state some epochs old, and then it never aborts.
    pub fn begin_read_only(&mut self) -> Transaction<'_, P, M> {
        self.begin_declared(Declaration::read_only)
    }

    /// Begins a transaction that sees a snapshot with all that this worker has committed, and must not write. It never aborts; nobody waits for it, or
    /// aborts because of it; and however long it takes, it holds back no epoch, only the reuse of memory. What others have committed is
    /// in it if that is some epochs ago. `None` if the protocol, as it is set, has no snapshots ([`Control::reads_snapshots`]).
    ///
    /// Waits for the transactions that ran beside the worker's last commit, and are still running.
    pub fn begin_snapshot(&mut self) -> Option<Transaction<'_, P, M>> {
        if !self.engine.protocol.reads_snapshots() {
            return None;
        }
        M::step("begin");
        // A snapshot needs no protection, and others must not wait for it.
        self.end_protection();
        self.since_maintenance += 1;
        if self.since_maintenance >= MAINTENANCE_EVERY {
            self.maintain();
        }
        // A snapshot is two epochs old, which is long where nobody else is there to move the epoch on.
        if self.engine.epochs.maybe_advance(M::now()) {
            self.engine.epochs.try_advance();
        }
        self.next_txn += 1;
        self.cx.writes.txn = self.next_txn * self.engine.config.workers_max as u64 + self.cx.worker as u64;
        // The next transaction is another: what is declared now is cleared then, whether the protocol asks or not.
        self.asks = true;
        let mut spin = Spin::<M>::new();
        let begun = loop {
            self.cx.began_in = self.engine.epochs.enter_reading(self.cx.worker);
            self.seen_epoch = Epochs::<M>::NOT_SEEN;
            self.cx.declaration.clear();
            self.cx.declaration.read_only();
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

    /// Runs a transaction once: commits if `body` returns `Ok`.
    ///
    /// # Errors
    /// The abort that ended it.
    #[inline]
    pub fn run<T>(&mut self, body: impl FnOnce(&mut Transaction<'_, P, M>) -> Result<T, Abort>) -> Result<T, Abort> {
        self.run_declared(|_| (), body)
    }

    /// Runs a transaction once that says what it will touch, if the protocol asks for it.
    ///
    /// # Errors
    /// The abort that ended it.
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

    /// To be called before the worker pauses: an idle worker that is not offline holds back the epoch, and with it the reuse of
    /// memory; and one whose transaction is protected keeps all others waiting. The next transaction brings it online again.
    pub fn go_offline(&mut self) {
        self.rest();
        self.end_protection();
    }

    /// Whether the worker's transaction is protected: it has aborted [`EngineOptions::protect_after`] times in a row, and no other transaction begins
    /// until it has committed, is given up (an abort that is no conflict, or [`Transaction`] dropped), or the worker goes offline.
    pub fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// Whether the next transaction is to be protected.
    fn is_starving(&self) -> bool {
        self.protect_after > 0 && self.conflicts >= self.protect_after && self.commits == self.commits_before
    }

    /// The epoch has changed, the gate is closed, or the worker was offline: it waits at the gate, or closes it, or just begins.
    #[cold]
    fn enter(&mut self) {
        if !self.is_protected && self.is_starving() {
            M::step("close the gate");
            // Others may have to wait for this worker, and it may have to wait for the gate.
            self.rest();
            self.engine.epochs.close();
            self.is_protected = true;
        }
        if self.is_protected {
            self.rest();
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
            self.rest();
            M::step("wait at the gate");
            let mut spin = Spin::<M>::new();
            while self.engine.epochs.is_closed() {
                spin.wait();
            }
        }
    }

    /// Waits until no other worker runs a transaction that can commit. A worker that was seen offline begins no other, as the gate is closed.
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

    /// Lets others begin again, if the worker's transaction was protected.
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

    /// Nobody has to wait for the worker.
    fn rest(&mut self) {
        if let Some(log) = &mut self.cx.writes.log {
            log.journal.rest();
        }
        self.engine.protocol.rest(&mut self.cx, &mut self.local);
        self.take_replaced();
        self.engine.epochs.offline(self.cx.worker);
        self.seen_epoch = Epochs::<M>::NOT_SEEN;
    }

    #[cold]
    fn maintain(&mut self) {
        self.since_maintenance = 0;
        M::enter(Phase::of(Operation::Collection, Activity::Manager));
        self.engine.epochs.maybe_advance(M::now());
        let epoch = self.engine.epochs.current();
        // Once an epoch also without garbage of its own: workers that have ended may have left some.
        if !self.garbage.is_empty() || self.collected_in != epoch {
            self.collected_in = epoch;
            self.collect();
        }
        M::enter(Phase::BODY);
    }

    /// Takes old tombstones out of the indexes, and reuses the memory of those taken out before.
    ///
    /// It does nothing while another worker's transaction is protected: a record that leaves its index may be a conflict to that transaction.
    #[cold]
    pub fn collect(&mut self) {
        if self.engine.epochs.is_closed() && !self.is_protected {
            return;
        }
        if let Some(orphan) = self.engine.orphans.lock().pop() {
            self.garbage.tombstones.extend(orphan.tombstones);
            self.garbage.unlinked.extend(orphan.unlinked);
            self.garbage.versions.extend(orphan.versions);
        }
        let at_once = COLLECT_AT_ONCE + 2 * std::mem::take(&mut self.garbage.queued);
        // Looking for the oldest epoch reads a line of every worker's: not for nothing.
        if !self.garbage.may_be_due(self.engine.epochs.current()) {
            return;
        }
        let oldest = self.engine.epochs.oldest();
        // Who finds nothing where something was deleted is not told to wait.
        if let Some(log) = self.cx.writes.log.as_mut().filter(|_| !self.garbage.tombstones.is_empty())
            && self.engine.journals.as_ref().is_some_and(|journals| journals.holds_rows())
        {
            log.journal.rest();
        }
        for _ in 0..at_once {
            let Some(corpse) = Garbage::pop_older(&mut self.garbage.tombstones, oldest) else { break };
            self.unlink(corpse, oldest);
        }
        while let Some(corpse) = Garbage::pop_older(&mut self.garbage.unlinked, oldest) {
            self.release_of(corpse.table, corpse.record);
        }
        while let Some(version) = Garbage::pop_older(&mut self.garbage.versions, oldest) {
            {
                let tables = self.engine.tables.read();
                let table = tables[version.table as usize].core();
                table.poison(version.record);
                self.cx.versions.gone(table.slabs().slot_bytes());
            }
            self.release_of(version.table, version.record);
        }
        trim_queue(&mut self.garbage.tombstones);
        trim_queue(&mut self.garbage.unlinked);
        trim_queue(&mut self.garbage.versions);
    }

    fn unlink(&mut self, mut corpse: Corpse<M>, oldest: u64) {
        let tables = self.engine.tables.read();
        let table = &tables[corpse.table as usize];
        let at = At { table: table.core(), record: corpse.record };
        let tombstone = Tombstone { at, oldest, fault: self.engine.config.fault };
        match self.engine.protocol.unlink(tombstone) {
            Unlink::Alive => {}
            Unlink::Busy => {
                // Behind the others, which are older, so that the queue stays in the order of its epochs.
                corpse.epoch = self.engine.epochs.current();
                self.garbage.tombstones.push_back(corpse);
            }
            Unlink::Marked { time } => {
                debug_assert!(tombstone.stamp_is_over(), "the key's next record would get smaller stamps");
                table.core().note_unlinked(corpse.record);
                let removed = table.remove(&corpse.key, corpse.record, time);
                debug_assert!(removed, "a marked tombstone stands under its key");
                if self.engine.config.fault == Some(Fault::ReuseEarly) {
                    drop(tables);
                    return self.release_of(corpse.table, corpse.record);
                }
                corpse.epoch = self.engine.epochs.current();
                self.garbage.unlinked.push_back(corpse);
            }
        }
    }

    fn release_of(&mut self, table: u32, record: crate::Record<M>) {
        let tables = self.engine.tables.read();
        let slabs = tables[table as usize].core().slabs();
        let arena = self.cx.arenas.of(table, slabs);
        arena.release(record);
        slabs.share(arena);
    }

    /// A record with the protocol's initial metadata, known to nobody else.
    pub(crate) fn allocate(&mut self, table: &TableCore<M>, initial: Initial) -> Result<Record<M>, OutOfMemory> {
        let record = table.slabs().allocate(self.cx.arenas.of(table.id(), table.slabs())).ok_or(OutOfMemory)?;
        self.engine.protocol.init(table.cells(record, Groups::ALL), initial);
        table.clear_log_words(record);
        Ok(record)
    }

    /// Takes back a record that nobody else has seen.
    pub(crate) fn release(&mut self, table: &TableCore<M>, record: Record<M>) {
        self.cx.arenas.of(table.id(), table.slabs()).release(record);
    }

    pub(crate) fn finish_commit(&mut self) {
        self.commits += 1;
        self.queue_garbage(true);
        if let Some(mut log) = self.cx.writes.log.take() {
            let writes = &mut self.cx.writes;
            self.committed_in = writes.installed_in().unwrap_or_else(|| self.engine.epochs.current());
            log.journal.committed(self.committed_in, writes);
            writes.log = Some(log);
        }
        if let Some(recording) = &mut self.recording {
            recording.commit(self.cx.worker, &self.cx.writes);
        }
        self.clear();
        self.end_protection();
    }

    pub(crate) fn finish_abort(&mut self, reason: AbortReason) {
        self.aborts.add(reason);
        self.queue_garbage(false);
        if let Some(log) = &mut self.cx.writes.log {
            log.journal.aborted(reason);
        }
        if let Some(recording) = &mut self.recording {
            recording.running.clear();
        }
        self.clear();
        if self.protect_after > 0 {
            self.count_conflict(reason.is_conflict());
        }
    }

    /// The transaction has aborted, by a conflict or because it was given up.
    fn count_conflict(&mut self, is_conflict: bool) {
        if !is_conflict || self.commits != self.commits_before {
            (self.conflicts, self.commits_before) = (0, self.commits);
        }
        if !is_conflict {
            return self.end_protection();
        }
        self.conflicts = self.conflicts.saturating_add(1);
        if self.is_starving() {
            // The next try begins where the gate is closed.
            self.seen_epoch = Epochs::<M>::NOT_SEEN;
        }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.cx.writes.clear();
        self.cx.nodes.clear();
        self.take_replaced();
    }

    #[inline(always)]
    fn take_replaced(&mut self) {
        for &(version, epoch) in &self.cx.replaced {
            let (record, table) = (version.record, version.table().id());
            self.garbage.versions.push_back(Corpse { record, table, key: KeyWords::default(), epoch });
        }
        self.cx.replaced.clear();
    }

    /// Queues the tombstones that this transaction has made: what it deleted, and placeholders that got no row.
    #[inline(always)]
    fn queue_garbage(&mut self, committed: bool) {
        if !committed && self.engine.config.fault == Some(Fault::ForgetAborted) {
            return;
        }
        for position in 0..self.cx.writes.len() {
            let write = &self.cx.writes.entries()[position];
            let made_tombstone =
                if write.fresh { !committed || write.kind == WriteKind::Nothing } else { committed && write.collect };
            if made_tombstone {
                self.queue(position);
            }
        }
    }

    #[cold]
    fn queue(&mut self, position: usize) {
        let write = &self.cx.writes.entries()[position];
        let corpse = Corpse {
            record: write.record,
            table: write.table().id(),
            key: key_of(self.cx.writes.key(position)),
            epoch: self.engine.epochs.current(),
        };
        self.garbage.tombstones.push_back(corpse);
        self.garbage.queued += 1;
    }
}

impl<P: Control<M>, M: Machine> Drop for Worker<P, M> {
    fn drop(&mut self) {
        self.go_offline();
        let tables = self.engine.tables.read();
        for (table, arena) in self.cx.arenas.take_all() {
            tables[table].core().slabs().park(arena);
        }
        if !self.garbage.is_empty() {
            self.engine.orphans.lock().push(std::mem::take(&mut self.garbage));
        }
        self.engine.used_numbers.lock().insert(self.cx.worker, self.next_txn);
        self.engine.epochs.unregister(self.cx.worker);
    }
}

/// Fills tables before any transaction runs.
#[derive(Debug)]
pub struct Loader<P: Control<M>, M: Machine>(Worker<P, M>);

impl<P: Control<M>, M: Machine> Loader<P, M> {
    /// Adds a row, which `fill` writes (the words come as zeros); `false` if the key is there already.
    ///
    /// # Errors
    /// The machine has no more memory.
    pub fn insert<K: Key>(
        &mut self,
        table: &Table<M, K>,
        key: K,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<bool, OutOfMemory> {
        assert!(self.0.engine.owns(table), "table {} is of another engine", table.name());
        let place = |record| matches!(table.insert(&mut table.run(), key, record), Placed::New(_));
        self.put(table, &key.to_words(), place, fill)
    }

    /// The same, in the table of this number, under a key by its words: for rows of which it is not known at compile time what they are.
    ///
    /// # Errors
    /// As of [`Loader::insert`].
    pub fn insert_words(&mut self, table: u32, key: &KeyWords, row: &[u64]) -> Result<bool, OutOfMemory> {
        let table = Arc::clone(&self.0.engine.tables.read()[table as usize]);
        self.put(table.core(), key, |record| table.insert(key, record), |words| words.copy_from_slice(row))
    }

    fn put(
        &mut self,
        table: &TableCore<M>,
        key: &KeyWords,
        place: impl FnOnce(Record<M>) -> bool,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<bool, OutOfMemory> {
        let record = self.0.allocate(table, Initial::Loaded)?;
        let words = table.row_words();
        let row = &mut self.0.cx.scratch;
        row.clear();
        row.resize(words.max(16), 0);
        fill(&mut row[..words]);
        M::copy_in(&table.payload(record)[..words], &row[..words]);
        let stamp = if self.0.cx.writes.log.is_some() { self.enter() << STAMP_SHIFT } else { 0 };
        if stamp > 0 {
            table.check_first_stamp(Stamp(stamp));
        }
        // Nothing is added to it before it was written: the loader's log may be durable later than who does so.
        // Relaxed: the index publishes the record.
        table.stamps(record).for_each(|word| word.store(stamp | UNSURE, Ordering::Relaxed));
        let is_new = place(record);
        if !is_new {
            self.0.release(table, record);
        } else if let Some(log) = &mut self.0.cx.writes.log {
            self.0.committed_in = stamp >> STAMP_SHIFT;
            log.journal.loaded(self.0.committed_in, table.id(), key, &self.0.cx.scratch[..words]);
        }
        Ok(is_new)
    }

    /// The epoch in which rows are loaded now: none ends before what was loaded in it is logged.
    fn enter(&mut self) -> u64 {
        let worker = &mut self.0;
        worker.seen_epoch = worker.engine.epochs.refresh(worker.cx.worker, worker.seen_epoch);
        worker.seen_epoch
    }

    /// The epoch in which the last row was loaded, if the engine logs.
    pub fn loaded_in(&self) -> u64 {
        self.0.committed_in
    }
}
