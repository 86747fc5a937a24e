//! What the machine and its two backends, chip and explorer, share: an access, a handle to a
//! backend, and how many accesses are free.

use std::cell::Cell;

use corosensei::Yielder;

/// What an access does to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// An atomic read-modify-write.
    Update,
}

/// A handle to a chip or an explorer. Coroutines reach it as well, so it is never borrowed while
/// one of them runs.
pub(crate) struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// # Safety
    /// The target is used through handles only, on this thread, and outlives them. No action of
    /// [`Handle::with`] switches coroutines or uses a handle itself.
    pub(crate) unsafe fn new(to: *mut T) -> Self {
        Handle(to)
    }

    /// Runs `action` with the target.
    #[inline(always)]
    pub(crate) fn with<R>(self, action: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the target lives, and there is no other borrow of it, by the promise of `new`.
        action(unsafe { &mut *self.0 })
    }
}

thread_local! {
    /// How many accesses the running core may make before its backend has to be asked. The backend
    /// is told of writes all the same.
    static FREE: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many accesses may be made before the backend is asked.
#[inline(always)]
pub(crate) fn free() -> u64 {
    FREE.get()
}

/// Allows `accesses` from now on.
#[inline(always)]
pub(crate) fn set_free(accesses: u64) {
    FREE.set(accesses);
}

/// Makes `accesses` at once; `false` if the backend has to be asked before one of them.
#[inline(always)]
pub(crate) fn are_free(accesses: u64) -> bool {
    let free = FREE.get();
    if free >= accesses {
        FREE.set(free - accesses);
    }
    free >= accesses
}

/// Suspends the running coroutine until it is resumed.
///
/// # Safety
/// The yielder is that of the coroutine that runs.
#[inline]
pub(crate) unsafe fn suspend(yielder: *const Yielder<(), ()>) {
    // SAFETY: a yielder lives as long as its coroutine runs.
    unsafe { (*yielder).suspend(()) };
}
