//! A manifest that grows, with crashes meanwhile; and directories that are only read.

use std::sync::Arc;

use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{Directory, Disk, Log, LogConfig, LogError, Schema, inspect};

fn schema(number: usize, columns: usize) -> Schema {
    Schema {
        name: format!("table {number}"),
        key_words: 1,
        row_words: 1,
        groups: vec![(0, 1)],
        ordered: true,
        columns: "x".repeat(columns),
    }
}

fn config() -> LogConfig {
    LogConfig { workers: 2, threads: 1, ..LogConfig::default() }
}

fn open(disk: &FaultyDisk) -> Result<(Arc<Log>, usize), LogError> {
    let (log, recovered) = Log::open(Arc::new(disk.clone()), config())?;
    // In the order in which they came, and each as it was.
    for (number, table) in recovered.tables.iter().enumerate() {
        assert_eq!((table.number as usize, &table.schema), (number, &schema(number, table.schema.columns.len())));
    }
    Ok((log, recovered.tables.len()))
}

/// Tables of which each takes kilobytes: the manifest grows some times, and a crash comes before
/// each write, name and synchronisation. Each table that was acknowledged is there, and at most one
/// that was not; and more can be added.
#[test]
fn a_manifest_that_grows_survives_crashes() {
    const TABLES: usize = 14;
    let add = |disk: &FaultyDisk, first: usize| -> Result<(), (usize, LogError)> {
        let (log, known) = open(disk).map_err(|error| (first, error))?;
        assert!(known == first || known == first + 1, "{known} tables, of which {first} were acknowledged");
        (known..TABLES).try_for_each(|number| {
            let bound = log.bind(number as u32, &schema(number, 3000)).map_err(|error| (number, error))?;
            assert_eq!(bound as usize, number);
            Ok(())
        })
    };
    let whole = FaultyDisk::new(Plan::default());
    add(&whole, 0).expect("a disk that works");
    assert!(whole.contents("manifest").is_some_and(|manifest| manifest.len() >= 4 << 16), "it has grown");
    let operations = whole.operations();
    let mut grown = 0;
    for crash_at in 0..operations {
        for (seed, sector) in (0..6).flat_map(|seed| [(seed, 512), (seed, 4096)]) {
            let plan = |crash_at| Plan {
                seed: seed * operations + crash_at,
                sector,
                crash_at: Some(crash_at),
                ..Plan::default()
            };
            let disk = FaultyDisk::new(plan(crash_at));
            let Err((acknowledged, LogError::Io { .. })) = add(&disk, 0) else { panic!("it crashes at {crash_at}") };
            grown += u64::from(disk.contents("manifest.next").is_some());
            // Once more, at the beginning of what comes then. Or the process alone had crashed, and
            // the machine does so then.
            let again = if seed % 2 == 0 { disk.after_crash(plan(seed)) } else { disk.clone() };
            again.fail(Plan { seed: (seed + 7) * operations + crash_at, ..plan(seed * 7) });
            let acknowledged = add(&again, acknowledged).map_or_else(|(acknowledged, _)| acknowledged, |()| TABLES);
            let last = again.after_crash(Plan::default());
            add(&last, acknowledged).expect("a disk that works");
            let (_, known) = open(&last.after_crash(Plan::default())).expect("nothing is lost");
            assert_eq!(known, TABLES);
            assert!(last.contents("manifest.next").is_none(), "what a crash had left is gone");
        }
    }
    assert!(grown > 50, "{grown} crashes while it grew");
}

/// A file system that can't say whether the larger manifest has taken its place ends all
/// acknowledgements: what is written to either may be lost.
#[test]
fn a_manifest_that_has_lost_its_place_is_not_written() {
    let mut lost = 0;
    for at in 0..120 {
        let disk = FaultyDisk::new(Plan { sync_fails_at: Some(at), ..Plan::default() });
        let Ok((log, _)) = open(&disk) else { continue };
        let Some((acknowledged, _)) = (0..40)
            .find_map(|number| log.bind(number, &schema(number as usize, 3000)).err().map(|error| (number, error)))
        else {
            continue;
        };
        let goes_on = log.bind(acknowledged, &schema(acknowledged as usize, 3000));
        lost += u64::from(goes_on.is_err());
        let more = acknowledged + u32::from(goes_on.is_ok());
        drop(log);
        let (_, known) = open(&disk.after_crash(Plan::default())).expect("nothing is lost");
        assert!(
            (more..=acknowledged + 1).contains(&(known as u32)),
            "{known} tables, of which {more} were acknowledged"
        );
    }
    assert!(lost > 20, "{lost}");
}

/// A reader of a directory changes nothing in it, excludes an owner, and admits other readers.
#[test]
fn a_directory_can_be_read_beside_readers_only() {
    let here = tempfile::tempdir().expect("a directory");
    let path = here.path();
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(path).expect("it is there").map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    let reader = Directory::read_only(path).expect("it is there");
    let place = || reader.place("");
    assert_eq!(inspect::inspect(&reader).map(|_| ()), Err(LogError::NoLog { place: place() }));
    assert!(names().is_empty());
    let (log, _) =
        Log::open(Arc::new(Directory::open(path).expect("nobody has it")), config()).expect("a disk that works");
    log.bind(0, &schema(0, 10)).expect("a disk that works");
    let in_use = || Err(LogError::InUse { place: path.display().to_string() });
    assert_eq!(Directory::read_only(path).map(|_| ()), in_use());
    drop(log);
    let before = names();
    let readers = [Directory::read_only(path), Directory::read_only(path)].map(|reader| reader.expect("nobody has it"));
    assert_eq!(Directory::open(path).map(|_| ()), in_use());
    assert_eq!(inspect::inspect(&readers[1]).expect("a log").tables, [schema(0, 10)]);
    for refused in [
        readers[0].create("log-1", 1).map(|_| ()),
        readers[0].open("manifest", true).map(|_| ()),
        readers[0].rename("manifest", "other"),
        readers[0].remove("manifest"),
    ] {
        assert_eq!(refused.map_err(|error| error.kind()), Err(std::io::ErrorKind::ReadOnlyFilesystem));
    }
    assert_eq!(names(), before);
    drop(readers);
    Directory::open(path).expect("nobody has it");
}
