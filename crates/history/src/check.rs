//! The serializability checker.
//!
//! The versions that the operations name give the direct serialization graph of the committed
//! transactions. The history is serializable if and only if the graph has no cycle and
//! every read saw what a committed transaction left. Source: Atul Adya, Barbara Liskov, Patrick
//! O'Neil, "Generalized Isolation Level Definitions", ICDE 2000; G-single is Adya's thesis (MIT,
//! 1999), OTV is the one of Peter Bailis, Aaron Davidson, Alan Fekete, Ali Ghodsi, Joseph M.
//! Hellerstein, Ion Stoica, "Highly Available Transactions: Virtues and Limitations", VLDB 2014,
//! G-nonadjacent is the condition of Andrea Cerone, Alexey Gotsman, "Analysing Snapshot
//! Isolation", PODC 2016.
//!
//! # Departures
//! A point read that finds no row is a predicate read, `key = k`; the rows that a scan returns are
//! item reads. Two versions over one state are reported as they are, not as the cycles that follow
//! from them. The rows of one scan are read at once, so no part of a scan is a later read (OTV)
//! than another part.
//!
//! # Limits
//! Real time is not in a history, so strictness is not judged. Where the history does not say which
//! delete left a key absent, and more than one could have, only what holds in every case is used:
//! an anomaly may go unseen, none is made up. Where the order of an item's versions is not known,
//! an OTV may be reported as G-single.

use std::fmt;

use contend_model::Isolation;
use contend_model::counted;
use serde::Serialize;

use crate::anomaly::{Anomaly, DependencyKind};
use crate::cycles;
use crate::dependencies::{Context, Dependency, Findings, walk};
use crate::explain;
use crate::graph::{Lists, topological_order};
use crate::key_order::KeyOrder;
use crate::model::History;
use crate::versions::{Conflict, VersionOrder};

/// How many anomalies are explained, unless the caller asks for more.
pub(crate) const EXPLAINED: usize = 10;

/// Why a history is not checked: its size would have the check take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the history's {size} operations would take more than {limit} steps to check: it has scans of ranges with very many keys, \
     or states that very many transactions depend on"
)]
pub struct TooComplex {
    /// Operations of the history, and rows that its scans returned.
    pub size: u64,
    /// The most steps that a history of this size may take.
    pub limit: u64,
}

/// Steps that any history may take, and more for each operation: some seconds, and some gigabytes
/// for the largest graphs.
const STEPS_FREE: u64 = 1 << 26;
const STEPS_PER_OPERATION: u64 = 64;

/// How many dependencies of each kind a history has. One transaction may depend on another in
/// several ways; each counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DependencyCounts {
    /// Write-dependencies.
    pub ww: usize,
    /// Read-dependencies.
    pub wr: usize,
    /// Read-dependencies on absence.
    pub predicate_wr: usize,
    /// Anti-dependencies.
    pub rw: usize,
    /// Anti-dependencies from absence.
    pub predicate_rw: usize,
}

impl DependencyCounts {
    fn add(&mut self, kind: DependencyKind) {
        *match kind {
            DependencyKind::WriteWrite => &mut self.ww,
            DependencyKind::WriteRead => &mut self.wr,
            DependencyKind::PredicateWriteRead => &mut self.predicate_wr,
            DependencyKind::ReadWrite => &mut self.rw,
            DependencyKind::PredicateReadWrite => &mut self.predicate_rw,
        } += 1;
    }
}

/// What the checker found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How many transactions were checked.
    pub transactions: usize,
    /// How many operations they have.
    pub operations: usize,
    /// The dependencies among them.
    pub dependencies: DependencyCounts,
    /// In how many strong components of the graph the cycles lie.
    pub cyclic_components: usize,
    /// How many anomalies were met. Cycles of one class that are tangled count as one.
    pub anomalies_met: usize,
    /// The most severe of them, the most severe class first.
    pub anomalies: Vec<Anomaly>,
    /// Reads that found no row, where it can't be told which of several deletes had removed it.
    pub ambiguous_reads: usize,
    /// Items of whose versions the order is not fully known, for want of `after`.
    pub ambiguous_items: usize,
    #[serde(skip)]
    order: Option<Vec<usize>>,
    /// Whether the versions were inferred, and so none found is no proof.
    #[serde(skip)]
    is_inferred: bool,
}

impl Report {
    /// The report of a history whose versions were inferred, with the anomalies found meanwhile and
    /// how many more there were.
    pub(crate) fn with_inferred(mut self, found: &[Anomaly], besides: usize) -> Self {
        self.is_inferred = true;
        if !found.is_empty() {
            let limit = self.anomalies.len().max(EXPLAINED);
            self.anomalies_met += found.len() + besides;
            self.anomalies.extend_from_slice(found);
            self.anomalies.sort_by_key(|anomaly| anomaly.class);
            self.anomalies.truncate(limit);
            self.order = None;
        }
        self
    }

    /// The most severe anomaly that the level forbids.
    #[must_use]
    pub fn violates(&self, level: Isolation) -> Option<&Anomaly> {
        // The most severe class is always among those kept, and a level forbids every class more
        // severe than another.
        self.anomalies.iter().find(|anomaly| anomaly.class.is_forbidden_by(level))
    }

    /// A serial order of the transactions, as places in the history, that has every transaction
    /// after those it depends on; none if the dependencies are cyclic. Of all such orders it keeps
    /// closest to the history's own.
    ///
    /// If the history is ambiguous ([`Report::is_exact`]), the order may not be one that explains
    /// every read, although there may be one.
    #[must_use]
    pub fn serial_order(&self) -> Option<&[usize]> {
        self.order.as_deref()
    }

    /// Whether the history said enough to know every version order and what every miss saw.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.ambiguous_reads == 0 && self.ambiguous_items == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.dependencies;
        let transactions = counted(self.transactions, "transaction");
        let operations = counted(self.operations, "operation");
        match self.anomalies.first() {
            None if self.is_inferred => {
                write!(f, "nothing found: {transactions}, {operations} on versions, 0 cycles")?;
            }
            None => write!(f, "serializable: {transactions}, {operations}, 0 cycles")?,
            Some(worst) => write!(
                f,
                "not serializable: {}, the worst {} ({}), in {transactions}; cycles in {}",
                counted(self.anomalies_met, "anomaly"),
                worst.class,
                worst.name,
                counted(self.cyclic_components, "component")
            )?,
        }
        let DependencyCounts { ww, wr, predicate_wr, rw, predicate_rw } = counts;
        write!(
            f,
            "\ndependencies: {ww} ww, {wr} wr, {rw} rw, {predicate_wr} predicate wr, {predicate_rw} predicate rw"
        )?;
        if !self.is_exact() {
            let (reads, items) =
                (counted(self.ambiguous_reads, "miss"), counted(self.ambiguous_items, "version order"));
            write!(f, "\nnot fully known, so checked only as far as certain: {reads}, {items}")?;
        }
        self.anomalies.iter().try_for_each(|anomaly| write!(f, "\n\n{anomaly}"))
    }
}

/// Checks a history, and explains at most ten anomalies.
///
/// # Panics
/// If the history has 2^32 transactions, versions, scans or dependencies.
#[must_use]
pub fn check(history: &History) -> Report {
    check_up_to(history, EXPLAINED)
}

/// Checks a history, and explains at most `limit` anomalies (at least one).
///
/// # Panics
/// As [`check`].
#[must_use]
pub fn check_up_to(history: &History, limit: usize) -> Report {
    check_kinds(history, limit.max(1), u64::MAX, |_| true).expect("no history takes 2^64 steps")
}

/// Checks a history as [`check`] does, in time and memory that are proportional to its size: one
/// from a stranger.
///
/// # Errors
/// The check would take many times the steps that a history of this size takes usually.
pub fn check_bounded(history: &History) -> Result<Report, TooComplex> {
    let size = history.size();
    // Dependencies are numbered in 32 bits.
    let limit = (STEPS_FREE + STEPS_PER_OPERATION * size).min(u64::from(u32::MAX));
    check_kinds(history, EXPLAINED, limit, |_| true).ok_or(TooComplex { size, limit })
}

/// Checks as if the history had only dependencies that `keep` keeps; all of them but in tests of
/// the checker itself. Returns `None` if it took more than `work` steps ([`VersionOrder::spend`]).
fn check_kinds(
    history: &History,
    limit: usize,
    work: u64,
    keep: impl Fn(DependencyKind) -> bool + Copy,
) -> Option<Report> {
    let keys = KeyOrder::new(history);
    let order = VersionOrder::new(history, work);
    let context = Context { history, keys: &keys, order: &order };
    let mut findings = Findings::new(limit);

    let mut dependencies = DependencyCounts::default();
    let mut degrees = vec![0_u32; history.transactions().len()];
    let count = |dependency: Dependency| {
        if keep(dependency.kind) {
            dependencies.add(dependency.kind);
            degrees[dependency.from as usize] += 1;
        }
    };
    let ambiguous_reads = walk(context, count, Some(&mut findings));
    for conflict in &order.conflicts {
        let class = explain::conflict_class(context, conflict);
        findings.report(class, || explain::conflict(context, class, conflict));
    }
    if order.is_spent() {
        return None;
    }
    // The further walks pass the same dependencies.
    order.unlimit();

    let mut edges = Lists::filler(&degrees);
    let fill = |dependency: Dependency| {
        if keep(dependency.kind) {
            edges.push(dependency.from as usize, dependency.to);
        }
    };
    walk(context, fill, None);
    let graph = edges.finish();
    let serial: Vec<usize> = topological_order(&graph).into_iter().map(|txn| txn as usize).collect();
    let is_acyclic = serial.len() == graph.len();
    let cyclic_components =
        if is_acyclic { 0 } else { cycles::find(context, &graph, &forked(&order), keep, &mut findings) };

    let anomalies_met = findings.total();
    let mut anomalies = findings.anomalies;
    anomalies.sort_by_key(|anomaly| anomaly.class);
    anomalies.truncate(limit);
    Some(Report {
        transactions: history.transactions().len(),
        operations: history.transactions().iter().map(|transaction| transaction.ops.len()).sum(),
        dependencies,
        cyclic_components,
        anomalies_met,
        anomalies,
        ambiguous_reads,
        ambiguous_items: order.ambiguous_items,
        order: is_acyclic.then_some(serial),
        is_inferred: false,
    })
}

/// The transactions that wrote over one state.
fn forked(order: &VersionOrder<'_>) -> Vec<u32> {
    let versions = order.conflicts.iter().flat_map(|conflict| match conflict {
        Conflict::Fork { versions, .. } => versions.as_slice(),
        _ => &[],
    });
    versions.map(|&version| order.version(version).txn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    const WRITE_SKEW: &str = r#"{"txn":1,"worker":0,"ops":[{"op":"read","table":"t","key":"x","version":0},{"op":"write","table":"t","key":"y","version":1,"over":0}]}
{"txn":2,"worker":1,"ops":[{"op":"read","table":"t","key":"y","version":0},{"op":"write","table":"t","key":"x","version":2,"over":0}]}
"#;

    /// The canary: if anti-dependencies were lost on the way, this is what the checker would no
    /// longer see.
    #[test]
    fn without_anti_dependencies_write_skew_goes_unseen() {
        let history = History::read_json_lines(WRITE_SKEW.as_bytes()).unwrap();
        assert_eq!(check(&history).anomalies[0].class, Class::G2Item);
        let blind = check_kinds(&history, 10, u64::MAX, |kind| !kind.is_anti()).unwrap();
        assert!(blind.anomalies.is_empty() && blind.serial_order().is_some());
    }
}
