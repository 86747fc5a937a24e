//! How near a protocol comes to what this machine's memory allows.
//!
//! A transaction must touch certain lines, whatever the code around them does. They are counted on
//! a simulated core that runs the same transactions on tables of the same size: the lines that its
//! only cache, of the size of a first-level cache, does not hold. The memory is measured by random
//! reads of lines, prefetched well ahead, by all threads at once, from as many bytes as the tables
//! have. Their quotient is the limit: no code is faster that takes each line from memory.
//!
//! A share of more than 1 is possible: the host's larger caches answer some of the lines that the
//! simulated core counts, as the hot rows of a skewed workload.

use std::time::Duration;

use contend_runner::machine_limits::prefetched_line_reads;
use contend_runner::{Observer, RunConfig, RunError, RunPlan, Silent, Stop};

use crate::compare::compare;
use crate::result::{MemoryLimit, ProtocolResult};

/// The machine on which lines are counted.
const CHIP: &str = "abyss:1";
/// The simulated time of a count, and of its warm-up, in seconds.
const SECONDS: f64 = 0.002;
const WARMUP_SECONDS: f64 = 0.0002;
/// The bytes and ways of the simulated core's cache.
const CACHE: (usize, usize) = (32 << 10, 8);
/// Rounds and length of the measurement of the memory.
const ROUNDS: usize = 5;
const WINDOW: Duration = Duration::from_millis(100);

/// Returns the lines that a transaction of a configuration with one entry touches, each counted
/// once as long as a cache of this many bytes and ways holds it.
///
/// # Errors
/// The run can't be simulated, or was stopped.
pub fn lines_per_transaction(config: &RunConfig, (bytes, ways): (usize, usize), stop: &Stop) -> Result<f64, RunError> {
    let mut counted = config.clone().on(CHIP)?;
    let chip = counted.chip.as_mut().expect("it was named");
    (chip.l1.bytes, chip.l1.ways, chip.l2) = (bytes, ways, None);
    // A line that is read and then written is one line.
    chip.coherence.exclusive_reads = true;
    (counted.windows, counted.window_seconds, counted.warmup_seconds) = (1, SECONDS, WARMUP_SECONDS);
    (counted.verify, counted.breakdown, counted.memory_limit, counted.dir) = (false, false, false, None);
    let result = compare(&counted.resolve()?, stop, &Silent)?;
    let measured = result.protocols.first().and_then(|entry| entry.measured.as_ref()).ok_or(RunError::Stopped)?;
    let simulation = measured.simulation.as_ref().ok_or(RunError::Stopped)?;
    Ok(simulation.statistics.misses as f64 / measured.commits.max(1) as f64)
}

/// Adds the limit to each entry that was measured.
///
/// # Errors
/// The run can't be simulated, memory is short, or it was stopped.
pub(crate) fn add(
    plan: &RunPlan,
    protocols: &mut [ProtocolResult],
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<(), RunError> {
    observer.begin("counting lines", protocols.len() as u64);
    let mut rates: Vec<(u64, f64)> = Vec::new();
    for (entry, of_entry) in protocols.iter_mut().filter_map(|entry| {
        let of_entry = plan.protocols.iter().find(|planned| planned.name == entry.protocol)?;
        entry.measured.is_some().then_some((entry, of_entry))
    }) {
        let mut config = RunConfig { protocols: vec![of_entry.info.name.into()], ..plan.config.clone() };
        config.settings = of_entry.settings.clone();
        // Options of the host's threads, memory and disk change none of the lines.
        config.settings.retain(|name, _| !["threads.", "memory.", "log."].iter().any(|group| name.starts_with(group)));
        let lines = lines_per_transaction(&config, CACHE, stop)?;
        let measured = entry.measured.as_mut().expect("it was measured");
        let bytes = measured.memory_bytes.next_power_of_two();
        let known = rates.iter().find(|(of, _)| *of == bytes).map(|(_, rate)| *rate);
        let rate = match known {
            Some(rate) => rate,
            None => {
                let rate = prefetched_line_reads(bytes as usize, plan.config.threads, ROUNDS, WINDOW)?;
                rates.push((bytes, rate));
                rate
            }
        };
        let limit_tps = rate / lines.max(f64::MIN_POSITIVE);
        measured.memory_limit = Some(MemoryLimit {
            lines_per_transaction: lines,
            line_reads_per_second: rate,
            limit_tps,
            share: measured.throughput_tps.median / limit_tps,
        });
        observer.advance(1);
    }
    observer.end();
    Ok(())
}
