//! A mutex that spins, for data that no transaction touches on its common path.
//!
//! The operating system's mutex parks a thread. A core of a simulated chip and a step of an
//! explored schedule can't be parked, so a wait must go through [`Spin`].

use std::cell::UnsafeCell;
use std::fmt;

use crate::{Atomic64, Machine, Ordering, Spin};

/// A mutex that spins, for short and rare critical sections.
pub struct SpinMutex<M: Machine, T> {
    latch: M::U64,
    data: UnsafeCell<T>,
}

// SAFETY: `latch` lets one thread at a time reach the data.
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
                // Acquire below.
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
