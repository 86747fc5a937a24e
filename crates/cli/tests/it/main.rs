//! Tests of the binary from outside: arguments in, output and exit status out.

mod advise;
mod analyse;
mod cluster;
mod common;
mod determinism;
mod hostile;
mod import;
mod open_loop;
mod results;
#[cfg(feature = "sql")]
mod sql;
mod terminal;
mod tutorial;
mod vacuous;
mod verbs;
mod workload_file;
mod writers;
