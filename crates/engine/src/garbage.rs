//! Collecting tombstones: out of the index first, and back to the slab when no transaction can hold
//! them any more.
//!
//! A tombstone is queued once, by whoever made it (a committed delete, or the abort of an insert),
//! and waits two epochs. Then its protocol marks it as unlinked if it is a tombstone still; the
//! engine takes it out of the index, and two epochs later its memory is reused. A tombstone that
//! gets a row while it waits, and is deleted again, is not queued again. So its place in the queue
//! does not say how old the deletion is; its write counter does, or what the protocol keeps
//! ([`Tombstone`](crate::Tombstone)). One that is too young is queued anew.

use std::collections::VecDeque;

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::record::Record;

/// A tombstone to be unlinked, or an unlinked record to be reused.
pub(crate) struct RetiredRecord<M: Machine> {
    pub(crate) record: Record<M>,
    pub(crate) table: u32,
    pub(crate) key: KeyWords,
    /// The global epoch when it was queued.
    pub(crate) epoch: u64,
}

/// A queue with room for more than this is given back what it does not need.
const ROOM_MAX: usize = 16 << 10;

/// Gives back most of a queue's memory if it has had many more entries than it has now. While one
/// thread has lost its core in the middle of a transaction, the others' queues grow by whatever
/// they replace, and each would keep that memory for ever.
#[inline(always)]
pub fn trim_queue<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > ROOM_MAX && queue.len() < queue.capacity() / 8 {
        shrink(queue);
    }
}

#[cold]
fn shrink<T>(queue: &mut VecDeque<T>) {
    queue.shrink_to(queue.capacity() / 4);
}

/// One worker's garbage, oldest first.
pub(crate) struct Garbage<M: Machine> {
    pub(crate) tombstones: VecDeque<RetiredRecord<M>>,
    pub(crate) unlinked: VecDeque<RetiredRecord<M>>,
    /// Old versions, which have no keys.
    pub(crate) versions: VecDeque<RetiredRecord<M>>,
    /// Tombstones queued since the last collection: it looks at more than these, so that the queue
    /// does not grow for ever.
    pub(crate) queued: usize,
}

impl<M: Machine> Default for Garbage<M> {
    fn default() -> Self {
        Garbage { tombstones: VecDeque::new(), unlinked: VecDeque::new(), versions: VecDeque::new(), queued: 0 }
    }
}

impl<M: Machine> Garbage<M> {
    /// The first corpse, if it was queued so long ago that no transaction, the oldest one being of
    /// epoch `oldest`, can hold it.
    pub(crate) fn pop_older(corpses: &mut VecDeque<RetiredRecord<M>>, oldest: u64) -> Option<RetiredRecord<M>> {
        let first = corpses.front()?;
        if oldest > first.epoch + 1 { corpses.pop_front() } else { None }
    }

    /// Whether the first corpse of a queue was queued so long ago that it may be due, now that the
    /// global epoch is `current`: no worker's epoch is later.
    pub(crate) fn may_be_due(&self, current: u64) -> bool {
        [&self.tombstones, &self.unlinked, &self.versions]
            .into_iter()
            .any(|queue| queue.front().is_some_and(|first| current > first.epoch + 1))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty() && self.unlinked.is_empty() && self.versions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_long_gives_its_memory_back_and_keeps_its_entries() {
        let mut queue: VecDeque<usize> = (0..1_000_000).collect();
        while queue.len() > 10 {
            queue.pop_front();
            trim_queue(&mut queue);
        }
        assert!(queue.capacity() <= ROOM_MAX, "{}", queue.capacity());
        assert!(queue.into_iter().eq(999_990..1_000_000));
        let mut short: VecDeque<usize> = VecDeque::with_capacity(1024);
        trim_queue(&mut short);
        assert_eq!(short.capacity(), 1024, "what is short stays as it is");
    }
}
