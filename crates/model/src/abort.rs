//! Aborts. An abort is a value, never a panic, and is counted by its reason.

/// The reason why a transaction did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// A record to be read was locked by another transaction.
    ReadLocked,
    /// A record to be written was locked by another transaction.
    WriteLocked,
    /// A record that was read has changed since.
    ReadValidation,
    /// A leaf that protects a scan or a miss has changed since.
    Phantom,
    /// A record to be written disappeared before the commit.
    RecordGone,
    /// A transaction that must come after this one may also have to come before it (the exclusion
    /// window of the serial safety net).
    ExclusionWindow,
    /// The version that the transaction has to read has been collected, though the transaction is
    /// still running.
    VersionCollected,
    /// An older transaction needs a lock that this transaction held.
    Wounded,
    /// The transaction waited for others, which waited for it.
    Deadlock,
    /// The wait for a lock took too long.
    LockTimeout,
    /// The numbers of the epoch are used up. The next epoch has new ones.
    EpochExhausted,
    /// Another transaction holds a row until its write is durable (conservative release).
    NotDurable,
    /// A transaction whose uncommitted write this one has seen, or overwritten, has aborted.
    Cascaded,
    /// The transaction's own code decided to abort.
    User,
    /// The transaction scanned a table whose index has no order, or used a table of another
    /// database. Trying again won't help.
    Unsupported,
    /// The machine has no more memory for records. Trying again won't help.
    OutOfMemory,
    /// The transaction writes more than a log takes at once. Trying again won't help.
    TooLarge,
    /// The transaction did what the declaration of its type does not allow. Trying again won't
    /// help. The worker, or the checker of the declarations, says in a sentence what it was: the
    /// type, the piece, the table and the columns.
    Undeclared,
}

impl AbortReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [AbortReason; 18] = [
        AbortReason::ReadLocked,
        AbortReason::WriteLocked,
        AbortReason::ReadValidation,
        AbortReason::Phantom,
        AbortReason::RecordGone,
        AbortReason::ExclusionWindow,
        AbortReason::VersionCollected,
        AbortReason::Wounded,
        AbortReason::Deadlock,
        AbortReason::LockTimeout,
        AbortReason::EpochExhausted,
        AbortReason::NotDurable,
        AbortReason::Cascaded,
        AbortReason::User,
        AbortReason::Unsupported,
        AbortReason::OutOfMemory,
        AbortReason::TooLarge,
        AbortReason::Undeclared,
    ];

    /// Returns the reason's name in results.
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::ReadLocked => "read_locked",
            AbortReason::WriteLocked => "write_locked",
            AbortReason::ReadValidation => "read_validation",
            AbortReason::Phantom => "phantom",
            AbortReason::RecordGone => "record_gone",
            AbortReason::ExclusionWindow => "exclusion_window",
            AbortReason::VersionCollected => "version_collected",
            AbortReason::Wounded => "wounded",
            AbortReason::Deadlock => "deadlock",
            AbortReason::LockTimeout => "lock_timeout",
            AbortReason::EpochExhausted => "epoch_exhausted",
            AbortReason::NotDurable => "not_durable",
            AbortReason::Cascaded => "cascaded",
            AbortReason::User => "user",
            AbortReason::Unsupported => "unsupported",
            AbortReason::OutOfMemory => "out_of_memory",
            AbortReason::TooLarge => "too_large",
            AbortReason::Undeclared => "undeclared",
        }
    }

    /// Whether the same transaction may succeed when it is tried again. This is true of conflicts
    /// with other transactions, and false of all other reasons.
    pub fn is_conflict(self) -> bool {
        use AbortReason::{OutOfMemory, TooLarge, Undeclared, Unsupported, User};
        !matches!(self, User | Unsupported | OutOfMemory | TooLarge | Undeclared)
    }
}

impl std::fmt::Display for AbortReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a transaction that can't commit any more. The transaction's body returns it, which
/// ends the transaction. Every later operation returns the same abort.
///
/// An abort that the code overlooks is a warning at least. (STO once overlooked the result of its
/// validation, commit 5e06bb91.)
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// fn validate() -> contend_model::Abort {
///     contend_model::Abort::new(contend_model::AbortReason::ReadValidation)
/// }
/// validate();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an abort has to end the transaction"]
pub struct Abort {
    /// The reason.
    pub reason: AbortReason,
}

impl Abort {
    /// Returns an abort for this reason.
    #[cold]
    pub fn new(reason: AbortReason) -> Self {
        Abort { reason }
    }
}

impl std::fmt::Display for Abort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "transaction aborted: {}", self.reason)
    }
}

impl std::error::Error for Abort {}

/// The store has no more memory for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the machine has no more memory for records")
    }
}

impl std::error::Error for OutOfMemory {}

/// Numbers of aborts, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbortCounts([u64; AbortReason::ALL.len()]);

impl AbortCounts {
    /// Counts one abort.
    pub fn add(&mut self, reason: AbortReason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the number of aborts for this reason.
    pub fn get(&self, reason: AbortReason) -> u64 {
        self.0[reason as usize]
    }

    /// Adds another count to this one.
    pub fn merge(&mut self, other: &AbortCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Returns the aborts counted since `earlier`, an older value of this count.
    pub fn since(&self, earlier: &AbortCounts) -> AbortCounts {
        AbortCounts(std::array::from_fn(|reason| self.0[reason] - earlier.0[reason]))
    }

    /// Returns the number of aborts by conflicts with other transactions.
    pub fn conflicts(&self) -> u64 {
        AbortReason::ALL.iter().filter(|reason| reason.is_conflict()).map(|&reason| self.get(reason)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_order() {
        for (number, reason) in AbortReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
