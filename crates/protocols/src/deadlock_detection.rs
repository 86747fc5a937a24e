//! Two-phase locking in which everybody waits, and who waits looks for deadlocks.
//!
//! **Idea.** A conflict is waited for. Each worker that waits says for whom in a graph, of which it alone writes its own row; now and then it
//! looks whether it can be reached from itself. Of the transactions of a cycle the one with the fewest locks gives up.
//!
//! **Paper.** The partitioned waits-for graph, and the limit to the wait: X. Yu, G. Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring
//! into the abyss", VLDB 2014, sections 2.1 and 4.2 (DL_DETECT).
//!
//! **Locks** with queues, first come, first served: [`crate::locking::queue`].
//!
//! **The graph.** A row is a line, which names who stands next before the worker in the queue, or, if nobody does, who holds the record: the
//! others are in the way of these. Nothing is locked to read or write it, so it may be a mixture of times, and a cycle in it is a suspicion. The
//! row of a worker that was granted its lock stands until that worker runs again, which takes long if it has lost its core. No deadlock is missed
//! for ever: in it nobody's row changes any more but to name those that really are in the way, and its member with the fewest locks finds
//! itself on a cycle, and has the fewest there. (A row has room for 24 that hold a record together; a deadlock by way of another one ends with
//! the limit to the wait.)
//!
//! **A suspicion is verified** before anybody aborts: each wait of the cycle is looked for in the lists of its cell, under the latch, one after
//! the other, against the direction of the waits, and then all of them once more. Who waits neither releases nor overtakes anything, so what
//! is in the way of a transaction stays there while it waits itself; and who was waiting in both passes, in one transaction, waited all the time
//! between. So at the end of the first pass all the waits were there at once, and that is a deadlock. A row leads to the cell: it names one only
//! while its worker waits for it, and so in the worker's transaction; no memory of a record is reused that a running transaction could have met.
//!
//! **Waits** end: with a grant, with the detection, or with `dldetect.timeout_us`; 0 is never to wait, as in NO_WAIT.

use std::marker::PhantomData;
use std::ptr::NonNull;

use contend_engine::{AbortReason, Cell, Info, options};
use contend_machine::{Atomic64, Block, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::locking::list::Ticket;
use crate::locking::queue::{self, Policy, Queues};
use crate::locking::{TwoPhase, info};

options! {
    /// Options of deadlock detection.
    pub struct DeadlockOptions {
        /// Microseconds for which a lock is waited for at most; 0: not at all.
        "dldetect.timeout_us" timeout_us: u64 = 1000, in 0..=10_000_000;
        /// How often a wait is prolonged between two looks for a deadlock: the first 12 times take some microseconds together.
        "dldetect.every" every: u32 = 8, in 1..=1_000_000;
    }
}

/// The protocol.
pub type DeadlockDetection<M, F = Sound> = TwoPhase<Queues<M, Detect<M, F>>>;

/// Its policy.
#[derive(Debug)]
pub struct Detect<M: Machine, F> {
    options: DeadlockOptions,
    rows: Block<M, Row<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's row of the graph: a line.
#[derive(Debug)]
#[repr(align(64))]
struct Row<M: Machine> {
    /// Of the last transaction that waited: its number, and below it how many locks it holds.
    locks: M::U64,
    /// The cell for which it waits; 0 if it does not wait.
    cell: M::U64,
    /// For whom it waits: numbers of workers plus one, four in a word, from the lowest bits of the first word on; 0 behind the last.
    waits_for: [M::U64; WORDS],
}

const LOCKS_BITS: u32 = 24;
const LOCKS_MAX: u64 = (1 << LOCKS_BITS) - 1;
const WORDS: usize = 6;
const NAME_BITS: u32 = 16;
const NAMES_OF_WORD: usize = 4;
/// Workers that a row can name.
const NAMES: usize = WORDS * NAMES_OF_WORD;

/// A worker's state.
#[derive(Debug)]
pub struct DetectLocal {
    worker: usize,
    /// The number of its transaction. No two of a worker's number that wait have the same.
    number: u64,
    locks: u64,
    /// When the wait began.
    began: u64,
    /// For whom it waits. Kept for its memory.
    names: Vec<u16>,
    /// Workers that were reached, and how: from which worker. Kept for its memory.
    reached_from: Vec<u32>,
    to_visit: Vec<u32>,
    /// Transactions that were seen to wait. Kept for its memory.
    seen: Vec<Ticket>,
}

const NOT_REACHED: u32 = u32::MAX;

impl<M: Machine, F: Faults> Detect<M, F> {
    /// Writes down for whom the worker waits.
    fn write_row(&self, worker: usize, names: &[u16]) {
        let words = names
            .chunks(NAMES_OF_WORD)
            .map(|names| names.iter().rev().fold(0, |word, &name| word << NAME_BITS | (u64::from(name) + 1)));
        for (word, new) in self.rows[worker].waits_for.iter().zip(words.chain(std::iter::repeat(0))) {
            // Relaxed, as all of the graph: it is a guess; locks are what counts.
            if word.load(Ordering::Relaxed) != new {
                word.store(new, Ordering::Relaxed);
            }
        }
    }

    /// For which cell a worker waits.
    fn cell(&self, worker: usize) -> Option<Cell<M>> {
        // Relaxed: as above. What the word names can be latched as long as the caller's transaction runs: the cell was waited for after that
        // began, or the worker's end of the wait would be seen, as the end of each use of a record is by who begins when it is reused.
        let first = std::ptr::with_exposed_provenance_mut(self.rows[worker].cell.load(Ordering::Relaxed) as usize);
        // SAFETY: a cell of these locks, of a record whose memory is not reused while the caller's transaction runs.
        NonNull::new(first).map(|first| unsafe { Cell::at(first) })
    }

    /// For whom a worker waits.
    fn row(&self, worker: usize) -> impl Iterator<Item = usize> {
        let words = if self.cell(worker).is_some() { &self.rows[worker].waits_for[..] } else { &[] };
        let names = words.iter().flat_map(|word| {
            let word = word.load(Ordering::Relaxed);
            (0..NAMES_OF_WORD as u32).map(move |number| word >> (number * NAME_BITS) & u64::from(u16::MAX))
        });
        names.take_while(|name| *name != 0).map(|name| name as usize - 1)
    }

    /// Whether the caller's transaction waits for itself, and is to give up.
    fn is_victim(&self, local: &mut DetectLocal, own: Ticket) -> bool {
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

    /// Whether of a suspected cycle, in which `last` waits for this worker, this worker's transaction has the fewest locks; of equals the
    /// greatest number.
    fn has_fewest(&self, local: &DetectLocal, last: usize) -> bool {
        let locks = |worker: usize| self.rows[worker].locks.load(Ordering::Relaxed) & LOCKS_MAX;
        let rank = |worker: usize| (locks(worker), usize::MAX - worker);
        let own = rank(local.worker);
        let before = |worker: &usize| Some(local.reached_from[*worker] as usize);
        std::iter::successors(Some(last), before)
            .take_while(|worker| *worker != local.worker)
            .all(|worker| own < rank(worker))
    }

    /// Whether all of a suspected cycle, in which `last` waits for this worker, wait for one another at one moment.
    fn is_deadlock(&self, local: &mut DetectLocal, own: Ticket, last: usize) -> bool {
        M::step("verify deadlock");
        local.seen.clear();
        for _ in 0..2 {
            let (mut waiter, mut other) = (last, own);
            loop {
                let seen = self.cell(waiter).and_then(|cell| queue::waits_for(cell, waiter, other.worker));
                let Some((ticket, _)) = seen.filter(|(_, in_the_way)| *in_the_way == other) else { return false };
                local.seen.push(ticket);
                if waiter == local.worker {
                    break;
                }
                (waiter, other) = (local.reached_from[waiter] as usize, ticket);
            }
        }
        let (first, second) = local.seen.split_at(local.seen.len() / 2);
        first == second
    }

    fn cycles(microseconds: u64) -> u64 {
        (M::cycles_per_second() * microseconds as f64 / 1e6) as u64
    }
}

impl<M: Machine, F: Faults> Policy<M> for Detect<M, F> {
    const INFO: Info = info(
        "2pl-dldetect",
        "two-phase locking: conflicts are waited for, deadlocks are found in a waits-for graph",
        "Yu, Bezerra, Pavlo, Devadas, Stonebraker: Staring into the abyss, VLDB 2014",
    );
    type Options = DeadlockOptions;
    type Faults = F;
    type Local = DetectLocal;
    const NEAREST: bool = true;

    fn new(options: DeadlockOptions) -> Self {
        Detect { options, rows: Block::new(0, |_| unreachable!("there is none yet")), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        assert!(workers < usize::from(u16::MAX), "workers of numbers of {NAME_BITS} bits");
        let word = || M::U64::new(0);
        self.rows =
            Block::new(workers, |_| Row { locks: word(), cell: word(), waits_for: std::array::from_fn(|_| word()) });
    }

    fn local(&self, worker: usize) -> DetectLocal {
        // Relaxed: the worker before, if there was one, has ended.
        let number = self.rows[worker].locks.load(Ordering::Relaxed) >> LOCKS_BITS;
        DetectLocal {
            worker,
            number,
            locks: 0,
            began: 0,
            names: Vec::new(),
            reached_from: Vec::new(),
            to_visit: Vec::new(),
            seen: Vec::new(),
        }
    }

    #[inline(always)]
    fn begin(&self, local: &mut DetectLocal) -> Ticket {
        local.locks = 0;
        local.number += 1;
        Ticket { worker: local.worker, stamp: 0, number: local.number }
    }

    #[inline(always)]
    fn goes_before(&self, _: Ticket, _: Ticket) -> bool {
        false
    }

    fn may_wait(
        &self,
        local: &mut DetectLocal,
        own: Ticket,
        cell: Cell<M>,
        in_the_way: impl Iterator<Item = Ticket>,
    ) -> bool {
        if self.options.timeout_us == 0 {
            return false;
        }
        let row = &self.rows[local.worker];
        // Relaxed, here and below: as all of the graph.
        row.locks.store(own.number << LOCKS_BITS | local.locks.min(LOCKS_MAX), Ordering::Relaxed);
        local.names.clear();
        local.names.extend(in_the_way.take(NAMES).map(|other| other.worker as u16));
        self.write_row(local.worker, &local.names);
        row.cell.store(cell.value(), Ordering::Relaxed);
        local.began = M::now();
        true
    }

    fn keep_waiting(
        &self,
        local: &mut DetectLocal,
        own: Ticket,
        waits: u32,
        look: impl FnOnce(&mut dyn FnMut(Ticket)),
    ) -> Result<(), AbortReason> {
        if M::now().saturating_sub(local.began) > Self::cycles(self.options.timeout_us) {
            return Err(AbortReason::LockTimeout);
        }
        if waits == 0 || !waits.is_multiple_of(self.options.every) {
            return Ok(());
        }
        // Who was in the way may have gone, and others come.
        local.names.clear();
        look(&mut |other| {
            if local.names.len() < NAMES {
                local.names.push(other.worker as u16);
            }
        });
        self.write_row(local.worker, &local.names);
        if self.is_victim(local, own) && !F::WAIT_ANYWAY { Err(AbortReason::Deadlock) } else { Ok(()) }
    }

    fn stop_waiting(&self, local: &mut DetectLocal) {
        // Relaxed: who reads the word later only suspects more than there is.
        self.rows[local.worker].cell.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn end(&self, _: &mut DetectLocal, _: bool) {}

    #[inline(always)]
    fn granted(&self, local: &mut DetectLocal) {
        local.locks += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use contend_engine::{
        AbortReason, Engine, EngineConfig, Groups, IndexKind, Protocol, Table, TableSpec, Txn, Worker,
    };
    use contend_machine::{Native, available_cores};

    use super::{DeadlockDetection, DeadlockOptions};

    type TestEngine = Engine<DeadlockDetection<Native>, Native>;
    type TestWorker = Worker<DeadlockDetection<Native>, Native>;
    type Rows = Arc<Table<Native, u64>>;

    /// An engine whose waits are not given up for their length, with so many rows.
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

    /// Lets threads work, more than there are cores; all deadlocks that they aborted for.
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
    fn who_holds_one_lock_only_is_in_no_deadlock() {
        let (engine, rows) = engine(1);
        let found = deadlocks(&engine, 2 * available_cores().len() + 2, |_, worker| {
            for _ in 0..500 {
                while let Err(abort) = worker.run(|tx| {
                    tx.modify_row(&rows, 0, Groups::ALL)?.expect("loaded")[0] += 1;
                    // Others come to wait.
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
    fn who_waits_for_one_another_is_in_a_deadlock() {
        let pairs = available_cores().len() + 1;
        let (engine, rows) = engine(2 * pairs as u64);
        let meetings: Vec<Barrier> = (0..pairs).map(|_| Barrier::new(2)).collect();
        let found = deadlocks(&engine, 2 * pairs, |thread, worker| {
            // Two threads, two rows, in opposite orders.
            let (pair, first) = (thread / 2, thread as u64);
            for _ in 0..20 {
                // Neither holds anything; below each holds one.
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
        assert!(found > 0, "each pair has met on each other's rows 20 times");
        let mut row = Vec::new();
        for key in 0..2 * pairs as u64 {
            engine.peek(&rows, key, &mut row).expect("loaded");
            assert_eq!(row[0], 40);
        }
    }
}
