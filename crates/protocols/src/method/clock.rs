//! Loosely synchronised clocks: each worker makes its timestamps itself (H. Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast
//! multi-core in-memory transactions", SIGMOD 2017, section 3.1).
//!
//! A worker's clock goes on with its core's, by one tick at least from timestamp to timestamp. Now and then it looks at another worker's
//! clock, and takes it over if that is ahead. After an abort the timestamps are a little larger than the clock (a *boost*), so that
//! the next try comes later than who was in the way.
//!
//! **Boundaries.** A clock by itself says nothing about who has ended. The epochs do: the first worker that begins in an epoch sets the epoch's
//! boundary, which no timestamp that was made before is past, and each worker's clock is past it before it makes a timestamp in that epoch. So
//! who has a timestamp up to the boundary began in an earlier epoch; and when a worker begins in epoch `e`, all who have one up to the boundary of
//! `e - 1` have ended.

use std::sync::Arc;

use contend_machine::{Activity, Atomic64, Cycles, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

/// Boundaries that are kept: a worker asks for that of its own epoch, and nobody is more than one epoch behind.
const BOUNDARIES: usize = 4;

/// What the workers share.
#[derive(Debug)]
pub struct Clocks<M: Machine> {
    /// The core's clock when the first worker began; 0 before.
    origin: CachePadded<M::U64>,
    /// By worker: its clock when it last made a timestamp. Written by it alone.
    clocks: Box<[CachePadded<M::U64>]>,
    /// Workers from this number on have not been there yet.
    used: CachePadded<M::U64>,
    boundaries: [CachePadded<Boundary<M>>; BOUNDARIES],
    boost: Cycles,
    sync_every: Cycles,
}

#[derive(Debug)]
struct Boundary<M: Machine> {
    /// The epoch whose boundary somebody sets, or has set.
    claimed: M::U64,
    /// The epoch whose boundary is set.
    epoch: M::U64,
    stamp: M::U64,
}

impl<M: Machine> Clocks<M> {
    /// For workers numbered below `workers`, with a boost of so many nanoseconds, which look at another's clock every so many.
    pub fn new(workers: usize, boost_ns: u64, sync_every_ns: u64) -> Arc<Self> {
        let word = || M::U64::new(0);
        let cycles = |ns: u64| (ns as f64 * M::cycles_per_second() / 1e9) as Cycles;
        Arc::new(Clocks {
            origin: CachePadded::new(word()),
            clocks: (0..workers).map(|_| CachePadded::new(word())).collect(),
            used: CachePadded::new(word()),
            boundaries: std::array::from_fn(|_| {
                CachePadded::new(Boundary { claimed: word(), epoch: word(), stamp: word() })
            }),
            boost: cycles(boost_ns),
            sync_every: cycles(sync_every_ns),
        })
    }

    /// The clock of one worker.
    pub fn of_worker(self: &Arc<Self>, worker: usize) -> Clock<M> {
        // Relaxed: whoever has to know of the worker's timestamps begins in a later epoch than it does.
        self.used.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        Clock {
            shared: Arc::clone(self),
            worker,
            peer: worker,
            ticks: 0,
            seen: 0,
            synced: 0,
            floor: 0,
            boosted: false,
            epoch: 0,
        }
    }
}

/// One worker's clock.
#[derive(Debug)]
pub struct Clock<M: Machine> {
    shared: Arc<Clocks<M>>,
    worker: usize,
    /// Whom it looked at last.
    peer: usize,
    /// The time.
    ticks: Cycles,
    /// The core's clock at that time.
    seen: Cycles,
    /// The core's clock when it last looked at another.
    synced: Cycles,
    /// No timestamp is to be made at an earlier time.
    floor: Cycles,
    boosted: bool,
    /// The epoch in which it was last used.
    epoch: u64,
}

impl<M: Machine> Clock<M> {
    /// The next timestamp, in this epoch. Unique among all workers, and larger than the worker's last.
    #[inline]
    pub fn stamp(&mut self, epoch: u64) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        let now = M::now();
        self.ticks += now.saturating_sub(self.seen).max(1);
        self.seen = now;
        if epoch != self.epoch {
            self.enter(epoch);
        } else if now - self.synced >= self.shared.sync_every {
            self.synchronise();
        }
        self.ticks = self.ticks.max(self.floor);
        if self.boosted {
            self.ticks += self.shared.boost;
            self.boosted = false;
        }
        // Relaxed: who has to know is in a later epoch, and has seen this worker end in this one.
        self.shared.clocks[self.worker].store(self.ticks, Ordering::Relaxed);
        M::enter(phase);
        self.stamp_at(self.ticks)
    }

    fn stamp_at(&self, ticks: Cycles) -> u64 {
        ticks * self.shared.clocks.len() as u64 + self.worker as u64
    }

    /// The worker's time, which is not before any timestamp of its own.
    pub fn now(&self) -> u64 {
        self.stamp_at(self.ticks)
    }

    /// No timestamp is to be before this time.
    pub fn begin_at(&mut self, time: u64) {
        self.floor = time / self.shared.clocks.len() as u64 + 1;
    }

    /// The transaction was aborted: the next timestamp is to be a little larger.
    pub fn boost(&mut self) {
        self.boosted = true;
    }

    /// The clocks of the workers that are there, or were.
    fn others(&self) -> &[CachePadded<M::U64>] {
        // Relaxed: as in `of_worker`.
        &self.shared.clocks[..self.shared.used.load(Ordering::Relaxed) as usize]
    }

    /// Looks at another's clock.
    #[cold]
    fn synchronise(&mut self) {
        self.synced = self.seen;
        self.peer = (self.peer + 1) % self.others().len();
        // Relaxed: a hint.
        self.ticks = self.ticks.max(self.others()[self.peer].load(Ordering::Relaxed));
    }

    /// The first timestamp in an epoch.
    #[cold]
    fn enter(&mut self, epoch: u64) {
        if self.epoch == 0 {
            // Relaxed, all of them: a clock orders nothing by itself.
            let origin = &self.shared.origin;
            let first = match origin.compare_exchange(0, self.seen.max(1), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => self.seen.max(1),
                Err(origin) => origin,
            };
            self.ticks = self.seen.saturating_sub(first) + 1;
            self.synced = self.seen;
        }
        self.epoch = epoch;
        let own = self.boundary(epoch);
        self.ticks = self.ticks.max(own / self.shared.clocks.len() as u64 + 1);
    }

    /// The boundary of an epoch, which is set now if it was not.
    fn boundary(&self, epoch: u64) -> u64 {
        let boundary = &self.shared.boundaries[epoch as usize % BOUNDARIES];
        let mut spin = Spin::<M>::new();
        loop {
            // Acquire: pairs with the Release below.
            if boundary.epoch.load(Ordering::Acquire) == epoch {
                // Relaxed: ordered by the load before.
                return boundary.stamp.load(Ordering::Relaxed);
            }
            // Relaxed: the exchange decides.
            let claimed = boundary.claimed.load(Ordering::Relaxed);
            if claimed < epoch
                && boundary.claimed.compare_exchange(claimed, epoch, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                // Relaxed: as above.
                let latest = self.others().iter().map(|clock| clock.load(Ordering::Relaxed)).max().unwrap_or(0);
                let stamp = (latest.max(self.ticks) + 1) * self.shared.clocks.len() as u64;
                // Relaxed: published by the next store.
                boundary.stamp.store(stamp, Ordering::Relaxed);
                // Release: pairs with the Acquire above.
                boundary.epoch.store(epoch, Ordering::Release);
                return stamp;
            }
            spin.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn stamps_are_unique_and_rise() {
        const WORKERS: usize = 4;
        let shared = Clocks::<Native>::new(WORKERS, 1_000, 10_000);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let mut clock = shared.of_worker(worker);
                    scope.spawn(move || {
                        let stamps: Vec<u64> = (0..5_000)
                            .map(|number| {
                                if number % 7 == 0 {
                                    clock.boost();
                                }
                                clock.stamp(2)
                            })
                            .collect();
                        assert!(stamps.is_sorted_by(|a, b| a < b));
                        stamps
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5_000 * WORKERS);
    }

    #[test]
    fn stamps_of_an_epoch_are_past_its_boundary_whoevers_clock_is_behind() {
        let shared = Clocks::<Native>::new(2, 1_000, u64::MAX);
        let (mut ahead, mut behind) = (shared.of_worker(0), shared.of_worker(1));
        let first = behind.stamp(2);
        ahead.stamp(2);
        ahead.ticks += 1 << 40;
        let last = ahead.stamp(2);
        assert!(behind.stamp(2) < last, "clocks of one epoch need not agree");
        assert!(first < last);
        // Whoever sets the boundary of epoch 3, it is past all that was before.
        assert!(behind.stamp(3) > last);
    }
}
