//! What a core's time goes to.
//!
//! The engine says what it begins to do by [`crate::Machine::enter`], and the machine adds up times
//! by phase. Nothing here acts on what a phase means. Two partitions follow from one [`Phase`]: by
//! operation (read, write, validation, ...) and by activity (useful work, index, waiting, ...; X.
//! Yu et al.: "Staring into the abyss", VLDB 2014, section 3.2).

/// The operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// The transaction's own code, drawing its parameters, and what surrounds it.
    Body,
    /// Reads and scans.
    Read,
    /// Writes, inserts and deletes, until the commit.
    Write,
    /// Commit or roll-back: locking, validating and installing.
    Validation,
    /// Collecting tombstones and old versions.
    Collection,
    /// Between an abort and the next try.
    Backoff,
}

impl Operation {
    /// All of them, in order.
    pub const ALL: [Operation; 6] = [
        Operation::Body,
        Operation::Read,
        Operation::Write,
        Operation::Validation,
        Operation::Collection,
        Operation::Backoff,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Body => "body",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Validation => "validation",
            Operation::Collection => "gc",
            Operation::Backoff => "backoff",
        }
    }
}

/// The kind of work done for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// The transaction's own logic, and copying rows of more than a line.
    Useful,
    /// Looking keys up.
    Index,
    /// The protocol's metadata: locks, versions, validation.
    Manager,
    /// Waiting for another transaction.
    Wait,
    /// Getting a timestamp.
    Timestamp,
}

impl Activity {
    /// All of them, in order.
    pub const ALL: [Activity; 5] =
        [Activity::Useful, Activity::Index, Activity::Manager, Activity::Wait, Activity::Timestamp];
}

/// An operation and an activity, in a byte: the activity in the low three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase(u8);

const ACTIVITY_BITS: u32 = 3;
const ACTIVITY: u8 = (1 << ACTIVITY_BITS) - 1;

impl Phase {
    /// Every phase's number is below.
    pub const COUNT: usize = Operation::ALL.len() << ACTIVITY_BITS;
    /// A transaction's own code: where a core begins.
    pub const BODY: Phase = Phase::of(Operation::Body, Activity::Useful);

    /// The phase of an activity for an operation.
    #[inline(always)]
    pub const fn of(operation: Operation, activity: Activity) -> Phase {
        Phase((operation as u8) << ACTIVITY_BITS | activity as u8)
    }

    /// A number below [`Phase::COUNT`].
    #[inline(always)]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Phase> {
        Operation::ALL.into_iter().flat_map(|operation| Activity::ALL.map(|activity| Phase::of(operation, activity)))
    }

    #[inline(always)]
    pub(crate) const fn from_byte(byte: u8) -> Phase {
        Phase(byte)
    }

    /// The operation.
    pub fn operation(self) -> Operation {
        Operation::ALL[usize::from(self.0 >> ACTIVITY_BITS)]
    }

    /// The activity.
    pub fn activity(self) -> Activity {
        Activity::ALL[usize::from(self.0 & ACTIVITY)]
    }

    /// The same operation, with another activity.
    #[inline(always)]
    pub fn doing(self, activity: Activity) -> Phase {
        Phase(self.0 & !ACTIVITY | activity as u8)
    }
}

/// Time by phase. The unit is the machine's own: only shares mean something.
pub type PhaseTimes = [u64; Phase::COUNT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_its_operation_and_activity() {
        for operation in Operation::ALL {
            for activity in Activity::ALL {
                let phase = Phase::of(operation, activity);
                assert_eq!((phase.operation(), phase.activity()), (operation, activity));
                assert!(phase.number() < Phase::COUNT);
                assert_eq!(phase.doing(Activity::Wait), Phase::of(operation, Activity::Wait));
            }
        }
    }
}
