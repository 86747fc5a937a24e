//! A machine on which a waiting transaction gives its turn back to a conductor. Programs are
//! coroutines of one thread, and run exactly in the order that the conductor chooses.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use contend_machine::{Cycles, Machine, Native, Ordering};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Conducted;

/// The reason for which a program gives its turn back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The program has taken a step.
    Step,
    /// The program waits for another in the middle of a step.
    Waits,
}

/// A program and its state.
pub(crate) struct Program<T> {
    // Boxed, like the body below, because a coroutine transfers values of at most 1024 bytes.
    coroutine: Coroutine<(), Turn, Box<T>, DefaultStack>,
    yielder: *const Yielder<(), Turn>,
}

thread_local! {
    /// The yielder of the running program; null outside of one.
    static RUNNING: Cell<*const Yielder<(), Turn>> = const { Cell::new(std::ptr::null()) };
    /// The stacks of ended programs, for others.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

impl<T: 'static> Program<T> {
    /// Creates a program, which calls [`step`] after each of its steps.
    pub(crate) fn new(body: impl FnOnce() -> T + 'static) -> Self {
        let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
        let body = Box::new(body);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Turn>, ()| {
            RUNNING.set(yielder);
            Box::new(body())
        });
        Program { coroutine, yielder: std::ptr::null() }
    }

    /// Lets the program go on until it has taken a step, waits, or has ended.
    pub(crate) fn go_on(&mut self) -> Result<Turn, T> {
        RUNNING.set(self.yielder);
        let result = self.coroutine.resume(());
        self.yielder = RUNNING.replace(std::ptr::null());
        match result {
            CoroutineResult::Yield(turn) => Ok(turn),
            CoroutineResult::Return(value) => Err(*value),
        }
    }
}

impl<T> Program<T> {
    /// Keeps the stack of a program that has ended, for reuse.
    pub(crate) fn end(self) {
        STACKS.with_borrow_mut(|stacks| stacks.push(self.coroutine.into_stack()));
    }
}

/// Notes that the running program has taken a step.
pub(crate) fn step() {
    give_back(Turn::Step);
}

fn give_back(turn: Turn) {
    // SAFETY: it is the yielder of the running coroutine, and lives as long as that.
    if let Some(yielder) = unsafe { RUNNING.get().as_ref() } {
        yielder.suspend(turn);
    }
}

impl Machine for Conducted {
    type U64 = <Native as Machine>::U64;
    const NAME: &'static str = "conducted";

    fn fence(order: Ordering) {
        Native::fence(order);
    }
    fn now() -> Cycles {
        CLOCK.replace(CLOCK.get() + 1)
    }
    fn cycles_per_second() -> f64 {
        1e9
    }
    fn pause() {}
    fn yield_now() {
        // A wait takes time, so that a timeout ends it after some thousands of turns.
        CLOCK.set(CLOCK.get() + 100);
        give_back(Turn::Waits);
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
