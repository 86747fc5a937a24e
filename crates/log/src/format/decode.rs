//! Reading the body of a block: a cursor with checked methods, and the grammar of [`super`] on top
//! of it.
//!
//! The bytes may come from a stranger, and then their checksum proves nothing. So each method
//! checks what it takes, no count reserves memory before its bytes are there, and each step of each
//! loop takes at least one byte.

use contend_engine::commit_sink::{Addition, COUNTER_EPOCH_SHIFT, WriteCounter};
use contend_engine::{Groups, KeyWords};

use super::{
    ADDED, Block, COUNT_MAX, COUNTER_MASK, COUNTER_MAX, Change, DELETED, EPOCH_MAX, HEAD_BITS, INSERTED, KIND_BITS,
    PART, WHOLE, Write, first_counter,
};
use crate::schema::{Form, Schema};

/// Why a body can't be read.
type Malformed = &'static str;

/// Bytes that are read from the front. Each method takes what it returns, or fails if it is not
/// there.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    #[inline(always)]
    fn byte(&mut self, why: Malformed) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(why)?;
        self.0 = rest;
        Ok(byte)
    }

    /// A number in LEB128.
    #[inline]
    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte("it ends within a number")?;
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

    /// A difference to both sides.
    #[inline]
    fn difference(&mut self) -> Result<u64, Malformed> {
        let number = self.number()?;
        Ok(number >> 1 ^ (number & 1).wrapping_neg())
    }

    /// A number that is at most `most`.
    #[inline]
    fn up_to(&mut self, most: u64, why: Malformed) -> Result<u64, Malformed> {
        let number = self.number()?;
        if number <= most { Ok(number) } else { Err(why) }
    }

    /// A word of `length` bytes; the bytes above them are 0.
    #[inline(always)]
    fn word(&mut self, length: u8) -> Result<u64, Malformed> {
        let length = usize::from(length);
        if length > 8 {
            return Err("a word is too long");
        }
        let (own, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        let word = match self.0.first_chunk() {
            // One load of eight bytes; those that are too many are cleared.
            Some(all) if length > 0 => u64::from_le_bytes(*all) & u64::MAX >> (64 - 8 * length),
            _ => own.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        self.0 = rest;
        Ok(word)
    }
}

const CUT: Malformed = "it ends within a key or a row";

/// Reads the words of a key and of a row. One byte holds the lengths of two words.
#[derive(Default)]
struct WordReader {
    /// The length of the next word, if the byte before the last word said it.
    next: Option<u8>,
}

impl WordReader {
    #[inline]
    fn fill(&mut self, cursor: &mut Cursor<'_>, words: &mut [u64]) -> Result<(), Malformed> {
        for word in words {
            let length = match self.next.take() {
                Some(length) => length,
                None => {
                    let lengths = cursor.byte(CUT)?;
                    self.next = Some(lengths >> 4);
                    lengths & 15
                }
            };
            *word = cursor.word(length)?;
        }
        Ok(())
    }

    /// Checks that no word is left over.
    fn finish(self) -> Result<(), Malformed> {
        if self.next.is_some_and(|length| length > 0) {
            return Err("there are more words than a key and a row have");
        }
        Ok(())
    }
}

/// Memory for what a write has, which is used for one write after the other.
#[derive(Default)]
struct Buffers {
    key: KeyWords,
    row: Vec<u64>,
    additions: Vec<Addition>,
}

/// Visits the writes of a block's body. `schemas` are the tables, by their numbers. `counts` is
/// called with the LSN of each transaction, or 0 if it has none, and says whether its writes are
/// visited.
///
/// # Errors
/// The bytes are not the body of a block, or `visit` fails.
pub(crate) fn read_body(
    block: Block<'_>,
    schemas: &[Schema],
    mut counts: impl FnMut(u64) -> bool,
    mut visit: impl FnMut(Write<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let Block { epoch, body, durable, .. } = block;
    let (mut cursor, mut buffers) = (Cursor(body), Buffers::default());
    while !cursor.0.is_empty() {
        let lsn = if durable > 0 { cursor.up_to(COUNT_MAX, "there is no such LSN")? } else { 0 };
        let is_wanted = counts(lsn);
        let mut last = first_counter(epoch);
        for _ in 0..cursor.number()? {
            let write = read_write(&mut cursor, &mut buffers, epoch, &mut last, schemas)?;
            if is_wanted {
                visit(write)?;
            }
        }
    }
    Ok(())
}

/// Reads a write. `last` is the write counter of the transaction's last write that was not an
/// addition.
#[inline(always)]
fn read_write<'b>(
    cursor: &mut Cursor<'_>,
    buffers: &'b mut Buffers,
    epoch: u64,
    last: &mut WriteCounter,
    schemas: &[Schema],
) -> Result<Write<'b>, Malformed> {
    let Buffers { key, row, additions } = buffers;
    let head = cursor.number()?;
    let table = u32::try_from(head >> HEAD_BITS).map_err(|_| "there is no such table")?;
    let schema = schemas.get(table as usize).ok_or("there is no such table")?;
    let (kind, is_same) = (head & ((1 << KIND_BITS) - 1), head >> KIND_BITS & 1 == 1);
    let counter = read_counter(cursor, kind, is_same, epoch, last)?;
    let groups = match kind {
        WHOLE | INSERTED => Some(schema.all_groups()),
        PART => {
            let bits = cursor.number()?;
            let groups = (0..schema.groups.len() as u32).filter(|group| bits >> group & 1 == 1);
            Some(groups.fold(Groups::NONE, |all, group| all.union(Groups::of(group))))
        }
        DELETED | ADDED => None,
        _ => return Err("there is no such kind of write"),
    };
    let key = &mut key[..schema.key_words];
    let mut words = WordReader::default();
    words.fill(cursor, key)?;
    if let Some(groups) = groups {
        row.clear();
        row.resize(schema.row_words, 0);
        if kind == PART {
            schema.words(groups).try_for_each(|span| words.fill(cursor, &mut row[span]))?;
        } else {
            words.fill(cursor, row)?;
        }
    }
    words.finish()?;
    if kind == ADDED {
        read_additions(cursor, schema, additions)?;
    }
    let change = match groups {
        Some(_) if kind == INSERTED => Change::Insert(row),
        Some(groups) => Change::Put(groups, row),
        None if kind == DELETED => Change::Delete,
        None => Change::Add(additions),
    };
    Ok(Write { table, key, counter, change })
}

#[inline(always)]
fn read_counter(
    cursor: &mut Cursor<'_>,
    kind: u64,
    is_same: bool,
    epoch: u64,
    last: &mut WriteCounter,
) -> Result<WriteCounter, Malformed> {
    const WHY: Malformed = "there is no such write counter";
    if kind == ADDED {
        let epoch = epoch.wrapping_sub(cursor.difference()?);
        let counted = cursor.up_to(COUNTER_MASK, WHY)?;
        return if epoch <= EPOCH_MAX { Ok(WriteCounter(epoch << COUNTER_EPOCH_SHIFT | counted)) } else { Err(WHY) };
    }
    if !is_same {
        *last = WriteCounter(last.0.wrapping_add(cursor.difference()?));
    }
    if last.0 <= COUNTER_MAX { Ok(*last) } else { Err(WHY) }
}

fn read_additions(cursor: &mut Cursor<'_>, schema: &Schema, additions: &mut Vec<Addition>) -> Result<(), Malformed> {
    additions.clear();
    for _ in 0..cursor.number()? {
        let word = cursor.number()?;
        let word = u32::try_from(word).ok().filter(|&word| (word as usize) < schema.row_words);
        let by = cursor.difference()?;
        additions.push(Addition { word: word.ok_or("there is no such word")?, by });
    }
    Ok(())
}
