//! The common start of many threads.

use std::time::Duration;

use contend_machine::{Machine, Native, Ordering};

type Word = <Native as Machine>::U64;

/// Holds threads back until all have arrived. A barrier of mutex and condition would wake one after
/// the other, and each would have to wait for a turn behind those that run already: with many
/// threads a core, seconds.
pub struct StartGate {
    ready: Word,
    go: Word,
}

impl Default for StartGate {
    fn default() -> Self {
        Self::new()
    }
}

impl StartGate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        StartGate { ready: Word::new(0), go: Word::new(0) }
    }

    /// Called by each thread: returns when all are released.
    pub fn wait(&self) {
        // Relaxed, here and below: the threads share nothing else that was written meanwhile.
        self.ready.fetch_add(1, Ordering::Relaxed);
        while self.go.load(Ordering::Relaxed) == 0 {
            Native::yield_now();
        }
    }

    /// Waits until so many threads wait, and releases them.
    pub fn release(&self, threads: usize) {
        // Relaxed, also below: as in `wait`.
        while self.ready.load(Ordering::Relaxed) < threads as u64 {
            std::thread::sleep(Duration::from_micros(200));
        }
        // Relaxed: as in `wait`.
        self.go.store(1, Ordering::Relaxed);
    }
}
