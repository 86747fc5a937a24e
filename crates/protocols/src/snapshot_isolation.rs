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
//! **Metadata.** Six words a cell: [`crate::versions`]. The time of reads is not used.
//!
//! **Which state.** One counter has the timestamp of the last commit. A transaction that began at time `b` sees the commits up to `b`, also
//! those that are still installing: it waits for them ([`crate::versions`]). (The codes of CCBench take the largest timestamp that was given as the begin and do not wait; a transaction then sees a part of a commit.)
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

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, At, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::versions::collect::CollectOptions;
use crate::versions::{self, CounterOptions, Snapshot, Snapshots};

/// The protocol.
#[derive(Debug)]
pub struct SnapshotIsolation<M: Machine, F = Sound> {
    snapshots: Snapshots<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct SnapshotIsolationLocal<M: Machine>(Snapshot<M>);

impl<M: Machine, F: Faults> Protocol<M> for SnapshotIsolation<M, F> {
    const INFO: Info = Info {
        name: "si",
        summary: "snapshot isolation: reads see the state at the begin, the first to write a row wins; lets write skew through",
        paper: "Berenson et al.: A critique of ANSI SQL isolation levels, SIGMOD 1995",
        isolation: Isolation::Snapshot,
        needs: Needs::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.collect=rapid or epoch, versions.overwrite=off");
    type Options = (CounterOptions, CollectOptions);

    fn new((counter, collect): Self::Options) -> Self {
        SnapshotIsolation { snapshots: Snapshots::counting(collect, false, counter.counter), faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for SnapshotIsolation<M, F> {
    type Local = SnapshotIsolationLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        versions::WORDS
    }

    fn reads_snapshots(&self) -> bool {
        self.snapshots.collector.keeps_all()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::Local) -> bool {
        Snapshots::sees_own_commits(&local.0)
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.snapshots.prepare(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        SnapshotIsolationLocal(self.snapshots.of_worker(worker))
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.snapshots.begin(cx, &mut local.0);
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        local.0.read::<F>(cx, at, columns, |_| ())
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort> {
        let Snapshot { begin, claim: own, ref mut claims, reads_only, .. } = local.0;
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let begin = if F::FORGET_FIRST_UPDATER { u64::MAX } else { begin };
        claims.write(cx, at, groups, mode, |claims, cell| claims.claim_since(cell, own, begin), |_| ())
    }

    fn inserted(&self, _: &mut Context<M>, local: &mut Self::Local, at: At<'_, M>, _: &Change<M>) -> Result<(), Abort> {
        at.cells(Groups::ALL).for_each(|cell| local.0.claims.adopt(cell, local.0.claim));
        if local.0.reads_only { Err(Abort::new(AbortReason::Unsupported)) } else { Ok(()) }
    }

    #[inline(always)]
    fn gap(&self, _: &mut Context<M>, _: &mut Self::Local, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        // What a snapshot has is in the index from before its time until nobody sees it any more.
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
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

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.0.claims.abort(reason);
    }

    fn rest(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        self.snapshots.rest(cx, &mut local.0);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        versions::unlink::<M, F>(tombstone, u64::MAX)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::optimistic::is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.snapshots.older_versions(record)
    }
}
