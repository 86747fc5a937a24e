//! The edges of the direct serialization graph, and the reads that have no explanation.
//!
//! A transaction depends on the writer of a version that it read (wr) or overwrote (ww), and on a
//! reader of a version that it overwrote (rw, an anti-dependency). A scan reads every key of its
//! range: the rows that it returned, and the absence of all others. Only keys that the history
//! names matter: a key that nobody touched has no writer to depend on.
//!
//! The edges are walked, not stored: the checker walks them once to count and once to fill a graph
//! of the right size, and a third time, only if there is a cycle, to learn what the edges of the
//! cycle came from.

use crate::anomaly::{Class, DependencyKind};
use crate::explain;
use crate::key_order::KeyOrder;
use crate::model::{History, ItemId, Op, Scan, State, Value};
use crate::versions::{NONE, Observed, StateId, Version, VersionOrder};

/// One dependency of transaction `to` on transaction `from` (places in the history).
#[derive(Clone, Copy)]
pub(crate) struct Dependency {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) item: ItemId,
    /// The reader's operation; of ww the overwriting one.
    pub(crate) op: u32,
    pub(crate) kind: DependencyKind,
}

/// Anomalies by class: all counted, as many as may be asked for explained.
pub(crate) struct Findings {
    limit: usize,
    counts: [usize; Class::ALL.len()],
    pub(crate) anomalies: Vec<crate::Anomaly>,
}

impl Findings {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, counts: [0; Class::ALL.len()], anomalies: Vec::new() }
    }

    /// Whether an anomaly of this class would still be explained.
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.counts[class as usize] < self.limit
    }

    pub(crate) fn report(&mut self, class: Class, explain: impl FnOnce() -> crate::Anomaly) {
        if self.wants(class) {
            self.anomalies.push(explain());
        }
        self.counts[class as usize] += 1;
    }

    pub(crate) fn total(&self) -> usize {
        self.counts.iter().sum()
    }
}

/// Everything that the walk needs and does not change.
#[derive(Clone, Copy)]
pub(crate) struct Context<'h> {
    pub(crate) history: &'h History,
    pub(crate) keys: &'h KeyOrder,
    pub(crate) order: &'h VersionOrder<'h>,
}

/// Walks every dependency; reads without an explanation go to `findings`, where given. Returns how
/// many reads were ambiguous.
pub(crate) fn walk(context: Context<'_>, edge: impl FnMut(Dependency), findings: Option<&mut Findings>) -> usize {
    let items = context.history.item_count();
    let mut walk = Walk {
        context,
        edge,
        findings,
        own: vec![Own { txn: NONE, op: 0, live: false }; items],
        anchors: vec![(NONE, NONE); items],
        marks: vec![0; items],
        scans: 0,
        ambiguous_reads: 0,
    };
    walk.write_dependencies();
    for (txn, transaction) in (0_u32..).zip(context.history.transactions()) {
        if context.order.is_spent() {
            break;
        }
        for (op, operation) in (0_u32..).zip(&transaction.ops) {
            walk.operation(Place { txn, op }, operation);
        }
    }
    walk.ambiguous_reads
}

/// An operation's place: its transaction's in the history, and its own there.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) txn: u32,
    pub(crate) op: u32,
}

/// The latest write of an item by transaction `txn`.
#[derive(Clone, Copy)]
struct Own {
    txn: u32,
    op: u32,
    live: bool,
}

struct Walk<'h, 'f, E> {
    context: Context<'h>,
    edge: E,
    findings: Option<&'f mut Findings>,
    /// By item: the latest write so far.
    own: Vec<Own>,
    /// By item: the transaction that last saw a state of it that is known, and the state.
    anchors: Vec<(u32, StateId)>,
    /// By item: the latest scan (counted from 1) that returned it or found it deleted.
    marks: Vec<u32>,
    scans: u32,
    ambiguous_reads: usize,
}

impl<E: FnMut(Dependency)> Walk<'_, '_, E> {
    fn write_dependencies(&mut self) {
        let order = self.context.order;
        for (state, version) in order.links().filter(|&(_, version)| !order.version(version).joins) {
            for before in order.fellows_before(state) {
                for after in order.fellows_after(version) {
                    if !order.spend(1) {
                        return;
                    }
                    // If there is a group on both sides, a transaction has read between them. It
                    // comes after all of one group and before all of the other, so the groups need
                    // no edges between all their members.
                    if before == state || after == version {
                        self.write_dependency(order.version(before), order.version(after));
                    }
                }
            }
        }
    }

    fn write_dependency(&mut self, before: &Version, after: &Version) {
        if before.txn != after.txn {
            let item = ItemId::from_index(after.item as usize);
            let kind = DependencyKind::WriteWrite;
            (self.edge)(Dependency { from: before.txn, to: after.txn, item, op: after.first_op, kind });
        }
    }

    fn operation(&mut self, place: Place, op: &Op) {
        match op {
            Op::Read { item, seen, value } => {
                self.read(place, *item, *seen);
                if let (State::Version(version), Some(value)) = (*seen, value) {
                    self.compare_value(place, *item, version, value);
                }
            }
            Op::Write { item, delete, .. } => {
                if self.own[item.index()].txn != place.txn {
                    self.first_write(place, *item);
                }
                self.own[item.index()] = Own { txn: place.txn, op: place.op, live: !delete };
            }
            Op::Scan(scan) => self.scan(place, scan),
        }
    }

    /// A transaction that leaves the absence it found has read it.
    fn first_write(&mut self, place: Place, item: ItemId) {
        let order = self.context.order;
        let id = self.context.history.transactions()[place.txn as usize].txn;
        if let Some(found) = order.find(item.index(), id).and_then(|version| order.found_and_left(version)) {
            self.observed(place, item, State::Absent, found);
        }
    }

    fn scan(&mut self, place: Place, scan: &Scan) {
        self.scans = self.scans.checked_add(1).expect("a history has fewer than 2^32 scans");
        let seen = scan.seen.iter().map(|&(item, by)| (item, State::Version(by)));
        let gone = scan.gone.iter().map(|&(item, by)| (item, State::deleted_by(by)));
        for (item, state) in seen.chain(gone) {
            if self.marks[item.index()] == self.scans {
                self.report(Class::Internal, place, item, state, "a scan returned one key twice", None);
                continue;
            }
            self.marks[item.index()] = self.scans;
            if !self.context.keys.contains(scan, item) {
                self.report(Class::Internal, place, item, state, "a scan returned a key out of its range", None);
            }
            self.read(place, item, state);
        }
        let range = self.context.keys.range(scan);
        if !self.context.order.spend(range.len()) {
            return;
        }
        for &item in range {
            if self.marks[item.index()] != self.scans {
                self.read(place, item, State::Absent);
            }
        }
    }

    /// One item read, by itself or as part of a scan.
    fn read(&mut self, place: Place, item: ItemId, seen: State) {
        let id = self.context.history.transactions()[place.txn as usize].txn;
        let own = self.own[item.index()];
        if own.txn == place.txn {
            let agrees = if own.live { seen == State::Version(id) } else { seen.is_absent() };
            if !agrees {
                self.report(Class::Internal, place, item, seen, "a transaction did not see its own write", None);
            }
            return;
        }
        if seen == State::Version(id) || seen == State::DeletedBy(id) {
            self.report(Class::Internal, place, item, seen, "a transaction read what it had yet to write", None);
            return;
        }
        let order = self.context.order;
        let mut observed = order.observe(item.index(), seen);
        if matches!(observed, Observed::Between { .. }) {
            let (txn, state) = self.anchors[item.index()];
            let anchor = if txn == place.txn { Some(state) } else { order.overwritten_by(item.index(), id) };
            observed = anchor.map_or(observed, |anchor| order.observe_absence_near(item.index(), anchor));
        }
        if let Observed::State(first) | Observed::Between { first, .. } = observed
            && order.written(first).is_some_and(|version| version.txn == place.txn)
        {
            // The first to delete the row is the reader, later on.
            observed = Observed::Unfounded;
        }
        self.observed(place, item, seen, observed);
    }

    fn observed(&mut self, place: Place, item: ItemId, seen: State, observed: Observed) {
        let order = self.context.order;
        match observed {
            Observed::State(state) => {
                self.anchors[item.index()] = (place.txn, state);
                self.depend_on(place, item, state, state, seen.is_absent());
            }
            Observed::Through(version) => {
                self.depend_on(place, item, version, NONE, true);
                if let Some(found) = order.found_and_left(version) {
                    self.observed(place, item, seen, found);
                }
            }
            Observed::Between { first, next } => {
                self.ambiguous_reads += 1;
                self.depend_on(place, item, first, NONE, true);
                if next != NONE {
                    self.precede(place, item, next, true);
                }
            }
            Observed::Intermediate(version) => {
                self.depend_on(place, item, version, NONE, seen.is_absent());
                self.report(Class::G1b, place, item, seen, "intermediate read", Some(version));
            }
            Observed::Unfounded => {
                // No committed transaction left the key without a row. But one may have been in
                // the middle of a delete and an insert. No edge: it may have been another.
                let is_miss = seen == State::Absent;
                let meanwhile = if is_miss { order.deleted_meanwhile(item.index(), place.txn) } else { None };
                let (class, name) = match meanwhile {
                    Some(_) => (Class::G1b, "intermediate read"),
                    None => (Class::G1a, "aborted read"),
                };
                self.report(class, place, item, seen, name, meanwhile);
            }
            Observed::Nothing => {}
        }
    }

    /// Puts the reader after the writer of `from`, and before the transactions that ended `to`
    /// ([`NONE`]: not known).
    fn depend_on(&mut self, place: Place, item: ItemId, from: StateId, to: StateId, is_predicate: bool) {
        let order = self.context.order;
        let kind = if is_predicate { DependencyKind::PredicateWriteRead } else { DependencyKind::WriteRead };
        for version in order.fellows_before(from).map(|version| order.version(version)) {
            if !order.spend(1) {
                return;
            }
            if version.txn != place.txn {
                (self.edge)(Dependency { from: version.txn, to: place.txn, item, op: place.op, kind });
            }
        }
        if to != NONE {
            for version in order.successors(to) {
                if !order.spend(1) {
                    return;
                }
                self.precede(place, item, version, is_predicate);
            }
        }
    }

    fn precede(&mut self, place: Place, item: ItemId, version: u32, is_predicate: bool) {
        let kind = if is_predicate { DependencyKind::PredicateReadWrite } else { DependencyKind::ReadWrite };
        for to in self.context.order.fellows_after(version).map(|version| self.context.order.version(version).txn) {
            if !self.context.order.spend(1) {
                return;
            }
            if to != place.txn {
                (self.edge)(Dependency { from: place.txn, to, item, op: place.op, kind });
            }
        }
    }

    /// Compares the value read with what the version's transaction wrote.
    fn compare_value(&mut self, place: Place, item: ItemId, version: u64, value: &Value) {
        let Context { history, order, .. } = self.context;
        if self.findings.is_none() {
            return;
        }
        let seen = State::Version(version);
        let own = self.own[item.index()];
        if own.txn == place.txn {
            let write = &history.transactions()[place.txn as usize].ops[own.op as usize..=own.op as usize];
            if values_written(write, item).next().flatten().is_some_and(|own| own != value) {
                self.report(Class::Internal, place, item, seen, "a transaction did not see its own write", None);
            }
            return;
        }
        let Some(found) = order.find(item.index(), version).filter(|&found| order.version(found).live) else { return };
        let written = order.version(found);
        let ops = &history.transactions()[written.txn as usize].ops;
        let mut values = values_written(&ops[written.first_op as usize..=written.last_op as usize], item);
        let Some(Some(last)) = values.next() else { return };
        if last != value && written.txn != place.txn {
            if !order.spend((written.last_op - written.first_op) as usize) {
                return;
            }
            if values.any(|earlier| earlier == Some(value)) {
                self.report(Class::G1b, place, item, seen, "intermediate read", Some(found));
            } else {
                self.report(Class::G1a, place, item, seen, "read of a value that was never written", Some(found));
            }
        }
    }

    fn report(
        &mut self,
        class: Class,
        place: Place,
        item: ItemId,
        seen: State,
        name: &'static str,
        writer: Option<u32>,
    ) {
        let context = self.context;
        if let Some(findings) = &mut self.findings {
            findings.report(class, || explain::unexplained_read(context, class, place, item, seen, name, writer));
        }
    }
}

/// The values that the operations wrote of the item, the last one first.
fn values_written(ops: &[Op], item: ItemId) -> impl Iterator<Item = Option<&Value>> {
    ops.iter().rev().filter_map(move |op| match op {
        Op::Write { item: other, value, .. } if *other == item => Some(value.as_ref()),
        _ => None,
    })
}
