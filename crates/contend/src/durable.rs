//! What a database has besides when it is to be found again: a log, and a thread that flushes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use contend_engine::{Engine, IndexKind, Key, Protocol, Row, TableSpec, type_name_of};
use contend_log::{Log, LogError, Recovered, RecoveredTable, Report, Schema};
use contend_machine::Native;
use parking_lot::Mutex;

use crate::error::Error;
use crate::seats::is_in_transaction;

/// The log of a database.
pub(crate) struct Durable {
    pub(crate) log: Arc<Log>,
    pub(crate) report: Report,
    /// Tables that were there before, and that nobody has asked for yet.
    tables: Mutex<HashMap<String, RecoveredTable>>,
    flusher: Option<JoinHandle<()>>,
    /// Takes checkpoints, until it is told that this is over.
    checkpointer: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Durable {
    pub(crate) fn new<P: Protocol<Native>>(
        log: Arc<Log>,
        recovered: Recovered,
        engine: &Arc<Engine<P, Native>>,
        epoch_ms: u64,
    ) -> Self {
        let flusher = {
            let (log, engine) = (Arc::clone(&log), Arc::clone(engine));
            std::thread::spawn(move || {
                log.serve(Duration::from_millis(epoch_ms), || log.settle(engine.epochs()));
            })
        };
        let Recovered { tables, report, .. } = recovered;
        let tables = tables.into_iter().map(|table| (table.schema.name.clone(), table)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let checkpointer = {
            let (log, is_over) = (Arc::clone(&log), Arc::clone(&is_over));
            std::thread::spawn(move || take_checkpoints(&log, &is_over))
        };
        Durable {
            log,
            report,
            tables: Mutex::new(tables),
            flusher: Some(flusher),
            checkpointer: Some(checkpointer),
            is_over,
        }
    }

    /// The table of this name, if there was one.
    ///
    /// # Errors
    /// It had other rows or keys.
    pub(crate) fn take<R: Row, K: Key>(&self, name: &str, index: IndexKind) -> Result<Option<RecoveredTable>, Error> {
        let mut tables = self.tables.lock();
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
        // Neither has a reason to panic; if one has, nobody here would know what to do about it.
        // Release: pairs with the Acquire of `take_checkpoints`.
        self.is_over.store(true, Ordering::Release);
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.thread().unpark();
            let _ = checkpointer.join();
        }
        self.log.close();
        if let Some(flusher) = self.flusher.take() {
            let _ = flusher.join();
        }
    }
}

/// How often it is looked whether a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn take_checkpoints(log: &Log, is_over: &AtomicBool) {
    let (mut before, mut last) = (log.bytes(), 0);
    loop {
        // Also of a database that is closed at once: others like it have left the files. What an error means is said below.
        let _ = log.merge();
        // Acquire: pairs with the Release of the drop.
        if is_over.load(Ordering::Acquire) {
            return;
        }
        if log.bytes() - before < log.config().checkpoint_bytes.max(last) {
            std::thread::park_timeout(LOOK_EVERY);
            continue;
        }
        before = log.bytes();
        match log.checkpoint() {
            Ok(checkpoint) => last = checkpoint.bytes,
            // If the log has stopped, whoever commits next is told. If only the disk was full, the log goes on, and it is tried again later.
            Err(_) if log.check().is_err() => return,
            Err(_) => {}
        }
    }
}

/// What a log has to know of a table.
pub(crate) fn schema_of<R: Row, K: Key>(name: &str, index: IndexKind) -> Schema {
    let spec = TableSpec::of::<R>(name, index, 0);
    let row_words = spec.row_bytes.div_ceil(8);
    let mut groups: Vec<_> = spec.groups.iter().map(|span| (span.words().start, span.words().end)).collect();
    if groups.is_empty() {
        groups.push((0, row_words));
    }
    let key = format!("key {}", type_name_of::<K>());
    let columns = R::COLUMNS.iter().map(|column| {
        let (start, end) = (column.offset, column.offset + column.size);
        format!("{} {} {start}..{end}", column.name, column.type_name())
    });
    let columns = std::iter::once(key).chain(columns).collect::<Vec<_>>().join(", ");
    let ordered = index == IndexKind::Ordered;
    Schema { name: name.to_owned(), key_words: K::WORDS, row_words, groups, ordered, columns }
}

/// A transaction that has committed, and may not be durable yet.
#[derive(Debug)]
#[must_use = "the transaction may not be durable yet: `wait` says when it is"]
pub struct Ticket<T> {
    value: T,
    /// Where it is logged, and in which epoch; none, if nothing is, or it is durable.
    logged: Option<(Arc<Log>, u64)>,
}

impl<T> Ticket<T> {
    pub(crate) fn new(value: T, log: Option<&Arc<Log>>, epoch: u64) -> Self {
        Ticket { value, logged: log.map(|log| (Arc::clone(log), epoch)) }
    }

    /// What the transaction has returned, which may not be durable yet.
    pub fn peek(&self) -> &T {
        &self.value
    }

    /// Whether it is durable. A database in memory never waits for that.
    pub fn is_durable(&self) -> bool {
        self.logged.as_ref().is_none_or(|(log, epoch)| log.durable() >= *epoch)
    }

    /// What the transaction has returned, once it is durable.
    ///
    /// # Errors
    /// It will never be known to be durable; or it is not yet, and the thread is in a transaction of this database, or loads rows into it, for the end of
    /// which the log would wait in its turn ([`Error::Nested`]).
    pub fn wait(self) -> Result<T, Error> {
        if let Some((log, epoch)) = self.logged
            && log.durable() < epoch
        {
            if is_in_transaction(&log) {
                return Err(Error::Nested);
            }
            log.wait(epoch)?;
        }
        Ok(self.value)
    }

    /// The same transaction, with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Ticket<U> {
        Ticket { value: change(self.value), logged: self.logged }
    }
}
