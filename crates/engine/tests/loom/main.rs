//! The epoch and its gate under a model checker of C11 memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-engine --test loom`
#![cfg(loom)]

mod gate;
mod reuse;
