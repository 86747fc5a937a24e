//! How a step takes effect: it is validated and shown, with all its cells locked.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Abort, AbortReason, Cell, CellCopy, Context, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{Constraint, Exposed, Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::{Shown, list_of, shown_word, unlock};
use crate::fault::dekker_fence;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::WAITS_MAX;
use crate::optimistic::Read;
use crate::pieces::plan::TableClasses;

/// A cell of the step that takes effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepCell<M: Machine> {
    pub(super) cell: Cell<M>,
    /// The position in the write set and the cell's number, if the step writes it.
    pub(super) write: Option<(usize, usize)>,
    /// Memory for a copy of what the cell holds, if a snapshot may show that.
    pub(super) copy: Option<CellCopy<M>>,
}

impl<M: Machine> StepCell<M> {
    pub(super) fn new(cell: Cell<M>, write: Option<(usize, usize)>) -> Self {
        StepCell { cell, write, copy: None }
    }

    /// Adds the cells that the entry at `position` of the write set writes.
    #[inline(always)]
    pub(super) fn collect(all: &mut Vec<Self>, write: &Write<M>, position: usize) {
        let cells = write.cells();
        match cells.only_first() {
            // The usual case.
            Some(first) => all.push(StepCell::new(first, Some((position, 0)))),
            None => {
                let numbered = cells.zip(write.cell_numbers());
                all.extend(numbered.map(|(cell, number)| StepCell::new(cell, Some((position, number)))));
            }
        }
    }
}

/// Whether a row has another version, or is another, than when its word was observed.
pub(super) fn changed(word: u64, observed: u64) -> bool {
    (word ^ observed) & !(LOCKED | QUEUED) != 0
}

impl<M: Machine> Ic3Worker<M> {
    /// Seals the sums of a piece, whose step goes on: a write of other columns of their records
    /// gets an entry of its own.
    pub(super) fn seal_sums(&mut self, cx: &mut Context<M>) {
        for position in self.first_write..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if self.is_late(write) && !self.classes(write.table().id()).is_appended {
                cx.writes.seal(position);
            }
        }
    }

    /// Collects the contended cells that the step has read or written, in the order of addresses,
    /// each once.
    fn collect_cells(&mut self, cx: &Context<M>) {
        self.cells.clear();
        self.cells.extend(self.reads.entries.iter().map(|read| StepCell::new(read.cell, None)));
        for position in self.first_write..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind != WriteKind::Nothing && !self.is_late(write) {
                StepCell::collect(&mut self.cells, write, position);
            }
        }
        self.cells.sort_unstable_by_key(|step| (step.cell.address(), step.write.is_none()));
        self.cells.dedup_by_key(|step| step.cell.address());
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Lets the open step take effect, with this rank; a step without a rank leaves no trace.
    ///
    /// # Errors
    /// The step has met a conflict, or the transaction is doomed. Nothing was shown.
    pub(super) fn take_effect(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>, rank: u64) -> Result<(), Abort> {
        if rank > 0 {
            if self.options.constraint == Constraint::Optimistic || local.of.is_none() {
                self.wait_for_steps(local, rank)?;
            }
            self.pass(local);
            local.collect_cells(cx);
            if F::announce_before_locking() {
                self.progress.announce(local.member.own, rank);
            }
            self.lock_cells(cx, local)?;
            self.apply_updates(cx, local);
            local.member.reserve(local.cells.len());
            self.reserve_copies(cx, local, cx.began_in())?;
            self.note_passers(cx, local, rank);
            self.depend_on_gap_readers(local, rank);
            self.validate(cx, local)?;
            // All cells are locked until what is announced here is shown.
            M::step("announce");
            if !self.progress.announce(local.member.own, rank) {
                return Err(Abort::new(AbortReason::Cascaded));
            }
            self.join_lists(cx, local);
            self.show(cx, local);
            self.give_turn(local);
        }
        for position in local.first_write..cx.writes.len() {
            // An appended row is found again by a second insert of its key.
            if !local.classes(cx.writes.entries()[position].table().id()).is_appended {
                cx.writes.seal(position);
            }
        }
        local.first_write = cx.writes.len();
        local.reads.clear();
        local.passed.clear();
        local.gap_readers.clear();
        local.retries = 0;
        cx.nodes.clear();
        Ok(())
    }

    fn lock_cells(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        M::step("lock step");
        // A step that can't be valid any more leaves the cells alone. Relaxed: a first look, which
        // `validate` repeats.
        let now = |cell: Cell<M>| cell.word().load(Ordering::Relaxed);
        let is_stale = |read: &&Read<M>| changed(now(read.cell), read.observed_word());
        if let Some(read) = local.reads.entries.iter().find(is_stale)
            && !F::skip_piece_validation()
        {
            return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
        }
        for StepCell { cell, write, .. } in &local.cells {
            let needs_row = write.is_some_and(|(position, _)| cx.writes.entries()[position].needs_row());
            local.reads.lock(cx, *cell, needs_row, WAITS_MAX)?;
        }
        Ok(())
    }

    /// Applies the updates of the collected cells. An update is code of the application and may
    /// panic, so this comes before anything is announced.
    #[inline(always)]
    pub(super) fn apply_updates(&self, cx: &mut Context<M>, local: &Ic3Worker<M>) {
        if cx.writes.has_updates() {
            for step in &local.cells {
                step.write.into_iter().for_each(|(position, _)| cx.writes.merge(position));
            }
        }
    }

    /// Checks that all that the step has read is as it was.
    fn validate(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        if !cx.nodes.is_empty() {
            self.progress.validates(local.member.own);
        }
        // SeqCst: pairs with the fence of inserts. Before it come the bits of the leaves that this
        // step has scanned. After it come the versions of these leaves (`gaps`). And it pairs with
        // the fence of `ReadsAndLocks::observe`: the locks come before the stores to the rows.
        dekker_fence::<M, F>();
        M::step("validate step");
        // Relaxed: this transaction has locked the cells.
        let now = |cell: Cell<M>| cell.word().load(Ordering::Relaxed);
        let stale = local.reads.entries.iter().find(|read| changed(now(read.cell), read.observed_word()));
        let outcome = match stale {
            Some(read) if !F::skip_piece_validation() => {
                Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)))
            }
            // SeqCst: behind the fence above, in one order with those of others (`gaps`).
            _ => Self::validate_passed(cx, local).and_then(|()| cx.nodes.validate_as(Ordering::SeqCst)),
        };
        if outcome.is_err() && !cx.nodes.is_empty() {
            self.progress.has_not_validated(local.member.own);
        }
        outcome
    }

    /// Joins the list of each cell, and notes the transactions that come before in it.
    fn join_lists(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) {
        M::step("join lists");
        for step in 0..local.cells.len() {
            let StepCell { cell, write, copy } = local.cells[step];
            local.member.depend_on_earlier::<F>(&list_of(cell), write.is_some());
            if F::forget_reads() && write.is_none() {
                continue;
            }
            let accessor = local.member.join(cell, cx.began_in(), write.is_some());
            if let Some(write) = write {
                let shown = Shown::save(cx, cell, accessor, write, &mut local.saved);
                let exposed = Exposed { shown, copy, late_copy: None };
                Self::keep_shown(cx, &exposed, (local.kept, &local.saved));
                local.exposed.push(exposed);
            }
        }
    }

    /// Shows the step's writes, and unlocks all its cells.
    fn show(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        M::step("show");
        for position in local.first_write..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind != WriteKind::Nothing && !local.is_late(write) {
                cx.writes.expose(position);
            }
        }
        for StepCell { cell, write, .. } in local.cells.drain(..) {
            let word = shown_word(cx, cell, write);
            unlock(cell, word);
        }
        local.reads.locked.clear();
    }

    /// Reads units that need no order: constants, or the absence of a row that is only appended.
    pub(super) fn read_untracked(
        &self,
        cx: &mut Context<M>,
        local: &mut Ic3Worker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        classes: TableClasses,
    ) -> Result<RecordState, Abort> {
        if classes.is_appended {
            return local.late.observe_within(cx, at, columns, columns.groups(), |_| true);
        }
        // No declared type changes these columns, nor inserts or deletes rows. Acquire: pairs with
        // the Release by which the index, or a transaction of before, has published the row.
        let word = at.record.first_cell().word().load(Ordering::Acquire);
        cx.copy_row(at, columns);
        Ok(flags::found(word & (ABSENT | UNLINKED)))
    }
}
