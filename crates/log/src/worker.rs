//! The part of a log that the engine's workers call: it appends what they commit, and flushes as
//! the commit protocol asks.

use std::sync::Arc;

use contend_engine::commit_sink::{CommitSink, CommitSinks, Hold, Logged};
use contend_engine::sets::{WriteKind, WriteSet};
use contend_engine::{AbortReason, KeyWords, TableCore};
use contend_machine::Machine;

use crate::commit::{CommitProtocol, Commits, Committer, LOADED_LSN};
use crate::fault::Fault;
use crate::format::{self, Change, Write};
use crate::log::{Bound, Log, TRANSACTION_BYTES_MAX};
use crate::manifest::Tail;
use crate::schema::Schema;

/// The part of one worker. It writes its part with every commit, so no two share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct WorkerLog<M: Machine> {
    log: Arc<Log>,
    commits: Arc<Commits<M>>,
    committer: Committer<M>,
    worker: usize,
    /// The epoch of the last commit.
    epoch: u64,
    /// The bound tables, by the engine's numbers, as they were when the log had bound tables
    /// `bound` times.
    tables: Vec<Bound>,
    bound: u64,
}

/// Returns the log's number and the schema of the engine's table with this number.
#[inline(always)]
fn bound(tables: &[Bound], table: u32) -> &(u32, Arc<Schema>) {
    tables[table as usize].as_ref().expect("a table is bound before it is used")
}

/// The writes of a transaction, in the log's form.
struct Writes<'a, M: Machine> {
    set: &'a WriteSet<M>,
    logged: std::slice::Iter<'a, Logged>,
    tables: &'a [Bound],
}

impl<'a, M: Machine> Iterator for Writes<'a, M> {
    type Item = (Write<'a>, &'a TableCore<M>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let logged = self.logged.next()?;
        let entry = &self.set.entries()[logged.position];
        let change = match self.set.additions(logged) {
            Some(additions) => Change::Add(additions),
            None if entry.kind == WriteKind::Delete => Change::Delete,
            None if entry.kind == WriteKind::Insert => Change::Insert(self.set.image(logged.position)),
            None => Change::Put(entry.groups(), self.set.image(logged.position)),
        };
        let (table, key) = (bound(self.tables, entry.table().id()).0, self.set.key(logged.position));
        Some((Write { table, key, counter: logged.counter, change }, entry.table()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.logged.size_hint()
    }
}

impl<M: Machine> ExactSizeIterator for Writes<'_, M> {}

impl<M: Machine> WorkerLog<M> {
    /// Copies the bound tables, if tables were bound since the last copy.
    #[inline]
    fn learn(&mut self) {
        let bound = self.log.bound();
        if self.bound != bound {
            (self.tables, self.bound) = (self.log.tables(), bound);
        }
    }

    fn flushes_itself(&self) -> bool {
        self.log.config.commit != CommitProtocol::Epoch
    }

    /// Makes all durable that the worker has committed.
    fn flush(&mut self) {
        if self.log.has(Fault::AcknowledgeBeforeFlush) {
            self.committer.flushed();
        }
        match self.log.flush_worker(self.worker) {
            Ok(()) => self.committer.flushed(),
            // A transaction that waits gets the error from the log.
            Err(_) => self.commits.give_up(),
        }
        if let Some(durable) = self.committer.durable_lsn() {
            self.log.note_durable_lsn(durable);
        }
    }
}

impl<M: Machine> CommitSink<M> for WorkerLog<M> {
    fn words_max(&self) -> usize {
        self.log.config.transaction_bytes.min(TRANSACTION_BYTES_MAX) / 8
    }

    fn committing(&mut self) -> Hold {
        if self.flushes_itself() { self.committer.committing() } else { Hold::NONE }
    }

    fn committed(&mut self, epoch: u64, writes: &WriteSet<M>) {
        self.epoch = epoch;
        let appends = self.committer.is_to_append(!writes.logged().is_empty());
        if appends {
            self.learn();
            // Under conservative release recovery needs no LSNs: no transaction sees what is not
            // durable.
            let lsn = if self.log.tail() == Tail::InOrder { self.committer.lsn() } else { 0 };
            let logged = Writes { set: writes, logged: writes.logged().iter(), tables: &self.tables };
            self.log.append(self.worker, epoch, lsn, |bytes| format::put_transaction(lsn, epoch, logged, bytes));
        }
        if self.flushes_itself() && self.committer.appended(epoch, appends) {
            self.flush();
        }
    }

    fn loaded(&mut self, epoch: u64, table: u32, key: &KeyWords, row: &[u64]) {
        self.learn();
        let (table, schema) = bound(&self.tables, table);
        let lsn = if self.log.tail() == Tail::InOrder { LOADED_LSN } else { 0 };
        let (key, counter) = (&key[..schema.key_words], format::first_counter(epoch));
        let write = Write { table: *table, key, counter, change: Change::Insert(row) };
        let writes = std::iter::once((write, &**schema));
        self.log.append(self.worker, epoch, lsn, |bytes| format::put_transaction(lsn, epoch, writes, bytes));
    }

    fn may_pass(&mut self, hold: Hold) -> bool {
        self.committer.may_pass(hold)
    }

    fn is_released(&mut self, hold: Hold) -> bool {
        self.committer.is_released(hold)
    }

    fn wait_for(&mut self, hold: Hold) {
        let log = &self.log;
        self.committer.wait_for(hold, |worker| log.flush_worker(worker).is_ok());
    }

    fn aborted(&mut self, reason: AbortReason) {
        // The transaction that was in the way may wait for a hold of this worker.
        if self.committer.holds_rows() && reason.is_conflict() && self.committer.has_unflushed() {
            self.flush();
        }
    }

    fn go_offline(&mut self) {
        let has_loaded = || self.log.has_buffered(self.worker);
        if self.flushes_itself() && (self.committer.has_unflushed() || has_loaded()) {
            self.flush();
        }
    }

    fn ticket(&self) -> u64 {
        if self.flushes_itself() { self.committer.ticket() } else { self.epoch }
    }

    fn is_durable(&mut self, ticket: u64) -> bool {
        if self.flushes_itself() { self.committer.is_durable(ticket) } else { self.log.durable() >= ticket }
    }
}

/// A log of files, as an engine knows it.
#[derive(Debug)]
pub struct LogSinks<M: Machine> {
    log: Arc<Log>,
    commits: Arc<Commits<M>>,
}

impl<M: Machine> LogSinks<M> {
    /// Returns the form of this log that an engine takes. A log has one engine.
    pub fn new(log: &Arc<Log>) -> Arc<Self> {
        let commits = Commits::new(log.config.commit, log.config.workers, log.durable_lsn(), log.config.fault);
        Arc::new(LogSinks { log: Arc::clone(log), commits: Arc::new(commits) })
    }
}

impl<M: Machine> CommitSinks<M> for LogSinks<M> {
    fn of_worker(&self, worker: usize) -> Box<dyn CommitSink<M>> {
        Box::new(WorkerLog {
            log: Arc::clone(&self.log),
            commits: Arc::clone(&self.commits),
            committer: Committer::new(&self.commits, worker),
            worker,
            epoch: 0,
            tables: Vec::new(),
            bound: 0,
        })
    }

    fn holds_rows(&self) -> bool {
        self.commits.protocol().holds_rows()
    }
}
