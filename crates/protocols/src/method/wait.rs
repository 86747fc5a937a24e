//! How long a transaction waits for what another holds.

/// How often a wait is prolonged before it ends in an abort: some milliseconds, far longer than any
/// write phase, unless the thread that is waited for has lost its core.
pub(crate) const WAITS_MAX: u32 = 10_000;

/// How often a wait for the lock of a short write phase is prolonged: 62 pauses, a microsecond or
/// two, some write phases.
pub(crate) const SPINS_MAX: u32 = 10;

/// The number of times that a wait for a lock that a transaction holds until it ends is prolonged,
/// before it ends in an abort: some milliseconds at least, and much longer where other threads need
/// the core.
pub(crate) const LOCK_WAITS_MAX: u32 = 20_000;
