//! [`Table`]: a table's handle.

use std::ops::Deref;
use std::sync::Arc;

use contend_engine::{Key, Row, TypedTable};

/// A table of rows `R` under keys `K`. It is a handle: all clones are the same table. It doesn't
/// keep the database alive.
#[derive(Debug)]
pub struct Table<R, K: Key = u64> {
    table: TypedTable<R, K>,
    name: Arc<str>,
}

impl<R, K: Key> Clone for Table<R, K> {
    fn clone(&self) -> Self {
        Table { table: self.table, name: Arc::clone(&self.name) }
    }
}

impl<R: Row, K: Key> Table<R, K> {
    pub(crate) fn new(table: TypedTable<R, K>, name: &str) -> Self {
        Table { table, name: name.into() }
    }

    /// Returns the name by which the table was created.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<R, K: Key> Deref for Table<R, K> {
    type Target = TypedTable<R, K>;

    #[inline(always)]
    fn deref(&self) -> &TypedTable<R, K> {
        &self.table
    }
}
