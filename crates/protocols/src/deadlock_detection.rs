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
//! others are in the way of these. Nothing is locked to read or write it: what is read may be a mixture of times, so a cycle may be seen
//! that never was (somebody aborts in vain). No deadlock is missed for ever: in it nobody's row changes any more but to name those that
//! really are in the way, and its member with the fewest locks finds itself on a cycle, and has the fewest there. (A row has room for 28 that
//! hold a record together; a deadlock by way of another one ends with the limit to the wait.)
//!
//! **Waits** end: with a grant, with the detection, or with `dldetect.timeout_us`; 0 is never to wait, as in NO_WAIT.

use std::marker::PhantomData;

use contend_engine::{AbortReason, Info, options};
use contend_machine::{Atomic64, Block, Machine, Ordering};

use crate::fault::{Faults, Sound};
use crate::locking::list::Ticket;
use crate::locking::queue::{Policy, Queues};
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
    /// How many locks its transaction holds.
    locks: M::U64,
    /// For whom it waits: numbers of workers plus one, four in a word, from the lowest bits of the first word on; 0 behind the last.
    waits_for: [M::U64; WORDS],
}

const WORDS: usize = 7;
const NAME_BITS: u32 = 16;
const NAMES_OF_WORD: usize = 4;
/// Workers that a row can name.
const NAMES: usize = WORDS * NAMES_OF_WORD;

/// A worker's state.
#[derive(Debug)]
pub struct DetectLocal {
    worker: usize,
    locks: u64,
    /// When the wait began.
    began: u64,
    /// For whom it waits. Kept for its memory.
    names: Vec<u16>,
    /// Workers that were reached, and how: from which worker. Kept for its memory.
    reached_from: Vec<u32>,
    to_visit: Vec<u32>,
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

    /// For whom a worker waits.
    fn row(&self, worker: usize) -> impl Iterator<Item = usize> {
        let names = self.rows[worker].waits_for.iter().flat_map(|word| {
            let word = word.load(Ordering::Relaxed);
            (0..NAMES_OF_WORD as u32).map(move |number| word >> (number * NAME_BITS) & u64::from(u16::MAX))
        });
        names.take_while(|name| *name != 0).map(|name| name as usize - 1)
    }

    /// Whether the worker waits for itself, and is to give up.
    fn is_victim(&self, local: &mut DetectLocal) -> bool {
        M::step("look for deadlock");
        local.reached_from.clear();
        local.reached_from.resize(self.rows.len(), NOT_REACHED);
        local.to_visit.clear();
        local.to_visit.push(local.worker as u32);
        while let Some(worker) = local.to_visit.pop() {
            for other in self.row(worker as usize) {
                if local.reached_from[other] != NOT_REACHED {
                    continue;
                }
                local.reached_from[other] = worker;
                if other == local.worker {
                    return self.has_fewest(local);
                }
                local.to_visit.push(other as u32);
            }
        }
        false
    }

    /// Whether of the cycle that was found this worker's transaction has the fewest locks; of equals the greatest number.
    fn has_fewest(&self, local: &DetectLocal) -> bool {
        let rank = |worker: usize| (self.rows[worker].locks.load(Ordering::Relaxed), usize::MAX - worker);
        let own = rank(local.worker);
        let mut worker = local.reached_from[local.worker] as usize;
        while worker != local.worker {
            if rank(worker) < own {
                return false;
            }
            worker = local.reached_from[worker] as usize;
        }
        true
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
        self.rows = Block::new(workers, |_| Row { locks: word(), waits_for: std::array::from_fn(|_| word()) });
    }

    fn local(&self, worker: usize) -> DetectLocal {
        DetectLocal { worker, locks: 0, began: 0, names: Vec::new(), reached_from: Vec::new(), to_visit: Vec::new() }
    }

    #[inline(always)]
    fn begin(&self, local: &mut DetectLocal) -> Ticket {
        local.locks = 0;
        Ticket { worker: local.worker, stamp: 0, number: 0 }
    }

    #[inline(always)]
    fn goes_before(&self, _: Ticket, _: Ticket) -> bool {
        false
    }

    fn may_wait(&self, local: &mut DetectLocal, _: Ticket, in_the_way: impl Iterator<Item = Ticket>) -> bool {
        if self.options.timeout_us == 0 {
            return false;
        }
        // Relaxed: as all of the graph.
        self.rows[local.worker].locks.store(local.locks, Ordering::Relaxed);
        local.names.clear();
        local.names.extend(in_the_way.take(NAMES).map(|other| other.worker as u16));
        self.write_row(local.worker, &local.names);
        local.began = M::now();
        true
    }

    fn keep_waiting(
        &self,
        local: &mut DetectLocal,
        _: Ticket,
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
        if self.is_victim(local) && !F::WAIT_ANYWAY { Err(AbortReason::Deadlock) } else { Ok(()) }
    }

    fn stop_waiting(&self, local: &mut DetectLocal) {
        self.write_row(local.worker, &[]);
    }

    #[inline(always)]
    fn end(&self, _: &mut DetectLocal, _: bool) {}

    #[inline(always)]
    fn granted(&self, local: &mut DetectLocal) {
        local.locks += 1;
    }
}
