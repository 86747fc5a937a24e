//! [`Snapshot`]: a transaction that only reads, by its type.

use std::ops::{ControlFlow, RangeInclusive};

use contend_engine::{Abort, Columns, Direction, Key, Protocol, Row, Transaction, Txn};
use contend_machine::Native;
use contend_protocols::optimistic::silo::Silo;

use crate::Table;

/// A state of the database, for reads: [`Database::read`](crate::Database::read) gives it to its
/// closure.
///
/// It has the reads of [`Txn`](crate::Txn), and no writes:
///
/// ```
/// # use contend::{Database, Error, Row, Table};
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct Account { balance: i64 }
/// # let db = Database::new();
/// # let accounts: Table<Account> = db.create_table("accounts")?;
/// let balance = db.read(|snapshot| snapshot.read(&accounts, 7, Account::BALANCE))?;
/// # Ok::<_, Error>(())
/// ```
///
/// ```compile_fail
/// # use contend::{Database, Error, Row, Table, Txn};
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct Account { balance: i64 }
/// # let db = Database::new();
/// # let accounts: Table<Account> = db.create_table("accounts")?;
/// let deleted = db.read(|snapshot| snapshot.delete(&accounts, 7))?;
/// # Ok::<_, Error>(())
/// ```
///
/// ```compile_fail
/// # use contend::{Database, Error, Row, Table, Txn};
/// # #[derive(Clone, Copy, Row)]
/// # #[repr(C)]
/// # struct Account { balance: i64 }
/// # let db = Database::new();
/// # let accounts: Table<Account> = db.create_table("accounts")?;
/// let inserted = db.read(|snapshot| snapshot.insert(&accounts, 7, Account { balance: 10 }))?;
/// # Ok::<_, Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot<'w, P: Protocol<Native> = Silo>(pub(crate) Transaction<'w, P, Native>);

impl<P: Protocol<Native>> Snapshot<'_, P> {
    /// Reads the named columns; `None` if the key is absent.
    ///
    /// # Errors
    /// The table belongs to another database.
    pub fn read<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &Table<R, K>,
        key: K,
        columns: C,
    ) -> Result<Option<C::Output>, Abort> {
        self.0.read(table, key, columns)
    }

    /// Reads the named columns of many rows at once, so that their cache misses overlap. `visit`
    /// gets each key's position and its row, in the order of `keys`.
    ///
    /// # Errors
    /// The table belongs to another database.
    pub fn read_many<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &Table<R, K>,
        keys: &[K],
        columns: C,
        visit: impl FnMut(usize, Option<C::Output>),
    ) -> Result<(), Abort> {
        self.0.read_many(table, keys, columns, visit)
    }

    /// Reads the named columns of the rows in a range of keys, at most `limit`, in the order of
    /// `direction`, until `visit` breaks. Returns how many were visited.
    ///
    /// # Errors
    /// The table belongs to another database, or its index has no order.
    pub fn scan<R: Row, K: Key, C: Columns<R>>(
        &mut self,
        table: &Table<R, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: C,
        visit: impl FnMut(K, C::Output) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.0.scan(table, range, limit, direction, columns, visit)
    }

    /// Returns the abort with which a body ends by its own decision: `return
    /// Err(snapshot.cancel())`.
    pub fn cancel(&mut self) -> Abort {
        self.0.cancel()
    }
}
