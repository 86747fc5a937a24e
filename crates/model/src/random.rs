//! Small pseudo-random generators, for choices whose quality doesn't matter much but whose sequence
//! must repeat.
//!
//! Each generator is one word, seeded by the caller, and draws the same sequence on every host.
//! Neither is meant for cryptography. Workloads draw from the crate `rand`.

/// The increment of [`SplitMix64`]: 2^64 divided by the golden ratio, made odd.
///
/// Multiplying by it spreads small numbers (of workers, of threads) over all 64 bits, which makes
/// seeds of them.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles a word: the finaliser of SplitMix64, a bijection of 64 bits.
///
/// As a hash of words that may be 0, use it on `word.wrapping_add(GOLDEN_GAMMA)`, since 0 maps to
/// itself.
#[inline(always)]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns a number below `bound`, by the upper bits of `drawn`, which must be uniform over all 64
/// bits.
///
/// Its bias is at most `bound` / 2^64. Returns 0 if `bound` is 0.
#[inline(always)]
pub const fn below(drawn: u64, bound: u64) -> u64 {
    ((drawn as u128 * bound as u128) >> 64) as u64
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood: "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
///
/// Any seed will do, also small ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator. The same seed draws the same numbers.
    #[inline(always)]
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// Draws a word, uniform over all 64 bits.
    #[inline(always)]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// Draws a number below `bound`; see [`below`].
    #[inline(always)]
    pub const fn below(&mut self, bound: u64) -> u64 {
        below(self.draw(), bound)
    }

    /// Draws a position below `len`; see [`below`].
    #[inline(always)]
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws whether an event of probability 1/`n` happens.
    #[inline(always)]
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Draws a fraction in `0.0..1.0`, of 53 random bits.
    #[inline(always)]
    pub const fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Xorshift with a word of state and the shifts 13, 7, 17 (G. Marsaglia: "Xorshift RNGs", Journal
/// of Statistical Software 2003).
///
/// It takes three instructions fewer than [`SplitMix64`]; its lowest bits are weak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xorshift64(u64);

impl Xorshift64 {
    /// Creates a generator from its state, which must not be 0: 0 is followed by zeros only.
    #[inline(always)]
    pub const fn new(state: u64) -> Self {
        debug_assert!(state != 0);
        Xorshift64(state)
    }

    /// Draws a word that is not 0.
    #[inline(always)]
    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Xorshift64* with the shifts 12, 25, 27 (S. Vigna: "An experimental exploration of Marsaglia's
/// xorshift generators, scrambled", ACM TOMS 2016): the output of a xorshift, multiplied, which
/// makes its upper bits good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xorshift64Star(u64);

impl Xorshift64Star {
    /// Creates a generator from its state, which must not be 0: 0 is followed by zeros only.
    #[inline(always)]
    pub const fn new(state: u64) -> Self {
        debug_assert!(state != 0);
        Xorshift64Star(state)
    }

    /// Draws a word that is not 0.
    #[inline(always)]
    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference implementations: S. Vigna's splitmix64.c for 1234567, Java's
    /// SplittableRandom for 0.
    #[test]
    fn splitmix_draws_the_published_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let known = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(known.map(|_| random.draw()), known);
        let mut random = SplitMix64::new(0);
        let known = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(known.map(|_| random.draw()), known);
    }

    /// The state is that of the paper, page 4; the sequence is the one that public test vectors for
    /// these shifts hold.
    #[test]
    fn xorshift_draws_the_published_sequence() {
        let mut random = Xorshift64::new(88_172_645_463_325_252);
        let known = [8_748_534_153_485_358_512, 3_040_900_993_826_735_515, 3_453_997_556_048_239_312];
        assert_eq!(known.map(|_| random.draw()), known);
    }

    /// The upper halves are Rosetta Code's, "Pseudo-random numbers/Xorshift star".
    #[test]
    fn xorshift_star_draws_the_published_sequence() {
        let mut random = Xorshift64Star::new(1_234_567);
        let known = [3_540_625_527, 2_750_739_987, 4_037_983_143, 1_993_361_440, 3_809_424_708];
        assert_eq!(known.map(|_| random.draw() >> 32), known);
    }

    #[test]
    fn numbers_below_a_bound_reach_both_ends() {
        assert_eq!((below(0, 7), below(u64::MAX, 7), below(u64::MAX, 0)), (0, 6, 0));
        assert_eq!(below(u64::MAX, u64::MAX), u64::MAX - 1);
        let mut random = SplitMix64::new(1);
        let mut drawn = [0; 5];
        (0..5000).for_each(|_| drawn[random.below(5) as usize] += 1);
        assert!(drawn.iter().all(|times| (900..1100).contains(times)), "{drawn:?}");
        let mut random = SplitMix64::new(1);
        let fractions: Vec<f64> = (0..1000).map(|_| random.fraction()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..1.0).contains(fraction)));
    }

    #[test]
    fn mixing_is_a_bijection() {
        /// Returns the inverse of an odd number modulo 2^64, by Newton's method.
        fn inverse(odd: u64) -> u64 {
            (0..6).fold(odd, |guess, _| guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess))))
        }
        fn unshift(word: u64, by: u32) -> u64 {
            (0..64 / by).fold(word, |guess, _| word ^ guess >> by)
        }
        let unmix = |word| {
            let word = unshift(word, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
            unshift(unshift(word, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9)), 30)
        };
        for word in (0..1000).chain([u64::MAX, u64::MAX - 1, 1 << 63]) {
            assert_eq!(unmix(mix(word)), word);
        }
    }
}
