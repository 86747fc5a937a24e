//! The flags in the lowest bits of a cell's first word, which are the same in all protocols, and
//! what follows from them.
//!
//! | bit | meaning |
//! | --- | --- |
//! | 3 | queued: a worker will have the tombstone collected (first cell only) |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | locked, in the protocol's way |
//!
//! An insert or a delete changes all cells of a record, so that each tells whether there is a row.
//!
//! The flags are in the word that a reader validates, or that it locks. So a reader that relied on
//! a flag finds another word at its validation, or its lock keeps the flag as it is.

use contend_engine::sets::WriteKind;
use contend_engine::{Cell, Cells, Context, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome};
use contend_machine::{Atomic64, Machine, Ordering};

/// The cell is locked, in the protocol's way.
pub const LOCKED: u64 = 1;
/// The record has no row: it is a placeholder, or a tombstone.
pub const ABSENT: u64 = 1 << 1;
/// The record is out of the index.
pub const UNLINKED: u64 = 1 << 2;
/// A worker has the tombstone in its queue, to collect it.
pub const QUEUED: u64 = 1 << 3;

/// Calls `init` for each cell of a new record, with the flags with which it begins, and whether the
/// transaction that inserts it holds it.
pub fn initial<M: Machine>(cells: Cells<M>, initial: RecordOrigin, init: impl Fn(Cell<M>, u64, bool)) {
    for (number, cell) in cells.enumerate() {
        match initial {
            RecordOrigin::Loaded => init(cell, 0, false),
            RecordOrigin::Inserting if number == 0 => init(cell, ABSENT | QUEUED, true),
            RecordOrigin::Inserting => init(cell, ABSENT, true),
        }
    }
}

/// Returns the outcome of an access that has met these flags.
#[inline(always)]
pub fn found(flags: u64) -> RecordState {
    match flags {
        _ if flags & UNLINKED != 0 => RecordState::Unlinked,
        _ if flags & ABSENT != 0 => RecordState::Absent,
        _ => RecordState::Row,
    }
}

/// Returns whether the record has no row. It is asked when no transaction runs.
pub(crate) fn is_absent<M: Machine>(record: Record<M>) -> bool {
    // Acquire: pairs with the Release with which a commit stores the word after the row.
    record.first_cell().word().load(Ordering::Acquire) & ABSENT != 0
}

/// Installs the write at `position`, whose cells the transaction holds exclusively. `change` clears
/// flags of a cell, or sets some, and returns the flags before. Readers wait for the lock (in
/// H-Store for that of the partition, under deterministic protocols for the phase or for the
/// transaction), so the order of row and flags does not matter to them: the
/// Release that gives the lock up publishes both.
#[inline(always)]
pub fn install_held<M: Machine>(cx: &mut Context<M>, position: usize, change: impl Fn(Cell<M>, u64, u64) -> u64) {
    let kind = cx.writes.entries()[position].kind;
    if kind == WriteKind::Nothing {
        return;
    }
    cx.writes.install(position);
    if kind == WriteKind::Update {
        return;
    }
    let write = &mut cx.writes.entries_mut()[position];
    let first = write.record.first_cell().address();
    for cell in write.cells() {
        match kind {
            WriteKind::Delete if cell.address() == first => {
                write.collect = change(cell, 0, ABSENT | QUEUED) & QUEUED == 0;
            }
            WriteKind::Delete => _ = change(cell, 0, ABSENT),
            _ if write.fresh => _ = change(cell, ABSENT | QUEUED, 0),
            _ => _ = change(cell, ABSENT, 0),
        }
    }
}

/// Returns whether a transaction may still run that must not miss a row that was deleted in epoch
/// `deleted_in`, in protocols that order transactions by timestamps. `oldest` is the oldest epoch
/// in which a running transaction began.
///
/// A transaction that begins in a later epoch has a later timestamp than the deletion, so it may
/// miss the row. One epoch more is slack: the deleting transaction draws its timestamp before it
/// loads the epoch.
pub(crate) fn may_be_missed(deleted_in: u64, oldest: u64) -> bool {
    deleted_in + 1 >= oldest
}

/// Marks a tombstone as unlinked, if it still is one and old enough. `try_acquire` acquires a cell
/// exclusively and returns its flags, or `None` if another holds the cell. `release` ends that, and
/// clears and then sets flags. No holder is waited for, so this can't be part of a deadlock.
pub fn unlink_held<M: Machine>(
    tombstone: Tombstone<'_, M>,
    try_acquire: impl Fn(Cell<M>) -> Option<u64>,
    release: impl Fn(Cell<M>, u64, u64),
) -> UnlinkOutcome {
    M::step("unlink");
    // All cells are held for a moment: a reader of any of them may rely on the key's absence.
    let cells = tombstone.cells();
    let mut is_absent = true;
    for (number, cell) in cells.clone().enumerate() {
        let Some(flags) = try_acquire(cell) else {
            cells.take(number).for_each(|cell| release(cell, 0, 0));
            return UnlinkOutcome::Busy;
        };
        is_absent &= flags & ABSENT != 0;
    }
    let (outcome, clear, set) = match is_absent {
        false => (UnlinkOutcome::Alive, QUEUED, 0),
        true if tombstone.counter_epoch_is_over() => (UnlinkOutcome::Marked { time: 0 }, 0, UNLINKED),
        true => (UnlinkOutcome::Busy, 0, 0),
    };
    cells.for_each(|cell| release(cell, clear, set));
    outcome
}

/// Sets the words of a new record; those of a placeholder have the flags `placeholder`.
pub(crate) fn init_words<M: Machine>(cells: Cells<M>, initial: RecordOrigin, placeholder: u64) {
    for (number, cell) in cells.enumerate() {
        let word = match initial {
            RecordOrigin::Loaded => 0,
            // The transaction that inserts the record has it collected if it stays absent.
            RecordOrigin::Inserting if number == 0 => placeholder | QUEUED,
            RecordOrigin::Inserting => placeholder,
        };
        // Relaxed: no other transaction sees the record yet. The index publishes it by the Release
        // of its insert, which pairs with the Acquire of a lookup.
        cell.word().store(word, Ordering::Relaxed);
    }
}
