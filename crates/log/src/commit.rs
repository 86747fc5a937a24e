//! The commit protocols: when a commit is durable, and when other transactions see it.
//!
//! One of the five is SiloR's (W. Zheng et al.: "Fast databases with fast durability and recovery
//! through multicore parallelism", OSDI 2014), four are P-WAL's (Y. Nakamura, H. Kawashima, O.
//! Tatebe: "Integration of TicToc concurrency control protocol with parallel write ahead logging
//! protocol", IJNC 2019; algorithms 2 to 5).
//!
//! | protocol | others see a commit | its worker flushes it | it is durable when |
//! | --- | --- | --- | --- |
//! | `epoch` | at once | with all of its epoch | all workers have flushed its epoch |
//! | `elr` | at once (early lock release) | at once | all workers have flushed up to its LSN |
//! | `elr-group` | at once | with N others | all workers have flushed up to its LSN |
//! | `clr` | when durable (conservative lock release) | at once | it is flushed |
//! | `clr-group` | when durable; its worker's next transactions at once | with N others | it is flushed |
//!
//! **Order.** Early release needs an order of all commits: a transaction that has read another's
//! write must not be durable without it. The *LSN* is a counter that each commit increments before
//! it installs its first write. All transactions that it depends on have their LSNs by then: their
//! writes were installed, or they were certain to commit, before it came here. So a transaction has
//! a larger LSN than all that it depends on, under every protocol. (A protocol's own timestamps
//! would do where they are unique and come in the order of dependencies: TicToc's tie, Cicada's
//! come in any order, Silo's are ordered across rows only by epochs, strict locking has none.)
//! Conservative release needs no order: what a transaction can see is durable, and the writes of
//! one row are ordered by their write counters ([`contend_engine::commit_sink`]).
//!
//! **The durable LSN.** All transactions are durable below the least number that a worker may have
//! taken and not flushed. Each worker publishes this number in a slot of its own: it stores a lower
//! bound before it takes an LSN (`committing`), and `ALL` once it has flushed (`flushed`). A worker
//! that does nothing holds nobody up. The pairs, all SeqCst:
//!
//! | worker, in `committing` | reader, in `durable_below` |
//! | --- | --- |
//! | W1: store `unflushed` of its slot | R1: load `next` |
//! | W2: `fetch_add` of `next` | R2: load `unflushed` of every slot |
//!
//! The excluded interleaving is R2 before W1 with an LSN of W2 below the value of R1. In the single
//! order of SeqCst operations R1 comes before R2, so R2 before W1 implies R1 before W2: the LSN is
//! at least the value that R1 loaded, and the reader does not call it durable. (`next` is changed
//! by exchanges only, so R1 also synchronises with each W2 whose LSN is below the value that it
//! loads, and W1 comes along. This is what `tests/loom.rs` checks: loom treats SeqCst accesses as
//! AcqRel.) The mutant `SlotsBeforeCounter` swaps R1 and R2. The number of workers in use (`used`)
//! is raised before the worker's first W1 and loaded after R1, for the same reason.
//!
//! A slot that R2 loads as `ALL`, or with a higher bound, was stored after a flush (Release): the
//! reader that sees it sees the flush as done.
//!
//! **Holds.** Under conservative release a transaction leaves a hold on its cells: the number of
//! its worker, and its own number among that worker's transactions. A cell is held as long as that
//! transaction is not durable, so nothing has to be done to release it. The pairs:
//!
//! - The hold of a cell is stored before the protocol publishes the row, and loaded after the
//!   protocol has granted access to it.
//! - `Slot::flushed` is stored (Release) after the flush, and loaded (Acquire) by the transaction
//!   that meets the hold. If the loaded number is not smaller than the hold's, what the transaction
//!   read is durable.
//! - `Slot::appended` is stored (Release) after the writes are in the buffer, and loaded (Acquire)
//!   by a worker that flushes in the other's place: its flush contains all of them. It stores no
//!   larger number to `flushed` than it loaded before, by `fetch_max`, so the owner may be further.
//!
//! A transaction that meets a hold waits while the holder flushes its single transaction, which
//! takes long but ends. A group is different: its transactions may wait for holds of the
//! transaction that met it, in a circle. So the transaction aborts (`not_durable`), flushes its own
//! group, and begins anew (P-WAL's algorithm 5). A transaction that is installing can't abort; it
//! flushes in the holder's place. A hold is a little wider than a lock: a transaction that reads an
//! older version of the row waits as well.

use std::sync::Arc;

use contend_engine::commit_sink::Hold;
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use crate::fault::Fault;

/// When other transactions see the writes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Once it has committed, even if it is not durable yet.
    Early,
    /// Once it is durable.
    Conservative,
}

/// How commits become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitProtocol {
    /// All commits of an epoch together.
    Epoch,
    /// The commits of each worker by themselves.
    Workers {
        /// When other transactions see their writes.
        release: Release,
        /// How many commits of a worker are flushed together.
        group: u32,
        /// Whether commits have LSNs.
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

/// The LSN of rows that are loaded before any transaction.
pub(crate) const LOADED_LSN: u64 = 1;
/// The first LSN of a transaction.
pub(crate) const FIRST_LSN: u64 = 2;
/// The ticket of a transaction that will never be durable.
const NEVER: u64 = u64::MAX;
/// A slot with this value: all that the worker has taken a number for is flushed.
const ALL: u64 = u64::MAX;
/// The bit of a hold from which on it has the worker's number, counted from 1. Below it stands the
/// number of the transaction.
const WORKER_SHIFT: u32 = 40;
/// How long a transaction waits for another worker's flush before it aborts, in seconds. An abort
/// does no harm.
const PATIENCE: f64 = 1e-3;

/// What a worker publishes.
#[derive(Debug)]
struct Slot<M: Machine> {
    /// The number of its last transaction with writes that is in its buffer.
    appended: M::U64,
    /// The number of its last transaction with writes that is durable.
    flushed: M::U64,
    /// A lower bound of the numbers (LSNs, or epochs) that it has taken and not flushed; or
    /// [`ALL`].
    unflushed: M::U64,
}

/// The part that all workers share.
#[derive(Debug)]
pub struct Commits<M: Machine> {
    protocol: CommitProtocol,
    fault: Option<Fault>,
    /// The next LSN.
    next: CachePadded<M::U64>,
    slots: Box<[CachePadded<Slot<M>>]>,
    /// No worker has had this number, or a larger one, yet.
    used: CachePadded<M::U64>,
    /// Not 0 once the disk has failed: nothing becomes durable any more, so no transaction waits
    /// for it.
    is_over: M::U64,
}

impl<M: Machine> Commits<M> {
    /// Creates the shared part for workers numbered below `workers`. All LSNs below `first_lsn`
    /// were durable before.
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

    /// Returns the commit protocol.
    pub fn protocol(&self) -> CommitProtocol {
        self.protocol
    }

    /// Notes that the disk has failed: no transaction waits any more for what will never be
    /// durable.
    pub fn give_up(&self) {
        // Release: pairs with the Acquire load of `Committer::is_known_durable`.
        self.is_over.store(1, Ordering::Release);
    }

    /// Returns a number below which all are flushed, or will never be taken. `end` is a number that
    /// no worker has taken yet; without it, that is the next LSN.
    fn durable_below(&self, end: Option<u64>) -> u64 {
        if self.fault == Some(Fault::SlotsBeforeCounter) {
            let least = self.unflushed();
            // SeqCst: R1 of the module's text, but after R2. It pairs with W2 in `committing` as
            // below, and that is too late: a worker may do W1 and W2 between the two loads, so that
            // its LSN is below the loaded value and its slot was missed.
            return end.unwrap_or_else(|| self.next.load(Ordering::SeqCst)).min(least);
        }
        // SeqCst: R1 of the module's text; pairs with W2 in `committing`.
        let end = end.unwrap_or_else(|| self.next.load(Ordering::SeqCst));
        end.min(self.unflushed())
    }

    /// Returns the least number that a worker may have taken and not flushed; [`ALL`] if there is
    /// none.
    fn unflushed(&self) -> u64 {
        // SeqCst, both: R2 of the module's text. The first pairs with `fetch_max` in
        // `Committer::new`, the others with W1 in `committing`.
        let used = self.used.load(Ordering::SeqCst) as usize;
        self.slots[..used].iter().map(|slot| slot.unflushed.load(Ordering::SeqCst)).fold(ALL, u64::min)
    }
}

/// The part of one worker.
#[derive(Debug)]
pub struct Committer<M: Machine> {
    all: Arc<Commits<M>>,
    worker: usize,
    /// The number of its last transaction that is certain to commit.
    sequence: u64,
    /// The number of its last transaction that is in the buffer.
    appended: u64,
    /// How many transactions have committed since the last flush, with writes or without.
    commits: u64,
    /// The number of its last transaction that is durable.
    flushed: u64,
    /// A lower bound of the LSNs or epochs of its transactions that are not durable, if there are
    /// any: the value of its slot.
    first: Option<u64>,
    /// The LSN, or the epoch, of its last transaction.
    last: u64,
    /// A number below which all transactions are known to be durable.
    durable: u64,
    /// Whether it may have read a write that will never be durable.
    is_void: bool,
    /// For each worker, the number of its last transaction that is known to be durable.
    known: Box<[u64]>,
    /// [`PATIENCE`] in cycles.
    patience: u64,
}

impl<M: Machine> Committer<M> {
    /// Creates the part of the worker with this number. The worker that had the number before has
    /// ended.
    pub fn new(all: &Arc<Commits<M>>, worker: usize) -> Self {
        // SeqCst: comes before the worker's first W1 of the module's text; pairs with the load in
        // `Commits::unflushed`.
        all.used.fetch_max(worker as u64 + 1, Ordering::SeqCst);
        // Relaxed: the engine has handed on the number since the last worker stored this.
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

    /// See [`contend_engine::commit_sink::CommitSink::committing`].
    #[inline]
    pub fn committing(&mut self) -> Hold {
        self.sequence += 1;
        let protocol = self.all.protocol;
        if protocol.waits_for_all() {
            // A lower bound of the LSN that is taken below: larger than the last one of this
            // worker, and not below what is known to be durable.
            let next = if protocol.has_lsn() { (self.last + 1).max(self.durable) } else { self.last };
            let first = *self.first.get_or_insert(next);
            // SeqCst: W1 of the module's text; pairs with R2 in `unflushed`.
            self.slot().unflushed.store(first, Ordering::SeqCst);
        }
        if protocol.has_lsn() {
            // SeqCst: W2 of the module's text; pairs with R1 in `durable_below`.
            self.last = self.all.next.fetch_add(1, Ordering::SeqCst);
        }
        if protocol.holds_rows() { Hold((self.worker as u64 + 1) << WORKER_SHIFT | self.sequence) } else { Hold::NONE }
    }

    /// Returns the LSN of the transaction that commits; 0 if commits have none.
    pub fn lsn(&self) -> u64 {
        if self.all.protocol.has_lsn() { self.last } else { 0 }
    }

    /// Whether the buffer has commits of an epoch before `epoch`, so that it must be flushed before
    /// a commit of this epoch is appended.
    pub fn is_of_earlier(&self, epoch: u64) -> bool {
        self.all.protocol == CommitProtocol::Epoch && self.has_unflushed() && epoch > self.last
    }

    /// Whether the running transaction belongs into the buffer. Under early release it does also
    /// without writes if it came to `committing`: it may have deleted what it had inserted itself,
    /// or have failed behind its border. The slot waits for its flush. And recovery would take a
    /// missing LSN for a transaction that was lost, and would discard all later ones.
    #[inline]
    pub fn is_to_append(&self, has_written: bool) -> bool {
        let counts = self.all.protocol.waits_for_all() && self.all.fault != Some(Fault::SkipEmpty);
        has_written || counts && self.sequence > self.appended
    }

    /// Notes that a transaction that committed in `epoch` is in the buffer, or does not belong
    /// there. Returns whether the worker must flush now.
    pub fn appended(&mut self, epoch: u64, is_appended: bool) -> bool {
        let all = &self.all;
        match all.protocol {
            CommitProtocol::Epoch => self.last = epoch,
            // The transaction has read only. What it read may not be durable yet, but has a smaller
            // LSN than the next one. SeqCst: R1 of the module's text; what was read has done its
            // W2.
            _ if all.protocol.waits_for_all() && !is_appended => self.last = all.next.load(Ordering::SeqCst) - 1,
            _ => {}
        }
        self.commits += 1;
        // A worker that only reads from now on must not hold up what it has written before.
        let is_full = matches!(all.protocol, CommitProtocol::Workers { group, .. } if self.commits >= u64::from(group));
        if !is_appended {
            return is_full && self.has_unflushed();
        }
        self.appended = self.sequence;
        if all.protocol.holds_rows() {
            // Release: publishes the buffer; pairs with the Acquire load in `wait_for`.
            self.slot().appended.store(self.appended, Ordering::Release);
        }
        is_full
    }

    /// Whether rows are held until they are durable.
    pub fn holds_rows(&self) -> bool {
        self.all.protocol.holds_rows()
    }

    /// Whether the buffer has a transaction that is not durable.
    pub fn has_unflushed(&self) -> bool {
        self.appended > self.flushed
    }

    /// Notes that all transactions in the buffer are durable.
    pub fn flushed(&mut self) {
        (self.flushed, self.commits) = (self.appended, 0);
        let slot = self.slot();
        // Release: publishes the flush; pairs with the Acquire load in `is_known_durable`. Another
        // worker that flushed in this one's place has stored no larger number.
        slot.flushed.store(self.flushed, Ordering::Release);
        if self.first.take().is_some() {
            // The transaction that is committing now has a later epoch: otherwise it would be in
            // the buffer that was flushed. Release: publishes the flush; pairs with the SeqCst load
            // in `unflushed`.
            self.first = (self.sequence > self.appended).then_some(self.last + 1);
            self.slot().unflushed.store(self.first.unwrap_or(ALL), Ordering::Release);
        }
    }

    /// Returns the ticket of the worker's last transaction.
    pub fn ticket(&self) -> u64 {
        match self.all.protocol.waits_for_all() {
            true => self.last,
            false if self.is_void => NEVER,
            false => self.appended,
        }
    }

    /// Whether the transaction with this ticket is durable.
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

    /// Returns an LSN below which all transactions are durable, if commits wait for all with
    /// smaller LSNs.
    pub fn durable_lsn(&mut self) -> Option<u64> {
        let counts = self.all.protocol.waits_for_all() && self.all.protocol.has_lsn();
        counts.then(|| {
            self.durable = self.all.durable_below(None).max(self.durable);
            self.durable
        })
    }

    /// Whether a transaction of another worker is durable.
    fn is_flushed(&mut self, worker: usize, sequence: u64) -> bool {
        if sequence <= self.known[worker] {
            return true;
        }
        // Acquire: pairs with the Release store of `flushed`, or the Release `fetch_max` of
        // `wait_for`: the flush was done before.
        self.known[worker] = self.all.slots[worker].flushed.load(Ordering::Acquire);
        sequence <= self.known[worker]
    }

    /// Whether this worker may use what a transaction wrote: it is one of its own, it is durable,
    /// or the disk has failed, so that it never will be.
    fn is_known_durable(&mut self, worker: usize, sequence: u64) -> bool {
        if worker == self.worker || self.is_flushed(worker, sequence) {
            return true;
        }
        // Acquire: pairs with the Release store of `give_up`. What this worker reads from now on
        // may be lost, so nothing of it is acknowledged.
        self.is_void |= self.all.is_over.load(Ordering::Acquire) != 0;
        self.is_void
    }

    /// Returns the number of the worker and that of its transaction. None for [`Hold::NONE`].
    fn parts(hold: Hold) -> Option<(usize, u64)> {
        let worker = (hold.0 >> WORKER_SHIFT).checked_sub(1)?;
        Some((worker as usize, hold.0 & ((1 << WORKER_SHIFT) - 1)))
    }

    /// See [`contend_engine::commit_sink::CommitSink::may_pass`].
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

    /// See [`contend_engine::commit_sink::CommitSink::is_released`].
    pub fn is_released(&mut self, hold: Hold) -> bool {
        let Some((worker, sequence)) = Self::parts(hold) else { return true };
        // What this worker has not flushed may be seen by itself alone: others miss the key too. If
        // the disk has failed, the tombstone stays. A worker that met its hold would know that
        // nothing it reads is durable; one that misses the key would not.
        let is_flushed =
            if worker == self.worker { sequence <= self.flushed } else { self.is_flushed(worker, sequence) };
        is_flushed || self.all.fault == Some(Fault::UnlinkHeld)
    }

    /// See [`contend_engine::commit_sink::CommitSink::wait_for`]. The worker that holds the row may
    /// itself wait for a hold of this one, so waiting alone could take for ever. `flush` makes the
    /// buffer of the worker with this number durable, in its place, and returns `false` if that has
    /// failed.
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
            // Acquire: pairs with the Release store in `appended`: the buffer has all transactions
            // up to this number.
            let appended = slot.appended.load(Ordering::Acquire);
            if appended < sequence {
                // The transaction is installing, and is about to be appended.
                spin.wait();
            } else if flush(worker) {
                // Release: publishes the flush; pairs with the Acquire load in `is_known_durable`.
                // The maximum, because the worker itself may have flushed more.
                slot.flushed.fetch_max(appended, Ordering::Release);
            } else {
                self.all.give_up();
            }
        }
    }
}
