//! The hash index: points in one cache line.
//!
//! Linear hashing (W. Litwin: "Linear hashing: a new tool for file and table addressing", VLDB
//! 1980) over buckets of a cache line. A chain of buckets is the [`Leaf`]. Its head holds the
//! version. By it lookups are optimistic (a seqlock), and changes latch the chain.
//!
//! 1. With `n` buckets, `base << level <= n < base << (level + 1)`, a hash names a home bucket
//!    below `base` by its high bits, and one of `2^(level + 1)` copies of the home by low
//!    bits. If that copy does not exist yet, the hash belongs to the copy that one bit fewer names.
//!    `base` need not be a power of two, so the index can be made to measure.
//! 2. Growing splits bucket `n - (base << level)` into itself and bucket `n`: one chain at a time,
//!    none of the others moves. Buckets are allocated in segments that double, and are neither
//!    moved nor freed before the index is dropped.
//! 3. A lookup computes the address, reads the chain's version, then checks that `n` is the same
//!    still: a chain that has been split since shows a version that was published after the new
//!    `n`. Then it reads, then checks the version.
//!
//! # Invariants
//! - An entry with value 0 is free. A chain's entries fill its buckets from the front, and only the
//!   head may be empty.
//! - Everything but the words of the protocol changes only while the head's version is odd.
//! - The version rises by 2 with every change of the chain's keys, and with its split.
//!
//! # Limits
//! - The index does not shrink.
//! - One thread at a time splits; it also makes the splits that other threads' inserts have caused.
//! - Keys whose hashes are equal share a chain, however long.
//!
//! # When an operation takes effect
//! - A lookup: at its last load of the chain's version. All that it has read of the chain was there
//!   at that moment.
//! - An insert or a remove: at the store that unlatches the chain. Until then lookups of the chain
//!   start over.
//! - A split changes nothing that a lookup can tell. The keys that move do so at the store of the
//!   new extent, and the chain that they leave is latched at that moment.
//!
//! # Progress
//! A lookup takes no latch. It starts over if a writer has latched or changed the chain, or if a
//! split has changed the extent: then another operation has come further. Latches are taken in one
//! order: growth, one chain, one stripe of the pool, the pool's blocks. So no threads wait in a
//! circle.

mod bucket;
mod grow;

use std::ops::Range;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, Spin, SpinMutex};
use crossbeam_utils::CachePadded;

use crate::pool::Pool;
use crate::{Change, Insert, Key, Leaf, Lookup};
use bucket::{Bucket, BucketLayout};
use grow::{Growth, Segment};

/// The bit of a version that says that a writer changes the chain.
const LOCKED: u64 = 1;
/// The difference that a change makes to a version.
const STEP: u64 = 2;
/// The entries per bucket that the index is laid out for: the memory of a bucket against the
/// probability of a second line.
const LOAD: usize = 2;
const FEWEST_BUCKETS: usize = 16;
/// The buckets from which on one is hardly ever in a near cache: 256 KiB of them.
const FAR_BUCKETS: u64 = 1 << 12;
/// Segment `i > 0` holds `base << (i - 1)` buckets.
const SEGMENTS: usize = 40;
/// The lookups of a batch, whose cache misses overlap. More than a core's outstanding misses gain
/// nothing.
const BATCH: usize = 32;

/// The number of buckets, and the level that follows from it, in one word, so that both are read at
/// once. With two words a lookup could pair an old level with a new number, and look for a key in
/// the chain that it has left. The word only grows, so equal words mean that no split came between.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent(u64);

impl Extent {
    const LEVEL_SHIFT: u32 = 56;

    fn new(buckets: u64, level: u32) -> Self {
        Extent(buckets | u64::from(level) << Self::LEVEL_SHIFT)
    }

    #[inline(always)]
    fn buckets(self) -> u64 {
        self.0 & ((1 << Self::LEVEL_SHIFT) - 1)
    }

    #[inline(always)]
    fn level(self) -> u32 {
        (self.0 >> Self::LEVEL_SHIFT) as u32
    }
}

/// An index of points; see the module.
#[derive(Debug)]
pub struct HashIndex<M: Machine, K: Key> {
    /// The [`Extent`]. Every lookup loads it twice, and only a split stores to it. So its line
    /// stays shared in all caches, and nothing that inserts write may lie there.
    extent: CachePadded<M::U64>,
    /// Never changes, as the addresses of segments below the extent.
    base: u64,
    segments: Box<[Segment<M>; SEGMENTS]>,
    /// Buckets other than heads.
    overflow: Pool<M>,
    /// The number of these that are in use. Inserts that add a bucket write it, hence a line of its
    /// own.
    overflowing: CachePadded<M::U64>,
    /// Its holder is the only thread that stores to the extent and to segments.
    growth: CachePadded<SpinMutex<M, Growth>>,
    key: std::marker::PhantomData<K>,
}

/// A chain, with the version at which the search read it.
struct ObservedChain<'a, M: Machine, K: Key> {
    head: Bucket<'a, M, K>,
    /// The protocol's word. It stands apart from the head, so that transactions that raise it do
    /// not take the line that lookups read.
    word: &'a M::U64,
    version: u64,
}

impl<M: Machine, K: Key> ObservedChain<'_, M, K> {
    #[inline(always)]
    fn leaf(&self) -> Leaf<M> {
        // SAFETY: buckets and words stay allocated until the index is dropped.
        unsafe { Leaf::new(self.head.version(), self.word) }
    }

    #[inline(always)]
    fn lookup(&self, value: u64) -> Lookup<M> {
        Lookup { value: (value != 0).then_some(value), leaf: self.leaf(), version: self.version }
    }

    /// Latches the chain, unless it has changed since the search.
    #[inline(always)]
    fn latch(&self) -> bool {
        // From the version that the search has seen: so the key's absence, or its value, still
        // holds (docs/memory_ordering.md, section 1, "An upgrade needs no fence"). With an exchange
        // from whatever is there, two inserts that have both missed one key could both go ahead.
        //
        // Acquire: pairs with the Release in `unlatch`: this writer changes the chain as the last
        // one left it. Relaxed: a caller that fails searches again.
        let latched = self
            .head
            .version()
            .compare_exchange(self.version, self.version | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        // Release: pairs with the Acquire fence in `Bucket::find`: a lookup that reads one of the
        // changes to come then sees the odd version, or a later one.
        M::fence(Ordering::Release);
        latched
    }

    /// Ends a change.
    #[inline(always)]
    fn unlatch(&self) -> u64 {
        let after = self.version + STEP;
        // Release: pairs with the Acquire loads of the version in `search` and `Leaf::version_as`,
        // and with the Acquire exchange of the next `latch`. A reader that has the new version has
        // the entries that go with it. With a Relaxed store it could take a key that was just
        // inserted for absent, at the version that says it is there.
        self.head.version().store(after, Ordering::Release);
        after
    }
}

impl<M: Machine, K: Key> HashIndex<M, K> {
    /// Creates an empty index with room for `expected` keys before it has to grow. Its memory comes
    /// as one block.
    pub fn new(expected: usize) -> Self {
        let base = (expected / LOAD).max(FEWEST_BUCKETS);
        let segments: Box<[Segment<M>; SEGMENTS]> = Box::new(std::array::from_fn(|_| Segment::new()));
        let mut growth = Growth::new(base);
        growth.add_segment(&segments[0], 0, base, BucketLayout::<K>::WORDS);
        for index in 0..base {
            // SAFETY: inside the segment just allocated, which no other thread knows.
            unsafe { segments[0].initialise(index, BucketLayout::<K>::WORDS) };
        }
        HashIndex {
            extent: CachePadded::new(M::U64::new(Extent::new(base as u64, 0).0)),
            base: base as u64,
            segments,
            overflow: Pool::new(BucketLayout::<K>::WORDS, bucket::VERSION, expected / 12),
            overflowing: CachePadded::new(M::U64::new(0)),
            growth: CachePadded::new(SpinMutex::new(growth)),
            key: std::marker::PhantomData,
        }
    }

    /// Returns whether the index is so large that a bucket is hardly ever in a near cache.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        // Relaxed: only a hint.
        Extent(self.extent.load(Ordering::Relaxed)).buckets() >= FAR_BUCKETS
    }

    /// Looks a key up.
    #[inline(always)]
    pub fn get(&self, key: K) -> Lookup<M> {
        let hash = key.hash();
        self.await_head(hash);
        let (chain, value) = self.search(hash, key);
        chain.lookup(value)
    }

    /// Looks many keys up, their cache misses overlapped. Calls `found` once a key, with the key's
    /// position, in the order of `keys`.
    pub fn get_many(&self, keys: &[K], mut found: impl FnMut(usize, Lookup<M>)) {
        let mut hashes = [0; BATCH];
        for (chunk, batch) in keys.chunks(BATCH).enumerate() {
            // Relaxed: only a hint for prefetches; `search` loads it again. An old extent costs a
            // prefetch of the wrong line.
            let extent = Extent(self.extent.load(Ordering::Relaxed));
            for (position, key) in batch.iter().enumerate() {
                let hash = key.hash();
                hashes[position] = hash;
                self.prefetch_head(hash, extent);
            }
            if M::overlaps() && extent.buckets() >= FAR_BUCKETS {
                M::await_prefetched();
            }
            for (position, key) in batch.iter().enumerate() {
                let (chain, value) = self.search(hashes[position], *key);
                found(chunk * BATCH + position, chain.lookup(value));
            }
        }
    }

    /// Inserts `key -> value` unless the key is there. `value` is not 0.
    ///
    /// # Panics
    /// `value` is 0.
    pub fn insert(&self, key: K, value: u64) -> Insert<M> {
        assert_ne!(value, 0, "0 means absent");
        let (hash, words) = (key.hash(), key.to_words());
        self.await_head(hash);
        let mut spin = Spin::<M>::new();
        loop {
            let (chain, existing) = self.search(hash, key);
            if existing != 0 {
                return Insert::Exists(chain.lookup(existing));
            }
            if !chain.latch() {
                spin.wait();
                continue;
            }
            // The latch came from the version at which the key was absent, so it is absent now. No
            // other thread changes the chain before `unlatch`.
            let overflowed = chain.head.push(&words, value, || self.add_overflow(hash));
            let after = chain.unlatch();
            // After the latch is given back: the split may need this chain, and would wait for
            // itself.
            if overflowed {
                self.grow();
            }
            return Insert::Inserted(Change { leaf: chain.leaf(), before: chain.version, after, split: None });
        }
    }

    /// Removes the key if it still maps to `expect`, and returns whether it did.
    pub fn remove(&self, key: K, expect: u64) -> bool {
        let (hash, words) = (key.hash(), key.to_words());
        let mut spin = Spin::<M>::new();
        loop {
            let (chain, existing) = self.search(hash, key);
            if existing != expect || expect == 0 {
                return false;
            }
            if chain.latch() {
                let emptied = chain.head.take(&words);
                chain.unlatch();
                if let Some(bucket) = emptied {
                    self.drop_overflow(bucket, hash);
                }
                return true;
            }
            spin.wait();
        }
    }

    /// Visits every key and its value, in no order. Call it only while no thread changes the index.
    pub fn for_each(&self, mut visit: impl FnMut(K, u64)) {
        // Acquire: as in `search`; pairs with the Release of `split`. The caller has ordered all
        // other changes before, since it knows that no thread is at one.
        for number in 0..Extent(self.extent.load(Ordering::Acquire)).buckets() {
            let segment = 64 - (number / self.base).leading_zeros() as usize;
            // SAFETY: as in `chain`.
            let (head, _): (Bucket<'_, M, K>, _) = unsafe { self.segments[segment].chain(number as usize) };
            head.for_each(&mut |key, value| visit(K::from_words(key), value));
        }
    }

    /// Returns the memory of the heads of the chains, and of their words.
    pub(crate) fn leaf_memory(&self) -> Vec<Range<usize>> {
        self.growth.with(|growth| growth.memory())
    }

    /// Returns the bytes that the index holds. Memory that is set aside for growth, but not yet
    /// touched, does not count.
    pub fn bytes(&self) -> usize {
        // Relaxed: a statistic; `split` stores it. It leads to no bucket here.
        let heads = Extent(self.extent.load(Ordering::Relaxed)).buckets() as usize;
        heads * (BucketLayout::<K>::WORDS + 1) * 8
            + self.overflow.bytes()
            + size_of::<Self>()
            + size_of_val(&*self.segments)
    }

    /// Does other work until the head of the hash's chain is here, if it is far away and there is
    /// other work.
    #[inline(always)]
    fn await_head(&self, hash: u64) {
        if M::overlaps() {
            // Relaxed: only a hint, as in `get_many`.
            let extent = Extent(self.extent.load(Ordering::Relaxed));
            if extent.buckets() >= FAR_BUCKETS {
                self.prefetch_head(hash, extent);
                M::await_prefetched();
            }
        }
    }

    #[inline(always)]
    fn prefetch_head(&self, hash: u64, extent: Extent) {
        let (segment, index) = self.segment(hash, extent);
        let head = self.segments[segment].bucket_hint(index, BucketLayout::<K>::WORDS);
        for line in 0..BucketLayout::<K>::LINES {
            M::prefetch(head.wrapping_add(line * crate::pool::LINE));
        }
    }

    /// Returns the chain that holds the key, or would hold it, and the key's value, 0 if absent.
    #[inline(always)]
    fn search(&self, hash: u64, key: K) -> (ObservedChain<'_, M, K>, u64) {
        match self.try_search(hash, key) {
            Ok(found) => found,
            Err(was_busy) => self.search_again(hash, key, was_busy),
        }
    }

    /// Searches after a try that has met a change.
    #[cold]
    #[inline(never)]
    fn search_again(&self, hash: u64, key: K, mut was_busy: bool) -> (ObservedChain<'_, M, K>, u64) {
        let mut spin = Spin::<M>::new();
        loop {
            if was_busy {
                spin.wait();
            }
            match self.try_search(hash, key) {
                Ok(found) => return found,
                Err(busy) => was_busy = busy,
            }
        }
    }

    /// Searches once. If a change was under way, returns whether to wait before the next try: a
    /// search that a split has sent elsewhere need not, as the next extent leads it to a chain that
    /// may be free.
    #[inline(always)]
    fn try_search(&self, hash: u64, key: K) -> Result<(ObservedChain<'_, M, K>, u64), bool> {
        // Acquire: pairs with the Release in `split`: the buckets below the extent are initialised.
        let extent = Extent(self.extent.load(Ordering::Acquire));
        let (head, word) = self.chain(hash, extent);
        // Acquire: pairs with the Release in `unlatch`: the chain is at least as new as its
        // version.
        let version = head.version().load(Ordering::Acquire);
        // The extent again, after the version. Suppose that it was checked before, that a split
        // moved the key between the two, and that the chain was unlatched by then. The search would
        // find an even version and an unchanged extent, and would miss the key.
        //
        // Relaxed: if the version is one that a split published, the load above made the split's
        // extent visible.
        let unmoved = self.extent.load(Ordering::Relaxed) == extent.0;
        if (version & LOCKED == 0) & unmoved
            && let Some(value) = head.find(&key.to_words(), version)
        {
            return Ok((ObservedChain { head, word, version }, value));
        }
        Err(unmoved)
    }

    /// Returns the number of the bucket that the hash belongs to, and of its segment.
    #[inline(always)]
    fn segment(&self, hash: u64, extent: Extent) -> (usize, usize) {
        let home = ((u128::from(hash) * u128::from(self.base)) >> 64) as u64;
        if extent.0 == self.base {
            // Never grown: the fewer instructions, the more lookups are under way at once.
            return (0, home as usize);
        }
        let copies = 1 << extent.level();
        // The low bits of a hash alone depend on some bits of its key only (`Key::hash`).
        let mut copy = (hash ^ hash >> 32) & (2 * copies - 1);
        // Without a branch: which half of a level a key falls into cannot be predicted.
        copy = if copy * self.base + home >= extent.buckets() { copy & (copies - 1) } else { copy };
        let segment = 64 - copy.leading_zeros() as usize;
        // The bound only spares the check of the index.
        (segment.min(SEGMENTS - 1), (copy * self.base + home) as usize)
    }

    #[inline(always)]
    fn chain(&self, hash: u64, extent: Extent) -> (Bucket<'_, M, K>, &M::U64) {
        let (segment, index) = self.segment(hash, extent);
        // SAFETY: a bucket below the extent is initialised, and the extent was loaded with Acquire.
        unsafe { self.segments[segment].chain(index) }
    }

    /// Returns a bucket for a chain's end.
    #[cold]
    fn add_overflow(&self, hash: u64) -> Bucket<'_, M, K> {
        // Relaxed: a count that only the decision to grow reads (`grow`). The bucket goes to the
        // chain under the chain's latch.
        self.overflowing.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the pool's slots have a bucket's size and live as long as the index.
        unsafe { Bucket::new(self.overflow.alloc(hash as usize >> 8)) }
    }

    #[cold]
    fn drop_overflow(&self, bucket: NonNull<M::U64>, hash: u64) {
        // Relaxed: as in `add_overflow`. It never falls below 0: this thread latched the chain
        // after the thread that added the bucket, so that addition comes first.
        self.overflowing.fetch_sub(1, Ordering::Relaxed);
        self.overflow.free(bucket, hash as usize >> 8);
    }
}

impl<M: Machine, K: Key> Drop for HashIndex<M, K> {
    fn drop(&mut self) {
        // SAFETY: no thread uses the buckets any more. The exclusive borrow says so: it was given
        // after every other thread's last use. Handles (`Leaf`) must be gone too; that is the
        // contract of `Leaf::new`.
        unsafe { self.growth.get_mut().release::<M>() };
    }
}
