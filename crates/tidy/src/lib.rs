//! Rules of this repository that the compiler doesn't check: which file may import which, where
//! atomics may stand, what the header of a protocol says, and how comments are written.
//!
//! A rule reads the tree and returns a [`Finding`] for each place that breaks it. `tests/it` runs
//! every rule on the repository: `cargo test -p contend-tidy` takes seconds, because this crate
//! depends on nothing.

mod exceptions;
mod lists;
mod prose;
mod protocols;
mod shape;
mod source;
mod tree;

pub use exceptions::{ATOMICS, BETWEEN_FAMILIES, INTERNAL_VARIABLES, OVER_PROTOCOLS};
pub use lists::{environment, facade, test_binaries};
pub use prose::{columns, words};
pub use protocols::{headers, siblings};
pub use shape::{atomics, configuration, functions, lengths, orderings};
pub use source::Source;
pub use tree::{Text, Tree};

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the repository.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// Why the place breaks the rule.
    pub why: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, why: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, why: why.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.why)
    }
}
