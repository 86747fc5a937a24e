//! TicToc's word: from when on a version is valid (wts), for how long at least (rts - wts), and the flags of [`crate::optimistic`].

use crate::optimistic::{FLAGS, VERSION_SHIFT, observed};

const DELTA_BITS: u32 = 14;
const DELTA_MAX: u64 = (1 << DELTA_BITS) - 1;
pub(super) const WTS_SHIFT: u32 = VERSION_SHIFT + DELTA_BITS;

pub(super) fn wts(word: u64) -> u64 {
    word >> WTS_SHIFT
}

pub(super) fn rts(word: u64) -> u64 {
    wts(word) + (word >> VERSION_SHIFT & DELTA_MAX)
}

/// The version that the word is of: all that a reader observes but for how long it is valid.
pub(super) fn version(word: u64) -> u64 {
    observed(word) & !(DELTA_MAX << VERSION_SHIFT)
}

/// The word, valid up to `time`, which is later than it says.
pub(super) fn extended(word: u64, time: u64) -> u64 {
    let begin = wts(word).max(time.saturating_sub(DELTA_MAX));
    begin << WTS_SHIFT | (time - begin) << VERSION_SHIFT | word & FLAGS
}
