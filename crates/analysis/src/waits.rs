//! What a step waits for.
//!
//! A step of rank k may take effect when each transaction that comes before it is *past* k: it has
//! ended, or it has shown a step of rank k or higher (the rank rule). So the answer depends on the
//! steps of the other type only:
//!
//! | the other type has | the step waits until |
//! | --- | --- |
//! | a step of rank k, the *partner* | the partner is shown |
//! | no partner, and steps of higher ranks | the first of them is shown |
//! | neither | the other transaction has ended |
//!
//! Another transaction comes before this one once their first conflict is settled. So a step waits
//! for another type only if its rank is above the first rank at which the two types conflict. At
//! that rank the partner has been shown already.

use serde::Serialize;

use crate::conflicts::{Conflict, Step};
use crate::merge::{Group, Plan};
use contend_model::pieces::TypeSet;

/// The most work for waits: the number of types times the number of steps and accesses. Beyond it
/// there are too many pairs of types for anybody to read.
const WORK_MAX: usize = 1_000_000;

/// A wait that does not end at a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The step that waits.
    pub step: Step,
    /// The type of the transaction that came before, by its position.
    pub after: usize,
    /// What the step waits for.
    pub until: Until,
}

/// What a step without a partner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// A later step of the other transaction, which has no step of this rank: the group's position.
    Shown(usize),
    /// The end of the other transaction, which has no step of this rank or a higher one.
    End,
}

/// All waits of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// The waits that do not end at a partner, by the step's type, the other type and the step.
    pub beyond_partners: Vec<Wait>,
    /// The number of all others: those until a partner has been shown.
    pub until_partners: usize,
}

impl Plan {
    /// Returns what each step waits for, after each type that it conflicts with. `conflicts` are
    /// those of this plan. `None`: there are too many types and steps.
    pub fn waits(&self, types: &TypeSet, conflicts: &[Conflict]) -> Option<Waits> {
        let count = types.types.len();
        let steps: usize = self.types.iter().map(|of| of.groups.len()).sum();
        let accesses: usize = conflicts.iter().map(|unit| unit.changed_by.len() + unit.read_by.len()).sum();
        if count.saturating_mul(steps + accesses) > WORK_MAX {
            return None;
        }
        let first = first_conflicts(count, conflicts);
        let ranked: Vec<Vec<(u32, usize)>> = self.types.iter().map(|of| ranked(&of.groups)).collect();
        let mut waits = Waits::default();
        for of in 0..count {
            for after in 0..count {
                let Some(from) = first[of * count + after] else { continue };
                for &(rank, number) in ranked[of].iter().filter(|(rank, _)| *rank > from) {
                    match until(&ranked[after], rank) {
                        None => waits.until_partners += 1,
                        Some(until) => waits.beyond_partners.push(Wait { step: (of, number), after, until }),
                    }
                }
            }
        }
        Some(waits)
    }
}

/// Returns for each pair of types, at `of * count + after`, the first rank at which they conflict.
fn first_conflicts(count: usize, conflicts: &[Conflict]) -> Vec<Option<u32>> {
    let mut first: Vec<Option<u32>> = vec![None; count * count];
    for Conflict { rank, changed_by, read_by, .. } in conflicts {
        for (of, _) in changed_by {
            for (other, _) in changed_by.iter().chain(read_by) {
                for pair in [of * count + other, other * count + of] {
                    first[pair] = Some(first[pair].map_or(*rank, |first| first.min(*rank)));
                }
            }
        }
    }
    first
}

/// Returns the ranks of groups, each with the group. They grow.
fn ranked(groups: &[Group]) -> Vec<(u32, usize)> {
    groups.iter().enumerate().filter_map(|(number, group)| Some((group.rank?, number))).collect()
}

/// Returns what a step of this rank waits for, after a type with groups of these ranks. `None`: the
/// partner.
fn until(ranked: &[(u32, usize)], rank: u32) -> Option<Until> {
    match ranked.get(ranked.partition_point(|(own, _)| *own < rank)) {
        Some((own, _)) if *own == rank => None,
        Some((_, group)) => Some(Until::Shown(*group)),
        None => Some(Until::End),
    }
}
