//! Existing rows: each protocol's locks, marks and validations.

use contend_engine::{Abort, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Txn};
use contend_machine::Loom;
use contend_protocols::fault::{Faulty, Only, id};
use contend_protocols::locking::bamboo::Bamboo;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::locking::wait_die::WaitDie;
use contend_protocols::locking::wound_wait::WoundWait;
use contend_protocols::multiversion::cicada::Cicada;
use contend_protocols::multiversion::ermia::Ermia;
use contend_protocols::multiversion::hekaton::Hekaton;
use contend_protocols::multiversion::msto::Msto;
use contend_protocols::multiversion::mvto::Mvto;
use contend_protocols::multiversion::snapshot_isolation::SnapshotIsolation;
use contend_protocols::optimistic::mocc::Mocc;
use contend_protocols::optimistic::occ::Occ;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::optimistic::tictoc::TicToc;
use contend_protocols::timestamp_ordering::TimestampOrdering;

use crate::world::{Rows, Tx, World, explore, read, write};

/// One transaction writes a row of two words, the other reads it: a commit has read a whole row.
fn whole_rows<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 2, &[1]);
    let (seen, _) = world.both(
        |tx, rows| Ok(tx.read_row(rows, 1, Projection::WHOLE)?.map(<[u64]>::to_vec).expect("loaded")),
        |tx, rows| write(tx, rows, 1, 5).map(|()| Vec::new()),
    );
    if let Ok(row) = seen {
        assert!(row == [0, 0] || row == [5, 5], "a torn row: {row:?}");
    }
}

/// One transaction writes two rows, the other reads both: it sees all of a commit or nothing.
fn whole_commits<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let (seen, _) = world.both(
        |tx, rows| Ok([read(tx, rows, 1)?, read(tx, rows, 2)?]),
        |tx, rows| {
            write(tx, rows, 1, 5)?;
            write(tx, rows, 2, 5).map(|()| [None; 2])
        },
    );
    if let Ok([first, second]) = seen {
        assert!(first == second, "half of a commit: {first:?} and {second:?}");
    }
}

/// Each transaction reads the row that the other writes: not both may commit with the old row.
fn write_skew<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let (mine, theirs) = world.both(
        |tx, rows| {
            let seen = read(tx, rows, 1)?;
            write(tx, rows, 2, 1).map(|()| seen)
        },
        |tx, rows| {
            let seen = read(tx, rows, 2)?;
            write(tx, rows, 1, 1).map(|()| seen)
        },
    );
    assert!(!(mine == Ok(Some(0)) && theirs == Ok(Some(0))), "write skew: both have committed on the old rows");
}

/// Both transactions add 1 to a row, in one access.
fn lost_addition<P: NamedProtocol<Loom>>() {
    lost_by::<P>(|tx, rows| {
        tx.modify_row(rows, 1, Groups::ALL)?.expect("loaded")[0] += 1;
        Ok(())
    });
}

/// Both transactions read a row, and then write it back increased by 1.
fn lost_update<P: NamedProtocol<Loom>>() {
    lost_by::<P>(|tx, rows| {
        let seen = read(tx, rows, 1)?.expect("loaded");
        write(tx, rows, 1, seen + 1)
    });
}

fn lost_by<P: NamedProtocol<Loom>>(add: fn(&mut Tx<'_, P>, &Rows) -> Result<(), Abort>) {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1]);
    let (mine, theirs) = world.both(add, add);
    let committed = u64::from(mine.is_ok()) + u64::from(theirs.is_ok());
    assert_eq!(world.row(1), Some(committed), "a lost update: {mine:?} and {theirs:?}");
}

/// One transaction writes, and gives up; the other reads, and sees nothing of that write.
fn dirty_read<P: NamedProtocol<Loom>>() {
    let mut world = World::<P>::new(IndexKind::Hash, 1, &[1, 2]);
    let (seen, _) = world.both(
        |tx, rows| read(tx, rows, 1),
        |tx, rows| {
            tx.modify_row(rows, 1, Groups::ALL)?.expect("loaded")[0] = 5;
            // Another access, at which the write may be exposed.
            read(tx, rows, 2)?;
            Err(tx.cancel())
        },
    );
    assert!(seen.is_err() || seen == Ok(Some(0)), "a dirty read: {seen:?}");
}

/// The finding that a model must make: an impossible outcome, by a broken protocol.
macro_rules! caught {
    ($name:ident, $message:literal, $preemptions:literal, $scenario:ident::<$protocol:ty>, $fault:ident) => {
        #[test]
        #[should_panic(expected = $message)]
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

mod optimistic {
    use super::*;

    holds!(silo_reads_whole_rows, 2, whole_rows::<Silo>);
    holds!(silo_has_no_write_skew, 2, write_skew::<Silo>);
    holds!(silo_loses_no_update, 2, lost_update::<Silo>);
    holds!(mocc_has_no_write_skew, 2, write_skew::<Mocc>);
    holds!(tictoc_reads_whole_rows, 2, whole_rows::<TicToc>);
    holds!(tictoc_has_no_write_skew, 2, write_skew::<TicToc>);
    holds!(tictoc_loses_no_update, 2, lost_update::<TicToc>);
    holds!(occ_reads_whole_rows, 2, whole_rows::<Occ<Loom>>);
    holds!(occ_has_no_write_skew, 2, write_skew::<Occ<Loom>>);
    caught!(silo_that_ignores_locks, "write skew", 2, write_skew::<Silo<Broken>>, ignore_locks_in_validation);
    caught!(silo_without_fence, "write skew", 2, write_skew::<Silo<Broken>>, forget_fences);
    caught!(silo_whose_rows_come_first, "torn", 2, whole_rows::<Silo<Broken>>, forget_fences);
    caught!(mocc_without_fence, "write skew", 2, write_skew::<Mocc<Broken>>, forget_fences);
    caught!(tictoc_whose_rows_come_first, "torn", 2, whole_rows::<TicToc<Broken>>, forget_fences);
    caught!(tictoc_that_ignores_locks, "write skew", 2, write_skew::<TicToc<Broken>>, ignore_locks_in_validation);
    caught!(occ_whose_rows_come_first, "torn", 2, whole_rows::<Occ<Loom, Broken>>, forget_fences);
    caught!(occ_that_locks_only_what_it_writes, "write skew", 2, write_skew::<Occ<Loom, Broken>>, lock_only_written);
}

mod versions {
    use super::*;

    holds!(mvto_reads_whole_rows, 2, whole_rows::<Mvto<Loom>>);
    holds!(cicada_reads_whole_rows, 2, whole_rows::<Cicada<Loom>>);
    holds!(msto_reads_whole_rows, 2, whole_rows::<Msto<Loom>>);
    holds!(si_reads_whole_rows, 2, whole_rows::<SnapshotIsolation<Loom>>);
    holds!(ermia_reads_whole_rows, 2, whole_rows::<Ermia<Loom>>);
    holds!(hekaton_reads_whole_rows, 2, whole_rows::<Hekaton<Loom>>);
    holds!(si_sees_whole_commits, 2, whole_commits::<SnapshotIsolation<Loom>>);
    holds!(ermia_sees_whole_commits, 2, whole_commits::<Ermia<Loom>>);
    holds!(hekaton_sees_whole_commits, 2, whole_commits::<Hekaton<Loom>>);
    holds!(mvto_has_no_write_skew, 2, write_skew::<Mvto<Loom>>);
    holds!(mvto_loses_no_update, 2, lost_update::<Mvto<Loom>>);
    holds!(cicada_has_no_write_skew, 2, write_skew::<Cicada<Loom>>);
    holds!(cicada_loses_no_update, 2, lost_update::<Cicada<Loom>>);
    holds!(mvcc_has_no_write_skew, 2, write_skew::<Msto<Loom>>);
    holds!(ermia_has_no_write_skew, 2, write_skew::<Ermia<Loom>>);
    holds!(hekaton_has_no_write_skew, 2, write_skew::<Hekaton<Loom>>);
    holds!(si_loses_no_update, 2, lost_update::<SnapshotIsolation<Loom>>);
    holds!(to_has_no_write_skew, 2, write_skew::<TimestampOrdering<Loom>>);
    caught!(
        si_that_looks_too_late,
        "half of a commit",
        2,
        whole_commits::<SnapshotIsolation<Loom, Broken>>,
        look_too_late
    );
    caught!(mvto_that_looks_too_early, "write skew", 2, write_skew::<Mvto<Loom, Broken>>, look_before_rts);
    caught!(mvto_that_forgets_reads, "write skew", 2, write_skew::<Mvto<Loom, Broken>>, forget_reads);
    caught!(mvto_that_overtakes_reads, "write skew", 2, write_skew::<Mvto<Loom, Broken>>, overtake_reads);
    caught!(mvto_that_does_not_wait, "write skew", 2, write_skew::<Mvto<Loom, Broken>>, ignore_prewrites);
    caught!(cicada_that_forgets_reads, "write skew", 2, write_skew::<Cicada<Loom, Broken>>, forget_reads);
    caught!(
        cicada_that_trusts_what_is_committed,
        "lost update",
        2,
        lost_update::<Cicada<Loom, Broken>>,
        trust_committed
    );
    caught!(mvcc_that_trusts_what_is_committed, "lost update", 2, lost_update::<Msto<Loom, Broken>>, trust_committed);
    caught!(ermia_that_forgets_reads, "write skew", 2, write_skew::<Ermia<Loom, Broken>>, forget_reads);
    caught!(hekaton_that_forgets_reads, "write skew", 2, write_skew::<Hekaton<Loom, Broken>>, forget_read_only);
    caught!(si_that_overwrites, "lost update", 2, lost_update::<SnapshotIsolation<Loom, Broken>>, forget_first_updater);
    caught!(to_that_forgets_reads, "write skew", 2, write_skew::<TimestampOrdering<Loom, Broken>>, forget_reads);
}

mod locks {
    use super::*;

    holds!(nowait_has_no_write_skew, 2, write_skew::<NoWait>);
    holds!(nowait_loses_no_update, 2, lost_update::<NoWait>);
    holds!(nowait_loses_no_addition, 2, lost_addition::<NoWait>);
    holds!(waitdie_has_no_write_skew, 2, write_skew::<WaitDie<Loom>>);
    holds!(waitdie_loses_no_update, 2, lost_update::<WaitDie<Loom>>);
    holds!(waitdie_loses_no_addition, 2, lost_addition::<WaitDie<Loom>>);
    holds!(woundwait_has_no_write_skew, 2, write_skew::<WoundWait<Loom>>);
    holds!(woundwait_loses_no_update, 2, lost_update::<WoundWait<Loom>>);
    holds!(woundwait_loses_no_addition, 2, lost_addition::<WoundWait<Loom>>);
    holds!(bamboo_has_no_write_skew, 2, write_skew::<Bamboo<Loom>>);
    holds!(bamboo_loses_no_update, 2, lost_update::<Bamboo<Loom>>);
    holds!(bamboo_loses_no_addition, 2, lost_addition::<Bamboo<Loom>>);
    holds!(bamboo_has_no_dirty_read, 2, dirty_read::<Bamboo<Loom>>);
    caught!(nowait_that_ignores_readers, "write skew", 2, write_skew::<NoWait<Broken>>, ignore_readers);
    caught!(waitdie_that_ignores_readers, "write skew", 2, write_skew::<WaitDie<Loom, Broken>>, ignore_readers);
    caught!(woundwait_that_ignores_readers, "write skew", 2, write_skew::<WoundWait<Loom, Broken>>, ignore_readers);
    caught!(bamboo_that_ignores_readers, "write skew", 2, write_skew::<Bamboo<Loom, Broken>>, ignore_readers);
    caught!(bamboo_that_waits_for_nobody, "dirty read", 2, dirty_read::<Bamboo<Loom, Broken>>, forget_predecessors);
}
