//! Memory for nodes: slots of one size, reused at once, never returned before the pool is dropped.
//!
//! The memory is type-stable: a slot's words are initialised once, to 0, and are atomics from then
//! on, so a reader that holds the address of a slot that was freed, or that serves again, reads
//! words, only not the ones it hopes for; it finds out by a version. [`Pool::free`] changes only
//! the slot's link word.
//!
//! Slots are cut from blocks that grow with the pool, so that a small index is small and a large
//! one lies on huge pages. Each stripe has a list of free slots and cuts slots in batches; a stripe
//! that runs dry takes from the others before it cuts, so a queue that frees at one end what it
//! needs at the other does not grow.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, SpinMutex};
use crossbeam_utils::CachePadded;

pub(crate) const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
const FIRST_BLOCK: usize = 16 << 10;
const LARGEST_BLOCK: usize = 64 << 20;
/// With one, the same calls do the same: which stripe is used depends on addresses.
const STRIPES: usize = if cfg!(loom) { 1 } else { 8 };
/// Slots that a stripe cuts at once. A model checker looks at all words there are again and again:
/// few.
const BATCH: usize = if cfg!(loom) { 1 } else { 16 };

/// Uninitialised shared memory for `bytes`, aligned to lines, or to huge pages if it is large.
///
/// Ends the process when there is none: an index has no way to refuse an insert.
pub(crate) fn allocate<M: Machine>(bytes: usize) -> (NonNull<u8>, Layout) {
    let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
    let layout = Layout::from_size_align(bytes.next_multiple_of(LINE), align).expect("fewer than isize::MAX bytes");
    match M::alloc(layout) {
        Some(block) => (block, layout),
        None => std::alloc::handle_alloc_error(layout),
    }
}

/// Makes `count` words from `words` on: zeros.
///
/// # Safety
/// The words lie in one allocation that is aligned for them, and nobody else uses them yet.
pub(crate) unsafe fn initialise<M: Machine>(words: *mut M::U64, count: usize) {
    for i in 0..count {
        // SAFETY: in bounds and unshared by the caller's promise.
        unsafe { words.add(i).write(M::U64::new(0)) };
    }
}

/// A batch of slots that no one has used, and slots that were freed.
struct Stripe<M: Machine> {
    /// The first free slot, whose link word holds the address of the next; null at the end.
    free: *mut M::U64,
    fresh: *mut M::U64,
    fresh_slots: usize,
}

// SAFETY: the pointers lead to slots that the stripe owns.
unsafe impl<M: Machine> Send for Stripe<M> {}

struct Blocks {
    all: Vec<(NonNull<u8>, Layout)>,
    /// The uncut rest of the last block.
    rest: *mut u8,
    rest_bytes: usize,
    /// Bytes of the slots that were cut.
    cut: usize,
    /// Bytes that the first block shall have.
    first: usize,
}

// SAFETY: the blocks belong to the pool; their addresses are not bound to a thread.
unsafe impl Send for Blocks {}

/// See the module.
pub(crate) struct Pool<M: Machine> {
    slot_words: usize,
    link: usize,
    stripes: [CachePadded<SpinMutex<M, Stripe<M>>>; STRIPES],
    blocks: CachePadded<SpinMutex<M, Blocks>>,
}

impl<M: Machine> Pool<M> {
    /// A pool of slots of `slot_words` words, a multiple of a line. Word `link` of a slot is the
    /// pool's while the slot is free. Room for the first `expected` slots comes as one block.
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

    /// A slot. All its words are initialised; they hold 0, or what they held when the slot was
    /// freed, but for the link word. `hint` spreads callers over stripes.
    pub(crate) fn alloc(&self, hint: usize) -> NonNull<M::U64> {
        let own = Self::stripe_of(hint);
        if let Some(slot) = self.stripes[own].with(|stripe| self.take_free(stripe).or_else(|| self.take_fresh(stripe)))
        {
            return slot;
        }
        for other in (0..STRIPES).filter(|other| *other != own) {
            if let Some(slot) = self.stripes[other].with(|stripe| self.take_free(stripe)) {
                return slot;
            }
        }
        self.stripes[own].with(|stripe| {
            if stripe.fresh_slots == 0 {
                self.cut(stripe);
            }
            self.take_fresh(stripe).expect("just cut")
        })
    }

    /// Takes a slot back. Others may read it still.
    pub(crate) fn free(&self, slot: NonNull<M::U64>, hint: usize) {
        // SAFETY: a slot has `slot_words` words, more than `link`.
        let link = unsafe { slot.add(self.link).as_ref() };
        self.stripes[Self::stripe_of(hint)].with(|stripe| {
            // Relaxed: the list is read under the latch only.
            link.store(stripe.free.expose_provenance() as u64, Ordering::Relaxed);
            stripe.free = slot.as_ptr();
        });
    }

    /// Bytes of all slots, in use or free.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.with(|blocks| blocks.cut)
    }

    fn take_free(&self, stripe: &mut Stripe<M>) -> Option<NonNull<M::U64>> {
        let slot = NonNull::new(stripe.free)?;
        // SAFETY: as in `free`.
        let link = unsafe { slot.add(self.link).as_ref() };
        // Relaxed: written under the latch that this thread holds.
        stripe.free = std::ptr::with_exposed_provenance_mut(link.load(Ordering::Relaxed) as usize);
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
        // SAFETY: the batch is `BATCH * slot_words` words that nobody has seen.
        unsafe { initialise::<M>(stripe.fresh, BATCH * self.slot_words) };
        stripe.fresh_slots = BATCH;
    }
}

impl<M: Machine> Drop for Pool<M> {
    fn drop(&mut self) {
        for (block, layout) in self.blocks.get_mut().all.drain(..) {
            // SAFETY: allocated with this layout, and the pool's owner, hence every user of its
            // slots, is gone.
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
