//! The words of a cell under timestamp ordering, and the rule by which an access is granted.
//!
//! The latch is the lowest bit of the cell's first word. Its holder alone stores the words of the
//! cell and its part of the row, except for a transaction that takes its own prewrite away
//! (`TimestampOrderingWorker::withdraw`).

use contend_engine::Cell;
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};

use super::TimestampOrderingFaults;

/// The flags of a cell's first word.
pub(super) const FLAGS: u64 = LOCKED | ABSENT | UNLINKED | QUEUED;
/// A tombstone's epoch of deletion begins with this bit of its first word.
pub(super) const DELETION_EPOCH_SHIFT: u32 = 4;

/// An access to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Prewrite,
}

/// What becomes of an access.
pub(super) enum Decision {
    Granted,
    /// An older transaction, of this timestamp, has prewritten the cell.
    WaitFor(u64),
    /// The transaction comes too late.
    Rejected,
}

/// The timestamps of a cell.
pub(super) struct CellTimestamps<'a, M: Machine> {
    /// The last write.
    pub(super) wts: &'a M::U64,
    /// The youngest read.
    pub(super) rts: &'a M::U64,
    /// The prewrite, which is going to be the next write; 0 if there is none.
    pub(super) prewrite: &'a M::U64,
}

pub(super) fn timestamps<'a, M: Machine>(cell: Cell<M>) -> CellTimestamps<'a, M> {
    // SAFETY: the cells of this protocol have four words.
    unsafe { CellTimestamps { wts: cell.meta(1), rts: cell.meta(2), prewrite: cell.meta(3) } }
}

/// Latches a cell, and returns its first word. A latch is held for some instructions. Its holder
/// waits for nothing meanwhile but the latches of cells behind this one in the same record.
#[inline(always)]
pub(super) fn latch<M: Machine>(cell: Cell<M>) -> u64 {
    let mut spin = Spin::<M>::new();
    // A first guess instead of a load: the word of a row.
    let mut word = 0;
    loop {
        // Acquire: pairs with the Release of `unlatch`; the last holder's timestamps and row are
        // seen. Relaxed on failure: the value is only the next guess, which the exchange tests. An
        // exchange cannot succeed on an old word: it reads the last value of the word's order.
        match cell.word().compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return word,
            Err(now) => {
                if now & LOCKED != 0 {
                    spin.back_off();
                }
                word = now & !LOCKED;
            }
        }
    }
}

/// Ends the latch, and sets the cell's first word. A plain store suffices: as long as the latch is
/// held, no other thread's exchange of this word succeeds.
#[inline(always)]
pub(super) fn unlatch<M: Machine>(cell: Cell<M>, word: u64) {
    // Release: pairs with the Acquire of `latch`; the stores under the latch come before.
    cell.word().store(word, Ordering::Release);
}

/// Decides about an access of a transaction of time `ts` to a cell that is latched.
///
/// A read does not look at the `rts`, and a prewrite does. A read with a younger prewrite on the
/// cell is granted, because that write takes its place after the read. Only an older prewrite makes
/// an access wait; that is why waits form no cycle.
#[inline(always)]
pub(super) fn decide<M: Machine, F: TimestampOrderingFaults>(cell: Cell<M>, ts: u64, access: Access) -> Decision {
    let timestamps = timestamps(cell);
    // Relaxed, all: under the latch.
    if timestamps.wts.load(Ordering::Relaxed) > ts {
        return Decision::Rejected;
    }
    let prewrite = timestamps.prewrite.load(Ordering::Relaxed);
    // Relaxed, below: as above.
    match access {
        Access::Read if waits_for::<F>(prewrite, ts) => Decision::WaitFor(prewrite),
        Access::Read => Decision::Granted,
        Access::Prewrite if is_overtaking::<F>(timestamps.rts.load(Ordering::Relaxed), ts) => Decision::Rejected,
        Access::Prewrite if prewrite == 0 || prewrite == ts => Decision::Granted,
        Access::Prewrite if prewrite < ts => Decision::WaitFor(prewrite),
        Access::Prewrite => Decision::Rejected,
    }
}

// Where the algorithm asks for its faults.

/// Returns whether a read of time `ts` waits for this prewrite.
#[inline(always)]
fn waits_for<F: TimestampOrderingFaults>(prewrite: u64, ts: u64) -> bool {
    prewrite != 0 && prewrite < ts && !F::ignore_prewrites()
}

/// Returns whether a write of time `ts` would come before a read that has not seen it.
#[inline(always)]
fn is_overtaking<F: TimestampOrderingFaults>(rts: u64, ts: u64) -> bool {
    rts > ts && !F::overtake_reads()
}
