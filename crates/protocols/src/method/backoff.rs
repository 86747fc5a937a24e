//! What a worker does between an abort and the next try.
//!
//! Waiting keeps those who have lost a conflict from causing the next one. How long is best depends on the workload: *fixed* is the same for
//! all; *exponential* doubles
//! the wait with each abort of one transaction; *adaptive* climbs towards the wait with the highest throughput of all workers together
//! (H. Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast multi-core in-memory transactions", SIGMOD 2017, section 3.9).
//!
//! A wait never happens inside a transaction: no lock is held.

use std::sync::Arc;

use contend_engine::{option_choices, options};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};

use crossbeam_utils::CachePadded;

use super::pass;

/// How long to wait after an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all; but after several aborts in a row the core is offered to other threads.
    None,
    /// Always as long.
    Fixed,
    /// A random time up to a bound that doubles with each abort of the transaction.
    Exponential,
    /// A random time up to a bound that all workers share and that climbs towards the highest throughput.
    Adaptive,
}

option_choices!(Method { None => "none", Fixed => "fixed", Exponential => "exponential", Adaptive => "adaptive" });

options! {
    /// Options of trying again.
    pub struct RetryOptions {
        /// How long a worker waits after an abort before it tries again: not at all, always as long, up to a bound that doubles with each abort,
        /// or up to a bound that climbs towards the highest throughput (Cicada).
        "retry.backoff" backoff: Method = Method::None, in ();
        /// Fixed: how long; exponential: the first bound; in microseconds.
        "retry.min_us" min_us: u64 = 1, in 1..=1_000_000;
        /// The largest bound, in microseconds. Cicada uses 1000.
        "retry.max_us" max_us: u64 = 1_000, in 1..=1_000_000;
    }
}

/// How often the adaptive bound is reconsidered (Cicada: 5 ms).
const CLIMB_EVERY_US: f64 = 5_000.0;
/// By how much it changes (Cicada: 0.5 us).
const STEP_US: f64 = 0.5;
/// A transaction that is aborted more often in a row gives its core away each time, whatever the method: where threads share cores,
/// the one that is in its way may be waiting for this core.
const GIVE_WAY_AFTER: u32 = 8;
/// A worker looks at the clock once in so many commits.
const CLOCK_EVERY: u64 = 16;

/// What the workers share.
#[derive(Debug)]
pub struct Backoff<M: Machine> {
    options: RetryOptions,
    cycles_per_us: f64,
    /// The adaptive bound in cycles: read at every abort, written once in 5 ms.
    bound: CachePadded<M::U64>,
    climb: CachePadded<Climb<M>>,
    /// Commits of each worker, written by it alone.
    commits: Box<[CachePadded<M::U64>]>,
}

/// The memory of the hill climbing. Each word is written by the worker that has won the interval; two that overlap (the first
/// was descheduled for a whole interval) can at worst take one step in the wrong direction.
#[derive(Debug)]
struct Climb<M: Machine> {
    climbed_at: M::U64,
    /// All commits until then.
    commits: M::U64,
    /// Bits of the last throughput, in commits per cycle.
    throughput: M::U64,
    /// Bits of the last change of the bound, in microseconds.
    change: M::U64,
}

impl<M: Machine> Backoff<M> {
    /// For workers numbered below `workers`.
    pub fn new(options: RetryOptions, workers: usize) -> Arc<Self> {
        Arc::new(Backoff {
            options,
            cycles_per_us: M::cycles_per_second() / 1e6,
            bound: CachePadded::new(M::U64::new(0)),
            climb: CachePadded::new(Climb {
                climbed_at: M::U64::new(M::now()),
                commits: M::U64::new(0),
                throughput: M::U64::new(0),
                change: M::U64::new(0),
            }),
            commits: (0..workers).map(|_| CachePadded::new(M::U64::new(0))).collect(),
        })
    }

    /// The part of one worker. The same seed waits the same.
    ///
    /// # Panics
    /// The worker's number is not below the number of workers.
    pub fn retry(self: &Arc<Self>, worker: usize, seed: u64) -> Retry<M> {
        assert!(worker < self.commits.len(), "worker {worker} of {}", self.commits.len());
        // Relaxed: only this worker writes it.
        let commits = self.commits[worker].load(Ordering::Relaxed);
        Retry { shared: Arc::clone(self), worker, random: seed | 1, attempts: 0, commits }
    }

    /// The adaptive bound, in microseconds.
    pub fn bound_us(&self) -> f64 {
        // Relaxed: a hint.
        self.bound.load(Ordering::Relaxed) as f64 / self.cycles_per_us
    }

    #[cold]
    fn maybe_climb(&self, now: Cycles, random: u64) {
        let climb = &self.climb;
        // Relaxed, here and below: the exchange chooses the one that climbs; all other words are hints.
        let climbed_at = climb.climbed_at.load(Ordering::Relaxed);
        let elapsed = now.wrapping_sub(climbed_at);
        if (elapsed as f64) < CLIMB_EVERY_US * self.cycles_per_us
            || climb.climbed_at.compare_exchange(climbed_at, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let commits = self.commits.iter().map(|commits| commits.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        let since = commits.wrapping_sub(climb.commits.swap(commits, Ordering::Relaxed));
        let throughput = since as f64 / elapsed as f64;
        let last_throughput = f64::from_bits(climb.throughput.swap(throughput.to_bits(), Ordering::Relaxed));
        let gain = throughput - last_throughput;
        let last_change = f64::from_bits(climb.change.load(Ordering::Relaxed));
        let step = STEP_US * elapsed as f64 / (CLIMB_EVERY_US * self.cycles_per_us);
        let bound = self.bound_us();
        let next = next_bound(bound, self.options.max_us as f64, step, gain * last_change, random & 1 == 0);
        climb.change.store((next - bound).to_bits(), Ordering::Relaxed);
        self.bound.store((next * self.cycles_per_us) as u64, Ordering::Relaxed);
    }
}

/// One step of the climb: on in the direction that has paid (`gradient`'s sign), back from a limit, and in a random direction if
/// nothing can be said.
fn next_bound(bound: f64, max: f64, step: f64, gradient: f64, random_up: bool) -> f64 {
    let up = if bound <= 0.0 {
        true
    } else if bound >= max {
        false
    } else if gradient == 0.0 {
        random_up
    } else {
        gradient > 0.0
    };
    (if up { bound + step } else { bound - step }).clamp(0.0, max)
}

/// One worker's part: to be told of every commit and every abort.
#[derive(Debug)]
pub struct Retry<M: Machine> {
    shared: Arc<Backoff<M>>,
    worker: usize,
    random: u64,
    /// Aborts of the transaction so far.
    attempts: u32,
    commits: u64,
}

impl<M: Machine> Retry<M> {
    /// The transaction has committed, or has been given up.
    #[inline(always)]
    pub fn done(&mut self) {
        self.attempts = 0;
        if self.shared.options.backoff == Method::Adaptive {
            self.count();
        }
    }

    #[inline]
    fn count(&mut self) {
        self.commits += 1;
        // Relaxed: a hint for whoever climbs.
        self.shared.commits[self.worker].store(self.commits, Ordering::Relaxed);
        if self.commits.is_multiple_of(CLOCK_EVERY) {
            let random = self.next_random();
            self.shared.maybe_climb(M::now(), random);
        }
    }

    /// The transaction was aborted: waits, unless the method is not to.
    #[inline]
    pub fn aborted(&mut self) {
        self.attempts += 1;
        let bound = self.bound();
        if bound == 0 {
            if self.attempts > GIVE_WAY_AFTER {
                M::yield_now();
            }
        } else if self.shared.options.backoff == Method::Fixed {
            pass::<M>(bound);
        } else {
            let random = self.next_random();
            // A product of 64 x 64 bits keeps its upper half: a uniform number below the bound.
            pass::<M>(((u128::from(random) * u128::from(bound)) >> 64) as u64);
        }
    }

    /// The longest wait after this abort, in cycles.
    fn bound(&self) -> Cycles {
        let options = &self.shared.options;
        match options.backoff {
            Method::None => 0,
            Method::Fixed => (options.min_us as f64 * self.shared.cycles_per_us) as u64,
            Method::Exponential => {
                let doubled = options.min_us.saturating_mul(1 << (self.attempts - 1).min(30));
                (doubled.min(options.max_us) as f64 * self.shared.cycles_per_us) as u64
            }
            // Relaxed: a hint.
            Method::Adaptive => self.shared.bound.load(Ordering::Relaxed),
        }
    }

    /// Xorshift64* (Vigna, ACM TOMS 2016): waits need no better.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    fn options(backoff: Method) -> RetryOptions {
        RetryOptions { backoff, min_us: 1, max_us: 64 }
    }

    #[test]
    fn the_exponential_bound_doubles_up_to_its_limit() {
        let shared = Backoff::<Native>::new(options(Method::Exponential), 1);
        let mut retry = shared.retry(0, 7);
        let mut bounds = Vec::new();
        for _ in 0..9 {
            retry.attempts += 1;
            bounds.push((retry.bound() as f64 / shared.cycles_per_us).round() as u64);
        }
        assert_eq!(bounds, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        retry.done();
        assert_eq!(retry.attempts, 0);
    }

    #[test]
    fn a_fixed_wait_is_as_long_each_time() {
        let shared = Backoff::<Native>::new(RetryOptions { min_us: 50, ..options(Method::Fixed) }, 1);
        let mut retry = shared.retry(0, 7);
        for _ in 0..3 {
            let start = Native::now();
            retry.aborted();
            assert!((Native::now() - start) as f64 >= 49.0 * shared.cycles_per_us);
        }
    }

    #[test]
    fn no_method_does_not_wait() {
        let shared = Backoff::<Native>::new(options(Method::None), 1);
        let mut retry = shared.retry(0, 7);
        retry.aborted();
        assert_eq!(retry.bound(), 0);
    }

    #[test]
    fn the_climb_finds_the_top() {
        // A throughput with one maximum, at a bound of 20.
        let throughput = |bound: f64| 1000.0 - (bound - 20.0).powi(2);
        let (mut bound, mut last_bound, mut last) = (0.0, 0.0, 0.0);
        for round in 0..200 {
            let now = throughput(bound);
            let next = next_bound(bound, 64.0, 0.5, (now - last) * (bound - last_bound), round % 3 == 0);
            (last, last_bound, bound) = (now, bound, next);
        }
        assert!((18.0..=22.0).contains(&bound), "the bound ended at {bound}");
    }

    #[test]
    fn the_climb_leaves_its_limits() {
        assert_eq!(next_bound(0.0, 64.0, 0.5, -1.0, false), 0.5);
        assert_eq!(next_bound(64.0, 64.0, 0.5, 1.0, true), 63.5);
        assert_eq!(next_bound(0.25, 64.0, 0.5, -1.0, true), 0.0);
    }

    #[test]
    fn adaptive_workers_move_the_bound() {
        let shared = Backoff::<Native>::new(options(Method::Adaptive), 2);
        let mut retry = shared.retry(1, 7);
        let start = Native::now();
        while shared.bound_us() == 0.0 {
            retry.done();
            assert!(Native::now() - start < (60.0 * Native::cycles_per_second()) as u64, "the bound never moved");
        }
        assert!(shared.bound_us() > 0.0);
        retry.aborted();
    }
}
