//! The sequencer of deterministic protocols: batches of transactions, one of each worker.
//!
//! A batch has two phases. A transaction is *ready* when the others may know what it is going to
//! do, and *done* when it has ended. Phases are numbered through: in batch `b` a worker is ready at
//! `2b + 1` and done at `2b + 2`. A phase is *complete* when each member has reached it.
//!
//! ```text
//! worker's word:   [ away | phase that it has reached | busy ]
//! complete:        the last phase that all members have reached
//! ```
//!
//! | step | function |
//! | --- | --- |
//! | begin a transaction: become busy, or a member again | [`Rounds::begin`] |
//! | reach a phase | [`Rounds::reach`] |
//! | wait until a phase is complete | [`Rounds::wait`] |
//! | look at all members, and say that a phase is complete | `lead` |
//! | pause | [`Rounds::leave`] |
//!
//! **Cost.** A worker stores its own word twice in a batch. Eight words share a line, and the
//! workers of one thread should have the numbers of one line. There is no counter that all workers
//! add to. The first worker that has to wait becomes the leader of the phase: it reads all words
//! once, one after the other, and stores `complete`. The others look at that one word.
//!
//! **Members.** A worker that pauses is no member. It comes back under the leader's latch, so that
//! it never enters a phase that a leader has counted without it. It keeps the phase that it had
//! reached, so that it brings no second transaction to a batch. An idle worker may forget to pause.
//! If the leader has waited for it long enough, it makes the worker leave, by an exchange that
//! fails if the worker has begun meanwhile.
//!
//! **Waits** end. A member waits for a transaction that runs, and running transactions wait for
//! phases, or for earlier ones of their batch. After a second a wait is given up
//! ([`AbortReason::LockTimeout`]) in case a thread has two transactions open, or stands in a
//! debugger. Then the worker leaves the batch. With `rounds.patience_us=0` no wait is given up.

use contend_engine::{Abort, AbortReason, options};
use contend_machine::{Atomic64, Block, Cycles, Machine, Ordering, Spin, SpinMutex};
use crossbeam_utils::CachePadded;

use crate::method::wait::LOCK_WAITS_MAX;

options! {
    /// Options of the sequencer.
    pub struct RoundsOptions {
        /// The time in microseconds for which a batch waits for a worker that has no transaction
        /// running, before it goes on without that worker; 0: for ever, so that the batches depend
        /// on nothing but the input.
        "rounds.patience_us" patience_us: u64 = 100, in 0..=1_000_000;
    }
}

/// The phase of a worker that is no member, as it knows it itself: the exchange by which it would
/// begin fails.
const NOWHERE: Phase = (AWAY >> 1) - 1;

/// A number of a phase: odd phases are those of ready transactions, even ones of ended ones.
pub(crate) type Phase = u64;

/// The bit of a worker's word that says that it is no member. With it a phase is after all others.
const AWAY: u64 = 1 << 63;
/// The bit of a worker's word that says that it runs a transaction.
const BUSY: u64 = 1;

/// The time in seconds after which a wait is given up.
const WAIT_MAX: f64 = 1.0;

fn phase_of(word: u64) -> Phase {
    word >> 1
}

/// Eight workers' words, in one line.
#[derive(Debug)]
#[repr(align(64))]
struct Line<M: Machine>([M::U64; 8]);

/// The sequencer.
#[derive(Debug)]
pub(crate) struct Rounds<M: Machine> {
    complete: CachePadded<M::U64>,
    leader: CachePadded<SpinMutex<M, ()>>,
    /// One more than the largest number of a worker that was made.
    workers: CachePadded<M::U64>,
    words: Block<M, Line<M>>,
    /// [`RoundsOptions::patience_us`] in cycles; `None`: for ever.
    patience: Option<Cycles>,
}

/// A wait for others, which is given up some day.
pub(crate) struct Wait<M: Machine> {
    spin: Spin<M>,
    began: Cycles,
}

impl<M: Machine> Wait<M> {
    pub(crate) fn new() -> Self {
        Wait { spin: Spin::new(), began: 0 }
    }
}

/// A worker's place in the sequence.
#[derive(Debug)]
pub(crate) struct Member {
    worker: usize,
    /// The phase that the worker has reached last, while it is a member.
    reached: Phase,
    is_running: bool,
}

impl Member {
    /// The batch of the running transaction.
    pub(crate) fn batch(&self) -> u64 {
        self.batch_end() / 2 - 1
    }

    /// The phase in which the running transaction is ready.
    pub(crate) fn ready(&self) -> Phase {
        self.batch_end() - 1
    }

    /// The phase in which the running transaction is done.
    pub(crate) fn batch_end(&self) -> Phase {
        (self.reached & !1) + 2
    }

    /// Whether the worker's transaction has begun, and has not reached its end.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }
}

impl<M: Machine> Rounds<M> {
    pub(crate) fn new(options: &RoundsOptions) -> Self {
        let cycles = |us: u64| (us as f64 * M::cycles_per_second() / 1e6) as Cycles;
        Rounds {
            complete: CachePadded::new(M::U64::new(0)),
            leader: CachePadded::new(SpinMutex::new(())),
            workers: CachePadded::new(M::U64::new(0)),
            words: Block::new(0, |_| unreachable!("there is none yet")),
            patience: (options.patience_us > 0).then(|| cycles(options.patience_us)),
        }
    }

    /// Makes room for workers with numbers below `workers`.
    pub(crate) fn prepare(&mut self, workers: usize) {
        self.words = Block::new(workers.div_ceil(8), |_| Line(std::array::from_fn(|_| M::U64::new(AWAY))));
    }

    fn word(&self, worker: usize) -> &M::U64 {
        &self.words[worker / 8].0[worker % 8]
    }

    /// Returns the place of a new worker. It is a member of the first batch, if that has not begun.
    pub(crate) fn member(&self, worker: usize) -> Member {
        // Relaxed: a leader that misses a new worker counts it as away, and so does the worker
        // itself unless it holds the latch below, which orders the two.
        self.workers.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        let joined = self.leader.try_with(|()| {
            // Relaxed, all: under the latch, where the leaders' accesses are as well. A former
            // worker of this number has left.
            let is_first =
                self.complete.load(Ordering::Relaxed) == 0 && self.word(worker).load(Ordering::Relaxed) == AWAY;
            if is_first {
                // Relaxed: as above.
                self.word(worker).store(0, Ordering::Relaxed);
            }
            is_first
        });
        // If a leader is at work, the first batch has begun, and the worker stays away.
        let reached = if joined == Some(true) { 0 } else { NOWHERE };
        Member { worker, reached, is_running: false }
    }

    /// Begins a transaction of the worker's next batch. The batch before may not be done.
    pub(crate) fn begin(&self, member: &mut Member) {
        let idle = member.reached << 1;
        // AcqRel: the exchange meets that of a leader which makes the worker leave. If this one
        // comes first, the leader waits for the transaction. Relaxed: a failed one touches nothing.
        let begun = self.word(member.worker).compare_exchange(idle, idle | BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if begun.is_err() {
            self.join(member);
        }
        member.is_running = true;
    }

    /// Makes the worker a member again, which is busy from the start.
    #[cold]
    fn join(&self, member: &mut Member) {
        M::step("join the sequence");
        self.leader.with(|()| {
            // Under the latch no leader counts, so the phase that runs stays incomplete at least
            // until this word is there. A batch whose transactions are ready is over for this
            // worker, and so is one in which it has had a transaction. Relaxed, all: as above.
            let running = (self.complete.load(Ordering::Relaxed) + 1) & !1;
            let word = self.word(member.worker);
            member.reached = running.max((word.load(Ordering::Relaxed) & !AWAY) >> 1);
            word.store(member.reached << 1 | BUSY, Ordering::Relaxed);
        });
    }

    /// Says that the running transaction is ready.
    pub(crate) fn reach_ready(&self, member: &mut Member) {
        member.reached = member.ready();
        // Release: pairs with the Acquire of `lead`: what the transaction has announced comes
        // before.
        self.word(member.worker).store(member.reached << 1 | BUSY, Ordering::Release);
    }

    /// Says that the running transaction is done.
    pub(crate) fn reach_done(&self, member: &mut Member) {
        member.reached = member.batch_end();
        member.is_running = false;
        // Release: pairs with the Acquire of `lead` and of `is_done`: what the transaction has
        // installed comes before.
        self.word(member.worker).store(member.reached << 1, Ordering::Release);
    }

    /// Returns whether the worker of this number has reached the end of a batch, or is no member of
    /// it.
    pub(crate) fn is_past(&self, worker: usize, phase: Phase) -> bool {
        // Acquire: pairs with the Release of `reach_done`.
        phase_of(self.word(worker).load(Ordering::Acquire)) >= phase
    }

    /// Returns the last complete phase. It may be older than the present one.
    pub(crate) fn complete(&self) -> Phase {
        // Acquire: pairs with the Release of `lead`.
        self.complete.load(Ordering::Acquire)
    }

    /// Waits until all members have reached a phase.
    ///
    /// # Errors
    /// The wait took too long. The worker has left the batch.
    #[inline]
    pub(crate) fn wait(&self, member: &mut Member, phase: Phase) -> Result<(), Abort> {
        let mut wait = Wait::new();
        while self.complete() < phase {
            M::step("wait for the batch");
            self.leader.try_with(|()| {
                // Under the latch once more: another leader may have completed the phase, and then
                // this worker would wait for itself to reach the next one.
                if self.complete() < phase {
                    self.lead(&mut wait);
                }
            });
            if self.complete() >= phase {
                break;
            }
            self.go_on(member, &mut wait)?;
        }
        Ok(())
    }

    /// Waits a little longer.
    ///
    /// # Errors
    /// The wait took too long. The worker has left the batch.
    pub(crate) fn go_on(&self, member: &mut Member, wait: &mut Wait<M>) -> Result<(), Abort> {
        if self.is_too_long(wait) {
            self.leave(member);
            return Err(Abort::new(AbortReason::LockTimeout));
        }
        wait.spin.wait_briefly();
        Ok(())
    }

    /// Whether a wait must be given up. Most waits never look at the clock.
    #[inline(always)]
    fn is_too_long(&self, wait: &mut Wait<M>) -> bool {
        if wait.spin.count() < LOCK_WAITS_MAX || self.patience.is_none() {
            return false;
        }
        let now = M::now();
        if wait.began == 0 {
            wait.began = now;
        }
        now.wrapping_sub(wait.began) as f64 > WAIT_MAX * M::cycles_per_second()
    }

    /// Waits for each member to reach the next phase, and says that it is complete. The caller has
    /// the latch.
    #[cold]
    fn lead(&self, wait: &mut Wait<M>) {
        // Relaxed: under the latch. A worker that was made since takes the latch to become a
        // member.
        let (complete, workers) = (self.complete.load(Ordering::Relaxed), self.workers.load(Ordering::Relaxed));
        let next = complete + 1;
        let mut reached = Phase::MAX;
        for worker in 0..workers as usize {
            let mut idle_since = None;
            let word = loop {
                // Acquire: pairs with the Release of `reach_ready` and `reach_done`. By this and
                // the Release below, all that members did before they reached the phase comes
                // before what they do after it is complete.
                let word = self.word(worker).load(Ordering::Acquire);
                if phase_of(word) >= next {
                    break word;
                }
                if word & BUSY == 0 && self.is_impatient(&mut idle_since) {
                    // Relaxed, both: the worker has announced nothing since its last phase. The
                    // exchange fails if it has begun a transaction.
                    let left = word | AWAY;
                    if self.word(worker).compare_exchange(word, left, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        break left;
                    }
                }
                if self.is_too_long(wait) {
                    return;
                }
                wait.spin.wait_briefly();
            };
            if word & AWAY == 0 {
                reached = reached.min(phase_of(word));
            }
        }
        if reached != Phase::MAX {
            // Release: pairs with the Acquire of `complete`.
            self.complete.store(reached, Ordering::Release);
        }
    }

    /// Whether a worker has been idle for too long since the leader has met it, at `since`.
    fn is_impatient(&self, since: &mut Option<Cycles>) -> bool {
        let Some(patience) = self.patience else { return false };
        let now = M::now();
        now.wrapping_sub(*since.get_or_insert(now)) > patience
    }

    /// Leaves: no batch waits for the worker from now on. It has no transaction running that could
    /// commit.
    pub(crate) fn leave(&self, member: &mut Member) {
        if member.reached == NOWHERE {
            return;
        }
        let reached = if std::mem::take(&mut member.is_running) { member.batch_end() } else { member.reached };
        // Release: pairs with the Acquire of `lead` and of `is_past`.
        self.word(member.worker).store(reached << 1 | AWAY, Ordering::Release);
        member.reached = NOWHERE;
    }
}
