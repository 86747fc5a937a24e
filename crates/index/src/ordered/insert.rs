//! Inserts and splits.
//!
//! A writer reads without a latch, and then latches what it changes by an exchange from the
//! versions that it has read (`Node::latch`). If the exchange succeeds no other writer changed the
//! node since the version was loaded: a version never returns to a former value, and an exchange
//! reads the latest one. So all that was read under the version still holds, and need not be read
//! again.
//!
//! **No deadlock.** Nodes are latched from the top down, and no writer waits for a latch while it
//! holds one: a writer that fails to latch gives back what it has and starts over.
//!
//! **The order of publication.** A split publishes the new right half first, then the left half,
//! then the parent. A reader that finds the left half at its new version has the old parent's
//! version, which is latched or changed by then; so it starts over, and does not take a key for
//! absent that is in the right half.
//!
//! **When an insert takes effect.** At the store that publishes the leaf with the new key. After a
//! split it is the store that publishes the parent: no descent gets to either half before that.
//! Suppose that two inserts of one key find it absent. If they have seen one version of one leaf,
//! only one exchange from it succeeds, and the other insert searches again. If they have seen two
//! versions or two leaves, the earlier one's leaf has changed since, and its exchange fails.

use std::marker::PhantomData;

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::lookup::{ReachedLeaf, Visit};
use super::{InnerNode, OrderedIndex};
use crate::{Change, Insert, Key, KeyWords};

/// Where a key was inserted: a leaf, and the range that it covered right after.
///
/// The range is read on the way down, so it belongs to validated versions of the inner nodes. A
/// leaf gives up a part of its range only by a split, which changes its version. So as long as the
/// leaf has `version`, it covers `last..end`, or more.
#[derive(Clone, Debug)]
pub(crate) struct Near<M> {
    /// The leaf's address; of this index.
    leaf: usize,
    /// Its version after the insert.
    version: u64,
    last: KeyWords,
    /// The first key that the leaf does not cover.
    end: Option<KeyWords>,
    of: PhantomData<fn() -> M>,
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Inserts `key -> value` unless the key is there. `value` is not 0.
    ///
    /// # Panics
    /// `value` is 0.
    pub fn insert(&self, key: K, value: u64) -> Insert<M> {
        self.insert_near(&mut None, key, value)
    }

    /// As [`OrderedIndex::insert`]; if `near` says where the last key went, and this one goes
    /// there, too, without a descent. Leaves behind where this one went.
    pub(crate) fn insert_near(&self, near: &mut Option<Near<M>>, key: K, value: u64) -> Insert<M> {
        assert_ne!(value, 0, "0 means absent");
        let key = key.to_words();
        if let Some(inserted) = near.as_mut().and_then(|near| self.try_insert_near(near, &key, value)) {
            return inserted;
        }
        let mut spin = Spin::<M>::new();
        loop {
            let mut end = None;
            if let Some(result) = self.try_insert(&key, value, &mut end) {
                *near = match &result {
                    Insert::Inserted(Change { leaf, after, split: None, .. }) => {
                        Some(Near { leaf: leaf.address(), version: *after, last: key, end, of: PhantomData })
                    }
                    _ => None,
                };
                return result;
            }
            spin.wait();
        }
    }

    fn try_insert_near(&self, near: &mut Near<M>, key: &KeyWords, value: u64) -> Option<Insert<M>> {
        // `last` is a key of the leaf, so the leaf covers all from there to `end`, or more.
        let covered = near.last <= *key && near.end.is_none_or(|end| *key < end);
        if !covered || self.family(key) != self.family(&near.last) {
            return None;
        }
        let leaf = self.leaf(std::ptr::with_exposed_provenance_mut(near.leaf));
        // Relaxed loads of a node that may be changing, or serving elsewhere: nothing is concluded
        // before the latch is held. No Acquire load of the version comes first, as in a descent. It
        // is not needed: the version is this caller's own store, so what it has read is at least as
        // new.
        let (rank, existing) = leaf.find(key);
        // The leaf covers the same range as long as it has its version. The earlier reads are valid
        // if the latch is taken: the exchange is from `near.version`, which this caller published
        // itself. A later writer's keys can't be among them: its exchange would come after this
        // one.
        if existing != 0 || leaf.count() == L || !leaf.latch(near.version) {
            return None;
        }
        leaf.insert_entry(rank, key, value);
        let before = near.version;
        near.version = leaf.publish(before);
        near.last = *key;
        Some(Insert::Inserted(Change { leaf: leaf.leaf(), before, after: near.version, split: None }))
    }

    /// Leaves in `end` the first key that the leaf does not cover, if there is one.
    fn try_insert(&self, key: &KeyWords, value: u64, end: &mut Option<KeyWords>) -> Option<Insert<M>> {
        // Whether the way down keeps to the right edge of the tree.
        let mut rightmost = true;
        let reached = self.descend::<true>(key, |visit| {
            rightmost &= visit.slot == visit.count;
            if visit.slot < visit.count {
                *end = Some(visit.node.key(visit.slot));
            }
            if visit.count == I - 1 {
                self.split_inner(visit, rightmost);
                return false;
            }
            true
        })?;
        let (leaf, before) = (reached.leaf, reached.version);
        let (rank, existing) = leaf.find(key);
        if existing != 0 {
            // Nothing was latched, so the version has to be checked for itself, as a lookup does.
            return leaf.is_at(before).then(|| Insert::Exists(Self::lookup(leaf, before, existing)));
        }
        // All reads so far, rank and absence included, are valid if the latch is taken below.
        let count = leaf.count();
        let strange = count > 0 && self.family(key) != self.family(&leaf.key(0));
        if count == L || strange {
            return self.split_leaf(&reached, rank, rightmost, strange, key, value);
        }
        // Acquire in `latch`, from the version of the descent: neither this leaf nor its range has
        // changed. The parent need not be checked again: a split of this leaf, or its unlinking,
        // would have changed the leaf's version as well.
        if !leaf.latch(before) {
            return None;
        }
        leaf.insert_entry(rank, key, value);
        let after = leaf.publish(before);
        Some(Insert::Inserted(Change { leaf: leaf.leaf(), before, after, split: None }))
    }

    /// What keys of one family have in common. A leaf has keys of one family only, so its first key
    /// tells for all; an empty leaf takes any. Read before the latch is taken, and valid if it is.
    #[inline(always)]
    fn family(&self, key: &KeyWords) -> u64 {
        key[0].checked_shr(self.apart).unwrap_or(0)
    }

    /// Inserts into a leaf that is full, or whose keys are all of another family: these the key
    /// comes before or behind.
    #[cold]
    fn split_leaf(
        &self,
        reached: &ReachedLeaf<'_, M, K, L, I>,
        rank: usize,
        rightmost: bool,
        strange: bool,
        key: &KeyWords,
        value: u64,
    ) -> Option<Insert<M>> {
        let &ReachedLeaf { leaf, version, parent, parent_version, slot } = reached;
        // The parent first, from the version at which `leaf` was its child `slot`: it is so until
        // the latch is given back.
        if !parent.latch(parent_version) {
            return None;
        }
        // Not waited for: another writer may hold the leaf and wait for nothing, but one that waits
        // here would keep the parent.
        if !leaf.latch(version) {
            // Nothing was changed: the same version again.
            parent.unlatch(parent_version);
            return None;
        }
        let right = self.leaf(self.leaves.alloc(leaf.stripe()).as_ptr());
        // Latched although no path leads to it: a reader may remember the memory as another leaf,
        // and must find it changed. While these latches are held only those of the pools are waited
        // for.
        let right_version = right.latch_new();
        // Only this thread changes the two leaves from here on: plain relaxed loads and stores will
        // do, until the Release stores that publish them. Keys that ascend, or come at the very
        // end, will go on there: the left leaf stays full.
        let ascending = rank > 0 && leaf.hint() == rank;
        let at = if strange || ascending || (rightmost && rank >= L - L / 8) { rank } else { L / 2 };
        let count = leaf.count();
        leaf.split(right, at);
        if rank > at || at == count {
            right.insert_entry(rank - at, key, value);
        } else {
            leaf.insert_entry(rank, key, value);
        }
        // SeqCst: pairs with the fence of a transaction that raises the leaf's word and then checks
        // the leaf's version (`Leaf::word`): store and load on either side. The latch above is this
        // side's store, the load below its load. So the transaction finds the version odd or
        // changed, or its word is copied here; never neither.
        M::fence(Ordering::SeqCst);
        // Relaxed: the load is ordered by the fence; the store is published by the Release of
        // `right.publish`.
        right.word().store(leaf.word().load(Ordering::Relaxed), Ordering::Relaxed);
        let mut separator = right.key(0);
        if strange {
            // The first key that the family may have, so that its smaller keys go to the same leaf.
            separator = [self.family(&separator) << self.apart, 0, 0, 0];
        }
        let root = self.adopt(parent, slot, &separator, leaf.words(), right.words());
        // Right, left, parent: see the module.
        let split = right.publish(right_version);
        let after = leaf.publish(version);
        Self::publish_adoption(parent, parent_version, root);
        let change = Change { leaf: leaf.leaf(), before: version, after, split: Some((right.leaf(), split)) };
        Some(Insert::Inserted(change))
    }

    /// Splits a full inner node, unless another thread has come between. The caller starts over in
    /// any case.
    ///
    /// Latches and publishes as [`OrderedIndex::split_leaf`] does. Full nodes are split on the way
    /// down, so that a split of a child always finds room in its parent, and latches two levels at
    /// most.
    #[cold]
    fn split_inner(&self, visit: &Visit<'_, M, K, I>, rightmost: bool) {
        let (node, count, parent) = (visit.node, visit.count, visit.parent);
        if !parent.latch(visit.parent_version) {
            return;
        }
        if !node.latch(visit.version) {
            parent.unlatch(visit.parent_version);
            return;
        }
        let right = self.inner(self.inners.alloc(node.stripe()).as_ptr());
        let right_version = right.latch_new();
        // The separator that goes up. At the right edge the left half stays full.
        let middle = if rightmost { count - 2 } else { count / 2 };
        let separator = node.split(right, middle);
        let root = self.adopt(parent, visit.parent_slot, &separator, node.words(), right.words());
        // Right, left, parent: see the module.
        right.publish(right_version);
        node.publish(visit.version);
        Self::publish_adoption(parent, visit.parent_version, root);
    }

    /// Makes `right` the child next to `left`, child `slot` of the latched `parent`. Neither is
    /// reached by a new descent before the caller publishes `parent`, whose latch makes descents
    /// wait. Above the root that takes a new root, which is returned latched.
    fn adopt(
        &self,
        parent: InnerNode<'_, M, K, I>,
        slot: usize,
        separator: &KeyWords,
        left: *mut M::U64,
        right: *mut M::U64,
    ) -> Option<(InnerNode<'_, M, K, I>, u64)> {
        if parent != self.anchor() {
            parent.insert_child(slot, separator, right);
            return None;
        }
        let root = self.inner(self.inners.alloc(left as usize >> 12).as_ptr());
        let version = root.latch_new();
        root.set_count(0, 0);
        root.set_child(0, left);
        root.insert_child(0, separator, right);
        parent.set_child(0, root.words());
        // Relaxed: published with the anchor's version, by `publish_adoption`; a descent validates
        // height and root together. With the new height and the old root it would take a leaf for
        // an inner node. The anchor's latch keeps other writers away, so no addition is lost.
        parent.word().fetch_add(1, Ordering::Relaxed);
        Some((root, version))
    }

    fn publish_adoption(
        parent: InnerNode<'_, M, K, I>,
        parent_version: u64,
        root: Option<(InnerNode<'_, M, K, I>, u64)>,
    ) {
        if let Some((root, version)) = root {
            // Before the anchor, which leads to it: a reader that sees the anchor's new version
            // finds the root unlatched. It would only wait otherwise. A reader of the root's memory
            // from another life finds this version or the odd one.
            root.publish(version);
        }
        // Release, in `publish`: separators and children come before; pairs with the Acquire of the
        // next descent.
        parent.publish(parent_version);
    }
}
