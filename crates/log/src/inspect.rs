//! Reads a log without changing it. The log may be a stranger's ([`crate::recovery`]).

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use contend_engine::Groups;

use crate::disk::Disk;
use crate::error::LogError;
use crate::format::{Change, Write};
use crate::manifest::{self, Manifest, ManifestContents, Segment};
use crate::recovery::{self, How, Recovered};
use crate::schema::{Form, Schema};

/// A file of a log.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// The number of the file.
    pub number: u64,
    /// The name of the file.
    pub name: String,
    /// How many of its bytes are known to count, or to be of epochs that do not. There may be more
    /// if workers flushed by themselves.
    pub bytes: u64,
    /// The epochs of its first and of its last block. None in a checkpoint.
    pub blocks: Option<(u64, u64)>,
    /// Blocks of later epochs do not count.
    pub last_epoch: u64,
}

impl LogFile {
    fn of(segment: &Segment) -> Self {
        let Segment { number, bytes, last_epoch, blocks, .. } = *segment;
        LogFile { number, name: segment.name(), bytes, blocks, last_epoch }
    }

    /// Describes the content of the file in words.
    pub fn describe(&self) -> String {
        match self.blocks {
            None => "of a checkpoint".to_owned(),
            Some((first, last)) if last > self.last_epoch => {
                format!("epochs {first} to {last}, of which those after {} were not durable", self.last_epoch)
            }
            Some((first, last)) => format!("epochs {first} to {last}"),
        }
    }
}

/// The contents of a log, without its rows.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Every transaction that committed in this epoch or earlier is durable.
    pub epoch: u64,
    /// The tables, by their numbers.
    pub tables: Vec<Schema>,
    /// The files.
    pub files: Vec<LogFile>,
    /// Every transaction with a smaller LSN is durable.
    durable_lsn: u64,
    contents: ManifestContents,
}

fn contents(disk: &dyn Disk) -> Result<ManifestContents, LogError> {
    match Manifest::open(disk)? {
        Some(found) => recovery::with_tails(disk, found.contents, false, None),
        None => Err(LogError::NoLog { place: disk.place("") }),
    }
}

/// Returns what a log has: its tables and files.
///
/// # Errors
/// There is no log, or it can't be read.
pub fn inspect(disk: &dyn Disk) -> Result<Inspection, LogError> {
    let contents = contents(disk)?;
    let durable_lsn = recovery::durable_lsn(disk, &contents)?;
    let files = contents.segments.iter().map(LogFile::of).collect();
    Ok(Inspection { epoch: contents.epoch, tables: contents.tables.to_vec(), files, durable_lsn, contents })
}

/// Reads all rows that are durable, as [`crate::Log::open`] does, and checks that the writes of
/// each row can have happened in the order of their write counters. This takes 24 bytes of memory
/// for each write. `progress` is called with the number of bytes of each file that was read.
///
/// # Errors
/// There is no log, what was acknowledged is not there, or the order of a row's writes is wrong. Or
/// the rows take far more memory than the log has bytes, as they may in a log that was made to
/// exhaust memory: more than 128 MiB and 4 KiB for each byte of the files.
pub fn recover(disk: &dyn Disk, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<Recovered, LogError> {
    let (began, contents) = (Instant::now(), contents(disk)?);
    let how = How { threads, traces: true, is_bounded: true, fault: None };
    let mut all = recovery::read_all(disk, &contents, how, progress)?;
    all.check(&contents)?;
    Ok(all.into_rows(&contents, began))
}

/// A write of a row, for printing.
#[derive(Debug)]
pub struct Shown<'a> {
    write: Write<'a>,
    schema: &'a Schema,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { write: Write { key, counter, change, .. }, schema } = self;
        write!(f, "{} {key:x?} counter {}:", schema.name, counter.0)?;
        let (groups, row) = match change {
            Change::Insert(row) => {
                write!(f, " inserted")?;
                (&Groups::ALL, row)
            }
            Change::Put(groups, row) => (groups, row),
            Change::Delete => return write!(f, " deleted"),
            Change::Add(additions) => {
                return additions.iter().try_for_each(|added| write!(f, " word {} + {:x}", added.word, added.by));
            }
        };
        for group in groups.common(schema.all_groups()) {
            let words = schema.words(Groups::of(group as u32)).flat_map(|words| &row[words]);
            let words: Vec<_> = words.map(|word| format!("{word:x}")).collect();
            write!(f, " group {group} = {}", words.join(" "))?;
        }
        Ok(())
    }
}

/// Calls `visit` with each write of a file that counts and its epoch, which is 0 in a checkpoint,
/// until `visit` breaks.
///
/// # Errors
/// The file is not there, or has changed.
pub fn writes(
    disk: &dyn Disk,
    found: &Inspection,
    file: u64,
    mut visit: impl FnMut(u64, Shown<'_>) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let contents = &found.contents;
    let Some(segment) = contents.segments.iter().find(|segment| segment.number == file) else {
        return Err(LogError::Missing { place: disk.place(&manifest::name(file)) });
    };
    let mut enough = false;
    recovery::read_segment(disk, contents, segment, found.durable_lsn, None, |epoch, write| {
        let schema = &contents.tables[write.table as usize];
        enough = enough || visit(epoch, Shown { write, schema }).is_break();
        Ok(())
    })?;
    Ok(())
}
