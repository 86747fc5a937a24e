//! The proofs: runs whose only purpose is to find out whether a protocol or the log keeps its
//! promise.
//!
//! | module | what it proves |
//! | --- | --- |
//! | [`verify`](mod@verify) | a short concurrent run of a workload is judged by its history, before anything is measured |
//! | [`explore`](mod@explore) | interleavings of a few transactions, chosen by a strategy, on the explorer's machine |
//! | [`crash`] | recovery after crashes on a simulated disk that fails |
//! | [`kill`] | recovery of real files after a process was killed |
//! | [`soak`](mod@soak) | memory stays as it is while rows come and go |
//!
//! What this crate must not know: comparisons, reports, arguments, terminals.

pub mod crash;
pub mod explore;
pub mod kill;
pub mod soak;
pub mod verify;

pub use contend_sim::checkpoint::Rewindable;
