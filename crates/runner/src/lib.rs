//! One run of one protocol on one workload on one machine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | the choices of a user, as data |
//! | [`arrivals`] | the rate at which transactions arrive in an open loop |
//! | [`names`] | the names that a user writes |
//! | [`plan`] | the same choices as typed values, all of them valid; `estimate`, the memory that they take |
//! | [`machine`], [`machine_limits`], [`host_chip`] | the machines, the bounds of the host, and a simulated chip like the host |
//! | [`session`] | an engine with a loaded workload, and the workers that run on it |
//! | [`durable`] | the log of a run |
//! | [`progress`] | progress reports of a run, and requests to stop it |
//! | [`units`], [`stats`] | the format of figures, and their spread over several windows |
//!
//! This crate must not know of comparisons, proofs, reports, arguments or terminals.

pub mod arrivals;
pub mod config;
pub mod durable;
mod error;
mod estimate;
pub mod host_chip;
pub mod in_flight;
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

pub use arrivals::Arrivals;
pub use config::RunConfig;
pub use error::RunError;
pub use plan::{ProtocolPlan, RunPlan};
pub use progress::{MeasuredWindow, Observer, Silent, Stop};
