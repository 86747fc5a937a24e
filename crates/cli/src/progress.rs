//! Progress bars on stderr, if stderr is a terminal, and Ctrl-C.

use std::sync::Mutex;
use std::time::Duration;

use contend_lab::interval_log::IntervalLog;
use contend_runner::{MeasuredWindow, Observer, Stop};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{INTERRUPTED, UserError, show};

/// Shows the progress of one piece of work at a time as a bar, and a line for each window if that
/// was asked for. Gives the windows to an interval log, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Bars<'l> {
    bar: Mutex<Option<ProgressBar>>,
    lines: Lines,
    log: Option<&'l IntervalLog>,
}

/// Where the line of a window goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Nowhere: no line was asked for.
    #[default]
    None,
    /// To stdout.
    Stdout,
    /// To stderr, because stdout is for machines.
    Stderr,
}

impl<'l> Bars<'l> {
    /// Returns bars, with lines that go there, and a log of all windows.
    pub(crate) fn with_lines(lines: Lines, log: Option<&'l IntervalLog>) -> Bars<'l> {
        Bars { lines, log, ..Bars::default() }
    }

    fn with(&self, action: impl FnOnce(&mut Option<ProgressBar>)) {
        action(&mut self.bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Observer for Bars<'_> {
    fn begin(&self, what: &str, units: u64) {
        // The bar hides itself if stderr is no terminal.
        let bar = ProgressBar::new(units.max(1)).with_message(what.to_string());
        let template =
            if units > 1 { "{msg:28} {wide_bar} {percent:>3} % {eta:>4}" } else { "{msg:28} {spinner} {elapsed}" };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        self.with(|slot| *slot = Some(bar));
    }

    fn advance(&self, units: u64) {
        self.with(|slot| {
            if let Some(bar) = slot {
                bar.inc(units);
            }
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }

    fn note(&self, line: &str) {
        let print = || show::complain(&format!("note: {line}"));
        self.with(|slot| match slot {
            Some(bar) => bar.suspend(print),
            None => print(),
        });
    }

    fn window(&self, entry: &str, line: &str) {
        if self.lines == Lines::None {
            return;
        }
        let text = format!("{entry:<16} {line}");
        // A reader that has closed its pipe wants no more lines.
        let print = || match self.lines {
            Lines::Stderr => show::complain(&text),
            _ => drop(show::print(&format!("{text}\n"))),
        };
        self.with(|slot| match slot {
            Some(bar) => bar.suspend(print),
            None => print(),
        });
    }

    fn measured(&self, window: &MeasuredWindow<'_>) {
        if let Some(log) = self.log {
            log.add(window);
        }
    }
}

/// Returns the request to stop that Ctrl-C makes. A second Ctrl-C ends the process.
///
/// # Errors
/// The handler of the signal can't be installed.
pub(crate) fn stop_on_interrupt() -> Result<Stop, UserError> {
    let stop = Stop::default();
    let pressed = stop.clone();
    ctrlc::set_handler(move || {
        if pressed.is_requested() {
            std::process::exit(i32::from(INTERRUPTED));
        }
        pressed.request();
    })?;
    Ok(stop)
}
