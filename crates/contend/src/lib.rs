//! An in-memory store with serializable transactions: tables of typed rows, used from any number of
//! threads.
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
//! - **Rows** are plain data: a `#[repr(C)]` struct that derives [`Row`](macro@Row). Each field is
//!   a column, named by a constant.
//! - **Keys** are `u64`, or arrays of 8, 16, 24 or 32 bytes; see [`Key`].
//! - **Transactions** are closures, and the trait [`Txn`] has their operations.
//!   [`Database::transact`] commits the closure's writes if it returns `Ok`, leaves no trace of
//!   them if it returns `Err`, and repeats the closure after a conflict. [`Database::try_transact`]
//!   does the same for closures with an error type of the application's own.
//! - **Long reads**: [`Database::read`] sees one state of the database, as it was a moment ago, and
//!   never aborts, whatever others write.
//! - **Durability**: a database that has a directory is found again ([`Database::builder`]);
//!   [`Database::transact`] returns when a transaction is durable, [`Database::transact_async`]
//!   before.
//! - **Pieces**: an application may declare what its transactions do ([`Database::declare`]). A
//!   protocol such as [`Ic3`](protocols::Ic3) then runs transactions side by side that conflict.
//! - **The protocol** that keeps transactions apart is a type parameter, [`Silo`] by default:
//!   `Database<NoWait>` locks instead. See [`protocols`]. [`Database::named`] takes a protocol by
//!   its name.
//!
//! A column of a type of your own implements zerocopy's traits; derive them through [`zerocopy`],
//! with `#[zerocopy(crate = "contend::zerocopy")]` on the type.

// The derived code names this crate by its own name, also inside the crate.
extern crate self as contend;

mod any_protocol;
mod builder;
mod config;
mod database;
mod durable;
mod error;
mod seats;
mod snapshot;
mod table;
mod types;

pub use any_protocol::AnyProtocol;
pub use builder::{Builder, Durability};
pub use config::{Config, TableOptions};
pub use contend_derive::Row;
pub use contend_engine::{
    Abort, AbortReason, Column, Columns, Direction, EngineOptions, Groups, IndexKind, Isolation, Key, NamedProtocol,
    Number, OptionError, Options, Protocol, ProtocolInfo, Row, Txn, Update, Whole,
};
pub use contend_log as log;
pub use contend_machine::Native;
pub use contend_protocols::locking::no_wait::NoWait;
pub use contend_protocols::method::{BackoffPolicy, RetryOptions};
pub use contend_protocols::optimistic::silo::Silo;
pub use database::Database;
pub use durable::Ticket;
pub use error::Error;
pub use snapshot::Snapshot;
pub use table::Table;
pub use zerocopy;

/// The protocols and their options.
pub mod protocols {
    pub use contend_protocols::datm::{Datm, DatmOptions};
    pub use contend_protocols::deterministic::aria::{Aria, AriaOptions};
    pub use contend_protocols::deterministic::calvin::{Calvin, CalvinOptions};
    pub use contend_protocols::hstore::{HStore, HStoreOptions};
    pub use contend_protocols::lazy::{Lazy, LazyOptions};
    pub use contend_protocols::locking::bamboo::Bamboo;
    pub use contend_protocols::locking::deadlock_detection::{DeadlockDetection, DeadlockOptions};
    pub use contend_protocols::locking::no_wait::{NoWait, NoWaitOptions};
    pub use contend_protocols::locking::ordered::{Ordered, OrderedOptions};
    pub use contend_protocols::locking::wait_die::{WaitDie, WaitDieOptions};
    pub use contend_protocols::locking::wound_wait::WoundWait;
    pub use contend_protocols::method::extension::ReadPhaseOptions;
    pub use contend_protocols::method::timestamp::{OrderedTimestampOptions, TimestampOptions};
    pub use contend_protocols::method::wait::Wait;
    pub use contend_protocols::multiversion::cicada::{Cicada, CicadaOptions};
    pub use contend_protocols::multiversion::collect::{Collect, CollectOptions};
    pub use contend_protocols::multiversion::ermia::{Ermia, ErmiaOptions};
    pub use contend_protocols::multiversion::hekaton::Hekaton;
    pub use contend_protocols::multiversion::msto::{Msto, MstoOptions};
    pub use contend_protocols::multiversion::mvto::{Mvto, MvtoOptions};
    pub use contend_protocols::multiversion::snapshot_isolation::{SnapshotIsolation, SnapshotIsolationOptions};
    pub use contend_protocols::multiversion::{Counted, CounterOptions, SnapshotOptions, ValidatingOptions};
    pub use contend_protocols::none::{NoControl, NoControlOptions};
    pub use contend_protocols::optimistic::mocc::{Mocc, MoccOptions};
    pub use contend_protocols::optimistic::nested_occ::{NestedOcc, NestedOccOptions};
    pub use contend_protocols::optimistic::occ::{Occ, OccOptions};
    pub use contend_protocols::optimistic::silo::{Silo, SiloOptions};
    pub use contend_protocols::optimistic::tictoc::{TicToc, TicTocOptions};
    pub use contend_protocols::pieces::chopping::{Chopping, ChoppingOptions, Over};
    pub use contend_protocols::pieces::ic3::{Constraint, Ic3, Ic3Options};
    pub use contend_protocols::timestamp_ordering::TimestampOrdering;
}

/// Types of transactions, and their pieces ([`Database::declare`]).
pub mod pieces {
    pub use contend_model::pieces::{Piece, PieceBuilder, TypeBuilder};

    pub use crate::types::{Kind, Types};
}

/// A running transaction, which [`Database::transact`] gives to its closure. The trait [`Txn`] has
/// its operations.
pub type Transaction<'w, P = Silo> = contend_engine::Transaction<'w, P, Native>;

// The examples of README.md are compiled and run with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[doc(hidden)]
pub use contend_engine::__private;
