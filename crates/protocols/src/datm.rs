//! DATM, dependence-aware transactional memory: transactions see each other's uncommitted rows, and
//! commit in the order of their accesses.
//!
//! **Idea.** A transaction waits for no other before its commit. A read sees the newest row, also
//! if that is not committed. A write is shown as soon as the transaction goes on to its next
//! access. A transaction that comes after another on a record depends on it: it commits later, and
//! aborts if the other aborts. So two transactions that conflict may both commit, as long as their
//! dependences have one direction. Two that depend on each other in both directions wait for each
//! other at their commits, until a timeout.
//!
//! **Paper.** H. E. Ramadan, C. J. Rossbach, E. Witchel: "Dependence-aware transactional memory for
//! increased concurrency", MICRO 2008; in the form in which the paper of IC3 has compared it as a
//! database protocol, with a timeout and without pieces: Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J.
//! Li: "Scaling multicore databases via constrained parallel execution", SIGMOD 2016, section 6.
//!
//! | step of the paper | function | what it does |
//! | --- | --- | --- |
//! | a read, with forwarding | `read`, `observe` | reads the newest row, depends on its writer, joins the list |
//! | a write | `show` | before the next access: depends on the writer and all readers before, and shows the row |
//! | a second write | `rewrite` | takes a shown row back, and dooms those that have seen it |
//! | commit in order | `commit` | shows the rest, waits for predecessors, validates leaves, passes the commit point |
//! | a dependence cycle | `check_order`, `commit` | aborts where one list shows it, otherwise at the timeout |
//! | cascading abort | `abort` | puts back what was there, dooms later accessors |
//!
//! **Promises** serializability. Let `v(T)` be the time at which the last predecessor of T has
//! decided; T validates its leaves after that. Suppose that T and U have committed, and that T
//! comes before U.
//!
//! - On a cell: U's access stands behind T's in the list, and one of them has written. Then T is a
//!   predecessor of U, or a predecessor of the last writer before U, and so on. Each of these
//!   commits after its predecessors. If a writer between them aborts, it takes U along, unless its
//!   write was put back before U came. So T has decided, and validated before, when U's wait ends:
//!   `v(T) < v(U)`.
//! - On a gap: T has scanned or missed what U inserts. U's placeholder came into the leaf after
//!   T's look, and T has not found the leaf changed. So it came after T's validation, and U's wait
//!   for its predecessors began later still: `v(T) < v(U)`.
//!
//! So the times grow along each chain of dependences, and a cycle of dependences never commits. A
//! transaction that is going to abort may see writes of others that abort too. It sees one state of
//! each cell.
//!
//! **An access again** to a cell keeps its place, if no other transaction has written the cell
//! since. If one has, it depends on this transaction, and this one would depend on it: the access
//! fails at once. A write moves the own access to the newest place. Those that have read in between
//! become predecessors.
//!
//! **Metadata**: two words a cell, a list of accessors, and a line of progress for each worker:
//! [`crate::accessors`]. There stands as well how rows are put back, and transactions doomed.
//!
//! **Commit point**: the exchange that sets *commits* in the worker's progress, after all
//! predecessors have ended or are sure to commit, and after the validation of the leaves. It fails
//! if a predecessor has aborted and so doomed the transaction.
//!
//! **Waits** are for predecessors, at the commit only. They can form a cycle, which
//! `datm.timeout_ns` ends. Waits for locks of cells are short and form none.
//!
//! **Livelock.** Transactions that abort each other could do so for ever, if they began again at
//! the same time. So a worker whose transactions fail again and again begins the next one later,
//! and some workers later than others.
//!
//! **Phantoms** as in Bamboo: misses and scans observe leaf versions. The commit validates them
//! after the wait, so it sees the predecessors' inserts.
//!
//! **Departures from the paper.** The paper is about hardware: cache lines, and a table of orders
//! that finds each cycle. Here a cycle is found in the list of one cell, or it ends by the timeout,
//! as in the paper of IC3. Inserts, deletes, commit-time updates, and rows that are written twice
//! are shown when the commit begins. So scans and inserts go on, which that paper left out.
//!
//! **Defaults.** `datm.timeout_ns=450000`: the best of the paper of IC3, on a CPU with 2.2 GHz.

use std::marker::PhantomData;

use contend_engine::sets::{AddressMap, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located,
    NamedProtocol, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::accessors::{
    self, AccessFaults, Accessor, AccessorHandle, META_WORDS, Member, Pool, Progress, Running, Shown, list_of, lock,
    shown_word, unlock,
};
use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, QUEUED, UNLINKED};

options! {
    /// DATM's options.
    pub struct DatmOptions {
        /// The longest time for which a commit waits for the transactions that it depends on, in
        /// nanoseconds.
        "datm.timeout_ns" timeout_ns: u64 = 450_000, in 0..=10_000_000_000;
    }
}

/// The number of transactions in a row after which a worker that fails gives way to others.
const GIVES_WAY_AFTER: u32 = 4;

/// The word of the first cell of a placeholder that no transaction has given a row.
const UNUSED_PLACEHOLDER: u64 = ABSENT | QUEUED;

/// The protocol.
#[derive(Debug)]
pub struct Datm<M: Machine, F = Sound> {
    options: DatmOptions,
    progress: Progress<M>,
    pool: Pool<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct DatmWorker<M: Machine> {
    member: Member<M>,
    /// The position in the member's list of cells of each cell, by its address.
    positions: AddressMap,
    /// The cells of the running access, which are locked, with their words.
    locked: Vec<(Cell<M>, u64)>,
    /// The entries of the write set before this position are complete: they are shown, or are left
    /// to the commit.
    complete: usize,
    /// The shown cells; those from before the commit are in the order of the write set.
    shown: Vec<Shown<M>>,
    /// The former contents of the shown cells, word by word.
    saved: Vec<u64>,
    /// The number of transactions that have failed since the worker's last commit.
    failed: u32,
}

impl<M: Machine> DatmWorker<M> {
    /// Waits a little if the last transactions have failed; one worker in eight does not wait.
    fn give_way(&self) {
        if self.failed >= GIVES_WAY_AFTER {
            M::step("give way");
            let mut spin = Spin::<M>::new();
            let pauses = self.member.own.worker as u32 % 8 * 4 * self.failed.min(32);
            (0..pauses).for_each(|_| spin.wait_briefly());
        }
    }

    /// Locks these cells of a record, and returns the union of their flags.
    #[inline(always)]
    fn lock(&mut self, cells: Cells<M>) -> u64 {
        debug_assert!(self.locked.is_empty(), "one access at a time");
        let mut flags = 0;
        // The cells of a record stand in the order of addresses.
        for cell in cells {
            let word = lock(cell);
            flags |= word;
            self.locked.push((cell, word));
        }
        flags
    }

    /// Unlocks the cells of the access, which it has not changed.
    #[inline(always)]
    fn unlock(&mut self) {
        self.locked.drain(..).for_each(|(cell, word)| unlock(cell, word));
    }

    /// Returns the transaction's access to a cell.
    #[inline(always)]
    fn access(&self, cell: Cell<M>) -> Option<AccessorHandle<M>> {
        self.positions.find(cell.address()).map(|position| self.member.listed[position].1)
    }

    fn join(&mut self, cell: Cell<M>, began_in: u64, wrote: bool) -> AccessorHandle<M> {
        let position = self.positions.push(cell.address());
        debug_assert_eq!(position, self.member.listed.len(), "both lists have the same cells");
        self.member.join(cell, began_in, wrote)
    }

    /// Checks that the transaction may access the locked cells, some of which it has accessed
    /// before.
    ///
    /// # Errors
    /// What it has seen was put back; or another transaction has written a cell since. That one
    /// depends on this one, and the other way round would close a cycle.
    #[inline(always)]
    fn check_order<F: DatmFaults>(&self, cx: &Context<M>) -> Result<(), Abort> {
        for (cell, _) in &self.locked {
            let Some(own) = self.access(*cell) else { continue };
            if own.is(Accessor::<M>::VOID) {
                return Err(Abort::new(AbortReason::Cascaded));
            }
            let wrote = |other: &Accessor<M>| other.is(Accessor::<M>::WROTE) && !other.is(Accessor::<M>::VOID);
            if list_of(*cell).newer_than(&own).any(wrote) && !F::trust_own_reads() {
                return Err(cx.conflict_at(*cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        Ok(())
    }

    /// Joins the lists of the locked cells as a reader.
    #[inline(always)]
    fn observe<F: DatmFaults>(&mut self, began_in: u64) {
        for place in 0..self.locked.len() {
            let cell = self.locked[place].0;
            if self.access(cell).is_none() {
                self.member.depend_on_earlier::<F>(&list_of(cell), false);
                self.join(cell, began_in, false);
            }
        }
    }

    /// Becomes the newest accessor of a locked cell, as a writer.
    #[inline(always)]
    fn write_next<F: DatmFaults>(&mut self, cell: Cell<M>, began_in: u64) -> AccessorHandle<M> {
        let list = list_of(cell);
        self.member.depend_on_earlier::<F>(&list, true);
        let Some(own) = self.access(cell) else { return self.join(cell, began_in, true) };
        list.remove(&own);
        list.push(&own, self.member.own, began_in, true);
        own
    }
}

impl<M: Machine, F: DatmFaults> Datm<M, F> {
    /// Shows the complete writes before position `end` of the write set.
    ///
    /// # Errors
    /// As for [`Datm::show`].
    #[inline(always)]
    fn show_up_to(&self, cx: &mut Context<M>, local: &mut DatmWorker<M>, end: usize) -> Result<(), Abort> {
        while local.complete < end {
            let position = local.complete;
            local.complete += 1;
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Update && write.merged().is_empty() {
                self.show(cx, local, position)?;
            }
        }
        Ok(())
    }

    /// Shows the write at this position of the write set to others, if it has an effect.
    ///
    /// # Errors
    /// The record does not fit the write, or another transaction has written it after this one has
    /// read it. Nothing was shown.
    fn show(&self, cx: &mut Context<M>, local: &mut DatmWorker<M>, position: usize) -> Result<(), Abort> {
        M::step("show");
        let write = &cx.writes.entries()[position];
        let (numbers, kind) = (write.cell_numbers(), write.kind);
        let flags = local.lock(write.cells());
        let at_write = |reason| cx.conflict_at_write(position, write.groups(), Abort::new(reason));
        let fits = local.check_order::<F>(cx).and_then(|()| {
            // A row of another transaction in the own placeholder may have been put back since.
            let is_used = write.fresh && local.locked[0].1 != UNUSED_PLACEHOLDER;
            let is_gone = flags & UNLINKED != 0 || write.needs_row() && flags & ABSENT != 0;
            match (is_used, is_gone) {
                (true, _) => Err(at_write(AbortReason::ReadValidation)),
                (_, true) => Err(at_write(AbortReason::RecordGone)),
                _ => Ok(()),
            }
        });
        if fits.is_err() || kind == WriteKind::Nothing {
            local.unlock();
            return fits;
        }
        // An update is code of the application and may panic: `abort` unlocks the cells then.
        cx.writes.merge(position);
        for (place, number) in numbers.into_iter().enumerate() {
            let cell = local.locked[place].0;
            let accessor = local.write_next::<F>(cell, cx.began_in());
            local.shown.push(Shown::save(cx, cell, accessor, (position, number), &mut local.saved));
        }
        cx.writes.expose(position);
        for ((cell, _), number) in local.locked.drain(..).zip(numbers) {
            let word = shown_word(cx, cell, Some((position, number)));
            unlock(cell, word);
        }
        Ok(())
    }

    /// Shows all that is not shown yet.
    fn show_rest(&self, cx: &mut Context<M>, local: &mut DatmWorker<M>) -> Result<(), Abort> {
        let (before, mut next) = (local.shown.len(), 0);
        for position in 0..cx.writes.len() {
            while next < before && local.shown[next].position < position {
                next += 1;
            }
            let is_shown = next < before && local.shown[next].position == position;
            let write = &cx.writes.entries()[position];
            // A placeholder whose row the transaction has deleted itself is looked at once more.
            if !is_shown && (write.kind != WriteKind::Nothing || write.fresh) {
                self.show(cx, local, position)?;
            }
        }
        Ok(())
    }

    /// Validates the leaves that the transaction has observed.
    fn validate_leaves(cx: &Context<M>) -> Result<(), Abort> {
        if cx.nodes.is_empty() {
            return Ok(());
        }
        M::step("validate");
        // SeqCst: pairs with itself. This transaction's inserts into the index come before its
        // loads of the leaf versions that it observed, as in `TwoPhase`.
        dekker_fence::<M, F>();
        cx.nodes.validate()
    }

    /// Ends the transaction, which has left all lists.
    fn end(&self, local: &mut DatmWorker<M>) {
        local.positions.clear();
        local.shown.clear();
        local.saved.clear();
        local.member.end(&self.progress);
    }
}

impl<M: Machine, F: DatmFaults> NamedProtocol<M> for Datm<M, F> {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "datm",
        summary: "transactions see uncommitted rows at once, and commit in the order of their accesses",
        paper: "Ramadan, Rossbach, Witchel: Dependence-aware transactional memory for increased concurrency, MICRO 2008",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = DatmOptions;

    fn new(options: DatmOptions) -> Self {
        Datm { options, progress: Progress::new(0), pool: Pool::default(), faults: PhantomData }
    }
}

impl<M: Machine, F: DatmFaults> Protocol<M> for Datm<M, F> {
    type WorkerState = DatmWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        META_WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.progress = Progress::new(workers);
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        DatmWorker {
            member: Member::new(worker, &self.progress, &self.pool),
            positions: AddressMap::default(),
            locked: Vec::with_capacity(contend_engine::GROUPS_MAX),
            complete: 0,
            shown: Vec::with_capacity(64),
            saved: Vec::new(),
            failed: 0,
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        accessors::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.give_way();
        local.member.begin(&self.progress, Running::NO_KIND);
        local.complete = 0;
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
        self.show_up_to(cx, local, cx.writes.len())?;
        if self.progress.is_doomed(local.member.own) {
            return Err(Abort::new(AbortReason::Cascaded));
        }
        M::step("read");
        let flags = local.lock(at.cells(columns.groups()));
        // The record leaves the index only if its lists are empty, so what was accessed stays.
        let found = flags::found(flags);
        let order = if found == RecordState::Unlinked { Ok(()) } else { local.check_order::<F>(cx) };
        if found != RecordState::Unlinked && order.is_ok() {
            local.observe::<F>(cx.began_in());
            cx.copy_row(at, columns);
        }
        local.unlock();
        order.map(|()| found)
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
        match mode {
            WriteMode::Blind | WriteMode::CommitTimeUpdate => {
                self.show_up_to(cx, local, cx.writes.len())?;
                // Relaxed: a first look, with no partner; `show` looks again, under the lock.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if at.cells(groups).any(gone) {
                    // A miss has to stay one. If the record has a row by now, having read it does
                    // no harm.
                    return self.read(cx, local, at, Projection::columns(&[], groups));
                }
                Ok(RecordState::Row)
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete => self.read(cx, local, at, Projection::of_groups(groups)),
            // The engine has just read that the record is absent; `show` sees whether it still is.
            WriteMode::Insert => Ok(RecordState::Absent),
        }
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // The insert is the next access: what comes before it is shown.
        self.show_up_to(cx, local, cx.writes.len())?;
        M::step("placeholder");
        // The transaction relies on the key's absence. The first cell stands for all, because each
        // insert or delete writes it.
        let is_unused = local.lock(at.cells(Groups::FIRST)) == UNUSED_PLACEHOLDER;
        if is_unused {
            local.observe::<F>(cx.began_in());
        }
        local.unlock();
        if !is_unused {
            // Another transaction has given it a row already, since it came into the index.
            return Err(Abort::new(AbortReason::ReadValidation));
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        _: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        cx.nodes.add(leaf, version);
        Ok(())
    }

    fn rewrite(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, position: usize) -> Result<(), Abort> {
        if local.complete <= position {
            // The entry is not shown yet. The transaction changes it again, so it is left to the
            // commit.
            self.show_up_to(cx, local, position)?;
            local.complete = position + 1;
            return Ok(());
        }
        let first = local.shown.partition_point(|shown| shown.position < position);
        let end = first + local.shown[first..].partition_point(|shown| shown.position == position);
        if first == end {
            return Ok(());
        }
        M::step("take back");
        local.lock(cx.writes.entries()[position].cells());
        if local.shown[first..end].iter().any(|shown| shown.accessor.is(Accessor::<M>::VOID)) {
            local.unlock();
            return Err(Abort::new(AbortReason::Cascaded));
        }
        for (shown, (_, word)) in local.shown.drain(first..end).zip(local.locked.drain(..)) {
            let word = shown.put_back(cx, &self.progress, &local.saved, word, !F::keep_intermediate_reads());
            shown.accessor.make_read();
            unlock(shown.cell, word);
        }
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.show_rest(cx, local)?;
        if F::validate_before_waiting() {
            Self::validate_leaves(cx)?;
        }
        // No predecessor can be added from here on: the transaction accesses nothing more.
        local.member.wait_for_commits::<F>(&self.progress, Some(self.options.timeout_ns))?;
        if !F::validate_before_waiting() {
            Self::validate_leaves(cx)?;
        }
        local.member.pass_commit_point(&self.progress)?;
        if !local.shown.is_empty() {
            // Before any transaction can commit that has seen the shown rows.
            cx.writes.will_commit();
        }
        // Leaving the lists takes long. The successors need not wait for it.
        self.progress.decide(local.member.own);
        local.member.leave_lists();
        self.end(local);
        local.failed = 0;
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        local.failed += u32::from(reason.is_conflict());
        local.unlock();
        if F::doom_after_end() {
            self.progress.end(local.member.own);
        }
        for shown in local.shown.iter().rev() {
            shown.undo::<F>(cx, &self.progress, &local.saved, |_| (), || ());
        }
        local.member.leave_lists();
        self.end(local);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        accessors::unlink::<M, F>(tombstone, |_| false)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of DATM.
    pub trait DatmFaults: AccessFaults {
        /// A transaction accesses a cell again though another has written it since.
        trust_own_reads,
        /// A transaction that takes a shown row back does not doom the transactions that have seen
        /// it.
        keep_intermediate_reads,
        /// The leaves are validated before the wait for predecessors, and not after it.
        validate_before_waiting,
    }
    pub const FAULTS;
}
