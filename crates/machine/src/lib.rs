//! The hardware a transaction runs on, as one trait.
//!
//! Everything above this crate (index, engine, protocols) reaches memory that two cores may share
//! only through [`Machine`]: metadata as atomics, payloads as word-wise relaxed atomic copies. So
//! the same source runs on the host ([`Native`]), where every method compiles to the plain
//! instruction, and on simulated machines.
//!
//! What this crate must not know: records, indexes, how any transaction works. It knows that there
//! are transactions by one vocabulary: [`Phase`] names what a core's time goes to. The names stand
//! here because all sides meet here: the engine says which phase it enters, [`Spin`] marks waiting,
//! and the machine (a chip's clocks, or a sampler on the host) adds up times by phase. No code in
//! this crate depends on what a phase means.
//!
//! Thread-private memory does not go through `Machine`.

mod block;
mod coroutine;
mod interleaved;
mod lines;
#[cfg(loom)]
mod model;
mod native;
mod phase;
mod pin;
mod sampled;
mod set_aside;
mod spin;
mod spin_mutex;
mod stack;

pub use block::Block;
pub use coroutine::{is_alone, park, run_together, wake_all};
pub use interleaved::Interleaved;
#[cfg(loom)]
pub use model::{Loom, LoomWord};
pub use native::{HugePages, Native};
pub use phase::{Activity, Operation, Phase, PhaseTimes};
pub use pin::{PinError, available_cores, pin_to_core};
pub use sampled::SampledThread;
pub use set_aside::SetAside;
pub use spin::{Spin, set_lock_backoff};
pub use spin_mutex::SpinMutex;
pub use stack::Stack;

use std::alloc::Layout;
use std::ptr::NonNull;
pub use std::sync::atomic::Ordering;

/// Time on one core's clock, in cycles of [`Machine::cycles_per_second`].
pub type Cycles = u64;

/// A 64-bit word that several cores may access at once, with the orderings of `std::sync::atomic`.
///
/// The methods mean what their namesakes of `std::sync::atomic::AtomicU64` mean.
pub trait Atomic64: std::fmt::Debug + Send + Sync + 'static {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// Makes words that hold 0, from this address on.
    ///
    /// # Safety
    /// There is aligned room for `count` words, and no other thread uses it yet.
    unsafe fn zeros(first: *mut Self, count: usize)
    where
        Self: Sized,
    {
        for position in 0..count {
            // SAFETY: in bounds and unshared by the caller's promise.
            unsafe { first.add(position).write(Self::new(0)) };
        }
    }

    /// See `AtomicU64::load`.
    fn load(&self, order: Ordering) -> u64;
    /// See `AtomicU64::store`.
    fn store(&self, value: u64, order: Ordering);
    /// See `AtomicU64::swap`.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// See `AtomicU64::compare_exchange`.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>;
    /// See `AtomicU64::fetch_add`.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// See `AtomicU64::fetch_sub`.
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    /// See `AtomicU64::fetch_or`.
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
    /// See `AtomicU64::fetch_and`.
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    /// See `AtomicU64::fetch_max`.
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
}

/// The hardware a transaction runs on.
///
/// A zero-sized type: all methods are static, a simulator keeps its state in a thread-local.
/// Payload copies take slices of [`Machine::U64`], not raw pointers, so they are safe functions and
/// a model checker's atomics can stand in for ours.
pub trait Machine: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The word two cores may share.
    type U64: Atomic64;

    /// Name of the machine in results.
    const NAME: &'static str;

    /// See `std::sync::atomic::fence`.
    fn fence(order: Ordering);

    /// This core's clock.
    fn now() -> Cycles;

    /// Frequency of [`Machine::now`], in Hz.
    fn cycles_per_second() -> f64;

    /// The logarithm of the cycles in a tick. Timestamps of a clock are made of ticks. An engine on
    /// the host may run for months, and the bits of its timestamps have to last. A run elsewhere is
    /// short, and a tick is a cycle.
    fn tick_shift() -> u32 {
        0
    }

    /// Tells the core that it is in a spin loop, which calls this in every round; see also
    /// [`Spin`].
    fn pause();

    /// Whether a [`Machine::pause`] lets others run: other transactions of this core, or whatever a
    /// model checker or an explorer chooses. A wait then pauses once from look to look.
    #[inline(always)]
    fn pause_lets_others_run() -> bool {
        Self::overlaps()
    }

    /// Gives the core to another thread, if one waits for it. [`Spin`] calls it when a wait gets
    /// long, so that an oversubscribed machine makes progress.
    fn yield_now();

    /// Charges a computation of `_instructions` that touches no shared memory: a simulated core
    /// knows of no other. Free on [`Native`], where the computation itself costs.
    #[inline(always)]
    fn work(_instructions: u32) {}

    /// Does nothing for `cycles`, and leaves the core to other threads meanwhile.
    fn idle(cycles: Cycles) {
        let start = Self::now();
        while Self::now().wrapping_sub(start) < cycles {
            Self::yield_now();
        }
    }

    /// Says what this core does from now on.
    #[inline(always)]
    fn enter(_phase: Phase) {}

    /// Returns the phase that this core entered last.
    #[inline(always)]
    fn phase() -> Phase {
        Phase::BODY
    }

    /// Adds this core's time by phase since the last call to `_into`.
    #[inline(always)]
    fn take_times(_into: &mut PhaseTimes) {}

    /// Names the step of the algorithm that follows ("lock", "validate"), for an explorer that
    /// shows an interleaving. Free on [`Native`].
    #[inline(always)]
    fn step(_name: &'static str) {}

    /// Adds to a counter that all cores share, and returns its value before. A simulated chip has
    /// an adder in its centre for this, which takes one addition a cycle. Elsewhere it is an atomic
    /// addition.
    #[inline(always)]
    fn central_add(counter: &Self::U64, value: u64) -> u64 {
        // Relaxed: a counter orders nothing but its own values.
        counter.fetch_add(value, Ordering::Relaxed)
    }

    /// Asks for the cache line at `line`. A hint: any address is allowed.
    fn prefetch<T>(line: *const T);

    /// Asks for the cache line at `line` in order to write it: one transfer instead of two, where
    /// the line would first come to be shared. A hint: any address is allowed.
    #[inline(always)]
    fn prefetch_to_write<T>(line: *const T) {
        Self::prefetch(line);
    }

    /// Whether this core has other work to do while it waits for a line: see
    /// [`Machine::await_line`]. A constant, or nearly, so that what is done for it alone costs
    /// nothing elsewhere.
    #[inline(always)]
    fn overlaps() -> bool {
        false
    }

    /// Asks for the cache line at `line`, which is read next and may be far away. A machine that
    /// has other work for this core does it meanwhile ([`Interleaved`]). On others this does
    /// nothing, since the load itself asks for the line. Any address is allowed. The caller holds
    /// no lock of the host for which a worker may wait.
    #[inline(always)]
    fn await_line<T>(_line: *const T) {}

    /// Says that lines which this core has asked for by [`Machine::prefetch`] are read next: as
    /// [`Machine::await_line`].
    #[inline(always)]
    fn await_prefetched() {}

    /// Shared memory. Uninitialised. `None` when the machine has no more. On [`Native`] a block of
    /// 2 MiB or more is advised to use huge pages; give it a layout aligned to 2 MiB to profit.
    fn alloc(layout: Layout) -> Option<NonNull<u8>>;

    /// Returns memory.
    ///
    /// # Safety
    /// `block` came from [`Machine::alloc`] of this machine with this `layout`, and nobody uses it
    /// any more.
    unsafe fn dealloc(block: NonNull<u8>, layout: Layout);

    /// Copies the first `to.len()` words of a payload out of shared memory, word by word, relaxed.
    /// The copy may be torn between words: the caller's protocol decides whether it is one state.
    #[inline(always)]
    fn copy_out(from: &[Self::U64], to: &mut [u64]) {
        // Not zipped: that is no call only where crates are optimised together.
        assert!(to.len() <= from.len(), "a copy of more words than there are");
        if let [to] = to {
            // The loop below is unrolled, and takes long to begin. Relaxed: as there.
            *to = from[0].load(Ordering::Relaxed);
            return;
        }
        for word in 0..to.len() {
            // SAFETY: `word` is below the smaller length, by the assertion. The optimiser does not
            // find that out, and would check it for each word.
            let (from, to) = unsafe { (from.get_unchecked(word), to.get_unchecked_mut(word)) };
            // Relaxed: the protocol orders the payload, by the word that it checks before and after
            // (seqlock: an Acquire fence between the last payload load and the second load of the
            // version word).
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Copies a payload into shared memory, word by word, relaxed. The caller sees to it that no
    /// other core writes there.
    #[inline(always)]
    fn copy_in(to: &[Self::U64], from: &[u64]) {
        assert!(from.len() <= to.len(), "a copy of more words than there is room for");
        if let [from] = from {
            // Relaxed: as below.
            to[0].store(*from, Ordering::Relaxed);
            return;
        }
        for word in 0..from.len() {
            // SAFETY: as in `copy_out`.
            let (from, to) = unsafe { (from.get_unchecked(word), to.get_unchecked(word)) };
            // Relaxed: published by the caller's Release store that ends the write.
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Whether a load costs more than a mispredicted branch, as on a simulated chip or under a
    /// model checker: a search should then make few of them.
    const LOADS_ARE_COSTLY: bool = false;

    /// Returns a bit for each word of these lines that is `<= bound`, the first word's lowest, by
    /// vector instructions. `None` if the machine has none, or there are more than 8 lines. Each
    /// word is read as by a relaxed load.
    #[inline(always)]
    fn le_mask(_lines: &[[Self::U64; 8]], _bound: u64) -> Option<u64> {
        None
    }

    /// Returns a bit for each byte of these words, at most eight, that is `byte`, the bit of the
    /// first word's lowest byte first. Each word is read as by a relaxed load.
    #[inline(always)]
    fn eq_mask(words: &[Self::U64], byte: u8) -> u64 {
        eq_mask_by_words::<Self>(words, byte)
    }
}

/// A 1 in each byte of a word.
pub(crate) const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// [`Machine::eq_mask`] by words, eight bytes at a time.
#[inline(always)]
fn eq_mask_by_words<M: Machine>(words: &[M::U64], byte: u8) -> u64 {
    let mut mask = 0;
    for (i, word) in words.iter().enumerate() {
        // Relaxed: see `Machine::eq_mask`.
        let difference = word.load(Ordering::Relaxed) ^ (u64::from(byte) * ONES);
        // The highest bit of each byte that is 0: the sum has that bit if one of the lower seven is
        // set, and carries nothing to the next byte.
        let lower = ONES * 0x7f;
        let zeros = !(((difference & lower) + lower) | difference | lower);
        // Brings bit `8 * i` to bit `56 + i`.
        let bits = (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * i);
    }
    mask
}
