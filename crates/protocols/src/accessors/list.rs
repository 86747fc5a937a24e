//! The list of a cell's accessors: the running transactions that have read or written it.
//!
//! The second word of a cell leads to its newest accessor. The accessors are linked in both
//! directions, the newest first. A list is changed under the cell's lock only, and read under it,
//! but for a look at its first word ([`AccessList::look`]). So the accesses here are Relaxed: the
//! lock's Acquire and Release order them. An accessor has a cache
//! line of its own. Its memory belongs to its worker, which takes it out of the list before
//! it uses it again, and goes to the pool when the worker ends. So an address in a list leads to an
//! accessor of the cell.
//!
//! | bits of the second word | contents |
//! | --- | --- |
//! | 63..48 | the number of the newest accessor's worker |
//! | 47..6 | the address of the newest accessor; 0 if the list is empty |
//! | 1 | the newest accessor has written, and its write is not void |
//! | 0 | passed: a scan has passed the cell, and left no accessor (`ic3::passed`) |

use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::Cell;
use contend_machine::{Atomic64, Block, Machine, Native, Ordering};
use parking_lot::Mutex;

use super::progress::Running;

/// A transaction's access to a cell.
#[repr(align(64))]
pub(crate) struct Accessor<M: Machine> {
    older: M::U64,
    newer: M::U64,
    /// The worker's number, above the flags.
    worker: M::U64,
    number: M::U64,
    kind: M::U64,
    /// The epoch in which the transaction began.
    began_in: M::U64,
}

impl<M: Machine> std::fmt::Debug for Accessor<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accessor").finish_non_exhaustive()
    }
}

impl<M: Machine> Accessor<M> {
    /// The transaction has written the cell.
    pub(crate) const WROTE: u64 = 1;
    /// The access has no effect any more: an older write of the cell was rolled back.
    pub(crate) const VOID: u64 = 1 << 1;
    const WORKER_SHIFT: u32 = 2;

    fn new() -> Self {
        let word = || M::U64::new(0);
        Accessor { older: word(), newer: word(), worker: word(), number: word(), kind: word(), began_in: word() }
    }

    /// Returns the transaction.
    pub(crate) fn owner(&self) -> Running {
        // Relaxed, all: under the cell's lock.
        Running {
            worker: (self.worker.load(Ordering::Relaxed) >> Self::WORKER_SHIFT) as usize,
            number: self.number.load(Ordering::Relaxed),
            // Relaxed: as above.
            kind: self.kind.load(Ordering::Relaxed) as u32,
        }
    }

    /// Returns the epoch in which the transaction began.
    pub(crate) fn began_in(&self) -> u64 {
        // Relaxed: under the cell's lock.
        self.began_in.load(Ordering::Relaxed)
    }

    /// Whether the access has this flag.
    pub(crate) fn is(&self, flag: u64) -> bool {
        // Relaxed: under the cell's lock.
        self.worker.load(Ordering::Relaxed) & flag != 0
    }

    /// Makes the access void.
    pub(crate) fn make_void(&self) {
        // Relaxed, both: under the cell's lock.
        self.worker.store(self.worker.load(Ordering::Relaxed) | Self::VOID, Ordering::Relaxed);
    }

    /// Makes the access a read: its write was taken back, and the transaction goes on.
    pub(crate) fn make_read(&self) {
        // Relaxed, both: under the cell's lock.
        self.worker.store(self.worker.load(Ordering::Relaxed) & !Self::WROTE, Ordering::Relaxed);
    }

    fn address(&self) -> u64 {
        let address = std::ptr::from_ref(self).expose_provenance() as u64;
        // Linux gives a program 47 bits of addresses, unless it asks for more.
        debug_assert_eq!(address & !ADDRESS, 0, "an accessor's address fits into a list's word");
        address
    }
}

/// Flags of a list's word.
const PASSED: u64 = 1;
const NEWEST_WROTE: u64 = 1 << 1;
const NEWEST_WORKER_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << NEWEST_WORKER_SHIFT) - align_of::<Accessor<Native>>() as u64;

/// What a look at a list, without the cell's lock, tells of its newest accessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest(u64);

impl Newest {
    /// Whether there is an accessor.
    pub(crate) fn exists(self) -> bool {
        self.0 & ADDRESS != 0
    }

    /// Returns the accessor's worker, if the accessor has written and its write is not void.
    pub(crate) fn writer(self) -> Option<usize> {
        (self.exists() && self.0 & NEWEST_WROTE != 0).then_some((self.0 >> NEWEST_WORKER_SHIFT) as usize)
    }

    /// Whether a scan has passed the cell.
    pub(crate) fn is_passed(self) -> bool {
        self.0 & PASSED != 0
    }
}

/// The list of a cell that the caller has locked.
#[derive(Debug)]
pub(crate) struct AccessList<'a, M: Machine> {
    newest: &'a M::U64,
}

impl<'a, M: Machine> AccessList<'a, M> {
    /// Returns the list of a cell that the caller has locked.
    ///
    /// # Safety
    /// The protocol's cells have two metadata words or more, and the second is used for the list.
    pub(crate) unsafe fn of(cell: Cell<M>) -> Self {
        // SAFETY: by the caller's promise.
        AccessList { newest: unsafe { cell.meta(1) } }
    }

    fn at(address: u64) -> Option<&'a Accessor<M>> {
        let pointer = std::ptr::with_exposed_provenance::<Accessor<M>>(address as usize);
        // SAFETY: an address in a list is that of an accessor, whose memory the pool keeps as long
        // as the protocol; 0 is the list's end.
        unsafe { pointer.as_ref() }
    }

    /// Returns the address of the newest accessor, or 0.
    fn first(&self) -> u64 {
        // Relaxed: under the cell's lock.
        self.newest.load(Ordering::Relaxed) & ADDRESS
    }

    /// Returns the list's word with this accessor as the newest one, not passed.
    fn word_of(accessor: &Accessor<M>, worker: usize, wrote: bool) -> u64 {
        let wrote = if wrote { NEWEST_WROTE } else { 0 };
        accessor.address() | (worker as u64) << NEWEST_WORKER_SHIFT | wrote
    }

    /// Looks at the list without the cell's lock.
    pub(crate) fn look(&self) -> Newest {
        // Acquire: the caller's next loads come behind; pairs with the Release of `remove`. What
        // the look says counts only if the cell's version is the same afterwards (`ic3::passed`,
        // `ic3::whole`).
        Newest(self.newest.load(Ordering::Acquire))
    }

    /// Notes that the newest writes have become void: the last one that counts is to be looked for.
    pub(crate) fn note_void(&self) {
        // Relaxed, both: under the cell's lock.
        self.newest.store(self.newest.load(Ordering::Relaxed) & !NEWEST_WROTE, Ordering::Relaxed);
    }

    /// Notes that a scan passes the cell.
    pub(crate) fn pass(&self) {
        // Relaxed: under the cell's lock. Release: as in `remove`, whose store a look may miss
        // behind this one.
        self.newest.store(self.newest.load(Ordering::Relaxed) | PASSED, Ordering::Release);
    }

    /// Whether no running transaction has accessed the cell.
    pub(crate) fn is_empty(&self) -> bool {
        self.first() == 0
    }

    /// Returns the accessors, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a Accessor<M>> + use<'a, M> {
        // Relaxed: under the cell's lock.
        std::iter::successors(Self::at(self.first()), |accessor| Self::at(accessor.older.load(Ordering::Relaxed)))
    }

    /// Returns the accessors that are newer than this one, the oldest first.
    pub(crate) fn newer_than(&self, accessor: &Accessor<M>) -> impl Iterator<Item = &'a Accessor<M>> + use<'a, M> {
        // Relaxed, both: under the cell's lock.
        let first = Self::at(accessor.newer.load(Ordering::Relaxed));
        std::iter::successors(first, |accessor| Self::at(accessor.newer.load(Ordering::Relaxed)))
    }

    /// Returns the nearest older writer whose own access is not void.
    pub(crate) fn older_writer(&self, accessor: &Accessor<M>) -> Option<Running> {
        // Relaxed, both: under the cell's lock.
        let first = Self::at(accessor.older.load(Ordering::Relaxed));
        let mut older = std::iter::successors(first, |other| Self::at(other.older.load(Ordering::Relaxed)));
        let writer = older.find(|other| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID))?;
        Some(writer.owner())
    }

    /// Makes an access of `own`, which began in this epoch, the newest.
    pub(crate) fn push(&self, accessor: &Accessor<M>, own: Running, began_in: u64, wrote: bool) {
        // Relaxed, all: under the cell's lock, whose Release publishes them.
        let now = self.newest.load(Ordering::Relaxed);
        let older = now & ADDRESS;
        accessor.older.store(older, Ordering::Relaxed);
        accessor.newer.store(0, Ordering::Relaxed);
        // Relaxed: as above.
        let flags = if wrote { Accessor::<M>::WROTE } else { 0 };
        accessor.worker.store((own.worker as u64) << Accessor::<M>::WORKER_SHIFT | flags, Ordering::Relaxed);
        // Relaxed: as above.
        accessor.number.store(own.number, Ordering::Relaxed);
        accessor.kind.store(own.kind.into(), Ordering::Relaxed);
        accessor.began_in.store(began_in, Ordering::Relaxed);
        // Relaxed: as above.
        if let Some(older) = Self::at(older) {
            older.newer.store(accessor.address(), Ordering::Relaxed);
        }
        // Relaxed: as above.
        self.newest.store(Self::word_of(accessor, own.worker, wrote) | now & PASSED, Ordering::Relaxed);
    }

    /// Takes an access out of the list.
    pub(crate) fn remove(&self, accessor: &Accessor<M>) {
        // Relaxed, all: under the cell's lock.
        let (older, newer) = (accessor.older.load(Ordering::Relaxed), accessor.newer.load(Ordering::Relaxed));
        match Self::at(newer) {
            // Relaxed: as above.
            Some(newer) => newer.older.store(older, Ordering::Relaxed),
            None => {
                let has_written =
                    |older: &Accessor<M>| older.is(Accessor::<M>::WROTE) && !older.is(Accessor::<M>::VOID);
                let first =
                    Self::at(older).map_or(0, |older| Self::word_of(older, older.owner().worker, has_written(older)));
                // Relaxed: as above. Release: pairs with the Acquire of `look`, which finds the
                // accessor gone: what its transaction has put back in the cell comes before.
                let passed = self.newest.load(Ordering::Relaxed) & PASSED;
                self.newest.store(first | passed, Ordering::Release);
            }
        }
        if let Some(older) = Self::at(older) {
            // Relaxed: as above.
            older.newer.store(newer, Ordering::Relaxed);
        }
    }
}

/// The accessors of workers that have ended, for new workers.
pub(crate) type Pool<M> = Arc<Mutex<Vec<Block<M, Accessor<M>>>>>;

/// The accessors that a worker allocates at once.
const AT_ONCE: usize = if cfg!(loom) { 4 } else { 32 };

/// A worker's accessors. Its transaction uses the first `used` of them.
pub(crate) struct Accessors<M: Machine> {
    blocks: Vec<Block<M, Accessor<M>>>,
    used: usize,
    pool: Pool<M>,
}

impl<M: Machine> std::fmt::Debug for Accessors<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accessors").field("used", &self.used).finish_non_exhaustive()
    }
}

impl<M: Machine> Drop for Accessors<M> {
    fn drop(&mut self) {
        self.pool.lock().append(&mut self.blocks);
    }
}

impl<M: Machine> Accessors<M> {
    pub(crate) fn new(pool: &Pool<M>) -> Self {
        Accessors { blocks: Vec::new(), used: 0, pool: Arc::clone(pool) }
    }

    /// Makes sure that the next `count` calls of [`Accessors::take`] allocate nothing.
    pub(crate) fn reserve(&mut self, count: usize) {
        while self.used + count > self.blocks.len() * AT_ONCE {
            let idle = self.pool.lock().pop();
            self.blocks.push(idle.unwrap_or_else(|| Block::new(AT_ONCE, |_| Accessor::new())));
        }
    }

    /// Returns an accessor that is in no list.
    pub(crate) fn take(&mut self) -> AccessorHandle<M> {
        self.reserve(1);
        let number = self.used;
        self.used += 1;
        AccessorHandle(NonNull::from(&self.blocks[number / AT_ONCE][number % AT_ONCE]))
    }

    /// Frees all accessors, none of which is in a list.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

/// A worker's reference to one of its own accessors.
#[derive(Debug)]
pub(crate) struct AccessorHandle<M: Machine>(NonNull<Accessor<M>>);

impl<M: Machine> Clone for AccessorHandle<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for AccessorHandle<M> {}

// SAFETY: an accessor consists of atomic words, and a handle stays with the worker that owns the
// accessor, on whichever thread that runs.
unsafe impl<M: Machine> Send for AccessorHandle<M> {}

impl<M: Machine> std::ops::Deref for AccessorHandle<M> {
    type Target = Accessor<M>;

    fn deref(&self) -> &Accessor<M> {
        // SAFETY: an accessor of the worker's own blocks, which go to the pool when the worker
        // ends, and live as long as the protocol.
        unsafe { self.0.as_ref() }
    }
}
