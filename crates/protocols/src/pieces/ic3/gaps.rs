//! Readers of gaps: transactions that have scanned a range, or missed a key, in a step that took
//! effect.
//!
//! A reader and an insert that follows meet in no record. So the reader leaves the bit of its
//! worker in the word of each leaf that it observes, and the bit of the table in its own word of
//! scans. An insert that changes the leaf later depends on each reader that it finds there.
//!
//! | the reader's step | the insert's step |
//! | --- | --- |
//! | sets the bit of the leaf | changes the leaf's version |
//! | sets *validates* | |
//! | fence (SeqCst) | fence (SeqCst) |
//! | loads the leaf's version | loads the leaf's bits |
//! | announces its rank, which clears *validates* | loads the reader's progress; waits while it validates |
//!
//! Either the reader finds the version changed, and reads again; or the insert finds the bit. Then
//! the reader has announced its rank, or validates: the insert waits for the outcome. A validation
//! waits for nothing, so this wait ends.
//!
//! An insert that finds an absent record under its key changes no leaf. The record may be the
//! placeholder of another insert that has not taken effect, and younger than the reader's look. So
//! such an insert looks for readers as well.
//!
//! A bit may be stale: a leaf that splits copies its word, and workers beyond 48 share bits. Then a
//! transaction is taken for a predecessor that is none. That is safe, as its rank has been passed,
//! and costs a wait. Leaves that are merged keep the bits of both ([`contend_engine::LeafWords`]).

use contend_engine::{Change, Leaf};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::pieces::progress::scan_bit;

/// The number of workers that have a bit of their own.
const OWN_BITS: usize = 48;
/// The number of bits that all further workers share.
const SHARED_BITS: usize = u64::BITS as usize - OWN_BITS;

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Returns the bit of a worker, and whether other workers have it as well.
    fn bit_of(worker: usize) -> (u64, bool) {
        match worker.checked_sub(OWN_BITS) {
            None => (1 << worker, false),
            Some(further) => (1 << (OWN_BITS + further % SHARED_BITS), true),
        }
    }

    /// Returns the workers with a bit, given its number.
    fn workers_of(&self, bit: usize) -> impl Iterator<Item = usize> + use<M, F> {
        let (end, step) = if bit < OWN_BITS { (bit + 1, 1) } else { (self.progress.workers(), SHARED_BITS) };
        (bit..end).step_by(step)
    }

    /// Notes that the step observes a leaf.
    pub(super) fn note_gap(&self, local: &mut Ic3Worker<M>, table: u32, leaf: Leaf<M>) {
        if F::FORGET_GAP_READERS {
            return;
        }
        let scans = local.scans | scan_bit(table);
        if scans != local.scans {
            local.scans = scans;
            self.progress.note_scans(local.own, scans);
        }
        if !local.observed.contains(&leaf) {
            local.observed.push(leaf);
            // Relaxed: the fence of the validation orders it.
            leaf.word().fetch_or(Self::bit_of(local.own.worker).0, Ordering::Relaxed);
        }
    }

    /// Notes that an insert of the step has changed a leaf, or divided it in two.
    pub(super) fn note_change(&self, local: &mut Ic3Worker<M>, table: u32, change: &Change<M>) {
        local.changed.push((table, change.leaf));
        local.changed.extend(change.split.map(|(leaf, _)| (table, leaf)));
    }

    /// Notes that an insert of the step gives a row to an absent record in a leaf. Another insert
    /// may have put the record there as its placeholder, since readers have observed the gap.
    pub(super) fn note_placeholder(local: &mut Ic3Worker<M>, table: u32, leaf: Leaf<M>) {
        if !F::TRUST_PLACEHOLDERS {
            local.changed.push((table, leaf));
        }
    }

    /// Notes the transactions that have read gaps which the step's inserts have filled.
    pub(super) fn depend_on_gap_readers(&self, local: &mut Ic3Worker<M>, rank: u64) {
        for changed in 0..local.changed.len() {
            M::step("gap readers");
            let (table, leaf) = local.changed[changed];
            // Relaxed: the fence of this step's validation orders the load.
            let mut bits = leaf.word().load(Ordering::Relaxed);
            while bits != 0 {
                let first = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                for worker in self.workers_of(first) {
                    if worker != local.own.worker
                        && let Some(reader) = self.progress.gap_reader(worker, table, rank, !F::IGNORE_VALIDATING)
                    {
                        local.depend_on(reader);
                    }
                }
            }
        }
    }

    /// Takes the worker's bit out of the leaves that the transaction has observed.
    pub(super) fn forget_gaps(&self, local: &mut Ic3Worker<M>) {
        // A shared bit stays: another worker may rely on it.
        let (bit, is_shared) = Self::bit_of(local.own.worker);
        for leaf in local.observed.drain(..).filter(|_| !is_shared) {
            // Relaxed: a bit that is seen too long is a stale one.
            leaf.word().fetch_and(!bit, Ordering::Relaxed);
        }
        if local.scans != 0 {
            local.scans = 0;
            self.progress.note_scans(local.own, 0);
        }
    }
}
