//! Multi-version timestamp ordering: a transaction that comes too late to read the newest version
//! reads an older one.
//!
//! **Idea.** As in timestamp ordering, transactions take effect in the order in which they began.
//! But a write leaves the old version in place, and a read finds the version of its own time. So
//! reads are never too late. A write is too late if a younger transaction has read the version that
//! it overwrites, or has overwritten it.
//!
//! | step of the papers | function |
//! | --- | --- |
//! | read of time `ts`: the version with the largest `wts` up to `ts`; its `rts` becomes at least `ts` | `read`: `ReadView::leaving_rts` |
//! | write of time `ts`: rejected if the version before it has an `rts` later than `ts` | `place_intent` |
//! | a version that may still abort: wait for it | `read`: `ReadView::at` |
//! | commit | `commit`: `WriteIntents::install_all` |
//!
//! **Papers.** D. P. Reed: "Naming and synchronization in a decentralized computer system", PhD
//! thesis, MIT 1978; P. A. Bernstein, N. Goodman: "Multiversion concurrency control: theory and
//! algorithms", ACM TODS 1983; as measured in X. Yu et al.: "Staring into the abyss", VLDB 2014
//! (MVCC).
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees one state
//! only.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`].
//!
//! **Commit point.** The first install. Nothing is validated: a write with an intent can't fail any
//! more. When an intent of time p is placed, the cell's `wts` and `rts` are at most p. From then on
//! no other thread installs a version there, and a younger read waits. A waiting reader may already
//! have raised the `rts` above p, but it has read nothing, so that need not be noticed.
//!
//! **Why a read misses no older write.** A read raises the `rts`, and then looks for an intent. A
//! write places its intent, and then loads the `rts`. All four accesses are SeqCst. Let T7 read and
//! T5 write. If T7 misses the intent, its `rts` comes first in their total order, and T5 finds 7
//! and aborts. With Acquire and Release alone, both could miss the other's store: T7 would read the
//! old version, and T5 would install a version of time 5 below that read.
//!
//! **Waits.** A younger transaction waits for an older one that has an intent on a cell. So waits
//! form no cycle. A wait that takes too long ends in an abort.
//!
//! **Phantoms.** A scan or a miss raises the `rts` of the leaf; an insert by an older transaction
//! aborts. A tombstone leaves the index when all transactions have ended that ran in the epoch of
//! the deletion: those that begin later have later timestamps.
//!
//! **Snapshots** (`versions.snapshots=on`) are for transactions that declare themselves read-only.
//! They see the state before the oldest running transaction, leave no timestamp behind, wait for no
//! transaction, and never abort.
//!
//! **Departures from the papers.** A version is written after all others of its cell, not between
//! two, as in DBx1000. Writers do not queue.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection,
    ProtocolInfo, RecordState, WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::Sound;
use crate::faults;
use crate::flags::{ABSENT, UNLINKED};
use crate::method::timestamp::{Stamper, TimestampOptions, Timestamps};
use crate::method::wait::WAITS_MAX;
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    MultiVersion, ReadView, SnapshotOptions, VersionFaults, VersionRules, WriteIntents, raise_leaf_rts, raise_rts,
    read_row, rts_under_intent, wts_of,
};

options! {
    /// Options of multi-version timestamp ordering.
    pub struct MvtoOptions {
        flatten timestamps: TimestampOptions;
        flatten snapshots: SnapshotOptions;
        flatten collect: CollectOptions;
    }
}

/// Multi-version timestamp ordering.
pub type Mvto<M, F = Sound> = MultiVersion<MvtoRules<M, F>>;

/// The rules of multi-version timestamp ordering.
#[derive(Debug)]
pub struct MvtoRules<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct MvtoWorker<M: Machine> {
    stamps: Stamper<M>,
    /// The epoch in which the last timestamp was drawn. A timestamp of a batch is used only in the
    /// epoch in which the batch was taken. So no transaction has a timestamp of an earlier epoch.
    epoch: u64,
    /// The transaction's timestamp.
    ts: u64,
    /// Whether the transaction only reads, and the state at its timestamp is final.
    reads_snapshot: bool,
    intents: WriteIntents<M>,
}

impl<M: Machine, F: MvtoFaults> MvtoRules<M, F> {
    /// Places an intent to write the cell at time `ts`, and returns the cell's word.
    ///
    /// A transaction that has the intent already gets the word again, and is tested again. The test
    /// may then find the `rts` of a reader that waits for this intent. That costs an abort that was
    /// not needed.
    ///
    /// # Errors
    /// A younger transaction has read or written the cell, or another one has an intent there.
    #[inline(always)]
    fn place_intent(intents: &mut WriteIntents<M>, ts: u64, cell: Cell<M>) -> Result<u64, Abort> {
        // Relaxed: the call that decides comes after the intent is placed, and the exchange has
        // acquired the word.
        let is_too_late = || wts_of(cell.word().load(Ordering::Relaxed)) > ts || rts_under_intent::<M, F>(cell) > ts;
        // A transaction that is too late already does not wait, so that those behind it can go on.
        let word = intents.place(cell, ts, WAITS_MAX, |other| other < ts && !is_too_late())?;
        // The `rts` is loaded after the exchange, both SeqCst; pairs with `raise_rts`, where a
        // reader stores its time before it looks for the intent. Had the load come first, T7 could
        // read between it and the exchange, and this test of T5 would not see that.
        if is_too_late() { Err(Abort::new(AbortReason::WriteLocked)) } else { Ok(word) }
    }
}

impl<M: Machine, F: MvtoFaults> VersionRules<M> for MvtoRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "mvto",
        summary: "multi-version timestamp ordering: a read finds the version of its own time",
        paper: "Bernstein, Goodman: Multiversion concurrency control: theory and algorithms, ACM TODS 1983",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.snapshots=on, versions.collect=rapid or epoch");
    type Options = MvtoOptions;
    type WorkerState = MvtoWorker<M>;

    fn options_with_snapshots() -> Self::Options {
        MvtoOptions { snapshots: SnapshotOptions { snapshots: true }, ..MvtoOptions::default() }
    }

    fn new(MvtoOptions { timestamps, snapshots, collect }: MvtoOptions) -> Self {
        let (timestamps, collector) = (Timestamps::new(timestamps, 0), Collector::new(collect, 0, snapshots.snapshots));
        MvtoRules { timestamps, collector, faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn wants_declarations(&self) -> bool {
        self.collector.has_snapshots()
    }

    fn reads_snapshots(&self) -> bool {
        self.collector.has_snapshots() && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        // A snapshot is held back by the oldest running transaction of all workers, and so may be
        // older than this worker's own last commit.
        local.reads_snapshot && local.intents.last_commit_ts <= local.ts
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        let intents = WriteIntents::new(self.collector.of_worker(worker));
        MvtoWorker { stamps: self.timestamps.of_worker(worker), epoch: 0, ts: 0, reads_snapshot: false, intents }
    }

    fn collector(&self) -> &Collector<M> {
        &self.collector
    }

    fn collector_mut(&mut self) -> &mut Collector<M> {
        &mut self.collector
    }

    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M> {
        &mut local.intents.retired
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.reads_snapshot = self.collector.has_snapshots() && cx.declaration.is_read_only();
        if local.reads_snapshot {
            // The snapshot's time is before every running transaction. The load of the watermark
            // that says so is an Acquire, so what the ended ones have installed is seen.
            let MvtoWorker { stamps, intents, ts, .. } = local;
            *ts = self.collector.begin_snapshot(cx, &mut intents.retired, intents.last_commit_ts, || stamps.now());
            self.collector.publish_ts(&intents.retired, *ts);
            return Ok(());
        }
        let epoch = cx.current_epoch();
        if epoch != local.epoch {
            // Timestamps of an old batch may be older than tombstones that have left their indexes.
            // A transaction of that time would take the key for absent, where the row was there.
            local.stamps.drop_batch();
            local.epoch = epoch;
        }
        // The watermark is acquired before the timestamp is drawn. A counter that another worker
        // has seen at the watermark's value gives no smaller number from then on; a clock or a
        // batch could, and `begin_at` sees to it that they don't.
        if let Some(watermark) = self.collector.begin(cx, &mut local.intents.retired, || local.stamps.now()) {
            local.stamps.begin_at(watermark);
        }
        local.ts = local.stamps.stamp();
        self.collector.publish_ts(&local.intents.retired, local.ts);
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
        let ts = local.ts;
        if local.reads_snapshot {
            // No version up to this time is still to come: no `rts`, and no wait.
            return read_row(cx, at, columns, ReadView::of_final_state::<F>(ts), |_| ());
        }
        read_row(cx, at, columns, ReadView::at::<F>(ts).leaving_rts::<F>(F::look_before_rts()), |_| ())
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
        if local.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        if mode == WriteMode::CommitTimeUpdate {
            // Relaxed: a first look; the commit places the intents, and looks again.
            let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
            if !at.cells(groups).any(gone) {
                return Ok(RecordState::Row);
            }
            // A miss is a read. Should there be a row at the transaction's time, the read was
            // needless, and no harm.
            return self.read(cx, local, at, Projection::columns(&[], groups));
        }
        // The row is copied under the intents, and no other thread stores it meanwhile. Such a read
        // needs no `rts`: an older writer meets the intent and aborts, and after the commit the
        // `wts`. A miss gives the intents up, so it raises the `rts` before, while the intents are
        // held. An older writer that gets the intent next then finds it.
        let ts = local.ts;
        let place = |intents: &mut WriteIntents<M>, cell| Self::place_intent(intents, ts, cell);
        local.intents.write(cx, at, groups, mode, place, |(cell, _)| raise_rts::<M, F>(cell, ts))
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // Adopted in any case, so that the abort gives the intents up. The record stays as an
        // absent one, which other transactions may use.
        let missed_at = local.intents.adopt_placeholder(at, change, local.ts);
        if local.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
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
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // A snapshot is final: a key that it lacks can only be inserted at a later time. Any other
        // transaction leaves its time at once, as with the read of a cell, since the commit
        // validates nothing. If the version has changed, a key may have come that it had to see.
        if local.reads_snapshot { Ok(()) } else { raise_leaf_rts(leaf, version, local.ts) }
    }

    /// All that can fail comes before the first install: the intents of commit-time updates, and
    /// the memory for copies.
    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        // What was read was the version of its time, and its `rts` keeps it so.
        if cx.writes.is_empty() {
            return Ok(());
        }
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing {
                // A row that was inserted and deleted again was read as absent: the next insert of
                // its key must come later. Its exchange of the intent comes after `install_all` has
                // given this one up, and so after the `rts`.
                write.cells().for_each(|cell| raise_rts::<M, F>(cell, local.ts));
            }
            if write.merged().is_empty() {
                continue;
            }
            for cell in write.table().cells(write.record, write.merged()) {
                let placed = Self::place_intent(&mut local.intents, local.ts, cell);
                if placed.map_err(|abort| cx.conflict_at(cell, abort))? & (ABSENT | UNLINKED) != 0 {
                    return Err(cx.conflict_at(cell, Abort::new(AbortReason::RecordGone)));
                }
            }
        }
        local.intents.copy(cx, &self.collector, false, local.ts)?;
        local.intents.install_all(cx, local.ts, 0);
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        // The rest of the batch is as old, and would come too late as well. The `rts` that it has
        // left stay: they cost older writers aborts, and break nothing.
        local.stamps.drop_batch();
        local.intents.abort(reason);
    }
}

faults! {
    /// The deliberate faults of multi-version timestamp ordering.
    pub trait MvtoFaults: VersionFaults {
        /// A read looks for the intents of older transactions, and then leaves its timestamp.
        look_before_rts,
    }
    pub const FAULTS;
}
