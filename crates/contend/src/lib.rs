//! An in-memory store with serializable transactions: tables of typed rows, used from any number of threads.
//!
//! ```
//! use contend::{Database, Row, Table, Txn};
//!
//! #[derive(Clone, Copy, Row)]
//! #[repr(C)]
//! struct Account {
//!     balance: i64,
//! }
//!
//! # fn main() -> Result<(), contend::Error> {
//! let db = Database::new();
//! let accounts: Table<Account> = db.create_table("accounts")?;
//! db.load(&accounts, (0..100).map(|id| (id, Account { balance: 1_000 })))?;
//!
//! // From any thread. The closure runs again when another transaction was in its way.
//! let moved = db.transact(|tx| {
//!     let Some(balance) = tx.read(&accounts, 1, Account::BALANCE)? else { return Ok(0) };
//!     let amount = balance.min(250);
//!     tx.modify(&accounts, 1, |account| account.balance -= amount)?;
//!     tx.modify(&accounts, 2, |account| account.balance += amount)?;
//!     Ok(amount)
//! })?;
//! assert_eq!(moved, 250);
//! # Ok(())
//! # }
//! ```
//!
//! - **Rows** are plain data: a `#[repr(C)]` struct that derives [`Row`](macro@Row). Each field is a column, named by
//!   a constant.
//! - **Keys** are `u64`, or arrays of 8, 16, 24 or 32 bytes; see [`Key`].
//! - **Transactions** are closures; what they can do is the trait [`Txn`]. [`Database::transact`] commits what the
//!   closure did if it returns `Ok`, leaves no trace of it if it returns `Err`, and repeats it after a conflict.
//!   [`Database::try_transact`] does the same for closures with an error type of the application's own.
//! - **Long reads**: [`Database::read`] sees one state of the database, as it was a moment ago, and never aborts, whatever others write.
//! - **Durability**: a database that has a directory is found again ([`Database::builder`]); [`Database::transact`] returns when a transaction is
//!   durable, [`Database::transact_async`] before.
//! - **The protocol** that keeps transactions apart is a type parameter, [`Silo`] by default: `Database<NoWait>` locks
//!   instead. See [`protocols`].
//!
//! A column of a type of your own implements zerocopy's traits; derive them through [`zerocopy`], with
//! `#[zerocopy(crate = "contend::zerocopy")]` on the type.

// The derived code calls this crate by its name, also inside of it.
extern crate self as contend;

mod builder;
mod config;
mod database;
mod durable;
mod error;
mod seats;
mod snapshot;

pub use builder::{Builder, Durability};
pub use config::{Config, TableOptions};
pub use contend_derive::Row;
pub use contend_engine::{
    Abort, AbortReason, Column, Columns, Direction, EngineOptions, Groups, IndexKind, Isolation, Key, Number, Options,
    Protocol, Row, Txn, Update, Whole,
};
pub use contend_log as log;
pub use contend_machine::Native;
pub use contend_protocols::method::{Method, RetryOptions};
pub use contend_protocols::no_wait::NoWait;
pub use contend_protocols::silo::Silo;
pub use database::Database;
pub use durable::Ticket;
pub use error::Error;
pub use snapshot::Snapshot;
pub use zerocopy;

/// The protocols, and what can be set of each.
pub mod protocols {
    pub use contend_protocols::cicada::{Cicada, CicadaOptions};
    pub use contend_protocols::deadlock_detection::{DeadlockDetection, DeadlockOptions};
    pub use contend_protocols::ermia::Ermia;
    pub use contend_protocols::hekaton::Hekaton;
    pub use contend_protocols::method::timestamp::{OrderedTimestampOptions, TimestampOptions};
    pub use contend_protocols::mocc::{Mocc, MoccOptions};
    pub use contend_protocols::mvcc::{Mvcc, MvccOptions};
    pub use contend_protocols::mvto::Mvto;
    pub use contend_protocols::no_wait::{NoWait, NoWaitOptions};
    pub use contend_protocols::none::{NoControl, NoControlOptions};
    pub use contend_protocols::occ::Occ;
    pub use contend_protocols::silo::{Silo, SiloOptions, Wait};
    pub use contend_protocols::snapshot_isolation::SnapshotIsolation;
    pub use contend_protocols::tictoc::{TicToc, TicTocOptions, Wait as TicTocWait};
    pub use contend_protocols::versions::collect::{Collect, CollectOptions};
    pub use contend_protocols::versions::{Counted, CounterOptions, OptimisticOptions, SnapshotOptions};
    pub use contend_protocols::wait_die::{WaitDie, WaitDieOptions};
    pub use contend_protocols::wound_wait::WoundWait;
}

/// A table of rows `R` under keys `K`. A handle: clones are the same table.
pub type Table<R, K = u64> = contend_engine::TypedTable<Native, R, K>;

/// A running transaction: what [`Database::transact`] gives its closure. Its operations are those of [`Txn`].
pub type Transaction<'w, P = Silo> = contend_engine::Transaction<'w, P, Native>;

#[doc(hidden)]
pub use contend_engine::__private;
