//! [`Engine`]: tables, epochs and one protocol.
//!
//! **What is shared.** All workers share the engine by an `Arc`, and none changes it. A transaction
//! on its common path touches three shared things: the protocol's own words, the epochs, and the
//! tables, which it reaches by their handles without the catalog's lock. The two mutexes below are
//! taken when a worker begins or ends, and at a collection of garbage.
//!
//! **Inspection.** Methods that are to be called outside any transaction read rows by Relaxed loads
//! and without a lock. The caller has ended all transactions, and has joined the threads that ran
//! them or has been told of their end by a lock. That orders all their stores before the loads.
//! Beside a running transaction the answers could be torn, but memory stays safe: records are
//! atomic words as long as their tables live.

use std::collections::HashMap;
use std::sync::Arc;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::pieces::CheckedTypes;
use contend_model::random::{GOLDEN_GAMMA, mix};
use contend_model::{Inspect, Key, KeyWords, Table, TableSpec, Tables};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::cell_copy::CopyBlocks;
use crate::commit_sink::CommitSinks;
use crate::config::EngineConfig;
use crate::epoch::Epochs;
use crate::garbage::Garbage;
use crate::history::{Part, Version};
use crate::in_force::InForce;
use crate::layout::Shape;
use crate::protocol::Protocol;
use crate::table::{AnyTable, TableShape};

/// Tables under one protocol. All workers share it.
pub struct Engine<P: Protocol<M>, M: Machine> {
    pub(crate) protocol: P,
    pub(crate) config: EngineConfig,
    pub(crate) epochs: Epochs<M>,
    pub(crate) sinks: Option<Arc<dyn CommitSinks<M>>>,
    pub(crate) catalog: Catalog<M>,
    /// The memory for copies of cells of all tables.
    pub(crate) copy_blocks: Arc<CopyBlocks<M>>,
    /// The garbage of workers that have ended. The next worker that collects takes it over.
    /// Its memory is as old as it was with the former worker: each entry keeps its epoch, and the
    /// new owner waits for the same epochs. The lock's Release and Acquire hand the entries over.
    /// In lines of its own, as each worker locks it once in an epoch.
    pub(crate) left_garbage: CachePadded<Mutex<Vec<Garbage<M>>>>,
    /// The number of transactions that each worker number has run so far. A new worker with the
    /// number goes on from there, so that no transaction number is used twice.
    /// A worker that ends enters its number here before it gives its slot back, and a worker that
    /// begins takes a slot first. So it finds what the slot's last worker has entered.
    pub(crate) used_numbers: Mutex<HashMap<usize, u64>>,
    /// What is declared about transactions and their pieces.
    pub(crate) types_in_force: InForce<CheckedTypes>,
}

impl<P: Protocol<M>, M: Machine> std::fmt::Debug for Engine<P, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("protocol", &self.protocol.info().name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<P: Protocol<M>, M: Machine> Engine<P, M> {
    /// Creates an engine without tables.
    pub fn new(protocol: P, config: EngineConfig) -> Arc<Self> {
        Self::with_commit_sinks(protocol, config, None)
    }

    /// Creates an engine without tables, which tells a log of each commit.
    pub fn with_commit_sinks(
        mut protocol: P,
        config: EngineConfig,
        sinks: Option<Arc<dyn CommitSinks<M>>>,
    ) -> Arc<Self> {
        // Before the engine is shared: afterwards the size of what the protocol keeps for each
        // worker is fixed, and workers index it without a lock.
        protocol.prepare(config.workers_max, config.partitions.max(1));
        let interval = M::cycles_per_second() * config.epoch_ms as f64 / 1e3;
        Arc::new(Engine {
            protocol,
            epochs: Epochs::new(config.workers_max, interval as u64),
            copy_blocks: Arc::new(CopyBlocks::new(config.history)),
            config,
            sinks,
            catalog: Catalog::new(),
            left_garbage: CachePadded::new(Mutex::new(Vec::new())),
            used_numbers: Mutex::new(HashMap::new()),
            types_in_force: InForce::default(),
        })
    }

    /// Returns the protocol.
    #[inline(always)]
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns the engine's configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns the epochs, for tests that drive them by hand.
    pub fn epochs(&self) -> &Epochs<M> {
        &self.epochs
    }

    /// Whether this engine created the table.
    pub fn owns<K: Key>(&self, table: &Table<K>) -> bool {
        table.store() == self.catalog.store()
    }

    /// Whether updates that commute are logged as the differences that they add.
    pub(crate) fn logs_additions(&self) -> bool {
        self.config.options.commit_time_updates
    }

    /// Creates a table.
    /// Transactions may run meanwhile, since they reach their tables by handles. A thread uses the
    /// new table only after it was handed the handle, which orders all that was stored to the table
    /// here.
    pub fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        self.catalog.create(
            spec,
            Shape {
                meta_words: self.protocol.meta_words(),
                split: self.config.options.timestamp_splitting,
                history: self.config.history,
                // An addition leaves the write counter of its row as it is. So where additions are
                // logged, the counter must be in the row even if the protocol provides counters of
                // its own.
                counters: self.sinks.is_some() && (self.logs_additions() || !self.protocol.provides_write_counters()),
                holds: self.sinks.as_ref().is_some_and(|sinks| sinks.holds_rows()),
                alignment: self.config.options.alignment,
                leaf_words: self.protocol.leaf_words(),
                workers: self.config.workers_max,
            },
        )
    }

    /// Returns the names of the tables, in the order of their numbers.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.read().iter().map(|table| table.core().name().to_string()).collect()
    }

    /// Returns the shapes of the tables, in the order of their numbers.
    pub fn shapes(&self) -> Vec<TableShape> {
        self.catalog.read().iter().map(|table| table.shape()).collect()
    }

    /// Returns everything that has versions of its own, with names: the tables, or each of their
    /// groups of columns.
    pub fn parts(&self) -> Vec<(Part, String)> {
        let tables = self.catalog.read();
        let parts_of = |table: &Arc<dyn AnyTable<M>>| {
            let core = table.core();
            let name = |cell| match core.cell_count() {
                1 => core.name().to_string(),
                _ => format!("{}/{cell}", core.name()),
            };
            (0..core.cell_count()).map(|cell| (Part::of(core, cell), name(cell))).collect::<Vec<_>>()
        };
        tables.iter().flat_map(parts_of).collect()
    }

    /// Returns a key as a history names it. `table` is the number of its table.
    ///
    /// # Panics
    /// There is no such table.
    pub fn key_name(&self, table: u32, key: &KeyWords) -> String {
        self.catalog.read()[table as usize].key_name(key)
    }

    /// Returns the transaction that wrote a part of the row under a key, as the row stands; 0 if
    /// the row was loaded. `None` if there is no row, or if the engine records no history. To be
    /// called outside any transaction.
    ///
    /// # Panics
    /// There is no such part.
    pub fn last_writer(&self, part: Part, key: &KeyWords) -> Option<Version> {
        let tables = self.catalog.read();
        let (table, core) = (&tables[part.table as usize], tables[part.table as usize].core());
        let record = table.find(key).filter(|&record| core.records_history() && !self.protocol.is_absent(record))?;
        // Relaxed: no transaction runs, as the caller promises.
        Some(core.payload(record)[core.signature(part.cell as usize)].load(Ordering::Relaxed))
    }

    /// Returns where the record under a key is: the address of its first word, and the number of
    /// its words. `None` if there is no record. To be called outside any transaction.
    ///
    /// # Panics
    /// There is no such part.
    pub fn place(&self, part: Part, key: &KeyWords) -> Option<(usize, usize)> {
        let tables = self.catalog.read();
        let table = &tables[part.table as usize];
        let record = table.find(key)?;
        let payload = table.core().payload(record);
        let first = std::ptr::from_ref(record.word()) as usize;
        Some((
            first,
            (std::ptr::from_ref(payload) as *const M::U64 as usize - first) / size_of::<M::U64>() + payload.len(),
        ))
    }

    /// Returns the bytes of all tables: their records and indexes, and copies of their cells.
    pub fn bytes(&self) -> u64 {
        let tables: u64 = self.catalog.read().iter().map(|table| table.bytes()).sum();
        tables + self.copy_blocks.bytes() as u64
    }

    /// Returns the name of each table, and the number of its rows. Every record is visited. To be
    /// called outside any transaction.
    pub fn rows(&self) -> Vec<(String, u64)> {
        let rows = |table: &dyn AnyTable<M>| {
            let mut rows = 0;
            table.for_each_record(&mut |_, record| rows += u64::from(!self.protocol.is_absent(record)));
            rows
        };
        self.catalog.read().iter().map(|table| (table.core().name().to_string(), rows(&**table))).collect()
    }

    /// Returns a histogram of the lengths of version chains, by powers of two: entry 0 counts the
    /// records without old versions, entry 1 those with one, entry 2 those with two or three, and
    /// so on. To be called outside any transaction.
    pub fn version_chains(&self) -> Vec<u64> {
        let mut records = Vec::new();
        for table in self.catalog.read().iter() {
            table.for_each_record(&mut |_, record| {
                let class = (u64::BITS - self.protocol.older_versions(record).leading_zeros()) as usize;
                records.resize(records.len().max(class + 1), 0);
                records[class] += 1;
            });
        }
        records
    }

    /// Copies the row under a key to `row`; `None` if the key is absent. The words are the row's
    /// and, if history is recorded, its writers' numbers. To be called outside any transaction.
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub fn peek<K: Key>(&self, table: &Table<K>, key: K, row: &mut Vec<u64>) -> Option<()> {
        let table = self.catalog.get(table);
        let record = table.find(key)?;
        if self.protocol.is_absent(record) {
            return None;
        }
        table.peek(record, row);
        Some(())
    }

    /// Returns a hash of all keys and rows, whatever the order in which they were inserted, and
    /// wherever they stand. To be called outside any transaction.
    pub fn state_hash(&self) -> u64 {
        let (mut sum, mut words) = (0u64, Vec::new());
        for table in self.catalog.read().iter() {
            let core = table.core();
            table.for_each_record(&mut |key, record| {
                if self.protocol.is_absent(record) {
                    return;
                }
                words.resize(core.payload_words(), 0);
                M::copy_out(core.payload(record), &mut words);
                // Without the signatures of a history.
                let row = &words[..core.row_words()];
                let hash = key
                    .iter()
                    .chain(row)
                    .fold(u64::from(core.id()), |hash, word| mix((hash ^ *word).wrapping_add(GOLDEN_GAMMA)));
                // A sum: the records come in no order.
                sum = sum.wrapping_add(hash);
            });
        }
        sum
    }

    /// Visits every row of a table with an ordered index; returns `false` if the index has no
    /// order. The words are as in [`Engine::peek`]. To be called outside any transaction.
    ///
    /// # Panics
    /// The table belongs to another engine.
    pub fn peek_all<K: Key>(&self, table: &Table<K>, mut visit: impl FnMut(K, &[u64])) -> bool {
        let (table, mut row) = (self.catalog.get(table), Vec::new());
        table.for_each(|key, record| {
            if !self.protocol.is_absent(record) {
                table.peek(record, &mut row);
                visit(key, &row);
            }
        })
    }
}

impl<P: Protocol<M>, M: Machine> Tables for Engine<P, M> {
    fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        Engine::create_table(self, spec)
    }

    fn wants_declarations(&self) -> bool {
        self.protocol.wants_declarations()
    }

    fn uses_pieces(&self) -> bool {
        self.protocol.uses_pieces()
    }
}

impl<P: Protocol<M>, M: Machine> Inspect for Engine<P, M> {
    fn table_name<K: Key>(&self, table: &Table<K>) -> String {
        self.catalog.get(table).name().to_string()
    }

    fn peek<K: Key>(&self, table: &Table<K>, key: K, row: &mut Vec<u64>) -> Option<()> {
        Engine::peek(self, table, key, row)
    }

    fn peek_all<K: Key>(&self, table: &Table<K>, visit: impl FnMut(K, &[u64])) -> bool {
        Engine::peek_all(self, table, visit)
    }

    fn announce<K: Key>(&self, table: &Table<K>, keys: &[K]) {
        self.catalog.get(table).announce(keys);
    }
}
