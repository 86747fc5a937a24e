//! The points that experiments ask for as a list of tasks, and the part of them that one shard of a
//! sweep measures.

use std::collections::HashSet;
use std::str::FromStr;

use contend_runner::RunError;

use super::key::PointKey;
use super::store::{Machines, PointFile, Store};
use super::{Experiment, Point, PointWork};

/// A point to measure, from one seed.
#[derive(Clone, Debug)]
pub struct Task {
    /// The point. If several experiments share it, it is that of the first.
    pub point: Point,
    /// The id of that experiment.
    pub experiment: String,
    /// What decides its measurement.
    pub key: PointKey,
    /// The hash of the key.
    pub hash: String,
    /// An estimate of the time that it takes, in seconds of the host.
    pub cost_seconds: f64,
}

impl Task {
    /// Returns whether a chip is simulated. Otherwise the host is measured, and nothing else may
    /// run on it.
    pub fn is_simulated(&self) -> bool {
        self.point.config().chip.is_some()
    }

    /// Returns the point in words: its place in the experiment, and its seed.
    pub fn place(&self) -> String {
        let Point { series, x, .. } = &self.point;
        format!("{}, {series} at {x}, seed {}", self.experiment, self.point.config().seed)
    }
}

/// What is there of a list of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Points with figures.
    pub there: usize,
    /// Points without.
    pub missing: usize,
    /// Points that failed.
    pub failed: Vec<FailedPoint>,
}

/// A point that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedPoint {
    /// The point in words.
    pub place: String,
    /// The hash that names its file.
    pub hash: String,
    /// The reason.
    pub reason: String,
}

impl Progress {
    /// Returns what is there of these tasks.
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a Task>, store: &Store, machines: Machines) -> Progress {
        let mut progress = Progress::default();
        for task in tasks {
            match store.of_point(&task.key, machines).map(PointFile::failure) {
                None => progress.missing += 1,
                Some(None) => progress.there += 1,
                Some(Some(reason)) => progress.failed.push(FailedPoint {
                    place: task.place(),
                    hash: task.hash.clone(),
                    reason: reason.to_owned(),
                }),
            }
        }
        progress
    }
}

/// Returns the points of these experiments, from `seeds` seeds each or as many as the experiment
/// says. Each is named once, and the most expensive come first.
///
/// The order depends on the experiments alone, not on the machine: shards are dealt by it.
///
/// # Errors
/// A point can't be run, or not from that number of seeds.
pub fn tasks<'a>(
    experiments: impl IntoIterator<Item = &'a Experiment>,
    seeds: Option<usize>,
) -> Result<Vec<Task>, RunError> {
    let (mut tasks, mut seen) = (Vec::new(), HashSet::new());
    for experiment in experiments {
        let seeds = seeds.or(experiment.run.seeds).unwrap_or(1);
        experiment.check_seeds(seeds)?;
        for point in experiment.points()?.iter().flat_map(|point| from_seeds(point, seeds)) {
            let key = PointKey::of(&point);
            let anywhere = key.anywhere();
            if seen.insert(anywhere.clone()) {
                let (hash, cost_seconds) = (key.hash(), cost_seconds(&point));
                tasks.push((anywhere, Task { point, experiment: experiment.id.clone(), key, hash, cost_seconds }));
            }
        }
    }
    tasks.sort_by(|(one, a), (other, b)| b.cost_seconds.total_cmp(&a.cost_seconds).then_with(|| one.cmp(other)));
    Ok(tasks.into_iter().map(|(_, task)| task).collect())
}

/// Returns the point from each seed. A native point has one seed only, because no seed determines
/// what it measures.
fn from_seeds(point: &Point, seeds: usize) -> Vec<Point> {
    let seeds = if point.config().chip.is_some() { seeds as u64 } else { 1 };
    (0..seeds).map(|seed| point.with_seed(point.config().seed.wrapping_add(seed))).collect()
}

/// Cycles of all simulated cores that a host simulates in a second, roughly. Costs only order
/// points, so the order of magnitude is enough.
const CYCLES_PER_SECOND: f64 = 4e7;
/// Bytes of tables that a host loads in a second, roughly.
const LOADED_PER_SECOND: f64 = 1e9;

/// Estimates the time that a point takes on the host.
fn cost_seconds(point: &Point) -> f64 {
    let config = point.config();
    let measured = config.warmup_seconds + config.windows as f64 * config.window_seconds;
    let loaded = match &point.work {
        PointWork::Workload(plan) => plan.estimated_bytes(false).iter().map(|(_, bytes)| *bytes as f64).sum::<f64>(),
        PointWork::Microbench(_) => 0.0,
    };
    let run = match &config.chip {
        Some(chip) => measured * config.threads as f64 * cost_hertz(point, chip.core.hertz) / CYCLES_PER_SECOND,
        None => measured,
    };
    run + loaded / LOADED_PER_SECOND
}

/// Returns the clock of a point's chip. That of a chip like this machine is measured, and would
/// order points differently on each machine.
fn cost_hertz(point: &Point, hertz: f64) -> f64 {
    if super::key::is_reproducible(point) { hertz } else { 1e9 }
}

/// One of several parts of a sweep, as in `3/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the part, from 1.
    number: usize,
    /// The number of parts.
    count: usize,
}

/// The most shards of a sweep.
pub const SHARDS_MAX: usize = 100_000;

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let whole =
            |digits: &str| digits.parse::<usize>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let numbers = text.split_once('/').and_then(|(number, count)| Some((whole(number)?, whole(count)?)));
        match numbers {
            Some((number, count)) if count <= SHARDS_MAX && (1..=count).contains(&number) => {
                Ok(Shard { number, count })
            }
            _ => Err(format!("valid: I/N with I from 1 to N and N up to {SHARDS_MAX}, as in 3/16")),
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl Shard {
    /// Returns the tasks of this part. Tasks are dealt in turns, so each part has expensive and
    /// cheap ones.
    pub fn of(self, tasks: Vec<Task>) -> Vec<Task> {
        tasks.into_iter().skip(self.number - 1).step_by(self.count).collect()
    }
}
