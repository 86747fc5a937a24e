//! The tests that every protocol has to pass. Protocols are not listed here; the tests take them
//! from the registry.
//!
//! - [`schedules`]: anomalies as small programs, run in every order of their steps (the longest in
//!   a third of them), each history judged by the protocol's promise;
//! - [`own_reads`]: every sequence of operations on one key, against a model;
//! - [`basics`]: boundary keys, empty ranges, limits, aborts that leave no trace, rows of any
//!   length;
//! - [`concurrent`]: random transactions on real threads, their histories checked and replayed;
//! - [`declared`]: transactions that declare their rows, and what is refused to them;
//! - [`crossed`]: pairs of transactions that exclude each other, without a recorded history;
//! - [`later`]: transactions with a later part, and what is refused there;
//! - [`liveness`]: progress of many threads on few records;
//! - [`protection`]: transactions that would starve commit, and no worker waits for ever;
//! - [`own_types`]: some of these without a call through a pointer, as measured code is compiled;
//! - [`mutants`]: deliberate bugs, each of which one of these tests has to find; and `none`, which
//!   must fail.
//!
//! `CONTEND_ROUNDS=100` multiplies the random part, and runs all orders: `CONTEND_ROUNDS=100 cargo
//! test --release -p contend-protocols --test conformance`.

mod basics;
mod concurrent;
mod conducted;
mod crossed;
mod declared;
mod jitter;
mod later;
mod liveness;
mod mutants;
mod own_reads;
mod own_types;
mod protection;
mod schedules;
mod support;
