//! The random numbers of a script.

use std::num::NonZeroU64;

use contend_model::random::{GOLDEN_GAMMA, SplitMix64, below};

use crate::zipf::Zipf;

/// A distribution, with what is known of it when the file is read.
#[derive(Clone, Debug)]
pub(super) enum Distribution {
    /// Uniform from the first operand to the second.
    Uniform,
    /// Uniform over `numbers` numbers from `low` on, both known when the file is read.
    Among { low: i64, numbers: NonZeroU64 },
    /// YCSB's: ranks of a skew below 1, scattered over the numbers below a limit.
    Zipf { zipf: Zipf, step: u64 },
    /// The same ranks, not scattered.
    Ranks(Zipf),
    /// pgbench's, with a skew above 1: the first operand is the most frequent.
    Zipfian(f64),
    /// pgbench's exponential distribution.
    Exponential(f64),
    /// pgbench's normal distribution.
    Gaussian(f64),
    /// TPC-C's NURand(A, x, y) (clause 2.1.6), with the constant C.
    NonUniform { a: u64, c: u64 },
    /// Numbers by their frequencies.
    Empirical(Vec<(f64, i64)>),
}

impl Distribution {
    /// Returns the uniform distribution from `low` to `high`.
    pub(super) fn uniform(low: i64, high: i64) -> Distribution {
        // There is no number for all 2^64 of them.
        let numbers = NonZeroU64::new(high.wrapping_sub(low).wrapping_add(1) as u64);
        numbers.map_or(Distribution::Uniform, |numbers| Distribution::Among { low, numbers })
    }

    /// Draws a number for these operands. An empty range gives its lower end.
    pub(super) fn draw(&self, random: &mut SplitMix64, (low, high): (i64, i64)) -> i64 {
        let span = high.wrapping_sub(low) as u64;
        match self {
            _ if high < low => low,
            // All numbers there are.
            Distribution::Uniform if span == u64::MAX => random.draw() as i64,
            Distribution::Uniform => low.wrapping_add(below(random.draw(), span + 1) as i64),
            Distribution::Among { low, numbers } => low.wrapping_add(below(random.draw(), numbers.get()) as i64),
            Distribution::Zipf { zipf, step } => scattered(zipf.draw(random.draw()), zipf.records(), *step),
            Distribution::Ranks(zipf) => zipf.draw(random.draw()) as i64,
            Distribution::Zipfian(skew) => low.wrapping_add(zipfian(random, span.saturating_add(1), *skew)),
            Distribution::Exponential(parameter) => {
                // The density falls from the lower end on, and is cut at the upper end.
                let cut = (-parameter).exp();
                let part = -((cut + (1.0 - cut) * unit(random)).ln()) / parameter;
                low.wrapping_add(((span as f64 + 1.0) * part) as i64).min(high)
            }
            Distribution::Gaussian(parameter) => {
                // The normal distribution between `-parameter` and `parameter`, by Box and Muller.
                let standard = loop {
                    let (first, second) = (1.0 - unit(random), unit(random));
                    let drawn = (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).sin();
                    if drawn.abs() < *parameter {
                        break drawn;
                    }
                };
                let part = (standard + parameter) / (2.0 * parameter);
                low.wrapping_add(((span as f64 + 1.0) * part) as i64).min(high)
            }
            Distribution::NonUniform { a, c } => {
                let (first, numbers) = (below(random.draw(), a + 1), span.saturating_add(1));
                let second = (low as u64).wrapping_add(below(random.draw(), numbers));
                low.wrapping_add(((first | second).wrapping_add(*c) % numbers) as i64)
            }
            Distribution::Empirical(steps) => {
                let drawn = unit(random);
                let at = steps.partition_point(|(end, _)| *end <= drawn).min(steps.len() - 1);
                steps[at].1
            }
        }
    }
}

/// Draws a number from 0, below 1.
fn unit(random: &mut SplitMix64) -> f64 {
    random.fraction()
}

/// Draws a rank below `count` of a zipfian distribution with a skew above 1, by rejection (L.
/// Devroye: Non-Uniform Random Variate Generation, 1986, page 551).
fn zipfian(random: &mut SplitMix64, count: u64, skew: f64) -> i64 {
    let b = 2f64.powf(skew - 1.0);
    loop {
        let (first, second) = (1.0 - unit(random), unit(random));
        let x = first.powf(-1.0 / (skew - 1.0)).floor();
        let t = (1.0 + 1.0 / x).powf(skew - 1.0);
        if x <= count as f64 && second * x * (t - 1.0) / (b - 1.0) <= t / b {
            return x as i64 - 1;
        }
    }
}

/// Returns the number that stands for a rank. With a step of [`step_of`] each number below `count`
/// stands for one rank, and neighbours are far apart.
#[inline(always)]
pub(super) fn scattered(rank: u64, count: u64, step: u64) -> i64 {
    match u32::try_from(count) {
        // A division of words takes a third of the time.
        Ok(_) => (rank * step % count) as i64,
        Err(_) => (u128::from(rank) * u128::from(step) % u128::from(count)) as i64,
    }
}

/// Returns a step for [`scattered`]: a number below `count` without a common factor.
pub(super) fn step_of(count: u64) -> u64 {
    let common = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (GOLDEN_GAMMA % count).max(1);
    (start..).find(|step| common(*step, count) == 1).unwrap_or(1) % count.max(2)
}

/// A permutation of the numbers below `count`, applied to a number, which is taken modulo the
/// count: pgbench's `permute`, by other factors.
pub(super) fn permuted(number: i64, count: i64) -> i64 {
    if count <= 0 {
        return 0;
    }
    scattered(number.rem_euclid(count) as u64, count as u64, step_of(count as u64))
}

/// Turns each byte into one of the letters a to z or the digits 0 to 5, by its low five bits.
#[inline(always)]
fn letters(drawn: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let numbers = drawn & (31 * EACH);
    // The high bit of each byte whose number is 26 or more. No sum or difference leaves its byte.
    let digits = (numbers + (128 - 26) * EACH) >> 7 & EACH;
    numbers + u64::from(b'a') * EACH - u64::from(b'a' + 26 - b'0') * digits
}

/// Fills a text of the frame with letters and digits, or with any bytes: its length in the first
/// word, at most `bytes`, then its bytes.
#[inline]
pub(super) fn draw_text(random: &mut SplitMix64, text: &mut [i64], length: i64, (bytes, any): (u16, bool)) {
    let length = length.clamp(0, i64::from(bytes)) as usize;
    text[0] = length as i64;
    text[1..].fill(0);
    for (word, value) in text[1..].iter_mut().take(length.div_ceil(8)).enumerate() {
        let drawn = random.draw();
        let letters = if any { drawn } else { letters(drawn) };
        let used = (length - 8 * word).min(8);
        *value = (letters & (u64::MAX >> (64 - 8 * used))) as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(of: &Distribution, low: i64, high: i64) -> f64 {
        let mut random = SplitMix64::new(7);
        let draws = 100_000;
        let mut sum = 0.0;
        for _ in 0..draws {
            let drawn = of.draw(&mut random, (low, high));
            assert!((low..=high).contains(&drawn), "{of:?}: {drawn}");
            sum += drawn as f64;
        }
        sum / f64::from(draws)
    }

    #[test]
    fn draws_keep_their_range_and_have_their_means() {
        assert!((mean(&Distribution::Uniform, -10, 10)).abs() < 0.1);
        assert!((mean(&Distribution::Gaussian(2.5), 0, 999) - 499.5).abs() < 3.0);
        // An exponential with parameter 5, cut at 1: its mean is 1/5 - e^-5 / (1 - e^-5).
        let cut = (-5f64).exp();
        assert!((mean(&Distribution::Exponential(5.0), 0, 999) / 1000.0 - (0.2 - cut / (1.0 - cut))).abs() < 0.003);
        // Zipf with a skew of 2 over 1,000: the mean rank is H(1000) / zeta(2).
        let (sum, squares): (f64, f64) =
            (1..=1000).map(f64::from).fold((0.0, 0.0), |(sum, squares), i| (sum + 1.0 / i, squares + 1.0 / (i * i)));
        assert!((mean(&Distribution::Zipfian(2.0), 0, 999) + 1.0 - sum / squares).abs() < 0.3);
        assert_eq!(Distribution::Uniform.draw(&mut SplitMix64::new(1), (5, 4)), 5, "an empty range");
        mean(&Distribution::NonUniform { a: 255, c: 17 }, 0, 999);
    }

    #[test]
    fn permutations_are_permutations() {
        for count in [1, 2, 3, 10, 97, 1000, 65_536] {
            let mut seen: Vec<i64> = (0..count).map(|number| permuted(number, count)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{count}");
        }
    }

    #[test]
    fn letters_are_letters_and_digits() {
        for number in 0..32u64 {
            let expected = b"abcdefghijklmnopqrstuvwxyz012345"[number as usize];
            assert_eq!(letters(number | (number ^ 31) << 56).to_le_bytes()[0], expected);
            assert_eq!(letters(0xe0 << 8 | number << 56).to_le_bytes()[7], expected);
        }
    }

    #[test]
    fn texts_have_their_length() {
        let mut random = SplitMix64::new(3);
        for (length, expected) in [(0, 0), (3, 3), (8, 8), (20, 20), (99, 20), (-1, 0)] {
            let mut text = [7; 4];
            draw_text(&mut random, &mut text, length, (20, false));
            let bytes: Vec<u8> = text[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(text[0], expected);
            assert!(bytes[..expected as usize].iter().all(u8::is_ascii_alphanumeric));
            assert!(bytes[expected as usize..].iter().all(|byte| *byte == 0));
        }
        let mut bytes = [0; 4097];
        draw_text(&mut random, &mut bytes, 32_768, (32_768, true));
        let mut seen = [false; 256];
        bytes[1..].iter().flat_map(|word| word.to_le_bytes()).for_each(|byte| seen[byte as usize] = true);
        assert_eq!((bytes[0], seen), (32_768, [true; 256]), "each byte comes");
    }
}
