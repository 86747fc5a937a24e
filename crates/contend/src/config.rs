//! What can be set of a database and of a table.

use contend_engine::{EngineConfig, EngineOptions, IndexKind};
use contend_protocols::method::{Method, RetryOptions};

use crate::error::Error;

/// Conflicts in a row after which a transaction is protected. So many are rare among short transactions that wait after each, and take a long one
/// no longer than about ten times what it takes alone.
const PROTECT_AFTER: u32 = 10;

/// What a database is to be like, apart from its protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The most threads that use the database at one time: 1 to 16,383. A thread counts from its first transaction until it ends.
    pub threads_max: usize,
    /// The shortest time between two epochs, in milliseconds. The memory of deleted rows is reused after about four of
    /// them.
    pub epoch_ms: u64,
    /// How long a transaction waits after a conflict before it runs again.
    pub retry: RetryOptions,
    /// What is done for every protocol: commit-time updates and timestamp splitting, both on; and protection, after 10 conflicts in a row.
    ///
    /// A transaction that has met [`EngineOptions::protect_after`] conflicts in a row is protected: no other begins until it has committed, or is given
    /// up. Those that run already end, and it waits for them. So it commits, under every protocol, however many others there are; meanwhile the others
    /// wait, and so does each of them for as long as the longest of those that run. [`Database::read`](crate::Database::read) is not held up. With 0
    /// no transaction is protected: then one that reads thousands of rows and writes may never commit beside others that write what it reads. Note that
    /// `EngineOptions::default()` has 0 here, as all that is off by default when protocols are measured.
    pub engine: EngineOptions,
}

impl Config {
    /// Whether a database can be like that.
    ///
    /// # Errors
    /// It can't.
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
            // An application may have more threads than cores, and one hot row: there, not to wait is the worst choice.
            retry: RetryOptions { backoff: Method::Exponential, ..RetryOptions::default() },
            engine: EngineOptions {
                commit_time_updates: true,
                timestamp_splitting: true,
                protect_after: PROTECT_AFTER,
                ..EngineOptions::default()
            },
        }
    }
}

/// What a table is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Its index: [`IndexKind::Ordered`], the default, can be scanned; [`IndexKind::Hash`] finds single keys faster.
    pub index: IndexKind,
    /// How many rows are expected. A hash index makes room for them at once.
    pub expected_rows: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions { index: IndexKind::Ordered, expected_rows: 0 }
    }
}
