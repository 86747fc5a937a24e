//! Cicada: optimistic multi-version concurrency control with timestamps of loosely synchronised clocks.
//!
//! **Idea.** As in multi-version timestamp ordering, transactions take effect in the order of their timestamps, and a read finds the version of
//! its own time; but reads leave nothing behind until the commit, and writes are buffered. A commit claims what it writes (a *pending*
//! version), marks what it read as read at its time, checks that what it read is what is there at its time still, and installs. Timestamps come
//! from each worker's own clock, so that no counter is shared.
//!
//! **Paper.** H. Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast multi-core in-memory transactions", SIGMOD 2017; with the
//! correction of T. Tanabe et al.: "An analysis of concurrency control protocols for in-memory databases with CCBench", VLDB 2020, appendix:
//! it is not enough that the version that was read is committed still, it must be the one that a new search would find.
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees the state at its time, but for what older ones have still
//! to commit.
//!
//! **Metadata.** Six words a cell: [`crate::versions`].
//!
//! **Commit point.** The end of the check.
//!
//! **Waits** are of younger transactions for older ones that have claimed a cell, so there is no cycle of waits.
//!
//! **Phantoms.** A commit leaves its time at the leaves that it depends on, and checks that they have the same keys still; an insert that is older
//! aborts.
//!
//! **Snapshots** (`versions.snapshots=on`) for transactions that say beforehand that they will only read: these see the state before the oldest
//! transaction that runs ([`crate::versions::collect`]), leave nothing behind, wait for nobody, and never abort.
//!
//! **Late writes** of whole cells are left out with `versions.nwr=on` where a later one has replaced all of the cell, and nobody has read it between.
//!
//! **Departures from the paper.** The newest version is always inline, in the record, and a version is written after all others of its cell (the
//! authors' default). Snapshots are off by default: who reads one may miss what its own worker has committed last. Reads that would bring a
//! version inline are not needed.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, option_choices, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::method::{Clock, Clocks};
use crate::versions::collect::{CollectOptions, Collector};
use crate::versions::{self, Optimistic, OptimisticOptions, View, read_time, stamp_of};

/// What a transaction does about a cell that an older one has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Wait for what becomes of it.
    Wait,
    /// Abort.
    Abort,
}

option_choices!(Pending { Wait => "wait", Abort => "abort" });

options! {
    /// Cicada's options.
    pub struct CicadaOptions {
        /// What a transaction does about a cell that an older one is going to write: wait for what becomes of it, or abort.
        "cicada.pending" pending: Pending = Pending::Wait, in ();
        /// Look at every access whether the transaction comes too late to write what it is going to write.
        "cicada.early_abort" early_abort: bool = true, in ();
        /// Claim first what was written last, so that a conflict is met with little done. Not where the worker's last commits all succeeded.
        "cicada.sort" sort: bool = true, in ();
        /// Check what was read before anything is claimed as well. Not where the worker's last commits all succeeded.
        "cicada.precheck" precheck: bool = true, in ();
        /// Keep no old versions: who comes too late to read the newest one aborts (Cicada-SV).
        "cicada.single_version" single_version: bool = false, in ();
        /// By how much the next timestamp is larger after an abort, in nanoseconds.
        "cicada.boost_ns" boost_ns: u64 = 1_000, in 0..=1_000_000_000;
        /// How often a worker looks at another's clock, in nanoseconds.
        "cicada.sync_ns" sync_ns: u64 = 100_000, in 1..=1_000_000_000;
    }
}

/// Commits in a row after which a worker sorts and prechecks no more (Cicada, section 3.5).
const CALM_AFTER: u32 = 5;

/// The protocol.
#[derive(Debug)]
pub struct Cicada<M: Machine, F = Sound> {
    options: CicadaOptions,
    shared: OptimisticOptions,
    clocks: Arc<Clocks<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct CicadaLocal<M: Machine> {
    clock: Clock<M>,
    txn: Optimistic<M>,
    /// Commits since the last abort.
    calm: u32,
    /// The writes, by their newest versions' timestamps, the last first.
    order: Vec<(u64, usize)>,
}

impl<M: Machine, F: Faults> Cicada<M, F> {
    fn clocks(options: &CicadaOptions, workers: usize) -> Arc<Clocks<M>> {
        Clocks::new(workers, options.boost_ns, options.sync_ns)
    }

    #[inline(always)]
    fn read_row(
        &self,
        cx: &mut Context<M>,
        txn: &mut Optimistic<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        let own = txn.own;
        if self.options.pending == Pending::Abort
            && !txn.reads_snapshot
            && at.cells(columns.groups()).any(|cell| versions::is_claimed(cell, own))
        {
            return Err(Abort::new(AbortReason::ReadLocked));
        }
        let view = View { newest_only: self.options.single_version, ..View::at::<F>(own) };
        // What is older does not change.
        txn.read::<F>(cx, at, columns, view, false)
    }

    /// Claims the cells of the write at this position.
    #[inline(always)]
    fn claim(&self, cx: &Context<M>, txn: &mut Optimistic<M>, position: usize) -> Result<(), Abort> {
        let write = &cx.writes.entries()[position];
        let (own, waits) = (txn.own, self.options.pending == Pending::Wait);
        txn.claim::<F>(write, position, write.cell_numbers(), |other| other < own && waits)
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Cicada<M, F> {
    const INFO: Info = Info {
        name: "cicada",
        summary: "optimistic and multi-version: timestamps of loosely synchronised clocks, validation at commit",
        paper: "Lim, Kaminsky, Andersen: Cicada: dependably fast multi-core in-memory transactions, SIGMOD 2017",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> =
        Some("versions.snapshots=on, versions.nwr=off, cicada.single_version=off, versions.collect=rapid or epoch");
    type Options = (CicadaOptions, (OptimisticOptions, CollectOptions));

    fn options_with_snapshots() -> Self::Options {
        let shared = OptimisticOptions { snapshots: true, ..OptimisticOptions::default() };
        (CicadaOptions::default(), (shared, CollectOptions::default()))
    }

    fn new((options, (shared, collect)): Self::Options) -> Self {
        // Both need older versions.
        let shared = if options.single_version { OptimisticOptions { snapshots: false, nwr: false } } else { shared };
        let (clocks, collector) = (Self::clocks(&options, 0), Collector::new(collect, 0, shared.snapshots));
        Cicada { clocks, collector, options, shared, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Cicada<M, F> {
    type Local = CicadaLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        versions::WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.clocks = Self::clocks(&self.options, workers);
        self.collector = self.collector.resized(workers);
    }

    fn wants_declarations(&self) -> bool {
        self.shared.snapshots
    }

    fn reads_snapshots(&self) -> bool {
        self.shared.snapshots && !self.shared.nwr && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::Local) -> bool {
        local.txn.sees_own_commits()
    }

    fn local(&self, worker: usize) -> Self::Local {
        CicadaLocal {
            clock: self.clocks.of_worker(worker),
            txn: Optimistic::new(self.shared.clone(), self.collector.of_worker(worker)),

            calm: 0,
            order: Vec::with_capacity(16),
        }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        let CicadaLocal { clock, txn, .. } = local;
        if txn.wants_snapshot(cx) {
            let epoch = cx.began_in();
            // The clock moves on when it is asked for a timestamp.
            txn.begin_snapshot(cx, &self.collector, || clock.stamp(epoch));
            return Ok(());
        }
        if let Some(low) = self.collector.begin(cx, &mut txn.claims.replaced, || clock.now()) {
            clock.begin_at(low);
        }
        txn.begin(&self.collector, || clock.stamp(cx.began_in()));
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
        self.read_row(cx, &mut local.txn, at, columns)
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
        let own = local.txn.own;
        let too_late = |cell: Cell<M>| {
            // Relaxed, both: a first look; the claim looks again.
            let (word, read) = (cell.word().load(Ordering::Relaxed), read_time(cell).load(Ordering::Relaxed));
            self.options.early_abort && (stamp_of(word) > own || read > own)
        };
        let read = |txn: &mut _, cx: &mut _, columns: Projection<'_>| self.read_row(cx, txn, at, columns);
        local.txn.write(cx, at, groups, mode, read, too_late)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        local.txn.inserted::<F>(cx, at, change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        local.txn.gap::<F>(cx, leaf, version);
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        let CicadaLocal { txn, order, calm, .. } = local;
        let is_calm = *calm >= CALM_AFTER;
        if self.options.precheck && !is_calm && !cx.writes.is_empty() {
            txn.check::<F>()?;
        }
        // The pending versions.
        if self.options.sort && !is_calm {
            order.clear();
            for (position, write) in cx.writes.entries().iter().enumerate() {
                // Relaxed: a guess at what is contended.
                order.push((stamp_of(write.record.first_cell().word().load(Ordering::Relaxed)), position));
            }
            order.sort_unstable_by(|a, b| b.cmp(a));
            for &(_, position) in &*order {
                self.claim(cx, txn, position)?;
            }
        } else {
            for position in 0..cx.writes.len() {
                self.claim(cx, txn, position)?;
            }
        }
        if !self.options.single_version || cx.writes.entries().iter().any(|write| write.table().records_history()) {
            txn.claims.copy(cx, &self.collector, false, txn.own)?;
        }
        txn.validate::<F>(cx)?;
        if !cx.writes.is_empty() {
            txn.install(cx, None::<fn(&Write<M>) -> Groups>);
        }
        *calm = calm.saturating_add(1);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.txn.abort(reason);
        if reason.is_conflict() {
            local.clock.boost();
            local.calm = 0;
        }
    }

    fn rest(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        self.collector.rest(cx, &mut local.txn.claims.replaced);
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
