//! Descriptions of tables, from which a store makes them.

use crate::key::Key;
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
    /// The words of each group of columns; empty if all columns are of one group. [`TableSpec::of`]
    /// fills it in.
    pub groups: Vec<Span>,
    /// Words of a key, for an estimate of the index's memory: 1, unless [`TableSpec::keyed`] says
    /// otherwise.
    pub key_words: usize,
    /// The expected number of rows: room is made for them at once.
    pub expected_rows: usize,
    /// Keys whose first words differ above this many low bits never share a leaf of an ordered
    /// index; with 64 and more, any keys may.
    pub apart: u32,
}

impl TableSpec {
    /// Returns a table of rows `R`.
    pub fn of<R: Row>(name: &str, index: IndexKind, expected_rows: usize) -> Self {
        TableSpec { groups: group_spans::<R>(), ..Self::of_bytes(name, index, size_of::<R>(), expected_rows) }
    }

    /// Returns a table of rows of bytes, all of one group.
    pub fn of_bytes(name: &str, index: IndexKind, row_bytes: usize, expected_rows: usize) -> Self {
        TableSpec {
            name: name.into(),
            index,
            row_bytes,
            groups: Vec::new(),
            key_words: 1,
            expected_rows,
            apart: u64::BITS,
        }
    }

    /// Returns the same table under keys `K`.
    pub fn keyed<K: Key>(self) -> Self {
        TableSpec { key_words: K::WORDS, ..self }
    }
}

/// Returns the words of each group of `R`'s columns. A group that has no column has no words.
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
