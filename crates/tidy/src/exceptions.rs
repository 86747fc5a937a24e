//! What a rule lets pass, with the reason.

/// Files that use the standard library's atomics, with the reason. A transaction's path is in them
/// for a hint, or for a look whether declarations have changed, and for nothing else.
pub const ATOMICS: [(&str, &str); 19] = [
    ("crates/cli/src/cmd/log.rs", "counts bytes for the bar that shows progress"),
    ("crates/contend/src/durable.rs", "ends the thread that flushes"),
    ("crates/model/src/table.rs", "numbers stores"),
    ("crates/engine/src/layout.rs", "counts for a debug assertion, and notes that memory is used again"),
    ("crates/engine/src/in_force.rs", "counts changes of declarations, before which running transactions end"),
    ("crates/lab/src/experiment/sweep.rs", "hands points to the threads of a sweep, and counts"),
    ("crates/log/src/emulated.rs", "the state of a device that is emulated, outside of simulated memory"),
    ("crates/log/src/log.rs", "what the threads of the host tell each other: workers, flusher, service"),
    ("crates/log/src/log/buffer.rs", "the same"),
    ("crates/log/src/log/flush.rs", "the same"),
    ("crates/log/src/log/open.rs", "the same"),
    ("crates/log/src/log/serve.rs", "the same"),
    ("crates/log/src/recovery.rs", "hands files to the threads of a recovery"),
    ("crates/log/src/rows.rs", "counts what the threads of a recovery hold"),
    ("crates/protocols/src/accessors/progress.rs", "counts workers, when one is made"),
    ("crates/sim/src/machine.rs", "the words of the simulated machine are made of them"),
    ("crates/sim/src/region.rs", "the simulated machine's own state"),
    ("crates/workloads/src/tpcc/delivery.rs", "the same hint as in tpcc.rs"),
    ("crates/workloads/src/tpcc.rs", "a hint where the oldest new order stands; nothing depends on it"),
];

/// Families that use what another family shares, with the reason.
pub const BETWEEN_FAMILIES: [(&str, &str, &str); 3] = [
    ("hstore", "locking", "a partition's lock is a cell with a queue, granted in the order of age"),
    ("pieces", "optimistic", "a piece is validated as an optimistic transaction is"),
    ("pieces", "locking", "a part of a chopped transaction commits by a protocol of either family"),
];

/// Files that import whole protocols, with the reason.
pub const OVER_PROTOCOLS: [(&str, &str); 1] = [(
    "crates/protocols/src/pieces/chopping/over.rs",
    "chopping divides transactions into parts, and each part is a transaction of one of these",
)];

/// Variables by which a test talks to the process that it starts.
pub const INTERNAL_VARIABLES: [&str; 2] = ["CONTEND_TEST_CHILD", "CONTEND_TEST_CHILD_DURABILITY"];
