//! Lookups of many keys in lock-step.
//!
//! Each key's descent validates as a single one does ([`super::lookup`]): the parent's version is
//! checked after the child's version was loaded (`Descent::search`), and a node's version after the
//! slot was read (`step`). Between the two the other keys of the batch have their turns. That only
//! makes it likelier that another thread comes between: nothing is assumed of the time between two
//! loads.
//!
//! A descent that another thread has disturbed is *lost*. It is not repeated in the batch, which
//! would hold up the others, but looked up alone in the end. A lost descent never follows an
//! address again, since its node was not validated.
//!
//! Nothing is shared among the descents but the anchor's version, at which all of them begin. A
//! lookup of the batch takes effect where a single one does: at the last check of its leaf. So two
//! lookups of one batch may be of different moments, and one of them may see an insert that an
//! earlier one has missed.

use contend_machine::{Atomic64, Machine, Ordering};

use super::{InnerNode, LeafNode, Node, OrderedIndex, is_far_level};
use crate::{Key, KeyWords, Lookup};

/// Keys that descend together: enough to hide the latency of memory, few enough that their nodes
/// stay in the first cache.
const BATCH: usize = 16;

/// How far the descent of one key has come.
struct Descent<'a, M: Machine, K: Key, const I: usize> {
    key: KeyWords,
    /// The next node, known to be good, and its version and the key's rank there once it has been
    /// searched.
    next: *mut M::U64,
    version: u64,
    rank: usize,
    parent: InnerNode<'a, M, K, I>,
    parent_version: u64,
    /// Another thread has come between; the key is looked up alone in the end.
    lost: bool,
}

impl<M: Machine, K: Key, const I: usize> Descent<'_, M, K, I> {
    /// Searches the next node, and asks for the line of the slot that the search leads to, which is
    /// not in the cache yet: two passes over the batch, so that the misses of the second overlap as
    /// well.
    #[inline(always)]
    fn search<const N: usize>(&mut self, node: Node<'_, M, K, N>, slot: impl FnOnce(usize) -> usize) {
        // Acquire, in `version`: pairs with `Node::publish`. A latched node is not waited for, in
        // the midst of a batch: the wait would hold up all other keys, and lines that were
        // prefetched for them could leave the cache.
        self.version = node.version();
        // The parent's check comes after the child's version was loaded, so that the child was its
        // child at that version.
        self.lost |= Node::<M, K, N>::is_latched(self.version) | !self.parent.is_at(self.parent_version);
        // The rank is of this version only if `step`, or the end of `get_batch`, finds that version
        // again.
        self.rank = node.rank(&self.key, node.count().min(N));
        node.prefetch_slot(slot(self.rank));
    }
}

impl<M: Machine, K: Key, const L: usize, const I: usize> OrderedIndex<M, K, L, I> {
    /// Looks many keys up, level by level in lock-step, so that their cache misses overlap. Calls
    /// `found` once a key, with the key's position, in the order of `keys`.
    pub fn get_many(&self, keys: &[K], mut found: impl FnMut(usize, Lookup<M>)) {
        for (chunk, batch) in keys.chunks(BATCH).enumerate() {
            self.get_batch(batch, |position, lookup| found(chunk * BATCH + position, lookup));
        }
    }

    #[inline(always)]
    fn get_batch(&self, keys: &[K], mut found: impl FnMut(usize, Lookup<M>)) {
        let anchor = self.anchor();
        let anchor_version = anchor.stable_version();
        // Relaxed: validated by `is_at` below, as is all that is read in nodes. All keys of the
        // batch begin at this root.
        let height = anchor.word().load(Ordering::Relaxed);
        let root = anchor.child(0);
        if !anchor.is_at(anchor_version) {
            keys.iter().enumerate().for_each(|(i, key)| found(i, self.get(*key)));
            return;
        }
        let mut descents: [Descent<'_, M, K, I>; BATCH] = std::array::from_fn(|i| Descent {
            key: keys.get(i).map_or([0; _], |key| key.to_words()),
            next: root,
            version: 0,
            rank: 0,
            parent: anchor,
            parent_version: anchor_version,
            lost: false,
        });
        let descents = &mut descents[..keys.len()];
        // Two passes a level. In the first the nodes are searched, whose lines the level before has
        // asked for. In the second the slots are read, whose lines the first has asked for, and the
        // next nodes are asked for.
        let is_far = |level: u64| M::overlaps() && is_far_level(height, level);
        for level in (0..height).rev() {
            if is_far(level + 1) {
                M::await_prefetched();
            }
            // Not filtered: that would be a call each, as crates are not optimised together.
            for descent in descents.iter_mut() {
                if !descent.lost {
                    descent.search(self.inner(descent.next), |rank| rank.min(I - 1));
                }
            }
            for descent in descents.iter_mut() {
                if !descent.lost {
                    self.step(descent, level == 0);
                }
            }
        }
        if is_far(0) {
            M::await_prefetched();
        }
        for descent in descents.iter_mut() {
            if !descent.lost {
                descent.search(self.leaf(descent.next), |rank| rank.saturating_sub(1).min(L - 1));
            }
        }
        for (i, key) in keys.iter().enumerate() {
            let descent = &descents[i];
            if !descent.lost {
                let leaf = self.leaf(descent.next);
                let value = leaf.value_at_rank(&descent.key, descent.rank.min(L));
                // The leaf's own check; its parent was checked in `search`, after this version was
                // loaded.
                if leaf.is_at(descent.version) {
                    found(i, Self::lookup(leaf, descent.version, value));
                    continue;
                }
            }
            // Lost: alone, with as many tries as it takes.
            found(i, self.get(*key));
        }
    }

    /// Goes one level down from a node that has been searched.
    #[inline(always)]
    fn step<'a>(&'a self, descent: &mut Descent<'a, M, K, I>, to_leaf: bool) {
        let node = self.inner(descent.next);
        let next = node.child(descent.rank.min(I - 1));
        // Rank and child belong to one version, or the descent is lost, and `next` is not followed.
        // A prefetch of it is harmless.
        descent.lost = !node.is_at(descent.version);
        if to_leaf {
            LeafNode::<M, K, L>::prefetch(next, false);
        } else {
            InnerNode::<M, K, I>::prefetch(next, false);
        }
        (descent.next, descent.parent, descent.parent_version) = (next, node, descent.version);
    }
}
