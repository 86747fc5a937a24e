//! A mutex that spins, for data that no transaction touches on its common path.
//!
//! The operating system's mutex parks a thread. A core of a simulated chip and a step of an
//! explored schedule can't be parked, so a wait must go through [`Spin`].
//!
//! **Invariant.** Only the thread whose exchange made `latch` 1 touches `data`, until it stores 0.
//! That store (Release) pairs with the next successful exchange (Acquire), so each section happens
//! before the next.
//!
//! **Progress.** A waiter waits for the holder only, and the holder's section is short. There is no
//! queue: a waiter may be overtaken. A section that locks the same mutex again waits for itself.

use std::cell::UnsafeCell;
use std::fmt;

use crate::{Atomic64, Machine, Ordering, Spin};

/// A mutex that spins, for short and rare critical sections.
pub struct SpinMutex<M: Machine, T> {
    latch: M::U64,
    data: UnsafeCell<T>,
}

// SAFETY: `latch` lets one thread at a time reach the data. `T` need not be `Sync`: no two threads
// have a reference to the data at once.
unsafe impl<M: Machine, T: Send> Sync for SpinMutex<M, T> {}

impl<M: Machine, T> SpinMutex<M, T> {
    /// Returns a mutex that is not held.
    pub fn new(data: T) -> Self {
        SpinMutex { latch: M::U64::new(0), data: UnsafeCell::new(data) }
    }

    /// Runs `body` with the data and returns its result; `None` if the mutex is held.
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        /// Releases the mutex, also when `body` panics.
        struct Guard<'l, W: Atomic64>(&'l W);
        impl<W: Atomic64> Drop for Guard<'_, W> {
            fn drop(&mut self) {
                // Release: the next holder sees the data as this one left it; pairs with the
                // Acquire below. With a Relaxed store the next holder could find the latch free and
                // the data old: two threads would take the same entry off a list. No exchange is
                // needed: an exchange that fails stores nothing, so only the holder changes the
                // latch.
                self.0.store(0, Ordering::Release);
            }
        }
        // Acquire: pairs with the Release in `drop`. By it the last holder published the data.
        // Relaxed: a caller that fails touches nothing.
        self.latch.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let _guard = Guard(&self.latch);
        // SAFETY: this thread has set the latch, and `guard` clears it after the borrow has ended.
        Some(body(unsafe { &mut *self.data.get() }))
    }

    /// Waits for the mutex, runs `body` with the data and returns its result.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let mut body = Some(body);
        let mut spin = Spin::<M>::new();
        // Each look is an exchange, with no load before it. Most first looks succeed, and a load
        // would fetch the line twice: shared, then exclusive. `Spin` keeps later looks rare.
        // With longer pauses (`Spin::back_off`) a pool's mutex lies free while all wait for it.
        loop {
            if let Some(result) = self.try_with(|data| body.take().expect("runs once")(data)) {
                return result;
            }
            spin.wait();
        }
    }

    /// Returns the data without locking: the exclusive borrow keeps other threads away.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<M: Machine, T> fmt::Debug for SpinMutex<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinMutex").field("latch", &self.latch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Native;

    #[test]
    fn one_at_a_time_and_free_again_after_a_panic() {
        let mutex = SpinMutex::<Native, u64>::new(1);
        let inner = mutex.with(|data| {
            *data += 1;
            mutex.try_with(|_| ())
        });
        assert_eq!(inner, None, "held");
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mutex.with(|_| panic!("in the section"))));
        assert!(panicked.is_err());
        assert_eq!(mutex.with(|data| *data), 2);
    }
}
