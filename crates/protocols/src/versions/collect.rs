//! When old versions are reused.
//!
//! | `versions.collect` | a version is reused when all have ended who began |
//! | --- | --- |
//! | `epoch` | in the epoch in which it was replaced, or the one after: the engine's epochs, of 40 ms |
//! | `rapid` | before it was replaced: looked at once in `versions.interval_us` |
//!
//! **Rapid collection** (H. Lim et al.: "Cicada", SIGMOD 2017, section 3.8; CCBench's RapidGC). Once in an interval one of the workers says which
//! time it is: a *low* time, that no transaction is before that begins from then on. A worker that begins a transaction and finds a new low time
//! leaves it in a slot of its own. So no running transaction is before the least of the slots, and what was replaced by then is nobody's. The one
//! who says the next low time looks at the slots, for all; each worker reuses what it has replaced itself. A worker that finds nothing new
//! reads one line, and writes none.
//!
//! **Orderings** are those of the engine's epochs: a worker stores its slot and then looks whether the low time is still the same, who
//! collects reads the low time and then the slots, with a SeqCst fence between on each side. Who is not seen there sees that low time, or a later.

use std::collections::VecDeque;

use contend_engine::{Context, OldVersion, option_choices, options};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};
use crossbeam_utils::CachePadded;

/// When old versions are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Two of the engine's epochs later.
    Epoch,
    /// As soon as no transaction runs that began before they were replaced.
    Rapid,
}

option_choices!(Collect { Epoch => "epoch", Rapid => "rapid" });

options! {
    /// Options of old versions.
    pub struct CollectOptions {
        /// When old versions are reused: two of the engine's epochs later, or as soon as no transaction runs that began before they were replaced.
        "versions.collect" collect: Collect = Collect::Rapid, in ();
        /// With rapid collection: how often it is looked which versions nobody needs, in microseconds. With 0, before every transaction.
        "versions.interval_us" interval_us: u64 = 100, in 0..=1_000_000;
    }
}

/// A worker looks at the clock once in so many transactions.
const LOOK_EVERY: u32 = 8;
/// In a slot: this worker pauses.
const PAUSED: u64 = u64::MAX;

/// What the workers share.
#[derive(Debug)]
pub(crate) struct Collector<M: Machine> {
    options: CollectOptions,
    /// Cycles from one low time to the next; none with epochs.
    interval: Option<Cycles>,
    times: CachePadded<Times<M>>,
    /// By worker: the low time that it saw when it began its last transaction. Written by it alone.
    slots: Box<[CachePadded<M::U64>]>,
    /// Workers from this number on have not been there yet.
    used: CachePadded<M::U64>,
}

#[derive(Debug)]
struct Times<M: Machine> {
    /// No transaction that begins from now on is before this time.
    low: M::U64,
    /// Nor is any that runs before this one.
    oldest: M::U64,
    /// The core's clock when the low time was set.
    looked_at: M::U64,
}

/// The versions that a worker has replaced, and that wait to be reused.
#[derive(Debug)]
pub(crate) struct Replaced<M: Machine> {
    worker: usize,
    by_epochs: bool,
    /// The low time in the worker's slot; 0 if it pauses.
    low: u64,
    /// Transactions since it looked at the clock.
    begun: u32,
    /// With the timestamps by which they were replaced, which rise.
    waiting: VecDeque<(u64, OldVersion<M>)>,
}

impl<M: Machine> Replaced<M> {
    /// The transaction of this timestamp, which commits in this epoch, has replaced a version.
    #[inline(always)]
    pub(super) fn push(&mut self, cx: &mut Context<M>, version: OldVersion<M>, stamp: u64, epoch: u64) {
        if self.by_epochs {
            cx.retire_version(version, epoch);
        } else {
            self.waiting.push_back((stamp, version));
        }
    }
}

impl<M: Machine> Collector<M> {
    /// For workers numbered below `workers`.
    pub(crate) fn new(options: CollectOptions, workers: usize) -> Self {
        let word = |value| M::U64::new(value);
        let cycles = |us: u64| (us as f64 * M::cycles_per_second() / 1e6) as Cycles;
        Collector {
            interval: (options.collect == Collect::Rapid).then(|| cycles(options.interval_us)),
            times: CachePadded::new(Times { low: word(1), oldest: word(0), looked_at: word(0) }),
            slots: (0..workers).map(|_| CachePadded::new(word(PAUSED))).collect(),
            used: CachePadded::new(word(0)),
            options,
        }
    }

    /// The same, before anybody has begun, for so many workers.
    pub(crate) fn resized(&self, workers: usize) -> Self {
        Self::new(self.options.clone(), workers)
    }

    /// The part of one worker.
    pub(crate) fn of_worker(&self, worker: usize) -> Replaced<M> {
        // Relaxed: the fence in `enter` makes it visible together with the slot's first time.
        self.used.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        Replaced { worker, by_epochs: self.interval.is_none(), low: 0, begun: 0, waiting: VecDeque::with_capacity(256) }
    }

    /// The worker begins a transaction, which has no timestamp yet. `now` says a time that no timestamp is before that is taken after. Returned
    /// is the low time, if it is another than before: the transaction must not have an earlier timestamp.
    #[inline(always)]
    pub(crate) fn begin(&self, cx: &mut Context<M>, own: &mut Replaced<M>, now: impl FnOnce() -> u64) -> Option<u64> {
        let interval = self.interval?;
        own.begun += 1;
        if own.begun >= LOOK_EVERY || interval == 0 {
            own.begun = 0;
            self.look(interval, now);
        }
        // Acquire: pairs with the Release of `look`: the transaction's timestamp comes after.
        if self.times.low.load(Ordering::Acquire) == own.low {
            return None;
        }
        self.enter(cx, own);
        Some(own.low)
    }

    /// Sets a new low time, if it is time, and looks at the slots.
    #[inline]
    fn look(&self, interval: Cycles, now: impl FnOnce() -> u64) {
        let at = M::now();
        // Relaxed: the exchange decides who does it.
        let looked_at = self.times.looked_at.load(Ordering::Relaxed);
        if at.wrapping_sub(looked_at) < interval
            || self.times.looked_at.compare_exchange(looked_at, at, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        M::step("collect");
        let low = self.times.low.load(Ordering::Acquire);
        // SeqCst: pairs with the fence in `enter`.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let used = self.used.load(Ordering::Relaxed) as usize;
        // Acquire: pairs with the Release stores of `enter` and `rest`: what those workers have read they have read.
        let oldest = self.slots[..used].iter().map(|slot| slot.load(Ordering::Acquire)).fold(low, u64::min);
        // Release, both: pair with the Acquire of `begin` and `enter`.
        self.times.oldest.fetch_max(oldest, Ordering::Release);
        self.times.low.fetch_max(now(), Ordering::Release);
    }

    /// Leaves the low time in the worker's slot, and reuses what nobody can need.
    #[cold]
    fn enter(&self, cx: &mut Context<M>, own: &mut Replaced<M>) {
        loop {
            let low = self.times.low.load(Ordering::Acquire);
            // Release: what the worker has read before it has read; pairs with the Acquire of `look`.
            self.slots[own.worker].store(low, Ordering::Release);
            // SeqCst: pairs with the fence in `look`.
            M::fence(Ordering::SeqCst);
            if self.times.low.load(Ordering::Acquire) == low {
                own.low = low;
                break;
            }
        }
        // Acquire: pairs with the Release of `look`: the readers that it has seen past have ended.
        let oldest = self.times.oldest.load(Ordering::Acquire);
        while own.waiting.front().is_some_and(|(stamp, _)| *stamp <= oldest) {
            if let Some((_, version)) = own.waiting.pop_front() {
                cx.reuse_version(version);
            }
        }
    }

    /// The worker pauses: what still waits goes the way of epochs, which others look after.
    pub(crate) fn rest(&self, cx: &mut Context<M>, own: &mut Replaced<M>) {
        let epoch = cx.current_epoch();
        own.waiting.drain(..).for_each(|(_, version)| cx.retire_version(version, epoch));
        own.low = 0;
        // Release: as in `enter`.
        self.slots[own.worker].store(PAUSED, Ordering::Release);
    }
}
