//! The read set and the held locks of the optimistic protocols: the cells that a transaction has
//! read, and those that its commit has locked.
//!
//! Both lists belong to one worker. The only shared words of this module are those of cells. A
//! commit stores to the word of a cell that it has locked, and it locks by an exchange from an
//! unlocked word. A version never returns, because each write of a record gives it a larger one. So
//! a reader that finds the same unlocked word before and after its copy has met no writer in
//! between.

use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Context, GROUPS_MAX, Groups, Located, Projection, RecordState, WriteMode,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use super::tid;
use super::{FLAGS, OptimisticFaults, observed};
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::{WAITS_MAX, Wait};

/// Flag in an observed word: the transaction is going to write the cell, too, so the lock that
/// validation finds there is its own. The bit is that of the queued flag, which a reader does not
/// observe. So it is free in an observed word.
const WILL_WRITE: u64 = QUEUED;

/// A cell that was read.
#[derive(Clone, Copy, Debug)]
pub struct Read<M: Machine> {
    /// The cell.
    pub(crate) cell: Cell<M>,
    /// The word as it was observed, with [`WILL_WRITE`].
    word: u64,
}

impl<M: Machine> Read<M> {
    /// Returns the word as it was observed.
    #[inline(always)]
    pub(crate) fn observed_word(self) -> u64 {
        self.word & !WILL_WRITE
    }

    /// Returns the version that was observed, in its place in the word.
    #[inline(always)]
    pub(crate) fn observed_version(self) -> u64 {
        self.word & !FLAGS
    }

    /// Returns whether the commit is known to lock the cell. A cell that is read first and written
    /// later is not marked; then [`ReadsAndLocks::has_locked`] knows.
    #[inline(always)]
    pub(crate) fn will_write(self) -> bool {
        self.word & WILL_WRITE != 0
    }
}

/// The read set of a transaction, and the locks of its commit.
#[derive(Debug)]
pub struct ReadsAndLocks<M: Machine> {
    /// The cells that were read. A cell that was read twice is there twice.
    pub(crate) entries: Vec<Read<M>>,
    /// The cells that the commit has locked. The first cell of a record stands before its others.
    pub(crate) locked: Vec<Cell<M>>,
    /// Whether `locked` is sorted by address.
    sorted: bool,
    /// The number of times that a read began again because the record was being written.
    pub(crate) read_retries: u32,
}

impl<M: Machine> Default for ReadsAndLocks<M> {
    fn default() -> Self {
        ReadsAndLocks {
            entries: Vec::with_capacity(64),
            locked: Vec::with_capacity(64),
            sorted: false,
            read_retries: 0,
        }
    }
}

impl<M: Machine> ReadsAndLocks<M> {
    /// Forgets everything: a transaction begins.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.locked.clear();
        self.sorted = false;
        self.read_retries = 0;
    }

    /// Returns the newest version that was read.
    #[inline(always)]
    pub(crate) fn newest_read(&self) -> u64 {
        self.entries.iter().map(|read| read.observed_version()).fold(0, u64::max)
    }

    /// Returns whether this commit has locked the cell.
    #[inline(never)]
    pub(crate) fn has_locked(&mut self, cell: Cell<M>) -> bool {
        const LINEAR_MAX: usize = 16;
        if self.locked.len() <= LINEAR_MAX {
            return self.locked.iter().any(|locked| locked.address() == cell.address());
        }
        // Sorting keeps the promise of `locked`: the first cell of a record has the smallest
        // address of its cells, and so still stands before them.
        if !std::mem::replace(&mut self.sorted, true) {
            self.locked.sort_unstable_by_key(|locked| locked.address());
        }
        self.locked.binary_search_by_key(&cell.address(), |locked| locked.address()).is_ok()
    }

    /// Returns whether another transaction holds the lock in `now`, which is the word of the cell
    /// that was read.
    ///
    /// A lock counts although the version is still the old one, because its holder may install a
    /// new version right after this look. Without that check T1 (reads `x`, writes `y`) and T2
    /// (reads `y`, writes `x`) could each find the old version under the other's lock, and both
    /// commit.
    #[inline(always)]
    pub(crate) fn is_locked_by_other<F: OptimisticFaults>(&mut self, read: Read<M>, now: u64) -> bool {
        now & LOCKED != 0 && !read.will_write() && !F::ignore_locks_in_validation() && !self.has_locked(read.cell)
    }

    /// Reads a record while no transaction writes it, and adds the observed words to the reads.
    /// `keeps_waiting` is called before each further look, with the words' flags and, if there is
    /// one cell only, its version.
    #[inline(always)]
    pub(crate) fn observe(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        keeps_waiting: impl Fn(u64) -> bool,
    ) -> Result<RecordState, Abort> {
        self.observe_within(cx, at, columns, columns.groups(), keeps_waiting)
    }

    /// Reads a record as [`ReadsAndLocks::observe`] does, and observes the cells of `groups` only:
    /// no transaction changes the other columns.
    #[inline(always)]
    pub(crate) fn observe_within(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        groups: Groups,
        keeps_waiting: impl Fn(u64) -> bool,
    ) -> Result<RecordState, Abort> {
        if let Some(cell) = at.only_cell(groups) {
            return self.observe_cells::<1>(cx, at, columns, std::iter::once(cell), keeps_waiting);
        }
        self.observe_cells::<GROUPS_MAX>(cx, at, columns, at.cells(groups), keeps_waiting)
    }

    /// Reads a row whose columns are in these cells, `N` at most: the optimistic read, a sequence
    /// lock, in five steps.
    ///
    /// - (a) Load the word.
    /// - (b) If it is locked, a writer is at work: begin again.
    /// - (c) Copy the row.
    /// - (d) Fence: the copy comes before the next load.
    /// - (e) Load the word again. If it is the same, no writer was at work meanwhile, and the copy
    ///   is of the version in the word.
    ///
    /// Two interleavings have to be excluded. First, a copy that is older than its word: the writer
    /// has stored the row and then the word; the reader sees the new word in (a) and the old row in
    /// (c). The Acquire of (a) excludes that, with the Release of the writer's store to the word.
    /// Second, a copy that is newer than its word: the reader loads the old word in (a); the writer
    /// locks, and stores to the row; the reader sees one of these stores in (c) and yet the old
    /// word in (e). The fences exclude that. The writer's comes after its lock and before its
    /// stores, the reader's after the copy and before (e). A copy that saw one such store therefore
    /// makes the two fences synchronize, and (e) sees the lock, or what came after it.
    #[inline(always)]
    fn observe_cells<const N: usize>(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        cells: impl Iterator<Item = Cell<M>> + Clone,
        keeps_waiting: impl Fn(u64) -> bool,
    ) -> Result<RecordState, Abort> {
        M::step("read");
        match self.try_observe::<N>(cx, at, columns, cells.clone()) {
            Ok(found) => Ok(found),
            Err(flags) => self.observe_again::<N>(cx, at, columns, cells, flags, keeps_waiting),
        }
    }

    /// Reads a record after a look that has met a writer, with these flags.
    #[cold]
    #[inline(never)]
    fn observe_again<const N: usize>(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        cells: impl Iterator<Item = Cell<M>> + Clone,
        mut flags: u64,
        keeps_waiting: impl Fn(u64) -> bool,
    ) -> Result<RecordState, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            // The wait is for a commit, which unlocks when it has installed or aborts. Its own
            // waits are limited, so that comes. But a holder that has lost its core may take long,
            // so this wait has a limit as well.
            if spin.count() > WAITS_MAX || !keeps_waiting(flags) {
                return Err(Abort::new(AbortReason::ReadLocked));
            }
            spin.back_off();
            self.read_retries += 1;
            match self.try_observe::<N>(cx, at, columns, cells.clone()) {
                Ok(found) => return Ok(found),
                Err(now) => flags = now,
            }
        }
    }

    /// Takes one look at a record. Returns the flags of its words if it has met a writer.
    #[inline(always)]
    fn try_observe<const N: usize>(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        columns: Projection<'_>,
        cells: impl Iterator<Item = Cell<M>> + Clone,
    ) -> Result<RecordState, u64> {
        let (mut words, mut flags) = ([0; N], 0);
        for (observed_word, cell) in words.iter_mut().zip(cells.clone()) {
            // (a) Acquire: pairs with the Release of `install_all`; the row copied next is at least
            // as new as the word.
            let word = cell.word().load(Ordering::Acquire);
            (*observed_word, flags) = (observed(word), flags | word);
        }
        // (b)
        if flags & LOCKED != 0 {
            return Err(flags);
        }
        // (c)
        cx.copy_row(at, columns);
        M::step("check");
        // (d) Acquire: pairs with the fence of a commit, between its locks and its stores to the
        // rows.
        M::fence(Ordering::Acquire);
        // The queued flag is left out: a collector clears it in the word of a row that has come
        // back (`optimistic::unlink_unlocked`). That changes neither the row nor its version.
        // (e) Relaxed: ordered by the fence.
        let now = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & !QUEUED;
        if !cells.clone().zip(words).all(|(cell, word)| now(cell) == word) {
            return Err(flags);
        }
        let found = flags::found(flags);
        if found != RecordState::Unlinked {
            for (cell, word) in cells.zip(words) {
                self.entries.push(Read { cell, word });
            }
        }
        Ok(found)
    }

    /// Prepares a write: reads the record where `mode` wants that. `marks` says that the commit
    /// will lock the cells that are read here, so that their reads are marked.
    #[inline(always)]
    pub(crate) fn prepare_write(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
        marks: bool,
        keeps_waiting: impl Fn(u64) -> bool,
    ) -> Result<RecordState, Abort> {
        // The lock is taken at commit, but its cache line may as well come for writing at once.
        at.record.prefetch_to_write();
        match mode {
            WriteMode::Blind | WriteMode::CommitTimeUpdate => {
                // Relaxed: a first look, with no partner; `lock` judges the word again, by its
                // exchange. If this look misses a deletion, `lock` fails (`needs_row`). If it
                // misses a revival, the record is read although a write needs no read.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                let is_gone = at.only_cell(groups).map_or_else(|| at.cells(groups).any(gone), gone);
                if is_gone {
                    // A miss is observed. Should the record have a row by now, having read it costs
                    // nothing but the read.
                    return self.observe(cx, at, Projection::columns(&[], groups), keeps_waiting);
                }
                Ok(RecordState::Row)
            }
            WriteMode::ReadModifyWrite | WriteMode::Delete => {
                let first = self.entries.len();
                let found = self.observe(cx, at, Projection::of_groups(groups), keeps_waiting)?;
                if found == RecordState::Row && marks {
                    self.entries[first..].iter_mut().for_each(|read| read.word |= WILL_WRITE);
                }
                Ok(found)
            }
            // The engine has just read that the record is absent; validation will see whether it
            // still is.
            WriteMode::Insert => Ok(RecordState::Absent),
        }
    }

    /// Observes the placeholder that the transaction has just put into the index. Its word, as a
    /// reader observes it, is `word` if no other transaction has changed it since. One that has got
    /// a row which was deleted again has the flags of a placeholder, and another version: the
    /// transaction has missed that row.
    pub(crate) fn observe_placeholder(&mut self, at: Located<'_, M>, word: u64) -> Result<(), Abort> {
        // The first cell stands for all: a transaction that gives the placeholder a row, or unlinks
        // it, changes each.
        M::step("placeholder");
        let cell = at.record.first_cell();
        // Relaxed: the word as this transaction has left it, or as another has changed it. The
        // placeholder is in the index, so another transaction may give it a row at any time. A
        // change after this load is found by validation, which loads the word again under this
        // transaction's lock and compares. No row is read here, so there is nothing to acquire.
        let now = observed(cell.word().load(Ordering::Relaxed));
        self.entries.push(Read { cell, word: now | WILL_WRITE });
        if now != word {
            return Err(Abort::new(AbortReason::ReadValidation));
        }
        Ok(())
    }

    /// Locks a cell, and returns its word from before. A record that does not fit `needs_row`, or
    /// is out of the index, aborts; so does a lock that another still holds after `pauses`.
    #[inline(always)]
    pub(crate) fn lock(&mut self, cx: &Context<M>, cell: Cell<M>, needs_row: bool, pauses: u32) -> Result<u64, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            // Relaxed: the exchange below decides. The load comes first because it leaves the line
            // shared while another transaction holds the lock. An exchange would take the line from
            // the holder, which needs it to unlock.
            let word = cell.word().load(Ordering::Relaxed);
            if word & LOCKED != 0 {
                if spin.count() >= pauses {
                    return Err(cx.conflict_at(cell, Abort::new(AbortReason::WriteLocked)));
                }
                spin.back_off();
                continue;
            }
            if word & UNLINKED != 0 || needs_row && word & ABSENT != 0 {
                return Err(cx.conflict_at(cell, Abort::new(AbortReason::RecordGone)));
            }
            // The exchange is where the lock is taken. It succeeds only on the word that was judged
            // above. A collector exchanges the first cell's word as well
            // (`optimistic::unlink_unlocked`), from an unlocked word. So of an insert that locks a
            // tombstone and a collector that unlinks it, one fails. A failed exchange means that
            // another thread has changed the word, so the loop does not wait before it looks again.
            //
            // AcqRel. Acquire: pairs with the Release of the last unlock (`install_all`,
            // `unlock_all`), so that updates are applied to the row that it left. The Release
            // orders nothing that matters here, since the commit's fence comes next.
            if cell.word().compare_exchange(word, word | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.locked.push(cell);
                return Ok(word);
            }
        }
    }

    /// Phase 1 of Silo's commit: locks what the transaction writes, which are the cells that
    /// `cells_of` returns. Returns the largest version that the commit will overwrite.
    ///
    /// # Errors
    /// A record has gone, or another transaction keeps a lock for longer than `wait` allows.
    #[inline(always)]
    pub(crate) fn lock_writes(
        &mut self,
        cx: &mut Context<M>,
        wait: Wait,
        cells_of: impl Fn(&Write<M>) -> Cells<M>,
    ) -> Result<u64, Abort> {
        M::step("lock");
        let (in_order, pauses) = (wait.in_order(), wait.pauses());
        if in_order {
            cx.writes.sort();
        }
        let mut largest = 0;
        for rank in 0..cx.writes.len() {
            let position = if in_order { cx.writes.sorted(rank) } else { rank };
            let write = &cx.writes.entries()[position];
            let (cells, needs_row) = (cells_of(write), write.needs_row());
            // The word from before the lock. An update or a delete aborts here if the row is gone.
            // The write set has each cell once, so none is locked twice.
            let version = match cells.only_first() {
                Some(cell) => self.lock(cx, cell, needs_row, pauses)? & !FLAGS,
                None => self.lock_all(cx, cells, needs_row, pauses)?,
            };
            largest = largest.max(version);
        }
        Ok(largest)
    }

    /// Locks these cells of a record, and returns the largest version.
    #[inline(never)]
    fn lock_all(&mut self, cx: &Context<M>, cells: Cells<M>, needs_row: bool, pauses: u32) -> Result<u64, Abort> {
        let mut largest = 0;
        for cell in cells {
            largest = largest.max(self.lock(cx, cell, needs_row, pauses)? & !FLAGS);
        }
        Ok(largest)
    }

    /// Phase 2 of Silo's commit: checks that everything read is as it was, from the read at `first`
    /// on. `skips` is a deliberate fault: it says which reads are left out.
    ///
    /// # Errors
    /// A record or a leaf has changed, or another transaction is about to change a record.
    #[inline(always)]
    pub(crate) fn validate<F: OptimisticFaults>(
        &mut self,
        cx: &Context<M>,
        first: usize,
        skips: impl Fn(&mut Self, Read<M>) -> bool,
    ) -> Result<(), Abort> {
        M::step("validate");
        for position in first..self.entries.len() {
            let read = self.entries[position];
            // SeqCst: in one order with the fences of other commits and with the load of the epoch
            // (`tid::order_of_validation`). It is an Acquire, too: validation comes before the
            // writes.
            let now = read.cell.word().load(tid::order_of_validation::<F>());
            // The usual case: the row is as it was, and no lock is on it.
            if now == read.word || skips(self, read) {
                continue;
            }
            let difference = now ^ read.observed_word();
            let has_new_version = difference & !FLAGS != 0;
            // The row has come, or gone, or its record has left the index.
            let has_new_presence = difference & (ABSENT | UNLINKED) != 0;
            let locked_by_other = self.is_locked_by_other::<F>(read, now);
            if has_new_version || has_new_presence || locked_by_other {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        cx.nodes.validate_as(tid::order_of_validation::<F>())
    }

    /// Gives the locks back; nothing was written under them.
    pub(crate) fn unlock_all(&mut self) {
        M::step("unlock");
        // A record's first cell last, as in `install_all`.
        while let Some(cell) = self.locked.pop() {
            let word = cell.word();
            // Relaxed: no other transaction changes the word of a locked cell. Release: pairs with
            // the Acquire of `lock` and of `observe`.
            word.store(word.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
        }
    }
}
