//! H-Store: one transaction at a time in each partition of the data.
//!
//! **Idea.** The data are divided into partitions. A transaction declares the partitions that it
//! will touch before it begins, and waits until it holds them. Then it reads and writes as if it
//! were alone: it takes no locks, validates nothing, and keeps no copies because of other
//! transactions.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | a partition's queue, in the order of timestamps | `YoungWait`, on [`crate::locking::queue`] |
//! | the transaction waits until its partitions are free | `begin`: `hold` |
//! | execute without locks and latches | `read`, `write` |
//! | commit, and hand the partitions over | `commit`: `install_held`, `release` |
//!
//! **Papers.** R. Kallman et al.: "H-Store: a high-performance, distributed main memory transaction
//! processing system", VLDB 2008; as measured in X. Yu et al.: "Staring into the abyss", VLDB 2014
//! (HSTORE): all partitions are in one memory, and a transaction of several partitions touches them
//! directly.
//!
//! **Promises** serializability, as long as transactions touch only the partitions that they have
//! declared. A transaction without a declaration gets all partitions.
//!
//! **What is shared.** The lock of a partition orders all that its transactions do: each finds the
//! rows and flags of the partition as the last holder left them. (The release of a lock is a
//! Release, and its acquisition an Acquire: [`crate::locking::list`].) So rows need no order of
//! their own, and no read is validated: [`crate::alone`].
//!
//! **Metadata.** One word for each cell: [`crate::alone`]. A partition has a lock with a queue:
//! [`crate::locking::queue`].
//!
//! **Commit point.** The moment when all partitions are held; nothing can fail afterwards.
//!
//! **Waits.** A transaction waits for a partition only if its holder and all transactions before it
//! in the queue are older. The oldest is first in the queue. A transaction that finds a younger one
//! there comes too late: it aborts, and gets a new timestamp. So waits form no cycle.
//!
//! **Phantoms.** No other transaction is in the partition. Tombstones leave the index while
//! transactions run, by an exchange of their word.
//!
//! **Departures from the paper.** Timestamps come from the clock by default, and writes are
//! buffered, so that an abort has nothing to undo.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Leaf, Located, NamedProtocol,
    Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode,
    options,
};
use contend_machine::{Atomic64, Block, Machine};

use crate::alone::{self, LockedTombstones};
use crate::fault::Sound;
use crate::faults;
use crate::flags::{self, ABSENT};
use crate::locking::list::{LockOwner, RequestHandle};
use crate::locking::queue::{QueueFaults, QueuedLocks, QueuedLocksWorker, WaitPolicy};
use crate::locking::{self, LockManager, LockMode, LockOutcome};
use crate::method::timestamp::{Outcome, Source, Stamper, TimestampOptions, Timestamps};

options! {
    /// H-Store's options.
    pub struct HStoreOptions {
        /// The source of timestamps. The clock costs nothing, and transactions of one partition do
        /// not need their order.
        "timestamp.source" source: Source = Source::Clock, in ();
        /// The number of timestamps in a batch.
        "timestamp.batch" batch: u64 = 16, in 1..=1_000_000;
    }
}

impl From<HStoreOptions> for TimestampOptions {
    fn from(HStoreOptions { source, batch }: HStoreOptions) -> Self {
        TimestampOptions { source, batch }
    }
}

const INFO: ProtocolInfo = ProtocolInfo {
    needs: DeclarationNeeds::Partitions,
    ..locking::info(
        "hstore",
        "one transaction at a time in each partition of the data, in the order of timestamps",
        "Kallman et al.: H-Store: a high-performance, distributed main memory transaction processing system, VLDB 2008",
    )
};

/// The protocol.
#[derive(Debug)]
pub struct HStore<M: Machine, F = Sound> {
    locks: QueuedLocks<M, YoungWait<M, F>>,
    partitions: Block<M, Partition<M>>,
}

/// A partition's lock, on a cache line of its own: the word of a cell of [`QueuedLocks`].
/// Two lines, because processors fetch lines in pairs: otherwise transactions of neighbouring
/// partitions would take the line from each other, although they share no data.
#[derive(Debug)]
#[repr(align(128))]
struct Partition<M: Machine>(M::U64);

/// A worker's state.
pub struct HStoreWorker<M: Machine, F: HStoreFaults> {
    locks: QueuedLocksWorker<M, YoungWait<M, F>>,
    held: Vec<(Cell<M>, RequestHandle<M>)>,
    tombstones: LockedTombstones<M>,
}

impl<M: Machine, F: HStoreFaults> HStore<M, F> {
    fn hold(&self, local: &mut HStoreWorker<M, F>, partition: usize) -> Result<(), Abort> {
        // The word of a partition begins as "held by no transaction", and its flags stay 0. So the
        // lock manager takes it for the cell of a row that is never unlinked.
        // SAFETY: a cell of one word, which lives as long as the protocol.
        let cell = unsafe { Cell::at(NonNull::from(&self.partitions[partition].0)) };
        match self.locks.acquire(&mut local.locks, cell, LockMode::Exclusive)? {
            LockOutcome::Granted(kept, _) => local.held.push((cell, kept)),
            LockOutcome::Unlinked => unreachable!("a partition is never unlinked"),
        }
        Ok(())
    }

    fn release(&self, local: &mut HStoreWorker<M, F>, outcome: Outcome) {
        M::step("release");
        // Before the partitions are handed over. If the next holder came first and inserted the
        // same key again, it would find *locked*, and abort.
        local.tombstones.unlock_all();
        for (cell, kept) in local.held.drain(..) {
            // In any order: the transaction waits for nothing any more. The release makes all that
            // it has done in the partition visible to the next holder, whom it grants the lock.
            self.locks.release(&mut local.locks, cell, LockMode::Exclusive, kept);
        }
        LockManager::<M>::end(&self.locks, &mut local.locks, outcome);
    }
}

impl<M: Machine, F: HStoreFaults> NamedProtocol<M> for HStore<M, F> {
    const INFO: ProtocolInfo = INFO;
    type Options = HStoreOptions;

    fn new(options: HStoreOptions) -> Self {
        HStore {
            locks: LockManager::<M>::new(options),
            partitions: Block::new(0, |_| unreachable!("there is none yet")),
        }
    }
}

impl<M: Machine, F: HStoreFaults> Protocol<M> for HStore<M, F> {
    type WorkerState = HStoreWorker<M, F>;

    fn info(&self) -> ProtocolInfo {
        INFO
    }

    fn prepare(&mut self, workers: usize, partitions: usize) {
        LockManager::<M>::prepare(&mut self.locks, workers);
        self.partitions = Block::new(partitions, |_| Partition(M::U64::new(0)));
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        HStoreWorker {
            locks: self.locks.new_worker_state(worker),
            held: Vec::new(),
            tombstones: LockedTombstones::default(),
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        flags::init_words(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        LockManager::<M>::begin(&self.locks, &mut local.locks);
        M::step("partitions");
        let declared = cx.declaration.partitions();
        // A transaction holds partitions while it waits for others. That is no deadlock although
        // there is no order of partitions: each wait is of a younger transaction for an older one.
        // An error leaves the partitions held; the abort that follows releases them.
        let declared = Self::partitions_to_lock(declared);
        // No declaration: all partitions, since any row may be touched. Then no other transaction
        // runs in the engine, which is slow and right.
        if declared.is_empty() {
            return (0..self.partitions.len()).try_for_each(|partition| self.hold(local, partition));
        }
        declared.iter().try_for_each(|&partition| self.hold(local, partition))
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        _: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        Ok(alone::read(cx, at, columns))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        if mode != WriteMode::Insert {
            return Ok(alone::write(cx, at, groups, mode));
        }
        // A collector holds the tombstone, or has unlinked it: the next try looks the key up again.
        match local.tombstones.try_lock(at) {
            Some(RecordState::Absent) => Ok(RecordState::Absent),
            _ => Err(Abort::new(AbortReason::RecordGone)),
        }
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        _: &mut Self::WorkerState,
        _: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    // A gap needs no version: as long as the transaction holds the partition, no other one inserts
    // into it. A collector may take a tombstone out of the leaf, which changes no answer.
    #[inline(always)]
    fn observe_leaf(
        &self,
        _: &mut Context<M>,
        _: &mut Self::WorkerState,
        _: u32,
        _: Leaf<M>,
        _: u64,
    ) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if Self::releases_too_early() {
            self.release(local, Outcome::Finished);
        }
        // Nothing can fail any more, because no other transaction has been in the partitions since
        // `begin`. So there is no validation, and a reader of the next transaction finds all of
        // these rows or, after an abort, none. A record that gets a row stays *locked*: a collector
        // leaves it alone until `release`.
        alone::install_all(cx);
        self.release(local, Outcome::Finished);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        // Nothing was installed, so the partitions are as they were, but for placeholders, which
        // stay absent.
        self.release(local, Outcome::of_abort(reason));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        // No partition is locked for this: a collector would need to know which partition a record
        // belongs to.
        alone::unlink(tombstone, |_| false)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

/// The wait policy of partitions: a younger transaction waits for an older one; an older one that
/// finds a younger one comes too late.
#[derive(Debug)]
pub struct YoungWait<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's source of timestamps.
#[derive(Debug)]
pub struct YoungWaitWorker<M: Machine> {
    worker: usize,
    stamps: Stamper<M>,
}

impl<M: Machine, F: HStoreFaults> WaitPolicy<M> for YoungWait<M, F> {
    const INFO: ProtocolInfo = INFO;
    type Options = HStoreOptions;
    type Faults = F;
    type WorkerState = YoungWaitWorker<M>;

    fn new(options: HStoreOptions) -> Self {
        YoungWait { timestamps: Timestamps::new(options.into(), 0), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn new_worker_state(&self, worker: usize) -> YoungWaitWorker<M> {
        YoungWaitWorker { worker, stamps: self.timestamps.of_worker(worker) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut YoungWaitWorker<M>) -> LockOwner {
        // A new timestamp for each try, unlike in wait-die. A transaction that came too late would
        // come too late again with the old one, as long as younger transactions hold the partition.
        LockOwner { worker: local.worker, timestamp: local.stamps.stamp(), transaction: 0 }
    }

    #[inline(always)]
    fn goes_before(&self, new: LockOwner, waiter: LockOwner) -> bool {
        // The oldest first, so that a grant leaves only younger transactions behind the new holder:
        // each wait stays one of a younger for an older one.
        new.timestamp < waiter.timestamp
    }

    fn may_wait(
        &self,
        _: &mut YoungWaitWorker<M>,
        own: LockOwner,
        _: Cell<M>,
        mut in_the_way: impl Iterator<Item = LockOwner>,
    ) -> bool {
        // The lists are those of one moment, under the latch. A request that comes later stands
        // before this one only if it is older (`goes_before`), so the wait stays one for older
        // transactions.
        in_the_way.all(|other| other.timestamp < own.timestamp)
    }

    fn keep_waiting(
        &self,
        _: &mut YoungWaitWorker<M>,
        _: LockOwner,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(LockOwner)),
    ) -> Result<(), AbortReason> {
        Ok(())
    }

    #[inline(always)]
    fn end(&self, local: &mut YoungWaitWorker<M>, outcome: Outcome) {
        if outcome == Outcome::WillRetry {
            // The rest of the batch is as old, and would come too late as well.
            local.stamps.drop_batch();
        }
    }
}

faults! {
    /// The deliberate faults of H-Store.
    pub trait HStoreFaults: QueueFaults {
        /// Only the first of several partitions is held.
        lock_only_first_partition,
        /// Partitions are given back before the writes are installed.
        release_before_install,
    }
    pub const FAULTS;
}

/// The places where the algorithm asks for its faults.
impl<M: Machine, F: HStoreFaults> HStore<M, F> {
    /// Returns the declared partitions that the transaction locks: all, without a fault.
    #[inline(always)]
    fn partitions_to_lock(declared: &[usize]) -> &[usize] {
        if F::lock_only_first_partition() { &declared[..declared.len().min(1)] } else { declared }
    }

    /// Returns whether a commit releases the partitions before it installs: not without a fault.
    #[inline(always)]
    fn releases_too_early() -> bool {
        F::release_before_install()
    }
}
