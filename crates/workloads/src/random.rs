//! Random numbers from a seed, as benchmarks draw them.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(SmallRng);

impl Random {
    /// The generator of this seed and this stream.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let stream = stream.wrapping_mul(0xd605_bbb5_8c8a_bc29);
        Random(SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream))
    }

    /// Any word.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number of a range, both ends included, each as likely as any other to within the range's
    /// length in 2^64.
    #[inline]
    pub(crate) fn uniform(&mut self, low: u64, high: u64) -> u64 {
        low + ((u128::from(self.next()) * u128::from(high - low + 1)) >> 64) as u64
    }

    /// Whether something of this probability happens.
    #[inline]
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// NURand(A, low, high) with the constant `c` (TPC-C, clause 2.1.6).
    #[inline]
    pub(crate) fn nurand(&mut self, a: u64, c: u64, low: u64, high: u64) -> u64 {
        ((self.uniform(0, a) | self.uniform(low, high)) + c) % (high - low + 1) + low
    }
}
