//! What a run writes down. `docs/result_schema.md` describes every field.

use std::collections::BTreeMap;

use contend_sim::Statistics;
use serde::{Deserialize, Serialize};

pub use contend_judge::{CycleEdge, Verification};
use contend_runner::names::{entry_name, named_settings};
pub use contend_runner::stats::Spread;
use contend_runner::{RunConfig, RunError};

pub use crate::paired::Ratio;

/// The version of this schema. It rises when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 4;

/// The columns of [`ResultFile::to_csv`], by the names of the result file's fields.
pub const CSV_COLUMNS: [&str; 22] = [
    "workload",
    "machine",
    "threads",
    "protocol",
    "isolation",
    "throughput_tps_median",
    "throughput_tps_min",
    "throughput_tps_max",
    "windows",
    "commits",
    "aborts",
    "abort_rate",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p95",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
    "memory_bytes",
    "memory_bytes_per_record",
    "checks",
    "verdict",
];

/// A whole result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether the run was stopped before its end.
    pub partial: bool,
    /// Whether that was because memory was nearly used up.
    pub memory_ran_short: bool,
    /// When it began: seconds since 1970.
    pub started_unix_seconds: u64,
    /// How long it took, in seconds.
    pub elapsed_seconds: f64,
    /// What was run.
    pub config: RunConfig,
    /// Every option of the workload with the value it had.
    pub options: BTreeMap<String, String>,
    /// On what it ran.
    pub environment: Environment,
    /// What came out, the fastest protocol first; those without a figure last.
    pub protocols: Vec<ProtocolResult>,
    /// How protocols were told apart; none if there were fewer than two, or no round in which all
    /// had a window.
    pub comparison: Option<Comparison>,
    /// What to make of it, in a sentence or two.
    pub finding: String,
    /// What to take, what is as good, what each costs, what to try next, and what was not tested: a
    /// sentence or two each.
    pub recommendation: Vec<String>,
}

/// How the entries of a comparison were told apart: by their ratios in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The entry that all others are compared with: the fastest of those that promise something.
    pub first: Option<String>,
    /// Rounds in which all entries had a window.
    pub rounds: usize,
    /// Pairs of entries, for all of which the intervals hold together.
    pub pairs: usize,
    /// The probability with which they do: of equal entries no two are told apart.
    pub confidence: f64,
    /// The confidence of each interval by itself.
    pub confidence_each: f64,
    /// Why no more rounds were measured: `told` (all that was asked), `limit` (no more were
    /// allowed), or `stopped`.
    pub ended: String,
}

impl Comparison {
    /// On how many rounds the ratios rest, and how sure they are, in words.
    pub fn basis(&self) -> String {
        let pairs = match self.pairs {
            1 => String::new(),
            pairs => format!(" for all {pairs} pairs together"),
        };
        format!("ratios by {} rounds, with {:.0} % confidence{pairs}", self.rounds, self.confidence * 100.0)
    }
}

/// On what a run ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Contend's version.
    pub version: String,
    /// The commit that it was built from, if known.
    pub commit: Option<String>,
    /// The machine of the transactions: `native` is the host.
    pub machine: String,
    /// How transactions call their protocol: `static`, inlined into the workload, as in a build for
    /// measuring; or `dynamic`, behind a pointer. Empty in results of before this was recorded.
    #[serde(default)]
    pub dispatch: String,
    /// The host's instruction set.
    pub architecture: String,
    /// The processor, as it names itself.
    pub cpu_model: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// The host's memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Frequency of the clock that latencies are measured with.
    pub clock_hz: f64,
    /// Memory for which huge pages were asked.
    pub huge_pages_advised_bytes: u64,
    /// Memory of the process that huge pages backed when all was loaded.
    pub huge_pages_granted_bytes: u64,
}

/// What came out for one protocol. A protocol that failed a check has no figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolResult {
    /// The protocol, with the options that were set for this entry only.
    pub protocol: String,
    /// The isolation level that it promises.
    pub isolation: String,
    /// Every option of the protocol, of the engine, and of trying again, with the value it had.
    pub options: BTreeMap<String, String>,
    /// The figures.
    pub measured: Option<Measured>,
    /// What the verification pass found, if there was one.
    pub verification: Option<Verification>,
    /// The workload's own check after the run: what was checked, or what was wrong.
    pub check: Option<Check>,
}

impl ProtocolResult {
    /// Whether a check failed that the protocol has to pass.
    pub fn failed(&self) -> bool {
        self.verification.as_ref().is_some_and(|verification| !verification.passed)
            || self.check.as_ref().is_some_and(|check| !check.passed)
    }
}

/// The figures of one protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Committed transactions a second, over the windows.
    pub throughput_tps: Spread,
    /// The group, from 1, of an entry that promises something: in the first are the first and all
    /// that are not told apart from it; in the second the fastest of the others, and all of them
    /// that are not told apart from that; and so on.
    pub group: Option<usize>,
    /// The throughput in parts of that of the comparison's first, by rounds.
    pub to_first: Option<Ratio>,
    /// The throughput in parts of that of `none`, the upper bound, by rounds.
    pub to_none: Option<Ratio>,
    /// Transactions that committed, in all windows.
    pub commits: u64,
    /// Tries that were aborted by a conflict, in all windows.
    pub aborts: u64,
    /// Of all tries, the fraction that was aborted by a conflict.
    pub abort_rate: f64,
    /// Aborted tries by their reason; `user` are transactions that gave up by their own decision.
    pub aborts_by_reason: BTreeMap<String, u64>,
    /// Half of the transactions took no longer, from the first try to the commit, in nanoseconds.
    pub latency_ns_p50: u64,
    /// 90 of 100 took no longer; 0 in results of before this was recorded.
    #[serde(default)]
    pub latency_ns_p90: u64,
    /// 95 of 100 took no longer; 0 in results of before this was recorded.
    #[serde(default)]
    pub latency_ns_p95: u64,
    /// 99 of 100 took no longer.
    pub latency_ns_p99: u64,
    /// 999 of 1000 took no longer.
    pub latency_ns_p999: u64,
    /// The longest that was seen.
    pub latency_ns_max: u64,
    /// Every latency that was timed, by its bucket; not in the file.
    #[serde(skip)]
    pub latencies: Vec<Bucket>,
    /// The same by type of transaction.
    pub kinds: Vec<KindResult>,
    /// Bytes of tables and indexes after loading.
    pub loaded_bytes: u64,
    /// Bytes of tables and indexes after the run.
    pub memory_bytes: u64,
    /// `loaded_bytes` for each loaded record.
    pub memory_bytes_per_record: f64,
    /// What became of old versions; none of protocols that keep none.
    pub versions: Option<Versions>,
    /// What the log did; none, if there was none.
    pub log: Option<LogResult>,
    /// How long loading took.
    pub load_seconds: f64,
    /// Whether a history was recorded meanwhile, which makes transactions slower.
    pub recorded: bool,
    /// Where the workers' time went, if that was asked for.
    pub breakdown: Option<Breakdown>,
    /// What the simulated chip did.
    pub simulation: Option<SimulationResult>,
    /// The windows.
    pub windows: Vec<Window>,
}

/// Latencies that are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The greatest of them, in nanoseconds: to three digits.
    pub ns: u64,
    /// How many there are.
    pub count: u64,
}

impl Measured {
    /// The distribution of latencies as HdrHistogram's tools print and plot it: the latency in
    /// nanoseconds, the quantile, how many took no longer, and 1 / (1 - quantile).
    pub fn latency_distribution(&self) -> String {
        let total: u64 = self.latencies.iter().map(|bucket| bucket.count).sum();
        let mut text =
            format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
        let (mut below, mut sum) = (0, 0.0);
        for Bucket { ns, count } in &self.latencies {
            below += count;
            sum += *ns as f64 * *count as f64;
            let quantile = below as f64 / total as f64;
            let inverse = if below == total { "inf".into() } else { format!("{:.2}", 1.0 / (1.0 - quantile)) };
            text += &format!("{ns:>12} {quantile:>14.12} {below:>10} {inverse:>14}\n");
        }
        let mean = sum / total.max(1) as f64;
        let square = |bucket: &Bucket| (bucket.ns as f64 - mean).powi(2) * bucket.count as f64;
        let deviation = (self.latencies.iter().map(square).sum::<f64>() / total.max(1) as f64).sqrt();
        let max = self.latencies.last().map_or(0, |bucket| bucket.ns);
        text += &format!("#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n");
        text += &format!("#[Max     = {max:>12}, Total count    = {total:>12}]\n");
        let buckets = self.latencies.len();
        text += &format!("#[Buckets = {buckets:>12}, SubBuckets     = {:>12}]\n", 1);
        text
    }
}

/// What came out for one type of transaction. Latencies are in nanoseconds; one transaction in 16
/// is timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// The type.
    pub kind: String,
    /// Transactions that committed, in all windows.
    pub commits: u64,
    /// Tries that were aborted by a conflict, in all windows.
    pub aborts: u64,
    /// Of all tries, the fraction that was aborted by a conflict.
    pub abort_rate: f64,
    /// Aborted tries by their reason.
    pub aborts_by_reason: BTreeMap<String, u64>,
    /// Transactions that were timed.
    pub samples: u64,
    /// Half took no longer.
    pub latency_ns_p50: u64,
    /// 90 of 100 took no longer; 0 in results of before this was recorded.
    #[serde(default)]
    pub latency_ns_p90: u64,
    /// 95 of 100 took no longer; 0 in results of before this was recorded.
    #[serde(default)]
    pub latency_ns_p95: u64,
    /// 99 of 100 took no longer.
    pub latency_ns_p99: u64,
    /// 999 of 1000 took no longer.
    pub latency_ns_p999: u64,
    /// The longest that was seen.
    pub latency_ns_max: u64,
}

/// What a log did in the measured windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogResult {
    /// Bytes that were written, of each transaction that committed.
    pub bytes_per_commit: f64,
    /// Half of the transactions were durable so many nanoseconds after they began, or sooner; one
    /// in 16 is timed.
    pub durable_ns_p50: u64,
    /// 99 of 100 were.
    pub durable_ns_p99: u64,
    /// The longest that was seen.
    pub durable_ns_max: u64,
}

/// What became of old versions, from loading to the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Old versions that were there at the end.
    pub alive: u64,
    /// Their bytes.
    pub alive_bytes: u64,
    /// Old versions that were made.
    pub made: u64,
    /// Of these, in memory that had been used before.
    pub reused: u64,
    /// Given back, to be used again.
    pub collected: u64,
    /// Of these, while a transaction ran that had begun before they were replaced: by aggressive
    /// collection.
    pub collected_early: u64,
    /// Records by how many old versions are kept of them at the end: none, 1, 2 and 3, 4 to 7, and
    /// so on.
    pub records_by_versions: Vec<u64>,
}

/// Where the workers' time went: shares of all of it, twice divided.
///
/// The six categories of DBx1000 (Yu et al., VLDB 2014, section 3.2): `abort` is all that was done
/// for tries that did not commit, and between them and the next; the others are of tries that
/// committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// The transactions' own logic, and copying rows.
    pub useful: f64,
    /// Tries that were aborted, and what came until the next.
    pub abort: f64,
    /// Getting timestamps.
    pub timestamp: f64,
    /// Looking keys up.
    pub index: f64,
    /// Waiting for other transactions.
    pub wait: f64,
    /// The protocol: locks, versions, validation.
    pub manager: f64,
    /// The same time by operation, whether it committed or not: `body`, `read`, `write`,
    /// `validation`, `gc`, `backoff`.
    pub operations: BTreeMap<String, f64>,
    /// Of the workers' time in the windows, the part that is accounted for. Where the time is
    /// sampled, samples by those that were due.
    pub accounted: f64,
}

impl Breakdown {
    /// The six categories, in order, with their names in DBx1000's paper.
    pub fn categories(&self) -> [(&'static str, f64); 6] {
        [
            ("useful work", self.useful),
            ("abort", self.abort),
            ("ts alloc", self.timestamp),
            ("index", self.index),
            ("wait", self.wait),
            ("manager", self.manager),
        ]
    }
}

/// What a simulated chip did in all windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulationResult {
    /// Accesses, and what answered them.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// A hash over every access of the simulation so far: who, which line, when. Two runs with one
    /// hash were the same. In hexadecimal.
    pub trace_hash: String,
    /// How long the host took.
    pub host_seconds: f64,
    /// Simulated accesses in a second of the host.
    pub accesses_per_host_second: f64,
}

/// One measuring window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its number, from 1: windows of one number were measured one after the other, a protocol
    /// each.
    pub round: usize,
    /// Its length.
    pub seconds: f64,
    /// Transactions that committed.
    pub commits: u64,
    /// Tries that were aborted by a conflict.
    pub aborts: u64,
    /// Committed transactions a second.
    pub throughput_tps: f64,
}

/// What a workload's own check said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Whether it counts as passed: found nothing wrong, or nothing was promised.
    pub passed: bool,
    /// What was checked, or what was wrong.
    pub text: String,
}

impl ResultFile {
    /// The result in this text.
    ///
    /// # Errors
    /// It is no result; the message says where.
    pub fn from_json(text: &str) -> Result<ResultFile, RunError> {
        let mut file: ResultFile =
            serde_json::from_str(text).map_err(|error| RunError::BadInput(format!("not a result file: {error}")))?;
        if file.schema_version != SCHEMA_VERSION {
            return Err(RunError::BadInput(format!(
                "a result file of schema version {}; this program reads version {SCHEMA_VERSION}",
                file.schema_version
            )));
        }
        file.use_todays_names()?;
        Ok(file)
    }

    /// Gives protocols and options of an old result the names that they have today.
    fn use_todays_names(&mut self) -> Result<(), RunError> {
        let ResultFile { config, options, protocols, comparison, .. } = self;
        config.protocols.iter_mut().for_each(|entry| *entry = entry_name(entry));
        config.settings = named_settings(&config.settings)?;
        *options = named_settings(options)?;
        for entry in protocols {
            entry.protocol = entry_name(&entry.protocol);
            entry.options = named_settings(&entry.options)?;
        }
        if let Some(first) = comparison.as_mut().and_then(|comparison| comparison.first.as_mut()) {
            *first = entry_name(first);
        }
        Ok(())
    }

    /// The result as text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data");
        text.push('\n');
        text
    }

    /// The figures as comma-separated values, an entry a line. What there is not is empty.
    ///
    /// # Errors
    /// None that can happen in memory.
    pub fn to_csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(CSV_COLUMNS)?;
        for entry in &self.protocols {
            let (config, measured) = (&self.config, entry.measured.as_ref());
            let of = |value: &dyn Fn(&Measured) -> String| measured.map(value).unwrap_or_default();
            let latency = |ns: &dyn Fn(&Measured) -> u64| {
                of(&|measured| if ns(measured) == 0 { String::new() } else { ns(measured).to_string() })
            };
            let verdict = entry.verification.as_ref().map(|verification| verification.verdict.clone());
            writer.write_record([
                config.workload.clone(),
                config.machine.clone(),
                config.threads.to_string(),
                entry.protocol.clone(),
                entry.isolation.clone(),
                of(&|measured| measured.throughput_tps.median.to_string()),
                of(&|measured| measured.throughput_tps.min.to_string()),
                of(&|measured| measured.throughput_tps.max.to_string()),
                of(&|measured| measured.windows.len().to_string()),
                of(&|measured| measured.commits.to_string()),
                of(&|measured| measured.aborts.to_string()),
                of(&|measured| measured.abort_rate.to_string()),
                latency(&|measured| measured.latency_ns_p50),
                latency(&|measured| measured.latency_ns_p90),
                latency(&|measured| measured.latency_ns_p95),
                latency(&|measured| measured.latency_ns_p99),
                latency(&|measured| measured.latency_ns_p999),
                latency(&|measured| measured.latency_ns_max),
                of(&|measured| measured.memory_bytes.to_string()),
                of(&|measured| measured.memory_bytes_per_record.to_string()),
                if entry.failed() { "failed" } else { "passed" }.to_owned(),
                verdict.unwrap_or_default(),
            ])?;
        }
        let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether a check failed that a protocol has to pass.
    pub fn failed(&self) -> bool {
        self.protocols.iter().any(ProtocolResult::failed)
    }
}
