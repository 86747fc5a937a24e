//! The manifest: which tables and files there are, and how far the files count.
//!
//! It says up to which epoch all is durable, and of each file how many bytes are. What is behind them was
//! never acknowledged, and is not looked at, unless workers flush by themselves ([`Tail`]); what is before them was synchronised before the manifest said so, and has to be there.
//!
//! It is written anew with every flush of an epoch, into one of two places in turns, so that one is whole at any time; and each time twice over, one copy
//! behind the other, so that damage to one is no loss, and can be told from a write that was interrupted.
//!
//! There may be thousands of tables, and none ever changes: so what they are made of is not written with every flush, but once, behind those that were there, also twice over.
//! A copy says how many tables there are, and has a checksum of them all.
//!
//! The file is eight parts of the same length: four copies, and two times two parts of tables. When one of them is full, a file of
//! twice the length or more is written beside it, synchronised, and given its name, and then the directory is synchronised. Before that nothing
//! is written to the new one that the old one does not have, and so it is the same which of them a crash leaves.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::format::VERSION;
use crate::schema::Schema;

/// The file's name, and that of one which is to take its place.
pub(crate) const NAME: &str = "manifest";
pub(crate) const NEXT: &str = "manifest.next";
/// How long it is at first, in bytes: room for some dozen tables, and a hundred files.
const LENGTH: u64 = 1 << 16;
/// Parts of the file: copies, two of each of two generations; and the tables, twice, each in two parts.
const PARTS: u64 = 8;
const COPIES: u64 = 4;
const TABLES: [u64; 2] = [4, 6];
/// Bytes of the header of a copy: [`MAGIC`], the format, the generation, how many bytes follow, and XXH3 of them and of what is before.
const HEADER: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"mft\x01");

/// A file of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its number, by which it is named.
    pub(crate) number: u64,
    /// What its blocks have, so that they are known as its.
    pub(crate) salt: u64,
    /// How many bytes were synchronised, the header among them.
    pub(crate) bytes: u64,
    /// How long it is at least.
    pub(crate) capacity: u64,
    /// Blocks of later epochs do not count: a crash came before they were durable.
    pub(crate) last_epoch: u64,
    /// But for what has an LSN below this one, which was durable then.
    pub(crate) end_lsn: u64,
    /// The epochs of its first block and of its last, between which those of the others are.
    pub(crate) blocks: Option<(u64, u64)>,
    /// What may be behind these bytes.
    pub(crate) tail: Tail,
    /// The largest LSN in it, or 0.
    pub(crate) last_lsn: u64,
}

/// What may be behind the bytes of a file that the manifest knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing that was acknowledged.
    Nothing,
    /// What was flushed was acknowledged, whatever the epoch.
    Flushed,
    /// The same, if all with smaller LSNs were flushed too.
    InOrder,
}

impl Tail {
    const ALL: [Tail; 3] = [Tail::Nothing, Tail::Flushed, Tail::InOrder];
}

/// Words of a segment, as it is written.
const SEGMENT_WORDS: usize = 10;

impl Segment {
    /// One that has nothing.
    pub(crate) const EMPTY: Segment = Segment {
        number: 0,
        salt: 0,
        bytes: 0,
        capacity: 0,
        last_epoch: u64::MAX,
        end_lsn: 0,
        blocks: None,
        tail: Tail::Nothing,
        last_lsn: 0,
    };

    fn words(&self) -> [u64; SEGMENT_WORDS] {
        let Segment { number, salt, bytes, capacity, last_epoch, end_lsn, blocks, tail, last_lsn } = *self;
        let (first, last) = blocks.unwrap_or_default();
        let kind = (tail as u64) << 1 | u64::from(blocks.is_some());
        [number, salt, bytes, capacity, last_epoch, end_lsn, kind, first, last, last_lsn]
    }

    /// None, if no segment has these words.
    fn of_words(words: &[u64]) -> Option<Self> {
        let &[number, salt, bytes, capacity, last_epoch, end_lsn, kind, first, last, last_lsn] = words else {
            return None;
        };
        let blocks = (kind & 1 == 1).then_some((first, last));
        let tail = *Tail::ALL.get(usize::try_from(kind >> 1).ok()?)?;
        Some(Segment { number, salt, bytes, capacity, last_epoch, end_lsn, blocks, tail, last_lsn })
    }
}

impl Segment {
    pub(crate) fn name(&self) -> String {
        name(self.number)
    }

    /// Whether it has rows of a checkpoint, and not what workers wrote: their blocks have epochs.
    pub(crate) fn is_of_checkpoint(&self) -> bool {
        self.blocks.is_none() && self.tail == Tail::Nothing
    }

    /// The largest epoch of its blocks that count.
    pub(crate) fn newest(&self) -> u64 {
        self.blocks.map_or(0, |(_, last)| last).min(self.last_epoch)
    }
}

/// The name of the file of this number.
pub(crate) fn name(number: u64) -> String {
    format!("log-{number:08}")
}

/// The tables, by their numbers. Each was behind those before it from its first day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    schemas: Vec<Schema>,
    /// By how many tables: a checksum of as many, and how many bytes they have.
    sums: Vec<(u64, u64)>,
}

impl std::ops::Deref for Tables {
    type Target = [Schema];

    fn deref(&self) -> &[Schema] {
        &self.schemas
    }
}

impl Tables {
    /// A checksum of the first so many tables, if there are as many.
    pub(crate) fn sum(&self, count: usize) -> Option<u64> {
        if count == 0 { Some(0) } else { self.sums.get(count - 1).map(|&(sum, _)| sum) }
    }

    /// How many there are, and the checksum of all.
    pub(crate) fn count(&self) -> (usize, u64) {
        (self.len(), self.all().0)
    }

    /// The checksum of all, and how many bytes they have.
    fn all(&self) -> (u64, u64) {
        self.sums.last().copied().unwrap_or_default()
    }

    /// These tables.
    pub(crate) fn of(schemas: Vec<Schema>) -> Self {
        let mut tables = Tables::default();
        for schema in schemas {
            let record = record_of(&schema);
            tables.push(schema, &record);
        }
        tables
    }

    fn push(&mut self, schema: Schema, record: &[u8]) {
        let (sum, bytes) = self.all();
        self.sums.push((xxh3_64_with_seed(record, sum), bytes + record.len() as u64));
        self.schemas.push(schema);
    }

    /// The first so many tables of these bytes. None, if they are not there.
    fn read(mut bytes: &[u8], count: u64) -> Option<Self> {
        let mut tables = Tables::default();
        for _ in 0..count {
            let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
            let record = bytes.get(..4 + length)?;
            tables.push(serde_json::from_slice(&record[4..]).ok()?, record);
            bytes = &bytes[record.len()..];
        }
        Some(tables)
    }
}

/// A table as it is written: how many bytes follow, and these.
fn record_of(schema: &Schema) -> Vec<u8> {
    let body = serde_json::to_vec(schema).expect("numbers and names have a form in JSON");
    let length = u32::try_from(body.len()).expect("a schema has fewer than 2^32 bytes");
    [&length.to_le_bytes()[..], &body].concat()
}

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// All that was committed up to this epoch is durable.
    pub(crate) epoch: u64,
    /// So is all below this LSN.
    pub(crate) lsn: u64,
    pub(crate) tables: Arc<Tables>,
    pub(crate) segments: Vec<Segment>,
}

/// What a copy has of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    tables: u64,
    sum: u64,
    bytes: u64,
}

/// Words of a copy before the segments.
const COPY_WORDS: usize = 7;

/// How many bytes a copy has of so many segments.
fn bytes_of_copy(segments: usize) -> u64 {
    (HEADER + 8 * (COPY_WORDS + SEGMENT_WORDS * segments)) as u64
}

impl Contents {
    /// A file is like this now.
    pub(crate) fn put(&mut self, segment: &Segment) {
        match self.segments.iter_mut().find(|known| known.number == segment.number) {
            Some(known) => *known = segment.clone(),
            None => self.segments.push(segment.clone()),
        }
    }

    /// What a copy of it has, in a file of this length.
    fn words(&self, length: u64) -> Vec<u64> {
        let (sum, bytes) = self.tables.all();
        let (tables, segments) = (self.tables.len() as u64, self.segments.len() as u64);
        let mut words = vec![length, self.epoch, self.lsn, tables, sum, bytes, segments];
        words.extend(self.segments.iter().flat_map(Segment::words));
        words
    }

    /// What these words say: the length of the file; all but the tables; and what is known of those.
    fn of_words(words: &[u64]) -> Option<(u64, Self, Count)> {
        let (&[length, epoch, lsn, tables, sum, bytes, segments], rest) = words.split_first_chunk()?;
        let read: Option<Vec<_>> = rest.chunks(SEGMENT_WORDS).map(Segment::of_words).collect();
        let read = read.filter(|read| read.len() as u64 == segments)?;
        let contents = Contents { epoch, lsn, segments: read, ..Contents::default() };
        Some((length, contents, Count { tables, sum, bytes }))
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct Manifest {
    file: Box<dyn DiskFile>,
    place: String,
    length: u64,
    generation: u64,
    pub(crate) contents: Contents,
    /// Why it is not known which of two files is the manifest: then nothing may be written to either.
    lost: Option<LogError>,
}

impl Manifest {
    /// Makes one that has nothing.
    pub(crate) fn create(disk: &dyn Disk) -> Result<Self, LogError> {
        let (contents, place) = (Contents::default(), disk.place(NAME));
        let file = write_next(disk, LENGTH, 1, &contents)?;
        let manifest = Manifest { file, place, length: LENGTH, generation: 1, contents, lost: None };
        manifest.take_place(disk)?;
        Ok(manifest)
    }

    /// The file that was written beside it takes its place.
    fn take_place(&self, disk: &dyn Disk) -> Result<(), LogError> {
        disk.rename(NEXT, NAME).map_err(LogError::io("replace", &self.place))?;
        disk.sync_names().map_err(LogError::io("synchronise the directory of", &self.place))
    }

    /// Makes room for a table more, if there is to be one, and for so many files. If that fails it is as it was, and the disk may be full.
    pub(crate) fn make_room(
        &mut self,
        disk: &dyn Disk,
        table: Option<&Schema>,
        segments: usize,
    ) -> Result<(), LogError> {
        self.check()?;
        let table = table.map_or(0, |schema| record_of(schema).len() as u64);
        let (copy, tables) = (bytes_of_copy(segments), self.contents.tables.all().1 + table);
        let mut length = self.length;
        while copy > length / PARTS || tables > 2 * (length / PARTS) {
            length *= 2;
        }
        if length == self.length {
            return Ok(());
        }
        let generation = self.generation + 1;
        let file = write_next(disk, length, generation, &self.contents)?;
        if let Err(error) = self.take_place(disk) {
            self.lost = Some(error.clone());
            return Err(error);
        }
        (self.file, self.length, self.generation) = (file, length, generation);
        Ok(())
    }

    /// Whether it is known which file it is.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Adds a table, for which there is room. If that fails, nothing may be written any more.
    pub(crate) fn add_table(&mut self, schema: &Schema) -> Result<(), LogError> {
        self.check()?;
        let record = record_of(schema);
        let end = self.contents.tables.all().1;
        for part in TABLES {
            let place = part * (self.length / PARTS) + end;
            self.file.write_at(place, &record).map_err(LogError::io("write", &self.place))?;
        }
        // A copy that says that it is there comes later.
        self.file.sync().map_err(LogError::io("synchronise", &self.place))?;
        // Nobody else has them, and so they are not copied.
        Arc::make_mut(&mut self.contents.tables).push(schema.clone(), &record);
        let contents = self.contents.clone();
        self.write_copies(contents)
    }

    /// Writes it anew, with the tables that there are. It stays as it was if that fails, or is not known to.
    pub(crate) fn write(&mut self, disk: &dyn Disk, contents: Contents) -> Result<(), LogError> {
        self.make_room(disk, None, contents.segments.len())?;
        self.write_copies(contents)
    }

    fn write_copies(&mut self, contents: Contents) -> Result<(), LogError> {
        self.check()?;
        let generation = self.generation + 1;
        write_copies(&mut *self.file, &self.place, self.length, generation, &contents)?;
        (self.generation, self.contents) = (generation, contents);
        Ok(())
    }

    /// Reads it. `None` if there is none, and there was none: whoever was to make it has not got to the end.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Option<Found>, LogError> {
        let place = disk.place(NAME);
        let names = disk.names().map_err(LogError::io("list", disk.place("")))?;
        if !names.iter().any(|name| name == NAME) {
            let has_log = names.iter().any(|name| name.starts_with("log-"));
            return if has_log { Err(LogError::Missing { place }) } else { Ok(None) };
        }
        let file = disk.open(NAME, false).map_err(LogError::io("open", &place))?;
        let length = file.bytes().map_err(LogError::io("read", &place))?;
        let damaged = |offset, why: &str| LogError::Damaged { place: place.clone(), offset, why: why.to_owned() };
        // It had its name only when it was whole.
        let mut newest: Option<(u64, Contents, Count)> = None;
        for copy in 0..COPIES {
            let Some((generation, said)) = read_copy(&*file, copy * (length / PARTS), length / PARTS, &place)? else {
                continue;
            };
            let (was, contents, count) = said.ok_or_else(|| damaged(copy * (length / PARTS), "it has other words"))?;
            if was != length {
                return Err(damaged(length.min(was), &format!("it has {length} bytes, and had {was}")));
            }
            if newest.as_ref().is_none_or(|(newest, ..)| *newest < generation) {
                newest = Some((generation, contents, count));
            }
        }
        let Some((generation, mut contents, count)) = newest else {
            return Err(damaged(0, "none of its copies is whole"));
        };
        let mut tables = None;
        for part in TABLES {
            // One that is too long is cut off by the end of the file.
            let mut bytes = vec![0; usize::try_from(count.bytes.min(length)).unwrap_or(usize::MAX)];
            let is_read = file.read_at(part * (length / PARTS), &mut bytes).is_ok();
            let read =
                Tables::read(&bytes, count.tables).filter(|read| is_read && read.all() == (count.sum, count.bytes));
            tables = tables.or(read);
        }
        contents.tables =
            Arc::new(tables.ok_or_else(|| damaged(TABLES[0] * (length / PARTS), "its tables can't be read"))?);
        Ok(Some(Found { length, generation, contents }))
    }

    /// Goes on with one that was read. A new file would not be known to be there.
    pub(crate) fn reopen(disk: &dyn Disk, found: Found) -> Result<Self, LogError> {
        let place = disk.place(NAME);
        let file = disk.open(NAME, true).map_err(LogError::io("open", &place))?;
        let Found { length, generation, contents } = found;
        Ok(Manifest { file, place, length, generation, contents, lost: None })
    }
}

/// A manifest that was read.
#[derive(Debug)]
pub(crate) struct Found {
    length: u64,
    generation: u64,
    pub(crate) contents: Contents,
}

/// Writes a manifest beside the one that there is, if there is one, and has it stay.
fn write_next(
    disk: &dyn Disk,
    length: u64,
    generation: u64,
    contents: &Contents,
) -> Result<Box<dyn DiskFile>, LogError> {
    let place = disk.place(NEXT);
    // What somebody has left who did not get to the end.
    if disk.names().map_err(LogError::io("list", disk.place("")))?.iter().any(|name| name == NEXT) {
        disk.remove(NEXT).map_err(LogError::io("remove", &place))?;
    }
    let mut file = disk.create(NEXT, length).map_err(LogError::io("create", &place))?;
    let records: Vec<u8> = contents.tables.iter().flat_map(record_of).collect();
    let written = TABLES.iter().try_for_each(|part| file.write_at(part * (length / PARTS), &records));
    let written = written.map_err(LogError::io("write", &place));
    let written = written.and_then(|()| write_copies(&mut *file, &place, length, generation, contents));
    if let Err(error) = written {
        // It is of no use; whether it can be removed changes nothing.
        let _ = disk.remove(NEXT);
        return Err(error);
    }
    Ok(file)
}

/// Writes the copies of a generation, and has all that was written stay.
fn write_copies(
    file: &mut dyn DiskFile,
    place: &str,
    length: u64,
    generation: u64,
    contents: &Contents,
) -> Result<(), LogError> {
    let body = contents.words(length);
    let mut bytes = Vec::with_capacity(HEADER + 8 * body.len());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&(8 * body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend(body.into_iter().flat_map(u64::to_le_bytes));
    let sum = checksum(&bytes);
    bytes[24..HEADER].copy_from_slice(&sum.to_le_bytes());
    for copy in 0..2 {
        let offset = (generation % 2 * 2 + copy) * (length / PARTS);
        file.write_at(offset, &bytes).map_err(LogError::io("write", place))?;
    }
    file.sync().map_err(LogError::io("synchronise", place))
}

fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[HEADER..]) ^ xxh3_64(&bytes[..24]).rotate_left(1)
}

/// What a copy has, if it is whole: its generation, and what its words say.
type Copy = (u64, Option<(u64, Contents, Count)>);

fn read_copy(file: &dyn DiskFile, offset: u64, most: u64, place: &str) -> Result<Option<Copy>, LogError> {
    let mut bytes = vec![0; HEADER];
    if file.read_at(offset, &mut bytes).is_err() {
        return Ok(None);
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (magic, version) = (number(0) as u32, (number(0) >> 32) as u32);
    let (generation, length, sum) = (number(8), number(16), number(24));
    if magic != MAGIC || length > most.saturating_sub(HEADER as u64) {
        return Ok(None);
    }
    bytes.resize(HEADER + length as usize, 0);
    if file.read_at(offset, &mut bytes).is_err() || checksum(&bytes) != sum {
        return Ok(None);
    }
    if version != VERSION {
        return Err(LogError::Version { place: place.to_owned(), found: version, known: VERSION });
    }
    let words: Vec<u64> = bytes[HEADER..].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Ok(Some((generation, Contents::of_words(&words))))
}
