//! How near a protocol comes to what this machine's memory allows.
//!
//! A transaction must touch certain lines, whatever the code around them does. They are counted on
//! a simulated core that runs the same transactions on tables of the same size: the lines that its
//! only cache, of the size of a first-level cache, does not hold. The memory is measured by random
//! reads of lines, prefetched well ahead, by all threads at once, from as many bytes as the tables
//! have. Their quotient is the limit: no code is faster that takes each line from memory.
//!
//! A share of more than 1 is possible: the host's larger caches answer some of the lines that the
//! simulated core counts, as the hot rows of a skewed workload. The count ends before an epoch
//! does, so what the collection of old versions touches is not in it.

use std::time::Duration;

use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_runner::machine_limits::prefetched_line_reads;
use contend_runner::names::common_specs;
use contend_runner::{Observer, ProtocolPlan, RunConfig, RunError, RunPlan, Silent, Stop};

use crate::compare::compare;
use crate::result::{MemoryLimit, ProtocolResult};

/// The machine on which lines are counted.
const CHIP: &str = "abyss:1";
/// The simulated times of a count, in seconds: the next one is tried if too few transactions have
/// committed.
const SECONDS: [f64; 3] = [0.002, 0.016, 0.128];
const WARMUP_SECONDS: f64 = 0.0002;
/// Transactions that suffice for a count: rare types of transactions are among them.
const ENOUGH: u64 = 500;
/// The fewest transactions of a count.
const FEWEST: u64 = 20;
/// The bytes and ways of the simulated core's cache.
const CACHE: (usize, usize) = (32 << 10, 8);
/// Rounds and length of the measurement of the memory.
const ROUNDS: usize = 5;
const WINDOW: Duration = Duration::from_millis(100);

/// Returns the lines that a transaction of a configuration with one entry touches, each counted
/// once as long as a cache of this many bytes and ways holds it; and the number of transactions,
/// which is `enough` or more where that takes less than a tenth of a simulated second.
///
/// # Errors
/// The run can't be simulated, too few transactions commit, or it was stopped.
pub fn lines_per_transaction(
    config: &RunConfig,
    (bytes, ways): (usize, usize),
    enough: u64,
    stop: &Stop,
) -> Result<(f64, u64), RunError> {
    let mut counted = config.clone().on(CHIP)?;
    let chip = counted.chip.as_mut().expect("it was named");
    (chip.l1.bytes, chip.l1.ways, chip.l2) = (bytes, ways, None);
    // A line that is read and then written is one line.
    chip.coherence.exclusive_reads = true;
    (counted.windows, counted.warmup_seconds) = (1, WARMUP_SECONDS);
    (counted.verify, counted.breakdown, counted.precision, counted.dir) = (false, false, None, None);
    let mut found = (0.0, 0);
    for seconds in SECONDS {
        counted.window_seconds = seconds;
        let result = compare(&counted.resolve()?, stop, &Silent)?;
        let measured = result.protocols.first().and_then(|entry| entry.measured.as_ref()).ok_or(RunError::Stopped)?;
        let simulation = measured.simulation.as_ref().ok_or(RunError::Stopped)?;
        found = (simulation.statistics.misses as f64 / measured.commits.max(1) as f64, measured.commits);
        if measured.commits >= enough {
            break;
        }
    }
    if found.1 < FEWEST {
        return Err(RunError::BadInput(format!(
            "{} commit on a simulated core within {} s; a count of lines needs {FEWEST}",
            contend_model::counted(found.1, "transaction"),
            SECONDS[SECONDS.len() - 1]
        )));
    }
    Ok(found)
}

/// Returns the configuration of an entry alone, with the options that change lines: those of the
/// host's threads, memory and disk don't, and those of other protocols would be refused.
fn alone(plan: &RunPlan, entry: &ProtocolPlan) -> RunConfig {
    let mut config = RunConfig { protocols: vec![entry.info.name.into()], ..plan.config.clone() };
    let of_host = |name: &str| ["threads.", "memory.", "log."].iter().any(|group| name.starts_with(group));
    let of_protocol = all_protocols::<Native>().into_iter().filter(|(info, _)| info.name == entry.info.name);
    let specs = of_protocol.flat_map(|(_, specs)| specs).chain(plan.workload.chosen.specs());
    let known: Vec<&str> = specs.chain(common_specs()).map(|spec| spec.name).filter(|name| !of_host(name)).collect();
    config.settings = entry.settings.clone();
    config.settings.retain(|name, _| known.contains(&name.as_str()));
    config
}

/// Adds the limit to each entry that was measured. Returns a sentence for each entry whose limit
/// can't be told, which leaves the entry's figures as they are. Ends early if the run is stopped.
pub(crate) fn add(
    plan: &RunPlan,
    protocols: &mut [ProtocolResult],
    stop: &Stop,
    observer: &dyn Observer,
) -> Vec<String> {
    observer.begin("counting lines", protocols.len() as u64);
    let mut unknown = Vec::new();
    for entry in protocols.iter_mut() {
        let planned = plan.protocols.iter().find(|planned| planned.name == entry.protocol);
        if let (Some(planned), Some(measured)) = (planned, &mut entry.measured)
            && !stop.is_requested()
        {
            let (tps, bytes) = (measured.throughput_tps.median, measured.memory_bytes);
            match limit(&alone(plan, planned), tps, bytes as usize, plan.config.threads, stop) {
                Ok(limit) => measured.memory_limit = Some(limit),
                Err(RunError::Stopped) => {}
                Err(error) => unknown.push(format!("the memory's limit of {} is not known: {error}", entry.protocol)),
            }
        }
        observer.advance(1);
    }
    observer.end();
    unknown
}

fn limit(config: &RunConfig, tps: f64, bytes: usize, threads: usize, stop: &Stop) -> Result<MemoryLimit, RunError> {
    let (lines, counted) = lines_per_transaction(config, CACHE, ENOUGH, stop)?;
    let (rate, read) = prefetched_line_reads(bytes, threads, ROUNDS, WINDOW)?;
    let limit_tps = rate / lines.max(f64::MIN_POSITIVE);
    Ok(MemoryLimit {
        lines_per_transaction: lines,
        counted_transactions: counted,
        line_reads_per_second: rate,
        read_bytes: read as u64,
        limit_tps,
        share: tps / limit_tps,
    })
}
