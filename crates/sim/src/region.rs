//! Regions: ranges of addresses in which one thread allocates what will be taken back.
//!
//! [`Rewindable`] is the program's allocator; it sends an allocation to the thread's [`Region`]
//! while the thread says so. Blocks of a region are given out one after the other, and never
//! reused.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::arena;

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
    // Relaxed: an address of a region comes from a thread that saw the base, by whatever handed the
    // address on; pairs with `take`.
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < REGIONS * REGION_BYTES
}

// SAFETY: blocks come from the other allocator, or from a region, one after the other, aligned and
// inside of it, and go back to where they came from.
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
    pub(crate) start: usize,
    /// It is the thread's.
    _thread: PhantomData<*const ()>,
}

impl Region {
    /// A region of this thread, which has none. `None` if the program's allocator knows of none, or
    /// the host has no room for it.
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

pub(crate) fn at(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// A region that nobody has.
fn take() -> Option<usize> {
    let mut free = FREE.lock().ok()?;
    if free.is_none() {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let bytes = REGIONS * REGION_BYTES;
        // SAFETY: a new mapping, at an address that the kernel chooses. It is there as long as the
        // process.
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

/// Returns the address at which this thread's next block in its region begins.
pub(crate) fn next() -> usize {
    NEXT.get()
}

/// Has the next block in this thread's region begin at `address`.
pub(crate) fn set_next(address: usize) {
    NEXT.set(address);
}
