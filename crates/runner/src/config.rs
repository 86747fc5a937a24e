//! The configuration of a run: the choices of a user, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contend_engine::IndexKind;
use contend_machine::available_cores;
use contend_sim::{ChipOptions, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::error::RunError;
use crate::machine::{ChipConfig, MachineChoice, NATIVE, SimulationOptions};
use crate::names::{options, unknown};
use crate::units::show_given;

/// A complete run. The same configuration on the same machine gives the same run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunConfig {
    /// The name of a workload or preset, or the path of a workload file.
    pub workload: String,
    /// The text of the workload file. A plan has it, so that a result repeats without the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_text: Option<String>,
    /// Entries: protocols, each optionally with options of its own, as in `silo+cu=on+ts=on`. An
    /// option without a value, as in `silo+cu`, is on.
    pub protocols: Vec<String>,
    /// `hash` or `ordered`. `None` means hash, unless the workload needs an ordered index.
    pub index: Option<String>,
    /// The machine: `native`, or a simulated chip, whose parameters are in `chip`.
    pub machine: String,
    /// The simulated chip.
    pub chip: Option<Preset>,
    /// The number of worker threads. On a simulated chip each has a core of its own.
    pub threads: usize,
    /// The length of a measuring window, in seconds.
    pub window_seconds: f64,
    /// The largest number of measuring windows of each protocol. A comparison ends earlier once its
    /// question is answered.
    pub windows: usize,
    /// The precision of each ratio, up or down, as a fraction (0.03 is 3 %). `None`: a comparison
    /// asks only which protocols are slower than the first.
    // Left out where there is none. So points measured before this field existed still match their
    // experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// How transactions arrive. `None`: in a closed loop, where each worker starts a transaction
    /// when its last one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// The time that a protocol runs unmeasured before its first window, in seconds. Before each
    /// further window it runs for [`WARMUP_AGAIN`] of this time.
    pub warmup_seconds: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether each protocol is verified before it is measured.
    pub verify: bool,
    /// The number of committed transactions of a verification. On a slow machine it ends earlier.
    pub verify_transactions: u64,
    /// Whether times are broken down by phase. On a simulated chip they always are.
    pub breakdown: bool,
    /// Whether each entry is compared with what this machine's memory allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_limit: bool,
    /// The folder of the log of a single protocol. `None`: a temporary folder, removed after the
    /// run.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Options that differ from the defaults, as set by `--set`.
    pub settings: BTreeMap<String, String>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            workload: "ycsb-a".into(),
            workload_text: None,
            protocols: vec![ALL.into()],
            index: None,
            machine: NATIVE.into(),
            chip: None,
            threads: available_cores().len(),
            window_seconds: 0.1,
            windows: WINDOWS,
            precision: None,
            arrivals: None,
            warmup_seconds: 0.5,
            seed: 42,
            verify: true,
            verify_transactions: 20_000,
            breakdown: false,
            memory_limit: false,
            dir: None,
            settings: BTreeMap::new(),
        }
    }
}

/// The word that stands for all protocols that can run the workload.
pub const ALL: &str = "all";
/// The largest number of threads of a run on the host.
pub const THREADS_MAX: usize = 1000;
/// The default for the largest number of windows: with 18 protocols 40 rounds take 95 seconds.
pub const WINDOWS: usize = 40;
/// The same default if a precision is asked for.
pub const WINDOWS_PRECISE: usize = 400;
/// The same default on a simulated chip.
const SIMULATED_WINDOWS: usize = 20;
/// The warm-up before each window but the first, as a part of the first warm-up. The tables were in
/// use a round ago; only the caches were filled by another protocol since.
pub const WARMUP_AGAIN: f64 = 0.04;
/// The length of a window on a simulated chip: some transactions on each of a thousand cores.
const SIMULATED_SECONDS: f64 = 0.0001;
/// The length of a warm-up there: contended throughput falls for that long (docs/simulator.md).
const SIMULATED_WARMUP_SECONDS: f64 = 0.0005;
/// The longest window, in seconds.
pub const SECONDS_MAX: f64 = 86_400.0;
/// The finest precision that is accepted.
pub const PRECISION_MIN: f64 = 0.001;
/// The coarsest precision that is accepted.
pub const PRECISION_MAX: f64 = 0.5;
/// The largest number of windows that is accepted.
pub const WINDOWS_MAX: usize = 10_000;

/// Returns the index of this name.
///
/// # Errors
/// There is no such index; the message lists the names.
pub fn index_kind(name: &str) -> Result<IndexKind, RunError> {
    match name {
        "hash" => Ok(IndexKind::Hash),
        "ordered" => Ok(IndexKind::Ordered),
        _ => Err(unknown("index", name, ["hash", "ordered"])),
    }
}

/// Returns the name of an index.
pub fn index_name(index: IndexKind) -> &'static str {
    match index {
        IndexKind::Hash => "hash",
        IndexKind::Ordered => "ordered",
    }
}

impl RunConfig {
    /// Whether one of the entries stands for all protocols that can run the workload.
    pub fn has_all(&self) -> bool {
        self.protocols.iter().any(|entry| entry == ALL)
    }

    /// Returns the same configuration on another machine. The number of threads is the one given
    /// after the colon, or the machine's own. The windows are the defaults of that kind of machine.
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
        // The limit is that of the host's memory.
        self.memory_limit &= chip.is_none();
        self.chip = chip;
        Ok(self)
    }

    /// Returns the simulated chip with its options; `None` if the machine is the host.
    ///
    /// # Errors
    /// An option of the simulation has a wrong value.
    pub fn chip_config(&self) -> Result<Option<ChipConfig>, RunError> {
        let Some(preset) = self.chip.clone() else { return Ok(None) };
        let SimulationOptions { lookahead, warm, work } = options(&[], &self.settings)?;
        Ok(Some(ChipConfig {
            preset,
            options: ChipOptions { lookahead, warm, work, seed: self.seed, ..ChipOptions::default() },
        }))
    }

    /// Checks the numbers of threads and windows, and the times.
    ///
    /// # Errors
    /// The first number that is out of range; the message has the range.
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
                "a precision is for measurements on this machine (native): a simulation is exact, and runs as many windows as --windows says".into(),
            ));
        }
        if let Some(arrivals) = &self.arrivals {
            arrivals.check()?;
            if self.precision.is_some() {
                return Err(RunError::BadInput(
                    "a precision is that of ratios of throughput, and with a rate of arrivals each entry that keeps up has the same; \
                     valid: --precision without --rate"
                        .into(),
                ));
            }
        }
        if self.memory_limit && self.chip.is_some() {
            return Err(RunError::BadInput(
                "the memory's limit (--limit) is that of this machine (native): a simulated chip shows its misses"
                    .into(),
            ));
        }
        if self.verify_transactions == 0 {
            return Err(RunError::BadInput("transactions to verify are 0; valid: 1 or more".into()));
        }
        let least = if self.chip.is_some() { 1e-6 } else { 1e-3 };
        if !(least..=SECONDS_MAX).contains(&self.window_seconds) {
            let seconds = show_given(self.window_seconds);
            return Err(RunError::BadInput(format!("seconds is {seconds}; valid: {least} to {SECONDS_MAX}")));
        }
        if !(0.0..=SECONDS_MAX).contains(&self.warmup_seconds) {
            let seconds = show_given(self.warmup_seconds);
            return Err(RunError::BadInput(format!("warmup is {seconds}; valid: 0 to {SECONDS_MAX}")));
        }
        Ok(())
    }
}
