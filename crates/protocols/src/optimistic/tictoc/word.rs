//! TicToc's word: the interval of logical time in which a version is valid, and the flags of
//! [`crate::optimistic`]. The paper's section 3.6 has the same encoding: `wts`, and `rts` as
//! `delta`, its distance from `wts`.

use crate::optimistic::{FLAGS, VERSION_SHIFT, observed};

const DELTA_BITS: u32 = 14;
const DELTA_MAX: u64 = (1 << DELTA_BITS) - 1;
pub(super) const WTS_SHIFT: u32 = VERSION_SHIFT + DELTA_BITS;

/// Returns the commit timestamp of the transaction that wrote the version.
pub(super) fn wts(word: u64) -> u64 {
    word >> WTS_SHIFT
}

/// Returns the distance of `rts` from `wts`.
fn delta(word: u64) -> u64 {
    word >> VERSION_SHIFT & DELTA_MAX
}

/// Returns the end of the interval in which the version is known to be valid.
pub(super) fn rts(word: u64) -> u64 {
    wts(word) + delta(word)
}

/// Returns which version the word is of: all that a reader observes, except `rts`.
pub(super) fn version(word: u64) -> u64 {
    observed(word) & !(DELTA_MAX << VERSION_SHIFT)
}

/// Returns the word, with `rts` raised to the later `commit_ts`. If `delta` does not fit, `wts`
/// moves on as well.
pub(super) fn extended(word: u64, commit_ts: u64) -> u64 {
    let wts = wts(word).max(commit_ts.saturating_sub(DELTA_MAX));
    let delta = commit_ts - wts;
    wts << WTS_SHIFT | delta << VERSION_SHIFT | word & FLAGS
}
