//! Garbage of a worker: tombstones that must leave their index, and memory that must be reused only
//! when no transaction can still hold it.
//!
//! The life of a tombstone has two waits of two epochs each.
//!
//! 1. A tombstone is queued once, by the worker that made it: by a committed delete, or by the
//!    abort of an insert. It waits until every worker's epoch is two past the epoch of the
//!    queueing. Then the protocol marks it as unlinked, if it still is a tombstone, and the engine
//!    takes it out of the index.
//! 2. From then on no lookup finds the record. But a transaction that looked it up before may still
//!    hold its address. So the memory waits two epochs more. A transaction that could hold the
//!    address began before the removal, and has ended when the oldest worker is past that epoch
//!    ([`crate::epoch`]).
//!
//! The place in the queue does not say how old the deletion is: a tombstone may get a row while it
//! waits and be deleted again, and is not queued a second time then. The age is known from its
//! write counter, or from what the protocol keeps ([`Tombstone`](crate::Tombstone)). A tombstone
//! that is too young is queued anew.
//!
//! The queues belong to one worker and need no synchronisation. All ordering between the removal
//! from the index and the reuse comes from the epochs.

use std::collections::VecDeque;

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::cell_copy::Block;
use crate::protocol::OldVersion;
use crate::record::Record;

/// A record in a queue: a tombstone that waits to be unlinked, or a record that waits to be reused.
#[derive(Debug)]
pub(crate) struct RetiredRecord<M: Machine> {
    pub(crate) record: Record<M>,
    pub(crate) table: u32,
    pub(crate) key: KeyWords,
    /// The global epoch when the record was queued.
    pub(crate) epoch: u64,
}

/// An old version that waits to be reused.
#[derive(Debug)]
pub(crate) struct RetiredVersion<M: Machine> {
    pub(crate) version: OldVersion<M>,
    /// No transaction needs it that begins two epochs later.
    pub(crate) epoch: u64,
}

/// An entry of a queue.
pub(crate) trait Retired {
    /// Returns the epoch by which the queue is ordered.
    fn epoch(&self) -> u64;
}

impl<M: Machine> Retired for RetiredRecord<M> {
    fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl<M: Machine> Retired for RetiredVersion<M> {
    fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Removes and returns the first entry of a queue if it is due: if no transaction can hold it,
/// because the oldest running one is of epoch `oldest`, two or more past the entry's epoch.
pub(crate) fn pop_older<R: Retired>(queue: &mut VecDeque<R>, oldest: u64) -> Option<R> {
    let first = queue.front()?;
    if oldest > first.epoch() + 1 { queue.pop_front() } else { None }
}

/// The capacity above which [`trim_queue`] gives memory back.
const ROOM_MAX: usize = 16 << 10;

/// Gives back most of a queue's memory if the queue has become much shorter than it was. While one
/// thread has lost its core in the middle of a transaction, the epoch stands still, and the queues
/// of all others grow by each version that they replace. Without this each would keep that memory
/// for ever.
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

/// The garbage of one worker. Each queue is in the order of its epochs, oldest first. What a worker
/// has taken over from one that has ended stands behind its own, and may wait longer than it must.
#[derive(Debug)]
pub(crate) struct Garbage<M: Machine> {
    pub(crate) tombstones: VecDeque<RetiredRecord<M>>,
    pub(crate) unlinked: VecDeque<RetiredRecord<M>>,
    /// Old versions are in no index, so each names its table. A look at the list of tables would
    /// touch a line that all workers share.
    pub(crate) versions: VecDeque<RetiredVersion<M>>,
    /// Full blocks of copies of cells.
    pub(crate) copies: VecDeque<Block<M>>,
    /// The number of tombstones queued since the last collection. A collection looks at more than
    /// this number, so that the queue doesn't grow without bound.
    pub(crate) queued: usize,
}

impl<M: Machine> Default for Garbage<M> {
    fn default() -> Self {
        Garbage {
            tombstones: VecDeque::new(),
            unlinked: VecDeque::new(),
            versions: VecDeque::new(),
            copies: VecDeque::new(),
            queued: 0,
        }
    }
}

impl<M: Machine> Garbage<M> {
    /// Whether the first record of a queue may be due when the global epoch is `current`. No
    /// worker's epoch is later than that, so `false` is certain, and a caller need not look for the
    /// oldest epoch.
    pub(crate) fn may_be_due(&self, current: u64) -> bool {
        fn is_due<R: Retired>(queue: &VecDeque<R>, current: u64) -> bool {
            queue.front().is_some_and(|first| current > first.epoch() + 1)
        }
        is_due(&self.tombstones, current)
            || is_due(&self.unlinked, current)
            || is_due(&self.versions, current)
            || is_due(&self.copies, current)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty() && self.unlinked.is_empty() && self.versions.is_empty() && self.copies.is_empty()
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
