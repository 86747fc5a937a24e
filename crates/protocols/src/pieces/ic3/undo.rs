//! How an aborted transaction takes back what its steps have shown.

use contend_engine::Context;
use contend_machine::Machine;

use super::{Exposed, Ic3, Ic3Faults, Ic3Worker};
use crate::flags::{ABSENT, LOCKED, QUEUED};
use crate::optimistic::VERSION_SHIFT;
use crate::pieces::accessors::Accessor;

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Restores what was there before, the newest write first. Each later accessor of such a cell
    /// has seen the write, or has written on top of it: its access becomes void, and it is doomed.
    /// A read that is taken back dooms nobody: a later writer depends on the last writer as well.
    ///
    /// If the transaction's own access is void, an older write was rolled back past it, and there
    /// is nothing to restore.
    pub(super) fn undo(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        for exposed in local.exposed.iter().rev() {
            let Exposed { cell, accessor, position, number, start, flags, .. } = exposed;
            M::step("undo");
            let word = Self::lock(*cell);
            Self::drop_shown(cx, exposed);
            if accessor.is(Accessor::<M>::VOID) && !F::RESTORE_VOID {
                Self::unlock(*cell, word);
                continue;
            }
            // SeqCst: pairs with the fence of an optimistic read: the lock comes before the stores
            // to the row.
            M::fence(contend_machine::Ordering::SeqCst);
            cx.writes.restore(*position, *number, &local.saved[*start..]);
            accessor.make_void();
            for other in Self::list(*cell).newer_than(accessor).filter(|_| Self::aborts_cascade()) {
                other.make_void();
                self.progress.doom(other.owner());
            }
            self.note_uncommitted(*cell);
            let version = (word & !(ABSENT | QUEUED | LOCKED)) + (1 << VERSION_SHIFT);
            Self::unlock(*cell, version | flags);
        }
        M::step("leave lists");
        for (cell, accessor) in local.listed.drain(..) {
            let word = Self::lock(cell);
            Self::list(cell).remove(&accessor);
            Self::unlock(cell, word);
        }
    }
}
