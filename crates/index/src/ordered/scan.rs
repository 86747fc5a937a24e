//! Scans of ranges.
//!
//! A scan copies the entries of one leaf at a time, at one version of the leaf, and holds no latch
//! while the visitor runs. So a whole scan is not one state of the index. Its guarantee is about
//! each leaf: the reported leaves, at the reported versions, cover the range without a gap. A
//! transaction that validates these versions at its commit has seen all keys of the range.
//!
//! **How a leaf is copied** (`copy_leaf`). The scan loads the leaf's version (Acquire), then
//! validates the parent, then copies the entries, then passes the Acquire fence of `Node::is_at`
//! and loads the version again. The order of the first two steps excludes that the leaf belonged to
//! another range: at a time when it had this version, it was still the parent's child for these
//! bounds. The seqlock of the last steps excludes a copy of two versions.
//!
//! **How the next leaf is found.** The scan goes on at the bound that the separators gave, and
//! never at the last key that it has copied. A key that is inserted between that last key and the
//! bound goes to the copied leaf, and changes its version. So it can't fall into a gap between two
//! reported leaves. If the parent has not changed since (`find_near`), the scan goes through it;
//! otherwise it starts again at the root.
//!
//! **Example.** A scan has copied a leaf that covers the keys below 30, and its last key is 20. Now
//! another thread inserts 25. The scan goes on at 30 and does not see it. But 25 went to the copied
//! leaf, so the leaf's version has changed, and the validation of the scanning transaction fails.
//! It also fails if the leaf was full and was split: the split changes the version of the left
//! half, and the right half has keys below 30 only.
//!
//! **A bound stays true.** Bounds are read on the way down, from nodes that may change afterwards.
//! A node gives up a part of its range only when it is split, which changes its version. When a
//! neighbour is unlinked, the node's range grows. So while a leaf, or a parent, has the version at
//! which the scan read it, it covers its bounds or more.
//!
//! **Progress.** A scan holds no latch and waits only for writers that hold one. Each leaf takes it
//! to a later key, or to an earlier one if it goes backward. It copies a leaf again only because a
//! writer has changed the leaf or a node above it.

use std::mem::MaybeUninit;

use contend_machine::{Machine, Spin};

use super::{InnerNode, LeafNode, Node, OrderedIndex};
use crate::{Direction, Key, KeyWords, ScanVisitor};

/// The keys that a node covers: from `low` (inclusive) to `high` (exclusive). `None` stands for no
/// bound.
///
/// The node may cover more keys: when a neighbour of its parent is unlinked, neither the node's
/// version nor the parent's changes.
#[derive(Clone, Copy, Default)]
struct Bounds {
    low: Option<KeyWords>,
    high: Option<KeyWords>,
}

impl Bounds {
    /// Returns the bounds of child `slot` of a node with these bounds. The caller validates the
    /// node.
    #[inline(always)]
    fn of_child<M: Machine, K: Key, const I: usize>(
        self,
        node: InnerNode<'_, M, K, I>,
        count: usize,
        slot: usize,
    ) -> Self {
        Bounds {
            low: if slot > 0 { Some(node.key(slot - 1)) } else { self.low },
            high: if slot < count { Some(node.key(slot)) } else { self.high },
        }
    }

    fn contain(&self, key: &KeyWords) -> bool {
        self.low.is_none_or(|low| low <= *key) && self.high.is_none_or(|high| *key < high)
    }
}

/// The parent of the leaf that a scan has read last.
struct Parent<'a, M: Machine, K: Key, const I: usize> {
    /// Nothing keeps the node from being changed, or freed, between two leaves: `find_near`
    /// compares its version.
    node: InnerNode<'a, M, K, I>,
    version: u64,
    bounds: Bounds,
}

/// A leaf that covers a key, with the range that it covers at this version.
struct CoveringLeaf<'a, M: Machine, K: Key, const L: usize> {
    leaf: LeafNode<'a, M, K, L>,
    version: u64,
    bounds: Bounds,
}

impl<M: Machine, K: Key, const L: usize> CoveringLeaf<'_, M, K, L> {
    /// Returns the positions of the entries in `low..=high` and within the leaf's bounds. The scan
    /// visits the keys beyond the bounds later.
    fn positions(&self, low: &KeyWords, high: &KeyWords) -> (usize, usize) {
        // The leaf may be changing. Then the positions are any that lie in it, with `first` not
        // above `end`, so that the copy stays inside; and the check after the copy fails.
        let count = self.leaf.filled();
        let first = self.leaf.lower_bound(self.bounds.low.as_ref().map_or(low, |bound| bound.max(low)), count);
        // If the leaf has inherited a neighbour's range, it may have keys beyond its bounds. They
        // were inserted after the bounds were read. Reported now, they would be reported twice: the
        // scan will come to the bound, and to this leaf or its neighbour, once more.
        let end = match &self.bounds.high {
            Some(bound) if bound <= high => self.leaf.lower_bound(bound, count),
            _ => self.leaf.rank(high, count),
        };
        (first, end.max(first))
    }
}

/// The entries of one leaf that a scan wants. They are the scan's own: the visitor sees a copy that
/// was checked, and may take as long as it likes, or use the index itself.
///
/// The first `count` entries are initialised, and the others are not: most scans need few.
struct Copied<K, const L: usize> {
    entries: [MaybeUninit<(K, u64)>; L],
    count: usize,
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Visits the entries with `low <= key <= high`, in order. Each leaf is copied at one version,
    /// which [`ScanVisitor::leaf`] gets. No latch is held while the visitor runs.
    pub fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<M, K>) {
        let mut copied = Copied { entries: [const { MaybeUninit::uninit() }; L], count: 0 };
        let (mut low, mut high) = (low.to_words(), high.to_words());
        if low > high {
            return;
        }
        let mut parent = None;
        loop {
            let from = match direction {
                Direction::Forward => &low,
                Direction::Backward => &high,
            };
            let found = self.copy_leaf(from, &low, &high, direction, &mut parent, &mut copied);
            // The leaf comes before its entries: a visitor that stops at an entry has noted the
            // leaf that protects what it has seen, the keys between the entries included.
            if visitor.leaf(found.leaf.leaf(), found.version).is_break() {
                return;
            }
            for i in 0..copied.count {
                let i = if direction == Direction::Forward { i } else { copied.count - 1 - i };
                // SAFETY: `copy_leaf` has written the first `count` entries, and `i` is less.
                let (key, value) = unsafe { copied.entries[i].assume_init() };
                if visitor.entry(key, value).is_break() {
                    return;
                }
            }
            // The scan goes on at the leaf's bound, and not at its last key: an insert before the
            // bound changes the version of a leaf that was reported.
            match (direction, found.bounds) {
                (Direction::Forward, Bounds { high: Some(end), .. }) if end <= high => low = end,
                (Direction::Backward, Bounds { low: Some(start), .. }) if start > low => high = before::<K>(start),
                _ => return,
            }
        }
    }

    /// Copies the entries in `low..=high` of the leaf that covers `from`, and returns the leaf.
    fn copy_leaf<'a>(
        &'a self,
        from: &KeyWords,
        low: &KeyWords,
        high: &KeyWords,
        direction: Direction,
        parent: &mut Option<Parent<'a, M, K, I>>,
        copied: &mut Copied<K, L>,
    ) -> CoveringLeaf<'a, M, K, L> {
        let mut spin = Spin::<M>::new();
        loop {
            // The way by the parent costs two nodes' checks instead of a descent. It is only tried:
            // once the parent has changed, its version never comes back, and the descent brings
            // another parent.
            let near = parent.as_ref().and_then(|parent| self.find_near(parent, from, direction));
            if let Some(found) = near.or_else(|| self.find_from_root(from, parent)) {
                let (first, end) = found.positions(low, high);
                copied.count = end - first;
                for i in 0..copied.count {
                    copied.entries[i].write((K::from_words(found.leaf.key(first + i)), found.leaf.value(first + i)));
                }
                // The copy takes effect here: if the leaf is unchanged, keys and values are those
                // of `found.version`. Acquire fence, in `is_at`: pairs with the Release fence of
                // `Node::latch`.
                if found.leaf.is_at(found.version) {
                    return found;
                }
            }
            spin.wait();
        }
    }

    /// Returns the leaf that covers `from`, through the parent of the leaf before. `None` if that
    /// doesn't cover `from`, or has changed.
    fn find_near<'a>(
        &'a self,
        parent: &Parent<'a, M, K, I>,
        from: &KeyWords,
        direction: Direction,
    ) -> Option<CoveringLeaf<'a, M, K, L>> {
        if !parent.bounds.contain(from) {
            return None;
        }
        let node = parent.node;
        // The version was loaded (Acquire) when the scan came by this node first. What is read now
        // is of that version, or of a change since; the first check below tells which.
        let count = node.separators();
        let slot = node.rank(from);
        let bounds = parent.bounds.of_child(node, count, slot);
        let child = node.child(slot);
        let next = match direction {
            Direction::Forward => (slot + 1).min(count),
            Direction::Backward => slot.saturating_sub(1),
        };
        let next = node.child(next);
        // Before the child is followed: its address, the slot and the bounds are of one version.
        if !node.is_at(parent.version) {
            return None;
        }
        // The leaf after this one, so that it comes while the visitor sees this one's entries.
        Node::<M>::prefetch(next, LeafNode::<M, K, L>::WORDS);
        let leaf = self.leaf(child);
        let version = leaf.stable_version();
        // Again, after the leaf's version was loaded (`super::lookup`). Suppose that a split moved
        // keys out of the leaf between the check above and that load. Without this check the scan
        // would copy the left half, at its new version, for the bounds of both.
        node.is_at(parent.version).then_some(CoveringLeaf { leaf, version, bounds })
    }

    fn find_from_root<'a>(
        &'a self,
        from: &KeyWords,
        parent: &mut Option<Parent<'a, M, K, I>>,
    ) -> Option<CoveringLeaf<'a, M, K, L>> {
        // There was none yet, or it has changed, or it does not cover the key.
        *parent = None;
        let (mut above, mut bounds) = (Bounds::default(), Bounds::default());
        // `visit` sees each node before it is validated. The bounds that it leaves are used only if
        // the descent has got to the leaf, which has validated all nodes on the way.
        let reached = self.descend::<true>(from, |visit| {
            above = bounds;
            bounds = above.of_child(visit.node, visit.count, visit.slot);
            true
        })?;
        // Below the anchor the leaf is the whole tree, and the scan ends with it.
        if reached.parent != self.anchor() {
            *parent = Some(Parent { node: reached.parent, version: reached.parent_version, bounds: above });
        }
        Some(CoveringLeaf { leaf: reached.leaf, version: reached.version, bounds })
    }
}

/// Returns the key before `key`, which is not the smallest. A leaf's low bound belongs to the leaf,
/// so a scan backward goes on right below it. No key lies between the two, so no gap is left that
/// no reported leaf covers.
#[inline]
fn before<K: Key>(mut key: KeyWords) -> KeyWords {
    for word in key[..K::WORDS].iter_mut().rev() {
        let borrow = *word == 0;
        *word = word.wrapping_sub(1);
        if !borrow {
            break;
        }
    }
    key
}
