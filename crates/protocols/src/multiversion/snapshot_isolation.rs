//! Snapshot isolation: a transaction reads the state at its begin, and if two write the same row,
//! only one of them commits.
//!
//! **Idea.** A transaction reads the version of each row that was the newest committed one when it
//! began. Reads are neither announced nor validated. A transaction that wants to write a row that
//! another is writing, or has written since, aborts (*first updater wins*).
//!
//! | step of the papers | function |
//! | --- | --- |
//! | start timestamp | `begin`: `SnapshotState::begin` |
//! | read the snapshot | `read`: `SnapshotTxn::read` |
//! | first updater wins | `write`: `WriteIntents::place_unless_overwritten` |
//! | commit timestamp | `commit`: `CommitCounter::take_commit_ts` |
//! | install | `commit`: `WriteIntents::install_all` |
//!
//! **Papers.** H. Berenson et al.: "A critique of ANSI SQL isolation levels", SIGMOD 1995; as
//! measured in T. Tanabe et al.: "An analysis of concurrency control protocols for in-memory
//! databases with CCBench", VLDB 2020 (SI).
//!
//! **Promises** snapshot isolation: no lost update, no fractured read. Write skew and the read-only
//! anomaly can happen.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`]. The `rts` is not used.
//!
//! **Which state.** One counter has the timestamp of the latest commit. A transaction that began at
//! time `b` sees the commits up to `b`, also those that are still installing: it waits for them
//! (`multiversion/snapshot.rs`). The codes of CCBench begin at the largest timestamp that was drawn
//! and do not wait; a transaction may then see a part of a commit.
//!
//! **The counter.** A transaction that only reads loads it once, and does not add to it. CCBench's
//! adds at the commit and, as it is built with `CCTR_TW`, at the begin as well:
//! `snapshot.counter=begins` does the same. (With `CCTR_ON` a begin there asks every thread for its
//! last commit instead, which is not built here.)
//!
//! **Snapshots.** A transaction that declares itself read-only waits for commits without a limit,
//! and never aborts.
//!
//! **Commit point.** The timestamp.
//!
//! **Waits.** A reader waits for a writer that has decided to commit, and such a writer waits for
//! no transaction.
//!
//! **Phantoms.** A row that is inserted later is in the index, but not in the snapshot. A tombstone
//! stays in the index until no transaction is left that could see its row.
//!
//! **Departures from the papers.** Those of all multi-version protocols here:
//! [`crate::multiversion`].

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection, ProtocolInfo,
    RecordState, WriteMode, options,
};
use contend_machine::Machine;

use crate::fault::Sound;
use crate::faults;
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    CounterOptions, MultiVersion, SnapshotFaults, SnapshotState, SnapshotTxn, VersionRules, WriteIntents,
};

options! {
    /// Options of snapshot isolation.
    pub struct SnapshotIsolationOptions {
        flatten counter: CounterOptions;
        flatten collect: CollectOptions;
    }
}

/// Snapshot isolation.
pub type SnapshotIsolation<M, F = Sound> = MultiVersion<SnapshotIsolationRules<M, F>>;

/// The rules of snapshot isolation.
#[derive(Debug)]
pub struct SnapshotIsolationRules<M: Machine, F = Sound> {
    shared: SnapshotState<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct SnapshotIsolationWorker<M: Machine>(SnapshotTxn<M>);

impl<M: Machine, F: SnapshotIsolationFaults> VersionRules<M> for SnapshotIsolationRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "si",
        summary: "snapshot isolation: reads see the state at the begin, the first to write a row wins; lets write skew through",
        paper: "Berenson et al.: A critique of ANSI SQL isolation levels, SIGMOD 1995",
        isolation: Isolation::Snapshot,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.collect=rapid or epoch, versions.overwrite=off");
    type Options = SnapshotIsolationOptions;
    type WorkerState = SnapshotIsolationWorker<M>;

    fn new(SnapshotIsolationOptions { counter, collect }: SnapshotIsolationOptions) -> Self {
        SnapshotIsolationRules { shared: SnapshotState::new(collect, counter.counter), faults: PhantomData }
    }

    fn reads_snapshots(&self) -> bool {
        self.shared.collector.keeps_all()
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        local.0.sees_own_commits()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        SnapshotIsolationWorker(self.shared.of_worker(worker))
    }

    fn collector(&self) -> &Collector<M> {
        &self.shared.collector
    }

    fn collector_mut(&mut self) -> &mut Collector<M> {
        &mut self.shared.collector
    }

    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M> {
        &mut local.0.intents.retired
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.shared.begin(cx, &mut local.0);
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
        local.0.read::<F>(cx, at, columns, |_| ())
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
        let SnapshotTxn { begin_ts, intent, ref mut intents, reads_only } = local.0;
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let newest = Self::newest_to_overwrite(begin_ts);
        let place = |intents: &mut WriteIntents<M>, cell| intents.place_unless_overwritten(cell, intent, newest);
        intents.write(cx, at, groups, mode, place, |_| ())
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        at.cells(Groups::ALL).for_each(|cell| local.0.intents.adopt(cell, local.0.intent));
        if local.0.reads_only { Err(Abort::new(AbortReason::Unsupported)) } else { Ok(()) }
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        _: &mut Context<M>,
        _: &mut Self::WorkerState,
        _: u32,
        _: Leaf<M>,
        _: u64,
    ) -> Result<(), Abort> {
        // Every row of a snapshot is in the index from before the snapshot's time until no
        // transaction sees it any more.
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            // The timestamp is drawn for its cost alone, as in CCBench.
            self.shared.counter.take_reader_ts();
            return Ok(());
        }
        let intents = &mut local.0.intents;
        intents.copy(cx, &self.shared.collector, false, u64::MAX)?;
        let commit_ts = self.shared.counter.take_commit_ts(intents);
        intents.install_all(cx, commit_ts, 0);
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        local.0.intents.abort(reason);
    }
}

faults! {
    /// The deliberate faults of snapshot isolation.
    pub trait SnapshotIsolationFaults: SnapshotFaults {
        /// A write does not look whether the row has been written since the transaction began.
        forget_first_updater,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: SnapshotIsolationFaults> SnapshotIsolationRules<M, F> {
    /// Returns the largest `wts` of a version that a transaction may overwrite: its begin.
    #[inline(always)]
    fn newest_to_overwrite(begin_ts: u64) -> u64 {
        if F::forget_first_updater() { u64::MAX } else { begin_ts }
    }
}
