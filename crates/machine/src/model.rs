//! [`Loom`]: a machine whose memory is loom's model of C11 (`RUSTFLAGS="--cfg loom"`), so that the code that runs is the code that is
//! checked. Inside `loom::model` only.
//!
//! Loom tries the interleavings, and which older values a load may see. Its fences of sequential consistency are weaker than C11's in
//! places, so it may report what can't happen, but does not hide what can.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::{Atomic64, Cycles, Machine, Ordering};

/// The model checker's machine.
#[derive(Clone, Copy, Debug)]
pub struct Loom;

/// A word of it.
#[derive(Debug)]
pub struct LoomWord(loom::sync::atomic::AtomicU64);

impl Atomic64 for LoomWord {
    fn new(value: u64) -> Self {
        LoomWord(loom::sync::atomic::AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_and(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }
}

impl Machine for Loom {
    type U64 = LoomWord;
    const NAME: &'static str = "loom";

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
    fn now() -> Cycles {
        0
    }
    fn cycles_per_second() -> f64 {
        1e9
    }
    fn pause() {
        loom::thread::yield_now();
    }
    fn yield_now() {
        loom::thread::yield_now();
    }
    fn idle(_: Cycles) {
        loom::thread::yield_now();
    }
    fn prefetch<T>(_: *const T) {}
    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: every caller asks for at least one byte.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }
    unsafe fn dealloc(block: NonNull<u8>, layout: Layout) {
        // SAFETY: as the caller promises; `alloc` took it from here.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    }
}
