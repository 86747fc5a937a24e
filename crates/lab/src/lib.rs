//! The lab: runs workloads under protocols, proves the runs right, measures them, and says what came out.
//!
//! [`compare()`] does the main job. For each protocol a verification pass comes first: a small run on the same options whose history is
//! checked. Then all protocols are loaded, and measured in turns, so that a machine that gets slower or faster does so for all.
//! After that each workload checks its own invariants. A protocol that fails one of its checks gets no number.
//!
//! What this crate must not know: arguments, terminals, exit codes.

pub mod advice;
mod bed;
pub mod compare;
pub mod config;
pub mod crash;
mod cycle;
mod dice;
pub mod diff;
pub mod durable;
mod environment;
pub mod experiment;
pub mod explore;
pub mod host;
pub mod kill;
pub mod limit;
pub mod machine;
mod memory;
pub mod micro;
pub mod paired;
mod proof;
pub mod recording;
pub mod report;
pub mod result;
pub mod soak;
mod start;
mod stats;
pub mod tables;
pub mod units;
mod verify;
mod watch;

pub use compare::{Outcome, compare, record};
pub use config::{LabError, RunConfig};
pub use contend_sim::checkpoint::Rewindable;
pub use recording::{Recorded, recorded};
pub use result::{ProtocolResult, ResultFile};
pub use verify::verify_history;
pub use watch::{Observer, Silent, Stop};
