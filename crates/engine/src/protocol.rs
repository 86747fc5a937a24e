//! The trait [`NamedProtocol`]: what a concurrency-control protocol has to say.
//!
//! A protocol never probes an index. The engine does, and hands it one located record at a time
//! ([`Located`]); so batched lookups, scans, misses, repeated lookups of an unlinked record,
//! history and abort accounting are written once, for all protocols.

use std::ops::Range;
use std::ptr::NonNull;

use contend_index::{Change, Leaf};
use contend_machine::{Activity, Machine};
use contend_model::{Abort, AbortReason, DeclarationNeeds, Groups, Isolation, Options, Projection, Span};

use crate::declaration::Declaration;
use crate::fault::Fault;
use crate::layout::TableCore;
use crate::record::{Cell, Cells, Record};
use crate::sets::{NodeSet, WriteSet};
use crate::slab::Arenas;

/// A protocol in a list.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line of meaning.
    pub summary: &'static str,
    /// Where it was published: authors, title, venue, year.
    pub paper: &'static str,
    /// What it promises.
    pub isolation: Isolation,
    /// What it has to know of a transaction before it begins. Of one that says nothing it assumes
    /// the worst.
    pub needs: DeclarationNeeds,
}

/// How a record comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrigin {
    /// It holds a committed row from the start: it was loaded before any transaction.
    Loaded,
    /// It is a placeholder, absent until the transaction that inserts it commits.
    /// [`Write::fresh`](crate::sets::Write::fresh).
    Inserting,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The groups are replaced; what they were is of no interest.
    Blind,
    /// The groups are read, and changed.
    ReadModifyWrite,
    /// The groups are changed at commit, by updates that are not told what they were.
    CommitTimeUpdate,
    /// The record is read, and made absent.
    Delete,
    /// The record is absent (this transaction has just read that) and is to get a row.
    Insert,
}

/// What an access of a located record came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// There is a row. What was to be read of it is in [`Context::row_buffer`].
    Row,
    /// The record is absent. This was observed like a row would be.
    Absent,
    /// The record is out of the index: look the key up again. Nothing was observed, nothing is
    /// held.
    Unlinked,
}

/// A located record.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a, M: Machine> {
    /// Its table.
    pub table: &'a TableCore<M>,
    /// The record itself.
    pub record: Record<M>,
}

impl<M: Machine> Located<'_, M> {
    /// The cell in which these groups are, if it is only one: what is most often asked about, and
    /// worth a path of its own.
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

    /// The cells in which these groups are.
    #[inline(always)]
    pub fn cells(self, groups: Groups) -> Cells<M> {
        self.table.cells(self.record, groups)
    }
}

/// A tombstone that is to leave its index.
#[derive(Clone, Copy, Debug)]
pub struct Tombstone<'a, M: Machine> {
    pub(crate) at: Located<'a, M>,
    pub(crate) oldest: u64,
    pub(crate) fault: Option<Fault>,
}

impl<M: Machine> Tombstone<'_, M> {
    /// All cells of the record.
    pub fn cells(self) -> Cells<M> {
        self.at.cells(Groups::ALL)
    }

    /// No transaction runs that began before this epoch.
    pub fn oldest(self) -> u64 {
        self.oldest
    }

    /// Returns the tombstone as it would look `epochs` epochs later: for deliberate faults of
    /// protocols.
    pub fn aged(self, epochs: u64) -> Self {
        Tombstone { oldest: self.oldest.saturating_add(epochs), ..self }
    }

    /// Whether this epoch, in which the record was deleted, is over: every transaction that inserts
    /// the key anew commits in a later one.
    pub fn is_over(self, epoch: u64) -> bool {
        epoch < self.oldest || self.fault == Some(Fault::UnlinkYoung)
    }

    /// Whether the epoch of the deletion's write counter is over, so that the next record of the
    /// key gets larger write counters ([`crate::commit_sink`]). It is always true where writes have
    /// no write counters. The answer holds as long as the protocol keeps writers of the record
    /// away.
    pub fn counter_epoch_is_over(self) -> bool {
        self.is_over(self.at.table.newest_counter(self.at.record).epoch())
    }
}

/// What became of a tombstone that was to be unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlinkOutcome {
    /// It is marked; from now on every access answers [`RecordState::Unlinked`]. The engine takes
    /// it out of the index.
    Marked {
        /// What its leaf's word is raised to before ([`Leaf::word`]): 0 for protocols that don't
        /// use it.
        time: u64,
    },
    /// It has a row again, and needs no collecting until it is deleted again.
    Alive,
    /// A transaction works on it, or it is too young: it is tried again two epochs later.
    Busy,
}

/// What a worker and its protocol share of the running transaction.
#[derive(Debug)]
pub struct Context<M: Machine> {
    /// The worker's number in its engine, from 0.
    pub worker: usize,
    /// What the transaction will write.
    pub writes: WriteSet<M>,
    /// The leaves that the transaction depends on.
    pub nodes: NodeSet<M>,
    /// Where rows that are read are copied to.
    pub row_buffer: Vec<u64>,
    /// What the transaction said before it began.
    pub declaration: Declaration<M>,
    /// The epoch in which the transaction began, or one later: all that commit in an epoch before
    /// the one before it have ended.
    pub(crate) began_in: u64,
    /// The global epoch, for protocols that order commits by it.
    pub(crate) epoch: *const crate::epoch::Epochs<M>,
    /// The worker's share of each table's memory.
    pub(crate) arenas: Arenas<M>,
    /// Versions that were replaced, to be reused, and the epoch that every worker has to be two
    /// past.
    pub(crate) replaced: Vec<(OldVersion<M>, u64)>,
    /// What has become of old versions by this worker.
    pub versions: VersionCounts,
}

/// What has become of old versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Old versions that were made: copies of what was overwritten.
    pub made: u64,
    /// Of these, in memory that had been a record or an old version before.
    pub reused: u64,
    /// Given back, their memory being free to be used again.
    pub collected: u64,
    /// Of these, while a transaction ran that had begun before they were replaced.
    pub collected_early: u64,
    /// Bytes of those that were made, and of those that were collected.
    bytes: [u64; 2],
}

impl VersionCounts {
    /// Old versions that are there.
    pub fn alive(&self) -> u64 {
        self.made.saturating_sub(self.collected)
    }

    /// Bytes of those that are there.
    pub fn alive_bytes(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1])
    }

    /// Adds what has become of others. Versions are collected by other workers than those that made
    /// them.
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

/// A copy of a record as it was: a record of its own, in no index.
#[derive(Clone, Copy, Debug)]
pub struct OldVersion<M: Machine> {
    pub(crate) table: NonNull<TableCore<M>>,
    pub(crate) record: Record<M>,
}

// SAFETY: the table lives as long as the engine, which the worker keeps that has the version, and
// is `Sync`.
unsafe impl<M: Machine> Send for OldVersion<M> {}

impl<M: Machine> OldVersion<M> {
    pub(crate) fn table(&self) -> &TableCore<M> {
        // SAFETY: the table lives as long as the engine, which the worker keeps that has the
        // version.
        unsafe { self.table.as_ref() }
    }

    /// The copy.
    pub fn record(&self) -> Record<M> {
        self.record
    }

    /// Its cells of these groups.
    pub fn cells(&self, groups: Groups) -> Cells<M> {
        self.table().cells(self.record, groups)
    }
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`.
unsafe impl<M: Machine> Send for Context<M> {}

impl<M: Machine> Context<M> {
    /// The global epoch.
    #[inline(always)]
    pub fn current_epoch(&self) -> u64 {
        // SAFETY: the worker that owns this context keeps the engine, and so the epochs.
        unsafe { &*self.epoch }.current()
    }

    /// The global epoch, as [`current_in_order`](crate::epoch::Epochs::current_in_order) loads it:
    /// for commits that are ordered by their epochs.
    #[inline(always)]
    pub fn epoch_in_order(&self) -> u64 {
        // SAFETY: as in `current_epoch`.
        unsafe { &*self.epoch }.current_in_order()
    }

    /// The epoch that the worker was seen in when the transaction began. The global epoch is at
    /// most one later; and no transaction runs any more that could commit in an epoch before the
    /// one before it.
    #[inline(always)]
    pub fn began_in(&self) -> u64 {
        self.began_in
    }

    /// A copy of those cells of a record that the entry at this position writes, as they stand, in
    /// memory of its own: an older version, in no index. Its metadata is for the protocol to set,
    /// and the other cells hold anything.
    ///
    /// # Errors
    /// The machine has no more memory.
    pub fn copy_version(&mut self, position: usize) -> Result<OldVersion<M>, Abort> {
        let write = &self.writes.entries()[position];
        let table = write.table();
        let arena = self.arenas.of(table.id(), table.slabs());
        self.versions.reused += u64::from(arena.has_free());
        let copy = table.slabs().allocate(arena).ok_or(Abort::new(AbortReason::OutOfMemory))?;
        self.versions.made += 1;
        self.versions.bytes[0] += table.slabs().slot_bytes() as u64;
        let payload = table.payload(write.record);
        if self.row_buffer.len() < payload.len() {
            self.row_buffer.resize(payload.len(), 0);
        }
        let target = table.payload(copy);
        let mut copy_words = |words: Range<usize>| {
            M::copy_out(&payload[words.clone()], &mut self.row_buffer[words.clone()]);
            M::copy_in(&target[words.clone()], &self.row_buffer[words]);
        };
        if table.cell_count() == 1 {
            copy_words(0..payload.len());
        } else {
            // Who reads the version of a cell reads that cell's.
            for cell in write.cell_numbers() {
                copy_words(table.cell_words(cell));
                if table.records_history() {
                    copy_words(table.signature(cell)..table.signature(cell) + 1);
                }
            }
        }
        Ok(OldVersion { table: NonNull::from(table), record: copy })
    }

    /// Says that a version is of no interest any more to who begins two epochs after `epoch`, or
    /// later: it is reused when all others have ended.
    pub fn retire_version(&mut self, version: OldVersion<M>, epoch: u64) {
        self.replaced.push((version, epoch));
    }

    /// Reuses a version that nobody can come upon any more.
    #[inline(always)]
    pub fn reuse_version(&mut self, version: OldVersion<M>) {
        let table = version.table();
        table.poison(version.record);
        self.versions.gone(table.slabs().slot_bytes());
        let arena = self.arenas.of(table.id(), table.slabs());
        arena.release(version.record);
        table.slabs().share(arena);
    }

    /// Copies a cell's part of a row to [`Context::row_buffer`], and its writer's number if history
    /// is recorded.
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

    /// Copies what is needed of a record's row to [`Context::row_buffer`]. The protocol sees to it
    /// that each cell is of one state.
    #[inline(always)]
    pub fn copy_row(&mut self, at: Located<'_, M>, columns: Projection<'_>) {
        let (table, payload) = (at.table, at.table.payload(at.record));
        let phase = M::phase();
        M::enter(phase.doing(Activity::Useful));
        M::step("copy row");
        if self.row_buffer.len() < payload.len() {
            self.grow_row_buffer(payload.len());
        }
        match columns.words() {
            // All of it, with the signatures, whatever was asked for.
            _ if table.records_history() => M::copy_out(payload, &mut self.row_buffer[..payload.len()]),
            Some(spans) => spans.iter().for_each(|span| self.copy_span(payload, *span)),
            None if table.is_whole(columns.groups()) => M::copy_out(payload, &mut self.row_buffer[..payload.len()]),
            None => table.spans(columns.groups()).for_each(|span| self.copy_span(payload, span)),
        }
        M::enter(phase);
    }

    #[inline(always)]
    fn copy_span(&mut self, payload: &[M::U64], span: Span) {
        M::copy_out(&payload[span.words()], &mut self.row_buffer[span.words()]);
    }

    #[cold]
    fn grow_row_buffer(&mut self, words: usize) {
        self.row_buffer.resize(words, 0);
    }
}

/// A concurrency-control protocol that can be listed, and made from options: a type, in a file of
/// its own.
pub trait NamedProtocol<M: Machine>: Protocol<M> {
    /// Name, paper, promise.
    const INFO: ProtocolInfo;
    /// Whether transactions see what others have written and not committed, so that nothing can
    /// have them wait until that is durable.
    const SHOWS_UNCOMMITTED: bool = false;
    /// With which options a transaction can read a snapshot ([`Protocol::reads_snapshots`]); none,
    /// if with no options.
    const SNAPSHOTS: Option<&'static str> = None;
    /// What can be tuned.
    type Options: Options;

    /// The defaults, but with snapshots, if there can be any.
    fn options_with_snapshots() -> Self::Options {
        Self::Options::default()
    }

    /// The protocol's shared state.
    fn new(options: Self::Options) -> Self;
}

/// What the engine asks of a protocol.
///
/// For each transaction the engine calls `begin`, then any of `read`, `write`, `inserted` and
/// `gap`, then `commit`; and `abort` if the transaction's code gave up or if any of these failed,
/// `commit` included. A method that fails may leave locks held: `abort` releases what is held.
/// After either, the engine clears the write set and the node set.
///
/// The engine keeps the write set and answers reads of what the transaction wrote. So a protocol is
/// asked for cells of which it knows nothing yet, with exceptions that it must get right: a cell
/// may be read more than once, written after it was read, and read after a write of
/// [`WriteMode::Blind`] or [`WriteMode::CommitTimeUpdate`]. The commit must fail unless all
/// observations of a cell were of one state.
pub trait Protocol<M: Machine>: Sized + Send + Sync + 'static {
    /// A worker's own state, such as its read set. It lives as long as the worker.
    type WorkerState: Send + 'static;

    /// Name, paper, promise.
    fn info(&self) -> ProtocolInfo;

    /// Metadata words of a cell, 1 or more.
    fn meta_words(&self) -> usize {
        1
    }

    /// There will be workers of numbers below `workers`, and partitions of numbers below
    /// `partitions`. Called once, before anything else.
    fn prepare(&mut self, workers: usize, partitions: usize) {
        let _ = (workers, partitions);
    }

    /// Whether the protocol wants to be told what a transaction says of itself:
    /// [`Context::declaration`].
    fn wants_declarations(&self) -> bool {
        self.info().needs != DeclarationNeeds::Nothing
    }

    /// Whether, with the options that it has, a transaction that says beforehand that it will only
    /// read sees a snapshot: then it never aborts, nobody waits for it or aborts because of it, and
    /// it waits for nobody but commits that are under way.
    fn reads_snapshots(&self) -> bool {
        false
    }

    /// Of a transaction that has begun, and sees a snapshot: whether that has all that its worker
    /// has committed.
    fn sees_own_commits(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        let _ = (cx, local);
        true
    }

    /// Whether it says how its writes of a row are ordered
    /// ([`crate::sets::WriteSet::set_write_counter`]), so that a log need not count them
    /// ([`crate::commit_sink`]).
    fn provides_write_counters(&self) -> bool {
        false
    }

    /// Whether updates that commute ([`crate::Update::commutes`]) may be applied in another order
    /// than that of the transactions. A recorded history then says of them that they do, and not
    /// what they were applied to.
    fn reorders_updates(&self) -> bool {
        false
    }

    /// The state of a worker.
    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Sets the metadata of a record that nobody else sees yet; these are all its cells.
    fn init(&self, cells: Cells<M>, initial: RecordOrigin);

    /// A transaction begins. The write set and the node set are empty, and [`Context::declaration`]
    /// says what is known of it.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    /// Reads a record's cells: copies what `columns` names to [`Context::row_buffer`] by
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

    /// The transaction is going to write these groups, or the whole record. For
    /// [`WriteMode::ReadModifyWrite`] and [`WriteMode::Delete`] they are read, too, all of them. A
    /// record that is absent is a miss, observed as one, and not to be written after all; except
    /// for [`WriteMode::Insert`], which demands an absent record. [`WriteMode::Blind`] and
    /// [`WriteMode::CommitTimeUpdate`] may leave it to the commit to find the record absent.
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

    /// The engine has put a new record, made by `init` with [`RecordOrigin::Inserting`], into the
    /// index and into the write set.
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

    /// The transaction depends on this leaf's keys: a lookup missed there, or a scan passed it.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort>;

    /// The transaction is going to change once more what the entry at this position of the write
    /// set holds, or to read or write more of its record. Only of interest to who shows writes to
    /// others before the commit.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn rewrite(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, position: usize) -> Result<(), Abort> {
        let _ = (cx, local, position);
        Ok(())
    }

    /// Commits: has the updates applied by [`WriteSet::apply_updates`], which may panic, and then
    /// installs each write by [`WriteSet::install`].
    ///
    /// # Errors
    /// The transaction has to abort; nothing was installed.
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    /// Releases what the transaction holds. After a conflict ([`AbortReason::is_conflict`]) the
    /// worker's next transaction is most likely the same one again.
    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason);

    /// The worker pauses, or ends: what the protocol keeps for it until later, others have to be
    /// able to do without, or get.
    fn go_offline(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) {
        let _ = (cx, local);
    }

    /// Marks a tombstone as unlinked, if it still is one, so that it can leave the index. It was
    /// queued two epochs before [`Tombstone::oldest`], but may have got a row since, and been
    /// deleted again. A tombstone of an epoch that is not over stays
    /// ([`Tombstone::counter_epoch_is_over`]): the answer is [`UnlinkOutcome::Busy`].
    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome;

    /// Whether the record has no row, asked when no transaction runs.
    fn is_absent(&self, record: Record<M>) -> bool;

    /// How many older versions of the record's first cell are kept, as far as that is known; asked
    /// when no transaction runs.
    fn older_versions(&self, record: Record<M>) -> u64 {
        let _ = record;
        0
    }
}
