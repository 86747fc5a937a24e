//! Memory that a thread sets aside before it is measured.
//!
//! The kernel clears each page at its first use. Tables that grow would pay that while they are
//! measured: with TPC-C it is a tenth of the time and more. So a thread may take blocks beforehand
//! and touch them. [`Native`](crate::Native) then serves requests of the thread from these blocks,
//! as long as there are some.
//!
//! Blocks of one size are enough: slabs and pools that have grown ask for [`SetAside::BLOCK`] bytes
//! at a time.

use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;

use crate::{Machine, Native};

const HUGE_PAGE: usize = 2 << 20;
/// The smallest page of any host.
const PAGE: usize = 4 << 10;
const LAYOUT: Layout = match Layout::from_size_align(SetAside::BLOCK, HUGE_PAGE) {
    Ok(layout) => layout,
    Err(_) => panic!("the alignment is a power of two"),
};

thread_local! {
    /// The blocks from which requests of this thread are served.
    static LENT: RefCell<SetAside> = const { RefCell::new(SetAside { blocks: Vec::new() }) };
}

/// Blocks of memory whose pages are mapped. They are given back when this is dropped.
#[derive(Debug, Default)]
pub struct SetAside {
    blocks: Vec<NonNull<u8>>,
}

// SAFETY: the blocks are allocations that nothing else refers to.
unsafe impl Send for SetAside {}

impl SetAside {
    /// The size of a block, in bytes: two huge pages. Memory for records and nodes comes in blocks
    /// of this size once a table has grown.
    pub const BLOCK: usize = 4 << 20;

    /// Takes blocks from the system, and touches them, until these hold `bytes` bytes, or the
    /// system has no more. The thread's memory policy decides where they lie.
    pub fn grow_to(&mut self, bytes: usize) {
        while self.bytes() < bytes {
            let Some(block) = Native::alloc(LAYOUT) else { return };
            for page in (0..Self::BLOCK).step_by(PAGE) {
                // SAFETY: inside the block, which no other thread knows. The kernel maps the page
                // at this store, which the compiler must not drop.
                unsafe { block.add(page).write_volatile(0) };
            }
            self.blocks.push(block);
        }
    }

    /// Returns the number of bytes that are still set aside.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * Self::BLOCK
    }

    /// Runs `run`, and serves the calling thread's requests from these blocks meanwhile.
    pub fn lend<R>(&mut self, run: impl FnOnce() -> R) -> R {
        /// Takes back what is left, also if `run` panics.
        struct Back<'a>(&'a mut SetAside);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                *self.0 = LENT.take();
            }
        }
        let back = Back(self);
        LENT.set(std::mem::take(back.0));
        run()
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: `grow_to` allocated it with this layout, and no request was served with it.
            unsafe { Native::dealloc(block, LAYOUT) };
        }
    }
}

/// Returns a block for a request of the calling thread, if it has set one aside that fits.
pub(crate) fn lent(layout: Layout) -> Option<NonNull<u8>> {
    // The caller gives the block back with this layout, so it must be the one that it has.
    if layout != LAYOUT {
        return None;
    }
    // A request may come while the thread's own data is dropped; then there is nothing to serve it.
    LENT.try_with(|lent| lent.borrow_mut().blocks.pop()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_served_from_what_it_has_set_aside() {
        let mut aside = SetAside::default();
        aside.grow_to(SetAside::BLOCK + 1);
        assert_eq!(aside.bytes(), 2 * SetAside::BLOCK);
        let all = aside.blocks.clone();
        let small = Layout::from_size_align(SetAside::BLOCK / 2, HUGE_PAGE).expect("a power of two");
        let served = aside.lend(|| {
            assert_eq!(lent(small), None, "of another size");
            std::thread::spawn(|| assert_eq!(lent(LAYOUT), None, "another thread")).join().expect("no panic");
            Native::alloc(LAYOUT).expect("memory")
        });
        assert!(all.contains(&served));
        assert_eq!(aside.bytes(), SetAside::BLOCK, "one is left");
        assert_eq!(lent(LAYOUT), None, "after the loan");
        // SAFETY: allocated above with this layout.
        unsafe { Native::dealloc(served, LAYOUT) };
    }

    #[test]
    fn what_is_left_comes_back_after_a_panic() {
        let mut aside = SetAside::default();
        aside.grow_to(1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| aside.lend(|| panic!("on purpose"))));
        assert!(outcome.is_err());
        assert_eq!((aside.bytes(), lent(LAYOUT)), (SetAside::BLOCK, None));
    }
}
