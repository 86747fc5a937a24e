//! From files to rows.
//!
//! Every block counts that the manifest says is durable, of an epoch that is; it has to be there. Behind these a worker that flushes by itself
//! may have left more ([`crate::commit`]): blocks up to the first that is not whole. There its last flush was interrupted, unless a block
//! of a flush follows that must have come after the next; then it is damage. With LSNs they count as far as none is missing. When the log is opened the manifest is told
//! what was found, and so nothing of that is decided a second time, when there may be more: all that takes is a write of the manifest, for which there is room also
//! on a full disk.
//!
//! Of the writes of a row the one with the largest
//! stamp is the last ([`contend_engine::journal`]), so that files can be read in any order, and at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use contend_engine::journal::Stamp;
use contend_engine::{KeyWords, key_of};
use parking_lot::Mutex;

use crate::commit::FIRST_LSN;
use crate::disk::Disk;
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, Block, Change, FILE_HEADER, Write};
use crate::manifest::{Contents, Segment, Tables, Tail};
use crate::rows::{PARTS, Reader, Rows};
use crate::schema::Schema;

/// A table as it was.
#[derive(Debug)]
pub struct RecoveredTable {
    /// What it is made of.
    pub schema: Schema,
    /// Its number in the log.
    pub number: u32,
    parts: Vec<Rows>,
}

impl RecoveredTable {
    /// Keys and rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (KeyWords, &[u64])> {
        let known = self.parts.iter().flat_map(|rows| rows.iter(&self.schema));
        known.filter(|(_, known)| known.is_there()).map(|(key, known)| (key_of(key), known.row()))
    }
}

/// What a recovery has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// All that was committed up to this epoch is there.
    pub epoch: u64,
    /// Log files that were read.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Transactions that were found, and are there.
    pub transactions: u64,
    /// Writes of rows that were read.
    pub records: u64,
    /// Rows that there are in the end.
    pub rows: u64,
    /// Transactions that were found, and were not durable: they were not acknowledged, and are not there.
    pub discarded: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { epoch, files, bytes, transactions, records, rows, discarded, seconds } = self;
        write!(
            f,
            "recovered {rows} rows up to epoch {epoch}: {transactions} transactions, {records} records, {bytes} bytes of {files} files \
             in {seconds:.3} s; {discarded} transactions were not durable, and were discarded"
        )
    }
}

/// What a log had.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The tables, by their numbers.
    pub tables: Vec<RecoveredTable>,
    /// What was done.
    pub report: Report,
}

/// The largest numbers that were seen.
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

/// What files had.
pub(crate) struct All {
    /// By table, in no order.
    pub(crate) tables: Vec<Vec<Rows>>,
    report: Report,
    /// Of what was seen, durable or not.
    pub(crate) last: Last,
    /// The files, as they count from now on.
    segments: Vec<Segment>,
    /// Those that are longer than what counts of them.
    pub(crate) longer: Vec<Segment>,
}

impl All {
    /// Whether there is all that something was added to; and, if writes were traced, whether those of each row can have happened in the order of
    /// their stamps.
    ///
    /// # Errors
    /// It is not: a file is not as it was, or was wrong from the start.
    pub(crate) fn check(&mut self, contents: &Contents) -> Result<(), LogError> {
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

    /// What the manifest has to say so that the files of this one hold what was found, and that only, whatever comes later.
    pub(crate) fn settled(&self, contents: &Contents) -> Contents {
        let Last { epoch, lsn } = self.last;
        Contents { epoch, lsn: lsn + 1, segments: self.segments.clone(), ..contents.clone() }
    }

    /// The rows that there are.
    pub(crate) fn into_rows(self, contents: &Contents, began: Instant) -> Recovered {
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

/// Reads all files of a manifest: the last that is known of each row. With `traces` all writes are kept as well, 24 bytes each, for [`All::check`].
pub(crate) fn read_all(
    disk: &dyn Disk,
    contents: &Contents,
    threads: usize,
    traces: bool,
    fault: Option<Fault>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<All, LogError> {
    let parts = || (0..PARTS).map(|_| Mutex::new(Rows::default())).collect::<Vec<_>>();
    let tables: Vec<_> = contents.tables.iter().map(|_| parts()).collect();
    let durable_lsn = durable_lsn(disk, contents)?;
    let last = Last { epoch: contents.epoch, lsn: contents.lsn.saturating_sub(1) };
    let report = Mutex::new((Report::default(), last, contents.segments.clone(), Vec::new()));
    let (next, read) = (AtomicUsize::new(0), AtomicUsize::new(1));
    let read_files = || -> Result<(), LogError> {
        let mut reader = Reader::new(&contents.tables, &tables, traces);
        // Relaxed: each number once.
        while let Some((number, segment)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|number| Some((number, contents.segments.get(number)?)))
        {
            let Read { report: found, last: last_here, segment, is_longer } =
                read_segment(disk, contents, segment, durable_lsn, fault, |epoch, mut write| {
                    if fault == Some(Fault::ForgetDeletions) && write.change == Change::Delete {
                        return;
                    }
                    if fault == Some(Fault::ForgetAdditions) && matches!(write.change, Change::Add(_)) {
                        return;
                    }
                    if fault == Some(Fault::ReplayInFileOrder) {
                        // Relaxed: each number once.
                        write.stamp = Stamp(read.fetch_add(1, Ordering::Relaxed) as u64);
                    }
                    reader.add(epoch, &write);
                })?;
            let (all, last, segments, longer) = &mut *report.lock();
            progress(found.bytes);
            all.files += 1;
            all.bytes += found.bytes;
            all.transactions += found.transactions;
            all.records += found.records;
            all.discarded += found.discarded;
            *last = last.max(last_here);
            longer.extend(is_longer.then(|| segment.clone()));
            segments[number] = segment;
        }
        reader.finish();
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(contents.segments.len())).map(|_| scope.spawn(read_files)).collect();
        let own = read_files();
        let outcomes = others.into_iter().map(|other| other.join().expect("reading does not panic"));
        outcomes.fold(own, |first, other| first.and(other))
    })?;
    let (report, last, segments, longer) = report.into_inner();
    let tables = tables.into_iter().map(|parts| parts.into_iter().map(Mutex::into_inner).collect()).collect();
    Ok(All { tables, report, last, segments, longer })
}

/// Has all stay that these files have.
pub(crate) fn sync<'s>(disk: &dyn Disk, segments: impl Iterator<Item = &'s Segment>) -> Result<(), LogError> {
    let segments: Vec<_> = segments.collect();
    // No more at once than a process may have open.
    for segments in segments.chunks(64) {
        let open = |segment: &&Segment| {
            disk.open(&segment.name(), true).map_err(LogError::io("open", disk.place(&segment.name())))
        };
        let mut files = segments.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut files: Vec<_> = files.iter_mut().map(|file| &mut **file as _).collect();
        let failed = |(file, error): (usize, _)| LogError::io("synchronise", disk.place(&segments[file].name()))(error);
        disk.sync(&mut files).map_err(failed)?;
    }
    Ok(())
}

/// Cuts these files off behind what the manifest says that they hold. They may stay as long as they are.
pub(crate) fn trim(disk: &dyn Disk, segments: &[Segment]) {
    for segment in segments {
        let _ = disk.open(&segment.name(), true).and_then(|mut file| file.truncate(segment.bytes));
    }
}

/// The bytes of a file that may have blocks, behind its header; and how long it is.
fn read_file(disk: &dyn Disk, tables: &Tables, segment: &Segment) -> Result<(Vec<u8>, u64), LogError> {
    let place = disk.place(&segment.name());
    let file = disk.open(&segment.name(), false).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LogError::Missing { place: place.clone() },
        _ => LogError::io("open", &place)(error),
    })?;
    let length = file.bytes().map_err(LogError::io("read", &place))?;
    // Where the manifest does not know how far the file counts, nothing may be gone of it.
    let needed = if segment.tail == Tail::Nothing { segment.bytes } else { segment.capacity.max(segment.bytes) };
    if length < needed {
        let why = format!("it ends there, and had {needed} bytes");
        return Err(LogError::Damaged { place, offset: length, why });
    }
    let wanted = if segment.tail == Tail::Nothing { segment.bytes } else { length };
    let mut bytes = vec![0; wanted as usize];
    file.read_at(0, &mut bytes).map_err(LogError::io("read", &place))?;
    let header = format::read_file_header(&bytes, segment.salt, tables);
    header.map_err(|why| LogError::Damaged { place, offset: 0, why: why.to_owned() })?;
    Ok((bytes, length))
}

/// What a file has.
struct Extent {
    /// Up to the end of the last block that was written and synchronised, as far as can be known.
    bytes: u64,
    /// The epochs of its first block and of its last.
    blocks: Option<(u64, u64)>,
    /// How long it is.
    length: u64,
}

/// Visits the blocks of a file that were written and synchronised, as far as can be known.
fn for_each_block(
    disk: &dyn Disk,
    tables: &Tables,
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
        match format::read_block(rest, segment.salt) {
            Ok((block, behind)) => {
                visit(block).map_err(damaged)?;
                (rest, flush) = (behind, block.flush);
                blocks = Some((blocks.map_or(block.epoch, |(first, _)| first), block.epoch));
            }
            Err(why) if (offset as u64) < segment.bytes => return Err(damaged(why)),
            // The flush after the last whole block's was interrupted, or that one was; no other had begun.
            Err(why) => match format::latest_flush(rest, segment.salt) {
                Some(later) if later > flush + 1 => return Err(damaged(why)),
                _ => return Ok(Extent { bytes: offset as u64, blocks, length }),
            },
        }
    }
    Ok(Extent { bytes: bytes.len() as u64, blocks, length })
}

/// All transactions below this LSN are in the files of a manifest, or were durable before.
pub(crate) fn durable_lsn(disk: &dyn Disk, contents: &Contents) -> Result<u64, LogError> {
    let (mut numbers, mut known) = (Vec::new(), contents.lsn.max(FIRST_LSN));
    for segment in contents.segments.iter().filter(|segment| segment.tail == Tail::InOrder) {
        for_each_block(disk, &contents.tables, segment, |block| {
            known = known.max(block.durable);
            let note = |lsn| {
                if lsn >= known {
                    numbers.push(lsn);
                }
                false
            };
            format::read_body(block, &contents.tables, note, |_| ())
        })?;
    }
    numbers.sort_unstable();
    let missing = |next, lsn: u64| if lsn > next { Err(next) } else { Ok(next.max(lsn + 1)) };
    let (Ok(end) | Err(end)) = numbers.iter().try_fold(known, |next, &lsn| missing(next, lsn));
    Ok(end)
}

/// What was read of a file.
pub(crate) struct Read {
    report: Report,
    /// The largest numbers.
    last: Last,
    /// As it counts from now on: what was found, and nothing that may be behind it.
    segment: Segment,
    /// Whether it is longer than that.
    is_longer: bool,
}

/// Reads what is durable of a file, and all below this LSN.
pub(crate) fn read_segment(
    disk: &dyn Disk,
    contents: &Contents,
    segment: &Segment,
    durable_lsn: u64,
    fault: Option<Fault>,
    mut visit: impl FnMut(u64, Write<'_>),
) -> Result<Read, LogError> {
    let (mut report, mut last) = (Report::default(), Last::default());
    let extent = for_each_block(disk, &contents.tables, segment, |block| {
        let is_durable = block.epoch <= contents.epoch.min(segment.last_epoch);
        let counts = |lsn| match segment.tail {
            Tail::Nothing => is_durable || lsn < segment.end_lsn,
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
            visit(block.epoch, write);
        })
    })?;
    let Extent { bytes, blocks, length } = extent;
    report.bytes = bytes;
    let settled = match segment.tail {
        Tail::Nothing => segment.clone(),
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
