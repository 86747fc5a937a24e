//! Tests of old versions under all multi-version protocols, and of rules that only some of them
//! have.

mod late;

use std::sync::Arc;

use contend_engine::{
    AbortReason, Engine, EngineConfig, EngineOptions, Groups, IndexKind, NamedProtocol, Projection, RawTxn, RowUpdate,
    Table, TableSpec, Transaction, Txn, Update, Worker,
};
use contend_machine::Native;

use crate::multiversion::cicada::Cicada;
use crate::multiversion::ermia::Ermia;
use crate::multiversion::hekaton::Hekaton;
use crate::multiversion::msto::Msto;
use crate::multiversion::mvto::Mvto;
use crate::multiversion::snapshot_isolation::SnapshotIsolation;

type Rows = Table<u64>;

/// Aggressive collection, with a scan before every transaction.
const AGGRESSIVE: [(&str, &str); 2] = [("versions.collect", "aggressive"), ("versions.interval_us", "0")];

/// An engine with rows 0 to 9, each of two words: its key and 0. They are loaded in the first
/// epoch; the tests advance epochs by hand.
struct World<P: NamedProtocol<Native>> {
    engine: Arc<Engine<P, Native>>,
    rows: Rows,
    /// A test that needs an order of begins uses the workers from the first to the last. The clocks
    /// of two workers may show the same tick, and then the lower number is earlier.
    workers: [Worker<P, Native>; 3],
}

impl<P: NamedProtocol<Native>> World<P> {
    fn new(settings: &[(&str, &str)]) -> Self {
        Self::with(settings, EngineConfig { epoch_ms: u64::MAX, ..EngineConfig::default() })
    }

    fn with(settings: &[(&str, &str)], config: EngineConfig) -> Self {
        use contend_engine::Options;
        let mut options = P::Options::default();
        settings.iter().for_each(|(name, value)| options.set(name, value).expect("an option"));
        let engine = Engine::new(P::new(options), config);
        let rows: Rows = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Ordered, 16, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..10 {
            assert!(loader.insert(&rows, key, |row| row.copy_from_slice(&[key, 0])).expect("memory"));
        }
        drop(loader);
        let workers = [(); 3].map(|()| engine.worker().expect("a slot"));
        World { engine, rows, workers }
    }

    fn advance(&mut self) {
        self.workers.iter_mut().for_each(Worker::go_offline);
        assert!(self.engine.epochs().try_advance());
    }
}

fn write<P: NamedProtocol<Native>>(worker: &mut Worker<P, Native>, rows: &Rows, key: u64, value: u64) {
    worker
        .run(|tx| {
            tx.write_row(rows, key, Groups::ALL).map(|row| row.expect("it is there").copy_from_slice(&[key, value]))
        })
        .expect("nobody is in the way");
}

#[track_caller]
fn see<P: NamedProtocol<Native>>(tx: &mut Transaction<'_, P, Native>, rows: &Rows, key: u64) -> Option<u64> {
    let row = tx.read_row(rows, key, Projection::WHOLE).expect("a read is never too late")?;
    assert_eq!(row[0], key);
    Some(row[1])
}

fn late_readers_see_their_time<P: NamedProtocol<Native>>() {
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } = World::<P>::new(&[]);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 1), Some(0));
    for value in 1..100 {
        write(late, rows, 1, value);
        write(late, rows, 2, value);
    }
    assert!(late.run(|tx| tx.delete(rows, 3)).expect("nobody is in the way"));
    assert!(
        late.run(|tx| Ok(tx.insert_row(rows, 33)?.map(|row| row.copy_from_slice(&[33, 5]))))
            .expect("as above")
            .is_some()
    );
    // A deleted row leaves neither index nor memory as long as an older transaction runs.
    late.collect();
    assert!(engine.epochs().try_advance());
    write(late, rows, 4, 1);
    assert!(!engine.epochs().try_advance(), "the long one holds the epoch back");
    late.collect();
    assert_eq!([1, 2, 3, 4, 33].map(|key| see(&mut long, rows, key)), [Some(0), Some(0), Some(0), Some(0), None]);
    long.commit().expect("a reader always commits");
    let seen = late.run(|tx| Ok([1, 2, 3, 4, 33].map(|key| see(tx, rows, key)))).expect("nobody is in the way");
    assert_eq!(seen, [Some(99), Some(99), None, Some(1), Some(5)]);
}

#[test]
fn a_late_reader_sees_the_rows_as_they_were() {
    late_readers_see_their_time::<Mvto<Native>>();
    late_readers_see_their_time::<Cicada<Native>>();
    late_readers_see_their_time::<Msto<Native>>();
    late_readers_see_their_time::<SnapshotIsolation<Native>>();
    late_readers_see_their_time::<Ermia<Native>>();
    late_readers_see_their_time::<Hekaton<Native>>();
}

/// Silo gave deleted rows back an epoch too early (commits 31990ad, 92970fe). Here a row is deleted
/// in each epoch that can be the global one while a transaction runs, and others come and go. Freed
/// memory is filled, which a reader would see.
fn deleted_rows_stay_for_readers_that_can_see_them<P: NamedProtocol<Native>>(settings: &[(&str, &str)]) {
    for deleted_after in 0..3 {
        let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } = World::<P>::new(settings);
        let mut long = early.begin();
        assert_eq!(see(&mut long, rows, 1), Some(0));
        for step in 0..6 {
            if step == deleted_after {
                assert!(late.run(|tx| tx.delete(rows, 5)).expect("nobody is in the way"));
            }
            late.go_offline();
            let _ = engine.epochs().try_advance();
            (100..110).for_each(|key| {
                let inserted = late.run(|tx| Ok(tx.insert_row(rows, key)?.map(|row| row.fill(key)).is_some()));
                assert!(inserted.expect("nobody is in the way"));
                assert!(late.run(|tx| tx.delete(rows, key)).expect("nobody is in the way"));
            });
            late.collect();
            assert_eq!(see(&mut long, rows, 5), Some(0), "deleted after {deleted_after} epochs, in step {step}");
        }
        long.commit().expect("a reader always commits");
    }
}

#[test]
fn no_row_is_given_back_an_epoch_too_early() {
    for settings in [&[] as &[_], &[("versions.collect", "epoch")], &AGGRESSIVE] {
        deleted_rows_stay_for_readers_that_can_see_them::<Mvto<Native>>(settings);
        deleted_rows_stay_for_readers_that_can_see_them::<Cicada<Native>>(settings);
        deleted_rows_stay_for_readers_that_can_see_them::<Msto<Native>>(settings);
        deleted_rows_stay_for_readers_that_can_see_them::<SnapshotIsolation<Native>>(settings);
        deleted_rows_stay_for_readers_that_can_see_them::<Ermia<Native>>(settings);
        deleted_rows_stay_for_readers_that_can_see_them::<Hekaton<Native>>(settings);
    }
}

/// CCBench's Cicada gave an inline version back twice (commit f7e3183): two writers and a reader of
/// one row, with a collection before every transaction.
fn two_write_one_row<P: NamedProtocol<Native>>(settings: &[(&str, &str)]) {
    const WRITES: u64 = 2000;
    let World { engine, rows, workers } = World::<P>::new(settings);
    drop(workers);
    let commits = std::thread::scope(|scope| {
        let writer = || {
            let mut worker = engine.worker().expect("a slot");
            let mut commits = 0;
            while commits < WRITES {
                let counted = worker.run(|tx| {
                    let row = tx.modify_row(&rows, 1, Groups::ALL)?.expect("it is there");
                    assert_eq!(row[0], 1);
                    row[1] += 1;
                    Ok(())
                });
                commits += u64::from(counted.is_ok());
            }
            commits
        };
        let writers = [scope.spawn(writer), scope.spawn(writer)];
        let mut worker = engine.worker().expect("a slot");
        let mut last = 0;
        while last < 2 * WRITES {
            if let Ok(Some(now)) = worker.run(|tx| Ok(tx.read_row(&rows, 1, Projection::WHOLE)?.map(|row| row[1]))) {
                last = now;
            }
        }
        writers.map(|writer| writer.join().expect("it ended")).into_iter().sum::<u64>()
    });
    assert_eq!(commits, 2 * WRITES);
}

#[test]
fn two_writers_of_one_row_lose_nothing_to_the_collector() {
    for settings in [&[("versions.interval_us", "0")] as &[_], &AGGRESSIVE] {
        two_write_one_row::<Mvto<Native>>(settings);
        two_write_one_row::<Cicada<Native>>(settings);
        two_write_one_row::<Msto<Native>>(settings);
        two_write_one_row::<SnapshotIsolation<Native>>(settings);
        two_write_one_row::<Ermia<Native>>(settings);
        two_write_one_row::<Hekaton<Native>>(settings);
    }
}

fn old_versions_are_reused<P: NamedProtocol<Native>>(settings: &[(&str, &str)]) {
    let mut world = World::<P>::new(settings);
    let mut bytes = 0;
    for step in 0..20_000 {
        let key = step % 9;
        write(&mut world.workers[0], &world.rows, key, step);
        if step % 50 == 0 {
            let rows = &world.rows;
            // By the same worker: timestamps of batches follow real time only within a worker.
            assert!(world.workers[0].run(|tx| tx.delete(rows, 9)).expect("nobody is in the way"));
            let inserted = world.workers[0]
                .run(|tx| Ok(tx.insert_row(rows, 9)?.map(|row| row.copy_from_slice(&[9, step])).is_some()));
            assert!(inserted.expect("nobody is in the way"));
        }
        if step % 10 == 9 {
            world.advance();
            world.workers.iter_mut().for_each(Worker::collect);
        }
        if step == 2000 {
            bytes = world.engine.bytes();
        }
    }
    assert_eq!(world.engine.bytes(), bytes);
    let rows = &world.rows;
    let seen = world.workers[0].run(|tx| Ok((see(tx, rows, 0), see(tx, rows, 9)))).expect("nobody is in the way");
    assert_eq!(seen, (Some(19_998), Some(19_950)));
}

#[test]
fn memory_of_old_versions_is_reused() {
    old_versions_are_reused::<Mvto<Native>>(&[]);
    old_versions_are_reused::<Mvto<Native>>(&[("timestamp.source", "batched")]);
    old_versions_are_reused::<Mvto<Native>>(&[("versions.collect", "epoch")]);
    old_versions_are_reused::<Cicada<Native>>(&[]);
    old_versions_are_reused::<Msto<Native>>(&[]);
    old_versions_are_reused::<Cicada<Native>>(&[("cicada.single_version", "on")]);
    old_versions_are_reused::<SnapshotIsolation<Native>>(&[]);
    old_versions_are_reused::<Ermia<Native>>(&[]);
    old_versions_are_reused::<Hekaton<Native>>(&[]);
}

fn unneeded_versions_are_reused_at_once<P: NamedProtocol<Native>>() {
    // The epochs stand still: only rapid collection reuses anything.
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } =
        World::<P>::new(&[("versions.interval_us", "0")]);
    let mut churn = |step: u64| (0..1000).for_each(|value| write(late, rows, value % 3, step * 1000 + value));
    churn(1);
    let bytes = engine.bytes();
    (2..20).for_each(&mut churn);
    assert_eq!(engine.bytes(), bytes);
    // A transaction that runs all the time needs the versions of its begin, and all later ones are
    // kept for it.
    let mut long = early.begin();
    assert_eq!([0, 1, 2].map(|key| see(&mut long, rows, key)), [Some(19_999), Some(19_997), Some(19_998)]);
    (20..30).for_each(&mut churn);
    assert!(engine.bytes() > bytes);
    assert_eq!([0, 1, 2].map(|key| see(&mut long, rows, key)), [Some(19_999), Some(19_997), Some(19_998)]);
    long.commit().expect("a reader always commits");
    early.go_offline();
    let bytes = engine.bytes();
    (30..50).for_each(&mut churn);
    assert_eq!(engine.bytes(), bytes);
}

#[test]
fn rapid_collection_needs_no_epochs() {
    unneeded_versions_are_reused_at_once::<Mvto<Native>>();
    unneeded_versions_are_reused_at_once::<Cicada<Native>>();
    unneeded_versions_are_reused_at_once::<Msto<Native>>();
    unneeded_versions_are_reused_at_once::<SnapshotIsolation<Native>>();
    unneeded_versions_are_reused_at_once::<Ermia<Native>>();
    unneeded_versions_are_reused_at_once::<Hekaton<Native>>();
}

/// After a long transaction many versions wait. No transaction waits until all are reused, also
/// where their worker has ended.
#[test]
fn many_old_versions_are_reused_a_part_at_a_time() {
    let mut world = World::<Mvto<Native>>::new(&[("versions.collect", "epoch")]);
    let rows = world.rows;
    (0..10_000).for_each(|value| write(&mut world.workers[1], &rows, value % 10, value));
    (0..3).for_each(|_| world.advance());
    let made = world.workers[1].versions().alive();
    world.workers[1].collect();
    let left = world.workers[1].versions().alive();
    assert!(left < made && left > made / 2, "{left} of {made}");
    // Another worker takes over what is left.
    let World { ref engine, workers: [_, ended, mut other], .. } = world;
    drop(ended);
    let bytes = engine.bytes();
    for _ in 0..200 {
        other.collect();
        other.go_offline();
        let _ = engine.epochs().try_advance();
    }
    (0..5_000).for_each(|value| write(&mut other, &rows, value % 10, value));
    assert_eq!(engine.bytes(), bytes, "the versions are used again");
}

fn long_transactions_keep_what_they_need<P: NamedProtocol<Native>>() {
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } = World::<P>::new(&AGGRESSIVE);
    let mut churn = |step: u64| (0..1000).for_each(|value| write(late, rows, value % 3, step * 1000 + value));
    churn(1);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 0), Some(1999));
    (2..4).for_each(&mut churn);
    let bytes = engine.bytes();
    (4..30).for_each(&mut churn);
    // It still runs and sees the state of its begin, and yet no more memory is used.
    assert_eq!(engine.bytes(), bytes);
    assert_eq!([0, 1, 2, 3].map(|key| see(&mut long, rows, key)), [Some(1999), Some(1997), Some(1998), Some(0)]);
    long.commit().expect("a reader always commits");
    let versions = late.versions();
    assert!(versions.collected_early > 20_000, "{versions:?}");
    assert!(versions.alive() < 100, "{versions:?}");
}

#[test]
fn versions_that_a_long_transaction_cannot_need_are_reused_while_it_runs() {
    long_transactions_keep_what_they_need::<Mvto<Native>>();
    long_transactions_keep_what_they_need::<Cicada<Native>>();
    long_transactions_keep_what_they_need::<Msto<Native>>();
    long_transactions_keep_what_they_need::<SnapshotIsolation<Native>>();
    long_transactions_keep_what_they_need::<Ermia<Native>>();
    long_transactions_keep_what_they_need::<Hekaton<Native>>();
}

fn young_versions_are_overwritten<P: NamedProtocol<Native>>() {
    let World { ref rows, workers: [ref mut early, ref mut late, _], .. } =
        World::<P>::new(&[("versions.overwrite", "on")]);
    let mut churn = |step: u64| {
        (0..300).for_each(|value| write(late, rows, value % 3, step * 1000 + value));
        late.versions().made
    };
    assert_eq!(churn(1), 0, "nobody else has begun");
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 0), Some(1297));
    assert_eq!([churn(2), churn(3)], [3, 3], "one of each row is kept");
    assert_eq!([0, 1, 2, 3].map(|key| see(&mut long, rows, key)), [Some(1297), Some(1298), Some(1299), Some(0)]);
    long.commit().expect("a reader always commits");
}

#[test]
fn a_version_from_after_all_running_transactions_began_is_overwritten() {
    young_versions_are_overwritten::<Mvto<Native>>();
    young_versions_are_overwritten::<Cicada<Native>>();
    young_versions_are_overwritten::<Msto<Native>>();
    young_versions_are_overwritten::<SnapshotIsolation<Native>>();
    young_versions_are_overwritten::<Ermia<Native>>();
    young_versions_are_overwritten::<Hekaton<Native>>();
}

fn a_worker_that_misses_versions_is_protected<P: NamedProtocol<Native>>(setting: (&str, &str)) {
    let [collect, interval] = AGGRESSIVE;
    let World { ref rows, workers: [ref mut early, ref mut late, _], .. } =
        World::<P>::new(&[collect, interval, setting, ("versions.max", "0")]);
    let mut value = 0;
    let mut churn = |late: &mut Worker<P, Native>| {
        (0..100).for_each(|_| {
            value += 1;
            write(late, rows, value % 3, value);
        });
    };
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        let mut long = early.begin();
        let before = long.read_row(rows, 1, Projection::WHOLE).map(|row| row.map(|row| row[1]));
        churn(late);
        let after = long.read_row(rows, 1, Projection::WHOLE).map(|row| row.map(|row| row[1]));
        let outcome = after.and_then(|after| {
            assert_eq!(Ok(after), before);
            long.commit()
        });
        outcomes.push(outcome.map_err(|abort| abort.reason));
        if outcome.is_ok() {
            break;
        }
    }
    let gone = Err(AbortReason::VersionCollected);
    assert!(outcomes.len() <= 5, "{outcomes:?}");
    assert!(outcomes.starts_with(&[gone; 3]), "{outcomes:?}");
    assert_eq!(outcomes.last(), Some(&Ok(())));
    // The next transaction is not protected.
    let mut long = early.begin();
    assert!(long.read_row(rows, 1, Projection::WHOLE).is_ok());
    churn(late);
    let outcome = long.read_row(rows, 1, Projection::WHOLE).map(|_| ());
    assert_eq!(outcome.map_err(|abort| abort.reason), gone);
}

#[test]
fn a_transaction_that_misses_versions_again_and_again_is_protected() {
    a_worker_that_misses_versions_is_protected::<Mvto<Native>>(AGGRESSIVE[0]);
    a_worker_that_misses_versions_is_protected::<Msto<Native>>(AGGRESSIVE[0]);
    // Without a boost: a clock that is ahead of the others' sees commits that come later.
    a_worker_that_misses_versions_is_protected::<Cicada<Native>>(("cicada.boost_ns", "0"));
    a_worker_that_misses_versions_is_protected::<SnapshotIsolation<Native>>(AGGRESSIVE[0]);
    a_worker_that_misses_versions_is_protected::<Ermia<Native>>(AGGRESSIVE[0]);
    a_worker_that_misses_versions_is_protected::<Hekaton<Native>>(AGGRESSIVE[0]);
}

/// Returns what a transaction reads of a row before and after its version was taken out of the
/// chain. An older version stays, for a protected transaction, and so does the newest.
fn beyond_a_gap<P: NamedProtocol<Native>>() -> [Result<Option<u64>, AbortReason>; 2] {
    let [collect, interval] = AGGRESSIVE;
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } =
        World::<P>::new(&[collect, interval, ("versions.max", "0")]);
    let mut value = 0;
    let mut churn = |late: &mut Worker<P, Native>| {
        (0..100).for_each(|_| {
            value += 1;
            write(late, rows, 1, value);
        });
    };
    let read = |tx: &mut Transaction<'_, P, Native>| {
        tx.read_row(rows, 1, Projection::WHOLE).map(|row| row.map(|row| row[1])).map_err(|abort| abort.reason)
    };
    for _ in 0..3 {
        let mut long = early.begin();
        let _ = read(&mut long);
        churn(late);
        assert_eq!(read(&mut long), Err(AbortReason::VersionCollected));
    }
    let mut protected = early.begin();
    let before = read(&mut protected);
    churn(late);
    assert_eq!(read(&mut protected), before);
    let mut third = engine.worker().expect("a slot");
    let mut long = third.begin();
    let seen = [read(&mut long), {
        churn(late);
        read(&mut long)
    }];
    assert_eq!(read(&mut protected), before);
    protected.commit().expect("a reader always commits");
    seen
}

#[test]
fn a_reader_misses_a_version_that_was_taken_out_and_reads_no_other_instead() {
    let sound = beyond_a_gap::<SnapshotIsolation<Native>>();
    assert_eq!(sound[1], Err(AbortReason::VersionCollected));
    type Broken = crate::fault::Only<{ crate::fault::id("ignore_gaps") }>;
    let broken = beyond_a_gap::<SnapshotIsolation<Native, Broken>>();
    assert!(broken[1].is_ok() && broken[1] != broken[0], "{broken:?}");
}

#[test]
fn a_row_that_was_not_inserted_yet_is_not_missed() {
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } =
        World::<SnapshotIsolation<Native>>::new(&AGGRESSIVE);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 1), Some(0));
    let inserted = late.run(|tx| Ok(tx.insert_row(rows, 33)?.map(|row| row.copy_from_slice(&[33, 5])).is_some()));
    assert_eq!(inserted, Ok(true));
    (0..100).for_each(|value| write(late, rows, 33, value));
    assert_eq!(see(&mut long, rows, 33), None);
    // A transaction that begins between has a version of its own.
    let mut third = engine.worker().expect("a slot");
    let mut other = third.begin();
    assert_eq!(see(&mut other, rows, 33), Some(99));
    (100..200).for_each(|value| write(late, rows, 33, value));
    assert_eq!((see(&mut other, rows, 33), see(&mut long, rows, 33)), (Some(99), None));
    other.commit().expect("a reader always commits");
    long.commit().expect("a reader always commits");
}

#[test]
fn versions_of_a_worker_that_is_gone_are_reused_by_others() {
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late, _] } =
        World::<SnapshotIsolation<Native>>::new(&AGGRESSIVE);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 1), Some(0));
    let mut third = engine.worker().expect("a slot");
    (0..10).for_each(|key| write(&mut third, rows, key, 1));
    let made = third.versions().made;
    drop(third);
    // The long transaction needs each of them.
    (0..100).for_each(|_| write(late, rows, 0, 2));
    assert_eq!(see(&mut long, rows, 9), Some(0));
    long.commit().expect("a reader always commits");
    early.go_offline();
    (0..100).for_each(|_| write(late, rows, 0, 3));
    let versions = late.versions();
    assert_eq!(made, 10);
    assert!(versions.collected > versions.made, "{versions:?}");
}

/// Two threads write pairs of rows, and two read all rows twice in long transactions: these see
/// both rows of a pair by one write, and the same state twice.
fn long_readers_among_writers<P: NamedProtocol<Native>>(settings: &[(&str, &str)]) {
    const PAIRS: u64 = 8;
    const TRANSACTIONS: u64 = 3000;
    let World { engine, rows, workers } = World::<P>::new(settings);
    drop(workers);
    let mut loader = engine.loader().expect("a slot");
    for key in 10..2 * PAIRS {
        assert!(loader.insert(&rows, key, |row| row.copy_from_slice(&[key, 0])).expect("memory"));
    }
    drop(loader);
    let writers = std::sync::atomic::AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (engine, rows, writers) = (&engine, &rows, &writers);
            scope.spawn(move || {
                let mut worker = engine.worker().expect("a slot");
                for number in 1..=TRANSACTIONS {
                    let pair = (number * 7 + writer * 3) % PAIRS;
                    let value = number * 2 + writer;
                    while worker
                        .run(|tx| {
                            for key in [2 * pair, 2 * pair + 1] {
                                tx.write_row(rows, key, Groups::ALL)?
                                    .expect("it is there")
                                    .copy_from_slice(&[key, value]);
                            }
                            Ok(())
                        })
                        .is_err()
                    {
                        std::thread::yield_now();
                    }
                }
                // Relaxed: pairs with the readers' load, which only ends their loop.
                writers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            let (engine, rows, writers) = (&engine, &rows, &writers);
            scope.spawn(move || {
                let mut worker = engine.worker().expect("a slot");
                let mut committed = 0;
                while writers.load(std::sync::atomic::Ordering::Relaxed) > 0 || committed == 0 {
                    let seen = worker.run(|tx| {
                        let mut all = [[0; 2 * PAIRS as usize]; 2];
                        for round in &mut all {
                            for key in 0..2 * PAIRS {
                                let row = tx.read_row(rows, key, Projection::WHOLE)?.expect("it is there");
                                assert_eq!(row[0], key, "a row of another key");
                                round[key as usize] = row[1];
                                std::thread::yield_now();
                            }
                        }
                        Ok(all)
                    });
                    if let Ok([first, again]) = seen {
                        committed += 1;
                        assert_eq!(first, again);
                        first.chunks(2).for_each(|pair| assert_eq!(pair[0], pair[1]));
                    }
                }
            });
        }
    });
}

#[test]
fn long_readers_see_one_state_whatever_is_collected() {
    let [collect, interval] = AGGRESSIVE;
    let overwrite = ("versions.overwrite", "on");
    let aggressive = ["0", "1", "3"].map(|max| vec![collect, interval, ("versions.max", max)]);
    let overwriting =
        [vec![overwrite], vec![overwrite, collect, interval], vec![overwrite, ("versions.collect", "epoch")]];
    for settings in aggressive.into_iter().chain(overwriting) {
        long_readers_among_writers::<Mvto<Native>>(&settings);
        long_readers_among_writers::<Cicada<Native>>(&settings);
        long_readers_among_writers::<Msto<Native>>(&settings);
        long_readers_among_writers::<SnapshotIsolation<Native>>(&settings);
        long_readers_among_writers::<Ermia<Native>>(&settings);
        long_readers_among_writers::<Hekaton<Native>>(&settings);
    }
}

/// Returns whether two transactions commit that each read the row that the other writes.
fn write_skew<P: NamedProtocol<Native>>() -> bool {
    let World { ref rows, workers: [ref mut one, ref mut other, _], .. } = World::<P>::new(&[]);
    let (mut one, mut other) = (one.begin(), other.begin());
    let half = |tx: &mut Transaction<'_, P, Native>, reads: u64, writes: u64| {
        let seen = tx.read_row(rows, reads, Projection::WHOLE)?.map(|row| row[1]);
        assert_eq!(seen, Some(0));
        tx.write_row(rows, writes, Groups::ALL).map(|row| row.expect("it is there").copy_from_slice(&[writes, 1]))
    };
    let begun = [half(&mut one, 1, 2).is_ok(), half(&mut other, 2, 1).is_ok()];
    let ended = [one.commit().is_ok(), other.commit().is_ok()];
    begun == [true; 2] && ended == [true; 2]
}

#[test]
fn snapshot_isolation_alone_lets_write_skew_through() {
    assert!(write_skew::<SnapshotIsolation<Native>>());
    assert!(!write_skew::<Mvto<Native>>());
    assert!(!write_skew::<Cicada<Native>>());
    assert!(!write_skew::<Msto<Native>>());
    assert!(!write_skew::<Ermia<Native>>());
    assert!(!write_skew::<Hekaton<Native>>());
}

/// One transaction misses the row that another one inserts, and writes the row that this one has
/// read. Returns whether both commit.
fn write_skew_with_an_insert<P: NamedProtocol<Native>>() -> bool {
    let World { ref rows, workers: [ref mut early, ref mut late, _], .. } = World::<P>::new(&[]);
    let mut one = early.begin();
    // Its time is that of its begin, which a read makes known.
    assert_eq!(see(&mut one, rows, 5), Some(0));
    let mut other = late.begin();
    assert_eq!(see(&mut other, rows, 2), Some(0));
    other.insert_row(rows, 33).expect("nobody is in the way").expect("there is none").copy_from_slice(&[33, 1]);
    let other = other.commit();
    let missed = one.read_row(rows, 33, Projection::WHOLE).map(|row| row.is_none());
    let one = missed.is_ok_and(|missed| missed)
        && one.write_row(rows, 2, Groups::ALL).is_ok_and(|row| row.is_some_and(|row| row.len() == 2))
        && one.commit().is_ok();
    one && other.is_ok()
}

#[test]
fn a_row_that_was_missed_is_validated() {
    assert!(write_skew_with_an_insert::<SnapshotIsolation<Native>>(), "it promises no more");
    assert!(!write_skew_with_an_insert::<Hekaton<Native>>());
    assert!(!write_skew_with_an_insert::<Ermia<Native>>());
    assert!(!write_skew_with_an_insert::<Mvto<Native>>());
    assert!(!write_skew_with_an_insert::<Cicada<Native>>());
    assert!(!write_skew_with_an_insert::<Msto<Native>>());
}

/// Each of two transactions inserts its row if that of the other is absent: never both commit. Each
/// round has keys that nobody had before. No history is recorded: with one, versions without a row
/// are copied as well.
fn never_both<P: NamedProtocol<Native>>(index: IndexKind) {
    let World { ref engine, .. } = World::<P>::with(&[], EngineConfig { epoch_ms: 1, ..EngineConfig::default() });
    let spec = TableSpec::of_bytes("crossed", index, 16, 2 * CROSSED as usize);
    let rows = &engine.create_table::<u64>(&spec);
    let (together, failed) = (&std::sync::Barrier::new(2), &std::sync::Mutex::new(Vec::new()));
    let run = |own: u64| {
        let mut worker = engine.worker().expect("a slot");
        for round in 0..CROSSED {
            let [mine, theirs] = [own, 1 - own].map(|side| 2 * round + side);
            together.wait();
            // The one that begins first is sometimes the one that looks last.
            let looks_late = (round / 2 + own).is_multiple_of(2);
            let _ = worker.run(|tx| {
                // A snapshot is of the begin, and a timestamp as well.
                tx.read_row(rows, u64::MAX, Projection::WHOLE)?;
                (0..round % 7 * u64::from(looks_late)).for_each(|_| std::thread::yield_now());
                if tx.read_row(rows, theirs, Projection::WHOLE)?.is_none() {
                    tx.insert_row(rows, mine)?.expect("nobody else inserts it").fill(7);
                }
                Ok(())
            });
            together.wait();
            // A collector may be in the way.
            let there = [2 * round, 2 * round + 1].map(|key| {
                let mut read = || worker.run(|tx| Ok(tx.read_row(rows, key, Projection::WHOLE)?.is_some()));
                std::iter::repeat_with(&mut read).find_map(Result::ok).expect("it goes on")
            });
            if there == [true; 2] {
                failed.lock().expect("no panic").push(round);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0));
        run(1);
    });
    let failed = failed.lock().expect("no panic");
    assert!(failed.is_empty(), "both rows are there in round {:?} of {CROSSED}", failed[0]);
}

/// The rounds of [`never_both`].
const CROSSED: u64 = 2_000;

#[test]
fn of_two_rows_that_exclude_each_other_only_one_is_inserted() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        never_both::<Mvto<Native>>(index);
        never_both::<Cicada<Native>>(index);
        never_both::<Msto<Native>>(index);
        never_both::<Ermia<Native>>(index);
        never_both::<Hekaton<Native>>(index);
    }
}

#[test]
fn the_first_to_write_a_row_wins() {
    let World { ref rows, workers: [ref mut one, ref mut other, _], .. } = World::<SnapshotIsolation<Native>>::new(&[]);
    let mut second = one.begin();
    assert_eq!(see(&mut second, rows, 1), Some(0));
    write(other, rows, 1, 7);
    let outcome = second.modify_row(rows, 1, Groups::ALL).map(|row| row.map(|row| row[1]));
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::WriteLocked));
    drop(second);
    assert_eq!(one.run(|tx| Ok(see(tx, rows, 1))).expect("nobody is in the way"), Some(7));
}

/// Fekete, O'Neil, O'Neil: "A read-only transaction anomaly under snapshot isolation", SIGMOD
/// Record 2004. Returns whether all three commit.
fn read_only_anomaly<P: NamedProtocol<Native>>() -> bool {
    let World { ref engine, ref rows, workers: [ref mut one, ref mut other, _] } = World::<P>::new(&[]);
    let mut third = engine.worker().expect("a slot");
    let mut withdrawal = one.begin();
    let seen = [1, 2].map(|key| withdrawal.read_row(rows, key, Projection::WHOLE).map(|row| row.map(|row| row[1])));
    assert_eq!(seen, [Ok(Some(0)), Ok(Some(0))]);
    write(other, rows, 2, 20);
    // A transaction that sees the deposit and not the withdrawal makes the withdrawal come after
    // both.
    assert_eq!(third.run(|tx| Ok([1, 2].map(|key| see(tx, rows, key)))), Ok([Some(0), Some(20)]));
    let written = withdrawal
        .write_row(rows, 1, Groups::ALL)
        .map(|row| row.expect("it is there").copy_from_slice(&[1, 11]))
        .is_ok();
    let ended = withdrawal.commit().is_ok();
    written && ended
}

#[test]
fn the_serial_safety_net_keeps_readers_from_seeing_a_state_of_no_serial_order() {
    assert!(read_only_anomaly::<SnapshotIsolation<Native>>());
    assert!(!read_only_anomaly::<Ermia<Native>>());
    assert!(!read_only_anomaly::<Hekaton<Native>>());
}

#[test]
fn a_reader_of_a_replaced_version_commits_before_its_overwriter_or_not_at_all() {
    let World { ref rows, workers: [ref mut one, ref mut other, _], .. } = World::<Ermia<Native>>::new(&[]);
    let mut reader = one.begin();
    assert_eq!(see(&mut reader, rows, 1), Some(0));
    write(other, rows, 1, 5);
    // Its place is before the other's, though it commits later. It may write a row that no other
    // transaction has touched.
    reader.write_row(rows, 2, Groups::ALL).expect("free").expect("it is there").copy_from_slice(&[2, 6]);
    reader.commit().expect("no cycle");
    assert_eq!(other.run(|tx| Ok([1, 2].map(|key| see(tx, rows, key)))), Ok([Some(5), Some(6)]));
    // It can't come before a transaction that has seen its overwriter.
    let mut reader = one.begin();
    assert_eq!(see(&mut reader, rows, 1), Some(5));
    write(other, rows, 1, 7);
    assert_eq!(other.run(|tx| Ok(see(tx, rows, 3))), Ok(Some(0)));
    let outcome = reader
        .write_row(rows, 3, Groups::ALL)
        .map(|row| row.expect("it is there").copy_from_slice(&[3, 1]))
        .and_then(|()| reader.commit());
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::ExclusionWindow));
}

#[test]
fn without_old_versions_a_late_reader_aborts() {
    let World { ref rows, workers: [ref mut early, ref mut late, _], .. } =
        World::<Cicada<Native>>::new(&[("cicada.single_version", "on")]);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 2), Some(0));
    write(late, rows, 1, 7);
    let outcome = long.read_row(rows, 1, Projection::WHOLE).map(|row| row.map(|row| row[1]));
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::ReadValidation));
}

fn snapshots_never_abort<P: NamedProtocol<Native>>(option: &str, settings: &[(&str, &str)]) {
    let settings: Vec<_> = [(option, "on"), ("versions.interval_us", "0")].iter().chain(settings).copied().collect();
    let mut world = World::<P>::new(&settings);
    for value in 1..40 {
        let World { rows, workers: [writer, reader, _], .. } = &mut world;
        let mut both = |value: u64| {
            writer
                .run(|tx| {
                    for key in [1, 2] {
                        tx.write_row(rows, key, Groups::ALL)?.expect("it is there").copy_from_slice(&[key, value]);
                    }
                    if tx.read_row(rows, 3, Projection::WHOLE)?.is_some() {
                        tx.delete(rows, 3).map(|_| ())
                    } else {
                        tx.insert_row(rows, 3).map(|row| row.expect("it is not there").copy_from_slice(&[3, value]))
                    }
                })
                .expect("nobody is in the way");
        };
        both(2 * value);
        let mut snapshot = reader.begin_read_only();
        let seen = see(&mut snapshot, rows, 1).expect("it is there");
        both(2 * value + 1);
        writer.collect();
        assert_eq!(see(&mut snapshot, rows, 2), Some(seen), "of one state");
        // Row 3 is there first, and is deleted and inserted in turns.
        assert_eq!(see(&mut snapshot, rows, 3).is_some(), seen == 0 || seen % 2 == 1, "{seen}");
        assert!((2 * value).saturating_sub(5) <= seen && seen <= 2 * value, "{seen} of {value}: too old");
        snapshot.commit().expect("it never aborts");
        world.advance();
    }
    let outcome = world.workers[1].run_declared(contend_engine::Declaration::read_only, |tx| {
        tx.insert_row(&world.rows, 77).map(|row| row.is_some())
    });
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::Unsupported));
}

#[test]
fn snapshots_are_of_one_state_and_never_abort() {
    for collect in ["epoch", "rapid", "aggressive"] {
        snapshots_never_abort::<Cicada<Native>>("versions.snapshots", &[("versions.collect", collect)]);
        snapshots_never_abort::<Msto<Native>>("versions.snapshots", &[("versions.collect", collect)]);
    }
}
