//! Descriptions of tables. A store creates a table from one.

use crate::key::Key;
use crate::pieces::DeclaredTable;
use crate::projection::Span;
use crate::row::Row;

/// The kind of a table's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// A hash index: point lookups only, with the fewest cache lines.
    Hash,
    /// An ordered index: point lookups and ranges.
    Ordered,
}

/// The description of a table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The table's name, in histories and errors.
    pub name: String,
    /// The kind of its index.
    pub index: IndexKind,
    /// Bytes of a row. May be 0.
    pub row_bytes: usize,
    /// The words of each group of columns; empty if all columns belong to one group.
    /// [`TableSpec::of`] fills it in.
    pub groups: Vec<Span>,
    /// The names of each group's columns, for messages; empty if the rows are known by their words
    /// only. [`TableSpec::of`] fills it in.
    pub columns: Vec<Vec<&'static str>>,
    /// The name of the rows' type, for messages; empty if the rows are known by their words only.
    /// [`TableSpec::of`] fills it in.
    pub row: &'static str,
    /// The number of words of a key, for an estimate of the index's memory. It is 1 unless
    /// [`TableSpec::keyed`] sets it.
    pub key_words: usize,
    /// The expected number of rows. The table makes room for them when it is created. Long rows of
    /// a table of many rows share cache lines with their neighbours.
    pub expected_rows: usize,
    /// The number of low bits of a key's first word in which the keys of one leaf may differ. Keys
    /// that differ in a higher bit never share a leaf of an ordered index. With 64 or more, any
    /// keys may.
    pub apart: u32,
}

impl TableSpec {
    /// Returns the description of a table of rows `R`.
    pub fn of<R: Row>(name: &str, index: IndexKind, expected_rows: usize) -> Self {
        TableSpec {
            groups: group_spans::<R>(),
            columns: column_names::<R>(),
            row: R::NAME,
            ..Self::of_bytes(name, index, size_of::<R>(), expected_rows)
        }
    }

    /// Returns the description of a table of rows of bytes, all in one group.
    pub fn of_bytes(name: &str, index: IndexKind, row_bytes: usize, expected_rows: usize) -> Self {
        TableSpec {
            name: name.into(),
            index,
            row_bytes,
            groups: Vec::new(),
            columns: Vec::new(),
            row: "",
            key_words: 1,
            expected_rows,
            apart: u64::BITS,
        }
    }

    /// Returns the table as declarations of pieces know it.
    pub fn declared(&self) -> DeclaredTable {
        let names = |group: &Vec<&str>| group.iter().map(|name| (*name).to_owned()).collect();
        DeclaredTable {
            name: self.name.clone(),
            groups: self.groups.len().max(1),
            columns: self.columns.iter().map(names).collect(),
            row: self.row.into(),
        }
    }

    /// Returns the same description with keys `K`.
    pub fn keyed<K: Key>(self) -> Self {
        TableSpec { key_words: K::WORDS, ..self }
    }
}

/// Returns the words of each group of `R`'s columns. A group without columns has no words.
fn group_spans<R: Row>() -> Vec<Span> {
    let groups = R::COLUMNS.iter().map(|column| column.group as usize + 1).max().unwrap_or(1);
    let span = |group: usize| {
        let mut columns = R::COLUMNS.iter().filter(|column| column.group as usize == group);
        let Some(first) = columns.next() else { return Span { first: 0, count: 0 } };
        let last = columns.next_back().unwrap_or(first);
        Span::of_bytes(first.offset, last.offset + last.size)
    };
    (0..groups).map(span).collect()
}

/// Returns the names of the columns of each of `R`'s groups.
fn column_names<R: Row>() -> Vec<Vec<&'static str>> {
    let mut names = vec![Vec::new(); group_spans::<R>().len()];
    R::COLUMNS.iter().for_each(|column| names[column.group as usize].push(column.name));
    names
}
