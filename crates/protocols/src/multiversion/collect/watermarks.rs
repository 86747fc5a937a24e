//! The watermarks: the times before which no transaction runs, or begins.
//!
//! **The pair that everything rests on** is that of the engine's epochs (docs/memory_ordering.md,
//! section 7). A worker stores the watermarks in its slot, passes a SeqCst fence, and loads them
//! again (`refresh_slot`). A scan loads the watermarks, passes a SeqCst fence, and loads the slots.
//! Let a scan find the begin watermark 5. If it misses a worker's slot, its fence comes first, and
//! the worker's second load finds 5 or later. So that worker's transaction is not before 5, and the
//! scan raises the reclaim watermark to 5 at most. Without the fences both loads could be early:
//! the scan would miss the slot, and the worker would begin at 3. A version that ended at 4 would
//! be reused, although a transaction of time 3 needs it.
//!
//! **A watermark stays true.** Transactions before it have ended, and do not come back. So a scan
//! may lose its core and store an old result, and two scans may overlap: `fetch_max` keeps the
//! later result.
//!
//! **Lines.** The watermarks share one line, which changes with each scan. Every begin loads it,
//! and finds it in its own cache in between. A slot has a line of its own.

use contend_engine::{Context, trim_queue};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};

use super::{Collect, Collector, RetiredVersions};

/// The number of transactions after which a worker looks at the clock.
const CLOCK_EVERY: u32 = 8;
/// Value of a slot: the worker is offline.
pub(super) const OFFLINE: u64 = u64::MAX;

/// Returns the time of a snapshot that sees all of the state before `watermark`.
fn moment_before(watermark: u64) -> u64 {
    watermark.saturating_sub(1)
}

/// The watermarks, which only grow.
#[derive(Debug)]
pub(super) struct Watermarks<M: Machine> {
    /// No transaction that begins from now on is older.
    begin: M::U64,
    /// Nor is any running transaction older than this, nor any snapshot.
    pub(super) reclaim: M::U64,
    /// With snapshots: no running transaction is older. The next snapshots are of the moment
    /// before.
    active: M::U64,
    /// The core's clock at the last scan. Its exchange lets one worker scan; it publishes nothing.
    scanned_at: M::U64,
}

impl<M: Machine> Watermarks<M> {
    pub(super) fn new() -> Self {
        let word = |value| M::U64::new(value);
        Watermarks { begin: word(1), reclaim: word(0), active: word(0), scanned_at: word(0) }
    }
}

/// A worker's slot: the facts about its transaction that others read. Only the worker writes it.
///
/// The first two words hold back the reuse of versions: they are ordered by Release, Acquire and
/// the fences. The last two are guesses: a wrong one costs a transaction an abort.
#[derive(Debug)]
pub(super) struct WorkerSlot<M: Machine> {
    /// The begin watermark that it saw when its last transaction began.
    pub(super) begin_watermark: M::U64,
    /// With snapshots: the time of its next one.
    pub(super) snapshot_ts: M::U64,
    /// With aggressive collection, or overwriting: the timestamp of its last transaction; 0 if it
    /// is offline.
    pub(super) ts: M::U64,
    /// With aggressive collection: the number of times that its transaction has missed a version.
    pub(super) misses: M::U64,
}

impl<M: Machine> WorkerSlot<M> {
    pub(super) fn new() -> Self {
        let word = |value| M::U64::new(value);
        WorkerSlot { begin_watermark: word(OFFLINE), snapshot_ts: word(OFFLINE), ts: word(0), misses: word(0) }
    }
}

impl<M: Machine> Collector<M> {
    /// Called when a worker begins a transaction that has no timestamp yet. Returns the begin
    /// watermark, if it is a new one: the transaction must not get an earlier timestamp. `now`
    /// returns a time that no timestamp drawn later is before.
    #[inline(always)]
    pub(crate) fn begin(
        &self,
        cx: &mut Context<M>,
        own: &mut RetiredVersions<M>,
        now: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let interval = self.interval?;
        own.forget_misses_after_commit();
        own.begun += 1;
        if own.begun >= CLOCK_EVERY || interval == 0 {
            own.begun = 0;
            if self.scan(interval, now) && self.snapshots {
                self.reclaim_orphans(cx);
            }
        }
        // Acquire: pairs with the Release of `scan`; the transaction draws its timestamp after this
        // load.
        if self.watermarks.begin.load(Ordering::Acquire) == own.begin_watermark {
            // The slot says this watermark since an earlier begin, so no store and no fence is
            // needed. A scan that raises the watermark after this load finds the slot as it is.
            return None;
        }
        self.refresh_slot(cx, own);
        Some(own.begin_watermark)
    }

    /// Called when a worker begins a transaction that sees the state before the oldest running one,
    /// other snapshots not counted. Returns the time of that state. It is later than
    /// `last_commit_ts`, unless a transaction still runs that is not later than that. `now` is as
    /// in [`Collector::begin`].
    pub(crate) fn begin_snapshot(
        &self,
        cx: &mut Context<M>,
        own: &mut RetiredVersions<M>,
        last_commit_ts: u64,
        mut now: impl FnMut() -> u64,
    ) -> u64 {
        // Release: the reads of the worker's last transaction, which is over, come before; pairs
        // with the Acquire of `scan`.
        self.slots[own.worker].begin_watermark.store(OFFLINE, Ordering::Release);
        // Acquire: pairs with the Release of `scan`.
        let is_behind = || moment_before(self.watermarks.active.load(Ordering::Acquire)) < last_commit_ts;
        let has_scanned = self.interval.is_some_and(|interval| self.scan(interval, &mut now)) || is_behind();
        if has_scanned {
            // The begin watermark of one scan is what no running transaction is before at the next
            // scan.
            let _ = self.scan(0, &mut now) && is_behind() && self.scan(0, &mut now);
        }
        self.refresh_slot(cx, own);
        if has_scanned {
            self.reclaim_orphans(cx);
        }
        // Release: as above. The transaction has no timestamp, so other snapshots need not be
        // before it. The `snapshot_ts` in the slot stays: it keeps the versions of this snapshot.
        self.slots[own.worker].begin_watermark.store(OFFLINE, Ordering::Release);
        own.begin_watermark = 0;
        own.snapshot_ts
    }

    /// Publishes the timestamp of the transaction that the worker begins, where others look at it.
    #[inline(always)]
    pub(crate) fn publish_ts(&self, own: &RetiredVersions<M>, ts: u64) {
        if own.collect == Collect::Aggressive || self.options.overwrite {
            // Relaxed: a reader of an old value guesses wrong, which costs a transaction an abort
            // (`LongTransactions::publish`, `overwrite_bound`).
            self.slots[own.worker].ts.store(ts, Ordering::Relaxed);
        }
    }

    /// Scans the slots and raises the watermarks, if `interval` has passed since the last scan.
    /// Returns whether it did.
    #[inline]
    fn scan(&self, interval: Cycles, now: impl FnOnce() -> u64) -> bool {
        let at = M::now();
        // Relaxed: the exchange decides which worker scans.
        let scanned_at = self.watermarks.scanned_at.load(Ordering::Relaxed);
        if at.wrapping_sub(scanned_at) < interval
            || self
                .watermarks
                .scanned_at
                .compare_exchange(scanned_at, at, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        M::step("collect");
        // Acquire, both: pair with the Release of an earlier scan below.
        let begin = self.watermarks.begin.load(Ordering::Acquire);
        let snapshot = moment_before(self.watermarks.active.load(Ordering::Acquire));
        // SeqCst: after the loads of the watermarks and before those of the slots; pairs with the
        // fence in `refresh_slot`. A slot whose store is missed here belongs to a worker that sees
        // these watermarks, or later ones, at its second load.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let used = self.slots_used.load(Ordering::Relaxed) as usize;
        let slots = &self.slots[..used];
        // Acquire: pairs with the Release stores of `refresh_slot`, `begin_snapshot` and
        // `go_offline`. The reads of those workers' earlier transactions come before the reuse of
        // what they have read.
        let active = slots.iter().map(|slot| slot.begin_watermark.load(Ordering::Acquire)).fold(begin, u64::min);
        // With snapshots only `snapshot_ts` counts for reuse. A slot's `snapshot_ts` is before its
        // begin watermark, so it keeps the versions of the worker's other transactions as well.
        let reclaim = if self.snapshots {
            // Acquire: as above.
            slots.iter().map(|slot| slot.snapshot_ts.load(Ordering::Acquire)).fold(snapshot, u64::min)
        } else {
            active
        };
        if self.options.collect == Collect::Aggressive {
            self.long.publish(slots, begin, self.snapshots);
        }
        // After the loads of the slots. If a worker has acquired `active` or `reclaim`, the
        // installs and the reads of all transactions before that time happened before. Release,
        // all: pair with the Acquire of `begin` and `refresh_slot`.
        if self.snapshots {
            self.watermarks.active.fetch_max(active, Ordering::Release);
        }
        // Release, both: as above.
        self.watermarks.reclaim.fetch_max(reclaim, Ordering::Release);
        self.watermarks.begin.fetch_max(now(), Ordering::Release);
        true
    }

    /// Copies the watermarks to the worker's slot, and reuses the versions that no transaction can
    /// need.
    #[cold]
    fn refresh_slot(&self, cx: &mut Context<M>, own: &mut RetiredVersions<M>) {
        let (watermarks, slot) = (&self.watermarks, &self.slots[own.worker]);
        loop {
            // Acquire, both: pair with the Release of `scan`.
            let begin = watermarks.begin.load(Ordering::Acquire);
            let active = watermarks.active.load(Ordering::Acquire);
            let snapshot_ts = moment_before(active);
            // Release: the reads of the worker's last transaction come before; pairs with the
            // Acquire of `scan`.
            slot.begin_watermark.store(begin, Ordering::Release);
            if self.snapshots {
                // Release: as above.
                slot.snapshot_ts.store(snapshot_ts, Ordering::Release);
            }
            // SeqCst: after the stores to the slot and before the second loads of the watermarks;
            // pairs with the fence in `scan`.
            M::fence(Ordering::SeqCst);
            // Acquire, both: as above.
            let is_seen = !self.snapshots || watermarks.active.load(Ordering::Acquire) == active;
            if is_seen && watermarks.begin.load(Ordering::Acquire) == begin {
                (own.begin_watermark, own.snapshot_ts) = (begin, snapshot_ts);
                break;
            }
        }
        // Acquire: pairs with the Release of `scan`: the readers whose slots it has seen behind it
        // have ended.
        let reclaim = watermarks.reclaim.load(Ordering::Acquire);
        if own.collect == Collect::Aggressive {
            // Relaxed: a number that other workers look at from time to time.
            slot.misses.store(own.misses, Ordering::Relaxed);
            own.sweep(cx, &self.long, &self.orphans, reclaim);
            return;
        }
        // No link is cleared. A reader that can still follow one to the reused memory has a time of
        // `reclaim` or later. It accepts no copy that ended by its time, and passes none: a search
        // goes on only from a copy that began after its time (`chain::search`).
        while own.waiting.front().is_some_and(|first| first.end <= reclaim) {
            if let Some(first) = own.waiting.pop_front() {
                cx.reuse_version(first.version);
            }
        }
        trim_queue(&mut own.waiting);
    }
}
