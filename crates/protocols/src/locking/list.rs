//! A lock that knows who holds it and who waits for it, in lists under a latch.
//!
//! A cell has one word:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..22 | the newest holder's request: its address, which is one of a line |
//! | 21..8 | how many transactions hold the cell |
//! | 5 | somebody waits |
//! | 4 | held exclusively |
//! | 3..1 | flags: [`crate::flags`] |
//! | 0 | latched: the lists and this word belong to who has set it |
//!
//! A request stands on a line of its own, on which its transaction waits. Those of the holders are a list, the newest first, and those of who
//! waits are another, whose head stands in the newest holder's request: nobody waits for what nobody holds. A latch is held for some
//! instructions, in which nothing is waited for. A cell that nobody holds is taken, and by its only holder given back, by one exchange of its
//! word.

use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, EngineConfig};
use contend_machine::{Atomic64, Block, Machine, Ordering, Spin};
use parking_lot::Mutex;

use super::{FLAGS, Held};

pub(crate) const LATCH: u64 = 1;
pub(crate) const EXCLUSIVE: u64 = 1 << 4;
const WAITING: u64 = 1 << 5;
/// One holder.
const HOLDER: u64 = 1 << 8;
pub(crate) const HOLDERS_MAX: u64 = (1 << 14) - 1;
const _: () = assert!(EngineConfig::WORKERS_MAX as u64 <= HOLDERS_MAX);
const FIRST_SHIFT: u32 = 22;
/// Bits of a request's address that are 0: it is a line's.
const LINE_BITS: u32 = 6;

/// The address of the newest holder's request.
#[inline(always)]
fn first_holder(word: u64) -> u64 {
    word >> FIRST_SHIFT << LINE_BITS
}

/// The word of a row that one transaction holds.
#[inline(always)]
pub(crate) fn held_by(request: u64, held: Held) -> u64 {
    debug_assert!(request >> (64 - FIRST_SHIFT + LINE_BITS) == 0, "an address of 48 bits");
    request >> LINE_BITS << FIRST_SHIFT | HOLDER | if held == Held::Exclusive { EXCLUSIVE } else { 0 }
}

/// How often a wait is prolonged before it is given up: some milliseconds at least, and much longer where others have work to do.
pub(crate) const WAITS_MAX: u32 = 20_000;

/// Panics if there are more workers than can hold a cell together.
pub(crate) fn check_workers(workers: usize) {
    assert!(workers as u64 <= HOLDERS_MAX, "{workers} workers, of {HOLDERS_MAX} that can hold a cell together");
}

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

/// A transaction's request of a cell. Reached by others only from the cell's lists, under its latch.
#[repr(align(64))]
pub struct Request<M: Machine> {
    /// The next and the previous one of the list; 0 at its ends.
    next: M::U64,
    previous: M::U64,
    stamp: M::U64,
    number: M::U64,
    /// The worker's number, and below it [`Request::EXCLUSIVE`] and what else there is.
    who: M::U64,
    /// The request by which the same transaction holds the cell shared; 0 if it does not.
    upgrade_of: M::U64,
    /// Written by who grants it, and waited for.
    granted: M::U64,
    /// Of the newest holder: the first of those who wait.
    waiters: M::U64,
}

impl<M: Machine> Request<M> {
    /// It is for the lock exclusively.
    pub(crate) const EXCLUSIVE: u64 = 1;
    /// Its transaction has retired the lock: others may hold the cell with it.
    pub(crate) const RETIRED: u64 = 1 << 1;
    /// What its transaction has read of the cell, or written to it, is undone.
    pub(crate) const VOID: u64 = 1 << 2;
    const WORKER_SHIFT: u32 = 3;

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

    #[inline(always)]
    pub(crate) fn fill(&self, own: Ticket, held: Held, upgrade_of: u64) {
        // Relaxed, all of them: the latch publishes the request.
        self.stamp.store(own.stamp, Ordering::Relaxed);
        self.number.store(own.number, Ordering::Relaxed);
        let exclusive = if held == Held::Exclusive { Self::EXCLUSIVE } else { 0 };
        self.who.store((own.worker as u64) << Self::WORKER_SHIFT | exclusive, Ordering::Relaxed);
        self.upgrade_of.store(upgrade_of, Ordering::Relaxed);
        self.granted.store(0, Ordering::Relaxed);
        // It stands alone, until it is put into a list.
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
    }

    // Relaxed, here and below: under the latch.
    pub(crate) fn ticket(&self) -> Ticket {
        let who = self.who.load(Ordering::Relaxed);
        let (stamp, number) = (self.stamp.load(Ordering::Relaxed), self.number.load(Ordering::Relaxed));
        Ticket { worker: (who >> Self::WORKER_SHIFT) as usize, stamp, number }
    }

    /// Whether any of these holds of it.
    #[inline(always)]
    pub(crate) fn is(&self, what: u64) -> bool {
        self.who.load(Ordering::Relaxed) & what != 0
    }

    /// From now on these hold of it, and those don't.
    #[inline(always)]
    pub(crate) fn becomes(&self, these: u64, not_those: u64) {
        self.who.store(self.who.load(Ordering::Relaxed) & !not_those | these, Ordering::Relaxed);
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.is(Self::EXCLUSIVE)
    }

    /// The request by which the same transaction holds the cell already. The caller has the latch.
    pub(crate) fn share(&self) -> Option<&Request<M>> {
        // SAFETY: the address of a holder of the same cell, or 0; and the latch is held.
        unsafe { at(self.upgrade_of.load(Ordering::Relaxed)) }
    }

    /// It is granted. From here on it is not to be touched: its worker may use it for something else.
    pub(crate) fn grant(&self) {
        // Release: what the holders before did; pairs with the Acquire of `wait`.
        self.granted.store(1, Ordering::Release);
    }

    /// Waits until the request, which is in the cell's queue, is granted. `goes_on` is asked, with how often it was, whether to wait
    /// longer; if not, or not for ever, the request leaves the queue, and `serve` looks who can be granted without it.
    ///
    /// # Errors
    /// It was not granted.
    #[cold]
    pub(crate) fn wait(
        &self,
        cell: Cell<M>,
        mut goes_on: impl FnMut(u32) -> Result<(), AbortReason>,
        serve: impl FnOnce(&mut Latched<M>),
    ) -> Result<(), AbortReason> {
        M::step("wait");
        let mut spin = Spin::<M>::new();
        // Acquire: pairs with the Release of `grant`.
        while self.granted.load(Ordering::Acquire) == 0 {
            let answer = match spin.count() {
                WAITS_MAX.. => Err(AbortReason::LockTimeout),
                waits => goes_on(waits),
            };
            if let Err(reason) = answer {
                let mut latched = Latched::new(cell);
                // Relaxed: under the latch.
                if self.granted.load(Ordering::Relaxed) != 0 {
                    latched.release();
                    break;
                }
                latched.remove_waiter(self);
                serve(&mut latched);
                latched.release();
                return Err(reason);
            }
            spin.wait();
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
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

impl<M: Machine> Request<M> {
    /// Who stands next before the request in the queue, or holds the cell, by a look without the latch: what it shows may be a mixture
    /// of times.
    pub(crate) fn next_in_the_way(&self, cell: Cell<M>, visit: &mut dyn FnMut(Ticket)) {
        // Relaxed, all of them: a guess.
        let previous = self.previous.load(Ordering::Relaxed);
        let (mut next, count) = if previous != 0 {
            (previous, 1)
        } else {
            let word = cell.word().load(Ordering::Relaxed);
            (first_holder(word), (word / HOLDER) & HOLDERS_MAX)
        };
        for _ in 0..count {
            // SAFETY: what once stood in a list is a request in the pool, which lives as long as the locks; its words may be of another
            // time.
            let Some(other) = (unsafe { at::<M>(next) }) else { break };
            if other.ticket().worker != self.ticket().worker {
                visit(other.ticket());
            }
            next = other.next.load(Ordering::Relaxed);
        }
    }
}

/// Which list of a cell.
#[derive(Clone, Copy)]
pub(crate) enum List {
    Holders,
    Waiters,
}

/// A cell under its latch.
pub(crate) struct Latched<M: Machine> {
    cell: Cell<M>,
    /// The word, without the latch.
    pub(crate) word: u64,
    /// The address of the first that waits; 0 if none does.
    waiters: u64,
}

impl<M: Machine> Latched<M> {
    #[inline(always)]
    pub(crate) fn new(cell: Cell<M>) -> Self {
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
    pub(crate) fn release(mut self) {
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

    /// A cell that was made latched, and that nobody holds.
    pub(crate) fn adopted(cell: Cell<M>) -> Self {
        // Relaxed: the latch is the caller's.
        Latched { cell, word: cell.word().load(Ordering::Relaxed) & !LATCH, waiters: 0 }
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
    pub(crate) fn first(&self, list: List) -> Option<&Request<M>> {
        // SAFETY: the latch is held, and the list is not empty if there is an address.
        unsafe { at(self.first_address(list)) }
    }

    pub(crate) fn all(&self, list: List) -> impl Iterator<Item = &Request<M>> {
        // SAFETY: the latch is held as long as the iterator is used.
        std::iter::successors(self.first(list), |request| unsafe { at(request.next.load(Ordering::Relaxed)) })
    }

    /// The cell.
    pub(crate) fn cell(&self) -> Cell<M> {
        self.cell
    }

    /// The one that stands before this one in its list.
    pub(crate) fn previous(&self, request: &Request<M>) -> Option<&Request<M>> {
        // SAFETY: the latch is held, and the request is in a list of the cell.
        unsafe { at(request.previous.load(Ordering::Relaxed)) }
    }

    /// Grants what the first waits for: it holds the cell, as the newest, or its transaction's share becomes what it has asked for.
    pub(crate) fn grant_first(&mut self) {
        let Some(first) = self.first(List::Waiters).map(NonNull::from) else { return };
        // SAFETY: it stays in the list until it is taken out below; the borrow must not hold `self`.
        let first = unsafe { first.as_ref() };
        self.remove_waiter(first);
        match first.share().map(NonNull::from) {
            // SAFETY: as above.
            Some(share) => self.renew(unsafe { share.as_ref() }, first.is_exclusive()),
            None => self.add_holder(first),
        }
        first.grant();
    }

    /// A holder becomes the newest, and holds the cell exclusively if it is to, or did.
    pub(crate) fn renew(&mut self, share: &Request<M>, exclusive: bool) {
        self.remove_holder(share);
        share.becomes(if exclusive { Request::<M>::EXCLUSIVE } else { 0 }, Request::<M>::RETIRED);
        self.add_holder(share);
    }

    /// Those who hold the cell longer than this holder, the newest first.
    pub(crate) fn older_than<'a>(&'a self, holder: &Request<M>) -> impl Iterator<Item = &'a Request<M>> {
        // SAFETY: the latch is held as long as the iterator is used.
        let next = |address: u64| unsafe { at::<M>(address) };
        std::iter::successors(next(holder.next.load(Ordering::Relaxed)), move |request| {
            next(request.next.load(Ordering::Relaxed))
        })
    }

    /// Those who hold it less long.
    pub(crate) fn newer_than<'a>(&'a self, holder: &Request<M>) -> impl Iterator<Item = &'a Request<M>> {
        let address = holder.address();
        self.all(List::Holders).take_while(move |other| other.address() != address)
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

    /// Puts a request into the queue, behind all but those that it goes before; whether it is the first.
    pub(crate) fn add_waiter_in_order(&mut self, request: &Request<M>, goes_before: impl Fn(Ticket) -> bool) -> bool {
        // The last: not all need stand in this order.
        let stands_behind = |other: &&Request<M>| !goes_before(other.ticket());
        let behind = self.all(List::Waiters).filter(stands_behind).last().map(NonNull::from);
        // SAFETY: in the list, under the latch; the borrow must not hold `self`.
        self.add_waiter(request, behind.map(|behind| unsafe { behind.as_ref() }));
        behind.is_none()
    }

    pub(crate) fn add_waiter(&mut self, request: &Request<M>, behind: Option<&Request<M>>) {
        self.link(List::Waiters, request, behind);
    }

    pub(crate) fn remove_waiter(&mut self, request: &Request<M>) {
        self.unlink(List::Waiters, request);
    }

    #[inline(always)]
    pub(crate) fn holders(&self) -> u64 {
        (self.word / HOLDER) & HOLDERS_MAX
    }

    #[inline(always)]
    pub(crate) fn add_holder(&mut self, request: &Request<M>) {
        self.link(List::Holders, request, None);
        self.word += HOLDER;
        if request.is_exclusive() {
            self.word |= EXCLUSIVE;
        }
    }

    #[inline(always)]
    pub(crate) fn remove_holder(&mut self, request: &Request<M>) {
        self.unlink(List::Holders, request);
        self.word -= HOLDER;
        if request.is_exclusive() {
            self.word &= !EXCLUSIVE;
        }
    }
}

/// Requests of workers that have ended, for others. Their memory is there as long as the locks.
pub(crate) type Pool<M> = Arc<Mutex<Vec<Block<M, Request<M>>>>>;

/// Requests that a worker makes at once. A model checker looks at all words there are again and again: few.
const REQUESTS: usize = if cfg!(loom) { 4 } else { 32 };

/// A worker's requests, of which the running transaction uses the first.
pub(crate) struct Requests<M: Machine> {
    blocks: Vec<Block<M, Request<M>>>,
    used: usize,
    pool: Pool<M>,
}

impl<M: Machine> std::fmt::Debug for Requests<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("used", &self.used).finish_non_exhaustive()
    }
}

impl<M: Machine> Drop for Requests<M> {
    fn drop(&mut self) {
        self.pool.lock().append(&mut self.blocks);
    }
}

impl<M: Machine> Requests<M> {
    pub(crate) fn new(pool: &Pool<M>) -> Self {
        Requests { blocks: Vec::new(), used: 0, pool: Arc::clone(pool) }
    }

    /// A request that is not in use.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Kept<M> {
        if self.used == self.blocks.len() * REQUESTS {
            let idle = self.pool.lock().pop();
            self.blocks.push(idle.unwrap_or_else(|| Block::new(REQUESTS, |_| Request::new())));
        }
        self.used += 1;
        let number = self.used - 1;
        Kept(NonNull::from(&self.blocks[number / REQUESTS][number % REQUESTS]))
    }

    /// The request that was taken last is in no list.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        self.used -= 1;
    }

    /// No request is in a list.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

/// A request that its holder keeps. It is the worker's own until it has ended.
#[derive(Debug)]
pub struct Kept<M: Machine>(NonNull<Request<M>>);

impl<M: Machine> std::ops::Deref for Kept<M> {
    type Target = Request<M>;

    #[inline(always)]
    fn deref(&self) -> &Request<M> {
        // SAFETY: the worker's own, from a block that goes back to the pool when the worker ends, and lives as long as the locks.
        unsafe { self.0.as_ref() }
    }
}

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

/// Sets the word of a cell that nobody else sees yet: free, or latched until it is adopted.
pub(crate) fn init<M: Machine>(cell: Cell<M>, flags: u64, held: bool) {
    // Relaxed: the index publishes the record.
    cell.word().store(flags | if held { LATCH } else { 0 }, Ordering::Relaxed);
}

/// The transaction holds this cell, which was made latched, exclusively.
pub(crate) fn adopt<M: Machine>(requests: &mut Requests<M>, own: Ticket, cell: Cell<M>) -> Kept<M> {
    let request = requests.take();
    request.fill(own, Held::Exclusive, 0);
    let mut latched = Latched::adopted(cell);
    latched.add_holder(&request);
    latched.release();
    request
}

/// Takes a lock that nobody holds, of a row; whether that was so.
#[inline(always)]
pub(crate) fn take_free<M: Machine>(cell: Cell<M>, request: &Request<M>, held: Held) -> bool {
    // Release: publishes the request, to who latches the cell. Acquire: pairs with the Release of who held it before.
    let taken = held_by(request.address(), held);
    cell.word().compare_exchange(0, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Takes a lock that nobody holds, of a row, and its latch.
#[inline(always)]
pub(crate) fn take_free_latched<M: Machine>(cell: Cell<M>, request: &Request<M>, held: Held) -> Option<Latched<M>> {
    let word = held_by(request.address(), held);
    // Acquire: as in `take_free`; the latch's end publishes the request.
    let taken = cell.word().compare_exchange(0, word | LATCH, Ordering::Acquire, Ordering::Relaxed).is_ok();
    taken.then_some(Latched { cell, word, waiters: 0 })
}

/// Gives back a lock of a row that nobody else holds or waits for; whether that was so.
#[inline(always)]
pub(crate) fn give_back_only<M: Machine>(cell: Cell<M>, request: &Request<M>, held: Held) -> bool {
    // Release: the row; pairs with the Acquire of `Latched::new`, and of `take_free`.
    let word = held_by(request.address(), held);
    cell.word().compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_ok()
}

#[inline(always)]
pub(crate) fn flags<M: Machine>(cell: Cell<M>) -> u64 {
    // Acquire: pairs with the Release of `release`, for who holds nothing.
    cell.word().load(Ordering::Acquire) & FLAGS
}

/// Changes the flags of a cell that the caller holds exclusively; what they were.
pub(crate) fn set_flags<M: Machine>(cell: Cell<M>, clear: u64, set: u64) -> u64 {
    // Others may look at the lists meanwhile.
    let mut latched = Latched::new(cell);
    let before = latched.word & FLAGS;
    latched.word = latched.word & !clear | set;
    latched.release();
    before
}

/// Latches a cell that nobody holds; its flags.
pub(crate) fn seize<M: Machine>(cell: Cell<M>) -> Option<u64> {
    // Relaxed: the exchange decides.
    let word = cell.word().load(Ordering::Relaxed);
    let free = word & !FLAGS == 0;
    // Acquire: as in `Latched::new`. Nobody waits for what nobody holds.
    let taken = free && cell.word().compare_exchange(word, word | LATCH, Ordering::Acquire, Ordering::Relaxed).is_ok();
    taken.then_some(word)
}

/// Ends that, and changes the flags.
pub(crate) fn let_go<M: Machine>(cell: Cell<M>, clear: u64, set: u64) {
    // Relaxed: the latch is the caller's. Release: as any.
    cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS & !clear | set, Ordering::Release);
}
