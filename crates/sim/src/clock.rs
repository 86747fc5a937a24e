//! The frequency of this host thread's simulated clocks.

use std::cell::Cell;

thread_local! {
    static HERTZ: Cell<f64> = const { Cell::new(1e9) };
}

/// Sets the frequency; it stays when the chip or explorer that set it is gone.
pub(crate) fn set_hertz(hertz: f64) {
    HERTZ.set(hertz);
}

/// Returns the frequency, in Hz.
pub(crate) fn hertz() -> f64 {
    HERTZ.get()
}
