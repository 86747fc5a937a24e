//! Lookups of many keys in lock-step.
//!
//! Each key's descent validates as a single one does ([`super::lookup`]): the parent's version is
//! checked after the child's version was loaded (`Descent::enter`), and a node's version after the
//! slot was read (`Descent::leave`). Between the two the other keys of the batch have their turns.
//! That only makes it likelier that another thread comes between: nothing is assumed of the time
//! between two loads.
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

use super::leaf::Candidates;
use super::{InnerNode, Node, OrderedIndex, is_far_level};
use crate::{Key, Lookup};

/// Keys that descend together: enough to hide the latency of memory, few enough that their nodes
/// stay in the first cache.
const BATCH: usize = 16;

/// How far the descent of one key has come. There are many of them, so each is small.
struct Descent<'a, M: Machine, K: Key, const I: usize> {
    /// The next node, known to be good, and its version once its first line has been read.
    next: *mut M::U64,
    version: u64,
    /// What the search of an inner node has found: its line, and then the slot.
    place: usize,
    parent: InnerNode<'a, M, K, I>,
    parent_version: u64,
    /// Another thread has come between; the key is looked up alone in the end.
    lost: bool,
}

impl<'a, M: Machine, K: Key, const I: usize> Descent<'a, M, K, I> {
    /// Begins with the next node, whose first line has been asked for.
    #[inline(always)]
    fn enter(&mut self, node: Node<'_, M>) {
        // Acquire, in `version`: pairs with `Node::publish`. A latched node is not waited for, in
        // the midst of a batch: the wait would hold up all other keys, and lines that were
        // prefetched for them could leave the cache.
        self.version = node.version();
        // The parent's check comes after the child's version was loaded, so that the child was its
        // child at that version.
        self.lost = Node::<M>::is_latched(self.version) | !self.parent.is_at(self.parent_version);
    }

    /// Goes one level down from a node that has been searched.
    #[inline(always)]
    fn leave(&mut self, node: InnerNode<'a, M, K, I>) {
        self.next = node.child(self.place);
        // Slot and child belong to one version, or the descent is lost, and `next` is not followed.
        // A prefetch of it is harmless.
        self.lost |= !node.is_at(self.version);
        (self.parent, self.parent_version) = (node, self.version);
        M::prefetch(self.next);
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
        let mut descents: [Descent<'_, M, K, I>; BATCH] = std::array::from_fn(|_| Descent {
            next: root,
            version: 0,
            place: 0,
            parent: anchor,
            parent_version: anchor_version,
            lost: false,
        });
        let descents = &mut descents[..keys.len()];
        let is_far = |level: u64| M::overlaps() && is_far_level(height, level);
        for level in (0..height).rev() {
            if is_far(level + 1) {
                M::await_prefetched();
            }
            self.descend_level(keys, descents, level);
        }
        if is_far(0) {
            M::await_prefetched();
        }
        let mut candidates = [Candidates::default(); BATCH];
        // Not filtered, nor zipped: that would be a call each, as crates are not optimised
        // together.
        for (i, key) in keys.iter().enumerate() {
            let descent = &mut descents[i];
            if !descent.lost {
                let leaf = self.leaf(descent.next);
                descent.enter(*leaf);
                candidates[i] = leaf.candidates(&key.to_words());
                leaf.prefetch_first(candidates[i]);
            }
        }
        if is_far(0) {
            M::await_prefetched();
        }
        for (i, key) in keys.iter().enumerate() {
            let descent = &descents[i];
            if !descent.lost {
                let leaf = self.leaf(descent.next);
                let value = leaf.value_among(candidates[i], &key.to_words());
                // The leaf's own check; its parent was checked in `enter`, after this version was
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

    /// Takes all descents one level down, and asks for the first lines of the next nodes.
    #[inline(always)]
    fn descend_level<'a>(&'a self, keys: &[K], descents: &mut [Descent<'a, M, K, I>], level: u64) {
        if level > 0 {
            // These nodes are few: their lines are cached.
            for (i, key) in keys.iter().enumerate() {
                let descent = &mut descents[i];
                if !descent.lost {
                    let node = self.inner(descent.next);
                    descent.enter(*node);
                    descent.place = node.rank(&key.to_words());
                    descent.leave(node);
                }
            }
            return;
        }
        // Three lines of a node, one after the other: a pass over the batch for each, in which the
        // misses overlap.
        for (i, key) in keys.iter().enumerate() {
            let descent = &mut descents[i];
            if !descent.lost {
                let node = self.inner(descent.next);
                descent.enter(*node);
                descent.place = node.line_of(key.to_words()[0]);
                node.prefetch_line(descent.place);
            }
        }
        for (i, key) in keys.iter().enumerate() {
            let descent = &mut descents[i];
            if !descent.lost {
                let node = self.inner(descent.next);
                // The slot is of the entered version only if `leave` finds that version again.
                descent.place = node.rank_in(descent.place, &key.to_words());
                node.prefetch_child(descent.place);
            }
        }
        for descent in descents.iter_mut() {
            if !descent.lost {
                descent.leave(self.inner(descent.next));
            }
        }
    }
}
