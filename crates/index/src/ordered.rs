//! The ordered index: points and ranges.
//!
//! A B+-tree with optimistic lock coupling (V. Leis, M. Haubenschild, T. Neumann: "Optimistic lock
//! coupling: a scalable and efficient general-purpose synchronization method", IEEE Data
//! Engineering Bulletin 2019).
//!
//! 1. Every node has a version, odd while a writer changes the node. A reader takes a node's
//!    version, reads, and validates the version. It takes the child's version before it validates
//!    the parent, so it knows that the child was the parent's when it had that version. It follows
//!    no pointer that it has not validated.
//! 2. A writer descends like a reader, then latches what it changes by a compare-and-swap from the
//!    versions that it has read. It latches from the top down and never waits for a latch while it
//!    holds one: if it fails, it lets go and starts over.
//! 3. On the way to an insert, full inner nodes are split, so a split changes a node and its
//!    parent, never more. A leaf that grows by ascending keys is split where the next key goes, so
//!    that loading in order fills the leaves.
//! 4. A leaf that a remove empties is unlinked, with the inner nodes that have no other child; a
//!    root with a single child gives way to it. The keys of an unlinked leaf's range go to a
//!    neighbour, which takes the larger of both protocol words.
//! 5. A scan copies the part of a leaf that it needs at one version. The separators that it passed
//!    tell where the leaf ends; it goes on with that key, from the parent if that has not changed,
//!    from the root otherwise.
//!
//! # What a lookup reads
//! A leaf's first line has a byte of each key, and so tells which entry to read (`leaf`). An inner
//! node's first line tells which of its lines to search (`inner`). So a lookup of a batch reads two
//! lines of a leaf, and three of an inner node, where keys have one word. A lookup alone asks for
//! all lines of a node at once instead, if nothing else is in flight on its core: only the latency
//! counts for it.
//!
//! # Invariants
//! - The memory of a leaf never serves as inner node, nor the other way round; so a stale pointer
//!   leads to a node of its kind, whose slots hold values or children as expected. A reader that
//!   holds one finds out by the parent's version.
//! - Versions never restart: neither in a change, nor when a node is unlinked, nor when it serves
//!   again.
//! - While a leaf has one version, its keys are the same, and the range that it covers can only
//!   grow. It grows by ranges of leaves that were unlinked empty. So a reader that observed a key
//!   absent, or a range, has observed leaves. If a key is inserted there, one of these leaves
//!   changes its version, also if another leaf covers the range by then.
//! - A leaf is empty only until the remove that emptied it returns, or if it is the only one.
//!
//! # Limits
//! - Leaves that are not empty are not merged.
//! - A scan may report a leaf twice if a neighbour is unlinked meanwhile, each time with the
//!   version at which it read it; they may differ.

mod batch;
mod inner;
mod insert;
mod leaf;
mod lookup;
mod node;
mod remove;
mod scan;
mod search;

use std::ops::Range;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering};

use crate::pool::Pool;
use crate::{Key, LeafWords};
use inner::InnerNode;
pub(crate) use insert::Near;
use leaf::LeafNode;
use node::Node;

/// Keys of a leaf of an ordered index: as many as have room for a fingerprint. Under a model
/// checker the third key splits a leaf.
pub const LEAF_KEYS: usize = if cfg!(loom) { 2 } else { 32 };
/// Children of an inner node: as many as the pivots serve.
const INNER: usize = if cfg!(loom) { 4 } else { 40 };

/// Returns whether a level of a tree of this height has more nodes than fit into a near cache.
/// Level 0 is that of the leaves. Nodes are 600 to 700 bytes long, or more for keys of several
/// words, and a tree of height 2 has some hundreds of leaves.
#[inline(always)]
fn is_far_level(height: u64, level: u64) -> bool {
    height >= 2 + 2 * level
}

/// An index of points and ranges; see the module. `L` is the number of keys in a leaf, `I` that of
/// children of an inner node.
#[derive(Debug)]
pub struct OrderedIndex<M: Machine, K: Key, const L: usize = LEAF_KEYS, const I: usize = INNER> {
    /// An inner node whose only child is the root, so that the root can change like any child. Its
    /// word is the height of the tree: 0 if the root is a leaf.
    anchor: NonNull<M::U64>,
    leaves: Pool<M>,
    inners: Pool<M>,
    /// Keys whose first words differ above this many low bits never share a leaf.
    apart: u32,
    words: LeafWords,
    key: std::marker::PhantomData<K>,
}

// SAFETY: the address leads to shared words that live as long as the pool.
unsafe impl<M: Machine, K: Key, const L: usize, const I: usize> Send for OrderedIndex<M, K, L, I> {}
// SAFETY: as for `Send`; all access to the words is atomic.
unsafe impl<M: Machine, K: Key, const L: usize, const I: usize> Sync for OrderedIndex<M, K, L, I> {}

impl<M: Machine, K: Key> OrderedIndex<M, K> {
    /// Creates an empty index.
    pub fn new() -> Self {
        Self::with_fanout()
    }

    /// Creates an empty index in which keys of different families never share a leaf, nor a leaf's
    /// version. Two keys are of different families if their first words differ above the `apart`
    /// low bits; with 64 and more, all keys are one family. So the inserts and removals of one
    /// family, such as a district's orders, are no phantoms to transactions that have looked at
    /// another (a "contention-aware index": Y. Huang and others, "Opportunities for optimism in
    /// contended main-memory multicore transactions", VLDB 2020, section 4.5).
    pub fn apart(apart: u32) -> Self {
        OrderedIndex { apart, ..Self::new() }
    }
}

impl<M: Machine, K: Key> Default for OrderedIndex<M, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    const FANOUT: () = assert!(L >= 2 && I >= 4, "a split must leave both halves with something");

    /// Returns the same index, which is empty, with leaf words of this kind.
    pub fn with_words(self, words: LeafWords) -> Self {
        OrderedIndex { words, ..self }
    }

    /// Creates an empty index with nodes of the sizes that its type names; small ones are for
    /// tests.
    pub fn with_fanout() -> Self {
        const { Self::FANOUT };
        let leaves = Pool::new(LeafNode::<M, K, L>::WORDS, node::LINK, 0);
        let inners = Pool::new(InnerNode::<M, K, I>::WORDS, node::LINK, 0);
        let index = OrderedIndex {
            anchor: inners.alloc(0),
            leaves,
            inners,
            apart: u64::BITS,
            words: LeafWords::Times,
            key: std::marker::PhantomData,
        };
        // The nodes are zeros: no keys, an even version.
        index.anchor().set_child(0, index.leaves.alloc(0).as_ptr());
        index
    }

    /// Returns the memory of the leaves.
    pub(crate) fn leaf_memory(&self) -> Vec<Range<usize>> {
        self.leaves.memory()
    }

    /// Returns the bytes that the index holds.
    pub fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes() + size_of::<Self>()
    }

    /// Returns whether the index is so large that a leaf is hardly ever in a near cache.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        is_far_level(self.height() as u64, 0)
    }

    /// Levels of inner nodes.
    pub fn height(&self) -> usize {
        // Relaxed: a statistic.
        self.anchor().word().load(Ordering::Relaxed) as usize
    }

    #[inline(always)]
    fn anchor(&self) -> InnerNode<'_, M, K, I> {
        self.inner(self.anchor.as_ptr())
    }

    /// The inner node at an address that was read in a validated inner node of a level above 1, or
    /// came from the pool.
    #[inline(always)]
    fn inner(&self, words: *mut M::U64) -> InnerNode<'_, M, K, I> {
        // SAFETY: such addresses lead to slots of `inners`, which live and keep their kind as long
        // as the index.
        unsafe { InnerNode::new(words) }
    }

    /// The leaf at an address that was read in a validated inner node of level 1, or came from the
    /// pool.
    #[inline(always)]
    fn leaf(&self, words: *mut M::U64) -> LeafNode<'_, M, K, L> {
        // SAFETY: such addresses lead to slots of `leaves`, which live and keep their kind as long
        // as the index.
        unsafe { LeafNode::new(words) }
    }
}
