//! Concurrency-control protocols, one file each, and the list of their names.
//!
//! A new protocol is one new file and one line in [`registry`]; every test, workload and command
//! then has it. Protocols never import each other. The code that several of them share lies below
//! them: in the engine (write set, node set), in [`method`], in [`locking`], in [`optimistic`], in
//! [`multiversion`], in [`accessors`], in [`alone`], in [`fault`].
//!
//! This crate must not know workloads.

pub mod accessors;
pub mod alone;
pub mod datm;
pub mod deterministic;
pub mod fault;
pub mod flags;
pub mod hstore;
pub mod lazy;
pub mod locking;
pub mod method;
pub mod multiversion;
pub mod none;
pub mod optimistic;
pub mod pieces;
pub mod registry;
mod snapshot;
pub mod timestamp_ordering;

pub use registry::{
    PROTOCOL_ALIASES, ProtocolVisitor, all_protocols, behind_pointer, deterministic_protocols, on_host, protocol_name,
    protocols_with_snapshots, with_protocol,
};
