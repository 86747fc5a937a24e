//! Who watches this host thread's accesses.

use std::cell::Cell;

use corosensei::Yielder;

use crate::chip::Chip;
use crate::explorer::Explorer;

/// What is done to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// An atomic read-modify-write.
    Update,
}

/// Who watches, or runs coroutines: reached from the coroutines, too, and so never borrowed while one of them runs.
pub(crate) struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// # Safety
    /// What it leads to is used through handles only, on this thread, and outlives them. No action of [`Handle::with`] switches
    /// coroutines or uses a handle itself.
    pub(crate) unsafe fn new(to: *mut T) -> Self {
        Handle(to)
    }

    /// Does something with it.
    #[inline(always)]
    pub(crate) fn with<R>(self, action: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: it lives, and nobody else has borrowed it, by the promise of `new`.
        action(unsafe { &mut *self.0 })
    }
}

/// Who watches.
#[derive(Clone, Copy)]
pub(crate) enum Watcher {
    Nobody,
    Chip(Handle<Chip>),
    Explorer(Handle<Explorer>),
}

thread_local! {
    static WATCHER: Cell<Watcher> = const { Cell::new(Watcher::Nobody) };
    /// How many accesses the core that runs may make before its watcher has to be asked; those that write it is told of all the same.
    static FREE: Cell<u64> = const { Cell::new(0) };
}

/// How many accesses may be made before the watcher is asked.
#[inline(always)]
pub(crate) fn free() -> u64 {
    FREE.get()
}

/// So many may be made from now on.
#[inline(always)]
pub(crate) fn set_free(accesses: u64) {
    FREE.set(accesses);
}

/// Makes so many accesses at once; `false` if the watcher has to be asked before one of them.
#[inline(always)]
pub(crate) fn are_free(accesses: u64) -> bool {
    let free = FREE.get();
    if free >= accesses {
        FREE.set(free - accesses);
    }
    free >= accesses
}

#[inline(always)]
pub(crate) fn watcher() -> Watcher {
    WATCHER.with(Cell::get)
}

/// Has the accesses of `body` watched.
pub(crate) fn watched<R>(watcher: Watcher, body: impl FnOnce() -> R) -> R {
    /// Ends the watch also when `body` panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            WATCHER.with(|current| current.set(Watcher::Nobody));
            set_free(0);
        }
    }
    WATCHER.with(|current| current.set(watcher));
    let _reset = Reset;
    body()
}

/// Lets the coroutine that runs wait until it is resumed.
///
/// # Safety
/// The yielder is that of the coroutine that runs.
#[inline]
pub(crate) unsafe fn suspend(yielder: *const Yielder<(), ()>) {
    // SAFETY: a yielder lives as long as its coroutine runs.
    unsafe { (*yielder).suspend(()) };
}
