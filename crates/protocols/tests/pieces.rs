//! IC3 with declared types of transactions: small programs, step by step, whose transactions meet
//! on one thread; and progress of many threads.
//!
//! The conformance suite runs IC3 without declarations, as it runs every protocol. Interleavings of
//! declared pieces are for the explorer (`contend_proof`).
//!
//! A binary of its own: it needs one protocol, and compiles in a fraction of the suite's time.

use std::ops::ControlFlow;
use std::sync::Arc;

use contend_derive::Row;
use contend_engine::{
    Abort, AbortReason, Direction, Engine, EngineConfig, EngineOptions, IndexKind, LEAF_KEYS, NamedProtocol, Options,
    TableSpec, Transaction, Txn, TypedTable, Worker,
};
use contend_machine::Native;
use contend_model::pieces::{Piece, TypeSet, Types};
use contend_model::{Inspect, Tables};
use contend_protocols::fault::{Faulty, Only, id};
use contend_protocols::pieces::ic3::{Ic3, Ic3Options};

type Protocol = Ic3<Native>;

/// Returns options by which each piece takes effect when it ends.
fn by_steps() -> Ic3Options {
    Ic3Options { whole: false, ..Ic3Options::default() }
}
type Tx<'w, P = Protocol> = Transaction<'w, P, Native>;

/// A row of two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Row)]
#[repr(C)]
struct Pair {
    left: i64,
    #[group = 1]
    right: i64,
}

const FIRST: Piece = Piece::new(0, "first");
const SECOND: Piece = Piece::new(1, "second");
/// The keys that each table begins with.
const LOADED: u64 = 10;

/// An engine with four tables.
struct World {
    engine: Arc<Engine<Protocol, Native>>,
    tables: [TypedTable<Pair>; 4],
}

impl World {
    /// Creates and loads the tables, and declares the types. Epochs pass when a test says so.
    fn new(settings: &[(&str, &str)], declare: impl FnOnce(&mut Types, &[TypedTable<Pair>; 4])) -> World {
        let mut options = by_steps();
        for (name, value) in settings {
            options.set(name, value).unwrap_or_else(|error| panic!("{error}"));
        }
        let split = EngineOptions { timestamp_splitting: true, commit_time_updates: true, ..EngineOptions::default() };
        let config = EngineConfig { epoch_ms: u64::MAX, options: split, workers_max: 32, ..EngineConfig::default() };
        let engine = Engine::<Protocol, Native>::new(NamedProtocol::<Native>::new(options), config);
        let tables =
            ["a", "b", "c", "d"].map(|name| engine.create_typed(&TableSpec::of::<Pair>(name, IndexKind::Ordered, 100)));
        let mut loader = engine.loader().expect("a free slot");
        for table in &tables {
            for key in 0..LOADED {
                assert!(loader.insert(table, key, |row| row.fill(0)).expect("memory"));
            }
        }
        drop(loader);
        let mut types = Types::new(engine.declared_tables());
        declare(&mut types, &tables);
        engine.declare(types.finish().expect("valid declarations")).expect("valid declarations");
        World { engine, tables }
    }

    fn worker(&self) -> Worker<Protocol, Native> {
        self.engine.worker().expect("a free slot")
    }

    /// Returns a row, while no transaction runs.
    fn row(&self, table: usize, key: u64) -> Option<[i64; 2]> {
        let mut row = Vec::new();
        self.engine.peek(&self.tables[table], key, &mut row)?;
        Some([row[0] as i64, row[1] as i64])
    }
}

/// Begins a transaction of a type.
fn begin(worker: &mut Worker<Protocol, Native>, kind: usize) -> Tx<'_> {
    worker.begin_declared(|declaration| declaration.kind(kind))
}

/// Adds to the left column of a row, and returns what was there.
fn add(tx: &mut Tx<'_>, table: &TypedTable<Pair>, key: u64, amount: i64) -> Result<i64, Abort> {
    let before = tx.modify_columns(table, key, Pair::LEFT, |left| std::mem::replace(left, *left + amount))?;
    Ok(before.expect("loaded"))
}

fn right(tx: &mut Tx<'_>, table: &TypedTable<Pair>, key: u64) -> Result<Option<i64>, Abort> {
    tx.read(table, key, Pair::RIGHT)
}

fn reason<T: std::fmt::Debug>(outcome: Result<T, Abort>) -> AbortReason {
    outcome.expect_err("the transaction has to abort").reason
}

/// One type: its first piece changes a row of `a`, and its second one of `b`. Either may cancel.
fn chain(types: &mut Types, tables: &[TypedTable<Pair>; 4]) {
    types
        .add("chain")
        .piece(FIRST, |piece| piece.modify(&tables[0], Pair::LEFT).cancels())
        .piece(SECOND, |piece| piece.modify(&tables[1], Pair::LEFT).cancels());
}

#[test]
fn a_declaration_with_other_groups_than_the_tables_have_is_refused() {
    let world = World::new(&[], chain);
    for groups in [1, 3] {
        let mut types = TypeSet::default();
        types.table("a", groups);
        types.add("chain", []);
        let error = world.engine.declare(types).expect_err("the rows have two groups");
        assert_eq!(error, format!("table a is declared with {groups} groups of columns; valid: 2, its groups"));
    }
    let mut types = TypeSet::default();
    for name in ["a", "b", "c", "d", "later"] {
        types.table(name, 2);
    }
    let error = world.engine.declare(types).expect_err("there are four tables");
    assert_eq!(error, "5 tables are declared; valid: 4, the tables that there are");
    // The types before are still in force.
    let mut worker = world.worker();
    let mut tx = begin(&mut worker, 0);
    tx.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 1)).expect("declared");
    tx.commit().expect("nobody else is there");
}

#[test]
fn a_piece_that_fails_dooms_its_transaction() {
    let world = World::new(&[], chain);
    let mut worker = world.worker();
    let mut tx = begin(&mut worker, 0);
    let failed = tx.piece(FIRST, |tx| {
        add(tx, &world.tables[0], 0, 1)?;
        Err::<(), Abort>(tx.cancel())
    });
    assert_eq!(reason(failed), AbortReason::User);
    // The body goes on all the same.
    let second = tx.piece(SECOND, |tx| add(tx, &world.tables[1], 0, 1));
    assert_eq!(reason(second), AbortReason::User);
    assert_eq!(reason(tx.commit()), AbortReason::User);
    assert_eq!([world.row(0, 0), world.row(1, 0)], [Some([0, 0]); 2]);
}

#[test]
fn a_doomed_transaction_that_cancels_is_tried_again() {
    let world = World::new(&[], chain);
    let (mut one, mut other) = (world.worker(), world.worker());
    let mut first = begin(&mut one, 0);
    first.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 1)).expect("nobody else is there");
    let mut second = begin(&mut other, 0);
    let seen = second.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 1)).expect("the first has shown its piece");
    assert_eq!(seen, 1, "what is not committed is seen");
    drop(first);
    let canceled = second.piece(SECOND, |tx| Err::<(), Abort>(tx.cancel()));
    assert_eq!(reason(canceled), AbortReason::Cascaded);
    assert_eq!(reason(second.commit()), AbortReason::Cascaded);
    assert_eq!(world.row(0, 0), Some([0, 0]));
    // Without that it is the application's decision.
    let mut third = begin(&mut one, 0);
    assert_eq!(reason(third.piece(SECOND, |tx| Err::<(), Abort>(tx.cancel()))), AbortReason::User);
}

#[test]
fn a_reader_without_a_type_sees_a_snapshot() {
    let world = World::new(&[("ic3.snapshots", "on")], chain);
    let (mut one, mut other) = (world.worker(), world.worker());
    let mut writer = begin(&mut one, 0);
    writer.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 1)).expect("nobody else is there");
    let mut reader = other.begin_read_only();
    assert_eq!(reader.read(&world.tables[0], 0, Pair::LEFT), Ok(Some(0)), "no uncommitted row");
    reader.commit().expect("a snapshot");
    writer.commit().expect("nobody was in the way");
    // The next transaction of the worker is checked again.
    assert_eq!(reason(other.run(|tx| right(tx, &world.tables[0], 0))), AbortReason::Undeclared);
    let violation = other.take_undeclared().expect("a sentence");
    assert!(violation.contains("has no type"), "{violation}");

    for snapshots in ["off", "needed"] {
        let world = World::new(&[("ic3.snapshots", snapshots)], chain);
        let mut worker = world.worker();
        let outcome = worker.begin_read_only().read(&world.tables[0], 0, Pair::LEFT);
        assert_eq!(reason(outcome), AbortReason::Undeclared, "its reads would need an order");
    }
}

/// A transaction that is forgotten aborts at the worker's next step, and leaves nothing behind.
#[test]
fn a_forgotten_transaction_is_taken_back() {
    let world = World::new(&[], chain);
    let mut other = world.worker();
    let mut alone = |left: i64| {
        let mut tx = begin(&mut other, 0);
        assert_eq!(tx.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 1)), Ok(left));
        tx.commit().expect("nobody else is there");
    };
    let forget = |worker: &mut Worker<Protocol, Native>| {
        let mut tx = begin(worker, 0);
        tx.piece(FIRST, |tx| add(tx, &world.tables[0], 0, 100)).expect("nobody else is there");
        std::mem::forget(tx);
    };
    let mut worker = world.worker();
    forget(&mut worker);
    begin(&mut worker, 0).commit().expect("an empty transaction");
    alone(0);
    forget(&mut worker);
    worker.go_offline();
    alone(1);
    forget(&mut worker);
    drop(worker);
    alone(2);
    assert_eq!(world.row(0, 0), Some([3, 0]));
}

/// The types of the tests of settled reads: rows of `a` are inserted, their left columns are
/// changed, and their right columns are read as settled. Rows of `d` are only inserted.
fn settled(types: &mut Types, tables: &[TypedTable<Pair>; 4]) {
    let [a, b, c, d] = tables;
    types
        .add("insert")
        .piece(FIRST, |piece| piece.insert(a))
        .piece(SECOND, |piece| piece.modify(b, Pair::LEFT).settled(a, Pair::RIGHT));
    types.add("touch").piece(FIRST, |piece| piece.modify(a, Pair::LEFT));
    types
        .add("look")
        .piece(FIRST, |piece| piece.read(b, Pair::LEFT).modify(c, Pair::LEFT))
        .piece(SECOND, |piece| piece.settled(a, Pair::RIGHT));
    types.add("append").piece(FIRST, |piece| piece.insert(d)).piece(SECOND, |piece| piece.modify(b, Pair::LEFT));
    types.add("look_up").piece(FIRST, |piece| piece.settled(d, Pair::RIGHT));
}

const INSERT: usize = 0;
const TOUCH: usize = 1;
const LOOK: usize = 2;
const APPEND: usize = 3;
const LOOK_UP: usize = 4;
/// No piece runs again, as nobody else goes on meanwhile.
const ONCE: &[(&str, &str)] = &[("ic3.retries", "0")];
const ROW: Pair = Pair { left: 1, right: 7 };

#[test]
fn a_settled_read_of_a_missing_row_is_a_violation() {
    let world = World::new(ONCE, settled);
    let [a, .., d] = &world.tables;
    let mut worker = world.worker();
    let mut violation = |kind: usize, body: &dyn Fn(&mut Tx<'_>) -> Result<(), Abort>, words: &str| {
        // The row might be there a moment later, so it is looked for some times.
        let mut missed = || reason(body(&mut begin(&mut worker, kind)));
        assert_eq!(missed(), AbortReason::ReadLocked);
        let last = (0..20).map(|_| missed()).find(|reason| *reason != AbortReason::ReadLocked);
        assert_eq!(last, Some(AbortReason::Undeclared));
        let violation = worker.take_undeclared().expect("a sentence");
        assert!(violation.starts_with(words), "{violation}");
    };
    violation(
        LOOK,
        &|tx| tx.piece(SECOND, |tx| right(tx, a, 77)).map(drop),
        "look, piece second: reads settled rows of a",
    );
    violation(
        LOOK_UP,
        &|tx| tx.piece(FIRST, |tx| right(tx, d, 77)).map(drop),
        "look_up, piece first: reads settled rows of d",
    );
    // Others may insert into a range at any time.
    let scan = |tx: &mut Tx<'_>| {
        let on = |_: u64, _: i64| ControlFlow::Continue(());
        tx.scan(a, 0..=5, 3, Direction::Forward, Pair::RIGHT, on).map(drop)
    };
    violation(LOOK, &|tx| tx.piece(SECOND, scan), "look, piece second: reads settled rows of a");
}

#[test]
fn a_settled_read_waits_for_the_inserting_transaction_and_for_no_other() {
    let world = World::new(ONCE, settled);
    let [a, b, .., d] = &world.tables;
    let (mut one, mut other) = (world.worker(), world.worker());
    let mut look = |kind: usize, piece: Piece, table: &TypedTable<Pair>, key: u64| {
        let mut tx = begin(&mut other, kind);
        let found = tx.piece(piece, |tx| right(tx, table, key))?;
        tx.commit().map(|()| found)
    };
    let mut inserting = begin(&mut one, INSERT);
    inserting.piece(FIRST, |tx| tx.insert(a, 50, ROW)).expect("nobody else is there");
    assert_eq!(reason(look(LOOK, SECOND, a, 50)), AbortReason::ReadLocked);
    // The transaction's own row is there as long as the transaction is.
    let own = inserting.piece(SECOND, |tx| {
        add(tx, b, 0, 1)?;
        right(tx, a, 50)
    });
    assert_eq!(own, Ok(Some(7)));
    inserting.commit().expect("nobody was in the way");
    assert_eq!(look(LOOK, SECOND, a, 50), Ok(Some(7)));

    // A transaction that has written the row's other cell is of no interest.
    let mut touching = begin(&mut one, TOUCH);
    touching.piece(FIRST, |tx| add(tx, a, 50, 1)).expect("nobody else is there");
    assert_eq!(look(LOOK, SECOND, a, 50), Ok(Some(7)));
    touching.commit().expect("nobody was in the way");

    // A row that is appended appears at the commit.
    let mut appending = begin(&mut one, APPEND);
    appending.piece(FIRST, |tx| tx.insert(d, 50, ROW)).expect("nobody else is there");
    let mut looks = (0..20).map(|_| reason(look(LOOK_UP, FIRST, d, 50)));
    assert_eq!(looks.find(|reason| *reason != AbortReason::ReadLocked), Some(AbortReason::Undeclared));
    appending.commit().expect("nobody was in the way");
    assert_eq!(look(LOOK_UP, FIRST, d, 50), Ok(Some(7)));
}

/// The key comes from an uncommitted write, which is taken back with the row.
#[test]
fn a_doomed_transaction_violates_no_declaration() {
    let world = World::new(ONCE, settled);
    let [a, b, c, _] = &world.tables;
    let (mut one, mut other) = (world.worker(), world.worker());
    let mut inserting = begin(&mut one, INSERT);
    inserting.piece(FIRST, |tx| tx.insert(a, 50, ROW)).expect("nobody else is there");
    inserting.piece(SECOND, |tx| add(tx, b, 0, 50)).expect("nobody else is there");
    let mut looking = begin(&mut other, LOOK);
    let key = looking.piece(FIRST, |tx| {
        add(tx, c, 0, 1)?;
        Ok(tx.read(b, 0, Pair::LEFT)?.expect("loaded") as u64)
    });
    assert_eq!(key, Ok(50));
    drop(inserting);
    assert_eq!(reason(looking.piece(SECOND, |tx| right(tx, a, 50))), AbortReason::Cascaded);
    drop(looking);
    assert_eq!(other.take_undeclared(), None);
}

/// A reader misses a key in the last leaf, whose only key is deleted and collected. The leaf to its
/// left takes over its range, and its readers. Then another transaction inserts the key that was
/// missed. Returns whether it commits, though the reader is running still, and comes before it.
fn inserts_behind_a_reader<P: NamedProtocol<Native, Options = Ic3Options>>() -> Result<(), Abort> {
    const MISSED: u64 = 1000;
    let mut options = by_steps();
    options.set("ic3.retries", "0").expect("an option");
    let engine = Engine::<P, Native>::new(P::new(options), EngineConfig { epoch_ms: u64::MAX, ..Default::default() });
    let [a, b] = ["a", "b"].map(|name| engine.create_typed(&TableSpec::of::<Pair>(name, IndexKind::Ordered, 100)));
    let mut loader = engine.loader().expect("a free slot");
    // Keys are loaded in order, so the leaves are full, and the last key has a leaf of its own.
    let last = 2 * LEAF_KEYS as u64;
    for table in [&a, &b] {
        for key in 0..=last {
            assert!(loader.insert(table, key, |row| row.fill(0)).expect("memory"));
        }
    }
    drop(loader);
    let mut types = Types::new(engine.declared_tables());
    types
        .add("all")
        .piece(FIRST, |piece| piece.read(&a, Pair::LEFT).insert(&a).delete(&a))
        .piece(SECOND, |piece| piece.modify(&b, Pair::LEFT));
    engine.declare(types.finish().expect("valid declarations")).expect("valid declarations");
    // The later worker has the larger bit.
    let [mut reader, mut inserter, mut collector] = [(); 3].map(|()| engine.worker().expect("a free slot"));
    let mut deleting = collector.begin_declared(|declaration| declaration.kind(0));
    assert_eq!(deleting.piece(FIRST, |tx| tx.delete(&a, last)), Ok(true));
    deleting.commit().expect("nobody else is there");
    collector.go_offline();
    (0..5).for_each(|_| assert!(engine.epochs().try_advance()));

    let mut reading = reader.begin_declared(|declaration| declaration.kind(0));
    assert_eq!(reading.piece(FIRST, |tx| tx.read(&a, MISSED, Pair::LEFT)), Ok(None));
    let mut inserting = inserter.begin_declared(|declaration| declaration.kind(0));
    let inserted = inserting.piece(FIRST, |tx| {
        // A gap of the leaf to the left.
        assert_eq!(tx.read(&a, last - 1, Pair::LEFT).map(|row| row.is_some()), Ok(true));
        let on = |_: u64, _: i64| ControlFlow::Continue(());
        tx.scan(&a, last - 2..=last - 1, 9, Direction::Forward, Pair::LEFT, on)?;
        collector.collect();
        assert_eq!(collector.tombstones(), 1, "the record has left the index, and waits for its reuse");
        tx.insert(&a, MISSED, ROW)
    });
    assert_eq!(inserted, Ok(true));
    let seen = inserting.piece(SECOND, |tx| tx.read(&b, 0, Pair::LEFT))?;
    assert_eq!(seen, Some(0), "the reader has not written yet");
    inserting.commit()
}

#[test]
fn the_heir_of_a_leaf_has_its_readers() {
    // It waits for the reader, until it has waited too long.
    assert_eq!(reason(inserts_behind_a_reader::<Protocol>()), AbortReason::LockTimeout);
    type Broken = Only<{ id("larger_word_of_leaves") }>;
    assert_eq!(inserts_behind_a_reader::<Faulty<Ic3<Native, Broken>, Broken>>(), Ok(()));
}

/// Sixteen threads change ten records, and roll back behind a piece that others have seen. All get
/// on, and what is committed is there once.
#[test]
fn many_threads_get_on_with_few_records_and_cancels() {
    const THREADS: u64 = 16;
    const TRANSACTIONS: u64 = 60;
    const TRIES_MAX: u64 = 10_000_000;
    let world = World::new(&[], chain);
    let world = &world;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut worker = world.worker();
                for number in 0..TRANSACTIONS {
                    let keys = [(thread * 7 + number) % LOADED, (thread + number * 3) % LOADED];
                    // Each amount is committed once, after a third of the transactions have tried
                    // it and rolled back.
                    let mut cancels = (thread + number).is_multiple_of(3);
                    let (mut tries, mut is_done) = (0, false);
                    while !is_done {
                        tries += 1;
                        assert!(tries < TRIES_MAX, "no progress");
                        let mut tx = begin(&mut worker, 0);
                        let outcome = tx.piece(FIRST, |tx| add(tx, &world.tables[0], keys[0], 1)).and_then(|_| {
                            tx.piece(SECOND, |tx| {
                                add(tx, &world.tables[1], keys[1], 1)?;
                                if cancels { Err(tx.cancel()) } else { Ok(()) }
                            })
                        });
                        match outcome.and_then(|()| tx.commit()) {
                            Ok(()) => is_done = true,
                            Err(abort) if abort.reason == AbortReason::User => cancels = false,
                            Err(abort) => assert!(abort.reason.is_conflict(), "{abort}"),
                        }
                    }
                }
                worker.go_offline();
            });
        }
    });
    for table in 0..2 {
        let sum: i64 = (0..LOADED).map(|key| world.row(table, key).expect("loaded")[0]).sum();
        assert_eq!(sum, (THREADS * TRANSACTIONS) as i64);
    }
}
