//! Cicada: optimistic multi-version concurrency control with timestamps of loosely synchronised
//! clocks.
//!
//! **How its structure differs from the paper.** The paper's record is a list of versions, from the
//! newest `wts` to the oldest; a pending version is a member of that list, and a free slot in the
//! record may hold one version inline. Here the newest version always stands in the record itself,
//! and only old versions are in a list. A pending version is a word of the cell, the *write
//! intent*, and its row is in the transaction's write set until the commit installs it. So a cell
//! has one pending version at a time; versions are written in the order of their timestamps (the
//! authors' default); the paper's search starts with one read of the record, and its promotion of
//! versions to the inline slot is not needed.
//!
//! | Cicada's term | here | file |
//! | --- | --- | --- |
//! | thread clock, `clock boost`, one-sided synchronisation | `Clock` | `method/clock.rs` |
//! | `tx.ts` | `ValidatingTxn::ts` | `multiversion/validation.rs` |
//! | version's `wts`, `rts` | `wts_of`, `rts_of` | `multiversion.rs` |
//! | pending version | write intent, with `ts` as its value | `multiversion/intents.rs` |
//! | committed version | the record's version, or a copy in a chain | `multiversion/chain.rs` |
//! | aborted version | none: an abort takes its intents away | `multiversion/intents.rs` |
//! | deleted version | tombstone: a version with the flag *absent* | `flags.rs` |
//! | version list, search for the visible version | `read_row`, `version_at` | `multiversion/read.rs`, `multiversion/chain.rs` |
//! | read set, write set | `ValidatingTxn::read_set`, the engine's `WriteSet` | `multiversion/validation.rs` |
//! | best-effort inlining | always inline | `multiversion.rs` |
//! | rapid garbage collection, `min_wts`, `min_rts` | `Collector`, its watermarks | `multiversion/collect.rs`, `multiversion/collect/watermarks.rs` |
//! | multi-version index | leaves with an `rts`, in a single-version index | `multiversion.rs` (`raise_leaf_rts`) |
//!
//! **Idea.** As in multi-version timestamp ordering, transactions take effect in the order of their
//! timestamps, and a read finds the version of its own time. But reads leave no trace until the
//! commit, and writes are buffered. A commit makes its versions pending, raises the `rts` of the
//! cells that it read, checks that each version that it read is still the one of its time, and
//! installs. Timestamps come from each worker's own clock, so that no counter is shared.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | take a timestamp from the thread clock | `begin`: `Clock::stamp` |
//! | read: find the visible version, wait for an older pending one | `read_version`: `ValidatingTxn::read` |
//! | write: abort early if it can't be written at `tx.ts` | `write`: `ValidatingTxn::write` |
//! | sort the write set by contention | `commit`, step 2: `sort_by_newest_wts` |
//! | check version consistency early | `commit`, step 1: `ValidatingTxn::check_reads` |
//! | install pending versions | `commit`, step 3: `ValidatingTxn::place_intents` |
//! | update the read timestamps | `commit`, step 4: the first half of `ValidatingTxn::validate` |
//! | check version consistency | `commit`, step 5: its second half |
//! | write phase: pending becomes committed | `commit`, step 6: `ValidatingTxn::install` |
//! | schedule garbage collection | `WriteIntents::install_all`: `RetiredVersions::push` |
//! | maintenance: quiescence, clock synchronisation | `begin`: `Collector::begin`, `Clock::stamp` |
//!
//! **Paper.** H. Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast multi-core in-memory
//! transactions", SIGMOD 2017; with the correction of T. Tanabe et al.: "An analysis of concurrency
//! control protocols for in-memory databases with CCBench", VLDB 2020, appendix: it is not enough
//! that the version that was read is still committed, it must be the one that a new search would
//! find.
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees the state
//! at its time, except for older transactions that have not committed yet.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`].
//!
//! **Commit point.** The end of the check (step 5).
//!
//! **Order of the steps.** Step 3 places an intent, and then loads the `rts`. Step 4 raises the
//! `rts`, and step 5 then looks for intents. The four accesses are SeqCst (`WriteIntents::place`,
//! `rts_under_intent`, `raise_rts`, `is_still_visible`). So of a writer and a younger reader one
//! finds the other, and aborts or waits. This is what the paper's fences between its steps are for.
//!
//! **Waits.** A younger transaction waits for an older one that has an intent on a cell. So waits
//! form no cycle.
//!
//! **Phantoms.** A commit raises the `rts` of the leaves that it depends on, and checks that they
//! still have the same keys. An insert by an older transaction aborts.
//!
//! **Snapshots** (`versions.snapshots=on`) are for transactions that declare themselves read-only.
//! They see the state before the oldest running transaction ([`crate::multiversion::collect`]),
//! leave no trace, wait for no transaction, and never abort.
//!
//! **Late writes** of whole cells are skipped with `versions.nwr=on` if no transaction will see
//! them: `multiversion/validation.rs`.
//!
//! **Departures from the paper**, besides the structure: snapshots are off by default, because a
//! transaction that reads one may miss the last commit of its own worker.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection, ProtocolInfo,
    RecordState, WriteMode, option_choices, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::Sound;
use crate::method::{Clock, Clocks};
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    MultiVersion, ReadView, ValidatingOptions, ValidatingTxn, ValidationFaults, VersionRules, has_earlier_intent,
    wts_of,
};

/// The reaction of a transaction to a cell with a pending version of an older transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingVersionPolicy {
    /// Wait for the outcome of the older transaction.
    Wait,
    /// Abort.
    Abort,
}

option_choices!(PendingVersionPolicy { Wait => "wait", Abort => "abort" });

options! {
    /// Cicada's options.
    pub struct CicadaOptions {
        /// The reaction of a transaction to a cell that an older one is going to write: wait for
        /// its outcome, or abort.
        "cicada.pending" pending: PendingVersionPolicy = PendingVersionPolicy::Wait, in ();
        /// Check at every access whether the transaction comes too late for its writes.
        "cicada.early_abort" early_abort: bool = true, in ();
        /// Make the versions of the most contended cells pending first (those written last), so
        /// that a conflict is met early. Not where the worker's last commits all succeeded.
        "cicada.sort" sort: bool = true, in ();
        /// Check the reads also before any version is made pending. Not where the worker's last
        /// commits all succeeded.
        "cicada.precheck" precheck: bool = true, in ();
        /// Keep no old versions: a transaction that comes too late to read the newest one aborts
        /// (Cicada-SV).
        "cicada.single_version" single_version: bool = false, in ();
        /// By how much the next timestamp is larger after an abort, in nanoseconds. Larger boosts
        /// would use up the clock's timestamps in days.
        "cicada.boost_ns" boost_ns: u64 = 1_000, in 0..=100_000;
        /// The time after which a worker looks at another's clock, in nanoseconds.
        "cicada.sync_ns" sync_ns: u64 = 100_000, in 1..=1_000_000_000;
        flatten validating: ValidatingOptions;
        flatten collect: CollectOptions;
    }
}

/// Commits in a row after which a worker neither sorts nor prechecks (Cicada, section 3.5).
const CALM_AFTER: u32 = 5;

/// Cicada.
pub type Cicada<M, F = Sound> = MultiVersion<CicadaRules<M, F>>;

/// Cicada's rules.
#[derive(Debug)]
pub struct CicadaRules<M: Machine, F = Sound> {
    options: CicadaOptions,
    clocks: Arc<Clocks<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct CicadaWorker<M: Machine> {
    clock: Clock<M>,
    txn: ValidatingTxn<M>,
    /// Commits since the last abort.
    commits_in_a_row: u32,
    /// The positions of the writes, each with the `wts` of its newest version, the latest first.
    order: Vec<(u64, usize)>,
}

impl<M: Machine, F: ValidationFaults> CicadaRules<M, F> {
    fn clocks(options: &CicadaOptions, workers: usize) -> Arc<Clocks<M>> {
        Clocks::new(workers, options.boost_ns, options.sync_ns)
    }

    /// Reads the versions of the transaction's time.
    #[inline(always)]
    fn read_version(
        &self,
        cx: &mut Context<M>,
        txn: &mut ValidatingTxn<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        let ts = txn.ts;
        if self.options.pending == PendingVersionPolicy::Abort
            && !txn.reads_snapshot
            && at.cells(columns.groups()).any(|cell| has_earlier_intent(cell, ts))
        {
            return Err(Abort::new(AbortReason::ReadLocked));
        }
        let view = ReadView::at::<F>(ts).of_newest_only(self.options.single_version);
        // Old versions need no validation: no version is written between two others.
        txn.read::<F>(cx, at, columns, view, false)
    }

    /// Makes the versions of the write at this position pending.
    #[inline(always)]
    fn place_intents(&self, cx: &Context<M>, txn: &mut ValidatingTxn<M>, position: usize) -> Result<(), Abort> {
        let write = &cx.writes.entries()[position];
        let (ts, waits) = (txn.ts, self.options.pending == PendingVersionPolicy::Wait);
        txn.place_intents::<F>(cx, position, write.cell_numbers(), |other| other < ts && waits)
    }

    /// Sorts the writes by the `wts` of their newest versions, the latest first: those cells are
    /// the most contended. Any order of the intents is free of deadlocks, because a transaction
    /// waits for older ones only. So a wrong guess costs time and nothing else.
    #[inline(always)]
    fn sort_by_newest_wts(cx: &Context<M>, order: &mut Vec<(u64, usize)>) {
        order.clear();
        for (position, write) in cx.writes.entries().iter().enumerate() {
            // Relaxed: a guess at the contention.
            order.push((wts_of(write.record.first_cell().word().load(Ordering::Relaxed)), position));
        }
        order.sort_unstable_by(|a, b| b.cmp(a));
    }
}

impl<M: Machine, F: ValidationFaults> VersionRules<M> for CicadaRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "cicada",
        summary: "optimistic and multi-version: timestamps of loosely synchronised clocks, validation at commit",
        paper: "Lim, Kaminsky, Andersen: Cicada: dependably fast multi-core in-memory transactions, SIGMOD 2017",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> =
        Some("versions.snapshots=on, versions.nwr=off, cicada.single_version=off, versions.collect=rapid or epoch");
    type Options = CicadaOptions;
    type WorkerState = CicadaWorker<M>;

    fn options_with_snapshots() -> Self::Options {
        let validating = ValidatingOptions { snapshots: true, ..ValidatingOptions::default() };
        CicadaOptions { validating, ..CicadaOptions::default() }
    }

    fn new(mut options: CicadaOptions) -> Self {
        if options.single_version {
            // Both need old versions.
            options.validating = ValidatingOptions { snapshots: false, nwr: false };
        }
        let collector = Collector::new(options.collect.clone(), 0, options.validating.snapshots);
        CicadaRules { clocks: Self::clocks(&options, 0), collector, options, faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.clocks = Self::clocks(&self.options, workers);
    }

    fn wants_declarations(&self) -> bool {
        self.options.validating.snapshots
    }

    fn reads_snapshots(&self) -> bool {
        self.options.validating.snapshots && !self.options.validating.nwr && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        local.txn.sees_own_commits()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        CicadaWorker {
            clock: self.clocks.of_worker(worker),
            txn: ValidatingTxn::new(self.options.validating.clone(), self.collector.of_worker(worker)),
            commits_in_a_row: 0,
            order: Vec::with_capacity(16),
        }
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
        let CicadaWorker { clock, txn, .. } = local;
        if txn.wants_snapshot(cx) {
            let epoch = cx.began_in();
            // The clock moves on when it is asked for a timestamp.
            txn.begin_snapshot(cx, &self.collector, || clock.stamp(epoch));
            return Ok(());
        }
        // The watermark is another worker's clock, and this one may be behind. Raised above it, the
        // clock gives no timestamp for which versions have been reused.
        if let Some(watermark) = self.collector.begin(cx, &mut txn.intents.retired, || clock.now()) {
            clock.begin_at(watermark);
        }
        txn.begin(&self.collector, || clock.stamp(cx.began_in()));
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
        self.read_version(cx, &mut local.txn, at, columns)
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
        let read = |txn: &mut _, cx: &mut _, columns: Projection<'_>| self.read_version(cx, txn, at, columns);
        local.txn.write(cx, at, groups, mode, self.options.early_abort, read)
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
        let CicadaWorker { txn, order, commits_in_a_row, .. } = local;
        let is_calm = *commits_in_a_row >= CALM_AFTER;
        // Step 1: the early check. It raises no `rts`, so it proves nothing; step 5 looks again.
        if self.options.precheck && !is_calm && !cx.writes.is_empty() {
            txn.check_reads::<F>(cx)?;
        }
        // Steps 2 and 3: pending versions, those of the most contended cells first.
        if self.options.sort && !is_calm {
            Self::sort_by_newest_wts(cx, order);
            for &(_, position) in &*order {
                self.place_intents(cx, txn, position)?;
            }
        } else {
            for position in 0..cx.writes.len() {
                self.place_intents(cx, txn, position)?;
            }
        }
        // The copies of what will be overwritten, now: they may fail, and step 5 is the commit
        // point.
        if !self.options.single_version || cx.writes.entries().iter().any(|write| write.table().records_history()) {
            txn.intents.copy(cx, &self.collector, false, txn.ts)?;
        }
        // Steps 4 and 5: read timestamps, then the check.
        txn.validate::<F>(cx)?;
        // Step 6: the write phase.
        if !cx.writes.is_empty() {
            txn.install(cx, None::<fn(&Write<M>) -> Groups>);
        }
        *commits_in_a_row = commits_in_a_row.saturating_add(1);
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        local.txn.abort(reason);
        if reason.is_conflict() {
            local.clock.boost();
            local.commits_in_a_row = 0;
        }
    }
}
