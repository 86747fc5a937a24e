//! Growing: segments of buckets, and the split of one chain into two.
//!
//! **Order of a split.** Initialise the new chain; latch the old one; copy the protocol's word;
//! move the entries; store the extent; unlatch the old chain. Two orders matter to lookups:
//!
//! - The extent comes after the entries. A lookup with the new extent goes to the new chain, which
//!   has no latch to stop it and must be complete.
//! - The extent comes before the unlatching. Suppose that it came after. A lookup with the old
//!   extent would find the old chain unlatched, and would take a key for absent that has moved.

use std::alloc::Layout;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::bucket::{Bucket, BucketLayout};
use super::{Extent, HashIndex, LOCKED, ObservedChain};
use crate::pool::{allocate, memory_of};
use crate::{Key, KeyWords};

/// The index grows when more than one bucket in 6 has an overflow bucket: at two and a quarter
/// entries a bucket.
const OVERFLOW: u64 = 6;
/// Splits that one insert makes at most, so that it does not work for all other threads forever.
const SPLITS: usize = 64;

/// Where a run of heads lies: two addresses that are shifted, so that a bucket's number in the
/// whole index finds it.
pub(super) struct Segment<M: Machine> {
    /// Address that bucket 0 would have. Stored once, by the split that first needs the segment.
    buckets: M::U64,
    /// Address that bucket 0's protocol word would have.
    words: M::U64,
}

impl<M: Machine> Segment<M> {
    pub(super) fn new() -> Self {
        Segment { buckets: M::U64::new(0), words: M::U64::new(0) }
    }

    /// Returns the address of a bucket, which need not exist.
    #[inline(always)]
    pub(super) fn bucket_hint(&self, index: usize, bucket_words: usize) -> *mut u8 {
        // Relaxed: pairs with the stores in `Growth::add_segment`. The segment was published before
        // the extent by which the caller knows the bucket, and never changes again. A caller with a
        // mere hint may read 0, and prefetches some address.
        let address = (self.buckets.load(Ordering::Relaxed) as usize).wrapping_add(index * bucket_words * 8);
        std::ptr::with_exposed_provenance_mut(address)
    }

    #[inline(always)]
    fn word_hint(&self, index: usize) -> *mut u8 {
        // Relaxed: as in `bucket_hint`.
        let address = (self.words.load(Ordering::Relaxed) as usize).wrapping_add(index * 8);
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// Returns a head and its protocol word.
    ///
    /// # Safety
    /// The bucket lies in this segment and is initialised, and this thread knows it by an Acquire
    /// load.
    #[inline(always)]
    pub(super) unsafe fn chain<'a, K: Key>(&self, index: usize) -> (Bucket<'a, M, K>, &'a M::U64) {
        let words = self.bucket_hint(index, BucketLayout::<K>::WORDS).cast::<M::U64>();
        // SAFETY: by the caller's promise the address is that of a bucket; `'a` is the index's
        // life.
        let bucket = unsafe { Bucket::new(NonNull::new_unchecked(words)) };
        // SAFETY: as above; the word is initialised together with the bucket.
        (bucket, unsafe { &*self.word_hint(index).cast::<M::U64>() })
    }

    /// Makes an empty chain.
    ///
    /// # Safety
    /// The bucket lies in this segment, and no thread has used it yet.
    pub(super) unsafe fn initialise(&self, index: usize, bucket_words: usize) {
        // SAFETY: the caller's promise.
        unsafe { M::U64::zeros(self.bucket_hint(index, bucket_words).cast(), bucket_words) };
        // SAFETY: as above.
        unsafe { M::U64::zeros(self.word_hint(index).cast(), 1) };
    }
}

impl<M: Machine> fmt::Debug for Segment<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

/// The state that the splitting thread owns.
#[derive(Debug)]
pub(super) struct Growth {
    base: usize,
    blocks: Vec<(NonNull<u8>, Layout)>,
    /// Scratch, kept for its memory.
    entries: Vec<(KeyWords, u64)>,
}

// SAFETY: the blocks belong to the index; their addresses are not bound to a thread.
unsafe impl Send for Growth {}

impl Growth {
    pub(super) fn new(base: usize) -> Self {
        Growth { base, blocks: Vec::new(), entries: Vec::new() }
    }

    /// Returns the memory of all segments.
    pub(super) fn memory(&self) -> Vec<Range<usize>> {
        memory_of(&self.blocks).collect()
    }

    /// Allocates a segment of `count` buckets from number `first` on. Its memory is not touched
    /// before it is initialised.
    pub(super) fn add_segment<M: Machine>(&mut self, segment: &Segment<M>, first: usize, count: usize, words: usize) {
        let (block, layout) = allocate::<M>(count * (words + 1) * 8);
        let start = block.as_ptr().expose_provenance();
        let word_start = start + count * words * 8;
        // Relaxed: published by the Release store of the extent that reaches into the segment
        // (`split`). No lookup knows of a bucket there before.
        segment.buckets.store(start.wrapping_sub(first * words * 8) as u64, Ordering::Relaxed);
        segment.words.store(word_start.wrapping_sub(first * 8) as u64, Ordering::Relaxed);
        self.blocks.push((block, layout));
    }

    /// # Safety
    /// No thread uses the buckets any more.
    pub(super) unsafe fn release<M: Machine>(&mut self) {
        for (block, layout) in self.blocks.drain(..) {
            // SAFETY: allocated with this layout, and unused by the caller's promise.
            unsafe { M::dealloc(block, layout) };
        }
    }
}

impl<M: Machine, K: Key> HashIndex<M, K> {
    /// Splits chains until few enough overflow, unless another thread is at it. That thread is not
    /// waited for: it sees the count of all threads. If it has looked for the last time already,
    /// the next insert that overflows grows the index.
    #[cold]
    pub(super) fn grow(&self) {
        self.growth.try_with(|growth| {
            for _ in 0..SPLITS {
                // Relaxed, both: only the holder of the growth latch changes the extent, and the
                // latch orders the holders. The count is a hint: a wrong one makes a split early or
                // late.
                let extent = Extent(self.extent.load(Ordering::Relaxed));
                if self.overflowing.load(Ordering::Relaxed) * OVERFLOW <= extent.buckets() {
                    break;
                }
                self.split(growth, extent);
            }
        });
    }

    /// Splits the next chain of the round.
    fn split(&self, growth: &mut Growth, extent: Extent) {
        let (added, level) = (extent.buckets() as usize, extent.level());
        let round = growth.base << level;
        let old = added - round;
        // The chain's copy number tells its segment, as in `HashIndex::segment`.
        let base = growth.base;
        let segment_of = |index: usize| (usize::BITS - (index / base).leading_zeros()) as usize;
        if old == 0 {
            growth.add_segment(&self.segments[segment_of(added)], added, round, BucketLayout::<K>::WORDS);
        }
        let segment = &self.segments[segment_of(added)];
        // SAFETY: `added` is the first bucket beyond the extent, and this thread has the growth
        // latch.
        unsafe { segment.initialise(added, BucketLayout::<K>::WORDS) };
        // SAFETY: just initialised.
        let (new_head, new_word) = unsafe { segment.chain::<K>(added) };
        // SAFETY: below the extent, which this thread, or one that held the growth latch before,
        // has stored.
        let (head, word) = unsafe { self.segments[segment_of(old)].chain::<K>(old) };

        // From here on lookups and writers of the old chain start over until it is unlatched.
        let chain = self.latch_for_split(head, word);
        // With Release and Acquire both could miss: the transaction would rely on a word that the
        // new chain does not have, and an insert there could get too early a timestamp.
        //
        // SeqCst: pairs with the fence of a transaction that raises the leaf's word and then checks
        // the leaf's version (`Leaf::word`). It finds the version changed, or its word is copied
        // here.
        M::fence(Ordering::SeqCst);
        // Relaxed, both: the fence orders the load, and the Release of the extent publishes the
        // copy.
        new_word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        self.distribute(growth, head, new_head, extent);
        let buckets = extent.buckets() + 1;
        let level = if buckets == (2 * round) as u64 { level + 1 } else { level };
        // Release: pairs with the Acquire in `HashIndex::search`: the new chain and its segment are
        // initialised. Stored before the old chain is unlatched: a lookup that sees the version
        // after the split sees the extent.
        self.extent.store(Extent::new(buckets, level).0, Ordering::Release);
        chain.unlatch();
    }

    fn latch_for_split<'a>(&self, head: Bucket<'a, M, K>, word: &'a M::U64) -> ObservedChain<'a, M, K> {
        let mut spin = Spin::<M>::new();
        loop {
            // Relaxed: `latch` acquires, and fails if the version is old. Waiting is safe: a writer
            // that holds a chain waits for the pool only, and never for a split (`grow` tries).
            let version = head.version().load(Ordering::Relaxed);
            let chain = ObservedChain { head, word, version };
            if version & LOCKED == 0 && chain.latch() {
                return chain;
            }
            spin.wait();
        }
    }

    /// Moves the entries of a latched chain to where they belong with one bucket more than
    /// `extent`.
    fn distribute(&self, growth: &mut Growth, old: Bucket<'_, M, K>, new: Bucket<'_, M, K>, extent: Extent) {
        let after = Extent::new(extent.buckets() + 1, extent.level());
        let mut freed: Vec<NonNull<M::U64>> = Vec::new();
        growth.entries.clear();
        // The old chain is latched, and no other thread knows the new one. So the order of these
        // stores is of no interest: a lookup sees them only by the extent, or by the next version.
        old.drain(&mut growth.entries, &mut freed);
        for (key, value) in &growth.entries {
            let hash = K::from_words(*key).hash();
            let moves = self.segment(hash, after).1 as u64 == extent.buckets();
            (if moves { new } else { old }).push(key, *value, || match freed.pop() {
                // SAFETY: one of the chain's own buckets, drained.
                Some(bucket) => unsafe { Bucket::new(bucket) },
                None => self.add_overflow(hash),
            });
        }
        for bucket in freed {
            self.drop_overflow(bucket, growth.entries.len() as u64);
        }
    }
}
