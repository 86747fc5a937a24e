//! Deliberate bugs, for tests of the proof.
//!
//! A protocol is generic over [`Faults`], all of which are off in [`Sound`], and so cost nothing. A test turns one on to show that the
//! conformance suite, the history checker or the explorer would find it. A protocol looks at those that it could have.

use contend_machine::{Machine, Ordering};

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Deliberate bugs, each off here.
        pub trait Faults: Send + Sync + 'static {
            $($(#[doc = $doc])+ const $name: bool = false;)*
        }

        /// All of them: name and meaning.
        pub const FAULTS: &[(&str, &str)] = &[$((stringify!($name), concat!($($doc,)+)),)*];
    };
}

faults! {
    /// Validation does not look whether a record that was read is being written.
    IGNORE_LOCKS_IN_VALIDATION,
    /// Records that were read and are also written are not validated.
    SKIP_VALIDATION_OF_WRITTEN,
    /// Cells that were read and are not written are not validated: write skew goes through, as under snapshot isolation.
    FORGET_READ_ONLY,
    /// Misses and scans leave no trace: they observe no leaf, or mark none as read.
    FORGET_GAPS,
    /// A placeholder looks like a committed row.
    SHOW_PLACEHOLDERS,
    /// A write of some columns locks and changes the cell next to theirs.
    WRITE_WRONG_CELL,
    /// Commit-time updates are applied before their cells are locked.
    MERGE_BEFORE_LOCK,
    /// A commit's TID need not be larger than those it has read and overwritten: one record can have one TID twice.
    FORGET_OLDER_TIDS,
    /// The epoch of a commit is loaded before its locks are taken.
    EPOCH_BEFORE_LOCKS,
    /// A snapshot is at the end of the epoch in which its reader begins: others still commit in it.
    SNAPSHOT_OF_RUNNING_EPOCH,
    /// A snapshot is at the end of the epoch before that in which its reader begins.
    SNAPSHOT_OF_LAST_EPOCH,
    /// A tombstone leaves its index two epochs before the last snapshot has ended that shows its row.
    FORGET_SNAPSHOTS_OF_TOMBSTONES,
    /// A tombstone leaves its index though a transaction has locked it.
    UNLINK_LOCKED,
    /// A tombstone leaves its index though a transaction may run that began before the deletion.
    FORGET_AGE_OF_TOMBSTONES,
    /// A tombstone leaves its index one epoch earlier.
    UNLINK_EARLY,
    /// A tombstone that leaves its index does not leave behind when it was read last.
    FORGET_READERS_OF_TOMBSTONES,
    /// The second timestamp is taken before the locks.
    STAMP_BEFORE_LOCKS,
    /// Records that were only read are not locked.
    LOCK_ONLY_WRITTEN,
    /// All records are locked, and reads under locks, also if these were given back, are not validated.
    TRUST_LOCKS,
    /// All records are locked, and locks are waited for in any order.
    WAIT_OUT_OF_ORDER,
    /// What was read is committed, and is not looked for again: a newer version of before the transaction's time goes unseen.
    TRUST_COMMITTED,
    /// An older version that was read is not looked for again at the commit.
    TRUST_OLDER,
    /// Updates may come late whether or not they commute.
    REORDER_ANY,
    /// What comes too late is left out, whatever the writes after it wanted to know.
    OMIT_ANY,
    /// Intervals are checked, but not moved on.
    FORGET_EXTENSION,
    /// The commit time may lie in an interval that others have read what is overwritten in.
    OVERWRITE_READ_INTERVALS,
    /// Leaves are only checked for the same keys, as in Silo.
    FORGET_TIMES_OF_LEAVES,
    /// An insert that splits a leaf does not ask up to which time the right half was read.
    FORGET_TIMES_OF_SPLITS,
    /// A read leaves no timestamp.
    FORGET_READS,
    /// A read does not wait for an older write that is announced.
    IGNORE_PREWRITES,
    /// Of a chain out of which versions were taken, a read takes the next older one.
    IGNORE_GAPS,
    /// A write does not look whether the row has been written since the transaction began.
    FORGET_FIRST_UPDATER,
    /// Of who replaced what was read it is not asked whom that one must come before.
    FORGET_SUCCESSORS,
    /// A transaction does not have to come after those whose versions it has read.
    FORGET_CREATORS,
    /// A write does not look at the reads.
    OVERTAKE_READS,
    /// Shared locks are released right after the read.
    RELEASE_SHARED_EARLY,
    /// An exclusive lock is granted while others read, and not waited for to end.
    IGNORE_READERS,
    /// Leaves are validated before the locks of updates are taken.
    VALIDATE_BEFORE_LOCKS,
    /// Rows are locked in the order in which they were declared, and waited for in any.
    LOCK_AS_DECLARED,
    /// Of several partitions only the first is held.
    LOCK_ONLY_FIRST_PARTITION,
    /// Partitions are given back before the writes are installed.
    RELEASE_BEFORE_INSTALL,
    /// An insert that aborts leaves its placeholder behind as a row.
    KEEP_ABORTED_INSERTS,
    /// Those that wait are not asked whether they may: the young wait for the old and the old for the young.
    WAIT_ANYWAY,
    /// Who was wounded commits all the same, and who wounded it does not wait for it to end.
    IGNORE_WOUNDS,
    /// Who has read what is not committed yet does not wait for the one that wrote it to decide.
    FORGET_PREDECESSORS,
    /// Who aborts leaves those alone that have read from it.
    FORGET_DEPENDENTS,
    /// The fences are missing by which, of two transactions, at least one sees what the other does. Only a model checker of weak memory finds
    /// that.
    FORGET_FENCES,
    /// A commit loads the epoch, and validates, in an order that not all need agree on: another that must come later may have an earlier epoch.
    /// Only a model checker of weak memory finds that.
    FORGET_ORDER_OF_EPOCHS,
}

/// Between what a transaction does in the sight of all and its look at what others do, where two do so crosswise: one of the two sees the other.
#[inline(always)]
pub(crate) fn dekker_fence<M: Machine, F: Faults>() {
    if !F::FORGET_FENCES {
        // SeqCst: pairs with itself; the callers say what comes before it and what after.
        M::fence(Ordering::SeqCst);
    }
}

/// No fault: the protocol as published.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}
