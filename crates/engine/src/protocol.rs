//! The traits [`Protocol`] and [`NamedProtocol`], which a concurrency-control protocol implements.
//!
//! A protocol never probes an index. The engine does, and hands the protocol one located record at
//! a time ([`Located`]). So batched lookups, scans, misses, repeated lookups of an unlinked record,
//! history and abort accounting are written once, for all protocols.

use std::ops::Range;
use std::ptr::NonNull;

use contend_index::{Change, Leaf, LeafWords};
use contend_machine::Machine;
use contend_model::pieces::{Piece, TypeSet};
use contend_model::{Abort, AbortReason, DeclarationNeeds, Groups, Isolation, Options, Projection};

use crate::cell_copy::Copies;
use crate::config::EngineOptions;
use crate::conflicts::ConflictNote;
use crate::declaration::{Declaration, NamedRange};
use crate::fault::Fault;
use crate::garbage::{Garbage, RetiredVersion};
use crate::layout::TableCore;
use crate::pieces::{PieceBegin, PieceOutcome};
use crate::record::{Cell, Cells, Record};
use crate::sets::{NodeSet, WriteSet};
use crate::slab::Arenas;

/// The facts about a protocol that a list of protocols shows.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// The name by which a user chooses the protocol.
    pub name: &'static str,
    /// One line that says what the protocol does.
    pub summary: &'static str,
    /// The publication: authors, title, venue, year.
    pub paper: &'static str,
    /// The isolation level that the protocol promises.
    pub isolation: Isolation,
    /// The declaration that the protocol needs from a transaction before it begins. It assumes the
    /// worst of a transaction that declares nothing.
    pub needs: DeclarationNeeds,
}

/// The origin of a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrigin {
    /// The record holds a committed row from the start: it was loaded before any transaction.
    Loaded,
    /// The record is a placeholder ([`Write::fresh`](crate::sets::Write::fresh)), absent until the
    /// transaction that inserts it commits.
    Inserting,
}

/// The kind of a write, as the protocol sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The groups are replaced, whatever they held.
    Blind,
    /// The groups are read, and then changed.
    ReadModifyWrite,
    /// The groups are changed at commit, by updates. The transaction doesn't see their values.
    CommitTimeUpdate,
    /// The record is read, and becomes absent.
    Delete,
    /// The record is absent, as this transaction has just read, and gets a row.
    Insert,
}

/// The state of a located record, as an access found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// There is a row. A read has copied the columns that it asked for to [`Context::row_buffer`].
    Row,
    /// The record is absent. The protocol has observed this as it would have observed a row.
    Absent,
    /// The record has left the index: the key must be looked up again. Nothing was observed, and no
    /// lock is held.
    Unlinked,
}

/// A located record.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a, M: Machine> {
    /// The record's table.
    pub table: &'a TableCore<M>,
    /// The record itself.
    pub record: Record<M>,
}

impl<M: Machine> Located<'_, M> {
    /// Returns the cell that contains these groups, if there is only one. That is the usual case,
    /// and deserves a path of its own.
    #[inline(always)]
    pub fn only_cell(self, groups: Groups) -> Option<Cell<M>> {
        if self.table.cell_count() == 1 {
            return Some(self.record.first_cell());
        }
        let mut cells = self.cells(groups);
        match (cells.next(), cells.next()) {
            (only, None) => only,
            _ => None,
        }
    }

    /// Returns the cells that contain these groups.
    #[inline(always)]
    pub fn cells(self, groups: Groups) -> Cells<M> {
        self.table.cells(self.record, groups)
    }
}

/// A tombstone that the engine wants to take out of its index.
#[derive(Clone, Copy, Debug)]
pub struct Tombstone<'a, M: Machine> {
    pub(crate) at: Located<'a, M>,
    pub(crate) oldest: u64,
    pub(crate) fault: Option<Fault>,
}

impl<M: Machine> Tombstone<'_, M> {
    /// Returns all cells of the record.
    pub fn cells(self) -> Cells<M> {
        self.at.cells(Groups::ALL)
    }

    /// Returns an epoch before which no running transaction began.
    pub fn oldest(self) -> u64 {
        self.oldest
    }

    /// Returns the tombstone as it would look `epochs` epochs later: for deliberate faults of
    /// protocols.
    pub fn aged(self, epochs: u64) -> Self {
        Tombstone { oldest: self.oldest.saturating_add(epochs), ..self }
    }

    /// Whether `epoch`, in which the record was deleted, is over: every transaction that inserts
    /// the key anew commits in a later epoch.
    pub fn is_over(self, epoch: u64) -> bool {
        epoch < self.oldest || self.fault == Some(Fault::UnlinkYoung)
    }

    /// Whether the epoch of the deletion's write counter is over, so that the next record of the
    /// key gets larger write counters ([`crate::commit_sink`]). Always true if writes are not
    /// counted. The answer stays valid as long as the protocol keeps writers of the record away.
    pub fn counter_epoch_is_over(self) -> bool {
        self.is_over(self.at.table.newest_counter(self.at.record).epoch())
    }
}

/// The answer of a protocol that was asked to unlink a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlinkOutcome {
    /// The record is marked: from now on every access answers [`RecordState::Unlinked`]. The engine
    /// takes it out of the index.
    Marked {
        /// The engine raises the word of the record's leaf ([`Leaf::word`]) to this timestamp
        /// before the removal. 0 for protocols that don't use that word.
        time: u64,
    },
    /// The record has a row again. It is queued again when it is deleted again.
    Alive,
    /// A transaction works on the record, or the tombstone is too young. The engine asks again two
    /// epochs later.
    Busy,
}

/// The most words of a row whose copy is no phase of its own: a line. There is always room for it
/// in [`Context::row_buffer`].
pub(crate) const SHORT_ROW: usize = 8;

/// The state of the running transaction that a worker and its protocol share.
#[derive(Debug)]
pub struct Context<M: Machine> {
    /// The worker's number in its engine, from 0; no two workers that live have the same.
    pub worker: usize,
    /// The rows that the transaction will write.
    pub writes: WriteSet<M>,
    /// The leaves of indexes that the transaction depends on.
    pub nodes: NodeSet<M>,
    /// The buffer that rows are copied to when they are read. It has room for a line at least.
    pub row_buffer: Vec<u64>,
    /// The transaction's declaration.
    pub declaration: Declaration<M>,
    /// The epoch that the worker was seen in when the transaction began; see [`Context::began_in`].
    pub(crate) began_in: u64,
    /// The engine's epochs, for protocols that order commits by them.
    pub(crate) epoch: *const crate::epoch::Epochs<M>,
    /// The worker's share of each table's memory.
    pub(crate) arenas: Arenas<M>,
    /// The worker's copies of cells.
    pub(crate) copies: Copies<M>,
    /// Records and old versions whose memory waits for reuse.
    pub(crate) garbage: Garbage<M>,
    /// Counts of the old versions that this worker has made and collected.
    pub versions: VersionCounts,
    /// The place of the transaction's conflict, once it has met one.
    pub(crate) conflict: ConflictNote,
}

/// Counts of old versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// The number of old versions made: copies of overwritten versions.
    pub made: u64,
    /// The number of these that took memory which had been a record or an old version before.
    pub reused: u64,
    /// The number of old versions whose memory was given back for reuse.
    pub collected: u64,
    /// The number of these that were given back while a transaction ran that had begun before they
    /// were replaced.
    pub collected_early: u64,
    /// The bytes of the old versions made, and of those collected.
    pub(crate) bytes: [u64; 2],
}

impl VersionCounts {
    /// Returns the number of old versions that exist.
    pub fn alive(&self) -> u64 {
        self.made.saturating_sub(self.collected)
    }

    /// Returns the bytes of the old versions that exist.
    pub fn alive_bytes(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1])
    }

    /// Adds the counts of another worker. A version may be collected by another worker than the one
    /// that made it, so only sums over all workers are meaningful.
    pub fn merge(&mut self, other: &VersionCounts) {
        self.made += other.made;
        self.reused += other.reused;
        self.collected += other.collected;
        self.collected_early += other.collected_early;
        self.bytes = [0, 1].map(|of| self.bytes[of] + other.bytes[of]);
    }

    #[inline(always)]
    pub(crate) fn gone(&mut self, bytes: usize) {
        self.collected += 1;
        self.bytes[1] += bytes as u64;
    }
}

/// An old version: a copy of a record's former contents. The copy is a record of its own, in no
/// index.
#[derive(Clone, Copy, Debug)]
pub struct OldVersion<M: Machine> {
    pub(crate) table: NonNull<TableCore<M>>,
    pub(crate) record: Record<M>,
}

// SAFETY: the table lives as long as the engine, which the version's worker keeps. A `TableCore` is
// `Sync`.
unsafe impl<M: Machine> Send for OldVersion<M> {}

impl<M: Machine> OldVersion<M> {
    pub(crate) fn table(&self) -> &TableCore<M> {
        // SAFETY: the table lives as long as the engine, which the version's worker keeps. A
        // `TableCore` is `Sync`.
        unsafe { self.table.as_ref() }
    }

    /// Returns the copy.
    #[inline(always)]
    pub fn record(&self) -> Record<M> {
        self.record
    }

    /// Returns the cells of the copy that contain these groups.
    pub fn cells(&self, groups: Groups) -> Cells<M> {
        self.table().cells(self.record, groups)
    }
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`.
unsafe impl<M: Machine> Send for Context<M> {}

impl<M: Machine> Context<M> {
    /// Returns the global epoch.
    #[inline(always)]
    pub fn current_epoch(&self) -> u64 {
        // SAFETY: the worker that owns this context keeps the engine, and so the epochs.
        unsafe { &*self.epoch }.current()
    }

    /// Returns the global epoch by a load that has its place in the total order of commit fences
    /// ([`current_in_order`](crate::epoch::Epochs::current_in_order)). Protocols that order commits
    /// by their epochs need it.
    #[inline(always)]
    pub fn epoch_in_order(&self) -> u64 {
        // SAFETY: as in `current_epoch`.
        unsafe { &*self.epoch }.current_in_order()
    }

    /// Returns the epoch that the worker was seen in when the transaction began. While the
    /// transaction runs, the global epoch is this one or the next. No other running transaction can
    /// commit in an epoch before the previous one.
    #[inline(always)]
    pub fn began_in(&self) -> u64 {
        self.began_in
    }

    /// Copies the cells that the entry at `position` writes, as they stand, to memory of their own,
    /// and returns the copy: an old version, in no index. The protocol sets the copy's metadata.
    /// The other cells of the copy hold anything.
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub fn copy_version(&mut self, position: usize) -> Result<OldVersion<M>, Abort> {
        let version = self.new_version(position)?;
        let (record, table) = (self.writes.entries()[position].record, version.table());
        let (payload, target) = (table.payload(record), table.payload(version.record));
        if self.row_buffer.len() < payload.len() {
            self.grow_row_buffer(payload.len());
        }
        if table.cell_count() == 1 {
            let buffer = &mut self.row_buffer[..payload.len()];
            M::copy_out(payload, buffer);
            M::copy_in(target, buffer);
        } else {
            self.copy_cells(position, target);
        }
        Ok(version)
    }

    /// Copies the cells that the entry at `position` writes. A reader of an old version of a cell
    /// reads only that cell's words.
    #[inline(never)]
    fn copy_cells(&mut self, position: usize, target: &[M::U64]) {
        let write = &self.writes.entries()[position];
        let table = write.table();
        let payload = table.payload(write.record);
        let mut copy_words = |words: Range<usize>| {
            M::copy_out(&payload[words.clone()], &mut self.row_buffer[words.clone()]);
            M::copy_in(&target[words.clone()], &self.row_buffer[words]);
        };
        for cell in write.cell_numbers() {
            copy_words(table.cell_words(cell));
            if table.records_history() {
                copy_words(table.signature(cell)..table.signature(cell) + 1);
            }
        }
    }

    /// Returns an old version of the record of the entry at `position`, in no index, with arbitrary
    /// contents.
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub fn new_version(&mut self, position: usize) -> Result<OldVersion<M>, Abort> {
        let table = self.writes.entries()[position].table();
        let arena = self.arenas.of(table.id(), table.slabs());
        self.versions.reused += u64::from(arena.has_free());
        let copy = table.slabs().allocate(arena).ok_or(Abort::new(AbortReason::OutOfMemory))?;
        self.versions.made += 1;
        self.versions.bytes[0] += table.slabs().slot_bytes() as u64;
        Ok(OldVersion { table: NonNull::from(table), record: copy })
    }

    /// Retires a version that is of no interest to transactions that begin two epochs after
    /// `epoch`, or later. It is reused when all earlier transactions have ended.
    pub fn retire_version(&mut self, version: OldVersion<M>, epoch: u64) {
        self.garbage.versions.push_back(RetiredVersion { version, epoch });
    }

    /// Gives back the memory of a version that no transaction can reach any more.
    #[inline(always)]
    pub fn reuse_version(&mut self, version: OldVersion<M>) {
        let table = version.table();
        table.poison(version.record);
        self.versions.gone(table.slabs().slot_bytes());
        let arena = self.arenas.of(table.id(), table.slabs());
        arena.release(version.record);
        table.slabs().share(arena);
    }

    /// Copies a cell's part of a row to [`Context::row_buffer`], and the signature of its writer if
    /// history is recorded.
    pub fn copy_cell(&mut self, at: Located<'_, M>, number: usize) {
        let (payload, words) = (at.table.payload(at.record), at.table.cell_words(number));
        if self.row_buffer.len() < payload.len() {
            self.row_buffer.resize(payload.len(), 0);
        }
        M::copy_out(&payload[words.clone()], &mut self.row_buffer[words]);
        if at.table.records_history() {
            let signature = at.table.signature(number);
            M::copy_out(&payload[signature..=signature], &mut self.row_buffer[signature..=signature]);
        }
    }
}

/// A concurrency-control protocol that can be listed, and created from options: a type, in a file
/// of its own.
pub trait NamedProtocol<M: Machine>: Protocol<M> {
    /// Name, summary, paper, isolation and needs of the protocol.
    const INFO: ProtocolInfo;
    /// Whether transactions may see uncommitted writes of others. Then a log can't make them wait
    /// until these writes are durable.
    const SHOWS_UNCOMMITTED: bool = false;
    /// The reason why the protocol does not go with a log, as a part of a sentence; `None` if it
    /// does.
    const REFUSES_LOG: Option<&'static str> = None;
    /// The options with which a transaction can read a snapshot ([`Protocol::reads_snapshots`]);
    /// `None` if it can't with any options.
    const SNAPSHOTS: Option<&'static str> = None;
    /// The setting with which the same input gives the same final state, with any number of threads
    /// and in any interleaving; `None` if no setting does. The input is what each worker executes,
    /// by the worker's number. All workers must have been made before the first transaction, and
    /// none may go offline before its last one; no transaction is protected
    /// ([`EngineOptions::protect_after`](crate::EngineOptions::protect_after)), and no log holds
    /// rows.
    const DETERMINISTIC: Option<&'static str> = None;
    /// The protocol's options.
    type Options: Options;

    /// Returns the default options, but with snapshots if the protocol can have any.
    fn options_with_snapshots() -> Self::Options {
        Self::Options::default()
    }

    /// Creates the protocol's shared state.
    fn new(options: Self::Options) -> Self;
}

/// The operations that a protocol implements, and that the engine calls.
///
/// For each transaction the engine calls `begin`, then any of `read`, `write`, `rewrite`,
/// `placeholder_inserted` and `observe_leaf`, and then `commit`. It calls `abort` if the
/// transaction's code gave up, or if any of these methods failed, `commit` included. A method that
/// fails may leave locks held: `abort` releases them. After either, the engine clears the write set
/// and the node set.
///
/// The engine keeps the write set, and answers reads of rows that the transaction itself wrote. So
/// it asks a protocol only about cells that the transaction has not touched before. A protocol must
/// handle three exceptions: a cell may be read more than once, written after it was read, and read
/// after a write of [`WriteMode::Blind`] or [`WriteMode::CommitTimeUpdate`]. The commit must fail
/// unless all observations of a cell were of one version.
pub trait Protocol<M: Machine>: Sized + Send + Sync + 'static {
    /// The state of one worker, such as its read set. It lives as long as the worker.
    type WorkerState: Send + 'static;

    /// Name, summary, paper, isolation and needs of the protocol.
    fn info(&self) -> ProtocolInfo;

    /// Returns the number of metadata words of a cell, 1 or more.
    fn meta_words(&self) -> usize {
        1
    }

    /// Returns what the protocol keeps in the words of leaves ([`Leaf::word`]).
    fn leaf_words(&self) -> LeafWords {
        LeafWords::Times
    }

    /// Tells the protocol that workers have numbers below `workers`, and partitions numbers below
    /// `partitions`. The engine calls this once, before anything else.
    fn prepare(&mut self, workers: usize, partitions: usize) {
        let _ = (workers, partitions);
    }

    /// Whether the protocol uses the declarations of transactions ([`Context::declaration`]).
    fn wants_declarations(&self) -> bool {
        self.info().needs != DeclarationNeeds::Nothing
    }

    /// Whether a transaction that declares itself as read-only sees a snapshot, with the options
    /// that the protocol has, whatever its type is. Such a transaction never aborts. No other
    /// transaction waits for it or aborts because of it. It waits only for commits that are under
    /// way.
    fn reads_snapshots(&self) -> bool {
        false
    }

    /// Whether the snapshot of the running transaction contains everything that its worker has
    /// committed. Called after `begin` of a transaction that reads a snapshot.
    fn sees_own_commits(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        let _ = (cx, local);
        true
    }

    /// Whether the running transaction can't commit any more, because another one has aborted whose
    /// uncommitted writes it has seen. If the application cancels such a transaction, the reason is
    /// [`AbortReason::Cascaded`], and the transaction is tried again: what made the application
    /// cancel may never have been. The engine asks only protocols that treat pieces by themselves.
    fn is_doomed(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        let _ = (cx, local);
        false
    }

    /// Whether the protocol gives its writes of a row ordered numbers
    /// ([`crate::sets::WriteSet::set_write_counter`]), so that a log need not count the writes
    /// ([`crate::commit_sink`]).
    fn provides_write_counters(&self) -> bool {
        false
    }

    /// Whether the protocol may apply updates that commute ([`crate::Update::commutes`]) in another
    /// order than that of their transactions. A recorded history then marks them as commuting, and
    /// doesn't say which version they were applied to.
    fn reorders_updates(&self) -> bool {
        false
    }

    /// Creates the state of a worker.
    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Sets the metadata of a new record, which no other worker sees yet. `cells` are all its
    /// cells.
    fn init(&self, cells: Cells<M>, initial: RecordOrigin);

    /// Begins a transaction. The write set and the node set are empty, and [`Context::declaration`]
    /// holds the transaction's declaration.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    /// Reads a record's cells. Copies `columns` to [`Context::row_buffer`] by
    /// [`Context::copy_row`], also if the record is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort>;

    /// Reads a record's cells, as [`Protocol::read`] does, for a scan that has come by the record.
    /// The scan has observed the leaf before, so that it depends on the leaf's set of keys.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn read_entry(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        self.read(cx, local, at, columns)
    }

    /// Prepares a write of these groups, or of the whole record. The modes differ in what they
    /// read:
    ///
    /// - [`WriteMode::ReadModifyWrite`] and [`WriteMode::Delete`] also read all these groups.
    /// - [`WriteMode::Insert`] demands an absent record.
    /// - For all others an absent record is a miss. It is observed as one, and is not written.
    /// - [`WriteMode::Blind`] and [`WriteMode::CommitTimeUpdate`] may leave it to the commit to
    ///   find the record absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort>;

    /// Notes that the engine has put a new record into the index and into the write set. The record
    /// was initialised by `init` with [`RecordOrigin::Inserting`]. `change` describes the insert's
    /// change of the leaf.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort>;

    /// Notes that the transaction depends on the set of keys of this leaf at this version: a lookup
    /// missed there, or a scan passed it. The leaf is of the index of table number `table`.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort>;

    /// Whether the protocol wants to know which keys a transaction has read
    /// ([`Protocol::observe_range`]).
    fn observes_ranges(&self) -> bool {
        false
    }

    /// Notes that the transaction has read all keys from `low` to `high`, both included, in the
    /// table number `table`: a scan has passed them, or `low` is `high`, and it had no row. Each
    /// key is its own words, without the zeros behind them. So the transaction depends on there
    /// being no other rows. Unlike the leaves of an index ([`Protocol::observe_leaf`]), the range
    /// does not depend on what other transactions have done to the index meanwhile.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn observe_range(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        low: &[u64],
        high: &[u64],
    ) -> Result<(), Abort> {
        let _ = (cx, local, table, low, high);
        Ok(())
    }

    /// Notes that an insert is going to give a row to an absent record, which it has found in this
    /// leaf of the index of table number `table`, at this version. The record may be the
    /// placeholder of another insert, younger than the gaps that readers have observed.
    fn absent_found(&self, local: &mut Self::WorkerState, table: u32, leaf: Leaf<M>, version: u64) {
        let _ = (local, table, leaf, version);
    }

    /// Notes that the transaction is about to change the entry at this position of the write set
    /// once more, or to read or write more of its record. This concerns only protocols that expose
    /// writes before the commit, or take back the writes of a piece.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn rewrite(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, position: usize) -> Result<(), Abort> {
        let _ = (cx, local, position);
        Ok(())
    }

    /// Whether the protocol treats the pieces of a transaction by themselves
    /// ([`Protocol::declare`], [`Protocol::begin_piece`], [`Protocol::end_piece`]). Otherwise the
    /// engine calls none of these.
    fn uses_pieces(&self) -> bool {
        false
    }

    /// Takes the declarations of all types of transactions, before the first transaction, or for
    /// others later. The tables exist, and no transaction runs that can commit
    /// ([`Engine::declare`](crate::Engine::declare)). Returns the number of epochs that must pass
    /// before the first transaction of these types begins.
    ///
    /// # Errors
    /// The declarations are not valid. One sentence says why. Then those before stay in force.
    fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
        let _ = (types, options);
        Ok(0)
    }

    /// Begins a piece.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn begin_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceBegin, Abort> {
        let _ = (cx, local, piece);
        Ok(PieceBegin::Inside)
    }

    /// Ends a piece, whose body has succeeded. The protocol may show its writes to others now, or
    /// commit them for good. A protocol that commits them gives [`NamedProtocol::REFUSES_LOG`] a
    /// reason, and applies updates that commute as [`Protocol::reorders_updates`] says.
    ///
    /// # Errors
    /// The piece has met a conflict.
    fn end_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceOutcome, Abort> {
        let _ = (cx, local, piece);
        Ok(PieceOutcome::Open)
    }

    /// Gives up the running step, which began by [`PieceBegin::Step`] and has met a conflict for
    /// this reason. Returns whether the piece may run again. Then the protocol has released what
    /// the step held, and the engine drops the step's writes. Otherwise the protocol has done
    /// nothing, and the transaction aborts.
    fn undo_piece(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) -> bool {
        let _ = (cx, local, reason);
        false
    }

    /// Whether the protocol lets the rest of a transaction take effect later
    /// ([`contend_model::Txn::later`]). Otherwise the engine calls neither
    /// [`Protocol::begin_later`] nor [`Protocol::await_inserts`].
    fn defers(&self) -> bool {
        false
    }

    /// Begins the later part of the transaction, whose rows are the declared ones from now on
    /// ([`Declaration::rows`], [`Declaration::insert_ranges`]). Now the transaction is sure to
    /// commit, and may install writes ([`Write::stays`](crate::sets::Write::stays)). It aborts
    /// only if its code has broken its promise, and the engine tells the caller.
    ///
    /// # Errors
    /// The transaction has to abort. It has not been decided.
    fn begin_later(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let _ = (cx, local);
        Ok(())
    }

    /// Waits until no earlier transaction will insert into a range of keys any more. The engine
    /// calls this before a scan, an insert and a delete, and after it has found no row under a key.
    /// Returns whether the rows of the range may have changed since the engine last looked.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn await_inserts(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        range: NamedRange,
    ) -> Result<bool, Abort> {
        let _ = (cx, local, range);
        Ok(false)
    }

    /// Commits the transaction. It applies the updates by [`WriteSet::apply_updates`], which may
    /// panic, and then installs each write by [`WriteSet::install`].
    ///
    /// # Errors
    /// The transaction has to abort. Nothing was installed, unless the protocol shows writes before
    /// the commit: then `abort` takes back what it has shown.
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    /// Releases all locks and marks of the transaction. After a conflict
    /// ([`AbortReason::is_conflict`]) the worker's next transaction is most likely another try of
    /// the same one.
    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason);

    /// Notes that the worker pauses or ends. The protocol gives away what it keeps for the worker,
    /// such as a batch of timestamps or of old versions, if other workers could wait for it.
    fn go_offline(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) {
        let _ = (cx, local);
    }

    /// Marks a tombstone as unlinked, if it still is one, so that it can leave the index. The
    /// engine queued it two epochs before [`Tombstone::oldest`], but it may have got a row since
    /// and been deleted again. A tombstone whose epoch is not over must stay
    /// ([`Tombstone::counter_epoch_is_over`]): then the answer is [`UnlinkOutcome::Busy`].
    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome;

    /// Whether the record has no row. The engine asks only while no transaction runs.
    fn is_absent(&self, record: Record<M>) -> bool;

    /// Returns the number of old versions of the record's first cell, as far as it is known. The
    /// engine asks only while no transaction runs.
    fn older_versions(&self, record: Record<M>) -> u64 {
        let _ = record;
        0
    }
}
