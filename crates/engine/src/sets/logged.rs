//! Write counters, additions and holds of the rows that a write set installs, for a log
//! ([`crate::commit_sink`]).
//!
//! All loads and stores of the words of a record are Relaxed here. The caller holds the cells
//! exclusively while it installs, or the protocol has granted it access: the protocol's own
//! synchronisation (its lock, or its version word) orders these words as it orders the row itself.

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

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`; the journal
// is `Send`.
unsafe impl<M: Machine> Send for Logging<M> {}

impl<M: Machine> Logging<M> {
    /// Returns the global epoch.
    fn epoch(&self) -> u64 {
        // SAFETY: the worker that owns this keeps the engine, and so the epochs.
        unsafe { self.epochs.as_ref() }.current()
    }
}

/// What a log is told of a transaction's writes.
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
        let Some(log) = &mut self.log else { return };
        let known = &mut self.logged;
        let entry = &self.entries[position];
        let table = entry.table();
        let groups = if entry.kind == WriteKind::Update { entry.groups() } else { Groups::ALL };
        let payload = table.payload(entry.record);
        let mut additions = None;
        let counter = if table.counts_writes() {
            let epoch = if known.is_sure { known.epoch } else { log.epoch() };
            let is_new = entry.fresh && entry.kind == WriteKind::Insert;
            let own = table.own_groups(groups);
            let (mut last, mut least, mut unsure) = (0, u64::MAX, false);
            for group in own {
                // Relaxed: the cells are held exclusively.
                let counter = payload[table.counter(group)].load(Ordering::Relaxed);
                (last, least, unsure) =
                    (last.max(counter & !UNSURE), least.min(counter), unsure | (counter & UNSURE != 0));
            }
            // A row that was reloaded when the log was opened has counter 0: its counter in the log
            // is not known here, so nothing is added to it.
            let is_logged = !is_new && !unsure && last > 0 && least == last;
            if is_new {
                last = 0;
            }
            if log.adds && known.is_sure && entry.is_sum && is_logged {
                let first = known.additions.len();
                let start = entry.start + entry.key_words as usize;
                let image = &self.arena[start..start + table.row_words()];
                // Relaxed: the cells are held exclusively.
                for word in table.spans(groups).flat_map(|span| span.words()) {
                    let by = image[word].wrapping_sub(payload[word].load(Ordering::Relaxed));
                    if by != 0 {
                        known.additions.push(Addition { word: word as u32, by });
                    }
                }
                additions = Some((first, known.additions.len()));
                WriteCounter(last)
            } else {
                let counter = (last + 1).max(epoch << COUNTER_EPOCH_SHIFT);
                if last == 0 {
                    table.check_first_counter(WriteCounter(counter));
                }
                let unsure = if known.is_sure { 0 } else { UNSURE };
                for group in own {
                    // Relaxed: the cells are held exclusively.
                    payload[table.counter(group)].store(counter | unsure, Ordering::Relaxed);
                }
                WriteCounter(counter)
            }
        } else {
            known.own_counter.expect("the protocol provides write counters")
        };
        if table.holds_rows() {
            for cell in table.cell_numbers(groups) {
                let word = &payload[table.hold(cell)];
                // A transaction that locked the row asked about the hold then. An optimistic one
                // may have written blindly, and asks here. Relaxed, both: the cells are held
                // exclusively.
                log.sink.wait_for(Hold(word.load(Ordering::Relaxed)));
                word.store(known.hold.0, Ordering::Relaxed);
            }
        }
        // Most protocols install in order, and each entry once. One that exposes rows before it
        // commits may roll a row back, and install it again.
        let is_next = position >= known.end;
        known.end = known.end.max(position + 1);
        let again = if is_next { None } else { known.writes.iter_mut().find(|logged| logged.position == position) };
        match again {
            Some(logged) => (logged.counter, logged.additions) = (counter, additions),
            None => known.writes.push(Logged { position, counter, additions }),
        }
    }

    /// Whether the worker's log lets the transaction use these groups of a record. The protocol has
    /// granted access before.
    #[inline(always)]
    pub(crate) fn may_pass(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) -> bool {
        let Some(Logging { sink, .. }) = &mut self.log else { return true };
        let payload = table.payload(record);
        // Relaxed: the writer stored the hold before it published the row, and the protocol has
        // synchronised with that.
        table.cell_numbers(groups).into_iter().all(|cell| {
            let hold = Hold(payload[table.hold(cell)].load(Ordering::Relaxed));
            hold == Hold::NONE || sink.may_pass(hold)
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

    /// Returns the epoch in which the transaction commits, if it has installed a write.
    pub(crate) fn installed_in(&self) -> Option<u64> {
        (!self.logged.writes.is_empty()).then_some(self.logged.epoch)
    }
}
