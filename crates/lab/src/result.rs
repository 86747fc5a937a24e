//! The result file of a run. `docs/result_schema.md` describes every field.

use std::collections::BTreeMap;

use contend_model::counted;
use contend_sim::Statistics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use contend_judge::{CycleEdge, Verification};
use contend_runner::names::{entry_name, named_settings};
pub use contend_runner::stats::Spread;
use contend_runner::units::{show_latency, show_percent, show_rate};
use contend_runner::{RunConfig, RunError};

pub use crate::conflicts::{ConflictMapResult, HotKeyResult, KeysResult, PlaceResult};
pub use crate::open_loop::{Latencies, OpenLoop, WindowArrivals};
pub use crate::paired::Ratio;
use crate::schema::{self, Version};

/// The version of this schema. [`crate::schema`] says when it rises.
pub const SCHEMA_VERSION: Version = Version { major: 5, minor: 2 };

/// The most fields of a newer file that a note names.
const UNKNOWN_MAX: usize = 20;

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

/// A result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// [`SCHEMA_VERSION`].
    pub schema_version: Version,
    /// Whether the run was stopped before its end.
    pub partial: bool,
    /// Whether that was because memory was nearly used up.
    pub memory_ran_short: bool,
    /// The start of the run, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The length of the run, in seconds.
    pub elapsed_seconds: f64,
    /// The configuration of the run.
    pub config: RunConfig,
    /// Every option of the workload with its value.
    pub options: BTreeMap<String, String>,
    /// The machine and the build.
    pub environment: Environment,
    /// The results by protocol, the fastest first and those without figures last.
    pub protocols: Vec<ProtocolResult>,
    /// How the protocols were told apart. `None` if there were fewer than two, or no round in which
    /// all of them had a window.
    pub comparison: Option<Comparison>,
    /// The conclusion, in a sentence or two.
    pub finding: String,
    /// Recommendations, a sentence or two each: which protocol to take, which are as good, what
    /// each costs, what to try next, and what was not tested.
    pub recommendation: Vec<String>,
}

/// How the entries of a comparison were told apart: by their ratios in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The entry with which all others are compared: the fastest of those that promise an isolation
    /// level.
    pub first: Option<String>,
    /// Rounds in which all entries had a window.
    pub rounds: usize,
    /// The number of pairs of entries. The confidence holds for all their intervals together.
    pub pairs: usize,
    /// The probability that no two equal entries are told apart.
    pub confidence: f64,
    /// The confidence of each interval by itself.
    pub confidence_each: f64,
    /// Why no more rounds were measured: `told` (the question was answered), `limit` (no more
    /// rounds were allowed), or `stopped`.
    pub ended: String,
}

impl Comparison {
    /// Describes the rounds and the confidence behind the ratios.
    pub fn basis(&self) -> String {
        let pairs = match self.pairs {
            1 => String::new(),
            pairs => format!(" for all {pairs} pairs together"),
        };
        format!("ratios by {}, with {:.0} % confidence{pairs}", counted(self.rounds, "round"), self.confidence * 100.0)
    }
}

/// The machine and the build of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Contend's version.
    pub version: String,
    /// The commit that it was built from, if known.
    pub commit: Option<String>,
    /// The machine of the transactions: `native` is the host.
    pub machine: String,
    /// How transactions call their protocol: `static`, inlined into the workload, as in a build for
    /// measuring; or `dynamic`, behind a pointer. Empty in results that are older than this field.
    #[serde(default)]
    pub dispatch: String,
    /// The host's instruction set.
    pub architecture: String,
    /// The name that the processor reports.
    pub cpu_model: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// The host's memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The frequency of the clock that measures latencies.
    pub clock_hz: f64,
    /// Memory for which huge pages were requested.
    pub huge_pages_advised_bytes: u64,
    /// Memory of the process in huge pages, after loading.
    pub huge_pages_granted_bytes: u64,
}

/// The result of one protocol. A protocol that failed a check has no figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolResult {
    /// The protocol, with the options that were set for this entry only.
    pub protocol: String,
    /// The isolation level that it promises.
    pub isolation: String,
    /// Every option of the protocol, of the engine, and of retries, with its value.
    pub options: BTreeMap<String, String>,
    /// The figures.
    pub measured: Option<Measured>,
    /// The verdict of the verification pass, if there was one.
    pub verification: Option<Verification>,
    /// The workload's own check after the run.
    pub check: Option<Check>,
}

impl ProtocolResult {
    /// Returns whether a check failed that the protocol must pass.
    pub fn failed(&self) -> bool {
        self.verification.as_ref().is_some_and(|verification| !verification.passed)
            || self.check.as_ref().is_some_and(|check| !check.passed)
    }
}

/// The figures of one protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Committed transactions per second, over the windows.
    pub throughput_tps: Spread,
    /// The group, from 1, of an entry that promises an isolation level. The first group holds the
    /// first entry and all entries that are not told apart from it. The second holds the fastest of
    /// the others and all of these that are not told apart from it, and so on.
    pub group: Option<usize>,
    /// The ratio of the throughput to that of the comparison's first entry, by rounds.
    pub to_first: Option<Ratio>,
    /// The ratio of the throughput to that of `none`, the upper bound, by rounds.
    pub to_none: Option<Ratio>,
    /// Committed transactions in all windows.
    pub commits: u64,
    /// Tries that a conflict aborted, in all windows.
    pub aborts: u64,
    /// The fraction of all tries that a conflict aborted.
    pub abort_rate: f64,
    /// Aborted tries by reason; `user` counts transactions that cancelled themselves.
    pub aborts_by_reason: BTreeMap<String, u64>,
    /// Pieces that met a conflict and ran again without the rest of their transaction. They are not
    /// among the aborts. `None` for protocols that do not treat pieces by themselves.
    #[serde(default)]
    pub piece_retries: Option<u64>,
    /// The fraction of the threads' time in which the workload drew its transactions: the part of
    /// the measurement that is not of the engine. 0 in results that are older than this field.
    #[serde(default)]
    pub driver_share: f64,
    /// The median latency from the first try to the commit, in nanoseconds.
    pub latency_ns_p50: u64,
    /// The 90th percentile of latency; 0 in results that are older than this field.
    #[serde(default)]
    pub latency_ns_p90: u64,
    /// The 95th percentile of latency; 0 in results that are older than this field.
    #[serde(default)]
    pub latency_ns_p95: u64,
    /// The 99th percentile of latency.
    pub latency_ns_p99: u64,
    /// The 99.9th percentile of latency.
    pub latency_ns_p999: u64,
    /// The largest latency.
    pub latency_ns_max: u64,
    /// Every timed latency, by bucket; not in the file.
    #[serde(skip)]
    pub latencies: Vec<Bucket>,
    /// The figures of an open loop; missing in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoop>,
    /// Commits, aborts and latencies by type of transaction.
    pub kinds: Vec<KindResult>,
    /// Where the aborts came from. `None` if no conflict aborted a transaction, and in results that
    /// are older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_map: Option<ConflictMapResult>,
    /// The rows of each table. Empty if they were too many to count, and in results that are older
    /// than this field.
    #[serde(default)]
    pub tables: Vec<TableRows>,
    /// Bytes of tables and indexes after loading.
    pub loaded_bytes: u64,
    /// Bytes of tables and indexes after the run.
    pub memory_bytes: u64,
    /// `loaded_bytes` for each loaded record.
    pub memory_bytes_per_record: f64,
    /// The old versions; `None` for protocols without old versions.
    pub versions: Option<Versions>,
    /// The figures of the log; `None` if there was no log.
    pub log: Option<LogResult>,
    /// The time that loading took.
    pub load_seconds: f64,
    /// Whether a history was recorded at the same time, which makes transactions slower.
    pub recorded: bool,
    /// The breakdown of the workers' time, if it was requested.
    pub breakdown: Option<Breakdown>,
    /// What this machine's memory allows, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
    /// The figures of the simulated chip.
    pub simulation: Option<SimulationResult>,
    /// The windows.
    pub windows: Vec<Window>,
}

/// The rows of a table, or the entries of an index that a workload file has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableRows {
    /// The table.
    pub table: String,
    /// Its rows after loading.
    pub rows_loaded: u64,
    /// Its rows after the run.
    pub rows_at_end: u64,
}

/// What the machine's memory allows for the lines that a transaction must touch; see
/// [`crate::memory_limit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// The lines that a transaction touches, counted on a simulated core.
    pub lines_per_transaction: f64,
    /// The transactions of that count.
    pub counted_transactions: u64,
    /// Random reads of lines per second, prefetched, of all threads together.
    pub line_reads_per_second: f64,
    /// The bytes from which these lines were chosen: those of the tables, or a part of the
    /// available memory if that is less.
    pub read_bytes: u64,
    /// The transactions per second that these reads would allow.
    pub limit_tps: f64,
    /// The measured throughput as a part of that.
    pub share: f64,
}

impl MemoryLimit {
    /// Returns the sentence about an entry.
    pub fn sentence(&self, entry: &str) -> String {
        format!(
            "{entry} reaches {} of the memory's limit: a transaction touches {:.1} lines, and {} line reads a second \
             allow {} transactions",
            show_percent(self.share),
            self.lines_per_transaction,
            show_rate(self.line_reads_per_second),
            show_rate(self.limit_tps),
        )
    }
}

/// A bucket of latencies that are recorded as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The largest latency of the bucket, in nanoseconds, to three digits.
    pub ns: u64,
    /// The number of latencies in the bucket.
    pub count: u64,
}

impl Measured {
    /// Returns the distribution of latencies in the format of HdrHistogram's tools. Each line has a
    /// latency in nanoseconds, its quantile, the number of latencies up to it, and 1 / (1 -
    /// quantile).
    pub fn latency_distribution(&self) -> String {
        distribution(&self.latencies)
    }

    /// Returns the longest lag of an epoch in a window ([`Window::epoch_lag_ms`]), in words.
    pub fn epoch_lag(&self) -> String {
        let longest = self.windows.iter().map(|window| window.epoch_lag_ms).fold(0.0, f64::max);
        show_latency((longest * 1e6) as u64)
    }

    /// Returns the distribution of response times in the same format. `None` in a closed loop.
    pub fn response_distribution(&self) -> Option<String> {
        self.open_loop.as_ref().map(|open| distribution(&open.responses))
    }
}

fn distribution(times: &[Bucket]) -> String {
    let total: u64 = times.iter().map(|bucket| bucket.count).sum();
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let (mut below, mut sum) = (0, 0.0);
    for Bucket { ns, count } in times {
        below += count;
        sum += *ns as f64 * *count as f64;
        let quantile = below as f64 / total as f64;
        let inverse = if below == total { "inf".into() } else { format!("{:.2}", 1.0 / (1.0 - quantile)) };
        text += &format!("{ns:>12} {quantile:>14.12} {below:>10} {inverse:>14}\n");
    }
    let mean = sum / total.max(1) as f64;
    let square = |bucket: &Bucket| (bucket.ns as f64 - mean).powi(2) * bucket.count as f64;
    let deviation = (times.iter().map(square).sum::<f64>() / total.max(1) as f64).sqrt();
    let max = times.last().map_or(0, |bucket| bucket.ns);
    text += &format!("#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n");
    text += &format!("#[Max     = {max:>12}, Total count    = {total:>12}]\n");
    text += &format!("#[Buckets = {:>12}, SubBuckets     = {:>12}]\n", times.len(), 1);
    text
}

/// The figures of one type of transaction. Latencies are in nanoseconds; one transaction in 16 is
/// timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindResult {
    /// The type.
    pub kind: String,
    /// Committed transactions in all windows.
    pub commits: u64,
    /// Tries that a conflict aborted, in all windows.
    pub aborts: u64,
    /// The fraction of all tries that a conflict aborted.
    pub abort_rate: f64,
    /// Aborted tries by reason.
    pub aborts_by_reason: BTreeMap<String, u64>,
    /// Pieces that ran again, as in [`Measured`].
    #[serde(default)]
    pub piece_retries: Option<u64>,
    /// Timed transactions.
    pub samples: u64,
    /// The median latency.
    pub latency_ns_p50: u64,
    /// The 90th percentile of latency; 0 in results that are older than this field.
    #[serde(default)]
    pub latency_ns_p90: u64,
    /// The 95th percentile of latency; 0 in results that are older than this field.
    #[serde(default)]
    pub latency_ns_p95: u64,
    /// The 99th percentile of latency.
    pub latency_ns_p99: u64,
    /// The 99.9th percentile of latency.
    pub latency_ns_p999: u64,
    /// The largest latency.
    pub latency_ns_max: u64,
    /// The response times of an open loop; missing in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Latencies>,
}

/// The figures of a log in the measured windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogResult {
    /// Bytes written to the log per committed transaction.
    pub bytes_per_commit: f64,
    /// The median time from the beginning of a transaction until it was durable, in nanoseconds;
    /// one transaction in 16 is timed.
    pub durable_ns_p50: u64,
    /// The 99th percentile of this time.
    pub durable_ns_p99: u64,
    /// The largest such time.
    pub durable_ns_max: u64,
}

/// Counts of old versions, from loading to the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Versions {
    /// Old versions that existed at the end.
    pub alive: u64,
    /// The bytes of these.
    pub alive_bytes: u64,
    /// Old versions that were made.
    pub made: u64,
    /// The part of these that were made in reused memory.
    pub reused: u64,
    /// Old versions whose memory was given back for reuse.
    pub collected: u64,
    /// The part of these that aggressive collection gave back: while a transaction ran that had
    /// begun before they were replaced.
    pub collected_early: u64,
    /// Records by the number of their old versions at the end: none, 1, 2 and 3, 4 to 7, and so on.
    pub records_by_versions: Vec<u64>,
}

/// The breakdown of the workers' time: shares of all of it, in two independent divisions.
///
/// The six categories are those of DBx1000 (Yu et al., VLDB 2014, section 3.2). `abort` is the time
/// of tries that did not commit, and the time between such a try and the next. The others are times
/// of tries that committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakdown {
    /// The transactions' own logic, and the copying of rows.
    pub useful: f64,
    /// Aborted tries, and the time from each to the next try.
    pub abort: f64,
    /// Drawing timestamps.
    pub timestamp: f64,
    /// Looking keys up.
    pub index: f64,
    /// Waiting for other transactions.
    pub wait: f64,
    /// The protocol: locks, versions, validation.
    pub manager: f64,
    /// The same time by operation, for committed and aborted tries together: `body`, `read`,
    /// `write`, `validation`, `gc`, `backoff`.
    pub operations: BTreeMap<String, f64>,
    /// The part of the workers' time in the windows that is accounted for. With sampling it is the
    /// number of samples divided by the number that was due.
    pub accounted: f64,
}

impl Breakdown {
    /// Returns the six categories, in order, with their names in DBx1000's paper.
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

/// The figures of a simulated chip in all windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulationResult {
    /// Accesses, by the level that answered them.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// A hash over every access of the simulation so far: core, line and time. Two runs with the
    /// same hash were the same. In hexadecimal.
    pub trace_hash: String,
    /// The time that the simulation took on the host, in seconds.
    pub host_seconds: f64,
    /// Simulated accesses per second of the host.
    pub accesses_per_host_second: f64,
}

/// One measuring window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// The number of the round, from 1. In a round the protocols are measured one after the other,
    /// a window each.
    pub round: usize,
    /// The length of the window.
    pub seconds: f64,
    /// Committed transactions.
    pub commits: u64,
    /// Tries that a conflict aborted.
    pub aborts: u64,
    /// Committed transactions per second.
    pub throughput_tps: f64,
    /// The median latency of the window's timed transactions, in nanoseconds. This one and the next
    /// three are 0 if none was timed, and in results that are older than these fields.
    #[serde(default)]
    pub latency_ns_p50: u64,
    /// The 95th percentile of latency.
    #[serde(default)]
    pub latency_ns_p95: u64,
    /// The 99th percentile of latency.
    #[serde(default)]
    pub latency_ns_p99: u64,
    /// The largest latency.
    #[serde(default)]
    pub latency_ns_max: u64,
    /// The starts and the response times of an open loop; missing in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<WindowArrivals>,
    /// The longest time from the end of an epoch until it was settled, in milliseconds: until no
    /// transaction could commit in it any more, or with a log of epochs in files until its commits
    /// were durable. On the host it is looked at every 10 ms. 0 in results that are older than this
    /// field.
    #[serde(default)]
    pub epoch_lag_ms: f64,
}

/// The result of a workload's own check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Whether it passed: nothing was wrong, or nothing was promised.
    pub passed: bool,
    /// What was checked, or what was wrong.
    pub text: String,
}

impl ResultFile {
    /// Returns, in words, the index and whether the workload looked its keys up in batches, if it
    /// can do both.
    pub fn index_in_words(&self) -> String {
        let index = self.config.index.as_deref().unwrap_or("hash");
        let batch = self.options.iter().find(|(name, _)| name.ends_with(".batch"));
        match batch.map(|(_, value)| value.as_str()) {
            Some("on") => format!("{index} index, keys in batches"),
            Some(_) => format!("{index} index, keys one by one"),
            None => format!("{index} index"),
        }
    }

    /// Parses a result file.
    ///
    /// # Errors
    /// The text is no result file; the message says where.
    pub fn from_json(text: &str) -> Result<ResultFile, RunError> {
        Self::with_note(text).map(|(file, _)| file)
    }

    /// Returns the result of a file's text, and what a user should know about the file: that it is
    /// newer than this program, and which fields were left out.
    ///
    /// # Errors
    /// As [`from_json`](ResultFile::from_json).
    pub fn with_note(text: &str) -> Result<(ResultFile, Option<String>), RunError> {
        let bad = |why: String| RunError::BadInput(format!("not a result file: {why}"));
        let value: Value = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        let note = schema::check("a result", &value, SCHEMA_VERSION).map_err(bad)?;
        let mut unknown = Vec::new();
        let file = serde_ignored::deserialize(value, |path| unknown.push(path.to_string()));
        let mut file: ResultFile = file.map_err(|error: serde_json::Error| bad(error.to_string()))?;
        match &note {
            // A setting that this program does not know may be misspelled by a person.
            None => {
                if let Some(path) = unknown.iter().find(|path| path.starts_with("config.")) {
                    return Err(bad(format!("unknown field {path}")));
                }
            }
            Some(_) => unknown.truncate(UNKNOWN_MAX),
        }
        file.use_todays_names()?;
        let left_out = if unknown.is_empty() { String::new() } else { format!(": {}", unknown.join(", ")) };
        Ok((file, note.map(|note| format!("{note}{left_out}"))))
    }

    /// Gives the protocols and options of an old result their current names.
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

    /// Returns the result as JSON.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data");
        text.push('\n');
        text
    }

    /// Returns the figures as comma-separated values, an entry a line. A missing figure is empty.
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

    /// Returns whether a check failed that its protocol must pass.
    pub fn failed(&self) -> bool {
        self.protocols.iter().any(ProtocolResult::failed)
    }
}
