//! The interface between engine and log: it tells a log which transactions have committed, what
//! they wrote, and in which order.
//!
//! A log implements [`CommitSinks`] and gives each worker a [`CommitSink`]. It knows no protocol,
//! and no protocol knows it: the engine calls the sink from where all protocols come through,
//! [`WriteSet::install`](crate::sets::WriteSet::install) and the end of a transaction.
//!
//! **Write counters.** A row of a logged table has one word more for each group of columns, its
//! *write counter*. It has three properties:
//!
//! 1. It grows with each write of the group. A write counts when it is installed, while the
//!    protocol keeps all other writers away.
//! 2. It is at least `epoch << COUNTER_EPOCH_SHIFT` for the epoch in which the row is written.
//! 3. It grows from a record to the next record of the same key. A tombstone leaves the index only
//!    when the epoch of its write counter is over ([`crate::Tombstone::counter_epoch_is_over`]), so
//!    by 2 the next record begins with a larger one. How long the tombstone has been queued does
//!    not tell this: it may have become a row again in the queue, and have been deleted once more.
//!
//! So of two writes of a row the later one has the larger write counter, whatever the protocol
//! orders its transactions by, and without a counter that all workers share. A log can be replayed
//! in any order of its files: the write with the largest counter is the last. Debug builds check 3
//! where a record gets its first write counter. A reader of the log can check it as well: in the
//! order of the counters an insert must find no row, and any other write must find one.
//!
//! A protocol's own numbers serve as well if they have the three properties
//! ([`crate::Protocol::provides_write_counters`]); then the word is saved, unless additions need a
//! counter that they leave as it is. The TIDs of Silo and MOCC have them: the epoch is above them,
//! they grow with each write of a record, and a tombstone waits for the end of its TID's epoch. The
//! timestamps of the other protocols don't: counters and clocks begin anew with each engine, and
//! TicToc's have no epoch.
//!
//! **Additions.** An update that commutes ([`crate::Update::commutes`]) leaves the write counter as
//! it is. It is logged as the difference that it made to each word, with the write counter of the
//! row that it was added to. Additions to one counter have no order among themselves: the row is
//! the one that was written with that counter, plus the sum of all additions to it. The log is a
//! prefix: if it holds an update, it holds every earlier one. So an update may be logged as a
//! difference whatever its function is. A writer that installs before it is certain to commit
//! (Bamboo) flags the counter, and nothing is added to a flagged one (`UNSURE` in `sets::logged`).
//! Recovery takes each group from the write that wrote it last. So a counter belongs to a group of
//! columns, also where a cell is a whole row.
//!
//! **Epochs.** A transaction commits in the global epoch that is read when it is certain to commit.
//! That is at its first install. If it exposes rows before that (Bamboo), it is when all
//! transactions that it has read from are certain to commit
//! ([`WriteSet::will_commit`](crate::sets::WriteSet::will_commit)). A transaction that reads or
//! overwrites its writes is certain to commit later, so in the same epoch or a later one. So the
//! transactions up to the end of an epoch are a prefix: none of them depends on one that is not
//! among them.
//!
//! **Holds.** A protocol releases a row once its write is installed (early release). A log may want
//! other transactions to wait until the write is durable (conservative release). Then each cell has
//! one word more, its *hold*, in which a transaction leaves a value of the log's choice before it
//! installs. A transaction that reads or writes the cell asks the log about the hold right after
//! the protocol has granted access: the synchronisation by which the protocol published the write
//! published the hold before it. A reader that misses a key finds no cell, and so no hold.
//! Therefore a tombstone leaves the index only when its holds are released, whichever worker
//! deleted the row last: a row that becomes one again, and is deleted once more, stays in its first
//! worker's queue.

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::abort::AbortReason;
use crate::sets::WriteSet;

/// The number of a write of a row: larger than those of all earlier writes of the same key and
/// group. The upper bits are the epoch of the write, or more; the lower [`COUNTER_EPOCH_SHIFT`]
/// bits count within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteCounter(pub u64);

/// The bits of a write counter below its epoch.
pub const COUNTER_EPOCH_SHIFT: u32 = 28;

impl WriteCounter {
    /// Returns the epoch in the upper bits.
    pub fn epoch(self) -> u64 {
        self.0 >> COUNTER_EPOCH_SHIFT
    }
}

/// The difference that an update made to a word of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The number of the word in the row.
    pub word: u32,
    /// The difference, modulo 2^64.
    pub by: u64,
}

/// A write of a transaction that has committed.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// The position of the write's entry in the write set.
    pub position: usize,
    /// The write counter that the row has after it.
    pub counter: WriteCounter,
    /// The range of its additions in the write set, if it is logged as additions.
    pub(crate) additions: Option<(usize, usize)>,
}

/// The value that a log leaves on the cells that a transaction wrote. Only the log knows its
/// meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold(pub u64);

impl Hold {
    /// No transaction has to wait.
    pub const NONE: Hold = Hold(0);
}

/// The part of a log that a worker calls.
pub trait CommitSink<M: Machine>: Send + std::fmt::Debug {
    /// Returns the most words of keys and rows that a transaction may write. A larger one aborts
    /// ([`AbortReason::TooLarge`]) before it installs.
    fn words_max(&self) -> usize {
        usize::MAX
    }

    /// Notes that a transaction of the worker is certain to commit, and is about to install its
    /// writes. All transactions that it depends on came here before it. The engine reads its epoch
    /// after this call. Returns the hold for its cells, which the engine ignores unless rows are
    /// held.
    fn committing(&mut self) -> Hold;

    /// Takes a transaction of the worker that has committed in `epoch`. Its writes are in
    /// [`WriteSet::logged`], with the rows as they were installed. There may be none: it has only
    /// read, or it came to [`CommitSink::committing`] and then installed nothing. The worker is
    /// still in this epoch, or in the one before: the epoch does not end before this call does.
    fn committed(&mut self, epoch: u64, writes: &WriteSet<M>);

    /// Takes a row that the worker has loaded in `epoch`, outside any transaction. Its write
    /// counter is the first of the epoch: no other write of the key is of this epoch.
    fn loaded(&mut self, epoch: u64, table: u32, key: &KeyWords, row: &[u64]);

    /// Whether a transaction of the worker may use a cell with this hold. This may wait for the
    /// worker that holds the cell, unless that could take for ever: then it returns `false`, and
    /// the transaction aborts.
    fn may_pass(&mut self, hold: Hold) -> bool;

    /// Whether the transaction that left this hold is durable. This does not wait.
    fn is_released(&mut self, hold: Hold) -> bool;

    /// Waits until the worker may use a cell with this hold. The worker is installing, and can't
    /// abort any more.
    fn wait_for(&mut self, hold: Hold);

    /// Notes that the worker's transaction has aborted.
    fn aborted(&mut self, reason: AbortReason);

    /// Notes that the worker pauses. No other worker may have to wait for its next step.
    fn go_offline(&mut self);

    /// Returns a ticket for the worker's last transaction, with which [`CommitSink::is_durable`]
    /// asks about it.
    fn ticket(&self) -> u64;

    /// Whether the transaction with this ticket is durable. The ticket is one of this worker.
    fn is_durable(&mut self, ticket: u64) -> bool;
}

/// A log, as an engine knows it.
pub trait CommitSinks<M: Machine>: Send + Sync {
    /// Returns the part of the worker with this number.
    fn of_worker(&self, worker: usize) -> Box<dyn CommitSink<M>>;

    /// Whether rows are held until they are durable.
    fn holds_rows(&self) -> bool;
}
