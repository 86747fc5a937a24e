//! STOv2's MVCC: optimistic and multi-version, with updates that are applied at commit, also when they come late.
//!
//! **Idea.** As in [`crate::cicada`], transactions have a timestamp from the beginning, find the versions of their time, and claim, validate and
//! install at the commit; timestamps come from one counter. An update that is not read (a *commit-time update*) is a version as well, a
//! *delta*, of which it is only known what it adds. It can be put between others: who has read neither what was before it nor what came after
//! does not see the difference.
//!
//! **Paper.** Y. Huang, W. Qian, E. Kohler, B. Liskov, L. Shrira: "Opportunities for optimism in contended main-memory multicore
//! transactions", VLDB 2020, sections 4 and 5 (MSTO). Commit-time updates are `cu=on`, timestamp splitting is `ts=on`, as with every protocol.
//!
//! **Promises** serializability, in the order of timestamps. A running transaction sees the state at its time, but for what older ones have still
//! to commit.
//!
//! **Metadata.** Six words a cell: [`crate::versions`]. The fifth says since when all versions are updates that commute (`Run`).
//!
//! **Late updates.** A transaction of time `t` finds a version that is younger. If the updates commute, nobody has read the cell at a later time than
//! `t`, and nobody has rewritten it since, then all that came later were updates as well, and the sum is the same. So the update is put into
//! the newest version, whose timestamp is raised by one (timestamps of transactions are [`LATE`] apart), so that who has read it
//! will notice. The older versions end at `t`: of the times from `t` to the newest version there is none any more, and who should need one
//! aborts (`version_collected`) and begins anew.
//!
//! **Commit point.** The last claim. What was read is validated before cells are claimed for updates that commute: it is marked as read, and so nobody
//! can make it wrong any more.
//!
//! **Waits** are of younger transactions for older ones that have claimed a cell. Who claims cells for updates that commute has all its other
//! claims, and nothing left to validate: it waits for those that have done the same, and for nobody else, and claims in one order: rows of
//! small tables, which many want, last. So there is no cycle of waits.
//!
//! **Phantoms.** A commit leaves its time at the leaves that it depends on, and checks that they have the same keys still; an insert that is older
//! aborts. (The authors' tables compare the versions of leaves only, which lets an insert of an older transaction through.)
//!
//! **Snapshots** (`versions.snapshots=on`; the authors' read timestamp) for transactions that say beforehand that they will only read, as in
//! [`crate::cicada`].
//!
//! **Late writes** of whole cells are left out with `versions.nwr=on`, as in [`crate::cicada`].
//!
//! **Departures from the paper.** A version that is more than an update is written after all others of its cell. The authors keep deltas in the chain,
//! and compute a row when one is read, for which they mark all versions on the way; under long chains that costs more than it brings (their
//! table of section 7: 0.62 of the throughput without). Here only updates that commute may come late, and the newest version is complete always.

use std::cmp::Reverse;
use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::flags::{ABSENT, UNLINKED};
use crate::method::timestamp::{OrderedTimestampOptions, Stamper, Timestamps};
use crate::optimistic::WAITS_MAX;
use crate::versions::collect::{CollectOptions, Collector};
use crate::versions::{self, Optimistic, OptimisticOptions, Run, View, read_time, stamp_of};

options! {
    /// Options of STOv2's MVCC.
    pub struct MvccOptions {
        /// Let updates that commute, and are not read, come before versions that are there already.
        "mvcc.late" late: bool = true, in ();
    }
}

/// The timestamps of transactions are so far apart; a version takes fewer late updates than this.
pub const LATE: u64 = 1 << 8;
/// In a claim: it is for updates that commute.
const COMMUTING: u64 = 1;

/// The protocol.
#[derive(Debug)]
pub struct Mvcc<M: Machine, F = Sound> {
    options: MvccOptions,
    shared: OptimisticOptions,
    timestamps: Arc<Timestamps<M>>,
    collector: Collector<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct MvccLocal<M: Machine> {
    stamps: Stamper<M>,
    txn: Optimistic<M>,
    /// The cells of which it has read nothing, and that it writes by updates that commute; and of tables of how many rows.
    late: Vec<(usize, Cell<M>)>,
}

impl<M: Machine, F: Faults> Mvcc<M, F> {
    /// The numbers of those cells of a write that may be written late, and of the others.
    #[inline(always)]
    fn divide(&self, write: &Write<M>) -> (Groups, Groups) {
        let all = write.cell_numbers();
        let commuting = match write.kind {
            WriteKind::Update if F::REORDER_ANY => write.table().cell_numbers(write.merged()),
            WriteKind::Update if self.options.late => write.commuting(),
            _ => Groups::NONE,
        };
        (commuting, all.without(commuting))
    }

    /// Claims a cell for updates that commute.
    #[inline(always)]
    fn claim_late(txn: &mut Optimistic<M>, cell: Cell<M>) -> Result<(), Abort> {
        let word = txn.claims.claim(cell, txn.own | COMMUTING, WAITS_MAX, |other| other & COMMUTING != 0)?;
        if word & (UNLINKED | ABSENT) != 0 {
            return Err(Abort::new(AbortReason::RecordGone));
        }
        // SeqCst: after the claim; see `mark_read`.
        let was_read = read_time(cell).load(Ordering::SeqCst) > txn.own && !F::OVERTAKE_READS;
        let is_late = stamp_of(word) > txn.own;
        let is_full = (stamp_of(word) + 1).is_multiple_of(LATE);
        if was_read || is_late && (is_full || !Run::Commuting.goes_on_since(cell, txn.own)) {
            return Err(Abort::new(AbortReason::WriteLocked));
        }
        Ok(())
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Mvcc<M, F> {
    const INFO: Info = Info {
        name: "mvcc",
        summary: "optimistic and multi-version: timestamps of one counter; updates that commute may come late",
        paper: "Huang et al.: Opportunities for optimism in contended main-memory multicore transactions, VLDB 2020",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> =
        Some("versions.snapshots=on, mvcc.late=off, versions.nwr=off, versions.collect=rapid or epoch");
    type Options = ((MvccOptions, OptimisticOptions), (OrderedTimestampOptions, CollectOptions));

    fn options_with_snapshots() -> Self::Options {
        let shared = OptimisticOptions { snapshots: true, ..OptimisticOptions::default() };
        // What comes late leaves no version of the time between.
        ((MvccOptions { late: false }, shared), <(OrderedTimestampOptions, CollectOptions)>::default())
    }

    fn new(((options, shared), (timestamps, collect)): Self::Options) -> Self {
        let timestamps = Timestamps::new(timestamps.into(), 0);
        let collector = Collector::new(collect, 0, shared.snapshots);
        Mvcc { options, shared, timestamps, collector, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Mvcc<M, F> {
    type Local = MvccLocal<M>;

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

    fn reorders_updates(&self) -> bool {
        self.options.late
    }

    fn wants_declarations(&self) -> bool {
        self.shared.snapshots
    }

    fn reads_snapshots(&self) -> bool {
        self.shared.snapshots && !self.shared.nwr && !self.options.late && self.collector.keeps_all()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::Local) -> bool {
        local.txn.sees_own_commits()
    }

    fn local(&self, worker: usize) -> Self::Local {
        let txn = Optimistic::new(self.shared.clone(), self.collector.of_worker(worker));
        let stamps = self.timestamps.of_worker(worker);
        MvccLocal { stamps, txn, late: Vec::with_capacity(16) }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        let MvccLocal { stamps, txn, .. } = local;
        if txn.wants_snapshot(cx) {
            txn.begin_snapshot(cx, &self.collector, || stamps.now() * LATE);
            return Ok(());
        }
        // Whoever takes a timestamp takes a later one than the counter says now.
        self.collector.begin(cx, &mut txn.claims.replaced, || stamps.now() * LATE);
        txn.begin(&self.collector, || stamps.stamp() * LATE);
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
        let view = View::at::<F>(local.txn.own);
        // A late update ends what is older.
        local.txn.read::<F>(cx, at, columns, view, self.options.late)
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
            mode != Mode::Merge && (stamp_of(word) > own || read > own)
        };
        let read = |txn: &mut Optimistic<M>, cx: &mut _, columns: Projection<'_>| {
            txn.read::<F>(cx, at, columns, View::at::<F>(own), self.options.late)
        };
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
        let MvccLocal { txn, late, .. } = local;
        if cx.writes.is_empty() {
            return txn.validate::<F>(cx);
        }
        let own = txn.own;
        late.clear();
        for (position, write) in cx.writes.entries().iter().enumerate() {
            let (commuting, rewritten) = self.divide(write);
            let cells = |numbers| write.table().cells(write.record, numbers);
            txn.claim::<F>(write, position, rewritten, |other| other < own)?;
            for (number, cell) in commuting.into_iter().zip(cells(commuting)) {
                if txn.has_read(cell) {
                    // It would have to be in time anyway.
                    txn.claim::<F>(write, position, Groups::of(number as u32), |other| other < own)?;
                } else {
                    late.push((write.table().expected_rows(), cell));
                }
            }
        }
        txn.validate::<F>(cx)?;
        // What many want last: it is held while the others are waited for. Fewer rows are wanted by more.
        late.sort_unstable_by_key(|&(rows, cell)| (Reverse(rows), cell.address()));
        for &(_, cell) in &*late {
            Self::claim_late(txn, cell)?;
        }
        txn.claims.copy(cx, &self.collector, false, own)?;
        txn.install(cx, self.options.late.then_some(|write: &_| self.divide(write).0));
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.txn.abort(reason);
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
