//! A record: the protocol's metadata words, then the row's words, in one block of a slab.
//!
//! A record is one *cell*, or with timestamp splitting one cell for each group of columns. A cell
//! is the unit that a protocol locks, versions and validates. Each cell has its own metadata words.
//! The metadata of all cells stand one after the other before the row.

use contend_machine::Machine;
use std::ptr::NonNull;

use crate::group::{GroupNumbers, Groups};

/// A handle to a record: its address, which is also the value that the index holds.
///
/// The memory of a record is type-stable: it consists of atomic words as long as its table lives,
/// or as its engine does if it is a block of copies or one of them.
/// An unlinked record is reused only when no transaction that could have met it is active (see
/// [`crate::epoch`]). Protocols use a handle only inside one transaction.
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
    /// Returns the record at this address.
    ///
    /// # Safety
    /// A slab handed out the address as a record's, or it lies in what a slab handed out. The slab
    /// outlives every use of the handle.
    #[inline(always)]
    pub(crate) unsafe fn new(words: NonNull<M::U64>) -> Self {
        Record(words)
    }

    /// Returns the record that an index holds as this value.
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

    /// Returns the value under which an index holds the record: its address, never 0.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Returns the first metadata word, which every record has. It belongs to the protocol.
    #[inline(always)]
    pub fn word<'a>(self) -> &'a M::U64 {
        // SAFETY: every record has a metadata word; by the contract of the constructors the slab
        // outlives the handle's use.
        unsafe { self.0.as_ref() }
    }

    /// Returns `count` words from word `first` on.
    ///
    /// # Safety
    /// The record's table gives it at least `first + count` words.
    #[inline(always)]
    pub(crate) unsafe fn words<'a>(self, first: usize, count: usize) -> &'a [M::U64] {
        // SAFETY: the words lie inside the record by the caller's promise, and the slab initialised
        // them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(first), count) }
    }

    /// Prefetches the record's first line for a write.
    #[inline(always)]
    pub fn prefetch_to_write(self) {
        M::prefetch_to_write(self.0.as_ptr());
    }

    /// Returns the cells of these numbers.
    ///
    /// # Safety
    /// The record's table gives it cells of `stride` words of these numbers.
    #[inline(always)]
    pub(crate) unsafe fn cells(self, numbers: Groups, stride: usize) -> Cells<M> {
        Cells { first: self.0, numbers: numbers.into_iter(), stride }
    }

    /// Returns the first cell, which every record has.
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
    /// Makes a cell of a protocol's own out of the words from `first` on. It belongs to no record.
    ///
    /// # Safety
    /// As long as the protocol uses the cell, there are as many words at `first` as its cells have.
    pub unsafe fn at(first: NonNull<M::U64>) -> Self {
        Cell(first)
    }

    /// Returns the first metadata word, which belongs to the protocol.
    #[inline(always)]
    pub fn word<'a>(self) -> &'a M::U64 {
        // SAFETY: every cell has a metadata word; the record's slab outlives the handle's use.
        unsafe { self.0.as_ref() }
    }

    /// Prefetches the cell's first line for a write.
    #[inline(always)]
    pub fn prefetch_to_write(self) {
        M::prefetch_to_write(self.0.as_ptr());
    }

    /// Returns another metadata word.
    ///
    /// # Safety
    /// The protocol's cells have more than `number` metadata words.
    #[inline(always)]
    pub unsafe fn meta<'a>(self, number: usize) -> &'a M::U64 {
        // SAFETY: inside the cell by the caller's promise; the record's slab outlives the handle's
        // use.
        unsafe { self.0.add(number).as_ref() }
    }

    /// Returns the cell as a word. [`Cell::at`] can make the cell from it again.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Returns the cell's address, which identifies the cell and orders cells.
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
    /// Returns the record's first cell, if no other is among these cells: the usual case, which
    /// deserves a path of its own.
    #[inline(always)]
    pub fn only_first(&self) -> Option<Cell<M>> {
        self.numbers.is_first_only().then_some(Cell(self.first))
    }

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
