//! The engine: tables of rows, records, epochs, and the frame in which a concurrency-control protocol runs.
//!
//! Two traits carry it. A workload sees [`Txn`] only: a transaction that reads, writes, inserts, deletes and scans rows. A
//! protocol implements [`Protocol`]: what has to happen at each of these on *one located record*, and at commit. Between the two
//! stands [`Transaction`], once for all protocols: it probes the indexes (singly or in batches), drives scans, looks keys up
//! again whose record was unlinked, keeps the history, counts aborts, and collects garbage.
//!
//! What this crate must not know: any one protocol, any workload, files. It has no global, no lock on the transaction path
//! and no thread of its own: workers advance the epoch.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`row`], [`group`] | rows as typed plain data, columns, groups of columns, projections |
//! | [`mod@update`] | updates as data, applied at commit |
//! | [`table`], [`record`], `slab` | tables, records, the memory that records live in |
//! | [`epoch`] | the global epoch; when memory may be reused |
//! | [`sets`] | parts that protocols are made of: write set, node set, record map |
//! | [`protocol`] | the trait `Protocol` and what it works on |
//! | [`txn`] | the trait `Txn` |
//! | [`engine`], [`transaction`] | `Engine`, `Worker`, `Transaction` |
//! | [`declaration`] | what a transaction says before it begins |
//! | [`history`] | what a recorded transaction did |
//! | [`mod@options`] | options: named, documented, validated |

// The derived code calls this crate by its name, also inside of it.
extern crate self as contend_engine;

pub mod abort;
pub mod declaration;
pub mod engine;
pub mod epoch;
mod erased;
#[doc(hidden)]
pub mod fault;
mod garbage;
pub mod group;
pub mod history;
pub mod journal;
pub mod options;
pub mod protocol;
pub mod record;
pub mod row;
pub mod sets;
mod slab;
pub mod table;
pub mod transaction;
pub mod txn;
pub mod update;

pub use abort::{Abort, AbortReason};
pub use contend_index::{Change, Direction, IndexKind, Key, KeyWords, Leaf, MAX_KEY_WORDS, key_of};
pub use declaration::{Declaration, Needs};
pub use engine::{Alignment, Engine, EngineConfig, EngineOptions, Loader, Worker};
pub use erased::Erased;
pub use garbage::trim_queue;
pub use group::{GROUPS_MAX, Groups};
pub use options::{OptionError, OptionSpec, OptionValue, Options};
pub use protocol::{
    At, Context, Control, Found, Info, Initial, Isolation, Mode, OldVersion, Protocol, Tombstone, Unlink, VersionCounts,
};
pub use record::{Cell, Cells, Record};
pub use row::{Column, ColumnInfo, Columns, Projection, Row, Span, Whole, type_name_of};
pub use table::{OutOfMemory, Table, TableCore, TableShape, TableSpec, TypedTable};
pub use transaction::Transaction;
pub use txn::Txn;
pub use update::{AddToWord, Number, RowUpdate, Update};

/// What the code made by `#[derive(Row)]` names, so that a user needs no dependency for it.
#[doc(hidden)]
pub mod __private {
    pub use crate::row::{Column, ColumnInfo, Row};
    pub use zerocopy;
}
