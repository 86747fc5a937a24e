//! Who looks on while a run runs, and may stop it.

use std::sync::Arc;

use contend_machine::{Machine, Native, Ordering};

/// A request to stop, that can be made from any thread, once and for all.
#[derive(Clone, Debug)]
pub struct Stop(Arc<<Native as Machine>::U64>);

impl Default for Stop {
    fn default() -> Self {
        Stop(Arc::new(<Native as Machine>::U64::new(0)))
    }
}

/// Values of the word of [`Stop`], besides 0.
const ASKED: u64 = 1;
const MEMORY: u64 = 2;

impl Stop {
    /// Asks the run to stop: it returns what it has, within some milliseconds.
    pub fn request(&self) {
        // Relaxed: nothing else is told by it.
        self.0.store(ASKED, Ordering::Relaxed);
    }

    /// Asks the run to stop because memory is nearly used up.
    pub fn request_for_memory(&self) {
        // Relaxed: as in `request`.
        self.0.store(MEMORY, Ordering::Relaxed);
    }

    /// Whether memory was the reason.
    pub fn is_for_memory(&self) -> bool {
        // Relaxed: as in `request`.
        self.0.load(Ordering::Relaxed) == MEMORY
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        // Relaxed: as in `request`.
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Is told how far a run has come.
pub trait Observer: Sync {
    /// Something begins that takes this many units.
    fn begin(&self, what: &str, units: u64);
    /// So many units more are done. Called by any thread.
    fn advance(&self, units: u64);
    /// It has ended.
    fn end(&self);
}

/// Looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}
