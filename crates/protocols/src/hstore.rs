//! H-Store: one transaction at a time in each partition of the data.
//!
//! **Idea.** The data are divided into partitions. A transaction says before it begins which of them it will touch, waits until they are its
//! own, and then reads and writes as if it were alone: nothing is locked, checked or copied for the sake of others.
//!
//! **Papers.** R. Kallman et al.: "H-Store: a high-performance, distributed main memory transaction processing system", VLDB 2008; as measured
//! in X. Yu et al.: "Staring into the abyss", VLDB 2014 (HSTORE): all partitions are in one memory, and a transaction of several
//! touches them directly.
//!
//! **Promises** serializability, as long as transactions touch what they have declared. One that declares nothing gets all partitions.
//!
//! **Metadata.** One word a cell, of the flags of [`crate::flags`], of which `locked` says that a tombstone is about to get a row. A
//! partition has a lock with a queue: [`crate::locking::queue`].
//!
//! **Commit point.** When all partitions are held; nothing can fail after.
//!
//! **Waits** end: a transaction has a timestamp, and waits for a partition only if those that have it, or stand before it, are older. The
//! oldest stands first. Who is too late for that, aborts, and gets a new timestamp. So no cycle of waits can form.
//!
//! **Phantoms.** Nobody else is in the partition. Tombstones leave the index while others work, by an exchange of their word.
//!
//! **Departures from the paper.** Timestamps come from the clock by default, and writes are buffered, so that an abort has nothing to undo.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Leaf, Mode, Needs,
    Projection, Protocol, Record, Tombstone, Unlink, options,
};
use contend_machine::{Atomic64, Block, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::flags::{self, ABSENT, LOCKED, UNLINKED};
use crate::locking::list::{Kept, Ticket};
use crate::locking::queue::{Policy, Queues, QueuesLocal};
use crate::locking::{self, Asked, Held, Locks};
use crate::method::timestamp::{Source, Stamper, TimestampOptions, Timestamps};
use crate::optimistic;

options! {
    /// H-Store's options.
    pub struct HStoreOptions {
        /// Where timestamps come from. The clock costs nothing, and what is in a partition alone does not need their order.
        "timestamp.source" source: Source = Source::Clock, in ();
        /// Timestamps of a batch.
        "timestamp.batch" batch: u64 = 16, in 1..=1_000_000;
    }
}

impl From<HStoreOptions> for TimestampOptions {
    fn from(HStoreOptions { source, batch }: HStoreOptions) -> Self {
        TimestampOptions { source, batch }
    }
}

const INFO: Info = Info {
    needs: Needs::Partitions,
    ..locking::info(
        "hstore",
        "one transaction at a time in each partition of the data, in the order of timestamps",
        "Kallman et al.: H-Store: a high-performance, distributed main memory transaction processing system, VLDB 2008",
    )
};

/// The protocol.
#[derive(Debug)]
pub struct HStore<M: Machine, F = Sound> {
    locks: Queues<M, YoungWait<M, F>>,
    partitions: Block<M, Partition<M>>,
}

/// A partition's lock, apart from others: what a cell of [`Queues`] is made of.
#[derive(Debug)]
#[repr(align(128))]
struct Partition<M: Machine>(M::U64);

/// A worker's state.
pub struct HStoreLocal<M: Machine, F: Faults> {
    locks: QueuesLocal<M, YoungWait<M, F>>,
    held: Vec<(Cell<M>, Kept<M>)>,
    /// First cells of tombstones that are about to get a row.
    claimed: Vec<Cell<M>>,
}

impl<M: Machine, F: Faults> HStore<M, F> {
    fn hold(&self, local: &mut HStoreLocal<M, F>, partition: usize) -> Result<(), Abort> {
        // SAFETY: a cell of one word, which lives as long as the protocol.
        let cell = unsafe { Cell::at(NonNull::from(&self.partitions[partition].0)) };
        match self.locks.lock(&mut local.locks, cell, Held::Exclusive)? {
            Asked::Granted(kept, _) => local.held.push((cell, kept)),
            Asked::Unlinked => unreachable!("a partition is never unlinked"),
        }
        Ok(())
    }

    fn release(&self, local: &mut HStoreLocal<M, F>, for_good: bool) {
        M::step("release");
        for cell in local.claimed.drain(..) {
            // Release: as any unlock; pairs with the exchange of `optimistic::unlink`.
            cell.word().fetch_and(!LOCKED, Ordering::Release);
        }
        for (cell, kept) in local.held.drain(..) {
            self.locks.unlock(&mut local.locks, cell, Held::Exclusive, kept);
        }
        Locks::<M>::end(&self.locks, &mut local.locks, for_good);
    }
}

impl<M: Machine, F: Faults> Protocol<M> for HStore<M, F> {
    const INFO: Info = INFO;
    type Options = HStoreOptions;

    fn new(options: HStoreOptions) -> Self {
        HStore { locks: Locks::<M>::new(options), partitions: Block::new(0, |_| unreachable!("there is none yet")) }
    }
}

impl<M: Machine, F: Faults> Control<M> for HStore<M, F> {
    type Local = HStoreLocal<M, F>;

    fn info(&self) -> Info {
        INFO
    }

    fn prepare(&mut self, workers: usize, partitions: usize) {
        Locks::<M>::prepare(&mut self.locks, workers);
        self.partitions = Block::new(partitions, |_| Partition(M::U64::new(0)));
    }

    fn local(&self, worker: usize) -> Self::Local {
        HStoreLocal { locks: self.locks.local(worker), held: Vec::new(), claimed: Vec::new() }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        optimistic::init(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        Locks::<M>::begin(&self.locks, &mut local.locks);
        M::step("partitions");
        let declared = cx.declaration.partitions();
        let declared = if F::LOCK_ONLY_FIRST_PARTITION { &declared[..declared.len().min(1)] } else { declared };
        if declared.is_empty() {
            return (0..self.partitions.len()).try_for_each(|partition| self.hold(local, partition));
        }
        declared.iter().try_for_each(|&partition| self.hold(local, partition))
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        _: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        M::step("read");
        // Acquire: pairs with the Release by which it was unlinked.
        let flags = at.record.word().load(Ordering::Acquire);
        cx.copy_row(at, columns);
        Ok(flags::found(flags))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort> {
        match mode {
            Mode::Modify | Mode::Delete => self.read(cx, local, at, Projection::of_groups(groups)),
            Mode::Blind | Mode::Merge => {
                at.record.prefetch_to_write();
                match flags::found(at.record.word().load(Ordering::Acquire)) {
                    Found::Absent => self.read(cx, local, at, Projection::EXISTENCE),
                    found => Ok(found),
                }
            }
            Mode::Insert => {
                let first = at.record.first_cell();
                // Relaxed: the exchange decides.
                let word = first.word().load(Ordering::Relaxed);
                if word & LOCKED != 0 {
                    // Its own: inserted, deleted, and inserted again.
                    return Ok(Found::Absent);
                }
                // AcqRel: pairs with the exchange of `optimistic::unlink`, which finds it locked, or has been before.
                let claimed =
                    first.word().compare_exchange(word, word | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if word & UNLINKED != 0 || !claimed {
                    return Err(Abort::new(AbortReason::RecordGone));
                }
                local.claimed.push(first);
                Ok(Found::Absent)
            }
        }
    }

    fn inserted(&self, _: &mut Context<M>, _: &mut Self::Local, _: At<'_, M>, _: &Change<M>) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn gap(&self, _: &mut Context<M>, _: &mut Self::Local, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        if F::RELEASE_BEFORE_INSTALL {
            self.release(local, true);
        }
        cx.writes.apply_updates();
        M::step("install");
        for position in 0..cx.writes.len() {
            flags::install_held(cx, position, |cell, clear, set| {
                // Relaxed, both: the partition's lock passes the row on. Read-modify-writes: who unlinks looks without that lock.
                let word = cell.word();
                if set != 0 { word.fetch_or(set, Ordering::Relaxed) } else { word.fetch_and(!clear, Ordering::Relaxed) }
            });
        }
        self.release(local, true);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        self.release(local, !reason.is_conflict());
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        optimistic::unlink::<M, F>(tombstone, |_| true)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        optimistic::is_absent(record)
    }
}

/// The young wait for the old; the old come too late.
#[derive(Debug)]
pub struct YoungWait<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's source of timestamps.
#[derive(Debug)]
pub struct YoungWaitLocal<M: Machine> {
    worker: usize,
    stamps: Stamper<M>,
}

impl<M: Machine, F: Faults> Policy<M> for YoungWait<M, F> {
    const INFO: Info = INFO;
    type Options = HStoreOptions;
    type Faults = F;
    type Local = YoungWaitLocal<M>;

    fn new(options: HStoreOptions) -> Self {
        YoungWait { timestamps: Timestamps::new(options.into(), 0), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn local(&self, worker: usize) -> YoungWaitLocal<M> {
        YoungWaitLocal { worker, stamps: self.timestamps.of_worker(worker) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut YoungWaitLocal<M>) -> Ticket {
        Ticket { worker: local.worker, stamp: local.stamps.stamp(), number: 0 }
    }

    #[inline(always)]
    fn goes_before(&self, new: Ticket, old: Ticket) -> bool {
        new.stamp < old.stamp
    }

    fn may_wait(
        &self,
        _: &mut YoungWaitLocal<M>,
        own: Ticket,
        _: Cell<M>,
        mut in_the_way: impl Iterator<Item = Ticket>,
    ) -> bool {
        in_the_way.all(|other| other.stamp < own.stamp)
    }

    fn keep_waiting(
        &self,
        _: &mut YoungWaitLocal<M>,
        _: Ticket,
        _: u32,
        _: impl FnOnce(&mut dyn FnMut(Ticket)),
    ) -> Result<(), AbortReason> {
        Ok(())
    }

    #[inline(always)]
    fn end(&self, local: &mut YoungWaitLocal<M>, for_good: bool) {
        if !for_good {
            // The rest of a batch is as old, and would come too late as well.
            local.stamps.drop_batch();
        }
    }
}
