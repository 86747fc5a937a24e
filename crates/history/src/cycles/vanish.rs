//! Observed transactions that vanish (OTV).
//!
//! A reader saw a write of another transaction, the *observed* one. A later operation of the reader
//! read a key as it was before the observed one's write of it. So a cycle of OTV has one
//! read-dependency, one anti-dependency by a later operation of the same transaction, and the
//! write-dependencies of one key that lead back to the observed one. Peter Bailis and others,
//! "Highly available transactions: virtues and limitations", VLDB 2014.
//!
//! Each reader is walked from its last operation to its first. What it has yet to read is known
//! then, and for each transaction that it observes the keys are compared: those that the other one
//! wrote, or those that the reader has yet to read, whichever are fewer. That takes at most n^1.5
//! steps for n operations, and usually few more than n.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use super::{Core, CoreEdge};
use crate::anomaly::DependencyKind;
use crate::dependencies::{Context, Dependency};
use crate::explain;
use crate::model::{ItemId, Op, State};
use crate::versions::{NONE, Observed};

/// The evidence of one component.
pub(super) struct Vanished {
    pub(super) component: usize,
    /// The read-dependency, the anti-dependency, and the write-dependencies.
    pub(super) cycle: Vec<Dependency>,
}

/// Finds one observed transaction that vanishes in each component that has one and is not yet
/// explained: that with the fewest versions between the one that was read and the one that was not
/// seen.
pub(super) fn find(context: Context<'_>, core: &Core, explained: &[bool]) -> Vec<Vanished> {
    if explained.iter().all(|&is_explained| is_explained) {
        return Vec::new();
    }
    let positions = context.order.positions();
    let mut best: Vec<Option<Candidate>> = vec![None; core.components];
    for (node, mut reads) in (0_u32..).zip(reads_of_nodes(context, core, explained)) {
        let best = &mut best[core.component[node as usize] as usize];
        // At one operation what was observed comes first: what the same operation read is not
        // later.
        reads.sort_by_key(|read| (Reverse(read.op), read.kind.is_anti()));
        let mut yet_to_read =
            YetToRead { context, positions: &positions, oldest: HashMap::new(), next: HashMap::new() };
        for read in reads {
            if read.kind.is_anti() {
                yet_to_read.note(read);
            } else if let Some((distance, item, op)) = yet_to_read.missed_write_of(read.from)
                && best.as_ref().is_none_or(|best| distance < best.distance)
            {
                *best = Some(Candidate { distance, node, observed: read, item, op });
            }
        }
    }
    let found = best.into_iter().enumerate();
    found.filter_map(|(component, candidate)| Some(Vanished { component, cycle: candidate?.cycle(core)? })).collect()
}

/// A reader, the dependency by which it observed a transaction, and the later operation and the
/// item by which that one vanished.
#[derive(Clone, Copy)]
struct Candidate {
    /// How many versions are between.
    distance: u32,
    node: u32,
    observed: Dependency,
    item: ItemId,
    op: u32,
}

impl Candidate {
    /// The shortest way from the later read to the observed transaction by writes of the item.
    fn cycle(self, core: &Core) -> Option<Vec<Dependency>> {
        // By node: the way that it was found by.
        let mut found: HashMap<u32, (u32, Dependency)> = HashMap::new();
        let mut queue = VecDeque::from([self.node]);
        while let Some(node) = queue.pop_front() {
            for &CoreEdge { to, dependency } in core.edges.of(node as usize) {
                let is_read = |edge: &Dependency| edge.kind.is_anti() && edge.op == self.op;
                let is_write = |edge: &Dependency| edge.kind == DependencyKind::WriteWrite;
                let belongs = |edge: &Dependency| if node == self.node { is_read(edge) } else { is_write(edge) };
                let Some(edge) = dependency.filter(|edge| edge.item == self.item && belongs(edge)) else { continue };
                if to == self.node || found.contains_key(&to) {
                    continue;
                }
                found.insert(to, (node, edge));
                if edge.to == self.observed.from {
                    let mut cycle: Vec<Dependency> =
                        std::iter::successors(found.get(&to), |(before, _)| found.get(before))
                            .map(|way| way.1)
                            .collect();
                    cycle.push(self.observed);
                    cycle.reverse();
                    return Some(cycle);
                }
                queue.push_back(to);
            }
        }
        None
    }
}

/// By node of a component that is not yet explained: the dependencies on what it read, and those on
/// it by what it read.
fn reads_of_nodes(context: Context<'_>, core: &Core, explained: &[bool]) -> Vec<Vec<Dependency>> {
    let mut reads = vec![Vec::new(); core.edges.len()];
    for node in (0..core.edges.len()).filter(|&node| !explained[core.component[node] as usize]) {
        for &CoreEdge { to, dependency } in core.edges.of(node) {
            let Some(dependency) = dependency else { continue };
            match dependency.kind {
                DependencyKind::WriteWrite => {}
                DependencyKind::WriteRead => reads[to as usize].push(dependency),
                DependencyKind::ReadWrite => reads[node].push(dependency),
                DependencyKind::PredicateWriteRead if is_certain(context, dependency.to, dependency) => {
                    reads[to as usize].push(dependency);
                }
                DependencyKind::PredicateReadWrite if is_certain(context, dependency.from, dependency) => {
                    reads[node].push(dependency);
                }
                DependencyKind::PredicateWriteRead | DependencyKind::PredicateReadWrite => {}
            }
        }
    }
    reads
}

/// Whether it is known which absence of the item the reader has seen. If not, the graph has the
/// absence before another state that the reader saw, and the absence after it would make a cycle as
/// well ([`crate::versions::VersionOrder::observe_absence_near`]), but no OTV.
fn is_certain(context: Context<'_>, reader: u32, dependency: Dependency) -> bool {
    let item = dependency.item;
    let seen = explain::seen(context, reader, dependency.op, item).unwrap_or(State::Absent);
    matches!(context.order.observe(item.index(), seen), Observed::State(_) | Observed::Through(_))
}

/// What a transaction has yet to read.
struct YetToRead<'c, 'h> {
    context: Context<'h>,
    positions: &'c [u32],
    /// By item: the position of the version that replaced the oldest state, and the operation that
    /// read that state.
    oldest: HashMap<ItemId, (u32, u32)>,
    /// By item and transaction: the operation that read a state which the transaction replaced.
    next: HashMap<(ItemId, u32), u32>,
}

impl YetToRead<'_, '_> {
    fn note(&mut self, read: Dependency) {
        let Dependency { item, op, to, .. } = read;
        self.next.insert((item, to), op);
        let position = self.position(item, to).unwrap_or(NONE);
        let oldest = self.oldest.entry(item).or_insert((position, op));
        if position < oldest.0 {
            *oldest = (position, op);
        }
    }

    /// The position of the version of the item that the transaction left.
    fn position(&self, item: ItemId, txn: u32) -> Option<u32> {
        let id = self.context.history.transactions()[txn as usize].txn;
        let version = self.context.order.find(item.index(), id)?;
        Some(self.positions[version as usize]).filter(|&position| position != NONE)
    }

    /// Whether a state from before a write of the transaction is yet to be read: how many versions
    /// are between, the item, and the operation that reads it.
    fn missed_write_of(&self, observed: u32) -> Option<(u32, ItemId, u32)> {
        let ops = &self.context.history.transactions()[observed as usize].ops;
        let check = |item: ItemId| {
            if let Some(&op) = self.next.get(&(item, observed)) {
                return Some((0, item, op));
            }
            let &(oldest, op) = self.oldest.get(&item)?;
            let distance = self.position(item, observed)?.checked_sub(oldest)?;
            Some((distance, item, op))
        };
        let written = ops.iter().filter_map(|op| match op {
            Op::Write { item, .. } => Some(*item),
            _ => None,
        });
        let nearest = |found: &(u32, ItemId, u32)| (found.0, found.1.index());
        if ops.len() < self.oldest.len() {
            written.filter_map(check).min_by_key(nearest)
        } else {
            self.oldest.keys().copied().filter_map(check).min_by_key(nearest)
        }
    }
}
