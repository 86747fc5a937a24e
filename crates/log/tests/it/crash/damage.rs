//! Files that are cut off, damaged or missing.

use std::sync::Arc;

use contend_engine::{EngineOptions, Worker};
use contend_log::fault::Fault;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{CommitProtocol, Disk, Log, LogError, Release};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::world::{EPOCH, State, World, config, silo, state_of, workers};

/// Makes a log of some epochs and files, and returns the rows before its last flush, and at its
/// end. All of them are durable. `alone`: one worker runs all transactions.
fn log_of_some_epochs(disk: &FaultyDisk, commit: CommitProtocol, alone: bool) -> [State; 2] {
    let random = &mut SmallRng::seed_from_u64(1);
    let mut world = World::open(disk, silo(), EngineOptions::default(), (commit, None)).expect("a disk that works");
    let mut before = State::new();
    for _ in 0..60 {
        before.clone_from(&world.state);
        world.transact_on(random, if alone { 0..1 } else { 0..3 });
        world.advance();
        if commit == EPOCH {
            world.flush().expect("a disk that works");
        }
    }
    world.workers.iter_mut().for_each(Worker::go_offline);
    [before, std::mem::take(&mut world.state)]
}

/// A file that is cut off at any byte of its last two blocks is reported as damaged there.
#[test]
fn a_file_that_is_cut_off_is_missed() {
    for commit in [EPOCH, workers(Release::Early, 2), workers(Release::Conservative, 2)] {
        let disk = FaultyDisk::new(Plan::default());
        let [_, last] = log_of_some_epochs(&disk, commit, false);
        assert_eq!(
            Log::open(Arc::new(disk.after_crash(Plan::default())), config(commit, None))
                .map(|(_, found)| state_of(&found)),
            Ok(last)
        );
        let mut cuts = 0;
        for name in disk.names().expect("a disk that works").iter().filter(|name| name.starts_with("log-")) {
            let bytes = disk.contents(name).expect("it is there");
            let blocks: Vec<usize> = (0..bytes.len()).filter(|&place| bytes[place..].starts_with(b"blk\x01")).collect();
            let end = bytes.iter().rposition(|&byte| byte != 0).expect("it has a header") + 1;
            let start = blocks[blocks.len().saturating_sub(2)];
            for place in start..end {
                let damaged = disk.after_crash(Plan::default());
                damaged.damage(name, bytes[..place].to_vec());
                match Log::open(Arc::new(damaged), config(commit, None)) {
                    Err(LogError::Damaged { place: file, offset, .. }) => {
                        assert_eq!((file, offset), (name.clone(), place as u64))
                    }
                    other => panic!("{commit:?}, {name} cut off at byte {place}: {other:?}"),
                }
                cuts += 1;
            }
        }
        assert!(cuts > 1000, "{cuts}");
    }
}

/// Cuts off files of a log and flips bits in them, and opens each. Recovery reports the damage, or
/// still finds all acknowledged transactions: but for those of the last flush, which may have been
/// interrupted. Returns what is not so, or how often it was reported, did no harm, and was taken
/// for an interruption.
fn damage_all(alone: bool, fault: Option<Fault>) -> Result<[usize; 3], String> {
    let disk = FaultyDisk::new(Plan::default());
    let [before, last] = &log_of_some_epochs(&disk, EPOCH, alone);
    assert_ne!(before, last);
    let (mut noticed, mut harmless, mut interrupted) = (0, 0, 0);
    // The file that the last flush has written to, and where its end before that ends.
    let mut of_last_flush = None::<(String, usize)>;
    let mut try_with = |name: &str, bytes: Vec<u8>, place: usize, what: &str| {
        let damaged = disk.after_crash(Plan::default());
        damaged.damage(name, bytes);
        match Log::open(Arc::new(damaged), config(EPOCH, fault)) {
            Ok((_, recovered)) if state_of(&recovered) == *last => harmless += 1,
            Ok((_, recovered)) if state_of(&recovered) == *before => {
                let whole = disk.contents(name).expect("it is there");
                let ends: Vec<_> = (0..whole.len()).filter(|&at| whole[at..].starts_with(b"end\x01")).collect();
                let begins = ends.iter().rev().nth(1).map_or(0, |end| end + 40);
                let (file, begins) = of_last_flush.get_or_insert((name.to_owned(), begins));
                if file != name || place < *begins {
                    return Err(format!(
                        "{name}, {what}: taken for an interruption of a flush of {file} from {begins}"
                    ));
                }
                interrupted += 1;
            }
            Ok(_) => return Err(format!("{name}, {what}: other rows")),
            Err(error @ (LogError::Damaged { .. } | LogError::Version { .. })) => {
                if !error.to_string().contains(name) {
                    return Err(format!("{name}, {what}: {error}"));
                }
                noticed += 1;
            }
            Err(error) => return Err(format!("{name}, {what}: {error}")),
        }
        Ok(())
    };
    let mut random = SmallRng::seed_from_u64(2);
    for name in disk.names().expect("a disk that works") {
        let bytes = disk.contents(&name).expect("it is there");
        // Most bytes of the manifest are zeros. All other bytes are tried, and some of the zeros.
        let mut places: Vec<usize> = (0..bytes.len()).filter(|&place| bytes[place] != 0).collect();
        places.extend((0..100).map(|_| random.random_range(0..bytes.len())));
        let every = places.len().div_ceil(600);
        for &place in places.iter().step_by(every) {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << random.random_range(0..8);
            try_with(&name, flipped, place, &format!("byte {place} flipped"))?;
        }
        for &place in places.iter().step_by(2 * every) {
            try_with(&name, bytes[..place].to_vec(), place, &format!("cut off at byte {place}"))?;
        }
    }
    Ok([noticed, harmless, interrupted])
}

#[test]
fn damage_is_noticed_or_does_no_harm() {
    for alone in [false, true] {
        let [noticed, harmless, interrupted] = damage_all(alone, None).expect("no acknowledged transaction is lost");
        assert!(noticed > 500 && harmless > 50, "{noticed} noticed, {harmless} harmless");
        assert!((1..200).contains(&interrupted), "{interrupted} taken for interruptions");
        let lost = damage_all(alone, Some(Fault::IgnoreMissing));
        assert!(lost.is_err(), "the mutant loses nothing");
    }
}

#[test]
fn a_file_that_is_not_there_is_missed() {
    let disk = FaultyDisk::new(Plan::default());
    log_of_some_epochs(&disk, EPOCH, false);
    for name in disk.names().expect("a disk that works") {
        let other = disk.after_crash(Plan::default());
        other.remove(&name).expect("it is there");
        let outcome = Log::open(Arc::new(other), config(EPOCH, None)).map(|_| ());
        assert_eq!(outcome, Err(LogError::Missing { place: name }));
    }
}
