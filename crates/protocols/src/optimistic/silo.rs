//! Silo: optimistic concurrency control with epochs and invisible reads.
//!
//! **Idea.** A transaction reads without writing to shared memory and buffers what it writes. At
//! commit it locks its write set, checks that nothing it read has changed, and installs its writes
//! under a transaction identifier (TID). It computes the TID from those that it read and
//! overwrites, so no counter is shared by all. The TID's upper part is the global epoch, and
//! commits of different epochs are ordered by it.
//!
//! **Paper.** S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: "Speedy transactions in multicore
//! in-memory databases", SOSP 2013.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | 4.2 the TID word | the table below, `optimistic/tid.rs` |
//! | 4.2 the three rules of a new TID | `SiloValidation::commit_tid` |
//! | 4.5 read a record | `ReadsAndLocks::observe`, steps (a) to (e) below |
//! | 4.6 a scan or a miss: the leaf's version joins the node set | `Validating::observe_leaf` |
//! | write: only the write set changes | the engine: `Transaction::write_row` and its siblings |
//! | 4.5 insert: an absent record enters the index | the engine, then `ReadsAndLocks::observe_placeholder` |
//! | 4.6 the own insert changes a leaf of the node set | `NodeSet::follow` takes the new version over |
//! | 4.5 delete: the commit makes the record absent | `install_all`; later `optimistic::unlink_unlocked` |
//! | 4.4 phase 1: lock the write set, in order | `ReadsAndLocks::lock_writes` |
//! | 4.4 serialization point: fence, epoch | `commit`, between the phases |
//! | 4.4 phase 2: validate the read set and the node set | `ReadsAndLocks::validate` |
//! | 4.4 phase 3: compute the TID, install, unlock | `commit_tid`, `tid::install_as_tid` (calls `install_all`) |
//! | abort: unlock; the engine gives up placeholders | `Validating::abort` |
//! | 4.9 snapshot transactions | `silo/snapshot.rs` |
//!
//! The engine runs the transaction and keeps its write set (`cx.writes`) and node set (`cx.nodes`).
//! [`Validating`] is the protocol that all optimistic protocols share; it keeps the reads and the
//! locks ([`ReadsAndLocks`]), and calls the methods of [`SiloValidation`], which are what is Silo's
//! own. `M` is the machine: this one, a simulated chip, or an explorer of interleavings, which
//! shows the names of `M::step`. `F` turns on deliberate bugs, with which tests prove that they
//! find such bugs: they stand at the end of this file, and every method with "fault" in its name is
//! about them.
//!
//! **A read** takes five steps: (a) load the word; (b) if it is locked, begin again; (c) copy the
//! row; (d) fence; (e) load the word again, and begin again if it has changed. A writer locks,
//! passes a fence, stores to the row, and unlocks with a new TID. So a copy that has any of a
//! writer's stores is followed by a load in (e) that sees the lock or the new TID. The row and the
//! word then join the read set.
//!
//! **Promises** serializability. Each row that a running transaction sees is of one version, but
//! two rows may be of different states, before the transaction aborts (no opacity).
//!
//! **Metadata.** One word for each cell; a second one, which leads to older versions, with
//! snapshots. A cell is a record, or, with timestamp splitting, a group of its columns.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..32 | TID: the epoch of the commit that wrote the version |
//! | 31..4 | TID: a sequence number in the epoch |
//! | 3 | queued: a worker will take the record out of the index if it stays absent |
//! | 2 | unlinked: the record has left the index; a reader looks the key up again |
//! | 1 | absent: the record has no row |
//! | 0 | locked by a commit |
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation,
//! of a commit that then succeeds. A transaction without writes has its point at the begin of its
//! validation: it needs neither locks nor a fence, because no other one validates against it, and
//! it has no TID.
//!
//! **Waits.** A reader waits while the cell is locked. With `silo.wait=wait` a committing writer
//! waits for locks, taken in the order of addresses, so no cycle of waits can form; with `spin` it
//! waits for a moment, in any order; with `nowait` it aborts. A wait that reaches its bound ends in
//! an abort.
//!
//! **Commit-time updates** lock their cells like all writes. When the transaction is valid, they
//! are applied to a copy of the row that stands there, and the result is installed like any other
//! row. They have read nothing; only the lock asks that there is a row.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated like reads. An insert
//! puts an absent, *unlocked* placeholder into the index at once: a transaction that meets it
//! observes an absent record. (If a placeholder stayed locked until the commit, two crossing
//! inserts and scans would wait for each other.)
//!
//! **Snapshots** (`silo.snapshots=on`) are for transactions that say beforehand that they will only
//! read. One that begins in epoch `e` sees the state at the end of epoch `e - 2`: no transaction
//! can commit in that epoch any more. It has no read set and no node set, so it never aborts.
//!
//! **Departures from the paper.** A snapshot is at the end of every epoch, not of every 25th
//! (`silo.snapshot_epochs`). The status bits are other ones: an old version is a copy that the
//! second word leads to, so no bit says which version is the latest. (The authors' released code
//! keeps a worker's number in the TID; the paper and this code do not, because a TID need only be
//! unique among the versions of one record.) Tombstones are reused by an insert of the same key.
//!
//! **Defaults.** `silo.wait=spin` is the bounded try-lock of STO, the authors' later system. If a
//! hot record has only commit-time updates, a short spin gets its lock without an abort, and
//! nothing has to be sorted. The paper has `wait`; the benchmark CCBench has `nowait`.

mod snapshot;

use std::marker::PhantomData;

use contend_engine::sets::Write;
use contend_engine::{
    Abort, Cell, Cells, Context, DeclarationNeeds, Groups, Isolation, Located, Projection, ProtocolInfo, RecordState,
    Tombstone, options,
};
use contend_machine::Machine;

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::method::ReadPhaseOptions;
use crate::method::wait::Wait;
use crate::optimistic::{OptimisticFaults, Read, ReadsAndLocks, Validating, Validation, tid};
use crate::snapshot::Snapshots;
use snapshot::Kept;

options! {
    /// Silo's options.
    pub struct SiloOptions {
        /// What a committing writer does about a lock that another holds: wait in address order,
        /// spin for a moment, or abort.
        "silo.wait" wait: Wait = Wait::Spin, in Wait::SIMPLE;
        /// Keep old versions for transactions that say beforehand that they will only read: these
        /// never abort.
        "silo.snapshots" snapshots: bool = false, in ();
        /// The number of epochs from one snapshot to the next.
        "silo.snapshot_epochs" snapshot_epochs: u32 = 1, in 1..=1000;
        flatten read_phase: ReadPhaseOptions;
    }
}

/// The protocol.
pub type Silo<F = Sound> = Validating<SiloValidation<F>>;

/// How Silo validates.
#[derive(Debug)]
pub struct SiloValidation<F> {
    options: SiloOptions,
    faults: PhantomData<fn() -> F>,
}

/// Silo's part of a worker's state.
#[derive(Debug)]
pub struct SiloWorker<M: Machine> {
    /// The largest TID that the commit will overwrite.
    largest_overwritten: u64,
    /// The TID of the worker's last commit.
    last_tid: u64,
    /// The epoch whose end the transaction sees, if it sees a snapshot.
    snapshot: Option<u64>,
    /// The copies that the commit makes for snapshots. Kept for its memory.
    copies: Vec<Kept<M>>,
}

impl<F: SiloFaults> SiloValidation<F> {
    /// Phase 2: checks that everything read is as it was.
    #[inline(always)]
    fn validate<M: Machine>(cx: &Context<M>, reads: &mut ReadsAndLocks<M>) -> Result<(), Abort> {
        reads.validate::<F>(cx, 0, Self::fault_skips)
    }

    /// Computes the commit's TID: the smallest in `epoch` that is
    ///
    /// - (a) larger than the TID of each version that the transaction has read,
    /// - (b) larger than the TID of each version that it overwrites, and
    /// - (c) larger than the worker's last TID.
    ///
    /// By (b) a record's TIDs grow from version to version: one TID never means two versions, so
    /// validation may compare TIDs. By (a) a TID is larger than those of the commits that it has
    /// read from. By (c) one worker's TIDs grow. TIDs do not show which transaction has read what
    /// another then overwrote; that is why only epochs order commits.
    ///
    /// `epoch` is not older than that of any of these TIDs, because it was loaded after them.
    ///
    /// # Errors
    /// The epoch has no sequence number left ([`tid::next_tid`]).
    #[inline(always)]
    fn commit_tid<M: Machine>(reads: &ReadsAndLocks<M>, own: &SiloWorker<M>, epoch: u64) -> Result<u64, Abort> {
        let tid_a = Self::unless_fault_forgets(reads.newest_read());
        let tid_b = Self::unless_fault_forgets(own.largest_overwritten);
        let tid_c = own.last_tid;
        tid::next_tid(tid_a.max(tid_b).max(tid_c), epoch)
    }

    /// Returns when snapshots are, if there are any.
    #[inline(always)]
    fn snapshots(&self) -> Option<Snapshots> {
        self.options.snapshots.then(|| Snapshots::every(self.options.snapshot_epochs))
    }
}

impl<M: Machine, F: SiloFaults> Validation<M> for SiloValidation<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "silo",
        summary: "optimistic: invisible reads, validation at commit, epochs instead of a shared counter",
        paper: "Tu, Zheng, Kohler, Liskov, Madden: Speedy transactions in multicore in-memory databases, SOSP 2013",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("silo.snapshots=on");
    const PROVIDES_WRITE_COUNTERS: bool = true;
    type Options = SiloOptions;
    type Faults = F;
    type WorkerState = SiloWorker<M>;

    fn options_with_snapshots() -> SiloOptions {
        SiloOptions { snapshots: true, ..SiloOptions::default() }
    }

    fn new(options: SiloOptions) -> Self {
        SiloValidation { options, faults: PhantomData }
    }

    #[inline(always)]
    fn marks_writes() -> bool {
        Self::marks_read_cell()
    }

    #[inline(always)]
    fn read_phase(&self) -> &ReadPhaseOptions {
        &self.options.read_phase
    }

    fn meta_words(&self) -> usize {
        if self.options.snapshots { 2 } else { 1 }
    }

    fn reads_snapshots(&self) -> bool {
        self.options.snapshots
    }

    fn sees_own_commits(&self, own: &SiloWorker<M>) -> bool {
        own.snapshot.is_some_and(|snapshot| tid::epoch_of(own.last_tid) <= snapshot)
    }

    fn new_worker_state(&self, _: usize) -> SiloWorker<M> {
        SiloWorker { largest_overwritten: 0, last_tid: 0, snapshot: None, copies: Vec::new() }
    }

    fn init_further_words(&self, cell: Cell<M>) {
        if self.options.snapshots {
            snapshot::forget_copies(cell);
        }
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, own: &mut SiloWorker<M>) {
        own.largest_overwritten = 0;
        own.snapshot = match self.snapshots() {
            Some(snapshots) if cx.declaration.is_read_only() => Some(snapshots.seen_from(Self::began_in(cx))),
            _ => None,
        };
    }

    #[inline(always)]
    fn sees_snapshot(&self, own: &SiloWorker<M>) -> bool {
        own.snapshot.is_some()
    }

    #[inline(always)]
    fn read_snapshot(
        &self,
        cx: &mut Context<M>,
        own: &mut SiloWorker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Option<Result<RecordState, Abort>> {
        own.snapshot.map(|snapshot| snapshot::read(cx, at, columns, snapshot))
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut SiloWorker<M>) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return Self::validate(cx, reads);
        }
        let epoch_by_fault = Self::epoch_by_fault(cx);
        // Phase 1: lock what is written.
        own.largest_overwritten = reads.lock_writes(cx, self.options.wait, Self::cells_of)?;
        // SeqCst: pairs with the same fence of other commits. Let two transactions each read what
        // the other writes. Each locks, passes this fence, and then loads what it read. The fences
        // have one order for all, so the loads of the commit whose fence is second come after the
        // locks of the first. It sees the lock and aborts; or the first one's new TID and aborts;
        // or the old TID, if the first has aborted. So they do not both commit. (Dekker's algorithm
        // for mutual exclusion rests on the same order.) And it pairs with the fence of
        // `ReadsAndLocks::observe`: the locks come before the stores to the rows.
        dekker_fence::<M, F>();
        M::step("epoch");
        // The serialization point.
        let epoch = epoch_by_fault.unwrap_or_else(|| tid::epoch_of_commit::<M, F>(cx));
        Self::validate(cx, reads)?;
        // Phase 3: install.
        let tid = Self::commit_tid(reads, own, epoch)?;
        // In the write set: the rows are still untouched.
        cx.writes.apply_updates();
        if let Some(snapshots) = self.snapshots() {
            // Fails if the machine has no more memory.
            let until = if F::reuse_copies_early() { 0 } else { snapshots.needed_until(cx) };
            snapshot::keep(snapshots, cx, &mut own.copies, tid, until)?;
        }
        // The first store to a row, and nothing fails from here on.
        tid::install_as_tid(cx, Self::cells_of, tid);
        own.last_tid = tid;
        Ok(())
    }

    /// A tombstone leaves the index when the epoch of its delete is over: the next record of the
    /// key then gets a larger TID. With snapshots it stays until none shows the row that was there.
    fn lets_unlink(&self, tombstone: Tombstone<'_, M>, word: u64) -> bool {
        match self.snapshots() {
            None => tombstone.is_over(tid::epoch_of(word)),
            Some(snapshots) => snapshots.let_unlink(tid::epoch_of(word), tombstone.oldest()),
        }
    }
}

faults! {
    /// Silo's deliberate faults.
    pub trait SiloFaults: OptimisticFaults {
        /// Records that were read and are also written are not validated.
        skip_validation_of_written,
        /// Cells that were read and are not written are not validated: write skew goes through, as
        /// under snapshot isolation.
        forget_read_only,
        /// A write of some columns locks and changes the cell next to theirs.
        write_wrong_cell,
        /// A commit's TID need not be larger than those it has read and overwritten: one record can
        /// have one TID twice.
        forget_older_tids,
        /// The epoch of a commit is loaded before its locks are taken.
        epoch_before_locks,
        /// A snapshot is at the end of the epoch in which its reader begins: others still commit in
        /// it.
        snapshot_of_running_epoch,
        /// A snapshot is at the end of the epoch before that in which its reader begins.
        snapshot_of_last_epoch,
        /// The memory of copies is reused while transactions run that see older snapshots.
        reuse_copies_early,
    }
    pub const FAULTS;
}

/// The places at which the algorithm has its faults. Without a fault, `marks_read_cell` is true,
/// `fault_skips` is false, `epoch_by_fault` is `None`, and the others return what their names begin
/// with.
impl<F: SiloFaults> SiloValidation<F> {
    #[inline(always)]
    fn marks_read_cell() -> bool {
        !F::write_wrong_cell()
    }

    /// Returns the cells that a write locks and changes.
    #[inline(always)]
    fn cells_of<M: Machine>(write: &Write<M>) -> Cells<M> {
        let cell_count = write.table().cell_count() as u32;
        if F::write_wrong_cell() && cell_count > 1 && write.groups() != Groups::ALL {
            let next = write.groups().into_iter().map(|group| (group as u32 + 1) % cell_count);
            return write.table().cells(write.record, next.fold(Groups::NONE, |all, one| all.union(Groups::of(one))));
        }
        write.cells()
    }

    /// Returns whether validation leaves the read out.
    #[inline(always)]
    fn fault_skips<M: Machine>(reads: &mut ReadsAndLocks<M>, read: Read<M>) -> bool {
        F::skip_validation_of_written() && reads.has_locked(read.cell)
            || F::forget_read_only() && !reads.has_locked(read.cell)
    }

    /// Returns `tid`, which the commit's TID must be larger than.
    #[inline(always)]
    fn unless_fault_forgets(tid: u64) -> u64 {
        if F::forget_older_tids() { 0 } else { tid }
    }

    /// Returns the epoch of the commit, loaded before the locks are taken.
    #[inline(always)]
    fn epoch_by_fault<M: Machine>(cx: &Context<M>) -> Option<u64> {
        F::epoch_before_locks().then(|| cx.current_epoch())
    }

    /// Returns the epoch in which the transaction began; a fault adds an epoch or two.
    #[inline(always)]
    fn began_in<M: Machine>(cx: &Context<M>) -> u64 {
        let added = if F::snapshot_of_running_epoch() { 2 } else { u64::from(F::snapshot_of_last_epoch()) };
        cx.began_in() + added
    }
}
