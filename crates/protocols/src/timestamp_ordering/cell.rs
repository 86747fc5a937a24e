//! What timestamp ordering keeps of a cell, and the rule by which it grants.

use contend_engine::Cell;
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::Faults;
use crate::flags::LOCKED;

/// What is wanted of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Read,
    Write,
}

/// Whether it can be had.
pub(super) enum Answer {
    Yes,
    /// An older transaction, of this timestamp, has announced a write.
    Later(u64),
    Never,
}

/// A cell's words.
pub(super) struct Times<'a, M: Machine> {
    pub(super) written: &'a M::U64,
    pub(super) read: &'a M::U64,
    pub(super) announced: &'a M::U64,
}

pub(super) fn times<'a, M: Machine>(cell: Cell<M>) -> Times<'a, M> {
    // SAFETY: cells have four words.
    unsafe { Times { written: cell.meta(1), read: cell.meta(2), announced: cell.meta(3) } }
}

/// Latches a cell; its flags. A latch is held for some instructions, in which nothing is waited for.
#[inline(always)]
pub(super) fn latch<M: Machine>(cell: Cell<M>) -> u64 {
    let mut spin = Spin::<M>::new();
    // A first guess instead of a load: a row.
    let mut word = 0;
    loop {
        // Acquire: pairs with the Release of `unlatch`.
        match cell.word().compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return word,
            Err(now) => {
                if now & LOCKED != 0 {
                    spin.wait();
                }
                word = now & !LOCKED;
            }
        }
    }
}

#[inline(always)]
pub(super) fn unlatch<M: Machine>(cell: Cell<M>, flags: u64) {
    // Release: pairs with the Acquire of `latch`.
    cell.word().store(flags, Ordering::Release);
}

/// Whether a transaction of this timestamp can have what it wants of a cell, which is latched.
#[inline(always)]
pub(super) fn ask<M: Machine, F: Faults>(cell: Cell<M>, own: u64, want: Want) -> Answer {
    let times = times(cell);
    // Relaxed, all of them: under the latch.
    if times.written.load(Ordering::Relaxed) > own {
        return Answer::Never;
    }
    let announced = times.announced.load(Ordering::Relaxed);
    match want {
        Want::Read if announced == 0 || announced >= own || F::IGNORE_PREWRITES => Answer::Yes,
        Want::Read => Answer::Later(announced),
        Want::Write if times.read.load(Ordering::Relaxed) > own && !F::OVERTAKE_READS => Answer::Never,
        Want::Write if announced == 0 || announced == own => Answer::Yes,
        Want::Write if announced < own => Answer::Later(announced),
        Want::Write => Answer::Never,
    }
}
