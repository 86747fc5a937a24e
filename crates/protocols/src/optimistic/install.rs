//! Installing: how a commit stores its writes, and then the words of their cells, which unlocks
//! them.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Cells, Context};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::flags::{ABSENT, LOCKED, QUEUED};

/// Installs every write and unlocks its cells, with `version` as their new version. All cells that
/// `cells_of` returns are locked by this transaction.
///
/// Other transactions may see the writes of one cell before those of the next. That does no harm:
/// all cells were locked before the first is installed, and each is locked until its own new word
/// is stored. A transaction that has read a new row meets the lock of an older one, and waits or
/// fails validation. So it never commits with the new version of one cell and the old version of
/// another.
#[inline(always)]
pub(crate) fn install_all<M: Machine>(cx: &mut Context<M>, cells_of: impl Fn(&Write<M>) -> Cells<M>, version: u64) {
    // First, because an update is code of the application and may panic: until here an abort only
    // has to give the locks back.
    cx.writes.apply_updates();
    M::step("install");
    for position in 0..cx.writes.len() {
        let write = &cx.writes.entries()[position];
        let (cells, kind) = (cells_of(write), write.kind);
        if kind != WriteKind::Nothing {
            cx.writes.install(position);
        }
        if let Some(cell) = cells.only_first()
            && kind == WriteKind::Update
        {
            // The usual case. Relaxed and Release: as in `store_words`.
            let queued = cell.word().load(Ordering::Relaxed) & QUEUED;
            cell.word().store(version | queued, Ordering::Release);
            continue;
        }
        store_words(&mut cx.writes.entries_mut()[position], cells, version);
    }
}

/// Stores the new words of a write's cells, which unlocks them.
#[inline(never)]
fn store_words<M: Machine>(write: &mut Write<M>, cells: Cells<M>, version: u64) {
    // The first cell last: a worker that unlinks the record looks at this cell's lock only.
    for cell in cells.rev() {
        let is_first = cell.address() == write.record.first_cell().address();
        // Relaxed: no other transaction changes the word of a locked cell, and this one's own
        // exchange has set it.
        let old = cell.word().load(Ordering::Relaxed);
        let new = match write.kind {
            WriteKind::Insert if write.fresh => version,
            WriteKind::Update | WriteKind::Insert => version | old & QUEUED,
            WriteKind::Delete if is_first => {
                // The flag says that a worker answers for the tombstone: it has the tombstone
                // in its queue, or it runs the transaction that inserted the record. Only a
                // delete that finds the flag clear queues the record. So the record is in one
                // queue at a time, and its memory is freed once.
                write.collect = old & QUEUED == 0;
                version | ABSENT | QUEUED
            }
            WriteKind::Delete => version | ABSENT,
            WriteKind::Nothing => old & !LOCKED,
        };
        // Release: the row comes before the word. It pairs with the Acquire of a reader's first
        // load (step (a) of `ReadsAndLocks::observe`), so that no reader sees the new word and
        // copies the old row. And it pairs with the Acquire of `ReadsAndLocks::lock`, so that
        // the next writer's updates find this row.
        cell.word().store(new, Ordering::Release);
    }
}
