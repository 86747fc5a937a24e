//! How fast the checker is: a serial history of transactions of ten operations, made, checked and
//! replayed.
//!
//! `cargo run --release -p contend-history --example check_speed -- [transactions] [keys] [scan
//! percent] [stale]`
//!
//! Of a million reads, `stale` see the version before the latest, so that the history is not
//! serializable.

use std::time::Instant;

use contend_history::{Applied, History, Op, Scan, State, Transaction, check, replay};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn main() {
    let argument = |place, default| std::env::args().nth(place).map_or(default, |text| text.parse().expect("a number"));
    let (transactions, keys) = (argument(1, 500_000), argument(2, 1_000_000));
    let (scans, stale) = (argument(3, 5), argument(4, 0));
    let start = Instant::now();
    let history = make(transactions, keys, scans, stale);
    println!("made      {:>8.3} s", start.elapsed().as_secs_f64());
    print_peak();

    let start = Instant::now();
    let report = check(&history);
    println!("checked   {:>8.3} s", start.elapsed().as_secs_f64());
    print_peak();
    println!("{report}");

    if let Some(order) = report.serial_order() {
        let start = Instant::now();
        replay(&history, order).expect("a serial history replays");
        println!("replayed  {:>8.3} s", start.elapsed().as_secs_f64());
    }

    let start = Instant::now();
    let mut bytes = Vec::new();
    history.write_json_lines(&mut bytes).expect("a vector takes everything");
    println!("written   {:>8.3} s, {} MB", start.elapsed().as_secs_f64(), bytes.len() / 1_000_000);

    let start = Instant::now();
    History::read_json_lines(&bytes[..]).expect("what was written is a history");
    println!("read      {:>8.3} s", start.elapsed().as_secs_f64());
}

/// The most memory that the process has had so far.
fn print_peak() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
}

fn make(transactions: u64, keys: u64, scans: u64, stale: u64) -> History {
    let mut random = SmallRng::seed_from_u64(1);
    let mut history = History::new();
    let table = history.table("usertable");
    let items: Vec<_> = (0..keys).map(|key| history.item(table, &key.to_string())).collect();
    let mut versions = vec![0_u64; items.len()];
    let mut before = versions.clone();
    for txn in 1..=transactions {
        let mut ops = Vec::with_capacity(10);
        for _ in 0..10 {
            let key = random.random_range(0..items.len());
            let (item, seen) = (items[key], State::Version(versions[key]));
            if random.random_range(0..100) < scans {
                let last = (key + 9).min(items.len() - 1);
                let seen = (key..=last).map(|key| (items[key], versions[key])).collect();
                let scan = Scan { table, low: Some(item), high: Some(items[last]), seen, gone: Vec::new() };
                ops.push(Op::Scan(Box::new(scan)));
            } else if random.random_bool(0.5) {
                let is_stale = random.random_range(0..1_000_000) < stale && versions[key] != txn;
                let seen = if is_stale { State::Version(before[key]) } else { seen };
                ops.push(Op::Read { item, seen, value: None });
            } else {
                ops.push(Op::Write { item, over: seen, delete: false, applied: Applied::InOrder, value: None });
                if versions[key] != txn {
                    before[key] = std::mem::replace(&mut versions[key], txn);
                }
            }
        }
        history.push(Transaction { txn, worker: 0, ops }).expect("numbers are unique");
    }
    history
}
