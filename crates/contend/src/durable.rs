//! A durable database: its log, the thread that flushes it, and the thread that takes checkpoints.
//!
//! **Threads.** Three kinds share the log: those of the application, which append and wait; the
//! flusher, which makes epochs durable; the checkpointer, which rewrites files. They meet in the
//! log's own locks and atomics ([`Log`]). This module adds a flag that ends the checkpointer, and a
//! lock for the recovered tables.
//!
//! **The end.** The checkpointer ends first, then the flusher. A checkpoint waits until blocks are
//! durable ([`Log::wait`]), so it needs a flusher that runs. In the other order the last checkpoint
//! could wait for ever. A checkpoint that is being taken is finished.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use contend_engine::{Engine, IndexKind, Key, Protocol, Row, TableShape, TableSpec, type_name_of};
use contend_log::{Flusher, Log, LogError, Recovered, RecoveredTable, Report, Schema};
use contend_machine::Native;
use parking_lot::Mutex;

use crate::error::Error;
use crate::seats::is_in_transaction;

/// The log of a database.
pub(crate) struct Durable {
    pub(crate) log: Arc<Log>,
    pub(crate) report: Report,
    /// The tables that recovery found, and that the application has not opened yet.
    tables: Mutex<HashMap<String, RecoveredTable>>,
    /// Takes checkpoints until `is_over` is set.
    checkpointer: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// It outlives the checkpointer, which waits for flushes.
    _flusher: Flusher,
}

impl Durable {
    pub(crate) fn new<P: Protocol<Native>>(
        log: Arc<Log>,
        recovered: Recovered,
        engine: &Arc<Engine<P, Native>>,
        epoch_ms: u64,
    ) -> Self {
        let flusher = Flusher::start(&log, engine, Duration::from_millis(epoch_ms));
        let Recovered { tables, report, .. } = recovered;
        let tables = tables.into_iter().map(|table| (table.schema.name.clone(), table)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        // The thread keeps the log and not the database. So the last handle of the application
        // drops the database, and that ends the thread.
        let checkpointer = {
            let (log, is_over) = (Arc::clone(&log), Arc::clone(&is_over));
            std::thread::spawn(move || take_checkpoints(&log, &is_over))
        };
        Durable {
            log,
            report,
            tables: Mutex::new(tables),
            checkpointer: Some(checkpointer),
            is_over,
            _flusher: flusher,
        }
    }

    /// Returns the recovered table of this name, if there is one that was not opened yet.
    ///
    /// # Errors
    /// It had other rows or keys.
    pub(crate) fn take<R: Row, K: Key>(&self, name: &str, index: IndexKind) -> Result<Option<RecoveredTable>, Error> {
        let mut tables = self.tables.lock();
        // The lock is held from the check to the removal, so of two threads that open one table
        // only one gets its rows.
        let Some(table) = tables.get(name) else { return Ok(None) };
        let now = schema_of::<R, K>(name, index);
        if table.schema != now {
            let (table, was) = (name.to_owned(), table.schema.to_string());
            return Err(LogError::SchemaChanged { table, was, now: now.to_string() }.into());
        }
        Ok(tables.remove(name))
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        // The flag first, then the wake-up. An `unpark` before the other thread parks makes that
        // park return at once, so the wake-up is not lost wherever the thread is. The thread then
        // sees the flag. Release: pairs with the Acquire load of `take_checkpoints`. The flag
        // passes no data; the join below orders the thread's work before the end of the log.
        self.is_over.store(true, Ordering::Release);
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.thread().unpark();
            // It has no reason to panic, and a destructor could do nothing about a panic.
            let _ = checkpointer.join();
        }
    }
}

/// The time between two looks of the checkpointer whether a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn take_checkpoints(log: &Log, is_over: &AtomicBool) {
    let (mut before, mut last) = (log.bytes(), 0);
    loop {
        // A database that is closed at once merges as well: such databases have left the small
        // files. An error is dealt with below.
        let _ = log.merge();
        // Acquire: pairs with the Release store of `drop`.
        if is_over.load(Ordering::Acquire) {
            return;
        }
        // The difference is never negative: the count only grows, and this thread's later loads of
        // it return no smaller value, although they are Relaxed. A count that lags behind the
        // workers makes a checkpoint later by one look.
        if log.bytes() - before < log.config().checkpoint_bytes.max(last) {
            std::thread::park_timeout(LOOK_EVERY);
            continue;
        }
        // Before the checkpoint, so that what workers write meanwhile counts for the next one.
        before = log.bytes();
        match log.checkpoint() {
            Ok(checkpoint) => last = checkpoint.bytes,
            // If the log has stopped, the next commit gets the error. If the disk was full, the log
            // goes on, and a later checkpoint may succeed.
            Err(_) if log.check().is_err() => return,
            Err(_) => {}
        }
    }
}

/// Returns the schema of a table of rows `R` and keys `K` for a log. It says names, types and
/// places of columns, so that a table is not opened as another one.
pub(crate) fn schema_of<R: Row, K: Key>(name: &str, index: IndexKind) -> Schema {
    let spec = TableSpec::of::<R>(name, index, 0);
    let key = format!("key {}", type_name_of::<K>());
    let columns = R::COLUMNS.iter().map(|column| {
        let (start, end) = (column.offset, column.offset + column.size);
        format!("{} {} {start}..{end}", column.name, column.type_name())
    });
    let columns = std::iter::once(key).chain(columns).collect::<Vec<_>>().join(", ");
    let TableSpec { row_bytes, groups, .. } = spec;
    let row_words = row_bytes.div_ceil(8);
    Schema::of(TableShape { name: name.to_owned(), key_words: K::WORDS, row_words, groups, index }, columns)
}

/// A transaction that has committed, and that may not be durable yet.
#[derive(Debug)]
#[must_use = "the transaction may not be durable yet: `wait` says when it is"]
pub struct Ticket<T> {
    value: T,
    /// The log, and the epoch in which it committed. None if the database is in memory, or the
    /// transaction is durable.
    logged: Option<(Arc<Log>, u64)>,
}

impl<T> Ticket<T> {
    pub(crate) fn new(value: T, log: Option<&Arc<Log>>, epoch: u64) -> Self {
        Ticket { value, logged: log.map(|log| (Arc::clone(log), epoch)) }
    }

    /// Returns the transaction's result. The transaction may not be durable yet.
    pub fn peek(&self) -> &T {
        &self.value
    }

    /// Whether the transaction is durable. Always true in a database in memory.
    pub fn is_durable(&self) -> bool {
        // No lock: the durable epoch only grows, and is published after the manifest was written
        // (`Log::durable`). So `true` stays true, and holds also after a crash.
        self.logged.as_ref().is_none_or(|(log, epoch)| log.durable() >= *epoch)
    }

    /// Waits until the transaction is durable, and returns its result.
    ///
    /// # Errors
    /// The log has stopped, so that it will never be known whether the transaction is durable. Or
    /// it is not durable yet, and this thread is in a transaction of the same database, or loads
    /// rows into it: the log would wait for the end of that in its turn ([`Error::Nested`]).
    pub fn wait(self) -> Result<T, Error> {
        if let Some((log, epoch)) = self.logged
            && log.durable() < epoch
        {
            // This thread's own transaction keeps the epoch from ending, and the flusher waits for
            // that end. So the wait below would be for itself.
            if is_in_transaction(&log) {
                return Err(Error::Nested);
            }
            log.wait(epoch)?;
        }
        Ok(self.value)
    }

    /// Returns the same transaction with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Ticket<U> {
        Ticket { value: change(self.value), logged: self.logged }
    }
}
