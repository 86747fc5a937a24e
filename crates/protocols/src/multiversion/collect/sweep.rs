//! Aggressive collection: a worker's part.
//!
//! A worker looks after two lists of versions that it has replaced: those that *wait*, in the order
//! in which they were replaced, and those that are *retained*. A sweep has four steps.
//!
//! 1. Read the published list of long transactions ([`KnownLong::update`]).
//! 2. Link the waiting versions that a newly long transaction needs into the retained chains, and
//!    move them to the retained list (`retain_for_newly_long`).
//! 3. Reuse the waiting versions that were replaced by the settled watermark, without a look at
//!    their records. A copy that another thread has pinned goes to the retained list instead.
//! 4. Visit some of the retained versions, and reuse those that are not needed any more (`visit`).
//!
//! **Why step 3 reuses no version that is needed.** The settled watermark is the short watermark of
//! the list before. Each transaction that is not in that list is younger than this watermark, so it
//! reads the replacement or a later version. A version that a transaction of the list needs was
//! linked when it was replaced, or in step 2 when the transaction became known as a long one. If
//! the worker knew of it too late, the version is gone; then the reader notices by the copy's end,
//! and aborts.

use std::collections::VecDeque;

use contend_engine::{Context, trim_queue};
use contend_machine::Machine;

use super::super::chain;
use super::Orphans;
use super::long::{KnownLong, LongTransactions, lies_between};
use super::retired::{RetiredVersion, RetiredVersions};

/// The number of retained versions that a sweep visits, besides two for each that was added since
/// the last one.
const VISITS: usize = 64;
/// The number of visits for which an unneeded version stays.
const UNNEEDED_VISITS_MAX: u32 = 2;
/// Among this number of versions that are still needed, a sweep looks at one more closely.
const TOUCH_EVERY: usize = 16;

/// A version that a long transaction needs, or has needed.
#[derive(Debug)]
pub(super) struct RetainedVersion<M: Machine> {
    /// The `wts` of the version, or the smallest of its cells. The copy itself is far away, and not
    /// looked at each time.
    pub(super) begin: u64,
    /// Whether it is in the retained chain, as far as it has to be.
    pub(super) is_linked: bool,
    /// The number of visits that have found it unneeded.
    pub(super) unneeded_visits: u32,
    pub(super) version: RetiredVersion<M>,
}

/// A worker's part in aggressive collection.
#[derive(Debug)]
pub(super) struct AggressiveSweep<M: Machine> {
    pub(super) known: KnownLong,
    pub(super) retained: Vec<RetainedVersion<M>>,
    /// The number of them after the last sweep.
    retained_before: usize,
    /// The position at which the next sweep begins, and the number of times that sweeps have
    /// reached the end.
    cursor: usize,
    passes: usize,
}

impl<M: Machine> AggressiveSweep<M> {
    pub(super) fn new(max: usize) -> Self {
        AggressiveSweep { known: KnownLong::new(max), retained: Vec::new(), retained_before: 0, cursor: 0, passes: 0 }
    }

    /// Retains the waiting versions that are needed by a transaction which has just become known as
    /// a long one.
    #[cold]
    fn retain_for_newly_long(&mut self, cx: &Context<M>, waiting: &mut VecDeque<RetiredVersion<M>>) {
        let AggressiveSweep { known, retained, .. } = self;
        for _ in 0..waiting.len() {
            let Some(version) = waiting.pop_front() else { break };
            let is_newly_needed = |copy| lies_between(&known.newly_long, chain::begin_of(copy), version.end);
            if !version.cells().any(|copy| is_newly_needed(copy) && known.retains(chain::begin_of(copy), version.end)) {
                waiting.push_back(version);
                continue;
            }
            let is_linked = version.leads_to_its_record(cx) && version.retain_cells(known);
            retained.push(RetainedVersion { is_linked, ..version.retained() });
        }
    }

    /// Visits the retained version at the cursor: leaves it, links or unlinks it, or reuses it.
    fn visit(&mut self, cx: &mut Context<M>, reclaim: u64) {
        let AggressiveSweep { known, retained, cursor, passes, .. } = self;
        let visited = &mut retained[*cursor];
        let version = &visited.version;
        let is_old = version.end <= reclaim;
        let is_needed = !is_old && (version.end > known.settled_watermark || known.retains(visited.begin, version.end));
        if is_needed && visited.is_linked && (*cursor + *passes) % TOUCH_EVERY != 0 {
            // The copy is far away. Only from time to time the sweep looks whether another worker
            // has taken it out, as one too many.
            *cursor += 1;
            return;
        }
        if !is_needed && !is_old && visited.unneeded_visits < UNNEEDED_VISITS_MAX {
            // If the present transactions end soon as well, its record need not be touched.
            visited.unneeded_visits += 1;
            *cursor += 1;
            return;
        }
        let may_touch = !is_old && version.leads_to_its_record(cx);
        visited.is_linked = visited.is_linked || may_touch && is_needed && version.retain_cells(known);
        if !is_needed && may_touch {
            for copy in version.cells().filter(|copy| chain::is_retained(*copy)) {
                if chain::is_linked(copy) {
                    chain::prune(copy, known.retention());
                }
            }
        }
        if if is_needed { version.is_out() } else { version.retire(reclaim) } {
            retained.swap_remove(*cursor).version.reuse(cx, reclaim);
        } else {
            *cursor += 1;
        }
    }
}

impl<M: Machine> RetiredVersions<M> {
    /// Reuses the versions that are behind the reclaim watermark; and of the others those that are
    /// behind the short watermark and not needed by a long transaction.
    pub(super) fn sweep(
        &mut self,
        cx: &mut Context<M>,
        long: &LongTransactions<M>,
        orphans: &Orphans<M>,
        reclaim: u64,
    ) {
        let RetiredVersions { waiting, sweep, .. } = self;
        if !sweep.known.update(long, reclaim) {
            return;
        }
        if !sweep.known.newly_long.is_empty() {
            sweep.retain_for_newly_long(cx, waiting);
        }
        while waiting.front().is_some_and(|first| first.end <= sweep.known.settled_watermark) {
            let Some(first) = waiting.pop_front() else { break };
            if first.retire(reclaim) {
                first.reuse(cx, reclaim);
            } else {
                sweep.retained.push(first.retained());
            }
        }
        if sweep.retained.is_empty() {
            // A worker without retained versions takes over those of workers that have ended.
            let orphans = orphans.try_lock().map(|mut orphans| std::mem::take(&mut *orphans)).unwrap_or_default();
            sweep.retained.extend(orphans.into_iter().flatten().map(RetiredVersion::retained));
        }
        let added = sweep.retained.len().saturating_sub(sweep.retained_before);
        for _ in 0..(VISITS + 2 * added).min(sweep.retained.len()) {
            if sweep.cursor >= sweep.retained.len() {
                (sweep.cursor, sweep.passes) = (0, sweep.passes + 1);
            }
            sweep.visit(cx, reclaim);
        }
        sweep.retained_before = sweep.retained.len();
        trim_queue(waiting);
    }
}
