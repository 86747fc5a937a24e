//! The errors of a log.

use std::io;
use std::sync::Arc;

/// An error of a log. It names the file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Another process owns or reads the directory, or this one has opened it already.
    #[error("{place} is in use: a database has one owner at a time")]
    InUse {
        /// The directory.
        place: String,
    },
    /// The disk has failed, or is full.
    #[error("can't {doing} {place}: {source}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file.
        place: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A file has changed, so that what was acknowledged is not there any more, or not as it was.
    #[error("{place} is damaged at byte {offset}: {why}; what it held was acknowledged, so nothing is opened")]
    Damaged {
        /// The file.
        place: String,
        /// The offset in the file.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A file that the manifest names is not there.
    #[error("{place} is not there, and holds what was acknowledged; nothing is opened")]
    Missing {
        /// The file.
        place: String,
    },
    /// There are changes of a row, and the row that was changed is not there.
    #[error("the log has changes of the row {key} of table '{table}', and not the row; nothing is opened")]
    Incomplete {
        /// The table.
        table: String,
        /// The words of the key.
        key: String,
    },
    /// The writes of a row can't have happened in the order of their write counters.
    #[error("the log has the writes of the row {key} of table '{table}' in a wrong order: {why}; nothing is opened")]
    Disorder {
        /// The table.
        table: String,
        /// The words of the key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The directory has no log.
    #[error("{place} has no log")]
    NoLog {
        /// The directory.
        place: String,
    },
    /// The files are of another version of this program.
    #[error("{place} has format {found}; this program reads format {known}")]
    Version {
        /// The file.
        place: String,
        /// The format of the file.
        found: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// A table was created with other columns or keys.
    #[error("table '{table}' was made as {was}, and is opened as {now}")]
    SchemaChanged {
        /// The table.
        table: String,
        /// The schema in the log.
        was: String,
        /// The schema that the application asked for.
        now: String,
    },
    /// No table can have this schema.
    #[error("table '{table}' can't be logged: {why}")]
    BadSchema {
        /// The table.
        table: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The log has stopped after an error. Nothing is acknowledged any more.
    #[error("the log has stopped, and acknowledges nothing any more: {cause}")]
    Stopped {
        /// The error that stopped it.
        cause: Arc<LogError>,
    },
}

impl PartialEq for LogError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for LogError {}

impl LogError {
    /// Returns a function that makes an error of an I/O error. `doing` continues "can't".
    pub(crate) fn io(doing: &'static str, place: impl Into<String>) -> impl FnOnce(io::Error) -> LogError {
        let place = place.into();
        move |source| LogError::Io { doing, place, source: Arc::new(source) }
    }
}
