//! The versions that a worker has replaced, until their memory is reused.
//!
//! A version belongs to the worker that replaced it, and only that worker gives its memory back.
//! Other threads touch a copy in two ways:
//!
//! - A reader follows a link to it. It needs nothing but type-stable memory: it looks at the copy's
//!   end before and after it reads (`multiversion/chain.rs`).
//! - A thread with the intent of the copy's cell changes the copy's links or its end, and pins the
//!   copy meanwhile.
//!
//! So a worker takes a copy out of use by one exchange of its end, which fails while the copy is
//! pinned (`chain::retire`). The fence before the reuse (`chain::fence_before_reuse`) pairs with
//! the reader's second look: a reader that has seen a word of the memory's next use does not find
//! the old end again.

use std::collections::VecDeque;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, Context, Groups, OldVersion};
use contend_machine::Machine;

use super::super::chain;
use super::long::KnownLong;
use super::sweep::{AggressiveSweep, RetainedVersion};
use super::{Collect, CollectOptions, Orphans};

/// A worker has room for this number of waiting versions from the start: those of three intervals,
/// and some.
const WAITING_AT_FIRST: usize = 1024;

/// A version that was replaced.
#[derive(Debug)]
pub(super) struct RetiredVersion<M: Machine> {
    /// The `wts` of the version that replaced it.
    pub(super) end: u64,
    pub(super) version: OldVersion<M>,
    /// The lower half of the epoch in which it was replaced.
    epoch: u32,
    /// The groups of columns that were replaced.
    groups: Groups,
}

// Each write makes one: two to a line.
const _: () = assert!(size_of::<RetiredVersion<contend_machine::Native>>() == 32);

/// The versions that a worker has replaced and that wait for reuse, with the worker's other state
/// for its collector.
#[derive(Debug)]
pub struct RetiredVersions<M: Machine> {
    pub(super) worker: usize,
    pub(super) collect: Collect,
    may_have_gaps: bool,
    /// The begin watermark in the worker's slot; 0 if the worker is offline.
    pub(super) begin_watermark: u64,
    /// The time of its next snapshots, as in its slot.
    pub(super) snapshot_ts: u64,
    /// The number of transactions since the worker looked at the clock.
    pub(super) begun: u32,
    /// The number of times that the worker's transaction has missed a version, over its tries.
    pub(super) misses: u64,
    /// Whether its last transaction has aborted, and is tried again.
    is_retry: bool,
    /// The waiting versions, in the order in which they were replaced.
    pub(super) waiting: VecDeque<RetiredVersion<M>>,
    pub(super) sweep: AggressiveSweep<M>,
    /// Takes the waiting versions when the worker ends.
    orphans: Arc<Orphans<M>>,
}

impl<M: Machine> Drop for RetiredVersions<M> {
    fn drop(&mut self) {
        if !self.waiting.is_empty() {
            self.orphans.lock().push(std::mem::take(&mut self.waiting));
        }
    }
}

impl<M: Machine> RetiredVersions<M> {
    pub(super) fn new(worker: usize, options: &CollectOptions, orphans: Arc<Orphans<M>>) -> Self {
        RetiredVersions {
            worker,
            collect: options.collect,
            may_have_gaps: options.collect == Collect::Aggressive || options.overwrite,
            begin_watermark: 0,
            snapshot_ts: 0,
            begun: 0,
            misses: 0,
            is_retry: false,
            waiting: VecDeque::with_capacity(WAITING_AT_FIRST),
            sweep: AggressiveSweep::new(options.max),
            orphans,
        }
    }

    /// Links the copy of a cell's newest version, which a commit of time `ts` is about to replace,
    /// into one of the cell's chains. Returns whether that is the retained one. The caller holds
    /// the cell's intent. `sstamp` is for readers of the version.
    #[inline(always)]
    pub(in super::super) fn link(&self, copy: Cell<M>, cell: Cell<M>, ts: u64, sstamp: u64) -> bool {
        chain::record_first_version(cell);
        let known = &self.sweep.known;
        let retained = known.is_any() && known.retains(chain::begin_of(copy), ts);
        chain::push_copy(copy, cell, ts, sstamp, retained);
        if retained && known.may_need_older_than(chain::begin_of(copy)) {
            chain::prune_cell(cell, None, known.retention());
        }
        retained
    }

    /// Takes charge of a version. A commit of time `ts` in this epoch has replaced these groups of
    /// it. `retained` says whether a copy of a cell is in the retained chain.
    #[inline(always)]
    pub(in super::super) fn push(
        &mut self,
        cx: &mut Context<M>,
        version: OldVersion<M>,
        groups: Groups,
        ts: u64,
        epoch: u64,
        retained: bool,
    ) {
        if self.collect == Collect::Epoch {
            return cx.retire_version(version, epoch);
        }
        let retired = RetiredVersion { end: ts, version, epoch: epoch as u32, groups };
        if retained {
            self.sweep.retained.push(RetainedVersion { is_linked: true, ..retired.retained() });
        } else {
            self.waiting.push_back(retired);
        }
    }

    /// Returns whether a chain may lack versions between others: some that were not copied, or were
    /// reused early.
    pub(in super::super) fn may_have_gaps(&self) -> bool {
        self.may_have_gaps
    }

    /// Called when the worker's transaction aborts.
    pub(in super::super) fn aborted(&mut self, reason: AbortReason) {
        self.is_retry = reason.is_conflict();
        if reason == AbortReason::VersionCollected {
            self.misses += 1;
        }
    }

    /// Called when a transaction begins: forgets the misses of the last one, unless this is its
    /// next try.
    #[inline(always)]
    pub(super) fn forget_misses_after_commit(&mut self) {
        if self.misses > 0 && !std::mem::take(&mut self.is_retry) {
            self.misses = 0;
        }
    }

    /// Takes all versions, those that wait and those that are retained.
    pub(super) fn take_all(&mut self) -> VecDeque<RetiredVersion<M>> {
        let retained = self.sweep.retained.drain(..).map(|retained| retained.version);
        self.waiting.drain(..).chain(retained).collect()
    }
}

impl<M: Machine> RetiredVersion<M> {
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell<M>> {
        self.version.cells(self.groups)
    }

    pub(super) fn retained(self) -> RetainedVersion<M> {
        let begin = self.cells().map(chain::begin_of).min().unwrap_or(0);
        RetainedVersion { begin, is_linked: false, unneeded_visits: 0, version: self }
    }

    /// Links the copies of its cells that are needed into their retained chains. Returns `false` if
    /// another thread works on one of them.
    pub(super) fn retain_cells(&self, known: &KnownLong) -> bool {
        let needed =
            self.cells().filter(|copy| chain::is_linked(*copy) && known.retains(chain::begin_of(*copy), self.end));
        let retain = |copy| {
            let is_done = chain::retain(copy);
            if known.may_need_older_than(chain::begin_of(copy)) && chain::is_linked(copy) {
                chain::prune(copy, known.retention());
            }
            is_done
        };
        // `count`, so that all of them are tried whatever becomes of the first.
        needed.filter(|copy| !retain(*copy)).count() == 0
    }

    /// Returns whether its record can't have left the table, and become another one, since the
    /// version was replaced: a record that leaves waits two epochs before its memory is reused.
    pub(super) fn leads_to_its_record(&self, cx: &Context<M>) -> bool {
        (cx.began_in() as u32).wrapping_sub(self.epoch) as i32 <= 1
    }

    /// Returns whether all of its cells have been taken out of their chains.
    pub(super) fn is_out(&self) -> bool {
        self.cells().all(|copy| !chain::is_linked(copy))
    }

    /// Takes it out of use, if no other thread works on it. Returns whether it is out of use. The
    /// caller knows that no transaction needs it, and that none that is running is older than
    /// `reclaim`.
    pub(super) fn retire(&self, reclaim: u64) -> bool {
        let is_out = |copy| {
            // A retained copy that a slow reader may still look for has to be unlinked first.
            let may_be_passed = self.end > reclaim && chain::is_retained(copy);
            if may_be_passed { !chain::is_linked(copy) } else { chain::retire(copy) }
        };
        // `count`: as in `retain_cells`.
        self.cells().filter(|copy| !is_out(*copy)).count() == 0
    }

    /// Gives its memory back. `reclaim` says whether a plain watermark would have done the same by
    /// now.
    pub(super) fn reuse(self, cx: &mut Context<M>, reclaim: u64) {
        chain::fence_before_reuse::<M>();
        cx.versions.collected_early += u64::from(self.end > reclaim);
        cx.reuse_version(self.version);
    }
}
