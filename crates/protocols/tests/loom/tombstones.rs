//! A tombstone that leaves the index while others work with its key.

use contend_engine::{IndexKind, Protocol, Txn};
use contend_machine::Loom;
use contend_protocols::bamboo::Bamboo;
use contend_protocols::mvto::Mvto;
use contend_protocols::no_wait::NoWait;
use contend_protocols::silo::Silo;
use contend_protocols::tictoc::TicToc;
use contend_protocols::wait_die::WaitDie;

use crate::world::{World, explore, insert, read, write};

/// Key 1 was deleted long ago, so that the first worker may take it out of the index.
fn deleted<P: Protocol<Loom>>() -> World<P> {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let outcome = world.first.run(|tx| tx.delete(&world.rows, 1));
    assert_eq!(outcome, Ok(true));
    world.first.go_offline();
    for _ in 0..4 {
        assert!(world.engine.epochs().try_advance());
    }
    assert_eq!(world.first.tombstones(), 1);
    world
}

/// An insert of the key: the row is there afterwards if it has committed, and only then.
fn beside_an_insert<P: Protocol<Loom>>() {
    let mut world = deleted::<P>();
    let rows = std::sync::Arc::clone(&world.rows);
    let (_, inserted) =
        world.beside(|worker, _| worker.collect(), move |worker| worker.run(|tx| insert(tx, &rows, 1, 7)));
    let row = world.row(1);
    assert_eq!(row, (inserted == Ok(true)).then_some(7), "the insert is lost, or was not undone: {inserted:?}");
}

/// One takes the tombstone out of the index, inserts the key anew and reads another row. The other misses the key, by the tombstone or without it,
/// and writes that row. Not both commit having seen nothing of each other.
fn beside_a_read<P: Protocol<Loom>>() {
    let mut world = deleted::<P>();
    let rows = std::sync::Arc::clone(&world.rows);
    let (mine, theirs) = world.beside(
        |worker, rows| {
            worker.collect();
            worker.run(|tx| {
                let is_old = read(tx, rows, 2)? == Some(0);
                insert(tx, rows, 1, 7).map(|_| is_old)
            })
        },
        move |worker| {
            worker.run(|tx| {
                let missed = read(tx, &rows, 1)?.is_none();
                write(tx, &rows, 2, 1).map(|()| missed)
            })
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
    silo_beside_a_read 2: beside_a_read::<Silo>;
    tictoc_beside_a_read 2: beside_a_read::<TicToc>;
    nowait_beside_a_read 2: beside_a_read::<NoWait>;
    waitdie_beside_a_read 2: beside_a_read::<WaitDie<Loom>>;
    bamboo_beside_a_read 2: beside_a_read::<Bamboo<Loom>>;
    mvto_beside_a_read 2: beside_a_read::<Mvto<Loom>>;
}
