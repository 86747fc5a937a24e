//! What leaves promise to a protocol: versions, the protocol's word, and few of them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{Observation, Points, scan};
use contend_index::{Direction, HashIndex, Index, IndexKind, Insert, Key, LeafWords, OrderedIndex};
use contend_machine::Native;

/// Inserts with value 1.
fn put<K: Key>(index: &impl Points<K>, key: K) {
    assert!(matches!(index.insert(key, 1), Insert::Inserted(_)), "{key:?} was there");
}

/// Leaves that a scan for the first key touches.
fn leaves_to_first<K: Key>(index: &impl Points<K>, direction: Direction) -> usize {
    scan(index, K::MIN, K::MAX, direction, 1).leaves.len()
}

fn queue<P: Points<u64>>(window: u64, backward: bool) {
    let index = P::empty();
    let key = |i: u64| if backward { u64::MAX - i } else { i };
    let mut early = 0;
    for i in 0..200_000 {
        index.insert(key(i), 1);
        if i >= window {
            assert!(index.remove(key(i - window), 1));
        }
        if i == 10 * window {
            early = index.bytes();
        }
        if P::ORDERED && i % 97 == 0 {
            assert!(leaves_to_first(&index, Direction::Forward) <= 2);
            assert!(leaves_to_first(&index, Direction::Backward) <= 2);
        }
    }
    assert!(index.bytes() <= 2 * early, "grew from {early} to {} bytes", index.bytes());
}

#[test]
fn queues_stay_small() {
    queue::<HashIndex<Native, u64>>(1000, false);
    queue::<OrderedIndex<Native, u64>>(1000, false);
    queue::<OrderedIndex<Native, u64>>(1000, true);
    queue::<OrderedIndex<Native, u64, 4, 4>>(100, false);
    queue::<OrderedIndex<Native, u64, 4, 4>>(1, true);
}

#[test]
fn a_queue_between_threads_stays_small() {
    const ITEMS: u64 = 100_000;
    let index = OrderedIndex::<Native, u64, 8, 8>::with_fanout();
    let produced = AtomicU64::new(0);
    let consumed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..ITEMS {
                while i - consumed.load(Ordering::Acquire) > 500 {
                    std::thread::yield_now();
                }
                index.insert(i, i + 1);
                produced.store(i + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for i in 0..ITEMS {
                while produced.load(Ordering::Acquire) <= i {
                    std::thread::yield_now();
                }
                let first = scan(&index, 0, u64::MAX, Direction::Forward, 1);
                assert_eq!(first.entries, [(i, i + 1)]);
                assert!(first.leaves.len() <= 3, "{} leaves to the first entry", first.leaves.len());
                assert!(index.remove(i, i + 1));
                consumed.store(i + 1, Ordering::Release);
            }
        });
    });
    assert!(index.height() <= 1, "height {} of an empty tree", index.height());
    assert!(index.bytes() < 400_000, "{} bytes", index.bytes());
}

#[test]
fn an_emptied_tree_is_one_leaf() {
    let index = OrderedIndex::<Native, u64, 4, 4>::with_fanout();
    for round in 0..4 {
        let keys: Vec<u64> = match round {
            0 => (0..1000).collect(),
            1 => (0..1000).rev().collect(),
            2 => (0..500).flat_map(|i| [i, 999 - i]).collect(),
            _ => (0..1000).map(|i| i * 387 % 1000).collect(),
        };
        (0..1000).for_each(|key| put(&index, key));
        assert!(index.height() > 3);
        keys.iter().for_each(|key| assert!(index.remove(*key, 1)));
        assert_eq!(index.height(), 0);
        assert_eq!(leaves_to_first(&index, Direction::Forward), 1);
    }
}

#[test]
fn versions_change_with_the_keys_and_only_with_them() {
    fn check<P: Points<u64>>() {
        let index = P::empty();
        (0..10u64).for_each(|key| put(&index, key * 10));
        let miss = index.get(55);
        assert_eq!(miss.value, None);
        assert!(matches!(index.insert(50, 2), Insert::Exists(found) if found.value == Some(1)));
        assert!(!index.remove(50, 2));
        assert!(!index.remove(51, 1));
        assert!(miss.leaf.version() == miss.version, "nothing was changed");
        let Insert::Inserted(change) = index.insert(55, 3) else { panic!("55 was absent") };
        assert!(change.leaf == miss.leaf && change.before == miss.version && change.after == miss.leaf.version());
        assert!(index.remove(55, 3));
        assert!(![miss.version, change.after].contains(&miss.leaf.version()), "back to an old version");
    }
    check::<HashIndex<Native, u64>>();
    check::<OrderedIndex<Native, u64>>();
}

#[test]
fn other_leaves_are_left_alone() {
    let index = OrderedIndex::<Native, u64, 4, 4>::with_fanout();
    (0..400u64).for_each(|key| put(&index, key * 10));
    let observed = Observation::range(&index, 1000, 1100, Direction::Forward, usize::MAX);
    // Splits and unlinks on both sides, inner nodes included.
    for key in (0..900).chain(1200..4000) {
        index.insert(key, 1);
    }
    for key in (0..900).chain(1200..4000) {
        assert!(index.remove(key, 1));
    }
    assert!(observed.holds());
    put(&index, 1055);
    assert!(!observed.holds());
}

/// The range of an unlinked leaf goes to a neighbour: a reader that saw it empty must notice an
/// insert there.
#[test]
fn unlinked_ranges_stay_protected() {
    for (low, high) in [(0, 40), (40, 80), (360, 400)] {
        let index = OrderedIndex::<Native, u64, 4, 4>::with_fanout();
        (0..100u64).for_each(|i| put(&index, i * 4));
        for key in (low..high).step_by(4) {
            let gap = Observation::point(&index, key + 1);
            assert!(index.remove(key, 1));
            assert!(!gap.holds());
        }
        let empty = Observation::range(&index, low, high - 1, Direction::Backward, usize::MAX);
        assert!(empty.keys.is_empty() && empty.holds());
        put(&index, low + 2);
        assert!(!empty.holds());
    }
}

#[test]
fn words_are_handed_on() {
    let index = OrderedIndex::<Native, u64, 4, 4>::with_fanout();
    assert_eq!(index.get(0).leaf.word().load(Ordering::Relaxed), 0);
    index.get(0).leaf.word().store(5, Ordering::Relaxed);
    (0..200u64).for_each(|key| put(&index, key));
    let word = |key: u64| index.get(key).leaf.word().load(Ordering::Relaxed);
    assert!((0..200).all(|key| word(key) == 5), "a split hands a copy on");
    index.get(100).leaf.word().fetch_max(70, Ordering::Relaxed);
    (80..120u64).for_each(|key| assert!(index.remove(key, 1)));
    assert_eq!(word(100), 70, "the heir of an unlinked leaf takes the larger word");
    (0..80).chain(120..200).for_each(|key| assert!(index.remove(key, 1)));
    assert_eq!(word(7), 70);

    let index = HashIndex::<Native, u64>::new(0);
    (0..16u64).for_each(|key| index.get(key).leaf.word().store(9, Ordering::Relaxed));
    let touched: Vec<u64> = (0..1000).filter(|key| index.get(*key).leaf.word().load(Ordering::Relaxed) == 9).collect();
    (0..5000u64).for_each(|key| put(&index, key));
    assert!(touched.iter().all(|key| index.get(*key).leaf.word().load(Ordering::Relaxed) == 9));
}

#[test]
fn both_ends_of_the_range_are_keys() {
    fn check<P: Points<K>, K: Key>() {
        let index = P::empty();
        for _ in 0..3 {
            for (key, value) in [(K::MIN, 1), (K::MAX, u64::MAX)] {
                assert_eq!(index.get(key).value, None);
                assert!(matches!(index.insert(key, value), Insert::Inserted(_)));
                assert!(matches!(index.insert(key, 7), Insert::Exists(found) if found.value == Some(value)));
            }
            if P::ORDERED {
                let both = scan(&index, K::MIN, K::MAX, Direction::Forward, usize::MAX).entries;
                assert_eq!(both, [(K::MIN, 1), (K::MAX, u64::MAX)]);
                let both = scan(&index, K::MIN, K::MAX, Direction::Backward, usize::MAX).entries;
                assert_eq!(both, [(K::MAX, u64::MAX), (K::MIN, 1)]);
                assert_eq!(scan(&index, K::MAX, K::MAX, Direction::Backward, 1).entries, [(K::MAX, u64::MAX)]);
                assert_eq!(scan(&index, K::MIN, K::MIN, Direction::Forward, 1).entries, [(K::MIN, 1)]);
                assert!(scan(&index, K::MAX, K::MIN, Direction::Forward, 1).leaves.is_empty());
            }
            assert!(index.remove(K::MIN, 1) && index.remove(K::MAX, u64::MAX));
            assert!(!index.remove(K::MIN, 0), "0 is no value");
        }
    }
    check::<HashIndex<Native, u64>, _>();
    check::<HashIndex<Native, [u8; 24]>, _>();
    check::<OrderedIndex<Native, u64>, _>();
    check::<OrderedIndex<Native, u64, 2, 4>, _>();
    check::<OrderedIndex<Native, [u8; 8], 2, 4>, _>();
    check::<OrderedIndex<Native, [u8; 32]>, _>();
}

#[test]
fn memory_per_key_is_bounded() {
    const KEYS: u64 = 200_000;
    for (kind, made_to_measure, most) in
        [(IndexKind::Hash, true, 44), (IndexKind::Hash, false, 60), (IndexKind::Ordered, false, 32)]
    {
        let index =
            Index::<Native, u64>::new(kind, if made_to_measure { KEYS as usize } else { 0 }, 64, LeafWords::Times);
        for i in 0..KEYS {
            index.insert(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1);
        }
        let bytes = index.bytes() as f64 / KEYS as f64;
        assert!(bytes < f64::from(most), "{kind:?}: {bytes} bytes a key");
    }
    // In order: the leaves are full.
    let index = Index::<Native, u64>::new(IndexKind::Ordered, 0, 64, LeafWords::Times);
    for key in 0..KEYS {
        index.insert(key, 1);
    }
    assert!(index.bytes() as f64 / (KEYS as f64) < 22.0, "{} bytes", index.bytes());
    assert_eq!(
        (index.kind(), Index::<Native, u64>::new(IndexKind::Hash, 0, 64, LeafWords::Times).kind()),
        (IndexKind::Ordered, IndexKind::Hash)
    );
}

/// Families of 100 keys: 64 of them, in any order, then some removed and inserted again. No leaf
/// ever has keys of two.
#[test]
fn families_of_keys_never_share_a_leaf() {
    const APART: u32 = 10;
    let index = OrderedIndex::<Native, u64>::apart(APART);
    let key = |i: u64| ((i % 64) << APART) | ((i.wrapping_mul(0x9e37_79b9) >> 6) % 100 * 7);
    let mut keys = std::collections::BTreeSet::new();
    let insert = |keys: &mut std::collections::BTreeSet<u64>, i| {
        if keys.insert(key(i)) {
            put(&index, key(i));
        }
    };
    let check = |keys: &std::collections::BTreeSet<u64>| {
        for direction in [Direction::Forward, Direction::Backward] {
            let observed = scan(&index, 0, u64::MAX, direction, usize::MAX);
            let mut found: Vec<u64> = observed.entries.iter().map(|(key, _)| *key).collect();
            if direction == Direction::Backward {
                found.reverse();
            }
            assert!(found.iter().eq(keys), "the keys are all there, in order");
        }
        let leaf_of = |key: u64| index.get(key).leaf.address();
        let families: std::collections::HashMap<usize, u64> =
            keys.iter().map(|&key| (leaf_of(key), key >> APART)).collect();
        assert!(keys.iter().all(|&key| families[&leaf_of(key)] == key >> APART), "a leaf with two families");
    };
    (0..5000).for_each(|i| insert(&mut keys, i));
    check(&keys);
    for family in [0, 5, 63] {
        for gone in keys.iter().copied().filter(|key| key >> APART == family).collect::<Vec<_>>() {
            assert!(index.remove(gone, 1));
            keys.remove(&gone);
        }
    }
    check(&keys);
    (5000..9000).rev().for_each(|i| insert(&mut keys, i));
    check(&keys);
    // A key that is inserted is no phantom to a transaction that has looked at another family.
    let quiet = index.get(3 << APART);
    put(&index, (4 << APART) | 1);
    put(&index, (2 << APART) | 1023);
    assert_eq!(quiet.leaf.version(), quiet.version);
}

/// Runs of ascending keys, by several threads between each other's: all keys are there, once, and
/// each insert tells how it changed its leaf.
#[test]
fn runs_of_inserts_meet_others() {
    const THREADS: u64 = 4;
    const RUNS: u64 = 2000;
    for apart in [64, 8] {
        let index = Index::<Native, u64>::new(IndexKind::Ordered, 0, apart, LeafWords::Times);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let index = &index;
                scope.spawn(move || {
                    for round in 0..RUNS {
                        let mut run = index.ascending_inserts();
                        for i in 0..12 {
                            let key = round.wrapping_mul(0x9e37) % RUNS * 64 + i * THREADS + thread;
                            match run.insert(key, key + 1) {
                                Insert::Inserted(change) => assert_ne!(change.before, change.after),
                                Insert::Exists(lookup) => assert_eq!(lookup.value, Some(key + 1)),
                            }
                        }
                    }
                });
            }
        });
        let mut expected: Vec<u64> = (0..RUNS).map(|round| round.wrapping_mul(0x9e37) % RUNS * 64).collect();
        expected.sort_unstable();
        expected.dedup();
        let expected: Vec<u64> = expected.into_iter().flat_map(|first| first..first + 12 * THREADS).collect();
        let Index::Ordered(index) = &index else { unreachable!("made as such") };
        let found: Vec<u64> =
            scan(index, 0, u64::MAX, Direction::Forward, usize::MAX).entries.iter().map(|(key, _)| *key).collect();
        assert!(found == expected, "{} keys of {}", found.len(), expected.len());
    }
}

/// A run remembers a leaf that others empty, unlink, split and fill again: it never inserts where
/// its key does not belong.
#[test]
fn a_run_notices_that_its_leaf_is_gone() {
    let index = Index::<Native, u64>::new(IndexKind::Ordered, 0, 64, LeafWords::Times);
    for key in 0..1000 {
        assert!(matches!(index.insert(key * 10, 1), Insert::Inserted(_)));
    }
    let mut run = index.ascending_inserts();
    assert!(matches!(run.insert(5001, 1), Insert::Inserted(_)));
    for key in (0..1000).map(|key| key * 10).chain([5001]) {
        assert!(index.remove(key, 1));
    }
    for key in 0..1000 {
        assert!(matches!(index.insert(key, 1), Insert::Inserted(_)));
    }
    assert!(matches!(run.insert(5002, 1), Insert::Inserted(_)));
    assert!(matches!(run.insert(5002, 1), Insert::Exists(_)), "a key is inserted once");
    assert!(matches!(run.insert(3, 1), Insert::Exists(_)), "a run may go back");
    assert_eq!((index.get(5002).value, index.get(5001).value), (Some(1), None));
}

/// A leaf that takes over the range of another keeps the larger of two times, and the bits of both
/// of two sets.
#[test]
fn the_heir_of_a_leaf_keeps_what_both_words_say() {
    for (words, expected) in [(LeafWords::Times, 4), (LeafWords::Masks, 6)] {
        let index = OrderedIndex::<Native, u64, 4, 4>::with_fanout().with_words(words);
        (0..8).for_each(|key| put(&index, key));
        let first = index.get(0).leaf;
        let in_first: Vec<u64> = (0..8).filter(|key| index.get(*key).leaf == first).collect();
        assert!(in_first.len() < 8, "there are two leaves or more");
        (0..8u64).for_each(|key| index.get(key).leaf.word().store(4, Ordering::Relaxed));
        first.word().store(2, Ordering::Relaxed);
        in_first.iter().for_each(|&key| assert!(index.remove(key, 1)));
        assert!(index.get(0).leaf != first, "the leaf was unlinked");
        assert_eq!(index.get(0).leaf.word().load(Ordering::Relaxed), expected, "{words:?}");
    }
}
