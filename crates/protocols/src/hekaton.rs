//! Hekaton's optimistic protocol: reads see the state at the begin, and a commit checks that it is that of the end as well.
//!
//! **Idea.** A transaction reads, of every row, the version that was committed last when it began, as under snapshot isolation, and of two that
//! write the same row the second aborts. One that writes takes a timestamp at its end, and looks whether every version that it has read is the
//! one that is there at that time, and whether nothing has come into the ranges that it has read. Then it is as if it had run in that instant. One that
//! only reads is as if it had run at its begin: nothing is checked.
//!
//! **Paper.** P. Larson, S. Blanas, C. Diaconu, C. Freedman, J. Patel, M. Zwilling: "High-performance concurrency control mechanisms for
//! main-memory databases", VLDB 2011 (MV/O, section 3).
//!
//! **Promises** serializability, in the order of timestamps; and a running transaction sees one state only, that of its begin.
//!
//! **Metadata.** Six words a cell: [`crate::versions`]. The time of reads is not used: reads leave nothing behind.
//!
//! **Commit.** A writer says in its claims that it is about to take its timestamp, takes it, says which, and then looks at what it read: who has
//! claimed that with an earlier timestamp is waited for; who has none yet will have a later one.
//!
//! **Snapshots.** A transaction that says beforehand that it will only read waits for commits as long as they take, and never aborts.
//!
//! **Commit point.** The end of the check.
//!
//! **Waits** are of readers for writers that have decided to commit, and of these for such as have earlier timestamps: no cycle.
//!
//! **Phantoms.** The leaves that a transaction depends on have the same keys at its end. An insert is in the index before its transaction has a
//! timestamp: whose leaf is checked before has the earlier one.
//!
//! **Departures from the paper.** Nobody reads what is not committed yet, so there are no commit dependencies: a reader waits. The newest
//! version is in the record, and a leaf's version stands for a repeated scan.

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, At, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::Machine;

use crate::fault::{Faults, Sound};
use crate::flags::UNLINKED;
use crate::versions::collect::CollectOptions;
use crate::versions::{self, Claims, Seen, Snapshot, Snapshots, Version};

/// The protocol.
#[derive(Debug)]
pub struct Hekaton<M: Machine, F = Sound> {
    snapshots: Snapshots<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct HekatonLocal<M: Machine> {
    snapshot: Snapshot<M>,
    /// The cells of which it has read the newest version.
    seen: Vec<Seen<M>>,
    /// Whether it has read a version that had been replaced: it can't be there at the end.
    is_late: bool,
}

impl<M: Machine, F: Faults> Hekaton<M, F> {
    /// Checks that what the transaction has read at its begin is what there is at this time.
    #[inline(always)]
    fn check(cx: &Context<M>, local: &HekatonLocal<M>, stamp: u64) -> Result<(), Abort> {
        M::step("check reads");
        let waits = |claim| claim < stamp && !F::IGNORE_PREWRITES;
        if !F::FORGET_READ_ONLY {
            if local.is_late {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
            for &seen in &local.seen {
                if !versions::is_current(seen, stamp, waits)? {
                    return Err(Abort::new(AbortReason::ReadValidation));
                }
            }
        }
        cx.nodes.validate()
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Hekaton<M, F> {
    const INFO: Info = Info {
        name: "hekaton",
        summary: "optimistic and multi-version: reads see the state at the begin, and must be of the end as well",
        paper: "Larson et al.: High-performance concurrency control mechanisms for main-memory databases, VLDB 2011",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.collect=rapid or epoch, versions.overwrite=off");
    type Options = CollectOptions;

    fn new(options: CollectOptions) -> Self {
        Hekaton { snapshots: Snapshots::new(options, false), faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Hekaton<M, F> {
    type Local = HekatonLocal<M>;

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
        Snapshots::sees_own_commits(&local.snapshot)
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.snapshots.prepare(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        HekatonLocal { snapshot: self.snapshots.of_worker(worker), seen: Vec::with_capacity(64), is_late: false }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.seen.clear();
        local.is_late = false;
        self.snapshots.begin(cx, &mut local.snapshot);
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
        let HekatonLocal { snapshot, seen, is_late } = local;
        let is_unchecked = snapshot.reads_only;
        snapshot.read::<F>(cx, at, columns, |version| match version {
            // Nothing will be checked.
            _ if is_unchecked => {}
            Version::Newest((_, word)) if word & UNLINKED != 0 => {}
            Version::Newest(newest) => seen.push(newest),
            Version::Older(..) => *is_late = true,
        })
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
        let HekatonLocal { snapshot, seen, .. } = local;
        let Snapshot { begin, claim: own, ref mut claims, reads_only, .. } = *snapshot;
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        let claim = |claims: &mut Claims<M>, cell| claims.claim_since(cell, own, begin);
        claims.write(cx, at, groups, mode, claim, |missed| seen.push(missed))
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        let Snapshot { claim, ref mut claims, reads_only, .. } = local.snapshot;
        at.cells(Groups::ALL).for_each(|cell| claims.adopt(cell, claim));
        if reads_only {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS && !local.snapshot.reads_only {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return Ok(());
        }
        let stamp = self.snapshots.commits.stamp(&local.snapshot.claims);
        Self::check(cx, local, stamp)?;
        let claims = &mut local.snapshot.claims;
        claims.copy(cx, &self.snapshots.collector, false, u64::MAX)?;
        claims.install_all(cx, stamp, 0);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.snapshot.claims.abort(reason);
    }

    fn rest(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        self.snapshots.rest(cx, &mut local.snapshot);
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
