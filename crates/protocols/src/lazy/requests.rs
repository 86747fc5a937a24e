//! The requests for a row, in words of its cells.
//!
//! | word | contents |
//! | --- | --- |
//! | 1 | the ticket of the last transaction whose later part writes the cell |
//! | 2 | the number of later parts that read the cell, since the record was made |
//! | 3 | the number of these that have ended |
//!
//! There is no queue. A transaction asks while it has the turn, and finds in the words whom it has
//! to wait for: the last writer, and before a write also all readers that have asked so far. A
//! reader that asks later waits for this writer. So word 3 reaches the number that was found in
//! word 2 when all earlier readers have ended, and does not pass it before the writer has ended.
//!
//! Only the transaction that has the turn changes words 1 and 2. Any may count up word 3.

use contend_engine::Cell;
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::LazyFaults;
use super::sequence::{Known, Sequence, Ticket};

/// The metadata words of a cell: the flags, and these three.
pub(super) const META_WORDS: usize = 4;

#[derive(Clone, Copy)]
struct Words<'a, M: Machine> {
    writer: &'a M::U64,
    readers: &'a M::U64,
    ended: &'a M::U64,
}

#[inline(always)]
fn words<'a, M: Machine>(cell: Cell<M>) -> Words<'a, M> {
    // SAFETY: a cell of this protocol has four words (`META_WORDS`).
    unsafe { Words { writer: cell.meta(1), readers: cell.meta(2), ended: cell.meta(3) } }
}

/// Sets the words of a new cell.
pub(super) fn init<M: Machine>(cell: Cell<M>) {
    let words = words(cell);
    // Relaxed: no other transaction sees the record yet (`flags::init_words`).
    [words.writer, words.readers, words.ended].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Waits, in the turn, until no later part will write the cell any more.
#[inline(always)]
pub(super) fn await_writer<M: Machine>(cell: Cell<M>, sequence: &Sequence<M>, known: &mut Known) {
    // Relaxed: it changes in the turn only.
    let writer = words(cell).writer.load(Ordering::Relaxed);
    if writer != 0 {
        sequence.await_end(known, writer);
    }
}

/// Waits, in the turn, until no later part will read the cell any more.
#[inline(always)]
pub(super) fn await_readers<M: Machine, F: LazyFaults>(cell: Cell<M>) {
    // Relaxed: as above.
    let readers = words(cell).readers.load(Ordering::Relaxed);
    if readers != 0 && !F::ignore_readers() {
        await_count(cell, readers);
    }
}

fn await_count<M: Machine>(cell: Cell<M>, readers: u64) {
    let ended = words(cell).ended;
    let mut spin = Spin::<M>::new();
    // Acquire: pairs with the Release of `Requests::release`: the reads come before the write.
    while ended.load(Ordering::Acquire) < readers {
        spin.wait_briefly();
    }
}

/// The requests of a running transaction, and whom it waits for.
#[derive(Debug)]
pub(super) struct Requests<M: Machine> {
    /// The earlier transactions that must end before.
    earlier: Vec<Ticket>,
    /// The cells whose earlier readers must have ended, with their number.
    readers: Vec<(Cell<M>, u64)>,
    /// The cells that the later part only reads.
    reads: Vec<Cell<M>>,
}

impl<M: Machine> Requests<M> {
    pub(super) fn new() -> Self {
        Requests { earlier: Vec::with_capacity(64), readers: Vec::with_capacity(64), reads: Vec::with_capacity(64) }
    }

    pub(super) fn clear(&mut self) {
        self.earlier.clear();
        self.readers.clear();
        self.reads.clear();
    }

    /// Asks for a cell in the name of the transaction with this ticket, which has the turn.
    pub(super) fn ask<F: LazyFaults>(&mut self, cell: Cell<M>, ticket: Ticket, writes: bool) {
        let words = words(cell);
        if F::capture_after_own() {
            // Relaxed: as below.
            words.writer.store(ticket, Ordering::Relaxed);
        }
        // Relaxed, all: these words change in the turn only.
        self.await_later(words.writer.load(Ordering::Relaxed));
        let readers = words.readers.load(Ordering::Relaxed);
        if writes {
            words.writer.store(ticket, Ordering::Relaxed);
            if readers != 0 && !F::ignore_readers() {
                self.readers.push((cell, readers));
            }
        } else {
            // Relaxed: as above.
            words.readers.store(readers + 1, Ordering::Relaxed);
            self.reads.push(cell);
        }
    }

    /// Notes that the later part comes after the end of an earlier transaction; 0: of none.
    pub(super) fn await_later(&mut self, earlier: Ticket) {
        if earlier != 0 {
            self.earlier.push(earlier);
        }
    }

    /// Waits until all earlier transactions have left the rows.
    pub(super) fn await_grants<F: LazyFaults>(&mut self, sequence: &Sequence<M>, known: &mut Known) {
        if F::grant_out_of_order() {
            return;
        }
        self.earlier.iter().for_each(|&earlier| sequence.await_end(known, earlier));
        self.readers.iter().for_each(|&(cell, readers)| await_count(cell, readers));
    }

    /// Counts the reads as ended.
    pub(super) fn release(&mut self) {
        for cell in self.reads.drain(..) {
            // Release: pairs with the Acquire of `await_count`. A read-modify-write: other readers
            // count at the same time, and the Acquire meets the Release of each of them.
            words(cell).ended.fetch_add(1, Ordering::Release);
        }
    }
}
