//! Tests of imports: from a file to a workload file that compiles.

mod accesses;
mod bad_input;
mod common;
mod hard_logs;
mod pg_log;
mod statements;
