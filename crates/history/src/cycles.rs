//! The cycles of the direct serialization graph, by class.
//!
//! Only transactions in strong components of several lie on cycles, so only these and the edges
//! within a component are kept here. Each class of cycle is a cycle in a part of this graph:
//!
//! - G0 in the write-dependencies; G1c in the write- and read-dependencies;
//! - OTV is the one class that asks for the order of a transaction's own operations: the module
//!   `vanish` finds it;
//! - G-single and G-nonadjacent in a graph of two copies of each transaction, the second of which
//!   is entered by an anti-dependency and left by anything else. A shortest closed walk here passes
//!   no transaction twice: of the two loops it would split into there, one has no two
//!   anti-dependencies in a row, and is shorter;
//! - G2-item in the graph without predicate anti-dependencies; G2 in the whole.
//!
//! So whether a class other than OTV occurs is decided in linear time. Of each component the first
//! class that occurs is reported: a level that allows it allows every later one. The cycle shown is
//! a shortest one of its class, as long as the search for it stays within its budget; beyond, the
//! shortest found.

mod vanish;

use std::collections::VecDeque;

use crate::anomaly::{Class, DependencyKind};
use crate::dependencies::{Context, Dependency, Findings, walk};
use crate::explain;
use crate::graph::{Edges, Lists, cyclic_components};

const NONE: u32 = u32::MAX;

/// How many edges the searches for shortest cycles may pass, all together, before they take the
/// next best cycle.
const SEARCH_BUDGET: usize = 50_000_000;

/// An edge within a strong component.
#[derive(Clone, Copy)]
struct CoreEdge {
    to: u32,
    dependency: Option<Dependency>,
}

impl Default for CoreEdge {
    fn default() -> Self {
        Self { to: NONE, dependency: None }
    }
}

/// The transactions on cycles, and the dependencies among those of one component.
struct Core {
    edges: Lists<CoreEdge>,
    /// By node: its component.
    component: Vec<u32>,
    components: usize,
}

/// Reports the cycles of `graph`; returns in how many components they lie. `forked` are pairs of
/// transactions whose lost update is reported already.
pub(crate) fn find(
    context: Context<'_>,
    graph: &Lists<u32>,
    forked: &[u32],
    keep: impl Fn(DependencyKind) -> bool + Copy,
    findings: &mut Findings,
) -> usize {
    let components = cyclic_components(graph);
    let mut node_of = vec![NONE; graph.len()];
    let core = Core::new(context, &components, &mut node_of, keep);
    let mut explained = vec![false; core.components];
    let mut budget = SEARCH_BUDGET;
    for stage in Stage::ALL {
        if stage == Stage::NonAdjacent {
            for vanished in vanish::find(context, &core, &explained) {
                let cycle = vanished.cycle;
                findings.report(Class::Otv, || explain::cycle(context, Class::Otv, &cycle));
                explained[vanished.component] = true;
            }
            for &txn in forked.iter().filter(|&&txn| node_of[txn as usize] != NONE) {
                explained[core.component[node_of[txn as usize] as usize] as usize] = true;
            }
        }
        let view = View { core: &core, stage };
        let mut search = Search::new(&view);
        let mut found = Vec::new();
        for nodes in cyclic_components(&view) {
            let component = core.component[view.core_node(nodes[0] as usize)] as usize;
            if explained[component] {
                continue;
            }
            found.push(component);
            if findings.wants(stage.weakest_class()) {
                let cycle = search.shortest_cycle(&nodes, &mut budget);
                findings.report(class_of(&cycle), || explain::cycle(context, class_of(&cycle), &cycle));
            } else {
                findings.report(stage.weakest_class(), || unreachable!("no further anomaly of the class is wanted"));
            }
        }
        found.into_iter().for_each(|component| explained[component] = true);
    }
    components.len()
}

impl Core {
    fn new(
        context: Context<'_>,
        components: &[Vec<u32>],
        node_of: &mut [u32],
        keep: impl Fn(DependencyKind) -> bool + Copy,
    ) -> Self {
        let mut component = Vec::new();
        for (number, members) in (0_u32..).zip(components) {
            for &txn in members {
                node_of[txn as usize] = u32::try_from(component.len()).expect("transactions are numbered in 32 bits");
                component.push(number);
            }
        }
        let ends = |dependency: &Dependency| {
            let (from, to) = (node_of[dependency.from as usize], node_of[dependency.to as usize]);
            let inside = from != NONE && to != NONE && component[from as usize] == component[to as usize];
            (inside && keep(dependency.kind)).then_some((from as usize, to))
        };
        let mut degrees = vec![0; component.len()];
        let count = |dependency| ends(&dependency).into_iter().for_each(|(from, _)| degrees[from] += 1);
        walk(context, count, None);
        let mut edges = Lists::filler(&degrees);
        let fill = |dependency| {
            if let Some((from, to)) = ends(&dependency) {
                edges.push(from, CoreEdge { to, dependency: Some(dependency) });
            }
        };
        walk(context, fill, None);
        Self { edges: edges.finish(), component, components: components.len() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    WriteDependencies,
    Dependencies,
    NonAdjacent,
    Items,
    Everything,
}

impl Stage {
    const ALL: [Self; 5] =
        [Self::WriteDependencies, Self::Dependencies, Self::NonAdjacent, Self::Items, Self::Everything];

    fn weakest_class(self) -> Class {
        match self {
            Self::WriteDependencies => Class::G0,
            Self::Dependencies => Class::G1c,
            Self::NonAdjacent => Class::GNonadjacent,
            Self::Items => Class::G2Item,
            Self::Everything => Class::G2,
        }
    }
}

fn class_of(cycle: &[Dependency]) -> Class {
    let anti = cycle.iter().filter(|dependency| dependency.kind.is_anti()).count();
    // The last dependency precedes the first.
    let adjacent = cycle.iter().zip(cycle.iter().cycle().skip(1)).any(|(a, b)| a.kind.is_anti() && b.kind.is_anti());
    let has = |kind| cycle.iter().any(|dependency| dependency.kind == kind);
    match anti {
        0 if cycle.iter().all(|dependency| dependency.kind == DependencyKind::WriteWrite) => Class::G0,
        0 => Class::G1c,
        1 => Class::GSingle,
        _ if !adjacent => Class::GNonadjacent,
        _ if has(DependencyKind::PredicateReadWrite) => Class::G2,
        _ => Class::G2Item,
    }
}

/// The part of the core in which cycles of one class lie. For [`Stage::NonAdjacent`] node `2 n` is
/// transaction `n`, and node `2 n + 1` is transaction `n` reached by an anti-dependency.
struct View<'c> {
    core: &'c Core,
    stage: Stage,
}

impl View<'_> {
    fn core_node(&self, node: usize) -> usize {
        if self.stage == Stage::NonAdjacent { node / 2 } else { node }
    }

    /// Where the edge leads from `node`, if it is part of the view.
    fn target(&self, node: usize, edge: CoreEdge) -> Option<usize> {
        let kind = edge.dependency?.kind;
        let to = edge.to as usize;
        match self.stage {
            Stage::WriteDependencies => (kind == DependencyKind::WriteWrite).then_some(to),
            Stage::Dependencies => (!kind.is_anti()).then_some(to),
            Stage::NonAdjacent if kind.is_anti() => node.is_multiple_of(2).then_some(2 * to + 1),
            Stage::NonAdjacent => Some(2 * to),
            Stage::Items => (kind != DependencyKind::PredicateReadWrite).then_some(to),
            Stage::Everything => Some(to),
        }
    }
}

impl Edges for View<'_> {
    fn node_count(&self) -> usize {
        self.core.edges.len() * if self.stage == Stage::NonAdjacent { 2 } else { 1 }
    }

    fn next(&self, node: usize, cursor: &mut usize) -> Option<(usize, usize)> {
        let range = self.core.edges.range(self.core_node(node));
        while range.start + *cursor < range.end {
            let edge = range.start + *cursor;
            *cursor += 1;
            if let Some(target) = self.target(node, self.core.edges.entry(edge)) {
                return Some((edge, target));
            }
        }
        None
    }
}

struct Search<'v> {
    view: &'v View<'v>,
    /// By node: the start of the search that found it last, and the node and the edge that it was
    /// found by.
    found: Vec<(u32, u32, u32)>,
    queue: VecDeque<(u32, usize)>,
}

impl<'v> Search<'v> {
    fn new(view: &'v View<'v>) -> Self {
        Self { view, found: vec![(NONE, 0, 0); view.node_count()], queue: VecDeque::new() }
    }

    /// A shortest cycle in a strong component of the view.
    fn shortest_cycle(&mut self, nodes: &[u32], budget: &mut usize) -> Vec<Dependency> {
        let mut best: Option<Vec<Dependency>> = None;
        for &start in nodes {
            // A better cycle has fewer edges; two is the least there is.
            let limit = best.as_ref().map_or(usize::MAX, |cycle| cycle.len() - 1);
            if limit < 2 || (*budget == 0 && best.is_some()) {
                break;
            }
            best = self.from(start, limit, budget).or(best);
        }
        best.expect("every node of a strong component lies on a cycle")
    }

    /// The shortest cycle through `start`, of at most `limit` edges, by breadth-first search.
    fn from(&mut self, start: u32, limit: usize, budget: &mut usize) -> Option<Vec<Dependency>> {
        self.queue.clear();
        self.queue.push_back((start, 0));
        while let Some((node, distance)) = self.queue.pop_front() {
            if distance >= limit {
                return None;
            }
            let mut cursor = 0;
            while let Some((edge, target)) = self.view.next(node as usize, &mut cursor) {
                *budget = budget.saturating_sub(1);
                let edge = u32::try_from(edge).expect("edges are numbered in 32 bits");
                if target == start as usize {
                    return Some(self.path(start, node, edge));
                }
                if self.found[target].0 != start {
                    self.found[target] = (start, node, edge);
                    self.queue.push_back((u32::try_from(target).expect("nodes are numbered in 32 bits"), distance + 1));
                }
            }
        }
        None
    }

    fn path(&self, start: u32, last: u32, closing: u32) -> Vec<Dependency> {
        let mut edges = vec![closing];
        let mut node = last;
        while node != start {
            let (_, previous, edge) = self.found[node as usize];
            edges.push(edge);
            node = previous;
        }
        let dependency = |&edge: &u32| self.view.core.edges.entry(edge as usize).dependency;
        edges.iter().rev().map(|edge| dependency(edge).expect("every edge of the core is a dependency")).collect()
    }
}
