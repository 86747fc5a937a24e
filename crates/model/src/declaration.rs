//! Declarations: announcements of a transaction before it begins.
//!
//! Some protocols must know beforehand which rows a transaction will touch, to lock them in order,
//! or which partitions of the data. A workload that can tell does so for every transaction. The
//! other protocols do not ask, and then nothing is looked up.

use crate::key::Key;
use crate::table::Table;

/// What a protocol has to know of a transaction before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeclarationNeeds {
    /// Nothing.
    Nothing,
    /// The keys of the rows that it reads and writes, as far as they exist.
    Rows,
    /// The partitions of the data that it touches.
    Partitions,
}

impl DeclarationNeeds {
    /// Describes the need in words, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            DeclarationNeeds::Nothing => "nothing",
            DeclarationNeeds::Rows => "the rows that a transaction will touch",
            DeclarationNeeds::Partitions => "the partitions that a transaction will touch",
        }
    }
}

/// A declaration that a workload fills in before its transaction begins.
pub trait Declare {
    /// Returns what the protocol asks for; the rest need not be declared.
    fn needs(&self) -> DeclarationNeeds;

    /// Declares that the transaction will only read. A protocol that has snapshots serves it from
    /// one, and aborts it if it writes after all
    /// ([`AbortReason::Unsupported`](crate::AbortReason::Unsupported)).
    fn read_only(&mut self);

    /// Declares that the transaction will touch the row under `key`, if there is one. `writes`
    /// tells whether it may write the row.
    fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool);

    /// Declares that the transaction will touch data of the partition `number`, counted from 0.
    fn partition(&mut self, number: usize);
}
