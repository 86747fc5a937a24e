//! Tombstones and placeholders that a scan passes.
//!
//! A queue is a table whose oldest rows are deleted. A scan for its oldest row passes the
//! tombstones of all transactions that are still running. If it joined the list of each, and took
//! the lock for that, these cells would be the hottest of all. So a scan leaves no accessor at a
//! record without a row. It depends on the set of keys of the leaf anyway, and says so in the
//! leaf's word (`gaps`).
//!
//! | the other transaction | how the scan and it meet |
//! | --- | --- |
//! | the transaction that has deleted the row | the scan's step finds it as the newest accessor, depends on it, and sets its own bit in the other's *passers* |
//! | the same, if it aborts | it puts the row back, then dooms its passers |
//! | a transaction that inserts the key again | the cell says *passed*; so the insert's step looks at the progress of all workers that have scanned the table |
//! | the same, if the tombstone has left the index | the insert changes the leaf, and finds the scan's bit there |
//!
//! | the scan's step | the abort, or the insert |
//! | --- | --- |
//! | sets *passed*, unless it is set | locks the cell |
//! | sets its bit in the passers | changes the version (the abort) |
//! | sets *validates* | |
//! | fence (SeqCst) | fence (SeqCst) |
//! | loads the cell's word: the same version, not locked | loads the passers, or the flag and the progress of the scans |
//!
//! Either the scan finds the cell locked or changed, and runs again; or the other finds the scan.
//!
//! *Passed* stays set as long as the record lives. All scans that pass a cell later leave its line
//! as it is, so that their cores share it.

use contend_engine::{Abort, AbortReason, Context, Groups, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::{Accessor, Running, list_of, lock, unlock};
use crate::fault::dekker_fence;
use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Reads contended columns of a record that a scan has come by.
    pub(super) fn read_passing(
        cx: &mut Context<M>,
        local: &mut Ic3Worker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        contended: Groups,
    ) -> Result<RecordState, Abort> {
        let first = local.reads.entries.len();
        let found = local.reads.observe_within(cx, at, columns, contended, |_| true)?;
        if found == RecordState::Absent {
            local.passed.extend(local.reads.entries.drain(first..));
        } else {
            Self::note_accessors(local, at, contended);
        }
        Ok(found)
    }

    /// Depends on the transactions that have deleted the rows of passed records, and says there
    /// that the step passes. The caller holds no lock.
    pub(super) fn pass(&self, local: &mut Ic3Worker<M>) {
        local.passed_of.clear();
        for position in 0..local.passed.len() {
            M::step("pass");
            let cell = local.passed[position].cell;
            loop {
                let newest = list_of(cell).look();
                if !newest.is_passed() {
                    let word = lock(cell);
                    list_of(cell).pass();
                    unlock(cell, word);
                    continue;
                }
                let Some(worker) = newest.writer() else {
                    if newest.exists() {
                        self.pass_behind_readers(local, position);
                    }
                    break;
                };
                if F::pass_blindly() || worker == local.member.own.worker || local.passed_of.contains(&worker) {
                    break;
                }
                let writer = self.progress.note_passer(worker, local.member.own);
                // The accessor was in the list when the progress was loaded, so it is of that
                // transaction.
                if list_of(cell).look() == newest {
                    local.passed_of.push(worker);
                    writer.into_iter().for_each(|writer| local.member.depend_on(writer));
                    break;
                }
            }
        }
    }

    /// Depends on the last writer of a passed record whose newest accessor is a reader.
    fn pass_behind_readers(&self, local: &mut Ic3Worker<M>, position: usize) {
        let cell = local.passed[position].cell;
        let word = lock(cell);
        let is_writer = |other: &&Accessor<M>| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID);
        let writer = list_of(cell).iter().find(is_writer).map(Accessor::owner);
        let writer = writer.filter(|writer| writer.worker != local.member.own.worker);
        if let Some(Running { worker, .. }) = writer
            && let Some(writer) = self.progress.note_passer(worker, local.member.own)
        {
            local.member.depend_on(writer);
        }
        unlock(cell, word);
    }

    /// Checks that the passed records are as they were. A record that has left the index has no
    /// row, and the leaf is validated.
    ///
    /// # Errors
    /// One has changed, or another transaction has locked it.
    pub(super) fn validate_passed(cx: &Context<M>, local: &mut Ic3Worker<M>) -> Result<(), Abort> {
        for position in 0..local.passed.len() {
            let read = local.passed[position];
            // SeqCst: behind the fence, in one order with those of others (the module comment).
            let now = read.cell.word().load(Ordering::SeqCst);
            if (now ^ read.observed_word()) & !(LOCKED | QUEUED | UNLINKED) != 0 {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
            if now & LOCKED != 0 && !local.reads.has_locked(read.cell) {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadLocked)));
            }
        }
        Ok(())
    }

    /// Notes the transactions that may have passed the absent records to which the step gives rows.
    /// The caller has locked all cells of the step.
    pub(super) fn note_passers(&self, cx: &Context<M>, local: &mut Ic3Worker<M>, rank: u64) {
        for step in 0..local.cells.len() {
            let (cell, write) = (local.cells[step].cell, local.cells[step].write);
            let Some((position, _)) = write.filter(|_| list_of(cell).look().is_passed()) else { continue };
            // Relaxed: this transaction has locked the cell.
            if cell.word().load(Ordering::Relaxed) & ABSENT == 0 || F::forget_passers() {
                continue;
            }
            M::step("passers");
            // SeqCst: pairs with the fence of the scan's validation (the module comment).
            dekker_fence::<M, F>();
            let table = cx.writes.entries()[position].table().id();
            for worker in (0..self.progress.workers()).filter(|worker| *worker != local.member.own.worker) {
                let reader = self.progress.gap_reader(worker, table, rank, !F::ignore_validating());
                if let Some(reader) = reader.filter(|reader| !local.gap_readers.contains(reader)) {
                    local.gap_readers.push(reader);
                }
            }
        }
    }
}
