//! TicToc: optimistic concurrency control whose timestamps come from the data.
//!
//! **Idea.** Each version of a record is valid for an interval of logical time, from the commit
//! that wrote it (`wts`) to the latest commit that is known to have read it (`rts`). A
//! transaction's `commit_ts` is the earliest time at which all that it has read is valid and all
//! that it writes is free: it is computed, not allotted. A version that was read is valid longer if
//! no transaction has written the record since: then its `rts` is raised.
//!
//! **Paper.** X. Yu, A. Pavlo, D. Sanchez, S. Devadas: "TicToc: time traveling optimistic
//! concurrency control", SIGMOD 2016.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | Algorithm 1, read phase | `ReadsAndLocks::observe`; then `after_read` does part of step 2 |
//! | Algorithm 2, step 1: lock the write set | `TicTocValidation::lock_write_set` |
//! | Algorithm 2, step 2: compute `commit_ts` | `after_read`, `lock_write_set`, `commit` |
//! | Algorithm 2, step 3: validate the read set | `TicTocValidation::validate` |
//! | … a read whose `rts` is too early | `still_valid`, `extend_rts` |
//! | Algorithm 3, write phase | `install_all` |
//! | encoding of `wts`, `delta` and the lock in one word | `tictoc/word.rs` |
//! | optimization: no-wait locking in the validation phase | `lock_or_begin_again` |
//! | optimization: preemptive aborts | `keeps_waiting` |
//! | optimization: timestamp history | `keep_history`, `was_valid` |
//!
//! Step 2 is `commit_ts = max(wts of each read, rts + 1 of each write)`. It is computed as the
//! operands become known: the reads' while the transaction runs, the writes' when they are locked,
//! because only a lock keeps `rts` as it is.
//!
//! `ReadsAndLocks` and `install_all` are the family's: [`crate::optimistic`].
//!
//! **Promises** serializability, in the order of `commit_ts`, which need not be that of real time.
//!
//! **Metadata.** One word for each cell; with `tictoc.history=on` a second, which keeps the first
//! as it was before the last write:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..18 | `wts` |
//! | 17..4 | `delta`, which is `rts - wts` |
//! | 3..0 | queued, unlinked, absent, locked: [`crate::flags`] |
//!
//! A `delta` that does not fit moves `wts` on as well, without a write: a transaction that has read
//! the version before aborts in vain.
//!
//! **Commit point.** `commit_ts`, once all that is written is locked, if all that was read can be
//! validated at it.
//!
//! **Waits.** A reader waits for a write phase. A commit waits for locks by `tictoc.wait`: in the
//! order of addresses, so no cycle of waits can form; or for a moment in any order; or not at all.
//! All waits are bounded and end in an abort.
//!
//! **Phantoms.** It is not enough that a leaf's keys are the same at commit: a later insert may get
//! an earlier `commit_ts`. So a leaf, too, has an `rts`. A scan or a miss raises it to its
//! `commit_ts`, and then looks whether the keys are still those that it saw; an insert commits
//! after it. When a tombstone leaves the index, its leaf takes over the tombstone's `rts`, so that
//! a transaction that misses the key later commits after the deletion; likewise a placeholder
//! begins with its leaf's `rts`.
//!
//! **Departures from the paper.** Leaves have an `rts`: the paper leaves phantoms open. `delta` has
//! 14 bits instead of 15, because the flags need four.
//!
//! **Options** of the paper. `tictoc.wait=nowait-tt` gives all locks back when one can't be had,
//! checks that the reads are still valid, and begins again. `tictoc.preemptive` aborts a
//! transaction that waits for a record that can't be valid at its `commit_ts`. `tictoc.history`
//! accepts a version that was overwritten only after `commit_ts`.

mod word;

use std::marker::PhantomData;

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, ProtocolInfo,
    Tombstone, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::Wait;
use crate::method::{ReadPhaseOptions, spin_for};
use crate::optimistic::{OptimisticFaults, Read, ReadsAndLocks, Validating, Validation, install_all};
use word::{WTS_SHIFT, extended, rts, version, wts};

options! {
    /// TicToc's options.
    pub struct TicTocOptions {
        /// What a committing writer does about a lock that another holds: wait in address order,
        /// spin for a moment, abort, or let go of all, check the reads, and begin again.
        "tictoc.wait" wait: Wait = Wait::Spin, in Wait::ALL;
        /// How long a commit waits before it begins again with tictoc.wait=nowait-tt, in
        /// nanoseconds.
        "tictoc.relock_ns" relock_ns: u64 = 1_000, in 1..=1_000_000_000;
        /// Abort while waiting for a record that can't be valid at the commit time any more.
        "tictoc.preemptive" preemptive: bool = true, in ();
        /// Keep the interval of the version before: a transaction that has read that version may
        /// commit in it.
        "tictoc.history" history: bool = false, in ();
        flatten read_phase: ReadPhaseOptions;
    }
}

/// The protocol.
pub type TicToc<F = Sound> = Validating<TicTocValidation<F>>;

/// How TicToc validates.
#[derive(Debug)]
pub struct TicTocValidation<F> {
    options: TicTocOptions,
    faults: PhantomData<fn() -> F>,
}

/// The number of times that a commit begins again with `tictoc.wait=nowait-tt`.
const RELOCKS_MAX: u32 = 50;

/// TicToc's part of a worker's state.
#[derive(Debug)]
pub struct TicTocWorker {
    /// The commit timestamp, as far as it is known: the earliest time at which all that was read
    /// so far is valid.
    commit_ts: u64,
}

impl<F: TicTocFaults> TicTocValidation<F> {
    /// Step 1: locks the write set. Returns the largest `rts` in it, for step 2.
    fn lock_write_set<M: Machine>(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>) -> Result<u64, Abort> {
        let (in_order, pauses) = (self.options.wait.in_order(), self.options.wait.pauses());
        if in_order {
            cx.writes.sort();
        }
        let mut max_rts = 0;
        for rank in 0..cx.writes.len() {
            let write = &cx.writes.entries()[if in_order { cx.writes.sorted(rank) } else { rank }];
            for cell in write.cells() {
                let word = reads.lock(cx, cell, write.needs_row(), pauses)?;
                max_rts = max_rts.max(Self::rts_to_commit_after(word));
            }
        }
        Ok(max_rts)
    }

    /// Step 1 with `nowait-tt`: [`TicTocValidation::lock_write_set`], again and again while the
    /// reads are valid.
    fn lock_or_begin_again<M: Machine>(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>) -> Result<u64, Abort> {
        for _ in 0..RELOCKS_MAX {
            match self.lock_write_set(cx, reads) {
                Err(abort) if abort.reason == AbortReason::WriteLocked => {}
                ended => return ended,
            }
            reads.unlock_all();
            M::step("relock");
            // Relaxed: a first look, which may be wrong either way, and has no partner; validation
            // looks again.
            let changed = |read: &Read<M>| !Self::still_valid(*read, read.cell.word().load(Ordering::Relaxed));
            if let Some(read) = reads.entries.iter().find(|read| changed(read)) {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
            spin_for::<M>((self.options.relock_ns as f64 * M::cycles_per_second() / 1e9) as u64);
            // Another may wait for what this one does, by the clock of its machine.
            M::yield_now();
        }
        // The place is that of the last try, which has noted it.
        Err(Abort::new(AbortReason::WriteLocked))
    }

    /// Returns whether `now`, the cell's word, still is of the version that was read.
    #[inline(always)]
    fn still_valid<M: Machine>(read: Read<M>, now: u64) -> bool {
        version(now) == version(read.observed_word())
    }

    /// Step 3, for a read whose `rts` was earlier than `commit_ts`: returns whether the version is
    /// valid at `commit_ts`, and raises its `rts` so that it stays so.
    fn extend_rts<M: Machine>(&self, reads: &mut ReadsAndLocks<M>, read: Read<M>, commit_ts: u64) -> bool {
        let cell = read.cell;
        loop {
            // Acquire: pairs with the Release of `install_all`, so that `was_valid` finds the
            // history that belongs to the word; and validation comes before the writes.
            let now = cell.word().load(Ordering::Acquire);
            if !Self::still_valid(read, now) {
                return self.options.history && Self::was_valid(read, now, commit_ts);
            }
            let is_own = read.will_write() && now & LOCKED != 0 || reads.has_locked(cell);
            if is_own || rts(now) >= commit_ts {
                return true;
            }
            if now & LOCKED != 0 {
                return Self::ignores_locks();
            }
            // AcqRel: the Release pairs with the Acquire of `ReadsAndLocks::lock`: a writer that
            // locks the cell next sees the raised `rts`, and commits after it. The excluded
            // interleaving is a writer that locks between the load above and this exchange: the
            // lock bit changes the word, so the exchange fails, and the lock is seen.
            // Relaxed, if it fails: the next look decides.
            let new = Self::extension(now, commit_ts);
            if cell.word().compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Returns whether the version that was read, and overwritten since, was valid at `commit_ts`:
    /// it is the one before that of `now`, which begins later.
    fn was_valid<M: Machine>(read: Read<M>, now: u64, commit_ts: u64) -> bool {
        if now & LOCKED != 0 || commit_ts >= wts(now) {
            return false;
        }
        // SAFETY: with a history cells have two words.
        // Acquire: pairs with the Release of `keep_history`. The next commit's history is `now`'s
        // version, which is not the one that was read. A still later commit stores its history
        // after it has locked a newer word; then the load that follows finds another version.
        let before = unsafe { read.cell.meta(1) }.load(Ordering::Acquire);
        // Relaxed: ordered by that Acquire.
        let unchanged = version(read.cell.word().load(Ordering::Relaxed)) == version(now);
        version(before) == version(read.observed_word()) && unchanged
    }

    /// Step 3: validates what was read, leaves included, at `commit_ts`.
    fn validate<M: Machine>(&self, cx: &Context<M>, reads: &mut ReadsAndLocks<M>, commit_ts: u64) -> Result<(), Abort> {
        M::step("validate");
        for position in 0..reads.entries.len() {
            let read = reads.entries[position];
            // What is written here, too, must be of the same version whatever its interval: the
            // commit overwrites what it has read.
            let is_in_interval =
                rts(read.observed_word()) >= commit_ts && !read.will_write() && !reads.has_locked(read.cell);
            if !is_in_interval && !self.extend_rts(reads, read, commit_ts) {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        if cx.nodes.is_empty() {
            return Ok(());
        }
        for leaf in cx.nodes.leaves().filter(|_| Self::leaves_have_rts()) {
            // Relaxed, both: ordered by the fence below, which pairs with that of
            // `prepare_placeholder`.
            if leaf.word().load(Ordering::Relaxed) < commit_ts {
                leaf.word().fetch_max(commit_ts, Ordering::Relaxed);
            }
        }
        // SeqCst: pairs with the fence of `prepare_placeholder`. Here the leaf's `rts` comes before
        // the look at its keys; there the insert comes before the look at the `rts`. So at least
        // one of the two sees the other: this transaction finds the key and aborts, or the insert
        // commits after it.
        dekker_fence::<M, F>();
        cx.nodes.validate()
    }

    /// Keeps the words that the commit is going to overwrite.
    fn keep_history<M: Machine>(reads: &ReadsAndLocks<M>) {
        for cell in &reads.locked {
            // Relaxed: no other transaction changes the word of a locked cell.
            let before = cell.word().load(Ordering::Relaxed);
            // SAFETY: with a history cells have two words.
            // Release: pairs with the Acquire of `was_valid`: the lock comes before the history.
            unsafe { cell.meta(1) }.store(before & !LOCKED, Ordering::Release);
        }
    }
}

impl<M: Machine, F: TicTocFaults> Validation<M> for TicTocValidation<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "tictoc",
        summary: "optimistic: versions are valid for intervals of logical time, commit times come from the data",
        paper: "Yu, Pavlo, Sanchez, Devadas: TicToc: time traveling optimistic concurrency control, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    // It stays locked until `prepare_placeholder` says from when on it is absent.
    const PLACEHOLDER: u64 = ABSENT | LOCKED;
    type Options = TicTocOptions;
    type Faults = F;
    type WorkerState = TicTocWorker;

    fn new(options: TicTocOptions) -> Self {
        TicTocValidation { options, faults: PhantomData }
    }

    #[inline(always)]
    fn read_phase(&self) -> &ReadPhaseOptions {
        &self.options.read_phase
    }

    fn meta_words(&self) -> usize {
        if self.options.history { 2 } else { 1 }
    }

    fn new_worker_state(&self, _: usize) -> TicTocWorker {
        TicTocWorker { commit_ts: 0 }
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, own: &mut TicTocWorker) {
        own.commit_ts = 0;
    }

    #[inline(always)]
    fn keeps_waiting(&self, own: &TicTocWorker, word: u64) -> bool {
        // The version after the locked one will begin after `rts`. What is read has to be valid at
        // `commit_ts`, so a locked version that ends before it is not worth waiting for.
        let will_end_too_early = word & LOCKED != 0 && rts(word) < own.commit_ts;
        !(self.options.preemptive && will_end_too_early)
    }

    /// Step 2, for reads: raises `commit_ts` to their `wts`.
    #[inline(always)]
    fn after_read(&self, own: &mut TicTocWorker, new: &[Read<M>]) -> Result<(), Abort> {
        own.commit_ts = new.iter().map(|read| wts(read.observed_word())).fold(own.commit_ts, u64::max);
        Ok(())
    }

    /// Step 2, for leaves: a key that is absent was deleted, if ever, by the leaf's `rts`.
    #[inline(always)]
    fn after_leaf(&self, own: &mut TicTocWorker, leaf: Leaf<M>) {
        if Self::leaves_have_rts() {
            // Relaxed: a tombstone that has left the leaf before the observed version has left its
            // time there before. The Acquire with which the version was loaded orders this.
            own.commit_ts = own.commit_ts.max(leaf.word().load(Ordering::Relaxed));
        }
    }

    fn prepare_placeholder(
        &self,
        _: &Context<M>,
        own: &mut TicTocWorker,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> u64 {
        // SeqCst: pairs with the fence of `validate`: the insert comes before the look at the
        // leaves' times.
        dekker_fence::<M, F>();
        // If the leaf was split, both halves have the time that it had. A transaction that has read
        // the right half since has found the placeholder there, or nothing where the placeholder
        // is. So the look at the right half is for clarity: to leave it out does no harm.
        let leaves = [change.leaf].into_iter().chain(Self::right_half(change));
        // Relaxed: ordered by the fence.
        let read_up_to = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        let begin = Self::unless_forgotten(read_up_to);
        for cell in at.cells(Groups::ALL).rev() {
            let is_first = cell.address() == at.record.first_cell().address();
            let queued = if is_first { QUEUED } else { 0 };
            // Release: an unlock; pairs with the Acquire of `ReadsAndLocks::observe` and `lock`.
            cell.word().store(begin << WTS_SHIFT | ABSENT | queued, Ordering::Release);
        }
        own.commit_ts = own.commit_ts.max(begin + 1);
        begin << WTS_SHIFT | ABSENT
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut TicTocWorker) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return self.validate(cx, reads, own.commit_ts);
        }
        // Step 1: lock the write set.
        M::step("lock");
        let max_rts = match self.options.wait {
            Wait::NoWaitTt => self.lock_or_begin_again(cx, reads)?,
            _ => self.lock_write_set(cx, reads)?,
        };
        // SeqCst: pairs with the same fence of other commits: the locks come before the loads of
        // validation, in one order for all. Of two transactions that each read what the other
        // writes, at least one therefore sees the other's lock, and aborts. And it pairs with the
        // fence of `ReadsAndLocks::observe`: the locks come before the stores to the rows.
        dekker_fence::<M, F>();
        // Step 2: compute the commit timestamp. The reads are in `own.commit_ts` already.
        let commit_ts = own.commit_ts.max(max_rts + 1);
        // Step 3: validate the read set.
        self.validate(cx, reads, commit_ts)?;
        // Write phase (Algorithm 3).
        if self.options.history {
            Self::keep_history(reads);
        }
        // A row that the transaction inserted and deleted again was absent at `commit_ts`: a
        // transaction that inserts it next commits later.
        for write in cx.writes.entries().iter().filter(|write| write.kind == WriteKind::Nothing) {
            for cell in write.cells() {
                // Relaxed, both: the cell is locked, and `install_all` unlocks it.
                cell.word().store(extended(cell.word().load(Ordering::Relaxed), commit_ts), Ordering::Relaxed);
            }
        }
        // wts = rts = commit_ts, so delta = 0.
        install_all(cx, Write::cells, commit_ts << WTS_SHIFT);
        Ok(())
    }

    fn read_up_to(&self, tombstone: Tombstone<'_, M>) -> u64 {
        // No transaction raises the `rts` of what is unlinked. Acquire: pairs with the AcqRel of
        // the last exchange that did (`extend_rts`).
        let rts_of = |cell: Cell<M>| rts(cell.word().load(Ordering::Acquire) & !UNLINKED);
        Self::unless_forgotten(tombstone.cells().map(rts_of).max().unwrap_or(0))
    }
}

faults! {
    /// TicToc's deliberate faults.
    pub trait TicTocFaults: OptimisticFaults {
        /// Intervals are checked, but not moved on.
        forget_extension,
        /// The commit timestamp may fall inside the interval in which another transaction read the
        /// version being overwritten.
        overwrite_read_intervals,
        /// Leaves are only checked for the same keys, as in Silo.
        forget_times_of_leaves,
        /// An insert that splits a leaf does not ask up to which time the right half was read.
        forget_times_of_splits,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults. Without one, each of these says what its name says.
impl<F: TicTocFaults> TicTocValidation<F> {
    #[inline(always)]
    fn leaves_have_rts() -> bool {
        !F::forget_times_of_leaves()
    }

    /// Returns the `rts` of a word that the commit overwrites.
    #[inline(always)]
    fn rts_to_commit_after(word: u64) -> u64 {
        if F::overwrite_read_intervals() { wts(word) } else { rts(word) }
    }

    /// Returns whether a read of what another is writing is valid: never, without a fault.
    #[inline(always)]
    fn ignores_locks() -> bool {
        F::ignore_locks_in_validation()
    }

    /// Returns the word with its `rts` raised to `commit_ts`.
    #[inline(always)]
    fn extension(word: u64, commit_ts: u64) -> u64 {
        if F::forget_extension() { word } else { extended(word, commit_ts) }
    }

    /// Returns the `rts` of a leaf, or one that it takes over.
    #[inline(always)]
    fn unless_forgotten(rts: u64) -> u64 {
        if F::forget_times_of_leaves() { 0 } else { rts }
    }

    /// Returns the new leaf of an insert that has split one.
    #[inline(always)]
    fn right_half<M: Machine>(change: &Change<M>) -> Option<Leaf<M>> {
        change.split.filter(|_| !F::forget_times_of_splits()).map(|(leaf, _)| leaf)
    }
}
