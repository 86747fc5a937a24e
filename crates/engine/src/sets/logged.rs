//! Write counters, additions and holds of the rows that a write set installs, for a log
//! ([`crate::commit_sink`]).
//!
//! All loads and stores of the words of a record are Relaxed here. The caller holds the cells
//! exclusively while it installs, or the protocol has granted it access: the protocol's own
//! synchronisation (its lock, or its version word) orders these words as it orders the row itself.
//!
//! - **Counters.** Two writers of a group hold its cell one after the other, so the second reads
//!   the counter that the first stored, and stores a larger one. The epoch below which no counter
//!   may lie is read at the write, or when the transaction becomes certain to commit.
//! - **Additions.** The difference is taken between the image and the row while the cell is held:
//!   no other write can come between the two. It is logged with the counter that the row has. A
//!   later full write raises the counter, and recovery then ignores the addition, whose effect the
//!   full write has read or replaced.
//! - **Holds.** The writer stores the hold before the protocol publishes the row (Release of its
//!   lock or version word). A reader loads the hold after the protocol has granted access (Acquire
//!   of the same word). So a reader that sees the row sees its hold, or a later one.

use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering};

use super::{WriteKind, WriteSet};
use crate::commit_sink::{Addition, COUNTER_EPOCH_SHIFT, CommitSink, Hold, Logged, WriteCounter};
use crate::epoch::Epochs;
use crate::group::Groups;
use crate::layout::TableCore;
use crate::record::Record;

/// Flag in a row's write counter: its writer installed before it was certain to commit. The row may
/// have been rolled back, the counter not. An addition is never logged against a counter with this
/// flag.
pub(crate) const UNSURE: u64 = 1 << 63;

/// The part of a worker that exists if its engine logs.
#[derive(Debug)]
pub(crate) struct Logging<M: Machine> {
    pub(crate) sink: Box<dyn CommitSink<M>>,
    /// The most words of keys and rows of a transaction ([`CommitSink::words_max`]).
    pub(crate) words_max: usize,
    /// Whether updates that commute are logged as additions.
    pub(crate) adds: bool,
    /// The epochs of the engine.
    pub(crate) epochs: NonNull<Epochs<M>>,
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`; the sink is
// `Send`.
unsafe impl<M: Machine> Send for Logging<M> {}

impl<M: Machine> Logging<M> {
    /// Returns the global epoch.
    fn epoch(&self) -> u64 {
        // SAFETY: the worker that owns this keeps the engine, and so the epochs.
        unsafe { self.epochs.as_ref() }.current()
    }
}

/// The facts about a transaction's writes that a log receives.
#[derive(Debug, Default)]
pub(super) struct LoggedWrites {
    /// Whether the transaction is certain to commit. Only then `epoch` and `hold` are valid.
    is_sure: bool,
    /// The epoch in which it commits.
    epoch: u64,
    /// The hold that it leaves on its cells.
    hold: Hold,
    /// The write counter, if the protocol provides it.
    own_counter: Option<WriteCounter>,
    /// The writes that were installed.
    writes: Vec<Logged>,
    /// One more than the largest position in `writes`.
    end: usize,
    /// The additions of all writes, one behind the other.
    additions: Vec<Addition>,
}

impl LoggedWrites {
    /// Forgets the transaction, and keeps the memory.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.additions.clear();
        self.end = 0;
        self.is_sure = false;
        self.own_counter = None;
    }

    /// Adds a write, or replaces the one of the same position. Most protocols install in order, and
    /// each entry once. One that exposes rows before it commits may roll a row back, and install it
    /// again.
    #[inline]
    fn note(&mut self, write: Logged) {
        let is_next = write.position >= self.end;
        self.end = self.end.max(write.position + 1);
        let again = if is_next { None } else { self.writes.iter_mut().find(|known| known.position == write.position) };
        match again {
            Some(known) => *known = write,
            None => self.writes.push(write),
        }
    }
}

impl<M: Machine> WriteSet<M> {
    /// Notes that the transaction is certain to commit. All transactions that it depends on came
    /// here before it. The first [`WriteSet::install`] calls this as well.
    #[inline(always)]
    pub fn will_commit(&mut self) {
        let logged = &mut self.logged;
        if !logged.is_sure
            && let Some(log) = &mut self.log
        {
            // Other transactions can depend on this one only after this call: its rows are
            // published later, or (Bamboo) it tells later that it will commit. They synchronise
            // with that, and so take a larger LSN, and no earlier epoch: their load of the epoch
            // happens after the load below, and loads of one word that happen one after the other
            // don't go back.
            logged.is_sure = true;
            logged.hold = log.sink.committing();
            logged.epoch = logged.own_counter.map_or_else(|| log.epoch(), WriteCounter::epoch);
        }
    }

    /// Sets the write counter of all writes of the transaction. A protocol that provides write
    /// counters calls this before its first install. `counter` must be larger than those of all
    /// earlier writes of the same cells, and have an epoch above it in which the transaction
    /// commits. Transactions that see the writes must commit in this epoch or a later one.
    #[inline(always)]
    pub fn set_write_counter(&mut self, counter: WriteCounter) {
        self.logged.own_counter = Some(counter);
    }

    /// Whether the write set is small enough for the worker's log, if it has one.
    #[inline(always)]
    pub(crate) fn fits_log(&self) -> bool {
        self.log.as_ref().is_none_or(|log| self.used <= log.words_max)
    }

    /// Gives the write at `position` a write counter, or makes it additions, and leaves the hold on
    /// its cells. The row is not installed yet.
    #[inline]
    pub(super) fn count_write(&mut self, position: usize) {
        if self.log.is_none() {
            return;
        }
        let entry = &self.entries[position];
        // SAFETY: as in `Write::table`; the borrow is not tied to the entry, and the entry is not
        // changed.
        let table = unsafe { entry.table.as_ref() };
        // Before the row is stored: an addition is the difference between the image and the row
        // that it replaces. And a hold must be there when the protocol publishes the row.
        let groups = if entry.kind == WriteKind::Update { entry.groups() } else { Groups::ALL };
        let (counter, additions) = if table.counts_writes() {
            self.next_counter(position, table, groups)
        } else {
            (self.logged.own_counter.expect("the protocol provides write counters"), None)
        };
        if table.holds_rows() {
            self.leave_hold(position, table, groups);
        }
        self.logged.note(Logged { position, counter, additions });
    }

    /// Returns the write counter that the row of the write at `position` has after the write, and
    /// the range of its additions if it is logged as additions. Stores the counter in the row.
    #[inline]
    fn next_counter(
        &mut self,
        position: usize,
        table: &TableCore<M>,
        groups: Groups,
    ) -> (WriteCounter, Option<(usize, usize)>) {
        let Some(log) = &self.log else { unreachable!("only a logged write is counted") };
        let (known, entry) = (&self.logged, &self.entries[position]);
        let payload = table.payload(entry.record);
        // A transaction that is not sure yet (Bamboo) takes the epoch of now, in which it writes
        // the row. It commits in this epoch or a later one.
        let epoch = if known.is_sure { known.epoch } else { log.epoch() };
        let own = table.own_groups(groups);
        let (mut last, mut least, mut unsure) = (0, u64::MAX, false);
        for group in own {
            // Relaxed: the cells are held exclusively.
            let counter = payload[table.counter(group)].load(Ordering::Relaxed);
            (last, least, unsure) = (last.max(counter & !UNSURE), least.min(counter), unsure | (counter & UNSURE != 0));
        }
        // A row that was reloaded when the log was opened has counter 0: its counter in the log is
        // not known here, so nothing is added to it. Nor is a counter 0 taken for granted where
        // this transaction has put the record into the index (`WriteEntry::fresh`): another may
        // have inserted the row before, and deleted it again, if the protocol lets both commit.
        let is_logged = !unsure && last > 0 && least == last;
        if log.adds && known.is_sure && entry.is_sum && is_logged {
            return (WriteCounter(last), Some(self.note_additions(position, table, groups)));
        }
        // No worker can be between the load of `last` and the store below, because the cells are
        // held. With two writers there, both could store `last + 1`, and recovery could not tell
        // which row is the later one.
        let counter = (last + 1).max(epoch << COUNTER_EPOCH_SHIFT);
        if last == 0 {
            table.check_first_counter(WriteCounter(counter));
        }
        let unsure = if known.is_sure { 0 } else { UNSURE };
        for group in own {
            // Relaxed: the cells are held exclusively.
            payload[table.counter(group)].store(counter | unsure, Ordering::Relaxed);
        }
        (WriteCounter(counter), None)
    }

    /// Notes the difference between image and row in each word of these groups, and returns the
    /// range of the new additions.
    #[inline]
    fn note_additions(&mut self, position: usize, table: &TableCore<M>, groups: Groups) -> (usize, usize) {
        let entry = &self.entries[position];
        let payload = table.payload(entry.record);
        let image = &self.arena[entry.image_words()];
        let additions = &mut self.logged.additions;
        let first = additions.len();
        for word in table.spans(groups).flat_map(|span| span.words()) {
            // Relaxed: the cells are held exclusively.
            // The row is still the one that the updates were applied to (`WriteSet::merge`), since
            // the cells were held all the time.
            let by = image[word].wrapping_sub(payload[word].load(Ordering::Relaxed));
            if by != 0 {
                additions.push(Addition { word: word as u32, by });
            }
        }
        (first, additions.len())
    }

    /// Leaves the transaction's hold on the cells of the write at `position`.
    fn leave_hold(&mut self, position: usize, table: &TableCore<M>, groups: Groups) {
        let Some(log) = &mut self.log else { return };
        let payload = table.payload(self.entries[position].record);
        for cell in table.cell_numbers(groups) {
            let word = &payload[table.hold(cell)];
            // The wait comes before the store. A hold that is overwritten is forgotten: a later
            // reader asks about this transaction only. So this one's predecessor must be durable
            // first. A transaction that locked the row asked about the hold then. An optimistic one
            // may have written blindly, and asks here. Relaxed, both: the cells are held
            // exclusively.
            log.sink.wait_for(Hold(word.load(Ordering::Relaxed)));
            word.store(self.logged.hold.0, Ordering::Relaxed);
        }
    }

    /// Whether the worker's log lets the transaction use these groups of a record. The protocol has
    /// granted access before.
    #[inline(always)]
    pub(crate) fn may_pass(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) -> bool {
        let Some(Logging { sink, .. }) = &mut self.log else { return true };
        let payload = table.payload(record);
        // An optimistic reader may find the hold of a later write than the one that it has read.
        // Then it waits for more than it needs, or aborts, and that is safe. Relaxed: the writer
        // stored the hold before it published the row, and the protocol has synchronised with that.
        table.cell_numbers(groups).into_iter().all(|cell| {
            let hold = Hold(payload[table.hold(cell)].load(Ordering::Relaxed));
            hold == Hold::NONE || sink.may_pass(hold)
        })
    }

    /// Whether all that was written to a record is durable, so that its absence may be seen without
    /// a look at its holds. The caller has found the epoch over in which the record was deleted.
    pub(crate) fn is_released(&mut self, table: &TableCore<M>, record: Record<M>) -> bool {
        let Some(Logging { sink, .. }) = &mut self.log else { return true };
        let payload = table.payload(record);
        // Relaxed: the transaction that deleted the record has left its epoch, and the caller
        // loaded that from its worker's slot with Acquire (`Epochs::oldest`). A transaction that
        // deletes the record again meanwhile does so in a later epoch, which the protocol looks at.
        table.cell_numbers(Groups::ALL).into_iter().all(|cell| {
            let hold = Hold(payload[table.hold(cell)].load(Ordering::Relaxed));
            hold == Hold::NONE || sink.is_released(hold)
        })
    }

    /// Waits until the worker's log lets the transaction use these groups of a record.
    pub(crate) fn wait_for_holds(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) {
        let Some(Logging { sink, .. }) = &mut self.log else { return };
        let payload = table.payload(record);
        for cell in table.cell_numbers(groups) {
            // Relaxed: as in `may_pass`.
            sink.wait_for(Hold(payload[table.hold(cell)].load(Ordering::Relaxed)));
        }
    }

    /// Returns the additions of a write, if it is logged as additions.
    #[inline(always)]
    pub fn additions(&self, logged: &Logged) -> Option<&[Addition]> {
        logged.additions.map(|(first, end)| &self.logged.additions[first..end])
    }

    /// Returns the writes that were installed. There are none unless the engine logs.
    #[inline(always)]
    pub fn logged(&self) -> &[Logged] {
        &self.logged.writes
    }

    /// Returns the epoch in which the transaction commits, if its log knows that it will commit.
    pub(crate) fn sure_in(&self) -> Option<u64> {
        self.logged.is_sure.then_some(self.logged.epoch)
    }
}
