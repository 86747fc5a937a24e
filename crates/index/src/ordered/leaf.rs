//! A leaf: its first line, and the entries, sorted, each with its value beside its key.
//!
//! **Fingerprints.** The four words of the first line hold a byte for each entry, a hash of its
//! key. A lookup compares the bytes of all entries at once, and reads the entries whose byte is
//! that of the key. So a hit reads two lines, the first and the entry's, and nine misses in ten
//! read the first one only. (I. Oukid and others: "FPTree: a hybrid SCM-DRAM persistent and
//! concurrent B-tree for storage class memory", SIGMOD 2016. Its leaves are not sorted.)

use std::marker::PhantomData;
use std::ops::Deref;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::random::GOLDEN_GAMMA;

use super::node::{self, HEADER, Node, OWN};
use crate::{Key, KeyWords, MAX_KEY_WORDS};

/// A leaf of an index that lives for `'a`, with room for `L` entries.
#[derive(Clone, Copy)]
pub(super) struct LeafNode<'a, M: Machine, K: Key, const L: usize> {
    node: Node<'a, M>,
    key: PhantomData<K>,
}

impl<'a, M: Machine, K: Key, const L: usize> Deref for LeafNode<'a, M, K, L> {
    type Target = Node<'a, M>;

    #[inline(always)]
    fn deref(&self) -> &Node<'a, M> {
        &self.node
    }
}

/// The entries of a leaf that may have a key: a bit for each.
#[derive(Clone, Copy, Default)]
pub(super) struct Candidates(u64);

impl Iterator for Candidates {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let entry = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(entry)
    }
}

/// Returns the byte by which lookups tell a key from most others. It is not 0, which stands for no
/// entry.
#[inline(always)]
fn fingerprint<K: Key>(key: &KeyWords) -> u8 {
    let hash = key[..K::WORDS].iter().fold(0u64, |hash, word| (hash ^ word).wrapping_mul(GOLDEN_GAMMA));
    ((hash >> 56) as u8).max(1)
}

impl<'a, M: Machine, K: Key, const L: usize> LeafNode<'a, M, K, L> {
    /// Words of an entry.
    const ENTRY: usize = K::WORDS + 1;
    const FITS: () = assert!(L <= 8 * (HEADER - OWN), "an entry has no fingerprint");
    /// Words with fingerprints.
    const FINGERPRINTS: usize = L.div_ceil(8);
    /// Words of a leaf.
    pub(super) const WORDS: usize = HEADER + (L * Self::ENTRY).next_multiple_of(8);

    /// # Safety
    /// As for [`Node::new`]; and there are [`LeafNode::WORDS`] words.
    #[inline(always)]
    pub(super) unsafe fn new(words: *mut M::U64) -> Self {
        const { Self::FITS };
        // SAFETY: by the caller's promise.
        LeafNode { node: unsafe { Node::new(words) }, key: PhantomData }
    }

    /// Returns the words of all entries.
    #[inline(always)]
    fn entries(self) -> &'a [M::U64] {
        // SAFETY: a leaf has that many words, by the contract of `new`, and lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.words().add(HEADER), L * Self::ENTRY) }
    }

    /// Returns the words of an entry: its key's, and its value.
    #[inline(always)]
    fn entry(self, i: usize) -> &'a [M::U64] {
        debug_assert!(i < L);
        &self.entries()[i * Self::ENTRY..][..Self::ENTRY]
    }

    /// Returns the number of entries, at most `L` whatever the reader finds.
    #[inline(always)]
    pub(super) fn filled(self) -> usize {
        self.count().min(L)
    }

    #[inline(always)]
    pub(super) fn key(self, i: usize) -> KeyWords {
        let entry = self.entry(i);
        let mut key = [0; MAX_KEY_WORDS];
        for (column, word) in key.iter_mut().enumerate().take(K::WORDS) {
            // Relaxed: as in `Node::count`. Another key may be written between the loads of two
            // words, and then `is_at` fails.
            *word = entry[column].load(Ordering::Relaxed);
        }
        key
    }

    #[inline(always)]
    pub(super) fn value(self, i: usize) -> u64 {
        // Relaxed: as in `Node::count`.
        self.entry(i)[K::WORDS].load(Ordering::Relaxed)
    }

    /// Whether key `i` is `key`.
    #[inline(always)]
    fn is_key(self, i: usize, key: &KeyWords) -> bool {
        let entry = self.entry(i);
        let mut difference = 0;
        for (column, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: as in `key`.
            difference |= entry[column].load(Ordering::Relaxed) ^ word;
        }
        difference == 0
    }

    /// Returns the entries that may have `key`, by the first line alone.
    #[inline(always)]
    pub(super) fn candidates(self, key: &KeyWords) -> Candidates {
        // Bytes behind the last entry are 0, so no bit is set for them.
        Candidates(M::eq_mask(&self.header()[OWN..OWN + Self::FINGERPRINTS], fingerprint::<K>(key)))
    }

    /// Asks for the lines of the first of these entries.
    #[inline(always)]
    pub(super) fn prefetch_first(self, mut candidates: Candidates) {
        if let Some(i) = candidates.next() {
            let entry = self.entry(i.min(L - 1));
            M::prefetch(&entry[0]);
            if !Self::ENTRY.is_power_of_two() {
                // It may be in two lines.
                M::prefetch(&entry[K::WORDS]);
            }
        }
    }

    /// Awaits the lines of the first of these entries.
    #[inline(always)]
    pub(super) fn await_first(self, candidates: Candidates) {
        if candidates.0 != 0 {
            self.prefetch_first(candidates);
            M::await_prefetched();
        }
    }

    /// Returns the value of `key`, or 0, from the entries that may have it.
    #[inline(always)]
    pub(super) fn value_among(self, candidates: Candidates, key: &KeyWords) -> u64 {
        for i in candidates {
            // Key and value are loaded one after the other; a writer that shifts entries between
            // the two makes them a mixture, and `is_at` fails.
            if i < L && self.is_key(i, key) {
                return self.value(i);
            }
        }
        0
    }

    /// Returns whether key `i` is `<= key`.
    #[inline(always)]
    fn is_not_above(self, i: usize, key: &KeyWords) -> bool {
        let entry = self.entry(i);
        for (column, word) in key.iter().enumerate().take(K::WORDS - 1) {
            // Relaxed: as in `key`.
            let own = entry[column].load(Ordering::Relaxed);
            if own != *word {
                return own < *word;
            }
        }
        // Relaxed: as in `key`.
        entry[K::WORDS - 1].load(Ordering::Relaxed) <= key[K::WORDS - 1]
    }

    /// Returns the number of the first `count` keys that are `<= key`.
    #[inline(always)]
    pub(super) fn rank(self, key: &KeyWords, count: usize) -> usize {
        // By halves: the number is in `low..=low + len`. Which half cannot be predicted, so no
        // branch depends on it.
        let (mut low, mut len) = (0, count);
        while len > 0 {
            let half = len.div_ceil(2);
            low += if self.is_not_above(low + half - 1, key) { half } else { 0 };
            len /= 2;
        }
        low
    }

    /// Returns the position of the first key that is `>= key`.
    pub(super) fn lower_bound(self, key: &KeyWords, count: usize) -> usize {
        let rank = self.rank(key, count);
        rank - usize::from(rank > 0 && self.is_key(rank - 1, key))
    }

    /// Returns the number of keys that are `<= key`, and the value of `key`, or 0.
    #[inline(always)]
    pub(super) fn find(self, key: &KeyWords) -> (usize, u64) {
        let filled = self.filled();
        // Many inserts are of keys that ascend.
        let is_behind = filled > 0 && self.is_not_above(filled - 1, key);
        let rank = if is_behind { filled } else { self.rank(key, filled) };
        let present = rank > 0 && self.is_key(rank - 1, key);
        (rank, if present { self.value(rank - 1) } else { 0 })
    }

    // ---- Changes of a latched leaf. ----

    fn set_entry(self, i: usize, key: &KeyWords, value: u64) {
        let entry = self.entry(i);
        for (column, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: as in `Node::set_count`.
            entry[column].store(*word, Ordering::Relaxed);
        }
        // Relaxed: as in `Node::set_count`.
        entry[K::WORDS].store(value, Ordering::Relaxed);
    }

    /// Inserts an entry.
    pub(super) fn insert_entry(self, at: usize, key: &KeyWords, value: u64) {
        let count = self.count();
        debug_assert!(at <= count && count < L);
        node::move_up::<M>(self.entries(), at * Self::ENTRY, count * Self::ENTRY, Self::ENTRY);
        self.set_entry(at, key, value);
        self.insert_fingerprint(at, u64::from(fingerprint::<K>(key)));
        self.set_count(count + 1, at + 1);
    }

    /// Removes an entry, and returns the number of entries that are left.
    pub(super) fn remove_entry(self, at: usize) -> usize {
        let count = self.count();
        debug_assert!(at < count && count <= L);
        node::move_down::<M>(self.entries(), (at + 1) * Self::ENTRY, count * Self::ENTRY, Self::ENTRY);
        self.remove_fingerprint(at);
        self.set_count(count - 1, 0);
        count - 1
    }

    /// Moves the entries from `at` on to the empty leaf `right`.
    pub(super) fn split(self, right: Self, at: usize) {
        let count = self.count();
        for i in at..count {
            right.set_entry(i - at, &self.key(i), self.value(i));
        }
        // Word `word` from byte `at` on; behind the last word there are zeros.
        let (first, shift) = (at / 8, 8 * (at % 8));
        let bytes = |word| if word < Self::FINGERPRINTS { self.fingerprints(word) } else { 0 };
        for word in 0..Self::FINGERPRINTS {
            let carried = if shift > 0 { bytes(first + word + 1) << (64 - shift) } else { 0 };
            right.set_fingerprints(word, bytes(first + word) >> shift | carried);
        }
        for word in first..Self::FINGERPRINTS {
            let kept = if word == first { (1 << shift) - 1 } else { 0 };
            self.set_fingerprints(word, self.fingerprints(word) & kept);
        }
        right.set_count(count - at, 0);
        self.set_count(at, self.hint());
    }

    /// Returns a word of fingerprints: of eight entries, the first one's in the lowest byte.
    #[inline(always)]
    fn fingerprints(self, word: usize) -> u64 {
        // Relaxed: the caller has the latch.
        self.header()[OWN + word].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_fingerprints(self, word: usize, bytes: u64) {
        // Relaxed: as in `Node::set_count`.
        self.header()[OWN + word].store(bytes, Ordering::Relaxed);
    }

    /// Inserts a byte at `at`; those from there on move up.
    fn insert_fingerprint(self, at: usize, byte: u64) {
        let (first, shift) = (at / 8, 8 * (at % 8));
        let bytes = self.fingerprints(first);
        let below = bytes & ((1 << shift) - 1);
        self.set_fingerprints(first, below | byte << shift | (bytes ^ below) << 8);
        let mut carried = bytes >> 56;
        for word in first + 1..Self::FINGERPRINTS {
            let bytes = self.fingerprints(word);
            self.set_fingerprints(word, bytes << 8 | carried);
            carried = bytes >> 56;
        }
    }

    /// Removes the byte at `at`; those behind it move down.
    fn remove_fingerprint(self, at: usize) {
        let (first, shift) = (at / 8, 8 * (at % 8));
        let mut carried = 0;
        for word in (first + 1..Self::FINGERPRINTS).rev() {
            let bytes = self.fingerprints(word);
            self.set_fingerprints(word, bytes >> 8 | carried << 56);
            carried = bytes & 0xff;
        }
        let bytes = self.fingerprints(first);
        let below = bytes & ((1 << shift) - 1);
        self.set_fingerprints(first, below | (bytes >> 8) & !((1 << shift) - 1) | carried << 56);
    }
}
