//! Workload files on systems that speak SQL, judged by the project's own checker.
//!
//! | module | contents |
//! | --- | --- |
//! | [`target`], [`system`] | the URL; the server, its isolation levels, and what they promise |
//! | [`connection`] | sessions: PostgreSQL, MySQL and MariaDB, SQLite |
//! | [`text`] | statements in the dialect of a system |
//! | [`execute`], [`record`] | a try of a transaction; the versions that it read and wrote |
//! | [`run`], [`result`] | levels, one after the other: measured, and then verified |
//! | [`client`] | a client's transactions, one after another, and its way to another session |
//! | [`losses`] | what was acknowledged and is not there |
//! | [`litmus`] | anomalies, step by step |
//!
//! What this crate must not know: protocols, the engine, the command line.

mod client;
mod connection;
mod execute;
pub mod litmus;
mod losses;
mod record;
pub mod result;
pub mod run;
pub mod system;
pub mod target;
#[cfg(test)]
mod tests;
mod text;

pub use result::SqlResult;
pub use run::{SqlConfig, SqlError};
pub use target::Target;
