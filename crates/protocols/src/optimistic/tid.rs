//! Transaction identifiers (TIDs) whose upper part is the epoch of the commit (Silo, section 4.2).
//!
//! | bits of a word | meaning |
//! | --- | --- |
//! | 63..32 | epoch of the commit that wrote the version |
//! | 31..4 | sequence number in the epoch |
//! | 3..0 | flags: [`crate::flags`] |
//!
//! A TID stands in its place in a word: its flags are zero.

use contend_engine::commit_sink::{COUNTER_EPOCH_SHIFT, WriteCounter};
use contend_engine::sets::Write;
use contend_engine::{Abort, AbortReason, Cells, Context};
use contend_machine::{Machine, Ordering};

use super::{OptimisticFaults, VERSION_SHIFT, install_all};

const EPOCH_SHIFT: u32 = 32;
/// The distance from a TID to the next one.
const STEP: u64 = 1 << VERSION_SHIFT;

const _: () = assert!(EPOCH_SHIFT - VERSION_SHIFT == COUNTER_EPOCH_SHIFT, "a TID without its flags is a counter");

/// Returns the epoch of a word whose version is a TID.
#[inline(always)]
pub(crate) fn epoch_of(word: u64) -> u64 {
    word >> EPOCH_SHIFT
}

/// Returns the order of the loads that validate, and of the load of the epoch, in a protocol whose
/// commits are ordered by their epochs.
///
/// A commit of a later epoch must not have to come before one of an earlier epoch. If T2 reads or
/// overwrites what T1 wrote, T2's epoch is T1's or a later one, because T2 loads it after T1 has
/// installed. But two commits may also be ordered by what one of them did not see: T1 reads a word
/// (or the version of a leaf), T2 changes it, so T1 comes first. Then T2 locks the word, passes
/// its fence, and loads the epoch; T1 loads the epoch and then, validating, the word, still without
/// the lock. The excluded interleaving is the one in which T2 loads an earlier epoch than T1. In it
/// each of these would come before the next, in the single order of all SeqCst operations: T1's
/// load of the epoch; T1's load of the word, which does not see the lock; T2's fence, which comes
/// after the lock; T2's load of the epoch; and T1's load of the epoch, because it sees a later one.
/// That is a circle.
/// So all of them but the lock have to be SeqCst. On x86-64 and aarch64 such loads are the same
/// instructions as those of Acquire.
#[inline(always)]
pub(crate) fn order_of_validation<F: OptimisticFaults>() -> Ordering {
    if F::forget_order_of_epochs() { Ordering::Acquire } else { Ordering::SeqCst }
}

/// Loads the epoch of a commit that holds its locks and has passed its fence: see
/// [`order_of_validation`].
#[inline(always)]
pub(crate) fn epoch_of_commit<M: Machine, F: OptimisticFaults>(cx: &Context<M>) -> u64 {
    if F::forget_order_of_epochs() { cx.current_epoch() } else { cx.epoch_in_order() }
}

/// Returns the smallest TID in `epoch` that is larger than `newest`. Sequence numbers begin at 1:
/// number 0 is that of rows that were loaded.
///
/// # Errors
/// All sequence numbers of the epoch are used.
#[inline(always)]
pub(crate) fn next_tid(newest: u64, epoch: u64) -> Result<u64, Abort> {
    let tid = (newest + STEP).max(epoch << EPOCH_SHIFT | STEP);
    if epoch_of(tid) == epoch { Ok(tid) } else { Err(Abort::new(AbortReason::EpochExhausted)) }
}

/// Installs every write and unlocks its cells, with `tid` as their version.
///
/// The TID is the row's write counter as well. Among the records of a key TIDs grow from write to
/// write: a tombstone leaves the index only when the epoch of its TID is over, so that the next
/// record of its key gets the TID of a later epoch.
#[inline(always)]
pub(crate) fn install_as_tid<M: Machine>(cx: &mut Context<M>, cells_of: impl Fn(&Write<M>) -> Cells<M>, tid: u64) {
    cx.writes.set_write_counter(WriteCounter(tid >> VERSION_SHIFT));
    install_all(cx, cells_of, tid);
}
