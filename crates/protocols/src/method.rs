//! Optimisation methods: small types that protocols share and that options choose (CCBench, VLDB
//! 2020, section 4).
//!
//! | file | method |
//! | --- | --- |
//! | [`backoff`] | the wait between an abort and the next try |
//! | [`extension`] | the wait between the last read and the commit of an optimistic transaction |
//! | [`timestamp`] | the source of timestamps, and a timestamp that an aborted transaction keeps |
//! | [`clock`] | Cicada's loosely synchronised clocks |
//! | [`table`] | the methods, and the reason why a protocol doesn't take one |

pub mod backoff;
pub mod clock;
pub mod extension;
pub mod table;
mod ticks;
pub mod timestamp;
pub mod wait;

use contend_machine::{Cycles, Machine, Spin};

/// Spins until `cycles` have passed.
pub(crate) fn spin_for<M: Machine>(cycles: Cycles) {
    let (start, mut spin) = (M::now(), Spin::<M>::new());
    while M::now().wrapping_sub(start) < cycles {
        spin.wait();
    }
}

pub use backoff::{Backoff, BackoffPolicy, Retry, RetryOptions};
pub use clock::{Clock, Clocks};
pub use extension::{Extension, ReadPhaseOptions};
pub use table::{METHODS, MethodInfo, Otherwise, why_not};
pub use timestamp::{Outcome, RetainedTimestamp, Source, Stamper, TimestampOptions, Timestamps};
