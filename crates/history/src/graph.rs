//! Graphs in compressed form, and the two classic walks over them: topological order and strong
//! components.
//!
//! Sources: A. B. Kahn, "Topological Sorting of Large Networks", CACM 1962; R. Tarjan, "Depth-First
//! Search and Linear Graph Algorithms", SIAM J. Computing 1972. Tarjan's walk is iterative here: a
//! serial history is one path as long as the history, and a recursive walk down it overflows the
//! stack.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A list of lists in two vectors.
#[derive(Default)]
pub(crate) struct Lists<T> {
    offsets: Vec<u32>,
    entries: Vec<T>,
}

impl<T: Copy + Default> Lists<T> {
    /// As many lists as `lengths`, of these lengths, each filled by [`Filler::push`].
    pub(crate) fn filler(lengths: &[u32]) -> Filler<T> {
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        let mut total = 0_u32;
        offsets.push(0);
        for &length in lengths {
            total = total.checked_add(length).expect("a history has fewer than 2^32 dependencies");
            offsets.push(total);
        }
        Filler { next: offsets.clone(), lists: Self { offsets, entries: vec![T::default(); total as usize] } }
    }

    pub(crate) fn of(&self, list: usize) -> &[T] {
        &self.entries[self.range(list)]
    }

    pub(crate) fn range(&self, list: usize) -> std::ops::Range<usize> {
        self.offsets[list] as usize..self.offsets[list + 1] as usize
    }

    pub(crate) fn entry(&self, index: usize) -> T {
        self.entries[index]
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }
}

/// Lists being filled.
pub(crate) struct Filler<T> {
    lists: Lists<T>,
    next: Vec<u32>,
}

impl<T: Copy> Filler<T> {
    pub(crate) fn push(&mut self, list: usize, entry: T) {
        self.lists.entries[self.next[list] as usize] = entry;
        self.next[list] += 1;
    }

    pub(crate) fn finish(self) -> Lists<T> {
        self.lists
    }
}

/// A directed graph as the walks see it: the edges of a node are asked for one by one.
pub(crate) trait Edges {
    /// How many nodes there are.
    fn node_count(&self) -> usize;
    /// The next edge of `node` at or after `cursor` (0 at first), which is moved behind it: the
    /// edge's number and its target.
    fn next(&self, node: usize, cursor: &mut usize) -> Option<(usize, usize)>;
}

impl Edges for Lists<u32> {
    fn node_count(&self) -> usize {
        self.len()
    }

    fn next(&self, node: usize, cursor: &mut usize) -> Option<(usize, usize)> {
        let edge = self.range(node).start + *cursor;
        let target = *self.of(node).get(*cursor)?;
        *cursor += 1;
        Some((edge, target as usize))
    }
}

/// The nodes in topological order, of all such orders the one that deviates least from the nodes'
/// own numbers; of a graph with cycles, the nodes that no cycle leads to.
pub(crate) fn topological_order(graph: &Lists<u32>) -> Vec<u32> {
    let mut in_degree = vec![0_u32; graph.len()];
    for &target in &graph.entries {
        in_degree[target as usize] += 1;
    }
    let mut ready: BinaryHeap<Reverse<u32>> =
        (0_u32..).zip(&in_degree).filter(|&(_, &degree)| degree == 0).map(|(node, _)| Reverse(node)).collect();
    let mut order = Vec::with_capacity(graph.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &target in graph.of(node as usize) {
            in_degree[target as usize] -= 1;
            if in_degree[target as usize] == 0 {
                ready.push(Reverse(target));
            }
        }
    }
    order
}

const NONE: u32 = u32::MAX;

/// The strong components of more than one node, each sorted, in the order of their lowest nodes.
pub(crate) fn cyclic_components(graph: &impl Edges) -> Vec<Vec<u32>> {
    let mut walk = Tarjan {
        index: vec![NONE; graph.node_count()],
        low: vec![NONE; graph.node_count()],
        on_stack: vec![false; graph.node_count()],
        stack: Vec::new(),
        next_index: 0,
        components: Vec::new(),
    };
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..graph.node_count() {
        if walk.index[root] != NONE {
            continue;
        }
        walk.enter(root);
        path.push((root, 0));
        while let Some((node, cursor)) = path.last_mut() {
            let node = *node;
            match graph.next(node, cursor) {
                Some((_, target)) if walk.index[target] == NONE => {
                    walk.enter(target);
                    path.push((target, 0));
                }
                Some((_, target)) => {
                    if walk.on_stack[target] {
                        walk.low[node] = walk.low[node].min(walk.index[target]);
                    }
                }
                None => {
                    path.pop();
                    if let Some(&(parent, _)) = path.last() {
                        walk.low[parent] = walk.low[parent].min(walk.low[node]);
                    }
                    walk.leave(node);
                }
            }
        }
    }
    walk.components.sort_unstable_by_key(|component| component[0]);
    walk.components
}

struct Tarjan {
    /// By node: the number of its discovery.
    index: Vec<u32>,
    /// By node: the lowest discovery number known to be reachable within its component.
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
    next_index: u32,
    components: Vec<Vec<u32>>,
}

impl Tarjan {
    fn enter(&mut self, node: usize) {
        self.index[node] = self.next_index;
        self.low[node] = self.next_index;
        self.next_index += 1;
        self.on_stack[node] = true;
        self.stack.push(u32::try_from(node).expect("nodes are numbered in 32 bits"));
    }

    fn leave(&mut self, node: usize) {
        if self.low[node] != self.index[node] {
            return;
        }
        let from = self.stack.iter().rposition(|&other| other as usize == node).expect("the node is on the stack");
        for &member in &self.stack[from..] {
            self.on_stack[member as usize] = false;
        }
        if self.stack.len() - from > 1 {
            let mut component = self.stack.split_off(from);
            component.sort_unstable();
            self.components.push(component);
        } else {
            self.stack.truncate(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn graph(nodes: usize, edges: &[(u32, u32)]) -> Lists<u32> {
        let mut lengths = vec![0; nodes];
        for edge in edges {
            lengths[edge.0 as usize] += 1;
        }
        let mut filler = Lists::filler(&lengths);
        for edge in edges {
            filler.push(edge.0 as usize, edge.1);
        }
        filler.finish()
    }

    #[test]
    fn components_and_orders_agree_with_petgraph() {
        for seed in 0..300 {
            println!("seed {seed}");
            let mut random = SmallRng::seed_from_u64(seed);
            let nodes = random.random_range(1..20_u32);
            let edges: Vec<(u32, u32)> = (0..random.random_range(0..40))
                .map(|_| (random.random_range(0..nodes), random.random_range(0..nodes)))
                .filter(|(from, to)| from != to)
                .collect();
            let ours = graph(nodes as usize, &edges);
            let mut other = petgraph::graph::DiGraph::<(), ()>::new();
            for _ in 0..nodes {
                other.add_node(());
            }
            other.extend_with_edges(&edges);
            let mut expected: Vec<Vec<u32>> = petgraph::algo::kosaraju_scc(&other)
                .into_iter()
                .filter(|component| component.len() > 1)
                .map(|component| component.into_iter().map(|node| u32::try_from(node.index()).unwrap()).collect())
                .collect();
            expected.iter_mut().for_each(|component| component.sort_unstable());
            expected.sort();
            assert_eq!(cyclic_components(&ours), expected);
            let order = topological_order(&ours);
            assert_eq!(order.len() == nodes as usize, !petgraph::algo::is_cyclic_directed(&other));
            let place = |node: u32| order.iter().position(|&other| other == node);
            for (from, to) in edges {
                assert!(place(to).is_none() || place(from) < place(to), "{from} before {to}");
            }
        }
    }

    #[test]
    fn a_long_path_needs_no_deep_stack() {
        let edges: Vec<(u32, u32)> = (0..1_000_000).map(|node| (node, (node + 1) % 1_000_001)).collect();
        let ring = graph(1_000_001, &[edges, vec![(1_000_000, 0)]].concat());
        assert_eq!(cyclic_components(&ring).len(), 1);
        assert!(topological_order(&ring).is_empty());
    }

    #[test]
    fn an_order_that_is_free_follows_the_numbers() {
        assert_eq!(topological_order(&graph(5, &[(4, 1), (1, 2)])), [0, 3, 4, 1, 2]);
    }
}
