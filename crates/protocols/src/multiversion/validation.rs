//! Transactions that have a timestamp from the begin, read without a trace, and validate their
//! reads at the commit: the part that `cicada` and `msto` share.
//!
//! **The commit** of such a transaction, with the function of each step. The order of the first
//! three steps excludes that two transactions miss each other: a writer's intent comes before its
//! load of the `rts`, and a reader's `rts` comes before its load of the intent
//! (`super::raise_rts`).
//!
//! 1. Place write intents, and check that no younger transaction has read or written the cells
//!    ([`ValidatingTxn::place_intents`]).
//! 2. Raise the `rts` of all cells that were read, and of the leaves ([`ValidatingTxn::validate`]).
//! 3. Check that each version that was read is the one that a new search at the transaction's time
//!    finds ([`ValidatingTxn::check_reads`]).
//! 4. Install ([`ValidatingTxn::install`]).
//!
//! **An example.** T7 reads x, T5 writes x, and T5's version is not there when T7 reads. T7 must
//! not commit together with T5. T7 raises the `rts` of x to 7, and then looks for an intent. T5
//! places its intent, and then loads the `rts`. All four accesses are SeqCst. If T5's load misses
//! the 7, T5's intent comes before T7's look in their total order. So T7 waits for T5, and finds
//! another version than it has read. With steps 2 and 3 swapped, T7 could look before the intent is
//! there, and T5 could load the `rts` before T7 raises it: both would commit.
//!
//! **What the check finds stays true.** An intent of an older writer that was there was waited for,
//! and a later one finds the `rts` and aborts. So `cicada` is committed at the end of step 3.
//! `msto` still has to place the intents of updates that commute, and may abort there.
//!
//! **Waits.** Steps 1 and 3 wait for the intents of older transactions, and of threads that work on
//! a chain and wait for nobody. So waits form no cycle. Each wait has a bound, after which the
//! transaction aborts.
//!
//! **Invisible writes** (`versions.nwr=on`; the non-visible write rule). A write that comes too
//! late is skipped if three things hold: it replaces a whole cell, all later versions replaced the
//! whole cell without a look at it, and no younger transaction has read the cell. The
//! [`SuffixKind`] and the `rts` tell. The version before the skipped write ends at the write's
//! time, so a transaction that reads between the two begins again; and that version must still be
//! in the chain. A recorded history names it (`"omitted":true`, `over`): the write has its place
//! after that version and all its readers, and before the next version. If no version has replaced
//! it, or one by a look at it, the checker reports a lost write. The rule is not for protocols
//! whose commits come after all others, nor for `mvto`, which keeps no trace of reads of old
//! versions.

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, Groups, Leaf, Located, Projection, RecordState, WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::faults;
use crate::flags::{ABSENT, UNLINKED};
use crate::method::wait::WAITS_MAX;

use super::collect::{Collector, RetiredVersions};
use super::{
    ChainedVersion, ReadEntry, ReadVersion, ReadView, SuffixKind, VersionFaults, WORDS, WriteIntents, chain,
    is_still_visible, raise_leaf_rts, raise_rts, read_row, rts_of, rts_under_intent, waits_for_earlier_than, wts_of,
};

options! {
    /// Options of protocols whose transactions have a timestamp from the begin, and validate at the
    /// commit.
    pub struct ValidatingOptions {
        /// Let transactions that declare themselves read-only see the state before the oldest
        /// running transaction: they never abort. Old versions are then kept a little longer;
        /// versions.collect=epoch is as rapid, and none is overwritten (versions.overwrite).
        "versions.snapshots" snapshots: bool = false, in ();
        /// Skip a write that comes too late, where a later write has replaced the whole row without
        /// a look at it, and no transaction has read it between (the non-visible write rule).
        "versions.nwr" nwr: bool = false, in ();
    }
}

/// A write of a cell that is not installed, because no transaction will see it.
#[derive(Debug)]
struct SkippedWrite<M: Machine> {
    /// The position of the write in the write set.
    position: usize,
    /// The number of the cell.
    number: usize,
    /// The version that it would have replaced.
    before: ChainedVersion<M>,
    /// The name of that version in a history.
    over: u64,
}

/// A worker's transaction.
#[derive(Debug)]
pub(crate) struct ValidatingTxn<M: Machine> {
    options: ValidatingOptions,
    /// Its timestamp: Cicada's `tx.ts`.
    pub(crate) ts: u64,
    /// Whether it reads the state at `ts`, which is final: then it leaves no trace, waits for no
    /// transaction, and never aborts.
    pub(crate) reads_snapshot: bool,
    /// The versions that it has read and that another may replace before its commit. An old version
    /// is not among them as a rule. No version is written between two others, so it stays the one
    /// of its time (`validates_old` is for the exceptions).
    read_set: Vec<ReadEntry<M>>,
    skipped: Vec<SkippedWrite<M>>,
    pub(crate) intents: WriteIntents<M>,
}

impl<M: Machine> ValidatingTxn<M> {
    pub(crate) fn new(options: ValidatingOptions, retired: RetiredVersions<M>) -> Self {
        ValidatingTxn {
            options,
            ts: 0,
            reads_snapshot: false,
            read_set: Vec::with_capacity(64),
            skipped: Vec::with_capacity(16),
            intents: WriteIntents::new(retired),
        }
    }

    /// Returns whether the transaction that begins must see a snapshot.
    #[inline(always)]
    pub(crate) fn wants_snapshot(&self, cx: &Context<M>) -> bool {
        self.options.snapshots && cx.declaration.is_read_only()
    }

    /// Begins a transaction that sees the state before the oldest running one. `now` is as in
    /// [`Collector::begin_snapshot`].
    ///
    /// Each transaction with a timestamp up to `ts` has ended, and the watermark that says so was
    /// loaded with Acquire. So all versions up to `ts` are installed before the first read, and the
    /// reads need no intents, no `rts`, and no validation.
    pub(crate) fn begin_snapshot(&mut self, cx: &mut Context<M>, collector: &Collector<M>, now: impl FnMut() -> u64) {
        self.read_set.clear();
        self.reads_snapshot = true;
        self.ts = collector.begin_snapshot(cx, &mut self.intents.retired, self.intents.last_commit_ts, now);
        collector.publish_ts(&self.intents.retired, self.ts);
    }

    /// Returns whether the transaction's snapshot has every commit of its worker.
    pub(crate) fn sees_own_commits(&self) -> bool {
        self.reads_snapshot && self.intents.last_commit_ts <= self.ts
    }

    /// Begins a transaction, after the collector has been told. `ts` draws its timestamp. In this
    /// order the watermark in the worker's slot is not later than the timestamp, so that the
    /// collector keeps what the transaction may read.
    #[inline(always)]
    pub(crate) fn begin(&mut self, collector: &Collector<M>, ts: impl FnOnce() -> u64) {
        self.read_set.clear();
        self.reads_snapshot = false;
        self.ts = ts();
        collector.publish_ts(&self.intents.retired, self.ts);
    }

    /// Reads a row. `validates_old` says whether an old version that was read may still be replaced
    /// as the one of its time.
    #[inline(always)]
    pub(crate) fn read<F: ValidationFaults>(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        view: ReadView,
        validates_old: bool,
    ) -> Result<RecordState, Abort> {
        if self.reads_snapshot {
            return read_row(cx, at, columns, ReadView::of_final_state::<F>(self.ts), |_| ());
        }
        // Correctness does not need the wait for older writers, because the validation looks again.
        // The wait makes it fail less often. The read leaves no `rts`, and so writes no shared
        // line.
        let validates_old = Self::validates_old::<F>(validates_old || self.options.nwr);
        read_row(cx, at, columns, view, |version| match version {
            ReadVersion::Newest(entry) => self.read_set.push(entry),
            ReadVersion::Old(cell, old) if validates_old => self.read_set.push((cell, old.word)),
            ReadVersion::Old(..) | ReadVersion::None => {}
        })
    }

    /// Returns whether the transaction has read the cell.
    #[inline(always)]
    pub(crate) fn has_read(&self, cell: Cell<M>) -> bool {
        self.read_set.iter().any(|(read, _)| read.address() == cell.address())
    }

    /// Prepares a write, whose intents the commit places. `read` reads the row. With `early_abort`
    /// the transaction looks already now whether it comes too late.
    ///
    /// All looks here are first looks, without an intent. `wts` and `rts` of a cell only grow, so a
    /// transaction that is too late now could not commit this write later. That it is not too late
    /// is known only under the intent.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
        early_abort: bool,
        mut read: impl FnMut(&mut Self, &mut Context<M>, Projection<'_>) -> Result<RecordState, Abort>,
    ) -> Result<RecordState, Abort> {
        if self.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        // The commit is going to exchange the intent: the line is wanted for a write anyway.
        at.record.prefetch_to_write();
        let found = match mode {
            WriteMode::Blind | WriteMode::CommitTimeUpdate => {
                // Relaxed: a first look; `place_intents` looks again.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if at.cells(groups).any(gone) {
                    // A miss is a read. Should there be a row at the transaction's time, the read
                    // was needless, and no harm.
                    return read(self, cx, Projection::columns(&[], groups));
                }
                RecordState::Row
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete => read(self, cx, Projection::of_groups(groups))?,
            // The engine has just read that it is absent; `check_reads` looks whether it still is.
            WriteMode::Insert => return Ok(RecordState::Absent),
        };
        let may_be_skipped = mode == WriteMode::Blind && self.options.nwr;
        if found == RecordState::Row && !may_be_skipped {
            let ts = self.ts;
            let is_too_late = |cell: Cell<M>| {
                // Relaxed, both: a first look; `place_intents` looks again.
                let (word, rts) = (cell.word().load(Ordering::Relaxed), rts_of(cell).load(Ordering::Relaxed));
                early_abort && (wts_of(word) > ts || rts > ts)
            };
            if at.cells(groups).any(is_too_late) {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
        }
        Ok(found)
    }

    /// Makes the record that the transaction has inserted its own.
    ///
    /// A younger transaction that has missed the key, and validated, has left its time in the leaf
    /// or in the record; `adopt_placeholder` finds it. One that validates later finds another
    /// version of the leaf.
    ///
    /// # Errors
    /// A younger transaction has missed the key, the leaf has changed since this one observed it,
    /// or this one reads a snapshot.
    pub(crate) fn placeholder_inserted(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        if self.reads_snapshot {
            // The abort gives the intents up, and the placeholder is free.
            at.cells(Groups::ALL).for_each(|cell| self.intents.adopt(cell, self.ts));
            return Err(Abort::new(AbortReason::Unsupported));
        }
        if self.intents.adopt_placeholder(at, change, self.ts) > self.ts {
            return Err(Abort::new(AbortReason::Phantom));
        }
        cx.nodes.follow(change)
    }

    /// Notes that the transaction depends on the keys of a leaf.
    #[inline(always)]
    pub(crate) fn observe_leaf(&mut self, cx: &mut Context<M>, leaf: Leaf<M>, version: u64) {
        // A snapshot is final: a key that it lacks can only be inserted at a later time.
        if !self.reads_snapshot {
            cx.nodes.add(leaf, version);
        }
    }

    /// Places intents on the cells of these numbers of the write at this position. `waits` says
    /// whether the transaction waits for another intent.
    ///
    /// From here until the commit installs or aborts, no other thread changes the cells' words and
    /// links. Their `rts` may still grow. But a reader that raises one from now on finds the intent
    /// afterwards. If it is younger it waits, and its read stays right only if this transaction
    /// aborts.
    ///
    /// # Errors
    /// The transaction comes too late, or the record is gone.
    #[expect(clippy::redundant_closure, reason = "calls by references to closures are not inlined")]
    #[inline(always)]
    pub(crate) fn place_intents<F: ValidationFaults>(
        &mut self,
        cx: &Context<M>,
        position: usize,
        numbers: Groups,
        waits: impl Fn(u64) -> bool,
    ) -> Result<(), Abort> {
        let write = &cx.writes.entries()[position];
        for (number, cell) in numbers.into_iter().zip(write.table().cells(write.record, numbers)) {
            let placed = self.intents.place(cell, self.ts, WAITS_MAX, |intent| waits(intent));
            let word = placed.map_err(|abort| cx.conflict_at(cell, abort))?;
            if word & UNLINKED != 0 || write.needs_row() && word & ABSENT != 0 {
                return Err(cx.conflict_at(cell, Abort::new(AbortReason::RecordGone)));
            }
            if self.is_too_late::<F>(cell, word) {
                let Some((before, over)) = self.version_under_invisible_write::<F>(write, number, cell) else {
                    return Err(cx.conflict_at(cell, Abort::new(AbortReason::WriteLocked)));
                };
                self.skipped.push(SkippedWrite { position, number, before, over });
            }
        }
        Ok(())
    }

    /// Returns whether a younger transaction has overwritten or read the cell, so that a new
    /// version of this transaction's time can't be the newest one.
    #[inline(always)]
    fn is_too_late<F: ValidationFaults>(&self, cell: Cell<M>, word: u64) -> bool {
        wts_of(word) > self.ts || self.was_read_later::<F>(cell)
    }

    /// Returns whether a younger transaction has read the cell. The caller holds the cell's intent.
    /// The load is the second half of the writer's side: SeqCst, after the SeqCst exchange of
    /// [`WriteIntents::place`].
    #[inline(always)]
    pub(crate) fn was_read_later<F: ValidationFaults>(&self, cell: Cell<M>) -> bool {
        rts_under_intent::<M, F>(cell) > self.ts
    }

    /// Returns the version that a late write of the cell would have replaced, and its name in a
    /// history; `None` if the write is not invisible. The caller holds the cell's intent.
    #[inline(never)]
    fn version_under_invisible_write<F: ValidationFaults>(
        &self,
        write: &Write<M>,
        number: usize,
        cell: Cell<M>,
    ) -> Option<(ChainedVersion<M>, u64)> {
        let wants_to = self.options.nwr && write.replaced().contains(Groups::of(number as u32));
        // A transaction that has read the version before, or one between, has raised the rts; or it
        // will find that its version ended before its time. A younger one that this load misses
        // looks at the intent later, and waits. By the time the intent is given up,
        // `chain::end_early` has moved the version's end to this transaction's time.
        let was_read = self.was_read_later::<F>(cell);
        let is_replaced = Self::all_are_blind_overwrites_after::<F>(cell, self.ts);
        if !wants_to || was_read || !is_replaced {
            return None;
        }
        let before = if self.intents.retired.may_have_gaps() {
            // A version that ended before this time may not be the last one before it: the write
            // must not be skipped if its place is unknown.
            chain::version_at(cell, self.ts, false).ok()?
        } else {
            chain::version_begun_by(cell, self.ts)
        }?;
        let first = before.cell.address() - (number * WORDS * size_of::<M::U64>()) as u64;
        // SAFETY: the cell is in a copy of a record of this table, behind `number` other cells.
        let over = write.table().name_of(unsafe { write.table().version(first) }, number);
        before.is_there().then_some((before, over))
    }

    /// Installs all writes, after [`WriteIntents::copy`], and gives the intents up. `commuting`
    /// returns the cells of a write that are written by updates that may come late; it is `None` if
    /// no updates may.
    ///
    /// The commit is decided. All that happens here happens under the intents, and a transaction
    /// that must see it waits for them, when it reads or when it validates.
    #[inline(always)]
    pub(crate) fn install(&mut self, cx: &mut Context<M>, commuting: Option<impl Fn(&Write<M>) -> Groups>) {
        // First: an update is code of the application and may panic. Nothing is installed yet.
        cx.writes.apply_updates();
        if !self.skipped.is_empty() {
            for SkippedWrite { position, number, before, over } in self.skipped.drain(..) {
                M::step("skip invisible");
                // If the version's worker has just taken it out of use, its end stays 0. Then a
                // reader of a time between finds no version, and aborts all the same.
                chain::end_early(&before, self.ts);
                cx.writes.skip_invisible(position, number, over);
            }
        }
        // Before the versions are installed: `SuffixKind::record` wants the `wts` of the newest
        // version before this one, and `install_all` gives the intents up.
        if self.options.nwr || commuting.is_some() {
            for write in cx.writes.entries().iter().filter(|write| write.kind != WriteKind::Nothing) {
                let commuting = commuting.as_ref().map_or(Groups::NONE, |commuting| commuting(write));
                let replaced = if self.options.nwr { write.replaced() } else { Groups::NONE };
                for (number, cell) in write.cell_numbers().into_iter().zip(write.cells()) {
                    let is_in = |cells: Groups| cells.contains(Groups::of(number as u32));
                    let kind = is_in(commuting)
                        .then_some(SuffixKind::CommutingUpdates)
                        .or(is_in(replaced).then_some(SuffixKind::BlindOverwrites));
                    SuffixKind::record(kind, cell, self.ts);
                }
            }
        }
        self.intents.install_all(cx, self.ts, 0);
    }

    /// Ends a transaction that aborts.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.skipped.clear();
        self.intents.abort(reason);
    }

    /// Raises the `rts` of all cells and leaves that were read, and then checks the reads.
    ///
    /// For each cell the raise comes before the check; the order among cells does not matter. If
    /// the transaction aborts afterwards, its `rts` stay. They cost older writers needless aborts,
    /// and break nothing.
    #[inline(always)]
    pub(crate) fn validate<F: ValidationFaults>(&self, cx: &Context<M>) -> Result<(), Abort> {
        M::step("mark reads");
        self.read_set.iter().for_each(|&(cell, _)| raise_rts::<M, F>(cell, self.ts));
        // A placeholder that stays absent was read, too: the next insert of its key must come
        // later.
        let unused = |write: &&Write<M>| write.kind == WriteKind::Nothing;
        for write in cx.writes.entries().iter().filter(unused) {
            write.cells().for_each(|cell| raise_rts::<M, F>(cell, self.ts));
        }
        // With a fence of its own for each leaf, between the rts and the look at the version; pairs
        // with the fence of `WriteIntents::adopt_placeholder`.
        for (leaf, version) in cx.nodes.observed() {
            raise_leaf_rts(leaf, version, self.ts).map_err(|abort| cx.conflict_in(leaf, abort))?;
        }
        self.check_reads::<F>(cx)
    }

    /// Checks that each version that was read is the one that a new search at the transaction's
    /// time finds. Without a raised `rts` before, the answer is of the moment only (Cicada's early
    /// check); after it, the answer lasts.
    #[inline(always)]
    pub(crate) fn check_reads<F: ValidationFaults>(&self, cx: &Context<M>) -> Result<(), Abort> {
        M::step("check reads");
        for &entry in &self.read_set {
            if !self.is_valid::<F>(entry).map_err(|abort| cx.conflict_at(entry.0, abort))? {
                return Err(cx.conflict_at(entry.0, Abort::new(AbortReason::ReadValidation)));
            }
        }
        Ok(())
    }
}

faults! {
    /// The deliberate faults of protocols that validate at the commit.
    pub trait ValidationFaults: VersionFaults {
        /// Validation takes a version that was read for right because it is committed, and does not
        /// search again: it misses a newer version from before the transaction's time.
        trust_committed,
        /// Validation does not search again for an old version that was read.
        trust_older,
        /// A write that comes too late is skipped whether or not later writes looked at the row.
        omit_any,
    }
    pub const VALIDATION_FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine> ValidatingTxn<M> {
    /// Returns whether the transaction validates the old versions that it reads.
    #[inline(always)]
    fn validates_old<F: ValidationFaults>(validates_old: bool) -> bool {
        validates_old && !F::trust_older()
    }

    /// Returns whether an entry of the read set is still right.
    #[inline(always)]
    fn is_valid<F: ValidationFaults>(&self, entry: ReadEntry<M>) -> Result<bool, Abort> {
        if F::trust_committed() {
            Ok(true)
        } else {
            is_still_visible(entry, self.ts, waits_for_earlier_than::<F>(self.ts))
        }
    }

    /// Returns whether all versions of the cell after `ts` replaced it without a look at it.
    #[inline(always)]
    fn all_are_blind_overwrites_after<F: ValidationFaults>(cell: Cell<M>, ts: u64) -> bool {
        F::omit_any() || SuffixKind::BlindOverwrites.covers_all_after(cell, ts)
    }
}
