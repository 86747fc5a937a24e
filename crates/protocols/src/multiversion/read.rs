//! The read of a row: which version a transaction reads, and whether that is still the right one at
//! its commit.
//!
//! **The read of a cell**, in the order of its steps (`read_cell`):
//!
//! 1. Wait for the write intents that the protocol waits for.
//! 2. Load the word. If its `wts` is later than the reader's time, follow the chain
//!    (`read_old_version`).
//! 3. Tell the protocol, which may raise the cell's `rts`. Then load the intent again.
//! 4. Copy the row, and load the word again. If it is the same, the copy is the version of step 2.
//!
//! Steps 2 and 4 are a seqlock: a writer sets the lock bit, passes a Release fence, stores the row,
//! and stores the new word with Release. If the copy has a word of the new row, the Acquire fence
//! between the copy and the second load makes that load see the lock bit, or a later word.
//!
//! Steps 1 and 3 exclude that a version is missed whose time is before the reader's. Its writer
//! placed its intent before it took that time, or before it looked at the `rts`. If the reader does
//! not see the intent, the writer sees the `rts` that the reader left, and aborts; or, in protocols
//! that leave none, the writer takes a later timestamp.

use contend_engine::{Abort, AbortReason, Cell, Context, Groups, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::WAITS_MAX;

use super::chain::{ChainedVersion, version_at};
use super::{NO_INTENT, VersionFaults, WORDS, intent_of, wts_of};

/// An entry of a read set: a cell, and the word of the version that was read.
pub(crate) type ReadEntry<M> = (Cell<M>, u64);

/// A version of a cell that was read.
pub(crate) enum ReadVersion<M: Machine> {
    /// The newest version at the time of the read.
    Newest(ReadEntry<M>),
    /// An old version of the cell.
    Old(Cell<M>, ChainedVersion<M>),
}

/// The point in time at which a transaction reads, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadView {
    /// The versions are those of this time.
    pub(crate) ts: u64,
    /// No old versions are kept: a transaction that needs one aborts.
    pub(crate) newest_only: bool,
    /// The reader waits for commits without a limit, instead of aborting.
    pub(crate) is_patient: bool,
    /// A deliberate bug: where a version was taken out of the chain, the next older one is read.
    pub(crate) ignore_gaps: bool,
}

impl ReadView {
    /// Returns the view of the state at `ts`.
    #[inline(always)]
    pub(crate) fn at<F: VersionFaults>(ts: u64) -> Self {
        // A reader that does not wait for a version of its time comes upon a gap where that version
        // is going to be.
        ReadView { ts, newest_only: false, is_patient: false, ignore_gaps: F::IGNORE_GAPS || F::IGNORE_PREWRITES }
    }
}

#[inline(always)]
fn cell_of<M: Machine>(at: Located<'_, M>, number: usize) -> Cell<M> {
    if at.table.cell_count() == 1 {
        return at.record.first_cell();
    }
    at.cells(Groups::of(number as u32)).next().expect("a cell of the record")
}

/// Reads a row as it is at the time of `view`.
///
/// `before_newest` is called with a cell before it is known whether its newest version is the one
/// to read; a protocol raises the `rts` there. `waits` says whether the reader waits for the
/// transaction of this intent. `on_read` gets each version that was read.
///
/// # Errors
/// A wait took too long, or the version of this time is gone.
#[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
#[inline(always)]
pub(crate) fn read_row<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    columns: Projection<'_>,
    view: ReadView,
    before_newest: impl Fn(Cell<M>),
    waits: impl Fn(u64) -> bool,
    mut on_read: impl FnMut(ReadVersion<M>),
) -> Result<RecordState, Abort> {
    M::step("read");
    let single = at.table.cell_count() == 1;
    let mut all = 0;
    for number in at.table.cell_numbers(columns.groups()) {
        let copy = |at: Located<'_, M>| if single { cx.copy_row(at, columns) } else { cx.copy_cell(at, number) };
        let (before_newest, waits) = (|cell: Cell<M>| before_newest(cell), |intent| waits(intent));
        all |= read_cell(at, number, view, before_newest, waits, copy, |version| on_read(version))?;
    }
    Ok(flags::found(all))
}

/// Has `copy` called with the version of a cell at the time of `view`, and returns its word.
#[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
#[inline(always)]
fn read_cell<M: Machine>(
    at: Located<'_, M>,
    number: usize,
    view: ReadView,
    before_newest: impl Fn(Cell<M>),
    waits: impl Fn(u64) -> bool,
    mut copy: impl FnMut(Located<'_, M>),
    mut on_read: impl FnMut(ReadVersion<M>),
) -> Result<u64, Abort> {
    let cell = cell_of(at, number);
    let mut spin = Spin::<M>::new();
    loop {
        // Before the rts is raised: a waiting reader must abort neither the writer that it waits
        // for nor those that come between.
        await_intents(cell, |intent| waits(intent), &mut spin, view.is_patient)?;
        // Acquire: pairs with the Release of `install_all`. The row and the links that are read
        // next are at least as new as the word.
        let word = cell.word().load(Ordering::Acquire);
        // The intent does not matter then: versions are installed in the order of their times, so a
        // writer before the reader's time comes too late. A late write that is let through ends the
        // old version early, and the validation notices.
        if wts_of(word) > view.ts && word & UNLINKED == 0 {
            return read_old_version(at, cell, number, view, copy, on_read);
        }
        before_newest(cell);
        // SeqCst: after the rts; pairs with the exchange of `WriteIntents::place`, which comes
        // before the writer's look at the rts (`raise_rts`). If an older writer has installed since
        // the word was loaded, and its intent is gone, the second load of the word tells.
        let intent = intent_of(cell).load(Ordering::SeqCst);
        if intent != NO_INTENT && waits(intent) {
            continue;
        }
        if word & LOCKED == 0 {
            copy(at);
            M::step("check");
            // Acquire: the copy comes before the second load of the word; pairs with the Release
            // fence of `install_all`.
            M::fence(Ordering::Acquire);
        }
        // SeqCst: after the rts; pairs with the store of `unlink`, which comes before its look at
        // the rts.
        let now = cell.word().load(Ordering::SeqCst);
        if now == word {
            if word & LOCKED == 0 {
                on_read(ReadVersion::Newest((cell, word)));
                return Ok(word);
            }
            // The holder of the intent is overwriting the row. It is younger than the reader, and
            // has linked the copy before it locked the word.
            if intent != NO_INTENT {
                return read_old_version(at, cell, number, view, copy, on_read);
            }
        }
    }
}

#[inline(never)]
fn read_old_version<M: Machine>(
    at: Located<'_, M>,
    cell: Cell<M>,
    number: usize,
    view: ReadView,
    mut copy: impl FnMut(Located<'_, M>),
    mut on_read: impl FnMut(ReadVersion<M>),
) -> Result<u64, Abort> {
    if view.newest_only {
        return Err(Abort::new(AbortReason::ReadValidation));
    }
    let before = (number * WORDS * size_of::<M::U64>()) as u64;
    loop {
        let Some(old) = version_at(cell, view.ts, view.ignore_gaps)? else { return Ok(ABSENT) };
        // SAFETY: the cell is in a copy of a record of this table, behind `number` other cells.
        let version = Located { table: at.table, record: unsafe { at.table.version(old.cell.address() - before) } };
        copy(version);
        M::step("check");
        // An absent version has no row, and its memory may hold anything.
        let is_poisoned =
            cfg!(debug_assertions) && old.word & ABSENT == 0 && at.table.is_poisoned(version.record, number);
        if old.is_there() {
            debug_assert!(!is_poisoned, "a version is read that has been given back");
            on_read(ReadVersion::Old(cell, old));
            return Ok(old.word);
        }
    }
}

/// Returns whether the version of a read set's entry is still the one that a new search at `ts`
/// finds.
///
/// If the caller has raised the `rts` to `ts` before, the answer stays true: no older version can
/// come any more.
///
/// # Errors
/// A wait took too long, or the chain does not say.
#[inline(always)]
pub(crate) fn is_still_visible<M: Machine>(
    (cell, word): ReadEntry<M>,
    ts: u64,
    waits: impl Fn(u64) -> bool,
) -> Result<bool, Abort> {
    // The intent before the word. The other way round, an older writer could install and give its
    // intent up between the two loads, and its version would be missed.
    await_intents(cell, waits, &mut Spin::new(), false)?;
    // SeqCst: after an rts that the caller has raised; pairs with the store of
    // `multiversion::unlink`, which comes before its look at the rts. And Acquire: pairs with the
    // Release of `install_all`; the copies are at least as new as the word.
    let mut now = cell.word().load(Ordering::SeqCst);
    if wts_of(now) > ts {
        // A younger transaction has overwritten some version: the one read, or a newer one.
        now = version_at(cell, ts, false)?.map_or(ABSENT, |old| old.word);
    }
    Ok((now ^ word) & !(LOCKED | QUEUED) == 0)
}

/// Waits until the cell has no intent that `waits` names.
///
/// # Errors
/// The wait took too long, and the caller is not patient.
#[inline(always)]
fn await_intents<M: Machine>(
    cell: Cell<M>,
    waits: impl Fn(u64) -> bool,
    spin: &mut Spin<M>,
    is_patient: bool,
) -> Result<(), Abort> {
    loop {
        // SeqCst: after an rts that the caller has raised; pairs with the exchange of
        // `WriteIntents::place` (`raise_rts`). And Acquire: pairs with the Release by which the
        // intent was given up; the word is then at least as new.
        let intent = intent_of(cell).load(Ordering::SeqCst);
        if intent == NO_INTENT || !waits(intent) {
            return Ok(());
        }
        if spin.count() > WAITS_MAX && !is_patient {
            return Err(Abort::new(AbortReason::LockTimeout));
        }
        spin.wait();
    }
}
