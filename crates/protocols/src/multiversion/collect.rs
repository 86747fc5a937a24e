//! When the memory of old versions is reused.
//!
//! | `versions.collect` | a version is reused when these transactions have ended |
//! | --- | --- |
//! | `epoch` | all that began in the epoch in which it was replaced, or the next one: the engine's epochs, of 40 ms |
//! | `rapid` | all that are older than its replacement; this is checked once in `versions.interval_us` |
//! | `aggressive` | all that are older than its replacement and younger than the version; and of long transactions not even these, if the record has more than `versions.max` versions for them |
//!
//! **Rapid collection** (H. Lim et al.: "Cicada", SIGMOD 2017, section 3.8; CCBench's RapidGC).
//! Once in an interval one of the workers sets the *begin watermark*: no transaction that begins
//! from then on has an earlier timestamp. A worker that begins a transaction and finds a new begin
//! watermark copies it to its own slot. So no running transaction is older than the smallest slot,
//! which becomes the *reclaim watermark* at the next scan: versions that were replaced by then are
//! needed by nobody. One worker scans for all; each worker reuses the versions that it has replaced
//! itself, while they are still in its cache. A worker that finds nothing new reads one line and
//! writes none.
//!
//! | Cicada's term | here |
//! | --- | --- |
//! | a thread's `wts` and `rts` | a worker's slot: the begin watermark that it has seen (`WorkerSlot::begin_watermark`) and its snapshot's time |
//! | `min_wts` | `Watermarks::active`, with snapshots: no running transaction that may write is older |
//! | `min_rts` | `Watermarks::reclaim`: no running transaction is older, snapshots included |
//! | garbage collection queue | `RetiredVersions::waiting` |
//! | quiescence, leader thread | `Collector::scan`, by the worker that finds that an interval has passed |
//!
//! **Aggressive collection** (proposed, and not built, in T. Tanabe et al.: "An analysis of
//! concurrency control protocols for in-memory databases with CCBench", VLDB 2020, section 7.3).
//! One long transaction keeps all versions from being reused that are replaced while it runs,
//! though it can need but one version of each record. So the scan tells the *long transactions*,
//! which have run for more than an interval, from the others, and publishes their timestamps and
//! the *short watermark*: no other transaction is older. A version that was replaced by the short
//! watermark is needed only if the timestamp of a long transaction lies between its begin and its
//! end. All others are reused.
//!
//! - A version that a long transaction needs goes to the *retained chain* (`multiversion/chain.rs`)
//!   when it is replaced, and is found there whatever becomes of the recent chain. A version that
//!   was replaced before the transaction was known as a long one follows when that becomes known.
//! - The rest of the recent chain is reused about two intervals after it was replaced, without a
//!   look at the record, whose line another core may have. (Unlinking each version from the middle
//!   of one chain cost 27 % of the time of 224 simulated workers.) So the memory that is written
//!   next is warm, as it is without a long transaction. A record without needed versions is never
//!   touched.
//! - A retained version that no transaction needs any more waits for some visits, usually until all
//!   transactions of that time have ended. Then its record need not be touched.
//! - Of each record at most `versions.max` versions are retained, the youngest ones. A transaction
//!   that needs another one aborts (`version_collected`) and begins again with a new timestamp. Now
//!   and then that also happens to a transaction that needs a version of a worker that retained it
//!   too late.
//!
//! A worker's knowledge of the long transactions may be out of date. That costs a transaction an
//! abort, and never a wrong read, because a reader notices that a version is gone.
//!
//! **No transaction starves.** A worker whose transaction missed a version three times in a row is
//! *protected*: one worker at a time, those with the most misses first. Every version that its
//! transaction needs is retained, whatever `versions.max` says, until it has ended. So a record has
//! at most `versions.max` + 1 retained versions, and those of the last two or three intervals.
//!
//! **Overwriting** (`versions.overwrite=on`; "version overwriting" in CCBench's list of
//! optimisations). If a version was written after all running transactions had begun, no
//! transaction needs it when it is replaced. Under contention, where versions are young, most
//! versions are of this kind. A commit looks at the timestamps of the others and keeps no copy of
//! these versions. A transaction that draws its timestamp at that moment, and is not seen, may miss
//! one: then no version's begin and end include its time, so it finds nothing, and aborts.
//!
//! **Snapshots.** A transaction that only reads may see the state before the oldest running
//! transaction. That state is final, so nothing has to be waited for, marked or validated. The scan
//! publishes this time, too, and a worker's slot says which one its snapshots have. An old version
//! is then reused if it was replaced by the smallest of these, one scan later; also with
//! `versions.collect=epoch`, because epochs do not know how old a snapshot is. A snapshot is as old
//! as the longest running transaction, and some intervals. A transaction that reads a snapshot has
//! no timestamp, and does not count as running.
//!
//! **A worker that goes offline** leaves nothing that others would wait for. Versions that still
//! wait go to the engine's epochs, or to the other workers (`Collector::go_offline`).
//!
//! **Orderings** are those of the engine's epochs. A worker stores its slot, passes a SeqCst fence,
//! and checks that the watermark is still the same. A scan loads the watermark, passes a SeqCst
//! fence, and loads the slots. One of the two fences is first. If the worker's is, the scan sees
//! its slot. If the scan's is, the worker's second load of the watermark sees what the scan saw or
//! a later one, and the worker's timestamp is not before it.

use std::collections::VecDeque;
use std::sync::Arc;

use contend_engine::{Context, Record, option_choices, options};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::chain;

mod long;
mod retired;
mod sweep;
mod watermarks;

use long::LongTransactions;
use retired::RetiredVersion;
pub use retired::RetiredVersions;
use watermarks::{OFFLINE, Watermarks, WorkerSlot};

/// The time at which old versions are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Two of the engine's epochs later.
    Epoch,
    /// As soon as no transaction runs that began before they were replaced.
    Rapid,
    /// As with `Rapid`; but a long transaction holds back only the versions that it can need, up to
    /// a number of versions.
    Aggressive,
}

option_choices!(Collect { Epoch => "epoch", Rapid => "rapid", Aggressive => "aggressive" });

options! {
    /// Options of old versions.
    pub struct CollectOptions {
        /// The time at which old versions are reused: two of the engine's epochs later (epoch); as
        /// soon as no transaction runs that began before they were replaced (rapid); or even while
        /// one runs, if it can't need them or a record has too many (aggressive).
        "versions.collect" collect: Collect = Collect::Rapid, in ();
        /// With rapid and aggressive collection: the time between two scans for unneeded versions,
        /// in microseconds. With 0, one before every transaction.
        "versions.interval_us" interval_us: u64 = 100, in 0..=1_000_000;
        /// With aggressive collection: the number of old versions of a record that are kept for
        /// transactions which run for longer than an interval. A transaction that needs another one
        /// aborts; after some such aborts, the versions that it needs are kept in any case.
        "versions.max" max: usize = 3, in 0..=1_000;
        /// Do not keep a version if no running transaction can need it, as far as is known:
        /// overwrite it in place. A transaction that has just begun may then miss it, and aborts.
        /// Each commit looks at the timestamps of all workers, so this is for few workers.
        "versions.overwrite" overwrite: bool = false, in ();
    }
}

/// The timestamp of no transaction.
const NO_TIMESTAMP: u64 = u64::MAX;

/// The collector: it decides when old versions are reused. This is the part that the workers share.
#[derive(Debug)]
pub struct Collector<M: Machine> {
    options: CollectOptions,
    /// Whether transactions see snapshots of the state before the oldest running one.
    snapshots: bool,
    /// Cycles from one scan to the next; `None` if nothing depends on scans.
    interval: Option<Cycles>,
    watermarks: CachePadded<Watermarks<M>>,
    /// By worker.
    slots: Box<[CachePadded<WorkerSlot<M>>]>,
    /// One more than the largest number of a worker that has existed.
    slots_used: CachePadded<M::U64>,
    long: LongTransactions<M>,
    orphans: Arc<Orphans<M>>,
}

/// The versions of workers that have ended: one queue for each, in the order in which they were
/// replaced.
type Orphans<M> = Mutex<Vec<VecDeque<RetiredVersion<M>>>>;

impl<M: Machine> Collector<M> {
    /// Returns a collector for workers numbered below `workers`.
    pub(crate) fn new(mut options: CollectOptions, workers: usize, snapshots: bool) -> Self {
        if snapshots && options.collect == Collect::Epoch {
            // A snapshot may be older than the epochs say.
            options.collect = Collect::Rapid;
        }
        let cycles = |us: u64| (us as f64 * M::cycles_per_second() / 1e6) as Cycles;
        Collector {
            snapshots,
            interval: (options.collect != Collect::Epoch).then(|| cycles(options.interval_us)),
            watermarks: CachePadded::new(Watermarks::new()),
            slots: (0..workers).map(|_| CachePadded::new(WorkerSlot::new())).collect(),
            slots_used: CachePadded::new(M::U64::new(0)),
            long: LongTransactions::new(workers),
            orphans: Arc::new(Mutex::new(Vec::new())),
            options,
        }
    }

    /// Returns the same collector for another number of workers. Call it before any worker exists.
    pub(crate) fn resized(&self, workers: usize) -> Self {
        Self::new(self.options.clone(), workers, self.snapshots)
    }

    /// Returns the part of one worker.
    pub(crate) fn of_worker(&self, worker: usize) -> RetiredVersions<M> {
        // Relaxed: the fence in `refresh_slot` makes it visible together with the slot's first
        // watermark.
        self.slots_used.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        RetiredVersions::new(worker, &self.options, Arc::clone(&self.orphans))
    }

    /// Returns whether transactions see snapshots of the state before the oldest running one.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots
    }

    /// Returns whether every version is kept that a transaction could need.
    pub(crate) fn keeps_all(&self) -> bool {
        self.options.collect != Collect::Aggressive && (self.snapshots || !self.options.overwrite)
    }

    /// Returns a time at or before that of every current and future snapshot; `u64::MAX` if there
    /// are no snapshots.
    pub(crate) fn snapshot_watermark(&self) -> u64 {
        // Acquire: pairs with the Release of `scan`.
        if self.snapshots { self.watermarks.reclaim.load(Ordering::Acquire) } else { u64::MAX }
    }

    /// Returns one more than the largest timestamp below `ts` among the other running transactions,
    /// as far as is known. A version written at or after it can be overwritten in place by a commit
    /// of time `ts`. Returns `u64::MAX` if every version must be kept.
    #[inline(always)]
    pub(super) fn overwrite_bound(&self, own: &RetiredVersions<M>, ts: u64) -> u64 {
        if !self.options.overwrite || self.snapshots {
            return u64::MAX;
        }
        // Relaxed, both: a guess; a transaction that it misses aborts.
        let used = self.slots_used.load(Ordering::Relaxed) as usize;
        let others = self.slots[..used].iter().enumerate().filter(|(worker, _)| *worker != own.worker);
        let timestamps = others.map(|(_, slot)| slot.ts.load(Ordering::Relaxed));
        timestamps.filter(|other| (1..ts).contains(other)).max().map_or(0, |latest| latest + 1)
    }

    /// Returns the number of old versions of a record's first cell. Call it only while no
    /// transaction runs.
    pub(crate) fn old_versions(&self, record: Record<M>) -> u64 {
        // Relaxed: no transaction runs.
        chain::length(record.first_cell(), self.watermarks.reclaim.load(Ordering::Relaxed))
    }

    /// Reuses the versions of workers that have ended.
    fn reclaim_orphans(&self, cx: &mut Context<M>) {
        if self.options.collect == Collect::Aggressive {
            // `sweep` looks after them one by one.
            return;
        }
        // Acquire: pairs with the Release of `scan`.
        let watermark = self.watermarks.reclaim.load(Ordering::Acquire);
        let Some(mut orphans) = self.orphans.try_lock() else { return };
        for waiting in orphans.iter_mut() {
            while waiting.front().is_some_and(|first| first.end <= watermark) {
                if let Some(first) = waiting.pop_front() {
                    cx.reuse_version(first.version);
                }
            }
        }
        orphans.retain(|waiting| !waiting.is_empty());
    }

    /// Called when a worker goes offline: hands its waiting versions to the other workers, or to
    /// the engine's epochs. The epochs don't know the age of snapshots. So if there are snapshots,
    /// the worker itself goes on with its versions later, or other workers do when it has ended.
    pub(crate) fn go_offline(&self, cx: &mut Context<M>, own: &mut RetiredVersions<M>) {
        if own.collect == Collect::Aggressive {
            // Relaxed: a number that other workers look at from time to time.
            self.slots[own.worker].misses.store(0, Ordering::Relaxed);
            let waiting = own.take_all();
            if !waiting.is_empty() {
                self.orphans.lock().push(waiting);
            }
        } else if !self.snapshots {
            let epoch = cx.current_epoch();
            own.waiting.drain(..).for_each(|retired| cx.retire_version(retired.version, epoch));
        }
        own.begin_watermark = 0;
        // Relaxed: as in `publish_ts`.
        self.slots[own.worker].ts.store(0, Ordering::Relaxed);
        // Release, both: the worker's reads come before; pairs with the Acquire of `scan`.
        self.slots[own.worker].snapshot_ts.store(OFFLINE, Ordering::Release);
        self.slots[own.worker].begin_watermark.store(OFFLINE, Ordering::Release);
    }
}
