//! Hints: changes of one transaction under which steps fall apart that had to be merged.
//!
//! Two kinds of change are tried, for each vertex with several pieces of one type:
//!
//! - an exchange of two neighbouring pieces that conflict with others, if the piece that moves
//!   shares no unit with those that it passes, and none of them may cancel. Pieces that conflict
//!   with nothing do not count as neighbours.
//! - a division of a piece into its accesses by table, in the order in which it accesses the tables
//!   first. The author or a loop made one piece of them.
//!
//! Each change is tried alone, by analysing the changed types. It becomes a hint only if the plan
//! is strictly finer: no two steps are united, and some step becomes several with ranks. Whether
//! one piece needs the results of another is not declared, so the author has to know it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::merge::{Pieces, Plan, under};
use crate::text::short_names;
use contend_model::pieces::{DeclaredPiece, TypeSet};

/// The most pieces and accesses of types for which hints are computed. Each change that is tried
/// takes time in proportion to them.
pub(crate) const SIZE_MAX: usize = 2_000;
/// The most changes that are tried.
pub(crate) const TRIED_MAX: usize = 500;

/// A change of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The piece goes before an earlier one.
    Before {
        /// The piece that moves, by its position.
        piece: usize,
        /// The piece that it goes before.
        other: usize,
    },
    /// The piece goes behind a later one.
    Behind {
        /// The piece that moves, by its position.
        piece: usize,
        /// The piece that it goes behind.
        other: usize,
    },
    /// The piece is divided into its accesses by table.
    Divide {
        /// The piece, by its position.
        piece: usize,
    },
}

/// A change under which steps fall apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// The type that changes, by its position.
    pub of: usize,
    /// The change.
    pub change: Change,
    /// What to do and what falls apart, in sentences.
    pub text: String,
}

/// All hints for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hints {
    /// The hints: those that give the most steps with ranks come first, others in the order of
    /// steps.
    pub hints: Vec<Hint>,
    /// Why there may be more, in a sentence.
    pub incomplete: Option<String>,
}

impl Hints {
    /// Looks for hints. `types` is what the plan was made of.
    pub fn new(types: &TypeSet, plan: &Plan) -> Hints {
        let size = types.types.iter().map(|of| of.pieces.len()).sum::<usize>() + types.accesses().count();
        if size > SIZE_MAX {
            let why = format!("there are none for {size} pieces and accesses; valid: up to {SIZE_MAX}");
            return Hints { hints: Vec::new(), incomplete: Some(why) };
        }
        let changes = changes(types, plan);
        let incomplete = (changes.len() > TRIED_MAX)
            .then(|| format!("the first {TRIED_MAX} of {} changes were tried, the others were not", changes.len()));
        let hint = |&(of, change): &(usize, Change)| {
            let (changed, origins) = change.apply(types, of);
            let finer = Plan::new(&changed, plan.options).ok()?;
            let apart = fallen_apart(plan, &finer, of, &origins)?;
            let text =
                format!("{} {}", change.describe(types, of), describe_apart(types, plan, &changed, &finer, &apart));
            let gained: usize = apart.iter().map(|(_, new)| new.len()).sum();
            Some((std::cmp::Reverse(gained - apart.len()), Hint { of, change, text }))
        };
        let mut hints: Vec<_> = changes.iter().take(TRIED_MAX).filter_map(hint).collect();
        hints.sort_by_key(|(gained, _)| *gained);
        Hints { hints: hints.into_iter().map(|(_, hint)| hint).collect(), incomplete }
    }
}

impl Change {
    /// Returns the types with this change of one of them, and for each of its pieces the position
    /// that it had before.
    pub fn apply(self, types: &TypeSet, of: usize) -> (TypeSet, Vec<usize>) {
        let mut changed = types.clone();
        let pieces = &mut changed.types[of].pieces;
        let mut origins: Vec<usize> = (0..pieces.len()).collect();
        match self {
            Change::Before { piece, other } => {
                pieces[other..=piece].rotate_right(1);
                origins[other..=piece].rotate_right(1);
            }
            Change::Behind { piece, other } => {
                pieces[piece..=other].rotate_left(1);
                origins[piece..=other].rotate_left(1);
            }
            Change::Divide { piece } => {
                let parts = divided(types, &types.types[of].pieces[piece]);
                origins.splice(piece..=piece, vec![piece; parts.len()]);
                pieces.splice(piece..=piece, parts);
            }
        }
        (changed, origins)
    }

    /// Returns what to do, in a sentence.
    fn describe(self, types: &TypeSet, of: usize) -> String {
        let declared = &types.types[of];
        let (of, name) = (&declared.name, |piece: usize| &declared.pieces[piece].name);
        match self {
            Change::Before { piece, other } => {
                format!("{of}: do {} before {}, if it needs nothing of what it passes.", name(piece), name(other))
            }
            Change::Behind { piece, other } => {
                format!("{of}: do {} after {}, if nothing that it passes needs it.", name(piece), name(other))
            }
            Change::Divide { piece } => {
                let parts = divided(types, &declared.pieces[piece]);
                let parts: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                format!(
                    "{of}: divide {} by tables into {}, if they can follow each other.",
                    name(piece),
                    parts.join(", ")
                )
            }
        }
    }
}

/// Returns a piece's accesses as pieces by table. The first may cancel if the piece may.
fn divided(types: &TypeSet, piece: &DeclaredPiece) -> Vec<DeclaredPiece> {
    let mut parts: Vec<DeclaredPiece> = Vec::new();
    let mut part_of = BTreeMap::new();
    for access in &piece.accesses {
        let part = *part_of.entry(access.table).or_insert_with(|| {
            parts.push(DeclaredPiece::new(&format!("{}.{}", piece.name, types.tables[access.table].name)));
            parts.len() - 1
        });
        parts[part].accesses.push(*access);
    }
    if let Some(first) = parts.first_mut() {
        first.cancels = piece.cancels;
    }
    parts
}

/// Returns the changes to try.
fn changes(types: &TypeSet, plan: &Plan) -> Vec<(usize, Change)> {
    let under = under(types, plan.options);
    let pieces = Pieces::new(&under, plan.options);
    let units = Units::new(&under, &pieces);
    let has_several = |&(of, group): &(usize, usize)| {
        let group = &plan.types[of].groups[group];
        group.first < group.last
    };
    let mut changes = Vec::new();
    for vertex in plan.vertices.iter().filter(|vertex| vertex.groups.iter().any(has_several)) {
        for &(of, group) in &vertex.groups {
            let group = &plan.types[of].groups[group];
            let tracked: Vec<usize> = (group.first..=group.last).filter(|piece| units.conflicts(of, *piece)).collect();
            for pair in tracked.windows(2) {
                changes.extend(units.exchange(types, of, pair[0], pair[1]).map(|change| (of, change)));
            }
            for piece in tracked {
                let tables = types.types[of].pieces[piece].accesses.iter().map(|access| access.table);
                if tables.collect::<BTreeSet<_>>().len() > 1 {
                    changes.push((of, Change::Divide { piece }));
                }
            }
        }
    }
    changes
}

/// The units of each piece, contended or not.
struct Units {
    all: BTreeMap<(usize, usize), BTreeSet<(usize, usize)>>,
    conflicting: BTreeSet<(usize, usize)>,
}

impl Units {
    fn new(types: &TypeSet, pieces: &Pieces) -> Units {
        let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (piece, access) in types.accesses() {
            let cells = types.groups_of(access).into_iter().map(|cell| (access.table, cell));
            all.entry(piece).or_default().extend(cells);
        }
        let conflicting = pieces.of.iter().zip(&pieces.contended).filter(|(_, units)| !units.is_empty());
        Units { all, conflicting: conflicting.map(|(piece, _)| *piece).collect() }
    }

    fn conflicts(&self, of: usize, piece: usize) -> bool {
        self.conflicting.contains(&(of, piece))
    }

    /// Whether two pieces of a type share a unit.
    fn meet(&self, of: usize, one: usize, other: usize) -> bool {
        match (self.all.get(&(of, one)), self.all.get(&(of, other))) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => false,
        }
    }

    /// Returns how two pieces of a type can be exchanged, if they can.
    fn exchange(&self, types: &TypeSet, of: usize, first: usize, last: usize) -> Option<Change> {
        let cancels = types.types[of].pieces[first..=last].iter().any(|piece| piece.cancels);
        if cancels {
            None
        } else if (first..last).all(|passed| !self.meet(of, last, passed)) {
            Some(Change::Before { piece: last, other: first })
        } else if (first + 1..=last).all(|passed| !self.meet(of, first, passed)) {
            Some(Change::Behind { piece: first, other: last })
        } else {
            None
        }
    }
}

/// Returns the old vertices that are several vertices with ranks in the new plan, each with the
/// new ones. `None`: there is none.
///
/// No change unites old vertices. It adds an edge between pieces of one old vertex only, and these
/// reached each other before.
fn fallen_apart(old: &Plan, new: &Plan, changed: usize, origins: &[usize]) -> Option<Vec<(usize, Vec<usize>)>> {
    let mut ranked: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, vertex) in new.vertices.iter().enumerate() {
        let mut from = BTreeSet::new();
        for &(of, group) in &vertex.groups {
            let group = &new.types[of].groups[group];
            let origin = |piece: usize| if of == changed { origins[piece] } else { piece };
            for piece in (group.first..=group.last).map(origin) {
                from.insert(old.types[of].groups[old.types[of].group_of(piece)].vertex?);
            }
        }
        let mut from = from.into_iter();
        let origin = from.next()?;
        debug_assert_eq!(from.next(), None, "a change of one vertex has united it with another");
        if vertex.rank.is_some() {
            ranked.entry(origin).or_default().push(number);
        }
    }
    let apart: Vec<_> = ranked.into_iter().filter(|(_, new)| new.len() > 1).collect();
    (!apart.is_empty()).then_some(apart)
}

/// Returns what falls apart, in a sentence.
fn describe_apart(
    types: &TypeSet,
    plan: &Plan,
    changed: &TypeSet,
    finer: &Plan,
    apart: &[(usize, Vec<usize>)],
) -> String {
    const TOLD_MAX: usize = 4;
    let mut told = Vec::new();
    for (old, new) in apart {
        for &(of, group) in &plan.vertices[*old].groups {
            let groups = &finer.types[of].groups;
            let parts: Vec<String> = groups
                .iter()
                .filter(|group| group.vertex.is_some_and(|vertex| new.contains(&vertex)))
                .map(|group| short_names(changed, of, group))
                .collect();
            if parts.len() > 1 {
                let was = short_names(types, of, &plan.types[of].groups[group]);
                told.push(format!("{}.{was} becomes {}", types.types[of].name, parts.join(" | ")));
            }
        }
    }
    let more = told.len().saturating_sub(TOLD_MAX);
    told.truncate(TOLD_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("Then {}{more}", told.join("; "))
}
