//! Coroutines of one thread, which take turns in a ring: each switches to the next one directly,
//! without a scheduler in between.
//!
//! A switch stores the stack pointer of the one and loads that of the other. The registers that a
//! function must keep for its caller are listed as overwritten, so the compiler saves those that
//! are in use, and no others. That takes some ten instructions, where a call of a library's switch,
//! to a scheduler and from there to the next coroutine, takes five times as many.

use std::any::Any;
use std::arch::asm;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

use crate::Stack;

/// A coroutine that has not ended, or the thread that runs the ring.
struct Coroutine<'b> {
    /// The stack pointer of when it was left.
    left_at: *mut u8,
    next: *mut Coroutine<'static>,
    previous: *mut Coroutine<'static>,
    /// The thread. The last coroutine of the ring switches to it when it ends. Its own `next` is
    /// the first parked coroutine; the `next` of each of these is the next one.
    thread: *mut Coroutine<'static>,
    body: Option<Box<dyn FnOnce() + 'b>>,
    panic: Option<Box<dyn Any + Send>>,
}

thread_local! {
    /// The coroutine that runs; null outside of a ring.
    static CURRENT: Cell<*mut Coroutine<'static>> = const { Cell::new(null_mut()) };
}

/// `LocalKey::with` is not marked to be inlined, and would be a call.
#[inline(always)]
fn current() -> *mut Coroutine<'static> {
    CURRENT.try_with(Cell::get).expect("what has no destructor is there as long as the thread")
}

#[inline(always)]
fn set_current(coroutine: *mut Coroutine<'static>) {
    CURRENT.try_with(|current| current.set(coroutine)).expect("as in `current`");
}

/// Runs the bodies as coroutines of this thread, on a stack each, until all have ended. The first
/// one begins; the others begin when those before them switch.
///
/// # Panics
/// With the payload of the first body that has panicked, after all others have ended. Or there are
/// fewer stacks than bodies, or the thread runs coroutines already.
pub fn run_together<'b>(bodies: Vec<Box<dyn FnOnce() + 'b>>, stacks: &mut [Stack]) {
    assert!(current().is_null(), "a coroutine can't run coroutines");
    let count = bodies.len();
    assert!(count <= stacks.len(), "{count} coroutines on {} stacks", stacks.len());
    if count == 0 {
        return;
    }
    let ended = |body| Coroutine {
        left_at: null_mut(),
        next: null_mut(),
        previous: null_mut(),
        thread: null_mut(),
        body,
        panic: None,
    };
    let mut thread: Coroutine<'b> = ended(None);
    let mut ring: Vec<Coroutine<'b>> = bodies.into_iter().map(|body| ended(Some(body))).collect();
    // From here on the coroutines are reached by these pointers only, until all have ended.
    let thread: *mut Coroutine<'b> = &raw mut thread;
    let first: *mut Coroutine<'b> = ring.as_mut_ptr();
    for (number, stack) in stacks.iter().take(count).enumerate() {
        // SAFETY: all numbers are below the ring's length.
        unsafe {
            let coroutine = &mut *first.add(number);
            coroutine.next = first.add((number + 1) % count).cast();
            coroutine.previous = first.add((number + count - 1) % count).cast();
            coroutine.thread = thread.cast();
            coroutine.left_at = prepared(stack);
        }
    }
    set_current(first.cast());
    // SAFETY: the first stack was just prepared. The thread's own is continued when the last
    // coroutine has ended, in `begin`.
    unsafe { switch(&raw mut (*thread).left_at, (*first).left_at) };
    if let Some(panic) = ring.into_iter().find_map(|coroutine| coroutine.panic) {
        resume_unwind(panic);
    }
}

/// Lets the other coroutines of this thread's ring run. Returns when it is this one's turn again.
/// Returns at once outside of a ring.
#[inline(always)]
pub(crate) fn switch_to_next() {
    let coroutine = current();
    if coroutine.is_null() {
        return;
    }
    // SAFETY: the coroutines of a ring live as long as it; this thread alone changes them.
    unsafe {
        let next = (*coroutine).next;
        if next != coroutine {
            set_current(next);
            switch(&raw mut (*coroutine).left_at, (*next).left_at);
        }
    }
}

/// Takes the calling coroutine out of its ring, until another one calls [`wake_all`] or ends.
/// Returns `false` at once outside of a ring, and for the only coroutine in it.
pub fn park() -> bool {
    if is_alone() {
        return false;
    }
    let coroutine = current();
    // SAFETY: as in `switch_to_next`; the thread's own lives as long as the ring.
    unsafe {
        let next = (*coroutine).next;
        unlink(coroutine);
        let thread = (*coroutine).thread;
        (*coroutine).next = (*thread).next;
        (*thread).next = coroutine;
        set_current(next);
        switch(&raw mut (*coroutine).left_at, (*next).left_at);
    }
    true
}

/// Returns whether no other coroutine of this thread would run if the calling one switched.
pub fn is_alone() -> bool {
    let coroutine = current();
    // SAFETY: as in `switch_to_next`.
    coroutine.is_null() || unsafe { (*coroutine).next == coroutine }
}

/// Brings all parked coroutines back into the ring of the calling one. Does nothing outside of a
/// ring.
pub fn wake_all() {
    let coroutine = current();
    if coroutine.is_null() {
        return;
    }
    // SAFETY: as in `park`.
    unsafe {
        let thread = (*coroutine).thread;
        while !(*thread).next.is_null() {
            let parked = (*thread).next;
            (*thread).next = (*parked).next;
            let next = (*coroutine).next;
            ((*parked).previous, (*parked).next) = (coroutine, next);
            ((*coroutine).next, (*next).previous) = (parked, parked);
        }
    }
}

/// Takes a coroutine out of its ring.
///
/// # Safety
/// It is in the ring of this thread.
unsafe fn unlink(coroutine: *mut Coroutine<'static>) {
    // SAFETY: all coroutines of a ring live.
    unsafe {
        let (previous, next) = ((*coroutine).previous, (*coroutine).next);
        (*previous).next = next;
        (*next).previous = previous;
    }
}

/// The first and only function of each coroutine's stack.
extern "C" fn begin() -> ! {
    let coroutine = current();
    // SAFETY: the coroutine that runs is in a ring, whose coroutines live until all have ended.
    // This thread alone reaches them, and no reference to one is kept over a switch.
    unsafe {
        let body = (*coroutine).body.take().expect("a coroutine begins once");
        // Nothing may unwind beyond the end of the stack.
        (*coroutine).panic = catch_unwind(AssertUnwindSafe(body)).err();
        // Nobody else might wake the parked ones.
        wake_all();
        let next = (*coroutine).next;
        unlink(coroutine);
        let (current, next) = if next == coroutine { (null_mut(), (*coroutine).thread) } else { (next, next) };
        set_current(current);
        switch(&raw mut (*coroutine).left_at, (*next).left_at);
    }
    unreachable!("a coroutine that has ended is in no ring");
}

/// Prepares a stack so that a switch to it begins [`begin`]. Returns its stack pointer.
#[cfg(target_arch = "x86_64")]
fn prepared(stack: &Stack) -> *mut u8 {
    // What `switch` takes from the stack lies below the address that a call would have left, which
    // is 0: a backtrace ends there. So the stack is aligned as at any beginning of a function.
    let top = stack.top().cast::<usize>();
    // SAFETY: two words below the top are the stack's own.
    unsafe {
        top.sub(1).write(0);
        top.sub(2).write(begin as *const () as usize);
        top.sub(2).as_ptr().cast()
    }
}

/// Continues at `to`, which a switch has left or [`prepared`] has made. Returns when another switch
/// continues at what this one stores to `left_at`.
///
/// # Safety
/// The stack of `to` lives, and is left. That of the caller lives until it is continued, by the
/// same thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn switch(left_at: *mut *mut u8, to: *mut u8) {
    // The compiler uses these two registers for itself, so they can't be listed as overwritten. The
    // jump is indirect and not a `ret`: the processor would predict the caller of this stack.
    // SAFETY: each path here finds on the stack what the path before has left. Everything that the
    // other stack's code may overwrite is listed, memory included.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbp",
            "pop rbx",
            inout("rdi") left_at => _,
            inout("rsi") to => _,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// Prepares a stack so that a switch to it begins [`begin`]. Returns its stack pointer.
#[cfg(target_arch = "aarch64")]
fn prepared(stack: &Stack) -> *mut u8 {
    let top = stack.top().cast::<usize>();
    // SAFETY: four words below the top are the stack's own.
    unsafe {
        top.sub(2).write(begin as *const () as usize);
        top.sub(4).as_ptr().cast()
    }
}

/// Continues at `to`, which a switch has left or [`prepared`] has made. Returns when another switch
/// continues at what this one stores to `left_at`.
///
/// # Safety
/// The stack of `to` lives, and is left. That of the caller lives until it is continued, by the
/// same thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn switch(left_at: *mut *mut u8, to: *mut u8) {
    // The compiler uses x19 and x29 for itself, so they can't be listed as overwritten. x30 is 0
    // where a coroutine begins, so that a backtrace ends there.
    // SAFETY: each path here finds on the stack what the path before has left. Everything that the
    // other stack's code may overwrite is listed, memory included.
    unsafe {
        asm!(
            "stp x19, x29, [sp, #-32]!",
            "adr x9, 2f",
            "str x9, [sp, #16]",
            "mov x9, sp",
            "str x9, [x0]",
            "mov sp, x1",
            "ldr x9, [sp, #16]",
            "mov x30, xzr",
            "br x9",
            "2:",
            "ldp x19, x29, [sp], #32",
            inout("x0") left_at => _,
            inout("x1") to => _,
            out("x20") _,
            out("x21") _,
            out("x22") _,
            out("x23") _,
            out("x24") _,
            out("x25") _,
            out("x26") _,
            out("x27") _,
            out("x28") _,
            out("v8") _,
            out("v9") _,
            out("v10") _,
            out("v11") _,
            out("v12") _,
            out("v13") _,
            out("v14") _,
            out("v15") _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    type Body<'b> = Box<dyn FnOnce() + 'b>;

    fn run(bodies: Vec<Body<'_>>) {
        let mut stacks = Stack::many(bodies.len()).expect("addresses");
        run_together(bodies, &mut stacks);
    }

    #[test]
    fn coroutines_take_turns_until_all_have_ended() {
        let order = RefCell::new(Vec::new());
        let bodies = (0..3).map(|number| {
            let order = &order;
            Box::new(move || {
                // The last one ends first.
                for round in 0..3 - number {
                    order.borrow_mut().push((number, round));
                    switch_to_next();
                }
            }) as Body<'_>
        });
        run(bodies.collect());
        assert_eq!(order.into_inner(), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]);
    }

    #[test]
    fn a_switch_keeps_what_both_sides_compute() {
        let mut sums = [0.0; 2];
        let bodies = sums.iter_mut().enumerate().map(|(number, sum)| {
            Box::new(move || {
                let (mut whole, mut half) = (number as u64, 0.5 * number as f64);
                for round in 0..1000u64 {
                    whole = whole.wrapping_mul(3) ^ round;
                    half = half.mul_add(0.5, round as f64);
                    switch_to_next();
                }
                *sum = half + (whole % 1000) as f64;
            }) as Body<'_>
        });
        run(bodies.collect());
        let alone = |number: u64| {
            let (mut whole, mut half) = (number, 0.5 * number as f64);
            for round in 0..1000u64 {
                whole = whole.wrapping_mul(3) ^ round;
                half = half.mul_add(0.5, round as f64);
            }
            half + (whole % 1000) as f64
        };
        assert_eq!(sums, [alone(0), alone(1)]);
    }

    #[test]
    fn parked_coroutines_wait_until_they_are_woken_or_one_ends() {
        let order = RefCell::new(Vec::new());
        let note = |number| order.borrow_mut().push(number);
        let parks = |number: u32| {
            Box::new(move || {
                note(number);
                assert!(park());
                note(10 + number);
            }) as Body<'_>
        };
        let wakes = Box::new(|| {
            note(3);
            switch_to_next();
            note(4);
            wake_all();
            switch_to_next();
            note(5);
        });
        run(vec![parks(0), parks(1), wakes]);
        assert_eq!(order.take(), [0, 1, 3, 4, 10, 11, 5]);
        // Nobody wakes them, but the one that ends does.
        run(vec![parks(0), parks(1), Box::new(|| note(3))]);
        assert_eq!(order.take(), [0, 1, 3, 10, 11]);
        // The only one of a ring goes on.
        run(vec![Box::new(|| assert!(!park()))]);
        assert!(!park());
        wake_all();
    }

    #[test]
    fn a_panic_ends_one_coroutine_and_comes_out_at_the_end() {
        let done = Cell::new(0);
        let count = || {
            for _ in 0..10 {
                switch_to_next();
            }
            done.set(done.get() + 1);
        };
        let bodies: Vec<Body<'_>> = vec![Box::new(count), Box::new(|| panic!("one of three")), Box::new(count)];
        let panic = catch_unwind(AssertUnwindSafe(|| run(bodies))).expect_err("one has panicked");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"one of three"));
        assert_eq!(done.get(), 2);
        // The thread can run others afterwards, and alone nothing switches.
        switch_to_next();
        run(vec![Box::new(|| done.set(7))]);
        assert_eq!(done.get(), 7);
        run_together(Vec::new(), &mut []);
    }
}
