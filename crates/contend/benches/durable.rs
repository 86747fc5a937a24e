//! Inserts that each wait until they are durable, beside what the disk does for its cheapest
//! synchronisation.
//!
//! `cargo bench -p contend --bench durable` runs threads that insert rows of 8 bytes, one in a
//! transaction, with `Database::transact`: a thread goes on when its insert is durable. Between
//! these windows one thread writes 150 bytes to a file that has been written before, and
//! synchronises it (`fdatasync`), over and over. Printed are inserts a second of all threads, and
//! their ratio to these synchronisations, the median of 9 windows. One thread alone has 1 at best;
//! its log also writes to places that are reserved and not written yet, for which some file systems
//! write more. `CONTEND_DIR` sets the directory (by default one for temporary files).
//!
//! `cargo test --benches` only shows that it runs.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contend::{Database, Row, Table, Txn};

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Number {
    value: u64,
}

/// Bytes that one insert adds to the log, or a few more.
const WRITTEN: usize = 150;

/// Bytes of the file of plain synchronisations.
const ROOM: u64 = 4 << 20;

/// Calls `work` over and over for the time of a window, and returns how often in a second.
fn rate(window: Duration, mut work: impl FnMut(u64)) -> f64 {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < window {
        work(count);
        count += 1;
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let (windows, window) = if is_test { (1, Duration::from_millis(5)) } else { (9, Duration::from_millis(300)) };
    let folder = match std::env::var("CONTEND_DIR") {
        Ok(place) => tempfile::tempdir_in(place),
        Err(_) => tempfile::tempdir(),
    };
    let folder = folder.expect("a folder");
    let file = std::fs::File::create(folder.path().join("plain")).expect("a file");
    file.write_all_at(&vec![0; ROOM as usize], 0).expect("room");
    file.sync_all().expect("a disk that works");
    let db: Database = Database::builder().path(folder.path().join("db")).open().expect("a database");
    let table: Table<Number> = db.create_table("numbers").expect("a table");
    let next = AtomicU64::new(0);
    let insert = |_| {
        // Relaxed: the number alone must be unique.
        let key = next.fetch_add(1, Ordering::Relaxed);
        let inserted = db.transact(|tx| tx.insert(&table, key, Number { value: key }));
        assert!(inserted.expect("a disk that works"));
    };
    for threads in [1, 2, 4, 16] {
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..windows {
            let plain = rate(window, |count| {
                let place = count * WRITTEN as u64 % (ROOM - WRITTEN as u64);
                file.write_all_at(&[1; WRITTEN], place).expect("a disk that works");
                file.sync_data().expect("a disk that works");
            });
            let all: f64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| rate(window, insert))).collect();
                threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
            });
            rates.push(all);
            ratios.push(all / plain);
        }
        println!(
            "{threads} threads: {:.0} durable inserts/s, {:.2} for each plain synchronisation",
            median(rates),
            median(ratios)
        );
    }
}
