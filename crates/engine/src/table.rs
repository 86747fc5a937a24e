//! Tables in memory: an index over records of one layout.
//!
//! **What is shared.** The index publishes a record: its insert ends by a Release, and a lookup
//! loads with Acquire. So all that was stored to a record before the insert is visible to the
//! transaction that finds it, and the stores may be Relaxed. The same holds for a removal: what was
//! stored to the table before it is visible to a lookup that misses the key. The shape of a table
//! never changes, and is published with the table by the catalog's lock or by the table's handle.

use std::ops::{ControlFlow, Deref, Range};

use contend_index::{AscendingInserts, Change, Index, Insert, Leaf, Lookup, ScanVisitor};
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use contend_model::{Direction, IndexKind, Key, KeyWords, Projection, Span, TableSpec};

use crate::layout::{Shape, TableCore};
use crate::record::Record;

/// The shape of a table: all that a log or a tool must know to describe its rows.
#[derive(Clone, Debug)]
pub struct TableShape {
    /// The table's name.
    pub name: String,
    /// The number of words of a key.
    pub key_words: usize,
    /// The number of words of a row.
    pub row_words: usize,
    /// The words of each group of columns.
    pub groups: Vec<Span>,
    /// The kind of the table's index.
    pub index: IndexKind,
}

/// A table in memory: an index over records of one layout, under keys of type `K`.
#[derive(Debug)]
pub(crate) struct StoredTable<M: Machine, K: Key = u64> {
    core: TableCore<M>,
    index: Index<M, K>,
}

impl<M: Machine, K: Key> Deref for StoredTable<M, K> {
    type Target = TableCore<M>;

    #[inline(always)]
    fn deref(&self) -> &TableCore<M> {
        &self.core
    }
}

/// The result of [`StoredTable::insert`].
pub(crate) enum Placed<M: Machine> {
    /// The record stands under the key now.
    New(Change<M>),
    /// Another record stands under the key.
    Exists(Lookup<M>),
}

impl<M: Machine, K: Key> StoredTable<M, K> {
    pub(crate) fn new(id: u32, spec: &TableSpec, shape: Shape) -> Self {
        StoredTable {
            core: TableCore::new(id, spec, shape),
            index: Index::new(spec.index, spec.expected_rows, spec.apart, shape.leaf_words),
        }
    }

    /// Returns the record that a lookup found as this value.
    #[inline(always)]
    pub(crate) fn record(value: u64) -> Record<M> {
        // SAFETY: only `insert` puts values into the index, and it takes them from records of this
        // table.
        unsafe { Record::from_value(value) }
    }

    /// Looks a key up in the index.
    /// The record that it finds may leave the index at any moment. The protocol finds that in the
    /// record's word ([`RecordState::Unlinked`](crate::RecordState::Unlinked)). Its memory is not
    /// reused as long as the worker stays in its epoch, so the handle leads to a record of this
    /// table all the while.
    #[inline(always)]
    pub(crate) fn lookup(&self, key: K) -> Lookup<M> {
        self.index.get(key)
    }

    /// Returns the record under a key, absent or not.
    #[inline(always)]
    pub(crate) fn find(&self, key: K) -> Option<Record<M>> {
        self.lookup(key).value.map(Self::record)
    }

    /// Returns whether a record of the table, and its entry in the index, are hardly ever in a near
    /// cache.
    #[inline(always)]
    pub(crate) fn is_far(&self) -> bool {
        self.index.is_far()
    }

    /// Does other work until these columns of the record are here, if there is other work.
    #[inline(always)]
    pub(crate) fn await_record(&self, record: Option<Record<M>>, columns: Projection<'_>) {
        if M::overlaps()
            && let Some(record) = record
            && self.is_far()
        {
            self.core.prefetch(record, columns);
            M::await_prefetched();
        }
    }

    /// Prefetches the index entries of these keys, and their records, before each of them is used.
    /// Nothing depends on what is found here: each access looks its key up again.
    pub(crate) fn announce(&self, keys: &[K]) {
        self.find_many(keys, Projection::WHOLE, |_, _| ());
    }

    /// Looks many keys up at once, and prefetches `columns` of their records. Calls `found` with
    /// the position of each key, and with its record.
    #[inline(always)]
    pub(crate) fn find_many(
        &self,
        keys: &[K],
        columns: Projection<'_>,
        mut found: impl FnMut(usize, Option<Record<M>>),
    ) {
        self.index.get_many(keys, |position, lookup| {
            let record = lookup.value.map(Self::record);
            if let Some(record) = record {
                // A prefetch loads no word, so a record that has left the index by now does no
                // harm.
                self.core.prefetch(record, columns);
            }
            found(position, record);
        });
    }

    /// Puts a record under a key, unless a record stands there. `run` belongs to this table's
    /// index.
    pub(crate) fn insert(&self, run: &mut AscendingInserts<'_, M, K>, key: K, record: Record<M>) -> Placed<M> {
        if self.records_history() {
            // One critical section with `remove`: the new record is signed by the transaction that
            // deleted the key last. Otherwise an insert could look for the deleter before a removal
            // has named it, and enter the index after that removal. Its history would say that the
            // key never existed. The index takes its latches inside the section, here and in
            // `remove`, and never the other way round.
            return self.core.deletions.with(&key.to_words(), |deletions| {
                let deleter = deletions.get(&key.to_words()).copied().unwrap_or(0);
                for signature in &self.payload(record)[self.row_words()..][..self.cell_count()] {
                    // Relaxed: the record is private until the index publishes it.
                    signature.store(deleter, Ordering::Relaxed);
                }
                Self::placed(run.insert(key, record.value()))
            });
        }
        Self::placed(run.insert(key, record.value()))
    }

    fn placed(insert: Insert<M>) -> Placed<M> {
        match insert {
            Insert::Inserted(change) => Placed::New(change),
            Insert::Exists(lookup) => Placed::Exists(lookup),
        }
    }

    /// Returns a cursor for inserts of ascending keys, one after the other.
    pub(crate) fn run(&self) -> AscendingInserts<'_, M, K> {
        self.index.ascending_inserts()
    }

    /// Visits the records in the range; returns `false` if the index has no order.
    pub(crate) fn scan(&self, low: K, high: K, direction: Direction, visitor: &mut impl ScanVisitor<M, K>) -> bool {
        self.index.scan(low, high, direction, visitor)
    }

    /// Which index the table has.
    pub(crate) fn index_kind(&self) -> IndexKind {
        self.index.kind()
    }

    /// Raises the protocol's word of the leaf that covers the key to `time`, or leaves a larger
    /// value. On return the word was raised in a leaf that covered the key after the raise.
    fn raise(&self, key: K, time: u64) {
        // Each further round means that another worker has changed the leaf meanwhile, so some
        // worker makes progress. A raise of a leaf that was unlinked is lost, which is why the key
        // is looked up anew.
        let mut spin = Spin::<M>::new();
        loop {
            let lookup = self.lookup(key);
            // A writer latches the leaf (which changes the version), passes its fence and loads the
            // word. Either it sees the raised word, or this thread sees the new version, and raises
            // the word of the leaf that covers the key then.
            // Relaxed: ordered by the fence. SeqCst: pairs with the writer's fence (`Leaf::word`).
            lookup.leaf.word().fetch_max(time, Ordering::Relaxed);
            M::fence(Ordering::SeqCst);
            // The version is the one that the lookup has seen, so the leaf covered the key all the
            // time from the lookup to this load, and the word was raised in between.
            if lookup.leaf.version() == lookup.version {
                return;
            }
            spin.wait();
        }
    }

    /// Copies a record's row as it stands, and its signatures if history is recorded. To be called
    /// outside any transaction.
    /// The copy is no optimistic read: no word tells whether a writer was at work. The caller has
    /// ended the transactions and joined their threads, which orders their stores before this.
    pub(crate) fn peek(&self, record: Record<M>, to: &mut Vec<u64>) {
        to.resize(self.payload_words(), 0);
        M::copy_out(self.payload(record), to);
    }

    /// Visits every record in the order of the keys; returns `false` if the index has no order.
    /// The leaves' versions are not kept, because the caller sees to it that no transaction runs.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(K, Record<M>)) -> bool {
        struct All<F>(F);
        impl<M: Machine, K: Key, F: FnMut(K, Record<M>)> ScanVisitor<M, K> for All<F> {
            fn leaf(&mut self, _: Leaf<M>, _: u64) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }
            fn entry(&mut self, key: K, value: u64) -> ControlFlow<()> {
                (self.0)(key, StoredTable::<M, K>::record(value));
                ControlFlow::Continue(())
            }
        }
        self.index.scan(K::MIN, K::MAX, Direction::Forward, &mut All(&mut visit))
    }
}

/// A table whose key type is not known at compile time, with the operations that garbage
/// collection, loading and accounting need.
pub(crate) trait AnyTable<M: Machine>: Send + Sync {
    fn core(&self) -> &TableCore<M>;
    /// Removes the record from the index if it stands there under this key, and returns whether it
    /// did. The word of its leaf is raised to `time` before.
    fn remove(&self, key: &KeyWords, record: Record<M>, time: u64) -> bool;
    fn bytes(&self) -> u64;
    fn shape(&self) -> TableShape;
    /// Returns the record under this key, absent or not.
    fn find(&self, key: &KeyWords) -> Option<Record<M>>;
    /// Puts the record under this key; returns `false` if a record stands there already.
    fn insert(&self, key: &KeyWords, record: Record<M>) -> bool;
    /// Returns the memory in which the leaves of the index stand.
    fn leaf_memory(&self) -> Vec<Range<usize>>;
    /// Returns the key as a history names it.
    fn key_name(&self, key: &KeyWords) -> String;
    /// Visits every record of the index, absent or not. No transaction may run.
    fn for_each_record(&self, visit: &mut dyn FnMut(KeyWords, Record<M>));
}

impl<M: Machine, K: Key> AnyTable<M> for StoredTable<M, K> {
    fn core(&self) -> &TableCore<M> {
        &self.core
    }

    fn remove(&self, key: &KeyWords, record: Record<M>, time: u64) -> bool {
        // Before the removal. A transaction that inserts the key after the removal then finds the
        // time of the readers that have met the tombstone. In the other order an insert between the
        // two would miss it, and could take an earlier timestamp than such a reader.
        if time > 0 {
            self.raise(K::from_words(*key), time);
        }
        if !self.records_history() {
            return self.index.remove(K::from_words(*key), record.value());
        }
        self.core.deletions.with(key, |deletions| {
            // Relaxed: the record is a tombstone that the caller has retired, and no transaction
            // signs it any more. The protocol synchronised with its last writer when it marked the
            // record as unlinked.
            let deleter = self.payload(record)[self.signature(0)].load(Ordering::Relaxed);
            // 0: the key has had no row. The placeholder of an insert that was given up has the
            // signature that `insert` took from there, so storing it once more changes nothing.
            if deleter != 0 {
                deletions.insert(*key, deleter);
            }
            self.index.remove(K::from_words(*key), record.value())
        })
    }

    fn bytes(&self) -> u64 {
        (self.index.bytes() + self.record_bytes()) as u64
    }

    fn shape(&self) -> TableShape {
        TableShape {
            name: self.name().to_string(),
            key_words: K::WORDS,
            row_words: self.row_words(),
            groups: self.groups().to_vec(),
            index: self.index_kind(),
        }
    }

    fn find(&self, key: &KeyWords) -> Option<Record<M>> {
        StoredTable::find(self, K::from_words(*key))
    }

    fn insert(&self, key: &KeyWords, record: Record<M>) -> bool {
        matches!(StoredTable::insert(self, &mut self.run(), K::from_words(*key), record), Placed::New(_))
    }

    fn leaf_memory(&self) -> Vec<Range<usize>> {
        self.index.leaf_memory()
    }

    fn key_name(&self, key: &KeyWords) -> String {
        K::from_words(*key).name()
    }

    fn for_each_record(&self, visit: &mut dyn FnMut(KeyWords, Record<M>)) {
        match &self.index {
            Index::Hash(index) => {
                index.for_each(|key: K, value| visit(key.to_words(), StoredTable::<M, K>::record(value)));
            }
            Index::Ordered(_) => drop(self.for_each(|key, record| visit(key.to_words(), record))),
        }
    }
}
