//! Recovery: from files to rows.
//!
//! **What counts.** The manifest says how many bytes of each file count, and up to which epoch.
//! These bytes have to be there, each block whole: damage to them is an error, never a shorter
//! log. A block of a later epoch than the durable one does not count.
//!
//! **Tails.** Most flushes do not write the manifest, so a file may hold more behind the bytes that
//! the manifest knows of (`Tail`). Recovery reads on to the first block that is not whole. There
//! the last flush was interrupted, which was not acknowledged.
//!
//! - With the commit protocol `epoch` a flush ends with a record in each of its files
//!   ([`format::End`]). It was acknowledged after all of them were synchronised. So it counts if
//!   all are there; else none of it does (`with_tails`). Flushes are numbered, and each begins when
//!   the one before has been acknowledged. So if one is missing, and a later one is there, that is
//!   damage. Damage to the very last flush alone can't be told from an interruption.
//! - A worker that flushes by itself ([`crate::commit`]) numbers its own flushes in the same way.
//!   If a block follows that is two flushes later or more, a synchronised block is missing, and
//!   that is damage. With LSNs a transaction of a tail counts if no smaller LSN is missing.
//!
//! **Decided once.** When a log is opened, its manifest is told what was found: the tails that
//! count, and up to which epoch or LSN each old file counts. So a transaction that was discarded
//! stays discarded, whatever is committed later. This takes one write of the manifest, for which
//! there is room on a full disk as well.
//!
//! **Any order.** Of the writes of a row the one with the largest write counter is the last
//! ([`contend_engine::commit_sink`]). So files are read in any order, by several threads at once.
//!
//! **Strangers.** A directory may come from a stranger, with correct checksums. Reading ends with
//! an error or with the rows that the files hold, after a time and with memory that their bytes
//! justify (`How::is_bounded`): the largest file is 8 GiB, a file is named once, no count is
//! believed before its bytes are there, and keys are hashed with secret seeds. A log of which
//! [`crate::inspect::recover`] returned the rows can be opened with about the same memory. What the
//! rows hold is the stranger's choice, as are the write counters, so copy rows out of such a log
//! instead of going on with it.
//!
//! **Threads.** Each takes the number of the next file from a counter, so each file is read by one
//! thread. They meet in two places: in the parts of [`rows::TableRows`], each under a lock, and in
//! `FileFindings`, under one. The order in which they come there does not matter, because what they
//! bring is joined by maxima, sums, and the write counters. The end of the scope joins the threads,
//! so the caller sees all that they have stored.
//!
//! The atomics are those of the standard library: recovery runs before there is an engine, in
//! threads that no explorer schedules.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use contend_engine::commit_sink::WriteCounter;
use contend_engine::{KeyWords, key_of};
use contend_model::counted;
use parking_lot::Mutex;

use crate::commit::FIRST_LSN;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, Block, Change, End, FILE_HEADER, Record, Write};
use crate::manifest::{self, ManifestContents, Segment, TableSchemas, Tail};
use crate::rows::{self, Reader, Rows};
use crate::schema::Schema;

/// A table, as recovery found it.
#[derive(Debug)]
pub struct RecoveredTable {
    /// Its schema.
    pub schema: Schema,
    /// Its number in the log.
    pub number: u32,
    parts: Vec<Rows>,
}

impl RecoveredTable {
    /// Returns the keys and rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (KeyWords, &[u64])> {
        let known = self.parts.iter().flat_map(|rows| rows.iter(&self.schema));
        known.filter(|(_, known)| known.is_there()).map(|(key, known)| (key_of(key), known.row()))
    }
}

/// Statistics of a recovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Every transaction that committed in this epoch or earlier is there.
    pub epoch: u64,
    /// Log files that were read.
    pub files: usize,
    /// Bytes of these files that count.
    pub bytes: u64,
    /// Transactions that count.
    pub transactions: u64,
    /// Writes of rows that count.
    pub records: u64,
    /// Rows that exist after the last transaction.
    pub rows: u64,
    /// Transactions that were found, and that were not durable: they were not acknowledged, and
    /// were discarded.
    pub discarded: u64,
    /// The time it took, in seconds.
    pub seconds: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { epoch, files, bytes, transactions, records, rows, discarded, seconds } = self;
        let was = if *discarded == 1 { "was" } else { "were" };
        write!(
            f,
            "recovered {} up to epoch {epoch}: {}, {}, {} of {} in {seconds:.3} s; {} {was} not durable, and {was} discarded",
            counted(*rows, "row"),
            counted(*transactions, "transaction"),
            counted(*records, "record"),
            counted(*bytes, "byte"),
            counted(*files, "file"),
            counted(*discarded, "transaction")
        )
    }
}

/// The rows of a log.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The tables, by their numbers.
    pub tables: Vec<RecoveredTable>,
    /// Statistics.
    pub report: Report,
}

/// The largest epoch and LSN that were read, durable or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Last {
    pub(crate) epoch: u64,
    pub(crate) lsn: u64,
}

impl Last {
    fn max(self, other: Last) -> Last {
        Last { epoch: self.epoch.max(other.epoch), lsn: self.lsn.max(other.lsn) }
    }
}

/// What was read of all files.
pub(crate) struct All {
    /// The parts of each table.
    pub(crate) tables: Vec<Vec<Rows>>,
    report: Report,
    pub(crate) last: Last,
    /// The entries of the files in the manifest, as they must be from now on.
    segments: Vec<Segment>,
    /// Files that are longer than the bytes that count.
    pub(crate) longer: Vec<Segment>,
}

impl All {
    /// Checks that each addition has the write that it was added to. If writes were traced, checks
    /// also that those of each row can have happened in the order of their write counters.
    ///
    /// # Errors
    /// One of the two is not so: a file has changed, or was wrong from the start.
    pub(crate) fn check(&mut self, contents: &ManifestContents) -> Result<(), LogError> {
        let key_of = |schema: &Schema, key: &[u64]| format!("{:x?}", &key[..schema.key_words]);
        let begins_empty = contents.segments.iter().all(|segment| !segment.is_of_checkpoint());
        for (schema, parts) in contents.tables.iter().zip(&mut self.tables) {
            if let Some((key, why)) = parts.iter_mut().find_map(|rows| rows.find_disorder(schema, begins_empty)) {
                return Err(LogError::Disorder { table: schema.name.clone(), key: key_of(schema, key), why });
            }
            let mut rows = parts.iter().flat_map(|rows| rows.iter(schema));
            if let Some((key, _)) = rows.find(|(_, known)| known.lacks_base()) {
                return Err(LogError::Incomplete { table: schema.name.clone(), key: key_of(schema, key) });
            }
        }
        Ok(())
    }

    /// Returns the contents of a manifest by which the files hold exactly what was found, whatever
    /// is committed later.
    pub(crate) fn settled(&self, contents: &ManifestContents) -> ManifestContents {
        let Last { epoch, lsn } = self.last;
        ManifestContents { epoch, lsn: lsn + 1, segments: self.segments.clone(), ..contents.clone() }
    }

    /// Returns the rows.
    pub(crate) fn into_rows(self, contents: &ManifestContents, began: Instant) -> Recovered {
        let All { tables, mut report, .. } = self;
        let tables = (0..).zip(contents.tables.iter()).zip(tables).map(|((number, schema), parts)| RecoveredTable {
            schema: schema.clone(),
            number,
            parts,
        });
        let tables: Vec<_> = tables.collect();
        report.rows = tables.iter().map(|table: &RecoveredTable| table.rows().count() as u64).sum();
        report.epoch = contents.epoch;
        report.seconds = began.elapsed().as_secs_f64();
        Recovered { tables, report }
    }
}

/// How files are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) threads: usize,
    /// Whether all writes are kept, 24 bytes each, for [`All::check`].
    pub(crate) traces: bool,
    /// Whether the files may be a stranger's: then they are refused if their rows take far more
    /// memory than they have bytes.
    pub(crate) is_bounded: bool,
    pub(crate) fault: Option<Fault>,
}

/// Words of rows that files may hold in any case; and per byte of the files. A deletion of a few
/// bytes takes as many words as a row.
const WORDS_MAX: u64 = 1 << 24;
const WORDS_MAX_PER_BYTE: u64 = 512;

/// What the threads that read files have found together.
struct FileFindings {
    report: Report,
    last: Last,
    segments: Vec<Segment>,
    longer: Vec<Segment>,
}

impl FileFindings {
    fn add(&mut self, number: usize, read: Read) {
        let Read { report, last, segment, is_longer } = read;
        self.report.files += 1;
        self.report.bytes += report.bytes;
        self.report.transactions += report.transactions;
        self.report.records += report.records;
        self.report.discarded += report.discarded;
        // Sums and maxima, so the order of the files does not matter. The entry has its place by
        // its number, so that the manifest keeps its order.
        self.last = self.last.max(last);
        self.longer.extend(is_longer.then(|| segment.clone()));
        self.segments[number] = segment;
    }
}

/// Reads all files of a manifest, and keeps the last known write of each row. `progress` is told of
/// bytes that were read.
///
/// # Errors
/// A file is not there, or not as it was; or the rows take too much memory ([`How::is_bounded`]).
pub(crate) fn read_all(
    disk: &dyn Disk,
    contents: &ManifestContents,
    how: How,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<All, LogError> {
    let words_max = if how.is_bounded { words_max(disk, contents)? } else { u64::MAX };
    let tables = rows::TableRows::new(&contents.tables, words_max);
    let durable_lsn = durable_lsn(disk, contents)?;
    let last = Last { epoch: contents.epoch, lsn: contents.lsn.saturating_sub(1) };
    let (report, segments) = (Report::default(), contents.segments.clone());
    let found = Mutex::new(FileFindings { report, last, segments, longer: Vec::new() });
    let (next, read) = (AtomicUsize::new(0), AtomicUsize::new(1));
    let read_files = || -> Result<(), LogError> {
        let mut reader = Reader::new(&tables, how.traces);
        loop {
            // Relaxed: an addition gives each number to one thread, whatever other accesses it is
            // ordered with. The segments were there before the threads, whose start orders them.
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(segment) = contents.segments.get(number) else { break };
            let outcome = read_segment(disk, contents, segment, durable_lsn, how.fault, |epoch, mut write| {
                let forgets = match how.fault {
                    Some(Fault::ForgetDeletions) => write.change == Change::Delete,
                    Some(Fault::ForgetAdditions) => matches!(write.change, Change::Add(_)),
                    _ => false,
                };
                if forgets {
                    return Ok(());
                }
                if how.fault == Some(Fault::ReplayInFileOrder) {
                    // Relaxed: a counter of which only the order of its own values matters.
                    write.counter = WriteCounter(read.fetch_add(1, Ordering::Relaxed) as u64);
                }
                reader.add(epoch, &write)
            });
            // Another thread's addition may come before the store: then that thread reads one more
            // file. After the store it gets a number behind the last. Relaxed: after a failure the
            // other threads find no more files, sooner or later.
            let read = outcome.inspect_err(|_| next.store(contents.segments.len(), Ordering::Relaxed))?;
            // Once for each file, so the threads seldom meet here.
            let mut found = found.lock();
            progress(read.report.bytes);
            found.add(number, read);
        }
        reader.finish();
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..how.threads.min(contents.segments.len())).map(|_| scope.spawn(read_files)).collect();
        // This thread reads as well. If it fails, the counter has ended the others, and the scope
        // waits for them all the same.
        let own = read_files();
        let outcomes = others.into_iter().map(|other| other.join().expect("reading does not panic"));
        outcomes.fold(own, |first, other| first.and(other))
    })?;
    let FileFindings { report, last, segments, longer } = found.into_inner();
    Ok(All { tables: tables.into_parts(), report, last, segments, longer })
}

/// Returns the most words of rows that these files may hold if they are a stranger's.
fn words_max(disk: &dyn Disk, contents: &ManifestContents) -> Result<u64, LogError> {
    let mut bytes = 0u64;
    for segment in &contents.segments {
        bytes = bytes.saturating_add(open(disk, segment)?.1);
    }
    Ok(bytes.saturating_mul(WORDS_MAX_PER_BYTE).saturating_add(WORDS_MAX))
}

/// Cuts these files off behind the bytes that count. A failure leaves a file longer, which does no
/// harm.
pub(crate) fn trim(disk: &dyn Disk, segments: &[Segment]) {
    for segment in segments {
        let _ = disk.open(&segment.name(), true).and_then(|mut file| file.truncate(segment.bytes));
    }
}

/// No file is longer: it has a block of 2^32 bytes at most, or is ended before it is longer than
/// 2^32 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 33;

/// Opens a file to be read. Returns how long it is as well.
fn open(disk: &dyn Disk, segment: &Segment) -> Result<(Box<dyn DiskFile>, u64), LogError> {
    let place = disk.place(&segment.name());
    let file = disk.open(&segment.name(), false).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LogError::Missing { place: place.clone() },
        _ => LogError::io("open", &place)(error),
    })?;
    let length = file.bytes().map_err(LogError::io("read", &place))?;
    Ok((file, length))
}

/// Returns the bytes of a file that may have blocks, and how long the file is.
fn read_file(disk: &dyn Disk, tables: &TableSchemas, segment: &Segment) -> Result<(Vec<u8>, u64), LogError> {
    let place = disk.place(&segment.name());
    let (file, length) = open(disk, segment)?;
    // A file with a tail was reserved at its capacity, and is not cut off before its tail is
    // settled.
    // The manifest counts bytes only after they were synchronised. So a file that is shorter has
    // lost some, and that is damage.
    let needed = if segment.tail == Tail::Nothing { segment.bytes } else { segment.capacity.max(segment.bytes) };
    if length < needed {
        let why = format!("it ends there, and had {}", counted(needed, "byte"));
        return Err(LogError::Damaged { place, offset: length, why });
    }
    let wanted = if segment.tail == Tail::Nothing { segment.bytes } else { length };
    // The length of a sparse file says nothing about the bytes that the disk holds.
    if wanted > FILE_BYTES_MAX {
        let why = "it is longer than a file of a log can be".to_owned();
        return Err(LogError::Damaged { place, offset: FILE_BYTES_MAX, why });
    }
    // A trial that can fail; `vec!` can't, but gets zeros from the system without writing them.
    let room = Vec::<u8>::new().try_reserve_exact(wanted as usize);
    room.map_err(|_| LogError::io("read", &place)(std::io::ErrorKind::OutOfMemory.into()))?;
    let mut bytes = vec![0; wanted as usize];
    file.read_at(0, &mut bytes).map_err(LogError::io("read", &place))?;
    let header = format::read_file_header(&bytes, segment.salt, tables);
    header.map_err(|why| LogError::Damaged { place, offset: 0, why: why.to_owned() })?;
    Ok((bytes, length))
}

/// The part of a file that was written and synchronised, as far as can be known.
struct Extent {
    /// The end of its last block.
    bytes: u64,
    /// The epochs of its first block and of its last.
    blocks: Option<(u64, u64)>,
    /// The length of the file.
    length: u64,
}

/// Visits the blocks of a file that were written and synchronised, as far as can be known.
fn for_each_block(
    disk: &dyn Disk,
    tables: &TableSchemas,
    segment: &Segment,
    mut visit: impl FnMut(Block<'_>) -> Result<(), &'static str>,
) -> Result<Extent, LogError> {
    let (bytes, length) = read_file(disk, tables, segment)?;
    let (mut rest, mut flush, mut blocks) = (&bytes[FILE_HEADER..], 0, None);
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let damaged = |why: &str| LogError::Damaged {
            place: disk.place(&segment.name()),
            offset: offset as u64,
            why: why.to_owned(),
        };
        match format::read_record(rest, segment.salt) {
            Ok((Record::End(_), behind)) => rest = behind,
            Ok((Record::Block(block), behind)) => {
                visit(block).map_err(damaged)?;
                (rest, flush) = (behind, block.flush);
                // Blocks are in the order of their epochs: a worker's epochs never fall, and its
                // buffer reaches the file in order (`Log::try_write`).
                blocks = Some((blocks.map_or(block.epoch, |(first, _)| first), block.epoch));
            }
            // Inside the bytes that were synchronised every block is whole.
            Err(why) if (offset as u64) < segment.bytes => return Err(damaged(why)),
            // The flush of the last whole block was interrupted here, or the one after it. A later
            // one can't have begun.
            Err(why) => match format::latest_flush(rest, segment.salt).map_err(damaged)? {
                Some(later) if later > flush + 1 => return Err(damaged(why)),
                _ => return Ok(Extent { bytes: offset as u64, blocks, length }),
            },
        }
    }
    Ok(Extent { bytes: bytes.len() as u64, blocks, length })
}

/// What a file has behind the bytes that the manifest knows of.
struct FileTail {
    /// The position of the file in the manifest.
    position: usize,
    /// Where the last record that is whole ends.
    end: u64,
    /// The epochs of the first and of the last block that is whole.
    blocks: Option<(u64, u64)>,
    /// The ends of flushes.
    ends: Vec<End>,
    /// Whether anything but zeros is behind it.
    is_torn: bool,
    /// The number of the latest flush whose end is there; or 0.
    beyond: u64,
}

impl FileTail {
    /// Reads the tail of a file from its bytes.
    fn read(position: usize, segment: &Segment, bytes: &[u8]) -> Self {
        let (mut blocks, mut ends) = (None::<(u64, u64)>, Vec::new());
        let mut rest = bytes.get(segment.bytes as usize..).unwrap_or_default();
        while let Ok((record, behind)) = format::read_record(rest, segment.salt) {
            rest = behind;
            match record {
                Record::Block(Block { epoch, .. }) => blocks = Some((blocks.map_or(epoch, |(first, _)| first), epoch)),
                Record::End(end) => ends.push(end),
            }
        }
        let is_torn = rest.chunks(4096).any(|page| page.iter().fold(0, |all, &byte| all | byte) != 0);
        let beyond = if is_torn { format::latest_end(rest, segment.salt) } else { 0 };
        FileTail { position, end: (bytes.len() - rest.len()) as u64, blocks, ends, is_torn, beyond }
    }
}

/// Reads the tails of files. If `keeps`, makes them durable as they were read. The process may have
/// ended before it synchronised them. Or a synchronisation had failed. Then the system's cache may
/// have what the disk has not, and take it for written, so that one more synchronisation would do
/// nothing. So the bytes are written again.
fn read_tails(
    disk: &dyn Disk,
    contents: &ManifestContents,
    keeps: bool,
    fault: Option<Fault>,
) -> Result<Vec<FileTail>, LogError> {
    let segments = contents.segments.iter().enumerate().filter(|(_, segment)| segment.tail != Tail::Nothing);
    let segments: Vec<_> = segments.collect();
    let mut tails = Vec::new();
    // A process may have some hundred files open at once.
    for segments in segments.chunks(64) {
        let (mut files, mut places) = (Vec::new(), Vec::new());
        for &(position, segment) in segments {
            let (bytes, _) = read_file(disk, &contents.tables, segment)?;
            let tail = FileTail::read(position, segment, &bytes);
            if keeps && tail.end > segment.bytes {
                let place = disk.place(&segment.name());
                let mut file = disk.open(&segment.name(), true).map_err(LogError::io("open", &place))?;
                if fault != Some(Fault::TrustCache) {
                    let found = &bytes[segment.bytes as usize..tail.end as usize];
                    file.write_at(segment.bytes, found).map_err(LogError::io("write", &place))?;
                }
                files.push(file);
                places.push(place);
            }
            tails.push(tail);
        }
        let mut files: Vec<_> = files.iter_mut().map(|file| &mut **file as _).collect();
        // A failure is not tried again here. The next start reads the files anew.
        let failed = |(file, error): (usize, _)| LogError::io("synchronise", &places[file])(error);
        disk.sync(&mut files).map_err(failed)?;
    }
    Ok(tails)
}

/// Returns the contents of a manifest as if the last flush of an epoch that is whole had written
/// it. If `keeps`, first makes durable what all tails have, whatever it counts.
///
/// # Errors
/// A file can't be read, or what an acknowledged flush has written is missing.
pub(crate) fn with_tails(
    disk: &dyn Disk,
    mut contents: ManifestContents,
    keeps: bool,
    fault: Option<Fault>,
) -> Result<ManifestContents, LogError> {
    let tails = read_tails(disk, &contents, keeps, fault)?;
    let mut ends: Vec<&End> = tails.iter().flat_map(|tail| &tail.ends).collect();
    ends.sort_by_key(|end| end.log_flush);
    let last = tails.iter().map(|tail| tail.beyond).chain(ends.last().map(|end| end.log_flush)).max();
    let (mut epoch, mut next) = (contents.epoch, contents.flush + 1);
    let mut flushes = ends.chunk_by(|one, other| one.log_flush == other.log_flush).peekable();
    while let Some(last) = last.filter(|last| next <= *last) {
        // Ends of the flush; none if its number is not there.
        let ends = flushes.next_if(|ends| ends[0].log_flush == next).unwrap_or_default();
        let count_parts = fault == Some(Fault::CountParts);
        match ends.first() {
            Some(end) if ends.len() >= end.files as usize || count_parts => epoch = epoch.max(end.epoch),
            // The last flush was interrupted. Each begins when all ends of the one before were
            // synchronised, so none before can lack one.
            _ if next == last || fault == Some(Fault::IgnoreMissing) => {}
            _ => {
                // A file that has no later end than this is to blame, above all one that has more
                // behind its last whole record.
                let is_suspect = |tail: &&FileTail| tail.ends.last().is_none_or(|end| end.log_flush < next);
                let suspect = tails.iter().filter(is_suspect).max_by_key(|tail| (tail.beyond, tail.is_torn));
                let name = |tail: &FileTail| contents.segments[tail.position].name();
                let place = suspect.map_or(manifest::NAME.to_owned(), name);
                let why = format!("flush {next} of the log was acknowledged, and is not whole");
                return Err(LogError::Damaged {
                    place: disk.place(&place),
                    offset: suspect.map_or(0, |tail| tail.end),
                    why,
                });
            }
        }
        next += 1;
    }
    contents.epoch = epoch;
    for FileTail { position, end, blocks, .. } in tails {
        let segment = &mut contents.segments[position];
        if segment.tail == Tail::Epochs {
            let first = segment.blocks.or(blocks).map(|(first, _)| first);
            segment.blocks = first.zip(blocks.or(segment.blocks)).map(|(first, (_, last))| (first, last));
            // Whole blocks of later epochs are there, and never count.
            (segment.bytes, segment.last_epoch) = (end, segment.last_epoch.min(epoch));
            segment.tail = Tail::Nothing;
        }
    }
    Ok(contents)
}

/// Returns an LSN below which all transactions are in the files of a manifest, or were durable
/// before.
pub(crate) fn durable_lsn(disk: &dyn Disk, contents: &ManifestContents) -> Result<u64, LogError> {
    let (mut numbers, mut known) = (Vec::new(), contents.lsn.max(FIRST_LSN));
    for segment in contents.segments.iter().filter(|segment| segment.tail == Tail::InOrder) {
        for_each_block(disk, &contents.tables, segment, |block| {
            // A worker wrote this into the block after it had seen the flushes of all smaller LSNs
            // (`Log::durable_lsn`). So LSNs below it need not be found: a checkpoint may have
            // dropped them.
            known = known.max(block.durable);
            let note = |lsn| {
                if lsn >= known {
                    numbers.push(lsn);
                }
                false
            };
            format::read_body(block, &contents.tables, note, |_| Ok(()))
        })?;
    }
    // The first gap ends it. The transaction with the missing LSN was in a buffer at the crash, or
    // in a block that was not whole, so no later one was acknowledged.
    numbers.sort_unstable();
    let missing = |next, lsn: u64| if lsn > next { Err(next) } else { Ok(next.max(lsn + 1)) };
    let (Ok(end) | Err(end)) = numbers.iter().try_fold(known, |next, &lsn| missing(next, lsn));
    Ok(end)
}

/// What was read of one file.
pub(crate) struct Read {
    report: Report,
    last: Last,
    /// Its entry in the manifest from now on: what was found, without a tail.
    segment: Segment,
    /// Whether the file is longer than the bytes that count.
    is_longer: bool,
}

/// Reads a file. `visit` is called with the epoch of the block and each write that counts.
/// `durable_lsn` is that of all files ([`durable_lsn`]).
pub(crate) fn read_segment(
    disk: &dyn Disk,
    contents: &ManifestContents,
    segment: &Segment,
    durable_lsn: u64,
    fault: Option<Fault>,
    mut visit: impl FnMut(u64, Write<'_>) -> Result<(), &'static str>,
) -> Result<Read, LogError> {
    let (mut report, mut last) = (Report::default(), Last::default());
    let extent = for_each_block(disk, &contents.tables, segment, |block| {
        let is_durable = block.epoch <= contents.epoch.min(segment.last_epoch);
        // By the tail: nothing was acknowledged but whole epochs; or each flushed block may have
        // been; or each whose LSN comes before the first gap.
        let counts = |lsn| match segment.tail {
            // A tail of epochs has become one of nothing by now (`with_tails`).
            Tail::Nothing | Tail::Epochs => is_durable || lsn < segment.end_lsn,
            Tail::Flushed => true,
            Tail::InOrder => is_durable || lsn < durable_lsn || fault == Some(Fault::IgnoreGaps),
        };
        last.epoch = last.epoch.max(block.epoch);
        let tally = |lsn| {
            last.lsn = last.lsn.max(lsn);
            *if counts(lsn) { &mut report.transactions } else { &mut report.discarded } += 1;
            counts(lsn)
        };
        format::read_body(block, &contents.tables, tally, |write| {
            report.records += 1;
            visit(block.epoch, write)
        })
    })?;
    let Extent { bytes, blocks, length } = extent;
    report.bytes = bytes;
    let settled = match segment.tail {
        Tail::Nothing | Tail::Epochs => segment.clone(),
        Tail::Flushed => Segment { blocks, ..segment.clone() },
        Tail::InOrder if fault == Some(Fault::ForgetGap) => Segment { blocks, end_lsn: u64::MAX, ..segment.clone() },
        Tail::InOrder => Segment { blocks, end_lsn: durable_lsn, ..segment.clone() },
    };
    let last_epoch = match (segment.tail, fault) {
        (Tail::Flushed, _) | (_, Some(Fault::ForgetLimit)) => u64::MAX,
        _ => segment.last_epoch.min(contents.epoch),
    };
    let last_lsn = settled.last_lsn.max(last.lsn);
    let segment = Segment { bytes, capacity: bytes, last_epoch, tail: Tail::Nothing, last_lsn, ..settled };
    Ok(Read { report, last, segment, is_longer: length > bytes })
}
