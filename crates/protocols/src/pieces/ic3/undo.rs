//! How an aborted transaction takes back what its steps have shown.

use contend_engine::Context;
use contend_machine::Machine;

use super::{Ic3, Ic3Faults, Ic3Worker};

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Restores what was there before, the newest write first, dooms the later accessors, and
    /// leaves all lists.
    pub(super) fn undo(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        let kept = local.kept;
        for exposed in local.exposed.iter().rev() {
            let (shown, saved) = (&exposed.shown, &local.saved);
            let forget_copies = |cx: &mut Context<M>| Self::drop_shown(cx, exposed);
            shown.undo::<F>(cx, &self.progress, saved, forget_copies, || Self::note_uncommitted(kept, shown.cell));
        }
        if !local.exposed.is_empty() && !F::forget_dependents() && !F::spare_passers() {
            // SeqCst: pairs with the fence of a scan's validation (`passed`): what was put back
            // comes before.
            M::fence(contend_machine::Ordering::SeqCst);
            self.progress.doom_passers(local.member.own);
        }
        local.member.leave_lists();
    }
}
