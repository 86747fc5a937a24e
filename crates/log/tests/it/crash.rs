//! Crashes at any point, on disks that fail, under every protocol: every acknowledged transaction
//! is there afterwards, and the rows are those of some point in time.
//!
//! Each failure names its protocol and its seed; `CRASH_SEED=n cargo test -p contend-log --test it
//! crash` runs that one alone.

mod damage;
mod mutants;
mod world;

use std::ops::Range;
use std::sync::Arc;

use contend_engine::{EngineOptions, Erased, Groups, NamedProtocol, Projection, RawTxn, Transaction};
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{CommitProtocol, Log, Release};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};

use world::{EPOCH, World, config, crash_and_recover, operate, silo, state_of, workers};

fn seeds(count: u64) -> Range<u64> {
    match std::env::var("CRASH_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("CRASH_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

struct Crashes(CommitProtocol, u64);

impl ProtocolVisitor<Native> for Crashes {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        let (name, mut acknowledged) = (P::INFO.name, 0);
        let Crashes(protocol, count) = self;
        // A protocol that exposes a row before the commit can't make its readers wait until the
        // commit is durable.
        if protocol.holds_rows() && P::SHOWS_UNCOMMITTED || P::REFUSES_LOG.is_some() {
            return;
        }
        for seed in seeds(count) {
            let crash = || crash_and_recover(&|| Erased::new(P::new(Default::default())), seed, (&[protocol], None));
            acknowledged +=
                std::panic::catch_unwind(crash).unwrap_or_else(|_| panic!("{name}, {protocol:?}, seed {seed}"));
        }
        assert!(acknowledged > 8 * count || std::env::var("CRASH_SEED").is_ok(), "{name}: {acknowledged} acknowledged");
    }
}

#[test]
fn what_was_acknowledged_survives_under_every_protocol() {
    for (info, _) in all_protocols::<Native>() {
        with_protocol::<Native, _>(info.name, Crashes(EPOCH, 60)).expect("a registered name");
    }
}

/// With early release, all commits up to some commit are there; with conservative release, all
/// commits of each worker up to some commit of it.
#[test]
fn what_workers_flush_by_themselves_survives_too() {
    for release in [Release::Early, Release::Conservative] {
        for group in [1, 4] {
            for (info, _) in all_protocols::<Native>() {
                with_protocol::<Native, _>(info.name, Crashes(workers(release, group), 20)).expect("a registered name");
            }
        }
    }
}

/// The commit protocol may be another one each time that the database is opened.
#[test]
fn what_was_acknowledged_survives_a_change_of_the_commit_protocol() {
    let all = [EPOCH, workers(Release::Early, 1), workers(Release::Conservative, 4)];
    for seed in seeds(600) {
        let crash = || crash_and_recover(&silo, seed, (&all, None));
        std::panic::catch_unwind(crash).unwrap_or_else(|_| panic!("seed {seed}"));
    }
}

struct Orders;

impl ProtocolVisitor<Native> for Orders {
    type Output = u32;

    /// One transaction begins, writes, and sees a write that another one has committed in a later
    /// epoch. Returns the number of commit protocols under which both could commit.
    fn visit<P: NamedProtocol<Native>>(self) -> u32 {
        let name = P::INFO.name;
        let mut both = 0;
        for protocol in [EPOCH, workers(Release::Early, 1)] {
            let disk = FaultyDisk::new(Plan::default());
            let silo = Erased::new(P::new(Default::default()));
            let mut world = World::open(&disk, silo, EngineOptions::default(), (protocol, None)).expect("a disk");
            let World { engine, narrow, workers, .. } = &mut world;
            let [first, second, _] = &mut workers[..] else { unreachable!("there are three") };
            let insert = |tx: &mut Transaction<'_, _, _>, key| {
                tx.insert_row(narrow, key)?.expect("it is not there").fill(1);
                Ok(())
            };
            first.run(|tx| (0..3).try_for_each(|key| insert(tx, key))).expect("nobody else");
            let mut early = first.begin();
            let began = early.write_row(narrow, 0, Groups::ALL).map(|row| row.expect("it is there").fill(2));
            let shown = began.and_then(|()| early.read_row(narrow, 2, Projection::WHOLE).map(|_| ()));
            assert!(engine.epochs().try_advance(), "one epoch may be begun");
            let late = second.run(|tx| {
                tx.write_row(narrow, 1, Groups::ALL)?.expect("it is there").fill(3);
                Ok(())
            });
            let seen =
                shown.and_then(|()| early.read_row(narrow, 1, Projection::WHOLE).map(|row| row.map(|row| row[0])));
            if early.commit().is_ok() && late.is_ok() && seen == Ok(Some(3)) {
                both += 1;
                assert!(first.committed_in() >= second.committed_in(), "{name}: the epoch of what it has seen");
                assert!(protocol == EPOCH || first.ticket() > second.ticket(), "{name}: the LSN of what it has seen");
            }
        }
        both
    }
}

/// A transaction that reads from another commits later, even if the protocol exposes rows before
/// they commit.
#[test]
fn what_is_seen_comes_before() {
    let protocols = all_protocols::<Native>();
    let both = protocols.iter().map(|(info, _)| with_protocol::<Native, _>(info.name, Orders));
    let seen: Vec<u32> = both.map(|both| both.expect("a registered name")).collect();
    assert!(seen.iter().filter(|&&both| both == 2).count() >= 8, "{seen:?}");
}

/// Worker 1 inserts a row. Worker 0 then changes it until its buffer overflows into a file, which
/// ends there; the insert is still in the buffer of worker 1, whose next file gets it. A checkpoint
/// of the first file alone has changes of the row and no insert. It counts the row.
#[test]
fn a_checkpoint_counts_rows_whose_insert_is_in_a_file_that_stays() {
    for (what, operation) in [("additions", 4), ("a group that is overwritten", 2)] {
        let disk = FaultyDisk::new(Plan::default());
        let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
        let mut world = World::open(&disk, silo(), options, (EPOCH, None)).expect("a disk that works");
        let narrow = world.narrow;
        let inserted = world.workers[1].run(|tx| operate(tx, &narrow, 7, 0, 1, None));
        let (_, mut row) = inserted.expect("no other transaction runs");
        let before = world.log.bytes();
        while world.log.bytes() == before {
            let changed = world.workers[0].run(|tx| operate(tx, &narrow, 7, operation, 3, row));
            (_, row) = changed.expect("no other transaction runs");
        }
        world.log.begin_files();
        world.advance();
        world.flush().expect("a disk that works");
        let checkpoint = world.log.checkpoint_by_hand().expect("a disk that works");
        assert_eq!((checkpoint.rows, checkpoint.replaced.0), (1, 1), "{what}");
        // The insert is in a file that stays: the row is as it was left.
        let (_, recovered) = Log::open(Arc::new(disk), config(EPOCH, None)).expect("it is whole");
        assert_eq!(state_of(&recovered).get(&(0, 7)), row.as_ref(), "{what}");
        // The next checkpoint has the insert as well, and counts the row once.
        world.log.begin_files();
        world.flush().expect("a disk that works");
        let checkpoint = world.log.checkpoint_by_hand().expect("a disk that works");
        assert_eq!((checkpoint.rows, checkpoint.replaced.0), (1, 2), "{what}");
    }
}
