//! The cost of a checkpoint for the transactions that run beside it.
//!
//! In `cargo bench -p contend --bench checkpoint`, one thread for each core updates 8-byte rows at
//! random, ten in a transaction, in a database with a directory, and checkpoints are taken
//! meanwhile. It prints the throughput during a checkpoint as a fraction of the throughput between
//! two. `CONTEND_ROWS` sets the number of rows (1 million), `CONTEND_DIR` their directory (by
//! default one for temporary files; `/dev/shm` is memory).
//!
//! `cargo test --benches` only shows that it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contend::log::LogConfig;
use contend::{Database, Row, Table, Txn};

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Number {
    value: u64,
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() {
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let rows: u64 = if is_test { 1000 } else { setting("CONTEND_ROWS").unwrap_or(1_000_000) };
    let (rounds, pause) = if is_test { (1, Duration::from_millis(20)) } else { (5, Duration::from_secs(1)) };
    let folder = match setting::<String>("CONTEND_DIR") {
        Some(place) => tempfile::tempdir_in(place),
        None => tempfile::tempdir(),
    };
    let folder = folder.expect("a folder");
    // No checkpoint but those that the benchmark takes.
    let log = LogConfig { checkpoint_bytes: u64::MAX, ..LogConfig::default() };
    let db: Database = Database::builder().path(folder.path()).log(log).open().expect("a database");
    let table: Table<Number> = db.create_table("numbers").expect("a table");
    db.load(&table, (0..rows).map(|key| (key, Number { value: 0 }))).expect("rows");
    let (is_over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let run = |mut random: u64| {
        // Relaxed: a flag that publishes nothing else.
        while !is_over.load(Ordering::Relaxed) {
            let ticket = db.transact_async(|tx| {
                for _ in 0..10 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = ((u128::from(random) * u128::from(rows)) >> 64) as u64;
                    tx.modify(&table, key, |number| number.value += 1)?;
                }
                Ok(())
            });
            drop(ticket.expect("a disk that works"));
            // Relaxed: a count.
            commits.fetch_add(1, Ordering::Relaxed);
        }
    };
    let rate = |work: &mut dyn FnMut()| {
        let (began, before) = (Instant::now(), commits.load(Ordering::Relaxed));
        work();
        (commits.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let run = &run;
        (1..=threads).for_each(|seed| {
            scope.spawn(move || run(seed));
        });
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let between = rate(&mut || std::thread::sleep(pause));
            let mut checkpoint = None;
            let during = rate(&mut || checkpoint = db.checkpoint().expect("a disk that works"));
            let checkpoint = checkpoint.expect("there is a log");
            assert_eq!(checkpoint.rows, rows);
            println!(
                "checkpoint of {rows} rows in {:.2} s, in the place of {} MB: {during:.0} transactions/s, {between:.0} without it: {:.3}",
                checkpoint.seconds,
                checkpoint.replaced.1 >> 20,
                during / between
            );
            ratios.push(during / between);
        }
        is_over.store(true, Ordering::Relaxed);
        ratios.sort_by(f64::total_cmp);
        println!("median: {:.3}", ratios[rounds / 2]);
    });
}
