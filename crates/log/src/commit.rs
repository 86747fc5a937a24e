//! When a commit is durable, and when others see it: the commit protocols.
//!
//! Of the five, one is SiloR's (W. Zheng et al.: "Fast databases with fast durability and recovery through multicore parallelism", OSDI 2014),
//! four are P-WAL's (Y. Nakamura, H. Kawashima, O. Tatebe: "Integration of TicToc concurrency control protocol with parallel write ahead
//! logging protocol", IJNC 2019; algorithms 2 to 5).
//!
//! | protocol | others see a commit | it is flushed | it is durable when |
//! | --- | --- | --- | --- |
//! | `epoch` | at once | with all of its epoch | all workers have flushed what they committed up to its epoch |
//! | `elr` | at once (early lock release) | at once, by its worker | all workers have flushed all up to its LSN |
//! | `elr-group` | at once | with N of its worker | the same |
//! | `clr` | when it is durable (conservative lock release) | at once, by its worker | it is flushed |
//! | `clr-group` | the same; its worker's next transactions see it at once | with N of its worker | it is flushed |
//!
//! **Order.** Early release needs an order of all commits: a transaction that has read another's write must not be durable without it. The *LSN* is
//! a counter that each commit raises before it installs its first write, when all that it has read or will overwrite has its own: so what it
//! depends on has a smaller one, under every protocol. (A protocol's own timestamps would do where they are unique and come in the order of
//! dependencies: TicToc's tie, Cicada's come in any order, Silo's are ordered across rows only by epochs, strict locking has none.) Conservative release
//! needs none: what a transaction can see is durable, and of the writes of one row the stamps are the order ([`contend_engine::journal`]).
//!
//! **Who is idle.** All is durable below the least LSN that a worker may have and has not flushed. A worker says so in a slot of its own, before it
//! takes an LSN, and takes it back once it has flushed, so that who does nothing is in nobody's way. Orderings: a worker stores its slot and
//! then raises the counter, who asks reads the counter and then the slots, all SeqCst: who is not seen takes a larger LSN than was read.
//!
//! **Holds.** Under conservative release a transaction leaves on its rows the number of its worker and its own of that worker's. A row is held as
//! long as that one is not durable, so nothing has to be done to release it. Who meets one waits while a worker flushes its single
//! transaction, which takes long but ends; a group may wait for transactions that wait for who has met it: so the one gives up, flushes its own group,
//! and begins anew (P-WAL's algorithm 5).

use std::sync::Arc;

use contend_engine::journal::Hold;
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use crate::fault::Fault;

/// When others see what a transaction has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// When it has committed, if it is not durable yet as well.
    Early,
    /// When it is durable.
    Conservative,
}

/// How commits become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitProtocol {
    /// All of an epoch together.
    Epoch,
    /// Each worker's by themselves.
    Workers {
        /// When others see them.
        release: Release,
        /// So many together.
        group: u32,
        /// Whether they have LSNs.
        lsn: bool,
    },
}

impl CommitProtocol {
    /// Whether rows are held until they are durable.
    pub fn holds_rows(self) -> bool {
        matches!(self, CommitProtocol::Workers { release: Release::Conservative, .. })
    }

    /// Whether a commit waits for other workers' flushes.
    fn waits_for_all(self) -> bool {
        matches!(self, CommitProtocol::Epoch | CommitProtocol::Workers { release: Release::Early, lsn: true, .. })
    }

    fn has_lsn(self) -> bool {
        matches!(self, CommitProtocol::Workers { lsn: true, .. })
    }
}

/// The number of what is loaded before any transaction.
pub(crate) const LOADED_LSN: u64 = 1;
/// The first of a transaction.
pub(crate) const FIRST_LSN: u64 = 2;
/// The ticket of what will never be durable.
const NEVER: u64 = u64::MAX;
/// Nothing that has a number is not flushed.
const ALL: u64 = u64::MAX;
/// In a hold the worker's number, from 1, begins with this bit.
const WORKER_SHIFT: u32 = 40;
/// So long one waits for another's flush, in seconds, until one begins anew, which does no harm.
const PATIENCE: f64 = 1e-3;

/// What a worker says of itself.
#[derive(Debug)]
struct Slot<M: Machine> {
    /// Of its transactions that have written: the last that is in its buffer, and the last that is durable.
    appended: M::U64,
    flushed: M::U64,
    /// The least number (LSN, or epoch) that it may have used and not flushed; or [`ALL`].
    unflushed: M::U64,
}

/// What workers share.
#[derive(Debug)]
pub struct Commits<M: Machine> {
    protocol: CommitProtocol,
    fault: Option<Fault>,
    /// The next LSN.
    next: CachePadded<M::U64>,
    slots: Box<[CachePadded<Slot<M>>]>,
    /// Workers from this number on have not been there yet.
    used: CachePadded<M::U64>,
    /// Nothing becomes durable any more: there is nothing to wait for.
    is_over: M::U64,
}

impl<M: Machine> Commits<M> {
    /// For workers numbered below `workers`. All LSNs below the first were durable before.
    pub fn new(protocol: CommitProtocol, workers: usize, first_lsn: u64, fault: Option<Fault>) -> Self {
        let slot = || {
            CachePadded::new(Slot { appended: M::U64::new(0), flushed: M::U64::new(0), unflushed: M::U64::new(ALL) })
        };
        Commits {
            protocol,
            next: CachePadded::new(M::U64::new(first_lsn.max(FIRST_LSN))),
            fault,
            slots: (0..workers).map(|_| slot()).collect(),
            used: CachePadded::new(M::U64::new(0)),
            is_over: M::U64::new(0),
        }
    }

    /// Which it is.
    pub fn protocol(&self) -> CommitProtocol {
        self.protocol
    }

    /// The disk has failed: nobody waits any more for what will never be durable.
    pub fn give_up(&self) {
        // Release: pairs with the Acquire of `Committer::is_known_durable`.
        self.is_over.store(1, Ordering::Release);
    }

    /// All numbers below this one are flushed, or will never be used; `end` is not reached yet, or, of LSNs, is the next.
    fn durable_below(&self, end: Option<u64>) -> u64 {
        if self.fault == Some(Fault::SlotsBeforeCounter) {
            let least = self.unflushed();
            return end.unwrap_or_else(|| self.next.load(Ordering::SeqCst)).min(least);
        }
        // SeqCst, as in `unflushed`: see the module's text.
        let end = end.unwrap_or_else(|| self.next.load(Ordering::SeqCst));
        end.min(self.unflushed())
    }

    /// The least number that a worker may have used and not flushed; [`ALL`] if there is none.
    fn unflushed(&self) -> u64 {
        // SeqCst, both: see the module's text.
        let used = self.used.load(Ordering::SeqCst) as usize;
        self.slots[..used].iter().map(|slot| slot.unflushed.load(Ordering::SeqCst)).fold(ALL, u64::min)
    }
}

/// A worker's part.
#[derive(Debug)]
pub struct Committer<M: Machine> {
    all: Arc<Commits<M>>,
    worker: usize,
    /// Its last transaction that commits with writes, and the last of these that is in the buffer.
    sequence: u64,
    appended: u64,
    /// How many it has committed since the last flush, those that only read among them.
    commits: u64,
    /// The last that is durable.
    flushed: u64,
    /// The least number that the transactions have that are not; none, if there are none.
    first: Option<u64>,
    /// The number of the last transaction: its LSN, or its epoch.
    last: u64,
    /// All below this number is known to be durable.
    durable: u64,
    /// Whether it may have seen what will never be durable.
    is_void: bool,
    /// By worker: its transactions up to this one are known to be.
    known: Box<[u64]>,
    patience: u64,
}

impl<M: Machine> Committer<M> {
    /// The part of the worker of this number.
    pub fn new(all: &Arc<Commits<M>>, worker: usize) -> Self {
        // SeqCst: comes before the worker's first slot; see `Commits::durable_below`.
        all.used.fetch_max(worker as u64 + 1, Ordering::SeqCst);
        // Relaxed: the worker that had the number before has ended.
        let flushed = all.slots[worker].flushed.load(Ordering::Relaxed);
        Committer {
            worker,
            sequence: flushed,
            appended: flushed,
            commits: 0,
            flushed,
            first: None,
            last: 0,
            durable: 0,
            is_void: false,
            known: vec![0; if all.protocol.holds_rows() { all.slots.len() } else { 0 }].into(),
            patience: (M::cycles_per_second() * PATIENCE) as u64,
            all: Arc::clone(all),
        }
    }

    fn slot(&self) -> &Slot<M> {
        &self.all.slots[self.worker]
    }

    /// See [`contend_engine::journal::Journal::committing`].
    #[inline]
    pub fn committing(&mut self) -> Hold {
        self.sequence += 1;
        let protocol = self.all.protocol;
        if protocol.waits_for_all() {
            // No number that was known to be durable will be used.
            let next = if protocol.has_lsn() { (self.last + 1).max(self.durable) } else { self.last };
            let first = *self.first.get_or_insert(next);
            // SeqCst: see the module's text.
            self.slot().unflushed.store(first, Ordering::SeqCst);
        }
        if protocol.has_lsn() {
            // SeqCst: the same.
            self.last = self.all.next.fetch_add(1, Ordering::SeqCst);
        }
        if protocol.holds_rows() { Hold((self.worker as u64 + 1) << WORKER_SHIFT | self.sequence) } else { Hold::NONE }
    }

    /// The LSN of the transaction that commits; 0 if there are none.
    pub fn lsn(&self) -> u64 {
        if self.all.protocol.has_lsn() { self.last } else { 0 }
    }

    /// Whether what is in the buffer is to be flushed before what the worker has committed in this epoch is added to it.
    pub fn is_of_earlier(&self, epoch: u64) -> bool {
        self.all.protocol == CommitProtocol::Epoch && self.has_unflushed() && epoch > self.last
    }

    /// The worker's transaction, which committed in this epoch, is in the buffer, or has written nothing. Whether to flush.
    pub fn appended(&mut self, epoch: u64, has_written: bool) -> bool {
        let all = &self.all;
        match all.protocol {
            CommitProtocol::Epoch => self.last = epoch,
            // What it has read may not be durable yet: it has a smaller LSN than the next.
            // SeqCst: as in `durable_below`.
            _ if all.protocol.waits_for_all() && !has_written => self.last = all.next.load(Ordering::SeqCst) - 1,
            _ => {}
        }
        self.commits += 1;
        // Who does nothing but read must not keep others from what it has written before.
        let is_full = matches!(all.protocol, CommitProtocol::Workers { group, .. } if self.commits >= u64::from(group));
        if !has_written {
            return is_full && self.has_unflushed();
        }
        self.appended = self.sequence;
        if all.protocol.holds_rows() {
            // Release: the buffer; pairs with the Acquire of `wait_for`.
            self.slot().appended.store(self.appended, Ordering::Release);
        }
        is_full
    }

    /// Whether rows are held until they are durable.
    pub fn holds_rows(&self) -> bool {
        self.all.protocol.holds_rows()
    }

    /// Whether there is anything to flush.
    pub fn has_unflushed(&self) -> bool {
        self.appended > self.flushed
    }

    /// All that the worker has in its buffer is durable.
    pub fn flushed(&mut self) {
        (self.flushed, self.commits) = (self.appended, 0);
        let slot = self.slot();
        // Release, both: what is durable then; pair with the looks of who waits for it. Who has flushed it in this worker's place has said less.
        slot.flushed.store(self.flushed, Ordering::Release);
        if self.first.take().is_some() {
            // What commits now has a later epoch: else this would not be flushed before it.
            self.first = (self.sequence > self.appended).then_some(self.last + 1);
            self.slot().unflushed.store(self.first.unwrap_or(ALL), Ordering::Release);
        }
    }

    /// What the worker's last transaction waits for.
    pub fn ticket(&self) -> u64 {
        match self.all.protocol.waits_for_all() {
            true => self.last,
            false if self.is_void => NEVER,
            false => self.appended,
        }
    }

    /// Whether a transaction of the worker is durable.
    pub fn is_durable(&mut self, ticket: u64) -> bool {
        if !self.all.protocol.waits_for_all() {
            return ticket <= self.flushed;
        }
        if self.all.fault == Some(Fault::AcknowledgeOwn) {
            return !self.has_unflushed();
        }
        if self.durable <= ticket {
            let end = (self.all.protocol == CommitProtocol::Epoch).then_some(self.last);
            self.durable = self.all.durable_below(end).max(self.durable);
        }
        self.durable > ticket
    }

    /// All below this LSN is durable, if commits wait for all with smaller ones.
    pub fn durable_lsn(&mut self) -> Option<u64> {
        let counts = self.all.protocol.waits_for_all() && self.all.protocol.has_lsn();
        counts.then(|| {
            self.durable = self.all.durable_below(None).max(self.durable);
            self.durable
        })
    }

    fn is_known_durable(&mut self, worker: usize, sequence: u64) -> bool {
        if worker == self.worker || sequence <= self.known[worker] {
            return true;
        }
        // Acquire: pairs with the Release of `flushed`.
        self.known[worker] = self.all.slots[worker].flushed.load(Ordering::Acquire);
        if sequence <= self.known[worker] {
            return true;
        }
        // Acquire: pairs with the Release of `give_up`. What it sees then may be lost, and so whatever it does from now on.
        self.is_void |= self.all.is_over.load(Ordering::Acquire) != 0;
        self.is_void
    }

    fn parts(hold: Hold) -> Option<(usize, u64)> {
        let worker = (hold.0 >> WORKER_SHIFT).checked_sub(1)?;
        Some((worker as usize, hold.0 & ((1 << WORKER_SHIFT) - 1)))
    }

    /// See [`contend_engine::journal::Journal::may_pass`].
    #[inline]
    pub fn may_pass(&mut self, hold: Hold) -> bool {
        let Some((worker, sequence)) = Self::parts(hold) else { return true };
        if self.is_known_durable(worker, sequence) || self.all.fault == Some(Fault::IgnoreHolds) {
            return true;
        }
        if !matches!(self.all.protocol, CommitProtocol::Workers { group: 1, .. }) {
            return false;
        }
        M::step("wait for a flush");
        let (mut spin, began) = (Spin::<M>::new(), M::now());
        while M::now().wrapping_sub(began) < self.patience {
            spin.wait();
            if self.is_known_durable(worker, sequence) {
                return true;
            }
        }
        false
    }

    /// See [`contend_engine::journal::Journal::wait_for`]. Whoever holds the row may wait for what is held here, and so for ever: `flush` makes
    /// durable what is in the buffer of the worker of this number, in its place; `false` if that has failed.
    #[inline]
    pub fn wait_for(&mut self, hold: Hold, mut flush: impl FnMut(usize) -> bool) {
        let Some((worker, sequence)) = Self::parts(hold) else { return };
        if self.is_known_durable(worker, sequence) || self.all.fault == Some(Fault::IgnoreHolds) {
            return;
        }
        M::step("wait for a flush");
        let mut spin = Spin::<M>::new();
        while !self.is_known_durable(worker, sequence) {
            let slot = &self.all.slots[worker];
            // Acquire: pairs with the Release of `appended`.
            let appended = slot.appended.load(Ordering::Acquire);
            if appended < sequence {
                // It is about to be.
                spin.wait();
            } else if flush(worker) {
                // Release: as in `flushed`. The worker itself may be further.
                slot.flushed.fetch_max(appended, Ordering::Release);
            } else {
                self.all.give_up();
            }
        }
    }
}
