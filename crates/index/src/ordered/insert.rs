//! Inserts and splits.

use std::marker::PhantomData;

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::lookup::{Place, Visit};
use super::{InnerNode, OrderedIndex};
use crate::{Change, Insert, Key, KeyWords};

/// Where a key was inserted.
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

    /// As [`OrderedIndex::insert`]; if `near` says where the last key went, and this one goes there, too, without a descent. Leaves
    /// behind where this one went.
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
        let covered = near.last <= *key && near.end.is_none_or(|end| *key < end);
        if !covered || self.family(key) != self.family(&near.last) {
            return None;
        }
        let leaf = self.leaf(std::ptr::with_exposed_provenance_mut(near.leaf));
        let (rank, existing) = leaf.find(key);
        // The leaf covers what it covered as long as it has its version. What was read is valid if the latch is got.
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
        let place = self.descend(key, |visit| {
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
        let (leaf, before) = (place.leaf, place.version);
        let (rank, existing) = leaf.find(key);
        if existing != 0 {
            return leaf.is_at(before).then(|| Insert::Exists(Self::lookup(leaf, before, existing)));
        }
        // What was read so far is valid if the latch is got.
        let count = leaf.count();
        let strange = count > 0 && self.family(key) != self.family(&leaf.key(0));
        if count == L || strange {
            return self.split_leaf(&place, rank, rightmost, strange, key, value);
        }
        if !leaf.latch(before) {
            return None;
        }
        leaf.insert_entry(rank, key, value);
        let after = leaf.publish(before);
        Some(Insert::Inserted(Change { leaf: leaf.leaf(), before, after, split: None }))
    }

    /// What keys of one family have in common.
    #[inline(always)]
    fn family(&self, key: &KeyWords) -> u64 {
        key[0].checked_shr(self.apart).unwrap_or(0)
    }

    /// Inserts into a leaf that is full, or whose keys are all of another family: these the key comes before or behind.
    #[cold]
    fn split_leaf(
        &self,
        place: &Place<'_, M, K, L, I>,
        rank: usize,
        rightmost: bool,
        strange: bool,
        key: &KeyWords,
        value: u64,
    ) -> Option<Insert<M>> {
        let &Place { leaf, version, parent, parent_version, slot } = place;
        if !parent.latch(parent_version) {
            return None;
        }
        if !leaf.latch(version) {
            parent.unlatch(parent_version);
            return None;
        }
        let right = self.leaf(self.leaves.alloc(leaf.stripe()).as_ptr());
        let right_version = right.latch_new();
        // Keys that ascend, or come at the very end, will go on there: the left leaf stays full.
        let ascending = rank > 0 && leaf.hint() == rank;
        let at = if strange || ascending || (rightmost && rank >= L - L / 8) { rank } else { L / 2 };
        let count = leaf.count();
        leaf.copy_tail(right, at, count, count);
        right.set_count(count - at, 0);
        leaf.set_count(at, leaf.hint());
        if rank > at || at == count {
            right.insert_entry(rank - at, key, value);
        } else {
            leaf.insert_entry(rank, key, value);
        }
        // SeqCst: who raises the leaf's word, then passes a SeqCst fence, then checks the leaf's version, either finds the
        // version changed or has its word copied here.
        M::fence(Ordering::SeqCst);
        // Relaxed: published with the new leaf's version.
        right.word().store(leaf.word().load(Ordering::Relaxed), Ordering::Relaxed);
        let mut separator = right.key(0);
        if strange {
            // The first key that the family may have, so that its smaller keys go to the same leaf.
            separator = [self.family(&separator) << self.apart, 0, 0, 0];
        }
        let root = self.adopt(parent, slot, &separator, leaf.words(), right.words());
        let split = right.publish(right_version);
        let after = leaf.publish(version);
        Self::publish_adoption(parent, parent_version, root);
        let change = Change { leaf: leaf.leaf(), before: version, after, split: Some((right.leaf(), split)) };
        Some(Insert::Inserted(change))
    }

    /// Splits a full inner node, unless another thread has come between. The caller starts over in any case.
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
        node.copy_tail(right, middle + 1, count, count + 1);
        right.set_count(count - middle - 1, 0);
        let separator = node.key(middle);
        node.set_count(middle, 0);
        let root = self.adopt(parent, visit.parent_slot, &separator, node.words(), right.words());
        right.publish(right_version);
        node.publish(visit.version);
        Self::publish_adoption(parent, visit.parent_version, root);
    }

    /// Makes `right` the child next to `left`, child `slot` of the latched `parent`. Above the root that takes a new root,
    /// which is returned latched.
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
        // Relaxed: published with the anchor's version.
        parent.word().fetch_add(1, Ordering::Relaxed);
        Some((root, version))
    }

    fn publish_adoption(
        parent: InnerNode<'_, M, K, I>,
        parent_version: u64,
        root: Option<(InnerNode<'_, M, K, I>, u64)>,
    ) {
        if let Some((root, version)) = root {
            root.publish(version);
        }
        parent.publish(parent_version);
    }
}
