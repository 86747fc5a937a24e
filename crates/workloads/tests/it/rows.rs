//! The rows that the workloads declare for a protocol that takes what is known of them.

use std::collections::BTreeMap;

use contend_engine::history::Operation;
use contend_model::{DeclarationNeeds, Declare, Key, KeyWords, Table};

/// The rows that a transaction has declared, and whether it may write them.
#[derive(Debug, Default)]
pub(crate) struct Rows(BTreeMap<(u32, KeyWords), bool>);

impl Declare for Rows {
    fn needs(&self) -> DeclarationNeeds {
        DeclarationNeeds::Rows
    }

    fn kind(&mut self, _: usize) {}

    fn read_only(&mut self) {}

    fn row<K: Key>(&mut self, table: &Table<K>, key: K, writes: bool) {
        *self.0.entry((table.number(), key.to_words())).or_default() |= writes;
    }

    fn partition(&mut self, _: usize) {}
}

impl Rows {
    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns what is wrong with the declaration of a transaction that has done this: it has
    /// declared a row that it did not touch, or as read a row that it has written.
    pub(crate) fn fault(&self, done: &[Operation]) -> Option<String> {
        let of = |operation: &Operation| match *operation {
            Operation::Read { part, key, .. } | Operation::Miss { part, key, .. } => Some((part.table, key, false)),
            Operation::Write { part, key, .. } | Operation::Delete { part, key, .. } => Some((part.table, key, true)),
            Operation::Scan { .. } => None,
        };
        let done: Vec<_> = done.iter().filter_map(of).collect();
        self.0.iter().find_map(|(&(table, key), &writes)| {
            let mut touches = done.iter().filter(|(of, at, _)| (*of, *at) == (table, key)).peekable();
            if touches.peek().is_none() {
                return Some(format!("{key:?} of table {table} is declared, and not touched"));
            }
            let is_written = touches.any(|(_, _, is_write)| *is_write);
            (is_written && !writes).then(|| format!("{key:?} of table {table} is written, and declared as read"))
        })
    }
}
