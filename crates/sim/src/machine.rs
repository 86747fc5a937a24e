//! [`Simulated`]: the machine whose accesses go to the hook that is set.
//!
//! **One host thread.** All cores of a simulation are coroutines of one thread of the host. Another
//! core runs only where a core gives the thread away: in the calls of the hook. So what stands
//! between two such calls is atomic, and memory is sequentially consistent. No access of this
//! module has a partner in another thread. The order that a caller asks for is ignored: a run can't
//! show that one is too weak (the model checker does that, `machine::Loom`).
//!
//! **First the hook, then the word.** Every access calls its hook before it touches the word, and
//! lets no core run between touching and returning. The hook returns when it is this core's turn:
//! that is the moment of the access. The other way round a core would load a word, lose its turn,
//! and return a value that others have changed since.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use contend_machine::{Atomic64, Cycles, Machine, Native, Ordering, Phase, PhaseTimes};

use crate::access::{Access, are_free};
use crate::arena;
use crate::chip::Chip;
use crate::clock;
use crate::explorer::Explorer;
use crate::hook::{AccessHook, hook};

/// A machine that is simulated; see the crate.
#[derive(Clone, Copy, Debug)]
pub struct Simulated;

/// A word of it. Only one core runs at a time, so the host's word needs no ordering: every access
/// is sequentially consistent. It is an atomic word only because the trait lends it out shared.
#[derive(Debug)]
#[repr(transparent)]
pub struct SimulatedWord(AtomicU64);

/// Announces a load: it is charged, and other cores may run before it. It is the one call of most
/// loads. The rest is not inlined here, as it needs registers that would have to be saved before.
#[inline(never)]
fn watch_load(address: usize) {
    // A free access has no turn to wait for: the backend has said beforehand that no other core
    // runs within the next accesses.
    if !are_free(1) {
        watch_load_that_counts(address);
    }
}

#[inline(never)]
fn watch_load_that_counts(address: usize) {
    match hook() {
        AccessHook::None => {}
        AccessHook::Chip(chip) => Chip::access(chip, address, Access::Read),
        AccessHook::Explorer(explorer) => Explorer::load(explorer, address),
    }
}

/// Announces an access that changes the word, or may.
#[inline(never)]
fn watch_change(address: usize, access: Access) {
    match hook() {
        AccessHook::None => {}
        AccessHook::Chip(chip) => Chip::access(chip, address, access),
        AccessHook::Explorer(explorer) => Explorer::change(explorer, address, access),
    }
}

impl SimulatedWord {
    #[inline]
    fn watch(&self, access: Access) {
        let address = std::ptr::from_ref(self) as usize;
        match access {
            Access::Read => watch_load(address),
            Access::Write | Access::Update => watch_change(address, access),
        }
    }

    // Relaxed, here and below: all cores are coroutines of one host thread, so that no access has a
    // partner on another. The thread's own order of program is the order of all cores' accesses.
    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn update(&self, change: impl FnOnce(u64) -> u64) -> u64 {
        // A load and a store of the host are one read-modify-write of the simulated machine: the
        // hook is called once, before both. With a call between them two cores could add to one old
        // value.
        self.watch(Access::Update);
        let old = self.get();
        // Relaxed: as in `get`.
        self.0.store(change(old), Ordering::Relaxed);
        old
    }
}

impl Atomic64 for SimulatedWord {
    fn new(value: u64) -> Self {
        SimulatedWord(AtomicU64::new(value))
    }

    unsafe fn zeros(first: *mut Self, count: usize) {
        // As `new`, this takes no simulated time.
        // SAFETY: by the caller's promise; a word of 0 is all zeros.
        unsafe { first.write_bytes(0, count) };
    }

    #[inline]
    fn load(&self, _: Ordering) -> u64 {
        self.watch(Access::Read);
        self.get()
    }

    #[inline]
    fn store(&self, value: u64, _: Ordering) {
        self.watch(Access::Write);
        // Relaxed: as in `get`.
        self.0.store(value, Ordering::Relaxed);
    }

    fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.update(|_| value)
    }

    fn compare_exchange(&self, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        // An exchange that fails takes the line as well, as on the hardware. It stores what it has
        // found, which no core can have changed in between.
        let old = self.update(|old| if old == current { new } else { old });
        if old == current { Ok(old) } else { Err(old) }
    }

    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| old.wrapping_add(value))
    }

    fn fetch_sub(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| old.wrapping_sub(value))
    }

    fn fetch_or(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| old | value)
    }

    fn fetch_and(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| old & value)
    }

    fn fetch_max(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| old.max(value))
    }
}

impl Machine for Simulated {
    type U64 = SimulatedWord;
    const NAME: &'static str = "simulated";
    const LOADS_ARE_COSTLY: bool = true;

    fn fence(order: Ordering) {
        // SeqCst: pairs with nothing here. Memory is sequentially consistent without it, since the
        // accesses of all cores are in the one order of the host's thread. On a chip it costs time.
        // Acquire and Release fences are taken to cost none, as on x86-64.
        if let (AccessHook::Chip(chip), Ordering::SeqCst) = (hook(), order) {
            Chip::fence(chip);
        }
    }

    fn now() -> Cycles {
        match hook() {
            AccessHook::None => 0,
            AccessHook::Chip(chip) => Chip::now(chip),
            AccessHook::Explorer(explorer) => Explorer::now(explorer),
        }
    }

    fn cycles_per_second() -> f64 {
        clock::hertz()
    }

    fn pause() {
        match hook() {
            AccessHook::None => {}
            AccessHook::Chip(chip) => Chip::pause(chip),
            AccessHook::Explorer(explorer) => Explorer::pause(explorer),
        }
    }

    /// Under the explorer each pause is a step, and the steps of a schedule are limited.
    fn pause_lets_others_run() -> bool {
        matches!(hook(), AccessHook::Explorer(_)) || Self::overlaps()
    }

    fn yield_now() {
        // Under the explorer it is a pause: the strategy lets another core run, and the wait ends
        // when that one has changed what is waited for.
        if let AccessHook::Chip(chip) = hook() {
            Chip::yield_now(chip);
            return Chip::next(chip);
        }
        Self::pause();
    }

    fn idle(cycles: Cycles) {
        match hook() {
            AccessHook::None => {}
            AccessHook::Chip(chip) => Chip::idle(chip, cycles),
            AccessHook::Explorer(explorer) => {
                let start = Explorer::now(explorer);
                while Explorer::now(explorer).wrapping_sub(start) < cycles {
                    Explorer::pause(explorer);
                }
            }
        }
    }

    fn work(instructions: u32) {
        if let AccessHook::Chip(chip) = hook() {
            Chip::work(chip, instructions);
        }
    }

    fn enter(phase: Phase) {
        if let AccessHook::Chip(chip) = hook() {
            Chip::enter(chip, phase);
        }
    }

    fn phase() -> Phase {
        match hook() {
            AccessHook::Chip(chip) => Chip::phase(chip),
            _ => Phase::BODY,
        }
    }

    fn take_times(into: &mut PhaseTimes) {
        if let AccessHook::Chip(chip) = hook() {
            Chip::take_times(chip, into);
        }
    }

    fn step(name: &'static str) {
        if let AccessHook::Explorer(explorer) = hook() {
            Explorer::step(explorer, name);
        }
    }

    fn central_add(counter: &SimulatedWord, value: u64) -> u64 {
        // Relaxed, both: as in `SimulatedWord::get`. Elsewhere than on a chip it is an update like
        // any other, and a step of the explorer.
        let AccessHook::Chip(chip) = hook() else { return counter.fetch_add(value, Ordering::Relaxed) };
        Chip::central(chip);
        // Relaxed: as above. The turn was taken in `central`, so no core comes between these two.
        let old = counter.get();
        counter.0.store(old.wrapping_add(value), Ordering::Relaxed);
        old
    }

    /// Where no hook is set, as when tables are loaded, the host's own prefetch.
    fn prefetch<T>(line: *const T) {
        match hook() {
            AccessHook::None => Native::prefetch(line),
            AccessHook::Chip(chip) => Chip::prefetch(chip, line as usize, Access::Read),
            AccessHook::Explorer(_) => {}
        }
    }

    fn prefetch_to_write<T>(line: *const T) {
        match hook() {
            AccessHook::None => Native::prefetch_to_write(line),
            AccessHook::Chip(chip) => Chip::prefetch(chip, line as usize, Access::Write),
            AccessHook::Explorer(_) => {}
        }
    }

    fn overlaps() -> bool {
        if let AccessHook::Chip(chip) = hook() { Chip::overlaps(chip) } else { false }
    }

    fn await_line<T>(line: *const T) {
        if let AccessHook::Chip(chip) = hook()
            && Chip::overlaps(chip)
        {
            Chip::prefetch(chip, line as usize, Access::Read);
            Chip::next(chip);
        }
    }

    fn await_prefetched() {
        if let AccessHook::Chip(chip) = hook() {
            Chip::next(chip);
        }
    }

    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        arena::alloc(layout)
    }

    unsafe fn dealloc(block: NonNull<u8>, _: Layout) {
        arena::dealloc(block);
    }

    /// On a chip the words of a line are read at once: an access for each line, not for each word.
    fn copy_out(from: &[SimulatedWord], to: &mut [u64]) {
        copy(from, Access::Read, |word, position| to[position] = word.get());
    }

    fn copy_in(to: &[SimulatedWord], from: &[u64]) {
        // Relaxed: as in `SimulatedWord::get`.
        copy(to, Access::Write, |word, position| word.0.store(from[position], Ordering::Relaxed));
    }
}

/// Words of a simulated line.
const LINE_WORDS: usize = 8;

fn copy(words: &[SimulatedWord], access: Access, mut each: impl FnMut(&SimulatedWord, usize)) {
    const LINE_BYTES: usize = LINE_WORDS * size_of::<SimulatedWord>();
    let mut hook = hook();
    if let AccessHook::Chip(chip) = hook {
        let range = words.as_ptr_range();
        let second = (range.start as usize / LINE_BYTES + 1) * LINE_BYTES;
        Chip::stream(chip, (second..range.end as usize).step_by(LINE_BYTES), access);
    }
    // Loads only: of a store the explorer has to know the word as it was before.
    if let (AccessHook::Explorer(_), Access::Read) = (hook, access)
        && are_free(words.len() as u64)
    {
        hook = AccessHook::None;
    }
    let mut last_line = usize::MAX;
    // A copy is torn only where a core can come between two of its words. Under the explorer that
    // is between any two, so a schedule can show a row that a writer has half changed. On a chip it
    // is between lines: a line is taken once, and its words are then read or written at one moment.
    for (position, word) in words.iter().enumerate() {
        match hook {
            AccessHook::None => {}
            AccessHook::Explorer(_) => word.watch(access),
            AccessHook::Chip(_) => {
                let line = std::ptr::from_ref(word) as usize / LINE_BYTES;
                if line != last_line {
                    word.watch(access);
                    last_line = line;
                }
            }
        }
        each(word, position);
    }
    Simulated::work(words.len() as u32);
}
