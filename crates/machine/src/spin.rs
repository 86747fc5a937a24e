//! Waiting without parking.

use std::marker::PhantomData;

use crate::{Activity, Machine};

/// A wait loop: pauses first, and gives the core away once the wait is longer than any critical section should be, so that a
/// holder that was descheduled on an oversubscribed machine can run.
///
/// ```
/// # use contend_machine::{Native, Spin};
/// # let mut tries = 0; let mut locked = || { tries += 1; tries < 200 };
/// let mut spin = Spin::<Native>::new();
/// while locked() {
///     spin.wait();
/// }
/// assert!(spin.count() > 100);
/// ```
#[derive(Debug)]
pub struct Spin<M> {
    count: u32,
    machine: PhantomData<M>,
}

/// Pauses before the first yield: about 5 us at 40 ns a pause, far above the longest write phase.
const PAUSES: u32 = 128;

impl<M: Machine> Spin<M> {
    /// A wait that has not begun.
    #[inline(always)]
    pub fn new() -> Self {
        Spin { count: 0, machine: PhantomData }
    }

    /// Waits a little; longer when called often.
    #[inline]
    pub fn wait(&mut self) {
        self.count = self.count.saturating_add(1);
        let phase = M::phase();
        M::enter(phase.doing(Activity::Wait));
        if self.count <= PAUSES {
            M::pause()
        } else {
            M::yield_now()
        }
        M::enter(phase);
    }

    /// How often this wait has been prolonged.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl<M: Machine> Default for Spin<M> {
    fn default() -> Self {
        Spin::new()
    }
}
