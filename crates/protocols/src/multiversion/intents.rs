//! Write intents, and how a commit installs versions under them.
//!
//! **An intent** is the word of a cell that names the transaction that is going to install the next
//! version. It plays the part of Cicada's pending version and of Hekaton's write lock. As long as a
//! transaction holds it, no other thread changes the cell's word, its links, or its [`SuffixKind`].
//!
//! | value | meaning | a younger reader |
//! | --- | --- | --- |
//! | `NO_INTENT` | nobody writes the cell | reads |
//! | `INTENT_TAKING_TIMESTAMP` | a commit is about to draw its timestamp | waits |
//! | a timestamp | a version of this time will be installed, or the transaction aborts | waits |
//! | `INTENT_WITHOUT_TIMESTAMP` and a worker's number | a timestamp will be drawn later, and be later than all there are | reads |
//! | `INTENT_WITHOUT_TIMESTAMP` | a thread works on the cell's chain, or unlinks a tombstone, and waits for nobody | reads |
//!
//! An intent is placed by an exchange from `NO_INTENT`, and only its holder stores another value.
//! So a plain store changes it, or gives it up. Where two transactions must not miss each other,
//! the exchange is SeqCst, and so is the store of `adopt`; a commit that draws its timestamp later
//! has the counter between (`CommitCounter`), and in `ermia` a fence. Where only the next holder
//! must see the last one's stores, Acquire and Release suffice.
//!
//! **A commit** that holds the intents of all cells that it writes first copies the versions that
//! it overwrites ([`WriteIntents::copy`], which may fail) and then installs
//! ([`WriteIntents::install_all`], which can't). For each record it links the copies, sets the lock
//! bit, passes a Release fence, stores the row, and stores the words with Release. A reader that
//! has seen a word of the new row sees the lock bit, or the new word, at its second look
//! (`super::read`).
//!
//! Each step has its place:
//!
//! - The link comes before the lock. A reader that finds the lock follows the link at once, and
//!   must find the version that is being overwritten.
//! - The lock comes before the row. Otherwise a reader could copy half of the new row, and find the
//!   old word before and after.
//! - The new word comes after the row. Otherwise a reader could find the new word twice, and copy
//!   the old row between.
//! - The intent is given up after the new word. Otherwise a younger reader could find no intent,
//!   and then the old word: it would miss an older version.
//!
//! [`SuffixKind`]: super::SuffixKind

use contend_engine::sets::{Write, WriteKind};
use contend_engine::{
    Abort, AbortReason, Cell, Change, Context, Groups, Located, OldVersion, Projection, RecordState, WriteMode,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::wait::WAITS_MAX;

use super::collect::{Collector, RetiredVersions};
use super::{
    INTENT_WITHOUT_TIMESTAMP, NO_INTENT, ReadEntry, WTS_SHIFT, chain, deletion_epoch, intent_of, rts_of, wts_of,
};

/// Returns the `wts` of a cell's newest version. The caller holds the cell's intent.
#[inline(always)]
fn newest_wts<M: Machine>(cell: Cell<M>) -> u64 {
    // Relaxed: only the holder of the intent stores the word.
    wts_of(cell.word().load(Ordering::Relaxed))
}

/// Returns whether the cell has had a row. The caller holds the cell's intent.
#[inline(always)]
fn had_row<M: Machine>(cell: Cell<M>) -> bool {
    // Relaxed: only the holder of the intent stores the word.
    cell.word().load(Ordering::Relaxed) & !QUEUED != ABSENT
}

/// Places an intent on a cell that has none. Fails with the other intent.
#[inline(always)]
fn exchange<M: Machine>(cell: Cell<M>, intent: u64) -> Result<(), u64> {
    // SeqCst: the intent comes before the look at the rts; pairs with a reader's store of the rts,
    // which comes before its look at the intent (`raise_rts`). And Acquire: pairs with the Release
    // of `truncate`, so that the cell is as the last holder left it.
    intent_of(cell).compare_exchange(NO_INTENT, intent, Ordering::SeqCst, Ordering::Relaxed).map(drop)
}

/// Waits for the other intents of a cell, and then places one. Returns `false` if the transaction
/// has this intent there already.
///
/// # Errors
/// Another transaction has an intent there. The caller does not wait for it, or has waited
/// `waits_max` times.
#[cold]
#[inline(never)]
fn await_exchange<M: Machine>(
    cell: Cell<M>,
    intent: u64,
    mut other: u64,
    waits_max: u32,
    waits: impl Fn(u64) -> bool,
) -> Result<bool, Abort> {
    // A thread that works on the chain never waits.
    let waits = |other| other == INTENT_WITHOUT_TIMESTAMP || waits(other);
    let mut spin = Spin::<M>::new();
    while other != intent {
        // A failed exchange takes the line from the holder. So the word is loaded until it changes,
        // before the next one. Relaxed: the exchange decides.
        while intent_of(cell).load(Ordering::Relaxed) == other {
            if !waits(other) || spin.count() >= waits_max {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
            spin.wait();
        }
        match exchange(cell, intent) {
            Ok(()) => return Ok(true),
            Err(now) => other = now,
        }
    }
    Ok(false)
}

/// The write intents of a worker's transaction, and the copies of the versions that its commit
/// overwrites.
#[derive(Debug)]
pub(crate) struct WriteIntents<M: Machine> {
    /// The cells that have an intent of the transaction, in the order in which they were placed.
    cells: Vec<Cell<M>>,
    /// Copies of the versions that the commit overwrites, each with the position of its write. No
    /// other thread knows of a copy before it is linked.
    copies: Vec<(usize, OldVersion<M>)>,
    pub(crate) retired: RetiredVersions<M>,
    /// The timestamp of the worker's last commit.
    pub(crate) last_commit_ts: u64,
}

impl<M: Machine> WriteIntents<M> {
    pub(crate) fn new(retired: RetiredVersions<M>) -> Self {
        WriteIntents { cells: Vec::with_capacity(64), copies: Vec::with_capacity(16), retired, last_commit_ts: 0 }
    }

    /// Places an intent on a cell, and returns the cell's word, which no other thread changes from
    /// now on. `waits` says whether the caller waits for the transaction of this other intent, and
    /// `waits_max` how long.
    ///
    /// # Errors
    /// Another transaction has an intent there.
    #[inline(always)]
    pub(crate) fn place(
        &mut self,
        cell: Cell<M>,
        intent: u64,
        waits_max: u32,
        waits: impl Fn(u64) -> bool,
    ) -> Result<u64, Abort> {
        M::step("write intent");
        match exchange(cell, intent) {
            Ok(()) => self.cells.push(cell),
            Err(other) => {
                if await_exchange(cell, intent, other, waits_max, waits)? {
                    self.cells.push(cell);
                }
            }
        }
        // Relaxed: the exchange has acquired the last holder's stores, and no other thread stores
        // the word now.
        Ok(cell.word().load(Ordering::Relaxed))
    }

    /// Places an intent on a cell without waiting, and returns its word: the first updater wins.
    ///
    /// The `wts` is looked at under the intent. If it were looked at before, T1 and T2 could both
    /// find a version that they may overwrite. T1 would install its version and give the intent up,
    /// and T2 would overwrite that version without having seen it: a lost update.
    ///
    /// # Errors
    /// Another transaction has an intent there, or has installed a version later than `begin_ts`.
    #[inline(always)]
    pub(crate) fn place_unless_overwritten(&mut self, cell: Cell<M>, intent: u64, begin_ts: u64) -> Result<u64, Abort> {
        let word = self.place(cell, intent, WAITS_MAX, |_| false)?;
        if wts_of(word) > begin_ts && word & UNLINKED == 0 {
            return Err(Abort::new(AbortReason::WriteLocked));
        }
        Ok(word)
    }

    /// Makes the intent of a new cell, of a record that the transaction has just inserted, its own.
    pub(crate) fn adopt(&mut self, cell: Cell<M>, intent: u64) {
        // SeqCst: as in `place`, before a look at the rts. A store suffices: `super::init` has left
        // an intent there, and no other thread exchanges another value than `NO_INTENT`.
        intent_of(cell).store(intent, Ordering::SeqCst);
        self.cells.push(cell);
    }

    /// Makes the intents of a record that the transaction of time `intent` has just inserted its
    /// own. Returns the latest time at which a transaction missed the key.
    pub(crate) fn adopt_placeholder(&mut self, at: Located<'_, M>, change: &Change<M>, intent: u64) -> u64 {
        // SeqCst: the insert comes before the look at the leaves' rts; pairs with the fence of
        // `raise_leaf_rts`.
        M::fence(Ordering::SeqCst);
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let missed = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        let mut latest = missed;
        for cell in at.cells(Groups::ALL) {
            self.adopt(cell, intent);
            // A transaction that missed the key has read that it is absent. That counts also if
            // this insert aborts, and another gives the record a row. A reader may have found the
            // record already, taken it for absent, and raised its rts: the larger one counts.
            // SeqCst: after the intent; pairs with `raise_rts`.
            latest = rts_of(cell).fetch_max(missed, Ordering::SeqCst).max(latest);
        }
        latest
    }

    /// Gives up all intents of a transaction that aborts.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.truncate(0);
        self.retired.aborted(reason);
    }

    /// Gives up all intents but the first `len`.
    #[inline(always)]
    fn truncate(&mut self, len: usize) {
        for cell in &self.cells[len..] {
            // Release: pairs with the exchange of the next `place`, and with the loads of readers
            // (`newest_to_read`, `is_being_replaced`, `await_intents`).
            intent_of(*cell).store(NO_INTENT, Ordering::Release);
        }
        self.cells.truncate(len);
    }

    /// Returns the cells with an intent of the transaction.
    #[inline(always)]
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<M>> + '_ {
        self.cells.iter().copied()
    }

    /// Changes the value of all intents: the transaction is about to draw its timestamp, or has
    /// drawn this one.
    #[inline(always)]
    pub(super) fn announce(&self, intent: u64) {
        for &cell in &self.cells {
            // Release: before the timestamp is drawn, by an addition that a reader acquires before
            // it looks at the intent (`CommitCounter::latest`). The second time the value is the
            // timestamp; it only ends the wait of readers that began before it.
            intent_of(cell).store(intent, Ordering::Release);
        }
    }

    /// Prepares a write in a protocol that places its intents at once: places them by `place`,
    /// which returns a cell's word, and copies the groups of the row that the mode wants. `on_miss`
    /// gets the cells of a record that turns out to be absent.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
        mut place: impl FnMut(&mut Self, Cell<M>) -> Result<u64, Abort>,
        mut on_miss: impl FnMut(ReadEntry<M>),
    ) -> Result<RecordState, Abort> {
        // No other thread stores the row as long as the intents are held. So the copies below need
        // no second look at the word.
        let held = self.cells.len();
        let flags = match at.cells(groups).only_first() {
            Some(cell) => place(self, cell)?,
            None => {
                let mut flags = 0;
                for cell in at.cells(groups) {
                    flags |= place(self, cell).map_err(|abort| cx.conflict_at(cell, abort))?;
                }
                flags
            }
        };
        if flags & UNLINKED != 0 {
            self.truncate(held);
            return Ok(RecordState::Unlinked);
        }
        match (flags & ABSENT != 0, mode) {
            (true, WriteMode::Insert) => Ok(RecordState::Absent),
            (false, WriteMode::Insert) => Err(Abort::new(AbortReason::WriteLocked)),
            (true, _) => {
                // A miss, which is a read.
                // Relaxed: the transaction holds the intents.
                at.cells(groups).for_each(|cell| on_miss((cell, cell.word().load(Ordering::Relaxed))));
                cx.copy_row(at, Projection::EXISTENCE);
                self.truncate(held);
                Ok(RecordState::Absent)
            }
            (false, WriteMode::Blind | WriteMode::CommitTimeUpdate) => Ok(RecordState::Row),
            (false, _) => {
                cx.copy_row(at, Projection::of_groups(groups));
                Ok(RecordState::Row)
            }
        }
    }

    /// Copies the versions that a commit of time `ts` is going to overwrite, if a transaction could
    /// need them. With `absent` a version without a row is copied as well. A newest version that is
    /// younger than `ts` is not overwritten: a late update is applied to it.
    ///
    /// It may fail, so it only makes the copies. [`install_all`], which can't fail, links them. The
    /// rows stay as they are meanwhile, because the transaction holds the intents.
    ///
    /// [`install_all`]: WriteIntents::install_all
    ///
    /// # Errors
    /// The machine has no more memory.
    #[inline(always)]
    pub(crate) fn copy(
        &mut self,
        cx: &mut Context<M>,
        collector: &Collector<M>,
        absent: bool,
        ts: u64,
    ) -> Result<(), Abort> {
        M::step("copy versions");
        let bound = collector.overwrite_bound(&self.retired, ts);
        // Copies of a commit that failed after this step; no other thread has seen them.
        for &(_, copy) in &self.copies {
            cx.reuse_version(copy);
        }
        self.copies.clear();
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let begins_before = |cell| {
                let wts = newest_wts(cell);
                wts <= ts && wts < bound
            };
            let is_wanted = match (write.cells().only_first(), write.kind) {
                (_, WriteKind::Nothing) => false,
                // The usual case.
                (Some(cell), WriteKind::Update) => begins_before(cell),
                _ if write.cells().any(had_row) => write.cells().any(begins_before),
                // A record that never had a row reads like the end of a chain. But a history wants
                // to know which transaction deleted the key before.
                _ => absent || write.table().records_history(),
            };
            if is_wanted {
                let copy = cx.copy_version(position)?;
                self.copies.push((position, copy));
            }
        }
        Ok(())
    }

    /// Installs all writes as versions of time `ts`, after [`WriteIntents::copy`], and gives the
    /// intents up. Readers of the overwritten versions find `sstamp` in the copies.
    ///
    /// A cell whose newest version is younger gets only updates that commute with all later ones
    /// and that no later transaction has missed. They are applied to that version, whose `wts`
    /// grows by one, and the older versions end at `ts`.
    #[inline(always)]
    pub(crate) fn install_all(&mut self, cx: &mut Context<M>, ts: u64, sstamp: u64) {
        cx.writes.apply_updates();
        M::step("install");
        // Loaded under the intents: a transaction that could still miss a row that is deleted here
        // begins in this epoch or an earlier one.
        let epoch = cx.current_epoch();
        let mut next = 0;
        for position in 0..cx.writes.len() {
            let copy = match self.copies.get(next) {
                Some((of, copy)) if *of == position => {
                    next += 1;
                    Some(*copy)
                }
                _ => None,
            };
            let write = &cx.writes.entries()[position];
            match write.cells().only_first() {
                _ if write.kind == WriteKind::Nothing => {}
                Some(cell) if write.kind == WriteKind::Update && newest_wts(cell) < ts => {
                    self.install_update(cx, position, cell, copy, epoch, ts, sstamp);
                }
                _ => self.install_cells(cx, position, copy, epoch, ts, sstamp),
            }
        }
        self.copies.clear();
        self.last_commit_ts = ts;
        // All at the end, so that the commit is seen as a whole: until then a younger reader waits
        // at each of its cells. A reader that finds an intent given up (by the Release in
        // `truncate`) finds the new word.
        self.truncate(0);
    }

    /// Installs the usual write, an update of a record's first and only cell: by the same steps as
    /// [`WriteIntents::install_cells`].
    #[expect(clippy::too_many_arguments, reason = "a part of `install_all`, on its own for its size")]
    #[inline(always)]
    fn install_update(
        &mut self,
        cx: &mut Context<M>,
        position: usize,
        cell: Cell<M>,
        copy: Option<OldVersion<M>>,
        epoch: u64,
        ts: u64,
        sstamp: u64,
    ) {
        // Relaxed: the transaction holds the intent.
        let word = cell.word().load(Ordering::Relaxed);
        if let Some(copy) = copy {
            let first = copy.record().first_cell();
            // Relaxed: as in `link_copy`.
            first.word().store(word & !QUEUED, Ordering::Relaxed);
            let retained = self.retired.link(first, cell, ts, sstamp);
            self.retired.push(cx, copy, Groups::FIRST, ts, epoch, retained);
        } else {
            chain::record_first_version(cell);
        }
        // Release, the store and the fence: as in `lock_cells`.
        cell.word().store(word | LOCKED, Ordering::Release);
        M::fence(Ordering::Release);
        cx.writes.install(position);
        // Release: as in `publish_version`.
        cell.word().store(ts << WTS_SHIFT | word & QUEUED, Ordering::Release);
    }

    /// Installs the write at this position.
    #[inline(never)]
    fn install_cells(
        &mut self,
        cx: &mut Context<M>,
        position: usize,
        copy: Option<OldVersion<M>>,
        epoch: u64,
        ts: u64,
        sstamp: u64,
    ) {
        if let Some(copy) = copy {
            self.link_copy(cx, position, copy, epoch, ts, sstamp);
        } else {
            let write = &cx.writes.entries()[position];
            let is_older = |cell: &Cell<M>| newest_wts(*cell) <= ts;
            write.cells().filter(|cell| had_row(*cell)).filter(is_older).for_each(chain::record_first_version);
        }
        lock_cells(&cx.writes.entries()[position], ts);
        cx.writes.install(position);
        publish_version(&mut cx.writes.entries_mut()[position], epoch, ts);
    }

    /// Links the copy of the versions that the write at this position overwrites into the chains of
    /// its cells.
    #[inline(always)]
    fn link_copy(
        &mut self,
        cx: &mut Context<M>,
        position: usize,
        copy: OldVersion<M>,
        epoch: u64,
        ts: u64,
        sstamp: u64,
    ) {
        let write = &cx.writes.entries()[position];
        let (mut copied, mut retained) = (Groups::NONE, false);
        for ((number, cell), copy) in
            write.cell_numbers().into_iter().zip(write.cells()).zip(copy.cells(write.groups()))
        {
            // Relaxed: the transaction holds the intent.
            let word = cell.word().load(Ordering::Relaxed);
            if wts_of(word) <= ts {
                // Relaxed: no other thread knows the copy yet. The Release of `chain::push_copy`
                // publishes it.
                copy.word().store(word & !QUEUED, Ordering::Relaxed);
                retained |= self.retired.link(copy, cell, ts, sstamp);
                copied = copied.union(Groups::of(number as u32));
            }
        }
        self.retired.push(cx, copy, copied, ts, epoch, retained);
    }
}

/// Sets the lock bit of the cells of a write, before its row is stored.
#[inline(always)]
fn lock_cells<M: Machine>(write: &Write<M>, ts: u64) {
    for cell in write.cells() {
        // Relaxed: the transaction holds the intent.
        let word = cell.word().load(Ordering::Relaxed);
        if wts_of(word) > ts {
            chain::end_versions_at(cell, ts);
        }
        // Release: the link comes before; pairs with the Acquire of a reader (`super::read`), which
        // follows the link if it sees the lock.
        cell.word().store(word | LOCKED, Ordering::Release);
    }
    // Release: the lock bits come before the stores to the row; pairs with the Acquire fence of
    // `super::read`.
    M::fence(Ordering::Release);
}

/// Stores the words of the versions that a write has installed; that unlocks the cells.
#[inline(always)]
fn publish_version<M: Machine>(write: &mut Write<M>, epoch: u64, ts: u64) {
    let first = write.record.first_cell().address();
    for cell in write.cells() {
        // Relaxed: the transaction holds the intent.
        let word = cell.word().load(Ordering::Relaxed);
        let queued = word & QUEUED;
        let flags = match write.kind {
            WriteKind::Insert if write.fresh => 0,
            WriteKind::Update | WriteKind::Insert => queued,
            _ if cell.address() == first => {
                write.collect = queued == 0;
                // Relaxed: only a holder of the intent loads it (`super::unlink`), and its exchange
                // acquires what `truncate` released.
                deletion_epoch(cell).store(epoch, Ordering::Relaxed);
                ABSENT | QUEUED
            }
            _ => ABSENT,
        };
        // A younger version has been updated. Its readers notice by the larger `wts`.
        let wts = ts.max(wts_of(word) + 1);
        // Release: the row comes before the word; pairs with the Acquire of `newest_to_read`.
        cell.word().store(wts << WTS_SHIFT | flags, Ordering::Release);
    }
}
