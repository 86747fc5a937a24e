//! Multi-version timestamp ordering: who comes too late to read the newest version reads an older one.
//!
//! **Idea.** As in timestamp ordering, transactions take effect in the order in which they began; but a write leaves the old version in
//! place, and a read finds the one of its own time. So reads are never too late. A write is, if a younger transaction has read what it
//! overwrites, or has overwritten it.
//!
//! **Papers.** D. P. Reed: "Naming and synchronization in a decentralized computer system", PhD thesis, MIT 1978; P. A. Bernstein, N. Goodman:
//! "Multiversion concurrency control: theory and algorithms", ACM TODS 1983; as measured in X. Yu et al.: "Staring into the abyss", VLDB
//! 2014 (MVCC).
//!
//! **Promises** serializability, in the order of timestamps; and a running transaction sees one state only.
//!
//! **Metadata.** Six words a cell: [`crate::versions`].
//!
//! **Commit point.** The first install. Nothing is validated: what is claimed can't fail any more.
//!
//! **Waits** are of younger transactions for older ones that have claimed a cell, so there is no cycle of waits.
//!
//! **Phantoms.** A leaf has the timestamp of its youngest reader, by a scan or a miss; an insert that is older aborts. A tombstone leaves the
//! index when all transactions have ended that ran in the epoch of the deletion: those that begin later have later timestamps.
//!
//! **Snapshots** (`versions.snapshots=on`) for transactions that say beforehand that they will only read: these see the state before the oldest
//! transaction that runs, leave no timestamp behind, wait for nobody, and never abort.
//!
//! **Departures from the paper.** A version is written after all others of its cell, not between two: as in DBx1000. No queue of writers.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::flags::{ABSENT, UNLINKED};
use crate::method::timestamp::{Stamper, TimestampOptions, Timestamps};
use crate::optimistic::WAITS_MAX;
use crate::versions::collect::{CollectOptions, Collector};
use crate::versions::{self, Claims, SnapshotOptions, View, mark_read, read_time, stamp_of};

/// The protocol.
#[derive(Debug)]
pub struct Mvto<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct MvtoLocal<M: Machine> {
    stamps: Stamper<M>,
    /// The epoch in which the last timestamp was taken.
    epoch: u64,
    /// The transaction's timestamp.
    own: u64,
    /// It only reads, and what it reads is the state at its timestamp for good.
    reads_snapshot: bool,
    claims: Claims<M>,
}

impl<M: Machine, F: Faults> Mvto<M, F> {
    #[inline(always)]
    fn mark(cell: Cell<M>, own: u64) {
        if !F::FORGET_READS {
            mark_read(cell, own);
        }
    }

    /// Claims a cell to write it at the transaction's time; its word.
    #[inline(always)]
    fn claim(claims: &mut Claims<M>, own: u64, cell: Cell<M>) -> Result<u64, Abort> {
        // SeqCst: the look that counts is after the claim; see `mark_read`.
        let late = || {
            stamp_of(cell.word().load(Ordering::Relaxed)) > own
                || read_time(cell).load(Ordering::SeqCst) > own && !F::OVERTAKE_READS
        };
        // Who is too late already does not wait for those before it, and lets those behind it go on.
        let word = claims.claim(cell, own, WAITS_MAX, |other| other < own && !late())?;
        if late() { Err(Abort::new(AbortReason::WriteLocked)) } else { Ok(word) }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Mvto<M, F> {
    const INFO: Info = Info {
        name: "mvto",
        summary: "multi-version timestamp ordering: a read finds the version of its own time",
        paper: "Bernstein, Goodman: Multiversion concurrency control: theory and algorithms, ACM TODS 1983",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("versions.snapshots=on, versions.collect=rapid or epoch");
    type Options = (TimestampOptions, (SnapshotOptions, CollectOptions));

    fn options_with_snapshots() -> Self::Options {
        (TimestampOptions::default(), (SnapshotOptions { snapshots: true }, CollectOptions::default()))
    }

    fn new((timestamps, (own, collect)): Self::Options) -> Self {
        let (timestamps, collector) = (Timestamps::new(timestamps, 0), Collector::new(collect, 0, own.snapshots));
        Mvto { timestamps, collector, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Mvto<M, F> {
    type Local = MvtoLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        versions::WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.timestamps = self.timestamps.resized(workers);
        self.collector = self.collector.resized(workers);
    }

    fn wants_declarations(&self) -> bool {
        self.collector.has_snapshots()
    }

    fn reads_snapshots(&self) -> bool {
        self.collector.has_snapshots() && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::Local) -> bool {
        local.reads_snapshot && local.claims.last <= local.own
    }

    fn local(&self, worker: usize) -> Self::Local {
        let claims = Claims::new(self.collector.of_worker(worker));
        MvtoLocal { stamps: self.timestamps.of_worker(worker), epoch: 0, own: 0, reads_snapshot: false, claims }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.reads_snapshot = self.collector.has_snapshots() && cx.declaration.is_read_only();
        if local.reads_snapshot {
            let MvtoLocal { stamps, claims, own, .. } = local;
            *own = self.collector.begin_snapshot(cx, &mut claims.replaced, claims.last, || stamps.now());
            self.collector.began(&claims.replaced, *own);
            return Ok(());
        }
        let epoch = cx.current_epoch();
        if epoch != local.epoch {
            // Timestamps of a batch that is old may be older than tombstones that are gone.
            local.stamps.drop_batch();
            local.epoch = epoch;
        }
        if let Some(low) = self.collector.begin(cx, &mut local.claims.replaced, || local.stamps.now()) {
            local.stamps.begin_at(low);
        }
        local.own = local.stamps.stamp();
        self.collector.began(&local.claims.replaced, local.own);
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
        let own = local.own;
        if local.reads_snapshot {
            return versions::read(cx, at, columns, View::at::<F>(own), |_| (), |_| false, |_| ());
        }
        let waits = |claim| claim < own && !F::IGNORE_PREWRITES;
        versions::read(cx, at, columns, View::at::<F>(own), |cell| Self::mark(cell, own), waits, |_| ())
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
        if local.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        if mode == Mode::Merge {
            // Relaxed: a first look; the commit claims the cells, and looks again.
            let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
            if !at.cells(groups).any(gone) {
                return Ok(Found::Row);
            }
            // A miss is read. Should there be a row at the transaction's time, having read it costs nothing but the read.
            return self.read(cx, local, at, Projection::columns(&[], groups));
        }
        let own = local.own;
        let claim = |claims: &mut Claims<M>, cell| Self::claim(claims, own, cell);
        local.claims.write(cx, at, groups, mode, claim, |(cell, _)| Self::mark(cell, own))
    }

    fn inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        let missed = local.claims.adopt_at(at, change, local.own);
        if local.reads_snapshot {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        if missed > local.own && !F::FORGET_GAPS {
            return Err(Abort::new(AbortReason::Phantom));
        }
        Ok(())
    }

    #[inline(always)]
    fn gap(&self, _: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        // What a snapshot lacks will not come: an insert is of a later time.
        if F::FORGET_GAPS || local.reads_snapshot { Ok(()) } else { versions::mark_leaf(leaf, version, local.own) }
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return Ok(());
        }
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing {
                // What was inserted and deleted again was absent: whoever inserts it next has to come later.
                write.cells().for_each(|cell| Self::mark(cell, local.own));
            }
            if write.merged().is_empty() {
                continue;
            }
            for cell in write.table().cells(write.record, write.merged()) {
                if Self::claim(&mut local.claims, local.own, cell)? & (ABSENT | UNLINKED) != 0 {
                    return Err(Abort::new(AbortReason::RecordGone));
                }
            }
        }
        local.claims.copy(cx, &self.collector, false, local.own)?;
        local.claims.install_all(cx, local.own, 0);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        // The rest of the batch is as old, and would come too late as well.
        local.stamps.drop_batch();
        local.claims.abort(reason);
    }

    fn rest(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        self.collector.rest(cx, &mut local.claims.replaced);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        versions::unlink::<M, F>(tombstone, self.collector.seen_by_all_snapshots())
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::optimistic::is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.collector.older_versions(record)
    }
}
