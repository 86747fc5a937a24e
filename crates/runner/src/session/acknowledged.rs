//! Commits that wait until they are durable, and the times at which they are.
//!
//! A worker asks its log between transactions, and while it waits for the next start of an open
//! loop. So a transaction that takes long also delays what is known of those before it.

use std::cell::RefCell;
use std::collections::VecDeque;

use contend_engine::{Protocol, Worker};
use contend_machine::{Cycles, Machine};

use super::Tally;

/// The longest time, in seconds, between two questions to the log while a worker has nothing else
/// to do.
pub(super) const ASK_EVERY: f64 = 100e-6;

/// A commit that may not be durable yet. Times are by the machine's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    /// The log's ticket for it.
    pub(super) ticket: u64,
    /// When its transaction began.
    pub(super) start: Cycles,
    /// When the start was due, in an open loop.
    pub(super) due: Option<Cycles>,
    /// The type of its transaction.
    pub(super) kind: usize,
}

/// The commits of a worker that wait, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(VecDeque<Commit>);

impl Waiting {
    /// Adds a commit, which comes after all that wait.
    pub(super) fn push(&mut self, commit: Commit) {
        self.0.push_back(commit);
    }

    /// Forgets all that wait.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks the log, and notes the times of those that are durable now. Cores of a chip share the
    /// tally, and another core may go on while this one asks. So the tally is borrowed for each
    /// note only.
    pub(super) fn ask<P: Protocol<M>, M: Machine>(&mut self, worker: &mut Worker<P, M>, tally: &RefCell<Tally>) {
        while let Some(&commit) = self.0.front().filter(|commit| worker.is_durable(commit.ticket)) {
            self.0.pop_front();
            let now = M::now();
            let tally = &mut *tally.borrow_mut();
            tally.durable.saturating_record(nanoseconds::<M>(commit.start, now));
            if let Some(due) = commit.due {
                tally.kinds[commit.kind].add_response(nanoseconds::<M>(due, now));
            }
        }
    }
}

/// Returns the nanoseconds from one time of the machine's clock to another, at least 1.
pub(super) fn nanoseconds<M: Machine>(from: Cycles, to: Cycles) -> u64 {
    ((to.wrapping_sub(from) as f64 * 1e9 / M::cycles_per_second()) as u64).max(1)
}
