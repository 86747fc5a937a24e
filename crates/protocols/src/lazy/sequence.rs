//! The sequence of transactions: whose turn it is, and which ones have ended.
//!
//! ```text
//! next:    the number of the transaction that comes next
//! turns:   [ . | . | 7 | . ]    a ring of lines: transaction 7 has the turn, or had it
//! workers: [ 5 | 6 | 3 ]        for each worker, its last transaction whose later part has ended
//! ```
//!
//! **The turn** is a lock in the order of arrival (an array lock, after T. E. Anderson: "The
//! performance of spin lock alternatives for shared-memory multiprocessors", 1990). A transaction
//! draws the next number, and waits until the line of its number holds it. So each waiting worker
//! looks at a line of its own. The number is also the transaction's place in the order of all.
//!
//! **The end.** A worker runs its transactions one after the other. So one number for each worker
//! says which of its transactions have ended. A *ticket* names a transaction by its number and its
//! worker, in one word.

use contend_engine::{Abort, AbortReason};
use contend_machine::{Atomic64, Block, Machine, Ordering, Spin};

use crate::method::wait::LOCK_WAITS_MAX;

/// The lower bits of a ticket: the worker. The others are the number.
const WORKER_BITS: u32 = 16;

/// A transaction: its number, and its worker. 0: none.
pub(super) type Ticket = u64;

/// Returns the ticket of a transaction.
pub(super) fn ticket(number: u64, worker: usize) -> Ticket {
    number << WORKER_BITS | worker as u64
}

/// The flag of a number whose worker does not wait for the turn any more.
const GIVEN_UP: u64 = 1 << 63;
/// The time in seconds after which a wait for the turn is given up: a thread may have two
/// transactions open, or stand in a debugger.
const WAIT_MAX: f64 = 1.0;

/// Whether a wait must be given up. Most waits never look at the clock.
fn is_too_long<M: Machine>(spin: &Spin<M>, began: &mut u64) -> bool {
    if spin.count() < LOCK_WAITS_MAX {
        return false;
    }
    let now = M::now();
    if *began == 0 {
        *began = now;
    }
    now.wrapping_sub(*began) as f64 > WAIT_MAX * M::cycles_per_second()
}

/// Returns the number and the worker of a ticket.
fn parts(ticket: Ticket) -> (u64, usize) {
    (ticket >> WORKER_BITS, (ticket & ((1 << WORKER_BITS) - 1)) as usize)
}

/// A word in two lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<M: Machine>(M::U64);

/// A worker's words, in lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Words<M: Machine> {
    /// The last transaction whose later part has ended.
    ended: M::U64,
    /// The last number for whose turn the worker has not waited long enough, or 0. A worker that
    /// takes the place of this one must wait for it.
    given_up: M::U64,
}

/// For each worker, the last transaction of which another worker knows that it has ended. It spares
/// most looks at the lines of the workers.
#[derive(Debug)]
pub(super) struct Known(Box<[u64]>);

impl Known {
    /// Whether it is known that a transaction has ended.
    #[inline(always)]
    pub(super) fn has_ended(&self, ticket: Ticket) -> bool {
        let (number, worker) = parts(ticket);
        self.0[worker] >= number
    }
}

/// The sequence.
#[derive(Debug)]
pub(super) struct Sequence<M: Machine> {
    next: Block<M, Line<M>>,
    turns: Block<M, Line<M>>,
    workers: Block<M, Words<M>>,
}

impl<M: Machine> Sequence<M> {
    /// Returns a sequence for workers with numbers below `workers`.
    pub(super) fn new(workers: usize) -> Self {
        assert!(workers <= 1 << WORKER_BITS, "a ticket has room for a worker's number");
        let lines = |count, first| Block::new(count, |place| Line(M::U64::new(if place == first { 1 } else { 0 })));
        // The first number is 1, and it has the turn. With one worker, its line is line 0.
        let words = |_| Words { ended: M::U64::new(0), given_up: M::U64::new(0) };
        Sequence { next: lines(1, 0), turns: lines(workers, 1 % workers.max(1)), workers: Block::new(workers, words) }
    }

    /// Returns what a new worker knows.
    pub(super) fn known(&self) -> Known {
        Known(vec![0; self.workers.len()].into())
    }

    /// Waits for the turn of a worker, and returns the number of the transaction that has it.
    ///
    /// # Errors
    /// The wait took too long.
    pub(super) fn await_turn(&self, worker: usize) -> Result<u64, Abort> {
        // Relaxed, all accesses: the worker's own word. The engine hands a worker's number on.
        let given_up = &self.workers[worker].given_up;
        let last = given_up.load(Ordering::Relaxed);
        let mut spin = Spin::<M>::new();
        let mut began = 0;
        // Relaxed: only the turn's passing on changes the line, and nothing is read behind it. A
        // worker draws no number before its last one is behind. So there are never more numbers
        // than lines.
        while last != 0 && self.line(last).load(Ordering::Relaxed) == last | GIVEN_UP {
            if is_too_long(&spin, &mut began) {
                return Err(Abort::new(AbortReason::LockTimeout));
            }
            spin.wait_briefly();
        }
        if last != 0 {
            // Relaxed: as above.
            given_up.store(0, Ordering::Relaxed);
        }
        // Relaxed: the number orders nothing. The last holder passes the turn on below.
        let number = self.next[0].0.fetch_add(1, Ordering::Relaxed);
        let line = self.line(number);
        loop {
            // Acquire: pairs with the Release of `pass_turn`: all that earlier transactions did in
            // their turns comes before.
            let seen = line.load(Ordering::Acquire);
            if seen == number {
                return Ok(number);
            }
            // Relaxed, both: nothing comes with it. The exchange fails if the turn comes meanwhile.
            if is_too_long(&spin, &mut began)
                && line.compare_exchange(seen, number | GIVEN_UP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                // Relaxed: as above.
                given_up.store(number, Ordering::Relaxed);
                return Err(Abort::new(AbortReason::LockTimeout));
            }
            spin.wait_briefly();
        }
    }

    /// Passes the turn on from the transaction of this number.
    pub(super) fn pass_turn(&self, number: u64) {
        M::step("pass the turn on");
        let mut next = number + 1;
        // Release: pairs with the Acquire of `await_turn`. No other transaction waits at the line:
        // as many numbers are waited for as there are workers, and they follow one another.
        while self.line(next).swap(next, Ordering::Release) == next | GIVEN_UP {
            next += 1;
        }
    }

    /// Returns the line at which the transaction of this number waits.
    fn line(&self, number: u64) -> &M::U64 {
        &self.turns[(number % self.turns.len() as u64) as usize].0
    }

    /// Says that the later part of this worker's transaction has ended.
    pub(super) fn end(&self, worker: usize, number: u64) {
        M::step("end");
        // Release: pairs with the Acquire of `has_ended`: what the transaction has installed comes
        // before.
        self.workers[worker].ended.store(number, Ordering::Release);
    }

    /// Whether a transaction has ended.
    #[inline(always)]
    pub(super) fn has_ended(&self, known: &mut Known, ticket: Ticket) -> bool {
        if known.has_ended(ticket) {
            return true;
        }
        let (number, worker) = parts(ticket);
        // Acquire: pairs with the Release of `end`.
        known.0[worker] = self.workers[worker].ended.load(Ordering::Acquire);
        known.0[worker] >= number
    }

    /// Waits until an earlier transaction has ended.
    #[inline(always)]
    pub(super) fn await_end(&self, known: &mut Known, ticket: Ticket) {
        if !self.has_ended(known, ticket) {
            self.keep_waiting(known, ticket);
        }
    }

    #[cold]
    fn keep_waiting(&self, known: &mut Known, ticket: Ticket) {
        M::step("wait for an earlier transaction");
        let mut spin = Spin::<M>::new();
        while !self.has_ended(known, ticket) {
            spin.wait_briefly();
        }
    }
}
