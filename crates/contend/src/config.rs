//! The configuration of a database and of a table.

use contend_engine::{EngineConfig, EngineOptions, IndexKind};
use contend_protocols::method::{BackoffPolicy, RetryOptions};

use crate::error::Error;

/// A transaction is protected after this number of conflicts in a row. A short transaction rarely
/// meets ten conflicts in a row, because it waits after each. A long transaction loses about ten
/// times the time that it takes alone.
const PROTECT_AFTER: u32 = 10;

/// The configuration of a database, apart from its protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The most threads that use the database at one time: 1 to 16,383. A thread counts from its
    /// first transaction until it ends.
    pub threads_max: usize,
    /// The shortest time between two epochs, in milliseconds. The memory of deleted rows is reused
    /// after about four epochs.
    pub epoch_ms: u64,
    /// The time that a transaction waits after a conflict before it runs again.
    pub retry: RetryOptions,
    /// The options of the engine, for every protocol. By default commit-time updates and timestamp
    /// splitting are on, and a transaction is protected after 10 conflicts in a row.
    ///
    /// A transaction that has met [`EngineOptions::protect_after`] conflicts in a row is protected:
    /// no other transaction begins until it has committed, or is given up. It waits for the
    /// transactions that are already running. So it commits under every protocol, however many
    /// other transactions there are. The price is that all others wait, for as long as it and the
    /// longest running transaction take. [`Database::read`](crate::Database::read) does not wait.
    /// With 0 no transaction is protected, and one that reads thousands of rows and writes may
    /// never commit. Note that `EngineOptions::default()` has 0 here, because protocols are
    /// measured as published.
    pub engine: EngineOptions,
}

impl Config {
    /// Checks that a database can have this configuration.
    ///
    /// # Errors
    /// [`Error::ThreadsMax`] if the number of threads is out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (asked, most) = (self.threads_max, EngineConfig::WORKERS_MAX);
        if (1..=most).contains(&asked) { Ok(()) } else { Err(Error::ThreadsMax { asked, most }) }
    }
}

impl Default for Config {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Config {
            threads_max: engine.workers_max,
            epoch_ms: engine.epoch_ms,
            // An application may have more threads than cores, and one hot row. There, a retry
            // without a wait is the worst choice.
            retry: RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() },
            engine: EngineOptions {
                commit_time_updates: true,
                timestamp_splitting: true,
                protect_after: PROTECT_AFTER,
                ..EngineOptions::default()
            },
        }
    }
}

/// The configuration of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// The kind of its index. [`IndexKind::Ordered`], the default, can be scanned;
    /// [`IndexKind::Hash`] finds single keys faster.
    pub index: IndexKind,
    /// The expected number of rows. A hash index makes room for them at once. Long rows of a table
    /// of many rows share cache lines with their neighbours.
    pub expected_rows: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { index: IndexKind::Ordered, expected_rows: 0 }
    }
}
