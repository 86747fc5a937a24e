//! A lock that knows its holders and its waiters: two lists of requests under a latch.
//!
//! A cell has one word:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..22 | the address of the newest holder's request, without its 6 low bits, which are 0 |
//! | 21..8 | the number of holders |
//! | 5 | a transaction waits for the cell |
//! | 4 | a transaction holds the cell exclusively |
//! | 3..1 | flags: [`crate::flags`] |
//! | 0 | latched: the lists and this word belong to the worker that has set the bit |
//!
//! A request has a cache line of its own, on which its transaction waits. Two lists link the
//! requests for a cell: those of the holders, the newest first, and those of the waiters. The head
//! of the waiters stands in the newest holder's request, because no transaction waits for a cell
//! that no transaction holds.
//!
//! A worker latches a cell for some instructions, and waits for nothing meanwhile. In the common
//! case it needs no latch: one exchange of the word acquires a cell that has no holder, and one
//! exchange releases a cell that has no other holder and no waiter.
//!
//! **Orderings.** The latch orders everything that it protects:
//!
//! - Its Acquire exchange (`LatchedCell::latch`) pairs with the Release store of the last
//!   `LatchedCell::unlatch`, and with the Release of `try_acquire_free` and `try_release_sole`,
//!   which change the word without a latch. So the lists, the requests in them and the row are as
//!   the last worker left them, and Relaxed accesses are enough under the latch.
//! - The Release of `Request::grant` pairs with the Acquire of `Request::wait`: a waiter that is
//!   granted the cell doesn't latch it, and so needs this pair to see the row.
//! - A few loads look at a list without the latch. They are marked as guesses, and nothing depends
//!   on them.
//!
//! **Why the word alone decides.** Each change of the word is an exchange from a word without the
//! latch, or the store that ends the latch. So while a cell is latched, no other worker changes its
//! word, and a plain store may end the latch. And a word names one state: the number of holders,
//! the newest of them, whether a transaction waits, and the flags. An exchange from the word "held
//! by this request alone" therefore proves that no other holder and no waiter has come, although it
//! reads no list.
//!
//! **When memory may be read.** The blocks of requests are freed with the locks, and never before.
//! So an address that has once stood in a list leads to a request, which may be in another use by
//! now. Under the latch the links lead to requests of this cell, because a worker takes its request
//! out of the lists before it uses it again.
//!
//! **Cache lines.** A waiter spins on its own request's line. Other workers store to it when a
//! neighbour in the list comes or goes, and once for the grant. So waiters leave the cell's word to
//! the workers that change it, except that deadlock detection looks at it now and then.

use std::ptr::NonNull;
use std::sync::Arc;

use contend_engine::{AbortReason, Cell, EngineConfig};
use contend_machine::{Atomic64, Block, Machine, Ordering, Spin};
use parking_lot::Mutex;

use super::{FLAGS, LockMode, LockWord};
use crate::method::wait::LOCK_WAITS_MAX;

pub(crate) const LATCH: u64 = 1;
pub(crate) const EXCLUSIVE: u64 = 1 << 4;
const WAITING: u64 = 1 << 5;
/// One holder.
const HOLDER: u64 = 1 << 8;
pub(crate) const HOLDERS_MAX: u64 = (1 << 14) - 1;
const _: () = assert!(EngineConfig::WORKERS_MAX as u64 <= HOLDERS_MAX);
const FIRST_SHIFT: u32 = 22;
/// The low bits of a request's address that are 0, because the request is aligned to a cache line.
const LINE_BITS: u32 = 6;

/// Returns the address of the newest holder's request.
#[inline(always)]
fn first_holder(word: u64) -> u64 {
    word >> FIRST_SHIFT << LINE_BITS
}

/// Returns the word of a cell with a row, held in `mode` by the transaction of one request only.
#[inline(always)]
pub(crate) fn held_by(request: u64, mode: LockMode) -> u64 {
    debug_assert!(request >> (64 - FIRST_SHIFT + LINE_BITS) == 0, "an address of 48 bits");
    request >> LINE_BITS << FIRST_SHIFT | HOLDER | if mode == LockMode::Exclusive { EXCLUSIVE } else { 0 }
}

/// Panics if there are more workers than can hold a cell together.
pub(crate) fn check_workers(workers: usize) {
    assert!(workers as u64 <= HOLDERS_MAX, "{workers} workers, of {HOLDERS_MAX} that can hold a cell together");
}

/// The transaction of a request, as other transactions see it in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// The number of its worker.
    pub worker: usize,
    /// Its timestamp; 0 if the policy uses none.
    pub timestamp: u64,
    /// Its number among the transactions of its worker; 0 if the policy uses none.
    pub transaction: u64,
}

/// A transaction's request for a cell. Other workers reach it through the cell's lists, under the
/// latch.
#[repr(align(64))]
pub struct Request<M: Machine> {
    /// The addresses of its neighbours in the list; 0 at the list's ends.
    next: M::U64,
    previous: M::U64,
    timestamp: M::U64,
    transaction: M::U64,
    /// The worker's number, above the flags [`Request::EXCLUSIVE`], [`Request::RETIRED`] and
    /// [`Request::VOID`].
    worker: M::U64,
    /// The address of the request by which the same transaction holds the cell shared; 0 if it
    /// doesn't.
    upgrade_of: M::U64,
    /// 1 if the request is granted. Its transaction waits for that.
    granted: M::U64,
    /// In the newest holder's request: the address of the first waiter's request.
    waiters: M::U64,
}

impl<M: Machine> Request<M> {
    /// The request is for the exclusive lock.
    pub(crate) const EXCLUSIVE: u64 = 1;
    /// Its transaction has retired the lock (Bamboo): others may hold the cell with it.
    pub(crate) const RETIRED: u64 = 1 << 1;
    /// Its transaction's access to the cell is void (Bamboo): it was rolled back.
    pub(crate) const VOID: u64 = 1 << 2;
    const WORKER_SHIFT: u32 = 3;

    fn new() -> Self {
        let word = || M::U64::new(0);
        Request {
            next: word(),
            previous: word(),
            timestamp: word(),
            transaction: word(),
            worker: word(),
            upgrade_of: word(),
            granted: word(),
            waiters: word(),
        }
    }

    /// Makes the request one of `own` for a lock in `mode`. `upgrade_of` is the address of its
    /// shared request, or 0.
    #[inline(always)]
    pub(crate) fn fill(&self, own: LockOwner, mode: LockMode, upgrade_of: u64) {
        // Relaxed, all of them: the request is in no list, so only its worker reads it. The Release
        // that puts it into one publishes it: that of `unlatch` or `try_acquire_free`.
        self.timestamp.store(own.timestamp, Ordering::Relaxed);
        self.transaction.store(own.transaction, Ordering::Relaxed);
        let exclusive = if mode == LockMode::Exclusive { Self::EXCLUSIVE } else { 0 };
        // Relaxed: published with the words above.
        self.worker.store((own.worker as u64) << Self::WORKER_SHIFT | exclusive, Ordering::Relaxed);
        self.upgrade_of.store(upgrade_of, Ordering::Relaxed);
        // Relaxed: other workers store these words only after they have found the request in a
        // list, and the Acquire of their latch orders that after these stores.
        self.granted.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
    }

    /// Returns the transaction of the request. The caller has the latch, or takes the answer as a
    /// guess.
    pub(crate) fn owner(&self) -> LockOwner {
        // Relaxed, all of them: the latch orders them; without it they are a guess.
        let worker = self.worker.load(Ordering::Relaxed);
        let (timestamp, transaction) =
            (self.timestamp.load(Ordering::Relaxed), self.transaction.load(Ordering::Relaxed));
        LockOwner { worker: (worker >> Self::WORKER_SHIFT) as usize, timestamp, transaction }
    }

    /// Returns whether the request has any of these flags. The caller has the latch, or is the
    /// request's worker.
    #[inline(always)]
    pub(crate) fn has(&self, flags: u64) -> bool {
        // Relaxed: the latch orders it.
        self.worker.load(Ordering::Relaxed) & flags != 0
    }

    /// Clears and then sets flags. The caller has the latch.
    #[inline(always)]
    pub(crate) fn change(&self, clear: u64, set: u64) {
        // Relaxed, both: under the latch.
        self.worker.store(self.worker.load(Ordering::Relaxed) & !clear | set, Ordering::Relaxed);
    }

    /// Returns whether the request is for the exclusive lock.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.has(Self::EXCLUSIVE)
    }

    /// Returns the mode of the lock that it requests, or by which its transaction holds the cell.
    pub(crate) fn mode(&self) -> LockMode {
        if self.is_exclusive() { LockMode::Exclusive } else { LockMode::Shared }
    }

    /// Returns the request by which the same transaction holds the cell already. The caller has the
    /// latch.
    pub(crate) fn share(&self) -> Option<&Request<M>> {
        // Relaxed: under the latch.
        // SAFETY: the address of a holder of the same cell, or 0; and the caller has the latch.
        unsafe { at(self.upgrade_of.load(Ordering::Relaxed)) }
    }

    /// Grants the request, which is in no list of waiters any more. After the call its worker may
    /// reuse it.
    pub(crate) fn grant(&self) {
        // Release: the accesses of the cell's earlier holders come before; pairs with the Acquire
        // of `wait`.
        self.granted.store(1, Ordering::Release);
    }

    /// Waits until the request, which is in the cell's queue, is granted. Each time that the wait
    /// is prolonged, `may_continue` is called with the number of times. If it fails, or at
    /// [`LOCK_WAITS_MAX`], the request leaves the queue, and `serve` grants what can be granted
    /// without it.
    ///
    /// # Errors
    /// The request was not granted.
    #[cold]
    pub(crate) fn wait(
        &self,
        cell: Cell<M>,
        mut may_continue: impl FnMut(u32) -> Result<(), AbortReason>,
        serve: impl FnOnce(&mut LatchedCell<M>),
    ) -> Result<(), AbortReason> {
        M::step("wait");
        let mut spin = Spin::<M>::new();
        // Acquire: pairs with the Release of `grant`: the row is as the last holder left it.
        while self.granted.load(Ordering::Acquire) == 0 {
            let answer = match spin.count() {
                LOCK_WAITS_MAX.. => Err(AbortReason::LockTimeout),
                waits => may_continue(waits),
            };
            if let Err(reason) = answer {
                let mut latched = LatchedCell::latch(cell);
                // The request may have been granted since the load above: the holder latches the
                // cell first, grants, and unlatches; then this worker latches. The request stands
                // among the holders by now, and `remove_waiter` would tear their list. Requests are
                // granted under the latch, so the answer is final here. Relaxed: under the latch,
                // whose Acquire orders the holders before.
                if self.granted.load(Ordering::Relaxed) != 0 {
                    latched.unlatch();
                    break;
                }
                latched.remove_waiter(self);
                serve(&mut latched);
                latched.unlatch();
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

    /// Calls `visit` with the transaction next before the request in the queue, or, if there is
    /// none, with each holder of the cell.
    ///
    /// It takes no latch, so it can show a mixture of several states of the lists.
    pub(crate) fn visit_nearest_blockers(&self, cell: Cell<M>, visit: &mut dyn FnMut(LockOwner)) {
        // Relaxed, all of them: a guess, on which nothing depends.
        let previous = self.previous.load(Ordering::Relaxed);
        let (mut next, count) = if previous != 0 {
            (previous, 1)
        } else {
            // Relaxed: a guess, as above.
            let word = cell.word().load(Ordering::Relaxed);
            (first_holder(word), (word / HOLDER) & HOLDERS_MAX)
        };
        for _ in 0..count {
            // SAFETY: an address that once stood in a list is that of a request in the pool, which
            // lives as long as the locks. Its words may be those of another time.
            let Some(other) = (unsafe { at::<M>(next) }) else { break };
            if other.owner().worker != self.owner().worker {
                visit(other.owner());
            }
            // Relaxed: a guess. The link may be that of another list by now.
            next = other.next.load(Ordering::Relaxed);
        }
    }
}

/// Returns the request at this address of a list; `None` at the list's end.
///
/// # Safety
/// The address has stood in a list of a cell: it is 0, or that of a request in a pool of the
/// caller's locks.
unsafe fn at<'a, M: Machine>(address: u64) -> Option<&'a Request<M>> {
    let pointer = std::ptr::with_exposed_provenance::<Request<M>>(address as usize);
    // SAFETY: requests live as long as the locks, whose pool keeps those of workers that have
    // ended; their words are atomic.
    unsafe { pointer.as_ref() }
}

/// One of the two lists of a cell.
#[derive(Clone, Copy)]
pub(crate) enum List {
    /// The holders, the newest first.
    Holders,
    /// The waiters, in the order in which they are granted.
    Waiters,
}

/// A cell that the worker has latched.
pub(crate) struct LatchedCell<M: Machine> {
    cell: Cell<M>,
    /// The cell's word, without the latch. [`LatchedCell::unlatch`] stores it.
    pub(crate) word: u64,
    /// The address of the first waiter's request; 0 if there is none.
    waiters: u64,
}

impl<M: Machine> LatchedCell<M> {
    /// Latches the cell; spins while another worker has latched it.
    #[inline(always)]
    pub(crate) fn latch(cell: Cell<M>) -> Self {
        let mut spin = Spin::<M>::new();
        // The first exchange guesses that the cell has a row and no holder. It saves a load, and so
        // a transfer of the line.
        let mut word = 0;
        loop {
            // Acquire: pairs with the Release of `unlatch`, `try_acquire_free` and
            // `try_release_sole`: the lists, the requests in them and the row are as the last
            // worker left them. Relaxed: a failed exchange only supplies the next guess.
            match cell.word().compare_exchange(word, word | LATCH, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if word & WAITING == 0 => return LatchedCell { cell, word, waiters: 0 },
                Ok(_) => {
                    // SAFETY: a transaction waits, so another holds the cell, and the address is
                    // that of its request.
                    let first = unsafe { at::<M>(first_holder(word)) };
                    // Relaxed: under the latch.
                    let waiters = first.map_or(0, |first| first.waiters.load(Ordering::Relaxed));
                    return LatchedCell { cell, word, waiters };
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

    /// Stores the word, and ends the latch.
    #[inline(always)]
    pub(crate) fn unlatch(mut self) {
        if self.waiters == 0 {
            self.word &= !WAITING;
        } else {
            self.word |= WAITING;
            debug_assert!(self.holder_count() > 0, "a transaction waits for a cell that no transaction holds");
            // SAFETY: the address is that of a holder's request.
            if let Some(first) = unsafe { at::<M>(first_holder(self.word)) } {
                // Relaxed: under the latch.
                first.waiters.store(self.waiters, Ordering::Relaxed);
            }
        }
        // Release: the lists, the requests and the row come before; pairs with the Acquire of the
        // next `latch` or `try_acquire_free`. With a Relaxed store the next worker could follow the
        // new head to a request whose words are not visible yet.
        self.cell.word().store(self.word, Ordering::Release);
    }

    /// Takes over the latch of a cell that [`ListWord`] has made latched. It has no holder.
    pub(crate) fn of_placeholder(cell: Cell<M>) -> Self {
        // Relaxed: the caller's own thread has made the cell, and no other worker changes the word
        // of a latched cell.
        LatchedCell { cell, word: cell.word().load(Ordering::Relaxed) & !LATCH, waiters: 0 }
    }

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

    /// Returns the first request of a list.
    #[inline(always)]
    pub(crate) fn first(&self, list: List) -> Option<&Request<M>> {
        // SAFETY: the head of a list of this cell; 0 if the list is empty.
        unsafe { at(self.first_address(list)) }
    }

    /// Returns the requests of a list, from the first on.
    pub(crate) fn requests(&self, list: List) -> impl Iterator<Item = &Request<M>> {
        // Relaxed: under the latch, which the iterator borrows.
        // SAFETY: a link of a list of this cell.
        std::iter::successors(self.first(list), |request| unsafe { at(request.next.load(Ordering::Relaxed)) })
    }

    /// Returns the cell.
    pub(crate) fn cell(&self) -> Cell<M> {
        self.cell
    }

    /// Returns the request before this one in its list.
    pub(crate) fn previous(&self, request: &Request<M>) -> Option<&Request<M>> {
        // Relaxed: under the latch.
        // SAFETY: a link of a list of this cell.
        unsafe { at(request.previous.load(Ordering::Relaxed)) }
    }

    /// Grants the first waiter's request: its transaction becomes the newest holder, or its shared
    /// lock becomes exclusive.
    pub(crate) fn grant_first(&mut self) {
        let Some(first) = self.first(List::Waiters).map(NonNull::from) else { return };
        // SAFETY: a request lives as long as the locks. The pointer frees `self` of the borrow,
        // whose list changes below.
        let first = unsafe { first.as_ref() };
        self.remove_waiter(first);
        match first.share().map(NonNull::from) {
            // SAFETY: as above, the holder's request.
            Some(share) => self.make_newest(unsafe { share.as_ref() }, first.mode()),
            None => self.add_holder(first),
        }
        // Last, because the granted worker takes no latch and goes on at once. After an upgrade it
        // frees this request, and may fill it for another cell. If that came before the request has
        // left the queue, `unlink` would read links that `fill` has overwritten.
        first.grant();
    }

    /// Makes a holder the newest one, and its lock exclusive if `mode` is; an exclusive lock stays
    /// so. It is not retired any more.
    pub(crate) fn make_newest(&mut self, holder: &Request<M>, mode: LockMode) {
        self.remove_holder(holder);
        let exclusive = if mode == LockMode::Exclusive { Request::<M>::EXCLUSIVE } else { 0 };
        holder.change(Request::<M>::RETIRED, exclusive);
        self.add_holder(holder);
    }

    /// Returns the requests of the holders that acquired the cell before this one, the latest
    /// first.
    pub(crate) fn earlier_holders<'a>(&'a self, holder: &Request<M>) -> impl Iterator<Item = &'a Request<M>> {
        // Relaxed, both: under the latch, which the iterator borrows.
        // SAFETY: a link of a list of this cell.
        let next = |address: u64| unsafe { at::<M>(address) };
        std::iter::successors(next(holder.next.load(Ordering::Relaxed)), move |request| {
            next(request.next.load(Ordering::Relaxed))
        })
    }

    /// Returns the requests of the holders that acquired the cell after this one, the latest first.
    pub(crate) fn later_holders<'a>(&'a self, holder: &Request<M>) -> impl Iterator<Item = &'a Request<M>> {
        let address = holder.address();
        self.requests(List::Holders).take_while(move |other| other.address() != address)
    }

    /// Links a request into a list, behind `behind`, or at the head.
    #[inline(always)]
    fn link(&mut self, list: List, request: &Request<M>, behind: Option<&Request<M>>) {
        // Relaxed, all of them: the latch excludes other changes, its Acquire orders those before,
        // and its Release publishes these. A look without the latch (`visit_nearest_blockers`) can
        // see some of the stores and not the others: it is a guess.
        let next = match behind {
            Some(before) => before.next.swap(request.address(), Ordering::Relaxed),
            None => {
                let next = self.first_address(list);
                self.set_first(list, request.address());
                next
            }
        };
        // Relaxed, also below: published by the latch's Release.
        request.next.store(next, Ordering::Relaxed);
        request.previous.store(behind.map_or(0, Request::address), Ordering::Relaxed);
        // SAFETY: a link of a list of this cell.
        if let Some(next) = unsafe { at::<M>(next) } {
            // Relaxed: under the latch.
            next.previous.store(request.address(), Ordering::Relaxed);
        }
    }

    /// Takes a request out of its list.
    #[inline(always)]
    fn unlink(&mut self, list: List, request: &Request<M>) {
        // Relaxed, all of them: under the latch, as in `link`.
        let (next, previous) = (request.next.load(Ordering::Relaxed), request.previous.load(Ordering::Relaxed));
        // SAFETY: links of a list of this cell.
        let (after, before) = unsafe { (at::<M>(next), at::<M>(previous)) };
        match before {
            // Relaxed: under the latch.
            Some(before) => before.next.store(next, Ordering::Relaxed),
            None => self.set_first(list, next),
        }
        if let Some(after) = after {
            // Relaxed: under the latch.
            after.previous.store(previous, Ordering::Relaxed);
        }
    }

    /// Puts a request into the queue, behind the last waiter that it doesn't go before. Returns
    /// whether it is the first.
    pub(crate) fn add_waiter_in_order(
        &mut self,
        request: &Request<M>,
        goes_before: impl Fn(LockOwner) -> bool,
    ) -> bool {
        // The search takes the last such waiter: an upgrade stands at the head, whatever its order.
        let is_before = |other: &&Request<M>| !goes_before(other.owner());
        let behind = self.requests(List::Waiters).filter(is_before).last().map(NonNull::from);
        // SAFETY: a request lives as long as the locks. The pointer frees `self` of the borrow.
        self.add_waiter(request, behind.map(|behind| unsafe { behind.as_ref() }));
        behind.is_none()
    }

    /// Puts a request into the queue, behind `behind`, or at the head.
    pub(crate) fn add_waiter(&mut self, request: &Request<M>, behind: Option<&Request<M>>) {
        self.link(List::Waiters, request, behind);
    }

    /// Takes a request out of the queue.
    pub(crate) fn remove_waiter(&mut self, request: &Request<M>) {
        self.unlink(List::Waiters, request);
    }

    /// Returns the number of transactions that hold the cell.
    #[inline(always)]
    pub(crate) fn holder_count(&self) -> u64 {
        (self.word / HOLDER) & HOLDERS_MAX
    }

    /// Makes the request's transaction the newest holder.
    #[inline(always)]
    pub(crate) fn add_holder(&mut self, request: &Request<M>) {
        self.link(List::Holders, request, None);
        self.word += HOLDER;
        if request.is_exclusive() {
            self.word |= EXCLUSIVE;
        }
    }

    /// Takes the request's transaction out of the holders.
    #[inline(always)]
    pub(crate) fn remove_holder(&mut self, request: &Request<M>) {
        self.unlink(List::Holders, request);
        self.word -= HOLDER;
        if request.is_exclusive() {
            self.word &= !EXCLUSIVE;
        }
    }
}

/// The requests of workers that have ended, for new workers. It keeps their memory as long as the
/// locks live.
pub(crate) type Pool<M> = Arc<Mutex<Vec<Block<M, Request<M>>>>>;

/// Requests in a block, which a worker allocates at once. Few for a model checker, whose cost grows
/// with the number of words.
const REQUESTS: usize = if cfg!(loom) { 4 } else { 32 };

/// A worker's requests. Its transaction uses the first `used` of them.
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

    /// Returns a request that is not in use.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> RequestHandle<M> {
        if self.used == self.blocks.len() * REQUESTS {
            let idle = self.pool.lock().pop();
            self.blocks.push(idle.unwrap_or_else(|| Block::new(REQUESTS, |_| Request::new())));
        }
        self.used += 1;
        let number = self.used - 1;
        RequestHandle(NonNull::from(&self.blocks[number / REQUESTS][number % REQUESTS]))
    }

    /// Frees the request that was taken last, and is in no list.
    #[inline(always)]
    pub(crate) fn free_last(&mut self) {
        self.used -= 1;
    }

    /// Frees all requests, none of which is in a list.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

/// A worker's reference to one of its own requests.
#[derive(Debug)]
pub struct RequestHandle<M: Machine>(NonNull<Request<M>>);

impl<M: Machine> std::ops::Deref for RequestHandle<M> {
    type Target = Request<M>;

    #[inline(always)]
    fn deref(&self) -> &Request<M> {
        // SAFETY: a request of the worker's own blocks, which go to the pool when the worker ends,
        // and live as long as the locks.
        unsafe { self.0.as_ref() }
    }
}

impl<M: Machine> Clone for RequestHandle<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for RequestHandle<M> {}

// SAFETY: a request consists of atomic words, and a handle stays with the worker that owns the
// request, on whichever thread that runs.
unsafe impl<M: Machine> Send for RequestHandle<M> {}

impl<M: Machine> std::fmt::Debug for Request<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

/// Makes the transaction `own` the exclusive holder of a cell that [`ListWord`] has made latched.
pub(crate) fn adopt_placeholder<M: Machine>(
    requests: &mut Requests<M>,
    own: LockOwner,
    cell: Cell<M>,
) -> RequestHandle<M> {
    let request = requests.take();
    request.fill(own, LockMode::Exclusive, 0);
    let mut latched = LatchedCell::of_placeholder(cell);
    latched.add_holder(&request);
    latched.unlatch();
    request
}

/// Acquires a cell that has a row and no holder, without its latch. Returns whether it did.
#[inline(always)]
pub(crate) fn try_acquire_free<M: Machine>(cell: Cell<M>, request: &Request<M>, mode: LockMode) -> bool {
    let taken = held_by(request.address(), mode);
    // AcqRel. Release: publishes the request; pairs with the Acquire of the next `latch`. Acquire:
    // pairs with the Release of the last holder, in `try_release_sole` or `unlatch`: the row is as
    // it left it. Relaxed: a failed exchange only says that the guess was wrong.
    cell.word().compare_exchange(0, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Acquires a cell that has a row and no holder, and its latch.
#[inline(always)]
pub(crate) fn try_acquire_free_latched<M: Machine>(
    cell: Cell<M>,
    request: &Request<M>,
    mode: LockMode,
) -> Option<LatchedCell<M>> {
    let word = held_by(request.address(), mode);
    // Acquire: as in `try_acquire_free`. The request is published later, by the Release of
    // `unlatch`. Relaxed: as there.
    let taken = cell.word().compare_exchange(0, word | LATCH, Ordering::Acquire, Ordering::Relaxed).is_ok();
    taken.then_some(LatchedCell { cell, word, waiters: 0 })
}

/// Releases a cell that has a row, no other holder and no waiter, without its latch. Returns
/// whether it did.
#[inline(always)]
pub(crate) fn try_release_sole<M: Machine>(cell: Cell<M>, request: &Request<M>, mode: LockMode) -> bool {
    let word = held_by(request.address(), mode);
    // Release: this holder's accesses of the row come before; pairs with the Acquire of the next
    // `latch` or `try_acquire_free`. Relaxed: a failed exchange only says that the guess was wrong.
    cell.word().compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// The layout of the lock.
#[derive(Debug)]
pub struct ListWord;

impl<M: Machine> LockWord<M> for ListWord {
    fn init(cell: Cell<M>, flags: u64, held: bool) {
        // Latched until `adopt_placeholder`: other workers that find the record in the index spin.
        // Relaxed: the index publishes the record.
        cell.word().store(flags | if held { LATCH } else { 0 }, Ordering::Relaxed);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        // Acquire: pairs with the Release of `unlatch`, for a caller that doesn't hold the cell: if
        // it finds the record absent or unlinked, what made it so comes before.
        cell.word().load(Ordering::Acquire) & FLAGS
    }

    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        // The caller holds the cell, but other workers can change its lists meanwhile, and with
        // them the word.
        let mut latched = LatchedCell::latch(cell);
        let before = latched.word & FLAGS;
        latched.word = latched.word & !clear | set;
        latched.unlatch();
        before
    }

    fn try_acquire_exclusive(cell: Cell<M>) -> Option<u64> {
        // Relaxed: the exchange checks what the load has seen.
        let word = cell.word().load(Ordering::Relaxed);
        // A latched cell is not free, and no transaction waits for a cell without holders. The
        // latch stands in for a holder.
        let is_free = word & !FLAGS == 0;
        // Acquire: as in `latch`. Relaxed: a failed exchange returns nothing.
        let taken =
            is_free && cell.word().compare_exchange(word, word | LATCH, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then_some(word)
    }

    fn release_exclusive(cell: Cell<M>, clear: u64, set: u64) {
        // Relaxed: no other worker changes the word of a latched cell. Release: as in `unlatch`.
        cell.word().store(cell.word().load(Ordering::Relaxed) & FLAGS & !clear | set, Ordering::Release);
    }
}
