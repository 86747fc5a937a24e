//! Concurrency-control protocols, one file each, and the list of their names.
//!
//! A new protocol is one new file and one line in [`registry`]; every test, workload and command then has it. Protocols never import
//! each other; what several of them share lies below them: in the engine (write set, node set), in [`method`], in [`locking`], in [`optimistic`], in [`versions`], in [`fault`].
//!
//! What this crate must not know: workloads.

pub mod bamboo;
pub mod cicada;
pub mod deadlock_detection;
pub mod ermia;
pub mod fault;
pub mod flags;
pub mod hekaton;
pub mod hstore;
pub mod locking;
pub mod method;
pub mod mocc;
pub mod mvcc;
pub mod mvto;
pub mod no_wait;
pub mod none;
pub mod occ;
pub mod optimistic;
pub mod ordered;
pub mod registry;
pub mod silo;
pub mod snapshot_isolation;
pub mod tictoc;
pub mod timestamp_ordering;
pub mod versions;
pub mod wait_die;
pub mod wound_wait;

pub use registry::{ProtocolVisitor, all_protocols, protocols_with_snapshots, with_protocol};
