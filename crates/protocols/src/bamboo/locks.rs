//! Locks of two ages: who may hold a cell with whom, and what a transaction does with it under the latch.

use contend_engine::{Abort, AbortReason, Cell, Cells, GROUPS_MAX};
use contend_machine::Machine;
use smallvec::SmallVec;

use super::{Bamboo, BambooLocal};
use crate::fault::Faults;
use crate::flags::UNLINKED;
use crate::locking::list::{self, Kept, Latched, List, Request, Ticket};
use crate::locking::{FLAGS, Held};

type Latches<M> = SmallVec<[(Latched<M>, Kept<M>); GROUPS_MAX]>;

impl<M: Machine, F: Faults> Bamboo<M, F> {
    /// Whether a request has to wait: for younger ones, which are wounded, or for older ones that have not retired.
    #[inline(always)]
    pub(super) fn has_to_wait(&self, latched: &Latched<M>, own: Ticket, exclusive: bool) -> bool {
        let mut waits = false;
        for other in latched.all(List::Holders).filter(|other| exclusive || other.is_exclusive()) {
            let ticket = other.ticket();
            if ticket.worker == own.worker || F::IGNORE_READERS && !other.is_exclusive() {
                continue;
            }
            if own.stamp < ticket.stamp {
                self.wounds.wound(ticket);
                waits |= !F::IGNORE_WOUNDS;
            } else {
                waits |= !other.is(Request::<M>::RETIRED);
            }
        }
        waits
    }

    /// Grants what waits and can be granted now, the oldest first.
    pub(super) fn serve(&self, latched: &mut Latched<M>) {
        while let Some(first) = latched.first(List::Waiters) {
            if self.has_to_wait(latched, first.ticket(), first.is_exclusive()) {
                return;
            }
            latched.grant_first();
        }
    }

    /// Holds a cell, not retired; its flags, or `None` if it is unlinked.
    #[inline(always)]
    pub(super) fn hold_cell(
        &self,
        local: &mut BambooLocal<M>,
        cell: Cell<M>,
        held: Held,
    ) -> Result<Option<u64>, Abort> {
        self.wounds.check::<F>(local.own).map_err(Abort::new)?;
        let request = local.requests.take();
        let share = local.request(cell);
        match share {
            None => {
                request.fill(local.own, held, 0);
            }
            Some(share) => {
                let held = if share.is_exclusive() { Held::Exclusive } else { held };
                request.fill(local.own, held, share.address());
            }
        }
        let flags = self.hold_slowly(local, cell, request);
        match (share, &flags) {
            (None, Ok(Some(_))) => {
                local.positions.push(cell.address());
                local.holdings.push((cell, request));
            }
            // The share is what is kept.
            _ => local.requests.give_back(),
        }
        flags.map_err(Abort::new)
    }

    #[inline(never)]
    pub(super) fn hold_slowly(
        &self,
        local: &BambooLocal<M>,
        cell: Cell<M>,
        request: Kept<M>,
    ) -> Result<Option<u64>, AbortReason> {
        let own = local.own;
        let mut latched = Latched::new(cell);
        if latched.word & UNLINKED != 0 {
            latched.release();
            return Ok(None);
        }
        let is_first = latched.add_waiter_in_order(&request, |other| own.stamp < other.stamp);
        let waits = self.has_to_wait(&latched, own, request.is_exclusive());
        if is_first && !waits {
            latched.grant_first();
            let flags = latched.word & FLAGS;
            latched.release();
            return Ok(Some(flags));
        }
        latched.release();
        request.wait(cell, |_| self.wounds.check::<F>(own), |latched| self.serve(latched))?;
        // Flags change by who holds the cell and has not retired it.
        Ok(Some(list::flags(cell)))
    }

    /// Holds these cells; all their flags, or `None` if the record is unlinked.
    #[inline(always)]
    pub(super) fn hold(&self, local: &mut BambooLocal<M>, cells: Cells<M>, held: Held) -> Result<Option<u64>, Abort> {
        let mut flags = 0;
        for cell in cells {
            match self.hold_cell(local, cell, held)? {
                Some(now) => flags |= now,
                None => return Ok(None),
            }
        }
        Ok(Some(flags))
    }

    /// Does something with cells that are held, under their latches, and so with no undoing between. `retires`: others may have them then.
    #[inline(always)]
    pub(super) fn use_held(
        &self,
        local: &mut BambooLocal<M>,
        cells: Cells<M>,
        retires: bool,
        with: impl FnOnce(),
    ) -> Result<(), Abort> {
        // All of a record, in the order of addresses: so no cycle of latches.
        let mut latches: Latches<M> = SmallVec::new();
        for cell in cells {
            let request = local.request(cell).expect("the cell is held");
            latches.push((Latched::new(cell), request));
        }
        let is_void = latches.iter().any(|(_, request)| request.is(Request::<M>::VOID));
        if !is_void {
            for (latched, request) in &latches {
                // Up to the next writer, which waits for all before itself; and that one, too, should those between abort. Who is void
                // has left nothing, and waits for nobody.
                for other in latched.older_than(request).filter(|other| !other.is(Request::<M>::VOID)) {
                    if other.is_exclusive() || request.is_exclusive() && !F::IGNORE_READERS {
                        local.predecessors.push(other.ticket());
                    }
                    if other.is_exclusive() {
                        break;
                    }
                }
            }
            with();
        }
        for (mut latched, request) in latches {
            if retires {
                request.becomes(Request::<M>::RETIRED, 0);
                self.serve(&mut latched);
            }
            latched.release();
        }
        if is_void { Err(Abort::new(AbortReason::Wounded)) } else { Ok(()) }
    }

    /// Holds a row that nobody else holds, and does something with it under the latch, all at once; whether that was so.
    #[inline(always)]
    pub(super) fn use_free(
        &self,
        local: &mut BambooLocal<M>,
        cell: Option<Cell<M>>,
        held: Held,
        with: impl FnOnce(),
    ) -> Result<bool, Abort> {
        self.wounds.check::<F>(local.own).map_err(Abort::new)?;
        let Some(cell) = cell.filter(|cell| local.request(*cell).is_none()) else { return Ok(false) };
        let request = local.requests.take();
        request.fill(local.own, held, 0);
        let Some(latched) = list::take_free_latched(cell, &request, held) else {
            local.requests.give_back();
            return Ok(false);
        };
        with();
        if held == Held::Shared {
            request.becomes(Request::<M>::RETIRED, 0);
        }
        latched.release();
        local.positions.push(cell.address());
        local.holdings.push((cell, request));
        Ok(true)
    }

    /// Gives all back: the transaction has ended for good, or to be tried again.
    #[inline(always)]
    pub(super) fn end(&self, local: &mut BambooLocal<M>, for_good: bool) {
        M::step("release");
        for (cell, request) in local.holdings.drain(..) {
            let held = if request.is_exclusive() { Held::Exclusive } else { Held::Shared };
            // A first guess: this is the only holder, of a row, and nobody waits.
            if !list::give_back_only(cell, &request, held) {
                let mut latched = Latched::new(cell);
                latched.remove_holder(&request);
                self.serve(&mut latched);
                latched.release();
            }
        }
        local.positions.clear();
        local.requests.clear();
        self.wounds.end(local.own);
        local.stamp.end(for_good);
    }
}
