//! Locks with queues: who may wait, and in which order, is a [`Policy`]'s to say.
//!
//! Where it keeps the waits-for graph free of cycles, or breaks them, no wait is for ever; and each is given up in the end, should a holder
//! have been taken off its core, or stopped by a debugger. The lists are those of [`super::list`].

use contend_engine::{Abort, AbortReason, Cell, Info, Options};
use contend_machine::Machine;

use super::list::{EXCLUSIVE, Kept, Latched, List, Pool, Request, Requests, Ticket};
use super::{Asked, FLAGS, Held, Locks, list};
use crate::fault::Faults;
use crate::flags::UNLINKED;

/// Who may wait for whom, and in which order.
pub trait Policy<M: Machine>: Send + Sync + 'static {
    /// Name, paper, promise.
    const INFO: Info;
    /// What can be tuned.
    type Options: Options;
    /// Deliberate bugs.
    type Faults: Faults;
    /// A worker's own state.
    type Local: Send + 'static;
    /// Whether it is enough to know of the one that stands next before a request, or, if none does, of the holders: the others are in
    /// the way of that one. A look then costs a line or two, and not one for each that waits, all under the latch.
    const NEAREST: bool = false;

    /// The shared state.
    fn new(options: Self::Options) -> Self;

    /// There will be workers of numbers below `workers`.
    fn prepare(&mut self, workers: usize);

    /// The state of a worker.
    fn local(&self, worker: usize) -> Self::Local;

    /// A transaction begins: how others see it.
    fn begin(&self, local: &mut Self::Local) -> Ticket;

    /// Whether a request that comes stands before one that waits.
    fn goes_before(&self, new: Ticket, old: Ticket) -> bool;

    /// Whether a request that comes is granted what the holders leave room for, although others wait behind it.
    fn may_overtake(&self) -> bool {
        true
    }

    /// A request of a cell can't be granted at once, because of these: holders, and those who wait before it. Whether it may wait.
    fn may_wait(
        &self,
        local: &mut Self::Local,
        own: Ticket,
        cell: Cell<M>,
        because_of: impl Iterator<Item = Ticket>,
    ) -> bool;

    /// It has waited, `waits` times. `look` shows who stands next before it now, or, if nobody does, who holds the cell: without the latch,
    /// which the many that wait would take from those that could let them go. What it shows may be a mixture of times.
    ///
    /// # Errors
    /// It is to be given up.
    fn keep_waiting(
        &self,
        local: &mut Self::Local,
        own: Ticket,
        waits: u32,
        look: impl FnOnce(&mut dyn FnMut(Ticket)),
    ) -> Result<(), AbortReason>;

    /// It waits no more.
    fn stop_waiting(&self, local: &mut Self::Local) {
        let _ = local;
    }

    /// Called before each request.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn check(&self, local: &Self::Local, own: Ticket) -> Result<(), AbortReason> {
        let _ = (local, own);
        Ok(())
    }

    /// The transaction is going to commit.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn commit_point(&self, local: &Self::Local, own: Ticket) -> Result<(), AbortReason> {
        let _ = (local, own);
        Ok(())
    }

    /// The transaction has ended: for good, or to be tried again.
    fn end(&self, local: &mut Self::Local, for_good: bool);

    /// The transaction holds one lock more.
    fn granted(&self, local: &mut Self::Local) {
        let _ = local;
    }
}

/// The lists of a cell whose lock is held either by one, or by many shared.
impl<M: Machine> Latched<M> {
    /// Whether those who hold it leave room for a lock like this.
    #[inline(always)]
    fn has_room<F: Faults>(&self, exclusive: bool) -> bool {
        self.holders() == 0 || self.word & EXCLUSIVE == 0 && (!exclusive || F::IGNORE_READERS)
    }

    /// Grants what waits and can be granted now, from the head on.
    #[cold]
    fn serve<F: Faults>(&mut self) {
        while let Some(first) = self.first(List::Waiters) {
            let (share, exclusive) = (first.share(), first.is_exclusive());
            match share {
                Some(_) if self.holders() > 1 => return,
                None if !self.has_room::<F>(exclusive) => return,
                _ => self.grant_first(),
            }
        }
    }

    /// Those because of whom a request, which is in the queue, can't be granted: holders that leave no room for it, and those before it.
    fn in_the_way<'a>(
        &'a self,
        own: Ticket,
        exclusive: bool,
        request: &'a Request<M>,
        nearest: bool,
    ) -> impl Iterator<Item = Ticket> + 'a {
        let whole = self.word & EXCLUSIVE != 0;
        let previous = self.previous(request);
        let (all_holders, all_waiters) = if nearest { (previous.is_none(), false) } else { (true, true) };
        let holders = self.all(List::Holders).filter(move |_| all_holders && (exclusive || whole));
        let before = self.all(List::Waiters).take_while(move |other| all_waiters && !std::ptr::eq(*other, request));
        let before = before.chain(previous.filter(|_| nearest));
        holders.chain(before).map(Request::ticket).filter(move |other| other.worker != own.worker)
    }
}

/// Whether a transaction of the worker `waiter` waits for the cell at this moment, and one of `other`'s is in its way: both of them.
pub(crate) fn waits_for<M: Machine>(cell: Cell<M>, waiter: usize, other: usize) -> Option<(Ticket, Ticket)> {
    let latched = Latched::new(cell);
    let request = latched.all(List::Waiters).find(|request| request.ticket().worker == waiter);
    let both = request.and_then(|request| {
        let own = request.ticket();
        let mut in_the_way = latched.in_the_way(own, request.is_exclusive(), request, false);
        in_the_way.find(|ticket| ticket.worker == other).map(|other| (own, other))
    });
    latched.release();
    both
}

/// Locks with queues, under this policy.
#[derive(Debug)]
pub struct Queues<M: Machine, P> {
    policy: P,
    pool: Pool<M>,
}

/// A worker's state.
#[derive(Debug)]
pub struct QueuesLocal<M: Machine, P: Policy<M>> {
    own: Ticket,
    requests: Requests<M>,
    policy: P::Local,
}

impl<M: Machine, P: Policy<M>> Queues<M, P> {
    /// Waits until the request, which is in the queue, is granted, if the policy lets it.
    #[cold]
    fn wait(
        &self,
        local: &mut QueuesLocal<M, P>,
        mut latched: Latched<M>,
        request: &Request<M>,
    ) -> Result<(), AbortReason> {
        let (own, cell, exclusive) = (local.own, latched.cell(), request.is_exclusive());
        let in_the_way = latched.in_the_way(own, exclusive, request, P::NEAREST);
        let may_wait = self.policy.may_wait(&mut local.policy, own, cell, in_the_way) || P::Faults::WAIT_ANYWAY;
        if !may_wait {
            latched.remove_waiter(request);
        }
        latched.release();
        if !may_wait {
            return Err(if exclusive { AbortReason::WriteLocked } else { AbortReason::ReadLocked });
        }
        let goes_on = |waits| {
            let look = |visit: &mut dyn FnMut(Ticket)| request.next_in_the_way(cell, visit);
            self.policy.keep_waiting(&mut local.policy, own, waits, look)
        };
        let granted = request.wait(cell, goes_on, Latched::serve::<P::Faults>);
        self.policy.stop_waiting(&mut local.policy);
        granted
    }
}

impl<M: Machine, P: Policy<M>> Locks<M> for Queues<M, P> {
    const INFO: Info = P::INFO;
    const META_WORDS: usize = 1;
    type Options = P::Options;
    type Faults = P::Faults;
    type Local = QueuesLocal<M, P>;
    type Handle = Kept<M>;

    fn new(options: P::Options) -> Self {
        Queues { policy: P::new(options), pool: Pool::default() }
    }

    fn prepare(&mut self, workers: usize) {
        list::check_workers(workers);
        self.policy.prepare(workers);
    }

    fn local(&self, worker: usize) -> QueuesLocal<M, P> {
        let own = Ticket { worker, stamp: 0, number: 0 };
        QueuesLocal { own, requests: Requests::new(&self.pool), policy: self.policy.local(worker) }
    }

    fn init(cell: Cell<M>, flags: u64, held: bool) {
        list::init(cell, flags, held);
    }

    #[inline(always)]
    fn begin(&self, local: &mut Self::Local) {
        local.own = self.policy.begin(&mut local.policy);
    }

    fn adopt(&self, local: &mut Self::Local, cell: Cell<M>) -> Kept<M> {
        list::adopt(&mut local.requests, local.own, cell)
    }

    #[inline(always)]
    fn lock(&self, local: &mut Self::Local, cell: Cell<M>, held: Held) -> Result<Asked<Kept<M>>, Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        let own = local.own;
        let request = local.requests.take();
        request.fill(own, held, 0);
        // A first guess: a row that nobody holds.
        if list::take_free(cell, &request, held) {
            self.policy.granted(&mut local.policy);
            return Ok(Asked::Granted(request, 0));
        }
        let mut latched = Latched::new(cell);
        if latched.word & UNLINKED != 0 {
            latched.release();
            local.requests.give_back();
            return Ok(Asked::Unlinked);
        }
        let is_first = latched.add_waiter_in_order(&request, |other| self.policy.goes_before(own, other));
        if is_first && latched.has_room::<P::Faults>(held == Held::Exclusive) {
            if !self.policy.may_overtake() && latched.all(List::Waiters).nth(1).is_some() {
                latched.remove_waiter(&request);
                latched.release();
                local.requests.give_back();
                let exclusive = held == Held::Exclusive;
                return Err(Abort::new(if exclusive { AbortReason::WriteLocked } else { AbortReason::ReadLocked }));
            }
            latched.grant_first();
            let flags = latched.word & FLAGS;
            latched.release();
            self.policy.granted(&mut local.policy);
            return Ok(Asked::Granted(request, flags));
        }
        if let Err(reason) = self.wait(local, latched, &request) {
            local.requests.give_back();
            return Err(Abort::new(reason));
        }
        self.policy.granted(&mut local.policy);
        // Flags of a cell that is held change by this transaction only.
        Ok(Asked::Granted(request, list::flags(cell)))
    }

    fn upgrade(&self, local: &mut Self::Local, cell: Cell<M>, share: Kept<M>) -> Result<(), Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        let mut latched = Latched::new(cell);
        if latched.holders() == 1 || P::Faults::IGNORE_READERS {
            latched.renew(&share, true);
            latched.release();
            return Ok(());
        }
        let request = local.requests.take();
        request.fill(local.own, Held::Exclusive, share.address());
        // Before all others, who have to wait for this transaction's share in any case.
        latched.add_waiter(&request, None);
        let granted = self.wait(local, latched, &request);
        // The share is what is kept.
        local.requests.give_back();
        granted.map_err(Abort::new)
    }

    fn commit_point(&self, local: &mut Self::Local) -> Result<(), Abort> {
        self.policy.commit_point(&local.policy, local.own).map_err(Abort::new)
    }

    #[inline(always)]
    fn unlock(&self, _: &mut Self::Local, cell: Cell<M>, held: Held, kept: Kept<M>) {
        // A first guess: this is the only holder, of a row, and nobody waits.
        if list::give_back_only(cell, &kept, held) {
            return;
        }
        let mut latched = Latched::new(cell);
        latched.remove_holder(&kept);
        if latched.first(List::Waiters).is_some() {
            latched.serve::<P::Faults>();
        }
        latched.release();
    }

    #[inline(always)]
    fn end(&self, local: &mut Self::Local, for_good: bool) {
        local.requests.clear();
        self.policy.end(&mut local.policy, for_good);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        list::flags(cell)
    }

    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        list::set_flags(cell, clear, set)
    }

    fn seize(cell: Cell<M>) -> Option<u64> {
        list::seize(cell)
    }

    fn let_go(cell: Cell<M>, clear: u64, set: u64) {
        list::let_go(cell, clear, set);
    }
}
