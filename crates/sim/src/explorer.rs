//! An explorer of interleavings: before every access to shared memory a strategy may let another
//! core go on.
//!
//! What it explores are the sequentially consistent interleavings. What weaker orderings allow is
//! the business of a model checker of memory (loom), and of a sanitizer.

mod schedule;
mod strategy;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::access::{Access, Handle, are_free, free, set_free, suspend};
use crate::arena::reserve_memory;
use crate::chip::ChipError;
use crate::clock::set_hertz;
use crate::region::{allocate_inside, outside};
use crate::stack::{OneOfMany, stacks};
pub use schedule::{Schedule, ScheduleError, shrink};
pub use strategy::{Choice, Exhaustive, Pct, Random, Replay, Strategy};

/// What a core does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Reads a word.
    Load,
    /// Writes a word.
    Store,
    /// Reads and writes a word at once.
    Update,
    /// Waits for another core.
    Pause,
}

/// A step of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The core.
    pub core: usize,
    /// The kind of access.
    pub kind: StepKind,
    /// The algorithm's name for it: the last one that the core gave by
    /// [`contend_machine::Machine::step`].
    pub name: &'static str,
    /// The word's address; 0 for a pause.
    pub address: usize,
}

/// How an execution went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Which core made which step. Replayed on the same bodies, it does the same.
    pub schedule: Schedule,
    /// How many steps were made.
    pub steps: u64,
    /// Whether it was cut off because it made too many: bodies that wait for each other for ever.
    /// What they own is never freed.
    pub cut: bool,
    /// The steps, if they were asked for.
    pub trace: Vec<Step>,
}

type Body = Coroutine<(), (), (), OneOfMany>;

struct ExploredCore {
    yielder: *const Yielder<(), ()>,
    /// Whether it runs, or has resumed another that does, or that has in its turn.
    is_resumed: bool,
    name: &'static str,
}

/// Runs bodies, a core each, as a strategy says.
pub struct Explorer {
    cores: Vec<ExploredCore>,
    /// By core; none of those that have ended.
    coroutines: Vec<Option<Body>>,
    stacks: Vec<OneOfMany>,
    /// Cores that have not ended, in order, without the one in the background.
    runnable: Vec<usize>,
    /// The core in the background, as long as others run.
    background: Option<usize>,
    /// The core that runs, or is to go on; [`NOBODY`] when the execution is over.
    running: usize,
    strategy: *mut dyn Strategy,
    schedule: Schedule,
    /// How many further steps the running core makes without the strategy being asked, where steps
    /// are noted.
    stays: u64,
    /// The same, where steps are not noted and loads are free ([`crate::access::free`]): how many
    /// there were in the beginning.
    allowed: u64,
    /// Segments of the last schedule.
    segments: usize,
    /// Made so far, but for those that are free.
    steps: u64,
    steps_max: u64,
    trace: Option<Vec<Step>>,
    /// The words that bodies have changed, with their values from before, if executions are taken
    /// back. Bodies then allocate in the region.
    changed: Option<Vec<(usize, u64)>>,
}

impl std::fmt::Debug for Explorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explorer").field("cores", &self.cores.len()).field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Stands for the caller of the explorer, which is no core.
const NOBODY: usize = usize::MAX;

/// For the clock a step takes 100 ns. So a wait of a microsecond takes ten steps: what the other
/// cores do meanwhile matters, not its length.
const STEPS_PER_SECOND: f64 = 1e7;

impl Explorer {
    /// An explorer of up to `cores` bodies at once, whose executions are cut off after `steps_max`
    /// steps.
    ///
    /// # Errors
    /// The host has no room for the stacks, or for the simulated memory.
    pub fn new(cores: usize, steps_max: u64) -> Result<Explorer, ChipError> {
        set_hertz(STEPS_PER_SECOND);
        reserve_memory()?;
        let stacks =
            stacks(cores).ok_or_else(|| ChipError("the host has too little address space for stacks".into()))?;
        Ok(Explorer {
            cores: Vec::with_capacity(cores),
            coroutines: Vec::with_capacity(cores),
            stacks,
            runnable: Vec::new(),
            background: None,
            running: NOBODY,
            strategy: std::ptr::null_mut::<Random>() as *mut dyn Strategy,
            schedule: Schedule::default(),
            stays: 0,
            allowed: 0,
            segments: 0,
            steps: 0,
            steps_max,
            trace: None,
            changed: None,
        })
    }

    /// From now on what bodies do is taken back ([`crate::checkpoint`]): the machine's words that
    /// they change are noted, and what they allocate is in this thread's region.
    pub fn takes_back(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// Gives the words that were changed what they held before.
    pub(crate) fn take_back(&mut self) {
        for (address, value) in self.changed.iter_mut().flat_map(|changed| changed.drain(..).rev()) {
            // SAFETY: a word that a body had just before it changed it. The machine's memory is
            // there as long as the thread, and nobody else is there.
            unsafe { std::ptr::with_exposed_provenance_mut::<u64>(address).write(value) };
        }
    }

    /// Makes a core of each body, and of `background` the last; none of them has begun.
    pub(crate) fn begin(
        &mut self,
        mut bodies: Vec<Box<dyn FnOnce()>>,
        background: Option<Box<dyn FnOnce()>>,
        strategy: *mut (dyn Strategy + 'static),
        traced: bool,
    ) {
        self.runnable.clear();
        self.runnable.extend(0..bodies.len());
        self.background = background.is_some().then_some(bodies.len());
        bodies.extend(background);
        (self.schedule, self.steps) = (Schedule::with_room_of(self.segments), 0);
        (self.stays, self.allowed) = (0, 0);
        let inside = self.changed.is_some();
        self.trace = traced.then(Vec::new);
        self.strategy = strategy;
        self.cores.clear();
        self.coroutines.clear();
        for body in bodies {
            let stack = self.stacks.pop().expect("a core for each body");
            self.cores.push(ExploredCore { yielder: std::ptr::null(), is_resumed: false, name: "begin" });
            let core: *mut ExploredCore = self.cores.last_mut().expect("just added");
            let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
                // SAFETY: the cores stay in place until all coroutines have ended: their number is
                // below the vector's capacity.
                unsafe { (*core).yielder = yielder };
                allocate_inside(inside);
                body();
                allocate_inside(false);
            });
            self.coroutines.push(Some(coroutine));
        }
    }

    /// Lets cores go on until all have ended, or there were too many steps. The machine's accesses
    /// must come to this explorer meanwhile.
    pub(crate) fn run_hooked(explorer: Handle<Explorer>) {
        explorer.with(|explorer| explorer.choose(None, false));
        Self::go_on(explorer, NOBODY);
    }

    /// Ends an execution: cuts off the bodies that are left, and tells the strategy.
    pub(crate) fn finish(&mut self, strategy: &mut dyn Strategy) -> Execution {
        // Else they have all ended.
        let cut = self.coroutines.iter().any(Option::is_some);
        for mut coroutine in self.coroutines.drain(..).flatten() {
            // SAFETY: what is on the stack is forgotten, and not used again: nothing on it is
            // borrowed by what lives on. It can't be unwound: its destructors might wait for what
            // another of those that were cut off has.
            unsafe { coroutine.force_reset() };
            self.stacks.push(coroutine.into_stack());
        }
        self.note_free();
        strategy.end(self.steps);
        self.segments = self.schedule.segments().len();
        Execution {
            schedule: std::mem::take(&mut self.schedule),
            steps: self.steps,
            cut,
            trace: self.trace.take().unwrap_or_default(),
        }
    }

    /// Lets the chosen core go on, and returns when `me` is chosen again. The core that ran before
    /// resumes the chosen core, on its own stack. So a change of cores needs one switch of stacks.
    /// It would need two if each core went back to the caller of the explorer.
    ///
    /// It is inlined in each step that counts: a processor predicts returns by the calls that it
    /// has seen, and after a switch of stacks it has seen those of the other one. So every return
    /// costs 20 cycles there.
    #[inline(always)]
    fn go_on(explorer: Handle<Explorer>, me: usize) {
        loop {
            let next = explorer.with(|explorer| explorer.running);
            if next == me {
                return;
            }
            let resumed = explorer.with(|explorer| {
                let core = explorer.cores.get_mut(next).filter(|core| !core.is_resumed)?;
                core.is_resumed = true;
                // SAFETY: there are as many as cores.
                Some(unsafe { explorer.coroutines.as_mut_ptr().add(next) })
            });
            let Some(coroutine) = resumed else {
                // It waits, as all do that have resumed another, until that one suspends itself.
                let yielder = explorer.with(|explorer| explorer.cores[me].yielder);
                // SAFETY: the core that runs has set its yielder when it began. That of nobody is
                // not asked for: all cores are nobody's to wait for.
                unsafe { suspend(yielder) };
                continue;
            };
            // SAFETY: `coroutines` is not changed before the execution is over. Only one core
            // resumes a coroutine at a time: `is_resumed` was false.
            let coroutine = unsafe { &mut *coroutine };
            match coroutine.as_mut().expect("a core that has not ended").resume(()) {
                CoroutineResult::Yield(()) => explorer.with(|explorer| explorer.cores[next].is_resumed = false),
                CoroutineResult::Return(()) => {
                    let ended = coroutine.take().expect("it has just run");
                    explorer.with(|explorer| explorer.end(next, ended.into_stack()));
                }
            }
        }
    }

    /// A core has ended; another goes on.
    fn end(&mut self, core: usize, stack: OneOfMany) {
        self.note_free();
        self.stacks.push(stack);
        self.runnable.retain(|other| *other != core);
        if self.background == Some(core) {
            self.background = None;
        }
        self.running = NOBODY;
        if self.background.is_some() || !self.runnable.is_empty() {
            self.choose(None, false);
        }
    }

    /// Notes the steps that were free, for which the strategy was not asked.
    fn note_free(&mut self) {
        let made = self.allowed - free();
        self.schedule.push_again(made);
        self.steps += made;
        (self.stays, self.allowed) = (0, 0);
        set_free(0);
    }

    /// Chooses the core that runs; [`NOBODY`], if there were too many steps.
    fn choose(&mut self, running: Option<usize>, waits: bool) {
        self.note_free();
        let chosen = match self.background {
            // Nobody is left but the core in the background, which ends now.
            Some(background) if self.runnable.is_empty() => background,
            _ => self.ask(running, waits),
        };
        self.running = if self.steps < self.steps_max { chosen } else { NOBODY };
    }

    /// Asks the strategy.
    fn ask(&mut self, running: Option<usize>, waits: bool) -> usize {
        let Explorer { runnable, background, steps: step, .. } = self;
        let choice = Choice { running, waits, runnable, background: *background, step: *step };
        // SAFETY: the strategy is borrowed by `execute`, which is under way, and by nobody else.
        let strategy = unsafe { &mut *self.strategy };
        let chosen = strategy.choose(&choice);
        let stays = strategy.stays();
        if self.trace.is_some() {
            self.stays = stays;
        } else {
            // The step for which was asked comes before.
            self.allowed = stays.min(self.steps_max.saturating_sub(self.steps + 1));
            set_free(self.allowed);
        }
        debug_assert!(self.runnable.contains(&chosen) || self.background == Some(chosen), "core {chosen} has ended");
        self.schedule.push(chosen);
        chosen
    }

    /// A step is to come that is not free.
    #[inline(always)]
    fn step_to_come(explorer: Handle<Explorer>, kind: StepKind, address: usize) {
        let is_asked = explorer.with(|explorer| {
            let stays = explorer.stays > 0 && kind != StepKind::Pause && explorer.steps < explorer.steps_max;
            if stays {
                explorer.stays -= 1;
                explorer.schedule.push_again(1);
            }
            !stays
        });
        if is_asked {
            Self::choice_to_come(explorer, kind);
        }
        explorer.with(|explorer| {
            explorer.steps += 1;
            if explorer.trace.is_some() {
                explorer.note_step(kind, address);
            }
        });
    }

    /// Lets the strategy choose; returns when the running core goes on.
    #[inline(always)]
    fn choice_to_come(explorer: Handle<Explorer>, kind: StepKind) {
        // The explorer's own memory must outlive the execution, so it is not allocated in the
        // region. The same holds for what other cores' code allocates while this one waits.
        let inside = allocate_inside(false);
        let core = explorer.with(|explorer| {
            let core = explorer.running;
            explorer.choose(Some(core), kind == StepKind::Pause);
            core
        });
        Self::go_on(explorer, core);
        allocate_inside(inside);
    }

    #[cold]
    fn note_step(&mut self, kind: StepKind, address: usize) {
        let core = self.running;
        let step = Step { core, kind, name: self.cores[core].name, address };
        if let Some(trace) = &mut self.trace {
            outside(|| trace.push(step));
        }
    }

    #[inline(always)]
    pub(crate) fn load(explorer: Handle<Explorer>, address: usize) {
        Self::step_to_come(explorer, StepKind::Load, address);
    }

    #[inline]
    pub(crate) fn change(explorer: Handle<Explorer>, address: usize, access: Access) {
        if !are_free(1) {
            Self::change_that_counts(explorer, address, access);
        }
        explorer.with(|explorer| {
            if let Some(changed) = &mut explorer.changed {
                if changed.len() == changed.capacity() {
                    outside(|| changed.reserve(1));
                }
                // SAFETY: the word that is going to be changed, by this thread.
                changed.push((address, unsafe { std::ptr::with_exposed_provenance::<u64>(address).read() }));
            }
        });
    }

    #[inline(never)]
    fn change_that_counts(explorer: Handle<Explorer>, address: usize, access: Access) {
        let kind = if access == Access::Update { StepKind::Update } else { StepKind::Store };
        Self::step_to_come(explorer, kind, address);
    }

    #[inline(never)]
    pub(crate) fn pause(explorer: Handle<Explorer>) {
        Self::step_to_come(explorer, StepKind::Pause, 0);
    }

    pub(crate) fn now(explorer: Handle<Explorer>) -> u64 {
        explorer.with(|explorer| explorer.steps + explorer.allowed - free())
    }

    pub(crate) fn step(explorer: Handle<Explorer>, name: &'static str) {
        explorer.with(|explorer| {
            // Nobody else asks for it.
            if explorer.trace.is_some() {
                let running = explorer.running;
                explorer.cores[running].name = name;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use contend_machine::{Atomic64, Machine, Ordering};

    use super::*;
    use crate::Simulated;

    type Word = <Simulated as Machine>::U64;

    /// Two cores that each add to a counter, not atomically.
    fn lossy(word: &Rc<Word>) -> Vec<Box<dyn FnOnce()>> {
        let add = |word: Rc<Word>| {
            Box::new(move || {
                Simulated::step("read");
                let value = word.load(Ordering::Relaxed);
                Simulated::step("write");
                word.store(value + 1, Ordering::Relaxed);
            }) as Box<dyn FnOnce()>
        };
        vec![add(Rc::clone(word)), add(Rc::clone(word))]
    }

    fn run(explorer: &mut Explorer, strategy: &mut (dyn Strategy + 'static)) -> (Execution, u64) {
        let word = Rc::new(Word::new(0));
        strategy.begin(2);
        let execution = explorer.execute(lossy(&word), strategy, true);
        (execution, word.load(Ordering::Relaxed))
    }

    #[test]
    fn every_strategy_loses_an_update_and_its_schedule_loses_it_again() {
        let mut explorer = Explorer::new(2, 1000).expect("stacks");
        let strategies: Vec<Box<dyn Strategy>> =
            vec![Box::new(Random::new(1)), Box::new(Pct::new(2, 1)), Box::new(Exhaustive::new(1))];
        for mut strategy in strategies {
            let lost = (0..200).find_map(|_| {
                let (execution, value) = run(&mut explorer, &mut *strategy);
                (value == 1).then_some(execution)
            });
            let lost = lost.expect("an update gets lost");
            let (again, value) = run(&mut explorer, &mut Replay::new(lost.schedule.clone()));
            assert_eq!(value, 1);
            assert_eq!(again.trace, lost.trace);
            let names: Vec<_> = lost.trace.iter().map(|step| step.name).collect();
            assert_eq!(names.iter().filter(|name| **name == "write").count(), 2, "{names:?}");
        }
    }

    #[test]
    fn without_a_preemption_nothing_is_lost_and_the_search_ends() {
        let mut explorer = Explorer::new(2, 1000).expect("stacks");
        let mut strategy = Exhaustive::new(0);
        let mut executions = 0;
        loop {
            let (_, value) = run(&mut explorer, &mut strategy);
            assert_eq!(value, 2);
            executions += 1;
            if strategy.is_exhausted() {
                break;
            }
        }
        assert_eq!(executions, 2, "either core first");
    }

    #[test]
    fn every_strategy_lets_the_core_in_the_background_come_between_and_replays_it() {
        let run = |explorer: &mut Explorer, strategy: &mut (dyn Strategy + 'static)| {
            let (word, left) = (Rc::new(Word::new(0)), Rc::new(Cell::new(2)));
            let seen = Rc::new(Cell::new(0));
            let look = || {
                let (word, left, seen) = (Rc::clone(&word), Rc::clone(&left), Rc::clone(&seen));
                Box::new(move || {
                    let before = word.load(Ordering::Relaxed);
                    seen.set(seen.get() + word.load(Ordering::Relaxed) - before);
                    left.set(left.get() - 1);
                }) as Box<dyn FnOnce()>
            };
            let (ticks, others) = (Rc::clone(&word), Rc::clone(&left));
            let background = Box::new(move || {
                while others.get() > 0 {
                    ticks.fetch_add(1, Ordering::Relaxed);
                    Simulated::pause();
                }
            });
            strategy.begin(2);
            let execution = explorer.execute_beside(vec![look(), look()], Some(background), strategy, true);
            assert!(!execution.cut);
            (execution, seen.get())
        };
        let mut explorer = Explorer::new(3, 1000).expect("stacks");
        let strategies: Vec<Box<dyn Strategy>> =
            vec![Box::new(Random::new(1)), Box::new(Pct::new(2, 1)), Box::new(Exhaustive::new(1))];
        for mut strategy in strategies {
            let between = (0..300).find_map(|_| {
                let (execution, seen) = run(&mut explorer, &mut *strategy);
                (seen > 0).then_some((execution, seen))
            });
            let (execution, seen) = between.expect("it comes between two loads");
            let again = run(&mut explorer, &mut Replay::new(execution.schedule.clone()));
            // Each run has a word of its own, at any address.
            let steps =
                |of: &Execution| of.trace.iter().map(|step| (step.core, step.kind, step.name)).collect::<Vec<_>>();
            assert_eq!((steps(&again.0), again.1), (steps(&execution), seen));
            let mut nothing = Replay::new(Schedule::default());
            assert_eq!(run(&mut explorer, &mut nothing).1, 0, "nobody has to let it go on");
        }
    }

    #[test]
    fn a_wait_for_ever_is_cut_off() {
        let mut explorer = Explorer::new(1, 100).expect("stacks");
        let dropped = Rc::new(Cell::new(false));
        struct Flag(Rc<Cell<bool>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let flag = Flag(Rc::clone(&dropped));
        let body = Box::new(move || {
            let _flag = flag;
            loop {
                Simulated::pause();
            }
        });
        let mut strategy = Random::new(1);
        strategy.begin(1);
        let execution = explorer.execute(vec![body], &mut strategy, false);
        // Nothing is unwound: it might wait for another.
        assert!(execution.cut && !dropped.get(), "{execution:?}");
        let word = Rc::new(Word::new(0));
        let again = Rc::clone(&word);
        explorer.execute(vec![Box::new(move || again.store(5, Ordering::Relaxed))], &mut strategy, false);
        assert_eq!(word.load(Ordering::Relaxed), 5, "the stack serves again");
    }
}
