//! Version chains: what multi-version protocols have in common.
//!
//! The newest version of a cell stands in the record itself, where the index leads; a commit copies what it overwrites to a record of its
//! own, in no index. From the newest copy a chain leads to older ones. So who reads what is newest, as nearly all do, reads one place,
//! with no pointer to follow; and a transaction that is late finds what it would have read had it been in time.
//!
//! **Metadata.** Six words a cell:
//!
//! | word | in a record | in a copy |
//! | --- | --- | --- |
//! | 0 | flags ([`crate::flags`]; locked: the row is being overwritten); above them the timestamp of the version | the same |
//! | 1 | the *claim*: who is going to write the next version; 0 if nobody is | its *end*: the timestamp of the version that replaced it |
//! | 2 | the timestamp of the youngest read, where the protocol has use for it | what the one that replaced it has left (`ermia`) |
//! | 3 | where the cell is in the newest copy (`versions::chain`) | in the next older one |
//! | 4 | of a tombstone: the epoch in which it was deleted; of a row the `Run` that the newest version belongs to, where late writes are let in | of which cell it is a copy |
//! | 5 | where the cell is in the newest copy that is kept for those who run for long | in the next older such copy |
//!
//! **A version at a time.** Versions are written in the order of their timestamps: who comes with an older one than the newest aborts (so do
//! Cicada by default, and DBx1000's MVCC), unless all that are newer are of its kind (`Run`), and nobody has read between. A claim is a timestamp, if its transaction has one: readers that are younger wait for what
//! becomes of it, older ones pass. A row is overwritten only when its transaction is sure to commit.
//!
//! **Reuse.** A copy that was replaced by a version of time `t` is needed by who reads before `t`. Nobody else follows a link to it, so
//! nothing has to be unlinked when the last of those have ended. What few need, who run for long, is in a chain of its own. [`collect`] says when.

mod chain;
mod claims;
pub mod collect;
mod optimistic;
mod snapshots;
#[cfg(test)]
mod tests;

use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Context, Found, Groups, Initial, Leaf, Projection, Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::Faults;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::optimistic::WAITS_MAX;

pub(crate) use chain::{Older, older_at};
use chain::{UNBORN, kept_before, older_than};
pub(crate) use claims::Claims;
pub(crate) use optimistic::Optimistic;
pub use optimistic::OptimisticOptions;
pub use snapshots::{Counted, CounterOptions, SnapshotOptions};
pub(crate) use snapshots::{Snapshot, Snapshots};

/// Metadata words of a cell.
pub(crate) const WORDS: usize = 6;
/// A version's timestamp begins with this bit of its word.
const STAMP_SHIFT: u32 = 4;

/// No claim.
pub(crate) const NOBODY: u64 = 0;
/// The claim of who is about to take a timestamp for its commit: all wait for it.
const DECIDING: u64 = 1;
/// The claim of who will take a timestamp later than all that are there: nobody waits for it. Below, what tells one from another.
pub(crate) const UNSTAMPED: u64 = 1 << 63;

/// The timestamp of a version.
#[inline(always)]
pub(crate) fn stamp_of(word: u64) -> u64 {
    word >> STAMP_SHIFT
}

/// Who has claimed a cell.
#[inline(always)]
pub(crate) fn claim_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: cells have six words.
    unsafe { cell.meta(1) }
}

/// The timestamp of a cell's youngest read.
#[inline(always)]
pub(crate) fn read_time<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(2) }
}

/// What the last versions of a cell have in common, so that another of their kind may come late, and be put before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Updates that commute.
    Commuting,
    /// All of the cell was replaced, whatever was there.
    Replaced,
}

fn run_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(4) }
}

impl Run {
    /// Whether all versions that are younger than this timestamp are of the run. The caller has claimed the cell.
    #[inline(always)]
    pub(crate) fn goes_on_since<M: Machine>(self, cell: Cell<M>, stamp: u64) -> bool {
        // Relaxed: the cell is claimed. It is no tombstone, which has an epoch there: the write needs a row.
        let word = run_of(cell).load(Ordering::Relaxed);
        word & 1 == self as u64 && word >> 1 < stamp
    }

    /// Notes that a version of this timestamp is installed, and of which run, if of any. The caller has claimed the cell.
    #[inline(always)]
    pub(crate) fn note<M: Machine>(run: Option<Run>, cell: Cell<M>, stamp: u64) {
        // Relaxed, all: the cell is claimed.
        let newest = stamp_of(cell.word().load(Ordering::Relaxed));
        let before = run_of(cell).load(Ordering::Relaxed);
        match run {
            // Of a tombstone, no run begins with a write that needs a row.
            Some(run) if before & 1 == run as u64 => {}
            Some(run) => run_of(cell).store(newest << 1 | run as u64, Ordering::Relaxed),
            None => run_of(cell).store(newest.max(stamp) << 1, Ordering::Relaxed),
        }
    }
}

fn deleted_in<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(4) }
}

#[inline(always)]
fn cell_of<M: Machine>(at: At<'_, M>, number: usize) -> Cell<M> {
    if at.table.cell_count() == 1 {
        return at.record.first_cell();
    }
    at.cells(Groups::of(number as u32)).next().expect("a cell of the record")
}

/// Notes that a transaction of this timestamp has read the newest version of the cell.
#[inline(always)]
pub(crate) fn mark_read<M: Machine>(cell: Cell<M>, stamp: u64) {
    // SeqCst, both: the mark comes before the look at the claim; pairs with the claim, which comes before the look at the mark.
    if read_time(cell).load(Ordering::SeqCst) < stamp {
        read_time(cell).fetch_max(stamp, Ordering::SeqCst);
    }
}

/// Sets a new record's words. What is inserted is claimed from the start, until [`Claims::adopt`] says by whom.
pub(crate) fn init<M: Machine>(cells: Cells<M>, initial: Initial) {
    flags::initial(cells, initial, |cell, flags, held| {
        // Relaxed, all of them: the index publishes the record.
        for word in [read_time(cell), older_than(cell), deleted_in(cell)] {
            word.store(0, Ordering::Relaxed);
        }
        kept_before(cell).store(UNBORN, Ordering::Relaxed);
        claim_of(cell).store(if held { UNSTAMPED } else { NOBODY }, Ordering::Relaxed);
        cell.word().store(flags, Ordering::Relaxed);
    });
}

/// A cell of which the newest version was read: the word.
pub(crate) type Seen<M> = (Cell<M>, u64);

/// A version of a cell that was read.
pub(crate) enum Version<M: Machine> {
    /// The newest, which may be replaced.
    Newest(Seen<M>),
    /// An older one of the cell.
    Older(Cell<M>, Older<M>),
}

/// Of when a reader sees the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) stamp: u64,
    /// There are no older versions: who needs one aborts.
    pub(crate) newest_only: bool,
    /// The reader waits for commits as long as they take, instead of giving up some time.
    pub(crate) is_patient: bool,
    /// A deliberate bug: that a version has been taken out is not seen where there is an older one.
    pub(crate) ignore_gaps: bool,
}

impl View {
    /// The state at a timestamp.
    #[inline(always)]
    pub(crate) fn at<F: Faults>(stamp: u64) -> Self {
        // Who does not wait for a version of its time comes upon a gap where that is going to be.
        View { stamp, newest_only: false, is_patient: false, ignore_gaps: F::IGNORE_GAPS || F::IGNORE_PREWRITES }
    }
}

/// Reads a row as it is at a timestamp. `mark` is called with a cell before it is known that the newest version is the one, and `waits` says
/// whether who made this claim has to be waited for. `seen` gets the versions that were read, where there was one.
#[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
#[inline(always)]
pub(crate) fn read<M: Machine>(
    cx: &mut Context<M>,
    at: At<'_, M>,
    columns: Projection<'_>,
    view: View,
    mark: impl Fn(Cell<M>),
    waits: impl Fn(u64) -> bool,
    mut seen: impl FnMut(Version<M>),
) -> Result<Found, Abort> {
    M::step("read");
    let single = at.table.cell_count() == 1;
    let mut all = 0;
    for number in at.table.cell_numbers(columns.groups()) {
        let copy = |at: At<'_, M>| if single { cx.copy_row(at, columns) } else { cx.copy_cell(at, number) };
        let (mark, waits) = (|cell: Cell<M>| mark(cell), |claim| waits(claim));
        all |= read_cell(at, number, view, mark, waits, copy, |version| seen(version))?;
    }
    Ok(flags::found(all))
}

/// Has the version of a cell copied that is there at a timestamp; its word.
#[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
#[inline(always)]
fn read_cell<M: Machine>(
    at: At<'_, M>,
    number: usize,
    view: View,
    mark: impl Fn(Cell<M>),
    waits: impl Fn(u64) -> bool,
    mut copy: impl FnMut(At<'_, M>),
    mut seen: impl FnMut(Version<M>),
) -> Result<u64, Abort> {
    let cell = cell_of(at, number);
    let mut spin = Spin::<M>::new();
    loop {
        // Before the mark: who waits must not make those abort for whom it waits, nor those who come between.
        settle(cell, |claim| waits(claim), &mut spin, view.is_patient)?;
        // Acquire: pairs with the Release of `install_all`; row and copies are at least as new as the word.
        let word = cell.word().load(Ordering::Acquire);
        if stamp_of(word) > view.stamp && word & UNLINKED == 0 {
            return read_older(at, cell, number, view, copy, seen);
        }
        mark(cell);
        // SeqCst: after the mark; pairs with that of `Claims::claim`, see `mark_read`.
        let claim = claim_of(cell).load(Ordering::SeqCst);
        if claim != NOBODY && waits(claim) {
            continue;
        }
        if word & LOCKED == 0 {
            copy(at);
            M::step("check");
            // Acquire: the copy comes before the second look; pairs with the Release fence of `install_all`.
            M::fence(Ordering::Acquire);
        }
        // SeqCst: a mark comes before it; pairs with the store of `unlink`.
        let now = cell.word().load(Ordering::SeqCst);
        if now == word {
            if word & LOCKED == 0 {
                seen(Version::Newest((cell, word)));
                return Ok(word);
            }
            // It is being overwritten by the one who has claimed it, who is younger: the copy is linked.
            if claim != NOBODY {
                return read_older(at, cell, number, view, copy, seen);
            }
        }
    }
}

#[inline(never)]
fn read_older<M: Machine>(
    at: At<'_, M>,
    cell: Cell<M>,
    number: usize,
    view: View,
    mut copy: impl FnMut(At<'_, M>),
    mut seen: impl FnMut(Version<M>),
) -> Result<u64, Abort> {
    if view.newest_only {
        return Err(Abort::new(AbortReason::ReadValidation));
    }
    let before = (number * WORDS * size_of::<M::U64>()) as u64;
    loop {
        let Some(older) = older_at(cell, view.stamp, view.ignore_gaps)? else { return Ok(ABSENT) };
        // SAFETY: the cell is in a copy of a record of this table, behind so many others.
        let version = At { table: at.table, record: unsafe { at.table.version(older.cell.address() - before) } };
        copy(version);
        M::step("check");
        // What is absent has no row: there may be anything.
        let is_poisoned =
            cfg!(debug_assertions) && older.word & ABSENT == 0 && at.table.is_poisoned(version.record, number);
        if older.is_there() {
            debug_assert!(!is_poisoned, "a version is read that has been given back");
            seen(Version::Older(cell, older));
            return Ok(older.word);
        }
    }
}

/// Whether what was seen of a cell is what is there at this timestamp still, after it was marked as read then: nothing older will come.
#[inline(always)]
pub(crate) fn is_current<M: Machine>(
    (cell, word): Seen<M>,
    stamp: u64,
    waits: impl Fn(u64) -> bool,
) -> Result<bool, Abort> {
    settle(cell, waits, &mut Spin::new(), false)?;
    // Acquire: pairs with the Release of `install_all`: the copies are at least as new as the word.
    let mut now = cell.word().load(Ordering::Acquire);
    if stamp_of(now) > stamp {
        // A younger one has overwritten something.
        now = older_at(cell, stamp, false)?.map_or(ABSENT, |older| older.word);
    }
    Ok((now ^ word) & !(LOCKED | QUEUED) == 0)
}

/// Waits for those who have claimed a cell and have to be waited for.
///
/// # Errors
/// They take too long, and the caller is not patient.
#[inline(always)]
fn settle<M: Machine>(
    cell: Cell<M>,
    waits: impl Fn(u64) -> bool,
    spin: &mut Spin<M>,
    is_patient: bool,
) -> Result<(), Abort> {
    loop {
        // SeqCst: after a mark that was made before; pairs with `Claims::claim`, see `mark_read`.
        let claim = claim_of(cell).load(Ordering::SeqCst);
        if claim == NOBODY || !waits(claim) {
            return Ok(());
        }
        if spin.count() > WAITS_MAX && !is_patient {
            return Err(Abort::new(AbortReason::LockTimeout));
        }
        spin.wait();
    }
}

/// Notes that a transaction of this timestamp depends on the keys of a leaf, which it has seen at this version.
///
/// # Errors
/// They have changed.
#[inline(always)]
pub(crate) fn mark_leaf<M: Machine>(leaf: Leaf<M>, version: u64, stamp: u64) -> Result<(), Abort> {
    // Relaxed, both: ordered by the fence.
    if leaf.word().load(Ordering::Relaxed) < stamp {
        leaf.word().fetch_max(stamp, Ordering::Relaxed);
    }
    // SeqCst: the time comes before the look at the keys (`Leaf::word`).
    M::fence(Ordering::SeqCst);
    if leaf.version() == version { Ok(()) } else { Err(Abort::new(AbortReason::Phantom)) }
}

/// Whether a transaction that is older than this time has claimed the cell.
#[inline(always)]
pub(crate) fn is_claimed<M: Machine>(cell: Cell<M>, stamp: u64) -> bool {
    // Relaxed: a first look.
    let claim = claim_of(cell).load(Ordering::Relaxed);
    claim != NOBODY && claim < stamp
}

/// Whether a transaction may run that is older than a deletion in this epoch, and must not miss the row. Who begins in a later epoch gets a later
/// timestamp, so one epoch more is slack: whoever deletes has its timestamp when it loads the epoch.
pub(crate) fn is_young<F: Faults>(deleted_in: u64, oldest: u64) -> bool {
    deleted_in + u64::from(!F::UNLINK_EARLY) >= oldest && !F::FORGET_AGE_OF_TOMBSTONES
}

/// Marks a tombstone as unlinked, if it still is one, all have ended who were there when it was deleted, and no snapshot is
/// of a time before `seen`.
pub(crate) fn unlink<M: Machine, F: Faults>(tombstone: Tombstone<'_, M>, seen: u64) -> Unlink {
    M::step("unlink");
    let cells = tombstone.cells();
    let release = |cell: Cell<M>| {
        // Release: as in `Claims::truncate`.
        claim_of(cell).store(NOBODY, Ordering::Release);
    };
    for (number, cell) in cells.clone().enumerate() {
        // SeqCst: as in `Claims::claim`.
        if claim_of(cell).compare_exchange(NOBODY, UNSTAMPED, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            cells.take(number).for_each(release);
            return Unlink::Busy;
        }
    }
    // Relaxed, here and below: the cells are claimed.
    let first = cells.clone().next().expect("a record has a cell");
    let word = first.word().load(Ordering::Relaxed);
    let outcome = if word & ABSENT == 0 {
        first.word().store(word & !QUEUED, Ordering::Relaxed);
        Unlink::Alive
    } else if is_young::<F>(deleted_in(first).load(Ordering::Relaxed), tombstone.oldest())
        || stamp_of(word) > seen
        || !tombstone.stamp_is_over()
    {
        Unlink::Busy
    } else {
        for cell in cells.clone() {
            // SeqCst: comes before the look at the reads; pairs with the second look of `read_cell`.
            cell.word().store(cell.word().load(Ordering::Relaxed) | UNLINKED, Ordering::SeqCst);
        }
        // Its readers live on in the leaf: who inserts the key anew must come after them.
        let readers = cells.clone().map(|cell| read_time(cell).load(Ordering::SeqCst)).max().unwrap_or(0);
        let readers = if F::FORGET_READERS_OF_TOMBSTONES { 0 } else { readers };
        Unlink::Marked { time: readers.max(stamp_of(word)) }
    };
    cells.for_each(release);
    outcome
}
