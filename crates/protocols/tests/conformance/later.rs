//! Transactions with a later part: what the later part may do, and what is refused by name.

use std::ops::{ControlFlow, RangeInclusive};

use contend_engine::{
    Abort, AbortReason, Direction, Erased, Groups, IndexKind, Projection, Protocol, RawTxn, Table, Transaction, Txn,
    Worker,
};
use contend_machine::Native;

use crate::support::{ProtocolTest, engine, for_each_protocol, table};

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
const REFUSED: [Refused; 11] = [
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
            // The turn was passed on, and no row stays asked for.
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
