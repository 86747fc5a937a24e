//! Restoring memory: all that a [`Region`] held at a [`Checkpoint`] is there again.
//!
//! An execution of the explorer takes a microsecond or two; building the engine and tables that it
//! runs on takes ten times as long. So these are built once, in a region, and restored after each
//! execution. Bytes are restored, not objects: so no type has to know how to be reset, and none can
//! be forgotten.
//!
//! - Allocations in a region come from a range of addresses of its own, one after the other, and
//!   are never freed. A checkpoint keeps a copy of them; later allocations are forgotten.
//! - The simulated machine has many more words, and an execution changes few of them. The explorer
//!   notes what these held ([`Explorer::takes_back`]), and the machine's later allocations are
//!   forgotten.
//!
//! Other memory must not change: statics, thread-locals, and what was allocated outside of a
//! region. Nor may a lock be taken that other threads take as well. A thread that waits for a lock
//! of `parking_lot` may have to allocate the table of all waiting threads. That table would then be
//! in the region.
//!
//! Regions need an allocator that knows them: [`Rewindable`]. The program chooses it; without it
//! there are no regions.

use std::cell::Cell;

use crate::arena::{self, Mark};
use crate::explorer::Explorer;
use crate::region;
pub use crate::region::{Region, Rewindable};

impl Region {
    /// Keeps what is in the region now, and how much of the machine's memory is in use.
    pub fn checkpoint(&self) -> Checkpoint {
        let next = region::next();
        // SAFETY: the region up to here, which only this thread knows, and which does not change
        // meanwhile. Bytes between blocks are as they were mapped, or left.
        let bytes = unsafe { std::slice::from_raw_parts(region::at(self.start), next - self.start) }.to_vec();
        let words = if cfg!(debug_assertions) { arena::bytes().to_vec() } else { Vec::new() };
        Checkpoint { start: self.start, bytes, mark: arena::mark(), words, times: Cell::new(0) }
    }
}

/// What was in a region, and in the machine's memory.
pub struct Checkpoint {
    start: usize,
    bytes: Vec<u8>,
    mark: Mark,
    /// The machine's memory, in debug builds.
    words: Vec<u8>,
    times: Cell<u64>,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// In debug builds one restoration in 64 compares the machine's memory with what it was.
const COMPARED_EVERY: u64 = 64;

impl Checkpoint {
    /// Bytes of the region that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes everything back to how it was. The explorer has noted ([`Explorer::takes_back`]) all
    /// changes of the machine's words since the checkpoint, or since the last time.
    ///
    /// # Safety
    /// The region belongs to this thread and still exists. The caller no longer uses memory that
    /// was allocated in it, or in the machine's memory, after the checkpoint. No borrow of memory
    /// that was allocated before is alive.
    pub unsafe fn restore(&self, explorer: &mut Explorer) {
        explorer.take_back();
        // SAFETY: the region is longer, and nobody looks, as the caller promises.
        unsafe { region::at(self.start).copy_from_nonoverlapping(self.bytes.as_ptr(), self.bytes.len()) };
        region::set_next(self.start + self.bytes.len());
        arena::rewind(self.mark);
        self.times.set(self.times.get() + 1);
        if cfg!(debug_assertions) && self.times.get() % COMPARED_EVERY == 1 {
            assert!(
                arena::bytes() == self.words,
                "a word of the machine was changed, and the explorer has not noted it"
            );
        }
    }
}
