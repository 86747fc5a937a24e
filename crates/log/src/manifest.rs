//! The manifest: which files there are, and how far they count.
//!
//! It says up to which epoch all is durable, which tables there are, and of each file how many bytes are. What is behind them was
//! never acknowledged, and is not looked at, unless workers flush by themselves ([`Tail`]); what is before them was synchronised before the manifest said so, and has to be there.
//!
//! It is written anew with every flush of an epoch, into one of two places in turns, so that one is whole at any time; and each time twice over, one copy
//! behind the other, so that damage to one is no loss, and can be told from a write that was interrupted.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::format::VERSION;
use crate::schema::Schema;

/// The file's name.
pub(crate) const NAME: &str = "manifest";
/// Bytes of a copy, at the most.
const COPY: u64 = 1 << 18;
/// Copies, two of each of two generations.
const COPIES: u64 = 4;
/// Bytes of the header of a copy: [`MAGIC`], the format, the generation, how many bytes follow, and XXH3 of them and of what is before.
const HEADER: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"mft\x01");

/// A file of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Its number, by which it is named.
    pub(crate) number: u64,
    /// What its blocks have, so that they are known as its.
    pub(crate) salt: u64,
    /// How many bytes were synchronised, the header among them.
    pub(crate) bytes: u64,
    /// How long it was made: it is never shorter.
    pub(crate) capacity: u64,
    /// Blocks of later epochs do not count: a crash came before they were durable.
    pub(crate) last_epoch: u64,
    /// The epochs of its first block and of its last, between which those of the others are.
    pub(crate) blocks: Option<(u64, u64)>,
    /// What may be behind these bytes.
    pub(crate) tail: Tail,
    /// The largest LSN in it, or 0.
    pub(crate) last_lsn: u64,
}

/// What may be behind the bytes of a file that the manifest knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tail {
    /// Nothing that was acknowledged.
    Nothing,
    /// What was flushed was acknowledged, whatever the epoch.
    Flushed,
    /// The same, if all with smaller LSNs were flushed too.
    InOrder,
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

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// All that was committed up to this epoch is durable.
    pub(crate) epoch: u64,
    /// So is all below this LSN.
    pub(crate) lsn: u64,
    /// The tables, by their numbers.
    pub(crate) tables: Vec<Schema>,
    pub(crate) segments: Vec<Segment>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Manifest {
    file: Box<dyn DiskFile>,
    place: String,
    generation: u64,
    pub(crate) contents: Contents,
}

impl Manifest {
    /// Makes one that has nothing.
    pub(crate) fn create(disk: &dyn Disk) -> Result<Self, LogError> {
        let place = disk.place(NAME);
        let file = disk.create(NAME, COPY * COPIES).map_err(LogError::io("create", &place))?;
        let mut manifest = Manifest { file, place, generation: 0, contents: Contents::default() };
        manifest.write(Contents::default())?;
        disk.sync_names().map_err(LogError::io("synchronise the directory of", &manifest.place))?;
        Ok(manifest)
    }

    /// Writes it anew. It stays as it was if that fails, or is not known to.
    pub(crate) fn write(&mut self, contents: Contents) -> Result<(), LogError> {
        let body = serde_json::to_vec(&contents).expect("numbers and names have a form in JSON");
        let generation = self.generation + 1;
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&body);
        let sum = checksum(&bytes);
        bytes[24..HEADER].copy_from_slice(&sum.to_le_bytes());
        if bytes.len() as u64 > COPY {
            let full = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "there are too many tables and files");
            return Err(LogError::io("write", &self.place)(full));
        }
        for copy in 0..2 {
            let offset = (generation % 2 * 2 + copy) * COPY;
            self.file.write_at(offset, &bytes).map_err(LogError::io("write", &self.place))?;
        }
        self.file.sync().map_err(LogError::io("synchronise", &self.place))?;
        (self.generation, self.contents) = (generation, contents);
        Ok(())
    }

    /// Reads it. `None` if there is none, and there was none: whoever was to make it has not got to the end.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Option<(u64, Contents)>, LogError> {
        let place = disk.place(NAME);
        let names = disk.names().map_err(LogError::io("list", disk.place("")))?;
        let has_log = names.iter().any(|name| name.starts_with("log-"));
        if !names.iter().any(|name| name == NAME) {
            return if has_log { Err(LogError::Missing { place }) } else { Ok(None) };
        }
        let file = disk.open(NAME, false).map_err(LogError::io("open", &place))?;
        let length = file.bytes().map_err(LogError::io("read", &place))?;
        let damaged = |offset, why: &str| LogError::Damaged { place: place.clone(), offset, why: why.to_owned() };
        if length < COPY * COPIES && has_log {
            return Err(damaged(length, "it ends there"));
        }
        let mut newest: Option<(u64, Contents)> = None;
        for copy in 0..COPIES {
            if let Some((generation, contents)) = read_copy(&*file, copy * COPY, &place)?
                && newest.as_ref().is_none_or(|(newest, _)| *newest < generation)
            {
                newest = Some((generation, contents));
            }
        }
        match newest {
            None if has_log => Err(damaged(0, "none of its copies is whole")),
            newest => Ok(newest),
        }
    }

    /// Goes on with one that was read. A new file would not be known to be there.
    pub(crate) fn reopen(disk: &dyn Disk, generation: u64, contents: Contents) -> Result<Self, LogError> {
        let place = disk.place(NAME);
        let file = disk.open(NAME, true).map_err(LogError::io("open", &place))?;
        Ok(Manifest { file, place, generation, contents })
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(&bytes[HEADER..]) ^ xxh3_64(&bytes[..24]).rotate_left(1)
}

/// A copy, if it is whole.
fn read_copy(file: &dyn DiskFile, offset: u64, place: &str) -> Result<Option<(u64, Contents)>, LogError> {
    let mut bytes = vec![0; HEADER];
    if file.read_at(offset, &mut bytes).is_err() {
        return Ok(None);
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (magic, version) = (number(0) as u32, (number(0) >> 32) as u32);
    let (generation, length, sum) = (number(8), number(16), number(24));
    if magic != MAGIC || length > COPY - HEADER as u64 {
        return Ok(None);
    }
    bytes.resize(HEADER + length as usize, 0);
    if file.read_at(offset, &mut bytes).is_err() || checksum(&bytes) != sum {
        return Ok(None);
    }
    if version != VERSION {
        return Err(LogError::Version { place: place.to_owned(), found: version, known: VERSION });
    }
    let contents = serde_json::from_slice(&bytes[HEADER..]).map_err(|error| LogError::Damaged {
        place: place.to_owned(),
        offset,
        why: error.to_string(),
    })?;
    Ok(Some((generation, contents)))
}
