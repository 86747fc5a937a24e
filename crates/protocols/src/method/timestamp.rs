//! Timestamp allocation (X. Yu et al.: "Staring into the abyss", VLDB 2014, section 4.3; its figure
//! 6 compares the sources).
//!
//! | source | order of the timestamps | cost of one |
//! | --- | --- | --- |
//! | `mutex` | real time | a hand-over of the mutex |
//! | `atomic` | real time | the counter's cache line moves from core to core |
//! | `batched` | allocation, within one worker only | that of `atomic`, divided by the batch |
//! | `clock` | the cores' clocks, which must agree | none |
//! | `hardware` | real time | a message to the adder in the chip's centre, if the machine has one |
//!
//! With each source a timestamp is unique, and the timestamps of one worker rise.

use std::sync::Arc;

use contend_engine::{AbortReason, option_choices, options};
use contend_machine::{Activity, Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use super::ticks::{Ticks, stamp_at};

/// The source of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A counter under a queue lock (MCS: J. Mellor-Crummey, M. Scott, ACM TOCS 1991).
    Mutex,
    /// A counter that workers increment atomically.
    Atomic,
    /// A counter from which a worker takes a batch at once, to allocate timestamps from it without
    /// the counter.
    Batched,
    /// The core's clock, with the worker's number to make it unique.
    Clock,
    /// A counter that an adder in the chip's centre increments.
    Hardware,
}

option_choices!(Source {
    Mutex => "mutex", Atomic => "atomic", Batched => "batched", Clock => "clock", Hardware => "hardware",
});

options! {
    /// Options of timestamps.
    pub struct TimestampOptions {
        /// The source of timestamps: a counter under a mutex, one that workers increment
        /// atomically, the same in batches, the cores' clocks, or an adder in the chip's centre,
        /// which only a simulated chip has.
        "timestamp.source" source: Source = Source::Atomic, in ();
        /// Timestamps in a batch.
        "timestamp.batch" batch: u64 = 16, in 1..=1_000_000;
    }
}

/// A source that allocates timestamps in the order of real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderedSource {
    /// [`Source::Mutex`].
    Mutex,
    /// [`Source::Atomic`].
    Atomic,
    /// [`Source::Hardware`].
    Hardware,
}

option_choices!(OrderedSource { Mutex => "mutex", Atomic => "atomic", Hardware => "hardware" });

options! {
    /// Options of timestamps that must be in the order of real time.
    pub struct OrderedTimestampOptions {
        /// The source of timestamps: a counter under a mutex, one that workers increment
        /// atomically, or an adder in the chip's centre, which only a simulated chip has. Other
        /// sources don't keep the order of real time.
        "timestamp.source" source: OrderedSource = OrderedSource::Atomic, in ();
    }
}

impl From<OrderedTimestampOptions> for TimestampOptions {
    fn from(options: OrderedTimestampOptions) -> Self {
        let source = match options.source {
            OrderedSource::Mutex => Source::Mutex,
            OrderedSource::Atomic => Source::Atomic,
            OrderedSource::Hardware => Source::Hardware,
        };
        TimestampOptions { source, ..TimestampOptions::default() }
    }
}

/// A source of timestamps, which all workers share.
#[derive(Debug)]
pub struct Timestamps<M: Machine> {
    options: TimestampOptions,
    /// For [`Source::Clock`].
    ticks: Ticks,
    counter: CachePadded<M::U64>,
    /// The number of the last worker in the mutex's queue, plus one; 0 if the mutex is free.
    tail: CachePadded<M::U64>,
    /// The places in the queue by worker.
    places: Box<[Place<M>]>,
}

/// A worker's place in the mutex's queue: a node of the MCS lock.
#[derive(Debug)]
struct Place<M: Machine> {
    /// 1 while the worker waits. The worker before it in the queue sets it to 0.
    waits: CachePadded<M::U64>,
    /// The number of the next worker in the queue, plus one; 0 until that worker has stored it.
    next: CachePadded<M::U64>,
}

impl<M: Machine> Timestamps<M> {
    /// Returns the source for workers with numbers below `workers`.
    pub fn new(options: TimestampOptions, workers: usize) -> Arc<Self> {
        let word = || CachePadded::new(M::U64::new(0));
        let places = (0..workers).map(|_| Place { waits: word(), next: word() }).collect();
        // The first is 1: time 0 is before all timestamps.
        let ticks = Ticks::new::<M>();
        Arc::new(Timestamps { options, ticks, counter: CachePadded::new(M::U64::new(1)), tail: word(), places })
    }

    /// Returns a new source with the same options, for workers with numbers below `workers`.
    pub fn resized(&self, workers: usize) -> Arc<Self> {
        Self::new(self.options.clone(), workers)
    }

    /// Returns the part of one worker.
    ///
    /// # Panics
    /// `worker` is not below the number of workers.
    pub fn of_worker(self: &Arc<Self>, worker: usize) -> Stamper<M> {
        assert!(worker < self.places.len(), "worker {worker} of {}", self.places.len());
        Stamper { shared: Arc::clone(self), worker, next: 0, end: 0 }
    }

    /// Increments the counter under the MCS lock, and returns its value before.
    fn locked_add(&self, worker: usize) -> u64 {
        let own = &self.places[worker];
        // Relaxed, both: the swap below publishes the place to the worker behind this one.
        own.waits.store(1, Ordering::Relaxed);
        own.next.store(0, Ordering::Relaxed);
        // AcqRel. Release: this worker's place is reset before the next worker of the queue can
        // find it; pairs with the Acquire of that worker's swap. Acquire: the last holder left a
        // free mutex by the exchange below; pairs with its Release.
        let before = self.tail.swap(worker as u64 + 1, Ordering::AcqRel);
        if before != 0 {
            // Release: pairs with the Acquire of `own.next` below, in the worker before: its
            // hand-over stores to this worker's `waits` after this worker's own stores to its
            // place.
            self.places[before as usize - 1].next.store(worker as u64 + 1, Ordering::Release);
            let mut spin = Spin::<M>::new();
            // Acquire: pairs with the Release at the end. There the holder hands over the mutex and
            // the counter.
            while own.waits.load(Ordering::Acquire) != 0 {
                spin.wait();
            }
        }
        // Relaxed, both: only the holder touches the counter, and the mutex orders the holders.
        let stamp = self.counter.load(Ordering::Relaxed);
        self.counter.store(stamp + 1, Ordering::Relaxed);
        // Acquire, here and in the loop: pairs with the Release by which the worker behind stores
        // its number.
        let mut next = own.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: pairs with the Acquire of the next worker's swap, which then reads the
            // counter. The exchange fails if a worker has put itself behind this one since; its
            // number is then on the way to `own.next`.
            if self.tail.compare_exchange(worker as u64 + 1, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return stamp;
            }
            let mut spin = Spin::<M>::new();
            while next == 0 {
                spin.wait();
                // Acquire: as above.
                next = own.next.load(Ordering::Acquire);
            }
        }
        // Release: hands the counter over; pairs with the Acquire of the next holder's wait.
        self.places[next as usize - 1].waits.store(0, Ordering::Release);
        stamp
    }
}

/// A worker's part of a source: it allocates the worker's timestamps.
#[derive(Debug)]
pub struct Stamper<M: Machine> {
    shared: Arc<Timestamps<M>>,
    worker: usize,
    /// The next timestamp of the batch. With [`Source::Clock`]: the tick of the last timestamp.
    next: u64,
    /// The end of the batch.
    end: u64,
}

impl<M: Machine> Stamper<M> {
    /// Drops the rest of the batch, whose timestamps may be older than those of other workers.
    pub fn drop_batch(&mut self) {
        if self.shared.options.source == Source::Batched {
            self.end = self.next;
        }
    }

    /// Returns a time. A worker that calls [`Stamper::begin_at`] with it allocates no timestamp
    /// below it any more.
    pub fn now(&self) -> u64 {
        match self.shared.options.source {
            Source::Clock => stamp_at(self.shared.ticks.now::<M>(), 0, self.shared.places.len()),
            // Relaxed: the protocol orders what its transactions do; a timestamp only names their
            // order.
            _ => self.shared.counter.load(Ordering::Relaxed),
        }
    }

    /// Raises the worker's next timestamp to `time` or later. `time` is from [`Stamper::now`], of
    /// any worker.
    pub fn begin_at(&mut self, time: u64) {
        self.drop_batch();
        if self.shared.options.source == Source::Clock {
            // Another core's clock may be a little ahead.
            self.next = self.next.max(time / self.shared.places.len() as u64);
        }
    }

    /// Returns the worker's next timestamp.
    #[inline]
    pub fn stamp(&mut self) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        let shared = &self.shared;
        let stamp = match shared.options.source {
            Source::Mutex => shared.locked_add(self.worker),
            // Relaxed, here and below: the counter's own order makes timestamps unique. The
            // protocol orders all other accesses.
            Source::Atomic => shared.counter.fetch_add(1, Ordering::Relaxed),
            Source::Batched => {
                if self.next == self.end {
                    // Relaxed: as for one timestamp, the counter's order makes batches disjoint.
                    self.next = shared.counter.fetch_add(shared.options.batch, Ordering::Relaxed);
                    self.end = self.next + shared.options.batch;
                }
                self.next += 1;
                self.next - 1
            }
            Source::Clock => {
                // The clock can stand still between two calls. It can go back when the thread moves
                // to another core.
                self.next = shared.ticks.now::<M>().max(self.next + 1);
                stamp_at(self.next, self.worker, shared.places.len())
            }
            Source::Hardware => M::central_add(&shared.counter, 1),
        };
        M::enter(phase);
        stamp
    }
}

/// The end of a transaction. It decides what its worker keeps for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction has committed, or its code has given it up: the worker's next transaction is
    /// another one.
    Finished,
    /// The transaction has aborted because of a conflict: the worker's next transaction is the same
    /// one again.
    WillRetry,
}

impl Outcome {
    /// Returns the outcome of a transaction that aborts for this reason.
    #[inline(always)]
    pub fn of_abort(reason: AbortReason) -> Outcome {
        if reason.is_conflict() { Outcome::WillRetry } else { Outcome::Finished }
    }
}

/// A timestamp that a transaction retains when it aborts and is tried again. So at some time it is
/// the oldest, and does not starve.
#[derive(Debug)]
pub struct RetainedTimestamp<M: Machine> {
    source: Stamper<M>,
    /// 0 if the next transaction needs a new one.
    timestamp: u64,
    is_tried_again: bool,
}

impl<M: Machine> RetainedTimestamp<M> {
    /// Returns a worker's timestamp, to be allocated from `source` at its first transaction.
    pub fn new(source: Stamper<M>) -> Self {
        RetainedTimestamp { source, timestamp: 0, is_tried_again: false }
    }

    /// Begins a transaction, or begins it again, and returns its timestamp, which is never 0.
    #[inline(always)]
    pub fn begin(&mut self) -> u64 {
        if self.timestamp == 0 {
            self.timestamp = self.source.stamp();
        }
        self.timestamp
    }

    /// Ends the transaction. Its next try has the same timestamp, another transaction a new one.
    #[inline(always)]
    pub fn end(&mut self, outcome: Outcome) {
        self.is_tried_again = outcome != Outcome::Finished;
        if outcome == Outcome::Finished {
            self.timestamp = 0;
        }
    }

    /// Returns whether the transaction that has begun was aborted before by a conflict.
    pub fn is_tried_again(&self) -> bool {
        self.is_tried_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn a_timestamp_is_retained_until_the_transaction_is_finished() {
        let shared = Timestamps::<Native>::new(TimestampOptions { source: Source::Atomic, batch: 1 }, 1);
        let mut retained = RetainedTimestamp::new(shared.of_worker(0));
        let first = retained.begin();
        assert!(!retained.is_tried_again());
        retained.end(Outcome::WillRetry);
        assert_eq!((retained.begin(), retained.is_tried_again()), (first, true));
        retained.end(Outcome::Finished);
        assert!(retained.begin() > first && !retained.is_tried_again());
    }

    #[test]
    fn every_source_is_unique_and_rises_for_each_worker() {
        const WORKERS: usize = 4;
        const STAMPS: usize = 5_000;
        for source in [Source::Mutex, Source::Atomic, Source::Batched, Source::Clock, Source::Hardware] {
            let shared = Timestamps::<Native>::new(TimestampOptions { source, batch: 7 }, WORKERS);
            let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..WORKERS)
                    .map(|worker| {
                        let mut stamper = shared.of_worker(worker);
                        scope.spawn(move || (0..STAMPS).map(|_| stamper.stamp()).collect())
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            for stamps in &all {
                assert!(stamps.is_sorted_by(|a, b| a < b), "{source:?}");
            }
            let mut together: Vec<u64> = all.into_iter().flatten().collect();
            together.sort_unstable();
            together.dedup();
            assert_eq!(together.len(), WORKERS * STAMPS, "{source:?}");
            assert!(together[0] > 0, "{source:?}");
        }
    }
}
