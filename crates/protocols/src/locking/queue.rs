//! A lock that knows who holds it and who waits for it, in lists under a latch.
//!
//! A cell has one word:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..22 | the first holder's request: its address, which is one of a line |
//! | 21..8 | how many transactions hold the cell |
//! | 5 | somebody waits |
//! | 4 | held exclusively |
//! | 3..1 | flags: see the module above |
//! | 0 | latched: the lists and this word belong to who has set it |
//!
//! A request stands on a line of its own, on which its transaction waits. Those of the holders are a list, and those of who waits are another,
//! whose head stands in the first holder's request: nobody waits for what nobody holds. A latch is held for some instructions, in which
//! nothing is waited for. A cell that nobody holds is taken, and by its only holder given back, by one exchange of its word.
//!
//! Who may wait, and in which order, is a [`Policy`]'s to say. Where it keeps the waits-for graph free of cycles, or breaks them, no
//! wait is for ever; and each is given up in the end, should a holder have been taken off its core, or stopped by a debugger.

use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::{Abort, AbortReason, Cell, Info, Options};
use contend_machine::{Atomic64, Block, Machine, Ordering, Spin};
use parking_lot::Mutex;

use super::{Asked, FLAGS, Held, Locks, UNLINKED};
use crate::fault::Faults;

const LATCH: u64 = 1;
const EXCLUSIVE: u64 = 1 << 4;
const WAITING: u64 = 1 << 5;
/// One holder.
const HOLDER: u64 = 1 << 8;
const HOLDERS_MAX: u64 = (1 << 14) - 1;
const FIRST_SHIFT: u32 = 22;
/// Bits of a request's address that are 0: it is a line's.
const LINE_BITS: u32 = 6;

/// The address of the first holder's request.
#[inline(always)]
fn first_holder(word: u64) -> u64 {
    word >> FIRST_SHIFT << LINE_BITS
}

/// The word of a row that one transaction holds.
#[inline(always)]
fn held_by(request: u64, held: Held) -> u64 {
    debug_assert!(request >> (64 - FIRST_SHIFT + LINE_BITS) == 0, "an address of 48 bits");
    request >> LINE_BITS << FIRST_SHIFT | HOLDER | if held == Held::Exclusive { EXCLUSIVE } else { 0 }
}

/// How often a wait is prolonged before it is given up: some milliseconds at least, and much longer where others have work to do.
const WAITS_MAX: u32 = 20_000;

/// A transaction, as others see it in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its worker.
    pub worker: usize,
    /// Its timestamp, if the policy gives it one.
    pub stamp: u64,
    /// Its number among its worker's transactions.
    pub number: u64,
}

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

    /// A request can't be granted at once, because of these: holders, and those who wait before it. Whether it may wait.
    fn may_wait(&self, local: &mut Self::Local, own: Ticket, because_of: impl Iterator<Item = Ticket>) -> bool;

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

    /// The transaction has ended.
    fn end(&self, local: &mut Self::Local, committed: bool);

    /// The transaction holds one lock more.
    fn granted(&self, local: &mut Self::Local) {
        let _ = local;
    }
}

/// A transaction's request of a cell. Reached by others only from the cell's lists, under its latch.
#[repr(align(64))]
struct Request<M: Machine> {
    /// The next and the previous one of the list; 0 at its ends.
    next: M::U64,
    previous: M::U64,
    stamp: M::U64,
    number: M::U64,
    /// The worker's number, and in the lowest bit whether it is for the lock exclusively.
    who: M::U64,
    /// The request by which the same transaction holds the cell shared; 0 if it does not.
    upgrade_of: M::U64,
    /// Written by who grants it, and waited for.
    granted: M::U64,
    /// Of the first holder: the first of those who wait.
    waiters: M::U64,
}

type Pointer<M> = NonNull<Request<M>>;

impl<M: Machine> Request<M> {
    fn new() -> Self {
        let word = || M::U64::new(0);
        Request {
            next: word(),
            previous: word(),
            stamp: word(),
            number: word(),
            who: word(),
            upgrade_of: word(),
            granted: word(),
            waiters: word(),
        }
    }

    fn fill(&self, own: Ticket, held: Held, upgrade_of: u64) {
        // Relaxed, all of them: the latch publishes the request.
        self.stamp.store(own.stamp, Ordering::Relaxed);
        self.number.store(own.number, Ordering::Relaxed);
        self.who.store((own.worker as u64) << 1 | u64::from(held == Held::Exclusive), Ordering::Relaxed);
        self.upgrade_of.store(upgrade_of, Ordering::Relaxed);
        self.granted.store(0, Ordering::Relaxed);
        // It stands alone, until it is put into a list.
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
    }

    // Relaxed, here and below: under the latch.
    fn ticket(&self) -> Ticket {
        let who = self.who.load(Ordering::Relaxed);
        let (stamp, number) = (self.stamp.load(Ordering::Relaxed), self.number.load(Ordering::Relaxed));
        Ticket { worker: (who >> 1) as usize, stamp, number }
    }

    fn is_exclusive(&self) -> bool {
        self.who.load(Ordering::Relaxed) & 1 != 0
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// The request at this address of a list; `None` at the list's end.
///
/// # Safety
/// The caller has the latch of the cell in whose list the address stands.
unsafe fn at<'a, M: Machine>(address: u64) -> Option<&'a Request<M>> {
    let pointer = std::ptr::with_exposed_provenance::<Request<M>>(address as usize);
    // SAFETY: what stands in a list is a request of a worker that has yet to take it out, under the latch, before it goes.
    unsafe { pointer.as_ref() }
}

/// Which list of a cell.
#[derive(Clone, Copy)]
enum List {
    Holders,
    Waiters,
}

/// A cell under its latch.
struct Latched<M: Machine> {
    cell: Cell<M>,
    /// The word, without the latch.
    word: u64,
    /// The address of the first that waits; 0 if none does.
    waiters: u64,
}

impl<M: Machine> Latched<M> {
    #[inline(always)]
    fn new(cell: Cell<M>) -> Self {
        let mut spin = Spin::<M>::new();
        // A first guess instead of a load: a row that nobody holds.
        let mut word = 0;
        loop {
            // Acquire: pairs with the Release of `release`.
            match cell.word().compare_exchange(word, word | LATCH, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if word & WAITING == 0 => return Latched { cell, word, waiters: 0 },
                Ok(_) => {
                    // SAFETY: somebody waits, so that somebody holds it; and the latch is held.
                    let first = unsafe { at::<M>(first_holder(word)) };
                    // Relaxed: under the latch.
                    let waiters = first.map_or(0, |first| first.waiters.load(Ordering::Relaxed));
                    return Latched { cell, word, waiters };
                }
                Err(now) => {
                    if now & LATCH != 0 {
                        spin.wait();
                    }
                    word = now & !LATCH;
                }
            }
        }
    }

    #[inline(always)]
    fn release(mut self) {
        if self.waiters == 0 {
            self.word &= !WAITING;
        } else {
            self.word |= WAITING;
            debug_assert!(self.holders() > 0, "nobody waits for what nobody holds");
            // SAFETY: the latch is held.
            if let Some(first) = unsafe { at::<M>(first_holder(self.word)) } {
                first.waiters.store(self.waiters, Ordering::Relaxed);
            }
        }
        // Release: the lists and the row; pairs with the Acquire of `new`.
        self.cell.word().store(self.word, Ordering::Release);
    }

    /// The address of the first in a list, 0 if there is none.
    #[inline(always)]
    fn first_address(&self, list: List) -> u64 {
        match list {
            List::Holders => first_holder(self.word),
            List::Waiters => self.waiters,
        }
    }

    #[inline(always)]
    fn set_first(&mut self, list: List, address: u64) {
        match list {
            List::Holders => {
                self.word = self.word & ((1 << FIRST_SHIFT) - 1) | address >> LINE_BITS << FIRST_SHIFT;
            }
            List::Waiters => self.waiters = address,
        }
    }

    #[inline(always)]
    fn first(&self, list: List) -> Option<&Request<M>> {
        // SAFETY: the latch is held, and the list is not empty if there is an address.
        unsafe { at(self.first_address(list)) }
    }

    fn all(&self, list: List) -> impl Iterator<Item = &Request<M>> {
        // SAFETY: the latch is held as long as the iterator is used.
        std::iter::successors(self.first(list), |request| unsafe { at(request.next.load(Ordering::Relaxed)) })
    }

    /// Puts a request behind this one, or at the head.
    #[inline(always)]
    fn link(&mut self, list: List, request: &Request<M>, behind: Option<&Request<M>>) {
        let next = match behind {
            Some(before) => before.next.swap(request.address(), Ordering::Relaxed),
            None => {
                let next = self.first_address(list);
                self.set_first(list, request.address());
                next
            }
        };
        request.next.store(next, Ordering::Relaxed);
        request.previous.store(behind.map_or(0, Request::address), Ordering::Relaxed);
        // SAFETY: the latch is held.
        if let Some(next) = unsafe { at::<M>(next) } {
            next.previous.store(request.address(), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn unlink(&mut self, list: List, request: &Request<M>) {
        let (next, previous) = (request.next.load(Ordering::Relaxed), request.previous.load(Ordering::Relaxed));
        // SAFETY: the latch is held.
        let (after, before) = unsafe { (at::<M>(next), at::<M>(previous)) };
        match before {
            Some(before) => before.next.store(next, Ordering::Relaxed),
            None => self.set_first(list, next),
        }
        if let Some(after) = after {
            after.previous.store(previous, Ordering::Relaxed);
        }
    }

    fn add_waiter(&mut self, request: &Request<M>, behind: Option<&Request<M>>) {
        self.link(List::Waiters, request, behind);
    }

    fn remove_waiter(&mut self, request: &Request<M>) {
        self.unlink(List::Waiters, request);
    }

    #[inline(always)]
    fn holders(&self) -> u64 {
        (self.word / HOLDER) & HOLDERS_MAX
    }

    /// Whether those who hold it leave room for a lock like this.
    #[inline(always)]
    fn has_room<F: Faults>(&self, exclusive: bool) -> bool {
        self.holders() == 0 || self.word & EXCLUSIVE == 0 && (!exclusive || F::IGNORE_READERS)
    }

    #[inline(always)]
    fn add_holder(&mut self, request: &Request<M>) {
        self.link(List::Holders, request, None);
        self.word += HOLDER;
        if request.is_exclusive() {
            self.word |= EXCLUSIVE;
        }
    }

    #[inline(always)]
    fn remove_holder(&mut self, request: &Request<M>) {
        self.unlink(List::Holders, request);
        self.word -= HOLDER;
        if request.is_exclusive() {
            self.word &= !EXCLUSIVE;
        }
    }

    /// Grants what waits and can be granted now, from the head on.
    #[cold]
    fn serve<F: Faults>(&mut self) {
        while let Some(first) = self.first(List::Waiters) {
            // SAFETY: the address of a holder, and the latch is held.
            let upgraded = unsafe { at::<M>(first.upgrade_of.load(Ordering::Relaxed)) };
            let first = NonNull::from(first);
            // SAFETY: it stays in the list until it is taken out below; the borrow must not hold `self`.
            let first = unsafe { first.as_ref() };
            match upgraded {
                Some(_) if self.holders() > 1 => return,
                None if !self.has_room::<F>(first.is_exclusive()) => return,
                _ => {}
            }
            self.remove_waiter(first);
            match upgraded {
                Some(share) => {
                    share.who.store(share.who.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
                    self.word |= EXCLUSIVE;
                }
                None => self.add_holder(first),
            }
            // Release: what the holders before did; pairs with the Acquire of the wait. From here on the request is not to be touched.
            first.granted.store(1, Ordering::Release);
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
        // SAFETY: the latch is held, and the request is in the queue.
        let previous = unsafe { at::<M>(request.previous.load(Ordering::Relaxed)) };
        let (all_holders, all_waiters) = if nearest { (previous.is_none(), false) } else { (true, true) };
        let holders = self.all(List::Holders).filter(move |_| all_holders && (exclusive || whole));
        let before = self.all(List::Waiters).take_while(move |other| all_waiters && !std::ptr::eq(*other, request));
        let before = before.chain(previous.filter(|_| nearest));
        holders.chain(before).map(Request::ticket).filter(move |other| other.worker != own.worker)
    }
}

/// Who stands next before a request in the queue, or holds the cell, by a look without the latch.
fn next_in_the_way<M: Machine>(cell: Cell<M>, request: &Request<M>, own: Ticket, visit: &mut dyn FnMut(Ticket)) {
    // Relaxed, all of them: a guess.
    let previous = request.previous.load(Ordering::Relaxed);
    let (mut next, count) = if previous != 0 {
        (previous, 1)
    } else {
        let word = cell.word().load(Ordering::Relaxed);
        (first_holder(word), (word / HOLDER) & HOLDERS_MAX)
    };
    for _ in 0..count {
        // SAFETY: what once stood in a list is a request in the pool, which lives as long as the locks; its words may be of another time.
        let Some(other) = (unsafe { at::<M>(next) }) else { break };
        if other.ticket().worker != own.worker {
            visit(other.ticket());
        }
        next = other.next.load(Ordering::Relaxed);
    }
}

/// Requests of workers that have ended, for others. Their memory is there as long as the locks.
type Pool<M> = Arc<Mutex<Vec<Block<M, Request<M>>>>>;

/// Locks with queues, under this policy.
pub struct Queues<M: Machine, P> {
    policy: P,
    pool: Pool<M>,
}

impl<M: Machine, P: std::fmt::Debug> std::fmt::Debug for Queues<M, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Requests that a worker makes at once.
const REQUESTS: usize = 32;

/// A worker's state.
pub struct QueuesLocal<M: Machine, P: Policy<M>> {
    own: Ticket,
    /// Requests, of which the running transaction uses the first.
    requests: Vec<Block<M, Request<M>>>,
    used: usize,
    pool: Pool<M>,
    policy: P::Local,
}

impl<M: Machine, P: Policy<M>> Drop for QueuesLocal<M, P> {
    fn drop(&mut self) {
        self.pool.lock().append(&mut self.requests);
    }
}

impl<M: Machine, P: Policy<M>> QueuesLocal<M, P> {
    /// A request that is not in use.
    #[inline(always)]
    fn take(&mut self) -> Pointer<M> {
        if self.used == self.requests.len() * REQUESTS {
            let idle = self.pool.lock().pop();
            self.requests.push(idle.unwrap_or_else(|| Block::new(REQUESTS, |_| Request::new())));
        }
        self.used += 1;
        let number = self.used - 1;
        NonNull::from(&self.requests[number / REQUESTS][number % REQUESTS])
    }
}

/// A request that its holder keeps. It is the worker's own until it has ended.
#[derive(Debug)]
pub struct Kept<M: Machine>(Pointer<M>);

impl<M: Machine> Clone for Kept<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Kept<M> {}

// SAFETY: a request is words that any thread may access, and belongs to the worker that keeps it.
unsafe impl<M: Machine> Send for Kept<M> {}

impl<M: Machine> std::fmt::Debug for Request<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl<M: Machine, P> Queues<M, P> {
    /// Waits until the request, which is in the queue, is granted.
    #[cold]
    fn wait(&self, local: &mut QueuesLocal<M, P>, cell: Cell<M>, request: &Request<M>) -> Result<(), AbortReason>
    where
        P: Policy<M>,
    {
        M::step("wait");
        let own = local.own;
        let mut spin = Spin::<M>::new();
        // Acquire: pairs with the Release of `serve`.
        while request.granted.load(Ordering::Acquire) == 0 {
            let look = |visit: &mut dyn FnMut(Ticket)| next_in_the_way(cell, request, own, visit);
            let goes_on = match spin.count() {
                WAITS_MAX.. => Err(AbortReason::LockTimeout),
                waits => self.policy.keep_waiting(&mut local.policy, own, waits, look),
            };
            if let Err(reason) = goes_on {
                let mut latched = Latched::new(cell);
                // Relaxed: under the latch.
                if request.granted.load(Ordering::Relaxed) != 0 {
                    latched.release();
                    break;
                }
                latched.remove_waiter(request);
                latched.serve::<P::Faults>();
                latched.release();
                self.policy.stop_waiting(&mut local.policy);
                return Err(reason);
            }
            spin.wait();
        }
        self.policy.stop_waiting(&mut local.policy);
        Ok(())
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
        assert!(workers as u64 <= HOLDERS_MAX, "{workers} workers, of {HOLDERS_MAX} that can hold a cell together");
        self.policy.prepare(workers);
    }

    fn local(&self, worker: usize) -> QueuesLocal<M, P> {
        let own = Ticket { worker, stamp: 0, number: 0 };
        let pool = Arc::clone(&self.pool);
        QueuesLocal { own, requests: Vec::new(), used: 0, pool, policy: self.policy.local(worker) }
    }

    fn init(cell: Cell<M>, flags: u64, held: bool) {
        // Relaxed: the index publishes the record. What is held is latched until `adopt` says by whom.
        cell.word().store(flags | if held { LATCH } else { 0 }, Ordering::Relaxed);
    }

    #[inline(always)]
    fn begin(&self, local: &mut Self::Local) {
        local.own = self.policy.begin(&mut local.policy);
    }

    fn adopt(&self, local: &mut Self::Local, cell: Cell<M>) -> Kept<M> {
        let kept = local.take();
        // SAFETY: this worker's own.
        let request = unsafe { kept.as_ref() };
        request.fill(local.own, Held::Exclusive, 0);
        // Relaxed: the latch is this transaction's.
        let mut latched = Latched { cell, word: cell.word().load(Ordering::Relaxed) & !LATCH, waiters: 0 };
        latched.add_holder(request);
        latched.release();
        Kept(kept)
    }

    #[inline(always)]
    fn lock(&self, local: &mut Self::Local, cell: Cell<M>, held: Held) -> Result<Asked<Kept<M>>, Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        let (own, exclusive) = (local.own, held == Held::Exclusive);
        let kept = local.take();
        // SAFETY: this worker's own, which lives as long as the worker.
        let request = unsafe { kept.as_ref() };
        request.fill(own, held, 0);
        // A first guess: a row that nobody holds. Release: publishes the request, to who latches the cell. Acquire: pairs with the
        // Release of who held it before.
        let taken = held_by(request.address(), held);
        if cell.word().compare_exchange(0, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.policy.granted(&mut local.policy);
            return Ok(Asked::Granted(Kept(kept), 0));
        }
        let mut latched = Latched::new(cell);
        if latched.word & UNLINKED != 0 {
            latched.release();
            local.used -= 1;
            return Ok(Asked::Unlinked);
        }
        // Behind which of those that wait? Not all stand in the policy's order: who upgrades stands first.
        let stands_behind = |other: &&Request<M>| !self.policy.goes_before(own, other.ticket());
        let before = latched.all(List::Waiters).filter(stands_behind).last().map(NonNull::from);
        if before.is_none() && latched.has_room::<P::Faults>(exclusive) {
            latched.add_holder(request);
            let flags = latched.word & FLAGS;
            latched.release();
            self.policy.granted(&mut local.policy);
            return Ok(Asked::Granted(Kept(kept), flags));
        }
        // SAFETY: in the list, under the latch.
        latched.add_waiter(request, before.map(|before| unsafe { before.as_ref() }));
        let in_the_way = latched.in_the_way(own, exclusive, request, P::NEAREST);
        let may_wait = self.policy.may_wait(&mut local.policy, own, in_the_way) || P::Faults::WAIT_ANYWAY;
        if !may_wait {
            latched.remove_waiter(request);
        }
        latched.release();
        let reason = if exclusive { AbortReason::WriteLocked } else { AbortReason::ReadLocked };
        let granted = if may_wait { self.wait(local, cell, request) } else { Err(reason) };
        if let Err(reason) = granted {
            local.used -= 1;
            return Err(Abort::new(reason));
        }
        self.policy.granted(&mut local.policy);
        // Relaxed: flags of a cell that is held change by this transaction only.
        Ok(Asked::Granted(Kept(kept), cell.word().load(Ordering::Relaxed) & FLAGS))
    }

    fn upgrade(&self, local: &mut Self::Local, cell: Cell<M>, Kept(share): Kept<M>) -> Result<(), Abort> {
        self.policy.check(&local.policy, local.own).map_err(Abort::new)?;
        // SAFETY: this worker's own.
        let share = unsafe { share.as_ref() };
        let mut latched = Latched::new(cell);
        if latched.holders() == 1 || P::Faults::IGNORE_READERS {
            // Relaxed: under the latch.
            share.who.store(share.who.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
            latched.word |= EXCLUSIVE;
            latched.release();
            return Ok(());
        }
        let own = local.own;
        let request = local.take();
        // SAFETY: this worker's own.
        let request = unsafe { request.as_ref() };
        request.fill(own, Held::Exclusive, share.address());
        // Before all others, who have to wait for this transaction's share in any case.
        latched.add_waiter(request, None);
        let in_the_way = latched.in_the_way(own, true, request, P::NEAREST);
        let may_wait = self.policy.may_wait(&mut local.policy, own, in_the_way) || P::Faults::WAIT_ANYWAY;
        if !may_wait {
            latched.remove_waiter(request);
        }
        latched.release();
        let granted = if may_wait { self.wait(local, cell, request) } else { Err(AbortReason::WriteLocked) };
        // The share is what is kept.
        local.used -= 1;
        granted.map_err(Abort::new)
    }

    fn commit_point(&self, local: &mut Self::Local) -> Result<(), Abort> {
        self.policy.commit_point(&local.policy, local.own).map_err(Abort::new)
    }

    #[inline(always)]
    fn unlock(&self, _: &mut Self::Local, cell: Cell<M>, held: Held, Kept(kept): Kept<M>) {
        // A first guess: this is the only holder, of a row, and nobody waits.
        // SAFETY: this worker's own.
        let word = held_by(unsafe { kept.as_ref() }.address(), held);
        // Release: the row; pairs with the Acquire of `Latched::new`.
        if cell.word().compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let mut latched = Latched::new(cell);
        // SAFETY: this worker's own.
        latched.remove_holder(unsafe { kept.as_ref() });
        if latched.first(List::Waiters).is_some() {
            latched.serve::<P::Faults>();
        }
        latched.release();
    }

    #[inline(always)]
    fn end(&self, local: &mut Self::Local, committed: bool) {
        local.used = 0;
        self.policy.end(&mut local.policy, committed);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        // Acquire: pairs with the Release of `release`, for who holds nothing.
        cell.word().load(Ordering::Acquire) & FLAGS
    }

    fn set_flags(cell: Cell<M>, clear: u64, set: u64) {
        // Others may look at the lists meanwhile.
        let mut latched = Latched::new(cell);
        latched.word = latched.word & !clear | set;
        latched.release();
    }

    fn seize(cell: Cell<M>) -> Option<u64> {
        // Relaxed: the exchange decides.
        let word = cell.word().load(Ordering::Relaxed);
        let free = word & !FLAGS == 0;
        // Acquire: as in `Latched::new`. Nobody waits for what nobody holds.
        let taken =
            free && cell.word().compare_exchange(word, word | LATCH, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then_some(word)
    }

    fn let_go(cell: Cell<M>, clear: u64, set: u64) {
        // Relaxed: the latch is the caller's. Release: as any.
        cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS & !clear | set, Ordering::Release);
    }
}
