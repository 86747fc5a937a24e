//! Bamboo: two-phase locking that retires locks early and lets others read what is not committed yet.
//!
//! **Idea.** A transaction *retires* the lock of a record as soon as it is done with it, and shows what it has written there: the next one
//! works on that, before the first has committed. Who has read from another commits after it, and aborts if it does. So a hot record is
//! held for the time of one access, not for that of a transaction.
//!
//! **Paper.** Z. Guo, K. Wu, C. Yan, X. Yu: "Releasing locks as early as you can: reducing contention of hotspots by violating two-phase
//! locking", SIGMOD 2021.
//!
//! **Promises** serializability: on each record transactions take effect in the order in which they hold it. A transaction that is
//! going to abort may see what another, which aborts, has written; of each cell it sees one state.
//!
//! **Locks** with lists: [`crate::locking::list`]. Two hold a cell together if one at least has retired it and is the older: *wound-wait*, as in
//! `2pl-woundwait`. Who is older than one in its way wounds it ([`crate::locking::wound`]), and waits for it to end; for older ones it waits until
//! they retire. The queue stands in the order of age. So the newest holders of a cell are the youngest of those that conflict.
//!
//! | when | what |
//! | --- | --- |
//! | read | copy the row under the latch, and retire at once |
//! | write | hold the cell; at the next access, when the new row is complete: save the old, install the new, retire |
//! | once more | what was retired is taken back first: all who hold the cell since are younger, and are wounded |
//! | commit | wait until those before it on each cell have decided; validate; install the rest; give back |
//! | abort | put back what was saved, unless the same was done to it; wound those after it; give back |
//!
//! **Commit point** as in wound-wait, after a wait for all conflicting transactions that have held a cell longer. Instead of the paper's
//! semaphores, which each predecessor counts down, a transaction keeps a list of its predecessors and looks at their words: who aborts
//! wounds those after it before its word says that it has ended, so that the exchange at their commit point fails.
//!
//! **Waits** are of the young for the old, or for who is wounded or past its commit point: no cycle. Nobody starves: who was wounded keeps its
//! timestamp.
//!
//! **Phantoms** as in all locking here: misses and scans observe leaf versions. They are validated after the wait for the
//! predecessors, whose inserts, so, are seen.
//!
//! **Departures from the paper.** Inserts, deletes and commit-time updates are not shown before the commit; nor is the last write of a
//! transaction, which commits next (the paper's parameter for that needs to know how many accesses come). Timestamps are allotted
//! at the beginning: at the first conflict, as in the paper, halved the throughput on our chip at theta 0.9. An older reader wounds a
//! younger writer instead of reading what that has saved.

mod locks;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::{AddressMap, WriteKind};
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Leaf, Mode,
    Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::{Machine, Spin};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{self, ABSENT, UNLINKED};
use crate::locking::list::{self, Kept, Latched, Pool, Request, Requests, Ticket, WAITS_MAX};
use crate::locking::wound::Wounds;
use crate::locking::{Held, info};
use crate::method::timestamp::{KeptStamp, TimestampOptions, Timestamps};

/// The protocol.
#[derive(Debug)]
pub struct Bamboo<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    wounds: Wounds<M>,
    pool: Pool<M>,
    faults: PhantomData<fn() -> F>,
}

/// A cell that is shown to others before the commit.
#[derive(Debug)]
struct Shown<M: Machine> {
    /// The position in the write set.
    position: usize,
    cell: Cell<M>,
    /// Its number in the record.
    number: usize,
    /// Where in [`BambooLocal::saved`] is what was there before.
    start: usize,
}

/// A worker's state.
#[derive(Debug)]
pub struct BambooLocal<M: Machine> {
    own: Ticket,
    stamp: KeptStamp<M>,
    requests: Requests<M>,
    positions: AddressMap,
    holdings: Vec<(Cell<M>, Kept<M>)>,
    /// Those who have to decide before this transaction commits.
    predecessors: Vec<Ticket>,
    /// How many entries of the write set were looked at, to be shown.
    complete: usize,
    /// In the order of the write set.
    shown: Vec<Shown<M>>,
    saved: Vec<u64>,
}

impl<M: Machine> BambooLocal<M> {
    fn request(&self, cell: Cell<M>) -> Option<Kept<M>> {
        self.positions.find(cell.address()).map(|position| self.holdings[position].1)
    }
}

impl<M: Machine, F: Faults> Bamboo<M, F> {
    /// Shows what was written up to now: it is complete, since something else comes.
    #[inline(always)]
    fn show(&self, cx: &mut Context<M>, local: &mut BambooLocal<M>) -> Result<(), Abort> {
        self.show_up_to(cx, local, cx.writes.len())
    }

    /// Shows what was written before this position.
    #[inline(always)]
    fn show_up_to(&self, cx: &mut Context<M>, local: &mut BambooLocal<M>, end: usize) -> Result<(), Abort> {
        while local.complete < end {
            let position = local.complete;
            local.complete += 1;
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Update && write.merged().is_empty() {
                M::step("retire");
                self.show_row(cx, local, position)?;
            }
        }
        Ok(())
    }

    fn show_row(&self, cx: &mut Context<M>, local: &mut BambooLocal<M>, position: usize) -> Result<(), Abort> {
        let write = &cx.writes.entries()[position];
        let (cells, numbers) = (write.cells(), write.table().cell_numbers(write.groups()));
        let (mut saved, mut shown) = (std::mem::take(&mut local.saved), std::mem::take(&mut local.shown));
        let done = self.use_held(local, cells.clone(), true, || {
            for (cell, number) in cells.zip(numbers) {
                shown.push(Shown { position, cell, number, start: saved.len() });
                cx.writes.save(position, number, &mut saved);
            }
            cx.writes.expose(position);
        });
        (local.saved, local.shown) = (saved, shown);
        done
    }

    /// Puts back what was before what is shown of a cell; all that was done with that is void, and so are those who did it.
    fn undo(&self, cx: &Context<M>, local: &BambooLocal<M>, shown: &Shown<M>) {
        M::step("undo");
        let request = local.request(shown.cell).expect("the cell is held");
        let latched = Latched::new(shown.cell);
        if !request.is(Request::<M>::VOID) {
            cx.writes.restore(shown.position, shown.number, &local.saved[shown.start..]);
            request.becomes(Request::<M>::VOID, 0);
            for other in latched.newer_than(&request).filter(|_| !F::FORGET_DEPENDENTS) {
                other.becomes(Request::<M>::VOID, 0);
                self.wounds.wound(other.ticket());
            }
        }
        latched.release();
    }

    /// Waits until those have decided from whom the transaction has read, or whose reads it has overwritten.
    fn wait_for_predecessors(&self, local: &mut BambooLocal<M>) -> Result<(), AbortReason> {
        if F::FORGET_PREDECESSORS {
            return Ok(());
        }
        let mut spin = Spin::<M>::new();
        while let Some(&other) = local.predecessors.last() {
            if self.wounds.has_decided(other) {
                local.predecessors.pop();
                continue;
            }
            M::step("wait for commit");
            self.wounds.check::<F>(local.own)?;
            if spin.count() > WAITS_MAX {
                return Err(AbortReason::LockTimeout);
            }
            spin.wait();
        }
        Ok(())
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Bamboo<M, F> {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: Info = info(
        "bamboo",
        "two-phase locking by wound-wait that retires locks early: others go on with what is not committed yet",
        "Guo, Wu, Yan, Yu: Releasing locks as early as you can, SIGMOD 2021",
    );
    type Options = TimestampOptions;

    fn new(options: TimestampOptions) -> Self {
        let timestamps = Timestamps::new(options, 0);
        Bamboo { timestamps, wounds: Wounds::new(0), pool: Pool::default(), faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Bamboo<M, F> {
    type Local = BambooLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        list::check_workers(workers);
        self.timestamps = self.timestamps.resized(workers);
        self.wounds = Wounds::new(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        BambooLocal {
            own: Ticket { worker, stamp: 0, number: self.wounds.last_number(worker) },
            stamp: KeptStamp::new(self.timestamps.of_worker(worker)),
            requests: Requests::new(&self.pool),
            positions: AddressMap::default(),
            holdings: Vec::with_capacity(64),
            predecessors: Vec::with_capacity(64),
            complete: 0,
            shown: Vec::with_capacity(64),
            saved: Vec::new(),
        }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        flags::initial(cells, initial, list::init);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.own.number += 1;
        local.own.stamp = local.stamp.begin();
        self.wounds.begin(local.own.worker, local.own.number);
        local.predecessors.clear();
        local.shown.clear();
        local.saved.clear();
        local.complete = 0;
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
        self.show(cx, local)?;
        M::step("lock shared");
        if self.use_free(local, at.only_cell(columns.groups()), Held::Shared, || cx.copy_row(at, columns))? {
            return Ok(Found::Row);
        }
        let cells = at.cells(columns.groups());
        let Some(flags) = self.hold(local, cells.clone(), Held::Shared)? else { return Ok(Found::Unlinked) };
        // What the transaction writes itself stays its own until the next access.
        let writes = cells.clone().any(|cell| local.request(cell).is_some_and(|request| request.is_exclusive()));
        self.use_held(local, cells, !writes, || cx.copy_row(at, columns))?;
        Ok(flags::found(flags))
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
        self.show(cx, local)?;
        let cells = at.cells(groups);
        if mode == Mode::Merge {
            // A first look; the commit locks, and looks again.
            return if cells.clone().any(|cell| list::flags(cell) & (ABSENT | UNLINKED) != 0) {
                // A miss is held. Should the record have a row by now, holding it shared costs nothing but that.
                self.read(cx, local, at, Projection::columns(&[], groups))
            } else {
                Ok(Found::Row)
            };
        }
        let reads = matches!(mode, Mode::Modify | Mode::Delete);
        let mut copy = |flags: u64| {
            if flags & ABSENT != 0 {
                cx.copy_row(at, Projection::EXISTENCE);
            } else if reads {
                cx.copy_row(at, Projection::of_groups(groups));
            }
        };
        M::step("lock exclusive");
        if self.use_free(local, at.only_cell(groups), Held::Exclusive, || copy(0))? {
            return Ok(Found::Row);
        }
        let Some(flags) = self.hold(local, cells.clone(), Held::Exclusive)? else { return Ok(Found::Unlinked) };
        self.use_held(local, cells, false, || copy(flags))?;
        Ok(flags::found(flags))
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        for cell in at.cells(Groups::ALL) {
            let request = list::adopt(&mut local.requests, local.own, cell);
            local.positions.push(cell.address());
            local.holdings.push((cell, request));
        }
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, _: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    fn rewrite(&self, cx: &mut Context<M>, local: &mut Self::Local, position: usize) -> Result<(), Abort> {
        if local.complete <= position {
            // It is not, after all.
            self.show_up_to(cx, local, position)?;
            local.complete = position + 1;
            return Ok(());
        }
        let entry = |shown: &Shown<M>| shown.position.cmp(&position);
        let Ok(any) = local.shown.binary_search_by(entry) else { return Ok(()) };
        M::step("take back");
        let first = local.shown[..any].partition_point(|shown| shown.position < position);
        let end = first + local.shown[first..].partition_point(|shown| shown.position == position);
        let cells = cx.writes.entries()[position].cells();
        self.hold(local, cells.clone(), Held::Exclusive)?;
        let (saved, mut shown) = (std::mem::take(&mut local.saved), std::mem::take(&mut local.shown));
        let done = self.use_held(local, cells, false, || {
            for shown in shown.drain(first..end) {
                cx.writes.restore(position, shown.number, &saved[shown.start..]);
            }
        });
        (local.saved, local.shown) = (saved, shown);
        done
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.merged().is_empty() {
                continue;
            }
            M::step("lock exclusive");
            let cells = write.table().cells(write.record, write.merged());
            let flags = self.hold(local, cells.clone(), Held::Exclusive)?;
            if flags.is_none_or(|flags| flags & ABSENT != 0) {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            self.use_held(local, cells, false, || ())?;
        }
        self.wait_for_predecessors(local).map_err(Abort::new)?;
        if !cx.nodes.is_empty() {
            M::step("validate");
            // SeqCst: own inserts into the index come before the look at others' leaves. Pairs with itself.
            dekker_fence::<M, F>();
            cx.nodes.validate()?;
        }
        // Before others are told that the transaction commits.
        cx.writes.apply_updates();
        self.wounds.commit_point::<F>(local.own).map_err(Abort::new)?;
        M::step("install");
        // Before those can commit that have seen what is shown.
        if !local.shown.is_empty() {
            cx.writes.will_commit();
        }
        self.wounds.decided(local.own);
        let mut shown = local.shown.iter().map(|shown| shown.position).peekable();
        for position in 0..cx.writes.len() {
            if shown.peek() == Some(&position) {
                while shown.next_if_eq(&position).is_some() {}
            } else {
                flags::install_held(cx, position, list::set_flags);
            }
        }
        self.end(local, true);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        if F::KEEP_ABORTED_INSERTS {
            for write in cx.writes.entries().iter().filter(|write| write.fresh) {
                write.cells().for_each(|cell| _ = list::set_flags(cell, ABSENT, 0));
            }
        }
        for shown in local.shown.iter().rev() {
            self.undo(cx, local, shown);
        }
        self.end(local, !reason.is_conflict());
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        flags::unlink_held(tombstone, list::seize, list::let_go)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        list::flags(record.first_cell()) & ABSENT != 0
    }
}
