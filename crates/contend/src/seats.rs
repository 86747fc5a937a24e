//! Workers for threads that come and go.
//!
//! A worker of the engine belongs to one thread at a time, and an application's threads know
//! nothing of workers. So a thread takes a *seat*, a worker with its retry state, at its first
//! transaction, and keeps it until the thread ends. Between transactions the worker is offline.
//! Otherwise a thread that does something else for an hour would hold the epoch back for an hour.
//!
//! The rows that a worker has deleted, and its free memory, must not be lost with the thread. When
//! a thread ends, its seat becomes idle, and the next new thread takes it, worker and all. So a
//! program that starts a thread for each request goes on as if it were one thread. If no new thread
//! takes an idle seat, a working thread gives it up after a while, and takes over its garbage.

use std::cell::{RefCell, RefMut};
use std::sync::{Arc, Weak};

use contend_engine::in_force;
use contend_engine::{Engine, Protocol, Worker};
use contend_log::Log;
use contend_machine::Native;
use contend_protocols::method::{Backoff, Retry};
use parking_lot::Mutex;
use thread_local::ThreadLocal;

use crate::error::Error;
use crate::types::DeclaredTypes;

/// The number of transactions after which a thread looks for idle seats.
const TEND_EVERY: u32 = 64;

/// The state that a thread needs to run transactions.
pub(crate) struct Seat<P: Protocol<Native>> {
    pub(crate) worker: Worker<P, Native>,
    pub(crate) retry: Retry<Native>,
    /// The declared types, as the worker knows them.
    pub(crate) types: in_force::Known<DeclaredTypes>,
    since_tended: u32,
}

/// The seats of one database.
pub(crate) struct Seats<P: Protocol<Native>> {
    engine: Arc<Engine<P, Native>>,
    backoff: Arc<Backoff<Native>>,
    /// The log of the database.
    log: Option<Arc<Log>>,
    of_threads: ThreadLocal<RefCell<Option<Seat<P>>>>,
    /// Seats of threads that have ended.
    idle: Mutex<Vec<Seat<P>>>,
}

impl<P: Protocol<Native>> Seats<P> {
    pub(crate) fn new(
        engine: Arc<Engine<P, Native>>,
        backoff: Arc<Backoff<Native>>,
        log: Option<Arc<Log>>,
    ) -> Arc<Self> {
        Arc::new(Seats { engine, backoff, log, of_threads: ThreadLocal::new(), idle: Mutex::new(Vec::new()) })
    }

    /// Whether this thread uses its seat now: it is in a transaction, or loads.
    pub(crate) fn is_taken(&self) -> bool {
        self.of_threads.get().is_some_and(|seat| seat.try_borrow().is_err())
    }

    /// Takes this thread's seat, until the result is dropped.
    ///
    /// # Errors
    /// The thread uses its seat already, or no seat is left.
    #[inline]
    pub(crate) fn take(self: &Arc<Self>) -> Result<Taken<'_, P>, Error> {
        let mut seat = self.of_threads.get_or_default().try_borrow_mut().map_err(|_| Error::Nested)?;
        if seat.is_none() {
            *seat = Some(self.place()?);
        }
        Ok(Taken { seats: self, seat: RefMut::map(seat, |seat| seat.as_mut().expect("placed above")) })
    }

    /// Returns a seat for a thread that has none.
    #[cold]
    fn place(self: &Arc<Self>) -> Result<Seat<P>, Error> {
        let idle = self.idle.lock().pop();
        let seat = match idle {
            Some(seat) => seat,
            None => self.new_seat()?,
        };
        at_thread_end(Arc::downgrade(self) as Weak<dyn Known>);
        Ok(seat)
    }

    fn new_seat(&self) -> Result<Seat<P>, Error> {
        let limit = self.engine.config().workers_max;
        let worker = self.engine.worker().ok_or(Error::TooManyThreads { limit })?;
        // Any seed serves, as long as no two workers have the same.
        let retry =
            self.backoff.retry(worker.number(), (worker.number() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Seat { worker, retry, types: in_force::Known::default(), since_tended: 0 })
    }

    /// Gives up one idle seat, if there is one, and takes over the garbage of its worker.
    #[cold]
    fn tend(&self, seat: &mut Seat<P>) {
        seat.since_tended = 0;
        let Some(idle) = self.idle.try_lock().and_then(|mut idle| idle.pop()) else { return };
        drop(idle);
        seat.worker.collect();
    }
}

/// A seat that its thread uses for one transaction.
pub(crate) struct Taken<'a, P: Protocol<Native>> {
    seats: &'a Seats<P>,
    pub(crate) seat: RefMut<'a, Seat<P>>,
}

impl<P: Protocol<Native>> Drop for Taken<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.seat.worker.go_offline();
        self.seat.since_tended += 1;
        if self.seat.since_tended >= TEND_EVERY {
            self.seats.tend(&mut self.seat);
        }
    }
}

/// The seats of a database with any protocol, as seen by a thread that has one of them.
trait Known {
    /// Notes that the calling thread ends.
    fn thread_ends(&self);

    /// Whether the thread uses its seat now, and the database has this log.
    fn is_taken_for(&self, log: &Arc<Log>) -> bool;
}

impl<P: Protocol<Native>> Known for Seats<P> {
    fn is_taken_for(&self, log: &Arc<Log>) -> bool {
        self.log.as_ref().is_some_and(|own| Arc::ptr_eq(own, log)) && self.is_taken()
    }

    fn thread_ends(&self) {
        // The order in which a thread's locals are dropped is not promised. If the thread's number
        // is gone already, its seat can't be found here. It then waits, as it is, for the thread
        // that gets the number next.
        let Some(seat) = self.of_threads.get() else { return };
        let seat = seat.try_borrow_mut().ok().and_then(|mut seat| seat.take());
        self.idle.lock().extend(seat);
    }
}

/// The databases in which this thread has a seat.
struct Seated(RefCell<Vec<Weak<dyn Known>>>);

impl Drop for Seated {
    fn drop(&mut self) {
        for seats in self.0.get_mut().drain(..) {
            if let Some(seats) = seats.upgrade() {
                seats.thread_ends();
            }
        }
    }
}

thread_local! {
    static SEATED: Seated = const { Seated(RefCell::new(Vec::new())) };
}

/// Whether this thread is in a transaction of the database with this log, or loads rows into it.
pub(crate) fn is_in_transaction(log: &Arc<Log>) -> bool {
    let is_taken = |seats: &Weak<dyn Known>| seats.upgrade().is_some_and(|seats| seats.is_taken_for(log));
    // A thread that ends is in no transaction.
    SEATED.try_with(|seated| seated.0.borrow().iter().any(is_taken)).unwrap_or(false)
}

fn at_thread_end(seats: Weak<dyn Known>) {
    // The thread may be ending now, and one of its locals may use a database. Then no seat list is
    // told, which does no harm; see above.
    let _ = SEATED.try_with(|seated| {
        let mut seated = seated.0.borrow_mut();
        seated.retain(|seats| seats.strong_count() > 0);
        seated.push(seats);
    });
}
