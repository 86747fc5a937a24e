//! What waits for the commit: sums, and rows that are only appended.
//!
//! They need no order among transactions, only a lock for the time of the change. The lock of a row
//! of a small table, such as the one warehouse, is wanted by most transactions. So it is locked
//! last, and unlocked first.

use std::cmp::Reverse;

use contend_engine::sets::WriteKind;
use contend_engine::{Abort, AbortReason, Context};
use contend_machine::{Atomic64, Machine, Ordering};

use super::step::StepCell;
use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::{shown_word, unlock};
use crate::flags::{LOCKED, QUEUED};
use crate::method::wait::WAITS_MAX;

impl<M: Machine> Ic3Worker<M> {
    /// Collects the cells that wait for the commit, in the order in which all commits by steps lock
    /// them, each once.
    fn collect_late(&mut self, cx: &mut Context<M>) {
        self.cells.clear();
        self.late_writes.clear();
        if self.of.is_none() {
            return;
        }
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing || !self.is_late(write) {
                continue;
            }
            // Sums of one record from several pieces become one write.
            let is_same = |first: &&usize| cx.writes.entries()[**first].record == write.record;
            match self.late_writes.iter().find(is_same).copied() {
                Some(first) => cx.writes.absorb(first, position),
                None => self.late_writes.push(position),
            }
        }
        for position in &self.late_writes {
            StepCell::collect(&mut self.cells, &cx.writes.entries()[*position], *position);
        }
        // One order for all commits by steps. A commit as a whole has another order, and gives up
        // after a short wait. The cells of a record stand together.
        let rows = |step: &StepCell<M>| {
            step.write.map_or(0, |(position, _)| cx.writes.entries()[position].table().expected_rows())
        };
        self.cells.sort_unstable_by_key(|step| (Reverse(rows(step)), step.cell.address()));
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Locks, validates and applies what waits for the commit, passes the commit point, and
    /// installs.
    ///
    /// # Errors
    /// The transaction is doomed, or another has inserted a row that this one appends. Nothing was
    /// installed.
    pub(super) fn commit_late(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        local.collect_late(cx);
        M::step("lock");
        for step in 0..local.cells.len() {
            let StepCell { cell, write, .. } = local.cells[step];
            let Some((position, _)) = write else { continue };
            let write = &cx.writes.entries()[position];
            local.late.lock(cx, cell, write.needs_row(), WAITS_MAX)?;
            // Once all cells of the write are locked.
            let is_last =
                local.cells.get(step + 1).is_none_or(|next| next.write.map(|(next, _)| next) != Some(position));
            if is_last {
                cx.writes.merge(position);
            }
        }
        for read in &local.late.entries {
            // Relaxed: this transaction holds the lock.
            if (read.cell.word().load(Ordering::Relaxed) ^ read.observed_word()) & !(LOCKED | QUEUED) != 0 {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        self.prepare_commit(cx, local)?;
        local.member.pass_commit_point(&self.progress)?;
        if !local.cells.is_empty() {
            cx.writes.will_commit();
            self.keep_late(cx, local);
            // SeqCst: pairs with the fence of an optimistic read: the locks come before the stores
            // to the rows (`ReadsAndLocks::observe`).
            M::fence(Ordering::SeqCst);
            self.install_late(cx, local);
        }
        Ok(())
    }

    /// Installs the collected writes, and unlocks their cells. A fence comes before, behind the
    /// locks.
    pub(super) fn install_late(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        M::step("install");
        let mut installed = usize::MAX;
        while let Some(StepCell { cell, write, .. }) = local.cells.pop() {
            if let Some((position, _)) = write.filter(|(position, _)| *position != installed) {
                installed = position;
                cx.writes.install(position);
            }
            let word = shown_word(cx, cell, write);
            unlock(cell, word);
        }
        local.late.locked.clear();
        local.reads.locked.clear();
    }
}
