//! The configuration of an engine.

use crate::fault::Fault;

/// Where records begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// As many records in a cache line as fit. Longer records of a table with many rows begin at
    /// half lines.
    #[default]
    Packed,
    /// Each record in cache lines of its own.
    Line,
}

crate::option_choices!(Alignment { Packed => "packed", Line => "line" });

crate::options! {
    /// What an engine does for every protocol.
    pub struct EngineOptions {
        /// Commit-time updates: an update whose result the transaction does not read is not
        /// validated; it is applied at commit to the row as it is then.
        "engine.commit_time_updates" commit_time_updates: bool = false, in ();
        /// Timestamp splitting: each group of columns has a version of its own, instead of the row.
        "engine.timestamp_splitting" timestamp_splitting: bool = false, in ();
        /// Where records begin: as many in a cache line as fit, or each in lines of its own.
        "engine.alignment" alignment: Alignment = Alignment::Packed, in ();
        /// Protection: a worker's transaction runs alone after this many conflicts in a row; 0:
        /// never. No other transaction begins until it has committed.
        "engine.protect_after" protect_after: u32 = 0, in 0..=1_000_000;
        /// Let a transaction that waits for the lock of a record look at it more and more seldom,
        /// so that the holder is disturbed less. Off: it looks again after each yield.
        "engine.lock_backoff" lock_backoff: bool = true, in ();
    }
}

/// The configuration of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// The most workers and loaders that may exist at one time: 1 to [`EngineConfig::WORKERS_MAX`].
    pub workers_max: usize,
    /// The shortest time between two epochs, in milliseconds. Silo's paper and CCBench use 40.
    pub epoch_ms: u64,
    /// Whether the operations of transactions are recorded. Each version is then signed by its
    /// writer, which costs time and a word in each record.
    pub history: bool,
    /// The number of partitions into which transactions divide the data, for protocols that lock
    /// partitions.
    pub partitions: usize,
    /// The options that a run may choose.
    pub options: EngineOptions,
    /// A deliberate bug, for tests of the proof.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl EngineConfig {
    /// The most workers of any engine: a lock counts its holders in 14 bits.
    pub const WORKERS_MAX: usize = (1 << 14) - 1;
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            workers_max: 1024,
            epoch_ms: 40,
            history: false,
            partitions: 1,
            options: EngineOptions::default(),
            fault: None,
        }
    }
}
