//! The number of transactions that each thread of a run has in flight.

use contend_engine::{OptionValue, options};

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
    /// Returns the workers that each thread has.
    pub fn workers(self) -> usize {
        match self {
            Interleave::Count(count) => count,
            Interleave::Auto => INTERLEAVE_MAX,
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
