//! What recovery and a checkpoint cost.
//!
//! `cargo bench -p contend-log --bench recovery` logs a table of 8-byte rows, and then as many
//! updates of them at random; opens the log as after a crash; and takes a checkpoint. It prints
//! records and rows per second and thread. `CONTEND_ROWS` says how many rows (1 million),
//! `CONTEND_DIR` where (a folder of the system's; `/dev/shm` is memory), `CONTEND_THREADS` how many
//! threads (the machine's).
//!
//! `cargo test --benches` only shows that it runs.

use std::sync::Arc;
use std::time::Instant;

use contend_engine::commit_sink::CommitSinks as _;
use contend_log::{Directory, Log, LogConfig, LogSinks, Schema};
use contend_machine::Native;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Rows of a flush, about as many as fill a worker's buffer.
const FLUSH_EVERY: u64 = 100_000;
/// Files of the log: as many workers.
const WORKERS: u64 = 4;

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() {
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let rows: u64 = if is_test { 1000 } else { setting("CONTEND_ROWS").unwrap_or(1_000_000) };
    let config = LogConfig { workers: WORKERS as usize, ..LogConfig::default() };
    let config = LogConfig { threads: setting("CONTEND_THREADS").unwrap_or(config.threads), ..config };
    let folder = match setting::<String>("CONTEND_DIR") {
        Some(place) => tempfile::tempdir_in(place),
        None => tempfile::tempdir(),
    };
    let folder = folder.expect("a folder");
    let open = || {
        let directory = Directory::open(folder.path()).expect("a folder");
        Log::open(Arc::new(directory), config.clone()).expect("a log")
    };
    {
        let (log, _) = open();
        let schema = Schema {
            name: "rows".into(),
            key_words: 1,
            row_words: 1,
            groups: vec![(0, 1)],
            ordered: false,
            columns: String::new(),
        };
        log.bind(0, &schema).expect("a table");
        let sinks = LogSinks::<Native>::new(&log);
        let mut workers: Vec<_> = (0..WORKERS).map(|worker| sinks.of_worker(worker as usize)).collect();
        let random = &mut SmallRng::seed_from_u64(1);
        let mut epoch = log.first_epoch();
        for number in 0..2 * rows {
            let key = if number < rows { number } else { random.random_range(0..rows) };
            let words = [key, 0, 0, 0];
            workers[(number % WORKERS) as usize].loaded(epoch, 0, &words, &[number]);
            if number % FLUSH_EVERY == FLUSH_EVERY - 1 {
                log.flush(epoch).expect("a disk that works");
                epoch += 1;
            }
        }
        log.flush(epoch).expect("a disk that works");
    }
    let began = Instant::now();
    let (log, recovered) = open();
    let seconds = began.elapsed().as_secs_f64();
    let (report, threads) = (recovered.report, config.threads);
    assert_eq!((report.rows, report.records), (rows, 2 * rows));
    let each = report.records as f64 / 1e6 / seconds / threads as f64;
    println!(
        "recovery: {} records, {} rows, {} MB in {seconds:.3} s by {threads} threads: {each:.2} M records/s a thread",
        report.records,
        report.rows,
        report.bytes >> 20
    );
    drop(recovered.tables);
    let checkpoint = log.checkpoint_by_hand().expect("a disk that works");
    assert_eq!(checkpoint.rows, rows);
    let each = rows as f64 / 1e6 / checkpoint.seconds / threads as f64;
    println!(
        "checkpoint: {rows} rows, {} MB in {:.3} s: {each:.2} M rows/s a thread",
        checkpoint.bytes >> 20,
        checkpoint.seconds
    );
}
