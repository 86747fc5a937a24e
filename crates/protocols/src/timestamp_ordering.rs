//! Basic timestamp ordering: transactions take effect in the order in which they began.
//!
//! **Idea.** A transaction takes a timestamp when it begins. A record has the timestamps of its
//! last write and its youngest read. A transaction comes too late if it wants to read a row that a
//! younger one has written, or to write a row that a younger one has read or written. Then it
//! aborts and begins again with a new timestamp. A write is announced (a *prewrite*) and takes
//! effect at commit. Younger transactions that want the record wait for it.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | dm-read: rejected if `ts` < W-ts, buffered behind an older prewrite, else R-ts is raised | `access` with `Access::Read` |
//! | prewrite: rejected if `ts` < R-ts or `ts` < W-ts | `access` with `Access::Prewrite` |
//! | dm-write: output when no older prewrite is left | `commit` |
//!
//! **Paper.** P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems",
//! ACM Computing Surveys 1981, section 4; as measured in X. Yu et al.: "Staring into the abyss",
//! VLDB 2014 (TIMESTAMP).
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees one state
//! only.
//!
//! **Metadata.** Four words for each cell:
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | latch and flags: [`crate::flags`]; above them, in a tombstone, the epoch of the deletion |
//! | 1 | `wts`: the timestamp of the last write |
//! | 2 | `rts`: the timestamp of the youngest read |
//! | 3 | the timestamp of the prewrite; 0 if there is none |
//!
//! All four words change only under the latch, with one exception: a transaction takes a prewrite
//! that it does not install away without it (`withdraw`). The row is stored under the latch, and
//! copied for a read under the latch. So the latch's Acquire and Release order nearly everything,
//! and most accesses in this file are Relaxed. Leaves have no latch here; fences order them
//! (docs/memory_ordering.md, section 5).
//!
//! **Commit point.** The first install. Nothing is validated: a prewrite can't fail any more. When
//! a prewrite of time p is granted, the cell's `wts` and `rts` are at most p. From then on a
//! younger read waits, a younger prewrite waits, and an older prewrite is rejected. Older reads
//! pass, and leave an `rts` below p. So both timestamps are at most p when the write is installed.
//!
//! **One state.** Records are installed one after the other, and yet no reader sees one half of a
//! commit of time p. An older reader is rejected at each cell that is installed. A younger reader
//! waits at each cell that is not. So the older one sees no part of the commit, and the younger one
//! sees all of it.
//!
//! **Waits.** A younger transaction waits for an older one with a prewrite. So waits form no cycle.
//! A wait that takes too long, as when the older one has lost its core, ends in an abort.
//!
//! **Phantoms.** A scan or a miss raises the `rts` of the leaf; an insert by an older transaction
//! aborts. A tombstone leaves the index when all transactions have ended that ran in the epoch of
//! the deletion: those that begin later have later timestamps.
//!
//! **Departures from the paper.** A record has one prewrite at a time. An older transaction that
//! wants to prewrite after a younger one aborts, where the paper keeps both in a queue. So commits
//! wait for nothing, except at the cells of commit-time updates, which are prewritten only then.
//! There is no Thomas write rule.

mod cell;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, GROUPS_MAX, Groups, Isolation, Leaf, Located,
    NamedProtocol, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::{FenceFaults, Sound, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::timestamp::{Stamper, TimestampOptions, Timestamps};
use crate::method::wait::WAITS_MAX;
use cell::{Access, DELETION_EPOCH_SHIFT, Decision, FLAGS, decide, latch, timestamps, unlatch};

/// Basic timestamp ordering.
#[derive(Debug)]
pub struct TimestampOrdering<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct TimestampOrderingWorker<M: Machine> {
    stamps: Stamper<M>,
    /// The epoch in which the last timestamp was drawn.
    epoch: u64,
    /// The transaction's timestamp.
    ts: u64,
    /// The cells that it has prewritten, each once. An entry may be out of date: the commit
    /// installs a cell and leaves its entry. So `withdraw` compares the cell's prewrite with `ts`.
    prewritten: Vec<Cell<M>>,
}

impl<M: Machine, F: TimestampOrderingFaults> TimestampOrdering<M, F> {
    /// Reads or prewrites these cells, all at once, and returns their flags. Calls `with` while
    /// they are latched. A prewrite of an absent record becomes a read.
    ///
    /// The cells are of one record. They are latched in the order of their numbers, by this and by
    /// every other function, and no thread latches a second record meanwhile. So no two threads
    /// wait for each other's latches.
    ///
    /// The access takes effect while all latches are held. An insert or a delete changes all cells
    /// of a record under all their latches. So the flags that are returned are of one moment, and
    /// what `with` copies is one state of these cells.
    ///
    /// # Errors
    /// The transaction comes too late, or waited too long.
    #[inline(always)]
    fn access(
        local: &mut TimestampOrderingWorker<M>,
        cells: Cells<M>,
        access: Access,
        mut with: impl FnMut(u64),
    ) -> Result<u64, Abort> {
        let ts = local.ts;
        let reason = if access == Access::Read { AbortReason::ReadValidation } else { AbortReason::WriteLocked };
        let mut spin = Spin::<M>::new();
        loop {
            M::step(if access == Access::Read { "read" } else { "prewrite" });
            let mut word = [0; GROUPS_MAX];
            let mut decision = Decision::Granted;
            let mut latched = 0;
            for (cell, word) in cells.clone().zip(&mut word) {
                *word = latch(cell);
                latched += 1;
                // The timestamps of an unlinked record decide nothing: the caller looks the key up
                // again.
                decision = if *word & UNLINKED != 0 { Decision::Granted } else { decide::<M, F>(cell, ts, access) };
                if !matches!(decision, Decision::Granted) {
                    break;
                }
            }
            let flags = word.iter().fold(0, |all, word| all | word) & FLAGS;
            let granted = matches!(decision, Decision::Granted) && flags & UNLINKED == 0;
            if granted {
                // No writer stores the row before the latches are released.
                with(flags);
            }
            for (cell, word) in cells.clone().zip(word).take(latched) {
                if granted && access == Access::Prewrite && flags & ABSENT == 0 {
                    local.prewrite(cell);
                } else if granted {
                    Self::raise_rts(cell, ts);
                }
                unlatch(cell, word);
            }
            match decision {
                Decision::Granted => return Ok(flags),
                Decision::Rejected => return Err(Abort::new(reason)),
                Decision::WaitFor(older) => {
                    // Without the latch, which the older transaction needs to install its write.
                    // Acquire: pairs with the Release of `withdraw`. The loop only says that it is
                    // worth while to latch again; the latch orders, and `decide` decides anew.
                    let asked = cells.clone().nth(latched - 1).expect("it was latched");
                    while timestamps(asked).prewrite.load(Ordering::Acquire) == older {
                        if spin.count() > WAITS_MAX {
                            return Err(Abort::new(AbortReason::LockTimeout));
                        }
                        spin.back_off();
                    }
                }
            }
        }
    }

    /// Prewrites an absent record, for an insert; [`TimestampOrdering::access`] would take it for a
    /// miss.
    ///
    /// The cells are latched one after the other, not all at once. For the caller wants all of them
    /// or aborts, and then `withdraw` takes the first ones back. Once the first cell is prewritten,
    /// no other insert of the key is granted it.
    ///
    /// # Errors
    /// The transaction comes too late, or the record is not absent.
    fn prewrite_absent(local: &mut TimestampOrderingWorker<M>, cells: Cells<M>) -> Result<(), Abort> {
        for cell in cells {
            let flags = latch(cell);
            let granted = flags & UNLINKED == 0
                && flags & ABSENT != 0
                && matches!(decide::<M, F>(cell, local.ts, Access::Prewrite), Decision::Granted);
            if granted {
                local.prewrite(cell);
            }
            unlatch(cell, flags);
            if !granted {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
        }
        Ok(())
    }
}

impl<M: Machine> TimestampOrderingWorker<M> {
    /// Notes the prewrite of a cell, which the caller has latched. The word has had 0 there, or
    /// this timestamp: `decide` grants no other case. So no prewrite of another transaction is
    /// lost.
    #[inline(always)]
    fn prewrite(&mut self, cell: Cell<M>) {
        let prewrite = timestamps(cell).prewrite;
        // Relaxed, both: under the latch.
        if prewrite.load(Ordering::Relaxed) != self.ts {
            prewrite.store(self.ts, Ordering::Relaxed);
            self.prewritten.push(cell);
        }
    }

    /// Takes back the prewrites that are not installed.
    ///
    /// Without the latches. Another thread that has latched the cell may load the prewrite before
    /// or after this store. If before, it waits or aborts for nothing; both are right answers to
    /// the prewrite that it saw. It does not store the word, because only a prewrite of 0 is
    /// replaced. So no store comes between the load and the store here.
    fn withdraw(&mut self) {
        for cell in self.prewritten.drain(..) {
            let prewrite = timestamps(cell).prewrite;
            // Relaxed: only this transaction takes its own prewrite away. If the cell was
            // installed, the word is 0, or another transaction's prewrite, which must stay.
            // Release: pairs with the Acquire of a transaction that waits in `access`. No row
            // depends on it, because this transaction has stored none here.
            if prewrite.load(Ordering::Relaxed) == self.ts {
                prewrite.store(0, Ordering::Release);
            }
        }
    }
}

impl<M: Machine, F: TimestampOrderingFaults> NamedProtocol<M> for TimestampOrdering<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "timestamp-ordering",
        summary: "timestamp ordering: transactions take effect in the order in which they began; one that comes too late aborts",
        paper: "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = TimestampOptions;

    fn new(options: TimestampOptions) -> Self {
        TimestampOrdering { timestamps: Timestamps::new(options, 0), faults: PhantomData }
    }
}

impl<M: Machine, F: TimestampOrderingFaults> Protocol<M> for TimestampOrdering<M, F> {
    type WorkerState = TimestampOrderingWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        4
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        let (stamps, prewritten) = (self.timestamps.of_worker(worker), Vec::with_capacity(64));
        TimestampOrderingWorker { stamps, epoch: 0, ts: 0, prewritten }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        flags::initial(cells, initial, |cell, flags, held| {
            let cell::CellTimestamps { wts, rts, prewrite } = timestamps(cell);
            // Relaxed, all: the Release by which the index publishes the leaf pairs with the
            // Acquire of a lookup that finds the record.
            [wts, rts, prewrite].into_iter().for_each(|ts| ts.store(0, Ordering::Relaxed));
            // Latched until `placeholder_inserted` makes it a prewrite of its transaction. Without
            // the latch a younger transaction could find the record first, read that it is absent,
            // and leave its time in the `rts`. Then the insert would overwrite that `rts`. Relaxed:
            // as above.
            cell.word().store(flags | if held { LOCKED } else { 0 }, Ordering::Relaxed);
        });
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let epoch = cx.current_epoch();
        if epoch != local.epoch {
            // Timestamps of an old batch may be older than tombstones that have left their indexes.
            // A transaction of that time would miss a key where the tombstone would have rejected
            // it.
            local.stamps.drop_batch();
            local.epoch = epoch;
        }
        local.ts = local.stamps.stamp();
        local.prewritten.clear();
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        Ok(flags::found(Self::access(local, at.cells(columns.groups()), Access::Read, |_| cx.copy_row(at, columns))?))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        let cells = at.cells(groups);
        match mode {
            WriteMode::Insert => Self::prewrite_absent(local, at.cells(Groups::ALL)).map(|()| RecordState::Absent),
            WriteMode::CommitTimeUpdate => {
                // Relaxed: a first look; the commit prewrites the cells, and looks again.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if !cells.clone().any(gone) {
                    return Ok(RecordState::Row);
                }
                // A miss is a read, and raises the `rts`. Should the record have a row by now, the
                // read was needless, and no harm.
                self.read(cx, local, at, Projection::columns(&[], groups))
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete | WriteMode::Blind => {
                // A row that is copied here needs no `rts`. The prewrite keeps older writers out
                // until this transaction ends; then its `wts` does, if it has committed.
                let reads = mode != WriteMode::Blind;
                let copy = |flags: u64| {
                    if flags & ABSENT != 0 {
                        cx.copy_row(at, Projection::EXISTENCE);
                    } else if reads {
                        cx.copy_row(at, Projection::of_groups(groups));
                    }
                };
                Ok(flags::found(Self::access(local, cells, Access::Prewrite, copy)?))
            }
        }
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // SeqCst: the insert comes before the look at the leaves' rts; pairs with the fence of
        // `observe_leaf`. Without the fences, let T9 miss the key while T5 inserts it. T9's load of
        // the version comes before T5's insert is visible, and T5's load of the rts comes before
        // T9's is. Both go on, and T9 has missed the key of an older transaction.
        dekker_fence::<M, F>();
        // The insert may have split the leaf. A transaction that missed the key before the split
        // raised the rts of the old leaf, and the new half has begun with a copy. The rts of both
        // halves count: at worst the later miss of another key costs a needless abort.
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let missed_at = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        // From the last cell to the first. A thread that wants several latches the first of them
        // first, so it gets none before all that it wants are prewritten.
        for cell in at.cells(Groups::ALL).rev() {
            // A transaction that missed the key has read that it is absent. That counts also if
            // this insert aborts, and another gives the record a row.
            // Relaxed, all: the latch is this transaction's, by `init`. So the rts is 0 still, and
            // the store overwrites no other. `unlatch` publishes the words (Release).
            timestamps(cell).rts.store(missed_at, Ordering::Relaxed);
            timestamps(cell).prewrite.store(local.ts, Ordering::Relaxed);
            local.prewritten.push(cell);
            unlatch(cell, cell.word().load(Ordering::Relaxed) & !LOCKED);
        }
        // The prewrites stand, so that the abort finds them and takes them back.
        if missed_at > local.ts {
            return Err(Abort::new(AbortReason::Phantom));
        }
        Ok(())
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        _: &mut Context<M>,
        local: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // Relaxed, both: ordered by the fence. A transaction that finds a later rts stores nothing,
        // and leaves the line to be shared: an insert that must see this rts sees that one.
        if leaf.word().load(Ordering::Relaxed) < local.ts {
            leaf.word().fetch_max(local.ts, Ordering::Relaxed);
        }
        // SeqCst: the rts comes before the look at the keys; pairs with the fence of
        // `placeholder_inserted`, which comes between the insert and the look at the rts. One of
        // the two sees the other. A split or a removal of the leaf has such a fence as well, and
        // hands the rts on (docs/memory_ordering.md, section 5).
        dekker_fence::<M, F>();
        if leaf.version() == version { Ok(()) } else { Err(Abort::new(AbortReason::Phantom)) }
    }

    /// Prewrites the cells of commit-time updates, and then installs. After the loop of the
    /// prewrites no step fails: each cell that is installed has this transaction's prewrite.
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing {
                // A row that was inserted and deleted again was read as absent: the next insert of
                // its key must come later.
                let read = Self::access(local, write.cells(), Access::Read, |_| {});
                read.map_err(|abort| cx.conflict_at_write(position, write.groups(), abort))?;
            }
            let merged = write.merged();
            if merged.is_empty() {
                continue;
            }
            let cells = write.table().cells(write.record, merged);
            let prewritten = Self::access(local, cells, Access::Prewrite, |_| {});
            let flags = prewritten.map_err(|abort| cx.conflict_at_write(position, merged, abort))?;
            if flags & (ABSENT | UNLINKED) != 0 {
                return Err(cx.conflict_at_write(position, merged, Abort::new(AbortReason::RecordGone)));
            }
        }
        cx.writes.apply_updates();
        M::step("install");
        // Loaded under the prewrites: a transaction that could still miss a row that is deleted
        // here begins in this epoch or an earlier one. Its timestamp is earlier than this one,
        // which was drawn before this load.
        let epoch = cx.current_epoch();
        for position in 0..cx.writes.len() {
            let kind = cx.writes.entries()[position].kind;
            if kind == WriteKind::Nothing {
                continue;
            }
            let cells = cx.writes.entries()[position].cells();
            // All cells of the record are latched before any is stored to, so that a reader of
            // several sees none or all of the new ones. A latch is short, and its holder holds no
            // other record's, so this wait ends. No prewrite is waited for.
            let words: [u64; GROUPS_MAX] = {
                let mut words = [0; GROUPS_MAX];
                cells.clone().zip(&mut words).for_each(|(cell, word)| *word = latch(cell));
                words
            };
            cx.writes.install(position);
            let write = &mut cx.writes.entries_mut()[position];
            let first = write.record.first_cell().address();
            for (cell, word) in cells.zip(words) {
                let is_first = cell.address() == first;
                let flags = match kind {
                    WriteKind::Insert if write.fresh => 0,
                    WriteKind::Update | WriteKind::Insert => word & QUEUED,
                    _ if is_first => {
                        write.collect = word & QUEUED == 0;
                        epoch << DELETION_EPOCH_SHIFT | ABSENT | QUEUED
                    }
                    _ => ABSENT,
                };
                // Relaxed, both: under the latch. A waiting transaction may see the 0 before the
                // latch is released, and then waits for the latch.
                timestamps(cell).wts.store(local.ts, Ordering::Relaxed);
                timestamps(cell).prewrite.store(0, Ordering::Relaxed);
                // The Release of `unlatch` publishes the row together with its `wts`.
                unlatch(cell, flags);
            }
        }
        // The cells that were prewritten and not installed: those of rows that were inserted and
        // deleted again.
        local.withdraw();
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, _: AbortReason) {
        // The rest of the batch is as old, and would come too late as well.
        local.stamps.drop_batch();
        local.withdraw();
    }

    /// All cells are latched while the tombstone is judged and marked. A reader of one of them has
    /// its latch before, and its `rts` is inherited by the leaf; or after, and it finds the mark.
    ///
    /// The tombstone's `wts` keeps older readers from taking the key for absent: they are rejected.
    /// So it must stay as long as such a reader may run (`flags::may_be_missed`).
    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        M::step("unlink");
        let cells = tombstone.cells();
        let mut words = [0; GROUPS_MAX];
        cells.clone().zip(&mut words).for_each(|(cell, word)| *word = latch(cell));
        // Relaxed: under the latch, which orders each store of a prewrite before. A prewrite that
        // is being withdrawn may still be seen: then the engine asks again later.
        let is_prewritten = cells.clone().any(|cell| timestamps(cell).prewrite.load(Ordering::Relaxed) != 0);
        // Relaxed: under the latch.
        let rts = |cell: Cell<M>| timestamps(cell).rts.load(Ordering::Relaxed);
        let outcome = match words[0] & ABSENT {
            _ if is_prewritten => UnlinkOutcome::Busy,
            0 => UnlinkOutcome::Alive,
            _ if flags::may_be_missed(words[0] >> DELETION_EPOCH_SHIFT, tombstone.oldest()) => UnlinkOutcome::Busy,
            _ if !tombstone.counter_epoch_is_over() => UnlinkOutcome::Busy,
            // The readers of the tombstone live on in the leaf: an insert of the key must come
            // after them.
            _ => UnlinkOutcome::Marked { time: cells.clone().map(rts).max().unwrap_or(0) },
        };
        for (cell, word) in cells.zip(words) {
            unlatch(
                cell,
                match outcome {
                    UnlinkOutcome::Busy => word,
                    UnlinkOutcome::Alive => word & !QUEUED,
                    UnlinkOutcome::Marked { .. } => word | UNLINKED,
                },
            );
        }
        outcome
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of timestamp ordering.
    pub trait TimestampOrderingFaults: FenceFaults {
        /// A read leaves no timestamp.
        forget_reads,
        /// A write does not look at the timestamps of reads.
        overtake_reads,
        /// A read does not wait for an older write that is announced.
        ignore_prewrites,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: TimestampOrderingFaults> TimestampOrdering<M, F> {
    /// Raises the `rts` of a cell, which the caller has latched, to `ts`.
    #[inline(always)]
    fn raise_rts(cell: Cell<M>, ts: u64) {
        let rts = timestamps(cell).rts;
        // Relaxed, both: under the latch.
        if rts.load(Ordering::Relaxed) < ts && !F::forget_reads() {
            rts.store(ts, Ordering::Relaxed);
        }
    }
}
