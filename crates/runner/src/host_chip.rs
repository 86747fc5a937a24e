//! A simulated chip that is like this machine. Its caches are as the kernel describes them, and its
//! lines and memory as `bench limit` measures them. Its core is fitted to two runs of one thread.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contend_engine::NamedProtocol;
use contend_machine::{Machine, Native, available_cores};
use contend_protocols::optimistic::silo::Silo;
use contend_sim::chip::{CachePreset, CoherencePreset, CorePreset, LastLevelPreset, MemoryPreset, NetworkPreset};
use contend_sim::{Preset, Simulated};
use contend_workloads::Workload;
use contend_workloads::ycsb::Ycsb;

use crate::config::RunConfig;
use crate::error::RunError;
use crate::machine::HOST;
use crate::machine_limits::{Limits, limits};
use crate::names::options;
use crate::progress::{Silent, Stop};
use crate::session::{Interval, NewSession, RunPurpose};
use crate::stats::Spread;

/// Records of the run to which the core's speed is fitted: all fit into private caches.
const FEW_RECORDS: u64 = 1_000;
/// Records of the run to which the overlap of misses is fitted: more than the caches hold.
const MANY_RECORDS: u64 = 1_000_000;
/// Steps of a fit: enough for a hundredth of the range.
const STEPS: usize = 7;
/// Cycles of a hit, by level. The kernel does not tell them; these are typical of today's server
/// cores. The first level's are those that an out-of-order core does not hide.
const HIT_CYCLES: [u32; 3] = [1, 14, 40];

/// Returns the chip. It is measured once in a process, which takes some seconds.
///
/// # Errors
/// This machine could not be measured.
pub fn host_preset() -> Result<Preset, RunError> {
    static MEASURED: Mutex<Option<Preset>> = Mutex::new(None);
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(preset) = &*measured {
        return Ok(preset.clone());
    }
    let preset = measure()?;
    *measured = Some(preset.clone());
    Ok(preset)
}

fn measure() -> Result<Preset, RunError> {
    let cores = available_cores().len();
    let measured = limits(cores.min(2), 3, Duration::from_millis(60), &Stop::default(), &Silent)?;
    let mut preset = unfitted(cores, &measured);
    fit_core(&mut preset)?;
    Ok(preset)
}

/// Returns the chip that the kernel describes and that `measured` bounds, with a core that is not
/// fitted yet.
fn unfitted(cores: usize, measured: &Limits) -> Preset {
    let hertz = Native::cycles_per_second();
    let increments: Vec<f64> =
        measured.increments_per_second.iter().map(|one| hertz / one.increments_per_second.median).collect();
    let alone = increments[0];
    let handoff = increments.iter().copied().fold(alone, f64::max) as u32;
    let l1 = cache(1).unwrap_or(CachePreset { bytes: 32 << 10, ways: 8, cycles: HIT_CYCLES[0] });
    let l2 = cache(2).unwrap_or(CachePreset { bytes: 1 << 20, ways: 16, cycles: HIT_CYCLES[1] });
    let llc_bytes = cache_of(3).map_or(cores * (2 << 20), |(bytes, _)| bytes);
    let memory = (measured.dependent_read_ns * hertz / 1e9) as u32;
    Preset {
        name: HOST.into(),
        summary: "a chip like this machine".into(),
        source: "this machine's kernel, contend bench limit, and a fit to two runs of one thread".into(),
        core: CorePreset {
            count: cores,
            scales: false,
            threads_per_core: 1,
            shared_core_slowdown: 1.0,
            hertz,
            cycles_per_instruction: 0.5,
            instructions_per_access: 10,
            atomic_cycles: (alone - f64::from(l1.cycles)).max(0.0) as u32,
            fence_cycles: 30,
            pause_cycles: 40,
            clock_cycles: 25,
            prefetches: 12,
            stall: 0.5,
        },
        llc: LastLevelPreset {
            slice_bytes: (llc_bytes / cores).max(64),
            tag_cycles: HIT_CYCLES[2] / 2,
            data_cycles: HIT_CYCLES[2] - HIT_CYCLES[1],
            inclusive: false,
        },
        coherence: CoherencePreset {
            exclusive_reads: true,
            blocking: false,
            handoff_cycles: [handoff, handoff],
            line_cycles: 2,
        },
        network: NetworkPreset::Sockets { tiles_per_socket: cores, local_cycles: 5, link_cycles: Vec::new() },
        memory: MemoryPreset {
            // The time of a dependent read, less the path through the caches.
            cycles: memory.saturating_sub(HIT_CYCLES.iter().sum()).max(1),
            tiles_per_controller: cores,
            bytes_per_second: measured.prefetched_reads_per_second.median * 64.0 * cores as f64,
        },
        l1,
        l2: Some(l2),
    }
}

/// Fits the core's speed and its overlap of misses to runs on this machine.
fn fit_core(preset: &mut Preset) -> Result<(), RunError> {
    // Throughput falls with the cycles of an instruction, and with the part of a miss that the core
    // waits for.
    let target = throughput(&native(FEW_RECORDS))?;
    preset.core.cycles_per_instruction = fit(0.02, 2.0, target, |value| {
        let mut tried = preset.clone();
        tried.core.cycles_per_instruction = value;
        throughput(&on(tried, FEW_RECORDS))
    })?;
    let target = throughput(&native(MANY_RECORDS))?;
    preset.core.stall = fit(0.0, 1.0, target, |value| {
        let mut tried = preset.clone();
        tried.core.stall = value;
        throughput(&on(tried, MANY_RECORDS))
    })?;
    // The measured increment has fewer instructions around it than an access of the engine.
    let around = f64::from(preset.core.instructions_per_access) * preset.core.cycles_per_instruction;
    preset.core.atomic_cycles = (f64::from(preset.core.atomic_cycles) - around).max(0.0) as u32;
    Ok(())
}

/// Returns the value at which `of`, which falls as the value grows, meets the target. Halves the
/// range in each step.
fn fit(
    mut low: f64,
    mut high: f64,
    target: f64,
    mut of: impl FnMut(f64) -> Result<f64, RunError>,
) -> Result<f64, RunError> {
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if of(middle)? > target { low = middle } else { high = middle }
    }
    Ok((low + high) / 2.0)
}

fn base(records: u64) -> RunConfig {
    let mut config = RunConfig {
        workload: "ycsb".into(),
        protocols: vec!["silo".into()],
        threads: 1,
        windows: 3,
        verify: false,
        ..RunConfig::default()
    };
    // The chip is fitted to reads that wait for their misses.
    config.settings.insert("ycsb.batch".into(), "off".into());
    config.settings.insert("ycsb.records".into(), records.to_string());
    config.settings.insert("ycsb.read".into(), "1".into());
    config
}

fn native(records: u64) -> RunConfig {
    RunConfig { window_seconds: 0.1, warmup_seconds: 0.1, ..base(records) }
}

fn on(chip: Preset, records: u64) -> RunConfig {
    let (window_seconds, warmup_seconds) = (0.0002, 0.0005);
    RunConfig { chip: Some(chip), machine: HOST.into(), window_seconds, warmup_seconds, ..base(records) }
}

/// Returns the median throughput of the windows of a run.
fn throughput(config: &RunConfig) -> Result<f64, RunError> {
    let plan = config.resolve()?;
    let stop = Stop::default();
    let run = || {
        let options = options::<<Ycsb as Workload>::Options>(&[], &plan.config.settings)?;
        let (entry, purpose) = (&plan.protocols[0], RunPurpose::Measure);
        let new = NewSession::<Ycsb> { plan: &plan, entry, options: &options, purpose };
        // By its type, as in a build for measuring: a call through a pointer would be in the fit.
        let mut session = match plan.chip {
            None => new.native::<Silo>(NamedProtocol::<Native>::new(Default::default()))?,
            Some(_) => new.simulated::<Silo>(NamedProtocol::<Simulated>::new(Default::default()))?,
        };
        session.load(&stop, &|_| ())?;
        let mut rate = |seconds: f64| {
            let interval = Interval { length: Duration::from_secs_f64(seconds), transactions_max: None };
            let counted = session.run(interval, &stop, &|_| ())?;
            Ok(counted.tally.commits() as f64 / counted.seconds)
        };
        rate(config.warmup_seconds)?;
        let rates: Vec<f64> =
            (0..config.windows).map(|_| rate(config.window_seconds)).collect::<Result<_, RunError>>()?;
        session.settle()?;
        Ok(Spread::of(rates).map_or(0.0, |rates| rates.median))
    };
    match config.chip {
        None => run(),
        // The simulation runs on a thread of its own, because the chip's memory belongs to its host
        // thread.
        Some(_) => std::thread::scope(|scope| scope.spawn(run).join().expect("a simulation does not panic")),
    }
}

/// Returns a private cache of this machine as the kernel describes it, with its sets rounded down
/// to a power of two.
fn cache(level: usize) -> Option<CachePreset> {
    let (bytes, ways) = cache_of(level)?;
    let sets = (bytes / 64 / ways).checked_ilog2()?;
    Some(CachePreset { bytes: (64 * ways) << sets, ways, cycles: HIT_CYCLES[level - 1] })
}

/// Returns the bytes and ways of the data cache of a level.
fn cache_of(level: usize) -> Option<(usize, usize)> {
    (0..8).find_map(|index| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            fs::read_to_string(path).ok().map(|text| text.trim().to_string())
        };
        if read("level")? != level.to_string() || read("type")? == "Instruction" {
            return None;
        }
        let size = read("size")?;
        let kib: usize = size.strip_suffix('K')?.parse().ok()?;
        let ways = read("ways_of_associativity")?.parse().ok().filter(|ways| *ways > 0)?;
        Some((kib << 10, ways))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_meets_its_target() {
        let found = fit(0.0, 10.0, 25.0, |value| Ok(100.0 / (1.0 + value))).expect("no error");
        assert!((found - 3.0).abs() < 0.1, "{found}");
    }
}
