//! Bamboo: two-phase locking that retires locks early, so that other transactions read uncommitted
//! rows.
//!
//! **Idea.** A transaction *retires* the lock of a record as soon as it is done with the record,
//! and exposes its write. The next transaction works on that row before the first has committed. A
//! transaction that has read from another commits after it, and aborts if it aborts. So a hot
//! record is locked for the time of one access, not of a whole transaction.
//!
//! **Paper.** Z. Guo, K. Wu, C. Yan, X. Yu: "Releasing locks as early as you can: reducing
//! contention of hotspots by violating two-phase locking", SIGMOD 2021.
//!
//! | step of the paper | function | what it does |
//! | --- | --- | --- |
//! | LockAcquire, shared | `read` | copies the row under the latch, and retires at once |
//! | LockAcquire, exclusive | `write` | holds the cell; copies the row if it is read |
//! | LockRetire | `expose` | at the next access: saves the before-image, installs, retires |
//! | a second write | `rewrite` | takes an exposed row back: see below |
//! | wait for the semaphore | `wait_for_predecessors` | waits until they have decided |
//! | commit | `commit` | validates the leaves, passes the commit point, decides, installs |
//! | cascading abort | `roll_back` | restores before-images, wounds the later holders |
//! | LockRelease | `end` | releases all locks, grants waiters |
//!
//! To change a row that it has exposed, a transaction makes its lock the newest again, and restores
//! the before-image. All later holders are younger, and are wounded.
//!
//! **Promises** serializability: on each record, transactions take effect in the order in which
//! they hold it. A transaction that is going to abort may see a write of another that aborts too.
//! It sees one state of each cell.
//!
//! **Locks** with lists: [`crate::locking::list`], and `bamboo/locks.rs` for the conditions. Two
//! transactions hold a cell together, in conflicting modes, only if the older of them has retired
//! it. Conflicts are decided by *wound-wait*, as in `2pl-woundwait`. A transaction wounds the
//! younger ones that block it ([`crate::locking::wound`]), and waits for them to end. It waits for
//! older ones to retire. The queue is in the order of age. So among the holders of a cell that
//! conflict, later ones are younger.
//!
//! **Commit point** as in wound-wait, after the wait for all predecessors: the conflicting
//! transactions that acquired a cell earlier. In the paper each predecessor counts a semaphore of
//! its successors down. Here a transaction keeps a list of its predecessors, and looks at their
//! states. A transaction that aborts wounds its successors before its state says that it has ended.
//! So a successor that has seen the end of the wait fails in the exchange at its commit point.
//!
//! **Waits** are of younger transactions for older ones, or for transactions that are wounded or
//! past their commit point: no cycle. No transaction starves: one that was wounded retains its
//! timestamp.
//!
//! **Phantoms** as in all locking here: misses and scans observe leaf versions. The commit
//! validates them after the wait for the predecessors, so it sees the predecessors' inserts.
//!
//! **Departures from the paper.** Inserts, deletes and commit-time updates are not exposed before
//! the commit. Nor is the last write of a transaction, which commits next; the paper's parameter
//! for that needs to know the number of accesses. Timestamps are allotted at the beginning.
//! Allotting them at the first conflict, as in the paper, halved the throughput on our simulated
//! chip at a Zipf theta of 0.9. An older reader wounds a younger writer instead of reading the
//! writer's before-image.

mod locks;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::{AddressMap, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, Groups, Leaf, Located, NamedProtocol, Projection, Protocol,
    ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode,
};
use contend_machine::{Machine, Spin};

use self::locks::AfterUse;
use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::{self, ABSENT, UNLINKED};
use crate::locking::list::{self, LatchedCell, ListWord, LockOwner, Pool, Request, RequestHandle, Requests};
use crate::locking::wound::{TransactionStates, WoundFaults};
use crate::locking::{LockMode, LockWord, info};
use crate::method::timestamp::{Outcome, RetainedTimestamp, TimestampOptions, Timestamps};
use crate::method::wait::LOCK_WAITS_MAX;

/// The protocol.
#[derive(Debug)]
pub struct Bamboo<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    states: TransactionStates<M>,
    pool: Pool<M>,
    faults: PhantomData<fn() -> F>,
}

/// A cell whose new row other transactions see before the commit.
#[derive(Debug)]
struct Exposed<M: Machine> {
    /// The position in the write set.
    position: usize,
    cell: Cell<M>,
    /// Its number in the record.
    number: usize,
    /// The start of its before-image in [`BambooWorker::before_images`].
    start: usize,
}

/// A worker's state.
#[derive(Debug)]
pub struct BambooWorker<M: Machine> {
    /// The running transaction.
    own: LockOwner,
    timestamp: RetainedTimestamp<M>,
    requests: Requests<M>,
    /// The position in `held` of each cell, by its address.
    positions: AddressMap,
    held: Vec<(Cell<M>, RequestHandle<M>)>,
    /// The transactions that must decide before this one commits.
    predecessors: Vec<LockOwner>,
    /// The entries of the write set before this position are complete: they are exposed, or are not
    /// until the commit.
    complete: usize,
    /// The exposed cells, in the order of the write set.
    exposed: Vec<Exposed<M>>,
    /// The before-images of the exposed cells, word by word.
    before_images: Vec<u64>,
}

impl<M: Machine> BambooWorker<M> {
    /// Returns the request by which the transaction holds the cell.
    fn request(&self, cell: Cell<M>) -> Option<RequestHandle<M>> {
        self.positions.find(cell.address()).map(|position| self.held[position].1)
    }

    fn push(&mut self, cell: Cell<M>, request: RequestHandle<M>) {
        self.positions.push(cell.address());
        self.held.push((cell, request));
    }
}

impl<M: Machine, F: BambooFaults> Bamboo<M, F> {
    /// Exposes all writes so far. They are complete, because the transaction goes on to another
    /// record.
    #[inline(always)]
    fn expose(&self, cx: &mut Context<M>, local: &mut BambooWorker<M>) -> Result<(), Abort> {
        self.expose_up_to(cx, local, cx.writes.len())
    }

    /// Exposes the writes before position `end` of the write set.
    #[inline(always)]
    fn expose_up_to(&self, cx: &mut Context<M>, local: &mut BambooWorker<M>, end: usize) -> Result<(), Abort> {
        while local.complete < end {
            let position = local.complete;
            local.complete += 1;
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Update && write.merged().is_empty() {
                M::step("retire");
                self.expose_row(cx, local, position)?;
            }
        }
        Ok(())
    }

    /// Saves the before-image of a row's cells, installs the new row, and retires the cells.
    fn expose_row(&self, cx: &mut Context<M>, local: &mut BambooWorker<M>, position: usize) -> Result<(), Abort> {
        let write = &cx.writes.entries()[position];
        let (cells, numbers) = (write.cells(), write.table().cell_numbers(write.groups()));
        let (mut images, mut exposed) = (std::mem::take(&mut local.before_images), std::mem::take(&mut local.exposed));
        let done = self.use_held(local, cells.clone(), AfterUse::Retire, || {
            for (cell, number) in cells.zip(numbers) {
                exposed.push(Exposed { position, cell, number, start: images.len() });
                cx.writes.save(position, number, &mut images);
            }
            cx.writes.expose(position);
        });
        (local.before_images, local.exposed) = (images, exposed);
        done
    }

    /// Restores the before-image of an exposed cell. Each later holder has read the exposed row, or
    /// written on top of it: its access becomes void, and it is wounded.
    ///
    /// If this transaction's own access is void, an earlier holder has rolled back past it, and
    /// there is nothing to restore.
    fn roll_back(&self, cx: &Context<M>, local: &BambooWorker<M>, exposed: &Exposed<M>) {
        M::step("undo");
        let request = local.request(exposed.cell).expect("the cell is held");
        let latched = LatchedCell::latch(exposed.cell);
        if !request.has(Request::<M>::VOID) {
            cx.writes.restore(exposed.position, exposed.number, &local.before_images[exposed.start..]);
            request.change(0, Request::<M>::VOID);
            for other in latched.later_holders(&request).filter(|_| Self::aborts_cascade()) {
                other.change(0, Request::<M>::VOID);
                self.states.wound(other.owner());
            }
        }
        latched.unlatch();
    }

    /// Waits until all predecessors have decided: the writers of the rows that this transaction has
    /// read or overwritten, and the readers of the rows that it has overwritten.
    ///
    /// Each of them is older, wounded, or past its commit point, so the waits form no cycle. If one
    /// of them aborts, it has wounded this transaction before its end is seen here.
    fn wait_for_predecessors(&self, local: &mut BambooWorker<M>) -> Result<(), AbortReason> {
        let mut spin = Spin::<M>::new();
        while let Some(&other) = local.predecessors.last().filter(|_| Self::waits_for_predecessors()) {
            if self.states.has_decided(other) {
                local.predecessors.pop();
                continue;
            }
            M::step("wait for commit");
            self.states.check::<F>(local.own)?;
            if spin.count() > LOCK_WAITS_MAX {
                return Err(AbortReason::LockTimeout);
            }
            spin.wait();
        }
        Ok(())
    }
}

impl<M: Machine, F: BambooFaults> NamedProtocol<M> for Bamboo<M, F> {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: ProtocolInfo = info(
        "bamboo",
        "two-phase locking by wound-wait that retires locks early: others go on with what is not committed yet",
        "Guo, Wu, Yan, Yu: Releasing locks as early as you can, SIGMOD 2021",
    );
    type Options = TimestampOptions;

    fn new(options: TimestampOptions) -> Self {
        let timestamps = Timestamps::new(options, 0);
        Bamboo { timestamps, states: TransactionStates::new(0), pool: Pool::default(), faults: PhantomData }
    }
}

impl<M: Machine, F: BambooFaults> Protocol<M> for Bamboo<M, F> {
    type WorkerState = BambooWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        list::check_workers(workers);
        self.timestamps = self.timestamps.resized(workers);
        self.states = TransactionStates::new(workers);
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        BambooWorker {
            own: LockOwner { worker, timestamp: 0, transaction: self.states.last_number(worker) },
            timestamp: RetainedTimestamp::new(self.timestamps.of_worker(worker)),
            requests: Requests::new(&self.pool),
            positions: AddressMap::default(),
            held: Vec::with_capacity(64),
            predecessors: Vec::with_capacity(64),
            complete: 0,
            exposed: Vec::with_capacity(64),
            before_images: Vec::new(),
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        flags::initial(cells, initial, ListWord::init);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        local.own.transaction += 1;
        local.own.timestamp = local.timestamp.begin();
        self.states.begin(local.own.worker, local.own.transaction);
        local.predecessors.clear();
        local.exposed.clear();
        local.before_images.clear();
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
        self.expose(cx, local)?;
        M::step("lock shared");
        if self.use_free(local, at.only_cell(columns.groups()), LockMode::Shared, || cx.copy_row(at, columns))? {
            return Ok(RecordState::Row);
        }
        let cells = at.cells(columns.groups());
        let Some(flags) = self.acquire(local, cells.clone(), LockMode::Shared)? else {
            return Ok(RecordState::Unlinked);
        };
        // A cell that the transaction also writes is retired at the next access, with the new row.
        let writes = cells.clone().any(|cell| local.request(cell).is_some_and(|request| request.is_exclusive()));
        let then = if writes { AfterUse::Keep } else { AfterUse::Retire };
        self.use_held(local, cells, then, || cx.copy_row(at, columns))?;
        Ok(flags::found(flags))
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
        self.expose(cx, local)?;
        let cells = at.cells(groups);
        if mode == WriteMode::CommitTimeUpdate {
            // A look without a lock: the commit acquires the cells, and looks again.
            return if cells.clone().any(|cell| ListWord::flags(cell) & (ABSENT | UNLINKED) != 0) {
                // A miss needs a shared lock to stay one. If the record has a row by now, the lock
                // is not needed and does no harm.
                self.read(cx, local, at, Projection::columns(&[], groups))
            } else {
                Ok(RecordState::Row)
            };
        }
        let reads = matches!(mode, WriteMode::ReadModifyWrite | WriteMode::Delete);
        let mut copy = |flags: u64| {
            if flags & ABSENT != 0 {
                cx.copy_row(at, Projection::EXISTENCE);
            } else if reads {
                cx.copy_row(at, Projection::of_groups(groups));
            }
        };
        M::step("lock exclusive");
        if self.use_free(local, at.only_cell(groups), LockMode::Exclusive, || copy(0))? {
            return Ok(RecordState::Row);
        }
        let Some(flags) = self.acquire(local, cells.clone(), LockMode::Exclusive)? else {
            return Ok(RecordState::Unlinked);
        };
        self.use_held(local, cells, AfterUse::Keep, || copy(flags))?;
        Ok(flags::found(flags))
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        for cell in at.cells(Groups::ALL) {
            let request = list::adopt_placeholder(&mut local.requests, local.own, cell);
            local.push(cell, request);
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
            // The entry is not exposed yet. The transaction changes it again, so it is left to the
            // commit.
            self.expose_up_to(cx, local, position)?;
            local.complete = position + 1;
            return Ok(());
        }
        let entry = |exposed: &Exposed<M>| exposed.position.cmp(&position);
        let Ok(any) = local.exposed.binary_search_by(entry) else { return Ok(()) };
        M::step("take back");
        let first = local.exposed[..any].partition_point(|exposed| exposed.position < position);
        let end = first + local.exposed[first..].partition_point(|exposed| exposed.position == position);
        let cells = cx.writes.entries()[position].cells();
        self.acquire(local, cells.clone(), LockMode::Exclusive)?;
        let (images, mut exposed) = (std::mem::take(&mut local.before_images), std::mem::take(&mut local.exposed));
        let done = self.use_held(local, cells, AfterUse::Keep, || {
            for exposed in exposed.drain(first..end) {
                cx.writes.restore(position, exposed.number, &images[exposed.start..]);
            }
        });
        (local.before_images, local.exposed) = (images, exposed);
        done
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        // The locks of commit-time updates. They come first, because they add predecessors.
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let merged = write.merged();
            if merged.is_empty() {
                continue;
            }
            M::step("lock exclusive");
            let cells = write.table().cells(write.record, merged);
            let acquired = self.acquire(local, cells.clone(), LockMode::Exclusive);
            let flags = acquired.map_err(|abort| cx.conflict_at_write(position, merged, abort))?;
            if flags.is_none_or(|flags| flags & ABSENT != 0) {
                return Err(cx.conflict_at_write(position, merged, Abort::new(AbortReason::RecordGone)));
            }
            self.use_held(local, cells, AfterUse::Keep, || ())?;
        }
        // No predecessor can be added from here on: the transaction acquires nothing more.
        self.wait_for_predecessors(local).map_err(Abort::new)?;
        if !cx.nodes.is_empty() {
            M::step("validate");
            // SeqCst: pairs with itself. This transaction's inserts into the index come before its
            // loads of the leaf versions that it observed, as in `TwoPhase`.
            dekker_fence::<M, F>();
            cx.nodes.validate()?;
        }
        // Updates can panic, and so abort: they come before the commit point.
        cx.writes.apply_updates();
        self.states.commit_point::<F>(local.own).map_err(Abort::new)?;
        M::step("install");
        // This comes before any transaction can commit that has seen the exposed rows.
        if !local.exposed.is_empty() {
            cx.writes.will_commit();
        }
        // Successors may commit from here on, before the writes below are installed. They have seen
        // the exposed rows only: the cells of all other writes are locked exclusively until `end`.
        self.states.decide(local.own);
        let mut exposed = local.exposed.iter().map(|exposed| exposed.position).peekable();
        for position in 0..cx.writes.len() {
            if exposed.peek() == Some(&position) {
                while exposed.next_if_eq(&position).is_some() {}
            } else {
                flags::install_held(cx, position, ListWord::set_flags);
            }
        }
        self.end(local, Outcome::Finished);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        // Other transactions acquire an exposed cell under its latch. One that does so before the
        // roll-back is void after it; one that does so later sees the before-image.
        for exposed in local.exposed.iter().rev() {
            self.roll_back(cx, local, exposed);
        }
        self.end(local, Outcome::of_abort(reason));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        flags::unlink_held(tombstone, ListWord::try_acquire_exclusive, ListWord::release_exclusive)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        ListWord::flags(record.first_cell()) & ABSENT != 0
    }
}

faults! {
    /// The deliberate faults of Bamboo.
    pub trait BambooFaults: WoundFaults {
        /// A transaction that has read uncommitted data does not wait for the transaction that
        /// wrote it to decide.
        forget_predecessors,
        /// A transaction that aborts does not wound the transactions that have read its writes.
        forget_dependents,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<M: Machine, F: BambooFaults> Bamboo<M, F> {
    /// Returns whether a transaction commits after its predecessors: always, without a fault.
    #[inline(always)]
    fn waits_for_predecessors() -> bool {
        !F::forget_predecessors()
    }

    /// Returns whether an abort wounds the later holders: always, without a fault.
    #[inline(always)]
    fn aborts_cascade() -> bool {
        !F::forget_dependents()
    }
}
