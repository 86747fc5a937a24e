//! From files to rows.
//!
//! Every block counts that the manifest says is durable, of an epoch that is; it has to be there. Of the writes of a row the one with the largest
//! stamp is the last ([`contend_engine::journal`]), so that files can be read in any order, and at once.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use contend_engine::KeyWords;
use contend_engine::journal::Stamp;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::disk::Disk;
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, FILE_HEADER, Write};
use crate::manifest::{Contents, Segment};
use crate::schema::Schema;

/// What is known of a row while files are read.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) row: Box<[u64]>,
    /// By group: of the last write, and whether there was one.
    pub(crate) stamps: Box<[Stamp]>,
    pub(crate) is_written: Box<[bool]>,
    /// Of the last time it was deleted.
    pub(crate) deleted: Stamp,
}

impl Known {
    fn apply(&mut self, write: &Write<'_>, schema: &Schema) {
        let Some((groups, row)) = write.row else {
            self.deleted = self.deleted.max(write.stamp);
            return;
        };
        for group in groups.into_iter().filter(|&group| group < schema.groups.len()) {
            if self.stamps[group] <= write.stamp {
                (self.stamps[group], self.is_written[group]) = (write.stamp, true);
                let words = schema.groups[group].0..schema.groups[group].1;
                self.row[words.clone()].copy_from_slice(&row[words]);
            }
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        // An insert has all groups, and comes after the deletion, if there was one.
        let is_later = |stamp: &Stamp| *stamp > self.deleted || self.deleted == Stamp(0);
        self.is_written.iter().all(|&is_written| is_written) && self.stamps.iter().all(is_later)
    }
}

pub(crate) type Rows = FxHashMap<KeyWords, Known>;

/// A key, and the row under it.
pub type RecoveredRow = (KeyWords, Box<[u64]>);

/// A table as it was.
#[derive(Debug)]
pub struct RecoveredTable {
    /// What it is made of.
    pub schema: Schema,
    /// Its number in the log.
    pub number: u32,
    /// Keys and rows, in no order.
    pub rows: Vec<RecoveredRow>,
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
    /// The largest epoch that was seen, durable or not.
    pub(crate) last_epoch: u64,
}

/// Rows of one table are in so many maps, so that files that are read at once seldom meet.
const SHARDS: usize = 64;

/// What files had.
pub(crate) struct All {
    /// By table, in no order.
    pub(crate) tables: Vec<Vec<Rows>>,
    report: Report,
    /// The largest epoch that was seen, durable or not.
    last_epoch: u64,
}

/// Reads all files of a manifest, with so many threads.
pub(crate) fn recover(
    disk: &dyn Disk,
    contents: &Contents,
    threads: usize,
    fault: Option<Fault>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Recovered, LogError> {
    let began = Instant::now();
    let All { tables, mut report, last_epoch } = read_all(disk, contents, threads, fault, progress)?;
    let tables = (0..).zip(&contents.tables).zip(tables).map(|((number, schema), shards)| {
        let known = shards.into_iter().flatten().filter(|(_, known)| known.is_there());
        let rows = known.map(|(key, known)| (key, known.row)).collect();
        RecoveredTable { schema: schema.clone(), number, rows }
    });
    let tables: Vec<_> = tables.collect();
    report.rows = tables.iter().map(|table| table.rows.len() as u64).sum();
    report.epoch = contents.epoch;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(Recovered { tables, report, last_epoch })
}

/// Reads all files of a manifest: the last that is known of each row.
pub(crate) fn read_all(
    disk: &dyn Disk,
    contents: &Contents,
    threads: usize,
    fault: Option<Fault>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<All, LogError> {
    let shards = || (0..SHARDS).map(|_| Mutex::new(Rows::default())).collect::<Vec<_>>();
    let tables: Vec<_> = contents.tables.iter().map(|_| shards()).collect();
    let report = Mutex::new((Report::default(), contents.epoch));
    let (next, read) = (AtomicUsize::new(0), AtomicUsize::new(1));
    let read_files = || -> Result<(), LogError> {
        // Relaxed: each number once.
        while let Some(segment) = contents.segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (found, last_epoch) = read_segment(disk, contents, segment, |_, mut write| {
                if fault == Some(Fault::ForgetDeletions) && write.row.is_none() {
                    return;
                }
                if fault == Some(Fault::ReplayInFileOrder) {
                    // Relaxed: each number once.
                    write.stamp = Stamp(read.fetch_add(1, Ordering::Relaxed) as u64);
                }
                let schema = &contents.tables[write.table as usize];
                let mut rows = tables[write.table as usize][shard_of(&write.key)].lock();
                let known = match rows.entry(write.key) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(Known {
                        row: vec![0; schema.row_words].into(),
                        stamps: vec![Stamp(0); schema.groups.len()].into(),
                        is_written: vec![false; schema.groups.len()].into(),
                        deleted: Stamp(0),
                    }),
                };
                known.apply(&write, schema);
            })?;
            let (all, last) = &mut *report.lock();
            progress(found.bytes);
            all.files += 1;
            all.bytes += found.bytes;
            all.transactions += found.transactions;
            all.records += found.records;
            all.discarded += found.discarded;
            *last = (*last).max(last_epoch);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(contents.segments.len())).map(|_| scope.spawn(read_files)).collect();
        let own = read_files();
        let outcomes = others.into_iter().map(|other| other.join().expect("reading does not panic"));
        outcomes.fold(own, |first, other| first.and(other))
    })?;
    let (report, last_epoch) = report.into_inner();
    let tables = tables.into_iter().map(|shards| shards.into_iter().map(Mutex::into_inner).collect()).collect();
    Ok(All { tables, report, last_epoch })
}

fn shard_of(key: &KeyWords) -> usize {
    let mixed = key.iter().fold(0u64, |mixed, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31));
    (mixed >> 32) as usize % SHARDS
}

/// Reads what is durable of a file; returns what it found, and the largest epoch.
pub(crate) fn read_segment(
    disk: &dyn Disk,
    contents: &Contents,
    segment: &Segment,
    mut visit: impl FnMut(u64, Write<'_>),
) -> Result<(Report, u64), LogError> {
    let place = disk.place(&segment.name());
    let file = disk.open(&segment.name(), false).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LogError::Missing { place: place.clone() },
        _ => LogError::io("open", &place)(error),
    })?;
    let damaged = |offset: u64, why: String| LogError::Damaged { place: place.clone(), offset, why };
    let length = file.bytes().map_err(LogError::io("read", &place))?;
    if length < segment.bytes {
        return Err(damaged(length, format!("it ends there, and had {} bytes", segment.bytes)));
    }
    let mut bytes = vec![0; segment.bytes as usize];
    file.read_at(0, &mut bytes).map_err(LogError::io("read", &place))?;
    if bytes[..FILE_HEADER.min(bytes.len())] != format::file_header(segment.salt) {
        return Err(damaged(0, "it is not the file that was written".to_owned()));
    }
    let mut report = Report { bytes: segment.bytes, ..Report::default() };
    let (mut rest, mut last_epoch) = (&bytes[FILE_HEADER..], 0);
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let (block, behind) = format::read_block(rest, segment.salt).map_err(|why| damaged(offset, why.to_owned()))?;
        let counts = block.epoch <= contents.epoch.min(segment.last_epoch);
        let mut records = 0;
        let transactions = format::read_body(block.epoch, block.body, &contents.tables, |write| {
            records += 1;
            if counts {
                visit(block.epoch, write);
            }
        });
        let transactions = transactions.map_err(|why| damaged(offset, why.to_owned()))?;
        if counts {
            report.transactions += transactions;
            report.records += records;
        } else {
            report.discarded += transactions;
        }
        (rest, last_epoch) = (behind, last_epoch.max(block.epoch));
    }
    Ok((report, last_epoch))
}
