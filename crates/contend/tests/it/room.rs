//! The space that a durable database takes on a disk, and its behaviour when there is none left.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use contend::log::faulty::{FaultyDisk, Plan};
use contend::log::{Disk, LogConfig, LogError};
use contend::{Builder, Config, Database, Durability, Error, NoWait, Row, Silo, Table, Txn, Whole};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: i64,
}

const DURABILITIES: [Durability; 3] = [Durability::Epoch, Durability::Early, Durability::Conservative];

fn builder(durability: Durability, threads_max: usize) -> Builder<Silo> {
    Database::builder().durability(durability).config(Config { threads_max, epoch_ms: 1, ..Config::default() })
}

fn insert(db: &Database, table: &Table<Account>, key: u64) -> Result<bool, Error> {
    db.transact(|tx| tx.insert(table, key, Account { balance: key as i64 }))
}

fn has(db: &Database, table: &Table<Account>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        let found = db.transact(|tx| tx.read(table, key, Whole));
        assert_eq!(found, Ok(Some(Account { balance: key as i64 })), "row {key}");
    }
}

/// Returns the number of files of a directory, and their bytes: their lengths, and the bytes
/// allocated on the disk.
fn files(path: &Path) -> (usize, u64, u64) {
    let entries = std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("a file").metadata());
    let sizes: Vec<_> =
        entries.map(|file| file.expect("a file")).map(|file| (file.len(), 512 * file.blocks())).collect();
    (sizes.len(), sizes.iter().map(|size| size.0).sum(), sizes.iter().map(|size| size.1).sum())
}

/// The rows of thirty threads, one each, take less than a megabyte, before the database is closed
/// and after.
#[test]
fn threads_that_write_little_take_little() {
    for durability in DURABILITIES {
        // The directory of the build is on a usual file system.
        let here = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let open = || builder(durability, 64).path(here.path()).open().expect("a directory of one's own");
        for round in 0..2 {
            let db = open();
            let table = db.create_table("accounts").expect("one of this name");
            let all_are_there = std::sync::Barrier::new(30);
            std::thread::scope(|scope| {
                for thread in 0..30 {
                    let (db, table, all_are_there) = (&db, &table, &all_are_there);
                    scope.spawn(move || {
                        assert_eq!(insert(db, table, 30 * round + thread), Ok(true));
                        // All threads are alive at once, so that none gets the seat of another.
                        all_are_there.wait();
                    });
                }
            });
            let (count, length, taken) = files(here.path());
            assert!(count > 30 && length < 1 << 20 && taken < 1 << 20, "{durability:?}: {count} {length} {taken}");
            drop((db, table));
            let (count, length, taken) = files(here.path());
            assert!(count > 30, "{durability:?}: {count} files");
            assert!(length < 100 << 10, "{durability:?}: {length} bytes in {count} files");
            assert!(taken < 400 << 10, "{durability:?}: {taken} bytes of the disk for {count} files");
        }
        let db = open();
        has(&db, &db.create_table("accounts").expect("it is there"), 0..60);
    }
}

/// Files of a thread become longer and longer, up to the configured length. A full file is no
/// longer than its contents.
#[test]
fn files_grow_with_what_a_thread_writes() {
    let here = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    for durability in DURABILITIES {
        let path = here.path().join(format!("{durability:?}"));
        let log = LogConfig { segment_bytes: 128 << 10, buffer_bytes: 1 << 10, ..LogConfig::default() };
        let db = builder(durability, 4).path(&path).log(log).open().expect("a directory of one's own");
        let table: Table<Account> = db.create_table("accounts").expect("a new name");
        for first in (0..1500).step_by(20) {
            let inserted = db.transact(|tx| {
                (first..first + 20)
                    .try_for_each(|key| tx.insert(&table, key << 40, Account { balance: i64::MAX }).map(|_| ()))
            });
            assert_eq!(inserted, Ok(()));
        }
        drop((db, table));
        let mut sizes: Vec<_> = std::fs::read_dir(&path)
            .expect("a directory")
            .map(|entry| entry.expect("a file"))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("log-"))
            .map(|entry| entry.metadata().expect("a file").len())
            .collect();
        assert!(sizes.len() > 1, "{durability:?}: {sizes:?}");
        sizes.sort_unstable();
        assert!(sizes.iter().all(|size| *size <= 128 << 10), "{durability:?}: {sizes:?}");
    }
}

/// A database that is opened and closed again and again has no more files in the end than after a
/// few times.
#[test]
fn openings_leave_a_limited_number_of_files() {
    for durability in DURABILITIES {
        let here = tempfile::tempdir().expect("a directory");
        let (mut most, mut rows) = (0, 0);
        for round in 0..200 {
            let db = builder(durability, 8).path(here.path()).open().expect("a directory of one's own");
            let table = db.create_table("accounts").expect("one of this name");
            assert_eq!(db.recovery().expect("it is durable").rows, rows);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || assert_eq!(insert(db, table, 4 * round + thread), Ok(true)));
                }
            });
            rows += 4;
            drop((db, table));
            most = most.max(files(here.path()).0);
        }
        // The most small files that may exist, those of one opening more, the manifest and the
        // lock.
        assert!(most < 64 + 8 + 4, "{durability:?}: {most} files");
        let db = builder(durability, 8).path(here.path()).open().expect("a directory of one's own");
        has(&db, &db.create_table("accounts").expect("it is there"), 0..rows);
    }
}

/// A database that was not closed is opened on a full disk. Its rows are there, then and when there
/// is room again.
#[test]
fn a_full_disk_can_be_opened() {
    for durability in DURABILITIES {
        for first in DURABILITIES {
            let disk = FaultyDisk::new(Plan::default());
            let open = |disk: &FaultyDisk, durability| builder(durability, 4).disk(Arc::new(disk.clone())).open();
            let db = open(&disk, first).expect("a disk that works");
            let table = db.create_table("accounts").expect("a new name");
            (0..20).for_each(|key| assert_eq!(insert(&db, &table, key), Ok(true)));
            // The machine crashes while the database is open. Then the disk is full but for the
            // bytes that nobody needs.
            let after = disk.after_crash(Plan { capacity: 0, ..Plan::default() });
            for _ in 0..2 {
                let db = open(&after, durability).expect("it is opened");
                let table = db.create_table("accounts").expect("it is there");
                has(&db, &table, 0..20);
                let error = insert(&db, &table, 20).expect_err("there is no room");
                assert!(
                    matches!(&error, Error::Log(LogError::Stopped { cause }) if cause.to_string().contains("can't create log-")),
                    "{error}"
                );
            }
            after.fail(Plan::default());
            let db = open(&after, durability).expect("it is opened");
            let table = db.create_table("accounts").expect("it is there");
            has(&db, &table, 0..20);
            assert!(insert(&db, &table, 21).is_ok());
        }
    }
}

/// A disk that becomes full while rows are loaded. Acknowledged rows are there after a crash. Other
/// rows are there by whole transactions only.
#[test]
fn a_load_that_does_not_fit_is_refused() {
    const PART: u64 = 1500;
    for durability in DURABILITIES {
        let (mut refused, mut acknowledged) = (0, 0);
        for kilobytes in (0..160).step_by(6) {
            let disk = FaultyDisk::new(Plan::default());
            let db = builder(durability, 4).disk(Arc::new(disk.clone())).open().expect("a disk that works");
            let table = db.create_table("accounts").expect("a new name");
            disk.fail(Plan { capacity: disk.bytes() + (kilobytes << 10), seed: kilobytes, ..Plan::default() });
            let rows = |keys: std::ops::Range<u64>| keys.map(|key| (key, Account { balance: key as i64 }));
            let mut loaded = 0;
            let outcome = loop {
                match db.load(&table, rows(loaded..loaded + PART)) {
                    Ok(added) => assert_eq!(added, PART),
                    Err(error) => break Err(error),
                }
                loaded += PART;
                if loaded == 6 * PART {
                    break Ok(());
                }
            };
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Log(LogError::Stopped { .. })), "{error}");
                let again = db.load(&table, rows(loaded..loaded + 1));
                assert!(matches!(again, Err(Error::Log(LogError::Stopped { .. }))), "{again:?}");
                refused += 1;
                acknowledged += u64::from(loaded > 0);
            }
            let after = disk.after_crash(Plan::default());
            drop((db, table));
            let db = builder(durability, 4).disk(Arc::new(after)).open().expect("a disk that works");
            let table = db.create_table("accounts").expect("it is there");
            let found = db.recovery().expect("it is durable").rows;
            has(&db, &table, 0..found);
            // A load consists of transactions of 1,024 rows.
            let whole = (found - loaded) % PART;
            assert!(found >= loaded, "{durability:?}, {kilobytes} KiB: {found} rows of {loaded}");
            assert!(
                whole == 0 || whole == 1024,
                "{durability:?}, {kilobytes} KiB: {found} rows, {loaded} acknowledged"
            );
        }
        assert!(refused > 5 && acknowledged > 5, "{durability:?}: {refused} {acknowledged}");
    }
}

/// Thousands of tables: after a restart they exist and can be used, and no cost grows with their
/// number.
#[test]
fn there_is_room_for_thousands_of_tables() {
    const TABLES: u64 = 5000;
    for durability in DURABILITIES {
        let disk = FaultyDisk::new(Plan::default());
        let open = || builder(durability, 4).disk(Arc::new(disk.clone())).open().expect("a disk that works");
        let name = |number| format!("a table of a rather long name, of number {number}");
        {
            let db = open();
            for number in 0..TABLES {
                let table = db.create_table(&name(number)).expect("a new name");
                if number % 500 == 0 {
                    assert_eq!(insert(&db, &table, number), Ok(true));
                }
            }
        }
        for round in 0..2 {
            let db = open();
            for number in (0..TABLES).step_by(250) {
                let table = db.create_table(&name(number)).expect("it is there");
                if number % 500 == 0 {
                    has(&db, &table, [number]);
                }
                assert_eq!(insert(&db, &table, TABLES + round), Ok(true));
            }
            db.checkpoint().expect("a disk that works");
        }
        let db = open();
        let table = db.create_table(&name(TABLES - 500)).expect("it is there");
        has(&db, &table, [TABLES - 500, TABLES, TABLES + 1]);
        let of_files = |name: &String| disk.contents(name).expect("it is there").len();
        let of_log: usize =
            disk.names().expect("a disk").iter().filter(|name| name.starts_with("log-")).map(of_files).sum();
        assert!(of_log < 100 << 10, "{of_log} bytes of files for some rows");
    }
}

/// A table for which the disk has no room is refused, without any other effect.
#[test]
fn a_table_that_does_not_fit_is_refused() {
    for durability in DURABILITIES {
        let disk = FaultyDisk::new(Plan::default());
        let open = || builder(durability, 4).disk(Arc::new(disk.clone())).open().expect("a disk that works");
        let db = open();
        let first = db.create_table("first").expect("a new name");
        assert_eq!(insert(&db, &first, 0), Ok(true));
        disk.fail(Plan { capacity: disk.bytes(), ..Plan::default() });
        let long = "x".repeat(1000);
        let name = |number: i32| format!("{long} {number}");
        let (made, error) = (0..)
            .find_map(|number| Some((number, db.create_table::<Account, u64>(&name(number)).err()?)))
            .expect("the disk is full some day");
        assert!(made > 5, "{made}");
        assert!(error.to_string().starts_with("can't create manifest.next: "), "{error}");
        assert_eq!(insert(&db, &first, 1), Ok(true), "the database lives");
        let again = db.create_table::<Account, u64>(&name(made)).map(|_| ());
        assert!(
            again.is_err_and(|error| error.to_string().starts_with("can't create manifest.next: ")),
            "it is not there"
        );
        disk.fail(Plan::default());
        let last = db.create_table(&name(made)).expect("there is room now");
        assert_eq!(insert(&db, &last, 2), Ok(true));
        drop((db, first, last));
        let db = open();
        has(&db, &db.create_table("first").expect("it is there"), 0..2);
        has(&db, &db.create_table(&name(made)).expect("it is there"), 2..3);
    }
}

/// A transaction that writes more than the log takes at once is refused before another transaction
/// sees any of its writes.
#[test]
fn a_transaction_that_is_too_large_is_refused() {
    fn refused<P: contend_engine::NamedProtocol<contend::Native>>(durability: Durability) {
        let disk = FaultyDisk::new(Plan::default());
        let log = LogConfig { transaction_bytes: 160, ..LogConfig::default() };
        let open = || {
            let builder = Database::<P>::builder().durability(durability).log(log.clone());
            builder.disk(Arc::new(disk.clone())).open().expect("a disk that works")
        };
        let db = open();
        let table: Table<Account> = db.create_table("accounts").expect("a new name");
        let insert = |keys: std::ops::Range<u64>| {
            db.transact(|tx| {
                keys.clone().try_for_each(|key| tx.insert(&table, key, Account { balance: 1 }).map(|_| ()))
            })
        };
        // A key and a row have a word each.
        assert_eq!(insert(0..10), Ok(()));
        assert_eq!(insert(10..21), Err(Error::TooLarge));
        assert_eq!(insert(10..20), Ok(()), "nothing was left of the other");
        let update = |keys: std::ops::Range<u64>| {
            db.transact(|tx| {
                keys.clone().try_for_each(|key| tx.update(&table, key, Account::BALANCE.add(1)).map(|_| ()))
            })
        };
        assert_eq!(update(0..11), Err(Error::TooLarge));
        assert_eq!(update(0..10), Ok(()));
        let sum = |db: &Database<P>, table: &Table<Account>| {
            let read = |key| db.transact(|tx| tx.read(table, key, Account::BALANCE)).expect("nobody is in the way");
            (0..21).filter_map(read).sum::<i64>()
        };
        assert_eq!(sum(&db, &table), 30);
        drop((db, table));
        let db = open();
        let table = db.create_table("accounts").expect("it is there");
        assert_eq!(sum(&db, &table), 30);
    }
    for durability in DURABILITIES {
        refused::<Silo>(durability);
        refused::<NoWait>(durability);
    }
}

/// Columns of other types are other columns, even in the same places.
#[test]
fn columns_of_other_types_are_refused() {
    #[derive(Clone, Copy, contend::zerocopy::FromBytes, contend::zerocopy::IntoBytes, contend::zerocopy::Immutable)]
    #[zerocopy(crate = "contend::zerocopy")]
    #[repr(transparent)]
    struct Money(i64);
    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    struct Rows {
        balance: i64,
        name: [u8; 8],
        money: Money,
    }
    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    struct Others {
        balance: f64,
        name: [u8; 8],
        money: Money,
    }
    type Alias = i64;
    mod inner {
        pub(super) type Text = [u8; 8];
    }
    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    struct Same {
        balance: Alias,
        name: inner::Text,
        money: Money,
    }
    let disk = FaultyDisk::new(Plan::default());
    let open = || builder(Durability::Epoch, 4).disk(Arc::new(disk.clone())).open().expect("a disk that works");
    open().create_table::<Rows, u64>("rows").expect("a new name");
    let db = open();
    let error = db.create_table::<Others, u64>("rows").map(|_| ()).expect_err("it has other columns").to_string();
    let was = "rows of 3 (key u64, balance i64 0..8, name [u8; 8] 8..16, money Money 16..24)";
    let now = "rows of 3 (key u64, balance f64 0..8, name [u8; 8] 8..16, money Money 16..24)";
    let places = (error.find(was), error.find("and is opened as"), error.find(now));
    assert!(matches!(places, (Some(was), Some(and), Some(now)) if was < and && and < now), "{error}");
    let error = db.create_table::<Rows, [u8; 8]>("rows").map(|_| ()).expect_err("it has other keys").to_string();
    assert!(error.contains("key u64") && error.contains("key [u8; 8]"), "{error}");
    db.create_table::<Same, u64>("rows").expect("other names of the same types");
}

/// A number of threads that no machine has is refused, with the largest valid number.
#[test]
fn a_number_of_threads_that_cant_be_is_refused() {
    for asked in [0, 16_384, usize::MAX] {
        let config = Config { threads_max: asked, ..Config::default() };
        let expected = Error::ThreadsMax { asked, most: 16_383 };
        let message =
            format!("a database is made for 1 to 16383 threads at one time, and `Config::threads_max` is {asked}");
        assert_eq!(expected.to_string(), message);
        let disk = FaultyDisk::new(Plan::default());
        let refused = Database::<Silo>::builder().config(config.clone()).disk(Arc::new(disk.clone())).open();
        assert_eq!(refused.map(|_| ()), Err(expected.clone()));
        assert_eq!(disk.operations(), 0, "nothing was left");
        assert_eq!(Database::<NoWait>::with(Default::default(), config).map(|_| ()), Err(expected));
    }
    for threads_max in [1, 16_383] {
        let db = Database::<NoWait>::with(Default::default(), Config { threads_max, ..Config::default() });
        let db = db.expect("so many can be");
        let table = db.create_table::<Account, u64>("accounts").expect("a new name");
        assert_eq!(db.transact(|tx| tx.insert(&table, 0, Account { balance: 0 })), Ok(true));
    }
}
