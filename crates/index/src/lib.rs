//! Indexes: a hash index for points and an ordered index for points and ranges, generic over the
//! [`Machine`].
//!
//! An index maps a [`Key`] to a nonzero 64-bit value. What a value means (a record's address, to
//! the engine) is not known here, nor is any transaction. Both indexes keep one contract (see
//! [`Lookup`], [`Insert`], [`Leaf`]):
//!
//! - every lookup, hit or miss, names the [`Leaf`] it ended in and that leaf's version at that
//!   moment;
//! - a leaf's version changes with every change of the set of keys in the leaf, when the leaf
//!   splits, and when it is unlinked; for no other reason;
//! - a leaf carries one word that belongs to the protocol; a leaf that splits hands a copy to its
//!   new half; a leaf that is unlinked hands its word to the leaf that covers its range from then
//!   on, which keeps the larger of the two, or the bits of both ([`LeafWords`]);
//! - [`Index::remove`] compares before it removes.
//!
//! Memory of leaves is type-stable: it is reused but returned only when the index is dropped, and a
//! leaf's version never restarts. So a stale [`Leaf`] handle reads a version that differs, never
//! freed memory, and the index needs no epochs.
//!
//! The index is thread-safe. A lookup takes no latch, and a writer latches single nodes for a short
//! time.

mod hash;
mod ordered;
mod pool;

pub use contend_model::{Direction, IndexKind, Key, KeyWords, MAX_KEY_WORDS, key_of};
pub use hash::HashIndex;
use ordered::Near;
pub use ordered::{LEAF_KEYS, OrderedIndex};

use contend_machine::{Atomic64, Machine, Ordering};
use std::ops::{ControlFlow, Range};
use std::ptr::NonNull;

/// A leaf of an index as a protocol sees it: a version that protects the set of its keys, and a
/// word of the protocol's own.
///
/// A handle is valid as long as the index lives.
#[derive(Debug)]
pub struct Leaf<M: Machine> {
    version: NonNull<M::U64>,
    word: NonNull<M::U64>,
}

impl<M: Machine> Clone for Leaf<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Leaf<M> {}

impl<M: Machine> PartialEq for Leaf<M> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl<M: Machine> Eq for Leaf<M> {}

// SAFETY: a handle is two addresses of words that any thread may access; their memory lives as long
// as the index.
unsafe impl<M: Machine> Send for Leaf<M> {}
// SAFETY: as for `Send`: all access is through shared atomics.
unsafe impl<M: Machine> Sync for Leaf<M> {}

impl<M: Machine> Leaf<M> {
    /// A handle to a leaf's two words.
    ///
    /// # Safety
    /// Both words stay allocated as long as any copy of the handle is used: an index keeps its
    /// leaves until it is dropped, and the users of handles keep the index.
    #[inline(always)]
    pub(crate) unsafe fn new(version: &M::U64, word: &M::U64) -> Self {
        Leaf { version: NonNull::from(version), word: NonNull::from(word) }
    }

    /// Returns the version now. While a writer changes the leaf this is a value that no lookup ever
    /// reports. So a plain comparison with an observed version says whether the set of keys is
    /// still the same.
    #[inline(always)]
    pub fn version(self) -> u64 {
        // Acquire: see `version_as`.
        self.version_as(Ordering::Acquire)
    }

    /// Returns the version now, by a load of this order, which is Acquire or stronger.
    #[inline(always)]
    pub fn version_as(self, order: Ordering) -> u64 {
        // SAFETY: valid by the contract of `new`.
        let version = unsafe { self.version.as_ref() };
        // Acquire at least: pairs with the Release that ends a change of the leaf (`Node::publish`,
        // `ObservedChain::unlatch`).
        version.load(order)
    }

    /// Returns the protocol's word. It is 0 in a leaf that no protocol has touched.
    ///
    /// A transaction that raises it must then pass a `SeqCst` fence, and check that the version is
    /// still the observed one. If it is, a writer that changes the leaf later finds the word as it
    /// was raised, or larger, in every leaf that then covers a part of the range. If not, the leaf
    /// may have been split, or unlinked, without the new word.
    #[inline(always)]
    pub fn word<'a>(self) -> &'a M::U64 {
        // SAFETY: valid by the contract of `new`.
        unsafe { self.word.as_ref() }
    }

    /// Returns an address by which leaves can be sorted.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.version.as_ptr() as usize
    }
}

/// What the protocol's words of leaves are, for a leaf that takes over the word of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafWords {
    /// Times: the larger of two words says all that both say.
    Times,
    /// Sets of bits: the union of two words says all that both say.
    Masks,
}

/// What a lookup found, and what protects the finding.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<M: Machine> {
    /// The value, or `None` if the key is absent.
    pub value: Option<u64>,
    /// The leaf that holds the key, or would hold it.
    pub leaf: Leaf<M>,
    /// The leaf's version when the lookup read it.
    pub version: u64,
}

/// What an insert did.
#[derive(Clone, Copy, Debug)]
pub enum Insert<M: Machine> {
    /// The key was absent and is there now.
    Inserted(Change<M>),
    /// The key is there already; nothing was changed.
    Exists(Lookup<M>),
}

/// How an insert changed leaf versions. A transaction carries its own changes over into the
/// versions that it observed before.
#[derive(Clone, Copy, Debug)]
pub struct Change<M: Machine> {
    /// The leaf that held the key's place before.
    pub leaf: Leaf<M>,
    /// Its version right before the insert.
    pub before: u64,
    /// Its version right after.
    pub after: u64,
    /// The new leaf that took a part of the keys, if the insert split the leaf, with its version
    /// right after.
    pub split: Option<(Leaf<M>, u64)>,
}

/// What a scan calls.
pub trait ScanVisitor<M: Machine, K> {
    /// Visits a leaf that overlaps the range, before its entries. Called for every such leaf up to
    /// where the scan stops, also for an empty range.
    fn leaf(&mut self, leaf: Leaf<M>, version: u64) -> ControlFlow<()>;
    /// Visits an entry in the range, in the order of the scan. `Break` stops the scan.
    fn entry(&mut self, key: K, value: u64) -> ControlFlow<()>;
}

/// Either index, chosen at run time: one well-predicted branch an operation.
#[derive(Debug)]
pub enum Index<M: Machine, K: Key> {
    /// Points only.
    Hash(HashIndex<M, K>),
    /// Points and ranges.
    Ordered(OrderedIndex<M, K>),
}

/// Inserts of ascending keys into an index: as long as they go to one leaf, only the first descends
/// to it.
#[derive(Debug)]
pub struct AscendingInserts<'a, M: Machine, K: Key> {
    index: &'a Index<M, K>,
    near: Option<Near<M>>,
}

impl<M: Machine, K: Key> AscendingInserts<'_, M, K> {
    /// As [`Index::insert`]. The key may be any; one that follows the last is faster.
    pub fn insert(&mut self, key: K, value: u64) -> Insert<M> {
        match self.index {
            Index::Hash(index) => index.insert(key, value),
            Index::Ordered(index) => index.insert_near(&mut self.near, key, value),
        }
    }
}

impl<M: Machine, K: Key> Index<M, K> {
    /// Creates an empty index, with room for `expected` keys before it has to grow. `apart` is as
    /// for [`OrderedIndex::apart`]; a hash index keeps no keys together. No chain of a hash index
    /// takes over another's word, so `words` concerns an ordered index only.
    pub fn new(kind: IndexKind, expected: usize, apart: u32, words: LeafWords) -> Self {
        match kind {
            IndexKind::Hash => Index::Hash(HashIndex::new(expected)),
            IndexKind::Ordered => Index::Ordered(OrderedIndex::apart(apart).with_words(words)),
        }
    }

    /// Returns the kind of the index.
    #[inline(always)]
    pub fn kind(&self) -> IndexKind {
        match self {
            Index::Hash(_) => IndexKind::Hash,
            Index::Ordered(_) => IndexKind::Ordered,
        }
    }

    /// Returns whether the index is so large that what a lookup reads is hardly ever in a near
    /// cache.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        match self {
            Index::Hash(index) => index.is_far(),
            Index::Ordered(index) => index.is_far(),
        }
    }

    /// Looks a key up.
    #[inline(always)]
    pub fn get(&self, key: K) -> Lookup<M> {
        match self {
            Index::Hash(index) => index.get(key),
            Index::Ordered(index) => index.get(key),
        }
    }

    /// Looks many keys up, their probes interleaved so that their cache misses overlap. Calls
    /// `found` once a key, with the key's position, in the order of `keys`.
    #[inline(always)]
    pub fn get_many(&self, keys: &[K], found: impl FnMut(usize, Lookup<M>)) {
        match self {
            Index::Hash(index) => index.get_many(keys, found),
            Index::Ordered(index) => index.get_many(keys, found),
        }
    }

    /// Inserts `key -> value` unless the key is there. `value` is not 0.
    pub fn insert(&self, key: K, value: u64) -> Insert<M> {
        match self {
            Index::Hash(index) => index.insert(key, value),
            Index::Ordered(index) => index.insert(key, value),
        }
    }

    /// Inserts of ascending keys, which find their way from one to the next.
    pub fn ascending_inserts(&self) -> AscendingInserts<'_, M, K> {
        AscendingInserts { index: self, near: None }
    }

    /// Removes the key if it still maps to `expect`; says whether it did.
    pub fn remove(&self, key: K, expect: u64) -> bool {
        match self {
            Index::Hash(index) => index.remove(key, expect),
            Index::Ordered(index) => index.remove(key, expect),
        }
    }

    /// Visits the entries with `low <= key <= high`. Each leaf is read at one version (the one
    /// given to [`ScanVisitor::leaf`]), and no latch is held while the visitor runs. `false` if
    /// this index has no order.
    pub fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<M, K>) -> bool {
        match self {
            Index::Hash(_) => false,
            Index::Ordered(index) => {
                index.scan(low, high, direction, visitor);
                true
            }
        }
    }

    /// Returns the memory in which the leaves stand ([`Leaf::address`]). It may hold other parts of
    /// the index, too.
    pub fn leaf_memory(&self) -> Vec<Range<usize>> {
        match self {
            Index::Hash(index) => index.leaf_memory(),
            Index::Ordered(index) => index.leaf_memory(),
        }
    }

    /// Returns the bytes that the index holds.
    pub fn bytes(&self) -> usize {
        match self {
            Index::Hash(index) => index.bytes(),
            Index::Ordered(index) => index.bytes(),
        }
    }
}
