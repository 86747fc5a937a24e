//! A reader-writer lock in one word: it counts its readers, and doesn't know which transactions
//! they are.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..4 | the number of transactions that hold the cell shared |
//! | 3..1 | flags: [`crate::flags`] |
//! | 0 | a transaction holds the cell exclusively |
//!
//! While bit 0 is set, no other transaction changes the word: each change is an exchange that
//! expects bit 0 clear. So the exclusive holder changes flags and releases the lock by plain
//! stores.
//!
//! **Orderings.** Each Acquire exchange that takes the lock pairs with the Release by which an
//! earlier holder released it. So a reader sees the row as its last writer left it. And a writer
//! comes after the loads of the readers before it: their decrements are read-modify-writes, each of
//! which continues the release sequence of those before. So the exchange pairs with the Release of
//! each of them.

use std::marker::PhantomData;

use contend_engine::Cell;
use contend_machine::{Atomic64, Machine, Ordering};

use super::{FLAGS, LockMode, LockOutcome, LockWord, LockingFaults, readers_block};
use crate::flags::UNLINKED;

const EXCLUSIVE: u64 = 1;
/// One reader.
const READER: u64 = 1 << 4;

/// The layout of the lock.
#[derive(Debug)]
pub struct ReaderWriterWord<F>(PhantomData<fn() -> F>);

/// A conflict: other transactions hold the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conflict;

/// Acquires the cell in `mode`, unless that conflicts with its holders.
#[inline(always)]
pub(crate) fn try_acquire<M: Machine, F: LockingFaults>(
    cell: Cell<M>,
    mode: LockMode,
) -> Result<LockOutcome<()>, Conflict> {
    match mode {
        LockMode::Shared => try_acquire_shared(cell),
        LockMode::Exclusive => try_acquire_exclusive::<M, F>(cell, 0),
    }
}

/// Makes the shared lock of the caller exclusive, unless other transactions hold the cell shared.
#[inline(always)]
pub(crate) fn try_upgrade<M: Machine, F: LockingFaults>(cell: Cell<M>) -> Result<(), Conflict> {
    try_acquire_exclusive::<M, F>(cell, 1).map(drop)
}

#[inline(always)]
fn try_acquire_shared<M: Machine>(cell: Cell<M>) -> Result<LockOutcome<()>, Conflict> {
    // The first exchange guesses that the cell has a row and no holder. It saves a load, and so a
    // transfer of the line.
    let mut word = 0;
    loop {
        // Acquire: pairs with the Release of the writer in `release`: the reader sees the row as
        // that writer left it. Relaxed: a failed exchange only supplies the next guess.
        match cell.word().compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(LockOutcome::Granted((), word & FLAGS)),
            Err(now) if now & EXCLUSIVE != 0 => return Err(Conflict),
            Err(now) if now & UNLINKED != 0 => return Ok(LockOutcome::Unlinked),
            Err(now) => word = now,
        }
    }
}

/// Acquires the cell exclusively; the caller holds `shares` (0 or 1) of its shared locks.
#[inline(always)]
fn try_acquire_exclusive<M: Machine, F: LockingFaults>(
    cell: Cell<M>,
    shares: u64,
) -> Result<LockOutcome<()>, Conflict> {
    let own = shares * READER;
    // As in `try_acquire_shared`, the first exchange is a guess.
    let mut word = own;
    loop {
        let new = word - own + EXCLUSIVE;
        // Acquire: pairs with the Release of each holder before, in `release`: the row is as its
        // last writer left it, and the loads of its readers are done. Relaxed: a failed exchange
        // only supplies the next guess.
        match cell.word().compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(LockOutcome::Granted((), word & FLAGS)),
            Err(now) if now & UNLINKED != 0 => return Ok(LockOutcome::Unlinked),
            Err(now) if now & !FLAGS == own => word = now,
            Err(now) if !readers_block::<F>() && now & EXCLUSIVE == 0 => word = now,
            Err(_) => return Err(Conflict),
        }
    }
}

/// Releases the cell, which the caller holds in `mode`.
#[inline(always)]
pub(crate) fn release<M: Machine, F: LockingFaults>(cell: Cell<M>, mode: LockMode) {
    let word = cell.word();
    match mode {
        // Release: this reader's loads of the row come before; pairs with the Acquire of the next
        // writer, in `try_acquire_exclusive`.
        LockMode::Shared => drop(word.fetch_sub(READER, Ordering::Release)),
        // Only with a fault. Release: as below.
        LockMode::Exclusive if !readers_block::<F>() => drop(word.fetch_sub(EXCLUSIVE, Ordering::Release)),
        // Relaxed: no other transaction changes the word meanwhile. Release: the stores to the row
        // come before; pairs with the Acquire of the next reader or writer.
        LockMode::Exclusive => word.store(word.load(Ordering::Relaxed) & FLAGS, Ordering::Release),
    }
}

impl<M: Machine, F: LockingFaults> LockWord<M> for ReaderWriterWord<F> {
    fn init(cell: Cell<M>, flags: u64, held: bool) {
        // Relaxed: the index publishes the record.
        cell.word().store(flags | if held { EXCLUSIVE } else { 0 }, Ordering::Relaxed);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        // Acquire: pairs with the Release of `release`, for a caller that holds nothing: if it
        // finds the record absent or unlinked, what made it so comes before. For a holder, its own
        // exchange has ordered them.
        cell.word().load(Ordering::Acquire) & FLAGS
    }

    #[inline(always)]
    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        // Relaxed, all of them: the word is the exclusive holder's, and its `release` publishes the
        // flags.
        let before = cell.word().load(Ordering::Relaxed);
        if !readers_block::<F>() || F::unlink_locked() {
            // With a fault, others change the word meanwhile. Relaxed: as above.
            cell.word().fetch_and(!clear, Ordering::Relaxed);
            cell.word().fetch_or(set, Ordering::Relaxed);
        } else {
            // Relaxed: no other transaction changes the word while its bit 0 is set.
            cell.word().store(before & !clear | set, Ordering::Relaxed);
        }
        before & FLAGS
    }

    fn try_acquire_exclusive(cell: Cell<M>) -> Option<u64> {
        // Relaxed: the exchange checks what the load has seen.
        let word = cell.word().load(Ordering::Relaxed);
        let is_free = word & !FLAGS == 0;
        // Acquire: pairs with the Release of the last holder, in `release`. Relaxed: a failed
        // exchange returns nothing.
        let taken = is_free
            && cell.word().compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then_some(word)
    }

    fn release_exclusive(cell: Cell<M>, clear: u64, set: u64) {
        // Relaxed: no other transaction changes the word. Release: pairs with the Acquire of the
        // next reader or writer, and of `flags`.
        cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS & !clear | set, Ordering::Release);
    }
}
