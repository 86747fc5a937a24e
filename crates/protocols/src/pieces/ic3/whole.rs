//! Transactions that commit as a whole.
//!
//! Pieces that take effect one by one pay where transactions meet. Where none do, lists and saved
//! rows are in vain: two locks a cell that is only read. So a worker that meets no contention runs
//! its transaction as one step, and lets that take effect in the commit itself. It locks what it
//! writes, validates what it has read, and installs, as in Silo. It stands in no list, and shows
//! nothing before.
//!
//! Such a commit is possible only if no running transaction stands in its way. One does that
//!
//! - has shown a row that the transaction has read,
//! - stands in the list of a cell that the transaction writes,
//! - has deleted a row whose tombstone the transaction has passed (`passed`), or
//! - has read a gap that the transaction has filled (`gaps`).
//!
//! **Why this is safe.** All that the transaction depends on has committed before it takes effect,
//! or is sure to. And no transaction depends on it before it has taken effect, which is its commit.
//! So it lies behind the former and before the latter, and is in no circle. A transaction that
//! overwrites later what it has read need not find it: its epoch was loaded before the reads were
//! validated, and so is not the later one.
//!
//! **When it is tried.** A transaction of a declared type that fails aborts. It runs again by
//! steps, as do the next ones of its type on this worker. Their number doubles whenever this
//! happens, and shrinks by an eighth whenever one commits as a whole. So steps become the rule
//! where more than one in six fails. A transaction without a type has one step in any case. It
//! tries to commit as a whole, and joins the lists if another is in its way.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Abort, AbortReason, Context, Groups, Located};
use contend_machine::{Atomic64, Machine, Ordering};

use super::step::StepCell;
use super::step::changed;
use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::{Accessor, list_of, lock, unlock};
use crate::fault::dekker_fence;
use crate::flags::LOCKED;
use crate::method::wait::Wait;
use crate::optimistic::Read;

/// The number of types that are told apart. Further ones share these.
const TYPES: usize = 16;

/// What a worker knows of the contention of its types.
#[derive(Debug, Default)]
pub(super) struct Contention {
    types: [OfType; TYPES],
}

#[derive(Clone, Copy, Debug)]
struct OfType {
    /// The number of transactions that are still to run by steps.
    by_steps: u32,
    /// The number that will be when another is in the way next.
    next: u32,
}

impl OfType {
    const FIRST: u32 = 16;
    const LEAST: u32 = 1;
    const MOST: u32 = 1024;
}

impl Default for OfType {
    fn default() -> Self {
        OfType { by_steps: 0, next: OfType::FIRST }
    }
}

impl Contention {
    /// Returns whether the next transaction of a type is to run as a whole.
    #[inline(always)]
    pub(super) fn begin(&mut self, of: usize) -> bool {
        let of_type = &mut self.types[of % TYPES];
        let runs_whole = of_type.by_steps == 0;
        of_type.by_steps = of_type.by_steps.saturating_sub(1);
        runs_whole
    }

    /// Notes that a whole transaction of a type has committed, or has met a conflict.
    #[inline(always)]
    pub(super) fn end(&mut self, of: usize, has_committed: bool) {
        let of_type = &mut self.types[of % TYPES];
        if has_committed && of_type.next == OfType::LEAST {
            // The usual case.
        } else if has_committed {
            of_type.next = (of_type.next - of_type.next.div_ceil(8)).max(OfType::LEAST);
        } else {
            of_type.by_steps = of_type.next;
            of_type.next = (of_type.next * 2).min(OfType::MOST);
        }
    }
}

impl<M: Machine> Ic3Worker<M> {
    /// Collects the cells that the transaction writes, each once. A row of a small table is wanted
    /// by many, so the rows of the smallest table are locked last, and unlocked first.
    fn collect_whole(&mut self, cx: &Context<M>) {
        let rows = |write: &Write<M>| write.table().expected_rows();
        let writes = cx.writes.entries().iter().enumerate();
        let writes = writes.filter(|(_, write)| write.kind != WriteKind::Nothing);
        let smallest = writes.clone().map(|(_, write)| rows(write)).min().unwrap_or(0);
        for is_smallest in [false, true] {
            for (position, write) in writes.clone().filter(|(_, write)| (rows(write) == smallest) == is_smallest) {
                StepCell::collect(&mut self.cells, write, position);
            }
        }
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Commits a transaction whose steps have not taken effect. Returns `false`, and leaves all as
    /// it is, if a running transaction is in its way.
    ///
    /// # Errors
    /// The transaction has met a conflict, or the machine has no more memory. Nothing was
    /// installed.
    #[inline(always)]
    pub(super) fn commit_whole(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) -> Result<bool, Abort> {
        M::step("commit as a whole");
        local.cells.clear();
        if local.meets_accessors && self.reads_uncommitted(local) {
            return Ok(false);
        }
        let has_passed = !local.passed.is_empty();
        if has_passed {
            self.pass(local);
        }
        if has_passed || !cx.writes.is_empty() {
            if !self.lock_whole(cx, local)? {
                local.reads.unlock_all();
                local.cells.clear();
                return Ok(false);
            }
            self.apply_updates(cx, local);
        }
        let has_gaps = !cx.nodes.is_empty();
        if has_gaps {
            self.progress.validates(local.member.own);
        }
        if has_gaps || has_passed || !local.cells.is_empty() {
            // SeqCst: as in `Ic3::validate`. It also pairs with the same fence of other commits as
            // a whole: of two that each read what the other writes, one finds the other's lock.
            dekker_fence::<M, F>();
        }
        if let Err(abort) = self.prepare_whole(cx, local) {
            if has_gaps {
                self.progress.has_not_validated(local.member.own);
            }
            return Err(abort);
        }
        let rank = local.step.map_or(1, |step| step.rank);
        if has_gaps && !self.progress.announce(local.member.own, rank) {
            return Err(Abort::new(AbortReason::Cascaded));
        }
        if !local.cells.is_empty() {
            cx.writes.will_commit();
            self.keep_late(cx, local);
            self.install_late(cx, local);
        }
        local.settled_misses = 0;
        self.end(local);
        Ok(true)
    }

    /// Notes whether a running transaction has accessed cells that were just read. If none has, the
    /// row is committed.
    ///
    /// The look comes behind the read. So a look that finds an empty list finds it as the writer of
    /// the row has left it, or later. A writer joins the list before it shows the row. It leaves
    /// the list after it has decided, or has put back what was there before: the validation finds
    /// that.
    #[inline(always)]
    pub(super) fn note_accessors(local: &mut Ic3Worker<M>, at: Located<'_, M>, groups: Groups) {
        let is_accessed = |cell| list_of(cell).look().exists();
        let meets = at.only_cell(groups).map_or_else(|| at.cells(groups).any(is_accessed), is_accessed);
        local.meets_accessors |= meets;
    }

    /// Returns whether a running transaction has shown a row that this one has read. The caller
    /// holds no lock. An empty list says what it says to [`Ic3::note_accessors`].
    #[cold]
    fn reads_uncommitted(&self, local: &Ic3Worker<M>) -> bool {
        let is_uncommitted = |cell| {
            let word = lock(cell);
            let wrote = |other: &&Accessor<M>| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID);
            let writer = list_of(cell).iter().find(wrote).map(Accessor::owner);
            unlock(cell, word);
            writer.is_some_and(|writer| !self.progress.has_decided(writer))
        };
        let mut reads = local.reads.entries.iter().filter(|_| !F::whole_reads_uncommitted());
        reads.any(|read| list_of(read.cell).look().exists() && is_uncommitted(read.cell))
    }

    /// Locks all that the transaction writes. Returns `false` if a running transaction comes before
    /// this one; then some cells may not be locked.
    ///
    /// Sorting the cells takes longer than an abort now and then, if two commits lock the same
    /// cells in different orders. So they are not sorted, and each wait is short.
    #[inline(always)]
    fn lock_whole(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) -> Result<bool, Abort> {
        local.collect_whole(cx);
        let mut is_passed = false;
        for StepCell { cell, write, .. } in &local.cells {
            let needs_row = write.is_some_and(|(position, _)| cx.writes.entries()[position].needs_row());
            match local.reads.lock(cx, *cell, needs_row, Wait::Spin.pauses()) {
                Ok(_) => {}
                // Its step waits longer, and takes its locks in order.
                Err(abort) if abort.reason == AbortReason::WriteLocked && local.of.is_none() => return Ok(false),
                Err(abort) => return Err(abort),
            }
            let newest = list_of(*cell).look();
            if newest.exists() && !F::whole_forgets_accessors() {
                return Ok(false);
            }
            is_passed |= newest.is_passed();
        }
        // The usual case: there are no gaps.
        let is_alone = !is_passed && local.gap_readers.is_empty() && local.member.predecessors.is_empty();
        Ok(is_alone || self.is_first(cx, local))
    }

    /// Returns whether no running transaction comes before this one, which has locked all that it
    /// writes: none has read a gap that it has filled, or deleted a row that it has passed.
    #[inline(never)]
    fn is_first(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) -> bool {
        if !F::whole_forgets_gap_readers() {
            // The reader of a gap may have any rank: this transaction has steps of all of its own.
            self.note_passers(cx, local, 1);
            self.depend_on_gap_readers(local, 1);
        }
        local.member.predecessors.retain(|other| !self.progress.has_decided(*other));
        local.member.predecessors.is_empty()
    }

    /// Loads the epoch of the commit, allocates the copies for snapshots, and validates. All cells
    /// that the transaction writes are locked.
    #[inline(always)]
    fn prepare_whole(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        if local.kept.is_some() && !local.cells.is_empty() {
            // The serialization point. A transaction that overwrites what this one has read locks
            // the cell behind the loads below, and so has this epoch or a later one.
            local.epoch = cx.epoch_in_order();
            self.reserve_copies(cx, local, local.epoch)?;
        }
        M::step("validate whole");
        // SeqCst: in one order with the fences of other commits, and with the load of the epoch.
        let now = |read: &Read<M>| read.cell.word().load(Ordering::SeqCst);
        // The usual case: all rows are as they were, and no lock is on them.
        let differs = local.reads.entries.iter().position(|read| now(read) != read.observed_word());
        let all = local.reads.entries.len();
        for position in differs.unwrap_or(all)..all {
            let read = local.reads.entries[position];
            let now = now(&read);
            let is_locked_by_other = now & LOCKED != 0 && !local.reads.has_locked(read.cell);
            if (changed(now, read.observed_word()) || is_locked_by_other) && !F::skip_piece_validation() {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        // Relaxed: this transaction has locked the cells.
        let is_stale = |read: &Read<M>| changed(read.cell.word().load(Ordering::Relaxed), read.observed_word());
        if let Some(read) = local.late.entries.iter().find(|read| is_stale(read)) {
            return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
        }
        if !local.passed.is_empty() {
            Self::validate_passed(cx, local)?;
        }
        // SeqCst: behind the fence of the commit, in one order with those of others (`gaps`).
        if cx.nodes.is_empty() { Ok(()) } else { cx.nodes.validate_as(Ordering::SeqCst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_with_contention_runs_by_steps_for_a_while() {
        let mut contention = Contention::default();
        assert!(contention.begin(0));
        let mut next = OfType::FIRST;
        while next < 4 * OfType::MOST {
            contention.end(0, false);
            let by_steps = next.min(OfType::MOST);
            assert!((0..by_steps).all(|_| !contention.begin(0)));
            assert!(contention.begin(0) && contention.begin(1), "other types are not concerned");
            next *= 2;
        }
        for _ in 0..100 {
            assert!(contention.begin(0));
            contention.end(0, true);
        }
        contention.end(0, false);
        assert!((0..OfType::LEAST).all(|_| !contention.begin(0)));
        assert!(contention.begin(0));
    }
}
