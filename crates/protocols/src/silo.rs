//! Silo: optimistic concurrency control with epochs and invisible reads.
//!
//! **Idea.** A transaction reads without writing to shared memory and buffers what it writes. At commit it locks its write set, checks
//! that nothing it read has changed, and installs its writes under a transaction identifier (TID) that it computes from what it read: no
//! counter is shared by all. The TID's upper part is the global epoch, in which commits of different epochs are ordered.
//!
//! **Paper.** S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: "Speedy transactions in multicore in-memory databases", SOSP 2013.
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it aborts (no opacity).
//!
//! **Metadata.** One word a cell: a record, or, with timestamp splitting, a group of its columns. Its flags, and what else such protocols
//! have in common, are in [`crate::optimistic`].
//!
//! The version is a TID: the epoch of the commit that wrote it (bits 63..32), and a sequence number in the epoch (31..4).
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation.
//!
//! **Waits.** A reader waits for a writer's write phase. With `silo.wait=wait` a committing writer waits for locks, taken in the order of
//! addresses, so no cycle of waits can form; with `spin` it waits for a moment, in any order; with `nowait` it aborts. All waits are bounded
//! and end in an abort.
//!
//! **Commit-time updates** lock their cells like all writes, and are applied to what is there when the transaction is valid: nothing
//! was read, so nothing of them is validated but that there is a row.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated like reads. An insert puts an absent, *unlocked* placeholder
//! into the index at once: who meets it observes an absent record. (A placeholder that stays locked until commit lets two crossing
//! inserts and scans wait for each other.)
//!
//! **Snapshots** (`silo.snapshots=on`) for transactions that say beforehand that they will only read: `silo/snapshot.rs`.
//!
//! **Departures from the paper.** A snapshot is at the end of every epoch, not of every 25th (`silo.snapshot_epochs`). The TID has no worker number; it is unique in a record's history, which is all that
//! validation needs. Tombstones are reused by an insert of the same key.
//!
//! **Defaults.** `silo.wait=spin`, the bounded try-lock of STO: where commit-time updates leave a hot record's lock as its only
//! contention, those that meet there need not abort, and nothing has to be sorted. The paper has `wait`, CCBench `nowait`.

mod snapshot;

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, At, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, option_choices, options,
};
use contend_machine::{Atomic64, Machine};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{ABSENT, LOCKED};
use crate::method::ReadPhaseOptions;
use crate::optimistic::{self, EPOCH_SHIFT, FLAGS, Footprint, OWN, WAITS_MAX, observed};
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
        /// What a committing writer does about a lock that another holds: wait in address order, spin for a moment, or abort.
        "silo.wait" wait: Wait = Wait::Spin, in ();
        /// Keep old versions, of which transactions read that say beforehand that they will only read: these never abort.
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
pub struct SiloLocal<M: Machine> {
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

impl<M: Machine> Default for SiloLocal<M> {
    fn default() -> Self {
        SiloLocal { footprint: Footprint::default(), overwritten: 0, last: 0, snapshot: None, copies: Vec::new() }
    }
}

/// How often a commit waits for a lock with `silo.wait=spin`: 62 pauses, a microsecond or two, some write phases.
const SPINS_MAX: u32 = 10;

impl<F: Faults> Silo<F> {
    /// The cells that the write at this position locks and changes.
    #[inline(always)]
    fn cells_of<M: Machine>(cx: &Context<M>, position: usize) -> Cells<M> {
        let write = &cx.writes.entries()[position];
        if F::WRITE_WRONG_CELL && write.table().cell_count() > 1 && write.groups() != Groups::ALL {
            let next = write.groups().into_iter().map(|group| (group as u32 + 1) % write.table().cell_count() as u32);
            return write.table().cells(write.record, next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))));
        }
        write.cells()
    }

    /// Checks that everything read is as it was.
    #[inline(always)]
    fn validate<M: Machine>(cx: &Context<M>, footprint: &mut Footprint<M>) -> Result<(), Abort> {
        M::step("validate");
        for read in 0..footprint.reads.len() {
            let (cell, observation) = footprint.reads[read];
            // SeqCst: in one order with the load of the epoch ([`optimistic::order_of_epochs`]). Acquire, in it: validation comes before the
            // writes.
            let now = cell.word().load(optimistic::order_of_epochs::<F>());
            if F::SKIP_VALIDATION_OF_WRITTEN && footprint.has_locked(cell)
                || F::FORGET_READ_ONLY && !footprint.has_locked(cell)
            {
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

    fn placeholder() -> u64 {
        if F::SHOW_PLACEHOLDERS { 0 } else { ABSENT }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Silo<F> {
    const INFO: Info = Info {
        name: "silo",
        summary: "optimistic: invisible reads, validation at commit, epochs instead of a shared counter",
        paper: "Tu, Zheng, Kohler, Liskov, Madden: Speedy transactions in multicore in-memory databases, SOSP 2013",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
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

impl<M: Machine, F: Faults> Control<M> for Silo<F> {
    type Local = SiloLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        if self.options.snapshots { 2 } else { 1 }
    }

    fn wants_declarations(&self) -> bool {
        self.options.snapshots
    }

    fn stamps_commits(&self) -> bool {
        true
    }

    fn reads_snapshots(&self) -> bool {
        self.options.snapshots
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::Local) -> bool {
        local.snapshot.is_some_and(|snapshot| local.last >> EPOCH_SHIFT <= snapshot)
    }

    fn local(&self, _: usize) -> SiloLocal<M> {
        SiloLocal::default()
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        if self.options.snapshots {
            cells.clone().for_each(snapshot::forget_copies);
        }
        optimistic::init(cells, initial, Self::placeholder());
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.footprint.clear();
        local.overwritten = 0;
        local.snapshot = match self.snapshots() {
            Some(snapshots) if cx.declaration.is_read_only() => {
                let late = if F::SNAPSHOT_OF_RUNNING_EPOCH { 2 } else { u64::from(F::SNAPSHOT_OF_LAST_EPOCH) };
                Some(snapshots.seen_from(cx.began_in() + late))
            }
            _ => None,
        };
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
        match local.snapshot {
            None => local.footprint.observe(cx, at, columns, |_, _| true),
            Some(snapshot) => Snapshots::read(cx, at, columns, snapshot),
        }
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
        if local.snapshot.is_some() {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        local.footprint.prepare_write(cx, at, groups, mode, !F::WRITE_WRONG_CELL, |_, _| true)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        if local.snapshot.is_some() {
            return Err(Abort::new(AbortReason::Unsupported));
        }
        local.footprint.observe_placeholder(at, Self::placeholder())?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        // What a snapshot lacks will not come: an insert is of a later epoch.
        if !F::FORGET_GAPS && local.snapshot.is_none() {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.read_phase.extend::<M>(local.footprint.extra_looks);
        if cx.writes.is_empty() {
            return Self::validate(cx, &mut local.footprint);
        }
        let early = if F::EPOCH_BEFORE_LOCKS { cx.current_epoch() } else { 0 };
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
            if F::MERGE_BEFORE_LOCK {
                cx.writes.merge(position);
            }
            let needs_row = cx.writes.entries()[position].needs_row();
            for cell in Self::cells_of(cx, position) {
                let word = local.footprint.lock(cell, needs_row, waits_max)?;
                local.overwritten = local.overwritten.max(word & !FLAGS);
            }
        }
        // SeqCst: the locks come before the loads of validation, in one order for all (two transactions that each read what the
        // other writes: at least one sees the other's lock). And they come before the stores to the rows; pairs with the fence of
        // `Footprint::observe`.
        dekker_fence::<M, F>();
        M::step("epoch");
        let epoch = if F::EPOCH_BEFORE_LOCKS { early } else { optimistic::epoch_of_commit::<M, F>(cx) };
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

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, _: AbortReason) {
        local.footprint.unlock_all();
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        let oldest = tombstone.oldest() + if F::FORGET_SNAPSHOTS_OF_TOMBSTONES { 2 } else { 0 };
        optimistic::unlink::<M, F>(tombstone, |word| match self.snapshots() {
            None => tombstone.is_over(optimistic::epoch_of(word)),
            // That is later.
            Some(snapshots) => snapshots.lets_unlink(word, oldest),
        })
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        optimistic::is_absent(record)
    }
}
