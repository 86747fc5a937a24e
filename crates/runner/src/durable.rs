//! The log of a run, if its commits are made durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::{Engine, OptionValue, Protocol, TableShape, option_choices, options};
use contend_log::{CommitProtocol, Directory, Emulated, Flusher, Log, LogConfig, LogSinks, Release, Schema};
use contend_machine::Machine;
use tempfile::TempDir;

use crate::error::RunError;

/// How commits are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Not at all.
    Off,
    /// All that commit in one epoch together.
    Epoch,
    /// Conservative lock release, each by itself.
    Clr,
    /// The same, some together.
    ClrGroup,
    /// Early lock release, each by itself.
    Elr,
    /// The same, some together.
    ElrGroup,
}

option_choices!(LogMode {
    Off => "off", Epoch => "epoch", Clr => "clr", ClrGroup => "clr-group", Elr => "elr", ElrGroup => "elr-group"
});

impl LogMode {
    /// All modes.
    pub const ALL: [LogMode; 6] =
        [LogMode::Off, LogMode::Epoch, LogMode::Clr, LogMode::ClrGroup, LogMode::Elr, LogMode::ElrGroup];

    /// Returns the name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            LogMode::Off => "off",
            LogMode::Epoch => "epoch",
            LogMode::Clr => "clr",
            LogMode::ClrGroup => "clr-group",
            LogMode::Elr => "elr",
            LogMode::ElrGroup => "elr-group",
        }
    }
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDevice {
    /// To files on this machine, to nowhere on a simulated one.
    Auto,
    /// To files.
    File,
    /// To nowhere, after a while.
    Emulated,
}

option_choices!(LogDevice { Auto => "auto", File => "file", Emulated => "emulated" });

/// Whether commits have log sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLsn {
    /// Where recovery needs them.
    Auto,
    /// In any case.
    On,
    /// In no case.
    Off,
}

option_choices!(LogLsn { Auto => "auto", On => "on", Off => "off" });

options! {
    /// Options of the log.
    pub struct LogOptions {
        /// How commits are made durable: not at all; all of an epoch together; or by their worker,
        /// each by itself or some together (-group), before (clr: conservative lock release) or
        /// after (elr: early) others can see them. The files are in the folder that --dir names.
        "log.mode" mode: LogMode = LogMode::Off, in ();
        /// Where the log goes: to files, or to a buffer in memory, and a flush takes
        /// log.latency_ns. auto: to files on the machine native.
        "log.device" device: LogDevice = LogDevice::Auto, in ();
        /// How long a flush takes on an emulated device, in nanoseconds.
        "log.latency_ns" latency_ns: u64 = 50_000, in 0..=1_000_000_000;
        /// How many commits of a worker are flushed together, with clr-group and elr-group.
        "log.group" group: u32 = 16, in 1..=10_000;
        /// Whether commits draw numbers from one counter that all workers share: auto, where
        /// recovery needs them, with elr and elr-group.
        "log.lsn" lsn: LogLsn = LogLsn::Auto, in ();
        /// Whether files are written past the system's page cache (O_DIRECT).
        "log.direct" direct: bool = false, in ();
        /// Whether files are written and synchronised together through io_uring, where the kernel
        /// has it, or one after the other by plain calls.
        "log.uring" uring: bool = true, in ();
        /// How long an epoch is, in milliseconds, where commits are made durable.
        "log.epoch_ms" epoch_ms: u64 = 40, in 1..=10_000;
        /// Megabytes of a log file.
        "log.segment_mb" segment_mb: u64 = 64, in 1..=4_096;
    }
}

impl LogOptions {
    /// Returns the commit protocol. None if commits are not made durable.
    pub fn commit(&self) -> Option<CommitProtocol> {
        let (release, group) = match self.mode {
            LogMode::Off => return None,
            LogMode::Epoch => return Some(CommitProtocol::Epoch),
            LogMode::Clr => (Release::Conservative, 1),
            LogMode::ClrGroup => (Release::Conservative, self.group),
            LogMode::Elr => (Release::Early, 1),
            LogMode::ElrGroup => (Release::Early, self.group),
        };
        let lsn = match self.lsn {
            LogLsn::Auto => release == Release::Early,
            LogLsn::On => true,
            LogLsn::Off => false,
        };
        Some(CommitProtocol::Workers { release, group, lsn })
    }

    /// Whether the log is in files. `has_disk`: the machine has a disk.
    pub fn has_files(&self, has_disk: bool) -> bool {
        self.mode != LogMode::Off
            && match self.device {
                LogDevice::Auto => has_disk,
                LogDevice::File => true,
                LogDevice::Emulated => false,
            }
    }

    /// Checks that the options fit together and to the machine.
    ///
    /// # Errors
    /// They don't.
    pub fn check(&self, has_disk: bool) -> Result<(), RunError> {
        let mode = self.mode.show();
        let refuse = |why: String| Err(RunError::BadInput(why));
        if self.has_files(has_disk) && !has_disk {
            return refuse(format!(
                "log.device=file needs the machine 'native'; log={mode} goes with log.device=emulated here"
            ));
        }
        match self.commit() {
            Some(CommitProtocol::Workers { release: Release::Early, lsn: false, .. }) if self.has_files(has_disk) => {
                refuse(format!(
                    "log={mode} with log.lsn=off can't be recovered: nothing says which commits came before which; \
                     log.device=emulated shows what the numbers cost"
                ))
            }
            Some(CommitProtocol::Epoch) if self.lsn == LogLsn::On => {
                refuse("log.lsn=on does not go with log=epoch: epochs are the order there".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The log of a run.
#[derive(Debug)]
pub(crate) enum RunLog<M: Machine> {
    Files(FileLog),
    Emulated(Arc<Emulated<M>>),
}

impl<M: Machine> RunLog<M> {
    /// Creates the log that the options ask for. A log in files is in the folder `path`, or in a
    /// temporary one that is removed after the run.
    ///
    /// # Errors
    /// As of [`FileLog::create`].
    pub(crate) fn create(
        options: &LogOptions,
        has_disk: bool,
        workers: usize,
        path: Option<&Path>,
    ) -> Result<Option<Self>, RunError> {
        let Some(commit) = options.commit() else { return Ok(None) };
        Ok(Some(if options.has_files(has_disk) {
            RunLog::Files(FileLog::create(options, commit, workers, path)?)
        } else {
            RunLog::Emulated(Arc::new(Emulated::new(commit, workers, options.latency_ns)))
        }))
    }

    /// Returns the form of the log that an engine takes.
    pub(crate) fn sinks(&self) -> Arc<dyn CommitSinks<M>> {
        match self {
            RunLog::Files(files) => LogSinks::new(&files.log),
            RunLog::Emulated(emulated) => Arc::clone(emulated) as _,
        }
    }

    /// Returns the bytes that were written so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            RunLog::Files(files) => files.log.bytes(),
            RunLog::Emulated(emulated) => emulated.bytes(),
        }
    }

    /// Returns the bytes that were written once every transaction that committed in `epoch` or
    /// earlier is durable. Only a log in files waits.
    ///
    /// # Errors
    /// The disk has failed, or is full.
    pub(crate) fn bytes_up_to(&self, epoch: u64) -> Result<u64, RunError> {
        if let RunLog::Files(files) = self {
            files.log.wait(epoch)?;
        }
        Ok(self.bytes())
    }
}

/// A log of files.
#[derive(Debug)]
pub(crate) struct FileLog {
    log: Arc<Log>,
    flusher: Option<Flusher>,
    /// Removed when the run is over, after the last flush.
    _temporary: Option<TempDir>,
}

impl FileLog {
    /// Creates a log in the folder `path`, or in a temporary one that is removed after the run.
    ///
    /// # Errors
    /// The folder has a log already, or can't be opened.
    fn create(
        options: &LogOptions,
        commit: CommitProtocol,
        workers: usize,
        path: Option<&Path>,
    ) -> Result<Self, RunError> {
        let temporary = match path {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(|error| {
                RunError::Io(format!("a folder for the log can't be made: {error}; --dir names one"))
            })?),
        };
        let path: PathBuf = path.or(temporary.as_ref().map(TempDir::path)).expect("one of them").to_owned();
        let directory =
            Directory::open(&path).map_err(RunError::LogNotOpened)?.direct(options.direct).uring(options.uring);
        let config = LogConfig { workers, commit, segment_bytes: options.segment_mb << 20, ..LogConfig::default() };
        let (log, recovered) = Log::open(Arc::new(directory), config).map_err(RunError::LogNotOpened)?;
        if !recovered.tables.is_empty() {
            let message =
                format!("{} has a log already, and a run begins with new tables: name another folder", path.display());
            return Err(RunError::BadInput(message));
        }
        Ok(FileLog { log, flusher: None, _temporary: temporary })
    }

    /// Binds the engine's tables, and starts the thread that flushes.
    pub(crate) fn begin<P: Protocol<M>, M: Machine>(
        &mut self,
        engine: &Arc<Engine<P, M>>,
        epoch_ms: u64,
    ) -> Result<(), RunError> {
        for (number, shape) in (0..).zip(engine.shapes()) {
            self.log.bind(number, &schema_of(shape)).map_err(RunError::LogNotOpened)?;
        }
        self.flusher = Some(Flusher::start(&self.log, engine, Duration::from_millis(epoch_ms)));
        Ok(())
    }
}

/// Returns the schema of an engine's table for a log.
pub fn schema_of(shape: TableShape) -> Schema {
    Schema::of(shape, String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::progress::Stop;
    use crate::session::{RunPurpose, session};

    /// The rows that a run begins with are durable before it begins.
    #[test]
    fn rows_that_are_loaded_are_durable() {
        for mode in ["epoch", "clr", "clr-group", "elr", "elr-group"] {
            let folder = tempfile::tempdir().expect("a folder");
            // An epoch that nobody would wait for to pass by itself.
            let settings = [("log.mode", mode), ("log.epoch_ms", "10000"), ("ycsb.records", "1000")];
            let run = RunConfig {
                protocols: vec!["silo".into()],
                settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
                dir: Some(folder.path().join("log")),
                threads: 2,
                ..RunConfig::default()
            };
            let plan = run.resolve().expect("valid input");
            let session = session(&plan, &plan.protocols[0], RunPurpose::Measure);
            let mut session = session.expect("a folder that is empty");
            session.load(&Stop::default(), &|_| ()).expect("there is room");
            // A copy as a crash would leave the files: they are still open.
            let left = folder.path().join("left");
            std::fs::create_dir(&left).expect("a new folder");
            for file in std::fs::read_dir(folder.path().join("log")).expect("a folder") {
                let file = file.expect("a file");
                std::fs::copy(file.path(), left.join(file.file_name())).expect("there is room");
            }
            let disk = Directory::open(&left).expect("nobody else has it");
            let (_, recovered) = Log::open(Arc::new(disk), LogConfig::default()).expect("it is whole");
            let rows: usize = recovered.tables.iter().map(|table| table.rows().count()).sum();
            assert_eq!(rows, 1000, "log={mode}");
        }
    }
}
