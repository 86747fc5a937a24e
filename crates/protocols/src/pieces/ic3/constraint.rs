//! The option that says when a piece waits.

use contend_engine::OptionValue;

/// When a piece waits for the transactions that its own depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Behind its accesses, before it is validated.
    Optimistic,
    /// Before its first access.
    Early,
}

impl OptionValue for Constraint {
    type Range = ();

    fn parse(text: &str, (): &()) -> Option<Self> {
        match text {
            "optimistic" => Some(Constraint::Optimistic),
            "early" => Some(Constraint::Early),
            _ => None,
        }
    }

    fn describe((): &()) -> String {
        "optimistic, early".into()
    }

    fn show(&self) -> String {
        match self {
            Constraint::Optimistic => "optimistic".into(),
            Constraint::Early => "early".into(),
        }
    }
}
