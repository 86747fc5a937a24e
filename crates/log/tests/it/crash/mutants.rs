//! Every deliberate bug of the log is found, and the one of the engine that breaks a log's order of
//! writes.

use contend_engine::fault::Fault as EngineFault;
use contend_engine::{EngineOptions, Erased, NamedProtocol, RawTxn, Txn};
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
    // ForgetLastTombstones does no harm, and the others need interleaved transactions:
    // `crates/proof/tests/it/mutants.rs` finds them.
    let elsewhere = [Fault::SettleRunning, Fault::SlotsBeforeCounter, Fault::ForgetLastTombstones];
    for &fault in Fault::ALL.iter().filter(|fault| !elsewhere.contains(fault)) {
        let protocol = match fault {
            Fault::AcknowledgeOwn | Fault::IgnoreGaps | Fault::ForgetGap => workers(Release::Early, 4),
            Fault::IgnoreHolds => workers(Release::Conservative, 4),
            Fault::SkipTails => workers(Release::Conservative, 1),
            _ => EPOCH,
        };
        let search = move || {
            let with = (protocol, Some(AnyFault::Log(fault)));
            let is_found = |seed: &u64| std::panic::catch_unwind(|| crash_and_recover(&silo, *seed, with)).is_err();
            (0..3000).find(is_found)
        };
        let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
        let seed = thread.join().expect("what panics is caught");
        println!("{fault:?}: found by seed {seed:?}");
        assert!(seed.is_some(), "{fault:?} is not found");
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

/// A tombstone that leaves the index in the epoch of its write counter is found under every
/// protocol that does not keep it for longer.
struct FindsYoung;

impl ProtocolVisitor<Native> for FindsYoung {
    type Output = Option<u64>;

    fn visit<P: NamedProtocol<Native>>(self) -> Option<u64> {
        let search = || {
            let make = || Erased::new(P::new(Default::default()));
            let with = (EPOCH, Some(AnyFault::Engine(EngineFault::UnlinkYoung)));
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
