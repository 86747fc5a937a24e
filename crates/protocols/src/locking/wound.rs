//! Wounds: how an older transaction makes a younger one abort.
//!
//! Each worker has one word, with the number of its transaction and the transaction's state:
//!
//! | state | meaning | next |
//! | --- | --- | --- |
//! | `RUNNING` | it runs, and can be wounded | `WOUNDED`, `COMMITTING` |
//! | `WOUNDED` | it must abort, at the latest at its commit point | `ENDED` |
//! | `COMMITTING` | it has passed its commit point, and can't be wounded any more | `DECIDED` |
//! | `DECIDED` | it is sure to commit, and so its successors may commit (Bamboo only) | `ENDED` |
//! | `ENDED` | it has released all its locks (Bamboo only) | the next transaction |
//!
//! A wound exchanges `RUNNING` for `WOUNDED`, and the commit point exchanges `RUNNING` for
//! `COMMITTING`. Both expect the same word, so exactly one of them succeeds: a transaction that
//! commits was not wounded.

use contend_engine::AbortReason;
use contend_machine::{Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use super::list::LockOwner;
use crate::faults;
use crate::locking::LockingFaults;

// The states, in the low bits of a worker's word, below the transaction's number.
const RUNNING: u64 = 0;
const WOUNDED: u64 = 1;
const COMMITTING: u64 = 2;
const DECIDED: u64 = 3;
const ENDED: u64 = 4;
const STATE: u64 = 7;
const NUMBER_SHIFT: u32 = 3;

/// The state of each worker's transaction.
#[derive(Debug)]
pub(crate) struct TransactionStates<M: Machine>(Box<[CachePadded<M::U64>]>);

impl<M: Machine> TransactionStates<M> {
    /// Returns the states of workers with numbers below `workers`.
    pub(crate) fn new(workers: usize) -> Self {
        TransactionStates((0..workers).map(|_| CachePadded::new(M::U64::new(0))).collect())
    }

    /// Returns the number of the worker's last transaction. A worker that takes the place of
    /// another continues its numbers, so that a number names one transaction only.
    pub(crate) fn last_number(&self, worker: usize) -> u64 {
        // Relaxed: the worker that stored the word has ended.
        self.0[worker].load(Ordering::Relaxed) >> NUMBER_SHIFT
    }

    /// Begins the transaction of this number.
    #[inline(always)]
    pub(crate) fn begin(&self, worker: usize, number: u64) {
        // Release: the end of the worker's last transaction comes before; pairs with the Acquire of
        // `has_decided`, which takes a larger number for the end.
        self.0[worker].store(number << NUMBER_SHIFT | RUNNING, Ordering::Release);
    }

    /// Wounds a transaction, if it runs. The caller still waits for it to release its locks.
    pub(crate) fn wound(&self, other: LockOwner) {
        let running = other.transaction << NUMBER_SHIFT | RUNNING;
        // Relaxed, both: the word's own order decides between a wound and the commit point. The
        // wounded transaction's data passes on by its locks, whose Release and Acquire order it.
        let state = &self.0[other.worker];
        if state.compare_exchange(running, running | WOUNDED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            M::step("wound");
        }
    }

    /// Fails if the caller's transaction is wounded.
    ///
    /// # Errors
    /// It is wounded, and must abort.
    #[inline(always)]
    pub(crate) fn check<F: WoundFaults>(&self, own: LockOwner) -> Result<(), AbortReason> {
        // Relaxed: as in `wound`. A wound that this load misses fails the exchange at the commit
        // point.
        let is_wounded = self.0[own.worker].load(Ordering::Relaxed) & STATE == WOUNDED;
        if is_wounded && obeys_wounds::<F>() { Err(AbortReason::Wounded) } else { Ok(()) }
    }

    /// Passes the commit point of the caller's transaction: from here on it can't be wounded.
    ///
    /// # Errors
    /// It is wounded, and must abort.
    #[inline(always)]
    pub(crate) fn commit_point<F: WoundFaults>(&self, own: LockOwner) -> Result<(), AbortReason> {
        let running = own.transaction << NUMBER_SHIFT | RUNNING;
        // Relaxed, both: as in `wound`.
        match self.0[own.worker].compare_exchange(running, running | COMMITTING, Ordering::Relaxed, Ordering::Relaxed) {
            Err(_) if obeys_wounds::<F>() => Err(AbortReason::Wounded),
            _ => Ok(()),
        }
    }

    /// Announces that the caller's transaction, which has passed its commit point, commits.
    pub(crate) fn decide(&self, own: LockOwner) {
        // Release: its inserts into indexes and its place in the log come before; pairs with the
        // Acquire of `has_decided`, after which a successor validates its leaves.
        self.0[own.worker].store(own.transaction << NUMBER_SHIFT | DECIDED, Ordering::Release);
    }

    /// Ends the caller's transaction. If it aborts, it has wounded its successors before.
    pub(crate) fn end(&self, own: LockOwner) {
        // Release: the wounds come before; pairs with the Acquire of `has_decided`. So a successor
        // that sees the end also sees its own wound, and fails at its commit point.
        self.0[own.worker].store(own.transaction << NUMBER_SHIFT | ENDED, Ordering::Release);
    }

    /// Returns whether a transaction has announced its commit, or has ended.
    pub(crate) fn has_decided(&self, other: LockOwner) -> bool {
        // Acquire: pairs with the Release stores of `decide`, `end` and `begin`.
        let state = self.0[other.worker].load(Ordering::Acquire);
        state >> NUMBER_SHIFT != other.transaction || matches!(state & STATE, DECIDED | ENDED)
    }
}

faults! {
    /// The deliberate faults of protocols that wound.
    pub trait WoundFaults: LockingFaults {
        /// A wounded transaction commits all the same, and the one that wounded it does not wait
        /// for its end.
        ignore_wounds,
    }
    pub const FAULTS;
}

/// Returns whether a wounded transaction aborts, and the one that wounded it waits: always, without
/// a fault.
#[inline(always)]
pub(crate) fn obeys_wounds<F: WoundFaults>() -> bool {
    !F::ignore_wounds()
}
