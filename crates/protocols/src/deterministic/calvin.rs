//! Calvin: locks are granted in the order of the sequence.
//!
//! **Idea.** A transaction declares the rows that it will touch before it begins, and the sequencer
//! gives it a place. All transactions of a batch ask for their locks, each in the mode it needs. A
//! lock is granted in the order of the places. So a transaction waits for the earlier ones that
//! conflict with it, and for no other. Along a chain of waits the places fall, so there is no
//! deadlock. No transaction aborts because of another.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | sequencing layer: a batch, in an order | [`Rounds`] |
//! | the lock manager enters all requests of a transaction, in the order of the sequence | `begin`: `ask` |
//! | a transaction executes when it has been granted all its locks | `begin`: `wait_for_earlier` |
//! | execute without further locks | `read`, `write`: [`crate::alone`] |
//! | release the locks | `commit`, `abort`: [`Rounds::reach_done`] |
//!
//! **Paper.** A. Thomson, T. Diamond, S.-C. Weng, K. Ren, P. Shao, D. J. Abadi: "Calvin: fast
//! distributed transactions for partitioned database systems", SIGMOD 2012.
//!
//! **Promises** serializability, in the order of the sequence. The same input gives the same final
//! state with any number of threads ([`crate::deterministic`]).
//!
//! **What is locked.** A transaction that declares rows locks these, by their keys: keys without a
//! row as well, so an insert, a miss and a delete conflict as other accesses do. It may touch no
//! other key, nor scan a range of which it has not declared each key
//! ([`AbortReason::Undeclared`](contend_engine::AbortReason::Undeclared)). A transaction that
//! declares partitions locks these, and is trusted as under H-Store. One that declares nothing
//! locks everything. Of two kinds of declarations that meet in a batch, the later one waits for
//! every earlier one.
//!
//! **Metadata.** One word for each cell, the flags of [`crate::alone`]. The requests stand in lists
//! of their own: [`requests`].
//!
//! **Commit point.** The end of all earlier transactions that conflict. Nothing can fail
//! afterwards but the transaction's own code, and the log where it holds rows.
//!
//! **Waits** are for the requests of the batch to be complete, and then for earlier transactions.
//!
//! **Phantoms.** Absent keys are locked like others.
//!
//! **Departures from the paper.** There is one node, and no lock manager thread: each worker enters
//! its own requests. The queue of a lock is a list in any order, because each request has its place
//! with it, and no lock is granted before the batch has asked for all. A batch has one transaction
//! of each worker, where the paper's has those of ten milliseconds. Reconnaissance of keys that
//! stand in other rows is not built: such a transaction declares partitions, or runs under
//! [`crate::deterministic::aria`].

mod requests;

use std::marker::PhantomData;

use contend_engine::{
    Abort, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located, NamedProtocol, Projection,
    Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode, options,
};
use contend_machine::Machine;

use super::rounds::{Member, Rounds, RoundsOptions, Wait};
use crate::alone::{self, LockedTombstones};
use crate::fault::Sound;
use crate::faults;
use crate::flags::{self, ABSENT};
use requests::{Kind, Lock, Requests};

options! {
    /// Calvin's options.
    pub struct CalvinOptions {
        flatten rounds: RoundsOptions;
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Calvin<M: Machine, F = Sound> {
    rounds: Rounds<M>,
    requests: Requests<M>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct CalvinWorker<M: Machine> {
    member: Member,
    kind: Kind,
    /// The locks of the running transaction.
    locks: Vec<Lock>,
    /// The workers whose transactions of the batch the running one waits for.
    earlier: Vec<usize>,
    tombstones: LockedTombstones<M>,
}

impl<M: Machine, F: CalvinFaults> Calvin<M, F> {
    /// Finds out what the transaction locks.
    fn locks_of(cx: &Context<M>, local: &mut CalvinWorker<M>) {
        local.locks.clear();
        for row in cx.declaration.rows() {
            let (table, key) = row.table_and_key();
            local.locks.push(Lock::of_row(table, key, row.writes && !F::share_writes()));
        }
        local.kind = Kind::Rows;
        if local.locks.is_empty() {
            local.locks.extend(cx.declaration.partitions().iter().map(|number| Lock::of_partition(*number)));
            local.kind = if local.locks.is_empty() { Kind::Everything } else { Kind::Partitions };
        }
        if F::ask_for_one() {
            local.locks.truncate(1);
        }
        if local.locks.len() > requests::MOST {
            local.locks.clear();
            local.kind = Kind::Everything;
        }
    }

    /// Waits until all earlier transactions of the batch that conflict have ended.
    fn wait_for_earlier(&self, local: &mut CalvinWorker<M>) -> Result<(), Abort> {
        M::step("wait for earlier transactions");
        let end = local.member.batch_end();
        for &worker in &local.earlier {
            let mut wait = Wait::new();
            while !self.rounds.is_past(worker, end) {
                self.rounds.go_on(&mut local.member, &mut wait)?;
            }
        }
        Ok(())
    }
}

impl<M: Machine, F: CalvinFaults> NamedProtocol<M> for Calvin<M, F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "calvin",
        summary: "deterministic: locks on declared rows or partitions, granted in the order of a sequence",
        paper: "Thomson et al.: Calvin: fast distributed transactions for partitioned database systems, SIGMOD 2012",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::RowsOrPartitions,
    };
    const DETERMINISTIC: Option<&'static str> = Some("rounds.patience_us=0");
    type Options = CalvinOptions;

    fn new(options: CalvinOptions) -> Self {
        Calvin { rounds: Rounds::new(&options.rounds), requests: Requests::new(0), faults: PhantomData }
    }
}

impl<M: Machine, F: CalvinFaults> Protocol<M> for Calvin<M, F> {
    type WorkerState = CalvinWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.rounds.prepare(workers);
        self.requests = Requests::new(workers);
    }

    fn new_worker_state(&self, worker: usize) -> CalvinWorker<M> {
        let (locks, earlier, tombstones) = (Vec::with_capacity(64), Vec::new(), LockedTombstones::default());
        CalvinWorker { member: self.rounds.member(worker), kind: Kind::Everything, locks, earlier, tombstones }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        flags::init_words(cells, initial, ABSENT);
    }

    fn begin(&self, cx: &mut Context<M>, local: &mut CalvinWorker<M>) -> Result<(), Abort> {
        Self::locks_of(cx, local);
        self.rounds.begin(&mut local.member);
        let (batch, ready) = (local.member.batch(), local.member.ready());
        // All have asked in the batch before, so all have looked at the lists of the one before
        // that, which are filled anew now. A worker that gave up its waits can be ahead.
        self.rounds.wait(&mut local.member, ready.saturating_sub(2))?;
        if F::ask_late() {
            self.rounds.reach_ready(&mut local.member);
        }
        M::step("ask for locks");
        self.requests.ask(cx.worker, batch, local.kind, &local.locks);
        self.rounds.reach_ready(&mut local.member);
        self.rounds.wait(&mut local.member, ready)?;
        local.earlier.clear();
        self.requests.earlier::<F>(cx.worker, batch, local.kind, &local.locks, &mut local.earlier);
        self.wait_for_earlier(local)
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        _: &mut CalvinWorker<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        Ok(alone::read(cx, at, columns))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut CalvinWorker<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        if mode != WriteMode::Insert {
            return Ok(alone::write(cx, at, groups, mode));
        }
        Ok(local.tombstones.lock(at))
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        _: &mut CalvinWorker<M>,
        _: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    // A gap needs no version: its keys are locked.
    #[inline(always)]
    fn observe_leaf(
        &self,
        _: &mut Context<M>,
        _: &mut CalvinWorker<M>,
        _: u32,
        _: Leaf<M>,
        _: u64,
    ) -> Result<(), Abort> {
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut CalvinWorker<M>) -> Result<(), Abort> {
        if F::end_early() {
            self.rounds.reach_done(&mut local.member);
        }
        alone::install_all(cx);
        local.tombstones.unlock_all();
        if !F::end_early() {
            self.rounds.reach_done(&mut local.member);
        }
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut CalvinWorker<M>, _: contend_engine::AbortReason) {
        // Before the locks are given up: the next holder may insert the same key.
        local.tombstones.unlock_all();
        if local.member.is_running() {
            self.rounds.reach_done(&mut local.member);
        }
    }

    fn go_offline(&self, _: &mut Context<M>, local: &mut CalvinWorker<M>) {
        self.rounds.leave(&mut local.member);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        alone::unlink(tombstone, |_| false)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of Calvin.
    pub trait CalvinFaults {
        /// A transaction asks for the first of its locks only.
        ask_for_one,
        /// Rows that a transaction writes are locked in shared mode.
        share_writes,
        /// A writer does not wait for earlier readers.
        pass_readers,
        /// A transaction says that it is ready before it has asked.
        ask_late,
        /// A transaction ends before it has installed its writes.
        end_early,
        /// A transaction ignores those of its batch that have declared in another way.
        ignore_kinds,
        /// Of two transactions that ask for a lock, the one comes first that has asked first. So
        /// the final state depends on more than the input.
        grant_by_arrival,
    }
    pub const FAULTS;
}
