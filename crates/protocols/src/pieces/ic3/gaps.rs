//! Readers of gaps: transactions that have scanned a range, or missed a key, in a step that took
//! effect.
//!
//! A reader and an insert that follows meet in no record. So the reader leaves the bit of its
//! worker in the word of each leaf that it observes, and the bit of the table in its own word of
//! scans. An insert that changes the leaf later depends on each reader that it finds there.
//!
//! | the reader's step | the insert | the insert's step |
//! | --- | --- | --- |
//! | sets the bit of the leaf | changes the leaf's version | |
//! | sets *validates* | | |
//! | fence (SeqCst) | fence (SeqCst) | |
//! | loads the leaf's version | loads the leaf's bits, and each reader's progress | |
//! | announces its rank, which clears *validates* | | waits for readers that validated then |
//!
//! Either the reader finds the version changed, and reads again; or the insert finds its bit, and
//! finds that it validates or has announced its rank. Only these readers come before the insert. A
//! reader that begins to validate later has seen the insert's record, if that is in its range.
//!
//! The insert's step looks at the outcome before it validates itself, and so before it announces
//! its own rank. So all dependencies of one rank go from an earlier announcement to a later one,
//! and form no circle, whether they are true or not. And no step waits for others while it
//! validates.
//!
//! An insert that finds an absent record under its key changes no leaf. The record may be the
//! placeholder of another insert that has not taken effect, and younger than the reader's look. So
//! such an insert looks for readers as well.
//!
//! A bit may be stale: a leaf that splits copies its word, and workers beyond 48 share bits. Then a
//! transaction is taken for a predecessor that is none. That is safe, as its rank has been passed,
//! and costs a wait. Leaves that are merged keep the bits of both ([`contend_engine::LeafWords`]).
//!
//! A leaf that is emptied leaves its index at once, and its memory serves again. So the insert may
//! find the word of another leaf. It knows the version that its leaf had when it changed it. If the
//! version is another one behind the load of the word, every worker is taken for a reader.

use contend_engine::{Change, Leaf};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::accessors::scan_bit;
use crate::fault::dekker_fence;

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
        if F::forget_gap_readers() {
            return;
        }
        let scans = local.scans | scan_bit(table);
        if scans != local.scans {
            local.scans = scans;
            self.progress.note_scans(local.member.own, scans);
        }
        if !local.observed.contains(&leaf) {
            local.observed.push(leaf);
        }
        // The memory of a leaf may serve again, with the word of another, since an earlier try of
        // the piece. Relaxed, both: the fence of the validation orders them.
        let bit = Self::bit_of(local.member.own.worker).0;
        if leaf.word().load(Ordering::Relaxed) & bit == 0 {
            leaf.word().fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Notes the readers of gaps that an insert of the step has filled, or may have filled.
    pub(super) fn note_change(&self, local: &mut Ic3Worker<M>, table: u32, change: &Change<M>) {
        self.note_readers(local, table, change.leaf, change.after);
        change.split.iter().for_each(|(leaf, version)| self.note_readers(local, table, *leaf, *version));
    }

    /// Notes that an insert of the step gives a row to an absent record, which it has found in a
    /// leaf at this version.
    pub(super) fn note_placeholder(&self, local: &mut Ic3Worker<M>, table: u32, leaf: Leaf<M>, version: u64) {
        if !F::trust_placeholders() {
            self.note_readers(local, table, leaf, version);
        }
    }

    /// Returns the bits of a leaf that had this version; all bits if it may be another leaf by now.
    fn readers_of(leaf: Leaf<M>, version: u64) -> u64 {
        // Relaxed: the caller's fence comes before.
        let bits = leaf.word().load(Ordering::Relaxed);
        // Acquire: pairs with the Release fence by which the index latches a leaf before it changes
        // its word. If the load has seen such a change, the version below is another one.
        M::fence(Ordering::Acquire);
        if leaf.version() == version { bits } else { u64::MAX }
    }

    fn note_readers(&self, local: &mut Ic3Worker<M>, table: u32, leaf: Leaf<M>, version: u64) {
        M::step("gap readers");
        // SeqCst: pairs with the fence of a reader's validation (the module comment). The change of
        // the leaf, by this transaction or by one whose placeholder it has found, comes before.
        dekker_fence::<M, F>();
        let rank = local.step.map_or(1, |step| step.rank);
        let mut bits = Self::readers_of(leaf, version);
        while bits != 0 {
            let first = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let all = self.progress.workers();
            for worker in self.workers_of(first).filter(|worker| *worker != local.member.own.worker && *worker < all) {
                let reader = self.progress.gap_reader(worker, table, rank, !F::ignore_validating());
                if let Some(reader) = reader.filter(|reader| !local.gap_readers.contains(reader)) {
                    local.gap_readers.push(reader);
                }
            }
        }
    }

    /// Notes the readers of the step's gaps that have taken effect as predecessors. Waits for those
    /// that are still validating.
    pub(super) fn depend_on_gap_readers(&self, local: &mut Ic3Worker<M>, rank: u64) {
        while let Some(reader) = local.gap_readers.pop() {
            M::step("gap reader's outcome");
            if self.progress.outcome(reader).is_some_and(|passed| passed >= rank) {
                local.member.depend_on(reader);
            }
        }
    }

    /// Takes the worker's bit out of the leaves that the transaction has observed.
    pub(super) fn forget_gaps(&self, local: &mut Ic3Worker<M>) {
        // A shared bit stays: another worker may rely on it.
        let (bit, is_shared) = Self::bit_of(local.member.own.worker);
        for leaf in local.observed.drain(..).filter(|_| !is_shared) {
            // Relaxed: a bit that is seen too long is a stale one.
            leaf.word().fetch_and(!bit, Ordering::Relaxed);
        }
        local.scans = 0;
        self.progress.note_scans(local.member.own, 0);
    }
}

#[cfg(test)]
mod tests {
    use contend_engine::NamedProtocol;
    use contend_index::OrderedIndex;
    use contend_machine::Native;

    use super::*;
    use crate::accessors::Running;
    use crate::fault::Sound;

    type Protocol = Ic3<Native, Sound>;
    /// Leaves of four keys.
    type Index = OrderedIndex<Native, u64, 4, 4>;

    /// A protocol with two workers, and the state of the first.
    fn protocol() -> (Protocol, Ic3Worker<Native>) {
        let mut protocol = <Protocol as NamedProtocol<Native>>::new(Default::default());
        contend_engine::Protocol::<Native>::prepare(&mut protocol, 2, 1);
        let local = contend_engine::Protocol::<Native>::new_worker_state(&protocol, 0);
        (protocol, local)
    }

    fn index() -> Index {
        let index = Index::with_fanout();
        (0..3).for_each(|key| assert!(matches!(index.insert(key, 1), contend_index::Insert::Inserted(_))));
        index
    }

    fn word(leaf: Leaf<Native>) -> u64 {
        leaf.word().load(Ordering::Relaxed)
    }

    #[test]
    fn a_leaf_that_serves_again_gets_the_bit_again() {
        let (protocol, mut local) = protocol();
        let index = index();
        let leaf = index.get(1).leaf;
        protocol.note_gap(&mut local, 0, leaf);
        assert_eq!(word(leaf), 1);
        // The memory of the leaf has been freed, and has the word of another leaf.
        leaf.word().store(8, Ordering::Relaxed);
        protocol.note_gap(&mut local, 0, leaf);
        assert_eq!(word(leaf), 9);
        protocol.forget_gaps(&mut local);
        assert_eq!(word(leaf), 8, "the bits of others stay");
    }

    #[test]
    fn an_insert_whose_leaf_has_changed_since_depends_on_all_readers() {
        let (protocol, mut local) = protocol();
        let reader = Running { worker: 1, number: 1 + protocol.progress.register(1), kind: Running::NO_KIND };
        protocol.progress.begin(reader);
        protocol.progress.note_scans(reader, scan_bit(0));
        assert!(protocol.progress.announce(reader, 1));
        let index = index();
        let found = index.get(1);
        protocol.note_placeholder(&mut local, 0, found.leaf, found.version);
        assert_eq!(local.gap_readers, [], "the leaf has no bit");
        assert!(matches!(index.insert(3, 1), contend_index::Insert::Inserted(_)));
        protocol.note_placeholder(&mut local, 0, found.leaf, found.version);
        assert_eq!(local.gap_readers, [reader], "the leaf may be another one by now");
    }
}
