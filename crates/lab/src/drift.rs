//! Whether the throughput of an entry falls or rises from window to window: a pure function of the
//! rates of its windows.
//!
//! **The test.** If nothing changes from window to window, each order of the rates is as likely as
//! any other. Then the number of pairs of windows of which the later one is slower has a known
//! distribution (H. Mann: "Nonparametric tests against trend", 1945; M. Kendall: "A new measure of
//! rank correlation", 1938), which this module computes exactly. Equal rates count as half a pair.
//!
//! **The size.** With many windows the test finds trends that matter to nobody. So the last third
//! of the windows must differ from the first third by [`FALL`] as well.

use crate::paired::blocks;

/// The probability of a trend where there is none, up and down together. Five windows, each slower
/// than the one before, are just enough.
const ERROR: f64 = 0.02;
/// The fall of the last third beside the first third from which a trend matters, as a part. A rise
/// is the same fall, read backwards.
pub const FALL: f64 = 0.2;

/// A trend of the rates of windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// The median rate of the first third of the windows.
    pub first: f64,
    /// The median rate of the last third.
    pub last: f64,
}

impl Trend {
    /// Returns the trend of these rates, or `None` if there is none that matters.
    pub fn of(rates: &[f64]) -> Option<Trend> {
        let rates = blocks(rates);
        let third = rates.len() / 3;
        if third == 0 || rates.iter().any(|rate| !rate.is_finite()) {
            return None;
        }
        let (first, last) = (median(&rates[..third]), median(&rates[rates.len() - third..]));
        let part = 1.0 - FALL;
        (first.min(last) <= part * first.max(last) && error_of(&rates) <= ERROR).then_some(Trend { first, last })
    }

    /// Whether the rate falls.
    pub fn falls(self) -> bool {
        self.last < self.first
    }

    /// Returns how many times the higher rate is the lower one.
    pub fn factor(self) -> f64 {
        self.first.max(self.last) / self.first.min(self.last).max(f64::MIN_POSITIVE)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0
}

/// Returns the probability of pairs that are ordered as much as these, up or down, if each order is
/// as likely.
fn error_of(rates: &[f64]) -> f64 {
    let (mut slower, mut faster) = (0usize, 0usize);
    for (number, before) in rates.iter().enumerate() {
        slower += rates[number + 1..].iter().filter(|after| *after < before).count();
        faster += rates[number + 1..].iter().filter(|after| *after > before).count();
    }
    let pairs = rates.len() * rates.len().saturating_sub(1) / 2;
    let fewest = (pairs - slower.abs_diff(faster)) / 2;
    let orders = orders_by_pairs(rates.len());
    (2.0 * orders[..=fewest].iter().sum::<f64>()).min(1.0)
}

/// Returns the probability of each number of pairs in the wrong order, among all orders of this
/// many different numbers.
fn orders_by_pairs(count: usize) -> Vec<f64> {
    let mut probability = vec![1.0];
    // The next number stands before 0, 1, ... of those that are there.
    for places in 2..=count {
        let mut next = vec![0.0; probability.len() + places - 1];
        let mut within = 0.0;
        for pairs in 0..next.len() {
            within += probability.get(pairs).copied().unwrap_or(0.0);
            if pairs >= places {
                within -= probability[pairs - places];
            }
            next[pairs] = f64::max(within, 0.0) / places as f64;
        }
        probability = next;
    }
    probability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_all_orders() {
        // The numbers of orders of four with 0 to 6 inversions.
        let expected = [1.0, 3.0, 5.0, 6.0, 5.0, 3.0, 1.0].map(|count: f64| count / 24.0);
        let found = orders_by_pairs(4);
        assert!(found.len() == 7 && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        for count in [0, 1, 2, 9, 100] {
            let sum: f64 = orders_by_pairs(count).iter().sum();
            assert!((sum - 1.0).abs() < 1e-9, "{count}: {sum}");
        }
        // Tables of Kendall's test: S = 10 of 5 has 0.0083 on one side, S = 27 of 10 has 0.0083.
        assert!((error_of(&[5.0, 4.0, 3.0, 2.0, 1.0]) - 2.0 / 120.0).abs() < 1e-12);
        assert_eq!(error_of(&[1.0; 8]), 1.0, "equal rates have no order");
    }

    #[test]
    fn a_steady_fall_or_rise_is_found() {
        let falls: Vec<f64> = (0..20).map(|window| 178e3 - f64::from(window) * 7e3).collect();
        let trend = Trend::of(&falls).expect("a trend");
        assert!(trend.falls() && trend.first > 150e3 && trend.last < 70e3, "{trend:?}");
        assert!(trend.factor() > 2.0, "{trend:?}");
        let rises: Vec<f64> = falls.iter().rev().copied().collect();
        let trend = Trend::of(&rises).expect("a trend");
        assert!(!trend.falls() && trend.factor() > 2.0, "{trend:?}");
        // Noise around it changes nothing, nor does a single window that stops.
        let noisy: Vec<f64> = falls.iter().enumerate().map(|(n, rate)| rate * [1.0, 1.1, 0.9][n % 3]).collect();
        assert!(Trend::of(&noisy).is_some_and(Trend::falls));
        let stopped: Vec<f64> = falls.iter().enumerate().map(|(n, rate)| if n == 4 { 0.5 } else { *rate }).collect();
        assert!(Trend::of(&stopped).is_some_and(Trend::falls));
        assert!(Trend::of(&[5.0, 4.0, 3.0, 2.0, 1.0]).is_some(), "five windows are enough");
        // Thousands of windows are put together.
        let many: Vec<f64> = (0..5_000).map(|window| 1e6 - f64::from(window) * 100.0).collect();
        assert!(Trend::of(&many).is_some_and(Trend::falls));
    }

    #[test]
    fn noise_and_small_falls_are_no_trend() {
        for none in [&[][..], &[1.0], &[2.0, 1.0], &[4.0, 3.0, 2.0, 1.0], &[0.0; 30], &[f64::NAN; 9]] {
            assert_eq!(Trend::of(none), None, "{none:?}");
        }
        let small: Vec<f64> = (0..40).map(|window| 100.0 - f64::from(window) * 0.4).collect();
        assert_eq!(Trend::of(&small), None, "16 % is told, and does not matter");
        let swings: Vec<f64> = (0..40).map(|window| [100.0, 40.0, 70.0, 55.0][window % 4]).collect();
        assert_eq!(Trend::of(&swings), None);
        // A fall in the middle that is over at the end.
        let back: Vec<f64> = (0..12).map(|window| if (4..8).contains(&window) { 30.0 } else { 100.0 }).collect();
        assert_eq!(Trend::of(&back), None);
    }
}
