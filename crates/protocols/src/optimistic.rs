//! What protocols that read first and lock at commit have in common: the flags of a cell's word, the optimistic read, the locks of a
//! commit, placeholders and tombstones.
//!
//! **The word** of a cell (a record, or, with timestamp splitting, a group of its columns) is a version, which is the protocol's, above
//! the flags of [`crate::flags`], in which a committing writer has set the lock.
//!
//! Lock and queued bit are not part of what a reader observes; the rest is. A write of some columns writes their cells only.

use contend_engine::journal::{STAMP_SHIFT, Stamp};
use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Context, Found, GROUPS_MAX, Groups, Initial, Mode, Projection, Record,
    Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::Faults;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};

/// In an observation, of which the queued bit is no part: the lock that validation finds is this transaction's.
pub(crate) const OWN: u64 = QUEUED;
pub(crate) const FLAGS: u64 = LOCKED | ABSENT | UNLINKED | QUEUED;
/// The version begins with this bit.
pub(crate) const VERSION_SHIFT: u32 = 4;

/// How often a wait is prolonged before it ends in an abort: some milliseconds, far longer than any write phase, unless its thread
/// has lost its core.
pub(crate) const WAITS_MAX: u32 = 10_000;

/// What a reader observes of a word.
#[inline(always)]
pub(crate) fn observed(word: u64) -> u64 {
    word & !(LOCKED | QUEUED)
}

/// What a transaction has read, and what its commit has locked.
#[derive(Debug)]
pub struct Footprint<M: Machine> {
    /// The cells read, each with what was observed; [`OWN`] in it says that the transaction writes the cell, too.
    pub(crate) reads: Vec<(Cell<M>, u64)>,
    /// The cells that the commit has locked; of each record the first cell before the others.
    pub(crate) locked: Vec<Cell<M>>,
    /// Whether they are sorted by their addresses.
    sorted: bool,
    /// Looks at records that others were writing.
    pub(crate) extra_looks: u32,
}

impl<M: Machine> Default for Footprint<M> {
    fn default() -> Self {
        Footprint { reads: Vec::with_capacity(64), locked: Vec::with_capacity(64), sorted: false, extra_looks: 0 }
    }
}

impl<M: Machine> Footprint<M> {
    /// A transaction begins.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.locked.clear();
        self.sorted = false;
        self.extra_looks = 0;
    }

    /// The newest version that was read.
    #[inline(always)]
    pub(crate) fn newest_read(&self) -> u64 {
        self.reads.iter().map(|&(_, observation)| observation & !FLAGS).fold(0, u64::max)
    }

    /// Whether this commit has locked the cell.
    #[inline(never)]
    pub(crate) fn has_locked(&mut self, cell: Cell<M>) -> bool {
        const LINEAR_MAX: usize = 16;
        if self.locked.len() <= LINEAR_MAX {
            return self.locked.iter().any(|locked| locked.address() == cell.address());
        }
        if !std::mem::replace(&mut self.sorted, true) {
            self.locked.sort_unstable_by_key(|locked| locked.address());
        }
        self.locked.binary_search_by_key(&cell.address(), |locked| locked.address()).is_ok()
    }

    /// Reads a record when nobody writes it, and remembers what was observed. `waits` is asked before each further look, with the word
    /// and how often it was asked before, whether to go on waiting.
    #[inline(always)]
    pub(crate) fn observe(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        waits: impl Fn(u64, u32) -> bool,
    ) -> Result<Found, Abort> {
        if let Some(cell) = at.only_cell(columns.groups()) {
            return self.observe_cells::<1>(cx, at, columns, std::iter::once(cell), waits);
        }
        self.observe_cells::<GROUPS_MAX>(cx, at, columns, at.cells(columns.groups()), waits)
    }

    /// Copies a row when nobody writes these of its cells, `N` at most: the optimistic read.
    #[inline(always)]
    fn observe_cells<const N: usize>(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        cells: impl Iterator<Item = Cell<M>> + Clone,
        waits: impl Fn(u64, u32) -> bool,
    ) -> Result<Found, Abort> {
        M::step("read");
        let mut spin = Spin::<M>::new();
        loop {
            let (mut observations, mut flags) = ([0; N], 0);
            for (observation, cell) in observations.iter_mut().zip(cells.clone()) {
                // Acquire: pairs with the Release of `install_all`; the row read next is at least as new as the word.
                let word = cell.word().load(Ordering::Acquire);
                (*observation, flags) = (observed(word), flags | word);
            }
            if flags & LOCKED == 0 {
                cx.copy_row(at, columns);
                M::step("check");
                // Acquire: the copy comes before the second load of the words; pairs with the fence of a commit, which comes between
                // the locks and the stores to the rows: a copy that saw such a store also sees the lock.
                M::fence(Ordering::Acquire);
                // Relaxed: ordered by the fence.
                let now = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & !QUEUED;
                if cells.clone().zip(observations).all(|(cell, observation)| now(cell) == observation) {
                    let found = flags::found(flags);
                    if found != Found::Unlinked {
                        for (cell, observation) in cells.zip(observations) {
                            self.reads.push((cell, observation));
                        }
                    }
                    return Ok(found);
                }
            }
            if spin.count() > WAITS_MAX || !waits(flags, spin.count()) {
                return Err(Abort::new(AbortReason::ReadLocked));
            }
            spin.wait();
            self.extra_looks += 1;
        }
    }

    /// A write is going to be: reads the record where the mode wants that. `own` says that the commit will lock what is read here.
    #[inline(always)]
    pub(crate) fn prepare_write(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
        own: bool,
        waits: impl Fn(u64, u32) -> bool,
    ) -> Result<Found, Abort> {
        // The lock is taken at commit, but its line may as well come for writing at once.
        at.record.prefetch_to_write();
        match mode {
            Mode::Blind | Mode::Merge => {
                // Relaxed: a first look; locking looks again.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if at.cells(groups).any(gone) {
                    // A miss is observed. Should the record have a row by now, having read it costs nothing but the read.
                    return self.observe(cx, at, Projection::columns(&[], groups), waits);
                }
                Ok(Found::Row)
            }
            Mode::Modify | Mode::Delete => {
                let first = self.reads.len();
                let found = self.observe(cx, at, Projection::of_groups(groups), waits)?;
                if found == Found::Row && own {
                    self.reads[first..].iter_mut().for_each(|(_, observation)| *observation |= OWN);
                }
                Ok(found)
            }
            // The engine has just read that it is absent; validation will see whether it still is.
            Mode::Insert => Ok(Found::Absent),
        }
    }

    /// Observes the placeholder that the transaction has just put into the index, with `flags` by which `init` made it.
    pub(crate) fn observe_placeholder(&mut self, at: At<'_, M>, flags: u64) -> Result<(), Abort> {
        // The first cell tells for all: whoever gives the placeholder a row, or unlinks it, changes each.
        M::step("placeholder");
        let cell = at.record.first_cell();
        // Relaxed: the word as `init` left it, or as another has changed it; validation compares.
        let observation = observed(cell.word().load(Ordering::Relaxed));
        self.reads.push((cell, observation | OWN));
        if observation & FLAGS != flags {
            return Err(Abort::new(AbortReason::ReadValidation));
        }
        Ok(())
    }

    /// Locks a cell of a record that is to have a row by now, or not, waiting so often at most; the word before.
    #[inline(always)]
    pub(crate) fn lock(&mut self, cell: Cell<M>, needs_row: bool, waits_max: u32) -> Result<u64, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            // Relaxed: the exchange below decides.
            let word = cell.word().load(Ordering::Relaxed);
            if word & LOCKED != 0 {
                if spin.count() >= waits_max {
                    return Err(Abort::new(AbortReason::WriteLocked));
                }
                spin.wait();
                continue;
            }
            if word & UNLINKED != 0 || needs_row && word & ABSENT != 0 {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            // AcqRel: the Acquire pairs with the Release of the last unlock; the Release orders nothing that matters here.
            if cell.word().compare_exchange(word, word | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.locked.push(cell);
                return Ok(word);
            }
        }
    }

    /// Gives the locks back; nothing was written under them.
    pub(crate) fn unlock_all(&mut self) {
        M::step("unlock");
        // A record's first cell last, as in `install_all`.
        while let Some(cell) = self.locked.pop() {
            let word = cell.word();
            // Relaxed: nobody else changes the word of a locked cell. Release: as any unlock.
            word.store(word.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
        }
    }
}

/// The order of the loads of the epoch, and of those that validate, where the epoch orders commits.
///
/// A commit of a later epoch must not have to come before one of an earlier. Who reads or overwrites what a commit wrote has its epoch or a later
/// one, because the load of the epoch comes after. But two commits may be ordered by what one of them did not see: T1 has read a word (or the
/// version of a leaf) and T2 changes it. T2 locks the word, passes its fence, and loads the epoch. T1 loads the epoch, and then, validating, the
/// word, without the lock. Were T2's epoch the earlier, then these would each come before the next, in the order of all that is sequentially
/// consistent: T1's load of the epoch, its load of the word, which does not see the lock; T2's fence, which comes after the lock; and T1's load of the
/// epoch, which sees a later one than T2, after its fence. So all but the lock have to be SeqCst; loads of this order are the same
/// instructions as those of Acquire, on x86-64 and aarch64.
#[inline(always)]
pub(crate) fn order_of_epochs<F: Faults>() -> Ordering {
    if F::FORGET_ORDER_OF_EPOCHS { Ordering::Acquire } else { Ordering::SeqCst }
}

/// The epoch of a commit that holds its locks, and has passed its fence: see [`order_of_epochs`].
#[inline(always)]
pub(crate) fn epoch_of_commit<M: Machine, F: Faults>(cx: &Context<M>) -> u64 {
    if F::FORGET_ORDER_OF_EPOCHS { cx.current_epoch() } else { cx.epoch_in_order() }
}

/// Where a TID has its epoch; below is the number in it (Silo's paper, section 4.2).
pub(crate) const EPOCH_SHIFT: u32 = 32;

/// The epoch of a word whose version is a TID.
#[inline(always)]
pub(crate) fn epoch_of(word: u64) -> u64 {
    word >> EPOCH_SHIFT
}

/// A TID larger than all these versions, in this epoch.
///
/// # Errors
/// The epoch has no more.
#[inline(always)]
pub(crate) fn next_tid(newest: u64, epoch: u64) -> Result<u64, Abort> {
    // What was loaded in the epoch is older.
    let version = (newest + (1 << VERSION_SHIFT)).max(epoch << EPOCH_SHIFT | 1 << VERSION_SHIFT);
    if version >> EPOCH_SHIFT == epoch { Ok(version) } else { Err(Abort::new(AbortReason::EpochExhausted)) }
}

const _: () = assert!(EPOCH_SHIFT - VERSION_SHIFT == STAMP_SHIFT, "a TID without its flags is a stamp");

/// Installs every write, whose cells are locked, and unlocks them, with this TID as their version: among the records of a key TIDs grow from write to
/// write, because a tombstone leaves the index only when the epoch of its TID is over ([`unlink`]).
#[inline(always)]
pub(crate) fn install_as_tid<M: Machine>(
    cx: &mut Context<M>,
    cells_of: impl Fn(&Context<M>, usize) -> Cells<M>,
    tid: u64,
) {
    cx.writes.set_stamp(Stamp(tid >> VERSION_SHIFT));
    install_all(cx, cells_of, tid);
}

/// Installs every write, whose cells are locked, and unlocks them, with new versions.
#[inline(always)]
pub(crate) fn install_all<M: Machine>(
    cx: &mut Context<M>,
    cells_of: impl Fn(&Context<M>, usize) -> Cells<M>,
    version: u64,
) {
    cx.writes.apply_updates();
    M::step("install");
    for position in 0..cx.writes.len() {
        let cells = cells_of(cx, position);
        let kind = cx.writes.entries()[position].kind;
        if kind != WriteKind::Nothing {
            cx.writes.install(position);
        }
        let write = &mut cx.writes.entries_mut()[position];
        // The first cell last, because whoever unlinks the record looks at its lock only.
        for cell in cells.rev() {
            let is_first = cell.address() == write.record.first_cell().address();
            // Relaxed: nobody else changes the word of a locked cell.
            let old = cell.word().load(Ordering::Relaxed);
            let new = match kind {
                WriteKind::Insert if write.fresh => version,
                WriteKind::Update | WriteKind::Insert => version | old & QUEUED,
                WriteKind::Delete if is_first => {
                    write.collect = old & QUEUED == 0;
                    version | ABSENT | QUEUED
                }
                WriteKind::Delete => version | ABSENT,
                WriteKind::Nothing => old & !LOCKED,
            };
            // Release: the row comes before the word; pairs with the Acquire of `observe` and of `lock`.
            cell.word().store(new, Ordering::Release);
        }
    }
}

/// Sets a new record's words; a placeholder has these flags.
pub(crate) fn init<M: Machine>(cells: Cells<M>, initial: Initial, placeholder: u64) {
    for (number, cell) in cells.enumerate() {
        let word = match initial {
            Initial::Loaded => 0,
            // Whoever inserts it has it collected if it stays absent.
            Initial::Inserting if number == 0 => placeholder | QUEUED,
            Initial::Inserting => placeholder,
        };
        // Relaxed: the index publishes the record.
        cell.word().store(word, Ordering::Relaxed);
    }
}

/// Marks a tombstone as unlinked, if it still is one, it is old enough, and `may_go` says so of its word.
pub(crate) fn unlink<M: Machine, F: Faults>(tombstone: Tombstone<'_, M>, may_go: impl Fn(u64) -> bool) -> Unlink {
    M::step("unlink");
    let mut cells = tombstone.cells();
    let Some(first) = cells.next() else { return Unlink::Busy };
    // Acquire: pairs with the Release of `install_all`; the stamp is at least as new as the word. If it is newer, the exchange fails.
    let word = first.word().load(Ordering::Acquire);
    if word & LOCKED != 0 && !F::UNLINK_LOCKED || word & ABSENT != 0 && !(tombstone.stamp_is_over() && may_go(word)) {
        return Unlink::Busy;
    }
    let (new, outcome) = if word & ABSENT != 0 {
        (word | UNLINKED, Unlink::Marked { time: 0 })
    } else {
        (word & !QUEUED, Unlink::Alive)
    };
    // AcqRel: pairs with unlocks before, and with `lock` and `observe` after.
    if first.word().compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Unlink::Busy;
    }
    if outcome == (Unlink::Marked { time: 0 }) {
        // Nobody locks these: an insert locks the first cell before, and all others want a row.
        for cell in cells {
            // Release: pairs with the Acquire of `observe`.
            cell.word().fetch_or(UNLINKED, Ordering::Release);
        }
    }
    outcome
}

/// Whether the record has no row, asked when no transaction runs.
pub(crate) fn is_absent<M: Machine>(record: Record<M>) -> bool {
    // Acquire: pairs with the Release of `install_all`.
    record.first_cell().word().load(Ordering::Acquire) & ABSENT != 0
}
