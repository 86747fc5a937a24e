//! Optimistic protocols: a transaction reads without locks, buffers its writes, and locks and
//! validates at commit.
//!
//! The code that all of them share is here and in the files of this folder that are no protocols.
//! The code in which a protocol differs is its [`Validation`]; [`Validating`] makes a protocol of
//! that.
//!
//! | step | where |
//! | --- | --- |
//! | the flags of a cell's word, a new record's words, unlinking a tombstone | [`crate::flags`] |
//! | the optimistic read, the locks of a commit | `optimistic/reads_and_locks.rs` |
//! | installing the writes | `optimistic/install.rs` |
//! | transaction identifiers (TIDs), and why epochs order commits | `optimistic/tid.rs` |
//! | locking the write set and validating, as Silo's commit does | `ReadsAndLocks::{lock_writes, validate}` |
//! | which cells are validated, against what, and what is installed | the protocol's file |
//!
//! **The word** of a cell (a record, or a group of its columns with timestamp splitting) is a
//! version, which belongs to the protocol, above the flags of [`crate::flags`]. A committing writer
//! sets the lock bit. A reader observes all of the word but the lock bit and the queued bit. A
//! write of some columns writes only their cells.
//!
//! **Memory ordering.** Two pairs carry the family; each is argued where it stands.
//!
//! | first | second | what it excludes |
//! | --- | --- | --- |
//! | a commit's fence, after its locks and before its stores to rows | the fence of `ReadsAndLocks::observe`, after its copy | a copy of two versions that passes as one |
//! | a commit's fence, after its locks and before its loads of validation | the same fence of another commit | two transactions that each read what the other writes, and both commit |

mod install;
pub mod mocc;
pub mod nested_occ;
pub mod occ;
mod reads_and_locks;
pub mod silo;
pub mod tictoc;
mod tid;

use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, Groups, Leaf, Located, NamedProtocol, Options, PieceBegin,
    PieceOutcome, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode,
};
use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::pieces::Piece;

use crate::fault::FenceFaults;
use crate::faults;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::ReadPhaseOptions;

pub(crate) use install::install_all;
pub(crate) use reads_and_locks::{Read, ReadsAndLocks};

pub(crate) const FLAGS: u64 = LOCKED | ABSENT | UNLINKED | QUEUED;
/// The lowest bit of a word's version.
pub(crate) const VERSION_SHIFT: u32 = 4;

/// Returns the part of `word` that a reader observes: neither the lock nor the queued bit says
/// anything about the row.
#[inline(always)]
pub(crate) fn observed(word: u64) -> u64 {
    word & !(LOCKED | QUEUED)
}

/// The validation of a protocol of this family, and all else in which it differs from the others.
/// [`Validating`] is the protocol.
///
/// The hooks are called in the order of the methods of [`Protocol`] with the same meaning. `own` is
/// this protocol's part of the worker's state; the family keeps the reads and the locks.
pub trait Validation<M: Machine>: Send + Sync + Sized + 'static {
    /// Name, summary, paper, isolation and needs of the protocol.
    const INFO: ProtocolInfo;
    /// The options with which a transaction can read a snapshot ([`NamedProtocol::SNAPSHOTS`]).
    const SNAPSHOTS: Option<&'static str> = None;
    /// Whether versions are TIDs, which order the writes of a row
    /// ([`Protocol::provides_write_counters`]).
    const PROVIDES_WRITE_COUNTERS: bool = false;
    /// The flags with which a placeholder begins.
    const PLACEHOLDER: u64 = ABSENT;
    /// Whether the protocol treats pieces by themselves ([`Protocol::uses_pieces`]).
    const PIECES: bool = false;
    /// The protocol's options.
    type Options: Options;
    /// The protocol's deliberate faults.
    type Faults: OptimisticFaults;
    /// The protocol's part of a worker's state.
    type WorkerState: Send + 'static;

    /// Returns the default options, but with snapshots if the protocol can have any.
    fn options_with_snapshots() -> Self::Options {
        Self::Options::default()
    }

    /// Makes the shared state.
    fn new(options: Self::Options) -> Self;

    /// Whether the read of a cell that the transaction is going to write is marked: the lock that
    /// validation finds there is the transaction's own.
    #[inline(always)]
    fn marks_writes() -> bool {
        true
    }

    /// Returns the options of the wait between a transaction's last read and its commit.
    fn read_phase(&self) -> &ReadPhaseOptions;

    /// Returns the metadata words of a cell, 1 or more.
    fn meta_words(&self) -> usize {
        1
    }

    /// Says that workers will have numbers below `workers`.
    fn prepare(&mut self, workers: usize) {
        let _ = workers;
    }

    /// Returns whether transactions that declare themselves read-only see a snapshot
    /// ([`Protocol::reads_snapshots`]).
    fn reads_snapshots(&self) -> bool {
        false
    }

    /// Returns whether the transaction's snapshot has all commits of its worker
    /// ([`Protocol::sees_own_commits`]).
    fn sees_own_commits(&self, own: &Self::WorkerState) -> bool {
        let _ = own;
        true
    }

    /// Makes the state of a worker.
    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Sets the words of a new cell behind its first.
    fn init_further_words(&self, cell: Cell<M>) {
        let _ = cell;
    }

    /// Begins a transaction; its reads and locks are empty.
    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, own: &mut Self::WorkerState) {
        let _ = (cx, own);
    }

    /// Returns whether the transaction sees a snapshot, and so neither writes nor observes leaves.
    #[inline(always)]
    fn sees_snapshot(&self, own: &Self::WorkerState) -> bool {
        let _ = own;
        false
    }

    /// Reads a row of the transaction's snapshot; `None` if it sees none.
    #[inline(always)]
    fn read_snapshot(
        &self,
        cx: &mut Context<M>,
        own: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Option<Result<RecordState, Abort>> {
        let _ = (cx, own, at, columns);
        None
    }

    /// Prepares an access of these groups before the record is read: `mode` is that of a write, or
    /// `None`.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn before_access(
        &self,
        own: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: Option<WriteMode>,
    ) -> Result<(), Abort> {
        let _ = (own, at, groups, mode);
        Ok(())
    }

    /// Returns whether a reader that has met `word`, which is locked or has changed under it,
    /// should look again.
    #[inline(always)]
    fn keeps_waiting(&self, own: &Self::WorkerState, word: u64) -> bool {
        let _ = (own, word);
        true
    }

    /// Takes note of reads that have just been made.
    ///
    /// # Errors
    /// The transaction has to abort.
    #[inline(always)]
    fn after_read(&self, own: &mut Self::WorkerState, new: &[Read<M>]) -> Result<(), Abort> {
        let _ = (own, new);
        Ok(())
    }

    /// Takes note of a leaf that has just been observed.
    #[inline(always)]
    fn after_leaf(&self, own: &mut Self::WorkerState, leaf: Leaf<M>) {
        let _ = (own, leaf);
    }

    /// Prepares a placeholder that is in the index now, before the transaction observes it, and
    /// returns the word of its first cell.
    #[inline(always)]
    fn prepare_placeholder(
        &self,
        cx: &Context<M>,
        own: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> u64 {
        let _ = (cx, own, at, change);
        Self::PLACEHOLDER
    }

    /// Takes note that the entry at this position of the write set is about to change once more
    /// ([`Protocol::rewrite`]).
    #[inline(always)]
    fn before_rewrite(&self, own: &mut Self::WorkerState, position: usize) {
        let _ = (own, position);
    }

    /// Begins a piece; see [`Protocol::begin_piece`].
    fn begin_piece(&self, cx: &Context<M>, reads: &ReadsAndLocks<M>, own: &mut Self::WorkerState) -> PieceBegin {
        let _ = (cx, reads, own);
        PieceBegin::Inside
    }

    /// Ends a piece; see [`Protocol::end_piece`].
    ///
    /// # Errors
    /// The piece has met a conflict.
    fn end_piece(&self, cx: &Context<M>, reads: &ReadsAndLocks<M>, own: &mut Self::WorkerState) -> Result<(), Abort> {
        let _ = (cx, reads, own);
        Ok(())
    }

    /// Gives up a piece; see [`Protocol::undo_piece`].
    fn undo_piece(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut Self::WorkerState) -> bool {
        let _ = (cx, reads, own);
        false
    }

    /// Locks, validates and installs: see [`Protocol::commit`].
    ///
    /// # Errors
    /// The transaction has to abort; nothing was installed.
    fn commit(
        &self,
        cx: &mut Context<M>,
        reads: &mut ReadsAndLocks<M>,
        own: &mut Self::WorkerState,
    ) -> Result<(), Abort>;

    /// Ends an aborted transaction, whose locks of the family were given back.
    fn abort(&self, cx: &mut Context<M>, own: &mut Self::WorkerState, reason: AbortReason) {
        let _ = (cx, own, reason);
    }

    /// Returns whether a tombstone with this word is old enough to leave its index.
    fn lets_unlink(&self, tombstone: Tombstone<'_, M>, word: u64) -> bool {
        let _ = (tombstone, word);
        true
    }

    /// Returns the logical time up to which a tombstone was read that was unlinked just now
    /// ([`UnlinkOutcome::Marked`]).
    fn read_up_to(&self, tombstone: Tombstone<'_, M>) -> u64 {
        let _ = tombstone;
        0
    }
}

/// The protocol that validates in this way.
#[derive(Debug)]
pub struct Validating<V> {
    validation: V,
}

/// A worker's state.
#[derive(Debug)]
pub struct ValidatingWorker<M: Machine, W> {
    reads: ReadsAndLocks<M>,
    own: W,
}

impl<M: Machine, V: Validation<M>> NamedProtocol<M> for Validating<V> {
    const INFO: ProtocolInfo = V::INFO;
    const SNAPSHOTS: Option<&'static str> = V::SNAPSHOTS;
    type Options = V::Options;

    fn options_with_snapshots() -> V::Options {
        V::options_with_snapshots()
    }

    fn new(options: V::Options) -> Self {
        Validating { validation: V::new(options) }
    }
}

impl<M: Machine, V: Validation<M>> Protocol<M> for Validating<V> {
    type WorkerState = ValidatingWorker<M, V::WorkerState>;

    fn info(&self) -> ProtocolInfo {
        V::INFO
    }

    fn meta_words(&self) -> usize {
        self.validation.meta_words()
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.validation.prepare(workers);
    }

    fn wants_declarations(&self) -> bool {
        // A transaction's type is a part of its declaration.
        self.validation.reads_snapshots() || V::PIECES
    }

    fn reads_snapshots(&self) -> bool {
        self.validation.reads_snapshots()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, worker: &mut Self::WorkerState) -> bool {
        self.validation.sees_own_commits(&worker.own)
    }

    fn provides_write_counters(&self) -> bool {
        V::PROVIDES_WRITE_COUNTERS
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        ValidatingWorker { reads: ReadsAndLocks::default(), own: self.validation.new_worker_state(worker) }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        cells.clone().for_each(|cell| self.validation.init_further_words(cell));
        flags::init_words(cells, initial, V::PLACEHOLDER);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, worker: &mut Self::WorkerState) -> Result<(), Abort> {
        worker.reads.clear();
        self.validation.begin(cx, &mut worker.own);
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        if let Some(outcome) = self.validation.read_snapshot(cx, own, at, columns) {
            return outcome;
        }
        self.validation.before_access(own, at, columns.groups(), None)?;
        let first = reads.entries.len();
        let found = reads.observe(cx, at, columns, |word| self.validation.keeps_waiting(own, word))?;
        self.validation.after_read(own, reads.entries.get(first..).unwrap_or_default())?;
        Ok(found)
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        if self.validation.sees_snapshot(own) {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        self.validation.before_access(own, at, groups, Some(mode))?;
        let first = reads.entries.len();
        let keeps_waiting = |word| self.validation.keeps_waiting(own, word);
        let found = reads.prepare_write(cx, at, groups, mode, V::marks_writes(), keeps_waiting)?;
        self.validation.after_read(own, reads.entries.get(first..).unwrap_or_default())?;
        Ok(found)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        if self.validation.sees_snapshot(own) {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let word = self.validation.prepare_placeholder(cx, own, at, change);
        reads.observe_placeholder(at, observed(word))?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        worker: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // A key that a snapshot lacks will not come into it: its insert is of a later epoch.
        if !self.validation.sees_snapshot(&worker.own) {
            cx.nodes.add(leaf, version);
            self.validation.after_leaf(&mut worker.own, leaf);
        }
        Ok(())
    }

    #[inline(always)]
    fn rewrite(&self, _: &mut Context<M>, worker: &mut Self::WorkerState, position: usize) -> Result<(), Abort> {
        self.validation.before_rewrite(&mut worker.own, position);
        Ok(())
    }

    #[inline(always)]
    fn uses_pieces(&self) -> bool {
        V::PIECES
    }

    fn begin_piece(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        _: Piece,
    ) -> Result<PieceBegin, Abort> {
        Ok(self.validation.begin_piece(cx, reads, own))
    }

    fn end_piece(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        _: Piece,
    ) -> Result<PieceOutcome, Abort> {
        self.validation.end_piece(cx, reads, own).map(|()| PieceOutcome::Open)
    }

    fn undo_piece(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
        _: AbortReason,
    ) -> bool {
        self.validation.undo_piece(cx, reads, own)
    }

    #[inline(always)]
    fn commit(
        &self,
        cx: &mut Context<M>,
        ValidatingWorker { reads, own }: &mut Self::WorkerState,
    ) -> Result<(), Abort> {
        self.validation.read_phase().extend::<M>(reads.read_retries);
        self.validation.commit(cx, reads, own)
    }

    fn abort(&self, cx: &mut Context<M>, worker: &mut Self::WorkerState, reason: AbortReason) {
        worker.reads.unlock_all();
        self.validation.abort(cx, &mut worker.own, reason);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        let may_go = |word| self.validation.lets_unlink(tombstone, word);
        match unlink_unlocked(tombstone, V::Faults::unlink_locked(), may_go) {
            UnlinkOutcome::Marked { .. } => UnlinkOutcome::Marked { time: self.validation.read_up_to(tombstone) },
            outcome => outcome,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

/// Marks a tombstone as unlinked, if four things hold: it still is a tombstone, no commit has
/// locked it, the epoch of its write counter is over, and `may_go` agrees, given its word.
///
/// `ignores_locks` is a deliberate fault: a lock of the first cell does not matter.
///
/// The engine takes it out of the index afterwards. A transaction that has read the tombstone fails
/// at validation, because the observed word lacks the bit. A transaction that wants to lock it
/// finds the bit, and aborts.
fn unlink_unlocked<M: Machine>(
    tombstone: Tombstone<'_, M>,
    ignores_locks: bool,
    may_go: impl Fn(u64) -> bool,
) -> UnlinkOutcome {
    M::step("unlink");
    let mut others = tombstone.cells();
    let Some(first) = others.next() else { return UnlinkOutcome::Busy };
    // Acquire: pairs with the Release of the commit that stored the word, so that the write counter
    // read below is at least as new as the word. If it is newer, the word has changed and the
    // exchange fails: each commit stores another version.
    let word = first.word().load(Ordering::Acquire);
    let is_absent = word & ABSENT != 0;
    let is_young = is_absent && !(tombstone.counter_epoch_is_over() && may_go(word));
    if word & LOCKED != 0 && !ignores_locks || is_young {
        return UnlinkOutcome::Busy;
    }
    if !is_absent {
        // AcqRel: as below.
        let taken = first.word().compare_exchange(word, word & !QUEUED, Ordering::AcqRel, Ordering::Relaxed);
        return if taken.is_ok() { UnlinkOutcome::Alive } else { UnlinkOutcome::Busy };
    }
    // The other cells are locked until the outcome is known. A transaction may hold one of them
    // although it does not hold the first: OCC locks what it has read, and a read of one column has
    // one cell. Its unlock stores the word as it was, and would clear a bit that was set meanwhile.
    for (number, cell) in others.clone().enumerate() {
        if !try_lock(cell) {
            others.take(number).for_each(|cell| release(cell, 0));
            return UnlinkOutcome::Busy;
        }
    }
    // AcqRel. The Acquire pairs with the Release of the last unlock; the Release pairs with the
    // Acquire of the next lock and of readers (`ReadsAndLocks`). The exchange succeeds only on the
    // word that was judged, so no commit has come between. Suppose that an insert locks the
    // tombstone after the load above. Then the word is another one, and the exchange fails. If the
    // exchange comes first, the insert finds the bit, and aborts.
    let marked = first.word().compare_exchange(word, word | UNLINKED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    others.for_each(|cell| release(cell, if marked { UNLINKED } else { 0 }));
    if marked { UnlinkOutcome::Marked { time: 0 } } else { UnlinkOutcome::Busy }
}

/// Locks a cell for a collector, unless it is locked.
fn try_lock<M: Machine>(cell: Cell<M>) -> bool {
    // Relaxed: the exchange decides.
    let word = cell.word().load(Ordering::Relaxed);
    // AcqRel: as any lock of a commit (`ReadsAndLocks::lock`).
    word & LOCKED == 0 && cell.word().compare_exchange(word, word | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Sets these flags of a cell that a collector has locked, and unlocks it.
fn release<M: Machine>(cell: Cell<M>, flags: u64) {
    // Relaxed: no other thread changes the word of a locked cell. Release: pairs with the Acquire
    // of readers and of the next lock (`ReadsAndLocks::observe`, `lock`).
    let word = cell.word().load(Ordering::Relaxed);
    cell.word().store((word | flags) & !LOCKED, Ordering::Release);
}

faults! {
    /// The faults that the family's code has.
    pub trait OptimisticFaults: FenceFaults {
        /// Validation does not look whether a record that was read is being written.
        ignore_locks_in_validation,
        /// A tombstone leaves its index though a transaction has locked it.
        unlink_locked,
        /// A commit loads the epoch, and validates, in an order that not all need agree on: another
        /// that must come later may have an earlier epoch. Only a model checker of weak memory
        /// finds that.
        forget_order_of_epochs,
    }
    pub const FAULTS;
}
