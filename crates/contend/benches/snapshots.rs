//! The cost of snapshots for transactions that write.
//!
//! In `cargo bench -p contend --bench snapshots`, one thread for each core runs transactions of ten
//! operations, half of them reads and half blind writes, as in YCSB's workload A. Two databases
//! under Silo take turns: one with snapshots, which is the default, and one without. It prints the
//! throughput of each round, and the median ratio; then the time of a load as a multiple of that of
//! a plain loader. `CONTEND_ROWS` sets the number of rows (1 million), `CONTEND_SNAPSHOT_EPOCHS`
//! the number of epochs between two snapshots (1). With a very large number, only the price of the
//! metadata is left.
//!
//! `cargo test --benches` only shows that it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contend::protocols::SiloOptions;
use contend::{Config, Database, IndexKind, Row, Silo, Table, TableOptions, Txn};
use contend_engine::{Engine, EngineConfig, NamedProtocol, TableSpec};
use contend_machine::Native;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Small {
    value: u64,
}

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Large {
    values: [u64; 12],
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }

    /// Draws a key. If the load is skewed, nine in ten keys are among the first thousand.
    fn key(&mut self, rows: u64, is_skewed: bool) -> u64 {
        if is_skewed && self.below(10) > 0 { self.below(rows.min(1000)) } else { self.below(rows) }
    }
}

/// Returns the transactions per second.
fn rate<R: Row>(
    db: &Database,
    table: &Table<R>,
    row: impl Fn(u64) -> R + Sync,
    rows: u64,
    is_skewed: bool,
    window: Duration,
) -> f64 {
    let (is_over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=threads {
            let (is_over, commits, row) = (&is_over, &commits, &row);
            scope.spawn(move || {
                let (mut random, mut own) = (Random(seed), 0);
                // Relaxed: a flag that publishes nothing else.
                while !is_over.load(Ordering::Relaxed) {
                    let operations: [(u64, bool); 10] =
                        std::array::from_fn(|_| (random.key(rows, is_skewed), random.below(2) == 0));
                    let done = db.transact(|tx| {
                        for (key, writes) in operations {
                            if writes {
                                tx.write(table, key, row(key))?;
                            } else {
                                std::hint::black_box(tx.read(table, key, contend::Whole)?.is_some());
                            }
                        }
                        Ok(())
                    });
                    done.expect("it is tried until it commits");
                    own += 1;
                }
                // Relaxed: read when all threads have ended.
                commits.fetch_add(own, Ordering::Relaxed);
            });
        }
        std::thread::sleep(window);
        is_over.store(true, Ordering::Relaxed);
    });
    commits.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn compare<R: Row>(name: &str, row: impl Fn(u64) -> R + Sync + Copy, rows: u64, rounds: usize, window: Duration) {
    let options = TableOptions { index: IndexKind::Hash, expected_rows: rows as usize };
    let open = |db: Database| {
        let table: Table<R> = db.create_table_with("rows", options).expect("a new name");
        let began = Instant::now();
        assert_eq!(db.load(&table, (0..rows).map(|key| (key, row(key)))), Ok(rows));
        (db, table, began.elapsed())
    };
    let snapshots = SiloOptions {
        snapshots: true,
        snapshot_epochs: setting("CONTEND_SNAPSHOT_EPOCHS").unwrap_or(1),
        ..SiloOptions::default()
    };
    let on = open(Database::<Silo>::with(snapshots, Config::default()).expect("it is in memory"));
    let off = open(Database::<Silo>::with(Default::default(), Config::default()).expect("it is in memory"));
    for is_skewed in [false, true] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let of = |(db, table, _): &(Database, Table<R>, Duration)| rate(db, table, row, rows, is_skewed, window);
            let (with, without) = (of(&on), of(&off));
            println!("{name}, skewed: {is_skewed}: {with:.0} transactions/s with snapshots, {without:.0} without");
            ratios.push(with / without);
        }
        ratios.sort_by(f64::total_cmp);
        println!("{name}, skewed: {is_skewed}: median {:.3}", ratios[rounds / 2]);
    }
    let engine = Engine::<Silo, Native>::new(
        <Silo as NamedProtocol<Native>>::new(Default::default()),
        EngineConfig { options: Config::default().engine, ..EngineConfig::default() },
    );
    let table = engine.create_table::<u64>(&TableSpec::of::<R>("rows", options.index, options.expected_rows));
    let began = Instant::now();
    let mut loader = engine.loader().expect("a slot");
    for key in 0..rows {
        assert_eq!(loader.insert(&table, key, |words| *R::from_words_mut(words) = row(key)), Ok(true));
    }
    let bare = began.elapsed();
    println!(
        "{name}: {rows} rows loaded in {:.2?}, {:.2?} without snapshots, {bare:.2?} without transactions",
        on.2, off.2
    );
}

fn main() {
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let rows: u64 = if is_test { 2000 } else { setting("CONTEND_ROWS").unwrap_or(1_000_000) };
    let (rounds, window) = if is_test { (1, Duration::from_millis(10)) } else { (9, Duration::from_millis(400)) };
    compare("rows of 8 bytes", |value| Small { value }, rows, rounds, window);
    compare("rows of 96 bytes", |value| Large { values: [value; 12] }, rows, rounds, window);
}
