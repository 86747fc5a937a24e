//! Contend's log makes commits durable: a transaction that was acknowledged survives a crash, and
//! one that did not commit leaves no trace.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`commit`] | the commit protocols: when a commit is durable, and when other transactions see it |
//! | [`worker`] | the part that the engine's workers call |
//! | [`log`] | workers' buffers and files, flushes, the thread that flushes |
//! | `manifest` | which tables and files there are, and how far the files count |
//! | `format` | the bytes of a log file, as a grammar |
//! | [`recovery`] | from files to rows |
//! | `rows` | the last known write of each row, while files are read |
//! | [`checkpoint`] | files of rows that replace log files |
//! | [`schema`] | the tables, as a log knows them |
//! | [`inspect`] | reading a log without changing it, a stranger's as well |
//! | [`disk`], [`uring`] | files, and what is assumed of them; synchronising several together |
//! | [`emulated`] | a log whose device is a delay |
//! | `fault` | deliberate bugs, for tests |
//! | `faulty`, `fuzz` | a disk that fails, a reader for fuzzers; with the feature `testing` only |
//!
//! To the engine a log is a [`CommitSinks`](contend_engine::commit_sink::CommitSinks). Two types
//! implement it: [`LogSinks`] for files, and [`Emulated`].

pub mod checkpoint;
pub mod commit;
pub mod disk;
pub mod emulated;
pub mod error;
#[doc(hidden)]
pub mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
mod format;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod hostile;
pub mod inspect;
pub mod log;
mod manifest;
pub mod recovery;
mod rows;
pub mod schema;
pub mod uring;
pub mod worker;

pub use checkpoint::Checkpoint;
pub use commit::{CommitProtocol, Release};
pub use disk::{Directory, Disk, DiskFile};
pub use emulated::Emulated;
pub use error::LogError;
pub use log::{FIRST_SEGMENT_BYTES, Flusher, Log, LogConfig, Settled, TRANSACTION_BYTES_MAX};
pub use recovery::{Recovered, RecoveredTable, Report};
pub use schema::Schema;
pub use worker::LogSinks;
