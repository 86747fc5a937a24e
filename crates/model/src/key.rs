//! Keys: fixed-size, ordered, made of 64-bit words.

use std::fmt::Debug;

use crate::random::{GOLDEN_GAMMA, mix};

/// The most words a [`Key`] may have.
pub const MAX_KEY_WORDS: usize = 4;

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

    /// Returns a hash in which every bit depends on every bit of the key.
    #[inline(always)]
    fn hash(self) -> u64 {
        let words = self.to_words();
        let mut hash = 0;
        for word in &words[..Self::WORDS] {
            hash = mix((hash ^ *word).wrapping_add(GOLDEN_GAMMA));
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
                for (word, chunk) in words.iter_mut().zip(chunks) {
                    *word = u64::from_be_bytes(*chunk);
                }
                words
            }

            #[inline(always)]
            fn from_words(words: KeyWords) -> Self {
                let mut key = [0; $bytes];
                let (chunks, _) = key.as_chunks_mut::<8>();
                for (chunk, word) in chunks.iter_mut().zip(words) {
                    *chunk = word.to_be_bytes();
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

    #[test]
    fn hash_spreads_neighbours() {
        let buckets: std::collections::HashSet<u64> = (0..1000u64).map(|key| key.hash() >> 44).collect();
        assert!(buckets.len() > 990);
    }
}
