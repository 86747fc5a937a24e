//! What a transaction sees of its own writes: every sequence of three operations on one key, on a row that is there and one that is not,
//! committed and aborted, against a model.

use std::ops::ControlFlow;
use std::sync::Arc;

use contend_engine::{Abort, AbortReason, Direction, IndexKind, Projection, Protocol, Table, Transaction, Txn};
use contend_machine::Native;

use crate::support::{INDEXES, ProtocolTest, engine, for_each_protocol, for_no_control, table};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    ReadMany,
    Write,
    Modify,
    Insert,
    Delete,
    Scan,
    ScanBack,
}

const OPERATIONS: [Operation; 8] = [
    Operation::Read,
    Operation::ReadMany,
    Operation::Write,
    Operation::Modify,
    Operation::Insert,
    Operation::Delete,
    Operation::Scan,
    Operation::ScanBack,
];

/// What an operation answers: the row it saw, or whether it did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Saw(Option<u64>),
    Did(bool),
}

/// The rules, on one row.
fn model(row: &mut Option<u64>, operation: Operation, value: u64) -> Answer {
    match operation {
        Operation::Read | Operation::ReadMany | Operation::Scan | Operation::ScanBack => Answer::Saw(*row),
        Operation::Write => {
            *row = row.map(|_| value);
            Answer::Did(row.is_some())
        }
        Operation::Modify => {
            let before = *row;
            *row = row.map(|old| old + 1);
            Answer::Saw(before)
        }
        Operation::Insert => {
            let inserts = row.is_none();
            *row = row.or(Some(value));
            Answer::Did(inserts)
        }
        Operation::Delete => Answer::Did(row.take().is_some()),
    }
}

/// The same on the engine. The row's two words are to be equal.
fn perform<P: Protocol<Native>>(
    tx: &mut Transaction<'_, P, Native>,
    table: &Table<Native, u64>,
    key: u64,
    operation: Operation,
    value: u64,
) -> Result<Answer, Abort> {
    let whole = |row: &[u64]| {
        assert_eq!(row[0], row[1], "a torn row");
        row[0]
    };
    let scan = |tx: &mut Transaction<'_, P, Native>, direction| {
        let mut seen = None;
        tx.scan_rows(table, key..=key, usize::MAX, direction, Projection::WHOLE, |found, row| {
            assert_eq!((found, seen), (key, None), "one key, once");
            seen = Some(whole(row));
            ControlFlow::Continue(())
        })?;
        Ok(Answer::Saw(seen))
    };
    Ok(match operation {
        Operation::Read => Answer::Saw(tx.read_row(table, key, Projection::WHOLE)?.map(whole)),
        Operation::ReadMany => {
            let mut seen = [None; 2];
            tx.read_rows(table, &[key, key], Projection::WHOLE, |position, row| seen[position] = row.map(whole))?;
            assert_eq!(seen[0], seen[1], "one key twice in a batch");
            Answer::Saw(seen[0])
        }
        Operation::Write => Answer::Did(tx.write_row(table, key)?.map(|row| row.fill(value)).is_some()),
        Operation::Modify => Answer::Saw(tx.modify_row(table, key)?.map(|row| {
            let old = whole(row);
            row.fill(old + 1);
            old
        })),
        Operation::Insert => Answer::Did(tx.insert_row(table, key)?.map(|row| row.fill(value)).is_some()),
        Operation::Delete => Answer::Did(tx.delete(table, key)?),
        Operation::Scan => scan(tx, Direction::Forward)?,
        Operation::ScanBack => scan(tx, Direction::Backward)?,
    })
}

struct OwnReads;

impl ProtocolTest<Native> for OwnReads {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        for index in INDEXES {
            for history in [false, true] {
                own_reads::<P>(name, make, index, history);
            }
        }
    }
}

fn own_reads<P: Protocol<Native>>(name: &str, make: &dyn Fn() -> P, index: IndexKind, history: bool) {
    let engine = engine::<P, Native>(make(), history);
    let rows: Arc<Table<Native, u64>> = table(&engine, "t", index, 16);
    let mut worker = engine.worker().expect("a free slot");
    let mut loader = engine.loader().expect("a free slot");
    let operations: &[Operation] = if index == IndexKind::Hash { &OPERATIONS[..6] } else { &OPERATIONS };
    let mut key = 0;
    for first in operations {
        for second in operations {
            for third in operations {
                for (loaded, commits) in [(false, false), (false, true), (true, false), (true, true)] {
                    key += 10;
                    let before = loaded.then_some(500);
                    if loaded {
                        loader.insert(&rows, key, |row| row.fill(500)).expect("memory");
                    }
                    let case =
                        format!("{name} {index:?}: {first:?}, {second:?}, {third:?} on {before:?}, commits: {commits}");
                    let mut state = before;
                    let outcome = worker.run(|tx| {
                        for (operation, value) in [first, second, third].into_iter().zip(1000..) {
                            let expected = model(&mut state, *operation, value);
                            assert_eq!(perform(tx, &rows, key, *operation, value)?, expected, "{case}: {operation:?}");
                        }
                        if commits { Ok(()) } else { Err(tx.cancel()) }
                    });
                    match outcome {
                        Ok(()) => assert!(commits, "{case}"),
                        Err(abort) => assert_eq!((commits, abort.reason), (false, AbortReason::User), "{case}"),
                    }
                    let after = if commits { state } else { before };
                    let seen = worker.run(|tx| perform(tx, &rows, key, Operation::Read, 0)).expect("no conflict");
                    assert_eq!(seen, Answer::Saw(after), "{case}: afterwards");
                    // And whatever was left behind, the key can be used.
                    let inserted = worker.run(|tx| perform(tx, &rows, key, Operation::Insert, 9)).expect("no conflict");
                    assert_eq!(inserted, Answer::Did(after.is_none()), "{case}: inserted afterwards");
                }
            }
        }
    }
    if history {
        let recorded = contend_lab::recorded(&engine, worker.take_history());
        let verification = contend_lab::verify_history(&recorded, contend_engine::Isolation::Serializable);
        assert!(verification.passed, "{name} {index:?}: {} {:?}", verification.verdict, verification.explanation);
    }
}

#[test]
fn a_transaction_sees_its_own_writes() {
    for_each_protocol(&OwnReads);
    for_no_control(&OwnReads);
}

/// Many keys in one transaction: the sets go from lists to hashing.
struct ManyKeys;

impl ProtocolTest<Native> for ManyKeys {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        for count in [15u64, 16, 17, 64, 65, 500] {
            let engine = engine::<P, Native>(make(), false);
            let rows: Arc<Table<Native, u64>> = table(&engine, "t", IndexKind::Hash, 16);
            let mut worker = engine.worker().expect("a free slot");
            for pass in 0..3 {
                worker
                    .run(|tx| {
                        for key in 0..count {
                            let done = perform(tx, &rows, key, Operation::Insert, key)?;
                            assert_eq!(done, Answer::Did(pass == 0), "{name}: {count} keys, pass {pass}");
                        }
                        for key in 0..count {
                            perform(tx, &rows, key, Operation::Read, 0)?;
                            perform(tx, &rows, key, Operation::Modify, 0)?;
                        }
                        for key in 0..count {
                            let seen = perform(tx, &rows, key, Operation::ReadMany, 0)?;
                            assert_eq!(seen, Answer::Saw(Some(key + pass + 1)), "{name}: {count} keys");
                        }
                        Ok(())
                    })
                    .unwrap_or_else(|abort| panic!("{name}: {count} keys, pass {pass}: {abort}"));
            }
            assert_eq!((worker.commits(), worker.aborts().conflicts()), (3, 0), "{name}");
        }
    }
}

#[test]
fn large_transactions_see_their_own_writes_too() {
    for_each_protocol(&ManyKeys);
    for_no_control(&ManyKeys);
}
