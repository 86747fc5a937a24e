//! Optimistic concurrency control with per-record validation and two timestamps.
//!
//! **Idea.** A transaction takes a timestamp when it begins, and aborts as soon as it meets a record that was written later: all it ever sees
//! is the state of its beginning. At commit it locks all records that it has touched, read ones too, looks at each once more, takes a
//! second timestamp, and installs its writes under that.
//!
//! **Paper.** H. T. Kung, J. T. Robinson: "On optimistic methods for concurrency control", TODS 1981; with validation in parallel, record by
//! record, as in X. Yu et al.: "Staring into the abyss", VLDB 2014, section 4.3 (OCC).
//!
//! **Promises** serializability, in the order of the second timestamps; and a running transaction sees one state only (opacity), but for
//! keys that are absent, on which more below.
//!
//! **Metadata.** One word a cell: the second timestamp of the transaction that wrote it, above the flags of [`crate::optimistic`].
//!
//! **Commit point.** The second timestamp, taken when all locks are held, and before the first is given back. That is why it is right: who
//! begins after it either meets a lock or the new version; who has begun before aborts at either.
//!
//! **Waits** for locks of committing transactions, which take them in the order of addresses, so no cycle of waits can form. A read waits
//! for a write phase. All waits are bounded and end in an abort.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated when all locks are held, as in Silo.
//!
//! **Departures from the papers.** Reads copy optimistically instead of under a latch; timestamps need the order of real time, so
//! `timestamp.source` is one that has it.

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{ABSENT, LOCKED};
use crate::method::ReadPhaseOptions;
use crate::method::timestamp::{OrderedTimestampOptions, Stamper, Timestamps};
use crate::optimistic::{self, Footprint, VERSION_SHIFT, WAITS_MAX};

/// The protocol.
#[derive(Debug)]
pub struct Occ<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    read_phase: ReadPhaseOptions,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct OccLocal<M: Machine> {
    stamps: Stamper<M>,
    /// The first timestamp.
    start: u64,
    footprint: Footprint<M>,
    /// Cells to be locked. Kept for its memory.
    touched: Vec<Touched<M>>,
}

#[derive(Clone, Copy, Debug)]
struct Touched<M: Machine> {
    cell: Cell<M>,
    reads: bool,
    writes: bool,
    needs_row: bool,
}

impl<M: Machine, F: Faults> Occ<M, F> {
    /// Aborts if what was read since there were `before` reads is of after the transaction's beginning.
    #[inline(always)]
    fn of_the_beginning(local: &OccLocal<M>, before: usize, found: Found) -> Result<Found, Abort> {
        let newest = local.footprint.reads[before..].iter().map(|(_, observation)| observation >> VERSION_SHIFT).max();
        if newest > Some(local.start) { Err(Abort::new(AbortReason::ReadValidation)) } else { Ok(found) }
    }

    /// Collects what the commit locks, each cell once, in the order of addresses.
    fn collect(cx: &Context<M>, local: &mut OccLocal<M>) {
        let touched = &mut local.touched;
        touched.clear();
        for write in cx.writes.entries() {
            let needs_row = write.needs_row();
            touched.extend(write.cells().map(|cell| Touched { cell, reads: false, writes: true, needs_row }));
        }
        let reads = local.footprint.reads.iter();
        touched.extend(reads.map(|&(cell, _)| Touched { cell, reads: true, writes: false, needs_row: false }));
        // What is written before what is read of the same cell.
        touched.sort_unstable_by_key(|touched| (touched.cell.address(), !touched.writes));
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Occ<M, F> {
    const INFO: Info = Info {
        name: "occ",
        summary: "optimistic: one timestamp at the beginning and one at the end; locks all it has touched to validate",
        paper: "Kung, Robinson: On optimistic methods for concurrency control, TODS 1981; Yu et al., VLDB 2014",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    type Options = (OrderedTimestampOptions, ReadPhaseOptions);

    fn new((timestamps, read_phase): Self::Options) -> Self {
        Occ { timestamps: Timestamps::new(timestamps.into(), 0), read_phase, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Occ<M, F> {
    type Local = OccLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn local(&self, worker: usize) -> OccLocal<M> {
        let (stamps, touched) = (self.timestamps.of_worker(worker), Vec::with_capacity(64));
        OccLocal { stamps, start: 0, footprint: Footprint::default(), touched }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        optimistic::init(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.footprint.clear();
        local.start = local.stamps.stamp();
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        let before = local.footprint.reads.len();
        let found = local.footprint.observe(cx, at, columns, |_, _| true)?;
        Self::of_the_beginning(local, before, found)
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
        let before = local.footprint.reads.len();
        let found = local.footprint.prepare_write(cx, at, groups, mode, false, |_, _| true)?;
        Self::of_the_beginning(local, before, found)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        local.footprint.observe_placeholder(at, ABSENT)?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, _: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.read_phase.extend::<M>(local.footprint.extra_looks);
        M::step("lock");
        let mut end = if F::STAMP_BEFORE_LOCKS { local.stamps.stamp() } else { 0 };
        Self::collect(cx, local);
        let mut previous = None;
        for touched in 0..local.touched.len() {
            let Touched { cell, reads, writes, needs_row } = local.touched[touched];
            let locks = previous != Some(cell.address()) && (writes || !F::LOCK_ONLY_WRITTEN);
            previous = Some(cell.address());
            if locks {
                local.footprint.lock(cell, needs_row, WAITS_MAX)?;
            }
            // Relaxed: the cell is locked, so that nobody else changes its word.
            let written_at = cell.word().load(Ordering::Relaxed) >> VERSION_SHIFT;
            let is_written = || local.touched[..touched].iter().any(|other| other.cell.address() == cell.address());
            let skips = F::SKIP_VALIDATION_OF_WRITTEN && is_written();
            if reads && written_at > local.start && !skips {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
        }
        // SeqCst: the locks come before the stores to the rows; pairs with the fence of `Footprint::observe`. And own inserts into the
        // index come before the look at others' leaves; pairs with itself.
        dekker_fence::<M, F>();
        M::step("validate");
        cx.nodes.validate()?;
        if !F::STAMP_BEFORE_LOCKS {
            end = local.stamps.stamp();
        }
        optimistic::install_all(cx, |cx, position| cx.writes.entries()[position].cells(), end << VERSION_SHIFT);
        // Those that were written are unlocked by now.
        local.footprint.locked.clear();
        let mut previous = None;
        for &Touched { cell, writes, .. } in &local.touched {
            // Of one cell's the write stands first.
            let is_only_read = previous != Some(cell.address()) && !writes;
            previous = Some(cell.address());
            if is_only_read && !F::LOCK_ONLY_WRITTEN {
                // Relaxed: nobody else changes the word of a locked cell. Release: what was read of it was read before.
                let word = cell.word().load(Ordering::Relaxed);
                cell.word().store(word & !LOCKED, Ordering::Release);
            }
        }
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, _: AbortReason) {
        local.footprint.unlock_all();
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        optimistic::unlink::<M, F>(tombstone, |_| true)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        optimistic::is_absent(record)
    }
}
