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

use contend_machine::{Machine, Spin};

use super::{InnerNode, LeafNode, OrderedIndex};
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
        let count = self.leaf.count().min(L);
        let first = self.leaf.lower_bound(self.bounds.low.as_ref().map_or(low, |bound| bound.max(low)), count);
        let end = match &self.bounds.high {
            Some(bound) if bound <= high => self.leaf.lower_bound(bound, count),
            _ => self.leaf.rank(high, count),
        };
        (first, end.max(first))
    }
}

/// The entries of one leaf that a scan wants.
struct Copied<const L: usize> {
    keys: [KeyWords; L],
    values: [u64; L],
    count: usize,
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Visits the entries with `low <= key <= high`, in order. Each leaf is copied at one version,
    /// which [`ScanVisitor::leaf`] gets. No latch is held while the visitor runs.
    pub fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<M, K>) {
        let (mut low, mut high) = (low.to_words(), high.to_words());
        if low > high {
            return;
        }
        let mut copied = Copied { keys: [[0; _]; L], values: [0; L], count: 0 };
        let mut parent = None;
        loop {
            let from = match direction {
                Direction::Forward => &low,
                Direction::Backward => &high,
            };
            let found = self.copy_leaf(from, &low, &high, direction, &mut parent, &mut copied);
            if visitor.leaf(found.leaf.leaf(), found.version).is_break() {
                return;
            }
            for i in 0..copied.count {
                let i = if direction == Direction::Forward { i } else { copied.count - 1 - i };
                if visitor.entry(K::from_words(copied.keys[i]), copied.values[i]).is_break() {
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
        copied: &mut Copied<L>,
    ) -> CoveringLeaf<'a, M, K, L> {
        let mut spin = Spin::<M>::new();
        loop {
            let near = parent.as_ref().and_then(|parent| self.find_near(parent, from, direction));
            if let Some(found) = near.or_else(|| self.find_from_root(from, parent)) {
                let (first, end) = found.positions(low, high);
                copied.count = end - first;
                for (i, (key, value)) in copied.keys.iter_mut().zip(&mut copied.values).take(end - first).enumerate() {
                    *key = found.leaf.key(first + i);
                    *value = found.leaf.value(first + i);
                }
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
        let count = node.count().min(I - 1);
        let slot = node.rank(from, count);
        let bounds = parent.bounds.of_child(node, count, slot);
        let child = node.child(slot);
        let next = match direction {
            Direction::Forward => (slot + 1).min(count),
            Direction::Backward => slot.saturating_sub(1),
        };
        let next = node.child(next);
        if !node.is_at(parent.version) {
            return None;
        }
        LeafNode::<M, K, L>::prefetch(next, true);
        let leaf = self.leaf(child);
        let version = leaf.stable_version();
        node.is_at(parent.version).then_some(CoveringLeaf { leaf, version, bounds })
    }

    fn find_from_root<'a>(
        &'a self,
        from: &KeyWords,
        parent: &mut Option<Parent<'a, M, K, I>>,
    ) -> Option<CoveringLeaf<'a, M, K, L>> {
        *parent = None;
        let (mut above, mut bounds) = (Bounds::default(), Bounds::default());
        let reached = self.descend(from, |visit| {
            above = bounds;
            bounds = above.of_child(visit.node, visit.count, visit.slot);
            true
        })?;
        if reached.parent != self.anchor() {
            *parent = Some(Parent { node: reached.parent, version: reached.parent_version, bounds: above });
        }
        Some(CoveringLeaf { leaf: reached.leaf, version: reached.version, bounds })
    }
}

/// Returns the key before `key`, which is not the smallest.
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
