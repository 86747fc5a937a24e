//! Snapshots for transactions that only read: the state at the end of an epoch, as in Silo.
//!
//! A transaction that begins in epoch `b` sees the state at the end of an epoch `s`, at most `b -
//! 2`. No transaction can commit in that epoch any more. Copies of committed versions hang on the
//! cell, the newest first. The payload itself may be uncommitted, so a cell has two words more:
//!
//! | word | meaning |
//! | --- | --- |
//! | 2 | the newest copy, or 0 |
//! | 3 | the epoch of the newest committed version, shifted left by one; bit 0 is set while the payload is uncommitted |
//!
//! A copy ([`CellCopy`]) has the epoch of its version in its own word, in the same place. Bit 0 is
//! set if there was no row.
//!
//! **When snapshots are kept.** A copy costs its memory, and two passes over the row. So by default
//! (`ic3.snapshots=needed`) none is made where no declared type reads a snapshot, nor where each
//! type has as many ordered steps without snapshots. When types come into force that do need
//! them, no transaction runs that can commit, and enough epochs pass first: all snapshots that
//! readers see then are at the end of the last epoch before, or later. A version of before may have
//! too small an epoch in word 3. It was committed before the first snapshot, so each shows it.
//!
//! **When a version is copied.** Let a step show a row over a version of epoch `e`, in a
//! transaction that began in epoch `b`. While the transaction runs, the global epoch is `b` or `b +
//! 1`, and so others see snapshots up to `b - 1`.
//!
//! - A committed version is copied at once if a snapshot from `e` to `b - 1` may show it. Otherwise
//!   no snapshot shows it before the transaction has ended.
//! - An uncommitted version of a transaction that began in epoch `b` or later is committed in such
//!   an epoch. No snapshot shows it before this one has ended.
//! - An uncommitted version of a transaction that began before `b` might be shown. The step waits
//!   until that transaction has left the list. This happens where the epoch has changed, and then
//!   once for each cell.
//! - At its commit, in epoch `c`, the transaction copies from what it has saved each version of an
//!   epoch before `c` that a snapshot shows and that has no copy yet.
//!
//! **The epoch of a commit** is loaded behind the wait for all predecessors, while the cells of
//! sums and appends are locked. So a transaction that comes after another has its epoch or a later
//! one. A transaction that commits in the epoch in which it began, over an uncommitted version,
//! leaves the epoch that this version's writer leaves: the order of the two does not matter. One
//! that commits in a later epoch waits until older writers have left the cell, before it copies
//! theirs.
//!
//! **An abort** takes its copies out of the chain again: what they are copies of stands in the
//! payload.

use contend_engine::{Abort, AbortReason, Cell, CellCopy, Context, Groups, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::step::StepCell;
use super::{Exposed, Ic3, Ic3Faults, Ic3Worker, KeepSnapshots};
use crate::accessors::{Accessor, Shown, list_of, lock, unlock};
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::pieces::plan::Plan;
use crate::snapshot::{Snapshots, link, read_copy};

/// Set in the word of the epoch while the payload is uncommitted.
const UNCOMMITTED: u64 = 1;
/// Set in the word of a copy, which has the epoch in the same place, if there was no row.
const COPIED_ABSENT: u64 = 1;
const EPOCH_SHIFT: u32 = 1;

/// What a look at a cell has found.
enum Look {
    /// The payload is what the snapshot shows, and has these flags.
    Shown(u64),
    /// What the snapshot shows is a copy. The newest one is at this address.
    Copied(u64),
    /// The cell has changed meanwhile.
    Changed,
    /// A step or a commit has locked the cell.
    Locked,
}

/// Returns the address of a cell's newest copy.
fn newest_copy<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: with snapshots a cell has four words (`Ic3::meta_words`).
    unsafe { cell.meta(2) }
}

/// Returns the word with the epoch of a cell's newest committed version.
fn epoch_word<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(3) }
}

fn epoch_of(word: u64) -> u64 {
    word >> EPOCH_SHIFT
}

fn cell_of<M: Machine>(at: Located<'_, M>, number: usize) -> Cell<M> {
    let mut cells = at.table.cells(at.record, Groups::of(number as u32));
    cells.next().expect("a record has the cells of its table")
}

/// The words of cells and copies.
pub(super) struct Kept;

impl Kept {
    /// Sets the words of a new cell.
    pub(super) fn init<M: Machine>(cell: Cell<M>) {
        // Relaxed, both: no other transaction sees the record yet; the index publishes it.
        newest_copy(cell).store(0, Ordering::Relaxed);
        epoch_word(cell).store(0, Ordering::Relaxed);
    }

    /// Returns the epoch of the newest committed version of a cell, which the caller has locked.
    pub(super) fn epoch<M: Machine>(cell: Cell<M>) -> u64 {
        // Relaxed: the caller has locked the cell.
        epoch_of(epoch_word(cell).load(Ordering::Relaxed))
    }

    /// Returns whether a snapshot before `epoch` shows the committed version of a cell, which the
    /// caller has locked. `flags` are that version's.
    fn needs_copy<M: Machine>(
        snapshots: Snapshots,
        cell: Cell<M>,
        flags: u64,
        epoch: u64,
        records_history: bool,
    ) -> bool {
        // Relaxed, here and below: the caller has locked the cell.
        let word = epoch_word(cell).load(Ordering::Relaxed) & !UNCOMMITTED;
        // A cell without versions is as absent as one that says so. But a recorded history wants to
        // know which transaction deleted the key before.
        let never_was = word == 0 && flags & ABSENT != 0 && !records_history;
        !never_was && snapshots.show(epoch_of(word), epoch)
    }

    /// Links a copy of what a cell held, whose contents are there. The caller has locked the cell,
    /// whose epoch is that of the copied version. `flags` are the version's.
    fn link<M: Machine>(cell: Cell<M>, copy: CellCopy<M>, flags: u64) {
        let is_absent = if flags & ABSENT != 0 { COPIED_ABSENT } else { 0 };
        // Relaxed: the caller has locked the cell.
        let epoch = epoch_word(cell).load(Ordering::Relaxed) & !UNCOMMITTED;
        link(newest_copy(cell), copy, epoch | is_absent);
    }

    /// Gives a cell, which the caller has locked, the epoch of a commit.
    fn commit<M: Machine>(cell: Cell<M>, epoch: u64) {
        // Relaxed, both: the caller has locked the cell; the unlock publishes the epoch.
        let word = epoch_word(cell).load(Ordering::Relaxed);
        epoch_word(cell).store(epoch << EPOCH_SHIFT | word & UNCOMMITTED, Ordering::Relaxed);
    }

    /// Notes whether a cell's payload is uncommitted: a running transaction has written it. The
    /// caller has locked the cell.
    fn note_uncommitted<M: Machine>(cell: Cell<M>) {
        let wrote = |other: &Accessor<M>| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID);
        let is_uncommitted = list_of(cell).iter().any(wrote);
        // Relaxed, both: the caller has locked the cell.
        let word = epoch_word(cell).load(Ordering::Relaxed) & !UNCOMMITTED;
        epoch_word(cell).store(word | u64::from(is_uncommitted), Ordering::Relaxed);
    }

    /// Reads a row as it was at the end of the epoch `snapshot`.
    #[inline(always)]
    pub(super) fn read<M: Machine, F: Ic3Faults>(
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        snapshot: u64,
    ) -> RecordState {
        M::step("read snapshot");
        let shown = match at.only_cell(columns.groups()) {
            // The usual case.
            Some(cell) => Self::look::<M, F>(cell, snapshot, || cx.copy_row(at, columns)),
            None => Look::Changed,
        };
        let flags = match shown {
            Look::Shown(flags) => flags,
            _ => Self::read_cells::<M, F>(cx, at, columns.groups(), snapshot),
        };
        // A record that is out of the index was deleted before all snapshots that any transaction
        // sees.
        flags::found(flags & !UNLINKED)
    }

    /// Reads cells as they were at the end of the epoch `snapshot`, and returns their flags.
    #[inline(never)]
    fn read_cells<M: Machine, F: Ic3Faults>(
        cx: &mut Context<M>,
        at: Located<'_, M>,
        groups: Groups,
        snapshot: u64,
    ) -> u64 {
        let numbers = at.table.cell_numbers(groups);
        numbers.into_iter().fold(0, |all, number| all | Self::read_cell::<M, F>(cx, at, number, snapshot))
    }

    /// Reads a cell as it was at the end of the epoch `snapshot`, and returns its flags.
    fn read_cell<M: Machine, F: Ic3Faults>(
        cx: &mut Context<M>,
        at: Located<'_, M>,
        number: usize,
        snapshot: u64,
    ) -> u64 {
        let mut spin = Spin::<M>::new();
        loop {
            match Self::look::<M, F>(cell_of(at, number), snapshot, || cx.copy_cell(at, number)) {
                Look::Shown(flags) => return flags,
                Look::Copied(first) => return Self::read_copy(cx, at, number, snapshot, first),
                Look::Changed => {}
                // A step is at work, or a commit; neither waits for readers of snapshots.
                Look::Locked => spin.back_off(),
            }
        }
    }

    /// Takes one look at what a cell held at the end of the epoch `snapshot`. If that is the
    /// payload, `copy` copies it.
    #[inline(always)]
    fn look<M: Machine, F: Ic3Faults>(cell: Cell<M>, snapshot: u64, copy: impl FnOnce()) -> Look {
        // Acquire: pairs with the Release of the last unlock: the row, the epoch and the links to
        // copies are at least as new as the word.
        let word = cell.word().load(Ordering::Acquire);
        if word & LOCKED != 0 {
            return Look::Locked;
        }
        // Acquire: the loads of the payload, or of the copies, come behind the load of the epoch.
        // If the epoch is newer than the word, its commit has left the payload as it was (then it
        // is the payload's), or the word has changed.
        let epoch = epoch_word(cell).load(Ordering::Acquire);
        let is_uncommitted = epoch & UNCOMMITTED != 0 && !F::show_uncommitted();
        let look = if is_uncommitted || epoch_of(epoch) > snapshot {
            // Acquire: pairs with the Release of `link`.
            Look::Copied(newest_copy(cell).load(Ordering::Acquire))
        } else {
            copy();
            Look::Shown(word)
        };
        // Acquire: pairs with the fence of a step, between its locks and its stores to the rows:
        // step (d) of `ReadsAndLocks::observe`. And an abort that takes a copy out of the chain
        // changes the word as well.
        M::fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        let is_as_before = cell.word().load(Ordering::Relaxed) & !QUEUED == word & !QUEUED;
        let trusts = F::trust_chains() && matches!(look, Look::Copied(_));
        if is_as_before || trusts { look } else { Look::Changed }
    }

    /// Reads a cell from the first of its copies, from the one at address `first` on, that the
    /// snapshot shows. Returns its flags.
    fn read_copy<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, number: usize, snapshot: u64, first: u64) -> u64 {
        match read_copy(cx, at, number, first, |word| epoch_of(word) <= snapshot) {
            Some(word) if word & COPIED_ABSENT == 0 => 0,
            _ => ABSENT,
        }
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Returns the snapshots for which transactions under this plan keep what they replace.
    #[inline(always)]
    pub(super) fn kept(&self, plan: Option<&Plan>) -> Option<Snapshots> {
        let keeps = match self.options.snapshots {
            KeepSnapshots::Off => false,
            KeepSnapshots::Needed => plan.is_some_and(|plan| plan.keeps_snapshots),
            KeepSnapshots::On => true,
        };
        keeps.then(|| Snapshots::every(self.options.snapshot_epochs))
    }

    /// Allocates a copy for each cell to be written, all of which are locked, if a snapshot before
    /// `epoch` shows what stands there and is committed. Nothing is linked yet.
    ///
    /// # Errors
    /// The machine has no more memory, or an older transaction of an earlier epoch has written a
    /// cell and not left it.
    pub(super) fn reserve_copies(
        &self,
        cx: &mut Context<M>,
        local: &mut Ic3Worker<M>,
        epoch: u64,
    ) -> Result<(), Abort> {
        let Some(snapshots) = local.kept else { return Ok(()) };
        let until = snapshots.needed_until(cx);
        for StepCell { cell, write, copy } in &mut local.cells {
            let Some((position, number)) = *write else { continue };
            // Relaxed, both: this transaction has locked the cell.
            let is_committed = epoch_word(*cell).load(Ordering::Relaxed) & UNCOMMITTED == 0 || F::copy_uncommitted();
            let flags = cell.word().load(Ordering::Relaxed);
            let records_history = cx.writes.entries()[position].table().records_history();
            if is_committed && Kept::needs_copy(snapshots, *cell, flags, epoch, records_history) {
                *copy = Some(cx.new_copy(position, number, until)?);
            }
            let wrote = |other: &&Accessor<M>| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID);
            let mut writers = list_of(*cell).iter().filter(wrote);
            let is_earlier = |other: &&Accessor<M>| other.began_in() < cx.began_in() && !F::forget_earlier_epochs();
            if let Some(older) = writers.find(is_earlier) {
                local.awaited = Some(older.owner());
                return Err(Abort::new(AbortReason::ReadLocked));
            }
        }
        Ok(())
    }

    /// Waits until the transaction has left its lists for which the last step has failed. Returns
    /// whether there was one.
    pub(super) fn wait_for_awaited(&self, local: &mut Ic3Worker<M>) -> bool {
        let Some(other) = local.awaited.take() else { return false };
        M::step("wait for an earlier epoch");
        let mut spin = Spin::<M>::new();
        // If this transaction is doomed meanwhile, its next try of the step finds out.
        while !self.progress.has_left(other) && local.member.wait(&self.progress, &mut spin, None).is_ok() {}
        true
    }

    /// Gives back the copies that were not linked.
    pub(super) fn free_copies(cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        // The last first, so that the memory of all serves again.
        for StepCell { copy, .. } in local.cells.iter_mut().rev() {
            copy.take().into_iter().for_each(|copy| cx.unmake_copy(copy));
        }
    }

    /// Links the copy of what an exposed cell has held, if it has one, and says that the payload is
    /// uncommitted. The caller has locked the cell.
    pub(super) fn keep_shown(cx: &Context<M>, exposed: &Exposed<M>, (kept, saved): (Option<Snapshots>, &[u64])) {
        if kept.is_none() {
            return;
        }
        if let Some(copy) = exposed.copy {
            let Shown { cell, start, flags, .. } = exposed.shown;
            cx.fill_copy(copy, &saved[start..]);
            Kept::link(cell, copy, flags);
        }
        // Relaxed, both: this transaction has locked the cell.
        let epoch = epoch_word(exposed.shown.cell);
        epoch.store(epoch.load(Ordering::Relaxed) | UNCOMMITTED, Ordering::Relaxed);
    }

    /// Loads the epoch of the commit, and allocates the copies that it may need: of late cells,
    /// which are locked, and of exposed ones. An exposed cell needs one only if the epoch has
    /// changed since the transaction began.
    ///
    /// # Errors
    /// The machine has no more memory.
    pub(super) fn prepare_commit(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        let Some(snapshots) = local.kept.filter(|_| !local.cells.is_empty() || !local.exposed.is_empty()) else {
            return Ok(());
        };
        let until = snapshots.needed_until(cx);
        local.epoch = cx.epoch_in_order();
        self.reserve_copies(cx, local, local.epoch)?;
        if local.epoch > cx.began_in() {
            for exposed in local.exposed.iter_mut().filter(|exposed| exposed.copy.is_none()) {
                exposed.late_copy = Some(cx.new_copy(exposed.shown.position, exposed.shown.number, until)?);
            }
        }
        Ok(())
    }

    /// Keeps what the late writes replace, and gives their cells, which are locked, the new epoch.
    pub(super) fn keep_late(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        if local.kept.is_none() {
            return;
        }
        for step in 0..local.cells.len() {
            let StepCell { cell, write, copy } = local.cells[step];
            let Some((position, number)) = write else { continue };
            if let Some(copy) = copy {
                local.cells[step].copy = None;
                cx.copy_present(position, number, copy);
                // Relaxed: this transaction has locked the cell.
                Kept::link(cell, copy, cell.word().load(Ordering::Relaxed));
            }
            Kept::commit(cell, local.epoch);
        }
    }

    /// Locks a cell of a transaction that has decided, and returns its word. If the transaction may
    /// have to copy what older writers have shown, these have left the list then.
    pub(super) fn lock_behind_older(&self, exposed: &Exposed<M>) -> u64 {
        loop {
            let Shown { cell, accessor, .. } = &exposed.shown;
            let word = lock(*cell);
            let older = list_of(*cell).older_writer(accessor);
            let Some(older) = older.filter(|_| exposed.late_copy.is_some()) else { return word };
            unlock(*cell, word);
            M::step("wait for older writer");
            let mut spin = Spin::<M>::new();
            // It has decided, as a predecessor, and leaves its lists behind its own older ones.
            while !self.progress.has_left(older) {
                spin.wait();
            }
        }
    }

    /// Commits what an exposed cell shows: keeps what it has replaced, and sets the cell's epoch.
    /// The caller has locked the cell.
    pub(super) fn commit_shown(
        cx: &mut Context<M>,
        exposed: &Exposed<M>,
        (kept, saved): (Option<Snapshots>, &[u64]),
        epoch: u64,
    ) {
        let Some(snapshots) = kept else { return };
        let Exposed { late_copy, shown: Shown { cell, position, start, flags, .. }, .. } = *exposed;
        if let Some(copy) = late_copy {
            let records_history = cx.writes.entries()[position].table().records_history();
            if Kept::needs_copy(snapshots, cell, flags, epoch, records_history) {
                cx.fill_copy(copy, &saved[start..]);
                Kept::link(cell, copy, flags);
            } else {
                cx.unmake_copy(copy);
            }
        }
        Kept::commit(cell, epoch);
    }

    /// Notes whether the payload of a cell, which the caller has locked, is uncommitted.
    pub(super) fn note_uncommitted(kept: Option<Snapshots>, cell: Cell<M>) {
        if kept.is_some() {
            Kept::note_uncommitted(cell);
        }
    }

    /// Takes back what an exposed cell has kept. The caller has locked the cell.
    pub(super) fn drop_shown(cx: &mut Context<M>, exposed: &Exposed<M>) {
        if let Some(copy) = exposed.late_copy {
            cx.unmake_copy(copy);
        }
        // A reader may have found a copy that is linked: its memory stays until it has ended.
        let Some(copy) = exposed.copy else { return };
        // Relaxed: this transaction has locked the cell, and made the copy. Release: as in `link`.
        newest_copy(exposed.shown.cell).store(copy.older().load(Ordering::Relaxed), Ordering::Release);
    }
}
