//! Rows that are shown before the commit: what their cells held before is saved, and put back by an
//! abort.

use contend_engine::sets::WriteKind;
use contend_engine::{Cell, Context};
use contend_machine::{Atomic64, Machine, Ordering};

use super::list::{Accessor, AccessorHandle};
use super::progress::Progress;
use super::{AccessFaults, list_of, lock, unlock};
use crate::flags::{ABSENT, LOCKED, QUEUED};
use crate::optimistic::VERSION_SHIFT;

/// A cell that shows a row which is not committed yet.
#[derive(Debug)]
pub(crate) struct Shown<M: Machine> {
    pub(crate) cell: Cell<M>,
    pub(crate) accessor: AccessorHandle<M>,
    /// The position in the write set, and the cell's number in the record.
    pub(crate) position: usize,
    pub(crate) number: usize,
    /// The start of the former contents in the worker's saved words, and the former flags.
    pub(crate) start: usize,
    pub(crate) flags: u64,
}

impl<M: Machine> Shown<M> {
    /// Saves what a cell holds, which the caller has locked, and which the entry at `position` of
    /// the write set is going to change.
    pub(crate) fn save(
        cx: &Context<M>,
        cell: Cell<M>,
        accessor: AccessorHandle<M>,
        (position, number): (usize, usize),
        saved: &mut Vec<u64>,
    ) -> Self {
        // Relaxed: this transaction has locked the cell.
        let flags = cell.word().load(Ordering::Relaxed) & (ABSENT | QUEUED);
        let start = saved.len();
        cx.writes.save(position, number, saved);
        Shown { cell, accessor, position, number, start, flags }
    }

    /// Takes back what an aborting transaction has shown in the cell, unless an older write was put
    /// back past it: then there is nothing to put back. `locked` is called with the cell locked,
    /// and `restored` after the contents were put back.
    pub(crate) fn undo<F: AccessFaults>(
        &self,
        cx: &mut Context<M>,
        progress: &Progress<M>,
        saved: &[u64],
        locked: impl FnOnce(&mut Context<M>),
        restored: impl FnOnce(),
    ) {
        M::step("undo");
        let word = lock(self.cell);
        locked(cx);
        if self.accessor.is(Accessor::<M>::VOID) && !F::restore_void() {
            return unlock(self.cell, word);
        }
        let word = self.put_back(cx, progress, saved, word, !F::forget_dependents());
        self.accessor.make_void();
        restored();
        unlock(self.cell, word);
    }

    /// Puts back what the cell held, which the caller has locked and whose word is `word`. Each
    /// later accessor has seen the row, or has written on top of it: its access becomes void, and,
    /// if `dooms`, it is doomed. Returns the cell's next word.
    ///
    /// A read that is taken back dooms no other transaction: a later writer depends on the last
    /// writer as well.
    pub(crate) fn put_back(
        &self,
        cx: &Context<M>,
        progress: &Progress<M>,
        saved: &[u64],
        word: u64,
        dooms: bool,
    ) -> u64 {
        // SeqCst: pairs with the fence of an optimistic read (`ReadsAndLocks::observe`): the lock
        // comes before the stores to the row.
        M::fence(Ordering::SeqCst);
        cx.writes.restore(self.position, self.number, &saved[self.start..]);
        for other in list_of(self.cell).newer_than(&self.accessor).filter(|_| dooms) {
            other.make_void();
            progress.doom(other.owner());
        }
        list_of(self.cell).note_void();
        let version = (word & !(ABSENT | QUEUED | LOCKED)) + (1 << VERSION_SHIFT);
        version | self.flags
    }
}

/// Returns the word of a locked cell as it is to be published: with the next version and the flags
/// of the write, if there is one.
pub(crate) fn shown_word<M: Machine>(cx: &mut Context<M>, cell: Cell<M>, write: Option<(usize, usize)>) -> u64 {
    // Relaxed: no other transaction changes the word of a locked cell.
    let word = cell.word().load(Ordering::Relaxed);
    let Some((position, number)) = write else { return word };
    let write = &mut cx.writes.entries_mut()[position];
    let next = word + (1 << VERSION_SHIFT);
    match write.kind {
        WriteKind::Nothing => word,
        WriteKind::Update => next,
        WriteKind::Insert if write.fresh && number == 0 => next & !(ABSENT | QUEUED),
        WriteKind::Insert => next & !ABSENT,
        WriteKind::Delete if number == 0 => {
            write.collect = word & QUEUED == 0;
            next | ABSENT | QUEUED
        }
        WriteKind::Delete => next | ABSENT,
    }
}
