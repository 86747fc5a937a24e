//! Values in a machine's own memory.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::Machine;

/// A slice in the machine's memory. A simulated machine charges accesses to it by lines; a word on
/// the host's heap it takes for a line of its own.
pub struct Block<M: Machine, T> {
    first: NonNull<T>,
    count: usize,
    machine: PhantomData<fn() -> M>,
}

// SAFETY: a block owns its values, like a boxed slice.
unsafe impl<M: Machine, T: Send> Send for Block<M, T> {}
// SAFETY: likewise.
unsafe impl<M: Machine, T: Sync> Sync for Block<M, T> {}

impl<M: Machine, T> Block<M, T> {
    fn layout(count: usize) -> Layout {
        Layout::array::<T>(count).expect("less than the address space")
    }

    /// Allocates `count` values; `make` returns the value for each position, in order.
    ///
    /// # Panics
    /// The machine has no more memory.
    pub fn new(count: usize, make: impl FnMut(usize) -> T) -> Self {
        let first = if Self::layout(count).size() == 0 {
            NonNull::dangling()
        } else {
            M::alloc(Self::layout(count)).expect("the machine has memory").cast::<T>()
        };
        for (position, value) in (0..count).map(make).enumerate() {
            // SAFETY: inside the block, which holds `count` values.
            unsafe { first.add(position).write(value) };
        }
        Block { first, count, machine: PhantomData }
    }
}

impl<M: Machine, T> Deref for Block<M, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has made `count` values there.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<M: Machine, T: fmt::Debug> fmt::Debug for Block<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<M: Machine, T> Drop for Block<M, T> {
    fn drop(&mut self) {
        // SAFETY: `new` has made `count` values there, and the owner, hence every borrow, is gone.
        unsafe { std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count).drop_in_place() };
        if Self::layout(self.count).size() > 0 {
            // SAFETY: it came from `alloc` with this layout.
            unsafe { M::dealloc(self.first.cast(), Self::layout(self.count)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Native;
    use std::sync::Arc;

    #[test]
    fn values_are_made_in_order_and_dropped_once() {
        let shared = Arc::new(());
        let block = Block::<Native, _>::new(5, |position| (position, Arc::clone(&shared)));
        assert_eq!(block.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(Arc::strong_count(&shared), 6);
        drop(block);
        assert_eq!(Arc::strong_count(&shared), 1);
        assert!(Block::<Native, u64>::new(0, |_| 0).is_empty());
    }
}
