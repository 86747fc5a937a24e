//! What a run reports, kept until the waiting caller looks.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use contend_cli::Observer;
use pyo3::prelude::*;

/// The time between two looks at signals and progress.
const LOOK: Duration = Duration::from_millis(50);

/// The reports of a run. Its threads write them, and the caller reads them.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    reports: Mutex<Reports>,
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct Reports {
    /// The step that is under way, with the units that are done and all of its units.
    step: Option<(String, u64, u64)>,
    /// Whether the step has changed since the caller has looked.
    is_new: bool,
    /// Entries of windows, each with its line.
    windows: Vec<(String, String)>,
    has_ended: bool,
}

/// Notes at its drop that the run has ended.
pub(crate) struct EndedAtDrop<'a>(&'a Watch);

impl Drop for EndedAtDrop<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.has_ended.notify_all();
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns what notes the end of the run, also if the run panics.
    pub(crate) fn ended_at_drop(&self) -> EndedAtDrop<'_> {
        EndedAtDrop(self)
    }

    /// Waits until it is time for a look, or the run has ended. Returns whether it has.
    pub(crate) fn wait(&self) -> bool {
        let waited = self.has_ended.wait_timeout_while(self.lock(), LOOK, |reports| !reports.has_ended);
        waited.map_or(true, |(reports, _)| reports.has_ended)
    }

    /// Tells the receiver what is new. The lock is not held meanwhile.
    ///
    /// # Errors
    /// What the receiver raises.
    pub(crate) fn tell(&self, py: Python<'_>, receiver: Option<&Py<PyAny>>) -> PyResult<()> {
        let (step, windows) = {
            let mut reports = self.lock();
            let step = if std::mem::take(&mut reports.is_new) { reports.step.clone() } else { None };
            (step, std::mem::take(&mut reports.windows))
        };
        let Some(receiver) = receiver else { return Ok(()) };
        for (entry, line) in windows {
            receiver.call1(py, (entry, line, py.None()))?;
        }
        if let Some(step) = step {
            receiver.call1(py, step)?;
        }
        Ok(())
    }
}

impl Observer for Watch {
    fn begin(&self, what: &str, units: u64) {
        let mut reports = self.lock();
        (reports.step, reports.is_new) = (Some((what.to_owned(), 0, units)), true);
    }

    fn advance(&self, units: u64) {
        let mut reports = self.lock();
        reports.is_new = true;
        if let Some((_, done, total)) = &mut reports.step {
            *done = (*done + units).min(*total);
        }
    }

    fn end(&self) {
        let mut reports = self.lock();
        reports.is_new = true;
        if let Some((_, done, total)) = &mut reports.step {
            *done = *total;
        }
    }

    fn window(&self, entry: &str, line: &str) {
        self.lock().windows.push((entry.to_owned(), line.to_owned()));
    }
}
