//! Version chains: what multi-version protocols have in common.
//!
//! The newest version of a cell stands in the record itself, where the index leads; a commit copies what it overwrites to a record of its
//! own, in no index. From the newest copy a chain leads to older ones. So who reads what is newest, as nearly all do, reads one place,
//! with no pointer to follow; and a transaction that is late finds what it would have read had it been in time.
//!
//! **Metadata.** Five words a cell:
//!
//! | word | in a record | in a copy |
//! | --- | --- | --- |
//! | 0 | flags ([`crate::flags`]; locked: the row is being overwritten); above them the timestamp of the version | the same |
//! | 1 | the *claim*: who is going to write the next version; 0 if nobody is | the timestamp of the version that replaced it |
//! | 2 | the timestamp of the youngest read, where the protocol has use for it | what the one that replaced it has left (`ermia`) |
//! | 3 | where the cell is in the newest copy; 0 if there is none | in the next older one |
//! | 4 | of a tombstone: the epoch in which it was deleted | |
//!
//! **A version at a time.** Versions are written in the order of their timestamps: who comes with an older one than the newest aborts. (So do
//! Cicada by default, and DBx1000's MVCC.) A claim is a timestamp, if its transaction has one: readers that are younger wait for what
//! becomes of it, older ones pass. A row is overwritten only when its transaction is sure to commit.
//!
//! **Reuse.** A copy that was replaced by a version of time `t` is needed by who reads before `t`. Nobody else follows a link to it, so
//! nothing has to be unlinked. [`collect`] says when the last of those have ended.

pub mod collect;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Found, Groups, Initial, Leaf, Mode, OldVersion, Projection,
    Unlink,
};
use contend_machine::{Activity, Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::optimistic::WAITS_MAX;

use collect::Replaced;

/// Metadata words of a cell.
pub(crate) const WORDS: usize = 5;
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
    // SAFETY: cells have five words.
    unsafe { cell.meta(1) }
}

/// The timestamp of a cell's youngest read.
#[inline(always)]
pub(crate) fn read_time<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(2) }
}

fn older_than<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(3) }
}

fn deleted_in<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(4) }
}

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
    /// A copy, which does not change.
    Older(Cell<M>),
}

/// Of when a reader sees the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) stamp: u64,
    /// There are no older versions: who needs one aborts.
    pub(crate) newest_only: bool,
}

impl View {
    /// The state at a timestamp.
    #[inline(always)]
    pub(crate) fn at(stamp: u64) -> Self {
        View { stamp, newest_only: false }
    }
}

/// Reads a row as it is at a timestamp. `mark` is called with a cell before it is known that the newest version is the one, and `waits` says
/// whether who made this claim has to be waited for. `seen` gets the versions that were read, where there was one.
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
        all |= read_cell(at, number, view, &mark, &waits, copy, &mut seen)?;
    }
    Ok(flags::found(all))
}

/// Has the version of a cell copied that is there at a timestamp; its word.
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
        settle(cell, &waits, &mut spin)?;
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
    let Some(version) = older_at(cell, view.stamp) else { return Ok(ABSENT) };
    seen(Version::Older(version));
    let before = number * WORDS * size_of::<M::U64>();
    // SAFETY: the cell is in a copy of a record of this table, behind so many others.
    let version_at = At { table: at.table, record: unsafe { at.table.version(version.address() - before as u64) } };
    copy(version_at);
    // Relaxed: a copy does not change.
    let word = version.word().load(Ordering::Relaxed);
    // What is absent has no row: there may be anything.
    debug_assert!(
        word & ABSENT != 0 || !at.table.is_poisoned(version_at.record),
        "a version is read that has been given back"
    );
    Ok(word)
}

/// The copy of a cell that is of this time, if there was a version then. Whoever asks began before what replaced it.
pub(crate) fn older_at<M: Machine>(mut cell: Cell<M>, stamp: u64) -> Option<Cell<M>> {
    loop {
        M::step("older version");
        // Acquire: pairs with the Release of `install_all`.
        let address = older_than(cell).load(Ordering::Acquire);
        let copy = NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(address as usize))?;
        // SAFETY: `install_all` has put a copy's cell there; it is not reused before all have ended who read before what replaced it.
        cell = unsafe { Cell::at(copy) };
        // Relaxed: a copy does not change.
        if stamp_of(cell.word().load(Ordering::Relaxed)) <= stamp {
            return Some(cell);
        }
    }
}

/// Of a copy: the timestamp of the version that replaced it, and what the transaction that did has left.
pub(crate) fn replaced_by<M: Machine>(copy: Cell<M>) -> (u64, u64) {
    // Relaxed: a copy does not change.
    (claim_of(copy).load(Ordering::Relaxed), read_time(copy).load(Ordering::Relaxed))
}

/// Whether what was seen of a cell is what is there at this timestamp still, after it was marked as read then: nothing older will come.
#[inline(always)]
pub(crate) fn is_current<M: Machine>(
    (cell, word): Seen<M>,
    stamp: u64,
    waits: impl Fn(u64) -> bool,
) -> Result<bool, Abort> {
    settle(cell, waits, &mut Spin::new())?;
    // Acquire: pairs with the Release of `install_all`: the copies are at least as new as the word.
    let mut now = cell.word().load(Ordering::Acquire);
    if stamp_of(now) > stamp {
        // A younger one has overwritten something.
        // Relaxed: a copy does not change.
        now = older_at(cell, stamp).map_or(ABSENT, |copy| copy.word().load(Ordering::Relaxed));
    }
    Ok((now ^ word) & !(LOCKED | QUEUED) == 0)
}

/// Waits for those who have claimed a cell and have to be waited for.
///
/// # Errors
/// They take too long.
#[inline(always)]
fn settle<M: Machine>(cell: Cell<M>, waits: impl Fn(u64) -> bool, spin: &mut Spin<M>) -> Result<(), Abort> {
    loop {
        // SeqCst: after a mark that was made before; pairs with `Claims::claim`, see `mark_read`.
        let claim = claim_of(cell).load(Ordering::SeqCst);
        if claim == NOBODY || !waits(claim) {
            return Ok(());
        }
        if spin.count() > WAITS_MAX {
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

/// The one counter that orders the commits where transactions see the state at their begin.
///
/// A transaction that began at time `b` sees the commits up to `b`, also those that are still installing: a committing writer says so in its
/// claims *before* it takes its timestamp, and a reader that meets such a claim waits. Whose claim does not say so yet takes its timestamp
/// after the reader took its own, and is not seen.
#[derive(Debug)]
pub(crate) struct Commits<M: Machine> {
    /// The timestamp of the last.
    last: CachePadded<M::U64>,
}

impl<M: Machine> Commits<M> {
    pub(crate) fn new() -> Self {
        Commits { last: CachePadded::new(M::U64::new(DECIDING)) }
    }

    /// The timestamp of the last commit.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        // SeqCst: comes before every look at a claim that follows; pairs with `stamp`, where it comes after what the claims say.
        self.last.load(Ordering::SeqCst)
    }

    /// Takes the timestamp of a commit, which the claims tell from now on.
    #[inline(always)]
    pub(crate) fn stamp(&self, claims: &Claims<M>) -> u64 {
        claims.say(DECIDING);
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        // SeqCst: comes after what the claims say; see `last`.
        let stamp = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        M::enter(phase);
        claims.say(stamp);
        stamp
    }
}

/// The cells that a transaction has claimed.
#[derive(Debug)]
pub(crate) struct Claims<M: Machine> {
    cells: Vec<Cell<M>>,
    /// What the commit overwrites: copies, and of which writes.
    copies: Vec<(usize, OldVersion<M>)>,
    pub(crate) replaced: Replaced<M>,
}

impl<M: Machine> Claims<M> {
    pub(crate) fn new(replaced: Replaced<M>) -> Self {
        Claims { cells: Vec::with_capacity(64), copies: Vec::with_capacity(16), replaced }
    }

    /// Claims a cell; its word, which nobody else changes from now on. `waits` says whether who has claimed it before is to be waited for.
    ///
    /// # Errors
    /// Another has claimed it.
    #[inline(always)]
    pub(crate) fn claim(&mut self, cell: Cell<M>, claim: u64, waits: impl Fn(u64) -> bool) -> Result<u64, Abort> {
        M::step("claim");
        let mut spin = Spin::<M>::new();
        loop {
            // SeqCst: the claim comes before the look at the youngest read (`mark_read`); and pairs with the Release of who let it go.
            match claim_of(cell).compare_exchange(NOBODY, claim, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    self.cells.push(cell);
                    break;
                }
                Err(other) if other == claim => break,
                Err(other) if waits(other) && spin.count() <= WAITS_MAX => spin.wait(),
                Err(_) => return Err(Abort::new(AbortReason::WriteLocked)),
            }
        }
        // Relaxed: nobody else changes it, and the exchange has made visible what is there.
        Ok(cell.word().load(Ordering::Relaxed))
    }

    /// Claims a cell of which no version has been written since a time: the first to write wins, as snapshot isolation has it.
    ///
    /// # Errors
    /// Another has claimed it, or has written one.
    #[inline(always)]
    pub(crate) fn claim_since(&mut self, cell: Cell<M>, claim: u64, begin: u64) -> Result<u64, Abort> {
        let word = self.claim(cell, claim, |_| false)?;
        if stamp_of(word) > begin && word & UNLINKED == 0 {
            return Err(Abort::new(AbortReason::WriteLocked));
        }
        Ok(word)
    }

    /// Takes over the claim of a cell of the record that the transaction has just inserted.
    pub(crate) fn adopt(&mut self, cell: Cell<M>, claim: u64) {
        // SeqCst: as in `claim`.
        claim_of(cell).store(claim, Ordering::SeqCst);
        self.cells.push(cell);
    }

    /// Takes over the claims of the record that the transaction of this timestamp has just inserted; the youngest timestamp at which its key
    /// was missed.
    pub(crate) fn adopt_at(&mut self, at: At<'_, M>, change: &Change<M>, stamp: u64) -> u64 {
        // SeqCst: the insert comes before the look at the leaves' times; pairs with the fence of `mark_leaf`.
        M::fence(Ordering::SeqCst);
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let missed = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        let mut youngest = missed;
        for cell in at.cells(Groups::ALL) {
            self.adopt(cell, stamp);
            // Who has missed the key has read that it is absent, also if this insert comes to nothing and another gives it a row.
            // SeqCst: after the claim; see `mark_read`.
            youngest = read_time(cell).fetch_max(missed, Ordering::SeqCst).max(youngest);
        }
        youngest
    }

    /// Gives up all claims.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        self.truncate(0);
    }

    /// Gives up all claims but the first so many.
    #[inline(always)]
    fn truncate(&mut self, len: usize) {
        for cell in self.cells.drain(len..) {
            // Release: pairs with the exchange of the next claim.
            claim_of(cell).store(NOBODY, Ordering::Release);
        }
    }

    /// The cells that are claimed.
    #[inline(always)]
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<M>> + '_ {
        self.cells.iter().copied()
    }

    /// Makes all claims say something else: that the transaction is about to take its timestamp, or which it has taken.
    #[inline(always)]
    fn say(&self, claim: u64) {
        for &cell in &self.cells {
            // SeqCst: comes before the timestamp; pairs with the look of a reader that has taken its own before.
            claim_of(cell).store(claim, Ordering::SeqCst);
        }
    }

    /// Prepares a write where writes claim at once: claims the cells by `claim`, which says what their words are, and copies what is needed of
    /// the row. `missed` is told of the cells of what turns out to be absent.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
        mut claim: impl FnMut(&mut Self, Cell<M>) -> Result<u64, Abort>,
        mut missed: impl FnMut(Seen<M>),
    ) -> Result<Found, Abort> {
        let (held, mut flags) = (self.cells.len(), 0);
        for cell in at.cells(groups) {
            flags |= claim(self, cell)?;
        }
        if flags & UNLINKED != 0 {
            self.truncate(held);
            return Ok(Found::Unlinked);
        }
        match (flags & ABSENT != 0, mode) {
            (true, Mode::Insert) => Ok(Found::Absent),
            (false, Mode::Insert) => Err(Abort::new(AbortReason::WriteLocked)),
            (true, _) => {
                // A miss, which is a read.
                // Relaxed: the cells are claimed.
                at.cells(groups).for_each(|cell| missed((cell, cell.word().load(Ordering::Relaxed))));
                cx.copy_row(at, Projection::EXISTENCE);
                self.truncate(held);
                Ok(Found::Absent)
            }
            (false, Mode::Blind | Mode::Merge) => Ok(Found::Row),
            (false, _) => {
                cx.copy_row(at, Projection::of_groups(groups));
                Ok(Found::Row)
            }
        }
    }

    /// Copies what the commit is going to overwrite; with `absent`, that there was nothing as well.
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub(crate) fn copy(&mut self, cx: &mut Context<M>, absent: bool) -> Result<(), Abort> {
        M::step("copy versions");
        // Of a commit that failed after it had copied; nobody has seen them.
        self.copies.drain(..).for_each(|(_, copy)| cx.reuse_version(copy));
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            // What never had a row is as absent as a chain that ends; but a history wants to know who deleted the key before.
            // Relaxed: the cells are claimed.
            let had_row = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & !QUEUED != ABSENT;
            let wanted = absent || write.table().records_history() || write.cells().any(had_row);
            if write.kind != WriteKind::Nothing && wanted {
                let copy = cx.copy_version(position)?;
                self.copies.push((position, copy));
            }
        }
        Ok(())
    }

    /// Installs all writes as versions of this timestamp, after [`Claims::copy`], and gives the claims up. `left` is for those who will read what
    /// is overwritten here.
    #[inline(always)]
    pub(crate) fn install_all(&mut self, cx: &mut Context<M>, stamp: u64, left: u64) {
        M::step("install");
        // Not before the epoch in which anybody begins who could still miss what is deleted here: it is loaded under the claims.
        let epoch = cx.current_epoch();
        let mut copies = self.copies.drain(..).peekable();
        for position in 0..cx.writes.len() {
            let kind = cx.writes.entries()[position].kind;
            if kind == WriteKind::Nothing {
                continue;
            }
            let write = &cx.writes.entries()[position];
            if let Some((_, copy)) = copies.next_if(|(of, _)| *of == position) {
                for (cell, copied) in write.cells().zip(copy.cells(write.groups())) {
                    // Relaxed, all but the last: the cell is claimed, and the copy nobody else's yet.
                    copied.word().store(cell.word().load(Ordering::Relaxed) & !QUEUED, Ordering::Relaxed);
                    older_than(copied).store(older_than(cell).load(Ordering::Relaxed), Ordering::Relaxed);
                    claim_of(copied).store(stamp, Ordering::Relaxed);
                    read_time(copied).store(left, Ordering::Relaxed);
                    // Release: the copy; pairs with the Acquire of `older_at`.
                    older_than(cell).store(copied.value(), Ordering::Release);
                }
                self.replaced.push(cx, copy, stamp, epoch);
            }
            let write = &cx.writes.entries()[position];
            for cell in write.cells() {
                // Relaxed: the cell is claimed.
                let word = cell.word().load(Ordering::Relaxed);
                // Release: the link; pairs with the Acquire of `read_cell`.
                cell.word().store(word | LOCKED, Ordering::Release);
            }
            // Release: the locks come before the stores to the row; pairs with the Acquire fence of `read_cell`.
            M::fence(Ordering::Release);
            cx.writes.install(position);
            let write = &mut cx.writes.entries_mut()[position];
            let first = write.record.first_cell().address();
            for cell in write.cells() {
                // Relaxed: the cell is claimed.
                let queued = cell.word().load(Ordering::Relaxed) & QUEUED;
                let flags = match kind {
                    WriteKind::Insert if write.fresh => 0,
                    WriteKind::Update | WriteKind::Insert => queued,
                    _ if cell.address() == first => {
                        write.collect = queued == 0;
                        // Relaxed: only who claims the cell looks.
                        deleted_in(cell).store(epoch, Ordering::Relaxed);
                        ABSENT | QUEUED
                    }
                    _ => ABSENT,
                };
                // Release: the row comes before; pairs with the Acquire of `read_cell`.
                cell.word().store(stamp << STAMP_SHIFT | flags, Ordering::Release);
            }
        }
        drop(copies);
        self.release();
    }
}

/// Whether a transaction that is older than this time has claimed the cell.
#[inline(always)]
pub(crate) fn is_claimed<M: Machine>(cell: Cell<M>, stamp: u64) -> bool {
    // Relaxed: a first look.
    let claim = claim_of(cell).load(Ordering::Relaxed);
    claim != NOBODY && claim < stamp
}

/// Marks a tombstone as unlinked, if it still is one and all have ended who were there when it was deleted.
pub(crate) fn unlink<M: Machine>(cells: Cells<M>, oldest: u64) -> Unlink {
    M::step("unlink");
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
    } else if deleted_in(first).load(Ordering::Relaxed) + 1 >= oldest {
        // Somebody may run who is older than the deletion, and must not miss the row.
        Unlink::Busy
    } else {
        for cell in cells.clone() {
            // SeqCst: comes before the look at the reads; pairs with the second look of `read_cell`.
            cell.word().store(cell.word().load(Ordering::Relaxed) | UNLINKED, Ordering::SeqCst);
        }
        // Its readers live on in the leaf: who inserts the key anew must come after them.
        let readers = cells.clone().map(|cell| read_time(cell).load(Ordering::SeqCst)).max().unwrap_or(0);
        Unlink::Marked { time: readers.max(stamp_of(word)) }
    };
    cells.for_each(release);
    outcome
}
