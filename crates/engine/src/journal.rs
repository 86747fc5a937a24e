//! What a log is told: who has committed, and what it wrote.
//!
//! **Stamps.** A row of a table that is logged has a word that counts its writes. It grows with each, and is never below the first of the epoch in
//! which the row is written, so that it also grows from a row to the next one of its key: a key that was deleted gets a new record two epochs
//! later at the earliest. A write counts when it is installed, while the protocol keeps all others away. So of two writes of a row the later one
//! has the larger stamp, whatever the protocol orders its transactions by, and without a number that all share.
//!
//! **Epochs.** A transaction commits in the global epoch of when its first write is installed. Whoever reads that write, or writes over it, does
//! so later, and so in the same epoch or a later one. All transactions up to an epoch are a prefix: none of them has seen one that is not.

use contend_index::KeyWords;
use contend_machine::Machine;

use crate::sets::WriteSet;

/// How many writes a row has had, in the sense of this module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// The stamps of an epoch begin at its number times two to the power of this.
pub const STAMP_SHIFT: u32 = 24;

/// A write of a transaction that has committed.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// Where it is in the write set.
    pub position: usize,
    /// The stamp of the row that it left.
    pub stamp: Stamp,
}

/// A worker's log.
pub trait Journal<M: Machine>: Send {
    /// A transaction of the worker has committed, in this epoch. What it wrote is in [`WriteSet::logged`], with the rows as they were installed.
    /// The worker is in this epoch still, or in the one before.
    fn committed(&mut self, epoch: u64, writes: &WriteSet<M>);

    /// The worker has loaded a row, in this epoch, outside any transaction. Its stamp is the first of the epoch: the key has not been written in it.
    fn loaded(&mut self, epoch: u64, table: u32, key: &KeyWords, row: &[u64]);
}

/// The logs of an engine's workers.
pub trait Journals<M: Machine>: Send + Sync {
    /// The log of the worker of this number.
    fn of_worker(&self, worker: usize) -> Box<dyn Journal<M>>;
}
