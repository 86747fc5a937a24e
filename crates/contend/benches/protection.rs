//! Protection of a long transaction: its tries and its time, and the cost to the short transactions
//! beside it.
//!
//! In `cargo bench -p contend --bench protection` one thread reads 20,000 rows and writes one,
//! until ten of these transactions have committed or 120 tries are over. Meanwhile two threads move
//! units between two rows. Each protocol runs without protection, and with the default protection.
//! A row of the table has the number of long transactions that committed, the number of tries, and
//! the time of each. The last column is the throughput of the short transactions, as a fraction of
//! their throughput without a long one. The long transaction gives its core away once in 1,000
//! rows. With fewer cores than threads it would otherwise run in one slice of time, beside no other
//! transaction.
//!
//! `cargo test --benches` only shows that it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contend::{Config, Database, EngineOptions, NamedProtocol, Native, Row, Table, Txn};
use contend_engine::Isolation;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    balance: u64,
}

/// The number of long transactions that must commit, and the number of tries after which the run
/// ends.
const COMMITS: u64 = 10;
const TRIES: u64 = 120;

struct Settings {
    rows: u64,
    /// The time for which short transactions run alone.
    window: Duration,
}

/// The result of one run.
struct Outcome {
    commits: u64,
    tries: u64,
    /// The sum and the largest of the times of the committed transactions.
    time: Duration,
    longest: Duration,
    short_per_second: f64,
}

fn run<P: NamedProtocol<Native>>(
    db: &Database<P>,
    accounts: &Table<Account>,
    has_long: bool,
    settings: &Settings,
) -> Outcome {
    let (is_over, shorts) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut outcome =
        Outcome { commits: 0, tries: 0, time: Duration::ZERO, longest: Duration::ZERO, short_per_second: 0.0 };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=2u64 {
            let (is_over, shorts) = (&is_over, &shorts);
            scope.spawn(move || {
                let (mut random, mut own) = (seed, 0);
                // Relaxed: a flag that publishes nothing else.
                while !is_over.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let keys = [(random >> 33) % settings.rows, (random >> 40) % settings.rows];
                    let moved = db.transact(|tx| {
                        tx.modify(accounts, keys[0], |row| row.balance = row.balance.wrapping_sub(1))?;
                        tx.modify(accounts, keys[1], |row| row.balance = row.balance.wrapping_add(1)).map(drop)
                    });
                    moved.expect("it is tried until it commits");
                    own += 1;
                }
                // Relaxed: read when all threads have ended.
                shorts.fetch_add(own, Ordering::Relaxed);
            });
        }
        while has_long && outcome.commits < COMMITS && outcome.tries < TRIES {
            let start = Instant::now();
            let outcome = &mut outcome;
            let done = db.transact(|tx| {
                if outcome.tries == TRIES {
                    return Err(tx.cancel());
                }
                outcome.tries += 1;
                let mut sum = 0u64;
                for id in 0..settings.rows {
                    sum = sum.wrapping_add(tx.read(accounts, id, Account::BALANCE)?.unwrap_or_default());
                    if id % 1000 == 0 {
                        std::thread::yield_now();
                    }
                }
                tx.modify(accounts, sum % settings.rows, |row| row.balance = row.balance.wrapping_add(1)).map(drop)
            });
            if done.is_ok() {
                outcome.commits += 1;
                outcome.time += start.elapsed();
                outcome.longest = outcome.longest.max(start.elapsed());
            }
        }
        if !has_long {
            std::thread::sleep(settings.window);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    outcome.short_per_second = shorts.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    outcome
}

struct Compare<'a>(&'a Settings);

impl ProtocolVisitor<Native> for Compare<'_> {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        let settings = self.0;
        let open = |protect_after| {
            let engine = EngineOptions { protect_after, ..Config::default().engine };
            let config = Config { engine, ..Config::default() };
            let db = Database::<P>::with(P::Options::default(), config).expect("it is in memory");
            let accounts = db.create_table("accounts").expect("a new name");
            let rows = (0..settings.rows).map(|id| (id, Account { balance: 1000 }));
            assert_eq!(db.load(&accounts, rows), Ok(settings.rows));
            (db, accounts)
        };
        let after = Config::default().engine.protect_after;
        for protect_after in [0, after] {
            let (db, accounts) = open(protect_after);
            let alone = run(&db, &accounts, false, settings).short_per_second;
            let Outcome { commits, tries, time, longest, short_per_second } = run(&db, &accounts, true, settings);
            let (mean, longest) = match commits {
                0 => ("-".to_owned(), "-".to_owned()),
                _ => (
                    format!("{:.1}", time.as_secs_f64() * 1e3 / commits as f64),
                    format!("{:.0}", longest.as_secs_f64() * 1e3),
                ),
            };
            println!(
                "| `{}` | {protect_after} | {commits} | {tries} | {mean} | {longest} | {:.2} |",
                P::INFO.name,
                short_per_second / alone
            );
        }
    }
}

fn main() {
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let settings = if is_test {
        Settings { rows: 200, window: Duration::from_millis(10) }
    } else {
        Settings { rows: 20_000, window: Duration::from_secs(1) }
    };
    println!("| protocol | `protect` | commits | tries | mean, ms | longest, ms | short ones |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (info, _) in all_protocols::<Native>() {
        if info.isolation != Isolation::None {
            with_protocol::<Native, _>(info.name, Compare(&settings)).expect("a registered name");
        }
    }
}
