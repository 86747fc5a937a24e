//! Strict two-phase locking: the part that the locking protocols have in common.
//!
//! **Idea.** A transaction locks each record before it touches it, shared to read and exclusive to
//! write. It holds all its locks until it ends. The protocols differ in what happens to a request
//! that conflicts with the holders: the transaction aborts, or it waits, for other transactions
//! that the protocol allows.
//!
//! **The stack.** A locking protocol is a type of three layers, each of which knows only the one
//! below:
//!
//! ```text
//! WaitDie<M> = TwoPhase< QueuedLocks< M, WaitDiePolicy<M> > >
//!
//!      the engine
//!          |      begin, read, write, commit, abort: of located records
//!          v
//! +-------------------------------------------------------------------------------------------+
//! | TwoPhase<L>          implements Protocol     locking.rs                                   |
//! | Which cells the transaction has locked, and in which mode. Leaves that it observed, for   |
//! | phantoms. Locks of commit-time updates; validation; installs; releases all at the end.    |
//! +-------------------------------------------------------------------------------------------+
//!          |      acquire, upgrade, release: of one cell
//!          v
//! +-------------------------------------------------------------------------------------------+
//! | QueuedLocks<M, P>    implements LockManager  queue.rs, over the lists of list.rs          |
//! | Holders and waiters of a cell in two lists. Grants, in the order of the queue, and waits. |
//! +-------------------------------------------------------------------------------------------+
//!          |      goes_before, may_wait, keep_waiting: of a request and those that block it
//!          v
//! +-------------------------------------------------------------------------------------------+
//! | WaitDiePolicy<M>     implements WaitPolicy   wait_die.rs                                  |
//! | Whether a transaction may wait for those that block it, and its place in the queue.       |
//! +-------------------------------------------------------------------------------------------+
//! ```
//!
//! | protocol | lock manager | wait policy |
//! | --- | --- | --- |
//! | `2pl-nowait` | [`no_wait`], over [`word`]: a count of readers | none: a conflict aborts |
//! | `2pl-ordered` | [`ordered`], over [`word`] | none: requests in the order of addresses wait |
//! | `2pl-waitdie` | [`queue`] | [`wait_die`] |
//! | `2pl-woundwait` | [`queue`] | [`wound_wait`] |
//! | `2pl-dldetect` | [`queue`] | [`deadlock_detection`] |
//! | `bamboo` | [`bamboo`], over [`list`]; a [`Protocol`] of its own | wound-wait |
//!
//! **Papers.** K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger: "The notions of consistency
//! and predicate locks in a database system", CACM 1976. P. A. Bernstein, N. Goodman: "Concurrency
//! control in distributed database systems", ACM Computing Surveys 1981. Measured against each
//! other in X. Yu, G. Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring into the abyss", VLDB
//! 2014.
//!
//! **Promises** serializability. A running transaction sees a consistent state of the records.
//!
//! **Metadata.** The first word of a cell (a record, or a group of its columns with timestamp
//! splitting) has the flags of [`crate::flags`]. Only the exclusive holder of the cell changes
//! them. The other bits are the lock manager's.
//!
//! **Commit point.** The validation of the leaves, while the transaction holds all its locks.
//!
//! **Phantoms.** A key that is absent has no record to lock. Misses and scans observe leaf
//! versions, and the commit validates these while it holds all locks (a hybrid of locking and
//! Silo's node sets). An insert holds its placeholder exclusively from the start.
//!
//! **Commit-time updates** take their locks at commit, where the growing phase ends. So their cells
//! are locked for a moment instead of for the rest of the transaction.
//!
//! **Departures from the papers.** Writes are buffered and installed at commit, so an abort has
//! nothing to undo. A blind write takes its lock when the transaction announces it, not at commit.

pub mod bamboo;
pub mod deadlock_detection;
pub mod list;
pub mod no_wait;
pub mod ordered;
pub mod queue;
pub mod wait_die;
pub mod word;
pub mod wound;
pub mod wound_wait;

use contend_engine::declaration::DeclaredRow;
use contend_engine::sets::AddressMap;
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located,
    NamedProtocol, Options, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone,
    UnlinkOutcome, WriteMode,
};
use contend_machine::Machine;

use crate::fault::{FenceFaults, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, QUEUED, UNLINKED};
use crate::method::timestamp::Outcome;

/// The flags in a cell's word. The bits of the lock are elsewhere in the word.
pub(crate) const FLAGS: u64 = ABSENT | UNLINKED | QUEUED;

/// The mode in which a transaction holds a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

impl LockMode {
    /// Returns the reason of an abort for a conflict at a request in this mode.
    pub(crate) fn conflict(self) -> AbortReason {
        match self {
            LockMode::Shared => AbortReason::ReadLocked,
            LockMode::Exclusive => AbortReason::WriteLocked,
        }
    }
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy, Debug)]
pub enum LockOutcome<H> {
    /// The transaction holds the lock. The handle releases it; the other field is the cell's flags.
    Granted(H, u64),
    /// The record is out of the index. The transaction holds nothing.
    Unlinked,
}

/// A lock's part of a cell's metadata, which needs no state besides the cell.
pub trait LockWord<M: Machine> {
    /// Sets the metadata of a cell that no other worker sees yet. If `held`, the transaction that
    /// inserts it holds it, and calls [`LockManager::adopt_placeholder`] next.
    fn init(cell: Cell<M>, flags: u64, held: bool);

    /// Returns the flags of a cell. They can change after the call if the caller doesn't hold the
    /// cell.
    fn flags(cell: Cell<M>) -> u64;

    /// Clears and then sets flags of a cell that the caller holds exclusively. Returns the flags
    /// before.
    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64;

    /// Acquires a cell exclusively in no transaction's name, if no transaction holds it or waits
    /// for it. Returns its flags. The caller releases it soon: other transactions spin meanwhile,
    /// or abort.
    fn try_acquire_exclusive(cell: Cell<M>) -> Option<u64>;

    /// Releases a cell after [`LockWord::try_acquire_exclusive`], and clears and then sets flags.
    fn release_exclusive(cell: Cell<M>, clear: u64, set: u64);
}

/// The locks of all cells, and the reaction of a transaction to a conflict.
///
/// There is no lock table: a lock stands in the metadata of its cell ([`LockWord`]).
pub trait LockManager<M: Machine>: Send + Sync + 'static {
    /// Name, paper and promise of two-phase locking with this lock manager.
    const INFO: ProtocolInfo;
    /// The options of the protocol.
    type Options: Options;
    /// The deliberate faults of the protocol.
    type Faults: LockingFaults;
    /// A worker's own state.
    type WorkerState: Send + 'static;
    /// The handle of a lock, which a transaction keeps to release or upgrade it.
    type Handle: Copy + Send + std::fmt::Debug + 'static;
    /// The layout of a lock.
    type Word: LockWord<M>;

    /// Returns the state that all workers share.
    fn new(options: Self::Options) -> Self;

    /// Makes room for workers with numbers below `workers`.
    fn prepare(&mut self, workers: usize) {
        let _ = workers;
    }

    /// Returns the state of a worker.
    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Begins a transaction.
    fn begin(&self, local: &mut Self::WorkerState) {
        let _ = local;
    }

    /// Returns the rows that the transaction locks before its first access, in this order: none.
    fn rows_to_lock(cx: &mut Context<M>) -> &[DeclaredRow<M>] {
        let _ = cx;
        &[]
    }

    /// Makes the transaction the holder of a new cell, whose [`LockWord::init`] was told that it is
    /// held.
    fn adopt_placeholder(&self, local: &mut Self::WorkerState, cell: Cell<M>) -> Self::Handle;

    /// Requests a lock on a cell that the transaction doesn't hold.
    ///
    /// # Errors
    /// The transaction must abort.
    fn acquire(
        &self,
        local: &mut Self::WorkerState,
        cell: Cell<M>,
        mode: LockMode,
    ) -> Result<LockOutcome<Self::Handle>, Abort>;

    /// Requests the exclusive lock on a cell that the transaction holds shared.
    ///
    /// # Errors
    /// The transaction must abort. It still holds the cell shared.
    fn upgrade(&self, local: &mut Self::WorkerState, cell: Cell<M>, handle: Self::Handle) -> Result<(), Abort>;

    /// Passes the commit point. The transaction holds all its locks.
    ///
    /// # Errors
    /// The transaction must abort.
    fn commit_point(&self, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let _ = local;
        Ok(())
    }

    /// Releases a lock that the transaction holds in this mode.
    fn release(&self, local: &mut Self::WorkerState, cell: Cell<M>, mode: LockMode, handle: Self::Handle);

    /// Ends the transaction, which has released all its locks.
    fn end(&self, local: &mut Self::WorkerState, outcome: Outcome) {
        let _ = (local, outcome);
    }
}

/// Strict two-phase locking with the lock manager `L`.
#[derive(Debug)]
pub struct TwoPhase<L> {
    locks: L,
}

/// A lock that a transaction holds.
type HeldLock<M, H> = (Cell<M>, LockMode, H);

/// A worker's state: the locks that its transaction holds.
#[derive(Debug)]
pub struct TwoPhaseWorker<M: Machine, L: LockManager<M>> {
    /// The position in `held` of each cell, by its address.
    positions: AddressMap,
    held: Vec<HeldLock<M, L::Handle>>,
    locks: L::WorkerState,
}

impl<M: Machine, L: LockManager<M>> TwoPhaseWorker<M, L> {
    fn push(&mut self, cell: Cell<M>, mode: LockMode, handle: L::Handle) {
        self.positions.push(cell.address());
        self.held.push((cell, mode, handle));
    }
}

impl<L> TwoPhase<L> {
    /// Acquires the cells of `groups` in `mode` or a stronger one. Returns the union of their
    /// flags, or `None` if the record is unlinked.
    #[inline(always)]
    fn acquire<M: Machine>(
        &self,
        cx: &Context<M>,
        local: &mut TwoPhaseWorker<M, L>,
        at: Located<'_, M>,
        groups: Groups,
        mode: LockMode,
    ) -> Result<Option<u64>, Abort>
    where
        L: LockManager<M>,
    {
        M::step(if mode == LockMode::Shared { "lock shared" } else { "lock exclusive" });
        let note = |(cell, abort)| cx.conflict_at(cell, abort);
        if let Some(cells) = Self::wrong_cells(at, groups, mode) {
            return self.acquire_cells(local, cells, mode).map_err(note);
        }
        match at.only_cell(groups) {
            Some(cell) => self.acquire_cells(local, std::iter::once(cell), mode).map_err(note),
            None => self.acquire_cells(local, at.cells(groups), mode).map_err(note),
        }
    }

    /// Acquires these cells of a record, as [`TwoPhase::acquire`] does.
    ///
    /// # Errors
    /// The transaction must abort. The cell is the one at which it failed.
    #[inline(always)]
    fn acquire_cells<M: Machine>(
        &self,
        local: &mut TwoPhaseWorker<M, L>,
        cells: impl Iterator<Item = Cell<M>>,
        mode: LockMode,
    ) -> Result<Option<u64>, (Cell<M>, Abort)>
    where
        L: LockManager<M>,
    {
        let mut flags = 0;
        for cell in cells {
            if let Some(position) = local.positions.find(cell.address()) {
                let (_, has, handle) = &mut local.held[position];
                if mode == LockMode::Exclusive && *has == LockMode::Shared {
                    let upgraded = self.locks.upgrade(&mut local.locks, cell, *handle);
                    upgraded.map_err(|abort| (cell, abort))?;
                    *has = LockMode::Exclusive;
                }
                flags |= L::Word::flags(cell);
                continue;
            }
            let acquired = self.locks.acquire(&mut local.locks, cell, mode);
            match acquired.map_err(|abort| (cell, abort))? {
                LockOutcome::Unlinked => return Ok(None),
                LockOutcome::Granted(handle, now) => {
                    flags |= now;
                    if Self::keeps(mode) {
                        local.push(cell, mode, handle);
                    } else {
                        self.locks.release(&mut local.locks, cell, mode, handle);
                    }
                }
            }
        }
        Ok(Some(flags))
    }

    /// Acquires the rows that the transaction has declared.
    fn acquire_declared<M: Machine>(&self, cx: &mut Context<M>, local: &mut TwoPhaseWorker<M, L>) -> Result<(), Abort>
    where
        L: LockManager<M>,
    {
        M::step("lock declared");
        let mut acquired = Ok(());
        for row in L::rows_to_lock(cx) {
            let mode = if row.writes { LockMode::Exclusive } else { LockMode::Shared };
            // If the record is unlinked by now, the access will look its key up again.
            if let Some(cells) = row.cells() {
                acquired = self.acquire_cells(local, cells, mode).map(drop);
            }
            if acquired.is_err() {
                break;
            }
        }
        acquired.map_err(|(cell, abort)| cx.conflict_at(cell, abort))
    }

    /// Acquires the locks of commit-time updates. The transaction holds those of its other writes
    /// already.
    #[inline(always)]
    fn acquire_updates<M: Machine>(&self, cx: &mut Context<M>, local: &mut TwoPhaseWorker<M, L>) -> Result<(), Abort>
    where
        L: LockManager<M>,
    {
        for position in 0..cx.writes.len() {
            let merged = cx.writes.entries()[position].merged();
            if merged.is_empty() {
                continue;
            }
            let write = &cx.writes.entries()[position];
            let at = Located { table: write.table(), record: write.record };
            let flags = self.acquire(cx, local, at, merged, LockMode::Exclusive)?;
            if flags.is_none_or(|flags| flags & ABSENT != 0) {
                return Err(cx.conflict_at_write(position, merged, Abort::new(AbortReason::RecordGone)));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn release_all<M: Machine>(&self, local: &mut TwoPhaseWorker<M, L>, outcome: Outcome)
    where
        L: LockManager<M>,
    {
        M::step("release");
        for (cell, mode, handle) in local.held.drain(..) {
            self.locks.release(&mut local.locks, cell, mode, handle);
        }
        local.positions.clear();
        self.locks.end(&mut local.locks, outcome);
    }
}

impl<M: Machine, L: LockManager<M>> NamedProtocol<M> for TwoPhase<L> {
    const INFO: ProtocolInfo = L::INFO;
    type Options = L::Options;

    fn new(options: L::Options) -> Self {
        TwoPhase { locks: L::new(options) }
    }
}

impl<M: Machine, L: LockManager<M>> Protocol<M> for TwoPhase<L> {
    type WorkerState = TwoPhaseWorker<M, L>;

    fn info(&self) -> ProtocolInfo {
        L::INFO
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.locks.prepare(workers);
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        let (positions, held) = (AddressMap::default(), Vec::with_capacity(64));
        TwoPhaseWorker { positions, held, locks: self.locks.new_worker_state(worker) }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        flags::initial(cells, initial, L::Word::init);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.locks.begin(&mut local.locks);
        if L::INFO.needs == DeclarationNeeds::Rows { self.acquire_declared(cx, local) } else { Ok(()) }
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        let Some(flags) = self.acquire(cx, local, at, columns.groups(), LockMode::Shared)? else {
            return Ok(RecordState::Unlinked);
        };
        cx.copy_row(at, columns);
        Ok(flags::found(flags))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        if mode == WriteMode::CommitTimeUpdate {
            // A look without a lock: the commit acquires the cells, and looks again.
            return if at.cells(groups).any(|cell| L::Word::flags(cell) & (ABSENT | UNLINKED) != 0) {
                // A miss needs a shared lock to stay one. If the record has a row by now, the lock
                // is not needed and does no harm.
                self.read(cx, local, at, Projection::columns(&[], groups))
            } else {
                Ok(RecordState::Row)
            };
        }
        let Some(flags) = self.acquire(cx, local, at, groups, LockMode::Exclusive)? else {
            return Ok(RecordState::Unlinked);
        };
        if flags & ABSENT != 0 {
            // The exclusive lock keeps the record absent until the transaction ends.
            cx.copy_row(at, Projection::EXISTENCE);
            return Ok(RecordState::Absent);
        }
        if matches!(mode, WriteMode::ReadModifyWrite | WriteMode::Delete) {
            cx.copy_row(at, Projection::of_groups(groups));
        }
        Ok(RecordState::Row)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        for cell in at.cells(Groups::ALL) {
            let handle = self.locks.adopt_placeholder(&mut local.locks, cell);
            local.push(cell, LockMode::Exclusive, handle);
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        _: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        cx.nodes.add(leaf, version);
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.acquire_updates(cx, local)?;
        if !cx.nodes.is_empty() {
            M::step("validate");
            // SeqCst: this transaction's inserts into the index come before its loads of the leaf
            // versions it observed. Two transactions can each insert where the other has scanned.
            // Each runs this fence between its insert and its loads, and the two fences have an
            // order: the transaction whose fence is second sees the other's insert, and aborts.
            dekker_fence::<M, L::Faults>();
            cx.nodes.validate()?;
        }
        cx.writes.apply_updates();
        self.locks.commit_point(&mut local.locks)?;
        M::step("install");
        for position in 0..cx.writes.len() {
            flags::install_held(cx, position, L::Word::set_flags);
        }
        self.release_all(local, Outcome::Finished);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        self.release_all(local, Outcome::of_abort(reason));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        match Self::unlink_locked(tombstone) {
            Some(outcome) => outcome,
            None => flags::unlink_held(tombstone, L::Word::try_acquire_exclusive, L::Word::release_exclusive),
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        L::Word::flags(record.first_cell()) & ABSENT != 0
    }
}

/// Returns the entry in the list of protocols of one of this family: serializable, without
/// declarations.
pub(crate) const fn info(name: &'static str, summary: &'static str, paper: &'static str) -> ProtocolInfo {
    ProtocolInfo { name, summary, paper, isolation: Isolation::Serializable, needs: DeclarationNeeds::Nothing }
}

faults! {
    /// The deliberate faults of all locking protocols.
    pub trait LockingFaults: FenceFaults {
        /// A write of some columns locks and changes the cell next to theirs.
        write_wrong_cell,
        /// A tombstone leaves its index though a transaction has locked it.
        unlink_locked,
        /// Shared locks are released right after the read.
        release_shared_early,
        /// An exclusive lock is granted while other transactions hold the cell shared.
        ignore_readers,
    }
    pub const FAULTS;
}

/// Returns whether transactions that hold a cell shared block an exclusive request: always, without
/// a fault.
#[inline(always)]
pub(crate) fn readers_block<F: LockingFaults>() -> bool {
    !F::ignore_readers()
}

/// Where the algorithm asks for its faults.
impl<L> TwoPhase<L> {
    /// Returns the cells that an access locks instead of its own: none, without a fault.
    #[inline(always)]
    fn wrong_cells<M: Machine>(at: Located<'_, M>, groups: Groups, mode: LockMode) -> Option<Cells<M>>
    where
        L: LockManager<M>,
    {
        let cells = at.table.cell_count() as u32;
        if !L::Faults::write_wrong_cell() || mode == LockMode::Shared || cells == 1 || groups == Groups::ALL {
            return None;
        }
        let next = groups.into_iter().map(|group| (group as u32 + 1) % cells);
        Some(at.cells(next.fold(Groups::NONE, |all, one| all.union(Groups::of(one)))))
    }

    /// Returns whether the transaction keeps a lock in this mode until it ends: always, without a
    /// fault.
    #[inline(always)]
    fn keeps<M: Machine>(mode: LockMode) -> bool
    where
        L: LockManager<M>,
    {
        !L::Faults::release_shared_early() || mode == LockMode::Exclusive
    }

    /// Unlinks a tombstone without its locks: not without a fault.
    #[inline(always)]
    fn unlink_locked<M: Machine>(tombstone: Tombstone<'_, M>) -> Option<UnlinkOutcome>
    where
        L: LockManager<M>,
    {
        let change = |cell, clear, set| _ = L::Word::set_flags(cell, clear, set);
        L::Faults::unlink_locked().then(|| flags::unlink_held(tombstone, |cell| Some(L::Word::flags(cell)), change))
    }
}
