//! What all nodes have in common: the first line, which has `version, word, count, link` and four
//! words of the kind of node ([`super::inner`], [`super::leaf`]).
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
//! **Lines.** A lookup reads the first line of each node on its way. The four words tell which
//! other lines it needs. A transaction that raises a leaf's word takes its
//! first line from other lookups of the leaf. In exchange a miss finds the word in a line that it
//! has read.

use std::marker::PhantomData;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::Leaf;
use crate::pool::LINE;

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
/// The position of the four words of the kind of node.
pub(super) const OWN: usize = 4;
/// The words of the first line.
pub(super) const HEADER: usize = 8;

const COUNT_BITS: u32 = 32;

/// A node of an index that lives for `'a`, of either kind.
///
/// Methods that read keys, values or the count return the words of the moment, and the reader
/// validates them. Methods that write need the latch.
///
/// All loads and stores of keys, values and the count are Relaxed. Readers order them by the
/// version: an Acquire load before (`version`), an Acquire fence after (`is_at`). Writers order
/// them by the latch and the fence after it (`latch`), and by the Release store that ends the
/// change (`publish`).
pub(super) struct Node<'a, M: Machine> {
    words: NonNull<M::U64>,
    index: PhantomData<&'a M::U64>,
}

impl<M: Machine> Clone for Node<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Node<'_, M> {}

impl<M: Machine> PartialEq for Node<'_, M> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl<'a, M: Machine> Node<'a, M> {
    /// # Safety
    /// `words` is not null and leads to the initialised words of a node, [`HEADER`] or more, that
    /// live for `'a` and serve as a node of its kind only.
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

    /// Returns the first line.
    #[inline(always)]
    pub(super) fn header(self) -> &'a [M::U64; HEADER] {
        // SAFETY: by the contract of `new`.
        unsafe { self.words.cast().as_ref() }
    }

    /// Returns `N` words from word `from` on.
    ///
    /// # Safety
    /// They are words of the node.
    #[inline(always)]
    pub(super) unsafe fn span<const N: usize>(self, from: usize) -> &'a [M::U64; N] {
        // SAFETY: in the node, by the caller's promise; and it lives for `'a`, by that of `new`.
        unsafe { self.words.add(from).cast().as_ref() }
    }

    #[inline(always)]
    fn at(self, word: usize) -> &'a M::U64 {
        &self.header()[word]
    }

    /// Prefetches the lines of the first `words` words at an address, which may be any.
    #[inline(always)]
    pub(super) fn prefetch(node: *mut M::U64, words: usize) {
        for line in 0..(words * 8).div_ceil(LINE) {
            M::prefetch(node.cast::<u8>().wrapping_add(line * LINE));
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

    // ---- The number of keys. ----

    /// Returns the number of keys in the node.
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
        // Relaxed: published by the Release of `publish`. It need not come after the keys that it
        // counts, since no reader trusts either before the version.
        self.at(COUNT).store(count as u64 | (hint as u64) << COUNT_BITS, Ordering::Relaxed);
    }
}

/// Moves the words `from..to` up by `by`. A reader meanwhile may find a word twice, or not at all;
/// the odd version tells it so.
#[inline(always)]
pub(super) fn move_up<M: Machine>(words: &[M::U64], from: usize, to: usize, by: usize) {
    for i in (from..to).rev() {
        // Relaxed, both: the caller has the latch, and `publish` publishes.
        words[i + by].store(words[i].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Moves the words `from..to` down by `by`: as [`move_up`].
#[inline(always)]
pub(super) fn move_down<M: Machine>(words: &[M::U64], from: usize, to: usize, by: usize) {
    for i in from..to {
        // Relaxed, both: as in `move_up`.
        words[i - by].store(words[i].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
