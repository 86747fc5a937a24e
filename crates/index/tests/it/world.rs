//! What the tests share: one face for both indexes, keys of every width, seeds, and observations.

use std::ops::ControlFlow;

use contend_index::{Change, Direction, HashIndex, Insert, Key, Leaf, Lookup, OrderedIndex, ScanVisitor};
use contend_machine::Native;

/// The seed of a random test: `CONTEND_SEED`, or a new one. It is printed, and a failed test shows
/// it.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let seed = match std::env::var("CONTEND_SEED") {
        Ok(seed) => seed.parse().expect("CONTEND_SEED is a number"),
        Err(_) => std::hash::RandomState::new().build_hasher().finish(),
    };
    println!("seed: run again with CONTEND_SEED={seed}");
    seed
}

/// Keys out of a small space, with both ends of the type's range.
pub(crate) trait SmallKey: Key {
    /// Key `i` of `0..space`. Wide keys share all but the first and the last words.
    fn small(i: u64, space: u64) -> Self {
        if i == 0 {
            return Self::MIN;
        }
        if i + 1 == space {
            return Self::MAX;
        }
        let mut words = [7; contend_index::MAX_KEY_WORDS];
        words[0] = i / 5;
        words[Self::WORDS - 1] = if Self::WORDS == 1 { i * 3 } else { i % 5 };
        Self::from_words(words)
    }
}

impl<K: Key> SmallKey for K {}

/// A number whose hash has three values only, so that a hash index has three chains, and they are
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Colliding(pub(crate) u64);

impl Key for Colliding {
    const WORDS: usize = 1;
    const MIN: Self = Colliding(0);
    const MAX: Self = Colliding(u64::MAX);

    fn to_words(self) -> contend_index::KeyWords {
        self.0.to_words()
    }

    fn from_words(words: contend_index::KeyWords) -> Self {
        Colliding(words[0])
    }

    fn hash(self) -> u64 {
        ((self.0 % 3) << 61) | (self.0 % 3)
    }
}

/// What both indexes can do.
pub(crate) trait Points<K: Key>: Send + Sync {
    /// Whether [`Points::scan`] works, and versions change for no other reason than the keys.
    const ORDERED: bool;
    fn empty() -> Self;
    fn get(&self, key: K) -> Lookup<Native>;
    fn get_many(&self, keys: &[K], found: impl FnMut(usize, Lookup<Native>));
    fn insert(&self, key: K, value: u64) -> Insert<Native>;
    fn remove(&self, key: K, expect: u64) -> bool;
    fn bytes(&self) -> usize;
    fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<Native, K>);
}

macro_rules! points {
    ($ordered:literal, [$($generic:tt)*], $index:ty, $new:expr, |$self:ident, $low:ident, $high:ident, $direction:ident, $visitor:ident| $scan:expr) => {
        impl<K: Key, $($generic)*> Points<K> for $index {
            const ORDERED: bool = $ordered;
            fn empty() -> Self {
                $new
            }
            fn get(&self, key: K) -> Lookup<Native> {
                self.get(key)
            }
            fn get_many(&self, keys: &[K], found: impl FnMut(usize, Lookup<Native>)) {
                self.get_many(keys, found);
            }
            fn insert(&self, key: K, value: u64) -> Insert<Native> {
                self.insert(key, value)
            }
            fn remove(&self, key: K, expect: u64) -> bool {
                self.remove(key, expect)
            }
            fn bytes(&self) -> usize {
                self.bytes()
            }
            fn scan(&$self, $low: K, $high: K, $direction: Direction, $visitor: &mut impl ScanVisitor<Native, K>) {
                $scan
            }
        }
    };
}

points!(false, [], HashIndex<Native, K>, HashIndex::new(0), |self, _low, _high, _direction, _visitor| {});
points!(
    true,
    [const L: usize, const I: usize],
    OrderedIndex<Native, K, L, I>,
    OrderedIndex::with_fanout(),
    |self, low, high, direction, visitor| self.scan(low, high, direction, visitor)
);

/// What a scan saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen<K> {
    pub(crate) leaves: Vec<(Leaf<Native>, u64)>,
    pub(crate) entries: Vec<(K, u64)>,
    pub(crate) limit: usize,
}

impl<K: Key> ScanVisitor<Native, K> for Seen<K> {
    fn leaf(&mut self, leaf: Leaf<Native>, version: u64) -> ControlFlow<()> {
        self.leaves.push((leaf, version));
        ControlFlow::Continue(())
    }

    fn entry(&mut self, key: K, value: u64) -> ControlFlow<()> {
        self.entries.push((key, value));
        if self.entries.len() == self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

pub(crate) fn scan<K: Key>(index: &impl Points<K>, low: K, high: K, direction: Direction, limit: usize) -> Seen<K> {
    let mut seen = Seen { leaves: Vec::new(), entries: Vec::new(), limit };
    index.scan(low, high, direction, &mut seen);
    seen
}

/// What a transaction relies on: the keys in a range, protected by leaves at versions.
#[derive(Clone, Debug)]
pub(crate) struct Observation<K> {
    pub(crate) low: K,
    pub(crate) high: K,
    pub(crate) keys: Vec<K>,
    pub(crate) leaves: Vec<(Leaf<Native>, u64)>,
}

impl<K: Key> Observation<K> {
    /// Of one key.
    pub(crate) fn point(index: &impl Points<K>, key: K) -> Self {
        let found = index.get(key);
        let keys = found.value.map(|_| key).into_iter().collect();
        Observation { low: key, high: key, keys, leaves: vec![(found.leaf, found.version)] }
    }

    /// Of a range, or of the part of it that a limited scan got to.
    pub(crate) fn range(index: &impl Points<K>, low: K, high: K, direction: Direction, limit: usize) -> Self {
        let seen = scan(index, low, high, direction, limit);
        let mut keys: Vec<K> = seen.entries.iter().map(|entry| entry.0).collect();
        let (mut from, mut to) = (low, high);
        if let (Some(last), true) = (keys.last(), keys.len() == limit) {
            match direction {
                Direction::Forward => to = *last,
                Direction::Backward => from = *last,
            }
        }
        keys.sort_unstable();
        Observation { low: from, high: to, keys, leaves: seen.leaves }
    }

    /// Whether all leaves are as they were.
    pub(crate) fn holds(&self) -> bool {
        self.leaves.iter().all(|(leaf, version)| leaf.version() == *version)
    }

    /// Carries the observer's own insert over.
    pub(crate) fn follow(&mut self, key: K, change: &Change<Native>) {
        let mut observed = false;
        for (leaf, version) in &mut self.leaves {
            if *leaf == change.leaf && *version == change.before {
                *version = change.after;
                observed = true;
            }
        }
        if observed {
            self.leaves.extend(change.split);
        }
        if (self.low..=self.high).contains(&key) {
            let position = self.keys.binary_search(&key).expect_err("the key was absent");
            self.keys.insert(position, key);
        }
    }
}
