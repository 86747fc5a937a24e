//! Properties of plans and choppings of random types.

use std::collections::{BTreeMap, BTreeSet};

use contend_analysis::{AnalysisOptions, Chopping, Class, Plan};
use contend_model::Groups;
use contend_model::pieces::{DeclaredPiece, Mode, TypeSet};
use proptest::prelude::*;

/// An access, drawn: a table, a cell and a mode.
pub(crate) type Drawn = (usize, usize, usize);

pub(crate) const TABLES: usize = 4;
pub(crate) const CELLS: usize = 2;

fn mode(number: usize) -> Mode {
    // Settled reads are refused on most random types, and the examples have them.
    [Mode::Read, Mode::Write, Mode::Update, Mode::Insert, Mode::Delete][number % 5]
}

pub(crate) fn set_of(drawn: &[Vec<Vec<Drawn>>]) -> TypeSet {
    let mut set = TypeSet::default();
    (0..TABLES).for_each(|table| _ = set.table(&format!("t{table}"), CELLS));
    for (number, pieces) in drawn.iter().enumerate() {
        let piece = |(position, accesses): (usize, &Vec<Drawn>)| {
            accesses.iter().fold(DeclaredPiece::new(&format!("p{position}")), |piece, &(table, cell, drawn)| {
                piece.access(mode(drawn), table, Groups::of(cell as u32))
            })
        };
        set.add(&format!("T{number}"), pieces.iter().enumerate().map(piece));
    }
    set
}

pub(crate) fn drawn() -> impl Strategy<Value = Vec<Vec<Vec<Drawn>>>> {
    let access = (0..TABLES, 0..CELLS, 0..5_usize);
    let piece = prop::collection::vec(access, 0..3);
    prop::collection::vec(prop::collection::vec(piece, 1..5), 1..5)
}

pub(crate) fn options() -> impl Strategy<Value = AnalysisOptions> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(split, updates, appends)| AnalysisOptions {
        split,
        updates,
        snapshots: true,
        appends,
    })
}

/// The accessors of each contended unit: the type, the piece, and whether it changes the unit.
pub(crate) type Accessors = BTreeMap<(usize, usize), Vec<(usize, usize, bool)>>;

/// Returns for each contended unit its accessors, each with whether it changes the unit. The plan
/// says which units are contended; the rest is computed from the declarations alone.
pub(crate) fn accessors(set: &TypeSet, plan: &Plan) -> Accessors {
    let contended = |table, cell| {
        plan.units.iter().any(|unit| (unit.table, unit.cell, unit.class) == (table, cell, Class::Contended))
    };
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (of, declared) in set.types.iter().enumerate() {
        for (piece, declared) in declared.pieces.iter().enumerate() {
            for access in &declared.accesses {
                let whole = matches!(access.mode, Mode::Insert | Mode::Delete);
                let cells = if whole { (0..CELLS).collect() } else { access.groups.into_iter().collect::<Vec<_>>() };
                for cell in cells.into_iter().map(|cell| if plan.options.split { cell } else { 0 }) {
                    if contended(access.table, cell) {
                        let of = (of, piece, access.mode.changes());
                        all.entry((access.table, cell)).or_default().push(of);
                    }
                }
            }
        }
    }
    all
}

pub(crate) fn vertex_of(plan: &Plan, of: usize, piece: usize) -> usize {
    let groups = &plan.types[of].groups;
    groups[plan.types[of].group_of(piece)].vertex.expect("no type is on a snapshot")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Accessors of a contended unit are one step, the ranks of a type grow, and its groups are
    /// its pieces, in their order.
    #[test]
    fn ranks_order_all_conflicts(drawn in drawn(), options in options()) {
        let set = set_of(&drawn);
        let plan = Plan::new(&set, options).expect("valid");
        for accessors in accessors(&set, &plan).values() {
            let vertices: BTreeSet<usize> =
                accessors.iter().map(|(of, piece, _)| vertex_of(&plan, *of, *piece)).collect();
            prop_assert_eq!(vertices.len(), 1);
            prop_assert!(plan.vertices[*vertices.first().expect("one")].rank.is_some());
        }
        for (of, planned) in plan.types.iter().enumerate() {
            let ranks: Vec<u32> = planned.groups.iter().filter_map(|group| group.rank).collect();
            prop_assert!(ranks.is_sorted_by(|a, b| a < b), "{:?}", ranks);
            let pieces: Vec<usize> = planned.groups.iter().flat_map(|group| group.first..=group.last).collect();
            prop_assert_eq!(pieces, (0..set.types[of].pieces.len()).collect::<Vec<_>>());
        }
    }

    /// No vertex can be divided: whatever part of its pieces came first, a unit or a chain of
    /// pieces would lead back into it.
    #[test]
    fn vertices_are_the_finest(drawn in drawn(), options in options()) {
        let set = set_of(&drawn);
        let plan = Plan::new(&set, options).expect("valid");
        let pieces: Vec<(usize, usize)> =
            set.types.iter().enumerate().flat_map(|(of, declared)| (0..declared.pieces.len()).map(move |p| (of, p))).collect();
        // What must not come later than a piece: the accessors of its contended units, and its
        // successors lead on to what must not come earlier.
        let reaches = |from: (usize, usize)| {
            let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
            let accessors = accessors(&set, &plan);
            while let Some((of, piece)) = open.pop() {
                let next = (piece + 1 < set.types[of].pieces.len()).then_some((of, piece + 1));
                let same = accessors.values().filter(|all| all.iter().any(|one| (one.0, one.1) == (of, piece)));
                let same = same.flatten().map(|one| (one.0, one.1));
                for other in next.into_iter().chain(same) {
                    if seen.insert(other) {
                        open.push(other);
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<_, _> = pieces.iter().map(|piece| (*piece, reaches(*piece))).collect();
        for a in &pieces {
            for b in &pieces {
                let must_be_one = reached[a].contains(b) && reached[b].contains(a);
                let are_one = vertex_of(&plan, a.0, a.1) == vertex_of(&plan, b.0, b.1);
                prop_assert_eq!(must_be_one, are_one, "{:?} and {:?}", a, b);
            }
        }
    }

    /// A declaration more never takes two pieces apart that were one step.
    #[test]
    fn declaring_more_never_separates(drawn in drawn(), options in options(), more in (0..4_usize, 0..4_usize, 0..TABLES, 0..CELLS, 0..5_usize)) {
        let set = set_of(&drawn);
        let before = Plan::new(&set, options).expect("valid");
        let (of, piece, table, cell, drawn) = more;
        let mut larger = set.clone();
        let of = of % larger.types.len();
        let piece = piece % larger.types[of].pieces.len();
        let declared = larger.types[of].pieces[piece].clone();
        larger.types[of].pieces[piece] = declared.access(mode(drawn), table, Groups::of(cell as u32));
        let after = Plan::new(&larger, options).expect("valid");
        for vertex in &before.vertices {
            let now: BTreeSet<usize> = vertex.groups.iter().flat_map(|&(of, group)| {
                let group = before.types[of].groups[group];
                (group.first..=group.last).map(move |piece| (of, piece))
            }).map(|(of, piece)| vertex_of(&after, of, piece)).collect();
            prop_assert_eq!(now.len(), 1);
        }
    }

    /// The chopping is what a search for cycles with S-edges and C-edges finds.
    #[test]
    fn choppings_have_no_mixed_cycle_and_are_the_finest(drawn in drawn(), options in options()) {
        let set = set_of(&drawn);
        let plan = Plan::new(&set, options).expect("valid");
        let accessors = accessors(&set, &plan);
        let conflict = |a: (usize, usize), b: (usize, usize)| {
            accessors.values().any(|all| {
                let of = |piece: (usize, usize)| all.iter().filter(move |one| (one.0, one.1) == piece);
                of(a).any(|one| of(b).any(|other| one.2 || other.2))
            })
        };
        let chopping = Chopping::new(&set, options).expect("valid");
        for (of, chopped) in chopping.types.iter().enumerate() {
            let own = set.types[of].pieces.len();
            // The pieces of all instances but the first of this type.
            let others: Vec<(usize, usize, usize)> = (0..set.types.len())
                .flat_map(|of| (0..2).map(move |copy| (of, copy)))
                .filter(|instance| *instance != (of, 0))
                .flat_map(|(of, copy)| (0..set.types[of].pieces.len()).map(move |piece| (of, copy, piece)))
                .collect();
            let is_joined = |a: &(usize, usize, usize), b: &(usize, usize, usize)| {
                if (a.0, a.1) == (b.0, b.1) { true } else { conflict((a.0, a.2), (b.0, b.2)) }
            };
            let reach = |from: usize| {
                let begins = others.iter().filter(|other| conflict((of, from), (other.0, other.2)));
                let mut open: Vec<_> = begins.copied().collect();
                let mut seen: BTreeSet<_> = open.iter().copied().collect();
                while let Some(piece) = open.pop() {
                    for other in others.iter().filter(|other| is_joined(&piece, other)) {
                        if seen.insert(*other) {
                            open.push(*other);
                        }
                    }
                }
                (0..own).filter(|to| seen.iter().any(|piece| conflict((of, *to), (piece.0, piece.2)))).collect::<Vec<_>>()
            };
            // Pieces of one interval are one: what is between two of them is joined to both by
            // S-edges of the united piece.
            let mut expected: Vec<(usize, usize)> = (0..own).map(|piece| (piece, piece)).collect();
            for from in 0..own {
                for to in reach(from).into_iter().filter(|to| *to > from) {
                    let (first, last) = (
                        expected.iter().position(|part| part.1 >= from).expect("a part"),
                        expected.iter().position(|part| part.1 >= to).expect("a part"),
                    );
                    let united = (expected[first].0, expected[last].1);
                    expected.splice(first..=last, [united]);
                }
            }
            prop_assert_eq!(&chopped.parts, &expected);
        }
    }
}
