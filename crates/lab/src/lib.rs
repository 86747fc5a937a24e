//! The laboratory: compares protocols on workloads, runs experiments, and reports the results.
//!
//! [`compare()`] does the main job. A verification pass of each protocol comes first: a small run
//! with the same options, whose history is checked. Then all protocols are loaded, and measured in
//! turns, so that a machine that gets slower or faster does so for all. After that each workload
//! checks its own invariants. A protocol that fails one of its checks gets no number.
//!
//! What this crate must not know: arguments, terminals, exit codes.

pub mod advice;
pub mod compare;
pub mod diff;
mod environment;
pub mod experiment;
pub mod microbench;
pub mod paired;
pub mod report;
pub mod result;
pub mod tables;

pub use compare::{Outcome, compare, record};
pub use result::{ProtocolResult, ResultFile};
