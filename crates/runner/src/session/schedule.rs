//! The schedule of a worker in an open loop: when its transactions are to start.
//!
//! Each worker has a schedule of its own, with an equal share of the rate. A Poisson process whose
//! arrivals are split at random is again one for each part, so all schedules together are arrivals
//! at the whole rate. The next start never moves because the last one was late.
//!
//! A schedule has a clock of its own, which stands still between the intervals of its session. So a
//! backlog at the end of an interval is there at the beginning of the next, as on a simulated chip.

use std::cell::RefCell;
use std::sync::Arc;

use contend_engine::{Protocol, Worker};
use contend_machine::{Cycles, Machine};
use contend_model::random::SplitMix64;

use super::Tally;
use super::acknowledged::{ASK_EVERY, Waiting};
use crate::arrivals::{ArrivalProcess, Arrivals};

/// The longest wait that a worker stays online for, in seconds. A worker that is online holds back
/// the epoch; to leave and to come back costs some stores that others see.
const ONLINE: f64 = 20e-6;
/// A time that never comes, in cycles of a schedule's clock.
const NEVER: Cycles = Cycles::MAX / 4;
/// The most starts of a backlog that are drawn to be counted. Those behind are counted by the rate.
const DRAWN_MAX: u64 = 1_000_000;

/// The starts of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArrivalCount {
    /// Transactions whose start was due in the interval.
    pub offered: u64,
    /// Transactions that were not started because they would have been too late.
    pub skipped: u64,
    /// Transactions that were due and not started at the end of the interval.
    pub backlog: u64,
    /// The time in which the workers took starts: a worker ends its last transaction after the end
    /// of the interval.
    pub seconds: f64,
}

impl ArrivalCount {
    /// Returns the sum over the workers of an interval. `None` if there is none.
    pub(crate) fn sum(counts: impl Iterator<Item = ArrivalCount>) -> Option<ArrivalCount> {
        counts.reduce(|sum, other| ArrivalCount {
            offered: sum.offered + other.offered,
            skipped: sum.skipped + other.skipped,
            backlog: sum.backlog + other.backlog,
            seconds: sum.seconds.max(other.seconds),
        })
    }
}

/// The schedule; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    starts: Starts,
    /// The next start, by the schedule's clock.
    due: Cycles,
    /// The longest delay of a start.
    late_max: Cycles,
    /// The machine's clock minus that of the schedule.
    offset: Cycles,
    /// The schedule's clock when it was stopped, and the starts that were counted then.
    stood_at: Cycles,
    counted: Option<ArrivalCount>,
    /// The starts since the last count: those that were taken, and those that came too late.
    taken: u64,
    skipped: u64,
    /// The backlog at the last count, and the clock then.
    backlog: u64,
    counted_at: Cycles,
}

/// The starts of a worker, one after the other.
#[derive(Clone, Debug)]
struct Starts {
    /// Times in seconds, and the rates of all workers together at these times.
    curve: Arc<[(f64, f64)]>,
    process: ArrivalProcess,
    workers: f64,
    hertz: f64,
    random: SplitMix64,
    /// The last start, in seconds, and the place in the curve of the first moment behind it.
    time: f64,
    behind: usize,
}

impl Starts {
    /// Returns the rate now, its slope, and the time at which the slope changes.
    fn part(&self) -> (f64, f64, f64) {
        let (first, last) = (self.curve[0], self.curve[self.curve.len() - 1]);
        match self.behind {
            0 => (first.1, 0.0, first.0),
            behind if behind < self.curve.len() => {
                let (from, to) = (self.curve[behind - 1], self.curve[behind]);
                let slope = (to.1 - from.1) / (to.0 - from.0);
                ((from.1 + slope * (self.time - from.0)).max(0.0), slope, to.0)
            }
            _ => (last.1, 0.0, f64::INFINITY),
        }
    }

    /// Moves on by this many arrivals of all workers together, and returns the time in cycles. A
    /// process whose rate changes is one of rate 1 in another time: the area below the curve.
    fn after(&mut self, arrivals: f64) -> Cycles {
        let mut left = arrivals;
        loop {
            let (rate, slope, end) = self.part();
            let room = end - self.time;
            let at_end = if slope == 0.0 { rate } else { (rate + slope * room).max(0.0) };
            let area = if rate + at_end == 0.0 { 0.0 } else { (rate + at_end) / 2.0 * room };
            if left < area {
                // Where the area reaches `left`; in this form no digits are lost.
                self.time += 2.0 * left / (rate + (rate * rate + 2.0 * slope * left).max(0.0).sqrt());
                let cycles = self.time * self.hertz;
                return if cycles < NEVER as f64 { cycles as Cycles } else { NEVER };
            }
            if end.is_infinite() {
                return NEVER;
            }
            left -= area;
            (self.time, self.behind) = (end, self.behind + 1);
        }
    }

    fn next(&mut self) -> Cycles {
        let gap = match self.process {
            // 1 minus a fraction is above 0, so the logarithm is finite.
            ArrivalProcess::Poisson => -(1.0 - self.random.fraction()).ln(),
            ArrivalProcess::Constant => 1.0,
        };
        self.after(gap * self.workers)
    }

    /// Returns the starts of this worker until a time in cycles, as the area below the curve.
    fn expected_until(mut self, clock: Cycles) -> u64 {
        let (until, mut area) = (clock as f64 / self.hertz, 0.0);
        while self.time < until {
            let (rate, slope, end) = self.part();
            let room = end.min(until) - self.time;
            area += (rate + (rate + slope * room).max(0.0)) / 2.0 * room;
            self.time += room;
            if self.time >= end {
                self.behind += 1;
            }
        }
        (area / self.workers) as u64
    }
}

impl Schedule {
    /// Returns the schedule of a worker. The measurement begins after `warmup` seconds; until then
    /// the rate is the first of the curve.
    pub(crate) fn new(
        arrivals: &Arrivals,
        warmup: f64,
        worker: usize,
        workers: usize,
        seed: u64,
        hertz: f64,
    ) -> Schedule {
        let curve = arrivals.rates.iter().map(|(second, rate)| (second + warmup, *rate)).collect();
        let mut random = SplitMix64::new(contend_model::random::mix(seed ^ (worker as u64) << 32));
        random.draw();
        let mut starts =
            Starts { curve, process: arrivals.process, workers: workers as f64, hertz, random, time: 0.0, behind: 0 };
        let due = match arrivals.process {
            ArrivalProcess::Poisson => starts.next(),
            // The workers take turns.
            ArrivalProcess::Constant => starts.after(worker as f64 + 0.5),
        };
        let late_max = arrivals.late_seconds.map_or(NEVER, |late| (late * hertz) as Cycles);
        Schedule {
            starts,
            due,
            late_max,
            offset: 0,
            stood_at: 0,
            counted: None,
            taken: 0,
            skipped: 0,
            backlog: 0,
            counted_at: 0,
        }
    }

    /// Lets the clock go on from where it stood, at this time of the machine.
    pub(crate) fn resume(&mut self, now: Cycles) {
        self.offset = now.wrapping_sub(self.stood_at);
    }

    /// Stops the clock at this time of the machine, and counts the starts since it went on.
    pub(crate) fn pause(&mut self, now: Cycles) {
        self.stood_at = now.wrapping_sub(self.offset);
        self.counted = Some(self.count(now));
    }

    /// Returns the starts that were counted when the clock was stopped, if it was.
    pub(crate) fn counted(&self) -> Option<ArrivalCount> {
        self.counted
    }

    /// Takes the next start if it is due, and returns when it was, by the machine's clock. Returns
    /// the cycles until the next one otherwise. Starts that are too late are skipped.
    fn take(&mut self, now: Cycles) -> Result<Cycles, Cycles> {
        let clock = now.wrapping_sub(self.offset);
        loop {
            if self.due > clock {
                return Err(self.due - clock);
            }
            let (due, is_late) = (self.due, clock - self.due > self.late_max);
            self.due = self.starts.next();
            match is_late {
                true => self.skipped += 1,
                false => {
                    self.taken += 1;
                    return Ok(due.wrapping_add(self.offset));
                }
            }
        }
    }

    /// Returns the starts since the last count.
    pub(crate) fn count(&mut self, now: Cycles) -> ArrivalCount {
        let clock = now.wrapping_sub(self.offset);
        let (mut ahead, mut due, mut backlog) = (self.starts.clone(), self.due, 0);
        while due <= clock && backlog < DRAWN_MAX {
            backlog += 1;
            due = ahead.next();
        }
        if due <= clock {
            backlog += ahead.expected_until(clock);
        }
        let (taken, skipped) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.skipped));
        let before = std::mem::replace(&mut self.backlog, backlog);
        let seconds = clock.saturating_sub(std::mem::replace(&mut self.counted_at, clock)) as f64 / self.starts.hertz;
        ArrivalCount { offered: (taken + skipped + backlog).saturating_sub(before), skipped, backlog, seconds }
    }
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the interval is over.
    End,
    /// A transaction.
    Transaction {
        /// When its start was due, by the machine's clock. `None` in a closed loop.
        due: Option<Cycles>,
    },
}

/// Waits for a worker's next start; without a schedule it is at once. A wait is cut into pieces of
/// `slice` cycles, so that the end of the interval is seen, and shorter ones while commits wait for
/// the log. The schedule is borrowed for each look only: other cores of a chip run meanwhile.
pub(crate) fn await_start<P: Protocol<M>, M: Machine>(
    schedule: &RefCell<Option<Schedule>>,
    (worker, waiting): (&mut Worker<P, M>, &mut Waiting),
    tally: &RefCell<Tally>,
    slice: Cycles,
    over: impl Fn() -> bool,
) -> Next {
    if schedule.borrow().is_none() {
        return if over() { Next::End } else { Next::Transaction { due: None } };
    }
    let [online, ask_every] = [ONLINE, ASK_EVERY].map(|seconds| (seconds * M::cycles_per_second()) as Cycles);
    let mut is_online = true;
    while !over() {
        let now = M::now();
        let wait = match schedule.borrow_mut().as_mut().map(|schedule| schedule.take(now)) {
            None => return Next::Transaction { due: None },
            Some(Ok(due)) => return Next::Transaction { due: Some(due) },
            Some(Err(wait)) => wait,
        };
        if is_online && wait > online {
            // With a log this takes a while, so the time is read again.
            worker.go_offline();
            is_online = false;
            continue;
        }
        waiting.ask(worker, tally);
        let slice = if waiting.is_empty() { slice } else { slice.min(ask_every) };
        M::idle(wait.min(slice));
    }
    Next::End
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERTZ: f64 = 1e9;

    fn schedule(rates: &[(f64, f64)], process: ArrivalProcess, warmup: f64, worker: usize, workers: usize) -> Schedule {
        let arrivals = Arrivals { rates: rates.to_vec(), process, late_seconds: None };
        Schedule::new(&arrivals, warmup, worker, workers, 7, HERTZ)
    }

    /// Returns the starts until `seconds`, in seconds.
    fn starts(mut schedule: Schedule, seconds: f64) -> Vec<f64> {
        let mut starts = Vec::new();
        while let Ok(due) = schedule.take((seconds * HERTZ) as u64) {
            starts.push(due as f64 / HERTZ);
        }
        starts
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let starts = starts(schedule(&[(0.0, 8000.0)], ArrivalProcess::Poisson, 0.0, 1, 4), 20.0);
        let mut gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A fourth of the rate, within three standard deviations of the count.
        assert!((starts.len() as f64 - 40e3).abs() < 3.0 * 40e3f64.sqrt(), "{}", starts.len());
        // The Kolmogorov-Smirnov distance, with its bound for a confidence of 99 %.
        gaps.sort_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distance = gaps.iter().enumerate().map(|(place, gap)| {
            let theory = 1.0 - (-gap * 2000.0).exp();
            (theory - place as f64 / count).abs().max((theory - (place + 1) as f64 / count).abs())
        });
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.63 / count.sqrt(), "{distance} of {count} gaps");
    }

    #[test]
    fn workers_with_constant_gaps_take_turns() {
        let mut all: Vec<f64> = (0..4)
            .flat_map(|worker| starts(schedule(&[(0.0, 1000.0)], ArrivalProcess::Constant, 0.0, worker, 4), 1.0))
            .collect();
        all.sort_by(f64::total_cmp);
        assert_eq!(all.len(), 1000);
        assert!(all.windows(2).all(|pair| (pair[1] - pair[0] - 1e-3).abs() < 1e-8), "{all:?}");
    }

    #[test]
    fn a_rate_that_changes_has_the_arrivals_of_its_area() {
        // From 1,000 to 3,000 in 10 seconds, after a second of warm-up; then 3,000.
        let ramp = starts(schedule(&[(0.0, 1000.0), (10.0, 3000.0)], ArrivalProcess::Constant, 1.0, 0, 1), 12.0);
        let until = |second: f64| ramp.iter().filter(|start| **start <= second).count() as f64;
        for (second, area) in [(1.0, 1000.0), (6.0, 1000.0 + 7500.0), (11.0, 21_000.0), (12.0, 24_000.0)] {
            assert!((until(second) - area).abs() <= 1.0, "{second}: {} of {area}", until(second));
        }
        // Nothing arrives while the rate is 0, and nothing behind a last rate of 0.
        let gap = [(0.0, 1000.0), (1.0, 0.0), (2.0, 0.0), (3.0, 1000.0), (4.0, 0.0)];
        let gap = starts(schedule(&gap, ArrivalProcess::Poisson, 0.0, 0, 1), 1000.0);
        assert!(gap.iter().all(|start| *start <= 1.0 || (2.0..=4.0).contains(start)), "{gap:?}");
        assert!((gap.len() as f64 - 1500.0).abs() < 120.0, "{}", gap.len());
    }

    #[test]
    fn what_is_offered_is_started_skipped_or_left() {
        let mut one = schedule(&[(0.0, 1000.0)], ArrivalProcess::Constant, 0.0, 0, 1);
        let at = |seconds: f64| (seconds * HERTZ) as u64;
        one.resume(at(100.0));
        // Three starts are taken, and seven are left when the first interval ends.
        for number in 0..3 {
            let due = one.take(at(100.0051)).expect("due");
            assert_eq!(due, at(100.0) + at(0.0005 + 0.001 * f64::from(number)), "{number}");
        }
        one.pause(at(100.01));
        assert_eq!(one.counted(), Some(ArrivalCount { offered: 10, skipped: 0, backlog: 7, seconds: 0.01 }));
        // The clock stands still between intervals; the backlog stays.
        one.resume(at(200.0));
        assert_eq!(one.take(at(200.0)).expect("still due"), at(200.0) - at(0.01) + at(0.0035));
        one.late_max = at(0.002);
        assert_eq!(one.take(at(200.0)).expect("due"), at(200.0) - at(0.01) + at(0.0085), "four are too late");
        assert_eq!(one.count(at(200.01)), ArrivalCount { offered: 10, skipped: 4, backlog: 11, seconds: 0.01 });
        assert!(one.take(at(200.0)).is_ok());
    }

    #[test]
    fn a_long_backlog_is_counted_by_its_rate() {
        let mut one = schedule(&[(0.0, 1e6)], ArrivalProcess::Poisson, 0.0, 0, 2);
        let counted = one.count((10.0 * HERTZ) as u64);
        assert!((counted.offered as f64 - 5e6).abs() < 3.0 * 5e6f64.sqrt(), "{counted:?}");
        assert_eq!(counted.backlog, counted.offered);
        // The area below a rate that falls to 0 is 50 million.
        let mut falling = schedule(&[(0.0, 1e8), (1.0, 0.0)], ArrivalProcess::Poisson, 0.0, 0, 1);
        let counted = falling.count((2.0 * HERTZ) as u64);
        assert!((counted.offered as f64 / 50e6 - 1.0).abs() < 1e-3, "{counted:?}");
    }
}
