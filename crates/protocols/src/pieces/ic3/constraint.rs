//! The option that says when a piece waits.

use contend_engine::option_choices;

/// When a piece waits for the transactions that its own depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Behind its accesses, before it is validated.
    Optimistic,
    /// Before its first access.
    Early,
}

option_choices!(Constraint { Optimistic => "optimistic", Early => "early" });
