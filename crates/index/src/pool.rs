//! Memory for nodes: slots of one size, which are reused at once, and are never returned before the
//! pool is dropped.
//!
//! **The memory is type-stable.** A slot's words are initialised once, to 0, and are atomics from
//! then on. So a reader may hold the address of a slot that was freed, or that serves again: it
//! still reads atomic words, and a version tells it that they are not those it wanted.
//! [`Pool::free`] changes only the slot's link word, in which no reader is interested. What a
//! reader may not do is to write there.
//!
//! **Why a reader of an old address finds out.** Before a slot is freed, the freeing writer has
//! changed a version that every reader of the slot validates after its reads: the node's own in the
//! ordered index, the chain head's in the hash index. The slot serves again only after that. The
//! pool's latches order only the workers that free and allocate. A release fence of the worker that
//! takes the slot again orders the changed version before its stores, for a reader that meets such
//! a store and then passes its acquire fence.
//!
//! **Stripes.** Slots are cut from blocks that grow with the pool, so that a small index is small
//! and a large one lies on huge pages. Each stripe has a list of free slots and cuts slots in
//! batches. A stripe that runs dry takes from the others before it cuts. So the pool does not grow
//! if one worker frees the slots that another needs.
//!
//! **Latches.** A stripe's latch orders everything about its slots: a thread that takes a slot out
//! sees the words as the thread that freed it left them. The latch of the blocks is taken under a
//! stripe's, never the other way round, and no two stripes are held at once. So the pool's users
//! never wait in a circle, also when they hold a node's latch, which no holder of a pool's latch
//! waits for.

use std::alloc::Layout;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, SetAside, SpinMutex};
use crossbeam_utils::CachePadded;

pub(crate) const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
const FIRST_BLOCK: usize = 16 << 10;
/// As much as a worker sets aside at a time.
const LARGEST_BLOCK: usize = SetAside::BLOCK;
/// The number of stripes. A stripe is chosen by an address, so the model checker has one stripe:
/// then the same calls always do the same.
const STRIPES: usize = if cfg!(loom) { 1 } else { 8 };
/// The number of slots that a stripe cuts at once. The cost of a model checker grows with the
/// number of words, so there it is small.
const BATCH: usize = if cfg!(loom) { 1 } else { 16 };

/// Returns uninitialised shared memory for `bytes`, aligned to lines, or to huge pages if it is
/// large.
///
/// Ends the process if there is no memory, because an index has no way to refuse an insert.
pub(crate) fn allocate<M: Machine>(bytes: usize) -> (NonNull<u8>, Layout) {
    let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
    let layout = Layout::from_size_align(bytes.next_multiple_of(LINE), align).expect("fewer than isize::MAX bytes");
    match M::alloc(layout) {
        Some(block) => (block, layout),
        None => std::alloc::handle_alloc_error(layout),
    }
}

/// The slots of one stripe: freed ones, and the rest of a batch that was never used.
struct Stripe<M: Machine> {
    /// The first free slot, whose link word holds the address of the next; null at the end.
    free: *mut M::U64,
    /// The first slot that was never given out. Its words are 0 already.
    fresh: *mut M::U64,
    fresh_slots: usize,
}

// SAFETY: the pointers lead to slots that the stripe owns.
unsafe impl<M: Machine> Send for Stripe<M> {}

struct Blocks {
    /// Only grows. `Drop` returns the blocks.
    all: Vec<(NonNull<u8>, Layout)>,
    /// The uncut rest of the last block.
    rest: *mut u8,
    rest_bytes: usize,
    /// Bytes of the slots that were cut.
    cut: usize,
    /// The bytes of the first block.
    first: usize,
}

// SAFETY: the blocks belong to the pool; their addresses are not bound to a thread.
unsafe impl Send for Blocks {}

/// Returns the addresses of blocks.
pub(crate) fn memory_of(blocks: &[(NonNull<u8>, Layout)]) -> impl Iterator<Item = Range<usize>> + '_ {
    blocks.iter().map(|(block, layout)| block.addr().get()..block.addr().get() + layout.size())
}

/// A pool of slots; see the module.
pub(crate) struct Pool<M: Machine> {
    slot_words: usize,
    link: usize,
    /// Each in lines of its own: workers that use different stripes don't take lines from each
    /// other.
    stripes: [CachePadded<SpinMutex<M, Stripe<M>>>; STRIPES],
    /// Taken once in a batch of slots, so one latch for all stripes is enough.
    blocks: CachePadded<SpinMutex<M, Blocks>>,
}

impl<M: Machine> Pool<M> {
    /// Creates a pool of slots of `slot_words` words, a multiple of a line. Word `link` of a slot
    /// belongs to the pool while the slot is free. The memory of the first `expected` slots comes
    /// as one block.
    pub(crate) fn new(slot_words: usize, link: usize, expected: usize) -> Self {
        assert!(link < slot_words && (slot_words * 8).is_multiple_of(LINE) && size_of::<M::U64>() == 8);
        let stripe = || Stripe { free: std::ptr::null_mut(), fresh: std::ptr::null_mut(), fresh_slots: 0 };
        let first = (expected + STRIPES * BATCH) * slot_words * 8;
        let blocks = Blocks {
            all: Vec::new(),
            rest: std::ptr::null_mut(),
            rest_bytes: 0,
            cut: 0,
            first: if expected == 0 { FIRST_BLOCK } else { first },
        };
        Pool {
            slot_words,
            link,
            stripes: std::array::from_fn(|_| CachePadded::new(SpinMutex::new(stripe()))),
            blocks: CachePadded::new(SpinMutex::new(blocks)),
        }
    }

    #[cfg_attr(loom, expect(clippy::modulo_one, reason = "there is one stripe only"))]
    #[inline(always)]
    fn stripe_of(hint: usize) -> usize {
        hint % STRIPES
    }

    /// Returns a slot. All its words are initialised: they hold 0, or the values from when the slot
    /// was freed, except for the link word. `hint` spreads callers over stripes.
    pub(crate) fn alloc(&self, hint: usize) -> NonNull<M::U64> {
        let own = Self::stripe_of(hint);
        if let Some(slot) = self.stripes[own].with(|stripe| self.take_free(stripe).or_else(|| self.take_fresh(stripe)))
        {
            return slot;
        }
        // The own latch is given back before another is taken. Two workers that hold theirs and
        // want each other's would wait for ever. Meanwhile a slot may be freed here: then one batch
        // too many is cut.
        for other in (0..STRIPES).filter(|other| *other != own) {
            if let Some(slot) = self.stripes[other].with(|stripe| self.take_free(stripe)) {
                return slot;
            }
        }
        self.stripes[own].with(|stripe| {
            // Again, since another thread may have cut a batch while this one held no latch.
            if stripe.fresh_slots == 0 {
                self.cut(stripe);
            }
            self.take_fresh(stripe).expect("just cut")
        })
    }

    /// Takes a slot back. Other threads may still read it.
    pub(crate) fn free(&self, slot: NonNull<M::U64>, hint: usize) {
        // SAFETY: a slot has `slot_words` words, more than `link`.
        let link = unsafe { slot.add(self.link).as_ref() };
        self.stripes[Self::stripe_of(hint)].with(|stripe| {
            // Relaxed: pairs with the load in `take_free`. Only a thread that holds the stripe's
            // latch reads the list, and the latch orders it. No other word changes: a reader that
            // still has the address finds the keys and values of the slot's last use.
            link.store(stripe.free.expose_provenance() as u64, Ordering::Relaxed);
            stripe.free = slot.as_ptr();
        });
    }

    /// Returns the bytes of all slots, in use or free.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.with(|blocks| blocks.cut)
    }

    /// Returns the memory of all slots, in use or free.
    pub(crate) fn memory(&self) -> Vec<Range<usize>> {
        self.blocks.with(|blocks| memory_of(&blocks.all).collect())
    }

    fn take_free(&self, stripe: &mut Stripe<M>) -> Option<NonNull<M::U64>> {
        let slot = NonNull::new(stripe.free)?;
        // SAFETY: as in `free`.
        let link = unsafe { slot.add(self.link).as_ref() };
        // Relaxed: `free` stored it under the latch that this thread holds. No other thread stores
        // to the link of a free slot, so the list has no use for exchanges: there is no ABA to
        // fear.
        stripe.free = std::ptr::with_exposed_provenance_mut(link.load(Ordering::Relaxed) as usize);
        // Release: pairs with the Acquire fence of a reader of the slot's last use (`Bucket::find`,
        // `Node::is_at`); see the module. The fence of the worker that freed the slot orders only
        // that worker's own stores.
        M::fence(Ordering::Release);
        Some(slot)
    }

    fn take_fresh(&self, stripe: &mut Stripe<M>) -> Option<NonNull<M::U64>> {
        stripe.fresh_slots = stripe.fresh_slots.checked_sub(1)?;
        let slot = NonNull::new(stripe.fresh);
        // SAFETY: at most one past the last slot of the batch.
        stripe.fresh = unsafe { stripe.fresh.add(self.slot_words) };
        slot
    }

    fn cut(&self, stripe: &mut Stripe<M>) {
        let bytes = BATCH * self.slot_words * 8;
        stripe.fresh = self.blocks.with(|blocks| {
            if blocks.rest_bytes < bytes {
                let grown = (blocks.cut / 4).clamp(blocks.first, LARGEST_BLOCK.max(blocks.first));
                let grown = if blocks.all.is_empty() { blocks.first } else { grown.min(LARGEST_BLOCK) }.max(bytes);
                let unit = if grown >= HUGE_PAGE { HUGE_PAGE } else { LINE };
                let (block, layout) = allocate::<M>(grown.next_multiple_of(unit));
                blocks.all.push((block, layout));
                blocks.rest = block.as_ptr();
                blocks.rest_bytes = layout.size();
            }
            let batch = blocks.rest;
            // SAFETY: the rest of the block is long enough.
            blocks.rest = unsafe { blocks.rest.add(bytes) };
            blocks.rest_bytes -= bytes;
            blocks.cut += bytes;
            batch.cast()
        });
        // SAFETY: the batch is `BATCH * slot_words` words, which no other thread knows yet. From
        // here on the words are atomics. Another thread gets one of these slots by the stripe's
        // latch, or finds it by a link that a node's version publishes; either comes after these
        // writes.
        unsafe { M::U64::zeros(stripe.fresh, BATCH * self.slot_words) };
        stripe.fresh_slots = BATCH;
    }
}

impl<M: Machine> Drop for Pool<M> {
    fn drop(&mut self) {
        for (block, layout) in self.blocks.get_mut().all.drain(..) {
            // SAFETY: allocated with this layout. The pool's owner is gone, and with it every user
            // of its slots.
            unsafe { M::dealloc(block, layout) };
        }
    }
}

impl<M: Machine> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("slot_words", &self.slot_words)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn slots_are_distinct_aligned_and_reused() {
        const SLOTS: usize = 8 * STRIPES * BATCH;
        let pool = Pool::<Native>::new(16, 3, 0);
        let mut slots: Vec<_> = (0..SLOTS).map(|hint| pool.alloc(hint)).collect();
        assert!(slots.iter().all(|slot| (slot.as_ptr() as usize).is_multiple_of(LINE)));
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[1].as_ptr() as usize - pair[0].as_ptr() as usize >= 128));
        assert_eq!(pool.bytes(), SLOTS * 128);
        for (hint, slot) in slots.iter().enumerate() {
            pool.free(*slot, hint);
        }
        // All from one stripe: it must take from the others.
        let mut again: Vec<_> = (0..SLOTS).map(|_| pool.alloc(0)).collect();
        again.sort_unstable();
        assert!(slots == again, "other slots than were freed");
        assert_eq!(pool.bytes(), SLOTS * 128);
    }
}
