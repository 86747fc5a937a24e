//! Comparisons of entries whose true speeds are known, on a machine that drifts. They show how
//! often a true difference is told, and how often a false one.

use contend_lab::paired::{self, Judged};

/// The behaviour of a machine that is shared with others.
pub(crate) struct Machine {
    /// Standard deviation of a window's own noise, as a fraction.
    pub(crate) noise: f64,
    /// One window in this many loses a fifth, because something else ran.
    pub(crate) hiccup_every: f64,
    /// The standard deviation of the slow drift, which neighbouring windows have in common.
    pub(crate) drift: f64,
    /// The number of windows after which the drift is drawn anew.
    pub(crate) memory: f64,
    /// One window in this many is the last before the whole machine gets slower, or faster again,
    /// by three tenths.
    pub(crate) step_every: f64,
}

/// A machine like the virtual ones on which Contend is developed, when nothing else runs in them.
pub(crate) const SHARED: Machine =
    Machine { noise: 0.03, hiccup_every: 50.0, drift: 0.10, memory: 100.0, step_every: 300.0 };

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws from the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit().max(1e-300), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

/// Returns rounds of entries with these true speeds, until the question is answered or the rounds
/// are used up, as `compare` does. All entries are ranked.
pub(crate) fn compared(machine: &Machine, speeds: &[f64], rounds_most: usize, seed: u64) -> (Judged, usize) {
    let mut random = Random(seed);
    let looks = paired::looks(speeds.len(), rounds_most);
    let ranked = vec![true; speeds.len()];
    let mut rates = vec![Vec::new(); speeds.len()];
    let (mut drift, mut slow) = (machine.drift * random.normal(), random.unit() < 0.5);
    let kept = (-1.0 / machine.memory).exp();
    for round in 0..rounds_most {
        for entry in paired::turns(speeds.len(), round, seed) {
            drift = kept * drift + (1.0 - kept * kept).sqrt() * machine.drift * random.normal();
            slow ^= random.unit() < 1.0 / machine.step_every;
            let mut log = speeds[entry].ln() + drift + machine.noise * random.normal();
            log += if slow { 0.7f64.ln() } else { 0.0 };
            log += if random.unit() < 1.0 / machine.hiccup_every { 0.8f64.ln() } else { 0.0 };
            rates[entry].push(log.exp());
        }
        if let Some(look) = looks.iter().find(|look| look.rounds == round + 1) {
            let judged = paired::judge(&rates, &ranked, None, look.error);
            if look.rounds == rounds_most || judged.is_told(None) {
                return (judged, look.rounds);
            }
        }
    }
    unreachable!("the last look is after the last round")
}

/// Returns in how many of `comparisons` comparisons of equal entries any two are told apart.
pub(crate) fn told_of_equals(machine: &Machine, entries: usize, rounds_most: usize, comparisons: u64) -> u64 {
    let wrong = |seed: &u64| {
        let (judged, _) = compared(machine, &vec![1.0; entries], rounds_most, *seed);
        judged.groups.iter().any(|group| *group != Some(1))
    };
    (1..=comparisons).filter(wrong).count() as u64
}

/// Returns in how many of `comparisons` comparisons the last entry is told to be slower than the
/// first, which is 5 % faster than all others. Returns as well the mean number of rounds.
pub(crate) fn told_of_five_percent(
    machine: &Machine,
    entries: usize,
    rounds_most: usize,
    comparisons: u64,
) -> (u64, f64) {
    let mut speeds = vec![0.95; entries];
    speeds[0] = 1.0;
    let (mut told, mut rounds) = (0, 0);
    for seed in 1..=comparisons {
        let (judged, took) = compared(machine, &speeds, rounds_most, 1_000_000 + seed);
        let is_slower = judged.to_first[entries - 1].is_some_and(|ratio| ratio.is_slower());
        told += u64::from(judged.first == Some(0) && is_slower);
        rounds += took;
    }
    (told, rounds as f64 / comparisons as f64)
}
