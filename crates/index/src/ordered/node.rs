//! A node: `version, word, count, link; keys by columns; values or children`, every column on its
//! own cache lines.
//!
//! An inner node with `n` separators has `n + 1` children; child `i` covers the keys from separator
//! `i - 1` (inclusive) to separator `i` (exclusive). A leaf's values stand beside its keys.
//!
//! **The version** is a seqlock and a latch in one word. It is odd while a writer changes the node,
//! grows by 2 with each change, and never restarts. Four pairs carry it:
//!
//! | first | second | what it excludes |
//! | --- | --- | --- |
//! | `publish` (Release) | `version` (Acquire) | a reader with the new version and an old key |
//! | the Release fence of `latch`, before the stores | the Acquire fence of `is_at`, after the loads | a reader with a new key that still finds the old version |
//! | `publish` (Release) | the exchange of `latch` (Acquire) | a writer that changes an older state than the last writer left |
//! | the exchange of `latch` from the observed version | all other changes of the word | a writer whose reads were overtaken: `latch` fails |
//!
//! **Lines.** The first line has version, protocol word and count. A lookup reads it, the lines of
//! the keys and one line of the values. A transaction that raises the word takes the first line
//! from other lookups of the leaf. In exchange a miss finds the word in a line that it has read.

use std::marker::PhantomData;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::search::count_le;
use crate::pool::LINE;
use crate::{Key, KeyWords, Leaf, MAX_KEY_WORDS};

/// The bit of a version that says that a writer changes the node.
const LATCHED: u64 = 1;
/// The difference that a change makes to a version.
const STEP: u64 = 2;

const VERSION: usize = 0;
/// The position of the protocol's word in a leaf, and of the tree's height in the anchor. A leaf's
/// version does not protect its word: protocols raise it without the latch.
const WORD: usize = 1;
/// The position of the number of keys, and above it the position after the last insert. One word
/// for both: they change together, and one store changes them.
const COUNT: usize = 2;
/// The position of the pool's word in a free node. A node in use leaves it alone, and no reader
/// looks at it, so the pool may write it while an old reader is in the node.
pub(super) const LINK: usize = 3;
const FIRST_KEY: usize = 8;

const COUNT_BITS: u32 = 32;

/// A node of an index that lives for `'a`, with room for `N` values or children.
///
/// Methods that read keys, values or the count return the words of the moment, and the reader
/// validates them. Methods that write need the latch.
///
/// All loads and stores of keys, values and the count are Relaxed. Readers order them by the
/// version: an Acquire load before (`version`), an Acquire fence after (`is_at`). Writers order
/// them by the latch and the fence after it (`latch`), and by the Release store that ends the
/// change (`publish`).
pub(super) struct Node<'a, M: Machine, K: Key, const N: usize> {
    words: NonNull<M::U64>,
    index: PhantomData<(&'a M::U64, K)>,
}

impl<M: Machine, K: Key, const N: usize> Clone for Node<'_, M, K, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, K: Key, const N: usize> Copy for Node<'_, M, K, N> {}

impl<M: Machine, K: Key, const N: usize> PartialEq for Node<'_, M, K, N> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl<'a, M: Machine, K: Key, const N: usize> Node<'a, M, K, N> {
    /// Words of a column.
    const COLUMN: usize = N.next_multiple_of(8);
    const FIRST_VALUE: usize = FIRST_KEY + K::WORDS * Self::COLUMN;
    /// Words of a node.
    pub(super) const WORDS: usize = Self::FIRST_VALUE + Self::COLUMN;

    /// # Safety
    /// `words` is not null and leads to `Self::WORDS` initialised words that live for `'a`, and
    /// serve as a node of this type only.
    #[inline(always)]
    pub(super) unsafe fn new(words: *mut M::U64) -> Self {
        debug_assert!(!words.is_null());
        // SAFETY: not null, by the caller's promise.
        Node { words: unsafe { NonNull::new_unchecked(words) }, index: PhantomData }
    }

    #[inline(always)]
    pub(super) fn words(self) -> *mut M::U64 {
        self.words.as_ptr()
    }

    /// Returns the node's memory, for the pool.
    pub(super) fn slot_of_pool(self) -> NonNull<M::U64> {
        self.words
    }

    /// Returns a number that spreads nodes over the stripes of the pool.
    pub(super) fn stripe(self) -> usize {
        self.words.as_ptr() as usize >> 12
    }

    #[inline(always)]
    fn at(self, i: usize) -> &'a M::U64 {
        debug_assert!(i < Self::WORDS);
        // SAFETY: by the contract of `new`; every caller's `i` is inside the node.
        unsafe { self.words.add(i).as_ref() }
    }

    /// Returns column `i` of the keys.
    #[inline(always)]
    fn column(self, i: usize) -> &'a [M::U64; N] {
        debug_assert!(i < K::WORDS);
        // SAFETY: by the contract of `new`: the column's words are inside the node.
        unsafe { self.words.add(FIRST_KEY + i * Self::COLUMN).cast().as_ref() }
    }

    #[inline(always)]
    fn slot(self, i: usize) -> &'a M::U64 {
        debug_assert!(i < N);
        self.at(Self::FIRST_VALUE + i)
    }

    /// Prefetches the lines that a search reads, and the values if `values`.
    #[inline(always)]
    pub(super) fn prefetch(words: *mut M::U64, values: bool) {
        let lines = (if values { Self::WORDS } else { Self::FIRST_VALUE }) * 8 / LINE;
        for line in 0..lines {
            M::prefetch(words.cast::<u8>().wrapping_add(line * LINE));
        }
    }

    // ---- The version. ----

    /// Returns the version, which is odd while a writer changes the node.
    #[inline(always)]
    pub(super) fn version(self) -> u64 {
        // Acquire: pairs with the Release in `publish`: the node is at least as new as its version.
        self.at(VERSION).load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn is_latched(version: u64) -> bool {
        version & LATCHED != 0
    }

    /// Returns the version once no writer changes the node.
    #[inline(always)]
    pub(super) fn stable_version(self) -> u64 {
        let version = self.version();
        if Self::is_latched(version) { self.wait() } else { version }
    }

    // The latch's holder waits for no other latch of a node, only for the pool's (`insert`). So the
    // wait ends.
    #[cold]
    fn wait(self) -> u64 {
        let mut spin = Spin::<M>::new();
        loop {
            spin.wait();
            let version = self.version();
            if !Self::is_latched(version) {
                return version;
            }
        }
    }

    /// Whether all words that were read since `version` was loaded belong to that version.
    #[inline(always)]
    pub(super) fn is_at(self, version: u64) -> bool {
        // Acquire: pairs with the Release fence in `latch`: if a load before saw a change under
        // way, the load below sees the odd version, or a later one.
        M::fence(Ordering::Acquire);
        // Relaxed: the fence orders it after the loads before. An Acquire load would not: it orders
        // what comes after it. A reader could then load the version first, and keys of a later
        // change after that.
        self.at(VERSION).load(Ordering::Relaxed) == version
    }

    /// Latches the node if it is still at `version`. Then everything that was read under this
    /// version still holds.
    ///
    /// No fence is needed for that. Suppose that another writer changed the node since. If its
    /// exchange comes first in the order of the version's changes, this one does not find `version`
    /// and fails. If this one comes first, the other one reads what this latch's `publish` stores,
    /// or a later value; so all reads before this latch happen before its stores, and saw none of
    /// them.
    #[inline(always)]
    pub(super) fn latch(self, version: u64) -> bool {
        debug_assert!(!Self::is_latched(version));
        // Acquire: pairs with the Release in `publish`: this writer changes the state that the last
        // one left.
        let exchange =
            self.at(VERSION).compare_exchange(version, version | LATCHED, Ordering::Acquire, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `is_at`: a reader that sees one of the stores to
        // come sees the odd version. (A Release exchange would order what comes before it, not what
        // comes after.) Without the fence a new key could become visible before the odd version: a
        // reader would find the old version before and after it loads that key.
        M::fence(Ordering::Release);
        exchange.is_ok()
    }

    /// Latches a node that the pool has just given out, and returns its version before.
    pub(super) fn latch_new(self) -> u64 {
        // The version goes on from there. It must not restart: a reader that remembers the node at
        // a version would take the new contents for the old ones once that number comes again.
        //
        // Relaxed: only the owner of a free node changes its version, and it got the node through
        // the pool's latch, which orders the former owner's `publish` before this load.
        let version = self.at(VERSION).load(Ordering::Relaxed);
        debug_assert!(!Self::is_latched(version));
        // A plain store will do, where `latch` needs an exchange. No path leads to the node, so no
        // other thread tries to latch it, but for one that remembers an old version. That thread's
        // exchange fails, and stores nothing.
        //
        // Relaxed: the fence below orders it before the stores to come.
        self.at(VERSION).store(version | LATCHED, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `is_at`, of readers that remember the node from
        // its former life.
        M::fence(Ordering::Release);
        version
    }

    /// Ends a change, and returns the version after it.
    #[inline(always)]
    pub(super) fn publish(self, version: u64) -> u64 {
        // Release: pairs with the Acquire in `version`, `latch` and `Leaf::version_as`. A store,
        // not an exchange: only the latch's holder changes an odd version.
        self.at(VERSION).store(version + STEP, Ordering::Release);
        version + STEP
    }

    /// Gives back the latch of a node that was not changed. The version stays, so readers that have
    /// seen it are not disturbed.
    #[inline(always)]
    pub(super) fn unlatch(self, version: u64) {
        // Release: pairs with the Acquire in `latch`. Keys and children are unchanged, but the word
        // may have been raised (`bequeath`): the next writer sees that. The version returns to a
        // former value, which is safe only because the contents are those of that value.
        self.at(VERSION).store(version, Ordering::Release);
    }

    /// Returns the node as users of the index see it.
    #[inline(always)]
    pub(super) fn leaf(self) -> Leaf<M> {
        // SAFETY: nodes stay allocated until the index is dropped.
        unsafe { Leaf::new(self.at(VERSION), self.at(WORD)) }
    }

    /// Returns the protocol's word of a leaf, or the height of the tree in the anchor. Protocols
    /// raise a leaf's word at any time; the height changes under the anchor's latch.
    #[inline(always)]
    pub(super) fn word(self) -> &'a M::U64 {
        self.at(WORD)
    }

    // ---- Keys. ----

    /// Returns the number of keys in the node, at most `N`.
    #[inline(always)]
    pub(super) fn count(self) -> usize {
        // Relaxed: a reader validates by `is_at`; a writer has the latch. The reader uses the count
        // before it validates. It may be of another change than the keys, and of a node that serves
        // anew, but is never beyond the node: only `set_count` stores it.
        (self.at(COUNT).load(Ordering::Relaxed) & ((1 << COUNT_BITS) - 1)) as usize
    }

    /// Returns the position after the last insert, or 0 if there was none since the node was
    /// filled.
    pub(super) fn hint(self) -> usize {
        // Relaxed: as in `count`.
        (self.at(COUNT).load(Ordering::Relaxed) >> COUNT_BITS) as usize
    }

    pub(super) fn set_count(self, count: usize, hint: usize) {
        debug_assert!(count <= N);
        // Relaxed: published by the Release of `publish`. It need not come after the keys that it
        // counts, since no reader trusts either before the version.
        self.at(COUNT).store(count as u64 | (hint as u64) << COUNT_BITS, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn key(self, i: usize) -> KeyWords {
        let mut key = [0; MAX_KEY_WORDS];
        for (column, word) in key.iter_mut().enumerate().take(K::WORDS) {
            // Relaxed: as in `count`. Another key may be written between the loads of two words,
            // and then `is_at` fails.
            *word = self.column(column)[i].load(Ordering::Relaxed);
        }
        key
    }

    /// Returns the number of the first `count` keys that are `<= key`.
    #[inline(always)]
    pub(super) fn rank(self, key: &KeyWords, count: usize) -> usize {
        if K::WORDS == 1 {
            return count_le::<M>(self.column(0), count, key[0]);
        }
        // The keys that agree with `key` in the words so far are `low..high`. The bounds meet if
        // another thread interferes.
        let (mut low, mut high) = (0, count);
        for (column, &word) in key.iter().enumerate().take(K::WORDS) {
            let words = &self.column(column)[low..high];
            let not_above = count_le::<M>(words, words.len(), word);
            if column + 1 == K::WORDS {
                return low + not_above;
            }
            let below = if word == 0 { 0 } else { count_le::<M>(words, words.len(), word - 1) };
            (low, high) = (low + below, low + not_above.max(below));
            if low == high {
                break;
            }
        }
        low
    }

    /// Whether key `i` is `key`.
    #[inline(always)]
    fn is_key(self, i: usize, key: &KeyWords) -> bool {
        let mut difference = 0;
        for (column, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: as in `key`.
            difference |= self.column(column)[i].load(Ordering::Relaxed) ^ word;
        }
        difference == 0
    }

    /// Returns the position in a leaf at which `key` belongs if it is absent, and its value, or 0.
    #[inline(always)]
    pub(super) fn find(self, key: &KeyWords) -> (usize, u64) {
        let rank = self.rank(key, self.count().min(N)).min(N);
        (rank, self.value_at_rank(key, rank))
    }

    /// Returns the value of `key` as [`Node::find`] does, when the rank is known.
    #[inline(always)]
    pub(super) fn value_at_rank(self, key: &KeyWords, rank: usize) -> u64 {
        // There is no branch on the outcome of the search. Key and value are loaded one after the
        // other; a writer that shifts entries between the two makes them a mixture, and `is_at`
        // fails.
        let before = rank.saturating_sub(1);
        let present = (rank > 0) & self.is_key(before, key);
        // Relaxed: as in `key`.
        let value = self.slot(before).load(Ordering::Relaxed);
        if present { value } else { 0 }
    }

    /// Prefetches the line of a value or child.
    #[inline(always)]
    pub(super) fn prefetch_slot(self, i: usize) {
        M::prefetch(self.slot(i));
    }

    /// Returns the position of the first key that is `>= key`.
    pub(super) fn lower_bound(self, key: &KeyWords, count: usize) -> usize {
        let rank = self.rank(key, count);
        rank - usize::from(rank > 0 && self.is_key(rank - 1, key))
    }

    #[inline(always)]
    pub(super) fn value(self, i: usize) -> u64 {
        // Relaxed: as in `count`.
        self.slot(i).load(Ordering::Relaxed)
    }

    // ---- Changes of a latched node. ----

    fn set_key(self, i: usize, key: &KeyWords) {
        for (column, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: as in `set_count`.
            self.column(column)[i].store(*word, Ordering::Relaxed);
        }
    }

    pub(super) fn set_value(self, i: usize, value: u64) {
        // Relaxed: as in `set_count`.
        self.slot(i).store(value, Ordering::Relaxed);
    }

    /// Moves the words `from..to` one up (`by` 1) or down (`by` -1). A reader meanwhile may find an
    /// entry twice, or not at all; the odd version tells it so.
    #[inline(always)]
    fn shift(words: &[M::U64], from: usize, to: usize, up: bool) {
        // Relaxed, both: the caller has the latch, and `publish` publishes.
        let step = |i: usize, j: usize| words[j].store(words[i].load(Ordering::Relaxed), Ordering::Relaxed);
        if up {
            (from..to).rev().for_each(|i| step(i, i + 1));
        } else {
            (from..to).for_each(|i| step(i, i - 1));
        }
    }

    fn slots(self) -> &'a [M::U64; N] {
        // SAFETY: by the contract of `new`: the column's words are inside the node.
        unsafe { self.words.add(Self::FIRST_VALUE).cast().as_ref() }
    }

    /// Makes room at key `at` of `count` keys, and at slot `slot` of `slots`.
    fn open(self, at: usize, count: usize, slot: usize, slots: usize) {
        for column in 0..K::WORDS {
            Self::shift(self.column(column), at, count, true);
        }
        Self::shift(self.slots(), slot, slots, true);
    }

    fn close(self, at: usize, count: usize, slot: usize, slots: usize) {
        for column in 0..K::WORDS {
            Self::shift(self.column(column), at + 1, count, false);
        }
        Self::shift(self.slots(), slot + 1, slots, false);
    }

    /// Inserts an entry into a leaf.
    pub(super) fn insert_entry(self, at: usize, key: &KeyWords, value: u64) {
        let count = self.count();
        self.open(at, count, at, count);
        self.set_key(at, key);
        self.set_value(at, value);
        self.set_count(count + 1, at + 1);
    }

    /// Removes an entry of a leaf, and returns the number of entries that are left.
    pub(super) fn remove_entry(self, at: usize) -> usize {
        let count = self.count();
        self.close(at, count, at, count);
        self.set_count(count - 1, 0);
        count - 1
    }

    /// In an inner node: inserts `child` right of child `slot`, for the keys from `separator` on.
    pub(super) fn insert_child(self, slot: usize, separator: &KeyWords, child: *mut M::U64) {
        let count = self.count();
        debug_assert!(count + 1 < N);
        self.open(slot, count, slot + 1, count + 1);
        self.set_key(slot, separator);
        self.set_child(slot + 1, child);
        self.set_count(count + 1, 0);
    }

    /// In an inner node with more than one child: removes child `slot`. Its keys go to the child
    /// left of it, or to the next if it is the first.
    pub(super) fn remove_child(self, slot: usize) {
        let count = self.count();
        self.close(slot.saturating_sub(1), count, slot, count + 1);
        self.set_count(count - 1, 0);
    }

    /// Returns the address of the child in `slot`. It is arbitrary unless the node is validated
    /// afterwards: it may be of a change under way, or, in a slot beyond the count, of a child that
    /// has left the node long ago. After the validation it leads to a node of the right kind.
    #[inline(always)]
    pub(super) fn child(self, slot: usize) -> *mut M::U64 {
        std::ptr::with_exposed_provenance_mut(self.value(slot) as usize)
    }

    pub(super) fn set_child(self, slot: usize, child: *mut M::U64) {
        self.set_value(slot, child.expose_provenance() as u64);
    }

    /// Copies the keys `from..count` to the front of `to`, and the slots `from..slots`.
    pub(super) fn copy_tail(self, to: Self, from: usize, count: usize, slots: usize) {
        for i in from..count {
            to.set_key(i - from, &self.key(i));
        }
        for i in from..slots {
            to.set_value(i - from, self.value(i));
        }
    }
}
