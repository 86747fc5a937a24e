//! Microbenchmarks without transactions: how fast a machine hands out timestamps, adds to one
//! counter, or passes a line between threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contend_engine::Options;
use contend_machine::{Atomic64, Machine, Native, Ordering, available_cores, pin_to_core};
use contend_protocols::method::{Stamper, TimestampOptions, Timestamps};
use contend_sim::{Chip, Simulated};
use crossbeam_utils::CachePadded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use contend_runner::Stop;
use contend_runner::machine::ChipConfig;
use contend_runner::names::{named_settings, options, simulation_specs};
use contend_runner::start_gate::StartGate;
use contend_runner::stats::Spread;
use contend_runner::{RunConfig, RunError};

/// A microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Microbench {
    /// Every thread only draws timestamps (DBx1000, figure 6).
    Timestamps,
    /// Every thread only adds to one counter (CCBench, figure 6).
    Increments,
    /// Pairs of threads pass a line to each other. The rate is that of the passes. A single thread
    /// passes the line to itself.
    Transfers,
}

impl Microbench {
    /// All microbenchmarks.
    pub const ALL: [Microbench; 3] = [Microbench::Timestamps, Microbench::Increments, Microbench::Transfers];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Microbench::Timestamps => "timestamps",
            Microbench::Increments => "increments",
            Microbench::Transfers => "transfers",
        }
    }
}

/// The result of a microbenchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MicrobenchResult {
    /// Operations per second, of all threads together.
    pub per_second: Spread,
    /// The last-level miss ratio, on a simulated chip only: the fraction of the requests beyond the
    /// private caches that memory or another socket answered.
    pub last_level_misses: Option<f64>,
    /// A hash over every access of the simulation, in hexadecimal, on a simulated chip only.
    #[serde(default)]
    pub trace_hash: Option<String>,
}

/// Instructions around an operation: a call, a loop, a count.
const INSTRUCTIONS_AROUND: u32 = 10;
/// Operations between two checks whether the window is over.
const BATCH: u64 = 16;

/// A valid configuration of a microbenchmark.
#[derive(Clone, Debug)]
pub struct MicrobenchPlan {
    micro: Microbench,
    /// The machine, its threads and windows.
    config: RunConfig,
    chip: Option<ChipConfig>,
    options: TimestampOptions,
}

impl MicrobenchPlan {
    /// Turns a configuration into a microbenchmark. Only the machine, threads, windows and settings
    /// of the configuration apply.
    ///
    /// # Errors
    /// A number is out of range, or an option is unknown or has a wrong value.
    pub fn resolve(config: &RunConfig, micro: Microbench) -> Result<MicrobenchPlan, RunError> {
        config.check_numbers()?;
        let settings = named_settings(&config.settings)?;
        let specs = TimestampOptions::specs();
        let of_chip = if config.chip.is_some() { simulation_specs() } else { Vec::new() };
        let valid: Vec<&str> = specs.iter().chain(&of_chip).map(|spec| spec.name).collect();
        if let Some(name) = settings.keys().find(|name| !valid.contains(&name.as_str())) {
            return Err(RunError::BadInput(format!(
                "unknown option '{name}' of {}; valid: {}",
                micro.name(),
                valid.join(", ")
            )));
        }
        let chip = config.chip_config()?;
        Ok(MicrobenchPlan { micro, config: config.clone(), chip, options: options(&[], &settings)? })
    }

    /// Returns the microbenchmark.
    pub fn micro(&self) -> Microbench {
        self.micro
    }

    /// Returns the simulated chip; `None` is this machine.
    pub fn chip(&self) -> Option<&ChipConfig> {
        self.chip.as_ref()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Returns the same plan with another seed.
    pub fn with_seed(&self, seed: u64) -> MicrobenchPlan {
        let mut plan = self.clone();
        plan.config.seed = seed;
        plan.chip.iter_mut().for_each(|chip| chip.options.seed = seed);
        plan
    }
}

/// Runs a microbenchmark for its warm-up and windows.
///
/// # Errors
/// It was stopped, or the host has no room for the chip.
pub fn microbench(plan: &MicrobenchPlan, stop: &Stop) -> Result<MicrobenchResult, RunError> {
    let MicrobenchPlan { micro, config, chip, options } = plan;
    match chip {
        None => on_host(config, *micro, options.clone(), stop),
        // The simulation runs on a thread of its own, because the chip's memory belongs to its host
        // thread.
        Some(chip) => std::thread::scope(|scope| {
            let one = || on_chip(config, chip, *micro, options.clone(), stop);
            scope.spawn(one).join().expect("a simulation does not panic")
        }),
    }
}

/// The work of one thread.
struct Work<M: Machine> {
    micro: Microbench,
    stamper: Stamper<M>,
    counter: Arc<CachePadded<M::U64>>,
    /// The number of passes so far. The first thread of the pair passes at even numbers, the second
    /// at odd ones.
    turn: Arc<CachePadded<M::U64>>,
    /// The thread's place in its pair, 0 or 1; and whether it has no partner.
    place: u64,
    alone: bool,
}

impl<M: Machine> Work<M> {
    fn all(micro: Microbench, options: TimestampOptions, threads: usize) -> Vec<Work<M>> {
        let timestamps = Timestamps::<M>::new(options, threads);
        let word = || Arc::new(CachePadded::new(M::U64::new(0)));
        let (counter, turns) = (word(), (0..threads.div_ceil(2)).map(|_| word()).collect::<Vec<_>>());
        let work = |thread: usize| Work {
            micro,
            stamper: timestamps.of_worker(thread),
            counter: Arc::clone(&counter),
            turn: Arc::clone(&turns[thread / 2]),
            place: thread as u64 % 2,
            alone: thread.is_multiple_of(2) && thread + 1 == threads,
        };
        (0..threads).map(work).collect()
    }

    /// Tries one operation, and returns whether it was done.
    #[inline]
    fn once(&mut self) -> bool {
        match self.micro {
            Microbench::Timestamps => {
                M::work(INSTRUCTIONS_AROUND);
                std::hint::black_box(self.stamper.stamp());
                true
            }
            // Relaxed: the counter publishes nothing; only the line's way between the cores counts.
            Microbench::Increments => {
                self.counter.fetch_add(1, Ordering::Relaxed);
                true
            }
            Microbench::Transfers => {
                // Relaxed, also below: the turn publishes nothing but itself. The other worker's
                // load reads this store's value sooner or later, which is what is measured.
                let turn = self.turn.load(Ordering::Relaxed);
                let mine = self.alone || turn % 2 == self.place;
                if mine {
                    // Relaxed: as above.
                    self.turn.store(turn + 1, Ordering::Relaxed);
                }
                mine
            }
        }
    }
}

fn on_host(
    config: &RunConfig,
    micro: Microbench,
    options: TimestampOptions,
    stop: &Stop,
) -> Result<MicrobenchResult, RunError> {
    let cores = available_cores();
    let mut rates = Vec::new();
    let mut all = Work::<Native>::all(micro, options, config.threads);
    let spans =
        std::iter::once(config.warmup_seconds).chain(std::iter::repeat_n(config.window_seconds, config.windows));
    for (number, seconds) in spans.enumerate() {
        let over = <Native as Machine>::U64::new(0);
        let start_line = StartGate::new();
        let (over, start_line) = (&over, &start_line);
        let rate = std::thread::scope(|scope| {
            let threads: Vec<_> = all
                .iter_mut()
                .enumerate()
                .map(|(number, work)| {
                    let core = cores[number % cores.len()];
                    scope.spawn(move || {
                        // A thread that can't be pinned is still measured.
                        let _ = pin_to_core(core);
                        start_line.wait();
                        let mut done = 0u64;
                        // Relaxed: a hint to end.
                        while over.load(Ordering::Relaxed) == 0 {
                            done += (0..BATCH).filter(|_| work.once()).count() as u64;
                        }
                        done
                    })
                })
                .collect();
            start_line.release(threads.len());
            let start = Instant::now();
            std::thread::sleep(Duration::from_secs_f64(seconds));
            // Relaxed: pairs with the workers' loads as a hint; `join` orders their results.
            over.store(1, Ordering::Relaxed);
            let elapsed = start.elapsed().as_secs_f64();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>() as f64 / elapsed
        });
        if stop.is_requested() {
            return Err(RunError::Stopped);
        }
        if number > 0 {
            rates.push(rate);
        }
    }
    let per_second = Spread::of(rates).expect("a window or more");
    Ok(MicrobenchResult { per_second, last_level_misses: None, trace_hash: None })
}

fn on_chip(
    config: &RunConfig,
    chip_config: &ChipConfig,
    micro: Microbench,
    options: TimestampOptions,
    stop: &Stop,
) -> Result<MicrobenchResult, RunError> {
    let hertz = chip_config.preset.core.hertz;
    let mut chip = Chip::new(&chip_config.preset, config.threads, chip_config.options)
        .map_err(|error| RunError::OutOfMemory(error.to_string()))?;
    let done = Rc::new(Cell::new(0u64));
    for mut work in Work::<Simulated>::all(micro, options, config.threads) {
        let done = Rc::clone(&done);
        chip.spawn(move || {
            loop {
                let was_done = work.once();
                // The count is read only now: other cores count while `once` runs.
                done.set(done.get() + u64::from(was_done));
            }
        });
    }
    let cycles = |seconds: f64| (seconds * hertz) as u64;
    let mut time = cycles(config.warmup_seconds);
    chip.run_until(time);
    chip.take_statistics();
    let mut rates = Vec::new();
    for _ in 0..config.windows {
        let before = done.get();
        let length = cycles(config.window_seconds).max(1);
        time += length;
        chip.run_until(time);
        rates.push((done.get() - before) as f64 * hertz / length as f64);
        if stop.is_requested() {
            return Err(RunError::Stopped);
        }
    }
    Ok(MicrobenchResult {
        per_second: Spread::of(rates).expect("a window or more"),
        last_level_misses: chip.take_statistics().last_level_miss_ratio(),
        trace_hash: Some(format!("{:016x}", chip.trace_hash())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_micro_benchmark_runs_on_the_host_and_on_a_chip() {
        for machine in ["native", "abyss:16"] {
            for one in Microbench::ALL {
                let config = RunConfig { windows: 2, ..RunConfig::default() }.on(machine).expect("a machine");
                let config =
                    RunConfig { window_seconds: config.window_seconds.min(0.01), warmup_seconds: 0.0, ..config };
                let plan = MicrobenchPlan::resolve(&config, one).expect("valid");
                let result = microbench(&plan, &Stop::default()).expect("a result");
                assert!(result.per_second.median > 0.0, "{machine} {one:?}");
            }
        }
    }

    #[test]
    fn an_option_of_something_else_is_refused() {
        let mut config = RunConfig::default();
        config.settings.insert("ycsb.theta".into(), "0.5".into());
        let error = MicrobenchPlan::resolve(&config, Microbench::Timestamps).expect_err("not its option").to_string();
        assert!(error.contains("'ycsb.theta'") && error.contains("timestamp.source"), "{error}");
    }
}
