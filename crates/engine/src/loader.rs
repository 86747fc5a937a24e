//! [`Loader`]: fills tables before any transaction runs.
//!
//! A loaded row is there at once, without a commit: the record has the protocol's word of a row
//! that no transaction has written ([`RecordOrigin::Loaded`]). Several loaders may work at a time.
//! Two of them that add one key meet in the index, which takes one of the records; the other one
//! was never visible, and is given back at once. The transactions that come later find the rows by
//! the index, whose Acquire pairs with the Release of the insert.

use std::sync::Arc;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::{Key, KeyWords, Load, OutOfMemory, Table};

use crate::catalog;
use crate::commit_sink::{COUNTER_EPOCH_SHIFT, WriteCounter};
use crate::engine::Engine;
use crate::layout::TableCore;
use crate::protocol::{Protocol, RecordOrigin};
use crate::record::Record;
use crate::sets::UNSURE;
use crate::table::{Placed, StoredTable};
use crate::worker::Worker;

impl<P: Protocol<M>, M: Machine> Engine<P, M> {
    /// Returns a loader, which fills tables before transactions run. `None` if `workers_max`
    /// workers exist.
    pub fn loader(self: &Arc<Self>) -> Option<Loader<P, M>> {
        self.worker().map(Loader)
    }

    /// Returns a loader for rows that come from the log, and are not logged again. `None` as in
    /// [`Engine::loader`].
    pub fn reloader(self: &Arc<Self>) -> Option<Loader<P, M>> {
        let mut loader = self.loader()?;
        loader.0.cx.writes.log = None;
        Some(loader)
    }
}

/// Fills tables before any transaction runs.
#[derive(Debug)]
pub struct Loader<P: Protocol<M>, M: Machine>(Worker<P, M>);

impl<P: Protocol<M>, M: Machine> Loader<P, M> {
    /// Adds a row, which `fill` writes into words that are zero before. Returns `false` if the key
    /// exists.
    ///
    /// # Errors
    /// The machine has no more memory.
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub fn insert<K: Key>(
        &mut self,
        table: &Table<K>,
        key: K,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<bool, OutOfMemory> {
        let table = self.stored(table);
        let place = |record| matches!(table.insert(&mut table.run(), key, record), Placed::New(_));
        self.put(table, &key.to_words(), place, fill)
    }

    /// Adds a row to the table of this number, under a key given by its words. This serves callers
    /// that don't know the types of rows at compile time. Returns `false` if the key exists.
    ///
    /// # Errors
    /// The machine has no more memory.
    pub fn insert_words(&mut self, table: u32, key: &KeyWords, row: &[u64]) -> Result<bool, OutOfMemory> {
        let table = Arc::clone(&self.0.engine.catalog.read()[table as usize]);
        self.put(table.core(), key, |record| table.insert(key, record), |words| words.copy_from_slice(row))
    }

    fn stored<'t, K: Key>(&self, table: &Table<K>) -> &'t StoredTable<M, K> {
        // SAFETY: the worker keeps the engine, and each caller's use ends within a method of this
        // loader.
        unsafe { catalog::stored(self.0.store, table) }.unwrap_or_else(|| catalog::refuse(table))
    }

    fn put(
        &mut self,
        table: &TableCore<M>,
        key: &KeyWords,
        place: impl FnOnce(Record<M>) -> bool,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<bool, OutOfMemory> {
        let record = self.0.allocate(table, RecordOrigin::Loaded)?;
        let words = table.row_words();
        let row = &mut self.0.cx.row_buffer;
        row.clear();
        row.resize(words.max(16), 0);
        fill(&mut row[..words]);
        // Before `place`: the record is private until then. A lookup that finds it finds the whole
        // row.
        M::copy_in(&table.payload(record)[..words], &row[..words]);
        let counter = if self.0.cx.writes.log.is_some() { self.enter() << COUNTER_EPOCH_SHIFT } else { 0 };
        if counter > 0 {
            table.check_first_counter(WriteCounter(counter));
        }
        // The flag `UNSURE` keeps additions away until a transaction has written the row: a
        // transaction that adds to it may be durable earlier than the load. Relaxed: the record is
        // private until the index publishes it.
        table.counters(record).for_each(|word| word.store(counter | UNSURE, Ordering::Relaxed));
        let is_new = place(record);
        if !is_new {
            // At once, without the wait of two epochs: the index has refused the record, so no
            // transaction has its address.
            self.0.release(table, record);
        } else if let Some(log) = &mut self.0.cx.writes.log {
            // The row is in the index before it is in the log, and a transaction may write it in
            // between. Its write has a larger counter, so the order of the two in the files does
            // not matter. Its epoch is this one or a later one, so a flush of that epoch has the
            // load as well.
            self.0.committed_in = counter >> COUNTER_EPOCH_SHIFT;
            log.sink.loaded(self.0.committed_in, table.id(), key, &self.0.cx.row_buffer[..words]);
        }
        Ok(is_new)
    }

    /// Returns the epoch in which rows are loaded now. It doesn't end before all rows loaded in it
    /// are logged.
    fn enter(&mut self) -> u64 {
        let worker = &mut self.0;
        // A worker in an epoch keeps it from ending twice: the global epoch can advance once, and
        // the next advance waits for this slot. A flush of this epoch waits for the slot, too
        // (`Log::settle`), so it finds the row in the log's buffer.
        worker.seen_epoch = worker.engine.epochs.refresh(worker.cx.worker, worker.seen_epoch);
        worker.seen_epoch
    }

    /// Returns the epoch in which the last row was loaded, if the engine logs.
    pub fn loaded_in(&self) -> u64 {
        self.0.committed_in
    }
}

impl<P: Protocol<M>, M: Machine> Load for Loader<P, M> {
    fn insert<K: Key>(&mut self, table: &Table<K>, key: K, fill: impl FnOnce(&mut [u64])) -> Result<bool, OutOfMemory> {
        Loader::insert(self, table, key, fill)
    }

    fn announce<K: Key>(&mut self, table: &Table<K>, keys: &[K]) {
        self.stored(table).announce(keys);
    }
}
