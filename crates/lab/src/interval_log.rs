//! The latencies of all windows as an interval log of HdrHistogram, which its tools plot over time.
//!
//! The log has an interval for each window and type of transaction, with a compressed histogram (V2
//! deflate) in nanoseconds. Its tag is `ENTRY/TYPE`, and `ENTRY/TYPE/response` for the response
//! times of an open loop. The sum of the histograms of a tag is what the result has for the type.
//! All windows of an entry share one clock, which stands still between them.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use contend_runner::MeasuredWindow;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::result::ResultFile;

/// The format has milliseconds, and windows on a chip are shorter than one.
const CHIP_SECONDS: f64 = 1000.0;
/// The largest value of an interval also stands there as a number, in milliseconds as usual.
const MAX_DIVISOR: f64 = 1e6;

/// The interval log of a run; see the module.
#[derive(Debug, Default)]
pub struct IntervalLog(Mutex<Vec<Interval>>);

#[derive(Debug)]
struct Interval {
    entry: String,
    /// The beginning by the entry's clock, in seconds.
    begin: f64,
    /// Its lines in the log.
    lines: Vec<u8>,
}

impl IntervalLog {
    fn intervals(&self) -> MutexGuard<'_, Vec<Interval>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a window.
    pub fn add(&self, window: &MeasuredWindow<'_>) {
        let MeasuredWindow { entry, kinds, begin, count } = *window;
        let scale = if count.simulation.is_some() { CHIP_SECONDS } else { 1.0 };
        let span = [begin, count.seconds].map(|seconds| Duration::from_secs_f64(seconds * scale));
        let (mut lines, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        let mut builder = IntervalLogWriterBuilder::new();
        builder.with_max_value_divisor(MAX_DIVISOR);
        let mut writer = builder.begin_log_with(&mut lines, &mut serializer).expect("memory takes it");
        let mut put = |tag: String, times: &Histogram<u64>| {
            let tag = tag.replace([' ', ',', '\r', '\n'], "_");
            let written = writer.write_histogram(times, span[0], span[1], Tag::new(&tag));
            written.expect("memory takes a histogram of these bounds");
        };
        for (kind, of_kind) in kinds.iter().zip(&count.tally.kinds) {
            if !of_kind.latencies.is_empty() {
                put(format!("{entry}/{kind}"), &of_kind.latencies);
            }
            if let Some(responses) = &of_kind.responses {
                put(format!("{entry}/{kind}/response"), responses);
            }
        }
        // The writer notes its divisor for each window; the log's head has it once.
        let lines = lines.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
        let lines = lines.flatten().copied().collect();
        self.intervals().push(Interval { entry: entry.into(), begin, lines });
    }

    /// Writes the log of the entries that have figures, in the order of time.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, result: &ResultFile, mut file: &mut dyn Write) -> io::Result<()> {
        let mut intervals = self.intervals();
        intervals.sort_by(|a, b| a.begin.total_cmp(&b.begin));
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(result.started_unix_seconds);
        let mut builder = IntervalLogWriterBuilder::new();
        builder.add_comment("[Histogram log format version 1.3]");
        builder.add_comment(&format!("[Latencies in nanoseconds, by contend {}]", result.environment.version));
        if result.config.chip.is_some() {
            builder.add_comment("[Simulated: a second of this log is a millisecond of the chip]");
        }
        builder.with_start_time(started).with_base_time(started).with_max_value_divisor(MAX_DIVISOR);
        builder.begin_log_with(&mut file, &mut V2DeflateSerializer::new())?;
        writeln!(file, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        let has_figures =
            |entry: &str| result.protocols.iter().any(|result| result.protocol == entry && result.measured.is_some());
        intervals.iter().filter(|it| has_figures(&it.entry)).try_for_each(|it| file.write_all(&it.lines))
    }
}
