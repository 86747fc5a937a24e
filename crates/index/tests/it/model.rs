//! Both indexes against `BTreeMap`, one thread: random operations on a small space of keys, so that
//! leaves split, empty, are unlinked and serve again. Every observation must break when its keys
//! change, and hold when the observer follows its own inserts.

use std::collections::BTreeMap;

use crate::world::{Colliding, Observation, Points, SmallKey, scan, seed};
use contend_index::{Direction, HashIndex, Insert, Key, OrderedIndex};
use contend_machine::Native;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const SPACE: u64 = 160;
/// Observations that are kept.
const OBSERVED: usize = 8;

#[derive(Clone, Debug)]
enum Operation {
    /// By another transaction.
    Insert(u64),
    /// By the transaction that has made all observations.
    InsertOwn(u64),
    Remove(u64),
    RemoveWrong(u64),
    RemoveRange(u64, u64),
    Get(u64),
    GetMany(Vec<u64>),
    Scan {
        low: u64,
        high: u64,
        backward: bool,
        limit: usize,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0..SPACE;
    prop_oneof![
        6 => key().prop_map(Operation::Insert),
        4 => key().prop_map(Operation::InsertOwn),
        6 => key().prop_map(Operation::Remove),
        1 => key().prop_map(Operation::RemoveWrong),
        1 => (key(), 0..40u64).prop_map(|(low, width)| Operation::RemoveRange(low, low + width)),
        3 => key().prop_map(Operation::Get),
        1 => prop::collection::vec(key(), 0..50).prop_map(Operation::GetMany),
        3 => (key(), key(), any::<bool>(), 1..60usize)
            .prop_map(|(low, high, backward, limit)| Operation::Scan { low, high, backward, limit }),
    ]
}

struct Model<K, P> {
    index: P,
    expected: BTreeMap<K, u64>,
    observations: Vec<Observation<K>>,
    next_value: u64,
}

impl<K: Key, P: Points<K>> Model<K, P> {
    fn run(operations: &[Operation]) {
        let mut model = Model { index: P::empty(), expected: BTreeMap::new(), observations: Vec::new(), next_value: 1 };
        for operation in operations {
            model.apply(operation);
        }
        for i in 0..SPACE {
            let key = K::small(i, SPACE);
            assert_eq!(model.index.get(key).value, model.expected.get(&key).copied());
        }
        model.check_scan(K::MIN, K::MAX, Direction::Forward, usize::MAX);
        model.check_scan(K::MIN, K::MAX, Direction::Backward, usize::MAX);
    }

    fn apply(&mut self, operation: &Operation) {
        let key = |i: u64| K::small(i.min(SPACE - 1), SPACE);
        match operation {
            Operation::Insert(i) => self.insert(key(*i), false),
            Operation::InsertOwn(i) => self.insert(key(*i), true),
            Operation::Remove(i) => self.remove(key(*i)),
            Operation::RemoveWrong(i) => {
                let wrong = self.expected.get(&key(*i)).map_or(1, |value| value + 1);
                let before = self.index.get(key(*i));
                assert!(!self.index.remove(key(*i), wrong));
                assert!(before.leaf.version() == before.version, "nothing was removed, yet the version changed");
            }
            Operation::RemoveRange(low, high) => (*low..*high).for_each(|i| self.remove(key(i))),
            Operation::Get(i) => {
                self.observe(Observation::point(&self.index, key(*i)));
                assert_eq!(self.index.get(key(*i)).value, self.expected.get(&key(*i)).copied());
            }
            Operation::GetMany(many) => {
                let keys: Vec<K> = many.iter().map(|i| key(*i)).collect();
                let mut positions = 0..;
                self.index.get_many(&keys, |position, found| {
                    assert_eq!(Some(position), positions.next());
                    let alone = self.index.get(keys[position]);
                    assert_eq!(found.value, self.expected.get(&keys[position]).copied());
                    assert!(found.leaf == alone.leaf && found.version == alone.version);
                });
                assert_eq!(positions.next(), Some(keys.len()));
            }
            Operation::Scan { low, high, backward, limit } => {
                let direction = if *backward { Direction::Backward } else { Direction::Forward };
                self.check_scan(key(*low), key(*high), direction, *limit);
            }
        }
        self.check_observations();
    }

    fn insert(&mut self, key: K, own: bool) {
        let before = self.index.get(key);
        let value = self.next_value;
        self.next_value += 1;
        match self.index.insert(key, value) {
            Insert::Inserted(change) => {
                assert_eq!(self.expected.insert(key, value), None);
                assert!(change.leaf == before.leaf && change.before == before.version && change.after != change.before);
                let after = self.index.get(key);
                if P::ORDERED {
                    let place = (after.leaf, after.version);
                    assert!(place == (change.leaf, change.after) || Some(place) == change.split);
                    assert!(change.leaf.version() == change.after);
                }
                if own {
                    for observation in &mut self.observations {
                        observation.follow(key, &change);
                        assert!(!P::ORDERED || observation.holds(), "the observer's own insert broke it");
                    }
                }
            }
            Insert::Exists(found) => {
                assert_eq!(found.value, self.expected.get(&key).copied());
                assert!(found.leaf == before.leaf && found.version == before.version && before.value == found.value);
            }
        }
    }

    fn remove(&mut self, key: K) {
        match self.expected.remove(&key) {
            Some(value) => assert!(self.index.remove(key, value)),
            None => assert!(!self.index.remove(key, 1)),
        }
    }

    fn check_scan(&mut self, low: K, high: K, direction: Direction, limit: usize) {
        if !P::ORDERED {
            return;
        }
        let seen = scan(&self.index, low, high, direction, limit);
        let range = if low <= high { self.expected.range(low..=high) } else { self.expected.range(low..low) };
        let entries = range.map(|(key, value)| (*key, *value));
        let expected: Vec<(K, u64)> = match direction {
            Direction::Forward => entries.take(limit).collect(),
            Direction::Backward => entries.rev().take(limit).collect(),
        };
        assert_eq!(seen.entries, expected);
        assert_eq!(seen.leaves.is_empty(), low > high);
        assert!(seen.leaves.iter().all(|(leaf, version)| leaf.version() == *version));
        if low <= high {
            self.observe(Observation::range(&self.index, low, high, direction, limit));
        }
    }

    fn observe(&mut self, observation: Observation<K>) {
        if self.observations.len() == OBSERVED {
            self.observations.remove(0);
        }
        self.observations.push(observation);
    }

    /// An observation that holds still must be of what is there now.
    fn check_observations(&mut self) {
        self.observations.retain(Observation::holds);
        for observation in &self.observations {
            let now = self.expected.range(observation.low..=observation.high).map(|entry| *entry.0);
            assert!(now.eq(observation.keys.iter().copied()), "a phantom went unnoticed: {observation:?}");
        }
    }
}

fn check<K: Key, P: Points<K>>(cases: u32, length: usize) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let operations = prop::collection::vec(operation(), 1..length);
    let outcome = runner.run(&operations, |operations| {
        Model::<K, P>::run(&operations);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn hash_of_numbers() {
    check::<u64, HashIndex<Native, u64>>(400, 600);
}

#[test]
fn hash_with_long_chains() {
    check::<Colliding, HashIndex<Native, Colliding>>(200, 600);
}

#[test]
fn hash_of_16_bytes() {
    check::<[u8; 16], HashIndex<Native, [u8; 16]>>(240, 600);
}

#[test]
fn hash_of_32_bytes() {
    check::<[u8; 32], HashIndex<Native, [u8; 32]>>(240, 600);
}

#[test]
fn ordered_numbers_in_small_nodes() {
    check::<u64, OrderedIndex<Native, u64, 4, 4>>(600, 600);
}

#[test]
fn ordered_numbers_in_tiny_leaves() {
    check::<u64, OrderedIndex<Native, u64, 2, 4>>(400, 600);
}

#[test]
fn ordered_numbers() {
    check::<u64, OrderedIndex<Native, u64>>(240, 800);
}

#[test]
fn ordered_numbers_in_tiny_leaves_below_wide_nodes() {
    check::<u64, OrderedIndex<Native, u64, 2, 40>>(400, 1000);
}

#[test]
fn ordered_16_bytes_in_tiny_leaves_below_wide_nodes() {
    check::<[u8; 16], OrderedIndex<Native, [u8; 16], 2, 20>>(400, 1000);
}

#[test]
fn ordered_16_bytes_in_small_nodes() {
    check::<[u8; 16], OrderedIndex<Native, [u8; 16], 4, 5>>(400, 600);
}

#[test]
fn ordered_24_bytes_in_vector_nodes() {
    check::<[u8; 24], OrderedIndex<Native, [u8; 24], 8, 8>>(240, 600);
}

#[test]
fn ordered_32_bytes_in_small_nodes() {
    check::<[u8; 32], OrderedIndex<Native, [u8; 32], 3, 4>>(400, 600);
}
