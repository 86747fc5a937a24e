//! On which machine a run runs: the host, or a chip that is simulated.

use std::io::Read;
use std::path::Path;

use contend_engine::options;
use contend_machine::{Machine, Native, available_cores};
use contend_sim::{ChipOptions, Preset};

use crate::config::THREADS_MAX;
use crate::error::RunError;
use crate::host_chip::host_preset;

options! {
    /// How a chip is simulated.
    pub struct SimulationOptions {
        /// By how many cycles a core may run ahead of the others: 1 is exact, more is faster and
        /// less accurate.
        "chip.lookahead" lookahead: u64 = 1, in 1..=1_000_000;
        /// Whether the last-level cache begins with the lines that were loaded last, instead of
        /// empty.
        "chip.warm" warm: bool = true, in ();
    }
}

/// A chip to be simulated.
#[derive(Clone, Debug)]
pub struct ChipConfig {
    /// Its parameters.
    pub preset: Preset,
    /// How it is simulated.
    pub options: ChipOptions,
}

/// The name of the host.
pub const NATIVE: &str = Native::NAME;
/// The chip that is like the host.
pub const HOST: &str = "host";

/// What `--machine` names.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineChoice {
    /// The chip; none is the host itself.
    pub chip: Option<Preset>,
    /// Cores that were asked for.
    pub cores: Option<usize>,
}

/// A machine in a list.
#[derive(Clone, Debug)]
pub struct MachineInfo {
    /// What `--machine` takes.
    pub name: String,
    /// The most threads.
    pub threads: usize,
    /// One line of meaning.
    pub summary: String,
    /// Where its parameters come from.
    pub source: String,
}

/// All machines that have a name.
pub fn machines() -> Vec<MachineInfo> {
    let this = |name: &str, threads, summary: &str, source: &str| MachineInfo {
        name: name.into(),
        threads,
        summary: summary.into(),
        source: source.into(),
    };
    let mut all = vec![this(NATIVE, THREADS_MAX, "this machine itself", "")];
    let chips = Preset::all().into_iter().map(|preset| MachineInfo {
        threads: preset.threads_max(),
        name: preset.name,
        summary: preset.summary,
        source: preset.source,
    });
    all.extend(chips);
    let cores = available_cores().len();
    all.push(this(HOST, cores, "a chip like this machine", "measured when it is chosen, as by contend bench limit"));
    all
}

/// The largest file of a chip. Those that are here have some kilobytes, and a device may never end.
const CHIP_BYTES_MAX: u64 = 1 << 20;

fn read_chip(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(CHIP_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl MachineChoice {
    /// `native`; or `CHIP` or `CHIP:CORES`, where a chip is a preset, `host`, or a file with the
    /// parameters of one.
    ///
    /// # Errors
    /// There is no such chip, or it has fewer cores.
    pub fn parse(text: &str) -> Result<MachineChoice, RunError> {
        if text == NATIVE {
            return Ok(MachineChoice { chip: None, cores: None });
        }
        let (name, cores) = match text.rsplit_once(':') {
            Some((name, cores)) => (name, Some(cores)),
            None => (text, None),
        };
        let cores = cores
            .map(|cores| {
                cores.parse::<usize>().map_err(|_| {
                    RunError::BadInput(format!(
                        "'{cores}' is no number of cores; a machine is {NATIVE}, CHIP or CHIP:CORES"
                    ))
                })
            })
            .transpose()?;
        let chip = if name == HOST {
            host_preset()?
        } else if name.ends_with(".toml") {
            let text = read_chip(Path::new(name))
                .map_err(|error| RunError::Io(format!("can't read the chip '{name}': {error}")))?;
            Preset::from_toml(&text).map_err(|error| RunError::BadInput(format!("{name}: {error}")))?
        } else {
            let all: Vec<String> = Preset::all().into_iter().map(|preset| preset.name).collect();
            Preset::named(name).map_err(|_| {
                RunError::BadInput(format!(
                    "unknown machine '{name}'; valid: {NATIVE}, {HOST}, {}, or a file NAME.toml",
                    all.join(", ")
                ))
            })?
        };
        if let Some(cores) = cores
            && !(1..=chip.threads_max()).contains(&cores)
        {
            return Err(RunError::BadInput(format!(
                "machine '{text}' has {cores} cores; valid for {name}: 1 to {}",
                chip.threads_max()
            )));
        }
        Ok(MachineChoice { chip: Some(chip), cores })
    }
}
