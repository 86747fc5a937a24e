//! Contend's log: what was acknowledged survives a crash, and nothing else leaves a trace.
//!
//! | module | what it knows |
//! | --- | --- |
//! | [`disk`] | files, and what may be taken to hold of them |
//! | [`faulty`] | a disk in memory that fails |
//! | [`fault`] | deliberate bugs, for tests |
//! | [`commit`] | when a commit is durable, and when others see it |
//! | [`emulated`] | a log whose device is a delay |
//! | `format` | the bytes of a log file |
//! | `manifest` | which files there are, and how far they count |
//! | [`log`] | workers' buffers, and flushes |
//! | [`worker`] | what the engine's commits have to do with them |
//! | [`inspect`] | looking into a log |
//! | [`recovery`] | from files to rows |
//! | `rows` | the rows, as far as they are known |
//! | [`checkpoint`] | files of rows in the place of log files |
//! | [`schema`] | what tables are made of |
//! | [`uring`] | files that are synchronised at once |

pub mod checkpoint;
pub mod commit;
pub mod disk;
pub mod emulated;
pub mod error;
pub mod fault;
pub mod faulty;
mod format;
#[doc(hidden)]
pub mod fuzz;
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
pub use log::{FIRST_SEGMENT_BYTES, Log, LogConfig, Settled, TRANSACTION_BYTES_MAX};
pub use recovery::{Recovered, RecoveredTable, Report};
pub use schema::Schema;
pub use worker::LogJournals;
