//! Bamboo's conditions: which transactions hold a cell together, and what one does with a cell
//! under its latch.

use contend_engine::{Abort, AbortReason, Cell, Cells, GROUPS_MAX};
use contend_machine::Machine;
use smallvec::SmallVec;

use super::{Bamboo, BambooFaults, BambooWorker};
use crate::flags::UNLINKED;
use crate::locking::list::{self, LatchedCell, List, ListWord, LockOwner, Request, RequestHandle};
use crate::locking::wound::obeys_wounds;
use crate::locking::{FLAGS, LockMode, LockWord, readers_block};
use crate::method::timestamp::Outcome;

type Latches<M> = SmallVec<[(LatchedCell<M>, RequestHandle<M>); GROUPS_MAX]>;

/// What happens to a cell after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterUse {
    /// Its lock is retired: other transactions may hold the cell with this one.
    Retire,
    /// Its lock is kept as it is.
    Keep,
}

impl<M: Machine, F: BambooFaults> Bamboo<M, F> {
    /// Returns whether a request in `mode` must wait: for younger holders, which it wounds, or for
    /// older ones that have not retired.
    #[inline(always)]
    pub(super) fn must_wait(&self, latched: &LatchedCell<M>, own: LockOwner, mode: LockMode) -> bool {
        // The lists don't change under the latch, so the answer holds until its end. A shared
        // request conflicts with writers only, an exclusive one with all other holders.
        let is_exclusive = mode == LockMode::Exclusive;
        let mut waits = false;
        for other in latched.requests(List::Holders).filter(|other| is_exclusive || other.is_exclusive()) {
            let owner = other.owner();
            if owner.worker == own.worker || !readers_block::<F>() && !other.is_exclusive() {
                continue;
            }
            if own.timestamp < owner.timestamp {
                // The wound fails if the younger one has passed its commit point. Either way it
                // ends, without a wait for this transaction, and releases the cell.
                self.states.wound(owner);
                waits |= obeys_wounds::<F>();
            } else {
                waits |= !other.has(Request::<M>::RETIRED);
            }
        }
        waits
    }

    /// Grants waiters from the head of the queue on, the oldest first, as long as they need not
    /// wait.
    pub(super) fn serve(&self, latched: &mut LatchedCell<M>) {
        while let Some(first) = latched.first(List::Waiters) {
            if self.must_wait(latched, first.owner(), first.mode()) {
                return;
            }
            latched.grant_first();
        }
    }

    /// Acquires a cell, whose lock is then not retired. Returns its flags, or `None` if it is
    /// unlinked.
    ///
    /// A cell that the transaction holds already is acquired again, as its newest holder.
    #[inline(always)]
    fn acquire_cell(&self, local: &mut BambooWorker<M>, cell: Cell<M>, mode: LockMode) -> Result<Option<u64>, Abort> {
        self.states.check::<F>(local.own).map_err(Abort::new)?;
        let request = local.requests.take();
        let share = local.request(cell);
        match share {
            None => {
                request.fill(local.own, mode, 0);
            }
            Some(share) => {
                let mode = if share.is_exclusive() { LockMode::Exclusive } else { mode };
                request.fill(local.own, mode, share.address());
            }
        }
        // A cell that the transaction has retired can have later holders. Those that conflict are
        // younger: it wounds them, and the grant waits for their end, and makes it the newest
        // holder again.
        let flags = self.acquire_in_queue(local, cell, request);
        match (share, &flags) {
            (None, Ok(Some(_))) => local.push(cell, request),
            // A grant has changed the transaction's first request; that one stays.
            _ => local.requests.free_last(),
        }
        flags.map_err(Abort::new)
    }

    /// Puts the request into the queue, and waits until it is granted. Returns the cell's flags, or
    /// `None` if it is unlinked.
    #[inline(never)]
    fn acquire_in_queue(
        &self,
        local: &BambooWorker<M>,
        cell: Cell<M>,
        request: RequestHandle<M>,
    ) -> Result<Option<u64>, AbortReason> {
        let own = local.own;
        let mut latched = LatchedCell::latch(cell);
        // A collector sets the flag only while no transaction holds the cell or waits for it. So it
        // can't be set any more once the request is in a list.
        if latched.word & UNLINKED != 0 {
            latched.unlatch();
            return Ok(None);
        }
        let is_first = latched.add_waiter_in_order(&request, |other| own.timestamp < other.timestamp);
        let waits = self.must_wait(&latched, own, request.mode());
        if is_first && !waits {
            latched.grant_first();
            let flags = latched.word & FLAGS;
            latched.unlatch();
            return Ok(Some(flags));
        }
        latched.unlatch();
        request.wait(cell, |_| self.states.check::<F>(own), |latched| self.serve(latched))?;
        // Only a holder that has not retired the cell changes its flags, and this transaction is
        // the newest holder.
        Ok(Some(<ListWord as LockWord<M>>::flags(cell)))
    }

    /// Acquires these cells of a record. Returns the union of their flags, or `None` if the record
    /// is unlinked.
    #[inline(always)]
    pub(super) fn acquire(
        &self,
        local: &mut BambooWorker<M>,
        cells: Cells<M>,
        mode: LockMode,
    ) -> Result<Option<u64>, Abort> {
        let mut flags = 0;
        for cell in cells {
            match self.acquire_cell(local, cell, mode)? {
                Some(now) => flags |= now,
                None => return Ok(None),
            }
        }
        Ok(Some(flags))
    }

    /// Runs `access` on cells of a record that the transaction holds, under the latches of all of
    /// them. Notes the transactions that must decide before this one commits.
    ///
    /// A roll-back needs the same latches. So either it comes before, and the access fails, or it
    /// comes after, and voids the access.
    #[inline(always)]
    pub(super) fn use_held(
        &self,
        local: &mut BambooWorker<M>,
        cells: Cells<M>,
        then: AfterUse,
        access: impl FnOnce(),
    ) -> Result<(), Abort> {
        // A worker latches several cells only here, those of one record, and in the order of
        // addresses. So workers that wait for latches form no cycle.
        let mut latches: Latches<M> = SmallVec::new();
        for cell in cells {
            let request = local.request(cell).expect("the cell is held");
            latches.push((LatchedCell::latch(cell), request));
        }
        let is_void = latches.iter().any(|(_, request)| request.has(Request::<M>::VOID));
        if !is_void {
            for (latched, request) in &latches {
                // The predecessors, up to the latest writer among them. That one waits for all
                // holders before it; and it is a predecessor also if those between abort. A void
                // holder has left nothing in the cell, and waits for nothing.
                for other in latched.earlier_holders(request).filter(|other| !other.has(Request::<M>::VOID)) {
                    if other.is_exclusive() || request.is_exclusive() && readers_block::<F>() {
                        local.predecessors.push(other.owner());
                    }
                    if other.is_exclusive() {
                        break;
                    }
                }
            }
            access();
        }
        for (mut latched, request) in latches {
            if then == AfterUse::Retire {
                request.change(0, Request::<M>::RETIRED);
                self.serve(&mut latched);
            }
            latched.unlatch();
        }
        if is_void { Err(Abort::new(AbortReason::Wounded)) } else { Ok(()) }
    }

    /// Acquires a cell that has a row and no holder, and runs `access` on it, under one latch. A
    /// shared lock is retired at once. Returns whether it did.
    #[inline(always)]
    pub(super) fn use_free(
        &self,
        local: &mut BambooWorker<M>,
        cell: Option<Cell<M>>,
        mode: LockMode,
        access: impl FnOnce(),
    ) -> Result<bool, Abort> {
        self.states.check::<F>(local.own).map_err(Abort::new)?;
        let Some(cell) = cell.filter(|cell| local.request(*cell).is_none()) else { return Ok(false) };
        let request = local.requests.take();
        request.fill(local.own, mode, 0);
        let Some(latched) = list::try_acquire_free_latched(cell, &request, mode) else {
            local.requests.free_last();
            return Ok(false);
        };
        // The cell had no holder, so the transaction has no predecessor here, and no earlier holder
        // can roll back and void its access. Later holders come after the latch, and so after the
        // access.
        access();
        if mode == LockMode::Shared {
            request.change(0, Request::<M>::RETIRED);
        }
        latched.unlatch();
        local.push(cell, request);
        Ok(true)
    }

    /// Releases all locks, grants what waits for them, and ends the transaction.
    #[inline(always)]
    pub(super) fn end(&self, local: &mut BambooWorker<M>, outcome: Outcome) {
        M::step("release");
        for (cell, request) in local.held.drain(..) {
            // A guess: the cell has a row, no other holder and no waiter.
            if !list::try_release_sole(cell, &request, request.mode()) {
                let mut latched = LatchedCell::latch(cell);
                latched.remove_holder(&request);
                self.serve(&mut latched);
                latched.unlatch();
            }
        }
        local.positions.clear();
        // No request is in a list any more. A worker that still compares its predecessors with this
        // transaction uses copies of its number, not the requests.
        local.requests.clear();
        self.states.end(local.own);
        local.timestamp.end(outcome);
    }
}
