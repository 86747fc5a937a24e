//! Isolation levels, and the ways in which a write takes its place among the versions of its key.

use std::fmt;
use std::str::FromStr;

/// An isolation level: a set of anomalies that histories must not have.
///
/// The levels are the portable ones of Adya, Liskov and O'Neil ("Generalized isolation level
/// definitions", ICDE 2000): PL-1, PL-2, snapshot isolation, PL-3. Monotonic atomic view is that of
/// Bailis, Davidson, Fekete, Ghodsi, Hellerstein and Stoica ("Highly available transactions:
/// virtues and limitations", VLDB 2014). They order transactions only by their reads and writes: no
/// level promises an order that agrees with real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isolation {
    /// Nothing is promised.
    None,
    /// PL-1: forbids G0.
    ReadUncommitted,
    /// PL-2: forbids G0 and G1.
    ReadCommitted,
    /// Forbids G0, G1 and OTV: once a transaction has seen a write of another one, its later reads
    /// see all the other one's writes.
    MonotonicAtomicView,
    /// Forbids G0, G1, OTV, G-single and every other cycle without two anti-dependencies in a row.
    /// So write skew is allowed, and a long fork is not (Cerone and Gotsman, "Analysing Snapshot
    /// Isolation", PODC 2016).
    Snapshot,
    /// PL-3: forbids every anomaly.
    Serializable,
}

impl Isolation {
    /// Every level, the weakest first.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::ReadUncommitted,
        Self::ReadCommitted,
        Self::MonotonicAtomicView,
        Self::Snapshot,
        Self::Serializable,
    ];

    /// Whether an invariant that every single transaction preserves is preserved by all
    /// transactions together. Workloads check their invariants only then.
    pub fn keeps_invariants(self) -> bool {
        self == Isolation::Serializable
    }

    /// Returns the level's name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::MonotonicAtomicView => "monotonic-atomic-view",
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

/// A name that no isolation level has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsolation(String);

impl fmt::Display for UnknownIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Isolation::ALL.map(Isolation::name);
        let (last, others) = names.split_last().expect("there are levels");
        write!(f, "unknown isolation level `{}`: expected {} or {last}", self.0, others.join(", "))
    }
}

impl std::error::Error for UnknownIsolation {}

impl FromStr for Isolation {
    type Err = UnknownIsolation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| UnknownIsolation(name.to_owned()))
    }
}

/// The way in which a write took its place among the versions of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Applied {
    /// The write replaced the version that it was written over.
    #[default]
    InOrder,
    /// The write is an update that was applied without a look at the value it changed, as an
    /// addition is. It commutes with every other such write of the key
    /// ([`Update::commutes`](crate::Update::commutes)).
    Commuting,
    /// The write was left out (the non-visible write rule). A later blind write had already
    /// replaced the version that this one would have replaced. The write's place is between the
    /// two, where no transaction has read.
    Omitted,
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
        assert_eq!(
            error,
            "unknown isolation level `serialisable`: expected none, read-uncommitted, read-committed, \
             monotonic-atomic-view, snapshot or serializable"
        );
    }
}
