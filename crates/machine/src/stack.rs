//! Stacks for many coroutines.

use std::ptr::NonNull;
use std::rc::Rc;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;
/// Bytes from the beginning of a stack to that of the next: an odd number of pages, so that equal
/// depths of all stacks do not fall into the same sets of the host's caches.
const SPACING: usize = (2 * STACK_PAGES + 1) * PAGE;
/// Half of the pages of a stack. A body of TPC-C, compiled without optimisation, with room to
/// spare; the host gives only what is touched.
const STACK_PAGES: usize = 32;
/// Lines by which the stacks' tops differ from one to the next, for the caches that are indexed
/// inside of a page.
const COLOURS: usize = 16;
const COLOUR: usize = 128;

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `stacks`; each stack holds on to the mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// One of many stacks in one mapping, for a coroutine. About 256 KiB lie between its ends, and its
/// lowest page can't be touched.
#[derive(Debug)]
pub struct Stack {
    top: NonNull<u8>,
    limit: NonNull<u8>,
    _mapping: Rc<Mapping>,
}

impl Stack {
    /// Creates `count` stacks; `None` if the host has no room for them.
    pub fn many(count: usize) -> Option<Vec<Stack>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let bytes = count.checked_mul(SPACING)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        let start = NonNull::new(mapped.cast::<u8>())?;
        let mapping = Rc::new(Mapping { start, bytes });
        (0..count)
            .map(|number| {
                // SAFETY: inside the mapping.
                let limit = unsafe { start.add(number * SPACING) };
                // SAFETY: the lowest page of this stack, which nobody uses yet.
                unsafe { mprotect(limit.as_ptr().cast(), PAGE, MprotectFlags::empty()) }.ok()?;
                // SAFETY: inside the mapping as well: the colours take less than a page.
                let top = unsafe { limit.add(SPACING - number % COLOURS * COLOUR) };
                Some(Stack { top, limit, _mapping: Rc::clone(&mapping) })
            })
            .collect()
    }

    /// Returns the end where the stack begins, the higher one. It is aligned to a cache line.
    pub fn top(&self) -> NonNull<u8> {
        self.top
    }

    /// Returns the lower end, where a page that can't be touched begins.
    pub fn limit(&self) -> NonNull<u8> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_lie_apart_and_are_usable() {
        let stacks = Stack::many(20).expect("5 MiB of addresses");
        for pair in stacks.windows(2) {
            assert!(pair[0].top() <= pair[1].limit());
            assert_eq!(pair[0].top().as_ptr() as usize % 64, 0);
        }
        // SAFETY: the word below the top is the stack's own.
        stacks.iter().for_each(|stack| unsafe { stack.top().cast::<u64>().sub(1).write(1) });
        assert!(Stack::many(usize::MAX / 2).is_none(), "more than there are addresses");
    }
}
