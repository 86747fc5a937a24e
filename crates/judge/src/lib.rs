//! The judge: turns what an engine recorded into a history, and says whether the history keeps an
//! isolation level.
//!
//! It stands below everything that tests an engine. [`recorded`] names tables, keys and versions;
//! [`verify_history`] checks the history for cycles, and replays a serializable one serially
//! against the rows that the tables hold in the end. [`QuickProof`] proves a short execution
//! serializable without building a history.
//!
//! What this crate must not know: protocols, workloads, and the way in which transactions were run.

mod quick_proof;
mod recording;

use contend_engine::Isolation;
use contend_history::{Anomaly, check, replay_to};
use contend_model::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use quick_proof::QuickProof;
pub use recording::{Recorded, recorded, recorded_with_keys};

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Whether the protocol kept its promise.
    pub passed: bool,
    /// The verdict in one line.
    pub verdict: String,
    /// Committed transactions that were checked.
    pub transactions: u64,
    /// Aborts by conflict during the run: a run without conflicts proves little.
    pub aborts: u64,
    /// The class of the worst anomaly, also if the promise allows it.
    pub anomaly: Option<String>,
    /// The anomaly, explained step by step.
    pub explanation: Option<String>,
    /// If the anomaly is a cycle, its edges in order: each edge begins where the one before ends,
    /// the first where the last ends.
    #[serde(default)]
    pub cycle: Vec<CycleEdge>,
}

/// A dependency between two transactions of a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CycleEdge {
    /// The transaction that comes first.
    pub from: u64,
    /// The transaction that depends on it.
    pub to: u64,
    /// The kind: `ww`, `wr`, `rw`, `predicate wr` or `predicate rw`.
    pub dependency: String,
    /// The table and the key, as `table/key`.
    pub key: String,
    /// The reason, in words.
    pub reason: String,
}

/// Judges a history by the level that its protocol promises. A history that must be serializable is
/// also replayed serially. The returned `aborts` is 0: a history does not have aborts.
pub fn verify_history(recorded: &Recorded, level: Isolation) -> Verification {
    let report = check(&recorded.history);
    let worst = report.anomalies.first();
    let mut verification = Verification {
        passed: true,
        verdict: String::new(),
        transactions: report.transactions as u64,
        aborts: 0,
        anomaly: worst.map(|anomaly| anomaly.class.to_string()),
        explanation: worst.map(ToString::to_string),
        cycle: worst.map(edges).unwrap_or_default(),
    };
    let transactions = counted(report.transactions, "transaction");
    if let Some(anomaly) = report.violates(level) {
        verification.passed = false;
        verification.verdict = format!("not {level}: {} in {transactions}", anomaly.class);
        verification.explanation = Some(anomaly.to_string());
        verification.cycle = edges(anomaly);
        return verification;
    }
    if level == Isolation::None {
        let found = worst.map_or("found none".into(), |anomaly| format!("found {}", anomaly.class));
        verification.verdict = format!("promises nothing: {found} in {transactions}");
        return verification;
    }
    verification.verdict = format!("{level} ({transactions}, 0 cycles)");
    if let (Isolation::Serializable, Some(order)) = (level, report.serial_order()) {
        let rows = recorded.final_state.iter().map(|(table, key, writer)| (table.as_str(), key.as_str(), *writer));
        if let Err(divergence) = replay_to(&recorded.history, order, rows) {
            verification.passed = false;
            verification.verdict = format!("not {level}: a serial run of the same transactions differs");
            let exactness = if report.is_exact() { "" } else { " (of an inexact history)" };
            verification.explanation = Some(format!("{divergence}{exactness}"));
        }
    }
    verification
}

/// Returns the edges of an anomaly that is a cycle; none for any other anomaly.
pub fn edges(anomaly: &Anomaly) -> Vec<CycleEdge> {
    let edge = |(number, step): (usize, &contend_history::Step)| {
        let next = &anomaly.steps[(number + 1) % anomaly.steps.len()];
        Some(CycleEdge {
            from: step.txn,
            to: next.txn,
            dependency: step.dependency?.to_string(),
            key: format!("{}/{}", step.table, step.key),
            reason: step.reason.clone(),
        })
    };
    anomaly.steps.iter().enumerate().map(edge).collect::<Option<_>>().unwrap_or_default()
}
