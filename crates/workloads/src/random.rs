//! The random draws that benchmarks need, from a seed.

use contend_model::random::{GOLDEN_GAMMA, below};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(SmallRng);

impl Random {
    /// Creates the generator for stream `stream` of seed `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let stream = stream.wrapping_mul(0xd605_bbb5_8c8a_bc29);
        Random(SmallRng::seed_from_u64(seed.wrapping_mul(GOLDEN_GAMMA) ^ stream))
    }

    /// Draws a word, uniform over all 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number in `low..=high`. The deviation from uniform is at most the range's length
    /// divided by 2^64.
    #[inline]
    pub(crate) fn uniform(&mut self, low: u64, high: u64) -> u64 {
        low + below(self.next(), high - low + 1)
    }

    /// Draws whether an event of this probability happens.
    #[inline]
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Draws NURand(A, low, high) with the constant `c` (TPC-C, clause 2.1.6).
    #[inline]
    pub(crate) fn nurand(&mut self, a: u64, c: u64, low: u64, high: u64) -> u64 {
        ((self.uniform(0, a) | self.uniform(low, high)) + c) % (high - low + 1) + low
    }
}
