//! Settled reads: of rows that only inserts write, and whose inserting transactions have ended.
//!
//! Such a read makes no dependency. So the program promises that the row is there for good, and
//! each read checks the promise.
//!
//! | what the read finds | what follows |
//! | --- | --- |
//! | the row, with no running writer in the lists of the cells | the read is done |
//! | the row of a running transaction | it waits for a moment, then aborts ([`AbortReason::ReadLocked`]) |
//! | the row of the reader itself | the read is done: the two end together |
//! | no row | the declaration is wrong ([`AbortReason::Undeclared`]) |
//! | a scan, or a gap, in a piece that makes only settled reads of the table | the same |
//!
//! A transaction may have learned the key from another one's uncommitted write. If that one aborts,
//! the row goes away, and the declaration is not to blame. So a miss counts only if all that the
//! transaction has read is committed: its predecessors have ended, it is not doomed, and what the
//! open step has read is still there and is of no running writer.
//!
//! A row of a table that is only appended to appears when its transaction commits. So such a row
//! has no running writer.

use contend_engine::{Abort, AbortReason, Cell, Context, Located, Projection, RecordState};
use contend_machine::{Machine, Spin};

use super::step::changed;
use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::{Accessor, list_of, lock, unlock};
use crate::flags::{ABSENT, UNLINKED};
use crate::method::wait::WAITS_MAX;

/// The number of misses in a row after which a settled row is not there.
const MISSES: u32 = 8;

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Reads settled columns of a row.
    ///
    /// # Errors
    /// The row is of a transaction that is still running, or is not there.
    #[cold]
    pub(super) fn read_settled(
        &self,
        cx: &mut Context<M>,
        local: &mut Ic3Worker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            M::step("read settled");
            let (mut flags, mut is_written) = (0, false);
            for cell in at.cells(columns.groups()) {
                let word = lock(cell);
                is_written |= Self::is_written_by_other(local, cell);
                flags |= word;
                unlock(cell, word);
            }
            if flags & UNLINKED != 0 {
                return Ok(RecordState::Unlinked);
            }
            if is_written && !F::trust_settled() {
                if self.progress.is_doomed(local.member.own) {
                    return Err(Abort::new(AbortReason::Cascaded));
                }
                if spin.count() > WAITS_MAX {
                    return Err(Abort::new(AbortReason::ReadLocked));
                }
                spin.wait();
            } else if flags & ABSENT == 0 {
                // Only inserts write these columns, so they do not change any more.
                cx.copy_row(at, columns);
                return Ok(RecordState::Row);
            } else if !self.awaits_predecessors(local)? {
                return Err(self.miss_settled(cx, local));
            }
        }
    }

    /// Judges a gap, or a scan, where only settled reads are declared.
    ///
    /// # Errors
    /// Always: the row may be there at the next try, or the declaration is wrong.
    #[cold]
    pub(super) fn miss_settled_leaf(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        if self.awaits_predecessors(local)? {
            return Err(Abort::new(AbortReason::ReadLocked));
        }
        Err(self.miss_settled(cx, local))
    }

    /// Waits for the ends of all predecessors, and returns whether there were any.
    fn awaits_predecessors(&self, local: &mut Ic3Worker<M>) -> Result<bool, Abort> {
        let there_are_some = !local.member.predecessors.is_empty();
        local.member.wait_for_commits::<F>(&self.progress, None)?;
        Ok(there_are_some && !F::forget_predecessors())
    }

    /// Returns why the transaction aborts that has missed a settled row, and whose predecessors
    /// have ended.
    ///
    /// A row that was missed may be there a moment later: the transaction that has inserted it, and
    /// from which the key is known, may have ended in between. So only a row that is missed again
    /// and again breaks the promise.
    fn miss_settled(&self, cx: &Context<M>, local: &mut Ic3Worker<M>) -> Abort {
        for read in &local.reads.entries {
            let word = lock(read.cell);
            let is_written = Self::is_written_by_other(local, read.cell);
            unlock(read.cell, word);
            if changed(word, read.observed_word()) {
                return cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation));
            }
            if is_written {
                return cx.conflict_at(read.cell, Abort::new(AbortReason::ReadLocked));
            }
        }
        // The predecessors that have aborted have doomed this transaction before they ended.
        if self.progress.is_doomed(local.member.own) {
            return Abort::new(AbortReason::Cascaded);
        }
        local.settled_misses += 1;
        if local.settled_misses < MISSES {
            return Abort::new(AbortReason::ReadLocked);
        }
        local.settled_misses = 0;
        Abort::new(AbortReason::Undeclared)
    }

    /// Whether another transaction that has not ended has written a cell, which the caller has
    /// locked. A write that is void counts: its transaction is about to abort.
    fn is_written_by_other(local: &Ic3Worker<M>, cell: Cell<M>) -> bool {
        let is_other = |other: &Accessor<M>| other.owner().worker != local.member.own.worker;
        list_of(cell).iter().any(|other| other.is(Accessor::<M>::WROTE) && is_other(other))
    }
}
