//! Waiting without parking.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::{Activity, Machine, Phase};

/// A wait loop: pauses first, and gives the core away once the wait is longer than any critical
/// section should be, so that a holder that was descheduled on an oversubscribed machine can run.
///
/// The pauses get longer from look to look. A core that looks all the time takes the line from the
/// holder all the time, so that the holder takes the longer the more cores wait: a convoy that
/// grows.
///
/// From the first wait until the loop is dropped the worker's time counts as waiting, its looks
/// included.
///
/// ```
/// # use contend_machine::{Native, Spin};
/// # let mut tries = 0; let mut locked = || { tries += 1; tries < 200 };
/// let mut spin = Spin::<Native>::new();
/// while locked() {
///     spin.wait();
/// }
/// assert_eq!(spin.count(), 199);
/// ```
#[derive(Debug)]
pub struct Spin<M: Machine> {
    count: u32,
    /// The worker's phase when it began to wait.
    before: Phase,
    machine: PhantomData<M>,
}

/// Waits before the first yield: 126 pauses, about 5 us at 40 ns each, far above the longest write
/// phase.
const PAUSES: u32 = 12;

/// Brief waits before the first yield: about 20 us at 40 ns each, longer than a piece of a
/// transaction takes.
const BRIEF: u32 = 500;

/// The most yields between two looks of [`Spin::back_off`]: some 50 us on a host whose cores have
/// nothing else to do.
const YIELDS_MAX: u32 = 128;

thread_local! {
    static BACKS_OFF: Cell<bool> = const { Cell::new(true) };
}

/// Says whether the calling thread's waits for locks of records get longer and longer from look to
/// look ([`Spin::back_off`]). They do unless this says otherwise.
///
/// It is no argument of the wait: it is the same for all waits of an engine, and those are deep
/// inside the protocols.
#[inline(always)]
pub fn set_lock_backoff(is_on: bool) {
    // `LocalKey::with` would be a call.
    BACKS_OFF.try_with(|backs_off| backs_off.set(is_on)).expect("it has no destructor");
}

impl<M: Machine> Spin<M> {
    /// A wait that has not begun.
    #[inline(always)]
    pub fn new() -> Self {
        Spin { count: 0, before: Phase::BODY, machine: PhantomData }
    }

    /// Counts a call; with the first one the worker's time begins to count as waiting.
    #[inline(always)]
    fn begin(&mut self) {
        if self.count == 0 {
            self.before = M::phase();
            M::enter(self.before.doing(Activity::Wait));
        }
        self.count = self.count.saturating_add(1);
    }

    /// Waits a little; the longer, the more often it was called.
    #[inline]
    pub fn wait(&mut self) {
        self.begin();
        if self.count <= PAUSES {
            // 1, 1, 2, 2, 4, 4, ... 32, 32. Where a pause lets others go on, one is long enough.
            let doublings = if M::pause_lets_others_run() { 0 } else { (self.count - 1) / 2 };
            for _ in 0..1u32 << doublings {
                M::pause();
            }
        } else {
            M::yield_now();
        }
    }

    /// Waits for a record's lock, as [`Spin::wait`] does; but once the wait is long it looks more
    /// and more seldom.
    ///
    /// The holder of a lock needs its line, to write the record and to unlock, and each look of a
    /// waiting core takes the line away. So the more cores wait for a hot record, the longer it
    /// stays locked. Once it yields, this wait looks after half as many yields as there were, and
    /// after 128 at most. The time between is spent by yields, not by pauses: where there are more
    /// threads than cores, the holder may need this core. Where [`set_lock_backoff`] has switched
    /// that off, and where a pause lets others run, it is [`Spin::wait`].
    ///
    /// Two kinds of locks are not for this wait, as was measured. One is the latch of a queue of
    /// waiters. The other is a latch that is held for some instructions and seldom waited for, such
    /// as that of a memory pool: it would lie free.
    ///
    /// Paper: T. E. Anderson: "The performance of spin lock alternatives for shared-memory
    /// multiprocessors", IEEE Transactions on Parallel and Distributed Systems 1990.
    #[inline]
    pub fn back_off(&mut self) {
        self.wait();
        if self.count <= PAUSES || M::pause_lets_others_run() || !BACKS_OFF.get() {
            return;
        }
        let yields = ((self.count - PAUSES) / 2).min(YIELDS_MAX);
        for _ in 0..yields {
            M::yield_now();
        }
        self.count = self.count.saturating_add(yields);
    }

    /// Waits for one pause, to look again at a word that few cores look at and that is about to
    /// change. After 500 of them it yields, as [`Spin::wait`] does.
    #[inline]
    pub fn wait_briefly(&mut self) {
        self.begin();
        if self.count <= BRIEF { M::pause() } else { M::yield_now() }
    }

    /// Returns the length of the wait: how often one of the methods above was called, and how often
    /// [`Spin::back_off`] has yielded besides.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl<M: Machine> Drop for Spin<M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.count > 0 {
            M::enter(self.before);
        }
    }
}

impl<M: Machine> Default for Spin<M> {
    fn default() -> Self {
        Spin::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interleaved, Native};

    /// Returns the length of a wait after 40 looks.
    fn length<M: Machine>() -> u32 {
        let mut spin = Spin::<M>::new();
        (0..40).for_each(|_| spin.back_off());
        spin.count()
    }

    #[test]
    fn a_long_wait_looks_more_and_more_seldom() {
        // After 12 looks the count grows by half from look to look, and by 129 in the end.
        assert!((500..40 * 129).contains(&length::<Native>()), "{}", length::<Native>());
        set_lock_backoff(false);
        assert_eq!(length::<Native>(), 40);
        set_lock_backoff(true);
        assert_eq!(length::<Interleaved>(), 40, "others run in each pause");
    }
}
