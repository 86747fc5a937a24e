//! Protocols under a model checker: the outcomes of two transactions that run at once, in every
//! order and with every value that C11 lets them see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-protocols --test loom`
//!
//! Two transactions of two or three accesses each run on tables of a few rows, whose leaves have
//! two keys. The checker tries executions with one or two preemptions, as the number in each test
//! says: up to some 100,000, in a minute or less. METHODOLOGY.md says what that leaves out. The
//! mutants have the same bound as the sound protocols, or one preemption more.
#![cfg(loom)]

mod absent;
mod deterministic;
mod epochs;
mod lazy;
mod pieces;
mod rows;
mod tombstones;
mod world;
