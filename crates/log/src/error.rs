//! What can go wrong with a log.

use std::io;
use std::sync::Arc;

/// What can go wrong with a log. It names the file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the directory, or this one has it already.
    #[error("{place} is in use: a database has one owner at a time")]
    InUse {
        /// The directory.
        place: String,
    },
    /// The disk has failed, or is full.
    #[error("can't {doing} {place}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        place: String,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// What was acknowledged is not there any more, or not as it was.
    #[error("{place} is damaged at byte {offset}: {why}; what it held was acknowledged, so nothing is opened")]
    Damaged {
        /// The file.
        place: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A file that the log needs is not there.
    #[error("{place} is not there, and holds what was acknowledged; nothing is opened")]
    Missing {
        /// The file.
        place: String,
    },
    /// What was changed is not there.
    #[error("the log has changes of the row {key} of table '{table}', and not the row; nothing is opened")]
    Incomplete {
        /// The table.
        table: String,
        /// The words of the key.
        key: String,
    },
    /// The writes of a row are in an order in which they can't have happened.
    #[error("the log has the writes of the row {key} of table '{table}' in a wrong order: {why}; nothing is opened")]
    Disorder {
        /// The table.
        table: String,
        /// The words of the key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// There is no log.
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
        /// Its format.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// A table was made with other columns or keys.
    #[error("table '{table}' was made as {was}, and is opened as {now}")]
    SchemaChanged {
        /// The table.
        table: String,
        /// As it is in the log.
        was: String,
        /// As it was asked for.
        now: String,
    },
    /// There was an error before. Nothing is acknowledged any more.
    #[error("the log has stopped, and acknowledges nothing any more: {cause}")]
    Stopped {
        /// The error.
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
    pub(crate) fn io(doing: &'static str, place: impl Into<String>) -> impl FnOnce(io::Error) -> LogError {
        let place = place.into();
        move |source| LogError::Io { doing, place, source: Arc::new(source) }
    }
}
