//! The keys of a table that were deleted and have left the index, for the recording of histories.
//!
//! An insert asks for the deleter of its key and enters the index in one critical section. So does
//! the removal of a tombstone. A table's inserts would all wait for one mutex. So there are several
//! parts, and the hash of a key chooses its part.

use std::collections::BTreeMap;

use contend_index::KeyWords;
use contend_machine::{Machine, SpinMutex};
use contend_model::random::mix;
use crossbeam_utils::CachePadded;

/// The workers that share a part, and the most parts.
const WORKERS_PER_PART: usize = 4;
const PARTS_MAX: usize = 16;

/// The deletions in one part: each key with the transaction that deleted it last.
pub(crate) type Deleters = BTreeMap<KeyWords, u64>;

/// Keys that were deleted, each with the transaction that deleted it last.
pub(crate) struct Deletions<M: Machine> {
    parts: Box<[CachePadded<SpinMutex<M, Deleters>>]>,
}

impl<M: Machine> Deletions<M> {
    /// Returns no deletions, for up to this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let count = (workers / WORKERS_PER_PART).clamp(1, PARTS_MAX);
        let part = || CachePadded::new(SpinMutex::new(Deleters::new()));
        Deletions { parts: std::iter::repeat_with(part).take(count).collect() }
    }

    /// Runs `body` with the deletions among which the key's is. No other such section of the key
    /// runs meanwhile.
    pub(crate) fn with<R>(&self, key: &KeyWords, body: impl FnOnce(&mut Deleters) -> R) -> R {
        let hash = key.iter().fold(0, |hash, word| mix(hash ^ word));
        self.parts[hash as usize % self.parts.len()].with(body)
    }

    /// Returns the transaction that deleted this key; 0 if there is none.
    pub(crate) fn deleter_of(&self, key: &KeyWords) -> u64 {
        self.with(key, |deleters| deleters.get(key).copied().unwrap_or(0))
    }

    /// Returns the deleted keys in the range, each with the transaction that deleted it. The keys
    /// are in no order, and are not all of one moment.
    pub(crate) fn in_range(&self, low: KeyWords, high: KeyWords) -> Vec<(KeyWords, u64)> {
        let mut found = Vec::new();
        if low <= high {
            for part in &self.parts {
                part.with(|deleters| {
                    found.extend(deleters.range(low..=high).map(|(key, deleter)| (*key, *deleter)));
                });
            }
        }
        found
    }
}
