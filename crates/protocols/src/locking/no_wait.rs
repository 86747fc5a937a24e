//! Two-phase locking without waiting: a transaction that meets a conflict aborts.
//!
//! **Idea.** Each record has a reader-writer lock in one word. A request that conflicts with the
//! lock's holders aborts its transaction at once. So no transaction waits, there is no deadlock,
//! and there is nothing to detect. [`crate::locking`] has what the locking protocols share.
//!
//! **Papers.** The policy NO_WAIT: P. A. Bernstein, N. Goodman: "Concurrency control in distributed
//! database systems", ACM Computing Surveys 1981; measured in X. Yu et al.: "Staring into the
//! abyss", VLDB 2014.
//!
//! **Metadata.** One word a cell: [`crate::locking::word`].
//!
//! **Waits**: none. Progress depends on the next try. Two transactions that share two records can
//! abort each other for ever only if they keep meeting in the same step. Backoff and the machine's
//! own irregularity prevent that.

use std::marker::PhantomData;

use contend_engine::{Abort, Cell, ProtocolInfo, options};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::locking::word::{self, ReaderWriterWord};
use crate::locking::{LockManager, LockMode, LockOutcome, LockingFaults, TwoPhase, info};

options! {
    /// There is nothing to choose.
    pub struct NoWaitOptions {}
}

/// The protocol.
pub type NoWait<F = Sound> = TwoPhase<NoWaitLocks<F>>;

/// The lock manager of NO_WAIT: it has no state besides the locks' words.
#[derive(Debug)]
pub struct NoWaitLocks<F> {
    faults: PhantomData<fn() -> F>,
}

impl<M: Machine, F: LockingFaults> LockManager<M> for NoWaitLocks<F> {
    const INFO: ProtocolInfo = info(
        "2pl-nowait",
        "two-phase locking: a reader-writer lock per record, held to the end; a conflict aborts at once",
        "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
    );
    type Options = NoWaitOptions;
    type Faults = F;
    type WorkerState = ();
    type Handle = ();
    type Word = ReaderWriterWord<F>;

    fn new(_: NoWaitOptions) -> Self {
        NoWaitLocks { faults: PhantomData }
    }

    fn new_worker_state(&self, _: usize) {}

    fn adopt_placeholder(&self, (): &mut (), _: Cell<M>) {}

    #[inline(always)]
    fn acquire(&self, (): &mut (), cell: Cell<M>, mode: LockMode) -> Result<LockOutcome<()>, Abort> {
        word::try_acquire::<M, F>(cell, mode).map_err(|word::Conflict| Abort::new(mode.conflict()))
    }

    #[inline(always)]
    fn upgrade(&self, (): &mut (), cell: Cell<M>, (): ()) -> Result<(), Abort> {
        word::try_upgrade::<M, F>(cell).map_err(|word::Conflict| Abort::new(LockMode::Exclusive.conflict()))
    }

    #[inline(always)]
    fn release(&self, (): &mut (), cell: Cell<M>, mode: LockMode, (): ()) {
        word::release::<M, F>(cell, mode);
    }
}
