//! What a transaction has claimed, and the versions that it installs there.

use contend_engine::sets::WriteKind;
use contend_engine::{Abort, AbortReason, At, Cell, Change, Context, Found, Groups, Mode, OldVersion, Projection};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::optimistic::WAITS_MAX;

use super::collect::{Collector, Replaced};
use super::{NOBODY, STAMP_SHIFT, Seen, UNSTAMPED, chain, claim_of, deleted_in, read_time, stamp_of};

/// Whether a cell that is claimed has had a row.
#[inline(always)]
fn had_row<M: Machine>(cell: Cell<M>) -> bool {
    // Relaxed: it is claimed.
    cell.word().load(Ordering::Relaxed) & !QUEUED != ABSENT
}

/// The cells that a transaction has claimed.
#[derive(Debug)]
pub(crate) struct Claims<M: Machine> {
    cells: Vec<Cell<M>>,
    /// What the commit overwrites: copies, and of which writes.
    copies: Vec<(usize, OldVersion<M>)>,
    pub(crate) replaced: Replaced<M>,
    /// The timestamp of the worker's last commit.
    pub(crate) last: u64,
}

impl<M: Machine> Claims<M> {
    pub(crate) fn new(replaced: Replaced<M>) -> Self {
        Claims { cells: Vec::with_capacity(64), copies: Vec::with_capacity(16), replaced, last: 0 }
    }

    /// Claims a cell; its word, which nobody else changes from now on. `waits` says whether who has claimed it before is to be waited for, and
    /// `waits_max` how long.
    ///
    /// # Errors
    /// Another has claimed it.
    #[inline(always)]
    pub(crate) fn claim(
        &mut self,
        cell: Cell<M>,
        claim: u64,
        waits_max: u32,
        waits: impl Fn(u64) -> bool,
    ) -> Result<u64, Abort> {
        M::step("claim");
        // Who has no number works on the chain, and waits for nobody.
        let waits = |other| other == UNSTAMPED || waits(other);
        let mut spin = Spin::<M>::new();
        loop {
            // SeqCst: the claim comes before the look at the youngest read (`mark_read`); and pairs with the Release of who let it go.
            match claim_of(cell).compare_exchange(NOBODY, claim, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    self.cells.push(cell);
                    break;
                }
                Err(other) if other == claim => break,
                // Who tries again takes the line from the holder: it is looked at first.
                // Relaxed: the exchange decides.
                Err(other) => {
                    while claim_of(cell).load(Ordering::Relaxed) == other {
                        if !waits(other) || spin.count() >= waits_max {
                            return Err(Abort::new(AbortReason::WriteLocked));
                        }
                        spin.wait();
                    }
                }
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
        let word = self.claim(cell, claim, WAITS_MAX, |_| false)?;
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
    fn release(&mut self) {
        self.truncate(0);
    }

    /// Gives up all claims of a transaction that aborts.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.release();
        self.replaced.aborted(reason);
    }

    /// Gives up all claims but the first so many.
    #[inline(always)]
    fn truncate(&mut self, len: usize) {
        for cell in &self.cells[len..] {
            // Release: pairs with the exchange of the next claim.
            claim_of(*cell).store(NOBODY, Ordering::Release);
        }
        self.cells.truncate(len);
    }

    /// The cells that are claimed.
    #[inline(always)]
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<M>> + '_ {
        self.cells.iter().copied()
    }

    /// Makes all claims say something else: that the transaction is about to take its timestamp, or which it has taken.
    #[inline(always)]
    pub(super) fn say(&self, claim: u64) {
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

    /// Copies what the commit is going to overwrite, if anybody could need it; with `absent`, that there was nothing as well. Where the newest
    /// version is younger than `stamp`, nothing is overwritten: updates are put into it.
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub(crate) fn copy(
        &mut self,
        cx: &mut Context<M>,
        collector: &Collector<M>,
        absent: bool,
        stamp: u64,
    ) -> Result<(), Abort> {
        M::step("copy versions");
        let began = collector.all_began_before(&self.replaced, stamp);
        // Of a commit that failed after it had copied; nobody has seen them.
        for &(_, copy) in &self.copies {
            cx.reuse_version(copy);
        }
        self.copies.clear();
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            // What never had a row is as absent as a chain that ends; but a history wants to know who deleted the key before.
            let is_wanted = if write.cells().any(had_row) {
                // Relaxed: the cells are claimed.
                let mut begins = write.cells().map(|cell| stamp_of(cell.word().load(Ordering::Relaxed)));
                begins.any(|begin| begin <= stamp && begin < began)
            } else {
                absent || write.table().records_history()
            };
            if write.kind != WriteKind::Nothing && is_wanted {
                let copy = cx.copy_version(position)?;
                self.copies.push((position, copy));
            }
        }
        Ok(())
    }

    /// Installs all writes as versions of this timestamp, after [`Claims::copy`], and gives the claims up. `left` is for those who will read what
    /// is overwritten here.
    ///
    /// Of a cell of which the newest version is younger, only updates are installed that commute with all that came later, and that nobody
    /// has missed: these are put into that version, which becomes a little younger thereby, and what is older ends before them.
    #[inline(always)]
    pub(crate) fn install_all(&mut self, cx: &mut Context<M>, stamp: u64, left: u64) {
        cx.writes.apply_updates();
        M::step("install");
        // Not before the epoch in which anybody begins who could still miss what is deleted here: it is loaded under the claims.
        let epoch = cx.current_epoch();
        let mut next = 0;
        for position in 0..cx.writes.len() {
            let kind = cx.writes.entries()[position].kind;
            if kind == WriteKind::Nothing {
                continue;
            }
            let write = &cx.writes.entries()[position];
            if let Some((_, copy)) = self.copies.get(next).copied().filter(|(of, _)| *of == position) {
                next += 1;
                let (mut copied, mut is_kept) = (Groups::NONE, false);
                for ((number, cell), copy) in
                    write.cell_numbers().into_iter().zip(write.cells()).zip(copy.cells(write.groups()))
                {
                    // Relaxed: the cell is claimed.
                    let word = cell.word().load(Ordering::Relaxed);
                    if stamp_of(word) <= stamp {
                        // Relaxed: the copy is nobody else's yet.
                        copy.word().store(word & !QUEUED, Ordering::Relaxed);
                        is_kept |= self.replaced.put(copy, cell, stamp, left);
                        copied = copied.union(Groups::of(number as u32));
                    }
                }
                self.replaced.push(cx, copy, copied, stamp, epoch, is_kept);
            } else {
                // Relaxed: the cell is claimed.
                let is_older = |cell: &Cell<M>| stamp_of(cell.word().load(Ordering::Relaxed)) <= stamp;
                write.cells().filter(|cell| had_row(*cell)).filter(is_older).for_each(chain::note_birth);
            }
            let write = &cx.writes.entries()[position];
            for cell in write.cells() {
                // Relaxed: the cell is claimed.
                let word = cell.word().load(Ordering::Relaxed);
                if stamp_of(word) > stamp {
                    chain::end_at(cell, stamp);
                }
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
                let word = cell.word().load(Ordering::Relaxed);
                let queued = word & QUEUED;
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
                // What is younger already has been updated.
                let stamp = stamp.max(stamp_of(word) + 1);
                // Release: the row comes before; pairs with the Acquire of `read_cell`.
                cell.word().store(stamp << STAMP_SHIFT | flags, Ordering::Release);
            }
        }
        self.copies.clear();
        self.last = stamp;
        self.release();
    }
}
