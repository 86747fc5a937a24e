//! Optimisation methods: small types that a run combines with any protocol (CCBench, VLDB 2020, section 4).

pub mod backoff;
pub mod clock;
pub mod extension;
pub mod table;
pub mod timestamp;

use contend_machine::{Cycles, Machine, Spin};

/// Waits for so many cycles.
pub(crate) fn pass<M: Machine>(cycles: Cycles) {
    let (start, mut spin) = (M::now(), Spin::<M>::new());
    while M::now().wrapping_sub(start) < cycles {
        spin.wait();
    }
}

pub use backoff::{Backoff, Method, Retry, RetryOptions};
pub use clock::{Clock, Clocks};
pub use extension::{Extension, ReadPhaseOptions};
pub use table::{METHODS, MethodInfo, Otherwise, why_not};
pub use timestamp::{Source, Stamper, TimestampOptions, Timestamps};
