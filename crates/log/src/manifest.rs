//! The manifest: which tables and files there are, and how far the files count.
//!
//! **What it says.** Up to which epoch, and below which LSN, all is durable; and of each file, how
//! many bytes count. These bytes were synchronised before the manifest said so, and have to be
//! there. What is behind them was never acknowledged and is not read, unless the file has a
//! [`Tail`].
//!
//! **When it is written.** A flush of an epoch writes it if one of the files is new or full. In
//! most flushes neither is so. Then the files say themselves that the epoch is durable
//! ([`format::End`](crate::format::End)), and [`Manifest::contents`] has what recovery would find.
//! A worker that flushes by itself writes it if its file is new.
//!
//! **How it is written.** To one of two places in turns, so that one is whole at any time. In each
//! place it stands twice. Damage to one copy is no loss, and can be told from a write that was
//! interrupted: that one leaves the other place.
//!
//! **Tables.** There may be thousands, and none ever changes. So a table is written once, behind
//! those before it, also twice. A copy says how many tables there are, and has a checksum of them
//! all. A table for which the disk has no room is refused, and the log goes on.
//!
//! **How it grows.** The file is eight parts of the same length: four copies, and two times two
//! parts of tables. When a part is full, a file of twice the length or more is written beside the
//! old one, synchronised, and renamed; then the directory is synchronised. Until then nothing is
//! written to the new file that the old one does not have, so it does not matter which of them a
//! crash leaves.
//!
//! The bytes, in words of 64 bits unless said otherwise, little-endian:
//!
//! ```text
//! manifest = copy copy copy copy tables tables
//!            # generation g stands in copies 2 (g % 2) and 2 (g % 2) + 1, counted from 0
//! copy     = "mft\x01" version:u32 generation length sum body
//! body     = length_of_file epoch lsn flush table_count tables_sum tables_bytes count segment*
//! segment  = number salt bytes capacity last_epoch end_lsn kind first_epoch end_epoch last_lsn
//!            # kind: tail << 1 | has_blocks; first_epoch and end_epoch: of its blocks
//! tables   = (length:u32 json)*   # the schemas, in the order of their numbers
//! ```

use contend_model::counted;
use std::collections::HashSet;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::format::{COUNT_MAX, EPOCH_MAX, VERSION};
use crate::recovery::FILE_BYTES_MAX;
use crate::schema::Schema;

/// The name of the file.
pub(crate) const NAME: &str = "manifest";
/// The name of a file that will replace it.
pub(crate) const NEXT: &str = "manifest.next";
/// The length of a new manifest in bytes: room for some dozen tables and a hundred files.
const LENGTH: u64 = 1 << 16;
/// The largest length in bytes: room for a million files, and for tables by the hundred thousand. A
/// longer one was not written by this program.
const LENGTH_MAX: u64 = 1 << 30;
/// Parts of the file: copies, two of each of two generations; and the tables, twice, each in two
/// parts.
const PARTS: u64 = 8;
const COPIES: u64 = 4;
const TABLES: [u64; 2] = [4, 6];
/// Bytes of the header of a copy: [`MAGIC`], the format, the generation, the number of bytes that
/// follow, and the XXH3 of these bytes and of the header before it.
const HEADER: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"mft\x01");

/// A file of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its number, which is part of its name.
    pub(crate) number: u64,
    /// A random number that each of its blocks repeats.
    pub(crate) salt: u64,
    /// How many bytes count, header included. They were synchronised.
    pub(crate) bytes: u64,
    /// The length of the file, or less.
    pub(crate) capacity: u64,
    /// Blocks of later epochs do not count: they were not durable at a crash.
    pub(crate) last_epoch: u64,
    /// Transactions with LSNs below this one count in any epoch: they were durable at a crash.
    pub(crate) end_lsn: u64,
    /// The epochs of its first and of its last block. Those of the others are between them.
    pub(crate) blocks: Option<(u64, u64)>,
    /// What may be behind the bytes that count.
    pub(crate) tail: Tail,
    /// Its largest LSN, or 0.
    pub(crate) last_lsn: u64,
}

/// What may be in a file behind the bytes that the manifest knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing that was acknowledged.
    Nothing,
    /// What flushes of epochs have written. It was acknowledged if each file of the flush has its
    /// end.
    Epochs,
    /// Blocks that the worker has flushed. Each of their transactions may have been acknowledged.
    Flushed,
    /// Blocks that the worker has flushed. A transaction may have been acknowledged if all with
    /// smaller LSNs were flushed as well.
    InOrder,
}

impl Tail {
    const ALL: [Tail; 4] = [Tail::Nothing, Tail::Epochs, Tail::Flushed, Tail::InOrder];
}

/// The words of a segment in a copy.
const SEGMENT_WORDS: usize = 10;

impl Segment {
    /// A file that holds nothing.
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

    /// Returns the segment of these words. None if there is no such segment.
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

    /// Whether it has rows of a checkpoint, whose blocks have no epochs.
    pub(crate) fn is_of_checkpoint(&self) -> bool {
        self.blocks.is_none() && self.tail == Tail::Nothing
    }

    /// Returns the largest epoch of its blocks that count.
    pub(crate) fn newest(&self) -> u64 {
        self.blocks.map_or(0, |(_, last)| last).min(self.last_epoch)
    }
}

/// No file has a larger number, so that one more is always a number.
const NUMBER_MAX: u64 = u64::MAX >> 2;

/// Returns the name of the file of this number.
pub(crate) fn name(number: u64) -> String {
    format!("log-{number:08}")
}

/// Returns the number of the file of this name. None if [`name`] gives no file this name.
pub(crate) fn number(file: &str) -> Option<u64> {
    let number = file.strip_prefix("log-")?.parse().ok()?;
    (number <= NUMBER_MAX && name(number) == file).then_some(number)
}

/// The tables, by their numbers. A table is added behind those that there are, and never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSchemas {
    schemas: Vec<Schema>,
    /// For each number of tables, less one: the checksum and the bytes of that many.
    sums: Vec<(u64, u64)>,
}

impl std::ops::Deref for TableSchemas {
    type Target = [Schema];

    fn deref(&self) -> &[Schema] {
        &self.schemas
    }
}

impl TableSchemas {
    /// Returns the checksum of the first `count` tables. None if there are fewer.
    pub(crate) fn sum(&self, count: usize) -> Option<u64> {
        if count == 0 { Some(0) } else { self.sums.get(count - 1).map(|&(sum, _)| sum) }
    }

    /// Returns the number of tables and the checksum of all.
    pub(crate) fn count(&self) -> (usize, u64) {
        (self.len(), self.all().0)
    }

    /// Returns the checksum and the bytes of all tables.
    fn all(&self) -> (u64, u64) {
        self.sums.last().copied().unwrap_or_default()
    }

    /// Returns these tables, numbered in their order.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(schemas: Vec<Schema>) -> Self {
        let mut tables = TableSchemas::default();
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

    /// Returns the first `count` tables of these bytes. None if the bytes end before, or are no
    /// schemas of tables with different names.
    fn read(mut bytes: &[u8], count: u64) -> Option<Self> {
        let mut tables = TableSchemas::default();
        // A record takes some of the bytes, so a count that is too large ends with an error when
        // the bytes do.
        for _ in 0..count {
            let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
            let record = bytes.get(..4 + length)?;
            let schema: Schema = serde_json::from_slice(&record[4..]).ok()?;
            schema.check().ok()?;
            tables.push(schema, record);
            bytes = &bytes[record.len()..];
        }
        let mut names = HashSet::new();
        tables.schemas.iter().all(|schema| names.insert(&*schema.name)).then_some(tables)
    }
}

/// Returns the bytes of a table: the length of what follows, and the schema in JSON.
fn record_of(schema: &Schema) -> Vec<u8> {
    let body = serde_json::to_vec(schema).expect("numbers and names have a form in JSON");
    let length = u32::try_from(body.len()).expect("a schema has fewer than 2^32 bytes");
    [&length.to_le_bytes()[..], &body].concat()
}

/// The contents of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestContents {
    /// Every transaction that committed in this epoch or earlier is durable.
    pub(crate) epoch: u64,
    /// Every transaction with a smaller LSN is durable.
    pub(crate) lsn: u64,
    /// The number of a flush of an epoch. What it and earlier ones have written counts by this
    /// manifest, and the next one has the next number. When a log is opened, numbers of flushes
    /// that stand in tails are used again: these files have no tails any more.
    pub(crate) flush: u64,
    pub(crate) tables: Arc<TableSchemas>,
    pub(crate) segments: Vec<Segment>,
}

/// What a copy says about the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    tables: u64,
    sum: u64,
    bytes: u64,
}

/// The words of a copy before its segments.
const COPY_WORDS: usize = 8;

/// Returns the bytes of a copy that has this many segments.
fn bytes_of_copy(segments: usize) -> u64 {
    (HEADER + 8 * (COPY_WORDS + SEGMENT_WORDS * segments)) as u64
}

impl ManifestContents {
    /// Replaces the entry of a file, or adds it.
    pub(crate) fn put(&mut self, segment: &Segment) {
        match self.segments.iter_mut().find(|known| known.number == segment.number) {
            Some(known) => *known = segment.clone(),
            None => self.segments.push(segment.clone()),
        }
    }

    /// Checks the numbers of a manifest. A stranger may have written it with a correct checksum.
    fn check(&self) -> Result<(), &'static str> {
        if self.epoch > EPOCH_MAX || self.lsn > COUNT_MAX + 1 || self.flush > COUNT_MAX {
            return Err("there is no such epoch, LSN or flush");
        }
        // A file that is named more than once would be read as often.
        let (mut numbers, mut salts) = (HashSet::new(), HashSet::new());
        for segment in &self.segments {
            if segment.number > NUMBER_MAX || !numbers.insert(segment.number) || !salts.insert(segment.salt) {
                return Err("it names a file that can't be, or one twice");
            }
            if segment.bytes > FILE_BYTES_MAX || segment.capacity > FILE_BYTES_MAX {
                return Err("it has a file that is longer than a file of a log can be");
            }
        }
        Ok(())
    }

    /// Returns the words of a copy, in a manifest of `length` bytes.
    fn words(&self, length: u64) -> Vec<u64> {
        let (sum, bytes) = self.tables.all();
        let (tables, segments) = (self.tables.len() as u64, self.segments.len() as u64);
        let mut words = vec![length, self.epoch, self.lsn, self.flush, tables, sum, bytes, segments];
        words.extend(self.segments.iter().flat_map(Segment::words));
        words
    }

    /// Returns what the words of a copy say: the length of the file, the contents without tables,
    /// and what there is about the tables.
    fn of_words(words: &[u64]) -> Option<(u64, Self, Count)> {
        let (&[length, epoch, lsn, flush, tables, sum, bytes, segments], rest) = words.split_first_chunk()?;
        let read: Option<Vec<_>> = rest.chunks(SEGMENT_WORDS).map(Segment::of_words).collect();
        let read = read.filter(|read| read.len() as u64 == segments)?;
        let contents = ManifestContents { epoch, lsn, flush, segments: read, ..ManifestContents::default() };
        Some((length, contents, Count { tables, sum, bytes }))
    }
}

/// The manifest of a log.
#[derive(Debug)]
pub(crate) struct Manifest {
    file: Box<dyn DiskFile>,
    place: String,
    length: u64,
    generation: u64,
    /// What is durable: by the manifest's file, or by what the log's files say themselves.
    pub(crate) contents: ManifestContents,
    /// Set if it is not known which of two files is the manifest. Then nothing may be written to
    /// either.
    lost: Option<LogError>,
}

impl Manifest {
    /// Makes an empty manifest.
    pub(crate) fn create(disk: &dyn Disk) -> Result<Self, LogError> {
        let (contents, place) = (ManifestContents::default(), disk.place(NAME));
        let file = write_next(disk, LENGTH, 1, &contents)?;
        let manifest = Manifest { file, place, length: LENGTH, generation: 1, contents, lost: None };
        manifest.take_place(disk)?;
        Ok(manifest)
    }

    /// Gives the new file the name of the old one, and synchronises the directory.
    fn take_place(&self, disk: &dyn Disk) -> Result<(), LogError> {
        disk.rename(NEXT, NAME).map_err(LogError::io("replace", &self.place))?;
        disk.sync_names().map_err(LogError::io("synchronise the directory of", &self.place))
    }

    /// Makes room for `table`, if it is given, and for `segments` files.
    ///
    /// # Errors
    /// The disk is full, and the manifest is as it was. Or it is not known which file is the
    /// manifest.
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
        if length > LENGTH_MAX {
            return Err(LogError::io("make larger", &self.place)(std::io::ErrorKind::FileTooLarge.into()));
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

    /// Checks that it is known which file is the manifest.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Adds a table, for which there is room.
    ///
    /// # Errors
    /// The disk has failed. The log must stop.
    pub(crate) fn add_table(&mut self, schema: &Schema) -> Result<(), LogError> {
        self.check()?;
        let record = record_of(schema);
        let end = self.contents.tables.all().1;
        for part in TABLES {
            let place = part * (self.length / PARTS) + end;
            self.file.write_at(place, &record).map_err(LogError::io("write", &self.place))?;
        }
        // A copy that counts the table comes later.
        self.file.sync().map_err(LogError::io("synchronise", &self.place))?;
        // There is no other reference, so the tables are not copied.
        Arc::make_mut(&mut self.contents.tables).push(schema.clone(), &record);
        let contents = self.contents.clone();
        self.write_copies(contents)
    }

    /// Writes these contents, whose tables are those of the manifest as it is.
    ///
    /// # Errors
    /// The disk has failed. After a crash the contents are these or those before.
    pub(crate) fn write(&mut self, disk: &dyn Disk, contents: ManifestContents) -> Result<(), LogError> {
        self.make_room(disk, None, contents.segments.len())?;
        self.write_copies(contents)
    }

    fn write_copies(&mut self, contents: ManifestContents) -> Result<(), LogError> {
        self.check()?;
        let generation = self.generation + 1;
        write_copies(&mut *self.file, &self.place, self.length, generation, &contents)?;
        (self.generation, self.contents) = (generation, contents);
        Ok(())
    }

    /// Reads the manifest of a directory. None if there is none and never was: a crash may have
    /// come before the first one was complete.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Option<FoundManifest>, LogError> {
        let place = disk.place(NAME);
        let names = disk.names().map_err(LogError::io("list", disk.place("")))?;
        if !names.iter().any(|name| name == NAME) {
            let has_log = names.iter().any(|name| name.starts_with("log-"));
            return if has_log { Err(LogError::Missing { place }) } else { Ok(None) };
        }
        let file = disk.open(NAME, false).map_err(LogError::io("open", &place))?;
        let length = file.bytes().map_err(LogError::io("read", &place))?;
        let damaged = |offset, why: &str| LogError::Damaged { place: place.clone(), offset, why: why.to_owned() };
        // The length of a sparse file says nothing about the bytes that the disk holds.
        if length > LENGTH_MAX {
            return Err(damaged(LENGTH_MAX, "it is longer than a manifest can be"));
        }
        // It was whole before it got its name, so there is a copy that is whole.
        let mut newest: Option<(u64, ManifestContents, Count)> = None;
        for copy in 0..COPIES {
            let Some((generation, said)) = read_copy(&*file, copy * (length / PARTS), length / PARTS, &place)? else {
                continue;
            };
            let (was, contents, count) = said.ok_or_else(|| damaged(copy * (length / PARTS), "it has other words"))?;
            if was != length {
                return Err(damaged(length.min(was), &format!("it has {}, and had {was}", counted(length, "byte"))));
            }
            if newest.as_ref().is_none_or(|(newest, ..)| *newest < generation) {
                newest = Some((generation, contents, count));
            }
        }
        let Some((generation, mut contents, count)) = newest else {
            return Err(damaged(0, "none of its copies is whole"));
        };
        contents.check().map_err(|why| damaged(0, why))?;
        if generation > COUNT_MAX {
            return Err(damaged(0, "there is no such generation"));
        }
        let mut tables = None;
        for part in TABLES {
            // No more bytes than the file has, whatever the copy says.
            let mut bytes = vec![0; usize::try_from(count.bytes.min(length)).unwrap_or(usize::MAX)];
            let is_read = file.read_at(part * (length / PARTS), &mut bytes).is_ok();
            let read = TableSchemas::read(&bytes, count.tables)
                .filter(|read| is_read && read.all() == (count.sum, count.bytes));
            tables = tables.or(read);
        }
        contents.tables =
            Arc::new(tables.ok_or_else(|| damaged(TABLES[0] * (length / PARTS), "its tables can't be read"))?);
        Ok(Some(FoundManifest { length, generation, contents }))
    }

    /// Opens a manifest that was read for writing. It stays the same file, because the name of a
    /// new one might not be durable.
    ///
    /// What was read is written again and synchronised. It may be in the system's cache alone,
    /// after a synchronisation that failed. Then the disk would have no manifest at all while the
    /// next one is written over the one before.
    pub(crate) fn reopen(disk: &dyn Disk, found: FoundManifest) -> Result<Self, LogError> {
        let place = disk.place(NAME);
        let mut file = disk.open(NAME, true).map_err(LogError::io("open", &place))?;
        let FoundManifest { length, generation, contents } = found;
        write_copies(&mut *file, &place, length, generation, &contents)?;
        Ok(Manifest { file, place, length, generation, contents, lost: None })
    }
}

/// A manifest that was read.
#[derive(Debug)]
pub(crate) struct FoundManifest {
    length: u64,
    generation: u64,
    pub(crate) contents: ManifestContents,
}

/// Writes a manifest beside the one that there is, if there is one, and synchronises it.
fn write_next(
    disk: &dyn Disk,
    length: u64,
    generation: u64,
    contents: &ManifestContents,
) -> Result<Box<dyn DiskFile>, LogError> {
    let place = disk.place(NEXT);
    // A crash has left an incomplete one.
    if disk.names().map_err(LogError::io("list", disk.place("")))?.iter().any(|name| name == NEXT) {
        disk.remove(NEXT).map_err(LogError::io("remove", &place))?;
    }
    let mut file = disk.create(NEXT, length).map_err(LogError::io("create", &place))?;
    let records: Vec<u8> = contents.tables.iter().flat_map(record_of).collect();
    let written = TABLES.iter().try_for_each(|part| file.write_at(part * (length / PARTS), &records));
    let written = written.map_err(LogError::io("write", &place));
    let written = written.and_then(|()| write_copies(&mut *file, &place, length, generation, contents));
    if let Err(error) = written {
        // It has no use. If it can't be removed, the next start removes it.
        let _ = disk.remove(NEXT);
        return Err(error);
    }
    Ok(file)
}

/// Writes the copies of a generation, and synchronises the file.
fn write_copies(
    file: &mut dyn DiskFile,
    place: &str,
    length: u64,
    generation: u64,
    contents: &ManifestContents,
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

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[HEADER..]) ^ xxh3_64(&bytes[..24]).rotate_left(1)
}

/// A copy that is whole: its generation, and what its words say.
type Copy = (u64, Option<(u64, ManifestContents, Count)>);

/// Reads the copy at `offset`, of at most `most` bytes. None if it is not whole.
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
    Ok(Some((generation, ManifestContents::of_words(&words))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::{FaultyDisk, Plan};

    /// A synchronisation fails, and the process ends. The next one finds what was written in the
    /// system's cache, or what the disk has. The machine crashes while that process goes on.
    #[test]
    fn one_copy_is_whole_at_any_time() {
        let contents = |epoch| ManifestContents { epoch, ..ManifestContents::default() };
        for (seed, crash_at) in (0..300).flat_map(|seed| (0..9).map(move |at| (seed, at))) {
            let disk = FaultyDisk::new(Plan::default());
            let mut manifest = Manifest::create(&disk).expect("a disk that works");
            manifest.write(&disk, contents(1)).expect("a disk that works");
            disk.fail(Plan { seed, sync_fails_at: Some(0), ..Plan::default() });
            manifest.write(&disk, contents(2)).expect_err("a synchronisation fails");
            disk.fail(Plan { seed, crash_at: Some(crash_at), ..Plan::default() });
            let found = Manifest::open(&disk).expect("one is whole").expect("it is there");
            let epoch = found.contents.epoch;
            assert!(epoch == 1 || epoch == 2, "seed {seed}: {epoch}");
            let reopened = Manifest::reopen(&disk, found);
            let least = if reopened.is_ok() { epoch } else { 1 };
            let written = reopened.and_then(|mut manifest| manifest.write(&disk, contents(3)));
            let least = if written.is_ok() { 3 } else { least };
            let left = Manifest::open(&disk.after_crash(Plan::default())).expect("one is whole").expect("it is there");
            assert!(left.contents.epoch >= least, "seed {seed}, crash at {crash_at}: {}", left.contents.epoch);
        }
    }
}
