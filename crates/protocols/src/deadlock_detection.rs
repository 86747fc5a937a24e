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
//! **The graph.** A row has a bit for each worker. Nothing is locked to read it: what is read may be a mixture of times, so a cycle may be seen
//! that never was (somebody aborts in vain). No deadlock is missed for ever: in it nobody's row changes any more but to name those that
//! really are in the way, and its member with the fewest locks finds itself on a cycle, and has the fewest there.
//!
//! **Waits** end: with a grant, with the detection, or with `dldetect.timeout_us`; 0 is never to wait, as in NO_WAIT.

use std::marker::PhantomData;

use contend_engine::{AbortReason, Info, options};
use contend_machine::{Atomic64, Block, Machine, Ordering};
use crossbeam_utils::CachePadded;

use crate::fault::{Faults, Sound};
use crate::locking::queue::{Policy, Queues, Ticket};
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
pub type DeadlockDetection<M, F = Sound> = TwoPhase<Queues<Detect<M, F>>>;

/// Its policy.
#[derive(Debug)]
pub struct Detect<M: Machine, F> {
    options: DeadlockOptions,
    rows: Box<[CachePadded<Row<M>>]>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's row of the graph.
#[derive(Debug)]
struct Row<M: Machine> {
    /// How many locks its transaction holds.
    locks: M::U64,
    /// For whom it waits: a bit a worker.
    waits_for: Block<M, Line<M>>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line<M: Machine>([M::U64; 8]);

impl<M: Machine> Row<M> {
    fn words(&self) -> impl Iterator<Item = &M::U64> {
        self.waits_for.iter().flat_map(|line| &line.0)
    }
}

/// A worker's state.
#[derive(Debug)]
pub struct DetectLocal {
    worker: usize,
    locks: u64,
    /// When the wait began.
    began: u64,
    /// Workers that were reached, and how: from which worker. Kept for its memory.
    reached_from: Vec<u32>,
    to_visit: Vec<u32>,
}

const NOT_REACHED: u32 = u32::MAX;

impl<M: Machine, F: Faults> Detect<M, F> {
    /// Writes down that the worker waits for this one, too.
    fn add(&self, worker: usize, other: Ticket) {
        // Relaxed, as all of the graph: it is a guess; locks are what counts.
        let word = &self.rows[worker].waits_for[other.worker / 512].0[other.worker / 64 % 8];
        word.fetch_or(1 << (other.worker % 64), Ordering::Relaxed);
    }

    fn clear(&self, worker: usize) {
        for word in self.rows[worker].words() {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Whether the worker waits for itself, and is to give up.
    fn is_victim(&self, local: &mut DetectLocal) -> bool {
        M::step("look for deadlock");
        local.reached_from.clear();
        local.reached_from.resize(self.rows.len(), NOT_REACHED);
        local.to_visit.clear();
        local.to_visit.push(local.worker as u32);
        while let Some(worker) = local.to_visit.pop() {
            for (number, word) in self.rows[worker as usize].words().enumerate() {
                let mut rest = word.load(Ordering::Relaxed);
                while rest != 0 {
                    let other = number as u32 * 64 + rest.trailing_zeros();
                    rest &= rest - 1;
                    if local.reached_from[other as usize] != NOT_REACHED {
                        continue;
                    }
                    local.reached_from[other as usize] = worker;
                    if other as usize == local.worker {
                        return self.has_fewest(local);
                    }
                    local.to_visit.push(other);
                }
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

    fn new(options: DeadlockOptions) -> Self {
        Detect { options, rows: Box::new([]), faults: PhantomData }
    }

    fn prepare(&mut self, workers: usize) {
        let line = |_| Line(std::array::from_fn(|_| M::U64::new(0)));
        let row = || Row { locks: M::U64::new(0), waits_for: Block::new(workers.div_ceil(512), line) };
        self.rows = (0..workers).map(|_| CachePadded::new(row())).collect();
    }

    fn local(&self, worker: usize) -> DetectLocal {
        DetectLocal { worker, locks: 0, began: 0, reached_from: Vec::new(), to_visit: Vec::new() }
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
        self.clear(local.worker);
        in_the_way.for_each(|other| self.add(local.worker, other));
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
        if !(waits + 1).is_multiple_of(self.options.every) {
            return Ok(());
        }
        // Who was in the way may have gone, and others come.
        self.clear(local.worker);
        look(&mut |other| self.add(local.worker, other));
        if self.is_victim(local) && !F::WAIT_ANYWAY { Err(AbortReason::Deadlock) } else { Ok(()) }
    }

    fn stop_waiting(&self, local: &mut DetectLocal) {
        self.clear(local.worker);
    }

    #[inline(always)]
    fn end(&self, _: &mut DetectLocal, _: bool) {}

    #[inline(always)]
    fn granted(&self, local: &mut DetectLocal) {
        local.locks += 1;
    }
}
