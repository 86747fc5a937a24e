//! Parts that protocols are made of: the write set, the node set, and a map from records to positions.

use std::collections::HashMap;
use std::ptr::NonNull;

use contend_index::{Change, Key, KeyWords, Leaf, MAX_KEY_WORDS};
use contend_machine::{Atomic64, Machine, Ordering};

use crate::abort::{Abort, AbortReason};
use crate::protocol::{Access, Mode};
use crate::record::Record;
use crate::table::TableCore;

/// Up to this many entries a set is searched from end to end; above, by hashing.
const LINEAR_MAX: usize = 16;

/// From records to positions in a list of the owner's. One bit a record in a 64-bit Bloom filter answers most lookups of a record
/// that is not there, without a look at the list.
#[derive(Debug)]
pub struct RecordMap<M: Machine> {
    filter: u64,
    records: Vec<Record<M>>,
    hashed: HashMap<u64, u32>,
}

impl<M: Machine> Default for RecordMap<M> {
    fn default() -> Self {
        RecordMap { filter: 0, records: Vec::with_capacity(LINEAR_MAX), hashed: HashMap::new() }
    }
}

impl<M: Machine> RecordMap<M> {
    #[inline(always)]
    fn bit(record: Record<M>) -> u64 {
        // The top 6 bits of a multiplicative hash (Knuth, TAOCP volume 3, section 6.4).
        1 << (record.value().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
    }

    /// The record's position, if it is there.
    #[inline(always)]
    pub fn find(&self, record: Record<M>) -> Option<usize> {
        if self.filter & Self::bit(record) == 0 { None } else { self.search(record) }
    }

    #[inline(never)]
    fn search(&self, record: Record<M>) -> Option<usize> {
        if self.records.len() <= LINEAR_MAX {
            self.records.iter().position(|&other| other == record)
        } else {
            self.hashed.get(&record.value()).map(|&position| position as usize)
        }
    }

    /// Appends a record that is not there yet; returns its position.
    #[inline(always)]
    pub fn push(&mut self, record: Record<M>) -> usize {
        let position = self.records.len();
        self.filter |= Self::bit(record);
        self.records.push(record);
        if position >= LINEAR_MAX {
            self.push_hashed(position);
        }
        position
    }

    #[cold]
    fn push_hashed(&mut self, position: usize) {
        let first = if position == LINEAR_MAX { 0 } else { position };
        for position in first..=position {
            self.hashed.insert(self.records[position].value(), position as u32);
        }
    }

    /// Forgets all records; keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.records.len() > LINEAR_MAX {
            self.hashed.clear();
        }
        self.filter = 0;
        self.records.clear();
    }
}

/// What a write will do at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Replace the row of a record that exists.
    Update,
    /// Give a row to a record that is absent: a placeholder, or the tombstone of a deleted row.
    Insert,
    /// Make the record absent.
    Delete,
    /// Nothing: the transaction deleted the row that it had inserted itself.
    Nothing,
}

/// One record to be written.
#[derive(Debug)]
pub struct Write<M: Machine> {
    /// The record.
    pub record: Record<M>,
    /// What happens to it.
    pub kind: WriteKind,
    /// This transaction made the record: it is the one that has to have it collected if it stays absent.
    pub fresh: bool,
    /// The commit made the record a tombstone that nobody else will have collected. Set by the protocol.
    pub collect: bool,
    /// A word for the protocol's own use, such as the record's word when it was locked.
    pub observed: u64,
    /// Who wrote the version that [`WriteSet::install`] replaced (0: loaded, or none), if the table records history.
    pub(crate) over: u64,
    table: NonNull<TableCore<M>>,
    /// Where the key's words and then the image's words begin in the arena.
    image: usize,
    key_words: u32,
}

// SAFETY: the table outlives the transaction that the entry belongs to (`WriteSet::push`), and a `TableCore` is `Sync`.
unsafe impl<M: Machine> Send for Write<M> {}

impl<M: Machine> Write<M> {
    /// The record's table.
    #[inline(always)]
    pub fn table(&self) -> &TableCore<M> {
        // SAFETY: the engine keeps its tables as long as it lives, a transaction keeps the engine, and `Transaction` admits only
        // tables of its engine.
        unsafe { self.table.as_ref() }
    }
}

/// The records that a transaction will write, with the new rows, buffered until commit.
#[derive(Debug)]
pub struct WriteSet<M: Machine> {
    entries: Vec<Write<M>>,
    positions: RecordMap<M>,
    /// Keys and images, one after the other.
    arena: Vec<u64>,
    /// The transaction, as its versions are signed in a recorded history.
    pub(crate) txn: u64,
}

impl<M: Machine> Default for WriteSet<M> {
    fn default() -> Self {
        WriteSet {
            entries: Vec::with_capacity(16),
            positions: RecordMap::default(),
            arena: Vec::with_capacity(256),
            txn: 0,
        }
    }
}

impl<M: Machine> WriteSet<M> {
    /// The position of the record's entry, if the transaction writes it.
    #[inline(always)]
    pub fn find(&self, record: Record<M>) -> Option<usize> {
        self.positions.find(record)
    }

    /// Adds a record that is not there yet, with an image of zeros; returns its position. `table` is a table of the
    /// transaction's engine.
    #[inline]
    pub fn push<K: Key>(&mut self, table: &TableCore<M>, key: K, record: Record<M>, kind: WriteKind) -> usize {
        let image = self.arena.len();
        self.arena.extend_from_slice(&key.to_words()[..K::WORDS]);
        self.arena.resize(image + K::WORDS + table.payload_words(), 0);
        if table.records_history() {
            *self.arena.last_mut().expect("the signature word was just added") = self.txn;
        }
        self.entries.push(Write {
            record,
            kind,
            fresh: false,
            collect: false,
            observed: 0,
            over: 0,
            table: NonNull::from(table),
            image,
            key_words: K::WORDS as u32,
        });
        self.positions.push(record)
    }

    /// What a read of the entry at this position is.
    #[inline(always)]
    pub fn own(&self, position: usize) -> Access {
        match self.entries[position].kind {
            WriteKind::Update | WriteKind::Insert => Access::Own(position),
            WriteKind::Delete | WriteKind::Nothing => Access::OwnDeleted,
        }
    }

    /// A further write of the entry at this position.
    pub fn rewrite(&mut self, position: usize, mode: Mode) -> Access {
        let entry = &mut self.entries[position];
        let exists = matches!(entry.kind, WriteKind::Update | WriteKind::Insert);
        entry.kind = match (entry.kind, mode) {
            (kind, Mode::Blind | Mode::Modify) if exists => kind,
            (WriteKind::Update, Mode::Delete) => WriteKind::Delete,
            (WriteKind::Insert, Mode::Delete) => WriteKind::Nothing,
            (WriteKind::Delete, Mode::Insert) => WriteKind::Update,
            (WriteKind::Nothing, Mode::Insert) => WriteKind::Insert,
            // An insert of what exists, or another write of what is deleted: neither changes anything.
            _ => return self.own(position),
        };
        Access::Own(position)
    }

    /// The key of the entry at this position.
    pub fn key(&self, position: usize) -> KeyWords {
        let entry = &self.entries[position];
        let mut key = [0; MAX_KEY_WORDS];
        let words = entry.key_words as usize;
        key[..words].copy_from_slice(&self.arena[entry.image..entry.image + words]);
        key
    }

    /// The new row of the entry at this position.
    #[inline(always)]
    pub fn image(&self, position: usize) -> &[u64] {
        let entry = &self.entries[position];
        let start = entry.image + entry.key_words as usize;
        &self.arena[start..start + entry.table().row_words()]
    }

    /// The new row of the entry at this position, to be filled.
    #[inline(always)]
    pub fn image_mut(&mut self, position: usize) -> &mut [u64] {
        let entry = &self.entries[position];
        let start = entry.image + entry.key_words as usize;
        let end = start + entry.table().row_words();
        &mut self.arena[start..end]
    }

    /// Writes the entry's row, or a deletion, into the record's payload. The caller holds the record exclusively, and sets its
    /// metadata afterwards.
    #[inline(always)]
    pub fn install(&mut self, position: usize) {
        let entry = &mut self.entries[position];
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, which is changed below.
        let table = unsafe { entry.table.as_ref() };
        let payload = table.payload(entry.record);
        if table.records_history() {
            let signature = &payload[table.row_words()];
            // Relaxed: the record is held exclusively.
            entry.over = signature.load(Ordering::Relaxed);
            signature.store(self.txn, Ordering::Relaxed);
        }
        if entry.kind != WriteKind::Delete {
            let start = entry.image + entry.key_words as usize;
            M::copy_in(&payload[..table.row_words()], &self.arena[start..start + table.row_words()]);
        }
    }

    /// The entries, in the order of the first write, or sorted once [`WriteSet::sort`] was called.
    #[inline(always)]
    pub fn entries(&self) -> &[Write<M>] {
        &self.entries
    }

    /// The entries, to be changed.
    #[inline(always)]
    pub fn entries_mut(&mut self) -> &mut [Write<M>] {
        &mut self.entries
    }

    /// Sorts the entries by the records' addresses: one order for all transactions, so that locks taken in it can't deadlock.
    /// Positions found before or after are void; whether a record is there can still be asked.
    pub fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|write| write.record.value());
    }

    /// How many records are written.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is written.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries; keeps the memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.positions.clear();
        self.arena.clear();
    }
}

/// The leaves that a transaction's scans and misses observed (Silo, section 4.6).
#[derive(Debug)]
pub struct NodeSet<M: Machine> {
    leaves: Vec<(Leaf<M>, u64)>,
}

impl<M: Machine> Default for NodeSet<M> {
    fn default() -> Self {
        NodeSet { leaves: Vec::with_capacity(16) }
    }
}

impl<M: Machine> NodeSet<M> {
    /// Adds a leaf with the version that was observed. A leaf observed at two versions fails validation.
    #[inline(always)]
    pub fn add(&mut self, leaf: Leaf<M>, version: u64) {
        self.leaves.push((leaf, version));
    }

    /// Carries the transaction's own insert over into what it observed before.
    ///
    /// # Errors
    /// Somebody else changed the leaf between.
    pub fn follow(&mut self, change: &Change<M>) -> Result<(), Abort> {
        let mut observed = false;
        for (leaf, version) in &mut self.leaves {
            if *leaf == change.leaf {
                if *version != change.before {
                    return Err(Abort::new(AbortReason::Phantom));
                }
                *version = change.after;
                observed = true;
            }
        }
        if let (true, Some((leaf, version))) = (observed, change.split) {
            self.leaves.push((leaf, version));
        }
        Ok(())
    }

    /// Checks that no observed leaf has changed its set of keys.
    ///
    /// # Errors
    /// One has.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Abort> {
        if self.leaves.iter().all(|&(leaf, version)| leaf.version() == version) {
            Ok(())
        } else {
            Err(Abort::new(AbortReason::Phantom))
        }
    }

    /// Whether no leaf was observed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Forgets all leaves; keeps the memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
    }
}
