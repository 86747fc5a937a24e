//! What a recorded transaction did: raw material for a history, kept by its worker.

use contend_index::KeyWords;

/// Who wrote a version: a transaction's number, or 0 for a row that was loaded.
pub type Version = u64;

/// One operation of a committed transaction. Accesses of the transaction's own writes are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A row was read.
    Read {
        /// The table's number.
        table: u32,
        /// The row's key.
        key: KeyWords,
        /// Who wrote the version that was read.
        version: Version,
        /// A fingerprint of the row.
        value: u64,
    },
    /// A key was found absent.
    Miss {
        /// The table's number.
        table: u32,
        /// The key.
        key: KeyWords,
        /// Who deleted it last; 0 if it never existed.
        deleted_by: Version,
    },
    /// A row was updated or inserted.
    Write {
        /// The table's number.
        table: u32,
        /// The row's key.
        key: KeyWords,
        /// Who wrote the version that was replaced; of an insert, who deleted the key last (0: it never existed).
        over: Version,
        /// Whether the key was absent before.
        insert: bool,
        /// A fingerprint of the row.
        value: u64,
    },
    /// A row was deleted.
    Delete {
        /// The table's number.
        table: u32,
        /// The row's key.
        key: KeyWords,
        /// Who wrote the version that was deleted.
        over: Version,
    },
    /// A range was read.
    Scan {
        /// The table's number.
        table: u32,
        /// The low end, included.
        low: KeyWords,
        /// The high end, included.
        high: KeyWords,
        /// The rows seen: key and writer, in the order of the scan.
        seen: Vec<(KeyWords, Version)>,
        /// The keys in the range found deleted, with their deleters.
        gone: Vec<(KeyWords, Version)>,
        /// Keys in the range that the transaction itself has inserted or changed, which it saw or not as it had left them.
        own: Vec<KeyWords>,
    },
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its number: positive, and no other transaction's of the engine.
    pub txn: Version,
    /// The worker that ran it.
    pub worker: usize,
    /// What it did, in order; writes come last.
    pub operations: Vec<Operation>,
}

/// A worker's recording.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// The running transaction's operations.
    pub(crate) running: Vec<Operation>,
    /// The committed transactions.
    pub(crate) committed: Vec<Committed>,
}

/// A fingerprint of a row: FNV-1a over its words (Fowler, Noll, Vo).
pub fn fingerprint(row: &[u64]) -> u64 {
    row.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}
