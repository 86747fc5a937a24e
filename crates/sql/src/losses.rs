//! What a database has acknowledged and does not have: writes that are neither the last version of
//! their row nor replaced by another.

use std::collections::{BTreeMap, BTreeSet};

use contend_workloads::file::view::Relation;

use crate::record::{Operation, Recorded, name_of, transaction_of};
use crate::result::Losses;

/// The mark of each row at the end, by its table and key.
pub(crate) type LastRows = BTreeMap<(usize, Vec<i64>), u64>;

/// The most sentences about losses.
const SENTENCES_MAX: usize = 5;

/// Returns the marks that an operation has seen.
fn seen(operation: &Operation) -> Vec<u64> {
    match operation {
        Operation::Read { seen, .. } => seen.iter().copied().collect(),
        Operation::Write { over, .. } => over.iter().copied().collect(),
        Operation::Scan { seen, .. } => seen.iter().map(|(_, mark)| *mark).collect(),
    }
}

/// Adds the transactions whose end is unknown and whose writes somebody has seen: they were
/// committed.
pub(crate) fn add_seen(committed: &mut Vec<Recorded>, mut unknown: Vec<Recorded>, last: &LastRows) {
    let all = committed.iter().flat_map(|of| &of.operations).flat_map(seen).chain(last.values().copied());
    let mut numbers: BTreeSet<u64> = all.map(transaction_of).collect();
    while let Some(place) = unknown.iter().position(|of| numbers.contains(&of.number)) {
        let of = unknown.swap_remove(place);
        numbers.extend(of.operations.iter().flat_map(seen).map(transaction_of));
        committed.push(of);
    }
}

/// Finds what is lost.
pub(crate) fn losses(relations: &[Relation], committed: &[Recorded], last: &LastRows) -> Losses {
    let mut replaced: BTreeSet<(usize, &[i64], u64)> = BTreeSet::new();
    let numbers: BTreeSet<u64> = committed.iter().map(|of| of.number).collect();
    let all = || committed.iter().flat_map(|of| of.operations.iter().map(|operation| (of.number, operation)));
    for (_, operation) in all() {
        if let Operation::Write { table, key, over: Some(over), .. } = operation {
            replaced.insert((*table, key, *over));
        }
    }
    let mut losses = Losses::default();
    let mut add = |number: u64, table: usize, key: &[i64], what: &str| {
        losses.count += 1;
        if losses.examples.len() < SENTENCES_MAX {
            let (name, key) = (&relations[table].name, name_of(key));
            losses.examples.push(format!("transaction {number} {what} {name} {key}"));
        }
    };
    for (number, operation) in all() {
        let Operation::Write { table, key, over, left } = operation else { continue };
        let is_last = |mark: &u64| last.get(&(*table, key.clone())) == Some(mark);
        match (over, left) {
            (_, Some(left)) if !is_last(left) && !replaced.contains(&(*table, key, *left)) => {
                add(number, *table, key, "was committed, and its write is lost:");
            }
            (Some(over), None) if is_last(over) => {
                add(number, *table, key, "was committed, and its delete is lost:");
            }
            _ => {}
        }
    }
    for ((table, key), mark) in last {
        let number = transaction_of(*mark);
        if number != 0 && !numbers.contains(&number) {
            add(number, *table, key, "was not committed, and its write is there:");
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::WRITES;

    const KEY: [i64; 1] = [7];

    fn write(number: u64, over: Option<u64>, left: Option<u64>) -> Recorded {
        let mark = |number: u64| number * WRITES;
        let operation = Operation::Write { table: 0, key: KEY.into(), over: over.map(mark), left: left.map(mark) };
        Recorded { number, worker: 0, operations: vec![operation] }
    }

    fn found(committed: &[Recorded], last: Option<u64>) -> Vec<String> {
        let relation = Relation { name: "t".into(), columns: Vec::new(), key: vec![0], indexes: Vec::new(), rows: 1 };
        let last = last.map(|number| ((0, KEY.to_vec()), number * WRITES)).into_iter().collect();
        losses(&[relation], committed, &last).examples
    }

    #[test]
    fn writes_that_are_last_or_replaced_are_there() {
        let chain = [write(1, Some(0), Some(1)), write(2, Some(1), Some(2)), write(3, Some(2), None)];
        assert!(found(&chain[..2], Some(2)).is_empty());
        assert!(found(&chain, None).is_empty());
        assert!(found(&[], Some(0)).is_empty(), "a loaded row");
    }

    #[test]
    fn each_kind_of_loss_is_found() {
        let chain = [write(1, Some(0), Some(1)), write(2, Some(1), Some(2)), write(3, Some(2), None)];
        assert_eq!(found(&chain[..2], Some(1)), ["transaction 2 was committed, and its write is lost: t 7"]);
        assert_eq!(found(&chain[..1], None), ["transaction 1 was committed, and its write is lost: t 7"]);
        assert_eq!(found(&chain, Some(2)), ["transaction 3 was committed, and its delete is lost: t 7"]);
        assert_eq!(found(&chain[..1], Some(9)).len(), 2, "the write is lost, and a stranger's is there");
        // Two writers that replace one version: the first is lost.
        let fork = [write(1, Some(0), Some(1)), write(2, Some(0), Some(2))];
        assert_eq!(found(&fork, Some(2)), ["transaction 1 was committed, and its write is lost: t 7"]);
    }

    #[test]
    fn an_unknown_end_is_a_commit_if_it_was_seen() {
        let unknown = || vec![write(2, Some(1), Some(2)), write(1, Some(0), Some(1)), write(5, Some(1), Some(5))];
        let number = |of: Vec<Recorded>| of.iter().map(|of| of.number).collect::<Vec<_>>();
        let mut committed = Vec::new();
        let last: LastRows = [((0, KEY.to_vec()), 2 * WRITES)].into();
        add_seen(&mut committed, unknown(), &last);
        assert_eq!(number(committed), [2, 1], "the last version, and the one that it has replaced");
        let mut committed = vec![write(3, Some(1), Some(3))];
        add_seen(&mut committed, unknown(), &LastRows::new());
        assert_eq!(number(committed), [3, 1]);
    }
}
