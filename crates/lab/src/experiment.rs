//! Experiments as files: a question, the fixed and the varied parameters, a figure, and assertions
//! about the outcome.
//!
//! | module | what it does |
//! | --- | --- |
//! | `file` | the format, and the points that a file asks for |
//! | `assertion` | trends as expressions over the points |
//! | `key` | what decides a point, and the hash of it |
//! | `store` | the points of a folder, a file for each |
//! | `tasks` | the points to measure, and the shards of a sweep |
//! | `sweep` | measures the points that are not there yet, and keeps them |
//! | `merge` | the points of several folders in one |
//! | `plot` | the figure |
//! | `page` | the page |

mod assertion;
mod file;
mod key;
mod merge;
mod page;
mod plot;
mod store;
mod sweep;
mod tasks;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Breakdown, Spread};

pub use assertion::{COMMITS_MIN, Judgement, Verdict, judge};
pub use file::{Assertion, Experiment, Point, PointWork, Published, SEEDS_MAX};
pub use key::{Fingerprint, POINT_VERSION, PointKey, is_hash};
pub use merge::merge;
pub use page::{index, page, verdict_table, wrapped};
pub use plot::{Figure, drawn, published};
pub use store::{Machines, POINT_SCHEMA, PointFile, PointOutcome, Store};
pub use sweep::{Manner, is_missing, sweep};
pub use tasks::{FailedPoint, Progress, SHARDS_MAX, Shard, Task, tasks};

/// A value on the x-axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// A name.
    Text(String),
}

impl Default for X {
    fn default() -> Self {
        X::Whole(0)
    }
}

impl X {
    /// Returns the number, or `None` if the value is a name.
    pub fn number(&self) -> Option<f64> {
        match self {
            X::Whole(number) => Some(*number as f64),
            X::Number(number) => Some(*number),
            X::Text(_) => None,
        }
    }
}

impl std::fmt::Display for X {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            X::Whole(number) => write!(f, "{number}"),
            X::Number(number) => write!(f, "{number}"),
            X::Text(text) => f.write_str(text),
        }
    }
}

/// The measurement of one point. Several experiments may share it, so its file has neither the
/// curve nor the place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The curve.
    #[serde(skip)]
    pub series: String,
    /// The place on the x-axis.
    #[serde(skip)]
    pub x: X,
    /// The machine, if the figures depend on it.
    #[serde(skip)]
    pub machine: Option<Fingerprint>,
    /// Committed transactions, or operations, per second.
    pub throughput: Spread,
    /// The fraction of all tries that a conflict aborted.
    pub abort_rate: f64,
    /// The median latency, in nanoseconds.
    pub latency_ns_p50: u64,
    /// The 99th percentile of latency.
    pub latency_ns_p99: u64,
    /// The fraction of the requests beyond the private caches that memory or another socket
    /// answered.
    pub last_level_misses: Option<f64>,
    /// The breakdown of the time.
    pub breakdown: Option<Breakdown>,
    /// Simulated accesses.
    pub accesses: u64,
    /// The time that the simulation took on the host, in seconds.
    pub host_seconds: f64,
    /// The verdict of the verification pass, if there was one.
    pub verified: Option<String>,
    /// The seed. `None` for points of this machine.
    pub seed: Option<u64>,
    /// Commits in all windows, over all seeds. `None` for operations other than transactions.
    pub commits: Option<u64>,
    /// The throughput of a single commit in all windows together.
    pub throughput_of_one: f64,
    /// The same point from each seed, if there are several. Then the throughput has the median, the
    /// smallest and the largest of theirs.
    #[serde(skip)]
    pub seeds: Vec<Measurement>,
}

/// All measurements of an experiment, by series and in the order of x.
pub type Curves = BTreeMap<String, Vec<Measurement>>;

impl Measurement {
    /// Returns a measurement of this throughput, without a place and without further figures.
    fn of(throughput: Spread) -> Measurement {
        Measurement {
            series: String::new(),
            x: X::default(),
            machine: None,
            throughput,
            abort_rate: 0.0,
            latency_ns_p50: 0,
            latency_ns_p99: 0,
            last_level_misses: None,
            breakdown: None,
            accesses: 0,
            host_seconds: 0.0,
            verified: None,
            seed: None,
            commits: None,
            throughput_of_one: 0.0,
            seeds: Vec::new(),
        }
    }

    /// Merges the same point from several seeds: adds up counts, and takes the medians of all other
    /// figures.
    fn merged(seeds: Vec<Measurement>) -> Option<Measurement> {
        let first = seeds.first()?;
        if seeds.len() == 1 {
            return seeds.into_iter().next();
        }
        let median = |of: &dyn Fn(&Measurement) -> Option<f64>| Spread::of(seeds.iter().filter_map(of));
        let middle = |of: &dyn Fn(&Measurement) -> Option<f64>| median(of).map(|spread| spread.median);
        let latency =
            |of: &dyn Fn(&Measurement) -> u64| middle(&|point| Some(of(point) as f64)).map_or(0, |ns| ns as u64);
        Some(Measurement {
            throughput: median(&|point| Some(point.throughput.median))?,
            abort_rate: middle(&|point| Some(point.abort_rate))?,
            latency_ns_p50: latency(&|point| point.latency_ns_p50),
            latency_ns_p99: latency(&|point| point.latency_ns_p99),
            last_level_misses: middle(&|point| point.last_level_misses),
            accesses: seeds.iter().map(|point| point.accesses).sum(),
            host_seconds: seeds.iter().map(|point| point.host_seconds).sum(),
            commits: seeds.iter().map(|point| point.commits).sum(),
            throughput_of_one: 1.0 / seeds.iter().map(|point| 1.0 / point.throughput_of_one).sum::<f64>(),
            seed: None,
            // The shares of one seed sum to 1; medians over several seeds need not.
            breakdown: first.breakdown.clone(),
            series: first.series.clone(),
            x: first.x.clone(),
            machine: first.machine.clone(),
            verified: first.verified.clone(),
            seeds,
        })
    }
}
