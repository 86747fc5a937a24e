//! Logs that a stranger has made to do harm: reading them ends soon, with an error, and takes no
//! memory that the bytes of the files don't justify.
//!
//! The stranger knows the format, and makes all checksums right.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use contend_engine::commit_sink::WriteCounter;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::{Directory, Disk};
use crate::error::LogError;
use crate::faulty::{FaultyDisk, Plan};
use crate::format::{self, BLOCK_HEADER, Change, End, Write};
use crate::inspect;
use crate::log::{Log, LogConfig};
use crate::manifest::{Manifest, ManifestContents, Segment, TableSchemas, Tail};
use crate::schema::Schema;

/// Counts what a thread allocates.
struct Counting;

thread_local! {
    /// Bytes that the thread has, the most that it had, and the largest request.
    static MEMORY: Cell<(isize, isize, usize)> = const { Cell::new((0, 0, 0)) };
}

impl Counting {
    fn note(change: isize, request: usize) {
        // The last allocations of a thread come after its locals are gone.
        let _ = MEMORY.try_with(|memory| {
            let (now, most, largest) = memory.get();
            memory.set((now + change, most.max(now + change), largest.max(request)));
        });
    }
}

// SAFETY: the system's allocator does all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size() as isize, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size() as isize, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::note(size as isize - layout.size() as isize, size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::note(-(layout.size() as isize), 0);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns what `work` returns, and the most bytes that this thread had meanwhile beyond those that
/// it had before.
fn most_memory<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = MEMORY.get().0;
    MEMORY.set((before, before, 0));
    let result = work();
    (result, (MEMORY.get().1 - before) as usize)
}

fn schema(name: &str) -> Schema {
    Schema {
        name: name.to_owned(),
        key_words: 1,
        row_words: 1,
        groups: vec![(0, 1)],
        ordered: true,
        columns: String::new(),
    }
}

/// A log that was made by hand.
struct Made {
    disk: FaultyDisk,
}

const SALT: u64 = 77;

impl Made {
    /// Makes a log of these tables and one file. If the file has a tail, the manifest knows its
    /// first `known` bytes.
    fn new(schemas: &[Schema], tail: Tail, known: usize, file: Vec<u8>) -> Self {
        let bytes = if tail == Tail::Nothing { file.len() } else { known } as u64;
        let capacity = file.len() as u64;
        let segment = Segment { salt: SALT, bytes, capacity, tail, blocks: Some((1, 1)), ..Segment::EMPTY };
        let disk = FaultyDisk::new(Plan::default());
        let mut manifest = Manifest::create(&disk).expect("a disk that works");
        disk.create(&segment.name(), capacity).expect("there is room");
        disk.damage(&segment.name(), file);
        schemas.iter().for_each(|schema| {
            manifest.make_room(&disk, Some(schema), 1).expect("there is room");
            manifest.add_table(schema).expect("there is room");
        });
        let contents = ManifestContents { segments: vec![segment.clone()], epoch: 5, ..manifest.contents.clone() };
        manifest.write(&disk, contents).expect("a disk that works");
        Made { disk }
    }

    fn empty(schemas: &[Schema]) -> Self {
        Self::new(schemas, Tail::Nothing, 0, header(schemas))
    }

    /// Writes another manifest, with a right checksum.
    fn rewrite(&self, change: impl FnOnce(&mut ManifestContents)) {
        let found = Manifest::open(&self.disk).expect("it is whole").expect("it is there");
        let mut contents = found.contents.clone();
        change(&mut contents);
        let mut manifest = Manifest::reopen(&self.disk, found).expect("it is there");
        manifest.write(&self.disk, contents).expect("there is room");
    }

    /// Reads the log with `recover` and with `open`. Asserts that both fail with an error that has
    /// these words, or succeed if there are none, and that they take at most `most` bytes of
    /// memory.
    fn read(&self, words: Option<&str>, most: usize) {
        let config = LogConfig { workers: 1, threads: 1, ..LogConfig::default() };
        let (recovered, memory) = most_memory(|| inspect::recover(&self.disk, 1, &|_| ()).map(|_| ()));
        assert!(memory <= most, "recover takes {memory} bytes of memory, and may take {most}");
        let (opened, memory) = most_memory(|| Log::open(Arc::new(self.disk.clone()), config).map(|_| ()));
        let most = if words.is_some() { most } else { 2 * most + (1 << 20) };
        assert!(memory <= most, "open takes {memory} bytes of memory, and may take {most}");
        for outcome in [recovered, opened] {
            match (words, outcome) {
                (None, outcome) => assert_eq!(outcome, Ok(())),
                (Some(words), Err(error)) => assert!(error.to_string().contains(words), "{error}"),
                (Some(words), Ok(())) => panic!("it was read, and not refused: {words}"),
            }
        }
    }
}

fn header(schemas: &[Schema]) -> Vec<u8> {
    format::file_header(SALT, TableSchemas::of(schemas.to_vec()).count()).to_vec()
}

/// A block of this body.
fn block(body: &[u8], flush: u64) -> Vec<u8> {
    let mut block = [&[0; BLOCK_HEADER], body].concat();
    format::seal(&mut block, 1, SALT, flush, 0);
    block
}

const MIB: usize = 1 << 20;

#[test]
fn numbers_that_are_too_large_are_refused() {
    let tables = [schema("t")];
    type Change = fn(&mut ManifestContents);
    let changes: [(Change, &str); 11] = [
        (|contents| contents.epoch = u64::MAX, "no such epoch, LSN or flush"),
        (|contents| contents.lsn = u64::MAX, "no such epoch, LSN or flush"),
        (|contents| contents.flush = u64::MAX, "no such epoch, LSN or flush"),
        (|contents| contents.segments[0].number = u64::MAX, "names a file that can't be"),
        (|contents| contents.segments[0].number = 1 << 60, "is not there"),
        (|contents| contents.segments[0].bytes = 1 << 60, "longer than a file of a log can be"),
        (|contents| contents.segments[0].capacity = u64::MAX, "longer than a file of a log can be"),
        (|contents| contents.segments[0].bytes = 1 << 33, "it ends there"),
        (
            |contents| (contents.segments[0].tail, contents.segments[0].capacity) = (Tail::Flushed, 1 << 33),
            "it ends there",
        ),
        (|contents| contents.segments[0].bytes = 0, "its header is cut off"),
        (|contents| contents.segments.extend_from_within(..), "names a file that can't be, or one twice"),
    ];
    for (change, words) in changes {
        let made = Made::empty(&tables);
        made.rewrite(change);
        made.read(Some(words), MIB);
    }
    // The last epoch can be read, but no transaction could commit in a later one.
    let made = Made::empty(&tables);
    made.rewrite(|contents| contents.epoch = format::EPOCH_MAX);
    assert!(inspect::recover(&made.disk, 1, &|_| ()).is_ok());
    let opened = Log::open(Arc::new(made.disk.clone()), LogConfig { workers: 1, ..LogConfig::default() });
    assert!(opened.is_err_and(|error| error.to_string().contains("used up")));
    // Epoch 0 of a worker's block: a checkpoint computes the epoch before it.
    let made = Made::empty(&tables);
    // A checkpoint leaves the file, because of its LSN.
    made.rewrite(|contents| (contents.segments[0].blocks, contents.segments[0].last_lsn) = (Some((0, 9)), u64::MAX));
    let (log, _) = Log::open(Arc::new(made.disk.clone()), LogConfig::default()).expect("it can be read");
    log.checkpoint_by_hand().expect("a disk that works");
}

/// A manifest whose tables were changed, with a checksum that is right.
fn with_record(made: &Made, count: u64, record: &[u8]) {
    let mut manifest = made.disk.contents("manifest").expect("it is there");
    let part = manifest.len() / 8;
    for place in [4, 6] {
        manifest[place * part..][..record.len()].copy_from_slice(record);
    }
    for copy in 0..4 {
        let bytes = &mut manifest[copy * part..];
        let length = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")) as usize;
        if length == 0 {
            continue;
        }
        // The words of a copy: the file's length, the epoch, the LSN, the flush, and of the tables
        // the count, the checksum and the bytes.
        let sum = xxh3_64_with_seed(record, 0);
        for (word, value) in [(4, count), (5, sum), (6, record.len() as u64)] {
            bytes[32 + 8 * word..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crate::manifest::checksum(&bytes[..32 + length]);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    }
    made.disk.damage("manifest", manifest);
}

fn record(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes()].concat()
}

#[test]
fn tables_that_can_not_be_are_refused() {
    let json = |name: &str, key: u64, row: u64, groups: &str| {
        record(&format!(
            r#"{{"name":"{name}","key_words":{key},"row_words":{row},"groups":{groups},"ordered":true,"columns":""}}"#
        ))
    };
    let long = "n".repeat(4000);
    // Valid tables first: the manifests that `with_record` makes can be read.
    for (name, row) in [("t", 1), (&*long, 1 << 20)] {
        let made = Made::empty(&[]);
        with_record(&made, 1, &json(name, 1, row, &format!("[[0,{row}]]")));
        made.read(None, MIB);
    }
    let bad = [
        (1, json("t", 0, 1, "[[0,1]]")),
        (1, json("t", 1 << 60, 1, "[[0,1]]")),
        (1, json("t", 1, 1 << 60, "[[0,1]]")),
        (1, json("t", 1, 1 << 26, "[[0,1]]")),
        (1, json("t", 1, 1, "[]")),
        (1, json("t", 1, 1, "[[0,2]]")),
        (1, json("t", 1, 2, "[[2,1]]")),
        (1, json("t", 1, 2, "[[0,2],[1,2]]")),
        (1, json("t", 1, 1, &format!("[{}[0,1]]", "[0,0],".repeat(16)))),
        (1, json("t", 1, 1, &"[".repeat(2000))),
        // More tables than there are bytes for, and a name that is longer than the file.
        (1 << 60, json("t", 1, 1, "[[0,1]]")),
        (1, [&u32::MAX.to_le_bytes()[..], b"{\"name\":\"nnnn"].concat()),
    ];
    for (count, record) in bad {
        let made = Made::empty(&[]);
        with_record(&made, count, &record);
        made.read(Some("its tables can't be read"), MIB);
    }
}

#[test]
fn the_tables_of_a_database_are_checked_before_they_are_logged() {
    let disk = FaultyDisk::new(Plan::default());
    let (log, _) = Log::open(Arc::new(disk), LogConfig { workers: 1, ..LogConfig::default() }).expect("a new log");
    let large = Schema { row_words: 1 << 40, ..schema("t") };
    assert!(matches!(log.bind(0, &large), Err(LogError::BadSchema { .. })));
    assert_eq!(log.bind(0, &schema("t")), Ok(0));
}

/// Many tables of which no row was written take memory like their bytes.
#[test]
fn tables_without_rows_take_little() {
    let tables: Vec<_> = (0..2000).map(|number| schema(&number.to_string())).collect();
    let made = Made::empty(&tables);
    let bytes = made.disk.contents("manifest").expect("it is there").len();
    made.read(None, 8 * bytes + MIB);
}

#[test]
fn counts_that_are_too_large_end_with_the_bytes() {
    let tables = [schema("t")];
    // 2^60 in LEB128.
    let many = [&[0x80; 8][..], &[0x10]].concat();
    let deleted = |key: u8| vec![2 | 8, 1, key];
    let bodies: [(Vec<u8>, &str); 5] = [
        // A count of 2^60 writes, and one write.
        ([&many[..], &deleted(7)].concat(), "it ends within a number"),
        // A count of 2^60 additions, and one addition.
        ([&[1, 3, 0, 0, 1, 7][..], &many, &[0, 2]].concat(), "it ends within a number"),
        // An addition to a word that is far away.
        ([&[1, 3, 0, 0, 1, 7, 1][..], &many, &[2]].concat(), "there is no such word"),
        // A table that is far away.
        ([&[1][..], &many].concat(), "there is no such table"),
        // A word of 15 bytes.
        (vec![1, 2 | 8, 15, 7], "a word is too long"),
    ];
    for (body, words) in bodies {
        let file = [header(&tables), block(&body, 1)].concat();
        Made::new(&tables, Tail::Nothing, 0, file).read(Some(words), MIB);
    }
    // A block that says that it has 4 GiB.
    let mut cut = block(&[0], 1);
    cut[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let file = [header(&tables), cut].concat();
    Made::new(&tables, Tail::Nothing, 0, file).read(Some("a block is cut off"), MIB);
}

/// A deletion of a few bytes takes as much memory as a row, which may have megabytes.
#[test]
fn rows_far_larger_than_the_log_are_refused() {
    let large = Schema { row_words: 1 << 20, groups: vec![(0, 1 << 20)], ..schema("t") };
    let mut body = Vec::new();
    for key in 0..4000u64 {
        let write = Write { table: 0, key: &[key], counter: WriteCounter(1 << 28), change: Change::Delete };
        format::put_transaction(0, 1, std::iter::once((write, &large)), &mut body);
    }
    let tables = [large];
    let made = Made::new(&tables, Tail::Nothing, 0, [header(&tables), block(&body, 1)].concat());
    let (recovered, memory) = most_memory(|| inspect::recover(&made.disk, 1, &|_| ()).map(|_| ()));
    assert!(recovered.is_err_and(|error| error.to_string().contains("far more memory")));
    // Vectors that grow have up to twice what they need, and the old one while they do.
    assert!(memory < 512 * MIB, "{memory} bytes");
}

/// A header every few bytes, each of a block up to the end of the file: their checksums would be of
/// a square of its bytes.
#[test]
fn a_tail_of_headers_is_read_once() {
    let tables = [schema("t")];
    let begin = [header(&tables), block(&[0], 1)].concat();
    let known = begin.len();
    let mut tail = Vec::new();
    let length = 4 * MIB;
    while tail.len() + BLOCK_HEADER < length {
        let mut head = block(&[], 9);
        head[4..8].copy_from_slice(&((length - tail.len() - BLOCK_HEADER) as u32).to_le_bytes());
        tail.extend_from_slice(&head);
    }
    tail.resize(length, 0);
    // The last header alone is whole, so it would be the latest flush.
    let made = Made::new(&tables, Tail::Flushed, known, [begin, tail].concat());
    made.read(Some("more blocks begin here than there is room for"), 3 * length + MIB);
}

/// Ends of flushes and nothing else: they are counted, and those of a missing flush are refused.
#[test]
fn a_tail_of_ends_takes_little_memory() {
    let tables = [schema("t")];
    let begin = [header(&tables), block(&[0], 1)].concat();
    let ends =
        |numbers: std::ops::Range<u64>| numbers.flat_map(|log_flush| End { files: 1, epoch: 5, log_flush }.bytes(SALT));
    let most = |file: &Vec<u8>| 4 * file.len() + MIB;
    let whole = [&begin[..], &ends(1..100_000).collect::<Vec<_>>()].concat();
    Made::new(&tables, Tail::Epochs, begin.len(), whole.clone()).read(None, most(&whole));
    let gap = [&begin[..], &ends(1..50_000).chain(ends(50_001..100_000)).collect::<Vec<_>>()].concat();
    Made::new(&tables, Tail::Epochs, begin.len(), gap.clone()).read(Some("flush 50000 of the log"), most(&gap));
    // A number that is far away takes no longer.
    let far = [&begin[..], &ends(1 << 60..(1 << 60) + 1).collect::<Vec<_>>()].concat();
    Made::new(&tables, Tail::Epochs, begin.len(), far.clone()).read(Some("flush 1 of the log"), most(&far));
}

/// Keys that all have one slot would take a time that is a square of their number, if the stranger
/// knew how they are hashed.
#[test]
fn keys_of_one_slot_can_not_be_chosen() {
    use crate::rows::{Reader, TableRows};
    let tables = [schema("t")];
    let rows = TableRows::new(&tables, u64::MAX);
    let mut reader = Reader::new(&rows, false);
    // The low bits of these keys are the same, as are those of their multiples.
    for key in 0..4096u64 {
        let write = Write { table: 0, key: &[key << 52], counter: WriteCounter(1 << 28), change: Change::Insert(&[1]) };
        reader.add(1, &write).expect("there is no bound");
    }
    reader.finish();
    let parts = rows.into_parts().remove(0);
    let longest = parts.iter().map(crate::rows::Rows::longest_run).max();
    // Each part has some 64 of them.
    assert!(longest < Some(40), "{longest:?} slots in a row");
}

/// A directory may have pipes, links, and files whose names are nearly those of a log.
#[test]
fn what_is_no_regular_file_is_not_opened() {
    let here = tempfile::tempdir().expect("a directory");
    let elsewhere = here.path().join("elsewhere");
    std::fs::write(&elsewhere, b"somebody's").expect("there is room");
    let make = |name: &str| {
        let path = here.path().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        path
    };
    let refused = |error: LogError| error.to_string().contains("not a regular file");
    let linked = make("linked");
    std::os::unix::fs::symlink(&elsewhere, linked.join("manifest")).expect("a link");
    let disk = Directory::read_only(&linked).expect("it is there");
    assert!(inspect::inspect(&disk).map(|_| ()).is_err_and(refused));
    let piped = make("piped");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        piped.join("manifest"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    let disk = Directory::read_only(&piped).expect("it is there");
    assert!(inspect::inspect(&disk).map(|_| ()).is_err_and(refused));
    let locked = make("locked");
    std::os::unix::fs::symlink(here.path().join("new"), locked.join("lock")).expect("a link");
    assert!(Directory::open(&locked).map(|_| ()).is_err_and(refused));
    assert!(Directory::read_only(&locked).map(|_| ()).is_err_and(refused));
    assert!(!here.path().join("new").exists(), "nothing is made elsewhere");
    let named = make("named");
    for name in ["log-+5", "log-5", "log-18446744073709551615", "log-00000004", "log-x"] {
        std::fs::write(named.join(name), b"somebody's").expect("there is room");
    }
    // Without a manifest they may be what is left of a log.
    let open = || Log::open(Arc::new(Directory::open(&named).expect("it is nobody's")), LogConfig::default());
    assert!(matches!(open(), Err(LogError::Missing { .. })));
    let made = Manifest::create(&Directory::open(&named).expect("it is nobody's")).expect("there is room");
    drop(made);
    drop(open().expect("a new log"));
    let mut left: Vec<_> =
        std::fs::read_dir(&named).expect("it is there").map(|file| file.expect("it is there")).collect();
    left.retain(|file| file.file_name().to_string_lossy().starts_with("log-"));
    assert_eq!(left.len(), 4, "only what has a name that a log gives is removed");
}

/// A sparse file may have any length.
#[test]
fn sparse_files_are_refused() {
    let here = tempfile::tempdir().expect("a directory");
    let manifest = std::fs::File::create(here.path().join("manifest")).expect("there is room");
    manifest.set_len(1 << 40).expect("a sparse file");
    let disk = Directory::read_only(here.path()).expect("it is there");
    let (found, memory) = most_memory(|| inspect::inspect(&disk).map(|_| ()));
    assert!(found.is_err_and(|error| error.to_string().contains("longer than a manifest can be")) && memory < MIB);
    drop(disk);
    std::fs::remove_file(here.path().join("manifest")).expect("it is there");
    let disk = Directory::open(here.path()).expect("it is nobody's");
    let mut made = Manifest::create(&disk).expect("there is room");
    let segment = Segment { salt: SALT, bytes: 40, capacity: 40, tail: Tail::Flushed, ..Segment::EMPTY };
    std::fs::File::create(here.path().join(segment.name()))
        .and_then(|file| {
            std::os::unix::fs::FileExt::write_all_at(&file, &header(&[]), 0)?;
            file.set_len(1 << 40)
        })
        .expect("a sparse file");
    let contents = ManifestContents { segments: vec![segment], ..made.contents.clone() };
    made.write(&disk, contents).expect("there is room");
    let (found, memory) = most_memory(|| inspect::recover(&disk, 1, &|_| ()).map(|_| ()));
    assert!(found.is_err_and(|error| error.to_string().contains("longer than a file of a log can be")));
    assert!(memory < MIB, "{memory} bytes");
}
