//! Silo: optimistic concurrency control with epochs and invisible reads.
//!
//! **Idea.** A transaction reads without writing to shared memory and buffers what it writes. At
//! commit it locks its write set, checks that nothing it read has changed, and installs its writes
//! under a transaction identifier (TID) that it computes from what it read: no counter is shared by
//! all. The TID's upper part is the global epoch, in which commits of different epochs are ordered.
//!
//! **Paper.** S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: "Speedy transactions in multicore
//! in-memory databases", SOSP 2013.
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it
//! aborts (no opacity).
//!
//! **Metadata.** One word a cell: a record, or, with timestamp splitting, a group of its columns.
//! Its flags, and what else such protocols have in common, are in [`crate::optimistic`].
//!
//! The version is a TID: the epoch of the commit that wrote it (bits 63..32), and a sequence number
//! in the epoch (31..4).
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation.
//!
//! **Waits.** A reader waits for a writer's write phase. With `silo.wait=wait` a committing writer
//! waits for locks, taken in the order of addresses, so no cycle of waits can form; with `spin` it
//! waits for a moment, in any order; with `nowait` it aborts. All waits are bounded and end in an
//! abort.
//!
//! **Commit-time updates** lock their cells like all writes, and are applied to what is there when
//! the transaction is valid: nothing was read, so nothing of them is validated but that there is a
//! row.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated like reads. An insert
//! puts an absent, *unlocked* placeholder into the index at once: who meets it observes an absent
//! record. (A placeholder that stays locked until commit lets two crossing inserts and scans wait
//! for each other.)
//!
//! **Snapshots** (`silo.snapshots=on`) for transactions that say beforehand that they will only
//! read: `silo/snapshot.rs`.
//!
//! **Departures from the paper.** A snapshot is at the end of every epoch, not of every 25th
//! (`silo.snapshot_epochs`). The TID has no worker number; it is unique in a record's history,
//! which is all that validation needs. Tombstones are reused by an insert of the same key.
//!
//! **Defaults.** `silo.wait=spin`, the bounded try-lock of STO: where commit-time updates leave a
//! hot record's lock as its only contention, those that meet there need not abort, and nothing has
//! to be sorted. The paper has `wait`, CCBench `nowait`.

mod snapshot;

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located,
    NamedProtocol, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode, option_choices, options,
};
use contend_machine::{Atomic64, Machine};

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, LOCKED};
use crate::method::ReadPhaseOptions;
use crate::method::wait::{SPINS_MAX, WAITS_MAX};
use crate::optimistic::{self, EPOCH_SHIFT, FLAGS, Footprint, OWN, OptimisticFaults, observed};
use snapshot::Snapshots;

/// What a committing writer does about a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait for it, in the order of addresses.
    Wait,
    /// Wait as long as a short write phase takes, then abort.
    Spin,
    /// Abort.
    NoWait,
}

option_choices!(Wait { Wait => "wait", Spin => "spin", NoWait => "nowait" });

options! {
    /// Silo's options.
    pub struct SiloOptions {
        /// What a committing writer does about a lock that another holds: wait in address order,
        /// spin for a moment, or abort.
        "silo.wait" wait: Wait = Wait::Spin, in ();
        /// Keep old versions, of which transactions read that say beforehand that they will only
        /// read: these never abort.
        "silo.snapshots" snapshots: bool = false, in ();
        /// With snapshots: so many epochs lie between two.
        "silo.snapshot_epochs" snapshot_epochs: u32 = 1, in 1..=1000;
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Silo<F = Sound> {
    options: SiloOptions,
    read_phase: ReadPhaseOptions,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct SiloWorker<M: Machine> {
    footprint: Footprint<M>,
    /// The newest version that the commit will overwrite.
    overwritten: u64,
    /// The version of the worker's last commit.
    last: u64,
    /// The epoch whose end the transaction sees, if it sees a snapshot.
    snapshot: Option<u64>,
    /// What was copied for snapshots, and of which write. Kept for its memory.
    copies: Vec<(usize, Record<M>)>,
}

impl<M: Machine> Default for SiloWorker<M> {
    fn default() -> Self {
        SiloWorker { footprint: Footprint::default(), overwritten: 0, last: 0, snapshot: None, copies: Vec::new() }
    }
}

impl<F: SiloFaults> Silo<F> {
    /// Checks that everything read is as it was.
    #[inline(always)]
    fn validate<M: Machine>(cx: &Context<M>, footprint: &mut Footprint<M>) -> Result<(), Abort> {
        M::step("validate");
        for read in 0..footprint.reads.len() {
            let (cell, observation) = footprint.reads[read];
            // SeqCst: in one order with the load of the epoch ([`optimistic::order_of_epochs`]).
            // Acquire, in it: validation comes before the writes.
            let now = cell.word().load(optimistic::order_of_epochs::<F>());
            if Self::trusts(footprint, cell) {
                continue;
            }
            let locked_by_other = now & LOCKED != 0
                && observation & OWN == 0
                && !F::IGNORE_LOCKS_IN_VALIDATION
                && !footprint.has_locked(cell);
            if observed(now) != observation & !OWN || locked_by_other {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
        }
        cx.nodes.validate_as(optimistic::order_of_epochs::<F>())
    }

    fn snapshots(&self) -> Option<Snapshots> {
        self.options.snapshots.then(|| Snapshots { every: self.options.snapshot_epochs.into() })
    }
}

impl<M: Machine, F: SiloFaults> NamedProtocol<M> for Silo<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "silo",
        summary: "optimistic: invisible reads, validation at commit, epochs instead of a shared counter",
        paper: "Tu, Zheng, Kohler, Liskov, Madden: Speedy transactions in multicore in-memory databases, SOSP 2013",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("silo.snapshots=on");
    type Options = (SiloOptions, ReadPhaseOptions);

    fn options_with_snapshots() -> Self::Options {
        (SiloOptions { snapshots: true, ..SiloOptions::default() }, ReadPhaseOptions::default())
    }

    fn new((options, read_phase): Self::Options) -> Self {
        Silo { options, read_phase, faults: PhantomData }
    }
}

impl<M: Machine, F: SiloFaults> Protocol<M> for Silo<F> {
    type WorkerState = SiloWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        if self.options.snapshots { 2 } else { 1 }
    }

    fn wants_declarations(&self) -> bool {
        self.options.snapshots
    }

    fn provides_write_counters(&self) -> bool {
        true
    }

    fn reads_snapshots(&self) -> bool {
        self.options.snapshots
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        local.snapshot.is_some_and(|snapshot| local.last >> EPOCH_SHIFT <= snapshot)
    }

    fn new_worker_state(&self, _: usize) -> SiloWorker<M> {
        SiloWorker::default()
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        if self.options.snapshots {
            cells.clone().for_each(snapshot::forget_copies);
        }
        optimistic::init(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.footprint.clear();
        local.overwritten = 0;
        local.snapshot = match self.snapshots() {
            Some(snapshots) if cx.declaration.is_read_only() => {
                Some(snapshots.seen_from(cx.began_in() + Self::epochs_too_late()))
            }
            _ => None,
        };
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        match local.snapshot {
            None => local.footprint.observe(cx, at, columns, |_, _| true),
            Some(snapshot) => Snapshots::read(cx, at, columns, snapshot),
        }
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
        if local.snapshot.is_some() {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        local.footprint.prepare_write(cx, at, groups, mode, !F::WRITE_WRONG_CELL, |_, _| true)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        if local.snapshot.is_some() {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        local.footprint.observe_placeholder(at, ABSENT)?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // What a snapshot lacks will not come: an insert is of a later epoch.
        if local.snapshot.is_none() {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.read_phase.extend::<M>(local.footprint.extra_looks);
        if cx.writes.is_empty() {
            return Self::validate(cx, &mut local.footprint);
        }
        let early = Self::epoch_before_locks(cx);
        // Phase 1: lock what is written.
        M::step("lock");
        let waits = self.options.wait == Wait::Wait;
        let waits_max = match self.options.wait {
            Wait::Wait => WAITS_MAX,
            Wait::Spin => SPINS_MAX,
            Wait::NoWait => 0,
        };
        if waits {
            cx.writes.sort();
        }
        for rank in 0..cx.writes.len() {
            let position = if waits { cx.writes.sorted(rank) } else { rank };
            let needs_row = cx.writes.entries()[position].needs_row();
            for cell in Self::cells_of(cx, position) {
                let word = local.footprint.lock(cell, needs_row, waits_max)?;
                local.overwritten = local.overwritten.max(word & !FLAGS);
            }
        }
        // SeqCst: the locks come before the loads of validation, in one order for all (two
        // transactions that each read what the other writes: at least one sees the other's lock).
        // And they come before the stores to the rows; pairs with the fence of
        // `Footprint::observe`.
        dekker_fence::<M, F>();
        M::step("epoch");
        let epoch = early.unwrap_or_else(|| optimistic::epoch_of_commit::<M, F>(cx));
        // Phase 2: check what was read.
        Self::validate(cx, &mut local.footprint)?;
        // Phase 3: install.
        let older = (!F::FORGET_OLDER_TIDS).then(|| local.footprint.newest_read().max(local.overwritten));
        let version = optimistic::next_tid(older.unwrap_or(0).max(local.last), epoch)?;
        cx.writes.apply_updates();
        if let Some(snapshots) = self.snapshots() {
            snapshots.keep(cx, &mut local.copies, version)?;
        }
        optimistic::install_as_tid(cx, Self::cells_of, version);
        local.last = version;
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, _: AbortReason) {
        local.footprint.unlock_all();
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        optimistic::unlink::<M, F>(tombstone, |word| match self.snapshots() {
            None => tombstone.is_over(optimistic::epoch_of(word)),
            // That is later.
            Some(snapshots) => snapshots.lets_unlink(word, tombstone.oldest()),
        })
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// Silo's deliberate faults.
    pub trait SiloFaults: OptimisticFaults {
        /// Records that were read and are also written are not validated.
        SKIP_VALIDATION_OF_WRITTEN,
        /// Cells that were read and are not written are not validated: write skew goes through, as
        /// under snapshot isolation.
        FORGET_READ_ONLY,
        /// A write of some columns locks and changes the cell next to theirs.
        WRITE_WRONG_CELL,
        /// A commit's TID need not be larger than those it has read and overwritten: one record can
        /// have one TID twice.
        FORGET_OLDER_TIDS,
        /// The epoch of a commit is loaded before its locks are taken.
        EPOCH_BEFORE_LOCKS,
        /// A snapshot is at the end of the epoch in which its reader begins: others still commit in
        /// it.
        SNAPSHOT_OF_RUNNING_EPOCH,
        /// A snapshot is at the end of the epoch before that in which its reader begins.
        SNAPSHOT_OF_LAST_EPOCH,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<F: SiloFaults> Silo<F> {
    /// Returns the cells that the write at `position` locks and changes.
    #[inline(always)]
    fn cells_of<M: Machine>(cx: &Context<M>, position: usize) -> Cells<M> {
        let write = &cx.writes.entries()[position];
        if F::WRITE_WRONG_CELL && write.table().cell_count() > 1 && write.groups() != Groups::ALL {
            let next = write.groups().into_iter().map(|group| (group as u32 + 1) % write.table().cell_count() as u32);
            return write.table().cells(write.record, next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))));
        }
        write.cells()
    }

    /// Returns whether validation leaves the cell out: never, without a fault.
    #[inline(always)]
    fn trusts<M: Machine>(footprint: &mut Footprint<M>, cell: Cell<M>) -> bool {
        F::SKIP_VALIDATION_OF_WRITTEN && footprint.has_locked(cell)
            || F::FORGET_READ_ONLY && !footprint.has_locked(cell)
    }

    /// Returns by how many epochs a snapshot is too late.
    #[inline(always)]
    fn epochs_too_late() -> u64 {
        if F::SNAPSHOT_OF_RUNNING_EPOCH { 2 } else { u64::from(F::SNAPSHOT_OF_LAST_EPOCH) }
    }

    /// Returns the epoch of the commit if it is loaded too early.
    #[inline(always)]
    fn epoch_before_locks<M: Machine>(cx: &Context<M>) -> Option<u64> {
        F::EPOCH_BEFORE_LOCKS.then(|| cx.current_epoch())
    }
}
