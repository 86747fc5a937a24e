//! Workloads: the transactions of the benchmarks, their tables, and checks of the tables after a
//! run.
//!
//! A workload consists of a schema, a loader, a generator of transaction parameters, the bodies of
//! the transactions, and a consistency check. It runs under any protocol and can't know which one.
//! This crate must not know of protocols, threads or time.

pub mod bank;
pub mod chains;
pub mod file;
pub mod litmus;
mod loading;
pub mod pieces;
mod random;
mod registry;
pub mod rubis;
#[cfg(test)]
mod run_for_tests;
mod sample;
pub mod smallbank;
pub mod tatp;
pub mod tpcc;
pub mod tpce;
pub mod wikipedia;
pub mod workload;
pub mod ycsb;
pub mod zipf;

pub use file::WorkloadFile;
pub use registry::{ChosenWorkload, WorkloadVisitor, all_workloads, with_workload};
pub use workload::{Checked, DeclaredRows, Declares, ThinkTime, Violation, Workload, WorkloadInfo, declared_types};
