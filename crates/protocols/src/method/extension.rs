//! A longer read phase: a transaction waits between its last read and its commit.
//!
//! It sounds absurd, and pays where many optimistic transactions crowd on a few records: fewer of them are in their validation at the same time
//! (ReadPhaseExtension: T. Tanabe et al.: "An analysis of concurrency control protocols for in-memory databases with CCBench", VLDB
//! 2020, section 6.2). Nothing is locked meanwhile, so it is for protocols that lock at commit only.

use contend_engine::{option_choices, options};
use contend_machine::{Activity, Machine};

use super::pass;

/// How long a transaction waits before its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Not at all.
    None,
    /// Always as long.
    Fixed,
    /// As many times as long as it had to look again at records that others were writing, 16 at most: not at all, if it met nobody.
    Adaptive,
}

option_choices!(Extension { None => "none", Fixed => "fixed", Adaptive => "adaptive" });

options! {
    /// Options of the read phase.
    pub struct ReadPhaseOptions {
        /// Whether a transaction waits before its commit, so that fewer are in their validation at once: not at all, always as long, or as
        /// many times as long as it had to look again at records that others were writing.
        "read_phase.extension" extension: Extension = Extension::None, in ();
        /// How long, in nanoseconds.
        "read_phase.ns" nanoseconds: u64 = 1_000, in 1..=1_000_000_000;
    }
}

/// The most looks that count.
const LOOKS_MAX: u32 = 16;

impl ReadPhaseOptions {
    /// Waits, at the end of a read phase in which so many looks were not the first of their records.
    #[inline(always)]
    pub fn extend<M: Machine>(&self, extra_looks: u32) {
        if self.extension != Extension::None {
            self.wait::<M>(extra_looks);
        }
    }

    #[cold]
    fn wait<M: Machine>(&self, extra_looks: u32) {
        let times = if self.extension == Extension::Fixed { 1 } else { extra_looks.min(LOOKS_MAX) };
        let cycles = (self.nanoseconds as f64 * f64::from(times) * M::cycles_per_second() / 1e9) as u64;
        let phase = M::phase();
        M::enter(phase.doing(Activity::Wait));
        M::step("extend");
        pass::<M>(cycles);
        M::enter(phase);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    fn cycles(options: &ReadPhaseOptions, extra_looks: u32) -> u64 {
        let start = Native::now();
        options.extend::<Native>(extra_looks);
        Native::now() - start
    }

    #[test]
    fn an_adaptive_extension_is_as_long_as_there_were_looks() {
        let nanoseconds = 100_000;
        let one = (nanoseconds as f64 * Native::cycles_per_second() / 1e9) as u64;
        let adaptive = ReadPhaseOptions { extension: Extension::Adaptive, nanoseconds };
        assert!(cycles(&adaptive, 3) >= 3 * one);
        assert!(cycles(&adaptive, 1_000) >= u64::from(LOOKS_MAX) * one);
        assert!(cycles(&ReadPhaseOptions { extension: Extension::Fixed, nanoseconds }, 0) >= one);
    }
}
