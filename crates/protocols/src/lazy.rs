//! Deterministic lazy evaluation: a transaction is decided at once, and most of it runs later.
//!
//! **Idea.** A transaction has two parts. The part that comes *now* decides whether the transaction
//! commits: it has the checks, and the few rows that all transactions want. The *later* part has
//! the rest, and its rows are known when the first part ends. The first parts run one after the
//! other, and that is the order of the transactions. At the *border* between the parts a
//! transaction asks for the rows of its later part, and lets the next one begin. So the later parts
//! of many transactions run side by side, each as soon as the earlier ones have left its rows.
//!
//! ```text
//! worker 1   [ now | border ]  later ...........
//! worker 2                  [ now | border ]  later ........
//! worker 3                                 [ now | border ]  (waits for a row)  later ....
//! ```
//!
//! | step of the paper | function |
//! | --- | --- |
//! | the sequencer: first parts one after the other | [`Sequence`] |
//! | a read now, of a row that is still to be written | `read`, `write`: [`requests::await_writer`] |
//! | leave stickies: the rows of the later part, in the order of the sequence | `begin_later`: [`Requests::ask`] |
//! | the later part runs when its reads are there | `begin_later`: [`Requests::await_grants`] |
//! | fill the stickies in | `commit` |
//!
//! **Paper.** J. M. Faleiro, A. Thomson, D. J. Abadi: "Lazy evaluation of transactions in database
//! systems", SIGMOD 2014; as the rival of IC3 in Z. Wang et al., SIGMOD 2016, section 6.4.
//!
//! **Promises** serializability, in the order of the sequence. A transaction says where its later
//! part begins by [`Txn::later`](contend_model::Txn::later). One that does not call it comes now as
//! a whole, so such transactions run one after the other.
//!
//! **The part that comes now** takes the turn at its first access and holds it. It reads the newest
//! rows. If an earlier transaction has still to write a row, it waits for that transaction's end,
//! and before a write also for the earlier readers. Deletes and scans belong here, and so does the
//! application's own cancel. Rows that are known beforehand may be named before the first access:
//! they are looked up, and their lines fetched, while others have the turn.
//!
//! **The border.** The transaction is decided. Its writes so far are installed, but for those of
//! rows that the later part will write: these stay hidden, because other transactions have to wait
//! for them. Then the transaction asks for its rows ([`requests`]) and passes the turn on. Some
//! transactions keep the turn until their end instead, and install everything there. These have
//! named a row that does not exist, and that a later transaction could insert; or their later part
//! reads what the first one has written.
//!
//! **The later part** touches the named rows, and inserts new keys into the named ranges
//! ([`inserts`]). Anything else is an error that names table and key
//! ([`AbortReason::Undeclared`]). A cancel there comes too late, and is the same error. Then what
//! the border has installed stays, and is logged; all else is dropped.
//!
//! **Metadata.** Four words for each cell: the flags of [`crate::alone`], and the requests.
//!
//! **Commit point.** The border, or the commit of a transaction that keeps the turn. A log counts
//! the transaction to the epoch of that moment. Each transaction that sees its writes passes its
//! own border later, and so counts to the same epoch or to a later one.
//!
//! **Waits** are for the turn, whose holder waits for nothing but earlier transactions, and for
//! earlier transactions. All of them pass the border before, so they end. There is no deadlock, and
//! no transaction aborts because of another. But a thread may have two transactions open. So
//! a wait for the turn is given up after a second.
//!
//! **Phantoms.** Scans and misses hold the turn, so no other transaction comes or goes meanwhile.
//! What earlier later parts will insert is known by its range of keys, and is waited for.
//!
//! **Departures from the paper.** The worker that ran the first part runs the later part as well,
//! so nothing stays undone for ever, and no read has to run another transaction's code. There is no
//! sequencer thread, no batch and no limit on the length of a chain: each worker comes by in its
//! turn. A request is a number in the row, not a version of its own, so later parts that write a
//! row run one after the other even if no one reads between them. The sequence is the order of
//! arrival. So the same input may leave another state in another run, unlike under
//! [`crate::deterministic`].

mod inserts;
mod requests;
mod sequence;

use std::marker::PhantomData;

use contend_engine::declaration::{DeclaredRow, NamedRange};
use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, NamedProtocol,
    Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode, key_of,
    options,
};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::alone::{self, LockedTombstones};
use crate::fault::Sound;
use crate::faults;
use crate::flags::{self, ABSENT};
use inserts::PendingInserts;
use requests::Requests;
use sequence::{Known, Sequence};

options! {
    /// There is nothing to choose.
    pub struct LazyOptions {}
}

/// The protocol.
#[derive(Debug)]
pub struct Lazy<M: Machine, F = Sound> {
    sequence: Sequence<M>,
    inserts: PendingInserts<M>,
    faults: PhantomData<fn() -> F>,
}

/// The part of a transaction that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// None: it has not touched a row yet, or has waited for the turn in vain.
    None,
    /// The part that comes now, which holds the turn.
    Now,
    /// The later part.
    Later,
    /// The later part of a transaction that has kept the turn.
    LaterInTurn,
}

/// A worker's state.
#[derive(Debug)]
pub struct LazyWorker<M: Machine> {
    part: Part,
    /// The running transaction's number in the sequence.
    number: u64,
    known: Known,
    requests: Requests<M>,
    /// The positions of writes that wait for the end of the later part.
    hidden: Vec<usize>,
    /// The number of entries of the write set when the border was passed.
    seen: usize,
    tombstones: LockedTombstones<M>,
}

impl<M: Machine, F: LazyFaults> Lazy<M, F> {
    /// Waits for the turn, unless the transaction has it or has had it.
    #[inline(always)]
    fn take_turn(&self, worker: usize, local: &mut LazyWorker<M>) -> Result<(), Abort> {
        if local.part == Part::None { self.await_turn(worker, local) } else { Ok(()) }
    }

    #[inline(never)]
    fn await_turn(&self, worker: usize, local: &mut LazyWorker<M>) -> Result<(), Abort> {
        M::step("wait for the turn");
        local.number = self.sequence.await_turn(worker)?;
        local.part = Part::Now;
        Ok(())
    }

    /// Installs what the first part has written, but for the rows that the later part will write.
    fn install_now(cx: &mut Context<M>, local: &mut LazyWorker<M>) {
        local.hidden.clear();
        local.seen = cx.writes.len();
        for position in 0..local.seen {
            let record = cx.writes.entries()[position].record;
            if cx.declaration.rows().iter().any(|row| row.writes && row.record() == Some(record)) {
                local.hidden.push(position);
            } else {
                // An update is code of the application and may panic: nothing is installed yet.
                cx.writes.merge(position);
            }
        }
        // Also if nothing is installed now: a transaction that waits for the later part commits
        // later. One that only reads has nothing to wait for.
        let (rows, ranges) = (cx.declaration.rows(), cx.declaration.insert_ranges());
        if local.seen > 0 || !ranges.is_empty() || rows.iter().any(|row| row.writes) {
            cx.writes.will_commit();
        }
        M::step("install");
        let mut hidden = local.hidden.iter().copied().peekable();
        for position in 0..local.seen {
            if hidden.next_if_eq(&position).is_none() {
                alone::install(cx, position);
                cx.writes.entries_mut()[position].stays = true;
            }
        }
        if local.hidden.is_empty() {
            local.tombstones.unlock_all();
        }
    }

    /// Installs what the border has not installed.
    fn install_rest(cx: &mut Context<M>, local: &mut LazyWorker<M>) {
        cx.writes.apply_updates();
        M::step("install");
        local.hidden.drain(..).for_each(|position| alone::install(cx, position));
        (local.seen..cx.writes.len()).for_each(|position| alone::install(cx, position));
    }

    /// Whether the turn can be passed on: all rows that were named exist and stay, so that no later
    /// transaction can insert one of them, and the later part uses nothing that the border shows. A
    /// row that was named before the turn may have come since, or have moved to another record; it
    /// counts as missing.
    fn all_stay(cx: &Context<M>) -> bool {
        let writes = &cx.writes;
        let stays = |row: &DeclaredRow<M>| {
            row.record().is_some_and(|record| {
                // Relaxed: only a holder of the turn inserts or deletes here, or a later part that
                // the accesses wait for. A collector leaves rows alone.
                record.word().load(Ordering::Relaxed) & ABSENT == 0
                    && writes.find(record).is_none_or(|at| row.writes && writes.entries()[at].kind != WriteKind::Delete)
            })
        };
        // A key that was deleted may be inserted again.
        let comes_again = |at: usize| {
            let write = &writes.entries()[at];
            let (table, key) = (write.table().id(), key_of(writes.key(at)));
            matches!(write.kind, WriteKind::Delete | WriteKind::Nothing)
                && cx.declaration.insert_ranges().iter().any(|range| range.has(table, &key))
        };
        cx.declaration.rows().iter().all(stays) && !(0..writes.len()).any(comes_again)
    }

    /// Asks for the rows and ranges of the later part.
    fn ask(&self, cx: &mut Context<M>, local: &mut LazyWorker<M>) {
        M::step("ask for rows");
        let ticket = sequence::ticket(local.number, cx.worker);
        local.requests.clear();
        // Sorted, because that drops rows that were named twice: the transaction would wait for
        // itself.
        for row in cx.declaration.sorted_rows() {
            let Some(cells) = row.cells() else { continue };
            for cell in cells {
                local.requests.ask::<F>(cell, ticket, row.writes && !F::share_writes());
            }
        }
        for range in cx.declaration.insert_ranges() {
            self.inserts.add(&self.sequence, &mut local.known, ticket, range, &mut local.requests);
        }
    }

    /// Passes the turn on, at the end of the first part.
    fn pass_border(&self, local: &mut LazyWorker<M>) {
        local.part = Part::Later;
        self.sequence.pass_turn(local.number);
    }

    /// Ends the running transaction: others may use the rows of its later part.
    fn end(&self, worker: usize, local: &mut LazyWorker<M>) {
        if local.part == Part::Later {
            local.requests.release();
            self.sequence.end(worker, local.number);
        }
        if matches!(local.part, Part::Now | Part::LaterInTurn) {
            self.sequence.pass_turn(local.number);
        }
    }
}

impl<M: Machine, F: LazyFaults> NamedProtocol<M> for Lazy<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "lazy",
        summary: "deterministic lazy evaluation: transactions are decided one after the other, and the rest runs later",
        paper: "Faleiro, Thomson, Abadi: Lazy evaluation of transactions in database systems, SIGMOD 2014",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    // The later part still runs when others see the writes of the first one.
    const SHOWS_UNCOMMITTED: bool = true;
    type Options = LazyOptions;

    fn new(_: LazyOptions) -> Self {
        Lazy { sequence: Sequence::new(0), inserts: PendingInserts::new(0), faults: PhantomData }
    }
}

impl<M: Machine, F: LazyFaults> Protocol<M> for Lazy<M, F> {
    type WorkerState = LazyWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        requests::META_WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.sequence = Sequence::new(workers);
        self.inserts = PendingInserts::new(workers);
    }

    // Not of what comes before the begin. But a declaration is cleared only for a protocol that
    // uses it, and the rows of the later part stand there.
    fn wants_declarations(&self) -> bool {
        true
    }

    fn new_worker_state(&self, _: usize) -> LazyWorker<M> {
        LazyWorker {
            part: Part::None,
            number: 0,
            known: self.sequence.known(),
            requests: Requests::new(),
            hidden: Vec::with_capacity(16),
            seen: 0,
            tombstones: LockedTombstones::default(),
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        cells.clone().for_each(requests::init);
        flags::init_words(cells, initial, ABSENT);
    }

    fn begin(&self, _: &mut Context<M>, local: &mut LazyWorker<M>) -> Result<(), Abort> {
        local.part = Part::None;
        // A transaction that failed behind its border has left them.
        local.hidden.clear();
        local.seen = 0;
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut LazyWorker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        self.take_turn(cx.worker, local)?;
        if local.part != Part::Later && !F::ignore_writers() {
            for cell in at.cells(columns.groups()) {
                requests::await_writer(cell, &self.sequence, &mut local.known);
            }
        }
        Ok(alone::read(cx, at, columns))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut LazyWorker<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        self.take_turn(cx.worker, local)?;
        if local.part != Part::Later {
            for cell in at.cells(groups) {
                requests::await_writer(cell, &self.sequence, &mut local.known);
                requests::await_readers::<M, F>(cell);
            }
        }
        if mode != WriteMode::Insert {
            return Ok(alone::write(cx, at, groups, mode));
        }
        Ok(local.tombstones.lock(at))
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        _: &mut LazyWorker<M>,
        _: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    // A gap needs no version: a transaction that looks into it holds the turn, and has waited for
    // the inserts of earlier ones. If its first access is a miss, it looks again in its turn
    // (`await_inserts`).
    #[inline(always)]
    fn observe_leaf(&self, _: &mut Context<M>, _: &mut LazyWorker<M>, _: u32, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        Ok(())
    }

    // What the border has installed is shown. Only what it has hidden may change again.
    fn rewrite(&self, _: &mut Context<M>, local: &mut LazyWorker<M>, position: usize) -> Result<(), Abort> {
        let is_shown = local.part != Part::Now && position < local.seen && !local.hidden.contains(&position);
        if is_shown { Err(Abort::new(AbortReason::Undeclared)) } else { Ok(()) }
    }

    fn defers(&self) -> bool {
        true
    }

    fn begin_later(&self, cx: &mut Context<M>, local: &mut LazyWorker<M>) -> Result<(), Abort> {
        self.take_turn(cx.worker, local)?;
        local.requests.clear();
        if !F::keep_no_turn() && !Self::all_stay(cx) || cx.declaration.insert_ranges().len() > inserts::MOST {
            // Nothing needs to be shown now: no other transaction gets the turn before the end.
            local.part = Part::LaterInTurn;
            local.seen = cx.writes.len();
            local.hidden.clear();
            local.hidden.extend(0..local.seen);
            return Ok(());
        }
        if F::pass_before_install() {
            self.pass_border(local);
        }
        // The application's updates may panic here. Then the transaction still has the turn.
        Self::install_now(cx, local);
        if F::pass_before_requests() {
            self.pass_border(local);
        }
        self.ask(cx, local);
        if !F::pass_before_requests() && !F::pass_before_install() {
            self.pass_border(local);
        }
        M::step("wait for rows");
        local.requests.await_grants::<F>(&self.sequence, &mut local.known);
        Ok(())
    }

    fn await_inserts(&self, cx: &mut Context<M>, local: &mut LazyWorker<M>, range: NamedRange) -> Result<bool, Abort> {
        // What was found before the turn may have changed.
        let is_first = local.part == Part::None;
        self.take_turn(cx.worker, local)?;
        // A later part looks into no gap but its own ranges, for which it has waited.
        let waited = local.part != Part::Later
            && !F::forget_inserts()
            && self.inserts.wait(&self.sequence, &mut local.known, &range);
        Ok(waited || is_first && !F::miss_before_turn())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut LazyWorker<M>) -> Result<(), Abort> {
        if F::end_early() && local.part == Part::Later {
            self.end(cx.worker, local);
        }
        match local.part {
            Part::None => {}
            Part::Now => alone::install_all(cx),
            Part::Later | Part::LaterInTurn => Self::install_rest(cx, local),
        }
        local.tombstones.unlock_all();
        if !F::end_early() || local.part != Part::Later {
            self.end(cx.worker, local);
        }
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut LazyWorker<M>, _: AbortReason) {
        // Before the turn is passed on: the next transaction may insert the same key. An abort of
        // the later part is an error, which the engine reports. Others must not wait for ever.
        local.tombstones.unlock_all();
        self.end(cx.worker, local);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        alone::unlink(tombstone, |_| false)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of lazy evaluation.
    pub trait LazyFaults {
        /// A transaction passes the turn on before it has asked for the rows of its later part.
        pass_before_requests,
        /// A transaction passes the turn on before the writes of its first part are installed.
        pass_before_install,
        /// A first part does not wait for earlier transactions that still write the row.
        ignore_writers,
        /// A write does not wait for earlier readers.
        ignore_readers,
        /// Rows that the later part writes are asked for as if it only read them.
        share_writes,
        /// A later part runs before its rows are granted.
        grant_out_of_order,
        /// A transaction looks for the earlier ones after it has asked itself, and so waits for
        /// itself.
        capture_after_own,
        /// A transaction does not wait for what earlier later parts will insert.
        forget_inserts,
        /// A transaction passes the turn on although it has named a row that does not exist.
        keep_no_turn,
        /// A transaction believes that a key has no row because it had none before its turn.
        miss_before_turn,
        /// A transaction ends before it has installed the writes of its later part.
        end_early,
    }
    pub const FAULTS;
}
