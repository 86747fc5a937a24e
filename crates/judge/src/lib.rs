//! The judge: turns what an engine recorded into a history, and says whether the history keeps an
//! isolation level.
//!
//! It stands below everything that tests an engine. [`recorded`] names tables, keys and versions;
//! [`verify_history`] checks the history for cycles, and replays a serializable one serially
//! against the rows that the tables hold in the end. [`QuickProof`] proves a short execution
//! serializable without building a history.
//!
//! What this crate must not know: protocols, workloads, how transactions were run.

mod quick_proof;
mod recording;

use contend_engine::Isolation;
use contend_history::{Anomaly, check, replay_to};
use serde::{Deserialize, Serialize};

pub use quick_proof::QuickProof;
pub use recording::{Recorded, recorded, recorded_with_keys};

/// What the verification pass found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Whether the protocol kept its promise.
    pub passed: bool,
    /// One line: the verdict.
    pub verdict: String,
    /// Committed transactions that were checked.
    pub transactions: u64,
    /// Aborts by conflict meanwhile: a pass without conflicts proves little.
    pub aborts: u64,
    /// The class of the worst anomaly, whether the promise excludes it or not.
    pub anomaly: Option<String>,
    /// The anomaly, told step by step.
    pub explanation: Option<String>,
    /// If the anomaly is a cycle, its edges: each transaction has to come after the one before, the
    /// first after the last.
    #[serde(default)]
    pub cycle: Vec<CycleEdge>,
}

/// A dependency of one transaction on another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleEdge {
    /// The transaction that comes first.
    pub from: u64,
    /// The one that depends on it.
    pub to: u64,
    /// How: `ww`, `wr`, `rw`, `predicate wr` or `predicate rw`.
    pub dependency: String,
    /// Of which table and key.
    pub key: String,
    /// Why, in words.
    pub reason: String,
}

/// Judges a history by a level, and replays it serially if it is to be serializable.
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
    let transactions = report.transactions;
    if let Some(anomaly) = report.violates(level) {
        verification.passed = false;
        verification.verdict = format!("not {level}: {} in {transactions} transactions", anomaly.class);
        verification.explanation = Some(anomaly.to_string());
        verification.cycle = edges(anomaly);
        return verification;
    }
    if level == Isolation::None {
        let found = worst.map_or("found none".into(), |anomaly| format!("found {}", anomaly.class));
        verification.verdict = format!("promises nothing: {found} in {transactions} transactions");
        return verification;
    }
    verification.verdict = format!("{level} ({transactions} transactions, 0 cycles)");
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

/// The edges of an anomaly that is a cycle; none of another.
fn edges(anomaly: &Anomaly) -> Vec<CycleEdge> {
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
