//! The laboratory: compares protocols on workloads, runs experiments, and reports the results.
//!
//! [`compare()`] does the main job. First each protocol is verified: a small run with the same
//! options, whose history is checked. Then all protocols are loaded, and measured in turns, so that
//! a machine that gets slower or faster does so for all. After that each workload checks its own
//! invariants. A protocol that fails a check gets no figures.
//!
//! This crate must not know of arguments, terminals or exit codes.

pub mod advice;
pub mod advise;
pub mod compare;
pub mod conflicts;
pub mod diff;
pub mod drift;
pub mod environment;
pub mod experiment;
pub mod interval_log;
pub mod memory_limit;
pub mod microbench;
pub mod notes;
pub mod open_loop;
pub mod paired;
pub mod report;
pub mod result;
pub mod samples;
pub mod saturate;
pub mod schema;
pub mod tables;
pub mod whole_file;

pub use compare::{Outcome, compare, record};
pub use result::{ProtocolResult, ResultFile};
