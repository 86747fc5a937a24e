//! What a run has found, for people and for programs.

use std::collections::BTreeMap;

use contend_history::{Anomaly, Isolation};
use contend_model::{counted, is_or_are};
use serde::Serialize;

use crate::system::Level;

/// A workload file on a system that speaks SQL.
#[derive(Clone, Debug, Serialize)]
pub struct SqlResult {
    /// The workload file, as the user named it.
    pub workload: String,
    /// The database, without a password.
    pub database: String,
    /// The server's name and version.
    pub server: String,
    /// The clients, each with a connection and a thread of its own.
    pub clients: usize,
    /// The median time from a statement to its answer, in microseconds.
    pub round_trip_us: f64,
    /// The seed of all draws.
    pub seed: u64,
    /// The levels, in the order in which they ran.
    pub levels: Vec<LevelResult>,
    /// Whether the run ended before its end: it was stopped, or it failed.
    pub partial: bool,
    /// Why the run failed after it had figures: the level, and the database's own words.
    pub error: Option<String>,
}

/// One isolation level.
#[derive(Clone, Debug, Serialize)]
pub struct LevelResult {
    /// The level, and what it promises.
    pub level: Level,
    /// The run without additional columns.
    pub measured: Measured,
    /// The run that was recorded; none if the whole run ended before this one had been judged.
    pub verified: Option<Verified>,
}

/// A run that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Its length in seconds.
    pub seconds: f64,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Committed transactions a second.
    pub throughput_tps: f64,
    /// The tries that the database aborted, as a share of all tries.
    pub abort_rate: f64,
    /// The arrivals; none in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoop>,
    /// Each type of transactions.
    pub kinds: Vec<KindResult>,
    /// A sentence about each invariant that did not hold afterwards.
    pub failed_invariants: Vec<String>,
}

/// The arrivals of an open loop. Latencies count from the moment when a transaction was due.
#[derive(Clone, Debug, Serialize)]
pub struct OpenLoop {
    /// The rate of arrivals a second that was asked for.
    pub rate_tps: f64,
    /// The transactions that have arrived.
    pub offered: u64,
    /// Those that no client had begun at the end.
    pub not_begun: u64,
    /// Whether they are more than one of a hundred: the database did not keep up, and latencies are
    /// lower bounds.
    pub saturated: bool,
}

impl OpenLoop {
    pub(crate) fn new(rate_tps: f64, offered: u64, not_begun: u64) -> OpenLoop {
        OpenLoop { rate_tps, offered, not_begun, saturated: not_begun as f64 > 0.01 * offered as f64 }
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Transactions that were committed.
    pub commits: u64,
    /// Transactions that cancelled themselves.
    pub cancelled: u64,
    /// Transactions whose connection was lost at the commit: nobody knows how they ended.
    pub unknown: u64,
    /// Tries that the database aborted, by the reason that it gave.
    pub aborts_by_reason: BTreeMap<String, u64>,
}

/// What the database has acknowledged and does not have, or has and did not acknowledge.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Losses {
    /// How many writes these are.
    pub count: u64,
    /// A sentence about each of the first.
    pub examples: Vec<String>,
}

impl Counts {
    /// Returns the number of aborted tries.
    pub fn aborts(&self) -> u64 {
        self.aborts_by_reason.values().sum()
    }

    /// Returns the number of all tries.
    pub fn tries(&self) -> u64 {
        self.commits + self.cancelled + self.unknown + self.aborts()
    }

    /// Returns aborted tries as a share of all tries.
    pub fn abort_rate(&self) -> f64 {
        self.aborts() as f64 / self.tries().max(1) as f64
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        self.commits += other.commits;
        self.cancelled += other.cancelled;
        self.unknown += other.unknown;
        for (reason, count) in &other.aborts_by_reason {
            *self.aborts_by_reason.entry(reason.clone()).or_default() += count;
        }
    }
}

/// A type of transactions.
#[derive(Clone, Debug, Serialize)]
pub struct KindResult {
    /// Its name.
    pub kind: String,
    /// Transactions that were committed.
    pub commits: u64,
    /// The median time from the first try to the commit, in microseconds; in an open loop from the
    /// arrival.
    pub p50_us: f64,
    /// The 99th percentile of it.
    pub p99_us: f64,
    /// The 99.9th percentile of it.
    pub p999_us: f64,
}

/// A run that was recorded and judged.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// The transactions and operations of the history.
    pub operations: usize,
    /// Whether the history keeps the level's promise.
    pub kept: bool,
    /// How many anomalies there are, allowed ones included.
    pub anomalies: usize,
    /// The worst of them, with its evidence.
    pub worst: Option<Anomaly>,
    /// At most nine others, the worst first.
    pub further: Vec<Anomaly>,
    /// How a serial run of the same transactions differs, although no anomaly was found.
    pub serial_replay_differs: Option<String>,
    /// Whether everything about the order of versions was known.
    pub exact: bool,
    /// The writes that were lost.
    pub losses: Losses,
    /// A sentence about each invariant that did not hold afterwards.
    pub failed_invariants: Vec<String>,
}

impl LevelResult {
    /// Whether the level breaks its promise: by an anomaly, by a write that is lost, or, if it
    /// promises serializability, by an invariant.
    pub fn failed(&self) -> bool {
        let breaks_invariant = self.failed_invariants().next().is_some();
        self.verified.as_ref().is_some_and(|verified| !verified.kept || verified.losses.count > 0)
            || self.level.promise == Isolation::Serializable && breaks_invariant
    }

    /// Returns a sentence about each invariant that did not hold, with the name of the run.
    pub fn failed_invariants(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let measured = self.measured.failed_invariants.iter().map(|failed| ("measured", failed.as_str()));
        let recorded = self.verified.iter().flat_map(|verified| &verified.failed_invariants);
        measured.chain(recorded.map(|failed| ("recorded", failed.as_str())))
    }

    /// Says what was found.
    pub fn found(&self) -> String {
        let mut found = self.verified.as_ref().map_or("not judged".into(), Verified::found);
        if self.failed_invariants().next().is_some() {
            found += "; an invariant is broken";
        }
        if let Some(verified) = &self.verified {
            let (lost, unknown) = (verified.losses.count, verified.counts.unknown);
            if lost > 0 {
                found += &format!("; {} {} lost", counted(lost, "acknowledged write"), is_or_are(lost));
            }
            if unknown > 0 {
                found += &format!("; {} without an answer", counted(unknown, "commit"));
            }
        }
        if self.failed() { format!("BROKEN: {found}") } else { found }
    }
}

impl Verified {
    /// Says what the checker found.
    fn found(&self) -> String {
        let commits = counted(self.counts.commits, "transaction");
        match (&self.worst, &self.serial_replay_differs) {
            (Some(worst), _) => {
                let count = self.anomalies;
                format!("{} ({}), {count} in {commits}", worst.class, worst.name)
            }
            (None, Some(differs)) => format!("a serial run differs: {differs}"),
            (None, None) => format!("nothing in {commits}"),
        }
    }
}

impl SqlResult {
    /// Whether a level breaks its promise.
    pub fn failed(&self) -> bool {
        self.levels.iter().any(LevelResult::failed)
    }
}
