//! Strict two-phase locking: what the protocols that lock have in common.
//!
//! **Idea.** A transaction locks each record before it touches it, shared to read and exclusive to write, and holds all its locks to the
//! end. The protocols differ in what becomes of a lock that can't be had at once, which is theirs to say: [`Locks`].
//!
//! **Papers.** K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger: "The notions of consistency and predicate locks in a database
//! system", CACM 1976. P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems", ACM Computing Surveys 1981.
//! Measured against each other in X. Yu, G. Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring into the abyss", VLDB 2014.
//!
//! **Promises** serializability; and a transaction sees a consistent state of the records while it runs.
//!
//! **Metadata.** The first word of a cell (a record, or, with timestamp splitting, a group of its columns) has the flags of
//! [`crate::flags`], which only who holds the cell exclusively changes; the rest is the locks'.
//!
//! **Commit point.** The validation of the leaves, when all locks are held.
//!
//! **Phantoms.** A key that is absent has nothing to lock. Misses and scans observe leaf versions, which are checked at commit while all
//! locks are held (the hybrid of locking and Silo's node sets). An insert holds its placeholder exclusively from birth.
//!
//! **Commit-time updates** take their locks at commit: the growing phase ends there, and what they change is held for a moment instead of
//! for the rest of the transaction.
//!
//! **Departures from the papers.** Writes are buffered and installed at commit, so an abort has nothing to undo. A blind write takes its
//! lock when it is announced, not at commit.

pub mod list;
pub mod queue;
pub mod word;
pub mod wound;

use contend_engine::sets::AddressMap;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Options, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::Machine;

use crate::fault::{Faults, dekker_fence};
use crate::flags::{self, ABSENT, QUEUED, UNLINKED};

/// The flags of a cell that is held: a lock's own are elsewhere in the word.
pub(crate) const FLAGS: u64 = ABSENT | UNLINKED | QUEUED;

/// How a cell is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// With others.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that was asked for.
#[derive(Clone, Copy, Debug)]
pub enum Asked<H> {
    /// It is held: how the locks know it, and the cell's flags.
    Granted(H, u64),
    /// The record is out of the index.
    Unlinked,
}

/// A kind of lock, and what becomes of one that can't be had at once.
pub trait Locks<M: Machine>: Send + Sync + 'static {
    /// Name, paper, promise, of two-phase locking with these locks.
    const INFO: Info;
    /// Metadata words of a cell, 1 or more.
    const META_WORDS: usize;
    /// What can be tuned.
    type Options: Options;
    /// Deliberate bugs.
    type Faults: Faults;
    /// A worker's own state.
    type Local: Send + 'static;
    /// What a holder keeps of a lock.
    type Handle: Copy + Send + std::fmt::Debug + 'static;

    /// The shared state.
    fn new(options: Self::Options) -> Self;

    /// There will be workers of numbers below `workers`.
    fn prepare(&mut self, workers: usize) {
        let _ = workers;
    }

    /// The state of a worker.
    fn local(&self, worker: usize) -> Self::Local;

    /// Sets the metadata of a cell that nobody else sees yet: free, or held by the transaction that is going to [`Locks::adopt`] it.
    fn init(cell: Cell<M>, flags: u64, held: bool);

    /// A transaction begins.
    fn begin(&self, local: &mut Self::Local) {
        let _ = local;
    }

    /// The transaction holds this new cell exclusively.
    fn adopt(&self, local: &mut Self::Local, cell: Cell<M>) -> Self::Handle;

    /// Asks for a lock on a cell that the transaction does not hold.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn lock(&self, local: &mut Self::Local, cell: Cell<M>, held: Held) -> Result<Asked<Self::Handle>, Abort>;

    /// Asks for the exclusive lock on a cell that the transaction holds shared.
    ///
    /// # Errors
    /// The transaction has to abort; it still holds its share.
    fn upgrade(&self, local: &mut Self::Local, cell: Cell<M>, handle: Self::Handle) -> Result<(), Abort>;

    /// All locks are held, and the transaction is going to commit.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn commit_point(&self, local: &mut Self::Local) -> Result<(), Abort> {
        let _ = local;
        Ok(())
    }

    /// Gives a lock back.
    fn unlock(&self, local: &mut Self::Local, cell: Cell<M>, held: Held, handle: Self::Handle);

    /// The transaction has ended, and holds nothing any more: for good, or to be tried again.
    fn end(&self, local: &mut Self::Local, for_good: bool) {
        let _ = (local, for_good);
    }

    /// The flags of a cell that the caller holds.
    fn flags(cell: Cell<M>) -> u64;

    /// Changes the flags of a cell that the caller holds exclusively; what they were.
    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64;

    /// Holds a cell exclusively if nobody holds it or waits for it, for a moment and in nobody's name; its flags.
    fn seize(cell: Cell<M>) -> Option<u64>;

    /// Ends that, and changes the flags.
    fn let_go(cell: Cell<M>, clear: u64, set: u64);
}

/// Two-phase locking with these locks.
#[derive(Debug)]
pub struct TwoPhase<L> {
    locks: L,
}

/// A lock that a transaction holds.
type Holding<M, H> = (Cell<M>, Held, H);

/// A worker's state: the locks that its transaction holds.
#[derive(Debug)]
pub struct TwoPhaseLocal<M: Machine, L: Locks<M>> {
    positions: AddressMap,
    holdings: Vec<Holding<M, L::Handle>>,
    locks: L::Local,
}

impl<M: Machine, L: Locks<M>> TwoPhaseLocal<M, L> {
    fn push(&mut self, cell: Cell<M>, held: Held, handle: L::Handle) {
        self.positions.push(cell.address());
        self.holdings.push((cell, held, handle));
    }
}

impl<L> TwoPhase<L> {
    /// Holds the cells of these groups, at least so; their flags, or `None` if the record is unlinked.
    #[inline(always)]
    fn hold<M: Machine>(
        &self,
        local: &mut TwoPhaseLocal<M, L>,
        at: At<'_, M>,
        groups: Groups,
        held: Held,
    ) -> Result<Option<u64>, Abort>
    where
        L: Locks<M>,
    {
        M::step(if held == Held::Shared { "lock shared" } else { "lock exclusive" });
        let wrong = L::Faults::WRITE_WRONG_CELL && held == Held::Exclusive;
        match at.only_cell(groups).filter(|_| !wrong) {
            Some(cell) => self.hold_cells(local, std::iter::once(cell), held),
            None if wrong => self.hold_cells(local, Self::wrong_cells(at, groups), held),
            None => self.hold_cells(local, at.cells(groups), held),
        }
    }

    #[inline(always)]
    fn hold_cells<M: Machine>(
        &self,
        local: &mut TwoPhaseLocal<M, L>,
        cells: impl Iterator<Item = Cell<M>>,
        held: Held,
    ) -> Result<Option<u64>, Abort>
    where
        L: Locks<M>,
    {
        let mut flags = 0;
        for cell in cells {
            if let Some(position) = local.positions.find(cell.address()) {
                let (_, has, handle) = &mut local.holdings[position];
                if held == Held::Exclusive && *has == Held::Shared {
                    self.locks.upgrade(&mut local.locks, cell, *handle)?;
                    *has = Held::Exclusive;
                }
                flags |= L::flags(cell);
                continue;
            }
            match self.locks.lock(&mut local.locks, cell, held)? {
                Asked::Unlinked => return Ok(None),
                Asked::Granted(handle, now) => {
                    flags |= now;
                    if L::Faults::RELEASE_SHARED_EARLY && held == Held::Shared {
                        self.locks.unlock(&mut local.locks, cell, held, handle);
                    } else {
                        local.push(cell, held, handle);
                    }
                }
            }
        }
        Ok(Some(flags))
    }

    /// Holds what the transaction will touch, in the order of addresses.
    fn hold_declared<M: Machine>(&self, cx: &mut Context<M>, local: &mut TwoPhaseLocal<M, L>) -> Result<(), Abort>
    where
        L: Locks<M>,
    {
        M::step("lock declared");
        let rows = if L::Faults::LOCK_AS_DECLARED { cx.declaration.rows() } else { cx.declaration.sorted_rows() };
        for row in rows {
            let held = if row.writes { Held::Exclusive } else { Held::Shared };
            // Should it be unlinked by now, the transaction will look the key up again.
            self.hold_cells(local, row.cells(), held)?;
        }
        Ok(())
    }

    /// The cells that [`Faults::WRITE_WRONG_CELL`] locks.
    fn wrong_cells<M: Machine>(at: At<'_, M>, groups: Groups) -> Cells<M> {
        if at.table.cell_count() == 1 || groups == Groups::ALL {
            return at.cells(groups);
        }
        let next = groups.into_iter().map(|group| (group as u32 + 1) % at.table.cell_count() as u32);
        at.cells(next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))))
    }

    /// Takes the locks of the updates that have waited for the commit. The others of the write set are held already.
    #[inline(always)]
    fn hold_merged<M: Machine>(&self, cx: &mut Context<M>, local: &mut TwoPhaseLocal<M, L>) -> Result<(), Abort>
    where
        L: Locks<M>,
    {
        for position in 0..cx.writes.len() {
            let merged = cx.writes.entries()[position].merged();
            if merged.is_empty() {
                continue;
            }
            if L::Faults::MERGE_BEFORE_LOCK {
                cx.writes.merge(position);
            }
            let write = &cx.writes.entries()[position];
            let at = At { table: write.table(), record: write.record };
            let flags = self.hold(local, at, merged, Held::Exclusive)?;
            if flags.is_none_or(|flags| flags & ABSENT != 0) {
                return Err(Abort::new(AbortReason::RecordGone));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn release_all<M: Machine>(&self, local: &mut TwoPhaseLocal<M, L>, for_good: bool)
    where
        L: Locks<M>,
    {
        M::step("release");
        for (cell, held, handle) in local.holdings.drain(..) {
            self.locks.unlock(&mut local.locks, cell, held, handle);
        }
        local.positions.clear();
        self.locks.end(&mut local.locks, for_good);
    }
}

impl<M: Machine, L: Locks<M>> Protocol<M> for TwoPhase<L> {
    const INFO: Info = L::INFO;
    type Options = L::Options;

    fn new(options: L::Options) -> Self {
        TwoPhase { locks: L::new(options) }
    }
}

impl<M: Machine, L: Locks<M>> Control<M> for TwoPhase<L> {
    type Local = TwoPhaseLocal<M, L>;

    fn info(&self) -> Info {
        L::INFO
    }

    fn meta_words(&self) -> usize {
        L::META_WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.locks.prepare(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        let (positions, holdings) = (AddressMap::default(), Vec::with_capacity(64));
        TwoPhaseLocal { positions, holdings, locks: self.locks.local(worker) }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        flags::initial(cells, initial, L::init);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.locks.begin(&mut local.locks);
        if L::INFO.needs == Needs::Rows { self.hold_declared(cx, local) } else { Ok(()) }
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        let Some(flags) = self.hold(local, at, columns.groups(), Held::Shared)? else {
            return Ok(Found::Unlinked);
        };
        cx.copy_row(at, columns);
        Ok(flags::found(flags))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort> {
        if mode == Mode::Merge {
            // A first look; the commit locks, and looks again.
            return if at.cells(groups).any(|cell| L::flags(cell) & (ABSENT | UNLINKED) != 0) {
                // A miss is held. Should the record have a row by now, holding it shared costs nothing but that.
                self.read(cx, local, at, Projection::columns(&[], groups))
            } else {
                Ok(Found::Row)
            };
        }
        let Some(flags) = self.hold(local, at, groups, Held::Exclusive)? else {
            return Ok(Found::Unlinked);
        };
        if flags & ABSENT != 0 {
            // A miss stays protected by the exclusive lock.
            cx.copy_row(at, Projection::EXISTENCE);
            return Ok(Found::Absent);
        }
        if matches!(mode, Mode::Modify | Mode::Delete) {
            cx.copy_row(at, Projection::of_groups(groups));
        }
        Ok(Found::Row)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        for cell in at.cells(Groups::ALL) {
            let handle = self.locks.adopt(&mut local.locks, cell);
            local.push(cell, Held::Exclusive, handle);
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, _: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !L::Faults::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        if L::Faults::VALIDATE_BEFORE_LOCKS {
            cx.nodes.validate()?;
            cx.nodes.clear();
        }
        self.hold_merged(cx, local)?;
        if !cx.nodes.is_empty() {
            M::step("validate");
            // SeqCst: own inserts into the index come before the look at others' leaves (two transactions, each inserting
            // where the other has scanned: at least one sees the other's insert). Pairs with itself.
            dekker_fence::<M, L::Faults>();
            cx.nodes.validate()?;
        }
        cx.writes.apply_updates();
        self.locks.commit_point(&mut local.locks)?;
        M::step("install");
        for position in 0..cx.writes.len() {
            flags::install_held(cx, position, L::set_flags);
        }
        self.release_all(local, true);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        if L::Faults::KEEP_ABORTED_INSERTS {
            for write in cx.writes.entries().iter().filter(|write| write.fresh) {
                write.cells().for_each(|cell| _ = L::set_flags(cell, ABSENT, 0));
            }
        }
        self.release_all(local, !reason.is_conflict());
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        if L::Faults::UNLINK_LOCKED {
            let change = |cell, clear, set| _ = L::set_flags(cell, clear, set);
            return flags::unlink_held(tombstone, |cell| Some(L::flags(cell)), change);
        }
        flags::unlink_held(tombstone, L::seize, L::let_go)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        L::flags(record.first_cell()) & ABSENT != 0
    }
}

/// What the protocols of this family have in common in their entries of the list.
pub(crate) const fn info(name: &'static str, summary: &'static str, paper: &'static str) -> Info {
    Info { name, summary, paper, isolation: Isolation::Serializable, needs: Needs::Nothing }
}
