//! Many threads on one database: invariants, threads that end, memory that comes back.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use contend::{
    Config, Database, Direction, Error, IndexKind, NamedProtocol, Native, NoWait, Row, Silo, Table, TableOptions, Txn,
    Whole,
};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Counter {
    value: u64,
}

/// Returns a database with short epochs, so that memory is reused within a test.
fn database<P: NamedProtocol<Native>>() -> Database<P> {
    Database::with(P::Options::default(), Config { epoch_ms: 1, ..Config::default() }).expect("threads for it")
}

fn one_counter<P: NamedProtocol<Native>>() {
    let db = database::<P>();
    let counters: Table<Counter> = db.create_table("counters").expect("a new name");
    assert_eq!(db.load(&counters, [(0, Counter { value: 0 })]), Ok(1));
    let (threads, increments) = (4, 5_000);
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..increments {
                    db.transact(|tx| tx.modify(&counters, 0, |counter| counter.value += 1)).expect("a commit");
                }
            });
        }
    });
    let sum = db.transact(|tx| tx.read(&counters, 0, Counter::VALUE));
    assert_eq!(sum, Ok(Some(threads as u64 * increments)));
}

#[test]
fn one_counter_silo() {
    one_counter::<Silo>();
}

#[test]
fn one_counter_no_wait() {
    one_counter::<NoWait>();
}

/// Threads move units between rows, while others add them up. A row exists only while it has units.
fn units_are_kept<P: NamedProtocol<Native>>() {
    const ROWS: u64 = 64;
    const UNITS: u64 = 3;
    let db = database::<P>();
    let counters: Table<Counter> = db.create_table("counters").expect("a new name");
    assert_eq!(db.load(&counters, (0..ROWS).map(|id| (id, Counter { value: UNITS }))), Ok(ROWS));
    let done = AtomicBool::new(false);
    let move_one = |from: u64, to: u64| {
        db.transact(|tx| {
            // No assertion stands in here: a transaction that is going to abort may miss a row that
            // it has just read.
            match tx.read(&counters, from, Counter::VALUE)? {
                None => return Ok(()),
                Some(1) => drop(tx.delete(&counters, from)?),
                Some(_) => drop(tx.modify(&counters, from, |row| row.value -= 1)?),
            }
            if tx.modify(&counters, to, |row| row.value += 1)?.is_none() {
                tx.insert(&counters, to, Counter { value: 1 })?;
            }
            Ok(())
        })
    };
    let sum = |direction| {
        db.transact(|tx| {
            let mut sum = 0;
            tx.scan(&counters, 0..=u64::MAX, usize::MAX, direction, Whole, |_, row| {
                sum += row.value;
                ControlFlow::Continue(())
            })?;
            Ok(sum)
        })
    };
    thread::scope(|scope| {
        let movers: Vec<_> = (0..3)
            .map(|mover| {
                scope.spawn(move || {
                    let mut random = 0x1234_5678_9abc_def1u64 + mover;
                    for _ in 0..8_000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        move_one(random % ROWS, (random >> 32) % ROWS).expect("a commit");
                    }
                })
            })
            .collect();
        let auditor = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(sum(Direction::Forward), Ok(ROWS * UNITS));
                assert_eq!(sum(Direction::Backward), Ok(ROWS * UNITS));
            }
        });
        let moved: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
        done.store(true, Ordering::Relaxed);
        auditor.join().expect("every audit is right");
        assert!(moved.iter().all(Result::is_ok));
    });
    assert_eq!(sum(Direction::Forward), Ok(ROWS * UNITS));
}

#[test]
fn units_are_kept_silo() {
    units_are_kept::<Silo>();
}

#[test]
fn units_are_kept_no_wait() {
    units_are_kept::<NoWait>();
}

/// Many more threads than may exist at one time, one after the other.
#[test]
fn seats_of_ended_threads_are_taken_again() {
    let db = Database::<Silo>::with(Default::default(), Config { threads_max: 3, ..Config::default() })
        .expect("threads for it");
    let counters: Table<Counter> = db.create_table("counters").expect("a new name");
    for round in 0..50 {
        thread::scope(|scope| {
            let pair = [0, 1].map(|thread| {
                let (db, counters) = (&db, &counters);
                scope.spawn(move || {
                    let key = round * 2 + thread;
                    assert_eq!(db.transact(|tx| tx.insert(counters, key, Counter { value: key })), Ok(true));
                })
            });
            // A joined thread has ended. A thread whose scope has closed may still be about to end.
            for thread in pair {
                thread.join().expect("no panic");
            }
        });
    }
    assert_eq!(db.transact(|tx| tx.read(&counters, 99, Counter::VALUE)), Ok(Some(99)));
}

#[test]
fn a_database_is_dropped_before_its_threads_end() {
    let (to_thread, databases) = std::sync::mpsc::channel::<(Database, Table<Counter>)>();
    let user = thread::spawn(move || {
        for (db, counters) in databases {
            assert_eq!(db.transact(|tx| tx.insert(&counters, 1, Counter { value: 1 })), Ok(true));
        }
    });
    for _ in 0..20 {
        let db = Database::new();
        let counters = db.create_table("counters").expect("a new name");
        to_thread.send((db, counters)).expect("the thread is there");
    }
    drop(to_thread);
    user.join().expect("no panic");
}

/// Inserts rows and deletes them again, in transactions of `batch` rows each.
fn churn(db: &Database, table: &Table<Counter>, first: u64, rows: u64, batch: u64) -> Result<(), Error> {
    for start in (first..first + rows).step_by(batch as usize) {
        db.transact(|tx| {
            for key in start..start + batch {
                assert!(tx.insert(table, key, Counter { value: key })?);
            }
            Ok(())
        })?;
        db.transact(|tx| {
            for key in start..start + batch {
                assert!(tx.delete(table, key)?);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The memory of deleted rows is reused, whatever the size of the transactions, though every worker
/// is offline between them.
fn memory_plateaus(index: IndexKind, batch: u64) {
    let db = database::<Silo>();
    let options = TableOptions { index, ..TableOptions::default() };
    let table: Table<Counter> = db.create_table_with("rows", options).expect("a new name");
    let rows = 100_000;
    let mut bytes = Vec::new();
    for round in 0..8 {
        churn(&db, &table, round * rows, rows, batch).expect("commits");
        bytes.push(db.bytes());
    }
    // A live row takes at least 16 bytes, so this would show if the rows of half of the rounds
    // stayed.
    assert!(bytes[7] < bytes[3] + rows * 16, "batches of {batch} in {index:?}: {bytes:?} bytes");
    assert!(bytes[7] < 4 * rows * 16, "batches of {batch} in {index:?}: {bytes:?} bytes");
}

#[test]
fn memory_plateaus_ordered() {
    memory_plateaus(IndexKind::Ordered, 1);
}

#[test]
fn memory_plateaus_hash() {
    memory_plateaus(IndexKind::Hash, 1);
}

#[test]
fn memory_plateaus_with_large_transactions() {
    memory_plateaus(IndexKind::Ordered, 100);
}

/// An idle thread holds back no memory, though it has a seat.
#[test]
fn memory_plateaus_beside_an_idle_thread() {
    let db = database::<Silo>();
    let table: Table<Counter> = db.create_table("rows").expect("a new name");
    let (seated, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let missed = db.transact(|tx| tx.read(&table, 0, Whole));
            seated.wait();
            done.wait();
            assert_eq!(missed, Ok(None));
        });
        seated.wait();
        let rows = 100_000;
        let bytes: Vec<u64> = (0..4)
            .map(|round| churn(&db, &table, round * rows, rows, 10).map(|()| db.bytes()).expect("commits"))
            .collect();
        done.wait();
        assert!(bytes[3] < 2 * rows * 16, "{bytes:?} bytes");
    });
}

/// Each thread deletes the rows that it has inserted, and ends.
#[test]
fn memory_plateaus_with_threads_that_end() {
    let db = database::<Silo>();
    let table: Table<Counter> = db.create_table("rows").expect("a new name");
    let rows = 20_000;
    let mut bytes = Vec::new();
    for round in 0..10 {
        thread::scope(|scope| scope.spawn(|| churn(&db, &table, round * rows, rows, 4)).join().expect("no panic"))
            .expect("commits");
        bytes.push(db.bytes());
    }
    assert!(bytes[9] < bytes[4] + rows * 16, "{bytes:?} bytes");
}

/// A remaining thread takes over the garbage of a thread that has ended.
#[test]
fn memory_of_an_ended_thread_comes_back() {
    let db = database::<Silo>();
    // A hash index: an ordered index would grow by the new keys, and hide the effect.
    let options = TableOptions { index: IndexKind::Hash, expected_rows: 200_000 };
    let table: Table<Counter> = db.create_table_with("rows", options).expect("a new name");
    let rows = 50_000;
    let insert = |first: u64| {
        let inserted = db.transact(|tx| {
            for key in first..first + rows {
                assert!(tx.insert(&table, key, Counter { value: key })?);
            }
            Ok(())
        });
        inserted.expect("a commit");
    };
    // This thread has a seat (without one it would take over the other's), and has no memory of its
    // own yet.
    assert_eq!(db.transact(|tx| tx.read(&table, 0, Whole)), Ok(None));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            insert(0);
            let deleted = db.transact(|tx| {
                for key in 0..rows {
                    assert!(tx.delete(&table, key)?);
                }
                Ok(())
            });
            deleted.expect("a commit");
        });
        other.join().expect("no panic");
    });
    // Enough transactions and epochs for this thread to look for the garbage of others, to unlink
    // it, and to reuse it.
    let (start, mut steps) = (Instant::now(), 0);
    while steps < 50_000 || start.elapsed() < Duration::from_millis(100) {
        db.transact(|tx| tx.read(&table, steps, Whole)).expect("a commit");
        steps += 1;
    }
    let before = db.bytes();
    insert(1 << 40);
    let grown = db.bytes() - before;
    assert!(grown < rows * 16 / 4, "{grown} bytes more for rows that the freed memory should have taken");
}
