//! The bytes of a log file.
//!
//! A file begins with a header: [`FILE`], the format's number, how many tables there were when the file was begun, the file's salt, the checksum of these tables
//! ([`Tables`]), and XXH3 of all that. It goes on with blocks, one after the other. A block has what
//! was committed by one worker in one epoch:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | [`BLOCK`] |
//! | 4 | how many bytes follow the block's header |
//! | 8 | the epoch |
//! | 8 | the file's salt: so that what another file has left on the disk is no block of this one |
//! | 8 | which flush of the worker wrote it: each begins when the one before has been synchronised |
//! | 8 | all transactions below this LSN were durable before; 0 if the block's have none |
//! | 8 | XXH3 of all others, header and body |
//!
//! The body is transactions; each is its LSN, if they have any, how many rows it wrote, and these: a number of the table, whether the stamp is
//! that of the last one (the first's: the first of the epoch), and the kind ([`Kind`]); if it is another, by how much it is above that one, or below (a number that is
//! even, or odd); the groups if not all are there; the words of the key, and those of the row, or of these groups. What was only added to ([`contend_engine::journal`]) has,
//! in the place of the difference, by how many epochs its stamp is older than the block, and the rest of the stamp; and after the key how many words, and
//! each one's number and what was added, as a difference to both sides. Numbers are in groups of seven bits, the lowest first (LEB128). Of words only the
//! bytes up to the highest that is not 0 are there, lowest first; before each two words of a write is a byte that says how many these are
//! ([`Room::words`]).

use std::mem::MaybeUninit;

use contend_engine::journal::{Addition, STAMP_SHIFT, Stamp};
use contend_engine::{Groups, KeyWords};
use xxhash_rust::xxh3::xxh3_64;

use crate::manifest::Tables;
use crate::schema::{Form, Schema};

/// The format of the files.
pub(crate) const VERSION: u32 = 8;
/// The first bytes of a file.
pub(crate) const FILE: [u8; 8] = *b"contend\x01";
/// The first bytes of a block.
const BLOCK: u32 = u32::from_le_bytes(*b"blk\x01");
/// Bytes of a file's header.
pub(crate) const FILE_HEADER: usize = 40;
/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER: usize = 48;

/// What a write has done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All groups are there.
    Whole,
    /// Some groups are there; the others are as they were.
    Part,
    /// The row is gone.
    Deleted,
    /// Words are larger by so much.
    Added,
    /// All groups are there, of a row that was not there before.
    Inserted,
}

const WHOLE: u64 = Kind::Whole as u64;
const PART: u64 = Kind::Part as u64;
const DELETED: u64 = Kind::Deleted as u64;
const ADDED: u64 = Kind::Added as u64;
const INSERTED: u64 = Kind::Inserted as u64;

/// In a write's first number: the bits of the kind, and those below the table.
const KIND_BITS: u32 = 3;
const HEAD_BITS: u32 = KIND_BITS + 1;

/// What has become of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// There was no row, and now there is this one. A checkpoint says [`Change::Put`]: what was there before it is not known any more.
    Insert(&'a [u64]),
    /// These groups are as they are in this row, which has all words of its table's rows.
    Put(Groups, &'a [u64]),
    /// This was added to what the stamp is of.
    Add(&'a [Addition]),
    /// The row is gone.
    Delete,
}

/// A row that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write<'a> {
    /// The table, as the log numbers it.
    pub(crate) table: u32,
    /// As many words as its keys have.
    pub(crate) key: &'a [u64],
    pub(crate) stamp: Stamp,
    pub(crate) change: Change<'a>,
}

/// Room behind what was written, which is made once for all that a write needs, and is not cleared before it is filled.
struct Room<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    /// All before this were written.
    used: usize,
}

/// The most bytes that a number has.
const NUMBER_MAX: usize = 10;
/// More than the bytes that a word has, those that say how many there are, and those that are written beyond its end.
const WORD_MAX: usize = 9;

impl<'a> Room<'a> {
    /// Room for so many bytes behind these.
    #[inline(always)]
    fn behind(bytes: &'a mut Vec<u8>, most: usize) -> Self {
        bytes.reserve(most);
        Room { bytes: &mut bytes.spare_capacity_mut()[..most], used: 0 }
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.used].write(byte);
        self.used += 1;
    }

    /// Puts the first so many bytes of a word. What is too much is overwritten by what comes next, or cut off in the end.
    #[inline(always)]
    fn word(&mut self, word: u64, length: usize) {
        let place = &mut self.bytes[self.used..self.used + 8];
        // SAFETY: the place has eight bytes, which need no alignment.
        unsafe { place.as_mut_ptr().cast::<[u8; 8]>().write(word.to_le_bytes()) };
        self.used += length;
    }

    #[inline(always)]
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    /// Words, without the bytes above the highest that is not 0. Before each two stands a byte: how many bytes the first has, and, in the upper
    /// half, how many the second. `odd` is the word before them that has none beside it; the one that is left over.
    #[inline(always)]
    fn words(&mut self, odd: Option<u64>, words: &[u64]) -> Option<u64> {
        let words = match (odd, words) {
            (None, all) => all,
            (Some(first), &[second, ref rest @ ..]) => {
                self.two_words(first, second);
                rest
            }
            (odd, []) => return odd,
        };
        let (pairs, last) = words.as_chunks::<2>();
        pairs.iter().for_each(|&[first, second]| self.two_words(first, second));
        last.first().copied()
    }

    #[inline(always)]
    fn two_words(&mut self, first: u64, second: u64) {
        let (own, other) = (length_of(first), length_of(second));
        self.byte((own | other << 4) as u8);
        self.word(first, own);
        self.word(second, other);
    }

    /// The last word, if it has none beside it.
    #[inline(always)]
    fn last_word(&mut self, odd: Option<u64>) {
        if let Some(word) = odd {
            let own = length_of(word);
            self.byte(own as u8);
            self.word(word, own);
        }
    }
}

/// No transaction has more bytes than so many times the words of the keys and rows that it writes, and of these each write has one at least. A word that
/// something was added to is two numbers.
pub(crate) const WORD_BYTES_MAX: usize = 7 * NUMBER_MAX + 1;
const _: () = assert!(2 * NUMBER_MAX >= WORD_MAX);

/// The bytes of a word up to the highest that is not 0.
#[inline(always)]
fn length_of(word: u64) -> usize {
    8 - word.leading_zeros() as usize / 8
}

/// No stamp is larger: they have their epochs above them.
const STAMP_MAX: u64 = u64::MAX >> 2;

/// No LSN is larger, nor is the number of a flush: they count from 1, and one more is always a number.
const COUNT_MAX: u64 = u64::MAX >> 2;

/// The part of a stamp that counts, below its epoch.
const STAMP_MASK: u64 = (1 << STAMP_SHIFT) - 1;

/// Differences to both sides are small numbers, as in Protocol Buffers.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// Appends a transaction of this epoch: its LSN, if it has one, and its writes, each with the form of its table's rows.
pub(crate) fn put_transaction<'a, F: Form + 'a>(
    lsn: u64,
    epoch: u64,
    writes: impl ExactSizeIterator<Item = (Write<'a>, &'a F)>,
    bytes: &mut Vec<u8>,
) {
    // Every commit comes through here, and much of that is to ask how many bytes a word has. BSR, by which all x86-64 can tell, takes several
    // cycles on AMD's; LZCNT, which nearly all have since 2013, takes one.
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "lzcnt")]
        fn with_lzcnt<'a, F: Form + 'a>(
            lsn: u64,
            epoch: u64,
            writes: impl ExactSizeIterator<Item = (Write<'a>, &'a F)>,
            bytes: &mut Vec<u8>,
        ) {
            put_writes(lsn, epoch, writes, bytes);
        }
        if std::arch::is_x86_feature_detected!("lzcnt") {
            // SAFETY: this processor has it.
            return unsafe { with_lzcnt(lsn, epoch, writes, bytes) };
        }
    }
    put_writes(lsn, epoch, writes, bytes);
}

/// See [`put_transaction`].
#[inline(always)]
fn put_writes<'a, F: Form + 'a>(
    lsn: u64,
    epoch: u64,
    writes: impl ExactSizeIterator<Item = (Write<'a>, &'a F)>,
    bytes: &mut Vec<u8>,
) {
    let mut room = Room::behind(bytes, 2 * NUMBER_MAX);
    if lsn > 0 {
        room.number(lsn);
    }
    room.number(writes.len() as u64);
    let used = room.used;
    // SAFETY: so many behind the old length were written ([`Room::used`]), in the capacity that was reserved.
    unsafe { bytes.set_len(bytes.len() + used) };
    let mut last = first_stamp(epoch);
    for (write, form) in writes {
        let kind = match write.change {
            Change::Delete => Kind::Deleted,
            Change::Add(_) => Kind::Added,
            Change::Insert(_) => Kind::Inserted,
            Change::Put(groups, _) if form.is_whole(groups) => Kind::Whole,
            Change::Put(..) => Kind::Part,
        };
        let (row, additions): (&[u64], &[Addition]) = match write.change {
            Change::Insert(row) | Change::Put(_, row) => (row, &[]),
            Change::Add(additions) => (&[], additions),
            Change::Delete => (&[], &[]),
        };
        // A key has a word at least: no more than `WORD_BYTES_MAX` for each of the words that the write has in memory.
        let most = 5 * NUMBER_MAX + WORD_MAX * (write.key.len() + row.len()) + 2 * NUMBER_MAX * additions.len();
        let mut room = Room::behind(bytes, most);
        let is_same = kind != Kind::Added && write.stamp == last;
        room.number(u64::from(write.table) << HEAD_BITS | u64::from(is_same) << KIND_BITS | kind as u64);
        if kind == Kind::Added {
            // It may be far from all others of the transaction.
            room.number(zigzag(epoch.wrapping_sub(write.stamp.epoch())));
            room.number(write.stamp.0 & STAMP_MASK);
        } else if !is_same {
            room.number(zigzag(write.stamp.0.wrapping_sub(last.0)));
            last = write.stamp;
        }
        if let (Kind::Part, Change::Put(groups, _)) = (kind, write.change) {
            room.number(groups.into_iter().fold(0, |bits, group| bits | 1 << group));
        }
        let mut odd = room.words(None, write.key);
        match write.change {
            Change::Insert(_) => odd = room.words(odd, row),
            Change::Put(..) if kind == Kind::Whole => odd = room.words(odd, row),
            Change::Put(groups, _) => {
                for words in form.words(groups) {
                    odd = room.words(odd, &row[words]);
                }
            }
            Change::Delete | Change::Add(_) => {}
        }
        room.last_word(odd);
        if kind == Kind::Added {
            room.number(additions.len() as u64);
            for addition in additions {
                room.number(u64::from(addition.word));
                room.number(zigzag(addition.by));
            }
        }
        let used = room.used;
        // SAFETY: as above.
        unsafe { bytes.set_len(bytes.len() + used) };
    }
}

/// What the first stamp of a transaction of this epoch is compared with.
pub(crate) fn first_stamp(epoch: u64) -> Stamp {
    Stamp(epoch << STAMP_SHIFT)
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or("it ends within a number")?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err("a number is too large");
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number is too long")
    }

    /// Fills these words, as [`Room::words`] puts them. `next` is how many bytes the first has, if that is known; and then that of the one after them.
    #[inline]
    fn words(&mut self, next: &mut Option<u8>, words: &mut [u64]) -> Result<(), &'static str> {
        for word in words {
            let length = match next.take() {
                Some(length) => length,
                None => {
                    let (&lengths, rest) = self.0.split_first().ok_or(CUT)?;
                    self.0 = rest;
                    *next = Some(lengths >> 4);
                    lengths & 15
                }
            };
            *word = self.word(length)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn word(&mut self, length: u8) -> Result<u64, &'static str> {
        let length = usize::from(length);
        if length > 8 {
            return Err("a word is too long");
        }
        let (own, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        let word = match self.0.first_chunk() {
            // All are read, and what is too much is cleared.
            Some(all) if length > 0 => u64::from_le_bytes(*all) & u64::MAX >> (64 - 8 * length),
            _ => own.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        self.0 = rest;
        Ok(word)
    }
}

const CUT: &str = "it ends within a key or a row";

/// Visits the writes of a block's body, of those transactions that `counts` wants, which gets their LSNs, or 0. `schemas` are the tables, by
/// their numbers.
///
/// # Errors
/// It is not the body of a block.
pub(crate) fn read_body(
    block: Block<'_>,
    schemas: &[Schema],
    mut counts: impl FnMut(u64) -> bool,
    mut visit: impl FnMut(Write<'_>),
) -> Result<(), &'static str> {
    let Block { epoch, body, durable, .. } = block;
    let mut reader = Reader(body);
    let (mut row, mut additions) = (Vec::new(), Vec::new());
    while !reader.0.is_empty() {
        let lsn = if durable > 0 { reader.number()? } else { 0 };
        if lsn > COUNT_MAX {
            return Err("there is no such LSN");
        }
        let is_wanted = counts(lsn);
        let mut last = first_stamp(epoch);
        for _ in 0..reader.number()? {
            let head = reader.number()?;
            let table = u32::try_from(head >> HEAD_BITS).map_err(|_| "there is no such table")?;
            let schema = schemas.get(table as usize).ok_or("there is no such table")?;
            let (kind, is_same) = (head & ((1 << KIND_BITS) - 1), head >> KIND_BITS & 1 == 1);
            let stamp = if kind == ADDED {
                let epoch = epoch.wrapping_sub(unzigzag(reader.number()?));
                let counted = reader.number()?;
                if counted > STAMP_MASK || epoch > STAMP_MAX >> STAMP_SHIFT {
                    return Err("there is no such stamp");
                }
                Stamp(epoch << STAMP_SHIFT | counted)
            } else {
                if !is_same {
                    last = Stamp(last.0.wrapping_add(unzigzag(reader.number()?)));
                }
                last
            };
            if stamp.0 > STAMP_MAX {
                return Err("there is no such stamp");
            }
            let groups = match kind {
                WHOLE | INSERTED => Some(schema.all_groups()),
                PART => {
                    let bits = reader.number()?;
                    let groups = (0..schema.groups.len() as u32).filter(|group| bits >> group & 1 == 1);
                    Some(groups.fold(Groups::NONE, |all, group| all.union(Groups::of(group))))
                }
                DELETED | ADDED => None,
                _ => return Err("there is no such kind of write"),
            };
            let mut key = KeyWords::default();
            let mut next = None;
            reader.words(&mut next, &mut key[..schema.key_words])?;
            row.clear();
            row.resize(schema.row_words, 0);
            match groups {
                Some(_) if kind != PART => reader.words(&mut next, &mut row)?,
                Some(groups) => schema.words(groups).try_for_each(|words| reader.words(&mut next, &mut row[words]))?,
                None => {}
            }
            if next.is_some_and(|length| length > 0) {
                return Err("there are more words than a key and a row have");
            }
            additions.clear();
            if kind == ADDED {
                for _ in 0..reader.number()? {
                    let word = reader.number()?;
                    let word = u32::try_from(word).ok().filter(|&word| (word as usize) < schema.row_words);
                    let by = unzigzag(reader.number()?);
                    additions.push(Addition { word: word.ok_or("there is no such word")?, by });
                }
            }
            let change = match groups {
                Some(_) if kind == INSERTED => Change::Insert(&row),
                Some(groups) => Change::Put(groups, &row),
                None if kind == DELETED => Change::Delete,
                None => Change::Add(&additions),
            };
            if is_wanted {
                visit(Write { table, key: &key[..schema.key_words], stamp, change });
            }
        }
    }
    Ok(())
}

/// The header of a file that is begun when there are so many tables, of this checksum.
pub(crate) fn file_header(salt: u64, (count, tables): (usize, u64)) -> [u8; FILE_HEADER] {
    let count = u32::try_from(count).expect("fewer than 2^32 tables");
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(&FILE);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&count.to_le_bytes());
    header[16..24].copy_from_slice(&salt.to_le_bytes());
    header[24..32].copy_from_slice(&tables.to_le_bytes());
    let sum = xxh3_64(&header[..32]);
    header[32..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Whether a file of this salt that begins with these bytes is one of a log of these tables.
///
/// # Errors
/// It is not.
pub(crate) fn read_file_header(bytes: &[u8], salt: u64, tables: &Tables) -> Result<(), &'static str> {
    let fixed = bytes.get(..FILE_HEADER).ok_or("its header is cut off")?;
    let number = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes"));
    if fixed[..8] != FILE || number(16) != salt {
        return Err("it is not the file that was written");
    }
    if number(32) != xxh3_64(&fixed[..32]) {
        return Err("the checksum of its header is wrong");
    }
    if number(8) as u32 != VERSION {
        return Err("it has another format");
    }
    // Others may have come later.
    let own = tables.sum((number(8) >> 32) as usize);
    if own == Some(number(24)) { Ok(()) } else { Err("its tables are others") }
}

/// Makes a block of `bytes`, which hold room for its header, and then its body.
pub(crate) fn seal(bytes: &mut [u8], epoch: u64, salt: u64, flush: u64, durable: u64) {
    let length = u32::try_from(bytes.len() - BLOCK_HEADER).expect("a block has fewer than 2^32 bytes");
    bytes[..4].copy_from_slice(&BLOCK.to_le_bytes());
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
    bytes[16..24].copy_from_slice(&salt.to_le_bytes());
    bytes[24..32].copy_from_slice(&flush.to_le_bytes());
    bytes[32..40].copy_from_slice(&durable.to_le_bytes());
    let sum = checksum(bytes);
    bytes[40..48].copy_from_slice(&sum.to_le_bytes());
}

/// Of a block, all but the place of the checksum.
fn checksum(block: &[u8]) -> u64 {
    let (header, body) = block.split_at(BLOCK_HEADER);
    xxh3_64(body) ^ xxh3_64(&header[..40]).rotate_left(1)
}

/// A block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) epoch: u64,
    pub(crate) flush: u64,
    pub(crate) durable: u64,
    pub(crate) body: &'a [u8],
}

/// The block that these bytes begin with, and the bytes behind it.
///
/// # Errors
/// There is none.
pub(crate) fn read_block(bytes: &[u8], salt: u64) -> Result<(Block<'_>, &[u8]), &'static str> {
    let header = bytes.get(..BLOCK_HEADER).ok_or("a block is cut off")?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    if number(0) as u32 != BLOCK {
        return Err("no block begins here");
    }
    let end = BLOCK_HEADER + (number(0) >> 32) as usize;
    let block = bytes.get(..end).ok_or("a block is cut off")?;
    if checksum(block) != number(40) {
        return Err("the checksum is wrong");
    }
    if number(16) != salt {
        return Err("a block is of another file");
    }
    let [epoch, flush, durable] = [8, 24, 32].map(number);
    if epoch > STAMP_MAX >> STAMP_SHIFT || flush > COUNT_MAX || durable > COUNT_MAX {
        return Err("there is no such epoch, flush or LSN");
    }
    Ok((Block { epoch, flush, durable, body: &block[BLOCK_HEADER..] }, &bytes[end..]))
}

/// The flush that wrote the latest of the whole blocks that begin somewhere in these bytes.
pub(crate) fn latest_flush(bytes: &[u8], salt: u64) -> Option<u64> {
    let magic = BLOCK.to_le_bytes();
    let begins = bytes.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    begins.filter_map(|(place, _)| read_block(&bytes[place..], salt).ok()).map(|(block, _)| block.flush).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn schemas() -> Vec<Schema> {
        let schema = |key_words, groups: &[(usize, usize)]| Schema {
            name: "t".to_owned(),
            key_words,
            row_words: groups.last().map_or(0, |group| group.1),
            groups: groups.to_vec(),
            ordered: true,
            columns: String::new(),
        };
        vec![schema(1, &[(0, 1)]), schema(4, &[(0, 2), (2, 5), (5, 6)]), schema(2, &[(0, 0)])]
    }

    type Owned = (u32, Vec<u64>, Stamp, Option<(Groups, Vec<u64>)>, Vec<Addition>);

    /// Some transactions, and the body that they make.
    fn body(random: &mut SmallRng, epoch: u64, schemas: &[Schema]) -> (Vec<Owned>, u64, Vec<u8>) {
        let (mut writes, mut bytes) = (Vec::new(), Vec::new());
        let transactions = random.random_range(0..5);
        for _ in 0..transactions {
            let count = random.random_range(0..4);
            let first = writes.len();
            for _ in 0..count {
                let table = random.random_range(0..schemas.len());
                let schema = &schemas[table];
                let key: Vec<_> = std::iter::repeat_with(|| random.random::<u64>() >> random.random_range(0..64))
                    .take(schema.key_words)
                    .collect();
                let stamp =
                    Stamp((epoch << STAMP_SHIFT) + random.random_range(0..1 << 30) - random.random_range(0..epoch + 1));
                let groups = (0..schema.groups.len()).filter(|_| random.random_bool(0.6));
                let groups = groups.fold(Groups::NONE, |all, group| all.union(Groups::of(group as u32)));
                let groups = if random.random_bool(0.2) { Groups::ALL } else { groups };
                let mut row = vec![0; schema.row_words];
                schema.words(groups).flatten().for_each(|word| row[word] = random.random());
                let row = (!groups.is_empty()).then_some((groups, row));
                let mut additions = Vec::new();
                if row.is_none() && schema.row_words > 0 && random.random_bool(0.5) {
                    additions.resize_with(random.random_range(1..4), || Addition {
                        word: random.random_range(0..schema.row_words) as u32,
                        by: (random.random::<u64>() as i64 >> random.random_range(0..64)) as u64,
                    });
                }
                writes.push((table as u32, key, stamp, row, additions));
            }
            let own = writes[first..].iter().map(|(table, key, stamp, row, additions): &Owned| {
                let change = match row {
                    // Some of them are new.
                    Some((Groups::ALL, row)) => Change::Insert(row),
                    Some((groups, row)) => Change::Put(*groups, row),
                    None if additions.is_empty() => Change::Delete,
                    None => Change::Add(additions),
                };
                (Write { table: *table, key, stamp: *stamp, change }, &schemas[*table as usize])
            });
            put_transaction(0, epoch, own, &mut bytes);
        }
        (writes, transactions, bytes)
    }

    #[test]
    fn a_header_knows_its_tables() {
        let tables = Tables::of(schemas());
        let header = file_header(7, Tables::of(schemas()[..2].to_vec()).count());
        let longer = [&header[..], b"more"].concat();
        assert_eq!(read_file_header(&longer, 7, &tables), Ok(()));
        assert_eq!(read_file_header(&header, 7, &Tables::of(schemas()[..2].to_vec())), Ok(()));
        assert_eq!(read_file_header(&file_header(7, (0, 0)), 7, &tables), Ok(()));
        let reversed = Tables::of(schemas().into_iter().rev().collect());
        assert_eq!(read_file_header(&header, 7, &reversed), Err("its tables are others"));
        let fewer = Tables::of(schemas()[..1].to_vec());
        assert_eq!(read_file_header(&header, 7, &fewer), Err("its tables are others"));
        assert_eq!(read_file_header(&header, 8, &tables), Err("it is not the file that was written"));
        for place in 0..header.len() {
            assert!(read_file_header(&header[..place], 7, &tables).is_err(), "cut off at {place}");
            let mut damaged = header;
            damaged[place] ^= 1;
            assert!(read_file_header(&damaged, 7, &tables).is_err(), "damaged at {place}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (schemas, random) = (schemas(), &mut SmallRng::seed_from_u64(1));
        for epoch in 0..500 {
            let (writes, transactions, bytes) = body(random, epoch, &schemas);
            let mut block = vec![0; BLOCK_HEADER];
            block.extend_from_slice(&bytes);
            seal(&mut block, epoch, 77, 3, 0);
            block.extend_from_slice(b"more");
            let (block, behind) = read_block(&block, 77).expect("a block");
            assert_eq!((block.epoch, behind), (epoch, &b"more"[..]));
            let mut read = Vec::new();
            let mut found = 0;
            let count = |_| {
                found += 1;
                true
            };
            let outcome = read_body(block, &schemas, count, |Write { table, key, stamp, change }| {
                let (row, additions) = match change {
                    Change::Insert(row) => (Some((Groups::ALL, row.to_vec())), Vec::new()),
                    Change::Put(groups, row) => (Some((groups, row.to_vec())), Vec::new()),
                    Change::Add(additions) => (None, additions.to_vec()),
                    Change::Delete => (None, Vec::new()),
                };
                read.push((table, key.to_vec(), stamp, row, additions));
            });
            assert_eq!((outcome, found, read), (Ok(()), transactions, writes));
        }
    }

    /// Whatever a body is, reading it ends, by an error or not; a checksum could be right by chance, or be made so.
    #[test]
    fn any_bytes_can_be_read() {
        let (schemas, random) = (schemas(), &mut SmallRng::seed_from_u64(2));
        let mut errors = std::collections::BTreeSet::new();
        for epoch in 0..20_000 {
            let (_, _, mut bytes) = body(random, epoch, &schemas);
            for _ in 0..random.random_range(1..4) {
                let place = random.random_range(0..=bytes.len());
                match random.random_range(0..4) {
                    0 => bytes.truncate(place),
                    1 => bytes.insert(place, random.random()),
                    2 if place < bytes.len() => bytes[place] = 0xff,
                    _ if place < bytes.len() => bytes[place] ^= 1 << random.random_range(0..8),
                    _ => {}
                }
            }
            let block =
                Block { epoch: epoch << random.random_range(0..40), flush: 0, durable: epoch % 2, body: &bytes };
            let outcome = read_body(
                block,
                &schemas,
                |_| true,
                |write| {
                    assert!((write.table as usize) < schemas.len());
                    let words = schemas[write.table as usize].row_words;
                    match write.change {
                        Change::Insert(row) | Change::Put(_, row) => assert_eq!(row.len(), words),
                        Change::Add(additions) => assert!(additions.iter().all(|added| (added.word as usize) < words)),
                        Change::Delete => {}
                    }
                },
            );
            errors.extend(outcome.err());
        }
        assert!(errors.len() >= 5, "{errors:?}");
    }
}
