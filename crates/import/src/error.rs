//! Mistakes in what is imported.

use std::path::Path;

/// Why a trace can't be imported: one message for a person, which names the file, the place and the
/// valid choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImportError {
    message: String,
}

impl ImportError {
    /// Returns the error of a whole file.
    pub(crate) fn of_file(path: &Path, message: impl std::fmt::Display) -> Self {
        ImportError { message: format!("{}: {message}", path.display()) }
    }

    /// Returns the error of a line of a file.
    pub(crate) fn at(path: &Path, line: u64, message: impl std::fmt::Display) -> Self {
        ImportError { message: format!("{}, line {line}: {message}", path.display()) }
    }
}

/// Returns the beginning of a text from outside, for a message.
pub(crate) fn cut(text: &str) -> String {
    const LONG: usize = 60;
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    let begin: String = text.chars().take(LONG).map(printable).collect();
    if text.chars().nth(LONG).is_some() { format!("{begin}...") } else { begin }
}
