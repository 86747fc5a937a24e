//! Looking into a log without changing it.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use contend_engine::Groups;

use crate::disk::Disk;
use crate::error::LogError;
use crate::format::{Change, Write};
use crate::manifest::{self, Contents, Manifest, Segment};
use crate::recovery::{self, Recovered};
use crate::schema::{Form, Schema};

/// A file of a log.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// How many of its bytes the manifest knows of; there may be more, where workers flush by themselves.
    pub bytes: u64,
    /// The epochs of its first block and of its last.
    pub blocks: Option<(u64, u64)>,
    /// Blocks of later epochs do not count.
    pub last_epoch: u64,
}

impl LogFile {
    fn of(segment: &Segment) -> Self {
        let Segment { number, bytes, last_epoch, blocks, .. } = *segment;
        LogFile { number, name: segment.name(), bytes, blocks, last_epoch }
    }

    /// What it has, in words.
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

/// What a log has.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// All that was committed up to this epoch is durable.
    pub epoch: u64,
    /// The tables, by their numbers.
    pub tables: Vec<Schema>,
    /// The files.
    pub files: Vec<LogFile>,
    /// All below this LSN is durable.
    durable_lsn: u64,
}

fn contents(disk: &dyn Disk) -> Result<Contents, LogError> {
    match Manifest::open(disk)? {
        Some(found) => Ok(found.contents),
        None => Err(LogError::NoLog { place: disk.place("") }),
    }
}

/// What a log has.
///
/// # Errors
/// There is none, or it can't be read.
pub fn inspect(disk: &dyn Disk) -> Result<Inspection, LogError> {
    let contents = contents(disk)?;
    let durable_lsn = recovery::durable_lsn(disk, &contents)?;
    let Contents { epoch, tables, segments, .. } = contents;
    Ok(Inspection { epoch, tables: tables.to_vec(), files: segments.iter().map(LogFile::of).collect(), durable_lsn })
}

/// Reads all that is durable, with so many threads, as [`crate::Log::open`] does, and checks besides that the writes of each row can have happened in
/// the order of their stamps, for which it keeps 24 bytes of each write. `progress` is told of bytes that were read.
///
/// # Errors
/// There is no log, what was acknowledged is not there, or its order is wrong.
pub fn recover(disk: &dyn Disk, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<Recovered, LogError> {
    let (began, contents) = (Instant::now(), contents(disk)?);
    let mut all = recovery::read_all(disk, &contents, threads, true, None, progress)?;
    all.check(&contents)?;
    Ok(all.into_rows(&contents, began))
}

/// A write of a row, to be printed.
#[derive(Debug)]
pub struct Shown<'a> {
    write: Write<'a>,
    schema: &'a Schema,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { write: Write { key, stamp, change, .. }, schema } = self;
        write!(f, "{} {key:x?} stamp {}:", schema.name, stamp.0)?;
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

/// Visits every write of a file that counts, with its epoch (0: of a checkpoint), until the visitor has seen enough.
///
/// # Errors
/// The file is not there, or not as it was.
pub fn writes(
    disk: &dyn Disk,
    found: &Inspection,
    file: u64,
    mut visit: impl FnMut(u64, Shown<'_>) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let contents = contents(disk)?;
    let Some(segment) = contents.segments.iter().find(|segment| segment.number == file) else {
        return Err(LogError::Missing { place: disk.place(&manifest::name(file)) });
    };
    let mut enough = false;
    recovery::read_segment(disk, &contents, segment, found.durable_lsn, None, |epoch, write| {
        let schema = &contents.tables[write.table as usize];
        enough = enough || visit(epoch, Shown { write, schema }).is_break();
    })?;
    Ok(())
}
