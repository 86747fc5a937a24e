//! ERMIA: snapshot isolation, made serializable by a *serial safety net* that looks at commits
//! only.
//!
//! **Idea.** Under snapshot isolation every cycle of dependencies has a transaction T with two
//! properties: a transaction that committed before T must come after T, and a transaction that
//! committed before T must come before T and committed no earlier than the other. So a transaction
//! keeps two stamps. η is the latest commit that comes *before* it in the order of dependencies:
//! the writer of a version that it read or replaced, or a reader of a version that it replaces. π
//! is the earliest commit that comes *after* it, among those that have committed already: it
//! replaced a version that this transaction read. If η ≥ π, the two may be on one cycle, and the
//! transaction aborts: the *exclusion window*.
//!
//! | term of the papers | here |
//! | --- | --- |
//! | `t.cstamp` | `commit_ts` |
//! | `t.pstamp`, η(T) | `Window::pstamp` |
//! | `t.sstamp`, π(T) | `Window::sstamp` |
//! | `v.cstamp` | the version's `wts` |
//! | `v.pstamp` | the cell's `rts`: the latest commit that read the newest version |
//! | `v.sstamp` | the `sstamp` of a copy; `None` in the record, whose version nobody has replaced |
//!
//! | step of the papers | function |
//! | --- | --- |
//! | `ssn_read` | `read` |
//! | `ssn_write` | `write` |
//! | `ssn_commit`: draw the cstamp | `commit`: `CommitCounter::take_commit_ts` |
//! | finalize π(T) over the read set | `finalize`, successors; `overwriter_of` |
//! | finalize η(T) over the write set | `finalize`, predecessors |
//! | exclusion test | `Window::check_exclusion` |
//! | post-commit: stamps of versions | `commit`: `WriteIntents::install_all`; the `rts` are raised in `finalize` |
//!
//! **Papers.** K. Kim, T. Wang, R. Johnson, I. Pandis: "ERMIA: fast memory-optimized database
//! system for heterogeneous workloads", SIGMOD 2016; T. Wang, R. Johnson, A. Fekete, I. Pandis:
//! "Efficiently making (almost) any concurrency control mechanism serializable", VLDB Journal 2017
//! (the serial safety net, and section 5, its latch-free form).
//!
//! **Promises** serializability. A running transaction sees one state only, that of its begin.
//!
//! **Metadata.** Six words for each cell: [`crate::multiversion`], with the meanings of the table
//! above.
//!
//! **Commit.** As in `si`, a writer changes its write intents to "about to draw a timestamp", draws
//! its timestamp c, and changes the intents to c. For each version that it read it first raises the
//! `rts` to c, and then looks at the version's overwriter:
//!
//! | overwriter | consequence |
//! | --- | --- |
//! | none, or one without a timestamp | it will commit later, and will see the `rts` |
//! | is committing with an earlier timestamp | wait for its outcome; if it commits, π is at most its π |
//! | is committing with a later timestamp | it may have looked at the `rts` already, and can't be waited for: abort |
//! | committed earlier | π is at most its π |
//! | committed later | it may have looked at the `rts` already; abort if it would have aborted had it seen this transaction |
//!
//! **Commit point.** The test η < π. After it only the memory for copies can be missing.
//!
//! **Waits.** A reader waits for a writer that has decided to commit, and such a writer for one
//! with an earlier timestamp. So waits form no cycle.
//!
//! **Phantoms.** A commit raises the `rts` of the leaves that it depends on, and checks that they
//! still have the same keys. An insert comes after every `rts` that it finds there. A tombstone
//! that leaves the index leaves its timestamp, too.
//!
//! **Departures from the papers.** There is no table of transactions, and no set of readers in each
//! version. A write intent tells the state of a writer, which that table would tell. A reader that
//! a writer may have missed makes the writer's test itself. So one of two transactions that commit
//! at the same time sees the other. Any number of workers can read a row, at the price of one
//! shared store for each read. A transaction that only reads takes the timestamp of the latest
//! commit, instead of a new one, unless `snapshot.counter` says otherwise: `commits` is what
//! CCBench's does.

use std::marker::PhantomData;

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, Projection, ProtocolInfo,
    RecordState, Tombstone, WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use crate::fault::Sound;
use crate::faults;
use crate::flags::UNLINKED;
use crate::method::wait::WAITS_MAX;
use crate::multiversion::collect::{CollectOptions, Collector, RetiredVersions};
use crate::multiversion::{
    CounterOptions, INTENT_WITHOUT_TIMESTAMP, MultiVersion, NO_INTENT, ReadEntry, ReadVersion, SnapshotFaults,
    SnapshotState, SnapshotTxn, VersionRules, WriteIntents, intent_of, raise_leaf_rts, raise_rts, rts_under_intent,
    version_at, wts_of,
};

options! {
    /// Options of ERMIA.
    pub struct ErmiaOptions {
        flatten counter: CounterOptions;
        flatten collect: CollectOptions;
    }
}

/// ERMIA with the serial safety net.
pub type Ermia<M, F = Sound> = MultiVersion<ErmiaRules<M, F>>;

/// ERMIA's rules.
#[derive(Debug)]
pub struct ErmiaRules<M: Machine, F = Sound> {
    shared: SnapshotState<M>,
    /// The latest commit whose tombstone has left an index. It changes only when tombstones leave,
    /// and is loaded at each miss, so it has a line of its own.
    unlinked: CachePadded<M::U64>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct ErmiaWorker<M: Machine> {
    txn: SnapshotTxn<M>,
    /// The cells whose newest version it has read. Old versions are not among them: their
    /// overwriter has committed, and its π, which is final, was taken over at the read.
    read_set: Vec<ReadEntry<M>>,
    window: Window,
}

/// The exclusion window: the place of a transaction in the order of dependencies.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// η: the latest commit that comes before it.
    pstamp: u64,
    /// π: the earliest commit that comes after it.
    sstamp: u64,
}

impl Window {
    const OPEN: Window = Window { pstamp: 0, sstamp: u64::MAX };

    /// The transaction comes after this commit.
    #[inline(always)]
    fn raise_pstamp(&mut self, commit_ts: u64) {
        self.pstamp = self.pstamp.max(commit_ts);
    }

    /// The transaction comes before this commit.
    #[inline(always)]
    fn lower_sstamp(&mut self, commit_ts: u64) {
        self.sstamp = self.sstamp.min(commit_ts);
    }

    /// # Errors
    /// A predecessor is not earlier than a successor.
    #[inline(always)]
    fn check_exclusion(self) -> Result<(), Abort> {
        if self.pstamp >= self.sstamp { Err(Abort::new(AbortReason::ExclusionWindow)) } else { Ok(()) }
    }
}

/// Returns the timestamp and the π of the overwriter of a version that was read: the transaction
/// that has replaced it, or is going to replace it with a timestamp up to `commit_ts`. `None` if
/// there is none.
///
/// The intent is loaded before the word. If the word came first, U could install between the two
/// loads: the word would be the old one, the intent would be gone, and T would not know of U.
///
/// The π that it returns is final. A writer stores it in the copy when it installs, after its
/// exclusion test, and the new word publishes the copy.
///
/// # Errors
/// A transaction is about to replace it with a later timestamp, a wait took too long, the record
/// has left the index, or the version its chain.
#[inline(always)]
fn overwriter_of<M: Machine>((cell, word): ReadEntry<M>, commit_ts: u64) -> Result<Option<(u64, u64)>, Abort> {
    let mut spin = Spin::<M>::new();
    loop {
        // SeqCst: after the rts is raised; pairs with the fence of `commit`, which a writer passes
        // between its stores of `CommitCounter::take_commit_ts` and its look at the rts. If the
        // writer misses this rts, this load sees the writer's intent.
        let intent = intent_of(cell).load(Ordering::SeqCst);
        if intent != NO_INTENT && intent < INTENT_WITHOUT_TIMESTAMP {
            if intent > commit_ts {
                return Err(Abort::new(AbortReason::ExclusionWindow));
            }
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(AbortReason::LockTimeout));
            }
            spin.wait();
            continue;
        }
        // SeqCst: after the rts is raised, too; pairs with the store of `multiversion::unlink`,
        // which looks at the rts after it. And Acquire: pairs with the Release of `install_all`;
        // the copies are at least as new as the word.
        let now = cell.word().load(Ordering::SeqCst);
        if now & UNLINKED != 0 {
            return Err(Abort::new(AbortReason::RecordGone));
        }
        if wts_of(now) == wts_of(word) {
            return Ok(None);
        }
        let copy = version_at(cell, wts_of(word), false)?.expect("every replaced version is copied");
        return Ok(Some((copy.end, copy.sstamp)));
    }
}

impl<M: Machine, F: ErmiaFaults> ErmiaRules<M, F> {
    /// Finds the predecessors and successors of a transaction that commits at `commit_ts`, raises
    /// the `rts` of the versions that it read, and makes the exclusion test. `own_intent` is the
    /// value of its write intents.
    #[inline(always)]
    fn finalize(cx: &Context<M>, local: &mut ErmiaWorker<M>, own_intent: u64, commit_ts: u64) -> Result<(), Abort> {
        M::step("successors");
        for &(cell, word) in &local.read_set {
            // Relaxed: no other transaction's intent has this value. The worker's own stores are
            // seen in order, so no former intent of its own is taken for this one.
            if intent_of(cell).load(Ordering::Relaxed) == own_intent {
                continue;
            }
            // First the rts, then the look at the overwriter, both SeqCst. U announces its intent,
            // passes a SeqCst fence, and then loads the rts (`predecessors` below). So T finds U,
            // or U finds T's rts. Swapped, both could miss the other: T would look first, and U
            // would load before the rts is there.
            raise_rts::<M, F>(cell, commit_ts);
            let overwriter = overwriter_of((cell, word), commit_ts).map_err(|abort| cx.conflict_at(cell, abort))?;
            match Self::known_overwriter(overwriter) {
                Some((overwriter, sstamp)) if overwriter <= commit_ts => local.window.lower_sstamp(sstamp),
                // The overwriter's own test, with this transaction as its predecessor.
                Some((_, sstamp)) if commit_ts >= sstamp => {
                    return Err(cx.conflict_at(cell, Abort::new(AbortReason::ExclusionWindow)));
                }
                _ => {}
            }
        }
        let unused = |write: &&Write<M>| write.kind == WriteKind::Nothing;
        for write in cx.writes.entries().iter().filter(unused) {
            // A placeholder that stays absent was read: the next insert of its key comes later.
            write.cells().for_each(|cell| raise_rts::<M, F>(cell, commit_ts));
        }
        for (leaf, version) in cx.nodes.observed() {
            raise_leaf_rts(leaf, version, commit_ts).map_err(|abort| cx.conflict_in(leaf, abort))?;
        }
        M::step("predecessors");
        for cell in local.txn.intents.cells() {
            // The load comes after the timestamp is drawn. A reader with a later timestamp looks at
            // this transaction itself. But its rts may have covered that of an earlier reader, so a
            // later rts counts as one just before `commit_ts`.
            local.window.raise_pstamp(rts_under_intent::<M, F>(cell).min(commit_ts - 1));
        }
        local.window.check_exclusion()
    }
}

impl<M: Machine, F: ErmiaFaults> VersionRules<M> for ErmiaRules<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "ermia",
        summary: "snapshot isolation with a serial safety net: a transaction that would close a cycle of dependencies aborts",
        paper: "Kim, Wang, Johnson, Pandis: ERMIA: fast memory-optimized database system for heterogeneous workloads, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = ErmiaOptions;
    type WorkerState = ErmiaWorker<M>;

    fn new(ErmiaOptions { counter, collect }: ErmiaOptions) -> Self {
        ErmiaRules {
            shared: SnapshotState::new(collect, counter.counter),
            unlinked: CachePadded::new(M::U64::new(0)),
            faults: PhantomData,
        }
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        ErmiaWorker { txn: self.shared.of_worker(worker), read_set: Vec::with_capacity(64), window: Window::OPEN }
    }

    fn collector(&self) -> &Collector<M> {
        &self.shared.collector
    }

    fn collector_mut(&mut self) -> &mut Collector<M> {
        &mut self.shared.collector
    }

    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M> {
        &mut local.txn.intents.retired
    }

    fn before_unlink(&self, tombstone: Tombstone<'_, M>) {
        // The word may be older than the one that `super::unlink` judges, but not if it lets the
        // tombstone go. Then the epoch of the deletion was over when `tombstone` was made, so the
        // deletion happened before.
        // Relaxed, both: the leaf's version publishes the timestamp; pairs with `observe_leaf`.
        // Should the tombstone stay, this costs a few needless aborts.
        let deleted_at = tombstone.cells().next().map_or(0, |cell| wts_of(cell.word().load(Ordering::Relaxed)));
        self.unlinked.fetch_max(deleted_at, Ordering::Relaxed);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.read_set.clear();
        local.window = Window::OPEN;
        self.shared.begin(cx, &mut local.txn);
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
        let ErmiaWorker { txn, read_set, window } = local;
        let found = txn.read::<F>(cx, at, columns, |version| match version {
            ReadVersion::Newest((_, word)) if word & UNLINKED != 0 => {}
            ReadVersion::Newest((cell, word)) => {
                Self::comes_after_creator(window, word);
                read_set.push((cell, word));
            }
            // Not here: the commit copies absent versions as well.
            ReadVersion::None => {}
            ReadVersion::Old(_, copy) => {
                Self::comes_after_creator(window, copy.word);
                if let Some((_, sstamp)) = Self::known_overwriter(Some((copy.end, copy.sstamp))) {
                    window.lower_sstamp(sstamp);
                }
            }
        })?;
        window.check_exclusion().map(|()| found)
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
        let ErmiaWorker { txn, read_set, window } = local;
        let SnapshotTxn { begin_ts, intent, ref mut intents, .. } = *txn;
        let place = |intents: &mut WriteIntents<M>, cell| {
            let word = intents.place_unless_overwritten(cell, intent, begin_ts)?;
            window.raise_pstamp(wts_of(word));
            Ok(word)
        };
        let found = intents.write(cx, at, groups, mode, place, |missed| read_set.push(missed))?;
        window.check_exclusion().map(|()| found)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        let intent = local.txn.intent;
        let missed_at = local.txn.intents.adopt_placeholder(at, change, intent);
        local.window.raise_pstamp(missed_at);
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        cx.nodes.add(leaf, version);
        // Relaxed: pairs with `before_unlink` through the leaf's version. A tombstone that is not
        // in the leaf any more left its timestamp before.
        local.window.raise_pstamp(self.unlinked.load(Ordering::Relaxed));
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            if let Some(commit_ts) = self.shared.counter.take_reader_ts() {
                local.window.lower_sstamp(commit_ts);
                return Self::finalize(cx, local, local.txn.intent, commit_ts);
            }
            // Acquire, in `latest`: before the looks at the intents. Each writer with a timestamp
            // up to this one has announced it, and is waited for.
            let commit_ts = self.shared.counter.latest();
            // Its place is after the commit of that time, and before the next one.
            local.window.lower_sstamp(commit_ts + 1);
            return Self::finalize(cx, local, local.txn.intent, commit_ts);
        }
        let commit_ts = self.shared.counter.take_commit_ts(&local.txn.intents);
        // SeqCst: after the intents have changed, before the loads of the `rts` (`finalize`). Pairs
        // with the SeqCst of a reader, which raises an `rts` and then looks at the intent.
        M::fence(Ordering::SeqCst);
        local.window.lower_sstamp(commit_ts);
        Self::finalize(cx, local, commit_ts, commit_ts)?;
        // Whatever the outcome, the `rts` that were raised stay. After an abort they cost later
        // writers a larger η than needed, and break nothing.
        let intents = &mut local.txn.intents;
        intents.copy(cx, &self.shared.collector, true, u64::MAX)?;
        intents.install_all(cx, commit_ts, local.window.sstamp);
        Ok(())
    }

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason) {
        local.txn.intents.abort(reason);
    }
}

faults! {
    /// ERMIA's deliberate faults.
    pub trait ErmiaFaults: SnapshotFaults {
        /// A transaction ignores the successor stamp (π) of a transaction that overwrote a version
        /// that it read.
        forget_successors,
        /// A transaction does not have to come after the writers of the versions that it has read.
        forget_creators,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: ErmiaFaults> ErmiaRules<M, F> {
    /// Returns the overwriter, and its π.
    #[inline(always)]
    fn known_overwriter(overwriter: Option<(u64, u64)>) -> Option<(u64, u64)> {
        if F::forget_successors() { None } else { overwriter }
    }

    /// The transaction comes after the writer of the version with this word, which it has read.
    #[inline(always)]
    fn comes_after_creator(window: &mut Window, word: u64) {
        if !F::forget_creators() {
            window.raise_pstamp(wts_of(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CoroBase's window was wrong when a stamp was its sentinel, and when a second overwriter came
    /// (commits 21ad31c2, 7c1279f).
    #[test]
    fn the_window_closes_when_a_predecessor_is_not_earlier_than_a_successor() {
        let window = |predecessors: &[u64], successors: &[u64]| {
            let mut window = Window::OPEN;
            predecessors.iter().for_each(|commit| window.raise_pstamp(*commit));
            successors.iter().for_each(|commit| window.lower_sstamp(*commit));
            window.check_exclusion().is_ok()
        };
        assert!(window(&[], &[]));
        // Loaded rows have the timestamp 0.
        assert!(window(&[0], &[]) && window(&[0], &[1]) && !window(&[0], &[0]));
        assert!(window(&[4], &[5]) && !window(&[5], &[5]) && !window(&[6], &[5]));
        // The earlier one of two overwriters decides, and the later one of two predecessors, in
        // whatever order they are found.
        for successors in [[5, 9], [9, 5]] {
            assert!(window(&[4], &successors) && !window(&[7], &successors));
        }
        for predecessors in [[2, 7], [7, 2]] {
            assert!(window(&predecessors, &[8]) && !window(&predecessors, &[5]));
        }
        assert!(window(&[u64::MAX - 1], &[u64::MAX]));
    }
}
