//! From declared pieces to ranks.
//!
//! 1. Each unit gets its class ([`crate::Class`]).
//! 2. Pieces that access one contended unit are united, of whatever types they are. Settled reads
//!    are excepted. Two instances of each type are implied: a unit that one type alone writes is
//!    contended with itself.
//! 3. The united sets are the nodes of a graph. Consecutive pieces of a type are an edge.
//! 4. A strongly connected component becomes one *vertex*: its pieces can't be ordered.
//! 5. The pieces of a type in one vertex are one *group*. They are consecutive, because each piece
//!    between two of them lies on a path from the vertex to itself.
//! 6. The vertices get one topological order, ties by the order of declaration. The vertices with a
//!    tracked piece are numbered from 1: their *ranks*.
//!
//! A piece is *tracked* if it accesses a contended unit other than by a settled read. The paper
//! (IC3, section 4) draws edges between all conflicting pieces. Uniting the accessors of a unit
//! gives the same vertices, because each accessor conflicts with a writer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::unionfind::UnionFind;
use serde::Serialize;

use crate::classes::{Class, UnitClass, classes};
use contend_model::Groups;
use contend_model::pieces::{Mode, TypeSet};

use crate::check::{DeclarationError, check};

/// The options of a run that decide what conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AnalysisOptions {
    /// Whether each group of columns is a cell (timestamp splitting). Otherwise a row is one cell.
    pub split: bool,
    /// Whether updates that commute are applied at the commit. Otherwise each is a write.
    pub updates: bool,
    /// Whether read-only types run on snapshots, and so conflict with nothing.
    pub snapshots: bool,
    /// Whether tables that are only appended to need no order.
    pub appends: bool,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions { split: true, updates: true, snapshots: true, appends: true }
    }
}

/// Consecutive pieces of a type that are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The position of its first piece.
    pub first: usize,
    /// The position of its last piece.
    pub last: usize,
    /// Its vertex, by the position in [`Plan::vertices`]. `None`: the type runs on a snapshot.
    pub vertex: Option<usize>,
    /// Its rank, from 1. `None`: nothing has to be ordered.
    pub rank: Option<u32>,
}

/// What the analysis found about a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypePlan {
    /// Whether the type runs on a snapshot.
    pub on_snapshot: bool,
    /// Its groups, in the order of the program.
    pub groups: Vec<Group>,
}

impl TypePlan {
    /// Returns the position of the group that has this piece.
    pub fn group_of(&self, piece: usize) -> usize {
        self.groups.partition_point(|group| group.last < piece)
    }
}

/// A step: the groups of all types that must not be divided further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vertex {
    /// Its rank, from 1; `None` if it has no tracked piece.
    pub rank: Option<u32>,
    /// Its groups: the position of the type, and that of the group.
    pub groups: Vec<(usize, usize)>,
    /// Whether pieces were united that access no common unit: the graph had a cycle through them.
    pub is_merged: bool,
}

/// The result of the analysis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The options.
    pub options: AnalysisOptions,
    /// The class of each unit, by tables and cells.
    pub units: Vec<UnitClass>,
    /// The types, in the order of their declaration.
    pub types: Vec<TypePlan>,
    /// The vertices, in their order.
    pub vertices: Vec<Vertex>,
}

/// Returns the declarations as they are under these options.
pub(crate) fn under(types: &TypeSet, options: AnalysisOptions) -> TypeSet {
    let only_inserts = types.only_inserts();
    let mut types = types.clone();
    for access in types.types.iter_mut().flat_map(|of| &mut of.pieces).flat_map(|piece| &mut piece.accesses) {
        // A row is one unit, and others change it.
        if !options.split && access.mode == Mode::Settled && !only_inserts[access.table] {
            access.mode = Mode::Read;
        }
        if !options.split && !access.groups.is_empty() {
            access.groups = Groups::FIRST;
        }
        if !options.updates && access.mode == Mode::Update {
            access.mode = Mode::Write;
        }
    }
    if !options.split {
        types.tables.iter_mut().for_each(|table| table.groups = 1);
    }
    types
}

/// The pieces of all types that don't run on snapshots, numbered in the order of declaration, and
/// the contended units of each.
pub(crate) struct Pieces {
    /// The type and the position of each piece.
    pub(crate) of: Vec<(usize, usize)>,
    /// For each piece, the contended units that it accesses, and whether it changes each.
    pub(crate) contended: Vec<Vec<(usize, bool)>>,
    pub(crate) units: Vec<UnitClass>,
}

impl Pieces {
    /// Classifies the units, and numbers the pieces. `types` are as they are under the options.
    pub(crate) fn new(types: &TypeSet, options: AnalysisOptions) -> Pieces {
        let counts = |of: usize| !(options.snapshots && types.types[of].read_only);
        let units = classes(types, options.appends, counts);
        let mut first_unit = Vec::with_capacity(types.tables.len());
        types.tables.iter().fold(0, |next, table| {
            first_unit.push(next);
            next + table.groups
        });
        let (mut of, mut contended) = (Vec::new(), Vec::new());
        for (number, declared) in types.types.iter().enumerate().filter(|(number, _)| counts(*number)) {
            for (position, piece) in declared.pieces.iter().enumerate() {
                let mut own: Vec<(usize, bool)> = Vec::new();
                for access in piece.accesses.iter().filter(|access| access.mode != Mode::Settled) {
                    for cell in types.groups_of(access).into_iter() {
                        let unit = first_unit[access.table] + cell;
                        if units[unit].class == Class::Contended {
                            own.push((unit, access.mode.changes()));
                        }
                    }
                }
                of.push((number, position));
                contended.push(own);
            }
        }
        Pieces { of, contended, units }
    }

    /// Whether these pieces follow each other in one type.
    fn are_consecutive(&self, piece: usize) -> bool {
        piece + 1 < self.of.len() && self.of[piece].0 == self.of[piece + 1].0
    }

    /// Returns the set of each piece: step 2 of the module's text. Sets are numbered by their first
    /// pieces.
    fn united(&self) -> Vec<usize> {
        let mut sets = UnionFind::<usize>::new(self.of.len());
        let mut accessor = vec![None; self.units.len()];
        for (piece, units) in self.contended.iter().enumerate() {
            for (unit, _) in units {
                sets.union(*accessor[*unit].get_or_insert(piece), piece);
            }
        }
        let mut first = vec![None; self.of.len()];
        (0..self.of.len()).map(|piece| *first[sets.find(piece)].get_or_insert(piece)).collect()
    }

    /// Returns the vertex of each piece: steps 3 and 4. Vertices are numbered by their first
    /// pieces.
    fn vertices(&self, sets: &[usize]) -> Vec<usize> {
        let mut graph = DiGraph::<(), ()>::new();
        (0..self.of.len()).for_each(|_| _ = graph.add_node(()));
        for piece in (0..self.of.len()).filter(|piece| self.are_consecutive(*piece)) {
            graph.add_edge(NodeIndex::new(sets[piece]), NodeIndex::new(sets[piece + 1]), ());
        }
        let mut vertex = vec![0; self.of.len()];
        for component in kosaraju_scc(&graph) {
            let first = component.iter().map(|node| node.index()).min().unwrap_or(0);
            component.iter().for_each(|node| vertex[node.index()] = first);
        }
        sets.iter().map(|set| vertex[*set]).collect()
    }

    /// Returns the vertices in their topological order, each as its number: step 6.
    fn ordered(&self, vertices: &[usize]) -> Vec<usize> {
        let mut after = vec![Vec::new(); self.of.len()];
        let mut before = vec![0; self.of.len()];
        for piece in (0..self.of.len()).filter(|piece| self.are_consecutive(*piece)) {
            let (from, to) = (vertices[piece], vertices[piece + 1]);
            if from != to {
                after[from].push(to);
                before[to] += 1;
            }
        }
        let is_first = |piece: &usize| vertices[*piece] == *piece;
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..self.of.len()).filter(is_first).filter(|vertex| before[*vertex] == 0).map(Reverse).collect();
        let mut order = Vec::new();
        while let Some(Reverse(vertex)) = ready.pop() {
            order.push(vertex);
            for &next in &after[vertex] {
                before[next] -= 1;
                if before[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        order
    }
}

impl Plan {
    /// Analyses the types. Takes time near linear in the number of accesses.
    ///
    /// # Errors
    /// A declaration is not valid.
    pub fn new(types: &TypeSet, options: AnalysisOptions) -> Result<Plan, DeclarationError> {
        check(types)?;
        let types = under(types, options);
        let pieces = Pieces::new(&types, options);
        let sets = pieces.united();
        let of_piece = pieces.vertices(&sets);
        let order = pieces.ordered(&of_piece);
        let mut position = vec![0; pieces.of.len()];
        let mut plan = Plan { options, units: pieces.units.clone(), types: Vec::new(), vertices: Vec::new() };
        for (number, vertex) in order.into_iter().enumerate() {
            position[vertex] = number;
            plan.vertices.push(Vertex { rank: None, groups: Vec::new(), is_merged: false });
        }
        for of in &types.types {
            let on_snapshot = options.snapshots && of.read_only;
            let alone = |piece| Group { first: piece, last: piece, vertex: None, rank: None };
            let groups = if on_snapshot { (0..of.pieces.len()).map(alone).collect() } else { Vec::new() };
            plan.types.push(TypePlan { on_snapshot, groups });
        }
        let mut is_tracked = vec![false; plan.vertices.len()];
        for (piece, &(of, own)) in pieces.of.iter().enumerate() {
            let vertex = position[of_piece[piece]];
            let groups = &mut plan.types[of].groups;
            match groups.last_mut().filter(|group| group.vertex == Some(vertex)) {
                Some(group) => group.last = own,
                None => {
                    plan.vertices[vertex].groups.push((of, groups.len()));
                    groups.push(Group { first: own, last: own, vertex: Some(vertex), rank: None });
                }
            }
            is_tracked[vertex] |= !pieces.contended[piece].is_empty();
            plan.vertices[vertex].is_merged |= sets[piece] != of_piece[piece];
        }
        plan.number(&is_tracked);
        Ok(plan)
    }

    /// Gives the vertices with a tracked piece their ranks.
    fn number(&mut self, is_tracked: &[bool]) {
        let mut next = 0;
        for (vertex, _) in self.vertices.iter_mut().zip(is_tracked).filter(|(_, tracked)| **tracked) {
            next += 1;
            vertex.rank = Some(next);
        }
        for group in self.types.iter_mut().flat_map(|of| &mut of.groups) {
            group.rank = group.vertex.and_then(|vertex| self.vertices[vertex].rank);
        }
    }
}
