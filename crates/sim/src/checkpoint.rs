//! Going back to how things were: all memory that was taken in a [`Region`] is what it was at a [`Checkpoint`].
//!
//! An execution of the explorer takes a microsecond or two, and to build what it runs on, ten times as long. So that is built once, in a region, and
//! taken back to after each execution. What is taken back are bytes, and so nothing has to know how to be reset, and nothing can be forgotten:
//!
//! - what is allocated in a region comes from a range of addresses of its own, one after the other, and is never given back; a checkpoint keeps a copy of
//!   what is there, and an execution's own is forgotten;
//! - the words of the simulated machine are many more, of which an execution changes few: the explorer notes what they held
//!   ([`Explorer::takes_back`]), and what the machine handed out is handed out again.
//!
//! What is neither must not change: state in statics and in thread-locals, and memory that was allocated outside of a region. Nor may a lock be taken that
//! other threads take as well. A thread that waits for a lock of `parking_lot` may have to allocate the table of all waiting threads. That table
//! would then be in the region.
//!
//! It takes an allocator that knows of regions, which is the program's to choose: [`Rewindable`]. Without it there are no regions.

use std::cell::Cell;

use crate::arena::{self, Mark};
use crate::explorer::Explorer;
use crate::region;
pub use crate::region::{Region, Rewindable};

impl Region {
    /// Keeps what is in the region now, and how much of the machine's memory is in use.
    pub fn checkpoint(&self) -> Checkpoint {
        let next = region::next();
        // SAFETY: the region up to here, of which only this thread knows, and none of it is changed meanwhile; bytes between blocks are as mapped or as
        // they were left.
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

/// In debug builds the machine's memory is compared with what it was so often.
const COMPARED_EVERY: u64 = 64;

impl Checkpoint {
    /// Bytes of the region that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes everything back to how it was. The explorer has noted ([`Explorer::takes_back`]) all changes of the machine's words since the checkpoint, or
    /// since the last time.
    ///
    /// # Safety
    /// The region is this thread's and is there still. What was allocated in it, or in the machine's memory, after the checkpoint is used no more;
    /// what was allocated before is borrowed by nobody.
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
