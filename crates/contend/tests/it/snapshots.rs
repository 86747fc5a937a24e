//! Reads of snapshots: they see one state, succeed at the first try, and disturb no other
//! transaction.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use contend::log::LogConfig;
use contend::protocols::{Collect, CollectOptions, Hekaton, TicToc};
use contend::{
    Abort, AnyProtocol, Builder, Config, Database, Direction, Durability, EngineOptions, Error, NamedProtocol, Native,
    NoWait, Protocol, Row, Silo, Snapshot, Table, Txn, Whole,
};
use contend_protocols::protocols_with_snapshots;

use crate::{builder, under_all};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: u64,
    #[group = 1]
    transfers: u64,
}

fn account(balance: u64) -> Account {
    Account { balance, transfers: 0 }
}

/// Returns builders of databases with short epochs, one for each choice of the engine's options.
fn builders(protocol: &str) -> impl Iterator<Item = Builder<AnyProtocol>> {
    [(true, true), (false, false)].into_iter().map(move |(commit_time_updates, timestamp_splitting)| {
        let engine = EngineOptions { commit_time_updates, timestamp_splitting, ..EngineOptions::default() };
        builder(protocol, Config { threads_max: 8, epoch_ms: 1, engine, ..Config::default() })
    })
}

/// Returns the sum of all balances, and a number that differs between states.
fn sum<P: Protocol<Native>>(
    snapshot: &mut Snapshot<'_, P>,
    accounts: &Table<Account>,
    direction: Direction,
) -> Result<(u64, u64), Abort> {
    let (mut sum, mut state) = (0, 0u64);
    snapshot.scan(accounts, 0..=u64::MAX, usize::MAX, direction, Whole, |key, row| {
        sum += row.balance;
        state = state.wrapping_add(mark(key, row));
        ControlFlow::Continue(())
    })?;
    Ok((sum, state))
}

fn mark(key: u64, row: Account) -> u64 {
    (key << 40 ^ row.balance << 20 ^ row.transfers).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Moves a unit from one row to another. A row that has none left is deleted, and a missing row is
/// inserted.
fn move_one<P: Protocol<Native>>(db: &Database<P>, accounts: &Table<Account>, from: u64, to: u64) {
    let moved = db.transact(|tx| {
        match tx.read(accounts, from, Account::BALANCE)? {
            None => return Ok(()),
            Some(1) => drop(tx.delete(accounts, from)?),
            Some(_) => drop(tx.modify(accounts, from, |row| row.balance = row.balance.wrapping_sub(1))?),
        }
        if !tx.update(accounts, to, Account::BALANCE.add(1))? {
            tx.insert(accounts, to, account(1))?;
        }
        tx.update(accounts, to, Account::TRANSFERS.add(1)).map(drop)
    });
    moved.expect("it is tried until it commits");
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

/// Runs `read` while two threads move units among `keys` keys. `read` gets the number of moves so
/// far.
fn beside_writers<P: Protocol<Native>>(
    db: &Database<P>,
    accounts: &Table<Account>,
    keys: u64,
    read: impl FnOnce(&AtomicU64),
) {
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
        for seed in 1..=2 {
            let (is_over, moves) = (&is_over, &moves);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    move_one(db, accounts, random.below(keys), random.below(keys));
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        read(&moves);
    });
}

/// Waits for this number of further moves.
fn pass(moves: &AtomicU64, more: u64) {
    let end = moves.load(Ordering::Relaxed) + more;
    while moves.load(Ordering::Relaxed) < end {
        thread::yield_now();
    }
}

/// Runs the same test under each protocol that can read snapshots, in some threads.
fn under_each_protocol(test: impl Fn(&'static str) + Sync) {
    let names: Vec<&str> = protocols_with_snapshots::<Native>().iter().map(|(name, _)| *name).collect();
    under_all(&names, test);
}

fn database(protocol: &str) -> Database<AnyProtocol> {
    builder(protocol, Config::default()).open().expect("it is in memory")
}

/// A read of 20,000 rows beside two writers, which an application couldn't finish as an ordinary
/// transaction.
#[test]
fn a_long_read_commits_at_its_first_try() {
    under_each_protocol(a_long_read_commits_at_its_first_try_under);
}

fn a_long_read_commits_at_its_first_try_under(protocol: &str) {
    const ROWS: u64 = 20_000;
    for builder in builders(protocol) {
        let db = builder.open().expect("it is in memory");
        assert!(db.reads_snapshots());
        let accounts = db.create_table("accounts").expect("a new name");
        assert_eq!(db.load(&accounts, (0..ROWS).map(|id| (id, account(1000)))), Ok(ROWS));
        beside_writers(&db, &accounts, ROWS, |moves| {
            for _ in 0..4 {
                let mut calls = 0;
                let seen = db.read(|snapshot| {
                    calls += 1;
                    let before = sum(snapshot, &accounts, Direction::Forward)?;
                    // Other threads commit while the snapshot is open, until some epochs have
                    // passed.
                    pass(moves, 2000);
                    assert_eq!(sum(snapshot, &accounts, Direction::Backward)?, before);
                    let keys = (0..ROWS).collect::<Vec<_>>();
                    let mut again = (0, 0);
                    snapshot.read_many(&accounts, &keys, Whole, |position, row| {
                        let Some(row) = row else { return };
                        again = (again.0 + row.balance, u64::wrapping_add(again.1, mark(keys[position], row)));
                    })?;
                    assert_eq!(again, before);
                    Ok(before.0)
                });
                assert_eq!((seen, calls), (Ok(ROWS * 1000), 1));
            }
        });
    }
}

/// Rows that are inserted and deleted, in thousands of snapshots.
#[test]
fn many_snapshots_are_of_one_state() {
    under_each_protocol(many_snapshots_are_of_one_state_under);
}

fn many_snapshots_are_of_one_state_under(protocol: &str) {
    const KEYS: u64 = 64;
    for builder in builders(protocol) {
        let db = builder.open().expect("it is in memory");
        let accounts = db.create_table("accounts").expect("a new name");
        assert_eq!(db.load(&accounts, (0..KEYS).map(|id| (id, account(2)))), Ok(KEYS));
        let mut states = 0;
        beside_writers(&db, &accounts, KEYS, |moves| {
            let mut last = (0, 0);
            for round in 0..800 {
                if round % 20 == 0 {
                    // Until some epochs have passed.
                    pass(moves, 2000);
                }
                let seen = db.read(|snapshot| {
                    let seen = sum(snapshot, &accounts, Direction::Forward)?;
                    // A missing row was missing a moment before.
                    for key in 0..KEYS {
                        let row = snapshot.read(&accounts, key, Whole)?;
                        assert!(row.is_none_or(|row| row.balance > 0));
                    }
                    assert_eq!(sum(snapshot, &accounts, Direction::Backward)?, seen, "in round {round}");
                    Ok(seen)
                });
                let seen = seen.expect("it never aborts");
                assert_eq!(seen.0, KEYS * 2, "in round {round}");
                states += u64::from(seen != last);
                last = seen;
            }
        });
        assert!(states > 2, "{states} states: snapshots are as old as the first");
    }
}

/// A thread sees its own commits, also while other threads read for long and write.
#[test]
fn own_commits_are_seen() {
    under_each_protocol(own_commits_are_seen_under);
}

fn own_commits_are_seen_under(protocol: &str) {
    for builder in builders(protocol) {
        let db = builder.open().expect("it is in memory");
        let accounts = db.create_table("accounts").expect("a new name");
        assert_eq!(db.load(&accounts, (0..64).map(|id| (id, account(2)))), Ok(64));
        let own: Table<Account> = db.create_table("own").expect("a new name");
        let see = |key| db.read(|snapshot| snapshot.read(&own, key, Account::BALANCE));
        let step = |key, value| {
            assert_eq!(db.transact(|tx| tx.insert(&own, key, account(value))), Ok(true));
            assert_eq!(see(key), Ok(Some(value)));
            assert_eq!(db.transact(|tx| tx.update(&own, key, Account::BALANCE.set(value + 1))), Ok(true));
            assert_eq!(see(key), Ok(Some(value + 1)));
            assert_eq!(db.transact(|tx| tx.delete(&own, key)), Ok(true));
            assert_eq!(see(key), Ok(None));
            assert_eq!(db.load(&own, [(key, account(value + 2))]), Ok(1));
            assert_eq!(see(key), Ok(Some(value + 2)));
            assert_eq!(db.transact(|tx| tx.delete(&own, key)), Ok(true));
        };
        (0..50).for_each(|value| step(value % 3, value));
        beside_writers(&db, &accounts, 64, |_| (0..50).for_each(|value| step(value % 3, value)));
        let (is_open, is_done) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let read = db.read(|snapshot| {
                    let before = sum(snapshot, &accounts, Direction::Forward)?;
                    is_open.wait();
                    is_done.wait();
                    assert_eq!(sum(snapshot, &accounts, Direction::Forward)?, before);
                    snapshot.read(&own, 7, Whole)
                });
                assert_eq!(read, Ok(None));
            });
            is_open.wait();
            // The thread doesn't wait for a long reader.
            (0..50).for_each(|value| step(7, value));
            is_done.wait();
        });
        // No other thread runs now. The commits of others must not be missing for longer than two
        // epochs.
        thread::scope(|scope| {
            let other = scope.spawn(|| db.transact(|tx| tx.insert(&own, 70, account(70))));
            assert_eq!(other.join().expect("no panic"), Ok(true));
        });
        while see(70) != Ok(Some(70)) {}
    }
}

#[derive(Debug, PartialEq)]
enum Refused {
    NoSuchAccount,
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Database(error)
    }
}

impl From<Abort> for Refused {
    fn from(abort: Abort) -> Self {
        Refused::Database(abort.into())
    }
}

#[test]
fn misuse_is_refused() {
    under_each_protocol(misuse_is_refused_under);
}

fn misuse_is_refused_under(protocol: &str) {
    let db = database(protocol);
    let accounts: Table<Account> = db.create_table("accounts").expect("a new name");
    db.load(&accounts, [(1, account(1))]).expect("memory");
    let read = db.read(|snapshot| {
        assert_eq!(db.read(|_| Ok(())), Err(Error::Nested));
        assert_eq!(db.transact(|_| Ok(())), Err(Error::Nested));
        assert_eq!(db.load(&accounts, [(2, account(1))]), Err(Error::Nested));
        assert_eq!(db.checkpoint().map(|_| ()), Err(Error::Nested));
        snapshot.read(&accounts, 1, Account::BALANCE)
    });
    assert_eq!(read, Ok(Some(1)));
    let within = db.transact(|tx| {
        assert_eq!(db.read(|_| Ok(())), Err(Error::Nested));
        tx.update(&accounts, 1, Account::BALANCE.set(2))
    });
    assert_eq!(within, Ok(true));
    let while_loading = (5..6).map(|key| {
        assert_eq!(db.read(|_| Ok(())), Err(Error::Nested));
        (key, account(5))
    });
    assert_eq!(db.load(&accounts, while_loading), Ok(1));
    assert_eq!(db.read(|snapshot| -> Result<(), Abort> { Err(snapshot.cancel()) }), Err(Error::Cancelled));
    let refused = db.try_read(|snapshot| snapshot.read(&accounts, 9, Whole)?.ok_or(Refused::NoSuchAccount));
    assert_eq!(refused, Err(Refused::NoSuchAccount));
    let other = database(protocol);
    let foreign = other.try_read(|snapshot| Ok(snapshot.read(&accounts, 1, Whole)?));
    assert_eq!(foreign, Err(Refused::Database(Error::Unsupported)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.read(|_| -> Result<(), Abort> { std::panic::resume_unwind(Box::new("on purpose")) })
    }));
    assert!(panicked.is_err());
    assert_eq!(db.transact(|tx| tx.read(&accounts, 1, Account::BALANCE)), Ok(Some(2)));
    assert_eq!(db.read(|snapshot| snapshot.read(&accounts, 5, Account::BALANCE)), Ok(Some(5)));
}

/// Old versions and deleted rows from the time of a long read are reused after it.
#[test]
fn memory_comes_back() {
    under_each_protocol(memory_comes_back_under);
}

fn memory_comes_back_under(protocol: &str) {
    const KEYS: u64 = 1000;
    const MOVES: u64 = 10_000;
    for builder in builders(protocol) {
        let db = builder.open().expect("it is in memory");
        let accounts = db.create_table("accounts").expect("a new name");
        db.load(&accounts, (0..KEYS).map(|id| (id, account(2)))).expect("memory");
        // The same threads run in all rounds, because each has memory of its own.
        let step = Barrier::new(3);
        let rounds = 12;
        let bytes = thread::scope(|scope| {
            for seed in 1..=2 {
                let (db, accounts, step) = (&db, &accounts, &step);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for moves in [MOVES, MOVES / 5].repeat(rounds) {
                        step.wait();
                        (0..moves).for_each(|_| move_one(db, accounts, random.below(KEYS), random.below(KEYS)));
                        step.wait();
                    }
                });
            }
            let work = || {
                step.wait();
                step.wait();
            };
            let round = |_| {
                let read = db.read(|snapshot| {
                    let before = sum(snapshot, &accounts, Direction::Forward)?;
                    work();
                    Ok(sum(snapshot, &accounts, Direction::Forward)? == before)
                });
                work();
                (read, db.bytes())
            };
            (0..rounds).map(round).collect::<Vec<_>>()
        });
        assert!(bytes.iter().all(|(read, _)| *read == Ok(true)));
        let bytes = bytes.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        // Each move leaves two versions of 32 bytes or more. If the versions of most of seven
        // rounds stayed, this would show.
        assert!(bytes[11] < bytes[4] + 5 * 2 * MOVES * 2 * 32, "{bytes:?}");
    }
}

#[test]
fn it_works_when_it_is_durable() {
    under_each_protocol(it_works_when_it_is_durable_under);
}

fn it_works_when_it_is_durable_under(protocol: &str) {
    const KEYS: u64 = 64;
    for durability in [Durability::Epoch, Durability::Early, Durability::Conservative] {
        for builder in builders(protocol) {
            let directory = tempfile::tempdir().expect("a directory");
            let log = LogConfig { segment_bytes: 1 << 16, ..LogConfig::default() };
            let mut first = Some(builder.durability(durability).log(log.clone()).path(directory.path()));
            for round in 0..2 {
                let again = || builders(protocol).next().expect("one").durability(durability).log(log.clone());
                let builder = first.take().unwrap_or_else(|| again().path(directory.path()));
                let db = match builder.open() {
                    Err(Error::NotConservative { .. }) => continue,
                    opened => opened.expect("a directory of one's own"),
                };
                let accounts = db.create_table("accounts").expect("one of this name");
                // The rows from before are there at once.
                let rows = db.read(|snapshot| sum(snapshot, &accounts, Direction::Forward)).expect("it never aborts");
                assert_eq!(rows.0, round * KEYS * 2);
                if round == 0 {
                    assert_eq!(db.load(&accounts, (0..KEYS).map(|id| (id, account(2)))), Ok(KEYS));
                }
                beside_writers(&db, &accounts, KEYS, |moves| {
                    for _ in 0..5 {
                        let seen = db.read(|snapshot| {
                            let before = sum(snapshot, &accounts, Direction::Forward)?;
                            // Each of these transactions is durable before the next, while the
                            // snapshot is open.
                            pass(moves, 10);
                            assert_eq!(sum(snapshot, &accounts, Direction::Backward)?, before);
                            Ok(before.0)
                        });
                        assert_eq!(seen, Ok(KEYS * 2));
                    }
                });
            }
        }
    }
}

#[test]
fn who_has_no_snapshots_says_what_has() {
    fn refused<P: NamedProtocol<Native>>(db: &Database<P>) -> String {
        assert!(!db.reads_snapshots());
        let error = db.read(|_| Ok(())).expect_err("there are none");
        assert!(matches!(error, Error::NoSnapshots { protocol, .. } if protocol == P::INFO.name));
        assert_eq!(db.transact(|_| Ok(())), Ok(()), "it goes on");
        error.to_string()
    }
    let all = "valid: silo, mvto, cicada, msto, si, hekaton, ic3";
    assert!(refused(&Database::<NoWait>::default()).ends_with(all));
    assert!(refused(&Database::<TicToc>::default()).starts_with("under tictoc, as it is set"));
    // Given options are taken as they are.
    let explicit = Database::<Silo>::with(Default::default(), Config::default()).expect("it is in memory");
    assert!(refused(&explicit).ends_with("valid: silo.snapshots=on"));
    let explicit = Database::<Silo>::builder().protocol(Default::default()).open().expect("it is in memory");
    assert!(refused(&explicit).ends_with("valid: silo.snapshots=on"));
    let lossy = CollectOptions { collect: Collect::Aggressive, ..CollectOptions::default() };
    let lossy = Database::<Hekaton<Native>>::with(lossy, Config::default()).expect("it is in memory");
    assert!(refused(&lossy).contains("versions.collect=rapid"));
    assert!(Database::new().reads_snapshots());
    assert!(Database::<Silo>::builder().open().expect("it is in memory").reads_snapshots());
}
