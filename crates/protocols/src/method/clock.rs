//! Loosely synchronised clocks: each worker allocates its timestamps from a clock of its own (H.
//! Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast multi-core in-memory transactions",
//! SIGMOD 2017, section 3.1).
//!
//! A worker's clock advances with its core's clock, by at least one tick between two timestamps. At
//! an interval the worker compares its clock with one other worker's, and takes that over if it is
//! ahead (*one-sided synchronisation*). After an abort the next timestamp is a little larger than
//! the clock (a *clock boost*), so that the next try comes later than the transaction it conflicted
//! with.
//!
//! **Boundaries.** A clock alone does not tell which transactions have ended; the engine's epochs
//! do. Each epoch has a boundary, a time that the first worker to begin in the epoch sets:
//!
//! 1. Every timestamp that was allocated before the boundary was set is at most the boundary.
//! 2. A worker raises its clock above the boundary before it allocates a timestamp in the epoch.
//!
//! So a transaction with a timestamp up to the boundary of an epoch began in an earlier epoch. When
//! a worker begins in epoch `e`, every transaction of epoch `e - 2` and before has ended, and so
//! every transaction with a timestamp up to the boundary of `e - 1`.

use std::sync::Arc;

use contend_machine::{Activity, Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use super::ticks::{self, Ticks};

/// Boundaries that are kept. A worker asks for that of its own epoch. A worker that holds back the
/// epoch is at most one behind the global one. A reader of a snapshot holds back none, and may be
/// any number of epochs behind: it takes a later boundary.
const BOUNDARIES: usize = 4;

/// The clocks of all workers, and the boundaries of the epochs.
#[derive(Debug)]
pub struct Clocks<M: Machine> {
    /// What a core's clock says.
    ticks: Ticks,
    /// By worker, its clock at its last timestamp. Each worker stores its own entry only.
    clocks: Box<[CachePadded<M::U64>]>,
    /// One more than the largest number of a worker so far.
    used: CachePadded<M::U64>,
    boundaries: [CachePadded<Boundary<M>>; BOUNDARIES],
    /// In ticks.
    boost: u64,
    /// In ticks.
    sync_every: u64,
}

#[derive(Debug)]
struct Boundary<M: Machine> {
    /// The newest epoch whose boundary a worker sets, or has set.
    claimed: M::U64,
    /// The epoch of the boundary in `stamp`.
    epoch: M::U64,
    /// The boundary, as a timestamp.
    stamp: M::U64,
}

impl<M: Machine> Clocks<M> {
    /// Returns the clocks of workers with numbers below `workers`. `boost_ns` is the boost after an
    /// abort, and `sync_every_ns` the time between two comparisons with another worker's clock,
    /// both in nanoseconds.
    pub fn new(workers: usize, boost_ns: u64, sync_every_ns: u64) -> Arc<Self> {
        let word = || M::U64::new(0);
        let ticks = Ticks::new::<M>();
        Arc::new(Clocks {
            ticks,
            clocks: (0..workers).map(|_| CachePadded::new(word())).collect(),
            used: CachePadded::new(word()),
            boundaries: std::array::from_fn(|_| {
                CachePadded::new(Boundary { claimed: word(), epoch: word(), stamp: word() })
            }),
            boost: ticks.of_ns::<M>(boost_ns),
            sync_every: ticks.of_ns::<M>(sync_every_ns),
        })
    }

    /// Returns the clock of one worker.
    pub fn of_worker(self: &Arc<Self>, worker: usize) -> Clock<M> {
        // Relaxed: a worker that must know of this one's timestamps begins in a later epoch, and
        // the engine's epochs order the two.
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
    /// The worker whose clock it was compared with last.
    peer: usize,
    /// The tick of the last timestamp.
    ticks: u64,
    /// The core's clock at that time, in ticks.
    seen: u64,
    /// The core's clock at the last comparison with another worker's.
    synced: u64,
    /// The least tick of the next timestamp.
    floor: u64,
    /// Whether the next timestamp is boosted.
    boosted: bool,
    /// The epoch of the last timestamp; 0 before the first.
    epoch: u64,
}

impl<M: Machine> Clock<M> {
    /// Returns the next timestamp of a transaction that begins in `epoch`. It is unique among all
    /// workers, and larger than the worker's last.
    #[inline]
    pub fn stamp(&mut self, epoch: u64) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        let now = self.shared.ticks.now::<M>();
        self.ticks += now.saturating_sub(self.seen).max(1);
        self.seen = now;
        if epoch != self.epoch {
            self.enter(epoch);
        } else if now.saturating_sub(self.synced) >= self.shared.sync_every {
            self.synchronise();
        }
        self.ticks = self.ticks.max(self.floor);
        if self.boosted {
            self.ticks += self.shared.boost;
            self.boosted = false;
        }
        // Relaxed: read as a hint by `synchronise`, and by the worker that sets a boundary. That
        // worker is in a later epoch, and the engine's epochs order this store before it.
        self.shared.clocks[self.worker].store(self.ticks, Ordering::Relaxed);
        M::enter(phase);
        self.stamp_at(self.ticks)
    }

    fn stamp_at(&self, ticks: u64) -> u64 {
        ticks::stamp_at(ticks, self.worker, self.shared.clocks.len())
    }

    /// Returns the time of the worker's last timestamp.
    pub fn now(&self) -> u64 {
        self.stamp_at(self.ticks)
    }

    /// Raises the worker's next timestamps above `time`.
    pub fn begin_at(&mut self, time: u64) {
        self.floor = time / self.shared.clocks.len() as u64 + 1;
    }

    /// Boosts the next timestamp, because the transaction was aborted.
    pub fn boost(&mut self) {
        self.boosted = true;
    }

    /// Returns the clocks of all workers so far, this one's included.
    fn others(&self) -> &[CachePadded<M::U64>] {
        // Relaxed: `of_worker` says why each worker that matters is seen.
        &self.shared.clocks[..self.shared.used.load(Ordering::Relaxed) as usize]
    }

    /// Compares the clock with another worker's, and takes that over if it is ahead.
    #[cold]
    fn synchronise(&mut self) {
        self.synced = self.seen;
        self.peer = (self.peer + 1) % self.others().len();
        // Relaxed: a hint. A clock that is behind costs aborts, and breaks nothing.
        self.ticks = self.ticks.max(self.others()[self.peer].load(Ordering::Relaxed));
    }

    /// Raises the clock above the boundary of `epoch`, before the worker's first timestamp there.
    #[cold]
    fn enter(&mut self, epoch: u64) {
        if self.epoch == 0 {
            self.ticks = self.seen + 1;
            self.synced = self.seen;
        }
        self.epoch = epoch;
        let own = self.boundary(epoch);
        self.ticks = self.ticks.max(own / self.shared.clocks.len() as u64 + 1);
    }

    /// Returns the boundary of `epoch`, or of a later epoch that has taken its place. The first
    /// worker to ask for a boundary sets it. A later boundary is larger, and being above it is
    /// being above that of `epoch`, too.
    fn boundary(&self, epoch: u64) -> u64 {
        let boundary = &self.shared.boundaries[epoch as usize % BOUNDARIES];
        let mut spin = Spin::<M>::new();
        loop {
            // Acquire: pairs with the Release below; the boundary is that of this epoch, or of a
            // later one.
            if boundary.epoch.load(Ordering::Acquire) >= epoch {
                // Relaxed: the Acquire load before orders it.
                return boundary.stamp.load(Ordering::Relaxed);
            }
            // Relaxed, both: the exchange lets one worker set the boundary; its Release below
            // publishes it.
            let claimed = boundary.claimed.load(Ordering::Relaxed);
            if claimed < epoch
                && boundary.claimed.compare_exchange(claimed, epoch, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                // Relaxed: the workers whose timestamps the boundary must not fall below were seen
                // to end in an earlier epoch, so the engine's epochs order their stores before this
                // load (`stamp`).
                let latest = self.others().iter().map(|clock| clock.load(Ordering::Relaxed)).max().unwrap_or(0);
                let stamp = ticks::stamp_at(latest.max(self.ticks) + 1, 0, self.shared.clocks.len());
                // Relaxed: the next store publishes it.
                boundary.stamp.store(stamp, Ordering::Relaxed);
                // Release: publishes the boundary; pairs with the Acquire above.
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

    /// A reader of a snapshot may be delayed between its look at the epoch and its timestamp, while
    /// other workers go on by more epochs than there are boundaries.
    #[test]
    fn a_worker_that_is_epochs_behind_takes_a_later_boundary() {
        let shared = Clocks::<Native>::new(2, 0, u64::MAX);
        let (mut ahead, mut behind) = (shared.of_worker(0), shared.of_worker(1));
        for epoch in 1..4 * BOUNDARIES as u64 {
            let latest = ahead.stamp(epoch);
            // This epoch's boundary has taken the place of those of the same remainder.
            for late in (1..epoch).filter(|late| late % BOUNDARIES as u64 == epoch % BOUNDARIES as u64) {
                behind.epoch = 0;
                assert!(behind.stamp(late) >= latest, "epoch {late} in epoch {epoch}");
            }
        }
    }

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
        // The boundary of epoch 3 is above all earlier timestamps, whichever worker sets it.
        assert!(behind.stamp(3) > last);
    }
}
