//! The errors of runs.

use contend_log::LogError;

/// Why a run can't be, or can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// What was asked for can't be had. The message names it and what can.
    #[error("{0}")]
    BadInput(String),
    /// The run was asked to stop before it had anything to show.
    #[error("stopped before anything was measured")]
    Stopped,
}

impl From<LogError> for RunError {
    fn from(error: LogError) -> Self {
        RunError::BadInput(error.to_string())
    }
}
