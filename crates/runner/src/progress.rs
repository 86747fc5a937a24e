//! Progress reports of a run, and requests to stop it.

use std::sync::Arc;

use contend_machine::{Machine, Native, Ordering};

use crate::session::IntervalResult;

/// A request to stop, which any thread can make and no thread can take back.
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
    /// Asks the run to stop. It returns what it has measured, within some milliseconds.
    pub fn request(&self) {
        // Relaxed: the loads below act on the word alone, and take no other data from it.
        self.0.store(ASKED, Ordering::Relaxed);
    }

    /// Asks the run to stop because memory is nearly used up.
    pub fn request_for_memory(&self) {
        // Relaxed: as in `request`.
        self.0.store(MEMORY, Ordering::Relaxed);
    }

    /// Returns whether memory was the reason.
    pub fn is_for_memory(&self) -> bool {
        // Relaxed: as in `request`.
        self.0.load(Ordering::Relaxed) == MEMORY
    }

    /// Returns whether the run was asked to stop.
    pub fn is_requested(&self) -> bool {
        // Relaxed: as in `request`.
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// A receiver of progress reports.
pub trait Observer: Sync {
    /// A step `what` begins, which has `units` units.
    fn begin(&self, what: &str, units: u64);
    /// `units` more units are done. Any thread may call this.
    fn advance(&self, units: u64);
    /// The step has ended.
    fn end(&self);
    /// The user should know this sentence before the work goes on.
    fn note(&self, _line: &str) {}
    /// A window of this entry has been measured; `line` says what happened in it.
    fn window(&self, _entry: &str, _line: &str) {}
    /// A window of a comparison has been measured.
    fn measured(&self, _window: &MeasuredWindow<'_>) {}
}

/// A window of an entry of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredWindow<'a> {
    /// The protocol with its options.
    pub entry: &'a str,
    /// The names of the workload's types of transactions.
    pub kinds: &'static [&'static str],
    /// The length of the entry's windows before this one, in seconds.
    pub begin: f64,
    /// What happened in it.
    pub count: &'a IntervalResult,
}

/// An observer that ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}
