//! The indexes' latches under a model checker: a lookup beside a change sees the state before it or
//! after, and versions tell.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-index --test loom`
//!
//! Two threads, on a tree of leaves of two keys. Executions with up to two preemptions are tried,
//! unless a test says otherwise: up to 100,000, in a minute or less. METHODOLOGY.md says what that
//! leaves out.
#![cfg(loom)]

use std::ops::ControlFlow;
use std::sync::Arc;

use contend_index::{Change, Direction, HashIndex, Insert, Leaf, OrderedIndex, ScanVisitor};
use contend_machine::{Atomic64, Loom, Machine, Ordering};
use loom::thread;

fn explore_within(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(check);
}

fn explore(check: impl Fn() + Sync + Send + 'static) {
    explore_within(2, check);
}

mod hash {
    use super::*;

    #[test]
    fn a_lookup_beside_an_insert_is_consistent() {
        explore(|| {
            let index = Arc::new(HashIndex::<Loom, u64>::new(1));
            let other = Arc::clone(&index);
            let inserting = thread::spawn(move || assert!(matches!(other.insert(7, 70), Insert::Inserted(_))));
            let first = index.get(7);
            let second = index.get(7);
            for lookup in [&first, &second] {
                assert!(matches!(lookup.value, None | Some(70)), "{lookup:?}");
            }
            if first.value != second.value {
                assert_eq!((first.value, second.value), (None, Some(70)), "it came, and did not go");
                assert_ne!(first.version, second.version, "the change shows in the version");
            }
            inserting.join().expect("no panic");
            assert_eq!(index.get(7).value, Some(70));
        });
    }

    #[test]
    fn one_of_two_inserts_of_a_key_wins() {
        explore(|| {
            let index = Arc::new(HashIndex::<Loom, u64>::new(1));
            let other = Arc::clone(&index);
            let theirs = thread::spawn(move || matches!(other.insert(7, 70), Insert::Inserted(_)));
            let mine = matches!(index.insert(7, 71), Insert::Inserted(_));
            let theirs = theirs.join().expect("no panic");
            assert!(mine != theirs, "mine: {mine}, theirs: {theirs}");
            assert_eq!(index.get(7).value, Some(if mine { 71 } else { 70 }));
        });
    }
}

mod ordered {
    use super::*;

    /// Leaves of two keys; inner nodes of four children.
    type Index = OrderedIndex<Loom, u64, 2, 4>;

    /// Holds these keys, each with ten times itself as its value.
    fn index(keys: &[u64]) -> Arc<Index> {
        let index = Index::with_fanout();
        for &key in keys {
            assert!(matches!(index.insert(key, key * 10), Insert::Inserted(_)));
        }
        Arc::new(index)
    }

    /// A scan of all: the leaves with their versions, and the keys.
    #[derive(Default)]
    struct Seen {
        leaves: Vec<(Leaf<Loom>, u64)>,
        keys: Vec<u64>,
    }

    impl ScanVisitor<Loom, u64> for Seen {
        fn leaf(&mut self, leaf: Leaf<Loom>, version: u64) -> ControlFlow<()> {
            self.leaves.push((leaf, version));
            ControlFlow::Continue(())
        }
        fn entry(&mut self, key: u64, value: u64) -> ControlFlow<()> {
            assert_eq!(value, key * 10, "of key {key}");
            self.keys.push(key);
            ControlFlow::Continue(())
        }
    }

    impl Seen {
        fn all(index: &Index, direction: Direction) -> Seen {
            let mut seen = Seen::default();
            index.scan(0, u64::MAX, direction, &mut seen);
            seen
        }

        /// Whether a leaf that was seen has another version now.
        fn has_changed(&self) -> bool {
            self.leaves.iter().any(|&(leaf, version)| leaf.version() != version)
        }
    }

    fn inserted(insert: Insert<Loom>) -> Change<Loom> {
        match insert {
            Insert::Inserted(change) => change,
            Insert::Exists(lookup) => panic!("it is there: {lookup:?}"),
        }
    }

    #[test]
    fn a_lookup_beside_a_split_sees_all_that_is_there() {
        explore(|| {
            let index = index(&[10, 30]);
            let other = Arc::clone(&index);
            let inserting = thread::spawn(move || inserted(other.insert(20, 200)));
            let there = index.get(30);
            assert_eq!(there.value, Some(300));
            let new = index.get(20);
            assert!(matches!(new.value, None | Some(200)), "{new:?}");
            let change = inserting.join().expect("no panic");
            assert!(change.split.is_some(), "the leaf was full");
            assert_eq!(new.value.is_none(), new.leaf.version() != new.version, "a miss has observed what has changed");
            assert_eq!([10, 20, 30].map(|key| index.get(key).value), [100, 200, 300].map(Some));
        });
    }

    #[test]
    fn a_batch_of_lookups_beside_a_split_sees_all_that_is_there() {
        explore(|| {
            let index = index(&[10, 30]);
            let other = Arc::clone(&index);
            let inserting = thread::spawn(move || inserted(other.insert(20, 200)));
            let mut seen = Vec::new();
            index.get_many(&[30, 20], |_, lookup| seen.push(lookup));
            assert_eq!(seen[0].value, Some(300));
            inserting.join().expect("no panic");
            let new = seen[1];
            assert!(matches!(new.value, None | Some(200)), "{new:?}");
            assert_eq!(new.value.is_none(), new.leaf.version() != new.version, "a miss has observed what has changed");
        });
    }

    #[test]
    fn a_scan_beside_a_split_misses_nothing() {
        for direction in [Direction::Forward, Direction::Backward] {
            explore(move || {
                let index = index(&[10, 30]);
                let other = Arc::clone(&index);
                let inserting = thread::spawn(move || inserted(other.insert(20, 200)));
                let mut seen = Seen::all(&index, direction);
                if direction == Direction::Backward {
                    seen.keys.reverse();
                }
                assert!(seen.keys == [10, 30] || seen.keys == [10, 20, 30], "{:?}", seen.keys);
                inserting.join().expect("no panic");
                let has_new = seen.keys.contains(&20);
                assert!(has_new || seen.has_changed(), "who has not seen it has observed what has changed");
            });
        }
    }

    #[test]
    fn a_lookup_beside_the_removal_of_its_leaf_is_consistent() {
        explore(|| {
            let index = index(&[10, 20, 30]);
            assert_eq!(index.height(), 1, "30 has a leaf of its own");
            let other = Arc::clone(&index);
            let removing = thread::spawn(move || assert!(other.remove(30, 300)));
            let gone = index.get(30);
            assert!(matches!(gone.value, None | Some(300)), "{gone:?}");
            removing.join().expect("no panic");
            assert_eq!(index.height(), 0, "the leaf and the root are gone");
            if gone.value.is_some() {
                assert_ne!(gone.leaf.version(), gone.version, "the removal shows in the version");
            }
            // Another leaf may cover the key by now: a reader that missed it has observed a leaf
            // that changes.
            inserted(index.insert(30, 300));
            assert_ne!(gone.leaf.version(), gone.version, "a miss has observed what has changed");
        });
    }

    #[test]
    fn a_scan_beside_a_removal_that_empties_a_leaf_misses_nothing() {
        for direction in [Direction::Forward, Direction::Backward] {
            // With two preemptions it takes minutes.
            explore_within(1, move || {
                let index = index(&[10, 20, 30]);
                let other = Arc::clone(&index);
                let removing = thread::spawn(move || assert!(other.remove(30, 300)));
                let mut seen = Seen::all(&index, direction);
                if direction == Direction::Backward {
                    seen.keys.reverse();
                }
                assert!(seen.keys == [10, 20] || seen.keys == [10, 20, 30], "{:?}", seen.keys);
                removing.join().expect("no panic");
                inserted(index.insert(30, 300));
                assert!(seen.has_changed(), "it has observed what has changed");
            });
        }
    }

    #[test]
    fn of_two_inserts_into_a_full_leaf_none_is_lost() {
        explore(|| {
            let index = index(&[10, 40]);
            let other = Arc::clone(&index);
            let inserting = thread::spawn(move || inserted(other.insert(20, 200)));
            inserted(index.insert(30, 300));
            inserting.join().expect("no panic");
            assert_eq!(Seen::all(&index, Direction::Forward).keys, [10, 20, 30, 40]);
        });
    }

    #[test]
    fn an_insert_beside_the_removal_of_its_leaf_is_not_lost() {
        explore(|| {
            let index = index(&[10, 20, 30]);
            let other = Arc::clone(&index);
            let removing = thread::spawn(move || assert!(other.remove(30, 300)));
            inserted(index.insert(40, 400));
            removing.join().expect("no panic");
            assert_eq!(Seen::all(&index, Direction::Forward).keys, [10, 20, 40]);
        });
    }

    /// A reader that has missed `missed` raises its leaf's word, and then looks whether the version
    /// is the same, as `Leaf::word` asks.
    fn note_miss(index: &Index, missed: u64) -> bool {
        let miss = index.get(missed);
        if miss.value.is_some() {
            return false;
        }
        // Relaxed: ordered by the fence.
        miss.leaf.word().fetch_max(5, Ordering::Relaxed);
        // SeqCst: as in the protocols; pairs with those of the split, of the unlinking and of the
        // insert.
        Loom::fence(Ordering::SeqCst);
        miss.leaf.version() == miss.version
    }

    /// An insert, and up to when the leaves of its key were read.
    fn insert_after(index: &Index, key: u64) -> u64 {
        let change = inserted(index.insert(key, key * 10));
        // SeqCst: as in the protocols.
        Loom::fence(Ordering::SeqCst);
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    #[test]
    fn the_time_of_a_miss_is_seen_by_an_insert_of_the_key() {
        // The first has room, the other has to split.
        for loaded in [&[10][..], &[10, 30]] {
            explore(move || {
                let index = index(loaded);
                let other = Arc::clone(&index);
                let inserting = thread::spawn(move || insert_after(&other, 20));
                let is_noted = note_miss(&index, 20);
                let seen = inserting.join().expect("no panic");
                assert!(!is_noted || seen == 5, "the insert has not seen the miss");
            });
        }
    }

    #[test]
    fn the_time_of_a_miss_outlives_a_split() {
        explore(|| {
            let index = index(&[10, 30]);
            let other = Arc::clone(&index);
            // Of another key: its leaf's other half takes over the word.
            let splitting = thread::spawn(move || inserted(other.insert(20, 200)));
            let is_noted = note_miss(&index, 40);
            splitting.join().expect("no panic");
            let seen = insert_after(&index, 40);
            assert!(!is_noted || seen == 5, "the split has lost the miss");
        });
    }

    #[test]
    fn the_time_of_a_miss_outlives_its_leaf() {
        explore(|| {
            let index = index(&[10, 20, 30]);
            let other = Arc::clone(&index);
            let removing = thread::spawn(move || assert!(other.remove(30, 300)));
            let is_noted = note_miss(&index, 40);
            removing.join().expect("no panic");
            let seen = insert_after(&index, 40);
            assert!(!is_noted || seen == 5, "the heir has not taken over the miss");
        });
    }
}
