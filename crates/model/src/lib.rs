//! The vocabulary of transactions: rows, keys, updates, aborts, isolation levels, tables, options,
//! and the traits [`Txn`], [`Tables`], [`Load`] and [`Inspect`].
//!
//! A workload uses only these words, and so runs on every store that implements them. A store
//! implements [`RawTxn`], a few methods on rows of words; [`Txn`] builds typed operations on top of
//! it, once for all stores.
//!
//! This crate must not know any store, protocol or machine. It depends on zerocopy, for derived
//! rows, and on serde, for declarations as data.
//!
//! | module | contents |
//! | --- | --- |
//! | [`row`], [`projection`], [`group`] | rows as typed plain data, their columns, choices of columns, groups of columns |
//! | [`key`] | keys, as ordered words |
//! | [`mod@update`] | updates as data, applied at commit |
//! | [`spec`], [`table`] | a table's description; handles by which transactions name tables |
//! | [`txn`] | the traits `RawTxn` and `Txn` |
//! | [`store`] | the traits `Tables`, `Load` and `Inspect`: tables outside transactions |
//! | [`declaration`] | announcements of a transaction before it begins |
//! | [`pieces`] | declarations of what the parts of a transaction may access |
//! | [`abort`], [`isolation`] | outcomes of transactions, and promises about them |
//! | [`random`] | generators whose sequences repeat, and the hash of words |
//! | [`words`] | numbers with their nouns, for messages |
//! | [`mod@options`] | options: named, documented, validated |

// The derived code names this crate by its own name, also inside the crate.
extern crate self as contend_model;

pub mod abort;
pub mod declaration;
pub mod group;
pub mod isolation;
pub mod key;
pub mod options;
pub mod pieces;
pub mod projection;
pub mod random;
pub mod row;
pub mod spec;
pub mod store;
pub mod table;
pub mod txn;
pub mod update;
pub mod words;

pub use abort::{Abort, AbortCounts, AbortReason, OutOfMemory};
pub use declaration::{DeclarationNeeds, Declare};
pub use group::{GROUPS_MAX, Groups};
pub use isolation::{Applied, Isolation, UnknownIsolation};
pub use key::{Key, KeyWords, MAX_KEY_WORDS, key_of};
pub use options::{OptionError, OptionSpec, OptionValue, Options};
pub use pieces::{Piece, Types};
pub use projection::{Columns, Projection, Span, Whole};
pub use row::{Column, ColumnInfo, Row, type_name_of};
pub use spec::{IndexKind, TableSpec};
pub use store::{Core, Inspect, Load, Tables, TablesOnly};
pub use table::{StoreId, Table, TypedTable};
pub use txn::{Before, Direction, PieceEnd, RawTxn, ReadOrWritten, Txn};
pub use update::{AddToWord, FewWords, IntoRowUpdate, Number, RowUpdate, Update, UpdateOf, WordChanges, WordOperation};
pub use words::{counted, is_or_are};

/// The names that code derived by `#[derive(Row)]` uses, so that a user needs no dependency for
/// them.
#[doc(hidden)]
pub mod __private {
    pub use crate::row::{Column, ColumnInfo, Row};
    pub use zerocopy;
}
