//! What a cell's first word says of it, whatever the protocol: flags in the lowest bits, and what follows from them.
//!
//! | bit | meaning |
//! | --- | --- |
//! | 3 | queued: somebody will have the tombstone collected (first cell only) |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | locked, in the protocol's way |
//!
//! An insert or a delete changes all cells of a record, so that each tells whether there is a row.

use contend_engine::sets::WriteKind;
use contend_engine::{Cell, Cells, Context, Found, Initial, Tombstone, Unlink};
use contend_machine::Machine;

pub(crate) const LOCKED: u64 = 1;
pub(crate) const ABSENT: u64 = 1 << 1;
pub(crate) const UNLINKED: u64 = 1 << 2;
pub(crate) const QUEUED: u64 = 1 << 3;

/// The flags with which the cells of a new record begin, each with whether it is held: an inserted one is its transaction's.
pub(crate) fn initial<M: Machine>(cells: Cells<M>, initial: Initial, init: impl Fn(Cell<M>, u64, bool)) {
    for (number, cell) in cells.enumerate() {
        match initial {
            Initial::Loaded => init(cell, 0, false),
            Initial::Inserting if number == 0 => init(cell, ABSENT | QUEUED, true),
            Initial::Inserting => init(cell, ABSENT, true),
        }
    }
}

/// What an access came to that has met these flags.
#[inline(always)]
pub(crate) fn found(flags: u64) -> Found {
    match flags {
        _ if flags & UNLINKED != 0 => Found::Unlinked,
        _ if flags & ABSENT != 0 => Found::Absent,
        _ => Found::Row,
    }
}

/// Installs the write at this position, whose cells the transaction holds exclusively; `change` either clears
/// flags of a cell or sets some, and says what they were.
#[inline(always)]
pub(crate) fn install_held<M: Machine>(
    cx: &mut Context<M>,
    position: usize,
    change: impl Fn(Cell<M>, u64, u64) -> u64,
) {
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

/// Marks a tombstone as unlinked, if it still is one and old enough. `seize` holds a cell exclusively, if it can be had at once, and says its flags;
/// `let_go` ends that, clears flags and sets others.
pub(crate) fn unlink_held<M: Machine>(
    tombstone: Tombstone<'_, M>,
    seize: impl Fn(Cell<M>) -> Option<u64>,
    let_go: impl Fn(Cell<M>, u64, u64),
) -> Unlink {
    M::step("unlink");
    // All cells are held for a moment: a reader of any of them may rely on the key's absence.
    let cells = tombstone.cells();
    let mut is_absent = true;
    for (number, cell) in cells.clone().enumerate() {
        let Some(flags) = seize(cell) else {
            cells.take(number).for_each(|cell| let_go(cell, 0, 0));
            return Unlink::Busy;
        };
        is_absent &= flags & ABSENT != 0;
    }
    let (outcome, clear, set) = match is_absent {
        false => (Unlink::Alive, QUEUED, 0),
        true if tombstone.stamp_is_over() => (Unlink::Marked { time: 0 }, 0, UNLINKED),
        true => (Unlink::Busy, 0, 0),
    };
    cells.for_each(|cell| let_go(cell, clear, set));
    outcome
}
