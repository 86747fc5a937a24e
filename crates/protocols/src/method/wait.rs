//! The reaction of a transaction to a lock that another transaction holds, and the length of its
//! wait.

use contend_engine::OptionValue;

/// The number of pauses after which a wait ends in an abort: some milliseconds, far longer than any
/// write phase, unless the thread that is waited for has lost its core.
pub(crate) const WAITS_MAX: u32 = 10_000;

/// The number of pauses with [`Wait::Spin`]: 62 pause instructions, a microsecond or two, some
/// write phases.
const SPINS_MAX: u32 = 10;

/// The number of pauses for a lock that a transaction holds until it ends, after which a wait ends
/// in an abort: some milliseconds at least, and much longer where other threads need the core.
pub(crate) const LOCK_WAITS_MAX: u32 = 20_000;

/// The reaction of a committing writer to a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It waits for the lock, and takes its locks in the order of addresses.
    Wait,
    /// It waits as long as a short write phase takes, then aborts.
    Spin,
    /// It aborts.
    NoWait,
    /// It gives all locks back, checks the reads, waits a moment, and begins again (TicToc's).
    NoWaitTt,
}

impl Wait {
    /// The ways that need no validation between two tries.
    pub const SIMPLE: &[Wait] = &[Wait::Wait, Wait::Spin, Wait::NoWait];
    /// All ways.
    pub const ALL: &[Wait] = &[Wait::Wait, Wait::Spin, Wait::NoWait, Wait::NoWaitTt];

    /// Returns whether locks are taken in the order of addresses, so that no cycle of waits can
    /// form.
    #[inline(always)]
    pub(crate) fn in_order(self) -> bool {
        self == Wait::Wait
    }

    /// Returns the number of pauses for one lock.
    #[inline(always)]
    pub(crate) fn pauses(self) -> u32 {
        match self {
            Wait::Wait => WAITS_MAX,
            Wait::Spin => SPINS_MAX,
            Wait::NoWait | Wait::NoWaitTt => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Wait::Wait => "wait",
            Wait::Spin => "spin",
            Wait::NoWait => "nowait",
            Wait::NoWaitTt => "nowait-tt",
        }
    }
}

impl OptionValue for Wait {
    /// The ways that the protocol has.
    type Range = &'static [Wait];

    fn parse(text: &str, range: &Self::Range) -> Option<Self> {
        range.iter().copied().find(|wait| wait.name() == text)
    }

    fn describe(range: &Self::Range) -> String {
        range.iter().map(|wait| wait.name()).collect::<Vec<_>>().join(", ")
    }

    fn show(&self) -> String {
        self.name().into()
    }
}
