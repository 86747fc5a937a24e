//! The search for the number of transactions in flight on a thread that pays most.
//!
//! More in flight overlap more misses. But they also need more of the near caches, meet each other
//! more often, and a switch costs some instructions where nothing is missed. What wins depends on
//! the workload, and changes while it runs. So each thread measures its own commits with the
//! numbers of a ladder in turn, keeps the best for a while, and climbs again. Two in flight may be
//! a little slower than one, and eight faster. So a climb ends only when two numbers in a row were
//! clearly worse.

use contend_machine::Cycles;

use crate::in_flight::INTERLEAVE_MAX;

/// The numbers that are tried.
const LADDER: [usize; 6] = [1, 2, 4, 8, 16, INTERLEAVE_MAX];
/// The transactions between two looks of the thread at its clock. A look costs as much as a read.
pub(super) const LOOK_EVERY: u64 = 16;
/// The commits for which a number is measured, if that takes from [`SHORTEST`] to [`LONGEST`].
const COMMITS: u64 = 512;
/// The shortest time of a measurement, in seconds: no interrupt takes a large part of it.
const SHORTEST: f64 = 1e-3;
/// The longest time of a measurement, in seconds, if anything has committed in it.
const LONGEST: f64 = 20e-3;
/// The measurements' times for which the best number is kept at first. It is kept for twice as many
/// each time that it stays the best.
const KEPT_FIRST: u32 = 64;
/// The largest such number: measuring then takes a hundredth of the time.
const KEPT_MOST: u32 = 512;
/// A rate below this part of the best one is clearly worse.
const WORSE: f64 = 0.95;
/// The ratio of rates from which a number replaces the one in use: less is noise.
const BETTER: f64 = 1.03;

/// What a thread knows of the numbers of transactions in flight.
#[derive(Debug)]
pub(super) struct Climb {
    /// The position in the ladder that is in use, when nothing is measured.
    best: usize,
    /// The position that is measured. `None`: the best one is in use.
    measured: Option<usize>,
    /// The rates of this climb so far, or of the last one. 0: not measured.
    rates: [f64; LADDER.len()],
    /// The measurements' times for which the best number stays in use now, and of those how many
    /// are left.
    kept: u32,
    left: u32,
    /// The first of these numbers, and the largest.
    bounds: (u32, u32),
    /// The commits since the time `since`.
    commits: u64,
    since: Option<Cycles>,
    cycles_per_second: f64,
}

impl Climb {
    pub(super) fn new(cycles_per_second: f64) -> Self {
        Climb {
            best: 0,
            measured: Some(0),
            rates: [0.0; LADDER.len()],
            kept: KEPT_FIRST,
            left: 0,
            bounds: (KEPT_FIRST, KEPT_MOST),
            commits: 0,
            since: None,
            cycles_per_second,
        }
    }

    /// Returns a climb that goes from number to number all the time, for a verification: workers
    /// come and go.
    pub(super) fn in_a_hurry() -> Self {
        // Each tick of the clock counts as the longest time.
        Climb { kept: 1, bounds: (1, 1), ..Climb::new(1.0) }
    }

    /// Returns the number of transactions that are to be in flight.
    pub(super) fn in_flight(&self) -> usize {
        LADDER[self.measured.unwrap_or(self.best)]
    }

    /// Begins a measurement anew, as after a pause.
    pub(super) fn resume(&mut self) {
        self.since = None;
    }

    /// Notes that [`LOOK_EVERY`] more transactions of the thread have ended at this time.
    pub(super) fn note(&mut self, now: Cycles) {
        let Some(since) = self.since else {
            (self.since, self.commits) = (Some(now), 0);
            return;
        };
        self.commits += LOOK_EVERY;
        let seconds = now.wrapping_sub(since) as f64 / self.cycles_per_second;
        if seconds < SHORTEST || (self.commits < COMMITS && seconds < LONGEST) {
            return;
        }
        let rate = self.commits as f64 / seconds;
        self.since = None;
        match self.measured {
            Some(rung) => {
                self.rates[rung] = rate;
                self.measured = Some(rung + 1).filter(|next| *next < LADDER.len() && !self.is_falling(rung));
                if self.measured.is_none() {
                    self.choose();
                }
            }
            None => {
                self.left -= 1;
                if self.left == 0 {
                    (self.measured, self.rates) = (Some(0), [0.0; LADDER.len()]);
                }
            }
        }
    }

    /// Returns whether the last two numbers up to this one were clearly worse than one before.
    fn is_falling(&self, rung: usize) -> bool {
        let best = self.rates[..=rung].iter().copied().fold(0.0, f64::max);
        rung > 0 && self.rates[rung - 1..=rung].iter().all(|rate| *rate < best * WORSE)
    }

    /// Takes the best number of those that were just measured.
    fn choose(&mut self) {
        let best = (0..LADDER.len()).max_by(|a, b| self.rates[*a].total_cmp(&self.rates[*b])).expect("a ladder");
        // 0, and so replaced, if the climb ended below the number in use.
        if self.rates[best] > self.rates[self.best] * BETTER {
            (self.best, self.kept) = (best, self.bounds.0);
        } else {
            self.kept = (self.kept * 2).min(self.bounds.1);
        }
        self.left = self.kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for some seconds, with the rate of commits for each number in flight. Returns the
    /// part of the time in which `wanted` were in flight.
    fn run(climb: &mut Climb, now: &mut Cycles, seconds: f64, wanted: usize, rate: impl Fn(usize) -> f64) -> f64 {
        let (begin, mut right) = (*now, 0);
        while ((*now - begin) as f64) < seconds * 1e9 {
            let in_flight = climb.in_flight();
            let step = (LOOK_EVERY as f64 * 1e9 / rate(in_flight)) as u64;
            *now += step;
            right += if in_flight == wanted { step } else { 0 };
            climb.note(*now);
        }
        right as f64 / (seconds * 1e9)
    }

    #[test]
    fn the_best_number_is_in_use_for_nearly_all_the_time() {
        let (mut climb, mut now) = (Climb::new(1e9), 0);
        // Two in flight are slower than one, as a descent from one would find.
        let misses =
            |in_flight| [0.0, 7e5, 6e5, 0.0, 9e5].get(in_flight).copied().unwrap_or(1.4e6 - 1e4 * in_flight as f64);
        run(&mut climb, &mut now, 1.0, 8, misses);
        let share = run(&mut climb, &mut now, 4.0, 8, misses);
        assert!(share > 0.97, "{share}");
        // The workload changes, and the number follows.
        let conflicts = |in_flight| 4e5 / in_flight as f64;
        run(&mut climb, &mut now, 4.0, 1, conflicts);
        let share = run(&mut climb, &mut now, 4.0, 1, conflicts);
        assert!(share > 0.9, "{share}");
    }

    #[test]
    fn noise_changes_nothing() {
        let (mut climb, mut now) = (Climb::new(1e9), 0);
        run(&mut climb, &mut now, 0.5, 4, |in_flight| if in_flight == 4 { 1e6 } else { 0.99e6 });
        let first = LADDER[climb.best];
        run(&mut climb, &mut now, 2.0, 4, |in_flight| if in_flight == 4 { 1e6 } else { 1.01e6 });
        assert_eq!(LADDER[climb.best], first);
    }

    #[test]
    fn slow_transactions_are_measured_too() {
        let (mut climb, mut now) = (Climb::new(1e9), 0);
        run(&mut climb, &mut now, 4.0, 2, |in_flight| if in_flight == 2 { 100.0 } else { 50.0 });
        assert_eq!(LADDER[climb.best], 2);
        climb.resume();
        climb.note(now + 1_000_000_000_000);
        assert_eq!(climb.commits, 0, "a pause is not measured");
    }
}
