//! A reader-writer lock in one word: it knows how many hold it, not who.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..4 | how many transactions hold the cell shared |
//! | 3..1 | flags: [`crate::flags`] |
//! | 0 | held exclusively |
//!
//! While a cell is held exclusively its word belongs to the holder alone, so that it is released by a plain store.

use contend_engine::Cell;
use contend_machine::{Atomic64, Machine, Ordering};

use super::{Asked, FLAGS, Held};
use crate::fault::Faults;
use crate::flags::UNLINKED;

const EXCLUSIVE: u64 = 1;
/// One reader.
const READER: u64 = 1 << 4;

/// The lock is held by others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken;

pub(crate) fn init<M: Machine>(cell: Cell<M>, flags: u64, held: bool) {
    // Relaxed: the index publishes the record.
    cell.word().store(flags | if held { EXCLUSIVE } else { 0 }, Ordering::Relaxed);
}

/// Takes the lock shared, if it can be had at once.
#[inline(always)]
pub(crate) fn try_shared<M: Machine>(cell: Cell<M>) -> Result<Asked<()>, Taken> {
    // A first guess instead of a load: a row that nobody holds. It saves a transfer of the line.
    let mut word = 0;
    loop {
        // Acquire: pairs with the Release of `unlock`: the row is seen as its last writer left it.
        match cell.word().compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Asked::Granted((), word & FLAGS)),
            Err(now) if now & EXCLUSIVE != 0 => return Err(Taken),
            Err(now) if now & UNLINKED != 0 => return Ok(Asked::Unlinked),
            Err(now) => word = now,
        }
    }
}

/// Takes the lock exclusively, if it can be had at once; `shares` (0 or 1) of it are the caller's already.
#[inline(always)]
pub(crate) fn try_exclusive<M: Machine, F: Faults>(cell: Cell<M>, shares: u64) -> Result<Asked<()>, Taken> {
    let own = shares * READER;
    let mut word = own;
    loop {
        let new = word - own + EXCLUSIVE;
        // Acquire: pairs with the Release of `unlock`: the row is as its last writer left it, and its readers are done.
        match cell.word().compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Asked::Granted((), word & FLAGS)),
            Err(now) if now & UNLINKED != 0 => return Ok(Asked::Unlinked),
            Err(now) if now & !FLAGS == own => word = now,
            Err(now) if F::IGNORE_READERS && now & EXCLUSIVE == 0 => word = now,
            Err(_) => return Err(Taken),
        }
    }
}

#[inline(always)]
pub(crate) fn unlock<M: Machine, F: Faults>(cell: Cell<M>, held: Held) {
    let word = cell.word();
    match held {
        // Release: what was read was read before; pairs with the Acquire of `try_exclusive`.
        Held::Shared => drop(word.fetch_sub(READER, Ordering::Release)),
        // There may be readers, whose shares stay.
        Held::Exclusive if F::IGNORE_READERS => drop(word.fetch_sub(EXCLUSIVE, Ordering::Release)),
        // Relaxed: the word is this transaction's. Release: the row comes before; pairs with the Acquire of the next lock.
        Held::Exclusive => word.store(word.load(Ordering::Relaxed) & FLAGS, Ordering::Release),
    }
}

#[inline(always)]
pub(crate) fn flags<M: Machine>(cell: Cell<M>) -> u64 {
    // Acquire: for who holds nothing, pairs with the Release of `unlock`. Flags of a cell that is held change by the holder only.
    cell.word().load(Ordering::Acquire) & FLAGS
}

/// Changes the flags of a cell that the caller holds exclusively; what they were.
#[inline(always)]
pub(crate) fn set_flags<M: Machine, F: Faults>(cell: Cell<M>, clear: u64, set: u64) -> u64 {
    // Relaxed, all of them: `unlock` publishes the word.
    let before = cell.word().load(Ordering::Relaxed);
    if F::IGNORE_READERS || F::UNLINK_LOCKED {
        cell.word().fetch_and(!clear, Ordering::Relaxed);
        cell.word().fetch_or(set, Ordering::Relaxed);
    } else {
        cell.word().store(before & !clear | set, Ordering::Relaxed);
    }
    before & FLAGS
}

pub(crate) fn seize<M: Machine>(cell: Cell<M>) -> Option<u64> {
    // Relaxed: the exchange decides.
    let word = cell.word().load(Ordering::Relaxed);
    let free = word & !FLAGS == 0;
    // Acquire: as any lock.
    let taken =
        free && cell.word().compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
    taken.then_some(word)
}

pub(crate) fn let_go<M: Machine>(cell: Cell<M>, clear: u64, set: u64) {
    // Relaxed: the word is the caller's. Release: as any unlock.
    cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS & !clear | set, Ordering::Release);
}
