//! `contend recover` and `contend log`.

use std::io::{self, BufWriter, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use contend_log::{Directory, Disk, Log, LogConfig, inspect};
use contend_model::counted;
use contend_runner::{Observer, RunError};

use crate::args::{DumpArgs, LogArgs, LogCommand, RecoverArgs};
use crate::progress::Bars;
use crate::{Status, UserError, show};

/// The bytes that a step of the progress bar stands for.
const STEP: u64 = 1 << 20;

pub(crate) fn recover(args: &RecoverArgs) -> Result<Status, UserError> {
    let directory = Directory::read_only(&args.dir)?;
    let bytes = inspect::inspect(&directory)?.files.iter().map(|file| file.bytes).sum::<u64>();
    let bars = Bars::default();
    let observer: &(dyn Observer + Sync) = &bars;
    observer.begin("reading the log", bytes.div_ceil(STEP));
    let read = std::sync::atomic::AtomicU64::new(0);
    let progress = |more: u64| {
        // Relaxed: no partner; the count orders nothing.
        let before = read.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
        observer.advance((before + more) / STEP - before / STEP);
    };
    if args.check {
        let recovered = inspect::recover(&directory, LogConfig::default().threads, &progress)?;
        observer.end();
        show::print(&format!("{}\nnothing was changed\n", recovered.report))?;
        return Ok(Status::Good);
    }
    // The folder has a log, so opening it to write does not begin a new one.
    drop(directory);
    let directory = Arc::new(Directory::open(&args.dir)?);
    let (log, recovered) = Log::open_with(directory, LogConfig { workers: 1, ..LogConfig::default() }, &progress)?;
    observer.end();
    show::print(&format!("{}\n", recovered.report))?;
    // The checkpoint needs as much memory again.
    drop(recovered);
    let checkpoint = log.checkpoint_by_hand().map_err(RunError::LogFailed)?;
    let (files, replaced) = checkpoint.replaced;
    show::print(&format!(
        "checkpoint: {}, {}, replaces {} of {}, took {:.3} s\n",
        counted(checkpoint.rows, "row"),
        counted(checkpoint.bytes, "byte"),
        counted(files, "file"),
        counted(replaced, "byte"),
        checkpoint.seconds
    ))?;
    Ok(Status::Good)
}

pub(crate) fn log(args: &LogArgs) -> Result<Status, UserError> {
    let LogCommand::Dump(DumpArgs { dir, limit }) = &args.log;
    let directory = Directory::read_only(dir)?;
    let found = inspect::inspect(&directory)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = (|| -> Result<(), DumpError> {
        writeln!(out, "durable up to epoch {}", found.epoch)?;
        for (number, schema) in found.tables.iter().enumerate() {
            writeln!(out, "table {number} '{}': {schema}", schema.name)?;
        }
        let mut left = limit.unwrap_or(u64::MAX);
        for file in &found.files {
            writeln!(out, "{}: {}, {}", directory.place(&file.name), counted(file.bytes, "byte"), file.describe())?;
            let mut failure = None;
            inspect::writes(&directory, &found, file.number, |epoch, write| {
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                match writeln!(out, "  epoch {epoch} {write}") {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })?;
            failure.map_or(Ok(()), Err)?;
        }
        Ok(out.flush()?)
    })();
    match outcome {
        Ok(()) => Ok(Status::Good),
        // It is no error if the reader of a pipe has closed it: `head` does so.
        Err(DumpError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Good),
        Err(DumpError::Io(error)) => Err(UserError::refused(format!("can't write to stdout: {error}"))),
        Err(DumpError::Log(error)) => Err(error.into()),
    }
}

/// Why a dump ends early.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] contend_log::LogError),
}
