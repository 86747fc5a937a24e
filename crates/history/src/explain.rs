//! The evidence of an anomaly, in words.

use crate::anomaly::{Anomaly, Class, DependencyKind, Step};
use crate::dependencies::{Context, Dependency, Place};
use crate::model::{ItemId, Op, State, Transaction};
use crate::versions::{Conflict, Observed, Version};

/// A read that no order of the committed transactions explains.
pub(crate) fn unexplained_read(
    context: Context<'_>,
    class: Class,
    place: Place,
    item: ItemId,
    seen: State,
    name: &'static str,
    writer: Option<u32>,
) -> Anomaly {
    let reader = transaction(context, place.txn);
    let reason = match (class, seen, writer.map(|version| context.order.version(version).id)) {
        (Class::G1b, State::Absent, Some(writer)) => {
            format!("T{writer} had deleted the key before it wrote it again, and each committed state has a row")
        }
        (Class::G1b, _, Some(writer)) => format!("T{writer} wrote the key again: its last write is another"),
        (_, _, Some(writer)) => format!("T{writer} wrote another value, and never this one"),
        (Class::Internal, ..) => format!("T{} found {seen}, against its own operations", reader.txn),
        (_, State::Version(id), _) => format!("no committed T{id} wrote this version"),
        (_, State::DeletedBy(id), _) => format!("no committed T{id} deleted the key"),
        (_, State::NeverExisted | State::Absent, _) => {
            format!("T{} found no row, but the key was never without one", reader.txn)
        }
    };
    Anomaly { class, name, steps: vec![step(context, place, item, None, reason)] }
}

/// A cycle of dependencies.
pub(crate) fn cycle(context: Context<'_>, class: Class, cycle: &[Dependency]) -> Anomaly {
    let name = match class {
        Class::G0 => "dirty write",
        Class::G1c => "circular information flow",
        Class::Otv => "observed transaction vanishes",
        Class::GSingle if is_lost_update(context, cycle) => "lost update",
        Class::GSingle => "read skew",
        Class::GNonadjacent => "long fork",
        Class::G2Item => "write skew",
        _ => "phantom",
    };
    Anomaly { class, name, steps: cycle.iter().map(|dependency| dependency_step(context, dependency)).collect() }
}

/// Whether a cycle of one anti-dependency is about one item, which both of its transactions wrote.
fn is_lost_update(context: Context<'_>, cycle: &[Dependency]) -> bool {
    let wrote = |txn: u32| context.order.find(cycle[0].item.index(), transaction(context, txn).txn).is_some();
    cycle.iter().all(|dependency| dependency.item == cycle[0].item && wrote(dependency.from))
}

/// Version links that no order satisfies; `class` is what [`conflict_class`] says of it.
pub(crate) fn conflict(context: Context<'_>, class: Class, conflict: &Conflict) -> Anomaly {
    match conflict {
        Conflict::Unfounded { version } => {
            let version = context.order.version(*version);
            let over = over(context, version);
            let reason = format!("it was written over {over}, which no committed transaction left");
            Anomaly { class, name: "dirty write", steps: vec![version_step(context, version, None, reason)] }
        }
        Conflict::Lost { version } => {
            let version = context.order.version(*version);
            let over = over(context, version);
            let reason = format!("it was omitted, but no blind write has replaced {over}");
            Anomaly { class, name: "lost write", steps: vec![version_step(context, version, None, reason)] }
        }
        Conflict::InsertOverRow { version, row } => {
            let version = context.order.version(*version);
            let row = context.order.written(*row).map_or(0, |row| row.id);
            let reason = format!("it was inserted, but version {row} was there and no transaction deleted it");
            Anomaly { class, name: "insert over a row", steps: vec![version_step(context, version, None, reason)] }
        }
        Conflict::Fork { versions, .. } => fork(context, class, conflict, versions),
    }
}

/// Two versions written over one state. Evidence is the cycle of the first two, beginning with one
/// that read the state.
fn fork(context: Context<'_>, class: Class, conflict: &Conflict, versions: &[u32]) -> Anomaly {
    let reader = versions.iter().copied().find_map(|version| Some((version, reading(context, conflict, version)?)));
    let first = reader.map_or(versions[0], |(version, _)| version);
    let second = versions.iter().copied().find(|&version| version != first).expect("a fork has two versions");
    let [a, b] = [first, second].map(|version| context.order.version(version));
    let over = over(context, a);
    let forth = match reader {
        Some((_, op)) => {
            let item = ItemId::from_index(a.item as usize);
            let reason = format!("T{} read {over}; T{} wrote over it", a.id, b.id);
            let kind = if over.is_absent() { DependencyKind::PredicateReadWrite } else { DependencyKind::ReadWrite };
            step(context, Place { txn: a.txn, op }, item, Some(kind), reason)
        }
        None => {
            let reason = format!("T{} wrote over {over}; so did T{}", a.id, b.id);
            version_step(context, a, Some(DependencyKind::WriteWrite), reason)
        }
    };
    let reason = format!("T{} wrote over {over}; T{} wrote over the same, not over version {}", b.id, a.id, b.id);
    let back = version_step(context, b, Some(DependencyKind::WriteWrite), reason);
    let name = if reader.is_some() { "lost update" } else { "dirty write" };
    Anomaly { class, name, steps: vec![forth, back] }
}

/// The class of version links that no order satisfies: versions over one state are a lost update if
/// one of the writers had read that state, else a dirty write.
pub(crate) fn conflict_class(context: Context<'_>, conflict: &Conflict) -> Class {
    match conflict {
        Conflict::Fork { versions, .. } if versions.iter().any(|&v| reading(context, conflict, v).is_some()) => {
            Class::GSingle
        }
        _ => Class::G0,
    }
}

/// The operation by which a version's transaction read the state that it then wrote over.
fn reading(context: Context<'_>, conflict: &Conflict, version: u32) -> Option<u32> {
    let Conflict::Fork { state, .. } = conflict else { return None };
    let version = context.order.version(version);
    let index = version.item as usize;
    let item = ItemId::from_index(index);
    let saw = |seen: State| match (state, context.order.observe(index, seen)) {
        (Some(state), Observed::State(other)) => *state == other,
        (Some(state), Observed::Nothing | Observed::Through(_)) => !context.order.is_live(*state),
        (Some(_), _) => false,
        (None, _) => seen.is_absent(),
    };
    let before = &transaction(context, version.txn).ops[..version.first_op as usize];
    if !context.order.spend(before.len()) {
        return None;
    }
    let place = before.iter().position(|op| match op {
        Op::Read { item: other, seen, .. } => *other == item && saw(*seen),
        Op::Write { .. } => false,
        Op::Scan(scan) if scan.table != context.history.item_table(item) => false,
        Op::Scan(scan) if !context.order.spend(scan.seen.len()) => false,
        Op::Scan(scan) => match scan.seen.iter().find(|(other, _)| *other == item) {
            Some(&(_, by)) => saw(State::Version(by)),
            None => context.keys.contains(scan, item) && saw(State::Absent),
        },
    });
    place.map(|place| u32::try_from(place).expect("a transaction has fewer than 2^32 operations"))
}

fn dependency_step(context: Context<'_>, dependency: &Dependency) -> Step {
    let Dependency { from, to, item, op, kind } = *dependency;
    let (a, b) = (transaction(context, from).txn, transaction(context, to).txn);
    let left = |id: u64| context.order.find(item.index(), id).map(|version| context.order.version(version));
    let writing = || {
        let version = left(a).expect("the source of a write- or read-dependency has written the item");
        Place { txn: from, op: version.last_op }
    };
    let verb = |id: u64| left(id).map_or("wrote", |version| verb(context, version));
    let (place, reason) = match kind {
        DependencyKind::WriteWrite => {
            let known = left(b).is_none_or(|version| over(context, version) != State::Absent);
            let certainty = if known { "" } else { " (no other order is possible)" };
            (writing(), format!("T{a} {} it; T{b} then {} it{certainty}", verb(a), verb(b)))
        }
        DependencyKind::WriteRead => {
            (writing(), format!("T{a} {} it; T{b} {} version {a}", verb(a), saw(context, to, op)))
        }
        DependencyKind::PredicateWriteRead => {
            let certainty = if names_state(context, to, op, item) { "" } else { " (no other order is possible)" };
            (writing(), format!("T{a} {} it; T{b} then found no row{certainty}", verb(a)))
        }
        DependencyKind::ReadWrite => {
            let seen = seen(context, from, op, item).unwrap_or(State::Absent);
            let reason = format!("T{a} {} {seen}; T{b} {} it", saw(context, from, op), overwrote(verb(b)));
            (Place { txn: from, op }, reason)
        }
        DependencyKind::PredicateReadWrite => {
            (Place { txn: from, op }, format!("T{a} found no row; T{b} {} one", verb(b)))
        }
    };
    step(context, place, item, Some(kind), reason)
}

/// Whether the read of an absent item says which absence it read.
fn names_state(context: Context<'_>, txn: u32, op: u32, item: ItemId) -> bool {
    seen(context, txn, op, item).is_some_and(|state| state != State::Absent)
}

/// Returns the state of the item that the operation read, or that it wrote over.
pub(crate) fn seen(context: Context<'_>, txn: u32, op: u32, item: ItemId) -> Option<State> {
    match &transaction(context, txn).ops[op as usize] {
        Op::Read { seen, .. } => Some(*seen),
        Op::Write { over, .. } => Some(*over),
        Op::Scan(scan) => {
            let found = |list: &[(ItemId, u64)]| list.iter().find(|(other, _)| *other == item).map(|&(_, by)| by);
            found(&scan.seen).map(State::Version).or_else(|| found(&scan.gone).map(State::deleted_by))
        }
    }
}

fn saw(context: Context<'_>, txn: u32, op: u32) -> &'static str {
    match transaction(context, txn).ops[op as usize] {
        Op::Scan(_) => "scanned",
        _ => "read",
    }
}

fn over(context: Context<'_>, version: &Version) -> State {
    match transaction(context, version.txn).ops[version.first_op as usize] {
        Op::Write { over, .. } => over,
        _ => unreachable!("a version is a write"),
    }
}

fn verb(context: Context<'_>, version: &Version) -> &'static str {
    match (version.live, over(context, version).is_absent()) {
        (false, _) => "deleted",
        (true, true) => "inserted",
        (true, false) => "wrote",
    }
}

fn overwrote(verb: &'static str) -> &'static str {
    if verb == "wrote" { "overwrote" } else { verb }
}

fn transaction(context: Context<'_>, txn: u32) -> &Transaction {
    &context.history.transactions()[txn as usize]
}

fn version_step(context: Context<'_>, version: &Version, kind: Option<DependencyKind>, reason: String) -> Step {
    let place = Place { txn: version.txn, op: version.last_op };
    step(context, place, ItemId::from_index(version.item as usize), kind, reason)
}

fn step(context: Context<'_>, place: Place, item: ItemId, kind: Option<DependencyKind>, reason: String) -> Step {
    let transaction = transaction(context, place.txn);
    let found = |state: Option<State>| match state {
        Some(State::Version(version)) => Some(version),
        _ => None,
    };
    let (operation, version) = match &transaction.ops[place.op as usize] {
        Op::Read { seen, .. } => ("read", found(Some(*seen))),
        Op::Write { delete: true, .. } => ("delete", Some(transaction.txn)),
        Op::Write { over, .. } => (if over.is_absent() { "insert" } else { "update" }, Some(transaction.txn)),
        Op::Scan(_) => ("scan", found(seen(context, place.txn, place.op, item))),
    };
    Step {
        txn: transaction.txn,
        op: place.op as usize,
        operation,
        table: context.history.table_name(context.history.item_table(item)).to_owned(),
        key: context.history.item_key(item).to_owned(),
        version,
        dependency: kind,
        reason,
    }
}
