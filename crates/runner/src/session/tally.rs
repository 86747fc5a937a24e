//! Counts, latencies and times of an interval.

use contend_engine::abort::AbortCounts;
use contend_engine::{AbortReason, ConflictMap};
use contend_machine::{Phase, PhaseTimes};
use hdrhistogram::Histogram;

/// The largest latency that is recorded exactly, to three digits: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Counts and latencies of the transactions of one type.
#[derive(Clone, Debug)]
pub struct KindCount {
    /// Transactions that committed.
    pub commits: u64,
    /// Aborted tries by reason.
    pub aborts: AbortCounts,
    /// Pieces that met a conflict and ran again without the rest of their transaction. `None` if
    /// the protocol does not treat pieces by themselves.
    pub piece_retries: Option<u64>,
    /// Latencies of the timed transactions, from the first try to the end, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// The times from the moment when a transaction was due until its end, in nanoseconds: with a
    /// log, until its commit was durable. `None` in a closed loop.
    pub responses: Option<Histogram<u64>>,
}

impl Default for KindCount {
    fn default() -> Self {
        Self::new()
    }
}

impl KindCount {
    /// Returns an empty count.
    pub fn new() -> Self {
        KindCount {
            commits: 0,
            aborts: AbortCounts::default(),
            piece_retries: None,
            latencies: histogram(),
            responses: None,
        }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &KindCount) {
        self.commits += other.commits;
        self.aborts.merge(&other.aborts);
        other.piece_retries.into_iter().for_each(|more| self.add_piece_retries(more));
        self.latencies.add(&other.latencies).expect("histograms of equal bounds");
        if let Some(more) = &other.responses {
            self.responses.get_or_insert_with(histogram).add(more).expect("histograms of equal bounds");
        }
    }

    /// Adds the response time of a transaction, in nanoseconds.
    pub fn add_response(&mut self, nanoseconds: u64) {
        self.responses.get_or_insert_with(histogram).saturating_record(nanoseconds);
    }

    /// Returns the transactions that ended: by a commit, or because they cancelled themselves.
    pub fn ended(&self) -> u64 {
        self.commits + self.aborts.get(AbortReason::User)
    }

    /// Adds pieces that ran again, under a protocol that treats pieces by themselves.
    pub fn add_piece_retries(&mut self, more: u64) {
        *self.piece_retries.get_or_insert(0) += more;
    }

    /// Returns whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.commits == 0 && self.aborts == AbortCounts::default()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("valid bounds")
}

/// Counts by type of transaction, in the workload's order, and a breakdown of the time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Counts by type of transaction.
    pub kinds: Vec<KindCount>,
    /// The aborts by conflicts, by place and type of transaction.
    pub conflicts: ConflictMap,
    /// The time from the beginning of a timed transaction until it was durable, in nanoseconds.
    pub durable: Histogram<u64>,
    /// The cycles in which the workload drew its transactions, before they began: those of the
    /// timed ones stand for all.
    pub drawing: u64,
    /// The time of tries that committed.
    pub useful: PhaseTimes,
    /// The time of aborted tries, and the time between an abort and the next try.
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
            conflicts: ConflictMap::default(),
            durable: histogram(),
            drawing: 0,
            useful: [0; Phase::COUNT],
            aborted: [0; Phase::COUNT],
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.kinds.resize_with(other.kinds.len().max(self.kinds.len()), KindCount::new);
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(sum, kind)| sum.add(kind));
        self.conflicts.merge(&other.conflicts);
        self.durable.add(&other.durable).expect("histograms of equal bounds");
        self.drawing += other.drawing;
        let add =
            |sum: &mut PhaseTimes, times: &PhaseTimes| sum.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
        add(&mut self.useful, &other.useful);
        add(&mut self.aborted, &other.aborted);
    }

    /// Returns the commits of all types.
    pub fn commits(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commits).sum()
    }

    /// Returns the tries of all types that a conflict aborted.
    pub fn conflicts(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.aborts.conflicts()).sum()
    }

    /// Returns the sum of all types.
    pub fn all(&self) -> KindCount {
        let mut all = KindCount::new();
        self.kinds.iter().for_each(|kind| all.add(kind));
        all
    }
}
