//! What protocols share that show rows before the commit, and order transactions by lists of
//! accessors.
//!
//! The row of a cell is the newest one that a running transaction has shown, or the committed one.
//! Each cell has a list of its *accessors*: the running transactions that have read or written it,
//! in this order. A transaction depends on those that stand before it in a list: on the last
//! writer, and, if it writes itself, on all readers since. It commits after these *predecessors*.
//! If it aborts, it puts back what its cells held, and dooms all that stand behind it in the lists.
//!
//! | file | contents |
//! | --- | --- |
//! | `list` | the list of a cell, and the memory of its entries |
//! | `progress` | how far each worker's transaction has come; dooms, and the commit point |
//! | `member` | a transaction as a member of lists, and its wait for its predecessors |
//! | `shown` | how a row is shown, and how that is taken back |
//!
//! | word of a cell | contents |
//! | --- | --- |
//! | 0 | a version above [`crate::flags`], as in the optimistic family; bit 0 is the lock |
//! | 1 | the newest accessor: its address, its worker, and whether it has written (`list`) |
//!
//! The lock of a cell is held for one access, or for the end of one step or commit. A holder waits
//! for other locks in an order that all have, or for a limited time, and for validations, which
//! wait for nothing. So the locks can't deadlock, and a worker that holds none waits for one
//! without a limit.
//!
//! **Why an abort is not missed.** A transaction dooms the accessors behind its own before its end
//! is announced. A transaction that depends on it waits for that end before its own commit point.
//! So it has been doomed by then, and the exchange at its commit point fails.

mod list;
mod member;
mod progress;
mod shown;

use contend_engine::{Cell, Cells, RecordOrigin, Tombstone, UnlinkOutcome};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

pub(crate) use list::{AccessList, Accessor, AccessorHandle, Pool};
pub(crate) use member::Member;
pub(crate) use progress::{Progress, RANK_MAX, Running, scan_bit};
pub(crate) use shown::{Shown, shown_word};

use crate::fault::FenceFaults;
use crate::faults;
use crate::flags::{self, ABSENT, LOCKED};

/// The number of metadata words of a cell with a list.
pub(crate) const META_WORDS: usize = 2;

/// Sets the words of a new record's cells.
pub(crate) fn init<M: Machine>(cells: Cells<M>, initial: RecordOrigin) {
    for cell in cells.clone() {
        // SAFETY: the cells of these protocols have two words or more.
        // Relaxed: no other transaction sees the record yet; the index publishes it.
        unsafe { cell.meta(1) }.store(0, Ordering::Relaxed);
    }
    flags::init_words(cells, initial, ABSENT);
}

/// Returns the list of a cell that the caller has locked.
pub(crate) fn list_of<'a, M: Machine>(cell: Cell<M>) -> AccessList<'a, M> {
    // SAFETY: the cells of these protocols have two words or more, the second for the list.
    unsafe { AccessList::of(cell) }
}

/// Locks a cell, and returns its word.
pub(crate) fn lock<M: Machine>(cell: Cell<M>) -> u64 {
    let mut spin = Spin::<M>::new();
    loop {
        // Relaxed: the exchange decides.
        let word = cell.word().load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the last unlock: the list and the row are as it left
        // them. Relaxed: a failed exchange is tried again.
        if word & LOCKED == 0
            && cell.word().compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return word;
        }
        spin.back_off();
    }
}

/// Unlocks a cell, and gives it this word.
pub(crate) fn unlock<M: Machine>(cell: Cell<M>, word: u64) {
    // Release: pairs with the Acquire of the next lock, and of readers without a lock
    // (`ReadsAndLocks`).
    cell.word().store(word & !LOCKED, Ordering::Release);
}

/// Marks a tombstone as unlinked, if it still is one, and no running transaction has accessed it.
/// Such a transaction has read the record as absent, or may take its delete back. `is_kept` gives
/// further reasons to keep a cell, which is locked then.
pub(crate) fn unlink<M: Machine, F: AccessFaults>(
    tombstone: Tombstone<'_, M>,
    is_kept: impl Fn(Cell<M>) -> bool,
) -> UnlinkOutcome {
    let try_acquire = |cell: Cell<M>| {
        // Relaxed: the exchange decides.
        let word = cell.word().load(Ordering::Relaxed);
        // Acquire: as in `lock`. Relaxed: a failed exchange is not tried again.
        let locked = word & LOCKED == 0
            && cell.word().compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if locked && (!list_of(cell).is_empty() && !F::unlink_read() || is_kept(cell)) {
            unlock(cell, word);
            return None;
        }
        locked.then_some(word)
    };
    let release = |cell: Cell<M>, clear: u64, set: u64| {
        // Relaxed: no other thread changes the word of a locked cell.
        let word = cell.word().load(Ordering::Relaxed);
        unlock(cell, word & !clear | set);
    };
    flags::unlink_held(tombstone, try_acquire, release)
}

faults! {
    /// The deliberate faults of protocols with lists of accessors.
    pub trait AccessFaults: FenceFaults {
        /// A transaction does not wait for the transactions that it depends on to end.
        forget_predecessors,
        /// A transaction that aborts does not doom the transactions that have seen its writes.
        forget_dependents,
        /// A write depends on the newest accessor only.
        last_accessor_only,
        /// A write depends on no reader.
        ignore_readers,
        /// A transaction whose own access is void restores what it has saved all the same.
        restore_void,
        /// A transaction that aborts ends before it dooms others.
        doom_after_end,
        /// A tombstone leaves its index though a running transaction has accessed it.
        unlink_read,
    }
    pub const FAULTS;
}
