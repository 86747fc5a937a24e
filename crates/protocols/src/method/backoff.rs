//! Backoff: the wait between an abort and the next try of the transaction.
//!
//! Backoff keeps a transaction that lost a conflict from causing the next one. The best wait
//! depends on the workload:
//!
//! - *fixed*: the same wait after each abort;
//! - *exponential*: the bound of a random wait doubles with each abort of one transaction;
//! - *adaptive*: all workers share one bound, which climbs towards the highest throughput of all
//!   together (H. Lim, M. Kaminsky, D. G. Andersen: "Cicada: dependably fast multi-core in-memory
//!   transactions", SIGMOD 2017, section 3.9, "contention regulation").
//!
//! A worker backs off between transactions only, so it holds no lock meanwhile.

use std::sync::Arc;

use contend_engine::{option_choices, options};
use contend_machine::{Atomic64, Cycles, Machine, Ordering};
use contend_model::random::{Xorshift64Star, below};

use crossbeam_utils::CachePadded;

use super::spin_for;

/// The wait of a worker after an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffPolicy {
    /// No wait. After several aborts in a row the worker yields its core to other threads.
    None,
    /// The same time after each abort.
    Fixed,
    /// A random time up to a bound that doubles with each abort of the transaction.
    Exponential,
    /// A random time up to a bound that all workers share, and that climbs towards the highest
    /// throughput.
    Adaptive,
}

option_choices!(BackoffPolicy { None => "none", Fixed => "fixed", Exponential => "exponential", Adaptive => "adaptive" });

options! {
    /// Options of trying an aborted transaction again.
    pub struct RetryOptions {
        /// The wait between an abort and the next try: none; fixed; exponential, a random time up
        /// to a bound that doubles with each abort; or adaptive, a random time up to a bound that
        /// climbs towards the highest throughput (Cicada).
        "retry.backoff" backoff: BackoffPolicy = BackoffPolicy::None, in ();
        /// The wait if it is fixed, the first bound if it is exponential, in microseconds.
        "retry.min_us" min_us: u64 = 1, in 1..=1_000_000;
        /// The largest bound, in microseconds. Cicada uses 1000.
        "retry.max_us" max_us: u64 = 1_000, in 1..=1_000_000;
    }
}

/// Microseconds between two steps of the adaptive bound (Cicada: 5 ms).
const CLIMB_EVERY_US: f64 = 5_000.0;
/// Microseconds by which one step changes the adaptive bound (Cicada: 0.5 us).
const STEP_US: f64 = 0.5;
/// Aborts of one transaction after which its worker yields the core at each further one, if it
/// doesn't wait. Where threads share cores, the transaction that is in the way may need this core
/// to end.
const GIVE_WAY_AFTER: u32 = 8;
/// Commits of a worker between two of its looks at the clock. A look also loads the line of
/// [`Climb`], which the winner of an interval stores to.
const CLOCK_EVERY: u64 = 16;

/// The state of backoff that all workers share.
#[derive(Debug)]
pub struct Backoff<M: Machine> {
    options: RetryOptions,
    cycles_per_us: f64,
    /// The adaptive bound in cycles. Workers load it at each abort; one of them stores it once in 5
    /// ms. Its line changes only then, so a worker finds it in its own cache in between.
    bound: CachePadded<M::U64>,
    climb: CachePadded<Climb<M>>,
    /// Commits by worker. Each worker stores its own entry only, by a plain store to a line that
    /// stays in its cache. One common counter would move to another core with each commit.
    commits: Box<[CachePadded<M::U64>]>,
}

/// The state of the hill climbing.
///
/// The worker that wins the exchange of `climbed_at` takes the step and stores the other words. A
/// worker that loses its core for a whole interval can overlap with the next winner. The two then
/// mix the words of two intervals, which costs at worst one step in the wrong direction.
#[derive(Debug)]
struct Climb<M: Machine> {
    /// The clock at the last step, in cycles.
    climbed_at: M::U64,
    /// The commits of all workers at the last step.
    commits: M::U64,
    /// The throughput of the last interval in commits per cycle, as the bits of an `f64`.
    throughput: M::U64,
    /// The last change of the bound in microseconds, as the bits of an `f64`.
    change: M::U64,
}

impl<M: Machine> Backoff<M> {
    /// Returns the shared state for workers with numbers below `workers`.
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

    /// Returns the backoff of one worker. With the same `seed` it draws the same waits.
    ///
    /// # Panics
    /// `worker` is not below the number of workers.
    pub fn retry(self: &Arc<Self>, worker: usize, seed: u64) -> Retry<M> {
        assert!(worker < self.commits.len(), "worker {worker} of {}", self.commits.len());
        // Relaxed: only the worker of this number stores here.
        let commits = self.commits[worker].load(Ordering::Relaxed);
        Retry { shared: Arc::clone(self), worker, random: Xorshift64Star::new(seed | 1), attempts: 0, commits }
    }

    /// Returns the adaptive bound in microseconds.
    pub fn bound_us(&self) -> f64 {
        // Relaxed: a hint for the length of a wait; no other data depends on it.
        self.bound.load(Ordering::Relaxed) as f64 / self.cycles_per_us
    }

    /// Takes a step of the climb, if an interval is over and no other worker takes it.
    #[cold]
    fn maybe_climb(&self, now: Cycles, random: u64) {
        let climb = &self.climb;
        // All accesses are Relaxed. The exchange of `climbed_at` lets one worker win each interval.
        // The other words are statistics: a stale value makes a wait a little longer or shorter,
        // and breaks nothing. Relaxed, both: the exchange fails if the loaded value is stale.
        let climbed_at = climb.climbed_at.load(Ordering::Relaxed);
        let elapsed = now.wrapping_sub(climbed_at);
        if (elapsed as f64) < CLIMB_EVERY_US * self.cycles_per_us
            || climb.climbed_at.compare_exchange(climbed_at, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Relaxed, all three: each worker's commits are its own count. The last two words belong to
        // the worker that wins an interval.
        let commits = self.commits.iter().map(|commits| commits.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        let since = commits.wrapping_sub(climb.commits.swap(commits, Ordering::Relaxed));
        let throughput = since as f64 / elapsed as f64;
        // Relaxed: as the commits.
        let last_throughput = f64::from_bits(climb.throughput.swap(throughput.to_bits(), Ordering::Relaxed));
        let gain = throughput - last_throughput;
        // Relaxed: stored by the winner of the interval before.
        let last_change = f64::from_bits(climb.change.load(Ordering::Relaxed));
        let step = STEP_US * elapsed as f64 / (CLIMB_EVERY_US * self.cycles_per_us);
        let bound = self.bound_us();
        // The last change was right if the throughput has grown since. So the sign of the product
        // says whether the next step goes up: the same way after a gain, else back.
        let next = next_bound(bound, self.options.max_us as f64, step, gain * last_change, random & 1 == 0);
        // Relaxed, both: `change` is for the next winner, and the bound is a hint (`bound_us`).
        climb.change.store((next - bound).to_bits(), Ordering::Relaxed);
        self.bound.store((next * self.cycles_per_us) as u64, Ordering::Relaxed);
    }
}

/// Returns the bound after one step of the climb. The step goes away from a limit, else in the
/// direction that raised the throughput (the sign of `gradient`), else, at a gradient of 0, up if
/// `random_up`.
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

/// The backoff of one worker. Its caller reports each commit and each abort.
#[derive(Debug)]
pub struct Retry<M: Machine> {
    shared: Arc<Backoff<M>>,
    worker: usize,
    random: Xorshift64Star,
    /// Aborts of the running transaction.
    attempts: u32,
    commits: u64,
}

impl<M: Machine> Retry<M> {
    /// Ends the transaction's tries: it has committed, or its caller has given it up.
    #[inline(always)]
    pub fn done(&mut self) {
        self.attempts = 0;
        if self.shared.options.backoff == BackoffPolicy::Adaptive {
            self.count();
        }
    }

    #[inline]
    fn count(&mut self) {
        self.commits += 1;
        // Relaxed: read by the worker that takes a step, as a statistic (`maybe_climb`). A commit
        // that is seen late counts in the next interval.
        self.shared.commits[self.worker].store(self.commits, Ordering::Relaxed);
        if self.commits.is_multiple_of(CLOCK_EVERY) {
            let random = self.random.draw();
            self.shared.maybe_climb(M::now(), random);
        }
    }

    /// Waits as the policy says; the transaction was aborted.
    #[inline]
    pub fn aborted(&mut self) {
        self.attempts += 1;
        if M::overlaps() {
            // The transaction that was in the way may be in flight on this core. Two that go on in
            // step would disturb each other again.
            (0..1 + self.random.draw() % 4).for_each(|_| M::await_prefetched());
        }
        let bound = self.bound();
        if bound == 0 {
            if self.attempts > GIVE_WAY_AFTER {
                M::yield_now();
            }
        } else if self.shared.options.backoff == BackoffPolicy::Fixed {
            spin_for::<M>(bound);
        } else {
            spin_for::<M>(below(self.random.draw(), bound));
        }
    }

    /// Returns the longest wait after this abort, in cycles.
    fn bound(&self) -> Cycles {
        let options = &self.shared.options;
        match options.backoff {
            BackoffPolicy::None => 0,
            BackoffPolicy::Fixed => (options.min_us as f64 * self.shared.cycles_per_us) as u64,
            BackoffPolicy::Exponential => {
                let doubled = options.min_us.saturating_mul(1 << (self.attempts - 1).min(30));
                (doubled.min(options.max_us) as f64 * self.shared.cycles_per_us) as u64
            }
            // Relaxed: a hint, as in `bound_us`.
            BackoffPolicy::Adaptive => self.shared.bound.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    fn options(backoff: BackoffPolicy) -> RetryOptions {
        RetryOptions { backoff, min_us: 1, max_us: 64 }
    }

    #[test]
    fn the_exponential_bound_doubles_up_to_its_limit() {
        let shared = Backoff::<Native>::new(options(BackoffPolicy::Exponential), 1);
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
        let shared = Backoff::<Native>::new(RetryOptions { min_us: 50, ..options(BackoffPolicy::Fixed) }, 1);
        let mut retry = shared.retry(0, 7);
        for _ in 0..3 {
            let start = Native::now();
            retry.aborted();
            assert!((Native::now() - start) as f64 >= 49.0 * shared.cycles_per_us);
        }
    }

    #[test]
    fn no_method_does_not_wait() {
        let shared = Backoff::<Native>::new(options(BackoffPolicy::None), 1);
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
        let shared = Backoff::<Native>::new(options(BackoffPolicy::Adaptive), 2);
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
