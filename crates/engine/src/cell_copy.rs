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
//!
//! **Memory.** A worker puts its copies one behind the other into blocks. A block is reused as a
//! whole, once no transaction needs the last of its copies. So a copy costs a few stores to memory
//! that follow each other, and nothing more: no entry in a queue, and no second look at the copy or
//! at its cell, both of which would be out of the cache by then.

use std::sync::Arc;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::{Abort, AbortReason, OutOfMemory};
use parking_lot::Mutex;

use crate::garbage::Retired;
use crate::layout::{POISON, poison};
use crate::protocol::{Context, Located};
use crate::record::Record;
use crate::slab::{Arenas, Slabs};

/// The words before the contents.
const HEAD: usize = 2;
/// The words of a block: 16 KiB.
const BLOCK: usize = 2048;
/// The words of a block of an engine that records its history. Such an engine is in a proof, which
/// must see that memory serves again: each copy has a block of its own. And a protocol that is
/// wrong, and follows a stale link, finds a copy there.
const SMALL_BLOCK: usize = 16;
/// The sizes of blocks. Each is twice the one before; only longer rows need any but the first.
const SIZES: usize = 20;

/// A copy of what a cell held.
#[derive(Debug)]
pub struct CellCopy<M: Machine> {
    record: Record<M>,
    /// The number of words of the contents.
    words: usize,
}

impl<M: Machine> Clone for CellCopy<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for CellCopy<M> {}

impl<M: Machine> CellCopy<M> {
    pub(crate) fn new(record: Record<M>, words: usize) -> Self {
        CellCopy { record, words }
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

    /// Whether the copy was given back, and its memory has not served again yet. Only debug builds
    /// know.
    pub fn is_poisoned(&self) -> bool {
        // Relaxed: a check of the protocol, not a part of it.
        cfg!(debug_assertions) && self.word().load(Ordering::Relaxed) == POISON
    }

    /// Returns the bytes of the copy.
    pub(crate) fn bytes(&self) -> u64 {
        (HEAD + self.words) as u64 * 8
    }

    /// Returns the words of the contents.
    pub(crate) fn contents<'a>(&self) -> &'a [M::U64] {
        // SAFETY: a copy has its head, and this many words behind it.
        unsafe { self.record.words(HEAD, self.words) }
    }
}

/// The blocks of an engine, each of which one worker fills.
pub(crate) struct CopyBlocks<M: Machine> {
    /// The words of a block of the first size.
    least: usize,
    /// Whether each copy has a block of its own.
    one_each: bool,
    /// Blocks that workers were filling when they ended. The next ones go on with them: a worker
    /// that lives for one transaction would leave a block behind otherwise. The mutex orders the
    /// former owner's writes before the next one's.
    begun: Mutex<Vec<Block<M>>>,
    of_size: [Slabs<M>; SIZES],
}

impl<M: Machine> CopyBlocks<M> {
    /// Returns memory for blocks, which are small in an engine that records its history.
    pub(crate) fn new(records_history: bool) -> Self {
        let least = if records_history { SMALL_BLOCK } else { BLOCK };
        let of_size = std::array::from_fn(|size| Slabs::new(least << size));
        CopyBlocks { least, one_each: records_history, begun: Mutex::new(Vec::new()), of_size }
    }

    /// Returns the bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.of_size.iter().map(Slabs::bytes).sum()
    }
}

/// A block with copies.
#[derive(Debug)]
pub(crate) struct Block<M: Machine> {
    record: Record<M>,
    size: usize,
    /// The words that may be used.
    words: usize,
    /// The words that are in use.
    used: usize,
    pub(crate) copies: u64,
    /// No transaction needs one of the copies that begins two epochs after this one.
    until: u64,
}

impl<M: Machine> Block<M> {
    /// Returns the bytes of the copies.
    pub(crate) fn bytes(&self) -> u64 {
        self.used as u64 * 8
    }
}

impl<M: Machine> Retired for Block<M> {
    fn epoch(&self) -> u64 {
        self.until
    }
}

/// A worker's copies.
pub(crate) struct Copies<M: Machine> {
    blocks: Arc<CopyBlocks<M>>,
    arenas: Arenas<M>,
    /// The block that is being filled.
    filling: Option<Block<M>>,
    /// Whether its memory had copies before.
    is_reused: bool,
}

impl<M: Machine> std::fmt::Debug for Copies<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("filling", &self.filling).finish_non_exhaustive()
    }
}

impl<M: Machine> Copies<M> {
    pub(crate) fn new(blocks: Arc<CopyBlocks<M>>) -> Self {
        let filling = blocks.begun.lock().pop();
        Copies { blocks, arenas: Arenas::default(), filling, is_reused: false }
    }

    /// Returns memory for a copy with this number of words of contents. Its words hold anything.
    /// `None` if the block has no room for it.
    #[inline(always)]
    pub(crate) fn take(&mut self, words: usize, until: u64) -> Option<CellCopy<M>> {
        let block = self.filling.as_mut()?;
        let used = block.used + HEAD + words;
        if used > block.words {
            return None;
        }
        // SAFETY: the block has a word at this place, and `HEAD + words` of them.
        let record = unsafe { Record::from_value(block.record.value() + block.used as u64 * 8) };
        block.used = used;
        block.copies += 1;
        block.until = block.until.max(until);
        Some(CellCopy::new(record, words))
    }

    /// Begins a block with room for this number of words of contents. Returns the block before, if
    /// there was one.
    ///
    /// # Errors
    /// The machine has no more memory; nothing has changed.
    #[cold]
    pub(crate) fn begin_block(&mut self, words: usize) -> Result<Option<Block<M>>, OutOfMemory> {
        let size = (HEAD + words).div_ceil(self.blocks.least).next_power_of_two().ilog2() as usize;
        let slabs = self.blocks.of_size.get(size).ok_or(OutOfMemory)?;
        let arena = self.arenas.of(size as u32, slabs);
        let is_reused = arena.has_free();
        let record = slabs.allocate(arena).ok_or(OutOfMemory)?;
        self.is_reused = is_reused;
        let words = if self.blocks.one_each { HEAD + words } else { self.blocks.least << size };
        Ok(self.filling.replace(Block { record, size, words, used: 0, copies: 0, until: 0 }))
    }

    /// Whether the memory of the block that is being filled had copies before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Takes back a copy that was not linked. Only the copy that was taken last makes room again.
    /// Returns whether it did.
    pub(crate) fn untake(&mut self, copy: CellCopy<M>) -> bool {
        let Some(block) = &mut self.filling else { return false };
        let words = HEAD + copy.words;
        let is_last = block.used >= words && block.record.value() + (block.used - words) as u64 * 8 == copy.address();
        if is_last {
            block.used -= words;
            block.copies -= 1;
        }
        is_last
    }

    /// Reuses a block. No transaction needs its copies any more, and none leads to them.
    pub(crate) fn reuse(&mut self, block: Block<M>) {
        // SAFETY: the block has this many words.
        poison::<M::U64>(unsafe { block.record.words(0, block.used) });
        let slabs = &self.blocks.of_size[block.size];
        let arena = self.arenas.of(block.size as u32, slabs);
        arena.release(block.record);
        slabs.share(arena);
    }

    /// Gives the worker's memory to others.
    pub(crate) fn leave(&mut self) {
        for (size, arena) in self.arenas.take_all() {
            self.blocks.of_size[size].park(arena);
        }
        self.blocks.begun.lock().extend(self.filling.take());
    }
}

impl<M: Machine> Context<M> {
    /// Returns memory for a copy of a cell that the entry at `position` of the write set writes.
    /// Its words hold anything. The memory is reused once every transaction has ended that began
    /// before epoch `until + 2`.
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub fn new_copy(&mut self, position: usize, cell: usize, until: u64) -> Result<CellCopy<M>, Abort> {
        let words = self.writes.entries()[position].table().copied_words(cell);
        let copy = match self.copies.take(words, until) {
            Some(copy) => copy,
            None => self.begin_copies(words, until)?,
        };
        self.versions.made += 1;
        self.versions.reused += u64::from(self.copies.is_reused());
        self.versions.bytes[0] += copy.bytes();
        Ok(copy)
    }

    /// Begins a block of copies, and returns memory for the first.
    #[cold]
    fn begin_copies(&mut self, words: usize, until: u64) -> Result<CellCopy<M>, Abort> {
        let full = self.copies.begin_block(words).map_err(|OutOfMemory| Abort::new(AbortReason::OutOfMemory))?;
        self.garbage.copies.extend(full);
        Ok(self.copies.take(words, until).expect("the block has room for it"))
    }

    /// Fills a copy with what the cell holds now. The entry at `position` writes the cell, and the
    /// caller holds it.
    pub fn copy_present(&mut self, position: usize, cell: usize, copy: CellCopy<M>) {
        let entry = &self.writes.entries()[position];
        let (table, payload) = (entry.table(), entry.table().payload(entry.record));
        let words = table.cell_words(cell);
        if self.row_buffer.len() < payload.len() {
            self.row_buffer.resize(payload.len(), 0);
        }
        let (row, signature) = copy.contents().split_at(words.len());
        let buffer = &mut self.row_buffer[..words.len()];
        M::copy_out(&payload[words], buffer);
        M::copy_in(row, buffer);
        if let [copied] = signature {
            // Relaxed, both: the caller holds the cell, and no other transaction sees the copy yet.
            copied.store(payload[table.signature(cell)].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Fills a copy with contents that [`WriteSet::save`](crate::sets::WriteSet::save) has saved,
    /// from `saved[0]` on.
    pub fn fill_copy(&self, copy: CellCopy<M>, saved: &[u64]) {
        let contents = copy.contents();
        M::copy_in(contents, &saved[..contents.len()]);
    }

    /// Copies the contents of a copy of a cell to [`Context::row_buffer`], as
    /// [`Context::copy_cell`] does with a record's.
    pub fn read_copy(&mut self, at: Located<'_, M>, cell: usize, copy: CellCopy<M>) {
        let (contents, words) = (copy.contents(), at.table.cell_words(cell));
        if self.row_buffer.len() < at.table.payload_words() {
            self.row_buffer.resize(at.table.payload_words(), 0);
        }
        let (row, signature) = contents.split_at(words.len());
        M::copy_out(row, &mut self.row_buffer[words]);
        if at.table.records_history() {
            let place = at.table.signature(cell);
            M::copy_out(signature, &mut self.row_buffer[place..=place]);
        }
    }

    /// Gives back the memory of a copy that was not linked: no transaction can find it. It serves
    /// again at once if it was the last to be made.
    pub fn unmake_copy(&mut self, copy: CellCopy<M>) {
        if self.copies.untake(copy) {
            self.versions.made -= 1;
            self.versions.reused -= u64::from(self.copies.is_reused());
            self.versions.bytes[0] -= copy.bytes();
        }
    }

    /// Reuses the memory of a block of copies, which no transaction needs any more.
    pub(crate) fn reuse_copies(&mut self, block: Block<M>) {
        self.versions.collected += block.copies;
        self.versions.bytes[1] += block.bytes();
        self.copies.reuse(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    fn copies() -> Copies<Native> {
        Copies::new(Arc::new(CopyBlocks::new(false)))
    }

    #[test]
    fn copies_lie_one_behind_the_other_and_stay_apart() {
        let mut copies = copies();
        assert!(copies.take(1, 5).is_none(), "there is no block yet");
        assert!(copies.begin_block(3).expect("memory").is_none());
        let made: Vec<_> = (0..BLOCK / 5).map(|number| copies.take(3, number as u64).expect("room")).collect();
        assert!(copies.take(3, 0).is_none(), "the block is full");
        for (number, copy) in made.iter().enumerate() {
            copy.word().store(number as u64, Ordering::Relaxed);
            copy.older().store(0, Ordering::Relaxed);
            copy.contents().iter().for_each(|word| word.store(!number as u64, Ordering::Relaxed));
        }
        for (number, copy) in made.iter().enumerate() {
            assert_eq!(copy.word().load(Ordering::Relaxed), number as u64);
            assert!(copy.contents().iter().all(|word| word.load(Ordering::Relaxed) == !number as u64));
        }
        assert!(made.windows(2).all(|pair| pair[1].address() - pair[0].address() == 5 * 8));
        let full = copies.begin_block(3).expect("memory").expect("the block before");
        let last = (BLOCK / 5 - 1) as u64;
        assert_eq!((full.copies, full.epoch(), full.bytes()), (last + 1, last, (last + 1) * 5 * 8));
    }

    #[test]
    fn workers_that_come_and_go_fill_one_block() {
        let blocks = Arc::new(CopyBlocks::<Native>::new(false));
        let mut last = None;
        for worker in 0..BLOCK / 3 {
            let mut copies = Copies::new(Arc::clone(&blocks));
            if worker == 0 {
                copies.begin_block(1).expect("memory");
            }
            let address = copies.take(1, worker as u64).expect("room").address();
            assert!(last.is_none_or(|last| address == last + 3 * 8), "worker {worker}");
            last = Some(address);
            copies.leave();
        }
    }

    #[test]
    fn in_a_proof_each_copy_has_a_block_of_its_own() {
        let mut copies = Copies::<Native>::new(Arc::new(CopyBlocks::new(true)));
        copies.begin_block(3).expect("memory");
        let first = copies.take(3, 0).expect("room");
        assert!(copies.take(1, 0).is_none());
        let full = copies.begin_block(5).expect("memory").expect("the block before");
        copies.reuse(full);
        copies.begin_block(7).expect("memory");
        assert_eq!(copies.take(7, 0).expect("room").address(), first.address(), "it serves again");
    }

    #[test]
    fn the_last_copy_can_be_taken_back_and_no_other() {
        let mut copies = copies();
        copies.begin_block(1).expect("memory");
        let [first, second] = [(); 2].map(|()| copies.take(1, 0).expect("room"));
        assert!(!copies.untake(first));
        assert!(copies.untake(second) && copies.untake(first) && !copies.untake(first));
        assert_eq!(copies.take(1, 0).expect("room").address(), first.address());
    }

    #[test]
    fn a_block_serves_again_and_a_long_row_has_a_block_of_its_own_size() {
        let mut copies = copies();
        for words in [1, BLOCK - HEAD, BLOCK - HEAD + 1, 5 * BLOCK, 1] {
            let full = copies.begin_block(words).expect("memory");
            assert_eq!(copies.take(words, 9).expect("room").contents().len(), words);
            full.into_iter().for_each(|block| copies.reuse(block));
        }
        assert!(copies.is_reused(), "the first block of the same size");
        let bytes = copies.blocks.bytes();
        for _ in 0..100 {
            let full = copies.begin_block(1).expect("memory").expect("the block before");
            copies.reuse(full);
        }
        assert_eq!(copies.blocks.bytes(), bytes);
        assert!(copies.begin_block(BLOCK << SIZES).is_err(), "a row of gigabytes");
        assert!(copies.take(1, 9).is_some(), "the block before is still there");
    }
}
