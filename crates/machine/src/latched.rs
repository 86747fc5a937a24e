//! A lock for what is not on the transaction path.

use std::cell::UnsafeCell;
use std::fmt;

use crate::{Atomic64, Machine, Ordering, Spin};

/// Data under a spinning latch, for short and rare critical sections.
pub struct Latched<M: Machine, T> {
    latch: M::U64,
    data: UnsafeCell<T>,
}

// SAFETY: the latch lets one thread at a time reach the data.
unsafe impl<M: Machine, T: Send> Sync for Latched<M, T> {}

impl<M: Machine, T> Latched<M, T> {
    /// Data that nobody has.
    pub fn new(data: T) -> Self {
        Latched { latch: M::U64::new(0), data: UnsafeCell::new(data) }
    }

    /// Runs `body` with the data, unless another thread has it.
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        /// Lets go also when `body` panics.
        struct Held<'l, W: Atomic64>(&'l W);
        impl<W: Atomic64> Drop for Held<'_, W> {
            fn drop(&mut self) {
                // Release: pairs with the Acquire below.
                self.0.store(0, Ordering::Release);
            }
        }
        // Acquire: pairs with the Release below, by which the last holder left the data.
        self.latch.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let _held = Held(&self.latch);
        // SAFETY: this thread holds the latch.
        Some(body(unsafe { &mut *self.data.get() }))
    }

    /// Waits for the data, and runs `body` with it.
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

    /// The data, while nobody shares it.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<M: Machine, T> fmt::Debug for Latched<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latched").field("latch", &self.latch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Native;

    #[test]
    fn one_at_a_time_and_free_again_after_a_panic() {
        let latched = Latched::<Native, u64>::new(1);
        let inner = latched.with(|data| {
            *data += 1;
            latched.try_with(|_| ())
        });
        assert_eq!(inner, None, "held");
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| latched.with(|_| panic!("in the section"))));
        assert!(panicked.is_err());
        assert_eq!(latched.with(|data| *data), 2);
    }
}
