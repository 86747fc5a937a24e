//! The memory of records, and of blocks of copies: chunks of equal slots, filled by one worker at a
//! time.
//!
//! A worker owns an [`Arena`] for each table that it inserts into, so an allocation touches no
//! shared memory. What is said of tables here holds for the blocks of copies, which belong to the
//! engine (`cell_copy`). The memory is type-stable: a slot consists of atomic words from its first
//! use on, and chunks are freed only with the table. So an address that a transaction has read from
//! an index always leads to words that it may load, even if the record was reused meanwhile. That
//! this doesn't happen within a transaction is guaranteed by the epochs ([`crate::epoch`]), and no
//! word of this module synchronises with a reader.
//!
//! Arenas and chunks change hands under the two mutexes of [`Slabs`] only. The arena of a worker
//! that ends goes back to the table, and from there to the next worker. The unlock of one worker
//! happens before the lock of the next, which therefore sees all slots of the chunk as the former
//! worker left them.
//!
//! **The life of a slot.** No thread knows a fresh slot. Its words are written plainly, once, to
//! become atomic words. The insert into the index publishes its address with them (the Release that
//! ends the change of a leaf), or the protocol publishes that of an old version. A released slot is
//! different: an old reader may have loaded its words, so they stay atomic and are never written
//! plainly again. A record of the index is released when no transaction can hold its address. The
//! epochs order the last load of its last holder before that (docs/memory_ordering.md, section 7),
//! so that holder sees none of the next owner's Relaxed stores. A copy of an old version may be
//! released earlier. Its reader then finds out by a word of the copy (`multiversion/chain.rs`).
//!
//! **Progress.** The two mutexes are never held together, and no word of the machine is accessed
//! under one. So a section always ends. On a simulated machine no core is suspended within a
//! section, which would stop the host's only thread.

use std::alloc::Layout;
use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering, SetAside};
use parking_lot::Mutex;

use crate::config::Alignment;
use crate::record::Record;

/// The bytes of an arena's first chunk. Each further chunk is twice as large, up to
/// [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 16 << 10;
/// The first capacity of an arena's list of free records. It is larger than the number of old
/// versions that a worker makes until they are collected, so the list need not grow later.
const FREE_AT_FIRST: usize = 1024;
/// An arena with this many free records, or with free records of [`FREE_BYTES_MAX`] bytes, gives
/// half of them away. Otherwise rows that one worker inserts and another deletes would pile up at
/// the second, while the first takes new memory.
const FREE_MAX: usize = 8 << 10;
const FREE_BYTES_MAX: usize = 4 << 20;
/// The largest chunk, unless a slot is larger: as much as a worker sets aside at a time. With
/// larger ones, much of an arena's last chunk would be empty.
const CHUNK_BYTES_MAX: usize = SetAside::BLOCK;
const HUGE_PAGE: usize = 2 << 20;
/// The number of rows from which on a table is large. TPC-C's districts, which are written by all,
/// are fewer than that with 1,024 warehouses.
const LARGE_TABLE: usize = 16 << 10;
const LINE: usize = 64;

/// A piece of the machine's memory. The list of chunks only tells what to free in the end; no slot
/// is found by it.
struct Chunk {
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a chunk is only an allocation, which is returned once.
unsafe impl Send for Chunk {}

/// All chunks of one table, and the arenas that no worker holds.
pub(crate) struct Slabs<M: Machine> {
    /// Never changes: it is read without a lock.
    slot_words: usize,
    /// The number of free records at which an arena gives half of them away. Never changes, either.
    free_max: usize,
    /// Grows by a chunk at a time, by whichever worker needs one; shrinks in `drop` only.
    chunks: Mutex<Vec<Chunk>>,
    /// An arena is here, or a worker owns it, never both. The mutex orders the former owner's
    /// writes to its slots before the next owner's.
    idle: Mutex<Vec<Arena<M>>>,
}

/// One worker's share of a table's memory: the rest of its newest chunk, and its free records.
pub(crate) struct Arena<M: Machine> {
    /// The first slot that was never used. No other arena has slots of this chunk's rest.
    next: *mut M::U64,
    slots_left: usize,
    chunk_bytes: usize,
    /// A stack, so that the next allocation takes what was released last, and finds it in the
    /// cache. A record may be of another arena's chunk: the worker that deletes releases it to its
    /// own.
    free: Vec<Record<M>>,
}

/// The arenas of a worker, by their numbers.
pub(crate) struct Arenas<M: Machine>(Vec<Option<Arena<M>>>);

impl<M: Machine> Default for Arenas<M> {
    fn default() -> Self {
        Arenas(Vec::new())
    }
}

impl<M: Machine> std::fmt::Debug for Arenas<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Arenas").field(&self.0.len()).finish()
    }
}

impl<M: Machine> Arenas<M> {
    /// Returns the arena with this number, which is one of `slabs`.
    #[inline(always)]
    pub(crate) fn of(&mut self, number: u32, slabs: &Slabs<M>) -> &mut Arena<M> {
        let number = number as usize;
        // A worker that never inserts into a table has no arena there, and takes no mutex for it.
        if !matches!(self.0.get(number), Some(Some(_))) {
            self.add(number, slabs);
        }
        self.0[number].as_mut().expect("it has just been there, or was added")
    }

    #[cold]
    fn add(&mut self, number: usize, slabs: &Slabs<M>) {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number] = Some(slabs.arena());
    }

    /// Takes all arenas, each with its number.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (usize, Arena<M>)> + '_ {
        self.0.drain(..).enumerate().filter_map(|(table, arena)| Some((table, arena?)))
    }
}

// SAFETY: the pointer leads to unused slots, which only this arena hands out.
unsafe impl<M: Machine> Send for Arena<M> {}

impl<M: Machine> Arena<M> {
    fn new() -> Self {
        Arena { next: std::ptr::null_mut(), slots_left: 0, chunk_bytes: CHUNK_BYTES_MIN, free: Vec::new() }
    }

    /// Whether the next allocation reuses a record.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a record back. No transaction needs it any more. One that holds it, as may be with an
    /// old version, finds out by words of its protocol.
    pub(crate) fn release(&mut self, record: Record<M>) {
        if self.free.capacity() == 0 {
            self.free.reserve(FREE_AT_FIRST);
        }
        self.free.push(record);
    }
}

/// Returns the number of words of a slot for records of `words` words, in a table with this
/// expected number of rows.
///
/// A record of up to a line does not straddle two lines. A longer one of a small table starts a
/// line, because its neighbours may be written at the same time. In a large table it starts at a
/// line or a half line. Rows that are inserted one after the other then share lines, and metadata
/// of up to half a line is in one.
pub(crate) fn slot_words(words: usize, alignment: Alignment, expected_rows: usize) -> usize {
    let bytes = words * 8;
    let slot = match alignment {
        Alignment::Packed if bytes <= LINE => bytes.next_power_of_two(),
        Alignment::Packed if expected_rows >= LARGE_TABLE => bytes.next_multiple_of(LINE / 2),
        Alignment::Packed | Alignment::Line => bytes.next_multiple_of(LINE),
    };
    slot / 8
}

impl<M: Machine> Slabs<M> {
    /// Returns slabs with slots of this number of words ([`slot_words`]).
    pub(crate) fn new(slot_words: usize) -> Self {
        let free_max = (FREE_BYTES_MAX / (slot_words * 8)).clamp(2, FREE_MAX);
        Slabs { slot_words, free_max, chunks: Mutex::new(Vec::new()), idle: Mutex::new(Vec::new()) }
    }

    /// Whether each slot begins a line.
    #[inline(always)]
    pub(crate) fn begin_lines(&self) -> bool {
        self.slot_words.is_multiple_of(LINE / 8)
    }

    /// Returns the bytes of a slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_words * size_of::<M::U64>()
    }

    /// Returns an arena for a worker: one that another worker left, or a new one.
    pub(crate) fn arena(&self) -> Arena<M> {
        // Pairs with `park`: the unlock there happens before this lock, so the words of the slots
        // are as the former owner left them.
        self.unparked().unwrap_or_else(Arena::new)
    }

    /// Returns an arena that another worker has parked.
    fn unparked(&self) -> Option<Arena<M>> {
        let parked = self.idle.lock().pop();
        // A reader may still read a record by an old address (`ChainedVersion::is_there`). The
        // other worker marked the record as gone before it parked it, and this thread will store
        // into it. The fence of the other worker orders only that worker's own stores.
        //
        // Release: pairs with the Acquire fence of the reader. If it meets such a store, it finds
        // the mark at its second look.
        M::fence(Ordering::Release);
        parked
    }

    /// Takes back the arena of a worker that ends.
    pub(crate) fn park(&self, arena: Arena<M>) {
        self.idle.lock().push(arena);
    }

    /// Gives free records to workers that have none, if the arena has many.
    #[inline(always)]
    pub(crate) fn share(&self, arena: &mut Arena<M>) {
        // No shared memory is touched below the limit: the test reads the worker's own arena.
        if arena.free.len() >= self.free_max {
            self.give_away(arena);
        }
    }

    #[cold]
    fn give_away(&self, arena: &mut Arena<M>) {
        // The records that were freed last are still in the cache, and stay. Half of the limit goes
        // at once, so a worker that only deletes short rows takes the mutex once in 4,096 of them.
        let free = arena.free.drain(..self.free_max / 2).collect();
        self.park(Arena { free, ..Arena::new() });
    }

    /// Returns a record whose words hold anything. `None` if the machine has no more memory.
    #[inline(always)]
    pub(crate) fn allocate(&self, arena: &mut Arena<M>) -> Option<Record<M>> {
        match arena.free.pop() {
            // Not cleared: the caller sets all words that it needs by atomic stores.
            Some(record) => Some(record),
            None => self.allocate_new(arena),
        }
    }

    #[inline(never)]
    fn allocate_new(&self, arena: &mut Arena<M>) -> Option<Record<M>> {
        loop {
            if let Some(record) = arena.free.pop() {
                // As in `allocate`.
                return Some(record);
            }
            if arena.slots_left > 0 {
                break;
            }
            self.refill(arena)?;
        }
        let words = arena.next;
        arena.slots_left -= 1;
        // SAFETY: one slot further, and at most one past the chunk's end.
        arena.next = unsafe { words.add(self.slot_words) };
        for word in 0..self.slot_words {
            // SAFETY: inside the slot, which no other thread knows yet. The write makes it a valid
            // word. It is plain, since the publication of the record's address orders it before
            // every access of another thread.
            unsafe { words.add(word).write(M::U64::new(0)) };
        }
        // SAFETY: a chunk's address is not null, and the chunk lives as long as the slabs.
        Some(unsafe { Record::new(NonNull::new_unchecked(words)) })
    }

    #[cold]
    fn refill(&self, arena: &mut Arena<M>) -> Option<()> {
        // First the arenas that ended workers left, and records that others gave away. The arena
        // here has no slots left and no free records, so nothing is lost when it is replaced.
        if let Some(parked) = self.unparked() {
            let chunk_bytes = arena.chunk_bytes.max(parked.chunk_bytes);
            *arena = Arena { chunk_bytes, ..parked };
            return Some(());
        }
        let slot = self.slot_bytes();
        // Not a multiple of the slot: what was set aside comes in blocks of one size.
        let bytes = arena.chunk_bytes.max(slot);
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
        let layout = Layout::from_size_align(bytes, align).ok()?;
        let block = M::alloc(layout)?;
        // Allocated before the lock is taken, which is then held for a push only.
        self.chunks.lock().push(Chunk { block, layout });
        arena.next = block.as_ptr().cast();
        arena.slots_left = bytes / slot;
        arena.chunk_bytes = (arena.chunk_bytes * 2).min(CHUNK_BYTES_MAX);
        Some(())
    }

    /// Returns the memory of all chunks. Each is filled with slots from its start on.
    pub(crate) fn memory(&self) -> Vec<std::ops::Range<usize>> {
        let chunks = self.chunks.lock();
        chunks.iter().map(|chunk| chunk.block.addr().get()..chunk.block.addr().get() + chunk.layout.size()).collect()
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.lock().iter().map(|chunk| chunk.layout.size()).sum()
    }
}

impl<M: Machine> Drop for Slabs<M> {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: `refill` allocated the chunk with this layout. Every user of a record keeps
            // the table, so no use can follow.
            unsafe { M::dealloc(chunk.block, chunk.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn short_records_stay_within_a_line_and_long_ones_begin_one_unless_the_table_is_large() {
        let slots = |words, alignment| [0, LARGE_TABLE].map(|rows| slot_words(words, alignment, rows));
        assert_eq!(slots(1, Alignment::Packed), [1, 1]);
        assert_eq!(slots(5, Alignment::Packed), [8, 8]);
        assert_eq!(slots(9, Alignment::Packed), [16, 12]);
        assert_eq!(slots(13, Alignment::Packed), [16, 16]);
        assert_eq!(slots(5, Alignment::Line), [8, 8]);
        assert_eq!(slots(9, Alignment::Line), [16, 16]);
    }

    #[test]
    fn a_chunk_is_what_was_set_aside_whatever_the_slot() {
        let slabs = Slabs::<Native>::new(12);
        let mut arena = slabs.arena();
        let mut aside = SetAside::default();
        aside.grow_to(2 * SetAside::BLOCK);
        aside.lend(|| {
            for _ in 0..3 * CHUNK_BYTES_MAX / slabs.slot_bytes() {
                slabs.allocate(&mut arena).expect("memory");
            }
        });
        assert_eq!(aside.bytes(), 0, "both blocks serve");
    }

    #[test]
    fn records_return_to_the_worker_that_needs_them() {
        let slabs = Slabs::<Native>::new(4);
        let (mut inserts, mut deletes) = (slabs.arena(), slabs.arena());
        let mut pass = |records: usize| {
            for _ in 0..records {
                let record = slabs.allocate(&mut inserts).expect("memory");
                deletes.release(record);
                slabs.share(&mut deletes);
            }
            slabs.bytes()
        };
        let at_first = pass(4 * FREE_MAX);
        assert_eq!(pass(100 * FREE_MAX), at_first, "one worker's records are free, and another takes new ones");
    }
}
