//! A tombstone that leaves the index while other transactions work with its key.

use contend_engine::{IndexKind, NamedProtocol, Txn};
use contend_machine::Loom;
use contend_protocols::fault::{Only, id};
use contend_protocols::locking::bamboo::Bamboo;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::locking::wait_die::WaitDie;
use contend_protocols::multiversion::mvto::Mvto;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::optimistic::tictoc::TicToc;

use crate::world::{Tx, World, explore, insert, read, spawn, write};

/// Key 1 was deleted long ago, so that the first worker may take it out of the index.
fn deleted<P: NamedProtocol<Loom>>() -> World<P> {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2, 3]);
    let outcome = world.first.run(|tx| tx.delete(&world.rows, 1));
    assert_eq!(outcome, Ok(true));
    world.first.go_offline();
    for _ in 0..4 {
        assert!(world.engine.epochs().try_advance());
    }
    assert_eq!(world.first.tombstones(), 1);
    world
}

/// Inserts the key: the row exists afterwards if the transaction has committed, and only then.
fn beside_an_insert<P: NamedProtocol<Loom>>() {
    let mut world = deleted::<P>();
    let rows = world.rows;
    let (_, inserted) =
        world.beside(|worker, _| worker.collect(), move |worker| worker.run(|tx| insert(tx, &rows, 1, 7)));
    let row = world.row(1);
    assert_eq!(row, (inserted == Ok(true)).then_some(7), "the insert is lost, or was not undone: {inserted:?}");
}

/// One worker takes the tombstone out of the index, inserts the key anew and reads another row. The
/// other misses the key, by the tombstone or without it, and writes that row. Both must not commit
/// if neither has seen the other's write.
fn beside_a_read<P: NamedProtocol<Loom>>() {
    let mut world = deleted::<P>();
    let rows = world.rows;
    // The first worker has the tombstone.
    let mut reader = world.second.take().expect("not lent");
    let mut collector = world.first;
    let collecting = spawn(move || {
        collector.collect();
        let outcome = collector.run(|tx| {
            let is_old = read(tx, &rows, 2)? == Some(0);
            insert(tx, &rows, 1, 7).map(|_| is_old)
        });
        (collector, outcome)
    });
    let mine = reader.run(|tx| {
        let missed = read(tx, &world.rows, 1)?.is_none();
        write(tx, &world.rows, 2, 1).map(|()| missed)
    });
    let (_collector, theirs) = collecting.join().expect("no panic");
    assert!(!(mine == Ok(true) && theirs == Ok(true)), "stale absence: each must come before the other");
}

/// One worker reads a row and inserts the key anew. The other misses the key, by the tombstone, and
/// writes the row; then it takes the tombstone out of the index. The engine has to remember the
/// transaction that missed the key without the tombstone. Both must not commit if neither has seen
/// the other's write.
fn after_a_read<P: NamedProtocol<Loom>>() {
    let mut world = deleted::<P>();
    // A new worker in its place leaves the tombstone to the first worker that looks for one.
    drop(world.first);
    world.first = world.engine.worker().expect("the slot is free");
    // Row 2 has been read at a later time than it was written. So a reader of it need not commit
    // later than a transaction that overwrites it.
    for _ in 0..2 {
        world.first.run(|tx| write(tx, &world.rows, 3, 0)).expect("nobody else is there");
    }
    let both = |tx: &mut Tx<'_, P>| read(tx, &world.rows, 3).and_then(|_| read(tx, &world.rows, 2));
    world.first.run(both).expect("nobody else is there");
    let rows = world.rows;
    let (mine, theirs) = world.beside(
        |worker, rows| {
            worker.run(|tx| {
                let is_old = read(tx, rows, 2)? == Some(0);
                insert(tx, rows, 1, 7).map(|_| is_old)
            })
        },
        move |worker| {
            let outcome = worker.run(|tx| {
                let missed = read(tx, &rows, 1)?.is_none();
                write(tx, &rows, 2, 1).map(|()| missed)
            });
            worker.collect();
            outcome
        },
    );
    assert!(!(mine == Ok(true) && theirs == Ok(true)), "stale absence: each must come before the other");
}

macro_rules! holds {
    ($($name:ident $preemptions:literal: $scenario:ident::<$protocol:ty>;)*) => {
        $(#[test]
        fn $name() {
            explore($preemptions, $scenario::<$protocol>);
        })*
    };
}

holds! {
    silo_beside_an_insert 2: beside_an_insert::<Silo>;
    tictoc_beside_an_insert 2: beside_an_insert::<TicToc>;
    nowait_beside_an_insert 2: beside_an_insert::<NoWait>;
    waitdie_beside_an_insert 2: beside_an_insert::<WaitDie<Loom>>;
    bamboo_beside_an_insert 2: beside_an_insert::<Bamboo<Loom>>;
    mvto_beside_an_insert 2: beside_an_insert::<Mvto<Loom>>;
    silo_beside_a_read 1: beside_a_read::<Silo>;
    tictoc_beside_a_read 1: beside_a_read::<TicToc>;
    nowait_beside_a_read 2: beside_a_read::<NoWait>;
    waitdie_beside_a_read 2: beside_a_read::<WaitDie<Loom>>;
    bamboo_beside_a_read 1: beside_a_read::<Bamboo<Loom>>;
    mvto_beside_a_read 1: beside_a_read::<Mvto<Loom>>;
    tictoc_after_a_read 1: after_a_read::<TicToc>;
    mvto_after_a_read 1: after_a_read::<Mvto<Loom>>;
}

#[test]
#[should_panic(expected = "stale absence")]
fn tictoc_that_forgets_times_after_a_read() {
    type Broken = Only<{ id("forget_times_of_leaves") }>;
    explore(1, after_a_read::<TicToc<Broken>>);
}
