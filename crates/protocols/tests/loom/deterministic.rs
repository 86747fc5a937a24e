//! Batches of two workers: what all have announced is seen, and what all have installed.
//!
//! A worker goes offline when it is done, since the other would wait for its next transaction.

use contend_engine::{Abort, AbortReason, IndexKind, NamedProtocol, Worker};
use contend_machine::Loom;
use contend_protocols::deterministic::aria::Aria;
use contend_protocols::deterministic::calvin::Calvin;
use contend_protocols::fault::{Only, id};

use crate::world::{Rows, Tx, World, explore, insert, read, write};

/// A row that a transaction reads, and one that it writes.
type Accesses = (u64, u64);

/// Runs a transaction until it commits, and returns the value that it has read.
fn commit<P: NamedProtocol<Loom>>(worker: &mut Worker<P, Loom>, rows: &Rows, (reads, writes): Accesses) -> u64 {
    let body = |tx: &mut Tx<'_, P>| {
        let seen = read(tx, rows, reads)?.expect("loaded");
        write(tx, rows, writes, seen + 1).map(|()| seen)
    };
    loop {
        let outcome = worker.run_declared(
            |declaration| {
                declaration.row(rows, reads, false);
                declaration.row(rows, writes, true);
            },
            body,
        );
        match outcome {
            Ok(seen) => return seen,
            Err(Abort { reason, .. }) => assert!(reason.is_conflict(), "{reason}"),
        }
    }
}

/// Each worker runs transactions. What they have read and the final rows are those of a serial
/// order: the first word of each row is the number of a chain of writes.
fn chains<P: NamedProtocol<Loom>>(first: &'static [Accesses], second: &'static [Accesses], allowed: &[[u64; 2]]) {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let rows = world.rows;
    let run = |worker: &mut Worker<P, Loom>, rows: &Rows, all: &[Accesses]| {
        all.iter().for_each(|accesses| _ = commit(worker, rows, *accesses));
        worker.go_offline();
    };
    world.beside(|worker, rows| run(worker, rows, first), move |worker| run(worker, &rows, second));
    let left = [1, 2].map(|key| world.row(key).expect("loaded"));
    assert!(allowed.contains(&left), "no serial order ends in {left:?}");
}

/// Each transaction reads the row that the other writes.
fn write_skew<P: NamedProtocol<Loom>>() {
    chains::<P>(&[(1, 2)], &[(2, 1)], &[[2, 1], [1, 2]]);
}

/// Both transactions add one to a row.
fn lost_update<P: NamedProtocol<Loom>>() {
    chains::<P>(&[(1, 1)], &[(1, 1)], &[[2, 0]]);
}

/// A worker has a second transaction, in a batch of its own or beside the other worker's.
fn two_batches<P: NamedProtocol<Loom>>() {
    chains::<P>(&[(1, 1), (1, 1)], &[(1, 1)], &[[3, 0]]);
}

/// A tombstone is taken out of the index beside an insert of its key.
fn beside_an_insert<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    world.second.as_mut().expect("not lent").go_offline();
    assert_eq!(world.first.run(|tx| contend_engine::Txn::delete(tx, &world.rows, 1)), Ok(true));
    world.first.go_offline();
    for _ in 0..4 {
        assert!(world.engine.epochs().try_advance());
    }
    assert_eq!(world.first.tombstones(), 1);
    let rows = world.rows;
    let (_, inserted) = world.beside(
        |worker, _| worker.collect(),
        move |worker| {
            let outcome = worker.run(|tx| insert(tx, &rows, 1, 7));
            worker.go_offline();
            outcome
        },
    );
    assert!(inserted.is_ok_and(|done| done) || inserted.is_err_and(|abort| abort.reason != AbortReason::User));
    let row = world.row(1);
    assert_eq!(row, (inserted == Ok(true)).then_some(7), "the insert is lost, or was not undone: {inserted:?}");
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
    aria_write_skew 1: write_skew::<Aria<Loom>>;
    aria_lost_update 1: lost_update::<Aria<Loom>>;
    aria_two_batches 1: two_batches::<Aria<Loom>>;
    aria_beside_an_insert 2: beside_an_insert::<Aria<Loom>>;
    calvin_write_skew 1: write_skew::<Calvin<Loom>>;
    calvin_lost_update 1: lost_update::<Calvin<Loom>>;
    calvin_two_batches 1: two_batches::<Calvin<Loom>>;
    calvin_beside_an_insert 1: beside_an_insert::<Calvin<Loom>>;
}

// Calvin's faults take loom too long; the explorer finds them.
macro_rules! fails {
    ($($name:ident $fault:ident $preemptions:literal: $scenario:ident::<$protocol:ident> $message:literal;)*) => {
        $(#[test]
        #[should_panic(expected = $message)]
        fn $name() {
            explore($preemptions, $scenario::<$protocol<Loom, Only<{ id(stringify!($fault)) }>>>);
        })*
    };
}

fails! {
    aria_that_reserves_late reserve_late 2: lost_update::<Aria> "no serial order";
    aria_that_begins_early begin_early 2: lost_update::<Aria> "no serial order";
    aria_without_fences forget_fences 2: beside_an_insert::<Aria> "the insert is lost";
    aria_that_unlinks_reserved unlink_reserved 2: beside_an_insert::<Aria> "the insert is lost";
}
