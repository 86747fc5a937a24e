//! The log of a database: files that workers append to, and a manifest that says how far they
//! count.
//!
//! | module | what it does |
//! | --- | --- |
//! | `open` | recovers a log when it is opened; tables |
//! | `buffer` | workers' buffers and files |
//! | `flush` | makes what was written durable |
//! | `serve` | the thread that flushes; the end of a log |
//!
//! **What is durable.** Each worker has a buffer and files of its own (P-WAL). With the commit
//! protocol `epoch` (Silo's group commit) a flush makes a whole epoch durable, and a transaction is
//! acknowledged when its epoch is. The caller of a flush knows that no transaction can still commit
//! in that epoch. With the other commit protocols ([`crate::commit`]) a worker also flushes its own
//! buffer. Most flushes do not write the manifest. A file's bytes behind those that the manifest
//! knows of count as well, by the rules of [`crate::recovery`].
//!
//! **What an error means.** A disk that is full when a table is added or a checkpoint is taken
//! leaves the log as it was. Any other failure stops the log: no commit is acknowledged any more,
//! and each thread that waits gets the error (`Log::stop`).
//!
//! **Atomics.** They are those of the standard library, not of the machine: the log of files runs
//! on the native machine only, in threads that no explorer schedules. What workers share on every
//! machine is in [`crate::commit`], on the machine's atomics.

mod buffer;
mod flush;
mod open;
mod serve;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::commit::{CommitProtocol, Release};
use crate::disk::Disk;
use crate::error::LogError;
use crate::fault::Fault;
use crate::format;
use crate::manifest::{Manifest, Tail};
use crate::recovery::How;
use crate::schema::Schema;
use buffer::Writer;

pub(crate) use buffer::OpenFile;
pub use serve::{Flusher, Settled};

/// The configuration of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The largest number of workers.
    pub workers: usize,
    /// The largest size of a file in bytes; at most 4 GiB. Its room on the disk is reserved when it
    /// is created. A worker's first file has [`FIRST_SEGMENT_BYTES`] if that is less, and each
    /// further file is twice as large as the one before. A file is cut off behind its content when
    /// it is full, and when the log is closed. A block that is larger has a file of its own.
    pub segment_bytes: u64,
    /// A worker whose buffer is larger than this many bytes writes the buffer itself: while it is
    /// in the worker's cache, so that a flush has little to write, and so that memory does not grow
    /// where the disk is slow.
    pub buffer_bytes: usize,
    /// The most bytes of keys and rows, as they are in memory, that one transaction may write; a
    /// larger one is refused before any of its writes is installed. At most
    /// [`TRANSACTION_BYTES_MAX`], because a block of the log has 32 bits for its length.
    pub transaction_bytes: usize,
    /// A checkpoint is due when this many bytes were written since the last one, or as many as the
    /// last one has if that is more.
    pub checkpoint_bytes: u64,
    /// Small files are merged when there are more than this many ([`Log::merge`]).
    pub small_files: usize,
    /// Threads that read files when a log is opened, and that read and write files for a
    /// checkpoint.
    pub threads: usize,
    /// When commits are durable, and when other transactions see them.
    pub commit: CommitProtocol,
    /// Whether files bypass the system's page cache
    /// ([`Directory::direct`](crate::Directory::direct)). The log itself ignores this: it is for
    /// the code that opens the directory.
    pub direct: bool,
    /// Whether files are written through io_uring ([`Directory::uring`](crate::Directory::uring)).
    /// The log itself ignores this as well.
    pub uring: bool,
    /// Whether opening a log checks that the writes of each row can have happened in the order of
    /// their write counters. This takes 24 bytes of memory for each write in the log.
    pub checks_order: bool,
    /// A deliberate bug, for tests that must find it.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

/// The size of a worker's first file in bytes. It is small because most threads of an application
/// write little.
pub const FIRST_SEGMENT_BYTES: u64 = 16 << 10;

/// The largest [`LogConfig::transaction_bytes`]: 256 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// The largest [`LogConfig::buffer_bytes`] that has an effect: a transaction may add to a block
/// that is nearly as large.
const BUFFER_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(
    BUFFER_BYTES_MAX + TRANSACTION_BYTES_MAX / 8 * format::WORD_BYTES_MAX < u32::MAX as usize - format::BLOCK_HEADER,
    "a block has room for the largest transaction"
);

impl LogConfig {
    /// How the log reads its own files.
    pub(crate) fn how(&self, traces: bool) -> How {
        How { threads: self.threads, traces, is_bounded: false, fault: self.fault }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        LogConfig {
            workers: 1024,
            segment_bytes: 64 << 20,
            buffer_bytes: 256 << 10,
            transaction_bytes: TRANSACTION_BYTES_MAX,
            checkpoint_bytes: 256 << 20,
            small_files: 64,
            threads,
            commit: CommitProtocol::Epoch,
            direct: false,
            uring: true,
            checks_order: false,
            fault: None,
        }
    }
}

/// The log's number of a table, and its schema. None if the log does not know the table.
pub(crate) type Bound = Option<(u32, Arc<Schema>)>;

/// The log of a database.
#[derive(Debug)]
pub struct Log {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) config: LogConfig,
    writers: Box<[CachePadded<Writer>]>,
    pub(crate) manifest: Mutex<Manifest>,
    /// Held while a checkpoint is taken, so that there is one at a time.
    pub(crate) checkpoint: Mutex<()>,
    /// The number of the next file.
    next_file: AtomicU64,
    /// The number of tables and their checksum, for the headers of new files.
    known_tables: Mutex<(usize, u64)>,
    /// The tables that were bound, by the engine's numbers.
    tables: RwLock<Vec<Bound>>,
    /// How many times a table was bound.
    bound: AtomicU64,
    /// Every transaction that committed in this epoch or an earlier one is durable.
    durable: AtomicU64,
    /// The largest epoch that a thread is waiting for.
    wanted: Mutex<u64>,
    /// Notified when a thread begins to wait, and when the log is closed.
    asked: Condvar,
    /// Notified when a flush has ended, and when the log has stopped.
    flushed: Condvar,
    /// The first error, after which nothing is acknowledged any more.
    stopped: Mutex<Option<LogError>>,
    /// Whether there is one; it is loaded without the lock.
    has_stopped: AtomicBool,
    closed: AtomicBool,
    /// Whether a file was created whose directory entry has not been synchronised.
    has_new_names: AtomicBool,
    /// Every transaction with a smaller LSN is durable.
    lsn: AtomicU64,
    /// The largest epoch of the blocks that were written to files. They may not be synchronised
    /// yet.
    last_written: AtomicU64,
    /// Bytes of these blocks.
    bytes: AtomicU64,
}

impl Log {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.config.fault == Some(fault)
    }

    /// What may be in a worker's file behind the bytes that the manifest knows of.
    pub(crate) fn tail(&self) -> Tail {
        match self.config.commit {
            CommitProtocol::Epoch => Tail::Epochs,
            CommitProtocol::Workers { release: Release::Conservative, .. } => Tail::Flushed,
            CommitProtocol::Workers { release: Release::Early, .. } => Tail::InOrder,
        }
    }

    /// Whether commits can still become durable.
    ///
    /// # Errors
    /// The error after which nothing was acknowledged any more.
    pub fn check(&self) -> Result<(), LogError> {
        // Acquire: pairs with the Release store of `stop`. Nearly every call ends here.
        if !self.has_stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.stopped.lock().clone().expect("set before");
        Err(LogError::Stopped { cause: Arc::new(cause) })
    }

    /// Stops the log: after `error` nothing is acknowledged any more, because it is not known what
    /// the disk holds. A synchronisation that failed is not tried again: the next one would succeed
    /// without the pages that were lost. Returns `error`.
    pub(crate) fn stop(&self, error: LogError) -> LogError {
        self.stopped.lock().get_or_insert_with(|| error.clone());
        // Release: pairs with the Acquire load of `check`, which then finds the error.
        self.has_stopped.store(true, Ordering::Release);
        let _wanted = self.wanted.lock();
        self.flushed.notify_all();
        error
    }

    /// Returns the configuration that the log was opened with.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Returns the bytes that workers' blocks take in files, without those of checkpoints.
    pub fn bytes(&self) -> u64 {
        // Relaxed: a count that no other memory depends on.
        self.bytes.load(Ordering::Relaxed)
    }
}
