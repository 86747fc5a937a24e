//! The waits for the steps of predecessors, by the rank rule.
//!
//! A transaction waits only for transactions that come before it. So no circle of waits forms, and
//! a wait ends unless a worker has lost its core: hence the limit.

use contend_engine::Abort;
use contend_machine::{Machine, Spin};

use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::Running;

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Waits until all predecessors are past this rank, and forgets those that have ended.
    ///
    /// # Errors
    /// The transaction is doomed, or has waited too long.
    pub(super) fn wait_for_steps(&self, local: &mut Ic3Worker<M>, rank: u64) -> Result<(), Abort> {
        if !Self::waits_for_steps() {
            return Ok(());
        }
        let mut next = 0;
        while let Some(&other) = local.member.predecessors.get(next) {
            let mut spin = Spin::<M>::new();
            loop {
                match self.progress.rank_of(other) {
                    None => {
                        local.member.predecessors.swap_remove(next);
                        break;
                    }
                    Some(passed) if self.is_past(local, other, passed, rank) => {
                        next += 1;
                        break;
                    }
                    Some(_) => {
                        M::step("wait for steps");
                        local.member.wait(&self.progress, &mut spin, None)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a predecessor that has `passed` a rank, and has not ended, is past `rank`.
    fn is_past(&self, local: &Ic3Worker<M>, other: Running, passed: u64, rank: u64) -> bool {
        if self.options.rendezvous {
            return passed >= rank;
        }
        // The paper's rule: behind the partner of this rank, if there is one.
        let partner = local.known.value.as_ref().filter(|_| other.kind != Running::NO_KIND);
        passed >= rank && partner.is_some_and(|plan| plan.has_rank(other.kind as usize, rank))
    }
}
