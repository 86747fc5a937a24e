//! What protocols have in common whose transactions see the state at their begin.

use contend_engine::{Abort, At, Context, Found, Projection, Record, option_choices, options};
use contend_machine::{Activity, Atomic64, Machine, Ordering};
use crossbeam_utils::CachePadded;

use crate::fault::Faults;

use super::collect::{CollectOptions, Collector};
use super::{Claims, DECIDING, UNSTAMPED, Version, View, read};

options! {
    /// Whether there are snapshots, for protocols that have no other options.
    pub struct SnapshotOptions {
        /// Let transactions that say beforehand that they will only read see the state before the oldest transaction that runs: these never
        /// abort. Old versions are kept a little longer then; versions.collect=epoch is as rapid, and none is overwritten (versions.overwrite).
        "versions.snapshots" snapshots: bool = false, in ();
    }
}

/// Which transactions add to the counter that orders the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Commits that write: all others only look at it.
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
        /// What adds to the counter that orders commits: commits that write, every commit (ERMIA in CCBench), or every begin and every commit (SI in
        /// CCBench with `CCTR_TW`). The last two cost transactions that only read what they cost there: the counter's line, once or twice.
        "snapshot.counter" counter: Counted = Counted::Writers, in ();
    }
}

/// The one counter that orders the commits where transactions see the state at their begin.
///
/// A transaction that began at time `b` sees the commits up to `b`, also those that are still installing: a committing writer says so in its
/// claims *before* it takes its timestamp, and a reader that meets such a claim waits. Whose claim does not say so yet takes its timestamp
/// after the reader took its own, and is not seen.
#[derive(Debug)]
pub(crate) struct Commits<M: Machine> {
    /// The timestamp of the last.
    last: CachePadded<M::U64>,
    counted: Counted,
}

impl<M: Machine> Commits<M> {
    fn new(counted: Counted) -> Self {
        Commits { last: CachePadded::new(M::U64::new(DECIDING)), counted }
    }

    /// The timestamp of the last commit.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        // SeqCst: comes before every look at a claim that follows; pairs with `stamp`, where it comes after what the claims say.
        self.last.load(Ordering::SeqCst)
    }

    /// Takes the timestamp of a commit, which the claims tell from now on.
    #[inline(always)]
    pub(crate) fn stamp(&self, claims: &Claims<M>) -> u64 {
        claims.say(DECIDING);
        let stamp = self.next();
        claims.say(stamp);
        stamp
    }

    /// The timestamp at which a transaction begins.
    #[inline(always)]
    fn begin(&self) -> u64 {
        if self.counted == Counted::Begins { self.next() } else { self.last() }
    }

    /// The timestamp of the commit of a transaction that has written nothing, if it takes one of its own.
    #[inline(always)]
    pub(crate) fn stamp_reader(&self) -> Option<u64> {
        (self.counted != Counted::Writers).then(|| self.next())
    }

    #[inline(always)]
    fn next(&self) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        // SeqCst: comes after what the claims say; see `last`.
        let stamp = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        M::enter(phase);
        stamp
    }
}

/// What the workers share: the order of commits, and when old versions are reused.
#[derive(Debug)]
pub(crate) struct Snapshots<M: Machine> {
    pub(crate) commits: Commits<M>,
    pub(crate) collector: Collector<M>,
}

/// A worker's part.
#[derive(Debug)]
pub(crate) struct Snapshot<M: Machine> {
    /// The last commit that the transaction sees.
    pub(crate) begin: u64,
    /// It only reads, and must not abort.
    pub(crate) reads_only: bool,
    /// And all that it sees was there before the oldest transaction that runs.
    is_final: bool,
    /// What the worker's claims are before the commit.
    pub(crate) claim: u64,
    pub(crate) claims: Claims<M>,
}

impl<M: Machine> Snapshot<M> {
    /// Reads a row as it is in the snapshot. `seen` gets the versions that were read, where there was one.
    #[inline(always)]
    pub(crate) fn read<F: Faults>(
        &self,
        cx: &mut Context<M>,
        at: At<'_, M>,
        columns: Projection<'_>,
        seen: impl FnMut(Version<M>),
    ) -> Result<Found, Abort> {
        let waits = |claim| claim <= self.begin && !self.is_final && !F::IGNORE_PREWRITES;
        let view = View { is_patient: self.reads_only, ..View::at::<F>(self.begin) };
        read(cx, at, columns, view, |_| (), waits, seen)
    }
}

impl<M: Machine> Snapshots<M> {
    /// With `are_final`, transactions that only read see the state before the oldest one that runs.
    pub(crate) fn new(options: CollectOptions, are_final: bool) -> Self {
        Self::counting(options, are_final, Counted::Writers)
    }

    /// The same, where so many add to the counter.
    pub(crate) fn counting(options: CollectOptions, are_final: bool, counted: Counted) -> Self {
        Snapshots { commits: Commits::new(counted), collector: Collector::new(options, 0, are_final) }
    }

    /// Makes room for workers numbered below `workers`, before anybody has begun.
    pub(crate) fn prepare(&mut self, workers: usize) {
        self.collector = self.collector.resized(workers);
    }

    pub(crate) fn of_worker(&self, worker: usize) -> Snapshot<M> {
        let claims = Claims::new(self.collector.of_worker(worker));
        Snapshot { begin: 0, reads_only: false, is_final: false, claim: UNSTAMPED | (worker as u64 + 1), claims }
    }

    /// A transaction begins.
    #[inline(always)]
    pub(crate) fn begin(&self, cx: &mut Context<M>, own: &mut Snapshot<M>) {
        own.reads_only = cx.declaration.is_read_only();
        own.is_final = own.reads_only && self.collector.has_snapshots();
        if own.is_final {
            // A transaction that begins at a time sees the commits of that time: a snapshot of the moment before is one commit older than need be.
            let last = own.claims.last.saturating_sub(1);
            let before = self.collector.begin_snapshot(cx, &mut own.claims.replaced, last, || self.commits.last());
            own.begin = before + 1;
            return;
        }
        self.collector.begin(cx, &mut own.claims.replaced, || self.commits.last());
        own.begin = self.commits.begin();
        self.collector.began(&own.claims.replaced, own.begin);
    }

    /// Whether the snapshot of a transaction has all that its worker has committed.
    pub(crate) fn sees_own_commits(own: &Snapshot<M>) -> bool {
        own.claims.last <= own.begin
    }

    /// How many old versions of a record's first cell are kept.
    pub(crate) fn older_versions(&self, record: Record<M>) -> u64 {
        self.collector.older_versions(record)
    }

    /// The worker pauses.
    pub(crate) fn rest(&self, cx: &mut Context<M>, own: &mut Snapshot<M>) {
        self.collector.rest(cx, &mut own.claims.replaced);
    }
}
