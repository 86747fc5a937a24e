//! What a transaction has seen of the index.

use contend_index::{Change, Leaf};
use contend_machine::{Machine, Ordering};

use crate::abort::{Abort, AbortReason};
use crate::fault::Fault;

/// The leaves that a transaction's scans and misses observed (Silo, section 4.6).
#[derive(Debug)]
pub struct NodeSet<M: Machine> {
    leaves: Vec<(Leaf<M>, u64)>,
    fault: Option<Fault>,
}

impl<M: Machine> NodeSet<M> {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        NodeSet { leaves: Vec::with_capacity(16), fault }
    }

    /// Adds a leaf with the version that was observed. A leaf observed at two versions fails
    /// validation.
    #[inline(always)]
    pub fn add(&mut self, leaf: Leaf<M>, version: u64) {
        self.leaves.push((leaf, version));
    }

    /// Carries the transaction's own insert over into what it observed before.
    ///
    /// # Errors
    /// Somebody else changed the leaf between.
    pub fn follow(&mut self, change: &Change<M>) -> Result<(), Abort> {
        let mut observed = false;
        for (leaf, version) in &mut self.leaves {
            if *leaf == change.leaf {
                if *version != change.before {
                    return Err(Abort::new(AbortReason::Phantom));
                }
                *version = change.after;
                observed = true;
            }
        }
        if let (true, Some((leaf, version))) = (observed, change.split)
            && self.fault != Some(Fault::ForgetSplits)
        {
            self.leaves.push((leaf, version));
        }
        Ok(())
    }

    /// Checks that no observed leaf has changed its set of keys.
    ///
    /// # Errors
    /// One has.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Abort> {
        self.validate_as(Ordering::Acquire)
    }

    /// As [`NodeSet::validate`], by loads of this order, Acquire or stronger.
    ///
    /// # Errors
    /// One has.
    #[inline(always)]
    pub fn validate_as(&self, order: Ordering) -> Result<(), Abort> {
        if self.leaves.iter().all(|&(leaf, version)| leaf.version_as(order) == version) {
            Ok(())
        } else {
            Err(Abort::new(AbortReason::Phantom))
        }
    }

    /// The leaves that were observed, some more than once, each with its version.
    pub fn observed(&self) -> impl Iterator<Item = (Leaf<M>, u64)> + '_ {
        self.leaves.iter().copied()
    }

    /// The leaves that were observed, some more than once.
    pub fn leaves(&self) -> impl Iterator<Item = Leaf<M>> + '_ {
        self.leaves.iter().map(|&(leaf, _)| leaf)
    }

    /// Whether no leaf was observed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Forgets all leaves; keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.leaves.clear();
    }
}
