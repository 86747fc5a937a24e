//! How often keys are accessed: the skew of a trace, and how far a distribution is from it.
//!
//! The ranks of keys are unknown: the most frequent key of a sample need not be the most frequent
//! one. So a key counts as drawn from any rank. With `n` keys, probability `p(r)` of rank `r` and
//! `N` accesses, a key has `k` accesses with probability `P(k) = 1/n sum over r of Poisson(k; N
//! p(r))`. The likelihood of a sample is the product of `P(k)` over all keys, those without
//! accesses included. Its maximum gives the skew, and if need be the number of keys.

use std::collections::HashMap;

use contend_workloads::zipf::Zipf;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// The most values of a sample.
const SAMPLE_MAX: usize = 200_000;
/// The largest skew.
const THETA_MAX: f64 = 3.0;
/// The ranks whose probabilities are exact.
const EXACT: u64 = 64;
/// The seed of the draws that a sample is compared with.
const SEED: u64 = 7;

/// The numbers of keys with each number of accesses.
#[derive(Clone, Debug)]
pub(crate) struct Spectrum {
    /// The accesses.
    pub(crate) draws: usize,
    /// The keys that were accessed.
    pub(crate) keys: usize,
    /// Accesses of a key, and the keys that have them; few accesses first.
    by_count: Vec<(u64, u64)>,
}

/// A distribution over ranks: groups of ranks with the same probability.
struct Model {
    /// The probability of each rank of the group, and the number of its ranks.
    groups: Vec<(f64, f64)>,
}

impl Model {
    /// Returns the zipfian distribution over `keys` ranks. `growth` is the ratio of the ends of a
    /// group.
    fn zipf(keys: u64, theta: f64, growth: f64) -> Model {
        let mut groups: Vec<(f64, f64)> = (1..=keys.min(EXACT)).map(|rank| ((rank as f64).powf(-theta), 1.0)).collect();
        let mut begin = keys.min(EXACT) as f64 + 1.0;
        while begin <= keys as f64 {
            let end = (begin * growth).ceil().min(keys as f64 + 1.0);
            let (low, high) = (begin - 0.5, end - 0.5);
            let area = if (theta - 1.0).abs() < 1e-9 {
                (high / low).ln()
            } else {
                (high.powf(1.0 - theta) - low.powf(1.0 - theta)) / (1.0 - theta)
            };
            groups.push((area / (end - begin), end - begin));
            begin = end;
        }
        let sum: f64 = groups.iter().map(|(weight, count)| weight * count).sum();
        groups.iter_mut().for_each(|(weight, _)| *weight /= sum);
        Model { groups }
    }
}

/// Returns the logarithm of a factorial, by Stirling's series.
fn ln_factorial(n: f64) -> f64 {
    if n < 10.0 {
        return (2..=n as u64).map(|factor| (factor as f64).ln()).sum();
    }
    n * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3))
}

/// Returns the place of the maximum of a function with one, by golden sections.
fn maximum(mut low: f64, mut high: f64, steps: usize, of: impl Fn(f64) -> f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_895;
    let (mut a, mut b) = (high - RATIO * (high - low), low + RATIO * (high - low));
    let (mut at_a, mut at_b) = (of(a), of(b));
    for _ in 0..steps {
        if at_a >= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - RATIO * (high - low);
            at_a = of(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + RATIO * (high - low);
            at_b = of(b);
        }
    }
    (low + high) / 2.0
}

impl Spectrum {
    /// Returns the spectrum of values. Only the first 200,000 count.
    pub(crate) fn of(values: impl IntoIterator<Item = i64>) -> Spectrum {
        let mut counts: HashMap<i64, u64> = HashMap::new();
        let mut draws = 0;
        for value in values.into_iter().take(SAMPLE_MAX) {
            *counts.entry(value).or_default() += 1;
            draws += 1;
        }
        Spectrum::of_counts(draws, counts.into_values())
    }

    fn of_counts(draws: usize, counts: impl Iterator<Item = u64>) -> Spectrum {
        let mut by_count: HashMap<u64, u64> = HashMap::new();
        counts.for_each(|count| *by_count.entry(count).or_default() += 1);
        let mut by_count: Vec<(u64, u64)> = by_count.into_iter().collect();
        by_count.sort_unstable();
        Spectrum { draws, keys: by_count.iter().map(|(_, keys)| *keys as usize).sum(), by_count }
    }

    fn with_count(&self, count: u64) -> f64 {
        self.by_count.iter().find(|(other, _)| *other == count).map_or(0.0, |(_, keys)| *keys as f64)
    }

    /// Returns Chao's lower bound of the number of keys (A. Chao: Nonparametric estimation of the
    /// number of classes in a population, 1984).
    pub(crate) fn least_keys(&self) -> f64 {
        let (once, twice) = (self.with_count(1), self.with_count(2));
        self.keys as f64 + once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0))
    }

    fn log_likelihood(&self, keys: f64, model: &Model) -> f64 {
        let draws = self.draws as f64;
        let groups: Vec<(f64, f64, f64)> = model
            .groups
            .iter()
            .map(|&(probability, ranks)| {
                let rate = draws * probability;
                (rate, rate.ln(), (ranks / keys).ln())
            })
            .collect();
        let of_count = |count: f64| {
            let terms = || groups.iter().map(|(rate, ln_rate, ln_share)| count * ln_rate - rate + ln_share);
            let most = terms().fold(f64::NEG_INFINITY, f64::max);
            most + terms().map(|term| (term - most).exp()).sum::<f64>().ln() - ln_factorial(count)
        };
        let seen: f64 = self.by_count.iter().map(|&(count, keys)| keys as f64 * of_count(count as f64)).sum();
        let unseen = keys - self.keys as f64;
        if unseen > 0.0 { seen + unseen * of_count(0.0) } else { seen }
    }

    /// Returns the most likely skew of a zipfian distribution over this number of keys.
    pub(crate) fn theta(&self, keys: u64) -> f64 {
        let keys = keys.max(self.keys as u64);
        maximum(0.0, THETA_MAX, 24, |theta| self.log_likelihood(keys as f64, &Model::zipf(keys, theta, 1.02)))
    }

    /// Returns the most likely number of keys.
    pub(crate) fn likely_keys(&self) -> u64 {
        const MORE: f64 = 1e4;
        let seen = self.keys as f64;
        if self.keys == self.draws {
            // No key came twice: the number has no upper bound.
            return self.keys as u64 * 10;
        }
        let best_of = |keys: f64| {
            let of = |theta| self.log_likelihood(keys, &Model::zipf(keys as u64, theta, 1.2));
            of(maximum(0.0, THETA_MAX, 14, of))
        };
        let ways = |keys: f64| ln_factorial(keys) - ln_factorial(keys - seen);
        let likely = maximum(seen.ln(), (seen * MORE).ln(), 18, |log| {
            let keys = log.exp().round().max(seen);
            best_of(keys) + ways(keys)
        });
        likely.exp().round().max(seen) as u64
    }

    /// Returns how many standard deviations the sample is from a uniform one (Pearson's
    /// dispersion).
    pub(crate) fn excess_over_uniform(&self, keys: u64) -> f64 {
        if keys < 2 {
            return 0.0;
        }
        let (keys, draws) = (keys.max(self.keys as u64) as f64, self.draws as f64);
        let mean = draws / keys;
        let squares: f64 = self.by_count.iter().map(|&(count, keys)| keys as f64 * (count as f64 - mean).powi(2)).sum();
        let squares = squares + (keys - self.keys as f64) * mean * mean;
        (squares / mean - (keys - 1.0)) / (2.0 * (keys - 1.0) * (1.0 - 1.0 / draws).max(1e-9)).sqrt()
    }

    /// Returns the shares of the accesses that the most frequent keys have: of the first, the first
    /// two, and so on, as pairs of a number of keys and a share.
    fn shares(&self) -> Vec<(f64, f64)> {
        let (mut keys, mut accesses) = (0.0, 0.0);
        let mut shares = vec![(0.0, 0.0)];
        for &(count, number) in self.by_count.iter().rev() {
            keys += number as f64;
            accesses += (count * number) as f64;
            shares.push((keys, accesses / self.draws as f64));
        }
        shares
    }

    /// Returns the Kolmogorov-Smirnov distance of two samples whose keys are ranked by accesses.
    pub(crate) fn distance(&self, other: &Spectrum) -> f64 {
        let (own, others) = (self.shares(), other.shares());
        let at = |shares: &[(f64, f64)], keys: f64| {
            let next = shares.partition_point(|(other, _)| *other < keys);
            match (next.checked_sub(1).map(|before| shares[before]), shares.get(next)) {
                (Some((from, low)), Some(&(to, high))) => low + (high - low) * (keys - from) / (to - from),
                (None, Some(&(_, first))) => first,
                (_, None) => 1.0,
            }
        };
        let of_own = own.iter().map(|&(keys, share)| (share - at(&others, keys)).abs());
        let of_others = others.iter().map(|&(keys, share)| (share - at(&own, keys)).abs());
        of_own.chain(of_others).fold(0.0, f64::max)
    }

    /// Returns the distance from draws of a zipfian distribution, by the function that a file has.
    pub(crate) fn distance_from_zipf(&self, keys: u64, theta: f64) -> f64 {
        let keys = keys.max(1);
        let mut random = SmallRng::seed_from_u64(SEED);
        if theta < 1.0 {
            let zipf = Zipf::new(keys, theta);
            return self.distance(&Spectrum::of((0..self.draws).map(|_| zipf.draw(random.next_u64()) as i64)));
        }
        let model = Model::zipf(keys, theta, 1.02);
        self.distance(&drawn(self.draws, &model.groups, &mut random))
    }

    /// Returns the distance from draws of groups of ranks: the share of each group, and its ranks.
    pub(crate) fn distance_from_groups(&self, groups: &[(f64, f64)]) -> f64 {
        let groups: Vec<(f64, f64)> = groups.iter().map(|(share, ranks)| (share / ranks, *ranks)).collect();
        self.distance(&drawn(self.draws, &groups, &mut SmallRng::seed_from_u64(SEED)))
    }

    /// Returns the distance up to which a fit is taken. A small sample is far from any
    /// distribution.
    pub(crate) fn tolerance(&self) -> f64 {
        const DISTANCE_MAX: f64 = 0.05;
        DISTANCE_MAX.max(1.5 / (self.draws.max(1) as f64).sqrt())
    }

    /// Returns the accesses of each key, the most frequent first.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.by_count.iter().rev().flat_map(|&(count, keys)| std::iter::repeat_n(count, keys as usize))
    }
}

/// Draws from groups of ranks with the same probability.
fn drawn(draws: usize, groups: &[(f64, f64)], random: &mut SmallRng) -> Spectrum {
    let mut ends = Vec::new();
    let (mut sum, mut first) = (0.0, 0.0);
    for &(probability, ranks) in groups {
        sum += probability * ranks;
        ends.push((sum, first, ranks));
        first += ranks;
    }
    let values = (0..draws).map(|_| {
        let at = random.random::<f64>() * sum;
        let group = ends.partition_point(|(end, ..)| *end <= at).min(ends.len() - 1);
        let (_, first, ranks) = ends[group];
        (first + (random.random::<f64>() * ranks).floor()) as i64
    });
    Spectrum::of(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(keys: u64, theta: f64, draws: usize, seed: u64) -> Spectrum {
        let mut random = SmallRng::seed_from_u64(seed);
        if theta < 1.0 {
            let zipf = Zipf::new(keys, theta);
            return Spectrum::of((0..draws).map(|_| zipf.draw(random.next_u64()) as i64));
        }
        drawn(draws, &Model::zipf(keys, theta, 1.02).groups, &mut random)
    }

    #[test]
    fn the_skew_of_a_known_distribution_is_found() {
        for (keys, theta, draws) in [
            (100, 0.9, 5_000),
            (1_000, 0.5, 20_000),
            (10_000, 0.99, 20_000),
            (100_000, 0.7, 50_000),
            (100_000, 1.2, 20_000),
            (1_000_000, 0.9, 100_000),
        ] {
            let sample = sample(keys, theta, draws, 3);
            let found = sample.theta(keys);
            assert!((found - theta).abs() < 0.05, "{keys} keys, {draws} draws: {theta} and {found}");
            let distance = sample.distance_from_zipf(keys, found);
            assert!(distance < 0.03, "{keys} keys, {theta}: distance {distance}");
            assert!(sample.excess_over_uniform(keys) > 5.0, "{keys} keys, {theta} is not uniform");
        }
    }

    #[test]
    fn uniform_samples_are_uniform() {
        for (keys, draws) in [(2, 1_000), (10, 20_000), (1_000, 500), (1_000_000, 20_000)] {
            for seed in 0..5 {
                let sample = sample(keys, 0.0, draws, seed);
                let far = sample.excess_over_uniform(keys);
                assert!(far < 4.0, "{keys} keys, {draws} draws: {far}");
            }
        }
    }

    #[test]
    fn the_number_of_keys_is_found() {
        for (keys, theta, draws) in [(1_000, 0.0, 3_000), (10_000, 0.9, 50_000), (5_000, 0.5, 5_000)] {
            let found = sample(keys, theta, draws, 5).likely_keys() as f64 / keys as f64;
            assert!((0.7..1.4).contains(&found), "{keys} keys, theta {theta}: {found}");
        }
    }
}
