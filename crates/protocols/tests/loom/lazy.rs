//! Lazy evaluation by two workers: what a first part has installed is seen by the next, and what a
//! later part has installed by all that come after it.

use contend_engine::{Abort, IndexKind, NamedProtocol, RawTxn, Txn, Worker};
use contend_machine::Loom;
use contend_protocols::fault::{Only, id};
use contend_protocols::lazy::Lazy;

use crate::world::{Rows, Tx, World, explore, insert, read, write};

/// Adds one to a row.
fn add_one<P: NamedProtocol<Loom>>(tx: &mut Tx<'_, P>, rows: &Rows, key: u64) -> Result<u64, Abort> {
    let seen = read(tx, rows, key)?.expect("loaded");
    write(tx, rows, key, seen + 1).map(|()| seen)
}

/// Adds one to a row now, and to another one later.
fn now_and_later<P: NamedProtocol<Loom>>(worker: &mut Worker<P, Loom>, rows: &Rows, [now, later]: [u64; 2]) {
    let done = worker.run(|tx| {
        add_one(tx, rows, now)?;
        tx.later_row(rows, later, true);
        tx.later(|tx| add_one(tx, rows, later))
    });
    done.expect("no transaction aborts");
    worker.go_offline();
}

/// Both transactions add one to two rows, one of them now and one later.
fn crossed<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let rows = world.rows;
    world
        .beside(|worker, rows| now_and_later(worker, rows, [1, 2]), move |worker| now_and_later(worker, &rows, [2, 1]));
    assert_eq!([1, 2].map(|key| world.row(key)), [Some(2); 2], "an addition is lost");
}

/// A later part reads a row, and a first part writes it.
fn reader_and_writer<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let rows = world.rows;
    let copy = |worker: &mut Worker<P, Loom>, rows: &Rows| {
        let seen = worker.run(|tx| {
            tx.later_row(rows, 1, false);
            tx.later_row(rows, 2, false);
            tx.later(|tx| Ok([read(tx, rows, 1)?.expect("loaded"), read(tx, rows, 2)?.expect("loaded")]))
        });
        worker.go_offline();
        seen.expect("no transaction aborts")
    };
    let (seen, ()) = world.beside(copy, move |worker| {
        let done = worker.run(|tx| {
            write(tx, &rows, 1, 7)?;
            tx.later_row(&rows, 2, true);
            tx.later(|tx| write(tx, &rows, 2, 7))
        });
        done.expect("no transaction aborts");
        worker.go_offline();
    });
    assert!(seen == [0, 0] || seen == [7, 7], "no serial order reads {seen:?}");
}

/// A later part inserts a row, which a first part looks for.
fn insert_and_miss<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1]);
    let rows = world.rows;
    let look = |worker: &mut Worker<P, Loom>, rows: &Rows| {
        let seen = worker.run(|tx| Ok((read(tx, rows, 1)?, read(tx, rows, 2)?)));
        worker.go_offline();
        seen.expect("no transaction aborts")
    };
    let (seen, ()) = world.beside(look, move |worker| {
        let done = worker.run(|tx| {
            write(tx, &rows, 1, 7)?;
            tx.later_inserts(&rows, 2..=2);
            tx.later(|tx| insert(tx, &rows, 2, 7))
        });
        assert_eq!(done, Ok(true));
        worker.go_offline();
    });
    assert!(seen == (Some(0), None) || seen == (Some(7), Some(7)), "no serial order reads {seen:?}");
}

macro_rules! holds {
    ($($name:ident $preemptions:literal: $scenario:ident;)*) => {
        $(#[test]
        fn $name() {
            explore($preemptions, $scenario::<Lazy<Loom>>);
        })*
    };
}

holds! {
    first_and_later_parts_cross 1: crossed;
    a_first_part_overtakes_no_reader 1: reader_and_writer;
    an_insert_to_come_is_waited_for 1: insert_and_miss;
}

macro_rules! fails {
    ($($name:ident $fault:ident $preemptions:literal: $scenario:ident $message:literal;)*) => {
        $(#[test]
        #[should_panic(expected = $message)]
        fn $name() {
            explore($preemptions, $scenario::<Lazy<Loom, Only<{ id(stringify!($fault)) }>>>);
        })*
    };
}

fails! {
    lazy_that_passes_before_it_asks pass_before_requests 2: crossed "an addition is lost";
    lazy_that_ignores_readers ignore_readers 2: reader_and_writer "no serial order";
    lazy_that_forgets_inserts forget_inserts 2: insert_and_miss "no serial order";
}
