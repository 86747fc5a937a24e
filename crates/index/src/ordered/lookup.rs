//! The descent that every operation begins with, and the lookup of one key.
//!
//! A descent latches nothing. It rests on two arguments.
//!
//! **A node's contents belong to its version.** The version is loaded with Acquire before the node
//! is read, and again after an Acquire fence (`Node::is_at`). If the two are equal, no change came
//! between: see `Node::latch`.
//!
//! **The child was the parent's child at both versions.** The order is: load the parent's version
//! `p`; read the child's address; check `p`; load the child's version `c`; check `p` again. A split
//! or an unlinking latches the parent before it changes the child, and publishes the parent last.
//! Suppose that one moves keys out of the child, and that `p` is the parent's version before it,
//! but `c` the child's version after it. Its latch of the parent happens before its publication of
//! the child. So the second check, which comes after the Acquire load of `c`, finds the parent
//! latched or changed. If instead `c` is the child's version before it, the child's own check finds
//! `c` no longer. So the keys of the child at `c` are those that the parent's separators promise at
//! `p`.

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::{InnerNode, LeafNode, Node, OrderedIndex, is_far_level};
use crate::{Key, KeyWords, Lookup};

/// A leaf, and how the descent came to it. At `parent_version` the leaf was child `slot` of
/// `parent`, and had `version`.
///
/// A writer that latches the parent from `parent_version` and the leaf from `version` thereby
/// proves that both still hold.
pub(super) struct ReachedLeaf<'a, M: Machine, K: Key, const L: usize, const I: usize> {
    pub(super) leaf: LeafNode<'a, M, K, L>,
    pub(super) version: u64,
    pub(super) parent: InnerNode<'a, M, K, I>,
    pub(super) parent_version: u64,
    pub(super) slot: usize,
}

/// An inner node on the way down.
pub(super) struct Visit<'a, M: Machine, K: Key, const I: usize> {
    pub(super) node: InnerNode<'a, M, K, I>,
    pub(super) version: u64,
    pub(super) count: usize,
    /// The child that the way goes on with.
    pub(super) slot: usize,
    pub(super) parent: InnerNode<'a, M, K, I>,
    pub(super) parent_version: u64,
    /// The child of the parent that the node is.
    pub(super) parent_slot: usize,
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Descends to the leaf that covers `key`. Returns `None` if another thread has come between,
    /// or `visit` returns false: the caller starts over.
    ///
    /// What `visit` reads in the node is valid only if the descent gets beyond that node. `WHOLE`
    /// says that the caller needs the leaf's entries, and not the first line only.
    #[inline(always)]
    pub(super) fn descend<'a, const WHOLE: bool>(
        &'a self,
        key: &KeyWords,
        mut visit: impl FnMut(&Visit<'a, M, K, I>) -> bool,
    ) -> Option<ReachedLeaf<'a, M, K, L, I>> {
        let mut parent = self.anchor();
        let mut parent_version = parent.stable_version();
        // Relaxed: validated by the first `is_at` below, as is all that is read in nodes; so height
        // and root belong together.
        let height = parent.word().load(Ordering::Relaxed);
        let (mut level, mut slot) = (height, 0);
        loop {
            // Any word, as long as the parent is not validated: it is prefetched, which any address
            // may be, but not followed.
            let child = parent.child(slot);
            if (WHOLE || !M::overlaps()) && level == 0 {
                Node::<M>::prefetch(child, LeafNode::<M, K, L>::WORDS);
            }
            if M::overlaps() && is_far_level(height, level) {
                if level > 0 {
                    Node::<M>::prefetch(child, InnerNode::<M, K, I>::SEARCHED);
                }
                M::await_line(child);
            }
            if !parent.is_at(parent_version) {
                return None;
            }
            // From here on the child's address is known to be good: it was there at
            // `parent_version`. The node may have been unlinked since, but its memory keeps its
            // kind.
            if level == 0 {
                let leaf = self.leaf(child);
                let version = leaf.stable_version();
                // The second check of the parent, after the Acquire load of the leaf's version: see
                // the module.
                return parent.is_at(parent_version).then_some(ReachedLeaf {
                    leaf,
                    version,
                    parent,
                    parent_version,
                    slot,
                });
            }
            let node = self.inner(child);
            let version = node.stable_version();
            // Likewise for an inner node.
            if !parent.is_at(parent_version) {
                return None;
            }
            // What is read here is validated in the next round, before the address that it leads to
            // is followed.
            let count = node.separators();
            let next = node.rank(key);
            if !visit(&Visit { node, version, count, slot: next, parent, parent_version, parent_slot: slot }) {
                return None;
            }
            (parent, parent_version, slot) = (node, version, next);
            level -= 1;
        }
    }

    /// Looks a key up.
    #[inline]
    pub fn get(&self, key: K) -> Lookup<M> {
        let key = key.to_words();
        let mut spin = Spin::<M>::new();
        loop {
            if let Some(reached) = self.descend::<false>(&key, |_| true) {
                let leaf = reached.leaf;
                let candidates = leaf.candidates(&key);
                if M::overlaps() && self.is_far() {
                    leaf.await_first(candidates);
                }
                let value = leaf.value_among(candidates, &key);
                // The entry belongs to the version, which the caller may observe: the set of keys
                // had it, or had it not.
                if leaf.is_at(reached.version) {
                    return Self::lookup(leaf, reached.version, value);
                }
            }
            spin.wait();
        }
    }

    #[inline(always)]
    pub(super) fn lookup(leaf: LeafNode<'_, M, K, L>, version: u64, value: u64) -> Lookup<M> {
        Lookup { value: (value != 0).then_some(value), leaf: leaf.leaf(), version }
    }
}
