//! Statistics of entries that were measured in turns: pure functions over the rates of each entry
//! in each round.
//!
//! In a round every entry has one window, in an order that is drawn anew for each round. The
//! machine's drift is common to a round. So entries are compared by the logarithms of their ratios
//! in each round, never by figures of different rounds.
//!
//! **The test.** If two entries are equally fast, only their order within a round makes a
//! difference, and that order was drawn. So each round's difference has either sign with
//! probability 1/2, whatever the machine does, and independently of other rounds. Under this
//! hypothesis the sum of the ranks of the positive differences (F. Wilcoxon: "Individual
//! comparisons by ranking methods", 1945) has a known distribution, which this module computes
//! exactly.
//!
//! **The interval** holds every ratio that the test does not reject (J. Hodges, E. Lehmann:
//! "Estimates of location based on rank tests", 1963). Its ends are order statistics of the means
//! of all pairs of differences, and the ratio is the median of these means. The interval assumes
//! that differences lie symmetrically about the true ratio. Whether 1 lies in it depends on no
//! assumption but the drawn order.
//!
//! **Many comparisons.** Any pair of entries may be compared, because the data decide which entry
//! is the first. So each interval has an error of [`ERROR`] divided by the number of pairs
//! (Bonferroni).
//!
//! **Many looks.** The rounds end early once the question is answered. All looks at the data before
//! the last share a fifth of the error; each has an equal part of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use contend_model::random::SplitMix64;

/// The probability that a comparison tells any two equal entries apart.
pub const ERROR: f64 = 0.05;
/// The part of the error that all looks before the last share.
const EARLY: f64 = 0.2;
/// The largest number of blocks into which rounds are grouped. With more, the exact distribution
/// and the means of all pairs would take too long.
const BLOCKS_MAX: usize = 100;

/// The ratio of one entry's rates to another's, in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The ratio: the exponential of the median over the means of all pairs of rounds, of
    /// logarithms.
    pub ratio: f64,
    /// The lower end of the interval; `None` if the rounds are too few for an interval.
    pub low: Option<f64>,
    /// The upper end of the interval.
    pub high: Option<f64>,
    /// Whether 1 is outside the interval.
    pub told_apart: bool,
}

impl Ratio {
    /// Returns the ratio of `a` to `b`, which are rates by round, with this error. Returns `None`
    /// if there was no round, or a rate is not positive.
    pub fn of(a: &[f64], b: &[f64], error: f64) -> Option<Ratio> {
        Ratio::between(a, b, rejected_below(blocks_of(a.len().min(b.len())), error))
    }

    /// Returns the same, given the largest rank sum that is rejected.
    fn between(a: &[f64], b: &[f64], rejected: Option<usize>) -> Option<Ratio> {
        let logs = a.iter().zip(b).map(|(a, b)| (a / b).ln());
        let differences = blocks(&logs.collect::<Vec<_>>());
        if differences.is_empty() || differences.iter().any(|difference| !difference.is_finite()) {
            return None;
        }
        let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
        for (number, one) in differences.iter().enumerate() {
            means.extend(differences[..=number].iter().map(|other| (one + other) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let last = means.len() - 1;
        let median = (means[last / 2] + means[last.div_ceil(2)]) / 2.0;
        let ends = rejected.map(|end| (means[end], means[last - end]));
        Some(Ratio {
            ratio: median.exp(),
            low: ends.map(|(low, _)| low.exp()),
            high: ends.map(|(_, high)| high.exp()),
            told_apart: ends.is_some_and(|(low, high)| low > 0.0 || high < 0.0),
        })
    }

    /// Returns the ratio of the other entry to this one.
    pub(crate) fn inverse(self) -> Ratio {
        let (low, high) = (self.high.map(f64::recip), self.low.map(f64::recip));
        Ratio { ratio: self.ratio.recip(), low, high, ..self }
    }

    /// Returns how far the interval reaches from its middle, as a fraction: 0.03 if the ratio is
    /// known to 3 % up or down.
    pub fn reach(&self) -> f64 {
        match (self.low, self.high) {
            (Some(low), Some(high)) => ((high / low).ln() / 2.0).exp_m1(),
            _ => f64::INFINITY,
        }
    }

    /// Returns whether the interval is below 1.
    pub fn is_slower(&self) -> bool {
        self.told_apart && self.ratio < 1.0
    }

    /// Returns whether the interval is above 1.
    pub fn is_faster(&self) -> bool {
        self.told_apart && self.ratio > 1.0
    }
}

/// Returns the number of blocks into which this number of rounds is grouped.
fn blocks_of(rounds: usize) -> usize {
    rounds / rounds.div_ceil(BLOCKS_MAX).max(1)
}

/// Returns the means of blocks of consecutive rounds. The sign of a block is determined by the
/// drawn orders, as is that of a round.
pub(crate) fn blocks(differences: &[f64]) -> Vec<f64> {
    let size = differences.len().div_ceil(BLOCKS_MAX).max(1);
    let whole = differences.chunks_exact(size);
    whole.map(|block| block.iter().sum::<f64>() / size as f64).collect()
}

/// Returns the largest rank sum that is rejected on either side, with this error for both sides.
/// Returns `None` if not even 0 is rejected.
fn rejected_below(rounds: usize, error: f64) -> Option<usize> {
    // The probability of each sum of a random subset of the ranks 1 to `rounds`.
    let mut probability = vec![1.0];
    for rank in 1..=rounds {
        let mut next = vec![0.0; probability.len() + rank];
        for (sum, value) in probability.iter().enumerate() {
            next[sum] += value / 2.0;
            next[sum + rank] += value / 2.0;
        }
        probability = next;
    }
    let mut below = 0.0;
    let count = probability.iter().take_while(|value| {
        below += **value;
        below <= error / 2.0
    });
    count.count().checked_sub(1)
}

/// Returns the smallest number of rounds that can tell two entries apart with this error.
pub fn rounds_min(error: f64) -> usize {
    (1..BLOCKS_MAX).find(|rounds| rejected_below(*rounds, error).is_some()).unwrap_or(BLOCKS_MAX)
}

/// Returns the smallest number of rounds that can tell any two of these entries apart.
pub fn rounds_to_tell(entries: usize) -> usize {
    rounds_min(ERROR / pairs(entries).max(1) as f64)
}

/// How entries that were measured in turns are sorted, behind "sorted by".
pub const ORDER: &str = "the median of an entry's shares of each round, which the machine's drift does not change; the medians /s may \
                         stand in another order";

/// A look at the data after a number of rounds, and the error of each interval at that look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The number of rounds before the look.
    pub rounds: usize,
    /// The error of each interval.
    pub error: f64,
}

/// Returns the looks at a comparison of `entries` entries and at most `rounds_most` rounds. The
/// last look is after the last round.
pub fn looks(entries: usize, rounds_most: usize) -> Vec<Look> {
    let each = ERROR / pairs(entries).max(1) as f64;
    // With fewer early looks each has a larger error, and the first look needs fewer rounds.
    for count in (1..=12).rev() {
        let error = each * EARLY / count as f64;
        // One round more than the minimum. The minimum suffices only if the difference has the same
        // sign in every round.
        let first = rounds_min(error) + 1;
        let mut early: Vec<usize> = vec![first];
        while early.len() < count {
            early.push((early[early.len() - 1] * 3).div_ceil(2));
        }
        if early[count - 1] < rounds_most {
            let mut looks: Vec<Look> = early.into_iter().map(|rounds| Look { rounds, error }).collect();
            looks.push(Look { rounds: rounds_most, error: each * (1.0 - EARLY) });
            return looks;
        }
    }
    vec![Look { rounds: rounds_most, error: each }]
}

/// Returns the number of pairs of `entries` entries.
pub fn pairs(entries: usize) -> usize {
    entries * entries.saturating_sub(1) / 2
}

/// Returns the order of the entries in a round. It differs from round to round, and is the same for
/// the same seed.
pub fn turns(entries: usize, round: usize, seed: u64) -> Vec<usize> {
    let mut random = SplitMix64::new(seed ^ SplitMix64::new(round as u64).draw());
    let mut order: Vec<usize> = (0..entries).collect();
    // Fisher and Yates.
    for place in (1..entries).rev() {
        order.swap(place, random.below(place as u64 + 1) as usize);
    }
    order
}

/// The judgement of the rounds so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// All entries by the median of their shares of the rounds, fastest first.
    pub order: Vec<usize>,
    /// The first: the fastest ranked entry that is not told to be slower than another ranked entry.
    pub first: Option<usize>,
    /// The group of each ranked entry, from 1. A group consists of its first entry and those that
    /// are not told apart from it.
    pub groups: Vec<Option<usize>>,
    /// The ratio of each entry to the first.
    pub to_first: Vec<Option<Ratio>>,
    /// The ratio of each entry to the upper bound.
    pub to_bound: Vec<Option<Ratio>>,
}

/// Judges the rates of each entry in each round, with this error for each interval. `ranked` says
/// which entries can be the first: an upper bound that promises nothing is compared, but not
/// ranked.
pub fn judge(rates: &[Vec<f64>], ranked: &[bool], bound: Option<usize>, error: f64) -> Judged {
    let rounds = rates.iter().map(Vec::len).min().unwrap_or(0);
    let rejected = rejected_below(blocks_of(rounds), error);
    let below = |a: usize| (0..a).map(|b| Ratio::between(&rates[a][..rounds], &rates[b][..rounds], rejected)).collect();
    let table: Vec<Vec<Option<Ratio>>> = (0..rates.len()).map(below).collect();
    let ratio = |a: usize, b: usize| if a > b { table[a][b] } else { table[b][a].map(Ratio::inverse) };
    let order = order(rates);
    let mut left: Vec<usize> = order.iter().copied().filter(|entry| ranked[*entry]).collect();
    let mut groups = vec![None; rates.len()];
    let mut first = None;
    for group in 1.. {
        let Some(head) = head(&left, ratio) else { break };
        first = first.or(Some(head));
        let is_below = |entry: usize| entry != head && ratio(entry, head).is_some_and(|ratio| ratio.told_apart);
        left.retain(|&entry| {
            let below = is_below(entry);
            if !below {
                groups[entry] = Some(group);
            }
            below
        });
    }
    let against = |other: Option<usize>| -> Vec<Option<Ratio>> {
        let of = |entry: usize| other.filter(|other| *other != entry).and_then(|other| ratio(entry, other));
        (0..rates.len()).map(of).collect()
    };
    Judged { to_first: against(first), to_bound: against(bound), order, first, groups }
}

/// Returns the fastest of these entries, which are in order: the first that is not told to be
/// slower than another.
fn head(entries: &[usize], ratio: impl Fn(usize, usize) -> Option<Ratio>) -> Option<usize> {
    let is_beaten = |entry: usize| {
        entries.iter().any(|&other| other != entry && ratio(entry, other).is_some_and(|ratio| ratio.is_slower()))
    };
    entries.iter().copied().find(|entry| !is_beaten(*entry)).or(entries.first().copied())
}

/// Returns the entries by the median of their shares of each round's middle rate, largest first.
fn order(rates: &[Vec<f64>]) -> Vec<usize> {
    let rounds = rates.iter().map(Vec::len).min().unwrap_or(0);
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        (values[last / 2] + values[last.div_ceil(2)]) / 2.0
    };
    let level: Vec<f64> = (0..rounds)
        .map(|round| middle(&mut rates.iter().map(|of_entry| of_entry[round].ln()).collect::<Vec<f64>>()))
        .collect();
    let score = |of_entry: &Vec<f64>| {
        let mut shares: Vec<f64> = of_entry.iter().zip(&level).map(|(rate, level)| rate.ln() - level).collect();
        if shares.is_empty() { f64::NEG_INFINITY } else { middle(&mut shares) }
    };
    let scores: Vec<f64> = rates.iter().map(score).collect();
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

/// Formats a ratio as in "1.06 x (1.03 to 1.09)".
pub fn show_ratio(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2} x ({low:.2} to {high:.2})", ratio.ratio),
        _ => format!("{:.2} x", ratio.ratio),
    }
}

/// Formats a ratio as a share, as in "96 % (94 to 98)".
pub fn show_share(ratio: &Ratio) -> String {
    let percent = |part: f64| part * 100.0;
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => {
            format!("{:.0} % ({:.0} to {:.0})", percent(ratio.ratio), percent(low), percent(high))
        }
        _ => format!("{:.0} %", percent(ratio.ratio)),
    }
}

impl Judged {
    /// Returns whether the question is answered. Without a precision, each ranked entry must be
    /// told apart from the first, and the first from the upper bound. With a precision, each ratio
    /// to the first and to the upper bound must be known to it (0.03 is 3 % up or down).
    pub fn is_told(&self, precision: Option<f64>) -> bool {
        let known = |ratio: &Option<Ratio>, precision: f64| ratio.is_none_or(|ratio| ratio.reach() <= precision);
        match precision {
            Some(precision) => self.to_first.iter().chain(&self.to_bound).all(|ratio| known(ratio, precision)),
            None => {
                let ranked = self.groups.iter().zip(&self.to_first).filter(|(group, _)| group.is_some());
                let of_first = self.first.and_then(|first| self.to_bound[first]);
                ranked.filter_map(|(_, ratio)| *ratio).chain(of_first).all(|ratio| ratio.told_apart)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fraction of the 2^n rank sums that are at most `end`.
    fn counted(rounds: usize, end: usize) -> f64 {
        let sum = |chosen: u32| (1..=rounds).filter(|rank| chosen >> (rank - 1) & 1 == 1).sum::<usize>();
        (0..1u32 << rounds).filter(|chosen| sum(*chosen) <= end).count() as f64 / f64::from(1u32 << rounds)
    }

    #[test]
    fn the_distribution_of_rank_sums_is_that_of_all_signs() {
        for rounds in 1..=12 {
            for error in [0.2, 0.05, 0.01] {
                match rejected_below(rounds, error) {
                    Some(end) => {
                        assert!(counted(rounds, end) <= error / 2.0, "{rounds} rounds, {error}");
                        assert!(counted(rounds, end + 1) > error / 2.0, "{rounds} rounds, {error}");
                    }
                    None => assert!(counted(rounds, 0) > error / 2.0, "{rounds} rounds, {error}"),
                }
            }
        }
        // Tables of the signed-rank test have 8 for 10 rounds and 52 for 20, with 0.05 on both
        // sides together.
        assert_eq!((rejected_below(10, 0.05), rejected_below(20, 0.05)), (Some(8), Some(52)));
        assert_eq!((rejected_below(5, 0.05), rounds_min(0.05)), (None, 6));
    }

    #[test]
    fn a_ratio_is_that_of_the_rounds_and_not_of_the_medians() {
        // The machine's speed doubles from round to round; `b` is always 10 % slower.
        let a: Vec<f64> = (0..8).map(|round| 2f64.powi(round)).collect();
        let b: Vec<f64> = a.iter().map(|rate| rate * 0.9).collect();
        let ratio = Ratio::of(&b, &a, 0.05).expect("a ratio");
        assert!((ratio.ratio - 0.9).abs() < 1e-9 && ratio.is_slower() && !ratio.is_faster(), "{ratio:?}");
        assert!(ratio.reach() < 1e-9, "{ratio:?}");
        assert!(Ratio::of(&a, &b, 0.05).expect("a ratio").is_faster());
        let same = Ratio::of(&a, &a, 0.05).expect("a ratio");
        assert!(!same.told_apart && same.ratio == 1.0, "{same:?}");
        let few = Ratio::of(&a[..5], &b[..5], 0.05).expect("a ratio");
        assert_eq!((few.low, few.high, few.told_apart), (None, None, false), "five rounds tell nothing");
        assert_eq!(few.reach(), f64::INFINITY);
        assert_eq!(Ratio::of(&[], &[], 0.05), None);
        assert_eq!(Ratio::of(&[0.0, 1.0], &[1.0, 1.0], 0.05), None, "there is no logarithm of nothing");
    }

    #[test]
    fn many_rounds_are_put_together() {
        let many: Vec<f64> = (0..1050).map(f64::from).collect();
        let few = blocks(&many);
        assert_eq!((few.len(), few[0], few[94]), (95, 5.0, 1039.0));
        assert_eq!(blocks(&many[..100]), many[..100]);
        assert_eq!([0, 1, 100, 101, 1050].map(blocks_of), [0, 1, 100, 50, 95]);
    }

    #[test]
    fn groups_are_those_not_told_apart_from_their_first() {
        let wobble = |rate: f64, by: f64| (0..20).map(|round| rate * (1.0 + by * f64::from(round % 3))).collect();
        // The upper bound; two entries that are equal up to noise; one slower entry; one still
        // slower.
        let rates: Vec<Vec<f64>> =
            [(2.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.99, 0.01), (0.8, 0.02)].map(|(rate, by)| wobble(rate, by)).into();
        let judged = judge(&rates, &[false, true, true, true, true], Some(0), 0.005);
        assert_eq!(judged.order[0], 0);
        assert_eq!(judged.groups, [None, Some(3), Some(1), Some(1), Some(2)]);
        assert!(judged.to_first[judged.first.expect("a first")].is_none() && judged.to_bound[0].is_none());
        assert!(!judged.is_told(None), "two of them are not told apart");
        assert!(judged.is_told(Some(0.03)) && !judged.is_told(Some(1e-6)));
        let none = judge(&[], &[], None, 0.05);
        assert_eq!((none.first, none.order.len()), (None, 0));
    }

    #[test]
    fn looks_share_the_error_and_each_can_tell() {
        for entries in [2, 3, 5, 18, 100] {
            for most in [1, 2, 5, 10, 24, 40, 400, 10_000] {
                let looks = looks(entries, most);
                let total: f64 = looks.iter().map(|look| look.error).sum::<f64>() * pairs(entries) as f64;
                assert!(total <= ERROR * 1.0001, "{entries} entries, {most} rounds: {total}");
                assert_eq!(looks.last().map(|look| look.rounds), Some(most));
                assert!(looks.windows(2).all(|two| two[0].rounds < two[1].rounds), "{looks:?}");
                let early = &looks[..looks.len() - 1];
                assert!(
                    early.iter().all(|look| rejected_below(blocks_of(look.rounds), look.error).is_some()),
                    "{looks:?}"
                );
            }
        }
        assert_eq!(looks(2, 5).len(), 1);
        // With fewer rounds no result can be told apart, with as many the clearest one can.
        for entries in [2, 5, 23] {
            let (least, rate) = (rounds_to_tell(entries), |by: f64| move |round| f64::from(round) + by);
            for rounds in [least - 1, least] {
                let [a, b] = [1.0, 2.0].map(|by| (0..rounds as u32).map(rate(by)).collect::<Vec<_>>());
                let error = looks(entries, rounds)[0].error;
                assert_eq!(Ratio::of(&b, &a, error).expect("a ratio").told_apart, rounds == least, "{entries}");
            }
        }
    }

    #[test]
    fn turns_are_drawn_anew_and_each_place_is_as_likely() {
        assert_eq!(turns(9, 4, 42), turns(9, 4, 42));
        let mut places = [[0u32; 5]; 5];
        for round in 0..5000 {
            turns(5, round, 42).into_iter().enumerate().for_each(|(place, entry)| places[place][entry] += 1);
        }
        assert!(places.iter().flatten().all(|count| (880..1120).contains(count)), "{places:?}");
    }
}
