//! The descent that every operation begins with, and the lookup of one key.

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::{InnerNode, LeafNode, Node, OrderedIndex};
use crate::{Key, KeyWords, Lookup};

/// A leaf, and how the descent came to it. At the version of the parent the leaf was its child `slot`, and had its version.
pub(super) struct Place<'a, M: Machine, K: Key, const L: usize, const I: usize> {
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
    /// Descends to the leaf that covers `key`. `None` if another thread has come between, or `visit` returns false: start over.
    ///
    /// What `visit` reads in the node is valid only if the descent gets beyond that node.
    #[inline(always)]
    pub(super) fn descend<'a>(
        &'a self,
        key: &KeyWords,
        mut visit: impl FnMut(&Visit<'a, M, K, I>) -> bool,
    ) -> Option<Place<'a, M, K, L, I>> {
        let mut parent = self.anchor();
        let mut parent_version = parent.stable_version();
        // Relaxed: validated below, as is all that is read in nodes.
        let mut level = parent.word().load(Ordering::Relaxed);
        let mut slot = 0;
        loop {
            let child = parent.child(slot);
            if level == 0 {
                LeafNode::<M, K, L>::prefetch(child, true);
            }
            if !parent.is_at(parent_version) {
                return None;
            }
            // From here on the child's address is known to be good.
            if level == 0 {
                let leaf = self.leaf(child);
                let version = leaf.stable_version();
                return parent.is_at(parent_version).then_some(Place { leaf, version, parent, parent_version, slot });
            }
            let node = self.inner(child);
            let version = node.stable_version();
            if !parent.is_at(parent_version) {
                return None;
            }
            let count = node.count().min(I - 1);
            let next = node.rank(key, count);
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
            if let Some(place) = self.descend(&key, |_| true) {
                let (_, value) = place.leaf.find(&key);
                if place.leaf.is_at(place.version) {
                    return Self::lookup(place.leaf, place.version, value);
                }
            }
            spin.wait();
        }
    }

    #[inline(always)]
    pub(super) fn lookup(leaf: Node<'_, M, K, L>, version: u64, value: u64) -> Lookup<M> {
        Lookup { value: (value != 0).then_some(value), leaf: leaf.leaf(), version }
    }
}
