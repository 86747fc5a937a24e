//! What protocols have in common whose transactions have a timestamp from the beginning, read without a trace, and claim what they write and
//! validate what they read at the commit.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{Abort, AbortReason, At, Cell, Change, Context, Found, Groups, Leaf, Mode, Projection, options};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::Faults;
use crate::flags::{ABSENT, UNLINKED};
use crate::optimistic::WAITS_MAX;

use super::collect::{Collector, Replaced};
use super::{
    Claims, Older, Run, Seen, Version, View, WORDS, chain, is_current, mark_leaf, mark_read, read, read_time, stamp_of,
};

options! {
    /// Options of protocols whose transactions have a timestamp from the beginning, and validate at the commit.
    pub struct OptimisticOptions {
        /// Let transactions that say beforehand that they will only read see the state before the oldest transaction that runs: these never
        /// abort. Old versions are kept a little longer then; versions.collect=epoch is as rapid, and none is overwritten (versions.overwrite).
        "versions.snapshots" snapshots: bool = false, in ();
        /// Leave out what comes too late to be written, where a later write has replaced the whole row without a look at it, and nobody has
        /// read it between (the non-visible write rule).
        "versions.nwr" nwr: bool = false, in ();
    }
}

/// A write of a cell that is not to be installed.
#[derive(Debug)]
struct Omitted<M: Machine> {
    /// The write's position.
    position: usize,
    number: usize,
    /// The version before it.
    before: Older<M>,
    /// For a history: what that version is called.
    over: u64,
}

/// A worker's transaction.
#[derive(Debug)]
pub(crate) struct Optimistic<M: Machine> {
    options: OptimisticOptions,
    /// Its timestamp.
    pub(crate) own: u64,
    /// It only reads, and what it reads is the state at its timestamp for good: it leaves nothing behind, waits for nobody, and never aborts.
    pub(crate) reads_snapshot: bool,
    /// The versions that it has read, and that may not be the right ones any more at the commit.
    seen: Vec<Seen<M>>,
    omitted: Vec<Omitted<M>>,
    pub(crate) claims: Claims<M>,
}

impl<M: Machine> Optimistic<M> {
    pub(crate) fn new(options: OptimisticOptions, replaced: Replaced<M>) -> Self {
        Optimistic {
            options,
            own: 0,
            reads_snapshot: false,
            seen: Vec::with_capacity(64),
            omitted: Vec::with_capacity(16),
            claims: Claims::new(replaced),
        }
    }

    /// Whether the transaction that begins is to see a snapshot.
    #[inline(always)]
    pub(crate) fn wants_snapshot(&self, cx: &Context<M>) -> bool {
        self.options.snapshots && cx.declaration.is_read_only()
    }

    /// It begins, at the moment before the oldest transaction that runs. `now` is as in [`Collector::begin_snapshot`].
    pub(crate) fn begin_snapshot(&mut self, cx: &mut Context<M>, collector: &Collector<M>, now: impl FnMut() -> u64) {
        self.seen.clear();
        self.reads_snapshot = true;
        self.own = collector.begin_snapshot(cx, &mut self.claims.replaced, self.claims.last, now);
        collector.began(&self.claims.replaced, self.own);
    }

    /// Whether the snapshot of a transaction has all that its worker has committed.
    pub(crate) fn sees_own_commits(&self) -> bool {
        self.reads_snapshot && self.claims.last <= self.own
    }

    /// A transaction begins at a time of its own, after the collector has been told.
    #[inline(always)]
    pub(crate) fn begin(&mut self, collector: &Collector<M>, stamp: impl FnOnce() -> u64) {
        self.seen.clear();
        self.reads_snapshot = false;
        self.own = stamp();
        collector.began(&self.claims.replaced, self.own);
    }

    /// Whether the transaction has to wait for who has claimed a cell.
    #[inline(always)]
    pub(crate) fn waits<F: Faults>(&self) -> impl Fn(u64) -> bool + use<M, F> {
        let own = self.own;
        move |claim| claim < own && !F::IGNORE_PREWRITES
    }

    /// Reads a row. `older` says whether what is between older versions may change.
    #[inline(always)]
    pub(crate) fn read<F: Faults>(
        &mut self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        view: View,
        older: bool,
    ) -> Result<Found, Abort> {
        if self.reads_snapshot {
            return read(cx, at, columns, View::at::<F>(self.own), |_| (), |_| false, |_| ());
        }
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
                Version::Older(cell, copy) if (older || self.options.nwr) && !F::TRUST_OLDER => {
                    self.seen.push((cell, copy.word))
                }
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
        if self.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
        }
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
        let may_be_omitted = mode == Mode::Blind && self.options.nwr;
        if found == Found::Row && !may_be_omitted && at.cells(groups).any(too_late) {
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
        if self.reads_snapshot {
            // The placeholder is nobody's any more.
            at.cells(Groups::ALL).for_each(|cell| self.claims.adopt(cell, self.own));
            return Err(Abort::new(AbortReason::Unsupported));
        }
        if self.claims.adopt_at(at, change, self.own) > self.own && !F::FORGET_GAPS {
            return Err(Abort::new(AbortReason::Phantom));
        }
        cx.nodes.follow(change)
    }

    /// The transaction depends on the keys of a leaf.
    #[inline(always)]
    pub(crate) fn gap<F: Faults>(&mut self, cx: &mut Context<M>, leaf: Leaf<M>, version: u64) {
        // What a snapshot lacks will not come: an insert is of a later time.
        if !self.reads_snapshot && !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
    }

    /// Claims the cells of these numbers of the write at this position. `waits` says whether who has claimed one before is to be waited for.
    #[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
    #[inline(always)]
    pub(crate) fn claim<F: Faults>(
        &mut self,
        write: &Write<M>,
        position: usize,
        numbers: Groups,
        waits: impl Fn(u64) -> bool,
    ) -> Result<(), Abort> {
        for (number, cell) in numbers.into_iter().zip(write.table().cells(write.record, numbers)) {
            let word = self.claims.claim(cell, self.own, WAITS_MAX, |claim| waits(claim))?;
            if word & UNLINKED != 0 || write.needs_row() && word & ABSENT != 0 {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            if self.is_overtaken::<F>(cell, word) {
                let Some((before, over)) = self.may_omit::<F>(write, number, cell) else {
                    return Err(Abort::new(AbortReason::WriteLocked));
                };
                self.omitted.push(Omitted { position, number, before, over });
            }
        }
        Ok(())
    }

    /// The version that a write of the cell, which is claimed and of which the newest version is younger, would have replaced, if it can be left
    /// out; and what a history calls that version.
    #[inline(never)]
    fn may_omit<F: Faults>(&self, write: &Write<M>, number: usize, cell: Cell<M>) -> Option<(Older<M>, u64)> {
        let wants_to = self.options.nwr && write.replaced().contains(Groups::of(number as u32));
        // SeqCst: after the claim; see `mark_read`. Who has read what is before or between has left a mark, or will find that what it has read
        // ended before.
        let was_read = read_time(cell).load(Ordering::SeqCst) > self.own && !F::OVERTAKE_READS;
        let is_replaced = F::OMIT_ANY || Run::Replaced.goes_on_since(cell, self.own);
        if !wants_to || was_read || !is_replaced {
            return None;
        }
        let before = if self.claims.replaced.may_lack() {
            // What is found may not be the one before, if it does not last until then.
            chain::older_at(cell, self.own, false).ok()?
        } else {
            chain::begun_at(cell, self.own)
        }?;
        let first = before.cell.address() - (number * WORDS * size_of::<M::U64>()) as u64;
        // SAFETY: the cell is in a copy of a record of this table, behind so many others.
        let over = write.table().name_of(unsafe { write.table().version(first) }, number);
        before.is_there().then_some((before, over))
    }

    /// Installs all writes, after [`Claims::copy`], and gives the claims up. `late` says which cells of a write are written by updates that may
    /// come late; none, if no updates may.
    #[inline(always)]
    pub(crate) fn install(&mut self, cx: &mut Context<M>, late: Option<impl Fn(&Write<M>) -> Groups>) {
        cx.writes.apply_updates();
        if !self.omitted.is_empty() {
            for Omitted { position, number, before, over } in self.omitted.drain(..) {
                M::step("omit");
                chain::shorten(&before, self.own);
                cx.writes.omit(position, number, over);
            }
        }
        if self.options.nwr || late.is_some() {
            for write in cx.writes.entries().iter().filter(|write| write.kind != WriteKind::Nothing) {
                let commuting = late.as_ref().map_or(Groups::NONE, |late| late(write));
                let replaced = if self.options.nwr { write.replaced() } else { Groups::NONE };
                for (number, cell) in write.cell_numbers().into_iter().zip(write.cells()) {
                    let is_in = |cells: Groups| cells.contains(Groups::of(number as u32));
                    let run = is_in(commuting).then_some(Run::Commuting).or(is_in(replaced).then_some(Run::Replaced));
                    Run::note(run, cell, self.own);
                }
            }
        }
        self.claims.install_all(cx, self.own, 0);
    }

    /// The transaction has failed.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.omitted.clear();
        self.claims.abort(reason);
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
