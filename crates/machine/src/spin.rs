//! Waiting without parking.

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

impl<M: Machine> Spin<M> {
    /// A wait that has not begun.
    #[inline(always)]
    pub fn new() -> Self {
        Spin { count: 0, before: Phase::BODY, machine: PhantomData }
    }

    /// Waits a little; the longer, the more often it was called.
    #[inline]
    pub fn wait(&mut self) {
        if self.count == 0 {
            self.before = M::phase();
            M::enter(self.before.doing(Activity::Wait));
        }
        self.count = self.count.saturating_add(1);
        // A model checker lets all others go on at the first pause, and counts each.
        if self.count <= PAUSES && !cfg!(loom) {
            // 1, 1, 2, 2, 4, 4, ... 32, 32. Where a pause lets other transactions of this core run,
            // one is long enough.
            let doublings = if M::overlaps() { 0 } else { (self.count - 1) / 2 };
            for _ in 0..1u32 << doublings {
                M::pause();
            }
        } else {
            M::yield_now();
        }
    }

    /// Waits for one pause, to look again at a word that few cores look at and that is about to
    /// change. After 500 of them it yields, as [`Spin::wait`] does.
    #[inline]
    pub fn wait_briefly(&mut self) {
        if self.count == 0 {
            self.before = M::phase();
            M::enter(self.before.doing(Activity::Wait));
        }
        self.count = self.count.saturating_add(1);
        if self.count <= BRIEF && !cfg!(loom) { M::pause() } else { M::yield_now() }
    }

    /// Returns how often [`Spin::wait`] or [`Spin::wait_briefly`] was called.
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
