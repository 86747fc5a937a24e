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
