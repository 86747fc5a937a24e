//! The node set: the leaves of indexes that a transaction depends on (Silo, section 4.6).
//!
//! A leaf version stands for the gaps between the keys of its leaf: it grows with every insert and
//! removal of a key there, and with every split. A transaction that missed a key, or scanned a
//! range, has seen the gaps of some leaves. It is serialisable at its commit only if none of them
//! was filled by then.
//!
//! Two transactions that each insert into a gap which the other has observed must not both commit.
//! Each publishes its insert (the index latches the leaf, and publishes the new version with
//! Release). Then it passes the commit fence of its protocol (SeqCst), and loads the versions of
//! its observed leaves. If both loads returned the old versions, both would commit. That is store
//! buffering, which the two fences exclude (docs/memory_ordering.md, section 4). A load may also
//! return the version of a latched leaf. No lookup reports such a version, so the validation fails,
//! which is safe.
//!
//! The loads are Acquire at least ([`NodeSet::validate`]): they pair with the Release by which the
//! index publishes a changed leaf. Protocols that order their commits in the total order of SeqCst
//! operations ask for SeqCst.

use std::cell::Cell;

use contend_index::{Change, Leaf};
use contend_machine::{Machine, Ordering};

use crate::abort::{Abort, AbortReason};
use crate::fault::Fault;

/// The leaves that a transaction's scans and misses observed, each with its version.
#[derive(Debug)]
pub struct NodeSet<M: Machine> {
    leaves: Vec<(Leaf<M>, u64)>,
    /// The leaf that was last found changed.
    failed: Cell<Option<Leaf<M>>>,
    fault: Option<Fault>,
}

impl<M: Machine> NodeSet<M> {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        NodeSet { leaves: Vec::with_capacity(16), failed: Cell::new(None), fault }
    }

    /// Adds a leaf with the observed version. A leaf that was observed at two versions fails
    /// validation.
    #[inline(always)]
    pub fn add(&mut self, leaf: Leaf<M>, version: u64) {
        self.leaves.push((leaf, version));
    }

    /// Carries the transaction's own insert over into the observations: where it has observed the
    /// changed leaf, the new version replaces the old one, and the other half of a split is added.
    ///
    /// # Errors
    /// Another transaction changed the leaf between the observation and the insert.
    pub fn follow(&mut self, change: &Change<M>) -> Result<(), Abort> {
        let mut observed = false;
        for (leaf, version) in &mut self.leaves {
            if *leaf == change.leaf {
                if *version != change.before {
                    self.failed.set(Some(*leaf));
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

    /// Checks that no observed leaf has changed its set of keys. The loads are Acquire.
    ///
    /// # Errors
    /// An observed leaf has changed.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Abort> {
        // Acquire: pairs with the Release that publishes a changed leaf (`Leaf::version_as`).
        self.validate_as(Ordering::Acquire)
    }

    /// Checks the same as [`NodeSet::validate`], by loads of this order, Acquire or stronger.
    ///
    /// # Errors
    /// An observed leaf has changed.
    #[inline(always)]
    pub fn validate_as(&self, order: Ordering) -> Result<(), Abort> {
        match self.leaves.iter().find(|(leaf, version)| leaf.version_as(order) != *version) {
            None => Ok(()),
            Some((leaf, _)) => Err(self.fail(*leaf)),
        }
    }

    /// Notes the leaf of a phantom ([`crate::conflicts`]).
    #[cold]
    fn fail(&self, leaf: Leaf<M>) -> Abort {
        self.failed.set(Some(leaf));
        Abort::new(AbortReason::Phantom)
    }

    /// Returns the leaf that was last found changed, and forgets it.
    pub(crate) fn take_failed(&self) -> Option<Leaf<M>> {
        self.failed.take()
    }

    /// Returns the observed leaves, some more than once, each with its version.
    pub fn observed(&self) -> impl Iterator<Item = (Leaf<M>, u64)> + '_ {
        self.leaves.iter().copied()
    }

    /// Returns the observed leaves, some more than once.
    pub fn leaves(&self) -> impl Iterator<Item = Leaf<M>> + '_ {
        self.leaves.iter().map(|&(leaf, _)| leaf)
    }

    /// Returns the number of observations, for [`NodeSet::roll_back`].
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Drops the observations that were added since there were `len` of them. None of them may be
    /// the other half of a leaf that was observed before ([`NodeSet::follow`]).
    pub fn roll_back(&mut self, len: usize) {
        self.leaves.truncate(len);
    }

    /// Whether no leaf was observed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Forgets all leaves, and keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.leaves.clear();
    }
}
