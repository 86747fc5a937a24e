//! The read of a row: which version a transaction reads, and whether that is still the right one at
//! its commit.
//!
//! **The read of a cell**, in the order of its steps (`newest_to_read`, `is_unchanged`):
//!
//! 1. Look at the intent: there must be none that the reader waits for.
//! 2. Load the word. Its version must not be locked, nor later than the reader's time.
//! 3. In `mvto` only: raise the cell's `rts`, and look at the intent again.
//! 4. Copy the row, and load the word again. If it is the same, the copy is the version of step 2.
//!
//! If one of these fails, `read_slowly` waits for intents, follows the chain of old versions, or
//! tries again.
//!
//! Steps 2 and 4 are a seqlock: a writer sets the lock bit, passes a Release fence, stores the row,
//! and stores the new word with Release. If the copy has a word of the new row, the Acquire fence
//! between the copy and the second load makes that load see the lock bit, or a later word.
//!
//! **No version before the reader's time is missed.** There are three kinds of readers:
//!
//! - Snapshots (`si`, `hekaton`, `ermia`). A writer with a timestamp up to the reader's announced
//!   that it draws it *before* it added to the counter from which the reader's time comes. So step
//!   1 sees the announcement, or a later value. A later value was stored after the writer's new
//!   word, which step 4 then loads. A look after step 4 would miss a writer that installs and gives
//!   its intent up between the two.
//! - `mvto`. The writer placed its intent before it looked at the `rts`. If the second look of step
//!   3 does not see the intent, the writer sees the `rts` that the reader left, and aborts; or it
//!   has installed by then, and step 4 tells. The look must come after the `rts`, else both could
//!   miss the other.
//! - `cicada`, `msto`. The commit looks again ([`is_still_visible`]); step 1 only makes a failure
//!   rarer.

use contend_engine::{Abort, AbortReason, Cell, Context, Groups, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::Sound;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::WAITS_MAX;

use super::chain::{ChainedVersion, version_at};
use super::snapshot::SnapshotFaults;
use super::{NO_INTENT, VersionFaults, WORDS, intent_of, raise_rts, wts_of};

/// An entry of a read set: a cell, and the word of the version that was read.
pub(crate) type ReadEntry<M> = (Cell<M>, u64);

/// A version of a cell that was read.
pub(crate) enum ReadVersion<M: Machine> {
    /// The newest version at the time of the read.
    Newest(ReadEntry<M>),
    /// An old version of the cell.
    Old(Cell<M>, ChainedVersion<M>),
    /// No version: the cell got its first row after the time of the read, or is about to.
    None,
}

/// The point in time at which a transaction reads, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadView {
    /// The versions are those of this time.
    ts: u64,
    /// The reader waits for transactions whose intents are at most this; 0: for none.
    last_awaited: u64,
    /// The reader leaves its time in the `rts` of each newest version that it reads.
    leaves_rts: bool,
    /// No old versions are kept: a transaction that needs one aborts.
    newest_only: bool,
    /// The reader waits for commits without a limit, instead of aborting.
    is_patient: bool,
    faults: ReadFaults,
}

/// The deliberate bugs of a read. They are values here, so that reads are compiled once for all
/// protocols.
#[derive(Clone, Copy, Debug)]
struct ReadFaults {
    ignore_gaps: bool,
    look_too_late: bool,
    look_before_rts: bool,
}

impl ReadView {
    #[inline(always)]
    fn new<F: VersionFaults>(ts: u64, last_awaited: u64) -> Self {
        // A reader that does not wait for a version of its time comes upon a gap where that version
        // is going to be.
        let faults = ReadFaults {
            ignore_gaps: F::ignore_gaps() || F::ignore_prewrites(),
            look_too_late: false,
            look_before_rts: false,
        };
        let last_awaited = if F::ignore_prewrites() { 0 } else { last_awaited };
        ReadView { ts, last_awaited, leaves_rts: false, newest_only: false, is_patient: false, faults }
    }

    /// The state at `ts`, which is final: every transaction up to this time has ended.
    #[inline(always)]
    pub(crate) fn of_final_state<F: VersionFaults>(ts: u64) -> Self {
        Self::new::<F>(ts, 0)
    }

    /// The state at the time `ts` of the reader itself, which waits for transactions with earlier
    /// timestamps.
    #[inline(always)]
    pub(crate) fn at<F: VersionFaults>(ts: u64) -> Self {
        Self::new::<F>(ts, ts.saturating_sub(1))
    }

    /// The state that the commits up to `last` leave; the reader waits for those that still
    /// install, and for those that are about to draw a timestamp.
    #[inline(always)]
    pub(crate) fn of_commits_to<F: SnapshotFaults>(last: u64) -> Self {
        let view = Self::new::<F>(last, last);
        ReadView { faults: ReadFaults { look_too_late: F::look_too_late(), ..view.faults }, ..view }
    }

    /// The same view, of a reader that leaves its time in the `rts` of what it reads.
    /// `look_before_rts` is a deliberate bug.
    #[inline(always)]
    pub(crate) fn leaving_rts<F: VersionFaults>(self, look_before_rts: bool) -> Self {
        let faults = ReadFaults { look_before_rts, ..self.faults };
        ReadView { leaves_rts: !F::forget_reads(), faults, ..self }
    }

    /// The same view. With `newest_only` there are no old versions, and a reader that needs one
    /// aborts.
    #[inline(always)]
    pub(crate) fn of_newest_only(self, newest_only: bool) -> Self {
        ReadView { newest_only, ..self }
    }

    /// The same view, of a reader that waits for commits without a limit if it `is_patient`.
    #[inline(always)]
    pub(crate) fn waiting_without_limit(self, is_patient: bool) -> Self {
        ReadView { is_patient, ..self }
    }

    /// Returns whether the reader waits for the transaction of this intent.
    #[inline(always)]
    fn awaits(&self, intent: u64) -> bool {
        // One comparison: `NO_INTENT` becomes the largest number.
        const { assert!(NO_INTENT == 0) }
        intent.wrapping_sub(1) < self.last_awaited
    }
}

/// Reads a row as it is at the time of `view`. `on_read` gets each version that was read, also that
/// there was none.
///
/// # Errors
/// A wait took too long, or the version of this time is gone.
#[inline(always)]
pub(crate) fn read_row<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    columns: Projection<'_>,
    view: ReadView,
    mut on_read: impl FnMut(ReadVersion<M>),
) -> Result<RecordState, Abort> {
    M::step("read");
    if at.table.cell_count() == 1 {
        let cell = at.record.first_cell();
        if let Some(word) = newest_to_read(cell, view) {
            cx.copy_row(at, columns);
            if is_unchanged(cell, word, view) {
                on_read(ReadVersion::Newest((cell, word)));
                return Ok(flags::found(word));
            }
        }
        let version = read_slowly(cx, at, columns, 0, view)?;
        return Ok(flags::found(word_of(version, on_read)));
    }
    let (groups, mut all) = (columns.groups(), 0);
    for (number, cell) in at.table.cell_numbers(groups).into_iter().zip(at.cells(groups)) {
        if let Some(word) = newest_to_read(cell, view) {
            cx.copy_cell(at, number);
            if is_unchanged(cell, word, view) {
                on_read(ReadVersion::Newest((cell, word)));
                all |= word;
                continue;
            }
        }
        all |= word_of(read_slowly(cx, at, columns, number, view)?, &mut on_read);
    }
    Ok(flags::found(all))
}

/// Notes a version, and returns its word.
#[inline(always)]
fn word_of<M: Machine>(version: ReadVersion<M>, on_read: impl FnOnce(ReadVersion<M>)) -> u64 {
    let word = match &version {
        ReadVersion::Newest((_, word)) => *word,
        ReadVersion::Old(_, old) => old.word,
        ReadVersion::None => ABSENT,
    };
    on_read(version);
    word
}

/// Returns the word of a cell whose newest version is the one at the time of `view`. `None`: that
/// is not known at once. The caller copies the row, and then asks [`is_unchanged`].
#[inline(always)]
fn newest_to_read<M: Machine>(cell: Cell<M>, view: ReadView) -> Option<u64> {
    // Acquire: pairs with the Release by which an intent was given up (`truncate`); the word is
    // then at least as new. That the intent of a commit up to the reader's time is seen at all
    // follows from the load of the counter (`CommitCounter::latest`).
    let intent = intent_of(cell).load(Ordering::Acquire);
    // A waiting reader leaves no `rts`: that would abort the writer that it waits for, and those
    // that come between.
    if view.awaits(intent) && !view.faults.look_too_late {
        return None;
    }
    // Acquire: pairs with the Release of `install_all`. The row and the links that are read next
    // are at least as new as the word.
    let word = cell.word().load(Ordering::Acquire);
    if word & LOCKED != 0 || is_after(word, view) {
        return None;
    }
    if view.leaves_rts {
        // SeqCst: after the rts; pairs with the exchange of `WriteIntents::place`, which comes
        // before the writer's look at the rts (`raise_rts`). If an older writer has installed since
        // the word was loaded, and its intent is gone, the second load of the word tells.
        let is_free = || !view.awaits(intent_of(cell).load(Ordering::SeqCst));
        let looked_early = view.faults.look_before_rts && is_free();
        raise_rts::<M, Sound>(cell, view.ts);
        if !looked_early && !is_free() {
            return None;
        }
    }
    Some(word)
}

/// Returns whether the row that was copied is of the version with this word.
#[inline(always)]
fn is_unchanged<M: Machine>(cell: Cell<M>, word: u64, view: ReadView) -> bool {
    M::step("check");
    // Acquire: the copy comes before the second load of the word; pairs with the Release fence of
    // `install_all`.
    M::fence(Ordering::Acquire);
    // SeqCst: after the rts, if the reader has left one; pairs with the store of `unlink`, which
    // comes before its look at the rts.
    let is_same = cell.word().load(Ordering::SeqCst) == word;
    if view.faults.look_too_late {
        // Acquire: as in `newest_to_read`.
        return is_same && !view.awaits(intent_of(cell).load(Ordering::Acquire));
    }
    is_same
}

/// Returns whether the version of this word is later than the reader's time. The word of a record
/// that has left its index says nothing about the key any more, so the reader need not look at
/// older versions.
#[inline(always)]
fn is_after(word: u64, view: ReadView) -> bool {
    wts_of(word) > view.ts && word & UNLINKED == 0
}

/// Reads a cell whose newest version is not known to be the one to read.
#[cold]
#[inline(never)]
fn read_slowly<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    columns: Projection<'_>,
    number: usize,
    view: ReadView,
) -> Result<ReadVersion<M>, Abort> {
    let cell = at.cells(Groups::of(number as u32)).next().expect("a cell of the record");
    let mut copy = |at: Located<'_, M>| {
        if at.table.cell_count() == 1 { cx.copy_row(at, columns) } else { cx.copy_cell(at, number) }
    };
    let mut spin = Spin::<M>::new();
    loop {
        await_intents(cell, |intent| view.awaits(intent), &mut spin, view.is_patient)?;
        // Acquire: pairs with the Release of `install_all`; the links are at least as new as the
        // word.
        let word = cell.word().load(Ordering::Acquire);
        // The intent does not matter then: versions are installed in the order of their times, so a
        // writer before the reader's time comes too late. A late write that is let through ends the
        // old version early, and the validation notices.
        if is_after(word, view) || is_being_replaced(cell, word, view) {
            break;
        }
        if let Some(word) = newest_to_read(cell, view) {
            copy(at);
            if is_unchanged(cell, word, view) {
                return Ok(ReadVersion::Newest((cell, word)));
            }
        }
    }
    if view.newest_only {
        return Err(Abort::new(AbortReason::ReadValidation));
    }
    let before = (number * WORDS * size_of::<M::U64>()) as u64;
    loop {
        let Some(old) = version_at(cell, view.ts, view.faults.ignore_gaps)? else { return Ok(ReadVersion::None) };
        // SAFETY: the cell is in a copy of a record of this table, behind `number` other cells.
        let version = Located { table: at.table, record: unsafe { at.table.version(old.cell.address() - before) } };
        copy(version);
        M::step("check");
        // An absent version has no row, and its memory may hold anything.
        let is_poisoned =
            cfg!(debug_assertions) && old.word & ABSENT == 0 && at.table.is_poisoned(version.record, number);
        if old.is_there() {
            debug_assert!(!is_poisoned, "a version is read that has been given back");
            return Ok(ReadVersion::Old(cell, old));
        }
    }
}

/// Returns whether a writer that is younger than the reader has locked the word, which was loaded
/// with Acquire. Then the version to read has its copy in the chain: it was linked before.
///
/// That load pairs with the Release of the lock (`lock_cells`, `install_update`). So the intent
/// that is loaded here is that of the writer that has locked the word, or a later one. If it is a
/// later one, or none, the second load of the word finds a newer word.
fn is_being_replaced<M: Machine>(cell: Cell<M>, word: u64, view: ReadView) -> bool {
    // Acquire: the intent pairs with the Release of `truncate`, and so comes before the word. The
    // word's own order serves nothing: the links were acquired with its first load.
    word & LOCKED != 0
        && !matches!(intent_of(cell).load(Ordering::Acquire), intent if intent == NO_INTENT || view.awaits(intent))
        && cell.word().load(Ordering::Relaxed) == word
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
