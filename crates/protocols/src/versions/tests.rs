//! What all multi-version protocols do with old versions, and what some of them do alone.

use std::sync::Arc;

use contend_engine::{
    AbortReason, Engine, EngineConfig, Groups, IndexKind, Projection, Protocol, Table, TableSpec, Transaction, Txn,
    Worker,
};
use contend_machine::Native;

use crate::cicada::Cicada;
use crate::ermia::Ermia;
use crate::hekaton::Hekaton;
use crate::mvto::Mvto;
use crate::snapshot_isolation::SnapshotIsolation;

type Rows = Arc<Table<Native, u64>>;

/// Rows 0 to 9 of two words, key and 0, in the first epoch; epochs are advanced by hand.
struct World<P: Protocol<Native>> {
    engine: Arc<Engine<P, Native>>,
    rows: Rows,
    workers: [Worker<P, Native>; 2],
}

impl<P: Protocol<Native>> World<P> {
    fn new(settings: &[(&str, &str)]) -> Self {
        use contend_engine::Options;
        let mut options = P::Options::default();
        settings.iter().for_each(|(name, value)| options.set(name, value).expect("an option"));
        let engine = Engine::new(P::new(options), EngineConfig { epoch_ms: u64::MAX, ..EngineConfig::default() });
        let rows: Rows = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Ordered, 16, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..10 {
            assert!(loader.insert(&rows, key, |row| row.copy_from_slice(&[key, 0])).expect("memory"));
        }
        drop(loader);
        let workers = [(); 2].map(|()| engine.worker().expect("a slot"));
        World { engine, rows, workers }
    }

    fn advance(&mut self) {
        self.workers.iter_mut().for_each(Worker::go_offline);
        assert!(self.engine.epochs().try_advance());
    }
}

fn write<P: Protocol<Native>>(worker: &mut Worker<P, Native>, rows: &Rows, key: u64, value: u64) {
    worker
        .run(|tx| {
            tx.write_row(rows, key, Groups::ALL).map(|row| row.expect("it is there").copy_from_slice(&[key, value]))
        })
        .expect("nobody is in the way");
}

fn see<P: Protocol<Native>>(tx: &mut Transaction<'_, P, Native>, rows: &Rows, key: u64) -> Option<u64> {
    let row = tx.read_row(rows, key, Projection::WHOLE).expect("a read is never too late")?;
    assert_eq!(row[0], key);
    Some(row[1])
}

fn late_readers_see_their_time<P: Protocol<Native>>() {
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late] } = World::<P>::new(&[]);
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
    // What is deleted leaves neither index nor memory as long as one runs that is older.
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
fn who_is_late_sees_the_rows_as_they_were() {
    late_readers_see_their_time::<Mvto<Native>>();
    late_readers_see_their_time::<Cicada<Native>>();
    late_readers_see_their_time::<SnapshotIsolation<Native>>();
    late_readers_see_their_time::<Ermia<Native>>();
    late_readers_see_their_time::<Hekaton<Native>>();
}

fn old_versions_are_reused<P: Protocol<Native>>(settings: &[(&str, &str)]) {
    let mut world = World::<P>::new(settings);
    let mut bytes = 0;
    for step in 0..20_000 {
        let key = step % 9;
        write(&mut world.workers[0], &world.rows, key, step);
        if step % 50 == 0 {
            let rows = &world.rows;
            // The same worker: timestamps of batches are in the order of real time for each worker alone.
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
    old_versions_are_reused::<Cicada<Native>>(&[("cicada.single_version", "on")]);
    old_versions_are_reused::<SnapshotIsolation<Native>>(&[]);
    old_versions_are_reused::<Ermia<Native>>(&[]);
    old_versions_are_reused::<Hekaton<Native>>(&[]);
}

fn what_nobody_can_need_is_reused_at_once<P: Protocol<Native>>() {
    // The epochs stand still: only rapid collection reuses anything.
    let World { ref engine, ref rows, workers: [ref mut early, ref mut late] } =
        World::<P>::new(&[("versions.interval_us", "0")]);
    let mut churn = |step: u64| (0..1000).for_each(|value| write(late, rows, value % 3, step * 1000 + value));
    churn(1);
    let bytes = engine.bytes();
    (2..20).for_each(&mut churn);
    assert_eq!(engine.bytes(), bytes);
    // One that runs all the time needs what it began with, and all that comes after is kept for it.
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
    what_nobody_can_need_is_reused_at_once::<Mvto<Native>>();
    what_nobody_can_need_is_reused_at_once::<Cicada<Native>>();
    what_nobody_can_need_is_reused_at_once::<SnapshotIsolation<Native>>();
    what_nobody_can_need_is_reused_at_once::<Ermia<Native>>();
    what_nobody_can_need_is_reused_at_once::<Hekaton<Native>>();
}

/// Two read a row of the other and write their own; whether both commit.
fn write_skew<P: Protocol<Native>>() -> bool {
    let World { ref rows, workers: [ref mut one, ref mut other], .. } = World::<P>::new(&[]);
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
    assert!(!write_skew::<Ermia<Native>>());
    assert!(!write_skew::<Hekaton<Native>>());
}

#[test]
fn the_first_to_write_a_row_wins() {
    let World { ref rows, workers: [ref mut one, ref mut other], .. } = World::<SnapshotIsolation<Native>>::new(&[]);
    let mut second = one.begin();
    assert_eq!(see(&mut second, rows, 1), Some(0));
    write(other, rows, 1, 7);
    let outcome = second.modify_row(rows, 1, Groups::ALL).map(|row| row.map(|row| row[1]));
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::WriteLocked));
    drop(second);
    assert_eq!(one.run(|tx| Ok(see(tx, rows, 1))).expect("nobody is in the way"), Some(7));
}

/// Fekete, O'Neil, O'Neil: "A read-only transaction anomaly under snapshot isolation", SIGMOD Record 2004: whether all three commit.
fn read_only_anomaly<P: Protocol<Native>>() -> bool {
    let World { ref engine, ref rows, workers: [ref mut one, ref mut other] } = World::<P>::new(&[]);
    let mut third = engine.worker().expect("a slot");
    let mut withdrawal = one.begin();
    let seen = [1, 2].map(|key| withdrawal.read_row(rows, key, Projection::WHOLE).map(|row| row.map(|row| row[1])));
    assert_eq!(seen, [Ok(Some(0)), Ok(Some(0))]);
    write(other, rows, 2, 20);
    // A transaction that sees the deposit, but not the withdrawal, makes that one come after both.
    assert_eq!(third.run(|tx| Ok([1, 2].map(|key| see(tx, rows, key)))), Ok([Some(0), Some(20)]));
    let written = withdrawal
        .write_row(rows, 1, Groups::ALL)
        .map(|row| row.expect("it is there").copy_from_slice(&[1, 11]))
        .is_ok();
    let ended = withdrawal.commit().is_ok();
    written && ended
}

#[test]
fn the_serial_safety_net_keeps_who_only_reads_from_seeing_what_no_order_has() {
    assert!(read_only_anomaly::<SnapshotIsolation<Native>>());
    assert!(!read_only_anomaly::<Ermia<Native>>());
    assert!(!read_only_anomaly::<Hekaton<Native>>());
}

/// One that reads a row, and a row that it writes: whether it commits although another has read what it writes.
#[test]
fn who_has_read_what_another_replaces_commits_before_it() {
    let World { ref rows, workers: [ref mut one, ref mut other], .. } = World::<Ermia<Native>>::new(&[]);
    let mut reader = one.begin();
    assert_eq!(see(&mut reader, rows, 1), Some(0));
    write(other, rows, 1, 5);
    // Its place is before the other, though it commits later; what nobody else has touched it may write.
    reader.write_row(rows, 2, Groups::ALL).expect("free").expect("it is there").copy_from_slice(&[2, 6]);
    reader.commit().expect("no cycle");
    assert_eq!(other.run(|tx| Ok([1, 2].map(|key| see(tx, rows, key)))), Ok([Some(5), Some(6)]));
    // Of one that has seen the later one it can't come before.
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
    let World { ref rows, workers: [ref mut early, ref mut late], .. } =
        World::<Cicada<Native>>::new(&[("cicada.single_version", "on")]);
    let mut long = early.begin();
    assert_eq!(see(&mut long, rows, 2), Some(0));
    write(late, rows, 1, 7);
    let outcome = long.read_row(rows, 1, Projection::WHOLE).map(|row| row.map(|row| row[1]));
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::ReadValidation));
}

#[test]
fn snapshots_of_cicada_are_of_the_epoch_before_and_never_abort() {
    let mut world = World::<Cicada<Native>>::new(&[("cicada.snapshots", "on")]);
    for value in 1..20 {
        write(&mut world.workers[0], &world.rows, 1, value);
        let rows = &world.rows;
        let mut reader = world.workers[1].begin_read_only();
        assert_eq!(see(&mut reader, rows, 1), Some(value.saturating_sub(2)), "in step {value}");
        reader.commit().expect("it never aborts");
        world.advance();
    }
    let outcome = world.workers[1].run_declared(contend_engine::Declaration::read_only, |tx| {
        tx.insert_row(&world.rows, 77).map(|row| row.is_some())
    });
    assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::Unsupported));
}
