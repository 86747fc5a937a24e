//! The bytes of a log file.
//!
//! A file is a header and records, one after the other; behind them it may have zeros, or what a
//! crash left. Numbers of a fixed length are little-endian. A block has what one worker committed
//! in one epoch, or rows of a checkpoint (epoch 0). An end says that a flush of an epoch has
//! written all before it, in this file.
//!
//! ```text
//! file        = header (block | end)*
//! header      = "contend\x01" version:u32 table_count:u32 salt:u64 tables_sum:u64 sum:u64
//! block       = "blk\x01" length:u32 epoch:u64 salt:u64 flush:u64 durable_lsn:u64 sum:u64 body
//! end         = "end\x01" files:u32 epoch:u64 salt:u64 log_flush:u64 sum:u64
//! body        = transaction*                  # `length` bytes
//! transaction = lsn? count write*             # `lsn` only if durable_lsn > 0
//! write       = head counter? key             # kind 2
//!             | head counter? key row         # kinds 0 and 4
//!             | head counter? groups key row  # kind 1
//!             | head age low key added        # kind 3
//! head        = table << 4 | is_same << 3 | kind
//!               # kinds: 0 whole row, 1 some groups, 2 deletion, 3 addition, 4 insert
//! counter     = difference                    # unless is_same
//! groups      = bits                          # the groups that were written
//! key, row    = word*                         # `row` of kind 1: the words of the groups
//! age         = difference                    # epoch of the block - epoch of the counter
//! low         = number                        # the low 28 bits of the counter
//! added       = count (number difference)*    # number of a word, and what was added to it
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `version` | [`VERSION`] |
//! | `table_count` | how many tables there were when the file was begun |
//! | `tables_sum` | the checksum of these tables ([`TableSchemas`]) |
//! | `salt` | a random number of the file: blocks of other files that the disk had are not its own |
//! | `flush` | the number of the worker's flush: each begins after the one before was synchronised |
//! | `durable_lsn` | smaller LSNs were durable before; 0 if the transactions have no LSNs |
//! | `files` | the number of files that the flush has written to; each has an end of it |
//! | `log_flush` | the number of the flush among those of the log |
//! | `sum` | XXH3 of all other bytes; of a block, header and body |
//! | `is_same` | the counter is that of the write before; of the first write, the epoch's first |
//! | `counter` | the difference to that counter |
//! | `count`, `number`, `bits`, `lsn`, `head` | LEB128: groups of seven bits, the lowest first |
//! | `difference` | zigzag in LEB128: the lowest bit is the sign |
//! | `word` | its bytes up to the highest that is not 0, lowest first |
//!
//! Before each two words of a write, key and row together, stands a byte with the lengths of both;
//! that of the first is in its lower half.
//!
//! An addition ([`contend_engine::commit_sink`]) keeps the write counter of the write that it was
//! added to. That write may be of an earlier epoch, so the counter is given by its age.

mod decode;
mod encode;

use contend_engine::Groups;
use contend_engine::commit_sink::{Addition, COUNTER_EPOCH_SHIFT, WriteCounter};
use xxhash_rust::xxh3::xxh3_64;

use crate::manifest::TableSchemas;

pub(crate) use decode::read_body;
pub(crate) use encode::{WORD_BYTES_MAX, put_transaction};

/// The format of the files.
pub(crate) const VERSION: u32 = 9;
/// The first bytes of a file.
pub(crate) const FILE: [u8; 8] = *b"contend\x01";
/// The first bytes of a block.
const BLOCK: u32 = u32::from_le_bytes(*b"blk\x01");
/// The first bytes of an end.
const END: u32 = u32::from_le_bytes(*b"end\x01");
/// Bytes of a file's header.
pub(crate) const FILE_HEADER: usize = 40;
/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER: usize = 48;
/// Bytes of an end.
pub(crate) const END_BYTES: usize = 40;

/// The kind of a write, as it stands in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All groups of the row were written.
    Whole,
    /// Some groups were written; the others are as they were.
    Part,
    /// The row was deleted.
    Deleted,
    /// Differences were added to words.
    Added,
    /// A row was inserted, with all of its groups.
    Inserted,
}

const WHOLE: u64 = Kind::Whole as u64;
const PART: u64 = Kind::Part as u64;
const DELETED: u64 = Kind::Deleted as u64;
const ADDED: u64 = Kind::Added as u64;
const INSERTED: u64 = Kind::Inserted as u64;

/// In a head, the bits of the kind.
const KIND_BITS: u32 = 3;
/// In a head, the bits below the table.
const HEAD_BITS: u32 = KIND_BITS + 1;

/// What a write does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Inserts this row. A checkpoint uses [`Change::Put`] instead, because it does not know what
    /// came before.
    Insert(&'a [u64]),
    /// Overwrites these groups. The slice has all words of the row; those of other groups are
    /// ignored.
    Put(Groups, &'a [u64]),
    /// Adds these differences to the row that the write with the same write counter left.
    Add(&'a [Addition]),
    /// Deletes the row.
    Delete,
}

/// A write of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write<'a> {
    /// The log's number of the table.
    pub(crate) table: u32,
    /// The words of the key, as many as the table's keys have.
    pub(crate) key: &'a [u64],
    pub(crate) counter: WriteCounter,
    pub(crate) change: Change<'a>,
}

/// No write counter is larger. Flags of the engine have the bits above it.
const COUNTER_MAX: u64 = u64::MAX >> 2;

/// No epoch is larger.
pub(crate) const EPOCH_MAX: u64 = COUNTER_MAX >> COUNTER_EPOCH_SHIFT;

/// No LSN and no number of a flush is larger, so that one more can always be represented.
pub(crate) const COUNT_MAX: u64 = u64::MAX >> 2;

/// The bits of a write counter below its epoch.
const COUNTER_MASK: u64 = (1 << COUNTER_EPOCH_SHIFT) - 1;

/// Returns the first write counter of an epoch. The first write of a transaction gives its counter
/// as the difference to it.
pub(crate) fn first_counter(epoch: u64) -> WriteCounter {
    WriteCounter(epoch << COUNTER_EPOCH_SHIFT)
}

/// Returns the header of a file that is begun when there are `count` tables with this checksum.
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

/// Checks that `bytes` begin with the header of a file of this salt, in a log of these tables.
///
/// # Errors
/// They do not; the text says why.
pub(crate) fn read_file_header(bytes: &[u8], salt: u64, tables: &TableSchemas) -> Result<(), &'static str> {
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

/// Makes a block of `bytes`: fills in the header, for which there is room before the body.
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

/// Returns the checksum of a block: of all of it but the place of the checksum.
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

/// What a flush of an epoch writes last to each of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// How many files the flush has written to.
    pub(crate) files: u32,
    /// The epoch that it makes durable, with all earlier ones.
    pub(crate) epoch: u64,
    /// Its number among the flushes of the log.
    pub(crate) log_flush: u64,
}

impl End {
    /// Returns its bytes in a file of this salt.
    pub(crate) fn bytes(self, salt: u64) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..4].copy_from_slice(&END.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.files.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.log_flush.to_le_bytes());
        let sum = xxh3_64(&bytes[..32]);
        bytes[32..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the end that `bytes` begin with, and the bytes behind it. None if there is none.
    fn read(bytes: &[u8], salt: u64) -> Option<(Self, &[u8])> {
        let (own, behind) = bytes.split_first_chunk::<END_BYTES>()?;
        let number = |at: usize| u64::from_le_bytes(own[at..at + 8].try_into().expect("eight bytes"));
        let end = End { files: (number(0) >> 32) as u32, epoch: number(8), log_flush: number(24) };
        let is_whole = *own == end.bytes(salt) && end.epoch <= EPOCH_MAX && end.log_flush <= COUNT_MAX;
        is_whole.then_some((end, behind))
    }
}

/// What a file has behind its header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    Block(Block<'a>),
    End(End),
}

/// Returns the record that `bytes` begin with, and the bytes behind it.
///
/// # Errors
/// They begin with no whole record; the text says why.
pub(crate) fn read_record(bytes: &[u8], salt: u64) -> Result<(Record<'_>, &[u8]), &'static str> {
    match End::read(bytes, salt) {
        Some((end, behind)) => Ok((Record::End(end), behind)),
        None => read_block(bytes, salt).map(|(block, behind)| (Record::Block(block), behind)),
    }
}

/// Returns the block that `bytes` begin with, and the bytes behind it.
///
/// # Errors
/// They begin with no whole block; the text says why.
fn read_block(bytes: &[u8], salt: u64) -> Result<(Block<'_>, &[u8]), &'static str> {
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
    if epoch > EPOCH_MAX || flush > COUNT_MAX || durable > COUNT_MAX {
        return Err("there is no such epoch, flush or LSN");
    }
    Ok((Block { epoch, flush, durable, body: &block[BLOCK_HEADER..] }, &bytes[end..]))
}

/// Returns the flush that wrote the latest of the whole blocks that begin somewhere in `bytes`.
/// None if there is no whole block.
///
/// # Errors
/// The blocks claim more bytes than there are. Blocks of a worker don't overlap, so they have at
/// most the bytes of the file. A stranger may write a header every few bytes, each of a block up to
/// the end; the checksums of all would take hours.
pub(crate) fn latest_flush(bytes: &[u8], salt: u64) -> Result<Option<u64>, &'static str> {
    let magic = BLOCK.to_le_bytes();
    let begins = bytes.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    // Twice as many: rows may hold bytes that look like a header.
    let mut left = 2 * bytes.len();
    let mut latest = None;
    for (place, _) in begins {
        let Some(claimed) = claimed(&bytes[place..], salt) else { continue };
        left = left.checked_sub(claimed).ok_or("more blocks begin here than there is room for")?;
        latest = latest.max(read_block(&bytes[place..], salt).ok().map(|(block, _)| block.flush));
    }
    Ok(latest)
}

/// Returns the number of the latest flush whose end begins somewhere in `bytes`; 0 if there is
/// none.
pub(crate) fn latest_end(bytes: &[u8], salt: u64) -> u64 {
    let magic = END.to_le_bytes();
    let begins = bytes.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    // An end has a fixed length, so all checksums are over some times the bytes at most.
    let ends = begins.filter_map(|(place, _)| End::read(&bytes[place..], salt));
    ends.map(|(end, _)| end.log_flush).max().unwrap_or_default()
}

/// Returns the length of a block, if `bytes` begin with a header of this salt and the block ends
/// within them.
fn claimed(bytes: &[u8], salt: u64) -> Option<usize> {
    let header = bytes.get(..BLOCK_HEADER)?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let length = BLOCK_HEADER + (number(0) >> 32) as usize;
    (number(16) == salt && length <= bytes.len()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Form, Schema};
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

    type Owned = (u32, Vec<u64>, WriteCounter, Option<(Groups, Vec<u64>)>, Vec<Addition>);

    /// Returns random transactions, and the body that they make.
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
                let counter = WriteCounter(
                    (epoch << COUNTER_EPOCH_SHIFT) + random.random_range(0..1 << 30)
                        - random.random_range(0..epoch + 1),
                );
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
                writes.push((table as u32, key, counter, row, additions));
            }
            let own = writes[first..].iter().map(|(table, key, counter, row, additions): &Owned| {
                let change = match row {
                    // Some of them are new.
                    Some((Groups::ALL, row)) => Change::Insert(row),
                    Some((groups, row)) => Change::Put(*groups, row),
                    None if additions.is_empty() => Change::Delete,
                    None => Change::Add(additions),
                };
                (Write { table: *table, key, counter: *counter, change }, &schemas[*table as usize])
            });
            put_transaction(0, epoch, own, &mut bytes);
        }
        (writes, transactions, bytes)
    }

    #[test]
    fn a_header_knows_its_tables() {
        let tables = TableSchemas::of(schemas());
        let header = file_header(7, TableSchemas::of(schemas()[..2].to_vec()).count());
        let longer = [&header[..], b"more"].concat();
        assert_eq!(read_file_header(&longer, 7, &tables), Ok(()));
        assert_eq!(read_file_header(&header, 7, &TableSchemas::of(schemas()[..2].to_vec())), Ok(()));
        assert_eq!(read_file_header(&file_header(7, (0, 0)), 7, &tables), Ok(()));
        let reversed = TableSchemas::of(schemas().into_iter().rev().collect());
        assert_eq!(read_file_header(&header, 7, &reversed), Err("its tables are others"));
        let fewer = TableSchemas::of(schemas()[..1].to_vec());
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
            let outcome = read_body(block, &schemas, count, |Write { table, key, counter, change }| {
                let (row, additions) = match change {
                    Change::Insert(row) => (Some((Groups::ALL, row.to_vec())), Vec::new()),
                    Change::Put(groups, row) => (Some((groups, row.to_vec())), Vec::new()),
                    Change::Add(additions) => (None, additions.to_vec()),
                    Change::Delete => (None, Vec::new()),
                };
                read.push((table, key.to_vec(), counter, row, additions));
                Ok(())
            });
            assert_eq!((outcome, found, read), (Ok(()), transactions, writes));
        }
    }

    /// Reading a body of any bytes ends, with an error or without: a stranger can make the checksum
    /// right.
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
                    Ok(())
                },
            );
            errors.extend(outcome.err());
        }
        assert!(errors.len() >= 5, "{errors:?}");
    }
}
