//! Transactions that declare their rows: a protocol that relies on all of them refuses every access
//! to another one by name, and the other protocols don't mind.

use std::ops::ControlFlow;

use contend_engine::{
    Abort, AbortReason, AddToWord, Declaration, DeclarationNeeds, Direction, Erased, Groups, IndexKind, Projection,
    Protocol, RawTxn, RowUpdate, Table, Transaction, Txn,
};
use contend_machine::Native;

use crate::support::{ProtocolTest, engine, for_each_protocol, table};

type Tx<'t> = Transaction<'t, Erased<Native>, Native>;

/// What each transaction declares, and whether it may write it. Rows 1 to 4 exist.
const DECLARED: [(u64, bool); 4] = [(1, true), (2, true), (4, false), (50, true)];

const WHOLE: Projection<'static> = Projection::WHOLE;

fn scan(tx: &mut Tx<'_>, rows: &Table<u64>, (low, high): (u64, u64), direction: Direction) -> Result<usize, Abort> {
    tx.scan_rows(rows, low..=high, usize::MAX, direction, WHOLE, |_, _| ControlFlow::Continue(()))
}

/// An access, and a part of the sentence that refuses it where it was not declared.
type Access = (fn(&mut Tx<'_>, &Table<u64>) -> Result<(), Abort>, &'static str);

/// Accesses to rows that are not declared.
const REFUSED: [Access; 17] = [
    (|tx, rows| tx.read_row(rows, 3, WHOLE).map(drop), "reads the key 3 of the table t, which it has not declared"),
    (|tx, rows| tx.read_rows(rows, &[1, 3], WHOLE, |_, _| ()).map(drop), "reads the key 3"),
    // A miss is an access as well: another transaction may insert there.
    (|tx, rows| tx.read_row(rows, 60, WHOLE).map(drop), "reads the key 60"),
    (|tx, rows| tx.write_row(rows, 3, Groups::ALL).map(|row| row.into_iter().for_each(|row| row.fill(9))), "the key 3"),
    (|tx, rows| tx.write_row(rows, 60, Groups::ALL).map(drop), "the key 60"),
    (|tx, rows| tx.write_row(rows, 4, Groups::ALL).map(drop), "writes the key 4"),
    (|tx, rows| tx.modify_row(rows, 3, Groups::ALL).map(drop), "the key 3"),
    (|tx, rows| tx.modify_row(rows, 4, Groups::ALL).map(drop), "writes the key 4"),
    (|tx, rows| tx.modify_rows(rows, &[1, 4], Groups::ALL, |_, _| ()), "writes the key 4"),
    (
        |tx, rows| {
            tx.update_row(rows, 3, RowUpdate::add_to_word(&AddToWord { groups: Groups::ALL, word: 0, value: 1 }))
                .map(drop)
        },
        "the key 3",
    ),
    (|tx, rows| tx.insert_row(rows, 60).map(drop), "writes the key 60"),
    (|tx, rows| tx.insert_row(rows, 3).map(drop), "writes the key 3"),
    (|tx, rows| tx.delete_row(rows, 3).map(drop), "the key 3"),
    (|tx, rows| tx.delete_row(rows, 4).map(drop), "writes the key 4"),
    (|tx, rows| scan(tx, rows, (1, 3), Direction::Forward).map(drop), "reads the key"),
    (|tx, rows| scan(tx, rows, (1, 3), Direction::Backward).map(drop), "reads the key"),
    // No row stands there, and a part of the keys is declared.
    (|tx, rows| scan(tx, rows, (50, 51), Direction::Forward).map(drop), "reads the key"),
];

struct DeclaredRows;

impl ProtocolTest<Native> for DeclaredRows {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        let engine = engine::<_, Native>(make(), false);
        let is_complete = engine.protocol().info().needs == DeclarationNeeds::RowsOrPartitions;
        let rows: Table<u64> = table(&engine, "t", IndexKind::Ordered, 8);
        let mut worker = engine.worker().expect("a free slot");
        for key in 1..=4 {
            let inserted = worker.run(|tx| Ok(tx.insert_row(&rows, key)?.map(|row| row.fill(key)).is_some()));
            assert_eq!(inserted, Ok(true), "{name}: {key}");
        }
        let declare = |declaration: &mut Declaration<Native>| {
            for (key, writes) in DECLARED {
                declaration.row(&rows, key, writes);
            }
        };
        for (number, (access, sentence)) in REFUSED.iter().enumerate() {
            let outcome = worker.run_declared(declare, |tx| {
                tx.modify_row(&rows, 1, Groups::ALL)?.expect("it is there").fill(100);
                access(tx, &rows)?;
                // The others leave no trace either.
                if is_complete { Ok(()) } else { Err(tx.cancel()) }
            });
            let reason = outcome.expect_err(sentence).reason;
            let told = worker.take_undeclared();
            if is_complete {
                assert_eq!(reason, AbortReason::Undeclared, "{name}: {number}");
                assert!(told.as_ref().is_some_and(|told| told.contains(sentence)), "{name}: {number}: {told:?}");
            } else {
                assert_eq!((reason, told), (AbortReason::User, None), "{name}: {number}: {sentence}");
            }
            // Nothing is left, and what was declared can be done.
            let seen = worker.run_declared(declare, |tx| {
                let first = tx.read_row(&rows, 1, WHOLE)?.map(|row| row[0]);
                let fourth = tx.read_row(&rows, 4, WHOLE)?.map(|row| row[0]);
                let scanned = scan(tx, &rows, (1, 2), Direction::Backward)?;
                assert!(tx.insert_row(&rows, 50)?.is_some() && tx.delete_row(&rows, 50)?);
                Ok((first, fourth, scanned))
            });
            assert_eq!(seen, Ok((Some(1), Some(4), 2)), "{name}: {number}");
            // A transaction that declares nothing may touch everything.
            let third = worker.run(|tx| Ok(tx.read_row(&rows, 3, WHOLE)?.map(|row| row[0])));
            assert_eq!(third, Ok(Some(3)), "{name}: {number}");
        }
    }
}

#[test]
fn nothing_undeclared_is_touched() {
    for_each_protocol(&DeclaredRows);
    let of_all = |needs| contend_protocols::all_protocols::<Native>().iter().any(|(info, _)| info.needs == needs);
    assert!(of_all(DeclarationNeeds::RowsOrPartitions) && of_all(DeclarationNeeds::Rows), "both were tested");
}
