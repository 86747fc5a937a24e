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
//! | reach a phase | [`Rounds::reach_ready`], [`Rounds::reach_done`] |
//! | wait until a phase is complete | [`Rounds::wait`] |
//! | look at all members, and say that a phase is complete | `lead`, `look` |
//! | pause | [`Rounds::leave`] |
//!
//! **Cost.** A worker stores its own word three times in a batch. Eight words share a line. There
//! is no counter that all workers add to. The first worker that has to wait becomes the leader of
//! the phase: it reads all words once, one after the other, and stores `complete`. The others look
//! at the line of that word only.
//!
//! **Members.** A worker that pauses is no member. It comes back under a latch, which the leader
//! takes as well while it reads words, and gives up whenever it waits for one. The latch holds the
//! first word that the leader has not read. A worker that comes back moves it to its own number, so
//! that no phase is complete without it. It keeps the phase that it had reached, so that it brings
//! no second transaction to a batch. An idle worker may forget to pause. If the leader has waited
//! for long enough, it makes the worker leave, by an exchange that fails if the worker has begun
//! meanwhile.
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

/// What waiting workers look at, in one line.
#[derive(Debug)]
struct Phases<M: Machine> {
    /// The last phase that all members have reached.
    complete: M::U64,
    /// 1 while there is a leader.
    has_leader: M::U64,
}

/// The sequencer.
#[derive(Debug)]
pub(crate) struct Rounds<M: Machine> {
    phases: CachePadded<Phases<M>>,
    /// The worker from which on the leader has not seen the words.
    unseen: CachePadded<SpinMutex<M, usize>>,
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
            phases: CachePadded::new(Phases { complete: M::U64::new(0), has_leader: M::U64::new(0) }),
            unseen: CachePadded::new(SpinMutex::new(0)),
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

    /// Returns the place of a new worker. It is a member of the first batch, unless all
    /// transactions of that one are ready.
    pub(crate) fn member(&self, worker: usize) -> Member {
        // Relaxed: a leader reads it under the latch below. If it misses a new worker, that one is
        // not a member yet.
        self.workers.fetch_max(worker as u64 + 1, Ordering::Relaxed);
        let is_first = self.unseen.with(|unseen| {
            // Relaxed, both: under the latch, where `complete` changes and workers come back. A
            // former worker of this number has left.
            let (complete, word) = (self.phases.complete.load(Ordering::Relaxed), self.word(worker));
            let is_first = complete == 0 && word.load(Ordering::Relaxed) == AWAY;
            if is_first {
                *unseen = (*unseen).min(worker);
                // Relaxed: as above.
                word.store(0, Ordering::Relaxed);
            }
            is_first
        });
        Member { worker, reached: if is_first { 0 } else { NOWHERE }, is_running: false }
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
        self.unseen.with(|unseen| {
            // The phase that runs is not complete before the leader has seen this word. A batch
            // whose transactions are ready is over for this worker, and so is one in which it has
            // had a transaction. Relaxed, both: as in `member`.
            let running = (self.phases.complete.load(Ordering::Relaxed) + 1) & !1;
            let word = self.word(member.worker);
            member.reached = running.max((word.load(Ordering::Relaxed) & !AWAY) >> 1);
            *unseen = (*unseen).min(member.worker);
            // Release: pairs with the Acquire of `is_past`, which may read this word instead of the
            // one that the worker's last transaction has left.
            word.store(member.reached << 1 | BUSY, Ordering::Release);
        });
    }

    /// Says that the running transaction is ready.
    pub(crate) fn reach_ready(&self, member: &mut Member) {
        member.reached = member.ready();
        // Release: pairs with the Acquire of `look`: what the transaction has announced comes
        // before.
        self.word(member.worker).store(member.reached << 1 | BUSY, Ordering::Release);
    }

    /// Says that the running transaction is done.
    pub(crate) fn reach_done(&self, member: &mut Member) {
        member.reached = member.batch_end();
        member.is_running = false;
        // Release: pairs with the Acquire of `look` and of `is_past`: what the transaction has
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
        // Acquire: pairs with the Release of `look`.
        self.phases.complete.load(Ordering::Acquire)
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
            self.lead_if_needed(phase, &mut wait);
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

    /// Becomes the leader of the next phase, unless another worker is.
    #[inline]
    fn lead_if_needed(&self, phase: Phase, wait: &mut Wait<M>) {
        let leader = &self.phases.has_leader;
        // Relaxed, both: no more than a guess, and a failed exchange touches nothing. Acquire:
        // pairs with the Release below, so that this leader finds what the last one has completed.
        if leader.load(Ordering::Relaxed) == 0
            && leader.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            // Without the second look this worker could wait for itself to reach a later phase.
            if self.complete() < phase {
                self.lead(wait);
            }
            // Release: as above.
            leader.store(0, Ordering::Release);
        }
    }

    /// Waits for each member to reach the next phase, and says that it is complete.
    #[cold]
    fn lead(&self, wait: &mut Wait<M>) {
        // An idle worker has been so at least since now: it has ended the phase before.
        let mut idle_since = None;
        while let Some((worker, next)) = self.unseen.with(|unseen| self.look(unseen)) {
            loop {
                // Relaxed: `look` loads it again.
                let word = self.word(worker).load(Ordering::Relaxed);
                if phase_of(word) >= next {
                    break;
                }
                if word & BUSY == 0 && self.is_impatient(&mut idle_since) {
                    // Relaxed, both: the worker has announced nothing since its last phase. The
                    // exchange fails if it has begun a transaction.
                    let left = word | AWAY;
                    _ = self.word(worker).compare_exchange(word, left, Ordering::Relaxed, Ordering::Relaxed);
                    break;
                }
                if self.is_too_long(wait) {
                    return;
                }
                wait.spin.wait_briefly();
            }
        }
    }

    /// Looks whether the workers that were not seen have reached the next phase. Returns the first
    /// that has not, with the phase. If all have, the phase is complete.
    fn look(&self, unseen: &mut usize) -> Option<(usize, Phase)> {
        // Relaxed, both: they change under the latch, or when a worker is made, which then takes
        // the latch to become a member.
        let next = self.phases.complete.load(Ordering::Relaxed) + 1;
        let workers = self.workers.load(Ordering::Relaxed) as usize;
        // Acquire: pairs with the Release of `reach_ready` and `reach_done`. By this and the
        // Release below, all that members did before they reached the phase comes before what they
        // do after it is complete.
        let is_there = |worker: usize| phase_of(self.word(worker).load(Ordering::Acquire)) >= next;
        *unseen = (*unseen..workers).find(|&worker| !is_there(worker)).unwrap_or(workers);
        if *unseen < workers {
            return Some((*unseen, next));
        }
        *unseen = 0;
        // Release: pairs with the Acquire of `complete`.
        self.phases.complete.store(next, Ordering::Release);
        None
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
        // Release: pairs with the Acquire of `look` and of `is_past`.
        self.word(member.worker).store(reached << 1 | AWAY, Ordering::Release);
        member.reached = NOWHERE;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use contend_machine::Native;

    use super::*;

    fn rounds(patience_us: u64, workers: usize) -> Rounds<Native> {
        let mut rounds = Rounds::new(&RoundsOptions { patience_us });
        rounds.prepare(workers);
        rounds
    }

    /// Runs an empty transaction that waits for its batch, and returns the batch.
    fn run(rounds: &Rounds<Native>, member: &mut Member) -> u64 {
        rounds.begin(member);
        let (batch, ready) = (member.batch(), member.ready());
        rounds.reach_ready(member);
        rounds.wait(member, ready).expect("no wait takes a second");
        rounds.reach_done(member);
        batch
    }

    #[test]
    fn every_member_brings_a_transaction_to_each_batch() {
        const WORKERS: usize = 11;
        let rounds = rounds(0, WORKERS);
        let members: Vec<Member> = (0..WORKERS).map(|worker| rounds.member(worker)).collect();
        thread::scope(|scope| {
            for mut member in members {
                let rounds = &rounds;
                scope.spawn(move || {
                    let batches: Vec<u64> = (0..300).map(|_| run(rounds, &mut member)).collect();
                    assert_eq!(batches, Vec::from_iter(0..300));
                    rounds.leave(&mut member);
                });
            }
        });
        assert!(rounds.complete() > 2 * 299);
    }

    #[test]
    fn an_idle_worker_is_left_out_until_it_comes_back() {
        let rounds = rounds(1, 3);
        let [mut first, mut second, _idle] = [0, 1, 2].map(|worker| rounds.member(worker));
        // Alone, because the others are idle.
        assert_eq!([(); 3].map(|()| run(&rounds, &mut first)), [0, 1, 2]);
        // The second worker was left out, and takes part in the batch that begins now.
        let batch = run(&rounds, &mut second);
        assert!(batch >= 2, "{batch}");
        assert!(run(&rounds, &mut first) >= batch);
    }

    #[test]
    fn a_worker_that_pauses_brings_no_second_transaction_to_a_batch() {
        let rounds = rounds(1_000_000, 2);
        let [mut first, mut second] = [0, 1].map(|worker| rounds.member(worker));
        rounds.leave(&mut second);
        let mut last = None;
        for _ in 0..5 {
            let batch = run(&rounds, &mut first);
            assert!(last < Some(batch), "{last:?}, then {batch}");
            last = Some(batch);
            rounds.leave(&mut first);
        }
        let batch = run(&rounds, &mut second);
        assert!(Some(batch) >= last, "a batch that is over: {batch} after {last:?}");
    }

    #[test]
    fn no_phase_is_complete_without_a_worker_that_has_come_back() {
        let rounds = rounds(1_000_000, 2);
        let [mut first, mut second] = [0, 1].map(|worker| rounds.member(worker));
        rounds.leave(&mut first);
        assert_eq!(run(&rounds, &mut second), 0);
        // The first worker runs a transaction, which is not ready.
        rounds.begin(&mut first);
        rounds.begin(&mut second);
        let ready = second.ready();
        rounds.reach_ready(&mut second);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| rounds.wait(&mut second, ready).expect("a second suffices"));
            // Whatever the time is, the wait goes on while the first worker's transaction does.
            for _ in 0..100 {
                assert!(first.batch() > 1 || rounds.complete() < ready, "complete without the first worker");
                thread::yield_now();
            }
            rounds.reach_ready(&mut first);
            rounds.reach_done(&mut first);
            rounds.leave(&mut first);
            waiting.join().expect("no panic");
        });
        assert!(rounds.complete() >= ready);
    }

    #[test]
    fn a_new_worker_takes_the_place_of_one_that_has_ended() {
        let rounds = rounds(100, 2);
        let mut member = rounds.member(0);
        let before = run(&rounds, &mut member);
        rounds.leave(&mut member);
        let mut heir = rounds.member(0);
        assert!(run(&rounds, &mut heir) > before);
    }
}
