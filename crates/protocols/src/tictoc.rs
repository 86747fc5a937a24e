//! TicToc: optimistic concurrency control whose timestamps come from the data.
//!
//! **Idea.** Each version of a record is valid for an interval of logical time, from the commit that wrote it (`wts`) to the latest commit
//! known to have read it (`rts`). A transaction's commit time is the earliest at which all it has read is valid and all it writes is free: it is
//! computed, not allotted. A version that was read is valid longer if nobody has written since: its `rts` is moved on.
//!
//! **Paper.** X. Yu, A. Pavlo, D. Sanchez, S. Devadas: "TicToc: time traveling optimistic concurrency control", SIGMOD 2016.
//!
//! **Promises** serializability, in the order of commit times, which need not be that of real time.
//!
//! **Metadata.** One word a cell; with `tictoc.history=on` a second, which keeps the first as it was before the last write:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..18 | `wts` |
//! | 17..4 | `rts - wts` |
//! | 3..0 | flags: [`crate::optimistic`] |
//!
//! An interval that does not fit moves `wts` on as well, without a write: who has read the version before aborts in vain.
//!
//! **Commit point.** The commit time, when all that is written is locked, if what was read can be validated at it.
//!
//! **Phantoms.** It is not enough that a leaf's keys are the same at commit: a later insert may get an earlier commit time. So a leaf, too,
//! has a time up to which it was read. A scan or a miss moves it on to its commit time, and then looks whether the keys are still those that
//! it saw; an insert commits after it. When a tombstone leaves the index, its leaf takes over how long it was read, so that who misses the
//! key later commits after its deletion; likewise a placeholder begins with its leaf's time.
//!
//! **Waits.** A reader waits for a write phase; a commit waits for locks by `tictoc.wait`: in the order of addresses, so no cycle of waits
//! can form; or for a moment in any order; or not at all. All waits are bounded and end in an abort.
//!
//! **Options** of the paper: `tictoc.wait=nowait-tt` gives all locks back when one can't be had, checks that the reads are still valid, and
//! begins again; `tictoc.preemptive` aborts who waits for a record that can't be valid at its commit time; `tictoc.history` accepts a
//! version that was overwritten only after the commit time.

mod word;

use std::marker::PhantomData;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, option_choices, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::{ReadPhaseOptions, pass};
use crate::optimistic::{self, Footprint, OWN, WAITS_MAX};
use word::{WTS_SHIFT, extended, rts, version, wts};

/// What a committing writer does about a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait for it, in the order of addresses.
    Wait,
    /// Wait as long as a short write phase takes, then abort.
    Spin,
    /// Abort.
    NoWait,
    /// Give all locks back, check the reads, wait a moment, and begin again.
    NoWaitTt,
}

option_choices!(Wait { Wait => "wait", Spin => "spin", NoWait => "nowait", NoWaitTt => "nowait-tt" });

options! {
    /// TicToc's options.
    pub struct TicTocOptions {
        /// What a committing writer does about a lock that another holds: wait in address order, spin for a moment, abort, or let go of
        /// all, check the reads, and begin again.
        "tictoc.wait" wait: Wait = Wait::Spin, in ();
        /// How long a commit waits before it begins again with tictoc.wait=nowait-tt, in nanoseconds.
        "tictoc.relock_ns" relock_ns: u64 = 1_000, in 1..=1_000_000_000;
        /// Abort while waiting for a record that can't be valid at the commit time any more.
        "tictoc.preemptive" preemptive: bool = true, in ();
        /// Keep the interval of the version before: who has read it may commit in it.
        "tictoc.history" history: bool = false, in ();
    }
}

/// The protocol.
#[derive(Debug)]
pub struct TicToc<F = Sound> {
    options: TicTocOptions,
    read_phase: ReadPhaseOptions,
    faults: PhantomData<fn() -> F>,
}

/// Commits let go of all and begin again so often with `tictoc.wait=nowait-tt`.
const RELOCKS_MAX: u32 = 50;
/// How often a wait is prolonged with `tictoc.wait=spin`.
const SPINS_MAX: u32 = 10;

/// A worker's state.
#[derive(Debug)]
pub struct TicTocLocal<M: Machine> {
    footprint: Footprint<M>,
    /// The commit time will be this at least: the earliest at which all that was read so far was valid.
    time: u64,
}

impl<M: Machine> TicTocLocal<M> {
    /// What was read since there were `before` reads is to be valid at the commit time.
    #[inline(always)]
    fn commits_after(&mut self, before: usize) {
        self.time =
            self.footprint.reads[before..].iter().map(|&(_, observation)| wts(observation)).fold(self.time, u64::max);
    }
}

impl<F: Faults> TicToc<F> {
    /// Whether to go on waiting for a locked record.
    #[inline(always)]
    fn waits(&self, time: u64) -> impl Fn(u64, u32) -> bool + use<F> {
        let preemptive = self.options.preemptive;
        // Its next version will begin after `rts`: what is to be read has to be valid at `time`.
        move |word, _| !(preemptive && word & LOCKED != 0 && rts(word) < time)
    }

    /// Locks what is written; the time after which that is free.
    fn lock_all<M: Machine>(&self, cx: &mut Context<M>, local: &mut TicTocLocal<M>) -> Result<u64, Abort> {
        let waits_max = match self.options.wait {
            Wait::Wait => WAITS_MAX,
            Wait::Spin => SPINS_MAX,
            Wait::NoWait | Wait::NoWaitTt => 0,
        };
        let in_order = self.options.wait == Wait::Wait;
        if in_order {
            cx.writes.sort();
        }
        let mut free_after = 0;
        for rank in 0..cx.writes.len() {
            let write = &cx.writes.entries()[if in_order { cx.writes.sorted(rank) } else { rank }];
            for cell in write.cells() {
                let word = local.footprint.lock(cell, write.needs_row(), waits_max)?;
                free_after = free_after.max(if F::OVERWRITE_READ_INTERVALS { wts(word) } else { rts(word) });
            }
        }
        Ok(free_after)
    }

    /// [`TicToc::lock_all`], again and again as long as the reads are valid.
    fn lock_all_or_relock<M: Machine>(&self, cx: &mut Context<M>, local: &mut TicTocLocal<M>) -> Result<u64, Abort> {
        for _ in 0..RELOCKS_MAX {
            match self.lock_all(cx, local) {
                Err(abort) if abort.reason == AbortReason::WriteLocked => {}
                ended => return ended,
            }
            local.footprint.unlock_all();
            M::step("relock");
            // Relaxed: a first look; validation looks again.
            let gone = |&(cell, observation): &(Cell<M>, u64)| {
                version(cell.word().load(Ordering::Relaxed)) != version(observation & !OWN)
            };
            if local.footprint.reads.iter().any(gone) {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
            pass::<M>((self.options.relock_ns as f64 * M::cycles_per_second() / 1e9) as u64);
            // Another may wait for what this one does, by the clock of its machine.
            M::yield_now();
        }
        Err(Abort::new(AbortReason::WriteLocked))
    }

    /// Whether what was observed of the cell is valid at `time`, which is after what the observation says; sees to it that it stays so.
    fn is_valid<M: Machine>(&self, footprint: &mut Footprint<M>, cell: Cell<M>, observation: u64, time: u64) -> bool {
        loop {
            // Acquire: validation comes before the writes.
            let now = cell.word().load(Ordering::Acquire);
            if version(now) != version(observation & !OWN) {
                return self.options.history && Self::was_valid(cell, now, observation & !OWN, time);
            }
            if observation & OWN != 0 && now & LOCKED != 0 || footprint.has_locked(cell) || rts(now) >= time {
                return true;
            }
            if now & LOCKED != 0 {
                return F::IGNORE_LOCKS_IN_VALIDATION;
            }
            // AcqRel: pairs with the Acquire of whoever locks the cell, who then sees how long it was read.
            let new = if F::FORGET_EXTENSION { now } else { extended(now, time) };
            if cell.word().compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Whether the observed version, which was overwritten, was valid at `time`: it is the one before, and the next begins later.
    fn was_valid<M: Machine>(cell: Cell<M>, now: u64, observation: u64, time: u64) -> bool {
        if now & LOCKED != 0 || time >= wts(now) {
            return false;
        }
        // SAFETY: with a history cells have two words.
        // Acquire: the look at the first word comes after.
        let before = unsafe { cell.meta(1) }.load(Ordering::Acquire);
        version(before) == version(observation) && version(cell.word().load(Ordering::Relaxed)) == version(now)
    }

    /// Validates the reads at this time.
    fn validate<M: Machine>(&self, cx: &Context<M>, local: &mut TicTocLocal<M>, time: u64) -> Result<(), Abort> {
        M::step("validate");
        let footprint = &mut local.footprint;
        for read in 0..footprint.reads.len() {
            let (cell, observation) = footprint.reads[read];
            // Of what is written here, too, the version must be the same.
            let in_its_interval = rts(observation) >= time && observation & OWN == 0 && !footprint.has_locked(cell);
            if !in_its_interval && !self.is_valid(footprint, cell, observation, time) {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
        }
        if cx.nodes.is_empty() {
            return Ok(());
        }
        for leaf in cx.nodes.leaves().filter(|_| !F::FORGET_TIMES_OF_LEAVES) {
            // Relaxed: ordered by the fence.
            if leaf.word().load(Ordering::Relaxed) < time {
                leaf.word().fetch_max(time, Ordering::Relaxed);
            }
        }
        // SeqCst: the times come before the look at the keys (`Leaf::word`).
        dekker_fence::<M, F>();
        cx.nodes.validate()
    }
}

impl<M: Machine, F: Faults> Protocol<M> for TicToc<F> {
    const INFO: Info = Info {
        name: "tictoc",
        summary: "optimistic: versions are valid for intervals of logical time, commit times come from the data",
        paper: "Yu, Pavlo, Sanchez, Devadas: TicToc: time traveling optimistic concurrency control, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    type Options = (TicTocOptions, ReadPhaseOptions);

    fn new((options, read_phase): Self::Options) -> Self {
        TicToc { options, read_phase, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for TicToc<F> {
    type Local = TicTocLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        if self.options.history { 2 } else { 1 }
    }

    fn local(&self, _: usize) -> TicTocLocal<M> {
        TicTocLocal { footprint: Footprint::default(), time: 0 }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        // Locked until `inserted` says from when on it is absent.
        optimistic::init(cells, initial, ABSENT | LOCKED);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.footprint.clear();
        local.time = 0;
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
        let found = local.footprint.observe(cx, at, columns, self.waits(local.time))?;
        local.commits_after(before);
        Ok(found)
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
        let found = local.footprint.prepare_write(cx, at, groups, mode, true, self.waits(local.time))?;
        local.commits_after(before);
        Ok(found)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // Of a leaf that was split both halves have the time that it had. Who has read the right half since has found the placeholder there, or nothing
        // where that is: so to look at it as well is for clarity, and the fault does no harm.
        // SeqCst: the insert comes before the look at the leaves' times; pairs with the fence of `validate`.
        dekker_fence::<M, F>();
        let split = change.split.filter(|_| !F::FORGET_TIMES_OF_SPLITS);
        let leaves = [change.leaf].into_iter().chain(split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let read_up_to = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        let begin = if F::FORGET_TIMES_OF_LEAVES { 0 } else { read_up_to };
        for cell in at.cells(Groups::ALL).rev() {
            let is_first = cell.address() == at.record.first_cell().address();
            let queued = if is_first { QUEUED } else { 0 };
            // Release: as any unlock.
            cell.word().store(begin << WTS_SHIFT | ABSENT | queued, Ordering::Release);
        }
        local.time = local.time.max(begin + 1);
        local.footprint.observe_placeholder(at, ABSENT)?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        cx.nodes.add(leaf, version);
        if !F::FORGET_TIMES_OF_LEAVES {
            // Relaxed: what has left the leaf before `version` has left its time there; the version's Acquire orders this.
            local.time = local.time.max(leaf.word().load(Ordering::Relaxed));
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.read_phase.extend::<M>(local.footprint.extra_looks);
        if cx.writes.is_empty() {
            let time = local.time;
            return self.validate(cx, local, time);
        }
        M::step("lock");
        let free_after = match self.options.wait {
            Wait::NoWaitTt => self.lock_all_or_relock(cx, local)?,
            _ => self.lock_all(cx, local)?,
        };
        // SeqCst: the locks come before the loads of validation, in one order for all (two transactions that each read what the
        // other writes: at least one sees the other's lock). And they come before the stores to the rows; pairs with the fence of
        // `Footprint::observe`.
        dekker_fence::<M, F>();
        let time = local.time.max(free_after + 1);
        self.validate(cx, local, time)?;
        if self.options.history {
            for cell in &local.footprint.locked {
                // Relaxed: nobody else changes the word of a locked cell. Release: pairs with the Acquire of `was_valid`.
                let before = cell.word().load(Ordering::Relaxed);
                // SAFETY: with a history cells have two words.
                unsafe { cell.meta(1) }.store(before & !LOCKED, Ordering::Release);
            }
        }
        // What was inserted and deleted again was absent at the commit time: whoever inserts it next comes later.
        for write in cx.writes.entries().iter().filter(|write| write.kind == WriteKind::Nothing) {
            for cell in write.cells() {
                // Relaxed, both: the cell is locked.
                cell.word().store(extended(cell.word().load(Ordering::Relaxed), time), Ordering::Relaxed);
            }
        }
        optimistic::install_all(cx, |cx, position| cx.writes.entries()[position].cells(), time << WTS_SHIFT);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, _: AbortReason) {
        local.footprint.unlock_all();
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        match optimistic::unlink::<M, F>(tombstone, |_| true) {
            Unlink::Marked { .. } => {
                // Nobody moves the interval of what is unlinked. Acquire: pairs with the AcqRel of who did before.
                let read_up_to =
                    tombstone.cells().map(|cell| rts(cell.word().load(Ordering::Acquire) & !UNLINKED)).max();
                Unlink::Marked {
                    time: read_up_to
                        .filter(|_| !F::FORGET_TIMES_OF_LEAVES && !F::FORGET_READERS_OF_TOMBSTONES)
                        .unwrap_or(0),
                }
            }
            other => other,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        optimistic::is_absent(record)
    }
}
