//! Boundary keys, empty ranges, limits, projections, aborts that leave no trace, rows of any
//! length, misuse.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;

use contend_engine::fault::Fault;
use contend_engine::{
    Abort, AbortReason, Direction, Engine, EngineConfig, Erased, Groups, IndexKind, Key, NamedProtocol, Projection,
    Protocol, RawTxn, RowUpdate, Span, Table, Transaction, Txn, Update, Worker,
};
use contend_machine::Native;

use crate::support::{
    ENGINE_OPTIONS, GenericTest, INDEXES, Pair, ProtocolTest, Triple, engine, engine_with, for_each_protocol,
    for_no_control, pairs, table,
};

/// Runs a test for all protocols, including `none`: a single transaction is right under it, too.
fn for_all(test: &impl ProtocolTest<Native>) {
    for_each_protocol(test);
    for_no_control(test);
}

/// Returns the keys of a scan.
fn scanned<P: Protocol<Native>, K: Key>(
    worker: &mut Worker<P, Native>,
    rows: &Table<K>,
    low: K,
    high: K,
    limit: usize,
    direction: Direction,
) -> Vec<K> {
    let mut keys = Vec::new();
    let visited = worker.run(|tx| {
        keys.clear();
        tx.scan_rows(rows, low..=high, limit, direction, Projection::WHOLE, |key, _| {
            keys.push(key);
            ControlFlow::Continue(())
        })
    });
    assert_eq!(visited.expect("no conflict"), keys.len());
    keys
}

fn insert_all<P: Protocol<Native>, K: Key>(worker: &mut Worker<P, Native>, rows: &Table<K>, keys: &[K]) {
    for (&key, value) in keys.iter().zip(1..) {
        let inserted = worker.run(|tx| Ok(tx.insert_row(rows, key)?.map(|row| row.fill(value)).is_some()));
        assert!(inserted.expect("no conflict"), "{key:?}");
    }
}

struct Boundaries;

impl Boundaries {
    fn keys<K: Key>(name: &str, make: &dyn Fn() -> Erased<Native>, index: IndexKind, middle: K) {
        let engine = engine::<_, Native>(make(), false);
        let rows: Table<K> = table(&engine, "t", index, 8);
        let mut worker = engine.worker().expect("a free slot");
        let read = |worker: &mut Worker<Erased<Native>, Native>, key: K| {
            worker.run(|tx| Ok(tx.read_row(&rows, key, Projection::WHOLE)?.map(|row| row[0]))).expect("no conflict")
        };
        let keys = [K::MIN, middle, K::MAX];
        for key in keys {
            assert_eq!(read(&mut worker, key), None, "{name}: an empty table has no {key:?}");
        }
        insert_all(&mut worker, &rows, &keys);
        for (key, value) in keys.into_iter().zip(1..) {
            assert_eq!(read(&mut worker, key), Some(value), "{name}: {key:?}");
        }
        if index == IndexKind::Ordered {
            let mut scan = |low, high, limit, direction| scanned(&mut worker, &rows, low, high, limit, direction);
            assert_eq!(scan(K::MIN, K::MAX, usize::MAX, Direction::Forward), keys, "{name}");
            assert_eq!(scan(K::MIN, K::MAX, usize::MAX, Direction::Backward), [K::MAX, middle, K::MIN], "{name}");
            assert_eq!(scan(K::MIN, K::MAX, 2, Direction::Forward), [K::MIN, middle], "{name}");
            assert_eq!(scan(K::MIN, K::MAX, 1, Direction::Backward), [K::MAX], "{name}");
            assert_eq!(scan(K::MIN, K::MAX, 0, Direction::Forward), [], "{name}");
            assert_eq!(scan(K::MAX, K::MIN, 9, Direction::Forward), [], "{name}: an empty range");
            assert_eq!(scan(K::MAX, K::MAX, 9, Direction::Forward), [K::MAX], "{name}");
            assert_eq!(scan(K::MIN, K::MIN, 9, Direction::Backward), [K::MIN], "{name}");
        }
        for key in keys {
            assert!(worker.run(|tx| tx.delete(&rows, key)).expect("no conflict"));
            assert_eq!(read(&mut worker, key), None, "{name}: {key:?} is deleted");
        }
        if index == IndexKind::Ordered {
            assert_eq!(scanned(&mut worker, &rows, K::MIN, K::MAX, 9, Direction::Forward), [], "{name}");
        }
        insert_all(&mut worker, &rows, &keys);
    }
}

impl ProtocolTest<Native> for Boundaries {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for index in INDEXES {
            Self::keys::<u64>(name, make, index, 1 << 63);
            Self::keys::<[u8; 16]>(name, make, index, *b"0123456789abcdef");
            Self::keys::<[u8; 32]>(name, make, index, [127; 32]);
        }
    }
}

#[test]
fn keys_at_the_ends_are_keys_like_all_others() {
    for_all(&Boundaries);
}

/// Returns the number of records in the indexes, including tombstones.
fn records(engine: &Engine<Erased<Native>, Native>) -> u64 {
    engine.version_chains().iter().sum()
}

/// Inserts and deletes rows again and again. Some of the inserts abort.
struct AllDead(Option<Fault>);

impl AllDead {
    /// Returns the number of records in the index at the end.
    fn leftovers(&self, protocol: Erased<Native>, index: IndexKind) -> u64 {
        let config = EngineConfig { workers_max: 4, epoch_ms: u64::MAX, fault: self.0, ..EngineConfig::default() };
        let engine = Engine::new(protocol, config);
        let rows: Table<u64> = table(&engine, "t", index, 8);
        let mut workers = [(); 2].map(|()| engine.worker().expect("a free slot"));
        for round in 0..20 {
            for key in 0..40 {
                // Some keys return again and again, and some never come back.
                let key = if key % 2 == 0 { key } else { round * 1000 + key };
                // The memory goes to the worker that collects, which inserts in the next round.
                let [first, second] = &mut workers;
                let (one, other) = if round % 2 == 0 { (first, second) } else { (second, first) };
                let insert = |tx: &mut Transaction<'_, _, _>| {
                    // A worker with an earlier timestamp may still see the row of the last round.
                    let Some(row) = tx.insert_row(&rows, key)? else {
                        return Err(Abort::new(AbortReason::ReadValidation));
                    };
                    row[0] = key;
                    if key % 3 == 0 { Err(tx.cancel()) } else { Ok(()) }
                };
                let ended =
                    |outcome: &Result<(), Abort>| outcome.is_ok() || *outcome == Err(Abort::new(AbortReason::User));
                let inserted = (0..100_000).map(|_| one.run(insert)).find(ended);
                assert_eq!(inserted.map(|outcome| outcome.is_ok()), Some(key % 3 != 0));
                if key % 3 != 0 {
                    // The timestamps of two workers may come in any order. A worker with the older
                    // one tries again, or doesn't see the row yet.
                    assert!(
                        (0..100_000).any(|_| other.run(|tx| tx.delete(&rows, key)) == Ok(true)),
                        "no row to delete"
                    );
                }
            }
            // Four epochs pass; with snapshots, some more until the workers have noticed them.
            for _ in 0..self.patience() {
                for worker in &mut workers {
                    worker.run(|tx| tx.read_row(&rows, 0, Projection::WHOLE).map(drop)).expect("no conflict");
                    worker.go_offline();
                }
                assert!(engine.epochs().try_advance());
                workers.iter_mut().for_each(Worker::collect);
                if records(&engine) == 0 {
                    break;
                }
            }
        }
        records(&engine)
    }

    /// The number of epochs after which all dead records must be gone.
    fn patience(&self) -> u64 {
        if self.0.is_none() { 1_000_000 } else { 10 }
    }
}

impl ProtocolTest<Native> for AllDead {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for index in INDEXES {
            assert_eq!(self.leftovers(make(), index), 0, "{name}: tombstones stay in the index");
        }
    }
}

#[test]
fn all_that_is_dead_is_collected() {
    for_all(&AllDead(None));
}

/// The control: with a deliberate bug of the engine, records stay behind.
#[test]
fn what_is_not_collected_is_noticed() {
    let silo =
        || Erased::new(<contend_protocols::optimistic::silo::Silo as NamedProtocol<Native>>::new(Default::default()));
    for index in INDEXES {
        assert!(AllDead(Some(Fault::ForgetAborted)).leftovers(silo(), index) > 0, "aborted inserts were collected");
    }
}

struct RowLengths;

impl ProtocolTest<Native> for RowLengths {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for bytes in [0usize, 1, 7, 8, 9, 63, 100, 4096] {
            let engine = engine::<_, Native>(make(), false);
            let rows: Table<u64> = table(&engine, "t", IndexKind::Hash, bytes);
            let mut worker = engine.worker().expect("a free slot");
            let pattern: Vec<u64> = (0..bytes.div_ceil(8) as u64).map(|word| word * 3 + 1).collect();
            worker
                .run(|tx| {
                    tx.insert_row(&rows, 5)?.expect("a new key").copy_from_slice(&pattern);
                    Ok(())
                })
                .expect("no conflict");
            let seen = worker.run(|tx| Ok(tx.read_row(&rows, 5, Projection::WHOLE)?.map(<[u64]>::to_vec)));
            assert_eq!(seen.expect("no conflict"), Some(pattern.clone()), "{name}: {bytes} bytes");
            if pattern.len() >= 8 {
                // Only the words that a projection names are defined.
                let spans = [Span { first: 2, count: 1 }, Span { first: 5, count: 2 }];
                worker
                    .run(|tx| {
                        let row = tx.read_row(&rows, 5, Projection::spans(&spans))?.expect("it is there");
                        assert_eq!((row[2], &row[5..7]), (pattern[2], &pattern[5..7]), "{name}");
                        Ok(())
                    })
                    .expect("no conflict");
            }
        }
    }
}

#[test]
fn rows_of_any_length_come_back() {
    for_all(&RowLengths);
}

/// Runs a transaction of a worker while no other transaction runs. Only a worker with a timestamp
/// of an old batch may have to try again.
fn in_turn<P: Protocol<Native>, T>(
    worker: &mut Worker<P, Native>,
    name: &str,
    body: impl Fn(&mut Transaction<'_, P, Native>) -> Result<T, Abort>,
) -> T {
    match worker.run(&body) {
        Err(abort) if abort.reason.is_conflict() && name.contains("batched") => worker.run(&body),
        outcome => outcome,
    }
    .unwrap_or_else(|abort| panic!("{name}: {abort}, though no other transaction runs"))
}

pub(crate) struct AbortsLeaveNoTrace;

impl GenericTest<Native> for AbortsLeaveNoTrace {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        for index in INDEXES {
            let engine = engine::<_, Native>(make(), false);
            let rows: Table<u64> = table(&engine, "t", index, 16);
            let (mut worker, mut other) = (engine.worker().expect("a slot"), engine.worker().expect("a slot"));
            insert_all(&mut worker, &rows, &[10, 20, 30]);
            // Two ways to end without a commit: the body's decision, and a drop.
            for ends_by_drop in [false, true] {
                let mut tx = worker.begin();
                tx.insert_row(&rows, 15).expect("no conflict").expect("a new key").fill(9);
                tx.write_row(&rows, 10, Groups::ALL).expect("no conflict").expect("it is there").fill(9);
                tx.modify_row(&rows, 20, Groups::ALL).expect("no conflict").expect("it is there").fill(9);
                assert!(tx.delete(&rows, 30).expect("no conflict"));
                if ends_by_drop {
                    drop(tx);
                } else {
                    tx.abort(AbortReason::User);
                }
                // Another worker finds all rows as they were, no lock, and can write them.
                let state = in_turn(&mut other, name, |tx| {
                    let mut state = Vec::new();
                    for key in [10, 15, 20, 30] {
                        state.push(tx.read_row(&rows, key, Projection::WHOLE)?.map(|row| row[0]));
                    }
                    Ok(state)
                });
                assert_eq!(state, [Some(1), None, Some(2), Some(3)], "{name} {index:?}");
                let written = in_turn(&mut other, name, |tx| {
                    for (key, value) in [(10, 1), (20, 2), (30, 3)] {
                        tx.write_row(&rows, key, Groups::ALL)?.expect("it is there").fill(value);
                    }
                    let inserted = tx.insert_row(&rows, 15)?.map(|row| row.fill(0)).is_some();
                    Ok(inserted && tx.delete(&rows, 15)?)
                });
                assert!(written, "{name} {index:?}");
            }
            assert_eq!(worker.aborts().get(AbortReason::User), 2);
        }
    }
}

#[test]
fn aborts_leave_no_trace() {
    for_all(&AbortsLeaveNoTrace);
}

pub(crate) struct VisitorsStopScans;

impl GenericTest<Native> for VisitorsStopScans {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        let engine = engine::<_, Native>(make(), false);
        let rows: Table<u64> = table(&engine, "t", IndexKind::Ordered, 8);
        let mut worker = engine.worker().expect("a free slot");
        // More rows than a leaf holds.
        let keys: Vec<u64> = (0..500).map(|key| key * 2).collect();
        insert_all(&mut worker, &rows, &keys);
        assert_eq!(scanned(&mut worker, &rows, 0, u64::MAX, usize::MAX, Direction::Forward), keys, "{name}");
        let between = scanned(&mut worker, &rows, 301, 309, usize::MAX, Direction::Backward);
        assert_eq!(between, [308, 306, 304, 302], "{name}");
        let seen = worker.run(|tx| {
            let mut seen = 0;
            tx.scan_rows(&rows, 100..=u64::MAX, usize::MAX, Direction::Forward, Projection::WHOLE, |key, _| {
                seen += 1;
                if key >= 120 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .map(|visited| (visited, seen))
        });
        assert_eq!(seen.expect("no conflict"), (11, 11), "{name}");
    }
}

#[test]
fn visitors_and_limits_stop_scans() {
    for_all(&VisitorsStopScans);
}

struct Misuse;

impl ProtocolTest<Native> for Misuse {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        let (mine, theirs) = (engine::<_, Native>(make(), false), engine::<_, Native>(make(), false));
        let rows: Table<u64> = table(&mine, "t", IndexKind::Hash, 8);
        let foreign: Table<u64> = table(&theirs, "t", IndexKind::Hash, 8);
        let mut worker = mine.worker().expect("a free slot");
        let mut tx = worker.begin();
        let refused = tx.read_row(&foreign, 1, Projection::WHOLE).expect_err("a table of another engine");
        assert_eq!(refused.reason, AbortReason::Unsupported, "{name}");
        tx.abort(refused.reason);
        // A hash index has no ranges. A transaction that has failed once fails again.
        let mut tx = worker.begin();
        let scan = |_, _: &[u64]| ControlFlow::Continue(());
        let refused = tx.scan_rows(&rows, 0..=9, 9, Direction::Forward, Projection::WHOLE, scan);
        assert_eq!(refused.expect_err("no order").reason, AbortReason::Unsupported, "{name}");
        assert_eq!(tx.read_row(&rows, 1, Projection::WHOLE).expect_err("doomed").reason, AbortReason::Unsupported);
        assert_eq!(tx.commit().expect_err("doomed").reason, AbortReason::Unsupported);
        assert_eq!(worker.aborts().get(AbortReason::Unsupported), 2, "{name}");
        assert!(worker.run(|tx| Ok(tx.insert_row(&rows, 1)?.is_some())).expect("all is well again"));
    }
}

#[test]
fn misuse_is_refused_and_harms_nothing() {
    for_all(&Misuse);
}

struct MemoryPlateaus;

impl ProtocolTest<Native> for MemoryPlateaus {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for index in INDEXES {
            let engine = engine::<_, Native>(make(), false);
            let rows: Table<u64> = table(&engine, "t", index, 64);
            let mut worker = engine.worker().expect("a free slot");
            let mut churn = |from: u64| {
                for key in from..from + 8_000 {
                    worker.run(|tx| Ok(tx.insert_row(&rows, key)?.map(|row| row.fill(key)).is_some())).expect("alone");
                    if key % 3 == 0 {
                        // An aborted insert leaves a placeholder, which must be collected.
                        let _ = worker.run(|tx| {
                            tx.insert_row(&rows, key + (1 << 40))?;
                            Err::<(), _>(tx.cancel())
                        });
                    }
                    assert!(worker.run(|tx| tx.delete(&rows, key)).expect("alone"));
                }
                engine.bytes()
            };
            let early = churn(0);
            let late = (1..5).map(|round| churn(round * 100_000)).max().expect("rounds");
            assert!(late <= early + (256 << 10), "{name} {index:?}: {early} bytes grew to {late}");
        }
    }
}

#[test]
fn what_is_deleted_is_used_again() {
    for_all(&MemoryPlateaus);
}

/// An update that panics when it is applied, as an overflowing addition does in a debug build.
#[derive(Clone, Copy)]
pub(crate) struct Panics;

impl Update<Pair> for Panics {
    fn groups(&self) -> Groups {
        Groups::FIRST
    }

    fn apply(&self, _: &mut Pair) {
        // Not by `panic!`, whose message nobody needs to read.
        std::panic::resume_unwind(Box::new("an update has panicked"));
    }
}

/// Runs a transaction while no other runs. A worker may come too late at first if its timestamps
/// are older than those of another worker's last transaction.
fn until_in_time<T>(
    worker: &mut Worker<Erased<Native>, Native>,
    mut body: impl FnMut(&mut Transaction<'_, Erased<Native>, Native>) -> Result<T, Abort>,
) -> Result<T, Abort> {
    for _ in 0..100 {
        match worker.run(&mut body) {
            Err(abort) if abort.reason.is_conflict() => {}
            outcome => return outcome,
        }
    }
    worker.run(body)
}

struct UpdatesThatPanic;

impl UpdatesThatPanic {
    /// Runs a transaction with all kinds of writes, in which the update at position `bomb` panics.
    /// Returns whether it did so at the commit.
    fn transact(worker: &mut Worker<Erased<Native>, Native>, rows: &Table<u64>, bomb: usize) -> bool {
        let mut body_has_ended = false;
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            until_in_time(worker, |tx| {
                body_has_ended = false;
                for place in 0..6 {
                    if place == bomb {
                        tx.update_row(rows, 6, RowUpdate::new(&Panics))?;
                    }
                    match place {
                        0 => _ = tx.update_row(rows, 0, RowUpdate::new(&Pair::LEFT.add(1)))?,
                        1 => tx.modify_row(rows, 1, Groups::ALL)?.expect("it is there").fill(77),
                        2 => assert!(tx.delete(rows, 2)?),
                        3 => tx.insert_row(rows, 9)?.expect("it is new").fill(99),
                        4 => _ = tx.update_row(rows, 4, RowUpdate::new(&Triple))?,
                        _ => tx.write_row(rows, 5, Groups::ALL)?.expect("it is there").fill(55),
                    }
                }
                body_has_ended = true;
                Ok(())
            })
        }));
        assert!(outcome.is_err(), "the update before place {bomb} does not panic: {outcome:?}");
        body_has_ended
    }
}

impl ProtocolTest<Native> for UpdatesThatPanic {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for options in ENGINE_OPTIONS {
            let deferred = options.commit_time_updates;
            let engine = engine_with::<_, Native>(make(), true, options);
            let rows = pairs(&engine, "t", IndexKind::Ordered);
            let mut workers = [(); 2].map(|()| engine.worker().expect("a free slot"));
            insert_all(&mut workers[0], &rows, &[0, 1, 2, 3, 4, 5, 6]);
            for bomb in 0..6 {
                let at_commit = Self::transact(&mut workers[0], &rows, bomb);
                assert_eq!(at_commit, deferred, "{name}, {bomb}: updates wait for the commit, or do not");
                // No row has changed, and none is locked: neither for another worker, nor for the
                // worker whose transaction has panicked.
                for worker in &mut workers {
                    let mut seen = Vec::new();
                    let all = until_in_time(worker, |tx| {
                        seen.clear();
                        tx.scan_rows(&rows, 0..=u64::MAX, 99, Direction::Forward, Projection::WHOLE, |key, row| {
                            seen.push((key, row.to_vec()));
                            ControlFlow::Continue(())
                        })
                    });
                    assert_eq!(all, Ok(7), "{name}, with the update that panics before place {bomb}");
                    assert!(
                        (0..).zip(1..).zip(&seen).all(|((key, value), row)| *row == (key, vec![value; 2])),
                        "{seen:?}"
                    );
                    let written = until_in_time(worker, |tx| {
                        (0..7).try_for_each(|key| {
                            tx.modify_row(&rows, key, Groups::ALL)?.expect("it is there").fill(key + 1);
                            Ok(())
                        })?;
                        tx.insert_row(&rows, 9)?.expect("it is not there").fill(1);
                        tx.delete(&rows, 9)
                    });
                    assert_eq!(written, Ok(true), "{name}: a lock is left");
                }
            }
        }
    }
}

#[test]
fn an_update_that_panics_leaves_no_trace() {
    for_all(&UpdatesThatPanic);
}
