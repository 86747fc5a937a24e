//! Snapshots at the ends of epochs, for transactions that only read (Silo, section 4.9).
//!
//! Commits of an epoch come after those of all epochs before. A worker that begins in epoch `b`
//! knows that no transaction can commit in `b - 2` or before any more: the state at the end of that
//! epoch is final. So a reader sees such a state, and never aborts. Versions that it may need are
//! kept as copies of cells, which hang on the cell, the newest first.
//!
//! **How long a copy is kept.** Let a transaction begin in epoch `b`. The global epoch stays below
//! `b + 2` until it ends, so it commits in `b` or `b + 1`. A copy of what it replaces serves
//! snapshots before its commit. Let `s` be the first snapshot at or after `b + 1`: the copy is
//! reused once every transaction that began before epoch `s + 2` has ended. The link that leads to
//! it stays, and no reader follows it: a reader of `s` or of a later snapshot finds the version
//! that has replaced the copied one, or a newer one, first. A copy of a transaction that aborts is
//! taken out again; readers that have found it began in `b + 1` at the latest.

use contend_engine::{CellCopy, Context, Located};
use contend_machine::{Atomic64, Machine, Ordering};

/// The epochs that have a snapshot at their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshots {
    /// The number of epochs from one snapshot to the next.
    every: u64,
}

impl Snapshots {
    /// Returns snapshots that are this number of epochs apart.
    #[inline(always)]
    pub(crate) fn every(epochs: u32) -> Self {
        Snapshots { every: epochs.into() }
    }

    /// Returns the epoch whose end a transaction sees that began in `began_in`.
    #[inline(always)]
    pub(crate) fn seen_from(self, began_in: u64) -> u64 {
        let last = began_in.saturating_sub(2);
        // A division takes as long as a dozen other instructions.
        if self.every == 1 { last } else { last / self.every * self.every }
    }

    /// Returns the first epoch, from `epoch` on, with a snapshot at its end.
    #[inline(always)]
    fn first_from(self, epoch: u64) -> u64 {
        if self.every == 1 { epoch } else { epoch.div_ceil(self.every) * self.every }
    }

    /// Returns whether a snapshot shows a version of epoch `of` that is replaced in `replaced_in`.
    #[inline(always)]
    pub(crate) fn show(self, of: u64, replaced_in: u64) -> bool {
        self.first_from(of) < replaced_in
    }

    /// Returns the epoch up to which copies of what the running transaction replaces may be needed,
    /// as [`Context::new_copy`] wants it.
    #[inline(always)]
    pub(crate) fn needed_until<M: Machine>(self, cx: &Context<M>) -> u64 {
        self.first_from(cx.began_in() + 1)
    }

    /// Returns whether all transactions have ended that see a snapshot from before a deletion in
    /// epoch `deleted_in`: none runs that began before epoch `oldest`.
    pub(crate) fn let_unlink(self, deleted_in: u64, oldest: u64) -> bool {
        oldest >= self.first_from(deleted_in) + 2
    }
}

/// Links a copy, whose contents are there, to a cell that the caller has locked. `newest` is the
/// cell's link to its newest copy.
#[inline(always)]
pub(crate) fn link<M: Machine>(newest: &M::U64, copy: CellCopy<M>, word: u64) {
    // Relaxed, all but the last: the caller has locked the cell, and no other transaction sees the
    // copy yet.
    copy.word().store(word, Ordering::Relaxed);
    copy.older().store(newest.load(Ordering::Relaxed), Ordering::Relaxed);
    // Release: pairs with the Acquire of a reader: the copy comes before its link.
    newest.store(copy.address(), Ordering::Release);
}

/// Reads a cell from the first copy, from the one at address `first` on, of whose word `is_shown`
/// returns true. Returns that word, or `None` if there is no such copy.
///
/// The caller has loaded `first` with Acquire from a cell that a snapshot does not show as it is.
pub(crate) fn read_copy<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    number: usize,
    first: u64,
    is_shown: impl Fn(u64) -> bool,
) -> Option<u64> {
    let mut address = first;
    while address != 0 {
        // SAFETY: `link` has put a copy of this cell there. A copy that a snapshot needs, and any
        // newer one, is not reused before the readers of the snapshot have ended.
        let copy = unsafe { at.table.cell_copy(number, address) };
        M::await_line(copy.word());
        if copy.is_poisoned() {
            // Only a protocol that is wrong comes here. Its reader misses the row, which the
            // checker finds. The next link would lead nowhere.
            return None;
        }
        // Relaxed: a copy does not change, and the Acquire of its link orders it.
        let word = copy.word().load(Ordering::Relaxed);
        if is_shown(word) {
            cx.read_copy(at, number, copy);
            return Some(word);
        }
        // Acquire: pairs with the Release of `link`.
        address = copy.older().load(Ordering::Acquire);
    }
    None
}
