//! The trait [`Protocol`]: what a concurrency-control protocol has to say.
//!
//! A protocol never probes an index. The engine does, and hands it one located record at a time ([`At`]); so batched lookups,
//! scans, misses, repeated lookups of an unlinked record, history and abort accounting are written once, for all protocols.

use contend_index::{Change, Key, Leaf};
use contend_machine::Machine;

use crate::abort::Abort;
use crate::options::Options;
use crate::record::Record;
use crate::row::Projection;
use crate::sets::{NodeSet, WriteSet};
use crate::table::{Table, TableCore};

/// What a protocol promises of the histories that it allows (Adya, Liskov, O'Neil: "Generalized isolation level definitions",
/// ICDE 2000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Nothing.
    None,
    /// No G1, no G-single: reads are of one snapshot; write skew is possible.
    Snapshot,
    /// No G1, no G2: every history equals a serial one.
    Serializable,
}

impl Isolation {
    /// The level's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::None => "none",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
}

/// A protocol in a list.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line of meaning.
    pub summary: &'static str,
    /// Where it was published: authors, title, venue, year.
    pub paper: &'static str,
    /// What it promises.
    pub isolation: Isolation,
}

/// How a record comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// It holds a committed row from the start: it was loaded before any transaction.
    Loaded,
    /// It is a placeholder, absent until the transaction that inserts it commits. [`Write::fresh`](crate::sets::Write::fresh).
    Inserting,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The whole row is replaced; what it was is of no interest.
    Blind,
    /// The row is read, and changed.
    Modify,
    /// The record is to be made absent.
    Delete,
    /// The record is absent (this transaction has just read that) and is to get a row.
    Insert,
}

/// What an access of a located record came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read: the row is in [`Context::scratch`].
    Row,
    /// The transaction's own write; this is its position in the write set. After `write`: the image is to be filled.
    Own(usize),
    /// The record is absent. This was observed like a row would be, and the payload is in [`Context::scratch`].
    Absent,
    /// The transaction itself has deleted the row.
    OwnDeleted,
    /// The record is out of the index: look the key up again.
    Unlinked,
}

/// A located record.
#[derive(Clone, Copy, Debug)]
pub struct At<'a, M: Machine, K: Key> {
    /// Its table.
    pub table: &'a Table<M, K>,
    /// Its key.
    pub key: K,
    /// The record itself.
    pub record: Record<M>,
}

/// What became of a tombstone that was to be unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlink {
    /// It is marked; from now on every access answers [`Access::Unlinked`]. The engine takes it out of the index.
    Marked,
    /// It has a row again, and needs no collecting until it is deleted again.
    Alive,
    /// Somebody works on it: try again later.
    Busy,
}

/// A worker's state, as its protocol sees it.
#[derive(Debug)]
pub struct Context<M: Machine, L> {
    /// The worker's number in its engine, from 0.
    pub worker: usize,
    /// What the transaction will write.
    pub writes: WriteSet<M>,
    /// The leaves that the transaction depends on.
    pub nodes: NodeSet<M>,
    /// Where rows that are read are copied to.
    pub scratch: Vec<u64>,
    /// The protocol's own state.
    pub local: L,
    /// The global epoch, for protocols that order commits by it.
    pub(crate) epoch: *const crate::epoch::Epochs<M>,
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`.
unsafe impl<M: Machine, L: Send> Send for Context<M, L> {}

impl<M: Machine, L> Context<M, L> {
    /// The global epoch.
    #[inline(always)]
    pub fn current_epoch(&self) -> u64 {
        // SAFETY: the worker that owns this context keeps the engine, and so the epochs.
        unsafe { &*self.epoch }.current()
    }

    /// Copies what is needed of a record's payload to [`Context::scratch`]. The protocol sees to it that it is one state.
    #[inline(always)]
    pub fn copy_row(&mut self, table: &TableCore<M>, record: Record<M>, columns: Projection<'_>) {
        if self.scratch.len() < table.payload_words() {
            self.grow_scratch(table.payload_words());
        }
        columns.copy_out::<M>(table.payload(record), &mut self.scratch);
    }

    #[cold]
    fn grow_scratch(&mut self, words: usize) {
        self.scratch.resize(words, 0);
    }

    /// Moves the row in [`Context::scratch`] into the image of the write at this position.
    #[inline(always)]
    pub fn scratch_to_image(&mut self, position: usize) {
        let image = self.writes.image_mut(position);
        image.copy_from_slice(&self.scratch[..image.len()]);
    }
}

/// A concurrency-control protocol: a type, in a file of its own.
///
/// For each transaction the engine calls `begin`, then any of `read`, `write`, `inserted` and `gap`, then `commit`; and `abort`
/// if the transaction's code gave up or if any of these failed, `commit` included. A method that fails may leave locks held: `abort`
/// releases what is held. After either, the engine clears the write set and the node set.
///
/// Own reads: `read` and `write` look into `cx.writes` first. A record that the transaction reads twice may be observed twice; the
/// commit must fail unless both observations were of one state.
pub trait Protocol<M: Machine>: Sized + Send + Sync + 'static {
    /// Name, paper, promise.
    const INFO: Info;
    /// Metadata words of a record, 1 or more.
    const META_WORDS: usize;
    /// What can be tuned.
    type Options: Options;
    /// A worker's own state, such as its read set. It lives as long as the worker.
    type Local: Default + Send + 'static;

    /// The protocol's shared state.
    fn new(options: Self::Options) -> Self;

    /// Sets the metadata of a record that nobody else sees yet.
    fn init(&self, record: Record<M>, initial: Initial);

    /// A transaction begins. The write set and the node set are empty.
    fn begin(&self, cx: &mut Context<M, Self::Local>);

    /// Reads a record: copies what `columns` names to [`Context::scratch`], also of a record that is absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn read<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        columns: Projection<'_>,
    ) -> Result<Access, Abort>;

    /// Announces a write: answers [`Access::Own`] with the image's position. For [`Mode::Modify`] the image holds the row, for
    /// [`Mode::Blind`] and [`Mode::Insert`] it is to be filled. A record that is absent is a miss, and observed as one, except
    /// for [`Mode::Insert`]. A blind write may leave it to the commit to find the record absent.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn write<K: Key>(&self, cx: &mut Context<M, Self::Local>, at: At<'_, M, K>, mode: Mode) -> Result<Access, Abort>;

    /// The engine has put a new record, made by `init` with [`Initial::Inserting`], into the index: adds it to the write set, and
    /// answers with its position there. The entry is marked fresh by the engine.
    ///
    /// # Errors
    /// The transaction has to abort. The record must be in the write set in this case too.
    fn inserted<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        change: &Change<M>,
    ) -> Result<usize, Abort>;

    /// The transaction depends on this leaf's keys: a lookup missed there, or a scan passed it.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn gap(&self, cx: &mut Context<M, Self::Local>, leaf: Leaf<M>, version: u64) -> Result<(), Abort>;

    /// Commits: installs each write by [`WriteSet::install`].
    ///
    /// # Errors
    /// The transaction has to abort; nothing was installed.
    fn commit(&self, cx: &mut Context<M, Self::Local>) -> Result<(), Abort>;

    /// Releases what the transaction holds.
    fn abort(&self, cx: &mut Context<M, Self::Local>);

    /// Marks a tombstone as unlinked, if it still is one, so that it can leave the index.
    fn unlink(&self, record: Record<M>) -> Unlink;

    /// Whether the record has no row, asked when no transaction runs.
    fn is_absent(&self, record: Record<M>) -> bool;
}
