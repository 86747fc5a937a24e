//! Why something could not be done.

use contend_engine::{Abort, AbortReason, OptionError, OutOfMemory};
use contend_log::LogError;

/// Why a database could not do what was asked. None of these goes away by asking again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction's own code ended it, by [`Txn::cancel`](crate::Txn::cancel).
    #[error("the transaction was cancelled by its own code")]
    Cancelled,
    /// The thread is in a transaction of this database already, or loads rows into it. Pass the
    /// outer transaction on instead of starting another; what waits for transactions to end has to
    /// wait until this one has.
    #[error(
        "this thread is in a transaction of this database already, or loads rows into it: pass `tx` on instead of starting another"
    )]
    Nested,
    /// Under this protocol, as it is set, no snapshot can be read.
    #[error("under {protocol}, as it is set, no snapshot can be read; valid: {valid}")]
    NoSnapshots {
        /// The protocol's name.
        protocol: &'static str,
        /// The protocol's options with which one can be; or, if there are none, the protocols under
        /// which one can be.
        valid: String,
    },
    /// No protocol has this name.
    #[error("no protocol is named '{name}'; valid: {valid}")]
    UnknownProtocol {
        /// The name that was asked for.
        name: String,
        /// The names of all protocols.
        valid: String,
    },
    /// An option of the protocol does not exist, or its value is not valid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// As many threads as the database was made for have used it and have not ended.
    #[error("the database was made for {limit} threads at one time, which are there: set `Config::threads_max` higher")]
    TooManyThreads {
        /// [`Config::threads_max`](crate::Config::threads_max).
        limit: usize,
    },
    /// A database can't be made for so many threads.
    #[error("a database is made for 1 to {most} threads at one time, and `Config::threads_max` is {asked}")]
    ThreadsMax {
        /// [`Config::threads_max`](crate::Config::threads_max).
        asked: usize,
        /// The largest value that it may have.
        most: usize,
    },
    /// The database has a table of this name.
    #[error("the database has a table '{name}' already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// The table was made by another database.
    #[error("table '{name}' is of another database")]
    ForeignTable {
        /// The table's name.
        name: String,
    },
    /// The transaction asked for a range of a table with a hash index, or used a table of another
    /// database.
    #[error("the transaction asked for a range of a table with a hash index, or used a table of another database")]
    Unsupported,
    /// The machine has no more memory for rows.
    #[error("the machine has no more memory for rows")]
    OutOfMemory,
    /// The transaction writes more than the log takes at once
    /// ([`LogConfig::transaction_bytes`](crate::log::LogConfig)). Nothing of it was done.
    #[error(
        "the transaction writes more keys and rows than the log takes at once, and nothing of it was done: make several of it, or set \
         `LogConfig::transaction_bytes` higher"
    )]
    TooLarge,
    /// A database was to be opened that is in a directory, and not durable.
    #[error(
        "durability is off, and there is a path: leave one of them out; valid with a path: Durability::Epoch, Early, Conservative"
    )]
    NotDurable,
    /// Under this protocol transactions see what others have not committed yet.
    #[error(
        "durability is Conservative, and under {protocol} transactions see what others have not committed yet; valid: Epoch, Early"
    )]
    NotConservative {
        /// The protocol's name.
        protocol: &'static str,
    },
    /// The transaction can't be made durable, or what was made so can't be found. A transaction
    /// that has ended so may have committed or not, and will be there after the next start or not;
    /// no other that was not durable before it is sure to be.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Another transaction was in the way. A database tries again instead of returning this.
    #[error("another transaction was in the way ({0}): to be tried again")]
    Conflict(AbortReason),
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        match abort.reason {
            AbortReason::User => Error::Cancelled,
            AbortReason::Unsupported => Error::Unsupported,
            AbortReason::OutOfMemory => Error::OutOfMemory,
            AbortReason::TooLarge => Error::TooLarge,
            reason => Error::Conflict(reason),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(OutOfMemory: OutOfMemory) -> Self {
        Error::OutOfMemory
    }
}
