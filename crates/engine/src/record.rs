//! A record: the protocol's metadata words, then the row's words, in one block of a slab.
//!
//! A record is one *cell*, or, with timestamp splitting, a cell for each group of columns: the unit
//! that a protocol locks, versions and validates. Each cell has its own metadata words; the cells
//! of a record stand one after the other before the row.

use contend_machine::Machine;
use std::ptr::NonNull;

use crate::group::{GroupNumbers, Groups};

/// A handle to a record. It is the record's address, and what the index holds as value.
///
/// A record's memory is type-stable: words of atomics as long as its table lives. A record that was
/// unlinked is reused only when no transaction that could have met it is active (see
/// [`crate::epoch`]); protocols use handles inside one transaction only.
#[derive(Debug)]
pub struct Record<M: Machine>(NonNull<M::U64>);

impl<M: Machine> Clone for Record<M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Record<M> {}

impl<M: Machine> PartialEq for Record<M> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<M: Machine> Eq for Record<M> {}

// SAFETY: a handle is the address of words that any thread may access; their memory lives as long
// as the table.
unsafe impl<M: Machine> Send for Record<M> {}
// SAFETY: as for `Send`: all access is through shared atomics.
unsafe impl<M: Machine> Sync for Record<M> {}

impl<M: Machine> Record<M> {
    /// The record at this address.
    ///
    /// # Safety
    /// A slab handed the address out as a record's, and outlives every use of the handle.
    #[inline(always)]
    pub(crate) unsafe fn new(words: NonNull<M::U64>) -> Self {
        Record(words)
    }

    /// The record that an index holds as this value.
    ///
    /// # Safety
    /// The value came from [`Record::value`] of a record whose slab outlives every use of the
    /// handle.
    #[inline(always)]
    pub(crate) unsafe fn from_value(value: u64) -> Self {
        let words = std::ptr::with_exposed_provenance_mut::<M::U64>(value as usize);
        // SAFETY: `value` comes from a `NonNull`.
        Record(unsafe { NonNull::new_unchecked(words) })
    }

    /// The record as an index holds it: its address, never 0.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The first metadata word, which every record has. It belongs to the protocol.
    #[inline(always)]
    pub fn word<'a>(self) -> &'a M::U64 {
        // SAFETY: every record has a metadata word; by the contract of the constructors the slab
        // outlives the handle's use.
        unsafe { self.0.as_ref() }
    }

    /// `count` words from word `first` on.
    ///
    /// # Safety
    /// The record's table gives it at least `first + count` words.
    #[inline(always)]
    pub(crate) unsafe fn words<'a>(self, first: usize, count: usize) -> &'a [M::U64] {
        // SAFETY: the words lie inside the record by the caller's promise, and the slab initialised
        // them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(first), count) }
    }

    /// Asks for the record's first line, to write it.
    #[inline(always)]
    pub fn prefetch_to_write(self) {
        M::prefetch_to_write(self.0.as_ptr());
    }

    /// The cells of these numbers.
    ///
    /// # Safety
    /// The record's table gives it cells of `stride` words of these numbers.
    #[inline(always)]
    pub(crate) unsafe fn cells(self, numbers: Groups, stride: usize) -> Cells<M> {
        Cells { first: self.0, numbers: numbers.into_iter(), stride }
    }

    /// The first cell, which every record has.
    #[inline(always)]
    pub fn first_cell(self) -> Cell<M> {
        Cell(self.0)
    }
}

/// A handle to a cell: the address of its metadata words. Valid as long as the record's.
#[derive(Debug)]
pub struct Cell<M: Machine>(NonNull<M::U64>);

impl<M: Machine> Clone for Cell<M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Cell<M> {}

// SAFETY: as for a record.
unsafe impl<M: Machine> Send for Cell<M> {}
// SAFETY: as for a record.
unsafe impl<M: Machine> Sync for Cell<M> {}

impl<M: Machine> Cell<M> {
    /// The words from this one on, as a cell of a protocol's own, besides those of records.
    ///
    /// # Safety
    /// The protocol whose cell it is finds there as many words as its cells have, as long as it
    /// uses the cell.
    pub unsafe fn at(first: NonNull<M::U64>) -> Self {
        Cell(first)
    }

    /// The first metadata word, which belongs to the protocol.
    #[inline(always)]
    pub fn word<'a>(self) -> &'a M::U64 {
        // SAFETY: every cell has a metadata word; the record's slab outlives the handle's use.
        unsafe { self.0.as_ref() }
    }

    /// Another metadata word.
    ///
    /// # Safety
    /// The protocol whose cell it is has more than `number` metadata words a cell.
    #[inline(always)]
    pub unsafe fn meta<'a>(self, number: usize) -> &'a M::U64 {
        // SAFETY: inside the cell by the caller's promise; the record's slab outlives the handle's
        // use.
        unsafe { self.0.add(number).as_ref() }
    }

    /// The cell as a word, from which [`Cell::at`] can make it again.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The address, by which cells can be told apart and ordered.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

/// Some of a record's cells, in the order of their addresses.
#[derive(Debug)]
pub struct Cells<M: Machine> {
    first: NonNull<M::U64>,
    numbers: GroupNumbers,
    stride: usize,
}

impl<M: Machine> Clone for Cells<M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        Cells { first: self.first, numbers: self.numbers.clone(), stride: self.stride }
    }
}

impl<M: Machine> Cells<M> {
    #[inline(always)]
    fn cell(&self, number: usize) -> Cell<M> {
        // SAFETY: the record has a cell of this number (`Record::cells`).
        Cell(unsafe { self.first.add(number * self.stride) })
    }
}

impl<M: Machine> Iterator for Cells<M> {
    type Item = Cell<M>;

    #[inline(always)]
    fn next(&mut self) -> Option<Cell<M>> {
        let number = self.numbers.next()?;
        Some(self.cell(number))
    }
}

impl<M: Machine> DoubleEndedIterator for Cells<M> {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Cell<M>> {
        let number = self.numbers.next_back()?;
        Some(self.cell(number))
    }
}
