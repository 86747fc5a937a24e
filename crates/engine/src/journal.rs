//! What a log is told: who has committed, and what it wrote.
//!
//! **Stamps.** A row of a table that is logged has a word for each group of columns that counts its writes. It grows with each, and is never below the first of the epoch in
//! which the row is written. It also grows from a record to the next one of its key, because a tombstone leaves the index only when the epoch of its stamp
//! is over ([`crate::Tombstone::stamp_is_over`]): the epoch above the stamp is smaller than that of every transaction that runs then. How long the tombstone has been
//! queued says nothing about that, because it may have got a row in the queue, and have been deleted again. Debug builds check it where a record gets its first stamp, and a
//! reader of the log can check it by the order of inserts and deletions. A write counts when it is installed, while the protocol keeps all others away. So of two writes of a row the later one
//! has the larger stamp, whatever the protocol orders its transactions by, and without a number that all share.
//!
//! **Additions.** Updates that commute ([`crate::Update::commutes`]) leave the stamp as it is: what is logged of them is by how much each word has
//! changed, and which stamp the row has that they were added to. So they are in no order among themselves, and what a row is in the end is what was
//! written with its stamp, and the sum of all that was added to that. A log that has some of the updates has all that came before them, so whatever such an
//! update does, what it has made of one word is the difference to what the last has left.
//!
//! A protocol's own numbers will do as well if they are like that ([`crate::Control::stamps_commits`]); then there is no such word, unless additions need one that they leave as it is. Silo's TIDs are: they
//! have the epoch above them, which a new log begins later, grow from write to write of a record, and their tombstones wait for the end of the TID's epoch. So are MOCC's, which are the same. The timestamps
//! of the others are not: they begin anew with each engine, as counters and clocks do, or (TicToc) have no epoch.
//!
//! **Epochs.** A transaction commits in the global epoch of when it is sure to: when its first write is installed, or, where writes are shown
//! before, when all that it has seen has come to this. Whoever reads such a write, or writes over it, does so later, and so in the same epoch
//! or a later one. All transactions up to an epoch are a prefix: none of them has seen one that is not.
//!
//! **Release.** Protocols let a row go once its write is installed (early release). A log may want others to wait until the write is durable
//! (conservative release): then each cell has one word more, its *hold*, in which a transaction leaves what the log makes of it. Who reads or
//! writes a row asks the log whether it may go on, right after the protocol has said that it may: what the protocol lets see comes after the hold.
//! So the log needs to know nothing of protocols, nor they of it.

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::abort::AbortReason;
use crate::sets::WriteSet;

/// How many writes a row has had, in the sense of this module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// The stamps of an epoch begin at its number times two to the power of this.
pub const STAMP_SHIFT: u32 = 28;

impl Stamp {
    /// The epoch that it has above it.
    pub fn epoch(self) -> u64 {
        self.0 >> STAMP_SHIFT
    }
}

/// What an update has done to a word of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Which word.
    pub word: u32,
    /// What was added to it; it wraps around.
    pub by: u64,
}

/// A write of a transaction that has committed.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// Where it is in the write set.
    pub position: usize,
    /// The stamp of the row that it left.
    pub stamp: Stamp,
    /// Where its additions are, if it was logged by them: their first, and the one behind the last.
    pub(crate) additions: Option<(usize, usize)>,
}

/// What a log has left on the cells that a transaction wrote: whatever the log makes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold(pub u64);

impl Hold {
    /// Nobody has to wait.
    pub const NONE: Hold = Hold(0);
}

/// A worker's log.
pub trait Journal<M: Machine>: Send + std::fmt::Debug {
    /// The most words, of keys and rows, that a transaction may write: another aborts ([`AbortReason::TooLarge`]) before anything of it is installed.
    fn words_max(&self) -> usize {
        usize::MAX
    }

    /// A transaction of the worker will commit, and is about to install its writes: whatever it depends on was told so before. Its epoch is
    /// read after this. What to leave on its cells, if the engine's logs hold rows.
    fn committing(&mut self) -> Hold;

    /// A transaction of the worker has committed, in this epoch. What it wrote is in [`WriteSet::logged`], with the rows as they were installed.
    /// The worker is in this epoch still, or in the one before.
    fn committed(&mut self, epoch: u64, writes: &WriteSet<M>);

    /// The worker has loaded a row, in this epoch, outside any transaction. Its stamp is the first of the epoch: the key has not been written in it.
    fn loaded(&mut self, epoch: u64, table: u32, key: &KeyWords, row: &[u64]);

    /// Whether the worker's transactions may go on where this was left. Another that holds rows may have to be waited for, unless that
    /// could take for ever: then they abort.
    fn may_pass(&mut self, hold: Hold) -> bool;

    /// The worker, which is installing, can't abort any more: waits until it may go on where this was left.
    fn wait_for(&mut self, hold: Hold);

    /// The worker's transaction has aborted.
    fn aborted(&mut self, reason: AbortReason);

    /// The worker pauses: nobody may have to wait for what it does next.
    fn rest(&mut self);

    /// What the worker's last transaction waits for, in the log's own count.
    fn ticket(&self) -> u64;

    /// Whether a transaction of the worker is durable.
    fn is_durable(&mut self, ticket: u64) -> bool;
}

/// The logs of an engine's workers.
pub trait Journals<M: Machine>: Send + Sync {
    /// The log of the worker of this number.
    fn of_worker(&self, worker: usize) -> Box<dyn Journal<M>>;

    /// Whether rows are held until they are durable.
    fn holds_rows(&self) -> bool;
}
