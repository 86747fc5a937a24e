//! Optimistic concurrency control with per-record validation and two timestamps.
//!
//! **Idea.** A transaction takes a timestamp when it begins, and aborts as soon as it meets a
//! record that was written later. So it only ever sees the state of its beginning. At commit it
//! locks all records that it has touched, read ones too, validates each, takes a second timestamp,
//! and installs its writes under that.
//!
//! **Papers.** H. T. Kung, J. T. Robinson: "On optimistic methods for concurrency control", TODS
//! 1981; with validation in parallel, record by record, as in X. Yu et al.: "Staring into the
//! abyss", VLDB 2014, section 4.3 (OCC).
//!
//! | step of the papers | function |
//! | --- | --- |
//! | start timestamp | `begin` |
//! | read phase, private copies | `ReadsAndLocks::observe`, then `after_read` |
//! | validation, in a critical section for each record | `OccValidation::lock_and_validate` |
//! | end timestamp, write phase | `commit` |
//!
//! **Promises** serializability, in the order of the second timestamps. A running transaction sees
//! one state only (opacity), except for absent keys, which only the validation of leaves protects.
//!
//! **Metadata.** One word for each cell: the second timestamp of the transaction that wrote it,
//! above the flags of [`crate::flags`].
//!
//! **Commit point.** The second timestamp, taken when all locks are held, and before the first is
//! given back. A transaction that begins after it meets either a lock or the new version. A
//! transaction that began before aborts at either.
//!
//! **Waits.** Committing transactions wait for locks, and take them in the order of addresses, so
//! no cycle of waits can form. A read waits for a write phase. All waits are bounded and end in an
//! abort.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated when all locks are
//! held, as in Silo.
//!
//! **Departures from the papers.** Reads copy optimistically instead of under a latch. Timestamps
//! need the order of real time, so `timestamp.source` is one that has it.
//!
//! **Orderings.** The commit point rests on this: a transaction R whose start is later than the
//! second timestamp of W meets W's lock or W's version. The default source is a counter to which
//! both add Relaxed, so the counter alone orders nothing else. The fences do. W locks its cells,
//! passes the commit fence, and adds to the counter. R's addition comes later, so it reads what W's
//! addition or a later one left. R then passes the fence in step (d) of its read. The two fences
//! synchronise: W's locks happen before the load in step (e), which sees the lock or what came
//! after it. If step (a) has seen an older word, (e) differs and R reads again. With `mutex` the
//! hand-over of the mutex orders the two as well.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::Write;
use contend_engine::{Abort, AbortReason, Cell, Context, DeclarationNeeds, Isolation, ProtocolInfo, options};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::LOCKED;
use crate::method::ReadPhaseOptions;
use crate::method::timestamp::{OrderedTimestampOptions, Stamper, Timestamps};
use crate::method::wait::WAITS_MAX;
use crate::optimistic::{OptimisticFaults, Read, ReadsAndLocks, VERSION_SHIFT, Validating, Validation, install_all};

options! {
    /// The protocol's options.
    pub struct OccOptions {
        flatten timestamps: OrderedTimestampOptions;
        flatten read_phase: ReadPhaseOptions;
    }
}

/// The protocol.
pub type Occ<M, F = Sound> = Validating<OccValidation<M, F>>;

/// The validation of the protocol.
#[derive(Debug)]
pub struct OccValidation<M: Machine, F> {
    timestamps: Arc<Timestamps<M>>,
    read_phase: ReadPhaseOptions,
    faults: PhantomData<fn() -> F>,
}

/// The protocol's part of a worker's state.
#[derive(Debug)]
pub struct OccWorker<M: Machine> {
    stamps: Stamper<M>,
    /// The first timestamp.
    start: u64,
    /// The cells that the commit locks. Kept for its memory.
    touched: Vec<Touched<M>>,
}

/// A cell that a transaction has read or is going to write.
#[derive(Clone, Copy, Debug)]
struct Touched<M: Machine> {
    cell: Cell<M>,
    reads: bool,
    writes: bool,
    needs_row: bool,
}

impl<M: Machine, F: OccFaults> OccValidation<M, F> {
    /// Collects the cells that the commit locks, in the order of addresses. A cell that is read and
    /// written stands there twice, the write first.
    fn collect_touched(cx: &Context<M>, reads: &ReadsAndLocks<M>, touched: &mut Vec<Touched<M>>) {
        touched.clear();
        for write in cx.writes.entries() {
            let needs_row = write.needs_row();
            touched.extend(write.cells().map(|cell| Touched { cell, reads: false, writes: true, needs_row }));
        }
        let entries = reads.entries.iter();
        touched.extend(entries.map(|read| Touched { cell: read.cell, reads: true, writes: false, needs_row: false }));
        // One order for all transactions: of the transactions in a cycle of waits, one would wait
        // for a cell that comes before one that it holds. The write of a cell stands first, so that
        // the cell is locked with the write's demand for a row.
        touched.sort_unstable_by_key(|touched| (touched.cell.address(), !touched.writes));
    }

    /// Locks each cell once, and checks that no cell that was read was written after the beginning.
    fn lock_and_validate(cx: &Context<M>, reads: &mut ReadsAndLocks<M>, own: &OccWorker<M>) -> Result<(), Abort> {
        let mut previous = None;
        for (position, &Touched { cell, reads: is_read, writes, needs_row }) in own.touched.iter().enumerate() {
            let is_new = previous != Some(cell.address());
            previous = Some(cell.address());
            if is_new && Self::locks(writes) {
                reads.lock(cx, cell, needs_row, WAITS_MAX)?;
            }
            // A version after the start timestamp fails. One that is not later is the version that
            // was read: its writer held the lock from before that timestamp until it had installed,
            // so the read waited for it.
            //
            // Relaxed: `lock` has exchanged this word with Acquire, so the load sees the locked
            // word or a later one, and no commit changes the version of a locked cell.
            let written_at = cell.word().load(Ordering::Relaxed) >> VERSION_SHIFT;
            let is_too_new = written_at > own.start;
            if is_read && is_too_new && !Self::is_trusted(&own.touched[..position], cell) {
                return Err(cx.conflict_at(cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        Ok(())
    }

    /// Unlocks the cells that were only read. [`install_all`] has unlocked the others.
    fn unlock_read(reads: &mut ReadsAndLocks<M>, own: &OccWorker<M>) {
        reads.locked.clear();
        let mut previous = None;
        for &Touched { cell, writes, .. } in &own.touched {
            // The write of a cell stands before its read.
            let is_only_read = previous != Some(cell.address()) && !writes;
            previous = Some(cell.address());
            if is_only_read && Self::locks(false) {
                // Relaxed: no other transaction changes the word of a locked cell. Release: pairs
                // with the Acquire of `ReadsAndLocks::lock`: this transaction's reads come before
                // the next writer's stores.
                let word = cell.word().load(Ordering::Relaxed);
                cell.word().store(word & !LOCKED, Ordering::Release);
            }
        }
    }
}

impl<M: Machine, F: OccFaults> Validation<M> for OccValidation<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "occ",
        summary: "optimistic: one timestamp at the beginning and one at the end; locks all it has touched to validate",
        paper: "Kung, Robinson: On optimistic methods for concurrency control, TODS 1981; Yu et al., VLDB 2014",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = OccOptions;
    type Faults = F;
    type WorkerState = OccWorker<M>;

    fn new(OccOptions { timestamps, read_phase }: OccOptions) -> Self {
        OccValidation { timestamps: Timestamps::new(timestamps.into(), 0), read_phase, faults: PhantomData }
    }

    #[inline(always)]
    fn marks_writes() -> bool {
        false
    }

    #[inline(always)]
    fn read_phase(&self) -> &ReadPhaseOptions {
        &self.read_phase
    }

    fn prepare(&mut self, workers: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn new_worker_state(&self, worker: usize) -> OccWorker<M> {
        OccWorker { stamps: self.timestamps.of_worker(worker), start: 0, touched: Vec::with_capacity(64) }
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, own: &mut OccWorker<M>) {
        // Before the first read. A read that came before its start timestamp could return a version
        // that a writer replaces under a smaller timestamp, and neither check would notice.
        own.start = own.stamps.stamp();
    }

    /// Aborts if one of the reads observed a version that is newer than the start timestamp.
    #[inline(always)]
    fn after_read(&self, own: &mut OccWorker<M>, new: &[Read<M>]) -> Result<(), Abort> {
        let newest = new.iter().map(|read| read.observed_word() >> VERSION_SHIFT).max();
        // The early abort is what makes the view opaque: all rows that were returned so far were
        // current at the start timestamp.
        if newest > Some(own.start) { Err(Abort::new(AbortReason::ReadValidation)) } else { Ok(()) }
    }

    fn commit(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut OccWorker<M>) -> Result<(), Abort> {
        M::step("lock");
        let early = Self::end_before_locks(own);
        Self::collect_touched(cx, reads, &mut own.touched);
        Self::lock_and_validate(cx, reads, own)?;
        // SeqCst: pairs with the fence of `ReadsAndLocks::observe`: the locks come before the
        // stores to the rows. It also pairs with the same fence of other commits: own inserts into
        // the index come before the loads of the versions of other leaves. So if two transactions
        // each insert where the other has looked, at least one sees the other's insert.
        dekker_fence::<M, F>();
        M::step("validate");
        cx.nodes.validate()?;
        // Under all locks. Of two commits that write a cell, the second locks it by an Acquire that
        // follows the Release of the first. So the second draws the larger timestamp, and the
        // version in the cell's word grows from write to write. A timestamp that was drawn before
        // the locks would break the commit point. R begins with a later one and reads the old
        // version; W then locks and installs; and R's validation takes W's version for the one that
        // R has read (mutant `stamp_before_locks`).
        let end = early.unwrap_or_else(|| own.stamps.stamp());
        install_all(cx, Write::cells, end << VERSION_SHIFT);
        Self::unlock_read(reads, own);
        Ok(())
    }
}

faults! {
    /// The protocol's deliberate faults.
    pub trait OccFaults: OptimisticFaults {
        /// The second timestamp is taken before the locks.
        stamp_before_locks,
        /// Records that were read and are also written are not validated.
        skip_validation_of_written,
        /// Records that were only read are not locked.
        lock_only_written,
    }
    pub const FAULTS;
}

/// The places where the algorithm asks for its faults. Without a fault, each of these does what its
/// name says.
impl<M: Machine, F: OccFaults> OccValidation<M, F> {
    /// Returns whether a cell is locked: always, without a fault.
    #[inline(always)]
    fn locks(writes: bool) -> bool {
        writes || !F::lock_only_written()
    }

    /// Returns whether validation leaves out the cell, given the entries before it: never, without
    /// a fault.
    #[inline(always)]
    fn is_trusted(before: &[Touched<M>], cell: Cell<M>) -> bool {
        F::skip_validation_of_written() && before.iter().any(|other| other.cell.address() == cell.address())
    }

    /// Returns the second timestamp, if it is taken too early.
    #[inline(always)]
    fn end_before_locks(own: &mut OccWorker<M>) -> Option<u64> {
        F::stamp_before_locks().then(|| own.stamps.stamp())
    }
}
