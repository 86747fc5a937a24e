//! Writing the body of a block, by the grammar of [`super`].

use std::mem::MaybeUninit;

use contend_engine::commit_sink::{Addition, WriteCounter};

use super::{COUNTER_MASK, Change, HEAD_BITS, KIND_BITS, Kind, Write, first_counter};
use crate::schema::Form;

/// Memory behind the bytes that were written. It is reserved once for all that a write needs, and
/// is not cleared before it is filled.
struct Room<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    /// All bytes before this one were written.
    used: usize,
}

/// The most bytes of a number in LEB128.
const NUMBER_MAX: usize = 10;
/// An upper bound of the bytes that a word takes: its own, its share of the lengths, and those that
/// are written beyond its end.
const WORD_MAX: usize = 9;

impl<'a> Room<'a> {
    /// Reserves `most` bytes behind `bytes`.
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

    /// Puts the lowest `length` bytes of a word. All eight are written with one store: those that
    /// are too many are overwritten by the next, or are behind the end.
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

    /// Puts words two by two. `odd` is the word before them that has no second word yet. Returns
    /// the word that is left over.
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

    /// Puts the last word, which has no second one.
    #[inline(always)]
    fn last_word(&mut self, odd: Option<u64>) {
        if let Some(word) = odd {
            let own = length_of(word);
            self.byte(own as u8);
            self.word(word, own);
        }
    }
}

/// The most bytes of a transaction in the log, per word of the keys and rows that it writes in
/// memory. A write has a word of a key at least. A word that was added to is two numbers.
pub(crate) const WORD_BYTES_MAX: usize = 7 * NUMBER_MAX + 1;
const _: () = assert!(2 * NUMBER_MAX >= WORD_MAX);

/// Returns the number of a word's bytes up to the highest that is not 0.
#[inline(always)]
fn length_of(word: u64) -> usize {
    8 - word.leading_zeros() as usize / 8
}

/// Maps a difference to both sides to a number that is small if the difference is, as in Protocol
/// Buffers.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

/// Appends a transaction that committed in `epoch`. `lsn` is 0 if it has none. Each write comes
/// with the form of its table's rows.
pub(crate) fn put_transaction<'a, F: Form + 'a>(
    lsn: u64,
    epoch: u64,
    writes: impl ExactSizeIterator<Item = (Write<'a>, &'a F)>,
    bytes: &mut Vec<u8>,
) {
    // Every commit comes through here, and much of its time goes into `length_of`. BSR, which every
    // x86-64 has, takes several cycles on AMD's processors; LZCNT, which nearly all have since
    // 2013, takes one.
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
    // SAFETY: `used` bytes behind the old length were written ([`Room::used`]), within the capacity
    // that was reserved.
    unsafe { bytes.set_len(bytes.len() + used) };
    let mut last = first_counter(epoch);
    for (write, form) in writes {
        put_write(&write, form, epoch, &mut last, bytes);
    }
}

/// Appends a write. `last` is the write counter of the transaction's last write that was not an
/// addition.
#[inline(always)]
fn put_write<F: Form>(write: &Write<'_>, form: &F, epoch: u64, last: &mut WriteCounter, bytes: &mut Vec<u8>) {
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
    // A key has a word at least: no more than `WORD_BYTES_MAX` for each of the words that the write
    // has in memory.
    let most = 5 * NUMBER_MAX + WORD_MAX * (write.key.len() + row.len()) + 2 * NUMBER_MAX * additions.len();
    let mut room = Room::behind(bytes, most);
    let is_same = kind != Kind::Added && write.counter == *last;
    room.number(u64::from(write.table) << HEAD_BITS | u64::from(is_same) << KIND_BITS | kind as u64);
    if kind == Kind::Added {
        // The counter of the write that it was added to may be far from all others of the
        // transaction.
        room.number(zigzag(epoch.wrapping_sub(write.counter.epoch())));
        room.number(write.counter.0 & COUNTER_MASK);
    } else if !is_same {
        room.number(zigzag(write.counter.0.wrapping_sub(last.0)));
        *last = write.counter;
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
    // SAFETY: `used` bytes behind the old length were written, within the capacity that was
    // reserved.
    unsafe { bytes.set_len(bytes.len() + used) };
}
