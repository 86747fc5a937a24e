//! Removes, and the unlinking of leaves that they empty.

use contend_machine::{Atomic64, Machine, Ordering, Spin};
use smallvec::SmallVec;

use super::lookup::Place;
use super::{InnerNode, LeafNode, OrderedIndex};
use crate::{Key, KeyWords};

/// An inner node on the way to a leaf.
struct Passed<'a, M: Machine, K: Key, const I: usize> {
    node: InnerNode<'a, M, K, I>,
    version: u64,
    count: usize,
    slot: usize,
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Removes the key if it still maps to `expect`; says whether it did.
    pub fn remove(&self, key: K, expect: u64) -> bool {
        let key = key.to_words();
        let mut spin = Spin::<M>::new();
        loop {
            if let Some(removed) = self.try_remove(&key, expect) {
                return removed;
            }
            spin.wait();
        }
    }

    fn try_remove(&self, key: &KeyWords, expect: u64) -> Option<bool> {
        let place = self.descend(key, |_| true)?;
        let (rank, value) = place.leaf.find(key);
        if value != expect || expect == 0 {
            return place.leaf.is_at(place.version).then_some(false);
        }
        // What was read so far is valid if the latch is got.
        if !place.leaf.latch(place.version) {
            return None;
        }
        let left = place.leaf.remove_entry(rank - 1);
        place.leaf.publish(place.version);
        if left == 0 {
            self.unlink(key);
        }
        Some(true)
    }

    /// Unlinks the leaf that covers `key`, unless it has keys again.
    #[cold]
    fn unlink(&self, key: &KeyWords) {
        let mut spin = Spin::<M>::new();
        while self.try_unlink(key).is_none() {
            spin.wait();
        }
    }

    /// `None` if another thread has come between.
    fn try_unlink(&self, key: &KeyWords) -> Option<()> {
        // Higher trees than this are of tests, or larger than memory.
        let mut path = SmallVec::<[Passed<'_, M, K, I>; 8]>::new();
        let place = self.descend(key, |visit| {
            path.push(Passed { node: visit.node, version: visit.version, count: visit.count, slot: visit.slot });
            true
        })?;
        if place.leaf.count() > 0 {
            return place.leaf.is_at(place.version).then_some(());
        }
        // The lowest node that has another child.
        let Some(fork) = path.iter().rposition(|passed| passed.count > 0) else {
            return self.lower_root();
        };
        let latched = path[fork..].iter().take_while(|passed| passed.node.latch(passed.version)).count();
        if latched == path.len() - fork && place.leaf.latch(place.version) {
            if self.bequeath(&path[fork], path.len() - 1 - fork, place.leaf) {
                self.cut(&path, fork, &place);
                return if fork == 0 && path[0].count == 1 { self.lower_root() } else { Some(()) };
            }
            place.leaf.unlatch(place.version);
        }
        for passed in &path[fork..fork + latched] {
            passed.node.unlatch(passed.version);
        }
        None
    }

    /// Takes the empty leaf, latched like the nodes from the fork down, out of the tree.
    fn cut(&self, path: &[Passed<'_, M, K, I>], fork: usize, place: &Place<'_, M, K, L, I>) {
        path[fork].node.remove_child(path[fork].slot);
        place.leaf.publish(place.version);
        for passed in &path[fork + 1..] {
            passed.node.publish(passed.version);
        }
        path[fork].node.publish(path[fork].version);
        // From now on nobody finds the nodes; who remembers them finds their versions changed.
        self.leaves.free(place.leaf.slot_of_pool(), place.leaf.stripe());
        for passed in &path[fork + 1..] {
            self.inners.free(passed.node.slot_of_pool(), passed.node.stripe());
        }
    }

    /// Hands the protocol's word of `leaf` to the leaf that will cover its range: the last one below the left neighbour at the
    /// latched fork, or the first one below the right. `height` inner levels lie between. False if that leaf, or a node on
    /// the way, is being changed: the caller holds latches, so it must not wait.
    fn bequeath(&self, fork: &Passed<'_, M, K, I>, height: usize, leaf: LeafNode<'_, M, K, L>) -> bool {
        let left = fork.slot > 0;
        let mut parent = fork.node;
        let mut parent_version = parent.version();
        let mut next = parent.child(if left { fork.slot - 1 } else { 1 });
        for _ in 0..height {
            let node = self.inner(next);
            let version = node.version();
            if !parent.is_at(parent_version) || InnerNode::<M, K, I>::is_latched(version) {
                return false;
            }
            next = node.child(if left { node.count().min(I - 1) } else { 0 });
            if !node.is_at(version) {
                return false;
            }
            (parent, parent_version) = (node, version);
        }
        let heir = self.leaf(next);
        let version = heir.version();
        if !parent.is_at(parent_version) || LeafNode::<M, K, L>::is_latched(version) || !heir.latch(version) {
            return false;
        }
        // SeqCst: who raises the word of `leaf`, then passes a SeqCst fence, then checks its version, either finds the version
        // changed (it is latched) or has its word taken over here.
        M::fence(Ordering::SeqCst);
        // Relaxed: published by the Release that gives the heir's latch back.
        heir.word().fetch_max(leaf.word().load(Ordering::Relaxed), Ordering::Relaxed);
        // The heir's keys are the same.
        heir.unlatch(version);
        true
    }

    /// While the root is an inner node with a single child, makes that child the root. `None` if another thread has come
    /// between.
    fn lower_root(&self) -> Option<()> {
        let anchor = self.anchor();
        loop {
            let anchor_version = anchor.stable_version();
            // Relaxed: validated below.
            let height = anchor.word().load(Ordering::Relaxed);
            let root = anchor.child(0);
            if !anchor.is_at(anchor_version) {
                return None;
            }
            if height == 0 {
                return Some(());
            }
            let root = self.inner(root);
            let version = root.stable_version();
            let count = root.count();
            if !anchor.is_at(anchor_version) || !root.is_at(version) {
                return None;
            }
            if count > 0 {
                return Some(());
            }
            if !anchor.latch(anchor_version) {
                return None;
            }
            if !root.latch(version) {
                anchor.unlatch(anchor_version);
                return None;
            }
            anchor.set_child(0, root.child(0));
            // Relaxed: published with the anchor's version.
            anchor.word().store(height - 1, Ordering::Relaxed);
            root.publish(version);
            anchor.publish(anchor_version);
            self.inners.free(root.slot_of_pool(), root.stripe());
        }
    }
}
