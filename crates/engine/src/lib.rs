//! The engine: tables of rows, records, epochs, and the frame in which a concurrency-control
//! protocol runs.
//!
//! Two traits carry it. A workload sees only [`Txn`]: a transaction that reads, writes, inserts,
//! deletes and scans rows. A protocol implements [`Protocol`]: its part of each of these
//! operations on *one located record*, and its part of the commit. Between the two stands
//! [`Transaction`], written once for all protocols. It probes the indexes (singly or in batches),
//! drives scans, looks a key up again if its record was unlinked, keeps the history, counts aborts,
//! and collects garbage.
//!
//! This crate must not know any one protocol, any workload, or files. It has no global state, no
//! lock on the path of a transaction, and no thread of its own: workers advance the epoch.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`row`], [`group`] | rows as typed plain data, columns, groups of columns, projections |
//! | [`mod@update`] | updates as data, applied at commit |
//! | `catalog`, [`table`], `layout`, [`record`], `slab` | the tables of an engine, their indexes, how a record is laid out, the memory that records live in |
//! | [`epoch`] | the global epoch; when memory may be reused |
//! | [`sets`] | parts that protocols are made of: write set, node set, record map |
//! | [`protocol`], `erased` | the traits `Protocol` and `NamedProtocol`, and what they work on; a protocol behind a pointer |
//! | `contend_model::txn` | the trait `Txn` |
//! | [`config`], [`engine`], `worker`, [`transaction`], `loader` | `Engine` and its options, `Worker`, `Transaction`, `Loader` |
//! | `garbage` | tombstones and old versions that wait for their reuse |
//! | [`commit_sink`] | what the engine tells a log of each commit |
//! | [`in_force`] | a value that seldom changes, and the copies that workers keep |
//! | [`conflicts`] | where aborts come from: tables, groups, keys |
//! | [`declaration`] | what a transaction says before it begins |
//! | [`history`] | what a recorded transaction did |
//! | [`mod@options`] | options: named, documented, validated |

// The derived code names this crate by its own name, also inside the crate.
extern crate self as contend_engine;

mod catalog;
mod cell_copy;
pub mod commit_sink;
pub mod config;
pub mod conflicts;
pub mod declaration;
mod deletions;
pub mod engine;
pub mod epoch;
mod erased;
#[doc(hidden)]
pub mod fault;
mod garbage;
pub mod history;
pub mod in_force;
mod layout;
mod loader;
mod pieces;
pub mod protocol;
pub mod record;
mod row_copy;
pub mod sets;
mod slab;
mod table;
pub mod transaction;
mod worker;

pub use cell_copy::CellCopy;
pub use config::{Alignment, EngineConfig, EngineOptions};
pub use conflicts::{ConflictMap, ConflictPlace, ConflictRow, NamedConflicts};
pub use contend_index::{Change, LEAF_KEYS, Leaf, LeafWords};
// The vocabulary, for authors of protocols and for programs that drive an engine by hand.
pub use contend_model::{
    Abort, AbortCounts, AbortReason, AddToWord, Column, ColumnInfo, Columns, DeclarationNeeds, Declare, Direction,
    FewWords, GROUPS_MAX, Groups, IndexKind, Inspect, IntoRowUpdate, Isolation, Key, KeyWords, Load, MAX_KEY_WORDS,
    Number, OptionError, OptionSpec, OptionValue, Options, OutOfMemory, Projection, RawTxn, ReadOrWritten, Row,
    RowUpdate, Span, Table, TableSpec, Tables, Txn, TypedTable, Update, UpdateOf, Whole, abort, group, key_of,
    option_choices, options, row, type_name_of, update,
};
pub use declaration::Declaration;
pub use engine::Engine;
pub use erased::Erased;
pub use garbage::trim_queue;
pub use layout::{TableCore, estimated_bytes};
pub use loader::Loader;
pub use pieces::{PieceBegin, PieceOutcome};
pub use protocol::{
    Context, Located, NamedProtocol, OldVersion, Protocol, ProtocolInfo, RecordOrigin, RecordState, Tombstone,
    UnlinkOutcome, VersionCounts, WriteMode,
};
pub use record::{Cell, Cells, Record};
pub use table::TableShape;
pub use transaction::Transaction;
pub use worker::Worker;

#[doc(hidden)]
pub use contend_model::__private;
