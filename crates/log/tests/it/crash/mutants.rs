//! Every deliberate bug of the log is found, and the one of the engine that breaks a log's order of
//! writes.

use contend_engine::fault::Fault as EngineFault;
use contend_engine::{EngineOptions, Erased, Groups, NamedProtocol, Projection, RawTxn, Txn};
use contend_log::fault::Fault;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{LogError, Release};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};

use super::world::{AnyFault, EPOCH, World, crash_and_recover, silo, state_of, workers};

/// Hides the messages of panics in the threads of mutants: the panics are what finds them.
fn hide_panics_of_mutants() {
    std::panic::set_hook(Box::new(|info| {
        if std::thread::current().name() != Some("mutant") {
            eprintln!("{info}");
        }
    }));
}

#[test]
fn every_mutant_is_found() {
    hide_panics_of_mutants();
    // ForgetLastTombstones does no harm, IgnoreMissing needs a damaged file (`damage`), SkipEmpty a
    // transaction without writes (`WithoutWrites`), and the others need interleaved transactions:
    // `crates/proof/tests/it/mutants.rs` finds them.
    let elsewhere = [
        Fault::SettleRunning,
        Fault::SlotsBeforeCounter,
        Fault::ForgetLastTombstones,
        Fault::UnlinkHeld,
        Fault::IgnoreMissing,
        Fault::SkipEmpty,
    ];
    for &fault in Fault::ALL.iter().filter(|fault| !elsewhere.contains(fault)) {
        let under: &[_] = match fault {
            Fault::AcknowledgeOwn | Fault::IgnoreGaps | Fault::ForgetGap => &[workers(Release::Early, 4)],
            Fault::IgnoreHolds => &[workers(Release::Conservative, 4)],
            Fault::SkipTails | Fault::TrustCache => &[workers(Release::Conservative, 1), EPOCH],
            _ => &[EPOCH],
        };
        for &protocol in under {
            let search = move || {
                let with = (&[protocol][..], Some(AnyFault::Log(fault)));
                let is_found = |seed: &u64| std::panic::catch_unwind(|| crash_and_recover(&silo, *seed, with)).is_err();
                (0..3000).find(is_found)
            };
            let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
            let seed = thread.join().expect("what panics is caught");
            println!("{fault:?} under {protocol:?}: found by seed {seed:?}");
            assert!(seed.is_some(), "{fault:?} is not found under {protocol:?}");
        }
    }
}

/// A key is deleted, inserted again on its tombstone, and deleted again two epochs later. That
/// deletion is not queued a second time, so the first one's place in the queue says that the
/// tombstone is old. Then the key is inserted once more, in the same epoch.
struct Reborn(Option<EngineFault>);

impl ProtocolVisitor<Native> for Reborn {
    type Output = (&'static str, Result<bool, LogError>);

    /// Returns the protocol's name, and whether the row is there after a recovery.
    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        let disk = FaultyDisk::new(Plan::default());
        let protocol = Erased::new(P::new(Default::default()));
        let fault = (EPOCH, self.0.map(AnyFault::Engine));
        let mut world = World::open(&disk, protocol, EngineOptions::default(), fault).expect("a disk that works");
        let narrow = world.narrow;
        let insert = |world: &mut World| {
            let inserted = world.workers[0].run(|tx| {
                tx.insert_row(&narrow, 7)?.expect("it is not there").fill(1);
                Ok(())
            });
            inserted.expect("nobody else");
        };
        let delete = |world: &mut World| {
            assert_eq!(world.workers[0].run(|tx| tx.delete(&narrow, 7)), Ok(true));
        };
        insert(&mut world);
        delete(&mut world);
        world.advance();
        insert(&mut world);
        world.advance();
        delete(&mut world);
        world.workers[0].collect();
        insert(&mut world);
        world.advance();
        world.flush().expect("a disk that works");
        let found = contend_log::inspect::recover(&disk, 1, &|_| ());
        (P::INFO.name, found.map(|found| state_of(&found).contains_key(&(0, 7))))
    }
}

#[test]
fn a_key_that_is_deleted_twice_and_inserted_in_one_epoch_is_there() {
    for (info, _) in all_protocols::<Native>() {
        let (name, found) = with_protocol::<Native, _>(info.name, Reborn(None)).expect("a registered name");
        assert_eq!(found, Ok(true), "{name}");
    }
    hide_panics_of_mutants();
    let broken = || with_protocol::<Native, _>("tictoc", Reborn(Some(EngineFault::UnlinkYoung)));
    let mutant = std::thread::Builder::new().name("mutant".to_owned()).spawn(broken).expect("a thread");
    let found = mutant.join();
    if cfg!(debug_assertions) {
        // The assertion about write counters comes first.
        assert!(found.is_err(), "{found:?}");
    } else {
        assert!(matches!(found, Ok(Some((_, Err(LogError::Disorder { .. }))))), "{found:?}");
    }
}

/// Under conservative release one worker deletes a key, and another one inserts it, flushes, and
/// deletes it once more. The tombstone is in the queue of the first worker, whose deletion is
/// durable. It must not leave the index before the second deletion is durable: a third worker would
/// miss the key, and could make an insert durable that depends on that deletion.
struct HeldTombstone(Option<Fault>);

impl ProtocolVisitor<Native> for HeldTombstone {
    type Output = (&'static str, Result<(), String>);

    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        let disk = FaultyDisk::new(Plan::default());
        let protocol = Erased::new(P::new(Default::default()));
        let with = (workers(Release::Conservative, 1000), self.0.map(AnyFault::Log));
        let mut world = World::open(&disk, protocol, EngineOptions::default(), with).expect("a disk that works");
        let narrow = world.narrow;
        let insert = |world: &mut World, worker: usize, value: u64| {
            world.workers[worker].run(|tx| {
                tx.insert_row(&narrow, 7)?.expect("it is not there").fill(value);
                Ok(())
            })
        };
        insert(&mut world, 0, 1).expect("nobody else");
        assert_eq!(world.workers[0].run(|tx| tx.delete(&narrow, 7)), Ok(true));
        world.workers[0].go_offline();
        insert(&mut world, 1, 2).expect("what it needs is durable");
        world.workers[1].go_offline();
        assert_eq!(world.workers[1].run(|tx| tx.delete(&narrow, 7)), Ok(true));
        for _ in 0..5 {
            // A reader stays online, and so does not flush.
            world.workers[1].run(|tx| tx.read_row(&narrow, 8, Projection::WHOLE).map(|_| ())).expect("nobody else");
            assert!(world.engine.epochs().try_advance());
        }
        world.workers[0].collect();
        let inserted = insert(&mut world, 2, 3).is_ok();
        world.workers[2].go_offline();
        let found = contend_log::inspect::recover(&disk.after_crash(Plan::default()), 1, &|_| ());
        // The deletion is lost in any case.
        let value = if inserted { 3 } else { 2 };
        let outcome = match found.map(|found| state_of(&found).get(&(0, 7)).map(|row| row[0])) {
            Ok(Some(found)) if found == value => Ok(()),
            Ok(found) => Err(format!("found {found:?}, not {value}")),
            Err(error) => Err(error.to_string()),
        };
        // Once the deletion is durable, the tombstone goes, and the key can be inserted.
        world.workers[1].go_offline();
        for _ in 0..5 {
            world.advance();
            world.workers[0].collect();
        }
        assert_eq!(world.workers[0].tombstones(), 0, "{}", P::INFO.name);
        (P::INFO.name, outcome)
    }
}

#[test]
fn a_tombstone_stays_until_its_last_deletion_is_durable() {
    // The transactions of `none` see all that is there, and those of Bamboo, IC3 and DATM what
    // is not committed.
    for (info, _) in all_protocols::<Native>()
        .into_iter()
        .filter(|(info, _)| !["none", "bamboo", "ic3", "datm"].contains(&info.name))
    {
        let (name, outcome) = with_protocol::<Native, _>(info.name, HeldTombstone(None)).expect("a registered name");
        assert_eq!(outcome, Ok(()), "{name}");
    }
    let broken = with_protocol::<Native, _>("occ", HeldTombstone(Some(Fault::UnlinkHeld)));
    assert!(broken.is_some_and(|(_, outcome)| outcome.is_err()), "the mutant is not found");
}

/// The same after the disk has failed: a transaction that misses the key is not acknowledged,
/// because the deletion that it depends on never becomes durable.
struct FailedDisk;

impl ProtocolVisitor<Native> for FailedDisk {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        let disk = FaultyDisk::new(Plan::default());
        let protocol = Erased::new(P::new(Default::default()));
        let with = (workers(Release::Conservative, 1000), None);
        let mut world = World::open(&disk, protocol, EngineOptions::default(), with).expect("a disk that works");
        let narrow = world.narrow;
        let insert = |world: &mut World, worker: usize, key: u64| {
            world.workers[worker].run(|tx| {
                tx.insert_row(&narrow, key)?.expect("it is not there").fill(1);
                Ok(())
            })
        };
        insert(&mut world, 0, 7).expect("nobody else");
        world.workers[0].go_offline();
        disk.fail(Plan { crash_at: Some(0), ..Plan::default() });
        assert_eq!(world.workers[0].run(|tx| tx.delete(&narrow, 7)), Ok(true));
        for _ in 0..5 {
            // Going offline, the workers learn that the disk has failed.
            world.advance();
            world.workers[0].collect();
        }
        let reader = &mut world.workers[2];
        if let Ok(found) = reader.run(|tx| Ok(tx.read_row(&narrow, 7, Projection::WHOLE)?.is_some())) {
            let ticket = reader.ticket();
            assert!(!found && !reader.is_durable(ticket), "{}: it saw a deletion that is lost", P::INFO.name);
        }
    }
}

#[test]
fn what_a_failed_disk_has_lost_is_not_acknowledged_to_those_that_miss_it() {
    for (info, _) in all_protocols::<Native>()
        .into_iter()
        .filter(|(info, _)| !["none", "bamboo", "ic3", "datm"].contains(&info.name))
    {
        with_protocol::<Native, _>(info.name, FailedDisk).expect("a registered name");
    }
}

/// A tombstone that leaves the index in the epoch of its write counter is found under every
/// protocol that does not keep it for longer.
struct FindsYoung;

impl ProtocolVisitor<Native> for FindsYoung {
    type Output = Option<u64>;

    fn visit<P: NamedProtocol<Native>>(self) -> Option<u64> {
        let search = || {
            let make = || Erased::new(P::new(Default::default()));
            let with = (&[EPOCH][..], Some(AnyFault::Engine(EngineFault::UnlinkYoung)));
            (0..300).find(|seed| std::panic::catch_unwind(|| crash_and_recover(&make, *seed, with)).is_err())
        };
        let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
        thread.join().expect("what panics is caught")
    }
}

#[test]
fn unlinking_in_the_epoch_of_the_write_counter_is_found() {
    hide_panics_of_mutants();
    let mut found = Vec::new();
    for (info, _) in all_protocols::<Native>() {
        let seed = with_protocol::<Native, _>(info.name, FindsYoung).expect("a registered name");
        println!("{}: found by seed {seed:?}", info.name);
        found.extend(seed.map(|_| info.name));
    }
    // Timestamp ordering and the multi-version protocols keep a tombstone until all transactions
    // have ended that began in its epoch.
    let keep = ["timestamp-ordering", "mvto", "cicada", "msto", "si", "ermia", "hekaton"];
    let others = all_protocols::<Native>().into_iter().map(|(info, _)| info.name);
    assert_eq!(found, others.filter(|name| !keep.contains(name)).collect::<Vec<_>>());
}

/// Under early release a transaction can have an LSN and then write nothing: it has named a row
/// that it may write, and leaves it alone; or it fails behind its border. Returns the protocol's
/// name, how many of the two came to an end, and whether a later commit that was acknowledged is
/// there after a crash.
struct WithoutWrites(Option<Fault>);

impl ProtocolVisitor<Native> for WithoutWrites {
    type Output = (&'static str, usize, Result<(), String>);

    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        let disk = FaultyDisk::new(Plan::default());
        let protocol = Erased::new(P::new(Default::default()));
        let with = (workers(Release::Early, 1), self.0.map(AnyFault::Log));
        let mut world = World::open(&disk, protocol, EngineOptions::default(), with).expect("a disk that works");
        let narrow = world.narrow;
        let put = |world: &mut World, worker: usize, value: u64| {
            let worker = &mut world.workers[worker];
            let put = worker.run(|tx| {
                tx.write_row(&narrow, 7, Groups::ALL)?.expect("it is there").fill(value);
                Ok(())
            });
            put.expect("nobody else");
            let ticket = worker.ticket();
            worker.is_durable(ticket)
        };
        let inserted = world.workers[0].run(|tx| tx.insert_row(&narrow, 7).map(|row| row.expect("it is new").fill(0)));
        inserted.expect("nobody else");
        assert!(put(&mut world, 0, 1), "{}: nobody holds it up", P::INFO.name);
        let ended = [false, true].into_iter().filter(|fails| {
            let run = world.workers[0].run(|tx| {
                tx.later_row(&narrow, 7, true);
                tx.later(|tx| if *fails { Err(tx.cancel()) } else { Ok(()) })
            });
            run.is_ok()
        });
        let ended = ended.count();
        let acknowledged = put(&mut world, 1, 2);
        let found = contend_log::inspect::recover(&disk.after_crash(Plan::default()), 1, &|_| ());
        let outcome = match found.map(|found| state_of(&found).get(&(0, 7)).map(|row| row[0])) {
            Ok(Some(2)) if acknowledged => Ok(()),
            Ok(found) => Err(format!("acknowledged: {acknowledged}; found {found:?}, not 2")),
            Err(error) => Err(error.to_string()),
        };
        (P::INFO.name, ended, outcome)
    }
}

#[test]
fn a_transaction_without_writes_leaves_no_gap() {
    for (info, _) in all_protocols::<Native>() {
        let outcome = with_protocol::<Native, _>(info.name, WithoutWrites(None));
        assert_eq!(outcome, Some((info.name, 1, Ok(()))));
    }
    let broken = with_protocol::<Native, _>("lazy", WithoutWrites(Some(Fault::SkipEmpty)));
    assert!(broken.is_some_and(|(_, _, outcome)| outcome.is_err()), "the mutant is not found");
}
