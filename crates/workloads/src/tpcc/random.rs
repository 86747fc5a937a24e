//! The standard's random numbers and strings (clauses 2.1.6 and 4.3.2), from a seed.

pub(crate) use crate::random::Random;

/// The constants of NURand for last names, in the population and in a run. They differ by 66, which
/// clause 2.1.6.1 allows.
const C_LAST_LOAD: u64 = 157;
const C_LAST_RUN: u64 = 223;
/// Likewise for customers and items.
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7911;

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The number of last names: three syllables each.
pub(crate) const NAMES: u64 = 1000;

impl Random {
    /// Draws the number of a customer, of `customers`.
    #[inline]
    pub(crate) fn customer(&mut self, customers: u64) -> u64 {
        self.nurand(1023, C_CUSTOMER, 1, customers)
    }

    /// Draws the number of an item, of `items`.
    #[inline]
    pub(crate) fn item(&mut self, items: u64) -> u64 {
        self.nurand(8191, C_ITEM, 1, items)
    }

    /// Draws the number of a last name for a run: one that each district of `customers` has.
    #[inline]
    pub(crate) fn name_to_ask_for(&mut self, customers: u64) -> u64 {
        self.nurand(255, C_LAST_RUN, 0, customers.min(NAMES) - 1)
    }

    /// Draws the number of a last name for the population.
    pub(crate) fn name_to_load(&mut self) -> u64 {
        self.nurand(255, C_LAST_LOAD, 0, NAMES - 1)
    }

    /// Draws a text of `shortest` to `longest` characters of `alphabet`, and fills the rest with
    /// zeros.
    fn text<const N: usize>(&mut self, alphabet: &[u8], shortest: usize, longest: usize) -> [u8; N] {
        let length = self.uniform(shortest as u64, longest as u64) as usize;
        let mut text = [0; N];
        for chunk in text[..length].chunks_mut(8) {
            // One draw for eight characters.
            let mut bits = self.next();
            for character in chunk {
                *character = alphabet[((bits & 0xff) as usize * alphabet.len()) >> 8];
                bits >>= 8;
            }
        }
        text
    }

    /// Draws an alphanumeric string.
    pub(crate) fn letters<const N: usize>(&mut self, shortest: usize, longest: usize) -> [u8; N] {
        self.text(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", shortest, longest)
    }

    /// Draws a numeric string.
    pub(crate) fn digits<const N: usize>(&mut self, length: usize) -> [u8; N] {
        self.text(b"0123456789", length, length)
    }

    /// Draws a string of 26 to 50 letters. One in ten contains "ORIGINAL" at a drawn position.
    pub(crate) fn data(&mut self) -> [u8; 50] {
        let mut data = self.letters::<50>(26, 50);
        if self.happens(0.1) {
            let length = data.iter().position(|&byte| byte == 0).unwrap_or(50);
            let at = self.uniform(0, length as u64 - 8) as usize;
            data[at..at + 8].copy_from_slice(b"ORIGINAL");
        }
        data
    }

    /// Draws a permutation of 1 to `count` (Fisher and Yates).
    pub(crate) fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (1..=count).collect();
        for last in (1..numbers.len()).rev() {
            numbers.swap(last, self.uniform(0, last as u64) as usize);
        }
        numbers
    }
}

/// Returns the last name of this number: three syllables (clause 4.3.2.3).
pub(crate) fn last_name(number: u64) -> [u8; 16] {
    let mut name = [0; 16];
    let mut end = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        name[end..end + syllable.len()].copy_from_slice(syllable);
        end += syllable.len();
    }
    name
}

/// Returns whether an item's or a stock's data names the brand.
#[inline]
pub(crate) fn is_original(data: &[u8; 50]) -> bool {
    data.windows(8).any(|window| window == b"ORIGINAL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_syllables() {
        assert_eq!(&last_name(371), b"PRICALLYOUGHT\0\0\0");
        assert_eq!(&last_name(0), b"BARBARBAR\0\0\0\0\0\0\0");
        assert_eq!(&last_name(777), b"CALLYCALLYCALLY\0");
    }

    #[test]
    fn numbers_keep_to_their_ranges_and_reach_the_ends() {
        let mut random = Random::new(1, 1);
        let mut seen = [0u32; 3];
        for _ in 0..10_000 {
            seen[random.uniform(5, 7) as usize - 5] += 1;
            assert!((1..=3000).contains(&random.customer(3000)));
            assert!((1..=100).contains(&random.item(100)));
            assert!(random.name_to_ask_for(10) < 10);
        }
        assert!(seen.iter().all(|&count| (3000..3700).contains(&count)), "{seen:?}");
    }

    #[test]
    fn one_string_in_ten_names_the_brand() {
        let mut random = Random::new(2, 1);
        let original = (0..10_000).filter(|_| is_original(&random.data())).count();
        assert!((880..1120).contains(&original), "{original} of 10000");
    }
}
