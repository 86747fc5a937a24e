//! Two-phase locking with deadlock detection: a transaction waits at each conflict, and a waiter
//! looks for deadlocks.
//!
//! **Idea.** A transaction waits at each conflict. Each waiting worker names the transactions that
//! it waits for in a waits-for graph, where it writes only its own row. At intervals it searches
//! the graph for a path back to itself. In a cycle the transaction with the fewest locks aborts.
//!
//! **Paper.** DL_DETECT, with its partitioned waits-for graph and its limit to a wait: X. Yu, G.
//! Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring into the abyss", VLDB 2014, sections 2.1
//! and 4.2.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | a blocked transaction waits, in the order of arrival | `may_wait`, over [`queue`] |
//! | it stores its edges in its own part of the graph | `may_wait`, `keep_waiting`: `write_row` |
//! | it searches the graph for a cycle through itself | `is_victim`, over `row` |
//! | the transaction of the cycle with the fewest resources aborts | `has_fewest` |
//! | (ours: verify that the cycle exists) | `is_deadlock`, over `queue::waits_for` |
//! | a wait is limited | `dldetect.timeout_us`, in `keep_waiting` |
//!
//! **The graph.** A worker's row is one cache line. It names the worker next before it in the
//! queue, or, if there is none, the workers that hold the cell; the other blockers block these. No
//! lock protects the rows, so a search can read a mixture of several states, and a cycle that it
//! finds is a suspicion. The row of a worker that was granted its lock also stays until that worker
//! runs again, which takes long if it has lost its core.
//!
//! No deadlock is missed for ever. In a deadlock each member refreshes its row, and names workers
//! that really block it. So in the end the member with the fewest locks finds itself on the cycle,
//! with the fewest locks. (A row has room for 24 holders of one cell. A deadlock through another
//! holder ends at the limit to the wait.)
//!
//! **A suspicion is verified** before a transaction aborts. `is_deadlock` looks for each wait of
//! the cycle in the lists of its cell, under the cell's latch, one wait after the other, against
//! the direction of the waits. Then it does all of that once more, and compares:
//!
//! 1. A waiting transaction neither releases nor overtakes anything. So while a blocker waits, it
//!    blocks.
//! 2. A transaction that waits in both passes, for the same cell, has waited all the time between.
//! 3. So at the end of the first pass all waits of the cycle existed together: it is a deadlock.
//!
//! A row leads to the cell: it names a cell only while its worker waits for it. The memory of a
//! record is not reused while a transaction runs that could have met the record, so the cell can
//! still be latched.
//!
//! **Waits** end with a grant, with the detection, or at `dldetect.timeout_us`; at 0 no transaction
//! waits, as in NO_WAIT.
//!
//! **Orderings.** All accesses of the graph are Relaxed, and none has a partner: they find a
//! suspicion, and `queue::waits_for` verifies it under the latches, whose Acquire and Release order
//! the lists.

use std::marker::PhantomData;
use std::ptr::NonNull;

use contend_engine::{AbortReason, Cell, ProtocolInfo, options};
use contend_machine::{Atomic64, Block, Machine, Ordering};

use crate::fault::Sound;
use crate::locking::list::LockOwner;
use crate::locking::queue::{self, Blockers, QueueFaults, QueuedLocks, WaitPolicy, waits_anyway};
use crate::locking::{TwoPhase, info};
use crate::method::timestamp::Outcome;

options! {
    /// Options of deadlock detection.
    pub struct DeadlockOptions {
        /// The longest wait for a lock, in microseconds; 0: no transaction waits.
        "dldetect.timeout_us" timeout_us: u64 = 1000, in 0..=10_000_000;
        /// The number of times that a wait is prolonged between two searches for a deadlock; the
        /// first 12 times take some microseconds together.
        "dldetect.every" every: u32 = 8, in 1..=1_000_000;
    }
}

/// The protocol.
pub type DeadlockDetection<M, F = Sound> = TwoPhase<QueuedLocks<M, DetectionPolicy<M, F>>>;

/// The wait policy.
#[derive(Debug)]
pub struct DetectionPolicy<M: Machine, F> {
    options: DeadlockOptions,
    /// The waits-for graph: a row for each worker.
    rows: Block<M, Row<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's row of the graph, on a cache line. Only its worker stores to it.
/// A search loads the rows of many workers, and each row costs it one transfer. Two rows on a line
/// would make each store of one worker take the other worker's row from the searches as well.
#[derive(Debug)]
#[repr(align(64))]
struct Row<M: Machine> {
    /// The number of the worker's last transaction that waited, above the number of locks that it
    /// held.
    locks: M::U64,
    /// The address of the cell for which the worker waits; 0 if it does not wait.
    cell: M::U64,
    /// The blockers: numbers of workers plus one, four in a word, from the lowest bits of the first
    /// word on; 0 behind the last.
    blockers: [M::U64; WORDS],
}

const LOCKS_BITS: u32 = 24;
const LOCKS_MAX: u64 = (1 << LOCKS_BITS) - 1;
const WORDS: usize = 6;
const NAME_BITS: u32 = 16;
const NAMES_OF_WORD: usize = 4;
/// The most workers that a row names.
const NAMES: usize = WORDS * NAMES_OF_WORD;

/// A worker's state.
#[derive(Debug)]
pub struct DetectionWorker {
    worker: usize,
    /// The number of the running transaction. No two transactions of workers with this number that
    /// wait have the same.
    transaction: u64,
    /// The number of locks that it holds.
    locks: u64,
    /// The clock when the wait began, in cycles.
    began: u64,
    // The vectors are buffers of one search, which stay allocated for the next.
    /// The blockers for the worker's row.
    names: Vec<u16>,
    /// By worker that a search has reached, the worker that it was reached from.
    reached_from: Vec<u32>,
    /// Workers that a search has reached, and whose rows it has yet to read.
    to_visit: Vec<u32>,
    /// The transactions that the verification has seen wait, of both passes.
    seen: Vec<LockOwner>,
}

const NOT_REACHED: u32 = u32::MAX;

impl<M: Machine, F: QueueFaults> DetectionPolicy<M, F> {
    /// Stores the blockers of the worker's transaction to its row.
    fn write_row(&self, worker: usize, names: &[u16]) {
        let words = names
            .chunks(NAMES_OF_WORD)
            .map(|names| names.iter().rev().fold(0, |word, &name| word << NAME_BITS | (u64::from(name) + 1)));
        for (word, new) in self.rows[worker].blockers.iter().zip(words.chain(std::iter::repeat(0))) {
            // Relaxed, both: the row is this worker's, and no load of it pairs with the store (the
            // module comment). A word that is the same is not stored again, since searches of other
            // workers share the line.
            if word.load(Ordering::Relaxed) != new {
                word.store(new, Ordering::Relaxed);
            }
        }
    }

    /// Returns the cell for which a worker waits. The caller can latch it until its transaction
    /// ends.
    fn cell(&self, worker: usize) -> Option<Cell<M>> {
        // Relaxed: a suspicion. The record of the cell is not reused before the caller's
        // transaction ends: the worker began to wait for the cell after that transaction began, or
        // else the caller would see the end of the wait. The engine's epochs order each use of a
        // record before the begin of every transaction that could see its memory reused.
        let first = std::ptr::with_exposed_provenance_mut(self.rows[worker].cell.load(Ordering::Relaxed) as usize);
        // SAFETY: a cell of these locks, of a record whose memory is not reused while the caller's
        // transaction runs.
        NonNull::new(first).map(|first| unsafe { Cell::at(first) })
    }

    /// Returns the blockers that a worker's row names; none if the worker does not wait.
    fn row(&self, worker: usize) -> impl Iterator<Item = usize> {
        let words = if self.cell(worker).is_some() { &self.rows[worker].blockers[..] } else { &[] };
        let names = words.iter().flat_map(|word| {
            // Relaxed: a suspicion. The words of a row can be of several states.
            let word = word.load(Ordering::Relaxed);
            (0..NAMES_OF_WORD as u32).map(move |number| word >> (number * NAME_BITS) & u64::from(u16::MAX))
        });
        names.take_while(|name| *name != 0).map(|name| name as usize - 1)
    }

    /// Returns whether the caller's transaction is in a deadlock, and must abort. A depth-first
    /// search of the graph, from its worker.
    fn is_victim(&self, local: &mut DetectionWorker, own: LockOwner) -> bool {
        M::step("look for deadlock");
        local.reached_from.clear();
        local.reached_from.resize(self.rows.len(), NOT_REACHED);
        local.to_visit.clear();
        local.to_visit.push(local.worker as u32);
        while let Some(worker) = local.to_visit.pop() {
            for other in self.row(worker as usize) {
                if other == local.worker {
                    if self.has_fewest(local, worker as usize) && self.is_deadlock(local, own, worker as usize) {
                        return true;
                    }
                } else if local.reached_from[other] == NOT_REACHED {
                    local.reached_from[other] = worker;
                    local.to_visit.push(other as u32);
                }
            }
        }
        false
    }

    /// Returns whether the caller's transaction has the fewest locks in a suspected cycle. `last`
    /// is the worker in the cycle that waits for the caller's. If several have the fewest, the
    /// worker with the greatest number counts.
    fn has_fewest(&self, local: &DetectionWorker, last: usize) -> bool {
        // Relaxed: a suspicion. In a deadlock no member acquires a lock, so its number of locks
        // stays as it stored it.
        let locks = |worker: usize| self.rows[worker].locks.load(Ordering::Relaxed) & LOCKS_MAX;
        let rank = |worker: usize| (locks(worker), usize::MAX - worker);
        let own = rank(local.worker);
        let before = |worker: &usize| Some(local.reached_from[*worker] as usize);
        std::iter::successors(Some(last), before)
            .take_while(|worker| *worker != local.worker)
            .all(|worker| own < rank(worker))
    }

    /// Verifies a suspected cycle, in which `last` waits for the caller's worker. Returns whether
    /// all its members wait at one moment.
    fn is_deadlock(&self, local: &mut DetectionWorker, own: LockOwner, last: usize) -> bool {
        M::step("verify deadlock");
        local.seen.clear();
        for _ in 0..2 {
            // Against the direction of the waits: each step expects the blocker of the step before.
            // The transaction `own` is the caller's, which waits as long as this runs.
            let (mut waiter, mut other) = (last, own);
            loop {
                let seen = self.cell(waiter).and_then(|cell| queue::waits_for(cell, waiter, other.worker));
                let Some((owner, _)) = seen.filter(|(_, blocker)| *blocker == other) else { return false };
                local.seen.push(owner);
                if waiter == local.worker {
                    break;
                }
                (waiter, other) = (local.reached_from[waiter] as usize, owner);
            }
        }
        let (first, second) = local.seen.split_at(local.seen.len() / 2);
        first == second
    }

    fn cycles(microseconds: u64) -> u64 {
        (M::cycles_per_second() * microseconds as f64 / 1e6) as u64
    }
}

impl<M: Machine, F: QueueFaults> WaitPolicy<M> for DetectionPolicy<M, F> {
    const INFO: ProtocolInfo = info(
        "2pl-dldetect",
        "two-phase locking: conflicts are waited for, deadlocks are found in a waits-for graph",
        "Yu, Bezerra, Pavlo, Devadas, Stonebraker: Staring into the abyss, VLDB 2014",
    );
    type Options = DeadlockOptions;
    type Faults = F;
    type WorkerState = DetectionWorker;
    const BLOCKERS: Blockers = Blockers::Nearest;

    fn new(options: DeadlockOptions) -> Self {
        DetectionPolicy { options, rows: Block::new(0, |_| unreachable!("there is none yet")), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        assert!(workers < usize::from(u16::MAX), "workers of numbers of {NAME_BITS} bits");
        let word = || M::U64::new(0);
        self.rows =
            Block::new(workers, |_| Row { locks: word(), cell: word(), blockers: std::array::from_fn(|_| word()) });
    }

    fn new_worker_state(&self, worker: usize) -> DetectionWorker {
        // Relaxed: an earlier worker of this number has ended.
        let transaction = self.rows[worker].locks.load(Ordering::Relaxed) >> LOCKS_BITS;
        DetectionWorker {
            worker,
            transaction,
            locks: 0,
            began: 0,
            names: Vec::new(),
            reached_from: Vec::new(),
            to_visit: Vec::new(),
            seen: Vec::new(),
        }
    }

    #[inline(always)]
    fn begin(&self, local: &mut DetectionWorker) -> LockOwner {
        local.locks = 0;
        local.transaction += 1;
        LockOwner { worker: local.worker, timestamp: 0, transaction: local.transaction }
    }

    #[inline(always)]
    fn goes_before(&self, _: LockOwner, _: LockOwner) -> bool {
        false
    }

    fn may_wait(
        &self,
        local: &mut DetectionWorker,
        own: LockOwner,
        cell: Cell<M>,
        blockers: impl Iterator<Item = LockOwner>,
    ) -> bool {
        if self.options.timeout_us == 0 {
            return false;
        }
        let row = &self.rows[local.worker];
        // Relaxed, here and below: no load of the row pairs with the stores (the module comment).
        // The row names the cell last: until then a search takes it as one of a worker that doesn't
        // wait, if it sees the stores in their order; and if not, it reads an old row.
        row.locks.store(own.transaction << LOCKS_BITS | local.locks.min(LOCKS_MAX), Ordering::Relaxed);
        local.names.clear();
        local.names.extend(blockers.take(NAMES).map(|other| other.worker as u16));
        self.write_row(local.worker, &local.names);
        // Relaxed: pairs with no load, as above; the search counts a stale row as a guess.
        row.cell.store(cell.value(), Ordering::Relaxed);
        local.began = M::now();
        true
    }

    fn keep_waiting(
        &self,
        local: &mut DetectionWorker,
        own: LockOwner,
        waits: u32,
        visit_blockers: impl FnOnce(&mut dyn FnMut(LockOwner)),
    ) -> Result<(), AbortReason> {
        if M::now().saturating_sub(local.began) > Self::cycles(self.options.timeout_us) {
            return Err(AbortReason::LockTimeout);
        }
        if waits == 0 || !waits.is_multiple_of(self.options.every) {
            return Ok(());
        }
        // The blockers may be others than at the beginning of the wait.
        local.names.clear();
        visit_blockers(&mut |other| {
            if local.names.len() < NAMES {
                local.names.push(other.worker as u16);
            }
        });
        self.write_row(local.worker, &local.names);
        if self.is_victim(local, own) && !waits_anyway::<F>() { Err(AbortReason::Deadlock) } else { Ok(()) }
    }

    fn stop_waiting(&self, local: &mut DetectionWorker) {
        // Relaxed: a search that reads the old word only suspects more waits than there are.
        self.rows[local.worker].cell.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn end(&self, _: &mut DetectionWorker, _: Outcome) {}

    #[inline(always)]
    fn lock_granted(&self, local: &mut DetectionWorker) {
        local.locks += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use contend_engine::{
        AbortReason, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, RawTxn, Table, TableSpec, Worker,
    };
    use contend_machine::{Native, available_cores};

    use super::{DeadlockDetection, DeadlockOptions};

    type TestEngine = Engine<DeadlockDetection<Native>, Native>;
    type TestWorker = Worker<DeadlockDetection<Native>, Native>;
    type Rows = Table<u64>;

    /// Returns an engine with a table of `rows` rows, whose waits don't reach their limit within a
    /// test.
    fn engine(rows: u64) -> (Arc<TestEngine>, Rows) {
        let protocol = DeadlockDetection::new(DeadlockOptions { timeout_us: 10_000_000, ..DeadlockOptions::default() });
        let engine = Engine::new(protocol, EngineConfig::default());
        let table = engine.create_table::<u64>(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 64));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..rows {
            assert!(loader.insert(&table, key, |row| row[0] = 0).expect("memory"));
        }
        (engine, table)
    }

    /// Runs `work` on `threads` threads, more than there are cores. Returns the number of deadlocks
    /// that they aborted for.
    fn deadlocks(engine: &Arc<TestEngine>, threads: usize, work: impl Fn(usize, &mut TestWorker) + Sync) -> u64 {
        let one = |thread| {
            let mut worker = engine.worker().expect("a free slot");
            work(thread, &mut worker);
            worker.aborts().get(AbortReason::Deadlock)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        })
    }

    #[test]
    fn transactions_with_one_lock_each_are_in_no_deadlock() {
        let (engine, rows) = engine(1);
        let found = deadlocks(&engine, 2 * available_cores().len() + 2, |_, worker| {
            for _ in 0..500 {
                while let Err(abort) = worker.run(|tx| {
                    tx.modify_row(&rows, 0, Groups::ALL)?.expect("loaded")[0] += 1;
                    // Lets other threads come to wait.
                    std::thread::yield_now();
                    Ok(())
                }) {
                    assert!(abort.reason.is_conflict(), "{abort}");
                }
            }
        });
        assert_eq!(found, 0);
    }

    #[test]
    fn transactions_that_wait_for_each_other_are_in_a_deadlock() {
        let pairs = available_cores().len() + 1;
        let (engine, rows) = engine(2 * pairs as u64);
        let meetings: Vec<Barrier> = (0..pairs).map(|_| Barrier::new(2)).collect();
        let found = deadlocks(&engine, 2 * pairs, |thread, worker| {
            // Two threads modify the same two rows, in opposite orders.
            let (pair, first) = (thread / 2, thread as u64);
            for _ in 0..20 {
                // Here neither thread of the pair holds a lock; at the second meeting each holds
                // one.
                meetings[pair].wait();
                let mut is_first_try = true;
                while let Err(abort) = worker.run(|tx| {
                    for key in [first, first ^ 1] {
                        tx.modify_row(&rows, key, Groups::ALL)?.expect("loaded")[0] += 1;
                        if std::mem::take(&mut is_first_try) {
                            meetings[pair].wait();
                        }
                    }
                    Ok(())
                }) {
                    assert!(abort.reason.is_conflict(), "{abort}");
                }
            }
        });
        assert!(found > 0, "each pair has met 20 times, each thread holding the row that the other needs");
        let mut row = Vec::new();
        for key in 0..2 * pairs as u64 {
            engine.peek(&rows, key, &mut row).expect("loaded");
            assert_eq!(row[0], 40);
        }
    }
}
