//! Snapshot isolation: a transaction reads the state at its begin, and of two that write the same row only one commits.
//!
//! **Idea.** A transaction reads, of every row, the version that was committed last when it began. Reads are neither announced nor
//! validated. Who wants to write what another is writing, or has written since, aborts (*first updater wins*).
//!
//! **Papers.** H. Berenson et al.: "A critique of ANSI SQL isolation levels", SIGMOD 1995; as measured in T. Tanabe et al.: "An analysis of
//! concurrency control protocols for in-memory databases with CCBench", VLDB 2020 (SI).
//!
//! **Promises** snapshot isolation: no lost update, no fractured read; write skew and the read-only anomaly can happen.
//!
//! **Metadata.** Six words a cell: [`crate::multiversion`]. The time of reads is not used.
//!
//! **Which state.** One counter has the timestamp of the last commit. A transaction that began at time `b` sees the commits up to `b`, also
//! those that are still installing: it waits for them ([`crate::multiversion`]). (The codes of CCBench take the largest timestamp that was given as the begin and do not wait; a transaction then sees a part of a commit.)
//!
//! **The counter.** A transaction that only reads looks at it once, and does not add to it. CCBench's adds at the commit, and, as it is built with
//! `CCTR_TW`, at the begin as well: `snapshot.counter=begins` does the same. (With `CCTR_ON` a begin there asks every thread for its last
//! commit instead, which is not built here.)
//!
//! **Snapshots.** A transaction that says beforehand that it will only read waits for commits as long as they take, and never aborts.
//!
//! **Commit point.** The timestamp.
//!
//! **Waits** are of readers for writers that have decided, who wait for nobody.
//!
//! **Phantoms.** A snapshot has the rows that it has: what is inserted later is in the index, and not in the snapshot. A tombstone stays in the
//! index until nobody is left who could see the row.
//!
//! **Departures from the papers.** Those of all multi-version protocols here: [`crate::multiversion`].

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, NamedProtocol,
    Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode,
};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::multiversion::collect::CollectOptions;
use crate::multiversion::{self, CounterOptions, Snapshot, Snapshots};

/// The protocol.
#[derive(Debug)]
pub struct SnapshotIsolation<M: Machine, F = Sound> {
    snapshots: Snapshots<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct SnapshotIsolationWorker<M: Machine>(Snapshot<M>);

impl<M: Machine, F: Faults> NamedProtocol<M> for SnapshotIsolation<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "si",
        summary: "snapshot isolation: reads see the state at the begin, the first to write a row wins; lets write skew through",
        paper: "Berenson et al.: A critique of ANSI SQL isolation levels, SIGMOD 1995",
        isolation: Isolation::Snapshot,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.collect=rapid or epoch, versions.overwrite=off");
    type Options = (CounterOptions, CollectOptions);

    fn new((counter, collect): Self::Options) -> Self {
        SnapshotIsolation { snapshots: Snapshots::counting(collect, false, counter.counter), faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for SnapshotIsolation<M, F> {
    type WorkerState = SnapshotIsolationWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        multiversion::WORDS
    }

    fn reads_snapshots(&self) -> bool {
        self.snapshots.collector.keeps_all()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        Snapshots::sees_own_commits(&local.0)
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.snapshots.prepare(workers);
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        SnapshotIsolationWorker(self.snapshots.of_worker(worker))
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        multiversion::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.snapshots.begin(cx, &mut local.0);
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
        let Snapshot { begin, claim: own, ref mut claims, reads_only, .. } = local.0;
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let begin = if F::FORGET_FIRST_UPDATER { u64::MAX } else { begin };
        claims.write(cx, at, groups, mode, |claims, cell| claims.claim_since(cell, own, begin), |_| ())
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        at.cells(Groups::ALL).for_each(|cell| local.0.claims.adopt(cell, local.0.claim));
        if local.0.reads_only { Err(Abort::new(AbortReason::Unsupported)) } else { Ok(()) }
    }

    #[inline(always)]
    fn observe_leaf(&self, _: &mut Context<M>, _: &mut Self::WorkerState, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        // What a snapshot has is in the index from before its time until nobody sees it any more.
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            // Nothing is done with it: it is taken for what it costs.
            self.snapshots.commits.stamp_reader();
            return Ok(());
        }
        let claims = &mut local.0.claims;
        claims.copy(cx, &self.snapshots.collector, false, u64::MAX)?;
        let stamp = self.snapshots.commits.stamp(claims);
        claims.install_all(cx, stamp, 0);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        local.0.claims.abort(reason);
    }

    fn go_offline(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) {
        self.snapshots.go_offline(cx, &mut local.0);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        multiversion::unlink::<M, F>(tombstone, u64::MAX)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::flags::is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.snapshots.older_versions(record)
    }
}
