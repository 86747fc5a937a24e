//! Collecting tombstones: out of the index first, and back to the slab when no transaction can hold them any more.
//!
//! A tombstone is queued once, by whoever made it (a committed delete, or the abort of an insert), and waits two epochs. Then its
//! protocol marks it as unlinked if it is a tombstone still; the engine takes it out of the index, and two epochs later its memory is
//! reused. A tombstone that gets a row while it waits, and is deleted again, is not queued again. So its place in the queue does not say how old the
//! deletion is; its stamp does, or what the protocol keeps ([`Tombstone`](crate::Tombstone)). One that is too young is queued anew.

use std::collections::VecDeque;

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::record::Record;

/// A tombstone to be unlinked, or an unlinked record to be reused.
pub(crate) struct Corpse<M: Machine> {
    pub(crate) record: Record<M>,
    pub(crate) table: u32,
    pub(crate) key: KeyWords,
    /// The global epoch when it was queued.
    pub(crate) epoch: u64,
}

/// One worker's garbage, oldest first.
pub(crate) struct Garbage<M: Machine> {
    pub(crate) tombstones: VecDeque<Corpse<M>>,
    pub(crate) unlinked: VecDeque<Corpse<M>>,
    /// Old versions, which have no keys.
    pub(crate) versions: VecDeque<Corpse<M>>,
    /// Tombstones queued since the last collection: it looks at more than these, so that the queue does not grow for ever.
    pub(crate) queued: usize,
}

impl<M: Machine> Default for Garbage<M> {
    fn default() -> Self {
        Garbage { tombstones: VecDeque::new(), unlinked: VecDeque::new(), versions: VecDeque::new(), queued: 0 }
    }
}

impl<M: Machine> Garbage<M> {
    /// The first corpse, if it was queued so long ago that no transaction, the oldest one being of epoch `oldest`, can hold it.
    pub(crate) fn pop_older(corpses: &mut VecDeque<Corpse<M>>, oldest: u64) -> Option<Corpse<M>> {
        let first = corpses.front()?;
        if oldest > first.epoch + 1 { corpses.pop_front() } else { None }
    }

    /// Whether the first corpse of a queue was queued so long ago that it may be due, now that the global epoch is `current`: no
    /// worker's epoch is later.
    pub(crate) fn may_be_due(&self, current: u64) -> bool {
        [&self.tombstones, &self.unlinked, &self.versions]
            .into_iter()
            .any(|queue| queue.front().is_some_and(|first| current > first.epoch + 1))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty() && self.unlinked.is_empty() && self.versions.is_empty()
    }
}
