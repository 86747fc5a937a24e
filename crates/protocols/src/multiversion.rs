//! The family of multi-version protocols: where versions are kept, how a transaction finds the
//! version of its time, and what a commit writes.
//!
//! **The newest version is in the record**, where the index leads. A commit copies the version that
//! it overwrites to a record of its own, which is in no index, and links the copy into the *version
//! chain* of the cell. So a read of the newest version, as nearly all are, follows no pointer, and
//! touches the lines that a single-version protocol touches. A late transaction follows the chain
//! to the version that it would have read in time. (The authors' codes put all versions into a
//! chain, and some bring one inline.) The price is one copy for each write. A chain of all versions
//! pays the same for the place of the new version.
//!
//! **Metadata.** Six words for each cell. The paper's name for the timestamp of a version is `wts`,
//! for that of its youngest read `rts`.
//!
//! | word | in a record | in a copy |
//! | --- | --- | --- |
//! | 0 | flags ([`crate::flags`]; locked: the row is being overwritten); above them the version's `wts` | the same |
//! | 1 | the *write intent*: the transaction that is going to install the next version; 0 if there is none | its *end*: the `wts` of the version that replaced it |
//! | 2 | the newest version's `rts`, in protocols that use it | the `sstamp` of the transaction that replaced it (`ermia`) |
//! | 3 | the link to the newest copy in the *recent chain* | the link to the next older one |
//! | 4 | of a tombstone: the epoch of the deletion; of a row, with late writes: its `SuffixKind` | the cell that it is a copy of |
//! | 5 | the link to the newest copy in the *retained chain*, for long transactions | the link to the next older one |
//!
//! **Versions are written in the order of their timestamps.** A transaction that is older than the
//! newest version aborts instead of writing a version below it. (Cicada's authors do so by default,
//! and so does DBx1000's MVCC.) There are two exceptions: late updates that commute ([`msto`]), and
//! writes that no transaction will see (`multiversion/validation.rs`). Both need that no younger
//! transaction has read the cell.
//!
//! **Write intents** are what Cicada calls pending versions and Hekaton write locks. An intent is a
//! timestamp, if its transaction has one: younger readers wait for its outcome, older ones pass. A
//! row is overwritten only when its transaction is sure to commit.
//!
//! **Reuse.** A copy that was replaced by a version of time `t` serves only transactions from
//! before `t`, whatever link still leads to it. So nothing has to be unlinked when the last of them
//! has ended. [`collect`] says how that becomes known, and what happens to versions that a long
//! transaction needs.
//!
//! **A protocol of this family** implements [`VersionRules`]: its part of a begin, a read, a write
//! and a commit. [`MultiVersion`] adds the part that all of them share.
//!
//! | file | content |
//! | --- | --- |
//! | `rules.rs` | the adaptor: from [`VersionRules`] to the engine's `Protocol` |
//! | `read.rs` | which version a transaction reads, and whether that is still the right one at the commit |
//! | `intents.rs` | write intents, and how a commit installs versions |
//! | `chain.rs` | the chains of old versions |
//! | `validation.rs` | transactions that have a timestamp from the begin and validate at the commit: [`cicada`], [`msto`] |
//! | `snapshot.rs` | transactions that see the state at their begin: [`snapshot_isolation`], [`hekaton`], [`ermia`] |
//! | [`collect`] | when the memory of old versions is reused |

mod chain;
pub mod cicada;
pub mod collect;
pub mod ermia;
pub mod hekaton;
mod intents;
pub mod msto;
pub mod mvto;
mod read;
mod rules;
mod snapshot;
pub mod snapshot_isolation;
#[cfg(test)]
mod tests;
mod validation;

use contend_engine::{Abort, AbortReason, Cell, Cells, Leaf, RecordOrigin, Tombstone, UnlinkOutcome};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::faults;
use crate::flags::{self, ABSENT, QUEUED, UNLINKED};

pub(crate) use chain::{ChainedVersion, version_at};
use chain::{NO_OLD_VERSION, recent_link, retained_link};
pub(crate) use intents::WriteIntents;
pub(crate) use read::{ReadEntry, ReadVersion, ReadView, is_still_visible, read_row};
pub use rules::{MultiVersion, VersionRules};
pub use snapshot::{Counted, CounterOptions, SNAPSHOT_FAULTS, SnapshotFaults, SnapshotOptions};
pub(crate) use snapshot::{SnapshotState, SnapshotTxn};
pub(crate) use validation::ValidatingTxn;
pub use validation::{VALIDATION_FAULTS, ValidatingOptions, ValidationFaults};

/// Metadata words of a cell.
pub(crate) const WORDS: usize = 6;
/// The lowest bit of a version's `wts` in its word.
const WTS_SHIFT: u32 = 4;

/// No transaction is going to write the cell.
pub(crate) const NO_INTENT: u64 = 0;
/// Intent of a transaction that is about to draw its commit timestamp. Every other transaction
/// waits for it.
const INTENT_TAKING_TIMESTAMP: u64 = 1;
/// Intent of a transaction that will draw a timestamp later than all present ones. No transaction
/// waits for it. The bits below tell one worker from another.
pub(crate) const INTENT_WITHOUT_TIMESTAMP: u64 = 1 << 63;

/// Returns the `wts` in a version's word.
#[inline(always)]
pub(crate) fn wts_of(word: u64) -> u64 {
    word >> WTS_SHIFT
}

/// Returns the word of a record's cell that holds its write intent.
#[inline(always)]
pub(crate) fn intent_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(1) }
}

/// Returns the word of a record's cell that holds the `rts` of its newest version.
#[inline(always)]
pub(crate) fn rts_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(2) }
}

/// What a cell's newest versions have in common: the longest suffix of its version order in which
/// every version is of one kind. A late write of that kind may take its place before the whole
/// suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuffixKind {
    /// Updates that commute. A late one is applied to the newest version.
    CommutingUpdates,
    /// Writes that replaced the whole cell without a look at it. A late one is invisible, and is
    /// skipped.
    BlindOverwrites,
}

fn suffix_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(4) }
}

impl SuffixKind {
    /// Returns whether every version younger than `ts` is of this kind. The caller holds the cell's
    /// intent.
    #[inline(always)]
    pub(crate) fn covers_all_after<M: Machine>(self, cell: Cell<M>, ts: u64) -> bool {
        // Relaxed: only the holder of the intent stores the word. The cell is no tombstone, whose
        // word is an epoch: the write needs a row.
        let word = suffix_of(cell).load(Ordering::Relaxed);
        word & 1 == self as u64 && word >> 1 < ts
    }

    /// Notes that a version of time `ts` is installed, of this kind if it is of any. The caller
    /// holds the cell's intent.
    #[inline(always)]
    pub(crate) fn record<M: Machine>(kind: Option<SuffixKind>, cell: Cell<M>, ts: u64) {
        // Relaxed, all: only the holder of the intent stores these words.
        let newest = wts_of(cell.word().load(Ordering::Relaxed));
        let before = suffix_of(cell).load(Ordering::Relaxed);
        match kind {
            // After a tombstone, whose word is an epoch, the next write is an insert, which is of
            // no kind.
            Some(kind) if before & 1 == kind as u64 => {}
            // Relaxed, both: as above.
            Some(kind) => suffix_of(cell).store(newest << 1 | kind as u64, Ordering::Relaxed),
            None => suffix_of(cell).store(newest.max(ts) << 1, Ordering::Relaxed),
        }
    }
}

/// Returns the word of a tombstone's first cell that holds the epoch of its deletion.
fn deletion_epoch<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(4) }
}

/// Raises the cell's `rts` to `ts`: a transaction of this time has read the newest version.
///
/// The reader stores the `rts` and then loads the intent (`newest_to_read`, `is_still_visible`). A
/// writer stores its intent and then loads the `rts` (`WriteIntents::place`, [`rts_under_intent`]).
/// In the total order of these four accesses one store is first, and the other transaction sees it.
/// So excluded is that a reader misses the intent of an older writer while that writer misses the
/// read.
#[inline(always)]
pub(crate) fn raise_rts<M: Machine, F: VersionFaults>(cell: Cell<M>, ts: u64) {
    if F::forget_reads() {
        return;
    }
    // SeqCst, both: before the look at the intent; pairs with `rts_under_intent`.
    if rts_of(cell).load(Ordering::SeqCst) < ts {
        rts_of(cell).fetch_max(ts, Ordering::SeqCst);
    }
}

/// Returns the `rts` of the cell, on which the caller holds an intent.
#[inline(always)]
pub(crate) fn rts_under_intent<M: Machine, F: VersionFaults>(cell: Cell<M>) -> u64 {
    // SeqCst: after the intent is placed; pairs with `raise_rts`, where the rts comes before the
    // look at the intent.
    if F::overtake_reads() { 0 } else { rts_of(cell).load(Ordering::SeqCst) }
}

/// Returns the function that says for which intents a transaction waits: those of transactions with
/// a timestamp earlier than `ts`.
#[inline(always)]
pub(crate) fn waits_for_earlier_than<F: VersionFaults>(ts: u64) -> impl Fn(u64) -> bool + Copy {
    move |intent| intent < ts && !F::ignore_prewrites()
}

/// Raises the `rts` of a leaf to `ts`: a transaction of this time depends on the leaf's keys, which
/// it has seen at `version`.
///
/// # Errors
/// The leaf's keys have changed since.
#[inline(always)]
pub(crate) fn raise_leaf_rts<M: Machine>(leaf: Leaf<M>, version: u64, ts: u64) -> Result<(), Abort> {
    // Relaxed, both: ordered by the fence.
    if leaf.word().load(Ordering::Relaxed) < ts {
        leaf.word().fetch_max(ts, Ordering::Relaxed);
    }
    // SeqCst: pairs with the fence of `WriteIntents::adopt_placeholder`. The reader stores the rts
    // and then looks at the keys; an insert changes the keys and then looks at the rts. One of the
    // two sees the other.
    M::fence(Ordering::SeqCst);
    if leaf.version() == version { Ok(()) } else { Err(Abort::new(AbortReason::Phantom)) }
}

/// Sets the words of a new record. The cells of an inserted one have an intent from the start,
/// which becomes its transaction's by [`WriteIntents::adopt`].
pub(crate) fn init<M: Machine>(cells: Cells<M>, origin: RecordOrigin) {
    flags::initial(cells, origin, |cell, flags, held| {
        // Relaxed, all: the index publishes the record.
        for word in [rts_of(cell), recent_link(cell), deletion_epoch(cell)] {
            word.store(0, Ordering::Relaxed);
        }
        // Relaxed, these: as above.
        retained_link(cell).store(NO_OLD_VERSION, Ordering::Relaxed);
        intent_of(cell).store(if held { INTENT_WITHOUT_TIMESTAMP } else { NO_INTENT }, Ordering::Relaxed);
        cell.word().store(flags, Ordering::Relaxed);
    });
}

/// Returns whether a transaction with an earlier timestamp has an intent on the cell: a first look.
#[inline(always)]
pub(crate) fn has_earlier_intent<M: Machine>(cell: Cell<M>, ts: u64) -> bool {
    // Relaxed: a hint to abort early. A read or a placed intent looks again, with SeqCst.
    let intent = intent_of(cell).load(Ordering::Relaxed);
    intent != NO_INTENT && intent < ts
}

/// Marks a tombstone as unlinked, if the record still is one, all transactions that could see its
/// row have ended, and every snapshot is of `snapshot_watermark` or a later time.
pub(crate) fn unlink<M: Machine>(tombstone: Tombstone<'_, M>, snapshot_watermark: u64) -> UnlinkOutcome {
    M::step("unlink");
    let cells = tombstone.cells();
    let release = |cell: Cell<M>| {
        // Release: pairs with the exchange of the next intent (`WriteIntents::place`).
        intent_of(cell).store(NO_INTENT, Ordering::Release);
    };
    for (number, cell) in cells.clone().enumerate() {
        // SeqCst: as in `WriteIntents::place`, before the look at the rts.
        let placed =
            intent_of(cell).compare_exchange(NO_INTENT, INTENT_WITHOUT_TIMESTAMP, Ordering::SeqCst, Ordering::Relaxed);
        if placed.is_err() {
            cells.take(number).for_each(release);
            return UnlinkOutcome::Busy;
        }
    }
    // Relaxed, here and below: only the holder of the intents stores these words.
    let first = cells.clone().next().expect("a record has a cell");
    let word = first.word().load(Ordering::Relaxed);
    let outcome = if word & ABSENT == 0 {
        // Release: the word passes on the row of the transaction that stored it before. It pairs
        // with the Acquire of a reader, which may meet this store instead of that one.
        first.word().store(word & !QUEUED, Ordering::Release);
        UnlinkOutcome::Alive
        // Relaxed: as above.
    } else if flags::may_be_missed(deletion_epoch(first).load(Ordering::Relaxed), tombstone.oldest())
        || wts_of(word) > snapshot_watermark
        || !tombstone.counter_epoch_is_over()
    {
        UnlinkOutcome::Busy
    } else {
        for cell in cells.clone() {
            // SeqCst: before the look at the rts below; pairs with the second load of the word in
            // `is_unchanged`, and with that in `is_still_visible`, which come after the rts. A
            // reader of the tombstone sees that it is unlinked, or its rts is seen here.
            cell.word().store(cell.word().load(Ordering::Relaxed) | UNLINKED, Ordering::SeqCst);
        }
        // The readers of the tombstone live on in the leaf: an insert of the key must come after
        // them. SeqCst: after the stores above.
        let readers = cells.clone().map(|cell| rts_of(cell).load(Ordering::SeqCst)).max().unwrap_or(0);
        UnlinkOutcome::Marked { time: readers.max(wts_of(word)) }
    };
    cells.for_each(release);
    outcome
}

faults! {
    /// The deliberate faults that every protocol of the family can have.
    pub trait VersionFaults {
        /// A read leaves no timestamp.
        forget_reads,
        /// A write does not look at the timestamps of reads.
        overtake_reads,
        /// A read does not wait for an older transaction that is going to write what it reads.
        ignore_prewrites,
        /// Where versions were taken out of a chain, a read takes the next older one.
        ignore_gaps,
    }
    pub const FAULTS;
}
