//! What a recorded transaction did: raw material for a history, kept by its worker.

use std::collections::HashMap;

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::sets::{WriteKind, WriteSet};

/// Who wrote a version: a transaction's number, or 0 for a row that was loaded.
pub type Version = u64;

/// One operation of a committed transaction. Point reads of the transaction's own writes are not among them, nor is what it did to
/// a key that it has inserted and deleted again.
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
    /// A row was updated or inserted. A transaction may write one key more than once.
    Write {
        /// The table's number.
        table: u32,
        /// The row's key.
        key: KeyWords,
        /// Who wrote the version that the transaction's first write of the key replaced; if that was an insert, who deleted the
        /// key last (0: it never existed).
        over: Version,
        /// Whether the key was absent before.
        insert: bool,
        /// A fingerprint of the row; of the transaction's last write of the key only.
        value: Option<u64>,
    },
    /// A row was deleted.
    Delete {
        /// The table's number.
        table: u32,
        /// The row's key.
        key: KeyWords,
        /// As of a write.
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
        /// The rows seen: key and writer, which may be the transaction itself, in the order of the scan.
        seen: Vec<(KeyWords, Version)>,
        /// The keys in the range found deleted by other transactions, with their deleters.
        gone: Vec<(KeyWords, Version)>,
        /// The keys in the range that the transaction itself had written by then.
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
    /// What it did, in order.
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

impl Recording {
    /// The running transaction has committed: completes its writes by what was not known before they were installed.
    pub(crate) fn commit<M: Machine>(&mut self, worker: usize, writes: &WriteSet<M>) {
        let txn = writes.txn;
        let mut operations = std::mem::take(&mut self.running);
        // By table and key: who was replaced, and the last value, which goes to the last write.
        let mut installed: HashMap<(u32, KeyWords), (Version, Option<u64>)> = HashMap::new();
        for (position, entry) in writes.entries().iter().enumerate() {
            if entry.kind != WriteKind::Nothing {
                let value = (entry.kind != WriteKind::Delete).then(|| fingerprint(writes.image(position)));
                installed.insert((entry.table().id(), writes.key(position)), (entry.over, value));
            }
        }
        operations.retain_mut(|operation| match operation {
            Operation::Scan { table, seen, .. } => {
                seen.retain(|(key, version)| *version != txn || installed.contains_key(&(*table, *key)));
                true
            }
            Operation::Write { table, key, .. } | Operation::Delete { table, key, .. } => {
                installed.contains_key(&(*table, *key))
            }
            Operation::Read { .. } | Operation::Miss { .. } => true,
        });
        for operation in operations.iter_mut().rev() {
            let (Operation::Write { table, key, over, .. } | Operation::Delete { table, key, over }) = operation else {
                continue;
            };
            let Some((replaced, last_value)) = installed.get_mut(&(*table, *key)) else { continue };
            *over = *replaced;
            if let Operation::Write { value, .. } = operation {
                *value = last_value.take();
            }
        }
        self.committed.push(Committed { txn, worker, operations });
    }
}

/// A fingerprint of a row: FNV-1a over its words (Fowler, Noll, Vo).
pub fn fingerprint(row: &[u64]) -> u64 {
    row.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}
