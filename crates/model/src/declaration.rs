//! Declarations: facts about a transaction that it announces before it begins.
//!
//! Some protocols must know beforehand which rows a transaction will touch, to lock them in order,
//! or which partitions of the data. A workload that knows this declares it for every transaction.
//! The other protocols don't ask for declarations, and then no row is looked up.

use crate::key::Key;
use crate::table::Table;

/// The declaration that a protocol needs from a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeclarationNeeds {
    /// Nothing.
    Nothing,
    /// The keys of the existing rows that the transaction reads and writes, as far as it knows them
    /// beforehand.
    Rows,
    /// The partitions of the data that the transaction touches.
    Partitions,
    /// The keys of all rows that the transaction reads, writes, inserts, deletes or misses. If it
    /// does not know them all, it declares no row, and the partitions that it touches.
    RowsOrPartitions,
}

impl DeclarationNeeds {
    /// Describes the need in words, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            DeclarationNeeds::Nothing => "nothing",
            DeclarationNeeds::Rows => "some of the rows that a transaction will touch",
            DeclarationNeeds::Partitions => "the partitions that a transaction will touch",
            DeclarationNeeds::RowsOrPartitions => "the rows or the partitions that a transaction will touch",
        }
    }
}

/// The interface through which a workload declares a transaction before it begins.
pub trait Declare {
    /// Returns what the protocol asks for. A workload need not declare anything else.
    fn needs(&self) -> DeclarationNeeds;

    /// Declares the transaction's type, by its position in [`crate::pieces::TypeSet::types`].
    fn kind(&mut self, kind: usize);

    /// Declares that the transaction will only read. A protocol that has snapshots serves it from
    /// one, and aborts it if it writes after all
    /// ([`AbortReason::Unsupported`](crate::AbortReason::Unsupported)).
    fn read_only(&mut self);

    /// Declares that the transaction will touch the row under `key`, if there is one. `writes`
    /// tells whether it may write the row, or insert it. A call that may write a row counts as a
    /// write of it, also if it then leaves the row as it was.
    fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool);

    /// Declares that the transaction will touch data of the partition `number`, counted from 0.
    fn partition(&mut self, number: usize);
}
