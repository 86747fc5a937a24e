//! Histories of committed transactions, and two independent proofs of what isolation they had.
//!
//! - [`History`] is what a run did: the committed transactions, each with its operations and the
//!   versions they saw. It is recorded by an engine, or read from a file of JSON lines
//!   ([`History::read_json_lines`]) that any system can write.
//! - [`check`] builds Adya's direct serialization graph and names every anomaly it finds by its
//!   class, from G0 to G2, with the shortest cycle as the evidence. It takes time near linear in
//!   the number of operations.
//! - [`replay`] runs the transactions again, one at a time, in a serial order that the checker
//!   found, and compares every result. It shares nothing with the checker but the data model, so a
//!   fault of one is not a fault of the other.
//! - [`Quick`] proves a short history serializable, or says nothing: for those who have millions of
//!   them.
//!
//! The source of the definitions: Atul Adya, Barbara Liskov, Patrick O'Neil, "Generalized Isolation
//! Level Definitions", ICDE 2000, and Adya's thesis (MIT, 1999).
//!
//! What this crate must not know: any protocol, any engine, any workload.

#![forbid(unsafe_code)]

mod anomaly;
mod check;
mod commute;
mod cycles;
mod dependencies;
pub mod elle;
mod explain;
mod graph;
mod json;
mod key_order;
mod model;
mod quick;
mod replay;
mod versions;

pub use anomaly::{Anomaly, Class, DependencyKind, Step};
pub use check::{DependencyCounts, Report, TooComplex, check, check_bounded, check_up_to};
pub use contend_model::{Applied, Isolation, UnknownIsolation};
pub use json::{ParseError, line_schema};
pub use model::{History, ItemId, Op, PushError, Scan, State, TableId, Transaction, Value};
pub use quick::Quick;
pub use replay::{Divergence, replay, replay_to};
