//! The configuration of a run: the choices of a person, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contend_engine::IndexKind;
use contend_machine::available_cores;
use contend_sim::{ChipOptions, Preset};
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::machine::{ChipConfig, MachineChoice, NATIVE, SimulationOptions};
use crate::names::{options, unknown};

/// A run, complete: the same configuration on the same machine runs the same again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// A workload or preset.
    pub workload: String,
    /// Protocols, in any order; each may be followed by options of this entry only, as in
    /// `silo+cu=on+ts=on`. A name alone, as in `silo+cu`, is an option that is on.
    pub protocols: Vec<String>,
    /// `hash` or `ordered`; none: hash, unless the workload needs an order.
    pub index: Option<String>,
    /// The machine: `native`, or a chip that is simulated, whose parameters are in `chip`.
    pub machine: String,
    /// The simulated chip.
    pub chip: Option<Preset>,
    /// Worker threads; on a simulated chip, one on each of so many cores.
    pub threads: usize,
    /// Length of a measuring window, in seconds.
    pub window_seconds: f64,
    /// The most measuring windows of each protocol: a comparison ends earlier if all is told that
    /// was asked.
    pub windows: usize,
    /// To what each ratio is to be known, up or down, as a fraction (0.03: to 3 %). None: a
    /// comparison asks which protocols are slower than the first.
    // Left out where there is none, so that points that were measured before there was a precision
    // stay those of their experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// What a protocol runs unmeasured before its first window, in seconds; [`WARMUP_AGAIN`] of it
    /// before each further one.
    pub warmup_seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether each protocol is proved right first.
    pub verify: bool,
    /// Committed transactions after which that ends; on a slow machine it ends earlier.
    pub verify_transactions: u64,
    /// Whether it is said where the time went. Always so on a simulated chip.
    pub breakdown: bool,
    /// The folder of the log, if there is one, of a single protocol; none: one that is removed when
    /// the run is over.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Options that differ from the defaults: what `--set` sets.
    pub settings: BTreeMap<String, String>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            workload: "ycsb-a".into(),
            protocols: vec![ALL.into()],
            index: None,
            machine: NATIVE.into(),
            chip: None,
            threads: available_cores().len(),
            window_seconds: 0.1,
            windows: WINDOWS,
            precision: None,
            warmup_seconds: 0.5,
            seed: 42,
            verify: true,
            verify_transactions: 20_000,
            breakdown: false,
            dir: None,
            settings: BTreeMap::new(),
        }
    }
}

/// Instead of protocols: all that can run the workload.
pub const ALL: &str = "all";
/// The most threads of a run on the host.
pub const THREADS_MAX: usize = 1000;
/// Windows of each protocol, at most: with 18 protocols 40 rounds take 95 seconds.
pub const WINDOWS: usize = 40;
/// The same where a precision is asked for.
pub const WINDOWS_PRECISE: usize = 400;
/// The same on a simulated chip.
const SIMULATED_WINDOWS: usize = 20;
/// What is warmed up before each window but the first, as a part of the first warm-up. The tables
/// were in use a round ago: it is the caches that another protocol has filled since.
pub const WARMUP_AGAIN: f64 = 0.04;
/// Length of a window on a simulated chip: some transactions of each of a thousand cores.
const SIMULATED_SECONDS: f64 = 0.0001;
/// Length of a warm-up there: contended throughput falls for that long (docs/simulator.md).
const SIMULATED_WARMUP_SECONDS: f64 = 0.0005;
/// The most seconds of a window.
pub const SECONDS_MAX: f64 = 86_400.0;
/// The finest precision that can be asked for.
pub const PRECISION_MIN: f64 = 0.001;
/// The coarsest.
pub const PRECISION_MAX: f64 = 0.5;
/// The most windows.
pub const WINDOWS_MAX: usize = 10_000;

/// An index by its name.
///
/// # Errors
/// There is none of this name; the message lists the names.
pub fn index_kind(name: &str) -> Result<IndexKind, RunError> {
    match name {
        "hash" => Ok(IndexKind::Hash),
        "ordered" => Ok(IndexKind::Ordered),
        _ => Err(unknown("index", name, ["hash", "ordered"])),
    }
}

/// An index's name.
pub fn index_name(index: IndexKind) -> &'static str {
    match index {
        IndexKind::Hash => "hash",
        IndexKind::Ordered => "ordered",
    }
}

impl RunConfig {
    /// The same on another machine, with as many threads as were asked for of it, else as it has,
    /// and with windows that suit it.
    ///
    /// # Errors
    /// There is no such machine, or it has fewer cores.
    pub fn on(mut self, machine: &str) -> Result<RunConfig, RunError> {
        let MachineChoice { chip, cores } = MachineChoice::parse(machine)?;
        self.machine = machine.into();
        match &chip {
            Some(chip) => {
                self.threads = cores.unwrap_or_else(|| chip.threads_max());
                (self.window_seconds, self.warmup_seconds) = (SIMULATED_SECONDS, SIMULATED_WARMUP_SECONDS);
                self.windows = SIMULATED_WINDOWS;
            }
            None => {
                let native = RunConfig::default();
                self.threads = native.threads;
                (self.window_seconds, self.warmup_seconds) = (native.window_seconds, native.warmup_seconds);
                self.windows = native.windows;
            }
        }
        self.chip = chip;
        Ok(self)
    }

    /// Returns the simulated chip with its options; `None` if the machine is the host.
    ///
    /// # Errors
    /// An option of the simulation has a wrong value.
    pub fn chip_config(&self) -> Result<Option<ChipConfig>, RunError> {
        let Some(preset) = self.chip.clone() else { return Ok(None) };
        let SimulationOptions { lookahead, warm } = options(&[], &self.settings)?;
        Ok(Some(ChipConfig { preset, options: ChipOptions { lookahead, warm, seed: self.seed } }))
    }

    /// Checks threads, windows and seconds.
    ///
    /// # Errors
    /// The first that is out of range, with the range.
    pub fn check_numbers(&self) -> Result<(), RunError> {
        let in_range = |what: &str, value: usize, max: usize| {
            let message = || format!("{what} is {value}; valid: 1 to {max}");
            if (1..=max).contains(&value) { Ok(()) } else { Err(RunError::BadInput(message())) }
        };
        match &self.chip {
            None => in_range("threads", self.threads, THREADS_MAX)?,
            Some(chip) => in_range(&format!("threads on {}", chip.name), self.threads, chip.threads_max())?,
        }
        in_range("windows", self.windows, WINDOWS_MAX)?;
        if let Some(precision) = self.precision
            && !(PRECISION_MIN..=PRECISION_MAX).contains(&precision)
        {
            let [given, least, most] = [precision, PRECISION_MIN, PRECISION_MAX].map(|part| (part * 1e6).round() / 1e4);
            return Err(RunError::BadInput(format!("precision is {given} %; valid: {least} % to {most} %")));
        }
        if self.precision.is_some() && self.chip.is_some() {
            return Err(RunError::BadInput(
                "a precision is of turns on this machine (native): a simulation is exact, and has as many windows as --windows says".into(),
            ));
        }
        if self.verify_transactions == 0 {
            return Err(RunError::BadInput("transactions to verify are 0; valid: 1 or more".into()));
        }
        let least = if self.chip.is_some() { 1e-6 } else { 1e-3 };
        if !(least..=SECONDS_MAX).contains(&self.window_seconds) {
            let seconds = self.window_seconds;
            return Err(RunError::BadInput(format!("seconds is {seconds}; valid: {least} to {SECONDS_MAX}")));
        }
        if !(0.0..=SECONDS_MAX).contains(&self.warmup_seconds) {
            let seconds = self.warmup_seconds;
            return Err(RunError::BadInput(format!("warmup is {seconds}; valid: 0 to {SECONDS_MAX}")));
        }
        Ok(())
    }
}
