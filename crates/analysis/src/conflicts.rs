//! The conflicts of a plan (C-edges), by units; and what follows from them for one type: its
//! cycles, the last access of each unit, and the steps in which it may be cancelled.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::chop::{Chopped, Chopping};
use crate::merge::{Group, Pieces, Plan, under};
use contend_model::pieces::TypeSet;

/// A step of a type: the position of the type, and that of the group in [`crate::TypePlan`].
pub type Step = (usize, usize);

/// A contended unit, with the steps that access it. Each step of `changed_by` conflicts with all
/// others of both lists, and with itself in another instance of its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The unit's table, by its position.
    pub table: usize,
    /// The unit's cell.
    pub cell: usize,
    /// The rank of all these steps.
    pub rank: u32,
    /// The steps that change the unit.
    pub changed_by: Vec<Step>,
    /// The steps that only read it.
    pub read_by: Vec<Step>,
}

/// A cycle of S-edges and C-edges through a type: two instances of it suffice. Chopping would
/// unite these pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cycle {
    /// The type, by its position.
    pub of: usize,
    /// The first and the last piece that conflict.
    pub pieces: (usize, usize),
    /// The groups in the cycle that have a rank. With two or more of them the ranks order the
    /// cycle.
    pub ordered: usize,
    /// The groups whose pieces had to be merged, since they could not be ordered.
    pub merged: Vec<usize>,
    /// The other groups of several pieces. They access common units, or another step accesses the
    /// units of all.
    pub joined: Vec<usize>,
}

/// The last access of a type to a unit. Behind it, a protocol could release the unit early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastAccess {
    /// The unit's table, by its position.
    pub table: usize,
    /// The unit's cell.
    pub cell: usize,
    /// The last piece that accesses it.
    pub piece: usize,
    /// The group of that piece.
    pub group: usize,
    /// The group's rank.
    pub rank: u32,
}

/// A piece in which the application may cancel the transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cancel {
    /// The type, by its position.
    pub of: usize,
    /// The piece.
    pub piece: usize,
    /// The first group that has been shown to others by then, if there is one.
    pub shown: Option<usize>,
}

impl Plan {
    /// Returns the conflicts about each contended unit that a step accesses, in the order of units.
    /// `types` is what the plan was made of.
    pub fn conflicts(&self, types: &TypeSet) -> Vec<Conflict> {
        let pieces = Pieces::new(&under(types, self.options), self.options);
        let mut steps: Vec<Vec<(Step, bool)>> = vec![Vec::new(); self.units.len()];
        for (&(of, piece), units) in pieces.of.iter().zip(&pieces.contended) {
            let step = (of, self.types[of].group_of(piece));
            for &(unit, changes) in units {
                // Pieces come in their order, so those of one step follow each other.
                match steps[unit].last_mut().filter(|(last, _)| *last == step) {
                    Some((_, changed)) => *changed |= changes,
                    None => steps[unit].push((step, changes)),
                }
            }
        }
        let conflict = |(unit, steps): (usize, &Vec<(Step, bool)>)| {
            let ((of, group), _) = *steps.first()?;
            let all = |changes| steps.iter().filter(move |(_, own)| *own == changes).map(|(step, _)| *step).collect();
            let unit = &self.units[unit];
            let rank = self.types[of].groups[group].rank?;
            Some(Conflict { table: unit.table, cell: unit.cell, rank, changed_by: all(true), read_by: all(false) })
        };
        steps.iter().enumerate().filter_map(conflict).collect()
    }

    /// Returns the cycles, one for each type that has two or more pieces that conflict.
    pub fn cycles(&self, types: &TypeSet) -> Vec<Cycle> {
        let pieces = Pieces::new(&under(types, self.options), self.options);
        let mut span: Vec<Option<(usize, usize)>> = vec![None; self.types.len()];
        for (&(of, piece), _) in pieces.of.iter().zip(&pieces.contended).filter(|(_, units)| !units.is_empty()) {
            let (first, _) = span[of].unwrap_or((piece, piece));
            span[of] = Some((first, piece));
        }
        let cycle = |(of, span): (usize, &Option<(usize, usize)>)| {
            let pieces = span.filter(|(first, last)| first < last)?;
            let groups = self.types[of].groups.iter().enumerate().filter(|(_, group)| group.rank.is_some());
            let several = groups.clone().filter(|(_, group)| group.first < group.last);
            let is_merged = |group: &Group| group.vertex.is_some_and(|vertex| self.vertices[vertex].is_merged);
            let (merged, joined): (Vec<_>, Vec<_>) = several.partition(|(_, group)| is_merged(group));
            let numbers = |groups: Vec<(usize, &Group)>| groups.into_iter().map(|(number, _)| number).collect();
            Some(Cycle { of, pieces, ordered: groups.count(), merged: numbers(merged), joined: numbers(joined) })
        };
        span.iter().enumerate().filter_map(cycle).collect()
    }

    /// Returns for each type the last access to each contended unit, in the order of units.
    pub fn last_accesses(&self, types: &TypeSet) -> Vec<Vec<LastAccess>> {
        let pieces = Pieces::new(&under(types, self.options), self.options);
        let mut last: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new(); self.types.len()];
        for (&(of, piece), units) in pieces.of.iter().zip(&pieces.contended) {
            units.iter().for_each(|(unit, _)| _ = last[of].insert(*unit, piece));
        }
        let access = |of: usize, unit: usize, piece: usize| {
            let (unit, group) = (&self.units[unit], self.types[of].group_of(piece));
            let rank = self.types[of].groups[group].rank?;
            Some(LastAccess { table: unit.table, cell: unit.cell, piece, group, rank })
        };
        let of_type = |(of, last): (usize, BTreeMap<usize, usize>)| {
            last.into_iter().filter_map(|(unit, piece)| access(of, unit, piece)).collect()
        };
        last.into_iter().enumerate().map(of_type).collect()
    }

    /// Returns the pieces in which the application may cancel, without those of types on snapshots.
    ///
    /// A group is shown to others when its last piece has ended. So a cancel in the middle of the
    /// first group with a rank comes before anything is shown.
    pub fn cancels(&self, types: &TypeSet, chopping: &Chopping) -> Vec<Cancel> {
        let mut cancels = Vec::new();
        for (of, (declared, Chopped { on_snapshot, .. })) in types.types.iter().zip(&chopping.types).enumerate() {
            let groups = &self.types[of].groups;
            let first = groups.iter().position(|group| group.rank.is_some());
            let pieces = declared.pieces.iter().enumerate().filter(|(_, piece)| piece.cancels && !on_snapshot);
            for (piece, _) in pieces {
                let shown = first.filter(|first| groups[*first].last < piece);
                cancels.push(Cancel { of, piece, shown });
            }
        }
        cancels
    }
}
