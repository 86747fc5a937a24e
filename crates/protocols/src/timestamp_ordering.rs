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
//! **Commit point.** The first install. Nothing is validated: a prewrite can't fail any more.
//!
//! **Waits.** A younger transaction waits for an older one with a prewrite. So waits form no cycle.
//!
//! **Phantoms.** A scan or a miss raises the `rts` of the leaf; an insert by an older transaction
//! aborts. A tombstone leaves the index when all transactions have ended that ran in the epoch of
//! the deletion: those that begin later have later timestamps.
//!
//! **Departures from the paper.** A record has one prewrite at a time. An older transaction that
//! wants to prewrite after a younger one aborts, where the paper keeps both in a queue. So commits
//! wait for nothing. There is no Thomas write rule.

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
    /// The cells that it has prewritten.
    prewritten: Vec<Cell<M>>,
}

impl<M: Machine, F: TimestampOrderingFaults> TimestampOrdering<M, F> {
    /// Reads or prewrites these cells, all at once, and returns their flags. Calls `with` while
    /// they are latched. A prewrite of an absent record becomes a read.
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
                decision = if *word & UNLINKED != 0 { Decision::Granted } else { decide::<M, F>(cell, ts, access) };
                if !matches!(decision, Decision::Granted) {
                    break;
                }
            }
            let flags = word.iter().fold(0, |all, word| all | word) & FLAGS;
            let granted = matches!(decision, Decision::Granted) && flags & UNLINKED == 0;
            if granted {
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
                    // Without the latch, which the older transaction needs as well.
                    // Acquire: pairs with the Release of `withdraw`.
                    let asked = cells.clone().nth(latched - 1).expect("it was latched");
                    while timestamps(asked).prewrite.load(Ordering::Acquire) == older {
                        if spin.count() > WAITS_MAX {
                            return Err(Abort::new(AbortReason::LockTimeout));
                        }
                        spin.wait();
                    }
                }
            }
        }
    }

    /// Prewrites an absent record, for an insert; [`TimestampOrdering::access`] would take it for a
    /// miss.
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
    /// Notes the prewrite of a cell, which the caller has latched.
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
    fn withdraw(&mut self) {
        for cell in self.prewritten.drain(..) {
            let prewrite = timestamps(cell).prewrite;
            // Relaxed: only this transaction takes its own prewrite away. Release: pairs with the
            // Acquire of a transaction that waits in `access`, and of its latch.
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
            // Relaxed, all: the index publishes the record.
            [wts, rts, prewrite].into_iter().for_each(|ts| ts.store(0, Ordering::Relaxed));
            // Latched until `placeholder_inserted` makes it a prewrite of its transaction.
            cell.word().store(flags | if held { LOCKED } else { 0 }, Ordering::Relaxed);
        });
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let epoch = cx.current_epoch();
        if epoch != local.epoch {
            // Timestamps of an old batch may be older than tombstones that have left their indexes.
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
                // A miss is a read. Should the record have a row by now, the read was needless, and
                // no harm.
                self.read(cx, local, at, Projection::columns(&[], groups))
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete | WriteMode::Blind => {
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
        // `observe_leaf`.
        dekker_fence::<M, F>();
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let missed_at = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        for cell in at.cells(Groups::ALL).rev() {
            // A transaction that missed the key has read that it is absent. That counts also if
            // this insert aborts, and another gives the record a row.
            // Relaxed, all: the latch is this transaction's, by `init`.
            timestamps(cell).rts.store(missed_at, Ordering::Relaxed);
            timestamps(cell).prewrite.store(local.ts, Ordering::Relaxed);
            local.prewritten.push(cell);
            unlatch(cell, cell.word().load(Ordering::Relaxed) & !LOCKED);
        }
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
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // Relaxed, both: ordered by the fence.
        if leaf.word().load(Ordering::Relaxed) < local.ts {
            leaf.word().fetch_max(local.ts, Ordering::Relaxed);
        }
        // SeqCst: the rts comes before the look at the keys; pairs with the fence of
        // `placeholder_inserted`, which comes between the insert and the look at the rts. One of
        // the two sees the other.
        dekker_fence::<M, F>();
        if leaf.version() == version { Ok(()) } else { Err(Abort::new(AbortReason::Phantom)) }
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing {
                // A row that was inserted and deleted again was read as absent: the next insert of
                // its key must come later.
                Self::access(local, write.cells(), Access::Read, |_| {})?;
            }
            let merged = write.merged();
            if merged.is_empty() {
                continue;
            }
            let cells = write.table().cells(write.record, merged);
            let flags = Self::access(local, cells, Access::Prewrite, |_| {})?;
            if flags & (ABSENT | UNLINKED) != 0 {
                return Err(Abort::new(AbortReason::RecordGone));
            }
        }
        cx.writes.apply_updates();
        M::step("install");
        // Loaded under the prewrites: a transaction that could still miss a row that is deleted
        // here begins in this epoch or an earlier one.
        let epoch = cx.current_epoch();
        for position in 0..cx.writes.len() {
            let kind = cx.writes.entries()[position].kind;
            if kind == WriteKind::Nothing {
                continue;
            }
            let cells = cx.writes.entries()[position].cells();
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
                // Relaxed, both: under the latch.
                timestamps(cell).wts.store(local.ts, Ordering::Relaxed);
                timestamps(cell).prewrite.store(0, Ordering::Relaxed);
                unlatch(cell, flags);
            }
        }
        local.withdraw();
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, _: AbortReason) {
        // The rest of the batch is as old, and would come too late as well.
        local.stamps.drop_batch();
        local.withdraw();
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        M::step("unlink");
        let cells = tombstone.cells();
        let mut words = [0; GROUPS_MAX];
        cells.clone().zip(&mut words).for_each(|(cell, word)| *word = latch(cell));
        // Relaxed: under the latch.
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
        FORGET_READS,
        /// A write does not look at the timestamps of reads.
        OVERTAKE_READS,
        /// A read does not wait for an older write that is announced.
        IGNORE_PREWRITES,
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
        if rts.load(Ordering::Relaxed) < ts && !F::FORGET_READS {
            rts.store(ts, Ordering::Relaxed);
        }
    }
}
