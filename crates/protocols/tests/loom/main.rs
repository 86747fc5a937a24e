//! Protocols under a model checker: what two transactions that run at once come to, in every order
//! and with every value that C11 lets them see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-protocols --test loom`
//!
//! Two transactions of two or three accesses each, on tables of a few rows; leaves have two keys.
//! Executions with one or two preemptions are tried, as the number in each test says: up to some
//! 100,000, in a minute or less. METHODOLOGY.md says what that leaves out. The deliberate bugs have
//! the same bound as what is sound, or one preemption more.
#![cfg(loom)]

mod absent;
mod epochs;
mod rows;
mod tombstones;
mod world;
