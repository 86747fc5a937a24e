//! What protocols have in common whose transactions have a timestamp from the beginning, read without a trace, and claim what they write and
//! validate what they read at the commit.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Abort, AbortReason, At, Cell, Cells, Change, Context, Found, Groups, Leaf, Mode, Projection};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::Faults;
use crate::flags::{ABSENT, UNLINKED};
use crate::optimistic::WAITS_MAX;

use super::collect::Replaced;
use super::{Claims, Seen, Version, View, is_current, mark_leaf, mark_read, read, read_time, stamp_of};

/// A worker's transaction.
#[derive(Debug)]
pub(crate) struct Optimistic<M: Machine> {
    /// Its timestamp.
    pub(crate) own: u64,
    /// The versions that it has read, and that may not be the right ones any more at the commit.
    seen: Vec<Seen<M>>,
    pub(crate) claims: Claims<M>,
}

impl<M: Machine> Optimistic<M> {
    pub(crate) fn new(replaced: Replaced<M>) -> Self {
        Optimistic { own: 0, seen: Vec::with_capacity(64), claims: Claims::new(replaced) }
    }

    /// A transaction of this timestamp begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self, own: u64) {
        self.seen.clear();
        self.own = own;
    }

    /// Whether the transaction has to wait for who has claimed a cell.
    #[inline(always)]
    pub(crate) fn waits<F: Faults>(&self) -> impl Fn(u64) -> bool + use<M, F> {
        let own = self.own;
        move |claim| claim < own && !F::IGNORE_PREWRITES
    }

    /// Reads a row. `older` says whether old versions may change.
    #[inline(always)]
    pub(crate) fn read<F: Faults>(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        view: View,
        older: bool,
    ) -> Result<Found, Abort> {
        let waits = self.waits::<F>();
        read(
            cx,
            at,
            columns,
            view,
            |_| (),
            waits,
            |version| match version {
                Version::Newest(seen) => self.seen.push(seen),
                Version::Older(cell, copy) if older => self.seen.push((cell, copy.word)),
                Version::Older(..) => {}
            },
        )
    }

    /// Whether the transaction has read the cell.
    #[inline(always)]
    pub(crate) fn has_read(&self, cell: Cell<M>) -> bool {
        self.seen.iter().any(|(seen, _)| seen.address() == cell.address())
    }

    /// Prepares a write, to be claimed at the commit. `too_late` is a first look whether the transaction has come too late to write a cell.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
        mut read: impl FnMut(&mut Self, &mut Context<M>, Projection<'_>) -> Result<Found, Abort>,
        too_late: impl Fn(Cell<M>) -> bool,
    ) -> Result<Found, Abort> {
        at.record.prefetch_to_write();
        let found = match mode {
            Mode::Blind | Mode::Merge => {
                // Relaxed: a first look; the claim looks again.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if at.cells(groups).any(gone) {
                    // A miss is read. Should there be a row at the transaction's time, having read it costs nothing but the read.
                    return read(self, cx, Projection::columns(&[], groups));
                }
                Found::Row
            }
            Mode::Modify | Mode::Delete => read(self, cx, Projection::of_groups(groups))?,
            // The engine has just read that it is absent; the check will see whether it still is.
            Mode::Insert => return Ok(Found::Absent),
        };
        if found == Found::Row && at.cells(groups).any(too_late) {
            return Err(Abort::new(AbortReason::WriteLocked));
        }
        Ok(found)
    }

    /// Whether the transaction comes too late to write a version of the cell that replaces the newest one.
    #[inline(always)]
    pub(crate) fn is_overtaken<F: Faults>(&self, cell: Cell<M>, word: u64) -> bool {
        // SeqCst: after the claim, where there is one; see `mark_read`.
        stamp_of(word) > self.own || read_time(cell).load(Ordering::SeqCst) > self.own && !F::OVERTAKE_READS
    }

    /// Takes over the record that the transaction has inserted.
    pub(crate) fn inserted<F: Faults>(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        if self.claims.adopt_at(at, change, self.own) > self.own && !F::FORGET_GAPS {
            return Err(Abort::new(AbortReason::Phantom));
        }
        cx.nodes.follow(change)
    }

    /// The transaction depends on the keys of a leaf.
    #[inline(always)]
    pub(crate) fn gap<F: Faults>(&mut self, cx: &mut Context<M>, leaf: Leaf<M>, version: u64) {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
    }

    /// Claims these cells of a write. `waits` says whether who has claimed one before is to be waited for.
    #[inline(always)]
    pub(crate) fn claim<F: Faults>(
        &mut self,
        write: &Write<M>,
        cells: Cells<M>,
        waits: impl Fn(u64) -> bool,
    ) -> Result<(), Abort> {
        for cell in cells {
            let word = self.claims.claim(cell, self.own, WAITS_MAX, &waits)?;
            if word & UNLINKED != 0 || write.needs_row() && word & ABSENT != 0 {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            if self.is_overtaken::<F>(cell, word) {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
        }
        Ok(())
    }

    /// What was read is read now, in the sight of all; and it has to be right still.
    #[inline(always)]
    pub(crate) fn validate<F: Faults>(&self, cx: &Context<M>) -> Result<(), Abort> {
        if !F::FORGET_READS {
            M::step("mark reads");
            self.seen.iter().for_each(|&(cell, _)| mark_read(cell, self.own));
            // A placeholder that stays absent was read, too: whoever inserts it next comes later.
            let unused = |write: &&Write<M>| write.kind == WriteKind::Nothing;
            for write in cx.writes.entries().iter().filter(unused) {
                write.cells().for_each(|cell| mark_read(cell, self.own));
            }
        }
        for (leaf, version) in cx.nodes.observed() {
            mark_leaf(leaf, version, self.own)?;
        }
        self.check::<F>()
    }

    /// Checks that what was read is what is there at the transaction's time.
    #[inline(always)]
    pub(crate) fn check<F: Faults>(&self) -> Result<(), Abort> {
        M::step("check reads");
        for &seen in &self.seen {
            if F::TRUST_COMMITTED || is_current(seen, self.own, self.waits::<F>())? {
                continue;
            }
            return Err(Abort::new(AbortReason::ReadValidation));
        }
        Ok(())
    }
}
