//! Strict two-phase locking without waiting: a reader-writer word per record; who meets a conflict aborts.
//!
//! **Idea.** A transaction locks each record before it touches it, shared to read and exclusive to write, and holds all its locks to the
//! end. A lock that can't be had at once aborts the transaction that asks, so there is no deadlock and nothing to detect.
//!
//! **Papers.** K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger: "The notions of consistency and predicate locks in a database
//! system", CACM 1976. The policy NO_WAIT: P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems", ACM
//! Computing Surveys 1981; measured in X. Yu, G. Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring into the abyss", VLDB 2014.
//!
//! **Promises** serializability; and a transaction sees a consistent state of the records while it runs.
//!
//! **Metadata.** One word a cell: a record, or, with timestamp splitting, a group of its columns:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..4 | how many transactions hold the cell shared |
//! | 3 | queued: somebody will have the tombstone collected (first cell only) |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | held exclusively |
//!
//! While a cell is held exclusively its word belongs to the holder alone, so that it is released by a plain store. An insert or a delete
//! holds all cells of its record, so that each tells whether there is a row.
//!
//! **Commit point.** The validation of the leaves, when all locks are held.
//!
//! **Waits** for nothing.
//!
//! **Phantoms.** A key that is absent has nothing to lock. Misses and scans observe leaf versions, which are checked at commit while all
//! locks are held (the hybrid of locking and Silo's node sets). An insert holds its placeholder exclusively from birth.
//!
//! **Commit-time updates** take their locks at commit: the growing phase ends there, and what they change is held for a moment instead of
//! for the rest of the transaction.
//!
//! **Departures from the papers.** Writes are buffered and installed at commit, so an abort has nothing to undo. A blind write takes its
//! lock when it is announced, not at commit.
//!
//! **Options.** None yet.

use std::marker::PhantomData;

use contend_engine::sets::{AddressMap, WriteKind};
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Projection, Protocol, Record, Unlink, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

options! {
    /// There is nothing to choose.
    pub struct NoWaitOptions {}
}

/// Deliberate bugs, each off here. A test turns one on to show that the proof would find it; see [`Sound`].
pub trait Faults: Send + Sync + 'static {
    /// Shared locks are released right after the read.
    const RELEASE_SHARED_EARLY: bool = false;
    /// An exclusive lock is granted while others read.
    const IGNORE_READERS: bool = false;
    /// Misses and scans observe no leaf.
    const FORGET_GAPS: bool = false;
    /// A write of some columns locks the cell next to theirs.
    const LOCK_WRONG_CELL: bool = false;
    /// Commit-time updates are applied before their cells are locked.
    const MERGE_BEFORE_LOCK: bool = false;
    /// An insert that aborts leaves its placeholder behind as a row.
    const KEEP_ABORTED_INSERTS: bool = false;
}

/// No fault: the protocol as published.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}

/// The protocol.
#[derive(Debug)]
pub struct NoWait<F = Sound> {
    faults: PhantomData<fn() -> F>,
}

const EXCLUSIVE: u64 = 1;
const ABSENT: u64 = 1 << 1;
const UNLINKED: u64 = 1 << 2;
const QUEUED: u64 = 1 << 3;
/// One reader.
const READER: u64 = 1 << 4;
/// What is left of a word when nobody holds the cell.
const FLAGS: u64 = ABSENT | UNLINKED | QUEUED;

/// How a cell is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Shared,
    Exclusive,
}

/// A worker's state: the locks that its transaction holds.
#[derive(Debug)]
pub struct NoWaitLocal<M: Machine> {
    positions: AddressMap,
    locks: Vec<(Cell<M>, Held)>,
}

impl<M: Machine> Default for NoWaitLocal<M> {
    fn default() -> Self {
        NoWaitLocal { positions: AddressMap::default(), locks: Vec::with_capacity(64) }
    }
}

impl<M: Machine> NoWaitLocal<M> {
    fn push(&mut self, cell: Cell<M>, held: Held) {
        self.positions.push(cell.address());
        self.locks.push((cell, held));
    }
}

/// What asking for locks came to.
enum Lock {
    /// They are held; these are the cells' flags.
    Held(u64),
    /// The record is out of the index.
    Unlinked,
}

impl<F: Faults> NoWait<F> {
    /// Holds the cells of these groups shared, or still exclusively.
    #[inline(always)]
    fn lock_shared<M: Machine>(local: &mut NoWaitLocal<M>, at: At<'_, M>, groups: Groups) -> Result<Lock, Abort> {
        if let Some(cell) = at.only_cell(groups) {
            return Self::lock_cells_shared(local, std::iter::once(cell));
        }
        Self::lock_cells_shared(local, at.cells(groups))
    }

    #[inline(always)]
    fn lock_cells_shared<M: Machine>(
        local: &mut NoWaitLocal<M>,
        cells: impl Iterator<Item = Cell<M>>,
    ) -> Result<Lock, Abort> {
        M::step("lock shared");
        let mut flags = 0;
        for cell in cells {
            if local.positions.find(cell.address()).is_some() {
                // Relaxed: flags of a cell that is held don't change but by this transaction.
                flags |= cell.word().load(Ordering::Relaxed) & FLAGS;
                continue;
            }
            // A first guess instead of a load: a row that nobody holds. It saves a transfer of the line.
            let mut word = 0;
            loop {
                // Acquire: pairs with the Release of `release`: the row is seen as its last writer left it.
                match cell.word().compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) if now & EXCLUSIVE != 0 => return Err(Abort::new(AbortReason::ReadLocked)),
                    Err(now) if now & UNLINKED != 0 => return Ok(Lock::Unlinked),
                    Err(now) => word = now,
                }
            }
            flags |= word & FLAGS;
            if F::RELEASE_SHARED_EARLY {
                cell.word().fetch_sub(READER, Ordering::Release);
            } else {
                local.push(cell, Held::Shared);
            }
        }
        Ok(Lock::Held(flags))
    }

    /// Holds the cells of these groups exclusively.
    #[inline(always)]
    fn lock_exclusive<M: Machine>(local: &mut NoWaitLocal<M>, at: At<'_, M>, groups: Groups) -> Result<Lock, Abort> {
        if let Some(cell) = at.only_cell(groups).filter(|_| !F::LOCK_WRONG_CELL) {
            return Self::lock_cells_exclusive(local, std::iter::once(cell));
        }
        Self::lock_cells_exclusive(local, Self::cells_of(at, groups))
    }

    #[inline(always)]
    fn lock_cells_exclusive<M: Machine>(
        local: &mut NoWaitLocal<M>,
        cells: impl Iterator<Item = Cell<M>>,
    ) -> Result<Lock, Abort> {
        M::step("lock exclusive");
        let mut flags = 0;
        for cell in cells {
            let position = local.positions.find(cell.address());
            let own_share = match position.map(|position| local.locks[position].1) {
                Some(Held::Exclusive) => {
                    // Relaxed: the word is this transaction's.
                    flags |= cell.word().load(Ordering::Relaxed) & FLAGS;
                    continue;
                }
                Some(Held::Shared) => READER,
                None => 0,
            };
            let mut word = own_share;
            loop {
                let new = word - own_share + EXCLUSIVE;
                // Acquire: pairs with the Release of `release`: the row is as its last writer left it, and its readers are done.
                match cell.word().compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) if now & UNLINKED != 0 => return Ok(Lock::Unlinked),
                    Err(now) if now & !FLAGS == own_share => word = now,
                    Err(now) if F::IGNORE_READERS && now & EXCLUSIVE == 0 => word = now,
                    Err(_) => return Err(Abort::new(AbortReason::WriteLocked)),
                }
            }
            flags |= word & FLAGS;
            match position {
                Some(position) => local.locks[position].1 = Held::Exclusive,
                None => local.push(cell, Held::Exclusive),
            }
        }
        Ok(Lock::Held(flags))
    }

    /// Gives all locks back.
    #[inline(always)]
    fn release_all<M: Machine>(local: &mut NoWaitLocal<M>) {
        M::step("release");
        for (cell, held) in local.locks.drain(..) {
            let word = cell.word();
            match held {
                // Release: what was read was read before; pairs with the Acquire of `lock_exclusive`.
                Held::Shared => drop(word.fetch_sub(READER, Ordering::Release)),
                // There may be readers, whose shares stay.
                Held::Exclusive if F::IGNORE_READERS => drop(word.fetch_sub(EXCLUSIVE, Ordering::Release)),
                // Relaxed: the word is this transaction's. Release: the row comes before; pairs with the Acquire of the next lock.
                Held::Exclusive => word.store(word.load(Ordering::Relaxed) & FLAGS, Ordering::Release),
            }
        }
        local.positions.clear();
    }

    /// Changes the flags of a cell that this transaction holds exclusively.
    #[inline(always)]
    fn set_flags<M: Machine>(cell: Cell<M>, clear: u64, set: u64) {
        // Relaxed, all of them: `release_all` publishes the word.
        if F::IGNORE_READERS {
            cell.word().fetch_and(!clear, Ordering::Relaxed);
            cell.word().fetch_or(set, Ordering::Relaxed);
        } else {
            cell.word().store(cell.word().load(Ordering::Relaxed) & !clear | set, Ordering::Relaxed);
        }
    }

    /// The cells that are locked for a write of these groups.
    #[inline(always)]
    fn cells_of<M: Machine>(at: At<'_, M>, groups: Groups) -> Cells<M> {
        if F::LOCK_WRONG_CELL && at.table.cell_count() > 1 && groups != Groups::ALL {
            let next = groups.into_iter().map(|group| (group as u32 + 1) % at.table.cell_count() as u32);
            return at.cells(next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))));
        }
        at.cells(groups)
    }

    /// Takes the locks of the updates that have waited for the commit. The others of the write set are held already.
    #[inline(always)]
    fn lock_merges<M: Machine>(cx: &mut Context<M>, local: &mut NoWaitLocal<M>) -> Result<(), Abort> {
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let merged = write.merged();
            if merged.is_empty() {
                continue;
            }
            if F::MERGE_BEFORE_LOCK {
                cx.writes.merge(position);
            }
            let write = &cx.writes.entries()[position];
            let at = At { table: write.table(), record: write.record };
            match Self::lock_exclusive(local, at, merged)? {
                Lock::Held(flags) if flags & ABSENT == 0 => {}
                Lock::Held(_) | Lock::Unlinked => return Err(Abort::new(AbortReason::RecordGone)),
            }
        }
        Ok(())
    }

    /// Installs the write at this position, whose cells are held.
    #[inline(always)]
    fn install<M: Machine>(cx: &mut Context<M>, position: usize) {
        let kind = cx.writes.entries()[position].kind;
        if kind == WriteKind::Nothing {
            return;
        }
        cx.writes.install(position);
        if kind == WriteKind::Update {
            return;
        }
        let write = &mut cx.writes.entries_mut()[position];
        let first = write.record.first_cell();
        for cell in write.cells() {
            match kind {
                WriteKind::Delete => Self::set_flags(cell, 0, ABSENT),
                _ => Self::set_flags(cell, ABSENT, 0),
            }
        }
        // Relaxed: the word is this transaction's.
        let queued = first.word().load(Ordering::Relaxed) & QUEUED != 0;
        match kind {
            WriteKind::Delete => {
                write.collect = !queued;
                Self::set_flags(first, 0, QUEUED);
            }
            _ if write.fresh => Self::set_flags(first, QUEUED, 0),
            _ => {}
        }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for NoWait<F> {
    const INFO: Info = Info {
        name: "2pl-nowait",
        summary: "two-phase locking: a reader-writer lock per record, held to the end; a conflict aborts at once",
        paper: "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
        isolation: Isolation::Serializable,
    };
    type Options = NoWaitOptions;

    fn new(_: NoWaitOptions) -> Self {
        NoWait { faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for NoWait<F> {
    type Local = NoWaitLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn local(&self, _: usize) -> NoWaitLocal<M> {
        NoWaitLocal::default()
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        for (number, cell) in cells.enumerate() {
            let word = match initial {
                Initial::Loaded => 0,
                Initial::Inserting if number == 0 => EXCLUSIVE | ABSENT | QUEUED,
                Initial::Inserting => EXCLUSIVE | ABSENT,
            };
            // Relaxed: the index publishes the record.
            cell.word().store(word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, _: &mut Self::Local) {}

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        let Lock::Held(flags) = Self::lock_shared(local, at, columns.groups())? else {
            return Ok(Found::Unlinked);
        };
        cx.copy_row(at, columns);
        Ok(if flags & ABSENT == 0 { Found::Row } else { Found::Absent })
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
            // Relaxed: a first look; the commit locks, and looks again.
            let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
            return if at.cells(groups).any(gone) {
                // A miss is held. Should the record have a row by now, holding it shared costs nothing but that.
                self.read(cx, local, at, Projection::columns(&[], groups))
            } else {
                Ok(Found::Row)
            };
        }
        let Lock::Held(flags) = Self::lock_exclusive(local, at, groups)? else {
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
        // Born exclusive: `init`.
        for cell in at.cells(Groups::ALL) {
            local.push(cell, Held::Exclusive);
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, _: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        Self::lock_merges(cx, local)?;
        if !cx.nodes.is_empty() {
            M::step("validate");
            // SeqCst: own inserts into the index come before the look at others' leaves (two transactions, each inserting
            // where the other has scanned: at least one sees the other's insert). Pairs with itself.
            M::fence(Ordering::SeqCst);
            cx.nodes.validate()?;
        }
        M::step("install");
        for position in 0..cx.writes.len() {
            Self::install(cx, position);
        }
        Self::release_all(local);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        if F::KEEP_ABORTED_INSERTS {
            for write in cx.writes.entries().iter().filter(|write| write.fresh) {
                write.cells().for_each(|cell| Self::set_flags(cell, ABSENT, 0));
            }
        }
        Self::release_all(local);
    }

    fn unlink(&self, cells: Cells<M>) -> Unlink {
        M::step("unlink");
        // Relaxed: what was locked before is this thread's.
        let release = |cell: Cell<M>, set| {
            cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS | set, Ordering::Release);
        };
        // All cells are held for a moment: a reader of any of them may rely on the key's absence.
        let mut outcome = Unlink::Marked;
        for (number, cell) in cells.clone().enumerate() {
            // Relaxed: the exchange decides.
            let word = cell.word().load(Ordering::Relaxed);
            let free = word & !FLAGS == 0;
            // Acquire: as any lock.
            let held = free
                && cell.word().compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if !held {
                // Release: as any unlock.
                cells.take(number).for_each(|cell| release(cell, 0));
                return Unlink::Busy;
            }
            if word & ABSENT == 0 {
                outcome = Unlink::Alive;
            }
        }
        for cell in cells {
            if outcome == Unlink::Alive {
                Self::set_flags(cell, QUEUED, 0);
                release(cell, 0);
            } else {
                release(cell, UNLINKED);
            }
        }
        outcome
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        // Acquire: pairs with the Release of `release_all`.
        record.first_cell().word().load(Ordering::Acquire) & ABSENT != 0
    }
}
