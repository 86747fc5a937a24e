//! The number of transactions that each thread of a run has in flight.

use contend_engine::{EngineConfig, OptionValue, options};
use contend_model::counted;

use contend_workloads::Workload;

use crate::config::RunConfig;
use crate::error::RunError;
use crate::plan::RunPlan;
use crate::session::RunPurpose;

/// The most transactions in flight on a thread. A core has some ten to sixteen misses under way at
/// once, and a transaction in flight has one or more.
pub const INTERLEAVE_MAX: usize = 32;

options! {
    /// What each thread of a run does at a time.
    pub struct ThreadOptions {
        /// Transactions in flight on each thread or simulated core. Where one awaits a line of
        /// memory, or a lock, the thread goes on with the next. `auto`: as many as pay, found while
        /// it runs, on the host.
        "threads.interleave" interleave: Interleave = Interleave::Count(1), in ();
        /// Microseconds that pass before each operation of a transaction, as if a client beyond a
        /// network asked for it. The transaction stays open meanwhile.
        "interactive.round_trip_us" round_trip_us: u64 = 0, in 0..=10_000_000;
        /// Mean microseconds that a client thinks before each transaction of a closed loop, with an
        /// exponential distribution.
        "interactive.think_us" think_us: u64 = 0, in 0..=1_000_000_000;
    }
}

/// A number of transactions in flight on each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// This number.
    Count(usize),
    /// As many as pay, up to [`INTERLEAVE_MAX`]. A thread finds that number while it runs.
    Auto,
}

impl Interleave {
    /// Returns the workers that each thread has in a session of this purpose.
    pub fn workers(self, purpose: RunPurpose) -> usize {
        match self {
            Interleave::Count(count) => count,
            // A verification has more threads than cores, and small tables.
            Interleave::Auto if purpose == RunPurpose::Verify => 8,
            Interleave::Auto => INTERLEAVE_MAX,
        }
    }
}

impl ThreadOptions {
    /// Checks that the threads of a run can do this.
    ///
    /// # Errors
    /// They can't; the message has the valid choices.
    pub(crate) fn check(&self, config: &RunConfig) -> Result<(), RunError> {
        if self.think_us > 0 && config.arrivals.is_some() {
            return Err(RunError::BadInput(
                "interactive.think_us belongs to a closed loop: with a rate of arrivals (--rate) transactions do not wait \
                 for a client that thinks"
                    .into(),
            ));
        }
        self.interleave.check(config)
    }
}

/// Checks that the clients of a workload may think between transactions.
///
/// # Errors
/// They do, and transactions arrive at a rate.
pub(crate) fn check_think_times<W: Workload>(
    name: &str,
    options: &W::Options,
    config: &RunConfig,
) -> Result<(), RunError> {
    if config.arrivals.is_none() || W::think_times(options).is_empty() {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "the clients of {name} think between transactions, which belongs to a closed loop; valid with a rate of \
         arrivals (--rate): a workload without think times"
    )))
}

impl Interleave {
    /// Checks that the threads of a run can have this number of transactions in flight.
    ///
    /// # Errors
    /// They can't; the message has the valid choices.
    pub(crate) fn check(self, config: &RunConfig) -> Result<(), RunError> {
        let workers = self.workers(RunPurpose::Measure);
        // Each thread may load besides.
        let most = EngineConfig::WORKERS_MAX / (workers + 1);
        if config.threads > most {
            return Err(RunError::BadInput(format!(
                "interleave={} makes {workers} workers on each of {}; valid: at most {}",
                self.show(),
                counted(config.threads, "thread"),
                counted(most, "thread")
            )));
        }
        if config.chip.is_some() && self == Interleave::Auto {
            return Err(RunError::BadInput(format!(
                "interleave=auto belongs to runs on the host: it finds the number by measuring; valid on a chip: 1 to {INTERLEAVE_MAX}"
            )));
        }
        if config.arrivals.is_some() && self == Interleave::Auto {
            return Err(RunError::BadInput(format!(
                "interleave=auto finds the number with the highest throughput, which a rate of arrivals fixes; \
                 valid with --rate: 1 to {INTERLEAVE_MAX}"
            )));
        }
        if config.breakdown && config.chip.is_none() && workers > 1 {
            return Err(RunError::BadInput(format!(
                "a breakdown samples what each thread does, and with interleave={} a thread runs several transactions; \
                 valid: interleave=1, or no --breakdown",
                self.show()
            )));
        }
        Ok(())
    }
}

impl RunPlan {
    /// Refuses entries with several transactions in flight on a core, for what has its own way to
    /// run transactions.
    ///
    /// # Errors
    /// There is such an entry.
    pub fn refuse_in_flight(&self, what: &str) -> Result<(), RunError> {
        match self.protocols.iter().find(|entry| entry.threads.interleave != Interleave::Count(1)) {
            None => Ok(()),
            Some(entry) => Err(RunError::BadInput(format!(
                "'{}': several transactions in flight on a core belong to measured runs; valid for {what}: interleave=1",
                entry.name
            ))),
        }
    }
}

impl OptionValue for Interleave {
    type Range = ();

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text == "auto" {
            return Some(Interleave::Auto);
        }
        let count = text.parse().ok().filter(|count| (1..=INTERLEAVE_MAX).contains(count));
        count.map(Interleave::Count)
    }

    fn describe((): &()) -> String {
        format!("1 to {INTERLEAVE_MAX}, or auto")
    }

    fn show(&self) -> String {
        match self {
            Interleave::Count(count) => count.to_string(),
            Interleave::Auto => "auto".into(),
        }
    }
}
