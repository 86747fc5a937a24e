//! Experiments as files: a question, what is fixed, what is varied, what to plot, and what must come out.
//!
//! | module | what it does |
//! | --- | --- |
//! | `file` | the format, and the points that a file asks for |
//! | `assertion` | trends as expressions over the points |
//! | `sweep` | runs the points that are not there yet, and keeps them |
//! | `plot` | the figure |
//! | `page` | the page |

mod assertion;
mod file;
mod page;
mod plot;
mod sweep;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::result::{Breakdown, Spread};

pub use assertion::{Judgement, Verdict, judge};
pub use file::{Assertion, Experiment, Point, Published};
pub use page::{index, page, verdict_table};
pub use plot::{published_svg, svg};
pub use sweep::{Folder, Swept, kept, sweep};

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

impl X {
    /// The number, if it is one.
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

/// What was measured at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The curve.
    pub series: String,
    /// Where on the x-axis.
    pub x: X,
    /// Committed transactions, or operations, a second.
    pub throughput: Spread,
    /// Of all tries, the fraction that a conflict aborted.
    pub abort_rate: f64,
    /// Half of the transactions took no longer, in nanoseconds.
    pub latency_ns_p50: u64,
    /// 99 of 100 took no longer.
    pub latency_ns_p99: u64,
    /// Of the requests that left the private caches, the fraction that memory or another socket answered.
    pub last_level_misses: Option<f64>,
    /// Where the time went.
    pub breakdown: Option<Breakdown>,
    /// Simulated accesses.
    pub accesses: u64,
    /// How long the host took to simulate them.
    pub host_seconds: f64,
    /// What the verification pass said, if there was one.
    pub verified: Option<String>,
}

/// All measurements of an experiment, by series and in the order of x.
pub type Curves = BTreeMap<String, Vec<Measurement>>;
