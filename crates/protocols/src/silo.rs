//! Silo: optimistic concurrency control with epochs and invisible reads.
//!
//! **Idea.** A transaction reads without writing to shared memory and buffers what it writes. At commit it locks its write set, checks
//! that nothing it read has changed, and installs its writes under a transaction identifier (TID) that it computes from what it read: no
//! counter is shared by all. The TID's upper part is the global epoch, in which commits of different epochs are ordered.
//!
//! **Paper.** S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: "Speedy transactions in multicore in-memory databases", SOSP 2013.
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it aborts (no opacity).
//!
//! **Metadata.** One word a cell: a record, or, with timestamp splitting, a group of its columns:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..32 | epoch of the commit that wrote the version |
//! | 31..4 | sequence number in the epoch |
//! | 3 | queued: somebody will have the tombstone collected (first cell only) |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | locked by a committing writer |
//!
//! Lock and queued bit are not part of what a reader observes; the rest is. An insert or a delete writes all cells of a record, so that
//! each tells whether there is a row; a write of some columns writes their cells only.
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation.
//!
//! **Waits.** A reader waits for a writer's write phase. With `silo.wait=wait` a committing writer waits for locks, taken in the order of
//! addresses, so no cycle of waits can form; with `spin` it waits for a moment, in any order; with `nowait` it aborts. All waits are bounded
//! and end in an abort.
//!
//! **Commit-time updates** lock their cells like all writes, and are applied to what is there when the transaction is valid: nothing
//! was read, so nothing of them is validated but that there is a row.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated like reads. An insert puts an absent, *unlocked* placeholder
//! into the index at once: who meets it observes an absent record. (A placeholder that stays locked until commit lets two crossing
//! inserts and scans wait for each other.)
//!
//! **Departures from the paper.** No snapshots yet. The TID has no worker number; it is unique in a record's history, which is all that
//! validation needs. Tombstones are reused by an insert of the same key.
//!
//! **Defaults.** `silo.wait=spin`, the bounded try-lock of STO: where commit-time updates leave a hot record's lock as its only
//! contention, those that meet there need not abort, and nothing has to be sorted. The paper has `wait`, CCBench `nowait`.

use std::marker::PhantomData;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, GROUPS_MAX, Groups, Info, Initial, Isolation,
    Leaf, Mode, Projection, Protocol, Record, Unlink, option_choices, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

/// What a committing writer does about a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait for it, in the order of addresses.
    Wait,
    /// Wait as long as a short write phase takes, then abort.
    Spin,
    /// Abort.
    NoWait,
}

option_choices!(Wait { Wait => "wait", Spin => "spin", NoWait => "nowait" });

options! {
    /// Silo's options.
    pub struct SiloOptions {
        /// What a committing writer does about a lock that another holds: wait in address order, spin for a moment, or abort.
        "silo.wait" wait: Wait = Wait::Spin, in ();
    }
}

/// Deliberate bugs, each off here. A test turns one on to show that the proof would find it; see [`Sound`].
pub trait Faults: Send + Sync + 'static {
    /// Validation does not look whether a record that was read is being written.
    const IGNORE_LOCKS_IN_VALIDATION: bool = false;
    /// Records that were read and are also written are not validated.
    const SKIP_VALIDATION_OF_WRITTEN: bool = false;
    /// Cells that were read and are not written are not validated: write skew goes through, as under snapshot isolation.
    const FORGET_READ_ONLY: bool = false;
    /// Misses and scans observe no leaf.
    const FORGET_GAPS: bool = false;
    /// A placeholder looks like a committed row.
    const SHOW_PLACEHOLDERS: bool = false;
    /// A write of some columns locks and changes the cell next to theirs.
    const WRITE_WRONG_CELL: bool = false;
    /// Commit-time updates are applied before the cells are locked.
    const MERGE_BEFORE_LOCK: bool = false;
    /// A commit's TID need not be larger than those it has read and overwritten: one record can have one TID twice.
    const FORGET_OLDER_TIDS: bool = false;
}

/// No fault: the protocol as published.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}

/// The protocol.
#[derive(Debug)]
pub struct Silo<F = Sound> {
    options: SiloOptions,
    faults: PhantomData<fn() -> F>,
}

/// A TID word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tid(u64);

const LOCKED: u64 = 1;
const ABSENT: u64 = 1 << 1;
const UNLINKED: u64 = 1 << 2;
const QUEUED: u64 = 1 << 3;
/// In an observation, of which the queued bit is no part: the lock that validation finds is this transaction's.
const OWN: u64 = QUEUED;
const FLAGS: u64 = LOCKED | ABSENT | UNLINKED | QUEUED;
const SEQUENCE_SHIFT: u32 = 4;
const EPOCH_SHIFT: u32 = 32;

impl Tid {
    fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// What a reader observes.
    fn observed(self) -> u64 {
        self.0 & !(LOCKED | QUEUED)
    }

    /// Epoch and sequence number.
    fn version(self) -> u64 {
        self.0 & !FLAGS
    }
}

/// A worker's state.
#[derive(Debug)]
pub struct SiloLocal<M: Machine> {
    /// The cells read, each with what was observed; [`OWN`] in it says that the transaction writes the cell, too.
    reads: Vec<(Cell<M>, u64)>,
    /// The cells that the commit has locked; of each record the first cell before the others.
    locked: Vec<Cell<M>>,
    /// Whether they are sorted by their addresses.
    sorted: bool,
    /// The newest version that the commit will overwrite.
    overwritten: u64,
    /// The version of the worker's last commit.
    last: u64,
}

impl<M: Machine> Default for SiloLocal<M> {
    fn default() -> Self {
        let (reads, locked) = (Vec::with_capacity(64), Vec::with_capacity(64));
        SiloLocal { reads, locked, sorted: false, overwritten: 0, last: 0 }
    }
}

impl<M: Machine> SiloLocal<M> {
    /// Whether this commit has locked the cell.
    #[inline(never)]
    fn has_locked(&mut self, cell: Cell<M>) -> bool {
        const LINEAR_MAX: usize = 16;
        if self.locked.len() <= LINEAR_MAX {
            return self.locked.iter().any(|locked| locked.address() == cell.address());
        }
        if !std::mem::replace(&mut self.sorted, true) {
            self.locked.sort_unstable_by_key(|locked| locked.address());
        }
        self.locked.binary_search_by_key(&cell.address(), |locked| locked.address()).is_ok()
    }
}

/// How often a wait is prolonged before it ends in an abort: some milliseconds, far longer than any write phase, unless its thread
/// has lost its core.
const WAITS_MAX: u32 = 10_000;

/// Likewise with `silo.wait=spin`: 62 pauses, a microsecond or two, some write phases.
const SPINS_MAX: u32 = 10;

type Local<M> = SiloLocal<M>;

impl<F: Faults> Silo<F> {
    /// Reads a record, and remembers what was observed.
    #[inline(always)]
    fn observe<M: Machine>(
        cx: &mut Context<M>,
        local: &mut Local<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        if let Some(cell) = at.only_cell(columns.groups()) {
            return Self::observe_cells::<M, 1>(cx, local, at, columns, std::iter::once(cell));
        }
        Self::observe_cells::<M, GROUPS_MAX>(cx, local, at, columns, at.cells(columns.groups()))
    }

    /// Copies a row when nobody writes these of its cells, `N` at most: the optimistic read.
    #[inline(always)]
    fn observe_cells<M: Machine, const N: usize>(
        cx: &mut Context<M>,
        local: &mut Local<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        cells: impl Iterator<Item = Cell<M>> + Clone,
    ) -> Result<Found, Abort> {
        M::step("read");
        let mut spin = Spin::<M>::new();
        loop {
            let (mut observed, mut flags) = ([0; N], 0);
            for (observed, cell) in observed.iter_mut().zip(cells.clone()) {
                // Acquire: pairs with the Release of `install_all`; the row read next is at least as new as the word.
                let tid = Tid(cell.word().load(Ordering::Acquire));
                (*observed, flags) = (tid.observed(), flags | tid.0);
            }
            let flags = Tid(flags);
            if !flags.is(LOCKED) {
                cx.copy_row(at, columns);
                M::step("check");
                // Acquire: the copy comes before the second load of the words; pairs with the fence of `commit`, which comes
                // between the lock and the stores to the row: a copy that saw such a store also sees the lock.
                M::fence(Ordering::Acquire);
                // Relaxed: ordered by the fence.
                let now = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & !QUEUED;
                if cells.clone().zip(observed).all(|(cell, observed)| now(cell) == observed) {
                    if flags.is(UNLINKED) {
                        return Ok(Found::Unlinked);
                    }
                    for (cell, observed) in cells.zip(observed) {
                        local.reads.push((cell, observed));
                    }
                    return Ok(if flags.is(ABSENT) { Found::Absent } else { Found::Row });
                }
            }
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(AbortReason::ReadLocked));
            }
            spin.wait();
        }
    }

    /// The cells that the write at this position locks and changes.
    #[inline(always)]
    fn cells_of<M: Machine>(cx: &Context<M>, position: usize) -> Cells<M> {
        let write = &cx.writes.entries()[position];
        if F::WRITE_WRONG_CELL && write.table().cell_count() > 1 && write.groups() != Groups::ALL {
            let next = write.groups().into_iter().map(|group| (group as u32 + 1) % write.table().cell_count() as u32);
            return write.table().cells(write.record, next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))));
        }
        write.cells()
    }

    /// Locks a cell of a record that is to have a row by now, or not.
    #[inline(always)]
    fn lock<M: Machine>(&self, local: &mut Local<M>, cell: Cell<M>, needs_row: bool) -> Result<(), Abort> {
        let mut spin = Spin::<M>::new();
        let word = cell.word();
        loop {
            // Relaxed: the exchange below decides.
            let tid = Tid(word.load(Ordering::Relaxed));
            if tid.is(LOCKED) {
                let waits_max = match self.options.wait {
                    Wait::Wait => WAITS_MAX,
                    Wait::Spin => SPINS_MAX,
                    Wait::NoWait => 0,
                };
                if spin.count() >= waits_max {
                    return Err(Abort::new(AbortReason::WriteLocked));
                }
                spin.wait();
                continue;
            }
            if tid.is(UNLINKED) || needs_row && tid.is(ABSENT) {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            // AcqRel: the Acquire pairs with the Release of the last unlock; the Release orders nothing that matters here.
            if word.compare_exchange(tid.0, tid.0 | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                local.locked.push(cell);
                local.overwritten = local.overwritten.max(tid.version());
                return Ok(());
            }
        }
    }

    /// Checks that everything read is as it was.
    #[inline(always)]
    fn validate<M: Machine>(cx: &Context<M>, local: &mut Local<M>) -> Result<(), Abort> {
        M::step("validate");
        for read in 0..local.reads.len() {
            let (cell, observed) = local.reads[read];
            // Acquire: validation comes before the writes; and no load of it before the load of the epoch.
            let now = Tid(cell.word().load(Ordering::Acquire));
            if F::SKIP_VALIDATION_OF_WRITTEN && local.has_locked(cell) || F::FORGET_READ_ONLY && !local.has_locked(cell)
            {
                continue;
            }
            let locked_by_other =
                now.is(LOCKED) && observed & OWN == 0 && !F::IGNORE_LOCKS_IN_VALIDATION && !local.has_locked(cell);
            if now.observed() != observed & !OWN || locked_by_other {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
        }
        cx.nodes.validate()
    }

    /// The commit's TID: larger than all that the transaction has read and overwritten, and than the worker's last; in this epoch.
    #[inline(always)]
    fn next_version<M: Machine>(local: &Local<M>, epoch: u64) -> Result<u64, Abort> {
        let read = local.reads.iter().map(|&(_, observed)| Tid(observed).version());
        let older = read.chain([local.overwritten]).filter(|_| !F::FORGET_OLDER_TIDS);
        let newest = older.fold(local.last, u64::max);
        let version = (newest + (1 << SEQUENCE_SHIFT)).max(epoch << EPOCH_SHIFT);
        if version >> EPOCH_SHIFT == epoch { Ok(version) } else { Err(Abort::new(AbortReason::EpochExhausted)) }
    }

    /// Installs every write and unlocks its cells.
    #[inline(always)]
    fn install_all<M: Machine>(cx: &mut Context<M>, version: u64) {
        M::step("install");
        for position in 0..cx.writes.len() {
            let cells = Self::cells_of(cx, position);
            let kind = cx.writes.entries()[position].kind;
            if kind != WriteKind::Nothing {
                cx.writes.install(position);
            }
            let write = &mut cx.writes.entries_mut()[position];
            // The first cell last, because whoever unlinks the record looks at its lock only.
            for cell in cells.rev() {
                let is_first = cell.address() == write.record.first_cell().address();
                // Relaxed: nobody else changes the word of a locked cell.
                let old = Tid(cell.word().load(Ordering::Relaxed));
                let new = match kind {
                    WriteKind::Insert if write.fresh => version,
                    WriteKind::Update | WriteKind::Insert => version | old.0 & QUEUED,
                    WriteKind::Delete if is_first => {
                        write.collect = !old.is(QUEUED);
                        version | ABSENT | QUEUED
                    }
                    WriteKind::Delete => version | ABSENT,
                    WriteKind::Nothing => old.0 & !LOCKED,
                };
                // Release: the row comes before the word; pairs with the Acquire of `observe` and of `lock`.
                cell.word().store(new, Ordering::Release);
            }
        }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Silo<F> {
    const INFO: Info = Info {
        name: "silo",
        summary: "optimistic: invisible reads, validation at commit, epochs instead of a shared counter",
        paper: "Tu, Zheng, Kohler, Liskov, Madden: Speedy transactions in multicore in-memory databases, SOSP 2013",
        isolation: Isolation::Serializable,
    };
    type Options = SiloOptions;

    fn new(options: SiloOptions) -> Self {
        Silo { options, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Silo<F> {
    type Local = SiloLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn local(&self, _: usize) -> SiloLocal<M> {
        SiloLocal::default()
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        for (number, cell) in cells.enumerate() {
            let absent = if F::SHOW_PLACEHOLDERS { 0 } else { ABSENT };
            let word = match initial {
                Initial::Loaded => 0,
                Initial::Inserting if number == 0 => absent | QUEUED,
                Initial::Inserting => absent,
            };
            // Relaxed: the index publishes the record.
            cell.word().store(word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::Local) {
        local.reads.clear();
        local.locked.clear();
        local.sorted = false;
        local.overwritten = 0;
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        Self::observe(cx, local, at, columns)
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
        // The lock is taken at commit, but its line may as well come for writing at once.
        at.record.prefetch_to_write();
        match mode {
            Mode::Blind | Mode::Merge => {
                // Relaxed: a first look; locking looks again.
                let gone = |cell: Cell<M>| Tid(cell.word().load(Ordering::Relaxed)).is(ABSENT | UNLINKED);
                if at.cells(groups).any(gone) {
                    // A miss is observed. Should the record have a row by now, having read it costs nothing but the read.
                    return Self::observe(cx, local, at, Projection::columns(&[], groups));
                }
                Ok(Found::Row)
            }
            Mode::Modify | Mode::Delete => {
                let first = local.reads.len();
                let found = Self::observe(cx, local, at, Projection::of_groups(groups))?;
                if found == Found::Row && !F::WRITE_WRONG_CELL {
                    local.reads[first..].iter_mut().for_each(|(_, observed)| *observed |= OWN);
                }
                Ok(found)
            }
            // The engine has just read that it is absent; validation will see whether it still is.
            Mode::Insert => Ok(Found::Absent),
        }
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // The first cell tells for all: whoever gives the placeholder a row, or unlinks it, changes each.
        M::step("placeholder");
        let cell = at.record.first_cell();
        // Relaxed: the word as `init` left it, or as another has changed it; validation compares.
        let observed = Tid(cell.word().load(Ordering::Relaxed)).observed();
        local.reads.push((cell, observed | OWN));
        if observed != if F::SHOW_PLACEHOLDERS { 0 } else { ABSENT } {
            return Err(Abort::new(AbortReason::ReadValidation));
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
        if cx.writes.is_empty() {
            return Self::validate(cx, local);
        }
        // Phase 1: lock what is written.
        M::step("lock");
        let waits = self.options.wait == Wait::Wait;
        if waits {
            cx.writes.sort();
        }
        for rank in 0..cx.writes.len() {
            let position = if waits { cx.writes.sorted(rank) } else { rank };
            if F::MERGE_BEFORE_LOCK {
                cx.writes.merge(position);
            }
            let needs_row = cx.writes.entries()[position].needs_row();
            for cell in Self::cells_of(cx, position) {
                self.lock(local, cell, needs_row)?;
            }
        }
        // SeqCst: the locks come before the loads of validation, in one order for all (two transactions that each read what the
        // other writes: at least one sees the other's lock). And they come before the stores to the rows; pairs with the fence of
        // `stable_copy`.
        M::fence(Ordering::SeqCst);
        M::step("epoch");
        let epoch = cx.current_epoch();
        // Phase 2: check what was read.
        Self::validate(cx, local)?;
        // Phase 3: install.
        let version = Self::next_version(local, epoch)?;
        Self::install_all(cx, version);
        local.last = version;
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local) {
        M::step("unlock");
        // A record's first cell last, as in `install_all`.
        for cell in local.locked.drain(..).rev() {
            let word = cell.word();
            // Relaxed: nobody else changes the word of a locked cell. Release: as any unlock; nothing was written under the lock.
            word.store(word.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
        }
    }

    fn unlink(&self, mut cells: Cells<M>) -> Unlink {
        M::step("unlink");
        let Some(first) = cells.next() else { return Unlink::Busy };
        // Relaxed: the exchange decides.
        let tid = Tid(first.word().load(Ordering::Relaxed));
        if tid.is(LOCKED) {
            return Unlink::Busy;
        }
        let (new, outcome) =
            if tid.is(ABSENT) { (tid.0 | UNLINKED, Unlink::Marked) } else { (tid.0 & !QUEUED, Unlink::Alive) };
        // AcqRel: pairs with unlocks before, and with `lock` and `observe` after.
        if first.word().compare_exchange(tid.0, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Unlink::Busy;
        }
        if outcome == Unlink::Marked {
            // Nobody locks these: an insert locks the first cell before, and all others want a row.
            for cell in cells {
                // Release: pairs with the Acquire of `observe`.
                cell.word().fetch_or(UNLINKED, Ordering::Release);
            }
        }
        outcome
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        // Acquire: pairs with the Release of `install_all`.
        Tid(record.first_cell().word().load(Ordering::Acquire)).is(ABSENT)
    }
}
