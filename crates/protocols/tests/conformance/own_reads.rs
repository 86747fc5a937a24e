//! A transaction's view of its own writes: every sequence of three operations on one key, with and
//! without a row, committed and aborted, against a model.

use std::ops::ControlFlow;

use contend_engine::{
    Abort, AbortReason, Direction, EngineOptions, Groups, IndexKind, Projection, Protocol, RawTxn, ReadOrWritten,
    RowUpdate, Table, TableSpec, Transaction, Txn,
};
use contend_machine::Native;

use crate::support::{
    ENGINE_OPTIONS, GenericTest, INDEXES, LEFT, Pair, RIGHT, Triple, engine, engine_with, for_each_protocol,
    for_no_control, is_thorough, pairs,
};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    ReadRight,
    ReadMany,
    Write,
    WriteRight,
    Modify,
    ModifyRight,
    /// Adds to a column.
    UpdateRight,
    /// Changes all columns.
    UpdateAll,
    Insert,
    Delete,
    Scan,
    ScanLeft,
}

const OPERATIONS: [Operation; 13] = [
    Operation::Read,
    Operation::ReadRight,
    Operation::ReadMany,
    Operation::Write,
    Operation::WriteRight,
    Operation::Modify,
    Operation::ModifyRight,
    Operation::UpdateRight,
    Operation::UpdateAll,
    Operation::Insert,
    Operation::Delete,
    Operation::Scan,
    Operation::ScanLeft,
];

/// The answer of an operation: the row, a part of it, or whether it did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Saw(Option<Pair>),
    SawPart(Option<u64>),
    Did(bool),
}

fn both(value: u64) -> Pair {
    Pair { left: value, right: value + 1 }
}

/// Applies the rules to one row, as a model.
fn model(row: &mut Option<Pair>, operation: Operation, value: u64) -> Answer {
    let before = *row;
    match operation {
        Operation::Read | Operation::ReadMany | Operation::Scan => Answer::Saw(before),
        Operation::ReadRight => Answer::SawPart(before.map(|pair| pair.right)),
        Operation::ScanLeft => Answer::SawPart(before.map(|pair| pair.left)),
        Operation::Write => {
            *row = before.map(|_| both(value));
            Answer::Did(before.is_some())
        }
        Operation::WriteRight => {
            *row = before.map(|pair| Pair { right: value, ..pair });
            Answer::Did(before.is_some())
        }
        Operation::Modify => {
            *row = before.map(|pair| Pair { left: pair.left + 1, right: pair.right + 2 });
            Answer::Saw(before)
        }
        Operation::ModifyRight => {
            *row = before.map(|pair| Pair { right: pair.right + 3, ..pair });
            Answer::SawPart(before.map(|pair| pair.right))
        }
        Operation::UpdateRight => {
            *row = before.map(|pair| Pair { right: pair.right + 10, ..pair });
            Answer::Did(before.is_some())
        }
        Operation::UpdateAll => {
            *row = before.map(|pair| Pair { left: pair.left * 3, right: pair.right * 3 });
            Answer::Did(before.is_some())
        }
        Operation::Insert => {
            *row = before.or(Some(both(value)));
            Answer::Did(before.is_none())
        }
        Operation::Delete => Answer::Did(row.take().is_some()),
    }
}

/// Runs the same on the engine.
fn perform<P: Protocol<Native>>(
    tx: &mut Transaction<'_, P, Native>,
    table: &Table<u64>,
    key: u64,
    operation: Operation,
    value: u64,
) -> Result<Answer, Abort> {
    let whole = |row: &[u64]| Pair { left: row[0], right: row[1] };
    let put = |row: &mut [u64], pair: Pair| row.copy_from_slice(&[pair.left, pair.right]);
    let mut scan = |direction, columns| {
        let mut seen = None;
        tx.scan_rows(table, key..=key, usize::MAX, direction, columns, |found, row| {
            assert_eq!((found, seen), (key, None), "one key, once");
            seen = Some(whole(row));
            ControlFlow::Continue(())
        })?;
        Ok(seen)
    };
    Ok(match operation {
        Operation::Scan => Answer::Saw(scan(Direction::Forward, Projection::WHOLE)?),
        Operation::ScanLeft => Answer::SawPart(scan(Direction::Backward, LEFT)?.map(|pair| pair.left)),
        Operation::Read => Answer::Saw(tx.read_row(table, key, Projection::WHOLE)?.map(whole)),
        Operation::ReadRight => Answer::SawPart(tx.read_row(table, key, RIGHT)?.map(|row| row[1])),
        Operation::ReadMany => {
            let mut seen = [None; 2];
            tx.read_rows(table, &[key, key], Projection::WHOLE, |position, row| seen[position] = row.map(whole))?;
            assert_eq!(seen[0], seen[1], "one key twice in a batch");
            Answer::Saw(seen[0])
        }
        // The third operation of a sequence.
        Operation::Write if value.is_multiple_of(3) => {
            let (mut seen, mut wrote) = ([None; 2], false);
            let keys = (&[key; 3][..], &[false, true, false][..]);
            tx.read_or_write_rows(table, keys, Projection::WHOLE, Groups::ALL, |position, row| match row {
                ReadOrWritten::Read(row) => seen[position / 2] = row.map(whole),
                ReadOrWritten::Written(row) => wrote = row.map(|row| put(row, both(value))).is_some(),
            })?;
            assert_eq!((seen[0].is_some(), seen[1]), (wrote, wrote.then(|| both(value))), "in the order of the keys");
            Answer::Did(wrote)
        }
        Operation::Write => {
            Answer::Did(tx.write_row(table, key, Groups::ALL)?.map(|row| put(row, both(value))).is_some())
        }
        Operation::WriteRight => {
            Answer::Did(tx.write_row(table, key, RIGHT.groups())?.map(|row| row[1] = value).is_some())
        }
        Operation::Modify => Answer::Saw(tx.modify_row(table, key, Groups::ALL)?.map(|row| {
            let old = whole(row);
            put(row, Pair { left: old.left + 1, right: old.right + 2 });
            old
        })),
        Operation::ModifyRight => Answer::SawPart(tx.modify_row(table, key, RIGHT.groups())?.map(|row| {
            row[1] += 3;
            row[1] - 3
        })),
        Operation::UpdateRight => Answer::Did(tx.update_row(table, key, RowUpdate::new(&Pair::RIGHT.add(10)))?),
        Operation::UpdateAll => Answer::Did(tx.update_row(table, key, RowUpdate::new(&Triple))?),
        Operation::Insert => Answer::Did(tx.insert_row(table, key)?.map(|row| put(row, both(value))).is_some()),
        Operation::Delete => Answer::Did(tx.delete(table, key)?),
    })
}

pub(crate) struct OwnReads;

impl GenericTest<Native> for OwnReads {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        for index in INDEXES {
            for options in if is_thorough(name) { &ENGINE_OPTIONS[..] } else { &ENGINE_OPTIONS[..2] } {
                for history in [false, true] {
                    own_reads(name, make, index, history, options);
                }
            }
        }
    }
}

fn own_reads<P: Protocol<Native>>(
    name: &str,
    make: &dyn Fn() -> P,
    index: IndexKind,
    history: bool,
    options: &EngineOptions,
) {
    let engine = engine_with::<_, Native>(make(), history, options.clone());
    // Room for all keys, because a growing index aborts a transaction that has missed a key there.
    let rows = engine.create_table(&TableSpec::of::<Pair>("t", index, 4 * OPERATIONS.len().pow(3)));
    let mut worker = engine.worker().expect("a free slot");
    let mut loader = engine.loader().expect("a free slot");
    let operations: &[Operation] = if index == IndexKind::Hash { &OPERATIONS[..11] } else { &OPERATIONS };
    let mut key = 0;
    for first in operations {
        for second in operations {
            for third in operations {
                for (loaded, commits) in [(false, false), (false, true), (true, false), (true, true)] {
                    key += 10;
                    let before = loaded.then_some(both(500));
                    if loaded {
                        loader.insert(&rows, key, |row| row.copy_from_slice(&[500, 501])).expect("memory");
                    }
                    let case = || {
                        format!(
                            "{name} {index:?} {options:?}: {first:?}, {second:?}, {third:?} on {before:?}, commits: {commits}"
                        )
                    };
                    let mut state = before;
                    let outcome = worker.run(|tx| {
                        for (operation, value) in [first, second, third].into_iter().zip(1000..) {
                            let expected = model(&mut state, *operation, value);
                            assert_eq!(
                                perform(tx, &rows, key, *operation, value)?,
                                expected,
                                "{}: {operation:?}",
                                case()
                            );
                        }
                        if commits { Ok(()) } else { Err(tx.cancel()) }
                    });
                    match outcome {
                        Ok(()) => assert!(commits, "{}", case()),
                        Err(abort) => assert_eq!((commits, abort.reason), (false, AbortReason::User), "{}", case()),
                    }
                    let after = if commits { state } else { before };
                    let seen = worker.run(|tx| perform(tx, &rows, key, Operation::Read, 0)).expect("no conflict");
                    assert_eq!(seen, Answer::Saw(after), "{}: afterwards", case());
                    // Whatever was left behind, the key can be used.
                    let inserted = worker.run(|tx| perform(tx, &rows, key, Operation::Insert, 9)).expect("no conflict");
                    assert_eq!(inserted, Answer::Did(after.is_none()), "{}: inserted afterwards", case());
                }
            }
        }
    }
    if history {
        let recorded = contend_judge::recorded(&engine, worker.take_history());
        let verification = contend_judge::verify_history(&recorded, contend_engine::Isolation::Serializable);
        assert!(verification.passed, "{name} {index:?}: {} {:?}", verification.verdict, verification.explanation);
    }
}

#[test]
fn a_transaction_sees_its_own_writes() {
    for_each_protocol(&OwnReads);
    for_no_control(&OwnReads);
}

/// Many keys in one transaction: the sets switch from lists to hashing.
pub(crate) struct ManyKeys;

impl GenericTest<Native> for ManyKeys {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        for count in [15u64, 16, 17, 64, 65, 500] {
            let engine = engine::<_, Native>(make(), false);
            let rows = pairs(&engine, "t", IndexKind::Hash);
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
                            let pair = Pair { left: key + pass + 1, right: key + 1 + 2 * (pass + 1) };
                            assert_eq!(seen, Answer::Saw(Some(pair)), "{name}: {count} keys");
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
