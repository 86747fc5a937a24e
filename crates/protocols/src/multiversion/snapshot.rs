//! Transactions that see the state at their begin: snapshot isolation, and the protocols that make
//! it serializable.
//!
//! **One counter orders the commits.** A transaction that begins when the counter says `begin_ts`
//! sees the commits up to `begin_ts`, also those that are still installing. For that a committing
//! writer changes its write intents to "about to draw a timestamp" *before* it adds to the counter.
//! A reader loads the counter first, and intents later. The addition is a Release, and the load an
//! Acquire. So a reader that sees no such intent had loaded the counter before the writer added to
//! it: the writer's timestamp is later than the reader's, and the reader must not see its writes. A
//! reader that does see the intent waits until the intent says the timestamp, or the version is
//! installed.
//!
//! **What goes wrong with the two steps swapped.** A writer of x and y draws timestamp 6. A reader
//! begins at 6, finds no intent on x that says so yet, and reads the old x. The writer changes its
//! intents and installs. The reader finds the new y, of time 6: it has seen half of a commit.
//!
//! `ermia` needs a second pair. There a reader raises an `rts` before it looks at the intents, and
//! a writer loads that `rts` after it has changed them. Between the two the writer passes a SeqCst
//! fence.
//!
//! **Progress.** An intent is "about to draw a timestamp" between two stores of its owner, and the
//! owner waits for no transaction there. So that wait is short whatever becomes of the commit.

use contend_engine::{Abort, Context, Located, Projection, RecordState, option_choices, options};
use contend_machine::{Activity, Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use crate::faults;

use super::collect::{CollectOptions, Collector};
use super::{
    INTENT_TAKING_TIMESTAMP, INTENT_WITHOUT_TIMESTAMP, ReadVersion, ReadView, VersionFaults, WriteIntents, read_row,
};

options! {
    /// Whether there are snapshots, for protocols that have no other options.
    pub struct SnapshotOptions {
        /// Let transactions that declare themselves read-only see the state before the oldest
        /// running transaction: they never abort. Old versions are then kept a little longer;
        /// versions.collect=epoch is as rapid, and none is overwritten (versions.overwrite).
        "versions.snapshots" snapshots: bool = false, in ();
    }
}

/// The transactions that add to the counter that orders the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Commits that write. All other transactions only load it.
    Writers,
    /// Every commit.
    Commits,
    /// Every begin and every commit.
    Begins,
}

option_choices!(Counted { Writers => "writers", Commits => "commits", Begins => "begins" });

options! {
    /// Options of the counter that orders the commits.
    pub struct CounterOptions {
        /// The transactions that add to the counter which orders commits: commits that write, every
        /// commit (ERMIA in CCBench), or every begin and every commit (SI in CCBench with
        /// `CCTR_TW`). With the last two, transactions that only read pay the price that they pay
        /// there: the counter's line, once or twice.
        "snapshot.counter" counter: Counted = Counted::Writers, in ();
    }
}

/// The counter that orders the commits.
#[derive(Debug)]
pub(crate) struct CommitCounter<M: Machine> {
    /// The timestamp of the latest commit, or a number that a begin or a reader has drawn since.
    /// Every begin loads it, and every commit of a writer adds to it: it has a line of its own, so
    /// that nothing else moves with it.
    latest: CachePadded<M::U64>,
    counted: Counted,
}

impl<M: Machine> CommitCounter<M> {
    fn new(counted: Counted) -> Self {
        // From this value on, `INTENT_TAKING_TIMESTAMP` is no commit's timestamp, and not later
        // than any reader's. So one comparison says for which intents a reader waits.
        CommitCounter { latest: CachePadded::new(M::U64::new(INTENT_TAKING_TIMESTAMP)), counted }
    }

    /// Returns the timestamp of the latest commit.
    #[inline(always)]
    pub(crate) fn latest(&self) -> u64 {
        // Acquire: before every later load of an intent; pairs with the addition of
        // `take_commit_ts`, where the intents change before the counter does.
        self.latest.load(Ordering::Acquire)
    }

    /// Draws the timestamp of a commit. From then on its intents say this timestamp.
    #[inline(always)]
    pub(crate) fn take_commit_ts(&self, intents: &WriteIntents<M>) -> u64 {
        // In this order: the module's comment has the interleaving that it excludes.
        intents.announce(INTENT_TAKING_TIMESTAMP);
        let commit_ts = self.next();
        intents.announce(commit_ts);
        commit_ts
    }

    /// Returns the timestamp at which a transaction begins.
    #[inline(always)]
    fn begin(&self) -> u64 {
        if self.counted == Counted::Begins { self.next() } else { self.latest() }
    }

    /// Draws the timestamp of the commit of a transaction that has written nothing; `None` if the
    /// options give it none of its own.
    #[inline(always)]
    pub(crate) fn take_reader_ts(&self) -> Option<u64> {
        (self.counted != Counted::Writers).then(|| self.next())
    }

    #[inline(always)]
    fn next(&self) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        // Release: after the stores of `announce`; pairs with `latest`. And Acquire: a commit that
        // validates sees the intents of those before it. If a begin draws a number of its own, it
        // is no commit's, and pairs with `announce` as `latest` does.
        let ts = self.latest.fetch_add(1, Ordering::AcqRel) + 1;
        M::enter(phase);
        ts
    }
}

/// The part that the workers share.
#[derive(Debug)]
pub(crate) struct SnapshotState<M: Machine> {
    pub(crate) counter: CommitCounter<M>,
    pub(crate) collector: Collector<M>,
}

/// A worker's transaction that sees the state at its begin.
#[derive(Debug)]
pub(crate) struct SnapshotTxn<M: Machine> {
    /// It sees the commits up to this one.
    pub(crate) begin_ts: u64,
    /// Whether it has declared that it only reads, and must not abort.
    pub(crate) reads_only: bool,
    /// The value of its write intents before the commit. No two workers have the same, and none has
    /// that of a thread that works on a chain, for which every writer waits.
    pub(crate) intent: u64,
    pub(crate) intents: WriteIntents<M>,
}

impl<M: Machine> SnapshotTxn<M> {
    /// Reads a row as it is in the snapshot. `on_read` gets each version that was read.
    #[inline(always)]
    pub(crate) fn read<F: SnapshotFaults>(
        &self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        on_read: impl FnMut(ReadVersion<M>),
    ) -> Result<RecordState, Abort> {
        // It waits for an intent that says "about to draw a timestamp", or a timestamp up to
        // `begin_ts`. Such a writer has decided to commit, or is about to decide, and waits at most
        // for writers with earlier timestamps. So also a wait without a limit ends.
        let view = ReadView::of_commits_to::<F>(self.begin_ts).waiting_without_limit(self.reads_only);
        read_row(cx, at, columns, view, on_read)
    }

    /// Returns whether the snapshot has every commit of its worker.
    pub(crate) fn sees_own_commits(&self) -> bool {
        self.intents.last_commit_ts <= self.begin_ts
    }
}

impl<M: Machine> SnapshotState<M> {
    pub(crate) fn new(options: CollectOptions, counted: Counted) -> Self {
        SnapshotState { counter: CommitCounter::new(counted), collector: Collector::new(options, 0, false) }
    }

    pub(crate) fn of_worker(&self, worker: usize) -> SnapshotTxn<M> {
        let intents = WriteIntents::new(self.collector.of_worker(worker));
        let intent = INTENT_WITHOUT_TIMESTAMP | (worker as u64 + 1);
        SnapshotTxn { begin_ts: 0, reads_only: false, intent, intents }
    }

    /// Begins a transaction.
    #[inline(always)]
    pub(crate) fn begin(&self, cx: &mut Context<M>, txn: &mut SnapshotTxn<M>) {
        txn.reads_only = cx.declaration.is_read_only();
        // The watermark that the collector returns is not needed. It is a value of the counter that
        // was loaded before, and acquired here. So `begin_ts` is that value or a larger one, and
        // the versions that this transaction may read are kept.
        self.collector.begin(cx, &mut txn.intents.retired, || self.counter.latest());
        txn.begin_ts = self.counter.begin();
        self.collector.publish_ts(&txn.intents.retired, txn.begin_ts);
    }
}

faults! {
    /// The deliberate faults of transactions that see the state at their begin.
    pub trait SnapshotFaults: VersionFaults {
        /// A read looks whether a commit is under way when it has checked the row, not before.
        look_too_late,
    }
    pub const SNAPSHOT_FAULTS;
}
