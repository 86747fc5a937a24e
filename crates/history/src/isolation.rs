//! The isolation levels a history is judged by.

use std::fmt;
use std::str::FromStr;

use crate::anomaly::Class;

/// An isolation level, by the classes of anomaly that it forbids.
///
/// The levels are Adya's portable ones: PL-1, PL-2, snapshot isolation, PL-3. They order transactions by what they read and
/// wrote alone: none promises an order that agrees with real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isolation {
    /// Nothing is promised.
    None,
    /// PL-1: forbids G0.
    ReadUncommitted,
    /// PL-2: forbids G0 and G1.
    ReadCommitted,
    /// Forbids G0, G1, G-single and every other cycle without two anti-dependencies in a row; so write skew is allowed, a
    /// long fork is not (Cerone and Gotsman, "Analysing Snapshot Isolation", PODC 2016).
    Snapshot,
    /// PL-3: forbids every anomaly.
    Serializable,
}

impl Isolation {
    /// Every level, the weakest first.
    pub const ALL: [Self; 5] =
        [Self::None, Self::ReadUncommitted, Self::ReadCommitted, Self::Snapshot, Self::Serializable];

    /// Whether a history of this level must not have an anomaly of this class.
    #[must_use]
    pub fn forbids(self, class: Class) -> bool {
        let weakest = match class {
            Class::Internal | Class::G0 => Self::ReadUncommitted,
            Class::G1a | Class::G1b | Class::G1c => Self::ReadCommitted,
            Class::GSingle | Class::GNonadjacent => Self::Snapshot,
            Class::G2Item | Class::G2 => Self::Serializable,
        };
        self >= weakest
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no isolation level's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown isolation level `{0}`: expected none, read-uncommitted, read-committed, snapshot or serializable")]
pub struct UnknownIsolation(String);

impl FromStr for Isolation {
    type Err = UnknownIsolation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| UnknownIsolation(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for level in Isolation::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        let error = "serialisable".parse::<Isolation>().unwrap_err().to_string();
        assert!(error.contains("`serialisable`") && error.contains("read-committed"), "{error}");
    }

    #[test]
    fn a_stronger_level_forbids_more() {
        for pair in Isolation::ALL.windows(2) {
            for class in Class::ALL {
                assert!(!pair[0].forbids(class) || pair[1].forbids(class));
            }
        }
        assert!(Class::ALL.iter().all(|&class| Isolation::Serializable.forbids(class)));
        assert!(!Class::ALL.iter().any(|&class| Isolation::None.forbids(class)));
    }
}
