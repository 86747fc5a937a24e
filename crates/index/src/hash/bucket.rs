//! A bucket of the hash index: `version, entries (key words, value) ..., link`, in whole cache
//! lines.
//!
//! A chain is a head and the buckets that its links lead to. Only the head's version counts: it is
//! the version of the whole chain, and odd while a writer changes any bucket of it. All other words
//! are loaded and stored Relaxed.
//!
//! **A lookup** ([`Bucket::find`]) is a seqlock. The caller has loaded the version with Acquire.
//! The lookup loads the entries of a bucket, passes an Acquire fence, and loads the version again.
//! Two interleavings have to be excluded:
//!
//! - An entry that is older than the version: the writer stored the entry, and published the
//!   version with Release; the Acquire load of that version orders the entry before.
//! - An entry that is newer than the version: the writer made the version odd, passed a Release
//!   fence, and stored the entry. A lookup that loads this entry synchronises with that fence by
//!   its own, and its second load sees the odd version, or a later one.
//!
//! **A link** is followed only after the version was loaded again. So it was a link of this chain
//! at this version, and leads to a bucket of the index. That bucket may be freed and reused for
//! another chain while the lookup reads it. Its words stay atomic words, and the change that freed
//! it has changed the head's version, so the next check fails.
//!
//! **A writer** has the latch, which excludes all other writers of the chain. Its Acquire orders
//! the stores of the last writer, and its Release publishes the writer's own.
//!
//! **Example.** A chain has two buckets and the key `k` in the second. A remove moves `k` to the
//! head, into the place of the key that it removes. A lookup reads the head before that and the
//! second bucket after it. It has met `k` nowhere. Its last check finds the version changed, so it
//! does not report `k` absent.
//!
//! **Lines.** The version is in the line of the first entries, so a lookup that hits in the head of
//! a one-word key's chain reads one line. The version of an overflow bucket has no use, since one
//! version protects the whole chain: with one for each bucket a lookup would have to check two that
//! can change independently.

use std::marker::PhantomData;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering};

use crate::{Key, KeyWords, MAX_KEY_WORDS};

/// The position of the version in a head. In a free bucket the word belongs to the pool.
pub(super) const VERSION: usize = 0;
const FIRST_ENTRY: usize = 1;

/// The layout of a bucket for one type of key: as many entries as its lines hold.
pub(super) struct BucketLayout<K>(PhantomData<K>);

impl<K: Key> BucketLayout<K> {
    const ENTRY: usize = K::WORDS + 1;
    /// Entries of a bucket. Three entries of a one-word key fill a line. Longer keys get enough
    /// lines for three entries or more.
    pub(super) const ENTRIES: usize = match K::WORDS {
        1 | 3 => 3,
        _ => 4,
    };
    /// Words of a bucket.
    pub(super) const WORDS: usize = (2 + Self::ENTRIES * Self::ENTRY).next_multiple_of(8);
    /// Cache lines of a bucket.
    pub(super) const LINES: usize = Self::WORDS / 8;
    /// The position of the address of the next bucket in the chain, or 0.
    const LINK: usize = Self::WORDS - 1;
    /// The position behind the last entry.
    const END: usize = FIRST_ENTRY + Self::ENTRIES * Self::ENTRY;
}

const _: () = assert!(BucketLayout::<u64>::LINES == 1 && BucketLayout::<u64>::END == BucketLayout::<u64>::LINK);
const _: () = assert!(BucketLayout::<[u8; 16]>::LINES == 2 && BucketLayout::<[u8; 24]>::LINES == 2);
const _: () =
    assert!(BucketLayout::<[u8; 32]>::LINES == 3 && BucketLayout::<[u8; 32]>::END <= BucketLayout::<[u8; 32]>::LINK);

/// A bucket of an index that lives for `'a`.
pub(super) struct Bucket<'a, M: Machine, K: Key> {
    words: NonNull<M::U64>,
    index: PhantomData<(&'a M::U64, K)>,
}

impl<M: Machine, K: Key> Clone for Bucket<'_, M, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, K: Key> Copy for Bucket<'_, M, K> {}

impl<'a, M: Machine, K: Key> Bucket<'a, M, K> {
    /// # Safety
    /// `words` leads to [`BucketLayout::WORDS`] initialised words that live for `'a`.
    #[inline(always)]
    pub(super) unsafe fn new(words: NonNull<M::U64>) -> Self {
        Bucket { words, index: PhantomData }
    }

    #[inline(always)]
    fn word(self, i: usize) -> &'a M::U64 {
        debug_assert!(i < BucketLayout::<K>::WORDS);
        // SAFETY: by the contract of `new`, and every caller's `i` is inside the bucket.
        unsafe { self.words.add(i).as_ref() }
    }

    #[inline(always)]
    pub(super) fn version(self) -> &'a M::U64 {
        self.word(VERSION)
    }

    /// Returns the bucket that a link leads to. The caller has latched the chain, or has validated
    /// it since it loaded the link.
    #[inline(always)]
    fn at(link: u64) -> Option<Self> {
        let words = NonNull::new(std::ptr::with_exposed_provenance_mut(link as usize))?;
        // SAFETY: links lead to buckets of the index's pool, initialised before they are linked.
        Some(unsafe { Bucket::new(words) })
    }

    /// Returns the next bucket of a chain that the caller has latched.
    #[inline(always)]
    fn next(self) -> Option<Self> {
        // Relaxed: the caller has the latch, whose Acquire made the last writer's link visible.
        Self::at(self.word(BucketLayout::<K>::LINK).load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn entry(index: usize) -> usize {
        FIRST_ENTRY + index * BucketLayout::<K>::ENTRY
    }

    #[inline(always)]
    fn value(self, index: usize) -> &'a M::U64 {
        self.word(Self::entry(index) + K::WORDS)
    }

    /// Whether the entry has this key. The answer is arbitrary if the entry changes meanwhile; then
    /// the caller's validation fails.
    #[inline(always)]
    fn has_key(self, index: usize, key: &KeyWords) -> bool {
        let mut difference = 0;
        for (i, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: the caller has the latch, or validates after its fence (`find`). Words of
            // two keys may be mixed here; the value is then discarded.
            difference |= self.word(Self::entry(index) + i).load(Ordering::Relaxed) ^ word;
        }
        difference == 0
    }

    fn write(self, index: usize, key: &KeyWords, value: u64) {
        // Key and value may become visible in any order: no lookup accepts either before the
        // version that `ObservedChain::unlatch` stores.
        for (i, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: published by the Release that ends the change.
            self.word(Self::entry(index) + i).store(*word, Ordering::Relaxed);
        }
        self.value(index).store(value, Ordering::Relaxed);
    }

    fn read(self, index: usize) -> (KeyWords, u64) {
        let mut key = [0; MAX_KEY_WORDS];
        for (i, word) in key.iter_mut().enumerate().take(K::WORDS) {
            // Relaxed: the caller has the latch.
            *word = self.word(Self::entry(index) + i).load(Ordering::Relaxed);
        }
        (key, self.value(index).load(Ordering::Relaxed))
    }

    /// Returns the value of `key` in the chain of this head, or 0 if the key is absent. `None` if
    /// the chain is not at `version`.
    ///
    /// Within a bucket there is no branch that depends on the keys: a mispredicted one would
    /// serialise the cache misses of independent lookups.
    #[inline(always)]
    pub(super) fn find(self, key: &KeyWords, version: u64) -> Option<u64> {
        let mut bucket = self;
        loop {
            let mut value = 0;
            for index in 0..BucketLayout::<K>::ENTRIES {
                // Relaxed, here and below: validated after the fence. Value and key may be of two
                // entries, if a writer is at work; then the version differs.
                let here = bucket.value(index).load(Ordering::Relaxed);
                value |= if bucket.has_key(index, key) { here } else { 0 };
            }
            // Relaxed: as above. The link is not followed before the check below.
            let link = bucket.word(BucketLayout::<K>::LINK).load(Ordering::Relaxed);
            // Acquire: pairs with the Release fence in `ObservedChain::latch`: if one of the loads
            // above saw a change under way, the load below sees the odd version, or a later one.
            M::fence(Ordering::Acquire);
            // Relaxed: the fence orders it. An Acquire load without the fence would not do: it
            // would not keep the loads above before it.
            if self.version().load(Ordering::Relaxed) != version {
                return None;
            }
            if value != 0 || link == 0 {
                return Some(value);
            }
            bucket = Self::at(link)?;
            M::await_line(bucket.words.as_ptr());
        }
    }

    /// Visits the entries of the chain of this head, which no thread changes meanwhile.
    pub(super) fn for_each(self, visit: &mut impl FnMut(KeyWords, u64)) {
        let mut bucket = Some(self);
        while let Some(here) = bucket {
            let entries = (0..BucketLayout::<K>::ENTRIES).map(|index| here.read(index));
            entries.filter(|(_, value)| *value != 0).for_each(|(key, value)| visit(key, value));
            bucket = here.next();
        }
    }

    /// Adds an entry at the end of the chain of this latched head. Returns whether that took
    /// another bucket, which `more` allocates.
    #[inline(always)]
    pub(super) fn push(self, key: &KeyWords, value: u64, more: impl FnOnce() -> Self) -> bool {
        let mut bucket = self;
        loop {
            for index in 0..BucketLayout::<K>::ENTRIES {
                // Relaxed: the caller has the latch.
                if bucket.value(index).load(Ordering::Relaxed) == 0 {
                    bucket.write(index, key, value);
                    return false;
                }
            }
            match bucket.next() {
                Some(next) => bucket = next,
                None => break,
            }
        }
        // The latch keeps lookups of this chain away until the version is stored, so these stores
        // need no order among each other. A lookup that knows the bucket from its former chain
        // finds that chain's version changed, by the fence of the pool.
        let added = more();
        added.clear();
        added.write(0, key, value);
        // Relaxed: published by the Release that ends the change.
        bucket.word(BucketLayout::<K>::LINK).store(added.words.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
        true
    }

    /// Removes the entry of `key`, which is there, from the chain of this latched head: the last
    /// entry of the chain takes its place. Returns the bucket that this has emptied.
    pub(super) fn take(self, key: &KeyWords) -> Option<NonNull<M::U64>> {
        let (mut before_last, mut last) = (None, self);
        let mut hit = None;
        loop {
            for index in 0..BucketLayout::<K>::ENTRIES {
                // Relaxed: the caller has the latch.
                if last.value(index).load(Ordering::Relaxed) != 0 && last.has_key(index, key) {
                    hit = Some((last, index));
                }
            }
            match last.next() {
                Some(next) => (before_last, last) = (Some(last), next),
                None => break,
            }
        }
        let (bucket, index) = hit.expect("the search has found the key in the chain that is latched since");
        // The last entry fills the hole. So entries stay dense, and only the last bucket can become
        // empty.
        let used = last.used();
        let (moved, value) = last.read(used - 1);
        bucket.write(index, &moved, value);
        // Relaxed: published by the Release that ends the change.
        last.value(used - 1).store(0, Ordering::Relaxed);
        // Relaxed: as above. The caller frees the bucket after it has given the latch back, so that
        // it does not take the pool's latch under the chain's.
        match before_last {
            Some(before) if used == 1 => {
                before.word(BucketLayout::<K>::LINK).store(0, Ordering::Relaxed);
                Some(last.words)
            }
            _ => None,
        }
    }

    /// Returns the number of entries in this bucket.
    fn used(self) -> usize {
        // Relaxed: the caller has the latch.
        (0..BucketLayout::<K>::ENTRIES).filter(|index| self.value(*index).load(Ordering::Relaxed) != 0).count()
    }

    /// Frees all entries and the link.
    fn clear(self) {
        for index in 0..BucketLayout::<K>::ENTRIES {
            // Relaxed: no other thread changes the bucket, and the Release that ends the change
            // publishes it.
            self.value(index).store(0, Ordering::Relaxed);
        }
        self.word(BucketLayout::<K>::LINK).store(0, Ordering::Relaxed);
    }

    /// Moves all entries of the chain of this latched head to `entries`, and its other buckets to
    /// `buckets`.
    pub(super) fn drain(self, entries: &mut Vec<(KeyWords, u64)>, buckets: &mut Vec<NonNull<M::U64>>) {
        let mut bucket = Some(self);
        while let Some(current) = bucket {
            entries
                .extend((0..BucketLayout::<K>::ENTRIES).map(|index| current.read(index)).filter(|entry| entry.1 != 0));
            bucket = current.next();
            buckets.extend(bucket.map(|next| next.words));
            current.clear();
        }
    }
}
