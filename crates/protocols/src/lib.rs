//! Concurrency-control protocols, one file each, and the list of their names.
//!
//! A new protocol is one new file and one line in [`registry`]; every test, workload and command then has it. Protocols never import
//! each other; what two of them share lies in the engine (write set, node set) or in [`method`], with its own tests.
//!
//! What this crate must not know: workloads.

pub mod method;
pub mod none;
pub mod registry;
pub mod silo;
pub mod two_phase_locking;

pub use registry::{ProtocolVisitor, all_protocols, with_protocol};
