//! Read-phase extension: a transaction waits between its last read and its commit.
//!
//! The wait pays where many optimistic transactions crowd on a few records, because fewer of them
//! are in their validation at the same time (ReadPhaseExtension: T. Tanabe et al.: "An analysis of
//! concurrency control protocols for in-memory databases with CCBench", VLDB 2020, section 6.2). It
//! is for protocols that lock at commit only: a protocol that locks at access would hold its locks
//! through the wait.

use contend_engine::{option_choices, options};
use contend_machine::{Activity, Machine};

use super::spin_for;

/// The wait of a transaction between its last read and its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// No wait.
    None,
    /// `read_phase.ns`.
    Fixed,
    /// `read_phase.ns` times the number of reads that it had to repeat because another transaction
    /// was writing, 16 at most.
    Adaptive,
}

option_choices!(Extension { None => "none", Fixed => "fixed", Adaptive => "adaptive" });

options! {
    /// Options of the read phase.
    pub struct ReadPhaseOptions {
        /// The wait between a transaction's last read and its commit, so that fewer transactions
        /// validate at once: none; fixed; or adaptive: longer if it had to repeat reads of records
        /// that another transaction was writing.
        "read_phase.extension" extension: Extension = Extension::None, in ();
        /// Nanoseconds of the wait, or for each repeated read if it is adaptive.
        "read_phase.ns" nanoseconds: u64 = 1_000, in 1..=1_000_000_000;
    }
}

/// The most repeated reads that lengthen an adaptive wait.
const LOOKS_MAX: u32 = 16;

impl ReadPhaseOptions {
    /// Waits at the end of a read phase that repeated `read_retries` reads.
    #[inline(always)]
    pub fn extend<M: Machine>(&self, read_retries: u32) {
        if self.extension != Extension::None {
            self.wait::<M>(read_retries);
        }
    }

    #[cold]
    fn wait<M: Machine>(&self, read_retries: u32) {
        let times = if self.extension == Extension::Fixed { 1 } else { read_retries.min(LOOKS_MAX) };
        let cycles = (self.nanoseconds as f64 * f64::from(times) * M::cycles_per_second() / 1e9) as u64;
        let phase = M::phase();
        M::enter(phase.doing(Activity::Wait));
        M::step("extend");
        spin_for::<M>(cycles);
        M::enter(phase);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    fn cycles(options: &ReadPhaseOptions, read_retries: u32) -> u64 {
        let start = Native::now();
        options.extend::<Native>(read_retries);
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
