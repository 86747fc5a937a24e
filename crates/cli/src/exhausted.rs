//! Memory or threads that the machine refuses. Either ends the process with one message and the
//! status of a refused command. The standard library would abort, or panic.

use std::alloc::{GlobalAlloc, Layout};

use crate::{REFUSED, show};

/// An allocator that ends the process when the memory is used up.
///
/// A null pointer is returned for a block of a gigabyte and more. Such sizes come from input, and
/// the code that asks for them names the input.
#[derive(Debug)]
pub struct EndsWhenExhausted<A>(pub A);

/// The size from which a block is large, in bytes.
const LARGE: usize = 1 << 30;

impl<A> EndsWhenExhausted<A> {
    #[inline(always)]
    fn checked(block: *mut u8, bytes: usize) -> *mut u8 {
        if block.is_null() && bytes < LARGE {
            end(&format_args!(
                "the memory is used up: there are no {bytes} bytes more; valid: a smaller run, or a larger limit (ulimit -v)"
            ));
        }
        block
    }
}

// SAFETY: each call is passed on as it is, and its result is returned, or the process ends.
unsafe impl<A: GlobalAlloc> GlobalAlloc for EndsWhenExhausted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        Self::checked(unsafe { self.0.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        Self::checked(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        Self::checked(unsafe { self.0.realloc(block, layout, bytes) }, bytes)
    }
}

/// How the panic of a thread that can't be started begins.
pub const NO_THREAD: &str = "failed to spawn thread";
/// What a user is told of such a panic.
pub const NO_MORE_THREADS: &str =
    "no more threads can be started; valid: fewer --threads, or a larger limit (ulimit -u, ulimit -v)";

/// Makes the panic of a thread that can't be started a refusal. `std::thread::scope` has no other
/// way to report it.
pub(crate) fn refuse_instead_of_panicking_for_threads() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if message.starts_with(NO_THREAD) {
            end(&NO_MORE_THREADS);
        }
        default(panic);
    }));
}

/// Ends the process as a refused command. No memory is asked for.
#[cold]
fn end(why: &dyn std::fmt::Display) -> ! {
    show::complain_of(why);
    std::process::exit(i32::from(REFUSED))
}
