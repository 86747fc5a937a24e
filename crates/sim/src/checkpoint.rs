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

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::arena::{self, Mark};
use crate::explorer::Explorer;

/// The program's allocator, when it is to know of regions: another one, and that.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: contend_sim::checkpoint::Rewindable<std::alloc::System> =
///     contend_sim::checkpoint::Rewindable(std::alloc::System);
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct Rewindable<A>(pub A);

/// Addresses of a region: more than an execution can fill.
const REGION_BYTES: usize = 4 << 30;
/// The most regions at one time.
const REGIONS: usize = 64;
/// Of an address that is in no region, and so far from the lowest.
const NOWHERE: usize = 1 << 63;

/// Where the regions begin.
static BASE: AtomicUsize = AtomicUsize::new(NOWHERE);
/// Regions that nobody has; none before the addresses are reserved.
static FREE: Mutex<Option<Vec<usize>>> = Mutex::new(None);

thread_local! {
    // None of them has a destructor, and so the allocator may use them at any time.
    /// Whether this thread allocates in its region now.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What is left of its region.
    static NEXT: Cell<usize> = const { Cell::new(0) };
    static END: Cell<usize> = const { Cell::new(0) };
}

fn is_in_a_region(address: usize) -> bool {
    // Relaxed: whoever has an address of a region has it from a thread that saw the base.
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < REGIONS * REGION_BYTES
}

// SAFETY: blocks come from the other allocator, or from a region, one after the other, aligned and inside of it, and go back to where they came from.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Rewindable<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !INSIDE.get() {
            // SAFETY: the caller's promises are those that it asks for.
            return unsafe { self.0.alloc(layout) };
        }
        let start = NEXT.get().next_multiple_of(layout.align());
        match start.checked_add(layout.size()) {
            Some(end) if end <= END.get() => {
                NEXT.set(end);
                std::ptr::with_exposed_provenance_mut(start)
            }
            _ => std::ptr::null_mut(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_in_a_region(block.addr()) {
            // SAFETY: it came from there, and as the caller promises.
            unsafe { self.0.dealloc(block, layout) };
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !INSIDE.get() {
            // SAFETY: as of `alloc`.
            return unsafe { self.0.alloc_zeroed(layout) };
        }
        // SAFETY: as of this function.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: it was just allocated, and is so large.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !INSIDE.get() && !is_in_a_region(block.addr()) {
            // SAFETY: it came from there, and as the caller promises.
            return unsafe { self.0.realloc(block, layout, size) };
        }
        // SAFETY: the caller promises that the layout of this size is one.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as of this function.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are at least so large, and the new one is nobody else's.
            unsafe { new.copy_from_nonoverlapping(block, layout.size().min(size)) };
            // SAFETY: as the caller promises.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

/// Has this thread allocate in its region, or not; answers what it did before.
#[inline]
pub(crate) fn allocate_inside(inside: bool) -> bool {
    INSIDE.replace(inside)
}

/// Does something; what it allocates is in no region.
#[cold]
pub(crate) fn outside<R>(body: impl FnOnce() -> R) -> R {
    let inside = allocate_inside(false);
    let result = body();
    allocate_inside(inside);
    result
}

/// A range of addresses in which one thread allocates what is to be taken back.
#[derive(Debug)]
pub struct Region {
    start: usize,
    /// It is the thread's.
    _thread: PhantomData<*const ()>,
}

impl Region {
    /// A region of this thread, which has none. `None` if the program's allocator knows of none, or the host has no room for it.
    pub fn new() -> Option<Region> {
        // What the thread has of its own, and frees when it ends, is made outside.
        arena::extent()?;
        let start = take()?;
        let region = Region { start, _thread: PhantomData };
        NEXT.set(start);
        END.set(start + REGION_BYTES);
        let probe = region.run(|| Box::new(0_u64));
        is_in_a_region(std::ptr::from_ref(&*probe).addr()).then_some(region)
    }

    /// Does something; what it allocates is in the region.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Back(bool);
        impl Drop for Back {
            fn drop(&mut self) {
                allocate_inside(self.0);
            }
        }
        let _back = Back(allocate_inside(true));
        body()
    }

    /// Keeps what is in the region now, and how much of the machine's memory is in use.
    pub fn checkpoint(&self) -> Checkpoint {
        let next = NEXT.get();
        // SAFETY: the region up to here, of which only this thread knows, and none of it is changed meanwhile; bytes between blocks are as mapped or as
        // they were left.
        let bytes = unsafe { std::slice::from_raw_parts(at(self.start), next - self.start) }.to_vec();
        let words = if cfg!(debug_assertions) { arena::bytes().to_vec() } else { Vec::new() };
        Checkpoint { start: self.start, bytes, mark: arena::mark(), words, times: Cell::new(0) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        allocate_inside(false);
        END.set(0);
        NEXT.set(0);
        // What a panic leaves behind may be looked at by other threads.
        if !std::thread::panicking()
            && let Ok(mut free) = FREE.lock()
            && let Some(free) = &mut *free
        {
            free.push(self.start);
        }
    }
}

fn at(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// A region that nobody has.
fn take() -> Option<usize> {
    let mut free = FREE.lock().ok()?;
    if free.is_none() {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let bytes = REGIONS * REGION_BYTES;
        // SAFETY: a new mapping, at an address that the kernel chooses. It is there as long as the process.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let base = mapped.map_or(0, |mapped| mapped.expose_provenance());
        if base != 0 {
            // Relaxed: as in `is_in_a_region`.
            BASE.store(base, Ordering::Relaxed);
        }
        let all = if base == 0 { 0..0 } else { 0..REGIONS };
        *free = Some(all.map(|number| base + number * REGION_BYTES).collect());
    }
    free.as_mut()?.pop()
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
        unsafe { at(self.start).copy_from_nonoverlapping(self.bytes.as_ptr(), self.bytes.len()) };
        NEXT.set(self.start + self.bytes.len());
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
