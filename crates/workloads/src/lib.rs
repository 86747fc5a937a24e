//! Workloads: what transactions do, what they do it on, and how to tell afterwards that it was done
//! right.
//!
//! A workload is a schema, a loader, a generator of transactions, the transactions, and a
//! consistency check. It runs under any protocol and can't know which one. What this crate must not
//! know: protocols, threads, time.

pub mod bank;
pub mod litmus;
mod random;
#[cfg(test)]
mod run_for_tests;
mod sample;
pub mod smallbank;
pub mod tatp;
pub mod tpcc;
pub mod workload;
pub mod ycsb;
pub mod zipf;

pub use workload::{
    Checked, Declares, Violation, Workload, WorkloadInfo, WorkloadVisitor, all_workloads, with_workload,
};
