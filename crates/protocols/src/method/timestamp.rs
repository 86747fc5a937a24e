//! Where timestamps come from (X. Yu et al.: "Staring into the abyss", VLDB 2014, section 4.3; figure 6 compares them).
//!
//! | source | order | cost |
//! | --- | --- | --- |
//! | `mutex` | that of real time | a lock's hand-over for each |
//! | `atomic` | that of real time | the counter's line, from core to core |
//! | `batched` | of one worker's its own | a batch's share of that |
//! | `clock` | that of the clocks, which must agree | none |
//! | `hardware` | that of real time | a message to the chip's centre, where the machine has an adder there |
//!
//! All are unique, and those of one worker rise.

use std::sync::Arc;

use contend_engine::{option_choices, options};
use contend_machine::{Activity, Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

/// Where timestamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A counter under a lock, for which workers queue (MCS: J. Mellor-Crummey, M. Scott, ACM TOCS 1991).
    Mutex,
    /// A counter that is added to atomically.
    Atomic,
    /// The same, by as many as a batch has, which the worker then hands out by itself.
    Batched,
    /// The core's clock, with the worker's number.
    Clock,
    /// A counter that the machine's own hardware adds to.
    Hardware,
}

option_choices!(Source {
    Mutex => "mutex", Atomic => "atomic", Batched => "batched", Clock => "clock", Hardware => "hardware",
});

options! {
    /// Options of timestamps.
    pub struct TimestampOptions {
        /// Where timestamps come from: a counter under a lock, one that is added to atomically, or in batches, the cores' clocks, or
        /// an adder in the chip's centre, which only a simulated chip has.
        "timestamp.source" source: Source = Source::Atomic, in ();
        /// Timestamps of a batch.
        "timestamp.batch" batch: u64 = 16, in 1..=1_000_000;
    }
}

/// A source whose timestamps have the order of real time.
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
    /// Options of timestamps that must have the order of real time.
    pub struct OrderedTimestampOptions {
        /// Where timestamps come from: a counter under a lock, one that is added to atomically, or an adder in the chip's centre, which
        /// only a simulated chip has. Other sources do not keep the order of real time.
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

/// What the workers share.
#[derive(Debug)]
pub struct Timestamps<M: Machine> {
    options: TimestampOptions,
    counter: CachePadded<M::U64>,
    /// The last worker in the lock's queue, plus one; 0 if nobody holds it.
    tail: CachePadded<M::U64>,
    /// By worker: its place in the queue.
    places: Box<[Place<M>]>,
}

/// A worker's place in the lock's queue.
#[derive(Debug)]
struct Place<M: Machine> {
    /// Whether it waits: written by the worker before it.
    waits: CachePadded<M::U64>,
    /// The worker behind it, plus one; 0 if none has said so.
    next: CachePadded<M::U64>,
}

impl<M: Machine> Timestamps<M> {
    /// For workers numbered below `workers`.
    pub fn new(options: TimestampOptions, workers: usize) -> Arc<Self> {
        let word = || CachePadded::new(M::U64::new(0));
        let places = (0..workers).map(|_| Place { waits: word(), next: word() }).collect();
        // Not from 0, which is before all timestamps.
        Arc::new(Timestamps { options, counter: CachePadded::new(M::U64::new(1)), tail: word(), places })
    }

    /// The same source, from its beginning, for so many workers.
    pub fn resized(&self, workers: usize) -> Arc<Self> {
        Self::new(self.options.clone(), workers)
    }

    /// The part of one worker.
    ///
    /// # Panics
    /// The worker's number is not below the number of workers.
    pub fn of_worker(self: &Arc<Self>, worker: usize) -> Stamper<M> {
        assert!(worker < self.places.len(), "worker {worker} of {}", self.places.len());
        Stamper { shared: Arc::clone(self), worker, next: 0, end: 0 }
    }

    fn locked_add(&self, worker: usize) -> u64 {
        let own = &self.places[worker];
        // Relaxed: the exchange publishes both.
        own.waits.store(1, Ordering::Relaxed);
        own.next.store(0, Ordering::Relaxed);
        // AcqRel: Release for the place; Acquire pairs with the Release that let the last holder go.
        let before = self.tail.swap(worker as u64 + 1, Ordering::AcqRel);
        if before != 0 {
            // Release: the place is ready; pairs with the Acquire below.
            self.places[before as usize - 1].next.store(worker as u64 + 1, Ordering::Release);
            let mut spin = Spin::<M>::new();
            // Acquire: pairs with the Release by which the holder hands over.
            while own.waits.load(Ordering::Acquire) != 0 {
                spin.wait();
            }
        }
        // Relaxed, both: under the lock.
        let stamp = self.counter.load(Ordering::Relaxed);
        self.counter.store(stamp + 1, Ordering::Relaxed);
        // Acquire: pairs with the Release of the worker behind.
        let mut next = own.next.load(Ordering::Acquire);
        if next == 0 {
            // Release: the counter; pairs with the Acquire of the next swap.
            if self.tail.compare_exchange(worker as u64 + 1, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return stamp;
            }
            let mut spin = Spin::<M>::new();
            while next == 0 {
                spin.wait();
                next = own.next.load(Ordering::Acquire);
            }
        }
        // Release: hands the counter over; pairs with the Acquire of the wait.
        self.places[next as usize - 1].waits.store(0, Ordering::Release);
        stamp
    }
}

/// One worker's part.
#[derive(Debug)]
pub struct Stamper<M: Machine> {
    shared: Arc<Timestamps<M>>,
    worker: usize,
    /// The rest of a batch; the last stamp and nothing, where stamps come one by one.
    next: u64,
    end: u64,
}

impl<M: Machine> Stamper<M> {
    /// What is left of a batch is not handed out any more.
    pub fn drop_batch(&mut self) {
        if self.shared.options.source == Source::Batched {
            self.end = self.next;
        }
    }

    /// A time up to which no timestamp is made any more by who calls [`Stamper::begin_at`] with it before.
    pub fn now(&self) -> u64 {
        match self.shared.options.source {
            Source::Clock => M::now() * self.shared.places.len() as u64,
            // Relaxed: a timestamp orders nothing by itself.
            _ => self.shared.counter.load(Ordering::Relaxed),
        }
    }

    /// No timestamp is to be before this time, which [`Stamper::now`] has told somebody.
    pub fn begin_at(&mut self, time: u64) {
        self.drop_batch();
        if self.shared.options.source == Source::Clock {
            // Another core's clock may be a little ahead.
            self.next = self.next.max(time / self.shared.places.len() as u64);
        }
    }

    /// The next timestamp.
    #[inline]
    pub fn stamp(&mut self) -> u64 {
        let phase = M::phase();
        M::enter(phase.doing(Activity::Timestamp));
        M::step("timestamp");
        let shared = &self.shared;
        let stamp = match shared.options.source {
            Source::Mutex => shared.locked_add(self.worker),
            // Relaxed, here and below: a timestamp orders nothing by itself.
            Source::Atomic => shared.counter.fetch_add(1, Ordering::Relaxed),
            Source::Batched => {
                if self.next == self.end {
                    self.next = shared.counter.fetch_add(shared.options.batch, Ordering::Relaxed);
                    self.end = self.next + shared.options.batch;
                }
                self.next += 1;
                self.next - 1
            }
            Source::Clock => {
                // A clock may stand still from one call to the next, or, on another core, be behind.
                self.next = M::now().max(self.next + 1);
                self.next * shared.places.len() as u64 + self.worker as u64
            }
            Source::Hardware => M::central_add(&shared.counter, 1),
        };
        M::enter(phase);
        stamp
    }
}

/// A timestamp that a transaction keeps from try to try: it gets older, and does not starve.
#[derive(Debug)]
pub struct KeptStamp<M: Machine> {
    source: Stamper<M>,
    /// 0: the next transaction needs a new one.
    stamp: u64,
}

impl<M: Machine> KeptStamp<M> {
    /// Of this source.
    pub fn new(source: Stamper<M>) -> Self {
        KeptStamp { source, stamp: 0 }
    }

    /// A transaction begins, or begins again: its timestamp, which is never 0.
    #[inline(always)]
    pub fn begin(&mut self) -> u64 {
        if self.stamp == 0 {
            self.stamp = self.source.stamp();
        }
        self.stamp
    }

    /// It has ended: for good, or to be tried again.
    #[inline(always)]
    pub fn end(&mut self, for_good: bool) {
        if for_good {
            self.stamp = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn a_stamp_is_kept_until_the_transaction_ends_for_good() {
        let shared = Timestamps::<Native>::new(TimestampOptions { source: Source::Atomic, batch: 1 }, 1);
        let mut kept = KeptStamp::new(shared.of_worker(0));
        let first = kept.begin();
        kept.end(false);
        assert_eq!(kept.begin(), first);
        kept.end(true);
        assert!(kept.begin() > first);
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
