//! A many-core chip, simulated: caches, directory, network, memory, and a clock for each core.
//!
//! **Order.** Of all cores the one whose clock is furthest behind makes its access next, so accesses happen in the order of simulated
//! time, one at a time, and the memory is sequentially consistent. With a lookahead of more than one cycle a core may run ahead by as much.
//!
//! **An access** costs the instructions around it, and then what the line's way to the core costs:
//!
//! 1. A private cache that holds the line, with the right to do what is done, answers in its own time.
//! 2. Otherwise the request goes over the network to the line's home: the slice of the last level, with the directory, that the line's
//!    number names. The home serves one request for a line at a time: a line that many cores want queues there.
//! 3. The home has the owner, if there is one, give the line up or share it; or has all sharers drop it, if it is to be written; or takes it
//!    from the last level; or asks a memory controller, where requests queue for bandwidth.
//! 4. The line travels to the core.
//!
//! A value is read or written at the moment at which the access is made, before the time that it takes has passed: in the order in
//! which the home will serve the requests. Whoever wants the line next waits for it to come free.
//!
//! **Not modelled:** instructions, other than as a number for each access; branches, TLBs, the store buffer (a store waits like a load),
//! what other lines' messages do to the network, and operating systems.
//!
//! Graphite (J. Miller et al., HPCA 2010) is the model of this model; DBx1000's paper has used it.

mod cache;
mod directory;
mod network;
mod preset;
#[cfg(test)]
mod tests;
mod wheel;

use contend_machine::{Machine, Native, Phase, PhaseTimes};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use serde::{Deserialize, Serialize};

use crate::machine::set_hertz;
use crate::stack::{OneOfMany, stacks};
use crate::watch::{Access, Handle, Watcher, suspend, watched};
use cache::{Caches, State};
use directory::{Directory, Holders};
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
    /// Chooses the cycles at which the cores begin, and by how little each request is early or late.
    pub seed: u64,
}

impl Default for ChipOptions {
    fn default() -> Self {
        ChipOptions { lookahead: 1, warm: true, seed: 0 }
    }
}

/// What happened on a chip since the last [`Chip::take_statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Of the misses, the fraction that memory or another socket answered: the last-level miss ratio. `None` if there was no miss.
    pub fn last_level_miss_ratio(&self) -> Option<f64> {
        (self.misses > 0).then(|| (self.from_memory + self.remote) as f64 / self.misses as f64)
    }
}

/// More prefetches than this are never under way on a core.
pub(crate) const PREFETCHES_MAX: usize = 16;

type Body = Coroutine<(), (), (), OneOfMany>;

/// A core, or one of a core's threads.
struct Core {
    yielder: *const Yielder<(), ()>,
    /// Some place in the part of its stack that it will need first when it goes on.
    top_of_stack: *const u8,
    /// The private caches, and the tile.
    unit: u16,
    /// Cycles of the instructions around an access.
    access_cycles: u64,
    /// 256ths of a cycle for each instruction.
    instruction_cycles: u64,
    phase: Phase,
    /// When the phase began.
    phase_since: u64,
    times: PhaseTimes,
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
    /// By core. Apart from the cores, because it is borrowed while it runs.
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
    random: u64,
    trace: u64,
    time: u64,
    stacks: Vec<OneOfMany>,
}

/// A slice of the last level: its lines in a ring, from which the hand takes the next that was not used since it came past (CLOCK).
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
    /// A chip on which `threads` bodies will run, over the memory that this host thread's [`crate::Simulated`] machine has given out so
    /// far, and will.
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
                yielder: std::ptr::null(),
                top_of_stack: std::ptr::null(),
                unit: (thread % tiles) as u16,
                access_cycles: (u64::from(preset.core.instructions_per_access) * instruction_cycles) >> 8,
                instruction_cycles,
                phase: Phase::BODY,
                phase_since: 0,
                times: [0; Phase::COUNT],
                prefetched: Vec::with_capacity(PREFETCHES_MAX),
            }
        });
        let bytes_per_cycle = preset.memory.bytes_per_second / preset.core.hertz;
        let mut chip = Box::new(Chip {
            cores: cores.collect(),
            wheel: Wheel::new(threads),
            coroutines: (0..threads).map(|_| None).collect(),
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
            random: options.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            trace: 0,
            time: 0,
            stacks: stacks(threads).ok_or_else(no_room)?,
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

    /// Puts a body on the next thread. It begins when the chip runs.
    ///
    /// # Panics
    /// All threads have bodies.
    pub fn spawn(&mut self, body: impl FnOnce() + 'static) {
        // Boxed: a stack does not begin with more than some kilobytes.
        let body: Box<dyn FnOnce()> = Box::new(body);
        let stack = self.stacks.pop().expect("a body for each thread");
        let number = self.cores.len() - self.stacks.len() - 1;
        let core: *mut Core = &raw mut self.cores[number];
        self.coroutines[number] = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the chip keeps its cores in place and outlives their coroutines; nobody borrows the core while it runs.
            unsafe { (*core).yielder = yielder };
            body();
        }));
        // Cores that begin at one moment would do everything at one moment.
        const SPREAD: u64 = 256;
        let mixed = (self.options.seed ^ number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.wheel.push(number as u16, self.time + (mixed >> 32) % SPREAD);
    }

    /// Runs until all cores' clocks are past this time; whether any body is left that has not ended.
    pub fn run_until(&mut self, time: u64) -> bool {
        // SAFETY: the chip is used by handles only until the watch ends, with this call; it stays in its place as long.
        let chip = unsafe { Handle::new(&raw mut *self) };
        watched(Watcher::Chip(chip), || Self::run_watched(chip, time));
        self.time = time.max(self.time);
        self.wheel.earliest().is_some()
    }

    fn run_watched(chip: Handle<Chip>, limit: u64) {
        let mut earliest = chip.with(|chip| chip.wheel.earliest());
        while let Some(time) = earliest.filter(|time| *time <= limit) {
            let (coroutine, after) = chip.with(|chip| chip.begin_turn(time, limit));
            // SAFETY: the coroutine stays in its place, and while it runs nobody touches it but this call.
            let result = unsafe { &mut *coroutine }.as_mut().expect("a core that waits for its turn").resume(());
            earliest = chip.with(|chip| match result {
                CoroutineResult::Yield(()) => {
                    chip.wheel.push(chip.running as u16, chip.clock);
                    Some(after.map_or(chip.clock, |after| after.min(chip.clock)))
                }
                CoroutineResult::Return(()) => {
                    chip.coroutines[chip.running] = None;
                    after
                }
            });
        }
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
        (&raw mut self.coroutines[core], earliest)
    }

    /// Has the host fetch what the second core after the one that runs now will need: the first would come too soon.
    #[inline]
    fn expect_next(&self, earliest: Option<u64>) {
        let core = earliest.map_or(wheel::NOBODY, |time| self.wheel.after_next(time));
        if let Some(core) = self.cores.get(usize::from(core)) {
            for line in 0..STACK_LINES {
                Native::prefetch(core.top_of_stack.wrapping_add(line * LINE_BYTES));
            }
        }
    }

    /// Adds all cores' times by phase since they were last taken, up to `time`.
    pub fn take_all_times(&mut self, time: u64, into: &mut PhaseTimes) {
        for core in &mut self.cores {
            for (sum, time) in into.iter_mut().zip(&mut core.times) {
                *sum += std::mem::take(time);
            }
            into[core.phase.number()] += time.saturating_sub(core.phase_since);
            core.phase_since = core.phase_since.max(time);
        }
    }

    /// What happened since this was last asked.
    pub fn take_statistics(&mut self) -> Statistics {
        std::mem::take(&mut self.statistics)
    }

    /// A hash over every access so far: who, which line, when. Two runs with one hash were the same.
    pub fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// The hardware.
    pub fn preset(&self) -> &Preset {
        &self.preset
    }

    // ---- What the machine calls, from a coroutine. ----

    /// Another core's turn has come: waits until it is this one's again. To be called by a coroutine of the chip.
    #[inline]
    fn switch(chip: Handle<Chip>) {
        let yielder = chip.with(|chip| {
            let core = &mut chip.cores[chip.running];
            let here = 0u8;
            core.top_of_stack = &raw const here;
            core.yielder
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

    pub(crate) fn prefetch(chip: Handle<Chip>, address: usize, access: Access) {
        let wanted = chip.with(|chip| {
            chip.clock += chip.cores[chip.running].instruction_cycles >> 8;
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
    fn suffices(state: Option<State>, access: Access) -> bool {
        state.is_some_and(|state| access == Access::Read || state.owns())
    }

    pub(crate) fn now(chip: Handle<Chip>) -> u64 {
        let now = chip.with(|chip| {
            chip.clock += u64::from(chip.preset.core.clock_cycles);
            chip.clock
        });
        // Who only looks at the clock must let the others' clocks go on, too.
        Self::take_turn(chip);
        now
    }

    pub(crate) fn pause(chip: Handle<Chip>) {
        // Nothing is shared here: whose turn it is is seen to before the next access.
        chip.with(|chip| chip.clock += u64::from(chip.preset.core.pause_cycles));
    }

    pub(crate) fn fence(chip: Handle<Chip>) {
        chip.with(|chip| chip.clock += u64::from(chip.preset.core.fence_cycles));
    }

    pub(crate) fn work(chip: Handle<Chip>, instructions: u32) {
        chip.with(|chip| chip.clock += (u64::from(instructions) * chip.cores[chip.running].instruction_cycles) >> 8);
    }

    #[inline]
    pub(crate) fn enter(chip: Handle<Chip>, phase: Phase) {
        chip.with(|chip| chip.begin_phase(phase));
    }

    fn begin_phase(&mut self, phase: Phase) {
        let clock = self.clock;
        let core = &mut self.cores[self.running];
        // The clock may be behind the end of the window for which the time was taken.
        core.times[core.phase.number()] += clock.saturating_sub(core.phase_since);
        (core.phase, core.phase_since) = (phase, clock.max(core.phase_since));
    }

    pub(crate) fn phase(chip: Handle<Chip>) -> Phase {
        chip.with(|chip| chip.cores[chip.running].phase)
    }

    pub(crate) fn take_times(chip: Handle<Chip>, into: &mut PhaseTimes) {
        chip.with(|chip| {
            chip.begin_phase(chip.cores[chip.running].phase);
            for (sum, time) in into.iter_mut().zip(&mut chip.cores[chip.running].times) {
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

    // ---- The model. ----

    #[inline]
    fn record(&mut self, line: u32) {
        let what = u64::from(line) ^ (self.running as u64) << 48;
        self.trace = (self.trace.rotate_left(5) ^ what ^ self.clock << 16).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Makes the access: now, and the clock goes on to its end.
    #[inline]
    fn perform(&mut self, line: u32, access: Access) {
        self.statistics.accesses += 1;
        let unit = self.unit;
        let writes = access != Access::Read;
        let state = self.l1.find(unit, line);
        match state {
            Some(state) if !writes || state.owns() => {
                if writes && state != State::Modified {
                    self.l1.change(unit, line, State::Modified);
                }
                self.clock += u64::from(self.preset.l1.cycles);
                if !self.cores[self.running].prefetched.is_empty() {
                    self.await_prefetch(line);
                }
            }
            _ => {
                let (arrival, alone) = self.fetch(unit, line, writes, state);
                let cycles = arrival - self.clock;
                // Of a miss that waits for no other core, an out-of-order core hides a part.
                let stalled = if alone { (cycles as f64 * self.preset.core.stall) as u64 } else { cycles };
                self.clock += stalled;
            }
        }
        if access == Access::Update {
            self.clock += u64::from(self.preset.core.atomic_cycles);
        }
        self.record(line);
        #[cfg(debug_assertions)]
        self.check(line);
    }

    #[cold]
    fn await_prefetch(&mut self, line: u32) {
        let core = &mut self.cores[self.running];
        if let Some(position) = core.prefetched.iter().position(|(prefetched, _)| *prefetched == line) {
            let (_, arrival) = core.prefetched.swap_remove(position);
            self.clock = self.clock.max(arrival);
        }
    }

    /// Gets a line that the first level does not hold in a sufficient state; when it arrives, and whether no other core was involved.
    fn fetch(&mut self, unit: usize, line: u32, writes: bool, in_l1: Option<State>) -> (u64, bool) {
        let new = if writes { State::Modified } else { State::Shared };
        let mut clock = self.clock + u64::from(self.preset.l1.cycles);
        let mut in_l2 = None;
        if let (Some(l2), Some(preset)) = (&mut self.l2, &self.preset.l2) {
            clock += u64::from(preset.cycles);
            in_l2 = l2.find(unit, line);
            if let Some(state) = in_l2.filter(|state| !writes || state.owns()) {
                let state = if writes { State::Modified } else { state };
                self.fill_l1(unit, line, state, in_l1);
                return (clock, true);
            }
        }
        self.statistics.misses += 1;
        let (arrival, exclusive, alone) = self.ask_home(unit, line, writes, clock);
        let state = if !writes && exclusive { State::Exclusive } else { new };
        if let Some(l2) = &mut self.l2 {
            if in_l2.is_some() {
                l2.change(unit, line, state);
            } else if let Some((evicted, state)) = l2.insert(unit, line, state) {
                let upper = self.l1.drop_line(unit, evicted);
                self.evict(unit, evicted, upper.map_or(state, |upper| upper.max(state)));
            }
        }
        self.fill_l1(unit, line, state, in_l1);
        (arrival, alone)
    }

    fn fill_l1(&mut self, unit: usize, line: u32, state: State, in_l1: Option<State>) {
        if in_l1.is_some() {
            self.l1.change(unit, line, state);
            return;
        }
        let Some((evicted, state)) = self.l1.insert(unit, line, state) else { return };
        match &mut self.l2 {
            // The second level has it still.
            Some(l2) if state == State::Modified => l2.change(unit, evicted, State::Modified),
            Some(_) => {}
            None => self.evict(unit, evicted, state),
        }
    }

    /// A line leaves a core's private caches, and its home is told.
    fn evict(&mut self, unit: usize, line: u32, state: State) {
        if state.owns() {
            self.directory.clear(line);
            self.keep_in_last_level(line);
        } else {
            self.directory.remove_sharer(line, unit as u16);
        }
    }

    #[inline]
    fn home(&self, line: u32) -> usize {
        let mixed = line.wrapping_mul(0x9e37_79b1);
        ((u64::from(mixed) * self.slices.len() as u64) >> 32) as usize
    }

    /// Some cycles more or less on a request's way. Without, two cores that are in each other's way can be so for ever, in the same step
    /// each time (A. Alameldeen, D. Wood: "Variability in architectural simulations of multi-threaded workloads", HPCA 2003).
    fn perturbation(&mut self) -> u64 {
        const MAX: u64 = 4;
        // Xorshift (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (MAX + 1)
    }

    /// The request at the line's home; when the line is at the core, whether the core has it exclusively though it only reads, and
    /// whether no other core was involved.
    fn ask_home(&mut self, unit: usize, line: u32, writes: bool, clock: u64) -> (u64, bool, bool) {
        let home = self.home(line);
        let (llc, coherence) = (&self.preset.llc, &self.preset.coherence);
        let (tag, data) = (u64::from(llc.tag_cycles), u64::from(llc.data_cycles));
        let (transfer, blocking, handoff) =
            (u64::from(coherence.line_cycles), coherence.blocking, coherence.handoff_cycles);
        let entry = *self.directory.entry(line);
        let holders = entry.holders();
        let has_owner = matches!(holders, Holders::Owner(owner) if usize::from(owner) != unit);
        // What is only read every socket's last level keeps a copy of.
        let is_near = !writes && !has_owner && entry.is_cached();
        let way = if is_near { self.network.near_cycles(unit, home) } else { self.network.cycles(unit, home) };
        let arrival = clock + way + self.perturbation();
        let begin = arrival.max(entry.free_at());
        self.statistics.queued_cycles += begin - arrival;
        let back = way + transfer;
        if let Holders::Owner(owner) = holders
            && usize::from(owner) != unit
        {
            let owner = usize::from(owner);
            let (done, free_at);
            self.statistics.from_owner += 1;
            self.statistics.remote += u64::from(self.network.is_remote(unit, owner));
            // To the owner, whose cache is looked up.
            let at_owner = begin
                + tag
                + self.network.cycles(home, owner)
                + u64::from(self.preset.l1.cycles)
                + self.preset.l2.as_ref().map_or(0, |l2| u64::from(l2.cycles));
            if blocking {
                let returned = at_owner + self.network.cycles(owner, home) + transfer + data;
                (done, free_at) = (returned + back, returned);
            } else {
                done = at_owner + self.network.cycles(owner, unit) + transfer;
                free_at = begin + u64::from(handoff[usize::from(self.network.is_remote(unit, owner))]);
            }
            if writes {
                self.invalidate(owner, line);
                self.directory.set_owner(line, unit as u16);
            } else {
                self.l1.change(owner, line, State::Shared);
                if let Some(l2) = &mut self.l2 {
                    l2.change(owner, line, State::Shared);
                }
                self.directory.add_sharer(line, unit as u16);
                self.keep_in_last_level(line);
            }
            self.directory.entry_mut(line).set_free_at(free_at);
            return (done, false, false);
        }
        // The line itself, from the last level or from memory.
        let ready = if entry.is_cached() {
            self.statistics.from_last_level += 1;
            self.directory.entry_mut(line).set_used();
            begin + tag.max(data)
        } else {
            self.statistics.from_memory += 1;
            let number = line as usize % self.controllers.len();
            // A controller of a socket is near the slices of that socket; one of a mesh is somewhere in it.
            let (way, number) = match &self.network {
                Network::Mesh { .. } => {
                    let tile = number * self.slices.len() / self.controllers.len();
                    (self.network.cycles(home, tile), number)
                }
                Network::Sockets { .. } => (0, home / self.preset.memory.tiles_per_controller),
            };
            let start = (begin + tag + way).max(self.controllers[number]);
            self.controllers[number] = start + self.controller_cycles;
            self.keep_in_last_level(line);
            start + u64::from(self.preset.memory.cycles) + way + transfer
        };
        // Those who hold it must drop it, all at once.
        let mut dropped = begin + tag;
        let mut others = 0;
        if writes && holders == Holders::Sharers {
            let mut farthest = 0;
            let mut sharers = Vec::new();
            self.directory.for_each_sharer(line, |sharer| sharers.push(sharer));
            for sharer in sharers.into_iter().map(usize::from).filter(|sharer| *sharer != unit) {
                farthest = farthest.max(self.network.cycles(home, sharer));
                others += 1;
                self.invalidate(sharer, line);
            }
            if others > 0 {
                dropped += 2 * farthest + u64::from(self.preset.l1.cycles);
            }
        }
        let answered = ready.max(dropped);
        // While a home that blocks gets the line from memory, or has it dropped, it serves nobody else with it.
        let busy = if blocking || !entry.is_cached() { answered } else { begin + tag };
        let busy = if !blocking && writes { busy.max(begin + u64::from(handoff[0])) } else { busy };
        self.directory.entry_mut(line).set_free_at(busy);
        let exclusive = holders == Holders::Nobody && self.preset.coherence.exclusive_reads;
        if writes || exclusive {
            self.directory.set_owner(line, unit as u16);
        } else {
            self.directory.add_sharer(line, unit as u16);
        }
        (answered + back, exclusive, others == 0 && begin == arrival)
    }

    fn invalidate(&mut self, unit: usize, line: u32) {
        let in_l1 = self.l1.drop_line(unit, line);
        let in_l2 = self.l2.as_mut().and_then(|l2| l2.drop_line(unit, line));
        if in_l1.or(in_l2).is_some() {
            self.statistics.invalidations += 1;
        }
    }

    /// The last level has the line from now on; another may have to go.
    fn keep_in_last_level(&mut self, line: u32) {
        let entry = self.directory.entry_mut(line);
        if entry.is_cached() {
            entry.set_used();
            return;
        }
        entry.set_cached(true);
        let home = self.home(line);
        let capacity = self.preset.llc.slice_bytes / LINE_BYTES;
        let slice = &mut self.slices[home];
        if slice.lines.len() < capacity {
            slice.lines.push(line);
            return;
        }
        // The hand comes round once at most: on its second way it finds what it has passed unused.
        let victim = loop {
            let slice = &mut self.slices[home];
            let position = slice.hand;
            slice.hand = (position + 1) % capacity;
            let candidate = slice.lines[position];
            if !self.directory.entry_mut(candidate).take_used() {
                self.slices[home].lines[position] = line;
                break candidate;
            }
        };
        self.directory.entry_mut(victim).set_cached(false);
        if self.preset.llc.inclusive {
            match self.directory.entry(victim).holders() {
                Holders::Nobody => {}
                Holders::Owner(owner) => self.invalidate(usize::from(owner), victim),
                Holders::Sharers => {
                    let mut sharers = Vec::new();
                    self.directory.for_each_sharer(victim, |sharer| sharers.push(sharer));
                    sharers.into_iter().for_each(|sharer| self.invalidate(usize::from(sharer), victim));
                }
            }
            self.directory.clear(victim);
        }
    }

    /// One owner or many sharers, never both, and whoever holds the line is known to its home.
    #[cfg(debug_assertions)]
    fn check(&self, line: u32) {
        let holders = self.directory.entry(line).holders();
        let mut sharers = Vec::new();
        if holders == Holders::Sharers {
            self.directory.for_each_sharer(line, |sharer| sharers.push(usize::from(sharer)));
        }
        let state = |unit: usize| {
            let upper = self.l1.state(unit, line);
            let lower = self.l2.as_ref().and_then(|l2| l2.state(unit, line));
            assert!(self.l2.is_none() || upper.is_none() || lower.is_some(), "the second level has what the first has");
            upper.max(lower)
        };
        // The holders, and some others: different ones from access to access.
        const OTHERS: usize = 2;
        let units = self.slices.len();
        let others = (0..OTHERS.min(units)).map(|other| (self.statistics.accesses as usize + other * 61) % units);
        let owner = if let Holders::Owner(owner) = holders { Some(usize::from(owner)) } else { None };
        for unit in others.chain(owner).chain(sharers.iter().copied()) {
            match (state(unit), holders) {
                (None, _) => {}
                (Some(state), Holders::Owner(owner)) => {
                    assert!(
                        usize::from(owner) == unit && state.owns(),
                        "line {line}: {unit} has {state:?}, {owner} owns it"
                    );
                }
                (Some(state), Holders::Sharers) => {
                    assert!(
                        state == State::Shared && sharers.contains(&unit),
                        "line {line}: {unit} has {state:?}, shared by {sharers:?}"
                    );
                }
                (Some(state), Holders::Nobody) => panic!("line {line}: {unit} has {state:?}, and nobody holds it"),
            }
        }
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        // Bodies that have not ended are unwound: their destructors may touch memory, which nobody watches any more.
        self.coroutines.clear();
    }
}
