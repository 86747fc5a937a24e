//! A run whose commits are made durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use contend_engine::{Control, Engine, IndexKind, TableShape, option_choices, options};
use contend_log::{Directory, Log, LogConfig, LogError, Schema, settle};
use contend_machine::Machine;
use tempfile::TempDir;

use crate::config::LabError;

/// How commits are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Not at all.
    Off,
    /// All that commit in one epoch together.
    Epoch,
}

option_choices!(LogMode { Off => "off", Epoch => "epoch" });

options! {
    /// Options of the log.
    pub struct LogOptions {
        /// How commits are made durable: not at all, or all of an epoch together (native only). The files are in the folder that --dir names.
        "log" mode: LogMode = LogMode::Off, in ();
        /// How long an epoch is, in milliseconds, where commits are made durable.
        "log.epoch_ms" epoch_ms: u64 = 40, in 1..=10_000;
        /// Megabytes of a log file.
        "log.segment_mb" segment_mb: u64 = 64, in 1..=4_096;
    }
}

/// The log of a run.
#[derive(Debug)]
pub(crate) struct RunLog {
    pub(crate) log: Arc<Log>,
    flusher: Option<JoinHandle<()>>,
    /// Removed when the run is over.
    _temporary: Option<TempDir>,
}

fn failed(error: LogError) -> LabError {
    LabError::BadInput(error.to_string())
}

impl RunLog {
    /// Begins a log in this folder, or in one that is removed when the run is over.
    ///
    /// # Errors
    /// The folder has a log already; or it can't be had.
    pub(crate) fn create(options: &LogOptions, workers: usize, path: Option<&Path>) -> Result<Self, LabError> {
        let temporary = match path {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(|error| {
                LabError::BadInput(format!("a folder for the log can't be made: {error}; --dir names one"))
            })?),
        };
        let path: PathBuf = path.or(temporary.as_ref().map(TempDir::path)).expect("one of them").to_owned();
        let directory = Directory::open(&path).map_err(failed)?;
        let config = LogConfig { workers, segment_bytes: options.segment_mb << 20, ..LogConfig::default() };
        let (log, recovered) = Log::open(Arc::new(directory), config).map_err(failed)?;
        if !recovered.tables.is_empty() {
            let message =
                format!("{} has a log already, and a run begins with new tables: name another folder", path.display());
            return Err(LabError::BadInput(message));
        }
        Ok(RunLog { log, flusher: None, _temporary: temporary })
    }

    /// Has the log know the tables of the engine, and flushes from now on.
    pub(crate) fn begin<P: Control<M>, M: Machine>(
        &mut self,
        engine: &Arc<Engine<P, M>>,
        epoch_ms: u64,
    ) -> Result<(), LabError> {
        for (number, shape) in (0..).zip(engine.shapes()) {
            self.log.bind(number, &schema_of(shape)).map_err(failed)?;
        }
        let (log, engine) = (Arc::clone(&self.log), Arc::clone(engine));
        self.flusher = Some(std::thread::spawn(move || {
            log.serve(Duration::from_millis(epoch_ms), || settle(engine.epochs()));
        }));
        Ok(())
    }

    /// Bytes that were written, once all is durable that was committed up to this epoch.
    ///
    /// # Errors
    /// The disk has failed, or is full.
    pub(crate) fn bytes_up_to(&self, epoch: u64) -> Result<u64, LabError> {
        self.log.wait(epoch).map_err(failed)?;
        Ok(self.log.bytes())
    }
}

impl Drop for RunLog {
    fn drop(&mut self) {
        self.log.close();
        if let Some(flusher) = self.flusher.take() {
            // It has no reason to panic.
            let _ = flusher.join();
        }
    }
}

fn schema_of(shape: TableShape) -> Schema {
    let TableShape { name, key_words, row_words, groups, index } = shape;
    let groups = groups.iter().map(|span| (span.words().start, span.words().end)).collect();
    Schema { name, key_words, row_words, groups, ordered: index == IndexKind::Ordered, columns: String::new() }
}
