//! The errors of runs. A caller acts on the variant: `contend` derives its exit status from it.

use contend_engine::AbortReason;
use contend_log::LogError;

/// The reason why a run can't begin, or can't go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// A choice is not valid. The message names it, and the valid choices.
    #[error("{0}")]
    BadInput(String),
    /// The machine's memory does not hold the tables, or the data of a measurement.
    #[error("{0}")]
    OutOfMemory(String),
    /// A file or folder can't be read, written or made. The message names it.
    #[error("{0}")]
    Io(String),
    /// While the run goes on, a pipe can't be written, or a process can't be run. The message names
    /// it.
    #[error("{0}")]
    IoFailed(String),
    /// The log can't be opened or begun.
    #[error("{0}")]
    LogNotOpened(LogError),
    /// The loaded rows can't be made durable, so the run does not begin.
    #[error("the rows that {protocol} begins with can't be made durable: {error}")]
    LoadNotDurable {
        /// The protocol's name.
        protocol: String,
        /// The error of the log.
        error: LogError,
    },
    /// The disk failed, or was full, while transactions ran.
    #[error("{0}")]
    LogFailed(LogError),
    /// Transactions abort for a reason that does not go away.
    #[error("{protocol} could not go on: transactions abort by {reason}")]
    Stuck {
        /// The protocol's name.
        protocol: String,
        /// The reason.
        reason: AbortReason,
    },
    /// A transaction did what the declaration of its type does not allow.
    #[error("a wrong declaration: {0}")]
    Undeclared(String),
    /// A protocol failed a check whose figure is needed.
    #[error("{0}")]
    CheckFailed(String),
    /// The run was asked to stop before it had a result.
    #[error("stopped before anything was measured")]
    Stopped,
}

impl From<LogError> for RunError {
    fn from(error: LogError) -> Self {
        RunError::LogFailed(error)
    }
}
