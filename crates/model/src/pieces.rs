//! Declared pieces: what the parts of a transaction may access, said beforehand.
//!
//! A transaction is a chain of *pieces* (IC3; transaction chopping). Its body runs each by
//! [`Txn::piece`](crate::Txn::piece). For most protocols that is the closure and nothing else. A
//! protocol that knows the declarations of all types of transactions can order the pieces of
//! different transactions, and let each piece take effect by itself.
//!
//! ```
//! use contend_model::pieces::{DeclaredTable, Piece, Types};
//! # use contend_model::{IndexKind, StoreId, Table, TableSpec, Tables, Txn, Whole, Abort, TypedTable};
//! # use contend_derive::Row;
//! #[derive(Clone, Copy, Row)]
//! #[repr(C)]
//! struct Account {
//!     balance: i64,
//! }
//!
//! const TAKE: Piece = Piece::new(0, "take");
//! const GIVE: Piece = Piece::new(1, "give");
//!
//! fn declare(types: &mut Types, from: &TypedTable<Account>, to: &TypedTable<Account>) {
//!     types
//!         .add("transfer")
//!         .piece(TAKE, |piece| piece.modify(from, Whole))
//!         .piece(GIVE, |piece| piece.update(to, Account::BALANCE.add(0)));
//! }
//!
//! fn transfer<T: Txn>(
//!     tx: &mut T,
//!     from: &TypedTable<Account>,
//!     to: &TypedTable<Account>,
//!     amount: i64,
//! ) -> Result<(), Abort> {
//!     tx.piece(TAKE, |tx| tx.modify(from, 1, |account| account.balance -= amount))?;
//!     tx.piece(GIVE, |tx| tx.update(to, 2, Account::BALANCE.add(amount)))?;
//!     Ok(())
//! }
//! ```
//!
//! | type | contents |
//! | --- | --- |
//! | [`Piece`] | the name of a piece, as a body uses it |
//! | [`Types`] | the declarations, as a program makes them: typed tables, columns and updates |
//! | [`TypeSet`] | the same as plain data, for the analysis |
//! | [`CheckedTypes`], [`PieceChecker`] | the same as sets of groups, and the check of each access |
//! | [`Checked`] | a transaction of any store that is checked |

mod checker;
mod declared;
mod permissions;
mod types;

pub use checker::{Checked, CheckedTypes, PieceChecker};
pub use declared::{Access, DeclaredPiece, DeclaredTable, Mode, TransactionType, TypeSet};
pub use permissions::{Attempt, Undeclared, Use};
pub use types::{PieceBuilder, TypeBuilder, Types};

/// A piece of a type of transactions, as a body names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    number: u16,
    name: &'static str,
}

impl Piece {
    /// Returns the piece of this number, from 0 in the order of the program, with a name for
    /// people.
    pub const fn new(number: u16, name: &'static str) -> Piece {
        Piece { number, name }
    }

    /// Returns the position among the pieces of its type.
    #[inline(always)]
    pub fn number(self) -> usize {
        self.number as usize
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.name
    }
}
