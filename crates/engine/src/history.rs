//! The recorded operations of transactions: raw material for a history, kept by each worker.

use contend_index::{KeyWords, key_of};
use contend_machine::Machine;
pub use contend_model::Applied;
use rustc_hash::FxHashMap;

use crate::layout::TableCore;
use crate::sets::{Base, WriteKind, WriteSet};

/// The writer of a version: the number of a transaction, or 0 for a row that was loaded.
pub type Version = u64;

/// All cells of one number in a table. They have versions of their own, so a history treats them as
/// a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// The table's number.
    pub table: u32,
    /// The number of the cells in their records.
    pub cell: u32,
}

impl Part {
    pub(crate) fn of<M: Machine>(table: &TableCore<M>, cell: usize) -> Part {
        Part { table: table.id(), cell: cell as u32 }
    }
}

/// One operation of a committed transaction. Two kinds of operations are left out: point reads of
/// the transaction's own writes, and all operations on a key that it has both inserted and deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A row was read.
    Read {
        /// The table and the number of the cell.
        part: Part,
        /// The row's key.
        key: KeyWords,
        /// The writer of the version that was read.
        version: Version,
        /// A fingerprint of the row.
        value: u64,
    },
    /// A key was found absent.
    Miss {
        /// The table and the number of the cell.
        part: Part,
        /// The key.
        key: KeyWords,
        /// The transaction that deleted the key last; 0 if it never existed.
        deleted_by: Version,
    },
    /// A row was updated or inserted. A transaction may write one key more than once.
    Write {
        /// The table and the number of the cell.
        part: Part,
        /// The row's key.
        key: KeyWords,
        /// The writer of the version that the transaction's first write of the key replaced. If
        /// that write was an insert, the transaction that deleted the key last (0: the key never
        /// existed).
        over: Version,
        /// Whether the key was absent before.
        insert: bool,
        /// How the write took its place among those of other transactions.
        applied: Applied,
        /// A fingerprint of the row. Only the transaction's last write of the key has one.
        value: Option<u64>,
    },
    /// A row was deleted.
    Delete {
        /// The table and the number of the cell.
        part: Part,
        /// The row's key.
        key: KeyWords,
        /// The writer of the replaced version, as in `Write`.
        over: Version,
    },
    /// A range was read.
    Scan {
        /// The table and the number of the cell.
        part: Part,
        /// The low end, included.
        low: KeyWords,
        /// The high end, included.
        high: KeyWords,
        /// The rows seen, each with its key and writer, in the order of the scan. The writer may be
        /// the transaction itself.
        seen: Vec<(KeyWords, Version)>,
        /// The keys in the range that were found deleted by other transactions, with their
        /// deleters.
        gone: Vec<(KeyWords, Version)>,
        /// The keys in the range that the transaction itself had written by then.
        own: Vec<KeyWords>,
    },
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The transaction's number: positive, and unique in its engine.
    pub txn: Version,
    /// The worker that ran it.
    pub worker: usize,
    /// Its operations, in their order.
    pub operations: Vec<Operation>,
}

/// The recording of one worker.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// The running transaction's operations since its last settled piece.
    pub(crate) running: Vec<Operation>,
    /// The running transaction's operations up to its last settled piece, complete.
    settled: Vec<Operation>,
    /// The committed transactions.
    pub(crate) committed: Vec<Committed>,
}

impl Recording {
    /// Takes the running transaction, which has committed.
    pub(crate) fn commit<M: Machine>(&mut self, worker: usize, writes: &WriteSet<M>) {
        self.settle(writes);
        let operations = std::mem::take(&mut self.settled);
        self.committed.push(Committed { txn: writes.txn, worker, operations });
    }

    /// Forgets the running transaction, which has aborted.
    pub(crate) fn forget_running(&mut self) {
        self.running.clear();
        self.settled.clear();
    }

    /// Completes the running transaction's writes so far, which are installed for good, by the
    /// facts that were unknown before they were installed.
    pub(crate) fn settle<M: Machine>(&mut self, writes: &WriteSet<M>) {
        let txn = writes.txn;
        let mut operations = std::mem::take(&mut self.running);
        // For each key: the writer that was replaced, the value of the last write, and whether the
        // write was omitted.
        let mut installed: FxHashMap<(Part, KeyWords), (Version, Option<u64>, bool)> = FxHashMap::default();
        for cell in &writes.installed {
            let write = &writes.entries()[cell.position];
            let (table, key) = (write.table(), key_of(writes.key(cell.position)));
            let part = Part::of(table, cell.cell);
            let value = (write.kind != WriteKind::Delete)
                .then(|| fingerprint(&writes.image(cell.position)[table.cell_words(cell.cell)]));
            if let Some(Base::Read(version, value)) = cell.base {
                operations.push(Operation::Read { part, key, version, value });
            }
            if let Some(base) = cell.base {
                let applied = if matches!(base, Base::Unread) { Applied::Commuting } else { Applied::InOrder };
                operations.push(Operation::Write { part, key, over: 0, insert: false, applied, value: None });
            }
            installed.insert((part, key), (cell.over, value, cell.omitted));
        }
        operations.retain_mut(|operation| match operation {
            Operation::Scan { part, seen, .. } => {
                seen.retain(|(key, version)| *version != txn || installed.contains_key(&(*part, *key)));
                true
            }
            Operation::Write { part, key, .. } => installed.contains_key(&(*part, *key)),
            // A transaction that deletes a row and inserts it again has replaced it. If that write
            // is omitted, so is the deletion.
            Operation::Delete { part, key, .. } => installed.get(&(*part, *key)).is_some_and(|(.., omitted)| !omitted),
            Operation::Read { .. } | Operation::Miss { .. } => true,
        });
        for operation in operations.iter_mut().rev() {
            let (Operation::Write { part, key, over, .. } | Operation::Delete { part, key, over }) = operation else {
                continue;
            };
            let Some((replaced, last_value, omitted)) = installed.get_mut(&(*part, *key)) else { continue };
            *over = *replaced;
            if let Operation::Write { value, applied, insert, .. } = operation {
                *value = last_value.take();
                if *omitted {
                    (*applied, *insert) = (Applied::Omitted, false);
                }
            }
        }
        if self.settled.is_empty() {
            self.settled = operations;
        } else {
            self.settled.append(&mut operations);
        }
    }
}

/// Returns a fingerprint of a row or a part of it: FNV-1a over the words (Fowler, Noll, Vo).
pub fn fingerprint(row: &[u64]) -> u64 {
    row.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}
