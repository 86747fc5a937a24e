//! Installing: how a commit stores its writes, and then the words of their cells, which unlocks
//! them.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Cells, Context};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::flags::{ABSENT, LOCKED, QUEUED};

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
            // Release: the row comes before the word. It pairs with the Acquire of a reader's first
            // load (step (a) of `ReadsAndLocks::observe`), so that no reader sees the new word and
            // copies the old row. And it pairs with the Acquire of `ReadsAndLocks::lock`, so that
            // the next writer's updates find this row.
            cell.word().store(new, Ordering::Release);
        }
    }
}
