//! [`Engine`]: tables, epochs and one protocol.

use std::collections::HashMap;
use std::sync::Arc;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::{Inspect, Key, KeyWords, Table, TableSpec, Tables};
use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::commit_sink::CommitSinks;
use crate::config::EngineConfig;
use crate::epoch::Epochs;
use crate::garbage::Garbage;
use crate::history::{Part, Version};
use crate::layout::Shape;
use crate::protocol::Protocol;
use crate::table::{AnyTable, TableShape};

/// Tables under one protocol. Shared by all workers.
pub struct Engine<P: Protocol<M>, M: Machine> {
    pub(crate) protocol: P,
    pub(crate) config: EngineConfig,
    pub(crate) epochs: Epochs<M>,
    pub(crate) sinks: Option<Arc<dyn CommitSinks<M>>>,
    pub(crate) catalog: Arc<Catalog<M>>,
    /// Garbage of workers that have ended, for the next worker that collects.
    pub(crate) left_garbage: Mutex<Vec<Garbage<M>>>,
    /// By worker number: the transactions of the workers that had it before, so that no number of a
    /// transaction is used twice.
    pub(crate) used_numbers: Mutex<HashMap<usize, u64>>,
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
    /// An engine without tables.
    pub fn new(protocol: P, config: EngineConfig) -> Arc<Self> {
        Self::with_commit_sinks(protocol, config, None)
    }

    /// An engine without tables that tells a log of each commit.
    pub fn with_commit_sinks(
        mut protocol: P,
        config: EngineConfig,
        sinks: Option<Arc<dyn CommitSinks<M>>>,
    ) -> Arc<Self> {
        protocol.prepare(config.workers_max, config.partitions.max(1));
        let interval = M::cycles_per_second() * config.epoch_ms as f64 / 1e3;
        Arc::new(Engine {
            protocol,
            epochs: Epochs::new(config.workers_max, interval as u64),
            config,
            sinks,
            catalog: Arc::new(Catalog::new()),
            left_garbage: Mutex::new(Vec::new()),
            used_numbers: Mutex::new(HashMap::new()),
        })
    }

    /// The protocol.
    #[inline(always)]
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// How the engine was configured.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The epochs: for tests that drive them by hand.
    pub fn epochs(&self) -> &Epochs<M> {
        &self.epochs
    }

    /// Whether this engine created the table.
    pub fn owns<K: Key>(&self, table: &Table<K>) -> bool {
        self.catalog.owns(table)
    }

    /// Whether updates that commute are logged by what they add.
    pub(crate) fn logs_additions(&self) -> bool {
        self.config.options.commit_time_updates
    }

    /// Creates a table.
    pub fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        self.catalog.create(
            spec,
            Shape {
                meta_words: self.protocol.meta_words(),
                split: self.config.options.timestamp_splitting,
                history: self.config.history,
                // What is added to a row leaves it the write counter that it has.
                counters: self.sinks.is_some() && (self.logs_additions() || !self.protocol.provides_write_counters()),
                holds: self.sinks.as_ref().is_some_and(|sinks| sinks.holds_rows()),
                alignment: self.config.options.alignment,
            },
        )
    }

    /// The tables' names, by their numbers.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.read().iter().map(|table| table.core().name().to_string()).collect()
    }

    /// What the tables are made of, by their numbers.
    pub fn shapes(&self) -> Vec<TableShape> {
        self.catalog.read().iter().map(|table| table.shape()).collect()
    }

    /// What has versions of its own, with names: the tables, or each of their groups of columns.
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

    /// A key as a history names it. `table` is a table's number.
    ///
    /// # Panics
    /// There is no such table.
    pub fn key_name(&self, table: u32, key: &KeyWords) -> String {
        self.catalog.read()[table as usize].key_name(key)
    }

    /// Who wrote a part of the row under a key as it stands, outside any transaction; 0 if it was
    /// loaded, `None` if there is no row, or if the engine records no history.
    ///
    /// # Panics
    /// There is no such part.
    pub fn last_writer(&self, part: Part, key: &KeyWords) -> Option<Version> {
        let tables = self.catalog.read();
        let (table, core) = (&tables[part.table as usize], tables[part.table as usize].core());
        let record = table.find(key).filter(|&record| core.records_history() && !self.protocol.is_absent(record))?;
        // Relaxed: no transaction runs.
        Some(core.payload(record)[core.signature(part.cell as usize)].load(Ordering::Relaxed))
    }

    /// Where the record under a key is, outside any transaction: its first word's address, and its
    /// words. `None` if there is none.
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

    /// Bytes of all tables: records' memory and indexes.
    pub fn bytes(&self) -> u64 {
        self.catalog.read().iter().map(|table| table.bytes()).sum()
    }

    /// Of how many records so many older versions are kept, outside any transaction: of none, of 1,
    /// of 2 and 3, of 4 to 7, and so on.
    pub fn version_chains(&self) -> Vec<u64> {
        let mut records = Vec::new();
        for table in self.catalog.read().iter() {
            table.for_each_record(&mut |record| {
                let class = (u64::BITS - self.protocol.older_versions(record).leading_zeros()) as usize;
                records.resize(records.len().max(class + 1), 0);
                records[class] += 1;
            });
        }
        records
    }

    /// Copies the row under a key to `row`, outside any transaction; `None` if the key is absent.
    /// The words are the row's and, if history is recorded, its writers' numbers.
    ///
    /// # Panics
    /// The table is of another engine.
    pub fn peek<K: Key>(&self, table: &Table<K>, key: K, row: &mut Vec<u64>) -> Option<()> {
        let table = self.catalog.get(table);
        let record = table.find(key)?;
        if self.protocol.is_absent(record) {
            return None;
        }
        table.peek(record, row);
        Some(())
    }

    /// Visits every row of a table with an ordered index, outside any transaction; `false` if the
    /// index has no order. The words are as in [`Engine::peek`].
    ///
    /// # Panics
    /// The table is of another engine.
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
