//! Workload files from traces: a log of PostgreSQL, a list of accesses, or `pg_stat_statements`.
//!
//! 1. A source (`pg_log`, `accesses`, `statements`) gives statements, in sessions and transactions.
//! 2. `calls` takes the constants out of a statement. What is left is a template.
//! 3. `translate` turns a template into a statement of the workload language, or says why it can't.
//! 4. `trace` collects the paths of transactions through templates, with the values of parameters.
//!    `types` makes types of them.
//! 5. `fit` finds for each parameter how it is drawn, with the sizes of `domain` and the skews of
//!    `spectrum`.
//! 6. `write` writes the file. The compiler of `contend-workloads` has read it before it is
//!    returned.
//!
//! The crate knows of `contend-workloads` only the compiler and the zipfian distribution.

mod accesses;
mod calls;
mod domain;
mod error;
mod fit;
mod guard;
mod import;
mod pg_log;
mod schema;
mod session;
mod spectrum;
mod statements;
mod trace;
mod translate;
mod types;
mod write;

pub use accesses::ROW_BYTES;
pub use error::ImportError;
pub use import::{ImportOptions, Imported, TraceSource, import};
