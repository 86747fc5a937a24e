//! What happened in a interval.

use contend_engine::abort::AbortCounts;
use contend_machine::{Phase, PhaseTimes};
use hdrhistogram::Histogram;

/// Latencies up to a minute are told apart, to three digits.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// What happened to transactions of one type.
#[derive(Clone, Debug)]
pub struct KindCount {
    /// Transactions that committed.
    pub commits: u64,
    /// Aborted tries by reason.
    pub aborts: AbortCounts,
    /// In nanoseconds, of those that were timed.
    pub latencies: Histogram<u64>,
}

impl Default for KindCount {
    fn default() -> Self {
        Self::new()
    }
}

impl KindCount {
    /// Returns a count of nothing.
    pub fn new() -> Self {
        KindCount { commits: 0, aborts: AbortCounts::default(), latencies: histogram() }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &KindCount) {
        self.commits += other.commits;
        self.aborts.merge(&other.aborts);
        self.latencies.add(&other.latencies).expect("histograms of equal bounds");
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.commits == 0 && self.aborts == AbortCounts::default()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("valid bounds")
}

/// What happened, by type of transaction in the workload's order, and where the time went.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Counts by type of transaction.
    pub kinds: Vec<KindCount>,
    /// From the beginning to when it was durable, of transactions that were timed, in nanoseconds.
    pub durable: Histogram<u64>,
    /// Of tries that committed.
    pub useful: PhaseTimes,
    /// Of tries that were aborted, and of what came between an abort and the next try.
    pub aborted: PhaseTimes,
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new(0)
    }
}

impl Tally {
    /// Returns an empty tally for a workload with `kinds` types of transactions.
    pub fn new(kinds: usize) -> Self {
        Tally {
            kinds: vec![KindCount::new(); kinds],
            durable: histogram(),
            useful: [0; Phase::COUNT],
            aborted: [0; Phase::COUNT],
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.kinds.resize_with(other.kinds.len().max(self.kinds.len()), KindCount::new);
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(sum, kind)| sum.add(kind));
        self.durable.add(&other.durable).expect("histograms of equal bounds");
        let add =
            |sum: &mut PhaseTimes, times: &PhaseTimes| sum.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
        add(&mut self.useful, &other.useful);
        add(&mut self.aborted, &other.aborted);
    }

    /// Commits of all types.
    pub fn commits(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commits).sum()
    }

    /// Tries of all types that a conflict aborted.
    pub fn conflicts(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.aborts.conflicts()).sum()
    }

    /// All types together.
    pub fn all(&self) -> KindCount {
        let mut all = KindCount::new();
        self.kinds.iter().for_each(|kind| all.add(kind));
        all
    }
}
