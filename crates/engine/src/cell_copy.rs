//! Copies of what single cells held, for readers of snapshots.
//!
//! An old version that is a whole record ([`OldVersion`](crate::OldVersion)) has the record's
//! layout: metadata of all cells, and the whole row. A protocol that replaces one cell at a time
//! would fill two words of it here and two there, and each lie in a line of its own. A copy of a
//! cell is short and dense:
//!
//! | words | contents |
//! | --- | --- |
//! | 0 | a word of the protocol |
//! | 1 | the address of the next older copy, or 0 |
//! | from 2 | the cell's part of the row; then, if history is recorded, its writer's signature |

use std::ptr::NonNull;

use contend_machine::Machine;

use crate::config::Alignment;
use crate::record::Record;
use crate::slab::{Slabs, slot_words};

/// The words before the contents.
const HEAD: usize = 2;

/// The memory for copies of one cell of a table's records.
pub(crate) struct CellCopies<M: Machine> {
    pub(crate) slabs: Slabs<M>,
    /// The number of the arenas from which workers take the memory.
    pub(crate) arena: u32,
    /// The number of words of the contents.
    words: usize,
}

impl<M: Machine> CellCopies<M> {
    /// Returns memory for copies of this number of words.
    pub(crate) fn new(words: usize, arena: u32) -> Self {
        // The workers' copies are many, whatever the number of rows.
        CellCopies { slabs: Slabs::new(slot_words(HEAD + words, Alignment::Packed, usize::MAX)), arena, words }
    }
}

/// A copy of what a cell held.
#[derive(Debug)]
pub struct CellCopy<M: Machine> {
    of: NonNull<CellCopies<M>>,
    record: Record<M>,
}

impl<M: Machine> Clone for CellCopy<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for CellCopy<M> {}

// SAFETY: the memory belongs to a table, which lives as long as the engine; a worker keeps that.
// All access is through shared atomics and mutexes.
unsafe impl<M: Machine> Send for CellCopy<M> {}

impl<M: Machine> CellCopy<M> {
    pub(crate) fn new(of: &CellCopies<M>, record: Record<M>) -> Self {
        CellCopy { of: NonNull::from(of), record }
    }

    pub(crate) fn of(&self) -> &CellCopies<M> {
        // SAFETY: as for `Send`.
        unsafe { self.of.as_ref() }
    }

    pub(crate) fn record(&self) -> Record<M> {
        self.record
    }

    /// Returns the address of the copy, never 0.
    pub fn address(&self) -> u64 {
        self.record.value()
    }

    /// Returns the protocol's word.
    pub fn word<'a>(&self) -> &'a M::U64 {
        self.record.word()
    }

    /// Returns the word with the address of the next older copy.
    pub fn older<'a>(&self) -> &'a M::U64 {
        // SAFETY: a copy has these words.
        unsafe { &self.record.words(1, 1)[0] }
    }

    /// Returns the words of the contents.
    pub(crate) fn contents<'a>(&self) -> &'a [M::U64] {
        // SAFETY: the slabs were made for copies of this many words.
        unsafe { self.record.words(HEAD, self.of().words) }
    }
}
