//! Records that no transaction locks, because something else keeps transactions apart: H-Store's
//! partitions, Calvin's sequence, the phases of Aria's batches, the turns of lazy evaluation.
//!
//! A transaction reads and writes as if it were alone. Rows need no order of their own: whatever
//! keeps the transactions apart also makes the writes of one visible to the next.
//!
//! One thread works without that order: a worker that collects tombstones. It changes a record's
//! word by read-modify-writes only, and it takes the record out of the index, which has latches of
//! its own. So the word is the one place where a transaction and a collector meet, and the flag
//! *locked* decides between them.
//!
//! **Metadata.** The first word of each cell has the flags of [`crate::flags`]. The flag *locked*
//! marks a tombstone that a collector judges, or that is about to get a row (under Aria a
//! reservation says that).

use contend_engine::{Cell, Context, Groups, Located, Projection, RecordState, Tombstone, UnlinkOutcome, WriteMode};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};

/// Reads a record: copies the columns, and says whether there is a row.
#[inline(always)]
pub(crate) fn read<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, columns: Projection<'_>) -> RecordState {
    M::step("read");
    // A collector may exchange the word between this load and the end of the transaction. That
    // changes no answer: only a tombstone is unlinked, and no other transaction may insert the key
    // meanwhile. So a key that was found absent stays absent. If the record is unlinked already,
    // the engine looks the key up again.
    //
    // Acquire: pairs with the Release of the exchange of `unlink`. All else that the word tells is
    // ordered by that which keeps transactions apart.
    let flags = at.record.word().load(Ordering::Acquire);
    cx.copy_row(at, columns);
    flags::found(flags)
}

/// Prepares a write that is no insert.
#[inline(always)]
pub(crate) fn write<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    groups: Groups,
    mode: WriteMode,
) -> RecordState {
    match mode {
        WriteMode::Blind | WriteMode::CommitTimeUpdate => {
            at.record.prefetch_to_write();
            // Acquire: as in `read`.
            match flags::found(at.record.word().load(Ordering::Acquire)) {
                RecordState::Absent => read(cx, at, Projection::EXISTENCE),
                found => found,
            }
        }
        _ => read(cx, at, Projection::of_groups(groups)),
    }
}

/// Installs all writes. No other transaction reads or writes these rows meanwhile.
#[inline(always)]
pub(crate) fn install_all<M: Machine>(cx: &mut Context<M>) {
    cx.writes.apply_updates();
    M::step("install");
    (0..cx.writes.len()).for_each(|position| install(cx, position));
}

/// Installs the write at `position`, whose updates have been applied. No other transaction reads or
/// writes the row meanwhile.
#[inline(always)]
pub(crate) fn install<M: Machine>(cx: &mut Context<M>, position: usize) {
    // The row first, then the flags (`install_held`).
    flags::install_held(cx, position, |cell, clear, set| {
        // Read-modify-writes: a collector changes other bits meanwhile. Release, both: the write
        // counter comes before the flags; pairs with the Acquire of `try_lock` in `unlink`.
        // Transactions get the row by that which keeps them apart.
        let word = cell.word();
        if set != 0 { word.fetch_or(set, Ordering::Release) } else { word.fetch_and(!clear, Ordering::Release) }
    });
}

/// Locks a record without a row by its first cell, against other threads that would give it one or
/// unlink it. Returns the word before, or `None` if the record is locked or changes at that moment.
pub(crate) fn try_lock<M: Machine>(first: Cell<M>) -> Option<u64> {
    // Relaxed: the exchange decides.
    let word = first.word().load(Ordering::Relaxed);
    // AcqRel. Acquire: pairs with the Release of `unlock`, and with those of a commit's changes of
    // flags: the write counters are at least as new as the word. Release: an insert and a collector
    // exchange the same word, so that the second one finds what the first one did.
    let locked = first.word().compare_exchange(word & !LOCKED, word | LOCKED, Ordering::AcqRel, Ordering::Relaxed);
    locked.ok()
}

/// Gives up a lock of [`try_lock`].
pub(crate) fn unlock<M: Machine>(first: Cell<M>) {
    // Release: pairs with the Acquire of `try_lock`: the row and its write counters come before.
    first.word().fetch_and(!LOCKED, Ordering::Release);
}

/// Waits until no collector judges the record whose first cell this is. Returns its flags.
pub(crate) fn wait_for_collector<M: Machine>(first: Cell<M>) -> u64 {
    let mut spin = Spin::<M>::new();
    loop {
        // Acquire: pairs with the Release of the exchange of `unlink`.
        let word = first.word().load(Ordering::Acquire);
        if word & LOCKED == 0 || word & UNLINKED != 0 {
            return word;
        }
        spin.wait();
    }
}

/// The tombstones that a transaction has locked, by their first cells: they are about to get a row,
/// so no collector may take them out of the index.
#[derive(Debug)]
pub(crate) struct LockedTombstones<M: Machine>(Vec<Cell<M>>);

impl<M: Machine> Default for LockedTombstones<M> {
    fn default() -> Self {
        LockedTombstones(Vec::new())
    }
}

impl<M: Machine> LockedTombstones<M> {
    /// Locks an absent record that is about to get a row. `None` if a collector judges it at this
    /// moment.
    pub(crate) fn try_lock(&mut self, at: Located<'_, M>) -> Option<RecordState> {
        // The row comes at the commit. Until then a collector must not take the record out of the
        // index: the row would be in no index. The first cell stands for all, as in `unlink`.
        let first = at.record.first_cell();
        if self.0.iter().any(|cell| cell.address() == first.address()) {
            // Inserted, deleted, and inserted again.
            return Some(RecordState::Absent);
        }
        // The bit stays set in a tombstone that is unlinked. It does no harm: no access uses the
        // record any more, and reuse gives it new words (`flags::init_words`).
        if try_lock(first)? & UNLINKED != 0 {
            return Some(RecordState::Unlinked);
        }
        self.0.push(first);
        Some(RecordState::Absent)
    }

    /// Locks an absent record that is about to get a row, for a transaction that must not abort: it
    /// waits for a collector that judges the record.
    pub(crate) fn lock(&mut self, at: Located<'_, M>) -> RecordState {
        let mut spin = Spin::<M>::new();
        loop {
            if let Some(state) = self.try_lock(at) {
                return state;
            }
            spin.wait_briefly();
        }
    }

    /// Unlocks all.
    pub(crate) fn unlock_all(&mut self) {
        self.0.drain(..).for_each(unlock);
    }
}

/// Marks a tombstone as unlinked, if it still is one and old enough, and `is_pinned` does not say
/// of its first cell that a transaction is about to give it a row.
pub(crate) fn unlink<M: Machine>(
    tombstone: Tombstone<'_, M>,
    is_pinned: impl FnOnce(Cell<M>) -> bool,
) -> UnlinkOutcome {
    M::step("unlink");
    // What keeps transactions apart is not asked for this: a collector would hold up transactions.
    let mut cells = tombstone.cells();
    let Some((first, word)) = cells.next().and_then(|first| Some((first, try_lock(first)?))) else {
        return UnlinkOutcome::Busy;
    };
    // From here on no insert gives the record a row, so a tombstone stays one while its write
    // counter is judged. Without the lock another transaction could insert a row and a third delete
    // it in the meantime. The word would be the same again, but with a younger counter.
    let (new, outcome) = match word & ABSENT != 0 {
        true if is_pinned(first) => (word, UnlinkOutcome::Busy),
        true if tombstone.counter_epoch_is_over() => (word | UNLINKED, UnlinkOutcome::Marked { time: 0 }),
        true => (word, UnlinkOutcome::Busy),
        false => (word & !QUEUED, UnlinkOutcome::Alive),
    };
    // AcqRel: the Release pairs with the Acquire of `read` and of `try_lock`. The exchange fails if
    // a transaction has deleted the row meanwhile. The delete found *queued*, and relies on the
    // tombstone's being in this worker's queue.
    if first.word().compare_exchange(word | LOCKED, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        unlock(first);
        return UnlinkOutcome::Busy;
    }
    if new & UNLINKED != 0 {
        // Release: pairs with the Acquire of `read`. No transaction stores the words of these
        // cells: an insert would have to lock the first one before, or to wait for it.
        cells.for_each(|cell| _ = cell.word().fetch_or(UNLINKED, Ordering::Release));
    }
    outcome
}
