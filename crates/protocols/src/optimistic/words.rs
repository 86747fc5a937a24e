//! The words of cells that only a committing writer changes: how they begin, how a commit installs
//! its writes under them, and how a tombstone is marked as unlinked.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Cells, Context, RecordOrigin, Tombstone, UnlinkOutcome};
use contend_machine::{Atomic64, Machine, Ordering};

use super::OptimisticFaults;
use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};

/// Sets the words of a new record; those of a placeholder have the flags `placeholder`.
pub(crate) fn init<M: Machine>(cells: Cells<M>, initial: RecordOrigin, placeholder: u64) {
    for (number, cell) in cells.enumerate() {
        let word = match initial {
            RecordOrigin::Loaded => 0,
            // The transaction that inserts the record has it collected if it stays absent.
            RecordOrigin::Inserting if number == 0 => placeholder | QUEUED,
            RecordOrigin::Inserting => placeholder,
        };
        // Relaxed: nobody else sees the record yet. The index publishes it by the Release of its
        // insert, which pairs with the Acquire of a lookup.
        cell.word().store(word, Ordering::Relaxed);
    }
}

/// Installs every write and unlocks its cells, with `version` as their new version. All cells that
/// `cells_of` returns are locked by this transaction.
#[inline(always)]
pub(crate) fn install_all<M: Machine>(cx: &mut Context<M>, cells_of: impl Fn(&Write<M>) -> Cells<M>, version: u64) {
    cx.writes.apply_updates();
    M::step("install");
    for position in 0..cx.writes.len() {
        let write = &cx.writes.entries()[position];
        let (cells, kind) = (cells_of(write), write.kind);
        if kind != WriteKind::Nothing {
            cx.writes.install(position);
        }
        let write = &mut cx.writes.entries_mut()[position];
        // The first cell last: a worker that unlinks the record looks at this cell's lock only.
        for cell in cells.rev() {
            let is_first = cell.address() == write.record.first_cell().address();
            // Relaxed: no other transaction changes the word of a locked cell, and this one's own
            // exchange has set it.
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
            // Release: the row comes before the word. Pairs with the Acquire of a reader's first
            // load (step (a) of `ReadsAndLocks::observe`), so that no reader sees the new word
            // and copies the old row; and with the Acquire of `ReadsAndLocks::lock`, so that the
            // next writer's updates find this row.
            cell.word().store(new, Ordering::Release);
        }
    }
}

/// Marks a tombstone as unlinked, if it still is one, no commit has locked it, its write counter's
/// epoch is over, and `may_go` agrees, given its word.
///
/// The engine takes it out of the index afterwards. A transaction that has read the tombstone
/// fails at validation, because the observed word lacks the bit; one that wants to lock it finds
/// the bit, and aborts.
pub(crate) fn unlink<M: Machine, F: OptimisticFaults>(
    tombstone: Tombstone<'_, M>,
    may_go: impl Fn(u64) -> bool,
) -> UnlinkOutcome {
    M::step("unlink");
    let mut cells = tombstone.cells();
    let Some(first) = cells.next() else { return UnlinkOutcome::Busy };
    // Acquire: pairs with the Release of `install_all`, so that the write counter read below is at
    // least as new as the word. If it is newer, the word has changed and the exchange fails.
    let word = first.word().load(Ordering::Acquire);
    let is_absent = word & ABSENT != 0;
    let is_young = is_absent && !(tombstone.counter_epoch_is_over() && may_go(word));
    if word & LOCKED != 0 && !F::UNLINK_LOCKED || is_young {
        return UnlinkOutcome::Busy;
    }
    let (new, outcome) = if is_absent {
        (word | UNLINKED, UnlinkOutcome::Marked { time: 0 })
    } else {
        (word & !QUEUED, UnlinkOutcome::Alive)
    };
    // AcqRel: the Acquire pairs with the Release of the last unlock, the Release with the Acquire
    // of `ReadsAndLocks::lock` and `observe`. The exchange succeeds only on the word that was
    // judged, so that no commit has come between.
    if first.word().compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return UnlinkOutcome::Busy;
    }
    if is_absent {
        // No commit locks these: an insert locks the first cell before, all others want a row.
        for cell in cells {
            // Release: pairs with the Acquire of `ReadsAndLocks::observe`.
            cell.word().fetch_or(UNLINKED, Ordering::Release);
        }
    }
    outcome
}
