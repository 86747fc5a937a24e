//! Progress bars on stderr, if that is a terminal, and Ctrl-C.

use std::sync::Mutex;
use std::time::Duration;

use contend_runner::{Observer, Stop};
use indicatif::{ProgressBar, ProgressStyle};

use crate::UserError;

/// A bar for whatever runs.
#[derive(Debug, Default)]
pub(crate) struct Bars(Mutex<Option<ProgressBar>>);

impl Bars {
    fn with(&self, action: impl FnOnce(&mut Option<ProgressBar>)) {
        action(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Observer for Bars {
    fn begin(&self, what: &str, units: u64) {
        // Hidden by itself where stderr is no terminal.
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
}

/// A request to stop that Ctrl-C makes; pressed again, the process ends.
pub(crate) fn stop_on_interrupt() -> Result<Stop, UserError> {
    let stop = Stop::default();
    let pressed = stop.clone();
    ctrlc::set_handler(move || {
        if pressed.is_requested() {
            std::process::exit(130);
        }
        pressed.request();
    })?;
    Ok(stop)
}
