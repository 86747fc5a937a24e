//! ERMIA: snapshot isolation, made serializable by a *serial safety net* that looks at commits only.
//!
//! **Idea.** Under snapshot isolation every cycle of dependencies has a transaction that somebody must precede who committed before it, and
//! that must itself precede somebody who committed even earlier. So a transaction keeps two times: the latest commit that comes *before*
//! it in the order of dependencies (η, whose version it read or replaced, or who has read what it replaces), and the earliest commit that
//! comes *after* it, over those that have committed already (π, who has replaced what it read). When η ≥ π the two may be one cycle, and it
//! aborts: the *exclusion window*.
//!
//! **Papers.** K. Kim, T. Wang, R. Johnson, I. Pandis: "ERMIA: fast memory-optimized database system for heterogeneous workloads", SIGMOD 2016;
//! T. Wang, R. Johnson, A. Fekete, I. Pandis: "Efficiently making (almost) any concurrency control mechanism serializable", VLDB Journal 2017
//! (the serial safety net, and section 5, its latch-free form).
//!
//! **Promises** serializability; and a running transaction sees one state only, that of its begin.
//!
//! **Metadata.** Six words a cell: [`crate::versions`]. The time of the youngest read is that of the youngest *commit* that read the newest
//! version (the paper's pstamp); a copy has its successor's timestamp and π (its sstamp).
//!
//! **Commit.** As in `si`, a writer says in its claims that it is about to take its timestamp c; then it says there which. For each version that
//! it read it leaves c there first, and looks then who is replacing it:
//!
//! | who replaces it | what follows |
//! | --- | --- |
//! | nobody, or one that has no timestamp yet | that one will be the later, and will see that it was read |
//! | one committing with an earlier timestamp | wait for its outcome; if it commits, π is at most its π |
//! | one committing with a later timestamp | it may have looked already, and can't be waited for: abort |
//! | one that committed earlier | π is at most its π |
//! | one that committed later | it may have looked already: had it seen this transaction, would it have aborted? Then this one does |
//!
//! **Commit point.** The test η < π, the last thing that can fail.
//!
//! **Waits** are of readers for writers that have decided to commit, and of these for such as have earlier timestamps: no cycle.
//!
//! **Phantoms.** A commit leaves its time at the leaves that it depends on, and checks that they have the same keys still; who inserts comes after
//! what it finds there. A tombstone that leaves the index leaves its time, too.
//!
//! **Departures from the papers.** There is no table of transactions and no set of readers for each version: the claims tell of a writer
//! what that table would, and a reader that a writer may have missed makes the writer's test itself. So any number of workers can read a
//! row. A transaction that only reads takes the time of the last commit as its own, instead of a new one, unless `snapshot.counter` says
//! otherwise: `commits` is what CCBench's does.

use std::marker::PhantomData;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use crate::fault::{Faults, Sound};
use crate::flags::UNLINKED;
use crate::optimistic::WAITS_MAX;
use crate::versions::collect::CollectOptions;
use crate::versions::{self, Claims, CounterOptions, NOBODY, Seen, Snapshot, Snapshots, UNSTAMPED, Version};
use crate::versions::{claim_of, mark_read, older_at, read_time, stamp_of};

/// The protocol.
#[derive(Debug)]
pub struct Ermia<M: Machine, F = Sound> {
    snapshots: Snapshots<M>,
    /// The youngest commit whose tombstone has left an index.
    unlinked: CachePadded<M::U64>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct ErmiaLocal<M: Machine> {
    snapshot: Snapshot<M>,
    /// The cells of which it has read the newest version.
    seen: Vec<Seen<M>>,
    window: Window,
}

/// Where in the order of dependencies a transaction is.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The youngest commit that comes before it: η, the paper's pstamp.
    after: u64,
    /// The earliest commit that comes after it: π, the paper's sstamp.
    before: u64,
}

impl Window {
    const OPEN: Window = Window { after: 0, before: u64::MAX };

    #[inline(always)]
    fn comes_after(&mut self, commit: u64) {
        self.after = self.after.max(commit);
    }

    #[inline(always)]
    fn comes_before(&mut self, commit: u64) {
        self.before = self.before.min(commit);
    }

    /// # Errors
    /// It would have to come after one that comes after it.
    #[inline(always)]
    fn test(self) -> Result<(), Abort> {
        if self.after >= self.before { Err(Abort::new(AbortReason::ExclusionWindow)) } else { Ok(()) }
    }
}

/// The timestamp and π of who has replaced a version that was read, if somebody has, or is going to with an earlier timestamp than this.
///
/// # Errors
/// Somebody is about to, with a later timestamp; or one is waited for for too long; or the record has left the index, or the version its chain.
#[inline(always)]
fn replaced<M: Machine>((cell, word): Seen<M>, stamp: u64) -> Result<Option<(u64, u64)>, Abort> {
    let mut spin = Spin::<M>::new();
    loop {
        // SeqCst: after the mark; pairs with `Commits::stamp`, after which a writer looks at the marks.
        let claim = claim_of(cell).load(Ordering::SeqCst);
        if claim != NOBODY && claim < UNSTAMPED {
            if claim > stamp {
                return Err(Abort::new(AbortReason::ExclusionWindow));
            }
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(AbortReason::LockTimeout));
            }
            spin.wait();
            continue;
        }
        // SeqCst: after the mark, too; pairs with the store of `versions::unlink`, which looks at the marks after it. And Acquire: pairs with
        // the Release of `install_all`; the copies are at least as new as the word.
        let now = cell.word().load(Ordering::SeqCst);
        if now & UNLINKED != 0 {
            return Err(Abort::new(AbortReason::RecordGone));
        }
        if stamp_of(now) == stamp_of(word) {
            return Ok(None);
        }
        let copy = older_at(cell, stamp_of(word), false)?.expect("all that is replaced is copied");
        return Ok(Some((copy.end, copy.left)));
    }
}

impl<M: Machine, F: Faults> Ermia<M, F> {
    /// Finds who comes before and after a transaction that commits at this time, and leaves the time at what it read.
    #[inline(always)]
    fn close(cx: &Context<M>, local: &mut ErmiaLocal<M>, own: u64, stamp: u64) -> Result<(), Abort> {
        M::step("successors");
        for &(cell, word) in &local.seen {
            // Relaxed: nobody else's claim says this.
            if claim_of(cell).load(Ordering::Relaxed) == own {
                continue;
            }
            if !F::FORGET_READS {
                mark_read(cell, stamp);
            }
            match replaced((cell, word), stamp)? {
                _ if F::FORGET_SUCCESSORS => {}
                Some((commit, before)) if commit <= stamp => local.window.comes_before(before),
                // Its test, with this transaction before it.
                Some((_, before)) if stamp >= before => return Err(Abort::new(AbortReason::ExclusionWindow)),
                _ => {}
            }
        }
        let unused = |write: &&contend_engine::sets::Write<M>| write.kind == WriteKind::Nothing;
        for write in cx.writes.entries().iter().filter(unused) {
            // A placeholder that stays absent was read: whoever inserts it next comes later.
            write.cells().for_each(|cell| mark_read(cell, stamp));
        }
        for (leaf, version) in cx.nodes.observed() {
            versions::mark_leaf(leaf, version, stamp)?;
        }
        M::step("predecessors");
        for cell in local.snapshot.claims.cells() {
            if !F::OVERTAKE_READS {
                // SeqCst: after the timestamp; pairs with `mark_read`. Who has left a later time looks at this transaction itself; but it may
                // have covered an earlier one's.
                local.window.comes_after(read_time(cell).load(Ordering::SeqCst).min(stamp - 1));
            }
        }
        local.window.test()
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Ermia<M, F> {
    const INFO: Info = Info {
        name: "ermia",
        summary: "snapshot isolation with a serial safety net: who would close a cycle of dependencies aborts",
        paper: "Kim, Wang, Johnson, Pandis: ERMIA: fast memory-optimized database system for heterogeneous workloads, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    type Options = (CounterOptions, CollectOptions);

    fn new((counter, collect): Self::Options) -> Self {
        Ermia {
            snapshots: Snapshots::counting(collect, false, counter.counter),
            unlinked: CachePadded::new(M::U64::new(0)),
            faults: PhantomData,
        }
    }
}

impl<M: Machine, F: Faults> Control<M> for Ermia<M, F> {
    type Local = ErmiaLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        versions::WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.snapshots.prepare(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        ErmiaLocal { snapshot: self.snapshots.of_worker(worker), seen: Vec::with_capacity(64), window: Window::OPEN }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        versions::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.seen.clear();
        local.window = Window::OPEN;
        self.snapshots.begin(cx, &mut local.snapshot);
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
        let ErmiaLocal { snapshot, seen, window } = local;
        let found = snapshot.read::<F>(cx, at, columns, |version| match version {
            Version::Newest((_, word)) if word & UNLINKED != 0 => {}
            Version::Newest((cell, word)) => {
                if !F::FORGET_CREATORS {
                    window.comes_after(stamp_of(word));
                }
                seen.push((cell, word));
            }
            Version::Older(_, copy) => {
                if !F::FORGET_CREATORS {
                    window.comes_after(stamp_of(copy.word));
                }
                if !F::FORGET_SUCCESSORS {
                    window.comes_before(copy.left);
                }
            }
        })?;
        window.test().map(|()| found)
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
        let ErmiaLocal { snapshot, seen, window } = local;
        let Snapshot { begin, claim: own, ref mut claims, .. } = *snapshot;
        let claim = |claims: &mut Claims<M>, cell| {
            let word = claims.claim_since(cell, own, begin)?;
            window.comes_after(stamp_of(word));
            Ok(word)
        };
        let found = claims.write(cx, at, groups, mode, claim, |missed| seen.push(missed))?;
        window.test().map(|()| found)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        let claim = local.snapshot.claim;
        let missed = local.snapshot.claims.adopt_at(at, change, claim);
        if !F::FORGET_GAPS {
            local.window.comes_after(missed);
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        // Relaxed: what is not in the leaf any more was taken out after the time was left; pairs with the leaf's version.
        local.window.comes_after(self.unlinked.load(Ordering::Relaxed));
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            if let Some(stamp) = self.snapshots.commits.stamp_reader() {
                local.window.comes_before(stamp);
                return Self::close(cx, local, local.snapshot.claim, stamp);
            }
            let stamp = self.snapshots.commits.last();
            // After the commit of that time, and before the next.
            local.window.comes_before(stamp + 1);
            return Self::close(cx, local, local.snapshot.claim, stamp);
        }
        let stamp = self.snapshots.commits.stamp(&local.snapshot.claims);
        local.window.comes_before(stamp);
        Self::close(cx, local, stamp, stamp)?;
        let claims = &mut local.snapshot.claims;
        claims.copy(cx, &self.snapshots.collector, true, u64::MAX)?;
        claims.install_all(cx, stamp, local.window.before);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.snapshot.claims.abort(reason);
    }

    fn rest(&self, cx: &mut Context<M>, local: &mut Self::Local) {
        self.snapshots.rest(cx, &mut local.snapshot);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        let deleted = tombstone.cells().next().map_or(0, |cell| stamp_of(cell.word().load(Ordering::Relaxed)));
        // Relaxed: the leaf's version publishes it; see `gap`. Should the tombstone stay, it costs a little precision.
        self.unlinked.fetch_max(deleted, Ordering::Relaxed);
        versions::unlink::<M, F>(tombstone, u64::MAX)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::optimistic::is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.snapshots.older_versions(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CoroBase's window was wrong where a stamp was its sentinel, and where a second overwriter came (commits 21ad31c2, 7c1279f).
    #[test]
    fn the_window_closes_where_one_that_comes_before_is_not_earlier_than_one_that_comes_after() {
        let window = |after: &[u64], before: &[u64]| {
            let mut window = Window::OPEN;
            after.iter().for_each(|commit| window.comes_after(*commit));
            before.iter().for_each(|commit| window.comes_before(*commit));
            window.test().is_ok()
        };
        assert!(window(&[], &[]));
        // Loaded rows are of time 0.
        assert!(window(&[0], &[]) && window(&[0], &[1]) && !window(&[0], &[0]));
        assert!(window(&[4], &[5]) && !window(&[5], &[5]) && !window(&[6], &[5]));
        // Of two overwriters the earlier decides, of two predecessors the later, in whatever order they are found.
        for before in [[5, 9], [9, 5]] {
            assert!(window(&[4], &before) && !window(&[7], &before));
        }
        for after in [[2, 7], [7, 2]] {
            assert!(window(&after, &[8]) && !window(&after, &[5]));
        }
        assert!(window(&[u64::MAX - 1], &[u64::MAX]));
    }
}
