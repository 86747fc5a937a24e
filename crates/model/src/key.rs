//! Keys: fixed-size, ordered, made of 64-bit words.

use std::fmt::Debug;

use crate::random::GOLDEN_GAMMA;

/// The most words a [`Key`] may have.
pub const MAX_KEY_WORDS: usize = 4;

/// A multiplier of [`Key::hash`] with about as many ones as zeros in each byte (wyhash's second).
const MULTIPLIER: u64 = 0xe703_7ed1_a0b4_28db;

/// A key as words: the first [`Key::WORDS`] are its own, and the others are 0. Words compare like
/// the key.
pub type KeyWords = [u64; MAX_KEY_WORDS];

/// Returns a key made of these words, and of zeros if there are fewer than [`MAX_KEY_WORDS`].
#[inline]
pub fn key_of(words: &[u64]) -> KeyWords {
    // This compiles to a loop of one to four steps, without a call.
    std::array::from_fn(|word| words.get(word).copied().unwrap_or(0))
}

/// A key of fixed size. Its words, compared one after the other as unsigned integers, have the
/// order of the keys.
pub trait Key: Copy + Ord + Debug + Send + Sync + 'static {
    /// The number of words of a key, `1..=MAX_KEY_WORDS`.
    const WORDS: usize;
    /// The smallest key.
    const MIN: Self;
    /// The largest key.
    const MAX: Self;

    /// Returns the key as words.
    fn to_words(self) -> KeyWords;
    /// Returns the key made of the first [`Key::WORDS`] words; the others are ignored.
    fn from_words(words: KeyWords) -> Self;

    /// Returns the name of the key in a history: digits, or two hexadecimal digits for each byte of
    /// a byte key. Names that are not all digits are compared bytewise, and must have the order of
    /// the keys.
    fn name(self) -> String {
        format!("{self:?}")
    }

    /// Returns a hash whose high bits spread neighbours, and keys with parts in different bits. So
    /// do the low bits of `hash ^ hash >> 32`; those of the hash alone depend on some bits of the
    /// key only. It is meant for speed, not against keys that were chosen to collide.
    #[inline(always)]
    fn hash(self) -> u64 {
        let words = self.to_words();
        let mut hash = 0;
        for word in &words[..Self::WORDS] {
            // Both halves of the first product, folded into one, depend on all bits of the word.
            // The second product brings them to the high bits.
            let product = u128::from(hash ^ *word ^ GOLDEN_GAMMA) * u128::from(MULTIPLIER);
            hash = (product as u64 ^ (product >> 64) as u64).wrapping_mul(GOLDEN_GAMMA);
        }
        hash
    }
}

impl Key for u64 {
    const WORDS: usize = 1;
    const MIN: Self = 0;
    const MAX: Self = u64::MAX;

    #[inline(always)]
    fn to_words(self) -> KeyWords {
        [self, 0, 0, 0]
    }

    #[inline(always)]
    fn from_words(words: KeyWords) -> Self {
        words[0]
    }
}

/// Implements [`Key`] for byte keys of 8, 16, 24 or 32 bytes. They are compared bytewise, as
/// big-endian words are.
macro_rules! byte_key {
    ($($bytes:literal)*) => {$(
        impl Key for [u8; $bytes] {
            const WORDS: usize = $bytes / 8;
            const MIN: Self = [0; $bytes];
            const MAX: Self = [u8::MAX; $bytes];

            #[inline(always)]
            fn to_words(self) -> KeyWords {
                let mut words = [0; MAX_KEY_WORDS];
                let (chunks, _) = self.as_chunks::<8>();
                // Not zipped: that is no call only where crates are optimised together.
                for word in 0..Self::WORDS {
                    words[word] = u64::from_be_bytes(chunks[word]);
                }
                words
            }

            #[inline(always)]
            fn from_words(words: KeyWords) -> Self {
                let mut key = [0; $bytes];
                let (chunks, _) = key.as_chunks_mut::<8>();
                for word in 0..Self::WORDS {
                    chunks[word] = words[word].to_be_bytes();
                }
                key
            }

            fn name(self) -> String {
                self.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    )*};
}

byte_key!(8 16 24 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_the_order_of_bytes() {
        let mut low = [0u8; 16];
        let mut high = [0u8; 16];
        low[7] = 255;
        high[6] = 1;
        assert!(low < high && low.to_words() < high.to_words());
        assert_eq!(<[u8; 16]>::from_words(high.to_words()), high);
        assert_eq!(low.name(), "00000000000000ff0000000000000000");
        assert!(<[u8; 32]>::MIN.to_words() < <[u8; 32]>::MAX.to_words());
    }

    /// Returns the fraction of keys in buckets that more than three keys share, of as many buckets
    /// as there are keys.
    fn crowded<K: Key>(keys: &[K], bucket: impl Fn(u64) -> usize) -> f64 {
        let mut counts = vec![0u32; keys.len()];
        keys.iter().for_each(|key| counts[bucket(key.hash())] += 1);
        counts.iter().filter(|count| **count > 3).sum::<u32>() as f64 / keys.len() as f64
    }

    /// As good as chance for keys as workloads have them: by the high bits alone, and by high and
    /// low bits together, as in a hash index that has grown to 16 or 1,024 times its size.
    #[test]
    fn hashes_spread_keys_with_structure() {
        const COUNT: usize = 1 << 16;
        // Of 65,536 keys by chance: 1 - (1 + 1 + 1/2) / e.
        let by_chance = 1.0 - 2.5 / std::f64::consts::E;
        let check = |name: &str, crowded: [f64; 3]| {
            for (bits, crowded) in ["high", "4 low", "10 low"].iter().zip(crowded) {
                assert!(crowded < 1.1 * by_chance, "{name}, {bits} bits: {crowded:.3}, by chance {by_chance:.3}");
            }
        };
        let high = |hash: u64| crate::random::below(hash, COUNT as u64) as usize;
        let grown =
            |bits: u32| move |hash: u64| (high(hash) >> bits << bits) + (hash ^ hash >> 32) as usize % (1 << bits);
        type Family = fn(u64) -> u64;
        let families: [(&str, Family); 9] = [
            ("neighbours", |n| n),
            ("even", |n| n * 2),
            ("pages", |n| n << 12),
            ("high halves", |n| n << 32),
            ("highest bits", |n| n << 48),
            ("ten districts", |n| ((n % 10) << 40) + n / 10),
            ("three parts", |n| ((n % 4) << 50) + ((n / 4 % 10) << 32) + n / 40),
            ("a high byte", |n| ((n % 256) << 56) + n / 256),
            ("multiples of the seed", |n| n.wrapping_mul(GOLDEN_GAMMA)),
        ];
        for (name, family) in families {
            let keys: Vec<u64> = (0..COUNT as u64).map(family).collect();
            check(name, [crowded(&keys, high), crowded(&keys, grown(4)), crowded(&keys, grown(10))]);
        }
        let wide: Vec<[u8; 16]> = (0..COUNT as u64).map(|n| <[u8; 16]>::from_words([n % 256, n / 256, 0, 0])).collect();
        check("two words", [crowded(&wide, high), crowded(&wide, grown(4)), crowded(&wide, grown(10))]);
    }
}
