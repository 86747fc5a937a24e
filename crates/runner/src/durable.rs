//! The log of a run whose commits are made durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::{Engine, OptionValue, Protocol, TableShape, option_choices, options};
use contend_log::{CommitProtocol, Directory, Emulated, Flusher, Log, LogConfig, LogSinks, Release, Schema};
use contend_machine::Machine;
use tempfile::TempDir;

use crate::error::RunError;

/// The way in which commits are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Commits are not made durable.
    Off,
    /// All commits of an epoch together.
    Epoch,
    /// Conservative lock release, each commit by itself.
    Clr,
    /// Conservative lock release, several commits of a worker together.
    ClrGroup,
    /// Early lock release, each commit by itself.
    Elr,
    /// Early lock release, several commits of a worker together.
    ElrGroup,
}

option_choices!(LogMode {
    Off => "off", Epoch => "epoch", Clr => "clr", ClrGroup => "clr-group", Elr => "elr", ElrGroup => "elr-group"
});

impl LogMode {
    /// All modes.
    pub const ALL: [LogMode; 6] =
        [LogMode::Off, LogMode::Epoch, LogMode::Clr, LogMode::ClrGroup, LogMode::Elr, LogMode::ElrGroup];

    /// Returns the name by which a user chooses it.
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

/// The device that the log is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDevice {
    /// Files on this machine, an emulated device on a simulated one.
    Auto,
    /// Files.
    File,
    /// An emulated device, which takes a set time and keeps nothing.
    Emulated,
}

option_choices!(LogDevice { Auto => "auto", File => "file", Emulated => "emulated" });

/// Whether commits have log sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLsn {
    /// Where recovery needs them.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

option_choices!(LogLsn { Auto => "auto", On => "on", Off => "off" });

options! {
    /// Options of the log.
    pub struct LogOptions {
        /// How commits are made durable: not at all (off); all commits of an epoch together
        /// (epoch); or by their worker, each by itself or several together (-group). Other
        /// transactions see a commit only once it is durable (clr: conservative lock release), or
        /// before (elr: early lock release). The files are in the folder that --dir names.
        "log.mode" mode: LogMode = LogMode::Off, in ();
        /// The device of the log: files, or a buffer in memory whose flush takes log.latency_ns.
        /// auto means files on the machine native.
        "log.device" device: LogDevice = LogDevice::Auto, in ();
        /// The time of a flush on an emulated device, in nanoseconds.
        "log.latency_ns" latency_ns: u64 = 50_000, in 0..=1_000_000_000;
        /// The number of commits of a worker that are flushed together, with clr-group and
        /// elr-group.
        "log.group" group: u32 = 16, in 1..=10_000;
        /// Whether commits draw numbers from one counter that all workers share. auto means where
        /// recovery needs them: with elr and elr-group.
        "log.lsn" lsn: LogLsn = LogLsn::Auto, in ();
        /// Whether files are written past the system's page cache (O_DIRECT).
        "log.direct" direct: bool = false, in ();
        /// Whether files are written and synchronised together through io_uring, where the kernel
        /// has it; otherwise one after the other by plain calls.
        "log.uring" uring: bool = true, in ();
        /// The length of an epoch, in milliseconds, where commits are made durable.
        "log.epoch_ms" epoch_ms: u64 = 40, in 1..=10_000;
        /// The size of a log file, in megabytes.
        "log.segment_mb" segment_mb: u64 = 64, in 1..=4_096;
    }
}

impl LogOptions {
    /// Returns the commit protocol, or `None` if commits are not made durable.
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

    /// Returns whether the log is in files. `has_disk` says whether the machine has a disk.
    pub fn has_files(&self, has_disk: bool) -> bool {
        self.mode != LogMode::Off
            && match self.device {
                LogDevice::Auto => has_disk,
                LogDevice::File => true,
                LogDevice::Emulated => false,
            }
    }

    /// Checks that the options fit together, and that they fit the machine.
    ///
    /// # Errors
    /// They don't; the message says why.
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
                    "log={mode} with log.lsn=off can't be recovered: nothing tells the order of the commits; \
                     log.device=emulated shows what the numbers cost"
                ))
            }
            Some(CommitProtocol::Epoch) if self.lsn == LogLsn::On => {
                refuse("log.lsn=on does not go with log=epoch: epochs give the order there".to_owned())
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
    /// Those of [`FileLog::create`].
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

    /// Returns the sinks through which an engine writes to the log.
    pub(crate) fn sinks(&self) -> Arc<dyn CommitSinks<M>> {
        match self {
            RunLog::Files(files) => LogSinks::new(&files.log),
            RunLog::Emulated(emulated) => Arc::clone(emulated) as _,
        }
    }

    /// Returns the bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            RunLog::Files(files) => files.log.bytes(),
            RunLog::Emulated(emulated) => emulated.bytes(),
        }
    }

    /// Returns the last epoch whose commits are durable, if they become so by epochs, in files.
    pub(crate) fn durable_epoch(&self) -> Option<u64> {
        match self {
            RunLog::Files(files) if files.log.config().commit == CommitProtocol::Epoch => Some(files.log.durable()),
            _ => None,
        }
    }

    /// Returns whether more commits become durable while no worker runs.
    ///
    /// # Errors
    /// The disk has failed, or is full.
    pub(crate) fn goes_on(&self) -> Result<bool, RunError> {
        match self {
            RunLog::Files(files) => Ok(files.log.check().map(|()| true)?),
            RunLog::Emulated(_) => Ok(false),
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
    /// Removed after the run, when the last flush is done.
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
