//! Long transactions beside short ones: each commits after a few tries, under every protocol.
//! However a protected transaction ends, other threads go on.

use std::panic::AssertUnwindSafe;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use contend::log::LogConfig;
use contend::{
    Abort, AbortReason, AnyProtocol, Config, Database, Durability, EngineOptions, Error, Isolation, Native, Protocol,
    Row, Silo, Table, Txn,
};
use contend_protocols::all_protocols;

use crate::{builder, under_all};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: u64,
}

/// The most tries of a transaction: the tries before it is protected, and some that were disturbed
/// by transactions which had begun before.
fn tries_max() -> u64 {
    u64::from(Config::default().engine.protect_after) + 16
}

fn config() -> Config {
    Config { threads_max: 16, epoch_ms: 1, ..Config::default() }
}

fn accounts<P: Protocol<Native>>(db: &Database<P>, rows: u64) -> Table<Account> {
    let accounts = db.create_table("accounts").expect("a new name");
    assert_eq!(db.load(&accounts, (0..rows).map(|id| (id, Account { balance: 1000 }))), Ok(rows));
    accounts
}

/// Runs `work` while two threads move units between rows.
fn beside_writers<P: Protocol<Native>, T>(
    db: &Database<P>,
    accounts: &Table<Account>,
    rows: u64,
    work: impl FnOnce(&AtomicU64) -> T,
) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (is_over, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // The threads stop also if an assertion fails.
        let _over = Over(&is_over);
        for mut random in 1..=2u64 {
            let (is_over, moves) = (&is_over, &moves);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (from, to) = ((random >> 33) % rows, (random >> 40) % rows);
                    let moved = db.transact(|tx| {
                        tx.modify(accounts, from, |row| row.balance = row.balance.wrapping_sub(1))?;
                        tx.modify(accounts, to, |row| row.balance = row.balance.wrapping_add(1)).map(drop)
                    });
                    moved.expect("it is tried until it commits");
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        work(&moves)
    })
}

/// Reads all rows and writes one. Returns the sum before the write, and the number of tries.
fn read_all_and_write<P: Protocol<Native>>(db: &Database<P>, accounts: &Table<Account>, rows: u64) -> (u64, u64) {
    let mut tries = 0;
    let sum = db.transact(|tx| {
        tries += 1;
        assert!(tries <= tries_max(), "it starves");
        let mut sum = 0u64;
        for id in 0..rows {
            sum = sum.wrapping_add(tx.read(accounts, id, Account::BALANCE)?.unwrap_or_default());
            if id % 4096 == 0 {
                // Other threads get the core in between.
                thread::yield_now();
            }
        }
        tx.modify(accounts, tries % rows, |row| row.balance = row.balance.wrapping_add(1))?;
        Ok(sum)
    });
    (sum.expect("it is tried until it commits"), tries)
}

/// Runs the same test under each registered protocol that promises something.
fn under_each_protocol(test: impl Fn(&'static str) + Sync) {
    let all = all_protocols::<Native>();
    let promising = all.iter().filter(|(info, _)| info.isolation != Isolation::None);
    let names: Vec<&str> = promising.map(|(info, _)| info.name).collect();
    under_all(&names, test);
}

fn database(protocol: &str) -> Database<AnyProtocol> {
    builder(protocol, config()).open().expect("it is in memory")
}

/// A transaction that reads 20,000 rows and writes one, beside two writers.
#[test]
fn long_transactions_commit() {
    under_each_protocol(long_transactions_commit_under);
}

fn long_transactions_commit_under(protocol: &str) {
    const ROWS: u64 = 20_000;
    let db = database(protocol);
    let accounts = accounts(&db, ROWS);
    beside_writers(&db, &accounts, ROWS, |moves| {
        for written in 0..4 {
            let (sum, _) = read_all_and_write(&db, &accounts, ROWS);
            // Each long transaction adds one; moves leave the sum as it is.
            assert_eq!(sum, ROWS * 1000 + written, "{}", protocol);
        }
        // The waiting writers go on.
        let end = moves.load(Ordering::Relaxed) + 10;
        while moves.load(Ordering::Relaxed) < end {
            thread::yield_now();
        }
    });
}

#[test]
fn two_long_ones_both_commit() {
    under_each_protocol(two_long_ones_both_commit_under);
}

fn two_long_ones_both_commit_under(protocol: &str) {
    const ROWS: u64 = 2_000;
    let db = database(protocol);
    let accounts = accounts(&db, ROWS);
    let start = Barrier::new(2);
    beside_writers(&db, &accounts, ROWS, |_| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..10 {
                        read_all_and_write(&db, &accounts, ROWS);
                    }
                });
            }
        });
    });
    assert_eq!(read_all_and_write(&db, &accounts, ROWS).0, ROWS * 1000 + 20);
}

/// A transaction conflicts until it is protected, and then ends as `end` says.
fn starve_and_end<P: Protocol<Native>>(
    db: &Database<P>,
    accounts: &Table<Account>,
    end: impl Fn() -> Result<(), Abort>,
) -> Result<(), Error> {
    let mut tries = 0;
    db.transact(|tx| {
        tries += 1;
        tx.modify(accounts, 0, |row| row.balance += 100)?;
        if tries <= tries_max() { Err(Abort::new(AbortReason::ReadValidation)) } else { end() }
    })
}

#[test]
fn others_go_on_after_a_panic() {
    under_each_protocol(others_go_on_after_a_panic_under);
}

fn others_go_on_after_a_panic_under(protocol: &str) {
    let db = database(protocol);
    let accounts = accounts(&db, 10);
    // A transaction that only reads may come before committed ones, where workers have clocks of
    // their own.
    let latest = || {
        db.transact(|tx| {
            let mut balance = 0;
            tx.modify(&accounts, 0, |row| balance = row.balance)?;
            Ok(balance)
        })
    };
    let others_go_on = |balance| {
        thread::scope(|scope| {
            // A new thread, and then this one.
            scope.spawn(|| {
                assert_eq!(db.transact(|tx| tx.modify(&accounts, 1, |row| row.balance += 1).map(drop)), Ok(()));
                assert_eq!(latest(), Ok(balance));
                assert_eq!(db.load(&accounts, [(1, Account { balance: 7 })]), Ok(0));
            });
        });
        assert_eq!(latest(), Ok(balance));
    };
    let panics = || std::panic::resume_unwind(Box::new("on purpose"));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| starve_and_end(&db, &accounts, panics)));
    assert!(panicked.is_err());
    others_go_on(1000);
    let cancelled = starve_and_end(&db, &accounts, || Err(Abort::new(AbortReason::User)));
    assert_eq!(cancelled, Err(Error::Cancelled));
    others_go_on(1000);
    let unsupported = starve_and_end(&db, &accounts, || Err(Abort::new(AbortReason::Unsupported)));
    assert!(unsupported.is_err());
    others_go_on(1000);
    // A protected transaction refuses the same calls as other transactions do.
    let nested = starve_and_end(&db, &accounts, || {
        assert_eq!(db.transact(|_| Ok(())), Err(Error::Nested));
        assert_eq!(db.load(&accounts, [(2, Account { balance: 7 })]), Err(Error::Nested));
        assert_eq!(db.checkpoint().map(|_| ()), Err(Error::Nested));
        Ok(())
    });
    assert_eq!(nested, Ok(()));
    others_go_on(1100);
    // An error of the body's own ends the transaction at its first try.
    let mut tries = 0;
    let hidden: Result<(), Error> = db.try_transact(|tx| {
        tries += 1;
        tx.modify(&accounts, 0, |row| row.balance += 100)?;
        if tries <= tries_max() { Err(Error::Cancelled) } else { Ok(()) }
    });
    assert_eq!((hidden, tries), (Err(Error::Cancelled), 1));
    others_go_on(1100);
    // A thread ends after its transaction was protected, and another thread while its transaction
    // is.
    thread::scope(|scope| {
        scope.spawn(|| starve_and_end(&db, &accounts, || Ok(())).expect("it commits"));
    });
    others_go_on(1200);
    let ended = thread::scope(|scope| scope.spawn(|| starve_and_end(&db, &accounts, panics)).join());
    assert!(ended.is_err());
    others_go_on(1200);
}

#[test]
fn it_works_when_it_is_durable() {
    under_each_protocol(it_works_when_it_is_durable_under);
}

fn it_works_when_it_is_durable_under(protocol: &str) {
    const ROWS: u64 = 500;
    for durability in [Durability::Epoch, Durability::Early, Durability::Conservative] {
        let directory = tempfile::tempdir().expect("a directory");
        let log = LogConfig { segment_bytes: 1 << 16, ..LogConfig::default() };
        // Transactions are protected soon, because each write waits for the disk.
        let engine = EngineOptions { protect_after: 2, ..Config::default().engine };
        let durable = || {
            let config = Config { engine: engine.clone(), ..config() };
            builder(protocol, config).durability(durability).log(log.clone()).path(directory.path())
        };
        let db = match durable().open() {
            Err(Error::NotConservative { .. } | Error::NeverDurable { .. }) => continue,
            opened => opened.expect("a directory of one's own"),
        };
        let before = accounts(&db, ROWS);
        beside_writers(&db, &before, ROWS, |moves| {
            for written in 0..3 {
                // Other threads write, and their commits are made durable before, meanwhile and
                // after.
                let end = moves.load(Ordering::Relaxed) + 2;
                while moves.load(Ordering::Relaxed) < end {
                    thread::yield_now();
                }
                assert_eq!(read_all_and_write(&db, &before, ROWS).0, ROWS * 1000 + written);
            }
            // Writers that wait at the gate hold back neither a flush nor this acknowledgement.
            starve_and_end(&db, &before, || Ok(())).expect("it commits");
        });
        drop((before, db));
        let db = durable().open().expect("a directory of one's own");
        let after: Table<Account> = db.create_table("accounts").expect("one of this name");
        assert_eq!(read_all_and_write(&db, &after, ROWS).0, ROWS * 1000 + 3 + 100);
    }
}

/// With 0 no transaction is protected.
#[test]
fn it_can_be_turned_off() {
    let engine = EngineOptions { protect_after: 0, ..Config::default().engine };
    let config = Config { engine, ..config() };
    let db = Database::<Silo>::with(Default::default(), config).expect("it is in memory");
    let accounts = accounts(&db, 10);
    let ended = starve_and_end(&db, &accounts, || {
        // Another thread commits while the transaction runs.
        thread::scope(|scope| {
            let other = scope.spawn(|| db.transact(|tx| tx.read(&accounts, 1, Account::BALANCE)));
            assert_eq!(other.join().expect("no panic"), Ok(Some(1000)));
        });
        Ok(())
    });
    assert_eq!(ended, Ok(()));
    assert_eq!(Config::default().engine.protect_after, 10, "it is on by default");
}
