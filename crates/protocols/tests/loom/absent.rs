//! Keys that are absent: node sets, and times of leaves.

use std::ops::ControlFlow;

use contend_engine::{Abort, Direction, IndexKind, NamedProtocol, Projection, RawTxn};
use contend_machine::Loom;
use contend_protocols::fault::{Faulty, Only, id};
use contend_protocols::locking::bamboo::Bamboo;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::locking::wound_wait::WoundWait;
use contend_protocols::multiversion::cicada::Cicada;
use contend_protocols::multiversion::ermia::Ermia;
use contend_protocols::multiversion::hekaton::Hekaton;
use contend_protocols::multiversion::mvto::Mvto;
use contend_protocols::optimistic::occ::Occ;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::optimistic::tictoc::TicToc;
use contend_protocols::timestamp_ordering::TimestampOrdering;

use crate::world::{Rows, Tx, World, explore, insert, read, write};

/// The rows at the beginning: the first leaf is full, and the second has room.
const KEYS: &[u64] = &[10, 20, 30];
/// A key whose insert would split the first leaf, and one that goes to the second.
const SPLITS: u64 = 15;
const FITS: u64 = 35;

/// Each transaction misses the key that the other inserts: not both may commit. `misses` looks for
/// a key.
fn crossed_inserts_by<P: NamedProtocol<Loom>>(
    index: IndexKind,
    misses: fn(&mut Tx<'_, P>, &Rows, u64) -> Result<bool, Abort>,
) {
    let mut world = World::<P>::new(index, 1, KEYS);
    let (mine, theirs) = world.both(
        move |tx, rows| {
            let missed = misses(tx, rows, SPLITS)?;
            insert(tx, rows, FITS, 1).map(|_| missed)
        },
        move |tx, rows| {
            let missed = misses(tx, rows, FITS)?;
            insert(tx, rows, SPLITS, 1).map(|_| missed)
        },
    );
    assert!(!(mine == Ok(true) && theirs == Ok(true)), "stale absence: both have committed on it");
}

fn is_absent<P: NamedProtocol<Loom>>(tx: &mut Tx<'_, P>, rows: &Rows, key: u64) -> Result<bool, Abort> {
    Ok(read(tx, rows, key)?.is_none())
}

fn is_not_in_scan<P: NamedProtocol<Loom>>(tx: &mut Tx<'_, P>, rows: &Rows, key: u64) -> Result<bool, Abort> {
    let goes_on = |_: u64, _: &[u64]| ControlFlow::Continue(());
    let range = key - 1..=key + 1;
    Ok(tx.scan_rows(rows, range, 2, Direction::Forward, Projection::WHOLE, goes_on)? == 0)
}

fn crossed_inserts<P: NamedProtocol<Loom>>() {
    crossed_inserts_by::<P>(IndexKind::Ordered, is_absent);
}

fn crossed_inserts_hashed<P: NamedProtocol<Loom>>() {
    crossed_inserts_by::<P>(IndexKind::Hash, is_absent);
}

fn crossed_scans<P: NamedProtocol<Loom>>() {
    crossed_inserts_by::<P>(IndexKind::Ordered, is_not_in_scan);
}

/// One transaction misses a key and writes a row. The other inserts the key, into a leaf that
/// splits, and reads the row. Either it has seen the write, or the key was seen, or not both
/// commit.
fn miss_and_write<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Ordered, 1, KEYS);
    miss_and_write_in(&mut world);
}

fn miss_and_write_in<P: NamedProtocol<Loom>>(world: &mut World<P>) {
    let (mine, theirs) = world.both(
        |tx, rows| {
            let is_old = read(tx, rows, 30)? == Some(0);
            insert(tx, rows, SPLITS, 1).map(|_| is_old)
        },
        |tx, rows| {
            let missed = is_absent(tx, rows, SPLITS)?;
            write(tx, rows, 30, 1).map(|()| missed)
        },
    );
    assert!(!(mine == Ok(true) && theirs == Ok(true)), "stale absence: each must come before the other");
}

/// The same, but the row was read at a later time than it was written. So a reader of it need not
/// commit later than a transaction that overwrites it.
fn miss_and_write_late<P: NamedProtocol<Loom>>() {
    miss_and_write_late_in::<P>(IndexKind::Ordered);
}

fn miss_and_write_late_hashed<P: NamedProtocol<Loom>>() {
    miss_and_write_late_in::<P>(IndexKind::Hash);
}

fn miss_and_write_late_in<P: NamedProtocol<Loom>>(index: IndexKind) {
    let mut world = World::<P>::new(index, 1, KEYS);
    for _ in 0..2 {
        let outcome = world.first.run(|tx| write(tx, &world.rows, 10, 0));
        outcome.expect("nobody else is there");
    }
    let outcome = world.first.run(|tx| {
        read(tx, &world.rows, 10)?;
        read(tx, &world.rows, 30).map(drop)
    });
    outcome.expect("nobody else is there");
    miss_and_write_in(&mut world);
}

macro_rules! caught {
    ($name:ident, $preemptions:literal, $scenario:ident::<$protocol:ty>, $fault:ident) => {
        #[test]
        #[should_panic(expected = "stale absence")]
        fn $name() {
            type Broken = Only<{ id(stringify!($fault)) }>;
            explore($preemptions, $scenario::<Faulty<$protocol, Broken>>);
        }
    };
}

macro_rules! holds {
    ($name:ident, $preemptions:literal, $scenario:ident::<$protocol:ty>) => {
        #[test]
        fn $name() {
            explore($preemptions, $scenario::<$protocol>);
        }
    };
}

mod node_sets {
    use super::*;

    holds!(silo, 1, crossed_inserts::<Silo>);
    holds!(silo_hashed, 2, crossed_inserts_hashed::<Silo>);
    holds!(silo_scans, 1, crossed_scans::<Silo>);
    holds!(silo_beside_a_split, 1, miss_and_write::<Silo>);
    holds!(nowait, 2, crossed_inserts::<NoWait>);
    holds!(nowait_hashed, 2, crossed_inserts_hashed::<NoWait>);
    holds!(nowait_scans, 2, crossed_scans::<NoWait>);
    holds!(nowait_beside_a_split, 2, miss_and_write::<NoWait>);
    holds!(woundwait, 1, crossed_inserts::<WoundWait<Loom>>);
    holds!(bamboo, 1, crossed_inserts::<Bamboo<Loom>>);
    holds!(occ, 1, crossed_inserts::<Occ<Loom>>);
    caught!(silo_that_forgets_gaps, 1, crossed_inserts::<Silo<Broken>>, forget_gaps);
    caught!(silo_without_fence, 1, crossed_inserts::<Silo<Broken>>, forget_fences);
    caught!(silo_without_fence_hashed, 1, crossed_inserts_hashed::<Silo<Broken>>, forget_fences);
    caught!(nowait_that_forgets_gaps, 1, crossed_inserts::<NoWait<Broken>>, forget_gaps);
    caught!(nowait_without_fence, 1, crossed_inserts::<NoWait<Broken>>, forget_fences);
    caught!(nowait_without_fence_scans, 1, crossed_scans::<NoWait<Broken>>, forget_fences);
    caught!(woundwait_without_fence, 1, crossed_inserts::<WoundWait<Loom, Broken>>, forget_fences);
    caught!(bamboo_without_fence, 1, crossed_inserts::<Bamboo<Loom, Broken>>, forget_fences);
    caught!(occ_without_fence, 1, crossed_inserts::<Occ<Loom, Broken>>, forget_fences);
}

mod times_of_leaves {
    use super::*;

    holds!(tictoc, 1, crossed_inserts::<TicToc>);
    holds!(tictoc_beside_a_split, 1, miss_and_write::<TicToc>);
    holds!(tictoc_in_another_order, 1, miss_and_write_late::<TicToc>);
    holds!(tictoc_in_another_order_hashed, 2, miss_and_write_late_hashed::<TicToc>);
    holds!(mvto, 1, crossed_inserts::<Mvto<Loom>>);
    holds!(cicada_hashed, 1, crossed_inserts_hashed::<Cicada<Loom>>);
    holds!(ermia_hashed, 1, crossed_inserts_hashed::<Ermia<Loom>>);
    holds!(hekaton_hashed, 1, crossed_inserts_hashed::<Hekaton<Loom>>);
    holds!(mvto_hashed, 1, crossed_inserts_hashed::<Mvto<Loom>>);
    holds!(to, 2, crossed_inserts::<TimestampOrdering<Loom>>);
    caught!(tictoc_without_fences, 1, miss_and_write_late::<TicToc<Broken>>, forget_fences);
    caught!(tictoc_that_forgets_times, 2, miss_and_write_late::<TicToc<Broken>>, forget_times_of_leaves);
    caught!(tictoc_that_forgets_times_hashed, 2, miss_and_write_late_hashed::<TicToc<Broken>>, forget_times_of_leaves);
    caught!(mvto_that_forgets_gaps, 1, crossed_inserts::<Mvto<Loom, Broken>>, forget_gaps);
    caught!(mvto_that_forgets_gaps_hashed, 1, crossed_inserts_hashed::<Mvto<Loom, Broken>>, forget_gaps);
    caught!(cicada_that_forgets_gaps, 1, crossed_inserts::<Cicada<Loom, Broken>>, forget_gaps);
    caught!(cicada_that_forgets_gaps_hashed, 1, crossed_inserts_hashed::<Cicada<Loom, Broken>>, forget_gaps);
    caught!(to_without_fences, 1, crossed_inserts::<TimestampOrdering<Loom, Broken>>, forget_fences);
}
