//! Locks with queues: a [`WaitPolicy`] says which transactions may wait, and in which order.
//!
//! A policy keeps the waits-for graph free of cycles, or breaks its cycles, so that each wait ends.
//! A wait is also given up at a limit, in case a holder has lost its core or stands in a debugger.
//! The lists of holders and waiters are those of [`super::list`].
//!
//! | step | function |
//! | --- | --- |
//! | acquire a free cell, by one exchange | `list::try_acquire_free` |
//! | compatible with the holders, and first in the queue: grant | [`LockManager::acquire`] |
//! | else: may the transaction wait? | [`WaitPolicy::may_wait`] |
//! | wait on the line of the request | `Request::wait` |
//! | release; grant the waiters that now fit | [`LockManager::release`], `serve` |
//! | upgrade: at the head of the queue, until it is the only holder | [`LockManager::upgrade`] |

use contend_engine::{Abort, AbortReason, Cell, Options, ProtocolInfo};
use contend_machine::Machine;

use super::list::{EXCLUSIVE, LatchedCell, List, ListWord, LockOwner, Pool, Request, RequestHandle, Requests};
use super::{FLAGS, LockManager, LockMode, LockOutcome, LockWord, LockingFaults, list, readers_block};
use crate::faults;
use crate::flags::UNLINKED;
use crate::method::timestamp::Outcome;

/// The transactions that a policy needs to know when a request is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blockers {
    /// Each holder that conflicts with the request, and each request before it in the queue.
    All,
    /// The request next before it in the queue, or, if there is none, the holders that conflict
    /// with it. They are enough to follow chains of waits, since the others block the nearest one.
    /// They cost a line or two under the latch, instead of one for each waiter.
    Nearest,
}

/// A wait policy: which transactions may wait for which, and in which order.
///
/// The policy has to keep cycles of waits away, or find them. `may_wait` is called once, when a
/// request enters the queue. A request that comes later becomes a blocker of those behind it, and
/// they are not asked again. So `goes_before` may put a request only before waiters that may wait
/// for it.
pub trait WaitPolicy<M: Machine>: Send + Sync + 'static {
    /// Name, paper and promise of two-phase locking under this policy.
    const INFO: ProtocolInfo;
    /// The blockers that [`WaitPolicy::may_wait`] is called with.
    const BLOCKERS: Blockers = Blockers::All;
    /// The options of the protocol.
    type Options: Options;
    /// The deliberate faults of the protocol.
    type Faults: QueueFaults;
    /// A worker's own state.
    type WorkerState: Send + 'static;

    /// Returns the state that all workers share.
    fn new(options: Self::Options) -> Self;

    /// Makes room for workers with numbers below `workers`.
    fn prepare(&mut self, workers: usize);

    /// Returns the state of a worker.
    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Begins a transaction, and returns it as other transactions see it.
    fn begin(&self, local: &mut Self::WorkerState) -> LockOwner;

    /// Returns whether a new request of `new` stands in the queue before that of `waiter`.
    fn goes_before(&self, new: LockOwner, waiter: LockOwner) -> bool;

    /// Returns whether a request that is compatible with the holders, and stands first, is granted
    /// although others wait behind it.
    fn may_overtake(&self, local: &Self::WorkerState) -> bool {
        let _ = local;
        true
    }

    /// Returns whether the transaction `own` may wait for `cell`, whose lock `blockers` keep from
    /// it. The cell is latched.
    fn may_wait(
        &self,
        local: &mut Self::WorkerState,
        own: LockOwner,
        cell: Cell<M>,
        blockers: impl Iterator<Item = LockOwner>,
    ) -> bool;

    /// Fails if the wait, which was prolonged `waits` times, must be given up.
    ///
    /// `visit_blockers` shows the nearest blockers as they are now. It takes no latch, since many
    /// waiters would keep the latch from the holders that could let them go. So it can show a
    /// mixture of several states of the lists.
    ///
    /// # Errors
    /// The transaction must abort.
    fn keep_waiting(
        &self,
        local: &mut Self::WorkerState,
        own: LockOwner,
        waits: u32,
        visit_blockers: impl FnOnce(&mut dyn FnMut(LockOwner)),
    ) -> Result<(), AbortReason>;

    /// Ends a wait that [`WaitPolicy::may_wait`] has allowed, with or without the lock.
    fn stop_waiting(&self, local: &mut Self::WorkerState) {
        let _ = local;
    }

    /// Fails if the transaction must not request another lock. Called before each request.
    ///
    /// # Errors
    /// The transaction must abort.
    fn check(&self, local: &Self::WorkerState, own: LockOwner) -> Result<(), AbortReason> {
        let _ = (local, own);
        Ok(())
    }

    /// Passes the commit point of the transaction.
    ///
    /// # Errors
    /// The transaction must abort.
    fn commit_point(&self, local: &Self::WorkerState, own: LockOwner) -> Result<(), AbortReason> {
        let _ = (local, own);
        Ok(())
    }

    /// Ends the transaction, which has released all its locks.
    fn end(&self, local: &mut Self::WorkerState, outcome: Outcome);

    /// Counts a lock that was granted to the transaction.
    fn lock_granted(&self, local: &mut Self::WorkerState) {
        let _ = local;
    }
}

/// The lists of a cell that either one transaction holds exclusively, or many hold shared.
impl<M: Machine> LatchedCell<M> {
    /// Returns whether a lock in `mode` is compatible with the holders.
    #[inline(always)]
    fn is_compatible<F: LockingFaults>(&self, mode: LockMode) -> bool {
        let compatible = mode == LockMode::Shared || !readers_block::<F>();
        self.holder_count() == 0 || self.word & EXCLUSIVE == 0 && compatible
    }

    /// Grants waiters from the head of the queue on, as long as they are compatible with the
    /// holders.
    #[cold]
    fn serve<F: LockingFaults>(&mut self) {
        while let Some(first) = self.first(List::Waiters) {
            let (share, mode) = (first.share(), first.mode());
            match share {
                // An upgrade waits until its transaction is the only holder.
                Some(_) if self.holder_count() > 1 => return,
                None if !self.is_compatible::<F>(mode) => return,
                _ => self.grant_first(),
            }
        }
    }

    /// Returns the transactions that block a request in the queue, which is of `own` and for
    /// `mode`: the holders that conflict with it, and those with a request before it.
    fn blockers<'a>(
        &'a self,
        own: LockOwner,
        mode: LockMode,
        request: &'a Request<M>,
        which: Blockers,
    ) -> impl Iterator<Item = LockOwner> + 'a {
        let conflicts = mode == LockMode::Exclusive || self.word & EXCLUSIVE != 0;
        let previous = self.previous(request);
        let (all_holders, all_waiters) = match which {
            Blockers::All => (true, true),
            Blockers::Nearest => (previous.is_none(), false),
        };
        let holders = self.requests(List::Holders).filter(move |_| all_holders && conflicts);
        let before =
            self.requests(List::Waiters).take_while(move |other| all_waiters && !std::ptr::eq(*other, request));
        let before = before.chain(previous.filter(|_| which == Blockers::Nearest));
        holders.chain(before).map(Request::owner).filter(move |other| other.worker != own.worker)
    }
}

/// Looks under the latch whether the worker `waiter` waits for the cell, and is blocked by the
/// worker `blocker`. Returns the transactions of both if so, in this order.
pub(crate) fn waits_for<M: Machine>(cell: Cell<M>, waiter: usize, blocker: usize) -> Option<(LockOwner, LockOwner)> {
    let latched = LatchedCell::latch(cell);
    let request = latched.requests(List::Waiters).find(|request| request.owner().worker == waiter);
    let both = request.and_then(|request| {
        let own = request.owner();
        let mut blockers = latched.blockers(own, request.mode(), request, Blockers::All);
        blockers.find(|other| other.worker == blocker).map(|other| (own, other))
    });
    latched.unlatch();
    both
}

/// Locks with queues, under the wait policy `P`.
#[derive(Debug)]
pub struct QueuedLocks<M: Machine, P> {
    policy: P,
    pool: Pool<M>,
}

/// A worker's state.
#[derive(Debug)]
pub struct QueuedLocksWorker<M: Machine, P: WaitPolicy<M>> {
    /// The running transaction.
    own: LockOwner,
    requests: Requests<M>,
    policy: P::WorkerState,
}

impl<M: Machine, P: WaitPolicy<M>> QueuedLocks<M, P> {
    /// Waits until the request, which is in the queue, is granted, if the policy allows it. Ends
    /// the latch.
    #[cold]
    fn wait(
        &self,
        local: &mut QueuedLocksWorker<M, P>,
        mut latched: LatchedCell<M>,
        request: &Request<M>,
    ) -> Result<(), AbortReason> {
        let (own, cell, mode) = (local.own, latched.cell(), request.mode());
        let blockers = latched.blockers(own, mode, request, P::BLOCKERS);
        let may_wait = self.policy.may_wait(&mut local.policy, own, cell, blockers) || waits_anyway::<P::Faults>();
        if !may_wait {
            latched.remove_waiter(request);
        }
        latched.unlatch();
        if !may_wait {
            return Err(mode.conflict());
        }
        let may_continue = |waits| {
            let visit_blockers = |visit: &mut dyn FnMut(LockOwner)| request.visit_nearest_blockers(cell, visit);
            self.policy.keep_waiting(&mut local.policy, own, waits, visit_blockers)
        };
        let granted = request.wait(cell, may_continue, LatchedCell::serve::<P::Faults>);
        self.policy.stop_waiting(&mut local.policy);
        granted
    }
}

impl<M: Machine, P: WaitPolicy<M>> LockManager<M> for QueuedLocks<M, P> {
    const INFO: ProtocolInfo = P::INFO;
    type Options = P::Options;
    type Faults = P::Faults;
    type WorkerState = QueuedLocksWorker<M, P>;
    type Handle = RequestHandle<M>;
    type Word = ListWord;

    fn new(options: P::Options) -> Self {
        QueuedLocks { policy: P::new(options), pool: Pool::default() }
    }

    fn prepare(&mut self, workers: usize) {
        list::check_workers(workers);
        self.policy.prepare(workers);
    }

    fn new_worker_state(&self, worker: usize) -> QueuedLocksWorker<M, P> {
        let own = LockOwner { worker, timestamp: 0, transaction: 0 };
        QueuedLocksWorker { own, requests: Requests::new(&self.pool), policy: self.policy.new_worker_state(worker) }
    }

    #[inline(always)]
    fn begin(&self, local: &mut Self::WorkerState) {
        local.own = self.policy.begin(&mut local.policy);
    }

    fn adopt_placeholder(&self, local: &mut Self::WorkerState, cell: Cell<M>) -> RequestHandle<M> {
        list::adopt_placeholder(&mut local.requests, local.own, cell)
    }

    #[inline(always)]
    fn acquire(
        &self,
        local: &mut Self::WorkerState,
        cell: Cell<M>,
        mode: LockMode,
    ) -> Result<LockOutcome<RequestHandle<M>>, Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        let own = local.own;
        let request = local.requests.take();
        request.fill(own, mode, 0);
        // A guess: the cell has a row and no holder.
        if list::try_acquire_free(cell, &request, mode) {
            self.policy.lock_granted(&mut local.policy);
            return Ok(LockOutcome::Granted(request, 0));
        }
        let mut latched = LatchedCell::latch(cell);
        if latched.word & UNLINKED != 0 {
            latched.unlatch();
            local.requests.free_last();
            return Ok(LockOutcome::Unlinked);
        }
        let is_first = latched.add_waiter_in_order(&request, |other| self.policy.goes_before(own, other));
        if is_first && latched.is_compatible::<P::Faults>(mode) {
            if !self.policy.may_overtake(&local.policy) && latched.requests(List::Waiters).nth(1).is_some() {
                latched.remove_waiter(&request);
                latched.unlatch();
                local.requests.free_last();
                return Err(Abort::new(mode.conflict()));
            }
            latched.grant_first();
            let flags = latched.word & FLAGS;
            latched.unlatch();
            self.policy.lock_granted(&mut local.policy);
            return Ok(LockOutcome::Granted(request, flags));
        }
        if let Err(reason) = self.wait(local, latched, &request) {
            local.requests.free_last();
            return Err(Abort::new(reason));
        }
        self.policy.lock_granted(&mut local.policy);
        // No other transaction changes the flags while this one holds the cell.
        Ok(LockOutcome::Granted(request, <ListWord as LockWord<M>>::flags(cell)))
    }

    fn upgrade(&self, local: &mut Self::WorkerState, cell: Cell<M>, share: RequestHandle<M>) -> Result<(), Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        let mut latched = LatchedCell::latch(cell);
        if latched.holder_count() == 1 || !readers_block::<P::Faults>() {
            latched.make_newest(&share, LockMode::Exclusive);
            latched.unlatch();
            return Ok(());
        }
        let request = local.requests.take();
        request.fill(local.own, LockMode::Exclusive, share.address());
        // At the head: the requests behind it wait for this transaction's shared lock in any case.
        latched.add_waiter(&request, None);
        let granted = self.wait(local, latched, &request);
        // The grant has made the transaction's first request exclusive; that one stays.
        local.requests.free_last();
        granted.map_err(Abort::new)
    }

    fn commit_point(&self, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.policy.commit_point(&local.policy, local.own).map_err(Abort::new)
    }

    #[inline(always)]
    fn release(&self, _: &mut Self::WorkerState, cell: Cell<M>, mode: LockMode, request: RequestHandle<M>) {
        // A guess: the cell has a row, no other holder and no waiter.
        if list::try_release_sole(cell, &request, mode) {
            return;
        }
        let mut latched = LatchedCell::latch(cell);
        latched.remove_holder(&request);
        if latched.first(List::Waiters).is_some() {
            latched.serve::<P::Faults>();
        }
        latched.unlatch();
    }

    #[inline(always)]
    fn end(&self, local: &mut Self::WorkerState, outcome: Outcome) {
        local.requests.clear();
        self.policy.end(&mut local.policy, outcome);
    }
}

faults! {
    /// The deliberate faults of protocols with queues.
    pub trait QueueFaults: LockingFaults {
        /// Every transaction may wait for every other one, whatever the policy says, so that waits
        /// form cycles.
        wait_anyway,
    }
    pub const FAULTS;
}

/// Returns whether a transaction waits although its policy forbids it: not without a fault.
#[inline(always)]
pub(crate) fn waits_anyway<F: QueueFaults>() -> bool {
    F::wait_anyway()
}
