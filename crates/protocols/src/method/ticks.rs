//! The time that timestamps of clocks are made of.
//!
//! A timestamp shares a word with a worker's number and flags, and a core's clock has counted since
//! the machine was started. On a host of 3 GHz that has been up for five days, a timestamp of its
//! clock, for a thousand workers, would take more than the 60 bits that a version's word has. So
//! ticks are counted from the beginning of the protocol, and on a host they are longer than cycles
//! ([`Machine::tick_shift`]). With a thousand workers they last for 200 days. Cicada's boosts after
//! aborts make them end earlier: the default of a microsecond halves them at a million aborts a
//! second of one worker, and the largest boost at ten thousand.

use contend_machine::{Cycles, Machine};

/// The bits of a timestamp. The word of a multi-version cell has the fewest.
const STAMP_BITS: u32 = 60;

/// A clock that counts ticks from the beginning of a protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    origin: Cycles,
    shift: u32,
}

impl Ticks {
    /// Returns a clock that is at 0 now.
    pub(super) fn new<M: Machine>() -> Self {
        Ticks { origin: M::now(), shift: M::tick_shift() }
    }

    /// Returns the ticks that have passed. Clocks of two cores may differ, and so may two results.
    #[inline(always)]
    pub(super) fn now<M: Machine>(&self) -> u64 {
        // A core's clock may be a little behind that of the core that made the origin.
        M::now().saturating_sub(self.origin) >> self.shift
    }

    /// Returns the number of ticks of some nanoseconds, rounded up.
    pub(super) fn of_ns<M: Machine>(&self, ns: u64) -> u64 {
        let cycles = ns as f64 * M::cycles_per_second() / 1e9;
        (cycles / (1u64 << self.shift) as f64).ceil() as u64
    }
}

/// Returns the timestamp of a worker at this tick: it is unique if each worker has one in a tick.
///
/// # Panics
/// The timestamps are used up: transactions would come out of order.
#[inline(always)]
pub(super) fn stamp_at(tick: u64, worker: usize, workers: usize) -> u64 {
    let stamp = tick.saturating_mul(workers as u64) + worker as u64;
    if stamp >> STAMP_BITS != 0 {
        used_up(workers);
    }
    stamp
}

#[cold]
fn used_up(workers: usize) -> ! {
    panic!("the clock's timestamps are used up: open the engine anew, or with fewer than {workers} workers at most");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiversion::cicada::CicadaOptions;
    use contend_machine::Native;
    use contend_model::Options;

    #[test]
    fn timestamps_of_a_thousand_workers_last_for_half_a_year() {
        let ticks = Ticks::new::<Native>();
        let days = |days: u64| days * 24 * 60 * 60 * 1_000_000_000;
        assert!(stamp_at(ticks.of_ns::<Native>(days(200)), 1023, 1024) > 0);
        let too_many = || stamp_at(ticks.of_ns::<Native>(days(2000)), 1023, 1024);
        assert!(std::panic::catch_unwind(too_many).is_err());
        assert!(std::panic::catch_unwind(|| stamp_at(u64::MAX, 0, 1)).is_err());
    }

    /// The clock advances by the boosts as well as by itself.
    #[test]
    fn the_largest_boosts_leave_timestamps_for_months() {
        let largest = 100_000;
        let valid = |ns: u64| CicadaOptions::default().set("cicada.boost_ns", &ns.to_string()).is_ok();
        assert!(valid(largest) && !valid(largest + 1));
        let ticks = Ticks::new::<Native>();
        let aborts_per_second = 10_000;
        let seconds = 90 * 24 * 60 * 60;
        let boosts = seconds * aborts_per_second * ticks.of_ns::<Native>(largest);
        assert!(stamp_at(ticks.of_ns::<Native>(seconds * 1_000_000_000) + boosts, 1023, 1024) > 0);
    }

    #[test]
    fn a_tick_is_short_beside_a_transaction() {
        let ticks = Ticks::new::<Native>();
        assert!((1..=64).contains(&ticks.of_ns::<Native>(1000)), "{ticks:?}");
        assert_eq!((ticks.of_ns::<Native>(0), ticks.of_ns::<Native>(1)), (0, 1));
        assert!(ticks.now::<Native>() <= ticks.now::<Native>());
    }
}
