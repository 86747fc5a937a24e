//! Proofs: runs that test whether a protocol or the log keeps its promise.
//!
//! | module | how it proves |
//! | --- | --- |
//! | [`verify`](mod@verify) | the history of a short concurrent run is judged before anything is measured |
//! | [`explore`](mod@explore) | a strategy chooses interleavings of a few transactions on the explorer's machine |
//! | [`playground`] | a person chooses the order of the steps of a few transactions |
//! | [`determinism`](mod@determinism) | the same input runs on machines and in interleavings, and ends in the same state |
//! | [`crash`] | a simulated disk crashes, and the log is recovered |
//! | [`kill`] | a process is killed, and its real files are recovered |
//! | [`soak`](mod@soak) | memory is watched while rows come and go |
//!
//! What this crate must not know: comparisons, reports, arguments, terminals.

pub mod crash;
pub mod determinism;
pub mod explore;
pub mod kill;
pub mod playground;
mod retried;
pub mod soak;
pub mod verify;

pub use contend_sim::checkpoint::Rewindable;
