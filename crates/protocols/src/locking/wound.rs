//! Wounds: how an older transaction tells a younger one to abort.
//!
//! A worker has one word: the number of its transaction, and whether that runs, is wounded, commits, has said so, or has ended. Wounding and passing the
//! commit point are exchanges of that word, so that one of both fails: who commits can't be wounded any more.

use contend_engine::AbortReason;
use contend_machine::{Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use super::list::Ticket;
use crate::fault::Faults;

/// In a worker's word, below the transaction's number.
const RUNS: u64 = 0;
const WOUNDED: u64 = 1;
const COMMITS: u64 = 2;
const DECIDED: u64 = 3;
const ENDED: u64 = 4;
const STATE: u64 = 7;
const NUMBER_SHIFT: u32 = 3;

/// The workers' words.
#[derive(Debug)]
pub(crate) struct Wounds<M: Machine>(Box<[CachePadded<M::U64>]>);

impl<M: Machine> Wounds<M> {
    /// Of so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Wounds((0..workers).map(|_| CachePadded::new(M::U64::new(0))).collect())
    }

    /// The number of the worker's last transaction: a number is of one transaction only, also if its worker ends and another follows it.
    pub(crate) fn last_number(&self, worker: usize) -> u64 {
        // Relaxed: the worker before has ended.
        self.0[worker].load(Ordering::Relaxed) >> NUMBER_SHIFT
    }

    /// A transaction begins.
    #[inline(always)]
    pub(crate) fn begin(&self, worker: usize, number: u64) {
        // Release: what the one before did, for who waits for its end in `has_decided`.
        self.0[worker].store(number << NUMBER_SHIFT | RUNS, Ordering::Release);
    }

    /// Wounds a transaction, if it runs. Whoever needs what it holds waits for it to end all the same.
    pub(crate) fn wound(&self, other: Ticket) {
        let runs = other.number << NUMBER_SHIFT | RUNS;
        // Relaxed: only the word itself counts; what the wounded held passes on by its locks.
        let state = &self.0[other.worker];
        if state.compare_exchange(runs, runs | WOUNDED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            M::step("wound");
        }
    }

    /// Whether the caller's transaction may go on.
    ///
    /// # Errors
    /// It was wounded.
    #[inline(always)]
    pub(crate) fn check<F: Faults>(&self, own: Ticket) -> Result<(), AbortReason> {
        // Relaxed: as in `wound`.
        let wounded = self.0[own.worker].load(Ordering::Relaxed) & STATE == WOUNDED;
        if wounded && !F::IGNORE_WOUNDS { Err(AbortReason::Wounded) } else { Ok(()) }
    }

    /// The caller's transaction passes its commit point.
    ///
    /// # Errors
    /// It was wounded.
    #[inline(always)]
    pub(crate) fn commit_point<F: Faults>(&self, own: Ticket) -> Result<(), AbortReason> {
        let runs = own.number << NUMBER_SHIFT | RUNS;
        // Relaxed: as in `wound`.
        match self.0[own.worker].compare_exchange(runs, runs | COMMITS, Ordering::Relaxed, Ordering::Relaxed) {
            Err(_) if !F::IGNORE_WOUNDS => Err(AbortReason::Wounded),
            _ => Ok(()),
        }
    }

    /// The caller's transaction, which has passed its commit point, lets those commit that have seen what it wrote.
    pub(crate) fn decided(&self, own: Ticket) {
        // Release: its inserts into indexes, and its place in the log; pairs with the Acquire of `has_decided`.
        self.0[own.worker].store(own.number << NUMBER_SHIFT | DECIDED, Ordering::Release);
    }

    /// The caller's transaction has ended, and whoever it had to wound is wounded.
    pub(crate) fn end(&self, own: Ticket) {
        // Release: the wounds; pairs with the Acquire of `has_decided`.
        self.0[own.worker].store(own.number << NUMBER_SHIFT | ENDED, Ordering::Release);
    }

    /// Whether a transaction is sure to commit, and has said so; or has ended.
    pub(crate) fn has_decided(&self, other: Ticket) -> bool {
        // Acquire: pairs with the Releases above.
        let state = self.0[other.worker].load(Ordering::Acquire);
        state >> NUMBER_SHIFT != other.number || matches!(state & STATE, DECIDED | ENDED)
    }
}
