//! Stacks for many coroutines.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
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

/// One of many stacks in one mapping.
pub(crate) struct OneOfMany {
    base: NonZeroUsize,
    limit: NonZeroUsize,
    _mapping: Rc<Mapping>,
}

// SAFETY: `limit` begins with a guard page, and about 256 KiB are left.
unsafe impl Stack for OneOfMany {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Creates `count` stacks; `None` if the host has no room for them.
pub(crate) fn stacks(count: usize) -> Option<Vec<OneOfMany>> {
    let bytes = count * SPACING;
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
            let top = limit.as_ptr() as usize + SPACING - number % COLOURS * COLOUR;
            let base = NonZeroUsize::new(top & !(STACK_ALIGNMENT - 1))?;
            Some(OneOfMany { base, limit: limit.addr(), _mapping: Rc::clone(&mapping) })
        })
        .collect()
}
