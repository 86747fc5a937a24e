//! MSTO, the multi-version protocol of STOv2: optimistic, with updates that are applied at commit,
//! even if they come late.
//!
//! **Idea.** As in [`crate::multiversion::cicada`], transactions have a timestamp from the begin,
//! find the versions of their time, and place intents, validate and install at the commit.
//! Timestamps come from one counter. An update that is not read (a *commit-time update*) is a
//! version as well, a *delta*: only the change is known. It can be put between two versions: a
//! transaction that has read neither the version before it nor one after it does not see the
//! difference.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | read at the transaction's timestamp | `read`: `ValidatingTxn::read` |
//! | commit, phase 1: put pending versions into the chains | `commit`: `ValidatingTxn::place_intents` |
//! | phase 1 of commutative updates: pending deltas | `commit`: `place_commuting_intent`, after phase 2 |
//! | phase 2: raise the read timestamps, check the versions | `commit`: `ValidatingTxn::validate` |
//! | phase 3: pending versions become committed | `commit`: `ValidatingTxn::install` |
//! | flattening of deltas | none: the newest version is always complete |
//! | read-only transactions at the read timestamp | `begin`: `ValidatingTxn::begin_snapshot` |
//!
//! **Paper.** Y. Huang, W. Qian, E. Kohler, B. Liskov, L. Shrira: "Opportunities for optimism in
//! contended main-memory multicore transactions", VLDB 2020, sections 4 and 5 (MSTO). Commit-time
//! updates are `cu=on`, timestamp splitting is `ts=on`, as with every protocol.
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees the state
//! at its time, except for older transactions that have not committed yet.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`]. The fifth says since when all
//! versions are updates that commute (`SuffixKind`).
//!
//! **Late updates.** A transaction of time `t` finds that the newest version is younger. Its update
//! may still be applied if three things hold: no transaction later than `t` has read the cell (the
//! `rts`); all versions after `t` are updates that commute (the `SuffixKind`); and its own updates
//! do. Then the sum is the same in either order. So the update is applied to the newest version,
//! whose `wts` grows by one; timestamps of transactions are [`TIMESTAMP_STRIDE`] apart, and a
//! transaction that has read that version notices at its validation. The older versions end at `t`.
//! So there is no version between `t` and the newest one any more, and a transaction that needs one
//! aborts (`version_collected`) and begins again.
//!
//! **Commit point.** The last intent. Reads are validated before intents for commuting updates are
//! placed: the `rts` protects them from then on.
//!
//! **Waits.** A younger transaction waits for an older one that has an intent on a cell. A
//! transaction that places intents for commuting updates holds all its other intents and has
//! nothing left to validate. It waits only for other transactions at this point, and all of them
//! place these intents in one order, the rows of small tables last. So waits form no cycle.
//!
//! **Phantoms.** A commit raises the `rts` of the leaves that it depends on, and checks that they
//! still have the same keys. An insert by an older transaction aborts. (The authors' tables compare
//! only the versions of leaves, which lets an insert of an older transaction through.)
//!
//! **Snapshots** (`versions.snapshots=on`; the authors' read timestamp) are for transactions that
//! declare themselves read-only, as in [`crate::multiversion::cicada`].
//!
//! **Late writes** of whole cells are skipped with `versions.nwr=on` if no transaction will see
//! them: `multiversion/validation.rs`.
//!
//! **Departures from the paper.** A version that is more than an update is written after all others
//! of its cell. The authors keep deltas in the chain and compute a row when it is read, for which
//! they mark all versions on the way. Under long chains that costs more than it brings (their table
//! of section 7: 0.62 of the throughput without). Here only updates that commute may come late, and
//! the newest version is always complete. The price is that a transaction that began between the
//! update and the newest version, and has not read yet, begins again.

use std::cmp::Reverse;
use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection,
    ProtocolInfo, RecordState, WriteMode, options,
};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::faults;
use crate::flags::{ABSENT, UNLINKED};
use crate::method::timestamp::{OrderedTimestampOptions, Stamper, Timestamps};
use crate::method::wait::WAITS_MAX;
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    MultiVersion, ReadView, SuffixKind, ValidatingOptions, ValidatingTxn, ValidationFaults, VersionRules, wts_of,
};

options! {
    /// Options of MSTO, the multi-version protocol of STOv2.
    pub struct MstoOptions {
        /// Let updates that commute, and whose results are not read, come before existing versions.
        "msto.late" late: bool = true, in ();
        flatten validating: ValidatingOptions;
        flatten timestamps: OrderedTimestampOptions;
        flatten collect: CollectOptions;
    }
}

/// The distance between the timestamps of two transactions. A version takes fewer late updates than
/// this.
pub const TIMESTAMP_STRIDE: u64 = 1 << 8;
/// Flag in a write intent: it is for updates that commute.
const COMMUTING_INTENT: u64 = 1;

/// MSTO, the multi-version protocol of STOv2.
pub type Msto<M, F = Sound> = MultiVersion<MstoRules<M, F>>;

/// MSTO's rules.
#[derive(Debug)]
pub struct MstoRules<M: Machine, F = Sound> {
    options: MstoOptions,
    timestamps: Arc<Timestamps<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct MstoWorker<M: Machine> {
    stamps: Stamper<M>,
    txn: ValidatingTxn<M>,
    /// The cells that the transaction updates by commuting updates and has not read, each with the
    /// number of rows of its table.
    commuting: Vec<(usize, Cell<M>)>,
}

impl<M: Machine, F: MstoFaults> MstoRules<M, F> {
    /// Returns the numbers of those cells of a write that its updates may reach late, and of the
    /// others.
    #[inline(always)]
    fn divide(&self, write: &Write<M>) -> (Groups, Groups) {
        let all = write.cell_numbers();
        let commuting = match write.kind {
            WriteKind::Update if self.options.late => Self::commuting(write),
            _ => Groups::NONE,
        };
        (commuting, all.without(commuting))
    }

    /// Places an intent on a cell for updates that commute.
    ///
    /// # Errors
    /// The updates come too late for this cell, the version has taken too many of them, or the
    /// record is gone.
    #[inline(always)]
    fn place_commuting_intent(cx: &Context<M>, txn: &mut ValidatingTxn<M>, cell: Cell<M>) -> Result<(), Abort> {
        let intent = txn.ts | COMMUTING_INTENT;
        let placed = txn.intents.place(cell, intent, WAITS_MAX, |other| other & COMMUTING_INTENT != 0);
        let word = placed.map_err(|abort| cx.conflict_at(cell, abort))?;
        if word & (UNLINKED | ABSENT) != 0 {
            return Err(cx.conflict_at(cell, Abort::new(AbortReason::RecordGone)));
        }
        let was_read = txn.was_read_later::<F>(cell);
        let is_late = wts_of(word) > txn.ts;
        let is_full = (wts_of(word) + 1).is_multiple_of(TIMESTAMP_STRIDE);
        if was_read || is_late && (is_full || !SuffixKind::CommutingUpdates.covers_all_after(cell, txn.ts)) {
            return Err(cx.conflict_at(cell, Abort::new(AbortReason::WriteLocked)));
        }
        Ok(())
    }
}

impl<M: Machine, F: MstoFaults> VersionRules<M> for MstoRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "msto",
        summary: "optimistic and multi-version: timestamps of one counter; updates that commute may come late",
        paper: "Huang et al.: Opportunities for optimism in contended main-memory multicore transactions, VLDB 2020",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> =
        Some("versions.snapshots=on, msto.late=off, versions.nwr=off, versions.collect=rapid or epoch");
    type Options = MstoOptions;
    type WorkerState = MstoWorker<M>;

    fn options_with_snapshots() -> Self::Options {
        let validating = ValidatingOptions { snapshots: true, ..ValidatingOptions::default() };
        // A late update leaves no version between its time and the newest one.
        MstoOptions { late: false, validating, ..MstoOptions::default() }
    }

    fn new(options: MstoOptions) -> Self {
        let timestamps = Timestamps::new(options.timestamps.clone().into(), 0);
        let collector = Collector::new(options.collect.clone(), 0, options.validating.snapshots);
        MstoRules { options, timestamps, collector, faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn reorders_updates(&self) -> bool {
        self.options.late
    }

    fn wants_declarations(&self) -> bool {
        self.options.validating.snapshots
    }

    fn reads_snapshots(&self) -> bool {
        self.options.validating.snapshots
            && !self.options.validating.nwr
            && !self.options.late
            && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        local.txn.sees_own_commits()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        let txn = ValidatingTxn::new(self.options.validating.clone(), self.collector.of_worker(worker));
        let stamps = self.timestamps.of_worker(worker);
        MstoWorker { stamps, txn, commuting: Vec::with_capacity(16) }
    }

    fn collector(&self) -> &Collector<M> {
        &self.collector
    }

    fn collector_mut(&mut self) -> &mut Collector<M> {
        &mut self.collector
    }

    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M> {
        &mut local.txn.intents.retired
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let MstoWorker { stamps, txn, .. } = local;
        if txn.wants_snapshot(cx) {
            txn.begin_snapshot(cx, &self.collector, || stamps.now() * TIMESTAMP_STRIDE);
            return Ok(());
        }
        // Every timestamp that is drawn later is later than the counter's value now.
        self.collector.begin(cx, &mut txn.intents.retired, || stamps.now() * TIMESTAMP_STRIDE);
        txn.begin(&self.collector, || stamps.stamp() * TIMESTAMP_STRIDE);
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
        let view = ReadView::at::<F>(local.txn.ts);
        // A late update ends old versions early, so these need validation.
        local.txn.read::<F>(cx, at, columns, view, self.options.late)
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
        let read = |txn: &mut ValidatingTxn<M>, cx: &mut _, columns: Projection<'_>| {
            let view = ReadView::at::<F>(txn.ts);
            txn.read::<F>(cx, at, columns, view, self.options.late)
        };
        local.txn.write(cx, at, groups, mode, mode != WriteMode::CommitTimeUpdate, read)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        local.txn.placeholder_inserted(cx, at, change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        local.txn.observe_leaf(cx, leaf, version);
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        let MstoWorker { txn, commuting, .. } = local;
        if cx.writes.is_empty() {
            return txn.validate::<F>(cx);
        }
        let ts = txn.ts;
        // Phase 1, for all cells but those of commuting updates.
        commuting.clear();
        for (position, write) in cx.writes.entries().iter().enumerate() {
            let (updated, rewritten) = self.divide(write);
            let cells = |numbers| write.table().cells(write.record, numbers);
            txn.place_intents::<F>(cx, position, rewritten, |other| other < ts)?;
            for (number, cell) in updated.into_iter().zip(cells(updated)) {
                if txn.has_read(cell) {
                    // The read has to be in time anyway.
                    txn.place_intents::<F>(cx, position, Groups::of(number as u32), |other| other < ts)?;
                } else {
                    commuting.push((write.table().expected_rows(), cell));
                }
            }
        }
        // Phase 2.
        txn.validate::<F>(cx)?;
        // Phase 1, for commuting updates. The rows of small tables, which more transactions want,
        // come last, so that their intents are held shortest.
        commuting.sort_unstable_by_key(|&(rows, cell)| (Reverse(rows), cell.address()));
        for &(_, cell) in &*commuting {
            Self::place_commuting_intent(cx, txn, cell)?;
        }
        // Phase 3.
        txn.intents.copy(cx, &self.collector, false, ts)?;
        txn.install(cx, self.options.late.then_some(|write: &_| self.divide(write).0));
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        local.txn.abort(reason);
    }
}

faults! {
    /// MSTO's deliberate faults.
    pub trait MstoFaults: ValidationFaults {
        /// Updates may come late whether or not they commute.
        reorder_any,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: MstoFaults> MstoRules<M, F> {
    /// Returns the numbers of the cells that a write changes only by commuting updates.
    #[inline(always)]
    fn commuting(write: &Write<M>) -> Groups {
        if F::reorder_any() { write.table().cell_numbers(write.merged()) } else { write.commuting() }
    }
}
