//! Hekaton's optimistic protocol: reads see the state at the begin, and a commit checks that it is
//! that of the end as well.
//!
//! **Idea.** A transaction reads the version of each row that was the newest committed one when it
//! began, as under snapshot isolation. If two transactions write the same row, the second aborts. A
//! transaction that writes draws a timestamp at its end. It checks that each version that it has
//! read is still the version at that time, and that no row has come into the ranges that it has
//! read. So it could as well have run in that instant. A transaction that only reads could have run
//! at its begin, so nothing is checked.
//!
//! | step of the paper (section 3) | function |
//! | --- | --- |
//! | get a begin timestamp | `begin`: `SnapshotState::begin` |
//! | read: check visibility at the begin timestamp | `read`: `SnapshotTxn::read` |
//! | write: lock the version by its End field, first writer wins | `write`: `WriteIntents::place_unless_overwritten` |
//! | precommit: get an end timestamp, state *Preparing* | `commit`: `CommitCounter::take_commit_ts` |
//! | validation of reads, and of scans against phantoms | `validate` |
//! | commit dependencies | none: a reader waits for a writer that is committing |
//! | postprocessing: end and begin timestamps of versions | `commit`: `WriteIntents::install_all` |
//!
//! **Paper.** P. Larson, S. Blanas, C. Diaconu, C. Freedman, J. Patel, M. Zwilling:
//! "High-performance concurrency control mechanisms for main-memory databases", VLDB 2011 (MV/O,
//! section 3).
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees one state
//! only, that of its begin.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`]. The `rts` is not used: reads
//! leave no trace.
//!
//! **Commit.** A writer changes its write intents to "about to draw a timestamp", draws it, and
//! changes them to the timestamp. Then it looks at the cells that it has read. It waits for a
//! transaction that has an intent there with an earlier timestamp. A transaction that has no
//! timestamp yet will get a later one.
//!
//! **Snapshots.** A transaction that declares itself read-only waits for commits without a limit,
//! and never aborts.
//!
//! **Commit point.** The end of the check.
//!
//! **Waits.** A reader waits for a writer that has decided to commit, and such a writer for one
//! with an earlier timestamp. So waits form no cycle.
//!
//! **Phantoms.** The leaves that a transaction depends on have the same keys at its end. An insert
//! enters the index before its transaction takes a timestamp. So a transaction that validated the
//! leaf without seeing the insert has the smaller timestamp.
//!
//! **Departures from the paper.** No transaction reads a version that is not committed yet, so
//! there are no commit dependencies. The newest version is in the record, and a leaf's version
//! stands for a repeated scan.

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection,
    ProtocolInfo, RecordState, WriteMode,
};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::faults;
use crate::flags::UNLINKED;
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    Counted, MultiVersion, ReadEntry, ReadVersion, SnapshotFaults, SnapshotState, SnapshotTxn, VersionRules,
    WriteIntents, is_still_visible, waits_for_earlier_than,
};

/// Hekaton's optimistic protocol.
pub type Hekaton<M, F = Sound> = MultiVersion<HekatonRules<M, F>>;

/// Hekaton's rules.
#[derive(Debug)]
pub struct HekatonRules<M: Machine, F = Sound> {
    shared: SnapshotState<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct HekatonWorker<M: Machine> {
    txn: SnapshotTxn<M>,
    /// The cells whose newest version it has read.
    read_set: Vec<ReadEntry<M>>,
    /// Whether it has read a version that was replaced already, or missed a row that was there
    /// already: that can't be the state at its end.
    has_read_old: bool,
    /// The cell of such a version, if it was one.
    old_read: Option<Cell<M>>,
}

impl<M: Machine, F: HekatonFaults> HekatonRules<M, F> {
    /// Checks that each version that the transaction has read at its begin is the one at `end_ts`
    /// as well.
    #[inline(always)]
    fn check_reads_at(cx: &Context<M>, local: &HekatonWorker<M>, end_ts: u64) -> Result<(), Abort> {
        let at = |cell| cx.conflict_at(cell, Abort::new(AbortReason::ReadValidation));
        if local.has_read_old {
            return Err(local.old_read.map_or_else(|| Abort::new(AbortReason::ReadValidation), at));
        }
        for &entry in &local.read_set {
            let visible = is_still_visible(entry, end_ts, waits_for_earlier_than::<F>(end_ts));
            if !visible.map_err(|abort| cx.conflict_at(entry.0, abort))? {
                return Err(at(entry.0));
            }
        }
        Ok(())
    }

    /// Validates the reads and the leaves of a transaction that commits at `end_ts`.
    #[inline(always)]
    fn validate(cx: &Context<M>, local: &HekatonWorker<M>, end_ts: u64) -> Result<(), Abort> {
        M::step("check reads");
        Self::check_reads(cx, local, end_ts)?;
        cx.nodes.validate()
    }
}

impl<M: Machine, F: HekatonFaults> VersionRules<M> for HekatonRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "hekaton",
        summary: "optimistic and multi-version: reads see the state at the begin, and must be of the end as well",
        paper: "Larson et al.: High-performance concurrency control mechanisms for main-memory databases, VLDB 2011",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.collect=rapid or epoch, versions.overwrite=off");
    type Options = CollectOptions;
    type WorkerState = HekatonWorker<M>;

    fn new(collect: CollectOptions) -> Self {
        HekatonRules { shared: SnapshotState::new(collect, Counted::Writers), faults: PhantomData }
    }

    fn reads_snapshots(&self) -> bool {
        self.shared.collector.keeps_all()
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        local.txn.sees_own_commits()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        HekatonWorker {
            txn: self.shared.of_worker(worker),
            read_set: Vec::with_capacity(64),
            has_read_old: false,
            old_read: None,
        }
    }

    fn collector(&self) -> &Collector<M> {
        &self.shared.collector
    }

    fn collector_mut(&mut self) -> &mut Collector<M> {
        &mut self.shared.collector
    }

    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M> {
        &mut local.txn.intents.retired
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.read_set.clear();
        local.has_read_old = false;
        self.shared.begin(cx, &mut local.txn);
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
        let HekatonWorker { txn, read_set, has_read_old, old_read } = local;
        let is_unchecked = txn.reads_only;
        txn.read::<F>(cx, at, columns, |version| match version {
            // Nothing will be checked.
            _ if is_unchecked => {}
            ReadVersion::Newest((_, word)) if word & UNLINKED != 0 => {}
            ReadVersion::Newest(entry) => read_set.push(entry),
            // Also a row that another transaction has inserted since: it is there at the end.
            ReadVersion::Old(cell, _) => (*has_read_old, *old_read) = (true, Some(cell)),
            ReadVersion::None => (*has_read_old, *old_read) = (true, None),
        })
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
        let HekatonWorker { txn, read_set, .. } = local;
        let SnapshotTxn { begin_ts, intent, ref mut intents, reads_only } = *txn;
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let place = |intents: &mut WriteIntents<M>, cell| intents.place_unless_overwritten(cell, intent, begin_ts);
        intents.write(cx, at, groups, mode, place, |missed| read_set.push(missed))
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        let SnapshotTxn { intent, ref mut intents, reads_only, .. } = local.txn;
        at.cells(Groups::ALL).for_each(|cell| intents.adopt(cell, intent));
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        cx.nodes.follow(change)
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
        if !local.txn.reads_only {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return Ok(());
        }
        let end_ts = self.shared.counter.take_commit_ts(&local.txn.intents);
        Self::validate(cx, local, end_ts)?;
        let intents = &mut local.txn.intents;
        intents.copy(cx, &self.shared.collector, false, u64::MAX)?;
        intents.install_all(cx, end_ts, 0);
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        local.txn.intents.abort(reason);
    }
}

faults! {
    /// Hekaton's deliberate faults.
    pub trait HekatonFaults: SnapshotFaults {
        /// Cells that were read and are not written are not validated: write skew goes through, as
        /// under snapshot isolation.
        forget_read_only,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: HekatonFaults> HekatonRules<M, F> {
    /// Checks that the transaction's reads are valid at `end_ts`.
    #[inline(always)]
    fn check_reads(cx: &Context<M>, local: &HekatonWorker<M>, end_ts: u64) -> Result<(), Abort> {
        if F::forget_read_only() { Ok(()) } else { Self::check_reads_at(cx, local, end_ts) }
    }
}
