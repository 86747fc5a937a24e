//! Both indexes under threads. Each thread owns the keys of one residue and knows what it must find
//! there, whatever the others do to the nodes that they share.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{Colliding, Observation, Points, SmallKey, scan, seed};
use contend_index::{Direction, HashIndex, Insert, Key, OrderedIndex};
use contend_machine::Native;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const THREADS: u64 = 3;

/// A thread's part of the keys.
struct Own<'a, K, P> {
    index: &'a P,
    residue: u64,
    space: u64,
    expected: BTreeMap<K, u64>,
    rng: SmallRng,
    next_value: u64,
}

impl<K: Key, P: Points<K>> Own<'_, K, P> {
    fn run(&mut self, operations: usize) {
        // Phases of growing and of shrinking, so that nodes come and go.
        for operation in 0..operations {
            let growing = operation / 2000 % 2 == 0;
            let key = self.random_key();
            match self.rng.random_range(0..20) {
                0..8 if growing => self.insert(key),
                0..3 => self.insert(key),
                3..12 => self.remove(key),
                12..16 => assert_eq!(self.index.get(key).value, self.expected.get(&key).copied()),
                16 => self.get_many(),
                17 => self.observe(),
                _ => self.scan(),
            }
        }
    }

    fn random_key(&mut self) -> K {
        K::small(self.rng.random_range(0..self.space / THREADS) * THREADS + self.residue, self.space)
    }

    fn insert(&mut self, key: K) {
        let value = self.next_value * THREADS + self.residue;
        self.next_value += 1;
        match self.index.insert(key, value) {
            Insert::Inserted(change) => {
                assert_eq!(self.expected.insert(key, value), None);
                assert!(change.after > change.before && change.leaf.version() >= change.after);
            }
            Insert::Exists(found) => {
                assert!(found.value.is_some());
                assert_eq!(found.value, self.expected.get(&key).copied());
            }
        }
    }

    fn remove(&mut self, key: K) {
        match self.expected.remove(&key) {
            Some(value) => {
                assert!(!self.index.remove(key, value + 1));
                assert!(self.index.remove(key, value));
            }
            None => assert!(!self.index.remove(key, 1)),
        }
    }

    fn get_many(&mut self) {
        let keys: Vec<K> = (0..self.rng.random_range(0..40)).map(|_| self.random_key()).collect();
        let mut positions = 0..;
        self.index.get_many(&keys, |position, found| {
            assert_eq!(Some(position), positions.next());
            assert_eq!(found.value, self.expected.get(&keys[position]).copied());
        });
        assert_eq!(positions.next(), Some(keys.len()));
    }

    fn random_range(&mut self) -> (K, K) {
        let low = self.rng.random_range(0..self.space);
        let high = (low + self.rng.random_range(0..60)).min(self.space - 1);
        let (low, high) = (K::small(low, self.space), K::small(high, self.space));
        if low <= high { (low, high) } else { (high, low) }
    }

    fn scan(&mut self) {
        if !P::ORDERED {
            return;
        }
        let (low, high) = self.random_range();
        let backward = self.rng.random();
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let mut entries = scan(self.index, low, high, direction, usize::MAX).entries;
        if backward {
            entries.reverse();
        }
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order, or twice");
        assert!(entries.iter().all(|entry| (low..=high).contains(&entry.0)));
        let own = entries.into_iter().filter(|entry| entry.1 % THREADS == self.residue);
        assert!(own.eq(self.expected.range(low..=high).map(|(key, value)| (*key, *value))), "missed, or stale");
    }

    /// What was seen is there still, if the leaves that protect it have not changed until after the
    /// second look.
    fn observe(&mut self) {
        let (low, high) = self.random_range();
        let look = |direction| {
            if P::ORDERED {
                Observation::range(self.index, low, high, direction, 10)
            } else {
                Observation::point(self.index, low)
            }
        };
        let before = look(if self.rng.random() { Direction::Backward } else { Direction::Forward });
        for _ in 0..self.rng.random_range(0..3) {
            std::thread::yield_now();
        }
        let after = if P::ORDERED {
            Observation::range(self.index, before.low, before.high, Direction::Forward, usize::MAX)
        } else {
            look(Direction::Forward)
        };
        // An empty fence of the seqlock: `holds` loads with Acquire, after the loads of the second
        // look.
        if before.holds() {
            assert_eq!(before.keys, after.keys, "a phantom went unnoticed");
        }
    }
}

fn check<K: Key, P: Points<K>>(space: u64, operations: usize) {
    let seed = seed();
    let index = P::empty();
    let space = space - space % THREADS;
    let parts: Vec<BTreeMap<K, u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|residue| {
                let (index, rng) = (&index, SmallRng::seed_from_u64(seed + residue));
                scope.spawn(move || {
                    let mut own = Own { index, residue, space, expected: BTreeMap::new(), rng, next_value: 1 };
                    own.run(operations);
                    own.expected
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread's checks")).collect()
    });
    let union: BTreeMap<K, u64> = parts.into_iter().flatten().collect();
    for i in 0..space {
        let key = K::small(i, space);
        assert_eq!(index.get(key).value, union.get(&key).copied());
    }
    if P::ORDERED {
        let entries = scan(&index, K::MIN, K::MAX, Direction::Forward, usize::MAX).entries;
        assert!(entries.into_iter().eq(union));
    }
}

#[test]
fn hash_of_numbers() {
    check::<u64, HashIndex<Native, u64>>(3000, 300_000);
}

#[test]
fn hash_with_long_chains() {
    check::<Colliding, HashIndex<Native, Colliding>>(36, 300_000);
}

#[test]
fn hash_of_32_bytes() {
    check::<[u8; 32], HashIndex<Native, [u8; 32]>>(300, 200_000);
}

#[test]
fn ordered_numbers_in_small_nodes() {
    check::<u64, OrderedIndex<Native, u64, 4, 4>>(400, 300_000);
}

#[test]
fn ordered_numbers_in_tiny_leaves_of_few_keys() {
    check::<u64, OrderedIndex<Native, u64, 2, 4>>(24, 1_000_000);
}

#[test]
fn ordered_numbers() {
    check::<u64, OrderedIndex<Native, u64>>(3000, 300_000);
}

#[test]
fn ordered_16_bytes_in_small_nodes() {
    check::<[u8; 16], OrderedIndex<Native, [u8; 16], 4, 5>>(400, 200_000);
}

#[test]
fn ordered_32_bytes_in_vector_nodes() {
    check::<[u8; 32], OrderedIndex<Native, [u8; 32], 8, 8>>(600, 200_000);
}

/// One thread inserts in order and says how far it is; the others must find everything up to there,
/// while the index grows.
fn grows_under_readers<P: Points<u64>>(keys: u64) {
    let seed = seed();
    let index = P::empty();
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..keys {
                assert!(matches!(index.insert(key, key + 1), Insert::Inserted(_)));
                inserted.store(key + 1, Ordering::Release);
            }
        });
        for reader in 0..2 {
            let (index, inserted) = (&index, &inserted);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed + reader);
                loop {
                    let bound = inserted.load(Ordering::Acquire);
                    let probes: Vec<u64> = (0..64).map(|_| rng.random_range(0..bound.max(1))).collect();
                    if bound > 0 {
                        for key in &probes {
                            assert_eq!(index.get(*key).value, Some(key + 1));
                        }
                        index.get_many(&probes, |i, found| assert_eq!(found.value, Some(probes[i] + 1)));
                    }
                    assert_eq!(index.get(keys + rng.random_range(0..keys)).value, None);
                    if bound == keys {
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn hash_grows_under_readers() {
    grows_under_readers::<HashIndex<Native, u64>>(300_000);
}

/// Again and again while it is small, when every split has a good chance to hit the chain that a
/// reader is about to read.
#[test]
fn small_hash_grows_under_readers() {
    for _ in 0..2000 {
        let index = HashIndex::<Native, u64>::new(0);
        (0..30).for_each(|key| assert!(matches!(index.insert(key, key + 1), Insert::Inserted(_))));
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (30..300).for_each(|key| assert!(matches!(index.insert(key, key + 1), Insert::Inserted(_))));
                done.store(1, Ordering::Release);
            });
            while done.load(Ordering::Acquire) == 0 {
                (0..30).for_each(|key| assert_eq!(index.get(key).value, Some(key + 1)));
            }
        });
    }
}

#[test]
fn ordered_grows_under_readers() {
    grows_under_readers::<OrderedIndex<Native, u64, 4, 4>>(200_000);
}

/// All threads insert the same keys; each key has one winner.
fn one_winner<P: Points<u64>>() {
    let index = P::empty();
    let barrier = Barrier::new(THREADS as usize);
    let wins: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (index, barrier) = (&index, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    (0..20_000).filter(|key| matches!(index.insert(*key, thread + 1), Insert::Inserted(_))).count()
                        as u64
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no assertion")).sum()
    });
    assert_eq!(wins, 20_000);
}

#[test]
fn one_winner_in_hash() {
    one_winner::<HashIndex<Native, u64>>();
}

#[test]
fn one_winner_in_ordered() {
    one_winner::<OrderedIndex<Native, u64>>();
}
