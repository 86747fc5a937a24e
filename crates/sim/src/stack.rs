//! Stacks for the coroutines of a simulation.

use contend_machine::Stack;
use corosensei::stack::StackPointer;

/// One of many stacks in one mapping.
pub(crate) struct OneOfMany(Stack);

// SAFETY: the range between the two is the stack's own, about 256 KiB, and its lowest page can't
// be touched. The top is aligned to a cache line.
unsafe impl corosensei::stack::Stack for OneOfMany {
    fn base(&self) -> StackPointer {
        self.0.top().addr()
    }

    fn limit(&self) -> StackPointer {
        self.0.limit().addr()
    }
}

/// Creates `count` stacks; `None` if the host has no room for them.
pub(crate) fn stacks(count: usize) -> Option<Vec<OneOfMany>> {
    Some(Stack::many(count)?.into_iter().map(OneOfMany).collect())
}
