//! Two-phase locking without waiting: who meets a conflict aborts.
//!
//! **Idea.** A reader-writer lock in one word per record. A lock that can't be had at once aborts the transaction that asks, so there is
//! no deadlock and nothing to detect. What is common to locking is in [`crate::locking`].
//!
//! **Papers.** The policy NO_WAIT: P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems", ACM Computing
//! Surveys 1981; measured in X. Yu et al.: "Staring into the abyss", VLDB 2014.
//!
//! **Metadata.** One word a cell: [`crate::locking::word`].
//!
//! **Waits** for nothing. Progress is up to trying again: two transactions that share two records can abort each other for ever only if
//! they keep meeting in the same step, which backoff and the host's own irregularity prevent.

use std::marker::PhantomData;

use contend_engine::{Abort, AbortReason, Cell, Info, options};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::locking::{Asked, Held, Locks, TwoPhase, info, word};

options! {
    /// There is nothing to choose.
    pub struct NoWaitOptions {}
}

/// The protocol.
pub type NoWait<F = Sound> = TwoPhase<NoWaitLocks<F>>;

/// Its locks.
#[derive(Debug)]
pub struct NoWaitLocks<F> {
    faults: PhantomData<fn() -> F>,
}

impl<M: Machine, F: Faults> Locks<M> for NoWaitLocks<F> {
    const INFO: Info = info(
        "2pl-nowait",
        "two-phase locking: a reader-writer lock per record, held to the end; a conflict aborts at once",
        "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
    );
    const META_WORDS: usize = 1;
    type Options = NoWaitOptions;
    type Faults = F;
    type Local = ();
    type Handle = ();

    fn new(_: NoWaitOptions) -> Self {
        NoWaitLocks { faults: PhantomData }
    }

    fn local(&self, _: usize) {}

    fn init(cell: Cell<M>, flags: u64, held: bool) {
        word::init(cell, flags, held);
    }

    fn adopt(&self, (): &mut (), _: Cell<M>) {}

    #[inline(always)]
    fn lock(&self, (): &mut (), cell: Cell<M>, held: Held) -> Result<Asked<()>, Abort> {
        match held {
            Held::Shared => word::try_shared(cell).map_err(|_| Abort::new(AbortReason::ReadLocked)),
            Held::Exclusive => word::try_exclusive::<M, F>(cell, 0).map_err(|_| Abort::new(AbortReason::WriteLocked)),
        }
    }

    #[inline(always)]
    fn upgrade(&self, (): &mut (), cell: Cell<M>, (): ()) -> Result<(), Abort> {
        word::try_exclusive::<M, F>(cell, 1).map(drop).map_err(|_| Abort::new(AbortReason::WriteLocked))
    }

    #[inline(always)]
    fn unlock(&self, (): &mut (), cell: Cell<M>, held: Held, (): ()) {
        word::unlock::<M, F>(cell, held);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        word::flags(cell)
    }

    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        word::set_flags::<M, F>(cell, clear, set)
    }

    fn seize(cell: Cell<M>) -> Option<u64> {
        word::seize(cell)
    }

    fn let_go(cell: Cell<M>, clear: u64, set: u64) {
        word::let_go(cell, clear, set);
    }
}
