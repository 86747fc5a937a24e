//! Files that are cut off, damaged or missing.

use std::sync::Arc;

use contend_engine::{EngineOptions, Worker};
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{CommitProtocol, Disk, Log, LogError, Release};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::world::{EPOCH, State, World, config, silo, state_of, workers};

/// Makes a log of some epochs and files, and returns the rows at its end. All of them are durable.
fn log_of_some_epochs(disk: &FaultyDisk, commit: CommitProtocol) -> State {
    let random = &mut SmallRng::seed_from_u64(1);
    let mut world = World::open(disk, silo(), EngineOptions::default(), (commit, None)).expect("a disk that works");
    for _ in 0..60 {
        world.transact(random);
        world.advance();
        if commit == EPOCH {
            world.flush().expect("a disk that works");
        }
    }
    world.workers.iter_mut().for_each(Worker::go_offline);
    std::mem::take(&mut world.state)
}

/// A file that is cut off at any byte of its last two blocks is reported as damaged there.
#[test]
fn a_file_that_is_cut_off_is_missed() {
    for commit in [EPOCH, workers(Release::Early, 2), workers(Release::Conservative, 2)] {
        let disk = FaultyDisk::new(Plan::default());
        let last = log_of_some_epochs(&disk, commit);
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

/// If a file is cut off or has a flipped bit, recovery reports it, or still finds all acknowledged
/// transactions.
#[test]
fn damage_is_noticed_or_does_no_harm() {
    let disk = FaultyDisk::new(Plan::default());
    let last = &log_of_some_epochs(&disk, EPOCH);
    let (mut harmless, mut noticed) = (0, 0);
    let mut try_with = |name: &str, bytes: Vec<u8>, what: String| {
        let damaged = disk.after_crash(Plan::default());
        damaged.damage(name, bytes);
        match Log::open(Arc::new(damaged), config(EPOCH, None)) {
            Ok((_, recovered)) => {
                assert_eq!(&state_of(&recovered), last, "{name}, {what}");
                harmless += 1;
            }
            Err(error @ (LogError::Damaged { .. } | LogError::Version { .. })) => {
                assert!(error.to_string().contains(name), "{error}");
                noticed += 1;
            }
            Err(error) => panic!("{name}, {what}: {error}"),
        }
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
            try_with(&name, flipped, format!("byte {place} flipped"));
        }
        for &place in places.iter().step_by(2 * every) {
            try_with(&name, bytes[..place].to_vec(), format!("cut off at byte {place}"));
        }
    }
    assert!(noticed > 500 && harmless > 50, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn a_file_that_is_not_there_is_missed() {
    let disk = FaultyDisk::new(Plan::default());
    log_of_some_epochs(&disk, EPOCH);
    for name in disk.names().expect("a disk that works") {
        let other = disk.after_crash(Plan::default());
        other.remove(&name).expect("it is there");
        let outcome = Log::open(Arc::new(other), config(EPOCH, None)).map(|_| ());
        assert_eq!(outcome, Err(LogError::Missing { place: name }));
    }
}
