//! The rows that the workloads declare for a protocol that takes what is known of them.

use std::collections::BTreeMap;

use contend_engine::history::{Operation, Part};
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

/// Whether a type of transactions has written a row of a table that it had declared as written, by
/// the numbers of both.
pub(crate) type Written = BTreeMap<(usize, u32), bool>;

/// Returns the table, the key, and whether it is a write.
fn touch(operation: &Operation) -> Option<(u32, KeyWords, bool)> {
    match *operation {
        Operation::Read { part, key, .. } | Operation::Miss { part, key, .. } => Some((part.table, key, false)),
        Operation::Write { part, key, .. } | Operation::Delete { part, key, .. } => Some((part.table, key, true)),
        Operation::Scan { .. } => None,
    }
}

impl Rows {
    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns what is wrong with the declaration of a transaction that has done this: it has
    /// declared a row that it did not touch, or as read a row that it has written.
    pub(crate) fn fault(&self, done: &[Operation]) -> Option<String> {
        let done: Vec<_> = done.iter().filter_map(touch).collect();
        self.0.iter().find_map(|(&(table, key), &writes)| {
            let mut touches = done.iter().filter(|(of, at, _)| (*of, *at) == (table, key)).peekable();
            if touches.peek().is_none() {
                return Some(format!("{key:?} of table {table} is declared, and not touched"));
            }
            let is_written = touches.any(|(_, _, is_write)| *is_write);
            (is_written && !writes).then(|| format!("{key:?} of table {table} is written, and declared as read"))
        })
    }

    /// Notes which rows that a transaction of this type has declared as written it has written.
    pub(crate) fn note_written(&self, done: &[Operation], kind: usize, written: &mut Written) {
        for (&(table, key), _) in self.0.iter().filter(|(_, writes)| **writes) {
            let is_written = done.iter().filter_map(touch).any(|touch| touch == (table, key, true));
            *written.entry((kind, table)).or_default() |= is_written;
        }
    }
}

#[test]
fn a_wrong_declaration_is_found() {
    let part = Part { table: 3, cell: 0 };
    let key = |first| [first, 0, 0, 0];
    let read = Operation::Read { part, key: key(1), version: 0, value: 0 };
    let write = Operation::Delete { part, key: key(2), over: 0 };
    let done = [read, write];
    let rows = |rows: &[(u64, bool)]| Rows(rows.iter().map(|&(at, writes)| ((3, key(at)), writes)).collect());
    assert_eq!(rows(&[(1, false), (2, true)]).fault(&done), None);
    assert_eq!(rows(&[(1, true)]).fault(&done), None, "it may write");
    assert!(rows(&[(2, false)]).fault(&done).expect("a write").contains("declared as read"));
    assert!(rows(&[(9, false)]).fault(&done).expect("too much").contains("not touched"));
    let mut written = Written::new();
    rows(&[(1, true)]).note_written(&done, 7, &mut written);
    assert_eq!(written, [((7, 3), false)].into());
    rows(&[(2, true)]).note_written(&done, 7, &mut written);
    assert_eq!(written, [((7, 3), true)].into());
}
