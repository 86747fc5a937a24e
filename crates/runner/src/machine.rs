//! The machine of a run: the host, or a simulated chip.

use std::io::Read;
use std::path::Path;

use contend_engine::options;
use contend_machine::{Machine, Native, available_cores};
use contend_sim::{ChipOptions, Preset};

use crate::config::THREADS_MAX;
use crate::error::RunError;
use crate::host_chip::host_preset;

options! {
    /// Options of the simulation.
    pub struct SimulationOptions {
        /// The number of cycles that a core may run ahead of the others. 1 is exact; larger numbers
        /// are faster and less accurate.
        "chip.lookahead" lookahead: u64 = 1, in 1..=1_000_000;
        /// Whether the last-level cache starts with the lines that were loaded last, instead of
        /// empty.
        "chip.warm" warm: bool = true, in ();
        /// The factor of the instructions that a transaction takes besides its accesses. A larger
        /// one stands for a slower system.
        "chip.work" work: u32 = 1, in 1..=1000;
    }
}

/// A chip to simulate.
#[derive(Clone, Debug)]
pub struct ChipConfig {
    /// Its parameters.
    pub preset: Preset,
    /// The options of the simulation.
    pub options: ChipOptions,
}

/// The name of the host.
pub const NATIVE: &str = Native::NAME;
/// The name of the chip that is like the host.
pub const HOST: &str = "host";

/// A machine as `--machine` names it.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineChoice {
    /// The chip; `None` is the host itself.
    pub chip: Option<Preset>,
    /// The number of cores, if one was given.
    pub cores: Option<usize>,
}

/// A machine in a list of machines.
#[derive(Clone, Debug)]
pub struct MachineInfo {
    /// The name that `--machine` takes.
    pub name: String,
    /// The largest number of threads.
    pub threads: usize,
    /// A description of one line.
    pub summary: String,
    /// The source of its parameters.
    pub source: String,
}

/// Returns all machines that have a name.
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

/// The largest size of a chip file. Real ones have some kilobytes; the limit guards against endless
/// devices.
const CHIP_BYTES_MAX: u64 = 1 << 20;

fn read_chip(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(CHIP_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

impl MachineChoice {
    /// Parses `native`, `CHIP` or `CHIP:CORES`, where a chip is a preset, `host`, or a file with
    /// the parameters of a chip.
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
        if name == NATIVE {
            return Err(RunError::BadInput(format!(
                "'{text}': a number of cores is for a simulated chip; valid: {NATIVE}, with --threads, or CHIP:CORES"
            )));
        }
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
