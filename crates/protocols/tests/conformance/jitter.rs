//! A machine whose memory accesses take a random time. It opens the windows of a few instructions
//! in which races hide, even where there are few cores.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use contend_machine::{Atomic64, Cycles, Machine, Native, Ordering};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Jitter;

#[derive(Debug)]
pub(crate) struct JitterWord(AtomicU64);

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// Seeds this thread's delays.
pub(crate) fn seed(seed: u64) {
    RANDOM.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
}

fn delay() {
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    match random % 64 {
        0 => std::thread::yield_now(),
        1..=4 => (0..random >> 58).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

impl Atomic64 for JitterWord {
    fn new(value: u64) -> Self {
        JitterWord(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        delay();
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        delay();
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        delay();
        self.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.fetch_and(value, order)
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        delay();
        self.0.fetch_max(value, order)
    }
}

impl Machine for Jitter {
    type U64 = JitterWord;
    const NAME: &'static str = "jitter";

    fn fence(order: Ordering) {
        Native::fence(order);
    }
    fn now() -> Cycles {
        // A machine that has been up for long: its clock does not fit beside what shares its word.
        Native::now() + (1 << 62)
    }
    fn cycles_per_second() -> f64 {
        Native::cycles_per_second()
    }
    fn pause() {
        std::thread::yield_now();
    }
    fn pause_lets_others_run() -> bool {
        true
    }
    fn yield_now() {
        std::thread::yield_now();
    }
    fn prefetch<T>(_: *const T) {}
    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        Native::alloc(layout)
    }
    unsafe fn dealloc(block: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's promise; `alloc` is Native's.
        unsafe { Native::dealloc(block, layout) };
    }
}
