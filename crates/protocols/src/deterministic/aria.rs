//! Aria: a batch executes against one state, and then each transaction decides by itself.
//!
//! **Idea.** All transactions of a batch execute at the same time, and read the state before the
//! batch. Their writes stay with them. Each transaction *reserves* the rows that it has read and
//! that it is going to write. When all have, each one looks at its reservations: whether an earlier
//! transaction of the batch has read or written the same. From that alone it knows whether it
//! commits. So the decisions need no coordination, and nothing but the batch influences them. A
//! transaction that aborts takes part in the next batch, before all that are new.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | execution phase: read the snapshot, buffer the writes | `read`, `write` |
//! | reserve reads and writes, the earliest transaction wins | `commit`: `reserve` |
//! | barrier | [`Rounds::wait`] |
//! | commit phase: analyse the conflicts | `commit`: `decide` |
//! | install, or take part in the next batch | [`crate::alone`], `abort` |
//!
//! **Paper.** Y. Lu, X. Yu, L. Cao, S. Madden: "Aria: a fast and practical deterministic OLTP
//! database", VLDB 2020.
//!
//! **Promises** serializability. The same input gives the same final state with any number of
//! threads ([`crate::deterministic`]).
//!
//! **Metadata.** Three words for each cell: flags ([`crate::alone`]), the write reservation, and
//! the read reservation. A reservation is a *ticket*: the batch, how often the transaction has
//! aborted, and its worker. Of two tickets of a batch the larger one is the earlier transaction. A
//! reservation is an atomic maximum, and is never cleared: the next batch has larger tickets.
//!
//! **Commit point.** The end of the execution phase. By then all reservations are made. `decide`
//! only computes what follows from them:
//!
//! | a transaction | depends on an earlier one by |
//! | --- | --- |
//! | writes what an earlier one writes | WAW |
//! | reads what an earlier one writes | RAW: it has read the old row, so it has to come before |
//! | writes what an earlier one reads | WAR: it has to come after |
//!
//! It aborts if it has a WAW, or a RAW and a WAR. With a RAW only it commits *before* the earlier
//! one: the deterministic reordering of the paper (its section 5). With `aria.reordering=off` a RAW
//! aborts as well. An earlier transaction counts even if it aborts, so that no decision waits for
//! another.
//!
//! **Waits.** For the batch only. The earliest transaction of a batch has no conflicts with earlier
//! ones, so it commits. A transaction that aborts comes earlier in the next batch than those that
//! have aborted less often. A ticket counts as many aborts as there can be workers, so none
//! starves. An insert also waits for the collector, if that judges the record.
//!
//! **Phantoms.** A key without a row, and a range that was scanned, are reservations of *gaps*
//! ([`gaps`]): of ranges of keys, not of leaves of an index. The shape of an index depends on the
//! order in which transactions of a batch insert. It must not decide which of them abort.
//!
//! **Inserts and the collector.** A transaction reserves the record of an insert at once, before it
//! ends its execution. The collector leaves a tombstone alone that the present batch has reserved.
//! Of the two, the insert reserves and then looks whether the collector has locked the record; the
//! collector locks it and then looks whether it is reserved. So at least one sees the other.
//!
//! **Departures from the paper.** A batch has one transaction of each worker. Its size is the
//! number of workers, several of which share a thread. With reordering, a transaction that writes
//! nothing reserves nothing and always commits: it comes before all others of its batch, because it
//! has read the state before the batch. The paper's fallback for batches full of conflicts, which
//! locks in the order of the batch, is not built: [`crate::deterministic::calvin`] shows that
//! strategy alone.

mod gaps;

use std::marker::PhantomData;

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located,
    NamedProtocol, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use super::rounds::{Member, Rounds, RoundsOptions};
use crate::alone;
use crate::fault::{FenceFaults, Sound, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, UNLINKED};
use gaps::{Gap, Gaps};

options! {
    /// Aria's options.
    pub struct AriaOptions {
        /// Whether a transaction that has read what an earlier one writes may come before that one
        /// (the paper's deterministic reordering), instead of aborting.
        "aria.reordering" reordering: bool = true, in ();
        flatten rounds: RoundsOptions;
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Aria<M: Machine, F = Sound> {
    reordering: bool,
    rounds: Rounds<M>,
    gaps: Gaps<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct AriaWorker<M: Machine> {
    member: Member,
    /// The running transaction's place in its batch; see the module.
    ticket: u64,
    /// How often the transaction has aborted by a conflict.
    tries: u64,
    /// The cells that the transaction has read and, as far as it knows, does not write.
    reads: Vec<Cell<M>>,
    /// The gaps that it has read, and those that it inserts into.
    gaps_read: Vec<Gap>,
    gaps_filled: Vec<Gap>,
}

/// The words of a cell behind the flags.
const WRITER: usize = 1;
const READER: usize = 2;
const WORDS: usize = 3;

/// Returns the word of a cell's write reservation.
#[inline(always)]
fn writer<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: Aria's cells have three words.
    unsafe { cell.meta(WRITER) }
}

/// Returns the word of a cell's read reservation.
#[inline(always)]
fn reader<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(READER) }
}

/// The bits of a ticket: the batch in the highest, then the tries, then the worker.
const WORKER_BITS: u32 = 14;
const TRIES_BITS: u32 = 14;
const BATCH_SHIFT: u32 = WORKER_BITS + TRIES_BITS;

/// Returns the ticket of a transaction. Within a batch the larger ticket is the earlier
/// transaction.
fn ticket(batch: u64, tries: u64, worker: usize) -> u64 {
    let last = (1 << WORKER_BITS) - 1;
    // The first batch has the number 1, because 0 is "not reserved".
    (batch + 1) << BATCH_SHIFT | tries.min((1 << TRIES_BITS) - 1) << WORKER_BITS | (last - worker as u64)
}

/// Reserves a word for the transaction with this ticket, unless an earlier one has it.
#[inline(always)]
fn reserve<M: Machine>(word: &M::U64, ticket: u64) {
    // Relaxed, both: the words are read when the phase is complete, and its Release and Acquire
    // order all reservations before ([`Rounds::wait`]). The load spares most of the exchanges where
    // many transactions reserve one word.
    if word.load(Ordering::Relaxed) < ticket {
        word.fetch_max(ticket, Ordering::Relaxed);
    }
}

/// Whether a transaction earlier than that with this ticket has reserved the word.
#[inline(always)]
fn is_behind<M: Machine>(word: &M::U64, ticket: u64) -> bool {
    // Relaxed: as in `reserve`. A ticket of an older batch is smaller.
    word.load(Ordering::Relaxed) > ticket
}

/// How a transaction depends on earlier ones of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Conflicts {
    waw: bool,
    raw: bool,
    war: bool,
}

impl<M: Machine, F: AriaFaults> Aria<M, F> {
    /// Reserves a record that is about to get a row, so that the collector leaves it alone. `None`
    /// if the collector has been there first.
    fn reserve_insert(&self, local: &AriaWorker<M>, at: Located<'_, M>) -> Option<()> {
        at.cells(Groups::ALL).for_each(|cell| Self::reserve_write(cell, local.ticket));
        // The reservation comes before the look at the flags; pairs with the fence in `unlink`.
        dekker_fence::<M, F>();
        (alone::wait_for_collector(at.record.first_cell()) & UNLINKED == 0).then_some(())
    }

    /// Reserves what the transaction has read, and what it writes.
    fn reserve_all(&self, cx: &Context<M>, local: &mut AriaWorker<M>) {
        M::step("reserve");
        let ticket = local.ticket;
        for (position, write) in cx.writes.entries().iter().enumerate() {
            write.cells().for_each(|cell| Self::reserve_write(cell, ticket));
            if write.kind == WriteKind::Insert {
                local.gaps_filled.extend(self.gaps.around(write.table().id(), cx.writes.key(position)));
            }
        }
        if Self::keeps_gaps() {
            local.gaps_filled.iter().for_each(|gap| reserve::<M>(self.gaps.writer(*gap), ticket));
            local.gaps_read.iter().for_each(|gap| reserve::<M>(self.gaps.reader(*gap), ticket));
        }
        if self.reordering && Self::keeps_reads() {
            local.reads.iter().for_each(|cell| reserve::<M>(reader(*cell), ticket));
        }
    }

    /// Finds out how the transaction depends on earlier ones. All of the batch have reserved.
    fn conflicts(&self, cx: &Context<M>, local: &AriaWorker<M>) -> Conflicts {
        M::step("decide");
        let ticket = local.ticket;
        let mut found = Conflicts::default();
        for write in cx.writes.entries() {
            for cell in write.cells() {
                found.waw |= Self::is_lost(cell, ticket);
                found.war |= is_behind::<M>(reader(cell), ticket);
            }
        }
        found.war |= local.gaps_filled.iter().any(|gap| is_behind::<M>(self.gaps.reader(*gap), ticket));
        found.raw |= local.reads.iter().any(|cell| is_behind::<M>(writer(*cell), ticket));
        found.raw |= local.gaps_read.iter().any(|gap| is_behind::<M>(self.gaps.writer(*gap), ticket));
        found
    }

    /// Notes the cell of a conflict, if it is not in a gap only.
    #[cold]
    fn placed(cx: &Context<M>, local: &AriaWorker<M>, abort: Abort) -> Abort {
        let ticket = local.ticket;
        let cell = match abort.reason {
            AbortReason::WriteLocked => {
                cx.writes.entries().iter().flat_map(Write::cells).find(|cell| Self::is_lost(*cell, ticket))
            }
            _ => local.reads.iter().copied().find(|cell| is_behind::<M>(writer(*cell), ticket)),
        };
        cell.map_or(abort, |cell| cx.conflict_at(cell, abort))
    }

    /// Decides whether the transaction commits.
    fn decide(&self, conflicts: Conflicts) -> Result<(), Abort> {
        let Conflicts { waw, raw, war } = Self::believes(conflicts);
        match () {
            () if waw => Err(Abort::new(AbortReason::WriteLocked)),
            () if raw && (war || !self.reordering) => Err(Abort::new(AbortReason::ReadValidation)),
            () => Ok(()),
        }
    }
}

impl<M: Machine, F: AriaFaults> NamedProtocol<M> for Aria<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "aria",
        summary: "deterministic: batches execute against one state, then each transaction decides by reservations",
        paper: "Lu, Yu, Cao, Madden: Aria: a fast and practical deterministic OLTP database, VLDB 2020",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const DETERMINISTIC: Option<&'static str> = Some("rounds.patience_us=0");
    type Options = AriaOptions;

    fn new(options: AriaOptions) -> Self {
        Aria {
            reordering: options.reordering,
            rounds: Rounds::new(&options.rounds),
            gaps: Gaps::default(),
            faults: PhantomData,
        }
    }
}

impl<M: Machine, F: AriaFaults> Protocol<M> for Aria<M, F> {
    type WorkerState = AriaWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        assert!(workers <= 1 << WORKER_BITS, "a ticket has room for 16,384 workers");
        self.rounds.prepare(workers);
    }

    fn new_worker_state(&self, worker: usize) -> AriaWorker<M> {
        let member = self.rounds.member(worker);
        let (reads, gaps_read, gaps_filled) = (Vec::with_capacity(64), Vec::new(), Vec::new());
        AriaWorker { member, ticket: 0, tries: 0, reads, gaps_read, gaps_filled }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        // Relaxed, both: as in `init_words`. A record that is reused must not keep the tickets of
        // its former life: the same input would not find them everywhere.
        for cell in cells.clone() {
            writer(cell).store(0, Ordering::Relaxed);
            reader(cell).store(0, Ordering::Relaxed);
        }
        flags::init_words(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut AriaWorker<M>) -> Result<(), Abort> {
        local.reads.clear();
        local.gaps_read.clear();
        local.gaps_filled.clear();
        self.rounds.begin(&mut local.member);
        local.ticket = ticket(local.member.batch(), local.tries, cx.worker);
        // The batch before must have been installed as a whole.
        if Self::waits_for_installs() {
            let before = local.member.ready() - 1;
            self.rounds.wait(&mut local.member, before)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut AriaWorker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        let found = alone::read(cx, at, columns);
        if found == RecordState::Row {
            local.reads.extend(at.cells(columns.groups()));
        }
        Ok(found)
    }

    // A write that reads first needs no read reservation: a transaction that conflicts with the
    // read conflicts with the write as well.
    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut AriaWorker<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        match mode {
            WriteMode::Insert if self.reserve_insert(local, at).is_none() => Ok(RecordState::Unlinked),
            WriteMode::Insert => Ok(RecordState::Absent),
            _ => Ok(alone::write(cx, at, groups, mode)),
        }
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        local: &mut AriaWorker<M>,
        at: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        // As if another transaction of the batch had made the placeholder. Which one came first
        // must not matter.
        at.cells(Groups::ALL).for_each(|cell| Self::reserve_write(cell, local.ticket));
        Ok(())
    }

    // Gaps are ranges of keys: `observe_range`.
    #[inline(always)]
    fn observe_leaf(&self, _: &mut Context<M>, _: &mut AriaWorker<M>, _: u32, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        Ok(())
    }

    fn observes_ranges(&self) -> bool {
        true
    }

    fn observe_range(
        &self,
        _: &mut Context<M>,
        local: &mut AriaWorker<M>,
        table: u32,
        low: &[u64],
        high: &[u64],
    ) -> Result<(), Abort> {
        local.gaps_read.push(self.gaps.of_range(table, low, high));
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut AriaWorker<M>) -> Result<(), Abort> {
        // A transaction that only reads comes before all others of its batch.
        if cx.writes.is_empty() && self.reordering {
            self.rounds.reach_done(&mut local.member);
            local.tries = 0;
            return Ok(());
        }
        if Self::reserves_late() {
            self.rounds.reach_ready(&mut local.member);
            self.reserve_all(cx, local);
        } else {
            self.reserve_all(cx, local);
            self.rounds.reach_ready(&mut local.member);
        }
        let ready = local.member.ready();
        self.rounds.wait(&mut local.member, ready)?;
        let conflicts = self.conflicts(cx, local);
        self.decide(conflicts).map_err(|abort| Self::placed(cx, local, abort))?;
        // No other transaction of the batch installs any of these cells, and none reads before all
        // have installed.
        alone::install_all(cx);
        self.rounds.reach_done(&mut local.member);
        local.tries = 0;
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut AriaWorker<M>, reason: AbortReason) {
        if local.member.is_running() {
            self.rounds.reach_done(&mut local.member);
        }
        local.tries = if reason.is_conflict() { local.tries + 1 } else { 0 };
    }

    fn go_offline(&self, _: &mut Context<M>, local: &mut AriaWorker<M>) {
        self.rounds.leave(&mut local.member);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        alone::unlink(tombstone, |first| {
            // The lock comes before the look at the reservation; pairs with the fence in
            // `reserve_insert`.
            dekker_fence::<M, F>();
            // Relaxed: the fence orders it. A batch is over when its last phase is complete. An old
            // value of `complete` only makes the collector wait.
            let reserved = writer(first).load(Ordering::Relaxed) >> BATCH_SHIFT;
            reserved > 0 && 2 * reserved > self.rounds.complete() && !Self::unlinks_reserved()
        })
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of Aria.
    pub trait AriaFaults: FenceFaults {
        /// Two transactions of a batch may write the same row.
        ignore_waw,
        /// A transaction does not notice that an earlier one writes what it has read.
        ignore_raw,
        /// Reads are not reserved, so a transaction does not notice that an earlier one has read
        /// what it writes.
        forget_reads,
        /// Gaps are not reserved.
        forget_gap_reservations,
        /// A transaction says that it is ready before it has reserved.
        reserve_late,
        /// A batch begins before the batch before has been installed.
        begin_early,
        /// The collector takes a tombstone out of the index that a transaction is about to give a
        /// row.
        unlink_reserved,
        /// Of two transactions that write a row, the one may commit that has reserved first. So the
        /// final state depends on more than the input.
        first_come,
    }
    pub const FAULTS;
}

/// The places where the algorithm asks for its faults.
impl<M: Machine, F: AriaFaults> Aria<M, F> {
    /// Returns the conflicts that count: all, without a fault.
    #[inline(always)]
    fn believes(found: Conflicts) -> Conflicts {
        Conflicts { waw: found.waw && !F::ignore_waw(), raw: found.raw && !F::ignore_raw(), ..found }
    }

    /// Reserves a cell for a transaction that writes it.
    #[inline(always)]
    fn reserve_write(cell: Cell<M>, ticket: u64) {
        let word = writer(cell);
        if !F::first_come() {
            return reserve::<M>(word, ticket);
        }
        // Relaxed: as in `reserve`.
        let held = word.load(Ordering::Relaxed);
        if held >> BATCH_SHIFT < ticket >> BATCH_SHIFT {
            // Relaxed, both: as in `reserve`. If it fails, another of the batch was faster.
            _ = word.compare_exchange(held, ticket, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether another transaction may write the cell, and this one may not: an earlier one,
    /// without a fault.
    #[inline(always)]
    fn is_lost(cell: Cell<M>, ticket: u64) -> bool {
        let word = writer(cell);
        // Relaxed: as in `is_behind`.
        if F::first_come() { word.load(Ordering::Relaxed) != ticket } else { is_behind::<M>(word, ticket) }
    }

    /// Returns whether reads are reserved: always, without a fault.
    #[inline(always)]
    fn keeps_reads() -> bool {
        !F::forget_reads()
    }

    /// Returns whether gaps are reserved: always, without a fault.
    #[inline(always)]
    fn keeps_gaps() -> bool {
        !F::forget_gap_reservations()
    }

    /// Returns whether a transaction is ready before its reservations: not without a fault.
    #[inline(always)]
    fn reserves_late() -> bool {
        F::reserve_late()
    }

    /// Returns whether a transaction waits for the batch before: always, without a fault.
    #[inline(always)]
    fn waits_for_installs() -> bool {
        !F::begin_early()
    }

    /// Returns whether the collector ignores reservations: not without a fault.
    #[inline(always)]
    fn unlinks_reserved() -> bool {
        F::unlink_reserved()
    }
}
