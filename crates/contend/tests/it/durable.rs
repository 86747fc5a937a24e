//! Durable databases, as an application sees them.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use contend::log::faulty::{FaultyDisk, Plan, ROOM};
use contend::log::{LogConfig, LogError};
use contend::{
    Builder, Config, Database, Direction, Durability, Error, IndexKind, NoWait, Row, Silo, Table, TableOptions, Txn,
    Whole,
};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: i64,
    #[group = 1]
    changes: u64,
}

fn account(balance: i64) -> Account {
    Account { balance, changes: 0 }
}

fn builder() -> Builder<Silo> {
    // One file for each thread, and short ones.
    Database::builder()
        .config(Config { threads_max: 8, ..Config::default() })
        .log(LogConfig { segment_bytes: 4096, ..LogConfig::default() })
}

const DURABILITIES: [Durability; 3] = [Durability::Epoch, Durability::Early, Durability::Conservative];

fn all(db: &Database, table: &Table<Account>) -> Vec<(u64, Account)> {
    let scanned = db.transact(|tx| {
        let mut seen = Vec::new();
        tx.scan(table, 0..=u64::MAX, usize::MAX, Direction::Forward, Whole, |key, row| {
            seen.push((key, row));
            ControlFlow::Continue(())
        })?;
        Ok(seen)
    });
    scanned.expect("a scan commits")
}

#[test]
fn what_was_there_is_there_again() {
    for durability in DURABILITIES {
        is_there_again(&|_| durability);
    }
    // Each start has its own kind of durability.
    is_there_again(&|round| DURABILITIES[round % 3]);
}

fn is_there_again(durability: &dyn Fn(usize) -> Durability) {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |round| {
        let builder = builder().durability(durability(round as usize)).path(directory.path());
        builder.open().expect("a directory of one's own")
    };
    let hash = TableOptions { index: IndexKind::Hash, ..TableOptions::default() };
    let mut expected = Vec::new();
    for round in 0..4 {
        let db = open(round);
        assert_eq!(db.recovery().expect("it is durable").rows, expected.len() as u64 * 2);
        // In another order each time.
        let tables = |first: bool| {
            let ordered = |db: &Database| db.create_table::<Account, u64>("ordered").expect("one of this name");
            let hashed =
                |db: &Database| db.create_table_with::<Account, [u8; 16]>("hashed", hash).expect("one of this name");
            if first {
                let ordered = ordered(&db);
                (ordered, hashed(&db))
            } else {
                let hashed = hashed(&db);
                (ordered(&db), hashed)
            }
        };
        let (ordered, hashed) = tables(round % 2 == 0);
        let wide = |key: u64| u128::from(key).to_be_bytes();
        assert_eq!(all(&db, &ordered), expected);
        for &(key, row) in &expected {
            assert_eq!(db.transact(|tx| tx.read(&hashed, wide(key), Whole)), Ok(Some(row)));
        }
        // Each round changes the rows, deletes some, inserts them again in the next round, and
        // loads more.
        let more = 100 * round..100 * (round + 1);
        assert_eq!(db.load(&ordered, more.clone().map(|key| (key, account(1)))), Ok(100));
        assert_eq!(db.load(&hashed, more.map(|key| (wide(key), account(1)))), Ok(100));
        for key in (0..100 * (round + 1)).step_by(3) {
            let changed = db.transact_async(|tx| {
                if (key + round) % 2 == 0 && tx.delete(&ordered, key)? {
                    return tx.delete(&hashed, wide(key));
                }
                if tx.modify(&ordered, key, |row: &mut Account| row.balance += 1)?.is_none() {
                    tx.insert(&hashed, wide(key), account(5))?;
                    return tx.insert(&ordered, key, account(5));
                }
                tx.update(&ordered, key, Account::CHANGES.add(1))?;
                tx.update(&hashed, wide(key), (Account::CHANGES.add(1), Account::BALANCE.add(1)))
            });
            assert!(*changed.expect("nobody is in the way").peek());
        }
        expected = all(&db, &ordered);
        assert!(db.transact(|tx| tx.read(&ordered, 0, Whole)).is_ok(), "what was asked for before is durable now");
    }
}

#[test]
fn a_table_that_nobody_asks_for_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || builder().path(directory.path()).open().expect("a directory of one's own");
    {
        let db = open();
        let table = db.create_table::<Account, u64>("kept").expect("a new name");
        assert_eq!(db.transact(|tx| tx.insert(&table, 1, account(7))), Ok(true));
    }
    drop(open());
    {
        let db = open();
        let other = db.create_table::<Account, u64>("other").expect("a new name");
        assert_eq!(db.transact(|tx| tx.insert(&other, 1, account(8))), Ok(true));
    }
    let db = open();
    let table = db.create_table::<Account, u64>("kept").expect("it is there");
    assert_eq!(all(&db, &table), [(1, account(7))]);
    assert_eq!(db.create_table::<Account, u64>("kept").map(|_| ()), Err(Error::TableExists { name: "kept".into() }));
}

#[test]
fn what_does_not_fit_is_refused() {
    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    struct Other {
        balance: i64,
    }
    let directory = tempfile::tempdir().expect("a directory");
    let open = || builder().path(directory.path()).open();
    let db = open().expect("a directory of one's own");
    db.create_table::<Account, u64>("accounts").expect("a new name");
    let again = open().map(|_| ()).expect_err("it is in use");
    assert!(
        matches!(&again, Error::Log(LogError::InUse { place }) if directory.path().ends_with(place) || place.contains("/"))
    );
    drop(db);
    let db = open().expect("it is free again");
    let error = db.create_table::<Other, u64>("accounts").map(|_| ()).expect_err("it has other rows");
    assert!(error.to_string().starts_with("table 'accounts' was made as keys of 1 word, rows of 2"), "{error}");
    let error = db.create_table::<Account, [u8; 16]>("accounts").map(|_| ()).expect_err("it has other keys");
    assert!(error.to_string().contains("is opened as keys of 2 words"), "{error}");
    db.create_table::<Account, u64>("accounts").expect("nothing was lost");
    let off = Database::<NoWait>::builder().path(directory.path()).durability(Durability::Off).open();
    assert_eq!(off.map(|_| ()), Err(Error::NotDurable));
    let nowhere = Database::<NoWait>::builder().path("/proc/none").open().map(|_| ()).expect_err("it can't be made");
    assert!(nowhere.to_string().starts_with("can't create /proc/none: "), "{nowhere}");
}

#[test]
fn many_threads_wait_for_one_flush() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || builder().path(directory.path()).open().expect("a directory of one's own");
    let total = {
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("a new name");
        db.load(&table, (0..10).map(|key| (key, account(0)))).expect("a disk that works");
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for i in 0..50 {
                        let key = (thread * 7 + i) % 10;
                        let found = db.transact(|tx| tx.modify(table, key, |row: &mut Account| row.balance += 1));
                        assert_eq!(found, Ok(Some(())));
                    }
                });
            }
        });
        all(&db, &table).iter().map(|(_, row)| row.balance).sum::<i64>()
    };
    assert_eq!(total, 300);
    let db = open();
    let table = db.create_table::<Account, u64>("accounts").expect("it is there");
    assert_eq!(all(&db, &table).iter().map(|(_, row)| row.balance).sum::<i64>(), 300);
}

/// Checkpoints by a call and by themselves, while threads write: nothing is lost, and old files go.
#[test]
fn checkpoints_are_taken_while_transactions_run() {
    let directory = tempfile::tempdir().expect("a directory");
    // Buffers overflow, so a file may end with a change of a row whose insert is in a later file of
    // another worker.
    let log = LogConfig { segment_bytes: 4096, buffer_bytes: 200, checkpoint_bytes: 10_000, ..LogConfig::default() };
    let open = || builder().path(directory.path()).log(log.clone()).open().expect("a directory of one's own");
    for round in 1..=3 {
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("one of this name");
        if round == 1 {
            db.load(&table, (0..100).map(|key| (key, account(0)))).expect("a disk that works");
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for i in 0..1000 {
                        let key = (thread * 37 + i * 3) % 100;
                        // Some rows are deleted, and come back as they were.
                        let moved = db.transact_async(|tx| {
                            let row = tx.read(table, key, Whole)?.expect("it is there");
                            if i % 5 == 0 {
                                tx.delete(table, key)?;
                                return tx.insert(table, key, Account { balance: row.balance + 1, ..row });
                            }
                            tx.update(table, key, Account::BALANCE.add(1))
                        });
                        assert!(*moved.expect("a disk that works").peek());
                    }
                });
            }
            for _ in 0..5 {
                let checkpoint = db.checkpoint().expect("a disk that works").expect("it is durable");
                assert_eq!(checkpoint.rows, 100);
            }
        });
        assert_eq!(all(&db, &table).iter().map(|(_, row)| row.balance).sum::<i64>(), 3000 * round);
        drop(db);
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("it is there");
        assert_eq!(all(&db, &table).iter().map(|(_, row)| row.balance).sum::<i64>(), 3000 * round);
        let checkpoint = db.checkpoint().expect("a disk that works").expect("it is durable");
        assert_eq!(checkpoint.rows, 100);
        let bytes: u64 = std::fs::read_dir(directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("a file").metadata().expect("a file").len())
            .sum();
        assert!(bytes < ROOM + 40_000, "{bytes} bytes");
    }
}

/// A disk that fails while the database runs: threads that wait get the error, and so do threads
/// that come later. Acknowledged commits are there after the next start.
#[test]
fn a_disk_that_fails_ends_acknowledgements() {
    let plans: [Plan; 4] = [
        Plan { sync_fails_at: Some(40), ..Plan::default() },
        Plan { write_fails_at: Some(41), ..Plan::default() },
        Plan { capacity: ROOM + 9000, ..Plan::default() },
        Plan { crash_at: Some(37), ..Plan::default() },
    ];
    for (plan, durability) in plans.iter().flat_map(|plan| DURABILITIES.map(|durability| (plan, durability))) {
        let disk = FaultyDisk::new(plan.clone());
        let db = builder().durability(durability).disk(Arc::new(disk.clone())).open().expect("it works still");
        let table = db.create_table::<Account, u64>("accounts").expect("it works still");
        let mut acknowledged = Vec::new();
        let error = (0..).find_map(|key| match db.transact(|tx| tx.insert(&table, key, account(1))) {
            Ok(is_new) => {
                assert!(is_new);
                acknowledged.push(key);
                None
            }
            Err(error) => Some(error),
        });
        assert!(matches!(error, Some(Error::Log(_))), "{plan:?}: {error:?}");
        let later = db.transact(|tx| tx.read(&table, 0, Whole)).expect_err("nothing is acknowledged any more");
        assert!(matches!(&later, Error::Log(LogError::Stopped { .. })), "{later}");
        drop((db, table));
        let db = builder().disk(Arc::new(disk.after_crash(Plan::default()))).open().expect("nothing is lost");
        let table = db.create_table::<Account, u64>("accounts").expect("it is there");
        let found = all(&db, &table);
        assert!(found.len() >= acknowledged.len() && found.len() <= acknowledged.len() + 1, "{plan:?}");
        assert!(acknowledged.iter().all(|key| found.iter().any(|(other, _)| other == key)), "{plan:?}");
    }
}

const CHILD: &str = "CONTEND_TEST_CHILD";
const CHILD_DURABILITY: &str = "CONTEND_TEST_CHILD_DURABILITY";

/// The process that is killed: it runs transactions of several threads, and acknowledges each by a
/// line.
fn child(path: &str) {
    let durability: usize = std::env::var(CHILD_DURABILITY).expect("it is said").parse().expect("a number");
    let db = builder().durability(DURABILITIES[durability]).path(path).open().expect("a directory of one's own");
    let table = db.create_table::<Account, u64>("accounts").expect("it can be");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, table, is_over) = (&db, &table, &is_over);
            scope.spawn(move || {
                let first =
                    (0..).find(|i| !matches!(db.transact(|tx| tx.read(table, thread << 32 | i, Whole)), Ok(Some(_))));
                for i in first.expect("one that is not there").. {
                    let key = thread << 32 | i;
                    db.transact(|tx| tx.insert(table, key, account(i as i64))).expect("a disk that works");
                    println!("acknowledged {key}");
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
    });
}

/// A process that is killed while it works, more than once.
#[test]
fn what_was_acknowledged_survives_a_kill() {
    if let Ok(path) = std::env::var(CHILD) {
        return child(&path);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut acknowledged = std::collections::BTreeSet::new();
    for round in 1..=6 {
        let own = std::env::current_exe().expect("a program");
        let mut killed = Command::new(own)
            .args(["--exact", "durable::what_was_acknowledged_survives_a_kill", "--nocapture"])
            .env(CHILD, directory.path())
            .env(CHILD_DURABILITY, (round % DURABILITIES.len()).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(killed.stdout.take().expect("a pipe")).lines();
        let acknowledge = |line: String| {
            acknowledged.extend(line.split("acknowledged ").nth(1).map(|key| key.trim().parse::<u64>().expect("a key")))
        };
        let mut acknowledge = acknowledge;
        let mut lines = lines.map_while(Result::ok);
        lines.by_ref().take(50 * round).for_each(&mut acknowledge);
        killed.kill().expect("it runs");
        killed.wait().expect("it has ended");
        // The lines that the process printed before it ended. The last one may be cut off.
        let rest: Vec<_> = lines.collect();
        rest.iter().take(rest.len().saturating_sub(1)).cloned().for_each(&mut acknowledge);
        let db = builder().path(directory.path()).open().expect("it is nobody's now");
        let table = db.create_table::<Account, u64>("accounts").expect("it is there");
        let found: std::collections::BTreeMap<u64, Account> = all(&db, &table).into_iter().collect();
        assert!(acknowledged.iter().all(|key| found.contains_key(key)));
        // The rows of a thread begin with its first, and have no gaps: each was acknowledged before
        // the next was tried.
        for thread in 0..3u64 {
            let keys: Vec<_> =
                found.keys().filter(|&&key| key >> 32 == thread).map(|key| key & u64::from(u32::MAX)).collect();
            assert_eq!(keys, (0..keys.len() as u64).collect::<Vec<_>>());
        }
    }
    assert!(acknowledged.len() > 300);
}

/// A thread that loads from a slow iterator. The iterator ends when the other threads have made
/// durable what they commit meanwhile.
#[test]
fn a_slow_load_is_in_nobodys_way() {
    for durability in DURABILITIES {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || builder().durability(durability).path(directory.path()).open().expect("a directory of one's own");
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("a new name");
        let (to_writer, from_loader) = std::sync::mpsc::channel();
        let (to_loader, from_writer) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for step in from_loader {
                    // Each of these calls returns when its transaction is durable, while the loader
                    // waits for it.
                    assert_eq!(db.transact(|tx| tx.insert(table, 1 << 32 | step, account(1))), Ok(true));
                    assert!(db.checkpoint().is_ok());
                    to_loader.send(()).expect("it waits");
                }
            });
            let rows = (0..3000).map(|key| {
                if key % 500 == 0 {
                    to_writer.send(key).expect("it is there");
                    from_writer.recv().expect("nobody is in its way");
                }
                (key, account(7))
            });
            assert_eq!(db.load(table, rows), Ok(3000));
            drop(to_writer);
        });
        let expected = all(&db, &table);
        assert_eq!(expected.len(), 3006);
        drop((db, table));
        let db = open();
        assert_eq!(all(&db, &db.create_table::<Account, u64>("accounts").expect("it is there")), expected);
    }
}

/// All operations that would wait for the end of the transaction that their own thread is in.
#[test]
fn what_would_wait_for_itself_is_refused() {
    for durability in DURABILITIES {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || builder().durability(durability).path(directory.path()).open().expect("a directory of one's own");
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("a new name");
        let asks = |is_loading: bool| {
            assert_eq!(db.load(&table, [(50, account(0))]), Err(Error::Nested));
            assert_eq!(db.transact(|tx| tx.insert(&table, 51, account(0))), Err(Error::Nested));
            assert_eq!(db.transact_async(|_| Ok(())).map(|_| ()), Err(Error::Nested));
            assert_eq!(db.checkpoint().map(|_| ()), Err(Error::Nested), "loading: {is_loading}");
        };
        // A transaction of another database is allowed.
        let other_directory = tempfile::tempdir().expect("a directory");
        let other = builder().path(other_directory.path()).open().expect("a directory of one's own");
        let others = other.create_table::<Account, u64>("accounts").expect("a new name");
        let mut before = Some(db.transact_async(|tx| tx.insert(&table, 1, account(1))).expect("nobody is in the way"));
        let done = db.transact(|tx| {
            asks(false);
            if let Some(ticket) = before.take() {
                let is_durable = ticket.is_durable();
                let waited = ticket.wait();
                assert!(waited == Err(Error::Nested) || is_durable && waited == Ok(true));
            }
            assert_eq!(other.transact(|tx| tx.insert(&others, 1, account(1))), Ok(true));
            // This call waits for no transaction.
            let name = format!("made within {durability:?}");
            assert!(db.create_table::<Account, u64>(&name).is_ok());
            tx.insert(&table, 2, account(2))
        });
        assert_eq!(done, Ok(true));
        let ticket = std::cell::Cell::new(Some(
            db.transact_async(|tx| tx.insert(&table, 3, account(3))).expect("nobody is in the way"),
        ));
        let rows = (10..1500).map(|key| {
            if key % 500 == 10 {
                asks(true);
            }
            if let Some(ticket) = ticket.take() {
                let is_durable = ticket.is_durable();
                assert!(is_durable || ticket.wait() == Err(Error::Nested));
            }
            (key, account(4))
        });
        assert_eq!(db.load(&table, rows), Ok(1490));
        assert!(db.checkpoint().is_ok());
        let expected = all(&db, &table);
        assert_eq!(expected.len(), 1493);
        drop((db, table));
        let db = open();
        assert_eq!(all(&db, &db.create_table::<Account, u64>("accounts").expect("it is there")), expected);
    }
}

/// Rows that are loaded while threads insert, change and delete the same keys: in the end, also
/// after reopening, each key has its last commit.
#[test]
fn a_load_beside_transactions_loses_nothing() {
    for durability in DURABILITIES {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { threads_max: 8, epoch_ms: 1, ..Config::default() };
        let open = || {
            let builder = builder().config(config.clone()).durability(durability).path(directory.path());
            builder.open().expect("a directory of one's own")
        };
        let mut before = Vec::new();
        for round in 0..3 {
            let db = open();
            let table = db.create_table::<Account, u64>("accounts").expect("one of this name");
            assert_eq!(all(&db, &table), before);
            // For each key: 1 if it was there, plus the acknowledged inserts and loads, less the
            // acknowledged deletes.
            let balance = [(); 64].map(|()| std::sync::atomic::AtomicI64::new(0));
            before.iter().for_each(|(key, _)| _ = balance[*key as usize].fetch_add(1, Ordering::Relaxed));
            let loaded = std::thread::scope(|scope| {
                for thread in 0..2u64 {
                    let (db, table, balance) = (&db, &table, &balance);
                    scope.spawn(move || {
                        for i in 0..200u64 {
                            let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15 + thread) >> 58;
                            let change = db.transact_async(|tx| {
                                if tx.delete(table, key)? {
                                    return Ok(-1);
                                }
                                tx.insert(table, key, account(i as i64))?;
                                Ok(1)
                            });
                            // Relaxed: read when all threads have ended.
                            balance[key as usize].fetch_add(*change.expect("a disk").peek(), Ordering::Relaxed);
                        }
                    });
                }
                let loads = [0, 1].map(|_| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        (0..20)
                            .map(|_| db.load(table, (0..64).map(|key| (key, account(-1)))).expect("a disk"))
                            .sum::<u64>()
                    })
                });
                loads.map(|load| load.join().expect("no panic")).iter().sum::<u64>()
            });
            let rows = all(&db, &table);
            let counted: i64 = balance.iter().map(|balance| balance.load(Ordering::Relaxed)).sum();
            assert_eq!(counted + loaded as i64, rows.len() as i64, "round {round}, {durability:?}");
            before = rows;
        }
    }
}

/// A key that was deleted in the present epoch, unlinked or not, and is loaded again.
#[test]
fn a_deleted_key_is_loaded_again() {
    for durability in DURABILITIES {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { threads_max: 4, epoch_ms: 1, ..Config::default() };
        let open = || {
            let builder = builder().config(config.clone()).durability(durability).path(directory.path());
            builder.open().expect("a directory of one's own")
        };
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("a new name");
        let mut now = 0;
        assert_eq!(db.load(&table, (0..200).map(|key| (key, account(now)))), Ok(200));
        for round in 0..7 {
            for key in 0..200 {
                let deleted = db.transact_async(|tx| tx.delete(&table, key));
                assert!(*deleted.expect("a disk that works").peek());
            }
            // In some rounds old tombstones are unlinked meanwhile, in others not.
            for _ in 0..(round % 3) * 200 {
                drop(db.transact_async(|tx| tx.read(&table, 0, Whole)).expect("a disk that works"));
            }
            now = round;
            assert_eq!(db.load(&table, (0..200).map(|key| (key, account(now)))), Ok(200), "in round {round}");
        }
        drop((db, table));
        let db = open();
        let table = db.create_table::<Account, u64>("accounts").expect("it is there");
        assert_eq!(all(&db, &table), (0..200).map(|key| (key, account(now))).collect::<Vec<_>>());
    }
}
