//! The memory of a simulated machine: one reserved range of addresses for each host thread.
//!
//! A line's number is its distance from the beginning of the range. Memory is handed out in the
//! order in which it is asked for, so a line has the same number on every host, whatever addresses
//! the host's allocator gives.

use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::chip::ChipError;

/// Aligned like the largest block that is asked for, and more, so that no number that is made of an
/// address depends on the host.
const ALIGN: usize = 1 << 30;

/// A range of addresses. The host gives a page when it is first written; until then it reads as
/// zeros.
pub(crate) struct Reservation {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

impl Reservation {
    /// As much as the host lets us have, up to `bytes`. `None` if it is less than `least`.
    pub(crate) fn new(bytes: usize, least: usize) -> Option<Self> {
        let mut bytes = bytes;
        while bytes >= least {
            let mapped_bytes = bytes + ALIGN;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let mapped = unsafe {
                mmap_anonymous(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            };
            if let Some(mapped) = mapped.ok().and_then(|mapped| NonNull::new(mapped.cast::<u8>())) {
                let offset = mapped.as_ptr().align_offset(ALIGN);
                // SAFETY: less than `ALIGN` further, inside the mapping.
                let start = unsafe { mapped.add(offset) };
                // SAFETY: the range was just mapped; the advice changes how it is backed, not what
                // it holds.
                let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
                return Some(Reservation { mapped, mapped_bytes, start, bytes });
            }
            bytes /= 2;
        }
        None
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and every user has borrowed it from its owner, which is gone.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// 64 GiB of addresses: more than a simulation that ends can touch.
const ARENA_BYTES: usize = 64 << 30;
const ARENA_LEAST: usize = 1 << 30;

struct Arena {
    range: Reservation,
    used: usize,
    blocks: usize,
}

impl Arena {
    fn of(arena: &mut Option<Arena>) -> Option<&mut Arena> {
        if arena.is_none() {
            *arena = Some(Arena { range: Reservation::new(ARENA_BYTES, ARENA_LEAST)?, used: 0, blocks: 0 });
        }
        arena.as_mut()
    }
}

thread_local! {
    static ARENA: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// A block of this thread's simulated memory. `None` when there is no more.
pub(crate) fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    ARENA.with_borrow_mut(|arena| {
        let arena = Arena::of(arena)?;
        let start = arena.used.next_multiple_of(layout.align());
        let end = start.checked_add(layout.size()).filter(|end| *end <= arena.range.bytes())?;
        (arena.used, arena.blocks) = (end, arena.blocks + 1);
        // SAFETY: inside the range.
        Some(unsafe { arena.range.start().add(start) })
    })
}

/// Takes a block back. When all are back, the next one is the first again.
pub(crate) fn dealloc(_: NonNull<u8>) {
    ARENA.with_borrow_mut(|arena| {
        let arena = arena.as_mut().expect("simulated memory is returned by the thread that took it");
        arena.blocks -= 1;
        if arena.blocks == 0 {
            arena.used = 0;
        }
    });
}

/// Reserves this thread's simulated memory, unless that was done before. Whatever runs on a
/// simulated machine calls it first: later an index has no way to refuse an insert.
///
/// # Errors
/// The host has too little address space.
pub fn reserve_memory() -> Result<(), ChipError> {
    let gigabytes = (ARENA_LEAST + ALIGN) >> 30;
    let message = || format!("a simulation needs {gigabytes} GiB of addresses; valid: a larger limit (ulimit -v)");
    extent().map(|_| ()).ok_or_else(|| ChipError(message()))
}

/// Of this thread's simulated memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Where it begins.
    pub(crate) start: usize,
    /// Bytes that are in use.
    pub(crate) used: usize,
    /// Bytes that can be used.
    pub(crate) capacity: usize,
}

/// This thread's simulated memory; `None` if the host has no room for it.
pub(crate) fn extent() -> Option<Extent> {
    ARENA.with_borrow_mut(|arena| {
        let arena = Arena::of(arena)?;
        let start = arena.range.start().as_ptr() as usize;
        Some(Extent { start, used: arena.used, capacity: arena.range.bytes() })
    })
}

/// How much of this thread's simulated memory is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    used: usize,
    blocks: usize,
}

/// How much is in use now.
pub(crate) fn mark() -> Mark {
    ARENA.with_borrow(|arena| match arena {
        Some(Arena { used, blocks, .. }) => Mark { used: *used, blocks: *blocks },
        None => Mark { used: 0, blocks: 0 },
    })
}

/// What was handed out since is handed out again.
pub(crate) fn rewind(to: Mark) {
    ARENA.with_borrow_mut(|arena| {
        if let Some(arena) = arena {
            (arena.used, arena.blocks) = (to.used, to.blocks);
        }
    });
}

/// Returns the part of it that is in use. The caller sees to it that no core changes it meanwhile.
pub(crate) fn bytes() -> &'static [u8] {
    match extent() {
        // SAFETY: the range is there as long as the thread, which is the caller's, and is mapped as
        // zeros.
        Some(extent) => unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(extent.start), extent.used)
        },
        None => &[],
    }
}
