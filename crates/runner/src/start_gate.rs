//! The common start of many threads.

use std::time::Duration;

use contend_machine::{Machine, Native, Ordering};

type Word = <Native as Machine>::U64;

/// A gate that holds threads back until all have arrived.
///
/// A barrier of mutex and condition variable would wake the threads one after the other. Each would
/// then wait for its turn behind threads that already run: with many threads a core, for seconds.
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

    /// Arrives, and returns when all threads are released.
    pub fn wait(&self) {
        // Relaxed: `release` reads the count only to learn that this thread has arrived, and takes
        // no other data from it.
        self.ready.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the gate passes no data. The threads got theirs when they were spawned.
        while self.go.load(Ordering::Relaxed) == 0 {
            Native::yield_now();
        }
    }

    /// Waits until `threads` threads have arrived, and releases them.
    pub fn release(&self, threads: usize) {
        // Relaxed: pairs with the `fetch_add` in `wait`, which passes no data but the count.
        while self.ready.load(Ordering::Relaxed) < threads as u64 {
            std::thread::sleep(Duration::from_micros(200));
        }
        // Relaxed: pairs with the loads of `go` in `wait`, which take no other data from it.
        self.go.store(1, Ordering::Relaxed);
    }
}
