//! Removes, and the unlinking of leaves that they empty.
//!
//! A remove latches its leaf only, as an insert does ([`super::insert`]). A leaf that it empties is
//! unlinked in a second descent, since between the two another thread may have inserted there.
//!
//! **What is latched.** The *fork* is the lowest node on the path that has another child. An
//! unlinking latches the fork, the inner nodes below it (each of them with this one child), the
//! leaf, and the *heir*, the leaf that will cover the range: from the top down, and the heir last.
//! Any failure gives everything back. Path and leaf are latched from the versions of one descent,
//! so the path still leads to the empty leaf.
//!
//! **Readers.** A reader on the way to the leaf holds a version of the fork or of a node below; all
//! of them are latched before anything changes, and published with new versions afterwards. A
//! reader that has observed the empty leaf finds its version changed. The heir's version does not
//! change: its keys are the same, and its range has grown. A transaction that observed the heir has
//! observed a smaller range, which the heir still covers.
//!
//! **Protocol words.** A mark in the leaf's word must not be lost: see `bequeath`.
//!
//! **When a remove takes effect.** At the store that publishes its leaf. The unlinking afterwards
//! is housekeeping: no lookup, at whatever moment, finds other keys because of it.
//!
//! **Progress.** An unlinking waits for no latch while it holds one. If it fails, another writer
//! holds a latch or has changed a node, and the loop in `unlink` descends again. It is done when
//! the descent leads to a leaf with keys: another thread has inserted there, or has unlinked the
//! leaf, so that the descent leads to the heir.

use contend_machine::{Atomic64, Machine, Ordering, Spin};
use smallvec::SmallVec;

use super::lookup::ReachedLeaf;
use super::{InnerNode, LeafNode, Node, OrderedIndex};
use crate::{Key, KeyWords, LeafWords};

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
        let reached = self.descend::<true>(key, |_| true)?;
        let (rank, value) = reached.leaf.find(key);
        if value != expect || expect == 0 {
            // Nothing was latched: the version is checked as in a lookup.
            return reached.leaf.is_at(reached.version).then_some(false);
        }
        // All reads so far are valid if the latch is taken: the exchange is from the version at
        // which they were made.
        if !reached.leaf.latch(reached.version) {
            return None;
        }
        // The comparison with `expect` and the removal are one step, since no version came between
        // them. Otherwise a thread that removes an old record could remove the key's new one.
        let left = reached.leaf.remove_entry(rank - 1);
        // Release, in `publish`: pairs with the Acquire of `version`; a lookup sees the entry gone,
        // or the version before.
        reached.leaf.publish(reached.version);
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
        let reached = self.descend::<false>(key, |visit| {
            path.push(Passed { node: visit.node, version: visit.version, count: visit.count, slot: visit.slot });
            true
        })?;
        if reached.leaf.count() > 0 {
            // Another thread has inserted: nothing is left to be done, if that count belongs to the
            // version.
            return reached.leaf.is_at(reached.version).then_some(());
        }
        // The lowest node that has another child.
        let Some(fork) = path.iter().rposition(|passed| passed.count > 0) else {
            return self.lower_root();
        };
        // From the top down, and as far as it goes: the first that fails ends it, and no latch is
        // waited for. An unlinking that waited would keep its upper nodes from all descents.
        let latched = path[fork..].iter().take_while(|passed| passed.node.latch(passed.version)).count();
        if latched == path.len() - fork && reached.leaf.latch(reached.version) {
            if self.bequeath(&path[fork], path.len() - 1 - fork, reached.leaf) {
                self.cut(&path, fork, &reached);
                return if fork == 0 && path[0].count == 1 { self.lower_root() } else { Some(()) };
            }
            reached.leaf.unlatch(reached.version);
        }
        for passed in &path[fork..fork + latched] {
            passed.node.unlatch(passed.version);
        }
        None
    }

    /// Takes the empty leaf, latched like the nodes from the fork down, out of the tree.
    fn cut(&self, path: &[Passed<'_, M, K, I>], fork: usize, reached: &ReachedLeaf<'_, M, K, L, I>) {
        // The only change of contents. The nodes below the fork keep theirs, and no new descent
        // reaches them.
        path[fork].node.remove_child(path[fork].slot);
        // From the bottom up. A reader that finds the leaf at its new version checks a node above
        // it, which is latched or changed.
        reached.leaf.publish(reached.version);
        for passed in &path[fork + 1..] {
            passed.node.publish(passed.version);
        }
        path[fork].node.publish(path[fork].version);
        // From now on no descent finds the nodes, and a reader that remembers them finds their
        // versions changed. So they may serve again at once: versions go on from where they are
        // (`Node::latch_new`). A node that were freed before it is published could have a new owner
        // already, whose latch the store of the version would take away.
        self.leaves.free(reached.leaf.slot_of_pool(), reached.leaf.stripe());
        for passed in &path[fork + 1..] {
            self.inners.free(passed.node.slot_of_pool(), passed.node.stripe());
        }
    }

    /// Hands the protocol's word of `leaf` to the leaf that will cover its range: the last one
    /// below the left neighbour at the latched fork, or the first one below the right. `height`
    /// inner levels lie between. Returns false if that leaf, or a node on the way, is being
    /// changed: the caller holds latches, so it must not wait.
    fn bequeath(&self, fork: &Passed<'_, M, K, I>, height: usize, leaf: LeafNode<'_, M, K, L>) -> bool {
        let left = fork.slot > 0;
        let mut parent = fork.node;
        // Odd: the caller has latched the fork. The checks below compare with this value.
        let mut parent_version = parent.version();
        let mut next = parent.child(if left { fork.slot - 1 } else { 1 });
        for _ in 0..height {
            let node = self.inner(next);
            let version = node.version();
            if !parent.is_at(parent_version) || Node::<M>::is_latched(version) {
                return false;
            }
            next = node.child(if left { node.separators() } else { 0 });
            if !node.is_at(version) {
                return false;
            }
            (parent, parent_version) = (node, version);
        }
        // The latched fork keeps its neighbour below it. So a leaf that is reached by validated
        // nodes is the one that will cover the range, and the latch keeps it so: a split of the
        // heir would need it.
        let heir = self.leaf(next);
        let version = heir.version();
        if !parent.is_at(parent_version) || Node::<M>::is_latched(version) || !heir.latch(version) {
            return false;
        }
        // The heir is latched, so that no split of it is under way. The new half of such a split
        // could cover the range, and have a copy of the word from before the raise.
        //
        // SeqCst: pairs with the fence of a transaction that raises the word of `leaf` and then
        // checks its version (`Leaf::word`). `leaf` was latched before: the transaction finds that,
        // or its word is taken over here.
        M::fence(Ordering::SeqCst);
        // Relaxed: the load is ordered by the fence; the raise is published by the Release that
        // gives the heir's latch back. An insert that goes to the heir latches it (Acquire), and so
        // finds the word that the heir has inherited.
        let inherited = leaf.word().load(Ordering::Relaxed);
        match self.words {
            // Relaxed, both: as above.
            LeafWords::Times => heir.word().fetch_max(inherited, Ordering::Relaxed),
            LeafWords::Masks => heir.word().fetch_or(inherited, Ordering::Relaxed),
        };
        // The heir's keys are the same.
        heir.unlatch(version);
        true
    }

    /// While the root is an inner node with a single child, makes that child the root. `None` if
    /// another thread has come between.
    fn lower_root(&self) -> Option<()> {
        let anchor = self.anchor();
        loop {
            let anchor_version = anchor.stable_version();
            // Relaxed: validated by `is_at` below; height and root belong together.
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
            // Anchor, then root, each from the version that it was read at: the root still has a
            // single child. That child needs no latch: its keys stay, and a split of it would need
            // the latch of the root.
            if !anchor.latch(anchor_version) {
                return None;
            }
            if !root.latch(version) {
                anchor.unlatch(anchor_version);
                return None;
            }
            anchor.set_child(0, root.child(0));
            // Relaxed: published with the anchor's version, by the Release of `publish`.
            anchor.word().store(height - 1, Ordering::Relaxed);
            // The old root first: a reader that is in it finds its version changed, or has the
            // anchor's old one.
            root.publish(version);
            anchor.publish(anchor_version);
            self.inners.free(root.slot_of_pool(), root.stripe());
        }
    }
}
