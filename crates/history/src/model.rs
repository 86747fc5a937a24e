//! What a history is made of: tables, keys, and the operations of committed transactions.
//!
//! Names are interned once, so that an operation is a few words and a million transactions fit in
//! memory: an *item* is one key of one table, present or not. A *version* of an item is named by
//! the transaction that wrote it; version 0 is what the loader put there.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use contend_model::Applied;

/// A table of one [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(u32);

/// One key of one table of one [`History`], whether a row is there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(u32);

impl TableId {
    /// The table's number, in order of first use.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ItemId {
    /// The item's number, in order of first use.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("a history has fewer than 2^32 items"))
    }
}

/// The state of an item, as an operation found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A row, written by this transaction (0: by the loader).
    Version(u64),
    /// No row, because this transaction (never 0) deleted it.
    DeletedBy(u64),
    /// No row, and there never was one.
    NeverExisted,
    /// No row; why is not known.
    Absent,
}

impl State {
    /// The state a delete by `transaction` leaves; 0 says that the key never existed.
    #[must_use]
    pub fn deleted_by(transaction: u64) -> Self {
        if transaction == 0 { Self::NeverExisted } else { Self::DeletedBy(transaction) }
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_absent(self) -> bool {
        !matches!(self, Self::Version(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version}"),
            Self::DeletedBy(transaction) => write!(f, "no row (deleted by T{transaction})"),
            Self::NeverExisted => write!(f, "no row (never existed)"),
            Self::Absent => write!(f, "no row"),
        }
    }
}

/// A fingerprint of a row, as it was read or written: any JSON scalar but null.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A number from 0 up.
    Unsigned(u64),
    /// A number below 0.
    Negative(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A string.
    Text(Arc<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Negative(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

/// One operation of a committed transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A read of one key; a miss is a read.
    Read {
        /// What was read.
        item: ItemId,
        /// What was found.
        seen: State,
        /// The row found.
        value: Option<Value>,
    },
    /// An insert (`over` is absent), an update or a delete of one key.
    Write {
        /// What was written.
        item: ItemId,
        /// What was there before; of a transaction's later writes to one item it is ignored.
        over: State,
        /// Whether the write removed the row.
        delete: bool,
        /// How it took its place among the item's versions.
        applied: Applied,
        /// The row written.
        value: Option<Value>,
    },
    /// A read of a range of keys.
    Scan(Box<Scan>),
}

/// A read of every key of a range, both ends included.
///
/// A scan that stopped at its limit read the range up to the last key that it returned (down to it,
/// if it ran backwards).
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// The table.
    pub table: TableId,
    /// The lowest key of the range (none: from the first key on).
    pub low: Option<ItemId>,
    /// The highest key of the range (none: up to the last key).
    pub high: Option<ItemId>,
    /// The rows returned, each with its version, in any order.
    pub seen: Vec<(ItemId, u64)>,
    /// Keys of the range known to be deleted when the scan passed, each with its deleter; need not
    /// be complete.
    pub gone: Vec<(ItemId, u64)>,
}

// A recorder holds tens of millions of operations.
const _: () = assert!(size_of::<Op>() <= 40);

/// One committed transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Its name, positive and unique in the history. It says nothing of its place in the order.
    pub txn: u64,
    /// The worker that ran it.
    pub worker: u64,
    /// What it did, in its own order.
    pub ops: Vec<Op>,
}

/// Why a transaction can't be part of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// 0 names the loader.
    #[error("a transaction's number is positive (0 names the loader)")]
    ZeroTransaction,
    /// Two transactions have one number.
    #[error("transaction {0} is there already: every committed transaction has a number of its own")]
    DuplicateTransaction(u64),
}

#[derive(Clone, Debug, Default)]
struct Table {
    name: Arc<str>,
    items: HashMap<Arc<str>, ItemId>,
}

/// The committed transactions of one run, in any order.
///
/// A history without a transaction is valid: it has no anomaly.
#[derive(Clone, Debug, Default)]
pub struct History {
    tables: Vec<Table>,
    table_of: HashMap<Arc<str>, TableId>,
    items: Vec<(TableId, Arc<str>)>,
    transactions: Vec<Transaction>,
    numbers: HashSet<u64>,
}

impl History {
    /// A history of no transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The table of this name.
    ///
    /// # Panics
    /// At 2^32 tables.
    pub fn table(&mut self, name: &str) -> TableId {
        // Most databases have few tables: for these a look at each is faster than hashing.
        const LOOKED_AT: usize = 16;
        let known = self.tables.iter().take(LOOKED_AT).position(|table| &*table.name == name);
        if let Some(index) = known {
            return TableId(index as u32);
        }
        if let Some(&table) = self.table_of.get(name) {
            return table;
        }
        let table = TableId(u32::try_from(self.tables.len()).expect("a history has fewer than 2^32 tables"));
        let name: Arc<str> = name.into();
        self.tables.push(Table { name: name.clone(), items: HashMap::new() });
        self.table_of.insert(name, table);
        table
    }

    /// The key of this name in `table`.
    ///
    /// # Panics
    /// If `table` is another history's, or at 2^32 items.
    pub fn item(&mut self, table: TableId, key: &str) -> ItemId {
        let known = &mut self.tables[table.index()].items;
        if let Some(&item) = known.get(key) {
            return item;
        }
        let item = ItemId::from_index(self.items.len());
        let key: Arc<str> = key.into();
        known.insert(key.clone(), item);
        self.items.push((table, key));
        item
    }

    /// Adds a committed transaction.
    ///
    /// # Errors
    /// If its number is 0 or taken.
    ///
    /// # Panics
    /// If an operation names another history's table or item, or a scan an item of another table.
    pub fn push(&mut self, transaction: Transaction) -> Result<(), PushError> {
        for op in &transaction.ops {
            match op {
                Op::Read { item, .. } | Op::Write { item, .. } => assert!(item.index() < self.items.len()),
                Op::Scan(scan) => {
                    let bounds = scan.low.iter().chain(&scan.high);
                    for item in bounds.chain(scan.seen.iter().chain(&scan.gone).map(|(item, _)| item)) {
                        assert_eq!(self.items[item.index()].0, scan.table, "a scan's keys are of its own table");
                    }
                }
            }
        }
        if transaction.txn == 0 {
            return Err(PushError::ZeroTransaction);
        }
        if !self.numbers.insert(transaction.txn) {
            return Err(PushError::DuplicateTransaction(transaction.txn));
        }
        self.transactions.push(transaction);
        Ok(())
    }

    /// The transactions, in the order they were added.
    #[must_use]
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// How many tables have been named.
    #[must_use]
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// How many items have been named, the bounds of scans included.
    #[must_use]
    pub fn item_count(&self) -> usize {
        self.items.len()
    }

    /// The name of a table.
    #[must_use]
    pub fn table_name(&self, table: TableId) -> &str {
        &self.tables[table.index()].name
    }

    /// The table of an item.
    #[must_use]
    pub fn item_table(&self, item: ItemId) -> TableId {
        self.items[item.index()].0
    }

    /// The key of an item.
    #[must_use]
    pub fn item_key(&self, item: ItemId) -> &str {
        &self.items[item.index()].1
    }

    /// The item of these names, if any operation named it.
    #[must_use]
    pub fn find_item(&self, table: &str, key: &str) -> Option<ItemId> {
        self.tables[self.table_of.get(table)?.index()].items.get(key).copied()
    }

    /// Returns the omitted writes, as items and transactions. An omitted write of an item that the
    /// same transaction then wrote once more is left out.
    pub(crate) fn omitted(&self) -> HashSet<(ItemId, u64)> {
        let writes = |omitted: bool| {
            self.transactions.iter().flat_map(move |transaction| {
                transaction.ops.iter().filter_map(move |op| match op {
                    Op::Write { item, applied, .. } if (*applied == Applied::Omitted) == omitted => {
                        Some((*item, transaction.txn))
                    }
                    _ => None,
                })
            })
        };
        let mut found: HashSet<_> = writes(true).collect();
        if !found.is_empty() {
            writes(false).for_each(|write| _ = found.remove(&write));
        }
        found
    }

    /// How much the history holds: its operations, and what its scans returned.
    pub(crate) fn size(&self) -> u64 {
        let size = |op: &Op| match op {
            Op::Scan(scan) => 1 + scan.seen.len() + scan.gone.len(),
            _ => 1,
        };
        self.transactions.iter().flat_map(|transaction| &transaction.ops).map(|op| size(op) as u64).sum()
    }

    pub(crate) fn item_indices(&self) -> std::ops::Range<usize> {
        0..self.items.len()
    }
}
