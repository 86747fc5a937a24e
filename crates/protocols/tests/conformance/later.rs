//! Transactions with a later part: what the later part may do, and what is refused by name.

use std::ops::{ControlFlow, RangeInclusive};
use std::panic::AssertUnwindSafe;

use contend_engine::{
    Abort, AbortReason, Direction, Engine, EngineConfig, EngineOptions, Erased, Groups, IndexKind, NamedProtocol,
    Projection, Protocol, RawTxn, RowUpdate, Table, Transaction, Txn, Worker,
};
use contend_machine::Native;
use contend_protocols::lazy::Lazy;

use crate::basics::Panics;
use crate::support::{ProtocolTest, engine, engine_with, for_each_protocol, pairs, table};

type Tx<'t> = Transaction<'t, Erased<Native>, Native>;

/// Rows 1 to 9 exist.
const LOADED: RangeInclusive<u64> = 1..=9;

fn add(tx: &mut Tx<'_>, rows: &Table<u64>, key: u64) -> Result<bool, Abort> {
    Ok(tx.modify_row(rows, key, Groups::ALL)?.map(|row| row[0] += 1).is_some())
}

fn insert(tx: &mut Tx<'_>, rows: &Table<u64>, key: u64) -> Result<bool, Abort> {
    Ok(tx.insert_row(rows, key)?.map(|row| row.fill(5)).is_some())
}

const FORWARD: Direction = Direction::Forward;
const WHOLE: Projection<'static> = Projection::WHOLE;
const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// A body, and a part of the sentence that refuses it.
type Refused = (fn(&mut Tx<'_>, &Table<u64>) -> Result<(), Abort>, &'static str);

/// What a later part must not do.
const REFUSED: [Refused; 13] = [
    (|tx, rows| tx.later(|tx| add(tx, rows, 3).map(drop)), "the key 3 of the table t, which it has not named"),
    (
        |tx, rows| {
            tx.later_row(rows, 3, false);
            tx.later(|tx| add(tx, rows, 3).map(drop))
        },
        "writes the key 3",
    ),
    (
        |tx, rows| {
            tx.later_inserts(rows, 20..=22);
            tx.later(|tx| insert(tx, rows, 23).map(drop))
        },
        "inserts the key 23",
    ),
    (
        |tx, rows| {
            tx.later_row(rows, 3, true);
            tx.later(|tx| tx.delete_row(rows, 3).map(drop))
        },
        "deletes the key 3",
    ),
    (
        |tx, rows| {
            tx.later_row(rows, 3, true);
            tx.later(|tx| tx.scan_rows(rows, 3..=4, 9, FORWARD, WHOLE, |_, _| GO_ON).map(drop))
        },
        "reads the key",
    ),
    (
        |tx, rows| {
            tx.later_inserts(rows, 3..=3);
            tx.later(|tx| insert(tx, rows, 3).map(drop))
        },
        "inserts the key 3 of the table t, which has a row already",
    ),
    (|tx, _| tx.later(|tx| Err(tx.cancel())), "cancels in its later part"),
    (
        |tx, rows| {
            add(tx, rows, 3)?;
            tx.later_row(rows, 3, true);
            tx.later(|tx| Err(tx.cancel()))
        },
        "cancels in its later part",
    ),
    (
        // Because of the missing row, all that was written waits for the end.
        |tx, rows| {
            add(tx, rows, 3)?;
            tx.later_row(rows, 99, true);
            tx.later(|tx| Err(tx.cancel()))
        },
        "cancels in its later part",
    ),
    (|tx, _| tx.later(|tx| tx.later(|_| Ok(()))), "begins another later part"),
    (
        |tx, rows| {
            tx.later(|tx| {
                tx.later_row(rows, 3, true);
                add(tx, rows, 3).map(drop)
            })
        },
        "names a row in its later part",
    ),
    (
        |tx, rows| {
            tx.later(|tx| {
                tx.later_inserts(rows, 20..=20);
                insert(tx, rows, 20).map(drop)
            })
        },
        "names keys that it inserts in its later part",
    ),
    (
        |tx, rows| {
            add(tx, rows, 3)?;
            tx.later_row(rows, 3, false);
            tx.later(|tx| add(tx, rows, 3).map(drop))
        },
        "writes the key 3",
    ),
];

struct LaterParts;

impl ProtocolTest<Native> for LaterParts {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        let engine = engine::<_, Native>(make(), false);
        let rows: Table<u64> = table(&engine, "t", IndexKind::Ordered, 8);
        let mut worker = engine.worker().expect("a free slot");
        for key in LOADED {
            worker.run(|tx| insert(tx, &rows, key)).expect("no conflict");
        }
        // Rows are named before the first access, and after it.
        let done = worker.run(|tx| {
            tx.later_row(&rows, 4, true);
            assert!(add(tx, &rows, 1)? && add(tx, &rows, 4)?);
            tx.later_row(&rows, 5, true);
            tx.later_inserts(&rows, 20..=22);
            tx.later(|tx| {
                assert!(add(tx, &rows, 4)? && add(tx, &rows, 5)?);
                insert(tx, &rows, 21)
            })
        });
        assert_eq!(done, Ok(true), "{name}");
        // A named row is missing, appears in the first part, and changes in the later one.
        let done = worker.run(|tx| {
            tx.later_row(&rows, 30, true);
            assert!(insert(tx, &rows, 30)?);
            tx.later(|tx| add(tx, &rows, 30))
        });
        assert_eq!(done, Ok(true), "{name}");
        // A named row is deleted in the first part.
        let done = worker.run(|tx| {
            tx.later_row(&rows, 9, false);
            assert!(tx.delete_row(&rows, 9)?);
            tx.later(|tx| Ok(tx.read_row(&rows, 9, WHOLE)?.is_some()))
        });
        assert_eq!(done, Ok(false), "{name}");
        // A row that the first part has written is read, and a key that it has deleted comes again.
        let done = worker.run(|tx| {
            assert!(add(tx, &rows, 6)? && tx.delete_row(&rows, 7)?);
            tx.later_row(&rows, 6, false);
            tx.later_inserts(&rows, 7..=7);
            tx.later(|tx| Ok((tx.read_row(&rows, 6, WHOLE)?.map(|row| row[0]), insert(tx, &rows, 7)?)))
        });
        assert_eq!(done, Ok((Some(6), true)), "{name}");
        // The first access is a miss, and nothing follows.
        assert_eq!(worker.run(|tx| Ok(tx.read_row(&rows, 99, WHOLE)?.is_some())), Ok(false), "{name}");
        assert_eq!(worker.run(|_| Ok(())), Ok(()), "{name}");
        let value = |worker: &mut Worker<_, _>, key| {
            worker.run(|tx: &mut Tx<'_>| Ok(tx.read_row(&rows, key, WHOLE)?.map(|row| row[0])))
        };
        let expected = [(1, Some(6)), (4, Some(7)), (5, Some(6)), (9, None), (21, Some(5)), (30, Some(6))];
        for (key, expected) in expected {
            assert_eq!(value(&mut worker, key), Ok(expected), "{name}: {key}");
        }

        if !engine.protocol().defers() {
            return;
        }
        for (number, (body, sentence)) in REFUSED.iter().enumerate() {
            let abort = worker.run(|tx| body(tx, &rows)).expect_err(sentence);
            assert_eq!(abort.reason, AbortReason::Undeclared, "{name}: {number}");
            let said = worker.take_undeclared().expect(sentence);
            assert!(said.contains(sentence), "{name}: {number}: {said}");
            // Nothing is left: not for a transaction without an access either. The turn was passed
            // on, and no row stays asked for.
            assert_eq!(worker.run(|_| Ok(())), Ok(()), "{name}: {number}");
            let after = worker.run(|tx| {
                assert!(add(tx, &rows, 3)?);
                tx.later_row(&rows, 4, true);
                tx.later_inserts(&rows, 20..=23);
                tx.later(|tx| add(tx, &rows, 4))
            });
            assert_eq!(after, Ok(true), "{name}: {number}");
        }
    }
}

#[test]
fn later_parts_do_what_was_named_and_nothing_else() {
    for_each_protocol(&LaterParts);
}

/// Runs a body that panics.
fn panics(worker: &mut Worker<Erased<Native>, Native>, body: impl Fn(&mut Tx<'_>) -> Result<(), Abort>) {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| worker.run(|tx| body(tx))));
    assert!(outcome.is_err(), "{outcome:?}");
}

struct FailsBehindTheBorder;

impl ProtocolTest<Native> for FailsBehindTheBorder {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
        let engine = engine_with::<_, Native>(make(), false, options);
        let rows = pairs(&engine, "t", IndexKind::Hash);
        let mut workers = [(); 2].map(|()| engine.worker().expect("a free slot"));
        for key in LOADED {
            workers[0].run(|tx| insert(tx, &rows, key)).expect("no conflict");
        }
        if !engine.protocol().defers() {
            return;
        }
        // Rows come and go often enough for collectors, and each by a transaction that fails behind
        // its border.
        for round in 0..300 {
            let fresh = 1_000 + round % 7;
            panics(&mut workers[0], |tx| {
                assert!(insert(tx, &rows, fresh)?);
                tx.later_row(&rows, 1, true);
                tx.later(|_| panic!("in a later part"))
            });
            let (first, second) = (round as usize % 2, (round as usize + 1) % 2);
            let seen = workers[first].run(|tx| Ok(tx.read_row(&rows, fresh, WHOLE)?.is_some()));
            assert_eq!(seen, Ok(true), "{name}: what was decided stays");
            let gone = workers[second].run(|tx| tx.delete_row(&rows, fresh));
            assert_eq!(gone, Ok(true), "{name}");
            // The other way round.
            assert_eq!(workers[first].run(|tx| insert(tx, &rows, fresh)), Ok(true), "{name}");
            panics(&mut workers[0], |tx| {
                assert!(tx.delete_row(&rows, fresh)?);
                tx.later_row(&rows, 1, true);
                tx.later(|_| panic!("in a later part"))
            });
            let gone = workers[second].run(|tx| tx.delete_row(&rows, fresh));
            assert_eq!(gone, Ok(false), "{name}");
            engine.epochs().try_advance();
        }
        // An update that panics at the border.
        panics(&mut workers[0], |tx| {
            tx.update_row(&rows, 2, RowUpdate::new(&Panics))?;
            tx.later_row(&rows, 1, true);
            tx.later(|tx| add(tx, &rows, 1).map(drop))
        });
        for worker in &mut workers {
            assert_eq!(worker.run(|tx| add(tx, &rows, 2)), Ok(true), "{name}: the turn is lost");
        }
    }
}

#[test]
fn what_fails_behind_the_border_leaves_what_was_decided() {
    for_each_protocol(&FailsBehindTheBorder);
}

/// A worker that takes the place of one that has given up waits for the same turn.
#[test]
fn replaced_workers_lose_no_turn() {
    let engine = Engine::<Lazy<Native>, Native>::new(
        NamedProtocol::<Native>::new(Default::default()),
        EngineConfig { workers_max: 2, epoch_ms: 0, ..EngineConfig::default() },
    );
    let rows: Table<u64> = table(&engine, "t", IndexKind::Hash, 8);
    let mut first = engine.worker().expect("a free slot");
    let read = |tx: &mut Transaction<'_, Lazy<Native>, Native>| Ok(tx.read_row(&rows, 1, WHOLE)?.is_some());
    let mut holder = first.begin();
    assert_eq!(read(&mut holder), Ok(false));
    for _ in 0..3 {
        let waited = engine.worker().expect("a free slot").run(read).expect_err("the turn is taken");
        assert_eq!(waited.reason, AbortReason::LockTimeout);
    }
    holder.commit().expect("it has read");
    assert_eq!(engine.worker().expect("a free slot").run(read), Ok(false), "the turn is lost");
}
