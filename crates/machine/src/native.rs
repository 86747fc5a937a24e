//! [`Native`]: the host. Every method is the plain instruction.
//!
//! The orderings are passed on as they are. A word's methods are inlined with the constants that
//! the callers name, so no choice among orderings is left at run time. On x86-64 a load of any
//! ordering is the plain instruction, and so is a store that is not SeqCst. Acquire and Release
//! fences bind the compiler only. A SeqCst fence, a SeqCst store and every read-modify-write wait
//! for the core's store buffer. On aarch64 Acquire and Release have instructions of their own, and
//! every fence is a barrier. So an argument has to hold in C11: that a test passes on x86-64 says
//! little about Acquire and Release.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Atomic64, Cycles, Machine, Phase, PhaseTimes, lines, sampled, set_aside};

/// The host machine, at no cost over `std::sync::atomic`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl Atomic64 for AtomicU64 {
    #[inline(always)]
    fn new(value: u64) -> Self {
        AtomicU64::new(value)
    }
    #[inline(always)]
    unsafe fn zeros(first: *mut Self, count: usize) {
        // It is one call also where the compiler inlines nothing. An index makes thousands of
        // words.
        // SAFETY: by the caller's promise; a word of 0 is all zeros.
        unsafe { first.write_bytes(0, count) };
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }
    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    #[inline(always)]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
    #[inline(always)]
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_or(value, order)
    }
    #[inline(always)]
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_and(value, order)
    }
    #[inline(always)]
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
}

const HUGE_PAGE: usize = 2 << 20;
/// Bytes that were advised to use huge pages, for [`HugePages::advised_bytes`]. It is not in a line
/// of its own: it changes once for each large block.
static ADVISED: AtomicUsize = AtomicUsize::new(0);

impl Machine for Native {
    type U64 = AtomicU64;
    const NAME: &'static str = "native";

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline(always)]
    fn now() -> Cycles {
        // Neither instruction is ordered with the loads and stores around it: the processor may
        // read the clock early or late by some instructions. And the clocks of two cores may differ
        // a little. So a time never stands for happens-before. Callers measure with it, wait by it,
        // or make timestamps of it, whose order their protocols enforce by other words.
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: RDTSC exists on every x86-64 processor and only reads the time stamp counter.
            unsafe { std::arch::x86_64::_rdtsc() }
        }
        #[cfg(target_arch = "aarch64")]
        {
            let ticks: u64;
            // SAFETY: reads the virtual counter, which Linux lets user space read.
            unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
            ticks
        }
    }

    fn cycles_per_second() -> f64 {
        // One thread measures, for 20 ms. Others that ask meanwhile wait for it, so all compute
        // with one frequency: `get_or_init` orders the measurement before each return.
        static FREQUENCY: OnceLock<f64> = OnceLock::new();
        *FREQUENCY.get_or_init(calibrate)
    }

    /// A tick is 16 to 32 nanoseconds, a fraction of the shortest transaction.
    fn tick_shift() -> u32 {
        (Self::cycles_per_second() * 32e-9).max(1.0).log2() as u32
    }

    #[inline(always)]
    fn pause() {
        // A hint to the core, not a fence. A loop that pauses still needs the ordering of its load.
        std::hint::spin_loop();
    }

    #[inline(never)]
    #[cold]
    fn yield_now() {
        // The holder of a lock may be without a core. Then no pause would let it run, but a system
        // call does. It is rare, hence cold and out of the callers' code.
        std::thread::yield_now();
    }

    fn idle(cycles: Cycles) {
        let (start, per_second) = (Self::now(), Self::cycles_per_second());
        loop {
            let passed = Self::now().wrapping_sub(start);
            if passed >= cycles {
                return;
            }
            // A sleep ends some 60 us late: the last of the time is waited for.
            match Duration::from_secs_f64((cycles - passed) as f64 / per_second).checked_sub(Duration::from_micros(100))
            {
                Some(sleep) => std::thread::sleep(sleep),
                None => Self::yield_now(),
            }
        }
    }

    #[inline(always)]
    fn enter(phase: Phase) {
        sampled::enter(phase);
    }

    #[inline(always)]
    fn phase() -> Phase {
        sampled::phase()
    }

    #[inline(always)]
    fn take_times(into: &mut PhaseTimes) {
        sampled::take_times(into);
    }

    #[inline(always)]
    fn prefetch<T>(line: *const T) {
        // A prefetch brings a line, not a value: the load that follows gets its ordering and its
        // value by itself. So a reader may prefetch an address that it has not validated, such as a
        // child's, and must not follow it yet.
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
        }
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags)) };
        }
    }

    #[inline(always)]
    fn prefetch_to_write<T>(line: *const T) {
        // It takes the line from the cores that read it. So it pays only where a write is sure to
        // follow soon, and not for a look that mostly finds nothing to do.
        #[cfg(target_arch = "x86_64")]
        {
            // Not the intrinsic: without the target feature `prfchw` it becomes a prefetch to read.
            // Every 64-bit processor takes the instruction, if only as one that does nothing.
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) };
        }
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags)) };
        }
    }

    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        // The block is private until the caller publishes its address. Before that the caller makes
        // atomic words of it by plain writes. Whatever publishes the address (a Release store, or
        // the end of a lock's section) publishes them with it.
        debug_assert!(layout.size() > 0, "shared memory of no bytes");
        if let Some(block) = set_aside::lent(layout) {
            return Some(block);
        }
        // SAFETY: every caller asks for at least one byte.
        let block = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        if layout.size() >= HUGE_PAGE {
            advise_huge_pages(block, layout.size());
        }
        Some(block)
    }

    unsafe fn dealloc(block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the allocator's. Indexes, slabs and `Block`s keep it by
        // returning memory only when they are dropped, which takes an exclusive borrow: every other
        // thread's last access happens before.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    }

    #[inline(always)]
    fn le_mask(lines: &[[AtomicU64; 8]], bound: u64) -> Option<u64> {
        lines::le_mask(lines, bound)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn eq_mask(words: &[AtomicU64], byte: u8) -> u64 {
        match <&[AtomicU64; 4]>::try_from(words) {
            Ok(words) => lines::eq_mask(words, byte),
            Err(_) => crate::eq_mask_by_words::<Self>(words, byte),
        }
    }
}

/// Advises the whole huge pages inside the block. A refusal (a kernel without them) costs speed,
/// not correctness.
fn advise_huge_pages(block: NonNull<u8>, size: usize) {
    let start = (block.as_ptr() as usize).next_multiple_of(HUGE_PAGE);
    let end = (block.as_ptr() as usize + size) & !(HUGE_PAGE - 1);
    if start >= end {
        return;
    }
    // SAFETY: the range lies inside the block just allocated; the advice changes how it is backed,
    // not what it holds.
    let advised =
        unsafe { rustix::mm::madvise(start as *mut _, end - start, rustix::mm::Advice::LinuxHugepage) }.is_ok();
    if advised {
        // Relaxed: a statistic, which `HugePages::of_this_process` loads. The addition is atomic,
        // so that no thread's bytes are lost, and orders nothing.
        ADVISED.fetch_add(end - start, Ordering::Relaxed);
    }
}

/// Whether this process got the huge pages that it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of shared memory that were advised to use huge pages since the process started.
    pub advised_bytes: u64,
    /// Bytes of this process that huge pages back now, as the kernel counts them.
    pub granted_bytes: u64,
}

impl HugePages {
    /// Asks the kernel (`/proc/self/smaps_rollup`).
    pub fn of_this_process() -> HugePages {
        let granted = std::fs::read_to_string("/proc/self/smaps_rollup")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("AnonHugePages:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            })
            .unwrap_or(0);
        // Relaxed: a statistic; pairs with the addition in `advise_huge_pages`. The two numbers are
        // of different moments, so a caller must not expect one to bound the other.
        HugePages { advised_bytes: ADVISED.load(Ordering::Relaxed) as u64, granted_bytes: granted << 10 }
    }
}

/// Counts the clock's ticks over 20 ms of the system's monotonic clock.
fn calibrate() -> f64 {
    #[cfg(target_arch = "aarch64")]
    {
        let hertz: u64;
        // SAFETY: reads the counter's frequency, which Linux lets user space read.
        unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack)) };
        if hertz > 0 {
            return hertz as f64;
        }
    }
    let (start, ticks) = (Instant::now(), Native::now());
    while start.elapsed() < Duration::from_millis(20) {
        Native::pause();
    }
    (Native::now() - ticks) as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_agrees_with_the_system() {
        let hertz = Native::cycles_per_second();
        // From 1 MHz (slow Arm counters) to 10 GHz: a wrong unit falls outside.
        assert!((1e6..1e10).contains(&hertz), "{hertz} Hz");
        assert!(Native::now() <= Native::now());
    }

    #[test]
    fn large_blocks_are_usable_and_advised() {
        let layout = Layout::from_size_align(4 * HUGE_PAGE, HUGE_PAGE).expect("a power of two");
        let before = HugePages::of_this_process().advised_bytes;
        let block = Native::alloc(layout).expect("8 MiB");
        // SAFETY: inside the block.
        unsafe { block.as_ptr().write_bytes(1, layout.size()) };
        let after = HugePages::of_this_process();
        assert!(after.advised_bytes == before || after.advised_bytes >= before + 4 * HUGE_PAGE as u64);
        // SAFETY: allocated above with this layout.
        unsafe { Native::dealloc(block, layout) };
    }

    #[test]
    fn copies_keep_every_word() {
        let shared: Vec<AtomicU64> = (0..9).map(AtomicU64::new).collect();
        let mut private = [0; 9];
        Native::copy_out(&shared, &mut private);
        assert_eq!(private, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        Native::copy_in(&shared[2..4], &[70, 80]);
        Native::copy_out(&shared[1..], &mut private[..4]);
        assert_eq!(private[..4], [1, 70, 80, 4]);
    }
}
