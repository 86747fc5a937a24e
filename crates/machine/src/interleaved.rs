//! [`Interleaved`]: the host, with several transactions in flight on each core.
//!
//! A core that reads a line far away waits for it, some hundreds of instructions long. Here each
//! thread runs several coroutines (`run_together`), with a transaction each. Where a line is
//! awaited, the coroutine asks for it and switches to the next one, so that the misses of several
//! transactions overlap. The idea is CoroBase's: He, Lu, Wang, *CoroBase: coroutine-oriented
//! main-memory database engine*, PVLDB 14(3), 2020. There each function of the engine becomes a
//! coroutine; here the machine alone knows, and the code above is the same.
//!
//! **Waits switch as well.** The coroutine whose lock another one waits for may be a sibling on the
//! same core. It would never run if the waiting one kept the core.
//!
//! **Phases.** A thread's phase is no coroutine's, so this machine keeps none, and measures no
//! times by phase.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coroutine::{is_alone, switch_to_next};
use crate::{Cycles, Machine, Native};

/// The host machine with several coroutines on each thread; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interleaved;

/// The waits of a thread's coroutines, all together, after which the thread gives its core away:
/// perhaps all of them wait for another thread.
const WAITS: u32 = 64;

thread_local! {
    static WAITED: Cell<u32> = const { Cell::new(0) };
}

impl Machine for Interleaved {
    type U64 = AtomicU64;
    const NAME: &'static str = "interleaved";

    #[inline(always)]
    fn fence(order: Ordering) {
        Native::fence(order);
    }

    #[inline(always)]
    fn now() -> Cycles {
        Native::now()
    }

    fn cycles_per_second() -> f64 {
        Native::cycles_per_second()
    }

    fn tick_shift() -> u32 {
        Native::tick_shift()
    }

    #[inline(never)]
    fn pause() {
        Native::pause();
        switch_to_next();
    }

    #[inline(never)]
    #[cold]
    fn yield_now() {
        let waited = WAITED.get() + 1;
        WAITED.set(waited % WAITS);
        if waited == WAITS || is_alone() {
            Native::yield_now();
        }
        switch_to_next();
    }

    fn idle(cycles: Cycles) {
        let start = Self::now();
        loop {
            let passed = Self::now().wrapping_sub(start);
            if passed >= cycles {
                return;
            }
            if is_alone() {
                return Native::idle(cycles - passed);
            }
            Self::yield_now();
        }
    }

    #[inline(always)]
    fn prefetch<T>(line: *const T) {
        Native::prefetch(line);
    }

    #[inline(always)]
    fn prefetch_to_write<T>(line: *const T) {
        Native::prefetch_to_write(line);
    }

    #[inline(always)]
    fn overlaps() -> bool {
        true
    }

    #[inline(always)]
    fn await_line<T>(line: *const T) {
        Native::prefetch(line);
        switch_to_next();
    }

    #[inline(always)]
    fn await_prefetched() {
        switch_to_next();
    }

    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        Native::alloc(layout)
    }

    unsafe fn dealloc(block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { Native::dealloc(block, layout) };
    }

    #[inline(always)]
    fn le_mask(lines: &[[AtomicU64; 8]], bound: u64) -> Option<u64> {
        Native::le_mask(lines, bound)
    }

    #[inline(always)]
    fn eq_mask(words: &[AtomicU64], byte: u8) -> u64 {
        Native::eq_mask(words, byte)
    }
}
