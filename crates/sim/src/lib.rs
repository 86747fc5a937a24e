//! Simulated machines: the same engine and protocols on hardware that is not there, and in
//! interleavings that are chosen.
//!
//! [`Simulated`] is one more [`Machine`](contend_machine::Machine). All its cores are coroutines of
//! one host thread; every access to shared memory comes to the backend whose hook is set
//! (`hook.rs`), which decides what it costs and which core goes on:
//!
//! - a [`Chip`] charges caches, directory, network and memory, and lets the core go on whose clock
//!   is furthest behind;
//! - an [`Explorer`] charges nothing, and lets the core go on that a schedule says.
//!
//! No hook is set while tables are created, loaded and checked: that costs nothing, and switches to
//! no other core.
//!
//! One machine with two backends, and not two machines: a protocol under a workload is compiled
//! once for both.
//!
//! What this crate must not know: protocols, records, indexes.

mod access;
mod arena;
pub mod checkpoint;
pub mod chip;
mod clock;
pub mod explorer;
mod hook;
mod machine;
mod region;
mod stack;

pub use arena::reserve_memory;
pub use chip::{Chip, ChipError, ChipOptions, Preset, Statistics};
pub use explorer::Explorer;
pub use machine::{Simulated, SimulatedWord};
