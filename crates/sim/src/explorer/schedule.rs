//! Schedules: which core made which step, and how to make one shorter.

use std::fmt;
use std::str::FromStr;

/// The cores that made an execution's choices, in order: `0x5,1x3,0` is five times core 0, three
/// times core 1, once core 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule(Vec<(usize, u64)>);

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no part of a schedule; valid: CORE or CORExTIMES, separated by commas, as in 0x5,1x3,0")]
pub struct ScheduleError(String);

impl Schedule {
    /// The cores, each with how many choices in a row it was.
    pub fn segments(&self) -> &[(usize, u64)] {
        &self.0
    }

    /// How often another core went on.
    pub fn switches(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Creates an empty schedule with room for `segments`.
    pub(crate) fn with_room_of(segments: usize) -> Self {
        Schedule(Vec::with_capacity(segments))
    }

    /// A number that is the same for equal schedules, and hardly ever for others.
    pub fn fingerprint(&self) -> u64 {
        let mixed = self.0.iter().fold(0, |hash: u64, (core, times)| {
            (hash.rotate_left(5) ^ (*core as u64) << 32 ^ times).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        mixed ^ mixed >> 32
    }

    pub(crate) fn push(&mut self, core: usize) {
        self.push_many(core, 1);
    }

    /// Adds `times` choices of the core that was pushed last.
    pub(crate) fn push_again(&mut self, times: u64) {
        if let Some((_, count)) = self.0.last_mut() {
            *count += times;
        }
    }

    fn push_many(&mut self, core: usize, times: u64) {
        match self.0.last_mut() {
            Some((last, count)) if *last == core => *count += times,
            _ => self.0.push((core, times)),
        }
    }

    /// Without one of its segments.
    fn without(&self, segment: usize) -> Schedule {
        let mut shorter = Schedule::default();
        for (number, &(core, times)) in self.0.iter().enumerate() {
            if number != segment {
                shorter.push_many(core, times);
            }
        }
        shorter
    }

    /// With a segment's steps moved to the core's next segment.
    fn postponing(&self, segment: usize) -> Option<Schedule> {
        let (core, times) = self.0[segment];
        let next = self.0[segment + 1..].iter().position(|(other, _)| *other == core)? + segment + 1;
        let mut later = Schedule::default();
        for (number, &(core, count)) in self.0.iter().enumerate() {
            match number {
                number if number == segment => {}
                number if number == next => later.push_many(core, count + times),
                _ => later.push_many(core, count),
            }
        }
        Some(later)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (core, times)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match times {
                1 => write!(f, "{comma}{core}")?,
                _ => write!(f, "{comma}{core}x{times}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let mut schedule = Schedule::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (core, times) = part.split_once('x').unwrap_or((part, "1"));
            match (core.parse(), times.parse()) {
                (Ok(core), Ok(times)) if times > 0 => schedule.push_many(core, times),
                _ => return Err(ScheduleError(part.into())),
            }
        }
        Ok(schedule)
    }
}

/// A schedule with as few switches as can be found by leaving one out after the other. `fails`
/// executes a schedule, and answers the one that was followed in fact if the execution shows what
/// is looked for.
pub fn shrink(schedule: Schedule, mut fails: impl FnMut(&Schedule) -> Option<Schedule>) -> Schedule {
    let mut best = schedule;
    let mut segment = best.segments().len();
    let mut since = 0;
    // From the end, round and round, until no segment can be spared.
    while since <= best.segments().len() && best.switches() > 0 {
        segment = segment.checked_sub(1).unwrap_or(best.segments().len() - 1).min(best.segments().len() - 1);
        since += 1;
        let candidates = [best.postponing(segment), Some(best.without(segment))];
        for candidate in candidates.into_iter().flatten() {
            if let Some(followed) = fails(&candidate)
                && followed.switches() < best.switches()
            {
                (best, since) = (followed, 0);
                break;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_survives_its_text() {
        let schedule: Schedule = "0x5,1x3,0,0,2".parse().expect("a schedule");
        assert_eq!(schedule.segments(), [(0, 5), (1, 3), (0, 2), (2, 1)]);
        assert_eq!(schedule.to_string(), "0x5,1x3,0x2,2");
        assert_eq!(schedule.switches(), 3);
        assert!("0x5,ax3".parse::<Schedule>().expect_err("no core").to_string().contains("'ax3'"));
        assert!("0x0".parse::<Schedule>().is_err());
    }

    #[test]
    fn shrinking_leaves_the_switches_that_matter() {
        // What is looked for: core 1 makes its first choice after core 0's second and before its
        // third.
        let fails = |schedule: &Schedule| {
            let mut choices = schedule.segments().iter().flat_map(|(core, times)| (0..*times).map(move |_| *core));
            let before = choices.by_ref().take_while(|core| *core != 1).filter(|core| *core == 0).count();
            (before == 2 && choices.any(|core| core == 0)).then(|| schedule.clone())
        };
        let long: Schedule = "2,0,2,0,1,2,0,1,0,2,1,0x3".parse().expect("a schedule");
        let short = shrink(long, fails);
        assert_eq!(short.switches(), 2, "{short}");
        assert!(fails(&short).is_some());
    }
}
