//! One run of one protocol on one workload on one machine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | what a person asked for |
//! | [`names`] | the names that a person writes |
//! | [`plan`] | the same as typed values, once all of it was found valid; `estimate`, the memory that it takes |
//! | [`machine`], [`machine_limits`], [`host_chip`] | the machines, what this one can do at best, and a simulated chip like this one |
//! | [`session`] | an engine with a loaded workload, and the workers that run on it |
//! | [`durable`] | the log of a run |
//! | [`progress`] | stopping a run, and watching it |
//! | [`units`], [`stats`] | figures for people, and what a figure was in several windows |
//!
//! What this crate must not know: comparisons, proofs, reports, arguments, terminals.

pub mod config;
pub mod durable;
mod error;
mod estimate;
pub mod host_chip;
pub mod machine;
pub mod machine_limits;
pub mod memory;
pub mod names;
pub mod plan;
pub mod progress;
pub mod session;
pub mod start_gate;
pub mod stats;
pub mod units;

pub use config::RunConfig;
pub use error::RunError;
pub use plan::{ProtocolPlan, RunPlan};
pub use progress::{Observer, Silent, Stop};
