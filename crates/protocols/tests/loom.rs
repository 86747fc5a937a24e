//! Silo's reads and commits under a model checker: what commits has read one state.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-protocols --test loom`
#![cfg(loom)]

use std::sync::Arc;

use contend_engine::{Engine, EngineConfig, Groups, IndexKind, Projection, Protocol, Table, TableSpec, Txn, Worker};
use contend_machine::Loom;
use contend_protocols::fault::Faults;
use contend_protocols::no_wait::NoWait;
use contend_protocols::silo::Silo;
use loom::thread;

fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 100_000;
    model.check(check);
}

type Rows = Arc<Table<Loom, u64>>;

fn world<P: Protocol<Loom>>() -> (Worker<P, Loom>, Worker<P, Loom>, Rows) {
    let engine = Engine::<P, Loom>::new(
        P::new(Default::default()),
        EngineConfig { workers_max: 3, epoch_ms: 40, ..EngineConfig::default() },
    );
    let spec = TableSpec::of_bytes("t", IndexKind::Hash, 16, 1);
    let rows: Rows = engine.create_table(&spec);
    let mut loader = engine.loader().expect("a slot");
    for key in [1, 2] {
        loader.insert(&rows, key, |row| row.fill(0)).expect("memory");
    }
    drop(loader);
    (engine.worker().expect("a slot"), engine.worker().expect("a slot"), rows)
}

/// One writes a row of two words, the other reads it: what it commits to is whole.
fn whole_rows<P: Protocol<Loom>>() {
    let (mut writer, mut reader, rows) = world::<P>();
    let theirs = Arc::clone(&rows);
    let writing = thread::spawn(move || {
        let _ = writer.run(|tx| {
            tx.write_row(&theirs, 1, Groups::ALL)?.expect("loaded").fill(5);
            Ok(())
        });
    });
    let seen = reader.run(|tx| Ok(tx.read_row(&rows, 1, Projection::WHOLE)?.map(<[u64]>::to_vec).expect("loaded")));
    if let Ok(row) = seen {
        assert!(row == [0, 0] || row == [5, 5], "a torn row: {row:?}");
    }
    writing.join().expect("no panic");
}

/// Each reads what the other writes: not both may commit having seen the old row.
fn write_skew<P: Protocol<Loom>>() {
    let (mut first, mut second, rows) = world::<P>();
    let skewed = |worker: &mut Worker<P, Loom>, rows: &Rows, from: u64, to: u64| {
        worker.run(|tx| {
            let seen = tx.read_row(rows, from, Projection::WHOLE)?.expect("loaded")[0];
            tx.write_row(rows, to, Groups::ALL)?.expect("loaded").fill(seen + 1);
            Ok(seen)
        })
    };
    let theirs = Arc::clone(&rows);
    let other = thread::spawn(move || skewed(&mut second, &theirs, 2, 1));
    let mine = skewed(&mut first, &rows, 1, 2);
    let theirs = other.join().expect("no panic");
    assert!(!(mine == Ok(0) && theirs == Ok(0)), "write skew: both have committed on the old rows");
}

#[test]
fn silo_reads_whole_rows() {
    explore(whole_rows::<Silo>);
}

#[test]
fn silo_has_no_write_skew() {
    explore(write_skew::<Silo>);
}

#[test]
fn locking_has_no_write_skew() {
    explore(write_skew::<NoWait>);
}

#[test]
#[should_panic(expected = "write skew")]
fn silo_that_ignores_locks_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const IGNORE_LOCKS_IN_VALIDATION: bool = true;
    }
    explore(write_skew::<Silo<Broken>>);
}
