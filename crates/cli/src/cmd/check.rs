//! `contend check`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use contend_history::elle::{Inferred, Workload};
use contend_history::{History, Isolation, Report, check_bounded, replay};
use contend_judge::edges;
use contend_lab::report::cycle_svg;
use contend_model::counted;
use contend_runner::memory;

use crate::args::CheckArgs;
use crate::{Status, UserError, show};

pub(crate) fn run(args: &CheckArgs) -> Result<Status, UserError> {
    let judgement = judged(args)?;
    show::print(&if args.json { format!("{:#}\n", judgement.json) } else { judgement.text })?;
    Ok(if judgement.kept { Status::Good } else { Status::CheckFailed })
}

/// The judgement on a history.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// Whether the history keeps the level.
    pub(crate) kept: bool,
    /// For people.
    pub(crate) text: String,
    /// For programs.
    pub(crate) json: serde_json::Value,
    /// The worst anomaly as a picture, if it is a cycle that can be drawn.
    pub(crate) picture: Option<String>,
}

/// Judges the history that the flags name.
///
/// # Errors
/// A flag is not valid, or the file holds no history.
pub(crate) fn judged(args: &CheckArgs) -> Result<Judgement, UserError> {
    let level = level_of(&args.isolation)?;
    let workload = workload_of(&args.format)?;
    let is_stdin = args.history == Path::new("-");
    let name = if is_stdin { "standard input".into() } else { args.history.display().to_string() };
    let source: Box<dyn Read> = if is_stdin {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(&args.history).map_err(|error| UserError::refused(format!("{name}: {error}")))?)
    };
    let source = WhileThereIsRoom { source, unchecked: 0 };
    let refused = |error: String| UserError::refused(format!("{name}: {error}"));
    if let Some(workload) = workload {
        let text =
            std::io::read_to_string(source.take(ELLE_BYTES_MAX + 1)).map_err(|error| refused(error.to_string()))?;
        if text.len() as u64 > ELLE_BYTES_MAX {
            return Err(refused(format!("a history of this format has at most {} MiB", ELLE_BYTES_MAX >> 20)));
        }
        let inferred = Inferred::read(&text, workload).map_err(refused)?;
        let report = inferred.check_bounded().map_err(|error| refused(error.to_string()))?;
        return Ok(judge_inferred(level, &inferred, &report));
    }
    let mut source = BufReader::new(source);
    let is_elle = looks_like_elle(source.fill_buf().map_err(|error| refused(error.to_string()))?);
    let history = History::read_json_lines(source).map_err(|error| {
        let hint = "; histories of Jepsen and Elle are read with --format elle-append or --format elle-register";
        refused(format!("{error}{}", if is_elle { hint } else { "" }))
    })?;
    judge(&history, level).map_err(refused)
}

/// Returns the isolation level of this name.
///
/// # Errors
/// There is no such level.
pub(crate) fn level_of(name: &str) -> Result<Isolation, UserError> {
    name.parse().map_err(|error| UserError::refused(format!("--isolation: {error}")))
}

/// Judges a history by a level.
///
/// # Errors
/// The history is empty, or too large for the checker; the message says which.
pub(crate) fn judge(history: &History, level: Isolation) -> Result<Judgement, String> {
    // An empty history keeps every level, and proves nothing.
    if history.transactions().iter().all(|transaction| transaction.ops.is_empty()) {
        let count = history.transactions().len();
        let contents = if count == 0 {
            "no transaction".into()
        } else {
            format!("{} without an operation", counted(count, "transaction"))
        };
        return Err(format!("{contents}; a history has a committed transaction a line, as JSON"));
    }
    let report = check_bounded(history).map_err(|error| error.to_string())?;
    let mut kept = report.violates(level).is_none();
    let mut verdict = format!("{level}: {}", if kept { "yes" } else { "NO" });
    // The serial replay is a second oracle. The serial order of an inexact history is a guess, so a
    // difference would prove nothing.
    let divergence = match report.serial_order() {
        Some(order) if level == Isolation::Serializable && report.is_exact() => replay(history, order).err(),
        _ => None,
    };
    if let Some(divergence) = &divergence {
        kept = false;
        verdict = format!("{level}: NO: a serial run of the same transactions differs: {divergence}");
    }
    let json = serde_json::json!({
        "isolation": level.to_string(),
        "kept": kept,
        "report": report,
        "serial_replay_differs": divergence.map(|divergence| divergence.to_string()),
    });
    Ok(Judgement { kept, text: format!("{report}\n\n{verdict}\n"), json, picture: picture(&report) })
}

/// Returns the workload of Elle that a format stands for; `None` is our own format.
fn workload_of(format: &str) -> Result<Option<Workload>, UserError> {
    Ok(match format {
        "contend" => None,
        "elle-append" => Some(Workload::ListAppend),
        "elle-register" => Some(Workload::Register),
        other => {
            let valid = "contend, elle-append, elle-register";
            return Err(UserError::refused(format!("--format: unknown format '{other}'; valid: {valid}")));
        }
    })
}

/// The largest history of Elle, which is read as a whole, in bytes. The limit guards against
/// endless devices.
const ELLE_BYTES_MAX: u64 = 1 << 30;

/// A source that ends with an error before the machine's memory is used up by what was read from
/// it.
struct WhileThereIsRoom<R> {
    source: R,
    /// The bytes that were read since the memory was looked at.
    unchecked: usize,
}

impl<R: Read> Read for WhileThereIsRoom<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        const CHECKED_EVERY: usize = 16 << 20;
        let length = self.source.read(buffer)?;
        self.unchecked += length;
        if self.unchecked >= CHECKED_EVERY {
            self.unchecked = 0;
            if memory::is_short() {
                return Err(std::io::Error::other("the history is too large for this machine's memory"));
            }
        }
        Ok(length)
    }
}

/// Whether a file begins like a history of Jepsen: with a map of EDN, or one of JSON that has the
/// type of an operation.
fn looks_like_elle(start: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&start[..start.len().min(1000)]);
    let start = start.trim_start_matches(['[', ' ', '\n', '\r', '\t']);
    let is_edn = ["{:", "#jepsen", ";"].iter().any(|sign| start.starts_with(sign));
    is_edn || start.starts_with('{') && start.contains("\"type\"") && !start.contains("\"txn\"")
}

/// Judges a history whose versions were inferred.
fn judge_inferred(level: Isolation, inferred: &Inferred, report: &Report) -> Judgement {
    let kept = report.violates(level).is_none();
    let json = serde_json::json!({
        "isolation": level.to_string(),
        "kept": kept,
        "report": report,
        "inferred": inferred.notes(),
    });
    let verdict = if kept { "nothing found against it" } else { "NO" };
    let text = format!("{report}\n\n{}\n\n{level}: {verdict}\n", inferred.notes().join("\n"));
    Judgement { kept, text, json, picture: picture(report) }
}

/// Returns the picture of the worst anomaly, if it can be drawn.
fn picture(report: &Report) -> Option<String> {
    cycle_svg(&edges(report.anomalies.first()?))
}
