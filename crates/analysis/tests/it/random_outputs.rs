//! Properties of waits and hints for random types.

use std::collections::BTreeSet;

use contend_analysis::{Change, Hints, Plan, TypeSet, Until, Wait};
use contend_model::pieces::Mode;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::random::{CELLS, accessors, drawn, options, set_of, vertex_of};

/// Returns the units of a piece, as they are under the options.
fn units(set: &TypeSet, plan: &Plan, of: usize, piece: usize) -> BTreeSet<(usize, usize)> {
    let accesses = &set.types[of].pieces[piece].accesses;
    let cells = accesses.iter().flat_map(|access| {
        let whole = matches!(access.mode, Mode::Insert | Mode::Delete);
        let cells = if whole { (0..CELLS).collect() } else { access.groups.into_iter().collect::<Vec<_>>() };
        cells.into_iter().map(|cell| (access.table, if plan.options.split { cell } else { 0 }))
    });
    cells.collect()
}

/// Returns the number of steps with ranks under `new` if no two old steps are united in it.
/// `origin` gives the old position of each piece.
fn ranked_if_finer(old: &Plan, new: &Plan, changed: &TypeSet, origin: impl Fn(usize, usize) -> usize) -> Option<usize> {
    let mut from = vec![BTreeSet::new(); new.vertices.len()];
    for (of, declared) in changed.types.iter().enumerate() {
        for piece in 0..declared.pieces.len() {
            from[vertex_of(new, of, piece)].insert(vertex_of(old, of, origin(of, piece)));
        }
    }
    from.iter().all(|from| from.len() == 1).then(|| ranked(new))
}

fn ranked(plan: &Plan) -> usize {
    plan.vertices.iter().filter(|vertex| vertex.rank.is_some()).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Waits agree with a search over all pieces of all pairs of types.
    #[test]
    fn waits_are_those_of_the_rank_rule(drawn in drawn(), options in options()) {
        let set = set_of(&drawn);
        let plan = Plan::new(&set, options).expect("valid");
        let accessors = accessors(&set, &plan);
        let rank_of = |of: usize, piece: usize| plan.vertices[vertex_of(&plan, of, piece)].rank;
        let (mut expected, mut partners) = (Vec::new(), 0);
        for of in 0..set.types.len() {
            for after in 0..set.types.len() {
                // The ranks at which an instance of each can conflict with one of the other.
                let pairs = accessors.values().flat_map(|all| all.iter().flat_map(|a| all.iter().map(move |b| (a, b))));
                let conflicts = pairs.filter(|(a, b)| (a.0, b.0) == (of, after) && (a.2 || b.2));
                let Some(first) = conflicts.map(|(a, _)| rank_of(a.0, a.1).expect("it conflicts")).min() else { continue };
                for (number, group) in plan.types[of].groups.iter().enumerate() {
                    let Some(rank) = group.rank.filter(|rank| *rank > first) else { continue };
                    let pieces = (0..set.types[after].pieces.len()).filter_map(|piece| Some((rank_of(after, piece)?, piece)));
                    let until = match pieces.filter(|(other, _)| *other >= rank).min() {
                        Some((other, _)) if other == rank => { partners += 1; continue }
                        Some((_, piece)) => Until::Shown(plan.types[after].group_of(piece)),
                        None => Until::End,
                    };
                    expected.push(Wait { step: (of, number), after, until });
                }
            }
        }
        let waits = plan.waits(&set, &plan.conflicts(&set)).expect("small");
        prop_assert_eq!(waits.beyond_partners, expected);
        prop_assert_eq!(waits.until_partners, partners);
    }

    /// Each hint gives a strictly finer plan, and moves a piece only past pieces that it shares no
    /// unit with. Each exchange of two neighbours that does so is a hint.
    #[test]
    fn hints_are_true(drawn in drawn(), options in options()) {
        let set = set_of(&drawn);
        let plan = Plan::new(&set, options).expect("valid");
        let Hints { hints, incomplete } = Hints::new(&set, &plan);
        prop_assert_eq!(incomplete, None);
        for hint in &hints {
            let (changed, origins) = hint.change.apply(&set, hint.of);
            let finer = Plan::new(&changed, options).expect("valid");
            let count = ranked_if_finer(&plan, &finer, &changed, |of, piece| {
                if of == hint.of { origins[piece] } else { piece }
            });
            prop_assert!(count.is_some_and(|count| count > ranked(&plan)), "{:?}", hint);
            let passed = match hint.change {
                Change::Before { piece, other } => Some((piece, other..=piece - 1)),
                Change::Behind { piece, other } => Some((piece, piece + 1..=other)),
                Change::Divide { .. } => None,
            };
            if let Some((piece, passed)) = passed {
                let own = units(&set, &plan, hint.of, piece);
                let mut passed = passed.map(|other| units(&set, &plan, hint.of, other));
                prop_assert!(passed.all(|other| own.is_disjoint(&other)), "{:?}", hint);
            }
        }
        for of in 0..set.types.len() {
            for first in 1..set.types[of].pieces.len() {
                let (one, other) = (units(&set, &plan, of, first - 1), units(&set, &plan, of, first));
                let mut changed = set.clone();
                changed.types[of].pieces.swap(first - 1, first);
                let swapped = Plan::new(&changed, options).expect("valid");
                let origin = |own: usize, piece: usize| match piece {
                    piece if own == of && piece == first => first - 1,
                    piece if own == of && piece == first - 1 => first,
                    piece => piece,
                };
                let count = ranked_if_finer(&plan, &swapped, &changed, origin);
                if one.is_disjoint(&other) && count.is_some_and(|count| count > ranked(&plan)) {
                    let change = Change::Before { piece: first, other: first - 1 };
                    prop_assert!(hints.iter().any(|hint| (hint.of, hint.change) == (of, change)), "{:?}", (of, first));
                }
            }
        }
    }
}

/// The random types have hints and waits of each kind. Otherwise the properties would say nothing.
#[test]
fn random_types_have_hints_and_waits() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = [0; 5];
    for _ in 0..2000 {
        let set = set_of(&drawn().new_tree(&mut runner).expect("drawn").current());
        let plan = Plan::new(&set, contend_analysis::AnalysisOptions::default()).expect("valid");
        for hint in Hints::new(&set, &plan).hints {
            seen[usize::from(matches!(hint.change, Change::Divide { .. }))] += 1;
        }
        let waits = plan.waits(&set, &plan.conflicts(&set)).expect("small");
        for wait in waits.beyond_partners {
            seen[2 + usize::from(wait.until == Until::End)] += 1;
        }
        seen[4] += waits.until_partners;
    }
    assert!(seen.iter().all(|count| *count >= 5), "{seen:?}");
}
