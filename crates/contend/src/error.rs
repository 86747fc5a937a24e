//! [`Error`]: the reasons why an operation failed.

use contend_engine::{Abort, AbortReason, OptionError, OutOfMemory};
use contend_log::LogError;

/// The reason why an operation of a database failed. Another try would not remove any of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction's own code ended it, by [`Txn::cancel`](crate::Txn::cancel).
    #[error("the transaction was cancelled by its own code")]
    Cancelled,
    /// The thread is in a transaction of this database already, or loads rows into it. Pass the
    /// outer transaction on instead of starting another. An operation that waits for transactions
    /// to end has to wait until this one has ended.
    #[error(
        "this thread is in a transaction of this database already, or loads rows into it: pass `tx` on instead of starting another"
    )]
    Nested,
    /// With its present options this protocol can't read snapshots.
    #[error("under {protocol}, as it is set, no snapshot can be read; valid: {valid}")]
    NoSnapshots {
        /// The protocol's name.
        protocol: &'static str,
        /// The options with which the protocol can. If there are none, the protocols that can.
        valid: String,
    },
    /// No protocol has this name.
    #[error("no protocol is named '{name}'; valid: {valid}")]
    UnknownProtocol {
        /// The name that the application gave.
        name: String,
        /// The names of all protocols.
        valid: String,
    },
    /// An option of the protocol does not exist, or its value is not valid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// All threads that the database was made for have used it, and have not ended.
    #[error("`Config::threads_max` is {limit}, and the database has all its threads: set it higher")]
    TooManyThreads {
        /// [`Config::threads_max`](crate::Config::threads_max).
        limit: usize,
    },
    /// A database can't be made for this number of threads.
    #[error("a database is made for 1 to {most} threads at one time, and `Config::threads_max` is {asked}")]
    ThreadsMax {
        /// [`Config::threads_max`](crate::Config::threads_max).
        asked: usize,
        /// Its largest valid value.
        most: usize,
    },
    /// The database has a table of this name.
    #[error("the database has a table '{name}' already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// The table was made by another database.
    #[error("table '{name}' belongs to another database")]
    ForeignTable {
        /// The table's name.
        name: String,
    },
    /// The transaction scanned a table with a hash index, used a table of another database, or
    /// wrote although its type is declared as one that only reads.
    #[error(
        "the transaction scanned a table with a hash index, used a table of another database, or wrote although its type \
         is declared as one that only reads"
    )]
    Unsupported,
    /// The machine has no more memory for rows.
    #[error("the machine has no more memory for rows")]
    OutOfMemory,
    /// The transaction writes more than the log takes at once
    /// ([`LogConfig::transaction_bytes`](crate::log::LogConfig)). None of its writes was made.
    #[error(
        "the transaction writes more keys and rows than the log takes at once, and none of it was done: split it, or set \
         `LogConfig::transaction_bytes` higher"
    )]
    TooLarge,
    /// A database with a directory can't be opened without durability.
    #[error(
        "durability is off, and there is a path: leave one of them out; valid with a path: Durability::Epoch, Early, Conservative"
    )]
    NotDurable,
    /// Under this protocol transactions see uncommitted writes of others.
    #[error(
        "durability is Conservative, and under {protocol} transactions see what others have not committed yet; valid: Epoch, Early"
    )]
    NotConservative {
        /// The protocol's name.
        protocol: &'static str,
    },
    /// A database under this protocol can't be durable.
    #[error("there is a path, and under {protocol} no database is durable, because {why}; valid: no path")]
    NeverDurable {
        /// The protocol's name.
        protocol: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The log has failed: the transaction can't be made durable, or durable commits can't be
    /// found. A transaction that ends with this error may have committed or not, and may exist
    /// after the next start or not. The same is true of every other transaction that was not
    /// durable before.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The declared types are not valid ([`Database::declare`](crate::Database::declare)). The
    /// sentence names the first mistake.
    #[error("{0}")]
    Declaration(String),
    /// A transaction did what the declaration of its type does not allow. The sentence names the
    /// type, the piece, the table and the columns.
    #[error("{0}")]
    Undeclared(String),
    /// Another transaction was in the way. A database tries again instead of returning this.
    #[error("another transaction was in the way ({0}): try again")]
    Conflict(AbortReason),
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        match abort.reason {
            AbortReason::User => Error::Cancelled,
            AbortReason::Unsupported => Error::Unsupported,
            AbortReason::OutOfMemory => Error::OutOfMemory,
            AbortReason::TooLarge => Error::TooLarge,
            AbortReason::Undeclared => Error::Undeclared("the transaction's type has not declared what it did".into()),
            reason => Error::Conflict(reason),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(OutOfMemory: OutOfMemory) -> Self {
        Error::OutOfMemory
    }
}
