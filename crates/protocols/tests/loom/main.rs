//! Protocols under a model checker: what two transactions that run at once come to, in every order and with every value that C11 lets them see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-protocols --test loom`
//!
//! Two transactions of two or three accesses each, on tables of a few rows; leaves have two keys. All executions with one or two preemptions
//! are tried: up to 100,000 of them, in a minute or less. So many preemptions are enough for each of the deliberate bugs here, and for those
//! that METHODOLOGY.md names.
#![cfg(loom)]

mod absent;
mod epochs;
mod rows;
mod tombstones;
mod world;
