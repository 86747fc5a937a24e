//! A many-core chip, simulated: caches, directory, network, memory, and a clock for each core.
//!
//! **Order.** Of all cores the one whose clock is furthest behind makes its access next, so
//! accesses happen in the order of simulated time, one at a time, and the memory is sequentially
//! consistent. With a lookahead of more than one cycle a core may run ahead by as much.
//!
//! **An access** costs the instructions around it, and then what the line's way to the core costs:
//!
//! 1. A private cache that holds the line, with the right to do what is done, answers in its own
//!    time.
//! 2. Otherwise the request goes over the network to the line's home: the slice of the last level,
//!    with the directory, that the line's number names. The home serves one request for a line at a
//!    time: a line that many cores want queues there.
//! 3. The home has the owner, if there is one, give the line up or share it; or has all sharers
//!    drop it, if it is to be written; or takes it from the last level; or asks a memory
//!    controller, where requests queue for bandwidth.
//! 4. The line travels to the core.
//!
//! **Several contexts.** A core may run several bodies in turns ([`ChipOptions::contexts`]), one at
//! a time: where one awaits a line, or a lock, the core asks for the line and goes on with the next
//! body, as coroutines on a core of the host do.
//!
//! A value is read or written at the moment at which the access is made, before the time that it
//! takes has passed: in the order in which the home will serve the requests. A core that wants the
//! line next waits until it is free.
//!
//! **Not modelled:** instructions, other than as a number for each access; branches, TLBs, the
//! store buffer (a store waits like a load), what other lines' messages do to the network, and
//! operating systems.
//!
//! Graphite (J. Miller et al., HPCA 2010) is the model of this model; DBx1000's paper has used it.

mod cache;
mod directory;
mod memory;
mod network;
mod preset;
#[cfg(test)]
mod tests;
mod wheel;

use contend_machine::{Cycles, Machine, Native, Phase, PhaseTimes};
use contend_model::random::{GOLDEN_GAMMA, Xorshift64};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{Access, Handle, suspend};
use crate::clock::set_hertz;
use crate::stack::{OneOfMany, stacks};
use cache::{Caches, LineState};
use directory::Directory;
use network::Network;
use preset::LINE_BYTES;
pub use preset::{CachePreset, CoherencePreset, CorePreset, LastLevelPreset, MemoryPreset, NetworkPreset, Preset};
use wheel::Wheel;

/// Why there is no such chip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChipError(pub String);

/// What can be chosen besides the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipOptions {
    /// By how many cycles a core may run ahead of the others; 1: not at all.
    pub lookahead: u64,
    /// Whether the last level begins with the lines that were used last.
    pub warm: bool,
    /// Chooses the cycles at which the cores begin, and by how little each request is early or
    /// late.
    pub seed: u64,
    /// The bodies that each core runs in turns.
    pub contexts: usize,
    /// What the instructions of [`Machine::work`] are multiplied by.
    pub work: u32,
}

impl Default for ChipOptions {
    fn default() -> Self {
        ChipOptions { lookahead: 1, warm: true, seed: 0, contexts: 1, work: 1 }
    }
}

/// What happened on a chip since the last [`Chip::take_statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// Accesses to shared memory, by line.
    pub accesses: u64,
    /// Of those, the ones that a private cache did not answer.
    pub misses: u64,
    /// Misses that the last level answered.
    pub from_last_level: u64,
    /// Misses that memory answered.
    pub from_memory: u64,
    /// Misses that another core's cache answered.
    pub from_owner: u64,
    /// Misses that a core of another socket answered.
    pub remote: u64,
    /// Copies that a core had to drop, because another wrote.
    pub invalidations: u64,
    /// Cycles for which requests waited for a line that was busy at its home.
    pub queued_cycles: u64,
}

/// Instructions of a switch from one context of a core to the next: those of the host's switch.
const SWITCH_INSTRUCTIONS: u32 = 16;
/// Instructions of a system call that finds nobody else to run.
const YIELD_INSTRUCTIONS: u32 = 500;
/// Lines of a stack that are fetched ahead: what a switch and the frames above it use.
const STACK_LINES: usize = 2;

impl Statistics {
    /// Adds what happened besides.
    pub fn add(&mut self, other: &Statistics) {
        self.accesses += other.accesses;
        self.misses += other.misses;
        self.from_last_level += other.from_last_level;
        self.from_memory += other.from_memory;
        self.from_owner += other.from_owner;
        self.remote += other.remote;
        self.invalidations += other.invalidations;
        self.queued_cycles += other.queued_cycles;
    }

    /// Of the misses, the fraction that memory or another socket answered: the last-level miss
    /// ratio. `None` if there was no miss.
    pub fn last_level_miss_ratio(&self) -> Option<f64> {
        (self.misses > 0).then(|| (self.from_memory + self.remote) as f64 / self.misses as f64)
    }
}

/// More prefetches than this are never under way on a core.
pub(crate) const PREFETCHES_MAX: usize = 16;

type Body = Coroutine<(), (), (), OneOfMany>;

/// A body on a core.
struct Context {
    yielder: *const Yielder<(), ()>,
    /// Some place in the part of its stack that it will need first when it goes on.
    top_of_stack: *const u8,
    phase: Phase,
    /// When the phase began, or went on after other contexts had the core.
    phase_since: u64,
    times: PhaseTimes,
}

/// A core, or one of a core's threads.
struct Core {
    /// The context that runs on it, and those that have not ended.
    context: usize,
    alive: Vec<usize>,
    /// The private caches, and the tile.
    unit: u16,
    /// Cycles of the instructions around an access.
    access_cycles: u64,
    /// 256ths of a cycle for each instruction.
    instruction_cycles: u64,
    /// Lines that were prefetched, with the time at which they arrive.
    prefetched: Vec<(u32, u64)>,
}

/// A chip.
///
/// It belongs to the host thread that has made it, as do the coroutines on it.
pub struct Chip {
    preset: Preset,
    options: ChipOptions,
    cores: Vec<Core>,
    /// The contexts of core `c` are `c`, `c` and the number of cores, and so on.
    contexts: Vec<Context>,
    /// By context. Apart from the contexts, because it is borrowed while it runs.
    coroutines: Vec<Option<Body>>,
    wheel: Wheel,
    /// The core that runs, its clock, and how far that may go before another's turn comes.
    running: usize,
    clock: u64,
    horizon: u64,
    /// The running core's private caches, and its cycles of the instructions around an access.
    unit: usize,
    access_cycles: u64,
    l1: Caches,
    l2: Option<Caches>,
    directory: Directory,
    slices: Vec<Slice>,
    network: Network,
    /// When each memory controller is free.
    controllers: Vec<u64>,
    controller_cycles: u64,
    centre_free_at: u64,
    statistics: Statistics,
    /// For the perturbation.
    random: Xorshift64,
    trace: u64,
    time: u64,
    stacks: Vec<OneOfMany>,
}

/// A slice of the last level: its lines in a ring (CLOCK). The hand evicts the next line that was
/// not used since it last passed.
#[derive(Default)]
struct Slice {
    lines: Vec<u32>,
    hand: usize,
}

impl std::fmt::Debug for Chip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chip").field("preset", &self.preset.name).field("time", &self.time).finish_non_exhaustive()
    }
}

impl Chip {
    /// A chip with bodies on `threads` cores, as many on each as the options say, over the memory
    /// that this host thread's [`crate::Simulated`] machine has given out so far, and will.
    ///
    /// # Errors
    /// The preset has fewer threads; or the host has too little address space.
    pub fn new(preset: &Preset, threads: usize, options: ChipOptions) -> Result<Box<Chip>, ChipError> {
        if !(1..=preset.threads_max()).contains(&threads) {
            return Err(ChipError(format!(
                "{threads} threads on chip {}; valid: 1 to {}",
                preset.name,
                preset.threads_max()
            )));
        }
        let no_room = || ChipError("the host has too little address space for a simulation".into());
        let tiles = if preset.core.scales { threads.div_ceil(preset.core.threads_per_core) } else { preset.core.count };
        let caches = |cache: &CachePreset| Caches::new(tiles, cache.bytes / LINE_BYTES / cache.ways, cache.ways);
        let fixed = |cycles: f64| (cycles * 256.0).round() as u64;
        let cores = (0..threads).map(|thread| {
            let on_this_core = (thread % tiles..threads).step_by(tiles).count();
            let slowdown = if on_this_core > 1 { preset.core.shared_core_slowdown } else { 1.0 };
            let instruction_cycles = fixed(preset.core.cycles_per_instruction * slowdown);
            Core {
                context: thread,
                alive: Vec::with_capacity(options.contexts),
                unit: (thread % tiles) as u16,
                access_cycles: (u64::from(preset.core.instructions_per_access) * instruction_cycles) >> 8,
                instruction_cycles,
                prefetched: Vec::with_capacity(PREFETCHES_MAX),
            }
        });
        let bodies = threads * options.contexts.max(1);
        let context = || Context {
            yielder: std::ptr::null(),
            top_of_stack: std::ptr::null(),
            phase: Phase::BODY,
            phase_since: 0,
            times: [0; Phase::COUNT],
        };
        let bytes_per_cycle = preset.memory.bytes_per_second / preset.core.hertz;
        let mut chip = Box::new(Chip {
            cores: cores.collect(),
            wheel: Wheel::new(threads),
            contexts: std::iter::repeat_with(context).take(bodies).collect(),
            coroutines: (0..bodies).map(|_| None).collect(),
            running: 0,
            clock: 0,
            horizon: 0,
            unit: 0,
            access_cycles: 0,
            l1: caches(&preset.l1),
            l2: preset.l2.as_ref().map(caches),
            directory: Directory::new().ok_or_else(no_room)?,
            slices: (0..tiles).map(|_| Slice::default()).collect(),
            network: Network::new(&preset.network, tiles),
            controllers: vec![0; tiles.div_ceil(preset.memory.tiles_per_controller)],
            controller_cycles: (LINE_BYTES as f64 / bytes_per_cycle).round().max(1.0) as u64,
            centre_free_at: 0,
            statistics: Statistics::default(),
            random: Xorshift64::new(options.seed.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA) | 1),
            trace: 0,
            time: 0,
            stacks: stacks(bodies).ok_or_else(no_room)?,
            preset: preset.clone(),
            options,
        });
        set_hertz(preset.core.hertz);
        if options.warm {
            chip.warm_up();
        }
        Ok(chip)
    }

    /// Fills the last level with the lines that were given out last.
    fn warm_up(&mut self) {
        let lines = self.directory.lines();
        let capacity = self.slices.len() * (self.preset.llc.slice_bytes / LINE_BYTES);
        for line in lines.end - (lines.len().min(capacity)) as u32..lines.end {
            self.keep_in_last_level(line);
        }
    }

    /// Puts a body on the next core, and once each core has one, on the first one again. It begins
    /// when the chip runs.
    ///
    /// # Panics
    /// All contexts of all cores have bodies.
    pub fn spawn(&mut self, body: impl FnOnce() + 'static) {
        // Boxed: a stack does not begin with more than some kilobytes.
        let body: Box<dyn FnOnce()> = Box::new(body);
        let stack = self.stacks.pop().expect("a body for each context");
        let number = self.contexts.len() - self.stacks.len() - 1;
        let context: *mut Context = &raw mut self.contexts[number];
        self.coroutines[number] = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the chip keeps its contexts in place and outlives their coroutines; nobody
            // borrows the context while it runs.
            unsafe { (*context).yielder = yielder };
            body();
        }));
        let core = number % self.cores.len();
        self.cores[core].alive.push(number);
        if number != core {
            return;
        }
        // Cores that begin at one moment would do everything at one moment.
        const SPREAD: u64 = 256;
        let mixed = (self.options.seed ^ number as u64).wrapping_add(1).wrapping_mul(GOLDEN_GAMMA);
        self.wheel.push(number as u16, self.time + (mixed >> 32) % SPREAD);
    }

    /// Resumes cores in the order of their clocks until all clocks are past `limit`. The machine's
    /// accesses must come to this chip meanwhile.
    pub(crate) fn run_hooked(chip: Handle<Chip>, limit: u64) {
        let mut earliest = chip.with(|chip| chip.wheel.earliest());
        while let Some(time) = earliest.filter(|time| *time <= limit) {
            let (coroutine, after) = chip.with(|chip| chip.begin_turn(time, limit));
            // SAFETY: the coroutine stays in its place, and while it runs nobody touches it but
            // this call.
            let result = unsafe { &mut *coroutine }.as_mut().expect("a core that waits for its turn").resume(());
            earliest = chip.with(|chip| match result {
                CoroutineResult::Yield(()) => {
                    chip.wheel.push(chip.running as u16, chip.clock);
                    Some(after.map_or(chip.clock, |after| after.min(chip.clock)))
                }
                CoroutineResult::Return(()) => {
                    if chip.end_context() {
                        chip.wheel.push(chip.running as u16, chip.clock);
                        Some(after.map_or(chip.clock, |after| after.min(chip.clock)))
                    } else {
                        after
                    }
                }
            });
        }
        chip.with(|chip| chip.time = limit.max(chip.time));
    }

    /// Whether a body is left that has not ended.
    pub(crate) fn has_bodies(&self) -> bool {
        self.wheel.earliest().is_some()
    }

    /// The core whose turn it is at this time, and the time of the next.
    #[inline]
    fn begin_turn(&mut self, time: u64, limit: u64) -> (*mut Option<Body>, Option<u64>) {
        let core = usize::from(self.wheel.take(time));
        let earliest = self.wheel.earliest();
        self.horizon = (earliest.unwrap_or(u64::MAX).saturating_add(self.options.lookahead - 1)).min(limit);
        self.expect_next(earliest);
        (self.clock, self.running) = (time, core);
        (self.unit, self.access_cycles) = (usize::from(self.cores[core].unit), self.cores[core].access_cycles);
        (&raw mut self.coroutines[self.cores[core].context], earliest)
    }

    /// Has the host fetch what the second core after the one that runs now will need: the first
    /// would come too soon.
    #[inline]
    fn expect_next(&self, earliest: Option<u64>) {
        let core = earliest.map_or(wheel::NOBODY, |time| self.wheel.after_next(time));
        if let Some(core) = self.cores.get(usize::from(core)) {
            for line in 0..STACK_LINES {
                Native::prefetch(self.contexts[core.context].top_of_stack.wrapping_add(line * LINE_BYTES));
            }
        }
    }

    /// Adds all cores' times by phase since they were last taken, up to `time`.
    pub fn take_all_times(&mut self, time: u64, into: &mut PhaseTimes) {
        for context in &mut self.contexts {
            for (sum, time) in into.iter_mut().zip(&mut context.times) {
                *sum += std::mem::take(time);
            }
        }
        for core in &self.cores {
            let context = &mut self.contexts[core.context];
            into[context.phase.number()] += time.saturating_sub(context.phase_since);
            context.phase_since = context.phase_since.max(time);
        }
    }

    /// Ends the running context. Returns whether its core has others.
    fn end_context(&mut self) -> bool {
        let ended = self.cores[self.running].context;
        self.coroutines[ended] = None;
        let next = self.next_context();
        self.cores[self.running].alive.retain(|context| *context != ended);
        self.give_core_to(next);
        next != ended
    }

    /// Returns the context of the running core that comes after the running one, which may be the
    /// same.
    fn next_context(&self) -> usize {
        let core = &self.cores[self.running];
        let position = core.alive.iter().position(|context| *context == core.context).expect("it has not ended");
        core.alive[(position + 1) % core.alive.len()]
    }

    /// Lets the running core go on with this context.
    fn give_core_to(&mut self, context: usize) {
        let phase = self.running_context().phase;
        self.begin_phase(phase);
        self.cores[self.running].context = context;
        let context = &mut self.contexts[context];
        context.phase_since = context.phase_since.max(self.clock);
    }

    /// What happened since this was last asked.
    pub fn take_statistics(&mut self) -> Statistics {
        std::mem::take(&mut self.statistics)
    }

    /// Returns a hash over every access so far: core, line and time. Two runs with one hash were
    /// the same.
    pub fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// The hardware.
    pub fn preset(&self) -> &Preset {
        &self.preset
    }

    // ---- What the machine calls, from a coroutine. ----

    /// Another core's turn has come: waits until it is this one's again. To be called by a
    /// coroutine of the chip.
    #[inline]
    fn switch(chip: Handle<Chip>) {
        let yielder = chip.with(|chip| {
            let context = &mut chip.contexts[chip.cores[chip.running].context];
            let here = 0u8;
            context.top_of_stack = &raw const here;
            context.yielder
        });
        // SAFETY: the core that runs has set its yielder when it began.
        unsafe { suspend(yielder) };
    }

    /// Waits for the running core's turn, if another is behind.
    #[inline]
    fn take_turn(chip: Handle<Chip>) {
        if chip.with(|chip| chip.clock > chip.horizon) {
            Self::switch(chip);
        }
    }

    /// An access is made.
    #[inline]
    pub(crate) fn access(chip: Handle<Chip>, address: usize, access: Access) {
        let (line, waits) = chip.with(|chip| {
            chip.clock += chip.access_cycles;
            let line = chip.directory.line(address);
            let waits = chip.clock > chip.horizon;
            if waits {
                chip.expect(line, address);
            }
            (line, waits)
        });
        if waits {
            Self::switch(chip);
        }
        chip.with(|chip| chip.perform(line, access));
    }

    /// Has the host fetch what an access will need, while other cores run.
    #[inline]
    fn expect(&self, line: u32, address: usize) {
        Native::prefetch(self.directory.address(line));
        Native::prefetch(address as *const u8);
        // What the line may drive out.
        let victim = self.l2.as_ref().unwrap_or(&self.l1).victim(self.unit, line);
        if let Some(victim) = victim {
            Native::prefetch(self.directory.address(victim));
        }
    }

    /// An instruction that asks for a line.
    pub(crate) fn prefetch(chip: Handle<Chip>, address: usize, access: Access) {
        chip.with(|chip| chip.clock += chip.cores[chip.running].instruction_cycles >> 8);
        Self::ask_ahead(chip, address, access);
    }

    /// Lines one after another are about to be accessed: a core that can have several misses under
    /// way asks for all of them.
    pub(crate) fn stream(chip: Handle<Chip>, addresses: impl Iterator<Item = usize>, access: Access) {
        let most = chip.with(|chip| chip.preset.core.prefetches);
        addresses.take(most).for_each(|address| Self::ask_ahead(chip, address, access));
    }

    /// Asks for a line that will be accessed, if the core can have one more under way.
    fn ask_ahead(chip: Handle<Chip>, address: usize, access: Access) {
        let wanted = chip.with(|chip| {
            let line = chip.directory.line(address);
            let (clock, prefetches) = (chip.clock, chip.preset.core.prefetches);
            let core = &mut chip.cores[chip.running];
            core.prefetched.retain(|(_, arrival)| *arrival > clock);
            let is_free = core.prefetched.len() < prefetches;
            let is_held = Self::suffices(chip.l1.state(chip.unit, line), access);
            let wanted = is_free && !is_held;
            if wanted {
                chip.expect(line, address);
            }
            wanted.then_some(line)
        });
        let Some(line) = wanted else { return };
        Self::take_turn(chip);
        chip.with(|chip| {
            let state = chip.l1.find(chip.unit, line);
            if !Self::suffices(state, access) {
                let arrival = chip.fetch(chip.unit, line, access != Access::Read, state).0;
                chip.cores[chip.running].prefetched.push((line, arrival));
            }
        });
    }

    /// Whether a line in this state may be accessed so.
    fn suffices(state: Option<LineState>, access: Access) -> bool {
        state.is_some_and(|state| access == Access::Read || state.owns())
    }

    pub(crate) fn now(chip: Handle<Chip>) -> u64 {
        let now = chip.with(|chip| {
            chip.clock += u64::from(chip.preset.core.clock_cycles);
            chip.clock
        });
        // A core that only looks at the clock must let the others' clocks go on, too.
        Self::take_turn(chip);
        now
    }

    pub(crate) fn pause(chip: Handle<Chip>) {
        // Nothing is shared here: whose turn it is is seen to before the next access.
        chip.with(|chip| chip.clock += u64::from(chip.preset.core.pause_cycles));
        Self::next(chip);
    }

    /// Whether the running core has other contexts to go on with.
    #[inline]
    pub(crate) fn overlaps(chip: Handle<Chip>) -> bool {
        chip.with(|chip| chip.options.contexts > 1)
    }

    /// Lets the running core go on with its next context, if it has several.
    #[inline]
    pub(crate) fn next(chip: Handle<Chip>) {
        if Self::overlaps(chip) {
            Self::switch_context(chip);
        }
    }

    fn switch_context(chip: Handle<Chip>) {
        let yielder = chip.with(|chip| {
            let next = chip.next_context();
            let core = &chip.cores[chip.running];
            let running = core.context;
            if next == running {
                return None;
            }
            chip.spend(u64::from(SWITCH_INSTRUCTIONS));
            chip.give_core_to(next);
            let here = 0u8;
            chip.contexts[running].top_of_stack = &raw const here;
            Some(chip.contexts[running].yielder)
        });
        // SAFETY: the context that runs has set its yielder when it began.
        yielder.into_iter().for_each(|yielder| unsafe { suspend(yielder) });
    }

    pub(crate) fn fence(chip: Handle<Chip>) {
        chip.with(|chip| chip.clock += u64::from(chip.preset.core.fence_cycles));
    }

    pub(crate) fn idle(chip: Handle<Chip>, cycles: Cycles) {
        if !Self::overlaps(chip) {
            return chip.with(|chip| chip.clock += cycles);
        }
        let end = chip.with(|chip| chip.clock + cycles);
        while chip.with(|chip| chip.clock) < end {
            if chip.with(|chip| chip.cores[chip.running].alive.len() == 1) {
                chip.with(|chip| chip.clock = end);
            } else {
                Self::pause(chip);
            }
        }
    }

    /// Spends the instructions of a transaction's own work.
    pub(crate) fn work(chip: Handle<Chip>, instructions: u32) {
        chip.with(|chip| chip.spend(u64::from(instructions) * u64::from(chip.options.work)));
    }

    /// Spends the instructions of a call that finds nobody else to run.
    pub(crate) fn yield_now(chip: Handle<Chip>) {
        chip.with(|chip| chip.spend(u64::from(YIELD_INSTRUCTIONS)));
    }

    fn spend(&mut self, instructions: u64) {
        self.clock += (instructions * self.cores[self.running].instruction_cycles) >> 8;
    }

    #[inline]
    pub(crate) fn enter(chip: Handle<Chip>, phase: Phase) {
        chip.with(|chip| chip.begin_phase(phase));
    }

    fn begin_phase(&mut self, phase: Phase) {
        let clock = self.clock;
        let context = &mut self.contexts[self.cores[self.running].context];
        // The clock may be behind the end of the window for which the time was taken.
        context.times[context.phase.number()] += clock.saturating_sub(context.phase_since);
        (context.phase, context.phase_since) = (phase, clock.max(context.phase_since));
    }

    fn running_context(&mut self) -> &mut Context {
        &mut self.contexts[self.cores[self.running].context]
    }

    pub(crate) fn phase(chip: Handle<Chip>) -> Phase {
        chip.with(|chip| chip.running_context().phase)
    }

    pub(crate) fn take_times(chip: Handle<Chip>, into: &mut PhaseTimes) {
        chip.with(|chip| {
            let phase = chip.running_context().phase;
            chip.begin_phase(phase);
            for (sum, time) in into.iter_mut().zip(&mut chip.running_context().times) {
                *sum += std::mem::take(time);
            }
        });
    }

    /// An addition in the chip's centre: a message there and back, and one addition a cycle.
    pub(crate) fn central(chip: Handle<Chip>) {
        chip.with(|chip| chip.clock += chip.access_cycles);
        Self::take_turn(chip);
        chip.with(|chip| {
            let way = chip.network.cycles(chip.unit, chip.network.centre());
            let begin = (chip.clock + way).max(chip.centre_free_at);
            chip.centre_free_at = begin + 1;
            chip.clock = begin + 1 + way;
            chip.record(u32::MAX);
        });
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        for mut coroutine in self.coroutines.drain(..).flatten() {
            // SAFETY: what is on the stack is forgotten, and not used again: nothing on it is
            // borrowed by what lives on. It can't be unwound: its destructors might wait for what
            // another body has that has not ended.
            unsafe { coroutine.force_reset() };
        }
    }
}
