//! When old versions are reused.
//!
//! | `versions.collect` | a version is reused when all have ended who began |
//! | --- | --- |
//! | `epoch` | in the epoch in which it was replaced, or the one after: the engine's epochs, of 40 ms |
//! | `rapid` | before it was replaced: looked at once in `versions.interval_us` |
//! | `aggressive` | in the time in which it was the newest; of those who run for long not even then, if the record has more than `versions.max` such versions |
//!
//! **Rapid collection** (H. Lim et al.: "Cicada", SIGMOD 2017, section 3.8; CCBench's RapidGC). Once in an interval one of the workers says which
//! time it is: a *low* time, that no transaction is before that begins from then on. A worker that begins a transaction and finds a new low time
//! leaves it in a slot of its own. So no running transaction is before the least of the slots, and what was replaced by then is nobody's. The one
//! who says the next low time looks at the slots, for all; each worker reuses what it has replaced itself. A worker that finds nothing new
//! reads one line, and writes none.
//!
//! **Aggressive collection** (proposed, and not built, in T. Tanabe et al.: "An analysis of concurrency control protocols for in-memory
//! databases with CCBench", VLDB 2020, section 7.3). One transaction that runs for long keeps all from being reused that is replaced meanwhile, though
//! it can need but one version of each record. So who looks at the slots tells those that run for more than an interval, with their timestamps,
//! from the others, of whom no one is before the *horizon*. What was replaced by the horizon is needed only by those few: it is reused, unless one of
//! their timestamps lies between its begin and its end. Such a version goes to a chain of its own when it is replaced, as a rule, where they find
//! it whatever becomes of the others (`versions::chain`); what was replaced before it was known that they run for long follows when that is known, and
//! an interval later nothing else is left. So of a record that nobody needs an old version of nothing is touched.
//! One of them that is not needed any more waits for some looks, as a rule until all have ended who ran then: its record is far away, and need not
//! be touched then.
//! Of each record at most `versions.max` versions are kept for them, the youngest. Who needs another finds it gone, aborts
//! (`version_collected`), and begins anew with a fresh timestamp; so does, now and then, who needs a version of a worker that was not there in time to
//! keep it.
//!
//! **Nobody starves.** A worker whose transaction was hit three times in a row is *protected*, one at a time and those first that were hit most often:
//! what its transaction needs is kept, whatever `versions.max` says, until it has ended. So of a record there are at most
//! `versions.max` + 1 old versions, and those of the last two or three intervals.
//!
//! **Overwriting** (`versions.overwrite=on`; "version overwriting" in CCBench's list of optimisations). A version that was written after all began who run
//! is nobody's when it is replaced. A commit looks at the others' timestamps, and keeps no copy of such versions. Under
//! contention, where versions are young, that is most of them. Who takes a timestamp at that moment, and is not seen, misses one.
//!
//! **Snapshots.** Who only reads may see the state before the oldest transaction that runs: it is final, so there is nothing to wait for, to mark or
//! to validate. So who looks at the slots says this time as well, and a worker leaves in its slot which of these it has seen last: of old versions
//! then those are reused that were replaced by the least of *them*, a look later; also with `versions.collect=epoch`, as of how old a snapshot is the
//! epochs know nothing. What a snapshot sees is as old as the longest of the transactions
//! that run, and some intervals. A transaction that reads a snapshot has no timestamp, and is none of those that run.
//!
//! **Orderings** are those of the engine's epochs: a worker stores its slot and then looks whether the low time is still the same, who
//! collects reads the low time and then the slots, with a SeqCst fence between on each side. Who is not seen there sees that low time, or a later.
//! What aggressive collection knows besides is a guess: a version that was taken out is missed, and never misread.

use std::collections::VecDeque;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, Context, Groups, OldVersion, Record, option_choices, options, trim_queue};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::chain;

/// When old versions are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Two of the engine's epochs later.
    Epoch,
    /// As soon as no transaction runs that began before they were replaced.
    Rapid,
    /// The same, and of what long transactions keep from being reused only what they can need, up to so many versions.
    Aggressive,
}

option_choices!(Collect { Epoch => "epoch", Rapid => "rapid", Aggressive => "aggressive" });

options! {
    /// Options of old versions.
    pub struct CollectOptions {
        /// When old versions are reused: two of the engine's epochs later; as soon as no transaction runs that began before they were replaced; or
        /// also while one does, if it can't need them, or a record has too many.
        "versions.collect" collect: Collect = Collect::Rapid, in ();
        /// With rapid and aggressive collection: how often it is looked which versions nobody needs, in microseconds. With 0, before every
        /// transaction.
        "versions.interval_us" interval_us: u64 = 100, in 0..=1_000_000;
        /// With aggressive collection: how many old versions of a record are kept for transactions that run for longer than an interval. One that needs
        /// another aborts; after some such aborts what it needs is kept in any case.
        "versions.max" max: usize = 3, in 0..=1_000;
        /// Do not keep a version at all if no transaction that runs could need it, as far as is known: it is overwritten where it stands.
        /// One that has just begun may then miss it, and aborts. Each commit looks at what every worker does: for few workers.
        "versions.overwrite" overwrite: bool = false, in ();
    }
}

/// A worker looks at the clock once in so many transactions.
const LOOK_EVERY: u32 = 8;
/// A worker has room for so many versions that wait from the start: those of three intervals, and some.
const WAITING_AT_FIRST: usize = 1024;
/// In a slot: this worker pauses.
const PAUSED: u64 = u64::MAX;
/// No transaction's timestamp.
const NO_STAMP: u64 = u64::MAX;
/// A transaction that missed a version so many times in a row is to be protected.
const PATIENCE: u64 = 3;
/// Of the versions that are kept a worker looks at so many when it looks at all, besides two for each that it has begun to keep.
const LOOK_AGAIN_AT: usize = 64;
/// Those that are not needed any more stay for so many looks.
const SPARED_MAX: u32 = 2;
/// Of those that are needed still it looks at one in so many more closely.
const TOUCH_EVERY: usize = 16;

/// The moment before a time: of it a snapshot is if nobody runs who is before that time.
fn moment_before(time: u64) -> u64 {
    time.saturating_sub(1)
}

/// What the workers share.
#[derive(Debug)]
pub(crate) struct Collector<M: Machine> {
    options: CollectOptions,
    /// Whether there are transactions that see snapshots.
    snapshots: bool,
    /// Cycles from one low time to the next; none if nobody asks for them.
    interval: Option<Cycles>,
    times: CachePadded<Times<M>>,
    /// By worker.
    slots: Box<[CachePadded<Slot<M>>]>,
    /// Workers from this number on have not been there yet.
    used: CachePadded<M::U64>,
    long: Long<M>,
    left: Arc<Left<M>>,
}

/// What workers have left that are not there any more, each in the order in which it was replaced.
type Left<M> = Mutex<Vec<VecDeque<Replacement<M>>>>;

#[derive(Debug)]
struct Times<M: Machine> {
    /// No transaction that begins from now on is before this time.
    low: M::U64,
    /// Nor is any that runs before this one; nor is, if there are snapshots, one of those.
    oldest: M::U64,
    /// If there are snapshots: no transaction that runs is before this time. A snapshot is of the moment before.
    running: M::U64,
    /// The core's clock when the low time was set.
    looked_at: M::U64,
}

/// What a worker says of itself. Written by it alone.
#[derive(Debug)]
struct Slot<M: Machine> {
    /// The low time that it saw when it began its last transaction.
    low: M::U64,
    /// If there are snapshots: of what time its next ones are.
    snapshot: M::U64,
    /// Under aggressive collection, or with overwriting: the timestamp of its last transaction; 0 if it pauses.
    stamp: M::U64,
    /// Under aggressive collection: how often its transaction has missed a version.
    hits: M::U64,
}

/// The transactions that run for long: written once in an interval, by who looks at the slots.
#[derive(Debug)]
struct Long<M: Machine> {
    /// Odd while the rest is written.
    edition: M::U64,
    /// The low time before the last.
    previous: M::U64,
    /// No other transaction is before this time.
    horizon: M::U64,
    /// The worker that is protected, from 1; 0 if none is.
    protected: M::U64,
    /// The timestamp of its transaction, if it is one of them; or [`NO_STAMP`].
    protected_stamp: M::U64,
    count: M::U64,
    /// So many timestamps.
    stamps: Box<[M::U64]>,
}

/// A version that was replaced.
#[derive(Debug)]
struct Replacement<M: Machine> {
    /// The timestamp of what replaced it.
    end: u64,
    version: OldVersion<M>,
    /// The epoch at that time: its lower half.
    epoch: u32,
    /// Which groups were.
    groups: Groups,
}

// Each write makes one: two to a line.
const _: () = assert!(size_of::<Replacement<contend_machine::Native>>() == 32);

/// A version that somebody has needed.
#[derive(Debug)]
struct Kept<M: Machine> {
    /// The timestamp of the version, or the oldest of its cells: it is far away, and not looked at each time.
    begin: u64,
    /// Whether it is in the chain of what is kept, as far as it has to be.
    is_safe: bool,
    /// How often it was not needed any more when it was looked at.
    spared: u32,
    version: Replacement<M>,
}

/// The versions that a worker has replaced, and that wait to be reused.
#[derive(Debug)]
pub(crate) struct Replaced<M: Machine> {
    worker: usize,
    collect: Collect,
    /// Whether versions that were not kept, or given back early, may be missing between others.
    may_lack: bool,
    /// The low time in the worker's slot; 0 if it pauses.
    low: u64,
    /// Of what time its next snapshots are, as its slot says.
    snapshot: u64,
    /// Transactions since it looked at the clock.
    begun: u32,
    /// How often the worker's transaction has missed a version.
    hits: u64,
    /// Whether it has aborted last, and is tried again.
    again: bool,
    /// In the order in which they were replaced.
    waiting: VecDeque<Replacement<M>>,
    sweep: Sweep<M>,
    /// Where the worker leaves what still waits when it ends.
    left: Arc<Left<M>>,
}

impl<M: Machine> Drop for Replaced<M> {
    fn drop(&mut self) {
        if !self.waiting.is_empty() {
            self.left.lock().push(std::mem::take(&mut self.waiting));
        }
    }
}

/// A worker's part in aggressive collection.
#[derive(Debug)]
struct Sweep<M: Machine> {
    /// Which edition of what is known of long transactions the worker has read last.
    edition: u64,
    horizon: u64,
    /// The horizon of the edition before: by now all have kept what was replaced by then, and is needed.
    settled: u64,
    /// The timestamps of transactions that run for long, in order.
    needed: Vec<u64>,
    /// Those that the edition before did not have.
    fresh: Vec<u64>,
    protected: u64,
    /// At most so many versions of a record are kept for the others.
    max: usize,
    kept: Vec<Kept<M>>,
    /// So many of these were there when they were looked at last.
    left: usize,
    /// Where in these the next look begins, and how often it has been at the end.
    cursor: usize,
    passes: usize,
}

impl<M: Machine> Replaced<M> {
    /// Puts a copy of the newest version of a cell, which the worker has claimed and is about to replace by one of this timestamp, into one of its
    /// chains; `true` if it is to be kept. `left` is for those who will read it.
    #[inline(always)]
    pub(super) fn put(&self, copy: Cell<M>, cell: Cell<M>, stamp: u64, left: u64) -> bool {
        chain::note_birth(cell);
        let is_kept = !self.sweep.needed.is_empty() && self.sweep.keeps(chain::begin_of(copy), stamp);
        chain::put(copy, cell, stamp, left, is_kept);
        if is_kept && self.sweep.may_be_crowded(chain::begin_of(copy)) {
            self.sweep.prune_cell(cell);
        }
        is_kept
    }

    /// The transaction of this timestamp, which commits in this epoch, has replaced these groups of a version. Some of them are kept.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        cx: &mut Context<M>,
        version: OldVersion<M>,
        groups: Groups,
        stamp: u64,
        epoch: u64,
        is_kept: bool,
    ) {
        if self.collect == Collect::Epoch {
            return cx.retire_version(version, epoch);
        }
        let replacement = Replacement { end: stamp, version, epoch: epoch as u32, groups };
        if is_kept {
            self.sweep.kept.push(Kept { is_safe: true, ..replacement.keep() });
        } else {
            self.waiting.push_back(replacement);
        }
    }

    /// Whether versions that a transaction needs may be missing.
    pub(super) fn may_lack(&self) -> bool {
        self.may_lack
    }

    /// The worker's transaction aborts for this reason.
    pub(super) fn aborted(&mut self, reason: AbortReason) {
        self.again = reason.is_conflict();
        if reason == AbortReason::VersionCollected {
            self.hits += 1;
        }
    }
}

impl<M: Machine> Collector<M> {
    /// For workers numbered below `workers`.
    pub(crate) fn new(mut options: CollectOptions, workers: usize, snapshots: bool) -> Self {
        if snapshots && options.collect == Collect::Epoch {
            // A snapshot may be older than the epochs say.
            options.collect = Collect::Rapid;
        }
        let word = |value| M::U64::new(value);
        let cycles = |us: u64| (us as f64 * M::cycles_per_second() / 1e6) as Cycles;
        let slot =
            || CachePadded::new(Slot { low: word(PAUSED), snapshot: word(PAUSED), stamp: word(0), hits: word(0) });
        Collector {
            snapshots,
            interval: (options.collect != Collect::Epoch).then(|| cycles(options.interval_us)),
            times: CachePadded::new(Times { low: word(1), oldest: word(0), running: word(0), looked_at: word(0) }),
            slots: (0..workers).map(|_| slot()).collect(),
            used: CachePadded::new(word(0)),
            long: Long {
                edition: word(0),
                previous: word(0),
                horizon: word(0),
                protected: word(0),
                protected_stamp: word(NO_STAMP),
                count: word(0),
                stamps: (0..workers).map(|_| word(0)).collect(),
            },
            left: Arc::new(Mutex::new(Vec::new())),
            options,
        }
    }

    /// The same, before anybody has begun, for so many workers.
    pub(crate) fn resized(&self, workers: usize) -> Self {
        Self::new(self.options.clone(), workers, self.snapshots)
    }

    /// The part of one worker.
    pub(crate) fn of_worker(&self, worker: usize) -> Replaced<M> {
        // Relaxed: the fence in `enter` makes it visible together with the slot's first time.
        self.used.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        Replaced {
            worker,
            collect: self.options.collect,
            may_lack: self.options.collect == Collect::Aggressive || self.options.overwrite,
            low: 0,
            snapshot: 0,
            begun: 0,
            hits: 0,
            again: false,
            waiting: VecDeque::with_capacity(WAITING_AT_FIRST),
            sweep: Sweep {
                edition: 0,
                horizon: 0,
                settled: 0,
                needed: Vec::new(),
                fresh: Vec::new(),
                protected: NO_STAMP,
                max: self.options.max,
                kept: Vec::new(),
                left: 0,
                cursor: 0,
                passes: 0,
            },
            left: Arc::clone(&self.left),
        }
    }

    /// Whether there are transactions that see snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots
    }

    /// Whether all versions are kept that a transaction could need.
    pub(crate) fn keeps_all(&self) -> bool {
        self.options.collect != Collect::Aggressive && (self.snapshots || !self.options.overwrite)
    }

    /// The worker begins a transaction that sees the state before the oldest one that runs, but for others like it: of what time. Later than
    /// `last`, if none runs that is not later than that. `now` is as in [`Collector::begin`].
    pub(crate) fn begin_snapshot(
        &self,
        cx: &mut Context<M>,
        own: &mut Replaced<M>,
        last: u64,
        mut now: impl FnMut() -> u64,
    ) -> u64 {
        // Release: as in `rest`. The worker's last transaction is over.
        self.slots[own.worker].low.store(PAUSED, Ordering::Release);
        // Acquire: pairs with the Release of `look`.
        let is_late = || moment_before(self.times.running.load(Ordering::Acquire)) < last;
        let has_looked = self.interval.is_some_and(|interval| self.look(interval, &mut now)) || is_late();
        if has_looked {
            // What one look has said the time is, no transaction is before at the next.
            let _ = self.look(0, &mut now) && is_late() && self.look(0, &mut now);
        }
        self.enter(cx, own);
        if has_looked {
            self.take_left(cx);
        }
        // Release: as above. It has no timestamp that others' snapshots would have to be before.
        self.slots[own.worker].low.store(PAUSED, Ordering::Release);
        own.low = 0;
        own.snapshot
    }

    /// Reuses what workers have left that are not there any more.
    fn take_left(&self, cx: &mut Context<M>) {
        if self.options.collect == Collect::Aggressive {
            // They are looked after one by one (`sweep`).
            return;
        }
        // Acquire: pairs with the Release of `look`.
        let oldest = self.times.oldest.load(Ordering::Acquire);
        let Some(mut left) = self.left.try_lock() else { return };
        for waiting in left.iter_mut() {
            while waiting.front().is_some_and(|first| first.end <= oldest) {
                if let Some(first) = waiting.pop_front() {
                    cx.reuse_version(first.version);
                }
            }
        }
        left.retain(|waiting| !waiting.is_empty());
    }

    /// The worker begins a transaction, which has no timestamp yet. `now` says a time that no timestamp is before that is taken after. Returned
    /// is the low time, if it is another than before: the transaction must not have an earlier timestamp.
    #[inline(always)]
    pub(crate) fn begin(&self, cx: &mut Context<M>, own: &mut Replaced<M>, now: impl FnOnce() -> u64) -> Option<u64> {
        let interval = self.interval?;
        if own.hits > 0 && !std::mem::take(&mut own.again) {
            own.hits = 0;
        }
        own.begun += 1;
        if own.begun >= LOOK_EVERY || interval == 0 {
            own.begun = 0;
            if self.look(interval, now) && self.snapshots {
                self.take_left(cx);
            }
        }
        // Acquire: pairs with the Release of `look`: the transaction's timestamp comes after.
        if self.times.low.load(Ordering::Acquire) == own.low {
            return None;
        }
        self.enter(cx, own);
        Some(own.low)
    }

    /// What was there at this time is in all snapshots that there are, and will be, or was replaced before them.
    pub(crate) fn seen_by_all_snapshots(&self) -> u64 {
        // Acquire: pairs with the Release of `look`.
        if self.snapshots { self.times.oldest.load(Ordering::Acquire) } else { u64::MAX }
    }

    /// The transaction that the worker begins has this timestamp.
    #[inline(always)]
    pub(crate) fn began(&self, own: &Replaced<M>, stamp: u64) {
        if own.collect == Collect::Aggressive || self.options.overwrite {
            // Relaxed: who reads it has no need to know.
            self.slots[own.worker].stamp.store(stamp, Ordering::Relaxed);
        }
    }

    /// When the latest of the others began who run and have an earlier timestamp than this, as far as is known: a version from that time or later
    /// is nobody's when it is replaced at this time. The end of time, where all are to be kept.
    #[inline(always)]
    pub(super) fn all_began_before(&self, own: &Replaced<M>, stamp: u64) -> u64 {
        if !self.options.overwrite || self.snapshots {
            return u64::MAX;
        }
        // Relaxed, both: a guess.
        let used = self.used.load(Ordering::Relaxed) as usize;
        let others = self.slots[..used].iter().enumerate().filter(|(worker, _)| *worker != own.worker);
        let stamps = others.map(|(_, slot)| slot.stamp.load(Ordering::Relaxed));
        stamps.filter(|other| (1..stamp).contains(other)).max().map_or(0, |latest| latest + 1)
    }

    /// Sets a new low time, if it is time, and looks at the slots; says whether it did.
    #[inline]
    fn look(&self, interval: Cycles, now: impl FnOnce() -> u64) -> bool {
        let at = M::now();
        // Relaxed: the exchange decides who does it.
        let looked_at = self.times.looked_at.load(Ordering::Relaxed);
        if at.wrapping_sub(looked_at) < interval
            || self.times.looked_at.compare_exchange(looked_at, at, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        M::step("collect");
        let low = self.times.low.load(Ordering::Acquire);
        let snapshot = moment_before(self.times.running.load(Ordering::Acquire));
        // SeqCst: pairs with the fence in `enter`.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let used = self.used.load(Ordering::Relaxed) as usize;
        let slots = &self.slots[..used];
        // Acquire: pairs with the Release stores of `enter` and `rest`: what those workers have read they have read.
        let running = slots.iter().map(|slot| slot.low.load(Ordering::Acquire)).fold(low, u64::min);
        let oldest = if self.snapshots {
            slots.iter().map(|slot| slot.snapshot.load(Ordering::Acquire)).fold(snapshot, u64::min)
        } else {
            running
        };
        if self.options.collect == Collect::Aggressive {
            self.long.write(slots, low, self.snapshots);
        }
        // Release, all: pair with the Acquire of `begin` and `enter`.
        if self.snapshots {
            self.times.running.fetch_max(running, Ordering::Release);
        }
        self.times.oldest.fetch_max(oldest, Ordering::Release);
        self.times.low.fetch_max(now(), Ordering::Release);
        true
    }

    /// Leaves the low time in the worker's slot, and reuses what nobody can need.
    #[cold]
    fn enter(&self, cx: &mut Context<M>, own: &mut Replaced<M>) {
        loop {
            // Acquire, both: pair with the Release of `look`.
            let low = self.times.low.load(Ordering::Acquire);
            let running = self.times.running.load(Ordering::Acquire);
            let snapshot = moment_before(running);
            // Release: what the worker has read before it has read; pairs with the Acquire of `look`.
            self.slots[own.worker].low.store(low, Ordering::Release);
            if self.snapshots {
                // Release: the same.
                self.slots[own.worker].snapshot.store(snapshot, Ordering::Release);
            }
            // SeqCst: pairs with the fence in `look`.
            M::fence(Ordering::SeqCst);
            let is_seen = !self.snapshots || self.times.running.load(Ordering::Acquire) == running;
            if is_seen && self.times.low.load(Ordering::Acquire) == low {
                (own.low, own.snapshot) = (low, snapshot);
                break;
            }
        }
        // Acquire: pairs with the Release of `look`: the readers that it has seen past have ended.
        let oldest = self.times.oldest.load(Ordering::Acquire);
        if own.collect == Collect::Aggressive {
            // Relaxed: a number.
            self.slots[own.worker].hits.store(own.hits, Ordering::Relaxed);
            self.sweep(cx, own, oldest);
            return;
        }
        while own.waiting.front().is_some_and(|first| first.end <= oldest) {
            if let Some(first) = own.waiting.pop_front() {
                cx.reuse_version(first.version);
            }
        }
        trim_queue(&mut own.waiting);
    }

    /// Reuses what is older than all that run; and of the rest what is older than all but the long transactions, and not needed by these.
    fn sweep(&self, cx: &mut Context<M>, own: &mut Replaced<M>, oldest: u64) {
        let Replaced { waiting, sweep, .. } = own;
        if !sweep.read(&self.long, oldest) {
            return;
        }
        if !sweep.fresh.is_empty() {
            sweep.keep_fresh(cx, waiting);
        }
        while waiting.front().is_some_and(|first| first.end <= sweep.settled) {
            let Some(first) = waiting.pop_front() else { break };
            if first.is_free(oldest) {
                first.reuse(cx, oldest);
            } else {
                sweep.kept.push(first.keep());
            }
        }
        if sweep.kept.is_empty() {
            // What others have left is looked after when there is nothing else to do.
            let left = self.left.try_lock().map(|mut left| std::mem::take(&mut *left)).unwrap_or_default();
            sweep.kept.extend(left.into_iter().flatten().map(Replacement::keep));
        }
        let added = sweep.kept.len().saturating_sub(sweep.left);
        for _ in 0..(LOOK_AGAIN_AT + 2 * added).min(sweep.kept.len()) {
            if sweep.cursor >= sweep.kept.len() {
                (sweep.cursor, sweep.passes) = (0, sweep.passes + 1);
            }
            let Kept { begin, is_safe, spared, version: again } = &sweep.kept[sweep.cursor];
            let is_old = again.end <= oldest;
            let is_needed = !is_old && (again.end > sweep.settled || sweep.keeps(*begin, again.end));
            if is_needed && *is_safe && (sweep.cursor + sweep.passes) % TOUCH_EVERY != 0 {
                // It is far away; only now and then it is looked whether another has taken it out, as one too many.
                sweep.cursor += 1;
                continue;
            }
            if !is_needed && !is_old && *spared < SPARED_MAX {
                // If those who were there have ended soon as well, its record need not be touched: that may be far away.
                sweep.kept[sweep.cursor].spared += 1;
                sweep.cursor += 1;
                continue;
            }
            let may_ask = !is_old && again.leads_to_its_record(cx);
            let is_safe = *is_safe || may_ask && is_needed && again.is_kept_for(sweep);
            if !is_needed && may_ask {
                again.cells().filter(|copy| chain::is_kept(*copy)).for_each(|copy| sweep.prune(copy));
            }
            if if is_needed { again.is_out() } else { again.is_free(oldest) } {
                sweep.kept.swap_remove(sweep.cursor).version.reuse(cx, oldest);
            } else {
                sweep.kept[sweep.cursor].is_safe = is_safe;
                sweep.cursor += 1;
            }
        }
        sweep.left = sweep.kept.len();
        trim_queue(waiting);
    }

    /// How many old versions of a record's first cell are kept.
    pub(crate) fn older_versions(&self, record: Record<M>) -> u64 {
        // Relaxed: nobody runs.
        chain::length(record.first_cell(), self.times.oldest.load(Ordering::Relaxed))
    }

    /// The worker pauses: what still waits others look after; or, if as of what somebody may see the epochs know nothing, the worker itself when it goes
    /// on, or others when it has ended.
    pub(crate) fn rest(&self, cx: &mut Context<M>, own: &mut Replaced<M>) {
        if own.collect == Collect::Aggressive {
            // Relaxed: a number.
            self.slots[own.worker].hits.store(0, Ordering::Relaxed);
            let waiting = own.waiting.drain(..).chain(own.sweep.kept.drain(..).map(|kept| kept.version));
            let waiting = waiting.collect::<VecDeque<_>>();
            if !waiting.is_empty() {
                self.left.lock().push(waiting);
            }
        } else if !self.snapshots {
            let epoch = cx.current_epoch();
            own.waiting.drain(..).for_each(|replacement| cx.retire_version(replacement.version, epoch));
        }
        own.low = 0;
        // Relaxed: as in `began`.
        self.slots[own.worker].stamp.store(0, Ordering::Relaxed);
        // Release, both: as in `enter`.
        self.slots[own.worker].snapshot.store(PAUSED, Ordering::Release);
        self.slots[own.worker].low.store(PAUSED, Ordering::Release);
    }
}

impl<M: Machine> Long<M> {
    /// Tells the transactions that began before the low time that was before this one from the others. Not if another does it now.
    fn write(&self, slots: &[CachePadded<Slot<M>>], low: u64, snapshots: bool) {
        // Relaxed in all of it: a guess; but for the edition, which says whether it was written meanwhile.
        let edition = self.edition.load(Ordering::Relaxed);
        if edition % 2 == 1
            || self.edition.compare_exchange(edition, edition + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Release: the odd edition comes before the rest; pairs with the Acquire fence of `Sweep::read`.
        M::fence(Ordering::Release);
        let previous = self.previous.load(Ordering::Relaxed);
        let protected = self.protected.load(Ordering::Relaxed);
        let (mut horizon, mut count, mut protected_stamp, mut most) = (low, 0, NO_STAMP, (PATIENCE - 1, 0));
        let mut is_protected_still = false;
        for (slot, number) in slots.iter().zip(1..) {
            let hits = slot.hits.load(Ordering::Relaxed);
            is_protected_still |= number == protected && hits > 0;
            if hits > most.0 {
                most = (hits, number);
            }
            let began = slot.low.load(Ordering::Relaxed);
            if began >= previous {
                let snapshot = if snapshots { slot.snapshot.load(Ordering::Relaxed) } else { began };
                horizon = horizon.min(began).min(snapshot);
                continue;
            }
            let stamp = slot.stamp.load(Ordering::Relaxed);
            self.stamps[count].store(stamp, Ordering::Relaxed);
            count += 1;
            if number == protected {
                protected_stamp = stamp;
            }
        }
        if !is_protected_still {
            self.protected.store(most.1, Ordering::Relaxed);
            protected_stamp = NO_STAMP;
        }
        self.protected_stamp.store(protected_stamp, Ordering::Relaxed);
        self.count.store(count as u64, Ordering::Relaxed);
        self.horizon.store(horizon, Ordering::Relaxed);
        self.previous.store(low, Ordering::Relaxed);
        // Release: pairs with the Acquire of `Sweep::read`.
        self.edition.store(edition + 2, Ordering::Release);
    }
}

/// Whether one of these timestamps, which are in order, is `begin` or later, and before `end`.
#[inline(always)]
fn lies_between(stamps: &[u64], begin: u64, end: u64) -> bool {
    let first = stamps.partition_point(|stamp| *stamp < begin);
    stamps.get(first).is_some_and(|stamp| *stamp < end)
}

impl<M: Machine> Sweep<M> {
    /// Learns who runs for long; `false` if it is being written.
    fn read(&mut self, long: &Long<M>, oldest: u64) -> bool {
        // Acquire: pairs with the Release of `Long::write`.
        let edition = long.edition.load(Ordering::Acquire);
        let horizon = long.horizon.load(Ordering::Relaxed);
        let protected = long.protected_stamp.load(Ordering::Relaxed);
        let count = (long.count.load(Ordering::Relaxed) as usize).min(long.stamps.len());
        self.fresh.clear();
        self.fresh.extend(long.stamps[..count].iter().map(|stamp| stamp.load(Ordering::Relaxed)));
        // Acquire: the rest comes before; pairs with the Release fence of `Long::write`.
        M::fence(Ordering::Acquire);
        if edition % 2 == 1 || long.edition.load(Ordering::Relaxed) != edition {
            return false;
        }
        if edition != std::mem::replace(&mut self.edition, edition) {
            (self.settled, self.horizon, self.protected) = (self.horizon, horizon, protected);
            std::mem::swap(&mut self.needed, &mut self.fresh);
            self.needed.sort_unstable();
            // Now the former.
            self.fresh.sort_unstable();
            let (needed, former) = (&self.needed, std::mem::take(&mut self.fresh));
            self.fresh.extend(needed.iter().filter(|stamp| former.binary_search(stamp).is_err()));
        } else {
            self.fresh.clear();
        }
        (self.settled, self.horizon) = (self.settled.max(oldest), self.horizon.max(oldest));
        true
    }

    /// Whether a transaction that runs for long sees what was the newest version from `begin` to `end`.
    #[inline(always)]
    fn is_needed(&self, begin: u64, end: u64) -> bool {
        lies_between(&self.needed, begin, end)
    }

    fn is_protected(&self, begin: u64, end: u64) -> bool {
        (begin..end).contains(&self.protected)
    }

    /// Whether what was the newest version from `begin` to `end` is to be kept, if it is the only one of its cell.
    #[inline(always)]
    fn keeps(&self, begin: u64, end: u64) -> bool {
        self.max > 0 && self.is_needed(begin, end) || self.is_protected(begin, end)
    }

    /// Whether there may be versions of a cell, older than this one, that somebody needs: as a rule nobody does, and their lines are far away.
    #[inline(always)]
    fn may_be_crowded(&self, begin: u64) -> bool {
        self.needed.first().is_some_and(|oldest| *oldest < begin)
    }

    /// Says of versions of a cell, between which times they were the newest, from the younger to the older, which are to be kept.
    fn wants(&self) -> impl FnMut(u64, u64) -> bool {
        let mut kept = 0;
        move |begin, end| {
            if self.is_protected(begin, end) {
                return true;
            }
            let keep = end > self.horizon || kept < self.max && self.is_needed(begin, end);
            kept += usize::from(keep);
            keep
        }
    }

    /// Takes what nobody needs, or is too much, out of the chain of what is kept that this copy is in.
    fn prune(&self, copy: Cell<M>) {
        if chain::is_linked(copy) {
            chain::prune(copy, self.wants());
        }
    }

    /// The same, of a cell that the worker has claimed.
    fn prune_cell(&self, cell: Cell<M>) {
        chain::prune_cell(cell, None, self.wants());
    }

    /// Keeps those of the versions that wait that a transaction needs of which it was not known that it runs for long.
    #[cold]
    fn keep_fresh(&mut self, cx: &Context<M>, waiting: &mut VecDeque<Replacement<M>>) {
        for _ in 0..waiting.len() {
            let Some(version) = waiting.pop_front() else { break };
            let needed_by = |copy, stamps: &[u64]| lies_between(stamps, chain::begin_of(copy), version.end);
            if !version
                .cells()
                .any(|copy| needed_by(copy, &self.fresh) && self.keeps(chain::begin_of(copy), version.end))
            {
                waiting.push_back(version);
                continue;
            }
            let is_safe = version.leads_to_its_record(cx) && version.is_kept_for(self);
            self.kept.push(Kept { is_safe, ..version.keep() });
        }
    }
}

impl<M: Machine> Replacement<M> {
    fn cells(&self) -> impl Iterator<Item = Cell<M>> {
        self.version.cells(self.groups)
    }

    fn keep(self) -> Kept<M> {
        let begin = self.cells().map(chain::begin_of).min().unwrap_or(0);
        Kept { begin, is_safe: false, spared: 0, version: self }
    }

    /// Puts those of its cells into the chain of what is kept that are needed; `false` if another works there.
    fn is_kept_for(&self, sweep: &Sweep<M>) -> bool {
        let kept = self.cells().filter(|copy| chain::is_linked(*copy) && sweep.keeps(chain::begin_of(*copy), self.end));
        let is_kept = |copy| {
            let is_safe = chain::keep(copy);
            if sweep.may_be_crowded(chain::begin_of(copy)) {
                sweep.prune(copy);
            }
            is_safe
        };
        // All of them, whatever becomes of the first.
        kept.filter(|copy| !is_kept(*copy)).count() == 0
    }

    /// Whether its record can't have left its table, and been used for another, since it was replaced.
    fn leads_to_its_record(&self, cx: &Context<M>) -> bool {
        (cx.began_in() as u32).wrapping_sub(self.epoch) as i32 <= 1
    }

    /// Whether all of its cells have been taken out of their chains.
    fn is_out(&self) -> bool {
        self.cells().all(|copy| !chain::is_linked(copy))
    }

    /// Takes it out of use, if nobody is going to look for it where it is. Nobody needs it, and all who began before the oldest time have ended.
    fn is_free(&self, oldest: u64) -> bool {
        let is_free = |copy| {
            let is_passed = self.end > oldest && chain::is_kept(copy);
            if is_passed { !chain::is_linked(copy) } else { chain::take(copy) }
        };
        // As above.
        self.cells().filter(|copy| !is_free(*copy)).count() == 0
    }

    fn reuse(self, cx: &mut Context<M>, oldest: u64) {
        chain::give_back::<M>();
        cx.versions.collected_early += u64::from(self.end > oldest);
        cx.reuse_version(self.version);
    }
}
