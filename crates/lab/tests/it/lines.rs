//! The cache lines that operations touch, counted on a simulated chip.
//!
//! The chip has one core, whose only private cache holds 256 lines. So a line that an operation
//! touches is a miss, unless the transaction has just touched it, or all transactions touch it. The
//! counts are the same on every host.

use contend_lab::memory_limit::lines_per_transaction;
use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_runner::{RunConfig, Stop};

/// The file that has the counts.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lines.csv");
/// The difference that counts as none. The file has one decimal.
const TOLERANCE: f64 = 0.1;
/// Transactions that suffice, since all of them are alike.
const ENOUGH: u64 = 20;
/// The number of operations of a short transaction, and of a long one.
const OPERATIONS: [usize; 2] = [5, 15];

/// Returns the misses of a transaction with this number of operations, all reads or all writes.
fn misses(protocol: &str, index: &str, operations: usize, reads: &str) -> f64 {
    let settings =
        [("ycsb.records", "100k"), ("ycsb.batch", "off"), ("ycsb.read", reads), ("ycsb.ops", &operations.to_string())];
    let config = RunConfig {
        workload: "ycsb".into(),
        protocols: vec![protocol.into()],
        index: Some(index.into()),
        settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
        ..RunConfig::default()
    };
    lines_per_transaction(&config, (16 << 10, 8), ENOUGH, &Stop::default()).expect("it runs").0
}

/// Returns the lines of a read and of a write, by protocol and index.
fn counted() -> Vec<(String, [f64; 2])> {
    let of = |protocol: &str, index: &str| {
        let per_operation = |reads| {
            let [short, long] = OPERATIONS.map(|operations| misses(protocol, index, operations, reads));
            (long - short) / (OPERATIONS[1] - OPERATIONS[0]) as f64
        };
        (format!("{protocol},{index}"), ["1", "0"].map(per_operation))
    };
    let protocols = all_protocols::<Native>();
    protocols.iter().flat_map(|(info, _)| ["hash", "ordered"].map(|index| of(info.name, index))).collect()
}

#[test]
fn operations_touch_as_many_lines_as_the_file_says() {
    let counted = counted();
    let row = |(of, [read, write]): &(String, [f64; 2])| format!("{of},{read:.1},{write:.1}\n");
    let text: String = std::iter::once("protocol,index,read,write\n".into()).chain(counted.iter().map(row)).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, &text).expect("docs/lines.csv can be written");
    }
    let known = std::fs::read_to_string(FILE).expect("docs/lines.csv");
    assert!(known.lines().skip(1).count() == counted.len(), "other protocols; UPDATE_DOCS=1 writes the file:\n{text}");
    for (line, (of, now)) in known.lines().skip(1).zip(&counted) {
        let figures = line.strip_prefix(&format!("{of},")).unwrap_or_else(|| panic!("{of} is not '{line}'"));
        let known: Vec<f64> = figures.split(',').map(|figure| figure.parse().expect("a number")).collect();
        let is_as_before = known.iter().zip(now).all(|(known, now)| (known - now).abs() <= TOLERANCE);
        assert!(is_as_before && known.len() == 2, "{line}, now {now:?}; UPDATE_DOCS=1 writes the file");
    }
}
