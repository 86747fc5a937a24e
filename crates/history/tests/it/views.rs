//! Random transactions that read what others committed, with and without a monotonic atomic view:
//! the checker must agree with the definition of OTV, read word for word.

use std::collections::BTreeMap;

use crate::support::*;
use contend_history::{Applied, Class, History, Isolation, Op, State, check};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Transactions in the order of their commits. Each reads committed states, and with `is_atomic`
/// none from before a transaction that it has seen, as in section 5.1.2 of "Highly available
/// transactions: virtues and limitations".
fn run(seed: u64, is_atomic: bool) -> History {
    let mut random = SmallRng::seed_from_u64(seed);
    let keys = random.random_range(2..5_u64);
    // By key: its states, the oldest first.
    let mut states: Vec<Vec<State>> = vec![vec![State::Version(0)]; keys as usize];
    let mut transactions = Vec::new();
    for txn in 1..=random.random_range(3..8_u64) {
        let (mut acts, mut written) = (Vec::new(), BTreeMap::new());
        let mut least = vec![0; keys as usize];
        for _ in 0..random.random_range(1..6) {
            let key = random.random_range(0..keys);
            if written.contains_key(&key) {
                continue;
            }
            let of_key = &states[key as usize];
            if random.random_bool(0.4) {
                let over = *of_key.last().expect("each key has a first state");
                let delete = !over.is_absent() && random.random_bool(0.3);
                acts.push(Act::Write { key: name(key), over, delete, applied: Applied::InOrder, value: None });
                written.insert(key, if delete { State::DeletedBy(txn) } else { State::Version(txn) });
            } else {
                let from = if is_atomic { least[key as usize] } else { 0 };
                let seen = of_key[random.random_range(from..of_key.len())];
                acts.push(Act::Read { key: name(key), seen, value: None });
                for (of_key, least) in states.iter().zip(&mut least) {
                    let place = of_key.iter().rposition(|state| writer(*state) == writer(seen));
                    *least = place.unwrap_or(0).max(*least);
                }
            }
        }
        written.into_iter().for_each(|(key, state)| states[key as usize].push(state));
        transactions.push((txn, acts));
    }
    history(&transactions)
}

fn name(key: u64) -> String {
    key.to_string()
}

/// The transaction that left the state.
fn writer(state: State) -> u64 {
    match state {
        State::Version(writer) | State::DeletedBy(writer) => writer,
        _ => 0,
    }
}

/// The definition: a transaction reads what `observed` wrote, and later reads a state from before
/// another write of `observed`. Of [`run`]'s transactions the numbers are the order of versions.
fn vanishes(history: &History) -> bool {
    history.transactions().iter().any(|reader| {
        let reads = reader.ops.iter().enumerate().filter_map(|(place, op)| match op {
            Op::Read { item, seen, .. } => Some((place, *item, writer(*seen))),
            _ => None,
        });
        let reads: Vec<_> = reads.collect();
        let wrote = |observed: u64, key| {
            let of = history.transactions().iter().find(|other| other.txn == observed);
            of.is_some_and(|of| of.ops.iter().any(|op| matches!(op, Op::Write { item, .. } if *item == key)))
        };
        reads.iter().any(|&(first, _, observed)| {
            reads.iter().any(|&(later, item, seen)| later > first && seen < observed && wrote(observed, item))
        })
    })
}

#[test]
fn the_checker_agrees_with_the_definition_of_otv() {
    let mut count = 0;
    for seed in 0..4000 {
        let history = run(seed, false);
        let report = check(&history);
        let found = report.anomalies.iter().any(|anomaly| anomaly.class == Class::Otv);
        assert_eq!(report.violates(Isolation::ReadCommitted), None, "seed {seed}: {report}");
        assert_eq!(found, vanishes(&history), "seed {seed}: {report}");
        count += usize::from(found);
    }
    assert!((500..3500).contains(&count), "{count} of 4000 histories have an OTV");
}

#[test]
fn a_monotonic_atomic_view_keeps_its_promise_and_no_more() {
    let mut skews = 0;
    for seed in 0..4000 {
        let history = run(seed, true);
        let report = check(&history);
        assert_eq!(report.violates(Isolation::MonotonicAtomicView), None, "seed {seed}: {report}");
        skews += usize::from(report.violates(Isolation::Snapshot).is_some());
    }
    assert!(skews > 100, "{skews} of 4000 histories have a read skew");
}
